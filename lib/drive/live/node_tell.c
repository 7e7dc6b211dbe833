/* SPDX-License-Identifier: Apache-2.0
 * Who waits for whom, in which phase: what a person asks when a run hangs. It needs only this node's I/O thread to be alive,
 * reads the roles and changes nothing. The same words end the sentence that names a peer which was silent for too long. */
#include "echi_node.h"
#include "echi_print.h"

#include <string.h>

static void say(struct echi_node *n, struct echi_print *l) {
    const struct ech_config *c = n->c->config;
    if (c->on_tell) c->on_tell(c->user, l->buf);
    else echi_config_log(c, ECH_LOG_INFO, "%s", l->buf);
    l->len = 0;
    l->buf[0] = 0;
}

static double seconds(int64_t from, int64_t now) { return (double)(now - from) * 1e-9; }

void echi_tell_note(struct echi_node *n, int64_t now) {
    if (n->role.coordinator && (n->told_run.at == 0 || (int)n->role.coordinator->phase != n->told_run.phase)) {
        n->told_run.phase = (int)n->role.coordinator->phase;
        n->told_run.at = now;
    }
    for (int i = 0; n->role.worker && i < n->setup.plan.flights; i++) {
        if (n->told_flight[i].at && n->role.worker->flight[i].since == n->told_flight[i].turn) continue;
        n->told_flight[i].turn = n->role.worker->flight[i].since;
        n->told_flight[i].at = now;
    }
}

/* -------------------------------------------------------- the coordinator */

static const char *phase_name(enum echi_run_phase phase) {
    switch (phase) {
    case ECHI_RUN_MEASURES: return "waits for step times";
    case ECHI_RUN_PLANNED: return "waits for nodes to stand ready";
    case ECHI_RUN_FEEDS: return "hands out the first weights";
    case ECHI_RUN_TRAINS: return "trains";
    case ECHI_RUN_HOLDS: return "holds all nodes for an evaluation";
    case ECHI_RUN_EVALUATES: return "evaluates";
    case ECHI_RUN_QUIETS: return "waits, for a checkpoint, for owners to have each other's states";
    case ECHI_RUN_GATHERS: return "gathers a checkpoint";
    case ECHI_RUN_SETTLES: return "waits, before the separated layers get another node, for owners to have each other's states";
    case ECHI_RUN_HANDS_ON: return "waits for another node to have a copy of the separated layers";
    case ECHI_RUN_DRAINS: return "waits for owners to have each other's states";
    case ECHI_RUN_LAST_KEEP: return "keeps the last checkpoint";
    case ECHI_RUN_LAST_EVAL: return "evaluates for the last time";
    case ECHI_RUN_RESCUES: return "gathers the newest weights that are left";
    case ECHI_RUN_ENDS: return "waits for last words";
    case ECHI_RUN_ENDED: return "has ended";
    }
    return "is in a phase without a name";
}

/* Is the answer of `rank` to what this phase asked still out, or its word that it knows of a loss? */
static bool answer_out(const struct echi_node *n, int rank) {
    const struct echi_coordinator *c = n->role.coordinator;
    if (c->plan.lost[rank]) return false;
    if (!c->calm && c->ready[rank] != c->members) return true;
    switch (c->phase) {
    case ECHI_RUN_MEASURES:
    case ECHI_RUN_PLANNED:
    case ECHI_RUN_HOLDS:
    case ECHI_RUN_ENDS: return !c->mark[rank];
    case ECHI_RUN_QUIETS:
    case ECHI_RUN_SETTLES:
    case ECHI_RUN_DRAINS: return echi_plan_group_owned(&c->plan, rank) >= 0 && !c->mark[rank];
    default: return false;
    }
}

/* " 12, 13": the leases that `rank` has out, the first few; none: "". */
static void add_leases(struct echi_print *l, const struct echi_coordinator *c, int rank) {
    int shown = 0;
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].lease.worker == rank && shown++ < 3) echi_print(l, "%s%u", shown > 1 ? ", " : " ", c->out[i].lease.id);
    if (shown > 3) echi_print(l, " and %d more", shown - 3);
}

