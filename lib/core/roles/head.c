/* SPDX-License-Identifier: Apache-2.0
 * The head: owns the layers after the cut and computes them on the rows that workers send (Stanza: Wu et al., arXiv 1812.10624;
 * PROTOCOL.md, "Sources").
 * A batch of rows is trained in one visit, so the head's gradient is never stale; rows of several waiting workers merge
 * into one product. Activation gradients leave before the head's own update: the GRADIENT event of a visit says that they may, and what is
 * left of it is the update or, where rounds are waited for, the round's sum.
 *
 * A shadow (PROTOCOL.md, "The head's shadow") is a head that workers send a copy of all rows to. It trains them in the order in which they
 * come, and answers none, until the head is lost: then it is asked like any head. Rows that it has trained come again, and are answered.
 *
 * Another node gets its layers while the run goes ("The head moves"): nothing is out then, so a copy of its weights and its momentum is all
 * that there is to hand on. Who has had them keeps its places for rows, since what is posted for a node that lives cannot be taken back.
 *
 * Of several heads (PROTOCOL.md, "Several heads") each trains the rows of some workers, on weights of its own that are the others' bit for
 * bit: once a round they send each other their sums, and each applies all of them in the order of the heads. */
#include "echi_roles.h"

#include <string.h>

/* Of so many visits the coordinator is told together: of two at least, and where they are short of as many as take so many ns, or of 16. */
#define VISITS 2
#define VISITS_MOST 16
#define PACE_AFTER INT64_C(100000000)

static int places(const struct echi_head *h) { return echi_plan_row_places(&h->setup->plan) * h->setup->plan.world; }
/* Whose rows come there. */
static uint16_t rank_of(const struct echi_head *h, uint16_t place) { return place % h->setup->plan.world; }

/* The task takes in the rows in this place. */
static void take(const struct echi_head *h, struct echi_task *t, uint16_t place) {
    const struct echi_lease *l = &h->lease[place];
    t->rows[t->n_rows] = place;
    t->row_count[t->n_rows] = l->n;
    t->row_epoch[t->n_rows] = l->epoch;
    t->row_start[t->n_rows++] = l->start;
    t->samples += l->n;
}

void echi_head_init(struct echi_head *h, const struct echi_setup *setup) {
    memset(h, 0, offsetof(struct echi_head, member));
    h->setup = setup;
    h->policy = echi_policy_of((enum echi_sync)setup->plan.sync);
    h->shadow = echi_plan_shadow(&setup->plan) == setup->rank;
    h->index = setup->plan.heads ? echi_plan_head_index(&setup->plan, setup->rank) : 0;
    for (int r = 0; r < setup->plan.world; r++) {
        h->member[r] = setup->plan.group_of[r] != ECHI_NONE && !setup->plan.lost[r];
        h->lost_some = h->lost_some || setup->plan.lost[r];
        h->trained_count[r] = 0;
    }
    for (int i = 0; i < places(h); i++) {
        h->answering[i] = false;
        h->rows[i] = ECHI_ROWS_NEW;
        h->lease[i] = (struct echi_lease){0};
    }
}

/* Where the next weights are written; false while all copies are in use: a SENT will come. */
static bool free_weights(const struct echi_head *h, struct echi_slot *out) {
    uint8_t to = 0;
    while (to < 3 && (to == h->current || h->in_flight[to])) to++;
    *out = (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, to};
    return to < 3;
}

/* Rows for an owner that is lost, as far as is known here. They are trained all the same: that owner may have lived long enough, cut off
 * from rank 0 alone, for their lease to be in the state that is kept. Else their samples are issued again, and not trained again. */
static bool in_vain(const struct echi_head *h, const struct echi_lease *l) { return h->setup->plan.lost[l->owner]; }

static bool is_copy(const struct echi_head *h, int place) { return h->rows[place] == ECHI_ROWS_COPY; }

/* Was the work of these rows trained before, for a worker that is lost or for an owner that is? Or, if it is for a lost owner, in a lease
 * that was issued since; then in part, maybe. */
