/* SPDX-License-Identifier: Apache-2.0
 * A round part by part: a part of a push is added to the round's sum when it comes, a part that all samples are in of is applied and goes
 * to the workers, while pushes still bring the others: gradients go up while weights come down. That parts need not wait for one another:
 * H. Zhang et al., "Poseidon: an efficient communication architecture for distributed deep learning on GPU clusters", USENIX ATC 2017,
 * section 4.1 (wait-free backpropagation).
 *
 * The round is over when all parts are applied. Until then `current` is the round's own version, complete, in a snapshot of its own.
 *
 * A push whose worker is lost in the middle of it leaves its parts in the sum. Its lease is issued again, for all parts: what is in
 * already is not added a second time. Of the lost push one part at least is missing, so the round is not over before the leases that take
 * its place are whole; the rest of its parts wait until then, so that the round's end finds whole pushes alone, and none is on its way. */
#include "echi_owner_impl.h"

#include <string.h>

/* Messages of weights on their way beside the one that a link carries: the next is there when it has left. */
enum { AHEAD = 1 };

void echi_rounds_init(struct echi_owner *o) {
    const struct echi_plan *p = plan_of(o);
    o->round.by_part = o->policy->rounds && !o->policy->local && !coded(o) && !p->deterministic && o->workers > 1;
    o->round.next = ECHI_NONE;
}

static bool contains(const struct echi_lease *l, const struct echi_lease *of) {
    return l->epoch == of->epoch && l->start <= of->start && of->start + of->n <= l->start + l->n;
}

/* Of a lease that was issued again: has this part of all its samples come, before its worker was lost? */
static bool came_before(const struct echi_owner *o, const struct echi_lease *l, int part) {
    for (int r = 0; r < plan_of(o)->world; r++) {
        const struct echi_push *p = &o->push[r];
        const bool left = !o->known[r] && !p->whole && p->parts_in > 0 && p->lease.round == l->round;
        if (left && contains(&p->lease, l) && echi_part_in(&p->here, part)) return true;
    }
    return false;
}

/* All of a push is in the sum, or was before. */
static void end_push(struct echi_owner *o, int rank, struct echi_actions *out) {
    struct echi_push *p = &o->push[rank];
    if (!p->whole || p->added < o->parts) return;
    p->staleness = (double)(o->samples - p->seen) / plan_of(o)->round;
    o->round_in += p->lease.n;
    o->round_push[o->round_count++] = *p;
    o->in_round[rank]++;
    *p = (struct echi_push){0};
    if (o->view[rank].member) echi_act_post(out, rank, ECHI_KIND_PUSH, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, (uint16_t)rank});
}

/* The last part of a push that has come and was not given to the sum; -1: none. */
static int waiting_part(const struct echi_owner *o, const struct echi_push *p) {
    for (int part = o->end - 1; part >= 0; part--)
        if (echi_part_in(&p->here, part) && !echi_part_in(&p->taken, part)) return part;
    return -1;
}

void echi_rounds_part(struct echi_owner *o, int rank, int part, struct echi_actions *out) {
    struct echi_push *p = &o->push[rank];
    bool waits = false;
    if (o->round.size == 0 || echi_lease_before(&p->lease, &o->round.first)) o->round.first = p->lease;
    o->round.size = p->lease.round_size;
    o->round.again = o->round.again || p->lease.again;
    if (echi_part_in(&o->round.given, part) || (p->lease.again && came_before(o, &p->lease, part))) {
        echi_part_add(&p->taken, part);
        p->added++;
        return end_push(o, rank, out);
    }
    for (int i = 0; i < o->queued; i++) waits = waits || o->queue[i] == rank;
    if (!waits) o->queue[o->queued++] = (uint16_t)rank;
}

/* A part that can be applied, the first that forward needs; -1: none. */
static int covered_part(const struct echi_owner *o) {
    if (o->round.covered == 0 || (o->round.again && o->round_in < o->round.size)) return -1;
    for (int part = 0; part < o->end; part++)
        if (o->round.in[part] == o->round.size && !echi_part_in(&o->round.given, part)) return part;
    return -1;
}

