/* SPDX-License-Identifier: Apache-2.0
 * The words of the scheduler: limits, leases, plans, messages, and the events and actions of a role.
 *
 * Everything in lib/core is pure: no sockets, clock, threads or files, no floats of parameters, no allocation. A role is
 * a struct; it takes an event with the time and returns actions; a driver (lib/drive) makes them true. Roles name payloads
 * as *slots*, numbered buffers that the driver holds: a role never sees a byte of a payload. */
#ifndef ECHI_SCHED_H
#define ECHI_SCHED_H
#include "ech_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_WORLD_MAX 1024
#define ECHI_GROUPS_MAX 8
#define ECHI_MERGE_ROWS 256           /* rows the head merges into one visit, unless one step alone brings more */
#define ECHI_MERGE_STEPS 64           /* steps whose rows it merges at most: 256 rows fill them with 4 each, and tasks stay small */
#define ECHI_STRANDS 2                /* steps of one worker in flight at most */
#define ECHI_LEASES_AHEAD 8           /* leases dealt ahead to a worker, beside those that it computes, at most: so many that no round trip
                                         shows. One at first, and one more each time that it runs out while one is on its way (ledger.c) */
#define ECHI_ROUND_PARTS 16           /* a share of a round may be leased in so many parts, see echi_plan_room */
#define ECHI_LEASES_HELD 192          /* leases a worker can hold: with rounds those of lost workers come on top of its own */
#define ECHI_ROUND_LEASES (ECHI_WORLD_MAX + 192)   /* leases that make up a round, at most: one a worker, and parts of large shares */
#define ECHI_UNACKED_MAX 256          /* pushes in a group's state that another owner has not acknowledged, at most */
#define ECHI_SNAPSHOTS (2 + 4)        /* weights: one current, one being written, and 4 sends at once (design, section 5) */
#define ECHI_STATE_COPIES 3           /* own state: current, being written, being sent */
#define ECHI_NONE 255                 /* no group, no slot */
#define ECHI_NO_RANK 65535
#define ECHI_GRANULE 4                /* samples that --deterministic takes as one, by their place in the round */
#define ECHI_INNER_MAX 10000          /* `local`: steps of one worker in a round */
#define ECHI_LOCAL_ROUND_MAX (1u << 30)   /* `local`: samples of a round */
#define ECHI_DELTAS 2                 /* `local`: changes of one worker that are on their way, or wait for the round before theirs */

/* ---------------------------------------------------------------- the plan */

enum echi_sync { ECHI_SYNC_BSP, ECHI_SYNC_ASP, ECHI_SYNC_SSP, ECHI_SYNC_GSSP, ECHI_SYNC_LOCAL, ECHI_SYNCS };

/* How a change is written on a link, and which rule says how much of it is (echi_ratio.h). */
enum echi_codec { ECHI_CODEC_DENSE, ECHI_CODEC_TOPK, ECHI_CODECS };
enum echi_ratios { ECHI_RATIOS_PAPER, ECHI_RATIOS_VOLUME, ECHI_RATIOS_BALANCED, ECHI_RATIOS };

/* How gradients become changes: PyTorch's SGD with momentum, or with Nesterov's (dampening 0); its Adam, whose weight decay is L2 added to
 * the gradient; or its AdamW, which decays the weights themselves. */
enum echi_optimizer { ECHI_OPTIMIZER_SGD, ECHI_OPTIMIZER_NESTEROV, ECHI_OPTIMIZER_ADAM, ECHI_OPTIMIZER_ADAMW, ECHI_OPTIMIZERS };
#define ECHI_BETA_MAX 0.999999
#define ECHI_EPSILON_MIN 1e-12        /* above the root of the least normal float: it alone divides where no gradient ever was */
struct echi_adam { double beta1, beta2, epsilon; };   /* decays of the first and of the second moment in a round;
                                                         what is added to the root */

/* How lr changes while a run goes on. Places in the data are counted in epochs, from the beginning of the run, in fractions. */
#define ECHI_LR_STEPS_MAX 8
#define ECHI_EPOCHS_MAX 1e6           /* all of them are below */
enum echi_schedules { ECHI_SCHEDULE_CONSTANT, ECHI_SCHEDULE_STEP, ECHI_SCHEDULE_COSINE, ECHI_SCHEDULES };
struct echi_schedule {
    uint8_t kind, steps;                  /* enum echi_schedules; STEP: so many in step[] */
    double warmup;                        /* epochs in which lr rises in a straight line from 0; 0: it begins whole */
    double factor;                        /* STEP: lr is multiplied by it, above 0 and at most 1, at each place in step[], ascending */
    double step[ECHI_LR_STEPS_MAX];
    double epochs;                        /* COSINE: from the end of the warm-up to here lr falls to 0 by half a cosine
                                             (Loshchilov and Hutter, SGDR, ICLR 2017, without restarts) */
};

