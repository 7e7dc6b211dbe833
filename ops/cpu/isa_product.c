/* SPDX-License-Identifier: Apache-2.0
 * The sum of products that does most of a network's arithmetic: a tile of outputs x vectors is held in registers while the
 * three loops run; each step loads `vectors` vectors, broadcasts `outputs` weights and makes a multiply-add of each pair. */
#include "echi_vec.h"

/* The largest tiles: their accumulators, one row of vectors and one weight must fit the registers. */
#if VEC_REGISTERS == 32
#define WIDE_VECTORS 4       /* 6 x 4 */
#define TALL_OUTPUTS 12      /* 12 x 1, 12 x 2: few vectors still give enough independent sums */
#else
#define WIDE_VECTORS 2       /* 6 x 2 */
#define TALL_OUTPUTS 12      /* 12 x 1 */
#endif
#define WIDE_OUTPUTS 6
#define TALL_VECTORS (WIDE_VECTORS / 2)

/* A run of equal tiles side by side: `tiles` of them, the next one x_next and out_next further on. What is not here is as in the
 * product. */
struct run {
    struct echi_cpu_loop loop[3];
    const float *x, *w, *start;
    float *out;
    int tiles;
    ptrdiff_t x_next, out_next;
};

INLINE void tile(int outputs, int vectors, const struct echi_cpu_product *p, const struct run *run) {
    const struct echi_cpu_loop l0 = run->loop[0], l1 = run->loop[1], l2 = run->loop[2];
    const ptrdiff_t x_p = p->x_p, w_o = p->w_o;
    const float *x = run->x, *w = run->w, *start = run->start;
    float *out = run->out;
    for (int left = run->tiles; left > 0; left--, x += run->x_next, out += run->out_next) {
        vec sum[TALL_OUTPUTS][WIDE_VECTORS];
        UNROLL for (int o = 0; o < outputs; o++) {
            const vec begin = start ? splat(start[o]) : (vec){0};
            UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] = begin; }
        }
        if (p->goes_on) {
            UNROLL for (int o = 0; o < outputs; o++) {
                UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] = load(out + o * p->out_o + v * p->out_p); }
            }
        }
        for (int i = 0; i < l0.n; i++) {
            for (int j = 0; j < l1.n; j++) {
                const float *xk = x + i * l0.x + j * l1.x, *wk = w + i * l0.w + j * l1.w;
                UNROLL_ONCE for (int k = 0; k < l2.n; k++, xk += l2.x, wk += l2.w) {
                    vec in[WIDE_VECTORS];
                    UNROLL for (int v = 0; v < vectors; v++) { in[v] = load(xk + v * x_p); }
                    UNROLL for (int o = 0; o < outputs; o++) {
                        const vec weight = splat(wk[o * w_o]);
                        UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] += weight * in[v]; }
                    }
                }
            }
        }
        if (p->add) {
            UNROLL for (int o = 0; o < outputs; o++) {
                UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] += load(out + o * p->out_o + v * p->out_p); }
            }
        }
        if (p->relu) {
            UNROLL for (int o = 0; o < outputs; o++) {
                UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] = pick(sum[o][v] <= 0.0f, (vec){0}, sum[o][v]); }
            }
        }
        UNROLL for (int o = 0; o < outputs; o++) {
            UNROLL for (int v = 0; v < vectors; v++) { store(out + o * p->out_o + v * p->out_p, sum[o][v]); }
        }
    }
}

#define TILE(o, v)                                                                                                      \
    static void tile_##o##x##v(const struct echi_cpu_product *p, const struct run *run) { tile(o, v, p, run); }
#define TILES(v) TILE(1, v) TILE(2, v) TILE(3, v) TILE(4, v) TILE(5, v) TILE(6, v)
#define NAMES(v) {tile_1x##v, tile_2x##v, tile_3x##v, tile_4x##v, tile_5x##v, tile_6x##v}
typedef void tile_function(const struct echi_cpu_product *p, const struct run *run);
TILES(1) TILES(2) TILE(12, 1)
#if VEC_REGISTERS == 32
TILES(3) TILES(4) TILE(12, 2)
static tile_function *const wide[WIDE_VECTORS][WIDE_OUTPUTS] = {NAMES(1), NAMES(2), NAMES(3), NAMES(4)};
static tile_function *const tall[TALL_VECTORS] = {tile_12x1, tile_12x2};
#else
static tile_function *const wide[WIDE_VECTORS][WIDE_OUTPUTS] = {NAMES(1), NAMES(2)};
static tile_function *const tall[TALL_VECTORS] = {tile_12x1};
#endif

