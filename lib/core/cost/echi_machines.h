/* SPDX-License-Identifier: Apache-2.0
 * The machines of a cluster, as the cost engine knows them: what each can do and what befalls it. */
#ifndef ECHI_MACHINES_H
#define ECHI_MACHINES_H
#include "echi_times.h"

#define ECHI_HOST_SLOWS 4      /* lasting slow-downs of one host, at most; as many of its link */

/* One machine. */
struct echi_host {
    double speed;              /* how many times as fast as the profile's machine computes; > 0 */
    bool in_images;            /* `speed` is still in images/s of the model: see echi_hosts_relate */
    double quota, period;      /* seconds: of each period it may compute so long, at its full speed; quota 0: always */
    int cores;                 /* index of the pool of cores that it shares with others, -1: its own */
    uint32_t takes;            /* of these, while it computes, in parts of ECHI_PROCESSOR; 0: one */
    double jitter;             /* sigma of the lognormal factor of each step's compute time; its median is 1; 0: none */
    double stutter, stutter_factor;   /* this part of its steps (0..1) takes this many times as long (>= 1) */
    double rate;               /* bytes a second of its link, in each direction (a queue each); 0: without bound */
    double delay;              /* seconds one way from its link to the switch: a message from a to b takes delay_a + delay_b */
    double loss;               /* part of its messages (0..1) that are lost and sent again after a timeout, as TCP does: for
                                  the roles a delay, never a loss */
    double dies, joins;        /* virtual seconds; < 0: never; there from the beginning. Rank 0's are both < 0 */
    /* Lasting slow-downs: while from <= t < until (INFINITY: to the end) all takes `factor` times as long; of several, the product. */
    struct echi_spell { double from, until, factor; } slow[ECHI_HOST_SLOWS]; int n_slow;
    struct echi_spell thin[ECHI_HOST_SLOWS]; int n_thin;   /* likewise: its link carries a `factor`th, in each direction */
};
struct echi_hosts {
    int count, pools;                     /* hosts, by rank; pools of shared cores */
    int pool_cores[ECHI_WORLD_MAX];       /* cores of each pool */
    struct echi_host *host;               /* [count], from malloc */
};
#endif
