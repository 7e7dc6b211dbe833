/* SPDX-License-Identifier: Apache-2.0
 * What goes number by number: residual add, and dropout with what was drawn for it (ops/dropout.c). */
#include "echi_ref.h"

void ECHI_REF(add)(size_t count, const echi_real *a, const echi_real *b, echi_real *y) {
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

void ECHI_REF(dropout)(size_t count, const echi_real *x, const echi_real *factor, echi_real *y) {
    for (size_t i = 0; i < count; i++) y[i] = x[i] * factor[i];
}