static void tell_coordinator(struct echi_node *n, struct echi_print *l, int64_t now) {
    const struct echi_coordinator *c = n->role.coordinator;
    echi_print(l, "coordinator: %s since %.1f s; %llu of %llu samples are in", phase_name(c->phase), seconds(n->told_run.at, now),
               (unsigned long long)c->applied, (unsigned long long)c->goal.samples);
    if (!c->calm) echi_print(l, "; a loss is being told");
    const char *before = "; waits for rank";
    for (int r = 0; r < n->world; r++) {
        if (!answer_out(n, r)) continue;
        echi_print(l, "%s %d", before, r);
        before = ",";
    }
    if (c->phase == ECHI_RUN_EVALUATES || c->phase == ECHI_RUN_LAST_EVAL) {
        const bool own = echi_coordinator_evaluates_own(c);
        if (c->parts_out > 0 && own) echi_print(l, "; the worker here does not have all weights of the round yet");
        else if (c->parts_out > 0) echi_print(l, "; %d owners' weights are still to come", c->parts_out);
        else echi_print(l, "; computes the accuracy");
    }
    if ((c->phase == ECHI_RUN_GATHERS || c->phase == ECHI_RUN_LAST_KEEP) && c->parts_out > 0)
        echi_print(l, "; %d parts are asked for", c->parts_out);
    if (c->writing) echi_print(l, "; a checkpoint of %llu samples is being written", (unsigned long long)c->standing.samples);
    before = "; leases out: rank";
    for (int r = 0; r < n->world; r++) {
        if (c->held[r] == 0) continue;
        echi_print(l, "%s %d has", before, r);
        add_leases(l, c, r);
        before = "; rank";
    }
    say(n, l);
}

/* -------------------------------------------------------------- the worker */

static int owner_of(const struct echi_node *n) { return n->setup.plan.owner_of[n->setup.plan.group_of[n->rank]]; }

/* The layers that a part has parameters of. */
static void add_part(struct echi_print *l, const struct echi_node *n, int part) {
    const struct echi_part *p = &n->setup.plan.parts.part[part];
    echi_print(l, "%s", n->job->layer[p->first].name);
    if (p->last != p->first) echi_print(l, " to %s", n->job->layer[p->last].name);
}

/* Who owns the first part that a forward lacks. */
static int waits_for_part_of(const struct echi_node *n, const struct echi_flight *s) {
    const struct echi_worker *w = n->role.worker;
    int part = 0;
    while (part + 1 < w->parts && echi_part_in(&w->coming[s->place].here, part)) part++;
    return echi_plan_part_owner(&n->setup.plan, n->setup.plan.group_of[n->rank], part);
}

static void add_micro(struct echi_print *l, const struct echi_flight *s, int micro) {
    if (s->micros > 1) echi_print(l, ", micro-batch %d of %d", micro + 1, s->micros);
}

static void add_flight(struct echi_print *l, const struct echi_node *n, const struct echi_flight *s) {
    switch (s->phase) {
    case ECHI_FLIGHT_WAITS_WEIGHTS:
        if (s->lease.id) echi_print(l, "waits for weights from rank %d, behind the push of lease %u", owner_of(n), s->lease.id);
        else echi_print(l, "waits for the first weights from rank %d", owner_of(n));
        break;
    case ECHI_FLIGHT_IDLE:
        if (n->role.worker->n_leases == 0) echi_print(l, "waits for a lease from rank 0");
        else if (s->sending > 0) echi_print(l, "waits until %d gradients of lease %u have left", s->sending, s->lease.id);
        else if (n->role.worker->policy->rounds)
            echi_print(l, "waits for weights from rank %d to begin lease %u: it holds those of round %llu", owner_of(n),
                       n->role.worker->lease[0].id, (unsigned long long)s->version);
        else echi_print(l, "waits for another flight to go first with lease %u", n->role.worker->lease[0].id);
        break;
    case ECHI_FLIGHT_FORWARD:
        echi_print(l, "computes lease %u forward", s->lease.id);
        add_micro(l, s, s->forwards);
        break;
    case ECHI_FLIGHT_WAITS_HEAD:
        echi_print(l, "waits for the head, rank %d, to answer lease %u", echi_plan_head_of(&n->setup.plan, &s->lease), s->lease.id);
        add_micro(l, s, s->backwards);
        break;
    case ECHI_FLIGHT_WAITS_SHADOW:
        echi_print(l, "waits for the head's shadow, rank %d, to have the rows of lease %u", echi_plan_shadow(&n->setup.plan), s->lease.id);
        break;
    case ECHI_FLIGHT_ANSWERED: echi_print(l, "waits to go backward with lease %u", s->lease.id); break;
    case ECHI_FLIGHT_BACKWARD:
        echi_print(l, "computes lease %u%s", s->lease.id, n->setup.plan.cut ? " backward" : "");
        add_micro(l, s, s->backwards);
        if (s->next_part < 0) break;
        echi_print(l, ", next to leave is the gradient of ");
        add_part(l, n, s->next_part);
        break;
    case ECHI_FLIGHT_WAITS_PART:
        if (!s->early) {
            echi_print(l, "waits until %d gradients of the step before lease %u have left", s->sending, s->lease.id);
            break;
        }
        echi_print(l, "waits for the weights of %s, %d layers into lease %u, from rank %d", n->job->layer[s->gone[0]].name, s->gone[0],
                   s->lease.id, waits_for_part_of(n, s));
        break;
    case ECHI_FLIGHT_WAITS_NORM:
        echi_print(l, "waits for rank %d to say what a batch-norm sums over all workers, behind part %d of %d of lease %u", s->lease.owner,
                   s->part + 1, 2 * n->setup.norms + 1, s->lease.id);
        break;
    }
}

