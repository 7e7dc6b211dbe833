/* SPDX-License-Identifier: Apache-2.0
 * A stack on a device that is not the host: one unit a layer, as in the reference, every activation and gradient in a buffer of the device
 * from the input to the loss. Parameters are the caller's, in memory of the host: those of a unit are copied in when it goes forward, and
 * its gradients out when it goes backward, which is the one moment of a step, beside the loss, when the host waits. All that goes wrong is
 * kept (struct gpu, `status`), later work is left out, and ops/stack.c asks after each call. */
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_gpu.h"
#include "echi_gpu_window.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE ((int64_t)120 * 1000000000)   /* for what a device has to do at once: it has hung if it takes longer */

#define KERNELS(X)                                                                                                                    \
    X(fc_forward) X(fc_backward_weight) X(fc_backward_input) X(conv_forward) X(conv_backward_weight) X(conv_backward_input) X(sum_parts) X(relu_forward) X(relu_backward)           \
    X(tanh_forward) X(tanh_backward) X(add) X(multiply) X(max_pool_forward) X(max_pool_backward) X(avg_pool_forward)                  \
    X(avg_pool_backward) X(sum_channels) X(norm_statistics) X(norm_forward) X(norm_backward_params) X(norm_backward_input)            \
    X(softmax_loss)
enum kernel {
#define ENUM(name) K_##name,
    KERNELS(ENUM)
#undef ENUM
    N_KERNELS
};
static const char *const kernel_names[] = {
#define NAME(name) #name,
    KERNELS(NAME)
#undef NAME
};

/* Border 0 is the input, border i + 1 the output of layer i. */
struct border {
    struct echi_buffer *value, *gradient;   /* [max_n][shape] */
    struct echi_buffer *extra;              /* of the same shape: factors of a dropout; where a max-pool's numbers came from */
    bool given;                             /* the gradient has a share already: others are added to it */
};
/* What a layer has for itself, if it has any. */
struct own { struct echi_buffer *weight, *bias, *dweight, *dbias, *stats; };

struct gpu {
    int count, n;                           /* layers; samples of the step under way */
    bool trains;
    echi_real of_round;                     /* what part of a round it is, if it trains */
    struct echi_layer *layers;              /* [count] */
    struct border *borders;                 /* [count + 1] */
    struct own *own;                        /* [count] */
    struct echi_device *device;
    struct echi_queue *queue;
    struct echi_kernel *kernel[N_KERNELS];
    struct echi_buffer *share;              /* a share of a gradient on its way to the others, of any border's size */
    struct echi_buffer *parts;              /* partial sums of weights' gradients */
    struct echi_buffer *labels, *loss, *correct;   /* [max_n] */
    struct echi_buffer *staging;            /* pinned: rows on their way in and out */
    size_t staged;                          /* bytes of it that are taken until the queue is empty */
    bool busy;                              /* something was submitted since the last wait */
    size_t bytes;
    struct echi_gpu_tile tile;              /* of products */
    ech_status status;                      /* of everything since the stack was made */
    struct ech_error err;
};

/* --- what goes wrong is kept --- */

static bool fine(const struct gpu *g) { return g->status == ECH_OK; }

static ech_status gpu_trouble(void *state, struct ech_error *err) {
    const struct gpu *g = state;
    if (g->status != ECH_OK && err != NULL) *err = g->err;
    return g->status;
}

/* --- the queue --- */

static void wait(struct gpu *g) {
    echi_event event;
    if (fine(g)) g->status = echi_queue_event(g->queue, &event, &g->err);
    if (fine(g)) g->status = echi_event_wait(g->queue, event, echi_now() + PATIENCE, &g->err);
    g->busy = false;
    g->staged = 0;
}

/* `host` stays as it is until the next wait. */
static void copy_in(struct gpu *g, struct echi_buffer *to, const void *host, size_t bytes) {
    g->busy = true;
    if (fine(g)) g->status = echi_queue_write(g->queue, to, 0, host, bytes, &g->err);
}

