/* SPDX-License-Identifier: Apache-2.0
 * The head under layer separation, as its role acts (lib/core/roles/head.c): all rows that wait are one visit, up to as many as a task
 * takes. Where rounds are waited for the gradients of a round's rows are added up and applied once; else the update ends the visit, and
 * the rows' gradients leave before it. A shadow gets a copy of all rows and answers none. It has one place for each worker's, and the
 * worker waits until its copy is there. With micro-batches either has two places for each worker's, and rows wait at their worker until
 * one is free and it has heard of that.
 *
 * Of several heads each gets the rows of its workers. When those of a round are visited it sends its sum to the others, and applies the
 * round when it has theirs.
 *
 * Of rows and tasks about.owner is the flight, or the micro-batch, about.piece the head, of several which; with a shadow 1 is that. Of a
 * sum about.owner is the head that sends it. */
#include "echi_play.h"

static bool in_rounds(const struct echi_play *p) { return echi_policy_of((enum echi_sync)p->plan->sync)->rounds; }

static bool is_shadow(const struct echi_play *p, int head) { return p->plan->shadow > 0 && head == 1; }
static bool several(const struct echi_play *p) { return p->plan->heads > 0; }
static int stacks(const struct echi_play *p) { return p->cuts ? p->plan->micro_batches : p->plan->flights; }
static int places(const struct echi_play *p) { return p->cuts ? echi_plan_row_places(p->plan) : 1; }

int echi_play_micros(const struct echi_play *p, int worker) {
    return p->cuts ? echi_micro_count(p->plan, p->plan->n[p->rank[worker]]) : 1;
}
uint32_t echi_play_samples(const struct echi_play *p, int worker, int micro) {
    const uint32_t n = p->plan->n[p->rank[worker]];
    return p->cuts ? echi_lease_micro(p->plan, &(struct echi_lease){.n = n}, micro).n : n;
}

bool echi_play_head_set_up(struct echi_play *p) {
    const size_t count = (size_t)p->workers, steps = count * (size_t)stacks(p);
    p->heads = p->plan->shadow ? 2 : echi_plan_heads(p->plan);
    for (int i = 0; i < p->heads; i++) {
        struct echi_play_head *h = &p->head[i];
        h->rank = is_shadow(p, i) ? echi_plan_shadow(p->plan) : echi_plan_head_rank(p->plan, i);
        for (int w = 0; w < p->workers; w++)
            if (p->plan->shadow || p->plan->head_of[p->rank[w]] == i) h->rows += echi_play_micros(p, w);
        h->waiting = echi_play_zeroed(p, steps, sizeof *h->waiting);
        h->visiting = echi_play_zeroed(p, steps, sizeof *h->visiting);
        h->answering = echi_play_zeroed(p, count, sizeof *h->answering);
        h->visits = echi_play_zeroed(p, count, sizeof *h->visits);
        h->micro = echi_play_zeroed(p, count, sizeof *h->micro);
        if (!h->waiting || !h->visiting || !h->answering || !h->visits || !h->micro) return false;
    }
    if (p->plan->shadow == 0) return true;
    p->shadow.copy = echi_play_zeroed(p, steps, sizeof *p->shadow.copy);
    p->shadow.taken = echi_play_zeroed(p, count, sizeof *p->shadow.taken);
    return p->shadow.copy && p->shadow.taken;
}

/* So many of a worker's places have rows that are visited, or an answer that is leaving. */
static int taken(const struct echi_play_head *h, int worker) {
    int count = h->answering[worker];
    for (int i = 0; i < h->n_visiting; i++) count += h->visiting[i].worker == worker;
    return count;
}

/* Takes the rows of a visit from those that wait, the first of them first: not those whose answer would be written where the last is still
 * being read. Returns how many samples. */
static uint32_t take_rows(const struct echi_play *p, struct echi_play_head *h) {
    uint32_t rows = 0;
    int left = 0;
    h->n_visiting = 0;
    for (int i = 0; i < h->n_waiting; i++) {
        const struct echi_play_rows r = h->waiting[i];
        const uint32_t n = echi_play_samples(p, r.worker, r.flight);
        const bool full = h->n_visiting == ECHI_MERGE_STEPS || (rows > 0 && rows + n > ECHI_MERGE_ROWS);
        if (full || taken(h, r.worker) >= places(p)) {
            h->waiting[left++] = r;
            continue;
        }
        h->visiting[h->n_visiting++] = r;
        h->visits[r.worker]++;
        rows += n;
    }
    h->n_waiting = left;
    return rows;
}

