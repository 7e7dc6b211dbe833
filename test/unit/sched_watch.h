/* SPDX-License-Identifier: Apache-2.0
 * What must hold at each event of a simulated cluster (sched_sim.h), seen from outside: the roles' own numbers are believed only
 * where another way to the same number agrees. Everything is ==, and costs little: what a copy must be is written down when it
 * comes about, by the version or the lease that names it.
 *
 *   STALENESS  while a worker computes, each other worker of its owner applies at most 2 S + 1 pushes, with two flights 2 S + 3
 *              (lib/core/README.md); what is staler than drop_older, and nothing else, is dropped
 *   APART      no owner applies when a living one lacks more than R rounds, or 256 pushes, of its state
 *   ONCE       a lease is applied once and never after it was revoked; no sample twice in states that survive
 *   WHOLE      what an owner takes of a lease has every part of it, each once; all parts of what a worker computes on, or joins to its
 *              own, came from one copy of the weights
 *   GRADIENT   what is applied is what its lease gives on the weights it began on; rows and answers are those of their lease
 *   MASS       the tallies of a state are the sum over the leases in it
 *   SUM        weights and momentum move by each push once; weights = w0 + all states, at the versions they are said to be
 *   STATE      a copy of version k is the state at version k, its marks those of the leases in it; versions rise; each is
 *              acknowledged at once; what "all have" all have; the reserve answers with what all had done when it woke
 *   FREEZE     of a lost group the highest version that is left is kept
 *   DRAIN      after a drain nothing is under way and all owners have the same
 *   ONE_NODE   BSP's weights are those of one node, round by round; those of `local` with one worker its plain steps
 *   LOCAL      own weights are the weights that came and what the own steps have moved since the last change; each step is in one
 *              change, and nobody is more than a round ahead (lib/core/sync/policy_local.c)
 *   HEAD       the head, or one of several, trains each row of an epoch once, on its newest weights
 *   EVAL, CLOCK, LEDGER  an evaluation sees what is there; the clock of training never goes back; numbers of leases are new
 *
 * Residual + sent (codecs that leave something out): its place is watch_push, below; a dense push leaves nothing. */
#ifndef SCHED_WATCH_H
#define SCHED_WATCH_H
#include "sched_sim.h"

static size_t trunk_bytes(const struct sim *s) { return (size_t)cut_of(s) * WORDS * sizeof(uint32_t); }
static bool same(const uint32_t *a, const uint32_t *b, int first, int end) {
    return memcmp(a + first, b + first, (size_t)(end - first) * sizeof *a) == 0;
}
static bool rounds(const struct sim *s) { return s->plan.sync == ECHI_SYNC_BSP || is_local(s); }
/* What a lease's gradients are divided by. */
static uint32_t divisor_of(const struct sim *s, const struct echi_lease *l) {
    return is_local(s) ? s->plan.round : s->plan.divisor[l->worker] ? s->plan.divisor[l->worker] : l->round_size;
}

/* ---- leases ---- */

/* The highest version of a group's state that one of the living owners has. */
static uint64_t highest_copy(const struct sim *s, int group) {
    const struct echi_plan *p = &s->coordinator.plan;
    uint64_t most = 0;
    for (int g = 0; g < p->n_groups; g++)
        if (!p->lost[p->owner_of[g]] && s->has_version[p->owner_of[g]][group] > most) most = s->has_version[p->owner_of[g]][group];
    return most;
}

/* Is what this lease brought still there, or in a copy that may be kept? */
static bool survives(const struct sim *s, uint32_t id) {
    const struct seen_lease *seen = &s->seen[id];
    const struct echi_coordinator *c = &s->coordinator;
    if (s->plan.shards) return true;   /* what is lost with an owner is taken off again (watch_takeover) */
    if (!c->plan.lost[seen->lease.owner]) return true;
    const int group = echi_plan_group_owned(&s->plan, seen->lease.owner);
    const struct echi_frozen *f = &c->frozen[group];
    return seen->version <= (f->decided ? f->version : highest_copy(s, group));
}

static void watch_dealt(struct sim *s, const struct echi_lease *l) {
    MUST(s, LEDGER, l->n >= 1 && l->start + l->n <= s->goal.train_samples && l->id == s->leases + 1);
    MUST(s, DRIVER, l->id < LEASES && l->epoch < EPOCHS_MAX);
    const int group = echi_plan_group_owned(&s->coordinator.plan, l->owner);
    MUST(s, RATIO, (l->base ? l->base : s->node[0].setup.plan.base[group]) == s->coordinator.plan.base[group]);
    s->leases = l->id;
    struct seen_lease *seen = &s->seen[l->id];
    memset(seen, 0, offsetof(struct seen_lease, began_on));
    seen->lease = *l;
    for (uint32_t i = l->start; i < l->start + l->n; i++) {
        s->leased[i]++;
        for (int k = 0; k < echi_plan_shards(&s->plan); k++)
            MUST(s, ONCE, !echi_lease_wanted(l, k) || !s->in_by[k][l->epoch][i] || !survives(s, s->in_by[k][l->epoch][i]));
    }
}

static struct seen_lease *seen_of(struct sim *s, const struct echi_lease *l) {
    MUST(s, LEDGER, l->id >= 1 && l->id <= s->leases);
    struct seen_lease *seen = &s->seen[l->id];
    MUST(s, LEDGER, seen->lease.epoch == l->epoch && seen->lease.start == l->start && seen->lease.n == l->n);
    MUST(s, LEDGER, seen->lease.worker == l->worker && seen->lease.owner == l->owner && seen->lease.round == l->round);
    return seen;
}

/* The same of what a worker sends its head: a micro-batch of a lease. */
static struct seen_lease *seen_of_micro(struct sim *s, const struct echi_lease *l) {
    MUST(s, LEDGER, l->id >= 1 && l->id <= s->leases);
    struct echi_lease whole = s->seen[l->id].lease;
    bool is_one = false;
    for (int i = 0; i < echi_lease_micros(&s->plan, &whole); i++) {
        const struct echi_lease micro = echi_lease_micro(&s->plan, &whole, i);
        is_one = is_one || (micro.start == l->start && micro.n == l->n);
    }
    MUST(s, LEDGER, is_one && whole.epoch == l->epoch && whole.worker == l->worker && whole.round == l->round);
    return seen_of(s, &whole);
}

/* Of the shards that a node owns those that want this lease. */
static uint8_t bits_of(const struct sim *s, int node, const struct echi_lease *l) {
    return (uint8_t)(shards_of(s, node) & (l->shards ? l->shards : 0xff));
}
/* What an owner does that is declared lost goes with it. */
static bool is_of_the_lost(const struct sim *s, int node) { return s->plan.shards && s->coordinator.plan.lost[node]; }

static void note_applied(struct sim *s, int node, struct seen_lease *seen, uint64_t version) {
    const struct echi_lease *l = &seen->lease;
    const uint8_t bits = bits_of(s, node, l);
    if (is_of_the_lost(s, node)) return;
    MUST(s, ONCE, seen->begun && !((seen->applied | seen->revoked) & bits) && bits);
    seen->applied |= bits;
    seen->version = version;
    for (int k = 0; k < NODES; k++)
        for (uint32_t i = l->start; i < l->start + l->n && bits >> k & 1; i++) {
            uint16_t *in = &s->in_by[k][l->epoch][i];
            const bool twice = *in && survives(s, *in);
            /* What a node that is cut off applies goes with it, unless somebody has it: that is counted at the end. */
            MUST(s, ONCE, !twice || s->node[node].doomed);
            if (!twice) *in = (uint16_t)l->id;
        }
}

/* What a lease gives on the weights it began on; under `local` what its steps have moved, by its part of the round. */
static void expected_grads(struct sim *s, const struct seen_lease *seen, uint32_t *out) {
    const struct echi_lease *l = &seen->lease;
    if (is_local(s)) {
        for (int i = 0; i < PARAMS; i++) out[i] = seen->moved[i] * toy_weight(i, l->n, l->round_size);
        return;
    }
    if (!s->plan.cut) return toy_step(seen->began_on, out, l, divisor_of(s, l));
    memset(out, 0, PARAMS * sizeof *out);
    for (uint32_t k = 0; k < l->n; k++) toy_backward(seen->began_on, out, l->start + k, seen->act_grad[seen->answered_by[k]][k]);
}

