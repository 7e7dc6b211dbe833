/* SPDX-License-Identifier: Apache-2.0
 * What staleness costs: how many more samples the same accuracy takes. */
#ifndef ECHI_PRICE_H
#define ECHI_PRICE_H
#include "echi_predict.h"

/* Whether a head apart spares the model most of its staleness: it holds at least half of the parameters (or nothing is known of them). */
bool echi_price_apart(const struct echi_load *load, bool separated);
/* By how many times more samples are needed for the same accuracy when pushes are so many rounds behind (> 0; 1: as under BSP).
 * head_apart: echi_price_apart. */
double echi_price(bool head_apart, double behind);
#endif
