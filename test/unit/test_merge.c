/* SPDX-License-Identifier: Apache-2.0
 * Optimal merging against all ways to cut a step's gradients, against MG-WFBP's greedy rule, buckets of a size and no merging at all. */
#include "echi_random.h"
#include "merge_rules.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { PIECES = 11 };
static struct echi_merge_work work;
static struct echi_merge_piece piece[ECHI_PARTS_MAX];
static bool begins[ECHI_PARTS_MAX];

static double through(int count, const struct echi_merge_costs *costs, const bool *cut) {
    return merge_through(piece, count, costs, cut);
}

static double best_of_all(int count, const struct echi_merge_costs *costs) {
    double best = INFINITY;
    for (unsigned mask = 0; mask < 1u << (count - 1); mask++) {
        bool cut[PIECES] = {true};
        for (int i = 1; i < count; i++) cut[i] = mask >> (i - 1) & 1;
        best = fmin(best, through(count, costs, cut));
    }
    return best;
}

static double part(struct echi_random *r, double most) { return most * echi_random_below(r, 1000) / 1000; }

/* Of half of the cases messages delay what computes, of half of those by their parameters, too. */
static int any_case(struct echi_random *r, int most, struct echi_merge_costs *out) {
    const int count = 1 + (int)echi_random_below(r, (uint32_t)most), kind = (int)echi_random_below(r, 3);
    double ready = part(r, 3);
    for (int i = count - 1; i >= 0; i--) {
        ready += 1e-3 + part(r, kind == 0 ? 1 : kind == 1 ? 4 : 0.1);
        piece[i] = (struct echi_merge_piece){ready, 1e-3 + (echi_random_below(r, 4) ? part(r, 1) : part(r, 10))};
    }
    for (int s = 0; s < ECHI_MERGE_STAGES; s++)
        out->stage[s] = (struct echi_merge_stage){part(r, echi_random_below(r, 2) ? 3 : 0.3), part(r, echi_random_below(r, 2) ? 2 : 0.2)};
    if (echi_random_below(r, 2)) out->stage[1] = (struct echi_merge_stage){0, 0};
    out->compute = (struct echi_merge_stage){0, 0};
    if (echi_random_below(r, 2)) out->compute.message = part(r, echi_random_below(r, 2) ? 2 : 0.2);
    if (echi_random_below(r, 4) == 0) out->compute.param = part(r, 0.5);
    return count;
}

static void no_cut_is_better(void **state) {
    (void)state;
    int most = 0, longer = 0;
    double worst = 1;
    for (uint32_t seed = 1; seed <= 20000; seed++) {
        struct echi_random r;
        struct echi_merge_costs costs;
        bool cut[ECHI_PARTS_MAX];
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 84);
        const int count = any_case(&r, PIECES, &costs);
        const double found = echi_merge(piece, count, &costs, &work, begins), best = best_of_all(count, &costs);
        if (fabs(found - best) > 1e-12 * best) fail_msg("seed %u: %d pieces take %.15g, the best way %.15g", seed, count, found, best);
        assert_true(begins[0] && fabs(through(count, &costs, begins) - found) <= 1e-12 * found);
        for (int i = 0; i < count; i++) most = work.ways[i] > most ? work.ways[i] : most;
        merge_greedy(piece, count, costs.stage, cut);
        longer += through(count, &costs, cut) > found * (1 + 1e-9);
        worst = fmax(worst, through(count, &costs, cut) / found);
        assert_true(through(count, &costs, cut) >= found * (1 - 1e-12));
        merge_buckets(piece, count, 2, 2, cut);
        assert_true(through(count, &costs, cut) >= found * (1 - 1e-12));
    }
    print_message("ways kept: %d at most; the greedy rule takes longer in %.1f %% of the cases, %.2f times as long in one\n", most,
                  longer / 200.0, worst);
    assert_true(most > 1 && most < ECHI_MERGE_WAYS && longer > 0);
}

/* As long as a plan's: what no brute force can tell, other ways to cut still must not beat. */
static void tables_as_long_as_a_plans(void **state) {
    (void)state;
    int most = 0;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct echi_random r;
        struct echi_merge_costs costs;
        bool cut[ECHI_PARTS_MAX];
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 85);
        const int count = any_case(&r, ECHI_PARTS_MAX, &costs);
        const double found = echi_merge(piece, count, &costs, &work, begins);
        assert_true(fabs(through(count, &costs, begins) - found) <= 1e-12 * found);
        for (int i = 0; i < count; i++) most = work.ways[i] > most ? work.ways[i] : most;
        for (int k = 0; k < 400; k++) {   /* neighbours of what was found, and anything */
            memcpy(cut, begins, sizeof cut);
            for (uint32_t n = k < 200 ? 1 : echi_random_below(&r, (uint32_t)count); n > 0; n--) {
                const uint32_t at = echi_random_below(&r, (uint32_t)count);
                cut[at] = at == 0 || !cut[at];
            }
            if (through(count, &costs, cut) < found * (1 - 1e-12)) fail_msg("seed %u: another cut of %d pieces is better", seed, count);
        }
    }
    print_message("ways kept: %d at most\n", most);
    assert_true(most < ECHI_MERGE_WAYS);
}

