/* SPDX-License-Identifier: Apache-2.0
 * The simulator's driver, against what is independent of it: live runs of ech_train (weights bit for bit, bytes on the wire message by
 * message), closed formulas for the time of runs, and itself with the arithmetic left out.
 *
 * Two functions of the library are led through this file, so that a cluster can be made to get stuck. */
#include "echelon_dev.h"
#include "echi_random.h"
#include "echi_sim.h"
#include "framed.h"
#include "part.h"
#include "sanitized.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* ------------------------------------------------------- a small problem */

enum { SIDE = 8, CLASSES = 4, TRAIN = 480, TEST = 100 };
static ech_model *small, *large, *model;   /* large: of its gradients some leave before the end of a step; model: the one in use */
static ech_data *data;

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    for (int i = 0; i < n; i++) {
        const uint32_t number = index[i] + (test ? 100000u : 0);
        labels[i] = (uint16_t)(number % CLASSES);
        for (uint32_t p = 0; p < SIDE * SIDE; p++) {
            const uint32_t noise = (number * 2654435761u + p * 40503u) >> 7;
            rows[(uint32_t)i * SIDE * SIDE + p] = (float)(p / SIDE % CLASSES == labels[i] ? 1 : 0) + (float)(noise % 64) / 64;
        }
    }
    return 0;
}

static int open_problem(void **state) {
    static const char text[] = "input 1 8 8\nconv2d out 4 kernel 3 pad 1\nrelu\nmax_pool kernel 2\nfc out 12\nrelu\nfc out 4\n";
    static const char more[] = "input 1 8 8\nconv2d out 16 kernel 3 pad 1\nrelu\nmax_pool kernel 2\nconv2d out 120 kernel 3 pad 1\nrelu\n"
                               "max_pool kernel 4\nfc out 200\nrelu\nfc out 4\n";
    const struct ech_data_callback callback = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .train_samples = TRAIN,
                                               .test_samples = TEST, .read = read_samples, .name = "bars"};
    struct ech_error err;
    (void)state;
    if (ech_model_parse(text, sizeof text - 1, "small", &small, &err) != ECH_OK) return -1;
    if (ech_model_parse(more, sizeof more - 1, "large", &large, &err) != ECH_OK) return -1;
    model = small;
    return ech_data_from_callback(&callback, &data, &err) == ECH_OK ? 0 : -1;
}
static int close_problem(void **state) {
    (void)state;
    ech_model_destroy(small);
    ech_model_destroy(large);
    ech_data_destroy(data);
    return 0;
}

/* ----------------------------------------------------------- a run of it */

enum { MOST = 64, PARAMS = 65536 };
struct run {
    struct ech_config config;
    struct echi_host host[MOST];
    struct echi_hosts hosts;
    struct echi_profile profile;
    bool real;
    struct echi_job job;
    struct ech_report report;
    struct ech_sim_counts counts;
    struct ech_error err;
    float params[PARAMS];
    char log[4096];
};
static struct run a, b;

static void set(struct ech_config *config, const char *name, const char *value) {
    struct ech_error err;
    if (ech_config_set(config, name, value, &err) != ECH_OK) fail_msg("%s", err.text);
}

static void keep_log(void *user, enum ech_log_level level, const char *line) {
    struct run *r = user;
    (void)level;
    strncat(r->log, line, sizeof r->log - strlen(r->log) - 2);
    strcat(r->log, "\n");
}

/* Hosts that are alike, links without bound, and steps of 100 us a sample in the trunk and 20 us in the head; all else is free. */
static void prepare(struct run *r, int world, const char *sync) {
    memset(r, 0, sizeof *r);
    ech_config_init(&r->config);
    r->config.world = world;
    r->config.on_log = keep_log;
    r->config.user = r;
    set(&r->config, "coordinator", "nowhere:1");
    set(&r->config, "sync", sync);
    set(&r->config, "batch", "32");
    set(&r->config, "epochs", "2");
    set(&r->config, "eval-every", "0");
    set(&r->config, "lr", "0.05");
    set(&r->config, "momentum", "0.9");
    r->hosts = (struct echi_hosts){.count = world, .host = r->host};
    for (int h = 0; h < world; h++) r->host[h] = (struct echi_host){.speed = 1, .cores = -1, .dies = -1, .joins = -1};
    const struct echi_times times = {.count = 2, .n = {1, 64}, .trunk = {1e-4, 64e-4}, .head = {2e-5, 128e-5}};
    echi_profile_of(&r->profile, "a host", model, &times);
    r->real = true;
}

static ech_status simulate(struct run *r) {
    assert_int_equal(echi_job_make(model, data, &r->config, &r->job, &r->err), ECH_OK);
    echi_model_init(model, r->config.seed, r->params);
    const struct echi_sim_run run = {.config = &r->config, .job = &r->job, .hosts = &r->hosts, .profile = &r->profile, .real = r->real,
                                     .params = r->params};
    echi_report_begin(&r->report, model->name, data->name, &r->config);
    return echi_sim_run(&run, &r->report, &r->counts, &r->err);
}
static void simulate_well(struct run *r) {
    if (simulate(r) != ECH_OK) fail_msg("%s", r->err.text);
}
static void assert_close(double got, double expected, double slack) {
    if (!(fabs(got - expected) <= slack)) fail_msg("%.9g, expected %.9g +- %.3g", got, expected, slack);
}
static uint64_t bytes_of(const struct ech_report *r, const char *kind) {
    for (int k = 0; r->kind_name[k]; k++)
        if (strcmp(r->kind_name[k], kind) == 0) return r->bytes_sent[k];
    fail_msg("no kind %s", kind);
    return 0;
}

/* ------------------------------------------------------------ live nodes */

struct live {
    struct ech_config config;
    float params[PARAMS];
    struct ech_report report;
    struct ech_error err;
    ech_status status;
    pthread_t thread;
};
static pthread_mutex_t bound_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bound_changed = PTHREAD_COND_INITIALIZER;
static char bound[256];

static void on_bound(void *user, const char *address) {
    (void)user;
    pthread_mutex_lock(&bound_mutex);
    snprintf(bound, sizeof bound, "%s", address);
    pthread_cond_signal(&bound_changed);
    pthread_mutex_unlock(&bound_mutex);
}
static void *train_one(void *self) {
    struct live *l = self;
    l->status = ech_train(model, data, &l->config, l->params, &l->report, &l->err);
    return NULL;
}
/* The same options, as a live cluster in this process; rank 0's outcome is in node[0]. */
static void train_live(const struct run *like, struct live *node, int world) {
    bound[0] = 0;
    for (int r = 0; r < world; r++) {
        memset(&node[r], 0, sizeof node[r]);
        node[r].config = like->config;
        node[r].config.rank = r;
        node[r].config.world = world;
        node[r].config.on_log = NULL;
        node[r].config.on_bound = on_bound;
        snprintf(node[r].config.coordinator, sizeof node[r].config.coordinator, "%s", world == 1 ? "" : r == 0 ? "127.0.0.1:0" : bound);
        assert_int_equal(pthread_create(&node[r].thread, NULL, train_one, &node[r]), 0);
        pthread_mutex_lock(&bound_mutex);
        while (r == 0 && world > 1 && !bound[0]) pthread_cond_wait(&bound_changed, &bound_mutex);
        pthread_mutex_unlock(&bound_mutex);
    }
    for (int r = 0; r < world; r++) {
        pthread_join(node[r].thread, NULL);
        if (node[r].status != ECH_OK) fail_msg("rank %d: %s", r, node[r].err.text);
    }
}

static struct live live[4];

/* One node under BSP: the weights, loss and accuracies of ech_train, bit for bit. */
static void one_node_is_a_live_one(void **state) {
    (void)state;
    static const char *const variants[][2] = {{"deterministic", "off"}, {"deterministic", "on"}, {"weight-decay", "0.01"},
                                              {"no-shuffle", "on"}};
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        prepare(&a, 1, "bsp");
        set(&a.config, variants[i][0], variants[i][1]);
        set(&a.config, "eval-every", "100");
        simulate_well(&a);
        train_live(&a, live, 1);
        assert_memory_equal(a.params, live[0].params, ech_model_params(model) * sizeof(float));
        assert_true(a.report.train_loss == live[0].report.train_loss && a.report.test_accuracy == live[0].report.test_accuracy);
        assert_true(a.report.best_accuracy == live[0].report.best_accuracy && a.report.samples == live[0].report.samples);
        assert_true(a.report.best_accuracy > 0.5);   /* it learnt something */
    }
}

