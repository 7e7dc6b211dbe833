/* SPDX-License-Identifier: Apache-2.0
 * BSP is exact: however a round is dealt out, the sum that is applied is that of one node. Live nodes run as threads, over
 * the in-process transport or TCP; this program watches what their lanes compute (the linker hands it echi_exec_run).
 *
 * It is built twice. With the library: the summed gradients of 50 consecutive steps, each from the same weights, agree as far
 * as floats do, and under --deterministic 50 free steps end in the same bits. With the archive in double (ops/echi_real.h):
 * 50 free steps end within 1e-12. In float that would say nothing: one flipped ReLU after some ten steps, and runs that are
 * both right differ by a fifth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_exec_impl.h"
#include "echi_random.h"
#include "echi_run.h"
#include "echi_sha256.h"
#include "part.h"
#include "sanitized.h"

#define WORLD_MAX 7
#define DEVICES_MOST 8
#define BATCH 24
#define SAMPLES 333                 /* of an epoch: 13 rounds and one of 21 */
#define STEPS 50
#define LR 0.05
#define MOMENTUM 0.9
#define ADAM_LR 0.01
#define BETA1 0.9
#define BETA2 0.999
#define EPSILON 1e-8
#define DECAY 1e-3
#define WARMUP 0.75
enum { ROUNDS = 3 * 14 + 8 + 1 };   /* that STEPS x BATCH samples are: three epochs, and 201 samples */

/* shards NULL: 1; exchange NULL: server; micro_batches 0: steps are whole; heads NULL: 1 */
struct shape {
    const char *name;
    int world;
    const char *separate, *shares;
    bool tcp;
    const char *shards, *exchange;
    int micro_batches;
    const char *heads;
};

/* ------------------------------------------------- what is trained */

static int run_classes(void);
static int noise(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    const uint32_t size = *(const uint32_t *)user;
    (void)test;
    for (int i = 0; i < n; i++) {
        struct echi_random random;
        echi_random_init(&random, 5, ECHI_STREAM_TEST, index[i]);
        labels[i] = (uint16_t)(index[i] % (uint32_t)run_classes());
        for (uint32_t k = 0; k < size; k++)
            rows[(uint32_t)i * size + k] = (float)(4 * echi_random_unit(&random) - 2) + (k % 10 == labels[i] % 10u);
    }
    return 0;
}

/* Every kind of layer, and sides that are no multiple of anything. */
static const char small_text[] = "input 2 13 11\nconv2d out 4 kernel 3 pad 1\nrelu\nmax_pool kernel 2\nconv2d out 6 kernel 3\n"
                                 "max_pool kernel 2 stride 1\nrelu\navg_pool kernel 2 stride 1\nfc out 17\nrelu\nfc out 10\n";
/* Branches in trunk and head, an output that three layers take, and dropout on both sides of the cut: whoever gets a sample
 * drops the same. */
static const char residual_text[] =
    "input 2 13 11\nconv2d out 4 kernel 3 pad 1 stride 2\nrelu\nconv2d out 4 kernel 3 pad 1\ndropout p 0.25\n"
    "conv2d out 4 kernel 1 from 2\nadd with 4\nadd with 2\nrelu\navg_pool kernel 2 from 6\navg_pool kernel 2 from 8\n"
    "add with 9\nglobal_avg_pool\nfc out 12\nrelu\ndropout p 0.5\nfc out 12\nadd with 14\nfc out 10\n";

/* More classes than a byte has. */
static const char wide_text[] = "input 2 13 11\nconv2d out 4 kernel 3 stride 2\nrelu\nfc out 9\nrelu\nfc out 300\n";

/* Batch-norms of maps, one in a branch, two of what one layer gives; with sync_norm whoever gets a sample normalises it by the round. */
static const char norm_text[] = "input 2 13 11\nconv2d out 4 kernel 3 pad 1 stride 2 bias 0\nbatch_norm\nrelu\n"
                                "conv2d out 4 kernel 3 pad 1 bias 0\nbatch_norm\nbatch_norm from 1\nadd with 5\ntanh\nglobal_avg_pool\n"
                                "fc out 12\nrelu\nfc out 10\n";

static const char *name_of(const char *text) {
    return text == small_text ? "small" : text == wide_text ? "wide" : text == norm_text ? "norm" : text ? "residual" : "lenet5";
}

/* ------------------------------------------------- one run at a time */

