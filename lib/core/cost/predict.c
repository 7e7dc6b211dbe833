/* SPDX-License-Identifier: Apache-2.0
 * Predictions: which play a plan gets. */
#include "echi_predict_rounds.h"

void echi_predict_line(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                       uint32_t steps, struct echi_predict_work *work, struct echi_timeline *line, struct echi_prediction *out) {
    if (echi_predict_by_part(plan) && echi_predict_rounds(plan, times, load, steps, 0, work, line, out)) return;
    echi_predict_pushes(plan, times, load, steps, work, line, out);
}

void echi_predict(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                  uint32_t steps, struct echi_predict_work *work, struct echi_prediction *out) {
    echi_predict_line(plan, times, load, steps, work, NULL, out);
}

void echi_predict_above(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                        double floor, struct echi_predict_work *work, struct echi_prediction *out) {
    if (echi_predict_by_part(plan) && echi_predict_rounds(plan, times, load, 0, floor, work, NULL, out)) return;
    echi_predict_pushes(plan, times, load, 0, work, NULL, out);
}
