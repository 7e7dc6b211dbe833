/* SPDX-License-Identifier: Apache-2.0
 * The owner's part in synchronous batch-norm: what workers sum in one batch-norm, forward or backward, over the leases that are
 * computed together, is put together when all of it is here, in the order of the ranks, and goes to each of them.
 *
 * There is one exchange at a time: nobody goes on to the next before this one is answered, and of a round's parts the second is
 * computed by those who have done the first. A lease whose worker is lost is not waited for: the coordinator has it revoked, and its
 * samples are taken off what is expected. Issued again, it keeps to itself. So an exchange waits for living workers only, and each of
 * these comes to it, since it waits for nothing else in between. */
#include "echi_owner_impl.h"

#include <string.h>

static bool fits(const struct echi_owner *o, const struct echi_event *e) {
    const struct echi_msg *m = e->msg;
    const struct echi_lease *l = &m->lease, *of = &o->norm.of;
    bool is_norm = false;
    for (int i = 0; i < o->setup->norms; i++) is_norm = is_norm || o->setup->norm[i] == m->layer;
    if (!o->started || !o->known[e->from] || l->worker != e->from || l->owner != o->setup->rank) return false;
    if (!echi_lease_valid(l, plan_of(o)) || !echi_lease_exchanges(l) || l->round != o->version) return false;
    if (!is_norm || m->flag > 1 || o->norm.joins) return false;
    return !o->norm.open || (l->part == of->part && l->together == of->together && m->layer == o->norm.layer &&
                             m->flag == o->norm.backward && !echi_ranks_has(&o->norm.here, e->from));
}

void echi_norms_message(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    if (!fits(o, e))
        return echi_act_fault(out, ECH_E_FORMAT, "what a batch-norm sums does not fit the plan: do all nodes run the same version?");
    if (!o->norm.open) {
        o->norm.open = true;
        o->norm.of = e->msg->lease;
        o->norm.layer = e->msg->layer;
        o->norm.backward = e->msg->flag;
        o->norm.here = (struct echi_ranks){{0}};
        o->norm.in = o->norm.joined = 0;
        o->norm.next = 0;
    }
    echi_ranks_add(&o->norm.here, e->from);
    o->norm_in[e->from] = e->msg->lease.n;
    o->norm.in += e->msg->lease.n;
}

/* What has come of it is not used, unless it is being used already. */
void echi_norms_revoke(struct echi_owner *o, const struct echi_lease *l) {
    if (l->together == 0 || l->part >= ECHI_ROUND_PARTS || l->round < o->version || l->round - o->version > 1) return;
    struct echi_ranks *gone = &o->norm.revoked[l->round & 1][l->part].of;
    if (echi_ranks_has(gone, l->worker)) return;   /* said again */
    echi_ranks_add(gone, l->worker);
    o->norm.revoked[l->round & 1][l->part].samples += l->n;
    const bool of_this = o->norm.open && !o->norm.joins && o->norm.of.round == l->round && o->norm.of.part == l->part;
    if (!of_this || !echi_ranks_has(&o->norm.here, l->worker)) return;
    echi_ranks_drop(&o->norm.here, l->worker);
    o->norm.in -= o->norm_in[l->worker];
    o->norm.open = o->norm.in > 0;
}

void echi_norms_applied(struct echi_owner *o, uint32_t round) {
    memset(o->norm.revoked[round & 1], 0, sizeof o->norm.revoked[0]);
}

bool echi_norms_join(struct echi_owner *o, struct echi_actions *out) {
    if (!o->norm.open || o->norm.sending > 0) return false;
    const uint32_t gone = o->norm.revoked[o->norm.of.round & 1][o->norm.of.part].samples;
    if (!o->norm.joins && o->norm.in + gone < o->norm.of.together) return false;
    struct echi_task *t = compute(o, ECHI_TASK_NORM, out);
    o->norm.joins = true;
    t->layer = o->norm.layer;
    t->part = o->norm.backward;
    t->samples = o->norm.joined;
    t->sums = (struct echi_slot){ECHI_SLOT_OWNER_NORM_ALL, 0};
    int r = echi_ranks_next(&o->norm.here, o->norm.next);
    for (; r >= 0 && t->n_rows < ECHI_MERGE_STEPS; r = echi_ranks_next(&o->norm.here, r + 1)) {
        t->rows[t->n_rows] = (uint16_t)r;
        t->row_count[t->n_rows++] = o->norm_in[r];
        o->norm.joined += o->norm_in[r];
    }
    o->norm.next = r;
    return true;
}

void echi_norms_joined(struct echi_owner *o, struct echi_actions *out) {
    if (o->norm.next >= 0) return;   /* there are more ranks than one task names */
    o->norm.open = o->norm.joins = false;
    for (int r = echi_ranks_next(&o->norm.here, 0); r >= 0; r = echi_ranks_next(&o->norm.here, r + 1)) {
        if (!o->known[r]) continue;   /* lost since */
        echi_act_post(out, r, ECHI_KIND_NORM, (struct echi_slot){ECHI_SLOT_OWNER_NORM, (uint16_t)r});
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_WORKER, ECHI_ROLE_OWNER, ECHI_KIND_NORM_ALL);
        a->slot = (struct echi_slot){ECHI_SLOT_OWNER_NORM_ALL, 0};
        a->msg.lease = o->norm.of;
        a->msg.layer = o->norm.layer;
        a->msg.flag = o->norm.backward;
        a->msg.samples = o->norm.joined;
        o->norm.sending++;
    }
}
