/* SPDX-License-Identifier: Apache-2.0
 * The learning rate by the place in the data. schedule.c; bytes: message.c. */
#ifndef ECHI_SCHEDULE_H
#define ECHI_SCHEDULE_H
#include <stdbool.h>
#include <stdint.h>

/* How lr changes while a run goes on. Places in the data are counted in epochs, from the beginning of the run, in fractions. */
#define ECHI_LR_STEPS_MAX 8
#define ECHI_EPOCHS_MAX 1e6           /* all of them are below */
enum echi_schedules { ECHI_SCHEDULE_CONSTANT, ECHI_SCHEDULE_STEP, ECHI_SCHEDULE_COSINE, ECHI_SCHEDULES };
struct echi_schedule {
    uint8_t kind, steps;                  /* enum echi_schedules; STEP: so many in step[] */
    double warmup;                        /* epochs in which lr rises in a straight line from 0; 0: it begins whole */
    double factor;                        /* STEP: lr is multiplied by it, above 0 and at most 1, at each place in step[], ascending */
    double step[ECHI_LR_STEPS_MAX];
    double epochs;                        /* COSINE: from the end of the warm-up to here lr falls to 0 by half a cosine
                                             (Loshchilov and Hutter, SGDR, ICLR 2017, without restarts) */
};

struct echi_lease;
struct echi_plan;
/* The learning rate of an update by the samples of this lease: by its first sample. An update that takes in several leases, a round or a
 * merged visit of the head, has that of the one that stands first in the data: whoever applies it, and in whatever order they came. */
double echi_plan_lr(const struct echi_plan *plan, const struct echi_lease *lease, uint32_t train_samples);
/* What lr is multiplied by, so many epochs into the run; 0 to 1. */
double echi_schedule_factor(const struct echi_schedule *schedule, double epochs);
bool echi_schedule_valid(const struct echi_schedule *schedule);   /* what a kind does not use is 0 */
const char *echi_schedule_name(int kind);         /* "cosine"; NULL beyond the last */

struct echi_reader;
struct echi_writer;
void echi_schedule_put(struct echi_writer *w, const struct echi_schedule *schedule);
void echi_schedule_get(struct echi_reader *r, struct echi_schedule *out);   /* r->ok is false unless it is valid */
#endif
