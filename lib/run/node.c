/* SPDX-License-Identifier: Apache-2.0
 * The I/O thread of a node: joins the others, hosts the roles, makes their actions true, leaves. */
#include "echi_run.h"
#include "echi_error.h"

#include "echi_bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 64
#define ACTIONS_MAX (8 * ECHI_WORLD_MAX)
#define SECOND INT64_C(1000000000)
#define LINGER (2 * SECOND)      /* for the last messages to leave */
#define GRACE (3 * SECOND)       /* for the coordinator's word on why a peer left */

struct node {
    const struct echi_node_config *c;
    const struct echi_job *job;
    struct ech_report *report;
    struct ech_error *err;
    int rank, world;
    struct echi_wire *wire;
    struct echi_exec *exec;
    struct echi_lane *lane;
    struct echi_setup setup;
    /* roles hosted here */
    struct echi_coordinator *coordinator;     /* rank 0 */
    struct echi_worker *worker;
    struct echi_owner *owner;
    struct echi_head *head;
    bool planned;
    /* measuring at start, on the lane's thread until `measured` */
    bool measuring;
    atomic_bool measured;
    struct echi_times times;
    ech_status measure_status;
    struct ech_error measure_error;
    struct echi_action action[ACTIONS_MAX];
    /* state of the loop */
    bool ready, over, held_asked, final_in, end_in;
    ech_status status;
    int64_t began, looped, heard[ECHI_WORLD_MAX], heartbeat_at, progress_at, leave_by;
    int lost; char lost_text[200];
    struct ech_progress shown; int64_t shown_clock; uint64_t shown_looks;
    uint64_t sent_by_kind[ECHI_KINDS + 1];    /* rank 0: summed over all nodes */
};