static void copy_out(struct gpu *g, const struct echi_buffer *from, void *host, size_t bytes) {
    g->busy = true;
    if (fine(g)) g->status = echi_queue_read(g->queue, from, 0, host, bytes, &g->err);
}

static void copy(struct gpu *g, struct echi_buffer *to, const struct echi_buffer *from, size_t bytes) {
    g->busy = true;
    if (fine(g)) g->status = echi_queue_copy(g->queue, to, 0, from, 0, bytes, &g->err);
}

/* Room in pinned memory until the next wait. create() has made enough for all that one step stages. */
static void *stage(struct gpu *g, size_t bytes) {
    uint8_t *room = (uint8_t *)echi_buffer_host(g->staging) + g->staged;
    g->staged += (bytes + 63) / 64 * 64;
    return room;
}

static void launch(struct gpu *g, enum kernel k, size_t x, size_t y, size_t z, const struct echi_argument *args, size_t count) {
    const struct echi_launch how = {{x, y, z}, k <= K_conv_backward_input ? g->tile.items : ECHI_GPU_ITEMS};   /* products come first */
    g->busy = true;
    if (fine(g)) g->status = echi_queue_launch(g->queue, g->kernel[k], args, (int)count, &how, &g->err);
}

#define BUFFER(b) {.buffer = (b)}
#define INT(i) {.value = &(const int32_t){(int32_t)(i)}, .bytes = sizeof(int32_t)}
#define FLOAT(f) {.value = &(const float){(float)(f)}, .bytes = sizeof(float)}
#define WINDOW(w) {.value = &(w), .bytes = sizeof(struct echi_window)}
#define LAUNCH(g, k, x, y, z, ...)                                                                                    \
    launch(g, k, x, y, z, (const struct echi_argument[]){__VA_ARGS__},                                                \
           sizeof((const struct echi_argument[]){__VA_ARGS__}) / sizeof(struct echi_argument))
/* An item for each of `count` numbers; the count is the last argument. */
#define LAUNCH_EACH(g, k, count, ...) LAUNCH(g, k, blocks(count, ECHI_GPU_ITEMS), 1, 1, __VA_ARGS__, INT(count))
/* A product of rows x cols, its sums over `depth` dealt to `parts` groups. */
#define LAUNCH_PRODUCT(g, k, rows, cols, depth, parts, ...)                                                           \
    LAUNCH(g, k, blocks(cols, (g)->tile.wide), blocks(rows, (g)->tile.high), parts, __VA_ARGS__, INT(rows), INT(cols), INT(depth), \
           INT(blocks(depth, parts)))

static size_t blocks(size_t count, size_t of) { return (count + of - 1) / of; }

/* --- sizes --- */

static size_t border_size(const struct echi_layer *layers, int i) { return echi_shape_size(echi_output_shape(layers, i)); }
static size_t border_count(const struct gpu *g, int i) { return (size_t)g->n * border_size(g->layers, i); }
static size_t border_bytes(const struct gpu *g, int i) { return border_count(g, i) * sizeof(float); }
static size_t map_of(struct echi_shape s) { return (size_t)s.h * (size_t)s.w; }

/* Of numbers below 2^31. */
static struct echi_divisor divisor(int d) {
    unsigned shift = 31;
    while (((uint64_t)1 << (shift - 31)) < (uint64_t)d) shift++;
    return (struct echi_divisor){(unsigned)((((uint64_t)1 << shift) + (uint64_t)d - 1) / (uint64_t)d), shift};
}

