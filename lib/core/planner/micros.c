/* SPDX-License-Identifier: Apache-2.0
 * How steps of rounds go through a separate head, where that is left open: whole, as they come; whole, in one visit of all; or cut into
 * micro-batches. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

static const uint8_t micros[] = {2, 3, 4, 6, ECHI_MICRO_MAX};
enum { MICROS = sizeof micros / sizeof micros[0], WAYS = MICROS + 2 };

/* Of steps that nobody wants cut into so many. */
static bool has_rounds(const struct echi_plan_request *w, const struct echi_plan *plan) {
    return plan->sync == ECHI_SYNC_BSP && plan->cut && w->micro_batches <= 1;
}

/* A plan with a codec has none: predictions play its steps whole; nor one with several heads, whose plays are up to 6 % too fast then. */
static bool may_cut(const struct echi_plan_request *w, const struct echi_plan *plan) {
    return w->micro_batches == 0 && plan->heads == 0 && !echi_plan_steps_whole(w, plan) && echi_predict_by_part(plan);
}

/* Where a head reads more bytes of weights than it computes with, one visit of a round is worth the wait: AlexNet, 8 samples a worker. */
static void try_one_visit(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                          struct echi_candidate *taken, struct echi_plan *plan) {
    work->tried = *plan;
    work->tried.gathers = 1;
    const struct echi_candidate c = echi_candidate_predicted(w, times, &work->tried, work);
    if (!(c.rate > taken->rate * ECHI_CLEARLY)) return;
    *taken = c;
    *plan = work->tried;
}

/* Head and owners were placed for whole steps. For steps in micro-batches they may go elsewhere, for each number of them: LeNet-5, four
 * hosts alike, 100 Mb/s, B 256, with a shadow: 6,066 images/s with two where whole steps have their owner, 6,565 with four and another. */
static void try_micros(const struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work,
                       struct echi_candidate *taken, struct echi_plan *plan) {
    struct echi_plan_request *w = &work->cut_up;
    struct echi_plan *own = &work->with_micros;
    double best = taken->rate / echi_choice_risk(plan);
    for (int i = 0; i < MICROS; i++) {
        char text[2];
        *w = *request;
        w->heads = 1;
        w->micro_batches = micros[i];
        echi_choice_place(w, times, work);
        echi_choice_beside_head(w, times, work);
        echi_choice_exchange(w, times, work);
        if (echi_plan_make(w, times, own, text, sizeof text) != ECH_OK) return;
        const struct echi_candidate c = echi_candidate_of(w, times, own, work);
        if (!(c.rate / echi_choice_risk(own) > best * ECHI_CLEARLY)) continue;
        best = c.rate / echi_choice_risk(own);
        *taken = c;
        *plan = *own;
    }
}

void echi_choice_ways(const struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work,
                      struct echi_candidate *taken, struct echi_plan *plan) {
    if (!has_rounds(request, plan)) return;
    try_one_visit(request, times, work, taken, plan);
    if (may_cut(request, plan)) try_micros(request, times, work, taken, plan);
}

/* The i-th way: as they come, in one visit, in micro-batches. */
static void set_way(struct echi_plan *plan, int i) {
    plan->micro_batches = i < 2 ? 0 : micros[i - 2];
    plan->gathers = i == 1;
}

/* Each way, the plan's and those before it at least, with the table that is the best with it; more micro-batches no more once they are
 * slower. AlexNet, 4 hosts, 100 Mb/s: of two micro-batches and of three as many images/s are predicted with the default table, with the
 * best ones 36 and 32. */
void echi_choice_tables(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                        struct echi_plan *plan, struct echi_choice *choice) {
    struct echi_plan *with_default = &work->in_step, *own = &work->without;
    const struct echi_choice before = *choice;
    double last = 0, best = 0;
    if (!has_rounds(w, plan)) return echi_choice_table(w, times, work, plan, choice);
    *with_default = *plan;
    for (int i = 0; i < (may_cut(w, with_default) ? WAYS : 2); i++) {
        struct echi_choice c = before;
        *own = *with_default;
        set_way(own, i);
        const uint32_t samples = c.candidate[c.taken].samples_per_step;
        c.candidate[c.taken] = echi_candidate_predicted(w, times, own, work);
        c.candidate[c.taken].samples_per_step = samples;
        echi_choice_table(w, times, work, own, &c);
        const double rate = c.candidate[c.taken].rate;
        if (own->micro_batches > with_default->micro_batches && rate < last) return;
        last = rate;
        if (!(rate > best * ECHI_CLEARLY)) continue;
        best = rate;
        *choice = c;
        *plan = *own;
    }
}
