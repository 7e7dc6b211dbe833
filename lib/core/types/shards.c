/* SPDX-License-Identifier: Apache-2.0
 * Shards: who owns which part (Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014). */
#include "echi_plan.h"

int echi_plan_shards(const struct echi_plan *plan) { return plan->shards ? plan->shards : 1; }

uint64_t echi_plan_all_shards(const struct echi_plan *plan) { return UINT64_MAX >> (ECHI_SHARDS_MAX - echi_plan_shards(plan)); }

int echi_plan_shard_owner(const struct echi_plan *plan, int group, int shard) {
    return shard == 0 ? plan->owner_of[group] : plan->shard_owner[shard];
}

int echi_plan_part_owner(const struct echi_plan *plan, int group, int part) {
    return echi_plan_shard_owner(plan, group, plan->parts.part[part].shard);
}

int echi_plan_shard_owned(const struct echi_plan *plan, int rank) {
    for (int g = 0; g < plan->n_groups; g++)
        if (plan->owner_of[g] == rank) return 0;
    for (int k = 1; k < plan->shards; k++)
        if (plan->shard_owner[k] == rank) return k;
    return -1;
}
