/* SPDX-License-Identifier: Apache-2.0
 * Fully connected layers, with the ReLU that follows: three products of matrices. Input and its gradient lie with the groups side by
 * side, so that all samples of a number are a row. Threads have rows of the products: of the weights' gradient the same outputs as forward,
 * so that they find them in their caches. */
#include "echi_cpu_matrix.h"
#include "echi_cpu_stack.h"

#include <string.h>

/* An item is a range of outputs and one of inputs, the k-th of `cuts`: one for each thread, since each packs the other side for itself. */
struct fc { int unit, cuts; const float *params; float *grads; bool need_input_grad, weights; };

static struct echi_cpu_range outputs_of(const struct echi_layer *l, const struct fc *f, int k) {
    return echi_cpu_cut(l->out.c, ECHI_CPU_STEP, k, f->cuts);
}

/* Where its inputs lie with the groups side by side, and where their gradients go. */
static struct echi_cpu_view input_of(const struct echi_cpu_stack *s, const struct echi_cpu_unit *u) {
    return u->copies ? echi_cpu_across(s, s->boundaries[u->from].shape, u->input) : echi_cpu_value(s, u->from);
}
static struct echi_cpu_view input_grad_of(const struct echi_cpu_stack *s, const struct echi_cpu_unit *u) {
    return u->copies ? echi_cpu_across(s, s->boundaries[u->from].shape, u->input_grad) : echi_cpu_share(s, u->from);
}

static void forward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = input_of(s, u), y = echi_cpu_value(s, f->unit + 1);
    const int in = (int)echi_shape_size(l->in);
    for (int k = begin; k < end; k++) {
        const struct echi_cpu_range o = outputs_of(l, f, k);
        if (o.begin == o.end) continue;
        echi_cpu_matrix(s->k,
                        &(struct echi_cpu_matrix){.a = {f->params + l->weight_at + (ptrdiff_t)o.begin * in, in, 1, o.end - o.begin, in},
                                                  .b = {x.at, 1, x.column, s->groups * s->k->width, in}, .columns = s->n,
                                                  .start = l->bias ? f->params + l->bias_at + o.begin : NULL,
                                                  .out = y.at + o.begin * y.channel,
                                                  .out_row = y.channel, .out_vector = y.group, .relu = u->relu, .bf16 = s->bf16},
                        s->own[place].matrix);
    }
}

void echi_cpu_fc_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct fc f = {.unit = unit, .cuts = s->threads, .params = params};
    if (u->copies) echi_cpu_copy(s, s->boundaries[u->from].shape, echi_cpu_value(s, u->from), input_of(s, u));
    echi_cpu_share_out(s, f.cuts, (double)l->out.c * (double)echi_shape_size(l->in) * s->groups / f.cuts, forward, &f);
}

/* Nobody needs the gradient behind the ReLU any more, so where it lies well that before it takes its place. */
static float *before_relu_at(const struct echi_cpu_stack *s, const struct fc *f) {
    const struct echi_cpu_view dy = echi_cpu_grad(s, f->unit + 1);
    return dy.group == s->k->width ? dy.at : s->dz;
}

/* The gradient before ReLU, and the bias'. */
static void before_relu(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view y = echi_cpu_value(s, f->unit + 1), dy = echi_cpu_grad(s, f->unit + 1);
    const ptrdiff_t width = s->k->width, across = s->groups * width;
    float *dz = before_relu_at(s, f);
    (void)place;
    for (int k = begin; k < end; k++) {
        const struct echi_cpu_range out = outputs_of(l, f, k);
        const size_t outputs = (size_t)(out.end - out.begin);
        memset(s->bias_sums + out.begin * width, 0, outputs * (size_t)width * sizeof(float));
        for (int o = out.begin; o < out.end && (u->relu || l->bias || dz != dy.at); o++)
            s->k->relu_back(dy.at + o * dy.channel, dy.group, u->relu ? y.at + o * y.channel : NULL, y.group, dz + o * across, width,
                            s->groups, s->bias_sums + o * width);
        if (l->bias) echi_cpu_reduce(s, s->bias_sums + out.begin * width, outputs, f->grads + l->bias_at + out.begin);
    }
}

