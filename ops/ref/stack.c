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

/* Border 0 is the input, border i + 1 the output of layer i. */
struct border {
    echi_real *value;       /* [max_n][shape] */
    echi_real *gradient;    /* of the same shape */
    echi_real *factor;      /* of the same shape: the output of a dropout; else NULL */
    echi_real *mean;        /* of a batch-norm's channels, and behind them their variances: [2][c] */
    echi_real *sums, *all;  /* backward, [2][c]: over the own samples, and over all whose mean and variance these are */
    int of;                 /* so many samples; 0: not known yet */
    bool summed;            /* sums and all are there */
    bool given;             /* the gradient has a share already: others are added to it */
};
struct reference {
    int count, n;               /* layers; samples of the step under way */
    bool trains;
    echi_real of_round;         /* what part of a round it is, if it trains */
    struct echi_layer *layers;  /* [count] */
    struct border *borders;     /* [count + 1] */
    echi_real *share;           /* a share of a gradient on its way to the others, of any border's size */
    echi_real *memory;          /* holds all borders, and share */
};

static size_t border_size(const struct echi_layer *layers, int i) { return echi_shape_size(echi_output_shape(layers, i)); }
/* Arrays of its shape: value, gradient, and maybe factor. */
static size_t border_arrays(const struct echi_layer *layers, int i) { return i > 0 && layers[i - 1].op == ECHI_OP_DROPOUT ? 3 : 2; }

static size_t border_channels(const struct echi_layer *layers, int i) {
    return i > 0 && layers[i - 1].op == ECHI_OP_BATCH_NORM ? (size_t)layers[i - 1].out.c : 0;
}

/* What the two switches below have a case for: a kind of layer that they lack must not pass as computed. */
static bool computes(enum echi_op op) {
    switch (op) {
    case ECHI_OP_CONV2D:
    case ECHI_OP_FC:
    case ECHI_OP_MAX_POOL:
    case ECHI_OP_AVG_POOL:
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_RELU:
    case ECHI_OP_TANH:
    case ECHI_OP_ADD:
    case ECHI_OP_DROPOUT:
    case ECHI_OP_BATCH_NORM: return true;
    case ECHI_OPS: break;
    }
    return false;
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
    size_t floats = 0, share = 0, bytes = 0;
    for (int i = 0; i < count; i++)
        if (!computes(layers[i].op))
            return echi_fail_at(err, ECH_E_UNSUPPORTED, "stack.create", -1, layers[i].name,
                                "layer '%s' (%s) is computed by no kernels and not by the reference: use another layer", layers[i].name,
                                echi_op_name(layers[i].op));
    bool fits = true;
    for (int i = 0; i <= count; i++) {
        size_t border = 0;
        fits = fits && echi_mul_size(border_size(layers, i), border_arrays(layers, i) * (size_t)max_n, &border) &&
               echi_add_size(floats, border, &floats) &&
               echi_add_size(floats, 6 * border_channels(layers, i), &floats);
        if (border > share) share = border;
    }
    if (!fits || !echi_add_size(floats, share, &floats) || !echi_mul_size(floats, sizeof(echi_real), &bytes))
        return echi_fail(err, ECH_E_SHAPE, "stack.create", "the activations of %d samples do not fit in memory; use fewer", max_n);
    *out_units = count;
    *out_bytes = bytes;
    for (int i = 0; i < count; i++) {
        units[i].first = i;
        units[i].end = i + 1;
        snprintf(units[i].kernel, sizeof units[i].kernel, "%s reference", echi_op_name(layers[i].op));
    }
    if (out_state == NULL) return ECH_OK;

    struct reference *r = calloc(1, sizeof *r);
    if (r == NULL) return echi_fail_memory(err, "stack.create", "a stack");
    r->count = count;
    r->layers = malloc((size_t)count * sizeof *r->layers);
    r->borders = calloc((size_t)count + 1, sizeof *r->borders);
    r->memory = echi_alloc_aligned(bytes);
    if (r->layers == NULL || r->borders == NULL || r->memory == NULL) {
        reference_destroy(r);
        return echi_fail(err, ECH_E_MEMORY, "stack.create", "no memory for %zu bytes of activations; use a smaller batch or model", bytes);
    }
    memcpy(r->layers, layers, (size_t)count * sizeof *layers);

    echi_real *next = r->memory;
    for (int i = 0; i <= count; i++) {
        size_t size = border_size(layers, i) * (size_t)max_n;
        r->borders[i] = (struct border){.value = next, .gradient = next + size};
        if (border_arrays(layers, i) > 2) r->borders[i].factor = next + 2 * size;
        next += border_arrays(layers, i) * size;
        r->borders[i].mean = next;
        r->borders[i].sums = next + 2 * border_channels(layers, i);
        r->borders[i].all = next + 4 * border_channels(layers, i);
        next += 6 * border_channels(layers, i);
    }
    r->share = next;
    *out_state = r;
    return ECH_OK;
}

