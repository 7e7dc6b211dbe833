/* SPDX-License-Identifier: Apache-2.0
 * The worker's part in a ring (PROTOCOL.md, "Ring").
 *
 * A part's sum begins at the first worker behind its owner that has a share of the round, in the place of its gradients. Every other worker
 * gets it into a place of its own, adds its gradients there when they are ready, and sends it on: gradients are kept apart from sums, so
 * that they can be pushed again when the ring breaks. Weights go on from where they came to, as they come. */
#include "echi_roles.h"

static const struct echi_plan *plan_of(const struct echi_worker *w) { return &w->setup->plan; }
static int owner_of(const struct echi_worker *w, int part) { return echi_plan_part_owner(plan_of(w), 0, part); }
static int before(const struct echi_worker *w) { return echi_ring_before(plan_of(w), w->setup->rank); }

static void post_sum(const struct echi_worker *w, int part, struct echi_actions *out) {
    echi_act_post_part(out, before(w), ECHI_KIND_RING_SUM, (struct echi_slot){ECHI_SLOT_RING, 0}, part);
}

void echi_worker_ring_start(struct echi_worker *w, struct echi_actions *out) {
    for (int part = w->parts - 1; part >= 0; part--)   /* as they come */
        if (owner_of(w, part) != w->setup->rank && owner_of(w, part) != before(w)) post_sum(w, part, out);
}

/* ---- sums ---- */

/* Who has a share of a round of so many samples. All but an epoch's last are of one size, and no message looks at all nodes. */
static const struct echi_ranks *sharing(struct echi_worker *w, uint32_t size) {
    uint32_t n[ECHI_WORLD_MAX];
    if (w->ring.dealt == size) return &w->ring.sharing;
    echi_plan_deal(plan_of(w), size, n);
    w->ring.sharing = (struct echi_ranks){{0}};
    for (int r = 0; r < plan_of(w)->world; r++)
        if (n[r] > 0) echi_ranks_add(&w->ring.sharing, r);
    w->ring.dealt = size;
    return &w->ring.sharing;
}

static void send_sum(struct echi_worker *w, int part, struct echi_slot from, const struct echi_lease *first, uint32_t samples,
                     struct echi_actions *out) {
    const int to = echi_ring_next(plan_of(w), w->setup->rank);
    struct echi_action *a = echi_act_send(out, to, to == owner_of(w, part) ? ECHI_ROLE_OWNER : ECHI_ROLE_WORKER, ECHI_ROLE_WORKER,
                                          ECHI_KIND_RING_SUM);
    a->slot = from;
    a->msg.lease = *first;
    a->msg.part = (uint16_t)part;
    a->msg.samples = samples;
    a->msg.members = w->joined;
}

static void send_on(struct echi_worker *w, int part, struct echi_actions *out) {
    send_sum(w, part, (struct echi_slot){ECHI_SLOT_RING, 0}, &w->ring.first[part], w->ring.samples[part], out);
    echi_part_drop(&w->ring.here, part);
    echi_part_add(&w->ring.spent, part);
    w->ring.sending++;
}

static void add(struct echi_worker *w, int part, struct echi_actions *out) {
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_ADD;
    t->role = ECHI_ROLE_WORKER;
    t->lease = w->ring.of;
    t->state = (struct echi_slot){ECHI_SLOT_RING, 0};
    t->grads = (struct echi_slot){ECHI_SLOT_WORKER_GRADS, 0};
    t->only = (uint16_t)(1 + part);
    t->alone = echi_lease_alone(&w->ring.first[part], w->ring.samples[part]);
    echi_part_drop(&w->ring.ready, part);
    w->ring.tasks++;
}

void echi_worker_ring_push(struct echi_worker *w, int part, struct echi_actions *out) {
    struct echi_flight *s = &w->flight[0];
    w->ring.of = s->lease;
    if (echi_ring_first(plan_of(w), sharing(w, s->lease.round_size), owner_of(w, part)) == w->setup->rank) {
        send_sum(w, part, (struct echi_slot){ECHI_SLOT_WORKER_GRADS, 0}, &s->lease, s->lease.n, out);
        s->sending++;
        return;
    }
    echi_part_add(&w->ring.ready, part);
    if (echi_part_in(&w->ring.here, part)) add(w, part, out);
}

void echi_worker_ring_sum(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const struct echi_lease *l = &m->lease;
    if (plan_of(w)->exchange == ECHI_EXCHANGE_RING && !w->ring.on) return;   /* of one that has ended */
    if (!w->ring.on || e->from != before(w) || m->part >= w->parts || owner_of(w, m->part) == w->setup->rank ||
        !echi_lease_valid(l, plan_of(w)) || m->samples < 1 || m->samples > l->round_size || m->members != w->joined ||
        echi_part_in(&w->ring.here, m->part))
        return echi_act_fault(out, ECH_E_FORMAT, "a sum came round the ring that nobody waits for: do all nodes run the same version?");
    if (w->takeover.still) return;   /* its gradients are pushed again */
    w->ring.first[m->part] = *l;
    w->ring.samples[m->part] = (uint32_t)m->samples;
    echi_part_add(&w->ring.here, m->part);
    if (!echi_ranks_has(sharing(w, l->round_size), w->setup->rank)) return send_on(w, m->part, out);
    if (echi_part_in(&w->ring.ready, m->part)) add(w, m->part, out);
}

