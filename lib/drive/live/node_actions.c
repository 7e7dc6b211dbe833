/* SPDX-License-Identifier: Apache-2.0
 * Actions made true: messages sent, places posted, tasks begun. */
#include "echi_node.h"
#include "echi_checkpoint.h"
#include "echi_error.h"
#include "echi_priority.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------- payloads of messages */

static uint64_t cookie_of(enum echi_role role, struct echi_slot slot) {
    return (uint64_t)role << 24 | (uint64_t)slot.kind << 16 | slot.index;
}

void echi_node_extent(const struct echi_node *n, int kind, const struct echi_msg *m, bool head, size_t *at, size_t *len) {
    echi_job_extent(n->job, &n->setup.plan, kind, m, head, at, len);
}

struct echi_slot echi_node_landing(const struct echi_node *n, int kind, struct echi_slot slot) {
    const bool in_weights = echi_plan_grads_in_weights(&n->setup.plan);   /* then the place that the first gradients go to */
    const struct echi_slot grads = {in_weights ? ECHI_SLOT_WORKER_WEIGHTS : ECHI_SLOT_WORKER_GRADS, 0};
    const bool elsewhere = kind == ECHI_KIND_PARAMS && slot.kind == ECHI_SLOT_OWNER_WEIGHTS && n->setup.plan.shards > 0;
    return elsewhere && echi_exec_slot(n->exec, grads, NULL) ? grads : slot;
}

/* A takeover before anybody had weights: of the shards that are new here, where this node owned `before`, the first weights are where they
 * landed, with all others. Nothing has been computed there yet. (Where something was, a task takes them from this node's worker.) */
static void take_first_weights(struct echi_node *n, uint64_t before) {
    const struct echi_plan *p = &n->setup.plan;
    const struct echi_slot weights = {ECHI_SLOT_OWNER_WEIGHTS, 0}, landed = echi_node_landing(n, ECHI_KIND_PARAMS, weights);
    if (landed.kind == weights.kind) return;
    const echi_real *came = echi_exec_slot(n->exec, landed, NULL);
    echi_real *to = echi_exec_slot(n->exec, weights, NULL);
    for (int i = 0; i < p->parts.count; i++) {
        const struct echi_part *part = &p->parts.part[i];
        if (echi_plan_owns_part(p, n->rank, i) && !(before >> part->shard & 1))
            memcpy(to + part->at, came + part->at, part->count * sizeof *to);
    }
}

static bool is_first_takeover(const struct echi_event *e) {
    return e->type == ECHI_EVENT_MESSAGE && e->msg->kind == ECHI_KIND_TAKEOVER && e->msg->version == 0;
}

/* ------------------------------------------------------ events to roles */

static void perform(struct echi_node *n, const struct echi_event *e, struct echi_actions *list);
static void tell_wrong(struct echi_node *n);

/* The I/O thread itself asks, behind all that an event asked for; it shows meanwhile that it is there (work.between). */
static void look_out(struct echi_node *n, int64_t before) {
    if (!echi_coordinator_outlook(n->role.coordinator, before)) return;
    const int64_t now = echi_node_now(n);
    echi_coordinator_outlook_took(n->role.coordinator, now, now - before);
    echi_outlook_log(n->c->config, n->role.coordinator, &n->changes_told);
}

void echi_node_event(struct echi_node *n, enum echi_role role, struct echi_event *e) {
    struct echi_actions list = {n->action, 0, ECHI_ACTIONS_MAX, false};
    const uint64_t shards = is_first_takeover(e) ? echi_plan_shards_of(&n->setup.plan, n->rank) : 0;
    e->now = echi_node_now(n);
    if (!echi_node_role_step(&n->role, role, e, &list)) return;
    if (shards) take_first_weights(n, shards);
    echi_tell_note(n, e->now);
    if (role == ECHI_ROLE_COORDINATOR) echi_changes_log(n->c->config, n->role.coordinator, &n->changes_told);
    if (n->recorder) {
        echi_recorder_event(n->recorder, role, e, &list, n->role.coordinator);
        echi_node_check_recorder(n);
    }
    perform(n, e, &list);
    tell_wrong(n);
    if (role == ECHI_ROLE_COORDINATOR && !n->over) look_out(n, e->now);
    struct echi_lease next;
    if (role == ECHI_ROLE_WORKER && echi_worker_next(n->role.worker, &next)) echi_exec_expect(n->exec, &next);
}

