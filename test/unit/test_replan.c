/* SPDX-License-Identifier: Apache-2.0
 * Plans while a run goes: what lasts, machines as they are seen, and shares of rounds against all that are possible. */
#include "echi_replan.h"
#include "echi_random.h"
#include "echi_roles.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define SECOND INT64_C(1000000000)
enum { WORLD = 3, ROUND = 24 };
static struct echi_follow follow;
static struct echi_times times[ECHI_WORLD_MAX], seen[ECHI_WORLD_MAX];
static struct echi_plan plan;
static uint32_t share[ECHI_WORLD_MAX], best[ECHI_WORLD_MAX];

static void assert_near(double is, double expected) {
    if (is > 1.001 * expected || expected > 1.001 * is) fail_msg("%g, not %g", is, expected);
}

/* A check each second from `from` on; returns the first that is answered, or `until`. */
static int64_t answered(struct echi_lasting *l, int64_t from, int64_t until, double value) {
    for (int64_t now = from; now < until; now++)
        if (echi_lasting_check(l, true, value, 6 * SECOND, now * SECOND)) return now;
    return until;
}

static void what_lasts_is_answered(void **state) {
    (void)state;
    struct echi_lasting l = {0};
    assert_int_equal(answered(&l, 100, 200, 1), 106);
    /* Few checks, far apart: three of them. */
    l = (struct echi_lasting){0};
    assert_false(echi_lasting_check(&l, true, 1, SECOND, 10 * SECOND));
    assert_false(echi_lasting_check(&l, true, 1, SECOND, 20 * SECOND));
    assert_true(echi_lasting_check(&l, true, 1, SECOND, 30 * SECOND));
    /* What stops once begins anew, and so does what has not settled. */
    l = (struct echi_lasting){0};
    assert_int_equal(answered(&l, 0, 6, 1), 6);
    assert_false(echi_lasting_check(&l, false, 1, 6 * SECOND, 6 * SECOND));
    assert_int_equal(answered(&l, 7, 12, 1), 12);
    assert_int_equal(answered(&l, 12, 30, 1.2), 18);
    l = (struct echi_lasting){0};
    for (int64_t now = 0; now < 100; now++) assert_false(echi_lasting_check(&l, true, now % 4 < 2 ? 1 : 1.15, 6 * SECOND, now * SECOND));
}

/* An answer is followed by a pause of 30 s, then of 60, 120, ... 960; a refusal by one of the same length as before. */
static void answers_become_rarer(void **state) {
    (void)state;
    struct echi_lasting l = {0};
    int64_t at = answered(&l, 0, 100, 1), pause = 30;
    for (int i = 0; i < 9; i++) {
        const bool refused = i == 2;
        echi_lasting_answered(&l, refused, 6 * SECOND, at * SECOND);
        assert_int_equal(answered(&l, at + 1, at + 2000, 1), at + pause);
        at += pause;
        if (!refused && pause < 960) pause *= 2;
    }
}

/* Three workers, who take so many ms a sample. */
static void begin(const double *ms) {
    plan = (struct echi_plan){.sync = ECHI_SYNC_BSP, .shares_follow = 1, .world = WORLD, .round = ROUND, .n_groups = 1, .flights = 1,
                              .head = ECHI_NO_RANK};
    echi_follow_init(&follow, WORLD);
    for (int r = 0; r < WORLD; r++) {
        plan.n[r] = share[r] = ROUND / WORLD;
        times[r] = (struct echi_times){.count = 2, .n = {1, 64}, .trunk = {ms[r] * 1e-3, ms[r] * 64e-3}, .block = 1,
                                       .link = echi_link_of(1e6 * (r + 1))};
    }
}

/* So many steps of a rank, which take so many times as long as when they were measured. */
static void steps(int rank, int count, double stretch) {
    while (count-- > 0) echi_follow_stretch(&follow, rank, stretch);
}

static double longest_of(const uint32_t *n, const double *ms) {
    double most = 0;
    for (int r = 0; r < WORLD; r++)
        if (n[r] * ms[r] > most) most = n[r] * ms[r];
    return most;
}

/* Of all shares that leases may have. */
static double best_possible(const double *ms) {
    double least = 1e9;
    const uint32_t room = echi_plan_room(&plan, 0);
    assert_int_equal(room, ROUND / WORLD * 3 / 2);
    for (uint32_t a = 1; a <= room; a++)
        for (uint32_t b = 1; b <= room; b++) {
            if (a + b >= ROUND || ROUND - a - b > room) continue;
            const double here = longest_of((uint32_t[]){a, b, ROUND - a - b}, ms);
            if (here < least) least = here;
        }
    return least;
}

static void shares_are_the_best_that_leases_may_have(void **state) {
    (void)state;
    struct echi_random random;
    int changes = 0;
    echi_random_init(&random, 1, ECHI_STREAM_TEST, 9);
    for (int run = 0; run < 500; run++) {
        double ms[WORLD] = {1, 1, 1}, now[WORLD], longest;
        begin(ms);
        for (int r = 0; r < WORLD; r++) {
            const double stretch = 0.25 + echi_random_below(&random, 1000) * (run % 2 ? 0.02 : 0.001);
            steps(r, 160, 1);
            steps(r, 640, stretch);
            now[r] = stretch;
        }
        echi_machines_seen(&follow, &plan, times, 0, seen);
        const bool better = echi_shares_now(&follow, &plan, seen, times, share, best, &longest);
        uint32_t sum = 0;
        for (int r = 0; r < WORLD; r++) {
            assert_true(best[r] >= 1 && best[r] <= echi_plan_room(&plan, r));
            sum += best[r];
        }
        assert_int_equal(sum, ROUND);
        const double least = best_possible(now), is = longest_of(share, now);
        assert_near(longest_of(best, now), least);
        assert_near(longest * 1e3, is);
        if (is > 1.101 * least) assert_true(better);
        if (is < 1.099 * least) assert_false(better);
        changes += better;
    }
    assert_in_range(changes, 100, 499);
}

