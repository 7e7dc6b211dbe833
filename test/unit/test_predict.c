/* SPDX-License-Identifier: Apache-2.0
 * Predictions against closed formulas, where nothing is random, but for what words between nodes take, a thousandth at most; against what
 * an independent simulation found, where it is
 * (reference: sixteen workers, four geometric classes of speed); and what must hold of any. */
#include "framed.h"
#include "echi_choice.h"
#include "echi_cost.h"
#include "echi_random.h"
#include "echi_efficiency.h"
#include "echi_ratio.h"
#include "part.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan plan;
static struct echi_load load;
static struct echi_predict_work work;

/* Seconds of a step of n samples are n x seconds[r], a fifth of them the head's. What an owner does for others waits for the end of a unit
 * of its own worker's step: these are short, where nothing else is said. */
#define UNITS 128
static void nodes(int world, const double *seconds) {
    memset(times, 0, sizeof times);
    load = (struct echi_load){.layers = UNITS};
    for (int r = 0; r < world; r++) {
        times[r].count = 2;
        for (int i = 0; i < 2; i++) {
            times[r].n[i] = i ? 64 : 1;
            times[r].trunk[i] = 0.8 * seconds[r] * times[r].n[i];
            times[r].head[i] = 0.2 * seconds[r] * times[r].n[i];
        }
    }
}

/* One group of all, n samples each, owned by rank 0; nothing apart. */
static void whole(enum echi_sync sync, int world, uint32_t n) {
    memset(&plan, 0, sizeof plan);
    memset(plan.group_of, ECHI_NONE, sizeof plan.group_of);
    memset(plan.owner_of, 0xff, sizeof plan.owner_of);
    plan.sync = (uint8_t)sync;
    plan.world = (uint16_t)world;
    plan.n_groups = plan.flights = 1;
    plan.head = ECHI_NO_RANK;
    plan.staleness = 3;
    plan.rounds_apart = 4;
    plan.round = n * (uint32_t)world;
    plan.owner_of[0] = 0;
    for (int r = 0; r < world; r++) {
        plan.group_of[r] = 0;
        plan.n[r] = n;
    }
    assert_true(echi_plan_valid(&plan));
}

static struct echi_prediction predict(uint32_t steps) {
    struct echi_prediction p;
    assert_true(echi_plan_valid(&plan));
    echi_predict(&plan, times, &load, steps, &work, &p);
    assert_true(p.rate > 0 && p.staleness >= 0);
    return p;
}

static void near(double value, double expected, double part) {
    if (!(fabs(value - expected) <= part * fabs(expected))) fail_msg("%g where %g was expected", value, expected);
}

/* ---- nothing random: closed formulas ---- */

static void without_chance_rates_are_those_of_the_formulas(void **state) {
    (void)state;
    const double seconds[] = {1, 2, 4, 8};
    nodes(4, seconds);
    /* In step: all wait for the slowest. */
    whole(ECHI_SYNC_BSP, 4, 16);
    struct echi_prediction p = predict(0);
    near(p.rate, 64 / (16 * 8.0), 1e-9);
    assert_true(p.staleness == 0);
    for (int r = 0; r < 4; r++) near(work.busy[r], seconds[r] / 8, 1e-6);
    /* Nobody waits: the sum of the speeds. */
    whole(ECHI_SYNC_ASP, 4, 16);
    near(predict(64).rate, 1 + 0.5 + 0.25 + 0.125, 1e-9);
    for (int r = 0; r < 4; r++) near(work.busy[r], 1, 1e-6);
    /* With a bound all end up at the slowest one's pace, however large it is. */
    whole(ECHI_SYNC_SSP, 4, 16);
    near(predict(256).rate, 4 * 0.125, 1e-9);
    plan.staleness = 0;
    near(predict(0).rate, 4 * 0.125, 1e-9);
    /* Groups of two: each at the pace of its slower one. */
    whole(ECHI_SYNC_GSSP, 4, 16);
    plan.n_groups = 2;
    plan.group_of[2] = plan.group_of[3] = 1;
    plan.owner_of[1] = 2;
    near(predict(256).rate, 2 * 0.5 + 2 * 0.125, 1e-9);
    /* By speed all take as long: nobody waits in step either. */
    whole(ECHI_SYNC_BSP, 4, 16);
    static const uint32_t n[] = {64, 32, 16, 8};
    memcpy(plan.n, n, sizeof n);
    plan.round = 120;
    near(predict(0).rate, 120 / 64.0, 1e-9);
}

/* A node alone, whatever the policy; and what others do to its pushes: k others of its speed make k pushes between its own two. */
static void staleness_is_what_others_do_in_a_step(void **state) {
    (void)state;
    double seconds[17];
    for (int i = 0; i < 17; i++) seconds[i] = 1;
    for (int world = 1; world <= 16; world++) {
        nodes(world + 1, seconds);
        whole(ECHI_SYNC_ASP, world + 1, 16);
        plan.group_of[0] = ECHI_NONE;   /* an owner that does nothing else */
        plan.n[0] = 0;
        plan.round = 16 * (uint32_t)world;
        double all = 0;
        for (int r = 1; r <= world; r++) {   /* so that no two pushes come at once */
            times[r].delay = 1e-3 * r;
            all += 16 / (16 + 2 * times[r].delay);
        }
        const struct echi_prediction p = predict(0);
        near(p.rate, all, 1e-6);
        near(1 + p.staleness, 1 + (world - 1.0) / world, 2e-3);
    }
}

