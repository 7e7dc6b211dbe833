/* SPDX-License-Identifier: Apache-2.0
 * Softmax and cross-entropy of one group of samples. */
#include "echi_vec_exp.h"

#include <string.h>

/* ln x for x >= 1, the same on every machine: x = 2^n m with m in [sqrt(1/2), sqrt(2)]; ln m = 2 artanh t with t = (m - 1) /
 * (m + 1), by its series to t^21 (the rest is below 2^-58). Infinity and NaN stay. */
INLINE double log_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (!(x - x == 0)) return x;
    double n = (double)((int)(bits >> 52) - 1023), m;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        n += 1;
    }
    const double t = (m - 1) / (m + 1), t2 = t * t;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
    return n * 0.69314718055994531 + 2 * t * sum;
}

void ISA(softmax_loss)(const float *x, ptrdiff_t x_class, int classes, const uint16_t *labels, int lanes, float scale, float *dx,
                       ptrdiff_t dx_class, double *loss, int *correct) {
    vec most = load(x);
    ivec best = {0};
    for (int c = 1; c < classes; c++) {
        const vec v = load(x + c * x_class);
        const ivec stay = (v <= most) | (most != most);
        most = pick(stay, most, v);
        best = (stay & best) | (~stay & c);
    }
    vec sum = {0};
    for (int c = 0; c < classes; c++) {
        const vec e = exp_negative(load(x + c * x_class) - most);
        store(dx + c * dx_class, e);
        sum += e;
    }
    ivec label = {0}, real = {0};
    for (int lane = 0; lane < lanes; lane++) {
        label[lane] = labels[lane];
        real[lane] = -1;
        *loss += log_of((double)sum[lane]) + (double)most[lane] - (double)x[labels[lane] * x_class + lane];
        *correct += best[lane] == labels[lane] && most[lane] == most[lane];
    }
    const vec factor = scale / sum;
    for (int c = 0; c < classes; c++) {
        float *to = dx + c * dx_class;
        const vec d = load(to) * factor - pick(label == c, splat(scale), (vec){0});
        store(to, pick(real, d, (vec){0}));
    }
}
