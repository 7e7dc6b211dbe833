/* SPDX-License-Identifier: Apache-2.0
 * Samples read ahead: the right ones in any order of what is expected and what is asked for; errors where they belong; nothing handed over
 * that is read faster than that takes; and whole runs, in which a source that waits is waited for on another thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "echi_exec_impl.h"
#include "echi_random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MOST 8
#define PIXELS 36
#define SAMPLES 640
#define ENOUGH 20

/* A sample is its number, and is waited for. */
static struct source {
    _Atomic int64_t waits;         /* ns a call */
    atomic_int fails_at;           /* a call with this sample fails; -1: none */
    atomic_int elsewhere, here;    /* calls for training samples on a reader's thread, and on others */
    volatile int seen;             /* a stop flag: `elsewhere` has come to ENOUGH */
} source = {.fails_at = -1};

static int numbered(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    struct source *s = user;
    char name[32] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (!test) atomic_fetch_add(strcmp(name, "ech-reader") == 0 ? &s->elsewhere : &s->here, 1);
    if (s->elsewhere >= ENOUGH) __atomic_store_n(&s->seen, 1, __ATOMIC_RELAXED);
    if (s->waits) echi_sleep_until(echi_now() + s->waits);
    int failed = 0;
    for (int i = 0; i < n; i++) {
        failed |= (int)index[i] == s->fails_at;
        for (int k = 0; k < PIXELS; k++) rows[i * PIXELS + k] = (float)index[i];
        labels[i] = (uint16_t)(index[i] % 3);
    }
    return failed;
}

static const char text[] = "input 1 6 6\nconv2d out 2 kernel 3\nrelu\nfc out 3\n";
static struct ech_model *model;
static struct ech_data *data;
static struct echi_job job;
static struct echi_ahead *ahead;
static struct echi_samples samples;

static void open_data(int64_t waits) {
    static const struct ech_data_callback read = {1, 6, 6, 3, SAMPLES, 0, numbered, &source, "numbered"};
    source.waits = waits;
    source.fails_at = -1;
    source.elsewhere = source.here = source.seen = 0;
    assert_int_equal(ech_model_parse(text, strlen(text), "small", &model, NULL), ECH_OK);
    assert_int_equal(ech_data_from_callback(&read, &data, NULL), ECH_OK);
}

static void close_data(void) {
    ech_data_destroy(data);
    ech_model_destroy(model);
}

static void open_ahead(int64_t waits, bool spare) {
    struct ech_config config;
    open_data(waits);
    ech_config_init(&config);
    assert_int_equal(echi_job_make(model, data, &config, &job, NULL), ECH_OK);
    assert_int_equal(echi_ahead_create(&job, MOST, spare, &ahead, NULL), ECH_OK);
    assert_int_equal(echi_samples_create(&samples, &job, MOST, NULL), ECH_OK);
    source.here = 0;   /* some were read for the job's fingerprint */
}

static void close_ahead(void) {
    echi_ahead_destroy(ahead);
    echi_samples_destroy(&samples);
    close_data();
}

static struct echi_lease lease_of(uint32_t epoch, uint32_t start, uint32_t n) {
    return (struct echi_lease){.id = 1, .epoch = epoch, .start = start, .n = n};
}

/* What comes is what the lease says, whoever read it. */
static void take(const struct echi_lease *l) {
    uint32_t index[MOST];
    struct ech_error err = {.text = ""};
    if (echi_ahead_take(ahead, l, &samples, &err) != ECH_OK) fail_msg("%s", err.text);
    echi_job_samples(&job, l, index);
    for (uint32_t i = 0; i < l->n; i++) {
        assert_int_equal(samples.labels[i], index[i] % 3);
        for (int k = 0; k < PIXELS; k++) assert_true(samples.rows[i * PIXELS + (uint32_t)k] == (echi_real)index[i]);
    }
}

static void expect_lease(const struct echi_lease *l) { echi_ahead_expect(ahead, l); }

/* Until the reader has begun: a lane that is there before it does not wait for it. */
static void compute(int reads) {
    while (source.elsewhere < reads) echi_sleep_until(echi_now() + 50000);
}

static void test_one_after_the_other(void **state) {
    (void)state;
    open_ahead(1000000, false);
    for (uint32_t step = 0; step < 30; step++) {
        const struct echi_lease now = lease_of(0, step * MOST, MOST), then = lease_of(0, (step + 1) * MOST, MOST);
        take(&now);
        for (int again = 0; again < 3; again++) expect_lease(&then);
        compute((int)step + 1);
    }
    assert_int_equal(source.here, 1);   /* the first, by which it was seen that the others are worth it */
    close_ahead();
}

static void test_what_nobody_takes_goes(void **state) {
    (void)state;
    open_ahead(200000, false);
    struct echi_random random;
    echi_random_init(&random, 3, ECHI_STREAM_TEST, 0);
    const int64_t until = echi_now() + INT64_C(60000000000);   /* a reader that is given no processor has taken little by then */
    for (int i = 0; i < 1500 || (source.elsewhere <= 50 && echi_now() < until); i++) {
        const struct echi_lease l = lease_of(echi_random_below(&random, 2), 8 * echi_random_below(&random, 4),
                                             1 + echi_random_below(&random, MOST));
        if (echi_random_below(&random, 3) == 0) source.waits = 200000 * echi_random_below(&random, 2);
        if (echi_random_below(&random, 2)) take(&l);
        else expect_lease(&l);
        if (echi_random_below(&random, 8) == 0) echi_sleep_until(echi_now() + 100000);
    }
    assert_true(source.elsewhere > 50);
    /* And after all that it is as good as before. */
    source.waits = 1000000;
    for (uint32_t step = 0; step < 10; step++) {
        const struct echi_lease now = lease_of(1, 80 + step * MOST, MOST), then = lease_of(1, 80 + (step + 1) * MOST, MOST);
        take(&now);
        if (step == 4) source.elsewhere = 0;
        expect_lease(&then);
        if (step >= 4) compute((int)step - 3);
    }
    close_ahead();
}

