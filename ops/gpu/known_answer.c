/* SPDX-License-Identifier: Apache-2.0
 * Each op once on a device, beside the reference on the host: drivers and compilers have bugs, and a device that computes wrongly would
 * train on without a word. */
#include "echi_error.h"
#include "echi_gpu.h"
#include "echi_random.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLES 19
#define TOLERANCE 1e-4   /* of the largest number of an array: what is wrong is not wrong by a little */

/* Odd sizes, edges of tiles, windows over the margin. Parameters lie at 0: weights, biases, running averages. */
#define MAPS {3, 5, 7}
#define BY_2 .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1
static const struct echi_layer ops[] = {
    {.op = ECHI_OP_CONV2D, .in = {5, 9, 8}, .out = {70, 5, 4}, BY_2,
     .bias = true, .weights = 70 * 5 * 9, .bias_at = 70 * 5 * 9, .biases = 70},
    {.op = ECHI_OP_FC, .in = {7, 3, 4}, .out = {67, 1, 1}, .bias = true, .weights = 67 * 84, .bias_at = 67 * 84, .biases = 67},
    {.op = ECHI_OP_MAX_POOL, .in = {3, 8, 7}, .out = {3, 4, 4}, BY_2},
    {.op = ECHI_OP_AVG_POOL, .in = {3, 8, 7}, .out = {3, 4, 4}, BY_2},
    {.op = ECHI_OP_GLOBAL_AVG_POOL, .in = {3, 5, 7}, .out = {3, 1, 1}, .kernel_h = 5, .kernel_w = 7, .stride_h = 1, .stride_w = 1},
    {.op = ECHI_OP_RELU, .in = MAPS, .out = MAPS},
    {.op = ECHI_OP_TANH, .in = MAPS, .out = MAPS},
    {.op = ECHI_OP_ADD, .in = MAPS, .out = MAPS},   /* of the input with itself: its gradient has two shares */
    {.op = ECHI_OP_DROPOUT, .in = MAPS, .out = MAPS, .drop = 300000},
    {.op = ECHI_OP_BATCH_NORM, .in = MAPS, .out = MAPS, .weights = 3, .bias_at = 3, .biases = 3, .running_at = 6, .running = 6},
};
enum { MOST_NUMBERS = SAMPLES * 5 * 9 * 8, MOST_OUT = SAMPLES * 70 * 5 * 4, MOST_PARAMS = 67 * 84 + 67 };

/* What goes in, and what one implementation makes of it. */
struct sheet { float in[MOST_NUMBERS], out_grad[MOST_OUT], params[MOST_PARAMS]; };
struct answer { float out[MOST_OUT], grads[MOST_PARAMS], in_grad[MOST_NUMBERS]; double loss; int correct; };

static void fill(struct echi_random *r, float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = (float)(echi_random_normal(r) / 4);
}

/* One step of one layer. `host` holds parameters and gradients. */
static ech_status answer(struct echi_device *device, struct echi_device *host, const struct echi_stack_impl *impl,
                         const struct echi_layer *layer, struct sheet *sheet, struct answer *out, struct ech_error *err) {
    struct echi_stack *stack = NULL;
    struct echi_buffer *params = NULL, *grads = NULL;
    struct echi_row rows[SAMPLES];
    uint16_t labels[SAMPLES];
    const struct echi_training training = {1, rows, 1};
    ech_status status;
    for (int s = 0; s < SAMPLES; s++) rows[s] = (struct echi_row){1, (uint32_t)s}, labels[s] = (uint16_t)(7 * s % layer->out.c);
    ECHI_TRY_GOTO(echi_stack_create_with(device, impl, layer, 1, SAMPLES, &stack, err), out);
    ECHI_TRY_GOTO(echi_buffer_wrap(host, sheet->params, sizeof sheet->params, &params, err), out);
    ECHI_TRY_GOTO(echi_buffer_wrap(host, out->grads, sizeof out->grads, &grads, err), out);
    ECHI_TRY_GOTO(echi_stack_input(stack, SAMPLES, sheet->in, err), out);
    ECHI_TRY_GOTO(echi_stack_train(stack, &training, err), out);
    ECHI_TRY_GOTO(echi_stack_forward(stack, 0, params, err), out);
    ECHI_TRY_GOTO(echi_stack_output(stack, out->out, err), out);
    if (layer->op == ECHI_OP_FC) ECHI_TRY_GOTO(echi_stack_loss(stack, labels, 1, &out->loss, &out->correct, err), out);
    else ECHI_TRY_GOTO(echi_stack_output_grad(stack, sheet->out_grad, err), out);
    ECHI_TRY_GOTO(echi_stack_backward(stack, 0, params, grads, true, err), out);
    ECHI_TRY_GOTO(echi_stack_input_grad(stack, out->in_grad, err), out);
out:
    echi_buffer_destroy(params);
    echi_buffer_destroy(grads);
    echi_stack_destroy(stack);
    return status;
}

static bool alike(const float *got, const float *wanted, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)wanted[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)wanted[i]) <= TOLERANCE * largest)) return false;
    return true;
}

static ech_status check_op(struct echi_device *device, struct echi_device *host, const struct echi_layer *layer, struct sheet *sheet,
                           struct answer *got, struct answer *wanted, struct ech_error *err) {
    const size_t in = SAMPLES * echi_shape_size(layer->in), out = SAMPLES * echi_shape_size(layer->out);
    ECHI_TRY(answer(host, host, &echi_stack_reference, layer, sheet, wanted, err));
    ECHI_TRY(answer(device, host, &echi_stack_gpu, layer, sheet, got, err));
    const bool loss = fabs(got->loss - wanted->loss) <= TOLERANCE * (1 + fabs(wanted->loss)) && got->correct == wanted->correct;
    const char *what = NULL;
    if (!alike(got->out, wanted->out, out)) what = "forward";
    else if (!loss) what = "the loss behind it";
    else if (!alike(got->grads, wanted->grads, echi_layer_params(layer))) what = "the gradient of its parameters";
    else if (!alike(got->in_grad, wanted->in_grad, in)) what = "the gradient of its input";
    if (what == NULL) return ECH_OK;
    const struct echi_device_info *info = echi_device_describe(device);
    return echi_fail(err, ECH_E_UNSUPPORTED, "device.check",
                     "'%s' (%s) computes wrongly, as its answer to a known question shows: %s, %s; choose another device, "
                     "or another driver", info->backend, info->name, echi_op_name(layer->op), what);
}

ech_status echi_gpu_check(struct echi_device *device, struct ech_error *err) {
    struct echi_random r;
    struct echi_device *host = NULL;
    struct sheet *sheet = calloc(1, sizeof *sheet);
    struct answer *answers = calloc(2, sizeof *answers);
    ech_status status = sheet && answers ? echi_device_open("cpu", 1, &host, err) : echi_fail_memory(err, "device.check",
        "the answers to known questions");
    if (status == ECH_OK) {
        echi_random_init(&r, 1, ECHI_STREAM_KNOWN, 0);
        fill(&r, sheet->in, MOST_NUMBERS);
        fill(&r, sheet->out_grad, MOST_OUT);
        fill(&r, sheet->params, MOST_PARAMS);
    }
    for (size_t i = 0; i < sizeof ops / sizeof ops[0] && status == ECH_OK; i++)
        status = check_op(device, host, &ops[i], sheet, &answers[0], &answers[1], err);
    echi_device_close(host);
    free(answers);
    free(sheet);
    return status;
}
