/* SPDX-License-Identifier: Apache-2.0
 * The planner against brute force: clustering over all cuts, shares over all partitions; head, groups and rates of plans. */
#include "echi_planner.h"
#include "echi_random.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

/* ---- clustering ---- */

static double cost_of(const double *value, const int *group, int count) {
    double cost = 0;
    for (int i = 0; i < count; i++) {
        double sum = 0, members = 0;
        for (int k = 0; k < count; k++)
            if (group[k] == group[i]) { sum += value[k]; members++; }
        const double off = value[i] / (sum / members) - 1;
        cost += off * off;
    }
    return cost;
}

/* Cuts are the set bits of a mask: bit i cuts between i and i + 1. */
static double least_cost(const double *value, int count, int groups) {
    double least = 1e300;
    for (unsigned mask = 0; mask < 1u << (count - 1); mask++) {
        int group[12] = {0};
        for (int i = 1; i < count; i++) group[i] = group[i - 1] + (int)(mask >> (i - 1) & 1);
        if (group[count - 1] != groups - 1) continue;
        const double cost = cost_of(value, group, count);
        if (cost < least) least = cost;
    }
    return least;
}

static void sorted_values(struct echi_random *r, double *value, int count) {
    for (int i = 0; i < count; i++) {
        double v = echi_random_below(r, 4) ? 0.01 + echi_random_unit(r) : 0.5;   /* some alike */
        int at = i;
        for (; at > 0 && value[at - 1] > v; at--) value[at] = value[at - 1];
        value[at] = v;
    }
}

static void clusters_are_the_best(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 400; seed++) {
        struct echi_random r;
        double value[10];
        int group[10];
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 2);
        const int count = 1 + (int)echi_random_below(&r, 10);
        sorted_values(&r, value, count);
        for (int groups = 1; groups <= count && groups <= ECHI_GROUPS_MAX; groups++) {
            echi_cluster(value, count, groups, group);
            assert_int_equal(group[0], 0);
            for (int i = 1; i < count; i++) assert_in_range(group[i] - group[i - 1], 0, 1);
            assert_int_equal(group[count - 1], groups - 1);
            const double cost = cost_of(value, group, count), least = least_cost(value, count, groups);
            if (cost > least * (1 + 1e-9) + 1e-12)
                fail_msg("seed %u: %d values in %d groups cost %g, but %g is possible", seed, count, groups, cost, least);
        }
    }
}

static bool tight(const double *value, const int *group, int count, double ratio) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (group[i] == group[k] && value[i] > ratio * value[k]) return false;
    return true;
}

static void clusters_are_as_few_as_are_tight(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 400; seed++) {
        struct echi_random r;
        double value[10];
        int group[10], fewer[10];
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 3);
        const int count = 1 + (int)echi_random_below(&r, 10), most = 1 + (int)echi_random_below(&r, 8);
        sorted_values(&r, value, count);
        const int groups = echi_cluster_auto(value, count, 1.25, most, group);
        assert_in_range(groups, 1, most < count ? most : count);
        assert_int_equal(group[count - 1], groups - 1);
        if (groups < most && groups < count) assert_true(tight(value, group, count, 1.25));
        for (int g = 1; g < groups; g++) {
            echi_cluster(value, count, g, fewer);
            assert_false(tight(value, fewer, count, 1.25));
        }
    }
    const double value[] = {1.0, 1.1, 1.2, 4.0, 4.1, 16.0};
    int group[6];
    assert_int_equal(echi_cluster_auto(value, 6, 1.25, 8, group), 3);
    const int expected[] = {0, 0, 0, 1, 1, 2};
    assert_memory_equal(group, expected, sizeof expected);
}

/* ---- shares ---- */

static double makespan(const struct echi_times *times, const uint32_t *n, int count) {
    double longest = 0;
    for (int i = 0; i < count; i++)
        if (echi_times_whole(&times[i], n[i]) > longest) longest = echi_times_whole(&times[i], n[i]);
    return longest;
}

