/* SPDX-License-Identifier: Apache-2.0
 * A stack on a device that is not the host. A ReLU behind a convolution, fully connected layer, batch-norm or sum is one unit with it;
 * else a unit is a layer. Every activation and gradient that a unit ends with is in a buffer of the device from the input to the loss.
 *
 * Parameters are the caller's, in memory of the host. Two queues: `queue` computes, `copies` brings a unit's parameters in while units
 * before it compute, and takes its gradients out while those after it do. So the host waits in a step for the loss, and where it is asked
 * to (gpu_grads, gpu_output). All that goes wrong is kept (struct gpu, `status`), later work is left out, and ops/stack.c asks after each
 * call. */
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_gpu.h"
#include "echi_gpu_window.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE ((int64_t)120 * 1000000000)   /* for what a device has to do at once: it has hung if it takes longer */

/* Products first. */
#define KERNELS(X)                                                                                                                    \
    X(fc_forward) X(fc_backward_weight) X(fc_backward_input) X(conv_forward) X(conv_backward_weight) X(conv_backward_input)           \
    X(sum_parts) X(relu_forward) X(relu_backward) X(tanh_forward) X(tanh_backward) X(add) X(add_relu) X(multiply)                     \
    X(max_pool_forward) X(max_pool_backward) X(avg_pool_forward) X(avg_pool_backward) X(sum_channels) X(norm_statistics)              \
    X(norm_forward) X(norm_backward_params) X(norm_backward_input) X(softmax_loss)
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

/* Border 0 is the input, border i + 1 the output of layer i; those inside a unit have nothing. */
struct border {
    struct echi_buffer *value, *gradient;   /* [max_n][shape] */
    struct echi_buffer *extra;              /* of the same shape: factors of a dropout; where a max-pool's numbers came from */
    bool given;                             /* the gradient has a share already: others are added to it */
    bool of_relu;                           /* the unit that it is the end of ends with a ReLU */
    bool rectified;                         /* and all of its shares have gone back through that ReLU already */
};
/* Layers [first, end), and the ReLU that is the last of two. */
struct unit { int first, end; bool relu; };
/* What a layer has for itself, if it has any. */
struct own {
    struct echi_buffer *weight, *bias, *dweight, *dbias, *stats;
    size_t staged;                          /* its place there: factors of a dropout [max_n][shape], or a batch-norm's statistics */
    bool known;                             /* weight and bias have come in, in this step or one before */
    bool owed;                              /* gradients are on their way to `grads`; there at `event` of the copies */
    echi_event event;
    const echi_real *params;
    echi_real *grads;
};

