/* SPDX-License-Identifier: Apache-2.0
 * Changes written short: the selection against the reference and against a sort, nothing lost between residual and wire, what the
 * receiver has against what the sender believes, and bytes that no encoder writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "cpu/echi_cpu_kernels.h"
#include "echi_bytes.h"
#include "problem.h"
#include "ref/echi_ref.h"

enum { MOST = 6000, GUARD = 5 };

static struct echi_codec_room *room;
static struct echi_buffer *residual, *gradient, *known, *weights, *coded, *copy;
static float *rest, *g, *knows, *w, *received;
static uint8_t *wire;

static struct echi_buffer *floats(size_t count, float **out) {
    struct echi_buffer *b = NULL;
    assert_int_equal(echi_buffer_create(problem_device, count * sizeof(float), &b, NULL), ECH_OK);
    *out = echi_buffer_host(b);
    return b;
}

static int set_up(void **state) {
    if (problem_open_device(state) != 0) return -1;
    float *bytes;
    residual = floats(MOST + 2 * GUARD, &rest);
    gradient = floats(MOST + 2 * GUARD, &g);
    known = floats(MOST + 2 * GUARD, &knows);
    weights = floats(MOST + 2 * GUARD, &w);
    copy = floats(MOST + 2 * GUARD, &received);
    coded = floats(MOST + 64, &bytes);
    wire = (uint8_t *)bytes;
    return echi_codec_room_create(MOST, &room, NULL) == ECH_OK ? 0 : -1;
}

static int tear_down(void **state) {
    struct echi_buffer *all[] = {residual, gradient, known, weights, coded, copy};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) echi_buffer_destroy(all[i]);
    echi_codec_room_destroy(room);
    return problem_close_device(state);
}

/* Numbers of one kind: plain, a few large ones, small whole ones (ties), mostly zeros, all zeros, all the same, tiny. */
enum { KINDS = 7 };
static float number(struct echi_random *r, int kind) {
    const float v = (float)echi_random_normal(r);
    switch (kind) {
    case 1: return echi_random_below(r, 50) ? v * 1e-6f : v * 1e3f;
    case 2: return (float)((int)echi_random_below(r, 9) - 4);
    case 3: return echi_random_below(r, 40) ? 0 : v;
    case 4: return echi_random_below(r, 2) ? 0.0f : -0.0f;
    case 5: return echi_random_below(r, 2) ? 2.5f : -2.5f;
    case 6: return v * 1e-42f;   /* subnormal */
    default: return v;
    }
}

static struct echi_topk choose(struct echi_random *r, uint32_t turn) {
    static const uint32_t ratios[] = {1, 3906, 8100, 15006, 42875, 150000, 350000, 999999, 1000000};
    return (struct echi_topk){.ratio = ratios[echi_random_below(r, 9)], .sample = 8000 + echi_random_below(r, 40000), .seed = 7,
                              .turn = turn, .part = 2};
}

static int larger_first(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* ---- selecting ---- */

static void the_selection_is_the_reference_s(void **state) {
    (void)state;
    static uint32_t fast[MOST], slow[MOST];
    static float scratch[MOST];
    for (uint32_t seed = 1; seed <= 3000; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 1);
        const uint32_t n = echi_random_below(&r, echi_random_below(&r, 3) ? 400 : MOST) + 1;
        const struct echi_topk how = choose(&r, seed);
        for (uint32_t i = 0; i < n; i++) g[i] = number(&r, (int)(seed % KINDS));
        const size_t count = echi_topk_select(problem_device, g, n, &how, fast);
        assert_int_equal(count, echi_ref_topk(n, g, &how, scratch, slow));
        assert_memory_equal(fast, slow, count * sizeof *fast);
    }
    assert_int_equal(echi_topk_select(problem_device, g, 0, &(struct echi_topk){.ratio = 1, .sample = 1}, fast), 0);
}