/* ---- weights: to each worker the parts in the order in which they were applied ----
 * One worker after the other: what leaves the link idle goes to the next. Who has all sooner computes while others still get theirs, and
 * its gradients come while theirs are under way. Who has had no turn when the round is over is owed all of it then. */

static void send_next(struct echi_owner *o, int rank, struct echi_actions *out) {
    const int part = o->round.order[o->trickled[rank]++];
    echi_owner_send_part(o, rank, o->round.next, part, o->version + 1, o->samples + o->round.size, out);
    o->trickling[rank]++;
    o->round.trickles += rank != o->setup->rank;
}

/* Has it all of the answer before, and nothing of this one? */
static bool may_get(const struct echi_owner *o, int rank) {
    return o->answer[rank] == 0 && o->leaving[rank] == 0 && o->trickling[rank] == 0 && !o->joins[rank] && !o->away[rank] &&
           echi_ranks_next(&o->round.getting, rank) != rank;
}

static int next_to_get(const struct echi_owner *o) {
    int first = -1;
    for (int i = 0; i < o->workers; i++) {
        if (!may_get(o, o->worker[i])) continue;
        if (o->worker[i] >= o->turn) return o->worker[i];
        if (first < 0) first = o->worker[i];
    }
    return first;
}

/* Another has its turn; false: nobody, or there is no place. */
static bool begin_turn(struct echi_owner *o) {
    const int r = o->sends < ECHI_ANSWERS && o->round.turns <= ECHI_ANSWERS ? next_to_get(o) : -1;
    if (r < 0) return false;
    echi_ranks_add(&o->round.getting, r);
    o->round.turn[o->round.turns++] = (uint16_t)r;
    o->turn = r + 1;
    o->sends += r != o->setup->rank;
    o->trickled[r] = 0;
    return true;
}

/* `all`: the round ends. */
static void send_applied(struct echi_owner *o, bool all, struct echi_actions *out) {
    for (int i = 0; i < o->round.turns; i++) {
        const int r = o->round.turn[i];
        const bool here = r == o->setup->rank;
        if (echi_ranks_next(&o->round.getting, r) != r) continue;   /* lost */
        while (o->trickled[r] < o->round.applied && (all || here || o->round.trickles <= AHEAD)) send_next(o, r, out);
    }
}

void echi_rounds_answer(struct echi_owner *o, struct echi_actions *out) {
    if (o->round.applied == 0 || o->takeover.still) return;
    do send_applied(o, false, out);
    while (o->round.trickles <= AHEAD && begin_turn(o));
}

static void end_answer(struct echi_owner *o, int rank) {
    if (o->trickled[rank] == o->parts && o->trickling[rank] == 0) o->sends -= rank != o->setup->rank;
}

void echi_rounds_left(struct echi_owner *o, int rank) {
    o->trickling[rank]--;
    o->round.trickles -= rank != o->setup->rank;
    end_answer(o, rank);
}

void echi_rounds_lost(struct echi_owner *o, int rank) {
    if (echi_ranks_next(&o->round.getting, rank) != rank || o->trickled[rank] == o->parts) return;
    echi_ranks_drop(&o->round.getting, rank);
    o->trickled[rank] = (uint16_t)o->parts;
    end_answer(o, rank);
}

/* ---- tasks ---- */

static void apply_part(struct echi_owner *o, int part, struct echi_actions *out) {
    const bool first = o->round.next == ECHI_NONE;
    if (first) o->round.next = echi_owner_free_snapshot(o);
    struct echi_task *t = echi_owner_apply(o, (struct echi_slot){ECHI_SLOT_OWNER_SUM, 0}, &o->round.first, o->round.size, o->round.size,
                                           o->round.next, out);
    t->first = first || o->takeover.again;
    o->takeover.again = false;
    t->only = (uint16_t)(1 + part);
    echi_part_add(&o->round.given, part);
    o->round.covered--;
}

