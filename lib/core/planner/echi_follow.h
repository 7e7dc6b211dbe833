/* SPDX-License-Identifier: Apache-2.0
 * Links and iterations as a run finds them, and GDTopK's ratios after them. Pure: no clock; told by one thread, the coordinator's. */
#ifndef ECHI_FOLLOW_H
#define ECHI_FOLLOW_H
#include "echi_planner.h"
#include "echi_regroup.h"

/* ---- seen.c: what one direction of a link carries, by the windows in which more was always waiting to be sent over it ---- */

/* A window is at most what the link can carry: a peer whose own link is thin, or others at the same switch, may have held it up. So of the
 * last five windows the highest count, but for the very highest: one may have seen what a buffer or a shaper's burst let through. A host of
 * whose peers one is slow is not slow, and one with whom all are slow is. A rate that falls is believed with the fourth window, one that
 * rises with the second. */
#define ECHI_SEEN_WINDOWS 5
#define ECHI_SEEN_LEAST 3                          /* windows; with fewer nothing is known */
#define ECHI_SEEN_WINDOW INT64_C(300000000)        /* ns that a window takes at least, as when nodes join */
#define ECHI_SEEN_FRESH INT64_C(30000000000)       /* ns: what was seen so long ago is no news of a link that has recovered since */
struct echi_seen { double window[ECHI_SEEN_WINDOWS]; uint8_t windows, next; int64_t at; };   /* at: of the last, ns */
void echi_seen_add(struct echi_seen *seen, double rate, int64_t now);   /* bytes a second, of one window */
struct echi_rate echi_seen_rate(const struct echi_seen *seen);       /* all windows lie between lowest and highest; 0: not known */

/* ---- ratios.c: the bases of a plan's groups (../cost/ratio.c has the rules) ---- */

/* Of a group of workers: seconds that it computes a step, the link that its members push and pull over, bytes a second (0: not known), and
 * seconds from one push to the next (0: not known, then groups are fast in the order of their numbers). */
struct echi_pace { double seconds, link, iteration; };
/* By the plan's policy, of `count` groups in the order of their numbers. params: floats that a push is about, > 0. */
void echi_ratios_bases(enum echi_ratios ratios, uint64_t params, const struct echi_pace *pace, int count, uint32_t *out_base);

/* ---- follow.c ---- */

/* Other ratios are due when one is so much off, and set when that has lasted: what passes changes nothing, and what a change of ratios does
 * to rates and iterations is seen before the next. */
#define ECHI_RATIOS_CHANGE 0.1
#define ECHI_RATIOS_AFTER INT64_C(30000000000)     /* ns */

/* The last change, and why: of all groups' links and steps what has changed the most since ratios were last set. */
struct echi_ratio_change {
    int64_t at;                                    /* ns; the coordinator makes it those of the training clock */
    int group; bool by_link; double was, is;       /* its link, bytes a second; else the seconds that its steps compute */
    uint32_t base[ECHI_GROUPS_MAX];                /* of each group before */
};
struct echi_follow {
    int64_t checked, due_since; bool due;
    struct echi_pace set[ECHI_GROUPS_MAX]; bool begun;   /* as when ratios were last set */
    uint64_t changes; struct echi_ratio_change last;
    /* By rank: each direction of its link, and ns of its steps: what it computes, and from push to push. */
    struct { struct echi_seen out, in; struct echi_speed computes, iterates;
             /* Times as long as measured at the start, of whatever size: of late, and when the run began. */
             double stretches; uint8_t steps; struct echi_speed stretch; double first;
             double was; } host[ECHI_WORLD_MAX];   /* slower so many times when `first` is taken; 0: not at all */
};
void echi_follow_init(struct echi_follow *follow, int world);
void echi_follow_step(struct echi_follow *follow, int rank, double compute, double rest);   /* ns */
/* What a step of any size computes, over what one so large took when it was measured. And how many times as long as when the run began
 * steps of late take: what always stretches them, as an owner's other work does, is in both. 1 while that is not known. Of four times as
 * many steps as a speed (speed.c): of stutters the average has some hundredths. */
#define ECHI_STRETCH_STEPS 4
void echi_follow_stretch(struct echi_follow *follow, int rank, double stretch);
double echi_follow_slower(const struct echi_follow *follow, int rank);
/* The head has moved away from a node that was so many times as slow, and to another. Its work stretches steps no more, or only now: what
 * stretches those of now counts as that of the beginning, when the one was as slow as it is and the other was not. */
void echi_follow_moved(struct echi_follow *follow, int from, int to, double slower);
/* The rank's link as it is now: what was seen, where anything was, before what was measured when it joined. */
struct echi_link echi_follow_link(const struct echi_follow *follow, const struct echi_times times[ECHI_WORLD_MAX], int rank);
/* out[0 .. world).link: each link as a prediction may take it. What was seen of late where it is known to be the link's own, else what was
 * measured at the start (bottleneck.c). */
void echi_follow_links(const struct echi_follow *follow, const struct echi_plan *plan, const struct echi_times *times, int64_t now,
                       struct echi_times *out);
/* Checks the ratios of a plan with top-k, of whose workers each takes steps of size[rank] samples; at most 30 times in `after` ns. True
 * when the plan's bases are now others: they were to be for so long. */
bool echi_follow_ratios(struct echi_follow *follow, struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                        const uint32_t size[ECHI_WORLD_MAX], uint64_t params, int64_t after, int64_t now);
#endif
