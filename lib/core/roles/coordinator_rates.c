/* SPDX-License-Identifier: Apache-2.0
 * Links while a run goes, and the ratios of pushes after them (PROTOCOL.md, "Rates"). All nodes keep the plan's bases. The coordinator's
 * copy of the plan has those that hold, and a lease names its own where it differs: so each push is of one base, whoever moves or is lost
 * meanwhile, and nobody has to be told. */
#include "echi_coordinator_impl.h"

void echi_rates_heard(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const struct echi_rate seen = echi_rate_of(m->rate);
    if (m->peer >= c->request.world || !(seen.rate > 0) || !echi_rate_valid(&seen) || m->flag > 1)
        return echi_act_fault(out, ECH_E_FORMAT, "a node sent a rate of a link that makes no sense");
    echi_seen_add(m->flag ? &c->follow.host[m->peer].in : &c->follow.host[m->peer].out, m->rate, e->now);
    echi_rates_follow(c, e->now);
}

void echi_rates_follow(struct echi_coordinator *c, int64_t now) {
    if (c->plan.codec == ECHI_CODEC_DENSE || c->request.ratios_after <= 0 || c->phase != ECHI_RUN_TRAINS) return;
    const uint64_t sent = c->plan.cut ? c->request.trunk_params : c->request.params;
    if (echi_follow_ratios(&c->follow, &c->plan, c->times, c->size, sent ? sent : 1, c->request.ratios_after, now))
        c->follow.last.at = echi_coordinator_clock(c, now);
}

uint32_t echi_rates_base(const struct echi_coordinator *c, int group) {
    const uint32_t base = c->plan.base[group];
    return base == c->setup->plan.base[group] ? 0 : base;
}
