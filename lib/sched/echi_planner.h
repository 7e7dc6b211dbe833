/* SPDX-License-Identifier: Apache-2.0
 * From measured step times to a plan: groups, head, shares. */
#ifndef ECHI_PLANNER_H
#define ECHI_PLANNER_H
#include "echi_sched.h"

enum echi_shares { ECHI_SHARES_SPEED, ECHI_SHARES_EQUAL, ECHI_SHARES_LIST };

/* What the user asked for. */
struct echi_wishes {
    enum echi_sync sync;
    int world;
    int separate;                      /* -1 auto (under GSSP yes), 0 no, 1 yes; only where the model has a cut */
    bool has_cut;
    int groups;                        /* 0 auto; else exactly so many, if there are as many workers (GSSP only) */
    enum echi_shares shares; uint32_t share[ECHI_WORLD_MAX];   /* LIST: samples of each rank */
    uint32_t batch;                    /* B; 0: max(64, 16 x trunk workers) */
    uint32_t samples_per_step;         /* n of the asynchronous policies; 0: chosen */
    uint32_t staleness;
    double lr, momentum, decay; /* lr as meant for a B of 64 under the asynchronous policies' default rule, see planner.c */
    bool lr_given, momentum_given;
    bool absent[ECHI_WORLD_MAX];       /* lost before there was a plan: has no times, and gets no part */
    bool deterministic;                /* BSP: shares of whole granules */
    int64_t regroup_after;             /* ns for which a change of speed must have lasted to change groups or sizes of steps; 0: never */
};

/* B: as wished, else max(64, 16 x nodes). */
uint32_t echi_wishes_round(const struct echi_wishes *wishes);

/* Makes the plan. ECH_E_ARGUMENT and a sentence in text[cap] when the wishes cannot be met. */
ech_status echi_plan_make(const struct echi_wishes *wishes, const struct echi_times times[ECHI_WORLD_MAX],
                          struct echi_plan *out_plan, char *text, size_t cap);

/* Exact one-dimensional clustering: cuts `count` ascending values > 0 into `groups` runs with the least sum, over the
 * runs, of squared relative deviation from the run's mean (dynamic programming over all cuts). out_group[i] ascending from 0. */
void echi_cluster(const double *value, int count, int groups, int *out_group);
/* The smallest number of groups, at most `most`, with no group's largest value more than `ratio` times its smallest. */
int echi_cluster_auto(const double *value, int count, double ratio, int most, int *out_group);
/* Shares n[i] (0 allowed) of `batch` samples that make the slowest step as short as it can be. seconds(i, n) rises with n. */
void echi_shares_by_speed(const struct echi_times *times, int count, uint32_t batch, uint32_t *out_n);
#endif
