/* SPDX-License-Identifier: Apache-2.0
 * The head under layer separation, as its role acts (lib/core/roles/head.c): all rows that wait are one visit, up to as many as a task
 * takes. Where rounds are waited for the gradients of a round's rows are added up and applied once; else the update ends the visit, and
 * the rows' gradients leave before it. */
#include "echi_play.h"

bool echi_play_head_set_up(struct echi_play *p) {
    const size_t count = (size_t)p->workers, steps = count * p->plan->flights;
    p->head.policy = echi_policy_of((enum echi_sync)p->plan->sync);
    if (!p->plan->separated) return true;
    p->head.waiting = echi_play_zeroed(p, steps, sizeof *p->head.waiting);
    p->head.visiting = echi_play_zeroed(p, steps, sizeof *p->head.visiting);
    p->head.answering = echi_play_zeroed(p, count, sizeof *p->head.answering);
    p->head.visits = echi_play_zeroed(p, count, sizeof *p->head.visits);
    return p->head.waiting && p->head.visiting && p->head.answering && p->head.visits;
}

static bool visited(const struct echi_play *p, int worker) {
    for (int i = 0; i < p->head.n_visiting; i++)
        if (p->head.visiting[i].worker == worker) return true;
    return false;
}

/* Takes the rows of a visit from those that wait, the first of them first: not those whose answer would be written where the last is still
 * being read. Returns how many samples. */
static uint32_t take_rows(struct echi_play *p) {
    uint32_t rows = 0;
    int left = 0;
    p->head.n_visiting = 0;
    for (int i = 0; i < p->head.n_waiting; i++) {
        const struct echi_play_rows r = p->head.waiting[i];
        const uint32_t n = p->plan->n[p->rank[r.worker]];
        const bool full = p->head.n_visiting == ECHI_MERGE_STEPS || (rows > 0 && rows + n > ECHI_MERGE_ROWS);
        if (full || p->head.answering[r.worker] || visited(p, r.worker)) {
            p->head.waiting[left++] = r;
            continue;
        }
        p->head.visiting[p->head.n_visiting++] = r;
        p->head.visits[r.worker]++;
        rows += n;
    }
    p->head.n_waiting = left;
    return rows;
}

static void visit(struct echi_play *p) {
    const int head = p->plan->head;
    const double update = echi_play_applying(p, head, p->head_params);
    if (p->head.busy) return;
    if (p->head.policy->rounds && p->head.in == p->workers) {
        p->head.in = 0;
        p->head.busy = true;
        return echi_play_compute(p, head, ECHI_TASK_HEAD_APPLY, update, (struct echi_about){ECHI_PLAY_HEAD_APPLY, 0, 0, 0});
    }
    const double takes = echi_times_head(&p->times[head], take_rows(p));
    if (p->head.n_visiting == 0) return;
    const double all = takes + (p->head.policy->rounds ? echi_play_adding(p, head, p->head_params) : update);
    p->head.busy = true;
    echi_cost_compute(p->cost, head, &(struct echi_work){.seconds = all, .urgency = ECHI_TASK_HEAD,
                                                         .part = !p->head.policy->rounds && update > 0 ? takes / all : 0,
                                                         .cookie = echi_play_cookie((struct echi_about){ECHI_PLAY_HEAD, 0, 0, 0})});
}

/* Under a bound the fewest steps of a group are first in the places of its rows. */
void echi_play_rows_in(struct echi_play *p, int worker, int flight) {
    struct echi_play_rows *waiting = p->head.waiting;
    const uint8_t *group_of = p->plan->group_of;
    int at = p->head.n_waiting++;
    for (int i = at - 1; i >= 0 && p->head.policy->bounded; i--) {
        const int other = waiting[i].worker;
        if (group_of[p->rank[other]] != group_of[p->rank[worker]] || p->head.visits[other] <= p->head.visits[worker]) continue;
        waiting[at] = waiting[i];
        at = i;
    }
    waiting[at] = (struct echi_play_rows){(uint16_t)worker, (uint8_t)flight};
    visit(p);
}

void echi_play_head_marked(struct echi_play *p) {
    const int count = p->head.n_visiting;
    p->head.n_visiting = 0;
    p->head.in += count;
    for (int i = 0; i < count; i++) {
        const struct echi_play_rows r = p->head.visiting[i];
        const int rank = p->rank[r.worker];
        p->head.answering[r.worker] = true;
        echi_play_send(p, p->plan->head, rank, ECHI_PRIORITY_ANSWER,
                       echi_play_bytes(p, ECHI_KIND_ACT_GRAD, (double)p->plan->n[rank] * p->load->row_grad),
                       (struct echi_about){ECHI_PLAY_ANSWER, r.flight, r.worker, 0});
    }
}

void echi_play_head_done(struct echi_play *p, bool applied) {
    p->head.busy = false;
    if (!applied) echi_play_head_marked(p);   /* nothing is left to be told if a mark has */
    visit(p);
}

void echi_play_answer_left(struct echi_play *p, int worker) {
    p->head.answering[worker] = false;
    visit(p);
}