static double least_makespan(const struct echi_times *times, uint32_t *n, int at, int count, uint32_t left) {
    if (at == count - 1) {
        n[at] = left;
        return makespan(times, n, count);
    }
    double least = 1e300;
    for (uint32_t i = 0; i <= left; i++) {
        n[at] = i;
        const double rest = least_makespan(times, n, at + 1, count, left - i);
        if (rest < least) least = rest;
    }
    return least;
}

static void shares_are_the_fastest(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        struct echi_random r;
        struct echi_times times[4];
        uint32_t n[4], any[4], sum = 0;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 4);
        const int count = 1 + (int)echi_random_below(&r, 4);
        const uint32_t batch = 1 + echi_random_below(&r, 24);
        memset(times, 0, sizeof times);
        for (int i = 0; i < count; i++) {
            const double speed = 1 + 9 * echi_random_unit(&r);
            times[i].count = 1 + echi_random_below(&r, 4);
            for (uint32_t k = 0; k < times[i].count; k++) {
                times[i].n[k] = (k ? times[i].n[k - 1] : 0) + 1 + echi_random_below(&r, 8);
                times[i].trunk[k] = (k ? times[i].trunk[k - 1] : speed) + speed * echi_random_unit(&r);
                times[i].head[k] = (k ? times[i].head[k - 1] : 0) + echi_random_unit(&r);
            }
        }
        echi_shares_by_speed(times, count, batch, n);
        for (int i = 0; i < count; i++) sum += n[i];
        assert_int_equal(sum, batch);
        const double found = makespan(times, n, count), least = least_makespan(times, any, 0, count, batch);
        if (found > least * (1 + 1e-12)) fail_msg("seed %u: a step takes %.17g, but %.17g is possible", seed, found, least);
    }
}

/* ---- plans ---- */

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan_request request;
static struct echi_plan plan;
static char text[240];

/* Each node's seconds a sample; the head's part is `head` of it. Efficient from 8 samples on. */
static void nodes(int world, const double *seconds, double head) {
    memset(times, 0, sizeof times);
    memset(&request, 0, sizeof request);
    for (int r = 0; r < world; r++) {
        static const uint32_t n[] = {1, 4, 8, 16, 64};
        times[r].count = 5;
        for (int i = 0; i < 5; i++) {
            const double whole = seconds[r] * (n[i] < 8 ? 8 : n[i]);
            times[r].n[i] = n[i];
            times[r].trunk[i] = whole * (1 - head);
            times[r].head[i] = whole * head;
        }
    }
    request = (struct echi_plan_request){.sync = ECHI_SYNC_GSSP,
                                  .world = world,
                                  .separate = -1,
                                  .has_cut = true,
                                  .batch = 64,
                                  .staleness = 3,
                                  .lr = 0.02,
                                  .momentum = 0.9};
}
static void make(void) {
    const ech_status status = echi_plan_make(&request, times, &plan, text, sizeof text);
    if (status != ECH_OK) fail_msg("%s", text);
    assert_true(echi_plan_valid(&plan));
}
static void refused(const char *word) {
    memset(text, 0, sizeof text);
    assert_int_equal(echi_plan_make(&request, times, &plan, text, sizeof text), ECH_E_ARGUMENT);
    if (!strstr(text, word)) fail_msg("'%s' does not say '%s'", text, word);
    char little[8];
    assert_int_equal(echi_plan_make(&request, times, &plan, little, sizeof little), ECH_E_ARGUMENT);
    assert_true(memchr(little, 0, sizeof little) != NULL);
    assert_int_equal(echi_plan_make(&request, times, &plan, NULL, 0), ECH_E_ARGUMENT);
}

static void the_fastest_node_has_the_head(void **state) {
    (void)state;
    const double seconds[] = {2, 1, 2, 8};
    nodes(4, seconds, 0.05);
    make();
    assert_true(plan.cut);
    assert_int_equal(plan.head, 1);
    /* Rank 1 is left 1 - 0.05 (1/1.9 + 1/1.9 + 1/7.6 + ...) of itself: still the fastest, its group is the first. */
    assert_int_equal(plan.group_of[1], 0);
    assert_int_equal(plan.owner_of[0], 1);
    assert_int_equal(plan.group_of[0], plan.group_of[2]);
    assert_int_equal(plan.group_of[3], plan.n_groups - 1);
    assert_int_equal(plan.owner_of[plan.n_groups - 1], 3);
    /* 3 B under way, by speed (0.526, 0.941, 0.526, 0.132 samples a second), in blocks of 16, B at most. */
    static const uint32_t n[] = {48, 64, 48, 16};
    assert_memory_equal(plan.n, n, sizeof n);
    assert_int_equal(plan.flights, 1);
    assert_int_equal(plan.staleness, 3);
    assert_int_equal(plan.rounds_apart, 4);
}