/* A whole push is taken: its gradient is that of its lease. A codec that sends a part of it and keeps the rest is watched here:
 * by toy_codec.h, whose check_residuals compares all that was computed with all that was applied and what is left. */
static struct seen_lease *watch_push(struct sim *s, const struct work *w, const struct echi_lease *l, struct echi_slot grads) {
    uint32_t expected[PARAMS];
    struct seen_lease *seen = seen_of(s, l);
    MUST(s, ONCE, seen->begun && (is_of_the_lost(s, w->node) || !(seen->applied & bits_of(s, w->node, &seen->lease))));
    expected_grads(s, seen, expected);
    if (!is_coded(s)) MUST(s, GRADIENT, same_words(words_of_task(s, w->node, &w->task), expected, place(s, w->node, grads)->word));
    return seen;
}

/* The same of each push whose part a task takes. */
static const struct echi_lease *row_lease(const struct sim *s, int node, const struct echi_task *t, int i) {
    return &s->node[node].owner.push[t->rows[i]].lease;
}
static void watch_rows_in(struct sim *s, const struct work *w) {
    for (int i = 0; i < w->task.n_rows; i++)
        watch_push(s, w, row_lease(s, w->node, &w->task, i), (struct echi_slot){ECHI_SLOT_OWNER_GRADS, w->task.rows[i]})->staleness = 0;
}

/* ---- staleness ---- */

/* A step is applied: since the weights that it was computed on were sent (or since their owner knew that it would be computed), each
 * other worker of the owner has pushed so often at most. With k flights: answered at a count c, with all others at c - S or more;
 * its own count is then at most c + k - 1 before this apply, nobody is answered beyond S more, and has k steps under way at most. */
static void count_push(struct sim *s, const struct seen_lease *seen) {
    const struct echi_lease *l = &seen->lease;
    const struct answer *a = &s->answer[l->worker][seen->answer % ANSWERS];
    uint32_t *pushes = s->pushes_of[echi_plan_group_owned(&s->plan, l->owner)];
    const uint32_t bound = 2 * s->plan.staleness + 2 * s->plan.flights - 1;
    /* So old are only weights of an owner that was cut off long ago. */
    const bool known = a->known && s->answers[l->worker] - seen->answer < ANSWERS;
    for (int r = 0; r < s->plan.world && known && s->plan.sync != ECHI_SYNC_ASP; r++) {
        if (r == l->worker) continue;
        const uint32_t others = pushes[r] - a->pushes[r];
        MUST(s, STALENESS, a->owner == l->owner && others <= bound);
        if (s->counts && others == bound) s->counts->stale_most++;
    }
    pushes[l->worker]++;
    if (s->knower[l->worker] != 1u + l->owner) return;   /* it has moved on */
    if (seen->more || s->entered[l->worker] > l->id) return;
    note_left(s, l->worker);   /* it has run out: the weights that it has count from its next lease on */
}

/* It holds up nobody any more. */
static void note_left(struct sim *s, int worker) {
    s->knower[worker] = 0;
    for (int i = 0; i < ANSWERS; i++) s->answer[worker][i].known = false;
}

static void note_answer(struct sim *s, struct answer *a, int owner, bool known) {
    a->owner = owner;
    a->known = known;
    memcpy(a->pushes, s->pushes_of[echi_plan_group_owned(&s->plan, owner)], sizeof a->pushes);
}

/* Is this of the worker's present stay in the owner's group? */
static bool stays(const struct sim *s, int owner, int worker, const struct echi_msg *m) {
    const struct echi_owner *o = &s->node[owner].owner;
    return o->view[worker].member && o->joined[worker] == m->members;
}

/* An owner hears that a worker holds a lease: what it computes on counts from now. */
static void note_holds(struct sim *s, int worker, int owner) {
    if (s->knower[worker] == 1u + (uint32_t)owner) return;
    s->knower[worker] = 1u + (uint32_t)owner;
    for (int i = 0; i < ANSWERS; i++)
        if (s->answer[worker][i].owner == owner) note_answer(s, &s->answer[worker][i], owner, true);
}

/* Does this node own the reserve, and that has no workers, as far as the coordinator knows? Then nothing is sent there. */
static bool owns_reserve(const struct sim *s, int node) {
    const int reserve = echi_plan_reserve(&s->plan);
    return reserve >= 0 && s->plan.owner_of[reserve] == node;
}
static bool asleep(const struct sim *s, int node) {
    return owns_reserve(s, node) && echi_plan_workers(&s->coordinator.plan, echi_plan_reserve(&s->plan)) == 0;
}

/* The reserve wakes: from now on nobody gets weights there without what all groups have done up to here. */
static void note_awake(struct sim *s) {
    const int reserve = echi_plan_reserve(&s->plan);
    const bool awake = reserve >= 0 && echi_plan_workers(&s->coordinator.plan, reserve) > 0;
    if (awake && !s->awake) {
        s->woke_samples = 0;
        for (int g = 0; g < s->plan.n_groups; g++) s->woke_samples += s->state[g][s->versions[g]].samples;
        s->woke_at = s->coordinator.members;
        s->woke++;
    }
    s->awake = awake;
}

/* No owner runs ahead of what the others that live, as far as it knows, have. */
static void watch_apart(struct sim *s, int node) {
    const struct echi_plan *p = &s->node[node].setup.plan;
    const int g = s->node[node].owner.group;
    const uint64_t version = s->versions[g], samples = s->state[g][version].samples;
    for (int other = 0; other < p->n_groups; other++) {
        const int rank = p->owner_of[other];
        if (other == g || p->lost[rank]) continue;
        if (other == echi_plan_reserve(p) && s->node[node].owner.reserve != ECHI_RESERVE_SHARES) continue;
        MUST(s, APART, samples - s->has_samples[rank][g] <= (uint64_t)p->rounds_apart * p->round);
        MUST(s, APART, version - s->has_version[rank][g] < ECHI_UNACKED_MAX);
    }
}

/* ---- what is sent ---- */

static void check_copy(struct sim *s, int group, uint64_t version, struct echi_marks marks) {
    uint32_t mark[NODES];
    echi_marks_get(marks, mark, NODES);
    MUST(s, STATE, version <= s->versions[group]);
    MUST(s, STATE, memcmp(mark, s->state[group][version].mark, sizeof mark) == 0);
}

static bool too_old(const struct sim *s, uint64_t samples) {
    return s->plan.drop_older > 0 && (double)samples > s->plan.drop_older * s->plan.round;
}
static void watch_dropped(struct sim *s, const struct seen_lease *seen) {
    MUST(s, ONCE, seen->begun && !seen->revoked);
    MUST(s, STALENESS, too_old(s, s->applied_samples - seen->samples));
    s->dropped++;
    s->dropped_samples += seen->lease.n;
}

/* A takeover: gradients that its worker has computed under another number go out again. */
static void watch_pushed_again(struct sim *s, struct seen_lease *seen) {
    const struct echi_lease *l = &seen->lease;
    for (uint32_t id = l->id - 1; id > 0 && !seen->begun; id--) {
        const struct seen_lease *of = &s->seen[id];
        if (of->lease.worker != l->worker || of->lease.round != l->round || of->lease.epoch != l->epoch || of->lease.start != l->start ||
            of->lease.n != l->n || !of->begun)
            continue;
        seen->begun = true;
        seen->samples = of->samples;
        seen->answer = of->answer;
        memcpy(seen->began_on, of->began_on, sizeof seen->began_on);
        if (s->counts) s->counts->pushed_again++;
    }
    MUST(s, GRADIENT, seen->begun);
}

/* A head hands its layers on: nothing is out, and it has trained all that it has. */
static void watch_hands_on(struct sim *s, int node) {
    const struct echi_head *h = &s->node[node].head;
    MUST(s, DRAIN, s->coordinator.n_out == 0 && h->queued == 0 && !h->busy && !h->apply_due);
    MUST(s, HEAD, s->coordinator.plan.head == node || s->node[node].doomed);
}

