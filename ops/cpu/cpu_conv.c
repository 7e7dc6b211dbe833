/* SPDX-License-Identifier: Apache-2.0
 * Convolutions, with the ReLU and the max-pool that follow. Taps that fall into the padding are left out: whole rows of them
 * here, columns in the kernel (conv_row). Weights are read where they are, so nothing is packed or rearranged. */
#include "echi_cpu_stack.h"

#include <string.h>

void echi_cpu_conv_margins(const struct echi_layer *l, int *left, int *right) {
    *left = l->pad_w;
    *right = max_int(0, (l->out.w - 1) * l->stride_w - l->pad_w + l->kernel_w - l->in.w);
}

struct echi_cpu_range echi_cpu_inside(int k, int begin, int end, int in, int stride, int pad) {
    const int first = k >= pad ? 0 : (pad - k + stride - 1) / stride, beyond = in - 1 + pad - k < 0 ? 0 : (in - 1 + pad - k) / stride + 1;
    const int from = max_int(begin, first);
    return (struct echi_cpu_range){from, max_int(from, min_int(end, beyond))};
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

/* A sum of many terms is made of sums of about so many: one long chain rounds as often, but against what it has become. */
enum { TERMS = 256 };

/* One row of outputs; p->loop is {channels, rows of taps, taps along the row}. A kernel one column wide has its long loop over
 * the channels. */
static void row_of_outputs(const struct echi_cpu_kernels *k, const struct echi_cpu_product *whole, const struct echi_cpu_axis *a) {
    const struct echi_cpu_loop channels = whole->loop[0];
    const int at_once = max_int(1, TERMS / max_int(1, whole->loop[1].n * whole->loop[2].n));
    int next = 0;
    do {
        const int first = next;
        struct echi_cpu_product p = *whole;
        next = channels.n - first > at_once + at_once / 2 ? first + at_once : channels.n;
        p.vectors = a->count;
        p.x_p = (ptrdiff_t)a->step * k->width;
        p.x += first * channels.x;
        p.w += first * channels.w;
        p.loop[0].n = next - first;
        p.add = first > 0;
        if (p.add) p.start = NULL;
        p.relu = whole->relu && next == channels.n;
        if (a->taps == 1 && a->base >= 0 && (a->count - 1) * a->step + a->base < a->size) {
            p.x += (ptrdiff_t)a->base * k->width;
            p.loop[2] = p.loop[0];
            p.loop[0] = (struct echi_cpu_loop){1, 0, 0};
            k->product(&p);
        } else {
            k->conv_row(&p, a);
        }
    } while (next < channels.n);
}

/* What a convolution's parts are told. */
struct conv { int unit, g, cuts; const float *params; float *grads; bool keep; };

static void forward_row(const struct echi_cpu_stack *s, const struct conv *a, int group, int row, struct echi_cpu_range outputs, float *out,
                        ptrdiff_t out_o, ptrdiff_t out_p, bool relu) {
    const struct echi_layer *l = s->units[a->unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[a->unit].from);
    const int top = row * l->stride_h - l->pad_h, first = max_int(0, -top), end = min_int(l->kernel_h, l->in.h - top);
    const ptrdiff_t plane = (ptrdiff_t)l->kernel_h * l->kernel_w;
    const struct echi_cpu_axis axis = {
        .count = l->out.w, .step = l->stride_w, .base = -l->pad_w, .taps = l->kernel_w, .size = l->in.w};
    struct echi_cpu_product p = {
        .x = x.at + group * x.group + (top + first) * x.row,
        .w = a->params + l->weight_at + outputs.begin * plane * l->in.c + first * l->kernel_w,
        .w_o = plane * l->in.c,
        .start = l->bias ? a->params + l->bias_at + outputs.begin : NULL,
        .out = out + outputs.begin * out_o,
        .out_o = out_o,
        .out_p = out_p,
        .loop = {{l->in.c, x.channel, plane}, {end - first, x.row, l->kernel_w}, {l->kernel_w, x.column, 1}},
        .outputs = outputs.end - outputs.begin,
        .relu = relu};
    row_of_outputs(s->k, &p, &axis);
}

/* What Winograd's kernels are told of a unit, forward and for the gradient of the weights. */
static struct echi_cpu_winograd winograd_of(const struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const ptrdiff_t plane = (ptrdiff_t)l->kernel_h * l->kernel_w;
    return (struct echi_cpu_winograd){.m = u->winograd, .in = l->in.c, .out = l->out.c,
                                      .in_h = l->in.h, .out_h = l->out.h, .out_w = l->out.w, .pad_h = l->pad_h, .pad_w = l->pad_w,
                                      .x = echi_cpu_value(s, u->from), .y = echi_cpu_value(s, unit + 1),
                                      .weights = params + l->weight_at, .weight_out = plane * l->in.c, .weight_in = plane,
                                      .start = l->bias ? params + l->bias_at : NULL, .relu = u->relu, .stages = u->stages};
}

static void winograd_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    struct echi_cpu_winograd w = winograd_of(s, unit, params);
    if (s->units[unit].late) {
        for (int g = 0; g < s->groups; g++) echi_cpu_late_inputs(s, &w, g);
        return echi_cpu_late_outputs(s, &w);
    }
    echi_cpu_winograd_kernels(s, &w);
    if (!s->units[unit].stages) return echi_cpu_winograd(s, &w, s->groups);
    for (int g = 0; g < s->groups; g++, w.x.at += w.x.group, w.y.at += w.y.group) echi_cpu_stages(s, &w);
}