/* What the wire said to a send or a post. A peer that is gone is dealt with by its LOST event; until that is here, or after
 * the run has ended, its sentence must not take the place of the one that tells why. */
static void settle(struct echi_node *n, ech_status status, const struct ech_error *why) {
    if (status == ECH_OK || status == ECH_E_PEER_LOST || n->over) return;
    *n->err = *why;
    echi_node_give_up(n, status);
}

static void send_message(struct echi_node *n, int to, const struct echi_msg *m, const void *payload, size_t len, uint64_t cookie) {
    uint8_t meta[ECHI_MSG_MAX];
    size_t size = echi_msg_encode(m, meta, sizeof meta);
    const struct echi_net_message out = {.kind = m->kind, .name = echi_msg_name(m), .priority = echi_msg_priority(&n->setup.plan, m),
                                         .meta = meta, .meta_len = size, .payload = payload, .payload_len = len, .cookie = cookie};
    struct ech_error why;
    ech_status status = size ? echi_wire_send(n->wire, to, &out, &why)
                             : echi_fail(&why, ECH_E_INTERNAL, "run.send", "a %s message does not fit", echi_kind_name(m->kind));
    settle(n, status, &why);
}

void echi_node_send_plain(struct echi_node *n, int to, enum echi_kind kind, enum echi_role to_role) {
    struct echi_msg m = {.kind = (uint8_t)kind, .to_role = (uint8_t)to_role, .from_role = ECHI_ROLE_NODE};
    send_message(n, to, &m, NULL, 0, 0);
}

void echi_node_send_body(struct echi_node *n, int to, enum echi_kind kind, enum echi_role to_role, const uint8_t *body, size_t len) {
    uint8_t meta[2 + ECHI_PLAN_BYTES_MAX] = {(uint8_t)to_role, ECHI_ROLE_NODE};
    memcpy(meta + 2, body, len);
    const struct echi_net_message out = {.kind = (int)kind, .meta = meta, .meta_len = 2 + len};
    struct ech_error why;
    ech_status status = echi_wire_send(n->wire, to, &out, &why);
    settle(n, status, &why);
}

static void note_coded(struct echi_node *n, int kind, size_t coded, size_t dense) {
    const int at = kind == ECHI_KIND_PUSH ? 0 : 2;
    n->coded[at] += coded;
    n->coded[at + 1] += dense;
}

static void send_times(struct echi_node *n) {
    uint8_t body[ECHI_TIMES_BYTES_MAX];
    echi_node_send_body(n, 0, ECHI_KIND_MEASURED, ECHI_ROLE_COORDINATOR, body, echi_times_encode(&n->times, body, sizeof body));
}

static void send_stats(struct echi_node *n) {
    uint8_t body[ECHI_STATS_BYTES];
    echi_node_stats(n, body);
    echi_node_send_body(n, 0, ECHI_KIND_STATS, ECHI_ROLE_COORDINATOR, body, sizeof body);
}

static void do_send(struct echi_node *n, const struct echi_action *a) {
    if (a->kind == ECHI_KIND_MEASURED) return send_times(n);
    if (a->kind == ECHI_KIND_STATS) return send_stats(n);
    if (!echi_kind_has_payload(a->kind)) return send_message(n, a->to, &a->msg, NULL, 0, 0);
    size_t at, len, room;
    echi_node_extent(n, a->kind, &a->msg, a->msg.to_role == ECHI_ROLE_HEAD || a->msg.from_role == ECHI_ROLE_HEAD, &at, &len);
    const uint8_t *base = echi_exec_slot(n->exec, a->slot, &room);
    if (!base || at + len > room) {
        struct ech_error why;
        return settle(n, echi_fail(&why, ECH_E_INTERNAL, "run.send", "a %s message has no slot to send from", echi_kind_name(a->kind)),
                      &why);
    }
    const size_t dense = echi_job_coded(&n->setup.plan, a->kind) ? len - echi_coded_most(0) : len;
    len = echi_job_length(&n->setup.plan, a->kind, base + at, len);
    if (a->to != n->rank && echi_job_coded(&n->setup.plan, a->kind)) note_coded(n, a->kind, len, dense);
    const bool given = a->slot.kind == ECHI_SLOT_WORKER_GRADS && echi_exec_gives(n->exec);
    const void *payload = given ? echi_exec_payload(n->exec, (enum echi_kind)a->kind, a->slot, a->msg.part, a->to == n->rank) : base + at;
    send_message(n, a->to, &a->msg, payload, len, cookie_of((enum echi_role)a->msg.from_role, a->slot));
}