/* A node that the run could do without may have been killed, and nobody has noticed, when the head moves to it. */
static void watch_homes(struct sim *s, const struct echi_msg *m) {
    MUST(s, DRAIN, s->coordinator.n_out == 0 && s->coordinator.n_again == 0);
    if (m->flag != ECHI_HEADS_HOMES) return;
    MUST(s, HEAD, m->peer != m->part - 1);
    if (s->node[m->peer].doomed && (m->part == 0 || s->node[m->part - 1].doomed)) s->fatal = true;
}

static void watch_send(struct sim *s, int node, const struct echi_action *a) {
    const struct echi_lease *l = &a->msg.lease;
    const struct echi_plan *p = &s->node[node].setup.plan;
    const int shard = shard_of(s, node);
    switch (a->kind) {
    case ECHI_KIND_LEASE: watch_dealt(s, l); break;
    case ECHI_KIND_HEAD_COPY: watch_hands_on(s, node); break;
    case ECHI_KIND_HEADS: watch_homes(s, &a->msg); break;
    case ECHI_KIND_PUSH:
        if (s->plan.shards && !seen_of(s, l)->begun) watch_pushed_again(s, seen_of(s, l));
        break;
    case ECHI_KIND_RING_WEIGHTS:
        if (a->msg.from_role == ECHI_ROLE_WORKER) break;   /* handed on as it came */
        /* fall through */
    case ECHI_KIND_WEIGHTS:
        if (a->msg.part == 0)
            note_answer(s, &s->answer[a->to][++s->answers[a->to] % ANSWERS], node, s->knower[a->to] == 1u + (uint32_t)node);
        MUST(s, SUM, a->msg.samples == place(s, node, a->slot)->holds);
        /* What a lost owner did last may be gone, or not have come from whoever has it. */
        MUST(s, STATE, !owns_reserve(s, node) || s->owner_killed || a->msg.members < s->woke_at || a->msg.samples >= s->woke_samples);
        /* Of a part that is applied already the weights before it go to who lacks them, too: behind a takeover, or the first ones, where
         * those to nodes that are gone have kept them back, and round 0 was done without a share of the receiver's. */
        MUST(s, SUM, !rounds(s) || is_of_the_lost(s, node) ||
                         a->msg.version == s->rounds_of[shard] + (s->applied_parts[shard] >> a->msg.part & 1) ||
                         ((s->takeovers || s->rounds_of[shard] == 0) && a->msg.version == s->rounds_of[shard]));
        break;
    case ECHI_KIND_APPLIED: {
        struct seen_lease *seen = seen_of(s, l);
        if (rounds(s)) note_applied(s, node, seen, 0);
        MUST(s, ONCE, is_of_the_lost(s, node) || (seen->applied & bits_of(s, node, l)));
        /* In rounds, as the report will say; a lost group's running copy may have been ahead of the one that is kept. */
        if ((!is_coded(s) || !s->owner_killed) && !is_of_the_lost(s, node)) MUST(s, LEDGER, a->msg.staleness == seen->staleness);
        for (int g = 0; g < p->n_groups && p->n_groups > 1; g++)
            MUST(s, STATE, g == s->node[node].owner.group || g == echi_plan_reserve(p) || p->lost[p->owner_of[g]] ||
                               s->has_version[p->owner_of[g]][s->node[node].owner.group] >= a->msg.acked);
        break;
    }
    case ECHI_KIND_STATE:
        MUST(s, STATE, a->msg.version == s->versions[a->msg.group] && a->msg.samples == s->state[a->msg.group][a->msg.version].samples);
        check_copy(s, a->msg.group, a->msg.version, a->msg.marks);
        break;
    case ECHI_KIND_FROZEN:
        MUST(s, STATE, a->msg.version == s->has_version[node][a->msg.group]);
        check_copy(s, a->msg.group, a->msg.version, a->msg.marks);
        break;
    case ECHI_KIND_STATE_ACK:
        MUST(s, STATE, a->msg.version == (is_coded(s) ? s->coming[node][a->msg.group].version : s->has_version[node][a->msg.group]));
        s->owes_ack = false;
        break;
    case ECHI_KIND_REVOKED:
        if (l->id == 0) {
            MUST(s, STATE, a->msg.version == s->has_version[node][a->msg.group]);
            check_copy(s, a->msg.group, a->msg.version, a->msg.marks);
        } else if (a->msg.flag != ECHI_REVOKED_IN) {
            struct seen_lease *seen = seen_of(s, l);
            const bool by_worker = a->msg.from_role == ECHI_ROLE_WORKER;
            if (seen->before) break;   /* asked for before a takeover: the answer is of no account */
            MUST(s, ONCE, !(seen->applied & (by_worker ? 0xff : bits_of(s, node, l))));
            if (a->msg.flag == ECHI_REVOKED_DROPPED) watch_dropped(s, seen);
            s->handed_back += by_worker;
            seen->revoked |= by_worker ? 0xff : bits_of(s, node, l);
        }
        break;
    default: break;
    }
}

/* ---- what arrives ---- */

static void note_apart(struct sim *s, uint32_t id) {
    const struct seen_lease *seen = &s->seen[id];   /* with a head it has LEASE_MAX samples at most */
    const uint64_t met = s->plan.cut ? seen->head_met[seen->answered_by[seen->lease.n - 1]] : 0;
    s->pushes++;
    if (met > s->head_newest) s->head_newest = met;
    const uint64_t quarters = (4 * (s->head_newest - met) + s->plan.round - 1) / s->plan.round;
    if (quarters < 8) s->apart_pushes[quarters]++;
}

static void take_copy(struct sim *s, int node, const struct echi_msg *m, struct place *to, bool again) {
    uint64_t *version = &s->has_version[node][m->group];
    MUST(s, STATE, m->version > *version || (again && m->version == *version));
    MUST(s, STATE, m->version <= s->versions[m->group] && same(to->word, s->state[m->group][m->version].word, 0, cut_of(s) * WORDS));
    *version = to->holds = m->version;
    s->has_samples[node][m->group] = s->state[m->group][m->version].samples;
}

/* Have all parts of a push come that this owner takes? */
static bool is_whole(const struct sim *s, int owner, uint32_t lease) {
    return __builtin_popcount(s->seen[lease].parts) == echi_post_parts(&s->node[owner].setup, ECHI_KIND_PUSH, owner);
}

/* Another node has the head's layers: all that is in them there is in them here. The toy's momentum is there whatever the plan says. */
static void take_layers(struct sim *s, const struct message *m, const struct echi_msg *msg, struct echi_slot slot) {
    const struct headed *from = &s->headed[m->from];
    if (msg->flag != ECHI_PARAMS_PART) return;
    MUST(s, HEAD, from->samples == msg->samples && (!rounds(s) || from->rounds == msg->version));
    s->headed[m->to] = *from;
    s->headed[m->to].holds[slot.index] = from->samples;
    if (!echi_plan_remembers(&s->plan))
        memcpy(place_at(s, m->to, ECHI_SLOT_HEAD_MOMENTUM, 0)->word, place_at(s, m->from, ECHI_SLOT_HEAD_MOMENTUM, 0)->word,
               PARAMS * sizeof(uint32_t));
    if (s->counts) s->counts->copies++;
}

