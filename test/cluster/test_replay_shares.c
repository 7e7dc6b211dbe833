/* SPDX-License-Identifier: Apache-2.0
 * A live run under BSP in which shares of rounds change, since one of its two nodes becomes slow, is replayed to the same weights, bit for
 * bit. Nodes are threads over TCP. The linker hands this program what they compute, so that one of them can sleep from some step on; what
 * they measure, so that they begin alike; and the plan request, so that a change need not last for seconds. It goes on until shares have
 * changed, however long that takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon_dev.h"
#include "echi_exec_impl.h"
#include "echi_measure.h"
#include "echi_os.h"
#include "echi_planner.h"

enum { WORLD = 2, BATCH = 64, SAMPLES = 640, CLASSES = 4, SIDE = 6, USUAL = 400 /* steps */, BEHIND = 200 /* ... with other shares */ };
#define AFTER INT64_C(300000000)    /* ns for which a change must last */
#define SLEEP INT64_C(100000)       /* ns a sample, of the node that becomes slow; a step of 32 is measured as 1.6 ms */

static struct run {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char address[64];               /* of rank 0 */
    atomic_bool live, changes;      /* it is recorded, not replayed; shares have changed */
    int steps, behind;              /* of rank 1 */
    volatile int stop;
} run = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* --- in the place of the library's own */

ech_status __real_echi_exec_run(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
ech_status __wrap_echi_exec_run(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
ech_status __wrap_echi_exec_run(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    if (run.live && task->kind == ECHI_TASK_STEP && ((const struct echi_exec *)self)->setup->rank == 1) {
        if (run.steps++ >= USUAL) echi_sleep_until(echi_now() + SLEEP * task->lease.n);
        if (run.changes && ++run.behind == BEHIND) __atomic_store_n(&run.stop, 1, __ATOMIC_RELAXED);
    }
    return __real_echi_exec_run(self, task, result, err);
}

ech_status __wrap_echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                               struct echi_cost_io io, struct echi_times *out, struct ech_error *err);
ech_status __wrap_echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                               struct echi_cost_io io, struct echi_times *out, struct ech_error *err) {
    (void)job, (void)device, (void)slow, (void)lane, (void)io, (void)err;
    *out = (struct echi_times){.count = 2, .n = {8, 64}, .trunk = {4e-4, 32e-4}};
    return ECH_OK;
}

ech_status __real_echi_plan_request_from(const struct ech_config *c, const struct echi_job *job, struct echi_plan_request *w,
                                         struct ech_error *err);
ech_status __wrap_echi_plan_request_from(const struct ech_config *c, const struct echi_job *job, struct echi_plan_request *w,
                                         struct ech_error *err);
ech_status __wrap_echi_plan_request_from(const struct ech_config *c, const struct echi_job *job, struct echi_plan_request *w,
                                         struct ech_error *err) {
    const ech_status status = __real_echi_plan_request_from(c, job, w, err);
    w->regroup_after = AFTER;
    return status;
}

/* --- the run */

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test;
    for (int i = 0; i < n; i++) {
        labels[i] = (uint16_t)(index[i] % CLASSES);
        for (uint32_t k = 0; k < SIDE * SIDE; k++) rows[i * SIDE * SIDE + (int)k] = (float)((index[i] * 31 + k * k) % 17) * 0.1f - 0.8f;
    }
    return 0;
}

static void on_bound(void *user, const char *address) {
    (void)user;
    pthread_mutex_lock(&run.mutex);
    snprintf(run.address, sizeof run.address, "%s", address);
    pthread_cond_broadcast(&run.changed);
    pthread_mutex_unlock(&run.mutex);
}

static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user, (void)level;
    if (strstr(line, "shares of a round are now ")) run.changes = true;
}

struct node {
    struct ech_config config;
    ech_model *model;
    ech_data *data;
    struct ech_error error;
    ech_status status;
    pthread_t thread;
};

