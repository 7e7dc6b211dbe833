/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions at points for the late layers of a network: many channels, small maps. There the whole batch has a few vectors of
 * tiles (512 channels on 4 x 4 at batch 32: two), while the weights are megabytes and their points up to four times that. cpu_winograd.c
 * makes all points of the weights first and reads them again for every four tiles: from memory, each for a handful of products. Here the
 * loops are the other way round: the tiles of all samples are at work at once, and the weights' points are made a block at a time, serve
 * all tiles while they are in the second-level cache, and are gone. So weights are read once, as they lie, and their gradients written
 * once. Blocks of outputs (of input channels, for the weights' gradient) are independent of each other. */
#include "echi_cpu_stack.h"

/* Channels of a block: outputs and inputs whose weights' points are there at once, outputs and inputs whose weights' gradients are.
 * Multiples of every vector, and of the tiles that `product` prefers. */
enum { OUTPUTS = 48, INPUTS = 64, GRAD_OUTPUTS = 48, GRAD_INPUTS = 64 };
/* Outputs are cut for threads at multiples of this: with whole tiles of 12, of 128 outputs one thread would have 68, the other 60. */
enum { STEP = 4 };
/* Bytes of inputs' points that stay in the second-level cache from one block of outputs to the next. Where there are more of them they
 * pass, for as many outputs at a time as have sums of this size. */
enum { STAYING_BYTES = 640 * 1024 };
/* Sums of one block of outputs beyond which they would not stay themselves. */
enum { SUMS_BYTES = 1024 * 1024 };

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* From one point to the next: of `rows` rows of `row` floats, and a vector more, else all points would fall into the same lines of a
 * cache. */
static ptrdiff_t apart(int rows, int row, int width) { return (ptrdiff_t)rows * row + width; }

static ptrdiff_t channel_bytes(int points, int vectors, int width) {
    return (ptrdiff_t)points * vectors * width * (ptrdiff_t)sizeof(float);
}

/* Forward and backward have tiles of their own. */
static int64_t most_vectors(const struct echi_layer *l, int m, int groups) {
    const int forward = echi_cpu_winograd_tiles(l->out.h, l->out.w, m);
    const int back = echi_cpu_winograd_tiles(l->in.h, l->in.w, echi_cpu_winograd_back(m));
    return (int64_t)groups * max_int(forward, back);
}

bool echi_cpu_late_fits(const struct echi_layer *l, int m, int groups, int width) {
    const int64_t vectors = most_vectors(l, m, groups);
    return vectors <= SUMS_BYTES && channel_bytes(echi_cpu_winograd_points(m), (int)vectors, width) * OUTPUTS <= SUMS_BYTES;
}

static int outputs_at_once(int points, int in, int out, int vectors, int width, bool turned) {
    const ptrdiff_t channel = channel_bytes(points, vectors, width);
    if (!turned && in * channel <= STAYING_BYTES) return OUTPUTS;
    return min_int(round_up(out, OUTPUTS), max_int(1, (int)(STAYING_BYTES / (channel * OUTPUTS))) * OUTPUTS);
}

void echi_cpu_late_room(const struct echi_layer *l, int m, int groups, int width, struct echi_cpu_late_room *room) {
    const int points = echi_cpu_winograd_points(m), vectors = (int)most_vectors(l, m, groups), row = vectors * width;
    const size_t all = (size_t)points, turned = (size_t)apart(row, GRAD_INPUTS, width), block = (size_t)apart(GRAD_INPUTS, row, width);
    /* However many groups a step has: outputs_at_once's sums are at most so many bytes, or one block's. */
    const size_t sums = larger(STAYING_BYTES / sizeof(float), all * OUTPUTS * (size_t)row) + all * (size_t)width;
    room->points = larger(room->points, all * (size_t)apart(max_int(l->in.c, l->out.c), row, width));
    room->grads = larger(room->grads, all * (size_t)apart(l->out.c, row, width));
    room->weights = larger(room->weights, all * larger(turned, (size_t)apart(INPUTS, OUTPUTS, width)));
    room->products = larger(larger(room->products, sums), all * larger(block, (size_t)apart(GRAD_OUTPUTS, GRAD_INPUTS, width)));
    room->nothing = larger(room->nothing, (size_t)(ECHI_CPU_WINOGRAD_MOST + 2) * (size_t)width);
}

/* Tiles of one map, vectors of all tiles, floats of one channel of them at one point: [group][tile][lane]. */
static int tiles_of(const struct echi_cpu_winograd *w) { return echi_cpu_winograd_tiles(w->out_h, w->out_w, w->m); }
static int vectors_of(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w) { return s->groups * tiles_of(w); }
static int row_of(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w) { return vectors_of(s, w) * s->k->width; }

/* Has a tile of group g put its points, or take them, where there are those of all groups: [point][channels][group][tile][lane]. */
static void at_points(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_tile *tile, int count,
                      float *points, int channels, int g, int t) {
    tile->channels = count;
    tile->points = points + (g * tiles_of(w) + t) * s->k->width;
    tile->points_channel = row_of(s, w);
    tile->point = apart(channels, row_of(s, w), s->k->width);
}

static void put_inputs(const struct echi_cpu_stack *s, struct echi_cpu_winograd w, int g, int c, int count, float *points, int channels) {
    w.x.at += g * w.x.group + c * w.x.channel;
    for (int t = 0; t < tiles_of(&w); t++) {
        struct echi_cpu_tile tile = echi_cpu_winograd_inputs(&w, t, s->late.nothing);
        at_points(s, &w, &tile, count, points, channels, g, t);
        s->k->winograd_input(w.m, &tile);
    }
}

/* Transforms, by channels. */
struct transform { const struct echi_cpu_winograd *w; struct echi_cpu_view dy; int g; };

/* Item: an input channel. */
static void inputs(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct transform *a = args;
    (void)place;
    put_inputs(s, *a->w, a->g, begin, end - begin, s->late.points + (ptrdiff_t)begin * row_of(s, a->w), a->w->in);
}

void echi_cpu_late_inputs(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int g) {
    echi_cpu_share_out(s, w->in, 6.0 * echi_cpu_winograd_points(w->m) * tiles_of(w), inputs, &(struct transform){.w = w, .g = g});
}

/* Has these floats on their way to the second-level cache. */
static void fetch(const float *at, int count) {
    for (int i = 0; i < count; i += 16) __builtin_prefetch(at + i, 0, 2);
}

/* Points of the weights between outputs [o, o_end) and inputs [i, i_end): a lane an input channel of the layer, so
 * [point][output][input], or [point][input][output] when the layer is gone through backward. */
static void weights_points(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int o, int o_end, int i, int i_end,
                           const float *next, float *points) {
    const int width = s->k->width, rows = w->turned ? i_end - i : o_end - o, lanes = w->turned ? o_end - o : i_end - i;
    const ptrdiff_t from_row = w->turned ? w->weight_in : w->weight_out, from_lane = w->turned ? w->weight_out : w->weight_in;
    const int row = w->turned ? OUTPUTS : INPUTS;
    const float *first = w->weights + o * w->weight_out + i * w->weight_in;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < lanes; c += width) {
            const float *at = first + r * from_row + c * from_lane;
            const int count = min_int(width, lanes - c);
            if (next) fetch(next + (at - first), echi_cpu_winograd_kernel(w->m) * echi_cpu_winograd_kernel(w->m) * count);
            s->k->winograd_weights(w->m, at, from_lane, count, w->turned, points + (ptrdiff_t)r * row + c, apart(INPUTS, OUTPUTS, width));
        }
}

