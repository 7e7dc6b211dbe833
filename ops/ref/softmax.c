/* SPDX-License-Identifier: Apache-2.0
 * Softmax and cross-entropy in one, always in double: with m the largest output,
 *     p[k] = exp(y[k] - m) / sum of exp(y[j] - m),      -log p[label] = log(sum) - (y[label] - m).
 * Nothing overflows, however large the outputs, because no exponent is positive. */
#include "echi_ref.h"

#include <math.h>

/* The first largest; a NaN counts as larger than anything, so that it is seen. */
static int predicted(int classes, const echi_real *y) {
    int best = 0;
    for (int k = 1; k < classes; k++) {
        bool best_is_nan = y[best] != y[best];
        if (!best_is_nan && !(y[k] <= y[best])) best = k;
    }
    return best;
}

void ECHI_REF(softmax_cross_entropy)(int n, int classes, const echi_real *y, const uint16_t *labels, echi_real scale, echi_real *dy,
                                     double *out_loss, int *out_correct) {
    double loss = 0;
    int correct = 0;
    for (int s = 0; s < n; s++) {
        const echi_real *row = y + (size_t)s * (size_t)classes;
        echi_real *drow = dy + (size_t)s * (size_t)classes;
        int best = predicted(classes, row), label = labels[s];
        double m = (double)row[best], sum = 0;
        for (int k = 0; k < classes; k++) sum += exp((double)row[k] - m);
        loss += log(sum) - ((double)row[label] - m);
        correct += best == label && !isnan(m);
        for (int k = 0; k < classes; k++) {
            double p = exp((double)row[k] - m) / sum;
            drow[k] = (echi_real)((double)scale * (p - (k == label ? 1.0 : 0.0)));
        }
    }
    *out_loss = loss;
    *out_correct = correct;
}