static void *node_main(void *self) {
    struct node *n = self;
    n->status = ech_train(n->model, n->data, &n->config, NULL, NULL, &n->error);
    if (n->config.rank == 0) on_bound(NULL, "ended");
    return NULL;
}

static void start(struct node *n, int rank, ech_model *model, ech_data *data, const char *record, const char *save) {
    struct ech_config *c = &n->config;
    n->model = model;
    n->data = data;
    ech_config_init(c);
    c->rank = rank;
    c->world = WORLD;
    c->batch = BATCH;
    c->steps = 1000000000;
    c->eval_every = 0;
    c->threads = 1;
    c->join_timeout = c->deadline = 3600;
    c->on_bound = on_bound;
    c->on_log = on_log;
    if (rank == 0) c->stop = &run.stop;
    snprintf(c->coordinator, sizeof c->coordinator, "%s", rank ? run.address : "127.0.0.1:0");
    assert_int_equal(ech_config_set(c, "sync", "bsp", NULL), ECH_OK);
    assert_int_equal(ech_config_set(c, "record", record, NULL), ECH_OK);
    if (rank == 0) assert_int_equal(ech_config_set(c, "save", save, NULL), ECH_OK);
    assert_int_equal(pthread_create(&n->thread, NULL, node_main, n), 0);
}

static void read_file(const char *path, char **out, size_t *out_len) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *out = malloc(1 << 20);
    assert_non_null(*out);
    *out_len = fread(*out, 1, 1 << 20, f);
    fclose(f);
}

static void a_run_whose_shares_change_is_replayed(void **state) {
    (void)state;
    static const char text[] = "input 1 6 6\nconv2d out 3 kernel 3\nrelu\nfc out 9\nrelu\nfc out 4\n";
    const struct ech_data_callback callback = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .train_samples = SAMPLES,
                                               .read = read_samples, .name = "samples"};
    char folder[] = "/tmp/echelon-shares-XXXXXX", record[64], live[64], again[64], *a, *b;
    size_t a_len, b_len;
    struct ech_error err = {.text = ""};
    struct ech_replay_report report;
    static struct node node[WORLD];
    ech_model *model;
    ech_data *data;
    assert_non_null(mkdtemp(folder));
    snprintf(record, sizeof record, "%s/run", folder);
    snprintf(live, sizeof live, "%s/live", folder);
    snprintf(again, sizeof again, "%s/again", folder);
    assert_int_equal(ech_model_parse(text, sizeof text - 1, "tiny", &model, NULL), ECH_OK);
    assert_int_equal(ech_data_from_callback(&callback, &data, NULL), ECH_OK);
    run.live = true;
    start(&node[0], 0, model, data, record, live);
    pthread_mutex_lock(&run.mutex);
    while (!run.address[0]) pthread_cond_wait(&run.changed, &run.mutex);
    pthread_mutex_unlock(&run.mutex);
    start(&node[1], 1, model, data, record, "");
    for (int r = 0; r < WORLD; r++) pthread_join(node[r].thread, NULL);
    run.live = false;
    for (int r = 0; r < WORLD; r++)
        if (node[r].status != ECH_E_ABORTED) fail_msg("rank %d: %s: %s", r, ech_status_name(node[r].status), node[r].error.text);
    assert_true(run.changes && run.behind >= BEHIND);
    const struct ech_replay_options options = {.dir = record, .model = model, .data = data, .save = again};
    if (ech_replay(&options, &report, &err) != ECH_OK) fail_msg("%s", err.text);
    read_file(live, &a, &a_len);
    read_file(again, &b, &b_len);
    assert_int_equal(a_len, b_len);
    assert_memory_equal(a, b, a_len);
    free(a);
    free(b);
    for (int r = 0; r < WORLD; r++) {
        char path[100];
        snprintf(path, sizeof path, "%s/rank%d.events", record, r);
        unlink(path);
    }
    unlink(live);
    unlink(again);
    rmdir(record);
    rmdir(folder);
    ech_data_destroy(data);
    ech_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_whose_shares_change_is_replayed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
