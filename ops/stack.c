/* SPDX-License-Identifier: Apache-2.0
 * A stack as its callers see it: every argument and the order of calls are checked here, once, and then an implementation
 * is called that need not check anything. */
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_stack_impl.h"

#include <stdlib.h>
#include <string.h>

/* The boundaries that a unit takes (echi_stack_impl.h); `also` is `from` for all but an add. norm: as echi_stack_norm says. */
struct reads { int from, also, norm; };

struct echi_stack {
    const struct echi_stack_impl *impl;
    void *state;                        /* the implementation's */
    struct echi_stack_unit *units;      /* [n_units] */
    struct reads *reads;                /* [n_units] */
    int *owed;                          /* [n_units + 1], by boundary: 1 + the unit that has kept back its share of the gradient;
                                           0: none has */
    int n_units, max_n;
    bool drops;                         /* a layer is a dropout */
    struct echi_shape in, out;
    size_t params_end;                  /* floats that the flat arrays must have */
    size_t bytes;
    /* Where the step is. */
    int n;                              /* its samples; 0: no input yet */
    bool trains;
    bool summed;                        /* what the next unit's batch-norm sums was given out */
    int forward_next;                   /* the unit to go forward next; n_units: all are done */
    int backward_next;                  /* the unit to go backward next; n_units: no gradient of the output yet; -1: all are done */
};

/* --- creation --- */

static bool same_shape(struct echi_shape a, struct echi_shape b) { return a.c == b.c && a.h == b.h && a.w == b.w; }

/* One past the last float that [at, at + count) touches, if that is more than *end. */
static bool extend(size_t *end, size_t at, size_t count) {
    size_t last = 0;
    if (count == 0) return true;
    if (!echi_add_size(at, count, &last)) return false;
    if (last > *end) *end = last;
    return true;
}

/* What a layer takes and what it finds there. */
static ech_status check_source(const struct echi_layer *layers, int i, int number, bool flattens, struct ech_error *err) {
    const struct echi_layer *l = &layers[i];
    if (number < 0 || number > i)
        return echi_fail_at(err, ECH_E_SHAPE, "stack.create", -1, l->name, "layer '%s' takes an output that is none of those before it",
                            l->name);
    const struct echi_shape given = echi_output_shape(layers, number);
    if (same_shape(given, l->in) || (flattens && echi_shape_size(given) == echi_shape_size(l->in))) return ECH_OK;
    return echi_fail_at(err, ECH_E_SHAPE, "stack.create", -1, l->name,
                        "layer '%s' takes %dx%dx%d, but '%s' before it gives %dx%dx%d", l->name, l->in.c, l->in.h, l->in.w,
                        number > 0 ? layers[number - 1].name : "input", given.c, given.h, given.w);
}

/* Every layer by itself, each with those it takes from, and the size of the flat array they ask for. */
static ech_status check_layers(const struct echi_layer *layers, int count, int max_n, size_t *out_params_end, struct ech_error *err) {
    size_t end = 0, bytes = 0;
    for (int i = 0; i < count; i++) {
        const struct echi_layer *l = &layers[i];
        ECHI_TRY(echi_layer_check(l, err));
        size_t most = echi_shape_size(l->in) > echi_shape_size(l->out) ? echi_shape_size(l->in) : echi_shape_size(l->out);
        if (!echi_mul_size(most, (size_t)max_n, &bytes) || !echi_mul_size(bytes, sizeof(echi_real), &bytes))
            return echi_fail_at(err, ECH_E_SHAPE, "stack.create", -1, l->name, "layer '%s': %d samples of it do not fit in memory",
                                l->name, max_n);
        if (!extend(&end, l->weight_at, l->weights) || !extend(&end, l->bias_at, l->biases) || !extend(&end, l->running_at, l->running))
            return echi_fail_at(err, ECH_E_SHAPE, "stack.create", -1, l->name, "layer '%s': its parameters lie outside any memory",
                                l->name);
        ECHI_TRY(check_source(layers, i, echi_layer_takes(layers, i), l->op == ECHI_OP_FC, err));
        if (l->op == ECHI_OP_ADD) ECHI_TRY(check_source(layers, i, echi_layer_adds(layers, i), false, err));
    }
    for (int i = 0; i < count - 1; i++)
        if (echi_output_readers(layers, count, i + 1) == 0)
            return echi_fail_at(err, ECH_E_SHAPE, "stack.create", -1, layers[i].name, "layer '%s': no layer takes its output",
                                layers[i].name);
    if (!echi_mul_size(end, sizeof(echi_real), &bytes))
        return echi_fail(err, ECH_E_SHAPE, "stack.create", "%zu parameters do not fit in memory", end);
    *out_params_end = end;
    return ECH_OK;
}

