/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions with stride 1 by Winograd's minimal filtering, F(m x m, 3 x 3): a tile of m x m outputs takes (m + 2) x (m + 2)
 * multiplications for each pair of channels instead of 9 m x m, 2.25 times fewer with m = 2 and 4 times with m = 4; and 5 x 5 by
 * F(2 x 2, 5 x 5), with 36 multiplications instead of 100. Inputs and weights are
 * brought to *points* (isa_winograd.c); at each point the sum over the channels is a product of matrices, which is `product` again: vectors
 * over samples, broadcast weights. A few tiles at a time, so that their points stay in the second-level cache. */
#include "echi_cpu_stack.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Tiles at a time: as many vectors as `product` takes at once. Outputs at a time: their sums wait for the transform in the first-level
 * caches' neighbourhood; a multiple of the heights of tiles that `product` prefers. */
enum { TILES = 4, OUTPUTS = 24 };
/* Steps of a product's sum at a time: their vectors, four at each, stay in the first-level cache. */
enum { DEPTH = 128 };
/* With fewer on either side the transforms take most of the time. */
enum { LEAST_CHANNELS = 16 };

/* Along one side of a tile: inputs, outputs, points. */
static int points_along(int m) {
    return m == ECHI_CPU_WHOLE ? 3 : m == ECHI_CPU_STRIDED || m == ECHI_CPU_STRIDED_BACK ? 5 : m == 2 ? 4 : 6;
}
static int inputs_along(int m) { return m == ECHI_CPU_WHOLE ? 2 : m == ECHI_CPU_STRIDED_BACK ? 3 : points_along(m); }
static int outputs_along(int m) { return m == 4 || m == ECHI_CPU_STRIDED_BACK ? 4 : 2; }
static int points_of(int m) { return points_along(m) * points_along(m); }
/* The first input of a tile whose first output is `at`. */
static int first_input(int m, int at, int pad) {
    return m == ECHI_CPU_WHOLE ? at : m == ECHI_CPU_STRIDED ? 2 * at - pad : m == ECHI_CPU_STRIDED_BACK ? at / 2 : at - pad;
}
int echi_cpu_winograd_back(int m) { return m == ECHI_CPU_STRIDED ? ECHI_CPU_STRIDED_BACK : m; }
static int tiles_along(int size, int m) { return (size + outputs_along(m) - 1) / outputs_along(m); }
int echi_cpu_winograd_points(int m) { return points_of(m); }
int echi_cpu_winograd_pad_back(int m, int pad) { return echi_cpu_winograd_kernel(m) - 1 - pad; }
int echi_cpu_winograd_tiles(int out_h, int out_w, int m) { return tiles_along(out_h, m) * tiles_along(out_w, m); }

/* Points lie a vector further apart than their vectors need: else all of them would fall into the same few lines of a cache. */
static ptrdiff_t points_apart(int channels, int width) { return ((ptrdiff_t)channels * TILES + 1) * width; }
static ptrdiff_t kernels_apart(int in, int out, int width) { return (ptrdiff_t)out * round_up(in, width) + width; }
ptrdiff_t echi_cpu_winograd_kernels_apart(int in, int out, int width) { return kernels_apart(in, out, width); }

/* Multiplications of one pair of channels, in all of a sample's outputs: directly, without those that meet padding, or at the points. */
static double direct_products(const struct echi_layer *l) {
    double rows = 0, columns = 0;
    for (int k = 0; k < l->kernel_h; k++)
        for (int r = k; r < k + l->out.h * l->stride_h; r += l->stride_h) rows += r >= l->pad_h && r < l->pad_h + l->in.h;
    for (int k = 0; k < l->kernel_w; k++)
        for (int c = k; c < k + l->out.w * l->stride_w; c += l->stride_w) columns += c >= l->pad_w && c < l->pad_w + l->in.w;
    return rows * columns;
}
static double point_products(const struct echi_layer *l, int m) {
    return (double)points_of(m) * tiles_along(l->out.h, m) * tiles_along(l->out.w, m);
}

/* Products of one sample. Directly, each row of outputs fetches its taps' weights anew: about two products' time each. A transform of a
 * tile is some 4 (m = 2, a whole map) or 6 (m = 4) additions a point; it is done once for each channel in and out, and serves all products
 * with the other side's channels. Loads and stores double that. The weights' points are made once for all samples: some 12
 * products' time each where they are used at once, 64 where they are fetched again from far. `lanes`: the samples, as whole vectors,
 * since an empty lane costs what a full one does. */