/* --deterministic under BSP: any cluster, however unlike, jittered or short of nodes, has the bits of one node. */
static void deterministic_clusters_are_one_node(void **state) {
    (void)state;
    prepare(&a, 1, "bsp");
    set(&a.config, "deterministic", "on");
    set(&a.config, "eval-every", "100");
    simulate_well(&a);
    for (int variant = 0; variant < 8; variant++) {   /* the last two: a ring, of whose workers one may be lost that owns nothing */
        prepare(&b, 2 + variant, "bsp");
        set(&b.config, "deterministic", "on");
        set(&b.config, "eval-every", "100");
        if (variant >= 6) set(&b.config, "exchange", "ring");
        else if (variant % 2) set(&b.config, "separate", "1");
        if (variant == 7) set(&b.config, "shards", "0,2");
        for (int h = 0; h < b.hosts.count; h++) {
            b.host[h].speed = 1 + h % 3;
            b.host[h].jitter = 0.3;
            b.host[h].rate = 1e6 * (1 + h);
            b.host[h].delay = 0.001;
            b.host[h].loss = variant == 3 ? 0.05 : 0;
        }
        const bool dies = variant == 4 || variant == 7;
        if (dies) b.host[1].dies = 0.3;   /* not the fastest, which owns the weights */
        if (dies) set(&b.config, "deadline", "0.2");
        simulate_well(&b);
        assert_int_equal(b.report.n_lost, dies);
        assert_memory_equal(a.params, b.params, ech_model_params(model) * sizeof(float));
        assert_true(a.report.train_loss == b.report.train_loss && a.report.test_accuracy == b.report.test_accuracy);
    }
}

static void plain_plan(struct echi_plan *p, int world, const char *sync) {
    echi_plan_clear(p);
    for (int i = 0; i < ECHI_SYNCS; i++)
        if (strcmp(echi_policy_of((enum echi_sync)i)->name, sync) == 0) p->sync = (uint8_t)i;
    p->world = (uint16_t)world;
    p->n_groups = p->flights = 1;
    p->round = 32;
    p->staleness = 3;
    p->rounds_apart = 4;
    p->lr = 0.05;
    p->momentum = 0.9;
}
static void save_plan(const struct echi_plan *plan, char *path) {
    struct ech_error err;
    close(mkstemp(path));
    if (echi_plan_save(path, plan, NULL, &err) != ECH_OK) fail_msg("%s", err.text);
}

/* A worker on one node, all else on another: then there is one order of things, and live runs of every policy come out bit for bit. Layer
 * by layer, and the head's update behind its rows. */
static void one_worker_is_a_live_one(void **state) {
    (void)state;
    static const char *const sync[] = {"bsp", "asp", "ssp", "gssp"};
    model = large;
    for (int i = 0; i < 8; i += test_few() ? 3 : 1) {
        char plan[] = "/tmp/echelon-sim-plan.XXXXXX";
        struct echi_plan p;
        plain_plan(&p, 2, sync[i % 4]);
        p.cut = i >= 4;
        if (p.cut) p.head = 0;
        p.owner_of[0] = 0;
        p.group_of[1] = 0;
        p.n[1] = i % 4 ? 16 : 32;
        save_plan(&p, plan);
        prepare(&a, 2, sync[i % 4]);
        set(&a.config, "plan", plan);
        set(&a.config, "eval-every", "200");
        simulate_well(&a);
        train_live(&a, live, 2);
        unlink(plan);
        assert_memory_equal(a.params, live[0].params, ech_model_params(model) * sizeof(float));
        assert_true(a.report.train_loss == live[0].report.train_loss && a.report.best_accuracy == live[0].report.best_accuracy);
        for (int k = 0; k < ECH_STALENESS_BINS; k++) assert_int_equal(a.report.staleness_trunk[k], live[0].report.staleness_trunk[k]);
        assert_int_equal(bytes_of(&a.report, "push"), bytes_of(&live[0].report, "push"));
        assert_int_equal(bytes_of(&a.report, "activation_grad"), bytes_of(&live[0].report, "activation_grad"));
    }
    model = small;
}

/* What goes over the wire: of three nodes with fixed shares every kind has the bytes of the live run, frames and headers included.
 * Heartbeats and credits come by the real clock there. */
static void bytes_are_those_of_live_runs(void **state) {
    (void)state;
    static const char *const kinds[] = {"ready", "started", "lease", "applied", "ask", "drain", "drained", "activation_grad", "activation",
                                        "weights", "push", "params", "plan", "stats"};
    for (int separate = 0; separate < 2; separate++) {
        prepare(&a, 3, "bsp");
        set(&a.config, "shares", "equal");
        set(&a.config, "separate", separate ? "1" : "off");
        train_live(&a, live, 3);
        const struct ech_report *r = &live[0].report;
        /* The plan of the live run: its fastest node by the clock owns. */
        char plan[] = "/tmp/echelon-sim-plan.XXXXXX";
        struct echi_plan p;
        plain_plan(&p, 3, "bsp");
        p.cut = r->separate ? 1 : 0;
        if (separate) p.head = (uint16_t)r->head;
        p.owner_of[0] = (uint16_t)r->owner_of[0];
        for (int i = 0; i < 3; i++) {
            p.n[i] = (uint32_t)r->batch[i];
            p.group_of[i] = 0;
        }
        save_plan(&p, plan);
        set(&a.config, "plan", plan);
        simulate_well(&a);
        unlink(plan);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const uint64_t is = bytes_of(&a.report, kinds[k]), was = bytes_of(r, kinds[k]);
            /* STATS leave before they are counted, and rank 0 may plan by other times: only their length is known. */
            if (strcmp(kinds[k], "stats") == 0) continue;
            if (is != was) fail_msg("%s: %llu bytes, live %llu", kinds[k], (unsigned long long)is, (unsigned long long)was);
        }
    }
}

/* ------------------------------------------------------- closed formulas */

/* Stanza's formula (Wu et al., arXiv 1812.10624), by kind, with labels of two bytes: a round's activations there and their gradients back,
 * but of who has the head; the trunk's gradients to their owner and weights back, but of who owns it. A shadow gets all activations again,
 * but its own. Micro-batches carry the same rows in more messages: a step of n samples in four has n / 4 in each, give or take one. Of
 * several heads each has the sum of its workers' gradients sent to each other: (F - 1) F W_f; what a message says of itself is 5 bytes
 * longer for what its lease says of heads. In bf16 an activation takes two bytes, and so does its
 * gradient. What they take on the wire counts: frames, and what a message says of itself. */