int echi_stack_boundary(const struct echi_stack_unit *units, int count, int number) {
    while (count > 0 && units[count - 1].end > number) count--;
    return count;
}

static void release(struct echi_stack *stack) {
    free(stack->units);
    free(stack->reads);
    free(stack->owed);
    free(stack);
}

static ech_status check_stack(struct echi_device *device, const struct echi_stack_impl *impl, const struct echi_layer *layers, int count,
                              int max_n, size_t *out_params_end, struct ech_error *err) {
    if (device == NULL || layers == NULL || count < 1 || max_n < 1)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.create", "a stack needs a device, at least 1 layer (%d given) and room for at "
                         "least 1 sample (%d given)", count, max_n);
    const struct echi_device_info *info = echi_device_describe(device);
    if (impl->far == info->host_memory)
        return echi_fail(err, ECH_E_UNSUPPORTED, "stack.create", "the kernels '%s' are not for '%s' (%s); choose another device",
                         impl->name, info->backend, info->name);
    return check_layers(layers, count, max_n, out_params_end, err);
}

ech_status echi_stack_create_with(struct echi_device *device, const struct echi_stack_impl *impl, const struct echi_layer *layers,
                                  int count, int max_n, struct echi_stack **out, struct ech_error *err) {
    if (out == NULL) return echi_fail(err, ECH_E_ARGUMENT, "stack.create", "out is NULL");
    *out = NULL;
    size_t params_end = 0;
    ECHI_TRY(check_stack(device, impl, layers, count, max_n, &params_end, err));

    struct echi_stack *stack = calloc(1, sizeof *stack);
    if (stack == NULL) return echi_fail_memory(err, "stack.create", "a stack");
    *stack = (struct echi_stack){.impl = impl, .max_n = max_n, .in = layers[0].in, .out = layers[count - 1].out, .params_end = params_end};
    stack->units = calloc((size_t)count, sizeof *stack->units);
    stack->reads = calloc((size_t)count, sizeof *stack->reads);
    stack->owed = calloc((size_t)count + 1, sizeof *stack->owed);
    ech_status status = stack->units == NULL || stack->reads == NULL || stack->owed == NULL
                            ? echi_fail_memory(err, "stack.create", "a stack")
                            : impl->create(device, layers, count, max_n, &stack->state, stack->units, &stack->n_units, &stack->bytes, err);
    if (status != ECH_OK) {
        release(stack);
        return status;
    }
    for (int i = 0; i < count; i++) stack->drops = stack->drops || layers[i].op == ECHI_OP_DROPOUT;
    for (int u = 0; u < stack->n_units; u++) {
        const int i = stack->units[u].first, from = echi_layer_takes(layers, i);
        stack->reads[u].from = echi_stack_boundary(stack->units, u, from);
        stack->reads[u].also = echi_stack_boundary(stack->units, u, layers[i].op == ECHI_OP_ADD ? echi_layer_adds(layers, i) : from);
        stack->reads[u].norm = layers[i].op == ECHI_OP_BATCH_NORM ? layers[i].in.c : 0;
    }
    *out = stack;
    return ECH_OK;
}

