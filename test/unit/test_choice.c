/* SPDX-License-Identifier: Apache-2.0
 * Which plan is taken, against brute force over all that could have been; and who holds the others up, against each node left out. */
#include "echi_choice.h"
#include "echi_efficiency.h"
#include "echi_predict_rounds.h"
#include "echi_random.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan_request request;
static struct echi_plan plan;
static struct echi_choice choice;
static struct echi_choice_work work;
static char text[240];

/* LeNet-5's bytes and layers, and its head a sixth of the arithmetic. Speeds in images a second. */
static void lenet(int world, const double *speed) {
    memset(times, 0, sizeof times);
    for (int r = 0; r < world; r++) {
        static const uint32_t n[] = {8, 16, 32, 64, 128};
        times[r].count = 5;
        for (int i = 0; i < 5; i++) {
            times[r].n[i] = n[i];
            times[r].trunk[i] = n[i] / speed[r] * 5 / 6;
            times[r].head[i] = n[i] / speed[r] / 6;
        }
        times[r].link = echi_link_of(1.25e8);
        times[r].delay = 5e-5;
    }
    request = (struct echi_plan_request){.choose = true, .world = world, .separate = -1, .has_cut = true, .heads = 1, .staleness = 3,
                                  .lr = 0.02, .momentum = 0.9, .load = {.trunk = 4 * 2572, .head = 4 * 59134, .row = 1601, .row_grad = 1600,
                                                             .layers = 2, .head_layers = 3}};
}

static void take(void) {
    if (echi_plan_choose(&request, times, &work, &plan, &choice, text, sizeof text) != ECH_OK) fail_msg("%s", text);
    assert_true(echi_plan_valid(&plan));
    assert_true(choice.count >= 1 && choice.count <= ECHI_CANDIDATES_MAX && choice.taken >= 0 && choice.taken < choice.count);
    const struct echi_candidate *c = &choice.candidate[choice.taken];
    assert_true(c->sync == plan.sync && c->groups == plan.n_groups && c->cut == plan.cut);
}

static void chance(double jitter, double stutter) {
    for (int r = 0; r < request.world; r++) {
        times[r].jitter = jitter;
        times[r].stutter = stutter;
        times[r].stutter_factor = 5;
    }
}

static void classes(const double *of_four) {
    double speed[16];
    for (int r = 0; r < 16; r++) speed[r] = of_four[r / 4];
    lenet(16, speed);
}

static struct echi_candidate one(struct echi_plan_request w, enum echi_sync sync, int separate, int groups, struct echi_plan *out) {
    struct echi_prediction p;
    w.choose = false;
    w.sync = sync;
    w.separate = separate;
    w.groups = groups;
    if (sync == ECHI_SYNC_BSP) w.samples_per_step = 0;
    if (echi_plan_make(&w, times, out, text, sizeof text) != ECH_OK) return (struct echi_candidate){0};
    assert_true(echi_plan_valid(out));
    echi_predict(out, times, &w.load, 0, &work.predict, &p);
    const bool mostly_separated = out->cut && w.load.head >= w.load.trunk;
    const double efficiency = echi_statistical_efficiency(mostly_separated, p.behind);
    return (struct echi_candidate){.sync = out->sync, .groups = out->n_groups, .cut = out->cut, .rate = p.rate,
                                   .mostly_separated = mostly_separated, .staleness = p.staleness, .efficiency = efficiency,
                                   .goodput = p.rate * efficiency, .oldest = p.oldest, .behind = p.behind};
}

/* A head that takes as long for one step's rows as for those of all has all in one visit, where no step is much later than the others. */
static void a_head_gathers_where_that_gains(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        const double speed[] = {4000, 4000, 4000, late ? 200 : 4000};
        lenet(4, speed);
        request.choose = false;
        request.sync = ECHI_SYNC_BSP;
        request.separate = 1;
        request.shares = ECHI_SHARES_EQUAL;
        request.micro_batches = 1;
        request.batch = 256;
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 5; i++) times[r].head[i] = 0.01;
        take();
        const double rate = choice.candidate[choice.taken].rate;
        assert_int_equal(plan.gathers, !late);
        plan.gathers = !plan.gathers;
        echi_plan_judge(&request, times, &plan, &work, &choice);
        assert_true(choice.candidate[0].rate < rate / (late ? 0.99 : 1.1));
    }
}

/* Micro-batches are taken where they are clearly faster than whole steps, as many as are the best of those tried; else none. */
static void steps_are_cut_where_that_gains(void **state) {
    (void)state;
    const double speed[] = {4000, 4000, 4000, 4000};
    for (int links = 0; links < 2; links++) {
        double best = 0, whole = 0;
        lenet(4, speed);
        request.choose = false;
        request.sync = ECHI_SYNC_BSP;
        request.separate = 1;
        request.batch = 256;
        request.layers = (struct echi_layers){.count = 5, .cut = 2, .params = {156, 2416, 48120, 10164, 850}};
        for (int r = 0; r < 4; r++) {
            times[r].link = echi_link_of(links ? 1.25e7 : 0);
            times[r].delay = links ? 5e-5 : 0;
            if (links) continue;
            for (int i = 0; i < 5; i++) times[r].trunk[i] = times[r].head[i] = 0.01;   /* small steps take as long as large ones */
        }
        take();
        const int taken = plan.micro_batches;
        const double rate = choice.candidate[choice.taken].rate;
        for (int micros = 1; micros <= 8; micros *= 2) {
            request.micro_batches = micros;
            take();
            assert_int_equal(plan.micro_batches, micros > 1 ? micros : 0);
            best = fmax(best, choice.candidate[choice.taken].rate);
            if (micros == 1) whole = choice.candidate[choice.taken].rate;
        }
        assert_true(links ? taken > 1 && rate > 1.2 * whole : taken == 0);
        assert_true(rate >= best / 1.02 && rate >= whole);
        /* Statistics over a whole step: not by itself, and not when it is asked for. */
        request.layers.norm[1] = true;
        request.micro_batches = 0;
        take();
        assert_int_equal(plan.micro_batches, 0);
        request.micro_batches = 4;
        assert_int_equal(echi_plan_choose(&request, times, &work, &plan, &choice, text, sizeof text), ECH_E_ARGUMENT);
        assert_non_null(strstr(text, "batch-norm"));
        request.layers.norm[1] = false;
        request.layers.norm[2] = true;   /* of the head's */
        take();
        assert_int_equal(plan.micro_batches, 4);
        request.sync = ECHI_SYNC_SSP;
        assert_int_equal(echi_plan_choose(&request, times, &work, &plan, &choice, text, sizeof text), ECH_E_ARGUMENT);
    }
}

/* Nothing to win by not waiting. */
static void even_nodes_go_in_step(void **state) {
    (void)state;
    classes((const double[]){2000, 2000, 2000, 2000});
    for (int r = 0; r < 16; r++) times[r].link = echi_link_of(0), times[r].delay = 0;
    request.separate = 0;
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_BSP);
    assert_int_equal(plan.cut, 0);
    assert_int_equal(choice.net_negative, -1);
    /* Nor is the usual jitter worth a round's staleness in all layers. */
    chance(0.15, 0);
    request.samples_per_step = 16;
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_BSP);
}

static void unlike_nodes_go_in_groups_with_the_head_apart(void **state) {
    (void)state;
    classes((const double[]){500, 1000, 2000, 4000});
    chance(0.15, 0.02);
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_GSSP);
    assert_true(plan.cut > 0);
    assert_true(plan.n_groups > 1);
}

