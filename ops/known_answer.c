/* SPDX-License-Identifier: Apache-2.0
 * Known answers. Problems of one op come first, so that the first that is wrong names it. All that is on the device goes there and comes
 * back through a queue, so the device may be one whose memory the host does not see. */
#include "echi_known_answer.h"
#include "echi_error.h"
#include "echi_random.h"
#include "ref/echi_ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 5                              /* no multiple of any vector */
#define LAYERS 5
#define COUNT 1003                             /* numbers of a flat range */
#define SHARE ((echi_real)0.25)                /* of a round, for batch-norm's running averages */

/* kernel, stride and pad on both sides; `from` 1: takes the problem's input and not the output of the layer before it. */
struct link { enum echi_op op; int outputs, kernel, stride, pad, from; };
struct problem { const char *name; struct echi_shape in; int count; bool loss; struct link link[LAYERS]; };
/* Sides that no vector, tile or window divides; two problems with the many channels that Winograd's sums are for, and three with the
 * rows that wgmma is for (gpu/gpu_products.c), forward, backward and of a matrix, and sums that are longer than its stages. */
static const struct problem problems[] = {
    {"conv2d", {3, 9, 7}, 1, false, {{ECHI_OP_CONV2D, 5, 3, 2, 1, 0}}},
    {"conv2d", {5, 6, 5}, 1, false, {{ECHI_OP_CONV2D, 7, 1, 1, 0, 0}}},
    {"conv2d", {16, 12, 12}, 1, false, {{ECHI_OP_CONV2D, 16, 3, 1, 1, 0}}},
    {"conv2d", {16, 9, 9}, 1, false, {{ECHI_OP_CONV2D, 16, 5, 1, 2, 0}}},
    {"conv2d", {32, 4, 4}, 1, false, {{ECHI_OP_CONV2D, 67, 3, 1, 1, 0}}},
    {"conv2d", {67, 4, 4}, 1, false, {{ECHI_OP_CONV2D, 32, 3, 1, 1, 0}}},
    {"fc", {7, 3, 3}, 1, false, {{ECHI_OP_FC, 11, 0, 0, 0, 0}}},
    {"fc", {19, 1, 1}, 1, false, {{ECHI_OP_FC, 67, 0, 0, 0, 0}}},
    {"max_pool", {3, 8, 7}, 1, false, {{ECHI_OP_MAX_POOL, 0, 3, 2, 1, 0}}},
    {"avg_pool", {3, 9, 6}, 1, false, {{ECHI_OP_AVG_POOL, 0, 2, 2, 0, 0}}},
    {"relu", {3, 5, 7}, 1, false, {{ECHI_OP_RELU, 0, 0, 0, 0, 0}}},
    {"global_avg_pool", {6, 5, 7}, 1, false, {{ECHI_OP_GLOBAL_AVG_POOL, 0, 0, 1, 0, 0}}},
    {"tanh", {3, 5, 7}, 1, false, {{ECHI_OP_TANH, 0, 0, 0, 0, 0}}},
    {"dropout", {3, 5, 7}, 1, false, {{ECHI_OP_DROPOUT, 0, 0, 0, 0, 0}}},
    {"batch_norm", {6, 5, 7}, 1, false, {{ECHI_OP_BATCH_NORM, 0, 0, 0, 0, 0}}},
    {"add", {3, 5, 7}, 3, false, {{ECHI_OP_TANH, 0, 0, 0, 0, 0}, {ECHI_OP_TANH, 0, 0, 0, 0, 1}, {ECHI_OP_ADD, 0, 0, 0, 0, 0}}},
    {"softmax_cross_entropy", {7, 3, 3}, 1, true, {{ECHI_OP_FC, 10, 0, 0, 0, 0}}},
    {"conv2d, relu and max_pool as one", {3, 10, 10}, 3, false,
     {{ECHI_OP_CONV2D, 6, 5, 1, 2, 0}, {ECHI_OP_RELU, 0, 0, 0, 0, 0}, {ECHI_OP_MAX_POOL, 0, 2, 2, 0, 0}}},
    {"conv2d, relu and add as one", {5, 6, 7}, 5, false,   /* what a ReLU gives is taken twice */
     {{ECHI_OP_CONV2D, 5, 3, 1, 1, 0}, {ECHI_OP_RELU, 0, 0, 0, 0, 0}, {ECHI_OP_CONV2D, 5, 3, 1, 1, 0}, {ECHI_OP_ADD, 0, 0, 0, 0, 0},
      {ECHI_OP_RELU, 0, 0, 0, 0, 0}}},
    {"conv2d, batch_norm, relu, max_pool and fc as one", {3, 9, 9}, 5, true,
     {{ECHI_OP_CONV2D, 9, 3, 1, 1, 0}, {ECHI_OP_BATCH_NORM, 0, 0, 0, 0, 0}, {ECHI_OP_RELU, 0, 0, 0, 0, 0},
      {ECHI_OP_MAX_POOL, 0, 3, 2, 1, 0}, {ECHI_OP_FC, 10, 0, 0, 0, 0}}},
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

/* ------------------------------------------------------------- comparing */

static ech_status compare(const struct echi_device *device, double tolerance, const char *op, const char *what, const echi_real *got,
                          const echi_real *wanted, size_t count, struct ech_error *err) {
    double largest = 0;
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)wanted[i]));
    for (size_t i = 0; i < count; i++) {
        if (fabs((double)got[i] - (double)wanted[i]) <= tolerance * largest) continue;   /* false for NaN */
        if (wrong++ == 0) first = i;
    }
    if (wrong == 0) return ECH_OK;
    return echi_fail_at(err, ECH_E_UNSUPPORTED, "device.known-answer", -1, op,
                        "%s computes %s wrongly: %zu of %zu numbers of %s are not the reference's, the first is %.6g instead of %.6g; "
                        "choose another device, or renew its driver", echi_device_describe(device)->name, op, wrong, count, what,
                        (double)got[first], (double)wanted[first]);
}