static struct run {
    ech_model *model;
    ech_data *data;
    uint32_t size;                      /* floats of a sample */
    size_t params, cut;                 /* all, and where the head's begin */
    char cut_name[ECHI_LAYERS_MAX][32]; int cuts;   /* layers that the head may begin with */
    bool separated, deterministic, restart, sync_norm;
    bool rounds;                        /* activations travel in bf16 */
    atomic_bool rings;                  /* a sum came round a ring to its owner */
    const char *schedule;               /* NULL: lr stays; else with a warm-up, and Nesterov's momentum */
    const char *adam;                   /* NULL, or in the place of SGD: "adam", "adamw" */
    char device[DEVICES_MOST][32];      /* rank r has the r-th of them, and so on in turn */
    int devices;                        /* 0: all have the CPU */
    bool plain;                         /* with no more instructions than every processor of its kind has */
    struct echi_net_hub *hub;           /* NULL: TCP */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char address[64];                   /* of rank 0 */
    int step[1 + ECHI_PARTS_MAX];       /* rounds applied, by owners: of each part at 1 + its number, or of all at 0 */
    int head_step;                      /* ... and by the head, or the first of several */
    int steps_of[WORLD_MAX]; bool differs;   /* by each head; one had another sum, or other weights, than the first */
    echi_real *gradient, *weights;      /* [ROUNDS][params]: sums as they were applied, weights after that */
    const echi_real *start_from;        /* restart: weights after each round, of another run */
} run = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int run_classes(void) { return run.model->layers[run.model->n_layers - 1].out.c; }

struct node {
    struct ech_config config;
    struct ech_error error;
    struct ech_report report;
    echi_real *params;
    ech_status status;
    pthread_t thread;
};

/* --- in the place of the library's own */

/* Parameters of the next round of those that *step counts. */
static void was_applied(void *exec, const struct echi_task *task, int *step, size_t at, size_t count) {
    const size_t row = (size_t)(*step)++ * run.params + at;
    echi_real *weights = (echi_real *)echi_exec_slot(exec, task->weights_out, NULL) + at;
    assert(*step <= ROUNDS);
    if (!run.deterministic)   /* of a part the task itself has put the sum together */
        memcpy(run.gradient + row, (echi_real *)echi_exec_slot(exec, task->grads, NULL) + at, count * sizeof(echi_real));
    if (run.restart) memcpy(weights, run.start_from + row, count * sizeof *weights);
    memcpy(run.weights + row, weights, count * sizeof *weights);
}

/* Of several heads the first to end a round is watched, the others have to have the same bits. */
static void head_applied(void *exec, const struct echi_task *task, int rank) {
    const size_t count = run.params - run.cut;
    pthread_mutex_lock(&run.mutex);
    const int step = run.steps_of[rank]++;
    const size_t row = (size_t)step * run.params + run.cut;
    if (step == run.head_step) {
        was_applied(exec, task, &run.head_step, run.cut, count);
    } else {
        echi_real *weights = (echi_real *)echi_exec_slot(exec, task->weights_out, NULL) + run.cut;
        const echi_real *gradient = (const echi_real *)echi_exec_slot(exec, task->grads, NULL) + run.cut;
        if (run.restart) memcpy(weights, run.start_from + row, count * sizeof *weights);
        run.differs = run.differs || memcmp(run.gradient + row, gradient, count * sizeof *gradient) != 0 ||
                      memcmp(run.weights + row, weights, count * sizeof *weights) != 0;
    }
    pthread_mutex_unlock(&run.mutex);
}

ech_status __real_echi_exec_run(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
ech_status __wrap_echi_exec_run(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
ech_status __wrap_echi_exec_run(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    const bool head = task->kind == ECHI_TASK_HEAD_APPLY;
    ECHI_TRY(__real_echi_exec_run(self, task, result, err));
    if (!head && task->kind != ECHI_TASK_APPLY) return ECH_OK;
    if (task->ring.kind) run.rings = true;
    const struct echi_setup *setup = ((const struct echi_exec *)self)->setup;
    const bool whole = !task->only && setup->plan.shards == 0;
    if (head) head_applied(self, task, setup->rank);
    else if (whole) was_applied(self, task, &run.step[0], 0, run.separated ? run.cut : run.params);
    for (int i = 0; i < setup->plan.parts.count && !head && !whole; i++) {
        const struct echi_part *part = &setup->plan.parts.part[i];
        if (task->only ? i == task->only - 1 : part->first < setup->cut && echi_plan_owns_part(&setup->plan, setup->rank, i))
            was_applied(self, task, &run.step[1 + i], part->at, part->count);
    }
    return ECH_OK;
}

/* Step times decide about shares, which are given here. */
ech_status __wrap_echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                               struct echi_cost_io io, struct echi_times *out, struct ech_error *err);
ech_status __wrap_echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                               struct echi_cost_io io, struct echi_times *out, struct ech_error *err) {
    (void)job, (void)device, (void)slow, (void)lane, (void)io, (void)err;
    *out = (struct echi_times){.count = 2, .n = {8, 64}, .trunk = {8e-5, 64e-5}, .head = {1e-5, 8e-5}};
    return ECH_OK;
}