static bool repeats(const struct echi_head *h, int place) {
    const struct echi_lease *l = &h->lease[place];
    if (!l->again && !in_vain(h, l) && !h->setup->plan.lost[l->worker] && h->rows[place] != ECHI_ROWS_AGAIN) return false;
    for (int r = 0; r < h->setup->plan.world; r++) {
        const uint32_t kept = h->trained_count[r] < ECHI_TRAINED_KEPT ? h->trained_count[r] : ECHI_TRAINED_KEPT;
        for (uint32_t i = 0; i < kept; i++)
            if (h->trained[r][i].epoch == l->epoch && l->start < h->trained[r][i].start + h->trained[r][i].n &&
                h->trained[r][i].start < l->start + l->n)
                return true;
    }
    return false;
}

static void remember(struct echi_head *h, const struct echi_lease *l) {
    const uint32_t at = h->trained_count[l->worker]++ % ECHI_TRAINED_KEPT;
    h->trained[l->worker][at].epoch = l->epoch;
    h->trained[l->worker][at].start = l->start;
    h->trained[l->worker][at].n = l->n;
}

/* The next rows may come to this place. */
static void post(const struct echi_head *h, uint16_t place, struct echi_actions *out) {
    if (h->member[rank_of(h, place)])
        echi_act_post(out, rank_of(h, place), ECHI_KIND_ACT, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, place});
}

/* Those that were trained before. */
static void drop_copies(struct echi_head *h, struct echi_actions *out) {
    int kept = 0;
    for (int i = 0; i < h->queued; i++) {
        const uint16_t place = h->queue[i];
        if (is_copy(h, place) && repeats(h, place)) post(h, place, out);
        else h->queue[kept++] = place;
    }
    h->queued = kept;
}

/* Rows that come again are answered like the first time, with the weights of their round, and not trained. */
static void take_untrained(struct echi_head *h, int at, struct echi_actions *out) {
    const uint16_t place = h->queue[at];
    const struct echi_lease *l = &h->lease[place];
    const bool before = h->policy->rounds && l->round < h->version;
    h->queued--;
    memmove(&h->queue[at], &h->queue[at + 1], (size_t)(h->queued - at) * sizeof h->queue[0]);
    h->repeats += l->n;
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_HEAD;
    t->role = ECHI_ROLE_HEAD;
    t->weights = (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, before ? h->previous : h->current};
    t->grads = (struct echi_slot){ECHI_SLOT_HEAD_GRADS, 0};
    t->divisor = l->round_size;
    take(h, t, place);
    h->busy = 1;
    h->since = h->now;
}

/* Not rows whose answer would be written where the last one is still being read; nor those of a round that is to come; nor the first of a
 * round while the sum of the one before is on its way out. */
static bool may_take(const struct echi_head *h, uint16_t place) {
    return !h->answering[place] && !(h->policy->rounds && h->lease[place].round > h->version) && !(h->sums_leaving && h->round_in == 0);
}

static void take_into_round(struct echi_head *h, const struct echi_task *t) {
    if (h->round_in == 0 || echi_lease_before(&t->lease, &h->round_place)) h->round_place = t->lease;
    h->round_in += t->samples;
    h->apply_divisor = t->divisor;
}

/* Samples of the round that come here, which any of its leases knows. */
static uint32_t round_rows(const struct echi_head *h, const struct echi_lease *l) {
    return h->setup->plan.heads ? l->head_rows : l->round_size;
}

/* Is one visit to have all rows of the round, and some are still to come? They will: each worker's come in one message, which waits for no
 * answer. Not so behind a loss, where the round's samples are issued again in pieces, nor in an epoch's short round, nor at a run's end,
 * which may be before its time. */
static bool gathers(const struct echi_head *h) {
    const struct echi_plan *p = &h->setup->plan;
    uint64_t here = h->round_in;
    int steps = 0;
    const struct echi_lease *any = NULL;
    if (!p->gathers || h->lost_some || h->asked || h->asked_momentum) return false;
    for (int i = 0; i < h->queued; i++) {
        const struct echi_lease *l = &h->lease[h->queue[i]];
        if (!may_take(h, h->queue[i])) continue;
        any = l;
        here += l->n;
        steps++;
    }
    return any && any->round_size == p->round && here < round_rows(h, any) && here - h->round_in < ECHI_MERGE_ROWS &&
           steps < ECHI_MERGE_STEPS;
}