static double cost(const struct echi_layer *l, int m, bool late, int lanes) {
    const double in = l->in.c, out = l->out.c;
    if (m == 0) return (direct_products(l) + 2.0 * l->kernel_h * l->kernel_w * l->out.h) * in * out;
    const int transform = m == 4 || m == ECHI_CPU_FIVE ? 12 : 8;
    return point_products(l, m) * (in * out + transform * (in + out)) + (late ? 12.0 : 64.0) / lanes * points_of(m) * in * out;
}

/* In blocks of bf16: so many products in one's time; what is packed, each input and output, and each weight once for all samples, in both
 * directions. */
static double cost_bf16(const struct echi_layer *l, enum echi_cpu_bf16 bf16, int lanes) {
    const double in = l->in.c, out = l->out.c, whole = (double)round_up(l->in.c, 32) * round_up(l->out.c, 16) * round_up(lanes, 32) / lanes;
    return direct_products(l) * whole / (bf16 == ECHI_CPU_BF16_AMX ? 14 : 1.1) + 16 * (in * l->in.h * l->in.w + out * l->out.h * l->out.w) +
           44.0 / lanes * l->kernel_h * l->kernel_w * in * out;
}

static bool can_do(const struct echi_layer *l, int m) {
    if (l->in.c < LEAST_CHANNELS || l->out.c < LEAST_CHANNELS) return false;
    const int kernel = echi_cpu_winograd_kernel(m);
    if (l->op != ECHI_OP_CONV2D || l->kernel_h != kernel || l->kernel_w != kernel || l->pad_h >= kernel || l->pad_w >= kernel) return false;
    const bool padded = l->pad_h == 1 && l->pad_w == 1;
    if (m == ECHI_CPU_STRIDED) return padded && l->stride_h == 2 && l->stride_w == 2;
    return l->stride_h == 1 && l->stride_w == 1 && (m != ECHI_CPU_WHOLE || (padded && l->in.h == 2 && l->in.w == 2));
}

/* `close`: they round about as plain sums do, and are left where no more is permitted. */
static const struct { int m; bool close; const char *name; } kinds[] = {
    {ECHI_CPU_WHOLE, true, " whole 2x2"}, {ECHI_CPU_STRIDED, true, " F(2x2) by 2"}, {2, true, " F(2x2)"}, {4, false, " F(4x4)"},
    {ECHI_CPU_FIVE, false, " F(2x2,5x5)"}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };
static bool permitted(const struct echi_layer *l, size_t kind, int most) {
    return can_do(l, kinds[kind].m) && most >= (kinds[kind].close ? 2 : 4);
}

const char *echi_cpu_winograd_name(int m) {
    for (size_t k = 0; k < KINDS; k++)
        if (kinds[k].m == m) return kinds[k].name;
    return "";
}

/* With fewer channels most of a block would be zeros. */
static bool fits_bf16(const struct echi_layer *l, enum echi_cpu_bf16 bf16) {
    return bf16 != ECHI_CPU_BF16_NONE && l->op == ECHI_OP_CONV2D && l->in.c >= LEAST_CHANNELS && l->out.c >= LEAST_CHANNELS;
}

struct echi_cpu_points echi_cpu_winograd_choose(const struct echi_layer *l, int groups, int width, int most, enum echi_cpu_bf16 bf16) {
    struct echi_cpu_points best = {0};
    for (size_t k = 0; k < KINDS; k++) {
        const int m = kinds[k].m;
        if (!permitted(l, k, most)) continue;
        const bool late = echi_cpu_late_fits(l, m, groups, width);
        if (cost(l, m, late, groups * width) < cost(l, best.m, best.late, groups * width))
            best = (struct echi_cpu_points){.m = m, .late = late};
    }
    best.stages = best.m && !best.late && echi_cpu_stages_fit(l, best.m);
    const bool faster = fits_bf16(l, bf16) && cost_bf16(l, bf16, groups * width) < cost(l, best.m, best.late, groups * width);
    return faster ? (struct echi_cpu_points){.bf16 = true} : best;
}