ech_status __real_echi_wire_open(const struct echi_net_config *config, struct echi_wire **out, struct ech_error *err);
ech_status __wrap_echi_wire_open(const struct echi_net_config *config, struct echi_wire **out, struct ech_error *err);
ech_status __wrap_echi_wire_open(const struct echi_net_config *config, struct echi_wire **out, struct ech_error *err) {
    struct echi_net_config net = *config;
    net.hub = run.hub;
    return __real_echi_wire_open(&net, out, err);
}

/* --- nodes as threads */

static void on_bound(void *user, const char *address) {
    (void)user;
    pthread_mutex_lock(&run.mutex);
    snprintf(run.address, sizeof run.address, "%s", address);
    pthread_cond_broadcast(&run.changed);
    pthread_mutex_unlock(&run.mutex);
}

static void *node_main(void *self) {
    struct node *n = self;
    struct echi_job *job = calloc(1, sizeof *job);
    n->status = job ? ech_config_check(&n->config, &n->error) : ECH_E_MEMORY;
    if (n->status == ECH_OK) n->status = echi_job_make(run.model, run.data, &n->config, job, &n->error);
    const struct echi_node_config config = {.config = &n->config, .job = job, .params = n->params};
    if (n->status == ECH_OK) n->status = echi_node_run(&config, &n->report, &n->error);
    if (n->config.rank == 0) on_bound(NULL, "ended");
    free(job);
    return NULL;
}

/* The first parameter of the head. */
static size_t cut_at(const char *separate) {
    struct echi_job *job = calloc(1, sizeof *job);
    struct ech_config config;
    assert_non_null(job);
    ech_config_init(&config);
    assert_int_equal(ech_config_set(&config, "separate", separate, NULL), ECH_OK);
    assert_int_equal(echi_job_make(run.model, run.data, &config, job, NULL), ECH_OK);
    const size_t at = job->layer[job->cut_params].at;
    free(job);
    return at;
}

