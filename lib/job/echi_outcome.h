/* SPDX-License-Identifier: Apache-2.0
 * What every run of a model begins and ends with. outcome.c */
#ifndef ECHI_OUTCOME_H
#define ECHI_OUTCOME_H
#include "echelon.h"
#include "echi_roles.h"

/* Before a run: what is known of it, by the names of its model and its data. */
void echi_report_begin(struct ech_report *report, const char *model, const char *data, const struct ech_config *config);
/* The coordinator's sentence for an end that is not as asked; nothing when it is. */
void echi_end_sentence(const struct echi_coordinator *c, const struct ech_config *config, struct ech_error *err);
/* The weights that a run begins with, from --init or the seed; *out is from echi_alloc_aligned. */
ech_status echi_first_weights(const struct ech_model *model, const struct ech_config *config, float **out, struct ech_error *err);
/* Writes what --save and --report ask for. */
ech_status echi_outcome_write(const struct ech_model *model, const struct ech_config *config, const float *weights,
                              const struct ech_report *report, struct ech_error *err);
/* What a node measured of itself, as the report has it. */
void echi_report_times(struct ech_report *report, int rank, const struct echi_times *times);
void echi_report_usage(struct ech_report *report, int rank, const double seconds[ECHI_USES]);   /* of its compute thread */
void echi_report_rates(struct ech_report *report, const struct echi_follow *follow, int world);   /* of links while the run went */
#endif
