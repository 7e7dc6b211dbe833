/* SPDX-License-Identifier: Apache-2.0
 * The worker: takes leases, computes forward and backward, pushes gradients, waits for weights (ARCHITECTURE.md, "The life of a batch").
 *
 * A *flight* is a step in flight: one whose push has not been answered. With two of them one computes while the other waits for
 * the head's answer or for weights; each computes on the weights that answer its own last push. Under BSP there is one, and beside a
 * separate head it may be cut into micro-batches (types/micro.c), of which some are computed while others wait for the head.
 *
 * Where rounds go by part (owner_rounds.c), a forward begins when the weights of its first layers are there, and each layer waits for its
 * own (Jayarajan et al., "Priority-based parameter propagation for distributed DNN training", MLSys 2019, section 3): the step is then
 * several tasks, the last of which goes to the end. Until they are whole, the weights of the round before stay: of a lost worker's lease
 * the samples have to be computed on these. */
#include "echi_ratio.h"
#include "echi_roles.h"

#include <string.h>

/* The head and its shadow, as the plan says. */
static void find_heads(struct echi_worker *w) {
    w->head = w->setup->plan.head;
    w->shadow = echi_plan_shadow(&w->setup->plan);
    if (w->setup->plan.cut) echi_ranks_add(&w->heads, w->head);
    if (w->shadow >= 0) echi_ranks_add(&w->heads, w->shadow);
}

void echi_worker_init(struct echi_worker *w, const struct echi_setup *setup) {
    memset(w, 0, sizeof *w);
    w->setup = setup;
    w->policy = echi_policy_of((enum echi_sync)setup->plan.sync);
    w->rules = echi_sync_rules_of((enum echi_sync)setup->plan.sync);
    w->owner = setup->plan.owner_of[setup->plan.group_of[setup->rank]];
    w->parts = echi_parts_before(&setup->plan.parts, setup->cut);
    w->weight_parts = setup->plan.codec == ECHI_CODEC_DENSE ? w->parts : 1;
    /* Under --deterministic a step goes through all layers for each reduction block, so its forward needs all weights. */
    w->by_part = echi_plan_rounds_by_part(&setup->plan) && !setup->plan.deterministic && setup->norms == 0 && !setup->whole_steps;
    w->in_weights = echi_plan_grads_in_weights(&setup->plan);
    for (int i = 0; i < ECHI_WORKER_PLACES; i++) w->posted[i] = ECHI_NO_RANK;
    for (int i = 0; i < ECHI_STACKS; i++) w->answers_from[i] = ECHI_NO_RANK;
    w->fresh = true;
    find_heads(w);
    w->ring.on = echi_plan_rings(&setup->plan);
    echi_worker_begin_shards(w);
}

static bool coded(const struct echi_worker *w) { return w->setup->plan.codec != ECHI_CODEC_DENSE; }

static void enter(struct echi_worker *w, struct echi_flight *s, enum echi_flight_phase phase) {
    s->phase = phase;
    s->since = w->turns++;
}

/* Is it in this phase? Of several micro-batches some may wait for the head while another is computed. */
static bool is_in(const struct echi_flight *s, enum echi_flight_phase phase) {
    if (phase != ECHI_FLIGHT_WAITS_HEAD) return s->phase == phase;
    return echi_flight_begun(s) && s->answered != (1u << s->forwards) - 1;
}

/* Of the flights in this phase the one that has been in it the longest, behind `before`; NULL when there is none. */
static struct echi_flight *oldest_behind(struct echi_worker *w, enum echi_flight_phase phase, const struct echi_flight *before) {
    struct echi_flight *found = NULL;
    for (int i = 0; i < w->setup->plan.flights; i++) {
        struct echi_flight *s = &w->flight[i];
        if (is_in(s, phase) && (!before || s->since > before->since) && (!found || s->since < found->since)) found = s;
    }
    return found;
}
static struct echi_flight *oldest(struct echi_worker *w, enum echi_flight_phase phase) { return oldest_behind(w, phase, NULL); }

/* Where the gradients of a step go that computes on the weights in its place. */
static struct echi_slot place_of_grads(const struct echi_worker *w, const struct echi_flight *s) {
    if (w->in_weights) return (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, (uint16_t)(1 - s->place)};
    return (struct echi_slot){ECHI_SLOT_WORKER_GRADS, (uint16_t)(s - w->flight)};
}

static struct echi_task *compute(struct echi_worker *w, struct echi_flight *s, enum echi_task_kind kind, int64_t now,
                                 struct echi_actions *out) {
    if (w->tasks++ == 0) w->busy_since = (uint64_t)now;
    if (w->pushed_at == 0) w->pushed_at = (uint64_t)now;   /* the first */
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = (uint8_t)kind;
    t->role = ECHI_ROLE_WORKER;
    t->flight = (uint8_t)(s - w->flight);
    t->lease = s->lease;
    t->weights = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, s->place};
    t->grads = s->grads = place_of_grads(w, s);
    t->divisor = echi_plan_divisor(&w->setup->plan, &s->lease);
    return t;
}

