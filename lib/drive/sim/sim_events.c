/* SPDX-License-Identifier: Apache-2.0
 * What happens to nodes: the start, messages, finished tasks, deaths. The live driver's half of this is lib/drive/live/node_events.c. */
#include "echi_sim.h"
#include "echi_error.h"
#include "echi_silence.h"

#include <stdio.h>
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

/* All have joined. Nobody measures: each says at once what its host takes. */
static void ready(struct echi_sim *s) {
    s->ready_at = echi_sim_now(s);
    echi_sim_event(s, 0, ECHI_ROLE_COORDINATOR, &(struct echi_event){.type = ECHI_EVENT_START});
    for (int r = 0; r < s->world; r++) {
        struct echi_times times;
        uint8_t body[ECHI_TIMES_BYTES_MAX];
        if (s->node[r].dead) {   /* it died before the others were there */
            expect_notice(s, r);
            continue;
        }
        echi_sim_times(s, r, &times);
        echi_sim_send_body(s, r, 0, ECHI_KIND_MEASURED, ECHI_ROLE_COORDINATOR, body, echi_times_encode(&times, body, sizeof body));
    }
}

static bool new_role(struct echi_sim *s, void *out, size_t size) {
    void *p = calloc(1, size);
    memcpy(out, &p, sizeof p);
    if (!p) echi_sim_no_memory(s);
    return p;
}

static bool stand_roles(struct echi_sim *s, int rank) {
    struct echi_sim_node *n = &s->node[rank];
    const struct echi_plan *p = &n->setup.plan;
    const int group = echi_plan_group_owned(p, rank);
    if (p->group_of[rank] != ECHI_NONE) {
        if (!new_role(s, &n->worker, sizeof *n->worker)) return false;
        echi_worker_init(n->worker, &n->setup);
    }
    if (group >= 0) {
        if (!new_role(s, &n->owner, sizeof *n->owner)) return false;
        echi_owner_init(n->owner, &n->setup, group);
    }
    if (p->separated && p->head == rank) {
        if (!new_role(s, &n->head, sizeof *n->head)) return false;
        echi_head_init(n->head, &n->setup);
    }
    return true;
}

static ech_status stand_slots(struct echi_sim *s, int rank) {
    struct echi_sim_node *n = &s->node[rank];
    if (!s->real) return ECH_OK;
    ECHI_TRY(echi_exec_setup(n->exec, &n->setup, s->err));
    if (rank == 0) memcpy(echi_sim_params(s), s->params, s->job->n_params * sizeof(echi_real));
    return ECH_OK;
}

static void on_plan(struct echi_sim *s, int rank, const uint8_t *body, size_t len) {
    struct echi_sim_node *n = &s->node[rank];
    struct echi_plan plan;
    if (!echi_plan_decode(body, len, &plan) || plan.world != s->world) {
        echi_fail(s->err, ECH_E_INTERNAL, "sim.plan", "the plan that came to rank %d does not fit this run", rank);
        return echi_sim_end(s, ECH_E_INTERNAL);
    }
    echi_job_setup(s->job, &plan, rank, &n->setup);
    if (rank == 0) echi_sim_make_shapes(s);
    ech_status status = stand_slots(s, rank);
    if (status != ECH_OK) return echi_sim_end(s, status);
    if (!stand_roles(s, rank)) return;
    n->planned = true;
    /* The order of the posts for the coordinator's PARAMS is the order in which it sends them: owner, head. */
    static const enum echi_role role[] = {ECHI_ROLE_OWNER, ECHI_ROLE_HEAD, ECHI_ROLE_WORKER};
    struct echi_event start = {.type = ECHI_EVENT_START};
    for (size_t i = 0; i < sizeof role / sizeof role[0]; i++) echi_sim_event(s, rank, role[i], &start);
    echi_sim_send_ready(s, rank, 0);
}

/* ------------------------------------------------------------------ losses */

/* The coordinator's word that a node is gone, or that a worker joins another group. */
static void on_changed(struct echi_sim *s, int rank, const struct echi_msg *m) {
    const bool moved = m->kind == ECHI_KIND_REGROUP;
    static const enum echi_role role[] = {ECHI_ROLE_OWNER, ECHI_ROLE_HEAD, ECHI_ROLE_WORKER};
    struct echi_sim_node *n = &s->node[rank];
    if (!moved && m->group) {   /* the run ends with it */
        echi_sim_forget(s, rank, m->peer);
        return echi_sim_send_ready(s, rank, m->members);
    }
    echi_plan_told(&n->setup.plan, m);
    if (moved && rank == 0) echi_move_log(s->config, s->coordinator, m);
    if (s->real) {
        ech_status status = echi_exec_regroup(n->exec, &n->setup.plan, s->err);
        if (status != ECH_OK) return echi_sim_end(s, status);
    }
    if (!moved) echi_sim_forget(s, rank, m->peer);
    struct echi_event e = {.type = moved ? ECHI_EVENT_MOVED : ECHI_EVENT_LOST, .from = m->peer, .msg = m};
    for (size_t i = 0; i < sizeof role / sizeof role[0] && !s->over; i++) echi_sim_event(s, rank, role[i], &e);
    echi_sim_send_ready(s, rank, m->members);
}

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
    if (s->config->on_log) {
        char line[120];
        snprintf(line, sizeof line, "rank %d has died: nothing was heard of it for too long", rank);
        s->config->on_log(s->config->user, ECH_LOG_WARN, line);
    }
    echi_sim_event(s, 0, ECHI_ROLE_COORDINATOR, &(struct echi_event){.type = ECHI_EVENT_LOST, .from = (uint16_t)rank});
}