static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    enum { WORLD = 4, HEAD = 2, OWNER = 1, SHADOW = 3, ROUNDS = 2 * TRAIN / 32, WIDTH = 4 * 4 * 4, TRUNK = 4 * 9 + 4, ALL = 40 + 780 + 52 };
    static const uint32_t n[WORLD] = {8, 3, 13, 8};
    static const uint16_t heads[] = {HEAD, 3, 0};   /* of two heads the first two */
    static const uint8_t head_of[WORLD] = {1, 0, 0, 1}, of_three[WORLD] = {2, 0, 0, 1};
    /* nothing separated; a head; with a shadow; either in micro-batches; two heads, three; two in micro-batches; some of them in bf16 */
    static const struct { bool shadow; uint8_t micros, heads, bf16; } hows[] = {
        {0, 1, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}, {0, 4, 0, 0}, {1, 4, 0, 0}, {0, 1, 2, 0}, {0, 1, 3, 0}, {0, 4, 2, 0},
        {0, 1, 0, 1}, {1, 4, 0, 1}, {0, 4, 2, 1}};
    for (int how = 0; how < (int)(sizeof hows / sizeof hows[0]); how++) {
        const bool shadow = hows[how].shadow;
        const uint32_t micros = hows[how].micros;
        char plan[] = "/tmp/echelon-sim-plan.XXXXXX";
        double rows = 0, copies = 0, answers = 0, pushes = 0, weights = 0;
        const double lease = hows[how].heads ? 5 : 0, number = hows[how].bf16 ? 2 : 4;
        struct echi_plan p;
        plain_plan(&p, WORLD, "bsp");
        p.cut = how > 0;
        if (how > 0) p.head = HEAD;
        if (shadow) p.shadow = 1 + SHADOW;
        if (micros > 1) p.micro_batches = (uint8_t)micros;
        if (hows[how].bf16) p.activations = ECHI_ACTIVATIONS_BF16;
        p.heads = hows[how].heads;
        for (int i = 0; i < p.heads; i++) p.head_rank[i] = heads[i];
        p.owner_of[0] = OWNER;
        for (int r = 0; r < WORLD; r++) {
            const double floats = 4.0 * (how ? TRUNK : ALL);
            p.n[r] = n[r];
            p.group_of[r] = 0;
            if (p.heads) p.head_of[r] = (p.heads == 3 ? of_three : head_of)[r];
            const int head = p.heads ? heads[p.head_of[r]] : HEAD;
            const uint32_t cut = micros < n[r] ? micros : n[r];
            for (uint32_t i = 0; i < cut; i++) {   /* those of n / cut samples, and those of one more */
                const uint32_t some = n[r] / cut + (i < n[r] % cut);
                if (r != head) rows += on_wire(ECHI_KIND_ACT, some * (number * WIDTH + 2)) + lease;
                if (r != head) answers += on_wire(ECHI_KIND_ACT_GRAD, some * number * WIDTH) + lease;
                if (r != SHADOW) copies += on_wire(ECHI_KIND_ACT, some * (number * WIDTH + 2));
            }
            if (r != OWNER) pushes += on_wire(ECHI_KIND_PUSH, floats) + lease;
            if (r != OWNER) weights += on_wire(ECHI_KIND_WEIGHTS, floats);
        }
        save_plan(&p, plan);
        prepare(&a, WORLD, "bsp");
        set(&a.config, "plan", plan);
        simulate_well(&a);
        unlink(plan);
        assert_int_equal(a.report.samples, 2 * TRAIN);
        assert_string_equal(a.report.activations, how == 0 ? "" : hows[how].bf16 ? "bf16" : "fp32");
        assert_int_equal(bytes_of(&a.report, "activation"), ROUNDS * (shadow ? rows + copies : how ? rows : 0));
        assert_int_equal(bytes_of(&a.report, "activation_grad"), ROUNDS * (how ? answers : 0));
        assert_int_equal(bytes_of(&a.report, "head_sum"), !p.heads ? 0 :
                         ROUNDS * (p.heads - 1) * p.heads * (on_wire(ECHI_KIND_HEAD_SUM, 4.0 * (ALL - TRUNK)) + lease));
        assert_int_equal(bytes_of(&a.report, "push"), ROUNDS * pushes);
        assert_int_equal(bytes_of(&a.report, "weights"), (ROUNDS + 1) * weights);
    }
}

/* Nothing but compute: BSP with equal shares goes at the pace of the slowest, by speed at the pace of all together. */
static void bsp_takes_what_the_slowest_takes(void **state) {
    (void)state;
    prepare(&a, 4, "bsp");
    set(&a.config, "shares", "equal");
    for (int h = 0; h < 4; h++) a.host[h].speed = 1 << h;
    simulate_well(&a);
    assert_int_equal(a.report.steps, 2 * TRAIN / 32);
    assert_close(a.report.seconds, 2.0 * TRAIN / 32 * 8 * 1.2e-4, 1e-6);
    assert_true(a.report.startup_seconds < 1e-6 && a.report.measuring_seconds == 0);
    assert_close(a.report.images_per_second, (double)a.report.samples / a.report.seconds, 1e-3);
    for (int h = 0; h < 4; h++) assert_close(a.report.step_seconds[h], 64 * 1.2e-4 / (1 << h), 1e-9);

    prepare(&a, 4, "bsp");
    set(&a.config, "batch", "240");   /* 16 : 32 : 64 : 128 */
    for (int h = 0; h < 4; h++) a.host[h].speed = 1 << h;
    simulate_well(&a);
    for (int h = 0; h < 4; h++) assert_int_equal(a.report.batch[h], 16 << h);
    assert_close(a.report.seconds, 2.0 * TRAIN / 240 * 16 * 1.2e-4, 1e-6);
}

/* ASP and GSSP wait for nobody: all rates add up. SSP waits for the slowest, in the long run. */
static void asynchronous_rates_add_up(void **state) {
    (void)state;
    static const char *const sync[] = {"asp", "gssp", "ssp"};
    for (int i = 0; i < 3; i++) {
        prepare(&a, 4, sync[i]);
        set(&a.config, "samples-per-step", "8");
        set(&a.config, "epochs", "40");
        set(&a.config, "separate", "off");
        if (i == 1) set(&a.config, "groups", "4");
        a.real = false;
        for (int h = 0; h < 4; h++) a.host[h].speed = 1 << h;
        simulate_well(&a);
        const double step = 8 * 1.2e-4, all = 40.0 * TRAIN / 8;   /* of the slowest; steps in all */
        const double expected = i < 2 ? all * step / 15 : all * step / 4;
        assert_close(a.report.seconds, expected, i < 2 ? 2 * step : 8 * step);   /* at the end some have nothing left to do */
        assert_int_equal(a.report.samples, 40 * TRAIN);
        for (int g = 0; g < a.report.n_groups && i == 1; g++) assert_close(a.report.iteration_seconds[g], step / (8 >> g), 1e-6);
    }
}

/* Workers whose coordinator is far do not wait for leases: so many are dealt ahead that the way to it does not show. The owner is near:
 * a step takes 6 ms, the way of its lease 40: with two each at a time a step would take 20. */
static void a_far_coordinator_holds_up_nobody(void **state) {
    (void)state;
    prepare(&a, 4, "asp");
    set(&a.config, "samples-per-step", "48");
    set(&a.config, "epochs", "400");
    set(&a.config, "separate", "off");
    a.real = false;
    a.host[0].speed = 0.1;   /* hardly takes part, and owns nothing */
    a.host[0].delay = 0.02;
    simulate_well(&a);
    assert_int_not_equal(a.report.owner_of[0], 0);
    const double alone = 3 * 48 / (48 * 1.2e-4);
    if (!(a.report.images_per_second > 0.85 * alone)) fail_msg("%g images/s, three workers make %g", a.report.images_per_second, alone);
}

/* A round of n equal workers over equal links, one of them the owner, and rank 0. Its n - 1 weights leave one after the other, and links
 * go both ways at once: while the second is served the first computes and pushes. The push of worker k has come in when k weights have
 * left, a step is computed and a push has crossed; where pushes queue, those behind it each take their time on top. A push says more than
 * weights do, so the earlier a queue begins the longer the round. But between the first weights and the second rank 0 sends the leases
 * of a later round, which are urgent, and n - 1 of them are longer than what a push is longer by: so the first push is in before the
 * second comes, and the queue begins with the second. Two workers' weights, n - 1 leases and n - 2 pushes make a round. */
static void bsp_over_links(void **state) {
    (void)state;
    prepare(&a, 5, "bsp");
    set(&a.config, "shards", "1");   /* two would send and take in at a time */
    set(&a.config, "shares", "equal");
    set(&a.config, "batch", "40");
    for (int h = 0; h < 5; h++) {
        a.host[h].rate = 1e6;
        a.host[h].delay = 0.002;
    }
    simulate_well(&a);
    const double rounds = (double)a.report.steps;
    const double push = (double)bytes_of(&a.report, "push") / 1e6 / rounds / 4;
    const double weights = (double)bytes_of(&a.report, "weights") / 1e6 / (rounds + 1) / 4;
    const double lease = (double)bytes_of(&a.report, "lease") / 1e6 / rounds / 4;
    const double expected = rounds * (8 * 1.2e-4 + 2 * weights + 4 * lease + 3 * push + 2 * 0.004);
    assert_true(push > weights && push < weights + 4 * lease && weights < ECHI_COST_CHUNK / 1e6);
    assert_close(a.report.seconds, expected, 0.001 * expected);
}

static void shared_cores_slow_down_together(void **state) {
    (void)state;
    prepare(&a, 4, "bsp");
    set(&a.config, "shares", "equal");
    a.hosts.pools = 1;
    a.hosts.pool_cores[0] = 1;
    for (int h = 0; h < 4; h++) a.host[h].cores = h < 3 ? 0 : -1;
    simulate_well(&a);
    assert_close(a.report.seconds, 2.0 * TRAIN / 32 * 8 * 1.2e-4 * 3, 1e-6);
    assert_close(a.report.step_seconds[0], 3 * 64 * 1.2e-4, 1e-9);   /* they also measure together */
    assert_close(a.report.step_seconds[3], 64 * 1.2e-4, 1e-9);
}

