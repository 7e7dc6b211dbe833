/* SPDX-License-Identifier: Apache-2.0
 * Nodes as threads of one process, over loopback, on a tiny model: each run takes milliseconds. */
#ifndef NODES_H
#define NODES_H
#include "echelon.h"
#include "inject.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES_MAX = 4, SIDE = 6, CLASSES = 4, TRAIN = 48, TEST = 8, ROUND = 16, PARAMS = 40 };

struct node {
    struct ech_config config;
    ech_status status;
    struct ech_error error;
    struct ech_report report;
    atomic_bool joined, ended;
    pthread_t thread;
};

static struct node nodes[NODES_MAX];
static ech_model *tiny;
static volatile int nodes_stop;
static char nodes_address[128];
static atomic_bool nodes_bound;
static atomic_uint nodes_pause;   /* microseconds that each step takes longer */

/* --------------------------------------------------------- model and data */

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    if (!test && atomic_load(&nodes_pause)) usleep(atomic_load(&nodes_pause));
    for (int i = 0; i < n; i++) {
        labels[i] = (uint16_t)(index[i] % CLASSES);
        for (uint32_t p = 0; p < SIDE * SIDE; p++) rows[(uint32_t)i * SIDE * SIDE + p] = (float)(p * (labels[i] + 1u) % 7) * 0.2f - 0.6f;
    }
    return 0;
}

static const struct ech_data_callback tiny_callback = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES,
                                                       .train_samples = TRAIN, .test_samples = TEST, .read = read_samples,
                                                       .name = "stripes"};
static ech_data *tiny_data;

static ech_status build_tiny(ech_model **out, struct ech_error *err) {
    ech_status status = ech_model_create(1, SIDE, SIDE, out, err);
    if (status != ECH_OK) return status;
    ech_model_conv2d(*out, 2, 3, 1, 0);
    ech_model_relu(*out);
    ech_model_max_pool(*out, 2, 2, 0);
    ech_model_fc(*out, CLASSES);
    return ech_model_finish(*out, err);
}

/* ---------------------------------------------------------------- a hang */

static char nodes_doing[160];
/* test/run.sh ends a test that makes no progress, by SIGTERM first. */
static void on_no_progress(int number) {
    (void)number;
    static const char text[] = "no progress: ";
    (void)!write(2, text, sizeof text - 1);
    (void)!write(2, nodes_doing, strlen(nodes_doing));
    (void)!write(2, "\n", 1);
    _exit(1);
}

static int nodes_setup(void **state) {
    signal(SIGTERM, on_no_progress);
    (void)state;
    struct ech_error err;
    return build_tiny(&tiny, &err) != ECH_OK || ech_data_from_callback(&tiny_callback, &tiny_data, &err) != ECH_OK;
}

static int nodes_teardown(void **state) {
    (void)state;
    ech_data_destroy(tiny_data);
    ech_model_destroy(tiny);
    return 0;
}

/* ------------------------------------------------------------------- runs */

static void on_bound(void *user, const char *address) {
    (void)user;
    snprintf(nodes_address, sizeof nodes_address, "%s", address);
    atomic_store(&nodes_bound, true);
}

static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)level;
    if (strstr(line, "have joined")) atomic_store(&((struct node *)user)->joined, true);
}

static void *node_main(void *self) {
    struct node *n = self;
    n->status = ech_train(tiny, tiny_data, &n->config, NULL, &n->report, &n->error);
    atomic_store(&n->ended, true);
    return NULL;
}

/* A custom trainer of PARAMS numbers in two arrays. */
static inline void *session_main(void *self) {
    struct node *n = self;
    float value[2][PARAMS / 2] = {{0}}, grad[2][PARAMS / 2] = {{0}};
    const struct ech_param params[] = {{"first", value[0], grad[0], PARAMS / 2, NULL}, {"second", value[1], grad[1], PARAMS / 2, NULL}};
    ech_session *session = NULL;
    struct ech_step step;
    n->status = ech_session_open(params, 2, TRAIN, &n->config, NULL, NULL, &session, &n->error);
    if (n->status == ECH_OK) {
        ech_status status;
        while ((status = ech_step_begin(session, &step, &n->error)) == ECH_OK) {
            if (atomic_load(&nodes_pause)) usleep(atomic_load(&nodes_pause));
            for (int k = 0; k < PARAMS; k++) grad[k / (PARAMS / 2)][k % (PARAMS / 2)] = (float)step.index[0];
            for (int p = 1; p >= 0; p--) ech_gradient_ready(session, p, NULL);
            if ((status = ech_step_end(session, 1, &n->error)) != ECH_OK) break;
        }
        n->status = ech_session_close(session, &n->report, &n->error);
    }
    atomic_store(&n->ended, true);
    return NULL;
}

