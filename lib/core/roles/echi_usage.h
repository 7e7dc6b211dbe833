/* SPDX-License-Identifier: Apache-2.0
 * Where the time of a node's compute thread goes: seconds in which it had a task, by the most urgent kind of them, and seconds in which it
 * had none, by what came that brought the next one. By the times of the events that its roles are given, so also in virtual time, and no
 * clock is read for it; what it takes to hand a task over and to report its end counts as computing. usage.c */
#ifndef ECHI_USAGE_H
#define ECHI_USAGE_H
#include "echi_event.h"

enum echi_use {
    ECHI_USE_HEAD,          /* separated layers: passes and update */
    ECHI_USE_OWNER,         /* sums, updates, states */
    ECHI_USE_CODEC,
    ECHI_USE_STEPS,         /* forward and backward of a worker; under `local` its own updates, too */
    ECHI_USE_COMPUTES,      /* so many of them; below, no task was here until there came ... */
    ECHI_USE_WEIGHTS = ECHI_USE_COMPUTES,   /* ... weights, or another owner's state */
    ECHI_USE_LEASE,
    ECHI_USE_ACTIVATIONS,   /* ... or their gradients */
    ECHI_USE_GRADIENTS,     /* ... pushes of workers */
    ECHI_USE_OTHER,         /* ... anything else: a message had left, a batch-norm's sums, a loss */
    ECHI_USES
};
/* From the first task on; neither held nor evaluating. */
struct echi_usage {
    int64_t at;                      /* up to which `ns` is filled; 0: no task has been here */
    int64_t ns[ECHI_USES];
    uint16_t out[ECHI_USE_COMPUTES]; /* tasks that are here */
    bool held;
};
/* After a role of this node took `e` and asked for list[0..count). */
void echi_usage_step(struct echi_usage *u, const struct echi_event *e, const struct echi_action *list, int count);
#endif
