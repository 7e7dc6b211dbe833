/* SPDX-License-Identifier: Apache-2.0
 * Where the time of a node's compute thread goes. */
#include "echi_usage.h"

/* ECHI_USES: it does not count. */
static enum echi_use use_of(const struct echi_task *t) {
    switch ((enum echi_task_kind)t->kind) {
    case ECHI_TASK_HEAD:
    case ECHI_TASK_HEAD_APPLY: return ECHI_USE_HEAD;
    case ECHI_TASK_NORM:
    case ECHI_TASK_ADD:
    case ECHI_TASK_APPLY:
    case ECHI_TASK_REFRESH:
    case ECHI_TASK_TAKE:
    case ECHI_TASK_STATE: return ECHI_USE_OWNER;
    case ECHI_TASK_ENCODE:
    case ECHI_TASK_DECODE: return ECHI_USE_CODEC;
    case ECHI_TASK_BACKWARD:
    case ECHI_TASK_STEP:
    case ECHI_TASK_FORWARD:
    case ECHI_TASK_LOCAL_APPLY:
    case ECHI_TASK_LOCAL_DELTA:
    case ECHI_TASK_LOCAL_JOIN: return ECHI_USE_STEPS;
    case ECHI_TASK_EVAL:
    case ECHI_TASK_KEEP:   /* another thread's */
    case ECHI_TASKS: break;
    }
    return ECHI_USES;
}

static enum echi_use awaited(const struct echi_event *e) {
    if (e->type != ECHI_EVENT_MESSAGE) return ECHI_USE_OTHER;
    switch (e->msg->kind) {
    case ECHI_KIND_WEIGHTS:
    case ECHI_KIND_RING_WEIGHTS:
    case ECHI_KIND_STATE: return ECHI_USE_WEIGHTS;
    case ECHI_KIND_LEASE: return ECHI_USE_LEASE;
    case ECHI_KIND_ACT:
    case ECHI_KIND_ACT_GRAD: return ECHI_USE_ACTIVATIONS;
    case ECHI_KIND_PUSH:
    case ECHI_KIND_RING_SUM:
    case ECHI_KIND_RING_LEASE: return ECHI_USE_GRADIENTS;
    default: return ECHI_USE_OTHER;
    }
}

/* What it was busy with until now; where that was nothing, what ended it. */
static void account(struct echi_usage *u, const struct echi_event *e) {
    int use = 0;
    while (use < ECHI_USE_COMPUTES && u->out[use] == 0) use++;
    if (u->at > 0 && !u->held && e->now > u->at) u->ns[use < ECHI_USE_COMPUTES ? use : (int)awaited(e)] += e->now - u->at;
    u->at = e->now;
}

void echi_usage_step(struct echi_usage *u, const struct echi_event *e, const struct echi_action *list, int count) {
    if (e->type == ECHI_EVENT_COMPUTED) {
        const enum echi_use use = use_of(e->task);
        if (use < ECHI_USES && u->out[use] > 0) {
            account(u, e);
            u->out[use]--;
        }
    }
    for (int i = 0; i < count; i++) {
        const enum echi_action_type type = (enum echi_action_type)list[i].type;
        const enum echi_use use = type == ECHI_ACTION_COMPUTE ? use_of(&list[i].task) : ECHI_USES;
        if (use == ECHI_USES && type != ECHI_ACTION_HOLD && type != ECHI_ACTION_RELEASE) continue;
        account(u, e);
        if (use < ECHI_USES) u->out[use]++;
        else u->held = type == ECHI_ACTION_HOLD;
    }
}