/* Against a sort: no more than asked for, not much fewer unless they are zeros; of a short range, and whenever there are far too many,
 * exactly the largest; and nearly all that the largest add up to. */
static void the_largest_are_chosen(void **state) {
    (void)state;
    static uint32_t index[MOST];
    static float sorted[MOST];
    int shorts = 0, longs = 0;
    for (uint32_t seed = 1; seed <= 2000; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 2);
        const uint32_t n = echi_random_below(&r, MOST) + 1;
        const struct echi_topk how = choose(&r, seed);
        size_t nonzero = 0;
        for (uint32_t i = 0; i < n; i++) {
            g[i] = number(&r, (int)(seed % KINDS));
            sorted[i] = fabsf(g[i]);
            nonzero += g[i] != 0;
        }
        qsort(sorted, n, sizeof *sorted, larger_first);
        const size_t k = (size_t)ceil((double)n * how.ratio / 1e6), count = echi_topk_select(problem_device, g, n, &how, index);
        double chosen = 0, best = 0;
        for (size_t i = 0; i < count; i++) {
            assert_true(index[i] < n && (i == 0 || index[i] > index[i - 1]) && g[index[i]] != 0);
            chosen += fabsf(g[index[i]]);
        }
        for (size_t i = 0; i < k; i++) best += sorted[i];
        assert_true(count <= k);
        if ((uint64_t)n * how.ratio <= 2000000) {   /* all are looked at */
            assert_int_equal(count, nonzero < k ? nonzero : k);
            assert_true(fabs(chosen - best) <= 1e-5 * best);
            shorts++;
        } else {
            assert_true(10 * count >= 8 * (nonzero < k ? nonzero : k) || seed % KINDS == 1);
            assert_true(chosen >= 0.55 * best);
            longs++;
        }
    }
    assert_true(shorts > 200 && longs > 200);
}

/* The sample is a function of its key alone; another message looks elsewhere. */
static void the_key_decides(void **state) {
    (void)state;
    static uint32_t one[MOST], two[MOST];
    struct echi_random r;
    struct echi_topk how = {.ratio = 50000, .sample = 10000, .seed = 3, .turn = 5, .part = 1};
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 3);
    for (int i = 0; i < MOST; i++) g[i] = number(&r, 0);
    const size_t count = echi_topk_select(problem_device, g, MOST, &how, one);
    assert_int_equal(echi_topk_select(problem_device, g, MOST, &how, two), count);
    assert_memory_equal(one, two, count * sizeof *one);
    int other[3] = {0};   /* where the sample says far too many, the choice is exact and the same */
    for (uint32_t i = 0; i < 60; i++) {
        struct echi_topk next = how;
        if (i % 3 == 0) next.seed += 1 + i;
        if (i % 3 == 1) next.turn += 1 + i;
        if (i % 3 == 2) next.part += 1 + i;
        const size_t n = echi_topk_select(problem_device, g, MOST, &next, two);
        other[i % 3] += n != count || memcmp(one, two, n * sizeof *one) != 0;
    }
    assert_true(other[0] > 5 && other[1] > 5 && other[2] > 5);
}

static void every_level_counts_alike(void **state) {
    (void)state;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 4);
    for (int trial = 0; trial < 500; trial++) {
        const size_t at = echi_random_below(&r, 9), n = echi_random_below(&r, trial % 2 ? 70 : 3000);
        for (size_t i = 0; i < n; i++) g[at + i] = number(&r, trial % KINDS);
        const float least = trial % 5 == 0 ? FLT_TRUE_MIN : n && g[at] != 0 ? fabsf(g[at]) : 1;
        size_t found = 0;
        for (size_t i = 0; i < n; i++) found += fabsf(g[at + i]) >= least;
        for (int level = ECHI_CPU_BASE; level <= ECHI_CPU_AVX512; level++) {
            const struct echi_cpu_kernels *k = echi_cpu_kernels_for((enum echi_cpu_level)level);
            if (k) assert_int_equal(k->count_from(g + at, n, least), found);
        }
    }
}

