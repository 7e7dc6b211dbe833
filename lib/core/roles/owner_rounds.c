/* SPDX-License-Identifier: Apache-2.0
 * A round part by part: a part that has come of all samples is summed, applied and sent to the workers, while pushes still bring the
 * others: gradients go up while weights come down. That parts need not wait for one another: H. Zhang et al., "Poseidon: an efficient
 * communication architecture for distributed deep learning on GPU clusters", USENIX ATC 2017, section 4.1 (wait-free backpropagation).
 *
 * One task sums all pushes of a part and applies them: the compute thread takes one between two layers of a step, which may be a
 * twentieth of a second apart, so a task for each push would make the part wait for as many layers. Only what waits for nothing else,
 * whole pushes and those of lost workers, is added before, once anybody was lost: then a worker may have another lease of the round.
 *
 * Until then the sum lies where one of the pushes was, and nothing is kept for it.
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
    o->round.by_part = echi_plan_rounds_by_part(plan_of(o));
    o->round.next = ECHI_NONE;
}

static bool contains(const struct echi_lease *l, const struct echi_lease *of) {
    return l->epoch == of->epoch && l->start <= of->start && of->start + of->n <= l->start + l->n;
}

/* A push that its worker was lost in the middle of. */
static bool was_lost(const struct echi_owner *o, int rank) { return !o->known[rank] && !o->push[rank].whole && o->push[rank].parts_in > 0; }

/* Of a lease that was issued again: has this part of all its samples come, before its worker was lost? */
static bool came_before(const struct echi_owner *o, const struct echi_lease *l, int part) {
    for (int r = 0; r < plan_of(o)->world; r++) {
        const struct echi_push *p = &o->push[r];
        const bool of_round = was_lost(o, r) && p->lease.round == l->round;
        if (of_round && contains(&p->lease, l) && echi_part_in(&p->here, part)) return true;
    }
    return false;
}

void echi_rounds_end_push(struct echi_owner *o, int rank, struct echi_actions *out) {
    struct echi_push *p = &o->push[rank];
    if (!p->whole || p->added < o->parts) return;
    p->staleness = (double)(o->samples - p->seen) / plan_of(o)->round;
    o->round_in += p->lease.n;
    o->round_push[o->round_count++] = *p;
    o->in_round[rank]++;
    *p = (struct echi_push){0};
    if (o->view[rank].member && (!o->ring.on || rank == o->setup->rank))
        echi_act_post(out, rank, ECHI_KIND_PUSH, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, (uint16_t)rank});
}

/* Has this part come, and no task has taken it? */
static bool waits(const struct echi_push *p, int part) { return echi_part_in(&p->here, part) && !echi_part_in(&p->taken, part); }

/* The first part of a push that waits; -1: none. */
static int waiting_part(const struct echi_owner *o, const struct echi_push *p) {
    for (int i = 0; 64 * i < o->end; i++) {
        const uint64_t waiting = p->here.word[i] & ~p->taken.word[i];
        if (waiting) return 64 * i + __builtin_ctzll(waiting);
    }
    return -1;
}

static void note_round(struct echi_owner *o, const struct echi_lease *l) {
    if (o->round.size == 0 || echi_lease_before(l, &o->round.first)) o->round.first = *l;
    o->round.size = l->round_size;
}

void echi_rounds_come(struct echi_owner *o, const struct echi_lease *l, int part, uint32_t samples) {
    note_round(o, l);
    o->round.come[part] += samples;
    o->round.covered += o->round.come[part] == o->round.size;
}

void echi_rounds_part(struct echi_owner *o, int rank, int part, struct echi_actions *out) {
    struct echi_push *p = &o->push[rank];
    note_round(o, &p->lease);
    o->round.again = o->round.again || p->lease.again;
    if (echi_part_in(&o->round.given, part) || (p->lease.again && came_before(o, &p->lease, part))) {
        echi_part_add(&p->taken, part);
        p->added++;
        return echi_rounds_end_push(o, rank, out);
    }
    echi_rounds_come(o, &p->lease, part, p->lease.n);
    if (echi_ranks_has(&o->round.queued, rank)) return;
    echi_ranks_add(&o->round.queued, rank);
    o->queue[o->queued++] = (uint16_t)rank;
}

