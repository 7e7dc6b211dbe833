/* SPDX-License-Identifier: Apache-2.0
 * How a round is dealt to the workers. */
#include "echi_plan.h"

static bool works(const struct echi_plan *plan, int rank) { return !plan->lost[rank] && plan->group_of[rank] != ECHI_NONE; }

/* Who has the most beyond what it needs: an heir needs a unit. */
static int richest(const struct echi_plan *plan, const uint32_t *n, uint32_t *out_spare) {
    int most = 0;
    *out_spare = 0;
    for (int r = 0; r < plan->world; r++) {
        const uint32_t spare = n[r] - (n[r] > 0 && echi_plan_is_heir(plan, r));
        if (spare < *out_spare || (spare == *out_spare && n[r] <= n[most])) continue;
        *out_spare = spare;
        most = r;
    }
    return most;
}

static uint32_t count_above(const uint64_t *rest, int world, uint64_t bound) {
    uint32_t count = 0;
    for (int r = 0; r < world; r++) count += rest[r] > bound;
    return count;
}

/* A unit each for the `units` ranks with the largest rests, of equals the first. All rests are below `all`, and add up to `units` times
 * that, so that more of them are not 0. */
static void give_rest(const uint64_t *rest, int world, uint32_t units, uint64_t all, uint32_t *n) {
    uint64_t low = 0, bound = all;   /* the least bound that no more rests are above */
    while (low < bound) {
        const uint64_t middle = low + (bound - low) / 2;
        if (count_above(rest, world, middle) <= units) bound = middle;
        else low = middle + 1;
    }
    uint32_t equal = units - count_above(rest, world, bound);
    for (int r = 0; r < world; r++) {
        const bool first = rest[r] == bound && equal > 0;
        n[r] += first || rest[r] > bound;
        equal -= first;
    }
}

/* In units of one sample, or one reduction block. */
static void deal_units(const struct echi_plan *plan, const uint32_t *shares, uint32_t units, uint32_t *n) {
    uint64_t rest[ECHI_WORLD_MAX], all = 0;
    uint32_t dealt = 0;
    for (int r = 0; r < plan->world; r++) all += works(plan, r) ? shares[r] : 0;
    for (int r = 0; r < plan->world; r++) {
        const uint64_t share = works(plan, r) ? (uint64_t)shares[r] * units : 0;
        n[r] = (uint32_t)(share / all);
        rest[r] = share % all;
        dealt += n[r];
    }
    if (dealt < units) give_rest(rest, plan->world, units - dealt, all, n);
}

/* No round is in that an heir has not computed a part of, whichever of them is left (takeover.c): the first in any case, the others where
 * there are as many units. */
static void give_heirs(const struct echi_plan *plan, uint32_t *n) {
    bool first = true;
    for (int r = 0; r < plan->world; r++) {
        if (!echi_plan_is_heir(plan, r)) continue;
        uint32_t spare = 0;
        const int from = n[r] == 0 ? richest(plan, n, &spare) : r;
        if (n[r] == 0 && (first || spare > 0)) {
            n[from]--;
            n[r]++;
        }
        first = false;
    }
}

void echi_plan_deal(const struct echi_plan *plan, uint32_t size, uint32_t out_n[ECHI_WORLD_MAX]) {
    uint32_t share[ECHI_WORLD_MAX];
    for (int r = 0; r < plan->world; r++) share[r] = echi_plan_share(plan, r);
    echi_plan_deal_by(plan, share, size, out_n);
}

void echi_plan_deal_by(const struct echi_plan *plan, const uint32_t share[ECHI_WORLD_MAX], uint32_t size, uint32_t out_n[ECHI_WORLD_MAX]) {
    const uint32_t unit = plan->deterministic ? ECHI_REDUCTION_BLOCK : 1;
    uint32_t left = size;
    deal_units(plan, share, (size + unit - 1) / unit, out_n);
    if (echi_plan_begins_anew(plan)) give_heirs(plan, out_n);
    for (int r = 0; r < plan->world; r++) {
        out_n[r] = out_n[r] * unit < left ? out_n[r] * unit : left;
        left -= out_n[r];
    }
}