static void put(struct echi_buffer *to, const echi_real *from, size_t count) { memcpy(echi_buffer_host(to), from, count * sizeof *from); }
static void get(const struct echi_buffer *from, echi_real *to, size_t count) { memcpy(to, echi_buffer_host(from), count * sizeof *to); }

/* Numbers in [-1, 1); equal seeds give equal numbers. */
static void fill(echi_real *x, size_t count, uint32_t seed) {
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, seed);
    for (size_t i = 0; i < count; i++) x[i] = (echi_real)(2 * echi_random_unit(&r) - 1);
}

/* --------------------------------------------------------------- a stack */

/* What a problem is given, and what comes out; all in one block. */
struct answers { echi_real *evaluated, *output, *input_grad, *grads; double loss; int correct; };
struct trial {
    struct echi_layer layers[LAYERS];
    int count;
    bool loss;
    size_t params, in, out;      /* numbers, of all samples */
    echi_real *given, *rows, *output_grad;
    uint16_t labels[SAMPLES];
    struct answers got, wanted;
    double tolerance;            /* of an array's largest number */
    echi_real *memory;
};

static size_t place(struct trial *t, size_t count, size_t *out_count) {
    const size_t at = t->params;
    *out_count = count;
    t->params += count;
    return at;
}

static void add_layer(struct trial *t, const struct link *link, struct echi_shape input) {
    const int i = t->count++;
    struct echi_layer *l = &t->layers[i];
    const struct echi_shape in = link->from || i == 0 ? input : t->layers[i - 1].out;
    const bool window = link->kernel > 0, all = link->op == ECHI_OP_GLOBAL_AVG_POOL;
    *l = (struct echi_layer){.op = link->op, .in = in, .out = in, .skip = link->from ? i : 0, .number = (uint32_t)i,
                             .kernel_h = all ? in.h : link->kernel, .kernel_w = all ? in.w : link->kernel,
                             .stride_h = link->stride, .stride_w = link->stride, .pad_h = link->pad, .pad_w = link->pad};
    strcpy(l->name, echi_op_name(link->op));
    if (window) l->out.h = (in.h + 2 * link->pad - link->kernel) / link->stride + 1;
    if (window) l->out.w = (in.w + 2 * link->pad - link->kernel) / link->stride + 1;
    if (all) l->out = (struct echi_shape){in.c, 1, 1};
    if (link->op == ECHI_OP_ADD) l->with = 1;
    if (link->op == ECHI_OP_DROPOUT) l->drop = 300000;
    if (link->op == ECHI_OP_CONV2D) l->out.c = link->outputs;
    if (link->op == ECHI_OP_FC) l->out = (struct echi_shape){link->outputs, 1, 1};
    if (link->op == ECHI_OP_CONV2D || link->op == ECHI_OP_FC) {
        l->bias = true;
        const size_t taps = window ? (size_t)(in.c * link->kernel * link->kernel) : echi_shape_size(in);
        l->weight_at = place(t, (size_t)link->outputs * taps, &l->weights);
        l->bias_at = place(t, (size_t)link->outputs, &l->biases);
    } else if (link->op == ECHI_OP_BATCH_NORM) {
        l->weight_at = place(t, (size_t)in.c, &l->weights);
        l->bias_at = place(t, (size_t)in.c, &l->biases);
        l->running_at = place(t, 2 * (size_t)in.c, &l->running);
    }
}

