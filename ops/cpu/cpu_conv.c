/* SPDX-License-Identifier: Apache-2.0
 * Convolutions, with the ReLU and the max-pool that follow. Taps that fall into the padding are left out: whole rows of them
 * here, columns in the kernel (conv_row). Weights are read where they are, so nothing is packed or rearranged. */
#include "echi_cpu_stack.h"

#include <string.h>

static int max_int(int a, int b) { return a > b ? a : b; }
static int min_int(int a, int b) { return a < b ? a : b; }

void echi_cpu_conv_margins(const struct echi_layer *l, int *left, int *right) {
    *left = l->pad_w;
    *right = max_int(0, (l->out.w - 1) * l->stride_w - l->pad_w + l->kernel_w - l->in.w);
}

/* The gradient of the input is again a convolution, of dy with the kernel turned round. With a stride s there are s of them
 * along each axis: inputs phase, phase + s, ... see only the taps k = first, first + s, ... */
struct phase { struct echi_cpu_axis axis; int first; };

static struct phase phase_of(int phase, int in, int out, int kernel, int stride, int pad) {
    const int first = (phase + pad) % stride;
    const int taps = first < kernel ? (kernel - first + stride - 1) / stride : 0;
    const int base = (phase + pad - first) / stride - (taps - 1);
    const int count = phase < in ? (in - phase + stride - 1) / stride : 0;
    return (struct phase){{.count = count, .step = 1, .base = base, .taps = taps, .size = out}, first};
}

void echi_cpu_conv_grad_margins(const struct echi_layer *l, int most_vectors, int *left, int *right) {
    *left = *right = 0;
    for (int phase = 0; phase < l->stride_w; phase++) {
        const struct echi_cpu_axis a = phase_of(phase, l->in.w, l->out.w, l->kernel_w, l->stride_w, l->pad_w).axis;
        *left = max_int(*left, min_int(-a.base, most_vectors - 1));
        *right = max_int(*right, min_int(a.count - 1 + a.base + a.taps - a.size, most_vectors - 1));
    }
}

/* One row of outputs; p->loop is {channels, rows of taps, taps along the row}. A kernel one column wide has its long loop over
 * the channels. */
static void row_of_outputs(const struct echi_cpu_kernels *k, struct echi_cpu_product *p, const struct echi_cpu_axis *a) {
    p->vectors = a->count;
    p->x_p = (ptrdiff_t)a->step * k->width;
    if (a->taps == 1 && a->base >= 0 && (a->count - 1) * a->step + a->base < a->size) {
        p->x += (ptrdiff_t)a->base * k->width;
        p->loop[2] = p->loop[0];
        p->loop[0] = (struct echi_cpu_loop){1, 0, 0};
        k->product(p);
    } else {
        k->conv_row(p, a);
    }
}

static void forward_row(const struct echi_cpu_stack *s, int unit, const float *params, int group, int row, float *out,
                        ptrdiff_t out_o, ptrdiff_t out_p, bool relu) {
    const struct echi_layer *l = s->units[unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[unit].from);
    const int top = row * l->stride_h - l->pad_h, first = max_int(0, -top), end = min_int(l->kernel_h, l->in.h - top);
    const ptrdiff_t plane = (ptrdiff_t)l->kernel_h * l->kernel_w;
    const struct echi_cpu_axis axis = {
        .count = l->out.w, .step = l->stride_w, .base = -l->pad_w, .taps = l->kernel_w, .size = l->in.w};
    struct echi_cpu_product p = {
        .x = x.at + group * x.group + (top + first) * x.row,
        .w = params + l->weight_at + first * l->kernel_w,
        .w_o = plane * l->in.c,
        .start = l->bias ? params + l->bias_at : NULL,
        .out = out,
        .out_o = out_o,
        .out_p = out_p,
        .loop = {{l->in.c, x.channel, plane}, {end - first, x.row, l->kernel_w}, {l->kernel_w, x.column, 1}},
        .outputs = l->out.c,
        .relu = relu};
    row_of_outputs(s->k, &p, &axis);
}

/* What Winograd's kernels are told of a unit, forward and for the gradient of the weights. */
static struct echi_cpu_winograd winograd_of(const struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    return (struct echi_cpu_winograd){.m = u->winograd, .in = l->in.c, .out = l->out.c, .in_h = l->in.h, .out_h = l->out.h, .out_w = l->out.w,
                                      .pad_h = l->pad_h, .pad_w = l->pad_w, .x = echi_cpu_value(s, u->from), .y = echi_cpu_value(s, unit + 1),
                                      .weights = params + l->weight_at, .weight_out = 9 * (ptrdiff_t)l->in.c, .weight_in = 9,
                                      .start = l->bias ? params + l->bias_at : NULL, .relu = u->relu};
}