static void set(int count, const double *backward, const double *params, double forward) {
    double ready = forward;
    for (int i = count - 1; i >= 0; i--) {
        ready += backward[i];
        piece[i] = (struct echi_merge_piece){ready, params[i]};
    }
}

/* Worked out by hand: three layers that the greedy rule cuts into two messages of which the first waits, 26; the best takes 21. */
static void where_the_greedy_rule_waits(void **state) {
    (void)state;
    const struct echi_merge_costs costs = {.stage = {{6, 1}}};
    bool cut[ECHI_PARTS_MAX];
    set(3, (double[]){6, 5, 2}, (double[]){1, 1, 5}, 0);
    merge_greedy(piece, 3, costs.stage, cut);
    assert_true(cut[0] && cut[1] && !cut[2] && fabs(through(3, &costs, cut) - 26) < 1e-12);
    assert_true(fabs(echi_merge(piece, 3, &costs, &work, begins) - 21) < 1e-12);
    assert_true(begins[0] && !begins[1] && begins[2]);
}

/* Four layers at three costs of a message and a byte: one message a layer, all in one after backward, and the best. */
static void four_layers(void **state) {
    (void)state;
    static const struct { double message, byte, each, one, best; } at[] = {{0.5, 1, 15.6, 22, 15.6}, {2, 1, 20.5, 23.5, 18.5},
                                                                           {0.1, 0.2, 15.12, 16.4, 15.12}};
    const bool each[] = {true, true, true, true}, one[] = {true, false, false, false};
    set(4, (double[]){4, 3, 2, 1}, (double[]){0.1, 0.4, 2, 4}, 5);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        const struct echi_merge_costs costs = {.stage = {{at[i].message, at[i].byte}}};
        assert_true(fabs(through(4, &costs, each) - at[i].each) < 1e-12);
        assert_true(fabs(through(4, &costs, one) - at[i].one) < 1e-12);
        assert_true(fabs(echi_merge(piece, 4, &costs, &work, begins) - at[i].best) < 1e-12);
    }
}

/* The same layers, each message of which takes the processor 1 s, and 0.5 s a parameter. By hand: one by one they are there at
 * 6, 11, 16 and 21.2, and the last is through at 21.8; the last two together are there at 20 and through at 21; all but the first layer are
 * at 11, and delay it by 4.2: it is through at 19.8, which is the best. */
static void messages_that_delay_backward(void **state) {
    (void)state;
    const struct echi_merge_costs costs = {.compute = {1, 0.5}, .stage = {{0.5, 1}}};
    const bool each[] = {true, true, true, true}, last_two[] = {true, false, true, true};
    set(4, (double[]){4, 3, 2, 1}, (double[]){0.1, 0.4, 2, 4}, 5);
    assert_true(fabs(through(4, &costs, each) - 21.8) < 1e-12);
    assert_true(fabs(through(4, &costs, last_two) - 21) < 1e-12);
    assert_true(fabs(echi_merge(piece, 4, &costs, &work, begins) - 19.8) < 1e-12);
    assert_true(begins[0] && begins[1] && !begins[2] && !begins[3]);
}

static void check_stage(struct echi_merge_stage stage, double message, double param) {
    if (!(fabs(stage.message - message) < 1e-12 && fabs(stage.param - param) < 1e-12))
        fail_msg("a message takes %g and a parameter %g, not %g and %g", stage.message, stage.param, message, param);
}

/* By hand. Four that train, all of which own a slice of each message: 3 gradients in, 3 out, as many weights, and one wake of 2; a link
 * carries 1.5 of each parameter. With one owner: 3 in, a wake, 3 out, one way each. With two dealt whole messages: 1.5 in and 0.5 out. */
static void what_a_message_costs(void **state) {
    (void)state;
    const struct echi_merge_node node = {.message = 1, .byte = 10, .copy = 100, .add = 1e4, .update = 1e6};
    const struct echi_merge_costs four = echi_merge_costs_of(&node, 4, 4, 4), one = echi_merge_costs_of(&node, 4, 1, 1),
                                  two = echi_merge_costs_of(&node, 4, 2, 1);
    check_stage(four.compute, 6, 600 + 0.75e4 + 0.25e6);
    check_stage(four.stage[0], 14, 60 + 0.75e4 + 0.25e6);
    check_stage(four.stage[1], 0, 0);
    check_stage(one.compute, 3, 1200 + 3e4 + 1e6);
    check_stage(one.stage[0], 5, 120 + 3e4 + 1e6);
    check_stage(one.stage[1], 3, 120);
    check_stage(two.compute, 2, 800 + 1.5e4 + 0.5e6);
    check_stage(two.stage[0], 3, 60 + 1.5e4 + 0.5e6);
    check_stage(two.stage[1], 2, 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_is_better), cmocka_unit_test(tables_as_long_as_a_plans), cmocka_unit_test(where_the_greedy_rule_waits),
        cmocka_unit_test(four_layers), cmocka_unit_test(messages_that_delay_backward),
        cmocka_unit_test(what_a_message_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