/* Who does what. Plain data: made by the planner on rank 0, sent to all. */
struct echi_plan {
    uint8_t sync, n_groups;
    uint8_t reserve;                      /* 1: the last group is a reserve: an owner, and at first no workers, for who falls behind */
    uint8_t separated;                    /* 1: the layers from the cut on belong to `head` */
    uint16_t world;
    uint16_t head;                        /* rank, ECHI_NO_RANK when nothing is separated */
    uint16_t owner_of[ECHI_GROUPS_MAX];   /* rank that owns the trunk (or all layers) for each group; beyond n_groups ECHI_NO_RANK */
    uint8_t group_of[ECHI_WORLD_MAX];     /* ECHI_NONE: this rank has no worker */
    uint8_t strands;                      /* steps that a worker has in flight: while one waits for the head or its owner, the
                                             other computes; 1 unless separated and asynchronous */
    uint8_t resumed;                      /* 1: the run goes on from a checkpoint; owners and head get their momentum beside the weights */
    uint8_t deterministic;                /* 1: shares are whole granules, sums are in whole numbers (design, section 6); BSP only */
    uint8_t sync_norm;                    /* 1: batch-norm's statistics are those of all leases of a round that are computed together; BSP
                                             only, not with `deterministic` */
    uint32_t n[ECHI_WORLD_MAX];           /* samples a step; 0 exactly where there is no worker */
    uint32_t round;                       /* B */
    uint32_t staleness;                   /* S, in steps */
    uint32_t rounds_apart;                /* R: how far a group may run ahead of what the others have acknowledged */
    double lr, momentum, decay;           /* lr: before its schedule */
    uint8_t optimizer;                    /* enum echi_optimizer; of `local` that of a worker's own steps */
    struct echi_adam adam;                /* all 0 with sgd and nesterov; with Adam momentum is 0 */
    struct echi_schedule schedule;
    uint8_t codec, ratios;                /* enum echi_codec, enum echi_ratios; not with `deterministic` */
    uint32_t state_ratio;                 /* TOPK: of weights and states, in millionths */
    uint32_t base[ECHI_GROUPS_MAX];       /* TOPK: of each group, in millionths; what it means is the policy's */
    uint32_t inner[ECHI_WORLD_MAX];       /* `local`: a worker's steps in a round, H_i; 0 under the other policies */
    double outer_lr, outer_momentum;      /* `local`: of the owner's step; 0 under the other policies */
    double drop_older;                    /* `asp`: rounds: a push that is staler is not applied, its samples are issued again;
                                             0: none is */
    uint32_t divisor[ECHI_WORLD_MAX];     /* `asp`: of this worker's gradients, in the place of B; 0: B */
    double damping;                       /* c: a push that is t rounds stale weighs 1 / (1 + c t), its samples and its decay do
                                             not; BSP: 0 */
    uint8_t lost[ECHI_WORLD_MAX];         /* 1: this rank is gone; not among a plan's bytes, which are sent before any is */
    /* Nor are these, of workers that joined another group: 1 + the group that the coordinator moved it from (0: none yet), to whose
     * owner steps that had begun still go; and bit g: it was in group g before. */
    uint8_t moved_from[ECHI_WORLD_MAX], was_in[ECHI_WORLD_MAX];
};
void echi_plan_clear(struct echi_plan *plan);   /* nobody does anything: all 0, no head, no owners, no workers */
struct echi_lease;
int echi_plan_workers(const struct echi_plan *plan, int group);   /* living ones of one group; group -1: of all */

/* ---- members.c: who is still here ---- */

/* The reserve group, which has an owner from the start and workers only while some are unlike all others; -1: none. It sleeps while it
 * has none: no states are sent there, and nobody waits for it; what it once changed is in all others' weights. */
int echi_plan_reserve(const struct echi_plan *plan);
/* May the run go on without this rank? No: rank 0, the head's owner, the last owner of the trunk but the reserve's, which may have
 * slept through what the others did, the last worker. */
bool echi_plan_can_lose(const struct echi_plan *plan, int rank);
/* Takes a rank out. The workers of a group whose owner it was join the nearest group that has one, of two as near the faster; not the
 * reserve. */
void echi_plan_lose(struct echi_plan *plan, int rank);
/* The group that rank owns, -1: none; whether a group still has its owner; the fastest that has. */
int echi_plan_group_owned(const struct echi_plan *plan, int rank);
bool echi_plan_group_lives(const struct echi_plan *plan, int group);
int echi_plan_first_group(const struct echi_plan *plan);
/* Is this a living worker, and that a group with a living owner? */
bool echi_plan_may_move(const struct echi_plan *plan, int rank, int group);
/* Moves a worker to another group, whose owner lives. All nodes do so at the same membership epoch. */
void echi_plan_move(struct echi_plan *plan, int rank, int group);
/* What a LOST or REGROUP word says, done to the plan. */
struct echi_msg;
void echi_plan_told(struct echi_plan *plan, const struct echi_msg *msg);
/* Places for weights to come to a worker's node: for each living owner that it may work for one a strand, since a place that was
 * posted for a living node cannot be taken back. */
