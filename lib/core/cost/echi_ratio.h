/* SPDX-License-Identifier: Apache-2.0
 * GDTopK: which part of a change is sent, and when (PROTOCOL.md, "Sources"). Pure functions of the plan and the lease; the only place that
 * decides it.
 * Ratios are whole millionths, so that every node finds the same number. */
#ifndef ECHI_RATIO_H
#define ECHI_RATIO_H
#include "echi_lease.h"

#define ECHI_RATIO_STATES 80000u      /* of weights and states: 0.08; from 0.06 to 1 LeNet-5 learnt alike (test/bench/results, defaults) */
#define ECHI_WHOLE_EVERY 32u          /* messages of a state link of which one is complete (PROTOCOL.md) */

/* `paper`: of the fastest, the middle and the slowest group the base, and how many numbers the threshold is taken from. */
struct echi_paper_ratio { uint32_t base, sample; };
extern const struct echi_paper_ratio echi_paper_ratio[3];

const char *echi_ratios_name(enum echi_ratios ratios);   /* "paper" */

/* By the plan alone: of a push of `group`, whose lease is of this epoch (from 0); ECHI_RATIO_ONE under the dense codec. */
uint32_t echi_push_ratio(const struct echi_plan *plan, int group, uint32_t epoch);
/* Of the numbers to choose from, how many the threshold is taken from. */
uint32_t echi_push_sample(const struct echi_plan *plan, int group);
/* The same of the push of this lease, which `group` has been dealt: its base counts before the plan's. */
uint32_t echi_lease_ratio(const struct echi_plan *plan, int group, const struct echi_lease *lease);
uint32_t echi_lease_sample(const struct echi_plan *plan, int group, const struct echi_lease *lease);
/* Must the message of this number (from 1) of a state link be complete, whatever else speaks for it? */
bool echi_whole_due(uint32_t number);
/* Bytes of a message about `count` floats at this ratio: those that a selection of exactly so many takes. For costs; what is sent
 * may have fewer values. */
uint64_t echi_coded_bytes(uint64_t count, uint32_t ratio);

/* What a codec costs a number of the range, in updates of one, for costs too: to select and write a push or weights at this ratio; to read
 * them. */
double echi_write_cost(uint32_t ratio);
double echi_read_cost(uint32_t ratio);

#endif
