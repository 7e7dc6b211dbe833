/* SPDX-License-Identifier: Apache-2.0
 * Gradients of convolution weights: sums over positions of products of two vectors, a tile of outputs x taps at a time,
 * and the sum over lanes at the very end. */
#include "echi_vec.h"

#if VEC_REGISTERS == 32
#define MOST_OUTPUTS 5
#define MOST_TAPS 5
#else
#define MOST_OUTPUTS 4
#define MOST_TAPS 3
#endif

#if VEC_FLOATS > 4
static const float nothing[VEC_FLOATS];
#endif

INLINE void tile(int outputs, int taps, const struct echi_cpu_outer *a) {
    vec sum[MOST_OUTPUTS][MOST_TAPS];
    UNROLL for (int o = 0; o < outputs; o++) {
        UNROLL for (int t = 0; t < taps; t++) { sum[o][t] = load(a->acc + o * a->acc_o + t * a->acc_t); }
    }
    const ptrdiff_t dy_o = a->dy_o, x_t = a->x_t, x_column = a->x_column;
    for (int r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->x_row, *dy = a->dy + r * a->dy_row;
        for (int c = 0; c < a->columns; c++, x += x_column, dy += VEC_FLOATS) {
            vec in[MOST_TAPS];
            UNROLL for (int t = 0; t < taps; t++) {
                in[t] = load(x + t * x_t);
                IN_REGISTER(in[t]);
            }
            UNROLL for (int o = 0; o < outputs; o++) {
                const vec d = load(dy + o * dy_o);
                UNROLL for (int t = 0; t < taps; t++) { sum[o][t] += d * in[t]; }
            }
        }
    }
#if VEC_FLOATS > 4
    for (int r = 0; a->half && r < a->rows; r += 2) {
        const bool two = r + 1 < a->rows;
        const float *x = a->x + r * a->x_row + a->columns * x_column, *dy = a->dy + r * a->dy_row + a->columns * VEC_FLOATS;
        vec in[MOST_TAPS];
        UNROLL for (int t = 0; t < taps; t++) {
            in[t] = load_halves(x + t * x_t, x + (two ? a->x_row : 0) + t * x_t);
            IN_REGISTER(in[t]);
        }
        UNROLL for (int o = 0; o < outputs; o++) {
            const vec d = load_halves(dy + o * dy_o, two ? dy + a->dy_row + o * dy_o : nothing);
            UNROLL for (int t = 0; t < taps; t++) { sum[o][t] += d * in[t]; }
        }
    }
#endif
    UNROLL for (int o = 0; o < outputs; o++) {
        UNROLL for (int t = 0; t < taps; t++) { store(a->acc + o * a->acc_o + t * a->acc_t, sum[o][t]); }
    }
}

#define TILE(o, t)                                                                                                      \
    static void tile_##o##x##t(const struct echi_cpu_outer *a) { tile(o, t, a); }
#if VEC_REGISTERS == 32
#define TILES(o) TILE(o, 1) TILE(o, 2) TILE(o, 3) TILE(o, 4) TILE(o, 5)
#define NAMES(o) {tile_##o##x1, tile_##o##x2, tile_##o##x3, tile_##o##x4, tile_##o##x5}
TILES(1)
TILES(2) TILES(3) TILES(4) TILES(5) static void (*const tiles[MOST_OUTPUTS][MOST_TAPS])(const struct echi_cpu_outer *) = {
    NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5)};
#else
#define TILES(o) TILE(o, 1) TILE(o, 2) TILE(o, 3)
#define NAMES(o) {tile_##o##x1, tile_##o##x2, tile_##o##x3}
TILES(1) TILES(2) TILES(3) TILES(4)
static void (*const tiles[MOST_OUTPUTS][MOST_TAPS])(const struct echi_cpu_outer *) = {NAMES(1), NAMES(2), NAMES(3), NAMES(4)};
#endif

void ISA(outer)(const struct echi_cpu_outer *o) { tiles[o->outputs - 1][o->taps - 1](o); }
