/* SPDX-License-Identifier: Apache-2.0
 * Why this plan, in the log. choice_log.c */
#ifndef ECHI_CHOICE_LOG_H
#define ECHI_CHOICE_LOG_H
#include "echelon.h"
#include "echi_roles.h"

/* Tells the caller's log why rank 0 took this plan: what was compared, what is predicted, and who holds the others up. */
void echi_choice_log(const struct ech_config *config, const struct echi_coordinator *coordinator);
/* And while the run goes, who moves, by the word `m` on it, and who gets steps of another size, once for each change: *told is how many
 * of those were told. */
void echi_move_log(const struct ech_config *config, const struct echi_coordinator *coordinator, const struct echi_msg *m);
void echi_resize_log(const struct ech_config *config, const struct echi_coordinator *coordinator, uint64_t *told);
#endif