/* Both sides of the weights' gradient: of `outputs` the gradient before ReLU, and all inputs; steps are samples. */
static struct echi_cpu_lines samples_of_outputs(const struct echi_cpu_stack *s, const struct fc *f, struct echi_cpu_range outputs) {
    const ptrdiff_t across = s->groups * s->k->width;
    return (struct echi_cpu_lines){before_relu_at(s, f) + outputs.begin * across, across, 1, outputs.end - outputs.begin, s->n};
}
static struct echi_cpu_lines samples_of_inputs(const struct echi_cpu_stack *s, const struct fc *f) {
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_cpu_view x = input_of(s, u);
    return (struct echi_cpu_lines){x.at, x.column, 1, (int)echi_shape_size(u->layer->in), s->n};
}

/* dw[out][in] = sum over samples of dz[out][sample] * x[sample][in]; the rest of a batch makes that of all of it */
static void weights_grad(struct echi_cpu_stack *s, const struct fc *f, struct echi_cpu_range outputs, int place) {
    const struct echi_layer *l = s->units[f->unit].layer;
    const struct echi_cpu_stack *first = s->whole ? s->whole : s;
    const int in = (int)echi_shape_size(l->in);
    struct echi_cpu_matrix m = {.a = samples_of_outputs(first, f, outputs), .b = samples_of_inputs(first, f), .columns = in,
                                .out = f->grads + l->weight_at + (ptrdiff_t)outputs.begin * in, .out_row = in,
                                .out_vector = s->k->wide->width, .bf16 = s->bf16};
    if (s->whole) {
        m.a_more = samples_of_outputs(s, f, outputs);
        m.b_more = samples_of_inputs(s, f);
    }
    echi_cpu_matrix(s->k->wide, &m, s->own[place].matrix);   /* its columns are inputs */
}

/* And dx[in][sample] = sum over outputs of w[out][in] * dz[out][sample] */
static void backward(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct fc *f = args;
    const struct echi_cpu_unit *u = &s->units[f->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view dx = input_grad_of(s, u);
    const int in = (int)echi_shape_size(l->in), across = s->groups * s->k->width;
    const float *dz = before_relu_at(s, f);
    for (int k = begin; k < end; k++) {
        const struct echi_cpu_range o = outputs_of(l, f, k), i = echi_cpu_cut(in, ECHI_CPU_STEP, k, f->cuts);
        if (o.begin < o.end && f->weights && !s->leaves_sums) weights_grad(s, f, o, place);
        if (f->need_input_grad && i.begin < i.end)
            echi_cpu_matrix(s->k, &(struct echi_cpu_matrix){.a = {f->params + l->weight_at + i.begin, 1, in, i.end - i.begin, l->out.c},
                                                            .b = {dz, 1, across, across, l->out.c}, .columns = s->n,
                                                            .out = dx.at + i.begin * dx.column, .out_row = dx.column,
                                                            .out_vector = dx.group, .bf16 = s->bf16},
                            s->own[place].matrix);
    }
}

static double products_of(const struct echi_cpu_stack *s, const struct echi_layer *l) {
    return (double)l->out.c * (double)echi_shape_size(l->in) * s->groups;
}

/* Is the gradient before ReLU still there at the end of the step? Not in the scratch that all units share. */
static bool stays(const struct echi_cpu_stack *s, const struct fc *f) { return before_relu_at(s, f) != s->dz; }

void echi_cpu_fc_params(struct echi_cpu_stack *s, int unit, float *grads) {
    const struct fc f = {.unit = unit, .cuts = s->threads, .grads = grads, .weights = true};
    if (stays(s, &f)) echi_cpu_share_out(s, f.cuts, products_of(s, s->units[unit].layer) / f.cuts, backward, &f);
}

void echi_cpu_fc_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    struct fc f = {unit, s->threads, params, grads, need_input_grad, true};
    f.weights = !(s->postpones && stays(s, &f));
    echi_cpu_share_out(s, f.cuts, 4.0 * s->groups * l->out.c / f.cuts, before_relu, &f);
    echi_cpu_share_out(s, f.cuts, (f.need_input_grad + f.weights) * products_of(s, l) / f.cuts, backward, &f);
    if (u->copies && need_input_grad)
        echi_cpu_copy(s, s->boundaries[u->from].shape, input_grad_of(s, u), echi_cpu_share(s, u->from));
}