static void watch_message(struct sim *s, const struct message *m, const struct echi_msg *msg, struct echi_slot slot) {
    const int from = m->from;
    struct place *own;
    switch (m->kind) {
    case ECHI_KIND_RING_WEIGHTS:
    case ECHI_KIND_WEIGHTS:
        own = own_place(s, m->to, slot);
        for (int i = 0; i < cut_of(s) * WORDS && !is_coded(s); i++)
            if (own->of[i] != m->holds) return;   /* more is to come */
        own->holds = msg->samples;
        own->answer = m->answer;
        own->round = msg->version;
        break;
    case ECHI_KIND_LEASE: s->seen[msg->lease.id].here = true; break;
    case ECHI_KIND_ACT_GRAD: {
        struct seen_lease *seen = seen_of_micro(s, &msg->lease);
        memset(seen->answered_by + (msg->lease.start - seen->lease.start), from, msg->lease.n);
        break;
    }
    case ECHI_KIND_HEAD_COPY: take_layers(s, m, msg, slot); break;
    case ECHI_KIND_STATE:
        if (is_coded(s)) {   /* taken in by a task, see `decode` */
            s->coming[m->to][msg->group].version = msg->version;
            s->coming[m->to][msg->group].samples = msg->samples;
            break;
        }
        take_copy(s, m->to, msg, place(s, m->to, slot), msg->flag && owns_reserve(s, m->to));
        s->owes_ack = true;
        break;
    case ECHI_KIND_FROZEN:
        s->handed_on++;
        take_copy(s, m->to, msg, place(s, m->to, slot), true);
        break;
    case ECHI_KIND_APPLIED:
        if (!s->coordinator.plan.lost[from] && shard_of(s, from) == 0) note_apart(s, msg->lease.id);
        break;
    case ECHI_KIND_PUSH:
        MUST(s, WHOLE, !(s->seen[msg->lease.id].parts >> msg->part & 1));
        s->seen[msg->lease.id].parts |= 1u << msg->part;
        s->seen[msg->lease.id].more = msg->flag;
        if (is_whole(s, m->to, msg->lease.id) && stays(s, m->to, from, msg)) note_holds(s, from, m->to);
        break;
    case ECHI_KIND_ENTER:
        /* One that its push has overtaken says nothing any more: the worker may have run out since. */
        if (s->seen[msg->lease.id].applied || !stays(s, m->to, from, msg)) break;
        s->entered[from] = msg->lease.id;
        note_holds(s, from, m->to);
        break;
    default: break;
    }
}

/* ---- tasks ---- */

/* A change is made when the weights of its round are here, or to make room for a lease of the round before, a lost worker's. */
static void watch_closes(struct sim *s, int node, const struct echi_lease *l) {
    const uint64_t round = place_at(s, node, ECHI_SLOT_LOCAL_WEIGHTS, 0)->round;
    bool now = l->round == round;
    for (uint32_t id = 1; id <= s->leases && !now; id++) {
        const struct seen_lease *other = &s->seen[id];
        now = other->lease.worker == node && other->here && !other->begun && other->lease.round == round;
    }
    MUST(s, LOCAL, now);
}

/* An evaluation during training finds no task on any node. */
static void watch_held(struct sim *s) {
    if (s->coordinator.phase == ECHI_RUN_ENDED) return;   /* it was begun before the run had to end */
    for (int r = 0; r < s->plan.world; r++)
        MUST(s, EVAL, s->node[r].held || s->node[r].doomed || s->coordinator.phase == ECHI_RUN_LAST_EVAL);
}

/* A push is taken, by a task that then has all of it, or a part that is whole. */
static void watch_takes(struct sim *s, int node, const struct echi_task *t, const struct echi_lease *l) {
    struct seen_lease *seen = seen_of(s, l);
    uint32_t all = 0;
    for (int i = 0; i < parts_of(s); i++)
        all |= echi_plan_owns_part(&s->node[node].setup.plan, node, i) && (t->only == 0 || t->only == i + 1) ? 1u << i : 0;
    MUST(s, WHOLE, (seen->parts & all) == all);
    seen->parts &= ~all;
}

/* A worker begins with these weights: a step, or under `local` to join them to its own. */
static void watch_one_copy(struct sim *s, int node, const struct echi_task *t) {
    const bool step = t->kind == ECHI_TASK_STEP || t->kind == ECHI_TASK_FORWARD;
    if (is_coded(s) || (is_local(s) ? t->kind != ECHI_TASK_LOCAL_JOIN : !step)) return;
    const struct place *weights = own_place(s, node, t->weights);
    for (int i = 0; i < cut_to(s, t); i++) MUST(s, WHOLE, weights->of[i] == weights->of[0]);
}

/* A push is written by the ratio that its lease was dealt with, whatever its node has heard of meanwhile. */
static void watch_ratio(struct sim *s, int node, const struct echi_task *t) {
    const struct echi_plan *p = &s->node[node].setup.plan;
    const struct echi_lease *l = &seen_of_micro(s, &t->lease)->lease;
    static struct echi_plan as_dealt;   /* nothing of it but what is set here counts */
    as_dealt.codec = p->codec;
    as_dealt.ratios = p->ratios;
    as_dealt.base[0] = l->base ? l->base : p->base[echi_plan_group_owned(p, l->owner)];
    MUST(s, RATIO, t->ratio == (l->owner == node ? ECHI_RATIO_ONE : echi_push_ratio(&as_dealt, 0, l->epoch)));
}

static struct headed *headed_at(struct sim *s, int node) { return &s->headed[node]; }

/* Rows that are trained now were not trained before: here, or at any of several heads. */
static void watch_once(struct sim *s, struct headed *headed, uint32_t at, uint32_t epoch) {
    for (int i = 0; i < s->plan.heads; i++) MUST(s, HEAD, !(s->headed[echi_plan_head_rank(&s->plan, i)].in[at] >> epoch & 1));
    MUST(s, HEAD, !(headed->in[at] >> epoch & 1));
    headed->in[at] |= (uint8_t)(1 << epoch);
    headed->times[at]++;
}

/* Heads whose weights have the same rounds in them have the same weights. */
static void watch_replica(struct sim *s, uint64_t round, const uint32_t *word) {
    const int at = (int)(round % ALONE);
    if (!s->plan.heads) return;
    MUST(s, ONE_NODE, s->replica[at].round != round || same(s->replica[at].word, word, CUT * WORDS, PARAMS));
    s->replica[at].round = round;
    memcpy(s->replica[at].word, word, sizeof s->replica[at].word);
}

static void watch_begins(struct sim *s, int node, const struct echi_task *t) {
    watch_one_copy(s, node, t);
    if (is_layered(t) && is_coded(s)) watch_ratio(s, node, t);
    MUST(s, RATIO, is_layered(t) || t->kind != ECHI_TASK_BACKWARD || !t->coded.kind);
    if ((t->kind == ECHI_TASK_ADD || t->kind == ECHI_TASK_APPLY) && t->grads.kind == ECHI_SLOT_OWNER_GRADS && !t->only)
        watch_takes(s, node, t, &t->lease);
    for (int i = 0; i < t->n_rows && t->only; i++) watch_takes(s, node, t, row_lease(s, node, t, i));
    if (t->kind == ECHI_TASK_EVAL) watch_held(s);
    if (t->kind == ECHI_TASK_LOCAL_DELTA) watch_closes(s, node, &t->lease);
    if (t->kind == ECHI_TASK_LOCAL_DELTA || (t->kind == ECHI_TASK_STEP && is_local(s)))   /* what has come is taken in first */
        MUST(s, LOCAL, place_at(s, node, ECHI_SLOT_LOCAL_WEIGHTS, 0)->round ==
                           own_place(s, node, (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, 0})->round);
    if (t->kind == ECHI_TASK_APPLY && s->plan.n_groups > 1) watch_apart(s, node);
    if (t->kind == ECHI_TASK_HEAD && t->weights_out.kind)
        MUST(s, HEAD, headed_at(s, node)->holds[t->weights.index] == headed_at(s, node)->samples);
}

/* `local`: the next part of a lease. */
static struct seen_lease *part_of(struct sim *s, const struct echi_lease *part) {
    MUST(s, LEDGER, part->id >= 1 && part->id <= s->leases);
    struct seen_lease *seen = &s->seen[part->id];
    const struct echi_lease *l = &seen->lease;
    MUST(s, LEDGER, part->epoch == l->epoch && part->worker == l->worker && part->owner == l->owner && part->round == l->round);
    MUST(s, LOCAL, !seen->changed && part->start == l->start + seen->stepped && part->n >= 1 && part->n <= l->n - seen->stepped);
    MUST(s, LOCAL, part->n == s->plan.n[l->worker] || part->n == l->n - seen->stepped);
    return seen;
}

