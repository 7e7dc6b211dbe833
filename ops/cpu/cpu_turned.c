/* SPDX-License-Identifier: Apache-2.0
 * The weights' gradient of a convolution with many input channels, as products of matrices: for each tap the sum over positions and samples
 * of dy[out] * x[in]. `product` wants one side as numbers and the other as vectors; so the inputs are turned, from vectors over samples to
 * vectors over channels, once, and dy's lanes are read one by one. With few channels the vectors would be mostly empty: see isa_outer.c. */
#include "echi_cpu_stack.h"

#include <string.h>

/* Bytes of turned inputs that the products of all taps and outputs should find in the second-level cache. */
enum { BAND_BYTES = 256 * 1024 };
/* The widest vector: with fewer the reductions of isa_outer.c cost less than empty lanes. */
enum { LEAST_CHANNELS = 16 };

static ptrdiff_t row_of(const struct echi_layer *l, int width) { return (l->in.c + width - 1) / width * width; }

bool echi_cpu_turned_fits(const struct echi_layer *l) { return l->op == ECHI_OP_CONV2D && l->in.c >= LEAST_CHANNELS; }

void echi_cpu_turned_room(const struct echi_layer *l, int width, size_t *inputs, size_t *sums) {
    *inputs = (size_t)l->in.h * (size_t)l->in.w * (size_t)width * (size_t)row_of(l, width);
    *sums = (size_t)l->kernel_h * (size_t)l->kernel_w * (size_t)l->out.c * (size_t)row_of(l, width);
}

struct turned { int unit, g; float *grads; };

/* [row][column][lane][channel]. Item: a row. */
static void turn(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct turned *t = args;
    const struct echi_layer *l = s->units[t->unit].layer;
    const struct echi_cpu_view x = echi_cpu_value(s, s->units[t->unit].from);
    const int width = s->k->width;
    const ptrdiff_t row = row_of(l, width);
    (void)place;
    for (int r = begin; r < end; r++)
        for (int q = 0; q < l->in.w; q++)
            s->k->to_rows(x.at + t->g * x.group + r * x.row + q * x.column, x.channel, width, l->in.c,
                          s->turned + ((ptrdiff_t)r * l->in.w + q) * width * row, row);
}

/* Item: some outputs. */
static void sum_outputs(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct turned *t = args;
    const struct echi_cpu_unit *u = &s->units[t->unit];
    const struct echi_layer *l = u->layer;
    const int width = s->k->width, o = begin * ECHI_CPU_STEP, outputs = min_int(end * ECHI_CPU_STEP, l->out.c) - o;
    const ptrdiff_t row = row_of(l, width), column = width * row, line = l->in.w * column;
    const int band = max_int(1, (int)(BAND_BYTES / ((ptrdiff_t)sizeof(float) * line * l->stride_h)));
    (void)place;
    for (int tap = 0; t->g == 0 && tap < l->kernel_h * l->kernel_w; tap++)
        memset(s->turned_sums + ((ptrdiff_t)tap * l->out.c + o) * row, 0, (size_t)outputs * (size_t)row * sizeof(float));
    for (int first = 0; first < l->out.h; first += band)
        for (int tap = 0; tap < l->kernel_h * l->kernel_w; tap++) {
            const int ky = tap / l->kernel_w, kx = tap % l->kernel_w;
            const struct echi_cpu_range rows = echi_cpu_inside(ky, first, min_int(first + band, l->out.h), l->in.h, l->stride_h, l->pad_h);
            const struct echi_cpu_range columns = echi_cpu_inside(kx, 0, l->out.w, l->in.w, l->stride_w, l->pad_w);
            const ptrdiff_t y = rows.begin * l->stride_h - l->pad_h + ky, x = columns.begin * l->stride_w - l->pad_w + kx;
            if (rows.begin == rows.end || columns.begin == columns.end) continue;
            s->k->product(&(struct echi_cpu_product){.x = s->turned + y * line + x * column, .x_p = width,
                                                     .w = u->dy + o * u->dy_channel + rows.begin * u->dy_row +
                                                          (u->dy_left + columns.begin) * width, .w_o = u->dy_channel,
                                                     .out = s->turned_sums + ((ptrdiff_t)tap * l->out.c + o) * row,
                                                     .out_o = row, .out_p = width,
                                                     .loop = {{rows.end - rows.begin, l->stride_h * line, u->dy_row},
                                                              {columns.end - columns.begin, l->stride_w * column, width},
                                                              {width, row, 1}},
                                                     .outputs = outputs, .vectors = (int)(row / width), .add = true});
        }
}

void echi_cpu_turned_sums(struct echi_cpu_stack *s, int unit, int g) {
    const struct echi_layer *l = s->units[unit].layer;
    const struct turned t = {.unit = unit, .g = g};
    echi_cpu_share_out(s, l->in.h, 4.0 * l->in.w * l->in.c, turn, &t);
    /* Of one output, a group's samples: vectors over channels. */
    const double products = (double)l->in.c * l->kernel_h * l->kernel_w * l->out.h * l->out.w;
    echi_cpu_share_out(s, (l->out.c + ECHI_CPU_STEP - 1) / ECHI_CPU_STEP, ECHI_CPU_STEP * products, sum_outputs, &t);
}

/* Item: an output. */
static void grads_of(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct turned *t = args;
    const struct echi_layer *l = s->units[t->unit].layer;
    const ptrdiff_t row = row_of(l, s->k->width), taps = (ptrdiff_t)l->kernel_h * l->kernel_w;
    (void)place;
    for (ptrdiff_t tap = 0; tap < taps; tap++)
        for (ptrdiff_t o = begin; o < end; o++)
            for (ptrdiff_t c = 0; c < l->in.c; c++)
                t->grads[(o * l->in.c + c) * taps + tap] = s->turned_sums[(tap * l->out.c + o) * row + c];
}

void echi_cpu_turned_grads(struct echi_cpu_stack *s, int unit, float *grads) {
    const struct echi_layer *l = s->units[unit].layer;
    echi_cpu_share_out(s, l->out.c, (double)l->in.c * l->kernel_h * l->kernel_w, grads_of, &(struct turned){.unit = unit, .grads = grads});
}
