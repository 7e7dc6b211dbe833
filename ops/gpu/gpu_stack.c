/* SPDX-License-Identifier: Apache-2.0
 * The steps of a stack on a device that is not the host: see echi_gpu_stack.h. */
#include "echi_error.h"
#include "echi_gpu_stack.h"

#include <string.h>

static ech_status gpu_trouble(void *state, struct ech_error *err) {
    const struct echi_gpu_stack *g = state;
    if (g->status != ECH_OK && err != NULL) *err = g->err;
    return g->status;
}

static void stage_in(struct echi_gpu_stack *g, struct echi_buffer *to, size_t place, const void *rows, size_t bytes) {
    memcpy(echi_gpu_staged(g, place), rows, bytes);
    echi_gpu_copy_in(g, g->queue, to, echi_gpu_staged(g, place), bytes);
}

static void stage_out(struct echi_gpu_stack *g, const struct echi_buffer *from, size_t place, void *rows, size_t bytes) {
    echi_gpu_copy_out(g, g->queue, from, echi_gpu_staged(g, place), bytes);
    echi_gpu_wait_for(g, g->queue, echi_gpu_mark(g, g->queue));
    if (echi_gpu_fine(g)) memcpy(rows, echi_gpu_staged(g, place), bytes);
}

/* What was staged for the step before may be written over now. */
static void gpu_input(void *state, int n, const echi_real *rows) {
    struct echi_gpu_stack *g = state;
    if (g->busy) echi_gpu_wait(g);
    for (int i = 0; i < g->count; i++) g->own[i].owed = false;
    g->n = n;
    if (n != g->planned && echi_gpu_fine(g)) g->status = echi_gpu_plan_products(g, n, &g->err);
    g->trains = g->same = false;
    stage_in(g, g->borders[0].value, g->rows_in, rows, echi_gpu_border_bytes(g, 0));
}

static void gpu_same_params(void *state) { ((struct echi_gpu_stack *)state)->same = true; }

static void gpu_train(void *state, const struct echi_training *training) {
    struct echi_gpu_stack *g = state;
    g->trains = true;
    g->of_round = training->share;
    for (int i = 0; i < g->count; i++) {
        if (g->layers[i].op != ECHI_OP_DROPOUT) continue;
        echi_real *factors = echi_gpu_staged(g, g->own[i].staged);
        const size_t size = echi_gpu_border_size(g->layers, i + 1);
        for (int s = 0; s < g->n; s++)
            echi_dropout_factors(&g->layers[i], training->seed, training->rows[s], factors + (size_t)s * size);
        echi_gpu_copy_in(g, g->queue, g->borders[i + 1].extra, factors, echi_gpu_border_bytes(g, i + 1));
    }
}

/* Nothing of the step before is under way, so they may be written over; what computes with them comes behind. */
static void params_in(struct echi_gpu_stack *g, const struct echi_layer *l, struct echi_gpu_own *own, const echi_real *params) {
    const bool news = !(g->same && own->known) && l->weights > 0, averages = l->running > 0 && !g->trains;
    if (news) echi_gpu_copy_in(g, g->copies, own->weight, params + l->weight_at, l->weights * sizeof *params);
    if (news && l->biases > 0) echi_gpu_copy_in(g, g->copies, own->bias, params + l->bias_at, l->biases * sizeof *params);
    if (averages) echi_gpu_copy_in(g, g->copies, own->stats, params + l->running_at, l->running * sizeof *params);
    if (news || averages) echi_gpu_order(g, g->copies, g->queue);
    own->known = own->known || news;
}

