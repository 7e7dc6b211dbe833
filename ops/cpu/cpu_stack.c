/* SPDX-License-Identifier: Apache-2.0
 * The fast stack, of samples in groups of one width: cuts the layers into units, lays out its memory, and passes each call on to the
 * unit's kind. */
#include "echi_cpu_matrix.h"
#include "echi_cpu_stack.h"
#include "echi_checked.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ units */

/* A max-pool runs with its convolution when its windows do not overlap and a byte can name a place in one. */
static bool pool_fits(const struct echi_layer *l) {
    return l->pad_h == 0 && l->pad_w == 0 && l->stride_h >= l->kernel_h &&
           l->stride_w >= l->kernel_w && (int64_t)l->kernel_h * l->kernel_w < 255;
}

/* Whether layer `next` is of that kind, takes the output of the one before it, and is alone in that: what runs as one keeps no output
 * in between. */
static bool follows(const struct echi_layer *layers, int count, int next, enum echi_op op) {
    return next < count && layers[next].op == op && layers[next].skip == 0 && echi_output_readers(layers, count, next) == 1;
}

/* Makes the unit that begins at layers[first]; returns the layer after it. */
static int plan_unit(int winograd, enum echi_cpu_bf16 bf16, int groups, int width, const struct echi_layer *layers, int count, int first,
                     struct echi_cpu_unit *u) {
    int next = first + 1;
    *u = (struct echi_cpu_unit){.layer = &layers[first], .op = echi_cpu_op(layers[first].op)};
    if (!u->op) return next;   /* the reference computes it */
    const struct echi_cpu_points points = echi_cpu_winograd_choose(&layers[first], groups, width, winograd, bf16);
    u->winograd = points.m;
    u->late = points.late;
    u->stages = points.stages;
    u->bf16 = points.bf16;
    u->turned = u->winograd == 0 && !u->bf16 && echi_cpu_turned_fits(u->layer);
    const enum echi_op op = layers[first].op;
    if ((op == ECHI_OP_CONV2D || op == ECHI_OP_FC || op == ECHI_OP_BATCH_NORM) && follows(layers, count, next, ECHI_OP_RELU)) {
        u->relu = true;
        next++;
        if (op == ECHI_OP_CONV2D && u->winograd == 0 && !u->bf16 && follows(layers, count, next, ECHI_OP_MAX_POOL) &&
            pool_fits(&layers[next]))
            u->pool = &layers[next++];
    }
    return next;
}

/* ----------------------------------------------------------------- memory */

/* Hands out 64-byte aligned pieces of one block; with no block yet it only adds up. */
struct arena { char *block; size_t used; bool ok; };