/* Of nodes that measuring cannot tell apart rank 0 is the owner, and has the head: then there is one rank, not two, that a run does
 * not outlive. A clear difference still counts. */
static void on_a_tie_rank0_owns(void **state) {
    (void)state;
    static const enum echi_sync sync[] = {ECHI_SYNC_BSP, ECHI_SYNC_ASP, ECHI_SYNC_SSP, ECHI_SYNC_LOCAL, ECHI_SYNC_GSSP};
    const double tie[] = {1, 0.94, 0.97, 1.02}, clear[] = {1, 0.8, 0.97, 1.02};
    for (size_t i = 0; i < sizeof sync / sizeof sync[0]; i++)
        for (int head = 0; head < 2; head++) {
            if (head && sync[i] == ECHI_SYNC_LOCAL) continue;
            nodes(4, tie, head ? 0.01 : 0);
            request.sync = sync[i];
            request.separate = head ? 1 : 0;
            request.groups = sync[i] == ECHI_SYNC_GSSP;
            make();
            if (plan.owner_of[0] != 0) fail_msg("%d: rank %d owns", (int)sync[i], plan.owner_of[0]);
            assert_int_equal(plan.head, head ? 0 : ECHI_NO_RANK);
            nodes(4, clear, head ? 0.01 : 0);
            request.sync = sync[i];
            request.separate = head ? 1 : 0;
            request.groups = sync[i] == ECHI_SYNC_GSSP;
            make();
            if (plan.owner_of[0] != 1) fail_msg("%d: rank %d owns", (int)sync[i], plan.owner_of[0]);
            assert_int_equal(plan.head, head ? 1 : ECHI_NO_RANK);
        }
}

/* Where a step is longer away than it is computed, two are in flight, of half the samples. */
static void a_far_head_makes_two_flights(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 4};
    nodes(4, seconds, 0.05);
    for (int r = 0; r < 4; r++) times[r].messages = 64 * seconds[r];
    make();
    assert_int_equal(plan.flights, 2);
    for (int r = 0; r < 4; r++) assert_true(plan.n[r] == 0 || (plan.n[r] % 16 == 0 && plan.n[r] <= 48));
    /* A size that the user asks for is everybody's. */
    request.samples_per_step = 20;
    make();
    for (int r = 0; r < 4; r++) assert_true(plan.n[r] == 0 || plan.n[r] == 20);
}

/* Of nodes alike rank 0 would have the head, and the only owner would be there, too: then no loss of either is outlived. */
static void a_head_with_a_shadow_may_be_lost(void **state) {
    (void)state;
    static const enum echi_sync sync[] = {ECHI_SYNC_BSP, ECHI_SYNC_SSP, ECHI_SYNC_GSSP};
    const double seconds[] = {1, 1, 1, 0.5};
    for (int s = 0; s < 3; s++) {
        nodes(4, seconds, 0.15);
        request.sync = sync[s];
        request.separate = 1;
        request.shadow = true;
        make();
        assert_int_equal(plan.head, 3);
        assert_int_equal(echi_plan_shadow(&plan), 0);
        assert_true(echi_plan_can_lose(&plan, 3));
        if (sync[s] != ECHI_SYNC_GSSP) assert_int_equal(plan.owner_of[0], 0);
        echi_plan_lose(&plan, 3);
        assert_true(plan.head == 0 && plan.shadow == 0);
        /* The fastest is the shadow where it is not the head. */
        request.home = 1 + 2;
        make();
        assert_int_equal(plan.head, 2);
        assert_int_equal(echi_plan_shadow(&plan), 3);
        assert_true(echi_plan_can_lose(&plan, 2) && echi_plan_can_lose(&plan, 3));
        request.separate = 0;
        make();
        assert_int_equal(plan.shadow, 0);
        request.shadow = false;
        request.home = 0;
    }
}