static struct echi_window window_of(const struct echi_layer *l, int n) {
    const bool moves = l->stride_h > 0;   /* it has a window */
    struct echi_window w = {.n = n, .in_c = l->in.c, .in_h = l->in.h, .in_w = l->in.w, .out_c = l->out.c, .out_h = l->out.h, .out_w = l->out.w,
                            .kernel_h = l->kernel_h, .kernel_w = l->kernel_w, .stride_h = l->stride_h, .stride_w = l->stride_w,
                            .pad_h = l->pad_h, .pad_w = l->pad_w};
    w.far_h = l->in.h + l->pad_h + l->kernel_h + l->out.h;
    w.far_w = l->in.w + l->pad_w + l->kernel_w + l->out.w;
    w.by_in_map = divisor(l->in.h * l->in.w), w.by_in_w = divisor(l->in.w);
    w.by_out_map = divisor(l->out.h * l->out.w), w.by_out_w = divisor(l->out.w);
    if (!moves) return w;
    w.by_area = divisor(l->kernel_h * l->kernel_w), w.by_kernel_w = divisor(l->kernel_w);
    w.by_stride_h = divisor(l->stride_h), w.by_stride_w = divisor(l->stride_w);
    return w;
}

/* Groups that share the sums of a convolution's weights: enough for every unit of the device to have some, as the matrix is small and its
 * sums are long. */
#define PART_LEAST 512   /* numbers of a sum in a part */
static size_t weight_parts(const struct gpu *g, const struct echi_layer *l, size_t n) {
    const size_t out = (size_t)l->out.c, depth = n * map_of(l->out);
    const size_t tiles = blocks(out, g->tile.high) * blocks(l->weights / out, g->tile.wide);
    const size_t wanted = blocks(4 * (size_t)echi_device_describe(g->device)->compute_units, tiles), most = blocks(depth, PART_LEAST);
    return wanted < most ? wanted : most;
}

/* --- creation --- */

static void gpu_destroy(void *state) {
    struct gpu *g = state;
    echi_queue_destroy(g->queue);   /* waits */
    for (int i = 0; g->borders && i <= g->count; i++) {
        echi_buffer_destroy(g->borders[i].value);
        echi_buffer_destroy(g->borders[i].gradient);
        echi_buffer_destroy(g->borders[i].extra);
    }
    for (int i = 0; g->own && i < g->count; i++) {
        struct echi_buffer *all[] = {g->own[i].weight, g->own[i].bias, g->own[i].dweight, g->own[i].dbias, g->own[i].stats};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) echi_buffer_destroy(all[k]);
    }
    struct echi_buffer *all[] = {g->share, g->parts, g->labels, g->loss, g->correct, g->staging};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) echi_buffer_destroy(all[k]);
    free(g->own);
    free(g->borders);
    free(g->layers);
    free(g);
}

/* Adds `floats` to what is needed, and makes the buffer. The plan is checked against the device's memory before each. */
static ech_status make(struct gpu *g, size_t floats, struct echi_buffer **out, struct ech_error *err) {
    const struct echi_device_info *info = echi_device_describe(g->device);
    if (floats > INT32_MAX)
        return echi_fail(err, ECH_E_MEMORY, "stack.create",
                         "%zu numbers of one layer are more than kernels can count; use fewer samples a step", floats);
    g->bytes += floats * sizeof(float);
    if (info->memory > 0 && g->bytes > info->memory)
        return echi_fail(err, ECH_E_MEMORY, "stack.create",
                         "%s has %zu MiB of memory, and activations and parameters take more; use fewer samples a step",
                         info->name, info->memory >> 20);
    return echi_buffer_create(g->device, floats * sizeof(float), out, err);
}

static ech_status make_own(struct gpu *g, const struct echi_layer *l, struct own *own, struct ech_error *err) {
    if (l->weights > 0) ECHI_TRY(make(g, l->weights, &own->weight, err));
    if (l->weights > 0) ECHI_TRY(make(g, l->weights, &own->dweight, err));
    if (l->biases > 0) ECHI_TRY(make(g, l->biases, &own->bias, err));
    if (l->biases > 0) ECHI_TRY(make(g, l->biases, &own->dbias, err));
    return l->running > 0 ? make(g, l->running, &own->stats, err) : ECH_OK;
}

