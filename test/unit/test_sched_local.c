/* SPDX-License-Identifier: Apache-2.0
 * Clusters under `local`, and under `asp` with drop_older and divisors, more of them than test_sched_roles.c has: with kills and
 * checkpoints. What own steps have moved is added up lease by lease and compared with each change, round and copy (sched_watch.h,
 * LOCAL), one worker with plain steps. SEED=17 build/test/unit/test_sched_local repeats one run of each. */
#include "sched_suites.h"

#define RUNS (1500 / test_part())

static enum echi_sync mostly_local(struct sim *s) { return s->seed % 3 ? ECHI_SYNC_LOCAL : ECHI_SYNC_ASP; }
static enum echi_sync either(struct sim *s) { return below(s, 2) ? ECHI_SYNC_LOCAL : ECHI_SYNC_ASP; }

/* Mean of one, outer_lr 1, no outer momentum: what that node would do without rounds. */
static void one_worker_takes_plain_steps(void **state) {
    (void)state;
    uint64_t several = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct sim *s = sim_new(seed);
        do {
            memset(&s->plan, 0, sizeof s->plan);
            chosen(s, ECHI_SYNC_LOCAL);
        } while (s->plan.world > 1 || s->plan.outer_momentum > 0);
        sim_run(s);
        check_all(s);
        several += s->plan.inner[0] > 1 && s->versions[0] > 1;
    }
    assert_true(several > RUNS / 4);
}

/* A push that is too old is dropped, and its samples come again. */
static void old_pushes_are_dropped(void **state) {
    (void)state;
    uint64_t dropped = 0, kept = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct sim *s = sim_new(seed);
        do {
            memset(&s->plan, 0, sizeof s->plan);
            chosen(s, ECHI_SYNC_ASP);
        } while (s->plan.drop_older == 0);
        sim_run(s);
        check_all(s);
        check_stalenesses(s);
        dropped += s->dropped;
        kept += s->pushes;
    }
    assert_true(dropped > RUNS && kept > dropped);
}

static void kills(void **state) {
    (void)state;
    struct came all;
    if (run_kills(mostly_local, 4 * RUNS, &all)) assert_true(all.killed > RUNS && all.again > RUNS && all.dropped > RUNS);
}
static void a_kill_at_every_event(void **state) { (void)state; run_a_kill_at_every_event(mostly_local); }
static void resumed(void **state) { (void)state; run_resumed(either, RUNS); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_worker_takes_plain_steps), cmocka_unit_test(old_pushes_are_dropped),
                                       cmocka_unit_test(resumed), cmocka_unit_test(kills), cmocka_unit_test(a_kill_at_every_event)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
