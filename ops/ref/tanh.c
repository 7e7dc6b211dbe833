/* SPDX-License-Identifier: Apache-2.0
 * y = tanh(x); dx = dy (1 - y^2). */
#include "echi_ref.h"

#include <math.h>

void ECHI_REF(tanh_forward)(size_t count, const echi_real *x, echi_real *y) {
    for (size_t i = 0; i < count; i++) y[i] = (echi_real)tanh(x[i]);
}

void ECHI_REF(tanh_backward)(size_t count, const echi_real *y, const echi_real *dy, echi_real *dx) {
    for (size_t i = 0; i < count; i++) dx[i] = dy[i] * (1 - y[i] * y[i]);
}
