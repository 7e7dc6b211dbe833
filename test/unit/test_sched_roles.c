/* SPDX-License-Identifier: Apache-2.0
 * The roles of whole clusters, thousands of runs under every policy, and single roles that are told wrong things. */
#include "sched_sim.h"

enum { RUNS = 3000 };

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
}

static void choose_plan(struct sim *s, enum echi_sync sync) {
    struct echi_plan *p = &s->plan;
    p->sync = (uint8_t)sync;
    p->world = (uint8_t)(1 + below(s, NODES));
    p->separated = below(s, 2) != 0;
    p->head = p->separated ? (uint8_t)below(s, p->world) : ECHI_NONE;
    p->staleness = below(s, 4);
    p->rounds_apart = 1 + below(s, 4);
    p->round = 1 + below(s, 30);
    p->lr = 0.1;
    p->momentum = 0.9;
    memset(p->owner_of, ECHI_NONE, sizeof p->owner_of);
    memset(p->group_of, ECHI_NONE, sizeof p->group_of);
    p->n_groups = 1;
    if (sync == ECHI_SYNC_BSP) {
        for (uint32_t i = 0; i < p->round; i++) p->n[below(s, p->world)]++;
        for (int r = 0; r < p->world; r++) p->group_of[r] = p->n[r] ? 0 : ECHI_NONE;
    } else {
        if (sync == ECHI_SYNC_GSSP) p->n_groups = (uint8_t)(1 + below(s, p->world < 4 ? p->world : 4));
        for (int r = 0; r < p->world; r++) {
            if (r >= p->n_groups && below(s, 6) == 0) continue;
            p->group_of[r] = (uint8_t)(r < p->n_groups ? r : (int)below(s, p->n_groups));
            p->n[r] = 1 + below(s, below(s, 8) ? 8 : N_MAX);
        }
    }
    /* Owners are any nodes, one each; not always of their own group. */
    const uint32_t turn = below(s, p->world);
    for (int g = 0; g < p->n_groups; g++) p->owner_of[g] = (uint8_t)(((uint32_t)g + turn) % p->world);
}

/* One node that does everything by itself, rounds as in an epoch's last short one. */
static void one_node(const struct sim *s, uint64_t samples, uint32_t *w) {
    uint32_t v[PARAMS] = {0}, grads[PARAMS], start = 0;
    for (int i = 0; i < PARAMS; i++) w[i] = mix((uint32_t)s->seed, (uint32_t)i);
    for (uint64_t done = 0; done < samples;) {
        if (start == s->goal.train_samples) start = 0;
        uint64_t n = s->plan.round;
        if (n > s->goal.train_samples - start) n = s->goal.train_samples - start;
        if (n > s->goal.samples - done) n = s->goal.samples - done;
        const struct echi_lease l = {.start = start, .n = (uint32_t)n, .round_size = (uint32_t)n};
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
        CHECK(s, n->ended && !n->held);
        if (n->has_worker) CHECK(s, n->worker.sending == 0 && n->worker.n_leases == 0);
        if (n->has_owner) {
            CHECK(s, n->owner.sends == 0 && n->owner.state_out == 0 && n->owner.state_sending < 0 && n->owner.busy == 0 && n->owner.drained);
            for (int i = 0; i < ECHI_SNAPSHOTS; i++) CHECK(s, n->owner.in_flight[i] == 0);
        }
        if (n->has_head) CHECK(s, n->head.busy == 0 && n->head.queued == 0 && !n->head.in_flight[0] && !n->head.in_flight[1] && !n->head.in_flight[2]);
        for (int k = 1; k < ECHI_SLOT_KINDS; k++)
            for (int i = 0; i < INDICES; i++)
                for (int l = 0; l < LAYERS; l++) CHECK(s, n->place[k][i].readers[l] == 0);
    }
}

static void check_counts(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    uint64_t loss = 0;
    CHECK(s, c->applied == c->issued && c->applied == s->applied_samples && c->n_out == 0);
    if (!s->stop_at && s->goal.target_accuracy == 0) CHECK(s, c->applied == s->goal.samples && c->status == ECH_OK);
    for (uint32_t i = 0; i < s->goal.train_samples; i++) {
        const uint64_t times = c->applied / s->goal.train_samples + (i < c->applied % s->goal.train_samples);
        CHECK(s, s->leased[i] == times && s->computed[i] == times && s->applied[i] == times);
        if (s->plan.separated) CHECK(s, s->headed[i] == times);
        loss += times * loss_of(label_of(i));
    }
    CHECK(s, c->loss_sum == (double)loss && c->loss_samples == c->applied);
    CHECK(s, s->goal.has_test ? c->looks >= 1 : c->looks == 0);
    CHECK(s, (uint64_t)s->looks == c->looks);
}

/* What --save would write: on one node what that node computes; on all owners the same. */
static void check_weights(struct sim *s) {
    const uint32_t *final = s->node[0].place[ECHI_SLOT_COORD_PARAMS][0].word;
    uint32_t expected[PARAMS];
    if (s->plan.sync == ECHI_SYNC_BSP) {
        one_node(s, s->coordinator.applied, expected);
        CHECK(s, memcmp(final, expected, sizeof expected) == 0);
    }
    for (int g = 0; g < s->plan.n_groups; g++) {
        const int rank = s->plan.owner_of[g];
        const struct echi_owner *o = &s->node[rank].owner;
        if (s->plan.n_groups == 1) {
            CHECK(s, memcmp(final, place(s, rank, (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, o->current})->word, (size_t)cut_of(s) * WORDS * 4) == 0);
            continue;
        }
        uint8_t peer[ECHI_GROUPS_MAX];
        for (int p = 0; p < s->plan.n_groups; p++) {
            peer[p] = o->peer[p].there ? (uint8_t)(2 * p + o->peer[p].current) : ECHI_NONE;
            if (p != g) CHECK(s, o->peer[p].version == s->node[s->plan.owner_of[p]].owner.state_version);
        }
        sum_states(s, rank, (struct echi_slot){ECHI_SLOT_OWNER_STATE, o->state_current}, peer, expected);
        CHECK(s, memcmp(final, expected, (size_t)cut_of(s) * WORDS * 4) == 0);
    }
    if (s->plan.separated) {
        const struct node *h = &s->node[s->plan.head];
        CHECK(s, memcmp(final + CUT * WORDS, h->place[ECHI_SLOT_HEAD_WEIGHTS][h->head.current].word + CUT * WORDS, (PARAMS - CUT * WORDS) * 4) == 0);
    }
    for (int r = 1; r < s->plan.world && s->goal.give_final; r++)
        CHECK(s, memcmp(final, s->node[r].place[ECHI_SLOT_NODE_FINAL][0].word, PARAMS * 4) == 0);
}

static struct sim *sim_new(uint64_t seed) {
    static struct sim s;
    memset(&s, 0, sizeof s);
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
    }
}
static void bsp(void **state) { (void)state; run_policy(ECHI_SYNC_BSP); }
static void asp(void **state) { (void)state; run_policy(ECHI_SYNC_ASP); }
static void ssp(void **state) { (void)state; run_policy(ECHI_SYNC_SSP); }
static void gssp(void **state) { (void)state; run_policy(ECHI_SYNC_GSSP); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp), cmocka_unit_test(asp), cmocka_unit_test(ssp), cmocka_unit_test(gssp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
