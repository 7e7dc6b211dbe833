/* SPDX-License-Identifier: Apache-2.0
 * A batch as the samples that fill vectors, and the rest. Each is a stack with all units, over the same parameters: `whole` in the width
 * of the instruction set, `rest` in groups of four samples, or of two (isa_packed.c). Outputs are the samples' own, to the bit in any;
 * gradients of parameters are added up, those of convolutions' weights before the sum over lanes: the rest goes on with the whole's sums.
 * Those of fully connected layers' weights are computed by the rest, for all samples of the batch. */
#include "echi_cpu_stack.h"
#include "echi_error.h"

#include <stdlib.h>

struct batch {
    struct echi_cpu_stack *whole;
    struct echi_cpu_stack *fours, *pairs;  /* for a rest; NULL: whole takes all, the last of its vectors with empty lanes */
    struct echi_cpu_stack *rest;           /* of the step, one of these; NULL: it has none */
    int n, first;                          /* of the step: samples, and the first of the rest's */
    size_t in, out;                        /* numbers of a sample */
};

/* Convolutions by points or in bf16, which may be others for other widths; those whose weights' gradients are turned; the reference's
 * units; and statistics of a batch stay in one stack. */
static bool has_rest(const struct echi_cpu_stack *s) {
    bool fits = s->k->narrow != NULL && s->bf16 == ECHI_CPU_BF16_NONE;
    for (int i = 0; i < s->n_units; i++)
        fits = fits && !s->units[i].winograd && !s->units[i].turned && !s->units[i].reference &&
               s->units[i].layer->op != ECHI_OP_BATCH_NORM;
    return fits;
}

/* A rest of more samples would take longer than a vector with empty lanes. */
static int most_rest(const struct echi_cpu_stack *s) { return s->k->width - s->k->narrow->width; }
/* Which takes the samples beyond full vectors. */
static struct echi_cpu_stack *rest_of(const struct batch *b, int over) {
    if (!b->fours || over == 0 || over > most_rest(b->whole)) return NULL;
    return over <= b->pairs->k->width ? b->pairs : b->fours;
}

static void destroy(void *state) {
    struct batch *b = state;
    if (b->whole) echi_cpu_part.destroy(b->whole);
    if (b->fours) echi_cpu_part.destroy(b->fours);
    if (b->pairs) echi_cpu_part.destroy(b->pairs);
    free(b);
}

/* Where no narrower vectors take a rest, it takes as long as a full one. */
static int block(const void *state) {
    const struct batch *b = state;
    return (b->pairs ? b->pairs : b->whole)->k->width;
}

static ech_status create_rest(struct batch *b, const struct echi_cpu_kernels *k, int most, struct echi_team *team,
                              const struct echi_layer *layers, int count, bool counts, struct echi_cpu_stack **out, size_t *out_bytes,
                              struct ech_error *err) {
    size_t bytes = 0;
    struct echi_stack_unit *units = calloc((size_t)count, sizeof *units);   /* as the whole's */
    if (units == NULL) return echi_fail_memory(err, "stack.create", "a stack");
    const ech_status status = echi_cpu_part_create(k, 0, ECHI_CPU_BF16_NONE, team, layers, count, most, true, counts, out, units, &bytes,
                                                  err);
    free(units);
    *out_bytes += bytes;
    if (status != ECH_OK) return status;
    /* Megabytes that are free again when a unit has been computed: the rest's comes behind the whole's. */
    (*out)->sums = b->whole->sums;
    for (int place = 0; place < b->whole->threads; place++) (*out)->own[place].matrix = b->whole->own[place].matrix;
    return ECH_OK;
}

/* Vectors that are half empty cost as much as full ones, and two vectors of 8 in one of 16 some 5 to 8 % more than one of 16 samples. A
 * step of AlexNet with 8 samples takes 0.41 s of an Emerald Rapids by AVX2, and 0.33 s in vectors of 8 by AVX-512. */
static bool fits_half(const struct echi_cpu_kernels *k, enum echi_cpu_bf16 bf16, int n) {
    if (!k->half || bf16 != ECHI_CPU_BF16_NONE) return false;
    return n <= k->half->width || round_up(n, k->half->width) * 1.08 <= round_up(n, k->width);
}

