/* SPDX-License-Identifier: Apache-2.0
 * What arithmetic and messages cost on one machine, as numbers: measured by `train --profile-out`, read by the simulator, which
 * never measures. */
#ifndef ECHI_PROFILE_H
#define ECHI_PROFILE_H
#include "echi_measure.h"

/* LeNet-5 on one thread of the processor that it names: what holds where no profile is given. */
void echi_profile_builtin(struct echi_profile *out);
/* A measured machine's, with all about the model filled in; the costs behind `times` are the caller's to fill. */
void echi_profile_of(struct echi_profile *out, const char *machine, const struct ech_model *model, const struct echi_times *times);
/* Errors of load name file and line (ECH_E_FORMAT); *out is written only on success. */
ech_status echi_profile_load(const char *path, struct echi_profile *out, struct ech_error *err);
ech_status echi_profile_save(const char *path, const struct echi_profile *profile, struct ech_error *err);
/* Makes a profile one of this model: steps cost in proportion to their multiply-adds, in front of the cut and behind it, and so do the
 * units within them; what is counted by parameter or byte stays, and times.exchange follows. False when nothing had to be changed. */
bool echi_profile_fit(struct echi_profile *profile, const struct ech_model *model);
/* Other steps, of a model with so many floats; what is counted by parameter, byte and message stays, and times.exchange follows. */
void echi_profile_steps(struct echi_profile *profile, const struct echi_times *times, double parameters);
/* Images a second of this machine alone: of steps of 64 samples, as the report's step_seconds. */
double echi_profile_images(const struct echi_profile *profile);
#endif
