/* SPDX-License-Identifier: Apache-2.0
 * What on_progress is told: its rate of images, whatever the time between two calls. */
#include "echi_run.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#define MS INT64_C(1000000)
enum { ROUND = 64 };

static struct echi_job job;
static struct echi_coordinator *c;
static struct echi_shown shown;

static int begin(void **state) {
    (void)state;
    job = (struct echi_job){.train_samples = 6400};
    c = calloc(1, sizeof *c);
    if (c == NULL) return -1;
    c->applied = 640;
    echi_progress_begin(&(struct echi_standing){.samples = 640, .clock = 5000 * MS}, &shown);
    return 0;
}

static int end(void **state) {
    (void)state;
    free(c);
    return 0;
}

/* So many samples and ms of training after the beginning. */
static double rate_at(unsigned samples, int ms) {
    c->applied = 640 + samples;
    echi_progress_make(c, &job, ROUND, (5000 + ms) * MS, false, 0, &shown);
    assert_int_equal(shown.progress.samples, 640 + samples);
    return shown.progress.images_per_second;
}

/* An evaluation every 20 ms, of 2,000 images/s, the first included: then of 1,000. */
static void test_calls_close_together(void **state) {
    (void)state;
    for (int i = 1; i <= 50; i++) assert_float_equal(rate_at(40 * (unsigned)i, 20 * i), 2000, 1e-6);
    for (int i = 1; i <= 50; i++) (void)rate_at(2000 + 20 * (unsigned)i, 1000 + 20 * i);
    assert_float_equal(shown.progress.images_per_second, 1000, 1e-6);
}

static void test_calls_far_apart(void **state) {
    (void)state;
    assert_float_equal(rate_at(500, 1000), 500, 1e-6);
    assert_float_equal(rate_at(1500, 2000), 1000, 1e-6);
    assert_float_equal(rate_at(1500, 3000), 0, 0);          /* nothing was applied */
}

/* Rounds are taken back, and no time has passed: the last rate stands. */
static void test_what_has_no_rate(void **state) {
    (void)state;
    assert_float_equal(rate_at(1000, 1000), 1000, 1e-6);
    assert_float_equal(rate_at(1000, 1000), 1000, 1e-6);
    assert_float_equal(rate_at(900, 2000), 1000, 1e-6);
    assert_float_equal(rate_at(2000, 3000), 500, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_calls_close_together, begin, end),
        cmocka_unit_test_setup_teardown(test_calls_far_apart, begin, end),
        cmocka_unit_test_setup_teardown(test_what_has_no_rate, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
