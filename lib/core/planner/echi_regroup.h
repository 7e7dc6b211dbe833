/* SPDX-License-Identifier: Apache-2.0
 * Speeds while a run goes, and what follows from them: a worker whose steps take lastingly longer, or shorter, than those of its group
 * gets leases of another size or joins another group (PROTOCOL.md, "Regrouping"). Pure: no clock, no sums of
 * parameters; the times are what workers say of their steps. Told by one thread, the coordinator's. */
#ifndef ECHI_REGROUP_H
#define ECHI_REGROUP_H
#include "echi_plan.h"
#include "echi_times.h"

/* ---- speed.c: a robust moving average ---- */

/* Steps are taken together, eight at a time, and the average goes three quarters of the way to the median of the last five means (a
 * median of means: Nemirovsky and Yudin 1983). So bursts that come all the time count in full (a machine with a quota of its processor
 * runs some steps at full speed, then stands still; of more than 40 at a time it would not be seen), and a few slow steps do not: up to
 * ECHI_SPEED_SPIKE in a row, however slow, move nothing. A change that lasts is followed to a tenth of it within ECHI_SPEED_FOLLOWS
 * steps. */
#define ECHI_SPEED_STEPS 8
#define ECHI_SPEED_WINDOWS 5
#define ECHI_SPEED_SPIKE 9       /* they touch two windows at most */
#define ECHI_SPEED_FOLLOWS 40    /* 7 of a window before, 3 windows for the median, one for the average, and one to spare */
struct echi_speed {
    double sum, mean[ECHI_SPEED_WINDOWS], average;
    uint8_t steps, windows, next;   /* in the sum; means so far, at most as many as there is room for; where the next one goes */
};
bool echi_speed_add(struct echi_speed *speed, double value);   /* of one step, >= 0, any unit; true at the end of a window */
double echi_speed_last(const struct echi_speed *speed);        /* mean of the last whole window; there must be one */
static inline bool echi_speed_known(const struct echi_speed *speed) { return speed->windows == ECHI_SPEED_WINDOWS; }

/* ---- regroup.c: what to do about it ---- */

#define ECHI_REGROUP_RATIO 1.3   /* rho: beyond it, or below its inverse, a worker's steps are unlike those of its group */
/* Each eight steps count for it when their mean is, and against it when not: so many must be ahead, and the average be beyond it. A
 * change by half or more that lasts is answered within WITHIN steps, or with the second eight after it has lasted AFTER by its own
 * steps, whichever is later; one that is over after PASSING steps, or five seconds, never. With jitter of 15 % and 2 % of the steps five
 * times as long nobody is moved in millions of steps. */
#define ECHI_REGROUP_LASTING 64
#define ECHI_REGROUP_WITHIN 72
#define ECHI_REGROUP_PASSING 49
#define ECHI_REGROUP_AFTER INT64_C(6000000000)   /* ns: steps may be short, and a machine busy with something else for a moment */
#define ECHI_REGROUP_GAIN 0.05   /* least relative gain in predicted samples a second for which a worker is moved */
#define ECHI_REGROUP_BACK 0.02   /* of them, that a worker's return from the reserve may cost the others */
/* Steps after a change in which the same worker is left alone, after each further one twice as many, doubled so often at most: one
 * that is as well here as there, by times that are never quite the same, does not go to and fro. */
#define ECHI_REGROUP_COOL 128
#define ECHI_REGROUP_DOUBLED 5
#define ECHI_REGROUP_BLOCK 16    /* where n is dealt by speed: it goes in such blocks */

struct echi_regroup {
    double sum[ECHI_GROUPS_MAX]; int count[ECHI_GROUPS_MAX];   /* of the known step times of each group */
    double after;                  /* ns that a change must have lasted as well, by the worker's steps, of a fast one at its group's pace */
    /* By rank. apart: windows ahead, which took so long; cool: steps left; changes of it so far, as far as they count. */
    struct { struct echi_speed compute, exchange; uint32_t apart, cool; double apart_time; uint8_t changes; } pace[ECHI_WORLD_MAX];
};
enum echi_change_kind { ECHI_CHANGE_NONE, ECHI_CHANGE_SIZE, ECHI_CHANGE_GROUP };
struct echi_change {
    enum echi_change_kind kind;
    int rank, from, to;            /* GROUP: groups */
    uint32_t n;                    /* SIZE: samples of its leases from now on */
    double ratio, gain;            /* its step time over the usual one of its group; predicted of all samples a second, relative */
};

void echi_regroup_init(struct echi_regroup *regroup, int world, int64_t after);
/* ns that a step of this worker takes, as an average: what it computes and all the rest but the waiting for its group. */
double echi_regroup_time(const struct echi_regroup *regroup, int rank);
double echi_regroup_computes(const struct echi_regroup *regroup, int rank);   /* seconds of it that it computes */
/* Group, living members or sizes have changed: nobody is apart until it has been so for as long again. */
void echi_regroup_anew(struct echi_regroup *regroup, const struct echi_plan *plan);
/* A step of `rank`, in ns, of size[rank] samples; `times`: what it measured at the start. What should be done now, if anything: the
 * caller does it and calls echi_regroup_done, or does not and is told again at the end of the rank's next eight steps. */
struct echi_change echi_regroup_step(struct echi_regroup *regroup, const struct echi_plan *plan, const uint32_t size[ECHI_WORLD_MAX],
                                     int rank, const struct echi_times *times, double compute, double exchange);
void echi_regroup_done(struct echi_regroup *regroup, const struct echi_plan *plan, const struct echi_change *change);
/* The caller knows better: this rank is left alone for as long as after a change. */
void echi_regroup_refused(struct echi_regroup *regroup, int rank);
#endif
