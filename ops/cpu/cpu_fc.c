/* SPDX-License-Identifier: Apache-2.0
 * Fully connected layers, with the ReLU that follows: three products of matrices. Input and its gradient lie with the groups side by
 * side, so that all samples of a number are a row. */
#include "echi_cpu_matrix.h"
#include "echi_cpu_stack.h"

#include <string.h>

void echi_cpu_fc_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), y = echi_cpu_value(s, unit + 1);
    const int in = (int)echi_shape_size(l->in);
    echi_cpu_matrix(s->k,
                    &(struct echi_cpu_matrix){.a = {params + l->weight_at, in, 1, l->out.c, in}, .b = {x.at, 1, x.column, s->groups * s->k->width, in},
                                              .start = l->bias ? params + l->bias_at : NULL, .out = y.at, .out_row = y.channel,
                                              .out_vector = y.group, .relu = u->relu, .bf16 = s->bf16},
                    s->matrix);
}

void echi_cpu_fc_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), y = echi_cpu_value(s, unit + 1);
    const struct echi_cpu_view dy = echi_cpu_grad(s, unit + 1), dx = echi_cpu_share(s, u->from);
    const int in = (int)echi_shape_size(l->in), out = l->out.c, width = k->width;
    /* Nobody needs the gradient behind the ReLU any more, so where it lies well that before it takes its place. */
    const bool in_place = dy.group == width;
    const ptrdiff_t across = (ptrdiff_t)s->groups * width;
    float *dz = in_place ? dy.at : s->dz;
    memset(s->bias_sums, 0, (size_t)out * (size_t)width * sizeof(float));
    for (int o = 0; o < out && (u->relu || l->bias || !in_place); o++)
        k->relu_back(dy.at + o * dy.channel, dy.group, u->relu ? y.at + o * y.channel : NULL, y.group, dz + o * across, width, s->groups,
                     s->bias_sums + (ptrdiff_t)o * width);
    if (l->bias) k->reduce(s->bias_sums, (size_t)out, grads + l->bias_at);
    /* dw[out][in] = sum over samples of dz[out][sample] * x[sample][in] */
    echi_cpu_matrix(k, &(struct echi_cpu_matrix){.a = {dz, across, 1, out, s->n}, .b = {x.at, x.column, 1, in, s->n},
                                                 .out = grads + l->weight_at, .out_row = in, .out_vector = width, .bf16 = s->bf16}, s->matrix);
    if (need_input_grad)
        echi_cpu_matrix(k, &(struct echi_cpu_matrix){.a = {params + l->weight_at, 1, in, in, out}, .b = {dz, 1, across, (int)across, out},
                                                     .out = dx.at, .out_row = dx.column, .out_vector = dx.group, .bf16 = s->bf16}, s->matrix);
}