static ech_status create_with(const struct echi_cpu_kernels *k, int winograd, enum echi_cpu_bf16 bf16, struct echi_team *team,
                              const struct echi_layer *layers, int count, int max_n, void **out_state, struct echi_stack_unit *units,
                              int *out_units, size_t *out_bytes, struct ech_error *err) {
    const bool counts = out_state == NULL;
    struct batch *b = calloc(1, sizeof *b);
    if (b == NULL) return echi_fail_memory(err, "stack.create", "a stack");
    b->in = echi_shape_size(layers[0].in);
    b->out = echi_shape_size(layers[count - 1].out);
    const struct echi_cpu_kernels *const wide = k;
    if (fits_half(k, bf16, max_n)) k = k->half;
    ech_status status = echi_cpu_part_create(k, winograd, bf16, team, layers, count, max_n, false, counts, &b->whole, units, out_bytes,
                                             err);
    if (status == ECH_OK && k != wide && max_n > k->width && has_rest(b->whole)) {   /* which leaves no lane empty either */
        echi_cpu_part.destroy(b->whole);
        b->whole = NULL;
        k = wide;
        status = echi_cpu_part_create(k, winograd, bf16, team, layers, count, max_n, false, counts, &b->whole, units, out_bytes, err);
    }
    if (status == ECH_OK && has_rest(b->whole)) {
        const struct echi_cpu_kernels *fours = k->narrow, *pairs = fours->narrow;
        status = create_rest(b, fours, min_int(max_n, most_rest(b->whole)), team, layers, count, counts, &b->fours, out_bytes, err);
        if (status == ECH_OK)
            status = create_rest(b, pairs, min_int(max_n, pairs->width), team, layers, count, counts, &b->pairs, out_bytes, err);
    }
    if (status == ECH_OK) *out_units = b->whole->n_units;
    if (status == ECH_OK && !counts) *out_state = b;
    else destroy(b);
    return status;
}

/* ---------------------------------------------------------------- the step */

static bool has_whole(const struct batch *b) { return b->first > 0; }
static bool is_cut(const struct batch *b) { return b->rest != NULL; }

static void input(void *state, int n, const float *rows) {
    struct batch *b = state;
    const int over = n % b->whole->k->width;
    b->rest = rest_of(b, over);
    b->n = n;
    b->first = b->rest ? n - over : n;
    if (has_whole(b)) echi_cpu_part.input(b->whole, b->first, rows);
    if (is_cut(b)) echi_cpu_part.input(b->rest, over, rows + (size_t)b->first * b->in);
}

static void train(void *state, const struct echi_training *training) {
    struct batch *b = state;
    struct echi_training later = *training;
    if (later.rows) later.rows += b->first;
    if (has_whole(b)) echi_cpu_part.train(b->whole, training);
    if (is_cut(b)) echi_cpu_part.train(b->rest, &later);
}

static void forward(void *state, int unit, const float *params) {
    struct batch *b = state;
    if (has_whole(b)) echi_cpu_part.forward(b->whole, unit, params);
    if (is_cut(b)) echi_cpu_part.forward(b->rest, unit, params);
}

static void output(void *state, float *rows) {
    struct batch *b = state;
    if (has_whole(b)) echi_cpu_part.output(b->whole, rows);
    if (is_cut(b)) echi_cpu_part.output(b->rest, rows + (size_t)b->first * b->out);
}

static void loss(void *state, const uint16_t *labels, float scale, double *out_loss, int *out_correct) {
    struct batch *b = state;
    double loss = 0;
    int correct = 0;
    *out_loss = 0;
    *out_correct = 0;
    if (has_whole(b)) echi_cpu_part.loss(b->whole, labels, scale, out_loss, out_correct);
    if (is_cut(b)) echi_cpu_part.loss(b->rest, labels + b->first, scale, &loss, &correct);
    *out_loss += loss;
    *out_correct += correct;
}

static void output_grad(void *state, const float *rows) {
    struct batch *b = state;
    if (has_whole(b)) echi_cpu_part.output_grad(b->whole, rows);
    if (is_cut(b)) echi_cpu_part.output_grad(b->rest, rows + (size_t)b->first * b->out);
}

static void go_backward(struct batch *b, int unit, const float *params, float *grads, bool need_input_grad, bool postpones) {
    b->whole->leaves_sums = is_cut(b);
    b->whole->postpones = postpones;
    if (has_whole(b)) echi_cpu_part.backward(b->whole, unit, params, grads, need_input_grad);
    if (!is_cut(b)) return;
    b->rest->whole = has_whole(b) ? b->whole : NULL;
    b->rest->postpones = postpones;
    echi_cpu_part.backward(b->rest, unit, params, grads, need_input_grad);
}
static void backward(void *state, int unit, const float *params, float *grads, bool need_input_grad) {
    go_backward(state, unit, params, grads, need_input_grad, false);
}
static void backward_inputs(void *state, int unit, const float *params, float *grads) {
    go_backward(state, unit, params, grads, true, true);
}

static void backward_params(void *state, int unit, float *grads) {
    struct batch *b = state;
    echi_cpu_part.backward_params(is_cut(b) ? b->rest : b->whole, unit, grads);   /* the rest computes those of all */
}

static void input_grad(void *state, float *rows) {
    struct batch *b = state;
    if (has_whole(b)) echi_cpu_part.input_grad(b->whole, rows);
    if (is_cut(b)) echi_cpu_part.input_grad(b->rest, rows + (size_t)b->first * b->in);
}

