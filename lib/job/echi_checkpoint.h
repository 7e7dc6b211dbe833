/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints: on rank 0, a folder with the last few. Each is two files:
 *     checkpoint-00000007.safetensors   weights under the model's names, momentum under "momentum.<group>.<name>" (the head's
 *                                       with group 0's), with Adam the first moments there and the second under "second.<group>.<name>",
 *                                       and in the metadata where the run stands and what it trains
 *     checkpoint-00000007.complete      its mark: size and SHA-256 of the other
 * All in float: a build in double has no ech_train, and so no checkpoints. Numbers rise and are never used again, so nothing is
 * ever written over: a checkpoint is there once its mark is, and a mark is there before an older checkpoint goes, mark first. Only where
 * the disk is full does an older one go before: then the newest stays. */
#ifndef ECHI_CHECKPOINT_H
#define ECHI_CHECKPOINT_H
#include "echi_job.h"
#include "echi_lane.h"
#include "echi_roles.h"

/* ---- one file ---- */
struct echi_checkpoint {
    struct echi_standing at;
    int groups;
    int cut;                                  /* as in the plan; above 0 only group 0 has the momentum of the head's layers */
    bool local;                               /* its momentum is of the outer step, in units of weights */
    char optimizer[16];
    bool adam;                                /* the owners' was Adam: `momentum` has first moments, `second` the second, */
    struct echi_adam_weights weigh[ECHI_GROUPS_MAX][2];   /* and these are theirs, by group; [1]: of the head's layers, beside group 0 */
    float *weights, *momentum, *second;       /* [n_params], [groups * n_params], likewise or NULL */
};
/* From foreign bytes. ECH_E_FORMAT: no checkpoint; ECH_E_ARGUMENT: of another model, data set or order than `job`'s (both
 * sides' values in the sentence). `name` is for messages. Give it back with echi_checkpoint_free. */
ech_status echi_checkpoint_parse(const char *name, const uint8_t *bytes, size_t len, const struct echi_job *job,
                                 struct echi_checkpoint *out, struct ech_error *err);
void echi_checkpoint_free(struct echi_checkpoint *checkpoint);
/* Momentum for group g of a plan that may have other groups than the checkpoint: out[echi_job_memory_bytes], as echi_job_memory says. Each
 * group goes on with its own; that of groups which are no more is added to group 0's; a new group starts at zero. So the sum over all
 * groups, which is what the gradients applied so far still have to move, stays what it was. Adam's moments are no sums but means, of
 * gradients that are the same for all groups: each group goes on with its own, a new one with those of the first that has any, and those of
 * groups that are no more are left. All are 0 where the plan's updates do not remember any (echi_plan_owner_remembers). */
void echi_checkpoint_momentum(const struct echi_checkpoint *checkpoint, const struct echi_job *job, const struct echi_plan *plan, int g,
                              float *out);
/* Can a run with this plan take it? Not between `local`, whose momentum is the outer step's, and the other policies, nor between Adam's
 * moments and momentum: it starts at zero then. */
bool echi_checkpoint_carries(const struct echi_checkpoint *checkpoint, const struct echi_plan *plan);

/* A group's owner is lost, and its momentum with it: all of it becomes zero. The head's, which lies with group 0's, is still there. */
void echi_checkpoint_forget(const struct echi_job *job, const struct echi_plan *plan, float *momentum);

/* ---- the folder ---- */
struct echi_checkpoints;
/* Makes the folder if need be, keeps other runs out of it and, with --resume, reads the newest whole checkpoint. Removes what a
 * killed run left: temporary files, and data without its mark. Tells what it finds to config->on_log. Both arguments must stay valid
 * until close. */
ech_status echi_checkpoints_open(const struct ech_config *config, const struct echi_job *job, struct echi_checkpoints **out,
                                 struct ech_error *err);
void echi_checkpoints_close(struct echi_checkpoints *folder);   /* NULL is harmless */
const struct echi_checkpoint *echi_checkpoints_from(const struct echi_checkpoints *folder);   /* NULL: begin at the beginning */
/* Once the plan is known. kept[0]: weights; kept[1 + g]: momentum; each [n_params], and valid as long as there are writes. */
ech_status echi_checkpoints_prepare(struct echi_checkpoints *folder, const struct echi_plan *plan, const float *const *kept,
                                    struct ech_error *err);
/* Writes the next one, in the calling thread, then takes away what is beyond --keep. Allocates nothing. */
ech_status echi_checkpoints_write(struct echi_checkpoints *folder, const struct echi_standing *at, struct ech_error *err);
const char *echi_checkpoints_last(const struct echi_checkpoints *folder);   /* path of the last that was written; "" */
/* Of the last write: how many checkpoints are left, fewer than --keep, after older ones made space on a full disk; else 0. */
int echi_checkpoints_squeezed(const struct echi_checkpoints *folder);

/* ---- the thread that writes, so that training goes on ---- */
/* Prepares, and starts the thread. `notify` is called (any thread) when there is something to take. */
ech_status echi_checkpoints_start(struct echi_checkpoints *folder, const struct echi_plan *plan, const float *const *kept,
                                  void (*notify)(void *self), void *self, struct ech_error *err);
void echi_checkpoints_submit(struct echi_checkpoints *folder, const struct echi_task *task, const struct echi_standing *at);
bool echi_checkpoints_take(struct echi_checkpoints *folder, struct echi_done *out);   /* status and error as of the write */
void echi_checkpoints_stop(struct echi_checkpoints *folder);   /* waits for a write that has begun; NULL is harmless */
/* How the last write went; ECH_OK when there was none. */
ech_status echi_checkpoints_outcome(const struct echi_checkpoints *folder, struct ech_error *err);
#endif