static void several_heads_share_the_workers(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 0.25, 1, 1, 1};
    nodes(6, seconds, 0.3);
    request.sync = ECHI_SYNC_BSP;
    request.separate = 1;
    request.batch = 60;
    request.heads = 2;
    make();
    assert_int_equal(plan.heads, 2);
    assert_true(plan.head == 2 && plan.head_rank[0] == 2 && plan.head_rank[1] != 2);
    double takes[2] = {0};
    for (int r = 0; r < 6; r++) takes[plan.head_of[r]] += 0.3 * plan.n[r] * seconds[plan.head_rank[plan.head_of[r]]];
    assert_true(takes[0] > 0 && takes[1] > 0 && takes[0] < 2.5 * takes[1] && takes[1] < 2.5 * takes[0]);
    for (int i = 0; i < 2; i++)   /* whose node does not send its rows elsewhere */
        if (plan.n[plan.head_rank[i]] > 0) assert_int_equal(plan.head_of[plan.head_rank[i]], i);
    for (int r = 0; r < 6; r++) assert_int_equal(echi_plan_can_lose(&plan, r), r != 0 && echi_plan_head_index(&plan, r) < 0 &&
                                                                                    r != plan.owner_of[0]);
    request.heads = 6;
    request.batch = 240;
    make();
    assert_int_equal(plan.heads, 6);
    for (int r = 0; r < 6; r++) assert_int_equal(plan.head_rank[plan.head_of[r]], r);
    request.heads = 7;
    refused("only 6 are here");
    request.heads = 4;
    request.shares = ECHI_SHARES_LIST;
    request.share[0] = 120, request.share[1] = 80, request.share[2] = 40;
    refused("only 3 nodes train");
    request.heads = 3;
    make();   /* though a head's node does not train */
    request.shares = ECHI_SHARES_SPEED;
    request.deterministic = true;
    refused("--deterministic");
    request.deterministic = false;
    request.separate = 0;
    refused("--separate");
    request.separate = 1;
    request.sync = ECHI_SYNC_SSP;
    refused("--sync bsp");
}

static void the_heads_worker_counts_by_what_is_left(void **state) {
    (void)state;
    /* All alike. The head costs h and the trunk 1 - h of a step, so a step of the head's node takes, beside the others' two
     * a (1 - h): r = (1 - 2 h / (1 - h)) / 1; with h = 0.15 about 1.55 of a step, the others' is 0.85. */
    const double seconds[] = {1, 1, 1};
    nodes(3, seconds, 0.15);
    make();
    assert_int_equal(plan.head, 0);
    assert_int_equal(plan.n_groups, 2);
    assert_int_equal(plan.group_of[1], 0);
    assert_int_equal(plan.group_of[2], 0);
    assert_int_equal(plan.group_of[0], 1);
    /* A head that takes all of its node leaves no worker there. */
    nodes(3, seconds, 0.4);
    make();
    assert_int_equal(plan.group_of[0], ECHI_NONE);
    assert_int_equal(plan.n[0], 0);
    assert_int_equal(plan.n_groups, 1);
    assert_int_equal(plan.head, 0);
    /* Unless its link brings it rows more slowly than the others could make them: 64 samples' in ten steps of theirs. */
    request.load.row = request.load.row_grad = 1000;
    times[0].link = echi_link_of(1000 * 64 / 640.0);
    make();
    assert_int_equal(plan.group_of[0], 1);
    times[0].link = echi_link_of(0);
    /* Messages of all layers may take any time, if the update of them does not: what comes to the head is rows. */
    nodes(3, seconds, 0.15);
    request.load = (struct echi_load){.trunk = 100000, .head = 900000, .row = 10, .row_grad = 10};
    times[0].exchange = 1000, times[0].add = 1, times[0].update = 1;
    make();
    assert_int_equal(plan.group_of[0], 1);
    assert_int_equal(plan.flights, 1);
    times[0].add = times[0].update = 0;   /* nobody has measured the update */
    make();
    assert_int_equal(plan.group_of[0], ECHI_NONE);
    nodes(3, seconds, 0.4);
    /* Nor does a wish for three groups find three workers. */
    request.groups = 3;
    make();
    assert_int_equal(plan.n_groups, 2);
}

