/* SPDX-License-Identifier: Apache-2.0
 * The plan: who does what, and who of them is still there. members.c; policy.c; bytes, and whether a plan makes sense: message.c. */
#ifndef ECHI_PLAN_H
#define ECHI_PLAN_H
#include "echi_limits.h"
#include "echi_optimizer.h"
#include "echi_part.h"
#include "echi_ranks.h"
#include "echi_schedule.h"

enum echi_sync { ECHI_SYNC_BSP, ECHI_SYNC_ASP, ECHI_SYNC_SSP, ECHI_SYNC_GSSP, ECHI_SYNC_LOCAL, ECHI_SYNCS };
/* What a policy is, whatever its rules are (lib/core/sync). */
struct echi_policy {
    const char *name;     /* as in --sync */
    bool rounds;          /* leases name a round: the coordinator deals a round to all workers at once */
    bool bounded;         /* workers that are too far ahead wait for the slowest of their group. So where several wait to be answered, by
                             their owner or by the head, those with the fewest steps go first; else they have their turn */
    bool grouped;         /* there may be several groups */
    bool local;           /* workers step on weights of their own and push what has changed; a lease is several steps, and the owner
                             takes an outer step by a round's sum (worker_local.c). With rounds, and nothing separated */
};
const struct echi_policy *echi_policy_of(enum echi_sync sync);

/* How a change is written on a link, and which rule says how much of it is (echi_ratio.h). */
enum echi_codec { ECHI_CODEC_DENSE, ECHI_CODEC_TOPK, ECHI_CODECS };
enum echi_ratios { ECHI_RATIOS_PAPER, ECHI_RATIOS_VOLUME, ECHI_RATIOS_BALANCED, ECHI_RATIOS };
#define ECHI_RATIO_ONE 1000000u

/* How the gradients of a part are summed, and its weights given out (lib/core/exchange). */
enum echi_exchange { ECHI_EXCHANGE_SERVER, ECHI_EXCHANGE_RING, ECHI_EXCHANGES };

/* How activations at the cut travel, and their gradients back: as they are, or rounded to bf16, two bytes each. */
enum echi_activations { ECHI_ACTIVATIONS_FP32, ECHI_ACTIVATIONS_BF16, ECHI_ACTIVATIONS };
const char *echi_activations_name(int activations);   /* NULL: there is no such */

/* Who does what. Plain data: made by the planner on rank 0, sent to all. What each event asks for comes first, and what is as long as the
 * world or the model last: in a simulation each of a thousand nodes has a plan of its own, and no cache has room for them. */