/* Item: a row of one group, or of windows; a range of its outputs. */
static void forward_rows(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct conv *a = args;
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer, *pool = u->pool;
    const struct echi_cpu_view y = echi_cpu_value(s, a->unit + 1);
    const ptrdiff_t width = k->width, row = l->out.w * width;
    const int rows = pool ? pool->out.h : l->out.h;
    for (int item = begin; item < end; item++) {
        const struct echi_cpu_range outputs = echi_cpu_cut(l->out.c, ECHI_CPU_STEP, item % a->cuts, a->cuts);
        const int g = item / a->cuts / rows, r = item / a->cuts % rows;
        if (!pool) {
            forward_row(s, a, g, r, outputs, y.at + g * y.group + r * y.row, y.channel, y.column, u->relu);
            continue;
        }
        const struct echi_cpu_window w = {.kernel_h = pool->kernel_h, .kernel_w = pool->kernel_w, .stride_w = pool->stride_w,
                                          .in_w = l->out.w, .count = pool->out.w};
        const ptrdiff_t band = pool->kernel_h * row;   /* the rows of one window, of one channel */
        float *own = s->own[place].rows;
        for (int i = 0; i < pool->kernel_h; i++)
            forward_row(s, a, g, r * pool->stride_h + i, outputs, own + i * row, band, width, false);
        for (int c = outputs.begin; c < outputs.end; c++)
            k->relu_pool(own + c * band, row, &w, y.at + g * y.group + c * y.channel + r * y.row, y.column,
                         u->place + (((ptrdiff_t)g * l->out.c + c) * pool->out.h + r) * u->place_row);
    }
}

/* Multiply-adds of one row of outputs, of all channels. */
static double products_of_row(const struct echi_layer *l) {
    return (double)l->in.c * l->out.c * l->kernel_h * l->kernel_w * l->out.w;
}

void echi_cpu_conv_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    if (u->bf16) return echi_cpu_conv_bf16_forward(s, unit, params);
    if (u->winograd) return winograd_forward(s, unit, params);
    const int rows = s->groups * (u->pool ? u->pool->out.h : u->layer->out.h);
    const struct conv a = {.unit = unit, .params = params, .cuts = echi_cpu_cuts(s, rows, u->layer->out.c, ECHI_CPU_STEP)};
    echi_cpu_share_out(s, rows * a.cuts, products_of_row(u->layer) * (u->pool ? u->pool->kernel_h : 1) / a.cuts, forward_rows, &a);
}

/* Output channels [c, c_end) and rows [r, r_end) of one group; dy: where their gradient before ReLU is, channel 0 and row 0
 * of it; bias_sums: of channel c on. */
struct part { int g, c, c_end, r, r_end; float *dy, *bias_sums; };

/* Brings the gradient of a part back through pool and ReLU into its dy. Adds it up for the bias. With a pool, r is the first row of a
 * window. */