struct gpu {
    int count, n, n_units;                  /* layers; samples of the step under way */
    bool trains, same;                      /* same: parameters are those of the step before */
    echi_real of_round;                     /* what part of a round it is, if it trains */
    struct echi_layer *layers;              /* [count] */
    struct unit *units;                     /* [n_units] */
    struct border *borders;                 /* [count + 1] */
    struct own *own;                        /* [count] */
    struct echi_device *device;
    struct echi_queue *queue, *copies;      /* one and the same where a queue cannot wait for another */
    struct echi_kernel *kernel[N_KERNELS];
    struct echi_buffer *share;              /* a share of a gradient on its way to the others, of any border's size */
    struct echi_buffer *parts;              /* partial sums of weights' gradients */
    struct echi_buffer *labels, *loss, *correct;   /* [max_n] */
    struct echi_buffer *staging;            /* pinned: what is on its way in and out, each at a place of its own, in bytes: */
    size_t rows_in, rows_out, grads_in, grads_out, labels_in, loss_out, correct_out;
    bool busy;                              /* something was submitted since the last wait for all */
    bool counting;                          /* make() only adds up what the stack takes */
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

/* --- the queues --- */

static void wait_for(struct gpu *g, struct echi_queue *q, echi_event event) {
    if (fine(g)) g->status = echi_event_wait(q, event, echi_now() + PATIENCE, &g->err);
}

static echi_event mark(struct gpu *g, struct echi_queue *q) {
    echi_event event = 0;
    if (fine(g)) g->status = echi_queue_event(q, &event, &g->err);
    return event;
}

/* For all that was submitted. */
static void wait(struct gpu *g) {
    wait_for(g, g->queue, mark(g, g->queue));
    if (g->copies != g->queue) wait_for(g, g->copies, mark(g, g->copies));
    g->busy = false;
}

/* What is submitted to `later` from now on waits for what `first` has been given. */
static void order(struct gpu *g, struct echi_queue *first, struct echi_queue *later) {
    if (first == later) return;
    const echi_event event = mark(g, first);
    if (fine(g)) g->status = echi_queue_after(later, first, event, &g->err);
}

/* `host` stays as it is until the queue has come past. */
static void copy_in(struct gpu *g, struct echi_queue *q, struct echi_buffer *to, const void *host, size_t bytes) {
    g->busy = true;
    if (fine(g)) g->status = echi_queue_write(q, to, 0, host, bytes, &g->err);
}

static void copy_out(struct gpu *g, struct echi_queue *q, const struct echi_buffer *from, void *host, size_t bytes) {
    g->busy = true;
    if (fine(g)) g->status = echi_queue_read(q, from, 0, host, bytes, &g->err);
}

static void copy(struct gpu *g, struct echi_buffer *to, const struct echi_buffer *from, size_t bytes) {
    g->busy = true;
    if (fine(g)) g->status = echi_queue_copy(g->queue, to, 0, from, 0, bytes, &g->err);
}

static void *staged(const struct gpu *g, size_t at) { return (uint8_t *)echi_buffer_host(g->staging) + at; }

static void launch(struct gpu *g, enum kernel k, size_t x, size_t y, size_t z, const struct echi_argument *args, size_t count) {
    const struct echi_launch how = {{x, y, z}, k <= K_conv_backward_input ? g->tile.items : ECHI_GPU_ITEMS};
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
    struct echi_window w = {.n = n, .in_c = l->in.c, .in_h = l->in.h, .in_w = l->in.w, .out_c = l->out.c, .out_h = l->out.h,
                            .out_w = l->out.w, .kernel_h = l->kernel_h, .kernel_w = l->kernel_w, .stride_h = l->stride_h,
                            .stride_w = l->stride_w, .pad_h = l->pad_h, .pad_w = l->pad_w};
    w.far_h = l->in.h + l->pad_h + l->kernel_h + l->out.h;
    w.far_w = l->in.w + l->pad_w + l->kernel_w + l->out.w;
    w.by_in_c = divisor(l->in.c), w.by_in_map = divisor(l->in.h * l->in.w), w.by_in_w = divisor(l->in.w);
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
    const size_t tiles = blocks(l->weights / out, g->tile.high) * blocks(out, g->tile.wide);
    const size_t wanted = blocks(4 * (size_t)echi_device_describe(g->device)->compute_units, tiles), most = blocks(depth, PART_LEAST);
    return wanted < most ? wanted : most;
}

/* --- creation --- */

static void gpu_destroy(void *state) {
    struct gpu *g = state;
    if (g->copies != g->queue) echi_queue_destroy(g->copies);   /* waits */
    echi_queue_destroy(g->queue);
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
    free(g->units);
    free(g->borders);
    free(g->layers);
    free(g);
}

/* Adds `floats` to what the stack takes; makes the buffer when that has been held against the device's memory. */
static ech_status make(struct gpu *g, size_t floats, struct echi_buffer **out, struct ech_error *err) {
    if (floats > INT32_MAX - ECHI_GPU_ITEMS)
        return echi_fail(err, ECH_E_MEMORY, "stack.create",
                         "%zu numbers of one layer are more than kernels can count; use fewer samples a step", floats);
    if (!g->counting) return echi_buffer_create(g->device, floats * sizeof(float), out, err);
    g->bytes += floats * sizeof(float);
    return ECH_OK;
}

static ech_status make_own(struct gpu *g, const struct echi_layer *l, struct own *own, struct ech_error *err) {
    if (l->weights > 0) ECHI_TRY(make(g, l->weights, &own->weight, err));
    if (l->weights > 0) ECHI_TRY(make(g, l->weights, &own->dweight, err));
    if (l->biases > 0) ECHI_TRY(make(g, l->biases, &own->bias, err));
    if (l->biases > 0) ECHI_TRY(make(g, l->biases, &own->dbias, err));
    return l->running > 0 ? make(g, l->running, &own->stats, err) : ECH_OK;
}

/* What lies where units begin and end. */
static ech_status make_border(struct gpu *g, int i, size_t max_n, size_t *largest, struct ech_error *err) {
    const enum echi_op made_by = i > 0 ? g->layers[i - 1].op : ECHI_OPS;
    struct border *b = &g->borders[i];
    const size_t size = border_size(g->layers, i) * max_n;   /* ops/stack.c has seen that its bytes can be counted */
    ECHI_TRY(make(g, size, &b->value, err));
    ECHI_TRY(make(g, size, &b->gradient, err));
    if (size > *largest) *largest = size;
    return made_by == ECHI_OP_DROPOUT || made_by == ECHI_OP_MAX_POOL ? make(g, size, &b->extra, err) : ECH_OK;
}

static ech_status make_buffers(struct gpu *g, size_t max_n, struct ech_error *err) {
    size_t largest = 0, parts = 1;
    ECHI_TRY(make_border(g, 0, max_n, &largest, err));
    for (int u = 0; u < g->n_units; u++) ECHI_TRY(make_border(g, g->units[u].end, max_n, &largest, err));
    for (int i = 0; i < g->count; i++) {
        const struct echi_layer *l = &g->layers[i];
        ECHI_TRY(make_own(g, l, &g->own[i], err));
        const size_t n_parts = l->op == ECHI_OP_CONV2D ? weight_parts(g, l, max_n) : 1;
        if (n_parts > 1 && n_parts * l->weights > parts) parts = n_parts * l->weights;
    }
    ECHI_TRY(make(g, largest, &g->share, err));
    ECHI_TRY(make(g, parts, &g->parts, err));
    ECHI_TRY(make(g, max_n, &g->labels, err));
    ECHI_TRY(make(g, max_n, &g->loss, err));
    return make(g, max_n, &g->correct, err);
}

/* The plan: what all buffers take together, before there is any. */
static ech_status check_memory(struct gpu *g, size_t max_n, struct ech_error *err) {
    const struct echi_device_info *info = echi_device_describe(g->device);
    g->counting = true;
    ECHI_TRY(make_buffers(g, max_n, err));
    g->counting = false;
    if (info->memory == 0 || g->bytes <= info->memory) return ECH_OK;
    return echi_fail(err, ECH_E_MEMORY, "stack.create",
                     "%s has %zu MiB of memory, and activations and parameters of %zu samples a step take %zu bytes; use fewer samples",
                     info->name, info->memory >> 20, max_n, g->bytes);
}

/* step_back() of products.cl counts with these. */
static ech_status check_strides(const struct gpu *g, struct ech_error *err) {
    for (int i = 0; i < g->count; i++) {
        const struct echi_layer *l = &g->layers[i];
        const struct echi_window w = window_of(l, 1);
        if (l->op == ECHI_OP_CONV2D && ((int64_t)w.far_h * l->stride_h > INT32_MAX || (int64_t)w.far_w * l->stride_w > INT32_MAX))
            return echi_fail_at(err, ECH_E_UNSUPPORTED, "stack.create", -1, l->name,
                                "layer '%s' takes longer strides through larger images than kernels can count; give --device cpu", l->name);
    }
    return ECH_OK;
}

/* A place of `floats` in staging, in a line of its own. */
static size_t reserve(size_t *end, size_t floats) {
    const size_t at = *end;
    *end += (floats * sizeof(float) + 63) / 64 * 64;
    return at;
}

static ech_status make_staging(struct gpu *g, size_t max_n, struct ech_error *err) {
    const size_t in = border_size(g->layers, 0) * max_n, out = border_size(g->layers, g->count) * max_n;
    size_t end = 0;
    g->rows_in = reserve(&end, in), g->grads_out = reserve(&end, in);
    g->rows_out = reserve(&end, out), g->grads_in = reserve(&end, out);
    g->labels_in = reserve(&end, max_n), g->loss_out = reserve(&end, max_n), g->correct_out = reserve(&end, max_n);
    for (int i = 0; i < g->count; i++) {
        const struct echi_layer *l = &g->layers[i];
        g->own[i].staged = reserve(&end, l->op == ECHI_OP_DROPOUT ? border_size(g->layers, i + 1) * max_n : l->running);
    }
    return echi_buffer_create_pinned(g->device, end, &g->staging, err);
}

static ech_status open_kernels(struct gpu *g, struct ech_error *err) {
    struct echi_program *program;
    const bool gpu = echi_device_describe(g->device)->gpu;
    g->tile = gpu ? (struct echi_gpu_tile)ECHI_GPU_TILE : (struct echi_gpu_tile)ECHI_GPU_TILE_CPU;
    ECHI_TRY(echi_device_program(g->device, gpu ? &echi_gpu_source : &echi_gpu_source_cpu, &program, err));
    for (int k = 0; k < N_KERNELS; k++) ECHI_TRY(echi_program_kernel(program, kernel_names[k], &g->kernel[k], err));
    return ECH_OK;
}

static ech_status open_queues(struct gpu *g, struct ech_error *err) {
    struct ech_error why;
    echi_event event;
    ECHI_TRY(echi_queue_create(g->device, &g->queue, err));
    ECHI_TRY(echi_queue_create(g->device, &g->copies, err));
    ECHI_TRY(echi_queue_event(g->queue, &event, err));
    if (echi_queue_after(g->copies, g->queue, event, &why) != ECH_E_UNSUPPORTED) return ECH_OK;
    echi_queue_destroy(g->copies);
    g->copies = g->queue;
    return ECH_OK;
}

/* A layer that can do the work of a ReLU that alone takes what it gives. */
static bool takes_relu(const struct gpu *g, int i) {
    const enum echi_op op = g->layers[i].op;
    return (op == ECHI_OP_CONV2D || op == ECHI_OP_FC || op == ECHI_OP_BATCH_NORM || op == ECHI_OP_ADD) && i + 1 < g->count &&
           g->layers[i + 1].op == ECHI_OP_RELU && echi_layer_takes(g->layers, i + 1) == i + 1 &&
           echi_output_readers(g->layers, g->count, i + 1) == 1;
}

static void make_units(struct gpu *g) {
    for (int i = 0; i < g->count; i = g->units[g->n_units++].end) {
        const bool relu = takes_relu(g, i);
        g->units[g->n_units] = (struct unit){i, i + 1 + relu, relu};
        g->borders[i + 1 + relu].of_relu = relu;
    }
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
    g->units = calloc((size_t)count, sizeof *g->units);
    ech_status status;
    if (g->layers == NULL || g->borders == NULL || g->own == NULL || g->units == NULL) {
        gpu_destroy(g);
        return echi_fail_memory(err, "stack.create", "a stack");
    }
    memcpy(g->layers, layers, (size_t)count * sizeof *layers);
    make_units(g);
    status = check_strides(g, err);
    if (status == ECH_OK) status = open_kernels(g, err);
    if (status == ECH_OK) status = open_queues(g, err);
    if (status == ECH_OK) status = check_memory(g, (size_t)max_n, err);
    if (status == ECH_OK) status = make_buffers(g, (size_t)max_n, err);
    if (status == ECH_OK) status = make_staging(g, (size_t)max_n, err);
    if (status != ECH_OK) {
        gpu_destroy(g);
        return status;
    }
    for (int u = 0; u < g->n_units; u++) {
        const struct echi_layer *l = &layers[g->units[u].first];
        const char *name = l->op == ECHI_OP_BATCH_NORM ? "batchnorm" : echi_op_name(l->op);
        units[u].first = g->units[u].first;
        units[u].end = g->units[u].end;
        snprintf(units[u].kernel, sizeof units[u].kernel, "%s%s %s", name, g->units[u].relu ? "+relu" : "",
                 echi_device_describe(device)->backend);
    }
    *out_units = g->n_units;
    *out_bytes = g->bytes;
    *out_state = g;
    return ECH_OK;
}

/* --- a step --- */

static void stage_in(struct gpu *g, struct echi_buffer *to, size_t place, const void *rows, size_t bytes) {
    memcpy(staged(g, place), rows, bytes);
    copy_in(g, g->queue, to, staged(g, place), bytes);
}

static void stage_out(struct gpu *g, const struct echi_buffer *from, size_t place, void *rows, size_t bytes) {
    copy_out(g, g->queue, from, staged(g, place), bytes);
    wait_for(g, g->queue, mark(g, g->queue));
    if (fine(g)) memcpy(rows, staged(g, place), bytes);
}

/* What was staged for the step before may be written over now. */
static void gpu_input(void *state, int n, const echi_real *rows) {
    struct gpu *g = state;
    if (g->busy) wait(g);
    for (int i = 0; i < g->count; i++) g->own[i].owed = false;
    g->n = n;
    g->trains = g->same = false;
    stage_in(g, g->borders[0].value, g->rows_in, rows, border_bytes(g, 0));
}

static void gpu_same_params(void *state) { ((struct gpu *)state)->same = true; }

static void gpu_train(void *state, const struct echi_training *training) {
    struct gpu *g = state;
    g->trains = true;
    g->of_round = training->share;
    for (int i = 0; i < g->count; i++) {
        if (g->layers[i].op != ECHI_OP_DROPOUT) continue;
        echi_real *factors = staged(g, g->own[i].staged);
        for (int s = 0; s < g->n; s++)
            echi_dropout_factors(&g->layers[i], training->seed, training->rows[s], factors + (size_t)s * border_size(g->layers, i + 1));
        copy_in(g, g->queue, g->borders[i + 1].extra, factors, border_bytes(g, i + 1));
    }
}

/* Nothing of the step before is under way, so they may be written over; what computes with them comes behind. */
static void params_in(struct gpu *g, const struct echi_layer *l, struct own *own, const echi_real *params) {
    const bool news = !(g->same && own->known) && l->weights > 0, averages = l->running > 0 && !g->trains;
    if (news) copy_in(g, g->copies, own->weight, params + l->weight_at, l->weights * sizeof *params);
    if (news && l->biases > 0) copy_in(g, g->copies, own->bias, params + l->bias_at, l->biases * sizeof *params);
    if (averages) copy_in(g, g->copies, own->stats, params + l->running_at, l->running * sizeof *params);
    if (news || averages) order(g, g->copies, g->queue);
    own->known = own->known || news;
}

static void conv_forward(struct gpu *g, const struct echi_layer *l, const struct own *own, bool relu, struct echi_buffer *x,
                         struct echi_buffer *y) {
    const struct echi_window w = window_of(l, g->n);
    const size_t out = (size_t)l->out.c, places = (size_t)g->n * map_of(l->out);
    LAUNCH_PRODUCT(g, K_conv_forward, out, places, l->weights / out, 1, BUFFER(x), BUFFER(own->weight),
                   BUFFER(l->bias ? own->bias : own->weight), INT(l->bias), INT(relu), BUFFER(y), WINDOW(w));
}

static void fc_forward(struct gpu *g, const struct echi_layer *l, const struct own *own, bool relu, struct echi_buffer *x,
                       struct echi_buffer *y) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c, n = (size_t)g->n;
    LAUNCH_PRODUCT(g, K_fc_forward, n, out, in, 1, BUFFER(x), BUFFER(own->weight),
                   BUFFER(l->bias ? own->bias : own->weight), INT(l->bias), INT(relu), BUFFER(y));
}

