/* SPDX-License-Identifier: Apache-2.0
 * Events and actions to bytes and back: what a recording is made of. One place writes each field and one reads it, so that
 * a new field of an event, a task or an action is one line here and one beside it. Pure, like all of lib/core. */
#ifndef ECHI_TRACE_H
#define ECHI_TRACE_H
#include "echi_bytes.h"
#include "echi_roles.h"

#define ECHI_TRACED_TEXT 240   /* bytes of a sentence with its NUL at most, as in a message */

/* One event that a role took and what it answered. The decoder's event points into this struct and into the bytes read. */
struct echi_traced {
    uint8_t role;
    struct echi_event event;
    struct echi_msg msg;
    struct echi_task task;
    struct echi_result result;
    char text[ECHI_TRACED_TEXT];
    const uint8_t *meta; size_t meta_len;         /* MESSAGE: as it was on the wire */
    const uint8_t *actions; size_t actions_len;   /* see echi_trace_next_action */
};

/* `coordinator`: whose plan (PLAN) and end (DONE) are part of the actions; NULL at ranks other than 0. */
void echi_trace_put(struct echi_writer *w, enum echi_role role, const struct echi_event *event, const struct echi_actions *actions,
                    const struct echi_coordinator *coordinator);
void echi_trace_put_actions(struct echi_writer *w, const struct echi_actions *actions, const struct echi_coordinator *coordinator);
/* False when the bytes are none. Ranges that need the run to judge (ranks, slots, tasks that nobody asked for) are the caller's. */
bool echi_trace_get(const uint8_t *bytes, size_t len, struct echi_traced *out);

/* One action of a list. SEND: `meta` is the message in its wire form. */
struct echi_traced_action {
    struct echi_action action;
    const uint8_t *meta; size_t meta_len;
    struct { uint8_t sync, n_groups; uint32_t round; } plan;   /* PLAN: of the plan in `meta` */
    uint32_t status;
};
/* Goes through a list: a reader over [actions, actions + actions_len). False at its end (r->at == r->end) or where it is broken. */
bool echi_trace_next_action(struct echi_reader *r, struct echi_traced_action *out);

void echi_task_put(struct echi_writer *w, const struct echi_task *task);
void echi_result_put(struct echi_writer *w, const struct echi_task *task, const struct echi_result *result);

/* What the planner and the coordinator begin with. Get is false when a field is outside of what its struct allows. */
void echi_plan_request_put(struct echi_writer *w, const struct echi_plan_request *request);
bool echi_plan_request_get(struct echi_reader *r, struct echi_plan_request *out);
void echi_goal_put(struct echi_writer *w, const struct echi_goal *goal);
bool echi_goal_get(struct echi_reader *r, struct echi_goal *out);
#endif