static void bytes_take_their_time(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 1};
    /* In step, links: three snapshots leave one behind the other, and three pushes come in so, as far apart as they were begun. */
    nodes(4, seconds);
    load.trunk = 4000000;
    for (int r = 0; r < 4; r++) {
        times[r].link = echi_link_of(1e6);
        times[r].delay = 0.25;
    }
    whole(ECHI_SYNC_BSP, 4, 16);
    near(predict(0).rate, 64 / (16 + 4 + 0.5 + 3 * 4 + 0.5), 1e-3);
    /* Nobody waits, but the owner's link carries a push of the three others in 4 s each. Its own worker needs no link. */
    whole(ECHI_SYNC_ASP, 4, 1);
    near(predict(64).rate, 1 + 1 / 4.0, 1e-2);
    /* Four sends at once, rank by rank: the owner's own worker, the last rank and the slowest, waits for none of them. */
    nodes(6, (const double[]){0.01, 0.01, 0.01, 0.01, 0.01, 2});
    for (int r = 0; r < 6; r++) times[r].link = echi_link_of(1e6);
    load.trunk = 4000000;
    whole(ECHI_SYNC_BSP, 6, 16);
    plan.owner_of[0] = 5;
    near(predict(0).rate, 96 / 32.0, 1e-3);
    nodes(4, seconds);
    for (int r = 0; r < 4; r++) {
        times[r].link = echi_link_of(1e6);
        times[r].delay = 0.25;
    }
    /* Layers behind the cut leave while those before it are computed backward: two thirds of 12.8 s are enough for 0.75 s of a link. */
    load = (struct echi_load){.trunk = 250000, .head = 750000, .layers = 1, .head_layers = 1};
    whole(ECHI_SYNC_BSP, 2, 16);
    near(predict(0).rate, 32 / (16 + 0.25 + 0.5 + 1 + 0.5), 1e-3);
    /* The owner's processor, an exchange 2 s: three snapshots sent (0.85 of that each) and three pushes taken in, in the middle of its own
     * worker's step; then all four are added (0.15), and the round is applied (0.7). */
    nodes(4, seconds);
    load.trunk = 4000000;
    times[0].exchange = 2;
    whole(ECHI_SYNC_BSP, 4, 16);
    near(predict(0).rate, 64 / (16 + 3 * 1.7 + 3 * 1.7 + 4 * 0.3 + 1.4), 0.01);
    /* The others': taken in before their step; what they send costs them time when they have pushed. */
    nodes(4, seconds);
    load.trunk = 4000000;
    times[3].exchange = 2;
    near(predict(0).rate, 64 / (16 + 1.7), 1e-3);
    /* What leaves early, on a link that is fast, is taken in while the other still computes: of an exchange of 2 s three quarters of 0.85
     * are behind the cut; then the rest, the sum, the round. */
    nodes(2, (const double[]){0.5, 1});
    times[0].exchange = 2;
    load = (struct echi_load){.trunk = 250000, .head = 750000, .layers = 1, .head_layers = 1};
    whole(ECHI_SYNC_BSP, 2, 16);
    near(predict(0).rate, 32 / (16 + 0.425 + 0.3 + 1.4), 1e-3);
}

/* What a processor copies as fast as a link was seen to carry it is counted once, and a link that is slower than half of that in full. */
static void copies_are_no_link(void **state) {
    (void)state;
    nodes(4, (const double[]){1, 1, 1, 1});
    load.trunk = 4000000;
    for (int r = 0; r < 4; r++) times[r].exchange = 2, times[r].add = 0.3;   /* 1.7 s of 4 MB: 2.4 MB/s */
    whole(ECHI_SYNC_BSP, 4, 16);
    const double copied = predict(0).rate;
    for (int r = 0; r < 4; r++) times[r].link = echi_link_of(1.5e6);
    near(predict(0).rate, copied, 1e-9);
    for (int r = 0; r < 4; r++) times[r].link = echi_link_of(1e6);
    assert_true(predict(0).rate < 0.9 * copied);
}

/* Nodes of one machine share its processors, as long as they are more threads than these: who is alone there has what it measured, which is
 * longer where others computed beside it. Its quota holds as well. */