int echi_plan_places(const struct echi_plan *plan, int rank);
/* Under a policy with rounds: a worker's samples in a whole round; and the samples of one, or at most of one, since it may have
 * been dealt before a loss. */
uint32_t echi_plan_share(const struct echi_plan *plan, int rank);
uint32_t echi_plan_round(const struct echi_plan *plan);
uint32_t echi_plan_round_most(const struct echi_plan *plan);
/* Samples of one lease that a worker may get: with rounds more than its share where that is small, since it takes the shares of those
 * who are lost, and what is larger than the room is leased in parts. */
uint32_t echi_plan_room(const struct echi_plan *plan, int rank);
/* Samples of one step, for which a worker's stack has room: those of a lease, but under `local`, where a lease is several steps. */
uint32_t echi_plan_step(const struct echi_plan *plan, int rank);
/* What a worker divides the gradients of a lease by. */
uint32_t echi_plan_divisor(const struct echi_plan *plan, const struct echi_lease *lease);

/* A range of an epoch's permutation, handed to a worker, for one owner and, under BSP, one round. */
struct echi_lease {
    uint32_t id;                          /* from 1, never reused in a run; 0: no lease */
    uint32_t epoch, start, n;             /* samples start .. start+n-1 of the epoch's permutation */
    uint32_t round, round_size;           /* round_size: B, or what is left in an epoch's last round under BSP; under `local`, whose
                                             rounds are many steps long, the samples of the round */
    uint16_t worker, owner;               /* ranks */
    uint8_t again;                        /* 1: these samples were in a lease before, whose worker or owner is lost */
    uint8_t part;                         /* which of its worker's leases of this round it is, from 0; below ECHI_ROUND_PARTS */
    uint32_t together;                    /* sync_norm: samples of the round's leases with the same `part`, which have batch-norm's
                                             statistics in common; 0: it has its own, as a lease that is issued again */
};
/* Are its batch-norm statistics exchanged with other workers? */
static inline bool echi_lease_exchanges(const struct echi_lease *l) { return l->together > l->n; }

/* Does lease a stand before b in the data? */
static inline bool echi_lease_before(const struct echi_lease *a, const struct echi_lease *b) {
    return a->epoch != b->epoch ? a->epoch < b->epoch : a->start < b->start;
}

/* ---- schedule.c ---- */

/* The learning rate of an update by the samples of this lease: by its first sample. An update that takes in several leases, a round or a
 * merged visit of the head, has that of the one that stands first in the data: whoever applies it, and in whatever order they came. */
double echi_plan_lr(const struct echi_plan *plan, const struct echi_lease *lease, uint32_t train_samples);
/* What lr is multiplied by, so many epochs into the run; 0 to 1. */
double echi_schedule_factor(const struct echi_schedule *schedule, double epochs);
bool echi_schedule_valid(const struct echi_schedule *schedule);   /* what a kind does not use is 0 */
const char *echi_schedule_name(int kind);         /* "cosine"; NULL beyond the last */

/* ---- optimizer.c ---- */

const char *echi_optimizer_name(int optimizer);   /* "nesterov"; NULL beyond the last */
bool echi_optimizer_adam(int optimizer);          /* ADAM or ADAMW: it keeps two moments of each parameter, and one of them otherwise */
/* That of the owners' and the head's steps: under `local` the outer step has Nesterov's momentum, whatever its workers' own steps have. */
int echi_plan_owner_optimizer(const struct echi_plan *plan);
bool echi_adam_valid(const struct echi_adam *adam);
/* What the gradients in a pair of moments weigh together: 1 less the product of all beta^f; 0: none is in them. Kept beside them. */
struct echi_adam_weights { double first, second; };
/* A moment becomes keep * moment + gain * gradient (of the second: squared). */
struct echi_adam_push { double keep1, gain1, keep2, gain2; };
/* A push of weight f > 0: what it does to the moments, and `weights` behind it. */
void echi_adam_take(const struct echi_adam *adam, double f, struct echi_adam_weights *weights, struct echi_adam_push *out);
double echi_power(double base, double exponent);  /* base in [0, 1), exponent > 0; the same bits on every machine */

/* May a push or rows of this lease come from its worker? By the plan alone, so that whoever sent it can be believed. */
bool echi_lease_valid(const struct echi_lease *lease, const struct echi_plan *plan);

/* What a run trains, as far as roles must know it. The driver derives it from the model; the same on all nodes. */
struct echi_setup {
    struct echi_plan plan;
    int rank;
    int n_layers;                         /* with parameters */
    int cut;                              /* first of them that belongs to the head; n_layers when not separated */
    uint32_t cut_width;                   /* floats a sample at the cut */
    int norms; uint8_t norm[256];         /* sync_norm: so many of the layers in front of the cut are batch-norms, these, ascending */
};

/* -------------------------------------------------------------- messages */

