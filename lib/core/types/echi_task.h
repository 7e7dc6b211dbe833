/* SPDX-License-Identifier: Apache-2.0
 * What roles ask a node to compute: tasks, and the slots that they name. */
#ifndef ECHI_TASK_H
#define ECHI_TASK_H
#include "echi_lease.h"

enum echi_slot_kind {
    ECHI_SLOT_NONE,
    ECHI_SLOT_WORKER_WEIGHTS,   /* [flights + echi_plan_places]: each flight's current one, and spare ones posted for each owner. Coded
                                   [2 * flights + 1]: a spare one for each flight, and the copy that has taken all that
                                   came. `local`: [1] */
    ECHI_SLOT_WORKER_GRADS,     /* [flight]; with echi_plan_grads_in_weights in use only after a loss. With micro-batches [1] has those of
                                   one, which are added to [0]; not with `deterministic`, where they are added as whole numbers */
    ECHI_SLOT_WORKER_ACT,       /* [flight + micro-batch] rows and labels on their way to the head */
    ECHI_SLOT_WORKER_ACT_GRAD,  /* [echi_plan_stacks] in the order in which they come, by places that are posted when rows leave */
    ECHI_SLOT_OWNER_GRADS,      /* [rank of the worker] */
    ECHI_SLOT_OWNER_SUM,        /* [1] BSP: sum of a round; with echi_plan_sums_in_push in use only after a loss */
    ECHI_SLOT_OWNER_WEIGHTS,    /* [echi_plan_snapshots], at most ECHI_SNAPSHOTS */
    ECHI_SLOT_OWNER_MOMENTUM,   /* [1] */
    ECHI_SLOT_OWNER_W0,         /* [1] several groups: the common start */
    ECHI_SLOT_OWNER_STATE,      /* [ECHI_STATE_COPIES] A_g */
    ECHI_SLOT_OWNER_PEER,       /* [2 * group + 0 or 1] the others' states: last complete, and one being received */
    ECHI_SLOT_HEAD_ROWS,        /* [rank of the worker + place * world] activations and labels, as ACT carries them; places:
                                   echi_plan_row_places */
    ECHI_SLOT_HEAD_ROWS_GRAD,   /* the same */
    ECHI_SLOT_HEAD_GRADS,       /* [1] */
    ECHI_SLOT_HEAD_SUM,         /* [1] BSP; of several heads [head]: its own, and those of the others as they come */
    ECHI_SLOT_HEAD_WEIGHTS,     /* [3] */
    ECHI_SLOT_HEAD_MOMENTUM,    /* [1] */
    ECHI_SLOT_COORD_PARAMS,     /* [3] initial weights, then those evaluated last; 1 and 2: copies as they come in. With shards and
                                   without checkpoints 1 is the memory of 0; or 0 is that of WORKER_WEIGHTS [0], and 1 is made when a
                                   copy comes (echi_exec_trains_in_params) */
    ECHI_SLOT_NODE_FINAL,       /* [1] sessions: the final weights */
    ECHI_SLOT_COORD_KEPT,       /* [1 + groups] of a checkpoint: the weights; the momentum of each group, the head's with that of group 0 */
    /* codec top-k */
    ECHI_SLOT_WORKER_RESIDUAL,  /* [1] what was not pushed yet */
    ECHI_SLOT_WORKER_CODED,     /* [flight] a push as it is written */
    ECHI_SLOT_WORKER_COMING,    /* [echi_plan_places] weights as they come */
    ECHI_SLOT_OWNER_KNOWN,      /* [rank of the worker] the weights that it has, or all that are sent the same (echi_plan_known) */
    ECHI_SLOT_OWNER_CODED,      /* [ECHI_ANSWERS] weights as they are written */
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
    ECHI_SLOT_RING,             /* [1] sums that go round the ring: of parts of other owners at a worker, of its own at an owner */
    ECHI_SLOT_KINDS
};
struct echi_slot { uint8_t kind; uint16_t index; };