#if !defined ECHI_DOUBLE && (!defined ECHI_WITHOUT_opencl || !defined ECHI_WITHOUT_cuda)
#define FAR(impl) &impl
#else
#define FAR(impl) NULL
#endif
#ifndef ECHI_DOUBLE
#define NEAR(impl) &impl
#else
#define NEAR(impl) &echi_stack_reference
#endif
const struct echi_stack_impl *echi_stack_usual(const struct echi_device *device) {
    return echi_device_describe(device)->host_memory ? NEAR(echi_stack_cpu) : FAR(echi_stack_gpu);
}

/* By kernels: of the host, and of devices that are not. NULL: the usual ones. */
static const struct { const struct echi_stack_impl *near, *far; } chosen[] = {
    [ECHI_KERNELS_FAST] = {NULL, NULL}, [ECHI_KERNELS_REFERENCE] = {&echi_stack_reference, &echi_stack_reference},
#ifndef ECHI_DOUBLE
    [ECHI_KERNELS_CLOSE] = {&echi_stack_cpu_close, NULL}, [ECHI_KERNELS_PLAIN] = {&echi_stack_cpu_plain, NULL},   /* GPUs' are all three */
    [ECHI_KERNELS_FIXED] = {&echi_stack_cpu_fixed, &echi_stack_cpu_fixed},   /* which is not for GPUs, and says so */
    [ECHI_KERNELS_BF16_FAST] = {&echi_stack_cpu_bf16, FAR(echi_stack_gpu_bf16)},
    [ECHI_KERNELS_BF16_CLOSE] = {&echi_stack_cpu_bf16_close, FAR(echi_stack_gpu_bf16)},
    [ECHI_KERNELS_BF16_PLAIN] = {&echi_stack_cpu_bf16_plain, FAR(echi_stack_gpu_bf16)},
    [ECHI_KERNELS_TF32_FAST] = {NULL, FAR(echi_stack_gpu_tf32)},
    [ECHI_KERNELS_TF32_CLOSE] = {&echi_stack_cpu_close, FAR(echi_stack_gpu_tf32)},
    [ECHI_KERNELS_TF32_PLAIN] = {&echi_stack_cpu_plain, FAR(echi_stack_gpu_tf32)},
#endif
};

const struct echi_stack_impl *echi_stack_chosen(const struct echi_device *device, enum echi_kernels kernels) {
    if ((size_t)kernels >= sizeof chosen / sizeof chosen[0]) return NULL;
    return echi_device_describe(device)->host_memory ? chosen[kernels].near : chosen[kernels].far;
}

/* Whoever gives no device is told so behind this. */
static const struct echi_stack_impl *impl_of(const struct echi_device *device, enum echi_kernels kernels) {
    const struct echi_stack_impl *impl = device == NULL ? &echi_stack_reference : echi_stack_chosen(device, kernels);
    return impl == NULL ? echi_stack_usual(device) : impl;
}

ech_status echi_stack_create(struct echi_device *device, enum echi_kernels kernels, const struct echi_layer *layers, int count,
                             int max_n, struct echi_stack **out, struct ech_error *err) {
    return echi_stack_create_with(device, impl_of(device, kernels), layers, count, max_n, out, err);
}

ech_status echi_stack_count(struct echi_device *device, enum echi_kernels kernels, const struct echi_layer *layers, int count, int max_n,
                            size_t *out_bytes, struct ech_error *err) {
    const struct echi_stack_impl *impl = impl_of(device, kernels);
    size_t params_end;
    int units = 0;
    *out_bytes = 0;
    ECHI_TRY(check_stack(device, impl, layers, count, max_n, &params_end, err));
    if (impl->far)
        return echi_fail(err, ECH_E_UNSUPPORTED, "stack.count", "what '%s' needs of a device's memory is known where it is made only",
                         impl->name);
    struct echi_stack_unit *unit = calloc((size_t)count, sizeof *unit);
    if (unit == NULL) return echi_fail_memory(err, "stack.count", "a stack");
    const ech_status status = impl->create(device, layers, count, max_n, NULL, unit, &units, out_bytes, err);
    free(unit);
    return status;
}

void echi_stack_destroy(struct echi_stack *stack) {
    if (stack == NULL) return;
    stack->impl->destroy(stack->state);
    release(stack);
}

