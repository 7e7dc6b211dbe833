/* SPDX-License-Identifier: Apache-2.0
 * ReLU: y = max(x, 0). Written so that a NaN stays one; the derivative at 0 is 0. */
#include "echi_ref.h"

void ECHI_REF(relu_forward)(const struct echi_layer *l, int n, const echi_real *x, echi_real *y) {
    size_t count = (size_t)n * echi_shape_size(l->in);
    for (size_t i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i];
}

void ECHI_REF(relu_backward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dx) {
    size_t count = (size_t)n * echi_shape_size(l->in);
    for (size_t i = 0; i < count; i++) dx[i] = x[i] <= 0 ? 0 : dy[i];
}