static void logf_node(struct node *n, enum ech_log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void logf_node(struct node *n, enum ech_log_level level, const char *fmt, ...) {
    if (!n->c->config->on_log) return;
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    n->c->config->on_log(n->c->config->user, level, line);
}

/* Ends the loop; the first reason stays. */
static void give_up(struct node *n, ech_status status) {
    if (n->over) return;
    n->over = true;
    n->status = status;
}

/* ------------------------------------------------- payloads of messages */

static uint64_t cookie_of(enum echi_role role, struct echi_slot slot) { return (uint64_t)role << 16 | (uint64_t)slot.kind << 8 | slot.index; }
static struct echi_slot slot_of(uint64_t cookie) { return (struct echi_slot){(uint8_t)(cookie >> 8), (uint8_t)cookie}; }
static enum echi_role role_of(uint64_t cookie) { return (enum echi_role)(cookie >> 16); }

/* Bytes [*at, *at + *len) of a slot that a message carries. One place decides it for sender and receiver. `head` says
 * whose layers a PARAMS is about. */
static void extent(const struct node *n, int kind, const struct echi_msg *m, bool head, size_t *at, size_t *len) {
    const struct echi_plan *p = &n->setup.plan;
    const size_t width = n->job->cut_width;
    size_t first = 0, count = 0;
    switch (kind) {
    case ECHI_KIND_PUSH:
        *at = n->job->layer[m->layer].at * sizeof(float);
        *len = n->job->layer[m->layer].count * sizeof(float);
        return;
    case ECHI_KIND_ACT:
        *at = 0;
        *len = m->lease.n * (width * sizeof(float) + 1);
        return;
    case ECHI_KIND_ACT_GRAD:
        *at = 0;
        *len = m->lease.n * width * sizeof(float);
        return;
    case ECHI_KIND_PARAMS:
        if (m->flag) count = n->job->n_params;
        else echi_job_range(n->job, p, head, &first, &count);
        break;
    default: echi_job_range(n->job, p, false, &first, &count); break;
    }
    *at = first * sizeof(float);
    *len = count * sizeof(float);
}

/* ------------------------------------------------------ events to roles */

static void perform(struct node *n, struct echi_actions *list);

static void role_event(struct node *n, enum echi_role role, struct echi_event *e) {
    struct echi_actions list = {n->action, 0, ACTIONS_MAX, false};
    e->now = echi_now();
    if (role == ECHI_ROLE_COORDINATOR && n->coordinator) echi_coordinator_step(n->coordinator, e, &list);
    else if (role == ECHI_ROLE_WORKER && n->worker) echi_worker_step(n->worker, e, &list);
    else if (role == ECHI_ROLE_OWNER && n->owner) echi_owner_step(n->owner, e, &list);
    else if (role == ECHI_ROLE_HEAD && n->head) echi_head_step(n->head, e, &list);
    perform(n, &list);
}

static void send_message(struct node *n, int to, const struct echi_msg *m, const void *payload, size_t len, uint64_t cookie) {
    uint8_t meta[ECHI_MSG_MAX];
    size_t size = echi_msg_encode(m, meta, sizeof meta);
    ech_status status = size ? echi_wire_send(n->wire, to, m->kind, meta, size, payload, len, cookie, n->err)
                             : echi_fail(n->err, ECH_E_INTERNAL, "run.send", "a %s message does not fit", echi_kind_name(m->kind));
    /* A peer that is gone is dealt with by its LOST event. */
    if (status != ECH_OK && status != ECH_E_PEER_LOST) give_up(n, status);
}

static void send_plain(struct node *n, int to, enum echi_kind kind, enum echi_role to_role) {
    struct echi_msg m = {.kind = (uint8_t)kind, .to_role = (uint8_t)to_role, .from_role = ECHI_ROLE_NODE};
    send_message(n, to, &m, NULL, 0, 0);
}

/* A message with a body of its own behind the two role bytes: step times, the plan, bytes sent. */
static void send_body(struct node *n, int to, enum echi_kind kind, enum echi_role to_role, const uint8_t *body, size_t len) {
    uint8_t meta[2 + ECHI_PLAN_BYTES_MAX] = {(uint8_t)to_role, ECHI_ROLE_NODE};
    memcpy(meta + 2, body, len);
    ech_status status = echi_wire_send(n->wire, to, (int)kind, meta, 2 + len, NULL, 0, 0, n->err);
    if (status != ECH_OK && status != ECH_E_PEER_LOST) give_up(n, status);
}

static void do_send(struct node *n, const struct echi_action *a) {
    if (!echi_kind_has_payload(a->kind)) return send_message(n, a->to, &a->msg, NULL, 0, 0);
    size_t at, len, room;
    extent(n, a->kind, &a->msg, a->msg.to_role == ECHI_ROLE_HEAD || a->msg.from_role == ECHI_ROLE_HEAD, &at, &len);
    const uint8_t *base = echi_exec_slot(n->exec, a->slot, &room);
    if (!base || at + len > room) {
        echi_fail(n->err, ECH_E_INTERNAL, "run.send", "a %s message has no slot to send from", echi_kind_name(a->kind));
        return give_up(n, ECH_E_INTERNAL);
    }
    send_message(n, a->to, &a->msg, base + at, len, cookie_of((enum echi_role)a->msg.from_role, a->slot));
}

static void post_part(struct node *n, const struct echi_action *a, enum echi_role role, size_t at, size_t len) {
    size_t room;
    uint8_t *base = echi_exec_slot(n->exec, a->slot, &room);
    ech_status status = base && at + len <= room ? echi_wire_post(n->wire, a->to, a->kind, base + at, len, cookie_of(role, a->slot), n->err)
                        : echi_fail(n->err, ECH_E_INTERNAL, "run.post", "a %s message has no slot to come to", echi_kind_name(a->kind));
    if (status != ECH_OK && status != ECH_E_PEER_LOST) give_up(n, status);
}

static void do_post(struct node *n, const struct echi_action *a) {
    size_t at, len;
    struct echi_msg m = {.kind = a->kind};
    switch (a->slot.kind) {
    case ECHI_SLOT_OWNER_GRADS:
        for (int layer = n->setup.cut - 1; layer >= 0; layer--) {
            m.layer = (uint16_t)layer;
            extent(n, a->kind, &m, false, &at, &len);
            post_part(n, a, ECHI_ROLE_OWNER, at, len);
        }
        return;
    case ECHI_SLOT_HEAD_ROWS: m.lease.n = n->setup.plan.n[a->to]; break;
    case ECHI_SLOT_WORKER_ACT_GRAD: m.lease.n = n->setup.plan.n[n->rank]; break;
    case ECHI_SLOT_COORD_PARAMS:    /* a part of either kind; put in its place when it is here */
    case ECHI_SLOT_NODE_FINAL: m.flag = 1; break;
    default: break;
    }
    static const uint8_t role[ECHI_SLOT_KINDS] = {
        [ECHI_SLOT_WORKER_WEIGHTS] = ECHI_ROLE_WORKER, [ECHI_SLOT_WORKER_ACT_GRAD] = ECHI_ROLE_WORKER, [ECHI_SLOT_OWNER_WEIGHTS] = ECHI_ROLE_OWNER,
        [ECHI_SLOT_OWNER_W0] = ECHI_ROLE_OWNER, [ECHI_SLOT_OWNER_PEER] = ECHI_ROLE_OWNER, [ECHI_SLOT_HEAD_ROWS] = ECHI_ROLE_HEAD,
        [ECHI_SLOT_HEAD_WEIGHTS] = ECHI_ROLE_HEAD, [ECHI_SLOT_COORD_PARAMS] = ECHI_ROLE_COORDINATOR, [ECHI_SLOT_NODE_FINAL] = ECHI_ROLE_NODE,
    };
    extent(n, a->kind, &m, a->slot.kind == ECHI_SLOT_HEAD_WEIGHTS, &at, &len);
    post_part(n, a, (enum echi_role)role[a->slot.kind], at, len);
}

static void send_fault(struct node *n, ech_status status, int peer, const char *text) {
    struct echi_msg m = {.kind = ECHI_KIND_FAULT, .to_role = ECHI_ROLE_COORDINATOR, .from_role = ECHI_ROLE_NODE, .layer = (uint16_t)status,
                         .peer = peer < 0 ? ECHI_NONE : (uint8_t)peer};
    snprintf(m.text, sizeof m.text, "%s", text);
    send_message(n, 0, &m, NULL, 0, 0);
}

static void send_plan(struct node *n) {
    uint8_t body[ECHI_PLAN_BYTES_MAX];
    size_t len = echi_plan_encode(&n->setup.plan, body, sizeof body);
    for (int r = 0; r < n->world; r++) send_body(n, r, ECHI_KIND_PLAN, ECHI_ROLE_NODE, body, len);
    if (n->c->config->save_plan[0]) {
        ech_status status = echi_plan_save(n->c->config->save_plan, &n->setup.plan, n->err);
        if (status != ECH_OK) give_up(n, status);
    }
}

static void do_compute(struct node *n, const struct echi_task *task) {
    if (n->c->user && task->kind == ECHI_TASK_STEP) return n->c->user->submit(n->c->user->self, task);
    ech_status status = echi_lane_submit(n->lane, task, n->err);
    if (status != ECH_OK) give_up(n, status);
}

/* Rank 0's sentence for an end that is not as asked. */
static void tell_end(struct node *n) {
    const struct echi_coordinator *c = n->coordinator;
    switch (c->status) {
    case ECH_OK: break;
    case ECH_E_PEER_LOST:
        echi_fail_at(n->err, c->status, "run", c->lost_peer, NULL, "rank %d was lost (%s): the run ends; start it again, with --init from a saved file if there is one",
                     c->lost_peer, n->lost_text[0] ? n->lost_text : c->text);
        break;
    case ECH_E_NOT_REACHED:
        echi_fail(n->err, c->status, "run", "the best look found %.2f %%, not the %.2f %% of --target-accuracy: allow more --epochs or change --lr",
                  100 * c->best_accuracy, 100 * n->c->config->target_accuracy);
        break;
    case ECH_E_ABORTED:
        if (c->at_fault < 0) {
            echi_fail(n->err, c->status, "run", "the run was stopped after %llu samples", (unsigned long long)c->applied);
            break;
        }
        /* fall through */
    default:
        if (c->at_fault > 0) echi_fail_at(n->err, c->status, "run", c->at_fault, NULL, "rank %d: %s", c->at_fault, c->text);
        else echi_fail_at(n->err, c->status, "run", c->at_fault, NULL, "%s", c->text);
    }
}

static void perform(struct node *n, struct echi_actions *list) {
    if (list->overflow) {
        echi_fail(n->err, ECH_E_INTERNAL, "run.perform", "a role asked for more than %d things at once", ACTIONS_MAX);
        give_up(n, ECH_E_INTERNAL);
    }
    for (int i = 0; i < list->count && !n->over; i++) {
        const struct echi_action *a = &list->list[i];
        switch ((enum echi_action_type)a->type) {
        case ECHI_ACTION_SEND: do_send(n, a); break;
        case ECHI_ACTION_POST: do_post(n, a); break;
        case ECHI_ACTION_COMPUTE: do_compute(n, &a->task); break;
        case ECHI_ACTION_PLAN: send_plan(n); break;
        case ECHI_ACTION_FAULT: send_fault(n, (ech_status)a->msg.layer, n->rank, a->msg.text); break;
        case ECHI_ACTION_DONE:
            tell_end(n);
            give_up(n, n->coordinator->status);
            break;
        }
    }
}

/* ---------------------------------------------------------- start-up */

/* On the lane's thread; the node takes the result when it is notified. */
static void measure_here(void *self) {
    struct node *n = self;
    n->measure_status = echi_measure(n->job, echi_exec_device(n->exec), n->c->config->slow, &n->times, &n->measure_error);
    atomic_store(&n->measured, true);
}

/* Step times take a while; the I/O thread goes on meanwhile, so that nobody takes this node for lost. */
static void measure(struct node *n) {
    n->measuring = true;
    if (n->c->user) n->c->user->measure(n->c->user->self);
    else echi_lane_call(n->lane, measure_here, n);
}

static void take_measured(struct node *n) {
    if (!n->measuring) return;
    if (n->c->user ? !n->c->user->measured(n->c->user->self, &n->times, &n->measure_status) : !atomic_load(&n->measured)) return;
    n->measuring = false;
    if (n->measure_status != ECH_OK) return send_fault(n, n->measure_status, n->rank, n->measure_error.text[0] ? n->measure_error.text : ech_status_text(n->measure_status));
    if (n->report) n->report->step_seconds[n->rank] = echi_times_whole(&n->times, 64);
    uint8_t body[ECHI_TIMES_BYTES_MAX];
    send_body(n, 0, ECHI_KIND_MEASURED, ECHI_ROLE_COORDINATOR, body, echi_times_encode(&n->times, body, sizeof body));
}

static ech_status new_role(void *out, size_t size, struct ech_error *err) {
    void *p = calloc(1, size);
    if (!p) return echi_fail_memory(err, "run.setup", "a role");
    memcpy(out, &p, sizeof p);
    return ECH_OK;
}

/* The plan, in words, on every node. */
static void log_plan(struct node *n) {
    const struct echi_plan *p = &n->setup.plan;
    if (n->world == 1) return;
    for (int g = 0; g < p->n_groups; g++) {
        char list[400] = "";
        size_t at = 0;
        for (int r = 0; r < p->world; r++)
            if (p->group_of[r] == g && at + 24 < sizeof list) at += (size_t)snprintf(list + at, sizeof list - at, "%s%d (%u)", at ? ", " : "", r, p->n[r]);
        logf_node(n, ECH_LOG_INFO, "plan: group %d: ranks (samples a step) %s; %s owned by rank %d", g, list, p->separated ? "trunk" : "weights", p->owner_of[g]);
    }
    if (p->separated) logf_node(n, ECH_LOG_INFO, "plan: the head is trained by rank %d", p->head);
    uint64_t at_once = 0;
    for (int r = 0; r < p->world; r++) at_once += p->n[r];
    if (p->sync != ECHI_SYNC_BSP && at_once > 4 * (uint64_t)p->round)
        logf_node(n, ECH_LOG_WARN, "plan: %llu samples are on their way at once, more than 4 B (%u): expect staleness to hurt; lower --samples-per-step or raise --batch",
                  (unsigned long long)at_once, 4 * p->round);
}

static ech_status stand_roles(struct node *n) {
    const struct echi_plan *p = &n->setup.plan;
    n->setup.rank = n->rank;
    n->setup.n_layers = n->job->n_layers;
    n->setup.cut = p->separated ? n->job->cut_params : n->job->n_layers;
    n->setup.cut_width = (uint32_t)n->job->cut_width;
    if (p->separated && n->job->cut == 0)
        return echi_fail(n->err, ECH_E_MISMATCH, "run.setup", "the plan separates layers, but this model has no fully connected layers behind convolutions");
    ECHI_TRY(echi_exec_setup(n->exec, &n->setup, n->err));
    if (p->group_of[n->rank] != ECHI_NONE) {
        ECHI_TRY(new_role(&n->worker, sizeof *n->worker, n->err));
        echi_worker_init(n->worker, &n->setup);
    }
    for (int g = 0; g < p->n_groups; g++) {
        if (p->owner_of[g] != n->rank) continue;
        ECHI_TRY(new_role(&n->owner, sizeof *n->owner, n->err));
        echi_owner_init(n->owner, &n->setup, g);
    }
    if (p->separated && p->head == n->rank) {
        ECHI_TRY(new_role(&n->head, sizeof *n->head, n->err));
        echi_head_init(n->head, &n->setup);
    }
    return ECH_OK;
}

static void on_plan(struct node *n, const uint8_t *body, size_t len) {
    struct echi_plan plan;
    if (n->planned || !echi_plan_decode(body, len, &plan) || plan.world != n->world)
        return send_fault(n, ECH_E_FORMAT, n->rank, "the plan that came does not fit this node");
    n->planned = true;
    n->setup.plan = plan;
    log_plan(n);
    ech_status status = stand_roles(n);
    if (status != ECH_OK) return send_fault(n, status, n->rank, n->err ? n->err->text : ech_status_text(status));
    if (n->coordinator && n->c->params) memcpy(echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL), n->c->params, n->job->n_params * sizeof(float));
    /* The order of the posts for the coordinator's PARAMS is the order in which it sends them: owner, head, final. */
    struct echi_event start = {.type = ECHI_EVENT_START};
    role_event(n, ECHI_ROLE_OWNER, &start);
    role_event(n, ECHI_ROLE_HEAD, &start);
    role_event(n, ECHI_ROLE_WORKER, &start);
    if (n->c->user && n->rank != 0) {
        const struct echi_action a = {.type = ECHI_ACTION_POST, .to = 0, .kind = ECHI_KIND_PARAMS, .slot = {ECHI_SLOT_NODE_FINAL, 0}};
        do_post(n, &a);
    }
    if (n->c->started) n->c->started(n->c->started_self, n->wire, n->exec);
    send_plain(n, 0, ECHI_KIND_READY, ECHI_ROLE_COORDINATOR);
}

