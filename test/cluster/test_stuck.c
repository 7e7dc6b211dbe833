/* SPDX-License-Identifier: Apache-2.0
 * Nodes whose computing stands still, because a data callback does not come back: the others go on without them, they leave, and
 * ech_train returns.
 * make check only: it waits for ten deadlines of nine seconds. */
#include "echelon.h"
#include "echi_os.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What is left behind is nobody's any more: that is no leak. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) { return "detect_leaks=0"; }

enum { SIDE = 6, CLASSES = 4, SAMPLES = 4800, EPOCHS = 3, WORLD_MAX = 3 };

/* Once it is `stuck` no call comes back. */
struct source { atomic_bool stuck, blocks; volatile int stop; };

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    struct source *s = user;
    (void)test;
    for (int i = 0; i < n; i++) labels[i] = (uint16_t)(index[i] % CLASSES);
    for (int i = 0; i < n * SIDE * SIDE; i++) rows[i] = (float)(i % 7) * 0.1f;
    while (atomic_load(&s->stuck)) {
        atomic_store(&s->blocks, true);
        echi_sleep_until(echi_now() + 1000000000);
    }
    return 0;
}

struct cluster;
struct node {
    struct echi_thread thread;
    struct cluster *cluster;
    struct ech_config config;
    struct source source;
    ech_data *data;
    struct ech_report report;
    struct ech_error error;
    ech_status status;
};
/* A run of its own, in which the callback of node `stuck` blocks. All go on at once, since they only wait. What a thread that is left
 * behind may use stays: model, data, and these. */
static ech_model *model;
static struct cluster {
    int world, stuck;
    bool once_planned;   /* measuring goes well */
    char bound[64];
    atomic_bool is_bound;
    struct node node[WORLD_MAX];
} measuring = {.world = 3, .stuck = 2}, training = {.world = 3, .stuck = 2, .once_planned = true},
  coordinator = {.world = 2, .stuck = 0, .once_planned = true}, alone = {.world = 1, .stuck = 0};

static void on_bound(void *user, const char *address) {
    struct cluster *c = user;
    snprintf(c->bound, sizeof c->bound, "%s", address);
    atomic_store(&c->is_bound, true);
}

/* Whatever is read after the plan is for training. */
static void on_log(void *user, enum ech_log_level level, const char *line) {
    struct cluster *c = user;
    (void)level;
    if (strstr(line, "plan: group 0")) atomic_store(&c->node[c->stuck].source.stuck, true);
}

static void *run(void *self) {
    struct node *n = self;
    n->status = ech_train(model, n->data, &n->config, NULL, &n->report, &n->error);
    return NULL;
}

static void begin(struct cluster *c, int rank) {
    struct node *n = &c->node[rank];
    const struct ech_data_callback callback = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .train_samples = SAMPLES,
                                               .test_samples = 8, .read = read_samples, .user = &n->source, .name = "tiny"};
    assert_int_equal(ech_data_from_callback(&callback, &n->data, NULL), ECH_OK);
    atomic_store(&n->source.stuck, rank == c->stuck && !c->once_planned);   /* after a fingerprint of the data has been read */
    ech_config_init(&n->config);
    n->config.rank = rank;
    n->config.world = c->world;
    n->config.deadline = 9;   /* healthy nodes on a busy machine are heard in time */
    n->config.epochs = EPOCHS;
    n->config.eval_every = 0;
    n->config.stop = &n->source.stop;
    n->config.on_bound = on_bound;
    n->config.user = c;
    if (rank == c->stuck && c->once_planned) n->config.on_log = on_log;
    /* As the fastest it would own the group, and be needed; waits for a processor may make the others ten times slower. */
    if (rank == c->stuck && rank > 0) n->config.slow = 100;
    snprintf(n->config.sync, sizeof n->config.sync, "asp");
    snprintf(n->config.coordinator, sizeof n->config.coordinator, "%s", rank == 0 ? "127.0.0.1:0" : c->bound);
    assert_int_equal(echi_thread_start(&n->thread, "node", run, n, NULL), ECH_OK);
    while (rank == 0 && c->world > 1 && !atomic_load(&c->is_bound)) echi_sleep_until(echi_now() + 1000000);
}

static void end(struct cluster *c) {
    for (int r = 0; r < c->world; r++) echi_thread_join(&c->node[r].thread);
}

/* A worker's callback blocks: the others do all that was asked, and it hears why it was left out. */
static void is_left_out(struct cluster *c) {
    end(c);
    for (int r = 0; r < 2; r++)
        if (c->node[r].status != ECH_OK) fail_msg("rank %d: %s", r, c->node[r].error.text);
    assert_int_equal(c->node[0].report.samples, EPOCHS * SAMPLES);
    assert_int_equal(c->node[2].status, ECH_E_TIMEOUT);
    if (!strstr(c->node[2].error.text, "stood still")) fail_msg("%s", c->node[2].error.text);
}
static void a_worker_that_stands_still_is_left_out(void **state) { (void)state; is_left_out(&training); }
static void so_is_one_that_never_has_measured(void **state) { (void)state; is_left_out(&measuring); }

/* Where the run needs it, it ends with that node's name. */
static void the_coordinator_that_stands_still_ends_the_run(void **state) {
    (void)state;
    end(&coordinator);
    assert_int_equal(coordinator.node[0].status, ECH_E_TIMEOUT);
    if (!strstr(coordinator.node[1].error.text, "rank 0: computing has stood still")) fail_msg("%s", coordinator.node[1].error.text);
    assert_int_equal(coordinator.node[1].status, ECH_E_TIMEOUT);
}

/* A user's end is heard by a node that is alone and measures for ever. */
static void a_stop_ends_a_node_that_stands_still(void **state) {
    struct node *n = &alone.node[0];
    (void)state;
    while (!atomic_load(&n->source.blocks)) echi_sleep_until(echi_now() + 1000000);
    __atomic_store_n(&n->source.stop, 1, __ATOMIC_RELAXED);
    end(&alone);
    assert_int_equal(n->status, ECH_E_TIMEOUT);
    if (!strstr(n->error.text, "left behind")) fail_msg("%s", n->error.text);
}

static int set_up(void **state) {
    static const char text[] = "input 1 6 6\nfc out 4\n";
    struct cluster *all[] = {&measuring, &training, &coordinator, &alone};
    (void)state;
    if (ech_model_parse(text, sizeof text - 1, "tiny", &model, NULL) != ECH_OK) return -1;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int r = 0; r < all[i]->world; r++) begin(all[i], r);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stop_ends_a_node_that_stands_still),
                                       cmocka_unit_test(a_worker_that_stands_still_is_left_out),
                                       cmocka_unit_test(the_coordinator_that_stands_still_ends_the_run),
                                       cmocka_unit_test(so_is_one_that_never_has_measured)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