static size_t border_count(const struct reference *r, int i) { return (size_t)r->n * border_size(r->layers, i); }
static size_t border_bytes(const struct reference *r, int i) { return border_count(r, i) * sizeof(echi_real); }

static void begin(struct reference *r, int n) {
    r->n = n;
    r->trains = false;
    for (int i = 0; i <= r->count; i++) {
        r->borders[i].of = 0;
        r->borders[i].summed = false;
    }
}

static void reference_input(void *state, int n, const echi_real *rows) {
    struct reference *r = state;
    begin(r, n);
    memcpy(r->borders[0].value, rows, border_bytes(r, 0));
}

static void reference_train(void *state, const struct echi_training *training) {
    struct reference *r = state;
    r->trains = true;
    r->of_round = training->share;
    for (int i = 0; i < r->count; i++)
        for (int s = 0; s < r->n && r->layers[i].op == ECHI_OP_DROPOUT; s++)
            echi_dropout_factors(&r->layers[i], training->seed, training->rows[s],
                                 r->borders[i + 1].factor + (size_t)s * border_size(r->layers, i + 1));
}

static void norm_statistics(struct reference *r, int unit) {
    const struct echi_layer *l = &r->layers[unit];
    struct border *b = &r->borders[unit + 1];
    ECHI_REF(batch_norm_statistics)(l, r->n, r->borders[echi_layer_takes(r->layers, unit)].value, b->mean, b->mean + l->in.c);
    b->of = r->n;
}

static void norm_forward(struct reference *r, int unit, const echi_real *params, const echi_real *x, echi_real *y) {
    const struct echi_layer *l = &r->layers[unit];
    const struct border *b = &r->borders[unit + 1];
    if (!r->trains) memcpy(b->mean, params + l->running_at, l->running * sizeof *b->mean);
    else if (b->of == 0) norm_statistics(r, unit);
    ECHI_REF(batch_norm_forward)(l, r->n, x, params + l->weight_at, params + l->bias_at, b->mean, b->mean + l->in.c, y);
}

static void norm_back_sums(struct reference *r, int unit) {
    const struct echi_layer *l = &r->layers[unit];
    struct border *b = &r->borders[unit + 1];
    const echi_real *x = r->borders[echi_layer_takes(r->layers, unit)].value;
    ECHI_REF(batch_norm_sums)(l, r->n, x, b->gradient, b->mean, b->mean + l->in.c, b->sums);
    memcpy(b->all, b->sums, l->running * sizeof *b->all);
    b->summed = true;
}

static void norm_backward(struct reference *r, int unit, const echi_real *params, const echi_real *x, const echi_real *dy, echi_real *grads,
                          echi_real *dx) {
    const struct echi_layer *l = &r->layers[unit];
    const struct border *b = &r->borders[unit + 1];
    const echi_real *variance = b->mean + l->in.c;
    if (!b->summed) norm_back_sums(r, unit);
    memcpy(grads + l->bias_at, b->sums, l->biases * sizeof *grads);
    memcpy(grads + l->weight_at, b->sums + l->in.c, l->weights * sizeof *grads);
    if (dx) ECHI_REF(batch_norm_backward)(l, r->n, x, dy, params + l->weight_at, b->mean, variance, r->trains ? b->all : NULL, b->of, dx);
    if (r->trains) echi_norm_running_grad(l, b->of, params, b->mean, variance, r->of_round, grads);
    else memset(grads + l->running_at, 0, l->running * sizeof *grads);
}