/* ------------------------------------------------------------ messages */

static void send_stats(struct node *n) {
    uint64_t bytes[ECHI_NET_KINDS_MAX + 1] = {0};
    uint8_t body[8 * (ECHI_KINDS + 1)];
    echi_wire_bytes_sent(n->wire, bytes);
    for (int k = 0; k <= ECHI_KINDS; k++) echi_store64(body + 8 * k, bytes[k]);
    send_body(n, 0, ECHI_KIND_STATS, ECHI_ROLE_COORDINATOR, body, sizeof body);
}

static void end_here(struct node *n) {
    /* In a session the final weights travel behind the END, which is more urgent: wait for both. */
    if (!n->end_in || n->over) return;
    if (n->c->user && n->rank != 0 && !n->final_in) return;
    send_stats(n);
    /* Whether the target was reached is rank 0's to say. */
    if (n->rank != 0) give_up(n, n->status == ECH_E_NOT_REACHED ? ECH_OK : n->status);
}

static void on_node_message(struct node *n, int from, const struct echi_msg *m, const uint8_t *body, size_t len) {
    switch (m->kind) {
    case ECHI_KIND_HEARTBEAT: break;
    case ECHI_KIND_PLAN: on_plan(n, body, len); break;
    case ECHI_KIND_HOLD:
        n->held_asked = true;
        echi_lane_hold(n->lane, true);
        break;
    case ECHI_KIND_RELEASE: echi_lane_hold(n->lane, false); break;
    case ECHI_KIND_PARAMS:
        n->c->user->final(n->c->user->self, echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_NODE_FINAL, 0}, NULL));
        n->final_in = true;
        end_here(n);
        break;
    case ECHI_KIND_END: {
        n->end_in = true;
        n->status = (ech_status)m->layer;
        if (n->rank == 0) return end_here(n);
        const int peer = m->peer == ECHI_NONE ? -1 : m->peer;
        char who[16] = "";
        if (peer >= 0) snprintf(who, sizeof who, "rank %d: ", peer);
        /* Only what rank 0 says is news: "run.end" tells a caller who sees both. */
        if (n->status == ECH_E_PEER_LOST)
            echi_fail_at(n->err, n->status, "run.end", peer, NULL, "rank %d was lost: the coordinator ended the run", peer);
        else if (n->status != ECH_OK)
            echi_fail_at(n->err, n->status, "run.end", peer, NULL, "the coordinator ended the run: %s%s", who, m->text[0] ? m->text : ech_status_text(n->status));
        /* Only a run that ends in order has final weights to wait for. */
        if (!m->flag) return give_up(n, n->status);
        end_here(n);
        break;
    }
    default: send_fault(n, ECH_E_INTERNAL, from, "a node got a message that is not for it");
    }
}