static void test_a_failure_is_of_its_lease(void **state) {
    (void)state;
    open_ahead(1000000, false);
    struct echi_lease good = lease_of(0, 0, MOST), bad = lease_of(0, MOST, MOST), next = lease_of(0, 2 * MOST, MOST);
    struct ech_error err = {.text = ""};
    uint32_t index[MOST];
    echi_job_samples(&job, &bad, index);
    source.fails_at = (int)index[3];
    for (int taken = 0; taken < 2; taken++) {
        take(&good);
        expect_lease(&bad);
        echi_sleep_until(echi_now() + 5000000);
        if (taken) {
            assert_int_not_equal(echi_ahead_take(ahead, &bad, &samples, &err), ECH_OK);
            if (!strstr(err.text, "callback")) fail_msg("'%s' does not name the callback", err.text);
        }
        take(&next);
    }
    close_ahead();
}

static void test_what_is_fast_stays_here(void **state) {
    (void)state;
    open_ahead(0, false);
    for (uint32_t step = 0; step < 50; step++) {
        const struct echi_lease now = lease_of(0, step * MOST, MOST), then = lease_of(0, (step + 1) * MOST, MOST);
        take(&now);
        expect_lease(&then);
    }
    assert_in_range(source.elsewhere, 0, 10);    /* where the machine held the thread up */
    close_ahead();
}

/* --- whole runs: rank 0 of one, and two nodes that are threads of this program */

struct node { struct ech_config config; struct ech_error error; ech_status status; pthread_t thread; };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bound = PTHREAD_COND_INITIALIZER;
static char address[64];

static void on_bound(void *user, const char *at) {
    (void)user;
    pthread_mutex_lock(&mutex);
    snprintf(address, sizeof address, "%s", at);
    pthread_cond_broadcast(&bound);
    pthread_mutex_unlock(&mutex);
}

static void *run_node(void *self) {
    struct node *n = self;
    float params[1024] = {0};
    assert_true(model->n_params <= 1024);
    n->status = ech_train(model, data, &n->config, n->config.rank == 0 ? params : NULL, NULL, &n->error);
    return NULL;
}

/* As many steps as the reader's thread needs to be ahead ENOUGH times: on an idle machine it nearly always is, on a busy one such short
 * steps are often over before it runs at all. Where nothing is read ahead, the run comes to its last step. */
static void run_waits_elsewhere(int world, const char *sync, int inner, int deterministic) {
    struct node node[2];
    memset(node, 0, sizeof node);
    open_data(1000000);
    address[0] = 0;
    for (int r = 0; r < world; r++) {
        struct ech_config *c = &node[r].config;
        ech_config_init(c);
        c->measure = 0.02;
        c->rank = r;
        c->world = world;
        c->batch = 8;
        c->steps = 20000;
        c->stop = &source.seen;
        c->eval_every = 0;
        c->lr = 1e-6;
        c->deterministic = deterministic;
        c->join_timeout = c->deadline = 60;
        snprintf(c->coordinator, sizeof c->coordinator, "127.0.0.1:0");
        assert_int_equal(ech_config_set(c, "sync", sync, NULL), ECH_OK);
        assert_int_equal(ech_config_set(c, "separate", "off", NULL), ECH_OK);
        if (inner) c->inner_steps = inner;
        c->on_bound = on_bound;
        if (r == 1) {
            pthread_mutex_lock(&mutex);
            while (!address[0]) pthread_cond_wait(&bound, &mutex);
            pthread_mutex_unlock(&mutex);
            snprintf(c->coordinator, sizeof c->coordinator, "%s", address);
        }
        assert_int_equal(pthread_create(&node[r].thread, NULL, run_node, &node[r]), 0);
    }
    for (int r = 0; r < world; r++) pthread_join(node[r].thread, NULL);
    for (int r = 0; r < world; r++)
        if (node[r].status != ECH_E_ABORTED) fail_msg("%s, rank %d: status %d, %s", sync, r, (int)node[r].status, node[r].error.text);
    print_message("%s, %d node%s%s: of the reads of training samples %d were ahead, %d were not\n", sync, world, world > 1 ? "s" : "",
                  deterministic ? ", deterministic" : "", source.elsewhere, source.here);
    assert_true(source.elsewhere >= ENOUGH);
    close_data();
}

static void test_runs(void **state) {
    (void)state;
    run_waits_elsewhere(1, "bsp", 0, 0);
    run_waits_elsewhere(1, "bsp", 0, 1);
    run_waits_elsewhere(2, "bsp", 0, 0);
    run_waits_elsewhere(2, "gssp", 0, 0);
    run_waits_elsewhere(2, "asp", 0, 0);
    run_waits_elsewhere(2, "local", 4, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_after_the_other), cmocka_unit_test(test_what_nobody_takes_goes),
                                       cmocka_unit_test(test_a_failure_is_of_its_lease), cmocka_unit_test(test_what_is_fast_stays_here),
                                       cmocka_unit_test(test_runs)};
    return cmocka_run_group_tests_name("samples read ahead", tests, NULL, NULL);
}