static void post_named(struct echi_node *n, const struct echi_action *a, enum echi_role role, int name, size_t at, size_t len) {
    const bool borrows = echi_lends(&n->setup.plan, a->to, n->rank, (enum echi_kind)a->kind);   /* then it has no memory of its own */
    size_t room;
    uint8_t *base = borrows ? NULL : echi_exec_slot(n->exec, echi_node_landing(n, a->kind, a->slot), &room);
    struct ech_error why;
    const uint64_t cookie = cookie_of(role, a->slot);
    ech_status status = borrows ? echi_wire_post(n->wire, a->to, a->kind, name, NULL, len, cookie, &why)
                        : base && at + len <= room ? echi_wire_post(n->wire, a->to, a->kind, name, base + at, len, cookie, &why)
                        : echi_fail(&why, ECH_E_INTERNAL, "run.post", "a %s message has no slot to come to", echi_kind_name(a->kind));
    settle(n, status, &why);
}

static void post_bytes(struct echi_node *n, const struct echi_action *a, enum echi_role role, size_t at, size_t len) {
    post_named(n, a, role, 0, at, len);
}

/* A part of a shard comes to its place among all; what else the coordinator asks for, to the front of the slot, and is put in its place
 * when it is here. */
static void post_copy(struct echi_node *n, const struct echi_action *a) {
    const struct echi_msg m = {.kind = ECHI_KIND_PARAMS, .from_role = ECHI_ROLE_OWNER,
                               .part = (uint16_t)echi_posts_part(&n->setup, a, 0)};
    const bool of_shard = a->only && m.part < echi_parts_before(&n->setup.plan.parts, n->setup.cut);
    size_t at = 0, len;
    struct ech_error why;
    const ech_status made = echi_exec_copy_place(n->exec, &why);
    if (made != ECH_OK) return settle(n, made, &why);
    if (of_shard) echi_node_extent(n, a->kind, &m, false, &at, &len);
    else echi_exec_slot(n->exec, a->slot, &len);
    post_named(n, a, ECHI_ROLE_COORDINATOR, echi_msg_name(&m), at, len);
}

/* Nobody reads any more what a slot has borrowed that is posted. */
static void end_loan(struct echi_node *n, struct echi_slot posted) {
    const struct echi_loan ended = echi_loans_end(&n->role.loans, posted);
    const enum echi_kind kind = (enum echi_kind)ended.kind;
    struct ech_error why;
    if (ended.messages > 0)
        settle(n, echi_wire_sent(n->wire, kind, cookie_of(echi_lender_role(kind), ended.lender), ended.messages, &why), &why);
}

/* Sums come round the ring to the owner of their part, and on their way to workers. */
static enum echi_role role_of_sum(const struct echi_node *n, int part) {
    return echi_plan_owns_part(&n->setup.plan, n->rank, part) ? ECHI_ROLE_OWNER : ECHI_ROLE_WORKER;
}

