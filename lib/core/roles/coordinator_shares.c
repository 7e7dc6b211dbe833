/* SPDX-License-Identifier: Apache-2.0
 * Shares of rounds while a run goes (PROTOCOL.md, "Plans while a run goes"). The plan's shares stay with all nodes: they say what slots
 * have room for and who takes part. What a round is dealt by is the coordinator's alone, so nobody has to be told. */
#include "echi_coordinator_impl.h"

#define CHECKS 6    /* while a change lasts for as long as it must, at most */

/* Behind a loss no plan is predicted. */
bool echi_shares_may_follow(const struct echi_coordinator *c) {
    return c->n_lost == 0 && c->phase == ECHI_RUN_TRAINS && echi_plan_shares_follow(plan_of(c));
}

bool echi_coordinator_share(struct echi_coordinator *c, const uint32_t share[ECHI_WORLD_MAX]) {
    const struct echi_plan *p = plan_of(c);
    uint64_t sum = 0;
    if (!echi_plan_shares_follow(p)) return false;
    for (int r = 0; r < p->world; r++) {
        const bool takes_part = p->group_of[r] != ECHI_NONE;
        if (takes_part != (share[r] > 0) || (takes_part && share[r] > echi_plan_room(p, r))) return false;
        sum += share[r];
    }
    if (sum != p->round) return false;
    memcpy(c->size, share, p->world * sizeof *share);
    c->shares.changes++;
    return true;
}

/* Whose speed has changed the most. */
static void explain(struct echi_coordinator *c) {
    double most = 0;
    for (int r = 0; r < plan_of(c)->world; r++) {
        const double slower = echi_follow_slower(&c->follow, r), change = slower > 1 ? slower : 1 / slower;
        if (plan_of(c)->group_of[r] == ECHI_NONE || change <= most) continue;
        most = change;
        c->shares.slowest = r;
        c->shares.slower = slower;
    }
}

static double predicted(struct echi_coordinator *c, const uint32_t *share) {
    struct echi_prediction p;
    c->work.tried = *plan_of(c);
    memcpy(c->work.tried.n, share, (size_t)plan_of(c)->world * sizeof *share);
    echi_predict(&c->work.tried, c->work.now, &c->request.load, 0, &c->work.predict, &p);
    return p.rate;
}

void echi_shares_follow(struct echi_coordinator *c, int64_t now) {
    const int64_t after = c->request.regroup_after;
    uint32_t share[ECHI_WORLD_MAX];
    double longest = 0;
    if (now - c->shares.checked < after / CHECKS || c->applied_rounds - c->shares.round < ECHI_SHARES_ROUNDS) return;
    if (!echi_shares_may_follow(c)) return;
    c->shares.checked = now;
    c->shares.round = c->applied_rounds;
    echi_machines_seen(&c->follow, plan_of(c), c->times, now, c->work.now);
    const bool better = echi_shares_now(&c->follow, plan_of(c), c->work.now, c->times, c->size, share, &longest);
    if (!echi_lasting_check(&c->shares.lasting, better, longest, after, now)) return;
    /* Where rounds wait for links, shorter steps are no gain. */
    const double gain = predicted(c, share) / predicted(c, c->size) - 1;
    const bool gains = gain >= ECHI_REPLAN_GAIN && echi_coordinator_share(c, share);
    echi_lasting_answered(&c->shares.lasting, !gains, after, now);
    if (!gains) return;
    c->shares.gain = gain;
    explain(c);
}