/* ResNet-18 at a quarter of its width on the same nodes. Its head is a five-hundredth of it: apart, all the rest is as stale as before. */
static void a_small_head_apart_spares_nothing(void **state) {
    (void)state;
    classes((const double[]){500, 1000, 2000, 4000});
    chance(0.15, 0.02);
    for (int r = 0; r < 16; r++) times[r].exchange = 1e-3;   /* its update */
    request.load.trunk = 4 * 702576;
    request.load.head = 4 * 1290;
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_BSP);
    /* A round waits for links: a few fast ones alone are sooner done. Without one of sixteen not much is gained. */
    assert_true(choice.left_out && echi_plan_workers(&plan, -1) <= 4);
    double best = 0;
    for (int keep = 2; keep <= 16; keep++) {
        struct echi_plan_request w = request;
        struct echi_plan few;
        w.batch = 256;
        for (int r = 0; r < 16 - keep; r++) w.absent[r] = true;
        best = fmax(best, one(w, ECHI_SYNC_BSP, 0, 0, &few).goodput);
    }
    assert_true(choice.candidate[choice.taken].goodput * 1.1 > best);
    int apart = 0;
    for (int i = 0; i < choice.count; i++) {
        assert_false(choice.candidate[i].mostly_separated);
        apart += choice.candidate[i].cut > 0;
    }
    assert_true(apart > 0);   /* still looked at */
    /* The same bytes with the greater part in the head. */
    request.load.trunk = 4 * 1290;
    request.load.head = 4 * 702576;
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_GSSP);
    assert_true(plan.cut > 0);
    assert_true(choice.candidate[choice.taken].mostly_separated);
}

/* ---- what is known of efficiencies ---- */

static void is(struct echi_efficiency known, double value, double error, bool measured) {
    assert_true(fabs(known.value - value) < 1e-12 && fabs(known.error - error) < 1e-12 && known.measured == measured);
}

static void a_measurement_tells_of_its_policy_at_about_its_staleness(void **state) {
    (void)state;
    struct echi_evidence none = {0}, some = {.count = 3, .of = {{ECHI_SYNC_GSSP, 1, 2, 0.8, 0.05}, {ECHI_SYNC_SSP, 0, 1, 0.5, 0.1},
                                                                {ECHI_SYNC_SSP, 0, 3, 1.25, 0.2}}};
    for (double behind = 0; behind < 8; behind += 0.25)
        for (int mostly = 0; mostly < 2; mostly++) {
            const double table = echi_statistical_efficiency(mostly, behind), error = 0.15 * fmin(behind, 1);
            is(echi_efficiency_of(&none, ECHI_SYNC_GSSP, true, mostly, behind), table, error, false);
            is(echi_efficiency_of(&some, ECHI_SYNC_ASP, true, mostly, behind), table, error, false);
            is(echi_efficiency_of(&some, ECHI_SYNC_GSSP, false, mostly, behind), table, error, false);
            if (behind < 1 || behind > 4) is(echi_efficiency_of(&some, ECHI_SYNC_GSSP, true, mostly, behind), table, error, false);
            else is(echi_efficiency_of(&some, ECHI_SYNC_GSSP, true, mostly, behind), 1 / (1 + 0.125 * behind), 0.05, true);
        }
    is(echi_efficiency_of(&none, ECHI_SYNC_BSP, false, false, 0), 1, 0, false);
    /* Of two the nearer; what it gains does not grow. */
    is(echi_efficiency_of(&some, ECHI_SYNC_SSP, false, false, 1.7), 1 / (1 + 1.7), 0.1, true);
    is(echi_efficiency_of(&some, ECHI_SYNC_SSP, false, false, 1.8), 1 / (1 - 0.2 * 1.8 / 3), 0.2, true);
    is(echi_efficiency_of(&some, ECHI_SYNC_SSP, false, false, 3), 1.25, 0.2, true);
    is(echi_efficiency_of(&some, ECHI_SYNC_SSP, false, false, 6), 1.25, 0.2, true);
}

/* That all others were measured to need, whatever their staleness. */
static void measured(double efficiency, double error) {
    for (int i = 0; i < ECHI_MEASURED_MAX; i++) {
        const double behind = 0.2 * pow(4, i / 4);
        const enum echi_sync sync = i % 2 ? ECHI_SYNC_SSP : ECHI_SYNC_GSSP;
        request.evidence.of[i] = (struct echi_measured){(uint8_t)sync, (uint8_t)(i / 2 % 2), behind, efficiency, error};
    }
    request.evidence.count = ECHI_MEASURED_MAX;
}

static void what_was_measured_decides(void **state) {
    (void)state;
    lenet(8, (const double[]){500, 500, 1000, 1000, 2000, 2000, 4000, 4000});
    chance(0.15, 0.02);
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_GSSP);
    assert_false(choice.candidate[choice.taken].measured);
    measured(1 / ECHI_MEASURED_LIMIT, 0);
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_BSP);
    const double in_step = choice.candidate[choice.taken].goodput;
    measured(1, 0);
    take();
    assert_true(plan.sync != ECHI_SYNC_BSP && choice.candidate[choice.taken].measured);
    const double not_waiting = choice.candidate[choice.taken].rate;
    assert_true(not_waiting > in_step * 1.1);
    /* Better by more than the error; or by less. */
    measured(1, 1 - in_step * 1.05 / not_waiting);
    take();
    assert_int_not_equal(plan.sync, ECHI_SYNC_BSP);
    measured(1, 1 - in_step * 0.9 / not_waiting);
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_BSP);
    /* Where a policy was given nothing is weighed. */
    request.choose = false;
    request.sync = ECHI_SYNC_GSSP;
    request.separate = 1;   /* but whether a head is worth it, where that is left open */
    take();
    const int groups = plan.n_groups;
    const double rate = choice.candidate[choice.taken].rate;
    request.evidence.count = 0;
    take();
    assert_true(plan.n_groups == groups && choice.candidate[choice.taken].rate == rate);
}

/* ---- brute force ---- */


static void random_nodes(struct echi_random *r) {
    double speed[10] = {0};
    const int world = 1 + (int)echi_random_below(r, 10);
    for (int i = 0; i < world; i++) speed[i] = 500 * (1 + echi_random_below(r, 4) * echi_random_unit(r) * 3);
    lenet(world, speed);
    if (echi_random_below(r, 2)) chance(0.3 * echi_random_unit(r), 0.04 * echi_random_unit(r));
    for (int i = 0; i < world; i++) {
        if (echi_random_below(r, 4) == 0) times[i].link = echi_link_of(1e6 + 1e7 * echi_random_unit(r));
        if (echi_random_below(r, 6) == 0) times[i].delay = 0.05 * echi_random_unit(r);
        times[i].exchange = echi_random_below(r, 2) * 1e-3 * echi_random_unit(r);
    }
    request.separate = (int)echi_random_below(r, 3) - 1;
    request.has_cut = request.separate == 1 || echi_random_below(r, 4) != 0;
    request.groups = echi_random_below(r, 3) ? 0 : 1 + (int)echi_random_below(r, 4);
    request.staleness = echi_random_below(r, 5);
}

