/* SPDX-License-Identifier: Apache-2.0
 * Statistical efficiency: what a sample is worth beside one that BSP trains (Qiao et al., "Pollux", OSDI 2021, section 3.1). */
#ifndef ECHI_EFFICIENCY_H
#define ECHI_EFFICIENCY_H
#include "echi_predict.h"

/* What earlier runs of the same model, data, B and learning rate have measured, a row a policy and staleness (lib/job/echi_curves.h). */
struct echi_measured {
    uint8_t sync, separated;
    double behind;                        /* rounds, mean, > 0: as a prediction's */
    double efficiency, error;             /* > 0; its standard error, as a part of it */
};
#define ECHI_MEASURED_MAX 16
#define ECHI_MEASURED_LIMIT 16.0          /* measured efficiencies are between its reciprocal and this */
struct echi_evidence { int count; struct echi_measured of[ECHI_MEASURED_MAX]; };

struct echi_efficiency {
    double value, error;                  /* > 0, 1: as under BSP; standard error, as a part of it: below 1 */
    bool measured;                        /* by earlier runs; else it is of the table */
};

/* Whether layer separation spares the model most of its staleness: the head has at least half of the parameters (or nothing is known). */
bool echi_mostly_separated(const struct echi_load *load, bool separated);
/* The table's: samples that BSP needs for an accuracy over those that are needed when pushes are so many rounds behind: > 0; 1: as under
 * BSP. mostly_separated: echi_mostly_separated. */
double echi_statistical_efficiency(bool mostly_separated, double behind);
/* What is known best of this policy: by what was measured of it at about the same staleness, else by the table. */
struct echi_efficiency echi_efficiency_of(const struct echi_evidence *evidence, int sync, bool separated, bool mostly_separated,
                                          double behind);
#endif
