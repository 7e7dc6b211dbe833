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

bool echi_plan_owns_part(const struct echi_plan *plan, int rank, int part) {
    return plan->shards ? plan->shard_owner[plan->parts.part[part].shard] == rank : echi_plan_shard_owned(plan, rank) >= 0;
}

uint64_t echi_plan_shards_of(const struct echi_plan *plan, int rank) {
    if (plan->shards == 0) return echi_plan_shard_owned(plan, rank) >= 0;
    uint64_t shards = 0;
    for (int k = 0; k < plan->shards; k++) shards |= (uint64_t)(plan->shard_owner[k] == rank) << k;
    return shards;
}

bool echi_plan_leads_shard(const struct echi_plan *plan, int group, int shard) {
    return echi_plan_shard_owned(plan, echi_plan_shard_owner(plan, group, shard)) == shard;
}

bool echi_plan_is_heir(const struct echi_plan *plan, int rank) {
    return !plan->lost[rank] && plan->group_of[rank] != ECHI_NONE && echi_plan_shard_owned(plan, rank) >= 0;
}

static bool has_heir(const struct echi_plan *plan, int but) {
    int k = 0;
    while (k < plan->shards && (plan->shard_owner[k] == but || !echi_plan_is_heir(plan, plan->shard_owner[k]))) k++;
    return k < plan->shards;
}

/* Asked at messages, so it looks at the owners, who are few, and not at all ranks. */
bool echi_plan_begins_anew(const struct echi_plan *plan) {
    int owner = 0;
    if (!plan->shards || plan->cut || plan->sync_norm) return false;
    while (owner < plan->shards && plan->group_of[plan->shard_owner[owner]] == ECHI_NONE) owner++;   /* the lost ones, too */
    return owner < plan->shards && echi_plan_several_train(plan);
}

static bool gives_parts(const struct echi_plan *plan) {
    return echi_plan_begins_anew(plan) && !(plan->deterministic && echi_plan_remembers(plan));
}

bool echi_plan_has_heir_of(const struct echi_plan *plan, int rank) {
    return (gives_parts(plan) || (echi_plan_begins_anew(plan) && echi_plan_shard_owned(plan, rank) < 0)) && has_heir(plan, rank);
}

bool echi_plan_outlives_owners(const struct echi_plan *plan) {
    for (int k = 0; k < plan->shards; k++)
        if (plan->shard_owner[k] != 0 && !echi_plan_has_heir_of(plan, plan->shard_owner[k])) return false;
    return plan->shards > 0;
}

bool echi_plan_orphaned(const struct echi_plan *plan) {
    if (plan->broken == ECHI_RING_BROKE) return true;
    for (int k = 0; k < plan->shards; k++)
        if (plan->lost[plan->shard_owner[k]]) return gives_parts(plan);
    return false;
}

static uint64_t params_of(const struct echi_plan *plan, int rank) {
    uint64_t count = 0;
    for (int i = 0; i < plan->parts.count; i++) count += echi_plan_owns_part(plan, rank, i) ? plan->parts.part[i].count : 0;
    return count;
}

uint64_t echi_plan_take_over(struct echi_plan *plan, const uint32_t *mark) {
    uint64_t taken = 0;
    if (plan->broken == ECHI_RING_BROKE) plan->broken = ECHI_RING_ENDED;
    for (int k = 0; k < plan->shards; k++) {
        if (!plan->lost[plan->shard_owner[k]]) continue;
        int to = -1;
        for (int r = 0; r < plan->world; r++) {
            if (plan->lost[r] || mark[r] == 0 || echi_plan_shard_owned(plan, r) < 0) continue;
            if (to < 0 || params_of(plan, r) < params_of(plan, to)) to = r;
        }
        if (to < 0) continue;
        plan->shard_owner[k] = (uint16_t)to;
        taken |= 1ull << k;
    }
    if (plan->shards) plan->owner_of[0] = plan->shard_owner[0];
    return taken;
}

int echi_plan_shard_owned(const struct echi_plan *plan, int rank) {
    for (int g = 0; g < plan->n_groups; g++)
        if (plan->owner_of[g] == rank) return 0;
    for (int k = 1; k < plan->shards; k++)
        if (plan->shard_owner[k] == rank) return k;
    return -1;
}