static void machines_are_shared(void **state) {
    (void)state;
    nodes(4, (const double[]){2, 2, 2, 4});   /* measured side by side: alone 1 s, 1 s, 2 s and 4 s a sample */
    for (int r = 0; r < 3; r++) times[r].machine = (struct echi_machine){r < 2 ? 7 : 8, ECHI_PROCESSOR, 1, r < 2 ? 2 : 1};
    whole(ECHI_SYNC_ASP, 4, 16);
    near(predict(64).rate, 2 * 0.5 + 0.5 + 0.25, 1e-2);
    /* In step: while both compute each takes twice as long; one that has half of the samples is done in the middle of that. */
    whole(ECHI_SYNC_BSP, 4, 16);
    plan.group_of[2] = plan.group_of[3] = ECHI_NONE;
    plan.n[1] = 8, plan.n[2] = plan.n[3] = 0;
    plan.round = 24;
    near(predict(0).rate, 24 / 24.0, 1e-3);
    times[0].machine.processors = times[1].machine.processors = 2;
    near(predict(0).rate, 24 / 16.0, 1e-3);
    for (int r = 0; r < 2; r++) times[r].machine.takes = 2 * ECHI_PROCESSOR;
    near(predict(0).rate, 24 / 24.0, 1e-3);
    /* Alone, because the other's machine is another. */
    times[1].machine.id = 9;
    near(predict(0).rate, 24 / 32.0, 1e-3);
    /* A quarter of one processor each leaves a half of it, so both take as long as alone: 4 s a sample, of which it has a quarter. */
    nodes(2, (const double[]){4, 4});
    for (int r = 0; r < 2; r++) {
        times[r].machine = (struct echi_machine){7, ECHI_PROCESSOR, 1, 1};
        times[r].period = 0.1;
        times[r].quota = 0.025;
    }
    whole(ECHI_SYNC_BSP, 2, 16);
    near(predict(0).rate, 32 / 64.0, 0.01);
}

/* Units decide what is early. Of 16 s one in seven are forward, and of the 10.97 s of the trunk's backward pass so much of a push is in. */
static void units_decide_what_overlaps(void **state) {
    (void)state;
    static const double late[2][ECHI_PASSES] = {{1, 6}, {1, 1}}, early[2][ECHI_PASSES] = {{6, 1}, {1, 1}};
    nodes(2, (const double[]){1, 1});
    for (int r = 0; r < 2; r++) {
        times[r].link = echi_link_of(1e6);
        times[r].units = 2, times[r].cut = 1, times[r].sizes = 1;
        assert_true(echi_times_share(&times[r], 0, late));
    }
    load = (struct echi_load){.trunk = 4000000, .head = 10000000, .layers = 1, .head_layers = 1};
    whole(ECHI_SYNC_BSP, 2, 16);
    /* Weights, 14 s, are waited for, then the step of the other node; the 10 s of its head leave 10.97 s before its end, and the link is
     * then free for the 4 s of its trunk. */
    near(predict(0).rate, 32 / (14 + 16 + 4.0), 1e-3);
    for (int r = 0; r < 2; r++) assert_true(echi_times_share(&times[r], 0, early));
    near(predict(0).rate, 32 / (14 + 16 + 4.0 + 10 - 12.8 / 7), 1e-3);
    /* What a node does for others waits for the end of a unit of its own worker's. Here that worker takes 800 s for a step, in two units
     * or in four, and each step of the other node waits twice: its rows at the head, its push at the owner. */
    static const double one[2][ECHI_PASSES] = {{0, 0}, {1, 1}}, both[2][ECHI_PASSES] = {{1, 1}, {1, 1}};
    nodes(2, (const double[]){1000, 0.001});
    for (int i = 0; i < 2; i++) times[0].head[i] = times[1].head[i];
    load.layers = 2;
    whole(ECHI_SYNC_ASP, 2, 1);
    plan.cut = 1;
    plan.head = 0;
    times[0].units = times[0].cut = 2, times[0].sizes = 1;
    assert_true(echi_times_share(&times[0], 0, one));
    const double with_one = predict(400).rate * 800;
    assert_true(echi_times_share(&times[0], 0, both));
    const double with_both = predict(400).rate * 800;
    near(with_one, 1 + 2 / 2, 0.01);
    near(with_both, 1 + 4 / 2, 0.01);
}

/* ... of `count` parts of 25,000 parameters, one a layer: 1 s of a link each. A sixth of a step is each layer's forward pass, a third its
 * backward one of two layers. */
static void in_parts(int count, int shards) {
    load = (struct echi_load){.trunk = (uint32_t)count * 100000, .layers = (uint32_t)count};
    for (int r = 0; r < plan.world; r++) times[r].link = echi_link_of(1e5);
    plan.parts.count = (uint16_t)count;
    for (int i = 0; i < count; i++)
        plan.parts.part[i] = (struct echi_part){.at = 25000u * (unsigned)i, .count = 25000, .first = (uint8_t)i, .last = (uint8_t)i,
                                                .shard = (uint8_t)(shards > 1 ? i % shards : 0)};
    plan.shards = (uint8_t)(shards > 1 ? shards : 0);
    for (int k = 0; k < plan.shards; k++) plan.shard_owner[k] = (uint16_t)k;
}