/* X(NAME, "name", priority, carries a payload) in wire order: append only. */
#define ECHI_KIND_LIST(X)                                                                                              \
    X(HEARTBEAT, "heartbeat", 0, 0)   /* node -> node: I am here. From the coordinator: are you? It is to be told */      \
    X(MEASURED, "measured", 0, 0)     /* node -> coordinator: step times */                                             \
    X(PLAN, "plan", 0, 0)             /* coordinator -> node */                                                         \
    X(READY, "ready", 0, 0)           /* node -> coordinator: my roles stand */                                         \
    X(STARTED, "started", 0, 0)       /* owner, head -> coordinator: I have the initial weights */                      \
    X(LEASE, "lease", 0, 0)           /* coordinator -> worker */                                                       \
    X(APPLIED, "applied", 0, 0)       /* owner -> coordinator: the lease is in */                                       \
    X(HOLD, "hold", 0, 0)             /* coordinator -> node: start no task */                                          \
    X(HELD, "held", 0, 0)             /* node -> coordinator: no task runs */                                           \
    X(RELEASE, "release", 0, 0)       /* coordinator -> node */                                                         \
    X(ASK, "ask", 0, 0)               /* coordinator -> owner, head, worker: send me your layers. worker -> coordinator: the    \
                                         newest weights here, asked for as such, have so many samples in them */               \
    X(DRAIN, "drain", 0, 0)           /* coordinator -> owner: no lease is out */                                       \
    X(DRAINED, "drained", 0, 0)       /* owner -> coordinator: all owners have my complete state */                     \
    X(STATE_ACK, "state_ack", 0, 0)   /* owner -> owner */                                                              \
    X(FAULT, "fault", 0, 0)           /* node -> coordinator: I cannot go on */                                         \
    X(END, "end", 0, 0)               /* coordinator -> node: the run is over */                                        \
    X(STATS, "stats", 0, 0)           /* node -> coordinator: bytes sent */                                             \
    X(ACT_GRAD, "activation_grad", 1, 1) /* head -> worker: rows [n][cut_width] */                                      \
    X(ACT, "activation", 2, 1)        /* worker -> head: rows [n][cut_width], then n labels of two bytes, little-endian */ \
    X(WEIGHTS, "weights", 3, 1)       /* owner -> worker: a snapshot of its layers */                                   \
    X(PUSH, "push", 4, 1)             /* worker -> owner: gradient of one layer, the last layer first */                \
    X(STATE, "state", 5, 1)           /* owner -> owner: the sum of a group's changes */                                \
    X(PARAMS, "params", 6, 1)         /* initial, measured and final weights, to and from the coordinator */            \
    X(ENTER, "enter", 0, 0)           /* worker -> owner: I hold a lease again, this one */                                  \
    X(STOP, "stop", 0, 0)             /* node -> coordinator: my user wants this node to leave, or (flag) the run to end */ \
    X(LOST, "lost", 0, 0)             /* coordinator -> node: `peer` is gone, take nothing more from it; answer READY.     \
                                         `group` 1: and the run ends with it: no role is told */                               \
    X(REVOKE, "revoke", 0, 0)         /* coordinator -> owner: is this lease in? If not, it never will be. Without a lease:  \
                                         the state of `group`, whose owner is lost, is `peer`'s copy */                      \
    X(REVOKED, "revoked", 0, 0)       /* owner -> coordinator: the lease is in, revoked, or dropped (flag). Without a lease: my copy of  \
                                         `group`, whose owner is lost, has this version and these marks. worker -> coordinator:  \
                                         I have moved, and had not begun this lease of the owner before */                     \
    X(FROZEN, "frozen", 5, 1)         /* owner -> owner: the last state of a group whose owner is lost */                \
    X(REGROUP, "regroup", 0, 0)       /* coordinator -> node: the worker of `peer` joins `group`; answer READY */       \
    X(NORM, "norm", 1, 1)             /* worker -> owner: what a batch-norm sums over the samples of its lease */       \
    X(NORM_ALL, "norm_all", 1, 1)     /* owner -> worker: the same of all leases that are computed together */

enum echi_kind {
#define ECHI_KIND_ENUM(name, text, priority, payload) ECHI_KIND_##name,
    ECHI_KIND_LIST(ECHI_KIND_ENUM)
#undef ECHI_KIND_ENUM
    ECHI_KINDS
};
const char *echi_kind_name(int kind);
int echi_kind_priority(int kind);
bool echi_kind_has_payload(int kind);
bool echi_kind_of_layer(int kind);      /* its payload is of one layer, which the message names */
/* Bytes of an encoded message of this kind at most, among so many nodes, the roles and a body behind them included. */
uint32_t echi_kind_meta_cap(int kind, int world);

enum echi_role { ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_ROLE_WORKER, ECHI_ROLE_OWNER, ECHI_ROLE_HEAD, ECHI_ROLES };

/* What an owner or the head is asked for: the weights as they are now; after a drain, the weights for the last look, or for
 * a checkpoint; or the momentum, for a checkpoint. A worker, when the run cannot go on: how new its weights are (NEWEST), and for them. */