/* A part that can be applied, the first that forward needs; -1: none. */
static int covered_part(const struct echi_owner *o) {
    if (o->round.covered == 0 || (o->round.again && o->round_in < o->round.size) || echi_ring_holds_back(o)) return -1;
    for (int part = 0; part < o->end; part++)
        if (o->round.come[part] == o->round.size && !echi_part_in(&o->round.given, part)) return part;
    return -1;
}

/* The first part that waits of a push that waits for nothing else; -1: none, or nobody was lost, and each worker has one lease a round. */
static int early_part(const struct echi_owner *o) {
    if (o->members == 0) return -1;
    for (int i = 0; i < o->queued; i++) {
        const int rank = o->queue[i];
        if (o->push[rank].whole || was_lost(o, rank)) return waiting_part(o, &o->push[rank]);
    }
    return -1;
}

/* ---- weights: as parts are applied, the first that forward needs to all workers, then the next ----
 * Each worker's forward begins with the first parts. One message follows the other, and the next rank's turn comes after the last: owners
 * that begin behind their own ranks do not all send to one host. So answers go on when their round is over; no part of the next is applied
 * before they have left, which holds up nobody, since workers need them to push. A worker that lacks weights of the round before is sent
 * none of this one until it is over; then it is owed all of it. */

static void no_receivers(struct echi_owner *o) {
    o->answers.to = (struct echi_ranks){{0}};
    o->answers.count = o->answers.left = 0;
    memset(o->answers.lacked, 0, sizeof o->answers.lacked);
}

static void begin_answers(struct echi_owner *o, uint8_t from) {
    o->answers.from = from;
    o->answers.version = o->version + 1;
    o->answers.samples = o->samples + o->round.size;
    o->answers.parts = 0;
    o->answers.done = (struct echi_part_set){{0}};
    no_receivers(o);
    o->turn = o->setup->rank + 1;
}

static bool lacks(const struct echi_owner *o, int rank) { return o->trickled[rank] < o->answers.parts; }

/* Has it all of the answers before? The own worker has, though what it is lent is not sent before it has the next (echi_loan.h). */
static bool may_get(const struct echi_owner *o, int rank) {
    const bool has_left = rank == o->setup->rank || (o->leaving[rank] == 0 && o->trickling[rank] == 0);
    return o->answer[rank] == 0 && has_left && !o->joins[rank] && !echi_ranks_has(&o->away, rank);
}

/* Mostly all others are receivers from the first event of a round on: nobody looks at each of them again. */
static void add_receivers(struct echi_owner *o) {
    for (int r = -1; (r = echi_ranks_next_but(&o->works, &o->answers.to, r + 1)) >= 0;) {
        if (!may_get(o, r) || !answers(o, r)) continue;
        echi_ranks_add(&o->answers.to, r);
        o->answers.count++;
        o->answers.left += o->answers.parts;
        for (int part = 0; part < o->end; part++)
            if (echi_part_in(&o->answers.done, part)) o->answers.lacked[part]++;
        o->sends += r != o->setup->rank;
        o->trickled[r] = 0;
        o->sent[r] = (struct echi_part_set){{0}};
    }
}

/* Of the parts that are applied the first that this worker was not sent. */
static int next_part(const struct echi_owner *o, int rank) {
    int part = 0;
    while (!echi_part_in(&o->answers.done, part) || echi_part_in(&o->sent[rank], part)) part++;
    return part;
}

static void send_part(struct echi_owner *o, int rank, int part, struct echi_actions *out) {
    echi_part_add(&o->sent[rank], part);
    o->trickled[rank]++;
    o->answers.left--;
    o->answers.lacked[part]--;
    echi_owner_send_part(o, rank, o->answers.from, part, o->answers.version, o->answers.samples, out);
    o->trickling[rank]++;
    o->answers.trickles += rank != o->setup->rank;
}

/* The first receiver from rank `from` on that was not sent the part; -1: none. */
static int who_lacks(const struct echi_owner *o, int from, int part) {
    int r = echi_ranks_next(&o->answers.to, from);
    while (r >= 0 && echi_part_in(&o->sent[r], part)) r = echi_ranks_next(&o->answers.to, r + 1);
    return r;
}

/* Who gets a part that somebody lacks: from rank `turn` on. */
static int next_receiver(const struct echi_owner *o, int part) {
    const int r = who_lacks(o, o->turn, part);
    return r >= 0 ? r : who_lacks(o, 0, part);
}