static void carve(echi_real **at, echi_real **out, size_t count) {
    *out = *at;
    *at += count;
}

static ech_status trial_begin(struct trial *t, const struct problem *p, struct ech_error *err) {
    *t = (struct trial){.loss = p->loss};
    for (int i = 0; i < p->count; i++) add_layer(t, &p->link[i], p->in);
    t->in = SAMPLES * echi_shape_size(p->in);
    t->out = SAMPLES * echi_shape_size(t->layers[t->count - 1].out);
    echi_real *at = t->memory = calloc(3 * t->params + 3 * t->in + 5 * t->out, sizeof *at);
    if (!at) return echi_fail_memory(err, "device.known-answer", "a small problem");
    carve(&at, &t->given, t->params);
    carve(&at, &t->rows, t->in);
    carve(&at, &t->output_grad, t->out);
    for (int i = 0; i < 2; i++) {
        struct answers *a = i ? &t->got : &t->wanted;
        carve(&at, &a->evaluated, t->out);
        carve(&at, &a->output, t->out);
        carve(&at, &a->input_grad, t->in);
        carve(&at, &a->grads, t->params);
    }
    fill(t->given, t->params, 1);
    fill(t->rows, t->in, 2);
    fill(t->output_grad, t->out, 3);
    for (int i = 0; i < SAMPLES; i++) t->labels[i] = (uint16_t)(3 * i % 10);
    for (int i = 0; i < t->count; i++)   /* variances are not negative */
        for (size_t c = t->layers[i].running / 2; c < t->layers[i].running; c++) {
            echi_real *variance = &t->given[t->layers[i].running_at + c];
            *variance = *variance * *variance + (echi_real)0.5;
        }
    return ECH_OK;
}

static ech_status forward(struct echi_stack *stack, const struct trial *t, const struct echi_buffer *params, bool trains, echi_real *output,
                          struct ech_error *err) {
    struct echi_row who[SAMPLES];
    for (uint32_t s = 0; s < SAMPLES; s++) who[s] = (struct echi_row){s % 2, 100 + 7 * s};
    ECHI_TRY(echi_stack_input(stack, SAMPLES, t->rows, err));
    if (trains) ECHI_TRY(echi_stack_train(stack, &(struct echi_training){5, who, SHARE}, err));
    for (int u = 0; u < echi_stack_units(stack); u++) ECHI_TRY(echi_stack_forward(stack, u, params, err));
    return echi_stack_output(stack, output, err);
}

static ech_status step(struct echi_stack *stack, const struct trial *t, const struct echi_buffer *params, struct echi_buffer *grads,
                       struct answers *out, struct ech_error *err) {
    ECHI_TRY(forward(stack, t, params, false, out->evaluated, err));
    ECHI_TRY(forward(stack, t, params, true, out->output, err));
    if (t->loss) ECHI_TRY(echi_stack_loss(stack, t->labels, (echi_real)0.125, &out->loss, &out->correct, err));
    else ECHI_TRY(echi_stack_output_grad(stack, t->output_grad, err));
    for (int u = echi_stack_units(stack) - 1; u >= 0; u--) ECHI_TRY(echi_stack_backward(stack, u, params, grads, true, err));
    ECHI_TRY(echi_stack_grads(stack, 0, err));
    return echi_stack_input_grad(stack, out->input_grad, err);
}

