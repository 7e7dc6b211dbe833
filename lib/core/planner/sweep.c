/* SPDX-License-Identifier: Apache-2.0
 * A plan on links of other rates, and plans of fewer nodes. */
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

/* Ranks by a step of so many samples, the fastest first. */
static void sort_ranks(const struct echi_times times[ECHI_WORLD_MAX], int world, uint32_t n, uint16_t out[ECHI_WORLD_MAX]) {
    for (int r = 0; r < world; r++) {
        const double seconds = echi_times_whole(&times[r], n);
        int at = r;
        for (; at > 0 && echi_times_whole(&times[out[at - 1]], n) > seconds; at--) out[at] = out[at - 1];
        out[at] = (uint16_t)r;
    }
}

void echi_node_sweep(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan,
                     struct echi_choice_work *work, const int *nodes, int count, double *out_rate) {
    struct echi_plan_request *w = &work->left;
    uint16_t order[ECHI_WORLD_MAX];
    const uint32_t share = plan->round / plan->world;
    sort_ranks(times, plan->world, share > 0 ? share : 1, order);
    *w = *request;
    w->choose = false;
    w->sync = (enum echi_sync)plan->sync;
    w->separate = plan->cut > 0;
    w->batch = plan->round;
    for (int i = 0; i < count; i++) {
        struct echi_choice choice;
        char text[2];
        for (int k = 0; k < plan->world; k++) w->absent[order[k]] = k >= nodes[i];
        out_rate[i] = 0;
        if (echi_choice_make(w, times, work, &choice, &work->without, text, sizeof text) != ECH_OK) continue;
        echi_choice_table(w, times, work, &work->without, &choice);
        out_rate[i] = choice.candidate[choice.taken].rate;
    }
}