static void norm_forward(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own, bool relu,
                         struct echi_buffer *x, struct echi_buffer *y) {
    const struct echi_window w = echi_gpu_window_of(l, g->n);
    const size_t channels = (size_t)l->in.c, places = echi_gpu_map(l->in);
    if (g->trains) {
        const size_t groups = echi_gpu_groups_of_channel(g, l, (size_t)g->n), share = echi_gpu_blocks((size_t)g->n * places, groups);
        struct echi_buffer *to = groups > 1 ? g->parts : own->stats;
        LAUNCH(g, K_norm_statistics, channels, groups, 1, BUFFER(x), BUFFER(to), INT(channels), INT(places), INT((size_t)g->n * places),
               INT(share));
        if (groups > 1)
            LAUNCH(g, K_norm_join_statistics, echi_gpu_blocks(channels, ECHI_GPU_ITEMS), 1, 1, BUFFER(to), BUFFER(own->stats),
                   INT(channels), INT((size_t)g->n * places), INT(share), INT(groups));
    }
    LAUNCH_EACH(g, K_norm_forward, (size_t)g->n * channels * places, BUFFER(x), BUFFER(own->stats), BUFFER(own->weight), BUFFER(own->bias),
                BUFFER(y), INT(relu), FLOAT(ECHI_NORM_EPSILON), VALUE(w));
}

static void gpu_forward(void *state, int unit, const echi_real *params) {
    struct echi_gpu_stack *g = state;
    const int i = g->units[unit].first, end = g->units[unit].end;
    const bool relu = g->units[unit].relu;
    const struct echi_layer *l = &g->layers[i];
    struct echi_gpu_own *own = &g->own[i];
    const struct echi_window w = echi_gpu_window_of(l, g->n);
    const size_t count = echi_gpu_border_count(g, end);
    struct echi_buffer *x = g->borders[echi_layer_takes(g->layers, i)].value, *y = g->borders[end].value, *extra = g->borders[end].extra;
    params_in(g, l, own, params);
    switch (l->op) {
    case ECHI_OP_CONV2D:
    case ECHI_OP_FC: echi_gpu_product_forward(g, i, relu, x, y); break;
    case ECHI_OP_MAX_POOL: LAUNCH_EACH(g, K_max_pool_forward, count, BUFFER(x), BUFFER(y), BUFFER(extra), VALUE(w)); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: LAUNCH_EACH(g, K_avg_pool_forward, count, BUFFER(x), BUFFER(y), VALUE(w)); break;
    case ECHI_OP_RELU: LAUNCH_EACH(g, K_relu_forward, count, BUFFER(x), BUFFER(y)); break;
    case ECHI_OP_TANH: LAUNCH_EACH(g, K_tanh_forward, count, BUFFER(x), BUFFER(y)); break;
    case ECHI_OP_ADD:
        LAUNCH_EACH(g, relu ? K_add_relu : K_add, count, BUFFER(x), BUFFER(g->borders[echi_layer_adds(g->layers, i)].value), BUFFER(y));
        break;
    case ECHI_OP_DROPOUT:
        if (g->trains) LAUNCH_EACH(g, K_multiply, count, BUFFER(x), BUFFER(extra), BUFFER(y));
        else echi_gpu_copy(g, y, x, echi_gpu_border_bytes(g, end));
        break;
    case ECHI_OP_BATCH_NORM: norm_forward(g, l, own, relu, x, y); break;
    case ECHI_OPS: break;
    }
}

/* All gradients but the output's are still to come. */
static void begin_backward(struct echi_gpu_stack *g) {
    for (int i = 0; i <= g->count; i++) g->borders[i].given = g->borders[i].rectified = false;
}

static void gpu_output(void *state, echi_real *rows) {
    struct echi_gpu_stack *g = state;
    stage_out(g, g->borders[g->count].value, g->rows_out, rows, echi_gpu_border_bytes(g, g->count));
}