static void the_best_of_all_is_taken(void **state) {
    (void)state;
    int of_kind[ECHI_SYNCS][2] = {{0}}, left_out = 0;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        struct echi_random r;
        struct echi_plan other;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 31);
        random_nodes(&r);
        take();
        left_out += choice.left_out;
        of_kind[plan.sync][plan.cut > 0]++;
        const double got = choice.candidate[choice.taken].goodput;
        double best = 0;
        for (int sync = ECHI_SYNC_BSP; sync <= ECHI_SYNC_GSSP; sync++)
            for (int apart = request.separate == 1; apart <= (request.has_cut && request.separate != 0); apart++)
                for (int g = 1; g <= ECHI_GROUPS_MAX && sync != ECHI_SYNC_ASP; g++)
                    for (int length = 0; length < 4; length++) {
                        struct echi_plan_request w = request;
                        w.samples_per_step = apart || length == 0 ? 0 : 8u << length;
                        w.under_way = apart ? 1 + 0.75 * length : 0;
                        if (sync == ECHI_SYNC_GSSP ? request.groups > 0 && g != request.groups : g > 1) break;
                        const struct echi_candidate c = one(w, (enum echi_sync)sync, apart, g, &other);
                        if (c.goodput > best) best = c.goodput;
                    }
        /* The length of a step is chosen first, the number of groups then, and each has to be clearly better. */
        if (got * 1.12 < best) fail_msg("seed %u: a goodput of %g, but %g is possible", seed, got, best);
        struct echi_prediction p;
        echi_predict(&plan, times, &request.load, 0, &work.predict, &p);
        assert_true(p.rate == choice.candidate[choice.taken].rate && p.rate * echi_statistical_efficiency(plan.cut > 0, p.behind) == got);
    }
    assert_true(left_out > 0 && left_out < 10);
    assert_true(of_kind[ECHI_SYNC_BSP][0] > 0 && of_kind[ECHI_SYNC_GSSP][1] > 0);
}

/* gssp with groups left open: of those that leave no group more than eight rounds behind (where nothing is apart) none is clearly faster,
 * and groups of like speed are not left for less than that. */
static bool far_behind(const struct echi_candidate *c) { return !c->mostly_separated && c->oldest > 8; }
static void groups_are_as_many_as_are_fast(void **state) {
    (void)state;
    int more = 0, fewer = 0, forgone = 0;
    for (uint32_t seed = 1; seed <= 12; seed++) {
        struct echi_random r;
        struct echi_plan like, other;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 32);
        random_nodes(&r);
        request.choose = false;
        request.sync = ECHI_SYNC_GSSP;
        request.groups = 0;
        if (seed % 2) {   /* all layers through slow links: each group more sends more states */
            request.has_cut = false;
            request.separate = 0;
            request.staleness = 20;
            for (int i = 0; i < request.world; i++) times[i].link = echi_link_of(5e6 + 5e6 * echi_random_unit(&r));
        }
        take();
        const struct echi_candidate of_like = one(request, ECHI_SYNC_GSSP, request.separate, 0, &like);
        const double got = choice.candidate[choice.taken].rate;
        bool near_one = false;
        for (int g = 1; g <= ECHI_GROUPS_MAX; g++) {
            const struct echi_candidate c = one(request, ECHI_SYNC_GSSP, request.separate, g, &other);
            const bool faster = c.rate > got * 1.02 * (1 + 1e-12);
            if (faster && !far_behind(&c)) fail_msg("seed %u: %d groups are faster", seed, g);
            forgone += faster;
            near_one = near_one || (c.rate > 0 && !far_behind(&c));
        }
        if (near_one && far_behind(&choice.candidate[choice.taken])) fail_msg("seed %u: a group is left behind", seed);
        if (plan.n_groups != like.n_groups && got <= of_like.rate && !far_behind(&of_like))
            fail_msg("seed %u: groups of like speed left for nothing", seed);
        more += plan.n_groups > like.n_groups;
        fewer += plan.n_groups < like.n_groups;
    }
    assert_true((more > 0 || fewer > 0) && forgone > 0);
}

/* ---- net-negative ---- */

/* By how much a run without that node would be faster, chosen as if there had never been such a node. */
static double gain_without(int rank) {
    static struct echi_times all[ECHI_WORLD_MAX];
    static struct echi_plan other;
    static struct echi_choice without;
    struct echi_plan_request w = request;
    const double with = choice.candidate[choice.taken].rate;
    memcpy(all, times, sizeof all);
    memmove(&times[rank], &times[rank + 1], (size_t)(ECHI_WORLD_MAX - 1 - rank) * sizeof times[0]);
    w.world--;
    w.batch = plan.round;
    if (echi_plan_choose(&w, times, &work, &other, &without, text, sizeof text) != ECH_OK) fail_msg("%s", text);
    memcpy(times, all, sizeof all);
    return without.candidate[without.taken].rate / with - 1;
}

static void who_holds_the_others_up_is_named(void **state) {
    (void)state;
    int named = 0, none = 0;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 33);
        random_nodes(&r);
        request.choose = false;
        request.keep_all = true;
        request.sync = echi_random_below(&r, 2) ? ECHI_SYNC_SSP : ECHI_SYNC_BSP;
        request.shares = echi_random_below(&r, 2) ? ECHI_SHARES_EQUAL : ECHI_SHARES_SPEED;
        request.separate = 0;
        request.groups = 1;
        take();
        double best = -1, without[10];   /* an owner's loss says who should own, not who is slow */
        for (int k = 0; k < request.world && request.world > 1; k++) {
            without[k] = k != plan.owner_of[0] || k == choice.net_negative ? gain_without(k) : -1;
            if (k != plan.owner_of[0] && without[k] > best) best = without[k];
        }
        assert_false(choice.left_out);   /* the policy was given: it is only said */
        if (choice.net_negative < 0) {
            none++;
            /* Only the slowest in one way are looked at. */
            if (best > 0.15) fail_msg("seed %u: without one, %g more, and nobody is named", seed, best);
        } else {
            named++;
            const double gain = without[choice.net_negative];
            if (fabs(gain - choice.gain) > 1e-12 || gain < 0.05)
                fail_msg("seed %u: rank %d costs %g, not %g", seed, choice.net_negative, gain, choice.gain);
            if (gain < best - 0.15) fail_msg("seed %u: rank %d costs %g, but another %g", seed, choice.net_negative, gain, best);
        }
    }
    assert_true(named > 2 && none > 2);
}

/* One slow link. It is that node's name, and the gain is what a run without it would have: whoever the head and the owners are now, with
 * their shares and groups, they would be others without it. */
static void a_slow_link_is_not_blamed_on_others(void **state) {
    (void)state;
    static const struct { enum echi_sync sync; int separate, world, slow; double speed[6], link, delay; bool small; } cases[] = {
        {ECHI_SYNC_GSSP, 1, 5, 3, {2000, 8000, 8000, 8000, 4000}, 1.25e7, 5e-5, false},   /* rank 0 is the slowest processor */
        {ECHI_SYNC_BSP, 0, 4, 1, {2000, 8000, 7600, 8000}, 1.25e5, 0.02, false},           /* an owner that is given no samples */
        {ECHI_SYNC_BSP, 0, 5, 1, {7000, 8000, 7600, 2000, 4000}, 1.25e5, 5e-5, false},
        {ECHI_SYNC_BSP, -1, 4, 0, {8000, 8000, 4000, 4000}, 2.5e6, 5e-5, true},            /* rank 0 itself, and it is the owner */
        {ECHI_SYNC_GSSP, 1, 3, 0, {8000, 8000, 7600}, 1.25e5, 5e-5, true},                 /* or the head */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lenet(cases[i].world, cases[i].speed);
        for (int r = 0; r < cases[i].world; r++) {
            times[r].exchange = cases[i].small ? 1e-4 : 1e-3;
            times[r].messages = 2e-5;
        }
        times[cases[i].slow].link = echi_link_of(cases[i].link);
        times[cases[i].slow].delay = cases[i].delay;
        chance(0.1, 0);
        if (!cases[i].small) {   /* ResNet-18, a quarter of its width */
            request.load.trunk = 4 * 700000;
            request.load.head = 4 * 1290;
        }
        request.choose = false;
        request.keep_all = true;
        request.sync = cases[i].sync;
        request.separate = cases[i].separate;
        take();
        if (choice.net_negative != cases[i].slow) fail_msg("case %zu: rank %d, not %d", i, choice.net_negative, cases[i].slow);
        const double gain = gain_without(choice.net_negative);
        if (fabs(gain - choice.gain) > 1e-9 * gain || gain < 0.05) fail_msg("case %zu: a gain of %g, not %g", i, gain, choice.gain);
    }
}

