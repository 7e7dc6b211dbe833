/* SPDX-License-Identifier: Apache-2.0
 * The owner's part in a takeover (PROTOCOL.md, "Takeover"): an owner of a shard is lost, and others get its parts.
 *
 * It stops: no task begins, nothing is sent, pushes are passed over. When what was under way has ended it reports its version. At the
 * takeover it drops the sums of the round under way, keeps what it has applied, and takes the weights of its new parts from the worker of
 * its node. An owner that is a version ahead of these parts opens its last round again for them alone. */
#include "echi_owner_impl.h"

void echi_owner_list_parts(struct echi_owner *o) {
    for (int part = 0; part < o->end; part++)
        if (echi_plan_owns_part(plan_of(o), o->setup->rank, part)) echi_part_add(&o->takeover.own, part);
}

static void post_part(const struct echi_owner *o, int rank, int part, struct echi_actions *out) {
    if (o->view[rank].member)
        echi_act_post_part(out, rank, ECHI_KIND_PUSH, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, (uint16_t)rank}, part);
}

void echi_owner_stop(struct echi_owner *o) {
    o->takeover.still = echi_plan_orphaned(plan_of(o));
    o->takeover.told = false;
}

bool echi_owner_passes_over(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    struct echi_push *p = &o->push[e->from];
    if (!o->takeover.still && m->members == o->takeover.stay) return false;
    if (!echi_plan_begins_anew(plan_of(o)) || m->part >= o->end || !echi_part_in(&o->takeover.own, m->part)) return false;
    if (o->takeover.still && !o->takeover.told && !echi_part_in(&p->here, m->part)) {   /* a task may read parts that are lent with it */
        p->parts_in++;
        echi_part_add(&p->here, m->part);
        return true;
    }
    post_part(o, e->from, m->part, out);
    return true;
}

/* Everything that was begun has ended: nobody reads a place for pushes, or a snapshot. */
static bool is_quiet(const struct echi_owner *o) {
    bool quiet = !o->busy && o->momentum_sending == 0;
    for (int i = 0; i < ECHI_SNAPSHOTS; i++) quiet = quiet && o->in_flight[i] == 0;
    return quiet;
}

static void stand(const struct echi_owner *o, enum echi_stands what, uint32_t members, struct echi_actions *out) {
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_STANDS);
    a->msg.flag = (uint8_t)what;
    a->msg.version = o->version;
    a->msg.members = members;
}

/* Are there no whole weights of its version here? Some parts are a version ahead, in place or since the round was opened again. */
static bool is_between(const struct echi_owner *o) {
    return o->takeover.reopened || (o->round.next == o->current && o->round.next != ECHI_NONE);
}

void echi_owner_stands(struct echi_owner *o, struct echi_actions *out) {
    if (!o->takeover.still || o->takeover.told || !is_quiet(o)) return;
    for (int r = 0; r < plan_of(o)->world; r++)
        for (int part = o->end - 1; part >= 0 && o->push[r].parts_in > 0; part--)
            if (echi_part_in(&o->push[r].here, part)) post_part(o, r, part, out);
    echi_rounds_anew(o);
    o->takeover.told = true;
    stand(o, is_between(o) ? ECHI_STANDS_WITHOUT : o->round.next != ECHI_NONE ? ECHI_STANDS_BEGUN : ECHI_STANDS_AT, o->members, out);
}

/* Weights that are newer than those it has. Where they are not whole here the end of the round under way sends the next. */
static void answer_resumed(struct echi_owner *o, int rank) {
    if (o->resumed[rank].stay != o->takeover.stay || !echi_ranks_has(&o->away, rank)) return;
    echi_ranks_drop(&o->away, rank);
    if ((o->resumed[rank].without || o->resumed[rank].version < o->version) && !is_between(o)) echi_owner_owe(o, rank, 1);
}

