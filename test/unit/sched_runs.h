/* SPDX-License-Identifier: Apache-2.0
 * Runs of simulated clusters (sched_sim.h) made from a seed: what is trained, by whom, and what must be true at the end. */
#ifndef SCHED_RUNS_H
#define SCHED_RUNS_H
#include "sched_sim.h"
#include "part.h"

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
    s->goal.collect = (int64_t)(s->seed % 3) * 400;   /* 0: a complaint is judged as soon as the accused has answered */
}

/* Two or three, on nodes that train or not, each with some worker. */
static void choose_heads(const struct sim *s, struct echi_plan *p) {
    const int heads = 2 + (int)(mix((uint32_t)s->seed, 152) % 2), workers = echi_plan_workers(p, -1);
    int worker = 0;
    if (heads > p->world || heads > workers) return;
    p->heads = (uint8_t)heads;
    for (int i = 0; i < heads; i++) p->head_rank[i] = (uint16_t)((p->head + i) % p->world);
    for (int r = 0; r < p->world; r++) {
        if (p->group_of[r] == ECHI_NONE) continue;
        p->head_of[r] = (uint8_t)(worker < heads ? worker : (int)(mix((uint32_t)s->seed, (uint32_t)(153 + r)) % (uint32_t)heads));
        worker++;
    }
}
static void give_up_heads(struct echi_plan *p) {
    p->heads = 0;
    memset(p->head_rank, 0, sizeof p->head_rank);
    memset(p->head_of, 0, sizeof p->head_of);
}

static void choose_plan(struct sim *s, enum echi_sync sync) {
    struct echi_plan *p = &s->plan;
    p->sync = (uint8_t)sync;
    p->world = (uint16_t)(1 + below(s, NODES));
    p->cut = below(s, 2) && sync != ECHI_SYNC_LOCAL ? CUT : 0;
    p->head = p->cut ? (uint16_t)below(s, p->world) : ECHI_NO_RANK;
    p->shadow = 0;
    p->staleness = below(s, 4);
    p->rounds_apart = 1 + below(s, 4);
    p->flights = (uint8_t)(p->cut && sync != ECHI_SYNC_BSP ? 1 + below(s, ECHI_FLIGHTS) : 1);
    p->round = 1 + below(s, 30);
    p->sync_norm = sync == ECHI_SYNC_BSP && s->seed / 5 % 2;
    p->micro_batches = 0;
    if (sync == ECHI_SYNC_BSP && p->cut && !p->sync_norm && mix((uint32_t)s->seed, 151) % 2)
        p->micro_batches = (uint8_t)(2 + mix((uint32_t)s->seed, 152) % 3);
    p->gathers = sync == ECHI_SYNC_BSP && p->cut && !p->micro_batches && mix((uint32_t)s->seed, 153) % 2;
    p->activations = p->cut && s->seed / 3 % 2 ? ECHI_ACTIVATIONS_BF16 : ECHI_ACTIVATIONS_FP32;
    p->lr = 0.1;
    p->momentum = 0.9;
    p->damping = sync == ECHI_SYNC_BSP || sync == ECHI_SYNC_LOCAL ? 0 : (double)(s->seed % 3) / 2;
    memset(p->owner_of, 0xff, sizeof p->owner_of);
    memset(p->group_of, ECHI_NONE, sizeof p->group_of);
    p->n_groups = 1;
    if (sync == ECHI_SYNC_BSP) {
        for (uint32_t i = 0; i < p->round; i++) p->n[below(s, p->world)]++;
        for (int r = 0; r < p->world; r++) p->group_of[r] = p->n[r] ? 0 : ECHI_NONE;
    } else {
        if (sync == ECHI_SYNC_GSSP) p->n_groups = (uint8_t)(1 + below(s, p->world < 4 ? p->world : 4));
        const bool large = below(s, 10) == 0;   /* more rows at the head than it merges */
        const bool local = sync == ECHI_SYNC_LOCAL, plain_asp = sync == ECHI_SYNC_ASP && !p->cut;
        p->outer_lr = local;
        p->outer_momentum = local && below(s, 2) ? 0.9 : 0;
        p->drop_older = plain_asp && below(s, 2) ? below(s, 8) / 4.0 : 0;
        for (int r = 0; r < p->world; r++) {
            if (r >= p->n_groups && below(s, 6) == 0) continue;
            p->group_of[r] = (uint8_t)(r < p->n_groups ? r : (int)below(s, p->n_groups));
            p->n[r] = large ? N_MAX - below(s, 3) : 1 + below(s, below(s, 8) ? 8 : N_MAX);
            if (local) p->inner[r] = 1 + below(s, 5);
            if (plain_asp && below(s, 2)) p->divisor[r] = 1 + below(s, 50);
        }
    }
    p->codec = (uint8_t)below(s, ECHI_CODECS);
    if (sync == ECHI_SYNC_LOCAL || p->drop_older > 0) p->codec = ECHI_CODEC_DENSE;
    p->state_ratio = p->codec ? 300000 : 0;
    for (int g = 0; g < p->n_groups; g++) p->base[g] = p->state_ratio;
    /* Owners are any nodes, one each; not always of their own group. */
    const uint32_t turn = below(s, p->world);
    p->reserve = sync == ECHI_SYNC_GSSP && p->n_groups < p->world && s->seed / 7 % 2;
    if (p->reserve) p->base[p->n_groups++] = p->state_ratio;
    for (int g = 0; g < p->n_groups; g++) p->owner_of[g] = (uint16_t)(((uint32_t)g + turn) % p->world);
    if (sync == ECHI_SYNC_BSP && p->codec == ECHI_CODEC_DENSE && p->world > 1)   /* set_shards */
        p->shards = (uint8_t)(mix((uint32_t)s->seed, 31) % 4 % p->world + 1);
    if (p->cut && p->world > 1 && mix((uint32_t)s->seed, 141) % 2)
        p->shadow = (uint16_t)(1 + (p->head + 1 + mix((uint32_t)s->seed, 142) % (p->world - 1u)) % p->world);
    if (sync == ECHI_SYNC_BSP && p->cut && p->shadow == 0 && mix((uint32_t)s->seed, 151) % 4) choose_heads(s, p);
}

