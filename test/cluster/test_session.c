/* SPDX-License-Identifier: Apache-2.0
 * Sync only, as a custom trainer meets it: nodes as threads over loopback, a model of whole numbers whose sums are exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "echelon.h"

#define WORLD_MAX 4
#define SAMPLES 48
enum { FIRST = 3, SECOND = 2, STEPS = 64 };

/* The "gradient" of sample i is i for each number of the first array, 1 for each of the second: sums of whole numbers,
 * exact in float whoever adds them. */
struct node {
    struct ech_config config;
    float first[FIRST], first_grad[FIRST], second[SECOND], second_grad[SECOND];
    uint32_t seen[SAMPLES];          /* how often this node got each sample */
    int steps, leave_after;          /* leave_after: closes early, 0 never */
    double poison;                   /* added to the loss of every step */
    int stop_after;                  /* asks rank 0 to stop after so many steps of this node; 0 never */
    volatile int tell;               /* asked in its second step, when config.tell points here */
    _Atomic int coordinator_told, worker_told;   /* lines that say so */
    bool lends;                      /* the second array is read where Echelon has it */
    const float *lent;
    float read[STEPS];               /* of the second array's first number, what each step was computed on */
    bool kept;                       /* the caller's second array has been as it was at the opening */
    int naps_in;                     /* in this step it takes its time, then reads what is lent once more; 0 never */
    bool leaves_nap;                 /* it leaves when another naps */
    ech_status opened, status, closed;
    struct ech_report report;
    struct ech_error error;
    pthread_t thread;
};

static volatile int stop, napping;   /* napping: who naps has begun to */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char address[64];
} meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, ""};

static void on_bound(void *user, const char *address) {
    (void)user;
    pthread_mutex_lock(&meeting.mutex);
    snprintf(meeting.address, sizeof meeting.address, "%s", address);
    pthread_cond_broadcast(&meeting.changed);
    pthread_mutex_unlock(&meeting.mutex);
}

static int measure(void *user, const uint32_t *index, int n) {
    struct node *node = user;
    (void)index;
    return node->leave_after < 0 && n > 0;   /* leave_after -1: refuses to measure */
}

/* Who waits for whom, in the middle of a step: the caller's thread computes, the library's answers. */
static void on_tell(void *user, const char *line) {
    struct node *n = user;
    n->coordinator_told += strncmp(line, "coordinator: trains since ", 26) == 0;
    n->worker_told += strstr(line, "worker of group 0: computes lease ") != NULL;
}
static void on_log(void *user, enum ech_log_level level, const char *line) {
    if (level == ECH_LOG_INFO) on_tell(user, line);
}
static void ask(struct node *n) {
    __atomic_fetch_add(&n->tell, 1, __ATOMIC_RELAXED);
    while (!n->worker_told) usleep(10000);
}

static void *node_main(void *self) {
    struct node *n = self;
    const struct ech_param params[] = {{"first", n->first, n->first_grad, FIRST, NULL},
                                       {"second", n->second, n->second_grad, SECOND, n->lends ? &n->lent : NULL}};
    ech_session *session = NULL;
    struct ech_step step;
    n->kept = true;
    n->opened = ech_session_open(params, 2, SAMPLES, &n->config, measure, n, &session, &n->error);
    if (n->opened != ECH_OK) return NULL;
    while ((n->status = ech_step_begin(session, &step, &n->error)) == ECH_OK) {
        double sum = 0;
        for (int i = 0; i < step.n; i++) {
            n->seen[step.index[i]]++;
            sum += step.index[i];
        }
        for (int k = 0; k < FIRST; k++) n->first_grad[k] = (float)(sum / step.n);
        for (int k = 0; k < SECOND; k++) n->second_grad[k] = 1;
        const float *second = n->lends ? n->lent : n->second;
        if (n->steps < STEPS) n->read[n->steps] = second[0];
        if (n->lends && n->second[0] != 0) n->kept = false;
        if (n->config.tell && n->steps == 1) ask(n);
        if (n->steps + 1 == n->naps_in) {
            __atomic_store_n(&napping, 1, __ATOMIC_RELAXED);
            usleep(300000);
            if (n->read[n->steps] != second[0]) n->kept = false;
        }
        while (n->leaves_nap && n->steps + 1 == n->leave_after && !__atomic_load_n(&napping, __ATOMIC_RELAXED)) usleep(1000);
        /* Both orders are the caller's right. */
        const int order = n->steps & 1;
        ech_gradient_ready(session, order, NULL);
        ech_gradient_ready(session, !order, NULL);
        n->status = ech_step_end(session, 1 + n->poison, &n->error);
        n->steps++;
        if (n->steps == n->stop_after) __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        if (n->status != ECH_OK || n->steps == n->leave_after) break;
    }
    if (n->lends && n->lent != n->second) n->kept = n->steps == n->leave_after;   /* it is lent no more */
    n->closed = ech_session_close(session, &n->report, &n->error);
    return NULL;
}