/* What always stretches a node's steps, and what it was planned with, changes nothing; nor do steps before all speeds are known. */
static void what_was_so_at_the_start_is_no_change(void **state) {
    (void)state;
    const double ms[WORLD] = {1, 1, 1};
    double longest;
    begin(ms);
    steps(0, 400, 1.3);
    steps(1, 400, 1);
    steps(2, 159, 1);
    echi_machines_seen(&follow, &plan, times, 0, seen);
    assert_false(echi_shares_now(&follow, &plan, seen, times, share, best, &longest));
    steps(2, 241, 1);
    echi_machines_seen(&follow, &plan, times, 0, seen);
    assert_false(echi_shares_now(&follow, &plan, seen, times, share, best, &longest));
    for (int r = 0; r < WORLD; r++) assert_true(echi_follow_slower(&follow, r) == 1 && best[r] == 8);
    steps(1, 640, 2);
    assert_near(echi_follow_slower(&follow, 1), 2);
    echi_machines_seen(&follow, &plan, times, 0, seen);
    assert_near(echi_times_whole(&seen[1], 10), 20e-3);
    assert_near(echi_times_whole(&seen[0], 10), 10e-3);
    assert_true(seen[2].link.out.rate == 3e6);
    assert_true(echi_shares_now(&follow, &plan, seen, times, share, best, &longest));
}

/* Stutters, five times as long, come once in fifty steps: of forty runs of 20,000 rounds none is dealt anew. */
static void chance_is_no_change(void **state) {
    (void)state;
    struct echi_random random;
    const double ms[WORLD] = {1, 1, 1};
    echi_random_init(&random, 2, ECHI_STREAM_TEST, 9);
    for (int run = 0; run < 40; run++) {
        struct echi_lasting l = {0};
        begin(ms);
        for (int step = 0; step < 20000; step++) {
            double longest = 0;
            for (int r = 0; r < WORLD; r++)
                steps(r, 1, (0.75 + echi_random_below(&random, 512) / 1024.0) * (echi_random_below(&random, 50) == 0 ? 5 : 1));
            if (step % ECHI_SHARES_ROUNDS) continue;
            echi_machines_seen(&follow, &plan, times, 0, seen);
            const bool better = echi_shares_now(&follow, &plan, seen, times, share, best, &longest);
            assert_false(echi_lasting_check(&l, better, longest, 0, step));
        }
    }
}

static struct echi_coordinator coordinator;

static bool takes(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t n[ECHI_WORLD_MAX] = {a, b, c};
    const bool done = echi_coordinator_share(&coordinator, n);
    if (done) assert_true(coordinator.size[0] == a && coordinator.size[1] == b && coordinator.size[2] == c);
    return done;
}

static void shares_that_cannot_be(void **state) {
    (void)state;
    const double ms[WORLD] = {1, 1, 1};
    begin(ms);
    coordinator.plan = plan;
    assert_true(takes(12, 11, 1));
    assert_true(takes(6, 6, 12));
    assert_int_equal(coordinator.shares.changes, 2);
    assert_false(takes(13, 5, 6));   /* more than a lease */
    assert_false(takes(12, 12, 0));  /* who takes part does so */
    assert_false(takes(8, 8, 7) || takes(8, 8, 9));
    coordinator.plan.group_of[2] = ECHI_NONE;   /* and nobody else does */
    coordinator.plan.n[2] = 0;
    coordinator.plan.n[0] = coordinator.plan.n[1] = 12;
    assert_false(takes(8, 8, 8));
    assert_true(takes(14, 10, 0));
    coordinator.plan.shares_follow = 0;
    assert_false(takes(12, 12, 0));
    assert_int_equal(coordinator.shares.changes, 3);
}

/* A head's node takes four times as long as at first, and the head leaves it: half of what its work stretched steps by is gone, and the
 * node as slow as it was. Where the head comes to, what its work stretches steps by is no change. */
static void a_head_that_moves_makes_nobody_slow(void **state) {
    (void)state;
    echi_follow_init(&follow, WORLD);
    steps(0, 1000, 3);
    steps(1, 1000, 1);
    steps(0, 1000, 12);
    assert_near(echi_follow_slower(&follow, 0), 4);
    echi_follow_moved(&follow, 0, 1, 4);
    assert_true(echi_follow_slower(&follow, 0) == 4 && echi_follow_slower(&follow, 1) == 1);
    steps(0, 1000, 6);
    steps(1, 1000, 3);
    assert_near(echi_follow_slower(&follow, 0), 4);
    assert_near(echi_follow_slower(&follow, 1), 1);
    steps(0, 1000, 1.5);   /* it recovers */
    assert_near(echi_follow_slower(&follow, 0), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lasts_is_answered),
        cmocka_unit_test(a_head_that_moves_makes_nobody_slow),
        cmocka_unit_test(answers_become_rarer),
        cmocka_unit_test(shares_are_the_best_that_leases_may_have),
        cmocka_unit_test(what_was_so_at_the_start_is_no_change),
        cmocka_unit_test(chance_is_no_change),
        cmocka_unit_test(shares_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