static void add_part(struct echi_owner *o, struct echi_actions *out) {
    const uint16_t rank = o->queue[0];
    struct echi_push *p = &o->push[rank];
    const int part = waiting_part(o, p);
    struct echi_task *t = compute(o, ECHI_TASK_ADD, out);
    t->grads = (struct echi_slot){ECHI_SLOT_OWNER_GRADS, rank};
    t->state = (struct echi_slot){ECHI_SLOT_OWNER_SUM, 0};
    t->lease = p->lease;
    t->only = (uint16_t)(1 + part);
    t->first = o->round.in[part] == 0;
    echi_part_add(&p->taken, part);
    /* To the end of the queue, or out of it: parts of all workers come at the same time. */
    o->queued--;
    for (int i = 0; i < o->queued; i++) o->queue[i] = o->queue[i + 1];
    if (waiting_part(o, p) >= 0) o->queue[o->queued++] = rank;
}

void echi_rounds_pump(struct echi_owner *o, struct echi_actions *out) {
    const int part = covered_part(o);
    if (part >= 0 && (o->round.next != ECHI_NONE || echi_owner_free_snapshot(o) != ECHI_NONE)) apply_part(o, part, out);
    else if (o->queued) add_part(o, out);
}

/* Pushes that were lost in their middle have been made up for. */
static void forget_the_lost(struct echi_owner *o) {
    for (int r = 0; r < plan_of(o)->world; r++)
        if (!o->known[r]) o->push[r] = (struct echi_push){0};
}

static void end_round(struct echi_owner *o, int64_t now, struct echi_actions *out) {
    const struct echi_ranks had = o->round.getting;
    send_applied(o, true, out);
    for (int r = echi_ranks_next(&had, 0); r >= 0; r = echi_ranks_next(&had, r + 1)) o->answered_in[r] = now - o->pushed_at[r];
    o->round.getting = (struct echi_ranks){{0}};
    o->round.turns = 0;
    o->current = o->round.next;
    o->version++;
    o->samples += o->round.size;
    o->takeover.size = o->round.size;
    o->takeover.reopened = false;
    if (o->round.again) forget_the_lost(o);
    o->round.again = false;
    o->round.size = 0;
    o->round.given = (struct echi_part_set){{0}};
    o->round.applied = 0;
    o->round.next = ECHI_NONE;
    for (int part = 0; part < o->end; part++) o->round.in[part] = 0;
    echi_owner_end_round(o, &had, out);
    if (echi_ranks_next(&o->owed, o->setup->rank) == o->setup->rank) o->turn = o->setup->rank;   /* it takes no place from the others */
}

void echi_rounds_computed(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_task *t = e->task;
    const int part = t->only - 1;
    if (t->kind == ECHI_TASK_ADD) {
        o->round.in[part] += t->lease.n;
        o->round.covered += o->round.in[part] == o->round.size;
        o->push[t->lease.worker].added++;
        return end_push(o, t->lease.worker, out);
    }
    o->round.order[o->round.applied++] = (uint8_t)part;
    if (o->round.applied == o->parts) end_round(o, e->now, out);
}

/* ---- takeover ---- */

void echi_rounds_anew(struct echi_owner *o) {
    memset(o->push, 0, plan_of(o)->world * sizeof o->push[0]);
    memset(o->in_round, 0, plan_of(o)->world * sizeof o->in_round[0]);
    memset(o->round.in, 0, sizeof o->round.in);
    o->queued = 0;
    o->round_in = 0;
    o->round_count = 0;
    o->round.covered = 0;
    o->round.getting = (struct echi_ranks){{0}};
    o->round.turns = o->round.trickles = 0;
    o->sends = 0;   /* answers that were not sent to their end */
    /* What is applied is not waited for: only when all pushes are whole the round may end. */
    o->round.again = o->round.applied > 0;
    if (o->round.applied == 0) o->round.size = 0;
}

void echi_rounds_reopen(struct echi_owner *o, const struct echi_part_set *own) {
    const uint8_t to = echi_owner_free_snapshot(o);
    o->round.next = o->current;
    o->current = to;
    o->version--;
    o->samples -= o->takeover.size;
    o->round.size = o->takeover.size;
    o->round.given = *own;
    for (int part = 0; part < o->end; part++)
        if (echi_part_in(own, part)) o->round.order[o->round.applied++] = (uint8_t)part;
    o->round.again = true;
    o->takeover.reopened = true;
}
