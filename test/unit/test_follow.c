/* SPDX-License-Identifier: Apache-2.0
 * Links and iterations as a run finds them: what windows say of a link, and when ratios follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "echi_follow.h"
#include "echi_random.h"
#include "echi_ratio.h"

#define SECOND INT64_C(1000000000)

/* ---- what a link carries ---- */

static struct echi_rate seen_of(const double *window, int count) {
    struct echi_seen s = {0};
    for (int i = 0; i < count; i++) echi_seen_add(&s, window[i], 0);
    return echi_seen_rate(&s);
}

static void the_second_highest_of_five(void **state) {
    (void)state;
    static const double few[] = {5, 7}, three[] = {5, 7, 6}, many[] = {100, 100, 1, 9, 3, 7, 5};
    assert_true(seen_of(few, 2).rate == 0 && !(seen_of(few, 2).highest > 0));
    const struct echi_rate a = seen_of(three, 3), b = seen_of(many, 7);
    assert_true(a.rate == 6 && a.lowest == 5 && a.highest == 7);
    assert_true(b.rate == 7 && b.lowest == 1 && b.highest == 9);   /* the first two are forgotten */
    assert_true(echi_rate_valid(&a) && echi_rate_valid(&b));
}

/* A link of 100 whose peer, or another sender, lets it carry any part of that in three windows of five; now and then a burst shows as twice
 * as much. What is said lies between the most of all but one and all that was seen, and never above what was seen twice. */
static void shares_and_bursts_do_not_move_it(void **state) {
    (void)state;
    struct echi_random random;
    struct echi_seen s = {0};
    echi_random_init(&random, 1, ECHI_STREAM_TEST, 1);
    for (int i = 0; i < 10000; i++) {
        const double rate = i % 5 == 0 ? 200 : i % 5 == 2 ? 100 : 100 * echi_random_unit(&random);
        echi_seen_add(&s, rate + 1e-3, 0);
        const struct echi_rate r = echi_seen_rate(&s);
        assert_true(i < 4 || (r.rate == 100 + 1e-3 && r.highest == 200 + 1e-3 && r.lowest <= r.rate));
    }
}

/* Down with the fourth window, up with the second, and not before. */
static void changes_are_believed_in_time(void **state) {
    (void)state;
    struct echi_seen s = {0};
    for (int i = 0; i < 9; i++) echi_seen_add(&s, 100, 0);
    for (int i = 1; i <= 5; i++) {
        echi_seen_add(&s, 25, 0);
        assert_true(echi_seen_rate(&s).rate == (i < 4 ? 100 : 25));
    }
    for (int i = 1; i <= 3; i++) {
        echi_seen_add(&s, 80, 0);
        assert_true(echi_seen_rate(&s).rate == (i < 2 ? 25 : 80));
    }
}

/* ---- ratios ---- */

#define PARAMS 61706
static struct echi_follow follow;
static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan plan;
static uint32_t size[ECHI_WORLD_MAX];

/* Three groups: an owner each (ranks 0 to 2), which do not work, and two workers each (3 to 8): steps of 8 ms, links of 10 Mb/s. */
static void begin(enum echi_ratios ratios) {
    echi_plan_clear(&plan);
    plan.sync = ECHI_SYNC_GSSP;
    plan.world = 9;
    plan.n_groups = 3;
    plan.codec = ECHI_CODEC_TOPK;
    plan.ratios = (uint8_t)ratios;
    plan.state_ratio = ECHI_RATIO_STATES;
    for (int r = 0; r < 9; r++) {
        if (r < 3) plan.owner_of[r] = (uint16_t)r;
        else plan.group_of[r] = (uint8_t)(r % 3);
        plan.n[r] = size[r] = r < 3 ? 0 : 16;
        times[r] = (struct echi_times){.count = 1, .n = {16}, .trunk = {8e-3}, .link = echi_link_of(10e6 / 8)};
    }
    const struct echi_plan_request request = {.codec = ECHI_CODEC_TOPK, .ratios = ratios, .params = PARAMS};
    echi_ratios_plan(&request, times, &plan);
    echi_follow_init(&follow, 9);
}

