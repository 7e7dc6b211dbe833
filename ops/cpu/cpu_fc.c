/* SPDX-License-Identifier: Apache-2.0
 * Fully connected layers, with the ReLU that follows. Input and its gradient lie with the groups side by side, so a product
 * runs over several groups for each weight it reads. */
#include "echi_cpu_stack.h"

#include <string.h>

void echi_cpu_fc_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), y = echi_cpu_value(s, unit + 1);
    const int in = (int)echi_shape_size(l->in);
    s->k->product(&(struct echi_cpu_product){
        .x = x.at, .x_p = x.group, .w = params + l->weight_at, .w_o = in, .start = l->bias ? params + l->bias_at : NULL,
        .out = y.at, .out_o = y.channel, .out_p = y.group, .loop = {{1, 0, 0}, {1, 0, 0}, {in, x.column, 1}},
        .outputs = l->out.c, .vectors = s->groups, .relu = u->relu});
}

/* dw[out][in] = sum over samples of dz[out][sample] * x[sample][in]: the vectors now run along the inputs. */
static void weight_grad(struct echi_cpu_stack *s, int unit, const float *dz, float *dw) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from);
    const int in = (int)echi_shape_size(l->in), out = l->out.c, width = k->width, whole = in / width, rest = in % width;
    const ptrdiff_t row = (ptrdiff_t)(whole + (rest > 0)) * width;
    for (int first = 0; first < s->n; first += ECHI_CPU_SAMPLES) {
        const int samples = s->n - first < ECHI_CPU_SAMPLES ? s->n - first : ECHI_CPU_SAMPLES;
        for (int i = 0; i < samples; i += width)
            k->to_rows(x.at + first + i, x.column, samples - i < width ? samples - i : width, in, s->samples + i * row, row);
        struct echi_cpu_product p = {.x = s->samples,
                                     .x_p = width,
                                     .w = dz + first,
                                     .w_o = (ptrdiff_t)s->groups * width,
                                     .out = dw,
                                     .out_o = in,
                                     .out_p = width,
                                     .loop = {{1, 0, 0}, {1, 0, 0}, {samples, row, 1}},
                                     .outputs = out,
                                     .vectors = whole,
                                     .add = first > 0};
        k->product(&p);
        if (rest == 0) continue;
        p.x += (ptrdiff_t)whole * width;
        p.out = s->tail;
        p.out_o = width;
        p.vectors = 1;
        p.add = false;
        k->product(&p);
        for (int o = 0; o < out; o++)
            for (int i = 0; i < rest; i++) {
                float *to = dw + (ptrdiff_t)o * in + (ptrdiff_t)whole * width + i;
                *to = (first > 0 ? *to : 0.0f) + s->tail[(ptrdiff_t)o * width + i];
            }
    }
}

void echi_cpu_fc_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view y = echi_cpu_value(s, unit + 1), dy = echi_cpu_grad(s, unit + 1), dx = echi_cpu_share(s, u->from);
    const int in = (int)echi_shape_size(l->in), out = l->out.c, width = k->width;
    const ptrdiff_t across = (ptrdiff_t)s->groups * width;
    memset(s->bias_sums, 0, (size_t)out * (size_t)width * sizeof(float));
    for (int o = 0; o < out; o++)
        k->relu_back(dy.at + o * dy.channel, dy.group, u->relu ? y.at + o * y.channel : NULL, y.group, s->dz + o * across, width,
                     s->groups, s->bias_sums + (ptrdiff_t)o * width);
    if (l->bias) k->reduce(s->bias_sums, (size_t)out, grads + l->bias_at);
    weight_grad(s, unit, s->dz, grads + l->weight_at);
    if (need_input_grad)
        k->product(&(struct echi_cpu_product){
            .x = s->dz, .x_p = width, .w = params + l->weight_at, .w_o = 1, .out = dx.at, .out_o = dx.column, .out_p = dx.group,
            .loop = {{1, 0, 0}, {1, 0, 0}, {out, across, in}}, .outputs = in, .vectors = s->groups});
}
