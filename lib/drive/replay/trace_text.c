/* SPDX-License-Identifier: Apache-2.0
 * Events and actions in words, for people who read a run. */
#include "echi_recording.h"
#include "echi_print.h"

#include <string.h>

static const char *const role_names[ECHI_ROLES] = {
    [ECHI_ROLE_NODE] = "node", [ECHI_ROLE_COORDINATOR] = "coordinator", [ECHI_ROLE_WORKER] = "worker", [ECHI_ROLE_OWNER] = "owner",
    [ECHI_ROLE_HEAD] = "head",
};
static const char *const task_names[ECHI_TASKS] = {
    [ECHI_TASK_HEAD] = "head", [ECHI_TASK_HEAD_APPLY] = "head apply", [ECHI_TASK_NORM] = "norm", [ECHI_TASK_ADD] = "add",
    [ECHI_TASK_APPLY] = "apply",
    [ECHI_TASK_ENCODE] = "encode", [ECHI_TASK_DECODE] = "decode", [ECHI_TASK_REFRESH] = "refresh", [ECHI_TASK_STATE] = "state",
    [ECHI_TASK_TAKE] = "take",
    [ECHI_TASK_BACKWARD] = "backward", [ECHI_TASK_STEP] = "step", [ECHI_TASK_FORWARD] = "forward",
    [ECHI_TASK_EVAL] = "evaluation", [ECHI_TASK_KEEP] = "checkpoint",
    [ECHI_TASK_LOCAL_APPLY] = "own step", [ECHI_TASK_LOCAL_DELTA] = "own change", [ECHI_TASK_LOCAL_JOIN] = "own weights on new ones",
};
static const char *const slot_names[ECHI_SLOT_KINDS] = {
    [ECHI_SLOT_NONE] = "no slot", [ECHI_SLOT_WORKER_WEIGHTS] = "worker weights", [ECHI_SLOT_WORKER_GRADS] = "worker gradients",
    [ECHI_SLOT_WORKER_ACT] = "worker rows", [ECHI_SLOT_WORKER_ACT_GRAD] = "worker row gradients",
    [ECHI_SLOT_OWNER_GRADS] = "owner gradients",
    [ECHI_SLOT_OWNER_SUM] = "owner sum", [ECHI_SLOT_OWNER_WEIGHTS] = "owner weights", [ECHI_SLOT_OWNER_MOMENTUM] = "owner momentum",
    [ECHI_SLOT_OWNER_W0] = "owner first weights", [ECHI_SLOT_OWNER_STATE] = "owner state", [ECHI_SLOT_OWNER_PEER] = "other group's state",
    [ECHI_SLOT_HEAD_ROWS] = "head rows", [ECHI_SLOT_HEAD_ROWS_GRAD] = "head row gradients", [ECHI_SLOT_HEAD_GRADS] = "head gradients",
    [ECHI_SLOT_HEAD_SUM] = "head sum", [ECHI_SLOT_HEAD_WEIGHTS] = "head weights", [ECHI_SLOT_HEAD_MOMENTUM] = "head momentum",
    [ECHI_SLOT_COORD_KEPT] = "checkpoint's parts", [ECHI_SLOT_COORD_PARAMS] = "coordinator weights",
    [ECHI_SLOT_NODE_FINAL] = "final weights",
    [ECHI_SLOT_WORKER_RESIDUAL] = "residual", [ECHI_SLOT_WORKER_CODED] = "coded push", [ECHI_SLOT_WORKER_COMING] = "coming weights",
    [ECHI_SLOT_OWNER_KNOWN] = "weights known to worker", [ECHI_SLOT_OWNER_CODED] = "coded weights",
    [ECHI_SLOT_OWNER_STATE_KNOWN] = "known state", [ECHI_SLOT_OWNER_STATE_CODED] = "coded state",
    [ECHI_SLOT_OWNER_PEER_CODED] = "coming state of group",
    [ECHI_SLOT_LOCAL_WEIGHTS] = "worker own weights", [ECHI_SLOT_LOCAL_MOMENTUM] = "worker own momentum",
    [ECHI_SLOT_LOCAL_DELTA] = "worker change",
    [ECHI_SLOT_WORKER_NORM] = "worker norm sums", [ECHI_SLOT_WORKER_NORM_ALL] = "worker norm answer",
    [ECHI_SLOT_OWNER_NORM] = "owner norm sums", [ECHI_SLOT_OWNER_NORM_ALL] = "owner norm answer", [ECHI_SLOT_RING] = "ring's sums",
};