static void carries(int rank, double mbits) {
    for (int i = 0; i < ECHI_SEEN_WINDOWS; i++) {
        echi_seen_add(&follow.host[rank].out, mbits * 1e6 / 8, 0);
        echi_seen_add(&follow.host[rank].in, mbits * 1e6 / 8, 0);
    }
}
static void computes(int rank, double ms, double rest) {
    for (int i = 0; i < 10 * ECHI_SPEED_STEPS; i++) echi_follow_step(&follow, rank, ms * 1e6, rest * 1e6);
}
static bool look(int64_t now) { return echi_follow_ratios(&follow, &plan, times, size, PARAMS, ECHI_RATIOS_AFTER, now); }
/* Looks each fifth of a second; returns when ratios were changed, -1: not until then. */
static int64_t until(int64_t from, int64_t end) {
    for (int64_t now = from; now < end; now += SECOND / 5)
        if (look(now)) return now;
    return -1;
}

/* To the last digit, by which floating point rounds down. */
static bool near(int group, uint32_t base) { return plan.base[group] <= base && plan.base[group] + 1 >= base; }

/* One worker's link drops to a quarter: its group sends less after 30 s and not before, by the closed form, and says why. The others, whose
 * middle iteration is what it was, send what they sent. */
static void a_thin_link_is_followed(void **state) {
    (void)state;
    begin(ECHI_RATIOS_BALANCED);
    assert_true(near(0, 10000) && near(1, 10000) && near(2, 10000));
    assert_int_equal(until(0, 100 * SECOND), -1);
    carries(8, 2.5);
    const int64_t at = until(100 * SECOND, 200 * SECOND);
    assert_in_range(at, 130 * SECOND, 132 * SECOND);
    assert_true(near(0, 10000) && near(1, 10000) && plan.base[2] == 4000);
    assert_true(follow.changes == 1 && follow.last.group == 2 && follow.last.by_link && follow.last.base[2] >= 9999);
    assert_true(fabs(follow.last.was - 10e6 / 8) < 1 && fabs(follow.last.is - 2.5e6 / 8) < 1);
    assert_int_equal(until(at, at + 100 * SECOND), -1);
    carries(8, 10);   /* and back */
    assert_in_range(until(300 * SECOND, 400 * SECOND), 330 * SECOND, 332 * SECOND);
    assert_true(near(2, 10000) && follow.changes == 2);
}

/* By the same formula: what is computed for longer leaves less time to push. */
static void iterations_are_followed(void **state) {
    (void)state;
    begin(ECHI_RATIOS_BALANCED);
    const double link = 10e6 / 8, pull = (double)echi_coded_bytes(PARAMS, ECHI_RATIO_STATES) / link, push = 0.01 * 8 * PARAMS / link;
    for (int r = 3; r < 9; r++) computes(r, r % 3 == 1 ? 8.5 : 8, 40);
    assert_in_range(until(0, 100 * SECOND), 30 * SECOND, 32 * SECOND);
    const double target = 8e-3 + pull + push;
    assert_true(fabs(plan.base[1] - (target - 8.5e-3 - pull) * link / (8 * PARAMS) * 1e6) < 2);
    assert_true(near(0, 10000) && follow.last.group == 1 && !follow.last.by_link);
    assert_true(fabs(follow.last.was - 8e-3) < 1e-6 && fabs(follow.last.is - 8.5e-3) < 1e-6);
}

static void little_changes_nothing(void **state) {
    (void)state;
    begin(ECHI_RATIOS_BALANCED);
    for (int r = 3; r < 9; r++) computes(r, r % 3 == 1 ? 8.3 : 8, 40);   /* 7.6 % less to push */
    assert_int_equal(until(0, 1000 * SECOND), -1);
}

