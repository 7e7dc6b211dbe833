/* SPDX-License-Identifier: Apache-2.0
 * The order of a ring (P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel
 * and Distributed Computing 69(2), 2009, section 3). */
#include "echi_plan.h"

static bool works(const struct echi_plan *plan, int rank) { return plan->group_of[rank] != ECHI_NONE; }

bool echi_plan_may_ring(const struct echi_plan *plan) {
    for (int k = 0; k < plan->shards; k++)
        if (plan->shard_owner[k] >= plan->world || !works(plan, plan->shard_owner[k])) return false;
    return echi_plan_begins_anew(plan) && echi_plan_rounds_by_part(plan);
}

bool echi_plan_rings(const struct echi_plan *plan) { return plan->exchange == ECHI_EXCHANGE_RING && plan->broken == ECHI_RING_WHOLE; }

int echi_ring_next(const struct echi_plan *plan, int rank) {
    do rank = (rank + 1) % plan->world;
    while (!works(plan, rank));
    return rank;
}

int echi_ring_before(const struct echi_plan *plan, int rank) {
    do rank = (rank + plan->world - 1) % plan->world;
    while (!works(plan, rank));
    return rank;
}

int echi_ring_first(const struct echi_plan *plan, const struct echi_ranks *sharing, int owner) {
    int rank = echi_ring_next(plan, owner);
    while (!echi_ranks_has(sharing, rank) && rank != owner) rank = echi_ring_next(plan, rank);
    return rank;
}

int echi_ring_weights_from(const struct echi_plan *plan, int rank, int part) {
    return echi_plan_part_owner(plan, 0, part) == rank ? rank : echi_ring_before(plan, rank);
}

int echi_ring_weights_next(const struct echi_plan *plan, int rank, int part) {
    const int owner = echi_plan_part_owner(plan, 0, part), next = echi_ring_next(plan, rank);
    return owner == rank || next == owner ? -1 : next;
}
