/* SPDX-License-Identifier: Apache-2.0
 * From measured step times to a plan: groups, head, shares. */
#ifndef ECHI_PLANNER_H
#define ECHI_PLANNER_H
#include "ech_status.h"
#include "echi_efficiency.h"
#include "echi_task.h"

enum echi_shares { ECHI_SHARES_SPEED, ECHI_SHARES_EQUAL, ECHI_SHARES_LIST };

/* Who is preferred as an owner: the fastest processor, or of the fastest links the fastest processor. Of shards it is the other way round:
 * links come first by default. */
enum echi_owners { ECHI_OWNERS_USUAL, ECHI_OWNERS_OTHER };
#define ECHI_SHARDS_AUTO (-1)

/* What the user asked for. */
struct echi_plan_request {
    enum echi_sync sync;
    int world;
    int separate;                      /* -1 auto (under GSSP yes), 0 no, 1 yes; only where the model has a cut */
    bool has_cut;                      /* the model has one, at layers.cut */
    bool shadow;                       /* a separate head has a shadow */
    int micro_batches;                 /* BSP with a head: of a step; 1: it is whole; 0: as many as are the fastest (echi_plan_choose) */
    int heads;                         /* BSP, separated: so many nodes train those layers; 0: as many as pay (echi_choice.h), else one */
    enum echi_activations activations; /* beside a head, as in the plan */
    bool one_flight;                   /* workers have one step in flight, whatever they wait for, and steps are whole */
    int groups;                        /* 0 auto; else exactly so many, if there are as many workers (GSSP only) */
    enum echi_shares shares; uint32_t share[ECHI_WORLD_MAX];   /* LIST: samples of each rank */
    uint32_t batch;                    /* B; 0: chosen (echi_plan_request_round) */
    uint32_t samples_per_step;         /* n of the asynchronous policies; 0: chosen */
    uint32_t staleness;
    double lr, momentum, decay; /* lr as meant for a B of 64 under the asynchronous policies' default rule, see planner.c */
    bool lr_given, momentum_given;
    enum echi_optimizer optimizer; struct echi_schedule schedule;
    struct echi_adam adam;             /* as in the plan */
    bool absent[ECHI_WORLD_MAX];       /* lost before there was a plan: has no times, and gets no part */
    bool deterministic;                /* BSP: shares of whole reduction blocks */
    bool sync_norm;                    /* BSP: as in the plan */
    int shards;                        /* BSP: so many owners share the parts; below 2: one has all. ECHI_SHARDS_AUTO: as many as pay
                                          (echi_choice.h) */
    enum echi_exchange exchange;       /* BSP, with shards; ECHI_EXCHANGES: the faster */
    bool shard_rank_given; uint16_t shard_rank[ECHI_SHARDS_MAX];   /* which nodes, each once; else its owner and the fastest beside it */
    bool shard_of_rank0;               /* of so many owners rank 0 is one, where it trains. For echi_plan_choose alone */
    enum echi_codec codec; enum echi_ratios ratios;
    uint64_t params, trunk_params;     /* floats of the model, and in front of its cut: what travels; 0: not known */
    uint32_t inner_steps;              /* `local`: steps of a worker in a round, in the mean over all; 1 .. ECHI_INNER_MAX */
    double outer_lr, outer_momentum;   /* `local` */
    double drop_older;                 /* `asp`: in rounds; 0: no push is dropped */
    bool weigh_by_time;                /* `asp`: a worker's gradients count in proportion to its step times */
    int workers;                       /* BSP, shares by speed: so many train, those that are the fastest, and all may own parts; 0: all.
                                          For echi_plan_choose alone */
    double beside_head;                /* BSP, shares by speed: this part of what the head takes, 0..1, does not count against the share of
                                          its node. For echi_plan_choose alone */
    bool keep_all;                     /* no node is left out for its link: the user said what each computes */
    bool choose;                       /* sync, and what is left open beside it, is whatever is predicted to be the best (echi_choice.h) */
    struct echi_layers layers;         /* of the model; none: not known, and the plan gets no table of parts */
    struct echi_load load;             /* what the model moves; all 0: not known */
    struct echi_evidence evidence;     /* statistical efficiencies that earlier runs have measured */
    uint32_t rounds_apart;             /* R; 0: 4 */
    double damping;                    /* as in the plan */
    double under_way;                  /* samples of all workers under way beside a head, in rounds; 0: 3. For echi_plan_choose alone */
    uint16_t home;                     /* 1 + the rank that the head, of several the first, goes to, and the owner of an only group; 0: by
                                          step times (echi_plan_make), or where the most is predicted (echi_plan_choose) */
    enum echi_owners owners;           /* of several groups, and of shards behind the first */
    int64_t regroup_after;             /* ns for which a change of speed must have lasted to change groups or sizes of steps; 0: never */
    int64_t ratios_after;              /* ns for which other ratios must have been due to be set (echi_follow.h); 0: never */
};

/* Moves the cut of a plan request in front of this layer with parameters: layers.cut, has_cut, and what the model moves. layers.count:
 * it has none. Layers are known. cuts.c */
void echi_plan_request_cut(struct echi_plan_request *request, int cut);
/* Moves the cut of measured times there, too, of all that are here. False where that cannot be: units are not known. */
bool echi_plan_times_cut(const struct echi_plan_request *request, int cut, struct echi_times times[ECHI_WORLD_MAX]);

