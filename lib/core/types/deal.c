/* SPDX-License-Identifier: Apache-2.0
 * How a round is dealt to the workers. */
#include "echi_plan.h"

static bool works(const struct echi_plan *plan, int rank) { return !plan->lost[rank] && plan->group_of[rank] != ECHI_NONE; }

static int largest(const uint32_t *n, int world) {
    int most = 0;
    for (int r = 1; r < world; r++)
        if (n[r] > n[most]) most = r;
    return most;
}

/* In units of one sample, or one reduction block. */
static void deal_units(const struct echi_plan *plan, uint32_t units, uint32_t *n) {
    uint64_t rest[ECHI_WORLD_MAX], all = 0;
    uint32_t dealt = 0;
    for (int r = 0; r < plan->world; r++) all += works(plan, r) ? echi_plan_share(plan, r) : 0;
    for (int r = 0; r < plan->world; r++) {
        const uint64_t share = works(plan, r) ? (uint64_t)echi_plan_share(plan, r) * units : 0;
        n[r] = (uint32_t)(share / all);
        rest[r] = share % all;
        dealt += n[r];
    }
    for (; dealt < units; dealt++) {
        int most = 0;
        for (int r = 1; r < plan->world; r++)
            if (rest[r] > rest[most]) most = r;
        n[most]++;
        rest[most] = 0;
    }
}

void echi_plan_deal(const struct echi_plan *plan, uint32_t size, uint32_t out_n[ECHI_WORLD_MAX]) {
    const uint32_t unit = plan->deterministic ? ECHI_REDUCTION_BLOCK : 1;
    uint32_t left = size;
    deal_units(plan, (size + unit - 1) / unit, out_n);
    if (echi_plan_begins_anew(plan) && out_n[0] == 0) {   /* no round is in that rank 0 has not computed a part of (takeover.c) */
        out_n[largest(out_n, plan->world)]--;
        out_n[0]++;
    }
    for (int r = 0; r < plan->world; r++) {
        out_n[r] = out_n[r] * unit < left ? out_n[r] * unit : left;
        left -= out_n[r];
    }
}