enum echi_ask { ECHI_ASK_LOOK, ECHI_ASK_LAST, ECHI_ASK_KEEP, ECHI_ASK_MOMENTUM, ECHI_ASK_NEWEST };
/* What PARAMS carries: the layers of the owner or head that sends or gets them; all layers; layers, or the momentum of
 * layers, for or from a checkpoint. */
enum echi_params { ECHI_PARAMS_PART, ECHI_PARAMS_FINAL, ECHI_PARAMS_KEPT, ECHI_PARAMS_MOMENTUM };

/* What an owner says of a lease: asked for, that it never will be in, or that it is; unasked, that its push was too old (drop_older). */
enum echi_revoked { ECHI_REVOKED_OUT, ECHI_REVOKED_IN, ECHI_REVOKED_DROPPED };

/* Of some workers the last lease that is in a state, in the form in which it travels: for each rank, ascending, the rank (u16)
 * and the lease (u32). Only the workers that have one: those of one group mostly, of what may be a large cluster. In a
 * message it points into the role that sends it, until that role's next event, or into the bytes that it was decoded from. */
#define ECHI_MARK_BYTES 6
#define ECHI_MARKS_MAX (ECHI_MARK_BYTES * ECHI_WORLD_MAX)
struct echi_marks { const uint8_t *at; int count; };
/* Of mark[0..world) those that are not 0, written to room, which has ECHI_MARK_BYTES for each of the world. */
struct echi_marks echi_marks_of(const uint32_t *mark, int world, uint8_t *room);
void echi_marks_get(struct echi_marks marks, uint32_t *out_mark, int world);   /* 0 where there is none; ranks beyond are left out */

/* What a message says; each kind uses the fields that echi_msg_encode writes for it, the others are zero. */
struct echi_msg {
    uint8_t kind, to_role, from_role;
    uint8_t group, flag;            /* flag: PUSH, APPLIED: the worker held another lease; ASK: enum echi_ask; PARAMS: enum
                                       echi_params; END: in order, each node answers with STATS; REVOKED: enum echi_revoked;
                                       WEIGHTS, STATE: complete: all values are in it; STATE_ACK: of a complete one; NORM, NORM_ALL:
                                       backward */
    uint16_t peer;                  /* LOST, REGROUP, REVOKE, END, FAULT: the rank that it is about; ECHI_NO_RANK */
    uint16_t layer;                 /* PUSH, NORM, NORM_ALL; END, FAULT: ech_status */
    uint32_t correct;
    struct echi_lease lease;
    uint64_t version, samples;      /* samples: NORM_ALL: it is made of so many; PARAMS, ASK: since the run began or was resumed */
    uint64_t head;                  /* ACT_GRAD, PUSH, APPLIED: samples in the head's weights that the gradient came from */
    double loss, staleness;         /* loss: sum over the lease's samples; staleness in rounds */
    uint64_t acked;                 /* APPLIED: version of the group's state that all other owners have */
    uint64_t compute, exchange;     /* PUSH (of the last layer to leave), APPLIED: ns that the worker computed since its push before,
                                       and the rest of that time, in APPLIED without what its owner took to apply and to answer */
    uint32_t members;               /* LOST, REGROUP, READY, LEASE, DRAIN, DRAINED, REVOKED, STATE: membership epoch, raised by each loss
                                       and each move, 0 until the first. ENTER, PUSH, WEIGHTS: that at which the worker joined this owner */
    struct echi_marks marks;        /* STATE, FROZEN, REVOKED: by worker, the last lease that is in this state */
    char text[240];                 /* FAULT, END; LOST: the reason */
    uint32_t number;                /* WEIGHTS, STATE: on this link, from 1; changes count from the one before */
};
#define ECHI_MSG_MAX (512 + ECHI_MARKS_MAX)   /* bytes of an encoded message at most; plans and times are larger, see below */
size_t echi_msg_encode(const struct echi_msg *msg, uint8_t *out, size_t cap);   /* 0 when it does not fit */
/* False when the bytes are not a message of this kind. Ranges that need a plan to judge are judged by the role. */
bool echi_msg_decode(int kind, const uint8_t *bytes, size_t len, struct echi_msg *out);

/* Bytes sent by kind, and by net itself; rows that the head answered again; of coded pushes and of coded weights and states to other
 * nodes the bytes, and those that they would have had uncoded; residuals given up. */
#define ECHI_STATS_BYTES (8 * (ECHI_KINDS + 7))
#define ECHI_PLAN_BYTES(world) (192 + 6 * ECHI_GROUPS_MAX + 9 * (world))   /* of an encoded plan at most */
#define ECHI_PLAN_BYTES_MAX ECHI_PLAN_BYTES(ECHI_WORLD_MAX)
size_t echi_plan_encode(const struct echi_plan *plan, uint8_t *out, size_t cap);
bool echi_plan_decode(const uint8_t *bytes, size_t len, struct echi_plan *out);   /* also false unless echi_plan_valid */
bool echi_plan_valid(const struct echi_plan *plan);