/* Trains STEPS rounds from `start` and leaves the weights in `end`; the report of rank 0 in *report when that is not NULL. */
static void train(const struct shape *s, const echi_real *start, echi_real *end, struct ech_report *report) {
    struct node *nodes = calloc(WORLD_MAX, sizeof *nodes);
    assert_non_null(nodes);
    run.separated = strcmp(s->separate, "off") != 0;
    run.cut = cut_at(s->separate);
    memset(run.step, 0, sizeof run.step);
    run.head_step = 0;
    memset(run.steps_of, 0, sizeof run.steps_of);
    run.differs = false;
    run.rings = false;
    run.address[0] = 0;
    run.hub = NULL;
    if (!s->tcp) assert_int_equal(echi_net_hub_create(s->world, &run.hub, NULL), ECH_OK);
    for (int r = 0; r < s->world; r++) {
        struct ech_config *c = &nodes[r].config;
        ech_config_init(c);
        c->measure = 0.02;   /* most of the time of a short run is its measuring */
        c->rank = r;
        c->world = s->world;
        c->batch = BATCH;
        c->steps = STEPS;
        c->eval_every = 0;
        c->deterministic = run.deterministic;
        c->sync_norm = run.sync_norm;
        c->lr = run.adam ? ADAM_LR : LR;
        c->momentum = run.adam ? -1 : MOMENTUM;
        c->weight_decay = DECAY;
        c->warmup = run.schedule ? WARMUP : 0;
        assert_int_equal(ech_config_set(c, "optimizer", run.adam ? run.adam : run.schedule ? "nesterov" : "sgd", NULL), ECH_OK);
        assert_int_equal(ech_config_set(c, "schedule", run.schedule ? run.schedule : "constant", NULL), ECH_OK);
        if (run.schedule && strcmp(run.schedule, "step") == 0) assert_int_equal(ech_config_set(c, "lr-steps", "1,2.5", NULL), ECH_OK);
        c->join_timeout = c->deadline = 60;
        snprintf(c->coordinator, sizeof c->coordinator, "127.0.0.1:0");
        assert_int_equal(ech_config_set(c, "separate", s->separate, NULL), ECH_OK);
        assert_int_equal(ech_config_set(c, "heads", s->heads ? s->heads : "1", NULL), ECH_OK);
        assert_int_equal(ech_config_set(c, "isa", run.plain ? "base" : "auto", NULL), ECH_OK);
        assert_int_equal(ech_config_set(c, "shares", s->shares, NULL), ECH_OK);
        assert_int_equal(ech_config_set(c, "shards", s->shards ? s->shards : "1", NULL), ECH_OK);
        assert_int_equal(ech_config_set(c, "exchange", s->exchange ? s->exchange : "server", NULL), ECH_OK);
        c->micro_batches = s->micro_batches ? s->micro_batches : 1;
        if (run.rounds) assert_int_equal(ech_config_set(c, "activations", "bf16", NULL), ECH_OK);
        if (run.devices) assert_int_equal(ech_config_set(c, "device", run.device[r % run.devices], NULL), ECH_OK);
        c->on_bound = on_bound;
    }
    memcpy(end, start, run.params * sizeof *end);
    nodes[0].params = end;
    for (int r = 0; r < s->world; r++) {
        if (r == 1 && s->tcp) {
            pthread_mutex_lock(&run.mutex);
            while (!run.address[0]) pthread_cond_wait(&run.changed, &run.mutex);
            pthread_mutex_unlock(&run.mutex);
        }
        if (r > 0 && s->tcp) snprintf(nodes[r].config.coordinator, sizeof nodes[r].config.coordinator, "%s", run.address);
        assert_int_equal(pthread_create(&nodes[r].thread, NULL, node_main, &nodes[r]), 0);
    }
    for (int r = 0; r < s->world; r++) pthread_join(nodes[r].thread, NULL);
    echi_net_hub_destroy(run.hub);
    for (int r = 0; r < s->world; r++) {
        if (nodes[r].status != ECH_OK) print_error("%s, rank %d: %s\n", s->name, r, nodes[r].error.text);
        assert_int_equal(nodes[r].status, ECH_OK);
    }
    /* What was to be watched was there, and all of it. */
    int watched = 0;
    for (int i = 0; i <= ECHI_PARTS_MAX; i++) {
        assert_true(run.step[i] == 0 || run.step[i] == ROUNDS);
        watched += run.step[i] > 0;
    }
    assert_true(s->shards ? watched > 1 && nodes[0].report.n_shards > 1 : watched > 0);
    assert_true(run.rings == (s->exchange != NULL));
    assert_int_equal(nodes[0].report.micro_batches, s->micro_batches ? s->micro_batches : 1);
    assert_int_equal(run.head_step, run.separated && s->world > 1 ? ROUNDS : 0);
    int heads = 0;
    for (int r = 0; r < s->world; r++) heads += run.steps_of[r] > 0;
    assert_int_equal(heads, run.separated && s->world > 1 ? atoi(s->heads ? s->heads : "1") : 0);
    if (run.differs) fail_msg("%s: heads do not have the same bits", s->name);
    assert_int_equal(nodes[0].report.samples, STEPS * BATCH);
    if (report) *report = nodes[0].report;
    free(nodes);
}

static echi_real *room(size_t count) {
    echi_real *p = calloc(count, sizeof *p);
    assert_non_null(p);
    return p;
}

/* The model of `text`, or LeNet-5, and weights to start from. */
static echi_real *open_run(const char *text) {
    struct echi_job *job = calloc(1, sizeof *job);
    struct ech_config config;
    struct ech_data_callback data = {.train_samples = SAMPLES, .read = noise, .user = &run.size, .name = "noise"};
    assert_non_null(job);
    assert_int_equal(text ? ech_model_parse(text, strlen(text), "small", &run.model, NULL) : ech_model_open("lenet5", &run.model, NULL),
                     ECH_OK);
    data.classes = run_classes();
    data.channels = run.model->input.c, data.height = run.model->input.h, data.width = run.model->input.w;
    run.size = (uint32_t)echi_shape_size(run.model->input);
    assert_int_equal(ech_data_from_callback(&data, &run.data, NULL), ECH_OK);
    ech_config_init(&config);
    assert_int_equal(echi_job_make(run.model, run.data, &config, job, NULL), ECH_OK);
    run.params = job->n_params;
    run.sync_norm = text == norm_text;
    run.cuts = 0;
    for (int k = 1; k < job->n_layers; k++)
        if (echi_job_may_cut(job, k) && !(text == norm_text && echi_job_norms_behind(job, k)))
            snprintf(run.cut_name[run.cuts++], sizeof run.cut_name[0], "%s", job->layer[k].name);
    run.gradient = room(ROUNDS * run.params);
    run.weights = room(ROUNDS * run.params);
    float *first = malloc(run.params * sizeof *first);
    assert_non_null(first);
    echi_model_init(run.model, 3, first);
    echi_real *start = room(run.params);
    for (size_t i = 0; i < run.params; i++) start[i] = first[i];
    free(first);
    free(job);
    return start;
}