size_t echi_stack_bytes(const struct echi_stack *stack) { return stack->bytes; }
int echi_stack_block(const struct echi_stack *stack) { return stack->impl->block ? stack->impl->block(stack->state) : 1; }
int echi_stack_units(const struct echi_stack *stack) { return stack->n_units; }

void echi_stack_unit(const struct echi_stack *stack, int unit, int *out_first, int *out_end) {
    bool there = unit >= 0 && unit < stack->n_units;
    *out_first = there ? stack->units[unit].first : 0;
    *out_end = there ? stack->units[unit].end : 0;
}

const char *echi_stack_kernel(const struct echi_stack *stack, int unit) {
    return unit >= 0 && unit < stack->n_units ? stack->units[unit].kernel : "";
}

const char *echi_stack_why(const struct echi_stack *stack, int unit) {
    return unit >= 0 && unit < stack->n_units ? stack->units[unit].why : "";
}

bool echi_stack_fallback(const struct echi_stack *stack, int unit) {
    return unit >= 0 && unit < stack->n_units && stack->units[unit].fallback;
}

size_t echi_stack_border_in(const struct echi_stack *stack) { return stack->impl->own_layout ? echi_shape_size(stack->in) : 0; }
size_t echi_stack_border_out(const struct echi_stack *stack) { return stack->impl->own_layout ? echi_shape_size(stack->out) : 0; }
size_t echi_stack_turned(const struct echi_stack *stack, int unit) {
    return unit >= 0 && unit < stack->n_units ? stack->units[unit].turned : 0;
}
int echi_stack_norm(const struct echi_stack *stack, int unit) { return unit >= 0 && unit < stack->n_units ? stack->reads[unit].norm : 0; }

/* --- checks of a call --- */

static ech_status need(const char *operation, bool present, const char *what, struct ech_error *err) {
    return present ? ECH_OK : echi_fail(err, ECH_E_ARGUMENT, operation, "%s is NULL", what);
}

static ech_status need_unit(const struct echi_stack *stack, const char *operation, int unit, struct ech_error *err) {
    if (unit >= 0 && unit < stack->n_units) return ECH_OK;
    return echi_fail(err, ECH_E_ARGUMENT, operation, "there is no unit %d; the stack has units 0 to %d", unit, stack->n_units - 1);
}

static ech_status need_floats(const struct echi_stack *stack, const char *operation, const struct echi_buffer *buffer,
                              const char *what, struct ech_error *err) {
    ECHI_TRY(need(operation, buffer != NULL, what, err));
    if (echi_buffer_host(buffer) == NULL || (uintptr_t)echi_buffer_host(buffer) % sizeof(echi_real) != 0)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%s must be floats in host memory", what);
    if (echi_buffer_bytes(buffer) / sizeof(echi_real) < stack->params_end)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%s has %zu bytes, but the layers' parameters reach to float %zu", what,
                         echi_buffer_bytes(buffer), stack->params_end);
    return ECH_OK;
}

/* All units have gone forward. */
static ech_status need_output(const struct echi_stack *stack, const char *operation, struct ech_error *err) {
    ECHI_TRY(need(operation, stack != NULL, "stack", err));
    if (stack->n == 0) return echi_fail(err, ECH_E_ARGUMENT, operation, "there is no input yet; call echi_stack_input first");
    if (stack->forward_next < stack->n_units)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "unit %d has not gone forward yet; call echi_stack_forward first",
                         stack->forward_next);
    return ECH_OK;
}

/* The place in a step where the gradient of the output is given: once. */
static ech_status need_no_gradient(const struct echi_stack *stack, const char *operation, struct ech_error *err) {
    ECHI_TRY(need_output(stack, operation, err));
    if (stack->backward_next < stack->n_units)
        return echi_fail(err, ECH_E_ARGUMENT, operation,
                         "the gradient of this step's output is set already; begin the next step with echi_stack_input");
    return ECH_OK;
}

static ech_status trouble(const struct echi_stack *stack, struct ech_error *err) {
    return stack->impl->trouble ? stack->impl->trouble(stack->state, err) : ECH_OK;
}