/* Beside groups a place for who falls behind: owned by whoever has nothing else to keep, of these by the fastest link, then processor. */
static void a_reserve_has_an_owner_of_its_own(void **state) {
    (void)state;
    const double seconds[] = {2, 1, 2, 8, 1.5, 1.5};
    nodes(6, seconds, 0.05);
    make();
    const struct echi_plan before = plan;
    echi_plan_add_reserve(&request, times, &plan);
    assert_true(plan.reserve == 1 && plan.n_groups == before.n_groups + 1 && echi_plan_reserve(&plan) == before.n_groups);
    const int owner = plan.owner_of[before.n_groups];
    assert_true(owner != plan.head && echi_plan_group_owned(&before, owner) < 0 && echi_plan_workers(&plan, before.n_groups) == 0);
    assert_true(echi_plan_valid(&plan) && memcmp(plan.group_of, before.group_of, sizeof plan.group_of) == 0);
    for (int r = 0; r < 6; r++)
        if (r != plan.head && echi_plan_group_owned(&before, r) < 0) assert_true(seconds[r] >= seconds[owner]);
    echi_plan_add_reserve(&request, times, &plan);   /* one */
    assert_int_equal(plan.n_groups, before.n_groups + 1);

    plan = before;
    for (int r = 0; r < 6; r++) times[r].link = echi_link_of(r == 0 ? 2e6 : 1e6);
    if (echi_plan_group_owned(&before, 0) < 0) {
        echi_plan_add_reserve(&request, times, &plan);
        assert_int_equal(plan.owner_of[before.n_groups], 0);
    }
    plan = before;
    for (int r = 0; r < 6; r++) request.absent[r] = r != plan.head && echi_plan_group_owned(&before, r) < 0;
    echi_plan_add_reserve(&request, times, &plan);   /* nobody is free */
    assert_int_equal(plan.reserve, 0);

    nodes(6, seconds, 0.05);
    request.sync = ECHI_SYNC_SSP;
    make();
    echi_plan_add_reserve(&request, times, &plan);   /* no groups */
    assert_true(plan.reserve == 0 && plan.n_groups == 1);
}

static void rates_follow_the_defaults(void **state) {
    (void)state;
    const double seconds[] = {1, 1};
    static const struct {
        enum echi_sync sync;
        int world, separate;
        bool lr_given, momentum_given;
        uint32_t batch;
        double lr, momentum;
    } table[] = {
        {ECHI_SYNC_BSP, 2, 0, false, false, 128, 0.02, 0.9}, /* as said */
        {ECHI_SYNC_GSSP, 2, 1, false, false, 64, 0.02, 0.9},
        {ECHI_SYNC_GSSP, 2, 1, false, false, 128, 0.02, 0.9}, /* twice under way, half the lr / B */
        {ECHI_SYNC_GSSP, 2, 1, true, false, 128, 0.02, 0.9},  /* the user's word counts */
        {ECHI_SYNC_ASP, 2, 0, false, false, 64, 0.05, 0.5},   /* without a head owner: less memory */
        {ECHI_SYNC_SSP, 2, 0, false, false, 128, 0.05, 0.5},
        {ECHI_SYNC_ASP, 2, 0, true, false, 64, 0.02, 0.9},
        {ECHI_SYNC_ASP, 2, 0, false, true, 64, 0.02, 0.9},
        {ECHI_SYNC_ASP, 1, 0, false, false, 64, 0.02, 0.9}, /* alone nothing is stale */
        {ECHI_SYNC_LOCAL, 2, 0, false, false, 128, 0.04, 0.9}, /* each steps as one that is alone */
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        nodes(table[i].world, seconds, 0.05);
        request.sync = table[i].sync;
        request.separate = table[i].separate;
        request.lr_given = table[i].lr_given;
        request.momentum_given = table[i].momentum_given;
        request.batch = table[i].batch;
        make();
        if (plan.lr != table[i].lr || plan.momentum != table[i].momentum)
            fail_msg("row %zu: lr %g, momentum %g", i, plan.lr, plan.momentum);
    }
}