/* ---------------------------------------------------------------- messages */

/* A part of the weights for a look, from the place where it came in to its place among all. */
static void place_params(struct echi_sim *s, const struct echi_flight *f) {
    struct echi_exec *x = s->node[0].exec;
    if (!s->real) return;
    const uint8_t *from = echi_exec_slot(x, f->place, NULL);
    uint8_t *to = echi_sim_params(s);
    memcpy(to + f->at, from + f->at, f->len);
}

static void to_node(struct echi_sim *s, int rank, const struct echi_msg *m, const uint8_t *body, size_t len) {
    uint8_t stats[ECHI_STATS_BYTES] = {0};
    switch (m->kind) {
    case ECHI_KIND_PLAN: on_plan(s, rank, body, len); break;
    case ECHI_KIND_HOLD: echi_cost_hold(s->cost, rank, true); break;
    case ECHI_KIND_RELEASE: echi_cost_hold(s->cost, rank, false); break;
    case ECHI_KIND_REGROUP:
    case ECHI_KIND_LOST: on_changed(s, rank, m); break;
    /* What it says is known here without it. */
    case ECHI_KIND_END: echi_sim_send_body(s, rank, 0, ECHI_KIND_STATS, ECHI_ROLE_COORDINATOR, stats, sizeof stats); break;
    default:
        echi_fail(s->err, ECH_E_INTERNAL, "sim.message", "rank %d got a %s message that is not for nodes", rank, echi_kind_name(m->kind));
        echi_sim_end(s, ECH_E_INTERNAL);
    }
}

static void to_coordinator(struct echi_sim *s, const struct echi_flight *f, const struct echi_msg *m, const uint8_t *body, size_t len) {
    struct echi_times times;
    if (m->kind == ECHI_KIND_PARAMS) place_params(s, f);
    if (m->kind == ECHI_KIND_MEASURED && echi_times_decode(body, len, &times))
        s->report->step_seconds[f->from] = echi_times_whole(&times, 64);
}

static void on_arrived(struct echi_sim *s, uint32_t id) {
    const struct echi_flight *f = echi_records_at(&s->flights, id);
    const uint8_t *meta = f->more ? f->more : f->meta;
    struct echi_msg m;
    const bool gone = s->node[f->to].setup.plan.lost[f->from];
    if (!gone && !echi_msg_decode(f->kind, meta, f->meta_len, &m)) {
        echi_fail(s->err, ECH_E_INTERNAL, "sim.message", "a %s message from rank %d to rank %d is malformed", echi_kind_name(f->kind),
                  f->from, f->to);
        return echi_sim_end(s, ECH_E_INTERNAL);
    }
    if (gone) return;
    if (m.to_role == ECHI_ROLE_NODE) return to_node(s, f->to, &m, meta + 2, f->meta_len - 2);
    if (m.to_role == ECHI_ROLE_COORDINATOR) to_coordinator(s, f, &m, meta + 2, f->meta_len - 2);
    struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = f->from, .msg = &m, .bytes = meta + 2, .len = f->meta_len - 2,
                           .slot = f->place};
    echi_sim_event(s, f->to, (enum echi_role)m.to_role, &e);
}

static void on_sent(struct echi_sim *s, uint32_t id) {
    const struct echi_flight *f = echi_records_at(&s->flights, id);
    if (!f->payload || s->node[f->from].dead) return;
    struct echi_event e = {.type = ECHI_EVENT_SENT, .from = f->to, .slot = f->slot};
    echi_sim_event(s, f->from, (enum echi_role)f->role, &e);
}

/* -------------------------------------------------------------- all there is */

static void on_timer(struct echi_sim *s, uint64_t cookie) {
    const uint32_t id = (uint32_t)cookie;
    switch ((enum echi_sim_timer)(cookie >> 32)) {
    case ECHI_SIM_READY: ready(s); break;
    case ECHI_SIM_DIES: die(s, (int)id); break;
    case ECHI_SIM_NOTICED: noticed(s, (int)id); break;
    case ECHI_SIM_SENT_BACK:
        on_sent(s, id);
        echi_sim_free_flight(s, id);
        break;
    }
}

/* What goes to another node is sent before it arrives, what stays here arrives first (cost engine): the second is the end of it. */
static void leaves_wire(struct echi_sim *s, uint32_t id, bool sent) {
    const struct echi_flight *f = echi_records_at(&s->flights, id);
    if ((f->from == f->to) == sent) echi_sim_free_flight(s, id);
}

void echi_sim_happened(struct echi_sim *s, const struct echi_happening *h) {
    const uint32_t id = (uint32_t)h->cookie;
    const struct echi_msg held = {.kind = ECHI_KIND_HELD, .to_role = ECHI_ROLE_COORDINATOR, .from_role = ECHI_ROLE_NODE};
    switch (h->type) {
    case ECHI_HAPPENS_MARK: echi_sim_on_mark(s, id, h->unit); break;
    case ECHI_HAPPENS_DONE: echi_sim_on_done(s, id); break;
    case ECHI_HAPPENS_HELD: echi_sim_send(s, h->host, 0, &held, (struct echi_slot){0}); break;
    case ECHI_HAPPENS_TIMER: on_timer(s, h->cookie); break;
    case ECHI_HAPPENS_SENT:
        on_sent(s, id);
        leaves_wire(s, id, true);
        break;
    case ECHI_HAPPENS_ARRIVED:
        on_arrived(s, id);
        leaves_wire(s, id, false);
        break;
    }
}