static inline void choose_request(struct sim *s, enum echi_sync sync) {
    s->request = (struct echi_plan_request){.sync = sync,
                                     .world = 1 + (int)below(s, NODES),
                                     .separate = (int)below(s, 3) - 1,
                                     .has_cut = true,
                                     .heads = 1,
                                     .activations = s->seed / 3 % 2 ? ECHI_ACTIVATIONS_BF16 : ECHI_ACTIVATIONS_FP32,
                                     .groups = (int)below(s, 4),
                                     .batch = 8 + below(s, 20),
                                     .staleness = below(s, 4),
                                     .sync_norm = sync == ECHI_SYNC_BSP && s->seed / 5 % 2,
                                     .lr = 0.1};
    struct echi_plan_request *w = &s->request;
    if (sync == ECHI_SYNC_BSP && w->separate == 1 && !w->sync_norm) w->micro_batches = (int)(mix((uint32_t)s->seed, 151) % 5);
    if (sync == ECHI_SYNC_LOCAL) {
        w->separate = 0;
        w->inner_steps = 1 + below(s, 5);
        w->outer_lr = 1;
        w->outer_momentum = below(s, 2) ? 0.9 : 0;
    }
    if (sync == ECHI_SYNC_ASP && w->separate != 1) {
        w->drop_older = below(s, 2) ? below(s, 8) / 4.0 : 0;
        w->weigh_by_time = below(s, 2) != 0;
    }
}

/* One node that does everything by itself: rounds as in an epoch's last short one; under `local`, with outer_lr 1 and no outer
 * momentum, its steps, of which only the last of an epoch or of the run is short. */
static void one_node(const struct sim *s, uint64_t samples, uint32_t *w) {
    uint32_t v[PARAMS] = {0}, grads[PARAMS], start = 0;
    for (int i = 0; i < PARAMS; i++) w[i] = mix((uint32_t)s->seed, (uint32_t)i);
    for (uint64_t done = 0; done < samples;) {
        for (int i = 0; i < s->resets.count * PARAMS; i++)
            if (s->resets.at[i / PARAMS].samples == done && (s->resets.at[i / PARAMS].words >> i % PARAMS & 1)) v[i % PARAMS] = 0;
        if (start == s->goal.train_samples) start = 0;
        uint64_t n = is_local(s) ? s->plan.n[0] : s->plan.round;
        if (n > s->goal.train_samples - start) n = s->goal.train_samples - start;
        if (n > s->goal.samples - done) n = s->goal.samples - done;
        const struct echi_lease l = {.start = start, .n = (uint32_t)n};
        toy_step(w, grads, &l, is_local(s) ? s->plan.round : l.n);
        for (int i = 0; i < PARAMS; i++) w[i] -= toy_velocity(i, &v[i], w[i], grads[i], l.n);
        start += l.n;
        done += n;
    }
}