static void on_stats(struct node *n, int from, const uint8_t *body, size_t len) {
    if (len != 8 * (ECHI_KINDS + 1)) return;
    for (int k = 0; k <= ECHI_KINDS; k++) n->sent_by_kind[k] += echi_load64(body + 8 * k);
    (void)from;
}

/* Puts a part of the weights where its sender's role says. */
static bool place_params(struct node *n, const struct echi_net_event *e, const struct echi_msg *m) {
    size_t at, len;
    extent(n, ECHI_KIND_PARAMS, m, m->from_role == ECHI_ROLE_HEAD, &at, &len);
    if (e->payload_len != len) return false;
    memcpy((uint8_t *)echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL) + at, e->payload, len);
    return true;
}

/* The payload has the length that its message promises, and the labels of rows are labels. */
static bool payload_fits(struct node *n, const struct echi_net_event *e, const struct echi_msg *m) {
    if (!echi_kind_has_payload(e->kind)) return true;
    if (!n->planned) return false;
    if (e->kind == ECHI_KIND_PUSH && m->layer >= n->job->n_layers) return false;
    if ((e->kind == ECHI_KIND_ACT || e->kind == ECHI_KIND_ACT_GRAD) && m->lease.n > 1u << 20) return false;
    size_t at, len;
    extent(n, e->kind, m, m->from_role == ECHI_ROLE_HEAD || m->to_role == ECHI_ROLE_HEAD, &at, &len);
    if (e->payload_len != len) return false;
    if (e->kind != ECHI_KIND_ACT) return true;
    const uint8_t *labels = (const uint8_t *)e->payload + m->lease.n * n->job->cut_width * sizeof(float);
    for (uint32_t i = 0; i < m->lease.n; i++)
        if (labels[i] >= n->job->data->classes) return false;
    return true;
}

