/* SPDX-License-Identifier: Apache-2.0
 * Fully connected layers, with the ReLU that follows. Input and its gradient lie with the groups side by side, so a product
 * runs over several groups for each weight it reads. */
#include "echi_cpu_stack.h"

#include <string.h>

static int min_int(int a, int b) { return a < b ? a : b; }

struct fc { int unit; const float *params; float *grads; bool need_input_grad; };

/* Item: a step of outputs. */
static void forward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), y = echi_cpu_value(s, f->unit + 1);
    const int in = (int)echi_shape_size(l->in), o = begin * ECHI_CPU_STEP, o_end = min_int(end * ECHI_CPU_STEP, l->out.c);
    (void)place;
    s->k->product(&(struct echi_cpu_product){
        .x = x.at, .x_p = x.group, .w = f->params + l->weight_at + (ptrdiff_t)o * in, .w_o = in, .start = l->bias ? f->params + l->bias_at + o : NULL,
        .out = y.at + o * y.channel, .out_o = y.channel, .out_p = y.group, .loop = {{1, 0, 0}, {1, 0, 0}, {in, x.column, 1}},
        .outputs = o_end - o, .vectors = s->groups, .relu = u->relu});
}

void echi_cpu_fc_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_layer *l = s->units[unit].layer;
    echi_cpu_share_out(s, (l->out.c + ECHI_CPU_STEP - 1) / ECHI_CPU_STEP, ECHI_CPU_STEP * (double)echi_shape_size(l->in) * s->groups, forward,
                       &(struct fc){.unit = unit, .params = params});
}

/* dw[out][in] = sum over samples of dz[out][sample] * x[sample][in]: the vectors now run along the inputs. Those of inputs [i, i_end); a last
 * one that is not whole is made aside. */
static void weight_grad(const struct echi_cpu_stack *s, int unit, int i, int i_end, float *dw, const struct echi_cpu_scratch *own) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from);
    const int in = (int)echi_shape_size(l->in), out = l->out.c, width = k->width, whole = (i_end - i) / width, rest = (i_end - i) % width;
    const ptrdiff_t row = (ptrdiff_t)(whole + (rest > 0)) * width;
    for (int first = 0; first < s->n; first += ECHI_CPU_SAMPLES) {
        const int samples = min_int(s->n - first, ECHI_CPU_SAMPLES);
        for (int n = 0; n < samples; n += width)
            k->to_rows(x.at + i * x.column + first + n, x.column, min_int(samples - n, width), i_end - i, own->samples + n * row, row);
        struct echi_cpu_product p = {.x = own->samples,
                                     .x_p = width,
                                     .w = s->dz + first,
                                     .w_o = (ptrdiff_t)s->groups * width,
                                     .out = dw + i,
                                     .out_o = in,
                                     .out_p = width,
                                     .loop = {{1, 0, 0}, {1, 0, 0}, {samples, row, 1}},
                                     .outputs = out,
                                     .vectors = whole,
                                     .add = first > 0};
        k->product(&p);
        if (rest == 0) continue;
        p.x += (ptrdiff_t)whole * width;
        p.out = own->sums;
        p.out_o = width;
        p.vectors = 1;
        p.add = false;
        k->product(&p);
        for (int o = 0; o < out; o++)
            for (int r = 0; r < rest; r++) {
                float *to = dw + (ptrdiff_t)o * in + i + whole * width + r;
                *to = (first > 0 ? *to : 0.0f) + own->sums[(ptrdiff_t)o * width + r];
            }
    }
}

/* Item: an output. */
static void before_relu(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view y = echi_cpu_value(s, f->unit + 1), dy = echi_cpu_grad(s, f->unit + 1);
    const ptrdiff_t width = s->k->width;
    (void)place;
    memset(s->bias_sums + begin * width, 0, (size_t)(end - begin) * (size_t)width * sizeof(float));
    for (int o = begin; o < end; o++)
        s->k->relu_back(dy.at + o * dy.channel, dy.group, u->relu ? y.at + o * y.channel : NULL, y.group, s->dz + o * s->groups * width, width,
                        s->groups, s->bias_sums + o * width);
    if (l->bias) s->k->reduce(s->bias_sums + begin * width, (size_t)(end - begin), f->grads + l->bias_at + begin);
}

/* Item: a vector of inputs. */
static void backward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view dx = echi_cpu_share(s, u->from);
    const int in = (int)echi_shape_size(l->in), width = s->k->width, i = begin * width, i_end = min_int(end * width, in);
    weight_grad(s, f->unit, i, i_end, f->grads + l->weight_at, &s->own[place]);
    if (f->need_input_grad)
        s->k->product(&(struct echi_cpu_product){
            .x = s->dz, .x_p = width, .w = f->params + l->weight_at + i, .w_o = 1, .out = dx.at + i * dx.column, .out_o = dx.column,
            .out_p = dx.group, .loop = {{1, 0, 0}, {1, 0, 0}, {l->out.c, (ptrdiff_t)s->groups * width, in}}, .outputs = i_end - i,
            .vectors = s->groups});
}

void echi_cpu_fc_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_layer *l = s->units[unit].layer;
    const struct fc f = {unit, params, grads, need_input_grad};
    const int width = s->k->width, vectors = ((int)echi_shape_size(l->in) + width - 1) / width;
    echi_cpu_share_out(s, l->out.c, 3.0 * s->groups, before_relu, &f);
    echi_cpu_share_out(s, vectors, (need_input_grad ? 2.0 : 1.0) * s->n * l->out.c, backward, &f);
}
