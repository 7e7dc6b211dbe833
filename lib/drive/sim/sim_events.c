/* SPDX-License-Identifier: Apache-2.0
 * What happens to nodes: the start, messages, finished tasks, deaths. The live driver's half of this is lib/drive/live/node_events.c. */
#include "echi_sim.h"
#include "echi_config_log.h"
#include "echi_error.h"
#include "echi_silence.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- silence */

/* When rank 0 would take a node for lost that spoke for the last time now: it has heard its heartbeats until then, and nothing else
 * counts, since words come more often than heartbeats. */
static int64_t noticed_at(const struct echi_sim *s) {
    const struct echi_patience patience = echi_patience_of((int64_t)(s->config->deadline * 1e9));
    const int64_t beats = (echi_sim_now(s) - s->ready_at) / patience.beat, last = s->ready_at + beats * patience.beat;
    struct echi_silence silence;
    echi_silence_begin(&silence, &patience, s->ready_at);
    for (int64_t b = 1; b <= beats && b <= 1000; b++) echi_silence_word(&silence, &patience, s->ready_at + b * patience.beat);
    return last + echi_silence_bound(&silence, &patience);
}

static void expect_notice(struct echi_sim *s, int rank) {
    echi_cost_timer(s->cost, noticed_at(s), 0, echi_sim_timer(ECHI_SIM_NOTICED, (uint32_t)rank));
}

/* -------------------------------------------------------------- beginning */

static void tell(struct echi_sim *s, int rank, enum echi_event_type type) {
    echi_sim_event(s, rank, ECHI_ROLE_NODE, &(struct echi_event){.type = (uint8_t)type});
}

/* All have joined. */
static void ready(struct echi_sim *s) {
    s->ready_at = echi_sim_now(s);
    for (int r = 0; r < s->world; r++) {
        if (s->node[r].dead) expect_notice(s, r);   /* it died before the others were there */
        else tell(s, r, ECHI_EVENT_START);
    }
}

/* Nobody measures: each says at once what its host takes. */
void echi_sim_measured(struct echi_sim *s, int rank) {
    s->node[rank].measures = false;
    tell(s, rank, ECHI_EVENT_MEASURED);
}

static bool new_role(struct echi_sim *s, void *out, size_t size) {
    void *p = calloc(1, size);
    memcpy(out, &p, sizeof p);
    if (!p) echi_sim_no_memory(s);
    return p;
}

static bool stand_roles(struct echi_sim *s, int rank) {
    struct echi_node_role *n = &s->node[rank].role;
    const struct echi_plan *p = &s->node[rank].setup.plan;
    return (!echi_plan_hosts(p, rank, ECHI_ROLE_WORKER) || new_role(s, &n->worker, sizeof *n->worker)) &&
           (!echi_plan_hosts(p, rank, ECHI_ROLE_OWNER) || new_role(s, &n->owner, sizeof *n->owner)) &&
           (!echi_plan_hosts(p, rank, ECHI_ROLE_HEAD) || new_role(s, &n->head, sizeof *n->head));
}

static ech_status stand_slots(struct echi_sim *s, int rank) {
    struct echi_sim_node *n = &s->node[rank];
    if (!s->real) return ECH_OK;
    ECHI_TRY(echi_exec_setup(n->exec, &n->setup, s->err));
    if (rank == 0) memcpy(echi_sim_params(s), s->params, s->job->n_params * sizeof(echi_real));
    return ECH_OK;
}

/* The role of a head, where its layers are about to come here. */
static bool stand_later_head(struct echi_sim *s, int rank) {
    struct echi_node_role *n = &s->node[rank].role;
    echi_node_role_next(n, &s->next);
    return n->head || s->next.coming != 1 + rank || new_role(s, &n->head, sizeof *n->head);
}