static void winograd_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    struct echi_cpu_winograd w = winograd_of(s, unit, params);
    if (s->units[unit].late) {
        for (int g = 0; g < s->groups; g++) echi_cpu_late_inputs(s, &w, g);
        return echi_cpu_late_outputs(s, &w);
    }
    echi_cpu_winograd_kernels(s, &w);
    for (int g = 0; g < s->groups; g++, w.x.at += w.x.group, w.y.at += w.y.group) echi_cpu_winograd(s, &w);
}

void echi_cpu_conv_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer, *pool = u->pool;
    const struct echi_cpu_view y = echi_cpu_value(s, unit + 1);
    const ptrdiff_t width = k->width, row = l->out.w * width;
    if (u->winograd) return winograd_forward(s, unit, params);
    for (int g = 0; g < s->groups; g++) {
        if (!pool) {
            for (int r = 0; r < l->out.h; r++)
                forward_row(s, unit, params, g, r, y.at + g * y.group + r * y.row, y.channel, y.column, u->relu);
            continue;
        }
        const struct echi_cpu_window w = {.kernel_h = pool->kernel_h, .kernel_w = pool->kernel_w, .stride_w = pool->stride_w,
                                          .in_w = l->out.w, .count = pool->out.w};
        const ptrdiff_t band = pool->kernel_h * row;   /* the rows of one window, of one channel */
        for (int r = 0; r < pool->out.h; r++) {
            for (int i = 0; i < pool->kernel_h; i++)
                forward_row(s, unit, params, g, r * pool->stride_h + i, s->rows + i * row, band, width, false);
            for (int c = 0; c < l->out.c; c++)
                k->relu_pool(s->rows + c * band, row, &w, y.at + g * y.group + c * y.channel + r * y.row, y.column,
                             u->place + (((ptrdiff_t)g * l->out.c + c) * pool->out.h + r) * u->place_row);
        }
    }
}

/* Output channels [c, c_end) and rows [r, r_end) of one group. */
struct part { int g, c, c_end, r, r_end; };

/* Brings the gradient of a part back through pool and ReLU into u->dy, where row r is written as row r - base. Adds it up for
 * the bias. With a pool, r is the first row of a window. */
static void grad_before_relu(struct echi_cpu_stack *s, int unit, struct part part, int base) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer, *pool = u->pool;
    const struct echi_cpu_view y = echi_cpu_value(s, unit + 1), dy = echi_cpu_grad(s, unit + 1);
    for (int c = part.c; c < part.c_end; c++) {
        float *to = u->dy + c * u->dy_channel + (ptrdiff_t)u->dy_left * k->width - base * u->dy_row;
        float *sum = s->bias_sums + (ptrdiff_t)c * k->width;
        const ptrdiff_t at = part.g * y.group + c * y.channel;   /* dy lies as y does */
        if (!pool) {
            for (int r = part.r; r < part.r_end; r++)
                k->relu_back(dy.at + at + r * dy.row, dy.column, u->relu ? y.at + at + r * y.row : NULL, y.column,
                             to + r * u->dy_row, k->width, l->out.w, sum);
            continue;
        }
        const struct echi_cpu_window w = {.kernel_h = pool->kernel_h, .kernel_w = pool->kernel_w, .stride_w = pool->stride_w,
                                          .in_w = l->out.w, .count = pool->out.w};
        const bool covers = pool->stride_h == pool->kernel_h && pool->stride_w == pool->kernel_w &&
                            pool->out.h * pool->kernel_h == l->out.h && pool->out.w * pool->kernel_w == l->out.w;
        if (!covers)
            memset(to + part.r * u->dy_row - u->dy_left * k->width, 0,
                   (size_t)((part.r_end - part.r) * u->dy_row) * sizeof(float));
        for (int i = part.r / pool->stride_h; i < pool->out.h && i * pool->stride_h < part.r_end; i++)
            k->relu_pool_back(dy.at + at + i * dy.row, dy.column,
                              u->place + (((ptrdiff_t)part.g * l->out.c + c) * pool->out.h + i) * u->place_row, &w,
                              to + i * pool->stride_h * u->dy_row, u->dy_row, sum);
    }
}

/* Adds the share of a part to its weight gradients; `sums` begins with channel part.c: [channel][in][kh][kw][lane]. Row r of dy
 * is in u->dy as row r - base. The tile of taps lies along the row, or across channels when the kernel is one column wide. */
