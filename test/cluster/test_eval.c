/* SPDX-License-Identifier: Apache-2.0
 * Evaluations that take long: each lasts for more than the ten deadlines without progress after which a node counts as stuck, since
 * reading test samples is slow. They are progress all the same, are reported as such, and a stop ends them. */
#include "echelon.h"
#include "echi_os.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = 6, CLASSES = 4, SAMPLES = 640, READS = 40, ROWS = 128 /* of one read, see exec_slots.c */, TESTS = READS * ROWS };
#define READ_NS INT64_C(60000000)   /* of one read of test samples: 2.4 s together */
#define DEADLINE 0.2                /* ten of them: 2 s */

struct watched {
    volatile int stop;
    uint32_t stop_at;          /* test samples; 0: never */
    uint32_t evaluated, calls; /* the last that was reported; how often */
    int evals;
    int64_t stopped;           /* when it was asked to stop */
};

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    for (int i = 0; i < n; i++) labels[i] = (uint16_t)(index[i] % CLASSES);
    for (int i = 0; i < n * SIDE * SIDE; i++) rows[i] = (float)(i % 7) * 0.1f;
    if (test && n > 1) echi_sleep_until(echi_now() + READ_NS);
    return 0;
}

static void on_progress(void *user, const struct ech_progress *p) {
    struct watched *w = user;
    w->evals += p->new_accuracy;
    if (p->to_evaluate == 0) return;
    assert_int_equal(p->to_evaluate, TESTS);
    assert_in_range(p->evaluated, w->evaluated, TESTS);
    w->evaluated = p->evaluated;
    w->calls++;
    if (w->stop_at == 0 || w->stop || p->evaluated < w->stop_at) return;
    w->stopped = echi_now();
    w->stop = 1;
}

static ech_status train(struct watched *w, uint32_t eval_every, struct ech_report *report, struct ech_error *err) {
    static const char text[] = "input 1 6 6\nfc out 4\n";
    const struct ech_data_callback callback = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .train_samples = SAMPLES,
                                               .test_samples = TESTS, .read = read_samples, .name = "slow to evaluate"};
    struct ech_config config;
    ech_model *model;
    ech_data *data;
    assert_int_equal(ech_model_parse(text, sizeof text - 1, "tiny", &model, err), ECH_OK);
    assert_int_equal(ech_data_from_callback(&callback, &data, err), ECH_OK);
    ech_config_init(&config);
    config.deadline = DEADLINE;
    config.measure = 0.2;
    config.epochs = 2;
    config.eval_every = eval_every;
    config.stop = &w->stop;
    config.on_progress = on_progress;
    config.user = w;
    const ech_status status = ech_train(model, data, &config, NULL, report, err);
    ech_data_destroy(data);
    ech_model_destroy(model);
    return status;
}

static void a_long_evaluation_is_not_stuck(void **state) {
    struct watched w = {0};
    struct ech_report report;
    struct ech_error err;
    (void)state;
    if (train(&w, 0, &report, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_int_equal(report.samples, 2 * SAMPLES);
    assert_true(report.test_accuracy >= 0);
    assert_int_equal(w.evals, 1);
    assert_in_range(w.calls, 1, READS);        /* one a second */
    assert_in_range(w.evaluated, ROWS, TESTS);
}

/* What was to be trained is trained. */
static void a_stop_ends_the_last_evaluation(void **state) {
    struct watched w = {.stop_at = 1};
    struct ech_report report;
    struct ech_error err;
    (void)state;
    if (train(&w, 0, &report, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_true(w.stopped > 0 && echi_now() - w.stopped < READS / 2 * READ_NS);
    assert_int_equal(report.samples, 2 * SAMPLES);
    assert_true(report.test_accuracy < 0);
    assert_int_equal(w.evals, 0);
}

/* And that after the drain is not begun. */
static void a_stop_ends_one_between_rounds(void **state) {
    struct watched w = {.stop_at = 1};
    struct ech_report report;
    struct ech_error err;
    (void)state;
    assert_int_equal(train(&w, SAMPLES, &report, &err), ECH_E_ABORTED);
    assert_true(w.stopped > 0 && echi_now() - w.stopped < READS / 2 * READ_NS);
    assert_in_range(report.samples, SAMPLES, 2 * SAMPLES - 1);
    assert_true(report.test_accuracy < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_long_evaluation_is_not_stuck), cmocka_unit_test(a_stop_ends_the_last_evaluation),
                                       cmocka_unit_test(a_stop_ends_one_between_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