/* A change that is over after 29 s, again and again, is never followed: it begins anew each time. */
static void what_passes_changes_nothing(void **state) {
    (void)state;
    begin(ECHI_RATIOS_BALANCED);
    for (int64_t now = 0; now < 1000 * SECOND; now += 40 * SECOND) {
        carries(5, 2.5);
        assert_int_equal(until(now, now + 29 * SECOND), -1);
        carries(5, 10);
        assert_int_equal(until(now + 29 * SECOND, now + 40 * SECOND), -1);
    }
    assert_int_equal(follow.changes, 0);
}

/* `volume` goes by links; `paper` by how often groups push, as its authors' code does. */
static void the_other_policies_follow_too(void **state) {
    (void)state;
    begin(ECHI_RATIOS_VOLUME);
    assert_true(plan.base[0] == 200000 && plan.base[1] == 200000 && plan.base[2] == 200000);
    carries(4, 2.5);
    assert_in_range(until(0, 100 * SECOND), 30 * SECOND, 32 * SECOND);
    assert_true(plan.base[0] == 250000 && plan.base[1] == 150000 && plan.base[2] == 250000);
    begin(ECHI_RATIOS_PAPER);
    assert_true(plan.base[0] == 250000 && plan.base[1] == 300000 && plan.base[2] == 350000);
    for (int r = 3; r < 9; r++) computes(r, 8, 30 - 5 * (r % 3));
    assert_in_range(until(0, 100 * SECOND), 30 * SECOND, 32 * SECOND);
    assert_true(plan.base[0] == 350000 && plan.base[1] == 300000 && plan.base[2] == 250000);
}

/* Workers that are lost count no more; a reserve without workers has the base of the slowest; a group without any is left as it is. */
static void who_is_left_counts(void **state) {
    (void)state;
    begin(ECHI_RATIOS_BALANCED);
    plan.n_groups = 4;
    plan.reserve = 1;
    plan.owner_of[3] = 8;
    plan.base[3] = 10000;
    plan.group_of[8] = ECHI_NONE;
    carries(5, 2.5);
    assert_in_range(until(0, 100 * SECOND), 30 * SECOND, 32 * SECOND);
    assert_true(plan.base[2] == 4000 && plan.base[3] == 4000);
    begin(ECHI_RATIOS_BALANCED);
    carries(8, 2.5);
    plan.lost[8] = 1;
    assert_int_equal(until(0, 100 * SECOND), -1);
    begin(ECHI_RATIOS_BALANCED);
    carries(5, 2.5);
    plan.lost[5] = plan.lost[8] = 1;
    assert_int_equal(until(0, 100 * SECOND), -1);
}

/* What an owner sends goes to all of its workers: what one of them got is not what its link carries. What comes in to it is. */
static void an_owner_s_way_out_is_not_what_one_got(void **state) {
    (void)state;
    begin(ECHI_RATIOS_BALANCED);
    plan.group_of[2] = 2;
    plan.n[2] = size[2] = 16;
    for (int i = 0; i < 5; i++) echi_seen_add(&follow.host[2].out, 2.5e6 / 8, 0);
    assert_int_equal(until(0, 100 * SECOND), -1);
    for (int i = 0; i < 5; i++) echi_seen_add(&follow.host[2].in, 2.5e6 / 8, 0);
    assert_in_range(until(100 * SECOND, 200 * SECOND), 130 * SECOND, 132 * SECOND);
}

/* Any rates and times: bases stay within what the policy has, and changes are 30 s apart. */
/* From 1e-6 to 1e14 bytes a second; and now and then the least that is above nothing, several times. */
static double any_rate(struct echi_random *r, int i) { return i / 20 % 40 == 0 ? 5e-324 : pow(10, 20 * echi_random_unit(r) - 6); }