static void rounds_by_part_overlap(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 1};   /* words take a thousandth of a second of such a link */
    nodes(4, seconds);
    /* One part: weights leave one after the other, and pushes come in so, as far apart as they were begun. */
    whole(ECHI_SYNC_BSP, 4, 16);
    in_parts(1, 1);
    near(predict(0).rate, 64 / (16 + 4.0), 1e-3);
    /* Two: the last one's gradients and weights travel while the first one is computed backward. Of the first both are waited for. */
    whole(ECHI_SYNC_BSP, 2, 16);
    in_parts(2, 1);
    near(predict(0).rate, 32 / (16 + 2.0), 1e-3);
    /* Of two owners each adds at the end of its own step, and sends weights before its own gradients, which wait for that. */
    in_parts(2, 2);
    near(predict(0).rate, 32 / (16 + 3.0), 1e-3);
    /* A step of 0.6 s: one owner's link brings two parts from each of three, and the last worker has its weights when the first has pushed.
     * Of four owners each link carries three pushes in and three out, and as many weights: 6 s, and not twice that. */
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 2; i++) times[r].trunk[i] = 0.48, times[r].head[i] = 0.12;
    whole(ECHI_SYNC_BSP, 4, 16);
    in_parts(4, 1);
    const double one = predict(0).rate;
    in_parts(4, 4);
    const double four = predict(0).rate;
    assert_true(one > 64 / (12 + 12 + 0.6) && one < 64 / 12.0);
    assert_true(four > 64 / (2 * 6 + 0.6) && four < 64 / 6.0);
    /* A processor: three pushes come in (0.85 of an exchange of 2 s), all four are added, one update, and three copies leave. */
    nodes(4, seconds);
    whole(ECHI_SYNC_BSP, 4, 16);
    in_parts(1, 1);
    for (int r = 0; r < 4; r++) times[r].link = echi_link_of(0);
    times[0].exchange = 2;
    times[0].update = 5;
    near(predict(0).rate, 64 / (16 + 3 * 1.7 + 4 * 0.3 + 5 + 3 * 1.7), 0.02);
}

/* Under --deterministic sums are of integers of 8 bytes, and weights are floats. In a ring of four whose links are all there is, where each
 * sends three sums a round, of parts that take a second as floats, a round takes three seconds more. */
static void sums_of_integers_are_longer(void **state) {
    (void)state;
    const double seconds[] = {1e-4, 1e-4, 1e-4, 1e-4};
    nodes(4, seconds);
    whole(ECHI_SYNC_BSP, 4, 16);
    in_parts(4, 4);
    plan.exchange = ECHI_EXCHANGE_RING;
    const double floats = 64 / predict(0).rate;
    plan.deterministic = 1;
    near(64 / predict(0).rate - floats, 3 * FRAMED, 1e-3);
    plan.exchange = ECHI_EXCHANGE_SERVER;
    plan.deterministic = 0;
}

static void updates_take_what_is_said_of_them(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 1};
    nodes(4, seconds);
    load.trunk = 4000000;
    times[0].exchange = 2;
    times[0].update = 10;
    whole(ECHI_SYNC_BSP, 4, 16);
    near(predict(0).rate, 64 / (16 + 3 * 1.7 + 3 * 1.7 + 4 * 0.3 + 10), 0.01);
    /* Leases are dealt beside the lane: where an update of the coordinator's own group takes an hour, the other group does not
     * wait for it. */
    nodes(2, seconds);
    times[0].update = 3600;
    whole(ECHI_SYNC_GSSP, 2, 16);
    plan.n_groups = 2;
    plan.group_of[0] = 1;
    plan.owner_of[1] = 0;
    plan.owner_of[0] = 1;
    near(predict(256).rate, 1 + 16 / (16 + 3600 * (1 + 3 * 0.36)), 2e-3);
}

/* R: a group does three samples more than the other is known to have had, and word of a state is 4 s old at least. Else nobody waits. */
static void no_group_runs_far_ahead(void **state) {
    (void)state;
    nodes(2, (const double[]){0.1, 0.1});
    load.trunk = 4000000;
    for (int r = 0; r < 2; r++) times[r].link = echi_link_of(1e6);
    whole(ECHI_SYNC_GSSP, 2, 1);
    plan.n_groups = 2;
    plan.group_of[1] = 1;
    plan.owner_of[1] = 1;
    plan.rounds_apart = 100;
    near(predict(256).rate, 2 / 0.1, 0.01);
    plan.rounds_apart = 1;
    const double rate = predict(256).rate;
    if (!(rate <= 2 * 3 / 4.0 * 1.02 && rate >= 3 / 4.0)) fail_msg("%g samples a second", rate);
}