/* Where a host's speed is only of its arithmetic, and what the other tasks cost, by hand. */
static void tasks_cost_what_the_profile_says(void **state) {
    (void)state;
    const double n = (double)ech_model_params(model);
    prepare(&a, 3, "bsp");
    set(&a.config, "shares", "equal");
    set(&a.config, "batch", "24");
    a.profile.add = 1e-7;
    a.profile.apply = 1e-6;
    simulate_well(&a);
    /* A push that is in is added while others compute, but all are done at the same time: three sums and an update. */
    const double rounds = (double)a.report.steps;
    assert_close(a.report.seconds, rounds * (8 * 1.2e-4 + 3 * n * 1e-7 + n * 1e-6), 1e-6);

    prepare(&a, 1, "asp");
    set(&a.config, "samples-per-step", "8");
    a.profile.apply = 1e-6;
    simulate_well(&a);
    assert_close(a.report.seconds, 2.0 * TRAIN / 8 * (8 * 1.2e-4 + n * 1e-6), 1e-6);
    /* With a codec what stays here is written whole, and read, twice: gradients and weights. The first weights are, too, and the last
     * are written, but not waited for. */
    const double update = n * 1e-6, steps = 2.0 * TRAIN / 8;
    prepare(&a, 1, "asp");
    set(&a.config, "samples-per-step", "8");
    set(&a.config, "codec", "topk");
    a.profile.apply = 1e-6;
    simulate_well(&a);
    assert_close(a.report.seconds, steps * (8 * 1.2e-4 + 1.4 * update + 2 * update + update) + steps * 3.4 * update + 1.4 * update, 1e-6);
}

/* What is predicted of a head from any layer on is what a simulation finds, though hosts measure their steps with another cut. */
static void a_head_from_any_layer_is_predicted(void **state) {
    (void)state;
    int tried = 0;
    double least = 1e9, most = 0;
    for (int l = 0; l < model->n_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "%s", model->layers[l].name);
        if (!model->layers[l].weights || echi_model_boundary(model, l, NULL) != ECHI_BOUNDARY_USABLE) continue;
        prepare(&a, 8, "asp");
        set(&a.config, "separate", name);
        a.real = false;
        for (int h = 0; h < 8; h++) a.host[h].jitter = 0.05;
        simulate_well(&a);
        assert_string_equal(a.report.head_from, name);
        const double ratio = a.report.images_per_second / a.report.predicted_images_per_second;
        if (!(ratio > 0.85 && ratio < 1.15))
            fail_msg("from %s: %g, predicted %g", name, a.report.images_per_second, a.report.predicted_images_per_second);
        least = fmin(least, a.report.images_per_second), most = fmax(most, a.report.images_per_second);
        tried++;
    }
    assert_true(tried > 1 && most > 1.2 * least);
}

/* Every step takes its time times its own factor, in both halves where the head is apart. */
static void steps_take_their_factors(void **state) {
    (void)state;
    for (int separate = 0; separate < 2; separate++) {
        char plan[] = "/tmp/echelon-sim-plan.XXXXXX";
        struct echi_plan p;
        plain_plan(&p, 2, "asp");
        p.cut = (uint8_t)separate;
        if (separate) p.head = 0;
        p.owner_of[0] = 0;
        p.group_of[1] = 0;
        p.n[1] = 16;
        save_plan(&p, plan);
        prepare(&a, 2, "asp");
        set(&a.config, "plan", plan);
        a.real = false;
        a.host[0].speed = 1e9;
        a.host[1].jitter = 0.4;
        a.host[1].stutter = 0.1;
        a.host[1].stutter_factor = 3;
        simulate_well(&a);
        unlink(plan);
        double expected = 0;
        for (uint64_t step = 0; step < 2 * TRAIN / 16; step++)
            expected += 16 * (separate ? 1e-4 : 1.2e-4) * echi_hosts_step_factor(&a.hosts, a.config.seed, 1, step);
        assert_close(a.report.seconds, expected, 1e-6);
    }
}

/* A look stops the clock, wherever it comes. */
static void evaluations_take_no_time_of_training(void **state) {
    (void)state;
    prepare(&a, 4, "bsp");
    set(&a.config, "shares", "equal");
    prepare(&b, 4, "bsp");
    set(&b.config, "shares", "equal");
    set(&b.config, "eval-every", "96");
    a.profile.eval = b.profile.eval = 1e-3;
    simulate_well(&a);
    simulate_well(&b);
    assert_close(b.report.measuring_seconds, 2.0 * TRAIN / 96 * TEST * 1e-3, 0.05 * 2.0 * TRAIN / 96 * TEST * 1e-3 + TEST * 1e-3);
    assert_close(a.report.seconds, b.report.seconds, 1e-5);
    assert_memory_equal(a.params, b.params, ech_model_params(model) * sizeof(float));
}

/* --------------------------------------------------- nothing but the seed */

/* Files of a run; from malloc, of *out_len bytes. */
static char *slurp(const char *path, size_t *out_len) {
    FILE *f = fopen(path, "rb");
    char *bytes = calloc(1, 1 << 20);
    assert_non_null(f);
    assert_non_null(bytes);
    *out_len = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static void same_seed_same_bytes(void **state) {
    (void)state;
    static const char *const sync[] = {"bsp", "asp", "ssp", "gssp"};
    char folder[] = "/tmp/echelon-sim.XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 4; i++) {
        char *bytes[3][2];
        size_t len[3][2];
        for (int run = 0; run < 3; run++) {
            char path[2][64];
            struct ech_config config;
            struct ech_error err;
            const struct ech_sim_options options = {.workers = 6, .spread = "strong"};
            ech_config_init(&config);
            set(&config, "sync", sync[i]);
            set(&config, "epochs", "1");
            set(&config, "eval-every", "200");
            set(&config, "seed", run < 2 ? "5" : "6");
            for (int f = 0; f < 2; f++) snprintf(path[f], sizeof path[f], "%s/%d.%d", folder, run, f);
            set(&config, "save", path[0]);
            set(&config, "report", path[1]);
            if (ech_simulate(model, data, &config, &options, NULL, &err) != ECH_OK) fail_msg("%s", err.text);
            for (int f = 0; f < 2; f++) {
                bytes[run][f] = slurp(path[f], &len[run][f]);
                unlink(path[f]);
            }
        }
        for (int f = 0; f < 2; f++) {
            assert_int_equal(len[0][f], len[1][f]);
            assert_memory_equal(bytes[0][f], bytes[1][f], len[0][f]);
            assert_true(len[0][f] != len[2][f] || memcmp(bytes[0][f], bytes[2][f], len[0][f]) != 0);
            for (int run = 0; run < 3; run++) free(bytes[run][f]);
        }
    }
    rmdir(folder);
}

/* Without arithmetic the times are the same to the nanosecond: it decides nothing but what is learnt. */
static void costs_alone_take_the_same_time(void **state) {
    (void)state;
    static const char *const sync[] = {"bsp", "asp", "ssp", "gssp"};
    for (int i = 0; i < 8; i += test_few() ? 3 : 1) {
        for (struct run *r = &a;; r = &b) {
            prepare(r, 7, sync[i % 4]);
            set(&r->config, "separate", i < 4 ? "off" : "1");
            if (i % 4) set(&r->config, "samples-per-step", "16");
            set(&r->config, "epochs", "16");
            if (i % 4) set(&r->config, "momentum", "0.5");   /* with 0.9 what gssp learns in so few steps is a matter of luck */
            for (int h = 0; h < 7; h++) {
                r->host[h].speed = 1 + h;
                r->host[h].jitter = 0.2;
                r->host[h].stutter = 0.05;
                r->host[h].stutter_factor = 5;
                r->host[h].rate = 1e7;
                r->host[h].delay = 1e-4;
            }
            r->profile.apply = r->profile.add = r->profile.refresh = 1e-9;
            r->profile.message = 1e-6;
            r->profile.copy = 1e-9;
            r->real = r == &a;
            simulate_well(r);
            if (r == &b) break;
        }
        assert_true(a.report.seconds == b.report.seconds && a.report.staleness_mean == b.report.staleness_mean);
        assert_memory_equal(a.report.staleness_trunk, b.report.staleness_trunk, sizeof a.report.staleness_trunk);
        assert_int_equal(bytes_of(&a.report, "push"), bytes_of(&b.report, "push"));
        assert_int_equal(bytes_of(&a.report, "weights"), bytes_of(&b.report, "weights"));
        if (a.report.test_accuracy <= 0.5) fail_msg("%d: %g", i, a.report.test_accuracy);
        assert_true(b.report.test_accuracy < 0);
        assert_true(b.report.train_loss == 0);
    }
}