static struct echi_slot own_sum(const struct echi_head *h) { return (struct echi_slot){ECHI_SLOT_HEAD_SUM, (uint16_t)h->index}; }

/* Merges waiting rows, the first of the queue first. */
static void take_rows(struct echi_head *h, struct echi_actions *out) {
    int at = 0;
    drop_copies(h, out);
    while (at < h->queued && !may_take(h, h->queue[at])) at++;
    if (at == h->queued || gathers(h)) return;   /* waits for a SENT, or for rows */
    if (repeats(h, h->queue[at])) return take_untrained(h, at, out);
    struct echi_slot to = {0};
    if (!h->policy->rounds && !free_weights(h, &to)) return;
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_HEAD;
    t->role = ECHI_ROLE_HEAD;
    t->weights = (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, h->current};
    t->weights_out = to;
    t->grads = (struct echi_slot){ECHI_SLOT_HEAD_GRADS, 0};
    t->divisor = h->lease[h->queue[at]].round_size;
    if (h->policy->rounds) {
        t->state = own_sum(h);
        t->first = h->round_in == 0;
    }
    int kept = 0;
    for (int i = 0; i < h->queued; i++) {
        const uint16_t place = h->queue[i];
        const uint32_t n = h->lease[place].n;
        /* The first is taken however many it brings, so nobody is passed for ever. */
        if (!may_take(h, place) || t->n_rows == ECHI_MERGE_STEPS || (t->n_rows > 0 && t->samples + n > ECHI_MERGE_ROWS) ||
            repeats(h, place)) {
            h->queue[kept++] = place;
            continue;
        }
        if (t->n_rows == 0 || echi_lease_before(&h->lease[place], &t->lease)) t->lease = h->lease[place];
        take(h, t, place);
        remember(h, &h->lease[place]);
    }
    h->queued = kept;
    h->busy = 1;
    h->since = h->now;
    if (h->policy->rounds) take_into_round(h, t);
}

/* ---- several heads ---- */

static bool several(const struct echi_head *h) { return h->setup->plan.heads > 0; }
static bool sum_is_in(const struct echi_head *h, int head) { return h->sum[head].samples > 0 && h->sum[head].version == h->version; }

/* Samples of this round in the sums of other heads. */
static uint64_t others_in(const struct echi_head *h) {
    uint64_t samples = 0;
    for (int i = 0; i < h->setup->plan.heads; i++) samples += sum_is_in(h, i) ? h->sum[i].samples : 0;
    return samples;
}

/* None is in two sums, since a lease names its head. */
static bool all_taken(const struct echi_head *h) { return h->apply_divisor > 0 && h->round_in + others_in(h) == h->apply_divisor; }
static void look_whether_whole(struct echi_head *h) { h->apply_due = all_taken(h); }

/* The round's update: a head without rows of it takes in the others' alone. */
static void take_sums(struct echi_head *h, struct echi_task *t) {
    if (!several(h)) return;
    t->grads = (struct echi_slot){ECHI_SLOT_HEAD_GRADS, 0};
    for (int i = 0; i < h->setup->plan.heads; i++) {
        if (i == h->index ? h->round_in == 0 : !sum_is_in(h, i)) continue;
        t->rows[t->n_rows++] = (uint16_t)i;
        if (i == h->index) continue;
        t->samples += h->sum[i].samples;
        if (t->lease.id == 0 || echi_lease_before(&h->sum[i].first, &t->lease)) t->lease = h->sum[i].first;
    }
}

static void post_sum(const struct echi_head *h, int head, struct echi_actions *out) {
    echi_act_post(out, echi_plan_head_rank(&h->setup->plan, head), ECHI_KIND_HEAD_SUM,
                  (struct echi_slot){ECHI_SLOT_HEAD_SUM, (uint16_t)head});
}