static void *take(struct arena *a, size_t count, size_t size) {
    size_t bytes, end;
    const size_t at = a->used;
    if (!echi_mul_size(count, size, &bytes) || !echi_add_size(bytes, 63, &bytes) ||
        !echi_add_size(at, bytes & ~(size_t)63, &end)) {
        a->ok = false;
        return NULL;
    }
    a->used = end;
    return a->block ? a->block + at : NULL;
}
static void *take2(struct arena *a, size_t rows, size_t count, size_t size) {
    size_t total;
    if (!echi_mul_size(rows, count, &total)) a->ok = false, total = 0;
    return take(a, total, size);
}
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static void lay_out(struct echi_cpu_stack *s, bool rest, struct arena *a) {
    const size_t width = (size_t)s->k->width, lanes = (size_t)s->max_groups * width;
    size_t rows = 0, sums = 0, biases = 0, dz = 0, matrix = 0, turned = 0, turned_sums = 0, share = 0, drawn = 0;
    struct echi_cpu_winograd_room most = {0};
    struct echi_cpu_late_room late = {0};
    struct echi_cpu_stages_room stages = {0};
    struct echi_cpu_bf16_room bf16 = {0};
    for (int b = 0; b <= s->n_units; b++) {
        struct echi_cpu_boundary *at = &s->boundaries[b];
        const size_t row = (size_t)at->left + (size_t)at->shape.w + (size_t)at->right;
        size_t positions;
        if (!echi_mul_size(row, (size_t)at->shape.c * (size_t)at->shape.h, &positions)) a->ok = false, positions = 0;
        at->value = take2(a, positions, lanes, sizeof(float));
        at->grad = take2(a, positions, lanes, sizeof(float));
        if (at->readers > 1) share = larger(share, positions);
    }
    for (int i = 0; i < s->n_units; i++) {
        struct echi_cpu_unit *u = &s->units[i];
        const struct echi_layer *l = u->layer;
        const size_t out = (size_t)l->out.c;
        if (u->reference) continue;   /* has memory of its own */
        if (u->bf16) {
            echi_cpu_conv_bf16_room(l, s->max_groups, &bf16);
            biases = larger(biases, out * width);
        } else if (l->op == ECHI_OP_CONV2D) {
            int right;
            echi_cpu_conv_grad_margins(l, s->k->most_vectors, &u->dy_left, &right);
            if (u->winograd) {
                echi_cpu_winograd_margins(l, u->winograd, &(int){0}, &u->dy_left, &right);
                if (u->late) echi_cpu_late_room(l, u->winograd, s->max_groups, s->k->width, &late);
                else echi_cpu_winograd_room(l, u->winograd, s->k->width, &most);
                if (u->stages) echi_cpu_stages_room(l, u->winograd, s->k->width, &stages);
            }
            u->dy_row = (u->dy_left + l->out.w + right) * (ptrdiff_t)width;
            u->dy_channel = l->out.h * u->dy_row;
            const int at_once = u->turned || u->late || u->stages ? 1 : u->winograd && s->max_groups > 2 ? 2 : s->max_groups;   /* groups */
            u->dy_group = at_once > 1 ? l->out.c * u->dy_channel : 0;
            u->dy = take2(a, out * (size_t)at_once, (size_t)u->dy_channel, sizeof(float));
            biases = larger(biases, 2 * out * width);
            if (u->winograd) continue;
            if (u->turned) {
                size_t inputs, sums_of_taps;
                echi_cpu_turned_room(l, s->k->width, &inputs, &sums_of_taps);
                turned = larger(turned, inputs);
                turned_sums = larger(turned_sums, sums_of_taps);
            } else {
                u->halves = echi_cpu_conv_halves(l, s->k->wide->width);
                sums = larger(sums, l->weights * (size_t)s->k->wide->width * (size_t)u->halves);
            }
            if (u->pool) {
                u->place_row = (u->pool->out.w + 3) / 4 * (ptrdiff_t)width;
                u->place = take2(a, (size_t)s->max_groups * out * (size_t)u->pool->out.h, (size_t)u->place_row, sizeof(int32_t));
                rows = larger(rows, out * (size_t)u->pool->kernel_h * (size_t)l->out.w * width);
            }
        } else if (l->op == ECHI_OP_FC) {
            if (u->copies) {
                u->input = take2(a, echi_shape_size(l->in), lanes, sizeof(float));
                u->input_grad = take2(a, echi_shape_size(l->in), lanes, sizeof(float));
            }
            biases = larger(biases, out * width);
            dz = larger(dz, out * lanes);
            matrix = echi_cpu_matrix_room();
        } else if (l->op == ECHI_OP_DROPOUT) {
            u->factor = take2(a, echi_shape_size(l->out), lanes, sizeof(float));
            drawn = larger(drawn, echi_shape_size(l->out));
        } else if (l->op == ECHI_OP_BATCH_NORM) {
            u->mean = take(a, 2 * out, sizeof(float));
            u->sums = take(a, 2 * out, sizeof(float));
            u->all = take(a, 2 * out, sizeof(float));
        }
    }
    s->share = take2(a, share, lanes, sizeof(float));
    s->sums = rest ? NULL : take(a, sums, sizeof(float));
    s->bias_sums = take(a, biases, sizeof(float));
    s->dz = take(a, dz, sizeof(float));
    s->turned = take(a, turned, sizeof(float));
    s->turned_sums = take(a, turned_sums, sizeof(float));
    s->winograd.kernels = take(a, most.kernels, sizeof(float));
    s->winograd.nothing = take(a, most.nothing, sizeof(float));
    s->winograd.sums = take(a, most.sums, sizeof(float));
    s->stages.before = take(a, stages.before, sizeof(float));
    s->stages.after = take(a, stages.after, sizeof(float));
    s->late.points = take(a, late.points, sizeof(float));
    s->late.grads = take(a, late.grads, sizeof(float));
    s->late.nothing = take(a, late.nothing, sizeof(float));
    s->bf16_room.channels = take(a, bf16.channels, sizeof(uint16_t));
    s->bf16_room.grads = take(a, bf16.grads, sizeof(uint16_t));
    s->bf16_room.samples = take(a, bf16.samples, sizeof(uint16_t));
    for (int place = 0; place < s->threads; place++) {
        struct echi_cpu_scratch *own = &s->own[place];
        own->rows = take(a, rows, sizeof(float));
        own->matrix = rest ? NULL : take(a, matrix, sizeof(float));
        own->drawn = take2(a, drawn, width, sizeof(float));
        own->winograd.points = take(a, most.points, sizeof(float));
        own->winograd.products = take(a, most.products, sizeof(float));
        own->winograd.turned = take(a, most.turned, sizeof(float));
        own->winograd.grads = take(a, most.grads, sizeof(float));
        own->stages_turned = take(a, stages.turned, sizeof(float));
        own->late.weights = take(a, late.weights, sizeof(float));
        own->late.products = take(a, late.products, sizeof(float));
        own->bf16.weights = take(a, bf16.weights, sizeof(uint16_t));
        own->bf16.before = take(a, bf16.before, sizeof(float));
        own->bf16.sums = take(a, bf16.sums, sizeof(float));
    }
}