struct echi_plan {
    uint8_t sync, n_groups;
    uint8_t reserve;                      /* 1: the last group is a reserve: an owner, and at first no workers, for who falls behind */
    uint8_t cut;                          /* layers with parameters, counted from 0, are the head's from this one on; 0: it has none */
    uint16_t world;
    uint16_t head;                        /* rank, ECHI_NO_RANK when nothing is separated */
    uint16_t shadow;                      /* 1 + the rank that trains the head's layers as well, on the same rows, and becomes the head when
                                             that is lost; 0: none */
    uint8_t heads;                        /* BSP: so many nodes, at least 2, train the head's layers, each with its own copy of them, and
                                             add up their gradients once a round; 0: `head` does alone */
    uint8_t flights;                      /* steps that a worker has in flight: while one waits for the head or its owner, the
                                             other computes; 1 unless separated and asynchronous */
    uint8_t micro_batches;                /* into which a worker cuts its step (micro.c), 2 to ECHI_MICRO_MAX; 0: it does not. BSP with a
                                             head only, not with sync_norm, nor where a batch-norm is in front of the cut */
    uint8_t gathers;                      /* 1: the head waits until all rows of a round are there, and computes them in one visit, as long
                                             as nobody is lost; else it takes what there is. BSP with a head only, of whole steps */
    uint8_t activations;                  /* enum echi_activations; bf16 with a head only, not with `deterministic` */
    uint8_t resumed;                      /* 1: the run goes on from a checkpoint; owners and head get their momentum beside the weights */
    uint8_t deterministic;                /* 1: shares are whole reduction blocks, sums are in whole numbers (PROTOCOL.md); BSP only */
    uint8_t sync_norm;                    /* 1: batch-norm's statistics are those of all leases of a round that are computed together; BSP
                                             only, not with `deterministic` */
    uint8_t shares_follow;                /* 1: shares of a round may follow speeds while the run goes, and leases have room for that; BSP
                                             only, not with `deterministic`. Not in plan files: their shares stay */
    uint8_t codec, ratios;                /* enum echi_codec, enum echi_ratios; not with `deterministic` */
    uint8_t shards;                       /* BSP: so many nodes, at least 2, own a group's parts together; 0: owner_of has them all */
    uint8_t exchange;                     /* enum echi_exchange; a ring only where echi_plan_may_ring */
    uint16_t coming;                      /* 1 + the rank that gets a copy of the head's layers, and is neither the head nor its shadow yet;
                                             0: none. Not among a plan's bytes */
    uint8_t broken;                       /* enum echi_broken: of a ring; not among a plan's bytes, which are sent before a node is lost */
    uint32_t round;                       /* B */
    uint32_t staleness;                   /* S, in steps */
    uint32_t rounds_apart;                /* R: how far a group may run ahead of what the others have acknowledged */
    uint16_t owner_of[ECHI_GROUPS_MAX];   /* rank that owns the trunk (or all layers) for each group; beyond n_groups ECHI_NO_RANK */
    double lr, momentum, decay;           /* lr: before its schedule */
    uint8_t optimizer;                    /* enum echi_optimizer; of `local` that of a worker's own steps */
    struct echi_adam adam;                /* all 0 with sgd and nesterov; with Adam momentum is 0 */
    struct echi_schedule schedule;
    uint32_t state_ratio;                 /* TOPK: of weights and states, in millionths */
    uint32_t base[ECHI_GROUPS_MAX];       /* TOPK: of each group, in millionths; what it means is the policy's */
    double outer_lr, outer_momentum;      /* `local`: of the owner's step; 0 under the other policies */
    double drop_older;                    /* `asp`: rounds: a push that is staler is not applied, its samples are issued again;
                                             0: none is */
    double damping;                       /* c: a push that is t rounds stale weighs 1 / (1 + c t), its samples and its decay do
                                             not; BSP: 0 */
    uint16_t shard_owner[ECHI_SHARDS_MAX];   /* their ranks, each once until one is lost; [0]: owner_of[0]. Beyond `shards` 0 */
    uint16_t head_rank[ECHI_HEADS_MAX];   /* of several heads their ranks, each once; [0]: head. Beyond `heads` 0 */
    struct echi_parts parts;              /* of the model's parameters; none: the default ones are still to be made (planner/parts.c) */
    /* By rank, as many as the world has. */
    uint8_t group_of[ECHI_WORLD_MAX];     /* ECHI_NONE: this rank has no worker */
    uint8_t head_of[ECHI_WORLD_MAX];      /* several heads: which of them trains this worker's rows; each trains some worker's. Else 0 */
    uint32_t n[ECHI_WORLD_MAX];           /* samples a step; 0 exactly where there is no worker */
    uint32_t inner[ECHI_WORLD_MAX];       /* `local`: a worker's steps in a round, H_i; 0 under the other policies */
    uint32_t divisor[ECHI_WORLD_MAX];     /* `asp`: of this worker's gradients, in the place of B; 0: B */
    uint8_t lost[ECHI_WORLD_MAX];         /* 1: this rank is gone; not among its bytes either */
    /* Nor are these, of workers that joined another group: 1 + the group that the coordinator moved it from (0: none yet), to whose
     * owner steps that had begun still go; and bit g: it was in group g before. */
    uint8_t moved_from[ECHI_WORLD_MAX], was_in[ECHI_WORLD_MAX];
};
static inline int echi_plan_shadow(const struct echi_plan *plan) { return plan->shadow - 1; }   /* its rank, -1: none */
struct echi_lease;
/* How many heads there are, beside a shadow: 0 where nothing is separated; the rank of one; which one a rank is, -1: none, as its shadow
 * is. And the rank that trains the rows of a lease. */