/* All rows of the round that are this head's are in its sum. */
static void send_sum(struct echi_head *h, struct echi_actions *out) {
    for (int i = 0; i < h->setup->plan.heads; i++) {
        if (i == h->index) continue;
        const int to = echi_plan_head_rank(&h->setup->plan, i);
        struct echi_action *a = echi_act_send(out, to, ECHI_ROLE_HEAD, ECHI_ROLE_HEAD, ECHI_KIND_HEAD_SUM);
        a->slot = own_sum(h);
        a->msg.lease = h->round_place;
        a->msg.version = h->version;
        a->msg.samples = h->round_in;
        h->sums_leaving++;
    }
}

static bool fits_round(const struct echi_head *h, const struct echi_lease *l) {
    return l->round == h->version && (h->apply_divisor == 0 || l->round_size == h->apply_divisor);
}

/* Of this round; or of a later one: whoever has sent that has all sums of this one. */
static void on_sum(struct echi_head *h, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const struct echi_lease *l = &m->lease;
    const int from = echi_plan_head_index(&h->setup->plan, e->from);
    if (!several(h) || from < 0 || from == h->index || !echi_lease_valid(l, &h->setup->plan) || l->head != from ||
        m->samples != l->head_rows || m->version != l->round || h->sum[from].samples > 0 ||
        (l->round == h->version ? !fits_round(h, l) || others_in(h) + l->head_rows > l->round_size : l->round < h->version))
        return echi_act_fault(out, ECH_E_FORMAT, "a sum of gradients does not fit the plan: do all nodes run the same version?");
    h->sum[from].version = m->version;
    h->sum[from].samples = l->head_rows;
    h->sum[from].first = *l;
    if (l->round != h->version) return;
    h->apply_divisor = l->round_size;
    look_whether_whole(h);
}

static void pump(struct echi_head *h, struct echi_actions *out) {
    if (h->busy || !h->started || h->momentum_sending) return;
    if (h->apply_due) {
        struct echi_slot to;
        if (!free_weights(h, &to)) return;
        struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
        t->kind = ECHI_TASK_HEAD_APPLY;
        t->role = ECHI_ROLE_HEAD;
        t->weights = (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, h->current};
        t->weights_out = to;
        t->grads = own_sum(h);
        t->lease = h->round_place;
        t->samples = h->round_in;
        t->divisor = h->apply_divisor;
        take_sums(h, t);
        h->busy = 1;
        return;
    }
    if (h->queued) take_rows(h, out);
}

/* The rows' gradients are in their places. */
static void answer(struct echi_head *h, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_task *t = e->task;
    for (int i = 0; i < t->n_rows; i++) {
        const uint16_t place = t->rows[i], rank = rank_of(h, place);
        if (is_copy(h, place)) post(h, place, out);
        if (is_copy(h, place) || !h->member[rank]) continue;   /* lost meanwhile */
        struct echi_action *a = echi_act_send(out, rank, ECHI_ROLE_WORKER, ECHI_ROLE_HEAD, ECHI_KIND_ACT_GRAD);
        a->slot = (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, place};
        h->answering[place] = true;
        a->msg.lease = h->lease[place];
        a->msg.loss = e->result->loss[i];
        a->msg.correct = e->result->correct[i];
        a->msg.version = h->version;
        a->msg.head = h->samples;
        post(h, place, out);
    }
}

/* The update is done. What others have sent of the next round may be all of it. */
static void end_round(struct echi_head *h, struct echi_actions *out) {
    const uint64_t over = h->version - 1;
    h->apply_due = false;
    h->round_in = h->apply_divisor = 0;
    h->round_place = (struct echi_lease){0};
    for (int i = 0; i < h->setup->plan.heads; i++) {
        if (h->sum[i].samples == 0) continue;
        if (h->sum[i].version == over) {
            h->sum[i].samples = 0;
            post_sum(h, i, out);
        } else if (sum_is_in(h, i)) {
            h->apply_divisor = h->sum[i].first.round_size;
        }
    }
    look_whether_whole(h);
}

