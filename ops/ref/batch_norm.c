/* SPDX-License-Identifier: Apache-2.0
 * Batch-norm (Ioffe and Szegedy, ICML 2015), a channel at a time. With m numbers x, their mean u and variance v (divided by m),
 * h = (x - u) / s and s = sqrt(v + e):
 *     y = weight h + bias,   dbias = sum dy,   dweight = sum dy h,
 *     dx = weight / s (dy - dbias / m - h dweight / m),
 * the last two terms being the ways by which x moves u and v; running averages stand still, so there they are absent.
 * Sums are in double. */
#include "echi_ref.h"

#include <math.h>

/* A channel's numbers are rows of h * w, one for each sample. */
#define EACH_NUMBER(l, n, c, at)                                                                                                  \
    for (int s_ = 0; s_ < (n); s_++)                                                                                              \
        for (size_t at = echi_ref_at((l)->in, s_, c, 0, 0), end_ = at + (size_t)(l)->in.h * (size_t)(l)->in.w; at < end_; at++)

static double numbers(const struct echi_layer *l, int n) { return (double)n * l->in.h * l->in.w; }

void ECHI_REF(batch_norm_statistics)(const struct echi_layer *l, int n, const echi_real *x, echi_real *mean, echi_real *variance) {
    for (int c = 0; c < l->in.c; c++) {
        double sum = 0, squares = 0;
        EACH_NUMBER(l, n, c, i) sum += x[i];
        const double middle = sum / numbers(l, n);
        EACH_NUMBER(l, n, c, i) squares += (x[i] - middle) * (x[i] - middle);
        mean[c] = (echi_real)middle;
        variance[c] = (echi_real)(squares / numbers(l, n));
    }
}

void ECHI_REF(batch_norm_forward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *weight, const echi_real *bias,
                                  const echi_real *mean, const echi_real *variance, echi_real *y) {
    for (int c = 0; c < l->in.c; c++) {
        const double s = echi_norm_deviation(variance[c]);
        EACH_NUMBER(l, n, c, i) y[i] = (echi_real)((x[i] - mean[c]) / s * weight[c] + bias[c]);
    }
}

void ECHI_REF(batch_norm_sums)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, const echi_real *mean,
                               const echi_real *variance, echi_real *sums) {
    for (int c = 0; c < l->in.c; c++) {
        const double s = echi_norm_deviation(variance[c]);
        double sum = 0, along = 0;
        EACH_NUMBER(l, n, c, i) {
            sum += dy[i];
            along += dy[i] * ((x[i] - mean[c]) / s);
        }
        sums[c] = (echi_real)sum;
        sums[l->in.c + c] = (echi_real)along;
    }
}

void ECHI_REF(batch_norm_backward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, const echi_real *weight,
                                   const echi_real *mean, const echi_real *variance, const echi_real *sums, int of, echi_real *dx) {
    for (int c = 0; c < l->in.c; c++) {
        const double s = echi_norm_deviation(variance[c]), m = numbers(l, of);
        const double sum = sums ? sums[c] / m : 0, along = sums ? sums[l->in.c + c] / m : 0;
        EACH_NUMBER(l, n, c, i) dx[i] = (echi_real)(weight[c] / s * (dy[i] - sum - (x[i] - mean[c]) / s * along));
    }
}