static void do_post(struct echi_node *n, const struct echi_action *a) {
    size_t at, len = 0;
    struct echi_msg m = {.kind = a->kind};
    end_loan(n, a->slot);
    switch (a->slot.kind) {
    case ECHI_SLOT_WORKER_NORM_ALL: return post_bytes(n, a, ECHI_ROLE_WORKER, 0, echi_job_norm_bytes(n->job));
    case ECHI_SLOT_OWNER_NORM: return post_bytes(n, a, ECHI_ROLE_OWNER, 0, echi_job_norm_bytes(n->job));
    case ECHI_SLOT_HEAD_ROWS: m.lease.n = echi_micro_most(&n->setup.plan, echi_plan_room(&n->setup.plan, a->to)); break;
    case ECHI_SLOT_WORKER_ACT_GRAD: m.lease.n = echi_micro_most(&n->setup.plan, echi_plan_room(&n->setup.plan, n->rank)); break;
    case ECHI_SLOT_COORD_PARAMS: return post_copy(n, a);
    case ECHI_SLOT_NODE_FINAL: m.flag = ECHI_PARAMS_FINAL; break;
    case ECHI_SLOT_OWNER_MOMENTUM:
    case ECHI_SLOT_HEAD_MOMENTUM: m.flag = ECHI_PARAMS_MOMENTUM; break;
    default: break;
    }
    static const uint8_t role[ECHI_SLOT_KINDS] = {
        [ECHI_SLOT_WORKER_WEIGHTS] = ECHI_ROLE_WORKER, [ECHI_SLOT_WORKER_ACT_GRAD] = ECHI_ROLE_WORKER,
        [ECHI_SLOT_OWNER_WEIGHTS] = ECHI_ROLE_OWNER, [ECHI_SLOT_OWNER_GRADS] = ECHI_ROLE_OWNER,
        [ECHI_SLOT_OWNER_W0] = ECHI_ROLE_OWNER, [ECHI_SLOT_OWNER_PEER] = ECHI_ROLE_OWNER, [ECHI_SLOT_HEAD_ROWS] = ECHI_ROLE_HEAD,
        [ECHI_SLOT_HEAD_WEIGHTS] = ECHI_ROLE_HEAD, [ECHI_SLOT_HEAD_MOMENTUM] = ECHI_ROLE_HEAD, [ECHI_SLOT_OWNER_MOMENTUM] = ECHI_ROLE_OWNER,
        [ECHI_SLOT_HEAD_SUM] = ECHI_ROLE_HEAD, [ECHI_SLOT_NODE_FINAL] = ECHI_ROLE_NODE,
        [ECHI_SLOT_WORKER_COMING] = ECHI_ROLE_WORKER, [ECHI_SLOT_OWNER_PEER_CODED] = ECHI_ROLE_OWNER,
    };
    const bool of_head = a->slot.kind == ECHI_SLOT_HEAD_WEIGHTS || a->slot.kind == ECHI_SLOT_HEAD_MOMENTUM;
    for (int i = 0; i < echi_posts(&n->setup, a); i++) {
        m.part = (uint16_t)echi_posts_part(&n->setup, a, i);
        echi_node_extent(n, a->kind, &m, of_head, &at, &len);
        const enum echi_role to = a->slot.kind == ECHI_SLOT_RING ? role_of_sum(n, m.part) : (enum echi_role)role[a->slot.kind];
        post_named(n, a, to, echi_msg_name(&m), at, len);
    }
}

static void send_plan(struct echi_node *n) {
    uint8_t body[ECHI_PLAN_BYTES_MAX];
    size_t len = echi_plan_encode(&n->setup.plan, body, sizeof body);
    echi_coordinator_judge(n->role.coordinator);
    if (n->world > 1) echi_choice_log(n->c->config, n->role.coordinator, n->job);
    for (int r = 0; r < n->world; r++) echi_node_send_body(n, r, ECHI_KIND_PLAN, ECHI_ROLE_NODE, body, len);
    if (n->c->config->save_plan[0]) {
        ech_status status = echi_plan_save(n->c->config->save_plan, &n->setup.plan, n->role.coordinator->times, n->err);
        if (status != ECH_OK) echi_node_give_up(n, status);
    }
}

/* What a checkpoint has beside what was gathered for it: no memory of lost owners, and where weights alone are left, these. */
static void fill_kept(struct echi_node *n, const struct echi_task *task) {
    const struct echi_plan *p = &n->role.coordinator->plan;
    const bool alone = task->weights.kind != ECHI_SLOT_COORD_KEPT;
    if (alone)
        memcpy(echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_KEPT, 0}, NULL), echi_exec_slot(n->exec, task->weights, NULL),
               n->job->n_params * sizeof(echi_real));
    for (int g = 0; g < p->n_groups; g++) {
        float *memory = echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)(1 + g)}, NULL);
        if (alone) memset(memory, 0, echi_job_memory_bytes(n->job, echi_plan_owner_optimizer(p)));
        else if (!echi_plan_group_lives(p, g)) echi_checkpoint_forget(n->job, p, memory);
    }
}

static bool is_of_step(const struct echi_task *task) {
    return task->kind == ECHI_TASK_STEP || task->kind == ECHI_TASK_FORWARD || task->kind == ECHI_TASK_BACKWARD;
}