static void a_codec_costs_time_and_saves_bytes(void **state) {
    (void)state;
    const double seconds[] = {1, 1};
    /* What stays on its node is written and read whole, gradients and weights: 2 (1.4 + 2) updates and the update itself. */
    nodes(1, seconds);
    load.trunk = 400;
    times[0].update = 0.5;
    whole(ECHI_SYNC_ASP, 1, 16);
    plan.codec = ECHI_CODEC_TOPK;
    plan.ratios = ECHI_RATIOS_VOLUME;
    plan.state_ratio = ECHI_RATIO_STATES;
    plan.base[0] = 200000;
    near(predict(0).rate, 16 / (16 + 7.8 * 0.5), 1e-6);
    /* Links: a push at the ratio that a run comes to, and weights of which every 32nd are complete. */
    nodes(2, seconds);
    load.trunk = 40000000;
    times[0].link = times[1].link = echi_link_of(1e6);
    whole(ECHI_SYNC_BSP, 2, 16);
    plan.codec = ECHI_CODEC_TOPK;
    plan.ratios = ECHI_RATIOS_VOLUME;
    plan.state_ratio = ECHI_RATIO_STATES;
    plan.base[0] = 200000;
    const uint64_t count = 10000000;
    const double push = (double)echi_coded_bytes(count, 1600) / 1e6;   /* 0.2^4 */
    const double a_part = (double)echi_coded_bytes(count, ECHI_RATIO_STATES), all = (double)echi_coded_bytes(count, ECHI_RATIO_ONE);
    const double weights = (31 * a_part + all) / 32 / 1e6;
    near(predict(0).rate, 32 / (16 + push + weights), 1e-3);
    whole(ECHI_SYNC_BSP, 2, 16);
    near(predict(0).rate, 32 / (16 + 80.0), 1e-3);
}

static void the_head_is_one_for_all(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 1, 1};
    nodes(5, seconds);
    whole(ECHI_SYNC_ASP, 5, 16);
    plan.cut = 1;
    plan.head = 4;
    plan.group_of[4] = ECHI_NONE;
    plan.n[4] = 0;
    /* Four workers, 12.8 s of trunk a step: the head, 3.2 s a step, of which a part is behind its answer, is enough. */
    near(predict(64).rate, 16 * 4 / (12.8 + 3.2 * ECHI_HEAD_ANSWERS), 1e-6);
    /* Twice as slow it is what all wait for: 6.4 s for 16 rows, merged or not. */
    for (int i = 0; i < 2; i++) times[4].head[i] *= 2;
    near(predict(64).rate, 16 / 6.4, 0.01);
    /* Rows through links: 16 rows of 2 MB out at 4 MB a second, back 1 MB each: 8 s and 4 s more for one alone. */
    nodes(5, seconds);
    load.row = 2000000;
    load.row_grad = 1000000;
    whole(ECHI_SYNC_BSP, 5, 16);
    memset(plan.n, 0, sizeof plan.n);
    memset(plan.group_of, ECHI_NONE, sizeof plan.group_of);
    plan.group_of[1] = 0;
    plan.n[1] = plan.round = 16;
    plan.cut = 1;
    plan.head = 4;
    times[1].link = echi_link_of(4e6);
    near(predict(0).rate, 16 / (12.8 + 3.2 * ECHI_HEAD_ANSWERS + (8 + 4) * FRAMED), 1e-5);
    /* On the head's own node no rows travel, and a step is a step, but for some hundred bytes that go to the owner and back. */
    plan.head = 1;
    near(predict(0).rate, 1, 1e-5);
}

/* Two workers, n samples each, and on a third node the head; in rounds the trunk is one part of 400 bytes. */
static void two_beside_a_head(enum echi_sync sync, const double *seconds, uint32_t n) {
    nodes(3, seconds);
    whole(sync, 3, n);
    plan.cut = 1;
    plan.head = 2;
    plan.group_of[2] = ECHI_NONE;
    plan.n[2] = 0;
    if (sync != ECHI_SYNC_BSP) return;
    plan.round = 2 * n;
    plan.parts = (struct echi_parts){.count = 1, .part = {{.count = 100}}};
    load.trunk = 400;
}

/* Two workers, 12.8 s a step, a third of it forward; the head takes 3.2 s for the rows of each, and answers the second's before all of that
 * is over. A whole step waits for both; of a step in m micro-batches each part of the head's work is shorter than the backward pass of its
 * part, so nothing waits but the first, for its part of forward and head. Where the head is far away they travel meanwhile; but the third's
 * worker hears of a free place as late as of the first answer. */
static void micro_batches_hide_the_head(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1}, step = 12.8, forward = step / 3, head = 3.2 + 3.2 * ECHI_HEAD_ANSWERS, delay = 5;
    two_beside_a_head(ECHI_SYNC_BSP, seconds, 16);
    for (int m = 1; m <= 8; m *= 2) {
        plan.micro_batches = (uint8_t)(m > 1 ? m : 0);
        const double first = (forward + head) / m, from = first > forward ? first : forward;
        near(predict(0).rate, 32 / (from + step - forward), 1e-6);
    }
    times[2].delay = delay;
    for (int m = 1; m <= 2; m *= 2) {
        plan.micro_batches = (uint8_t)(m > 1 ? m : 0);
        near(predict(0).rate, 32 / ((forward + head) / m + 2 * delay + step - forward), 1e-3);
    }
    plan.micro_batches = 4;
    assert_true(predict(0).rate < 32 / (4 * delay + step / 3));
}

/* Two workers, the second later by a quarter, and a head on a third node. One that takes as long for a few rows as for all computes them in
 * one visit where it gathers, else the second's wait for the first's. One that takes as long as there are rows only waits longer. */