/* Whoever is named on any nodes, the gain is that of a run without. */
static void the_gain_is_that_of_a_run_without(void **state) {
    (void)state;
    int named = 0;
    for (uint32_t seed = 1; seed <= 25; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 34);
        random_nodes(&r);
        if (request.world < 2) continue;
        const uint32_t slow = echi_random_below(&r, (uint32_t)request.world);
        times[slow].link = echi_link_of(1e5 + 1e7 * echi_random_unit(&r));
        request.choose = false;
        request.keep_all = true;
        request.sync = (enum echi_sync)echi_random_below(&r, ECHI_SYNC_GSSP + 1);
        request.shares = echi_random_below(&r, 2) ? ECHI_SHARES_EQUAL : ECHI_SHARES_SPEED;
        take();
        if (choice.net_negative < 0) continue;
        named++;
        const double gain = gain_without(choice.net_negative);
        if (fabs(gain - choice.gain) > 1e-9 * gain || gain < 0.05)
            fail_msg("seed %u: rank %d costs %g, not %g", seed, choice.net_negative, gain, choice.gain);
    }
    assert_true(named > 10);
}

/* Four like nodes, and one whose link makes it a burden in step. */
static void a_burden_is_left_out(void **state) {
    (void)state;
    lenet(5, (const double[]){2000, 2000, 2000, 2000, 2000});
    request.has_cut = false;
    request.load.trunk += request.load.head;
    request.load.head = 0;
    for (int r = 0; r < 5; r++) times[r].link = echi_link_of(r == 3 ? 1e6 : 0);
    take();
    assert_int_equal(choice.net_negative, 3);
    assert_true(choice.gain > 1 && choice.left_out);
    assert_int_equal(plan.group_of[3], ECHI_NONE);
    assert_int_equal(plan.n[3], 0);
    /* The same cluster under a given policy: it is said, and nothing is done about it. */
    request.choose = false;
    request.sync = ECHI_SYNC_BSP;
    take();
    assert_int_equal(choice.net_negative, 3);
    assert_true(!choice.left_out && plan.n[3] > 0);
    /* Four times slower than others it is of use to groups: its own has no one to hold up, and nobody is named; ssp has. */
    lenet(5, (const double[]){2000, 2000, 2000, 500, 2000});
    for (int r = 0; r < 5; r++) times[r].link = echi_link_of(0), times[r].delay = 0;
    request.choose = false;
    request.sync = ECHI_SYNC_GSSP;
    take();
    assert_true(plan.n[3] > 0);
    assert_int_equal(choice.net_negative, -1);
    request.sync = ECHI_SYNC_SSP;
    request.separate = 0;
    take();
    assert_int_equal(choice.net_negative, 3);
    if (fabs(choice.gain - (4 * 2000.0 / (5 * 500) - 1)) > 0.05)
        fail_msg("a gain of %g, %g images/s", choice.gain, choice.candidate[0].rate);
}

/* Links as live nodes measure them, pair by pair: with the thin one each carries little, and what a link is known for is the most that it
 * carried with anybody. One that may be as fast as others is not known to be thin. */
static void thin_links_are_known_by_the_most_they_carried(void **state) {
    static const enum echi_sync policy[] = {ECHI_SYNC_BSP, ECHI_SYNC_GSSP};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct echi_rate thin = {1.2e6, 1.1e6, i % 2 ? 1e7 : 1.3e6}, wide = {1.19e7, 1.1e6, 1.2e7};
        lenet(4, (const double[]){8000, 4000, 4000, 4000});
        for (int r = 0; r < 4; r++) times[r].link = r == 0 ? (struct echi_link){thin, thin} : (struct echi_link){wide, wide};
        request.choose = false;
        request.sync = policy[i / 2];
        take();
        assert_int_equal(choice.thin, i % 2 == 0);
        if (i % 2) continue;
        assert_true(choice.thin_gain > 0.02);
        assert_int_equal(plan.n[0], 0);
        assert_int_equal(echi_plan_group_owned(&plan, 0), -1);
        assert_true(!plan.cut || plan.head != 0);
    }
}

/* Whoever chooses may have to show that it is there: it is called between predictions, none of which takes long. */
struct watch { int calls; clock_t at, longest; };
static void look(void *self) {
    struct watch *w = self;
    const clock_t now = clock();
    if (w->calls++ > 0 && now - w->at > w->longest) w->longest = now - w->at;
    w->at = now;
}
static void a_choice_can_be_watched(void **state) {
    (void)state;
    struct watch watch = {0};
    classes((const double[]){500, 1000, 2000, 4000});
    chance(0.15, 0.02);
    work.between = look;
    work.self = &watch;
    take();
    work.between = NULL;
    assert_true(watch.calls > 50);
    if (!(watch.longest < CLOCKS_PER_SEC / 4)) fail_msg("%d calls, once %.3f s apart", watch.calls, (double)watch.longest / CLOCKS_PER_SEC);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    lenet(3, (const double[]){1, 1, 1});
    request.has_cut = false;
    request.separate = 1;
    memset(text, 0, sizeof text);
    assert_int_equal(echi_plan_choose(&request, times, &work, &plan, &choice, text, sizeof text), ECH_E_ARGUMENT);
    assert_non_null(strstr(text, "--separate"));
    /* A node alone has nothing to choose. */
    lenet(1, (const double[]){1000});
    take();
    assert_int_equal(choice.count, 1);
    assert_int_equal(plan.sync, ECHI_SYNC_BSP);
    assert_int_equal(choice.net_negative, -1);
    /* Times that are numbers, but make no sense, end in a plan all the same. */
    lenet(4, (const double[]){1e300, 1e-5, 1000, 1e300});
    take();
    times[2].delay = 9e5;
    times[1].exchange = 9e5;
    take();
}

/* ResNet-18's parameters in 16 layers on nodes that compute a sample in no time beside what its gradients take on 1 Gb/s. */
static void large(int world) {
    double speed[16];
    for (int r = 0; r < world; r++) speed[r] = 20000;
    lenet(world, speed);
    request.choose = request.has_cut = false;
    request.sync = ECHI_SYNC_BSP;
    request.separate = 0;
    request.batch = 128;
    request.shards = ECHI_SHARDS_AUTO;
    request.exchange = ECHI_EXCHANGES;
    request.load = (struct echi_load){.trunk = 4 * 11183562, .layers = 16};
    request.layers = (struct echi_layers){.count = 16, .cut = 16};
    for (int i = 0; i < 16; i++) request.layers.params[i] = 11183562 / 16;
}