static ech_status make_buffers(struct gpu *g, size_t max_n, struct ech_error *err) {
    const struct echi_layer *layers = g->layers;
    size_t largest = 0, parts = 1, factors = 0, stats = 0;
    for (int i = 0; i <= g->count; i++) {
        const enum echi_op made_by = i > 0 ? layers[i - 1].op : ECHI_OPS;
        const size_t size = border_size(layers, i) * max_n;   /* ops/stack.c has seen that its bytes can be counted */
        ECHI_TRY(make(g, size, &g->borders[i].value, err));
        ECHI_TRY(make(g, size, &g->borders[i].gradient, err));
        if (made_by == ECHI_OP_DROPOUT || made_by == ECHI_OP_MAX_POOL) ECHI_TRY(make(g, size, &g->borders[i].extra, err));
        if (made_by == ECHI_OP_DROPOUT) factors += size + 16;
        if (size > largest) largest = size;
    }
    for (int i = 0; i < g->count; i++) {
        ECHI_TRY(make_own(g, &layers[i], &g->own[i], err));
        if (layers[i].running > stats) stats = layers[i].running;
        const size_t n_parts = layers[i].op == ECHI_OP_CONV2D ? weight_parts(g, &layers[i], max_n) : 1;
        if (n_parts > 1 && n_parts * layers[i].weights > parts) parts = n_parts * layers[i].weights;
    }
    ECHI_TRY(make(g, largest, &g->share, err));
    ECHI_TRY(make(g, parts, &g->parts, err));
    ECHI_TRY(make(g, max_n, &g->labels, err));
    ECHI_TRY(make(g, max_n, &g->loss, err));
    ECHI_TRY(make(g, max_n, &g->correct, err));
    /* Rows in and out, their gradients, labels, losses and hits, factors and statistics: all of a step at once, each from a multiple of 64
     * bytes. */
    const size_t rows = (border_size(layers, 0) + border_size(layers, g->count)) * max_n;
    return echi_buffer_create_pinned(g->device, (2 * rows + factors + stats + 3 * max_n + 16 * 8) * sizeof(float), &g->staging, err);
}

static ech_status open_kernels(struct gpu *g, struct ech_error *err) {
    struct echi_program *program;
    const bool gpu = echi_device_describe(g->device)->gpu;
    g->tile = gpu ? (struct echi_gpu_tile)ECHI_GPU_TILE : (struct echi_gpu_tile)ECHI_GPU_TILE_CPU;
    ECHI_TRY(echi_device_program(g->device, gpu ? &echi_gpu_source : &echi_gpu_source_cpu, &program, err));
    for (int k = 0; k < N_KERNELS; k++) ECHI_TRY(echi_program_kernel(program, kernel_names[k], &g->kernel[k], err));
    return echi_queue_create(g->device, &g->queue, err);
}

static ech_status gpu_create(struct echi_device *device, const struct echi_layer *layers, int count, int max_n, void **out_state,
                             struct echi_stack_unit *units, int *out_units, size_t *out_bytes, struct ech_error *err) {
    struct gpu *g = calloc(1, sizeof *g);
    if (g == NULL) return echi_fail_memory(err, "stack.create", "a stack");
    g->device = device;
    g->count = count;
    g->layers = malloc((size_t)count * sizeof *g->layers);
    g->borders = calloc((size_t)count + 1, sizeof *g->borders);
    g->own = calloc((size_t)count, sizeof *g->own);
    ech_status status = ECH_OK;
    if (g->layers == NULL || g->borders == NULL || g->own == NULL) status = echi_fail_memory(err, "stack.create", "a stack");
    else memcpy(g->layers, layers, (size_t)count * sizeof *layers);
    if (status == ECH_OK) status = open_kernels(g, err);
    if (status == ECH_OK) status = make_buffers(g, (size_t)max_n, err);
    if (status != ECH_OK) {
        gpu_destroy(g);
        return status;
    }
    for (int i = 0; i < count; i++) {
        units[i].first = i;
        units[i].end = i + 1;
        const char *name = layers[i].op == ECHI_OP_BATCH_NORM ? "batchnorm" : echi_op_name(layers[i].op);
        snprintf(units[i].kernel, sizeof units[i].kernel, "%s %s", name, echi_device_describe(device)->backend);
    }
    *out_units = count;
    *out_bytes = g->bytes;
    *out_state = g;
    return ECH_OK;
}

