/* SPDX-License-Identifier: Apache-2.0
 * Predictions of rounds by part (PROTOCOL.md, "Leases" and "Shards"), and what they share with those of other plans. */
#ifndef ECHI_PREDICT_ROUNDS_H
#define ECHI_PREDICT_ROUNDS_H
#include "echi_predict.h"

/* chance.c */
/* Steps vary, or periods of a quota cut them at ever other places: no round tells what the next one takes. */
bool echi_predict_random(const struct echi_times *times);
/* By how much the k-th step of a rank takes longer. */
double echi_predict_factor(const struct echi_times *times, int rank, uint32_t k);
/* A step that would take `seconds`, and how it varies. */
struct echi_varying { double seconds, jitter, stutter, log_factor, log; };
struct echi_varying echi_predict_varying(const struct echi_times *times, double seconds);
/* Of so many steps side by side, the seconds of the one that takes the longest, in the mean over all that can happen. Sets step[i].log. */
double echi_predict_longest(struct echi_varying *step, int count);

/* predict_rounds.c */
/* Whether owners of this plan add, apply and send its rounds part by part. */
bool echi_predict_by_part(const struct echi_plan *plan);
/* Samples a second that no owners and no links can make of such a plan's rounds more than: those of its longest steps alone. */
double echi_predict_rounds_most(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                                struct echi_predict_work *work);
/* And what links alone allow, without playing it: as many or more than are predicted; of a plan of other kinds 1e300. */
double echi_predict_rounds_by_links(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                                    const struct echi_load *load, struct echi_predict_work *work);
/* As echi_predict_line, and with a floor, where `steps` is 0, as echi_predict_above, of such a plan. False, and *out is not set, when the
 * memory is too small. */
bool echi_predict_rounds(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                         uint32_t steps, double floor, struct echi_predict_work *work, struct echi_timeline *line,
                         struct echi_prediction *out);

/* predict_pushes.c: as echi_predict_line, of any plan, whose pushes are taken for whole ones. */
void echi_predict_pushes(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                         uint32_t steps, struct echi_predict_work *work, struct echi_timeline *line, struct echi_prediction *out);
#endif