/* What a lane can be asked for, the most urgent first: a head never waits for more than one unit of its own node. */
enum echi_task_kind {
    ECHI_TASK_HEAD,       /* rows -> loss, gradient of rows, gradient of the head's layers, and, with weights_out, their update */
    ECHI_TASK_HEAD_APPLY, /* of a round; several heads: `grads` = the sums HEAD_SUM of the heads in `rows`, added in this order, before */
    ECHI_TASK_NORM,       /* sync_norm: what workers sum in one batch-norm, put together; all of them wait for it */
    ECHI_TASK_ADD,        /* sum of a round += a push (or = the first, whose slot is then of no content). Of a worker in a ring: the sum
                             `state` of the part `only` += its gradients */
    ECHI_TASK_APPLY,
    ECHI_TASK_ENCODE,     /* `weights` (of an owner, or its state) -> `coded`, against `state`, what is known of them; others wait for it */
    ECHI_TASK_DECODE,     /* `coded` -> into `state`; the whole of it also -> weights_out */
    ECHI_TASK_REFRESH,    /* weights from w0 and the states as they are now */
    ECHI_TASK_TAKE,       /* takeover: the part `only` of `weights`, a worker's, -> weights_out, and its momentum begins at zero; without
                             `weights` all of the owner's memory does */
    ECHI_TASK_STATE,      /* state_out = weights - w0: of an owner that was alone, and kept no state */
    ECHI_TASK_BACKWARD,   /* trunk, from the gradient of the activations */
    ECHI_TASK_STEP,       /* nothing separated: forward, loss, backward */
    ECHI_TASK_FORWARD,    /* trunk */
    ECHI_TASK_EVAL,       /* accuracy over the test set; the only task that runs while the cluster is held */
    ECHI_TASK_KEEP,       /* a checkpoint of the COORD_KEPT slots; beside the lane, by a thread that writes. With other
                             `weights`: of these, with an optimiser's memory that begins anew */
    /* `local`. A worker asks for one of these or for a STEP at a time, so they come last without being late. */
    ECHI_TASK_LOCAL_APPLY,/* own weights and momentum take a step by its gradient */
    ECHI_TASK_LOCAL_DELTA,/* grads = (state - weights) * samples / divisor; then state = weights */
    ECHI_TASK_LOCAL_JOIN, /* weights_out = weights + (weights_out - state_out); then state_out = weights */
    ECHI_TASKS
};
/* Names every slot that it reads and writes: a driver chooses nothing. */
struct echi_task {
    uint8_t kind, role;
    uint8_t flight;                         /* FORWARD, BACKWARD, STEP: whose activations */
    uint8_t micro, micros;                  /* FORWARD, BACKWARD: which of so many micro-batches, whose range `lease` has. Gradients are
                                               those of all up to it, and are told of with the last */
    struct echi_slot act;                   /* FORWARD: where rows go; BACKWARD: the gradient of those rows */
    uint8_t first;                          /* ADD, HEAD under BSP: set the sum instead of adding to it. Dense, ADD writes `grads` then,
                                               lent or not */
    uint8_t n_rows;                         /* HEAD: number of row slots merged; HEAD_APPLY: of sums; NORM; with `only` */
    uint16_t rows[ECHI_MERGE_STEPS];        /* HEAD, NORM: indices of the HEAD_ROWS, OWNER_NORM slots that are meant, in this order */
    uint32_t row_count[ECHI_MERGE_STEPS];   /* HEAD, NORM: samples of each */
    uint32_t row_epoch[ECHI_MERGE_STEPS], row_start[ECHI_MERGE_STEPS];   /* HEAD: which they are, as in a lease */
    struct echi_lease lease;                /* STEP, FORWARD, BACKWARD, APPLY, ADD; `local`: STEP, LOCAL_APPLY: a part of one, with its id.
                                               HEAD, HEAD_APPLY, APPLY of a round: of several, the one that stands first in the data */
    struct echi_slot weights, weights_out;  /* read; written (APPLY, HEAD, HEAD_APPLY, REFRESH, LOCAL_APPLY: in place, LOCAL_JOIN) */
    struct echi_slot grads, state, state_out;
    struct echi_slot own;                   /* BACKWARD of a micro-batch behind the first: its gradients, which are added to `grads`; none
                                               with `deterministic` */
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
    /* STEP, FORWARD, of layers with parameters: those in front of `from` have gone forward by a task before, of the same step and
     * weights. The task goes forward up to the first of which not all weights may be there yet, `until`, reads no others, and writes
     * nothing that it names; 0: it goes to the end. */
    uint16_t from, until;
    struct echi_slot norm, sums;            /* STEP, FORWARD, BACKWARD: what this part begins with, from the owner, and ends with, for the
                                               owner; none: it is the first, the last. NORM: sums: what is put together */
    /* ADD, APPLY: of this part alone, counted from 1; 0: of all that the owner has. Then `rows` are the ranks whose OWNER_GRADS are
     * added, in this order, to `state`, or with APPLY to `grads`, before the step; with summed there is a sum of the part already. `grads`
     * may be where the first of the rows is. The first APPLY of a round has `first`. */
    uint16_t only;
    struct echi_slot ring;                  /* APPLY with `only`: a sum that came round the ring, added behind the rows; none: none came */
    uint32_t alone;                         /* ADD of a worker in a ring, APPLY with `ring`: the sum that came is the gradient of one
                                               lease, of so many samples; 0: of several */
    uint8_t summed;
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
#endif