static void on_message(struct node *n, const struct echi_net_event *e) {
    struct echi_msg m;
    n->heard[e->peer] = echi_now();
    if (!echi_msg_decode(e->kind, e->meta, e->meta_len, &m) || !payload_fits(n, e, &m)) {
        char text[160];
        snprintf(text, sizeof text, "rank %d sent a malformed %s message to rank %d: do all nodes run the same version?", e->peer,
                 echi_kind_name(e->kind) ? echi_kind_name(e->kind) : "?", n->rank);
        return send_fault(n, ECH_E_FORMAT, e->peer, text);
    }
    if (m.to_role == ECHI_ROLE_NODE) {
        /* Only the coordinator commands nodes; heartbeats come from anywhere. */
        if (e->peer != 0 && m.kind != ECHI_KIND_HEARTBEAT) return;
        return on_node_message(n, e->peer, &m, e->meta + 2, e->meta_len - 2);
    }
    if (m.to_role == ECHI_ROLE_COORDINATOR && m.kind == ECHI_KIND_STATS) on_stats(n, e->peer, e->meta + 2, e->meta_len - 2);
    if (m.to_role == ECHI_ROLE_COORDINATOR && m.kind == ECHI_KIND_MEASURED && n->report && n->coordinator) {
        struct echi_times times;
        if (echi_times_decode(e->meta + 2, e->meta_len - 2, &times)) n->report->step_seconds[e->peer] = echi_times_whole(&times, 64);
    }
    if (m.to_role == ECHI_ROLE_COORDINATOR && m.kind == ECHI_KIND_PARAMS && (!n->coordinator || !place_params(n, e, &m))) return;
    struct echi_event event = {.type = ECHI_EVENT_MESSAGE, .from = (uint8_t)e->peer, .msg = &m, .bytes = e->meta + 2, .len = e->meta_len - 2,
                               .slot = slot_of(e->cookie)};
    role_event(n, (enum echi_role)m.to_role, &event);
}