/* impl NULL: the usual kernels. *out_refused: the implementation has none for these layers. */
static ech_status compute(struct echi_device *device, const struct echi_stack_impl *impl, const struct trial *t, struct answers *out,
                          bool *out_refused, struct ech_error *err) {
    const size_t bytes = t->params * sizeof(echi_real);
    struct echi_stack *stack = NULL;
    struct echi_buffer *params = NULL, *grads = NULL;
    ech_status status = impl ? echi_stack_create_with(device, impl, t->layers, t->count, SAMPLES, &stack, err)
                             : echi_stack_create(device, ECHI_KERNELS_FAST, t->layers, t->count, SAMPLES, &stack, err);
    *out_refused = impl && status == ECH_E_UNSUPPORTED;
    if (status != ECH_OK) return *out_refused ? ECH_OK : status;
    ECHI_TRY_GOTO(echi_buffer_create_pinned(device, bytes, &params, err), out);
    ECHI_TRY_GOTO(echi_buffer_create_pinned(device, bytes, &grads, err), out);
    put(params, t->given, t->params);
    ECHI_TRY_GOTO(step(stack, t, params, grads, out, err), out);
    get(grads, out->grads, t->params);
out:
    echi_stack_destroy(stack);
    echi_buffer_destroy(params);
    echi_buffer_destroy(grads);
    return status;
}

static ech_status compare_answers(const struct echi_device *device, const struct problem *p, const struct trial *t, struct ech_error *err) {
    const struct answers *got = &t->got, *wanted = &t->wanted;
    const echi_real losses[2] = {(echi_real)got->loss, (echi_real)wanted->loss};
    const echi_real hits[2] = {(echi_real)got->correct, (echi_real)wanted->correct};
    ECHI_TRY(compare(device, t->tolerance, p->name, "the output while evaluating", got->evaluated, wanted->evaluated, t->out, err));
    ECHI_TRY(compare(device, t->tolerance, p->name, "the output", got->output, wanted->output, t->out, err));
    ECHI_TRY(compare(device, t->tolerance, p->name, "the loss", &losses[0], &losses[1], t->loss, err));
    ECHI_TRY(compare(device, t->tolerance, p->name, "what is correct", &hits[0], &hits[1], t->loss, err));
    ECHI_TRY(compare(device, t->tolerance, p->name, "the input's gradient", got->input_grad, wanted->input_grad, t->in, err));
    return compare(device, t->tolerance, p->name, "the parameters' gradient", got->grads, wanted->grads, t->params, err);
}

static ech_status try_problem(struct echi_device *device, struct echi_device *host, const struct echi_stack_impl *impl,
                              const struct problem *p, int *tried, struct ech_error *err) {
    struct trial t;
    bool refused = false;
    ech_status status;
    const double rounding = impl ? impl->rounding : 0;
    if (rounding > 0 && (p->count > 1 || p->loss)) return ECH_OK;   /* a rounded number may fall to the other side of a ReLU or a maximum */
    ECHI_TRY_GOTO(trial_begin(&t, p, err), out);
    t.tolerance = ECHI_KNOWN_TOLERANCE + ECHI_KNOWN_ROUNDINGS * rounding;
    ECHI_TRY_GOTO(compute(host, &echi_stack_reference, &t, &t.wanted, &refused, err), out);
    ECHI_TRY_GOTO(compute(device, impl, &t, &t.got, &refused, err), out);
    if (refused) goto out;
    ECHI_TRY_GOTO(compare_answers(device, p, &t, err), out);
    ++*tried;
out:
    free(t.memory);
    return status;
}

/* ----------------------------------------------------------- flat ranges */

enum array { W, V, S, G, A, B, ARRAYS };   /* V and S: the moments, one behind the other in one buffer */
struct flat {
    struct echi_device *device;
    struct echi_queue *queue;
    struct echi_buffer *buffer[ARRAYS];
    echi_real x[ARRAYS][COUNT], got[2 * COUNT];
};
#define LR ((echi_real)0.1)
#define L2 ((echi_real)0.01)
#define MOMENTUM ((echi_real)0.9)
#define BETA1 ((echi_real)0.9)
#define BETA2 ((echi_real)0.999)
#define EPSILON ((echi_real)1e-8)