/* ----------------------------------------------------- all of every policy */

static void policies_account_for_all_samples(void **state) {
    (void)state;
    static const char *const sync[] = {"bsp", "asp", "ssp", "gssp"};
    for (int i = 0; i < 4 * 2 * 3; i += test_few() ? 5 : 1) {
        prepare(&a, 9, sync[i % 4]);
        set(&a.config, "separate", i / 4 % 2 ? "1" : "off");
        set(&a.config, "epochs", "3");
        set(&a.config, "eval-every", "200");
        char seed[12];
        snprintf(seed, sizeof seed, "%d", i);
        set(&a.config, "seed", seed);
        if (i % 4) set(&a.config, "lr", "0.01");
        for (int h = 0; h < 9; h++) {
            a.host[h].speed = pow(2, h % 4);
            a.host[h].jitter = 0.15;
            a.host[h].stutter = 0.02;
            a.host[h].stutter_factor = 5;
            a.host[h].rate = i < 8 ? 0 : i < 16 ? 1e8 : 1e6;
            a.host[h].delay = i < 8 ? 0 : 1e-4;
            a.host[h].loss = i < 16 ? 0 : 0.01;
        }
        simulate_well(&a);
        uint64_t pushes = 0;
        for (int k = 0; k < ECH_STALENESS_BINS; k++) pushes += a.report.staleness_trunk[k];
        assert_int_equal(a.report.samples, 3 * TRAIN);
        assert_true(pushes > 0 && pushes * 256 >= a.report.samples);
        assert_true(a.report.best_accuracy > 0.5);
        assert_true(a.report.seconds > 0 && a.counts.events > 0 && a.counts.role_events > 0);
        if (i % 4 == 0) assert_true(a.report.staleness_max == 0);
        if (i % 4 == 3) assert_true(a.report.n_groups >= 2);
    }
}

/* Clusters drawn by the seed, a part of them with deaths: all samples are trained, or the run ends because of a node without which it
 * cannot go on. Never does it get stuck, nor does a role object. */
static void drawn_clusters_end(void **state) {
    (void)state;
    static const char *const sync[] = {"bsp", "asp", "ssp", "gssp"};
    int ended = 0, lost = 0, went_on = 0;
    for (uint32_t seed = 0; seed < 400; seed += test_part()) {
        struct echi_random random;
        char number[16];
        echi_random_init(&random, seed, ECHI_STREAM_TEST, 99);
        const int world = 2 + (int)echi_random_below(&random, 14), which = (int)echi_random_below(&random, 4);
        prepare(&a, world, sync[which]);
        a.real = false;
        snprintf(number, sizeof number, "%u", seed);
        set(&a.config, "seed", number);
        set(&a.config, "separate", echi_random_below(&random, 2) ? "1" : "off");
        set(&a.config, "deadline", "0.02");
        if (which && echi_random_below(&random, 2)) set(&a.config, "samples-per-step", "4");
        a.hosts.pools = 2;
        a.hosts.pool_cores[0] = 1;
        a.hosts.pool_cores[1] = 3;
        const bool losses = echi_random_below(&random, 4) == 0, deaths = echi_random_below(&random, 3) == 0;
        for (int h = 0; h < world; h++) {
            struct echi_host *host = &a.host[h];
            host->speed = pow(2, 3 * echi_random_unit(&random) - 1.5);
            host->cores = (int)echi_random_below(&random, 6) - 3;
            if (host->cores < 0 || host->cores > 1) host->cores = -1;
            host->jitter = echi_random_unit(&random) * 0.4;
            host->stutter = echi_random_unit(&random) * 0.1;
            host->stutter_factor = 1 + echi_random_unit(&random) * 9;
            host->rate = echi_random_below(&random, 3) ? pow(10, 6 + 3 * echi_random_unit(&random)) : 0;
            host->delay = echi_random_below(&random, 2) ? pow(10, -6 + 4 * echi_random_unit(&random)) : 0;
            host->loss = losses ? 0.01 : 0;
            if (h > 0 && echi_random_below(&random, 8) == 0) host->joins = echi_random_unit(&random);
            if (h > 0 && deaths && echi_random_below(&random, 4) == 0)
                host->dies = (host->joins > 0 ? host->joins : 0) + echi_random_unit(&random) * 0.3;
            host->n_slow = (int)echi_random_below(&random, 2);
            host->slow[0].from = echi_random_unit(&random) * 0.2;
            host->slow[0].until = echi_random_below(&random, 2) ? INFINITY : host->slow[0].from + 0.1;
            host->slow[0].factor = 1 + echi_random_unit(&random) * 5;
        }
        a.profile.apply = a.profile.add = a.profile.refresh = echi_random_unit(&random) * 1e-8;
        a.profile.message = echi_random_unit(&random) * 1e-5;
        a.profile.copy = echi_random_unit(&random) * 1e-9;
        const ech_status status = simulate(&a);
        if (status == ECH_OK) assert_int_equal(a.report.samples, 2 * TRAIN);
        else if (status != ECH_E_PEER_LOST || !deaths) fail_msg("seed %u: %s\n%s", seed, a.err.text, a.log);
        ended += status == ECH_OK;
        lost += status != ECH_OK;
        went_on += status == ECH_OK && a.report.n_lost > 0;
    }
    print_message("%d clusters trained all, %d of them without some that were lost; %d ended with a node\n", ended, went_on, lost);
    assert_true(test_few() || (went_on >= 20 / (int)test_part() && lost >= 5 / (int)test_part()));
}

/* ------------------------------------------------------------- regrouping */

/* Long runs without arithmetic of hosts that differ in speed alone, 16 ms a step where that is 1. */
static void prepare_speeds(int hosts, const char *groups, const char *regroup) {
    prepare(&a, hosts, "gssp");
    set(&a.config, "separate", "off");
    set(&a.config, "groups", groups);
    set(&a.config, "samples-per-step", "16");
    set(&a.config, "epochs", "1000");
    set(&a.config, "regroup", regroup);
    a.real = false;
    a.profile.times.trunk[0] = 1e-3;
    a.profile.times.trunk[1] = 64e-3;
    for (int h = 0; h < hosts; h++) {
        a.host[h].rate = 1e9;
        a.host[h].delay = 1e-5;
    }
}

/* Four alike in one group. */
static void prepare_alike(const char *regroup) {
    prepare_speeds(4, "1", regroup);
    for (int h = 0; h < 4; h++) {
        a.host[h].speed = 1;
        a.host[h].jitter = 0.1;
    }
}

/* From two seconds after the beginning on one of them takes five times as long, for so many seconds. */
static void one_is_late(double seconds, const char *codec, const char *regroup) {
    prepare_alike(regroup);
    set(&a.config, "codec", codec);
    a.host[2].n_slow = seconds > 0;
    a.host[2].slow[0] = (struct echi_spell){3, 3 + seconds, 5};
    simulate_well(&a);
    assert_int_equal(a.report.samples, 1000 * TRAIN);
}

/* A reserve that nobody needs costs nothing, and is not seen; who falls behind gets it, and returns. */
static void a_late_one_has_a_group_of_its_own(void **state) {
    (void)state;
    static const char *const codec[] = {"dense", "topk:balanced"};
    for (int i = test_few(); i < 2; i++) {
        one_is_late(0, codec[i], "off");
        const double alone = a.report.seconds;
        one_is_late(0, codec[i], "auto");
        if (fabs(a.report.seconds - alone) > 1e-3 * alone) fail_msg("%g s, without a reserve %g", a.report.seconds, alone);
        assert_true(a.report.n_groups == 1 && a.report.regroups == 0);
        one_is_late(INFINITY, codec[i], "off");
        const double held = a.report.seconds;
        one_is_late(INFINITY, codec[i], "auto");
        assert_true(a.report.regroups == 1 && a.report.n_groups == 2 && a.report.group_of[2] == 1 &&
                    a.report.owner_of[1] != a.report.owner_of[0]);
        assert_non_null(strstr(a.log, "rank 2 joins group 1, the reserve: "));
        if (a.report.seconds > 0.5 * held) fail_msg("%g s, without a reserve %g", a.report.seconds, held);
        one_is_late(30, codec[i], "auto");
        assert_int_equal(a.report.regroups, 2);
        for (int r = 0; r < 4; r++) assert_int_equal(a.report.group_of[r], 0);
        assert_int_equal(a.report.n_groups, 2);   /* it was made use of */
    }
}

