/* SPDX-License-Identifier: Apache-2.0
 * Stochastic gradient descent with momentum and weight decay, as PyTorch's. */
#include "echi_ref.h"

void ECHI_REF(sgd)(size_t count, echi_real *w, echi_real *v, const echi_real *g, echi_real lr, echi_real momentum, echi_real decay) {
    for (size_t i = 0; i < count; i++) {
        v[i] = echi_velocity(momentum * v[i] + (g[i] + decay * w[i]));
        w[i] = w[i] - lr * v[i];
    }
}
