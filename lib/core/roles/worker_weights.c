/* SPDX-License-Identifier: Apache-2.0
 * The worker: the parts of one answer of weights, as they come to a place. */
#include "echi_roles.h"

static bool coded(const struct echi_worker *w) { return w->setup->plan.codec != ECHI_CODEC_DENSE; }

/* Does this message bring a part of weights that may come from there? */
static bool brings_part(const struct echi_worker *w, const struct echi_msg *m, int from) {
    const struct echi_plan *p = &w->setup->plan;
    if (m->part >= w->weight_parts) return false;
    if (w->ring.on) return echi_ring_weights_from(p, w->setup->rank, m->part) == from;
    return echi_plan_shard_owned(p, from) >= 0 && (coded(w) || echi_plan_owns_part(p, from, m->part));
}

/* The parts of one answer come in any order, from one node or several. */
bool echi_worker_has_weights(struct echi_worker *w, int place, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    struct echi_coming *c = &w->coming[place];
    const bool same = m->version == c->version && m->samples == c->samples && m->members == c->members;
    if (!brings_part(w, m, e->from) || echi_part_in(&c->here, m->part) || (c->in > 0 && !same)) {
        echi_act_fault(out, ECH_E_FORMAT, "a part of weights came that is not one of those before it: do all run the same version?");
        return false;
    }
    c->in++;
    echi_part_add(&c->here, m->part);
    c->members = m->members;
    c->version = m->version;
    c->samples = m->samples;
    if (w->ring.on) echi_worker_ring_weights(w, place, m, out);
    if (c->in < w->weight_parts) return false;
    c->in = 0;
    c->here = (struct echi_part_set){{0}};
    return true;
}
