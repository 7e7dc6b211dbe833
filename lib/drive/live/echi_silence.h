/* SPDX-License-Identifier: Apache-2.0
 * When is a peer lost that only says nothing? Pure: it is told the time, in nanoseconds of any clock, and decides.
 *
 * The judge first looks at its own lateness: silence is measured on a *fair clock*, which stands still while the judge was
 * held up (stopped, swapped out, short of a processor) and while its clock jumped. Whoever spoke meanwhile is heard before
 * he is judged.
 *
 * Then it goes by what this peer is used to: its silence may be as long as
 *     bound = mean + 4 * deviation,   never less than `least`, never more than `most`,
 * with mean and deviation of the gaps between its words kept as TCP keeps those of its round trips (Jacobson and Karels,
 * "Congestion avoidance and control", 1988, appendix A; failure detectors that adapt: Hayashibara and others, "The phi accrual
 * failure detector", 2004). Two things differ. Words come in bursts of thousands a second with pauses between them, and only the
 * pauses tell anything, so of the gaps in each heartbeat's time only the longest counts. And a peer that was once late is
 * expected to be late again: the deviation rises with gain 1/4 as in TCP, but falls with 1/32. */
#ifndef ECHI_SILENCE_H
#define ECHI_SILENCE_H
#include <stdbool.h>
#include <stdint.h>

/* ---- the fair clock ---- */
struct echi_fair {
    int64_t now;               /* the fair time at the last check */
    int64_t checked, due;       /* real time: of the last check; by when the next was meant to come */
    int64_t late_most;         /* the longest lateness so far */
};
void echi_fair_begin(struct echi_fair *fair, int64_t now);
/* A round of the judge's loop: `now` is read after waiting, `next` is how long the next round may take as planned. */
void echi_fair_check(struct echi_fair *fair, int64_t now, int64_t next);

/* ---- one peer's silence, on the fair clock ---- */

/* From --deadline: a heartbeat each tenth of it; nobody is lost before two heartbeats and a fifth of it have passed. */
struct echi_patience { int64_t beat, least, most; };
struct echi_patience echi_patience_of(int64_t deadline);

struct echi_silence {
    int64_t since;             /* the last word */
    int64_t mean, deviation;   /* of its gaps */
    int64_t window, longest;   /* since when gaps are collected; the longest of them */
};
/* A peer of whom nothing is known yet has until `most`. */
void echi_silence_begin(struct echi_silence *s, const struct echi_patience *p, int64_t now);
void echi_silence_word(struct echi_silence *s, const struct echi_patience *p, int64_t now);
int64_t echi_silence_bound(const struct echi_silence *s, const struct echi_patience *p);
#endif