/* Where a visit takes ever longer, the head may be better elsewhere. A shadow and several heads stay where they are. */
static void tell_pace(struct echi_head *h, const struct echi_task *t, struct echi_actions *out) {
    if (several(h) || h->setup->plan.head != h->setup->rank) return;
    h->visited += t->samples;
    h->took += (uint64_t)(h->now - h->since);
    if (++h->visits < VISITS || (h->visits < VISITS_MOST && h->now - h->told < PACE_AFTER)) return;
    h->told = h->now;
    struct echi_msg *m = &echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_HEAD, ECHI_KIND_PACE)->msg;
    m->version = h->visits;
    m->samples = h->visited;
    m->compute = h->took;
    h->visits = 0;
    h->visited = h->took = 0;
}

static void on_computed(struct echi_head *h, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_task *t = e->task;
    h->busy = 0;
    if (t->kind == ECHI_TASK_HEAD && (t->weights_out.kind || t->state.kind)) tell_pace(h, t, out);
    if (t->weights_out.kind != ECHI_SLOT_NONE) {
        h->previous = h->current;
        h->current = (uint8_t)t->weights_out.index;
        h->version++;
        h->samples += t->samples;
        end_round(h, out);
        return;
    }
    if (t->state.kind == ECHI_SLOT_NONE) answer(h, e, out);   /* rows that came again */
    else if (several(h) && h->round_in == round_rows(h, &t->lease)) send_sum(h, out);
    look_whether_whole(h);
}

/* The next round's rows may come before this one's update is done; at a shadow, for whose updates nobody waited, those of any to come: a
 * worker whose last rows wait there sends no more, but in a short round some have none. */
static bool of_this_round(const struct echi_head *h, const struct echi_lease *lease, enum echi_rows rows) {
    const bool again = lease->again || rows == ECHI_ROWS_AGAIN;
    if (h->shadow && lease->round >= h->version) return true;
    if (!h->policy->rounds || (again && (lease->round == h->version || lease->round + 1 == h->version))) return true;
    if (several(h) && lease->round > h->version) return true;   /* others are ahead, by rounds in which it has no rows */
    if (all_taken(h)) return lease->round == h->version + 1;
    return fits_round(h, lease);
}

static bool rows_fit(const struct echi_head *h, int from, const struct echi_lease *l, enum echi_rows rows) {
    const struct echi_plan *p = &h->setup->plan;
    if (l->worker != from || l->owner >= p->world || l->n > echi_micro_most(p, echi_plan_room(p, from))) return false;
    if (several(h) && l->head != h->index) return false;
    if (in_vain(h, l)) return h->member[from] && l->n >= 1 && l->round_size == p->round;
    return echi_lease_valid(l, p) && of_this_round(h, l, rows);
}

/* Behind what waits, but where a bound makes a group's workers wait for each other the fewest steps are first in the places of its rows. */
static void queue_rows(struct echi_head *h, uint16_t place) {
    const uint8_t *group_of = h->setup->plan.group_of;
    const uint16_t rank = rank_of(h, place);
    int at = h->queued++;
    for (int i = at - 1; i >= 0 && h->policy->bounded; i--) {
        const uint16_t other = h->queue[i];   /* with rounds there is no bound, else one place a worker */
        if (group_of[other] != group_of[rank] || h->trained_count[other] <= h->trained_count[rank]) continue;
        h->queue[at] = other;
        at = i;
    }
    h->queue[at] = place;
}

/* Rows of a lost worker are computed again by others. A copy stays: the head may have trained these rows, and answered them. */
static void on_lost(struct echi_head *h, int rank) {
    h->member[rank] = false;
    h->lost_some = true;
    int kept = 0;
    for (int i = 0; i < h->queued; i++)
        if (rank_of(h, h->queue[i]) != rank || is_copy(h, h->queue[i])) h->queue[kept++] = h->queue[i];
    h->queued = kept;
    if (h->setup->plan.coming == 0) h->hands_on = h->fetches = false;   /* one of the two of a copy is lost */
}

/* ---- its layers go to another node, or come here ---- */

/* So many messages a copy is. */
static int copy_messages(const struct echi_head *h) { return 1 + echi_plan_remembers(&h->setup->plan); }

static void post_places(struct echi_head *h, struct echi_actions *out) {
    for (uint16_t place = 0; place < places(h) && !h->places; place++) post(h, place, out);
    h->places = true;
}