/* All outputs of a run of tiles of `vectors` vectors, in tiles of nearly equal height; `run` is used up. */
static void column(const struct echi_cpu_product *p, int vectors, struct run *run) {
    for (int o = 0, n; o < p->outputs; o += n) {
        const int left = p->outputs - o, tiles = (left + WIDE_OUTPUTS - 1) / WIDE_OUTPUTS;
        const bool high = vectors <= TALL_VECTORS && left >= TALL_OUTPUTS;
        n = high ? TALL_OUTPUTS : (left + tiles - 1) / tiles;
        (high ? tall[vectors - 1] : wide[vectors - 1][n - 1])(p, run);
        run->w += n * p->w_o;
        run->out += n * p->out_o;
        if (run->start) run->start += n;
    }
}

void ISA(product)(const struct echi_cpu_product *p) {
    for (int v = 0, n; v < p->vectors; v += n) {
        const int left = p->vectors - v, tiles = (left + WIDE_VECTORS - 1) / WIDE_VECTORS;
        n = (left + tiles - 1) / tiles;
        column(p, n,
               &(struct run){.loop = {p->loop[0], p->loop[1], p->loop[2]},
                             .x = p->x + v * p->x_p,
                             .w = p->w,
                             .start = p->start,
                             .out = p->out + v * p->out_p,
                             .tiles = 1});
    }
}

/* Near the ends of a row some taps fall outside the input. Those that are outside for every column of a tile are left out;
 * for the rest the tile reads zeros from the margins of the row. So tiles are narrower there: as wide as they can be while
 * such reads are at most one for every two columns. */
struct taps { int begin, end; };

INLINE struct taps taps_of(const struct echi_cpu_axis *axis, int first_column, int last_column) {
    const int first = first_column * axis->step + axis->base, last = last_column * axis->step + axis->base;
    const int begin = last < 0 ? -last : 0, end = axis->size - first < axis->taps ? axis->size - first : axis->taps;
    return (struct taps){begin, end > begin ? end : begin};
}

INLINE bool all_inside(const struct echi_cpu_axis *axis, int q, int width) {
    const int first = q * axis->step + axis->base;
    return first >= 0 && first + (width - 1) * axis->step + axis->taps <= axis->size;
}

INLINE int tile_width(const struct echi_cpu_axis *axis, int q) {
    const int left = axis->count - q, tiles = (left + WIDE_VECTORS - 1) / WIDE_VECTORS, most = (left + tiles - 1) / tiles;
    if (all_inside(axis, q, most)) return most;
    int width = 1, useful = 0;
    for (int n = 1; n <= most; n++) {
        const struct taps own = taps_of(axis, q + n - 1, q + n - 1), all = taps_of(axis, q, q + n - 1);
        useful += own.end - own.begin;
        if (2 * (n * (all.end - all.begin) - useful) <= n) width = n;
    }
    return width;
}

void ISA(conv_row)(const struct echi_cpu_product *p, const struct echi_cpu_axis *axis) {
    /* The longest loop goes inside: channels or the taps along the row. */
    const int along = p->loop[0].n > p->loop[2].n ? 0 : 2;
    const struct echi_cpu_loop row = p->loop[2];
    for (int q = 0, width, tiles; q < axis->count; q += width * tiles) {
        width = tile_width(axis, q);
        const struct taps taps = taps_of(axis, q, q + width - 1);
        tiles = 1;
        if (all_inside(axis, q, width))
            while (q + (tiles + 1) * width <= axis->count && all_inside(axis, q + tiles * width, width)) tiles++;
        struct run run = {.loop = {p->loop[2 - along], p->loop[1], p->loop[along]},
                          .x = p->x + (q * axis->step + axis->base + taps.begin) * row.x, .w = p->w + taps.begin * row.w,
                          .start = p->start, .out = p->out + q * p->out_p, .tiles = tiles, .x_next = width * axis->step * row.x,
                          .out_next = width * p->out_p};
        run.loop[along].n = taps.end - taps.begin;
        column(p, width, &run);
    }
}