/* At once: how long a host takes to make them is not known. */
void echi_sim_make_slots(struct echi_sim *s, int rank) {
    struct echi_sim_node *n = &s->node[rank];
    const bool first = !n->role.planned;
    ech_status status = ECH_OK;
    n->makes = false;
    if (first) {
        echi_job_setup(s->job, &n->setup.plan, rank, &n->setup);
        if (rank == 0) echi_sim_make_shapes(s);
        status = stand_slots(s, rank);
    } else if (s->real) {
        echi_node_role_next(&n->role, &s->next);
        status = echi_exec_regroup(n->exec, &s->next, s->err);
        if (status == ECH_OK && s->next.coming == 1 + rank) status = echi_exec_later_head(n->exec, &s->next, s->err);
    }
    if (status != ECH_OK) return echi_sim_end(s, status);
    if (first ? stand_roles(s, rank) : stand_later_head(s, rank)) tell(s, rank, ECHI_EVENT_SLOTS);
}

/* ------------------------------------------------------------------ losses */

static void die(struct echi_sim *s, int rank) {
    s->node[rank].dead = true;
    echi_cost_kill(s->cost, rank);
    if (rank == 0) {
        echi_fail_at(s->err, ECH_E_PEER_LOST, "sim", 0, NULL, "rank 0 died: without the coordinator the run ends");
        return echi_sim_end(s, ECH_E_PEER_LOST);
    }
    if (s->ready_at > 0) expect_notice(s, rank);
}

static void noticed(struct echi_sim *s, int rank) {
    s->rank_died = rank;
    echi_config_log(s->config, ECH_LOG_WARN, "rank %d has died: nothing was heard of it for too long", rank);
    echi_sim_event(s, 0, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_LOST, .from = (uint16_t)rank});
}

/* ---------------------------------------------------------------- messages */

/* A part of the weights for an evaluation, from the place where it came in to its place among all. */
static void place_params(struct echi_sim *s, const struct echi_transit *f, const struct echi_msg *m) {
    struct echi_exec *x = s->node[0].exec;
    if (!s->real) return;
    const uint8_t *from = echi_exec_slot(x, f->place, NULL);
    const struct echi_plan *p = &s->node[0].setup.plan;
    echi_job_take_params(s->job, p, f->from, m, from + f->at, echi_exec_slot(x, echi_job_params_slot(p, m), NULL));
}

static void to_coordinator(struct echi_sim *s, const struct echi_transit *f, const struct echi_msg *m, const uint8_t *body, size_t len) {
    struct echi_times times;
    if (m->kind == ECHI_KIND_PARAMS) place_params(s, f, m);
    if (m->kind != ECHI_KIND_MEASURED || !echi_times_decode(body, len, &times)) return;
    echi_report_times(s->report, f->from, &times);
}

static void on_arrived(struct echi_sim *s, uint32_t id) {
    const struct echi_transit *f = echi_records_at(&s->transits, id);
    const uint8_t *meta = f->more ? f->more : f->meta;
    struct echi_msg m;
    if (!echi_msg_decode(f->kind, meta, f->meta_len, &m)) {
        echi_fail(s->err, ECH_E_INTERNAL, "sim.message", "a %s message from rank %d to rank %d is malformed", echi_kind_name(f->kind),
                  f->from, f->to);
        return echi_sim_end(s, ECH_E_INTERNAL);
    }
    if (s->node[f->to].role.gone[f->from]) return;   /* what was on its way */
    if (m.kind == ECHI_KIND_REGROUP && f->to == 0) echi_move_log(s->config, s->coordinator, &m);
    if (m.kind == ECHI_KIND_HEADS && f->to == 0) echi_homes_log(s->config, s->coordinator, &s->node[0].setup.plan, &m);
    if (m.to_role == ECHI_ROLE_COORDINATOR) to_coordinator(s, f, &m, meta + 2, f->meta_len - 2);
    struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = f->from, .msg = &m, .bytes = meta + 2, .len = f->meta_len - 2,
                           .slot = f->place};
    if (echi_lends(&s->node[f->to].setup.plan, f->from, f->to, (enum echi_kind)f->kind))
        echi_loans_begin(&s->node[f->to].role.loans, (enum echi_kind)f->kind, f->place, f->slot);
    echi_sim_event(s, f->to, (enum echi_role)m.to_role, &e);
}