/* --- a step --- */

static void stage_in(struct gpu *g, struct echi_buffer *to, const void *rows, size_t bytes) {
    void *staged = stage(g, bytes);
    memcpy(staged, rows, bytes);
    copy_in(g, to, staged, bytes);
}

static void stage_out(struct gpu *g, const struct echi_buffer *from, void *rows, size_t bytes) {
    const void *staged = stage(g, bytes);
    copy_out(g, from, (void *)(uintptr_t)staged, bytes);
    wait(g);
    if (fine(g)) memcpy(rows, staged, bytes);
}

static void gpu_input(void *state, int n, const echi_real *rows) {
    struct gpu *g = state;
    if (g->busy) wait(g);
    g->n = n;
    g->trains = false;
    stage_in(g, g->borders[0].value, rows, border_bytes(g, 0));
}

static void gpu_train(void *state, const struct echi_training *training) {
    struct gpu *g = state;
    g->trains = true;
    g->of_round = training->share;
    for (int i = 0; i < g->count; i++) {
        if (g->layers[i].op != ECHI_OP_DROPOUT) continue;
        echi_real *factors = stage(g, border_bytes(g, i + 1));
        for (int s = 0; s < g->n; s++)
            echi_dropout_factors(&g->layers[i], training->seed, training->rows[s], factors + (size_t)s * border_size(g->layers, i + 1));
        copy_in(g, g->borders[i + 1].extra, factors, border_bytes(g, i + 1));
    }
}

static void params_in(struct gpu *g, const struct echi_layer *l, const struct own *own, const echi_real *params) {
    if (l->weights > 0) copy_in(g, own->weight, params + l->weight_at, l->weights * sizeof *params);
    if (l->biases > 0) copy_in(g, own->bias, params + l->bias_at, l->biases * sizeof *params);
    if (l->running > 0 && !g->trains) copy_in(g, own->stats, params + l->running_at, l->running * sizeof *params);
}

static void conv_forward(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *x, struct echi_buffer *y) {
    const struct echi_window w = window_of(l, g->n);
    const size_t out = (size_t)l->out.c, places = (size_t)g->n * map_of(l->out);
    LAUNCH_PRODUCT(g, K_conv_forward, out, places, l->weights / out, 1, BUFFER(x), BUFFER(own->weight),
                   BUFFER(l->bias ? own->bias : own->weight), INT(l->bias), INT(0), BUFFER(y), WINDOW(w));
}

static void fc_forward(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *x, struct echi_buffer *y) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c, n = (size_t)g->n;
    LAUNCH_PRODUCT(g, K_fc_forward, n, out, in, 1, BUFFER(x), BUFFER(own->weight), BUFFER(l->bias ? own->bias : own->weight), INT(l->bias), INT(0),
                   BUFFER(y));
}

static void norm_forward(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *x, struct echi_buffer *y) {
    const size_t channels = (size_t)l->in.c, places = map_of(l->in);
    if (g->trains)
        LAUNCH(g, K_norm_statistics, channels, 1, 1, BUFFER(x), BUFFER(own->stats), INT(channels), INT(places), INT((size_t)g->n * places));
    LAUNCH_EACH(g, K_norm_forward, (size_t)g->n * channels * places, BUFFER(x), BUFFER(own->stats), BUFFER(own->weight), BUFFER(own->bias),
                BUFFER(y), FLOAT(ECHI_NORM_EPSILON), INT(channels), INT(places));
}