/* Rounds of `local` take about as long everywhere, and have as many steps in the mean as wished. */
static void steps_follow_the_speed(void **state) {
    (void)state;
    const double seconds[] = {1, 2, 4, 8};
    nodes(4, seconds, 0.05);
    request.sync = ECHI_SYNC_LOCAL;
    request.inner_steps = 15;
    request.outer_lr = 0.5;
    request.outer_momentum = 0.25;
    make();
    assert_true(plan.cut == 0 && plan.n_groups == 1 && plan.owner_of[0] == 0 && plan.outer_lr == 0.5 && plan.outer_momentum == 0.25);
    static const uint32_t inner[] = {32, 16, 8, 4};
    assert_memory_equal(plan.inner, inner, sizeof inner);
    for (int r = 1; r < 4; r++) assert_int_equal(plan.n[r], plan.n[0]);
    assert_int_equal(echi_plan_round(&plan), 60 * plan.n[0]);
    request.inner_steps = 1;   /* nobody has none */
    make();
    assert_true(plan.inner[0] == 2 && plan.inner[3] == 1);
    request.separate = 1;
    refused("separate off");
}

/* A worker's gradients count in proportion to its step times, and all samples together for what they would: sum r / divisor is
 * sum r / B, r the steps a second. */
static void steps_are_weighed_by_time(void **state) {
    (void)state;
    const double seconds[] = {1, 2, 4, 8};
    nodes(4, seconds, 0.05);
    request.sync = ECHI_SYNC_ASP;
    request.separate = 0;
    request.batch = 6400;
    request.drop_older = 2.5;
    request.weigh_by_time = true;
    make();
    assert_true(plan.drop_older == 2.5);
    double sum = 0, plain = 0;
    for (int r = 0; r < 4; r++) {
        const double rate = 1 / echi_times_whole(&times[r], plan.n[r]);
        sum += rate / plan.divisor[r];
        plain += rate / plan.round;
        assert_true(fabs((double)plan.divisor[r] * seconds[r] / ((double)plan.divisor[0] * seconds[0]) - 1) < 1e-3);
    }
    assert_true(fabs(sum / plain - 1) < 1e-3);
    request.separate = 1;
    refused("--drop-older and --weigh-by-time");
    request.separate = 0;
    request.sync = ECHI_SYNC_SSP;
    refused("--sync asp");
}

static void bsp_shares_sum_to_the_round(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 4};
    nodes(4, seconds, 0.05);
    request.sync = ECHI_SYNC_BSP;
    request.separate = 0;
    make();
    assert_int_equal(plan.cut, 0);
    assert_int_equal(plan.head, ECHI_NO_RANK);
    assert_int_equal(plan.n[0] + plan.n[1] + plan.n[2] + plan.n[3], 64);
    assert_true(plan.n[3] < plan.n[0]);
    request.shares = ECHI_SHARES_EQUAL;
    request.batch = 66;
    make();
    const uint32_t equal[] = {17, 17, 16, 16}, list[] = {60, 0, 4, 0};
    assert_memory_equal(plan.n, equal, sizeof equal);
    request.shares = ECHI_SHARES_LIST;
    request.batch = 64;
    memcpy(request.share, list, sizeof list);
    make();
    assert_memory_equal(plan.n, list, sizeof list);
    assert_int_equal(plan.group_of[1], ECHI_NONE);
    /* The default round: 64, and 16 a node beyond four. */
    request.shares = ECHI_SHARES_SPEED;
    request.batch = 0;
    make();
    assert_int_equal(plan.round, 64);
    const double many[] = {1, 1, 1, 1, 1, 1, 1};
    nodes(7, many, 0);
    request.batch = 0;
    make();
    assert_int_equal(plan.round, 112);
}