int echi_plan_heads(const struct echi_plan *plan);
int echi_plan_head_rank(const struct echi_plan *plan, int head);
int echi_plan_head_index(const struct echi_plan *plan, int rank);
int echi_plan_head_of(const struct echi_plan *plan, const struct echi_lease *lease);
void echi_plan_clear(struct echi_plan *plan);   /* nobody does anything: all 0, no head, no owners, no workers */
int echi_plan_workers(const struct echi_plan *plan, int group);   /* living ones of one group; group -1: of all */

/* ---- members.c: who is still here ---- */

/* The reserve group, which has an owner from the start and workers only while some are unlike all others; -1: none. It sleeps while it
 * has none: no states are sent there, and nobody waits for it; what it once changed is in all others' weights. */
int echi_plan_reserve(const struct echi_plan *plan);
/* May the run go on without this rank? No: rank 0, a head without a shadow or one of several, the last owner of the trunk but the
 * reserve's, which may have slept through what the others did, the last worker; an owner of a shard, unless echi_plan_has_heir_of. */
bool echi_plan_can_lose(const struct echi_plan *plan, int rank);
/* Takes a rank out. The shadow of a lost head is the head from then on; a copy that the lost one sent or got is given up. The workers of a
 * group whose owner it was join the nearest group that has one, of two as near the faster; not the reserve. */
void echi_plan_lose(struct echi_plan *plan, int rank);
/* The group that rank owns, or owns a shard of, -1: none; whether a group still has its owners; the fastest that has. */
int echi_plan_group_owned(const struct echi_plan *plan, int rank);
bool echi_plan_group_lives(const struct echi_plan *plan, int group);
int echi_plan_first_group(const struct echi_plan *plan);
/* Is this a living worker, and that a group with a living owner? */
bool echi_plan_may_move(const struct echi_plan *plan, int rank, int group);
/* Moves a worker to another group, whose owner lives. All nodes do so at the same membership epoch. */
void echi_plan_move(struct echi_plan *plan, int rank, int group);
/* Does a HEADS word of the coordinator fit the plan? */
struct echi_msg;
bool echi_plan_may_home(const struct echi_plan *plan, const struct echi_msg *msg);
/* What a LOST, REGROUP, TAKEOVER or HEADS word says, done to the plan. */
void echi_plan_told(struct echi_plan *plan, const struct echi_msg *msg);
/* Places for weights to come to a worker's node: for each living owner that it may work for one a flight, since a place that was
 * posted for a living node cannot be taken back. */
int echi_plan_places(const struct echi_plan *plan, int rank);
/* One node works for itself, in rounds: each round is one lease, its push is the round's sum, and nobody reads the weights while they are
 * applied. So they are applied in place. */
bool echi_plan_alone(const struct echi_plan *plan);
/* Snapshots that an owner needs, so that no apply waits for an answer: at most ECHI_SNAPSHOTS. others: its group has workers of other
 * nodes; own: the worker of its node is or was one, and may compute on a snapshot until another owner has answered it. Under bsp two are
 * enough: whoever pushes in a round has all weights of the round before, so of the version before that nothing is on its way. One is
 * enough where rounds go by part and a takeover gets lost weights from workers: when all have pushed a part, all have its weights. */
int echi_plan_snapshots(const struct echi_plan *plan, bool others, bool own);
/* Top-k: whose OWNER_KNOWN says what a worker has of its owner. In rounds all that are on other nodes are sent the same, so they have the
 * same: that of the first of them. */
