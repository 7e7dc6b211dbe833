/* SPDX-License-Identifier: Apache-2.0
 * Pools and ReLU that run as units of their own. */
#include "echi_cpu_stack.h"

#include <string.h>

/* Item of all of them: a channel of one group. args: the unit's number. */

static void activation_forward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const int unit = *(const int *)args;
    const struct echi_shape shape = s->units[unit].layer->in;
    const bool is_tanh = s->units[unit].layer->op == ECHI_OP_TANH;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from), y = echi_cpu_value(s, unit + 1);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int g = item / shape.c, c = item % shape.c;
        for (int r = 0; r < shape.h; r++)
            (is_tanh ? s->k->tanh : s->k->relu)(x.at + g * x.group + c * x.channel + r * x.row, x.column,
                                                y.at + g * y.group + c * y.channel + r * y.row, y.column, shape.w);
    }
}

static void activation_backward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const int unit = *(const int *)args;
    const struct echi_shape shape = s->units[unit].layer->in;
    const bool is_tanh = s->units[unit].layer->op == ECHI_OP_TANH;
    const struct echi_cpu_view y = echi_cpu_value(s, unit + 1), dy = echi_cpu_grad(s, unit + 1);
    const struct echi_cpu_view dx = echi_cpu_share(s, s->units[unit].from);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int g = item / shape.c, c = item % shape.c;
        for (int r = 0; r < shape.h; r++) {
            const ptrdiff_t at = g * y.group + c * y.channel + r * y.row;   /* dy lies as y does */
            float *to = dx.at + g * dx.group + c * dx.channel + r * dx.row;
            (is_tanh ? s->k->tanh_back : s->k->relu_back)(dy.at + at, dy.column, y.at + at, y.column, to, dx.column, shape.w, NULL);
        }
    }
}

static void by_channels(struct echi_cpu_stack *s, int unit, double cost, echi_cpu_work work) {
    const struct echi_shape shape = s->units[unit].layer->in;   /* as many channels as come out */
    echi_cpu_share_out(s, s->groups * shape.c, cost * shape.h * shape.w, work, &unit);
}
void echi_cpu_activation_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    (void)params;
    by_channels(s, unit, s->units[unit].layer->op == ECHI_OP_TANH ? 20 : 2, activation_forward);
}
void echi_cpu_activation_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    (void)params, (void)grads, (void)need_input_grad;
    by_channels(s, unit, 3, activation_backward);
}

/* Row r of windows of a pool: its first input row, and the window cut to the rows that are there. */
static struct echi_cpu_window window_row(const struct echi_layer *l, int r, int *out_first) {
    const int first = r * l->stride_h - l->pad_h, last = first + l->kernel_h;
    const int begin = first < 0 ? 0 : first, end = last < l->in.h ? last : l->in.h;
    *out_first = begin;
    return (struct echi_cpu_window){.kernel_h = end - begin, .kernel_w = l->kernel_w, .stride_w = l->stride_w, .pad_w = l->pad_w,
                                    .in_w = l->in.w, .count = l->out.w};
}

static float window_share(const struct echi_layer *l) { return 1.0f / ((float)l->kernel_h * (float)l->kernel_w); }

static void pool_forward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const int unit = *(const int *)args;
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from), y = echi_cpu_value(s, unit + 1);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int g = item / l->out.c, c = item % l->out.c;
        for (int r = 0; r < l->out.h; r++) {
            int first;
            const struct echi_cpu_window w = window_row(l, r, &first);
            const float *from = x.at + g * x.group + c * x.channel + first * x.row;
            float *to = y.at + g * y.group + c * y.channel + r * y.row;
            if (l->op == ECHI_OP_MAX_POOL)
                s->k->max_pool(from, x.row, x.column, &w, to, y.column);
            else
                s->k->avg_pool(from, x.row, x.column, &w, window_share(l), to, y.column);
        }
    }
}

static void pool_backward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const int unit = *(const int *)args;
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from), dx = echi_cpu_share(s, s->units[unit].from);
    const struct echi_cpu_view dy = echi_cpu_grad(s, unit + 1);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int g = item / l->in.c, c = item % l->in.c;
        const ptrdiff_t plane = g * x.group + c * x.channel;   /* dx lies as x does */
        for (int r = 0; r < l->in.h; r++)
            for (int i = 0; i < l->in.w; i++)
                memset(dx.at + plane + r * dx.row + i * dx.column, 0, (size_t)s->k->width * sizeof(float));
        for (int r = 0; r < l->out.h; r++) {
            int first;
            const struct echi_cpu_window w = window_row(l, r, &first);
            const float *from = dy.at + g * dy.group + c * dy.channel + r * dy.row;
            const ptrdiff_t at = plane + first * x.row;
            if (l->op == ECHI_OP_MAX_POOL)
                s->k->max_pool_back(x.at + at, x.row, x.column, &w, from, dy.column, dx.at + at);
            else
                s->k->avg_pool_back(from, dy.column, &w, window_share(l), dx.at + at, dx.row, dx.column);
        }
    }
}

void echi_cpu_pool_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    (void)params;
    by_channels(s, unit, 4, pool_forward);
}
void echi_cpu_pool_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    (void)params, (void)grads, (void)need_input_grad;
    by_channels(s, unit, 10, pool_backward);
}