static void weight_sums(const struct echi_cpu_stack *s, int unit, struct part part, int base, float *sums) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from);
    const ptrdiff_t width = k->width, kernel_row = l->kernel_w * width, plane = l->kernel_h * kernel_row;
    const bool narrow = l->kernel_w == 1;
    const int tap_groups = narrow ? 1 : l->in.c, taps = narrow ? l->in.c : l->kernel_w;
    const ptrdiff_t x_tap = narrow ? x.channel : x.column, sum_tap = narrow ? plane : width;
    for (int c = 0; c < tap_groups; c++)
        for (int ky = 0; ky < l->kernel_h; ky++) {
            /* Rows r with 0 <= r * stride + shift < in.h. */
            const int shift = ky - l->pad_h;
            const int from = max_int(part.r, shift < 0 ? (-shift + l->stride_h - 1) / l->stride_h : 0);
            const int to = min_int(part.r_end, shift < l->in.h ? (l->in.h - 1 - shift) / l->stride_h + 1 : 0);
            if (from >= to) continue;
            for (int t = 0, tiles = (taps + k->most_taps - 1) / k->most_taps; tiles > 0; tiles--) {
                const int n = (taps - t + tiles - 1) / tiles;
                k->outer(&(struct echi_cpu_outer){.dy = u->dy + part.c * u->dy_channel + (from - base) * u->dy_row +
                                                        u->dy_left * width,
                                                  .x = x.at + part.g * x.group + c * x.channel +
                                                       (from * l->stride_h + shift) * x.row - l->pad_w * x.column + t * x_tap,
                                                  .acc = sums + c * plane + ky * kernel_row + t * sum_tap,
                                                  .dy_o = u->dy_channel,
                                                  .dy_row = u->dy_row,
                                                  .x_t = x_tap,
                                                  .x_row = l->stride_h * x.row,
                                                  .x_column = l->stride_w * x.column,
                                                  .acc_o = l->in.c * plane,
                                                  .acc_t = sum_tap,
                                                  .rows = to - from,
                                                  .columns = l->out.w,
                                                  .outputs = part.c_end - part.c,
                                                  .taps = n});
                t += n;
            }
        }
}

/* Bytes of dy that the passes over the taps should find in the first-level cache. */
enum { DY_BYTES = 24 * 1024 };

/* Weight gradients of output channels [begin, end), one group's share: s->sums begins with channel `begin`. Goes through dy in
 * parts that are used while they are in the cache; `keep` leaves all of them in u->dy, otherwise the parts share its first rows.
 */
static void params_grad(struct echi_cpu_stack *s, int unit, int g, int begin, int end, bool keep) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const ptrdiff_t filter = (ptrdiff_t)(l->weights / (size_t)l->out.c) * k->width;
    const int step = u->pool ? u->pool->stride_h : 1;
    struct part part = {.g = g, .c = begin};
    for (int tiles = (end - begin + k->most_outputs - 1) / k->most_outputs; tiles > 0; tiles--) {
        part.c_end = part.c + (end - part.c + tiles - 1) / tiles;
        const int rows = DY_BYTES / (int)((part.c_end - part.c) * u->dy_row * (ptrdiff_t)sizeof(float));
        const int band = max_int(1, rows / step) * step;
        for (part.r = 0; part.r < l->out.h; part.r = part.r_end) {
            part.r_end = min_int(part.r + band, l->out.h);
            const int base = keep ? 0 : part.r;
            grad_before_relu(s, unit, part, base);
            weight_sums(s, unit, part, base, s->sums + (part.c - begin) * filter);
        }
        part.c = part.c_end;
    }
}

static void input_grad(struct echi_cpu_stack *s, int unit, int g, const float *params) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view dx = echi_cpu_share(s, u->from);
    const ptrdiff_t plane = (ptrdiff_t)l->kernel_h * l->kernel_w;
    for (int row = 0; row < l->in.h; row++) {
        const struct phase py = phase_of(row % l->stride_h, l->in.h, l->out.h, l->kernel_h, l->stride_h, l->pad_h);
        const int top = row / l->stride_h + py.axis.base, first = max_int(0, -top), end = min_int(py.axis.taps, l->out.h - top);
        for (int phase = 0; phase < l->stride_w; phase++) {
            const struct phase px = phase_of(phase, l->in.w, l->out.w, l->kernel_w, l->stride_w, l->pad_w);
            if (px.axis.count == 0) continue;
            /* Tap j of a phase is the kernel's tap first + stride * (taps - 1 - j). */
            const ptrdiff_t ky = py.first + l->stride_h * (py.axis.taps - 1 - first),
                            kx = px.first + l->stride_w * (px.axis.taps - 1);
            struct echi_cpu_product p = {.x = u->dy + (top + first) * u->dy_row + (ptrdiff_t)u->dy_left * k->width,
                                         .w = params + l->weight_at + ky * l->kernel_w + kx,
                                         .w_o = plane,
                                         .out = dx.at + g * dx.group + row * dx.row + phase * dx.column,
                                         .out_o = dx.channel,
                                         .out_p = l->stride_w * dx.column,
                                         .loop = {{l->out.c, u->dy_channel, plane * l->in.c},
                                                  {max_int(0, end - first), u->dy_row, -(ptrdiff_t)l->stride_h * l->kernel_w},
                                                  {px.axis.taps, k->width, -l->stride_w}},
                                         .outputs = l->in.c};
            row_of_outputs(k, &p, &px.axis);
        }
    }
}

