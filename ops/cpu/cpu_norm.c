/* SPDX-License-Identifier: Apache-2.0
 * Batch-norm, with a ReLU behind it, a channel at a time, which one thread has for itself: its numbers of the whole batch are read from
 * memory once and then, for the second and third time, from the second-level cache. ops/ref/batch_norm.c has the formulas. */
#include "echi_cpu_stack.h"

#include <string.h>

typedef void kernel(const struct echi_cpu_norm *n);

/* Runs a kernel over all that a group has of a channel; `base` holds what is the same in each run. */
static void over_group(struct echi_shape shape, int c, int g, struct echi_cpu_norm base, const struct echi_cpu_view *x,
                       const struct echi_cpu_view *dy, const struct echi_cpu_view *out, kernel *run) {
    const bool whole = x->row == shape.w * x->column && (!dy || dy->row == shape.w * dy->column) &&
                       (!out || out->row == shape.w * out->column);
    const int rows = whole ? 1 : shape.h;
    base.count = whole ? shape.h * shape.w : shape.w;
    base.x_column = x->column;
    if (dy) base.dy_column = dy->column;
    if (out) base.out_column = out->column;
    for (int r = 0; r < rows; r++) {
        base.x = x->at + g * x->group + c * x->channel + r * x->row;
        if (dy) base.dy = dy->at + g * dy->group + c * dy->channel + r * dy->row;
        if (out) base.out = out->at + g * out->group + c * out->channel + r * out->row;
        run(&base);
    }
}

/* A kernel's sums over the batch: `count` of them, each a vector in sums. Lanes without a sample are left out. */
static void sum_up(const struct echi_cpu_stack *s, struct echi_shape shape, int c, struct echi_cpu_norm base, const struct echi_cpu_view *x,
                   const struct echi_cpu_view *dy, kernel *run, int count, double *out) {
    const int width = s->k->width;
    float sums[2 * ECHI_CPU_WIDTH_MOST];
    for (int i = 0; i < count; i++) out[i] = 0;
    base.sums = sums;
    for (int g = 0; g < s->groups; g++) {
        const int lanes = echi_cpu_lanes(s, g);
        memset(sums, 0, sizeof sums);
        over_group(shape, c, g, base, x, dy, NULL, run);
        for (int i = 0; i < count; i++)
            for (int lane = 0; lane < lanes; lane++) out[i] += sums[i * width + lane];
    }
}

/* How channel c goes, by the statistics of the step. */
static struct echi_cpu_norm by_statistics(const struct echi_cpu_unit *u, int c, const float *params) {
    const struct echi_layer *l = u->layer;
    const double scale = params[l->weight_at + (size_t)c] / echi_norm_deviation(u->mean[l->in.c + c]);
    return (struct echi_cpu_norm){.mean = u->mean[c], .scale = (float)scale,
                                  .shift = params[l->bias_at + (size_t)c], .relu = u->relu};
}

struct norm { int unit; const float *params; float *grads; bool need_input_grad; };

/* Channel c over the own samples. */
static void statistics(const struct echi_cpu_stack *s, const struct echi_cpu_unit *u, int c) {
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from);
    const double numbers = (double)s->n * l->in.h * l->in.w;
    double sum;
    sum_up(s, l->in, c, (struct echi_cpu_norm){0}, &x, NULL, s->k->norm_sum, 1, &sum);
    u->mean[c] = (float)(sum / numbers);
    sum_up(s, l->in, c, (struct echi_cpu_norm){.mean = u->mean[c]}, &x, NULL, s->k->norm_squares, 1, &sum);
    u->mean[l->in.c + c] = (float)(sum / numbers);
}

/* The same of its gradients. */
static void back_sums(const struct echi_cpu_stack *s, const struct norm *a, int c) {
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), dy = echi_cpu_grad(s, a->unit + 1);
    double sums[2];
    sum_up(s, l->in, c, by_statistics(u, c, a->params), &x, &dy, s->k->norm_back_sums, 2, sums);
    u->sums[c] = u->all[c] = (float)sums[0];
    u->sums[l->in.c + c] = u->all[l->in.c + c] = (float)(sums[1] / echi_norm_deviation(u->mean[l->in.c + c]));
}

