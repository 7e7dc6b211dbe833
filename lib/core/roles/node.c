/* SPDX-License-Identifier: Apache-2.0
 * The node: hosts the roles of its rank, and takes part in the run for all of them (PROTOCOL.md).
 *
 *     START -> MEASURE -> MEASURED            step times go to rank 0
 *     PLAN  -> SLOTS   -> roles start         READY(0)
 *     HOLD  -> (no task runs) -> HELD         RELEASE
 *     LOST, REGROUP -> (slots) -> roles told  READY(members): the barrier of each loss and move
 *     HEADS -> (slots) -> roles told          READY(members)
 *     TAKEOVER -> roles told                  READY(members)
 *     END   -> (final weights) -> STATS       LEAVE
 *
 * Until the slots for a loss or a move are there, this node's roles do not know of it, as if its message were still on its way: before
 * this node has sent READY no lease is dealt and no owner is asked anything. */
#include "echi_roles.h"

#include <string.h>

void echi_node_role_init(struct echi_node_role *n, struct echi_setup *setup, int rank, int world, bool session) {
    memset(n, 0, offsetof(struct echi_node_role, gone));
    memset(n->gone, 0, (size_t)world * sizeof n->gone[0]);
    n->setup = setup;
    n->rank = rank;
    n->world = world;
    n->session = session;
    echi_loans_init(&n->loans, rank);
}

/* ---- what it sends ---- */

static struct echi_msg *send(struct echi_actions *out, enum echi_kind kind) {
    return &echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_NODE, kind)->msg;
}

static void set_text(struct echi_msg *m, const char *text) {
    const size_t len = text ? strlen(text) : 0, most = sizeof m->text - 1;
    memcpy(m->text, text ? text : "", len < most ? len : most);
}

/* This node cannot go on, or `peer` is not what it should be. */
static void fault(ech_status status, int peer, const char *text, struct echi_actions *out) {
    struct echi_msg *m = send(out, ECHI_KIND_FAULT);
    m->layer = (uint16_t)status;
    m->peer = (uint16_t)peer;
    set_text(m, text);
}

/* The roles here know of all losses and moves up to this membership epoch; 0: they stand. */
static void ready(uint32_t members, bool full, struct echi_actions *out) {
    struct echi_msg *m = send(out, ECHI_KIND_READY);
    m->members = members;
    m->flag = full;
}

static void drop(int peer, struct echi_actions *out) { echi_act(out, ECHI_ACTION_DROP)->to = (uint16_t)peer; }

static void leave(struct echi_node_role *n, const struct echi_msg *why, struct echi_actions *out) {
    n->over = true;
    echi_act(out, ECHI_ACTION_LEAVE)->msg = *why;
}

/* ---- the roles here ---- */

static bool pass(struct echi_node_role *n, enum echi_role role, const struct echi_event *e, struct echi_actions *out) {
    switch (role) {
    case ECHI_ROLE_COORDINATOR:
        if (n->coordinator) echi_coordinator_step(n->coordinator, e, out);
        return n->coordinator != NULL;
    case ECHI_ROLE_WORKER:
        if (n->worker) echi_worker_step(n->worker, e, out);
        return n->worker != NULL;
    case ECHI_ROLE_OWNER:
        if (n->owner) echi_owner_step(n->owner, e, out);
        return n->owner != NULL;
    case ECHI_ROLE_HEAD:
        if (n->head) echi_head_step(n->head, e, out);
        return n->head != NULL;
    case ECHI_ROLE_NODE:
    case ECHI_ROLES: break;
    }
    return false;
}

/* The order of the posts for the coordinator's PARAMS is the order in which it sends them: owner, head, final. */
static void pass_to_all(struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    static const enum echi_role role[] = {ECHI_ROLE_OWNER, ECHI_ROLE_HEAD, ECHI_ROLE_WORKER};
    for (size_t i = 0; i < sizeof role / sizeof role[0]; i++) pass(n, role[i], e, out);
}

static void to_coordinator(struct echi_node_role *n, enum echi_event_type type, const struct echi_event *e, struct echi_actions *out) {
    struct echi_msg m = {.kind = ECHI_KIND_LOST, .peer = e->from};
    set_text(&m, e->text);
    pass(n, ECHI_ROLE_COORDINATOR,
         &(struct echi_event){.type = (uint8_t)type, .from = e->from, .now = e->now, .msg = type == ECHI_EVENT_LOST ? &m : NULL}, out);
}