static void gpu_loss(void *state, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct) {
    struct echi_gpu_stack *g = state;
    const size_t n = (size_t)g->n;
    const struct echi_gpu_border *out = &g->borders[g->count];
    int32_t *wanted = echi_gpu_staged(g, g->labels_in), *correct = echi_gpu_staged(g, g->correct_out);
    float *loss = echi_gpu_staged(g, g->loss_out);
    for (size_t s = 0; s < n; s++) wanted[s] = labels[s];
    echi_gpu_copy_in(g, g->queue, g->labels, wanted, n * sizeof *wanted);
    LAUNCH_EACH(g, K_softmax_loss, n, BUFFER(out->value), BUFFER(g->labels), FLOAT(scale), BUFFER(out->gradient), BUFFER(g->loss),
                BUFFER(g->correct), INT(g->layers[g->count - 1].out.c));
    echi_gpu_copy_out(g, g->queue, g->loss, loss, n * sizeof *loss);
    echi_gpu_copy_out(g, g->queue, g->correct, correct, n * sizeof *correct);
    echi_gpu_wait_for(g, g->queue, echi_gpu_mark(g, g->queue));
    *out_loss = 0;
    *out_correct = 0;
    for (size_t s = 0; s < n && echi_gpu_fine(g); s++) *out_loss += loss[s], *out_correct += correct[s];
    begin_backward(g);
}

static void gpu_output_grad(void *state, const echi_real *rows) {
    struct echi_gpu_stack *g = state;
    stage_in(g, g->borders[g->count].gradient, g->grads_in, rows, echi_gpu_border_bytes(g, g->count));
    begin_backward(g);
}

/* A share of a border's gradient is put where share_of says; then `give` adds it to those that are there. */
static struct echi_buffer *share_of(const struct echi_gpu_stack *g, int i) {
    return g->borders[i].given ? g->share : g->borders[i].gradient;
}
static void give(struct echi_gpu_stack *g, int i, bool rectified) {
    struct echi_gpu_border *b = &g->borders[i];
    if (b->given) LAUNCH_EACH(g, K_add, echi_gpu_border_count(g, i), BUFFER(b->gradient), BUFFER(g->share), BUFFER(b->gradient));
    b->rectified = rectified && (b->rectified || !b->given);
    b->given = true;
}

/* --- gradients of parameters --- */

static void norm_backward_params(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own,
                                 struct echi_buffer *x, struct echi_buffer *dy) {
    const size_t channels = (size_t)l->in.c, places = echi_gpu_map(l->in);
    const size_t groups = echi_gpu_groups_of_channel(g, l, (size_t)g->n);
    LAUNCH(g, K_norm_sums_backward, channels, groups, 1, BUFFER(x), BUFFER(dy), BUFFER(own->stats), BUFFER(g->parts), INT(channels),
           INT(places), INT((size_t)g->n * places), INT(echi_gpu_blocks((size_t)g->n * places, groups)));
    LAUNCH(g, K_norm_backward_params, echi_gpu_blocks(channels, ECHI_GPU_ITEMS), 1, 1, BUFFER(g->parts), BUFFER(own->stats),
           BUFFER(own->dweight), BUFFER(own->dbias), FLOAT(ECHI_NORM_EPSILON), INT(channels), INT(groups));
}

/* The unit's gradients set out for their places. */
static void grads_out(struct echi_gpu_stack *g, const struct echi_layer *l, struct echi_gpu_own *own, const echi_real *params,
                      echi_real *grads) {
    if (echi_layer_params(l) == 0) return;
    echi_gpu_order(g, g->queue, g->copies);
    if (l->weights > 0) echi_gpu_copy_out(g, g->copies, own->dweight, grads + l->weight_at, l->weights * sizeof *grads);
    if (l->biases > 0) echi_gpu_copy_out(g, g->copies, own->dbias, grads + l->bias_at, l->biases * sizeof *grads);
    if (l->running > 0) echi_gpu_copy_out(g, g->copies, own->stats, echi_gpu_staged(g, own->staged), l->running * sizeof *grads);
    own->event = echi_gpu_mark(g, g->copies);
    own->params = params;
    own->grads = grads;
    own->owed = true;
}

static bool gpu_grads(void *state, int unit, bool waits) {
    struct echi_gpu_stack *g = state;
    const struct echi_layer *l = &g->layers[g->units[unit].first];
    struct echi_gpu_own *own = &g->own[g->units[unit].first];
    if (!own->owed || !echi_gpu_fine(g)) return true;   /* what is wrong, ops/stack.c asks for */
    if (!waits && !echi_event_done(g->copies, own->event)) return false;
    echi_gpu_wait_for(g, g->copies, own->event);
    const echi_real *stats = echi_gpu_staged(g, own->staged);
    if (l->running > 0 && g->trains && echi_gpu_fine(g))
        echi_norm_running_grad(l, g->n, own->params, stats, stats + l->in.c, g->of_round, own->grads);
    else if (l->running > 0) memset(own->grads + l->running_at, 0, l->running * sizeof *own->grads);
    own->owed = false;
    return true;
}

