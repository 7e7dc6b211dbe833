/* SPDX-License-Identifier: Apache-2.0
 * A candidate: what is predicted of a plan, and what that is worth. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

struct echi_candidate echi_candidate_predicted(const struct echi_plan_request *w, const struct echi_times *times,
                                               const struct echi_plan *plan, struct echi_choice_work *work) {
    struct echi_prediction p;
    if (work->between) work->between(work->self);
    echi_memo_predict(plan, times, &w->load, 0, work, &p);
    struct echi_candidate c = {.sync = plan->sync, .groups = plan->n_groups, .cut = plan->cut, .rate = p.rate,
                               .staleness = p.staleness, .oldest = p.oldest, .behind = p.behind};
    c.mostly_separated = echi_mostly_separated(&w->load, plan->cut);
    const struct echi_efficiency known =
        echi_efficiency_of(&w->evidence, plan->sync, plan->cut, c.mostly_separated, p.behind);
    c.efficiency = known.value;
    c.error = known.error;
    c.measured = known.measured;
    c.goodput = c.rate * c.efficiency;
    return c;
}

/* Messages are predicted part by part, so plans get their parts first, and those of rounds the owners of these. */
static void give_parts(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan) {
    if (plan->parts.count > 0 || w->layers.count == 0) return;
    if (plan->sync == ECHI_SYNC_BSP) echi_plan_divide(w, times, plan);
    echi_plan_parts(w, times, plan);
}

struct echi_candidate echi_candidate_of(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan,
                                        struct echi_choice_work *work) {
    give_parts(w, times, plan);
    return echi_candidate_predicted(w, times, plan, work);
}

double echi_candidate_rate(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan, double floor,
                           struct echi_choice_work *work) {
    struct echi_prediction p;
    give_parts(w, times, plan);
    if (work->between) work->between(work->self);
    echi_memo_predict(plan, times, &w->load, floor, work, &p);
    return p.rate;
}

double echi_candidate_by_links(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan,
                               struct echi_choice_work *work) {
    give_parts(w, times, plan);
    return echi_predict_rounds_by_links(plan, times, &w->load, &work->predict);
}

/* Of two plans that are predicted to be as good, the one whose efficiency is known better is the safer: rounds, of which it is 1. */
double echi_candidate_worth(const struct echi_plan_request *w, const struct echi_candidate *c) {
    return w->choose ? c->goodput * (1 - c->error) : c->rate;
}

/* Nothing holds a fast group back for the sake of a slow one, whose pushes come from ever older weights. Where all layers are stale, so
 * many rounds behind are too many: sixteen workers of test/hosts/links, LeNet-5 on MNIST, ten epochs, three seeds: four groups, the
 * slowest one's pushes 12 rounds behind, ended at 98.2 to 98.9 %, eight groups, 32 rounds, at 96.9 to 98.5 %; BSP at 98.7 to 99.0, and
 * eight groups with the codec, 5 rounds, at 98.6 to 98.9 % (paper). */
#define OLDEST_ROUNDS 8.0
double echi_candidate_worth_of_groups(const struct echi_plan_request *w, const struct echi_candidate *c) {
    return !c->mostly_separated && c->oldest > OLDEST_ROUNDS ? 0 : echi_candidate_worth(w, c);
}