/* Only shares by speed may follow speeds, and where nobody has said that all stays; leases then have room for it. */
static void shares_may_follow(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 1};
    for (int i = 0; i < 5; i++) {
        nodes(4, seconds, 0);
        request.sync = i == 1 ? ECHI_SYNC_SSP : ECHI_SYNC_BSP;
        request.regroup_after = i == 2 ? 0 : 1000;
        request.shares = i == 3 ? ECHI_SHARES_EQUAL : ECHI_SHARES_SPEED;
        request.deterministic = i == 4;
        request.batch = 256;
        make();
        assert_int_equal(plan.shares_follow, i == 0);
        if (i != 1) assert_int_equal(echi_plan_room(&plan, 0), i == 0 ? 96 : 64);
    }
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    nodes(10, seconds, 0);
    request.has_cut = false;
    request.separate = 1;
    refused("--separate");
    nodes(10, seconds, 0);
    request.groups = 9;
    refused("--groups");
    nodes(10, seconds, 0);
    request.sync = ECHI_SYNC_BSP;
    request.shares = ECHI_SHARES_EQUAL;
    request.batch = 9;
    refused("--batch");
    request.shares = ECHI_SHARES_LIST;
    request.share[0] = 8;
    refused("--shares");
    nodes(10, seconds, 0);
    request.shares = ECHI_SHARES_LIST;   /* nobody computes */
    refused("--shares");
    nodes(2, seconds, 0);
    request.batch = UINT32_MAX;
    refused("--batch");
}

/* Any plan request over any times: a valid plan or a sentence. */
static void whatever_is_wished(void **state) {
    (void)state;
    int made = 0;
    for (uint32_t seed = 1; seed <= 3000; seed++) {
        struct echi_random r;
        double seconds[ECHI_WORLD_MAX];
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 5);
        const int world = 1 + (int)echi_random_below(&r, echi_random_below(&r, 8) ? 8 : ECHI_WORLD_MAX);
        for (int i = 0; i < world; i++) seconds[i] = 1e-6 + echi_random_unit(&r) * (echi_random_below(&r, 3) ? 1 : 100);
        nodes(world, seconds, echi_random_unit(&r) * 0.9);
        request.sync = (enum echi_sync)echi_random_below(&r, ECHI_SYNCS);
        request.separate = (int)echi_random_below(&r, 3) - 1;
        request.has_cut = echi_random_below(&r, 4) != 0;
        request.groups = (int)echi_random_below(&r, 10);
        request.shares = (enum echi_shares)echi_random_below(&r, 3);
        request.batch = echi_random_below(&r, 4) ? echi_random_below(&r, 200) : 0;
        request.samples_per_step = echi_random_below(&r, 2) ? 0 : echi_random_below(&r, 100);
        request.inner_steps = 1 + echi_random_below(&r, ECHI_INNER_MAX);
        for (int i = 0; i < world; i++) request.share[i] = echi_random_below(&r, 3);
        memset(text, 0, sizeof text);
        const ech_status status = echi_plan_make(&request, times, &plan, text, sizeof text);
        if (status == ECH_OK ? !echi_plan_valid(&plan) : text[0] == 0) fail_msg("seed %u: status %d '%s'", seed, status, text);
        made += status == ECH_OK;
    }
    assert_true(made > 1500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters_are_the_best),
        cmocka_unit_test(clusters_are_as_few_as_are_tight),
        cmocka_unit_test(shares_are_the_fastest),
        cmocka_unit_test(the_fastest_node_has_the_head),
        cmocka_unit_test(on_a_tie_rank0_owns),
        cmocka_unit_test(a_far_head_makes_two_flights),
        cmocka_unit_test(a_head_with_a_shadow_may_be_lost),
        cmocka_unit_test(several_heads_share_the_workers),
        cmocka_unit_test(the_heads_worker_counts_by_what_is_left),
        cmocka_unit_test(a_reserve_has_an_owner_of_its_own),
        cmocka_unit_test(rates_follow_the_defaults),
        cmocka_unit_test(steps_follow_the_speed),
        cmocka_unit_test(steps_are_weighed_by_time),
        cmocka_unit_test(bsp_shares_sum_to_the_round),
        cmocka_unit_test(shares_may_follow), cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(whatever_is_wished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