static void on_lost(struct node *n, int peer, bool orderly, const char *text) {
    /* Who leaves in order before the end has a reason; the coordinator ends the run, or goes without a last word when it has
     * ended already; the others wait for its word. */
    if (!n->coordinator && (n->end_in || (orderly && peer != 0))) return;
    snprintf(n->lost_text, sizeof n->lost_text, "%s", text ? text : "");
    if (n->coordinator) {
        struct echi_event event = {.type = ECHI_EVENT_LOST, .from = (uint8_t)peer};
        return role_event(n, ECHI_ROLE_COORDINATOR, &event);
    }
    /* The coordinator has the word on who is lost; if it is the lost one, or says nothing, this node leaves by itself. */
    n->lost = peer;
    n->leave_by = peer == 0 ? 0 : echi_now() + GRACE;
}

static void on_net_event(struct node *n, const struct echi_net_event *e) {
    switch (e->type) {
    case ECHI_NET_WAITING: logf_node(n, ECH_LOG_INFO, "%s", e->text); break;
    case ECHI_NET_READY: {
        n->ready = true;
        const int64_t now = echi_now();
        for (int r = 0; r < n->world; r++) n->heard[r] = now;
        if (n->world > 1) logf_node(n, ECH_LOG_INFO, "all %d nodes have joined; measuring step times", n->world);
        struct echi_event start = {.type = ECHI_EVENT_START};
        role_event(n, ECHI_ROLE_COORDINATOR, &start);
        measure(n);
        break;
    }
    case ECHI_NET_MESSAGE: on_message(n, e); break;
    case ECHI_NET_SENT: {
        struct echi_event event = {.type = ECHI_EVENT_SENT, .from = (uint8_t)e->peer, .slot = slot_of(e->cookie)};
        role_event(n, role_of(e->cookie), &event);
        break;
    }
    case ECHI_NET_LOST: on_lost(n, e->peer, e->orderly, e->text); break;
    }
}

/* ----------------------------------------------------- computed things */

static void on_done(struct node *n, const struct echi_done *d) {
    if (d->status != ECH_OK) {
        if (n->err) *n->err = d->error;
        return send_fault(n, d->status, n->rank, d->error.text);
    }
    struct echi_event event = {.type = d->gradient ? ECHI_EVENT_GRADIENT : ECHI_EVENT_COMPUTED, .layer = d->layer, .task = &d->task, .result = &d->result};
    role_event(n, (enum echi_role)d->task.role, &event);
}

static void take_done(struct node *n) {
    struct echi_done d;
    take_measured(n);
    while (!n->over && echi_lane_take(n->lane, &d)) on_done(n, &d);
    while (!n->over && n->c->user && n->c->user->take(n->c->user->self, &d)) on_done(n, &d);
    if (n->held_asked && echi_lane_is_held(n->lane)) {
        n->held_asked = false;
        send_plain(n, 0, ECHI_KIND_HELD, ECHI_ROLE_COORDINATOR);
    }
}

/* ------------------------------------------------------------- clock */

static void show_progress(struct node *n, int64_t now) {
    struct echi_coordinator *c = n->coordinator;
    if (!c || !n->c->config->on_progress || c->phase < ECHI_RUN_TRAINS || c->phase == ECHI_RUN_ENDED) return;
    const bool looked = c->looks != n->shown_looks;
    if (now < n->progress_at && !looked) return;
    const int64_t clock = echi_coordinator_clock(c, now);
    if (!looked && clock - n->shown_clock < SECOND / 5) return;   /* held: nothing new to tell */
    uint64_t bytes[ECHI_NET_KINDS_MAX + 1] = {0};
    struct ech_progress p = {.seconds = (double)clock * 1e-9, .samples = c->applied, .steps = c->applied / n->setup.plan.round,
        .epochs = (double)c->applied / n->job->train_samples, .accuracy = c->accuracy, .looked = looked,
        .loss = c->loss_samples ? c->loss_sum / (double)c->loss_samples : n->shown.loss,
        .staleness = c->stale_count ? c->stale_sum / (double)c->stale_count : n->shown.staleness};
    const double passed = (double)(clock - n->shown_clock) * 1e-9;
    p.images_per_second = passed > 0.05 ? (double)(c->applied - n->shown.samples) / passed : n->shown.images_per_second;
    echi_wire_bytes_sent(n->wire, bytes);
    for (int k = 0; k <= ECHI_NET_KINDS_MAX; k++) p.bytes_sent += bytes[k];
    c->loss_sum = c->stale_sum = 0;
    c->loss_samples = c->stale_count = 0;
    n->shown = p;
    n->shown_clock = clock;
    n->shown_looks = c->looks;
    n->progress_at = now + SECOND;
    n->c->config->on_progress(n->c->config->user, &p);
}

