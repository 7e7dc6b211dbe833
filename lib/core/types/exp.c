/* SPDX-License-Identifier: Apache-2.0
 * e^x and ln x. */
#include "echi_exp.h"

#define LN2 0.693147180559945309417
#define SQRT_HALF 0.70710678118654752440

/* By 2 atanh((x - 1) / (x + 1)) about a power of two; what is left out of the series is below 1e-19. With
 * products, sums and quotients alone the bits are the same on every machine, as in schedule.c. */
double echi_log(double x) {
    int halves = 0;
    for (; x < SQRT_HALF; x *= 2) halves++;
    const double z = (x - 1) / (x + 1), zz = z * z;
    double power = z, sum = z;
    for (int k = 3; k < 25; k += 2) {
        power *= zz;
        sum += power / k;
    }
    return 2 * sum - halves * LN2;
}

/* By the series of what is left of x behind a power of two. */
double echi_exp(double x) {
    if (x < -700) return 0;
    const int halves = (int)(-x / LN2 + 0.5);
    const double rest = x + halves * LN2;
    double term = 1, sum = 1;
    for (int k = 1; k < 18; k++) {
        term *= rest / k;
        sum += term;
    }
    for (int i = 0; i < halves; i++) sum /= 2;
    return sum;
}
