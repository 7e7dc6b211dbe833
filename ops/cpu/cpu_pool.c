/* SPDX-License-Identifier: Apache-2.0
 * Pools and ReLU that run as units of their own. */
#include "echi_cpu_stack.h"

#include <string.h>

void echi_cpu_activation_forward(struct echi_cpu_stack *s, int unit) {
    const struct echi_shape shape = s->units[unit].layer->in;
    const bool is_tanh = s->units[unit].layer->op == ECHI_OP_TANH;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from), y = echi_cpu_value(s, unit + 1);
    for (int g = 0; g < s->groups; g++)
        for (int c = 0; c < shape.c; c++)
            for (int r = 0; r < shape.h; r++)
                (is_tanh ? s->k->tanh : s->k->relu)(x.at + g * x.group + c * x.channel + r * x.row, x.column,
                           y.at + g * y.group + c * y.channel + r * y.row, y.column, shape.w);
}

void echi_cpu_activation_backward(struct echi_cpu_stack *s, int unit) {
    const struct echi_shape shape = s->units[unit].layer->in;
    const bool is_tanh = s->units[unit].layer->op == ECHI_OP_TANH;
    const struct echi_cpu_view y = echi_cpu_value(s, unit + 1), dy = echi_cpu_grad(s, unit + 1), dx = echi_cpu_share(s, s->units[unit].from);
    for (int g = 0; g < s->groups; g++)
        for (int c = 0; c < shape.c; c++)
            for (int r = 0; r < shape.h; r++) {
                const ptrdiff_t at = g * y.group + c * y.channel + r * y.row;   /* dy lies as y does */
                (is_tanh ? s->k->tanh_back : s->k->relu_back)(dy.at + at, dy.column, y.at + at, y.column, dx.at + g * dx.group + c * dx.channel + r * dx.row,
                                dx.column, shape.w, NULL);
            }
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

void echi_cpu_pool_forward(struct echi_cpu_stack *s, int unit) {
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from), y = echi_cpu_value(s, unit + 1);
    for (int g = 0; g < s->groups; g++)
        for (int c = 0; c < l->out.c; c++)
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

void echi_cpu_pool_backward(struct echi_cpu_stack *s, int unit) {
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from), dx = echi_cpu_share(s, s->units[unit].from), dy = echi_cpu_grad(s, unit + 1);
    for (int g = 0; g < s->groups; g++)
        for (int c = 0; c < l->in.c; c++) {
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
