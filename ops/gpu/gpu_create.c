/* SPDX-License-Identifier: Apache-2.0
 * A stack on a device that is not the host, up to its first step: units, kernels, queues, and the plan of memory, which is held against the
 * device's before any is taken. */
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_gpu_stack.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kernel_names[] = {
#define NAME(name) #name,
    ECHI_GPU_KERNELS(NAME)
#undef NAME
};

void echi_gpu_destroy(void *state) {
    struct echi_gpu_stack *g = state;
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
    struct echi_buffer *all[] = {g->share, g->parts, g->packed_a, g->packed_b, g->labels, g->loss, g->correct, g->staging};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) echi_buffer_destroy(all[k]);
    free(g->own);
    free(g->units);
    free(g->borders);
    free(g->layers);
    free(g);
}

/* Adds `floats` to what the stack takes; makes the buffer when that has been held against the device's memory. */
static ech_status make(struct echi_gpu_stack *g, size_t floats, struct echi_buffer **out, struct ech_error *err) {
    if (floats > INT32_MAX - ECHI_GPU_ITEMS)
        return echi_fail(err, ECH_E_MEMORY, "stack.create",
                         "%zu numbers of one layer are more than kernels can count; use fewer samples a step", floats);
    if (!g->counting) return echi_buffer_create(g->device, floats * sizeof(float), out, err);
    g->bytes += floats * sizeof(float);
    return ECH_OK;
}

static ech_status make_own(struct echi_gpu_stack *g, const struct echi_layer *l, struct echi_gpu_own *own, struct ech_error *err) {
    if (l->weights > 0) ECHI_TRY(make(g, l->weights, &own->weight, err));
    if (l->weights > 0) ECHI_TRY(make(g, l->weights, &own->dweight, err));
    if (l->biases > 0) ECHI_TRY(make(g, l->biases, &own->bias, err));
    if (l->biases > 0) ECHI_TRY(make(g, l->biases, &own->dbias, err));
    return l->running > 0 ? make(g, l->running, &own->stats, err) : ECH_OK;
}

/* What lies where units begin and end. */
static ech_status make_border(struct echi_gpu_stack *g, int i, size_t max_n, size_t *largest, struct ech_error *err) {
    const enum echi_op made_by = i > 0 ? g->layers[i - 1].op : ECHI_OPS;
    struct echi_gpu_border *b = &g->borders[i];
    const size_t size = echi_gpu_border_size(g->layers, i) * max_n;   /* ops/stack.c has seen that its bytes can be counted */
    ECHI_TRY(make(g, size, &b->value, err));
    ECHI_TRY(make(g, size, &b->gradient, err));
    raise_to(largest, size);
    return made_by == ECHI_OP_DROPOUT || made_by == ECHI_OP_MAX_POOL ? make(g, size, &b->extra, err) : ECH_OK;
}

static ech_status make_buffers(struct echi_gpu_stack *g, size_t max_n, struct ech_error *err) {
    size_t largest = 0;
    ECHI_TRY(make_border(g, 0, max_n, &largest, err));
    for (int u = 0; u < g->n_units; u++) ECHI_TRY(make_border(g, g->units[u].end, max_n, &largest, err));
    for (int i = 0; i < g->count; i++) ECHI_TRY(make_own(g, &g->layers[i], &g->own[i], err));
    ECHI_TRY(make(g, largest, &g->share, err));
    ECHI_TRY(make(g, g->room.parts, &g->parts, err));
    ECHI_TRY(make(g, g->room.a, &g->packed_a, err));
    ECHI_TRY(make(g, g->room.b, &g->packed_b, err));
    ECHI_TRY(make(g, max_n, &g->labels, err));
    ECHI_TRY(make(g, max_n, &g->loss, err));
    return make(g, max_n, &g->correct, err);
}

/* The plan: what all buffers take together, before there is any. */
static ech_status check_memory(struct echi_gpu_stack *g, size_t max_n, struct ech_error *err) {
    const struct echi_device_info *info = echi_device_describe(g->device);
    g->counting = true;
    g->room.parts = 1;
    ECHI_TRY(echi_gpu_plan_products(g, (int)max_n, err));
    for (int i = 0; i < g->count; i++) {
        const struct echi_layer *l = &g->layers[i];
        if (l->bias || l->op == ECHI_OP_BATCH_NORM)
            raise_to(&g->room.parts, ECHI_GPU_OF_CHANNEL * (size_t)l->out.c * echi_gpu_groups_of_channel(g, l, max_n));
    }
    ECHI_TRY(make_buffers(g, max_n, err));
    g->counting = false;
    const size_t left = echi_device_memory_free(g->device), there = left > 0 ? left : info->memory;
    char of_it[64] = " in total";
    if (there == 0 || g->bytes <= there) return ECH_OK;
    if (left > 0) snprintf(of_it, sizeof of_it, ", of which %zu MiB are free", left >> 20);
    return echi_fail(err, ECH_E_MEMORY, "stack.create",
                     "%s has %zu MiB of memory%s, and activations and parameters of %zu samples a step take %zu bytes; use fewer samples%s",
                     info->name, info->memory >> 20, of_it, max_n, g->bytes,
                     left > 0 && g->bytes <= info->memory ? ", or end other programs on this device" : "");
}