/* Sums at the points of outputs [o, o_end) over all inputs, and from there to y. */
static void block(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int o, int o_end, int at_once,
                  const struct echi_cpu_scratch *own) {
    const int width = s->k->width, vectors = vectors_of(s, w), row = row_of(s, w);
    for (int i = 0; i < w->in; i += INPUTS)
        for (int b = o; b < o_end; b += OUTPUTS) {
            const int b_end = min_int(b + OUTPUTS, o_end), i_end = min_int(i + INPUTS, w->in);
            const int next_b = b_end < o_end ? b_end : i_end < w->in ? o : o_end, next_i = b_end < o_end ? i : i_end < w->in ? i_end : 0;
            weights_points(s, w, b, b_end, i, i_end, next_b + OUTPUTS <= w->out && next_i + INPUTS <= w->in
                           ? w->weights + next_b * w->weight_out + next_i * w->weight_in : NULL, own->late.weights);
            for (int point = 0; point < echi_cpu_winograd_points(w->m); point++)
                s->k->product(&(struct echi_cpu_product){.x = s->late.points + point * apart(w->in, row, width) + (ptrdiff_t)i * row,
                                                         .x_p = width, .w = own->late.weights + point * apart(INPUTS, OUTPUTS, width),
                                                         .w_o = w->turned ? 1 : INPUTS,
                                                         .out = own->late.products + point * apart(at_once, row, width)
                                                                + (ptrdiff_t)(b - o) * row,
                                                         .out_o = row, .out_p = width,
                                                         .loop = {{1, 0, 0}, {1, 0, 0}, {i_end - i, row, w->turned ? OUTPUTS : 1}},
                                                         .outputs = b_end - b, .vectors = vectors, .add = i > 0});
        }
    for (int g = 0; g < s->groups; g++)
        for (int t = 0; t < tiles_of(w); t++) {
            struct echi_cpu_tile tile = echi_cpu_winograd_outputs(w, t, o);
            tile.out += g * w->y.group;
            at_points(s, w, &tile, o_end - o, own->late.products, at_once, g, t);
            s->k->winograd_output(w->m, &tile);
        }
}

struct outputs { const struct echi_cpu_winograd *w; int at_once, cuts; };

/* Item: a range of outputs. */
static void blocks(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct outputs *a = args;
    for (int item = begin; item < end; item++) {
        const struct echi_cpu_range range = echi_cpu_cut(a->w->out, STEP, item, a->cuts);
        for (int o = range.begin; o < range.end; o += a->at_once)
            block(s, a->w, o, min_int(o + a->at_once, range.end), a->at_once, &s->own[place]);
    }
}