int echi_plan_known(const struct echi_plan *plan, int owner, int rank);
/* Under a policy with rounds: a worker's samples in a whole round; and the samples of one, or at most of one, since it may have
 * been dealt before a loss. */
uint32_t echi_plan_share(const struct echi_plan *plan, int rank);
uint32_t echi_plan_round(const struct echi_plan *plan);
uint32_t echi_plan_round_most(const struct echi_plan *plan);
/* May shares of a round change while the run goes? Several workers have some. */
bool echi_plan_shares_follow(const struct echi_plan *plan);
/* Samples of one lease that a worker may get: with rounds more than its share where that is small, since it takes the shares of those
 * who are lost, and half more than its share where shares follow speeds. What is larger than the room is leased in parts. */
uint32_t echi_plan_room(const struct echi_plan *plan, int rank);
/* Samples of one step, for which a worker's stack has room: those of a lease, but under `local`, where a lease is several steps. */
uint32_t echi_plan_step(const struct echi_plan *plan, int rank);
/* Does each part of a round go by itself: summed, applied, sent, and waited for by forward (BSP, dense, several workers)? */
bool echi_plan_rounds_by_part(const struct echi_plan *plan);
/* Do more than one train? The lost ones count, too: a loss changes nothing of how rounds go. */
bool echi_plan_several_train(const struct echi_plan *plan);
/* Do a worker's gradients of a round lie where its weights of the next come to, until a node is lost? So they can in rounds by part with
 * shards, since no part of the next weights is sent before the gradients of all workers for that part are at its owner. Not under
 * --deterministic, where gradients are wider than weights; in a ring, where they are added to sums after they were ready; and not where
 * a step stops for others (a separate head, sync_norm). After a loss a lease of the same round may come when some of the next weights
 * have: from then on gradients have memory of their own. */
bool echi_plan_grads_in_weights(const struct echi_plan *plan);
/* May an evaluation read the weights that rank 0's worker has, so that no copy of them is kept? Where gradients lie in weights: nothing is
 * out at an evaluation, so what the worker has whole stays as it is until the next round is dealt. */
bool echi_plan_evaluates_own(const struct echi_plan *plan);
/* Does an owner sum a part in the place of one of its pushes, until a node is lost? Where gradients lie in weights a push that is lent is
 * used once; and one task takes all pushes of a part. */
bool echi_plan_sums_in_push(const struct echi_plan *plan);
/* A round of so many samples as it is dealt to the living workers: their shares of it, by rank. They are as planned, or in proportion where
 * an epoch ends with fewer samples or workers are lost (largest remainder first); whole reduction blocks with `deterministic`, of which
 * the last may be short. */
void echi_plan_deal(const struct echi_plan *plan, uint32_t size, uint32_t out_n[ECHI_WORLD_MAX]);
/* The same by other shares than the plan's, of which some living worker has one. */
void echi_plan_deal_by(const struct echi_plan *plan, const uint32_t share[ECHI_WORLD_MAX], uint32_t size, uint32_t out_n[ECHI_WORLD_MAX]);
/* Steps and micro-batches whose activations a worker keeps at once: its stacks, its places for rows and for their gradients. */
static inline int echi_plan_stacks(const struct echi_plan *plan) { return plan->micro_batches ? plan->micro_batches : plan->flights; }
/* What a worker divides the gradients of a lease by. */
uint32_t echi_plan_divisor(const struct echi_plan *plan, const struct echi_lease *lease);

/* ---- shards.c: who owns which part ----
 * A shard is the set of parts with one owner. A group has one, or as many as `shards` says; shard 0 has part 0, and its owner is
 * owner_of[group], whom leases name. */