struct echi_cpu_view echi_cpu_across(const struct echi_cpu_stack *s, struct echi_shape shape, float *data) {
    const ptrdiff_t column = s->groups * s->k->width, row = shape.w * column;
    return (struct echi_cpu_view){.at = data, .group = s->k->width, .channel = shape.h * row, .row = row, .column = column};
}

static struct echi_cpu_view view(const struct echi_cpu_stack *s, const struct echi_cpu_boundary *b, float *data) {
    const ptrdiff_t width = s->k->width, row = (b->left + b->shape.w + b->right) * width, channel = b->shape.h * row;
    if (b->across) return echi_cpu_across(s, b->shape, data);
    return (struct echi_cpu_view){.at = data + b->left * width, .group = b->shape.c * channel, .channel = channel, .row = row,
                                  .column = width};
}
struct echi_cpu_view echi_cpu_value(const struct echi_cpu_stack *s, int boundary) {
    return view(s, &s->boundaries[boundary], s->boundaries[boundary].value);
}
struct echi_cpu_view echi_cpu_grad(const struct echi_cpu_stack *s, int boundary) {
    return view(s, &s->boundaries[boundary], s->boundaries[boundary].grad);
}
struct echi_cpu_view echi_cpu_share(const struct echi_cpu_stack *s, int boundary) {
    const struct echi_cpu_boundary *b = &s->boundaries[boundary];
    return view(s, b, b->given ? s->share : b->grad);
}

void echi_cpu_reduce(const struct echi_cpu_stack *s, const float *vectors, size_t count, float *grads) {
    const struct echi_cpu_kernels *k = s->k;
    enum { SOME = 64 };
    float sums[SOME];
    if (!s->whole) return k->reduce(vectors, count, grads);
    for (size_t i = 0, n; i < count; i += n) {
        n = count - i < SOME ? count - i : SOME;
        k->reduce(vectors + i * (size_t)k->width, n, sums);
        k->add(grads + i, grads + i, sums, n);
    }
}

/* ----------------------------------------------------- create and destroy */

static void destroy(void *state) {
    struct echi_cpu_stack *s = state;
    if (!s) return;
    for (int i = 0; i < s->n_units; i++) echi_cpu_reference_destroy(&s->units[i]);
    echi_free_aligned(s->memory);
    free(s->own);
    free(s->boundaries);
    free(s->units);
    free(s->layers);
    free(s);
}

/* Behind the instruction set: sums that are not plain ones of floats. */
static const char *sums_name(const struct echi_cpu_stack *s, const struct echi_cpu_unit *u) {
    if (u->winograd) return echi_cpu_winograd_name(u->winograd);
    if ((u->layer->op != ECHI_OP_FC && !u->bf16) || s->bf16 == ECHI_CPU_BF16_NONE) return "";
    return s->bf16 == ECHI_CPU_BF16_AMX ? " bf16 amx" : " bf16";
}

/* What is not made in the layout in which it is needed: the other side of weights' gradients, and factors that are drawn in rows. */
static size_t turned_of(const struct echi_cpu_unit *u) {
    const struct echi_layer *l = u->layer;
    const int m = u->winograd;
    if (m) return (size_t)echi_cpu_winograd_points(m) * (size_t)echi_cpu_winograd_tiles(l->out.h, l->out.w, m) * (size_t)l->in.c;
    if (u->reference) return 2 * (echi_shape_size(l->in) + echi_shape_size(l->out));
    if (u->copies) return 2 * echi_shape_size(l->in);
    return u->turned || l->op == ECHI_OP_DROPOUT ? echi_shape_size(l->in) : 0;
}

/* Makes every boundary as its readers like it. What a convolution takes lies as that likes it: fully connected layers that take the same
 * have a copy. */
