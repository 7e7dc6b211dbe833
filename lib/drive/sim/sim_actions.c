/* SPDX-License-Identifier: Apache-2.0
 * Events into roles, and their actions made true. The live driver's half of this is lib/drive/live/node_actions.c. */
#include "echi_sim.h"
#include "echi_error.h"
#include "echi_priority.h"
#include "echi_ratio.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- messages */

void echi_sim_free_transit(struct echi_sim *s, uint32_t id) {
    struct echi_transit *f = echi_records_at(&s->transits, id);
    free(f->more);
    f->more = NULL;
    echi_records_give(&s->transits, id);
}

/* A transit with room for its message; NULL, and the run has failed, without memory. */
static struct echi_transit *new_transit(struct echi_sim *s, int from, int to, int kind, size_t meta_len, uint32_t *out_id) {
    const uint32_t id = echi_records_take(&s->transits);
    struct echi_transit *f = id == ECHI_NOTHING ? NULL : echi_records_at(&s->transits, id);
    if (f) {
        memset(f, 0, offsetof(struct echi_transit, meta));
        f->from = (uint16_t)from;
        f->to = (uint16_t)to;
        f->kind = (uint8_t)kind;
        f->meta_len = (uint32_t)meta_len;
        if (meta_len <= sizeof f->meta || (f->more = malloc(meta_len))) {
            *out_id = id;
            return f;
        }
        echi_records_give(&s->transits, id);
    }
    echi_sim_no_memory(s);
    return NULL;
}

static void depart(struct echi_sim *s, uint32_t id) {
    const struct echi_transit *f = echi_records_at(&s->transits, id);
    echi_sim_count(s, f);
    echi_cost_send(s->cost, f->from, f->to, f->priority, echi_sim_wire_bytes(f->meta_len, 0), 0, id);
}

/* What a coded message comes to where nothing is computed. */
static size_t expected(const struct echi_sim *s, const struct echi_transit *f, const struct echi_msg *m) {
    const struct echi_plan *p = &s->node[f->from].setup.plan;
    const bool whole = m->kind == ECHI_KIND_PUSH ? f->from == f->to : m->flag;
    const uint32_t ratio = m->kind == ECHI_KIND_PUSH ? echi_lease_ratio(p, p->group_of[f->from], &m->lease) : p->state_ratio;
    return (size_t)echi_coded_bytes((f->len - echi_coded_most(0)) / sizeof(echi_real), whole ? ECHI_RATIO_ONE : ratio);
}

/* Under a codec `len` has been the longest that it may be: the message is as long as what is written in it. */
static void shorten(struct echi_sim *s, struct echi_transit *f, const struct echi_msg *m, const uint8_t *slot) {
    const struct echi_plan *p = &s->node[f->from].setup.plan;
    const size_t dense = f->len - echi_coded_most(0);
    if (!echi_job_coded(p, m->kind)) return;
    f->len = slot ? echi_job_length(p, m->kind, slot + f->at, f->len) : expected(s, f, m);
    if (f->from == f->to) return;
    s->coded[m->kind == ECHI_KIND_PUSH ? 0 : 2] += f->len;
    s->coded[m->kind == ECHI_KIND_PUSH ? 1 : 3] += dense;
}

static bool find_payload(struct echi_sim *s, struct echi_transit *f, const struct echi_msg *m, struct echi_slot slot) {
    const struct echi_sim_node *n = &s->node[f->from];
    size_t room = 0;
    echi_job_extent(s->job, &n->setup.plan, m->kind, m, m->to_role == ECHI_ROLE_HEAD || m->from_role == ECHI_ROLE_HEAD, &f->at, &f->len);
    f->payload = true;
    f->slot = slot;
    f->role = m->from_role;
    const uint8_t *from = s->real ? echi_exec_slot(n->exec, slot, &room) : NULL;
    if (s->real && (!from || f->at > room || f->len > room - f->at)) return false;
    shorten(s, f, m, from);
    return true;
}

void echi_sim_send(struct echi_sim *s, int from, int to, const struct echi_msg *m, struct echi_slot slot) {
    uint8_t meta[ECHI_MSG_MAX];
    const size_t len = echi_msg_encode(m, meta, sizeof meta);
    uint32_t id;
    struct echi_transit *f = new_transit(s, from, to, m->kind, len, &id);
    if (!f) return;
    memcpy(f->more ? f->more : f->meta, meta, len);
    f->name = echi_msg_name(m);
    f->priority = echi_msg_priority(&s->node[from].setup.plan, m);
    const bool payload = echi_kind_has_payload(m->kind);
    if (len == 0 || (payload && !find_payload(s, f, m, slot))) {
        echi_fail(s->err, ECH_E_INTERNAL, "sim.send", "rank %d's %s message does not fit, or has no slot to send from", from,
                  echi_kind_name(m->kind));
        return echi_sim_end(s, ECH_E_INTERNAL);
    }
    if (!payload) return depart(s, id);
    if (s->node[from].role.gone[to]) echi_cost_timer(s->cost, echi_sim_now(s), from, echi_sim_timer(ECHI_SIM_SENT_BACK, id));
    else echi_sim_wait_for_place(s, id);
}