static void tell_worker(struct echi_node *n, struct echi_print *l, int64_t now) {
    const struct echi_worker *w = n->role.worker;
    echi_print(l, "worker of group %d:", n->setup.plan.group_of[n->rank]);
    for (int i = 0; i < n->setup.plan.flights; i++) {
        echi_print(l, i ? "; and " : " ");
        add_flight(l, n, &w->flight[i]);
        echi_print(l, ", since %.1f s", seconds(n->told_flight[i].at, now));
    }
    echi_print(l, "; %d leases not begun", w->n_leases);
    say(n, l);
}

/* --------------------------------------------------------------- the owner */

/* Who of the workers with a share has nothing in the round yet. A push that is whole is in, whenever it is summed. */
static void add_round(struct echi_print *l, const struct echi_node *n) {
    const struct echi_owner *o = n->role.owner;
    const char *before = ", none of rank";
    uint32_t in_round = o->round_in;
    for (int r = 0; r < n->world; r++) in_round += o->push[r].whole ? o->push[r].lease.n : 0;
    echi_print(l, "; %u samples of its round are in", in_round);
    for (int r = 0; r < n->world; r++) {
        bool in = !o->view[r].member || o->in_round[r] > 0;
        for (int i = 0; i < o->queued; i++) in = in || o->queue[i] == r;
        if (in) continue;
        echi_print(l, "%s %d", before, r);
        before = ",";
    }
}

static void tell_owner(struct echi_node *n, struct echi_print *l) {
    const struct echi_owner *o = n->role.owner;
    const struct echi_plan *p = &n->setup.plan;
    echi_print(l, "owner of group %d: version %llu", o->group, (unsigned long long)o->version);
    if (!o->started) echi_print(l, "; waits for the first weights from rank 0");
    if (o->woke) echi_print(l, "; it slept, and waits for the other groups' states");
    if (o->policy->rounds) add_round(l, n);
    if (o->norm.open)
        echi_print(l, "; sums of %s have come of %u of %u samples", n->job->layer[o->norm.layer].name, o->norm.in, o->norm.of.together);
    const char *waits = o->round.by_part ? "; parts of pushes wait from rank" : "; whole pushes wait from rank";
    for (int i = 0; i < o->queued; i++) echi_print(l, "%s %d", i ? "," : waits, o->queue[i]);
    const char *before = "; pushes come in from";
    for (int r = 0; r < n->world; r++) {
        if (o->push[r].whole || o->push[r].parts_in == 0) continue;
        echi_print(l, "%s rank %d (%d of %d parts of lease %u)", before, r, o->push[r].parts_in, o->parts, o->push[r].lease.id);
        before = ",";
    }
    echi_print(l, "; %d sends are out", o->sends);
    before = "; weights are held back from";
    for (int r = 0; r < n->world; r++) {
        if (!o->answer[r] || o->rules->before_reply(&o->view[r], o->least, p->staleness)) continue;
        int slowest = -1;
        for (int i = 0; i < n->world; i++)
            if (o->view[i].member && !o->view[i].idle && (slowest < 0 || o->view[i].steps < o->view[slowest].steps)) slowest = i;
        if (slowest < 0) continue;
        echi_print(l, "%s rank %d, %u steps ahead of rank %d", before, r, o->view[r].steps - o->view[slowest].steps, slowest);
        before = ",";
    }
    before = "; states not acknowledged:";
    for (int g = 0; g < p->n_groups; g++) {
        if (g == o->group || !echi_plan_group_lives(p, g) || (g == echi_plan_reserve(p) && o->reserve == ECHI_RESERVE_SLEEPS) ||
            o->peer[g].acked == o->state_version)
            continue;
        echi_print(l, "%s rank %d has version %llu of %llu", before, p->owner_of[g], (unsigned long long)o->peer[g].acked,
                   (unsigned long long)o->state_version);
        before = ",";
    }
    if (o->draining) echi_print(l, o->drained ? "; drained" : "; drains");
    say(n, l);
}