/* At the end a worker has the last weights, on loan from an owner of its node; no push is lent any more. */
static void return_loans(struct sim *s) {
    for (int r = 0; r < s->plan.world; r++) {
        if (s->node[r].dead) continue;
        MUST(s, SILENCE, own_place(s, r, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, (uint16_t)r})->n_lent == 0);
        for (uint16_t i = 0; i < ECHI_WORKER_PLACES; i++) {
            end_loan(s, r, (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, i});
            end_loan(s, r, (struct echi_slot){ECHI_SLOT_WORKER_COMING, i});
        }
    }
    while (step(s)) {}
}

/* Is there a node whose messages do not come to this one any more, and it was not told: a cut link, or a loss that nobody saw in time? */
static bool misses_one(const struct sim *s, int rank) {
    const struct node *n = &s->node[rank];
    for (int r = 0; r < s->plan.world; r++)
        if (s->node[r].dead ? !n->setup.plan.lost[r] : n->cut[r]) return true;
    return false;
}

/* A run that ends before a cut link or a loss is noticed leaves messages that wait for a place at its end: one owner's weights, behind
 * those of which the other owner's part was lost. They come back, as where a link is closed, and so do those that are sent then. */
static void return_for_the_cut_off(struct sim *s) {
    for (bool any = s->plan.shards > 0; any;) {
        any = false;
        for (int i = 0; i < s->pooled; i++) {
            struct message *m = &s->pool[i];
            if (m->refs == 0 || m->words == 0 || m->going || m->dropped || !misses_one(s, m->to)) continue;
            drop(s, m);
            any = true;
        }
        while (step(s)) {}
    }
}

/* Nothing is on its way, no slot is read or written, but the places that wait for what will never come. */
static void check_silence(struct sim *s) {
    static const uint8_t nobody[PARAMS];
    return_loans(s);
    return_for_the_cut_off(s);
    for (int i = 0; i < s->pooled; i++)
        MUST(s, SILENCE, s->pool[i].refs == 0 || s->node[s->pool[i].from].dead || s->node[s->pool[i].to].dead);
    for (int i = 0; i < TASKS; i++) MUST(s, SILENCE, !s->work_used[i] || s->node[s->work[i].node].dead);
    for (int r = 0; r < s->plan.world; r++) {
        const struct node *n = &s->node[r];
        MUST(s, SILENCE, n->dead || !s->coordinator.plan.lost[r]);
        if (n->dead) continue;
        MUST(s, SILENCE, n->role.ended && n->role.over == (r > 0) && !n->held);
        for (int i = 0; n->role.worker && i < s->plan.flights; i++)
            MUST(s, SILENCE, n->worker.flight[i].sending == 0 && !n->worker.flight[i].norm_sending && n->worker.n_leases == 0);
        for (int i = 0; n->role.worker && i < ECHI_DELTAS; i++)
            MUST(s, SILENCE, n->worker.local.delta[i].sending == 0 && !n->worker.local.delta[i].held);
        if (n->role.owner) {
            MUST(s, SILENCE, n->owner.sends == 0 && n->owner.state_out == 0 && n->owner.state_sending < 0 && n->owner.busy == 0 &&
                                 (n->owner.drained || s->killed));
            MUST(s, SILENCE, !n->owner.norm.open && n->owner.norm.sending == 0);
            for (int i = 0; i < ECHI_SNAPSHOTS; i++) MUST(s, SILENCE, n->owner.in_flight[i] == 0);
        }
        if (n->role.head)
            MUST(s, SILENCE, n->head.busy == 0 && n->head.queued == 0 && !n->head.in_flight[0] && !n->head.in_flight[1] &&
                                 !n->head.in_flight[2]);
        for (int i = 0; i < s->first_place[ECHI_SLOT_KINDS]; i++)
            MUST(s, SILENCE, memcmp(n->place[i].readers, nobody, sizeof nobody) == 0);
    }
}