/* Seconds of one step, measured by a node at several numbers of samples (ascending). */
#define ECHI_TIMES_MAX 12
#define ECHI_TIMES_BYTES_MAX 512
struct echi_times {
    uint32_t count, n[ECHI_TIMES_MAX];
    double trunk[ECHI_TIMES_MAX], head[ECHI_TIMES_MAX];   /* forward and backward; head 0 where a model has no cut */
    double exchange;   /* to take in one push of all layers, or to send one; 0: not known */
    double update;     /* to apply a push of all layers that is in: gradient, momentum, new weights; 0: not known */
    double messages;   /* what a step's messages cost besides their bytes; 0: not known */
    double link;       /* bytes a second that the node's link carries in one direction; 0: not known */
    /* How steps vary, and how a node is reached; all 0: not known. Steps take exp(jitter x a normal number) times as long, and the
     * part `stutter` of them `stutter_factor` times as long on top. */
    double jitter, stutter, stutter_factor;
    double delay;      /* seconds from its link to the middle of the network: from a to b takes a's and b's */
};
size_t echi_times_encode(const struct echi_times *times, uint8_t *out, size_t cap);
bool echi_times_decode(const uint8_t *bytes, size_t len, struct echi_times *out);
/* Interpolated, extrapolated beyond the last. */
double echi_times_trunk(const struct echi_times *times, uint32_t n);
double echi_times_head(const struct echi_times *times, uint32_t n);
double echi_times_whole(const struct echi_times *times, uint32_t n);

/* Staleness is counted in bins, in rounds: the first holds what is 0 (or below), bin i what is above edge i - 1 and at most
 * edge i, the last what is above them all. */
#define ECHI_STALENESS_BINS 13
extern const double echi_staleness_edge[ECHI_STALENESS_BINS - 1];
int echi_staleness_bin(double rounds);

/* ------------------------------------------------------ slots, events, actions */

enum echi_slot_kind {
    ECHI_SLOT_NONE,
    ECHI_SLOT_WORKER_WEIGHTS,   /* [strands + echi_plan_places]: each strand's current one, and spare ones posted for each owner. Coded
                                   [2 * strands + 1]: a spare one for each strand, and the copy that has taken all that
                                   came. `local`: [1] */
    ECHI_SLOT_WORKER_GRADS,     /* [strand] */
    ECHI_SLOT_WORKER_ACT,       /* [strand] rows and labels on their way to the head */
    ECHI_SLOT_WORKER_ACT_GRAD,  /* [strands] in the order in which they come */
    ECHI_SLOT_OWNER_GRADS,      /* [rank of the worker] */
    ECHI_SLOT_OWNER_SUM,        /* [1] BSP: sum of a round */
    ECHI_SLOT_OWNER_WEIGHTS,    /* [ECHI_SNAPSHOTS] */
    ECHI_SLOT_OWNER_MOMENTUM,   /* [1] */
    ECHI_SLOT_OWNER_W0,         /* [1] several groups: the common start */
    ECHI_SLOT_OWNER_STATE,      /* [ECHI_STATE_COPIES] A_g */
    ECHI_SLOT_OWNER_PEER,       /* [2 * group + 0 or 1] the others' states: last complete, and one being received */
    ECHI_SLOT_HEAD_ROWS,        /* [rank of the worker] activations and labels, as ACT carries them */
    ECHI_SLOT_HEAD_ROWS_GRAD,   /* [rank of the worker] */
    ECHI_SLOT_HEAD_GRADS,       /* [1] */
    ECHI_SLOT_HEAD_SUM,         /* [1] BSP */
    ECHI_SLOT_HEAD_WEIGHTS,     /* [3] */
    ECHI_SLOT_HEAD_MOMENTUM,    /* [1] */
    ECHI_SLOT_COORD_PARAMS,     /* [3] initial weights, then those last looked at; 1 and 2: parts as they come in */
    ECHI_SLOT_NODE_FINAL,       /* [1] sessions: the final weights */
    ECHI_SLOT_COORD_KEPT,       /* [1 + groups] of a checkpoint: the weights; the momentum of each group, the head's with that of group 0 */
    /* codec top-k */
    ECHI_SLOT_WORKER_RESIDUAL,  /* [1] what was not pushed yet */
    ECHI_SLOT_WORKER_CODED,     /* [strand] a push as it is written */
    ECHI_SLOT_WORKER_COMING,    /* [echi_plan_places] weights as they come */
    ECHI_SLOT_OWNER_KNOWN,      /* [rank of the worker] the weights that it has */
    ECHI_SLOT_OWNER_CODED,      /* [ECHI_SNAPSHOTS - 2] weights as they are written */
    ECHI_SLOT_OWNER_STATE_KNOWN, /* [1] the state that the other owners have */
    ECHI_SLOT_OWNER_STATE_CODED, /* [1] */
    ECHI_SLOT_OWNER_PEER_CODED, /* [group] the others' states as they come; then PEER [2 * group] is the copy that is kept up to date, and
                                   [2 * group + 1] the last complete one */
    ECHI_SLOT_LOCAL_WEIGHTS,    /* [2] `local`: 0: the worker's own weights; 1: what its next change is counted from */
    ECHI_SLOT_LOCAL_MOMENTUM,   /* [1] `local`: of the worker's own steps */
    ECHI_SLOT_LOCAL_DELTA,      /* [ECHI_DELTAS] `local`: a lease's change, to be pushed */
    ECHI_SLOT_WORKER_NORM,      /* [1] sync_norm: what a batch-norm sums over a lease, on its way to the owner */
    ECHI_SLOT_WORKER_NORM_ALL,  /* [1] the owner's answer */
    ECHI_SLOT_OWNER_NORM,       /* [rank of the worker] sync_norm: as it comes */
    ECHI_SLOT_OWNER_NORM_ALL,   /* [1] put together */
    ECHI_SLOT_KINDS
};
struct echi_slot { uint8_t kind; uint16_t index; };

