/* SPDX-License-Identifier: Apache-2.0
 * A moving average that single slow steps do not move. */
#include "echi_regroup.h"

#include <string.h>

#define FOLLOW 0.25   /* of the way from the average to the median, each step */

static double median(const double *value, int count) {
    double sorted[ECHI_SPEED_RECENT];
    for (int i = 0; i < count; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > value[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = value[i];
    }
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

void echi_speed_add(struct echi_speed *s, double value) {
    s->recent[s->count++ % ECHI_SPEED_RECENT] = value;
    const bool full = echi_speed_known(s);
    const double middle = median(s->recent, full ? ECHI_SPEED_RECENT : (int)s->count);
    s->average = s->count <= ECHI_SPEED_RECENT ? middle : s->average + FOLLOW * (middle - s->average);
    if (s->count == 2 * ECHI_SPEED_RECENT) s->count = ECHI_SPEED_RECENT;   /* the same place in the ring, and still known */
}
