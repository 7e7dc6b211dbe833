/* SPDX-License-Identifier: Apache-2.0
 * Fully connected layers, with the ReLU that follows. Input and its gradient lie with the groups side by side, so a product
 * runs over several groups for each weight it reads. */
#include "echi_cpu_stack.h"

#include <string.h>

static int min_int(int a, int b) { return a < b ? a : b; }

struct fc { int unit, cuts; const float *params; float *grads; bool need_input_grad; };

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

/* Backward goes in two passes, each of which has outputs and inputs to do: an item is a range of both, the k-th of f->cuts. Threads so have
 * rows of weights of their own here, forward and, about, in an optimiser's step. */
struct cut { struct echi_cpu_range out, in; };
static struct cut cut_of(const struct echi_cpu_stack *s, const struct fc *f, int k) {
    const struct echi_layer *l = s->units[f->unit].layer;
    return (struct cut){echi_cpu_cut(l->out.c, ECHI_CPU_STEP, k, f->cuts), echi_cpu_cut((int)echi_shape_size(l->in), s->k->width, k, f->cuts)};
}
/* Floats from one row of s->samples to the next. */
static ptrdiff_t samples_row(const struct echi_cpu_stack *s, const struct echi_layer *l) {
    const ptrdiff_t width = s->k->width;
    return ((ptrdiff_t)echi_shape_size(l->in) + width - 1) / width * width;
}

/* First: outputs' gradients before ReLU, and the bias'; inputs as rows of samples. */
static void prepare(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from), y = echi_cpu_value(s, f->unit + 1), dy = echi_cpu_grad(s, f->unit + 1);
    const ptrdiff_t width = s->k->width, row = samples_row(s, l);
    (void)place;
    for (int k = begin; k < end; k++) {
        const struct cut c = cut_of(s, f, k);
        const size_t outputs = (size_t)(c.out.end - c.out.begin);
        float *sums = s->bias_sums + c.out.begin * width;
        memset(sums, 0, outputs * (size_t)width * sizeof(float));
        for (int o = c.out.begin; o < c.out.end; o++)
            s->k->relu_back(dy.at + o * dy.channel, dy.group, u->relu ? y.at + o * y.channel : NULL, y.group, s->dz + o * s->groups * width, width,
                            s->groups, s->bias_sums + o * width);
        if (l->bias) s->k->reduce(sums, outputs, f->grads + l->bias_at + c.out.begin);
        for (int n = 0; n < s->n && c.in.begin < c.in.end; n += (int)width)
            s->k->to_rows(x.at + c.in.begin * x.column + n, x.column, min_int(s->n - n, (int)width), c.in.end - c.in.begin,
                          s->samples + n * row + c.in.begin, row);
    }
}

/* dw[out][in] = sum over samples of dz[out][sample] * x[sample][in]: the vectors now run along the inputs. Those of outputs [o, o_end); a
 * last one that is not whole is made aside. */
static void weight_grad(const struct echi_cpu_stack *s, const struct echi_layer *l, int o, int o_end, float *dw, float *tail) {
    const struct echi_cpu_kernels *k = s->k;
    const int in = (int)echi_shape_size(l->in), width = k->width, whole = in / width, rest = in % width;
    const ptrdiff_t row = samples_row(s, l), across = (ptrdiff_t)s->groups * width;
    for (int first = 0; first < s->n; first += ECHI_CPU_SAMPLES) {
        struct echi_cpu_product p = {.x = s->samples + first * row,
                                     .x_p = width,
                                     .w = s->dz + o * across + first,
                                     .w_o = across,
                                     .out = dw + (ptrdiff_t)o * in,
                                     .out_o = in,
                                     .out_p = width,
                                     .loop = {{1, 0, 0}, {1, 0, 0}, {min_int(s->n - first, ECHI_CPU_SAMPLES), row, 1}},
                                     .outputs = o_end - o,
                                     .vectors = whole,
                                     .add = first > 0};
        k->product(&p);
        if (rest == 0) continue;
        p.x += (ptrdiff_t)whole * width;
        p.out = tail;
        p.out_o = width;
        p.vectors = 1;
        p.add = false;
        k->product(&p);
        for (int i = 0; i < o_end - o; i++)
            for (int r = 0; r < rest; r++) {
                float *to = dw + (ptrdiff_t)(o + i) * in + (ptrdiff_t)whole * width + r;
                *to = (first > 0 ? *to : 0.0f) + tail[(ptrdiff_t)i * width + r];
            }
    }
}

/* Then: gradients of the outputs' weights, and of the inputs. */
static void backward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view dx = echi_cpu_share(s, u->from);
    const ptrdiff_t in = (ptrdiff_t)echi_shape_size(l->in), width = s->k->width;
    for (int k = begin; k < end; k++) {
        const struct cut c = cut_of(s, f, k);
        if (c.out.begin < c.out.end) weight_grad(s, l, c.out.begin, c.out.end, f->grads + l->weight_at, s->own[place].tail);
        if (f->need_input_grad)
            s->k->product(&(struct echi_cpu_product){
                .x = s->dz, .x_p = width, .w = f->params + l->weight_at + c.in.begin, .w_o = 1, .out = dx.at + c.in.begin * dx.column,
                .out_o = dx.column, .out_p = dx.group, .loop = {{1, 0, 0}, {1, 0, 0}, {l->out.c, s->groups * width, in}},
                .outputs = c.in.end - c.in.begin, .vectors = s->groups});
    }
}

void echi_cpu_fc_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_layer *l = s->units[unit].layer;
    const int in = (int)echi_shape_size(l->in), cuts = echi_cpu_cuts(s, 1, in > l->out.c ? in : l->out.c, ECHI_CPU_STEP);
    const struct fc f = {unit, cuts, params, grads, need_input_grad};
    echi_cpu_share_out(s, cuts, 4.0 * s->groups * (l->out.c + in) / cuts, prepare, &f);
    echi_cpu_share_out(s, cuts, (need_input_grad ? 2.0 : 1.0) * s->groups * l->out.c * in / cuts, backward, &f);
}