void echi_sim_send_body(struct echi_sim *s, int from, int to, enum echi_kind kind, enum echi_role to_role, const uint8_t *body,
                        size_t len) {
    uint32_t id;
    struct echi_transit *f = new_transit(s, from, to, (int)kind, 2 + len, &id);
    if (!f) return;
    uint8_t *meta = f->more ? f->more : f->meta;
    meta[0] = (uint8_t)to_role;
    meta[1] = ECHI_ROLE_NODE;
    if (len) memcpy(meta + 2, body, len);
    depart(s, id);
}

/* ---------------------------------------------------------------- actions */

static void send_plan(struct echi_sim *s) {
    const struct echi_plan *plan = &s->node[0].setup.plan;
    uint8_t body[ECHI_PLAN_BYTES_MAX];
    const size_t len = echi_plan_encode(plan, body, sizeof body);
    echi_coordinator_judge(s->coordinator);
    if (s->world > 1) echi_choice_log(s->config, s->coordinator, s->job);
    for (int r = 0; r < s->world; r++) echi_sim_send_body(s, 0, r, ECHI_KIND_PLAN, ECHI_ROLE_NODE, body, len);
    if (!s->config->save_plan[0]) return;
    ech_status status = echi_plan_save(s->config->save_plan, plan, s->coordinator->times, s->err);
    if (status != ECH_OK) echi_sim_end(s, status);
}

static void send_measured(struct echi_sim *s, int rank) {
    uint8_t body[ECHI_TIMES_BYTES_MAX];
    struct echi_times times;
    echi_sim_times(s, rank, &times);
    echi_sim_send_body(s, rank, 0, ECHI_KIND_MEASURED, ECHI_ROLE_COORDINATOR, body, echi_times_encode(&times, body, sizeof body));
}

/* The node role leaves the bodies of two kinds to its driver. What STATS would say is known here without it. */
static void send(struct echi_sim *s, int rank, const struct echi_action *a) {
    static const uint8_t nothing[ECHI_STATS_BYTES];
    if (a->kind == ECHI_KIND_STATS) echi_sim_send_body(s, rank, 0, ECHI_KIND_STATS, ECHI_ROLE_COORDINATOR, nothing, sizeof nothing);
    else if (a->kind == ECHI_KIND_MEASURED) send_measured(s, rank);
    else echi_sim_send(s, rank, a->to, &a->msg, a->slot);
}

/* A role refuses an event: an event of its own, behind the list. */
static void refuse(struct echi_sim *s, int rank, const struct echi_event *e, const struct echi_action *a) {
    const bool broke = e->type == ECHI_EVENT_MESSAGE && e->from != rank;
    const struct echi_action refused = *a;   /* in the list, which the event takes */
    echi_sim_event(s, rank, ECHI_ROLE_NODE,
                   &(struct echi_event){.type = broke ? ECHI_EVENT_BROKE : ECHI_EVENT_FAILED, .from = e->from,
                                        .status = (ech_status)refused.msg.layer, .text = refused.msg.text});
}

static void perform(struct echi_sim *s, int rank, const struct echi_action *a) {
    switch ((enum echi_action_type)a->type) {
    case ECHI_ACTION_SEND: send(s, rank, a); break;
    case ECHI_ACTION_POST: echi_sim_post(s, rank, a); break;
    case ECHI_ACTION_COMPUTE: echi_sim_compute(s, rank, &a->task); break;
    case ECHI_ACTION_PLAN: send_plan(s); break;
    case ECHI_ACTION_MEASURE: s->node[rank].measures = true; break;
    case ECHI_ACTION_SLOTS: s->node[rank].makes = true; break;
    case ECHI_ACTION_HOLD: echi_cost_hold(s->cost, rank, true); break;
    case ECHI_ACTION_RELEASE: echi_cost_hold(s->cost, rank, false); break;
    case ECHI_ACTION_DROP: echi_sim_forget(s, rank, a->to); break;
    case ECHI_ACTION_FAULT:   /* behind the list */
    case ECHI_ACTION_FINAL:   /* of sessions */
    case ECHI_ACTION_LEAVE: break;
    case ECHI_ACTION_DONE:
        echi_end_sentence(s->coordinator, s->config, s->err);
        echi_sim_end(s, s->coordinator->status);
        break;
    }
}

void echi_sim_event(struct echi_sim *s, int rank, enum echi_role role, struct echi_event *e) {
    struct echi_actions list = {s->action, 0, s->actions_room, false};
    struct echi_sim_node *n = &s->node[rank];
    e->now = n->at = echi_sim_now(s);
    s->role_events++;
    if (!echi_node_role_step(&n->role, role, e, &list)) return;
    if (role == ECHI_ROLE_COORDINATOR) echi_changes_log(s->config, s->coordinator, &s->changes_told);
    if (list.overflow) {
        echi_fail(s->err, ECH_E_INTERNAL, "sim.perform", "a role asked for more than %d things at once", s->actions_room);
        return echi_sim_end(s, ECH_E_INTERNAL);
    }
    const struct echi_action *refused = NULL;
    for (int i = 0; i < list.count && !s->over; i++) {
        perform(s, rank, &list.list[i]);
        if (list.list[i].type == ECHI_ACTION_FAULT) refused = &list.list[i];
    }
    if (refused && !s->over) refuse(s, rank, e, refused);
    if (role == ECHI_ROLE_COORDINATOR && !s->over && echi_coordinator_outlook(s->coordinator, e->now))
        echi_outlook_log(s->config, s->coordinator, &s->changes_told);
    if (n->measures && !s->over) echi_sim_measured(s, rank);
    if (n->makes && !s->over) echi_sim_make_slots(s, rank);
}
