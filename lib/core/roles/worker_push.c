/* SPDX-License-Identifier: Apache-2.0
 * What a worker pushes: the gradients of a step, part by part, to who owns them. */
#include "echi_roles.h"

/* Does this worker hold a lease of the same owner beside the one of flight `s`? */
static bool holds_another(const struct echi_worker *w, const struct echi_flight *s) {
    for (int i = 0; i < w->setup->plan.flights; i++)
        if (&w->flight[i] != s && echi_flight_begun(&w->flight[i]) && w->flight[i].joined == s->joined) return true;
    return w->n_leases > 0 && s->joined == w->joined;
}

/* Where the time since the last push went. A task of another flight may be out: what it has taken so far counts. */
static void tell_times(struct echi_worker *w, uint64_t now, struct echi_msg *m) {
    if (w->tasks > 0) {
        w->busy += now - w->busy_since;
        w->busy_since = now;
    }
    m->compute = w->busy;
    m->exchange = now - w->pushed_at - w->busy;
    w->busy = 0;
    w->pushed_at = now;
}

/* Is the gradient of every layer there that the next part has parameters of? */
static bool next_is_ready(const struct echi_worker *w, const struct echi_flight *s) {
    const struct echi_part *p = &w->setup->plan.parts.part[s->next_part];
    for (int layer = p->first; layer <= p->last; layer++)
        if (!s->ready[layer]) return false;
    return true;
}

/* Who gets this part of a push: the lease's owner, or of several the one that owns it. */
static int owner_of_part(const struct echi_worker *w, const struct echi_lease *l, int part) {
    const struct echi_plan *p = &w->setup->plan;
    return p->shards ? echi_plan_part_owner(p, p->group_of[l->worker], part) : l->owner;
}

static bool is_wanted(const struct echi_worker *w, const struct echi_lease *l, int part) {
    return echi_lease_wanted(l, w->setup->plan.parts.part[part].shard);
}
/* The part of a push that goes last. */
static int last_part(const struct echi_worker *w, const struct echi_lease *l) {
    int part = 0;
    while (part + 1 < w->parts && !is_wanted(w, l, part)) part++;
    return part;
}

/* What a push says of its lease. */
static void say_pushed(struct echi_worker *w, const struct echi_flight *s, struct echi_msg *m) {
    m->lease = s->lease;
    m->flag = holds_another(w, s);
    if (s->joined == w->joined) w->entered = m->flag;
    m->members = s->joined;
    m->version = s->version;
    m->samples = s->samples;
    m->head = s->head;
    m->loss = s->loss;
    m->correct = s->correct;
}

/* In a ring: to each other owner, that this lease is computed. The first shard's tells the coordinator what it took. */
static void tell_lease(struct echi_worker *w, struct echi_flight *s, int64_t now, struct echi_actions *out) {
    const struct echi_plan *p = &w->setup->plan;
    for (int k = 0; k < p->shards; k++) {
        if (p->shard_owner[k] == w->setup->rank) continue;
        struct echi_action *a = echi_act_send(out, p->shard_owner[k], ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_RING_LEASE);
        say_pushed(w, s, &a->msg);
        if (k == 0) tell_times(w, (uint64_t)now, &a->msg);
    }
}

/* Gradients travel from the last part to the first, so that the owner can post their places in that order. The part that goes last, the
 * first as a rule, carries the step's loss, so it waits for the end of the step (`done`): no round is whole, and no weights are answered,
 * while a step of it is still computed. What a shard has is not sent there again. */
void echi_worker_push(struct echi_worker *w, struct echi_flight *s, bool done, int64_t now, struct echi_actions *out) {
    const int last = last_part(w, &s->lease);
    if (s->abandoned || w->takeover.still) return;
    while (s->next_part >= 0 && (done || s->next_part > last) && next_is_ready(w, s)) {
        if (!is_wanted(w, &s->lease, s->next_part)) {
            s->next_part--;
            continue;
        }
        const int to = owner_of_part(w, &s->lease, s->next_part);
        if (w->ring.on && to != w->setup->rank) {
            echi_worker_ring_push(w, s->next_part--, out);
            continue;
        }
        struct echi_action *a = echi_act_send(out, to, ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_PUSH);
        const bool coded = w->setup->plan.codec != ECHI_CODEC_DENSE;
        a->slot = coded ? (struct echi_slot){ECHI_SLOT_WORKER_CODED, (uint8_t)(s - w->flight)} : s->grads;
        say_pushed(w, s, &a->msg);
        a->msg.part = (uint16_t)s->next_part;
        if (done && s->next_part == last) tell_times(w, (uint64_t)now, &a->msg);
        s->sending++;
        s->next_part--;
    }
    if (w->ring.on && done) tell_lease(w, s, now, out);
}