/* --- one step --- */

static void begin_backward(struct echi_stack *stack) {
    memset(stack->owed, 0, ((size_t)stack->n_units + 1) * sizeof *stack->owed);
    stack->backward_next = stack->n_units - 1;
}

ech_status echi_stack_input(struct echi_stack *stack, int n, const echi_real *rows, struct ech_error *err) {
    ECHI_TRY(need("stack.input", stack != NULL, "stack", err));
    ECHI_TRY(need("stack.input", rows != NULL, "rows", err));
    if (n < 1 || n > stack->max_n)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.input", "%d samples; the stack was made for 1 to %d", n, stack->max_n);
    stack->impl->input(stack->state, n, rows);
    ECHI_TRY(trouble(stack, err));
    stack->n = n;
    stack->trains = stack->summed = false;
    stack->forward_next = 0;
    stack->backward_next = stack->n_units;
    return ECH_OK;
}

ech_status echi_stack_train(struct echi_stack *stack, const struct echi_training *training, struct ech_error *err) {
    ECHI_TRY(need("stack.train", stack != NULL, "stack", err));
    ECHI_TRY(need("stack.train", training != NULL, "training", err));
    ECHI_TRY(need("stack.train", training->rows != NULL || !stack->drops, "rows", err));
    if (!(training->share > 0))
        return echi_fail(err, ECH_E_ARGUMENT, "stack.train", "share is %g; it must be above 0", (double)training->share);
    if (stack->n == 0) return echi_fail(err, ECH_E_ARGUMENT, "stack.train", "there is no input yet; call echi_stack_input first");
    if (stack->forward_next > 0)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.train",
                         "unit 0 has gone forward already; call echi_stack_train right after echi_stack_input");
    stack->impl->train(stack->state, training);
    stack->trains = true;
    return trouble(stack, err);
}

ech_status echi_stack_same_params(struct echi_stack *stack, struct ech_error *err) {
    ECHI_TRY(need("stack.same_params", stack != NULL, "stack", err));
    if (stack->n == 0) return echi_fail(err, ECH_E_ARGUMENT, "stack.same_params", "there is no input yet; call echi_stack_input first");
    if (stack->forward_next > 0)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.same_params",
                         "unit 0 has gone forward already; call echi_stack_same_params right after echi_stack_input");
    if (stack->impl->same_params) stack->impl->same_params(stack->state);
    return ECH_OK;
}

ech_status echi_stack_forward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct ech_error *err) {
    ECHI_TRY(need("stack.forward", stack != NULL, "stack", err));
    ECHI_TRY(need_unit(stack, "stack.forward", unit, err));
    ECHI_TRY(need_floats(stack, "stack.forward", params, "params", err));
    if (stack->n == 0) return echi_fail(err, ECH_E_ARGUMENT, "stack.forward", "there is no input yet; call echi_stack_input first");
    if (unit != stack->forward_next)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.forward",
                         "unit %d cannot go forward now; %d of %d units are done, and they go in order",
                         unit, stack->forward_next, stack->n_units);
    stack->impl->forward(stack->state, unit, echi_buffer_host(params));
    ECHI_TRY(trouble(stack, err));
    stack->forward_next++;
    stack->summed = false;
    return ECH_OK;
}

ech_status echi_stack_output(struct echi_stack *stack, echi_real *rows, struct ech_error *err) {
    ECHI_TRY(need_no_gradient(stack, "stack.output", err));
    ECHI_TRY(need("stack.output", rows != NULL, "rows", err));
    stack->impl->output(stack->state, rows);
    return trouble(stack, err);
}