/* Is one visit to have all rows of the round, and some are still to come? */
static bool gathers(const struct echi_play *p, const struct echi_play_head *h) {
    uint32_t rows = 0;
    if (!p->plan->gathers || h->in + h->n_waiting >= h->rows || h->n_waiting == ECHI_MERGE_STEPS) return false;
    for (int i = 0; i < h->n_waiting; i++) rows += echi_play_samples(p, h->waiting[i].worker, h->waiting[i].flight);
    return rows < ECHI_MERGE_ROWS;
}

static void send_sum(struct echi_play *p, int which) {
    struct echi_play_head *h = &p->head[which];
    h->in = 0;
    h->sums[which] = 1;
    for (int i = 0; i < p->heads; i++) {
        if (i == which) continue;
        echi_play_send(p, h->rank, p->head[i].rank, echi_part_priority(ECHI_KIND_PUSH, p->plan->parts.count),
                       echi_play_bytes(p, ECHI_KIND_HEAD_SUM, 4 * p->head_params), (struct echi_about){ECHI_PLAY_HEAD_SUM, which, 0, i});
        h->leaving++;
    }
}

/* Are all rows of a round visited, and of several heads all sums here? Then they are taken. */
static bool take_round(const struct echi_play *p, struct echi_play_head *h) {
    if (!several(p)) {
        if (h->in < h->rows) return false;   /* a shadow may have some rows of the next round */
        h->in -= h->rows;
        return true;
    }
    for (int i = 0; i < p->heads; i++)
        if (h->sums[i] == 0) return false;
    for (int i = 0; i < p->heads; i++) h->sums[i]--;
    return true;
}

static void visit(struct echi_play *p, int which) {
    struct echi_play_head *h = &p->head[which];
    const bool rounds = in_rounds(p);
    const double add = echi_play_adding(p, h->rank, p->head_params);
    const double update = echi_play_applying(p, h->rank, p->head_params) + (several(p) ? p->heads * add : 0);
    if (h->busy) return;
    if (several(p) && h->in == h->rows) send_sum(p, which);
    if (rounds && take_round(p, h)) {
        h->busy = true;
        return echi_play_compute(p, h->rank, ECHI_TASK_HEAD_APPLY, update, (struct echi_about){ECHI_PLAY_HEAD_APPLY, 0, 0, which});
    }
    if (h->sums[which] > 0 || (h->leaving > 0 && h->in == 0)) return;   /* rows of the next round wait */
    if (gathers(p, h)) return;
    const uint32_t rows_taken = take_rows(p, h);
    if (h->n_visiting == 0) return;
    const double takes = echi_times_head(&p->times[h->rank], rows_taken);
    const double adding = h->in > 0 ? add : 0;   /* the first rows' gradients are the sum */
    const double all = takes + (rounds ? adding : update);
    h->busy = true;
    echi_cost_compute(p->cost, h->rank, &(struct echi_work){.seconds = all, .urgency = ECHI_TASK_HEAD,
                                                            .part = ECHI_HEAD_ANSWERS * takes / all,
                                                            .cookie = echi_play_cookie((struct echi_about){ECHI_PLAY_HEAD, 0, 0, which})});
}

static uint8_t *copy_of(const struct echi_play *p, int worker, int flight) {
    return &p->shadow.copy[worker * stacks(p) + flight];
}

static void send_rows(struct echi_play *p, int which, int worker, int flight, int64_t not_before) {
    const double bytes = echi_play_bytes(p, ECHI_KIND_ACT, (double)echi_play_samples(p, worker, flight) * p->load->row);
    echi_cost_send(p->cost, p->rank[worker], p->head[which].rank, ECHI_PRIORITY_ROWS, (uint64_t)bytes, not_before,
                   echi_play_cookie((struct echi_about){ECHI_PLAY_ROWS, flight, worker, which}));
}

static void send_next(struct echi_play *p, int which, int worker, int64_t not_before) {
    struct echi_play_micro *m = &p->head[which].micro[worker];
    for (; m->sent < m->ready && m->placed < places(p); m->placed++) send_rows(p, which, worker, m->sent++, not_before);
}

static void micro_leaves(struct echi_play *p, int which, int worker, int micro) {
    struct echi_play_micro *m = &p->head[which].micro[worker];
    if (micro == 0) m->sent = 0;
    m->ready = (uint8_t)(micro + 1);
    send_next(p, which, worker, 0);
}

int echi_play_rows_leave(struct echi_play *p, int worker, int flight) {
    const int first = p->plan->head_of[p->rank[worker]], heads = p->plan->shadow == 0 ? 1 : 2;
    if (heads > 1) *copy_of(p, worker, flight) = ECHI_COPY_LEAVES;
    for (int i = first; i < first + heads; i++) {
        if (!p->cuts) send_rows(p, i, worker, flight, 0);
        if (p->cuts) micro_leaves(p, i, worker, flight);
    }
    return heads;
}