void echi_cpu_late_outputs(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w) {
    const struct outputs a = {w, outputs_at_once(echi_cpu_winograd_points(w->m), w->in, w->out, vectors_of(s, w), s->k->width, w->turned),
                              min_int(s->threads, parts_of(w->out, STEP))};
    echi_cpu_share_out(s, a.cuts, (double)echi_cpu_winograd_points(w->m) * vectors_of(s, w) * w->in * w->out / a.cuts, blocks, &a);
}

/* ---- the gradient of the weights: at each point the sum over all tiles and samples of dy's points and the inputs' points ---- */

/* Item: an output channel. */
static void grads_points(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct transform *a = args;
    struct echi_cpu_view dy = a->dy;
    (void)place;
    dy.at += begin * dy.channel;
    for (int t = 0; t < tiles_of(a->w); t++) {
        struct echi_cpu_tile tile = echi_cpu_winograd_grads(a->w, dy, t, s->late.nothing);
        at_points(s, a->w, &tile, end - begin, s->late.grads + (ptrdiff_t)begin * row_of(s, a->w), a->w->out, a->g, t);
        s->k->winograd_grad(a->w->m, &tile);
    }
}

void echi_cpu_late_grads(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_view dy, int g) {
    echi_cpu_share_out(s, w->out, 6.0 * echi_cpu_winograd_points(w->m) * tiles_of(w), grads_points, &(struct transform){w, dy, g});
}

/* Points of the inputs [i, i_end), turned so that `product`'s vectors are over channels: [point][group][tile][lane][channel]. */
static void turned_inputs(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int i, int i_end,
                          const struct echi_cpu_scratch *own) {
    const int width = s->k->width, row = row_of(s, w);
    for (int g = 0; g < s->groups; g++) put_inputs(s, *w, g, i, i_end - i, own->late.products, GRAD_INPUTS);
    for (int point = 0; point < echi_cpu_winograd_points(w->m); point++)
        for (int k = 0; k < row; k += width)
            s->k->to_rows(own->late.products + point * apart(GRAD_INPUTS, row, width) + k, row, width, i_end - i,
                          own->late.weights + point * apart(row, GRAD_INPUTS, width) + (ptrdiff_t)k * GRAD_INPUTS, GRAD_INPUTS);
}

struct weights { const struct echi_cpu_winograd *w; float *grads; int blocks, cuts; };

/* Item: a block of inputs, and a range of outputs. */
static void weights_grads(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct weights *a = args;
    const struct echi_cpu_winograd *w = a->w;
    const struct echi_cpu_scratch *own = &s->own[place];
    const int width = s->k->width, row = row_of(s, w);
    const ptrdiff_t sums = apart(GRAD_OUTPUTS, GRAD_INPUTS, width);
    for (int item = begin; item < end; item++) {
        const struct echi_cpu_range out = echi_cpu_cut(w->out, GRAD_OUTPUTS, item / a->blocks, a->cuts);
        const int i = item % a->blocks * GRAD_INPUTS;
        const int i_end = min_int(i + GRAD_INPUTS, w->in);
        turned_inputs(s, w, i, i_end, own);
        for (int o = out.begin; o < out.end; o += GRAD_OUTPUTS) {
            const int o_end = min_int(o + GRAD_OUTPUTS, out.end);
            for (int point = 0; point < echi_cpu_winograd_points(w->m); point++)
                s->k->product(&(struct echi_cpu_product){.x = own->late.weights + point * apart(row, GRAD_INPUTS, width), .x_p = width,
                                                         .w = s->late.grads + point * apart(w->out, row, width) + (ptrdiff_t)o * row,
                                                         .w_o = row,
                                                         .out = own->late.products + point * sums, .out_o = GRAD_INPUTS, .out_p = width,
                                                         .loop = {{1, 0, 0}, {1, 0, 0}, {row, GRAD_INPUTS, 1}},
                                                         .outputs = o_end - o, .vectors = round_up(i_end - i, width) / width});
            for (int b = o; b < o_end; b++)
                for (int c = i; c < i_end; c += width)
                    s->k->winograd_weights_grad(w->m, own->late.products + (ptrdiff_t)(b - o) * GRAD_INPUTS + (c - i), sums,
                                                min_int(width, i_end - c),
                                                a->grads + b * w->weight_out + c * w->weight_in, w->weight_in);
        }
    }
}

void echi_cpu_late_weights(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, float *grads) {
    struct weights a = {.w = w, .grads = grads, .blocks = (w->in + GRAD_INPUTS - 1) / GRAD_INPUTS};
    a.cuts = echi_cpu_cuts(s, a.blocks, w->out, GRAD_OUTPUTS);
    const int items = a.blocks * a.cuts;
    echi_cpu_share_out(s, items, (double)echi_cpu_winograd_points(w->m) * vectors_of(s, w) * w->in * w->out / items, weights_grads, &a);
}