/* A link carries 1.75 models each way where eight train and own, one where four of them do, and the others own. */
static void some_train_and_others_own(void **state) {
    (void)state;
    large(8);
    request.keep_all = true;
    take();
    const double all = choice.candidate[0].rate;
    assert_int_equal(echi_plan_workers(&plan, -1), 8);
    request.keep_all = false;
    take();
    const double some = choice.candidate[0].rate;
    assert_int_equal(echi_plan_workers(&plan, -1), 4);
    int serve = 0;
    for (int k = 0; k < plan.shards; k++) serve += plan.n[plan.shard_owner[k]] == 0;
    assert_int_equal(serve, 4);
    /* A run does not outlive rank 0: where it is nearly as fast it is one of those that train. */
    for (int i = 0; i < 5; i++) times[0].trunk[i] *= 1.05;
    take();
    assert_true(plan.n[0] > 0);
    assert_int_equal(echi_plan_workers(&plan, -1), 4);
    if (!(some > 1.6 * all && some < 1.8 * all)) fail_msg("%g images/s, all train: %g", some, all);
    /* Nobody knows the links: they may be as fast as memory. */
    for (int r = 0; r < 8; r++) times[r].link = echi_link_of(0);
    take();
    assert_int_equal(echi_plan_workers(&plan, -1), 8);
    /* Steps that take longer than the gradients on their way. */
    large(8);
    for (int r = 0; r < 8; r++)
        for (int i = 0; i < 5; i++) times[r].trunk[i] *= 1000;
    take();
    assert_int_equal(echi_plan_workers(&plan, -1), 8);
}

/* Under a policy that was given all train, but whoever would be faster alone is named; where the planner chooses, it trains alone. */
static void one_node_that_is_faster_alone(void **state) {
    (void)state;
    large(3);
    for (int i = 0; i < 5; i++) times[1].trunk[i] /= 2;
    take();
    assert_true(echi_plan_workers(&plan, -1) > 1);
    assert_int_equal(choice.alone, 1);
    const double together = choice.candidate[0].rate;
    struct echi_plan_request w = request;
    struct echi_plan single;
    w.absent[0] = w.absent[2] = true;
    const double alone = one(w, ECHI_SYNC_BSP, 0, 0, &single).rate;
    if (!(fabs(choice.alone_gain - (alone / together - 1)) < 0.01 * alone / together))
        fail_msg("it gains %g; alone %g, together %g", choice.alone_gain, alone, together);
    request.choose = true;
    take();
    assert_int_equal(plan.sync, ECHI_SYNC_BSP);
    assert_int_equal(echi_plan_workers(&plan, -1), 1);
    assert_true(plan.n[1] == 128 && plan.owner_of[0] == 1 && plan.shards == 0);
    /* Links that are as fast as steps: all together are faster. */
    request.choose = false;
    for (int r = 0; r < 3; r++) times[r].link = echi_link_of(1e13);
    take();
    assert_int_equal(choice.alone, -1);
}

/* No ring, and no other owner, of one that trains alone. */
static void who_trains_alone_owns_all(void **state) {
    (void)state;
    large(2);
    request.exchange = ECHI_EXCHANGE_RING;
    request.shares = ECHI_SHARES_LIST;
    request.share[0] = 128;
    request.keep_all = true;
    for (int home = 0; home <= 2; home++) {
        request.home = (uint16_t)home;
        take();
        assert_int_equal(echi_plan_workers(&plan, -1), 1);
        assert_true(plan.shards == 0 && plan.owner_of[0] == 0 && !echi_plan_rings(&plan));
    }
}

/* Owners by part of a net of five layers on links and nodes that have enough to do with each message: as many parts as there are by default
 * are too many, and as few as predicted for the best. */
static void messages_that_cost_much_are_few(void **state) {
    (void)state;
    large(16);
    request.load = (struct echi_load){.trunk = 4 * 61706, .layers = 5};
    request.layers = (struct echi_layers){.count = 5, .cut = 5, .params = {156, 2416, 48120, 10164, 850}};
    request.keep_all = true;
    request.shards = 16;
    request.exchange = ECHI_EXCHANGE_SERVER;
    struct echi_plan usual;
    request.batch = 256;
    for (int r = 0; r < 16; r++) times[r].link = echi_link_of(1.25e9);
    assert_int_equal(echi_plan_make(&request, times, &usual, text, sizeof text), ECH_OK);
    echi_plan_divide(&request, times, &usual);
    echi_plan_parts(&request, times, &usual);
    /* Messages that take no time: the usual parts, or finer ones. */
    take();
    assert_true(plan.parts.count >= usual.parts.count);
    for (int r = 0; r < 16; r++) times[r].messages = 2e-4, times[r].exchange = 1e-3;
    struct echi_prediction p;
    echi_predict(&usual, times, &request.load, 0, &work.predict, &p);
    take();
    const double gain = choice.candidate[0].rate / p.rate - 1;
    assert_true(plan.parts.count < usual.parts.count && plan.shards == 16 && usual.shards == 16);
    if (!(gain >= 0.1 && fabs(gain - choice.table_gain) < 1e-9)) fail_msg("gains %g, it says %g", gain, choice.table_gain);
    /* What is told is what is predicted of the plan. */
    echi_predict(&plan, times, &request.load, 0, &work.predict, &p);
    assert_true(fabs(p.rate / choice.candidate[0].rate - 1) < 1e-9);
}

/* ---- where the head begins ---- */

/* A net of so many layers that speeds are given in images a second of: of each its parameters, what crosses a cut in front of it, and the
 * part of a step's time that it takes. Measured with the cut `usual`, in front of the first fully connected one. */
enum { NET = 5 };
struct net { uint64_t params[NET]; uint32_t width[NET]; double part[NET]; int usual; };
static void net_of(const struct net *net, int world, const double *speed, double link) {
    lenet(world, speed);
    request.choose = false;
    request.sync = ECHI_SYNC_GSSP;
    request.layers = (struct echi_layers){.count = NET};
    memcpy(request.layers.params, net->params, sizeof net->params);
    memcpy(request.layers.width, net->width, sizeof net->width);
    for (int k = 0; k < NET; k++) request.params += net->params[k];
    echi_plan_request_cut(&request, net->usual);
    for (int r = 0; r < world; r++) {
        struct echi_times *t = &times[r];
        double seconds[NET][ECHI_PASSES];
        t->units = t->cut = NET;
        t->sizes = 2, t->size[0] = 0, t->size[1] = 4;
        for (uint32_t i = 0; i < t->count; i++) t->trunk[i] = t->n[i] / speed[r], t->head[i] = 0;
        for (int k = 0; k < NET; k++) seconds[k][ECHI_FORWARD] = net->part[k] / 3, seconds[k][ECHI_BACKWARD] = 2 * net->part[k] / 3;
        for (int i = 0; i < t->sizes; i++) assert_true(echi_times_share(t, i, (const double (*)[ECHI_PASSES])seconds));
        assert_true(echi_times_recut(t, net->usual));
        t->link = echi_link_of(link);
        t->exchange = 1e-4, t->add = 2e-5, t->update = 5e-5, t->messages = 1e-4;
    }
}

static double worth_now(void) { return choice.candidate[choice.taken].goodput * (1 - choice.candidate[choice.taken].error); }

