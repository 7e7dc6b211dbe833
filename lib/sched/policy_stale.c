/* SPDX-License-Identifier: Apache-2.0
 * The policies that apply each push by itself.
 *   asp   never waits.
 *   ssp   stale synchronous parallel (Ho et al., NIPS 2013): a worker more than S steps ahead of the slowest waits.
 *   gssp  the same bound, inside groups of like speed; between groups nothing waits (papers.md, 4.1: `blocked <=>
 *         local_iter > min(local_iter of group) + s`, s = 3). An owner sees only its own group, so the code is one. */
#include "echi_policy.h"

static bool may_begin(const struct echi_lease *lease, uint64_t weights_version) {
    (void)lease, (void)weights_version;
    return true;
}

static enum echi_take push_arrived(const struct echi_lease *lease) {
    (void)lease;
    return ECHI_TAKE_APPLY;
}

static bool never_waits(const struct echi_worker_view views[ECHI_WORLD_MAX], int world, int rank, uint32_t staleness) {
    (void)views, (void)world, (void)rank, (void)staleness;
    return true;
}

static bool within_bound(const struct echi_worker_view views[ECHI_WORLD_MAX], int world, int rank, uint32_t staleness) {
    /* A worker without a lease waits for nobody and holds up nobody. */
    for (int r = 0; r < world; r++)
        if (views[r].member && !views[r].idle && (uint64_t)views[rank].steps > (uint64_t)views[r].steps + staleness) return false;
    return true;
}

const struct echi_policy echi_policy_asp = {"asp", false, false, false, may_begin, push_arrived, never_waits};
const struct echi_policy echi_policy_ssp = {"ssp", false, false, false, may_begin, push_arrived, within_bound};
const struct echi_policy echi_policy_gssp = {"gssp", false, true, false, may_begin, push_arrived, within_bound};