static void bases_stay_within_bounds(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 2, ECHI_STREAM_TEST, 2);
    for (int ratios = 0; ratios < ECHI_RATIOS; ratios++) {
        int64_t now = 0, changed = -ECHI_RATIOS_AFTER;
        begin((enum echi_ratios)ratios);
        for (int i = 0; i < 20000; i++) {
            const int rank = (int)echi_random_below(&random, 9);
            echi_seen_add(&follow.host[rank].out, any_rate(&random, i), 0);
            echi_seen_add(&follow.host[rank].in, any_rate(&random, i), 0);
            echi_follow_step(&follow, rank, pow(10, 18 * echi_random_unit(&random)), pow(10, 18 * echi_random_unit(&random)));
            now += echi_random_below(&random, 2000000000);
            if (!look(now)) continue;
            assert_true(now - changed >= ECHI_RATIOS_AFTER);
            changed = now;
            for (int g = 0; g < 3; g++)
                assert_true(ratios == ECHI_RATIOS_BALANCED ? plan.base[g] >= 4000 && plan.base[g] <= 30000
                                                           : plan.base[g] >= 150000 && plan.base[g] <= 350000);
        }
        assert_true(follow.changes > 3);
    }
}

/* ---- whose link it is ---- */

enum { OUT, IN };
#define JOINED 100.0
static double carry[9][2], joined = JOINED;
static struct echi_times found[ECHI_WORLD_MAX];

/* Group 0: an owner, rank 0, and so many workers. All links carried JOINED when they joined. */
static void begin_group(int workers) {
    echi_plan_clear(&plan);
    plan.sync = ECHI_SYNC_GSSP;
    plan.world = (uint16_t)(1 + workers);
    plan.n_groups = 1;
    for (int r = 0; r <= workers; r++) {
        plan.group_of[r] = r == 0 ? ECHI_NONE : 0;
        times[r].link = echi_link_of(joined);
        carry[r][OUT] = carry[r][IN] = JOINED;
    }
    plan.owner_of[0] = 0;
    echi_follow_init(&follow, 9);
}

/* A window in which these workers push (IN: of the owner), or take weights, all at once: what each gets by max-min fairness. */
static void window(unsigned active, int way, int64_t now) {
    double left = carry[0][way], got[9] = {0}, all = 0;
    const int of_worker = way == IN ? OUT : IN;
    for (unsigned waits = active; waits;) {
        int n = 0, thinnest = -1;
        for (int r = 1; r < 9; r++)
            if (waits >> r & 1) {
                n++;
                if (thinnest < 0 || carry[r][of_worker] < carry[thinnest][of_worker]) thinnest = r;
            }
        got[thinnest] = fmin(carry[thinnest][of_worker], left / n);
        left -= got[thinnest];
        waits &= ~(1u << thinnest);
    }
    for (int r = 1; r < 9; r++) {
        if (!(active >> r & 1)) continue;
        echi_seen_add(way == IN ? &follow.host[r].out : &follow.host[r].in, got[r], now);
        if (way == OUT) echi_seen_add(&follow.host[0].out, got[r], now);
        all += got[r];
    }
    if (way == IN) echi_seen_add(&follow.host[0].in, all, now);
}

static bool same(double a, double b) { return fabs(a / b - 1) < 1e-9; }   /* sums of shares are rounded */
static double found_way(int rank, int way) { return way == OUT ? found[rank].link.out.rate : found[rank].link.in.rate; }

/* One way of one link has become thinner, or none. Whoever is active when: no other way is taken for thin, and what is taken for its rate
 * is what it carries. It is seen where it is thin by more than a third of a fair share, but for an owner's way out. */
static void nobody_else_is_blamed(void **state) {
    (void)state;
    struct echi_random random;
    int seen = 0;
    echi_random_init(&random, 3, ECHI_STREAM_TEST, 3);
    for (int i = 0; i < 20000; i++) {
        const int workers = 1 + (int)echi_random_below(&random, 8);
        const bool at_will = workers <= 2 && i % 2;
        begin_group(workers);
        const int host = (int)echi_random_below(&random, (uint32_t)workers + 1), way = (int)echi_random_below(&random, 2);
        const double rate = JOINED * pow(100, -echi_random_unit(&random));
        carry[host][way] = rate;
        for (int k = 0; k < 40; k++) {
            unsigned active = 0;
            for (int r = 1; r <= workers; r++) active |= (unsigned)(!at_will || echi_random_below(&random, 2)) << r;
            if (active) window(active, k % 2, k);
        }
        echi_follow_links(&follow, &plan, times, 40, found);
        for (int r = 0; r <= workers; r++)
            for (int w = 0; w < 2; w++) {
                const bool thin = r == host && w == way;
                if (same(found_way(r, w), JOINED)) continue;
                if (!thin || !same(found_way(r, w), rate))
                    fail_msg("case %d, %d workers: rank %d's way %d of %g is taken for %g; rank %d's way %d carries %g", i, workers, r, w,
                             carry[r][w], found_way(r, w), host, way, rate);
            }
        const bool plain = !at_will && workers > 1 && rate * 3.01 < JOINED / workers;
        if (plain && !(host == 0 && way == OUT) && same(found_way(host, way), JOINED))
            fail_msg("case %d: rank %d of %d, way %d: %g is not seen", i, host, workers, way, rate);
        seen += !same(found_way(host, way), JOINED);
    }
    assert_true(seen > 2000);
}