/* The gradients of this task are pushed through the residual. What stays on this node costs nothing, and goes whole. */
static void code(struct echi_worker *w, struct echi_task *t) {
    const struct echi_plan *p = &w->setup->plan;
    if (!coded(w)) return;
    const int group = echi_plan_group_owned(p, t->lease.owner);   /* the one that it was begun for, of a worker that has moved */
    t->state = (struct echi_slot){ECHI_SLOT_WORKER_RESIDUAL, 0};
    t->coded = (struct echi_slot){ECHI_SLOT_WORKER_CODED, t->flight};
    t->first = w->fresh;   /* of all parts of its step */
    t->ratio = t->lease.owner == w->setup->rank ? ECHI_RATIO_ONE : echi_lease_ratio(p, group, &t->lease);
    t->sample = echi_lease_sample(p, group, &t->lease);
    w->fresh = w->fresh && t->sums.kind != ECHI_SLOT_NONE;
}

/* The task is about this micro-batch of the step. */
static void name_micro(const struct echi_worker *w, const struct echi_flight *s, int micro, struct echi_task *t) {
    t->micro = (uint8_t)micro;
    t->micros = s->micros;
    t->lease = echi_lease_micro(&w->setup->plan, &s->lease, micro);
}

static void forward(struct echi_worker *w, struct echi_flight *s, int64_t now, struct echi_actions *out) {
    const bool separated = w->setup->plan.cut;
    struct echi_task *t = compute(w, s, separated ? ECHI_TASK_FORWARD : ECHI_TASK_STEP, now, out);
    echi_worker_norms_name(w, s, t);
    name_micro(w, s, s->forwards, t);
    t->from = s->gone[s->forwards];
    if (separated) t->act = (struct echi_slot){ECHI_SLOT_WORKER_ACT, (uint16_t)(t->flight + t->micro)};
    else code(w, t);
    w->takeover.gradients = false;
    enter(w, s, separated ? ECHI_FLIGHT_FORWARD : ECHI_FLIGHT_BACKWARD);
}

/* Micro-batches go backward in their order, whatever the order of the head's answers, so that sums are the same bits in every run. */
static void backward(struct echi_worker *w, struct echi_flight *s, int64_t now, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    struct echi_task *t = compute(w, s, ECHI_TASK_BACKWARD, now, out);
    echi_worker_norms_name(w, s, t);
    if (s->backwards + 1 == s->micros) code(w, t);   /* all of the step's gradients */
    name_micro(w, s, s->backwards, t);
    if (t->micro > 0 && !p->deterministic) t->own = (struct echi_slot){ECHI_SLOT_WORKER_GRADS, p->flights};
    t->act = s->answer[t->micro].slot;
    s->head = s->answer[t->micro].head;
    s->loss = 0;
    s->correct = 0;
    for (int i = 0; i <= t->micro; i++) {
        s->loss += s->answer[i].loss;
        s->correct += s->answer[i].correct;
    }
    enter(w, s, ECHI_FLIGHT_BACKWARD);
}

/* Nothing is left to be computed of this step before the head's next answer, or that is here. */
static void wait_for_head(struct echi_worker *w, struct echi_flight *s) {
    enter(w, s, s->answered >> s->backwards & 1 ? ECHI_FLIGHT_ANSWERED : ECHI_FLIGHT_WAITS_HEAD);
}

/* ---- a forward while weights come ---- */

/* How many layers are in front of the first that lacks weights, of those that come to a place. */
static int layers_here(const struct echi_worker *w, uint8_t place) {
    int part = 0;
    while (part < w->parts && echi_part_in(&w->coming[place].here, part)) part++;
    return part < w->parts ? w->setup->plan.parts.part[part].first : w->setup->cut;
}

/* As far as there are weights for it, the first micro-batch that has not gone so far. The task that goes to the end writes what the step
 * before sent, so that has to have left. */
static void forward_early(struct echi_worker *w, struct echi_flight *s, int64_t now, struct echi_actions *out) {
    const int here = s->early ? layers_here(w, s->place) : w->setup->cut;
    int micro = 0;
    while (s->early && micro < s->micros && s->gone[micro] == here) micro++;
    if (s->early ? micro == s->micros : s->sending > 0) return enter(w, s, ECHI_FLIGHT_WAITS_PART);
    if (!s->early) return forward(w, s, now, out);
    struct echi_task *t = compute(w, s, w->setup->plan.cut ? ECHI_TASK_FORWARD : ECHI_TASK_STEP, now, out);
    name_micro(w, s, micro, t);
    t->grads = (struct echi_slot){0};
    t->from = s->gone[micro];
    t->until = (uint16_t)here;
    enter(w, s, ECHI_FLIGHT_FORWARD);
}

/* The next part of a step, when what it begins with is here, and what the part before it ended with has left. */
static void go_on(struct echi_worker *w, int64_t now, struct echi_actions *out) {
    struct echi_flight *s = oldest(w, ECHI_FLIGHT_WAITS_NORM);
    if (!s || s->norm_samples == 0 || s->norm_sending) return;
    s->part++;
    if (w->setup->plan.cut && s->part > w->setup->norms) backward(w, s, now, out);
    else forward(w, s, now, out);
}

