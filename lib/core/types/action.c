/* SPDX-License-Identifier: Apache-2.0
 * The list of actions that a role returns, and the messages that one of them stands for. */
#include "echi_event.h"

#include <string.h>

/* Bytes behind what all actions have: a task is three times as large as a message, and most actions have neither. */
static size_t said_of(enum echi_action_type type) {
    switch (type) {
    case ECHI_ACTION_SEND:
    case ECHI_ACTION_FAULT:
    case ECHI_ACTION_LEAVE: return sizeof(struct echi_msg);
    case ECHI_ACTION_COMPUTE: return sizeof(struct echi_task);
    default: return 0;
    }
}

struct echi_action *echi_act(struct echi_actions *out, enum echi_action_type type) {
    if (out->count == out->cap) {
        out->overflow = true;
        out->count--;   /* the run is over anyway; keep the callers free of a check */
    }
    struct echi_action *a = &out->list[out->count++];
    memset(a, 0, offsetof(struct echi_action, msg) + said_of(type));
    a->type = (uint8_t)type;
    return a;
}

struct echi_action *echi_act_send(struct echi_actions *out, int to, enum echi_role to_role, enum echi_role from_role,
                                  enum echi_kind kind) {
    struct echi_action *a = echi_act(out, ECHI_ACTION_SEND);
    a->to = (uint16_t)to;
    a->kind = (uint8_t)kind;
    a->msg.kind = (uint8_t)kind;
    a->msg.to_role = (uint8_t)to_role;
    a->msg.from_role = (uint8_t)from_role;
    return a;
}

void echi_act_post(struct echi_actions *out, int from, enum echi_kind kind, struct echi_slot slot) {
    struct echi_action *a = echi_act(out, ECHI_ACTION_POST);
    a->to = (uint16_t)from;
    a->kind = (uint8_t)kind;
    a->slot = slot;
}

void echi_act_post_part(struct echi_actions *out, int from, enum echi_kind kind, struct echi_slot slot, int part) {
    echi_act_post(out, from, kind, slot);
    out->list[out->count - 1].only = (uint16_t)(1 + part);
}

/* Those of a ring are posted one by one (`only`). */
static bool by_part(const struct echi_setup *s, enum echi_kind kind) {
    return kind == ECHI_KIND_PUSH || (kind == ECHI_KIND_WEIGHTS && s->plan.codec == ECHI_CODEC_DENSE);
}

/* The i-th of this owner's parts in front of the cut, counted from the first on; -1: there are fewer. */
static int part_of(const struct echi_setup *s, int owner, int i) {
    const int end = echi_parts_before(&s->plan.parts, s->cut);
    if (s->plan.shards == 0) return i < end && echi_plan_shard_owned(&s->plan, owner) >= 0 ? i : -1;
    for (int part = 0; part < end; part++)
        if (echi_plan_owns_part(&s->plan, owner, part) && i-- == 0) return part;
    return -1;
}

int echi_post_parts(const struct echi_setup *s, enum echi_kind kind, int owner) {
    const int end = echi_parts_before(&s->plan.parts, s->cut);
    int count = 0;
    if (!by_part(s, kind)) return 1;
    if (s->plan.shards == 0) return echi_plan_shard_owned(&s->plan, owner) >= 0 ? end : 0;
    for (int part = 0; part < end; part++) count += echi_plan_owns_part(&s->plan, owner, part);
    return count;
}

int echi_post_part(const struct echi_setup *s, enum echi_kind kind, int owner, int i) {
    if (!by_part(s, kind)) return i == 0 ? 0 : -1;
    return part_of(s, owner, kind == ECHI_KIND_PUSH ? echi_post_parts(s, kind, owner) - 1 - i : i);
}

int echi_post_owner(enum echi_kind kind, int rank, int from) { return kind == ECHI_KIND_WEIGHTS ? from : rank; }

static int owner_of_post(const struct echi_setup *s, const struct echi_action *a) {
    return echi_post_owner((enum echi_kind)a->kind, s->rank, a->to);
}

int echi_posts(const struct echi_setup *s, const struct echi_action *a) {
    return a->only ? 1 : echi_post_parts(s, (enum echi_kind)a->kind, owner_of_post(s, a));
}

int echi_posts_part(const struct echi_setup *s, const struct echi_action *a, int i) {
    return a->only ? a->only - 1 : echi_post_part(s, (enum echi_kind)a->kind, owner_of_post(s, a), i);
}

void echi_act_fault(struct echi_actions *out, ech_status status, const char *text) {
    struct echi_action *a = echi_act(out, ECHI_ACTION_FAULT);
    a->msg.layer = (uint16_t)status;
    size_t len = strlen(text);
    if (len >= sizeof a->msg.text) len = sizeof a->msg.text - 1;
    memcpy(a->msg.text, text, len);
}
