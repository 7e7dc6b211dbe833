/* SPDX-License-Identifier: Apache-2.0
 * The interface of sync policies: when a worker may go on, what becomes of a push, when an owner answers. A new policy is one
 * new file, a line in sync.c and one in ../types/policy.c. Every entry is called by the role of that name, must not block, and
 * only reads. */
#ifndef ECHI_SYNC_H
#define ECHI_SYNC_H
#include "echi_lease.h"

/* What an owner shows its policy about one worker of its group. */
struct echi_worker_view {
    bool member;          /* belongs to this owner's group and is alive */
    bool idle;            /* holds no further lease: does not hold up the others */
    uint32_t steps;       /* steps done, counted at apply */
};
enum echi_take { ECHI_TAKE_APPLY, ECHI_TAKE_ADD };

struct echi_sync_rules {
    /* Worker: may this lease be computed on weights of this version, which answer the worker's last push? */
    bool (*may_begin)(const struct echi_lease *lease, uint64_t weights_version);
    /* Owner: a push is whole. APPLY it by itself, or ADD it to its round, which is applied when it is complete? */
    enum echi_take (*push_arrived)(const struct echi_lease *lease);
    /* Owner: may the worker of this view, whose push was applied, be answered with weights now? `least`: the fewest steps of its
     * group's workers that hold a lease, UINT32_MAX where none does. Asked again when that rises. */
    bool (*before_reply)(const struct echi_worker_view *view, uint32_t least, uint32_t staleness);
};
const struct echi_sync_rules *echi_sync_rules_of(enum echi_sync sync);
extern const struct echi_sync_rules echi_sync_bsp, echi_sync_asp, echi_sync_ssp, echi_sync_gssp, echi_sync_local;
#endif