/* Each does on the device what it then does to f->x. */
static ech_status flat_sgd(struct flat *f, struct ech_error *err) {
    const struct echi_step how = {.rule = ECHI_RULE_SGD, .lr = LR, .l2 = L2, .momentum = MOMENTUM};
    const struct echi_moments v = {f->buffer[V], 0, 0};
    ECHI_TRY(echi_apply(f->device, f->buffer[W], f->buffer[W], &v, f->buffer[G], 0, COUNT, &how, err));
    ECHI_REF(sgd)(COUNT, f->x[W], f->x[V], f->x[G], LR, MOMENTUM, L2);
    return ECH_OK;
}
static ech_status flat_nesterov(struct flat *f, struct ech_error *err) {   /* of a state, into another buffer */
    const struct echi_step how = {.rule = ECHI_RULE_NESTEROV, .lr = LR, .l2 = L2, .momentum = MOMENTUM};
    const struct echi_moments v = {f->buffer[V], 0, 0};
    ECHI_TRY(echi_apply_state(f->device, f->buffer[W], f->buffer[A], f->buffer[B], &v, f->buffer[G], 0, COUNT, &how, err));
    for (int i = 0; i < COUNT; i++) {
        const echi_real d = f->x[G][i] + L2 * f->x[W][i];
        f->x[V][i] = MOMENTUM * f->x[V][i] + d;
        f->x[B][i] = f->x[A][i] - LR * (d + MOMENTUM * f->x[V][i]);
    }
    return ECH_OK;
}
static ech_status flat_adam(struct flat *f, struct ech_error *err) {       /* the first step, from moments of 0 */
    const struct echi_step how = {.rule = ECHI_RULE_ADAM, .lr = LR / (1 - BETA1), .l2 = L2, .per_f = 1, .keep1 = BETA1, .gain1 = 1 - BETA1,
                                  .keep2 = BETA2, .gain2 = 1 - BETA2, .whole2 = 1 / (1 - BETA2), .epsilon = EPSILON};
    const struct echi_moments moments = {f->buffer[V], 0, COUNT};
    memset(f->x[V], 0, sizeof f->x[V]);
    memset(f->x[S], 0, sizeof f->x[S]);
    memset(f->got, 0, sizeof f->got);
    put(f->buffer[V], f->got, 2 * COUNT);
    ECHI_TRY(echi_apply(f->device, f->buffer[W], f->buffer[W], &moments, f->buffer[G], 0, COUNT, &how, err));
    ECHI_REF(adam)(COUNT, f->x[W], f->x[V], f->x[S], f->x[G], 1, LR, BETA1, BETA2, EPSILON, L2, false);
    return ECH_OK;
}
static ech_status flat_add(struct flat *f, struct ech_error *err) {
    ECHI_TRY(echi_add(f->device, f->buffer[A], f->buffer[G], 0, COUNT, err));
    ECHI_REF(add)(COUNT, f->x[A], f->x[G], f->x[A]);
    return ECH_OK;
}
static ech_status flat_scale(struct flat *f, struct ech_error *err) {
    ECHI_TRY(echi_scale(f->device, f->buffer[A], 0, COUNT, LR, err));
    for (int i = 0; i < COUNT; i++) f->x[A][i] *= LR;
    return ECH_OK;
}
static ech_status flat_take_delta(struct flat *f, struct ech_error *err) {
    ECHI_TRY(echi_take_delta(f->device, f->buffer[B], f->buffer[W], f->buffer[A], 0, COUNT, SHARE, err));
    for (int i = 0; i < COUNT; i++) {
        f->x[B][i] = (f->x[A][i] - f->x[W][i]) * SHARE;
        f->x[A][i] = f->x[W][i];
    }
    return ECH_OK;
}
static ech_status flat_rebase(struct flat *f, struct ech_error *err) {
    ECHI_TRY(echi_rebase(f->device, f->buffer[W], f->buffer[A], f->buffer[G], 0, COUNT, err));
    for (int i = 0; i < COUNT; i++) {
        f->x[W][i] = f->x[G][i] + (f->x[W][i] - f->x[A][i]);
        f->x[A][i] = f->x[G][i];
    }
    return ECH_OK;
}
static ech_status flat_sum_states(struct flat *f, struct ech_error *err) {
    const struct echi_buffer *const states[2] = {f->buffer[A], f->buffer[G]};
    ECHI_TRY(echi_sum_states(f->device, f->buffer[B], f->buffer[W], states, 2, 0, COUNT, err));
    for (int i = 0; i < COUNT; i++) f->x[B][i] = f->x[W][i] + f->x[A][i] + f->x[G][i];
    return ECH_OK;
}
static ech_status flat_all_finite(struct flat *f, struct ech_error *err) {   /* said as a number, 1 where it is right */
    bool whole = false, spoilt = true;
    ECHI_TRY(echi_all_finite(f->device, f->buffer[A], 0, COUNT, &whole, err));
    f->x[B][0] = (echi_real)NAN;
    put(f->buffer[B], f->x[B], COUNT);
    ECHI_TRY(echi_all_finite(f->device, f->buffer[B], 0, COUNT, &spoilt, err));
    f->x[B][0] = 1;
    f->got[0] = whole && !spoilt ? 1 : 0;
    put(f->buffer[B], f->got, 1);
    return ECH_OK;
}