/* ---- the plan ---- */

static void on_plan(struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    struct echi_plan *plan = &n->setup->plan;   /* no role reads it yet */
    if (n->making || n->planned || !echi_plan_decode(e->bytes, e->len, plan) || plan->world != n->world)
        return fault(ECH_E_FORMAT, n->rank, "the plan that came does not fit this node", out);
    n->making = true;
    echi_act(out, ECHI_ACTION_SLOTS);
}

/* Nobody sends the roles anything before this node has said that it is ready. */
static void begin(struct echi_node_role *n, int64_t now, struct echi_actions *out) {
    n->planned = true;
    if (n->owner) echi_owner_init(n->owner, n->setup, echi_plan_group_owned(&n->setup->plan, n->rank));
    if (n->head) echi_head_init(n->head, n->setup);
    n->heads = n->head != NULL;
    if (n->worker) echi_worker_init(n->worker, n->setup);
    pass_to_all(n, &(struct echi_event){.type = ECHI_EVENT_START, .now = now}, out);
    if (n->session && n->rank != 0) echi_act_post(out, 0, ECHI_KIND_PARAMS, (struct echi_slot){ECHI_SLOT_NODE_FINAL, 0});
    ready(0, false, out);
}

/* ---- losses and moves ---- */

static struct echi_msg told_of(const struct echi_change_told *c) {
    return (struct echi_msg){.kind = c->kind, .peer = c->peer, .group = c->group, .flag = c->flag, .part = c->part, .members = c->members};
}

static bool is_copy_for(const struct echi_node_role *n, const struct echi_change_told *c) {
    return c->kind == ECHI_KIND_HEADS && c->flag == ECHI_HEADS_COPY && c->peer == n->rank;
}

/* refused: the driver has made no slots. */
static void tell(struct echi_node_role *n, bool refused, int64_t now, struct echi_actions *out) {
    static const enum echi_event_type type[ECHI_KINDS] = {[ECHI_KIND_LOST] = ECHI_EVENT_LOST, [ECHI_KIND_REGROUP] = ECHI_EVENT_MOVED,
                                                          [ECHI_KIND_HEADS] = ECHI_EVENT_HEADS};
    const struct echi_change_told c = n->change[0];
    const struct echi_msg m = told_of(&c);
    memmove(&n->change[0], &n->change[1], (size_t)--n->changes * sizeof n->change[0]);
    echi_plan_told(&n->setup->plan, &m);
    const bool begins = is_copy_for(n, &c) && !n->heads, full = begins && (refused || !n->head);
    if (begins && !full) {
        echi_head_init(n->head, n->setup);
        n->heads = true;
    }
    pass_to_all(n, &(struct echi_event){.type = (uint8_t)type[c.kind], .from = c.peer, .now = now, .msg = &m}, out);
    ready(c.members, full, out);
}

/* Places for the gradients of workers that join this owner, and for the weights of another owner; with shards for those of the own worker
 * and for a sum, where they had none. */
static bool needs_slots(const struct echi_node_role *n, const struct echi_change_told *c) {
    const struct echi_plan *p = &n->setup->plan;
    const int owned = echi_plan_group_owned(p, n->rank);
    if (c->kind == ECHI_KIND_HEADS) return is_copy_for(n, c) && !n->heads;   /* who was the head, or its shadow, has them still */
    if (p->shards) return echi_plan_grads_in_weights(p);   /* else who takes over has all it needs */
    if (c->kind == ECHI_KIND_REGROUP) return c->peer == n->rank || owned == c->group;
    return owned >= 0 && echi_plan_group_owned(p, c->peer) >= 0;
}

static void tell_changes(struct echi_node_role *n, int64_t now, struct echi_actions *out) {
    for (; n->planned && !n->making && n->changes > 0; tell(n, false, now, out)) {
        const struct echi_change_told *c = &n->change[0];
        if (!needs_slots(n, c)) continue;
        n->making = true;
        echi_act(out, ECHI_ACTION_SLOTS);
        return;
    }
}

void echi_node_role_next(const struct echi_node_role *n, struct echi_plan *out) {
    const struct echi_msg next = told_of(&n->change[0]);
    *out = n->setup->plan;
    if (n->planned && n->changes > 0) echi_plan_told(out, &next);
}

static void on_slots(struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    if (!n->making) return;
    n->making = false;
    if (n->planned) tell(n, e->flag, e->now, out);
    else begin(n, e->now, out);
    tell_changes(n, e->now, out);
}