static void meet_readers(struct echi_cpu_stack *s) {
    for (int i = 0; i < s->n_units; i++) {
        const struct echi_layer *l = s->units[i].layer;
        struct echi_cpu_boundary *b = &s->boundaries[s->units[i].from];
        int left = 0, right = 0;
        b->readers++;
        if (s->units[i].reference) continue;   /* any layout will do */
        if (l->op == ECHI_OP_ADD) s->boundaries[s->units[i].also].readers++;
        if (l->op == ECHI_OP_CONV2D) b->convolved = true;
        if (l->op == ECHI_OP_CONV2D && !s->units[i].bf16) {
            echi_cpu_conv_margins(l, &left, &right);
            if (s->units[i].winograd) echi_cpu_winograd_margins(l, s->units[i].winograd, &right, &(int){0}, &(int){0});
            if (left > b->left) b->left = left;
            if (right > b->right) b->right = right;
        }
    }
    for (int i = 0; i < s->n_units; i++) {
        if (s->units[i].layer->op != ECHI_OP_FC || s->units[i].reference) continue;
        struct echi_cpu_boundary *from = &s->boundaries[s->units[i].from], *to = &s->boundaries[i + 1];
        s->units[i].copies = from->convolved;
        from->across = !from->convolved;
        to->across = !to->convolved;
    }
}

/* The layers, cut into units, each with the kernels that it has; what they are, into `told`. */
static ech_status plan_units(struct echi_cpu_stack *s, int count, int max_n, int winograd, struct echi_stack_unit *told,
                             struct ech_error *err) {
    s->boundaries[0].shape = s->layers[0].in;
    for (int first = 0, next; first < count; first = next) {
        struct echi_cpu_unit *u = &s->units[s->n_units];
        next = plan_unit(winograd, s->bf16, s->max_groups, s->k->width, s->layers, count, first, u);
        u->from = echi_stack_boundary(told, s->n_units, echi_layer_takes(s->layers, first));
        u->also = echi_stack_boundary(told, s->n_units, echi_layer_adds(s->layers, first));
        struct echi_stack_unit *t = &told[s->n_units++];
        s->boundaries[s->n_units].shape = s->layers[next - 1].out;
        *t = (struct echi_stack_unit){.first = first, .end = next};
        if (!u->op) {
            ECHI_TRY(echi_cpu_reference_create(s, u, max_n, t, err));
            continue;
        }
        snprintf(t->kernel, sizeof t->kernel, "%s%s%s %s%s%s", u->op->name, u->relu ? "+relu" : "", u->pool ? "+maxpool" : "",
                 s->k->name, sums_name(s, u), u->late ? " late" : u->stages ? " by stages" : "");
        echi_cpu_winograd_explain(u->layer, s->max_groups, s->k->width, winograd, s->bf16, t->why, sizeof t->why);
    }
    meet_readers(s);
    for (int i = 0; i < s->n_units; i++) told[i].turned = turned_of(&s->units[i]);
    return ECH_OK;
}

ech_status echi_cpu_part_create(const struct echi_cpu_kernels *k, int winograd, enum echi_cpu_bf16 bf16, struct echi_team *team,
                                const struct echi_layer *layers, int count, int max_n, bool rest, bool counts,
                                struct echi_cpu_stack **out_stack, struct echi_stack_unit *units, size_t *out_bytes,
                                struct ech_error *err) {
    struct echi_cpu_stack *s = calloc(1, sizeof *s);
    if (!s) return echi_fail_memory(err, "stack.create", "a stack");
    s->k = k;
    s->team = team;
    s->threads = echi_team_threads(team);
    s->bf16 = bf16;
    s->max_groups = (max_n + k->width - 1) / k->width;
    s->layers = malloc((size_t)count * sizeof *s->layers);
    s->units = calloc((size_t)count, sizeof *s->units);
    s->boundaries = calloc((size_t)count + 1, sizeof *s->boundaries);
    s->own = calloc((size_t)s->threads, sizeof *s->own);
    if (!s->layers || !s->units || !s->boundaries || !s->own) goto no_memory;
    memcpy(s->layers, layers, (size_t)count * sizeof *layers);

    const ech_status status = plan_units(s, count, max_n, winograd, units, err);
    if (status != ECH_OK) {
        destroy(s);
        return status;
    }
    struct arena a = {.ok = true};
    lay_out(s, rest, &a);
    if (a.ok && !counts) s->memory = a.block = echi_alloc_aligned(a.used);
    if (!a.ok || (!counts && !s->memory)) {
        destroy(s);
        if (!a.ok)
            return echi_fail(err, ECH_E_SHAPE, "stack.create",
                             "the activations of %d samples do not fit in memory; use fewer samples a step", max_n);
        return echi_fail(err, ECH_E_MEMORY, "stack.create",
                         "no memory for %zu bytes of activations of %d samples; use a smaller batch or model", a.used, max_n);
    }
    *out_bytes = a.used + s->reference_bytes;
    *out_stack = s;
    if (counts) return ECH_OK;
    a.used = 0;
    lay_out(s, rest, &a);
    return ECH_OK;

no_memory:
    destroy(s);
    return echi_fail_memory(err, "stack.create", "a stack");
}

