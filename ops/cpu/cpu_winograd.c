/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions with stride 1 by Winograd's minimal filtering, F(m x m, 3 x 3): a tile of m x m outputs takes (m + 2) x (m + 2)
 * multiplications for each pair of channels instead of 9 m x m, 2.25 times fewer with m = 2 and 4 times with m = 4. Inputs and weights are
 * brought to *points* (isa_winograd.c); at each point the sum over the channels is a product of matrices, which is `product` again: vectors
 * over samples, broadcast weights. A few tiles at a time, so that their points stay in the second-level cache. */
#include "echi_cpu_stack.h"

#include <string.h>

/* Tiles at a time: as many vectors as `product` takes at once. Outputs at a time: their sums wait for the transform in the first-level
 * caches' neighbourhood; a multiple of the heights of tiles that `product` prefers. */
enum { TILES = 4, OUTPUTS = 24 };
/* With fewer on either side the transforms take most of the time. */
enum { LEAST_CHANNELS = 16 };

static int min_int(int a, int b) { return a < b ? a : b; }
static int round_up(int count, int to) { return (count + to - 1) / to * to; }
static int points_of(int m) { return (m + 2) * (m + 2); }
static int tiles_along(int size, int m) { return (size + m - 1) / m; }

/* Points lie a vector further apart than their vectors need: else all of them would fall into the same few lines of a cache. */
static ptrdiff_t points_apart(int channels, int width) { return ((ptrdiff_t)channels * TILES + 1) * width; }
static ptrdiff_t kernels_apart(int in, int out, int width) { return (ptrdiff_t)out * round_up(in, width) + width; }

/* Multiplications of one pair of channels, in all of a sample's outputs: directly, without those that meet padding, or at the points. */
static double direct_products(const struct echi_layer *l) {
    double rows = 0, columns = 0;
    for (int k = 0; k < 3; k++) {
        for (int r = 0; r < l->out.h; r++) rows += r + k >= l->pad_h && r + k < l->pad_h + l->in.h;
        for (int c = 0; c < l->out.w; c++) columns += c + k >= l->pad_w && c + k < l->pad_w + l->in.w;
    }
    return rows * columns;
}
static double point_products(const struct echi_layer *l, int m) {
    return (double)points_of(m) * tiles_along(l->out.h, m) * tiles_along(l->out.w, m);
}

/* A transform of a tile is some 4 (m = 2) or 6 (m = 4) additions a point; it is done once for each channel in and out, and serves all
 * products with the other side's channels. Loads and stores double that. The weights' points are made, and fetched from far, once for n
 * samples: about 64 products' time each. */
static double cost(const struct echi_layer *l, int m, int n) {
    const double in = l->in.c, out = l->out.c;
    if (m == 0) return direct_products(l) * in * out;
    return point_products(l, m) * (in * out + (m == 4 ? 12 : 8) * (in + out)) + 64.0 / n * points_of(m) * in * out;
}

int echi_cpu_winograd_choose(const struct echi_layer *l, int n, int most) {
    int best = 0;
    if (l->in.c < LEAST_CHANNELS || l->out.c < LEAST_CHANNELS) return 0;
    if (l->op != ECHI_OP_CONV2D || l->kernel_h != 3 || l->kernel_w != 3 || l->stride_h != 1 || l->stride_w != 1 || l->pad_h > 2 || l->pad_w > 2)
        return 0;
    for (int m = 2; m <= most; m += 2)
        if (cost(l, m, n) < cost(l, best, n)) best = m;
    return best;
}

void echi_cpu_winograd_margins(const struct echi_layer *l, int m, int *in_right, int *grad_left, int *grad_right) {
    *in_right = tiles_along(l->out.w, m) * m + 2 - l->pad_w - l->in.w;
    *grad_left = 2 - l->pad_w;
    *grad_right = tiles_along(l->in.w, m) * m + 2 - *grad_left - l->out.w;
}

static void raise_to(size_t *room, size_t wanted) {
    if (*room < wanted) *room = wanted;
}

void echi_cpu_winograd_room(const struct echi_layer *l, int m, int width, struct echi_cpu_winograd_room *room) {
    const int most = l->in.c > l->out.c ? l->in.c : l->out.c;
    const size_t points = (size_t)points_of(m);
    const size_t forward = points * (size_t)kernels_apart(l->in.c, l->out.c, width), backward = points * (size_t)kernels_apart(l->out.c, l->in.c, width);
    raise_to(&room->kernels, forward > backward ? forward : backward);
    raise_to(&room->points, points * (size_t)points_apart(most, width));
    raise_to(&room->products, points * (size_t)points_apart(OUTPUTS, width));
    raise_to(&room->nothing, (size_t)(m + 2) * (size_t)width);
    raise_to(&room->turned, points * TILES * (size_t)width * (size_t)round_up(l->in.c, width));
    raise_to(&room->grads, points * (size_t)points_apart(l->out.c, width));
    raise_to(&room->sums, forward);
}