void echi_owner_resume(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const bool own = e->from == o->setup->rank;
    if (!o->known[e->from] || (own && m->part >= ECHI_WORKER_PLACES))
        return echi_act_fault(out, ECH_E_FORMAT, "a worker resumes that is none of the plan: do all nodes run the same version?");
    if (m->members < o->takeover.stay) return;   /* there has been another since */
    o->resumed[e->from].stay = m->members;
    o->resumed[e->from].version = m->version;
    o->resumed[e->from].without = m->flag != 0;
    if (own) o->takeover.from = (uint8_t)m->part;
    answer_resumed(o, e->from);
}

/* Places for the pushes of parts that are new here. False when there are none. */
static bool get_parts(struct echi_owner *o, struct echi_actions *out) {
    const struct echi_part_set before = o->takeover.own;
    bool gets = false;
    echi_owner_list_parts(o);
    for (int part = o->end - 1; part >= 0 && o->ring.on; part--)   /* a ring had none but the own worker's */
        for (int i = 0; i < o->workers; i++)
            if (echi_part_in(&before, part) && o->worker[i] != o->setup->rank) post_part(o, o->worker[i], part, out);
    o->ring.on = false;
    for (int part = o->end - 1; part >= 0; part--) {
        if (!echi_part_in(&o->takeover.own, part) || echi_part_in(&before, part)) continue;
        gets = true;
        echi_part_add(&o->takeover.lacks, part);
        for (int i = 0; i < o->workers; i++) post_part(o, o->worker[i], part, out);
    }
    return gets;
}

void echi_owner_takeover(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const struct echi_part_set before = o->takeover.own;
    if (!o->takeover.told || (o->version != m->version && o->version != m->version + 1))
        return echi_act_fault(out, ECH_E_INTERNAL, "a takeover begins at a version that is not this owner's");
    const bool gets = get_parts(o, out);
    o->members = o->takeover.stay = m->members;
    o->takeover.still = false;
    o->shard = echi_plan_shard_owned(plan_of(o), o->setup->rank);
    o->parts = echi_post_parts(o->setup, ECHI_KIND_PUSH, o->setup->rank);
    o->weight_parts = echi_post_parts(o->setup, ECHI_KIND_WEIGHTS, o->setup->rank);
    if (gets && o->version == m->version + 1) echi_rounds_reopen(o, &before);
    o->takeover.anew = echi_optimizer_adam(plan_of(o)->optimizer);
    o->takeover.takes = true;
    for (int i = 0; i < o->workers; i++) {
        const int r = o->worker[i];
        o->joined[r] = o->takeover.stay;
        echi_ranks_add(&o->away, r);
        o->answer[r] = 0;
        echi_ranks_drop(&o->owed, r);
        answer_resumed(o, r);
    }
}

void echi_owner_takes(struct echi_owner *o, struct echi_actions *out) {
    if (!o->takeover.takes || o->takeover.still || o->busy || o->momentum_sending || o->in_flight[o->current] > 0) return;
    const int self = o->setup->rank;
    int part = 0;
    /* Before the first weights were anywhere: each owner was fed all parts. */
    if (o->resumed[self].stay == o->takeover.stay && o->resumed[self].without) o->takeover.lacks = (struct echi_part_set){{0}};
    while (part < o->end && !echi_part_in(&o->takeover.lacks, part)) part++;
    if (o->takeover.anew) {
        compute(o, ECHI_TASK_TAKE, out);
        o->takeover.anew = false;
        o->takeover.again = o->round.next != ECHI_NONE;
    } else if (part == o->end) {
        o->takeover.takes = false;
        stand(o, ECHI_STANDS_TAKEN, o->takeover.stay, out);
    } else if (o->resumed[self].stay == o->takeover.stay) {
        struct echi_task *t = compute(o, ECHI_TASK_TAKE, out);
        t->weights = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, o->takeover.from};
        t->weights_out = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, o->current};
        t->only = (uint16_t)(1 + part);
        echi_part_drop(&o->takeover.lacks, part);
    }
}
