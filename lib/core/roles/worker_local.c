/* SPDX-License-Identifier: Apache-2.0
 * The worker under `local` (policy_local.c says what it computes): a lease is several steps on weights of its own, and what
 * they have changed is pushed when the lease is done. One task at a time:
 *     JOIN, when weights have come;  else STEP, APPLY, STEP, APPLY, ... and DELTA at the end of a lease, when its round has begun. */
#include "echi_roles.h"

static const struct echi_slot OWN = {ECHI_SLOT_LOCAL_WEIGHTS, 0}, ORIGIN = {ECHI_SLOT_LOCAL_WEIGHTS, 1},
                              ARRIVED = {ECHI_SLOT_WORKER_WEIGHTS, 0}, GRADS = {ECHI_SLOT_WORKER_GRADS, 0};

static struct echi_task *compute(struct echi_worker *w, enum echi_task_kind kind, struct echi_actions *out) {
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = (uint8_t)kind;
    t->role = ECHI_ROLE_WORKER;
    w->local.busy = true;
    return t;
}

static void enter(struct echi_worker *w, enum echi_flight_phase phase) {
    w->flight[0].phase = phase;
    w->flight[0].since = w->turns++;
}

static struct echi_delta *held(struct echi_worker *w) {
    for (int i = 0; i < ECHI_DELTAS; i++)
        if (w->local.delta[i].held) return &w->local.delta[i];
    return NULL;
}

static int free_delta(const struct echi_worker *w) {
    for (int i = 0; i < ECHI_DELTAS; i++)
        if (!w->local.delta[i].held && w->local.delta[i].sending == 0) return i;
    return -1;
}

/* The next lease: the first of the round whose weights are here, which may be one of a lost worker; else, unless a change is
 * held already, the first of the round after it. */
static int next_lease(struct echi_worker *w) {
    int ahead = -1;
    for (int i = 0; i < w->n_leases; i++) {
        if (w->lease[i].round == w->flight[0].version) return i;
        if (ahead < 0 && w->rules->may_begin(&w->lease[i], w->flight[0].version)) ahead = i;
    }
    return held(w) ? -1 : ahead;
}

/* Is the change of the lease in hand to be made now? When its round's weights are here: it then leaves at once. Earlier only to
 * make room for a lease of the round before, which was a lost worker's and holds everybody up. */
static bool may_close(const struct echi_worker *w) {
    const struct echi_flight *s = &w->flight[0];
    bool now = s->lease.round == s->version;
    for (int i = 0; i < w->n_leases; i++) now = now || w->lease[i].round == s->version;
    return now && free_delta(w) >= 0;
}

static bool take_lease(struct echi_worker *w) {
    struct echi_flight *s = &w->flight[0];
    const int at = next_lease(w);
    if (at < 0) return false;
    s->lease = w->lease[at];
    w->n_leases--;
    for (int i = at; i < w->n_leases; i++) w->lease[i] = w->lease[i + 1];
    s->loss = 0;
    s->correct = 0;
    w->local.done = 0;
    w->local.seen = s->samples + w->local.behind;
    enter(w, ECHI_FLIGHT_BACKWARD);
    return true;
}

/* What one step takes of a lease of which `done` samples are taken. */
static struct echi_lease part_of(const struct echi_worker *w, const struct echi_lease *lease, uint32_t done) {
    const uint32_t most = echi_plan_step(&w->setup->plan, w->setup->rank), left = lease->n - done;
    struct echi_lease part = *lease;
    part.start += done;
    part.n = left < most ? left : most;
    return part;
}

bool echi_worker_local_next(const struct echi_worker *w, struct echi_lease *out) {
    const struct echi_flight *s = &w->flight[0];
    const bool in_hand = s->phase == ECHI_FLIGHT_BACKWARD && w->local.done < s->lease.n;
    if (!in_hand && w->n_leases == 0) return false;
    *out = in_hand ? part_of(w, &s->lease, w->local.done) : part_of(w, &w->lease[0], 0);
    return true;
}

static void step(struct echi_worker *w, struct echi_actions *out) {
    const struct echi_lease *l = &w->flight[0].lease;
    struct echi_task *t = compute(w, ECHI_TASK_STEP, out);
    t->lease = part_of(w, l, w->local.done);
    w->local.done += t->lease.n;
    t->weights = OWN;
    t->grads = GRADS;
    t->divisor = echi_plan_divisor(&w->setup->plan, l);
}

static void apply(struct echi_worker *w, const struct echi_lease *part, struct echi_actions *out) {
    struct echi_task *t = compute(w, ECHI_TASK_LOCAL_APPLY, out);
    t->lease = *part;
    t->weights = t->weights_out = OWN;
    t->grads = GRADS;
    t->state = (struct echi_slot){ECHI_SLOT_LOCAL_MOMENTUM, 0};
    t->samples = part->n;
    t->divisor = w->setup->plan.round;
}