/* A forward that is several tasks: each goes on where the one before has ended, and what was read once is what is there at the end. */
static void watch_early(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    const struct place *weights = own_place(s, w->node, t->weights);
    const uint32_t *word = place(s, w->node, t->weights)->word;
    const int from = t->from * WORDS, end = cut_to(s, t);
    struct node *n = &s->node[w->node];
    if (from == 0 && s->counts) {
        s->counts->forwards++;
        s->counts->forwards_again += n->early[t->micro].gone > 0;
    }
    if (from == 0) n->early[t->micro].gone = 0;
    MUST(s, WHOLE, rounds(s) && !s->plan.deterministic && n->early[t->micro].gone == t->from && from < end + (t->until == 0));
    for (int i = 0; i < from; i++) MUST(s, WHOLE, n->early[t->micro].word[i] == word[i] && n->early[t->micro].of[i] == weights->of[i]);
    for (int i = from; i < end; i++) {
        n->early[t->micro].word[i] = word[i];
        n->early[t->micro].of[i] = weights->of[i];
    }
    n->early[t->micro].gone = t->until;
}

static void watch_step(struct sim *s, const struct work *w) {
    const struct echi_lease *l = &w->task.lease;
    struct seen_lease *seen = is_local(s) ? part_of(s, l) : seen_of_micro(s, l);
    const bool goes_on = w->task.micro > 0;
    const struct place *weights = own_place(s, w->node, w->task.weights);
    const uint32_t *words = place(s, w->node, w->task.weights)->word;
    MUST(s, ONCE, goes_on ? seen->begun && same(words, seen->began_on, 0, PARAMS) : !seen->begun || seen->stepped > 0);
    MUST(s, ONCE, l->worker == w->node);
    if (is_local(s)) {
        MUST(s, LOCAL, same(words, s->own[w->node].word, 0, PARAMS));
        MUST(s, LOCAL, l->round == weights->round || l->round == weights->round + 1);
    }
    if (!seen->begun) seen->samples = weights->holds;
    seen->begun = true;
    memcpy(seen->began_on, words, sizeof seen->began_on);
    seen->answer = weights->answer;
    for (uint32_t i = l->start; i < l->start + l->n; i++) s->computed[i]++;
}

/* A head that gathers has all rows of a whole round in one visit, as long as nobody is lost; toy rounds are small enough. */
static bool must_be_all(const struct sim *s, int node, const struct echi_lease *l) {
    const struct echi_plan *p = &s->node[node].setup.plan;
    for (int r = 0; r < p->world; r++)
        if (p->lost[r] || s->node[r].dead) return false;
    return p->gathers && l->round_size == p->round;
}

/* Rows are those of their lease, and trained once. */
static void watch_rows(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    struct headed *headed = headed_at(s, w->node);
    const bool trained = head_trains(t);
    uint32_t samples = 0;
    for (int i = 0; i < t->n_rows; i++) {
        const uint32_t *rows = place_at(s, w->node, ECHI_SLOT_HEAD_ROWS, t->rows[i])->word;
        const struct echi_lease *l = &s->node[w->node].head.lease[t->rows[i]];
        struct seen_lease *seen = seen_of_micro(s, l);
        MUST(s, GRADIENT, t->row_epoch[i] == l->epoch && t->row_start[i] == l->start);
        MUST(s, GRADIENT, t->row_count[i] == l->n && l->round_size == t->divisor && l->n <= LEASE_MAX);
        const uint32_t trunk = fold(seen->began_on, 0, CUT);
        if (s->node[w->node].head.rows[t->rows[i]] != ECHI_ROWS_COPY) seen->head_met[w->node] = headed->holds[t->weights.index];
        for (uint32_t k = 0; k < l->n; k++) {
            const uint32_t at = l->start + k;
            MUST(s, GRADIENT, rows[2 * k] == toy_forward(trunk, at) && rows[2 * k + 1] == label_of(at));
            if (!trained) continue;
            watch_once(s, headed, at, l->epoch);
        }
        if (!trained) s->repeats += l->n;
        samples += l->n;
    }
    MUST(s, HEAD, samples == t->samples && (samples <= ECHI_MERGE_ROWS || t->n_rows == 1));
    const struct echi_lease *any = &s->node[w->node].head.lease[t->rows[0]];
    if (trained && must_be_all(s, w->node, any)) MUST(s, HEAD, samples == (s->plan.heads ? any->head_rows : any->round_size));
}
static void watch_answers(struct sim *s, const struct work *w) {
    for (int i = 0; i < w->task.n_rows; i++) {
        const struct echi_lease *l = &s->node[w->node].head.lease[w->task.rows[i]];
        if (s->node[w->node].head.rows[w->task.rows[i]] == ECHI_ROWS_COPY) continue;   /* nobody is answered */
        const struct place *answer = place_at(s, w->node, ECHI_SLOT_HEAD_ROWS_GRAD, w->task.rows[i]);
        struct seen_lease *seen = &s->seen[l->id];
        memcpy(seen->act_grad[w->node] + (l->start - seen->lease.start), answer->word, l->n * sizeof(uint32_t));
    }
}

/* One node that does a round by itself. */
static void alone_on(struct sim *s) {
    const int was = (int)(s->alone_rounds % ALONE), is = (int)(++s->alone_rounds % ALONE);
    const uint32_t *before = s->alone[was];
    uint32_t *w = s->alone[is], *velocity = s->alone_velocity[is], grads[PARAMS];
    const uint32_t start = (uint32_t)(s->alone_samples % s->goal.train_samples);
    uint64_t n = s->plan.round;
    if (n > s->goal.train_samples - start) n = s->goal.train_samples - start;
    if (n > s->goal.samples - s->alone_samples) n = s->goal.samples - s->alone_samples;
    const struct echi_lease l = {.start = start, .n = (uint32_t)n};
    toy_step(before, grads, &l, l.n);
    memcpy(velocity, s->alone_velocity[was], sizeof s->alone_velocity[was]);
    for (int i = 0; i < PARAMS; i++) w[i] = before[i] - toy_velocity(i, &velocity[i], before[i], grads[i], l.n);
    s->alone_samples += n;
    s->alone_in[is] = s->alone_samples;
}

/* Goes on from `round`, which others may have left behind, or, lost meanwhile, have done alone: the momentum of these words begins anew. */
static void alone_anew(struct sim *s, uint64_t round, uint32_t words) {
    while (s->alone_rounds < round) alone_on(s);
    MUST(s, ONE_NODE, s->alone_rounds - round < ALONE);
    const uint64_t at = s->alone_in[round % ALONE];
    s->alone_rounds = round;
    s->alone_samples = at;
    for (int i = 0; i < PARAMS; i++)
        if (words >> i & 1) s->alone_velocity[round % ALONE][i] = 0;
    struct resets *r = &s->resets;
    while (r->count > 0 && r->at[r->count - 1].samples > at) r->count--;   /* of weights that are lost */
    MUST(s, DRIVER, r->count < RESETS);
    r->at[r->count].samples = at;
    r->at[r->count++].words = words;
}

static const uint32_t *alone_at(struct sim *s, uint64_t round) {
    while (s->alone_rounds < round) alone_on(s);
    MUST(s, ONE_NODE, s->alone_rounds - round < ALONE);
    return s->alone[round % ALONE];
}

static void check_tallies(struct sim *s, const uint32_t *w, const uint32_t *base, const uint32_t *mass) {
    for (int l = 0; l < cut_of(s); l++) MUST(s, MASS, w[l * WORDS + WORDS - 1] == (base ? base[l * WORDS + WORDS - 1] : 0) + mass[l]);
}