static void check_deadlines(struct node *n, int64_t now) {
    const int64_t deadline = (int64_t)(n->c->config->deadline * 1e9);
    if (!n->ready || (n->end_in && !n->coordinator)) return;
    /* A judge that was itself late cannot tell who is silent. */
    if (now - n->looped > deadline / 4)
        for (int r = 0; r < n->world; r++) n->heard[r] = now;
    if (now >= n->heartbeat_at) {
        n->heartbeat_at = now + deadline / 5;
        if (n->coordinator)
            for (int r = 1; r < n->world; r++) send_plain(n, r, ECHI_KIND_HEARTBEAT, ECHI_ROLE_NODE);
        else send_plain(n, 0, ECHI_KIND_HEARTBEAT, ECHI_ROLE_NODE);
    }
    char text[120];
    snprintf(text, sizeof text, "no word for %.3g seconds, see --deadline", n->c->config->deadline);
    for (int r = n->coordinator ? 1 : 0; r < (n->coordinator ? n->world : 1); r++)
        if (now - n->heard[r] > deadline && !n->over) on_lost(n, r, false, text);
    if (!n->over && n->lost >= 0 && now >= n->leave_by) {
        echi_fail_at(n->err, ECH_E_PEER_LOST, "run", n->lost, NULL, "rank %d%s was lost (%s): this node leaves", n->lost,
                     n->lost == 0 ? ", the coordinator," : "", n->lost_text);
        give_up(n, ECH_E_PEER_LOST);
    }
}

static void check_stop(struct node *n, bool *told) {
    const bool abandoned = n->c->abandoned && atomic_load(n->c->abandoned);
    if (*told || n->end_in || !(abandoned || (n->c->config->stop && *n->c->config->stop))) return;
    *told = true;
    if (!n->ready) {
        echi_fail(n->err, ECH_E_ABORTED, "run", "stopped while waiting for the other nodes");
        return give_up(n, ECH_E_ABORTED);
    }
    if (abandoned) {
        /* Its leases will never be computed, so there is nothing to wait for. */
        send_fault(n, ECH_E_ABORTED, n->rank, "the session was closed before the run was over");
    } else if (n->coordinator) {
        struct echi_event event = {.type = ECHI_EVENT_STOP};
        role_event(n, ECHI_ROLE_COORDINATOR, &event);
    } else {
        send_plain(n, 0, ECHI_KIND_STOP, ECHI_ROLE_COORDINATOR);
    }
}

static void notify(void *self) { echi_wire_wake(((struct node *)self)->wire); }

static void loop(struct node *n) {
    struct echi_net_event event[EVENTS_MAX];
    bool told = false;
    n->looped = n->began;
    while (!n->over) {
        int count = 0;
        int64_t now = echi_now(), wake_at = now + SECOND / 5;
        if (n->ready && n->coordinator && n->coordinator->phase == ECHI_RUN_ENDS) wake_at = now + SECOND / 50;
        ech_status status = echi_wire_poll(n->wire, wake_at, event, EVENTS_MAX, &count, n->err);
        if (status != ECH_OK) return give_up(n, status);
        for (int i = 0; i < count && !n->over; i++) on_net_event(n, &event[i]);
        take_done(n);
        now = echi_now();
        check_deadlines(n, now);
        check_stop(n, &told);
        if (!n->over) show_progress(n, now);
        n->looped = now;
    }
}

/* -------------------------------------------------------------- report */

static void fill_plan(const struct node *n, struct ech_report *r) {
    const struct echi_plan *p = &n->setup.plan;
    if (!n->planned) return;
    snprintf(r->sync, sizeof r->sync, "%s", echi_policy_of((enum echi_sync)p->sync)->name);   /* a plan from a file decides */
    r->separate = p->separated;
    r->n_groups = p->n_groups;
    r->head = p->separated ? p->head : -1;
    r->round = (int)p->round;
    for (int i = 0; i < p->world; i++) {
        r->group_of[i] = p->group_of[i] == ECHI_NONE ? -1 : p->group_of[i];
        r->batch[i] = (int)p->n[i];
    }
    for (int g = 0; g < p->n_groups; g++) r->owner_of[g] = p->owner_of[g];
}

static void fill_report(const struct node *n, struct ech_report *r) {
    const struct echi_coordinator *c = n->coordinator;
    fill_plan(n, r);
    r->resident_peak = echi_resident_peak();
    r->lost_peer = n->lost;
    for (int k = 0; k < ECHI_KINDS; k++) {
        r->kind_name[k] = echi_kind_name(k);
        r->bytes_sent[k] = n->sent_by_kind[k];
    }
    r->kind_name[ECHI_KINDS] = "other";      /* hello, credits */
    r->bytes_sent[ECHI_KINDS] = n->sent_by_kind[ECHI_KINDS];
    if (!c) return;
    if (c->lost_peer >= 0) r->lost_peer = c->lost_peer;
    const int64_t now = echi_now();
    r->samples = c->applied;
    r->steps = n->planned ? c->applied / n->setup.plan.round : 0;
    r->epochs = (double)c->applied / n->job->train_samples;
    r->seconds = (double)echi_coordinator_clock(c, now) * 1e-9;
    r->images_per_second = r->seconds > 0 ? (double)c->applied / r->seconds : 0;
    r->measuring_seconds = (double)c->measuring * 1e-9;
    r->startup_seconds = c->train_began ? (double)(c->train_began - n->began) * 1e-9 : 0;
    r->train_loss = c->loss_of_run;
    r->test_accuracy = c->accuracy;
    r->best_accuracy = c->best_accuracy;
    r->target_seconds = c->target_at < 0 ? -1 : (double)c->target_at * 1e-9;
    r->target_epochs = c->target_at < 0 ? -1 : (double)c->target_samples / n->job->train_samples;
    r->staleness_max = c->stale_max;
    r->staleness_mean = c->stale_of_run_count ? c->stale_of_run / (double)c->stale_of_run_count : 0;
}

