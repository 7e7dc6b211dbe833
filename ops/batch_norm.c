/* SPDX-License-Identifier: Apache-2.0
 * What all implementations of batch-norm share: how a variance divides, the gradient of running averages, and statistics made of parts'. */
#include "echi_stack_impl.h"

#include <math.h>
#include <string.h>

/* A running variance that delayed updates have carried below zero counts as zero. */
double echi_norm_deviation(double variance) { return sqrt((variance > 0 ? variance : 0) + ECHI_NORM_EPSILON); }

void echi_norm_running_grad(const struct echi_layer *layer, int n, const echi_real *params, const echi_real *mean,
                            const echi_real *variance, echi_real share, echi_real *grads) {
    const int channels = layer->in.c;
    const double count = (double)n * layer->in.h * layer->in.w, unbiased = count > 1 ? count / (count - 1) : 1;
    const double part = share < 1 ? share : 1;
    for (int c = 0; c < channels; c++) {
        const size_t at = layer->running_at + (size_t)c, variance_at = at + (size_t)channels;
        grads[at] = (echi_real)(part * (params[at] - mean[c]));
        grads[variance_at] = (echi_real)(part * (params[variance_at] - unbiased * variance[c]));
    }
}

void echi_norm_join(echi_real *to, uint32_t n, const echi_real *part, uint32_t m, int channels, bool backward) {
    const double of_part = (double)m / ((double)n + m);
    if (n == 0) {
        memcpy(to, part, 2 * (size_t)channels * sizeof *to);
        return;
    }
    for (int c = 0; c < channels; c++) {
        const int v = channels + c;
        if (backward) {
            to[c] += part[c];
            to[v] += part[v];
            continue;
        }
        const double apart = (double)part[c] - to[c];
        to[c] = (echi_real)(to[c] + apart * of_part);
        to[v] = (echi_real)(to[v] + (part[v] - to[v]) * of_part + apart * apart * of_part * (1 - of_part));
    }
}
