/* SPDX-License-Identifier: Apache-2.0
 * What a run that goes on would be planned like now: its machines as they are seen, shares of its rounds by them, and when a change has
 * lasted (PROTOCOL.md, "Plans while a run goes"). Pure; told by one thread, the coordinator's. */
#ifndef ECHI_REPLAN_H
#define ECHI_REPLAN_H
#include "echi_follow.h"

/* Another plan is clearly better with so many more samples a second (relative), and lastingly when so many checks in a row find it so. */
#define ECHI_REPLAN_GAIN 0.1
#define ECHI_REPLAN_CHECKS 3
/* Rounds between two checks of shares, at least: the average must have time to be another. With a quarter as many, stutters of a fiftieth
 * of the steps changed shares once in 50,000 rounds (three workers). */
#define ECHI_SHARES_ROUNDS 64

/* Has something lasted? Answered once; a further answer takes ever longer, so that nothing goes to and fro. */
struct echi_lasting { int64_t since, not_before; double at; uint8_t checks, answers; };
/* A check found it so, or not, and `value`, > 0. True when so many in a row have, for `after` ns, with values within a tenth of the first
 * one, and the last answer is long enough ago. */
bool echi_lasting_check(struct echi_lasting *lasting, bool is_so, double value, int64_t after, int64_t now);
/* It was answered, or refused: nothing for five times `after`, after each further answer for twice as long, 32 times that at most. */
void echi_lasting_answered(struct echi_lasting *lasting, bool refused, int64_t after, int64_t now);

/* out[0 .. world): the machines that were measured at the start, with steps as many times as long as they are now (echi_follow_slower) and
 * links as they are now (echi_follow_links). */
void echi_machines_seen(const struct echi_follow *follow, const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                        int64_t now, struct echi_times out[ECHI_WORLD_MAX]);

/* Shares of a whole round under BSP by the speeds of now (echi_shares_of_round). share: those that hold. `seen` as above. True when the
 * longest step, by what steps have taken, would be clearly shorter than *out_longest, seconds, is now. Where a worker's speed is not known
 * yet nothing is. */
bool echi_shares_now(const struct echi_follow *follow, const struct echi_plan *plan, const struct echi_times seen[ECHI_WORLD_MAX],
                     const struct echi_times times[ECHI_WORLD_MAX], const uint32_t share[ECHI_WORLD_MAX],
                     uint32_t out_share[ECHI_WORLD_MAX], double *out_longest);
#endif
