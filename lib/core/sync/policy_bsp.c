/* SPDX-License-Identifier: Apache-2.0
 * Bulk synchronous parallel: all pushes of a round are summed and applied once; equal to one node with the whole batch. */
#include "echi_sync.h"

/* Version t of the weights is that after t rounds: what round t is computed on. */
static bool may_begin(const struct echi_lease *lease, uint64_t weights_version) { return lease->round == weights_version; }

static enum echi_take push_arrived(const struct echi_lease *lease) {
    (void)lease;
    return ECHI_TAKE_ADD;
}

static bool before_reply(const struct echi_worker_view *view, uint32_t least, uint32_t staleness) {
    (void)view, (void)least, (void)staleness;
    return true;   /* the round's apply is what was waited for */
}

const struct echi_sync_rules echi_sync_bsp = {may_begin, push_arrived, before_reply};
