/* SPDX-License-Identifier: Apache-2.0
 * Clusters under `local`, and under `asp` with drop_older and divisors: whole runs with kills and checkpoints. What own steps have moved
 * is added up lease by lease and compared with each round's sum, and one worker with plain steps. sched_local_sim.h is the driver that
 * test_sched_roles.c had before it took faults; the two are to become one.
 * SEED=17 build/test/unit/test_sched_local repeats one run of each. */
#include "sched_local_sim.h"

enum { RUNS = 1500 };

static uint32_t below(struct sim *s, uint32_t bound) { return echi_random_below(&s->random, bound); }

/* ---- runs made from a seed ---- */

static void choose_goal(struct sim *s) {
    s->goal.train_samples = 1 + below(s, SAMPLES_MAX);
    s->goal.samples = (1 + below(s, 3)) * (uint64_t)s->goal.train_samples;
    if (below(s, 4) == 0) s->goal.samples = below(s, 3 * s->goal.train_samples);
    s->goal.eval_every = below(s, 3) ? 1 + below(s, 60) : 0;
    s->goal.has_test = below(s, 4) != 0;
    s->goal.target_accuracy = below(s, 8) ? 0 : 0.9;
    s->goal.give_final = below(s, 3) == 0;
    s->stop_at = below(s, 12) ? 0 : 1 + below(s, 20000);
    s->goal.keep = below(s, 3) == 0;
    s->goal.keep_every = below(s, 6);
}

static void choose_plan(struct sim *s, enum echi_sync sync) {
    struct echi_plan *p = &s->plan;
    p->sync = (uint8_t)sync;
    p->world = (uint16_t)(1 + below(s, NODES));
    p->separated = below(s, 2) && sync != ECHI_SYNC_LOCAL;
    p->head = p->separated ? (uint16_t)below(s, p->world) : ECHI_NO_RANK;
    p->staleness = below(s, 4);
    p->rounds_apart = 1 + below(s, 4);
    p->strands = (uint8_t)(p->separated && sync != ECHI_SYNC_BSP ? 1 + below(s, ECHI_STRANDS) : 1);
    p->round = 1 + below(s, 30);
    p->lr = 0.1;
    p->momentum = 0.9;
    memset(p->owner_of, 0xff, sizeof p->owner_of);
    memset(p->group_of, ECHI_NONE, sizeof p->group_of);
    p->n_groups = 1;
    if (sync == ECHI_SYNC_BSP) {
        for (uint32_t i = 0; i < p->round; i++) p->n[below(s, p->world)]++;
        for (int r = 0; r < p->world; r++) p->group_of[r] = p->n[r] ? 0 : ECHI_NONE;
    } else {
        if (sync == ECHI_SYNC_GSSP) p->n_groups = (uint8_t)(1 + below(s, p->world < 4 ? p->world : 4));
        const bool large = below(s, 10) == 0;   /* more rows at the head than it merges */
        p->outer_lr = sync == ECHI_SYNC_LOCAL;
        const bool plain_asp = sync == ECHI_SYNC_ASP && !p->separated;
        p->drop_older = plain_asp && below(s, 2) ? below(s, 8) / 4.0 : 0;
        p->outer_momentum = sync == ECHI_SYNC_LOCAL && below(s, 2) ? 0.9 : 0;
        for (int r = 0; r < p->world; r++) {
            if (r >= p->n_groups && below(s, 6) == 0) continue;
            p->group_of[r] = (uint8_t)(r < p->n_groups ? r : (int)below(s, p->n_groups));
            p->n[r] = large ? N_MAX - below(s, 3) : 1 + below(s, below(s, 8) ? 8 : N_MAX);
            if (sync == ECHI_SYNC_LOCAL) p->inner[r] = 1 + below(s, 5);
            if (plain_asp && below(s, 2)) p->divisor[r] = 1 + below(s, 50);
        }
    }
    /* Owners are any nodes, one each; not always of their own group. */
    const uint32_t turn = below(s, p->world);
    for (int g = 0; g < p->n_groups; g++) p->owner_of[g] = (uint8_t)(((uint32_t)g + turn) % p->world);
}

/* One node that does everything by itself, rounds as in an epoch's last short one; under `local` (one worker, outer_lr 1, no outer
 * momentum) its steps, of which only the last of an epoch or of the run is short. */
