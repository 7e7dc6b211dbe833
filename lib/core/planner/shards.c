/* SPDX-License-Identifier: Apache-2.0
 * Shards: which nodes own a group's parts together, and which parts each of them owns. */
#include "echi_planner.h"

#include <string.h>

/* A shard has so many parts at least, where the model is large enough: then shards come out about equal. */
#define PARTS_A_SHARD 4

static bool owns(const struct echi_plan *plan, int rank) {
    for (int k = 0; k < plan->shards; k++)
        if (plan->shard_owner[k] == rank) return true;
    return false;
}

static void add_owner(struct echi_plan *plan, int rank) { plan->shard_owner[plan->shards++] = (uint16_t)rank; }

/* The fastest node that owns nothing yet, of two as fast the lower rank; -1: none is left. */
static int next_owner(const struct echi_wishes *w, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan) {
    int best = -1;
    for (int r = 0; r < plan->world; r++) {
        if (w->absent[r] || owns(plan, r)) continue;
        if (best < 0 || echi_times_whole(&times[r], 64) < echi_times_whole(&times[best], 64)) best = r;
    }
    return best;
}

/* One owner has all. */
static void undivide(struct echi_plan *plan) {
    plan->shards = 0;
    memset(plan->shard_owner, 0, sizeof plan->shard_owner);
    for (int i = 0; i < plan->parts.count; i++) plan->parts.part[i].shard = 0;
}

void echi_plan_divide(const struct echi_wishes *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
    if (plan->sync != ECHI_SYNC_BSP || plan->codec != ECHI_CODEC_DENSE || w->shards < 2) return;
    if (w->shard_rank_given) {
        for (int k = 0; k < w->shards; k++)
            if (!w->absent[w->shard_rank[k]]) add_owner(plan, w->shard_rank[k]);
        plan->owner_of[0] = plan->shard_owner[0];
    } else {
        add_owner(plan, plan->owner_of[0]);
        for (int r = next_owner(w, times, plan); r >= 0 && plan->shards < w->shards; r = next_owner(w, times, plan)) add_owner(plan, r);
    }
    if (plan->shards < 2) undivide(plan);
}

uint64_t echi_plan_slice(const struct echi_plan *plan, uint64_t params) {
    const uint64_t even = plan->shards ? params / ((uint64_t)plan->shards * PARTS_A_SHARD) : ECHI_PART_SLICE;
    return even > ECHI_PART_SLICE ? ECHI_PART_SLICE : even < 1 ? 1 : even;
}

/* Of all shards but one that which has the least; -1: of all. */
static int least_of(const uint64_t *has, int shards, int but) {
    int least = but == 0 ? 1 : 0;
    for (int k = least + 1; k < shards; k++)
        if (k != but && has[k] < has[least]) least = k;
    return least;
}

/* From the last part to the first, as backward makes them, each to the shard that has the least, and to another than the part before,
 * so that workers do not all send to one host at a time, unless that shard has more already by as much as the part. Shard 0 is that of
 * part 0. */
void echi_plan_deal_parts(struct echi_plan *plan, int parts) {
    uint64_t has[ECHI_SHARDS_MAX] = {0};
    struct echi_part *part = plan->parts.part;
    if (plan->shards > parts) plan->shards = (uint8_t)(parts > 0 ? parts : 0);
    for (int k = plan->shards; k < ECHI_SHARDS_MAX; k++) plan->shard_owner[k] = 0;
    if (plan->shards < 2) return undivide(plan);
    for (int i = parts - 1; i >= 0; i--) {
        const int before = i + 1 < parts ? part[i + 1].shard : -1;
        const int least = least_of(has, plan->shards, -1), other = least_of(has, plan->shards, before);
        part[i].shard = (uint8_t)(has[other] <= has[least] + part[i].count ? other : least);
        has[part[i].shard] += part[i].count;
    }
    const uint8_t first = part[0].shard;
    for (int i = 0; i < parts; i++) part[i].shard = part[i].shard == first ? 0 : part[i].shard == 0 ? first : part[i].shard;
}
