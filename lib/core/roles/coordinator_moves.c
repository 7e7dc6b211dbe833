/* SPDX-License-Identifier: Apache-2.0
 * Moves (PROTOCOL.md, "Regrouping"): a worker whose speed has changed joins another group, or gets steps of another size.
 * Told like a loss: no lease is dealt before every living node has said READY, so that none overtakes the word that it names a new
 * owner. Owners stay who they are, the reserve's too, so no state freezes. */
#include "echi_coordinator_impl.h"

#include <string.h>

bool echi_coordinator_move(struct echi_coordinator *c, int rank, int group, struct echi_actions *out) {
    struct echi_plan *p = &c->plan;
    if (c->phase != ECHI_RUN_TRAINS || !c->calm || c->policy->rounds || !echi_losses_settled(c)) return false;
    if (!echi_plan_may_move(p, rank, group) || p->group_of[rank] == group || c->arriving[rank] || !echi_ledger_has_moved(c, rank))
        return false;
    echi_plan_move(p, rank, group);
    echi_ledger_moved(c, rank);
    c->arriving[rank] = true;
    c->moves++;
    c->members++;
    c->calm = false;
    for (int r = 0; r < c->request.world; r++) {
        if (is_lost(c, r)) continue;
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_REGROUP);
        a->msg.peer = (uint16_t)rank;
        a->msg.group = (uint8_t)group;
        a->msg.members = c->members;
    }
    return true;
}

/* Is a move worth it by what links carry as well, where all are known? By the times of its steps alone a worker beside its owner is
 * fast, and others of its group are slow because of the link that they share; neither would be so elsewhere. */
static bool is_worth_it(struct echi_coordinator *c, const struct echi_change *change, int64_t now) {
    struct echi_plan *plan = &c->work.tried;
    struct echi_times *times = c->work.times, *t = &times[change->rank];
    const uint32_t n = c->size[change->rank];
    struct echi_prediction here, there;
    *plan = *plan_of(c);
    for (int r = 0; r < plan->world; r++) {
        if (is_lost(c, r) || c->request.absent[r] || (plan->group_of[r] != ECHI_NONE && !echi_link_known(&c->times[r].link))) return true;
        plan->n[r] = c->size[r];
    }
    /* Links carry what they do now, and it computes as it does now. */
    memcpy(times, c->times, (size_t)plan->world * sizeof *times);
    echi_follow_links(&c->follow, plan, c->times, now, times);
    const double usual = echi_times_step(t, plan->cut, n);
    const double slower = echi_regroup_computes(&c->regroup, change->rank) / usual;
    for (uint32_t i = 0; i < t->count; i++) {
        t->trunk[i] *= slower;
        t->head[i] *= slower;
    }
    echi_predict(plan, times, &c->request.load, 0, &c->work.predict, &here);
    plan->group_of[change->rank] = (uint8_t)change->to;
    echi_predict(plan, times, &c->request.load, 0, &c->work.predict, &there);
    return there.rate > here.rate * (1 + (change->from == echi_plan_reserve(plan) ? -ECHI_REGROUP_GAIN : ECHI_REGROUP_GAIN));
}

/* What a step took, by its worker's word; not what an evaluation or a checkpoint did, nor a step of another size. */
void echi_moves_watch(struct echi_coordinator *c, const struct echi_msg *m, int64_t now) {
    const int rank = m->lease.worker, group = c->plan.group_of[rank];
    const int64_t paused = c->measuring + c->keeping;
    const bool same = c->paused[rank] == paused;
    c->paused[rank] = paused;
    if (m->lease.owner != c->plan.owner_of[group]) return;
    c->arriving[rank] = false;
    if (!same || m->compute >> 62 || m->exchange >> 62) return;
    if (!c->policy->local)
        echi_follow_stretch(&c->follow, rank, (double)m->compute * 1e-9 / echi_times_step(&c->times[rank], c->plan.cut, m->lease.n));
    if (m->lease.n != c->size[rank]) return;
    echi_follow_step(&c->follow, rank, (double)m->compute, (double)m->exchange);
    if (c->request.regroup_after <= 0 || !c->policy->grouped) return;
    struct echi_change change = echi_regroup_step(&c->regroup, &c->plan, c->size, rank, &c->times[rank], (double)m->compute,
                                                  (double)m->exchange);
    if (change.kind == ECHI_CHANGE_GROUP && !is_worth_it(c, &change, now)) {
        echi_regroup_refused(&c->regroup, change.rank);
        change.kind = ECHI_CHANGE_NONE;
    }
    if (change.kind != ECHI_CHANGE_NONE) c->change = change;
    else if (c->change.rank == rank) c->change.kind = ECHI_CHANGE_NONE;
}

/* Does the change that is due, if it can be now. True when all nodes are being told. */
bool echi_moves_change(struct echi_coordinator *c, struct echi_actions *out) {
    if (c->change.kind == ECHI_CHANGE_NONE || !echi_ledger_unfinished(c)) return false;
    const struct echi_change change = c->change;
    const bool moves = change.kind == ECHI_CHANGE_GROUP;
    if (moves && !echi_coordinator_move(c, change.rank, change.to, out)) return false;
    if (!moves) {
        c->size[change.rank] = change.n;
        c->sizes++;
    }
    c->told = change;
    c->change.kind = ECHI_CHANGE_NONE;
    echi_regroup_done(&c->regroup, &c->plan, &change);
    return moves;
}