/* ------------------------------------------------------------- run it */

static ech_status make_coordinator(struct node *n) {
    const struct ech_config *c = n->c->config;
    struct echi_wishes wishes;
    struct echi_goal goal = {.train_samples = n->job->train_samples, .target_accuracy = c->target_accuracy, .eval_every = c->eval_every,
                             .has_test = n->job->test_samples > 0, .give_final = n->c->user != NULL};
    ECHI_TRY(echi_wishes_from(c, n->job, &wishes, n->err));
    if (c->plan[0]) {
        ECHI_TRY(echi_plan_load(c->plan, &n->setup.plan, n->err));
        if (n->setup.plan.world != n->world)
            return echi_fail(n->err, ECH_E_ARGUMENT, "run.plan", "%s is a plan for %d nodes, but --world is %d", c->plan, n->setup.plan.world, n->world);
        if (n->setup.plan.separated && n->job->cut == 0)
            return echi_fail(n->err, ECH_E_ARGUMENT, "run.plan", "%s separates layers, but this model has no fully connected layers behind convolutions: give 'head none'", c->plan);
    }
    const uint32_t batch = c->plan[0] ? n->setup.plan.round : wishes.batch ? wishes.batch : 16u * (uint32_t)n->world > 64 ? 16u * (uint32_t)n->world : 64;
    goal.samples = c->steps >= 0 ? (uint64_t)c->steps * batch : (uint64_t)(c->epochs * n->job->train_samples + 0.5);
    ECHI_TRY(new_role(&n->coordinator, sizeof *n->coordinator, n->err));
    echi_coordinator_init(n->coordinator, &n->setup, &wishes, &goal, c->plan[0] != 0);
    return ECH_OK;
}

static ech_status open_wire(struct node *n) {
    const struct ech_config *c = n->c->config;
    static const struct echi_net_kind kinds[ECHI_KINDS] = {
#define KIND(name, text, priority, payload) {text, priority, 2 + ECHI_PLAN_BYTES_MAX, (payload) ? UINT64_C(1) << 36 : 0, 0},
        ECHI_KIND_LIST(KIND)
#undef KIND
    };
    struct echi_net_fingerprint print[4] = {{"version", ECH_VERSION}, {"model", ""}, {"data", ""}, {"order", ""}};
    if (n->job->model) echi_model_hash(n->job->model, print[1].value);
    else snprintf(print[1].value, sizeof print[1].value, "%zu floats in %d arrays", n->job->n_params, n->job->n_layers);
    if (n->job->data) snprintf(print[2].value, sizeof print[2].value, "%s", n->job->data->hash);
    else snprintf(print[2].value, sizeof print[2].value, "%u samples", n->job->train_samples);
    if (n->job->shuffle) snprintf(print[3].value, sizeof print[3].value, "seed %llu", (unsigned long long)n->job->seed);
    else snprintf(print[3].value, sizeof print[3].value, "order of the file");
    const struct echi_net_config net = {.rank = n->rank, .world = n->world, .kinds = kinds, .n_kinds = ECHI_KINDS, .fingerprints = print,
        .n_fingerprints = 4, .coordinator = c->coordinator[0] ? c->coordinator : NULL, .bind = c->bind[0] ? c->bind : NULL,
        .join_timeout = (int64_t)(c->join_timeout * 1e9)};
    return echi_wire_open(&net, &n->wire, n->err);
}

ech_status echi_node_run(const struct echi_node_config *config, struct ech_report *report, struct ech_error *err) {
    struct ech_error own = {.peer = -1};
    struct node *n = calloc(1, sizeof *n);
    if (!n) return echi_fail_memory(err, "run", "this node");
    n->c = config;
    n->job = config->job;
    n->report = report;
    n->err = err ? err : &own;
    n->rank = config->config->rank;
    n->world = config->config->world;
    n->lost = -1;
    n->began = echi_now();
    ech_status status;
    ECHI_TRY_GOTO(echi_exec_create(n->job, config->config->device, config->config->threads, &n->exec, n->err), out);
    if (n->rank == 0) ECHI_TRY_GOTO(make_coordinator(n), out);
    ECHI_TRY_GOTO(open_wire(n), out);
    ECHI_TRY_GOTO(echi_lane_create(echi_exec_run, n->exec, notify, n, config->config->slow, &n->lane, n->err), out);
    echi_exec_use_lane(n->exec, n->lane);
    if (config->started) config->started(config->started_self, n->wire, NULL);
    if (n->rank == 0 && config->config->on_bound) config->config->on_bound(config->config->user, echi_wire_address(n->wire));
    loop(n);
    status = n->status;
    if (n->coordinator && n->planned && config->params && (status == ECH_OK || status == ECH_E_NOT_REACHED || status == ECH_E_ABORTED)) {
        size_t bytes = n->job->n_params * sizeof(float);
        memcpy(config->params, echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL), bytes);
    }
    if (report) fill_report(n, report);
out:
    echi_lane_destroy(n->lane);
    echi_wire_close(n->wire, LINGER);
    echi_exec_destroy(n->exec);
    free(n->coordinator);
    free(n->worker);
    free(n->owner);
    free(n->head);
    free(n);
    return status;
}
