/* SPDX-License-Identifier: Apache-2.0
 * What a node's link carries, in bytes a second. link.c */
#ifndef ECHI_LINK_H
#define ECHI_LINK_H
#include <stdbool.h>

/* One direction. `rate` is the one that counts; all that was seen lies between the other two: 0 < lowest <= rate <= highest < 1e15.
 * All 0: not known. */
struct echi_rate { double rate, lowest, highest; };
struct echi_link { struct echi_rate out, in; };

static inline struct echi_rate echi_rate_of(double rate) { return (struct echi_rate){rate, rate, rate}; }
/* As much in both directions, and no doubt about it; 0: not known. */
static inline struct echi_link echi_link_of(double rate) { return (struct echi_link){echi_rate_of(rate), echi_rate_of(rate)}; }
/* The slower direction, which counts where a push and weights take both; 0: not known. */
static inline double echi_link_slower(const struct echi_link *link) {
    const double out = link->out.rate, in = link->in.rate;
    return in > 0 && (in < out || !(out > 0)) ? in : out;
}
static inline bool echi_link_known(const struct echi_link *link) { return link->out.rate > 0 && link->in.rate > 0; }
static inline bool echi_rate_valid(const struct echi_rate *r) {
    return (r->rate == 0 && r->lowest == 0 && r->highest == 0) ||
           (r->lowest > 0 && r->lowest <= r->rate && r->rate <= r->highest && r->highest < 1e15);
}

#define ECHI_LINK_BYTES 48   /* of an encoded link */
struct echi_writer;
struct echi_reader;
void echi_link_put(struct echi_writer *w, const struct echi_link *link);
bool echi_link_get(struct echi_reader *r, struct echi_link *out);   /* false: rates that make no sense, or too few bytes */
#endif