/* The first lease that may be computed on these weights, or -1. Under BSP one of a lost worker may have to be done before one
 * of the next round that came earlier; else leases are taken in their order. */
static int may_begin(const struct echi_worker *w, uint64_t version) {
    for (int i = 0; i < w->n_leases; i++)
        if (w->rules->may_begin(&w->lease[i], version)) return i;
    return -1;
}

/* A step of the lease with this number in w->lease[], on the weights in slot `place`. */
static void begin_step(struct echi_worker *w, struct echi_flight *s, int lease, uint8_t place) {
    s->lease = w->lease[lease];
    s->joined = w->joined;
    w->n_leases--;
    memmove(&w->lease[lease], &w->lease[lease + 1], (size_t)(w->n_leases - lease) * sizeof w->lease[0]);
    s->next_part = w->parts - 1;
    memset(s->ready, 0, sizeof s->ready);
    s->part = 0;
    s->place = place;
    s->early = place != s->weights;
    s->micros = (uint8_t)echi_lease_micros(&w->setup->plan, &s->lease);
    s->forwards = s->backwards = s->answered = s->copies = 0;
    memset(s->gone, 0, sizeof s->gone);
}

/* On weights of which the first parts have come. */
static void begin_early(struct echi_worker *w, struct echi_flight *s, int64_t now, struct echi_actions *out) {
    for (uint8_t place = 0; place < ECHI_WORKER_PLACES && w->by_part; place++) {
        const struct echi_coming *c = &w->coming[place];
        const bool comes = w->posted[place] == w->owner && c->in > 0 && c->members == w->joined && layers_here(w, place) > 0;
        const int lease = comes ? may_begin(w, c->version) : -1;
        if (lease < 0) continue;
        begin_step(w, s, lease, place);
        return forward_early(w, s, now, out);
    }
}

/* The forward under way goes on; or it is dropped, since a lost worker's lease has to be computed first, on the weights before these. */
static void go_early(struct echi_worker *w, int64_t now, struct echi_actions *out) {
    struct echi_flight *s = oldest(w, ECHI_FLIGHT_WAITS_PART);
    if (!s) return;
    if (!s->early || may_begin(w, s->version) < 0) return forward_early(w, s, now, out);
    memmove(&w->lease[1], &w->lease[0], (size_t)w->n_leases * sizeof w->lease[0]);
    w->lease[0] = s->lease;
    w->n_leases++;
    s->early = false;
    enter(w, s, ECHI_FLIGHT_IDLE);
}
/* One flight at a time goes forward and one backward, so that rows and pushes leave in the order of their leases. */
static void begin(struct echi_worker *w, int64_t now, struct echi_actions *out) {
    if (w->takeover.still) return;
    go_on(w, now, out);
    go_early(w, now, out);
    struct echi_flight *s = oldest(w, ECHI_FLIGHT_ANSWERED);
    if (s && !oldest(w, ECHI_FLIGHT_BACKWARD) && !oldest(w, ECHI_FLIGHT_WAITS_SHADOW)) backward(w, s, now, out);
    s = oldest(w, ECHI_FLIGHT_IDLE);
    if (!s || oldest(w, ECHI_FLIGHT_FORWARD)) return;
    const int lease = may_begin(w, s->version);
    if (lease < 0) return begin_early(w, s, now, out);
    if (s->sending > 0) return;
    const bool again = echi_worker_has_gradients(w, &w->lease[lease]);
    begin_step(w, s, lease, s->weights);
    if (!again) return forward(w, s, now, out);
    memset(s->ready, true, sizeof s->ready);
    echi_worker_push(w, s, true, now, out);
}

/* To this worker's owner: it holds a lease. */
static void say_enter(struct echi_worker *w, const struct echi_lease *l, struct echi_actions *out) {
    struct echi_action *a = echi_act_send(out, w->owner, ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_ENTER);
    a->msg.lease = *l;
    a->msg.members = w->joined;
    w->entered = true;
}

static void hand_back(const struct echi_lease *l, struct echi_actions *out) {
    echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_WORKER, ECHI_KIND_REVOKED)->msg.lease = *l;
}

static void on_lease(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_lease *l = &e->msg->lease;
    if (e->from == 0 && (w->takeover.still || (w->setup->plan.shards && e->msg->members < w->joined))) return;   /* of before a takeover */
    if (e->from == 0 && l->owner < w->setup->plan.world && w->setup->plan.lost[l->owner]) return;   /* dealt before it was lost */
    const bool earlier = e->msg->members < w->joined;   /* dealt before this worker was moved */
    if (e->from != 0 || w->n_leases == ECHI_LEASES_HELD || l->worker != w->setup->rank || !echi_lease_valid(l, &w->setup->plan) ||
        (!earlier && l->owner != w->owner))
        return echi_act_fault(out, ECH_E_FORMAT, "a lease does not fit the plan: do all nodes run the same version?");
    if (earlier) return hand_back(l, out);
    w->lease[w->n_leases++] = *l;
    /* The owner thinks that this worker has run out, and lets the others run ahead of it. */
    if (!w->entered && !w->arriving) say_enter(w, l, out);
}