/* Where there is a batch-norm there is no rest. */
static void norm_sums(void *state, int unit, bool back, const float *params, float *out) {
    echi_cpu_part.norm_sums(((struct batch *)state)->whole, unit, back, params, out);
}
static void norm_take(void *state, int unit, bool back, int n, const float *all) {
    echi_cpu_part.norm_take(((struct batch *)state)->whole, unit, back, n, all);
}

/* -------------------------------------------------------------- the tables */

const struct echi_cpu_kernels *echi_cpu_kernels_for(enum echi_cpu_level level) {
    if (level > echi_cpu_level()) return NULL;
#if defined(__x86_64__)
    if (level == ECHI_CPU_AVX512) return &echi_cpu_kernels_avx512;
    if (level == ECHI_CPU_AVX2) return &echi_cpu_kernels_avx2;
#endif
    return level == ECHI_CPU_BASE ? &echi_cpu_kernels_base : NULL;
}

#define CREATE_ARGS                                                                                                     \
    struct echi_device *device, const struct echi_layer *layers, int count, int max_n, void **out_state,                 \
        struct echi_stack_unit *units, int *out_units, size_t *out_bytes, struct ech_error *err
#define CREATE(name, kernels, winograd, bf16)                                                                           \
    static ech_status name(CREATE_ARGS) {                                                                               \
        const struct echi_cpu_kernels *k = kernels;                                                                     \
        if (!k) return echi_fail(err, ECH_E_UNSUPPORTED, "stack.create", "this processor lacks the instructions asked for"); \
        return create_with(k, winograd, bf16, echi_device_team(device), layers, count, max_n, out_state, units,         \
                           out_units, out_bytes, err);                                                                  \
    }
#define STACK(text, create_function)                                                                                    \
    {                                                                                                                   \
        .name = text, .own_layout = true, .create = create_function, .destroy = destroy, .block = block, .input = input,  \
        .train = train, .forward = forward, .output = output, .loss = loss, .output_grad = output_grad,                  \
        .backward = backward, .backward_inputs = backward_inputs, .backward_params = backward_params,                    \
        .input_grad = input_grad, .norm_sums = norm_sums, .norm_take = norm_take                                         \
    }
CREATE(create_best, echi_kernels(device), 4, ECHI_CPU_BF16_NONE)
CREATE(create_close, echi_kernels(device), 2, ECHI_CPU_BF16_NONE)
CREATE(create_plain, echi_kernels(device), 0, ECHI_CPU_BF16_NONE)
CREATE(create_fixed, &echi_cpu_kernels_fixed, 0, ECHI_CPU_BF16_NONE)
/* bf16 without the kernels for it is no kernel at all. */
static const struct echi_cpu_kernels *kernels_if(enum echi_cpu_bf16 bf16, const struct echi_device *device) {
    return echi_cpu_bf16() >= bf16 && echi_device_level(device) >= ECHI_CPU_AVX512 ? echi_kernels(device) : NULL;
}
CREATE(create_bf16, kernels_if(ECHI_CPU_BF16_DOT, device), 4, echi_cpu_bf16())
CREATE(create_bf16_close, kernels_if(ECHI_CPU_BF16_DOT, device), 2, echi_cpu_bf16())
CREATE(create_bf16_plain, kernels_if(ECHI_CPU_BF16_DOT, device), 0, echi_cpu_bf16())
CREATE(create_bf16_dot, kernels_if(ECHI_CPU_BF16_DOT, device), 4, ECHI_CPU_BF16_DOT)
CREATE(create_bf16_amx, kernels_if(ECHI_CPU_BF16_AMX, device), 4, ECHI_CPU_BF16_AMX)
const struct echi_stack_impl echi_stack_cpu = STACK("cpu", create_best);
const struct echi_stack_impl echi_stack_cpu_close = STACK("cpu-close", create_close);
const struct echi_stack_impl echi_stack_cpu_plain = STACK("cpu-plain", create_plain);
const struct echi_stack_impl echi_stack_cpu_fixed = STACK("cpu-fixed", create_fixed);
const struct echi_stack_impl echi_stack_cpu_bf16 = STACK("cpu-bf16", create_bf16);
const struct echi_stack_impl echi_stack_cpu_bf16_close = STACK("cpu-bf16-close", create_bf16_close);
const struct echi_stack_impl echi_stack_cpu_bf16_plain = STACK("cpu-bf16-plain", create_bf16_plain);
const struct echi_stack_impl echi_stack_cpu_bf16_dot = STACK("cpu-bf16-dot", create_bf16_dot);
const struct echi_stack_impl echi_stack_cpu_bf16_amx = STACK("cpu-bf16-amx", create_bf16_amx);
