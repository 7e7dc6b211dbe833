/* SPDX-License-Identifier: Apache-2.0
 * What a node measures of itself. Bytes: message.c. */
#ifndef ECHI_TIMES_H
#define ECHI_TIMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seconds of one step, measured by a node at several numbers of samples (ascending). */
#define ECHI_TIMES_MAX 12
#define ECHI_TIMES_BYTES_MAX 512
struct echi_times {
    uint32_t count, n[ECHI_TIMES_MAX];
    double trunk[ECHI_TIMES_MAX], head[ECHI_TIMES_MAX];   /* forward and backward; head 0 where a model has no cut */
    double exchange;   /* to take in one push of all layers, or to send one; 0: not known */
    double update;     /* to apply a push of all layers that is in: gradient, momentum, new weights; 0: not known */
    double messages;   /* what a step's messages cost besides their bytes; 0: not known */
    double link;       /* bytes a second that the node's link carries in one direction; 0: not known */
    /* How steps vary, and how a node is reached; all 0: not known. Steps take exp(jitter x a normal number) times as long, and the
     * part `stutter` of them `stutter_factor` times as long on top. */
    double jitter, stutter, stutter_factor;
    double delay;      /* seconds from its link to the middle of the network: from a to b takes a's and b's */
};
size_t echi_times_encode(const struct echi_times *times, uint8_t *out, size_t cap);
bool echi_times_decode(const uint8_t *bytes, size_t len, struct echi_times *out);
/* Interpolated, extrapolated beyond the last. */
double echi_times_trunk(const struct echi_times *times, uint32_t n);
double echi_times_head(const struct echi_times *times, uint32_t n);
double echi_times_whole(const struct echi_times *times, uint32_t n);
#endif
