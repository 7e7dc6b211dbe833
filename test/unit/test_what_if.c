/* SPDX-License-Identifier: Apache-2.0
 * What would make a plan faster: clusters that wait for one thing that is known, and by how much less of it they gain follows from a
 * closed formula. And what only some of their nodes would make. */
#include "echi_what_if.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { NODES = 4, BATCH = 64, PARAMS = 1000000 };
#define STEP 1e-3                    /* s, of 16 samples */
#define BYTES (4u * PARAMS)

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_choice_work work;
static struct echi_plan_request request;
static struct echi_plan plan;
static struct echi_what_if found[ECHI_WHATS];
static int count;

/* Equal nodes without links, messages and pushes that take time; two layers, of which the second may be separated. */
static void cluster(enum echi_sync sync) {
    memset(times, 0, sizeof times);
    for (int r = 0; r < NODES; r++) {
        times[r].count = 2;
        times[r].n[0] = 16;
        times[r].n[1] = 64;
        for (int i = 0; i < 2; i++) {
            times[r].trunk[i] = 0.75 * STEP * times[r].n[i] / 16;
            times[r].head[i] = 0.25 * STEP * times[r].n[i] / 16;
        }
    }
    request = (struct echi_plan_request){.sync = sync, .world = NODES, .has_cut = true, .shares = ECHI_SHARES_EQUAL, .batch = BATCH,
        .samples_per_step = sync == ECHI_SYNC_BSP ? 0 : 16, .staleness = 3, .lr = 0.1, .momentum = 0.9, .groups = 1, .home = 1,
        .layers = {.count = 2, .cut = 1, .params = {PARAMS / 2, PARAMS / 2}},
        .load = {.trunk = BYTES / 2, .head = BYTES / 2, .row = 1601, .row_grad = 1600, .layers = 1, .head_layers = 1}};
}

static void ask(void) {
    char text[240];
    if (echi_plan_make(&request, times, &plan, text, sizeof text) != ECH_OK) fail_msg("%s", text);
    echi_plan_divide(&request, times, &plan);
    echi_plan_parts(&request, times, &plan);
    struct echi_prediction p;
    echi_predict(&plan, times, &request.load, 0, &work.predict, &p);
    count = echi_what_if(&plan, times, &request.load, p.rate, &work, found);
    assert_in_range(count, 0, ECHI_WHATS);
    for (int i = 0; i < count; i++) {
        assert_true(found[i].gain >= 0.01 && found[i].what < ECHI_WHATS && found[i].rank >= -1 && found[i].rank < NODES);
        for (int k = 0; k < i; k++) assert_true(found[k].gain >= found[i].gain && found[k].what != found[i].what);
    }
}

static void bottleneck_is(enum echi_what what, int rank, double least, double most) {
    assert_true(count > 0);
    if (found[0].what != what || found[0].rank != rank || !(found[0].gain >= least && found[0].gain <= most))
        fail_msg("thing %d of rank %d gains %g; expected %d of rank %d, %g to %g", found[0].what, found[0].rank, found[0].gain, what, rank,
                 least, most);
}

/* Half the step: twice the rate, by all nodes alone, and by nothing else. */
static void steps_of_all(void **state) {
    (void)state;
    cluster(ECHI_SYNC_BSP);
    ask();
    bottleneck_is(ECHI_WHAT_STEPS, -1, 0.99, 1.01);
    assert_int_equal(count, 1);
}

/* Everybody waits for the one that takes three times as long: with half of it, 1.5 steps, for twice the rate; all nodes gain no more. */
static void steps_of_a_straggler(void **state) {
    (void)state;
    cluster(ECHI_SYNC_BSP);
    for (int i = 0; i < 2; i++) {
        times[2].trunk[i] *= 3;
        times[2].head[i] *= 3;
    }
    ask();
    bottleneck_is(ECHI_WHAT_STEPS, 2, 0.99, 1.01);
}

/* Links that the owner's three workers fill: t = 2 x 3 M / rate, of which the step is a little. */
static void link_of_the_owner(void **state) {
    (void)state;
    cluster(ECHI_SYNC_BSP);
    for (int r = 0; r < NODES; r++) times[r].link = echi_link_of(1e9);   /* 4 MB: 4 ms; the owner 12 ms a direction */
    ask();
    assert_int_equal(plan.owner_of[0], 0);
    /* In and out overlap in part: between (step + 12 ms) and (step + 24 ms) a round, of which the link is the most. */
    bottleneck_is(ECHI_WHAT_LINKS, 0, 0.75, 1);
}

