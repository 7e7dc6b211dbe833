/* SPDX-License-Identifier: Apache-2.0
 * The worker's part in a takeover (PROTOCOL.md, "Takeover"): an owner of a shard is lost, and others get its parts.
 *
 * It stops: a step that is under way runs to its end, and nothing of it is pushed. Weights that come are passed over, so that nobody's send
 * waits for a place. When all that it has sent has left it reports the version of its weights, and the lease whose gradients it has. After
 * the takeover it gets that lease again, and pushes them again without computing them. */
#include "echi_roles.h"

#include <string.h>

void echi_worker_begin_shards(struct echi_worker *w) {
    memcpy(w->takeover.owner, w->setup->plan.shard_owner, sizeof w->takeover.owner);
}

static void post_part(const struct echi_worker *w, int place, int part, struct echi_actions *out) {
    const int owner = echi_plan_part_owner(&w->setup->plan, 0, part);
    if (w->setup->plan.lost[owner]) return;
    echi_act_post_part(out, owner, ECHI_KIND_WEIGHTS, (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, (uint16_t)place}, part);
}

/* What has come to a place, and is not whole, is not used. */
static void empty(struct echi_worker *w, int place, struct echi_actions *out) {
    struct echi_coming *c = &w->coming[place];
    for (int part = 0; part < w->weight_parts && c->in > 0; part++) {
        if (!echi_part_in(&c->here, part)) continue;
        if (w->ring.on) echi_worker_ring_vacate(w, place, part);
        else post_part(w, place, part, out);
    }
    *c = (struct echi_coming){0};
}

void echi_worker_stop(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    w->takeover.members = e->msg->members;
    if (!echi_plan_orphaned(&w->setup->plan)) return;
    w->takeover.still = true;
    w->takeover.told = false;
    w->n_leases = 0;
    echi_worker_drops_forward(w, out);
    for (int i = 0; i < ECHI_WORKER_PLACES; i++)
        if (w->posted[i] != ECHI_NO_RANK && !(w->flight[0].early && w->flight[0].place == i)) empty(w, i, out);
}

void echi_worker_drops_forward(struct echi_worker *w, struct echi_actions *out) {
    struct echi_flight *s = &w->flight[0];
    if (!w->takeover.still || s->phase != ECHI_FLIGHT_WAITS_PART) return;   /* a task reads what has come; it ends first */
    if (s->early) empty(w, s->place, out);
    s->early = false;
    s->phase = ECHI_FLIGHT_IDLE;
}

bool echi_worker_passes_over(struct echi_worker *w, int place, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const struct echi_plan *p = &w->setup->plan;
    const struct echi_coming *c = &w->coming[place];
    if (w->ring.on && w->takeover.still && m->part < w->weight_parts) echi_worker_ring_vacate(w, place, m->part);
    if (w->ring.on) return w->takeover.still;
    const bool other = w->takeover.still || m->members != w->joined;
    if (!other && (c->in == 0 || m->version == c->version)) return false;
    if (!echi_plan_begins_anew(p) || m->part >= w->weight_parts || !echi_plan_owns_part(p, e->from, m->part)) return false;
    if (!other && m->version > c->version) {   /* the others send newer ones, too */
        empty(w, place, out);
        return false;
    }
    post_part(w, place, m->part, out);
    return true;
}

bool echi_worker_has_gradients(const struct echi_worker *w, const struct echi_lease *l) {
    const struct echi_lease *of = &w->takeover.of;
    return w->takeover.gradients && w->takeover.has && w->setup->plan.shards && l->round == of->round && l->epoch == of->epoch &&
           l->start == of->start && l->n == of->n && l->round_size == of->round_size;
}

void echi_worker_stands(struct echi_worker *w, struct echi_actions *out) {
    const struct echi_flight *s = &w->flight[0];
    if (!w->takeover.still || w->takeover.told || w->tasks > 0 || s->sending > 0 || !echi_worker_ring_quiet(w)) return;
    w->takeover.told = true;
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_WORKER, ECHI_KIND_STANDS);
    a->msg.flag = w->takeover.has ? ECHI_STANDS_AT : ECHI_STANDS_WITHOUT;
    a->msg.version = s->version;
    a->msg.members = w->takeover.members;
    if (w->takeover.gradients && w->takeover.has && w->takeover.of.round == s->version) a->msg.lease = w->takeover.of;
}

/* Places for weights are those of the owners that are new. */
static void post_for_others(struct echi_worker *w, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    for (int i = 0; i < ECHI_WORKER_PLACES; i++) {
        if (w->posted[i] == ECHI_NO_RANK) continue;
        w->posted[i] = w->owner;
        for (int part = 0; part < w->weight_parts; part++) {
            const int shard = p->parts.part[part].shard;
            if (w->takeover.owner[shard] != p->shard_owner[shard]) post_part(w, i, part, out);
        }
    }
}

/* Weights that are newer than what the takeover begins at were made with a part that is lost: nothing of them may be used. */
void echi_worker_takeover(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    struct echi_flight *s = &w->flight[0];
    w->owner = p->owner_of[0];
    w->joined = e->msg->members;
    w->entered = false;
    w->takeover.still = false;
    if (s->version > e->msg->version) w->takeover.has = false;
    if (!w->takeover.has) {
        w->takeover.gradients = false;
        s->phase = ECHI_FLIGHT_WAITS_WEIGHTS;
        s->version = s->samples = 0;
    }
    if (w->ring.on) echi_worker_ring_end(w, out);
    else post_for_others(w, out);
    echi_worker_begin_shards(w);
    for (int k = 0; k < p->shards; k++) {
        if (!echi_plan_leads_shard(p, 0, k)) continue;
        struct echi_action *a = echi_act_send(out, p->shard_owner[k], ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_RESUME);
        a->msg.part = s->weights;
        a->msg.flag = !w->takeover.has;
        a->msg.version = s->version;
        a->msg.members = w->joined;
    }
}