/* Two groups of three, one four times as fast. From two seconds after the beginning on rank 1, of the fast, is as slow as the others,
 * for so many seconds. Steps of 4 and 16 ms. */
static void slowed(double seconds, const char *regroup) {
    prepare_speeds(6, "2", regroup);
    for (int h = 0; h < 6; h++) {
        a.host[h].speed = h < 3 ? 4 : 1;
        a.host[h].jitter = 0.15;
        a.host[h].stutter = 0.02;
        a.host[h].stutter_factor = 5;
    }
    simulate_well(&a);
    assert_int_equal(a.report.regroups, 0);   /* nothing has happened yet */
    const double begins = a.report.startup_seconds + 2;
    memset(&a.report, 0, sizeof a.report);
    a.log[0] = 0;
    a.host[1].n_slow = 1;
    a.host[1].slow[0].from = begins;
    a.host[1].slow[0].until = begins + seconds;
    a.host[1].slow[0].factor = 4;
    simulate_well(&a);
    assert_int_equal(a.report.samples, 1000 * TRAIN);
}

static void what_lasts_regroups_and_what_passes_does_not(void **state) {
    (void)state;
    slowed(5, "auto");
    assert_int_equal(a.report.regroups, 0);
    slowed(INFINITY, "auto");
    assert_int_equal(a.report.regroups, 1);
    assert_true(a.report.group_of[1] == a.report.group_of[3] && a.report.group_of[0] != a.report.group_of[3]);
    assert_non_null(strstr(a.log, "rank 1 joins group 1: "));
    const double seconds = a.report.seconds;
    slowed(INFINITY, "off");
    assert_int_equal(a.report.regroups, 0);
    if (seconds >= 0.8 * a.report.seconds) fail_msg("%g s, without regrouping %g", seconds, a.report.seconds);
    slowed(9, "auto");   /* and it comes back */
    assert_int_equal(a.report.regroups, 2);
    assert_true(a.report.group_of[1] == a.report.group_of[0]);
}

/* Four alike in step, by rounds of 256 samples. From ten seconds after the beginning on rank 2 takes twice as long, for so many seconds. */
static void one_of_a_round_is_slow(double seconds, const char *exchange, const char *regroup) {
    prepare_alike(regroup);
    set(&a.config, "sync", "bsp");
    set(&a.config, "groups", "auto");
    set(&a.config, "samples-per-step", "auto");
    set(&a.config, "batch", "256");
    set(&a.config, "shards", "4");
    set(&a.config, "exchange", exchange);
    set(&a.config, "epochs", "1200");
    a.host[2].n_slow = seconds > 0;
    a.host[2].slow[0] = (struct echi_spell){10, 10 + seconds, 2};
    for (int h = 0; h < 4; h++) {
        a.host[h].stutter = seconds > 0 ? 0 : 0.02;
        a.host[h].stutter_factor = 5;
    }
    simulate_well(&a);
    assert_int_equal(a.report.samples, 1200 * TRAIN);
}

/* Its share becomes smaller, and what it was when it has recovered; chance changes nothing. */
static void rounds_follow_a_straggler(void **state) {
    (void)state;
    static const char *const exchange[] = {"server", "ring"};
    for (int i = 0; i < 2; i++) {
        one_of_a_round_is_slow(0, exchange[i], "auto");
        assert_int_equal(a.report.resizes, 0);
        one_of_a_round_is_slow(INFINITY, exchange[i], "off");
        const double held = a.report.seconds;
        one_of_a_round_is_slow(INFINITY, exchange[i], "auto");
        assert_in_range(a.report.resizes, 1, 2);   /* the second where the first came before its speed had settled */
        assert_non_null(strstr(a.log, "rank 2 computes "));
        assert_true(a.report.batch[2] > 16 && a.report.batch[2] < 48 && a.report.batch[0] > 64);
        if (a.report.seconds > 0.8 * held) fail_msg("%g s, with the plan's shares %g", a.report.seconds, held);
        one_of_a_round_is_slow(60, exchange[i], "auto");
        assert_in_range(a.report.resizes, 2, 4);
        for (int r = 0; r < 4; r++) assert_in_range(a.report.batch[r], 58, 70);
    }
}

/* Four alike, one of which trains the last layers for all; and with a shadow another does. From five seconds after the beginning on this
 * rank takes eight times as long, -1: none does. */
static void with_a_head(const char *sync, bool shadow, int slow, const char *regroup) {
    prepare_alike(regroup);
    set(&a.config, "sync", sync);
    set(&a.config, "separate", "1");
    set(&a.config, "heads", "1");
    set(&a.config, "samples-per-step", "auto");
    set(&a.config, "batch", "64");
    set(&a.config, "epochs", "2000");
    if (shadow) set(&a.config, "shadow", "on");
    for (int h = 0; h < 4; h++) a.host[h].jitter = 0;
    a.profile.times.head[0] = 5e-4;
    a.profile.times.head[1] = 16e-3;
    if (slow >= 0) {
        a.host[slow].n_slow = 1;
        a.host[slow].slow[0] = (struct echi_spell){5, INFINITY, 8};
    }
    simulate_well(&a);
    assert_int_equal(a.report.samples, 2000 * TRAIN);
    assert_int_equal(a.report.n_lost, 0);
}

static void a_head_leaves_a_slow_node(void **state) {
    (void)state;
    static const char *const sync[] = {"bsp", "asp", "gssp"};
    for (int i = 0; i < 6; i++) {
        const bool shadow = i >= 3;
        with_a_head(sync[i % 3], shadow, -1, "auto");
        const int head = a.report.head;
        const double usual = a.report.seconds;
        assert_true(a.report.head_moves == 0 && a.report.head_seconds == 0);
        with_a_head(sync[i % 3], shadow, head, "off");
        const double held = a.report.seconds;
        assert_true(a.report.head_moves == 0 && a.report.head == head);
        with_a_head(sync[i % 3], shadow, head, "auto");
        assert_in_range(a.report.head_moves, 1, 2);   /* the second to a place that is better still */
        assert_true(a.report.head != head && a.report.head_seconds > 0 && a.report.head_seconds < 0.1 * a.report.seconds);
        assert_non_null(strstr(a.log, "the separated layers move from rank "));
        if (a.report.seconds > 0.8 * held)
            fail_msg("%s: %g s, with the head where it was %g, of a fast one %g", sync[i % 3], a.report.seconds, held, usual);
    }
}

/* A link that carries a fiftieth is worth a plan without its node, which roles cannot make of the one that goes: it is named, once. */
static void a_better_plan_is_named(void **state) {
    (void)state;
    for (int thin = 0; thin < 2; thin++) {
        prepare_alike("auto");
        set(&a.config, "sync", "bsp");
        set(&a.config, "groups", "auto");
        set(&a.config, "samples-per-step", "auto");
        set(&a.config, "batch", "64");
        set(&a.config, "epochs", "1000");
        for (int h = 0; h < 4; h++) a.host[h].rate = 1e6;
        a.host[3].n_thin = thin;
        a.host[3].thin[0] = (struct echi_spell){10, INFINITY, 50};
        simulate_well(&a);
        assert_int_equal(a.report.better_plans, thin);
        if (!thin) continue;
        const char *named = strstr(a.log, "plan: the link of rank 3 carries ");
        assert_true(named && !strstr(named + 1, "plan: the link") && strstr(named, " of 4 ranks that train, "));
        assert_int_equal(strncmp(a.report.better_plan, named + strlen("plan: "), strlen(a.report.better_plan)), 0);
    }
}

/* Four alike in one group, with links of 8 Mb/s. From ten seconds after the beginning on rank 2's carries a twentieth, for so many
 * seconds. */
static void one_is_thin(double seconds, const char *regroup) {
    prepare_alike(regroup);
    for (int h = 0; h < 4; h++) a.host[h].rate = 1e6;
    a.host[2].n_thin = seconds > 0;
    a.host[2].thin[0] = (struct echi_spell){10, 10 + seconds, 20};
    simulate_well(&a);
    assert_int_equal(a.report.samples, 1000 * TRAIN);
}

/* A worker whose steps have become long because of its link alone: a prediction by the links of the start would say that it is as well off
 * where it is. It leaves, and is back when its link is. */