/* [point][out][in]: weights as `product` reads them, a lane an input channel. Item: an output. */
static void kernels_of(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct echi_cpu_winograd *w = args;
    const int width = s->k->width;
    const ptrdiff_t apart = kernels_apart(w->in, w->out, width);
    (void)place;
    for (int o = begin; o < end; o++)
        for (int i = 0; i < w->in; i += width)
            s->k->winograd_weights(w->m, w->weights + o * w->weight_out + i * w->weight_in, w->weight_in, min_int(width, w->in - i), w->turned,
                                   s->winograd.kernels + (ptrdiff_t)o * round_up(w->in, width) + i, apart);
}

void echi_cpu_winograd_kernels(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w) {
    echi_cpu_share_out(s, w->out, 10.0 * points_of(w->m) * w->in / s->k->width, kernels_of, w);
}

/* Tile t of those at work: `rows` rows of x from (top, left) on, those that are outside zeros; its points go to `points`. */
static struct echi_cpu_tile tile_of(const struct echi_cpu_stack *s, struct echi_cpu_view x, int height, int top, int left, int rows,
                                    int channels, float *points, int t) {
    const ptrdiff_t width = s->k->width;
    struct echi_cpu_tile tile = {.channels = channels, .points = points + t * width, .point = points_apart(channels, (int)width),
                                 .points_channel = TILES * width, .column = x.column};
    for (int i = 0; i < rows; i++) {
        const bool inside = top + i >= 0 && top + i < height;
        tile.row[i] = inside ? x.at + (top + i) * x.row + left * x.column : s->winograd.nothing;
        tile.channel[i] = inside ? x.channel : 0;
    }
    return tile;
}

static void inputs(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int first, int tiles, int across, float *points) {
    for (int t = 0; t < tiles; t++) {
        const int top = (first + t) / across * w->m, left = (first + t) % across * w->m;
        const struct echi_cpu_tile tile = tile_of(s, w->x, w->in_h, top - w->pad_h, left - w->pad_w, w->m + 2, w->in, points, t);
        s->k->winograd_input(w->m, &tile);
    }
}

static void outputs(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int first, int tiles, int across, int o, int o_end,
                    const float *products) {
    const ptrdiff_t width = s->k->width;
    for (int t = 0; t < tiles; t++) {
        const int top = (first + t) / across * w->m, left = (first + t) % across * w->m;
        const struct echi_cpu_tile tile = {.channels = o_end - o, .points = (float *)products + t * width,
                                           .point = points_apart(OUTPUTS, (int)width), .points_channel = TILES * width,
                                           .out = w->y.at + o * w->y.channel + top * w->y.row + left * w->y.column,
                                           .out_channel = w->y.channel, .out_row = w->y.row, .column = w->y.column,
                                           .rows = min_int(w->m, w->out_h - top), .columns = min_int(w->m, w->out_w - left),
                                           .start = w->start ? w->start + o : NULL, .relu = w->relu};
        s->k->winograd_output(w->m, &tile);
    }
}

/* Where there are few tiles the outputs are divided, too: then each range of them makes the inputs' points for itself. */
struct convolution { const struct echi_cpu_winograd *w; int blocks, cuts; };

/* Item: a range of outputs of some tiles of one group. */
static void convolve(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct convolution *c = args;
    const struct echi_cpu_scratch *own = &s->own[place];
    const int width = s->k->width, row = round_up(c->w->in, width);
    const int across = tiles_along(c->w->out_w, c->w->m), all = across * tiles_along(c->w->out_h, c->w->m);
    for (int item = begin; item < end; item++) {
        const int block = item / c->cuts, g = block / c->blocks, first = block % c->blocks * TILES, tiles = min_int(TILES, all - first);
        const struct echi_cpu_range range = echi_cpu_cut(c->w->out, OUTPUTS, item % c->cuts, c->cuts);
        struct echi_cpu_winograd w = *c->w;
        w.x.at += g * w.x.group;
        w.y.at += g * w.y.group;
        inputs(s, &w, first, tiles, across, own->winograd.points);
        for (int o = range.begin; o < range.end; o += OUTPUTS) {
            const int o_end = min_int(o + OUTPUTS, range.end);
            for (int point = 0; point < points_of(w.m); point++)
                s->k->product(&(struct echi_cpu_product){.x = own->winograd.points + point * points_apart(w.in, width),
                                                         .w = s->winograd.kernels + point * kernels_apart(w.in, w.out, width) + (ptrdiff_t)o * row,
                                                         .out = own->winograd.products + point * points_apart(OUTPUTS, width),
                                                         .x_p = width, .w_o = row, .out_o = TILES * width, .out_p = width,
                                                         .loop = {{1, 0, 0}, {1, 0, 0}, {w.in, TILES * width, 1}},
                                                         .outputs = o_end - o, .vectors = tiles});
            outputs(s, &w, first, tiles, across, o, o_end, own->winograd.products);
        }
    }
}

void echi_cpu_winograd(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int groups) {
    const int tiles = tiles_along(w->out_w, w->m) * tiles_along(w->out_h, w->m), blocks = (tiles + TILES - 1) / TILES;
    const struct convolution c = {w, blocks, echi_cpu_cuts(s, groups * blocks, w->out, OUTPUTS)};
    echi_cpu_share_out(s, groups * blocks * c.cuts, (double)points_of(w->m) * TILES * w->in * w->out / c.cuts, convolve, &c);
}