ech_status echi_stack_loss(struct echi_stack *stack, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct,
                           struct ech_error *err) {
    ECHI_TRY(need_no_gradient(stack, "stack.loss", err));
    ECHI_TRY(need("stack.loss", labels != NULL, "labels", err));
    ECHI_TRY(need("stack.loss", out_loss != NULL && out_correct != NULL, "out_loss or out_correct", err));
    if (stack->out.h != 1 || stack->out.w != 1)
        return echi_fail(err, ECH_E_SHAPE, "stack.loss", "the output is %dx%dx%d; a loss needs a vector, one number a class",
                         stack->out.c, stack->out.h, stack->out.w);
    for (int s = 0; s < stack->n; s++)
        if (labels[s] >= stack->out.c)
            return echi_fail(err, ECH_E_ARGUMENT, "stack.loss", "label %d of sample %d of the batch is not below the %d outputs",
                             labels[s], s, stack->out.c);
    stack->impl->loss(stack->state, labels, scale, out_loss, out_correct);
    ECHI_TRY(trouble(stack, err));
    begin_backward(stack);
    return ECH_OK;
}

ech_status echi_stack_output_grad(struct echi_stack *stack, const echi_real *rows, struct ech_error *err) {
    ECHI_TRY(need_no_gradient(stack, "stack.output_grad", err));
    ECHI_TRY(need("stack.output_grad", rows != NULL, "rows", err));
    stack->impl->output_grad(stack->state, rows);
    ECHI_TRY(trouble(stack, err));
    begin_backward(stack);
    return ECH_OK;
}

static ech_status need_backward(const struct echi_stack *stack, int unit, const struct echi_buffer *params,
                                const struct echi_buffer *grads, struct ech_error *err) {
    ECHI_TRY(need_output(stack, "stack.backward", err));
    ECHI_TRY(need_unit(stack, "stack.backward", unit, err));
    ECHI_TRY(need_floats(stack, "stack.backward", params, "params", err));
    ECHI_TRY(need_floats(stack, "stack.backward", grads, "grads", err));
    if (stack->backward_next == stack->n_units)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.backward",
                         "the gradient of the output is not set yet; call echi_stack_loss or echi_stack_output_grad first");
    if (unit != stack->backward_next)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.backward",
                         "unit %d cannot go backward now; units go from the last to the first, and %d are left", unit,
                         stack->backward_next + 1);
    if (stack->owed[unit + 1] != 0)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.backward",
                         "unit %d has no gradient to start from; call echi_stack_backward of unit %d with need_input_grad", unit,
                         stack->owed[unit + 1] - 1);
    return ECH_OK;
}

static ech_status end_backward(struct echi_stack *stack, struct ech_error *err) {
    ECHI_TRY(trouble(stack, err));
    stack->backward_next--;
    stack->summed = false;
    return ECH_OK;
}

ech_status echi_stack_backward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct echi_buffer *grads,
                               bool need_input_grad, struct ech_error *err) {
    ECHI_TRY(need_backward(stack, unit, params, grads, err));
    stack->impl->backward(stack->state, unit, echi_buffer_host(params), echi_buffer_host(grads), need_input_grad);
    ECHI_TRY(end_backward(stack, err));
    if (!need_input_grad) stack->owed[stack->reads[unit].from] = stack->owed[stack->reads[unit].also] = unit + 1;
    return ECH_OK;
}

ech_status echi_stack_backward_inputs(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct echi_buffer *grads,
                                      struct ech_error *err) {
    if (!stack || !stack->impl->backward_inputs) return echi_stack_backward(stack, unit, params, grads, true, err);
    ECHI_TRY(need_backward(stack, unit, params, grads, err));
    stack->impl->backward_inputs(stack->state, unit, echi_buffer_host(params), echi_buffer_host(grads));
    return end_backward(stack, err);
}

ech_status echi_stack_backward_params(struct echi_stack *stack, int unit, struct echi_buffer *grads, struct ech_error *err) {
    ECHI_TRY(need_output(stack, "stack.backward_params", err));
    ECHI_TRY(need_unit(stack, "stack.backward_params", unit, err));
    ECHI_TRY(need_floats(stack, "stack.backward_params", grads, "grads", err));
    if (stack->backward_next != -1)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.backward_params",
                         "%d units have not gone backward yet; call echi_stack_backward_inputs first", stack->backward_next + 1);
    if (stack->impl->backward_params) stack->impl->backward_params(stack->state, unit, echi_buffer_host(grads));
    return trouble(stack, err);
}