static void a_head_that_gathers_computes_once(void **state) {
    (void)state;
    const double seconds[] = {1, 1.25, 1}, step = 12.8 * 1.25, forward = step / 3, first = 12.8 / 3, head = 6.4;
    for (int flat = 0; flat < 2; flat++) {
        two_beside_a_head(ECHI_SYNC_BSP, seconds, 16);
        for (int i = 0; i < 2; i++) times[2].head[i] = flat ? head : head / 32 * times[2].n[i];
        const double half = flat ? head : head / 2, second = first + half > forward ? first + half : forward;
        near(predict(0).rate, 32 / (second + half * ECHI_HEAD_ANSWERS + step - forward), 1e-3);
        plan.gathers = 1;
        near(predict(0).rate, 32 / (forward + head * ECHI_HEAD_ANSWERS + step - forward), 1e-3);
    }
}

static void two_flights_hide_what_is_waited_for(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1};
    two_beside_a_head(ECHI_SYNC_ASP, seconds, 10);
    plan.owner_of[0] = 2;
    times[2].delay = 2;   /* 8 s a step on the way, 2 s at the head and a part of them before its answer, 8 s here */
    near(predict(64).rate, 2 * 10 / (16 + 2 * ECHI_HEAD_ANSWERS), 1e-2);
    plan.flights = 2;
    const double two = predict(64).rate;
    near(two, 2 * 10 / 9.0, 0.12);   /* a lane is never empty for long */
    assert_true(two <= 2 * 10 / 8.0 * (1 + 1e-9));
}

/* ---- chance ---- */

/* Throughput over that of BSP with equal shares, zero: not in the table. Speeds: four classes of four, geometric. The reference was
 * one seed a cell. */
static const struct { double spread, jitter, stutter, by_speed, ssp, asp, gssp; } found[] = {
    {2, 0, 0, 1.46, 1.00, 1.46, 1.46},    {4, 0, 0, 2.28, 1.00, 2.28, 2.28},    {8, 0, 0, 3.75, 1.00, 3.75, 3.75},
    {1, 0.15, 0, 1.00, 1.27, 1.29, 1.28}, {2, 0.15, 0, 1.32, 1.16, 1.70, 1.69}, {4, 0.15, 0, 2.04, 1.16, 2.64, 2.63},
    {8, 0.15, 0, 3.37, 1.16, 4.35, 4.32}, {4, 0.30, 0, 1.85, 1.31, 3.04, 2.96}, {4, 0.15, 0.02, 1.51, 1.28, 3.26, 3.02},
};

static double relative(enum echi_sync sync, const double *seconds, bool by_speed, int groups, double base) {
    whole(sync, 16, 16);
    if (by_speed) {   /* real shares, not whole samples: more of them */
        double all = 0;
        for (int r = 0; r < 16; r++) all += 1 / seconds[r];
        plan.round = 0;
        for (int r = 0; r < 16; r++) plan.round += plan.n[r] = (uint32_t)(1e6 / seconds[r] / all + 0.5);
    }
    if (groups == 4) {
        plan.n_groups = 4;
        for (int r = 0; r < 16; r++) plan.group_of[r] = (uint8_t)(r / 4);
        for (int g = 0; g < 4; g++) plan.owner_of[g] = (uint8_t)(4 * g);
    }
    return predict(4000).rate / base;
}

/* The mean over many rounds of the slowest of sixteen, by other random numbers. */
static double slowest_of_16(const double *seconds, const struct echi_times *t) {
    enum { ROUNDS = 40000 };
    struct echi_random r;
    double sum = 0;
    echi_random_init(&r, 7, ECHI_STREAM_TEST, 9);
    for (int round = 0; round < ROUNDS; round++) {
        double slowest = 0;
        for (int i = 0; i < 16; i++) {
            const double s = seconds[i] * exp(t->jitter * echi_random_normal(&r)) *
                             (echi_random_unit(&r) < t->stutter ? t->stutter_factor : 1);
            if (s > slowest) slowest = s;
        }
        sum += slowest;
    }
    return sum / ROUNDS;
}

static void the_table_that_was_found_before(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i += test_few() ? 4 : 1) {
        double seconds[16];
        for (int r = 0; r < 16; r++) seconds[r] = pow(found[i].spread, r / 4 / 3.0);
        nodes(16, seconds);
        for (int r = 0; r < 16; r++) {
            times[r].jitter = found[i].jitter;
            times[r].stutter = found[i].stutter;
            times[r].stutter_factor = 5;
        }
        whole(ECHI_SYNC_BSP, 16, 16);
        const double base = predict(4000).rate;
        const double got[] = {relative(ECHI_SYNC_BSP, seconds, true, 1, base), relative(ECHI_SYNC_SSP, seconds, false, 1, base),
                              relative(ECHI_SYNC_ASP, seconds, false, 1, base), relative(ECHI_SYNC_GSSP, seconds, false, 4, base)};
        const double expected[] = {found[i].by_speed, found[i].ssp, found[i].asp, found[i].gssp};
        near(256 / base, slowest_of_16(seconds, &times[0]) * 16, 0.02);
        /* A stutter of a slow node makes a round five times as long: the one BSP run of that row, of a few hundred rounds, has a noise
         * of 4 %, and all of the row leans on it. Its columns are compared with each other. */
        const bool lean = found[i].stutter > 0;
        for (int k = lean; k < 4; k++)
            near(got[k] / (lean ? got[0] : 1), expected[k] / (lean ? expected[0] : 1), lean ? 0.04 : 0.015);
    }
}

