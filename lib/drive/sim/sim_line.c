/* SPDX-License-Identifier: Apache-2.0
 * A round of a run's plan, as predicted, for those that draw it. */
#include "echi_sim.h"
#include "echi_time_line.h"

#include <math.h>
#include <stdlib.h>

void echi_sim_timeline(struct echi_coordinator *c, struct ech_timeline *out) {
    struct echi_timeline *line = echi_report_line(c);
    out->count = out->left_out = out->n_sweep = 0;
    out->seconds = 0;
    out->rank = -1;
    if (!line) return;
    echi_time_line_show(line, out);
    free(line);
    for (int i = 0; i < ECH_SWEEP; i++) out->faster[i] = pow(10, (double)(2 * i) / (ECH_SWEEP - 1) - 1);
    if (echi_coordinator_sweep(c, out->faster, ECH_SWEEP, out->images_per_second)) out->n_sweep = ECH_SWEEP;
}