static void norm_forward(struct gpu *g, const struct echi_layer *l, const struct own *own, bool relu, struct echi_buffer *x,
                         struct echi_buffer *y) {
    const struct echi_window w = window_of(l, g->n);
    const size_t channels = (size_t)l->in.c, places = map_of(l->in);
    if (g->trains)
        LAUNCH(g, K_norm_statistics, channels, 1, 1, BUFFER(x), BUFFER(own->stats), INT(channels), INT(places), INT((size_t)g->n * places));
    LAUNCH_EACH(g, K_norm_forward, (size_t)g->n * channels * places, BUFFER(x), BUFFER(own->stats), BUFFER(own->weight), BUFFER(own->bias),
                BUFFER(y), INT(relu), FLOAT(ECHI_NORM_EPSILON), WINDOW(w));
}

static void gpu_forward(void *state, int unit, const echi_real *params) {
    struct gpu *g = state;
    const int i = g->units[unit].first, end = g->units[unit].end;
    const bool relu = g->units[unit].relu;
    const struct echi_layer *l = &g->layers[i];
    struct own *own = &g->own[i];
    const struct echi_window w = window_of(l, g->n);
    const size_t count = border_count(g, end);
    struct echi_buffer *x = g->borders[echi_layer_takes(g->layers, i)].value, *y = g->borders[end].value, *extra = g->borders[end].extra;
    params_in(g, l, own, params);
    switch (l->op) {
    case ECHI_OP_CONV2D: conv_forward(g, l, own, relu, x, y); break;
    case ECHI_OP_FC: fc_forward(g, l, own, relu, x, y); break;
    case ECHI_OP_MAX_POOL: LAUNCH_EACH(g, K_max_pool_forward, count, BUFFER(x), BUFFER(y), BUFFER(extra), WINDOW(w)); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: LAUNCH_EACH(g, K_avg_pool_forward, count, BUFFER(x), BUFFER(y), WINDOW(w)); break;
    case ECHI_OP_RELU: LAUNCH_EACH(g, K_relu_forward, count, BUFFER(x), BUFFER(y)); break;
    case ECHI_OP_TANH: LAUNCH_EACH(g, K_tanh_forward, count, BUFFER(x), BUFFER(y)); break;
    case ECHI_OP_ADD:
        LAUNCH_EACH(g, relu ? K_add_relu : K_add, count, BUFFER(x), BUFFER(g->borders[echi_layer_adds(g->layers, i)].value), BUFFER(y));
        break;
    case ECHI_OP_DROPOUT:
        if (g->trains) LAUNCH_EACH(g, K_multiply, count, BUFFER(x), BUFFER(extra), BUFFER(y));
        else copy(g, y, x, border_bytes(g, end));
        break;
    case ECHI_OP_BATCH_NORM: norm_forward(g, l, own, relu, x, y); break;
    case ECHI_OPS: break;
    }
}

