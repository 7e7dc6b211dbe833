/* SPDX-License-Identifier: Apache-2.0
 * What the files of a choice share: memo.c (what was predicted before), candidate.c (what a plan is worth), place.c (where its head and
 * owners are), cuts.c (where its head begins), micros.c (how steps of rounds go through the head), tables.c (which parts it has),
 * policies.c (which policy), choice.c (who is left out). */
#ifndef ECHI_CHOICE_IMPL_H
#define ECHI_CHOICE_IMPL_H
#include "echi_choice.h"

/* Predictions are good to some percent. What is better by less is not better: then the simpler one is taken, and groups of like
 * speed, whose bound does not bite when speeds turn out otherwise, stay as they are. */
#define ECHI_CLEARLY 1.02

static inline double echi_greater(double a, double b) { return a > b ? a : b; }

/* memo.c: as echi_predict_above, at once where the same was predicted before. */
void echi_memo_predict(const struct echi_plan *plan, const struct echi_times *times, const struct echi_load *load, double floor,
                       struct echi_choice_work *work, struct echi_prediction *out);

/* candidate.c */
/* What is predicted of a plan that has its parts; of any, which gets them first. */
struct echi_candidate echi_candidate_predicted(const struct echi_plan_request *request, const struct echi_times *times,
                                               const struct echi_plan *plan, struct echi_choice_work *work);
struct echi_candidate echi_candidate_of(const struct echi_plan_request *request, const struct echi_times *times, struct echi_plan *plan,
                                        struct echi_choice_work *work);
/* Samples a second of any plan alone; 0 where it is certain that they are fewer than `floor`. */
double echi_candidate_rate(const struct echi_plan_request *request, const struct echi_times *times, struct echi_plan *plan, double floor,
                           struct echi_choice_work *work);
/* So many samples a second or fewer are predicted of it, by its links, without a play: echi_predict_rounds_by_links. */
double echi_candidate_by_links(const struct echi_plan_request *request, const struct echi_times *times, struct echi_plan *plan,
                               struct echi_choice_work *work);
/* Samples a second; where policies are compared less what staleness costs, and what it may cost: a standard error more. Of groups of which
 * one is too far behind 0. */
double echi_candidate_worth(const struct echi_plan_request *request, const struct echi_candidate *candidate);
double echi_candidate_worth_of_groups(const struct echi_plan_request *request, const struct echi_candidate *candidate);

/* place.c: each sets in the plan request what is the best. They use work->trial and work->tried, the last also work->fewer. */
bool echi_choice_links_alike(const struct echi_plan_request *request, const struct echi_times *times);
/* There is one way to place head and owners, so nothing to predict. */
bool echi_choice_one_way(const struct echi_plan_request *request, const struct echi_times *times);
void echi_choice_place(struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work);
void echi_choice_exchange(struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work);
/* What is predicted of a plan counts so many times less: the loss of any of its several owners ends the run. */
double echi_choice_risk(const struct echi_plan *plan);
void echi_choice_beside_head(struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work);
void echi_choice_heads(struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work);
void echi_choice_workers(struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work);

/* cuts.c: moves the request's cut to where separating layers is predicted to be worth the most, if that is left open and may be done;
 * returns the times as they are with that cut, in work->recut unless they are so already. */
const struct echi_times *echi_choice_cut(struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work);

/* tables.c: gives a plan of rounds another table of parts, and choice->candidate[taken] what is then predicted, where that gains. Its
 * owners stay. Uses work->tried. */
void echi_choice_table(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX],
                       struct echi_choice_work *work, struct echi_plan *plan, struct echi_choice *choice);

/* micros.c: how the steps of a plan of rounds go through its head, in one visit or in micro-batches, where that is left open and gains, and
 * *taken what is then predicted; of `request` as it was before anything was placed. Uses work->tried, trial, cut_up, with_micros. Then, as
 * echi_choice_table, a table as well: also uses work->in_step and work->without. */
void echi_choice_ways(const struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work,
                      struct echi_candidate *taken, struct echi_plan *plan);
void echi_choice_tables(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX],
                        struct echi_choice_work *work, struct echi_plan *plan, struct echi_choice *choice);

/* policies.c: as echi_plan_choose, of the nodes that are not absent, all of which stay. */
ech_status echi_choice_make(const struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work,
                            struct echi_choice *out_choice, struct echi_plan *out_plan, char *text, size_t cap);
#endif
