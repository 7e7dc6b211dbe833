/* SPDX-License-Identifier: Apache-2.0
 * Statistical efficiency as runs have measured it (--efficiency FILE): the file keeps the training loss by samples of each run's first
 * epoch, and a plan compares what asynchronous policies needed for a loss with what rounds did. Pollux (Qiao et al., OSDI 2021) derives
 * efficiency from the gradient noise scale, which tells of larger batches; what staleness costs it does not, so losses are compared.
 * curves.c (the file), curve_ratio.c (two curves compared), curve_evidence.c (this run's) */
#ifndef ECHI_CURVES_H
#define ECHI_CURVES_H
#include "echi_job.h"
#include "echi_planner.h"

#define ECHI_CURVES_MAX 32        /* runs in a file; the oldest goes first */
#define ECHI_CURVES_ALIKE 4       /* of them of one policy, model, data and learning rate */
#define ECHI_CURVES_HASH 17       /* 16 hex digits */
#define ECHI_CURVES_POINTS_MIN 16 /* a shorter curve is not kept */

/* What a run is of, besides its model and how it learns. Bounds that a policy does not have are 0. Numbers of groups and lengths of steps
 * are not in it: what they change is how far pushes are behind. */
struct echi_curve_policy {
    uint8_t sync, separated, weigh_by_time;
    uint32_t staleness, rounds_apart;
    double damping, drop_older;
};
struct echi_curve_run {
    char about[80];                               /* for people */
    char task[ECHI_CURVES_HASH];                  /* of model, B, optimiser, learning rate, codec */
    char data[ECHI_CURVES_HASH];                  /* of data, their order and augmentation, and the length of a cosine */
    struct echi_curve_policy policy;
    uint32_t round;                               /* B */
    double behind;                                /* rounds that pushes were behind, mean; > 0 but under BSP */
    int points;
    double at[ECH_CURVE_MAX], loss[ECH_CURVE_MAX];   /* ascending samples, and their mean loss; both > 0 */
};
struct echi_curves { int count; struct echi_curve_run run[ECHI_CURVES_MAX]; };   /* the oldest first */

/* ---- curves.c ---- */
/* Errors of load name file and line (ECH_E_FORMAT); *out is written only on success. A file that is not there has no runs. */
ech_status echi_curves_load(const char *path, struct echi_curves *out, struct ech_error *err);
ech_status echi_curves_save(const char *path, const struct echi_curves *curves, struct ech_error *err);
void echi_curves_add(struct echi_curves *curves, const struct echi_curve_run *run);
bool echi_curve_policy_same(const struct echi_curve_policy *a, const struct echi_curve_policy *b);

/* ---- curve_ratio.c ---- */
enum echi_ratio_known { ECHI_RATIO_KNOWN, ECHI_RATIO_SHORT, ECHI_RATIO_APART, ECHI_RATIO_NOISY };
const char *echi_ratio_reason(enum echi_ratio_known known);   /* why it is not, for the end of a sentence */
/* The natural logarithm of the samples that rounds need for a loss over those that `other` needs, in the mean over losses that the slower
 * of the two had in the last three quarters of the samples in which both have come to them, and its standard deviation over these. */
struct echi_curve_ratio { double log, deviation; };
enum echi_ratio_known echi_curve_ratio(const struct echi_curve_run *rounds, const struct echi_curve_run *other,
                                       struct echi_curve_ratio *out);

/* ---- curve_evidence.c ---- */
struct echi_curves_found {
    struct echi_evidence evidence;
    int runs, rounds;                             /* of this model, data and learning rate, and those of BSP among them */
    enum echi_ratio_known unknown;                /* of the last one that could not be compared with BSP's */
};
/* What these runs tell of the policies that the request may come to. data "": any, the newest run's. */
void echi_curves_find(const struct echi_curves *curves, const char *task, const char *data, const struct echi_plan_request *request,
                      struct echi_curves_found *out);
/* With --efficiency: request->evidence as the file has it, and a line of the log. */
ech_status echi_curves_read(const struct ech_config *config, const struct echi_job *job, struct echi_plan_request *request,
                            struct ech_error *err);
/* With --efficiency, when a run is over: its curve is added to the file, and what is then known of its policy to the report and the log. */
ech_status echi_curves_outcome(const struct ech_config *config, const struct echi_job *job, struct ech_report *report,
                               struct ech_error *err);
#endif