/* w0 and the states at the versions that these slots hold. */
static void check_sum(struct sim *s, const struct work *w, int group, uint64_t version) {
    const struct echi_task *t = &w->task;
    const struct seen_state *own = &s->state[group][version];
    uint32_t expected[PARAMS];
    uint64_t samples = own->samples;
    memcpy(expected, s->start, sizeof expected);
    for (int i = 0; i < cut_of(s) * WORDS; i++) expected[i] += own->word[i];
    for (int g = 0; g < s->plan.n_groups; g++) {
        if (t->peer[g] == ECHI_NONE) continue;
        const struct seen_state *peer = &s->state[g][place_at(s, w->node, ECHI_SLOT_OWNER_PEER, t->peer[g])->holds];
        samples += peer->samples;
        for (int i = 0; i < cut_of(s) * WORDS; i++) expected[i] += peer->word[i];
    }
    struct place *out = place(s, w->node, t->weights_out);
    if (is_coded(s)) {   /* copies in between are of no version: both ends of each link are compared instead */
        out->holds = s->node[w->node].owner.next_samples + t->samples;
        return;
    }
    MUST(s, SUM, same(out->word, expected, 0, cut_of(s) * WORDS));
    out->holds = samples;
}

/* `local`: the worker's weights and changes, made again beside it. */
static void watch_local(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    struct own *own = &s->own[w->node];
    struct place *weights = place_at(s, w->node, ECHI_SLOT_LOCAL_WEIGHTS, 0);
    if (t->kind == ECHI_TASK_LOCAL_JOIN) {
        const struct place *came = own_place(s, w->node, t->weights);
        const uint32_t *words = place(s, w->node, t->weights)->word;
        for (int i = 0; i < PARAMS; i++) own->word[i] = words[i] - own->since[i];
        weights->holds = came->holds;
        weights->round = came->round;
    } else if (t->kind == ECHI_TASK_LOCAL_APPLY) {
        uint32_t grads[PARAMS];
        struct seen_lease *seen = part_of(s, &t->lease);
        MUST(s, LOCAL, t->samples == t->lease.n && t->divisor == s->plan.round && seen->begun);
        toy_step(seen->began_on, grads, &t->lease, s->plan.round);
        MUST(s, GRADIENT, same(grads, place(s, w->node, t->grads)->word, 0, PARAMS));
        for (int i = 0; i < PARAMS; i++) {
            const uint32_t move = toy_velocity(i, &own->velocity[i], own->word[i], grads[i], t->samples);
            own->word[i] -= move;
            own->since[i] += move;
            seen->moved[i] += move;
        }
        seen->stepped += t->lease.n;
    } else {
        struct seen_lease *seen = seen_of(s, &t->lease);
        MUST(s, LOCAL, seen->stepped == t->lease.n && !seen->changed);
        MUST(s, LOCAL, same(own->since, seen->moved, 0, PARAMS));
        seen->changed = true;
        memset(own->since, 0, sizeof own->since);
        weights->holds += t->lease.n;
    }
    MUST(s, LOCAL, same(weights->word, own->word, 0, PARAMS));
}

/* A push has come into the sum of its round. */
static void watch_add(struct sim *s, const struct work *w) {
    uint32_t change[PARAMS];
    if (adds_to_ring(&w->task)) return;
    if (w->task.only) return watch_rows_in(s, w);
    struct seen_lease *seen = watch_push(s, w, &w->task.lease, w->task.grads);
    seen->staleness = s->applied_samples > seen->samples ? (double)(s->applied_samples - seen->samples) / s->plan.round : 0;
    if (!is_local(s)) return;
    expected_grads(s, seen, change);
    for (int i = 0; i < PARAMS; i++) s->round_sum[i] += change[i];
}

/* `local`: a round's sum is that of its changes, and the weights take one outer step by it. */
static void check_outer(struct sim *s, const struct work *w) {
    const uint32_t *before = place(s, w->node, w->task.weights)->word, *out = place(s, w->node, w->task.weights_out)->word;
    MUST(s, GRADIENT, same(place(s, w->node, w->task.grads)->word, s->round_sum, 0, PARAMS));
    for (int i = 0; i < PARAMS; i++)
        MUST(s, SUM, out[i] == before[i] - toy_outer(i, &s->velocity[0][i], s->round_sum[i], s->plan.outer_momentum > 0));
    memset(s->round_sum, 0, sizeof s->round_sum);
}

/* Rounds and samples that all shards have. */
static void note_least(struct sim *s) {
    s->applied_samples = s->samples_of[0];
    s->versions[0] = s->rounds_of[0];
    for (int k = 1; k < s->plan.shards; k++) {
        if (s->samples_of[k] < s->applied_samples) s->applied_samples = s->samples_of[k];
        if (s->rounds_of[k] < s->versions[0]) s->versions[0] = s->rounds_of[k];
    }
}

static void watch_apply(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    if (is_of_the_lost(s, w->node)) {
        place(s, w->node, t->weights_out)->holds = s->node[w->node].owner.samples + t->samples;
        return;
    }
    const int g = s->node[w->node].owner.group, words = cut_of(s) * WORDS;
    const struct place *weights = place(s, w->node, t->weights);
    struct place *out = place(s, w->node, t->weights_out);
    if (rounds(s)) {
        MUST(s, GRADIENT, t->samples == t->divisor && t->divisor == t->lease.round_size && t->damping == 0);
        const int shard = shard_of(s, w->node);
        out->holds = s->samples_of[shard] + t->samples;
        const uint32_t *alone = is_coded(s) || is_local(s) ? NULL : alone_at(s, s->rounds_of[shard] + 1);
        if (alone && !s->from.coded) MUST(s, ONE_NODE, same_words(words_of_task(s, w->node, t), out->word, alone));
        if (!t->only || t->grads.kind != ECHI_SLOT_OWNER_GRADS) watch_rows_in(s, w);
        if (t->only > 0) {
            MUST(s, ONCE, !(s->applied_parts[shard] >> (t->only - 1) & 1));
            s->applied_parts[shard] |= 1u << (t->only - 1);
            if (__builtin_popcount(s->applied_parts[shard]) < echi_post_parts(&s->node[w->node].setup, ECHI_KIND_PUSH, w->node)) return;
        }
        s->applied_parts[shard] = 0;
        for (int k = 0; k < echi_plan_shards(&s->plan); k++) {
            if (!(shards_of(s, w->node) >> k & 1)) continue;
            s->samples_of[k] += t->samples;
            s->rounds_of[k]++;
        }
        note_least(s);
        if (is_local(s)) return check_outer(s, w);
        return;
    }
    struct seen_lease *seen = watch_push(s, w, &t->lease, t->grads);
    MUST(s, GRADIENT, t->samples == t->lease.n && t->divisor == s->plan.round && t->lease.round_size == s->plan.round);
    MUST(s, STALENESS, s->plan.drop_older == 0 || !too_old(s, s->applied_samples - seen->samples));
    count_push(s, seen);
    const uint64_t version = ++s->versions[g];
    MUST(s, DRIVER, version < VERSIONS);
    note_applied(s, w->node, seen, version);
    s->applied_samples += t->samples;
    /* The state with this push, as it must be. */
    const struct seen_state *before = &s->state[g][version - 1];
    struct seen_state *after_it = &s->state[g][version];
    *after_it = *before;
    after_it->samples += t->samples;
    after_it->mark[t->lease.worker] = t->lease.id;
    for (uint32_t i = 0; i < t->lease.n; i++)
        for (int l = 0; l < cut_of(s); l++) s->mass[g][l] -= tally_of(label_of(t->lease.start + i), l * WORDS + WORDS - 1);
    uint32_t grads[PARAMS];
    read_push(s, w->node, t, grads);
    for (int i = 0; i < words; i++) after_it->word[i] -= toy_velocity(i, &s->velocity[g][i], weights->word[i], grads[i], t->samples);
    if (t->state_out.kind) {
        struct place *state = place(s, w->node, t->state_out);
        MUST(s, SUM, same(state->word, after_it->word, 0, words));
        check_tallies(s, state->word, NULL, s->mass[g]);
        state->holds = version;
        check_sum(s, w, g, version);
    } else {
        MUST(s, SUM, weights->holds == before->samples);
        uint32_t expected[PARAMS];
        for (int i = 0; i < words; i++) expected[i] = s->start[i] + after_it->word[i];
        MUST(s, SUM, same(out->word, expected, 0, words));
        check_tallies(s, out->word, s->start, s->mass[g]);
        out->holds = after_it->samples;
    }
    const uint64_t behind = out->holds - t->samples;
    seen->staleness = behind > seen->samples || !is_coded(s) ? (double)(behind - seen->samples) / s->plan.round : 0;
    /* The task was made out before; a lost owner's state may have been replaced since. */
    if (!s->owner_killed) MUST(s, LEDGER, t->damping == (s->plan.damping > 0 ? 1 / (1 + s->plan.damping * seen->staleness) : 0));
    MUST(s, LEDGER, s->plan.damping > 0 ? t->damping > 0 && t->damping <= 1 : t->damping == 0);
}