static const char *name_of(const char *const *names, int count, int i) { return i >= 0 && i < count && names[i] ? names[i] : "?"; }
const char *echi_task_name(int kind) { return name_of(task_names, ECHI_TASKS, kind); }
const char *echi_role_name(int role) { return name_of(role_names, ECHI_ROLES, role); }

static void add_slot(struct echi_print *l, const char *before, struct echi_slot s) {
    echi_print(l, "%s%s", before, name_of(slot_names, ECHI_SLOT_KINDS, s.kind));
    if (s.kind != ECHI_SLOT_NONE) echi_print(l, "[%d]", s.index);
}

static void add_lease(struct echi_print *l, const struct echi_lease *lease) {
    if (lease->id)
        echi_print(l, ", lease %u (epoch %u, samples %u+%u, rank %d)", lease->id, lease->epoch, lease->start, lease->n, lease->worker);
}

static void add_message(struct echi_print *l, const struct echi_msg *m) {
    echi_print(l, "%s", echi_kind_name(m->kind));
    add_lease(l, &m->lease);
    if (echi_kind_of_layer(m->kind)) echi_print(l, ", layer %d", m->layer);
    if (echi_kind_of_part(m->kind)) echi_print(l, ", part %d", m->part);
    if (m->version) echi_print(l, ", version %llu", (unsigned long long)m->version);
    if (m->samples) echi_print(l, ", %llu samples", (unsigned long long)m->samples);
    if (m->flag) echi_print(l, ", flag %d", m->flag);
    if (m->number) echi_print(l, ", number %u", m->number);
    if (m->loss != 0) echi_print(l, ", loss %.6g", m->loss);
    if (m->kind == ECHI_KIND_LOST) echi_print(l, ", rank %d is lost", m->peer);
    if (m->kind == ECHI_KIND_REGROUP) echi_print(l, ", the worker of rank %d joins group %d", m->peer, m->group);
    if (m->kind == ECHI_KIND_HEADS)
        echi_print(l, m->flag == ECHI_HEADS_COPY ? ", rank %d gets a copy of the head's layers" : ", rank %d is the head", m->peer);
    if (m->kind == ECHI_KIND_HEADS && m->part > 0) echi_print(l, ", and rank %d its shadow", m->part - 1);
    if (m->text[0]) echi_print(l, ", '%s'", m->text);
    for (int i = 0; i < m->marks.count; i++) {   /* what is in a state */
        const uint8_t *mark = m->marks.at + ECHI_MARK_BYTES * i;
        echi_print(l, ", up to lease %u of rank %u", echi_load32(mark + 2), echi_load16(mark));
    }
}

static void add_task(struct echi_print *l, const struct echi_task *t) {
    echi_print(l, "%s", echi_task_name(t->kind));
    if (t->kind == ECHI_TASK_FORWARD || t->kind == ECHI_TASK_BACKWARD) echi_print(l, " of flight %d", t->flight);
    if (t->micros > 1) echi_print(l, ", micro-batch %d of %d", t->micro + 1, t->micros);
    add_lease(l, &t->lease);
    for (int i = 0; i < t->n_rows; i++) echi_print(l, "%s%u of rank %d", i ? ", " : ", rows: ", t->row_count[i], t->rows[i]);
    if (t->act.kind) add_slot(l, ", rows ", t->act);
    if (t->weights.kind) add_slot(l, ", reads ", t->weights);
    if (t->grads.kind) add_slot(l, ", ", t->grads);
    if (t->state.kind) add_slot(l, ", ", t->state);
    if (t->weights_out.kind) add_slot(l, ", writes ", t->weights_out);
    if (t->state_out.kind) add_slot(l, ", ", t->state_out);
    if (t->coded.kind) add_slot(l, ", coded ", t->coded);
    if (t->ratio) echi_print(l, ", ratio %g", t->ratio * 1e-6);
    if (t->first) echi_print(l, t->coded.kind ? ", the residual begins" : ", the first of its round");
}

static struct echi_print over(char *buf, size_t cap) {
    buf[0] = 0;
    return (struct echi_print){buf, cap, 0};
}