/* Steps of a session are its caller's, who hears of what the head has answered with the task that goes on from there. */
static void to_caller(struct echi_node *n, const struct echi_task *task) {
    const struct echi_user_lane *user = n->c->user;
    const struct echi_flight *s = &n->role.worker->flight[task->flight];
    if (task->kind == ECHI_TASK_BACKWARD) user->answer(user->self, s->loss, s->correct);
    user->submit(user->self, task);
}

static void do_compute(struct echi_node *n, const struct echi_task *task) {
    if (n->c->user && is_of_step(task)) return to_caller(n, task);
    if (task->kind == ECHI_TASK_KEEP) {
        fill_kept(n, task);
        return echi_checkpoints_submit(n->c->checkpoints, task, &n->role.coordinator->standing);
    }
    ech_status status = echi_lane_submit(n->lane, task, n->err);
    if (status != ECH_OK) echi_node_give_up(n, status);
}

/* A role that refuses a message says that its sender broke a rule; it has changed nothing. */
static void do_fault(struct echi_node *n, const struct echi_event *e, const struct echi_action *a) {
    const bool broke = e->type == ECHI_EVENT_MESSAGE && e->from != n->rank;
    n->wrong.is = true;
    n->wrong.broke = broke;
    n->wrong.peer = e->from;
    n->wrong.status = (ech_status)a->msg.layer;
    if (broke) snprintf(n->wrong.text, sizeof n->wrong.text, "rank %d, to rank %d: %s", e->from, n->rank, a->msg.text);
    else snprintf(n->wrong.text, sizeof n->wrong.text, "%s", a->msg.text);
}

static void do_hold(struct echi_node *n, bool hold) {
    n->held_asked = hold;
    echi_lane_hold(n->lane, hold);
}

static void do_final(struct echi_node *n) {
    n->c->user->final(n->c->user->self, echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_NODE_FINAL, 0}, NULL));
}

static void do_leave(struct echi_node *n, const struct echi_action *a) {
    echi_node_leaves(n, &a->msg);
    echi_node_give_up(n, (ech_status)a->msg.layer);
}

static void perform(struct echi_node *n, const struct echi_event *e, struct echi_actions *list) {
    if (list->overflow) {
        echi_fail(n->err, ECH_E_INTERNAL, "run.perform", "a role asked for more than %d things at once", ECHI_ACTIONS_MAX);
        echi_node_give_up(n, ECH_E_INTERNAL);
    }
    for (int i = 0; i < list->count && !n->over; i++) {
        const struct echi_action *a = &list->list[i];
        switch ((enum echi_action_type)a->type) {
        case ECHI_ACTION_SEND: do_send(n, a); break;
        case ECHI_ACTION_POST: do_post(n, a); break;
        case ECHI_ACTION_COMPUTE: do_compute(n, &a->task); break;
        case ECHI_ACTION_PLAN: send_plan(n); break;
        case ECHI_ACTION_FAULT: do_fault(n, e, a); break;
        case ECHI_ACTION_DONE:
            echi_end_sentence(n->role.coordinator, n->c->config, n->err);
            echi_node_give_up(n, n->role.coordinator->status);
            break;
        case ECHI_ACTION_MEASURE: echi_node_measure(n); break;
        case ECHI_ACTION_SLOTS: echi_node_make_slots(n); break;
        case ECHI_ACTION_HOLD: do_hold(n, true); break;
        case ECHI_ACTION_RELEASE: do_hold(n, false); break;
        case ECHI_ACTION_DROP: echi_wire_drop(n->wire, a->to); break;
        case ECHI_ACTION_FINAL: do_final(n); break;
        case ECHI_ACTION_LEAVE: do_leave(n, a); break;
        }
    }
}

/* An event of its own, which takes the list's place. */
static void tell_wrong(struct echi_node *n) {
    if (!n->wrong.is || n->over) return;
    n->wrong.is = false;
    struct echi_event e = {.type = n->wrong.broke ? ECHI_EVENT_BROKE : ECHI_EVENT_FAILED, .from = (uint16_t)n->wrong.peer,
                           .status = n->wrong.status, .text = n->wrong.text};
    echi_node_event(n, ECHI_ROLE_NODE, &e);
}
