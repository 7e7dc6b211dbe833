/* SPDX-License-Identifier: Apache-2.0
 * What checkpoint.c (one file) and checkpoints.c (the folder) share. */
#ifndef ECHI_CHECKPOINT_IMPL_H
#define ECHI_CHECKPOINT_IMPL_H
#include "echi_checkpoint.h"

#define ECHI_CHECKPOINT_WORDS (29 + ECHI_GROUPS_MAX)
/* The metadata of a checkpoint; returns how many words there are. `weigh`: with Adam, of each group's moments, and of the head's. */
int echi_checkpoint_words(struct echi_word words[ECHI_CHECKPOINT_WORDS], const struct echi_job *job, const struct echi_plan *plan,
                          const struct echi_standing *at, struct echi_adam_weights (*weigh)[2]);
/* Its tensors, without their values: the weights, then of each group the momentum, or with Adam both moments; those of the head are a part
 * of their own behind group 0's. Returns how many there are. */
struct echi_checkpoint_part {
    struct echi_tensor_set set;
    int group;                                /* -1: the weights */
    bool head, second;                        /* of the head's layers; of the squares */
};
#define ECHI_CHECKPOINT_PARTS (1 + 2 * (ECHI_GROUPS_MAX + 1))
int echi_checkpoint_parts(const struct echi_job *job, int groups, int cut, bool adam,
                          struct echi_checkpoint_part out[ECHI_CHECKPOINT_PARTS]);
ech_status echi_checkpoint_tensors(const struct echi_job *job, const struct echi_checkpoint_part *parts, int n_parts,
                                   struct echi_tensors **out, struct ech_error *err);
#endif
