/* SPDX-License-Identifier: Apache-2.0
 * Which plan is the best, by prediction: --sync auto, the number of groups, and nodes that are net-negative. */
#ifndef ECHI_CHOICE_H
#define ECHI_CHOICE_H
#include "echi_planner.h"
#include "echi_merge.h"
#include "echi_predict.h"

/* bsp, asp, ssp and two or more groups, each with and without layer separation. */
#define ECHI_CANDIDATES_MAX (2 * (3 + ECHI_GROUPS_MAX - 1))
/* Policies that `choose` compares, each with and without layer separation. */
#define ECHI_CHOICES_MAX 6

struct echi_candidate {
    uint8_t sync, groups, cut;            /* cut: as in the plan */
    bool mostly_separated;                /* with most of the parameters: echi_mostly_separated */
    double rate, staleness;               /* predicted: samples a second, mean in rounds */
    double efficiency, goodput;           /* echi_efficiency_of; rate times efficiency */
    uint32_t samples_per_step; double under_way;   /* as in the plan request: how long steps are; 0: the planner's usual ones */
    double oldest;                        /* rounds behind, of the group that is the furthest */
    double behind;                        /* rounds, mean over pushes */
    double error; bool measured;          /* of the efficiency: its standard error as a part of it; by earlier runs, not by the table */
};

/* How a plan was come to. */
struct echi_choice {
    struct echi_candidate candidate[ECHI_CANDIDATES_MAX];
    int count, taken;                     /* candidates that were compared (1: the policy was given), and which of them the plan is */
    int net_negative;                     /* a rank without which the others would be faster; -1: none by itself */
    double gain;                          /* by so much, with a plan made anew as a whole: 0.12 is 12 % more samples a second */
    bool left_out;                        /* the plan does without its worker, or without several workers of which none is `net_negative`
                                             by itself (only where the policy is the planner's choice) */
    int thin; double thin_gain;           /* so many nodes with thin links have no part, which gains so much; 0: none */
    int alone; double alone_gain;         /* under a policy that was given, a node that by itself makes so much more; -1: none does */
    double table_gain;                    /* by another table of parts than the default one; 0: it has that */
    /* Whether layers are separated was weighed: from `cut` on; and what is predicted of the other way. */
    bool weighed; uint8_t cut; struct echi_candidate other;
    double one_owner;                     /* samples a second, predicted of the same plan with one owner; 0: it has one */
};

/* Predictions that were made, the last so many: memo.c. below > 0: of this one it is known only that it is less. */
#define ECHI_MEMO_MAX 256
struct echi_memo {
    struct echi_known { uint64_t digest[2]; struct echi_prediction prediction; double below; } known[ECHI_MEMO_MAX];
    uint32_t count;                       /* all that were ever made: the oldest give way */
};

/* The workspace of a choice: plans have room for every rank, and a thread's stack has none for several of them. As with a prediction's, a
 * caller keeps one and leaves its contents alone. */
struct echi_choice_work {
    void (*between)(void *self); void *self;     /* called before each prediction, some ms apart: whoever chooses may have to show that it
                                                    is there. NULL: nobody is called */
    struct echi_predict_work predict;
    struct echi_memo memo;
    struct echi_plan policy[ECHI_CHOICES_MAX];   /* the best of each */
    struct echi_plan tried;                      /* predicted, and forgotten */
    struct echi_plan without, in_step;           /* without whoever holds the others up; of rounds with fewer nodes */
    struct echi_plan_request placed, trial, thin;   /* with places; with those that are tried; without nodes on thin links */
    struct echi_plan_request left, rounds, half;    /* without who is left out; of rounds; of those with half of the nodes */
    struct echi_plan_request fewer;                 /* of rounds in which fewer train, and the others own parameters */
    struct echi_plan_request asked, at_cut, apart;  /* cut at the best place; at one that is tried; with or without a head */
    struct echi_plan_request cut_up; struct echi_plan with_micros;   /* of steps in micro-batches */
    double rate[ECHI_WORLD_MAX];
    struct echi_merge_piece piece[ECHI_PARTS_MAX];   /* of a table of parts */
    struct echi_times times[ECHI_WORLD_MAX];     /* of a run without one of the nodes */
    struct echi_times recut[ECHI_WORLD_MAX];     /* as with another cut than that at which they were measured */
    struct echi_times now[ECHI_WORLD_MAX];       /* of machines as they are seen (echi_replan.h), for who chooses while a run goes */
};

/* Makes the plan that the plan request asks for: the best by goodput of all candidates where request->choose says so, else that policy,
 * with the number of groups that is predicted to be the fastest where it is left open. Head and owners go where the most is predicted, and
 * with ECHI_SHARDS_AUTO the parts have as many owners as pay, or a ring sums them. Nodes whose links are thin beside the others' are left
 * out where that gains, unless the plan request keeps all; under a policy that is the planner's choice, any that hold the others up.
 * Rounds get the table of parts with which they are predicted to be the fastest. Where separating layers is left open, it is done from
 * where the most is predicted, if that is clearly more than with nothing separated.
 * Deterministic. ECH_E_ARGUMENT and a sentence in text[cap] when the plan request cannot be met. Takes some ten to a hundred predictions
 * of a few ms each. The workspace is all 0 before its first use. */
ech_status echi_plan_choose(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX],
                            struct echi_choice_work *work, struct echi_plan *out_plan, struct echi_choice *out_choice, char *text,
                            size_t cap);

/* Says of any plan, one from a file too, what is predicted of it and who holds it up: a choice of one. */
void echi_plan_judge(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan,
                     struct echi_choice_work *work, struct echi_choice *out_choice);
#endif