static struct node nodes[WORLD_MAX];

static void prepare(int world, const char *sync) {
    memset(nodes, 0, sizeof nodes);
    for (int r = 0; r < world; r++) {
        struct ech_config *c = &nodes[r].config;
        ech_config_init(c);
        c->measure = 0.02;   /* most of the time of a short run is its measuring */
        c->rank = r;
        c->world = world;
        snprintf(c->sync, sizeof c->sync, "%s", sync);
        c->batch = 8;
        c->samples_per_step = strcmp(sync, "bsp") == 0 ? 0 : 4;
        c->lr = 1.0 / 64;
        c->momentum = 0;
        if (strcmp(sync, "local") == 0) c->inner_steps = 3, c->outer_lr = 1, c->outer_momentum = 0;
        c->epochs = 3;
        c->deadline = 60;
        nodes[r].first[0] = r == 0 ? 2 : -99;   /* rank 0's values start all */
        nodes[r].lends = r == world - 1;
    }
    nodes[0].config.on_bound = on_bound;
    snprintf(nodes[0].config.coordinator, sizeof nodes[0].config.coordinator, "127.0.0.1:0");
}

static void run(int world) {
    meeting.address[0] = 0;
    pthread_create(&nodes[0].thread, NULL, node_main, &nodes[0]);
    pthread_mutex_lock(&meeting.mutex);
    while (!meeting.address[0] && world > 1) pthread_cond_wait(&meeting.changed, &meeting.mutex);
    pthread_mutex_unlock(&meeting.mutex);
    for (int r = 1; r < world; r++) {
        snprintf(nodes[r].config.coordinator, sizeof nodes[r].config.coordinator, "%s", meeting.address);
        pthread_create(&nodes[r].thread, NULL, node_main, &nodes[r]);
    }
    for (int r = 0; r < world; r++) pthread_join(nodes[r].thread, NULL);
}

static void assert_seen(int world, double epochs) {
    uint32_t seen[SAMPLES] = {0};
    for (int r = 0; r < world; r++) {
        if (nodes[r].status != ECH_E_END || nodes[r].closed != ECH_OK) print_error("rank %d: %s\n", r, nodes[r].error.text);
        assert_int_equal(nodes[r].status, ECH_E_END);
        assert_int_equal(nodes[r].closed, ECH_OK);
        assert_true(nodes[r].kept);
        for (int i = 0; i < SAMPLES; i++) seen[i] += nodes[r].seen[i];
        assert_memory_equal(nodes[r].first, nodes[0].first, sizeof nodes[0].first);
        assert_memory_equal(nodes[r].second, nodes[0].second, sizeof nodes[0].second);
    }
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(seen[i], (int)epochs);
    assert_int_equal(nodes[0].report.samples, (int)epochs * SAMPLES);
}

static void assert_trained(int world, double epochs) {
    assert_seen(world, epochs);
    /* Each sample moved each number by its gradient * lr / B, whatever the order: momentum is 0. Of local the mean over the nodes is
     * taken, by their samples: alone that is the same, with others less, and not against the gradient. */
    const double lr_by_b = nodes[0].config.lr / 8;
    if (strcmp(nodes[0].config.sync, "local") == 0 && world > 1) {
        const double all = epochs * SAMPLES * lr_by_b, moved = -(double)nodes[0].second[1];
        assert_true(moved > all / world - 1e-5 && moved < all + 1e-5);
        return;
    }
    assert_true(fabs(nodes[0].first[0] - (2 - epochs * (SAMPLES * (SAMPLES - 1) / 2) * lr_by_b)) < 1e-4);
    assert_true(fabs(nodes[0].second[1] - (-epochs * SAMPLES * lr_by_b)) < 1e-5);
}

static void test_every_policy_trains_each_sample_once_an_epoch(void **state) {
    (void)state;
    static const char *const policies[] = {"bsp", "asp", "ssp", "gssp", "local"};
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
        for (int world = 1; world <= WORLD_MAX; world++) {
            prepare(world, policies[p]);
            run(world);
            assert_trained(world, 3);
        }
}

/* With a codec weights lack what is in the residuals at the end, which is not more than all; they are equal on all nodes all the same.
 * One node sends nothing, and has no residual. */