/* ---- pushes ---- */

/* Whole numbers as floats, whose sums are exact: residual + all that was sent is all that was computed, with ==, after every step. */
static void nothing_is_lost(void **state) {
    (void)state;
    static double given[MOST], sent[MOST];
    int forms[3] = {0};
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 5);
        const size_t at = echi_random_below(&r, GUARD), n = 1 + echi_random_below(&r, seed % 2 ? 65 : MOST);
        memset(given, 0, sizeof given);
        memset(sent, 0, sizeof sent);
        for (size_t i = 0; i < MOST + 2 * GUARD; i++) rest[i] = 1e30f;   /* of an owner before: begins anew */
        for (uint32_t step = 0; step < 25; step++) {
            const struct echi_topk how = choose(&r, step);
            for (size_t i = 0; i < n; i++) {
                g[at + i] = echi_random_below(&r, 3) ? (float)((int)echi_random_below(&r, 2001) - 1000) : 0;
                given[i] += (double)g[at + i];
            }
            memset(wire, 0xa5, (MOST + 64) * sizeof(float));
            assert_int_equal(echi_code_push(problem_device, residual, gradient, at, n, step == 0, &how, room, coded, 8, NULL), ECH_OK);
            const size_t len = echi_coded_length(wire + 8, echi_coded_most(n), n);
            assert_true(len >= 8 && len <= echi_coded_most(n));
            for (size_t i = 8 + len; i < 8 + len + 16; i++) assert_int_equal(wire[i], 0xa5);
            forms[echi_load32(wire + 8)]++;
            for (size_t i = 0; i < n; i++) received[at + i] = 7;
            assert_int_equal(echi_decode(problem_device, copy, at, n, ECHI_DECODE_ZERO, coded, 8, NULL), ECH_OK);
            for (size_t i = 0; i < n; i++) {
                sent[i] += (double)received[at + i];
                assert_true((double)rest[at + i] + sent[i] == given[i]);
            }
            for (size_t i = 0; i < at; i++) assert_true(rest[i] == 1e30f);
            assert_true(rest[at + n] == 1e30f);
        }
    }
    assert_true(forms[0] > 50 && forms[1] > 50 && forms[2] > 50);
}

/* A push of all leaves nothing behind, whatever lay there; one of zeros is as short as a message can be. */
static void all_and_nothing(void **state) {
    (void)state;
    const struct echi_topk all = {.ratio = 1000000, .sample = 10000}, few = {.ratio = 10000, .sample = 10000};
    for (size_t i = 0; i < 1001; i++) {
        rest[i] = (float)i;
        g[i] = 1;
    }
    assert_int_equal(echi_code_push(problem_device, residual, gradient, 0, 1001, false, &all, room, coded, 0, NULL), ECH_OK);
    assert_int_equal(echi_coded_length(wire, echi_coded_most(1001), 1001), 8 + 4 * 1001);
    assert_int_equal(echi_decode(problem_device, copy, 0, 1001, ECHI_DECODE_SET, coded, 0, NULL), ECH_OK);
    for (size_t i = 0; i < 1001; i++) assert_true(rest[i] == 0 && received[i] == (float)(i + 1));
    memset(g, 0, 1001 * sizeof *g);
    assert_int_equal(echi_code_push(problem_device, residual, gradient, 0, 1001, false, &few, room, coded, 0, NULL), ECH_OK);
    assert_int_equal(echi_coded_length(wire, echi_coded_most(1001), 1001), 8);
    assert_int_equal(echi_decode(problem_device, copy, 0, 1001, ECHI_DECODE_ADD, coded, 0, NULL), ECH_OK);
    assert_true(received[1000] == 1001);
    assert_int_equal(echi_code_push(problem_device, residual, gradient, 0, 0, false, &few, room, coded, 0, NULL), ECH_OK);
    assert_int_equal(echi_decode(problem_device, copy, 0, 0, ECHI_DECODE_ZERO, coded, 0, NULL), ECH_OK);
}

