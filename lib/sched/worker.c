/* SPDX-License-Identifier: Apache-2.0
 * The worker: takes leases, computes forward and backward, pushes gradients, waits for weights (design, section 3). */
#include "echi_roles.h"

#include <string.h>

static int owner_rank(const struct echi_worker *w) {
    const struct echi_plan *p = &w->setup->plan;
    return p->owner_of[p->group_of[w->setup->rank]];
}

void echi_worker_init(struct echi_worker *w, const struct echi_setup *setup) {
    memset(w, 0, sizeof *w);
    w->setup = setup;
    w->policy = echi_policy_of((enum echi_sync)setup->plan.sync);
}

static void begin(struct echi_worker *w, struct echi_actions *out) {
    if (w->phase != ECHI_WORKER_IDLE || w->n_leases == 0 || w->sending > 0) return;
    if (!w->policy->may_begin(&w->lease[0], w->version)) return;
    const bool separated = w->setup->plan.separated;
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = separated ? ECHI_TASK_FORWARD : ECHI_TASK_STEP;
    t->role = ECHI_ROLE_WORKER;
    t->lease = w->lease[0];
    t->weights = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, w->current};
    t->grads = (struct echi_slot){ECHI_SLOT_WORKER_GRADS, 0};
    t->divisor = w->lease[0].round_size;
    w->phase = separated ? ECHI_WORKER_FORWARD : ECHI_WORKER_BACKWARD;
    w->next_layer = w->setup->cut - 1;
    memset(w->ready, 0, sizeof w->ready);
}

/* Gradients travel from the last layer to the first, so that the owner can post their places in that order. The first
 * layer's goes last and carries the step's loss, so it waits for the end of the step (`done`). */
static void push_ready(struct echi_worker *w, bool done, struct echi_actions *out) {
    while (w->next_layer >= 0 && w->ready[w->next_layer] && (done || w->next_layer > 0)) {
        struct echi_action *a = echi_act_send(out, owner_rank(w), ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_PUSH);
        a->slot = (struct echi_slot){ECHI_SLOT_WORKER_GRADS, 0};
        a->msg.lease = w->lease[0];
        a->msg.layer = (uint16_t)w->next_layer;
        a->msg.flag = w->n_leases > 1;
        w->entered = a->msg.flag;
        a->msg.version = w->version;
        a->msg.loss = w->loss;
        a->msg.correct = w->correct;
        w->sending++;
        w->next_layer--;
    }
}

static void on_message(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    switch (m->kind) {
    case ECHI_KIND_LEASE:
        if (e->from != 0 || w->n_leases > ECHI_LEASES_AHEAD || m->lease.worker != w->setup->rank ||
            !echi_lease_valid(&m->lease, &w->setup->plan))
            return echi_act_fault(out, ECH_E_FORMAT, "a lease does not fit the plan: do all nodes run the same version?");
        w->lease[w->n_leases++] = m->lease;
        /* The owner thinks that this worker has run out, and lets the others run ahead of it. */
        if (!w->entered)
            echi_act_send(out, owner_rank(w), ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_ENTER)->msg.lease = m->lease;
        w->entered = true;
        break;
    case ECHI_KIND_WEIGHTS:
        if (e->from != owner_rank(w))
            return echi_act_fault(out, ECH_E_INTERNAL, "weights came from a node that does not own them");
        if (w->phase != ECHI_WORKER_WAITS_WEIGHTS && w->phase != ECHI_WORKER_IDLE)
            return echi_act_fault(out, ECH_E_INTERNAL, "weights came in the middle of a step");
        w->current = e->slot.index;
        w->version = m->version;
        w->phase = ECHI_WORKER_IDLE;
        echi_act_post(out, owner_rank(w), ECHI_KIND_WEIGHTS, (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, (uint8_t)!w->current});
        break;
    case ECHI_KIND_ACT_GRAD: {
        if (e->from != w->setup->plan.head || w->phase != ECHI_WORKER_WAITS_HEAD || m->lease.id != w->lease[0].id)
            return echi_act_fault(out, ECH_E_INTERNAL, "the head answered a lease that this worker does not compute");
        w->loss = m->loss;
        w->correct = m->correct;
        struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
        t->kind = ECHI_TASK_BACKWARD;
        t->role = ECHI_ROLE_WORKER;
        t->lease = w->lease[0];
        t->weights = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, w->current};
        t->grads = (struct echi_slot){ECHI_SLOT_WORKER_GRADS, 0};
        t->divisor = w->lease[0].round_size;
        w->phase = ECHI_WORKER_BACKWARD;
        break;
    }
    default: echi_act_fault(out, ECH_E_INTERNAL, "a worker got a message that is not for workers");
    }
}

static void on_computed(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    if (e->task->kind == ECHI_TASK_FORWARD) {
        struct echi_action *a = echi_act_send(out, w->setup->plan.head, ECHI_ROLE_HEAD, ECHI_ROLE_WORKER, ECHI_KIND_ACT);
        a->slot = (struct echi_slot){ECHI_SLOT_WORKER_ACT, 0};
        a->msg.lease = w->lease[0];
        w->sending++;
        w->phase = ECHI_WORKER_WAITS_HEAD;
        return;
    }
    if (e->task->kind == ECHI_TASK_STEP) {
        w->loss = e->result->loss[0];
        w->correct = e->result->correct[0];
    } else {
        echi_act_post(out, w->setup->plan.head, ECHI_KIND_ACT_GRAD, (struct echi_slot){ECHI_SLOT_WORKER_ACT_GRAD, 0});
    }
    if (!(w->loss - w->loss == 0))
        return echi_act_fault(out, ECH_E_DIVERGED,
                              "the loss has grown beyond all numbers: lower --lr, or look for bad samples in the data");
    push_ready(w, true, out);
    w->phase = ECHI_WORKER_WAITS_WEIGHTS;
    w->n_leases--;
    memmove(&w->lease[0], &w->lease[1], (size_t)w->n_leases * sizeof w->lease[0]);
}

void echi_worker_step(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    switch (e->type) {
    case ECHI_EVENT_START:
        echi_act_post(out, owner_rank(w), ECHI_KIND_WEIGHTS, (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, 0});
        if (w->setup->plan.separated)
            echi_act_post(out, w->setup->plan.head, ECHI_KIND_ACT_GRAD, (struct echi_slot){ECHI_SLOT_WORKER_ACT_GRAD, 0});
        break;
    case ECHI_EVENT_MESSAGE: on_message(w, e, out); break;
    case ECHI_EVENT_SENT: w->sending--; break;
    case ECHI_EVENT_GRADIENT:
        w->ready[e->layer] = true;
        push_ready(w, false, out);
        break;
    case ECHI_EVENT_COMPUTED: on_computed(w, e, out); break;
    default: break;
    }
    begin(w, out);
}