/* Activations that are asked for in bf16 count as half, wherever the cut is, and their labels as ever; nobody chooses them. */
static void rows_of_bf16_count_as_half(void **state) {
    (void)state;
    static const double speed[] = {4000, 4000, 4000, 4000};
    static const struct net net = {.params = {156, 2416, 48120, 10164, 850}, .width = {0, 1176, 400, 120, 84},
                                   .part = {0.3, 0.5, 0.15, 0.04, 0.01}, .usual = 2};
    net_of(&net, 4, speed, 1.25e7);
    request.separate = 1;
    take();
    assert_true(plan.cut == 2 && plan.activations == ECHI_ACTIVATIONS_FP32 && request.load.row == 1602 && request.load.row_grad == 1600);
    const double floats = choice.candidate[choice.taken].rate;
    request.activations = ECHI_ACTIVATIONS_BF16;
    for (int cut = 1; cut < NET; cut++) {
        echi_plan_request_cut(&request, cut);
        assert_int_equal(request.load.row_grad, 2 * net.width[cut]);
        assert_int_equal(request.load.row, 2 * net.width[cut] + 2);
    }
    echi_plan_request_cut(&request, 2);
    take();
    assert_int_equal(plan.activations, ECHI_ACTIVATIONS_BF16);
    assert_true(choice.candidate[choice.taken].rate > 1.05 * floats);
    request.separate = 0;
    take();
    assert_int_equal(plan.activations, ECHI_ACTIVATIONS_FP32);   /* there are none */
}

/* Each cut, and none, is asked for by itself: what is taken when it is left open is worth nearly as much as the best of them. */
static int best_of_each(const struct net *net) {
    const struct echi_plan_request open = request;
    static struct echi_times before[ECHI_WORLD_MAX];
    double best = 0;
    int at = 0;
    memcpy(before, times, sizeof before);
    for (int k = 0; k < NET; k++) {
        if (k > 0 && net->width[k] == 0) continue;
        request = open;
        request.separate = k > 0;
        if (k > 0) echi_plan_request_cut(&request, k);
        take();
        assert_int_equal(plan.cut, k);
        if (worth_now() > best) best = worth_now(), at = k;
    }
    request = open;
    take();
    assert_memory_equal(before, times, sizeof before);   /* they are the caller's */
    if (!(worth_now() >= 0.95 * best)) fail_msg("cut at %d is worth %g, at %d %g", plan.cut, worth_now(), at, best);
    return plan.cut;
}

static void the_head_begins_where_it_is_the_fastest(void **state) {
    (void)state;
    const double speed[] = {1000, 1000, 2000, 4000};
    /* LeNet-5's: the first fully connected layer has nearly all parameters, and a narrow input. */
    const struct net usual = {{156, 2416, 48120, 10164, 850}, {0, 1176, 400, 120, 84}, {0.35, 0.45, 0.15, 0.04, 0.01}, 2};
    net_of(&usual, 4, speed, 1.25e8);
    assert_int_equal(best_of_each(&usual), 2);
    /* Its input is wide and it has few parameters; the second has most of them: on a thin link the head begins there. */
    const struct net wide = {{1000, 2000, 3000, 900000, 100}, {0, 40000, 40000, 64, 64}, {0.4, 0.4, 0.05, 0.14, 0.01}, 2};
    net_of(&wide, 4, speed, 1.25e6);
    assert_int_equal(best_of_each(&wide), 3);
    request.choose = true;
    take();
    assert_true(plan.cut == 0 || plan.cut == 3);
    /* A branch crosses it: it is another one. */
    struct net without = wide;
    without.width[3] = 0;
    net_of(&without, 4, speed, 1.25e8);
    take();
    assert_int_not_equal(plan.cut, 3);
    /* It has no fully connected layers behind convolutions, so no usual place; a narrow one in front of most parameters. */
    const struct net convolutions = {{1000, 2000, 3000, 900000, 100}, {0, 9000, 9000, 64, 64}, {0.4, 0.4, 0.05, 0.14, 0.01}, NET};
    net_of(&convolutions, 4, speed, 1.25e7);
    assert_int_equal(best_of_each(&convolutions), 3);
    /* Units are not known: what was measured with another cut tells nothing of this one. */
    net_of(&wide, 4, speed, 1.25e6);
    for (int r = 0; r < 4; r++) times[r].units = 0;
    take();
    assert_true(plan.cut == 0 || plan.cut == 2);
}

/* A last layer with one part in a hundred of the parameters, and no narrow place in front of it: all the rest is as stale with a head as
 * without, and each step waits for it. */
static void a_head_that_does_not_pay_is_not_separated(void **state) {
    (void)state;
    const double speed[] = {400, 400, 400, 400};
    const struct net residual = {{100000, 200000, 300000, 400000, 5000}, {0, 65536, 65536, 32768, 16384},
        {0.25, 0.25, 0.25, 0.245, 0.005}, 4};
    net_of(&residual, 4, speed, 1.25e7);
    assert_int_equal(best_of_each(&residual), 0);
    assert_true(choice.weighed && choice.other.cut == choice.cut && choice.cut > 0);
    assert_true(choice.other.goodput < choice.candidate[choice.taken].goodput * 1.02);
    /* Who asks for it gets it. */
    request.separate = 1;
    take();
    assert_int_equal(plan.cut, 4);
    assert_false(choice.weighed);
}

/* Two nodes, one owner, dear messages, and units whose backward takes unlike times: all 128 ways to let eight layers travel are predicted,
 * and what is taken is about the best of them. */
/* Rounds of 8 nodes whose separated layers are a third of the arithmetic: one head would work for 8 while 8 wait. */
static double of_heads(int heads) {
    struct echi_prediction p;
    struct echi_plan_request w = request;
    w.heads = heads;
    if (echi_plan_make(&w, times, &work.tried, text, sizeof text) != ECH_OK) return 0;
    assert_true(echi_plan_valid(&work.tried) && work.tried.heads == (heads > 1 ? heads : 0));
    echi_predict(&work.tried, times, &w.load, 0, &work.predict, &p);
    return p.rate;
}

static void heads_are_as_many_as_pay(void **state) {
    (void)state;
    const double speed[] = {100, 100, 100, 100, 100, 100, 100, 100};
    lenet(8, speed);
    request.heads = 0;
    request.choose = false;
    request.sync = ECHI_SYNC_BSP;
    request.separate = 1;
    request.batch = 512;
    for (int r = 0; r < 8; r++)
        for (uint32_t i = 0; i < times[r].count; i++) {
            times[r].trunk[i] *= 0.63 * 6 / 5;
            times[r].head[i] *= 0.37 * 6;
        }
    take();
    const int heads = plan.heads;
    assert_in_range(heads, 2, 8);
    assert_true(of_heads(2) > 1.3 * of_heads(1));
    for (int other = 1; other <= 8; other++)
        if (of_heads(other) * (other < heads ? 1.02 : 1) > 1.02 * (1 + 1e-9) * of_heads(heads)) fail_msg("%d, not %d", other, heads);
    /* Each of them has some worker, and no rows are anywhere twice. */
    uint32_t rows[ECHI_HEADS_MAX] = {0}, sum = 0;
    for (int r = 0; r < 8; r++) rows[plan.head_of[r]] += plan.n[r];
    for (int i = 0; i < heads; i++) sum += rows[i];
    assert_int_equal(sum, 512);
    for (int i = 0; i < heads; i++) assert_true(rows[i] > 0 && rows[i] < 2 * 512u / (uint32_t)heads);
    /* Sums that take longer than the rest of the round are not worth it; nor is a head that is hardly any work. */
    request.load.head = 4 * 50000000u;
    for (int r = 0; r < 8; r++) times[r].link = echi_link_of(1.25e6);
    take();
    assert_int_equal(plan.heads, 0);
    lenet(8, speed);
    request.heads = 0;
    request.choose = false;
    request.sync = ECHI_SYNC_BSP;
    request.separate = 1;
    for (int r = 0; r < 8; r++)
        for (uint32_t i = 0; i < times[r].count; i++) times[r].head[i] /= 100;
    request.load.layers = 40;   /* rows wait at most for one of them, at the head's node */
    take();
    assert_int_equal(plan.heads, 0);
    /* A wish is met, or refused with what works. */
    request.heads = 3;
    take();
    assert_int_equal(plan.heads, 3);
    request.shadow = true;
    assert_int_equal(echi_plan_choose(&request, times, &work, &plan, &choice, text, sizeof text), ECH_E_ARGUMENT);
    assert_non_null(strstr(text, "--shadow"));
    request.heads = 0;
    take();
    assert_int_equal(plan.heads, 0);
}