/* The leases in the states that are left: all of a living owner's, or of one whose end nobody saw before the run's; of a lost one's
 * those in the version that all others keep, who may have been killed as well, when the run had all of them. */
static void count_surviving(struct sim *s) {
    uint8_t other[NODES][SAMPLES_MAX] = {{0}};   /* the same of the shards behind the first */
    for (uint32_t id = 1; id <= s->leases; id++) {
        const struct seen_lease *seen = &s->seen[id];
        const struct echi_lease *l = &seen->lease;
        if (!seen->applied) continue;
        const int group = echi_plan_group_owned(&s->plan, l->owner);
        const bool lost = !s->plan.shards && s->coordinator.plan.lost[l->owner];
        bool in = !lost;
        for (int r = 0; r < s->plan.world && lost; r++)
            if (s->node[r].role.owner && !s->coordinator.plan.lost[r] && !asleep(s, r))
                in = seen->version <= s->node[r].owner.peer[group].version;
        for (uint32_t i = l->start; in && i < l->start + l->n; i++) s->applied[i] += seen->applied & 1;
        for (int k = 1; k < s->plan.shards; k++)
            for (uint32_t i = l->start; in && i < l->start + l->n; i++) other[k][i] += seen->applied >> k & 1;
    }
    for (int k = 1; k < s->plan.shards; k++)
        for (uint32_t i = 0; i < s->goal.train_samples; i++)
            MUST(s, ONCE, s->applied[i] == other[k][i] + times_in(s, s->from.at.samples, i));
}

static void check_counts(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    const uint64_t before = s->from.at.samples;   /* by a run that this one resumes */
    const bool again = s->killed || s->dropped;   /* samples may have been dealt more than once */
    uint64_t loss = 0;
    MUST(s, LEDGER, c->applied == c->issued && c->n_out == 0 && c->n_again == 0);
    MUST(s, LEDGER, c->applied == before + s->applied_samples || s->owner_killed);
    count_surviving(s);
    if (!s->stop_at && !s->asked_to_stop && s->goal.target_accuracy == 0)
        MUST(s, LEDGER, c->applied == s->goal.samples && c->status == ECH_OK);
    for (uint32_t i = 0; i < s->goal.train_samples; i++) {
        const uint64_t times = times_in(s, c->applied, i);
        MUST(s, ONCE, s->applied[i] == times);
        MUST(s, ONCE, again || s->handed_back ? s->leased[i] >= times : s->leased[i] == times);   /* what is handed back was not computed */
        MUST(s, ONCE, again ? s->computed[i] >= times : s->computed[i] == times);
        uint64_t at_heads = 0;
        for (int h = 0; h < s->plan.heads; h++) at_heads += s->headed[echi_plan_head_rank(&s->plan, h)].times[i];
        if (s->plan.heads) MUST(s, HEAD, at_heads == times + (s->plan.heads - 1u) * times_in(s, before, i));
        for (int h = 0; h < 2 && s->plan.cut && !s->plan.heads; h++) {
            const int rank = h ? echi_plan_shadow(&c->plan) : c->plan.head;
            MUST(s, HEAD, rank < 0 || s->node[rank].doomed || s->headed[rank].times[i] == times);
        }
        loss += (times - times_in(s, before, i)) * loss_of(label_of(i));
    }
    MUST(s, LEDGER, s->owner_killed || s->takeovers || (c->loss_sum == (double)loss && c->loss_samples == s->applied_samples));
    MUST(s, LEDGER, (c->again_leases == 0) == (c->again_samples == 0) && (again || c->again_leases == 0));
    MUST(s, LEDGER, c->dropped_leases == s->dropped && c->dropped_samples == s->dropped_samples && c->again_samples >= s->dropped_samples);
    MUST(s, EVAL, s->goal.has_test ? c->evals >= 1 : c->evals == 0);
    MUST(s, EVAL, (uint64_t)s->evals == c->evals - s->from.at.evals);
    MUST(s, EVAL, c->met == s->met && (!s->met || (c->stopping && c->accuracy >= s->goal.target_accuracy && c->target_at >= 0)));
    if (s->goal.target_accuracy > 0 && c->status != ECH_E_ABORTED)
        MUST(s, EVAL, c->status == (s->met ? ECH_OK : ECH_E_NOT_REACHED));
    if (s->goal.keep)   /* else it could not be written */
        MUST(s, LEDGER, c->kept_samples == c->applied || c->standing.samples == c->applied);
    if (!s->plan.cut) return;
    const uint64_t asked_anew = s->plan.shadow ? (uint64_t)c->n_lost * s->plan.world * s->plan.flights * LEASE_MAX : 0;   /* a shadow */
    uint64_t repeats = 0;
    for (int h = 0; h < echi_plan_heads(&c->plan); h++) repeats += s->node[echi_plan_head_rank(&c->plan, h)].head.repeats;
    MUST(s, HEAD, repeats <= s->repeats && s->repeats <= c->again_samples + SAMPLES_MAX + asked_anew);
}