static void one_node(const struct sim *s, uint64_t samples, uint32_t *w) {
    const bool local = s->plan.sync == ECHI_SYNC_LOCAL;
    uint32_t v[PARAMS] = {0}, grads[PARAMS], start = 0;
    for (int i = 0; i < PARAMS; i++) w[i] = mix((uint32_t)s->seed, (uint32_t)i);
    for (uint64_t done = 0; done < samples;) {
        if (start == s->goal.train_samples) start = 0;
        uint64_t n = local ? s->plan.n[0] : s->plan.round;
        if (n > s->goal.train_samples - start) n = s->goal.train_samples - start;
        if (n > s->goal.samples - done) n = s->goal.samples - done;
        const struct echi_lease l = {.start = start, .n = (uint32_t)n, .round_size = local ? s->plan.round : (uint32_t)n};
        toy_step(w, grads, &l);
        for (int i = 0; i < PARAMS; i++) w[i] -= toy_velocity(&v[i], w[i], grads[i], l.n);
        start += l.n;
        done += n;
    }
}

/* Nothing is on its way, no slot is read or written, but the places that wait for what will never come. */
static void check_silence(struct sim *s) {
    CHECK(s, s->messages == 0 && s->n_sents == 0 && s->works == 0);
    for (int r = 0; r < s->plan.world; r++) {
        const struct node *n = &s->node[r];
        if (n->dead) continue;
        CHECK(s, n->ended && !n->held);
        for (int i = 0; n->has_worker && i < s->plan.strands; i++) CHECK(s, n->worker.strand[i].sending == 0 && n->worker.n_leases == 0);
        for (int i = 0; n->has_worker && i < ECHI_DELTAS; i++) CHECK(s, n->worker.local.delta[i].sending == 0 && !n->worker.local.delta[i].held);
        if (n->has_owner) {
            CHECK(s, n->owner.sends == 0 && n->owner.state_out == 0 && n->owner.state_sending < 0 && n->owner.busy == 0 &&
                         (n->owner.drained || s->killed));
            for (int i = 0; i < ECHI_SNAPSHOTS; i++) CHECK(s, n->owner.in_flight[i] == 0);
        }
        if (n->has_head)
            CHECK(s, n->head.busy == 0 && n->head.queued == 0 && !n->head.in_flight[0] && !n->head.in_flight[1] &&
                         !n->head.in_flight[2]);
        for (int k = 1; k < ECHI_SLOT_KINDS; k++)
            for (int i = 0; i < INDICES; i++)
                for (int l = 0; l < LAYERS; l++) CHECK(s, n->place[k][i].readers[l] == 0);
    }
}

/* How often sample i was taken in before this run, which was resumed. */
static uint64_t before(const struct sim *s, uint32_t i) {
    return s->from.at.samples / s->goal.train_samples + (i < s->from.at.samples % s->goal.train_samples);
}

/* The leases in the states that are left: all of a living owner's, of a lost one's those in the version that all others keep. */
static void count_surviving(struct sim *s) {
    for (int id = 1; id < LEASES; id++) {
        const struct echi_lease *l = &s->applied_lease[id];
        if (!s->lease_applied[id]) continue;
        const int group = echi_plan_group_owned(&s->plan, l->owner);
        bool in = !s->node[l->owner].dead;
        for (int r = 0; r < s->plan.world && s->node[l->owner].dead; r++)
            if (s->node[r].has_owner && !s->node[r].dead) in = s->applied_version[id] <= s->node[r].owner.peer[group].version;
        for (uint32_t i = l->start; in && i < l->start + l->n; i++) s->applied[i]++;
    }
}