/* A place for weights of this node, and of those that own shards beside it, which is posted again until that node is lost: what is posted
 * cannot be taken back. */
static void post(struct echi_worker *w, uint8_t slot, uint16_t owner, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    const struct echi_slot place = {coded(w) ? ECHI_SLOT_WORKER_COMING : ECHI_SLOT_WORKER_WEIGHTS, slot};
    if (w->ring.on) return echi_worker_ring_post(w, slot, owner);
    w->posted[slot] = owner;
    echi_act_post(out, owner, ECHI_KIND_WEIGHTS, place);
    for (int k = 1; k < p->shards; k++)
        if (echi_plan_leads_shard(p, 0, k)) echi_act_post(out, p->shard_owner[k], ECHI_KIND_WEIGHTS, place);
}

/* The step that was begun for an owner that is lost is over. */
static void over(struct echi_worker *w, struct echi_flight *s) {
    s->abandoned = false;
    enter(w, s, ECHI_FLIGHT_WAITS_WEIGHTS);
}

/* The flight whose forward has begun on weights that come to this slot; NULL: none. */
static struct echi_flight *early_on(struct echi_worker *w, uint8_t slot) {
    for (int i = 0; i < w->setup->plan.flights; i++)
        if (w->flight[i].early && w->flight[i].place == slot) return &w->flight[i];
    return NULL;
}

/* Weights answer the push that has waited the longest; weights that nobody waits for (a round in which this worker had no
 * share) are newer ones for an idle flight. What they replace is free. */
static void take_weights(struct echi_worker *w, uint64_t version, uint64_t samples, uint8_t slot, struct echi_actions *out) {
    struct echi_flight *s = early_on(w, slot);
    if (!s) s = oldest(w, ECHI_FLIGHT_WAITS_WEIGHTS);
    if (!s) s = oldest(w, ECHI_FLIGHT_IDLE);
    if (!s) return echi_act_fault(out, ECH_E_INTERNAL, "weights came in the middle of a step");
    const uint8_t before = s->weights;
    s->weights = slot;
    s->version = version;
    s->samples = samples;
    w->takeover.has = true;
    if (!s->early) enter(w, s, ECHI_FLIGHT_IDLE);
    s->early = false;
    if (coded(w)) w->spare |= (uint8_t)(1u << before);
    else post(w, before, w->owner, out);
}

/* Coded weights are values to set in the copy that has taken all before them, WORKER_WEIGHTS [2 * flights]; what a flight computes
 * on is made from it, in a slot that nobody reads. */
static void decode(struct echi_worker *w, struct echi_actions *out) {
    if (w->decoding || w->queued == 0 || w->spare == 0) return;
    w->source = w->queue[0];
    w->queued--;
    memmove(&w->queue[0], &w->queue[1], (size_t)w->queued);
    w->target = 0;
    while (!(w->spare >> w->target & 1)) w->target++;
    w->spare &= (uint8_t) ~(1u << w->target);
    w->decoding = true;
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_DECODE;
    t->role = ECHI_ROLE_WORKER;
    t->coded = (struct echi_slot){ECHI_SLOT_WORKER_COMING, w->source};
    t->state = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, (uint8_t)(2 * w->setup->plan.flights)};
    t->weights_out = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, w->target};
}

static void decoded(struct echi_worker *w, struct echi_actions *out) {
    w->decoding = false;
    if (w->posted[w->source] != ECHI_NO_RANK) post(w, w->source, w->posted[w->source], out);
    if (w->arriving) w->spare |= (uint8_t)(1u << w->target);   /* of the owner before */
    else take_weights(w, w->coming[w->source].version, w->coming[w->source].samples, w->target, out);
}

/* May weights come from there into a place that was posted for an owner? */
static bool posted_for(const struct echi_worker *w, uint16_t owner, int from) {
    const struct echi_plan *p = &w->setup->plan;
    if (w->ring.on) return owner != ECHI_NO_RANK;   /* who brings which part is asked of each */
    return owner == from || (p->shards && owner != ECHI_NO_RANK && echi_plan_shard_owned(p, from) >= 0);
}

/* Is the gradient of this part still to be pushed, by the step in hand? */
static bool is_unpushed(const struct echi_worker *w, int part) {
    const struct echi_flight *s = &w->flight[0];
    return s->phase == ECHI_FLIGHT_BACKWARD && part <= s->next_part;
}