/* The gradient of the input is a convolution of dy with the kernels turned, padded by what the input was not. */
static void winograd_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view dy = {u->dy + u->dy_left * s->k->width, 0, u->dy_channel, u->dy_row, s->k->width};
    struct echi_cpu_winograd w = winograd_of(s, unit, params);
    struct echi_cpu_winograd back = {.m = echi_cpu_winograd_back(u->winograd), .in = l->out.c, .out = l->in.c, .in_h = l->out.h, .out_h = l->in.h, .out_w = l->in.w,
                                     .pad_h = 2 - l->pad_h, .pad_w = 2 - l->pad_w, .x = dy, .y = echi_cpu_share(s, u->from),
                                     .weights = params + l->weight_at, .weight_out = 9, .weight_in = 9 * (ptrdiff_t)l->in.c, .turned = true};
    memset(s->bias_sums, 0, (size_t)l->out.c * (size_t)s->k->width * sizeof(float));
    if (u->late) {
        for (int g = 0; g < s->groups; g++) {
            grad_before_relu(s, unit, (struct part){.g = g, .c_end = l->out.c, .r_end = l->out.h}, 0);
            echi_cpu_late_grads(s, &w, dy, g);
            if (need_input_grad) echi_cpu_late_inputs(s, &back, g);
        }
        echi_cpu_late_weights(s, &w, grads + l->weight_at);
        if (need_input_grad) echi_cpu_late_outputs(s, &back);
    } else {
        if (need_input_grad) echi_cpu_winograd_kernels(s, &back);
        for (int g = 0; g < s->groups; g++, w.x.at += w.x.group, back.y.at += back.y.group) {
            grad_before_relu(s, unit, (struct part){.g = g, .c_end = l->out.c, .r_end = l->out.h}, 0);
            echi_cpu_winograd_sums(s, &w, dy, g > 0);
            if (need_input_grad) echi_cpu_winograd(s, &back);
        }
        echi_cpu_winograd_weights_grad(s, &w, grads + l->weight_at);
    }
    if (l->bias) s->k->reduce(s->bias_sums, (size_t)l->out.c, grads + l->bias_at);
}

static void turned_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_layer *l = s->units[unit].layer;
    memset(s->bias_sums, 0, (size_t)l->out.c * (size_t)s->k->width * sizeof(float));
    for (int g = 0; g < s->groups; g++) {
        grad_before_relu(s, unit, (struct part){.g = g, .c_end = l->out.c, .r_end = l->out.h}, 0);
        echi_cpu_turned_sums(s, unit, g);
        if (need_input_grad) input_grad(s, unit, g, params);
    }
    echi_cpu_turned_grads(s, unit, grads + l->weight_at);
    if (l->bias) s->k->reduce(s->bias_sums, (size_t)l->out.c, grads + l->bias_at);
}

/* Few enough channels at a time that their sums (a vector for each weight) stay small; then dy must be brought back anew for
 * the input's gradient, which needs all of them. */
void echi_cpu_conv_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const int channels = l->out.c;
    const size_t width = (size_t)s->k->width, filter = l->weights / (size_t)channels;
    if (u->winograd) return winograd_backward(s, unit, params, grads, need_input_grad);
    if (u->turned) return turned_backward(s, unit, params, grads, need_input_grad);
    const bool at_once = u->chunk >= channels;
    memset(s->bias_sums, 0, (size_t)channels * width * sizeof(float));
    for (int begin = 0; begin < channels; begin += u->chunk) {
        const int end = min_int(begin + u->chunk, channels);
        memset(s->sums, 0, (size_t)(end - begin) * filter * width * sizeof(float));
        for (int g = 0; g < s->groups; g++) {
            params_grad(s, unit, g, begin, end, at_once && need_input_grad);
            if (at_once && need_input_grad) input_grad(s, unit, g, params);
        }
        s->k->reduce(s->sums, (size_t)(end - begin) * filter, grads + l->weight_at + (size_t)begin * filter);
    }
    if (l->bias) s->k->reduce(s->bias_sums, (size_t)channels, grads + l->bias_at);
    if (at_once || !need_input_grad) return;
    for (int g = 0; g < s->groups; g++) {
        grad_before_relu(s, unit, (struct part){.g = g, .c_end = channels, .r_end = l->out.h}, 0);
        input_grad(s, unit, g, params);
    }
}
