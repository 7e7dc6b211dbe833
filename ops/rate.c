/* SPDX-License-Identifier: Apache-2.0
 * How fast a device multiplies, of products that grow until one takes long enough to be believed. */
#include "echi_ops.h"
#include "echi_error.h"
#include "echi_os.h"

#include <stdlib.h>

#define TRIES 3            /* of each product: the shortest counts */
#define SMALLEST 128       /* sides */
#define LARGEST 4096
#define LONG_ENOUGH 0.03   /* seconds; no larger one is tried then */

/* side x side by side x side, as a fully connected layer computes it. A narrow one behind it makes little of what has to come back, which
 * is what says that the product is done. */
static ech_status time_product(struct echi_device *device, enum echi_kernels kernels, int side, double *out_seconds,
                               struct ech_error *err) {
    enum { NARROW = 8 };
    const size_t n = (size_t)side;
    const struct echi_layer layers[2] = {
        {.name = "wide", .op = ECHI_OP_FC, .in = {side, 1, 1}, .out = {side, 1, 1}, .weights = n * n},
        {.name = "narrow", .op = ECHI_OP_FC, .in = {side, 1, 1}, .out = {NARROW, 1, 1}, .weight_at = n * n, .weights = n * NARROW}};
    struct echi_stack *stack = NULL;
    struct echi_buffer *params = NULL;
    echi_real *rows = calloc(n * n, sizeof *rows), *result = calloc(n * NARROW, sizeof *result);
    ech_status status = rows && result ? ECH_OK : echi_fail_memory(err, "device.rate", "a product of matrices");
    if (status == ECH_OK) status = echi_buffer_create_pinned(device, n * (n + NARROW) * sizeof *rows, &params, err);
    if (status == ECH_OK) status = echi_stack_create(device, kernels, layers, 2, side, &stack, err);
    *out_seconds = 0;
    for (int i = 0; i < TRIES && status == ECH_OK; i++) {
        status = echi_stack_input(stack, side, rows, err);
        const int64_t began = echi_now();
        for (int u = 0; status == ECH_OK && u < echi_stack_units(stack); u++) status = echi_stack_forward(stack, u, params, err);
        if (status == ECH_OK) status = echi_stack_output(stack, result, err);
        const double seconds = (double)(echi_now() - began) * 1e-9 + 1e-9;
        if (*out_seconds == 0 || seconds < *out_seconds) *out_seconds = seconds;
    }
    echi_stack_destroy(stack);
    echi_buffer_destroy(params);
    free(rows);
    free(result);
    return status;
}

ech_status echi_device_rate(struct echi_device *device, enum echi_kernels kernels, double *out_rate, struct ech_error *err) {
    double seconds = 0;
    *out_rate = 0;
    for (int side = SMALLEST; side <= LARGEST && seconds < LONG_ENOUGH; side *= 2) {
        ECHI_TRY(time_product(device, kernels, side, &seconds, err));
        *out_rate = (double)side * side * side / seconds;
    }
    return ECH_OK;
}
