/* SPDX-License-Identifier: Apache-2.0
 * Machines as a run sees them, and shares of rounds by them: semi-dynamic load balancing (Chen and others, SoCC 2020), where rounds are
 * dealt anew only for what lasts and is predicted to gain. */
#include "echi_replan.h"

#include <string.h>

#define PAUSE 5      /* times as long as a change must have lasted: until the next answer */
#define DOUBLED 5

bool echi_lasting_check(struct echi_lasting *l, bool is_so, double value, int64_t after, int64_t now) {
    const bool moves = value > l->at * (1 + ECHI_REPLAN_GAIN) || l->at > value * (1 + ECHI_REPLAN_GAIN);
    if (!is_so || moves) l->checks = 0;
    if (!is_so) return false;
    if (l->checks == 0) {
        l->since = now;
        l->at = value;
    }
    if (l->checks < ECHI_REPLAN_CHECKS) l->checks++;
    return l->checks == ECHI_REPLAN_CHECKS && now - l->since >= after && now >= l->not_before;
}

void echi_lasting_answered(struct echi_lasting *l, bool refused, int64_t after, int64_t now) {
    l->checks = 0;
    l->not_before = now + (PAUSE * after << l->answers);
    if (!refused && l->answers < DOUBLED) l->answers++;
}

static void scale(double *seconds, uint32_t count, double by) {
    for (uint32_t i = 0; i < count; i++) seconds[i] *= by;
}

void echi_machines_seen(const struct echi_follow *f, const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                        int64_t now, struct echi_times out[ECHI_WORLD_MAX]) {
    memcpy(out, times, (size_t)plan->world * sizeof *out);
    echi_follow_links(f, plan, times, now, out);
    for (int r = 0; r < plan->world; r++) {
        scale(out[r].trunk, out[r].count, echi_follow_slower(f, r));
        scale(out[r].head, out[r].count, echi_follow_slower(f, r));
    }
}

/* The longest step of so many samples each, by what steps of late have taken. */
static double longest(const struct echi_follow *f, const struct echi_plan *plan, const struct echi_times *times, const uint32_t *n) {
    double most = 0;
    for (int r = 0; r < plan->world; r++) {
        if (plan->group_of[r] == ECHI_NONE) continue;
        const double seconds = f->host[r].stretch.average * echi_times_step(&times[r], plan->cut, n[r]);
        if (seconds > most) most = seconds;
    }
    return most;
}

bool echi_shares_now(const struct echi_follow *f, const struct echi_plan *plan, const struct echi_times seen[ECHI_WORLD_MAX],
                     const struct echi_times times[ECHI_WORLD_MAX], const uint32_t share[ECHI_WORLD_MAX],
                     uint32_t out_share[ECHI_WORLD_MAX], double *out_longest) {
    for (int r = 0; r < plan->world; r++)
        if (plan->group_of[r] != ECHI_NONE && !echi_speed_known(&f->host[r].stretch)) return false;
    echi_shares_of_round(plan, seen, out_share);
    *out_longest = longest(f, plan, times, share);
    return *out_longest >= (1 + ECHI_REPLAN_GAIN) * longest(f, plan, times, out_share);
}
