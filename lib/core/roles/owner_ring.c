/* SPDX-License-Identifier: Apache-2.0
 * The owner's part in a ring (PROTOCOL.md, "Ring"): of each of its parts one sum comes, from the worker in front of it. Only the own worker
 * pushes. What the others' leases are, and what their steps took, they tell it beside that (RING_LEASE). */
#include "echi_owner_impl.h"

static int before(const struct echi_owner *o) { return echi_ring_before(plan_of(o), o->setup->rank); }

static void post_sum(const struct echi_owner *o, int part, struct echi_actions *out) {
    echi_act_post_part(out, before(o), ECHI_KIND_RING_SUM, (struct echi_slot){ECHI_SLOT_RING, 0}, part);
}

void echi_ring_start(struct echi_owner *o, struct echi_actions *out) {
    for (int part = o->end - 1; part >= 0; part--)   /* as they come */
        if (echi_plan_owns_part(plan_of(o), o->setup->rank, part)) post_sum(o, part, out);
}

/* Is this a lease of the round under way? */
static bool is_now(const struct echi_owner *o, const struct echi_lease *l) {
    return o->started && echi_owner_wants(o, l) && echi_lease_valid(l, plan_of(o)) && l->round == o->version &&
           (o->round.size == 0 || l->round_size == o->round.size);
}

static bool sum_fits(const struct echi_owner *o, const struct echi_event *e) {
    const struct echi_msg *m = e->msg;
    return e->from == before(o) && m->part < o->end && echi_plan_owns_part(plan_of(o), o->setup->rank, m->part) && is_now(o, &m->lease) &&
           m->samples >= 1 && m->samples <= m->lease.round_size - o->round.come[m->part] && !echi_part_in(&o->ring.here, m->part);
}

static void on_sum(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (!sum_fits(o, e))
        return echi_act_fault(out, ECH_E_FORMAT, "a ring's sum came that does not fit the plan: do all nodes run the same version?");
    echi_part_add(&o->ring.here, m->part);
    o->ring.alone[m->part] = echi_lease_alone(&m->lease, m->samples);
    echi_rounds_come(o, &m->lease, m->part, (uint32_t)m->samples);
}

static void on_lease(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    struct echi_push *p = &o->push[e->from];
    if (!o->known[e->from] || m->lease.worker != e->from || e->from == o->setup->rank || !is_now(o, &m->lease) ||
        o->round_count == ECHI_ROUND_LEASES || echi_owner_has(o, &m->lease))
        return echi_act_fault(out, ECH_E_FORMAT, "a lease of a ring does not fit the plan: do all nodes run the same version?");
    p->lease = m->lease;
    p->whole = true;
    p->added = o->parts;
    p->seen = m->samples <= o->samples ? m->samples : o->samples;
    p->joined = m->members;
    p->held = o->answered_in[e->from];
    o->pushed_at[e->from] = e->now;
    echi_owner_note_push(p, m);
    echi_owner_enters(o, e->from, m->members);
    echi_rounds_end_push(o, e->from, out);
}

void echi_ring_message(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    if (plan_of(o)->exchange == ECHI_EXCHANGE_RING && !o->ring.on) return;   /* of one that has ended */
    if (o->ring.on && o->takeover.still) return;   /* the gradients are pushed again */
    if (!o->ring.on)
        return echi_act_fault(out, ECH_E_FORMAT, "a message of a ring came, and the plan has none: do all nodes run the same version?");
    if (e->msg->kind == ECHI_KIND_RING_SUM) on_sum(o, e, out);
    else on_lease(o, e, out);
}

void echi_ring_take(struct echi_owner *o, int part, struct echi_task *t) {
    if (!echi_part_in(&o->ring.here, part) || echi_part_in(&o->ring.taken, part)) return;
    t->ring = (struct echi_slot){ECHI_SLOT_RING, 0};
    t->alone = o->ring.alone[part];
    echi_part_add(&o->ring.taken, part);
}

void echi_ring_taken(struct echi_owner *o, const struct echi_task *t, struct echi_actions *out) {
    if (t->ring.kind && o->ring.on) post_sum(o, t->only - 1, out);
}

/* Samples of the round whose leases are known: all gradients of the own one may be here, and not all applied. */
bool echi_ring_holds_back(const struct echi_owner *o) {
    const struct echi_push *own = &o->push[o->setup->rank];
    const int left = o->parts - (o->round.next == ECHI_NONE ? 0 : o->answers.parts);
    return o->ring.on && left == 1 && o->round_in + (own->parts_in > 0 ? own->lease.n : 0) < o->round.size;
}

void echi_ring_end_round(struct echi_owner *o) { o->ring.here = o->ring.taken = (struct echi_part_set){{0}}; }