ech_status echi_stack_grads(struct echi_stack *stack, int unit, struct ech_error *err) {
    ECHI_TRY(need_output(stack, "stack.grads", err));
    ECHI_TRY(need_unit(stack, "stack.grads", unit, err));
    if (unit <= stack->backward_next)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.grads", "unit %d has not gone backward yet; call echi_stack_backward first", unit);
    for (int u = stack->n_units - 1; u >= unit && stack->impl->grads; u--) stack->impl->grads(stack->state, u, true);
    return trouble(stack, err);
}

bool echi_stack_grads_there(const struct echi_stack *stack, int unit) {
    const bool gone = unit >= 0 && unit < stack->n_units && unit > stack->backward_next;
    return !gone || stack->impl->grads == NULL || stack->impl->grads(stack->state, unit, false);
}

/* --- a stop at a batch-norm --- */

static bool goes_backward(const struct echi_stack *stack) {
    return stack->forward_next == stack->n_units && stack->backward_next < stack->n_units;
}

/* It is this unit's turn, in a step that trains, and it begins with a batch-norm. */
static ech_status need_norm(const struct echi_stack *stack, const char *operation, int unit, struct ech_error *err) {
    ECHI_TRY(need(operation, stack != NULL, "stack", err));
    ECHI_TRY(need_unit(stack, operation, unit, err));
    if (stack->impl->norm_sums == NULL)
        return echi_fail(err, ECH_E_UNSUPPORTED, operation, "kernels '%s' do not stop at a batch-norm; choose another device",
                         stack->impl->name);
    if (stack->reads[unit].norm == 0) return echi_fail(err, ECH_E_ARGUMENT, operation, "unit %d does not begin with a batch-norm", unit);
    if (!stack->trains) return echi_fail(err, ECH_E_ARGUMENT, operation, "this step does not train; call echi_stack_train first");
    if (unit != (goes_backward(stack) ? stack->backward_next : stack->forward_next))
        return echi_fail(err, ECH_E_ARGUMENT, operation, "it is not unit %d that goes %s next", unit,
                         goes_backward(stack) ? "backward" : "forward");
    return ECH_OK;
}

ech_status echi_stack_norm_sums(struct echi_stack *stack, int unit, const struct echi_buffer *params, echi_real *out,
                                struct ech_error *err) {
    ECHI_TRY(need_norm(stack, "stack.norm_sums", unit, err));
    ECHI_TRY(need_floats(stack, "stack.norm_sums", params, "params", err));
    ECHI_TRY(need("stack.norm_sums", out != NULL, "out", err));
    stack->impl->norm_sums(stack->state, unit, goes_backward(stack), echi_buffer_host(params), out);
    stack->summed = true;
    return ECH_OK;
}

ech_status echi_stack_norm_take(struct echi_stack *stack, int unit, int n, const echi_real *all, struct ech_error *err) {
    ECHI_TRY(need_norm(stack, "stack.norm_take", unit, err));
    ECHI_TRY(need("stack.norm_take", all != NULL, "all", err));
    if (!stack->summed)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.norm_take", "unit %d has not given its own sums; call echi_stack_norm_sums first",
                         unit);
    if (n < stack->n && !goes_backward(stack))
        return echi_fail(err, ECH_E_ARGUMENT, "stack.norm_take", "statistics of %d samples cannot be of all: this stack alone has %d", n,
                         stack->n);
    stack->impl->norm_take(stack->state, unit, goes_backward(stack), n, all);
    return ECH_OK;
}

ech_status echi_stack_input_grad(struct echi_stack *stack, echi_real *rows, struct ech_error *err) {
    ECHI_TRY(need_output(stack, "stack.input_grad", err));
    ECHI_TRY(need("stack.input_grad", rows != NULL, "rows", err));
    if (stack->backward_next != -1 || stack->owed[0] != 0)
        return echi_fail(err, ECH_E_ARGUMENT, "stack.input_grad",
                         "the gradient of the input is not there; call echi_stack_backward with need_input_grad first, to unit 0");
    stack->impl->input_grad(stack->state, rows);
    return trouble(stack, err);
}
