/* SPDX-License-Identifier: Apache-2.0
 * The generated digits: the same everywhere, all classes, different from each other, and told apart by something simple. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_data.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>

enum { PIXELS = 784, TRAIN = 20000, TEST = 4000 };
static ech_data *one;   /* of seed 1 */

static int open_one(void **state) {
    (void)state;
    int64_t start = echi_thread_cpu();
    if (ech_data_open("glyphs", 1, &one, NULL) != ECH_OK) return -1;
    print_message("made in %.2f s\n", (double)(echi_thread_cpu() - start) * 1e-9);
    return 0;
}
static int close_one(void **state) {
    (void)state;
    ech_data_destroy(one);
    return 0;
}

static void the_bytes_are_fixed_by_the_seed(void **state) {
    (void)state;
    /* A change of this hash is a change of what a seed means: results before and after cannot be compared. */
    assert_string_equal(one->hash, "9e56d9ebfcd736dec559500eeb157b581a0928bd08a580357fc18621f247a2ae");
    ech_data *again, *other;
    assert_int_equal(ech_data_open("glyphs", 1, &again, NULL), ECH_OK);
    assert_string_equal(again->hash, one->hash);
    ech_data_destroy(again);
    assert_int_equal(ech_data_open("glyphs", 2, &other, NULL), ECH_OK);
    assert_string_not_equal(other->hash, one->hash);
    ech_data_destroy(other);
}

static void shape_counts_and_classes(void **state) {
    (void)state;
    int c, h, w, classes;
    ech_data_shape(one, &c, &h, &w, &classes);
    assert_int_equal(c, 1);
    assert_int_equal(h, 28);
    assert_int_equal(w, 28);
    assert_int_equal(classes, 10);
    assert_string_equal(one->name, "glyphs");
    for (int t = 0; t < 2; t++) {
        uint32_t n = ech_data_samples(one, t);
        assert_int_equal(n, t ? TEST : TRAIN);
        int count[10] = {0};
        for (uint32_t i = 0; i < n; i++) {
            float row[PIXELS];
            uint16_t label;
            assert_int_equal(ech_data_get(one, t, &i, 1, row, &label, NULL), ECH_OK);
            assert_true(label < 10);
            count[label]++;
            int inked = 0;   /* every digit is visible: some pixels are well above any noise */
            for (int k = 0; k < PIXELS; k++) inked += row[k] > (100.0f / 255.0f - 0.1307f) / 0.3081f;
            if (inked < 12 || inked > 350) fail_msg("sample %u of set %d has %d inked pixels", (unsigned)i, t, inked);
        }
        for (int k = 0; k < 10; k++) assert_int_equal(count[k], n / 10);
    }
}

/* The nearest of ten class means is a classifier that knows nothing of strokes: it must do far better than chance (the
 * digits are digits) and far worse than a network should (they are not trivial). */
static void the_mean_digit_is_no_match(void **state) {
    (void)state;
    static double mean[10][PIXELS];
    float row[PIXELS];
    uint16_t label;
    for (uint32_t i = 0; i < TRAIN; i++) {
        assert_int_equal(ech_data_get(one, 0, &i, 1, row, &label, NULL), ECH_OK);
        for (int k = 0; k < PIXELS; k++) mean[label][k] += row[k] / (TRAIN / 10);
    }
    int right = 0;
    for (uint32_t i = 0; i < TEST; i++) {
        assert_int_equal(ech_data_get(one, 1, &i, 1, row, &label, NULL), ECH_OK);
        int best = 0;
        double nearest = 0;
        for (int c = 0; c < 10; c++) {
            double far = 0;
            for (int k = 0; k < PIXELS; k++) far += (row[k] - mean[c][k]) * (row[k] - mean[c][k]);
            if (c == 0 || far < nearest) {
                nearest = far;
                best = c;
            }
        }
        right += best == label;
    }
    print_message("nearest mean: %d of %d\n", right, TEST);
    assert_in_range(right, TEST * 4 / 10, TEST * 9 / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_fixed_by_the_seed),
        cmocka_unit_test(shape_counts_and_classes),
        cmocka_unit_test(the_mean_digit_is_no_match),
    };
    return cmocka_run_group_tests(tests, open_one, close_one);
}