static const struct { const char *name; ech_status (*run)(struct flat *f, struct ech_error *err); } flats[] = {
    {"sgd", flat_sgd}, {"nesterov", flat_nesterov}, {"adam", flat_adam}, {"add of gradients", flat_add}, {"scale", flat_scale},
    {"take_delta", flat_take_delta}, {"rebase", flat_rebase}, {"sum_states", flat_sum_states}, {"all_finite", flat_all_finite},
};
enum { FLATS = sizeof flats / sizeof flats[0] };

/* Each begins with the same numbers, so that what one leaves does not spoil the next. */
static ech_status try_flat(struct flat *f, int which, struct ech_error *err) {
    for (int a = 0; a < ARRAYS; a++) {
        fill(f->x[a], COUNT, (uint32_t)(10 + a));
        if (a != S) put(f->buffer[a], f->x[a], COUNT);
    }
    ECHI_TRY(flats[which].run(f, err));
    static const char *const what[ARRAYS] = {[W] = "w", [V] = "v", [A] = "a", [B] = "what is written"};
    for (int a = 0; a < ARRAYS; a++) {
        const size_t count = a == V && flats[which].run == flat_adam ? 2 * COUNT : COUNT;
        if (!what[a]) continue;
        get(f->buffer[a], f->got, count);
        ECHI_TRY(compare(f->device, ECHI_KNOWN_TOLERANCE, flats[which].name, what[a], f->got, f->x[a], COUNT, err));
        if (count > COUNT)
            ECHI_TRY(compare(f->device, ECHI_KNOWN_TOLERANCE, flats[which].name, "the second moment", f->got + COUNT, f->x[S], COUNT, err));
    }
    return ECH_OK;
}

static ech_status try_flats(struct echi_device *device, int *tried, struct ech_error *err) {
    struct flat *f = calloc(1, sizeof *f);
    if (!f) return echi_fail_memory(err, "device.known-answer", "a small problem");
    f->device = device;
    ech_status status = ECH_OK;
    for (int a = 0; a < ARRAYS; a++)
        if (a != S)
            ECHI_TRY_GOTO(echi_buffer_create_host(device, (a == V ? 2u : 1u) * COUNT * sizeof(echi_real), &f->buffer[a], err), out);
    for (int i = 0; i < FLATS; i++) {
        ECHI_TRY_GOTO(try_flat(f, i, err), out);
        ++*tried;
    }
out:
    for (int a = 0; a < ARRAYS; a++) echi_buffer_destroy(f->buffer[a]);
    free(f);
    return status;
}

ech_status echi_known_answers(struct echi_device *device, const struct echi_stack_impl *impl, int *out_tried, struct ech_error *err) {
    struct echi_device *host = NULL;
    int tried = 0;
    ech_status status = echi_device_open("cpu", 1, &host, err);
    for (int i = 0; i < PROBLEMS && status == ECH_OK; i++) status = try_problem(device, host, impl, &problems[i], &tried, err);
    if (status == ECH_OK) status = try_flats(device, &tried, err);
    echi_device_close(host);
    if (out_tried) *out_tried = tried;
    return status;
}