static void close_run(echi_real *start) {
    ech_data_destroy(run.data);
    ech_model_destroy(run.model);
    free(run.gradient);
    free(run.weights);
    free(start);
}

/* |a - b| / |a|, norms over all parameters. */
static double apart(const echi_real *a, const echi_real *b) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < run.params; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)a[i] * (double)a[i];
    }
    assert_true(norm > 0);
    return sqrt(difference / norm);
}

/* The head begins with each layer that it may begin with. */
static const char each_cut[] = "4 nodes and a head from";
static struct shape with_cut(int i) {
    return (struct shape){each_cut, 4, run.cut_name[i], i % 2 ? "4,8,0,12" : "0,12,8,4", false, NULL, NULL,
                          i % 2 && !run.sync_norm ? 2 : 0, NULL};
}

/* Shares that differ, some of none. The first are whole reduction blocks of four, as --deterministic needs them. */
static const struct shape one = {"one node", 1, "off", "24", false, NULL, NULL, 0, NULL};
static const struct shape shapes[] = {
    {"--local 4 --separate 1", 4, "1", "4,12,0,8", true, NULL, NULL, 0, NULL},
    {"--local 3 --separate off", 3, "off", "4,8,12", true, NULL, NULL, 0, NULL},
    {"2 nodes", 2, "off", "4,20", false, NULL, NULL, 0, NULL},
    {"2 nodes and a head", 2, "1", "16,8", false, NULL, NULL, 0, NULL},
    {"3 nodes", 3, "off", "12,4,8", false, NULL, NULL, 0, NULL},
    {"4 nodes and a head", 4, "1", "4,4,4,12", false, NULL, NULL, 0, NULL},
    {"5 nodes", 5, "off", "4,0,8,8,4", false, NULL, NULL, 0, NULL},
    {"5 nodes and a head", 5, "1", "0,12,4,4,4", false, NULL, NULL, 0, NULL},
    {"6 nodes", 6, "off", "4,4,4,4,4,4", false, NULL, NULL, 0, NULL},
    {"7 nodes", 7, "off", "0,4,4,4,4,4,4", false, NULL, NULL, 0, NULL},
    {"7 nodes and a head", 7, "1", "4,4,4,0,4,4,4", false, NULL, NULL, 0, NULL},
    {"2 workers, 2 servers", 4, "off", "16,8,0,0", true, "2,3", NULL, 0, NULL},
    {"3 owners, of which one does not train", 5, "off", "4,0,8,8,4", false, "4,1,0", NULL, 0, NULL},
    {"a ring of 2 nodes", 2, "off", "4,20", false, "auto", "ring", 0, NULL},
    {"a ring of 3 nodes", 3, "off", "12,8,4", true, "auto", "ring", 0, NULL},
    {"a ring of 4 nodes with 2 owners", 4, "off", "4,8,8,4", false, "3,0", "ring", 0, NULL},
    {"a ring without rank 0", 4, "off", "0,8,4,12", false, "auto", "ring", 0, NULL},
    {"a ring without rank 2, in which rank 0 owns nothing", 4, "off", "4,8,0,12", true, "3,1", "ring", 0, NULL},
    {"4 nodes and a head, 2 micro-batches", 4, "1", "4,4,4,12", false, NULL, NULL, 2, NULL},
    {"4 nodes and a head, 3 micro-batches", 4, "1", "0,4,8,12", true, NULL, NULL, 3, NULL},
    {"2 owners and a head, 8 micro-batches", 4, "1", "4,4,4,12", false, "1,0", NULL, 8, NULL},
    {"odd shares and a head", 4, "1", "1,13,3,7", false, NULL, NULL, 0, NULL},
    {"odd shares", 3, "off", "1,5,18", true, NULL, NULL, 0, NULL},
    {"a ring", 4, "off", "1,13,3,7", false, "auto", "ring", 0, NULL},
    {"a ring with 2 owners", 5, "off", "2,5,1,15,1", true, "3,0", "ring", 0, NULL},
    {"odd shares and a head, 3 micro-batches", 4, "1", "1,13,3,7", false, NULL, NULL, 3, NULL},
    {"2 heads", 4, "1", "1,13,3,7", false, NULL, NULL, 0, "2"},
    {"3 heads, of which one trains nothing else", 4, "1", "0,6,1,17", true, NULL, NULL, 0, "3"},
    {"5 heads", 5, "1", "2,5,1,15,1", false, NULL, NULL, 0, "5"},
    {"2 heads, 3 micro-batches", 4, "1", "1,13,3,7", false, NULL, NULL, 3, "2"},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], WHOLE = SHAPES - 9, NAMED = 2 /* the first, which LeNet-5 is tried on too */ };

