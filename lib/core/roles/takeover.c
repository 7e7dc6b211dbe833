/* SPDX-License-Identifier: Apache-2.0
 * Takeover: an owner of a shard is lost, and others get its parts (PROTOCOL.md, "Takeover"). The coordinator's part; the others' are in
 * owner_takeover.c and worker_takeover.c.
 *
 * Let V be the newest version that an heir, a living node with a worker and an owner, has whole. Every owner has V, or V + 1: each heir
 * computes a part of each round, so no round V + 1 is in anywhere before all heirs have V + 1 whole. The lost parts begin at V, which that
 * worker's node has. A shard that is at V + 1 keeps it: it was made of V.
 *
 * Only of a round with fewer samples than heirs, at an epoch's end, some have no part. Then whoever is lost next may take along what the
 * others lack, and the run ends with their newest weights. */
#include "echi_coordinator_impl.h"

static bool works(const struct echi_plan *p, int rank) { return !p->lost[rank] && p->group_of[rank] != ECHI_NONE; }
static bool owns(const struct echi_plan *p, int rank) { return !p->lost[rank] && echi_plan_shard_owned(p, rank) >= 0; }

void echi_takeover_stands(struct echi_coordinator *c, const struct echi_event *e) {
    const struct echi_msg *m = e->msg;
    if (m->flag == ECHI_STANDS_TAKEN) {
        c->takeover.takers -= m->members == c->takeover.stay && c->takeover.takers > 0;
        return;
    }
    struct echi_stop *s = m->from_role == ECHI_ROLE_OWNER ? &c->stopped_owner[e->from] : &c->stopped[e->from];
    *s = (struct echi_stop){m->members, m->flag != ECHI_STANDS_WITHOUT, m->flag != ECHI_STANDS_AT, m->version, m->lease};
}

static bool all_stand(const struct echi_coordinator *c) {
    const struct echi_plan *p = plan_of(c);
    for (int r = 0; r < p->world; r++) {
        if (works(p, r) && c->stopped[r].members != c->members) return false;
        if (owns(p, r) && c->stopped_owner[r].members != c->members) return false;
    }
    return true;
}

/* The version that the lost parts begin at. False: no heir has any weights yet; then it is 0, which each owner was fed whole, so nothing
 * has to be taken, and no momentum is lost. */
static bool find_version(const struct echi_coordinator *c, uint64_t *out) {
    const struct echi_plan *p = plan_of(c);
    bool found = false;
    *out = 0;
    for (int r = 0; r < p->world; r++) {
        const struct echi_stop *s = &c->stopped[r];
        if (!echi_plan_is_heir(p, r) || !s->has || (found && s->version <= *out)) continue;
        *out = s->version;
        found = true;
    }
    return found;
}

/* Are all owners at this version or the next, with no parts of one behind that? Where no heir has any weights all have the first, whole. */
static bool fits_all(const struct echi_coordinator *c, uint64_t version, bool found) {
    const uint64_t most = version + found;
    for (int r = 0; r < plan_of(c)->world; r++) {
        const struct echi_stop *s = &c->stopped_owner[r];
        if (!owns(plan_of(c), r)) continue;
        if (s->version < version || s->version > most) return false;
        if (found ? s->begun && s->version == most : !s->has) return false;
    }
    return true;
}

/* Parameters whose momentum begins at zero. Where no heir has any weights each owner goes on with what it was fed, as if no owner had been
 * lost before. */
static void count_params(struct echi_coordinator *c, uint64_t taken, bool found) {
    const struct echi_parts *parts = &plan_of(c)->parts;
    const bool all = echi_optimizer_adam(plan_of(c)->optimizer);
    if (!found && !all) {
        c->takeover.params = 0;
        return;
    }
    for (int i = 0; i < parts->count; i++) c->takeover.params += all || (taken >> parts->part[i].shard & 1) ? parts->part[i].count : 0;
}

/* The shards that lack round V: those of owners at V, and of those that get a part that is. */
static uint64_t find_lacking(struct echi_coordinator *c, uint64_t version, uint64_t taken, bool *out_ahead) {
    const struct echi_plan *p = plan_of(c);
    uint64_t lacking = 0;
    for (int r = 0; r < p->world; r++) {
        if (!owns(p, r)) continue;
        const bool ahead = c->stopped_owner[r].version > version;
        const uint64_t shards = echi_plan_shards_of(p, r);
        *out_ahead = *out_ahead || ahead || !c->stopped_owner[r].has;   /* its weights at V are gone: it opened that round again */
        c->takeover.takers++;
        if (!ahead || (shards & taken)) lacking |= shards;
    }
    return lacking;
}

/* The owner of the first shard says again what the loss of this round was. */
static void count_loss_anew(struct echi_coordinator *c, uint32_t round) {
    if (c->loss_noted && c->loss_round == round) c->loss_of_run = c->loss_before;
    c->loss_noted = false;
    c->round_loss = c->round_in = 0;
}

static void tell(struct echi_coordinator *c, uint64_t version, const uint32_t *mark, struct echi_actions *out) {
    c->members++;
    c->calm = false;
    c->takeover.stay = c->members;
    c->takeover.first_lease = c->next_lease;
    const struct echi_marks marks = echi_marks_of(mark, plan_of(c)->world, c->takeover.marks);
    for (int r = 0; r < plan_of(c)->world; r++) {
        if (plan_of(c)->lost[r]) continue;
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_TAKEOVER);
        a->msg.version = version;
        a->msg.members = c->members;
        a->msg.marks = marks;
    }
}

static void take_over(struct echi_coordinator *c, struct echi_actions *out) {
    uint64_t version;
    uint32_t mark[ECHI_WORLD_MAX] = {0};
    bool ahead = false;
    const bool found = find_version(c, &version);
    if (!fits_all(c, version, found))
        return echi_end_with(c, ECH_E_PEER_LOST, c->lost_rank[c->n_lost - 1],
                             "it was lost with weights of a short round that no other node has all of", out);
    for (int r = 0; r < plan_of(c)->world; r++)
        mark[r] = works(plan_of(c), r) && c->stopped[r].has == found && (!found || c->stopped[r].version == version);
    const uint64_t taken = echi_plan_take_over(&c->plan, mark);
    c->takeover.count++;
    count_params(c, taken, found);
    c->takeover.takers = 0;
    const uint64_t lacking = find_lacking(c, version, taken, &ahead);
    c->takeover.round = (uint32_t)version;
    c->takeover.behind = (struct echi_ranks){{0}};
    for (int r = 0; r < plan_of(c)->world; r++)
        if (ahead && !mark[r]) echi_ranks_add(&c->takeover.behind, r);
    if (lacking & 1) count_loss_anew(c, (uint32_t)version);
    echi_ledger_restart(c, (uint32_t)version, lacking);
    /* What was evaluated or kept at a place that is still to come was of weights that are lost. */
    c->evaluated_at = UINT64_MAX;
    if (c->kept_samples != UINT64_MAX && c->kept_samples > c->applied) c->kept_samples = UINT64_MAX;
    tell(c, version, mark, out);
}

bool echi_takeover(struct echi_coordinator *c, struct echi_actions *out) {
    if (!echi_plan_orphaned(plan_of(c))) return c->takeover.takers > 0;
    if (!echi_plan_begins_anew(plan_of(c))) return false;
    if (c->calm && all_stand(c)) take_over(c, out);
    return true;
}