/* Of those that were heads: it will be, or was. */
static bool a_head_is_lost(const struct sim *s) {
    bool lost = false;
    for (int r = 0; r < s->plan.world; r++) lost = lost || ((s->were_heads >> r & 1) && s->node[r].doomed);
    return lost;
}

static void watch_look(struct sim *s, const struct work *w) {
    /* The copy is what group 0's owner and the head have now: nothing has moved since they were held. */
    const struct echi_plan *now = &s->coordinator.plan;
    const int first = echi_plan_first_group(now), head = now->head;
    const uint32_t *copy = place(s, 0, w->task.weights)->word;
    watch_held(s);
    if (s->coordinator.phase == ECHI_RUN_ENDED) return;
    for (int k = 0; k < echi_plan_shards(now); k++) {
        const int owner = echi_plan_shard_owner(now, first, k);
        if (s->plan.shards && (s->node[owner].doomed || s->node[now->owner_of[0]].doomed)) continue;   /* it may be lost by now */
        MUST(s, EVAL, s->owner_killed ||   /* its copy may be that of a node that is lost by now */
              same_owned(s, owner, copy, place_at(s, owner, ECHI_SLOT_OWNER_WEIGHTS, s->node[owner].owner.current)->word));
        MUST(s, EVAL, s->owner_killed || !s->plan.shards || s->rounds_of[k] == s->rounds_of[0]);
    }
    if (!s->plan.cut || a_head_is_lost(s)) return;   /* the copy may be that of one that is lost by now */
    MUST(s, EVAL, same(copy, place_at(s, head, ECHI_SLOT_HEAD_WEIGHTS, s->node[head].head.current)->word, CUT * WORDS, PARAMS));
}

static void watch_ends(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    switch (t->kind) {
    case ECHI_TASK_ADD: watch_add(s, w); break;
    case ECHI_TASK_APPLY: watch_apply(s, w); break;
    case ECHI_TASK_REFRESH: check_sum(s, w, s->node[w->node].owner.group, s->versions[s->node[w->node].owner.group]); break;
    case ECHI_TASK_STATE: {   /* as if it had been kept */
        const int g = s->node[w->node].owner.group;
        struct place *state = place(s, w->node, t->state_out);
        MUST(s, STATE, same(state->word, s->state[g][s->versions[g]].word, 0, cut_of(s) * WORDS));
        state->holds = s->versions[g];
        break;
    }
    case ECHI_TASK_HEAD:
    case ECHI_TASK_HEAD_APPLY: {
        struct headed *headed = headed_at(s, w->node);
        headed->samples = headed->holds[t->weights_out.index] = headed->holds[t->weights.index] + t->samples;
        if (!rounds(s)) break;
        headed->rounds++;
        watch_replica(s, headed->rounds, place(s, w->node, t->weights_out)->word);
        if (!is_coded(s) && !s->from.coded && !s->node[w->node].doomed)   /* one that is cut off falls behind */
            MUST(s, ONE_NODE, same(place(s, w->node, t->weights_out)->word, alone_at(s, headed->rounds), CUT * WORDS, PARAMS));
        break;
    }
    case ECHI_TASK_EVAL: watch_look(s, w); break;
    case ECHI_TASK_LOCAL_APPLY:
    case ECHI_TASK_LOCAL_DELTA:
    case ECHI_TASK_LOCAL_JOIN: watch_local(s, w); break;
    default: break;
    }
}

/* ---- checkpoints ---- */

/* How often sample i is in, when so many are. */
static uint64_t times_in(const struct sim *s, uint64_t samples, uint32_t i) {
    return samples / s->goal.train_samples + (i < samples % s->goal.train_samples);
}
/* The tallies of whole weights say that exactly these samples are in them. */
static void check_mass(struct sim *s, const uint32_t *w, uint64_t samples) {
    for (int i = WORDS - 1; i < PARAMS; i += WORDS) {
        uint32_t sum = mix((uint32_t)s->seed, (uint32_t)i);
        for (uint32_t k = 0; k < s->goal.train_samples; k++) sum -= (uint32_t)times_in(s, samples, k) * tally_of(label_of(k), i);
        MUST(s, MASS, w[i] == sum);
    }
}

/* A checkpoint is of one moment: nothing is out, and what was gathered is what owners and head have now. */
static void watch_keep(struct sim *s, const struct kept *k) {
    const struct echi_coordinator *c = &s->coordinator;
    const int words = cut_of(s) * WORDS;
    MUST(s, LEDGER, c->writing && (s->owner_killed || c->standing.samples == s->from.at.samples + s->applied_samples));
    MUST(s, LEDGER, c->standing.samples == (uint64_t)c->standing.epoch * s->goal.train_samples + c->standing.start);
    check_mass(s, k->word[0], c->standing.samples);
    for (int i = 0; i < k->groups * echi_plan_shards(&s->plan); i++) {
        const int g = i / echi_plan_shards(&s->plan), rank = echi_plan_shard_owner(&c->plan, g, i % echi_plan_shards(&s->plan));
        const struct echi_owner *o = &s->node[rank].owner;
        if (!echi_plan_group_lives(&c->plan, g) || s->node[rank].doomed) continue;
        MUST(s, DRAIN, (!o->busy || is_coded(s)) && o->queued == 0);   /* an answer may be written meanwhile */
        if (g == echi_plan_first_group(&c->plan))
            MUST(s, DRAIN, same_owned(s, rank, k->word[0], place_at(s, rank, ECHI_SLOT_OWNER_WEIGHTS, o->current)->word));
        MUST(s, DRAIN, same_owned(s, rank, k->word[1 + g], place_at(s, rank, ECHI_SLOT_OWNER_MOMENTUM, 0)->word));
    }
    if (!s->plan.cut) return;
    const int head = c->plan.head;
    const struct echi_head *h = &s->node[head].head;
    if (s->node[head].doomed) return;
    MUST(s, DRAIN, !h->busy && !h->apply_due);
    MUST(s, DRAIN, same(k->word[0], place_at(s, head, ECHI_SLOT_HEAD_WEIGHTS, h->current)->word, words, PARAMS));
    MUST(s, DRAIN, same(k->word[1], place_at(s, head, ECHI_SLOT_HEAD_MOMENTUM, 0)->word, words, PARAMS));
}

/* ---- the coordinator ---- */

static void watch_plan(struct sim *s) {
    for (int g = 0; g < s->plan.n_groups; g++) {
        memset(&s->state[g][0], 0, sizeof s->state[g][0]);
        if (s->node[s->plan.owner_of[g]].doomed) s->owner_killed = true;   /* nobody has noticed yet */
        memcpy(s->velocity[g], place_at(s, 0, ECHI_SLOT_COORD_KEPT, 1 + g)->word, trunk_bytes(s));
    }
    memcpy(s->alone[0], s->start, sizeof s->start);
    memcpy(s->alone_velocity[0], place_at(s, 0, ECHI_SLOT_COORD_KEPT, 1)->word, sizeof s->alone_velocity[0]);
    s->alone_samples = s->alone_in[0] = s->from.at.samples;
    memcpy(s->shard_owner, s->plan.shard_owner, sizeof s->shard_owner);
    s->clock = s->goal.from.clock;
}