/* printf behind the `at` characters that are there; returns how many are. */
static size_t __attribute__((format(printf, 4, 5))) add_text(char *out, size_t cap, size_t at, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int more = at < cap ? vsnprintf(out + at, cap - at, fmt, args) : 0;
    va_end(args);
    return at + (size_t)more;
}

void echi_cpu_winograd_explain(const struct echi_layer *l, int groups, int width, int most, enum echi_cpu_bf16 bf16, char *out,
                               size_t cap) {
    const double direct = cost(l, 0, false, groups * width);
    out[0] = 0;
    if (l->op != ECHI_OP_CONV2D) return;
    size_t at = 0;
    for (size_t k = 0; k < KINDS; k++) {
        const int m = kinds[k].m;
        if (!permitted(l, k, most)) continue;
        at = add_text(out, cap, at, "%s%s %.2f", at ? "," : "", echi_cpu_winograd_name(m),
                      cost(l, m, echi_cpu_late_fits(l, m, groups, width), groups * width) / direct);
    }
    if (fits_bf16(l, bf16)) at = add_text(out, cap, at, "%s bf16 %.2f", at ? "," : "", cost_bf16(l, bf16, groups * width) / direct);
    if (at > 0) at = add_text(out, cap, at, " of direct sums' time");
    const char *const then = at > 0 ? ";" : "directly:";
    if (most == 0) add_text(out, cap, at, "%s points are switched off", then);
    else if (l->kernel_h != l->kernel_w || (l->kernel_h != 3 && l->kernel_h != 5))
        add_text(out, cap, at, "%s points are for 3 x 3 and 5 x 5", then);
    else if (l->in.c < LEAST_CHANNELS || l->out.c < LEAST_CHANNELS)
        add_text(out, cap, at, "%s points are for %d channels and more", then, LEAST_CHANNELS);
    else if (at == 0) add_text(out, cap, at, "directly: no points for this stride or padding");
}

void echi_cpu_winograd_margins(const struct echi_layer *l, int m, int *in_right, int *grad_left, int *grad_right) {
    const int back = echi_cpu_winograd_back(m);
    const int last = (tiles_along(l->out.w, m) - 1) * outputs_along(m), last_back = (tiles_along(l->in.w, back) - 1) * outputs_along(back);
    *in_right = max_int(0, first_input(m, last, l->pad_w) + inputs_along(m) - l->in.w);
    const int pad = echi_cpu_winograd_pad_back(m, l->pad_w);
    *grad_left = max_int(0, -first_input(back, 0, pad));
    *grad_right = max_int(0, max_int(last + outputs_along(m), first_input(back, last_back, pad) + inputs_along(back)) - l->out.w);
}

/* Bytes of sums that are little beside what they are made from: then the halves of the batch have sums of their own, and a thread for each
 * half makes no points that the other makes too. Else, and where there are more threads, they have ranges of input channels, whose points
 * nobody else needs, while those of dy are made by each; and where there are more threads than vectors of those, ranges of outputs. */
enum { HALVES_BYTES = 3 << 20 };

static bool halves_of(size_t sums) { return sums * sizeof(float) <= HALVES_BYTES; }

void echi_cpu_winograd_room(const struct echi_layer *l, int m, int width, struct echi_cpu_winograd_room *room) {
    const int most = l->in.c > l->out.c ? l->in.c : l->out.c;
    const size_t points = (size_t)points_of(m);
    const size_t forward = points * (size_t)kernels_apart(l->in.c, l->out.c, width);
    const size_t backward = points * (size_t)kernels_apart(l->out.c, l->in.c, width);
    raise_to(&room->kernels, forward > backward ? forward : backward);
    raise_to(&room->points, points * (size_t)points_apart(most, width));
    raise_to(&room->products, points * (size_t)points_apart(OUTPUTS, width));
    raise_to(&room->nothing, (size_t)(ECHI_CPU_WINOGRAD_MOST + 2) * (size_t)width);
    raise_to(&room->turned, points * TILES * (size_t)width * (size_t)round_up(l->in.c, width));
    raise_to(&room->grads, points * (size_t)points_apart(l->out.c, width));
    raise_to(&room->sums, forward * (halves_of(forward) ? 2 : 1));
}

