/* SPDX-License-Identifier: Apache-2.0
 * Fully connected: y[o] = bias[o] + sum over i of x[i] * weight[o][i]. The input of any shape is read as one vector. */
#include "echi_ref.h"

#include <string.h>

void ECHI_REF(fc_forward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *weight, const echi_real *bias,
                          echi_real *y) {
    size_t in = echi_shape_size(l->in), out = echi_shape_size(l->out), rows = (size_t)n;
    for (size_t s = 0; s < rows; s++)
        for (size_t o = 0; o < out; o++) {
            echi_real sum = bias != NULL ? bias[o] : 0;
            for (size_t i = 0; i < in; i++) sum += x[s * in + i] * weight[o * in + i];
            y[s * out + o] = sum;
        }
}

void ECHI_REF(fc_backward_input)(const struct echi_layer *l, int n, const echi_real *dy, const echi_real *weight, echi_real *dx) {
    size_t in = echi_shape_size(l->in), out = echi_shape_size(l->out), rows = (size_t)n;
    memset(dx, 0, rows * in * sizeof *dx);
    for (size_t s = 0; s < rows; s++)
        for (size_t o = 0; o < out; o++)
            for (size_t i = 0; i < in; i++) dx[s * in + i] += dy[s * out + o] * weight[o * in + i];
}

void ECHI_REF(fc_backward_params)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dweight,
                                  echi_real *dbias) {
    size_t in = echi_shape_size(l->in), out = echi_shape_size(l->out), rows = (size_t)n;
    memset(dweight, 0, l->weights * sizeof *dweight);
    if (dbias != NULL) memset(dbias, 0, l->biases * sizeof *dbias);
    for (size_t s = 0; s < rows; s++)
        for (size_t o = 0; o < out; o++) {
            if (dbias != NULL) dbias[o] += dy[s * out + o];
            for (size_t i = 0; i < in; i++) dweight[o * in + i] += dy[s * out + o] * x[s * in + i];
        }
}