/* What a lane can be asked for, the most urgent first: a head never waits for more than one unit of its own node. */
enum echi_task_kind {
    ECHI_TASK_HEAD,       /* rows -> loss, gradient of rows, gradient of the head's layers, and, with weights_out, their update */
    ECHI_TASK_HEAD_APPLY, /* of a round */
    ECHI_TASK_NORM,       /* sync_norm: what workers sum in one batch-norm, put together; all of them wait for it */
    ECHI_TASK_ADD,        /* sum of a round += a push (or = the first) */
    ECHI_TASK_APPLY,
    ECHI_TASK_ENCODE,     /* `weights` (of an owner, or its state) -> `coded`, against `state`, what is known of them; others wait for it */
    ECHI_TASK_DECODE,     /* `coded` -> into `state`; the whole of it also -> weights_out */
    ECHI_TASK_REFRESH,    /* weights from w0 and the states as they are now */
    ECHI_TASK_STATE,      /* state_out = weights - w0: of an owner that was alone, and kept no state */
    ECHI_TASK_BACKWARD,   /* trunk, from the gradient of the activations */
    ECHI_TASK_STEP,       /* nothing separated: forward, loss, backward */
    ECHI_TASK_FORWARD,    /* trunk */
    ECHI_TASK_EVAL,       /* accuracy over the test set; the only task that runs while the cluster is held */
    ECHI_TASK_KEEP,       /* a checkpoint of the COORD_KEPT slots; beside the lane, by a thread that writes. With `weights` COORD_PARAMS
                             [0]: of these weights, with an optimiser's memory that begins anew */
    /* `local`. A worker asks for one of these or for a STEP at a time, so they come last without being late. */
    ECHI_TASK_LOCAL_APPLY,/* own weights and momentum take a step by its gradient */
    ECHI_TASK_LOCAL_DELTA,/* grads = (state - weights) * samples / divisor; then state = weights */
    ECHI_TASK_LOCAL_JOIN, /* weights_out = weights + (weights_out - state_out); then state_out = weights */
    ECHI_TASKS
};
/* Names every slot that it reads and writes: a driver chooses nothing. */
struct echi_task {
    uint8_t kind, role;
    uint8_t strand;                         /* FORWARD, BACKWARD, STEP: whose activations */
    struct echi_slot act;                   /* FORWARD: where rows go; BACKWARD: the gradient of those rows */
    uint8_t first;                          /* ADD, HEAD under BSP: set the sum instead of adding to it */
    uint8_t n_rows;                         /* HEAD: number of row slots merged; NORM */
    uint16_t rows[ECHI_MERGE_STEPS];        /* HEAD, NORM: ranks whose HEAD_ROWS, OWNER_NORM slots are meant, in this order */
    uint32_t row_count[ECHI_MERGE_STEPS];   /* HEAD, NORM: samples of each */
    uint32_t row_epoch[ECHI_MERGE_STEPS], row_start[ECHI_MERGE_STEPS];   /* HEAD: which they are, as in a lease */
    struct echi_lease lease;                /* STEP, FORWARD, BACKWARD, APPLY, ADD; `local`: STEP, LOCAL_APPLY: a part of one, with its id.
                                               HEAD, HEAD_APPLY, APPLY of a round: of several, the one that stands first in the data */
    struct echi_slot weights, weights_out;  /* read; written (APPLY, HEAD, HEAD_APPLY, REFRESH, LOCAL_APPLY: in place, LOCAL_JOIN) */
    struct echi_slot grads, state, state_out;
    uint8_t peer[ECHI_GROUPS_MAX];          /* APPLY, REFRESH with several groups: index of each other group's state slot;
                                               ECHI_NONE for one's own and for states not there yet */
    uint32_t samples;                       /* APPLY, HEAD, HEAD_APPLY, LOCAL_APPLY, LOCAL_DELTA: weight of the push is samples / divisor.
                                               With `norm`: it is of so many; NORM: of so many before this task, 0: it begins anew */
    uint32_t divisor;                       /* B of every gradient in this task */
    /* codec top-k. STEP, BACKWARD: each gradient goes through the residual `state` (with `first` this begins anew) into `coded`. */
    struct echi_slot coded;
    uint32_t ratio, sample;                 /* millionths, see echi_ratio.h; ENCODE with ECHI_RATIO_ONE: complete */
    uint32_t number;                        /* ENCODE: of the message, to key its sample by */
    /* sync_norm. A step is computed in parts, which end where a batch-norm's sums are exchanged: with N of them in front of the cut a
     * STEP in parts 0 to 2 N, part N being the one with the loss; FORWARD in 0 to N, BACKWARD in N to 2 N. NORM: 1: backward. */
    uint16_t part, layer;                   /* layer: NORM: the batch-norm's */
    struct echi_slot norm, sums;            /* STEP, FORWARD, BACKWARD: what this part begins with, from the owner, and ends with, for the
                                               owner; none: it is the first, the last. NORM: sums: what is put together */
    double damping;                         /* APPLY: the gradient is taken so many times, above 0 and at most 1; 0: once, as it is */
};
/* HEAD: by place in rows; else [0]. */
struct echi_result {
    double loss[ECHI_MERGE_STEPS];
    uint32_t correct[ECHI_MERGE_STEPS];
    double accuracy;
    bool kept;                              /* KEEP: the checkpoint is complete */
};