static void reference_norm_sums(void *state, int unit, bool backward, const echi_real *params, echi_real *out) {
    struct reference *r = state;
    const struct border *b = &r->borders[unit + 1];
    (void)params;
    if (backward) norm_back_sums(r, unit);
    else norm_statistics(r, unit);
    memcpy(out, backward ? b->sums : b->mean, r->layers[unit].running * sizeof *out);
}

static void reference_norm_take(void *state, int unit, bool backward, int n, const echi_real *all) {
    struct reference *r = state;
    struct border *b = &r->borders[unit + 1];
    memcpy(backward ? b->all : b->mean, all, r->layers[unit].running * sizeof *all);
    if (!backward) b->of = n;
}

static void reference_forward(void *state, int unit, const echi_real *params) {
    struct reference *r = state;
    const struct echi_layer *l = &r->layers[unit];
    const echi_real *x = r->borders[echi_layer_takes(r->layers, unit)].value;
    echi_real *y = r->borders[unit + 1].value;
    const echi_real *weight = params + l->weight_at;
    const echi_real *bias = l->bias ? params + l->bias_at : NULL;
    switch (l->op) {
    case ECHI_OP_CONV2D: ECHI_REF(conv2d_forward)(l, r->n, x, weight, bias, y); break;
    case ECHI_OP_FC: ECHI_REF(fc_forward)(l, r->n, x, weight, bias, y); break;
    case ECHI_OP_MAX_POOL: ECHI_REF(max_pool_forward)(l, r->n, x, y); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: ECHI_REF(avg_pool_forward)(l, r->n, x, y); break;
    case ECHI_OP_RELU: ECHI_REF(relu_forward)(l, r->n, x, y); break;
    case ECHI_OP_TANH: ECHI_REF(tanh_forward)(border_count(r, unit + 1), x, y); break;
    case ECHI_OP_ADD: ECHI_REF(add)(border_count(r, unit + 1), x, r->borders[echi_layer_adds(r->layers, unit)].value, y); break;
    case ECHI_OP_DROPOUT:
        if (r->trains) ECHI_REF(dropout)(border_count(r, unit + 1), x, r->borders[unit + 1].factor, y);
        else memcpy(y, x, border_bytes(r, unit + 1));
        break;
    case ECHI_OP_BATCH_NORM: norm_forward(r, unit, params, x, y); break;
    case ECHI_OPS: break;
    }
}

/* All gradients but the output's are still to come. */
static void begin_backward(struct reference *r) {
    for (int i = 0; i < r->count; i++) r->borders[i].given = false;
}

static void reference_output(void *state, echi_real *rows) {
    struct reference *r = state;
    memcpy(rows, r->borders[r->count].value, border_bytes(r, r->count));
}

static void reference_loss(void *state, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct) {
    struct reference *r = state;
    const struct border *out = &r->borders[r->count];
    ECHI_REF(softmax_cross_entropy)(r->n, r->layers[r->count - 1].out.c, out->value, labels, scale, out->gradient, out_loss,
                                   out_correct);
    begin_backward(r);
}

static void reference_output_grad(void *state, const echi_real *rows) {
    struct reference *r = state;
    memcpy(r->borders[r->count].gradient, rows, border_bytes(r, r->count));
    begin_backward(r);
}

/* A share of a border's gradient is put where share_of says; then `give` adds it to those that are there. */
static echi_real *share_of(const struct reference *r, int i) { return r->borders[i].given ? r->share : r->borders[i].gradient; }
static void give(struct reference *r, int i) {
    struct border *b = &r->borders[i];
    if (b->given) ECHI_REF(add)(border_count(r, i), b->gradient, r->share, b->gradient);
    b->given = true;
}