static void link_of_one_worker(void **state) {
    (void)state;
    cluster(ECHI_SYNC_BSP);
    for (int r = 0; r < NODES; r++) times[r].link = echi_link_of(r == 3 ? 1e8 : 1e10);   /* 40 ms a direction */
    ask();
    bottleneck_is(ECHI_WHAT_LINKS, 3, 0.9, 1);
}

/* Pushes that take the owner longer than all else: a round has four of them. */
static void an_owner_that_applies_slowly(void **state) {
    (void)state;
    cluster(ECHI_SYNC_BSP);
    for (int r = 0; r < NODES; r++) {
        times[r].exchange = times[r].add = 0.005;
        times[r].update = 0.01;
    }
    ask();
    bottleneck_is(ECHI_WHAT_OWNERS, 0, 0.8, 1);
}

/* Gradients there and weights back: four ways of 10 ms, and a step of 1 ms. */
static void far_away(void **state) {
    (void)state;
    cluster(ECHI_SYNC_BSP);
    for (int r = 0; r < NODES; r++) times[r].delay = 0.01;
    ask();
    bottleneck_is(ECHI_WHAT_LATENCY, -1, 0.85, 1);
}

/* Rows of all nodes in turn at the head, whose layers take ten times as long as before: the trunk is hidden behind them. */
static void a_slow_head(void **state) {
    (void)state;
    cluster(ECHI_SYNC_SSP);
    request.separate = 1;
    for (int i = 0; i < 2; i++) times[0].head[i] *= 10;
    ask();
    assert_true(plan.cut && plan.head == 0);
    bottleneck_is(ECHI_WHAT_HEAD, 0, 0.7, 1);
}

/* The longest of four steps of a round, exp(0.5 z): half of the jitter is worth about E max exp(0.5 z) / E max exp(0.25 z), and E max z of
 * four is 1.03. */
static void steps_that_vary(void **state) {
    (void)state;
    cluster(ECHI_SYNC_BSP);
    for (int r = 0; r < NODES; r++) times[r].jitter = 0.5;
    ask();
    bottleneck_is(ECHI_WHAT_STEPS, -1, 0.95, 1.05);
    assert_true(count > 1 && found[1].what == ECHI_WHAT_VARIATION && found[1].rank == -1);
    assert_true(found[1].gain > 0.2 && found[1].gain < 0.5);
}

/* ---- fewer nodes ---- */

static void sweep(int numbers, const int *nodes, double *rate) {
    char text[240];
    if (echi_plan_make(&request, times, &plan, text, sizeof text) != ECH_OK) fail_msg("%s", text);
    echi_node_sweep(&request, times, &plan, &work, nodes, numbers, rate);
}

static void rates_are(const double rate[NODES], const double expected[NODES]) {
    for (int i = 0; i < NODES; i++)
        if (fabs(rate[i] - expected[i]) > 1e-3 * expected[i]) fail_msg("%d nodes: %g samples/s, expected %g", 1 + i, rate[i], expected[i]);
}

static const int up_to_all[NODES] = {1, 2, 3, 4};

/* A round is as long as the step of the largest share, of 64, 32, 22 and 16 samples. */
static void alike_nodes_share_a_round(void **state) {
    (void)state;
    double rate[NODES];
    cluster(ECHI_SYNC_BSP);
    sweep(NODES, up_to_all, rate);
    rates_are(rate, (double[]){16 / STEP, 32 / STEP, 64 * 16 / 22.0 / STEP, 64 / STEP});
}

/* Steps 1, 2, 4 and 3 times as long: rank 3 comes before rank 2, and shares are 64; 32 twice; 22, 21, 21; 16. */
static void the_fastest_come_first(void **state) {
    (void)state;
    static const double slower[NODES] = {1, 2, 4, 3};
    double rate[NODES];
    cluster(ECHI_SYNC_BSP);
    for (int r = 0; r < NODES; r++)
        for (int i = 0; i < 2; i++) {
            times[r].trunk[i] *= slower[r];
            times[r].head[i] *= slower[r];
        }
    sweep(NODES, up_to_all, rate);
    rates_are(rate, (double[]){16 / STEP, 64 / (2 * 2 * STEP), 64 / (21 / 16.0 * 3 * STEP), 64 / (4 * STEP)});
    request.choose = true;   /* the plan has a policy */
    sweep(1, (int[]){3}, rate);
    assert_true(fabs(rate[0] - 64 / (21 / 16.0 * 3 * STEP)) < 1e-3 * rate[0]);
}

