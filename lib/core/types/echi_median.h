/* SPDX-License-Identifier: Apache-2.0
 * The median of a few numbers. */
#ifndef ECHI_MEDIAN_H
#define ECHI_MEDIAN_H

/* Sorts value[count], count > 0; of an even number the mean of the two in the middle. */
static inline double echi_median(double *value, int count) {
    for (int i = 1; i < count; i++) {
        const double v = value[i];
        int at = i;
        for (; at > 0 && value[at - 1] > v; at--) value[at] = value[at - 1];
        value[at] = v;
    }
    return (value[(count - 1) / 2] + value[count / 2]) / 2;
}
#endif
