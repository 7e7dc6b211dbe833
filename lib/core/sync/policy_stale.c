/* SPDX-License-Identifier: Apache-2.0
 * The policies that apply each push by itself.
 *   asp   never waits.
 *   ssp   stale synchronous parallel (Ho et al., NIPS 2013): a worker more than S steps ahead of the slowest waits.
 *   gssp  the same bound, inside groups of like speed; between groups nothing waits (Sun et al., IEEE Transactions
 *         on Cloud Computing 10(4), 2022; PROTOCOL.md, "Sources"). An owner sees only its own group, so the code is one. */
#include "echi_sync.h"

static bool may_begin(const struct echi_lease *lease, uint64_t weights_version) {
    (void)lease, (void)weights_version;
    return true;
}

static enum echi_take push_arrived(const struct echi_lease *lease) {
    (void)lease;
    return ECHI_TAKE_APPLY;
}

static bool never_waits(const struct echi_worker_view *view, uint32_t least, uint32_t staleness) {
    (void)view, (void)least, (void)staleness;
    return true;
}

/* A worker without a lease holds up nobody. */
static bool within_bound(const struct echi_worker_view *view, uint32_t least, uint32_t staleness) {
    return view->steps <= (uint64_t)least + staleness;
}

const struct echi_sync_rules echi_sync_asp = {may_begin, push_arrived, never_waits};
const struct echi_sync_rules echi_sync_ssp = {may_begin, push_arrived, within_bound};
const struct echi_sync_rules echi_sync_gssp = {may_begin, push_arrived, within_bound};