static void test_a_codec_trains_the_same_samples(void **state) {
    (void)state;
    static const char *const policies[] = {"bsp", "asp", "gssp"};
    for (int world = 1; world <= WORLD_MAX; world++) {
        const char *policy = policies[world % 3];
        prepare(world, policy);
        for (int r = 0; r < world; r++) snprintf(nodes[r].config.codec, sizeof nodes[r].config.codec, "topk:paper");
        run(world);
        assert_seen(world, 3);
        if (world == 1) assert_trained(1, 3);
        const double all = 3.0 * SAMPLES * nodes[0].config.lr / 8;
        for (int k = 0; k < SECOND; k++)
            assert_in_range((int)(1e6 * (double)-nodes[0].second[k]), (int)(0.2e6 * all), (int)(1e6 * all) + 10);
        assert_string_equal(nodes[0].report.codec, "topk:paper");
    }
}

static void test_unequal_shares_are_exact(void **state) {
    (void)state;
    prepare(3, "bsp");
    for (int r = 0; r < 3; r++) snprintf(nodes[r].config.shares, sizeof nodes[r].config.shares, "5,0,3");
    run(3);
    assert_trained(3, 3);
    assert_int_equal(nodes[1].steps, 0);
}

/* Rank 0 copies, the last rank reads what is lent: each of a BSP's rounds is computed on the same weights, and they move. */
static void test_lent_weights_are_those_of_the_step(void **state) {
    (void)state;
    for (int world = 2; world <= WORLD_MAX; world++) {
        prepare(world, "bsp");
        for (int r = 0; r < world; r++) snprintf(nodes[r].config.shares, sizeof nodes[r].config.shares, "equal");
        if (world == 4) snprintf(nodes[0].config.exchange, sizeof nodes[0].config.exchange, "ring");
        run(world);
        assert_trained(world, 3);
        assert_int_equal(nodes[0].steps, 3 * SAMPLES / 8);
        assert_int_equal(nodes[world - 1].steps, nodes[0].steps);
        for (int k = 0; k < nodes[0].steps; k++) {
            assert_true(fabs(nodes[0].read[k] + k * nodes[0].config.lr) < 1e-6);
            assert_true(nodes[world - 1].read[k] == nodes[0].read[k]);
        }
    }
}

/* What a step is computed on stays while it is computed, though the run has ended around it. */
static void test_what_is_lent_outlives_the_run(void **state) {
    (void)state;
    prepare(2, "bsp");
    for (int r = 0; r < 2; r++) snprintf(nodes[r].config.shares, sizeof nodes[r].config.shares, "equal");
    napping = 0;
    nodes[0].leave_after = 2;
    nodes[0].leaves_nap = true;
    nodes[1].naps_in = 2;
    run(2);
    assert_int_equal(nodes[1].closed, ECH_E_ABORTED);
    assert_int_equal(nodes[1].steps, 2);
    assert_true(nodes[1].kept);
}

static void test_leaving_early_ends_the_run_for_all(void **state) {
    (void)state;
    for (int leaver = 0; leaver < 3; leaver++) {
        prepare(3, "bsp");
        for (int r = 0; r < 3; r++) snprintf(nodes[r].config.shares, sizeof nodes[r].config.shares, "equal");   /* a share for the leaver */
        nodes[leaver].leave_after = 2;
        run(3);
        for (int r = 0; r < 3; r++) {
            /* The leaver itself hears it as "the session was closed". */
            assert_int_equal(nodes[r].closed, ECH_E_ABORTED);
            assert_non_null(strstr(nodes[r].error.text, "closed"));
        }
    }
}

/* What was given out is trained, and then all have the same weights, as at the end of a run that did all that it was to do. */
static void test_a_stopped_session_has_final_weights(void **state) {
    (void)state;
    static const char *const policies[] = {"bsp", "asp", "gssp", "local"};
    for (int p = 0; p < 4; p++) {
        const int world = 2 + p % 2;
        uint64_t seen = 0;
        prepare(world, policies[p]);
        stop = 0;
        nodes[world - 1].stop_after = 5;
        nodes[0].config.stop = &stop;
        for (int r = 0; r < world; r++) {
            nodes[r].config.epochs = 100000;
            if (p == 0) snprintf(nodes[r].config.shares, sizeof nodes[r].config.shares, "equal");
        }
        run(world);
        for (int r = 0; r < world; r++) {
            assert_int_equal(nodes[r].status, ECH_E_END);
            assert_int_equal(nodes[r].closed, ECH_E_ABORTED);
            assert_non_null(strstr(nodes[r].error.text, "stopped"));
            for (int i = 0; i < SAMPLES; i++) seen += nodes[r].seen[i];
            assert_memory_equal(nodes[r].first, nodes[0].first, sizeof nodes[0].first);
            assert_memory_equal(nodes[r].second, nodes[0].second, sizeof nodes[0].second);
        }
        assert_true(seen == nodes[0].report.samples && seen > 0);
        const double moved = -(double)nodes[0].second[0], all = (double)seen * nodes[0].config.lr / 8;
        if (strcmp(policies[p], "local") != 0) assert_true(fabs(moved - all) < 1e-4 * all);
    }
}