/* All gradients but the output's are still to come. */
static void begin_backward(struct gpu *g) {
    for (int i = 0; i <= g->count; i++) g->borders[i].given = g->borders[i].rectified = false;
}

static void gpu_output(void *state, echi_real *rows) {
    struct gpu *g = state;
    stage_out(g, g->borders[g->count].value, g->rows_out, rows, border_bytes(g, g->count));
}

static void gpu_loss(void *state, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct) {
    struct gpu *g = state;
    const size_t n = (size_t)g->n;
    const struct border *out = &g->borders[g->count];
    int32_t *wanted = staged(g, g->labels_in), *correct = staged(g, g->correct_out);
    float *loss = staged(g, g->loss_out);
    for (size_t s = 0; s < n; s++) wanted[s] = labels[s];
    copy_in(g, g->queue, g->labels, wanted, n * sizeof *wanted);
    LAUNCH_EACH(g, K_softmax_loss, n, BUFFER(out->value), BUFFER(g->labels), FLOAT(scale), BUFFER(out->gradient), BUFFER(g->loss),
                BUFFER(g->correct), INT(g->layers[g->count - 1].out.c));
    copy_out(g, g->queue, g->loss, loss, n * sizeof *loss);
    copy_out(g, g->queue, g->correct, correct, n * sizeof *correct);
    wait_for(g, g->queue, mark(g, g->queue));
    *out_loss = 0;
    *out_correct = 0;
    for (size_t s = 0; s < n && fine(g); s++) *out_loss += loss[s], *out_correct += correct[s];
    begin_backward(g);
}