/* Of an owner that this worker has left, or of an earlier stay with this one, they say nothing any more. */
static void on_weights(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const bool of_ring = m->kind == ECHI_KIND_RING_WEIGHTS && w->setup->plan.exchange == ECHI_EXCHANGE_RING;
    if (of_ring && !w->ring.on) return;   /* of one that has ended */
    if (of_ring != w->ring.on)
        return echi_act_fault(out, ECH_E_FORMAT, "weights came by another exchange than the plan's: do all nodes run the same version?");
    if (e->slot.index >= ECHI_WORKER_PLACES || !posted_for(w, w->posted[e->slot.index], e->from))
        return echi_act_fault(out, ECH_E_INTERNAL, "weights came from a node that does not own them");
    const uint8_t slot = (uint8_t)e->slot.index;
    const uint16_t owner = w->posted[slot];
    if (echi_worker_passes_over(w, slot, e, out)) return;
    if (w->in_weights && is_unpushed(w, m->part))
        return echi_act_fault(out, ECH_E_FORMAT, "weights came before gradients were pushed: do all nodes run the same version?");
    if (!echi_worker_has_weights(w, slot, e, out)) return;
    if (owner != w->owner || m->members != w->joined) return post(w, slot, owner, out);
    if (!coded(w)) {
        w->posted[slot] = ECHI_NO_RANK;
        return take_weights(w, m->version, m->samples, slot, out);
    }
    if (!m->flag && m->number != w->number + 1)
        return echi_act_fault(out, ECH_E_FORMAT, "weights came that count from others than are here: do all nodes run the same version?");
    if (w->queued == ECHI_FLIGHTS) return echi_act_fault(out, ECH_E_INTERNAL, "more weights came than a worker waits for");
    w->number = m->number;
    w->queue[w->queued++] = slot;
}

/* A place for an answer is posted when the rows leave: then it is known whose they are, and once all are answered the head may be
 * another. */
static void post_answer(struct echi_worker *w, int head, struct echi_actions *out) {
    struct echi_slot slot = {ECHI_SLOT_WORKER_ACT_GRAD, 0};
    while ((w->answers >> slot.index & 1) || w->answers_from[slot.index] != ECHI_NO_RANK) slot.index++;
    w->answers_from[slot.index] = (uint16_t)head;
    echi_act_post(out, head, ECHI_KIND_ACT_GRAD, slot);
}

static void drop_answer(struct echi_worker *w, struct echi_slot slot) { w->answers &= (uint8_t) ~(1u << slot.index); }

/* Of the micro-batches that the head owes answers the one that this lease is, -1: none. */
static int micro_of(const struct echi_worker *w, const struct echi_flight *s, const struct echi_lease *l) {
    for (int i = 0; i < s->forwards && l->id == s->lease.id; i++) {
        const struct echi_lease micro = echi_lease_micro(&w->setup->plan, &s->lease, i);
        if (!(s->answered >> i & 1) && micro.start == l->start && micro.n == l->n) return i;
    }
    return -1;
}

static void on_act_grad(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    struct echi_flight *s = oldest(w, ECHI_FLIGHT_WAITS_HEAD);   /* the head answers steps in the order it was asked */
    const int micro = s ? micro_of(w, s, &e->msg->lease) : -1;
    if (micro < 0 || e->from != s->head_rank || e->slot.index >= ECHI_STACKS)
        return echi_act_fault(out, ECH_E_INTERNAL, "the head answered a lease that this worker does not compute");
    s->answer[micro] = (struct echi_answer){e->slot, e->msg->head, e->msg->loss, e->msg->correct};
    s->answered |= (uint8_t)(1u << micro);
    w->answers_from[e->slot.index] = ECHI_NO_RANK;
    w->answers |= (uint8_t)(1u << e->slot.index);
    if (!s->abandoned) return s->phase == ECHI_FLIGHT_WAITS_HEAD ? wait_for_head(w, s) : (void)0;
    drop_answer(w, e->slot);
    over(w, s);
}

/* The gradients of a step are there, and whoever may be the head next has its rows: a push that is in is never computed again. Where rounds
 * are waited for, another lease of this round may come: its weights are those that are here. */
static void end_step(struct echi_worker *w, struct echi_flight *s, int64_t now, struct echi_actions *out) {
    if (s->copies > 0) return enter(w, s, ECHI_FLIGHT_WAITS_SHADOW);
    echi_worker_push(w, s, true, now, out);
    enter(w, s, w->policy->rounds ? ECHI_FLIGHT_IDLE : ECHI_FLIGHT_WAITS_WEIGHTS);
}

/* So many of its copies are under way. */
static void set_copies(struct echi_worker *w, struct echi_flight *s, int copies, int64_t now, struct echi_actions *out) {
    s->copies = (uint8_t)copies;
    if (copies == 0 && s->phase == ECHI_FLIGHT_WAITS_SHADOW) end_step(w, s, now, out);
}

/* Rows of a step that is over are asked about by nobody: they may have been at who is no shadow any more. */
static void on_shadowed(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    if (!echi_ranks_has(&w->heads, e->from))
        return echi_act_fault(out, ECH_E_INTERNAL, "a node that is no shadow of the head said that it has rows");
    for (int i = 0; i < p->flights; i++) {
        struct echi_flight *s = &w->flight[i];
        if (echi_flight_begun(s) && s->lease.id == e->msg->lease.id && s->copies > 0) set_copies(w, s, s->copies - 1, e->now, out);
    }
}

