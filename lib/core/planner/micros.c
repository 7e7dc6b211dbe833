/* SPDX-License-Identifier: Apache-2.0
 * Into how many micro-batches a step beside a separate head is cut, where that is left open: those that are clearly the best, the fewest of
 * them. More are not tried once more are slower. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

static const uint8_t micros[] = {2, 3, 4, 6, ECHI_MICRO_MAX};
enum { MICROS = sizeof micros / sizeof micros[0] };

/* A plan with a codec has none: predictions play its steps whole; nor one with several heads, whose plays are rough then. */
static bool is_open(const struct echi_plan_request *w, const struct echi_plan *plan) {
    return w->micro_batches == 0 && plan->heads == 0 && !echi_plan_steps_whole(w, plan) && echi_predict_by_part(plan);
}

void echi_choice_micros(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                        struct echi_candidate *taken, struct echi_plan *plan) {
    double last = taken->rate;
    if (!is_open(w, plan)) return;
    work->tried = *plan;
    for (int i = 0; i < MICROS; i++) {
        work->tried.micro_batches = micros[i];
        const struct echi_candidate c = echi_candidate_predicted(w, times, &work->tried, work);
        if (c.rate < last) return;
        last = c.rate;
        if (!(c.rate > taken->rate * ECHI_CLEARLY)) continue;
        *taken = c;
        *plan = work->tried;
    }
}

/* Each number with the table that is the best with it: AlexNet, 4 hosts, 100 Mb/s: of two micro-batches and of three as many images/s are
 * predicted with the default table, with the best ones 36 and 32. */
void echi_choice_tables(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                        struct echi_plan *plan, struct echi_choice *choice) {
    struct echi_plan *with_default = &work->in_step, *own = &work->without;
    const struct echi_choice before = *choice;
    double last = 0, best = 0;
    if (!is_open(w, plan)) return echi_choice_table(w, times, work, plan, choice);
    *with_default = *plan;
    for (int i = -1; i < MICROS; i++) {
        struct echi_choice c = before;
        *own = *with_default;
        own->micro_batches = i < 0 ? 0 : micros[i];
        const uint32_t samples = c.candidate[c.taken].samples_per_step;
        c.candidate[c.taken] = echi_candidate_predicted(w, times, own, work);
        c.candidate[c.taken].samples_per_step = samples;
        echi_choice_table(w, times, work, own, &c);
        const double rate = c.candidate[c.taken].rate;
        if (rate < last) return;
        last = rate;
        if (!(rate > best * ECHI_CLEARLY)) continue;
        best = rate;
        *choice = c;
        *plan = *own;
    }
}
