/* SPDX-License-Identifier: Apache-2.0
 * Programs give threads small stacks, and musl gives every thread 128 KiB. Here all threads have that, the program's and those that
 * the library starts, and a guard so large that no frame can step over it. A run and a session must fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon.h"
#include "sanitized.h"

#define STACK ((size_t)128 * 1024)
#define GUARD ((size_t)1 << 20)
enum { WORLD = 3, SIDE = 12, CLASSES = 4, TRAIN = 192, TEST = 16, PARAMS = 40 };

/* What sanitizers put on a stack is not the library's. */
#define SANITIZERS (SANITIZED ? 16 : 1)

struct node {
    struct ech_config config;
    ech_status status;
    struct ech_error error;
    struct ech_report report;
    pthread_t thread;
};
static struct node nodes[WORLD];
static ech_model *model;
static ech_data *data;
static char folder[200];

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

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test;
    for (int i = 0; i < n; i++) {
        labels[i] = (uint16_t)(index[i] % CLASSES);
        for (int p = 0; p < SIDE * SIDE; p++) *rows++ = (float)(p * (labels[i] + 1) % 7) * 0.2f - 0.6f;
    }
    return 0;
}

static void *train_main(void *self) {
    struct node *n = self;
    n->status = ech_train(model, data, &n->config, NULL, &n->report, &n->error);
    return NULL;
}

static void *session_main(void *self) {
    struct node *n = self;
    float value[PARAMS] = {0}, grad[PARAMS] = {0};
    const struct ech_param params[] = {{"all", value, grad, PARAMS, NULL}};
    ech_session *session = NULL;
    struct ech_step step;
    n->status = ech_session_open(params, 1, TRAIN, &n->config, NULL, NULL, &session, &n->error);
    if (n->status != ECH_OK) return NULL;
    while (ech_step_begin(session, &step, NULL) == ECH_OK) {
        ech_gradient_ready(session, 0, NULL);
        ech_step_end(session, 1, NULL);
    }
    n->status = ech_session_close(session, &n->report, &n->error);
    return NULL;
}

static void run(const char *sync, void *(*node_main)(void *)) {
    meeting.address[0] = 0;
    for (int r = 0; r < WORLD; r++) {
        struct ech_config *c = &nodes[r].config;
        ech_config_init(c);
        c->rank = r;
        c->world = WORLD;
        c->epochs = 1;
        c->threads = 2;
        snprintf(c->sync, sizeof c->sync, "%s", sync);
        snprintf(c->coordinator, sizeof c->coordinator, "127.0.0.1:0");
        if (r == 0) c->on_bound = on_bound;
        if (node_main == train_main) snprintf(c->record, sizeof c->record, "%s/recording", folder);
        if (node_main == train_main && r == 0) snprintf(c->checkpoint, sizeof c->checkpoint, "%s/checkpoints", folder);
    }
    for (int r = 0; r < WORLD; r++) {
        pthread_mutex_lock(&meeting.mutex);
        while (r > 0 && !meeting.address[0]) pthread_cond_wait(&meeting.changed, &meeting.mutex);
        if (r > 0) snprintf(nodes[r].config.coordinator, sizeof nodes[r].config.coordinator, "%s", meeting.address);
        pthread_mutex_unlock(&meeting.mutex);
        assert_int_equal(pthread_create(&nodes[r].thread, NULL, node_main, &nodes[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) {
        pthread_join(nodes[r].thread, NULL);
        if (nodes[r].status != ECH_OK) fail_msg("rank %d: %s", r, nodes[r].error.text);
    }
}

/* Plans of every policy are made and played, momentum and weights kept, events recorded. */
static void a_run_fits(void **state) {
    (void)state;
    run("auto", train_main);
    assert_true(nodes[0].report.predicted_images_per_second > 0);   /* so there were predictions */
}

static void a_session_fits(void **state) {
    (void)state;
    run("gssp", session_main);
}

static int set_up(void **state) {
    (void)state;
    const struct ech_data_callback samples = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .train_samples = TRAIN,
                                              .test_samples = TEST, .read = read_samples, .name = "stripes"};
    const char *tmp = getenv("TMPDIR");
    struct ech_error err;
    pthread_attr_t attr;
    snprintf(folder, sizeof folder, "%.150s/echelon-stack.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return 1;
    ech_status status = ech_data_from_callback(&samples, &data, &err);
    if (status == ECH_OK) status = ech_model_create(1, SIDE, SIDE, &model, &err);
    if (status != ECH_OK) return 1;
    ech_model_conv2d(model, 4, 3, 1, 1);
    ech_model_batch_norm(model);
    ech_model_relu(model);
    ech_model_max_pool(model, 2, 2, 0);
    ech_model_fc(model, 16);
    ech_model_tanh(model);
    ech_model_fc(model, CLASSES);
    /* Of all threads from here on. */
    return ech_model_finish(model, &err) != ECH_OK || pthread_attr_init(&attr) != 0 ||
           pthread_attr_setstacksize(&attr, STACK * SANITIZERS) != 0 || pthread_attr_setguardsize(&attr, GUARD) != 0 ||
           pthread_setattr_default_np(&attr) != 0;
}

static int tear_down(void **state) {
    (void)state;
    char command[sizeof folder + 16];
    ech_data_destroy(data);
    ech_model_destroy(model);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_fits), cmocka_unit_test(a_session_fits)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