static void send_rows(struct echi_worker *w, struct echi_flight *s, int micro, enum echi_rows what, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    const int to = what == ECHI_ROWS_COPY ? echi_plan_shadow(p) : echi_plan_head_of(p, &s->lease);
    const uint16_t number = (uint16_t)(s - w->flight + micro);
    if (what != ECHI_ROWS_COPY) {
        s->head_rank = (uint16_t)to;
        post_answer(w, to, out);
    }
    struct echi_action *a = echi_act_send(out, to, ECHI_ROLE_HEAD, ECHI_ROLE_WORKER, ECHI_KIND_ACT);
    a->slot = (struct echi_slot){ECHI_SLOT_WORKER_ACT, number};
    a->msg.lease = echi_lease_micro(p, &s->lease, micro);
    a->msg.flag = (uint8_t)what;
    s->sending++;
    if (what == ECHI_ROWS_COPY) s->copies++;
}

/* A micro-batch has gone forward; those behind it go first, so that the head has work. */
static void forwarded(struct echi_worker *w, struct echi_flight *s, int64_t now, struct echi_actions *out) {
    const int micro = s->forwards++;
    send_rows(w, s, micro, ECHI_ROWS_NEW, out);
    if (w->shadow >= 0) send_rows(w, s, micro, ECHI_ROWS_COPY, out);
    if (s->forwards < s->micros) return forward(w, s, now, out);
    wait_for_head(w, s);
}

/* The shadow is the head now. Rows that wait for an answer are behind their copy: they are not trained again. They are answered in the
 * order in which they are sent, so the first to wait is the first. */
static void turn_to_shadow(struct echi_worker *w, struct echi_actions *out) {
    struct echi_flight *waits = NULL;
    while ((waits = oldest_behind(w, ECHI_FLIGHT_WAITS_HEAD, waits)))
        for (int i = 0; i < waits->forwards && !waits->abandoned; i++)
            if (!(waits->answered >> i & 1)) send_rows(w, waits, i, ECHI_ROWS_AGAIN, out);
}

/* The head or its shadow is lost, as the plan says. */
static void on_head_lost(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    if (w->head != w->setup->plan.head) turn_to_shadow(w, out);
    for (int i = 0; i < w->setup->plan.flights; i++)
        if (w->shadow == e->from) set_copies(w, &w->flight[i], 0, e->now, out);
    find_heads(w);
}

/* The run cannot go on: how new the newest weights here are, and then they themselves. Whatever comes after that, they are not written. */
static void on_ask(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    if (e->from != 0) return echi_act_fault(out, ECH_E_INTERNAL, "a worker was asked for its weights by a stranger");
    if (e->msg->flag == ECHI_ASK_WHOLE) {
        w->awaited = e->msg->samples;
        return;
    }
    const struct echi_flight *s = &w->flight[0];
    for (int i = 1; i < w->setup->plan.flights; i++)
        if (w->flight[i].samples > s->samples) s = &w->flight[i];
    const bool newest = e->msg->flag == ECHI_ASK_NEWEST;
    w->given = !newest || (w->setup->rank == 0 && echi_plan_evaluates_own(&w->setup->plan));   /* there they are taken where they are */
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_WORKER, newest ? ECHI_KIND_ASK : ECHI_KIND_PARAMS);
    a->msg.samples = s->samples;
    if (newest) a->msg.part = s->weights;
    else a->slot = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, s->weights};
    a->msg.flag = newest ? ECHI_ASK_NEWEST : ECHI_PARAMS_PART;
}

/* With shards there is one flight. */
static void say_whole(struct echi_worker *w, struct echi_actions *out) {
    const struct echi_flight *s = &w->flight[0];
    if (w->awaited == 0 || !w->takeover.has || s->samples != w->awaited) return;
    w->awaited = 0;
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_WORKER, ECHI_KIND_ASK);
    a->msg.flag = ECHI_ASK_WHOLE;
    a->msg.samples = s->samples;
    a->msg.part = s->weights;
}

static void on_message(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    switch (e->msg->kind) {
    case ECHI_KIND_ASK: on_ask(w, e, out); break;
    case ECHI_KIND_NORM_ALL: echi_worker_norms_sums(w, e, out); break;
    case ECHI_KIND_LEASE: on_lease(w, e, out); break;
    case ECHI_KIND_RING_SUM: echi_worker_ring_sum(w, e, out); break;
    case ECHI_KIND_WEIGHTS:
    case ECHI_KIND_RING_WEIGHTS: on_weights(w, e, out); break;
    case ECHI_KIND_ACT_GRAD: on_act_grad(w, e, out); break;
    case ECHI_KIND_SHADOWED: on_shadowed(w, e, out); break;
    default: echi_act_fault(out, ECH_E_INTERNAL, "a worker got a message that is not for workers");
    }
}

