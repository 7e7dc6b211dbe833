/* SPDX-License-Identifier: Apache-2.0
 * A node that runs. One I/O thread runs the roles (node.c) over the wire (wire.c); one compute thread (lib/exec/lane.c) runs their
 * tasks. Data flows node -> lane -> node through two bounded queues. */
#ifndef ECHI_RUN_H
#define ECHI_RUN_H
#include "echi_choice_log.h"
#include "echi_exec.h"
#include "echi_measure.h"
#include "echi_options.h"
#include "echi_os.h"
#include "echi_outcome.h"
#include "echi_plan_file.h"
#include "echi_profile.h"
#include "echi_wire.h"

#include <stdatomic.h>

/* A session's half of a node: the caller's thread computes the worker's steps. NULL in ech_train. */
struct echi_user_lane {
    void *self;
    void (*measure)(void *self);                          /* asks the caller's thread to measure; see `measured` */
    bool (*measured)(void *self, struct echi_times *out, ech_status *out_status);   /* true once, when it has; wakes the wire */
    void (*submit)(void *self, const struct echi_task *task);
    bool (*take)(void *self, struct echi_done *out);
    /* A session with a head: the loss of the step in hand, a sum, and its right answers. The gradient of its rows is there when this comes,
     * for a STEP, or with the BACKWARD task that is submitted right behind it. */
    void (*answer)(void *self, double loss, uint32_t correct);
    void (*final)(void *self, const echi_real *params);      /* the weights that the run ends with, all layers; on every rank */
};
struct echi_node_config {
    const struct ech_config *config;
    const struct echi_job *job;
    const struct echi_user_lane *user;
    const atomic_bool *abandoned;             /* sessions: the caller computes no more steps; NULL in ech_train */
    echi_real *params;                        /* rank 0: initial weights in, trained weights out, where *trained says so */
    bool *trained;                            /* rank 0, in ech_train: set to whether the run ended with weights; else NULL */
    struct ech_error *unrecorded;             /* filled when a recording breaks off, which ends no run; its code was ECH_OK before */
    struct echi_checkpoints *checkpoints;     /* rank 0, with --checkpoint; else NULL */
    bool *stays;                              /* set when a thread of this node is left behind, which may use job, params, model and data */
    struct echi_profile *profile;             /* rank 0, with --profile-out: filled once measured; else NULL */
    int64_t until;                            /* echi_now at which this node leaves, whatever goes on (ECH_E_TIMEOUT); 0: never */
    /* Called on the node's thread, may be NULL: the wire stands; later again: the slots stand as well; at last, with NULLs:
     * both are about to go. */
    void (*started)(void *self, struct echi_wire *wire, struct echi_exec *exec); void *started_self;
};
/* Threads of computation. Where nobody said how many, those who meet at an address that only this machine reaches share its processors. */
int echi_node_threads(const struct ech_config *config);
bool echi_node_has_spare(const struct ech_config *config);   /* a processor is left for other work */
/* The device of this node. Nodes on one machine that name a kind of GPU ("cuda") and no number get different ones, as far as there are. */
#define ECHI_NODE_DEVICE 64
void echi_node_device(const struct ech_config *config, char out[ECHI_NODE_DEVICE]);
/* What a node of this run computes with: on config's device, with its programs kept in config's cache. ECH_E_UNSUPPORTED where options ask
 * for what the device cannot do. */
ech_status echi_node_exec(const struct ech_config *config, const struct echi_job *job, struct echi_exec **out, struct ech_error *err);
/* What messages of this node cost its processor, measured (echi_socket_cost.h); without loopback what they cost elsewhere. */
ech_status echi_node_io(const struct ech_config *config, const struct echi_job *job, struct echi_cost_io *out, struct ech_error *err);
/* Rank 0's weights, the first and then the trained ones, which `exec` may use as its own; NULL: none are here. */
void echi_node_params(const struct ech_config *config, struct echi_exec *exec, echi_real *params);
/* Joins, runs, leaves. Blocks. */
ech_status echi_node_run(const struct echi_node_config *node, struct ech_report *report, struct ech_error *err);

/* ---- node_report.c ---- */

/* After a run: what the coordinator knows, which began at `began` and stands at `now`; `plan` is NULL while there is none. */
void echi_report_run(struct ech_report *report, struct echi_coordinator *c, const struct echi_plan *plan, const struct echi_job *job,
                     int64_t began, int64_t now);
/* The time line of a round of its plan, as predicted; NULL: there is no prediction, or no memory. For free(). */
struct echi_timeline *echi_report_line(struct echi_coordinator *c);
/* What on_progress was told last, and where the run's clock (ns) and the count of evaluations stood then. Calls may follow each other too
 * closely for a rate between the two: it is taken since rate_clock, when rate_samples were in, and was so at least once where `rated`. */
struct echi_shown {
    struct ech_progress progress;
    int64_t clock, rate_clock;
    uint64_t evals, rate_samples;
    bool rated;
};
/* Of a run that begins, or goes on from there. */
void echi_progress_begin(const struct echi_standing *at, struct echi_shown *shown);
/* What on_progress is told now; takes the sums that the coordinator keeps for it. */
void echi_progress_make(struct echi_coordinator *c, const struct echi_job *job, uint32_t round, int64_t clock, bool new_accuracy,
                        uint64_t bytes, struct echi_shown *shown);
#endif