/* A rate above that of the start was carried, whatever else there is; and what is old says nothing. */
static void what_was_carried_and_what_is_old(void **state) {
    (void)state;
    joined = JOINED / 4;
    begin_group(4);
    for (int k = 0; k < 5; k++) {
        window(2, IN, 7);
        window(4, OUT, 7);
    }
    echi_follow_links(&follow, &plan, times, 7 + ECHI_SEEN_FRESH, found);
    assert_true(found_way(1, OUT) == JOINED && found_way(0, IN) == JOINED && found_way(2, IN) == JOINED);
    assert_true(found_way(1, IN) == joined && found_way(2, OUT) == joined && found_way(0, OUT) == joined);
    echi_follow_links(&follow, &plan, times, 8 + ECHI_SEEN_FRESH, found);
    for (int r = 0; r < 5; r++) assert_true(found_way(r, OUT) == joined && found_way(r, IN) == joined);
    joined = JOINED;
    /* The head serves workers of all groups, a worker beside its owner has no link to it, and nobody says anything of who is lost. */
    begin_group(4);
    plan.cut = 1;
    plan.head = 2;
    carry[3][OUT] = 5;
    for (int k = 0; k < 5; k++) window(0x1a, IN, 1);
    echi_follow_links(&follow, &plan, times, 1, found);
    assert_true(found_way(3, OUT) == 5 && found_way(2, OUT) == JOINED);
    plan.lost[3] = 1;
    echi_follow_links(&follow, &plan, times, 1, found);
    assert_true(found_way(3, OUT) == JOINED);
    begin_group(3);
    plan.group_of[0] = 0;
    carry[0][OUT] = 5;
    for (int k = 0; k < 5; k++) window(0xe, OUT, 1);
    echi_follow_links(&follow, &plan, times, 1, found);
    for (int r = 0; r < 4; r++) assert_true(found_way(r, IN) == JOINED && found_way(r, OUT) == JOINED);
    /* An owner that works for another: what it gets through is a share of what its own workers take. */
    begin_group(4);
    plan.n_groups = 2;
    plan.owner_of[1] = 1;
    plan.group_of[3] = plan.group_of[4] = 1;
    for (int k = 0; k < 5; k++) window(4, IN, 1);
    for (int k = 0; k < 5; k++) echi_seen_add(&follow.host[1].out, 5, 1);
    echi_follow_links(&follow, &plan, times, 1, found);
    assert_true(found_way(1, OUT) == JOINED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_else_is_blamed),
        cmocka_unit_test(what_was_carried_and_what_is_old),
        cmocka_unit_test(the_second_highest_of_five),
        cmocka_unit_test(shares_and_bursts_do_not_move_it),
        cmocka_unit_test(changes_are_believed_in_time),
        cmocka_unit_test(a_thin_link_is_followed),
        cmocka_unit_test(iterations_are_followed),
        cmocka_unit_test(little_changes_nothing),
        cmocka_unit_test(what_passes_changes_nothing),
        cmocka_unit_test(the_other_policies_follow_too),
        cmocka_unit_test(who_is_left_counts),
        cmocka_unit_test(an_owner_s_way_out_is_not_what_one_got),
        cmocka_unit_test(bases_stay_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
