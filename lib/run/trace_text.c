/* SPDX-License-Identifier: Apache-2.0
 * Events and actions in words, for people who read a run. */
#include "echi_recording.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct line { char *at, *end; };
static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...) {
    const size_t room = (size_t)(l->end - l->at);
    va_list args;
    va_start(args, fmt);
    const int len = vsnprintf(l->at, room, fmt, args);
    va_end(args);
    l->at += len < 0 ? 0 : (size_t)len < room ? (size_t)len : room - 1;
}

static const char *const role_names[ECHI_ROLES] = {
    [ECHI_ROLE_NODE] = "node", [ECHI_ROLE_COORDINATOR] = "coordinator", [ECHI_ROLE_WORKER] = "worker", [ECHI_ROLE_OWNER] = "owner", [ECHI_ROLE_HEAD] = "head",
};
static const char *const task_names[ECHI_TASKS] = {
    [ECHI_TASK_HEAD] = "head", [ECHI_TASK_HEAD_APPLY] = "head apply", [ECHI_TASK_ADD] = "add", [ECHI_TASK_APPLY] = "apply", [ECHI_TASK_REFRESH] = "refresh",
    [ECHI_TASK_BACKWARD] = "backward", [ECHI_TASK_STEP] = "step", [ECHI_TASK_FORWARD] = "forward", [ECHI_TASK_EVAL] = "look at the test set",
    [ECHI_TASK_KEEP] = "checkpoint",
};
static const char *const slot_names[ECHI_SLOT_KINDS] = {
    [ECHI_SLOT_NONE] = "no slot", [ECHI_SLOT_WORKER_WEIGHTS] = "worker weights", [ECHI_SLOT_WORKER_GRADS] = "worker gradients",
    [ECHI_SLOT_WORKER_ACT] = "worker rows", [ECHI_SLOT_WORKER_ACT_GRAD] = "worker row gradients", [ECHI_SLOT_OWNER_GRADS] = "owner gradients",
    [ECHI_SLOT_OWNER_SUM] = "owner sum", [ECHI_SLOT_OWNER_WEIGHTS] = "owner weights", [ECHI_SLOT_OWNER_MOMENTUM] = "owner momentum",
    [ECHI_SLOT_OWNER_W0] = "owner first weights", [ECHI_SLOT_OWNER_STATE] = "owner state", [ECHI_SLOT_OWNER_PEER] = "other group's state",
    [ECHI_SLOT_HEAD_ROWS] = "head rows", [ECHI_SLOT_HEAD_ROWS_GRAD] = "head row gradients", [ECHI_SLOT_HEAD_GRADS] = "head gradients",
    [ECHI_SLOT_HEAD_SUM] = "head sum", [ECHI_SLOT_HEAD_WEIGHTS] = "head weights", [ECHI_SLOT_HEAD_MOMENTUM] = "head momentum",
    [ECHI_SLOT_COORD_KEPT] = "checkpoint's parts", [ECHI_SLOT_COORD_PARAMS] = "coordinator weights", [ECHI_SLOT_NODE_FINAL] = "final weights",
};

static const char *name_of(const char *const *names, int count, int i) { return i >= 0 && i < count && names[i] ? names[i] : "?"; }
const char *echi_role_name(int role) { return name_of(role_names, ECHI_ROLES, role); }

static void add_slot(struct line *l, const char *before, struct echi_slot s) {
    add(l, "%s%s", before, name_of(slot_names, ECHI_SLOT_KINDS, s.kind));
    if (s.kind != ECHI_SLOT_NONE) add(l, "[%d]", s.index);
}

static void add_lease(struct line *l, const struct echi_lease *lease) {
    if (lease->id) add(l, ", lease %u (epoch %u, samples %u+%u, rank %d)", lease->id, lease->epoch, lease->start, lease->n, lease->worker);
}

static void add_message(struct line *l, const struct echi_msg *m) {
    add(l, "%s", echi_kind_name(m->kind));
    add_lease(l, &m->lease);
    if (m->kind == ECHI_KIND_PUSH) add(l, ", layer %d", m->layer);
    if (m->version) add(l, ", version %llu", (unsigned long long)m->version);
    if (m->samples) add(l, ", %llu samples", (unsigned long long)m->samples);
    if (m->flag) add(l, ", flag %d", m->flag);
    if (m->loss != 0) add(l, ", loss %.6g", m->loss);
    if (m->text[0]) add(l, ", '%s'", m->text);
    for (int r = 0; r < ECHI_WORLD_MAX; r++)   /* what is in a state */
        if (m->mark[r]) add(l, ", up to lease %u of rank %d", m->mark[r], r);
}