static void gpu_output_grad(void *state, const echi_real *rows) {
    struct gpu *g = state;
    stage_in(g, g->borders[g->count].gradient, g->grads_in, rows, border_bytes(g, g->count));
    begin_backward(g);
}

/* A share of a border's gradient is put where share_of says; then `give` adds it to those that are there. */
static struct echi_buffer *share_of(const struct gpu *g, int i) { return g->borders[i].given ? g->share : g->borders[i].gradient; }
static void give(struct gpu *g, int i, bool rectified) {
    struct border *b = &g->borders[i];
    if (b->given) LAUNCH_EACH(g, K_add, border_count(g, i), BUFFER(b->gradient), BUFFER(g->share), BUFFER(b->gradient));
    b->rectified = rectified && (b->rectified || !b->given);
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
    LAUNCH_PRODUCT(g, K_conv_backward_weight, l->weights / out, out, depth, parts, BUFFER(x), BUFFER(dy),
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

/* The unit's gradients set out for their places. */
static void grads_out(struct gpu *g, const struct echi_layer *l, struct own *own, const echi_real *params, echi_real *grads) {
    if (echi_layer_params(l) == 0) return;
    order(g, g->queue, g->copies);
    if (l->weights > 0) copy_out(g, g->copies, own->dweight, grads + l->weight_at, l->weights * sizeof *grads);
    if (l->biases > 0) copy_out(g, g->copies, own->dbias, grads + l->bias_at, l->biases * sizeof *grads);
    if (l->running > 0) copy_out(g, g->copies, own->stats, staged(g, own->staged), l->running * sizeof *grads);
    own->event = mark(g, g->copies);
    own->params = params;
    own->grads = grads;
    own->owed = true;
}

static bool gpu_grads(void *state, int unit, bool waits) {
    struct gpu *g = state;
    const struct echi_layer *l = &g->layers[g->units[unit].first];
    struct own *own = &g->own[g->units[unit].first];
    if (!own->owed || !fine(g)) return true;   /* what is wrong, ops/stack.c asks for */
    if (!waits && !echi_event_done(g->copies, own->event)) return false;
    wait_for(g, g->copies, own->event);
    const echi_real *stats = staged(g, own->staged);
    if (l->running > 0 && g->trains && fine(g))
        echi_norm_running_grad(l, g->n, own->params, stats, stats + l->in.c, g->of_round, own->grads);
    else if (l->running > 0) memset(own->grads + l->running_at, 0, l->running * sizeof *own->grads);
    own->owed = false;
    return true;
}

/* --- gradients of inputs --- */

static void conv_backward_input(struct gpu *g, const struct echi_layer *l, const struct own *own, const struct border *from,
                                struct echi_buffer *dy, struct echi_buffer *dx) {
    const struct echi_window w = window_of(l, g->n);
    LAUNCH_PRODUCT(g, K_conv_backward_input, (size_t)l->in.c, (size_t)g->n * map_of(l->in), l->weights / (size_t)l->in.c, 1, BUFFER(dy),
                   BUFFER(own->weight), BUFFER(from->value), INT(from->of_relu), BUFFER(dx), WINDOW(w));
}

static void fc_backward_input(struct gpu *g, const struct echi_layer *l, const struct own *own, const struct border *from,
                              struct echi_buffer *dy, struct echi_buffer *dx) {
    const size_t in = echi_shape_size(l->in), out = (size_t)l->out.c;
    LAUNCH_PRODUCT(g, K_fc_backward_input, (size_t)g->n, in, out, 1, BUFFER(dy), BUFFER(own->weight), BUFFER(from->value),
                   INT(from->of_relu), BUFFER(dx));
}

static void norm_backward_input(struct gpu *g, const struct echi_layer *l, const struct own *own, const struct border *from,
                                struct echi_buffer *dy, struct echi_buffer *dx) {
    const struct echi_window w = window_of(l, g->n);
    const size_t per_channel = (size_t)g->n * map_of(l->in);
    LAUNCH_EACH(g, K_norm_backward_input, per_channel * (size_t)l->in.c, BUFFER(from->value), BUFFER(dy), BUFFER(own->stats),
                BUFFER(own->weight), BUFFER(own->dweight), BUFFER(own->dbias), BUFFER(dx), INT(g->trains), INT(from->of_relu),
                INT(per_channel), FLOAT(ECHI_NORM_EPSILON), WINDOW(w));
}

/* Those of a sum: to both, as they are. */
static void add_backward(struct gpu *g, int i, struct echi_buffer *dy, size_t bytes) {
    const int to[2] = {echi_layer_takes(g->layers, i), echi_layer_adds(g->layers, i)};
    for (int k = 0; k < 2; k++) {
        copy(g, share_of(g, to[k]), dy, bytes);
        give(g, to[k], false);
    }
}

static void input_backward(struct gpu *g, int i, struct echi_buffer *dy) {
    const struct echi_layer *l = &g->layers[i];
    const struct own *own = &g->own[i];
    const struct echi_window w = window_of(l, g->n);
    const int number = echi_layer_takes(g->layers, i);
    const struct border *from = &g->borders[number];
    const size_t count = border_count(g, number), bytes = border_bytes(g, number);
    struct echi_buffer *dx = share_of(g, number), *extra = g->borders[i + 1].extra;
    bool rectified = false;   /* the kernel goes back through the ReLU before it, too */
    switch (l->op) {
    case ECHI_OP_CONV2D: conv_backward_input(g, l, own, from, dy, dx), rectified = true; break;
    case ECHI_OP_FC: fc_backward_input(g, l, own, from, dy, dx), rectified = true; break;
    case ECHI_OP_MAX_POOL:
        LAUNCH_EACH(g, K_max_pool_backward, count, BUFFER(extra), BUFFER(dy), BUFFER(from->value), INT(from->of_relu), BUFFER(dx),
                    WINDOW(w));
        rectified = true;
        break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_AVG_POOL: LAUNCH_EACH(g, K_avg_pool_backward, count, BUFFER(dy), BUFFER(dx), WINDOW(w)); break;
    case ECHI_OP_RELU: LAUNCH_EACH(g, K_relu_backward, count, BUFFER(from->value), BUFFER(dy), BUFFER(dx)); break;
    case ECHI_OP_TANH: LAUNCH_EACH(g, K_tanh_backward, count, BUFFER(g->borders[i + 1].value), BUFFER(dy), BUFFER(dx)); break;
    case ECHI_OP_ADD: return add_backward(g, i, dy, bytes);
    case ECHI_OP_DROPOUT:
        if (g->trains) LAUNCH_EACH(g, K_multiply, count, BUFFER(dy), BUFFER(extra), BUFFER(dx));
        else copy(g, dx, dy, bytes);
        break;
    case ECHI_OP_BATCH_NORM: norm_backward_input(g, l, own, from, dy, dx), rectified = true; break;
    case ECHI_OPS: break;
    }
    give(g, number, rectified);
}

static void gpu_backward(void *state, int unit, const echi_real *params, echi_real *grads, bool need_input_grad) {
    struct gpu *g = state;
    const int i = g->units[unit].first, end = g->units[unit].end;
    const struct echi_layer *l = &g->layers[i];
    struct own *own = &g->own[i];
    const struct border *out = &g->borders[end];
    struct echi_buffer *x = g->borders[echi_layer_takes(g->layers, i)].value, *dy = out->gradient;
    if (out->of_relu && !out->rectified) LAUNCH_EACH(g, K_relu_backward, border_count(g, end), BUFFER(out->value), BUFFER(dy), BUFFER(dy));
    if (l->op == ECHI_OP_CONV2D) conv_backward_params(g, l, own, x, dy);
    if (l->op == ECHI_OP_FC) fc_backward_params(g, l, own, x, dy);
    if (l->op == ECHI_OP_BATCH_NORM) norm_backward_params(g, l, own, x, dy);
    grads_out(g, l, own, params, grads);
    if (need_input_grad) input_backward(g, i, dy);
}

static void gpu_input_grad(void *state, echi_real *rows) {
    struct gpu *g = state;
    stage_out(g, g->borders[0].gradient, g->grads_out, rows, border_bytes(g, 0));
}

const struct echi_stack_impl echi_stack_gpu = {
    .name = "gpu",
    .far = true,
    .create = gpu_create,
    .destroy = gpu_destroy,
    .input = gpu_input,
    .same_params = gpu_same_params,
    .train = gpu_train,
    .forward = gpu_forward,
    .output = gpu_output,
    .loss = gpu_loss,
    .output_grad = gpu_output_grad,
    .backward = gpu_backward,
    .grads = gpu_grads,
    .input_grad = gpu_input_grad,
    .trouble = gpu_trouble,
};