/* The histograms count each push once; the head's agrees with what the simulation saw, where its bins are quarters. */
static inline void check_stalenesses(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    uint64_t trunk = 0, head = 0;
    for (int b = 0; b < ECHI_STALENESS_BINS; b++) {
        trunk += c->trunk_bins[b];
        head += c->head_bins[b];
    }
    CHECK(s, trunk == s->pushes && head == (s->plan.cut ? s->pushes : 0));
    if (s->plan.sync == ECHI_SYNC_BSP) CHECK(s, c->trunk_bins[0] == trunk && c->head_bins[0] == head);
    for (int b = 0; b <= 4 && s->plan.cut; b++) CHECK(s, c->head_bins[b] == s->apart_pushes[b]);
    if (s->plan.cut) CHECK(s, c->head_bins[5] == s->apart_pushes[5] + s->apart_pushes[6]);
    const double least = c->stale_max > 0 ? echi_staleness_edge[echi_staleness_bin(c->stale_max) - 1] : -1;
    for (int b = echi_staleness_bin(c->stale_max) + 1; b < ECHI_STALENESS_BINS; b++) CHECK(s, c->trunk_bins[b] == 0);
    CHECK(s, trunk == 0 || (c->stale_max > least && c->trunk_bins[echi_staleness_bin(c->stale_max)] > 0));
}

/* What the owner of the first group that is left and the head have. */
static const uint32_t *owned_weights(struct sim *s, uint32_t *out) {
    const int rank = s->coordinator.plan.owner_of[echi_plan_first_group(&s->coordinator.plan)], head = s->coordinator.plan.head;
    const struct echi_owner *o = &s->node[rank].owner;
    uint8_t peer[ECHI_GROUPS_MAX];
    memcpy(out, place_at(s, rank, ECHI_SLOT_OWNER_WEIGHTS, o->current)->word, PARAMS * sizeof *out);
    for (int k = 1; k < s->plan.shards; k++) {
        const int other = s->coordinator.plan.shard_owner[k];
        const uint32_t *weights = place_at(s, other, ECHI_SLOT_OWNER_WEIGHTS, s->node[other].owner.current)->word;
        for (uint32_t words = words_owned(s, other); words; words = but_first(words)) out[first_of(words)] = weights[first_of(words)];
    }
    for (int g = 0; g < s->plan.n_groups; g++) peer[g] = o->peer[g].there ? (uint8_t)(2 * g + o->peer[g].current) : ECHI_NONE;
    if (s->plan.n_groups > 1 && !o->alone)   /* it may have made no weights of the last states, since nobody has asked for any */
        sum_states(s, rank, (struct echi_slot){ECHI_SLOT_OWNER_STATE, o->state_current}, peer, out);
    if (s->plan.cut)
        memcpy(out + CUT * WORDS, place_at(s, head, ECHI_SLOT_HEAD_WEIGHTS, s->node[head].head.current)->word + CUT * WORDS,
               (PARAMS - CUT * WORDS) * sizeof *out);
    return out;
}

/* What --save would write: the weights that met the target; else, and of the owners in any case: on one node what that node computes; on
 * all owners the same. */