/* --- gradients of inputs --- */

static void norm_backward_input(struct echi_gpu_stack *g, const struct echi_layer *l, const struct echi_gpu_own *own,
                                const struct echi_gpu_border *from, struct echi_buffer *dy, struct echi_buffer *dx) {
    const struct echi_window w = echi_gpu_window_of(l, g->n);
    const size_t per_channel = (size_t)g->n * echi_gpu_map(l->in);
    LAUNCH_EACH(g, K_norm_backward_input, per_channel * (size_t)l->in.c, BUFFER(from->value), BUFFER(dy), BUFFER(own->stats),
                BUFFER(own->weight), BUFFER(own->dweight), BUFFER(own->dbias), BUFFER(dx), INT(g->trains), INT(from->of_relu),
                INT(per_channel), FLOAT(ECHI_NORM_EPSILON), VALUE(w));
}

/* Those of a sum: to both, as they are. */
static void add_backward(struct echi_gpu_stack *g, int i, struct echi_buffer *dy, size_t bytes) {
    const int to[2] = {echi_layer_takes(g->layers, i), echi_layer_adds(g->layers, i)};
    for (int k = 0; k < 2; k++) {
        echi_gpu_copy(g, share_of(g, to[k]), dy, bytes);
        give(g, to[k], false);
    }
}

static void input_backward(struct echi_gpu_stack *g, int i, struct echi_buffer *dy) {
    const struct echi_layer *l = &g->layers[i];
    const struct echi_gpu_own *own = &g->own[i];
    const struct echi_window w = echi_gpu_window_of(l, g->n);
    const int number = echi_layer_takes(g->layers, i);
    const struct echi_gpu_border *from = &g->borders[number];
    const size_t count = echi_gpu_border_count(g, number), bytes = echi_gpu_border_bytes(g, number);
    struct echi_buffer *dx = share_of(g, number), *extra = g->borders[i + 1].extra;
    bool rectified = false;   /* the kernel goes back through the ReLU before it, too */
    switch (l->op) {
    case ECHI_OP_CONV2D:
    case ECHI_OP_FC: rectified = echi_gpu_product_backward_input(g, i, from, dy, dx); break;
    case ECHI_OP_MAX_POOL:
        LAUNCH_EACH(g, K_max_pool_backward, count, BUFFER(extra), BUFFER(dy), BUFFER(from->value), INT(from->of_relu), BUFFER(dx),
                    VALUE(w));
        rectified = true;
        break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: LAUNCH_EACH(g, K_avg_pool_backward, count, BUFFER(dy), BUFFER(dx), VALUE(w)); break;
    case ECHI_OP_RELU: LAUNCH_EACH(g, K_relu_backward, count, BUFFER(from->value), BUFFER(dy), BUFFER(dx)); break;
    case ECHI_OP_TANH: LAUNCH_EACH(g, K_tanh_backward, count, BUFFER(g->borders[i + 1].value), BUFFER(dy), BUFFER(dx)); break;
    case ECHI_OP_ADD: return add_backward(g, i, dy, bytes);
    case ECHI_OP_DROPOUT:
        if (g->trains) LAUNCH_EACH(g, K_multiply, count, BUFFER(dy), BUFFER(extra), BUFFER(dx));
        else echi_gpu_copy(g, dx, dy, bytes);
        break;
    case ECHI_OP_BATCH_NORM: norm_backward_input(g, l, own, from, dy, dx), rectified = true; break;
    case ECHI_OPS: break;
    }
    give(g, number, rectified);
}