/* As if the others were not there: owners, and the rest of a plan, are found anew. What is not better by 2 % counts as alike, of
 * owners before the table of parts is chosen, and of tables: 4 % of both. */
static void as_a_cluster_of_so_many(void **state) {
    (void)state;
    static const enum echi_sync policy[] = {ECHI_SYNC_BSP, ECHI_SYNC_SSP, ECHI_SYNC_GSSP};
    for (size_t i = 0; i < sizeof policy / sizeof policy[0]; i++) {
        double rate[NODES];
        cluster(policy[i]);
        request.home = 0;
        request.shards = policy[i] == ECHI_SYNC_BSP ? ECHI_SHARDS_AUTO : 0;
        request.exchange = ECHI_EXCHANGES;
        for (int r = 0; r < NODES; r++) times[r].link = echi_link_of(1e9);
        sweep(NODES, up_to_all, rate);
        for (int n = 1; n <= NODES; n++) {
            struct echi_choice choice;
            char text[240];
            request.world = n;
            request.batch = BATCH;
            assert_int_equal(echi_plan_choose(&request, times, &work, &plan, &choice, text, sizeof text), ECH_OK);
            const double alone = choice.candidate[choice.taken].rate;
            if (fabs(alone - rate[n - 1]) > 0.04 * alone) fail_msg("policy %d, %d nodes: %g, alone %g", policy[i], n, rate[n - 1], alone);
        }
    }
}

/* What a plan has from a file is the plan's: policy, round, separation; not what was asked for beside it. */
static void the_plan_says_what_is_swept(void **state) {
    (void)state;
    static const struct { enum echi_sync sync; int separate; } of[] = {{ECHI_SYNC_BSP, 0}, {ECHI_SYNC_SSP, 1}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        double rate[2][NODES];
        cluster(of[i].sync);
        for (int r = 0; r < NODES; r++) times[r].link = echi_link_of(1e9);
        request.batch = 32;
        request.samples_per_step = of[i].sync == ECHI_SYNC_BSP ? 0 : 8;
        request.separate = of[i].separate;
        sweep(NODES, up_to_all, rate[0]);
        request.sync = ECHI_SYNC_GSSP;
        request.separate = !of[i].separate;
        request.groups = 2;
        request.batch = BATCH;
        echi_node_sweep(&request, times, &plan, &work, up_to_all, NODES, rate[1]);
        for (int n = 0; n < NODES; n++)
            if (fabs(rate[0][n] - rate[1][n]) > 1e-9 * rate[0][n]) fail_msg("%d nodes: %g, then %g", n + 1, rate[0][n], rate[1][n]);
        assert_true(rate[0][NODES - 1] > 0);
    }
}

/* Shares that were given for four. */
static void what_cannot_be_planned_is_0(void **state) {
    (void)state;
    double rate[2];
    cluster(ECHI_SYNC_BSP);
    request.shares = ECHI_SHARES_LIST;
    for (int r = 0; r < NODES; r++) request.share[r] = 16;
    sweep(2, (int[]){2, 4}, rate);
    assert_true(rate[0] <= 0 && fabs(rate[1] - 64 / STEP) < 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_all), cmocka_unit_test(steps_of_a_straggler), cmocka_unit_test(link_of_the_owner),
        cmocka_unit_test(link_of_one_worker), cmocka_unit_test(an_owner_that_applies_slowly), cmocka_unit_test(far_away),
        cmocka_unit_test(a_slow_head), cmocka_unit_test(steps_that_vary),
        cmocka_unit_test(alike_nodes_share_a_round), cmocka_unit_test(the_fastest_come_first), cmocka_unit_test(as_a_cluster_of_so_many),
        cmocka_unit_test(the_plan_says_what_is_swept), cmocka_unit_test(what_cannot_be_planned_is_0)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