static void a_thin_link_is_known_to_moves(void **state) {
    (void)state;
    one_is_thin(0, "auto");
    assert_int_equal(a.report.regroups, 0);
    one_is_thin(INFINITY, "off");
    const double held = a.report.seconds;
    one_is_thin(INFINITY, "auto");
    assert_true(a.report.regroups == 1 && a.report.n_groups == 2 && a.report.group_of[2] == 1);
    assert_non_null(strstr(a.log, "rank 2 joins group 1, the reserve: "));
    if (a.report.seconds > 0.7 * held) fail_msg("%g s, without a reserve %g", a.report.seconds, held);
    one_is_thin(60, "auto");
    assert_int_equal(a.report.regroups, 2);
    for (int r = 0; r < 4; r++) assert_int_equal(a.report.group_of[r], 0);
}

/* ------------------------------------------------------- deaths and joins */

static void the_others_go_on(void **state) {
    (void)state;
    static const char *const sync[] = {"bsp", "asp", "ssp", "gssp"};
    for (int i = 0; i < 12; i += test_few() ? 3 : 1) {
        prepare(&a, 8, sync[i % 4]);
        set(&a.config, "separate", i / 4 == 1 ? "1" : "off");
        set(&a.config, "heads", "1");   /* the loss of one of several ends the run */
        set(&a.config, "deadline", "0.05");
        set(&a.config, "epochs", "6");
        if (i % 4 == 0) set(&a.config, "shares", "equal");   /* rank 0 trains: else the loss of an owner of a shard ends the run */
        if (i % 4) set(&a.config, "samples-per-step", "8");
        if (i % 4) set(&a.config, "lr", "0.01");
        for (int h = 0; h < 8; h++) {
            a.host[h].speed = h < 4 ? 1 : 2;
            a.host[h].jitter = 0.1;
            a.host[h].rate = 1e8;
            a.host[h].delay = 1e-5;
        }
        if (i / 4 == 2) a.host[6].delay = 0.08;   /* what it sent comes when nobody counts on it any more */
        if (i % 4 == 3) a.host[1].speed = 1.1;   /* owner of the slow group: under gssp it may be lost too */
        if (i % 4 == 3) set(&a.config, "groups", "2");
        simulate_well(&a);
        const double begins = a.report.startup_seconds;
        a.host[2].dies = begins + 0.005;
        a.host[6].dies = begins + 0.011;
        if (i % 4 == 3) a.host[1].dies = begins + 0.015;
        const bool owned = a.report.n_shards > 0;
        memset(&a.report, 0, sizeof a.report);
        simulate_well(&a);
        assert_true(owned || i > 0);
        assert_int_equal(a.report.n_lost, i % 4 == 3 ? 3 : 2);
        assert_int_equal(a.report.lost[0], 2);
        assert_int_equal(a.report.samples, 6 * TRAIN);
        assert_true(a.report.samples_again > 0 || i % 4 == 0 || i >= 8);
        assert_non_null(strstr(a.log, "rank 2 has died"));
    }
}

/* A death is noticed after the silence that a live coordinator would grant: while little is known of a node nearly the deadline, later
 * two fifths of it (lib/drive/live/silence.c, by hand). BSP waits for it: what is left of the run is known to the sample. Shares
 * of 32 are 11, 11, 10; of two nodes 17 and 15; what rank 1 had of this round and of the next, 11 each, is given to one of them. */
static void deaths_are_noticed_after_a_silence(void **state) {
    (void)state;
    static const double dies[] = {1, 200}, silence[] = {1 + 4 * (2.25 - 2.25 / 32), 4};
    for (int i = 0; i < 2; i++) {
        prepare(&a, 3, "bsp");
        set(&a.config, "shares", "equal");
        set(&a.config, "epochs", i ? "10" : "60");
        a.real = false;
        for (int h = 0; h < 3; h++) a.host[h].speed = i ? 0.0005 : 0.05;
        a.host[1].dies = dies[i];
        simulate_well(&a);
        const double sample = 1.2e-4 / a.host[0].speed, rounds = (i ? 10 : 60) * TRAIN / 32;
        const double left = rounds - floor(dies[i] / (11 * sample));
        const double rest = (11 + 22 + (left - 2) * 17) * sample;
        assert_int_equal(a.report.samples_again, 22);
        assert_close(a.report.seconds, dies[i] + silence[i] + rest, 2 * sample);
    }
}

static void whose_loss_ends_the_run(void **state) {
    (void)state;
    prepare(&a, 3, "bsp");
    set(&a.config, "shards", "2,1");   /* rank 1 works, too */
    a.host[2].dies = 0.01;
    simulate_well(&a);
    assert_true(a.report.n_lost == 1 && a.report.samples == 2 * TRAIN);
    prepare(&a, 3, "bsp");
    set(&a.config, "shards", "2,1");   /* it does not */
    set(&a.config, "shares", "16,0,16");
    a.host[2].dies = 0.01;
    assert_int_equal(simulate(&a), ECH_E_PEER_LOST);
    assert_int_equal(a.report.lost_peer, 2);
    assert_non_null(strstr(a.err.text, "rank 2 was lost (nothing was heard of it)"));
    prepare(&a, 3, "bsp");
    a.host[0].dies = 0.01;
    assert_int_equal(simulate(&a), ECH_E_PEER_LOST);
    assert_non_null(strstr(a.err.text, "rank 0 died"));
}

/* Owners that have no samples. What they make of the weights: test_exact. */
static void servers_train_nothing(void **state) {
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        prepare(&a, 4, "bsp");
        set(&a.config, "shards", dies ? "0,2,3" : "2,3");
        set(&a.config, "shares", "16,16,0,0");
        set(&a.config, "deadline", "0.05");
        if (dies) a.host[3].dies = 0.05;
        simulate_well(&a);
        assert_int_equal(a.report.n_shards, dies ? 3 : 2);
        assert_int_equal(a.report.n_lost, dies);
        assert_int_equal(a.report.samples, 2 * TRAIN);
        assert_int_equal(a.report.group_of[2], -1);
        assert_int_equal(a.report.group_of[3], -1);
        assert_true(a.report.owner_of[0] == (dies ? 0 : 2) && (a.report.momentum_lost > 0) == dies);
    }
}

static void late_hosts_delay_the_start(void **state) {
    (void)state;
    prepare(&a, 3, "bsp");
    prepare(&b, 3, "bsp");
    b.host[1].joins = 12.5;
    simulate_well(&a);
    simulate_well(&b);
    assert_close(b.report.startup_seconds - a.report.startup_seconds, 12.5, 1e-9);
    assert_true(b.report.seconds == a.report.seconds);
    prepare(&b, 4, "asp");
    b.host[1].joins = 12.5;
    b.host[2].dies = 3;    /* while the others wait for rank 1: it is missed when step times are */
    simulate_well(&b);
    assert_close(b.report.startup_seconds - a.report.startup_seconds, 12.5 + 10, 1e-6);
    assert_int_equal(b.report.n_lost, 1);
    assert_int_equal(b.report.batch[2], 0);
    assert_int_equal(b.report.samples, 2 * TRAIN);
}

/* --------------------------------------------------- places, by themselves */

static struct echi_sim *bare;
static uint32_t wait_for_place(int from, int to, int name) {
    const uint32_t id = echi_records_take(&bare->transits);
    struct echi_transit *f = echi_records_at(&bare->transits, id);
    *f = (struct echi_transit){.from = (uint16_t)from, .to = (uint16_t)to, .kind = ECHI_KIND_PUSH, .name = (uint16_t)name, .payload = true,
                              .role = ECHI_ROLE_WORKER, .len = 100};
    echi_sim_wait_for_place(bare, id);
    return id;
}
static void post_push(int at, int from, int parts) {
    const struct echi_action post = {.type = ECHI_ACTION_POST, .to = (uint16_t)from, .kind = ECHI_KIND_PUSH,
                                     .slot = {ECHI_SLOT_OWNER_GRADS, (uint16_t)from}};
    bare->node[at].setup.plan.parts = (struct echi_parts){.count = (uint16_t)parts};   /* of one layer */
    bare->node[at].setup.rank = at;
    bare->node[at].setup.cut = 1;
    bare->node[at].setup.plan.n_groups = 1;
    bare->node[at].setup.plan.owner_of[0] = (uint16_t)at;
    echi_sim_post(bare, at, &post);
}
static uint32_t next_sent(int64_t *at) {
    struct echi_happening what = {0};
    while (echi_cost_next(bare->cost, &what))
        if (what.type == ECHI_HAPPENS_SENT || what.type == ECHI_HAPPENS_TIMER) {
            *at = echi_cost_now(bare->cost) - 1;
            return (uint32_t)what.cookie;
        }
    return ECHI_NOTHING;
}

