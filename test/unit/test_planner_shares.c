/* SPDX-License-Identifier: Apache-2.0
 * The planner's shares: samples in whole blocks, what an owner has to do besides its own samples, and times of machines of one kind. */
#include "echi_planner.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

/* A node that computes `block` samples at once in `seconds`. */
static struct echi_times node_times(uint32_t block, double seconds) {
    static const uint32_t sizes[] = {8, 16, 32, 48, 64, 96, 128};
    struct echi_times t = {.count = sizeof sizes / sizeof sizes[0], .block = (uint16_t)block};
    for (uint32_t i = 0; i < t.count; i++) {
        t.n[i] = sizes[i];
        t.trunk[i] = (sizes[i] + block - 1) / block * seconds;
    }
    return t;
}

static struct echi_plan plan_bsp(const struct echi_times times[ECHI_WORLD_MAX], int world, uint32_t batch) {
    const struct echi_plan_request request = {.sync = ECHI_SYNC_BSP, .world = world, .separate = 0, .batch = batch, .lr = 0.02,
                                              .momentum = 0.9};
    struct echi_plan plan;
    char text[240];
    assert_int_equal(echi_plan_make(&request, times, &plan, text, sizeof text), ECH_OK);
    uint32_t sum = 0;
    for (int r = 0; r < world; r++) sum += plan.n[r];
    assert_int_equal(sum, batch);
    return plan;
}

static void test_blocks(void **state) {
    (void)state;
    struct echi_times times[ECHI_WORLD_MAX] = {node_times(16, 1e-3), node_times(16, 1e-3), node_times(16, 1e-3)};
    assert_float_equal(echi_times_whole(&times[0], 33), 3e-3, 1e-12);
    assert_float_equal(echi_times_whole(&times[0], 48), 3e-3, 1e-12);
    assert_float_equal(echi_times_whole(&times[0], 1), 1e-3, 1e-12);
    struct echi_plan plan = plan_bsp(times, 3, 128);
    for (int r = 0; r < 3; r++) assert_int_equal(plan.n[r] % 16, 0);
    /* Where samples are computed one by one there are no blocks. */
    times[0] = node_times(1, 1e-4);
    assert_float_equal(echi_times_whole(&times[0], 33), 33e-4, 1e-12);
}

static void test_owner_computes_less(void **state) {
    (void)state;
    struct echi_times times[ECHI_WORLD_MAX];
    for (int r = 0; r < 4; r++) times[r] = node_times(1, r == 3 ? 4e-4 : 1e-4);
    const struct echi_plan without = plan_bsp(times, 4, 130);
    assert_int_equal(without.n[3], 10);
    for (int r = 0; r < 3; r++) assert_int_equal(without.n[r], 40);
    /* A message of 0.5 ms: each worker has two a round, the owner two for each worker. */
    for (int r = 0; r < 4; r++) times[r].exchange = r == 3 ? 2e-3 : 5e-4;
    const struct echi_plan with = plan_bsp(times, 4, 130);
    const int owner = with.owner_of[0], other = owner == 0 ? 1 : 0;
    assert_true(with.n[owner] + 18 <= with.n[other]);
    assert_true(with.n[3] < without.n[3]);
}

/* Four hosts that are alike, as far as measuring tells: none does a block more than another for the little that it seems to be faster. */
static void test_noise_moves_no_blocks(void **state) {
    (void)state;
    static const double seconds[] = {0.21, 0.19, 0.2, 0.205};
    struct echi_times times[ECHI_WORLD_MAX];
    for (int r = 0; r < 4; r++) {
        times[r] = node_times(8, seconds[r]);
        times[r].exchange = 0.06;
    }
    const struct echi_plan_request request = {.sync = ECHI_SYNC_BSP, .world = 4, .batch = 64, .lr = 0.02, .momentum = 0.9, .shards = 4};
    struct echi_plan plan;
    char text[240];
    assert_int_equal(echi_plan_make(&request, times, &plan, text, sizeof text), ECH_OK);
    for (int r = 0; r < 4; r++) assert_int_equal(plan.n[r], 16);
}

static void test_times_travel(void **state) {
    (void)state;
    struct echi_times times = node_times(16, 1e-3), back;
    uint8_t body[ECHI_TIMES_BYTES_MAX];
    times.exchange = 1.25e-4;
    times.messages = 6e-5;
    size_t len = echi_times_encode(&times, body, sizeof body);
    assert_true(len > 0 && echi_times_decode(body, len, &back));
    assert_memory_equal(&times, &back, sizeof times);
    assert_false(echi_times_decode(body, len - 1, &back));
    times.exchange = -1;
    len = echi_times_encode(&times, body, sizeof body);
    assert_false(echi_times_decode(body, len, &back));
}

static void assert_near(double is, double wanted) { assert_true(is > wanted * (1 - 1e-9) && is < wanted * (1 + 1e-9)); }

/* Four machines of one kind, each measured with noise of its own at two sizes; one of half the speed, one with other sizes, one unknown. */
static void test_pool(void **state) {
    (void)state;
    static const double speed[] = {1, 1.04, 0.97, 1.01};   /* of its times */
    struct echi_times times[ECHI_WORLD_MAX] = {{0}}, clean = node_times(1, 1e-4), before[7];
    clean.exchange = 4e-3, clean.add = 1e-3, clean.update = 2e-3, clean.messages = 1e-4;
    for (uint32_t i = 0; i < clean.count; i++) clean.head[i] = clean.trunk[i] / 8;
    for (int r = 0; r < 6; r++) times[r] = clean;
    for (int r = 0; r < 4; r++) {
        for (uint32_t i = 0; i < clean.count; i++) {
            const double noise = i == (uint32_t)r ? 1.3 : i == (uint32_t)r + 3 ? 0.8 : 1;
            times[r].trunk[i] *= speed[r] * noise;
            times[r].head[i] *= speed[r] * noise;
        }
        times[r].exchange *= speed[r] * (r == 2 ? 1.5 : 1);
        times[r].add *= speed[r];
        times[r].update *= speed[r];
        times[r].messages *= speed[r] * (r == 1 ? 3 : 1);
    }
    for (uint32_t i = 0; i < clean.count; i++) times[4].trunk[i] *= 2;
    times[5].n[6] = 100;
    for (int r = 0; r < 7; r++) before[r] = times[r];
    echi_times_pool(times, 7);
    for (int r = 0; r < 4; r++) {
        for (uint32_t i = 0; i < clean.count; i++) {
            assert_near(times[r].trunk[i], speed[r] * clean.trunk[i]);
            assert_near(times[r].head[i], speed[r] * clean.head[i]);
        }
        assert_near(times[r].exchange, speed[r] * clean.exchange);
        assert_near(times[r].add, speed[r] * clean.add);
        assert_near(times[r].update, speed[r] * clean.update);
        assert_near(times[r].messages, speed[r] * clean.messages);
    }
    assert_memory_equal(&times[4], &before[4], sizeof before[4]);
    assert_memory_equal(&times[5], &before[5], sizeof before[5]);
    assert_memory_equal(&times[6], &before[6], sizeof before[6]);
    /* What is alike to begin with stays to the last bit. */
    for (int r = 0; r < 3; r++) times[r] = clean;
    echi_times_pool(times, 3);
    for (int r = 0; r < 3; r++) assert_memory_equal(&times[r], &clean, sizeof clean);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks), cmocka_unit_test(test_owner_computes_less),
                                       cmocka_unit_test(test_noise_moves_no_blocks), cmocka_unit_test(test_pool),
                                       cmocka_unit_test(test_times_travel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
