/* SPDX-License-Identifier: Apache-2.0
 * Why this plan, in the log. choice_log.c */
#ifndef ECHI_CHOICE_LOG_H
#define ECHI_CHOICE_LOG_H
#include "echelon.h"
#include "echi_job.h"
#include "echi_roles.h"

/* Tells the caller's log why rank 0 took this plan: what was compared, what is predicted, and who holds the others up. */
void echi_choice_log(const struct ech_config *config, const struct echi_coordinator *coordinator, const struct echi_job *job);
/* And while the run goes, who moves, by the word `m` on it; and who gets steps of another size, which ratios and which shares of rounds are
 * other ones, once for each change: *told is how many of those were told. */
struct echi_changes_told { uint64_t sizes, ratios, shares, plans; };
void echi_move_log(const struct ech_config *config, const struct echi_coordinator *coordinator, const struct echi_msg *m);
/* The separated layers get other nodes than `plan` says, by the word `m`. */
void echi_homes_log(const struct ech_config *config, const struct echi_coordinator *coordinator, const struct echi_plan *plan,
                    const struct echi_msg *m);
void echi_changes_log(const struct ech_config *config, const struct echi_coordinator *coordinator, struct echi_changes_told *told);
/* Another plan is clearly better by now: in the log, once; and as a sentence, "" if none was named. */
void echi_outlook_log(const struct ech_config *config, const struct echi_coordinator *coordinator, struct echi_changes_told *told);
void echi_outlook_reason(const struct echi_coordinator *coordinator, char *buf, size_t cap);
/* Why ratios were changed the last time, for a sentence: "the link of group 1 carries 25 Mb/s, before 100"; "" if they never were. */
void echi_ratios_reason(const struct echi_coordinator *coordinator, char *buf, size_t cap);
#endif