static void note_change(struct echi_node_role *n, const struct echi_msg *m, int64_t now, struct echi_actions *out) {
    n->change[n->changes++] =
        (struct echi_change_told){.members = m->members, .peer = m->peer, .part = m->part, .kind = m->kind, .group = m->group,
                                  .flag = m->flag};
    tell_changes(n, now, out);
}

static void on_regroup(struct echi_node_role *n, const struct echi_msg *m, int64_t now, struct echi_actions *out) {
    if (!n->planned || !echi_plan_may_move(&n->setup->plan, m->peer, m->group) || n->changes > n->world)
        return fault(ECH_E_FORMAT, 0, "rank 0 told of a move that does not fit the plan: do all nodes run the same version?", out);
    note_change(n, m, now, out);   /* there is no other before this node has sent READY */
}

/* The separated layers get other nodes. */
static void on_heads(struct echi_node_role *n, const struct echi_msg *m, int64_t now, struct echi_actions *out) {
    if (!n->planned || n->changes > 0 || !echi_plan_may_home(&n->setup->plan, m))
        return fault(ECH_E_FORMAT, 0, "rank 0 told of a head that does not fit the plan: do all nodes run the same version?", out);
    note_change(n, m, now, out);
}

/* The shards of lost owners have new ones. */
static void on_takeover(struct echi_node_role *n, const struct echi_msg *m, int64_t now, struct echi_actions *out) {
    if (!n->planned || n->changes > 0 || !echi_plan_orphaned(&n->setup->plan))
        return fault(ECH_E_FORMAT, 0, "rank 0 told of a takeover that does not fit the plan: do all nodes run the same version?", out);
    echi_plan_told(&n->setup->plan, m);
    pass_to_all(n, &(struct echi_event){.type = ECHI_EVENT_TAKEOVER, .now = now, .msg = m}, out);
    ready(m->members, false, out);
}

/* From here on nothing from that node is taken. The run goes on without it, or (group 1) ends when rank 0 has gathered what is left. */
static void on_lost(struct echi_node_role *n, const struct echi_msg *m, int64_t now, struct echi_actions *out) {
    const int peer = m->peer;
    const bool ends = m->group != 0;
    if (peer >= n->world || peer == n->rank || (n->gone[peer] && !ends)) return;   /* else a takeover has found what is lost with it */
    if (peer == 0 || (n->planned && !ends && !echi_plan_can_lose(&n->setup->plan, peer)))
        return fault(ECH_E_FORMAT, 0, "rank 0 told of a loss that no run outlives: do all nodes run the same version?", out);
    if (!n->gone[peer]) drop(peer, out);
    n->gone[peer] = true;
    if (ends) ready(m->members, false, out);
    else note_change(n, m, now, out);
}

/* What a driver finds is so for rank 0. Another rank complains to rank 0, which decides what follows. Who leaves in order before the end
 * has a reason: the others wait for rank 0's word. */
static void on_unreachable(struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    if (n->gone[e->from]) return;
    if (n->rank == 0) return to_coordinator(n, ECHI_EVENT_LOST, e, out);
    if (e->from == 0) {   /* also when the final weights are still to come */
        struct echi_msg m = {.kind = ECHI_KIND_LOST, .layer = ECH_E_PEER_LOST};
        set_text(&m, e->text);
        return leave(n, &m, out);
    }
    if (!n->ended && !e->flag) fault(ECH_E_PEER_LOST, e->from, e->text, out);
}

/* The peer is lost, and the others go on if they can. Of rank 0 there is only one that could say so. */
static void on_broke(struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    if (n->gone[e->from]) return;
    if (e->from == 0 || e->from == n->rank) return fault(ECH_E_FORMAT, e->from, e->text, out);
    drop(e->from, out);
    on_unreachable(n, e, out);
}

/* ---- the end ---- */

/* The final weights travel behind the END, which is more urgent: a session waits for both. Whether the target was reached is rank 0's to
 * say. */
static void finish(struct echi_node_role *n, struct echi_actions *out) {
    if (!n->ended || (n->session && n->rank != 0 && !n->final_in)) return;
    send(out, ECHI_KIND_STATS);
    if (n->rank == 0) return;   /* its coordinator waits for the STATS of all */
    const ech_status status = n->status == ECH_E_NOT_REACHED ? ECH_OK : n->status;
    leave(n, &(struct echi_msg){.kind = ECHI_KIND_END, .flag = 1, .layer = (uint16_t)status, .peer = ECHI_NO_RANK}, out);
}