static void grad_before_relu(struct echi_cpu_stack *s, int unit, struct part part) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer, *pool = u->pool;
    const struct echi_cpu_view y = echi_cpu_value(s, unit + 1), dy = echi_cpu_grad(s, unit + 1);
    for (int c = part.c; c < part.c_end; c++) {
        float *to = part.dy + c * u->dy_channel + (ptrdiff_t)u->dy_left * k->width;
        float *sum = part.bias_sums + (ptrdiff_t)(c - part.c) * k->width;
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

/* Adds the share of a part to its weight gradients; `sums` begins with channel part.c: [channel][in][kh][kw][lane]. The tile
 * of taps lies along the row, or across channels when the kernel is one column wide. */
static void weight_sums(const struct echi_cpu_stack *s, int unit, struct part part, float *sums) {
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view x = echi_cpu_value(s, u->from);
    const ptrdiff_t width = k->width, sum = k->wide->width, kernel_row = l->kernel_w * sum, plane = l->kernel_h * kernel_row;
    const bool narrow = l->kernel_w == 1;
    const int tap_groups = narrow ? 1 : l->in.c, taps = narrow ? l->in.c : l->kernel_w;
    const ptrdiff_t x_tap = narrow ? x.channel : x.column, sum_tap = narrow ? plane : sum;
    for (int c = 0; c < tap_groups; c++)
        for (int ky = 0; ky < l->kernel_h; ky++) {
            /* Rows r with 0 <= r * stride + shift < in.h. */
            const int shift = ky - l->pad_h;
            const int from = max_int(part.r, shift < 0 ? (-shift + l->stride_h - 1) / l->stride_h : 0);
            const int to = min_int(part.r_end, shift < l->in.h ? (l->in.h - 1 - shift) / l->stride_h + 1 : 0);
            if (from >= to) continue;
            for (int t = 0, tiles = (taps + k->most_taps - 1) / k->most_taps; tiles > 0; tiles--) {
                const int n = (taps - t + tiles - 1) / tiles;
                k->outer(&(struct echi_cpu_outer){.dy = part.dy + part.c * u->dy_channel + from * u->dy_row +
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

/* Bytes of sums that are little beside what they are made from. Then the first half of the groups and the second are summed apart, on one
 * thread, too: two threads that both have forward taken the same half find all of it in their own caches. */
enum { HALVES_BYTES = 32 * 1024 };

int echi_cpu_conv_halves(const struct echi_layer *l, int width) {
    return l->weights * (size_t)width * sizeof(float) <= HALVES_BYTES ? 2 : 1;
}

/* Tiles of channels for `outer`, about as high as it likes them, that come out even among the threads. */
static int tiles_of(const struct echi_cpu_stack *s, const struct echi_cpu_unit *u) {
    const int out = u->layer->out.c, least = (out + s->k->most_outputs - 1) / s->k->most_outputs;
    const int even = (least * u->halves + s->threads - 1) / s->threads * s->threads / u->halves;
    return even < least ? least : min_int(even, out);
}

/* The gradients themselves. Item: an output channel. */
static void params_grad(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct conv *a = args;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer;
    const size_t width = (size_t)s->k->width, weights = l->weights / (size_t)l->out.c, count = (size_t)(end - begin), from = (size_t)begin;
    const size_t sum = (size_t)s->k->wide->width;
    float *sums = s->sums + from * weights * sum, *biases = s->bias_sums + from * width;
    (void)place;
    if (u->halves == 2) s->k->add(biases, biases, biases + (size_t)l->out.c * width, count * width);
    if (u->halves == 2 && !s->leaves_sums) s->k->add(sums, sums, sums + l->weights * sum, count * weights * sum);
    if (!s->leaves_sums) s->k->wide->reduce(sums, count * weights, a->grads + l->weight_at + from * weights);
    if (l->bias) echi_cpu_reduce(s, biases, count, a->grads + l->bias_at + from);
}

/* Sums for the gradients of weights and biases, of one tile of output channels and one half of the groups; of all groups the gradients,
 * too. Goes through dy in parts that are used while they are in the cache; `keep` leaves all of them in u->dy, otherwise the parts of a
 * group share its first rows. Item: a tile of a half. */
static void sum_tiles(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct conv *a = args;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer;
    const size_t width = (size_t)s->k->width, filter = l->weights / (size_t)l->out.c * (size_t)s->k->wide->width;
    const int step = u->pool ? u->pool->stride_h : 1, tiles = tiles_of(s, u);
    for (int item = begin; item < end; item++) {
        const struct echi_cpu_range c = echi_cpu_cut(l->out.c, 1, item % tiles, tiles);
        const struct echi_cpu_range groups = echi_cpu_cut(s->groups, 1, item / tiles, u->halves);
        const size_t channels = (size_t)(c.end - c.begin), first = (size_t)(item / tiles * l->out.c + c.begin);
        const int rows = DY_BYTES / (int)((c.end - c.begin) * u->dy_row * (ptrdiff_t)sizeof(float)), band = max_int(1, rows / step) * step;
        if (!s->whole) memset(s->sums + first * filter, 0, channels * filter * sizeof(float));
        memset(s->bias_sums + first * width, 0, channels * width * sizeof(float));
        for (int g = groups.begin; g < groups.end; g++)
            for (int r = 0, r_end; r < l->out.h; r = r_end) {
                float *dy = u->dy + g * u->dy_group;
                r_end = min_int(r + band, l->out.h);
                const struct part part = {g, c.begin, c.end, r, r_end, a->keep ? dy : dy - r * u->dy_row, s->bias_sums + first * width};
                grad_before_relu(s, a->unit, part);
                weight_sums(s, a->unit, part, s->sums + first * filter);
            }
        if (u->halves == 1) params_grad(s, a, c.begin, c.end, place);
    }
}

/* Item: a row of the inputs of one group, from group a->g on; a range of its channels. */
static void input_grad_rows(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct conv *a = args;
    const struct echi_cpu_kernels *k = s->k;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view dx = echi_cpu_share(s, u->from);
    const ptrdiff_t plane = (ptrdiff_t)l->kernel_h * l->kernel_w;
    (void)place;
    for (int item = begin; item < end; item++) {
        const struct echi_cpu_range channels = echi_cpu_cut(l->in.c, ECHI_CPU_STEP, item % a->cuts, a->cuts);
        const int g = a->g + item / a->cuts / l->in.h, row = item / a->cuts % l->in.h;
        const struct phase py = phase_of(row % l->stride_h, l->in.h, l->out.h, l->kernel_h, l->stride_h, l->pad_h);
        const int top = row / l->stride_h + py.axis.base, first = max_int(0, -top), last = min_int(py.axis.taps, l->out.h - top);
        for (int phase = 0; phase < l->stride_w; phase++) {
            const struct phase px = phase_of(phase, l->in.w, l->out.w, l->kernel_w, l->stride_w, l->pad_w);
            if (px.axis.count == 0) continue;
            /* Tap j of a phase is the kernel's tap first + stride * (taps - 1 - j). */
            const ptrdiff_t ky = py.first + l->stride_h * (py.axis.taps - 1 - first),
                            kx = px.first + l->stride_w * (px.axis.taps - 1);
            struct echi_cpu_product p = {.x = u->dy + g * u->dy_group + (top + first) * u->dy_row + (ptrdiff_t)u->dy_left * k->width,
                                         .w = a->params + l->weight_at + channels.begin * plane + ky * l->kernel_w + kx,
                                         .w_o = plane,
                                         .out = dx.at + g * dx.group + channels.begin * dx.channel + row * dx.row + phase * dx.column,
                                         .out_o = dx.channel,
                                         .out_p = l->stride_w * dx.column,
                                         .loop = {{l->out.c, u->dy_channel, plane * l->in.c},
                                                  {max_int(0, last - first), u->dy_row, -(ptrdiff_t)l->stride_h * l->kernel_w},
                                                  {px.axis.taps, k->width, -l->stride_w}},
                                         .outputs = channels.end - channels.begin};
            row_of_outputs(k, &p, &px.axis);
        }
    }
}

/* Of groups [g, g_end), whose dy is there. */
static void input_grad(struct echi_cpu_stack *s, int unit, int g, int g_end, const float *params) {
    const struct echi_layer *l = s->units[unit].layer;
    const int rows = (g_end - g) * l->in.h;
    const struct conv a = {.unit = unit, .g = g, .params = params, .cuts = echi_cpu_cuts(s, rows, l->in.c, ECHI_CPU_STEP)};
    echi_cpu_share_out(s, rows * a.cuts, products_of_row(l) * l->out.h / l->in.h / a.cuts, input_grad_rows, &a);
}

/* The gradients before ReLU of some groups, `apart` from each other, whole, and their shares of the bias' gradient, apart too: what comes
 * first, from group 0 on, clears those. Item: an output channel of a group. */
struct before { int unit, g, apart; };
static void channels_before_relu(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct before *a = args;
    const struct echi_cpu_unit *u = &s->units[a->unit];
    const size_t width = (size_t)s->k->width;
    (void)place;
    for (int item = begin; item < end; item++) {
        const int k = item / u->layer->out.c, c = item % u->layer->out.c;
        float *sum = s->bias_sums + (size_t)item * width;
        if (a->g == 0) memset(sum, 0, width * sizeof *sum);
        grad_before_relu(s, a->unit, (struct part){.g = a->g + k * a->apart, .c = c, .c_end = c + 1, .r_end = u->layer->out.h,
                                                   .dy = u->dy + k * u->dy_group, .bias_sums = sum});
    }
}
static void groups_before_relu(struct echi_cpu_stack *s, int unit, int g, int apart, int groups) {
    const struct echi_layer *l = s->units[unit].layer;
    echi_cpu_share_out(s, l->out.c * groups, 4.0 * l->out.h * l->out.w, channels_before_relu, &(struct before){unit, g, apart});
}
static void bias_grad(const struct echi_cpu_stack *s, const struct echi_layer *l, int halves, float *grads) {
    const size_t floats = (size_t)l->out.c * (size_t)s->k->width;
    if (!l->bias) return;
    if (halves == 2) s->k->add(s->bias_sums, s->bias_sums, s->bias_sums + floats, floats);
    s->k->reduce(s->bias_sums, (size_t)l->out.c, grads + l->bias_at);
}

/* The gradient of the input is a convolution of dy with the kernels turned, padded by what the input was not. */
static void winograd_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_layer *l = u->layer;
    const struct echi_cpu_view dy = {u->dy + u->dy_left * s->k->width, u->dy_group, u->dy_channel, u->dy_row, s->k->width};
    struct echi_cpu_winograd w = winograd_of(s, unit, params);
    struct echi_cpu_winograd back = {.m = echi_cpu_winograd_back(u->winograd), .in = l->out.c, .out = l->in.c,
                                     .in_h = l->out.h, .out_h = l->in.h, .out_w = l->in.w,
                                     .pad_h = echi_cpu_winograd_pad_back(u->winograd, l->pad_h),
                                     .pad_w = echi_cpu_winograd_pad_back(u->winograd, l->pad_w), .x = dy, .y = echi_cpu_share(s, u->from),
                                     .weights = params + l->weight_at, .weight_out = w.weight_in, .weight_in = w.weight_out,
                                     .turned = true};
    const ptrdiff_t x_group = w.x.group, y_group = back.y.group;
    if (u->late) {
        for (int g = 0; g < s->groups; g++) {
            groups_before_relu(s, unit, g, 0, 1);
            echi_cpu_late_grads(s, &w, dy, g);
            if (need_input_grad) echi_cpu_late_inputs(s, &back, g);
        }
        echi_cpu_late_weights(s, &w, grads + l->weight_at);
        if (need_input_grad) echi_cpu_late_outputs(s, &back);
        return bias_grad(s, l, 1, grads);
    }
    if (need_input_grad) echi_cpu_winograd_kernels(s, &back);
    if (u->stages) {
        for (int g = 0; g < s->groups; g++, w.x.at += x_group, back.y.at += y_group) {
            groups_before_relu(s, unit, g, 0, 1);
            echi_cpu_stages_sums(s, &w, dy, g > 0);
            if (need_input_grad) echi_cpu_stages(s, &back);
        }
        echi_cpu_winograd_weights_grad(s, &w, grads + l->weight_at);
        return bias_grad(s, l, 1, grads);
    }
    /* A group of each half of the batch at a time. */
    const int half = (s->groups + 1) / 2;
    w.x.group *= half;
    back.y.group *= half;
    for (int g = 0; g < half; g++, w.x.at += x_group, back.y.at += y_group) {
        const int groups = g + half < s->groups ? 2 : 1;
        groups_before_relu(s, unit, g, half, groups);
        echi_cpu_winograd_sums(s, &w, dy, groups, g > 0);
        if (need_input_grad) echi_cpu_winograd(s, &back, groups);
    }
    echi_cpu_winograd_weights_grad(s, &w, grads + l->weight_at);
    bias_grad(s, l, s->groups > 1 ? 2 : 1, grads);
}

static void turned_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_layer *l = s->units[unit].layer;
    for (int g = 0; g < s->groups; g++) {
        groups_before_relu(s, unit, g, 0, 1);
        echi_cpu_turned_sums(s, unit, g);
        if (need_input_grad) input_grad(s, unit, g, g + 1, params);
    }
    echi_cpu_turned_grads(s, unit, grads + l->weight_at);
    bias_grad(s, l, 1, grads);
}

void echi_cpu_conv_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    if (u->bf16) return echi_cpu_conv_bf16_backward(s, unit, params, grads, need_input_grad);
    if (u->winograd) return winograd_backward(s, unit, params, grads, need_input_grad);
    if (u->turned) return turned_backward(s, unit, params, grads, need_input_grad);
    const struct conv a = {.unit = unit, .grads = grads, .keep = need_input_grad};
    const int items = tiles_of(s, u) * u->halves;
    echi_cpu_share_out(s, items, products_of_row(u->layer) * u->layer->out.h * s->groups / items, sum_tiles, &a);
    if (u->halves == 2) echi_cpu_share_out(s, u->layer->out.c, 4.0 * (double)u->layer->weights / u->layer->out.c, params_grad, &a);
    if (need_input_grad) input_grad(s, unit, 0, s->groups, params);
}