static void what_is_no_number_is_refused(void **state) {
    (void)state;
    static const struct echi_topk how = {.ratio = 10000, .sample = 10000}, all = {.ratio = 1000000, .sample = 10000};
    const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    for (size_t i = 0; i < 4; i++) {
        struct ech_error err = {0};
        for (size_t k = 0; k < 777; k++) g[k] = rest[k] = w[k] = 1, knows[k] = 0;
        g[776] = bad[i];
        rest[776] = bad[i];   /* the largest number twice is none */
        assert_int_equal(echi_code_push(problem_device, residual, gradient, 0, 777, false, &how, room, coded, 0, &err), ECH_E_DIVERGED);
        assert_non_null(strstr(err.text, "--lr"));
        w[0] = bad[i];
        knows[0] = -bad[i];
        assert_int_equal(echi_code_state(problem_device, known, weights, 0, 777, &how, room, coded, 0, &err), ECH_E_DIVERGED);
        assert_int_equal(echi_code_state(problem_device, known, weights, 0, 777, &all, room, coded, 0, &err), ECH_OK);
        assert_memory_equal(knows, w, 777 * sizeof *w);
    }
}

/* ---- states ---- */

/* After every message the receiver has, bit for bit, what its sender believes; after a complete one, what there is. */
static void the_receiver_has_what_is_known(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 6);
        const size_t at = echi_random_below(&r, GUARD), n = 1 + echi_random_below(&r, seed % 2 ? 65 : MOST);
        for (size_t i = 0; i < n; i++) w[at + i] = number(&r, 0), knows[at + i] = 5, received[at + i] = 9;
        for (uint32_t turn = 1; turn <= 40; turn++) {
            struct echi_topk how = choose(&r, turn);
            if (turn % 32 == 1) how.ratio = 1000000;
            for (size_t i = 0; i < n; i++)
                if (echi_random_below(&r, 2)) w[at + i] += 0.1f * number(&r, (int)(seed % 2));
            double before = 0, after = 0;
            for (size_t i = 0; i < n; i++) before += fabs((double)w[at + i] - knows[at + i]);
            assert_int_equal(echi_code_state(problem_device, known, weights, at, n, &how, room, coded, 4, NULL), ECH_OK);
            assert_int_equal(echi_decode(problem_device, copy, at, n, ECHI_DECODE_SET, coded, 4, NULL), ECH_OK);
            assert_memory_equal(received + at, knows + at, n * sizeof *knows);
            if (how.ratio == 1000000) assert_memory_equal(received + at, w + at, n * sizeof *w);
            for (size_t i = 0; i < n; i++) after += fabs((double)w[at + i] - knows[at + i]);
            assert_true(after < before || before == 0);
        }
    }
}

/* ---- what a stranger writes ---- */

static void words(uint32_t form, uint32_t count, const uint32_t *place, int places) {
    echi_store32(wire, form);
    echi_store32(wire + 4, count);
    for (uint32_t i = 0; i < count && i < 200; i++) {
        const float value = (float)(i + 1);
        memcpy(wire + 8 + 4 * i, &value, 4);
    }
    for (int i = 0; i < places; i++) echi_store32(wire + 8 + 4 * (size_t)count + 4 * (size_t)i, place[i]);
}