static void on_computed(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    struct echi_flight *s = &w->flight[e->task->flight];
    if (e->task->kind == ECHI_TASK_DECODE) return decoded(w, out);
    if (e->task->kind == ECHI_TASK_ADD) return echi_worker_ring_added(w, e->task, out);
    if (--w->tasks == 0) w->busy += (uint64_t)e->now - w->busy_since;
    if (e->task->norm.kind) echi_act_post(out, s->lease.owner, ECHI_KIND_NORM_ALL, e->task->norm);
    if ((e->task->kind == ECHI_TASK_FORWARD || e->task->until > 0) && s->abandoned) return over(w, s);
    if (e->task->until > 0) {
        s->gone[e->task->micro] = e->task->until;
        enter(w, s, ECHI_FLIGHT_WAITS_PART);
        return echi_worker_drops_forward(w, out);
    }
    const bool has_loss = e->task->kind == ECHI_TASK_STEP && (!echi_worker_norms_exchanged(w, s) || s->part == w->setup->norms);
    if (has_loss) {
        s->loss = e->result->loss[0];
        s->correct = e->result->correct[0];
    }
    if (e->task->sums.kind && !s->abandoned) {
        echi_worker_norms_stop(w, s, e->task, out);
        return enter(w, s, ECHI_FLIGHT_WAITS_NORM);
    }
    if (e->task->kind == ECHI_TASK_FORWARD) return forwarded(w, s, e->now, out);
    if (e->task->kind == ECHI_TASK_BACKWARD) drop_answer(w, e->task->act);
    if (s->abandoned) return over(w, s);
    if (e->task->kind == ECHI_TASK_BACKWARD && ++s->backwards < s->micros) return wait_for_head(w, s);
    if (!(s->loss - s->loss == 0))
        return echi_act_fault(out, ECH_E_DIVERGED,
                              "the loss has grown beyond all numbers: lower --lr, or look for bad samples in the data");
    w->takeover.gradients = e->task->kind == ECHI_TASK_STEP && s->grads.kind == ECHI_SLOT_WORKER_GRADS;
    w->takeover.of = s->lease;
    end_step(w, s, e->now, out);
}

/* What was not pushed yet is given up: it belongs to weights that may not have survived. */
static void clear_residual(struct echi_worker *w) {
    if (!coded(w)) return;
    w->residuals_cleared += !w->fresh;
    w->fresh = true;
}

/* Coded weights that are here say nothing any more: the first of the new owner are complete. */
static void renew_link(struct echi_worker *w, struct echi_actions *out) {
    for (int i = 0; i < w->queued; i++)
        if (w->posted[w->queue[i]] != ECHI_NO_RANK) post(w, w->queue[i], w->posted[w->queue[i]], out);
    w->queued = 0;
}

/* This worker's owner is another from now on. Steps that have begun end first, where they began, or, for an owner that is lost, at
 * the end of what is under way: then the worker enters. */
static void change_owner(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    w->owner = p->owner_of[p->group_of[w->setup->rank]];
    w->joined = e->msg->members;
    w->n_leases = 0;
    w->entered = false;
    w->arriving = true;
    renew_link(w, out);
    for (int i = 0; i < p->flights; i++)
        if (w->flight[i].phase == ECHI_FLIGHT_IDLE) enter(w, &w->flight[i], ECHI_FLIGHT_WAITS_WEIGHTS);
}

static void on_moved(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    if (e->from != w->setup->rank) return;
    for (int i = 0; i < w->n_leases; i++) hand_back(&w->lease[i], out);
    change_owner(w, e, out);
}

/* It may owe answers: as the head; also, if it was the head, to steps that were given up since. Nobody needs those. */
static void on_answerer_lost(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    for (int i = 0; i < ECHI_STACKS; i++)
        if (w->answers_from[i] == e->from) w->answers_from[i] = ECHI_NO_RANK;
    for (int i = 0; i < w->setup->plan.flights; i++) {
        struct echi_flight *s = &w->flight[i];
        if (s->phase == ECHI_FLIGHT_WAITS_HEAD && s->abandoned && s->head_rank == e->from) over(w, s);
    }
    if (e->from == w->head || e->from == w->shadow) on_head_lost(w, e, out);
}

/* Places that were posted for a lost node are free, and what is in flight for it goes no further. */
static void on_lost(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    w->in_weights = false;
    if (p->cut) on_answerer_lost(w, e, out);
    if (p->shards) return echi_worker_stop(w, e, out);
    for (int i = 0; i < ECHI_WORKER_PLACES; i++) {
        if (w->posted[i] != e->from) continue;
        w->posted[i] = ECHI_NO_RANK;
        w->coming[i] = (struct echi_coming){0};
    }
    bool owned = e->from == w->owner;
    for (int i = 0; i < p->flights; i++) {
        struct echi_flight *s = &w->flight[i];
        if (!echi_flight_begun(s) || s->lease.owner != e->from) continue;
        owned = s->abandoned = true;
        if (s->phase == ECHI_FLIGHT_ANSWERED) drop_answer(w, s->answer[0].slot);   /* only bsp cuts steps, and loses no owner */
        else if (s->phase != ECHI_FLIGHT_WAITS_SHADOW) continue;
        over(w, s);   /* what waits for a batch-norm's sums does so under bsp, where no owner can be lost */
    }
    if (owned) clear_residual(w);
    if (e->from == w->owner) change_owner(w, e, out);
}