void echi_worker_ring_added(struct echi_worker *w, const struct echi_task *t, struct echi_actions *out) {
    const int part = t->only - 1;
    w->ring.tasks--;
    if (w->takeover.still) return;
    if (t->lease.round != w->ring.first[part].round)
        return echi_act_fault(out, ECH_E_FORMAT, "a sum of another round came round the ring: do all nodes run the same version?");
    if (echi_lease_before(&t->lease, &w->ring.first[part])) w->ring.first[part] = t->lease;
    w->ring.samples[part] += t->lease.n;
    send_on(w, part, out);
}

/* ---- weights ---- */

void echi_worker_ring_vacate(struct echi_worker *w, int place, int part) { echi_part_add(&w->ring.vacant[place], part); }

void echi_worker_ring_post(struct echi_worker *w, uint8_t place, uint16_t owner) {
    w->posted[place] = owner;
    for (int part = 0; part < w->weight_parts; part++) echi_worker_ring_vacate(w, place, part);
}

static void post_weights(struct echi_worker *w, int place, struct echi_actions *out) {
    if (echi_part_none(&w->ring.vacant[place])) return;   /* as after most events */
    for (int part = 0; part < w->weight_parts; part++) {
        if (!echi_part_in(&w->ring.vacant[place], part)) continue;
        echi_act_post_part(out, echi_ring_weights_from(plan_of(w), w->setup->rank, part), ECHI_KIND_RING_WEIGHTS,
                           (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, (uint16_t)place}, part);
    }
    w->ring.vacant[place] = (struct echi_part_set){{0}};
}

void echi_worker_ring_weights(struct echi_worker *w, int place, const struct echi_msg *m, struct echi_actions *out) {
    const int to = echi_ring_weights_next(plan_of(w), w->setup->rank, m->part);
    if (to < 0) return;
    struct echi_action *a = echi_act_send(out, to, ECHI_ROLE_WORKER, ECHI_ROLE_WORKER, ECHI_KIND_RING_WEIGHTS);
    a->slot = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, (uint16_t)place};
    a->msg.part = m->part;
    a->msg.version = m->version;
    a->msg.samples = m->samples;
    a->msg.members = m->members;
    w->ring.handed[place]++;
}

/* ---- what is free again ---- */

bool echi_worker_ring_sent(struct echi_worker *w, const struct echi_event *e) {
    if (e->slot.kind == ECHI_SLOT_RING) w->ring.sending--;
    else if (e->slot.kind == ECHI_SLOT_WORKER_WEIGHTS && e->kind == ECHI_KIND_RING_WEIGHTS) w->ring.handed[e->slot.index]--;
    else return false;
    return true;
}

/* Places of sums are posted again when all of a round have left: none of the next comes before, since it needs the weights that these
 * make. */
void echi_worker_ring_posts(struct echi_worker *w, struct echi_actions *out) {
    if (!w->ring.on) return;
    const bool some = !echi_part_none(&w->ring.spent);
    for (int part = w->parts - 1; part >= 0 && some && w->ring.sending == 0; part--) {
        if (!echi_part_in(&w->ring.spent, part)) continue;
        post_sum(w, part, out);
        echi_part_drop(&w->ring.spent, part);
    }
    for (int place = 0; place < ECHI_WORKER_PLACES; place++)
        if (w->ring.handed[place] == 0) post_weights(w, place, out);
}

/* ---- the end ---- */

bool echi_worker_ring_quiet(const struct echi_worker *w) {
    bool quiet = w->ring.tasks == 0 && w->ring.sending == 0;
    for (int i = 0; i < ECHI_WORKER_PLACES; i++) quiet = quiet && w->ring.handed[i] == 0;
    return quiet;
}

/* What was posted for the ring cannot be taken back, and something may still come there. So the place that weights were coming to is never
 * used again: there is one more, and those that the worker has are in another. Nor is that of the sums. */
void echi_worker_ring_end(struct echi_worker *w, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(w);
    const struct echi_slot place = {ECHI_SLOT_WORKER_WEIGHTS, (uint16_t)(echi_plan_places(p, w->setup->rank) + p->flights - 1)};
    w->ring.on = false;
    w->ring.here = w->ring.ready = w->ring.spent = (struct echi_part_set){{0}};
    for (int i = 0; i < ECHI_WORKER_PLACES; i++) {
        w->ring.vacant[i] = (struct echi_part_set){{0}};
        w->posted[i] = ECHI_NO_RANK;
        w->coming[i] = (struct echi_coming){0};
    }
    w->posted[place.index] = w->owner;
    for (int k = 0; k < p->shards; k++)
        if (echi_plan_leads_shard(p, 0, k)) echi_act_post(out, p->shard_owner[k], ECHI_KIND_WEIGHTS, place);
}