static void gpu_backward(void *state, int unit, const echi_real *params, echi_real *grads, bool need_input_grad) {
    struct echi_gpu_stack *g = state;
    const int i = g->units[unit].first, end = g->units[unit].end;
    const struct echi_layer *l = &g->layers[i];
    struct echi_gpu_own *own = &g->own[i];
    const struct echi_gpu_border *out = &g->borders[end];
    struct echi_buffer *x = g->borders[echi_layer_takes(g->layers, i)].value, *dy = out->gradient;
    if (out->of_relu && !out->rectified)
        LAUNCH_EACH(g, K_relu_backward, echi_gpu_border_count(g, end), BUFFER(out->value), BUFFER(dy), BUFFER(dy));
    if (l->op == ECHI_OP_CONV2D || l->op == ECHI_OP_FC) echi_gpu_product_backward_params(g, i, x, dy);
    if (l->op == ECHI_OP_BATCH_NORM) norm_backward_params(g, l, own, x, dy);
    grads_out(g, l, own, params, grads);
    if (need_input_grad) input_backward(g, i, dy);
}

static void gpu_input_grad(void *state, echi_real *rows) {
    struct echi_gpu_stack *g = state;
    stage_out(g, g->borders[0].gradient, g->grads_out, rows, echi_gpu_border_bytes(g, 0));
}

/* --- the tables: products are of floats, or of what the user lets them be rounded to --- */

#define CREATE(name, precision)                                                                                                        \
    static ech_status name(struct echi_device *device, const struct echi_layer *layers, int count, int max_n, void **out_state,        \
                           struct echi_stack_unit *units, int *out_units, size_t *out_bytes, struct ech_error *err) {                  \
        return echi_gpu_create(device, precision, layers, count, max_n, out_state, units, out_units, out_bytes, err);                  \
    }
#define SPARE(name, precision)                                                                                                             \
    static const struct echi_source *name(const struct echi_device *device) { return echi_gpu_spare(device, precision); }
#define STACK(text, rounds, create_function, spare_function)                                                                         \
    {                                                                                                                                  \
        .name = text, .far = true, .rounding = rounds, .create = create_function, .destroy = echi_gpu_destroy, .input = gpu_input,     \
        .same_params = gpu_same_params, .train = gpu_train, .forward = gpu_forward, .output = gpu_output, .loss = gpu_loss,            \
        .output_grad = gpu_output_grad, .backward = gpu_backward, .grads = gpu_grads, .input_grad = gpu_input_grad,                    \
        .trouble = gpu_trouble, .spare = spare_function                                                                                \
    }
CREATE(create_float, ECHI_PRODUCT_FLOAT)
CREATE(create_tf32, ECHI_PRODUCT_TF32)
SPARE(spare_float, ECHI_PRODUCT_FLOAT)
SPARE(spare_tf32, ECHI_PRODUCT_TF32)
SPARE(spare_bf16, ECHI_PRODUCT_BF16)
/* Where there are no tensor cores for it, bf16 is refused, as on a processor: TF32 is floats there. */
static ech_status create_bf16(struct echi_device *device, const struct echi_layer *layers, int count, int max_n, void **out_state,
                              struct echi_stack_unit *units, int *out_units, size_t *out_bytes, struct ech_error *err) {
    const struct echi_device_info *info = echi_device_describe(device);
    if (info->capability < 80)
        return echi_fail(err, ECH_E_UNSUPPORTED, "stack.create",
                         "--precision bf16 is for NVIDIA's cards of compute capability 8.0 or later, by cuda, and for processors, and this "
                         "node has %s (%s): give --device cpu, or leave it out", info->name, info->backend);
    return echi_gpu_create(device, ECHI_PRODUCT_BF16, layers, count, max_n, out_state, units, out_units, out_bytes, err);
}
const struct echi_stack_impl echi_stack_gpu = STACK("gpu", 0, create_float, spare_float);
const struct echi_stack_impl echi_stack_gpu_tf32 = STACK("gpu-tf32", 0x1p-11, create_tf32, spare_tf32);   /* 10 bits of mantissa */
const struct echi_stack_impl echi_stack_gpu_bf16 = STACK("gpu-bf16", 0x1p-8, create_bf16, spare_bf16);    /* 7 bits */