static void on_end(struct echi_node_role *n, const struct echi_msg *m, struct echi_actions *out) {
    n->ended = true;
    n->status = (ech_status)m->layer;
    if (n->rank != 0 && !m->flag) leave(n, m, out);   /* only a run that ends in order has final weights to wait for */
    else finish(n, out);
}

/* ---- events ---- */

/* Only the coordinator commands nodes. */
static void on_message(struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (e->from != 0) return;
    switch (m->kind) {
    case ECHI_KIND_HEARTBEAT:   /* is this node there? */
        if (m->from_role == ECHI_ROLE_COORDINATOR) send(out, ECHI_KIND_HEARTBEAT)->number = m->number;
        break;
    case ECHI_KIND_PLAN: on_plan(n, e, out); break;
    case ECHI_KIND_HOLD:
        n->holding = true;
        echi_act(out, ECHI_ACTION_HOLD);
        break;
    case ECHI_KIND_RELEASE:
        n->holding = false;
        echi_act(out, ECHI_ACTION_RELEASE);
        break;
    case ECHI_KIND_LOST: on_lost(n, m, e->now, out); break;
    case ECHI_KIND_REGROUP: on_regroup(n, m, e->now, out); break;
    case ECHI_KIND_HEADS: on_heads(n, m, e->now, out); break;
    case ECHI_KIND_TAKEOVER: on_takeover(n, m, e->now, out); break;
    case ECHI_KIND_PARAMS:
        n->final_in = true;
        echi_act(out, ECHI_ACTION_FINAL);
        finish(n, out);
        break;
    case ECHI_KIND_END: on_end(n, m, out); break;
    default: fault(ECH_E_INTERNAL, e->from, "a node got a message that is not for it", out);
    }
}

/* What a link has carried is for rank 0 to judge. */
static void on_rate(const struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_rate seen = echi_rate_of(e->rate);
    if (!n->planned || n->ended || n->gone[e->from] || !(seen.rate > 0) || !echi_rate_valid(&seen)) return;
    struct echi_msg *m = send(out, ECHI_KIND_RATE);
    m->peer = e->from;
    m->flag = e->flag;
    m->rate = e->rate;
}

static void step(struct echi_node_role *n, const struct echi_event *e, struct echi_actions *out) {
    switch ((enum echi_event_type)e->type) {
    case ECHI_EVENT_START:   /* all have joined */
        to_coordinator(n, ECHI_EVENT_START, e, out);
        echi_act(out, ECHI_ACTION_MEASURE);
        break;
    case ECHI_EVENT_MEASURED: send(out, ECHI_KIND_MEASURED); break;
    case ECHI_EVENT_SLOTS: on_slots(n, e, out); break;
    case ECHI_EVENT_HELD:
        if (n->holding) send(out, ECHI_KIND_HELD);
        n->holding = false;
        break;
    case ECHI_EVENT_MESSAGE: on_message(n, e, out); break;
    case ECHI_EVENT_LOST: on_unreachable(n, e, out); break;
    case ECHI_EVENT_BROKE: on_broke(n, e, out); break;
    case ECHI_EVENT_FAILED:
        if (!n->ended || n->rank == 0) fault(e->status, n->rank, e->text, out);
        break;
    case ECHI_EVENT_STOP:
        if (n->ended) break;
        if (n->rank == 0) to_coordinator(n, ECHI_EVENT_STOP, e, out);
        else send(out, ECHI_KIND_STOP)->flag = e->flag;
        break;
    case ECHI_EVENT_RATE: on_rate(n, e, out); break;
    case ECHI_EVENT_SENT:
    case ECHI_EVENT_GRADIENT:
    case ECHI_EVENT_COMPUTED:
    case ECHI_EVENT_MOVED:
    case ECHI_EVENT_TAKEOVER:
    case ECHI_EVENT_HEADS:
    case ECHI_EVENT_TIME: break;
    }
}

bool echi_node_role_step(struct echi_node_role *n, enum echi_role role, const struct echi_event *e, struct echi_actions *out) {
    const int before = out->count;
    if (e->type == ECHI_EVENT_MESSAGE && n->gone[e->from]) return false;
    if (role == ECHI_ROLE_NODE && n->over) return false;
    if (role == ECHI_ROLE_NODE) step(n, e, out);
    else if (!pass(n, role, e, out)) return false;
    echi_usage_step(&n->usage, e, out->list + before, out->count - before);
    return true;
}