static void reference_backward(void *state, int unit, const echi_real *params, echi_real *grads, bool need_input_grad) {
    struct reference *r = state;
    const struct echi_layer *l = &r->layers[unit];
    const int from = echi_layer_takes(r->layers, unit);
    const echi_real *x = r->borders[from].value;
    const echi_real *dy = r->borders[unit + 1].gradient;
    echi_real *dx = share_of(r, from);
    const echi_real *weight = params + l->weight_at;
    echi_real *dweight = grads + l->weight_at;
    echi_real *dbias = l->bias ? grads + l->bias_at : NULL;
    if (l->op == ECHI_OP_CONV2D) ECHI_REF(conv2d_backward_params)(l, r->n, x, dy, dweight, dbias);
    if (l->op == ECHI_OP_FC) ECHI_REF(fc_backward_params)(l, r->n, x, dy, dweight, dbias);
    if (l->op == ECHI_OP_BATCH_NORM) norm_backward(r, unit, params, x, dy, grads, need_input_grad ? dx : NULL);
    if (!need_input_grad) return;
    switch (l->op) {
    case ECHI_OP_CONV2D: ECHI_REF(conv2d_backward_input)(l, r->n, dy, weight, dx); break;
    case ECHI_OP_FC: ECHI_REF(fc_backward_input)(l, r->n, dy, weight, dx); break;
    case ECHI_OP_MAX_POOL: ECHI_REF(max_pool_backward)(l, r->n, x, dy, dx); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: ECHI_REF(avg_pool_backward)(l, r->n, dy, dx); break;
    case ECHI_OP_RELU: ECHI_REF(relu_backward)(l, r->n, x, dy, dx); break;
    case ECHI_OP_TANH: ECHI_REF(tanh_backward)(border_count(r, unit + 1), r->borders[unit + 1].value, dy, dx); break;
    case ECHI_OP_ADD: {
        memcpy(dx, dy, border_bytes(r, unit + 1));
        give(r, from);
        const int also = echi_layer_adds(r->layers, unit);
        memcpy(share_of(r, also), dy, border_bytes(r, unit + 1));
        return give(r, also);
    }
    case ECHI_OP_DROPOUT:
        if (r->trains) ECHI_REF(dropout)(border_count(r, unit + 1), dy, r->borders[unit + 1].factor, dx);
        else memcpy(dx, dy, border_bytes(r, unit + 1));
        break;
    case ECHI_OP_BATCH_NORM:
    case ECHI_OPS: break;
    }
    give(r, from);
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
    .train = reference_train,
    .forward = reference_forward,
    .output = reference_output,
    .loss = reference_loss,
    .output_grad = reference_output_grad,
    .backward = reference_backward,
    .input_grad = reference_input_grad,
    .norm_sums = reference_norm_sums,
    .norm_take = reference_norm_take,
};

/* --- one layer, for another implementation --- */

ech_status echi_ref_unit_create(const struct echi_layer *layer, int max_n, void **out_state, size_t *out_bytes, struct ech_error *err) {
    struct echi_layer alone = *layer;
    struct echi_stack_unit unit;
    int units;
    alone.skip = 0;
    /* It has one input, and a step does not stop in it. */
    if (layer->op == ECHI_OP_ADD || layer->op == ECHI_OP_BATCH_NORM)
        return echi_fail_at(err, ECH_E_UNSUPPORTED, "stack.create", -1, layer->name,
                            "layer '%s' (%s) has no kernels here and cannot be left to the reference by itself: choose another device",
                            layer->name, echi_op_name(layer->op));
    return reference_create(NULL, &alone, 1, max_n, out_state, &unit, &units, out_bytes, err);
}

struct echi_ref_rows echi_ref_unit_rows(const void *state) {
    const struct border *b = ((const struct reference *)state)->borders;
    return (struct echi_ref_rows){b[0].value, b[1].value, b[1].gradient, b[0].gradient};
}

void echi_ref_unit_begin(void *state, int n) { begin(state, n); }

void echi_ref_unit_backward(void *state, const echi_real *params, echi_real *grads, bool need_input_grad) {
    begin_backward(state);
    reference_backward(state, 0, params, grads, need_input_grad);
}
