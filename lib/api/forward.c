/* SPDX-License-Identifier: Apache-2.0
 * ech_model_forward: a model on samples of the caller's, for evaluations of a session's head. */
#include "echi_error.h"
#include "echi_model.h"

#include <string.h>

/* So many samples at once: what a stack holds does not grow with n. */
#define ROWS 64

static ech_status forward(struct echi_stack *stack, const struct echi_buffer *params, int n, const float *rows, float *out,
                          struct ech_error *err) {
    const int units = echi_stack_units(stack);
    ECHI_TRY(echi_stack_input(stack, n, rows, err));
    for (int u = 0; u < units; u++) ECHI_TRY(echi_stack_forward(stack, u, params, err));
    return echi_stack_output(stack, out, err);
}

ech_status ech_model_forward(const ech_model *model, const float *params, int n, const float *rows, float *out, struct ech_error *err) {
    if (!model || !params || n < 1 || !rows || !out)
        return echi_fail(err, ECH_E_ARGUMENT, "model.forward",
                         "ech_model_forward needs a model, its parameters, at least one sample's rows and a place for outputs");
    ECHI_TRY(ech_model_finish(model, err));
    const size_t width = echi_shape_size(model->input), outputs = echi_shape_size(model->layers[model->n_layers - 1].out);
    struct echi_device *device = NULL;
    struct echi_buffer *buffer = NULL;
    struct echi_stack *stack = NULL;
    ech_status status = echi_ops_open("cpu", 1, echi_cpu_level(), ECHI_KERNELS_FAST, NULL, &device, err);
    if (status == ECH_OK && model->n_params > 0)
        status = echi_buffer_create_host(device, model->n_params * sizeof *params, &buffer, err);
    if (status == ECH_OK && buffer) memcpy(echi_buffer_host(buffer), params, model->n_params * sizeof *params);
    if (status == ECH_OK)
        status = echi_stack_create(device, ECHI_KERNELS_FAST, model->layers, model->n_layers, n < ROWS ? n : ROWS, &stack, err);
    for (int at = 0; status == ECH_OK && at < n; at += ROWS)
        status = forward(stack, buffer, n - at < ROWS ? n - at : ROWS, rows + (size_t)at * width, out + (size_t)at * outputs, err);
    echi_stack_destroy(stack);
    echi_buffer_destroy(buffer);
    echi_device_close(device);
    return status;
}