/* Nothing that it has begun before is left: the worker is its new owner's, which answers when it hears of a lease. */
static void arrive(struct echi_worker *w, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    if (w->decoding) return;
    int places = 0;
    bool used[ECHI_WORKER_PLACES] = {false};
    for (int i = 0; i < p->flights; i++) {
        if (echi_flight_begun(&w->flight[i])) return;
        used[w->flight[i].weights] = !coded(w);
    }
    for (int i = 0; i < ECHI_WORKER_PLACES; i++) {
        used[i] = used[i] || w->posted[i] != ECHI_NO_RANK;
        places += w->posted[i] == w->owner;
    }
    for (uint8_t i = 0; i < ECHI_WORKER_PLACES && places < p->flights; i++) {
        if (used[i]) continue;
        post(w, i, w->owner, out);
        places++;
    }
    w->arriving = false;
    if (w->n_leases > 0) say_enter(w, &w->lease[0], out);
}

/* One spare place for weights a flight: flight i begins with slot 2i as its own, 2i + 1 is posted; the first answers
 * take the places of the weights before them. */
static void on_start(struct echi_worker *w, struct echi_actions *out) {
    for (int i = 0; i < w->setup->plan.flights; i++) {
        w->flight[i].weights = (uint8_t)(2 * i);
        if (coded(w)) w->spare |= (uint8_t)(1u << (2 * i + 1));
        post(w, (uint8_t)(coded(w) ? i : 2 * i + 1), w->owner, out);
    }
    if (w->ring.on) echi_worker_ring_start(w, out);
    if (w->setup->norms > 0) echi_act_post(out, w->owner, ECHI_KIND_NORM_ALL, (struct echi_slot){ECHI_SLOT_WORKER_NORM_ALL, 0});
}

/* Under `local` leases come in as they always do; what becomes of them is said in worker_local.c. */
static void step_local(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const bool message = e->type == ECHI_EVENT_MESSAGE;
    if (message && e->msg->kind == ECHI_KIND_LEASE) on_lease(w, e, out);
    else if (message && e->msg->kind != ECHI_KIND_WEIGHTS)
        return echi_act_fault(out, ECH_E_INTERNAL, "a worker got a message that is not for workers");
    echi_worker_local(w, e, out);
}

/* Whose payload this slot has sent. */
static struct echi_flight *flight_of(struct echi_worker *w, struct echi_slot slot) {
    return &w->flight[slot.kind == ECHI_SLOT_WORKER_WEIGHTS || w->setup->plan.flights == 1 ? 0 : slot.index];
}

void echi_worker_step(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const bool asked = e->type == ECHI_EVENT_MESSAGE && e->msg->kind == ECHI_KIND_ASK;
    if (w->given && !asked) return;
    if (w->policy->local) return step_local(w, e, out);
    switch (e->type) {
    case ECHI_EVENT_START: on_start(w, out); break;
    case ECHI_EVENT_MESSAGE: on_message(w, e, out); break;
    case ECHI_EVENT_SENT:
        if (e->slot.kind == ECHI_SLOT_WORKER_NORM) w->flight[0].norm_sending = false;   /* with rounds there is one flight */
        else if (!echi_worker_ring_sent(w, e)) flight_of(w, e->slot)->sending--;
        break;
    case ECHI_EVENT_LOST: on_lost(w, e, out); break;
    case ECHI_EVENT_MOVED: on_moved(w, e, out); break;
    case ECHI_EVENT_TAKEOVER: echi_worker_takeover(w, e, out); break;
    case ECHI_EVENT_HEADS: find_heads(w); break;
    case ECHI_EVENT_GRADIENT: {
        struct echi_flight *s = &w->flight[e->task->flight];
        s->ready[e->layer] = true;
        echi_worker_push(w, s, false, e->now, out);
        break;
    }
    case ECHI_EVENT_COMPUTED: on_computed(w, e, out); break;
    default: break;
    }
    if (w->given) return;
    if (w->arriving) arrive(w, out);
    echi_worker_ring_posts(w, out);
    decode(w, out);
    begin(w, e->now, out);
    echi_worker_stands(w, out);
    say_whole(w, out);
}

bool echi_worker_next(const struct echi_worker *w, struct echi_lease *out) {
    const struct echi_flight *s = &w->flight[0];
    if (w->policy->local) return echi_worker_local_next(w, out);
    if (s->phase == ECHI_FLIGHT_FORWARD && s->forwards + 1 < s->micros) {
        *out = echi_lease_micro(&w->setup->plan, &s->lease, s->forwards + 1);
        return true;
    }
    if (w->n_leases > 0) *out = echi_lease_micro(&w->setup->plan, &w->lease[0], 0);
    return w->n_leases > 0;
}