/* B: as wished, else max(64, 16 x nodes); with `deterministic` 64. */
uint32_t echi_plan_request_round(const struct echi_plan_request *request);

/* Makes the plan of one policy, `choose` aside; auto groups are as few as are tight. ECH_E_ARGUMENT and a sentence in text[cap] when the
 * request cannot be met. */
ech_status echi_plan_make(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX],
                          struct echi_plan *out_plan, char *text, size_t cap);

/* Why no step of this plan may be cut into micro-batches; NULL: each may. */
const char *echi_plan_steps_whole(const struct echi_plan_request *request, const struct echi_plan *plan);

/* Of the nodes that are not in `but` who trains a round's rows at the head the soonest, -1: there is none; rank 0 on a tie, since with it
 * a run ends anyway. */
int echi_plan_best_shadow(const struct echi_times times[ECHI_WORLD_MAX], int world, const bool but[ECHI_WORLD_MAX], uint32_t round);

/* Gives a plan of groups a reserve (echi_plan.h), owned by the node that has nothing else to keep and the fastest link, of such the
 * fastest processor; none where all have something to keep, or there are 8 groups. */
void echi_plan_add_reserve(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan);

/* The table of parts of a model: no part has more than `slice` parameters, and neighbours share one of up to `merged`, which is at most
 * `slice` (more of both where the table would be too long). Batch-norms stay with their convolutions, and no part reaches across
 * `cut`, if it is above 0. With top-k: the layers. */
#define ECHI_PART_SLICE (UINT64_C(1) << 20)            /* by default 4 MB of floats */
/* By default a chunk of the wire: gradients that are sooner told of leave sooner, and fewer are not worth it. */
#define ECHI_PART_MERGED (UINT64_C(1) * ECHI_WORTH_A_WAKE / 4)
void echi_parts_make(const struct echi_layers *layers, int cut, int codec, uint64_t slice, uint64_t merged,
                     struct echi_parts *out);
/* A dense part more, of `size` parameters that begin `at` parameters behind the first of layer `first`. Room for it there must be. */
void echi_parts_add_slice(struct echi_parts *parts, const struct echi_layers *layers, int first, uint64_t at, uint64_t size);
/* Gives a plan that has none its table of parts, those of its shards included. */
void echi_plan_parts(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan);

/* ---- shards.c ---- */

/* Of all that are here and not in `but` (NULL: nobody is) the node with the fastest link, of all whose links may be as fast the fastest
 * processor, of two as fast the lower rank; -1: none is left. Links that are not known are all alike. */
int echi_plan_best_link(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX],
                        const bool but[ECHI_WORLD_MAX]);
/* Gives a plan of BSP without a table of parts the owners of shards that were wished for: the nodes that were named, or its owner and
 * those with the fastest links beside it, of such the fastest processors (with ECHI_OWNERS_OTHER the fastest processors, whatever their
 * links), but none whose link has no room for a part, unless it is rank 0 and wished for. Nothing under other policies and codecs. */
void echi_plan_divide(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan);
/* One owner has all. */
void echi_plan_undivide(struct echi_plan *plan);
/* Of a plan with shards, the share of the parameters that each owner is to have, 0 to 1, 1 together: those with which the link that needs
 * the longest for a step needs the shortest time; equal ones where a link is not known. */
void echi_plan_shard_shares(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                            double out_share[ECHI_SHARDS_MAX]);
/* The largest part of a plan by default: so small that each shard has many, of the layers in front of the cut. */
uint64_t echi_plan_slice(const struct echi_plan *plan, const struct echi_layers *layers);
/* Deals the first so many parts to the plan's shards by their shares, and to each of them one at least; of more shards than parts some are
 * given up. */
void echi_plan_deal_parts(struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], int parts);

/* Of nodes whose steps take about as long, at the same numbers of samples, each keeps its speed; how its times depend on samples, and what
 * pushes and messages take beside steps, become what they are in the median of these nodes. pool.c */
void echi_times_pool(struct echi_times times[ECHI_WORLD_MAX], int world);
/* The processors that all nodes share, where these are fewer than their threads and no node differs from another by more than that
 * explains: then none is to blame for what they are slower together than fewer would be. Else 0. pool.c */
int echi_times_crowded(const struct echi_times times[ECHI_WORLD_MAX], int world);
/* Exact one-dimensional clustering: cuts `count` ascending values > 0 into `groups` runs with the least sum, over the
 * runs, of squared relative deviation from the run's mean (dynamic programming over all cuts). out_group[i] ascending from 0. */
void echi_cluster(const double *value, int count, int groups, int *out_group);
/* The smallest number of groups, at most `most`, with no group's largest value more than `ratio` times its smallest. */
int echi_cluster_auto(const double *value, int count, double ratio, int most, int *out_group);
/* Shares n[i] (0 allowed) of `batch` samples that make the slowest step as short as it can be. seconds(i, n) rises with n. */
void echi_shares_by_speed(const struct echi_times *times, int count, uint32_t batch, uint32_t *out_n);
/* Shares of a whole round under BSP that make its slowest step as short as it can be, of the workers of a plan of which none is lost:
 * each has one sample at least, and at most what a lease of it may have (echi_plan_room). */
void echi_shares_of_round(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], uint32_t out_n[ECHI_WORLD_MAX]);
/* The planner's part: each group's base, once groups and samples are settled. */
void echi_ratios_plan(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan);
#endif