int echi_plan_shards(const struct echi_plan *plan);
uint64_t echi_plan_all_shards(const struct echi_plan *plan);   /* a bit each */
/* Of group `group` the rank that owns a shard, or a part; and the shard that a rank owns, -1: none. */
int echi_plan_shard_owner(const struct echi_plan *plan, int group, int shard);
int echi_plan_part_owner(const struct echi_plan *plan, int group, int part);
int echi_plan_shard_owned(const struct echi_plan *plan, int rank);
/* After the loss of another owner a rank may own several, of which the above is the first: all of them, a bit each; whether it owns a
 * part; and whether this shard is the first of those that its owner has, so that one goes through owners by shards. */
uint64_t echi_plan_shards_of(const struct echi_plan *plan, int rank);
bool echi_plan_owns_part(const struct echi_plan *plan, int rank, int part);
bool echi_plan_leads_shard(const struct echi_plan *plan, int group, int shard);
/* Takeover (PROTOCOL.md). A living node that computes and owns a shard is an heir: its owner gets lost parts from its worker. May a round
 * be stopped and begin anew? Where there are heirs, and nothing but parts has to be taken over. Does that get over the loss of this rank,
 * whose shards, if it owns any, go to another heir? Not with `deterministic` where an optimiser remembers: what an owner remembers is lost
 * with it, and the bits would depend on when. May each owner but rank 0 be lost? Then: has a shard lost its owner? */
bool echi_plan_is_heir(const struct echi_plan *plan, int rank);
bool echi_plan_begins_anew(const struct echi_plan *plan);
bool echi_plan_has_heir_of(const struct echi_plan *plan, int rank);
bool echi_plan_outlives_owners(const struct echi_plan *plan);
bool echi_plan_orphaned(const struct echi_plan *plan);
/* Each shard of a lost owner goes to the one of the living owners with a mark that has the fewest parameters; returns these shards. */
uint64_t echi_plan_take_over(struct echi_plan *plan, const uint32_t *mark);

/* ---- ring.c: the order of a ring. All workers are in it, by rank. It lasts until one of them is lost; then a takeover begins, although no
 * shard may have lost its owner, and from there on the exchange is `server`. ---- */

enum echi_broken { ECHI_RING_WHOLE, ECHI_RING_BROKE, ECHI_RING_ENDED };
/* Owners may be lost, and each of them works: a ring may be broken, and has no place for a node that only owns. */
bool echi_plan_may_ring(const struct echi_plan *plan);
bool echi_plan_rings(const struct echi_plan *plan);   /* now */
/* The worker behind and in front of this one. */
int echi_ring_next(const struct echi_plan *plan, int rank);
int echi_ring_before(const struct echi_plan *plan, int rank);
/* Of a round that these have shares of the sum of a part begins behind its owner, with the first of them: who that is. The owner itself
 * where nobody else has one. */
int echi_ring_first(const struct echi_plan *plan, const struct echi_ranks *sharing, int owner);
/* Whose message brings the worker of `rank` the weights of a part: an owner's own worker gets them from it. To whom it hands them on, -1:
 * to nobody. */
int echi_ring_weights_from(const struct echi_plan *plan, int rank, int part);
int echi_ring_weights_next(const struct echi_plan *plan, int rank, int part);

#define ECHI_PLAN_BYTES(world)                                                                                                    \
    (201 + 2 * ECHI_SHARDS_MAX + 2 * ECHI_HEADS_MAX + 6 * ECHI_GROUPS_MAX + 10 * (world) +                                   \
     ECHI_PARTS_BYTES)   /* of an encoded plan at most */
#define ECHI_PLAN_BYTES_MAX ECHI_PLAN_BYTES(ECHI_WORLD_MAX)
size_t echi_plan_encode(const struct echi_plan *plan, uint8_t *out, size_t cap);
bool echi_plan_decode(const uint8_t *bytes, size_t len, struct echi_plan *out);   /* also false unless echi_plan_valid */
bool echi_plan_valid(const struct echi_plan *plan);
#endif