static void on_heads(struct echi_head *h, const struct echi_msg *m, struct echi_actions *out) {
    const struct echi_plan *p = &h->setup->plan;
    h->shadow = h->shadow || echi_plan_shadow(p) == h->setup->rank || p->coming == 1 + h->setup->rank;
    if (m->flag != ECHI_HEADS_COPY) return;
    h->copy = m->members;
    h->fetches = m->peer == h->setup->rank;
    h->fed = h->fetches ? 0 : h->fed;
    if (h->fetches) post_places(h, out);
}

/* Where nobody reads: who was the head may still answer rows, and rank 0 may still be sent what it has asked for then. */
static void fetch(struct echi_head *h, struct echi_actions *out) {
    struct echi_slot to;
    if (!h->fetches || h->busy || h->queued || h->apply_due || h->momentum_sending || !free_weights(h, &to)) return;
    echi_act_post(out, h->setup->plan.head, ECHI_KIND_HEAD_COPY, to);
    if (copy_messages(h) > 1) echi_act_post(out, h->setup->plan.head, ECHI_KIND_HEAD_COPY, (struct echi_slot){ECHI_SLOT_HEAD_MOMENTUM, 0});
    h->fetches = false;
}

static void hand_on(struct echi_head *h, struct echi_actions *out) {
    const int to = h->setup->plan.coming - 1;
    h->hands_on = false;
    for (int i = 0; i < copy_messages(h); i++) {
        struct echi_action *a = echi_act_send(out, to, ECHI_ROLE_HEAD, ECHI_ROLE_HEAD, ECHI_KIND_HEAD_COPY);
        a->slot = i ? (struct echi_slot){ECHI_SLOT_HEAD_MOMENTUM, 0} : (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, h->current};
        a->msg.flag = i ? ECHI_PARAMS_MOMENTUM : ECHI_PARAMS_PART;
        a->msg.version = h->version;
        a->msg.samples = h->samples;
    }
    h->in_flight[h->current]++;
    h->momentum_sending += copy_messages(h) - 1;
}

static void say_started(uint32_t members, struct echi_actions *out) {
    echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_HEAD, ECHI_KIND_STARTED)->msg.members = members;
}

static void on_copy(struct echi_head *h, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_plan *p = &h->setup->plan;
    if (p->coming != 1 + h->setup->rank || e->from != p->head || h->fed == copy_messages(h) ||
        (e->slot.kind == ECHI_SLOT_HEAD_WEIGHTS) != (e->msg->flag == ECHI_PARAMS_PART))
        return echi_act_fault(out, ECH_E_FORMAT, "a copy of a head came that was not asked for: do all nodes run the same version?");
    if (e->slot.kind == ECHI_SLOT_HEAD_WEIGHTS) h->current = h->previous = (uint8_t)e->slot.index;
    h->version = e->msg->version;
    h->samples = e->msg->samples;
    if (++h->fed < copy_messages(h)) return;
    h->started = true;
    say_started(h->copy, out);
}

/* Under a name of its own: an owner on this node may answer first. */
static struct echi_action *send_copy(const struct echi_head *h, struct echi_slot slot, struct echi_actions *out) {
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_HEAD, ECHI_KIND_PARAMS);
    a->slot = slot;
    a->msg.part = (uint16_t)echi_parts_before(&h->setup->plan.parts, h->setup->cut);
    return a;
}

static void send_params(struct echi_head *h, struct echi_actions *out) {
    struct echi_action *a = send_copy(h, (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, h->current}, out);
    a->msg.flag = h->asked_as == ECHI_ASK_KEEP ? ECHI_PARAMS_KEPT : ECHI_PARAMS_PART;
    h->in_flight[h->current]++;
    h->asked = false;
}

static void send_momentum(struct echi_head *h, struct echi_actions *out) {
    send_copy(h, (struct echi_slot){ECHI_SLOT_HEAD_MOMENTUM, 0}, out)->msg.flag = ECHI_PARAMS_MOMENTUM;
    h->momentum_sending++;
    h->asked_momentum = false;
}

