/* SPDX-License-Identifier: Apache-2.0
 * The reference stack: one unit per layer, every activation and every gradient kept in an array of its own. */
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_ref.h"
#include "echi_stack_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Border i lies before layer i; border `count` is the output. */
struct border {
    echi_real *value;       /* [max_n][shape before layer i] */
    echi_real *gradient;    /* of the same shape */
};
struct reference {
    int count, n;               /* layers; samples of the step under way */
    struct echi_layer *layers;  /* [count] */
    struct border *borders;     /* [count + 1] */
    echi_real *memory;              /* holds all borders */
};

static size_t border_size(const struct echi_layer *layers, int count, int i) {
    return echi_shape_size(i < count ? layers[i].in : layers[count - 1].out);
}

static void reference_destroy(void *state) {
    struct reference *r = state;
    echi_free_aligned(r->memory);
    free(r->borders);
    free(r->layers);
    free(r);
}

static ech_status reference_create(struct echi_device *device, const struct echi_layer *layers, int count, int max_n,
                                   void **out_state, struct echi_stack_unit *units, int *out_units, size_t *out_bytes,
                                   struct ech_error *err) {
    (void)device;
    size_t floats = 0, bytes = 0;
    bool fits = true;
    for (int i = 0; i <= count; i++) {
        size_t border = 0;
        fits = fits && echi_mul_size(border_size(layers, count, i), 2 * (size_t)max_n, &border) && echi_add_size(floats, border, &floats);
    }
    if (!fits || !echi_mul_size(floats, sizeof(echi_real), &bytes))
        return echi_fail(err, ECH_E_SHAPE, "stack.create", "the activations of %d samples do not fit in memory; use fewer", max_n);

    struct reference *r = calloc(1, sizeof *r);
    if (r == NULL) return echi_fail_memory(err, "stack.create", "a stack");
    r->count = count;
    r->layers = malloc((size_t)count * sizeof *r->layers);
    r->borders = calloc((size_t)count + 1, sizeof *r->borders);
    r->memory = echi_alloc_aligned(bytes);
    if (r->layers == NULL || r->borders == NULL || r->memory == NULL) {
        reference_destroy(r);
        return echi_fail(err, ECH_E_MEMORY, "stack.create", "no memory for %zu bytes of activations; use fewer samples a step", bytes);
    }
    memcpy(r->layers, layers, (size_t)count * sizeof *layers);

    echi_real *next = r->memory;
    for (int i = 0; i <= count; i++) {
        size_t size = border_size(layers, count, i) * (size_t)max_n;
        r->borders[i] = (struct border){.value = next, .gradient = next + size};
        next += 2 * size;
    }
    for (int i = 0; i < count; i++) {
        units[i].first = i;
        units[i].end = i + 1;
        snprintf(units[i].kernel, sizeof units[i].kernel, "%s reference", echi_op_name(layers[i].op));
    }
    *out_units = count;
    *out_bytes = bytes;
    *out_state = r;
    return ECH_OK;
}

static size_t border_bytes(const struct reference *r, int i) {
    return (size_t)r->n * border_size(r->layers, r->count, i) * sizeof(echi_real);
}

static void reference_input(void *state, int n, const echi_real *rows) {
    struct reference *r = state;
    r->n = n;
    memcpy(r->borders[0].value, rows, border_bytes(r, 0));
}

static void reference_forward(void *state, int unit, const echi_real *params) {
    struct reference *r = state;
    const struct echi_layer *l = &r->layers[unit];
    const echi_real *x = r->borders[unit].value;
    echi_real *y = r->borders[unit + 1].value;
    const echi_real *weight = params + l->weight_at;
    const echi_real *bias = l->bias ? params + l->bias_at : NULL;
    switch (l->op) {
    case ECHI_OP_CONV2D: ECHI_REF(conv2d_forward)(l, r->n, x, weight, bias, y); break;
    case ECHI_OP_FC: ECHI_REF(fc_forward)(l, r->n, x, weight, bias, y); break;
    case ECHI_OP_MAX_POOL: ECHI_REF(max_pool_forward)(l, r->n, x, y); break;
    case ECHI_OP_AVG_POOL: ECHI_REF(avg_pool_forward)(l, r->n, x, y); break;
    case ECHI_OP_RELU: ECHI_REF(relu_forward)(l, r->n, x, y); break;
    }
}

static void reference_output(void *state, echi_real *rows) {
    struct reference *r = state;
    memcpy(rows, r->borders[r->count].value, border_bytes(r, r->count));
}

static void reference_loss(void *state, const uint8_t *labels, echi_real scale, double *out_loss, int *out_correct) {
    struct reference *r = state;
    const struct border *out = &r->borders[r->count];
    ECHI_REF(softmax_cross_entropy)(r->n, r->layers[r->count - 1].out.c, out->value, labels, scale, out->gradient, out_loss,
                                   out_correct);
}

static void reference_output_grad(void *state, const echi_real *rows) {
    struct reference *r = state;
    memcpy(r->borders[r->count].gradient, rows, border_bytes(r, r->count));
}

static void reference_backward(void *state, int unit, const echi_real *params, echi_real *grads, bool need_input_grad) {
    struct reference *r = state;
    const struct echi_layer *l = &r->layers[unit];
    const echi_real *x = r->borders[unit].value;
    const echi_real *dy = r->borders[unit + 1].gradient;
    echi_real *dx = r->borders[unit].gradient;
    const echi_real *weight = params + l->weight_at;
    echi_real *dweight = grads + l->weight_at;
    echi_real *dbias = l->bias ? grads + l->bias_at : NULL;
    if (l->op == ECHI_OP_CONV2D) ECHI_REF(conv2d_backward_params)(l, r->n, x, dy, dweight, dbias);
    if (l->op == ECHI_OP_FC) ECHI_REF(fc_backward_params)(l, r->n, x, dy, dweight, dbias);
    if (!need_input_grad) return;
    switch (l->op) {
    case ECHI_OP_CONV2D: ECHI_REF(conv2d_backward_input)(l, r->n, dy, weight, dx); break;
    case ECHI_OP_FC: ECHI_REF(fc_backward_input)(l, r->n, dy, weight, dx); break;
    case ECHI_OP_MAX_POOL: ECHI_REF(max_pool_backward)(l, r->n, x, dy, dx); break;
    case ECHI_OP_AVG_POOL: ECHI_REF(avg_pool_backward)(l, r->n, dy, dx); break;
    case ECHI_OP_RELU: ECHI_REF(relu_backward)(l, r->n, x, dy, dx); break;
    }
}

static void reference_input_grad(void *state, echi_real *rows) {
    struct reference *r = state;
    memcpy(rows, r->borders[0].gradient, border_bytes(r, 0));
}

const struct echi_stack_impl echi_stack_reference = {
    .name = "reference",
    .create = reference_create,
    .destroy = reference_destroy,
    .input = reference_input,
    .forward = reference_forward,
    .output = reference_output,
    .loss = reference_loss,
    .output_grad = reference_output_grad,
    .backward = reference_backward,
    .input_grad = reference_input_grad,
};