static void gpu_forward(void *state, int unit, const echi_real *params) {
    struct gpu *g = state;
    const struct echi_layer *l = &g->layers[unit];
    const struct own *own = &g->own[unit];
    const struct echi_window w = window_of(l, g->n);
    const size_t count = border_count(g, unit + 1);
    struct echi_buffer *x = g->borders[echi_layer_takes(g->layers, unit)].value, *y = g->borders[unit + 1].value,
        *extra = g->borders[unit + 1].extra;
    params_in(g, l, own, params);
    switch (l->op) {
    case ECHI_OP_CONV2D: conv_forward(g, l, own, x, y); break;
    case ECHI_OP_FC: fc_forward(g, l, own, x, y); break;
    case ECHI_OP_MAX_POOL: LAUNCH_EACH(g, K_max_pool_forward, count, BUFFER(x), BUFFER(y), BUFFER(extra), WINDOW(w)); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: LAUNCH_EACH(g, K_avg_pool_forward, count, BUFFER(x), BUFFER(y), WINDOW(w)); break;
    case ECHI_OP_RELU: LAUNCH_EACH(g, K_relu_forward, count, BUFFER(x), BUFFER(y)); break;
    case ECHI_OP_TANH: LAUNCH_EACH(g, K_tanh_forward, count, BUFFER(x), BUFFER(y)); break;
    case ECHI_OP_ADD: LAUNCH_EACH(g, K_add, count, BUFFER(x), BUFFER(g->borders[echi_layer_adds(g->layers, unit)].value), BUFFER(y)); break;
    case ECHI_OP_DROPOUT:
        if (g->trains) LAUNCH_EACH(g, K_multiply, count, BUFFER(x), BUFFER(extra), BUFFER(y));
        else copy(g, y, x, border_bytes(g, unit + 1));
        break;
    case ECHI_OP_BATCH_NORM: norm_forward(g, l, own, x, y); break;
    case ECHI_OPS: break;
    }
}

/* All gradients but the output's are still to come. */
static void begin_backward(struct gpu *g) {
    for (int i = 0; i < g->count; i++) g->borders[i].given = false;
}

static void gpu_output(void *state, echi_real *rows) {
    struct gpu *g = state;
    stage_out(g, g->borders[g->count].value, rows, border_bytes(g, g->count));
}

static void gpu_loss(void *state, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct) {
    struct gpu *g = state;
    const size_t n = (size_t)g->n;
    const struct border *out = &g->borders[g->count];
    int32_t *staged = stage(g, n * sizeof *staged), *correct = stage(g, n * sizeof *correct);
    float *loss = stage(g, n * sizeof *loss);
    for (size_t s = 0; s < n; s++) staged[s] = labels[s];
    copy_in(g, g->labels, staged, n * sizeof *staged);
    LAUNCH_EACH(g, K_softmax_loss, n, BUFFER(out->value), BUFFER(g->labels), FLOAT(scale), BUFFER(out->gradient), BUFFER(g->loss),
                BUFFER(g->correct), INT(g->layers[g->count - 1].out.c));
    copy_out(g, g->loss, loss, n * sizeof *loss);
    copy_out(g, g->correct, correct, n * sizeof *correct);
    wait(g);
    *out_loss = 0;
    *out_correct = 0;
    for (size_t s = 0; s < n && fine(g); s++) *out_loss += loss[s], *out_correct += correct[s];
    begin_backward(g);
}

static void gpu_output_grad(void *state, const echi_real *rows) {
    struct gpu *g = state;
    stage_in(g, g->borders[g->count].gradient, rows, border_bytes(g, g->count));
    begin_backward(g);
}

/* A share of a border's gradient is put where share_of says; then `give` adds it to those that are there. */
static struct echi_buffer *share_of(const struct gpu *g, int i) { return g->borders[i].given ? g->share : g->borders[i].gradient; }
static void give(struct gpu *g, int i) {
    struct border *b = &g->borders[i];
    if (b->given) LAUNCH_EACH(g, K_add, border_count(g, i), BUFFER(b->gradient), BUFFER(g->share), BUFFER(b->gradient));
    b->given = true;
}