/* Item: a channel, here and below. */
static void forward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct norm *a = args;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), y = echi_cpu_value(s, a->unit + 1);
    (void)place;
    for (int c = begin; c < end; c++) {
        if (s->trains && u->of == 0) statistics(s, u, c);
        const struct echi_cpu_norm how = by_statistics(u, c, a->params);
        for (int g = 0; g < s->groups; g++) over_group(l->in, c, g, how, &x, NULL, &y, s->k->norm);
    }
}

void echi_cpu_norm_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    if (!s->trains) memcpy(u->mean, params + l->running_at, l->running * sizeof(float));
    echi_cpu_share_out(s, l->in.c, 4.0 * s->groups * l->in.h * l->in.w, forward, &(struct norm){.unit = unit, .params = params});
    if (u->of == 0) u->of = s->n;
}

static void backward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct norm *a = args;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), dy = echi_cpu_grad(s, a->unit + 1), dx = echi_cpu_share(s, u->from);
    const int width = s->k->width, channels = l->in.c;
    const double numbers = (double)u->of * l->in.h * l->in.w;
    (void)place;
    for (int c = begin; c < end; c++) {
        struct echi_cpu_norm how = by_statistics(u, c, a->params);
        const double deviation = echi_norm_deviation(u->mean[channels + c]);
        float minus[2 * ECHI_CPU_WIDTH_MOST];
        if (!u->summed) back_sums(s, a, c);
        a->grads[l->bias_at + (size_t)c] = u->sums[c];
        a->grads[l->weight_at + (size_t)c] = u->sums[channels + c];
        if (!a->need_input_grad) continue;
        how.minus = minus;
        for (int g = 0; g < s->groups; g++) {
            /* Statistics move with the samples that are there; the gradient of lanes without one stays zero. */
            const int lanes = s->trains ? echi_cpu_lanes(s, g) : 0;
            for (int lane = 0; lane < width; lane++) {
                minus[lane] = lane < lanes ? (float)(u->all[c] / numbers) : 0;
                minus[width + lane] = lane < lanes ? (float)(u->all[channels + c] / numbers / deviation) : 0;
            }
            over_group(l->in, c, g, how, &x, &dy, &dx, s->k->norm_back);
        }
    }
}

void echi_cpu_norm_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    echi_cpu_share_out(s, l->in.c, 6.0 * s->groups * l->in.h * l->in.w, backward, &(struct norm){unit, params, grads, need_input_grad});
    if (s->trains) echi_norm_running_grad(l, u->of, params, u->mean, u->mean + l->in.c, s->share_of_round, grads);
    else memset(grads + l->running_at, 0, l->running * sizeof(float));
}

/* ---- a stop in front of either: the sums alone ---- */

static void sum_forward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    (void)place;
    for (int c = begin; c < end; c++) statistics(s, &s->units[((const struct norm *)args)->unit], c);
}

static void sum_backward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    (void)place;
    for (int c = begin; c < end; c++) back_sums(s, args, c);
}

void echi_cpu_norm_sums(struct echi_cpu_stack *s, int unit, bool back, const float *params, float *out) {
    struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct norm args = {.unit = unit, .params = params};
    echi_cpu_share_out(s, l->in.c, 2.0 * s->groups * l->in.h * l->in.w, back ? sum_backward : sum_forward, &args);
    memcpy(out, back ? u->sums : u->mean, l->running * sizeof *out);
    if (back) u->summed = true;
    else u->of = s->n;
}

void echi_cpu_norm_take(struct echi_cpu_stack *s, int unit, bool back, int n, const float *all) {
    struct echi_cpu_unit *u = &s->units[unit];
    memcpy(back ? u->all : u->mean, all, u->layer->running * sizeof *all);
    if (!back) u->of = n;
}