static void a_table_is_nearly_the_best(void **state) {
    (void)state;
    double worst = 1, mean = 0;
    for (uint32_t seed = 1; seed <= 24; seed++) {
        enum { LAYERS = 8 };
        struct echi_random r;
        double seconds[LAYERS][ECHI_PASSES], best = 0;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 87);
        large(2);
        request.layers = (struct echi_layers){.count = LAYERS, .cut = LAYERS};
        request.load = (struct echi_load){.layers = LAYERS};
        for (int i = 0; i < LAYERS; i++) {
            request.layers.params[i] = 1 + echi_random_below(&r, 40000);
            request.load.trunk += (uint32_t)(4 * request.layers.params[i]);
            seconds[i][ECHI_FORWARD] = 1;
            seconds[i][ECHI_BACKWARD] = 1 + echi_random_below(&r, 10);
        }
        for (int k = 0; k < 2; k++) {
            struct echi_times *t = &times[k];
            for (int i = 0; i < 5; i++) t->trunk[i] = t->n[i] * 2.5e-4, t->head[i] = 0;
            t->messages = 3e-3;
            t->exchange = 2e-9 * request.load.trunk;
            t->link = echi_link_of(1.25e8);
            t->units = t->cut = LAYERS;
            t->sizes = 1;
            t->size[0] = 1;
            assert_true(echi_times_share(t, 0, (const double (*)[ECHI_PASSES])seconds));
        }
        request.batch = 32;
        request.keep_all = true;
        request.shards = 1;
        request.exchange = ECHI_EXCHANGE_SERVER;
        take();
        struct echi_plan tried = plan;
        for (unsigned mask = 0; mask < 1u << (LAYERS - 1); mask++) {
            struct echi_prediction p;
            echi_parts_make(&request.layers, 0, ECHI_CODEC_DENSE, ECHI_PART_SLICE, 0, &tried.parts);
            int kept = 1;
            for (int i = 1; i < LAYERS; i++) {
                if (mask >> (i - 1) & 1) tried.parts.part[kept++] = tried.parts.part[i];
                else {
                    tried.parts.part[kept - 1].count += tried.parts.part[i].count;
                    tried.parts.part[kept - 1].last = (uint8_t)i;
                }
            }
            tried.parts.count = (uint16_t)kept;
            echi_predict(&tried, times, &request.load, 0, &work.predict, &p);
            best = p.rate > best ? p.rate : best;
        }
        worst = fmin(worst, choice.candidate[0].rate / best);
        mean += choice.candidate[0].rate / best / 24;
    }
    print_message("%.2f of the best in the mean, %.2f at least\n", mean, worst);
    assert_true(mean > 0.9 && worst > 0.8);
}

/* What is predicted of a plan with other parts: buckets of so many parameters, the first to leave of `first`, cut for the owners by their
 * shares. 0: an owner gets nothing of one. */
static double of_buckets(const struct echi_plan *like, uint64_t first, uint64_t size) {
    static struct echi_plan tried;
    const struct echi_layers *layers = &request.layers;
    double share[ECHI_SHARDS_MAX] = {1};
    uint64_t sum[ECHI_UNITS_MAX + 1] = {0}, filled = 0, limit = first;
    int begins[ECHI_UNITS_MAX + 1], buckets = 0;   /* from the last to the first, then their end */
    struct echi_prediction p;
    struct echi_part_fault fault;
    tried = *like;
    tried.parts.count = 0;
    if (tried.shards) echi_plan_shard_shares(&tried, times, share);
    for (int l = 0; l < layers->count; l++) sum[l + 1] = sum[l] + layers->params[l];
    for (int l = layers->count - 1; l >= 0; l--) {
        filled += layers->params[l];
        if (l > 0 && (filled < limit || layers->joined[l])) continue;
        begins[buckets++] = l;
        filled = 0;
        limit = size;
    }
    for (int b = buckets - 1; b >= 0; b--) {
        const uint64_t end = sum[b ? begins[b - 1] : layers->count];
        const double all = (double)(end - sum[begins[b]]);
        uint64_t at = sum[begins[b]];
        double reached = 0;
        for (int k = 0; k < (tried.shards ? tried.shards : 1); k++) {
            reached += share[k];
            const uint64_t until = k + 1 < tried.shards ? sum[begins[b]] + (uint64_t)(reached * all) : end;
            int from = 0, last = 0;
            while (sum[from + 1] <= at) from++;
            while (sum[last + 1] < until) last++;
            if (until <= at || tried.parts.count == ECHI_PARTS_MAX) return 0;
            tried.parts.part[tried.parts.count++] = (struct echi_part){.at = at, .count = (uint32_t)(until - at), .first = (uint8_t)from,
                .last = (uint8_t)last, .codec = ECHI_CODEC_DENSE, .shard = (uint8_t)k};
            at = until;
        }
    }
    assert_true(echi_parts_valid(&tried.parts, tried.codec, &fault) && echi_parts_fit(&tried.parts, layers, 0, &fault));
    echi_predict(&tried, times, &request.load, 0, &work.predict, &p);
    return p.rate;
}

/* Whatever the nodes, links and layers are, a choice's table is one of the model, all owners own parts, and it is not predicted to be
 * slower than the default one, one part an owner, and DDP's buckets. */
static void a_table_is_one_of_the_model(void **state) {
    (void)state;
    int others = 0, merged = 0, compared = 0, one = 0;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct echi_random r;
        struct echi_part_fault fault;
        struct echi_prediction p;
        struct echi_plan usual;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 86);
        const int world = 2 + (int)echi_random_below(&r, 7);
        large(world);
        const uint16_t layers = (uint16_t)(2 + echi_random_below(&r, 12));
        request.layers = (struct echi_layers){.count = layers, .cut = layers};
        request.load = (struct echi_load){.layers = layers};
        for (int i = 0; i < layers; i++) {
            request.layers.params[i] = 1 + echi_random_below(&r, 1u << (5 + echi_random_below(&r, 14)));
            request.layers.joined[i] = i > 0 && !request.layers.joined[i - 1] && echi_random_below(&r, 4) == 0;
            request.load.trunk += (uint32_t)(4 * request.layers.params[i]);
        }
        const double message = 1e-5 * (1u << echi_random_below(&r, 8)), rate = 1.25e7 * (1u << echi_random_below(&r, 8));
        for (int k = 0; k < world; k++) {
            times[k].messages = 6 * message;
            times[k].exchange = 2e-9 * request.load.trunk;
            times[k].link = echi_link_of(echi_random_below(&r, 4) ? rate : rate / 2);
        }
        request.batch = (uint32_t)(8 * world);
        request.keep_all = true;
        request.shards = 1 + (int)echi_random_below(&r, (uint32_t)world);
        request.exchange = echi_random_below(&r, 2) && request.shards == world ? ECHI_EXCHANGE_RING : ECHI_EXCHANGE_SERVER;
        take();
        if (!echi_parts_valid(&plan.parts, plan.codec, &fault) || !echi_parts_fit(&plan.parts, &request.layers, 0, &fault))
            fail_msg("seed %u: rule %d of part %d", seed, fault.rule, fault.part);
        int owned[ECHI_SHARDS_MAX] = {0};
        for (int i = 0; i < plan.parts.count; i++) owned[plan.parts.part[i].shard]++;
        for (int k = 0; k < plan.shards; k++) assert_true(owned[k] > 0);
        usual = plan;
        usual.parts.count = 0;
        echi_plan_parts(&request, times, &usual);
        echi_predict(&usual, times, &request.load, 0, &work.predict, &p);
        const double made = choice.candidate[0].rate, whole = of_buckets(&plan, UINT64_MAX, UINT64_MAX),
                     buckets = of_buckets(&plan, 1 << 18, 25 << 18);
        assert_true(usual.shards == plan.shards && fabs(fmax(made / p.rate - 1, 0) - choice.table_gain) < 1e-9);
        if (made < p.rate * (1 - 1e-9)) fail_msg("seed %u: slower", seed);
        if (made < fmax(whole, buckets) * (1 - 1e-9)) fail_msg("seed %u: one part an owner makes %g, buckets %g", seed, whole, buckets);
        /* Slices are taken for a tenth more, buckets for less. */
        assert_true(choice.table_gain >= 0.1 || !(choice.table_gain > 0) || !(made > fmax(whole, buckets) * (1 + 1e-9)));
        compared += whole > 0;
        one += whole > p.rate * 1.02;
        others += choice.table_gain > 0;
        merged += plan.parts.count < usual.parts.count;
    }
    print_message("%d of 40 have another table than the default, %d a shorter one; of %d, one part an owner is faster than that in %d\n",
                  others, merged, compared, one);
    assert_true(compared > 30 && one > 0);
    assert_true(others > 4 && merged > 2 && others < 36);
}