/* A ring has no barrier in the middle of a step, and no cut step has one. */
static bool is_possible(const struct shape *s) { return !run.sync_norm || (!s->exchange && !s->micro_batches); }

#ifdef ECHI_DOUBLE

static bool is_average(size_t i) {
    bool is = false;
    for (int l = 0; l < run.model->n_layers; l++) is = is || i - run.model->layers[l].running_at < run.model->layers[l].running;
    return is;
}

/* What PyTorch's SGD, Adam and AdamW and its schedulers do with the gradients that were applied, written out: round t of an epoch of 14. */
static void trained_as_written(const echi_real *start) {
    double *w = calloc(run.params, sizeof *w), *v = calloc(run.params, sizeof *v), *s = calloc(run.params, sizeof *s);
    const bool decoupled = run.adam && strcmp(run.adam, "adamw") == 0;
    assert_true(w && v && s);
    for (size_t i = 0; i < run.params; i++) w[i] = start[i];
    for (int t = 0; t < ROUNDS; t++) {
        const double place = t / 14 + t % 14 * (double)BATCH / SAMPLES, end = (double)STEPS * BATCH / SAMPLES;
        double lr = run.adam ? ADAM_LR : LR;
        if (run.schedule && strcmp(run.schedule, "step") == 0) lr *= place >= 2.5 ? 0.1 * 0.1 : place >= 1 ? 0.1 : 1;
        if (run.schedule && place < WARMUP) lr *= place / WARMUP;
        else if (run.schedule && strcmp(run.schedule, "cosine") == 0)
            lr *= (1 + cos(3.14159265358979323846 * (place - WARMUP) / (end - WARMUP))) / 2;
        for (size_t i = 0; i < run.params; i++) {
            double grad = run.gradient[(size_t)t * run.params + i] + (decoupled ? 0 : DECAY * w[i]);
            if (is_average(i)) {
                w[i] -= 0.1 * run.gradient[(size_t)t * run.params + i];
                continue;
            }
            if (decoupled) w[i] -= lr * DECAY * w[i];
            v[i] = run.adam ? BETA1 * v[i] + (1 - BETA1) * grad : MOMENTUM * v[i] + grad;
            s[i] = BETA2 * s[i] + (1 - BETA2) * grad * grad;
            if (run.adam) w[i] -= lr / (1 - pow(BETA1, t + 1)) * v[i] / (sqrt(s[i]) / sqrt(1 - pow(BETA2, t + 1)) + EPSILON);
            else w[i] -= lr * (run.schedule ? grad + MOMENTUM * v[i] : v[i]);
            if (fabs(w[i] - run.weights[(size_t)t * run.params + i]) > 1e-12 * (1 + fabs(w[i])))
                fail_msg("%s, round %d, parameter %zu: %.17g, not %.17g", run.schedule ? run.schedule : "plain", t, i,
                         run.weights[(size_t)t * run.params + i], w[i]);
        }
    }
    free(w);
    free(v);
    free(s);
}