/* ---- what must hold of any ---- */

/* A valid plan by the planner over random nodes and links. */
static bool any(struct echi_random *r) {
    double seconds[12] = {0};
    const int world = 1 + (int)echi_random_below(r, 12);
    for (int i = 0; i < world; i++) seconds[i] = 1e-4 * (1 + 9 * echi_random_unit(r));
    nodes(world, seconds);
    load = (struct echi_load){.trunk = echi_random_below(r, 100000), .head = echi_random_below(r, 1000000), .row = 1601, .row_grad = 1600};
    for (int i = 0; i < world; i++) {
        times[i].exchange = echi_random_below(r, 2) * 1e-4 * echi_random_unit(r);
        times[i].update = echi_random_below(r, 2) * 1e-4 * echi_random_unit(r);
        times[i].messages = echi_random_below(r, 2) * 1e-4;
        times[i].link = echi_link_of(echi_random_below(r, 2) * (1e6 + 1e8 * echi_random_unit(r)));
        times[i].delay = echi_random_below(r, 2) * 1e-3 * echi_random_unit(r);
        times[i].jitter = echi_random_below(r, 2) * 0.3 * echi_random_unit(r);
        times[i].stutter = echi_random_below(r, 2) * 0.05;
        times[i].stutter_factor = 5;
    }
    struct echi_plan_request w = {.sync = (enum echi_sync)echi_random_below(r, ECHI_SYNCS), .world = world,
                            .separate = (int)echi_random_below(r, 2), .has_cut = true, .groups = (int)echi_random_below(r, 4),
                            .staleness = echi_random_below(r, 5), .lr = 0.1};
    char text[240];
    return echi_plan_make(&w, times, &plan, text, sizeof text) == ECH_OK;
}

static double unbound(int r) {
    if (!(times[r].trunk[0] > 0)) return plan.n[r];
    return plan.n[r] / (echi_times_trunk(&times[r], plan.n[r]) + (plan.cut ? 0 : echi_times_head(&times[r], plan.n[r])));
}

static void any_plan_has_a_rate(void **state) {
    (void)state;
    int made = 0;
    for (uint32_t seed = 1; seed <= 400; seed += test_part()) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 21);
        if (!any(&r)) continue;
        made++;
        const struct echi_prediction p = predict(0), again = predict(0);
        double all = 0;
        bool random = false;
        for (int i = 0; i < plan.world; i++) {
            all += plan.n[i] ? unbound(i) : 0;
            random = random || times[i].jitter > 0 || times[i].stutter > 0;
        }
        if (memcmp(&p, &again, sizeof p) != 0) fail_msg("seed %u: another number the second time", seed);
        if (!random && p.rate > all * (1 + 1e-6)) fail_msg("seed %u: %g a second, but all nodes together make %g", seed, p.rate, all);
        if (plan.sync == ECHI_SYNC_BSP ? p.staleness != 0 : !(p.staleness >= 0 && p.staleness < 100))
            fail_msg("seed %u: %g stale", seed, p.staleness);
        /* Everything twice as fast makes everything twice as much. Times are whole nanoseconds: who comes first may differ. */
        for (int i = 0; i < plan.world; i++) {
            for (uint32_t k = 0; k < times[i].count; k++) times[i].trunk[k] /= 2, times[i].head[k] /= 2;
            times[i].exchange /= 2;
            times[i].update /= 2;
            times[i].messages /= 2;
            times[i].delay /= 2;
            times[i].link = echi_link_of(2 * times[i].link.out.rate);
        }
        const struct echi_prediction twice = predict(0);
        if (!(fabs(twice.rate / p.rate / 2 - 1) <= 0.01 && fabs(twice.staleness - p.staleness) <= 0.005 + 0.01 * p.staleness))
            fail_msg("seed %u: %g, twice as fast %g; %g stale, then %g", seed, p.rate, twice.rate, p.staleness, twice.staleness);
    }
    assert_true(made > 300 / (int)test_part());
}

/* A resource more: never clearly slower, where all wait for all. (Else it may be: a faster node takes more of a link or of the head
 * that all need, and one that made better use of it gets less, or holds up those beside it.) */
