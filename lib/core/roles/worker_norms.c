/* SPDX-License-Identifier: Apache-2.0
 * The worker's part in synchronous batch-norm (owner_norms.c has the owner's): its step is several tasks (struct echi_task, `part`), each
 * but the last of which ends in front of a batch-norm, whose sums the owner adds up over the round. With rounds there is one flight. */
#include "echi_roles.h"

bool echi_worker_norms_exchanged(const struct echi_worker *w, const struct echi_flight *s) {
    return w->setup->norms > 0 && echi_lease_exchanges(&s->lease);
}
static bool goes_backward(const struct echi_worker *w, const struct echi_flight *s) { return s->part >= w->setup->norms; }

/* The batch-norm that the part in hand ends in front of. */
static uint16_t norm_behind(const struct echi_worker *w, const struct echi_flight *s) {
    const int norms = w->setup->norms;
    return w->setup->norm[goes_backward(w, s) ? 2 * norms - 1 - s->part : s->part];
}

void echi_worker_norms_name(const struct echi_worker *w, const struct echi_flight *s, struct echi_task *t) {
    const int norms = w->setup->norms;
    const int first = t->kind == ECHI_TASK_BACKWARD ? norms : 0, last = t->kind == ECHI_TASK_FORWARD ? norms : 2 * norms;
    if (!echi_worker_norms_exchanged(w, s)) return;
    t->part = s->part;
    if (s->part > first) {
        t->norm = (struct echi_slot){ECHI_SLOT_WORKER_NORM_ALL, 0};
        t->samples = s->norm_samples;
    }
    if (s->part < last) t->sums = (struct echi_slot){ECHI_SLOT_WORKER_NORM, 0};
}

void echi_worker_norms_stop(struct echi_worker *w, struct echi_flight *s, const struct echi_task *t, struct echi_actions *out) {
    struct echi_action *a = echi_act_send(out, s->lease.owner, ECHI_ROLE_OWNER, ECHI_ROLE_WORKER, ECHI_KIND_NORM);
    a->slot = t->sums;
    a->msg.lease = s->lease;
    a->msg.layer = norm_behind(w, s);
    a->msg.flag = goes_backward(w, s);
    s->norm_samples = 0;
    s->norm_sending = true;
}

void echi_worker_norms_sums(struct echi_worker *w, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    struct echi_flight *s = &w->flight[0];
    if (e->from != w->owner || s->phase != ECHI_FLIGHT_WAITS_NORM || s->norm_samples > 0 || m->layer != norm_behind(w, s) ||
        m->flag != goes_backward(w, s) || m->lease.round != s->lease.round || m->lease.part != s->lease.part ||
        m->samples < s->lease.n || m->samples > s->lease.round_size)
        return echi_act_fault(out, ECH_E_FORMAT, "sums of a batch-norm came that nobody waits for: do all nodes run the same version?");
    s->norm_samples = (uint32_t)m->samples;
}