static void on_message(struct echi_head *h, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    switch (m->kind) {
    case ECHI_KIND_PARAMS:
        if (e->from != 0 || h->started)
            return echi_act_fault(out, ECH_E_INTERNAL, "first weights came to the head twice, or from a stranger");
        if (++h->fed <= h->setup->plan.resumed) break;   /* the momentum is still to come */
        h->started = true;
        say_started(0, out);
        break;
    case ECHI_KIND_ACT:
        if (m->flag > ECHI_ROWS_AGAIN || e->slot.index >= places(h) || !rows_fit(h, e->from, &m->lease, (enum echi_rows)m->flag))
            return echi_act_fault(out, ECH_E_FORMAT, "rows do not fit the plan: do all nodes run the same version?");
        h->lease[e->slot.index] = m->lease;
        h->rows[e->slot.index] = m->flag;
        queue_rows(h, e->slot.index);
        if (is_copy(h, e->slot.index))
            echi_act_send(out, e->from, ECHI_ROLE_WORKER, ECHI_ROLE_HEAD, ECHI_KIND_SHADOWED)->msg.lease = m->lease;
        break;
    case ECHI_KIND_HEAD_SUM: on_sum(h, e, out); break;
    case ECHI_KIND_HEAD_COPY: on_copy(h, e, out); break;
    case ECHI_KIND_ASK:
        if (e->from != 0 || !h->started)
            return echi_act_fault(out, ECH_E_INTERNAL, "the head was asked too early, or by a stranger");
        /* In the middle of a run at once: a task of ours may wait for the cluster's release, and the current snapshot is
         * whole. After a drain only behind the last update, which a worker's gradients do not wait for; of several heads one may not
         * know of it yet. */
        h->asked_samples = m->samples;
        if (m->flag == ECHI_ASK_HAND_ON) {
            h->hands_on = m->members == h->copy && h->setup->plan.coming > 0;   /* else whoever was to have it is lost */
            break;
        }
        if (m->flag == ECHI_ASK_MOMENTUM) {
            h->asked_momentum = true;
            break;
        }
        h->asked = true;
        h->asked_as = m->flag;
        if (m->flag == ECHI_ASK_EVAL) send_params(h, out);
        break;
    default: echi_act_fault(out, ECH_E_INTERNAL, "the head got a message that is not for it");
    }
}

void echi_head_step(struct echi_head *h, const struct echi_event *e, struct echi_actions *out) {
    h->now = e->now;
    switch (e->type) {
    case ECHI_EVENT_START:
        echi_act_post(out, 0, ECHI_KIND_PARAMS, (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, 0});
        if (h->setup->plan.resumed) echi_act_post(out, 0, ECHI_KIND_PARAMS, (struct echi_slot){ECHI_SLOT_HEAD_MOMENTUM, 0});
        post_places(h, out);
        for (int i = 0; i < h->setup->plan.heads; i++)
            if (i != h->index) post_sum(h, i, out);
        break;
    case ECHI_EVENT_MESSAGE: on_message(h, e, out); break;
    case ECHI_EVENT_GRADIENT: answer(h, e, out); break;
    case ECHI_EVENT_COMPUTED: on_computed(h, e, out); break;
    case ECHI_EVENT_SENT:
        if (e->slot.kind == ECHI_SLOT_HEAD_WEIGHTS) h->in_flight[e->slot.index]--;
        else if (e->slot.kind == ECHI_SLOT_HEAD_MOMENTUM) h->momentum_sending--;
        else if (e->slot.kind == ECHI_SLOT_HEAD_SUM) h->sums_leaving--;
        else h->answering[e->slot.index] = false;
        break;
    case ECHI_EVENT_LOST: on_lost(h, e->from); break;
    case ECHI_EVENT_HEADS: on_heads(h, e->msg, out); break;
    default: break;
    }
    pump(h, out);
    fetch(h, out);
    if (h->busy || h->apply_due || h->queued || h->samples < h->asked_samples) return;
    if (h->asked) send_params(h, out);
    if (h->asked_momentum) send_momentum(h, out);
    if (h->hands_on) hand_on(h, out);
}