static void check_counts(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    uint64_t loss = 0;
    const bool again = s->killed || c->dropped_leases > 0;   /* samples were dealt more than once */
    CHECK(s, c->applied == c->issued && c->n_out == 0 && c->n_again == 0);
    CHECK(s, c->applied == s->from.at.samples + s->applied_samples || s->owner_killed);
    count_surviving(s);
    if (!s->stop_at && s->goal.target_accuracy == 0) CHECK(s, c->applied == s->goal.samples && c->status == ECH_OK);
    for (uint32_t i = 0; i < s->goal.train_samples; i++) {
        const uint64_t times = c->applied / s->goal.train_samples + (i < c->applied % s->goal.train_samples);
        CHECK(s, s->applied[i] == times);
        CHECK(s, again ? s->leased[i] >= times && s->computed[i] >= times : s->leased[i] == times && s->computed[i] == times);
        if (s->plan.separated) CHECK(s, s->headed[i] == times);
        loss += (times - before(s, i)) * loss_of(label_of(i));
    }
    CHECK(s, s->owner_killed || (c->loss_sum == (double)loss && c->loss_samples == s->applied_samples));
    CHECK(s, (c->again_leases == 0) == (c->again_samples == 0) && (again || c->again_leases == 0));
    CHECK(s, (c->dropped_leases > 0) == (c->dropped_samples > 0) && c->again_samples >= c->dropped_samples);
    CHECK(s, s->goal.has_test ? c->looks >= 1 : c->looks == 0);
    CHECK(s, (uint64_t)s->looks == c->looks - s->from.at.looks);
    if (s->goal.keep) CHECK(s, c->kept_samples == c->applied || c->standing.samples == c->applied);   /* else it could not be written */
    if (s->plan.separated) CHECK(s, s->node[s->plan.head].head.repeats <= s->repeats && s->repeats <= c->again_samples + SAMPLES_MAX);
}

/* The histograms count each push once; the head's agrees with what the simulation saw, where its bins are quarters. */
static void check_stalenesses(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    uint64_t trunk = 0, head = 0;
    for (int b = 0; b < ECHI_STALENESS_BINS; b++) {
        trunk += c->trunk_bins[b];
        head += c->head_bins[b];
    }
    CHECK(s, trunk == s->pushes && head == (s->plan.separated ? s->pushes : 0));
    if (s->plan.sync == ECHI_SYNC_BSP) CHECK(s, c->trunk_bins[0] == trunk && c->head_bins[0] == head);
    for (int b = 0; b <= 4 && s->plan.separated; b++) CHECK(s, c->head_bins[b] == s->head_apart[b]);
    if (s->plan.separated) CHECK(s, c->head_bins[5] == s->head_apart[5] + s->head_apart[6]);
    const double least = c->stale_max > 0 ? echi_staleness_edge[echi_staleness_bin(c->stale_max) - 1] : -1;
    for (int b = echi_staleness_bin(c->stale_max) + 1; b < ECHI_STALENESS_BINS; b++) CHECK(s, c->trunk_bins[b] == 0);
    CHECK(s, trunk == 0 || (c->stale_max > least && c->trunk_bins[echi_staleness_bin(c->stale_max)] > 0));
}

/* What --save would write: on one node what that node computes; on all owners the same. */
static void check_weights(struct sim *s) {
    const uint32_t *final = s->node[0].place[ECHI_SLOT_COORD_PARAMS][0].word;
    uint32_t expected[PARAMS];
    const bool alone = s->plan.sync == ECHI_SYNC_LOCAL && s->plan.world == 1 && s->plan.outer_momentum == 0 && !s->from.there;
    if (s->plan.sync == ECHI_SYNC_BSP || alone) {
        one_node(s, s->coordinator.applied, expected);
        CHECK(s, memcmp(final, expected, sizeof expected) == 0);
    }
    for (int g = 0; g < s->plan.n_groups; g++) {
        const int rank = s->plan.owner_of[g];
        const struct echi_owner *o = &s->node[rank].owner;
        if (s->node[rank].dead) continue;
        if (s->plan.n_groups == 1) {
            CHECK(s, memcmp(final, place(s, rank, (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, o->current})->word,
                            (size_t)cut_of(s) * WORDS * 4) == 0);
            continue;
        }
        uint8_t peer[ECHI_GROUPS_MAX];
        for (int p = 0; p < s->plan.n_groups; p++) {
            peer[p] = o->peer[p].there ? (uint8_t)(2 * p + o->peer[p].current) : ECHI_NONE;
            if (p == g) continue;
            const struct node *owner = &s->node[s->plan.owner_of[p]];
            CHECK(s, owner->dead ? o->peer[p].version <= owner->owner.state_version : o->peer[p].version == owner->owner.state_version);
        }
        sum_states(s, rank, (struct echi_slot){ECHI_SLOT_OWNER_STATE, o->state_current}, peer, expected);
        CHECK(s, memcmp(final, expected, (size_t)cut_of(s) * WORDS * 4) == 0);
    }
    if (s->plan.separated) {
        const struct node *h = &s->node[s->plan.head];
        CHECK(s, memcmp(final + CUT * WORDS, h->place[ECHI_SLOT_HEAD_WEIGHTS][h->head.current].word + CUT * WORDS,
                        (PARAMS - CUT * WORDS) * 4) == 0);
    }
    for (int r = 1; r < s->plan.world && s->goal.give_final; r++)
        CHECK(s, s->node[r].dead || memcmp(final, s->node[r].place[ECHI_SLOT_NODE_FINAL][0].word, PARAMS * 4) == 0);
}