static void ends_alike(const char *text, int n_shapes) {
    echi_real *start = open_run(text), *alone = room(run.params), *end = room(run.params);
    train(&one, start, alone, NULL);
    trained_as_written(start);
    assert_true(apart(alone, start) > 0.01);   /* it went somewhere */
    for (int i = 0; i < n_shapes; i += test_few() ? 3 : 1) {
        if (!is_possible(&shapes[i])) continue;
        train(&shapes[i], start, end, NULL);
        const double d = apart(alone, end);
        print_message("%s, %s: %.2g apart after %d steps\n", name_of(text), shapes[i].name, d, STEPS);
        assert_true(d <= 1e-12);
    }
    for (int i = 0; i < run.cuts; i++) {
        const struct shape s = with_cut(i);
        train(&s, start, end, NULL);
        const double d = apart(alone, end);
        print_message("%s, %s %s: %.2g apart after %d steps\n", name_of(text), s.name, s.separate, d, STEPS);
        assert_true(d <= 1e-12);
    }
    free(alone);
    free(end);
    close_run(start);
}

static void test_weights_after_free_steps(void **state) {
    (void)state;
    ends_alike(small_text, SHAPES);
    ends_alike(residual_text, SHAPES);
    ends_alike(NULL, NAMED);
    ends_alike(wide_text, NAMED);
    ends_alike(norm_text, SHAPES);
}

static void test_schedules_and_nesterov(void **state) {
    (void)state;
    run.schedule = "cosine";
    ends_alike(small_text, SHAPES);
    run.schedule = "step";
    ends_alike(small_text, NAMED);
    run.schedule = NULL;
}

static void test_adam(void **state) {
    (void)state;
    run.adam = "adam";
    ends_alike(small_text, SHAPES);
    run.schedule = "cosine";
    run.adam = "adamw";
    ends_alike(residual_text, SHAPES);
    run.schedule = run.adam = NULL;
}

/* In bf16 all are rounded, those too that a head's own worker sends to itself: wherever heads are, and whoever computes what, the numbers
 * that they compute on are the same, but for 1e-16. So are the weights, which are not those of floats. */
static void test_activations_are_rounded_alike(void **state) {
    (void)state;
    static const struct shape two = {"2 nodes and a head", 2, "1", "16,8", false, NULL, NULL, 0, NULL};
    echi_real *start = open_run(small_text), *floats = room(run.params), *first = room(run.params), *end = room(run.params);
    train(&two, start, floats, NULL);
    run.rounds = true;
    train(&two, start, first, NULL);
    print_message("activations in bf16: %.2g from floats\n", apart(floats, first));
    assert_true(apart(floats, first) > 1e-5 && apart(floats, first) < 0.1);
    for (int i = 0; i < SHAPES; i++) {
        if (strcmp(shapes[i].separate, "off") == 0) continue;
        train(&shapes[i], start, end, NULL);
        const double d = apart(first, end);
        print_message("activations in bf16, %s: %.2g apart, %.2g from floats\n", shapes[i].name, d, apart(floats, end));
        assert_true(d <= 1e-12);
    }
    run.rounds = false;
    free(floats);
    free(first);
    free(end);
    close_run(start);
}

#define TESTS cmocka_unit_test(test_weights_after_free_steps), cmocka_unit_test(test_schedules_and_nesterov), cmocka_unit_test(test_adam), \
              cmocka_unit_test(test_activations_are_rounded_alike)

#else

static void sums_alike(const char *text, int n_shapes) {
    echi_real *start = open_run(text), *end = room(run.params);
    const int devices = run.devices;
    run.devices = 0;
    train(&one, start, end, NULL);
    run.devices = devices;
    echi_real *gradient = run.gradient, *weights = run.weights;
    run.gradient = room(ROUNDS * run.params);
    run.weights = room(ROUNDS * run.params);
    run.restart = true;
    run.start_from = weights;
    for (int i = 0; i < n_shapes; i += test_few() ? 3 : 1) {
        double most = 0;
        if (!is_possible(&shapes[i])) continue;
        memset(run.gradient, 0, ROUNDS * run.params * sizeof *run.gradient);
        train(&shapes[i], start, end, NULL);
        for (size_t step = 0; step < ROUNDS; step++) {
            const double d = apart(gradient + step * run.params, run.gradient + step * run.params);
            if (d > most) most = d;
        }
        print_message("%s, %s: summed gradients at most %.2g apart\n", name_of(text), shapes[i].name, most);
        assert_true(most <= 5e-6);
    }
    run.restart = false;
    free(gradient);
    free(weights);
    free(end);
    close_run(start);
}

static void test_summed_gradients_from_the_same_weights(void **state) {
    (void)state;
    sums_alike(small_text, SHAPES);
    sums_alike(norm_text, SHAPES);
    if (THREADS_WATCHED) return;   /* those of other nets are the same */
    sums_alike(residual_text, SHAPES);
    sums_alike(NULL, NAMED);
}