void echi_rounds_answer(struct echi_owner *o, struct echi_actions *out) {
    const int self = o->setup->rank;
    if (o->answers.parts == 0 || o->takeover.still) return;
    if (o->round.next != ECHI_NONE) add_receivers(o);
    while (echi_ranks_has(&o->answers.to, self) && lacks(o, self)) send_part(o, self, next_part(o, self), out);
    for (int part = 0; o->answers.left > 0 && o->answers.trickles <= AHEAD; o->turn++) {
        while (o->answers.lacked[part] == 0) part++;
        o->turn = next_receiver(o, part);
        send_part(o, o->turn, part, out);
    }
}

int echi_rounds_open(const struct echi_owner *o) {
    return o->round.next == ECHI_NONE ? 0 : o->answers.count - echi_ranks_has(&o->answers.to, o->setup->rank);
}

static void end_answer(struct echi_owner *o, int rank) {
    if (o->trickled[rank] == o->parts && o->trickling[rank] == 0) o->sends -= rank != o->setup->rank;
}

void echi_rounds_left(struct echi_owner *o, int rank) {
    o->trickling[rank]--;
    o->answers.trickles -= rank != o->setup->rank;
    end_answer(o, rank);
}

void echi_rounds_lost(struct echi_owner *o, int rank) {
    if (!echi_ranks_has(&o->answers.to, rank)) return;
    echi_ranks_drop(&o->answers.to, rank);
    o->answers.count--;
    o->answers.left -= o->answers.parts - o->trickled[rank];
    for (int part = 0; part < o->end; part++)
        if (echi_part_in(&o->answers.done, part) && !echi_part_in(&o->sent[rank], part)) o->answers.lacked[part]--;
    if (o->trickled[rank] == o->parts) return;
    o->trickled[rank] = (uint16_t)o->parts;
    end_answer(o, rank);
}

/* ---- tasks ---- */

/* Gives a task what waits of a part, of as many pushes as it takes. */
static void take_part(struct echi_owner *o, int part, struct echi_task *t) {
    int left = 0;
    t->only = (uint16_t)(1 + part);
    t->lease = o->round.first;
    for (int i = 0; i < o->queued; i++) {
        const uint16_t rank = o->queue[i];
        struct echi_push *p = &o->push[rank];
        if (t->n_rows < ECHI_MERGE_STEPS && waits(p, part)) {
            t->rows[t->n_rows++] = rank;
            echi_part_add(&p->taken, part);
        }
        if (waiting_part(o, p) >= 0) o->queue[left++] = rank;
        else echi_ranks_drop(&o->round.queued, rank);
    }
    o->queued = left;
    echi_ring_take(o, part, t);
}

static void add_part(struct echi_owner *o, int part, struct echi_actions *out) {
    struct echi_task *t = compute(o, ECHI_TASK_ADD, out);
    t->state = (struct echi_slot){ECHI_SLOT_OWNER_SUM, 0};
    t->first = !echi_part_in(&o->round.summed, part);
    echi_part_add(&o->round.summed, part);
    take_part(o, part, t);
}

static int waiting_pushes(const struct echi_owner *o, int part) {
    int count = 0;
    for (int i = 0; i < o->queued; i++) count += waits(&o->push[o->queue[i]], part);
    return count;
}

/* Until a node is lost, and gradients may have to be pushed again, the sum lies where one of its pushes was: the own worker's where it has
 * one, so that the rows begin with it. */
static void sum_in_push(struct echi_owner *o, struct echi_task *t) {
    if (o->members > 0 || !echi_plan_sums_in_push(plan_of(o))) return;
    for (int i = 1; i < t->n_rows; i++) {
        if (t->rows[i] != o->setup->rank) continue;
        t->rows[i] = t->rows[0];
        t->rows[0] = (uint16_t)o->setup->rank;
    }
    t->grads = (struct echi_slot){ECHI_SLOT_OWNER_GRADS, t->rows[0]};
}