/* What gpu_forward and input_backward have a case for. */
static bool has_kernels(enum echi_op op) {
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

/* step_back() of products.cl counts with these strides. */
static ech_status check_layers(const struct echi_gpu_stack *g, struct ech_error *err) {
    for (int i = 0; i < g->count; i++) {
        const struct echi_layer *l = &g->layers[i];
        if (!has_kernels(l->op))
            return echi_fail_at(err, ECH_E_UNSUPPORTED, "stack.create", -1, l->name,
                                "layer '%s' (%s) has no kernels for %s; give --device cpu, or use another layer", l->name,
                                echi_op_name(l->op), echi_device_describe(g->device)->name);
        const struct echi_window w = echi_gpu_window_of(l, 1);
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

static ech_status make_staging(struct echi_gpu_stack *g, size_t max_n, struct ech_error *err) {
    const size_t in = echi_gpu_border_size(g->layers, 0) * max_n, out = echi_gpu_border_size(g->layers, g->count) * max_n;
    size_t end = 0;
    g->rows_in = reserve(&end, in), g->grads_out = reserve(&end, in);
    g->rows_out = reserve(&end, out), g->grads_in = reserve(&end, out);
    g->labels_in = reserve(&end, max_n), g->loss_out = reserve(&end, max_n), g->correct_out = reserve(&end, max_n);
    for (int i = 0; i < g->count; i++) {
        const struct echi_layer *l = &g->layers[i];
        g->own[i].staged = reserve(&end, l->op == ECHI_OP_DROPOUT ? echi_gpu_border_size(g->layers, i + 1) * max_n : l->running);
    }
    return echi_buffer_create_pinned(g->device, end, &g->staging, err);
}

/* A text for NVIDIA's cards alone, if the device takes an image of it: else its products are computed by another, which says why. */
static ech_status open_text(struct echi_gpu_stack *g, enum echi_product_text text, struct ech_error *err) {
    const ech_status status = echi_device_program(g->device, echi_gpu_product_sources[text], &g->text[text], err);
    if (status == ECH_E_UNSUPPORTED) g->card.lacks |= 1u << text;
    return status == ECH_E_UNSUPPORTED ? ECH_OK : status;
}

static struct echi_product_card card_of(const struct echi_device *device) {
    const struct echi_device_info *info = echi_device_describe(device);
    return (struct echi_product_card){info->capability / 10, info->capability % 10, info->compute_units, (int)info->shared_most, 0};
}

static ech_status open_texts(struct echi_gpu_stack *g, struct ech_error *err) {
    const struct echi_device_info *info = echi_device_describe(g->device);
    g->card = card_of(g->device);
    if (g->card.major < 8) return ECH_OK;
    if (g->precision == ECHI_PRODUCT_FLOAT) return open_text(g, ECHI_PRODUCT_F32, err);
    if (info->capability == 90) ECHI_TRY(open_text(g, ECHI_PRODUCT_SM90, err));
    return open_text(g, ECHI_PRODUCT_SM80, err);
}

/* The text that large products would be computed by, if another computes the same: mma's instead of wgmma's, but of rounded products not
 * floats. */
const struct echi_source *echi_gpu_spare(const struct echi_device *device, enum echi_product_precision precision) {
    const struct echi_product_card card = card_of(device);
    const struct echi_product large = {.op = ECHI_PRODUCT_MATRIX, .precision = precision, .rows = 1024, .cols = 1024, .depth = 1024,
                                       .row_a = 1024, .k_a = 1, .k_b = 1024, .col_b = 1};
    struct echi_product_plan plan;
    echi_product_choose(&large, &card, &plan);
    return plan.text == ECHI_PRODUCT_F32 || plan.text == ECHI_PRODUCT_SM90 ? echi_gpu_product_sources[plan.text] : NULL;
}

static ech_status open_kernels(struct echi_gpu_stack *g, struct ech_error *err) {
    struct echi_program *program;
    const bool gpu = echi_device_describe(g->device)->gpu;
    g->tile = gpu ? (struct echi_gpu_tile)ECHI_GPU_TILE : (struct echi_gpu_tile)ECHI_GPU_TILE_CPU;
    ECHI_TRY(echi_device_program(g->device, gpu ? &echi_gpu_source : &echi_gpu_source_cpu, &program, err));
    for (int k = 0; k < ECHI_GPU_KERNEL_COUNT; k++) ECHI_TRY(echi_program_kernel(program, kernel_names[k], &g->kernel[k], err));
    return ECH_OK;
}

static ech_status open_queues(struct echi_gpu_stack *g, struct ech_error *err) {
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
static bool takes_relu(const struct echi_gpu_stack *g, int i) {
    const enum echi_op op = g->layers[i].op;
    return (op == ECHI_OP_CONV2D || op == ECHI_OP_FC || op == ECHI_OP_BATCH_NORM || op == ECHI_OP_ADD) && i + 1 < g->count &&
           g->layers[i + 1].op == ECHI_OP_RELU && echi_layer_takes(g->layers, i + 1) == i + 1 &&
           echi_output_readers(g->layers, g->count, i + 1) == 1;
}

static void make_units(struct echi_gpu_stack *g) {
    for (int i = 0; i < g->count; i = g->units[g->n_units++].end) {
        const bool relu = takes_relu(g, i);
        g->units[g->n_units] = (struct echi_gpu_unit){i, i + 1 + relu, relu};
        g->borders[i + 1 + relu].of_relu = relu;
    }
}

/* What was chosen, of a product the forward one: those of its gradients may be by others, where sizes say so. */
static void tell_unit(const struct echi_gpu_stack *g, const struct echi_gpu_unit *unit, struct echi_stack_unit *out) {
    static const char *const texts[] = {[ECHI_PRODUCT_PORTABLE] = "", [ECHI_PRODUCT_F32] = " fp32 tiles", [ECHI_PRODUCT_SM80] = " mma",
                                        [ECHI_PRODUCT_SM90] = " wgmma"};
    static const char *const precisions[] = {[ECHI_PRODUCT_FLOAT] = "", [ECHI_PRODUCT_TF32] = " tf32", [ECHI_PRODUCT_BF16] = " bf16"};
    const struct echi_layer *l = &g->layers[unit->first];
    const struct echi_device_info *info = echi_device_describe(g->device);
    const struct echi_product_plan *plan = &g->own[unit->first].product[ECHI_GPU_FORWARD].plan;   /* of other layers: portable */
    *out = (struct echi_stack_unit){.first = unit->first, .end = unit->end};
    const char *name = l->op == ECHI_OP_BATCH_NORM ? "batchnorm" : echi_op_name(l->op);
    snprintf(out->kernel, sizeof out->kernel, "%s%s %s%s%s", name, unit->relu ? "+relu" : "", info->backend, texts[plan->text],
             plan->text != ECHI_PRODUCT_PORTABLE ? precisions[g->precision] : "");
    if (info->capability > 0) snprintf(out->why, sizeof out->why, "%.95s", plan->why);
}

ech_status echi_gpu_create(struct echi_device *device, enum echi_product_precision precision, const struct echi_layer *layers, int count,
                           int max_n, void **out_state, struct echi_stack_unit *units, int *out_units, size_t *out_bytes,
                           struct ech_error *err) {
    struct echi_gpu_stack *g = calloc(1, sizeof *g);
    if (g == NULL) return echi_fail_memory(err, "stack.create", "a stack");
    g->device = device;
    g->precision = precision;
    g->count = count;
    g->layers = malloc((size_t)count * sizeof *g->layers);
    g->borders = calloc((size_t)count + 1, sizeof *g->borders);
    g->own = calloc((size_t)count, sizeof *g->own);
    g->units = calloc((size_t)count, sizeof *g->units);
    ech_status status;
    if (g->layers == NULL || g->borders == NULL || g->own == NULL || g->units == NULL) {
        echi_gpu_destroy(g);
        return echi_fail_memory(err, "stack.create", "a stack");
    }
    memcpy(g->layers, layers, (size_t)count * sizeof *layers);
    make_units(g);
    status = check_layers(g, err);
    if (status == ECH_OK) status = open_kernels(g, err);
    if (status == ECH_OK) status = open_texts(g, err);
    if (status == ECH_OK) status = open_queues(g, err);
    if (status == ECH_OK) status = check_memory(g, (size_t)max_n, err);
    if (status == ECH_OK) status = make_buffers(g, (size_t)max_n, err);
    if (status == ECH_OK) status = make_staging(g, (size_t)max_n, err);
    if (status != ECH_OK) {
        echi_gpu_destroy(g);
        return status;
    }
    for (int u = 0; u < g->n_units; u++) tell_unit(g, &g->units[u], &units[u]);
    *out_units = g->n_units;
    *out_bytes = g->bytes;
    *out_state = g;
    return ECH_OK;
}