/* A place is free again. */
static void frees_place(struct echi_play *p, int which, int worker) {
    if (!p->cuts) return;
    p->head[which].micro[worker].placed--;
    send_next(p, which, worker, echi_cost_now(p->cost) + echi_cost_delay(p->cost, p->head[which].rank, p->rank[worker]));
}

/* Under a bound the fewest steps of a group are first in the places of its rows. */
static void queue_rows(struct echi_play *p, struct echi_about about) {
    struct echi_play_head *h = &p->head[about.piece];
    const bool bounded = echi_policy_of((enum echi_sync)p->plan->sync)->bounded;
    const uint8_t *group_of = p->plan->group_of;
    int at = h->n_waiting++;
    for (int i = at - 1; i >= 0 && bounded; i--) {
        const int other = h->waiting[i].worker;
        if (group_of[p->rank[other]] != group_of[p->rank[about.worker]] || h->visits[other] <= h->visits[about.worker]) continue;
        h->waiting[at] = h->waiting[i];
        at = i;
    }
    h->waiting[at] = (struct echi_play_rows){(uint16_t)about.worker, (uint8_t)about.owner};
}

/* A copy is in its place. */
static void take_copy(struct echi_play *p, int worker, int flight) {
    p->shadow.taken[worker]++;
    *copy_of(p, worker, flight) = ECHI_COPY_IN;
    echi_play_send(p, p->head[1].rank, p->rank[worker], ECHI_PRIORITY_CONTROL, echi_play_bytes(p, ECHI_KIND_SHADOWED, 0),
                   (struct echi_about){ECHI_PLAY_SHADOWED, flight, worker, 0});
    queue_rows(p, (struct echi_about){ECHI_PLAY_ROWS, flight, worker, 1});
}

void echi_play_rows_in(struct echi_play *p, struct echi_about about) {
    if (!is_shadow(p, about.piece)) queue_rows(p, about);
    else if (p->shadow.taken[about.worker] >= places(p)) *copy_of(p, about.worker, about.owner) = ECHI_COPY_WAITS;
    else take_copy(p, about.worker, about.owner);
    visit(p, about.piece);
}

/* It has trained them. */
static void end_copy(struct echi_play *p, int worker) {
    p->shadow.taken[worker]--;
    for (int i = 0; i < stacks(p) && p->shadow.taken[worker] < places(p); i++)
        if (*copy_of(p, worker, i) == ECHI_COPY_WAITS) take_copy(p, worker, i);
}

bool echi_play_shadowed(const struct echi_play *p, int worker, int flight) {
    bool told = true;
    for (int i = 0; i < echi_play_micros(p, worker) && p->plan->shadow > 0; i++)   /* of flights the one, of a cut step each */
        told = told && *copy_of(p, worker, flight + i) == ECHI_COPY_TOLD;
    return told;
}

void echi_play_told_shadowed(struct echi_play *p, struct echi_about about) {
    *copy_of(p, about.worker, about.owner) = ECHI_COPY_TOLD;
}

void echi_play_head_marked(struct echi_play *p, struct echi_about about) {
    struct echi_play_head *h = &p->head[about.piece];
    const int count = h->n_visiting;
    h->n_visiting = 0;
    h->in += count;
    for (int i = 0; i < count; i++) {
        const struct echi_play_rows r = h->visiting[i];
        const int rank = p->rank[r.worker];
        frees_place(p, about.piece, r.worker);
        if (is_shadow(p, about.piece)) {
            end_copy(p, r.worker);
            continue;
        }
        h->answering[r.worker]++;
        echi_play_send(p, h->rank, rank, ECHI_PRIORITY_ANSWER,
                       echi_play_bytes(p, ECHI_KIND_ACT_GRAD, (double)echi_play_samples(p, r.worker, r.flight) * p->load->row_grad),
                       (struct echi_about){ECHI_PLAY_ANSWER, r.flight, r.worker, 0});
    }
}

void echi_play_head_done(struct echi_play *p, struct echi_about about) {
    p->head[about.piece].busy = false;
    if (about.what == ECHI_PLAY_HEAD) echi_play_head_marked(p, about);   /* nothing is left to be told if a mark has */
    visit(p, about.piece);
}

void echi_play_answer_left(struct echi_play *p, int worker) {
    const int which = p->plan->head_of[p->rank[worker]];
    p->head[which].answering[worker]--;
    visit(p, which);
}

void echi_play_head_sum_in(struct echi_play *p, struct echi_about about) {
    p->head[about.piece].sums[about.owner]++;
    visit(p, about.piece);
}

void echi_play_head_sum_left(struct echi_play *p, struct echi_about about) {
    p->head[about.owner].leaving--;
    visit(p, about.owner);
}
