/* SPDX-License-Identifier: Apache-2.0
 * Adam (Kingma and Ba, ICLR 2015) and AdamW (Loshchilov and Hutter, ICLR 2019), as PyTorch's: one step, the t-th, by a whole round. */
#include "echi_ref.h"

#include <math.h>

void ECHI_REF(adam)(size_t count, echi_real *w, echi_real *m, echi_real *s, const echi_real *g, int t, echi_real lr, echi_real beta1,
                    echi_real beta2, echi_real epsilon, echi_real decay, bool decoupled) {
    double left1 = 1, left2 = 1;   /* beta^t */
    for (int i = 0; i < t; i++) left1 *= (double)beta1, left2 *= (double)beta2;
    for (size_t i = 0; i < count; i++) {
        const echi_real d = decoupled ? g[i] : g[i] + decay * w[i];
        m[i] = echi_velocity(beta1 * m[i] + (1 - beta1) * d);
        s[i] = echi_velocity(beta2 * s[i] + (1 - beta2) * d * d);
        const double mean = (double)m[i] / (1 - left1), root = sqrt((double)s[i] / (1 - left2));
        if (decoupled) w[i] = w[i] - lr * decay * w[i];
        w[i] = w[i] - lr * (echi_real)(mean / (root + (double)epsilon));
    }
}