/* The same with a head of Echelon's, whose rows do not matter. */
static inline void *headed_main(void *self) {
    static const char text[] = "input 3 1 1\nfc out 3\n";
    struct node *n = self;
    float value[PARAMS] = {0}, grad[PARAMS] = {0}, weights[12], rows[TRAIN * 3] = {0};
    uint16_t labels[TRAIN] = {0};
    const struct ech_param param = {"only", value, grad, PARAMS, NULL};
    struct ech_head head = {.weights = weights};
    struct ech_head_answer answer;
    ech_session *session = NULL;
    ech_model *model = NULL;
    struct ech_step step;
    n->status = ech_model_parse(text, sizeof text - 1, "head", &model, &n->error);
    head.model = model;
    if (n->status == ECH_OK) n->status = ech_session_open_with_head(&param, 1, &head, TRAIN, &n->config, NULL, NULL, &session, &n->error);
    ech_model_destroy(model);
    if (session) {
        while (ech_step_begin(session, &step, &n->error) == ECH_OK) {
            const size_t count = 3 * (size_t)step.n;
            if (ech_head_exchange(session, rows, count, labels, rows, &answer, &n->error) != ECH_OK) break;
            ech_gradient_ready(session, 0, NULL);
            if (ech_step_end(session, answer.loss, &n->error) != ECH_OK) break;
        }
        n->status = ech_session_close(session, &n->report, &n->error);
    }
    atomic_store(&n->ended, true);
    return NULL;
}

static void prepare_nodes(int world, const char *sync, int separate) {
    memset(nodes, 0, sizeof nodes);
    for (int r = 0; r < world; r++) {
        struct ech_config *c = &nodes[r].config;
        ech_config_init(c);
        c->measure = 0.001;   /* most of the time of a short run is its measuring */
        c->rank = r;
        c->world = world;
        snprintf(c->sync, sizeof c->sync, "%s", sync);
        snprintf(c->shares, sizeof c->shares, "equal");   /* all have work, however fast they are */
        c->separate = separate;
        c->batch = ROUND;
        c->samples_per_step = strcmp(sync, "bsp") == 0 ? 0 : 4;
        c->epochs = 2;
        c->eval_every = TRAIN;
        c->lr = 0.01;
        c->join_timeout = 20;
        c->on_log = on_log;
        c->user = &nodes[r];
        c->stop = &nodes_stop;
    }
    nodes[0].config.on_bound = on_bound;
}

static bool any(int world, bool (*is)(struct node *)) {
    for (int r = 0; r < world; r++)
        if (is(&nodes[r])) return true;
    return false;
}
static bool has_failed(struct node *n) { return atomic_load(&n->ended) && n->status != ECH_OK; }
static bool not_ended(struct node *n) { return !atomic_load(&n->ended); }
static bool still_joining(struct node *n) { return !atomic_load(&n->ended) && !atomic_load(&n->joined); }

/* The test's own threads are never refused. */
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

/* All nodes from beginning to end. Those that wait for a node that has failed are stopped, as a person would, but only those
 * that have not met it yet: the others must end by themselves. */
static void run_nodes(int world, void *(*main_of_node)(void *)) {
    nodes_stop = 0;
    atomic_store(&nodes_bound, false);
    snprintf(nodes[0].config.coordinator, sizeof nodes[0].config.coordinator, "127.0.0.1:0");
    int started = 0;
    while (started < world) {
        struct node *n = &nodes[started];
        if (started > 0) snprintf(n->config.coordinator, sizeof n->config.coordinator, "%s", nodes_address);
        if (__real_pthread_create(&n->thread, NULL, main_of_node, n) != 0) break;
        started++;
        while (started == 1 && !atomic_load(&nodes_bound) && not_ended(n)) usleep(200);
        if (!atomic_load(&nodes_bound)) break;   /* nobody to meet */
    }
    int waited = 0;
    while (any(started, not_ended)) {
        if (any(started, has_failed) && any(started, still_joining) && ++waited > 250) __atomic_store_n(&nodes_stop, 1, __ATOMIC_RELAXED);
        usleep(200);
    }
    for (int r = 0; r < started; r++) pthread_join(nodes[r].thread, NULL);
    /* Who was not even started: rank 0 never listened. */
    for (int r = started; r < world; r++) nodes[r].status = ECH_OK;
}
#endif