/* [point][out][in]: weights as `product` reads them, a lane an input channel. Item: an output. */
static void kernels_of(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct echi_cpu_winograd *w = args;
    const int width = s->k->width;
    const ptrdiff_t apart = kernels_apart(w->in, w->out, width);
    (void)place;
    for (int o = begin; o < end; o++)
        for (int i = 0; i < w->in; i += width)
            s->k->winograd_weights(w->m, w->weights + o * w->weight_out + i * w->weight_in, w->weight_in, min_int(width, w->in - i),
                                   w->turned, s->winograd.kernels + (ptrdiff_t)o * round_up(w->in, width) + i, apart);
}

void echi_cpu_winograd_kernels(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w) {
    echi_cpu_share_out(s, w->out, 10.0 * points_of(w->m) * w->in / s->k->width, kernels_of, w);
}

/* Where tile t of a map begins. */
struct place { int row, column; };
static struct place place_of(const struct echi_cpu_winograd *w, int t) {
    const int across = tiles_along(w->out_w, w->m);
    return (struct place){t / across * outputs_along(w->m), t % across * outputs_along(w->m)};
}

/* `side` rows and columns of x from there on; rows that are outside are zeros. */
static struct echi_cpu_tile tile_of(struct echi_cpu_view x, int height, struct place from, int side, const float *nothing) {
    struct echi_cpu_tile tile = {.column = x.column};
    for (int i = 0; i < side; i++) {
        const bool inside = from.row + i >= 0 && from.row + i < height;
        tile.row[i] = inside ? x.at + (from.row + i) * x.row + from.column * x.column : nothing;
        tile.channel[i] = inside ? x.channel : 0;
    }
    return tile;
}

struct echi_cpu_tile echi_cpu_winograd_inputs(const struct echi_cpu_winograd *w, int t, const float *nothing) {
    const struct place at = place_of(w, t), from = {first_input(w->m, at.row, w->pad_h), first_input(w->m, at.column, w->pad_w)};
    return tile_of(w->x, w->in_h, from, inputs_along(w->m), nothing);
}
struct echi_cpu_tile echi_cpu_winograd_grads(const struct echi_cpu_winograd *w, struct echi_cpu_view dy, int t, const float *nothing) {
    return tile_of(dy, w->out_h, place_of(w, t), outputs_along(w->m), nothing);
}
struct echi_cpu_tile echi_cpu_winograd_outputs(const struct echi_cpu_winograd *w, int t, int o) {
    const struct place at = place_of(w, t);
    return (struct echi_cpu_tile){.out = w->y.at + o * w->y.channel + at.row * w->y.row + at.column * w->y.column,
                                  .out_channel = w->y.channel, .out_row = w->y.row, .column = w->y.column,
                                  .rows = min_int(outputs_along(w->m), w->out_h - at.row),
                                  .columns = min_int(outputs_along(w->m), w->out_w - at.column),
                                  .start = w->start ? w->start + o : NULL, .relu = w->relu};
}

/* The points of tiles at work: tile t's of channel c are at points + (c * TILES + t) * width. */
static void put_points(struct echi_cpu_tile *tile, int channels, float *points, int points_channels, int t, int width) {
    tile->channels = channels;
    tile->points = points + t * width;
    tile->point = points_apart(points_channels, width);
    tile->points_channel = TILES * width;
}

static void inputs(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int first, int tiles, float *points) {
    for (int t = 0; t < tiles; t++) {
        struct echi_cpu_tile tile = echi_cpu_winograd_inputs(w, first + t, s->winograd.nothing);
        put_points(&tile, w->in, points, w->in, t, s->k->width);
        s->k->winograd_input(w->m, &tile);
    }
}

static void outputs(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int first, int tiles, int o, int o_end,
                    float *products) {
    for (int t = 0; t < tiles; t++) {
        struct echi_cpu_tile tile = echi_cpu_winograd_outputs(w, first + t, o);
        put_points(&tile, o_end - o, products, OUTPUTS, t, s->k->width);
        s->k->winograd_output(w->m, &tile);
    }
}

void echi_cpu_winograd_product(const struct echi_cpu_stack *s, struct echi_cpu_product p, int depth, ptrdiff_t x_step) {
    const bool add = p.add;
    for (int parts = parts_of(depth, DEPTH), from = 0, n; parts > 0; parts--, from += n) {
        n = parts_of(depth - from, parts);
        p.loop[0] = p.loop[1] = (struct echi_cpu_loop){1, 0, 0};
        p.loop[2] = (struct echi_cpu_loop){n, x_step, 1};
        p.add = add || from > 0;
        s->k->product(&p);
        p.x += n * x_step;
        p.w += n;
    }
}

