/* SPDX-License-Identifier: Apache-2.0
 * Convolutions at points where the points of the weights are more than a second-level cache holds, and a map has tiles enough: with 384 to
 * 256 channels on 13 x 13 they are 14 MB, the map 16 tiles. cpu_winograd.c would fetch all of them for every four tiles, and the four
 * tiles' points, 3.5 MB, for every 24 outputs. Here each stage is gone through for more tiles and all channels before the next: inputs to
 * points; at one point after the other a product of matrices, all of whose operands stay in the second-level cache meanwhile; points to
 * outputs. What is between the stages goes out to the third-level cache and comes back once. */
#include "echi_cpu_stack.h"

/* Tiles at a time, at most. */
enum { TILES = 16 };
/* Bytes of weights' points beyond which they do not stay beside the rest, and tiles of a map that are worth it. */
enum { WEIGHTS_BYTES = 2 << 20, LEAST_TILES = 9 };

/* Rows of vectors lie one vector further apart than they need, and so do points: else what is read together would fall into the same few
 * lines of a cache. */
static ptrdiff_t apart(int channels, ptrdiff_t row, int width) { return channels * row + width; }
static ptrdiff_t tiles_row(int width) { return (TILES + 1) * width; }
static ptrdiff_t turned_row(int channels, int width) { return round_up(channels, width) + width; }

bool echi_cpu_stages_fit(const struct echi_layer *l, int m) {
    const double weights = (double)echi_cpu_winograd_points(m) * l->in.c * l->out.c * sizeof(float);
    return weights > WEIGHTS_BYTES && echi_cpu_winograd_tiles(l->out.h, l->out.w, m) >= LEAST_TILES;
}

void echi_cpu_stages_room(const struct echi_layer *l, int m, int width, struct echi_cpu_stages_room *room) {
    const int most = max_int(l->in.c, l->out.c);
    const size_t points = (size_t)echi_cpu_winograd_points(m);
    raise_to(&room->before, points * (size_t)apart(most, tiles_row(width), width));
    raise_to(&room->after, points * (size_t)apart(most, tiles_row(width), width));
    raise_to(&room->turned, (size_t)(TILES * width * turned_row(l->in.c, width)));
}

/* Tiles [first, first + tiles) of one map; the gradient of its outputs; a sum that goes on. */
struct stage { const struct echi_cpu_winograd *w; struct echi_cpu_view dy; int first, tiles; bool add; };

static void at_points(struct echi_cpu_tile *tile, int c, int c_end, float *points, int channels, int t, int width) {
    tile->channels = c_end - c;
    tile->points = points + c * tiles_row(width) + t * width;
    tile->points_channel = tiles_row(width);
    tile->point = apart(channels, tiles_row(width), width);
}

/* Item: an input channel. */
static void inputs(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct stage *a = args;
    struct echi_cpu_winograd w = *a->w;
    (void)place;
    w.x.at += begin * w.x.channel;
    for (int t = 0; t < a->tiles; t++) {
        struct echi_cpu_tile tile = echi_cpu_winograd_inputs(&w, a->first + t, s->winograd.nothing);
        at_points(&tile, begin, end, s->stages.before, w.in, t, s->k->width);
        s->k->winograd_input(w.m, &tile);
    }
}

/* Item: an output channel. */
static void outputs(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct stage *a = args;
    (void)place;
    for (int t = 0; t < a->tiles; t++) {
        struct echi_cpu_tile tile = echi_cpu_winograd_outputs(a->w, a->first + t, begin);
        at_points(&tile, begin, end, s->stages.after, a->w->out, t, s->k->width);
        s->k->winograd_output(a->w->m, &tile);
    }
}
static void grads(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct stage *a = args;
    struct echi_cpu_view dy = a->dy;
    (void)place;
    dy.at += begin * dy.channel;
    for (int t = 0; t < a->tiles; t++) {
        struct echi_cpu_tile tile = echi_cpu_winograd_grads(a->w, dy, a->first + t, s->winograd.nothing);
        at_points(&tile, begin, end, s->stages.after, a->w->out, t, s->k->width);
        s->k->winograd_grad(a->w->m, &tile);
    }
}

/* Item: a point. */
static void products(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct stage *a = args;
    const struct echi_cpu_winograd *w = a->w;
    const int width = s->k->width;
    const ptrdiff_t row = tiles_row(width);
    (void)place;
    for (int point = begin; point < end; point++)
        echi_cpu_winograd_product(s, (struct echi_cpu_product){.x = s->stages.before + point * apart(w->in, row, width), .x_p = width,
                                             .w = s->winograd.kernels + point * echi_cpu_winograd_kernels_apart(w->in, w->out, width),
                                             .w_o = round_up(w->in, width), .out = s->stages.after + point * apart(w->out, row, width),
                                             .out_o = row, .out_p = width, .outputs = w->out, .vectors = a->tiles},
                w->in, row);
}

/* Points of the inputs turned, so that vectors are over channels. Item: a point. */
static void sums(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct stage *a = args;
    const struct echi_cpu_winograd *w = a->w;
    const int width = s->k->width;
    const ptrdiff_t row = tiles_row(width), turned = turned_row(w->in, width);
    float *const to = s->own[place].stages_turned;
    for (int point = begin; point < end; point++) {
        for (int t = 0; t < a->tiles; t++)
            s->k->to_rows(s->stages.before + point * apart(w->in, row, width) + t * width, row, width, w->in, to + t * width * turned,
                          turned);
        echi_cpu_winograd_product(s, (struct echi_cpu_product){
            .x = to, .x_p = width, .w = s->stages.after + point * apart(w->out, row, width), .w_o = row,
            .out = s->winograd.sums + point * echi_cpu_winograd_kernels_apart(w->in, w->out, width), .out_o = round_up(w->in, width),
            .out_p = width, .outputs = w->out, .vectors = round_up(w->in, width) / width, .add = a->add}, a->tiles * width, turned);
    }
}

/* The next tiles of a map. */
static bool next(struct stage *a, int *done) {
    const int all = echi_cpu_winograd_tiles(a->w->out_h, a->w->out_w, a->w->m), left = all - *done;
    a->first = *done;
    a->tiles = left > 0 ? parts_of(left, parts_of(left, TILES)) : 0;
    *done += a->tiles;
    return a->tiles > 0;
}

void echi_cpu_stages(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w) {
    const int points = echi_cpu_winograd_points(w->m);
    struct stage a = {.w = w};
    for (int done = 0; next(&a, &done);) {
        echi_cpu_share_out(s, w->in, 6.0 * points * a.tiles, inputs, &a);
        echi_cpu_share_out(s, points, (double)w->in * w->out * a.tiles, products, &a);
        echi_cpu_share_out(s, w->out, 6.0 * points * a.tiles, outputs, &a);
    }
}

void echi_cpu_stages_sums(struct echi_cpu_stack *s, const struct echi_cpu_winograd *w, struct echi_cpu_view dy, bool add) {
    const int points = echi_cpu_winograd_points(w->m);
    struct stage a = {.w = w, .dy = dy};
    for (int done = 0; next(&a, &done);) {
        a.add = add || a.first > 0;
        echi_cpu_share_out(s, w->in, 6.0 * points * a.tiles, inputs, &a);
        echi_cpu_share_out(s, w->out, 6.0 * points * a.tiles, grads, &a);
        echi_cpu_share_out(s, points, (double)w->in * w->out * a.tiles, sums, &a);
    }
}