static void test_a_loss_that_is_no_number_ends_the_run(void **state) {
    (void)state;
    prepare(2, "bsp");
    /* A share for it, however slow it is. */
    for (int r = 0; r < 2; r++) snprintf(nodes[r].config.shares, sizeof nodes[r].config.shares, "equal");
    nodes[1].poison = 1e308 * 10;
    run(2);
    assert_int_equal(nodes[1].status, ECH_E_DIVERGED);
    /* It may be over before rank 0 has got out of the opening, which says so then. */
    assert_int_equal(nodes[0].opened != ECH_OK ? nodes[0].opened : nodes[0].closed, ECH_E_DIVERGED);
    assert_int_equal(nodes[1].closed, ECH_E_DIVERGED);
}

static void test_refusing_to_measure_ends_the_opening(void **state) {
    (void)state;
    prepare(2, "bsp");
    nodes[1].leave_after = -1;
    run(2);
    assert_int_equal(nodes[0].opened, ECH_E_ABORTED);
    assert_int_equal(nodes[1].opened, ECH_E_ABORTED);
}

static void test_misuse_is_refused_with_a_sentence(void **state) {
    (void)state;
    float value[2] = {0}, grad[2] = {0};
    struct ech_param param = {"w", value, grad, 2, NULL};
    struct ech_config config;
    struct ech_error err;
    struct ech_step step;
    ech_session *session = NULL;
    ech_config_init(&config);
    assert_int_equal(ech_session_open(NULL, 1, 8, &config, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_session_open(&param, 1, 0, &config, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    param.grad = NULL;
    assert_int_equal(ech_session_open(&param, 1, 8, &config, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    param.grad = grad;
    config.target_accuracy = 0.5;
    assert_int_equal(ech_session_open(&param, 1, 8, &config, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    config.target_accuracy = 0;
    strcpy(config.checkpoint, "kept");   /* the caller's arrays are the caller's to keep */
    assert_int_equal(ech_session_open(&param, 1, 8, &config, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    config.checkpoint[0] = 0;
    strcpy(config.augment, "crop-flip");   /* and the samples the caller's to read */
    assert_int_equal(ech_session_open(&param, 1, 8, &config, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    strcpy(config.augment, "auto");
    config.steps = 2;
    config.batch = 4;
    assert_int_equal(ech_session_open(&param, 1, 8, &config, NULL, NULL, &session, &err), ECH_OK);
    assert_int_equal(ech_gradient_ready(session, 0, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_step_end(session, 0, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_step_begin(session, &step, &err), ECH_OK);
    assert_int_equal(ech_step_begin(session, &step, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_gradient_ready(session, 1, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_step_end(session, 0, &err), ECH_E_ARGUMENT);   /* 'w' was not given */
    assert_non_null(strstr(err.text, "'w'"));
    assert_int_equal(ech_gradient_ready(session, 0, &err), ECH_OK);
    assert_int_equal(ech_gradient_ready(session, 0, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_step_end(session, 0, &err), ECH_OK);
    assert_int_equal(ech_session_close(session, NULL, &err), ECH_E_ABORTED);   /* one of two steps was done */
    assert_int_equal(ech_session_close(NULL, NULL, NULL), ECH_OK);
}

/* It is told where config says, once for each time it is asked. */
static void test_who_waits_for_whom(void **state) {
    (void)state;
    prepare(2, "ssp");
    for (int r = 0; r < 2; r++) {
        nodes[r].config.tell = &nodes[r].tell;
        nodes[r].config.user = &nodes[r];
    }
    nodes[0].config.on_tell = on_tell;
    nodes[1].config.on_log = on_log;
    run(2);
    assert_trained(2, 3);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(nodes[r].worker_told, 1);
        assert_int_equal(nodes[r].coordinator_told, r == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_policy_trains_each_sample_once_an_epoch), cmocka_unit_test(test_a_codec_trains_the_same_samples),
        cmocka_unit_test(test_unequal_shares_are_exact), cmocka_unit_test(test_lent_weights_are_those_of_the_step),
        cmocka_unit_test(test_what_is_lent_outlives_the_run), cmocka_unit_test(test_leaving_early_ends_the_run_for_all),
        cmocka_unit_test(test_a_stopped_session_has_final_weights),
        cmocka_unit_test(test_a_loss_that_is_no_number_ends_the_run), cmocka_unit_test(test_refusing_to_measure_ends_the_opening),
        cmocka_unit_test(test_who_waits_for_whom), cmocka_unit_test(test_misuse_is_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