static void more_is_never_clearly_less(void **state) {
    (void)state;
    int compared = 0;
    for (uint32_t seed = 1; seed <= 800; seed += test_part()) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 22);
        if (!any(&r) || plan.sync != ECHI_SYNC_BSP) continue;
        /* Without chance nodes fall in step with each other, well or badly: a faster one may then always come when the head is busy. */
        for (int i = 0; i < plan.world; i++) times[i].jitter = 0.2, times[i].stutter = 0;
        const double before = predict(200).rate;
        const int who = (int)echi_random_below(&r, plan.world);
        for (int what = 0; what < 5; what++) {
            const struct echi_times was = times[who];
            switch (what) {
            case 0: times[who].link = echi_link_of(2 * times[who].link.out.rate); break;
            case 1: times[who].delay /= 2; break;
            case 2: times[who].exchange /= 2; break;
            case 3: times[who].messages = 0; break;
            default: for (uint32_t k = 0; k < was.count; k++) times[who].trunk[k] *= 0.7, times[who].head[k] *= 0.7;
            }
            const double after = predict(200).rate;
            if (after < 0.95 * before) fail_msg("seed %u: more of %d at rank %d: %g instead of %g", seed, what, who, after, before);
            compared++;
            times[who] = was;
        }
    }
    assert_true(compared > 700 / (int)test_part());
}

/* Of rounds and of pushes: a push and weights a step of each worker go over its link, all of them over the owner's, and none over that of a
 * worker on the owner's node. What words take is less than a thousandth. */
static void links_carry_pushes_and_weights(void **state) {
    (void)state;
    const double seconds[] = {1, 1, 1, 1};
    nodes(4, seconds);
    load.trunk = 4000000;
    for (int r = 0; r < 4; r++) times[r].link = echi_link_of(1e6);
    for (int i = 0; i < 2; i++) {
        whole(i ? ECHI_SYNC_SSP : ECHI_SYNC_BSP, 4, 16);
        const double steps = predict(200).rate / 64;   /* of each worker, a second */
        for (int r = 0; r < 4; r++) {
            near(work.traffic[r].out, (r ? 1 : 3) * 4e6 * steps, 0.02);
            near(work.traffic[r].in, (r ? 1 : 3) * 4e6 * steps, 0.02);
        }
    }
    /* Part by part, of an owner that trains nothing. */
    whole(ECHI_SYNC_BSP, 4, 16);
    plan.group_of[0] = ECHI_NONE;
    plan.n[0] = 0;
    plan.round = 48;
    plan.parts.count = 2;
    for (int i = 0; i < 2; i++)
        plan.parts.part[i] = (struct echi_part){.at = 500000u * (unsigned)i, .count = 500000, .first = (uint8_t)i, .last = (uint8_t)i};
    const double rounds = predict(0).rate / 48;
    for (int r = 0; r < 4; r++) {
        near(work.traffic[r].out, (r ? 1 : 3) * 4e6 * rounds, 0.02);
        near(work.traffic[r].in, (r ? 1 : 3) * 4e6 * rounds, 0.02);
    }
}

static void staleness_costs_efficiency(void **state) {
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        near(echi_statistical_efficiency(apart, 0), 1, 1e-12);
        for (double s = 0; s < 20; s += 0.01) {
            assert_true(echi_statistical_efficiency(apart, s) < 2);
            if (s > 1.4) assert_true(echi_statistical_efficiency(apart, s) < echi_statistical_efficiency(apart, s - 0.01));
            assert_true(echi_statistical_efficiency(true, s) >= echi_statistical_efficiency(false, s));
        }
    }
    /* The measured rows: epochs of BSP over those that it took. */
    near(echi_statistical_efficiency(true, 1.3), 1.80 / 1.55, 0.02);
    near(echi_statistical_efficiency(true, 2.3), 1.45 / 1.65, 0.02);
    /* The first table is for models that have most of their parameters in a head apart: LeNet-5, not ResNet-18. */
    assert_true(echi_mostly_separated(&(struct echi_load){.trunk = 4 * 2572, .head = 4 * 59134}, true));
    assert_false(echi_mostly_separated(&(struct echi_load){.trunk = 4 * 2572, .head = 4 * 59134}, false));
    assert_false(echi_mostly_separated(&(struct echi_load){.trunk = 4 * 11167680u, .head = 4 * 5130}, true));
    assert_true(echi_mostly_separated(&(struct echi_load){0}, true));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_chance_rates_are_those_of_the_formulas),
        cmocka_unit_test(staleness_is_what_others_do_in_a_step),
        cmocka_unit_test(bytes_take_their_time), cmocka_unit_test(copies_are_no_link), cmocka_unit_test(machines_are_shared),
        cmocka_unit_test(links_carry_pushes_and_weights),
        cmocka_unit_test(units_decide_what_overlaps),
        cmocka_unit_test(rounds_by_part_overlap),
        cmocka_unit_test(sums_of_integers_are_longer), cmocka_unit_test(updates_take_what_is_said_of_them),
        cmocka_unit_test(no_group_runs_far_ahead),
        cmocka_unit_test(a_codec_costs_time_and_saves_bytes),
        cmocka_unit_test(the_head_is_one_for_all),
        cmocka_unit_test(micro_batches_hide_the_head),
        cmocka_unit_test(a_head_that_gathers_computes_once),
        cmocka_unit_test(two_flights_hide_what_is_waited_for),
        cmocka_unit_test(the_table_that_was_found_before),
        cmocka_unit_test(any_plan_has_a_rate),
        cmocka_unit_test(more_is_never_clearly_less),
        cmocka_unit_test(staleness_costs_efficiency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
