/* SPDX-License-Identifier: Apache-2.0
 * What checkpoint.c (one file) and checkpoints.c (the folder) share. */
#ifndef ECHI_CHECKPOINT_IMPL_H
#define ECHI_CHECKPOINT_IMPL_H
#include "echi_checkpoint.h"

#define ECHI_CHECKPOINT_WORDS 27
/* The metadata of a checkpoint. */
void echi_checkpoint_words(struct echi_word words[ECHI_CHECKPOINT_WORDS], const struct echi_job *job, const struct echi_plan *plan,
                           const struct echi_standing *at);
/* Its tensors, without their values: the weights, then the momentum of each group. Returns how many sets there are. */
int echi_checkpoint_sets(const struct echi_job *job, int groups, bool separated, struct echi_tensor_set sets[1 + ECHI_GROUPS_MAX]);
#endif