static struct sim *sim_new(uint64_t seed) {
    static struct sim s;
    sim_clear(&s);
    s.seed = seed;
    echi_random_init(&s.random, seed, ECHI_STREAM_TEST, 1);
    return &s;
}

static void run_policy(enum echi_sync sync) {
    const char *only = getenv("SEED");
    for (uint64_t seed = only ? strtoull(only, NULL, 10) : 1; seed <= (only ? strtoull(only, NULL, 10) : RUNS); seed++) {
        struct sim *s = sim_new(seed);
        choose_goal(s);
        choose_plan(s, sync);
        s->plan_given = true;
        sim_run(s);
        if (s->coordinator.status == ECH_E_ABORTED && s->coordinator.issued == 0) continue;   /* before it began */
        check_counts(s);
        check_silence(s);
        check_weights(s);
        check_stalenesses(s);
    }
}

/* ---- kills ---- */

static void chosen(struct sim *s, enum echi_sync sync) {
    choose_goal(s);
    choose_plan(s, sync);
    s->plan_given = true;
    s->stop_at = 0;
}
static void check_all(struct sim *s) {
    check_counts(s);
    check_silence(s);
    check_weights(s);
}

/* Several nodes of a run die, at any events. What losses can bring about does come about. */
static void kills(void **state) {
    (void)state;
    uint64_t killed = 0, again = 0;
    const char *only = getenv("SEED");
    for (uint64_t seed = only ? strtoull(only, NULL, 10) : 1; seed <= (only ? strtoull(only, NULL, 10) : 4 * RUNS); seed++) {
        struct sim *s = sim_new(seed);
        chosen(s, (seed % 3 ? ECHI_SYNC_LOCAL : ECHI_SYNC_ASP));
        for (int i = 0; i < KILLS; i++) {
            s->kill_at[i] = below(s, 3) ? 1 + below(s, below(s, 2) ? 300 : 3000) : 0;
            s->kill_rank[i] = -1;
        }
        sim_run(s);
        check_all(s);
        killed += (uint64_t)s->killed;
        again += s->coordinator.again_leases;
    }
    if (!only) assert_true(killed > RUNS && again > RUNS);
}

/* Every rank that may be lost, at every event of a run. */
static void a_kill_at_every_event(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        uint64_t events = 1;
        for (uint64_t at = 1; at <= events; at++) {
            struct sim *s = sim_new(seed);
            chosen(s, (seed % 3 ? ECHI_SYNC_LOCAL : ECHI_SYNC_ASP));
            s->kill_at[0] = at;
            s->kill_rank[0] = -1;
            sim_run(s);
            check_all(s);
            if (at == events || s->events > events) events = s->events < 1500 ? s->events : 1500;
        }
    }
}

/* Cut at any moment and resumed with other nodes and policy: every sample counts once. */
static void resumed(void **state) {
    (void)state;
    static struct kept kept;
    int cut = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct sim *s = sim_new(seed);
        const enum echi_sync sync = below(s, 2) ? ECHI_SYNC_LOCAL : ECHI_SYNC_ASP;
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
        kept = s->kept;
        cut++;

        s = sim_new(seed);
        echi_random_init(&s->random, seed, ECHI_STREAM_TEST, 2);
        s->goal = goal;
        s->goal.resumed = true;
        s->goal.from = kept.at;
        s->from = kept;
        choose_plan(s, below(s, 2) ? ECHI_SYNC_LOCAL : ECHI_SYNC_ASP);
        s->plan_given = true;
        for (uint32_t i = 0; i < goal.train_samples; i++)
            s->leased[i] = s->computed[i] = s->applied[i] = s->headed[i] = (uint8_t)before(s, i);
        sim_run(s);
        check_counts(s);
        check_silence(s);
        check_weights(s);
    }
    assert_true(cut > RUNS / 4);
}

static void local(void **state) { (void)state; run_policy(ECHI_SYNC_LOCAL); }
static void asp(void **state) { (void)state; run_policy(ECHI_SYNC_ASP); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(local), cmocka_unit_test(asp), cmocka_unit_test(resumed), cmocka_unit_test(kills),
                                       cmocka_unit_test(a_kill_at_every_event)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
