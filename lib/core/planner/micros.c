/* SPDX-License-Identifier: Apache-2.0
 * How steps of rounds go through a separate head, where that is left open: whole, as they come; whole, in one visit of all; or cut into
 * micro-batches, the fewest that are clearly the best. More are not tried once more are slower. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

/* Where a head reads more bytes of weights than it computes with, one visit of a round is worth the wait: AlexNet, 8 samples a worker. */
static const struct way { uint8_t micro_batches, gathers; } ways[] = {{0, 0}, {0, 1}, {2, 0}, {3, 0}, {4, 0}, {6, 0}, {ECHI_MICRO_MAX, 0}};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* Rounds beside a head, of steps that nobody wants cut into so many. */
static bool is_rounds(const struct echi_plan_request *w, const struct echi_plan *plan) {
    return plan->sync == ECHI_SYNC_BSP && plan->cut && w->micro_batches <= 1;
}

/* A plan with a codec has no micro-batches: predictions play its steps whole; nor one with several heads, whose plays are rough then. */
static bool is_open(const struct echi_plan_request *w, const struct echi_plan *plan, const struct way *way) {
    if (way->micro_batches == 0) return true;
    return w->micro_batches == 0 && plan->heads == 0 && !echi_plan_steps_whole(w, plan) && echi_predict_by_part(plan);
}

static void set_way(struct echi_plan *plan, const struct way *way) {
    plan->micro_batches = way->micro_batches;
    plan->gathers = way->gathers;
}

/* Are more micro-batches slower, so that still more need not be tried? */
static bool has_peaked(const struct way *way, double rate, double *last) {
    const bool peaked = way->micro_batches > 0 && rate < *last;
    if (way->gathers == 0) *last = rate;
    return peaked;
}

void echi_choice_micros(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                        struct echi_candidate *taken, struct echi_plan *plan) {
    double last = taken->rate;
    if (!is_rounds(w, plan)) return;
    work->tried = *plan;
    for (int i = 1; i < WAYS && is_open(w, plan, &ways[i]); i++) {
        set_way(&work->tried, &ways[i]);
        const struct echi_candidate c = echi_candidate_predicted(w, times, &work->tried, work);
        if (has_peaked(&ways[i], c.rate, &last)) return;
        if (!(c.rate > taken->rate * ECHI_CLEARLY)) continue;
        *taken = c;
        *plan = work->tried;
    }
}

/* Each way with the table that is the best with it: AlexNet, 4 hosts, 100 Mb/s: of two micro-batches and of three as many images/s are
 * predicted with the default table, with the best ones 36 and 32. */
void echi_choice_tables(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                        struct echi_plan *plan, struct echi_choice *choice) {
    struct echi_plan *with_default = &work->in_step, *own = &work->without;
    const struct echi_choice before = *choice;
    double last = 0, best = 0;
    if (!is_rounds(w, plan)) return echi_choice_table(w, times, work, plan, choice);
    *with_default = *plan;
    for (int i = 0; i < WAYS && is_open(w, with_default, &ways[i]); i++) {
        struct echi_choice c = before;
        *own = *with_default;
        set_way(own, &ways[i]);
        const uint32_t samples = c.candidate[c.taken].samples_per_step;
        c.candidate[c.taken] = echi_candidate_predicted(w, times, own, work);
        c.candidate[c.taken].samples_per_step = samples;
        echi_choice_table(w, times, work, own, &c);
        const double rate = c.candidate[c.taken].rate;
        if (has_peaked(&ways[i], rate, &last)) return;
        if (!(rate > best * ECHI_CLEARLY)) continue;
        best = rate;
        *choice = c;
        *plan = *own;
    }
}