/* ---- the gradient of the weights: G^T [ sum over tiles and samples of (A dy A^T) . (B^T d B) ] G ---- */

/* At each point the sum over tiles and samples is a product once more: of dy's points, read as weights, and of the inputs' points turned so
 * that their vectors are over channels. Threads have ranges of input channels of their own, whose points nobody else needs; those of dy
 * are made by each. Only where there are more threads than vectors of input channels, the outputs are divided, too. */
struct sums { const struct echi_cpu_winograd *w; struct echi_cpu_view dy; bool add; int in_cuts, out_cuts; };

static void sums_of_range(struct echi_cpu_stack *s, const struct sums *a, struct echi_cpu_range in, struct echi_cpu_range out,
                          const struct echi_cpu_scratch *own) {
    struct echi_cpu_winograd w = *a->w;
    struct echi_cpu_view dy = a->dy;
    w.x.at += in.begin * w.x.channel;
    w.in = in.end - in.begin;
    dy.at += out.begin * dy.channel;
    w.out = out.end - out.begin;
    const int width = s->k->width, row = round_up(w.in, width), sums_row = round_up(a->w->in, width);
    const int across = tiles_along(w.out_w, w.m), all = across * tiles_along(w.out_h, w.m);
    for (int first = 0; first < all; first += TILES) {
        const int tiles = min_int(TILES, all - first);
        inputs(s, &w, first, tiles, across, own->winograd.points);
        for (int t = 0; t < tiles; t++) {
            const int top = (first + t) / across * w.m, left = (first + t) % across * w.m;
            const struct echi_cpu_tile tile = tile_of(s, dy, w.out_h, top, left, w.m, w.out, own->winograd.grads, t);
            s->k->winograd_grad(w.m, &tile);
        }
        for (int point = 0; point < points_of(w.m); point++) {
            float *turned = own->winograd.turned + (ptrdiff_t)point * TILES * width * row;
            for (int t = 0; t < tiles; t++)
                s->k->to_rows(own->winograd.points + point * points_apart(w.in, width) + t * width, TILES * width, width, w.in,
                              turned + (ptrdiff_t)t * width * row, row);
            s->k->product(&(struct echi_cpu_product){.x = turned, .x_p = width, .w = own->winograd.grads + point * points_apart(w.out, width),
                                                     .w_o = TILES * width,
                                                     .out = s->winograd.sums + point * kernels_apart(a->w->in, a->w->out, width) +
                                                            (ptrdiff_t)out.begin * sums_row + in.begin,
                                                     .out_o = sums_row, .out_p = width, .loop = {{1, 0, 0}, {1, 0, 0}, {tiles * width, row, 1}},
                                                     .outputs = w.out, .vectors = row / width, .add = a->add || first > 0});
        }
    }
}

/* Item: a range of input channels and one of outputs. */
static void sums_of_ranges(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct sums *a = args;
    for (int item = begin; item < end; item++)
        sums_of_range(s, a, echi_cpu_cut(a->w->in, s->k->width, item % a->in_cuts, a->in_cuts),
                      echi_cpu_cut(a->w->out, ECHI_CPU_STEP, item / a->in_cuts, a->out_cuts), &s->own[place]);
}

void echi_cpu_winograd_sums(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_view dy, bool add) {
    const int vectors = round_up(w->in, s->k->width) / s->k->width, steps = round_up(w->out, ECHI_CPU_STEP) / ECHI_CPU_STEP;
    struct sums a = {.w = w, .dy = dy, .add = add, .in_cuts = min_int(s->threads, vectors)};
    a.out_cuts = min_int((s->threads + a.in_cuts - 1) / a.in_cuts, steps);
    const double products = (double)points_of(w->m) * tiles_along(w->out_w, w->m) * tiles_along(w->out_h, w->m) * w->in * w->out;
    echi_cpu_share_out(s, a.in_cuts * a.out_cuts, products / (a.in_cuts * a.out_cuts), sums_of_ranges, &a);
}

struct weights_grad { const struct echi_cpu_winograd *w; float *grads; };

/* Item: an output. */
static void weights_grad(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct weights_grad *a = args;
    const struct echi_cpu_winograd *w = a->w;
    const int width = s->k->width, row = round_up(w->in, width);
    (void)place;
    for (int o = begin; o < end; o++)
        for (int i = 0; i < w->in; i += width)
            s->k->winograd_weights_grad(w->m, s->winograd.sums + (ptrdiff_t)o * row + i, kernels_apart(w->in, w->out, width), min_int(width, w->in - i),
                                        a->grads + o * w->weight_out + i * w->weight_in, w->weight_in);
}

void echi_cpu_winograd_weights_grad(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, float *grads) {
    echi_cpu_share_out(s, w->out, 10.0 * points_of(w->m) * w->in / s->k->width, weights_grad, &(struct weights_grad){w, grads});
}