static void make_delta(struct echi_worker *w, int to, struct echi_actions *out) {
    const struct echi_flight *s = &w->flight[0];
    struct echi_task *t = compute(w, ECHI_TASK_LOCAL_DELTA, out);
    t->lease = s->lease;
    t->weights = OWN;
    t->state = ORIGIN;
    t->grads = (struct echi_slot){ECHI_SLOT_LOCAL_DELTA, (uint8_t)to};
    t->samples = s->lease.n;
    t->divisor = s->lease.round_size;
}

static void begin(struct echi_worker *w, struct echi_actions *out) {
    struct echi_flight *s = &w->flight[0];
    if (w->local.busy) return;
    if (w->local.fresh) {
        struct echi_task *t = compute(w, ECHI_TASK_LOCAL_JOIN, out);
        t->weights = ARRIVED;
        t->weights_out = OWN;
        t->state_out = ORIGIN;
        return;
    }
    if (s->phase == ECHI_FLIGHT_WAITS_WEIGHTS || (s->phase == ECHI_FLIGHT_IDLE && !take_lease(w))) return;
    if (w->local.done < s->lease.n) return step(w, out);
    if (may_close(w)) make_delta(w, free_delta(w), out);
}

/* As in worker.c the last part leaves first, and the first one tells the loss. */
static void push(struct echi_worker *w, struct echi_delta *d, struct echi_actions *out) {
    d->held = false;
    for (int part = w->parts - 1; part >= 0; part--) {
        struct echi_action *a = echi_act_send(out, w->owner, ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_PUSH);
        a->slot = (struct echi_slot){ECHI_SLOT_LOCAL_DELTA, (uint8_t)(d - w->local.delta)};
        a->msg.lease = d->lease;
        a->msg.part = (uint16_t)part;
        a->msg.flag = w->n_leases > 0 || w->flight[0].phase == ECHI_FLIGHT_BACKWARD;
        w->entered = a->msg.flag;
        a->msg.version = d->lease.round;
        a->msg.samples = d->seen;
        a->msg.loss = d->loss;
        a->msg.correct = d->correct;
        d->sending++;
    }
}

static void on_weights(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    struct echi_flight *s = &w->flight[0];
    struct echi_delta *d = held(w);
    if (e->from != w->owner) return echi_act_fault(out, ECH_E_INTERNAL, "weights came from a node that does not own them");
    if (!echi_worker_has_weights(w, ARRIVED.index, e, out)) return;
    s->version = e->msg->version;
    s->samples = e->msg->samples;
    w->local.fresh = true;
    w->local.behind = 0;
    if (s->phase == ECHI_FLIGHT_WAITS_WEIGHTS) enter(w, ECHI_FLIGHT_IDLE);
    if (d) push(w, d, out);   /* its round is that of these weights: it was one ahead */
}

static void on_delta(struct echi_worker *w, const struct echi_task *t, struct echi_actions *out) {
    struct echi_flight *s = &w->flight[0];
    struct echi_delta *d = &w->local.delta[t->grads.index];
    *d = (struct echi_delta){.lease = s->lease, .held = true, .seen = w->local.seen, .loss = s->loss, .correct = s->correct};
    w->local.behind += s->lease.n;
    enter(w, ECHI_FLIGHT_IDLE);
    if (d->lease.round == s->version) push(w, d, out);
}

static void on_computed(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    struct echi_flight *s = &w->flight[0];
    w->local.busy = false;
    switch (e->task->kind) {
    case ECHI_TASK_STEP:
        s->loss += e->result->loss[0];
        s->correct += e->result->correct[0];
        if (!(s->loss - s->loss == 0))
            return echi_act_fault(out, ECH_E_DIVERGED,
                                  "the loss has grown beyond all numbers: lower --lr, or look for bad samples in the data");
        return apply(w, &e->task->lease, out);
    case ECHI_TASK_LOCAL_DELTA: return on_delta(w, e->task, out);
    case ECHI_TASK_LOCAL_JOIN:
        w->local.fresh = false;
        return echi_act_post(out, w->owner, ECHI_KIND_WEIGHTS, ARRIVED);
    default: break;
    }
}

void echi_worker_local(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    switch (e->type) {
    case ECHI_EVENT_START: echi_act_post(out, w->owner, ECHI_KIND_WEIGHTS, ARRIVED); break;
    case ECHI_EVENT_MESSAGE:
        if (e->msg->kind == ECHI_KIND_WEIGHTS) on_weights(w, e, out);
        break;
    case ECHI_EVENT_SENT: w->local.delta[e->slot.index].sending--; break;
    case ECHI_EVENT_COMPUTED: on_computed(w, e, out); break;
    default: break;
    }
    begin(w, out);
}