static void on_sent(struct echi_sim *s, uint32_t id) {
    const struct echi_transit *f = echi_records_at(&s->transits, id);
    if (!f->payload || s->node[f->from].dead || echi_lends(&s->node[f->to].setup.plan, f->from, f->to, (enum echi_kind)f->kind)) return;
    struct echi_event e = {.type = ECHI_EVENT_SENT, .from = f->to, .kind = f->kind, .slot = f->slot};
    echi_sim_event(s, f->from, (enum echi_role)f->role, &e);
}

static void on_returned(struct echi_sim *s, int rank, enum echi_kind kind, struct echi_slot lender) {
    if (s->node[rank].dead) return;
    struct echi_event e = {.type = ECHI_EVENT_SENT, .from = (uint16_t)rank, .kind = (uint8_t)kind, .slot = lender};
    echi_sim_event(s, rank, echi_lender_role(kind), &e);
}

/* ------------------------------------------------------------------- rates */

/* What this host's link has carried, where that comes to a window. */
static void tell_rates(struct echi_sim *s, int rank) {
    double bytes, seconds;
    if (!echi_cost_has_carried(s->cost, rank, ECHI_SEEN_WINDOW * 1e-9)) return;
    for (int in = 0; in < 2 && !s->node[rank].dead && !s->over; in++)
        if (echi_cost_carried(s->cost, rank, in, ECHI_SEEN_WINDOW * 1e-9, &bytes, &seconds))
            echi_sim_event(s, rank, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_RATE, .from = (uint16_t)rank, .flag = in,
                                                                         .rate = bytes / seconds});
}

/* -------------------------------------------------------------- all there is */

static void on_timer(struct echi_sim *s, int rank, uint64_t cookie) {
    const uint32_t id = (uint32_t)cookie;
    switch ((enum echi_sim_timer)(cookie >> 32)) {
    case ECHI_SIM_READY: ready(s); break;
    case ECHI_SIM_DIES: die(s, (int)id); break;
    case ECHI_SIM_NOTICED: noticed(s, (int)id); break;
    case ECHI_SIM_SENT_BACK:
        on_sent(s, id);
        echi_sim_free_transit(s, id);
        break;
    case ECHI_SIM_RETURNS:
        on_returned(s, rank, (enum echi_kind)(id >> 24), (struct echi_slot){(uint8_t)(id >> 16), (uint16_t)id});
        break;
    }
}

/* What goes to another node is sent before it arrives, what stays here arrives first (cost engine): the second is the end of it. */
static void leaves_wire(struct echi_sim *s, uint32_t id, bool sent) {
    const struct echi_transit *f = echi_records_at(&s->transits, id);
    if ((f->from == f->to) == sent) echi_sim_free_transit(s, id);
}

void echi_sim_happened(struct echi_sim *s, const struct echi_happening *h) {
    const uint32_t id = (uint32_t)h->cookie;
    switch (h->type) {
    case ECHI_HAPPENS_MARK: echi_sim_on_mark(s, id, h->unit); break;
    case ECHI_HAPPENS_DONE: echi_sim_on_done(s, id); break;
    case ECHI_HAPPENS_HELD: tell(s, h->host, ECHI_EVENT_HELD); break;
    case ECHI_HAPPENS_TIMER: on_timer(s, h->host, h->cookie); break;
    case ECHI_HAPPENS_SENT:
        on_sent(s, id);
        leaves_wire(s, id, true);
        tell_rates(s, h->host);
        break;
    case ECHI_HAPPENS_ARRIVED:
        on_arrived(s, id);
        leaves_wire(s, id, false);
        tell_rates(s, h->host);
        break;
    }
}