/* One job over everything that is here: the CPU, and whatever OpenCL and CUDA have. Their products sum in other orders. */
static void test_summed_gradients_of_unlike_devices(void **state) {
    (void)state;
#if THREADS_WATCHED
    skip();   /* what drivers do on threads of their own is not watched */
#endif
    struct echi_device_info info;
    while (run.devices < DEVICES_MOST && echi_device_at(run.devices, run.device[run.devices], sizeof run.device[0], &info)) run.devices++;
    if (run.devices > 1) {
        sums_alike(small_text, WHOLE);
        sums_alike(residual_text, NAMED);
        sums_alike(NULL, NAMED);
    } else print_message("nothing here but the CPU (apt-get install ocl-icd-libopencl1 pocl-opencl-icd)\n");
    run.devices = 0;
}

/* What every machine and every compiler comes to: the first eight bytes of SHA-256 over the weights after 50 steps. Whoever
 * changes what is computed here puts in the new ones, found on one machine, and then tries another. */
#define SMALL_ENDS_IN UINT64_C(0xd697c3ee99d55811)
#define RESIDUAL_ENDS_IN UINT64_C(0x458f858bcb37bd6e)
#define LENET5_ENDS_IN UINT64_C(0x2232b81f93f1a219)

#define ADAM_ENDS_IN UINT64_C(0x6304ae7acb4ecc37)

static void check_end(const char *text, const echi_real *weights, uint64_t ends_in) {
    struct echi_sha256 hash;
    uint8_t digest[32];
    echi_sha256_begin(&hash);
    echi_sha256_add(&hash, weights, run.params * sizeof *weights);
    echi_sha256_end(&hash, digest);
    if (echi_load64(digest) != ends_in)
        fail_msg("%s: %016llx: other weights than everywhere else", name_of(text), (unsigned long long)echi_load64(digest));
}

/* Under --deterministic the same bits, of weights and of the loss, and with the instructions of another processor too. ends_in 0: those
 * of this run are written down nowhere. */
static void bits_alike(const char *text, int n_shapes, uint64_t ends_in) {
    echi_real *start = open_run(text), *alone = room(run.params), *end = room(run.params);
    struct ech_report first, other;
    run.deterministic = true;
    run.restart = false;
    train(&one, start, alone, &first);
    assert_true(apart(alone, start) > 0.01 && first.train_loss > 0);
    for (int i = 0; i < n_shapes; i += test_few() ? 3 : 1) {
        run.plain = i % 2 == 0;
        train(&shapes[i], start, end, &other);
        if (memcmp(alone, end, run.params * sizeof *end)) fail_msg("%s: not the same bits, %.2g apart", shapes[i].name, apart(alone, end));
        assert_memory_equal(&first.train_loss, &other.train_loss, sizeof first.train_loss);
    }
    for (int i = 0; i < run.cuts; i++) {
        const struct shape s = with_cut(i);
        train(&s, start, end, &other);
        if (memcmp(alone, end, run.params * sizeof *end)) fail_msg("%s %s: not the same bits", s.name, s.separate);
        assert_memory_equal(&first.train_loss, &other.train_loss, sizeof first.train_loss);
    }
    run.deterministic = run.plain = false;
    if (ends_in) check_end(text, alone, ends_in);
    free(alone);
    free(end);
    close_run(start);
}

static void test_deterministic_runs_end_in_the_same_bits(void **state) {
    (void)state;
    bits_alike(small_text, WHOLE, SMALL_ENDS_IN);
    if (THREADS_WATCHED) return;
    bits_alike(residual_text, WHOLE, RESIDUAL_ENDS_IN);
    bits_alike(NULL, NAMED, LENET5_ENDS_IN);
    run.schedule = "cosine";
    bits_alike(small_text, WHOLE, 0);
    run.schedule = NULL;
    bits_alike(wide_text, NAMED, 0);
    run.adam = "adam";
    bits_alike(small_text, WHOLE, ADAM_ENDS_IN);
    run.adam = NULL;
}

#define TESTS cmocka_unit_test(test_summed_gradients_from_the_same_weights), \
              cmocka_unit_test(test_summed_gradients_of_unlike_devices), cmocka_unit_test(test_deterministic_runs_end_in_the_same_bits)

#endif

int main(void) {
    const struct CMUnitTest tests[] = {TESTS};
    return cmocka_run_group_tests_name("exactness", tests, NULL, NULL);
}
