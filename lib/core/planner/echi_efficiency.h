/* SPDX-License-Identifier: Apache-2.0
 * Statistical efficiency: what a sample is worth beside one that BSP trains (Qiao et al., "Pollux", OSDI 2021, section 3.1). */
#ifndef ECHI_EFFICIENCY_H
#define ECHI_EFFICIENCY_H
#include "echi_predict.h"

/* Whether layer separation spares the model most of its staleness: the head has at least half of the parameters (or nothing is known). */
bool echi_mostly_separated(const struct echi_load *load, bool separated);
/* Samples that BSP needs for an accuracy over those that are needed when pushes are so many rounds behind: > 0; 1: as under BSP.
 * mostly_separated: echi_mostly_separated. */
double echi_statistical_efficiency(bool mostly_separated, double behind);
#endif
