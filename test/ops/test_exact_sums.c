/* SPDX-License-Identifier: Apache-2.0
 * Sums in whole numbers: the same whatever the order, as near to the true sum as a float can be, refused when too large. And
 * the fixed kernels: what a sample gives does not depend on those beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "problem.h"

#define COUNT 1003
#define TERMS 64

static struct echi_device *device;

static struct echi_buffer *buffer(size_t bytes) {
    struct echi_buffer *b = NULL;
    assert_int_equal(echi_buffer_create(device, bytes, &b, NULL), ECH_OK);
    return b;
}

/* Terms of very different sizes, so that a float sum depends on the order. */
static float term(uint32_t t, uint32_t i) {
    struct echi_random random;
    echi_random_init(&random, 7, ECHI_STREAM_TEST, t * COUNT + i);
    return (float)(echi_random_normal(&random) * exp2(-(double)echi_random_below(&random, 30)));
}

static void fill(struct echi_buffer *g, uint32_t t) {
    float *to = echi_buffer_host(g);
    for (uint32_t i = 0; i < COUNT; i++) to[i] = term(t, i);
}

static void test_any_order_gives_the_same_bits(void **state) {
    (void)state;
    struct echi_buffer *g = buffer(COUNT * 4), *up = buffer(COUNT * 8), *down = buffer(COUNT * 8);
    struct echi_buffer *part = buffer(COUNT * 8), *out = buffer(COUNT * 4);
    for (uint32_t t = 0; t < TERMS; t++) {
        fill(g, t);
        assert_int_equal(echi_exact_take(device, up, g, 0, COUNT, t > 0, NULL), ECH_OK);
        fill(g, TERMS - 1 - t);   /* from the end, in pairs that are added up first */
        assert_int_equal(echi_exact_take(device, part, g, 0, COUNT, t % 2 == 1, NULL), ECH_OK);
        const struct echi_buffer *const term = part;
        if (t % 2) assert_int_equal(echi_exact_add(device, down, down, &term, 1, 0, COUNT, NULL), ECH_OK);
    }
    assert_memory_equal(echi_buffer_host(up), echi_buffer_host(down), COUNT * 8);
    assert_int_equal(echi_exact_round(device, out, up, 0, COUNT, NULL), ECH_OK);
    const float *sum = echi_buffer_host(out);
    int other_in_float = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        double exact = 0;
        float in_float = 0;
        for (uint32_t t = 0; t < TERMS; t++) exact += (double)term(t, i), in_float += term(t, i);
        assert_true(fabs((double)sum[i] - exact) <= fabs(exact) * 0x1p-24 + TERMS * 0x1p-45);
        other_in_float += in_float != sum[i];
    }
    assert_true(other_in_float > COUNT / 4);   /* these terms are a trial */
    struct echi_buffer *const all[] = {g, up, down, part, out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) echi_buffer_destroy(all[i]);
}

static void test_each_number_is_rounded_to_the_nearest(void **state) {
    (void)state;
    static const struct { float value; int64_t units; } cases[] = {
        {0, 0}, {-0.0f, 0}, {1, INT64_C(1) << 44}, {-1, -(INT64_C(1) << 44)}, {0x1p-44f, 1}, {0x1.8p-44f, 2}, {-0x1.8p-44f, -2},
        {0x1.4p-44f, 1}, {0x1p-45f, 1}, {0x1.fffffep-46f, 0}, {-0x1.fffffep-46f, 0}, {0x1p-149f, 0},
        {0x1.fffffep17f, INT64_C(0xffffff) << 38},
    };
    struct echi_buffer *g = buffer(4), *sum = buffer(8), *out = buffer(4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        *(float *)echi_buffer_host(g) = cases[i].value;
        assert_int_equal(echi_exact_take(device, sum, g, 0, 1, false, NULL), ECH_OK);
        assert_int_equal(*(int64_t *)echi_buffer_host(sum), cases[i].units);
    }
    /* Half way between two floats, and a bit beyond: one rounding, to even and up. */
    *(int64_t *)echi_buffer_host(sum) = (INT64_C(1) << 44) + (INT64_C(1) << 20);
    assert_int_equal(echi_exact_round(device, out, sum, 0, 1, NULL), ECH_OK);
    assert_true(*(float *)echi_buffer_host(out) == 1.0f);
    *(int64_t *)echi_buffer_host(sum) = (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1;   /* in double first, the 1 would be lost */
    assert_int_equal(echi_exact_round(device, out, sum, 0, 1, NULL), ECH_OK);
    assert_true(*(float *)echi_buffer_host(out) == 0x1.000002p16f);
    echi_buffer_destroy(g), echi_buffer_destroy(sum), echi_buffer_destroy(out);
}

static void test_what_is_too_large_is_refused(void **state) {
    (void)state;
    static const float bad[] = {0x1p18f, -0x1p18f, INFINITY, -INFINITY, NAN};
    struct echi_buffer *g = buffer(12), *sum = buffer(24), *terms = buffer(24);
    float *value = echi_buffer_host(g);
    struct ech_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value[1] = bad[i];
        assert_int_equal(echi_exact_take(device, sum, g, 0, 3, false, &err), ECH_E_DIVERGED);
        assert_non_null(strstr(err.text, "--lr"));
    }
    value[1] = 0x1.fffffep17f;
    assert_int_equal(echi_exact_take(device, sum, g, 0, 3, false, NULL), ECH_OK);
    assert_int_equal(echi_exact_take(device, sum, g, 0, 3, true, NULL), ECH_OK);
    assert_int_equal(echi_exact_take(device, sum, g, 0, 3, true, NULL), ECH_E_DIVERGED);
    ((int64_t *)echi_buffer_host(sum))[2] = ((int64_t *)echi_buffer_host(terms))[2] = INT64_MIN / 2 - 1;
    assert_int_equal(echi_exact_add(device, sum, sum, (const struct echi_buffer *[]){terms}, 1, 0, 3, NULL), ECH_E_DIVERGED);
    /* And places that are not there. */
    assert_int_equal(echi_exact_take(device, sum, g, 1, 3, false, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_exact_add(device, sum, sum, (const struct echi_buffer *[]){g}, 1, 0, 3, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_exact_round(device, g, sum, 4, 0, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_exact_round(device, NULL, sum, 0, 1, NULL), ECH_E_ARGUMENT);
    echi_buffer_destroy(g), echi_buffer_destroy(sum), echi_buffer_destroy(terms);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order_gives_the_same_bits),
        cmocka_unit_test(test_each_number_is_rounded_to_the_nearest),
        cmocka_unit_test(test_what_is_too_large_is_refused),
    };
    if (echi_device_open("cpu", 1, &device, NULL) != ECH_OK) return 1;
    const int failed = cmocka_run_group_tests_name("exact sums", tests, NULL, NULL);
    echi_device_close(device);
    return failed;
}
