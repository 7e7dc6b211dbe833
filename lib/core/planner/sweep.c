/* SPDX-License-Identifier: Apache-2.0
 * A plan on links of other rates. */
#include "echi_choice_impl.h"
#include "echi_what_if.h"

#include <string.h>

static void scale(struct echi_rate *rate, double factor) {
    rate->rate *= factor;
    rate->lowest *= factor;
    rate->highest *= factor;
}

bool echi_link_sweep(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                     struct echi_choice_work *work, const double *factor, int count, double *out_rate) {
    bool known = false;
    for (int r = 0; r < plan->world; r++) known = known || echi_link_slower(&times[r].link) > 0;
    for (int i = 0; i < count && known; i++) {
        struct echi_prediction p;
        memcpy(work->times, times, (size_t)plan->world * sizeof *times);
        for (int r = 0; r < plan->world; r++) {
            scale(&work->times[r].link.out, factor[i]);
            scale(&work->times[r].link.in, factor[i]);
        }
        echi_memo_predict(plan, work->times, load, 0, work, &p);
        out_rate[i] = p.rate;
    }
    return known;
}