static void add_task(struct line *l, const struct echi_task *t) {
    add(l, "%s", name_of(task_names, ECHI_TASKS, t->kind));
    if (t->kind == ECHI_TASK_FORWARD || t->kind == ECHI_TASK_BACKWARD) add(l, " of strand %d", t->strand);
    add_lease(l, &t->lease);
    for (int i = 0; i < t->n_rows; i++) add(l, "%s%u of rank %d", i ? ", " : ", rows: ", t->row_count[i], t->rows[i]);
    if (t->act.kind) add_slot(l, ", rows ", t->act);
    if (t->weights.kind) add_slot(l, ", reads ", t->weights);
    if (t->grads.kind) add_slot(l, ", ", t->grads);
    if (t->state.kind) add_slot(l, ", ", t->state);
    if (t->weights_out.kind) add_slot(l, ", writes ", t->weights_out);
    if (t->state_out.kind) add_slot(l, ", ", t->state_out);
    if (t->first) add(l, ", the first of its round");
}

static struct line over(char *buf, size_t cap) {
    buf[0] = 0;
    return (struct line){buf, buf + cap};
}

void echi_event_text(const struct echi_traced *t, char *buf, size_t cap) {
    const struct echi_event *e = &t->event;
    struct line l = over(buf, cap);
    switch ((enum echi_event_type)e->type) {
    case ECHI_EVENT_START: add(&l, "start"); break;
    case ECHI_EVENT_MESSAGE:
        add(&l, "from rank %d: ", e->from);
        add_message(&l, e->msg);
        if (e->slot.kind) add_slot(&l, " -> ", e->slot);
        break;
    case ECHI_EVENT_SENT: add_slot(&l, "sent: ", e->slot); break;
    case ECHI_EVENT_GRADIENT:
        if (e->task->kind == ECHI_TASK_HEAD) add(&l, "gradients of rows: ");
        else add(&l, "gradient of layer %d: ", e->layer);
        add_task(&l, e->task);
        break;
    case ECHI_EVENT_COMPUTED:
        add(&l, "done: ");
        add_task(&l, e->task);
        if (e->task->kind == ECHI_TASK_STEP || e->task->kind == ECHI_TASK_HEAD) add(&l, ", loss %.9g", e->result->loss[0]);
        if (e->task->kind == ECHI_TASK_EVAL) add(&l, ", accuracy %.2f %%", 100 * e->result->accuracy);
        break;
    case ECHI_EVENT_LOST: add(&l, "rank %d is lost", e->from); break;
    case ECHI_EVENT_STOP: add(&l, "the user wants an end"); break;
    }
}

void echi_action_text(const struct echi_traced_action *t, char *buf, size_t cap) {
    const struct echi_action *a = &t->action;
    struct line l = over(buf, cap);
    switch ((enum echi_action_type)a->type) {
    case ECHI_ACTION_SEND:
        add(&l, "send to the %s of rank %d: ", echi_role_name(a->msg.to_role), a->to);
        add_message(&l, &a->msg);
        if (a->slot.kind || echi_kind_has_payload(a->kind)) add_slot(&l, ", from ", a->slot);
        break;
    case ECHI_ACTION_POST:
        add(&l, "take the next %s of rank %d", echi_kind_name(a->kind), a->to);
        add_slot(&l, " into ", a->slot);
        break;
    case ECHI_ACTION_COMPUTE:
        add(&l, "compute: ");
        add_task(&l, &a->task);
        break;
    case ECHI_ACTION_PLAN: add(&l, "tell all the plan (%s, %d groups, B %u)", echi_policy_of((enum echi_sync)t->plan.sync)->name, t->plan.n_groups, t->plan.round); break;
    case ECHI_ACTION_FAULT: add(&l, "cannot go on: %s", a->msg.text); break;
    case ECHI_ACTION_DONE: add(&l, "the run has ended, status %u", t->status); break;
    }
}