/* --- gradients of parameters --- */

static void bias_backward(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *dy) {
    const size_t places = map_of(l->out);
    if (l->bias)
        LAUNCH(g, K_sum_channels, (size_t)l->out.c, 1, 1, BUFFER(dy), BUFFER(own->dbias), INT(l->out.c), INT(places),
               INT((size_t)g->n * places));
}

static void conv_backward_params(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *x,
                                 struct echi_buffer *dy) {
    const struct echi_window w = window_of(l, g->n);
    const size_t out = (size_t)l->out.c, depth = (size_t)g->n * map_of(l->out), parts = weight_parts(g, l, (size_t)g->n);
    LAUNCH_PRODUCT(g, K_conv_backward_weight, out, l->weights / out, depth, parts, BUFFER(x), BUFFER(dy),
                   BUFFER(parts > 1 ? g->parts : own->dweight), WINDOW(w));
    if (parts > 1)
        LAUNCH(g, K_sum_parts, blocks(l->weights, ECHI_GPU_ITEMS), 1, 1, BUFFER(g->parts), BUFFER(own->dweight), INT(l->weights),
               INT(parts));
    bias_backward(g, l, own, dy);
}

static void fc_backward_params(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *x,
                               struct echi_buffer *dy) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c;
    LAUNCH_PRODUCT(g, K_fc_backward_weight, out, in, (size_t)g->n, 1, BUFFER(dy), BUFFER(x), BUFFER(own->dweight));
    bias_backward(g, l, own, dy);
}

static void norm_backward_params(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *x,
                                 struct echi_buffer *dy) {
    const size_t channels = (size_t)l->in.c, places = map_of(l->in);
    LAUNCH(g, K_norm_backward_params, channels, 1, 1, BUFFER(x), BUFFER(dy), BUFFER(own->stats), BUFFER(own->dweight), BUFFER(own->dbias),
           FLOAT(ECHI_NORM_EPSILON), INT(channels), INT(places), INT((size_t)g->n * places));
}

/* The unit's gradients to their places. */
static void grads_out(struct gpu *g, const struct echi_layer *l, const struct own *own, const echi_real *params, echi_real *grads) {
    if (echi_layer_params(l) == 0) return;
    echi_real *stats = l->running > 0 && g->trains ? stage(g, l->running * sizeof *stats) : NULL;
    if (l->weights > 0) copy_out(g, own->dweight, grads + l->weight_at, l->weights * sizeof *grads);
    if (l->biases > 0) copy_out(g, own->dbias, grads + l->bias_at, l->biases * sizeof *grads);
    if (stats) copy_out(g, own->stats, stats, l->running * sizeof *stats);
    wait(g);
    if (stats && fine(g)) echi_norm_running_grad(l, g->n, params, stats, stats + l->in.c, g->of_round, grads);
    else if (l->running > 0) memset(grads + l->running_at, 0, l->running * sizeof *grads);
}

/* --- gradients of inputs --- */

static void conv_backward_input(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *dy,
                                struct echi_buffer *dx) {
    const struct echi_window w = window_of(l, g->n);
    LAUNCH_PRODUCT(g, K_conv_backward_input, (size_t)l->in.c, (size_t)g->n * map_of(l->in), l->weights / (size_t)l->in.c, 1, BUFFER(dy),
                   BUFFER(own->weight), BUFFER(dx), WINDOW(w));
}

static void fc_backward_input(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *dy,
                              struct echi_buffer *dx) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c;
    LAUNCH_PRODUCT(g, K_fc_backward_input, (size_t)g->n, in, out, 1, BUFFER(dy), BUFFER(own->weight), BUFFER(dx));
}