/* Bytes of gradients that are told of (GRADIENT) while their task goes on, a chunk of the wire; fewer wait for more, or for its end:
 * sending them a little earlier saves less than waking a thread costs. */
#define ECHI_WORTH_A_WAKE 65536

enum echi_event_type {
    ECHI_EVENT_START,      /* the role's slots stand: post what you take, say that you are there */
    ECHI_EVENT_MESSAGE,    /* payload, if any, whole in `slot` */
    ECHI_EVENT_SENT,       /* the payload sent from `slot` has left it */
    ECHI_EVENT_GRADIENT,   /* BACKWARD, STEP: the gradient of `layer` is in its place; HEAD with weights_out: the rows', with `result` */
    ECHI_EVENT_COMPUTED,   /* `task` is done, with `result` */
    ECHI_EVENT_LOST,       /* node `from` is gone. All roles but the coordinator: by its word, in `msg`; the plan says so already, and
                              nothing from that node comes any more. Places posted for it are the role's again; SENT comes for
                              what was sent to it, before or after this, also when it is sent later */
    ECHI_EVENT_STOP,       /* coordinator: the user wants an orderly end */
    ECHI_EVENT_MOVED,      /* worker `from` joins another group, by the coordinator's word in `msg`; the plan says so already */
    ECHI_EVENT_TIME        /* coordinator: the time that it waits for (`wake_at`) has come */
};
struct echi_event {
    uint8_t type;
    uint16_t from;
    int64_t now;                            /* ns */
    const struct echi_msg *msg;             /* MESSAGE, LOST (to the coordinator: NULL, or with the reason in `text`), MOVED */
    const uint8_t *bytes; size_t len;       /* MESSAGE of kind MEASURED: encoded times */
    struct echi_slot slot;
    int layer;
    const struct echi_task *task; const struct echi_result *result;
};

enum echi_action_type {
    ECHI_ACTION_SEND,      /* msg to role msg.to_role of node `to`, with the payload in `slot` if its kind carries one */
    ECHI_ACTION_POST,      /* the next payload of `kind` from node `to` goes to `slot` (PUSH: one for each layer) */
    ECHI_ACTION_COMPUTE,
    ECHI_ACTION_PLAN,      /* coordinator: send `plan` to all nodes */
    ECHI_ACTION_FAULT,     /* this node cannot go on: status in msg.layer, sentence in msg.text */
    ECHI_ACTION_DONE       /* coordinator: the run has ended */
};
struct echi_action {
    uint8_t type, kind;
    uint16_t to;
    struct echi_slot slot;
    union {
        struct echi_msg msg;      /* SEND, FAULT */
        struct echi_task task;    /* COMPUTE */
    };
};
/* The list a role appends to. A list that is full means a bug: `overflow` is set and the driver ends the run. So many are enough
 * for one event: among `world` nodes the leases of two rounds, one a worker and the parts of large shares, or two words to each. */
#define ECHI_ACTIONS_MAX (4 * ECHI_WORLD_MAX + 512)
struct echi_actions { struct echi_action *list; int count, cap; bool overflow; };
struct echi_action *echi_act(struct echi_actions *out, enum echi_action_type type);   /* never NULL: zeroed room for one action */
/* An action that sends `kind` to (node, role) from `from_role`; the caller fills the rest of ->msg and ->slot. */
struct echi_action *echi_act_send(struct echi_actions *out, int to, enum echi_role to_role, enum echi_role from_role,
                                  enum echi_kind kind);
void echi_act_post(struct echi_actions *out, int from, enum echi_kind kind, struct echi_slot slot);
void echi_act_fault(struct echi_actions *out, ech_status status, const char *text);
#endif
