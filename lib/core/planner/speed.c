/* SPDX-License-Identifier: Apache-2.0
 * A moving average that single slow steps do not move, and bursts that come all the time do. */
#include "echi_regroup.h"
#include "echi_median.h"

#include <string.h>

#define FOLLOW 0.75   /* of the way from the average to the median, each window */

static double median(const double *value, int count) {
    double sorted[ECHI_SPEED_WINDOWS];
    memcpy(sorted, value, (size_t)count * sizeof sorted[0]);
    return echi_median(sorted, count);
}

bool echi_speed_add(struct echi_speed *s, double value) {
    s->sum += value;
    if (++s->steps < ECHI_SPEED_STEPS) return false;
    const bool known = echi_speed_known(s);
    s->mean[s->next] = s->sum / ECHI_SPEED_STEPS;
    s->next = (uint8_t)((s->next + 1) % ECHI_SPEED_WINDOWS);
    s->windows += !known;
    const double middle = median(s->mean, s->windows);
    s->average = known ? s->average + FOLLOW * (middle - s->average) : middle;
    s->sum = 0;
    s->steps = 0;
    return true;
}

double echi_speed_last(const struct echi_speed *s) { return s->mean[(s->next + ECHI_SPEED_WINDOWS - 1) % ECHI_SPEED_WINDOWS]; }
