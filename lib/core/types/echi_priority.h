/* SPDX-License-Identifier: Apache-2.0
 * What is sent first of all that waits for a link: the priority of each message. priority.c; live nodes and the simulator ask here. */
#ifndef ECHI_PRIORITY_H
#define ECHI_PRIORITY_H
#include "echi_message.h"
#include "echi_part.h"

/* The classes, the most urgent first. One that has parts takes a priority for each. */
enum echi_priority {
    ECHI_PRIORITY_CONTROL,                                    /* no payload: leases, acknowledgements, heartbeats */
    ECHI_PRIORITY_ANSWER,                                     /* a worker waits for it in mid-step, or an owner for all its workers */
    ECHI_PRIORITY_ROWS,                                       /* the head computes on them */
    ECHI_PRIORITY_PARTS,                                      /* weights and gradients; where rounds go by part the first layers' first */
    ECHI_PRIORITY_STATES = ECHI_PRIORITY_PARTS + 2 * ECHI_PARTS_MAX,   /* R bounds how late they may be */
    ECHI_PRIORITY_COPIES,                                     /* for evaluations and checkpoints: no step waits for them */
    ECHI_PRIORITIES
};
/* 0 to ECHI_PRIORITIES - 1, 0 the most urgent. Of a message of no known kind: the last. */
uint16_t echi_msg_priority(const struct echi_plan *plan, const struct echi_msg *msg);
uint16_t echi_part_priority(enum echi_kind kind, int part);   /* of WEIGHTS and PUSH, RING_WEIGHTS and RING_SUM */
#endif