/* A payload leaves when its sender can know of a place of its name; a push has one for each part;
 * a loss frees places, and gives back what waits. */
static void places_and_credits(void **state) {
    (void)state;
    int64_t at;
    prepare(&a, 3, "bsp");
    for (int h = 0; h < 3; h++) a.host[h].delay = 0.01 * (h + 1);
    bare = calloc(1, sizeof *bare);
    assert_non_null(bare);
    bare->node = calloc(3, sizeof *bare->node);
    bare->err = &a.err;
    echi_records_init(&bare->transits, sizeof(struct echi_transit), echi_sim_heap);
    echi_records_init(&bare->posts, sizeof(struct echi_post), echi_sim_heap);
    bare->cost = echi_cost_create(&a.hosts, (struct echi_cost_io){0}, NULL, 1, echi_sim_heap);
    assert_non_null(bare->cost);
    const uint32_t first = wait_for_place(0, 1, 1), second = wait_for_place(0, 1, 0), third = wait_for_place(0, 1, 0);
    assert_int_equal(next_sent(&at), ECHI_NOTHING);
    post_push(1, 0, 2);
    assert_int_equal(next_sent(&at), first);
    assert_int_equal(at, 30000000);          /* the credit has come */
    assert_int_equal(next_sent(&at), second);
    assert_int_equal(next_sent(&at), ECHI_NOTHING);   /* the third, a second of its name, has no place */
    post_push(1, 0, 1);
    post_push(1, 0, 1);                      /* one more place than messages */
    assert_int_equal(next_sent(&at), third);
    assert_int_equal(at, 60000000 + 30000000);        /* the last came at 60 ms */
    wait_for_place(0, 1, 1);                          /* the place that is left has another name */
    assert_int_equal(next_sent(&at), ECHI_NOTHING);
    const uint32_t to_two = wait_for_place(0, 2, 0);
    assert_int_equal(next_sent(&at), ECHI_NOTHING);
    echi_sim_forget(bare, 0, 2);
    assert_int_equal(next_sent(&at), to_two);         /* comes back at once, by a timer */
    assert_int_equal(echi_cost_now(bare->cost) - 1, at);
    echi_sim_forget(bare, 1, 0);             /* the place is gone */
    wait_for_place(0, 1, 0);
    assert_int_equal(next_sent(&at), ECHI_NOTHING);
    bare->node[1].role.gone[0] = true;       /* and it takes none any more */
    post_push(1, 0, 1);
    assert_int_equal(next_sent(&at), ECHI_NOTHING);
    echi_cost_destroy(bare->cost);
    echi_channels_free(&bare->channels);
    echi_records_free(&bare->transits);
    echi_records_free(&bare->posts);
    free(bare->node);
    free(bare);
}

/* ------------------------------------------------------------- being stuck */

static int dropped = -1;   /* kind of which no places are posted */
void __wrap_echi_sim_post(struct echi_sim *s, int rank, const struct echi_action *action);
void __real_echi_sim_post(struct echi_sim *s, int rank, const struct echi_action *action);
void __wrap_echi_sim_post(struct echi_sim *s, int rank, const struct echi_action *action) {
    if (action->kind != dropped || rank == 0) __real_echi_sim_post(s, rank, action);
}

static void who_waits_for_whom(void **state) {
    (void)state;
    prepare(&a, 3, "bsp");
    set(&a.config, "shares", "equal");
    a.host[0].speed = 2;   /* the owner */
    dropped = ECHI_KIND_WEIGHTS;
    const ech_status status = simulate(&a);
    dropped = -1;
    assert_int_equal(status, ECH_E_TIMEOUT);
    assert_non_null(strstr(a.err.text, "nothing moves any more"));
    assert_non_null(strstr(a.err.text, "rank 0: coordinator: trains"));
    assert_non_null(strstr(a.log, "rank 1: worker of group 0: waits for the first weights from rank 0"));
    assert_non_null(strstr(a.log, "rank 0: owner of group 0: version 0"));
}

/* ------------------------------------------------------------ what is refused */

static void refusals(void **state) {
    (void)state;
    struct ech_config config;
    struct ech_error err;
    struct ech_sim_options options = {.workers = 2};
    ech_config_init(&config);
    assert_int_equal(ech_simulate(NULL, data, &config, &options, NULL, &err), ECH_E_ARGUMENT);
    set(&config, "record", "/tmp/nowhere");
    assert_int_equal(ech_simulate(model, data, &config, &options, NULL, &err), ECH_E_UNSUPPORTED);
    ech_config_init(&config);
    options.costs_only = 1;
    set(&config, "save", "/tmp/nowhere/x");
    assert_int_equal(ech_simulate(model, data, &config, &options, NULL, &err), ECH_E_UNSUPPORTED);
    ech_config_init(&config);
    set(&config, "target-accuracy", "0.9");
    assert_int_equal(ech_simulate(model, data, &config, &options, NULL, &err), ECH_E_UNSUPPORTED);
    ech_config_init(&config);
    options = (struct ech_sim_options){.workers = 2, .spread = "no such"};
    assert_int_equal(ech_simulate(model, data, &config, &options, NULL, &err), ECH_E_ARGUMENT);
    options = (struct ech_sim_options){.hosts = "/tmp/there is no such file"};
    assert_int_equal(ech_simulate(model, data, &config, &options, NULL, &err), ECH_E_IO);
    config.size = 3;
    assert_int_equal(ech_simulate(model, data, &config, &options, NULL, &err), ECH_E_ARGUMENT);
    prepare(&a, 4, "bsp");
    set(&a.config, "batch", "2");
    set(&a.config, "shares", "equal");
    assert_int_equal(simulate(&a), ECH_E_ARGUMENT);   /* the planner's sentence */
    assert_non_null(strstr(a.err.text, "raise --batch"));
}

static volatile int stop_now;
static void stop_at_look(void *user, const struct ech_progress *p) {
    (void)user;
    if (p->new_accuracy) stop_now = 1;
}
static void stops_in_order(void **state) {
    (void)state;
    prepare(&a, 4, "asp");
    set(&a.config, "epochs", "400");
    set(&a.config, "eval-every", "100");
    stop_now = 0;
    a.config.on_progress = stop_at_look;
    a.config.stop = &stop_now;
    assert_int_equal(simulate(&a), ECH_E_ABORTED);
    assert_true(a.report.samples > 0 && a.report.samples < 400 * TRAIN);
    assert_non_null(strstr(a.err.text, "stopped after"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node_is_a_live_one),
        cmocka_unit_test(one_worker_is_a_live_one),
        cmocka_unit_test(bytes_are_those_of_live_runs),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(deterministic_clusters_are_one_node),
        cmocka_unit_test(bsp_takes_what_the_slowest_takes),
        cmocka_unit_test(asynchronous_rates_add_up),
        cmocka_unit_test(a_far_coordinator_holds_up_nobody),
        cmocka_unit_test(bsp_over_links),
        cmocka_unit_test(shared_cores_slow_down_together),
        cmocka_unit_test(tasks_cost_what_the_profile_says),
        cmocka_unit_test(steps_take_their_factors),
        cmocka_unit_test(evaluations_take_no_time_of_training),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(costs_alone_take_the_same_time),
        cmocka_unit_test(policies_account_for_all_samples),
        cmocka_unit_test(drawn_clusters_end),
        cmocka_unit_test(a_late_one_has_a_group_of_its_own),
        cmocka_unit_test(what_lasts_regroups_and_what_passes_does_not),
        cmocka_unit_test(a_head_from_any_layer_is_predicted),
        cmocka_unit_test(rounds_follow_a_straggler), cmocka_unit_test(a_better_plan_is_named),
        cmocka_unit_test(a_head_leaves_a_slow_node),
        cmocka_unit_test(a_thin_link_is_known_to_moves), cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(deaths_are_noticed_after_a_silence),
        cmocka_unit_test(whose_loss_ends_the_run),
        cmocka_unit_test(servers_train_nothing),
        cmocka_unit_test(late_hosts_delay_the_start),
        cmocka_unit_test(places_and_credits),
        cmocka_unit_test(who_waits_for_whom),
        cmocka_unit_test(refusals),
        cmocka_unit_test(stops_in_order),
    };
#if THREADS_WATCHED
    cmocka_set_test_filter("*live*");   /* a simulation is one thread */
#endif
    return cmocka_run_group_tests_name("simulated clusters", tests, open_problem, close_problem);
}