/* Where there are few tiles the outputs are divided, too: then each range of them makes the inputs' points for itself. */
struct convolution { const struct echi_cpu_winograd *w; int blocks, cuts; };

/* Item: a range of outputs of some tiles of one group. */
static void convolve(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct convolution *c = args;
    const struct echi_cpu_scratch *own = &s->own[place];
    const int width = s->k->width, row = round_up(c->w->in, width), all = echi_cpu_winograd_tiles(c->w->out_h, c->w->out_w, c->w->m);
    for (int item = begin; item < end; item++) {
        const int block = item / c->cuts, g = block / c->blocks, first = block % c->blocks * TILES, tiles = min_int(TILES, all - first);
        const struct echi_cpu_range range = echi_cpu_cut(c->w->out, OUTPUTS, item % c->cuts, c->cuts);
        struct echi_cpu_winograd w = *c->w;
        w.x.at += g * w.x.group;
        w.y.at += g * w.y.group;
        inputs(s, &w, first, tiles, own->winograd.points);
        for (int o = range.begin; o < range.end; o += OUTPUTS) {
            const int o_end = min_int(o + OUTPUTS, range.end);
            for (int point = 0; point < points_of(w.m); point++)
                echi_cpu_winograd_product(s, (struct echi_cpu_product){
                    .x = own->winograd.points + point * points_apart(w.in, width), .x_p = width,
                    .w = s->winograd.kernels + point * kernels_apart(w.in, w.out, width) + (ptrdiff_t)o * row, .w_o = row,
                    .out = own->winograd.products + point * points_apart(OUTPUTS, width), .out_o = TILES * width, .out_p = width,
                    .outputs = o_end - o, .vectors = tiles}, w.in, TILES * width);
            outputs(s, &w, first, tiles, o, o_end, own->winograd.products);
        }
    }
}

void echi_cpu_winograd(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, int groups) {
    const int blocks = (echi_cpu_winograd_tiles(w->out_h, w->out_w, w->m) + TILES - 1) / TILES;
    const struct convolution c = {w, blocks, echi_cpu_cuts(s, groups * blocks, w->out, OUTPUTS)};
    echi_cpu_share_out(s, groups * blocks * c.cuts, (double)points_of(w->m) * TILES * w->in * w->out / c.cuts, convolve, &c);
}

/* ---- the gradient of the weights: G^T [ sum over tiles and samples of (A dy A^T) . (B^T d B) ] G ---- */

/* At each point the sum over tiles and samples is a product once more: of dy's points, read as weights, and of the inputs' points turned so
 * that their vectors are over channels. */
struct sums { const struct echi_cpu_winograd *w; struct echi_cpu_view dy; bool add; int groups, in_cuts, out_cuts; size_t half; };

/* Of one group: x's and dy's first. */
static void sums_of_range(struct echi_cpu_stack *s, struct echi_cpu_winograd w, struct echi_cpu_view dy, struct echi_cpu_range in,
                          struct echi_cpu_range out, float *sums, bool add, const struct echi_cpu_scratch *own) {
    const int width = s->k->width, row = round_up(in.end - in.begin, width), sums_row = round_up(w.in, width);
    const int all = echi_cpu_winograd_tiles(w.out_h, w.out_w, w.m);
    const ptrdiff_t sums_apart = kernels_apart(w.in, w.out, width);
    sums += (ptrdiff_t)out.begin * sums_row + in.begin;
    w.x.at += in.begin * w.x.channel;
    w.in = in.end - in.begin;
    dy.at += out.begin * dy.channel;
    w.out = out.end - out.begin;
    for (int first = 0; first < all; first += TILES) {
        const int tiles = min_int(TILES, all - first);
        inputs(s, &w, first, tiles, own->winograd.points);
        for (int t = 0; t < tiles; t++) {
            struct echi_cpu_tile tile = echi_cpu_winograd_grads(&w, dy, first + t, s->winograd.nothing);
            put_points(&tile, w.out, own->winograd.grads, w.out, t, width);
            s->k->winograd_grad(w.m, &tile);
        }
        for (int point = 0; point < points_of(w.m); point++) {
            float *turned = own->winograd.turned + (ptrdiff_t)point * TILES * width * row;
            for (int t = 0; t < tiles; t++)
                s->k->to_rows(own->winograd.points + point * points_apart(w.in, width) + t * width, TILES * width, width, w.in,
                              turned + (ptrdiff_t)t * width * row, row);
            s->k->product(&(struct echi_cpu_product){.x = turned, .x_p = width,
                                                     .w = own->winograd.grads + point * points_apart(w.out, width),
                                                     .w_o = TILES * width, .out = sums + point * sums_apart, .out_o = sums_row,
                                                     .out_p = width, .loop = {{1, 0, 0}, {1, 0, 0}, {tiles * width, row, 1}},
                                                     .outputs = w.out, .vectors = row / width, .add = add || first > 0});
        }
    }
}