static void norm_backward_input(struct gpu *g, const struct echi_layer *l, const struct own *own, struct echi_buffer *x,
                                struct echi_buffer *dy, struct echi_buffer *dx) {
    const size_t channels = (size_t)l->in.c, places = map_of(l->in), per_channel = (size_t)g->n * places;
    LAUNCH_EACH(g, K_norm_backward_input, per_channel * channels, BUFFER(x), BUFFER(dy), BUFFER(own->stats), BUFFER(own->weight),
                BUFFER(own->dweight),
                BUFFER(own->dbias), BUFFER(dx), INT(g->trains), INT(per_channel), FLOAT(ECHI_NORM_EPSILON), INT(channels), INT(places));
}

static void input_backward(struct gpu *g, int unit) {
    const struct echi_layer *l = &g->layers[unit];
    const struct own *own = &g->own[unit];
    const struct echi_window w = window_of(l, g->n);
    const int from = echi_layer_takes(g->layers, unit);
    const size_t count = border_count(g, from), bytes = border_bytes(g, unit + 1);
    struct echi_buffer *x = g->borders[from].value, *dy = g->borders[unit + 1].gradient, *dx = share_of(g, from),
        *extra = g->borders[unit + 1].extra;
    switch (l->op) {
    case ECHI_OP_CONV2D: conv_backward_input(g, l, own, dy, dx); break;
    case ECHI_OP_FC: fc_backward_input(g, l, own, dy, dx); break;
    case ECHI_OP_MAX_POOL: LAUNCH_EACH(g, K_max_pool_backward, count, BUFFER(extra), BUFFER(dy), BUFFER(dx), WINDOW(w)); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: LAUNCH_EACH(g, K_avg_pool_backward, count, BUFFER(dy), BUFFER(dx), WINDOW(w)); break;
    case ECHI_OP_RELU: LAUNCH_EACH(g, K_relu_backward, count, BUFFER(x), BUFFER(dy), BUFFER(dx)); break;
    case ECHI_OP_TANH: LAUNCH_EACH(g, K_tanh_backward, count, BUFFER(g->borders[unit + 1].value), BUFFER(dy), BUFFER(dx)); break;
    case ECHI_OP_ADD: {
        copy(g, dx, dy, bytes);
        give(g, from);
        const int also = echi_layer_adds(g->layers, unit);
        copy(g, share_of(g, also), dy, bytes);
        return give(g, also);
    }
    case ECHI_OP_DROPOUT:
        if (g->trains) LAUNCH_EACH(g, K_multiply, count, BUFFER(dy), BUFFER(extra), BUFFER(dx));
        else copy(g, dx, dy, bytes);
        break;
    case ECHI_OP_BATCH_NORM: norm_backward_input(g, l, own, x, dy, dx); break;
    case ECHI_OPS: break;
    }
    give(g, from);
}

static void gpu_backward(void *state, int unit, const echi_real *params, echi_real *grads, bool need_input_grad) {
    struct gpu *g = state;
    const struct echi_layer *l = &g->layers[unit];
    const struct own *own = &g->own[unit];
    struct echi_buffer *x = g->borders[echi_layer_takes(g->layers, unit)].value, *dy = g->borders[unit + 1].gradient;
    if (l->op == ECHI_OP_CONV2D) conv_backward_params(g, l, own, x, dy);
    if (l->op == ECHI_OP_FC) fc_backward_params(g, l, own, x, dy);
    if (l->op == ECHI_OP_BATCH_NORM) norm_backward_params(g, l, own, x, dy);
    if (need_input_grad) input_backward(g, unit);
    grads_out(g, l, own, params, grads);
}

static void gpu_input_grad(void *state, echi_real *rows) {
    struct gpu *g = state;
    stage_out(g, g->borders[0].gradient, rows, border_bytes(g, 0));
}

const struct echi_stack_impl echi_stack_gpu = {
    .name = "gpu",
    .far = true,
    .create = gpu_create,
    .destroy = gpu_destroy,
    .input = gpu_input,
    .train = gpu_train,
    .forward = gpu_forward,
    .output = gpu_output,
    .loss = gpu_loss,
    .output_grad = gpu_output_grad,
    .backward = gpu_backward,
    .input_grad = gpu_input_grad,
    .trouble = gpu_trouble,
};
