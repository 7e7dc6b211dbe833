/* SPDX-License-Identifier: Apache-2.0
 * Slots and the arithmetic on them. exec.c */
#ifndef ECHI_EXEC_H
#define ECHI_EXEC_H
#include "echi_hal.h"
#include "echi_job.h"
#include "echi_lane.h"
#include "echi_loan.h"
#include "echi_ops.h"

/* Slots and the arithmetic on them. Slots are made by echi_exec_setup once the plan is known; after that only a loss allocates. */
struct echi_exec;
/* Kernels on the host keep to `level`; those compiled for another device are kept in the folder `cache` (NULL: nowhere). */
ech_status echi_exec_create(const struct echi_job *job, const char *device, int threads, enum echi_cpu_level level, const char *cache,
                            struct echi_exec **out, struct ech_error *err);
void echi_exec_destroy(struct echi_exec *exec);
/* Reads nothing ahead any more. False: what is being read does not come to its end for so long; then this must not be destroyed. */
bool echi_exec_rests(struct echi_exec *exec, int64_t patience);
void echi_exec_use_lane(struct echi_exec *exec, struct echi_lane *lane);   /* whose breathe and gradient it calls */
/* In front of the setup: what these slots lend one another, as it is when a task is asked for. Slots that borrow get no memory of their
 * own then. NULL, as at first: nothing is lent. */
void echi_exec_use_loans(struct echi_exec *exec, const struct echi_loans *loans);
/* In front of the setup, rank 0: the coordinator's weights are this memory, which outlives the slots and takes no copy where the device
 * computes in the host's memory. `moves`: training may write it. Then a node that is alone (echi_plan_alone) trains in it, so that it
 * never holds older weights than the owner has; and where its worker's weights are evaluated (echi_plan_evaluates_own) it is one of the
 * two places in which that worker computes, so that before the run's end there may be gradients in it. */
void echi_exec_use_params(struct echi_exec *exec, echi_real *params, bool moves);
struct echi_device *echi_exec_device(struct echi_exec *exec);
ech_status echi_exec_setup(struct echi_exec *exec, const struct echi_setup *setup, struct ech_error *err);
/* What its slots would take: weights, gradients, an optimiser's memory and rows, without stacks. None is made. */
ech_status echi_exec_count(struct echi_exec *exec, const struct echi_setup *setup, size_t *out_bytes, struct ech_error *err);
/* And its stacks: activations and scratch, those of evaluations included, and of --deterministic the gradient of a reduction block. None is
 * made. ECH_E_UNSUPPORTED on a device that is no processor. */
ech_status echi_exec_count_stacks(struct echi_exec *exec, const struct echi_setup *setup, size_t *out_bytes, struct ech_error *err);
bool echi_exec_trains_in_params(const struct echi_exec *exec, const struct echi_plan *plan);   /* the latter */
/* Makes the place to which a whole copy comes for the coordinator, where the setup did not: it is rarely needed then. */
ech_status echi_exec_copy_place(struct echi_exec *exec, struct ech_error *err);
ech_status echi_exec_setup_kept(struct echi_exec *exec, struct ech_error *err);   /* rank 0's, for checkpoints; after setup */
/* A node was lost, or a worker moved, and `plan` says so: makes the places for workers that join this node's group, snapshots for them,
 * and the places of its own worker for weights of another owner, for its gradients
 * and for a sum where they had none, once each. On the thread that runs tasks; events may go on under the
 * plan before, which is that of the setup. */
ech_status echi_exec_regroup(struct echi_exec *exec, const struct echi_plan *plan, struct ech_error *err);
/* This node is about to get a copy of the head's layers, as `plan` says: makes what a head has. ECH_E_MEMORY: there is no memory for
 * it, and the node goes on without. On the same thread. */
ech_status echi_exec_later_head(struct echi_exec *exec, const struct echi_plan *plan, struct ech_error *err);
/* After the setup, where this node's samples are the library's to read: from now on they are read while others are computed, if that pays.
 * spare: there is a processor besides those that compute. */
ech_status echi_exec_read_ahead(struct echi_exec *exec, bool spare, struct ech_error *err);
/* A step with the samples of this lease will come next, if all goes well. Any thread; does not wait. */
void echi_exec_expect(struct echi_exec *exec, const struct echi_lease *lease);
void *echi_exec_slot(struct echi_exec *exec, struct echi_slot slot, size_t *out_bytes);   /* NULL when there is none */
/* Bytes that are held, by what is in them, without those of echi_exec_use_params: exec_bytes.c. */
struct echi_exec_bytes {
    size_t weights, gradients, moments;                    /* copies, sums and what is coded among them; an optimiser's memory */
    size_t rows, activations;                              /* between trunk and head; of stacks, with their scratch */
};
void echi_exec_bytes(const struct echi_exec *exec, struct echi_exec_bytes *out);
/* Names of the kernels that were chosen for each unit of each stack, for recordings. NUL-terminated, cut at cap. */
void echi_exec_kernels(const struct echi_exec *exec, char *buf, size_t cap);
/* The same for people: a line for each unit of each stack, why it was chosen, and one for each stack's memory. */
void echi_exec_tell_kernels(const struct echi_exec *exec, void (*tell)(void *self, const char *line), void *self);
/* A line for each layer that the chosen kernels leave to the reference. */
void echi_exec_tell_fallbacks(const struct echi_exec *exec, void (*tell)(void *self, const char *line), void *self);
/* codec top-k: a gradient that lies in its place goes through the residual; *out_bytes of it are to be sent. By the lane, or in a
 * session by the thread that computes the step. */
ech_status echi_exec_push(struct echi_exec *exec, const struct echi_task *task, int layer, size_t *out_bytes, struct ech_error *err);
/* A session's gradient of this layer: what the task pushes is it times `factor`. On a ring `grad` is read until the round is over, that is
 * until the next step of the session is given; else it is copied at once. By the thread that computes the step. */
void echi_exec_give(struct echi_exec *exec, const struct echi_task *task, int layer, const echi_real *grad, echi_real factor);
/* A session with a head: what its caller has computed of a step's samples, for its FORWARD task, or where nothing is separated for its
 * STEP. Then the gradient of these rows, of the mean over the step's samples, for the same STEP or the BACKWARD task. By the thread that
 * computes the step. */
void echi_exec_give_rows(struct echi_exec *exec, const struct echi_task *task, const echi_real *rows, const uint16_t *labels);
void echi_exec_take_rows(struct echi_exec *exec, const struct echi_task *task, echi_real *out_rows);
/* What is sent of a session's gradients on a ring, where it is: a part, by a message of this kind, in `grads` where it has to be put
 * together. Lent to the own owner it has no content: its tasks take what was given. */
bool echi_exec_gives(const struct echi_exec *exec);
const void *echi_exec_payload(struct echi_exec *exec, enum echi_kind kind, struct echi_slot grads, int part, bool lent);
/* Any thread: how many test samples an evaluation has behind it, the one that runs or the last one. */
uint32_t echi_exec_evaluated(const struct echi_exec *exec);
/* Any thread: an evaluation that runs, or is begun later, ends before its next layers. Its accuracy is then this. */
#define ECHI_NO_ACCURACY (-1.0)
void echi_exec_end_eval(struct echi_exec *exec);
ech_status echi_exec_run(void *exec, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
#endif