void echi_event_text(const struct echi_traced *t, char *buf, size_t cap) {
    const struct echi_event *e = &t->event;
    struct echi_print l = over(buf, cap);
    switch ((enum echi_event_type)e->type) {
    case ECHI_EVENT_START: echi_print(&l, "start"); break;
    case ECHI_EVENT_MESSAGE:
        echi_print(&l, "from rank %d: ", e->from);
        add_message(&l, e->msg);
        if (e->slot.kind) add_slot(&l, " -> ", e->slot);
        break;
    case ECHI_EVENT_SENT:
        echi_print(&l, "%s sent: ", echi_kind_name(e->kind));
        add_slot(&l, "", e->slot);
        break;
    case ECHI_EVENT_GRADIENT:
        if (e->task->kind == ECHI_TASK_HEAD) echi_print(&l, "gradients of rows: ");
        else echi_print(&l, "gradient of layer %d: ", e->layer);
        add_task(&l, e->task);
        break;
    case ECHI_EVENT_COMPUTED:
        echi_print(&l, "done: ");
        add_task(&l, e->task);
        if (e->task->kind == ECHI_TASK_STEP || e->task->kind == ECHI_TASK_HEAD) echi_print(&l, ", loss %.9g", e->result->loss[0]);
        if (e->task->kind == ECHI_TASK_EVAL) echi_print(&l, ", accuracy %.2f %%", 100 * e->result->accuracy);
        break;
    case ECHI_EVENT_LOST: echi_print(&l, "rank %d %s: %s", e->from, e->flag ? "has left" : "cannot be reached", e->text); break;
    case ECHI_EVENT_BROKE: echi_print(&l, "rank %d broke a rule: %s", e->from, e->text); break;
    case ECHI_EVENT_FAILED: echi_print(&l, "this node cannot go on: %s", e->text); break;
    case ECHI_EVENT_MEASURED: echi_print(&l, "step times are measured"); break;
    case ECHI_EVENT_SLOTS: echi_print(&l, e->flag ? "there is no memory for the head's slots" : "the slots are there"); break;
    case ECHI_EVENT_HELD: echi_print(&l, "no task runs"); break;
    case ECHI_EVENT_TIME: echi_print(&l, "the time has come"); break;
    case ECHI_EVENT_STOP: echi_print(&l, e->flag ? "the user wants the run to end" : "the user wants to leave"); break;
    case ECHI_EVENT_RATE:
        echi_print(&l, "rank %d's link carries %.6g bytes/s %s", e->from, e->rate, e->flag ? "in" : "out");
        break;
    case ECHI_EVENT_TAKEOVER:
    case ECHI_EVENT_HEADS:
    case ECHI_EVENT_MOVED: break;   /* within a node */
    }
}

void echi_action_text(const struct echi_traced_action *t, char *buf, size_t cap) {
    const struct echi_action *a = &t->action;
    struct echi_print l = over(buf, cap);
    switch ((enum echi_action_type)a->type) {
    case ECHI_ACTION_SEND:
        echi_print(&l, "send to the %s of rank %d: ", echi_role_name(a->msg.to_role), a->to);
        add_message(&l, &a->msg);
        if (a->slot.kind || echi_kind_has_payload(a->kind)) add_slot(&l, ", from ", a->slot);
        break;
    case ECHI_ACTION_POST:
        echi_print(&l, "take the next %s of rank %d", echi_kind_name(a->kind), a->to);
        if (a->only) echi_print(&l, ", part %d,", a->only - 1);
        add_slot(&l, " into ", a->slot);
        break;
    case ECHI_ACTION_COMPUTE:
        echi_print(&l, "compute: ");
        add_task(&l, &a->task);
        break;
    case ECHI_ACTION_PLAN:
        echi_print(&l, "tell all the plan (%s, %d groups, B %u)", echi_policy_of((enum echi_sync)t->plan.sync)->name, t->plan.n_groups,
                   t->plan.round);
        break;
    case ECHI_ACTION_FAULT: echi_print(&l, "cannot go on: %s", a->msg.text); break;
    case ECHI_ACTION_DONE: echi_print(&l, "the run has ended, status %u", t->status); break;
    case ECHI_ACTION_MEASURE: echi_print(&l, "measure step times"); break;
    case ECHI_ACTION_SLOTS: echi_print(&l, "make slots"); break;
    case ECHI_ACTION_HOLD: echi_print(&l, "begin no task"); break;
    case ECHI_ACTION_RELEASE: echi_print(&l, "begin tasks again"); break;
    case ECHI_ACTION_DROP: echi_print(&l, "take nothing more from rank %d", a->to); break;
    case ECHI_ACTION_FINAL: echi_print(&l, "the final weights are here"); break;
    case ECHI_ACTION_LEAVE: echi_print(&l, "leave, status %u%s%s", a->msg.layer, a->msg.text[0] ? ": " : "", a->msg.text); break;
    }
}