static void check_weights(struct sim *s) {
    const uint32_t *saved = place(s, 0, s->coordinator.whole)->word;
    uint32_t expected[PARAMS], owned[PARAMS];
    if (s->met) MUST(s, EVAL, memcmp(saved, s->met_with, sizeof s->met_with) == 0);
    const uint32_t *final = s->met ? owned_weights(s, owned) : saved;
    if (s->coordinator.status == ECH_OK) check_residuals(s);
    const bool alone = is_local(s) && s->plan.world == 1 && s->plan.outer_momentum == 0 && !s->goal.resumed;
    if (alone || (s->plan.sync == ECHI_SYNC_BSP && !is_coded(s) && !s->from.coded)) {
        one_node(s, s->coordinator.applied, expected);
        MUST(s, ONE_NODE, memcmp(final, expected, sizeof expected) == 0);
    }
    check_mass(s, final, s->coordinator.applied);
    for (int g = 0; g < s->plan.n_groups; g++) {
        const int rank = s->coordinator.plan.owner_of[g];
        const struct echi_owner *o = &s->node[rank].owner;
        if (s->node[rank].dead && !s->plan.shards) continue;
        if (s->plan.n_groups == 1 || o->alone) {
            for (int k = 0; k < echi_plan_shards(&s->plan); k++) {
                const int owner = echi_plan_shard_owner(&s->coordinator.plan, g, k), current = s->node[owner].owner.current;
                MUST(s, DRAIN, s->node[owner].dead ||
                                   same_owned(s, owner, final, place_at(s, owner, ECHI_SLOT_OWNER_WEIGHTS, current)->word));
            }
            continue;
        }
        uint8_t peer[ECHI_GROUPS_MAX];
        bool sleeps = false;   /* and missed what others did */
        for (int p = 0; p < s->plan.n_groups; p++) {
            peer[p] = o->peer[p].there ? (uint8_t)(2 * p + o->peer[p].current) : ECHI_NONE;
            if (p == g) continue;
            const struct node *owner = &s->node[s->plan.owner_of[p]];
            const uint64_t version = o->peer[p].version, last = owner->owner.state_version;
            sleeps = sleeps || (asleep(s, rank) && (is_coded(s) || version < last));
            if (asleep(s, rank)) continue;
            MUST(s, DRAIN, owner->dead ? version <= last : version == last);
        }
        if (sleeps) continue;
        sum_states(s, rank, (struct echi_slot){ECHI_SLOT_OWNER_STATE, o->state_current}, peer, expected);
        MUST(s, DRAIN, memcmp(final, expected, (size_t)cut_of(s) * WORDS * 4) == 0);
    }
    for (int h = 0; h < 2 && s->plan.cut; h++) {
        const int rank = h ? echi_plan_shadow(&s->coordinator.plan) : s->coordinator.plan.head;
        if (rank < 0 || s->node[rank].doomed) continue;
        const uint32_t *words = place_at(s, rank, ECHI_SLOT_HEAD_WEIGHTS, s->node[rank].head.current)->word;
        /* Where rounds are not waited for, a shadow trains rows in another order; with a codec perhaps those of a lost worker, and the head
         * those of who did its lease again, on weights that were written otherwise. */
        if ((h == 0 && !a_head_is_lost(s)) || (rounds(s) && !is_coded(s))) MUST(s, DRAIN, same(final, words, CUT * WORDS, PARAMS));
        for (int i = CUT * WORDS + WORDS - 1; i < PARAMS; i += WORDS) MUST(s, MASS, words[i] == final[i]);
    }
    for (int r = 1; r < s->plan.world && s->goal.give_final; r++)
        MUST(s, DRAIN, s->node[r].dead || memcmp(saved, s->node[r].final, sizeof s->node[r].final) == 0);
}

/* A run that ends with a loss saves the newest weights of a round that are left: what one node has behind it. A head may be a round
 * further on. */