/* ---------------------------------------------------------------- the head */

static void tell_head(struct echi_node *n, struct echi_print *l) {
    const struct echi_head *h = n->role.head;
    echi_print(l, "head: version %llu%s", (unsigned long long)h->version, h->started ? "" : "; waits for the first weights");
    for (int i = 0; i < h->queued; i++)
        echi_print(l, "%s %d (lease %u)", i ? "," : "; rows wait from rank", h->queue[i], h->lease[h->queue[i]].id);
    const char *before = "; answers have not left for rank";
    for (int r = 0; r < n->world; r++) {
        if (!h->answering[r]) continue;
        echi_print(l, "%s %d", before, r);
        before = ",";
    }
    if (h->busy) echi_print(l, "; computes");
    if (h->policy->rounds) echi_print(l, "; %u rows of the round are in", h->round_in);
    for (int i = 0; i < n->setup.plan.heads; i++)
        if (h->sum[i].samples > 0)
            echi_print(l, "; the sum of rank %d's rows of round %llu is in", n->setup.plan.head_rank[i],
                       (unsigned long long)h->sum[i].version);
    if (h->sums_leaving > 0) echi_print(l, "; its own sum is on its way to %d", h->sums_leaving);
    say(n, l);
}

/* ------------------------------------------------- the lane, the wire, peers */

const char *echi_tell_work(const struct echi_node *n, const struct echi_lane_view *v) {
    static const char *const name[ECHI_TASKS] = {
        [ECHI_TASK_HEAD] = "the head", [ECHI_TASK_HEAD_APPLY] = "the head's update", [ECHI_TASK_NORM] = "a batch-norm's sums",
        [ECHI_TASK_ADD] = "the sum of a round", [ECHI_TASK_APPLY] = "an update", [ECHI_TASK_ENCODE] = "coding weights",
        [ECHI_TASK_DECODE] = "decoding weights", [ECHI_TASK_REFRESH] = "weights from states",
        [ECHI_TASK_STATE] = "a state from weights", [ECHI_TASK_TAKE] = "taking over a part",
        [ECHI_TASK_BACKWARD] = "a trunk backward", [ECHI_TASK_STEP] = "a whole step",
        [ECHI_TASK_FORWARD] = "a trunk forward", [ECHI_TASK_EVAL] = "the accuracy", [ECHI_TASK_LOCAL_APPLY] = "a step's update",
        [ECHI_TASK_LOCAL_DELTA] = "a round's change", [ECHI_TASK_LOCAL_JOIN] = "taking a round's weights in"};
    if (n->measuring && !n->c->user) return "measuring step times";
    if (n->standing) return "making slots";
    return v->runs && v->task.kind < ECHI_TASKS && name[v->task.kind] ? name[v->task.kind] : "waking";
}

static void tell_lane(struct echi_node *n, struct echi_print *l, int64_t now) {
    struct echi_lane_view v;
    echi_lane_look(n->lane, &v);
    if (n->measuring) echi_print(l, "lane: measures step times");
    else if (n->standing) echi_print(l, "lane: makes its slots");
    else if (v.runs) echi_print(l, "lane: computes %s since %.3f s", echi_tell_work(n, &v), seconds(v.since, now));
    else echi_print(l, "lane: idle");
    if (v.runs && v.task.lease.id) echi_print(l, ", lease %u of rank %d", v.task.lease.id, v.task.lease.worker);
    echi_print(l, "; %d tasks wait%s", v.waiting, v.held ? "; held" : "");
    say(n, l);
}

/* A payload waits where its receiver has granted no place. */
static void tell_wire(struct echi_node *n, struct echi_print *l) {
    const char *before = "wire: waiting to be sent are";
    for (int r = 0; r < n->world; r++)
        for (int k = 0; k < ECHI_KINDS; k++) {
            bool for_credit;
            const int count = echi_wire_waiting(n->wire, r, k, &for_credit);
            if (count == 0) continue;
            echi_print(l, "%s %s to rank %d", before, echi_kind_name(k), r);
            if (count > 1) echi_print(l, " (%d)", count);
            if (for_credit) echi_print(l, " for want of a place there");
            before = ",";
        }
    if (l->len == 0) echi_print(l, "wire: nothing waits to be sent");
    say(n, l);
}

