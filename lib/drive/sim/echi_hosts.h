/* SPDX-License-Identifier: Apache-2.0
 * The machines of a simulated cluster: what each can do and what befalls it. From a text file that people write, one line a
 * class of hosts (hosts.c), or from a name. */
#ifndef ECHI_HOSTS_H
#define ECHI_HOSTS_H
#include "ech_status.h"
#include "echi_limits.h"

#define ECHI_HOST_SLOWS 4      /* lasting slow-downs of one host, at most */

/* One machine. */
struct echi_host {
    double speed;              /* how many times as fast as the profile's machine computes; > 0 */
    bool in_images;            /* `speed` is still in images/s of the model: see echi_hosts_relate */
    double quota, period;      /* seconds: of each period it may compute so long, at its full speed; quota 0: always */
    int cores;                 /* index of the pool of cores that it shares with others; -1: its own */
    double jitter;             /* sigma of the lognormal factor of each step's compute time; its median is 1; 0: none */
    double stutter, stutter_factor;   /* this part of its steps (0..1) takes this many times as long (>= 1) */
    double rate;               /* bytes a second of its link, in each direction (a queue each); 0: without bound */
    double delay;              /* seconds one way from its link to the switch: a message from a to b takes delay_a + delay_b */
    double loss;               /* part of its messages (0..1) that are lost and sent again after a timeout, as TCP does: for
                                  the roles a delay, never a loss */
    double dies, joins;        /* virtual seconds; < 0: never; there from the beginning. Rank 0's are both < 0 */
    /* Lasting slow-downs: while from <= t < until (INFINITY: to the end) all takes `factor` times as long; of several, the product. */
    struct { double from, until, factor; } slow[ECHI_HOST_SLOWS]; int n_slow;
};
struct echi_hosts {
    int count, pools;                     /* hosts, by rank; pools of shared cores */
    int pool_cores[ECHI_WORLD_MAX];       /* cores of each pool */
    struct echi_host *host;               /* [count], from malloc */
};

/* Reads a host file (its form is in hosts.c and test/hosts/README.md). Ranks follow the order of its lines. *out is written only
 * on success and freed with echi_hosts_free. ECH_E_FORMAT with "file:line: ..." for what is not as it must be, ECH_E_IO. */
ech_status echi_hosts_load(const char *path, struct echi_hosts *out, struct ech_error *err);
/* `workers` hosts of a named spread: the four classes of the host file of that name in test/hosts, in its order, for any number
 * from 1 to ECHI_WORLD_MAX. ECH_E_ARGUMENT when there is no such name. */
ech_status echi_hosts_named(int workers, const char *spread, struct echi_hosts *out, struct ech_error *err);
/* Speeds given in images/s become relative to a machine that trains so many (> 0). Relative ones stay. */
void echi_hosts_relate(struct echi_hosts *hosts, double images_per_second);
void echi_hosts_free(struct echi_hosts *hosts);   /* harmless on zeroed ones */
#endif