static inline void check_rescued(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    const uint64_t from = s->from.at.samples, samples = c->saved_samples;
    const uint32_t *saved = place(s, 0, s->coordinator.whole)->word;
    uint32_t expected[PARAMS], later[PARAMS];
    if (s->plan.sync != ECHI_SYNC_BSP || s->goal.give_final || c->met || c->phase != ECHI_RUN_ENDED) return;
    for (int h = 0; h < echi_plan_heads(&c->plan); h++)
        if (c->plan.lost[echi_plan_head_rank(&c->plan, h)]) return;
    bool known = false;
    for (int r = 0; r < s->plan.world; r++) {
        const struct node *n = &s->node[r];
        known = known ||   /* behind the first round */
                (n->role.worker && n->role.planned && !n->doomed && n->worker.flight[0].samples > s->plan.round);
    }
    if (known) MUST(s, DRAIN, c->final);
    if (!c->final) return;
    MUST(s, DRAIN, samples >= from + (known ? 1 : 0) && samples <= c->issued);
    if (is_coded(s) || s->from.coded) return;
    one_node(s, samples, expected);
    MUST(s, ONE_NODE, memcmp(saved, expected, (size_t)cut_of(s) * WORDS * 4) == 0);
    const uint32_t start = (uint32_t)(samples % s->goal.train_samples), left = s->goal.train_samples - start;
    const uint64_t next = samples + (left < s->plan.round ? left : s->plan.round);
    one_node(s, next < s->goal.samples ? next : s->goal.samples, later);
    const size_t behind = (size_t)(PARAMS - cut_of(s) * WORDS) * 4;
    /* Of a head the newest; of what was evaluated, that: an evaluation in the middle of a run takes a head that is a round behind. */
    MUST(s, ONE_NODE, c->evaluated ? memcmp(saved, s->looked_at, sizeof s->looked_at) == 0
                                   : memcmp(saved + cut_of(s) * WORDS, expected + cut_of(s) * WORDS, behind) == 0 ||
                                         memcmp(saved + cut_of(s) * WORDS, later + cut_of(s) * WORDS, behind) == 0);
    if (s->goal.keep && s->kept.there && s->kept.at.samples == samples)
        MUST(s, ONE_NODE, memcmp(s->kept.word[0], saved, (size_t)cut_of(s) * WORDS * 4) == 0);
    if (s->counts) s->counts->rescued++;
}

static inline struct sim *sim_new(uint64_t seed) {
    static struct sim s;
    sim_clear(&s);
    s.seed = seed;
    echi_random_init(&s.random, seed, ECHI_STREAM_TEST, 1);
    return &s;
}

/* Goes on from the checkpoint in `from`. */
static inline void take_up(struct sim *s) {
    s->goal.resumed = true;
    s->goal.from = s->from.at;
    for (uint32_t i = 0; i < s->goal.train_samples; i++)
        s->leased[i] = s->computed[i] = s->applied[i] = (uint8_t)times_in(s, s->from.at.samples, i);
    for (int r = 0; r < NODES; r++) memcpy(s->headed[r].times, s->applied, sizeof s->applied);
}

/* Under --deterministic, half of the runs without an optimiser that remembers: then owners may be lost. */
static inline void take_blocks(struct sim *s) {
    struct echi_plan *p = &s->plan;
    p->deterministic = 1;
    p->activations = p->sync_norm = p->codec = 0;
    p->state_ratio = p->base[0] = 0;
    give_up_heads(p);
    p->round *= ECHI_REDUCTION_BLOCK;
    for (int r = 0; r < p->world; r++) p->n[r] *= ECHI_REDUCTION_BLOCK;
    if (s->seed / 16 % 2) p->momentum = 0;
}

/* The plan of a run that goes on after one of that policy and round. */
static inline void resume_plan(struct sim *s, enum echi_sync sync, uint32_t round, bool deterministic) {
    const uint32_t units = deterministic ? round / ECHI_REDUCTION_BLOCK : round;
    do {
        memset(&s->plan, 0, sizeof s->plan);
        choose_plan(s, sync == ECHI_SYNC_BSP ? sync : 1 + (enum echi_sync)below(s, ECHI_SYNCS - 1));
    } while (sync == ECHI_SYNC_BSP && s->plan.round != units);
    if (deterministic) take_blocks(s);
    s->plan_given = true;
}

static inline void chosen(struct sim *s, enum echi_sync sync) {
    choose_goal(s);
    choose_plan(s, sync);
    s->plan_given = true;
    s->stop_at = 0;
}
static inline void check_all(struct sim *s) {
    check_counts(s);
    check_silence(s);
    check_weights(s);
}

#endif