/* All owners that live have all states as they are. */
static void watch_drained(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    const struct echi_plan *p = &c->plan;
    MUST(s, DRAIN, c->n_out == 0 && c->n_again == 0);
    for (int i = 0; i < p->n_groups * echi_plan_shards(p); i++) {
        const int g = i / echi_plan_shards(p), rank = echi_plan_shard_owner(p, g, i % echi_plan_shards(p));
        const struct echi_owner *o = &s->node[rank].owner;
        if (p->lost[rank] || s->node[rank].doomed) continue;
        MUST(s, DRAIN, o->queued == 0 && (!o->busy || is_coded(s)) && o->round_count == 0);
        for (int h = 0; h < p->n_groups; h++) {
            const int other = p->owner_of[h];
            if (asleep(s, rank) && !p->lost[other]) continue;
            if (h == g || s->node[other].doomed) continue;
            if (!p->lost[other]) MUST(s, DRAIN, s->has_version[rank][h] == s->versions[h]);
            else MUST(s, DRAIN, s->has_version[rank][h] == c->frozen[h].version);
        }
    }
}

static void watch_frozen(struct sim *s) {
    const struct echi_plan *p = &s->coordinator.plan;
    for (int g = 0; g < p->n_groups; g++) {
        const struct echi_frozen *f = &s->coordinator.frozen[g];
        const bool decided = f->lost && f->decided;
        if (decided && !s->decided[g]) {
            const uint64_t most = highest_copy(s, g);
            MUST(s, FREEZE, f->version == most && memcmp(f->mark, s->state[g][most].mark, sizeof s->state[g][most].mark) == 0);
        }
        if (f->lost && f->settled)
            for (int h = 0; h < p->n_groups; h++)
                MUST(s, FREEZE, p->lost[p->owner_of[h]] || s->has_version[p->owner_of[h]][g] == f->version);
        s->decided[g] = decided;
    }
}

static uint32_t words_of(const struct sim *s, uint32_t shards) {
    uint32_t words = 0;
    for (int i = 0, parts = parts_of(s); i < parts; i++)
        if (shards >> s->plan.parts.part[i].shard & 1) words |= words_of_part(s, i);
    for (int i = WORDS - 1; i < PARAMS; i += WORDS) words &= ~(1u << i);   /* of tallies there is none */
    return words;
}

/* Round `version` of these shards is in no more, nor any behind it. */
static void take_off(struct sim *s, uint64_t version, uint32_t shards) {
    for (uint32_t id = 1; id <= s->leases; id++) {
        struct seen_lease *seen = &s->seen[id];
        const struct echi_lease *l = &seen->lease;
        seen->before = true;
        if (l->round < version) continue;
        seen->applied &= (uint8_t)~shards;
        for (int k = 0; k < s->plan.shards; k++)
            for (uint32_t i = l->start; i < l->start + l->n && shards >> k & 1; i++)
                if (s->in_by[k][l->epoch][i] == id) s->in_by[k][l->epoch][i] = 0;
    }
}

/* Weights of round `version` have all rounds before it, whoever applied those: also an owner that was declared lost meanwhile, and whose
 * weights came to who takes over. What they are is checked against one node; which leases they have the other shards tell, but for
 * samples that this shard has of a lease dealt later. */
static void put_on(struct sim *s, uint64_t version, uint32_t shards) {
    for (uint32_t id = 1; id <= s->leases; id++) {
        struct seen_lease *seen = &s->seen[id];
        const struct echi_lease *l = &seen->lease;
        if (l->round >= version || !(seen->applied & ~shards)) continue;
        for (int k = 0; k < s->plan.shards; k++) {
            uint16_t *in = &s->in_by[k][l->epoch][l->start];
            if (!(shards & ~seen->applied & (l->shards ? l->shards : 0xff) & 1u << k) || *in) continue;
            seen->applied |= (uint8_t)(1u << k);
            for (uint32_t i = 0; i < l->n; i++) in[i] = (uint16_t)id;
        }
    }
}

/* Shards of lost owners have others: who takes over has what they begin with, which is the newest that is left, and nobody is more than a
 * round ahead of it. From there on one node goes on with them without momentum. */
static void watch_takeover(struct sim *s) {
    const struct echi_plan *p = &s->coordinator.plan;
    uint64_t version = 0;
    uint32_t taken = 0, off = 0;
    bool found = false;   /* else it is before the first weights are anywhere */
    for (int r = 0; r < p->world; r++) {
        const struct node *n = &s->node[r];
        if (p->lost[r] || !n->role.owner || !n->role.worker || echi_plan_shard_owned(p, r) < 0) continue;
        MUST(s, WHOLE, n->worker.takeover.still && n->owner.takeover.still && !n->owner.busy && n->worker.tasks == 0);
        found = found || n->worker.takeover.has;
        if (n->worker.takeover.has && n->worker.flight[0].version > version) version = n->worker.flight[0].version;
    }
    MUST(s, WHOLE, s->coordinator.takeover.round == version);
    for (int k = 0; k < p->shards; k++) {
        if (p->shard_owner[k] == s->shard_owner[k]) continue;
        const struct node *n = &s->node[p->shard_owner[k]];
        MUST(s, ONCE, p->lost[s->shard_owner[k]] && !p->lost[p->shard_owner[k]]);
        MUST(s, WHOLE, n->worker.takeover.has == found && n->worker.flight[0].version == version);
        taken |= 1u << k;
        s->shard_owner[k] = p->shard_owner[k];
    }
    for (int r = 0; r < p->world; r++) {
        const uint32_t own = (uint32_t)echi_plan_shards_of(p, r);
        if (p->lost[r] || own == 0) continue;
        const int before = shard_of(s, r), lead = echi_plan_shard_owned(p, r);
        uint64_t rounds_in = s->rounds_of[before];
        uint32_t parts = s->applied_parts[before];
        MUST(s, WHOLE, rounds_in == version || rounds_in == version + 1);
        if ((own & taken) && rounds_in > version) {
            for (int i = 0, end = parts_of(s); i < end; i++)
                parts |= echi_plan_owns_part(&s->node[r].setup.plan, r, i) ? 1u << i : 0;
            rounds_in = version;
            if (s->counts) s->counts->reopened++;
        }
        if (own & taken) off |= own;
        for (int k = 0; k < p->shards; k++) {
            if (!(own >> k & 1)) continue;
            s->rounds_of[k] = rounds_in;
            if (rounds_in == version) s->samples_of[k] = s->alone_in[version % ALONE] - s->from.at.samples;
            s->applied_parts[k] = k == lead ? parts : 0;
        }
    }
    put_on(s, version, taken);
    take_off(s, version, off);
    if (found) {
        alone_anew(s, version, words_of(s, taken));
    } else {   /* from what all were fed; a lost owner may have done a part of the first round */
        memcpy(s->alone_velocity[0], place_at(s, 0, ECHI_SLOT_COORD_KEPT, 1)->word, sizeof s->alone_velocity[0]);
        s->resets.count = s->from.resets.count;   /* who had taken parts before, and alone had weights, is lost with them */
        s->alone_rounds = 0;
        s->alone_samples = s->alone_in[0];
    }
    note_least(s);
    s->takeovers++;
    if (s->counts) s->counts->takeovers++;
    if (s->counts) s->counts->taken += (uint64_t)__builtin_popcount(taken);
}

static void watch_coordinator(struct sim *s, const struct echi_event *e) {
    const struct echi_coordinator *c = &s->coordinator;
    if (c->takeover.count > s->takeovers) watch_takeover(s);
    const bool goes_on = c->phase == s->phase || c->phase == ECHI_RUN_TRAINS;
    const bool fails = c->phase == ECHI_RUN_RESCUES || c->phase == ECHI_RUN_ENDED;
    const bool drained = s->phase == ECHI_RUN_QUIETS || s->phase == ECHI_RUN_SETTLES || s->phase == ECHI_RUN_DRAINS;
    if (drained && !goes_on && !fails) watch_drained(s);
    s->phase = c->phase;
    if (c->plan.cut) s->were_heads |= 1u << c->plan.head;
    note_awake(s);
    if (c->n_lost > 0) watch_frozen(s);
    if (c->train_began == 0) return;
    const int64_t clock = echi_coordinator_clock(c, e->now);
    MUST(s, CLOCK, clock >= s->clock && clock <= c->goal.from.clock + e->now - c->train_began);
    s->clock = clock;
}
#endif
