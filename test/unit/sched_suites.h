/* SPDX-License-Identifier: Apache-2.0
 * Thousands of runs made from seeds (sched_runs.h), without faults but kills, for the policies that a test picks.
 * SEED=17 in the environment: that run alone. */
#ifndef SCHED_SUITES_H
#define SCHED_SUITES_H
#include "sched_runs.h"

typedef enum echi_sync pick_sync(struct sim *s);

/* What came about in all runs of a suite. */
struct came { uint64_t killed, owners, again, repeats, dropped; };

static void count_run(const struct sim *s, struct came *all) {
    all->killed += (uint64_t)s->killed;
    all->owners += s->owner_killed;
    all->again += s->coordinator.again_leases;
    all->repeats += s->repeats;
    all->dropped += s->dropped;
}

/* The seeds from `first` up to this one. */
static uint64_t seeds(uint64_t runs, uint64_t *first) {
    const char *only = getenv("SEED");
    *first = only ? strtoull(only, NULL, 10) : 1;
    return only ? *first : runs;
}

static inline void run_policy(enum echi_sync sync, uint64_t runs) {
    uint64_t seed;
    for (const uint64_t last = seeds(runs, &seed); seed <= last; seed++) {
        struct sim *s = sim_new(seed);
        choose_goal(s);
        choose_plan(s, sync);
        s->plan_given = true;
        sim_run(s);
        if (s->coordinator.status == ECH_E_ABORTED && s->coordinator.issued == 0) continue;   /* before it began */
        check_all(s);
        check_stalenesses(s);
    }
}

/* Several nodes of a run die, at any events. False where one run was asked for: then little came about. */
static bool run_kills(pick_sync *pick, uint64_t runs, struct came *all) {
    uint64_t seed;
    *all = (struct came){0};
    for (const uint64_t last = seeds(runs, &seed); seed <= last; seed++) {
        struct sim *s = sim_new(seed);
        chosen(s, pick(s));
        for (int i = 0; i < KILLS; i++) {
            s->kill_at[i] = below(s, 3) ? 1 + below(s, below(s, 2) ? 300 : 3000) : 0;
            s->kill_rank[i] = -1;
        }
        sim_run(s);
        check_all(s);
        count_run(s, all);
    }
    return getenv("SEED") == NULL;
}

/* Every rank that may be lost, at every event of a run. */
static void run_a_kill_at_every_event(pick_sync *pick) {
    for (uint64_t seed = 1; seed <= 24; seed += test_part()) {
        uint64_t events = 1;
        for (uint64_t at = 1; at <= events; at++) {
            struct sim *s = sim_new(seed);
            chosen(s, pick(s));
            s->kill_at[0] = at;
            s->kill_rank[0] = -1;
            sim_run(s);
            check_all(s);
            if (at == events || s->events > events) events = s->events < 1500 ? s->events : 1500;
        }
    }
}

/* Cut at any moment and resumed with other nodes and groups, and but for bsp with another policy: every sample counts once, and bsp
 * ends with the very weights of one node that was never cut. */
static void run_resumed(pick_sync *pick, uint64_t runs) {
    static struct kept kept;
    uint64_t cut = 0;
    for (uint64_t seed = 1; seed <= runs; seed++) {
        struct sim *s = sim_new(seed);
        const enum echi_sync sync = pick(s);
        choose_goal(s);
        s->goal.target_accuracy = 0;
        s->stop_at = 0;
        s->goal.keep = true;
        s->goal.keep_every = 1 + below(s, 3);
        s->cut_at = 1 + below(s, 10000);
        const struct echi_goal goal = s->goal;
        choose_plan(s, sync);
        s->plan_given = true;
        if (seed % 2) s->kill_at[0] = 1 + below(s, 1000);
        s->kill_rank[0] = -1;
        sim_run(s);
        if (!s->kept.there) continue;
        const uint32_t round = s->plan.round;
        kept = s->kept;
        cut++;

        s = sim_new(seed);
        echi_random_init(&s->random, seed, ECHI_STREAM_TEST, 2);
        s->goal = goal;
        s->from = kept;
        resume_plan(s, sync, round, false);
        take_up(s);
        sim_run(s);
        check_all(s);
    }
    assert_true(cut > runs / 4);
}
#endif
