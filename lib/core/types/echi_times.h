/* SPDX-License-Identifier: Apache-2.0
 * What a node measures of itself. times.c */
#ifndef ECHI_TIMES_H
#define ECHI_TIMES_H
#include "echi_limits.h"
#include "echi_link.h"

#define ECHI_TIMES_MAX 12
#define ECHI_UNIT_SIZES 3         /* batch sizes at which the time of a step is divided among its units */
#define ECHI_SHARE_ALL 65535      /* the shares of a trunk, and those of a head, add up to this */
#define ECHI_TIMES_BYTES_MAX 3584

/* A *unit* is a layer with parameters, and the layers behind it up to the next one. What is in front of the first belongs to the first. */
enum echi_pass { ECHI_FORWARD, ECHI_BACKWARD, ECHI_PASSES };
struct echi_unit_share { uint16_t of[ECHI_PASSES]; };

/* Seconds of what a processor has to do at either end of a message. Messages that are queued for one host at one moment go as one (net
 * writes all frames for a peer at once), and cost `message` once. */
struct echi_cost_io { double message, byte; };

/* The processors that a node computes on. Nodes of one id share them; 0: it shares none, or nobody knows. While it computes it takes so
 * many parts of a processor: whole ones for its threads, less where it plays a slow node and sleeps in between. While all of them
 * measured at once, or others computed there, seconds were `crowd` (>= 1) times as long as they are without them. */
#define ECHI_PROCESSOR 65536      /* parts of one */
struct echi_machine { uint64_t id; uint32_t takes; uint16_t processors; double crowd; };

#define ECHI_STEP_MESSAGES 6      /* of an asynchronous step, at its worker */
#define ECHI_EXCHANGE_COPY 0.85   /* of `exchange` the bytes through a socket, where `add` is not known */
struct echi_times {
    /* Seconds of one step at several numbers of samples, ascending. */
    uint32_t count, n[ECHI_TIMES_MAX];
    double trunk[ECHI_TIMES_MAX], head[ECHI_TIMES_MAX];   /* forward and backward; head 0 where a model has no cut */
    uint16_t block;    /* samples that are computed together: beyond n[0] a step takes as long as one of the next multiple; 0, 1: none */
    double exchange;   /* to take in one push of all layers, or to send one; 0: not known */
    double add;        /* of that, to add it to a sum; the rest are its bytes on their way through a socket. 0: not known */
    double update;     /* to apply a push of all layers that is in: gradient, momentum, new weights; 0: not known */
    double messages;   /* what a step's messages, so many as ECHI_STEP_MESSAGES, cost besides their bytes; 0: not known */
    struct echi_link link;
    /* How steps vary, and how a node is reached; all 0: not known. Steps take exp(jitter x a normal number) times as long, and the
     * part `stutter` of them `stutter_factor` times as long on top. */
    double jitter, stutter, stutter_factor;
    /* All the seconds above are those of the clock. Of a host whose control group grants it `quota` seconds of each `period` only, they are
     * so much longer than what its processor takes; in a period that it has waited for it computes at full speed. 0, 0: it has no such
     * bound. */
    double quota, period;
    struct echi_machine machine;
    double delay;      /* seconds from its link to the middle of the network: from a to b takes a's and b's */
    /* How much of trunk[size[i]], and of head[size[i]], each unit takes; units [0, cut) are the trunk's. The totals are measured without a
     * read the clock in between, so they are the truth, and units divide them. units 0: not known. */
    uint16_t units, cut;
    uint8_t sizes, size[ECHI_UNIT_SIZES];                 /* indices of n, ascending */
    struct echi_unit_share share[ECHI_UNIT_SIZES][ECHI_UNITS_MAX];
};
size_t echi_times_encode(const struct echi_times *times, uint8_t *out, size_t cap);
bool echi_times_decode(const uint8_t *bytes, size_t len, struct echi_times *out);
/* The part of a processor's time that a host is granted, in (0, 1]. */
double echi_times_granted(const struct echi_times *times);
/* Interpolated between whole blocks, extrapolated beyond the last. */
double echi_times_trunk(const struct echi_times *times, uint32_t n);
double echi_times_head(const struct echi_times *times, uint32_t n);
double echi_times_whole(const struct echi_times *times, uint32_t n);
double echi_times_step(const struct echi_times *times, bool separated, uint32_t n);   /* of a worker */

/* One unit, one pass; 0 where units are not known. Shares are interpolated between the sizes at which they are known, and kept beyond. */
double echi_times_unit(const struct echi_times *times, int unit, enum echi_pass pass, uint32_t n);
/* The trunk's forward pass; a third of its time where units are not known. */
double echi_times_forward(const struct echi_times *times, uint32_t n);
/* Which of size[] is nearest to so many samples. Units are known. */
int echi_times_nearest(const struct echi_times *times, uint32_t n);
/* Sets the shares of size[i] from seconds that the units took. False, and nothing is set, if a trunk or a head took no time at all.
 * times->units and ->cut are set. */
bool echi_times_share(struct echi_times *times, int i, const double (*seconds)[ECHI_PASSES]);
/* As they would have been measured with the cut in front of another unit, by the times of units; `units`: without one. What a whole step
 * takes stays. False, and nothing is changed, where units are not known or one side would take no time. */
bool echi_times_recut(struct echi_times *times, int cut);
#endif