/* ---------------------------------------------------------------- the step */

static void input(void *state, int n, const float *rows) {
    struct echi_cpu_stack *s = state;
    s->n = n;
    s->trains = false;
    s->groups = (n + s->k->width - 1) / s->k->width;
    for (int i = 0; i < s->n_units; i++) {
        s->units[i].of = 0;
        s->units[i].summed = false;
        echi_cpu_reference_begin(s, &s->units[i]);
    }
    echi_cpu_rows_in(s, 0, echi_cpu_value(s, 0), rows);
}
static void train(void *state, const struct echi_training *training) {
    struct echi_cpu_stack *s = state;
    s->trains = true;
    s->share_of_round = training->share;
    for (int i = 0; i < s->n_units; i++) {
        if (s->units[i].reference) echi_stack_reference.train(s->units[i].reference, training);
        else if (s->units[i].layer->op == ECHI_OP_DROPOUT) echi_cpu_dropout_draw(s, i, training->seed, training->rows);
    }
}
static void output(void *state, float *rows) {
    struct echi_cpu_stack *s = state;
    echi_cpu_rows_out(s, s->n_units, echi_cpu_value(s, s->n_units), rows);
}
/* The gradients of all boundaries but the last are still to come. */
static void begin_backward(struct echi_cpu_stack *s) {
    for (int b = 0; b < s->n_units; b++) s->boundaries[b].given = false;
}
static void output_grad(void *state, const float *rows) {
    struct echi_cpu_stack *s = state;
    begin_backward(s);
    echi_cpu_rows_in(s, s->n_units, echi_cpu_grad(s, s->n_units), rows);
}
static void input_grad(void *state, float *rows) {
    struct echi_cpu_stack *s = state;
    echi_cpu_rows_out(s, 0, echi_cpu_grad(s, 0), rows);
}

static void loss(void *state, const uint16_t *labels, float scale, double *out_loss, int *out_correct) {
    struct echi_cpu_stack *s = state;
    const struct echi_cpu_view x = echi_cpu_value(s, s->n_units), dx = echi_cpu_grad(s, s->n_units);
    begin_backward(s);
    *out_loss = 0.0;
    *out_correct = 0;
    for (int g = 0; g < s->groups; g++)
        s->k->softmax_loss(x.at + g * x.group, x.channel, s->boundaries[s->n_units].shape.c, labels + g * s->k->width,
                           echi_cpu_lanes(s, g), scale, dx.at + g * dx.group, dx.channel, out_loss, out_correct);
}

static void forward(void *state, int unit, const float *params) {
    struct echi_cpu_stack *s = state;
    s->units[unit].op->forward(s, unit, params);
}

static void backward(void *state, int unit, const float *params, float *grads, bool need_input_grad) {
    struct echi_cpu_stack *s = state;
    const struct echi_cpu_unit *u = &s->units[unit];
    if (!need_input_grad && echi_layer_params(u->layer) == 0) return;
    u->op->backward(s, unit, params, grads, need_input_grad);
    if (need_input_grad && u->layer->op != ECHI_OP_ADD) echi_cpu_give(s, u->from);   /* an add gives to both by itself */
}

static void norm_sums(void *state, int unit, bool back, const float *params, float *out) {
    echi_cpu_norm_sums(state, unit, back, params, out);
}
static void norm_take(void *state, int unit, bool back, int n, const float *all) { echi_cpu_norm_take(state, unit, back, n, all); }

static void backward_params(void *state, int unit, float *grads) {
    struct echi_cpu_stack *s = state;
    const struct echi_cpu_op *op = s->units[unit].op;
    if (op && op->params) op->params(s, unit, grads);
}

const struct echi_stack_impl echi_cpu_part = {
    .name = "cpu", .destroy = destroy, .input = input, .train = train, .forward = forward, .output = output, .loss = loss,
    .output_grad = output_grad, .backward = backward, .backward_params = backward_params, .input_grad = input_grad,
    .norm_sums = norm_sums, .norm_take = norm_take,
};