/* The same choice as with a fresh workspace, after choices of other nodes with this one. */
static void as_with_a_fresh_workspace(void) {
    static uint8_t bytes[2][ECHI_PLAN_BYTES_MAX];
    size_t len[2];
    double rate[2];
    uint32_t made[2];
    for (int i = 0; i < 2; i++) {
        if (i) memset(&work, 0, sizeof work);
        const uint32_t before = work.memo.count;
        take();
        len[i] = echi_plan_encode(&plan, bytes[i], sizeof bytes[i]);
        rate[i] = choice.candidate[choice.taken].rate;
        made[i] = work.memo.count - before;
    }
    assert_true(len[0] > 0 && len[0] == len[1] && memcmp(bytes[0], bytes[1], len[0]) == 0);
    assert_true(!(rate[0] < rate[1] || rate[0] > rate[1]));
    assert_true(made[0] > 0 && made[0] <= made[1]);
    take();
    assert_int_equal(work.memo.count, made[1]);   /* all of it was predicted before */
}

static void what_was_predicted_is_known(void **state) {
    (void)state;
    memset(&work, 0, sizeof work);
    large(5);
    chance(0.1, 0.02);
    request.shards = ECHI_SHARDS_AUTO;
    take();
    times[3].jitter = 0.3;
    as_with_a_fresh_workspace();
    times[4].link = echi_link_of(2e7);
    as_with_a_fresh_workspace();
    times[2].trunk[1] *= 1.5;
    as_with_a_fresh_workspace();
    request.load.row *= 100;
    request.choose = true;
    as_with_a_fresh_workspace();
}

/* What links allow is no less than what is predicted, and where they are thin not much more: with one owner, several, and in rings. */
static void links_bound_what_is_predicted(void **state) {
    int near = 0;
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct echi_prediction p;
        large(3 + i / 2);
        chance(i % 3 * 0.1, i % 2 * 0.02);
        for (int r = 0; r < request.world; r++) times[r].link = echi_link_of(r % 5 == 4 ? 5e6 : 2e7);
        request.shards = i % 4 > 0 ? 1 + i % 4 : 1;
        request.exchange = i % 4 == 3 ? ECHI_EXCHANGE_RING : ECHI_EXCHANGE_SERVER;
        if (request.exchange == ECHI_EXCHANGE_RING) request.shards = request.world;
        assert_int_equal(echi_plan_make(&request, times, &plan, text, sizeof text), ECH_OK);
        echi_plan_divide(&request, times, &plan);
        echi_plan_parts(&request, times, &plan);
        echi_predict(&plan, times, &request.load, 0, &work.predict, &p);
        const double most = echi_predict_rounds_by_links(&plan, times, &request.load, &work.predict);
        if (most < p.rate) fail_msg("case %d: links allow %g, %g are predicted", i, most, p.rate);
        near += most < 1.3 * p.rate;
    }
    assert_true(near >= 8);
}

/* A play that ends early would have come to less than the floor; one that does not comes to what it comes to without. */
static void a_floor_ends_what_is_slower(void **state) {
    static const double part[] = {0.5, 0.99, 1.01, 1.1, 2, 20};
    int ended = 0;
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct echi_prediction p, above;
        large(3 + i);
        chance(i % 3 * 0.1, i % 2 * 0.02);
        request.shards = i % 4;
        assert_int_equal(echi_plan_make(&request, times, &plan, text, sizeof text), ECH_OK);
        echi_plan_divide(&request, times, &plan);
        echi_plan_parts(&request, times, &plan);
        echi_predict(&plan, times, &request.load, 0, &work.predict, &p);
        for (size_t k = 0; k < sizeof part / sizeof part[0]; k++) {
            echi_predict_above(&plan, times, &request.load, part[k] * p.rate, &work.predict, &above);
            const bool whole = !(above.rate < p.rate || above.rate > p.rate), none = !(above.rate > 0);
            if (!(whole || (none && part[k] > 1))) fail_msg("case %d: %g with a floor of %g times %g", i, above.rate, part[k], p.rate);
            ended += none;
        }
    }
    assert_true(ended > 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_predicted_is_known),
        cmocka_unit_test(links_bound_what_is_predicted),
        cmocka_unit_test(a_floor_ends_what_is_slower),
        cmocka_unit_test(a_measurement_tells_of_its_policy_at_about_its_staleness), cmocka_unit_test(what_was_measured_decides),
        cmocka_unit_test(a_head_gathers_where_that_gains),
        cmocka_unit_test(steps_are_cut_where_that_gains),
        cmocka_unit_test(even_nodes_go_in_step),
        cmocka_unit_test(unlike_nodes_go_in_groups_with_the_head_apart),
        cmocka_unit_test(a_small_head_apart_spares_nothing),
        cmocka_unit_test(thin_links_are_known_by_the_most_they_carried),
        cmocka_unit_test(the_best_of_all_is_taken),
        cmocka_unit_test(groups_are_as_many_as_are_fast),
        cmocka_unit_test(who_holds_the_others_up_is_named),
        cmocka_unit_test(a_slow_link_is_not_blamed_on_others),
        cmocka_unit_test(the_gain_is_that_of_a_run_without),
        cmocka_unit_test(a_burden_is_left_out),
        cmocka_unit_test(some_train_and_others_own),
        cmocka_unit_test(one_node_that_is_faster_alone),
        cmocka_unit_test(who_trains_alone_owns_all),
        cmocka_unit_test(messages_that_cost_much_are_few),
        cmocka_unit_test(the_head_begins_where_it_is_the_fastest),
        cmocka_unit_test(a_head_that_does_not_pay_is_not_separated),
        cmocka_unit_test(heads_are_as_many_as_pay),
        cmocka_unit_test(rows_of_bf16_count_as_half),
        cmocka_unit_test(a_table_is_nearly_the_best),
        cmocka_unit_test(a_table_is_one_of_the_model),
        cmocka_unit_test(a_choice_can_be_watched),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