static void places_that_make_no_sense(void **state) {
    (void)state;
    static const struct { uint32_t form, count, place[4]; int places; bool good; } table[] = {
        {1, 3, {0, 5, 99}, 3, true},   {1, 3, {0, 5, 100}, 3, false},       {1, 3, {5, 5, 6}, 3, false}, {1, 3, {6, 5, 7}, 3, false},
        {1, 2, {0, 4294967295u}, 2, false}, {1, 0, {0}, 0, true},
        {2, 3, {7, 0, 0, 0}, 4, true}, {2, 2, {7, 0, 0, 0}, 4, false},      {2, 4, {7, 0, 0, 0}, 4, false},
        {2, 1, {0, 0, 0, 8}, 4, true}, {2, 1, {0, 0, 0, 16}, 4, false},     /* the bit of place 100 */
        {3, 1, {0}, 1, false},         {4294967295u, 1, {0}, 1, false},     {0, 99, {0}, 0, false},      {0, 100, {0}, 0, true},
        {1, 51, {0}, 0, false},        /* longer than all values would be */
        {1, 101, {0}, 0, false},       {2, 4294967295u, {0}, 0, false},     {1, 4294967295u, {0}, 0, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ech_error err = {0};
        memset(wire, 0, 1000);
        words(table[i].form, table[i].count < 200 ? table[i].count : 0, table[i].place, table[i].places);
        echi_store32(wire + 4, table[i].count);
        for (int k = 0; k < 101; k++) received[k] = -1;
        const ech_status status = echi_decode(problem_device, copy, 0, 100, (enum echi_decode)(i % 3), coded, 0, &err);
        if ((status == ECH_OK) != table[i].good) fail_msg("row %zu: status %d", i, status);
        for (int k = 0; k < 101 && !table[i].good; k++) assert_true(received[k] == -1);
        assert_true(received[100] == -1);
        if (!table[i].good) assert_int_equal(status, ECH_E_FORMAT);
    }
    assert_int_equal(echi_coded_length(wire, 7, 100), 0);
}

static void arguments_that_do_not_fit(void **state) {
    (void)state;
    struct echi_topk how = {.ratio = 10000, .sample = 10000};
    struct echi_codec_room *small = NULL, *never = NULL;
    assert_int_equal(echi_codec_room_create(0, &small, NULL), ECH_OK);
    assert_int_equal(echi_code_push(problem_device, residual, gradient, 0, 1, true, &how, small, coded, 0, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_code_push(problem_device, residual, gradient, 0, 1, true, &how, NULL, coded, 0, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_code_push(problem_device, residual, NULL, 0, 1, true, &how, room, coded, 0, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_code_push(problem_device, residual, gradient, MOST, GUARD * 3, true, &how, room, coded, 0, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_code_state(problem_device, known, weights, 0, MOST, &how, room, coded, 300, NULL), ECH_E_ARGUMENT);
    assert_int_equal(echi_decode(problem_device, copy, 0, MOST, ECHI_DECODE_SET, coded, 300, NULL), ECH_E_ARGUMENT);
    how.ratio = 0;
    assert_int_equal(echi_code_push(problem_device, residual, gradient, 0, 1, true, &how, room, coded, 0, NULL), ECH_E_ARGUMENT);
    how.ratio = 1000001;
    assert_int_equal(echi_code_state(problem_device, known, weights, 0, 1, &how, room, coded, 0, NULL), ECH_E_ARGUMENT);
    how.ratio = 1, how.sample = 0;
    assert_int_equal(echi_code_state(problem_device, known, weights, 0, 1, &how, room, coded, 0, NULL), ECH_E_ARGUMENT);
    if (sizeof(size_t) > 4) assert_int_equal(echi_codec_room_create((size_t)1 << 33, &never, NULL), ECH_E_UNSUPPORTED);
    echi_codec_room_destroy(small);
    echi_codec_room_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_selection_is_the_reference_s), cmocka_unit_test(the_largest_are_chosen),
        cmocka_unit_test(the_key_decides),                  cmocka_unit_test(every_level_counts_alike),
        cmocka_unit_test(nothing_is_lost),                  cmocka_unit_test(all_and_nothing),
        cmocka_unit_test(what_is_no_number_is_refused),     cmocka_unit_test(the_receiver_has_what_is_known),
        cmocka_unit_test(places_that_make_no_sense),        cmocka_unit_test(arguments_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