static void tell_peers(struct echi_node *n, struct echi_print *l) {
    for (int r = 0; r < n->world; r++) {
        const struct echi_watched *w = &n->watched[r];
        if (r == n->rank) continue;
        echi_print(l, "%s rank %d ", l->len ? "," : "peers:", r);
        if (w->lost) echi_print(l, "is lost");
        else echi_print(l, "spoke %.1f s ago (lost after %.3g s)", seconds(w->silence.since, n->fair.now),
                        seconds(0, echi_silence_bound(&w->silence, &n->patience)));
    }
    if (l->len > 0) say(n, l);
}

void echi_tell_roles(struct echi_node *n, int64_t now) {
    char text[480] = "";
    struct echi_print l = {text, sizeof text, 0};
    if (n->role.coordinator) tell_coordinator(n, &l, now);
    if (n->role.worker) tell_worker(n, &l, now);
    if (n->role.owner) tell_owner(n, &l);
    if (n->role.head) tell_head(n, &l);
}

void echi_tell_all(struct echi_node *n, int64_t now) {
    char text[480] = "";
    struct echi_print l = {text, sizeof text, 0};
    echi_print(&l, "node: rank %d of %d, %.1f s since start", n->rank, n->world, seconds(n->began, now));
    if (!n->ready) {
        echi_print(&l, "; has not met all nodes yet");
        return say(n, &l);
    }
    echi_print(&l, "; I/O thread: late by %.0f ms at most, busy for %.0f ms at a time at most", seconds(0, n->fair.late_most) * 1e3,
               seconds(0, n->round_most) * 1e3);
    if (n->role.ended)
        echi_print(&l, "; the run is over%s", n->c->user && n->rank != 0 && !n->role.final_in ? ", the final weights are to come" : "");
    say(n, &l);
    echi_tell_roles(n, now);
    tell_lane(n, &l, now);
    tell_wire(n, &l);
    tell_peers(n, &l);
}

/* ------------------------------------------------------ what one peer owes */

/* The nearest to a part comes first: a push that stopped half-way, then what a flight here waits for, then leases. */
const char *echi_tell_owed(const struct echi_node *n, int peer, char *buf, size_t cap) {
    const struct echi_push *push = n->role.owner ? &n->role.owner->push[peer] : NULL;
    struct echi_print l = {buf, cap, 0};
    buf[0] = 0;
    const struct echi_coordinator *c = n->role.coordinator;
    if (c && c->phase != ECHI_RUN_TRAINS) echi_print(&l, ", while rank 0 %s", phase_name(c->phase));
    if (push && push->parts_in > 0 && !push->whole) {
        echi_print(&l, ", while ");
        int i = 0;
        while (echi_part_in(&push->here, echi_post_part(&n->setup, ECHI_KIND_PUSH, n->rank, i))) i++;
        add_part(&l, n, echi_post_part(&n->setup, ECHI_KIND_PUSH, n->rank, i));
        echi_print(&l, " of lease %u was to come", push->lease.id);
    }
    for (int i = 0; n->role.worker && i < n->setup.plan.flights && l.len == 0; i++) {
        const struct echi_flight *s = &n->role.worker->flight[i];
        const bool weights = (s->phase == ECHI_FLIGHT_WAITS_WEIGHTS && owner_of(n) == peer) ||
                             (s->phase == ECHI_FLIGHT_WAITS_PART && s->early && waits_for_part_of(n, s) == peer);
        const bool head = (s->phase == ECHI_FLIGHT_WAITS_HEAD && echi_plan_head_of(&n->setup.plan, &s->lease) == peer) ||
                          (s->phase == ECHI_FLIGHT_WAITS_SHADOW && echi_plan_shadow(&n->setup.plan) == peer);
        const bool lease = s->phase == ECHI_FLIGHT_IDLE && n->role.worker->n_leases == 0 && peer == 0;
        if (!weights && !head && !lease) continue;
        echi_print(&l, ", while the worker here ");
        add_flight(&l, n, s);
    }
    if (l.len == 0 && n->role.coordinator && n->role.coordinator->held[peer] > 0) {
        echi_print(&l, ", while training, with lease");
        add_leases(&l, n->role.coordinator, peer);
        echi_print(&l, " out");
    }
    return buf;
}