/* Item: a range of input channels and one of outputs, of one half or of all groups. */
static void sums_of_ranges(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct sums *a = args;
    for (int item = begin; item < end; item++) {
        const struct echi_cpu_range in = echi_cpu_cut(a->w->in, s->k->width, item % a->in_cuts, a->in_cuts);
        const struct echi_cpu_range out = echi_cpu_cut(a->w->out, ECHI_CPU_STEP, item / a->in_cuts % a->out_cuts, a->out_cuts);
        const int half = item / (a->in_cuts * a->out_cuts);
        for (int g = a->half ? half : 0; g < (a->half ? half + 1 : a->groups); g++) {
            struct echi_cpu_winograd w = *a->w;
            struct echi_cpu_view dy = a->dy;
            w.x.at += g * w.x.group;
            dy.at += g * dy.group;
            sums_of_range(s, w, dy, in, out, s->winograd.sums + (size_t)half * a->half, a->add || (!a->half && g > 0), &s->own[place]);
        }
    }
}

static size_t half_of(const struct echi_cpu_stack *s, const struct echi_cpu_winograd *w) {
    const size_t sums = (size_t)points_of(w->m) * (size_t)kernels_apart(w->in, w->out, s->k->width);
    return !w->stages && s->groups > 1 && halves_of(sums) ? sums : 0;
}

void echi_cpu_winograd_sums(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_view dy, int groups, bool add) {
    const int vectors = round_up(w->in, s->k->width) / s->k->width, steps = round_up(w->out, ECHI_CPU_STEP) / ECHI_CPU_STEP;
    struct sums a = {.w = w, .dy = dy, .add = add, .groups = groups, .half = half_of(s, w)};
    const int halves = a.half ? groups : 1, wanted = (s->threads + halves - 1) / halves;
    a.in_cuts = min_int(wanted, vectors);
    a.out_cuts = min_int((wanted + a.in_cuts - 1) / a.in_cuts, steps);
    const double products = (double)points_of(w->m) * echi_cpu_winograd_tiles(w->out_h, w->out_w, w->m) * w->in * w->out * groups;
    const int items = a.in_cuts * a.out_cuts * halves;
    echi_cpu_share_out(s, items, products / items, sums_of_ranges, &a);
}

struct weights_grad { const struct echi_cpu_winograd *w; float *grads; size_t half; };

/* Item: an output. */
static void weights_grad(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct weights_grad *a = args;
    const struct echi_cpu_winograd *w = a->w;
    const int width = s->k->width, row = round_up(w->in, width);
    const ptrdiff_t apart = kernels_apart(w->in, w->out, width);
    (void)place;
    for (int point = 0; a->half && point < points_of(w->m); point++) {
        float *sums = s->winograd.sums + point * apart + (ptrdiff_t)begin * row;
        s->k->add(sums, sums, sums + a->half, (size_t)(end - begin) * (size_t)row);
    }
    for (int o = begin; o < end; o++)
        for (int i = 0; i < w->in; i += width)
            s->k->winograd_weights_grad(w->m, s->winograd.sums + (ptrdiff_t)o * row + i, apart, min_int(width, w->in - i),
                                        a->grads + o * w->weight_out + i * w->weight_in, w->weight_in);
}

void echi_cpu_winograd_weights_grad(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, float *grads) {
    echi_cpu_share_out(s, w->out, 10.0 * points_of(w->m) * w->in / s->k->width, weights_grad,
                       &(struct weights_grad){w, grads, half_of(s, w)});
}
