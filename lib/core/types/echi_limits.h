/* SPDX-License-Identifier: Apache-2.0
 * How large things get, and what stands for none of them.
 *
 * Everything in lib/core is pure: no sockets, clock, threads or files, no floats of parameters, no allocation. A role is
 * a struct; it takes an event with the time and returns actions; a driver (lib/drive) makes them true. Roles name payloads
 * as *slots*, numbered buffers that the driver holds: a role never sees a byte of a payload. */
#ifndef ECHI_LIMITS_H
#define ECHI_LIMITS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_WORLD_MAX 1024
#define ECHI_GROUPS_MAX 8
#define ECHI_SHARDS_MAX 64            /* owners of one group: a bit each in a lease */
#define ECHI_HEADS_MAX 8              /* nodes that train the separated layers, each the rows of some workers */
#define ECHI_UNITS_MAX 256            /* layers with parameters of a model */
#define ECHI_MERGE_ROWS 256           /* rows the head merges into one visit, unless one step alone brings more */
#define ECHI_MERGE_STEPS 64           /* steps whose rows it merges at most: 256 rows fill them with 4 each, and tasks stay small */
#define ECHI_FLIGHTS 2                /* steps of one worker in flight at most */
#define ECHI_MICRO_MAX 8              /* micro-batches of a step at most; steps are cut or several, not both */
#define ECHI_STACKS (ECHI_FLIGHTS > ECHI_MICRO_MAX ? ECHI_FLIGHTS : ECHI_MICRO_MAX)   /* whose activations a worker keeps, at most */
#define ECHI_LEASES_AHEAD 8           /* leases dealt ahead to a worker, beside those that it computes, at most: so many that no round trip
                                         shows. One at first, and one more each time that it runs out while one is on its way (ledger.c) */
#define ECHI_ROUND_PARTS 16           /* a share of a round may be leased in so many parts, see echi_plan_room */
#define ECHI_LEASES_HELD 192          /* leases a worker can hold: with rounds those of lost workers come on top of its own */
#define ECHI_ROUND_LEASES (ECHI_WORLD_MAX + 192)   /* leases that make up a round, at most: one a worker, and parts of large shares */
#define ECHI_UNACKED_MAX 256          /* pushes in a group's state that another owner has not acknowledged, at most */
#define ECHI_ANSWERS 4                /* weights of one owner on their way to other nodes at once, at most */
#define ECHI_SNAPSHOTS (2 + ECHI_ANSWERS + ECHI_FLIGHTS)   /* weights: one current, one being written, those on their way, and those that
                                         the own worker computes on (echi_loan.h) */
#define ECHI_WORKER_PLACES (ECHI_FLIGHTS * (1 + ECHI_GROUPS_MAX))   /* a worker's slots for weights, see echi_plan_places */
#define ECHI_STATE_COPIES 3           /* own state: current, being written, being sent */
#define ECHI_NONE 255                 /* no group, no slot */
#define ECHI_NO_RANK 65535
#define ECHI_REDUCTION_BLOCK 4                /* samples that --deterministic takes as one, by their place in the round */
#define ECHI_INNER_MAX 10000          /* `local`: steps of one worker in a round */
#define ECHI_LOCAL_ROUND_MAX (1u << 30)   /* `local`: samples of a round */
#define ECHI_DELTAS 2                 /* `local`: changes of one worker that are on their way, or wait for the round before theirs */
#endif