static void apply_part(struct echi_owner *o, int part, struct echi_actions *out) {
    const bool first = o->round.next == ECHI_NONE;
    if (waiting_pushes(o, part) > ECHI_MERGE_STEPS) return add_part(o, part, out);
    if (first) {
        o->round.next = echi_owner_free_snapshot(o);
        begin_answers(o, o->round.next);
    }
    struct echi_task *t = echi_owner_apply(o, (struct echi_slot){ECHI_SLOT_OWNER_SUM, 0}, &o->round.first, o->round.size, o->round.size,
                                           o->round.next, out);
    t->first = first || o->takeover.again;
    o->takeover.again = false;
    t->summed = echi_part_in(&o->round.summed, part);
    take_part(o, part, t);
    sum_in_push(o, t);
    echi_part_add(&o->round.given, part);
    o->round.covered--;
}

void echi_rounds_pump(struct echi_owner *o, struct echi_actions *out) {
    const int part = covered_part(o);
    if (part >= 0) {
        const bool first = o->round.next == ECHI_NONE;
        if (!first || (echi_owner_free_snapshot(o) != ECHI_NONE && o->answers.left == 0)) apply_part(o, part, out);
        return;
    }
    const int early = early_part(o);
    if (early >= 0) add_part(o, early, out);
}

/* Pushes that were lost in their middle have been made up for. */
static void forget_the_lost(struct echi_owner *o) {
    for (int r = 0; r < plan_of(o)->world; r++)
        if (!o->known[r]) o->push[r] = (struct echi_push){0};
}

static void end_round(struct echi_owner *o, int64_t now, struct echi_actions *out) {
    const struct echi_ranks *to = &o->answers.to;
    for (int i = 0; i < o->workers; i++) {
        const int r = o->worker[i];   /* in a ring weights go on from one to the other */
        if (o->ring.on || echi_ranks_has(to, r)) o->answered_in[r] = now - o->pushed_at[r];
    }
    o->current = o->round.next;
    o->version++;
    o->samples += o->round.size;
    o->takeover.size = o->round.size;
    o->takeover.reopened = false;
    if (o->round.again) forget_the_lost(o);
    o->round.again = false;
    o->round.size = 0;
    o->round.given = o->round.summed = (struct echi_part_set){{0}};
    o->round.next = ECHI_NONE;
    for (int part = 0; part < o->end; part++) o->round.come[part] = 0;
    echi_ring_end_round(o);
    echi_owner_end_round(o, to, out);
}

void echi_rounds_computed(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_task *t = e->task;
    const int part = t->only - 1;
    for (int i = 0; i < t->n_rows; i++) {
        o->push[t->rows[i]].added++;
        echi_rounds_end_push(o, t->rows[i], out);
    }
    echi_ring_taken(o, t, out);
    if (t->kind == ECHI_TASK_ADD) return;
    echi_part_add(&o->answers.done, part);
    o->answers.left += o->answers.count;
    o->answers.lacked[part] = (uint16_t)o->answers.count;
    if (++o->answers.parts < o->parts) return;
    echi_rounds_answer(o, out);   /* so that who can be sent this round is among those that it goes to */
    end_round(o, e->now, out);
}

/* ---- takeover ---- */

void echi_rounds_anew(struct echi_owner *o) {
    const bool under_way = o->round.next != ECHI_NONE;
    memset(o->push, 0, plan_of(o)->world * sizeof o->push[0]);
    memset(o->in_round, 0, plan_of(o)->world * sizeof o->in_round[0]);
    memset(o->round.come, 0, sizeof o->round.come);
    o->round.summed = (struct echi_part_set){{0}};
    echi_ring_end_round(o);
    o->queued = 0;
    o->round.queued = (struct echi_ranks){{0}};
    o->round_in = 0;
    o->round_count = 0;
    o->round.covered = 0;
    no_receivers(o);
    o->answers.trickles = 0;
    o->sends = 0;   /* answers that were not sent to their end */
    /* What is applied is not waited for: only when all pushes are whole the round may end. */
    o->round.again = under_way;
    if (under_way) return;
    o->round.size = 0;
    o->answers.parts = 0;
}

void echi_rounds_reopen(struct echi_owner *o, const struct echi_part_set *own) {
    const uint8_t to = echi_plan_grads_in_weights(plan_of(o)) ? o->current : echi_owner_free_snapshot(o);
    o->round.next = o->current;
    o->current = to;
    o->version--;
    o->samples -= o->takeover.size;
    o->round.size = o->takeover.size;
    o->round.given = *own;
    begin_answers(o, o->round.next);
    o->answers.done = *own;
    for (int part = 0; part < o->end; part++) o->answers.parts += echi_part_in(own, part);
    o->round.again = true;
    o->takeover.reopened = true;
}
