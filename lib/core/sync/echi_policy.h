/* SPDX-License-Identifier: Apache-2.0
 * The sync policy seam: when a worker may go on, what becomes of a push, when an owner answers. A new policy is one new
 * file and one line in policy.c. Every entry is called by the role of that name, must not block, and only reads. */
#ifndef ECHI_POLICY_H
#define ECHI_POLICY_H
#include "echi_sched.h"

/* What an owner shows its policy about one worker of its group. */
struct echi_worker_view {
    bool member;          /* belongs to this owner's group and is alive */
    bool idle;            /* holds no further lease: does not hold up the others */
    uint32_t steps;       /* steps done, counted at apply */
};
enum echi_take { ECHI_TAKE_APPLY, ECHI_TAKE_ADD };

struct echi_policy {
    const char *name;     /* as in --sync */
    bool rounds;          /* leases name a round: the coordinator deals a round to all workers at once */
    bool grouped;         /* there may be several groups */
    bool local;           /* workers step on weights of their own and push what has changed; a lease is several steps, and the owner
                             takes an outer step by a round's sum (worker_local.c). With rounds, and nothing separated */
    /* Worker: may this lease be computed on weights of this version, which answer the worker's last push? */
    bool (*may_begin)(const struct echi_lease *lease, uint64_t weights_version);
    /* Owner: a push is whole. APPLY it by itself, or ADD it to its round, which is applied when it is complete? */
    enum echi_take (*push_arrived)(const struct echi_lease *lease);
    /* Owner: may the worker of this view, whose push was applied, be answered with weights now? `least`: the fewest steps of its
     * group's workers that hold a lease, UINT32_MAX where none does. Asked again when that rises. */
    bool (*before_reply)(const struct echi_worker_view *view, uint32_t least, uint32_t staleness);
};
const struct echi_policy *echi_policy_of(enum echi_sync sync);
extern const struct echi_policy echi_policy_bsp, echi_policy_asp, echi_policy_ssp, echi_policy_gssp, echi_policy_local;
#endif
