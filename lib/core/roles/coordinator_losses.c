/* SPDX-License-Identifier: Apache-2.0
 * Losses (PROTOCOL.md, "Losses"). All living nodes are told, and say when they take nothing more from the lost one (READY with
 * the new membership epoch). Only then owners are asked what is in, and leases are dealt again: what a node says afterwards cannot
 * be overtaken. */
#include "echi_coordinator_impl.h"

bool echi_losses_settled(const struct echi_coordinator *c) {
    for (int g = 0; g < c->plan.n_groups; g++)
        if (c->frozen[g].lost && !c->frozen[g].settled) return false;
    return true;
}

/* Does every living owner's word on the group's last state stand? */
static bool all_known(const struct echi_coordinator *c, const struct echi_frozen *f) {
    for (int g = 0; g < c->plan.n_groups; g++)
        if (echi_plan_group_lives(&c->plan, g) && !f->known[g]) return false;
    return true;
}

static bool all_have(const struct echi_coordinator *c, const struct echi_frozen *f) {
    for (int g = 0; g < c->plan.n_groups; g++)
        if (echi_plan_group_lives(&c->plan, g) && f->have[g] != f->version) return false;
    return true;
}

/* An owner's copy of a lost group's state. The highest version is kept; its holder hands it to all. */
static void on_copy(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const int teller = echi_plan_group_owned(&c->plan, e->from);
    if (m->group >= c->plan.n_groups || m->members != c->members || teller < 0) return;
    struct echi_frozen *f = &c->frozen[m->group];
    if (!f->lost || f->settled) return;
    f->known[teller] = true;
    f->have[teller] = m->version;
    if (!f->decided && (f->holder == ECHI_NO_RANK || m->version > f->version)) {
        f->holder = e->from;
        f->version = m->version;
        echi_marks_get(m->marks, f->mark, c->request.world);
    }
    if (!all_known(c, f)) return;
    const bool news = !f->decided;
    if (news) echi_ledger_decide(c, c->plan.owner_of[m->group], f->mark);
    f->decided = true;
    if (all_have(c, f)) {
        f->settled = true;
        echi_ledger_settled(c, c->plan.owner_of[m->group]);
        return;
    }
    for (int g = 0; g < c->plan.n_groups && news; g++) {
        if (!echi_plan_group_lives(&c->plan, g)) continue;
        struct echi_action *a = echi_act_send(out, c->plan.owner_of[g], ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_REVOKE);
        a->msg.group = m->group;
        a->msg.peer = f->holder;
    }
}

void echi_losses_revoked(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    if (e->msg->from_role == ECHI_ROLE_WORKER) echi_ledger_back(c, &e->msg->lease, e->from);
    else if (e->msg->lease.id == 0) on_copy(c, e, out);
    else if (e->msg->flag != ECHI_REVOKED_DROPPED) echi_ledger_answer(c, &e->msg->lease, e->from, e->msg->flag == ECHI_REVOKED_IN);
    else if (plan_of(c)->drop_older <= 0 || !echi_ledger_dropped(c, &e->msg->lease, e->from))
        echi_act_fault(out, ECH_E_FORMAT, "an owner dropped a lease that is not out");
}

/* A node knows of all losses up to an epoch. */
void echi_losses_ready(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    c->ready[e->from] = e->msg->members;
    if (e->msg->flag) echi_homes_full(c, e->from);
    for (int r = 0; r < c->request.world; r++)
        if (!is_lost(c, r) && c->ready[r] != c->members) return;
    c->calm = true;
    echi_ledger_ask(c, out);
    /* With shards the evaluation begins anew (echi_eval_lost). */
    if (c->source != ECHI_NO_RANK && is_lost(c, c->source)) echi_eval_ask_trunk(c, 0, out);
    echi_eval_ask_new_head(c, out);
}

/* The states that are not agreed on yet: who holds what is asked again. */
static void doubt(struct echi_coordinator *c, int rank) {
    for (int g = 0; g < c->plan.n_groups; g++) {
        struct echi_frozen *f = &c->frozen[g];
        if (!f->lost || f->settled) continue;
        memset(f->known, 0, sizeof f->known);
        if (f->decided && f->holder != rank) continue;
        f->decided = false;
        f->holder = ECHI_NO_RANK;
    }
}

/* Is there no run without this rank? */
static bool ends_with(const struct echi_coordinator *c, int rank) {
    return c->phase == ECHI_RUN_MEASURES ? rank == 0 : !echi_plan_can_lose(&c->plan, rank);
}

/* Goes on without a node, or ends the run with this status. It is told itself, too: it may be alive, and not know why. */
void echi_lose(struct echi_coordinator *c, int rank, ech_status status, const char *text, int64_t now, struct echi_actions *out) {
    if (is_lost(c, rank)) return;
    const int group = echi_plan_group_owned(&c->plan, rank);
    const bool head = echi_plan_hosts(&c->plan, rank, ECHI_ROLE_HEAD);
    if (c->phase == ECHI_RUN_ENDS) {
        /* The run has ended well: whoever leaves without its last word only leaves a gap in the report. */
        return echi_end_said(c, rank, out);
    }
    if (c->phase == ECHI_RUN_MEASURES && rank != 0) {
        if (c->request.absent[rank]) return;
        c->request.absent[rank] = true;
        echi_end_send(out, rank, status, rank, text);
        if (last_answer(c, rank)) echi_make_plan(c, now, out);
        return;
    }
    if (ends_with(c, rank)) return echi_end_with(c, status, rank, text, out);
    echi_plan_lose(&c->plan, rank);
    echi_end_send(out, rank, status, rank, text);
    c->lost_rank[c->n_lost++] = (uint16_t)rank;
    c->members++;
    c->calm = false;
    memset(c->quiet, 0, sizeof c->quiet);
    if (group >= 0 && !c->plan.shards) c->frozen[group] = (struct echi_frozen){.lost = true, .holder = ECHI_NO_RANK};
    echi_regroup_anew(&c->regroup, &c->plan);
    c->change.kind = ECHI_CHANGE_NONE;   /* it was for another cluster */
    doubt(c, rank);
    for (int r = 0; r < c->request.world; r++) {
        if (is_lost(c, r)) continue;
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_LOST);
        a->msg.peer = (uint16_t)rank;
        a->msg.members = c->members;
        memcpy(a->msg.text, text, strlen(text));
    }
    if (c->phase == ECHI_RUN_PLANNED && last_answer(c, rank)) echi_feed(c, out);
    else echi_feed_lost(c, rank, head, now);
    if (c->phase == ECHI_RUN_HOLDS && last_answer(c, rank)) echi_eval_held(c, now, out);
    echi_eval_lost(c, rank, now, out);
    echi_keep_lost(c, rank, now);
    echi_homes_lost(c);
    if (c->phase == ECHI_RUN_DRAINS) c->phase = ECHI_RUN_TRAINS;   /* drained anew once all that was lost is back */
}

/* A node's user wants it to leave. Its work is handed on as that of a lost node is, without a wait for its silence. One without which there
 * is no run ends it, in order, and so does a user who means the run; who asks while it ends anyway stays to the end. */
void echi_leave(struct echi_coordinator *c, int rank, bool run, int64_t now, struct echi_actions *out) {
    if (c->stopping || c->phase >= ECHI_RUN_DRAINS) return;
    if (run || ends_with(c, rank)) echi_stop(c, out);
    else echi_lose(c, rank, ECH_E_ABORTED, "it left the run, as its user asked", now, out);
}
