/* SPDX-License-Identifier: Apache-2.0
 * What products of packed matrices share: which tile a block computes, images found on the way, where sums go. */
#ifndef TENSOR_CUH
#define TENSOR_CUH
#include "numbers.cl"

/* product_tf32_128x256, of product: the kernel of a precision and a tile. */
#define JOIN(name, precision, rows, cols) name##_##precision##_##rows##x##cols
#define JOINED(name, precision, rows, cols) JOIN(name, precision, rows, cols)
#define NAME(name) JOINED(name, PRECISION, TILE_ROWS, TILE_COLS)

/* Blocks take tiles in bands of eight rows of tiles, down first: those that run at a time then share rows and columns in the cache. */
#define BAND 8
struct tile { int row, col; };
PTX struct tile tile_of(int group, int down, int across) {
    const int band = group / (BAND * across), first = band * BAND, high = down - first < BAND ? down - first : BAND;
    struct tile t;
    t.row = first + (group - first * across) % high;
    t.col = (group - first * across) / high;
    return t;
}

/* Part of where a word of an image lies: words from its beginning, a row and a column of the image (as for numbers in products.cl); and
 * the three as one number of words, which is what counts where rows and columns are not divided. */
struct ALIGNED16 place { int at, h, v, sum; };
PTX struct place place(struct echi_gather g, int at, int h, int v) {
    struct place p;
    p.at = at, p.h = h, p.v = v, p.sum = at + (h * g.in_w + v) * g.in_step;
    return p;
}
PTX struct place outside(void) {   /* with whatever is added, its h stays below 0 */
    struct place p;
    p.at = 0, p.h = -(1 << 28), p.v = 0, p.sum = 0;
    return p;
}

PTX struct place place_of(struct echi_gather g, int i) {
    const int sample = divided(i, g.by_places), of_map = i - sample * g.places_h * g.places_w, h = divided(of_map, g.by_places_w);
    return place(g, sample * g.sample_step, h * g.mul_h + g.add_h, (of_map - h * g.places_w) * g.mul_w + g.add_w);
}
PTX struct place tap_of(struct echi_gather g, int at, int tap) {
    const int h = divided(tap, g.by_kernel_w);
    return place(g, at, h * g.sign, (tap - h * g.kernel_w) * g.sign);
}
/* Of word k of a kernel that has `in_step` words a tap; and of number i of a kernel that has its taps one after the other, channel by
 * channel. */
PTX struct place tap_of_word(struct echi_gather g, int k) {
    const int tap = divided(k, g.by_in_step);
    return tap_of(g, k - tap * g.in_step, tap);
}
PTX struct place tap_of_number(struct echi_gather g, int i) {
    const int channel = divided(i, g.by_kernel);
    return tap_of(g, channel * g.in_h * g.in_w, i - channel * g.kernel_h * g.kernel_w);
}
/* The word's number in the image; -1: it is outside, and 0. Without branches, as a warp would take both ways of most. */
PTX int gathered(struct echi_gather g, struct place p, struct place q) {
    const int h = p.h + q.h, v = p.v + q.v;
    return (unsigned)h < (unsigned)g.in_h && (unsigned)v < (unsigned)g.in_w ? p.sum + q.sum : -1;
}
PTX int gathered_divided(struct echi_gather g, struct place p, struct place q) {
    const int h = p.h + q.h, v = p.v + q.v;
    const int h_in = divided(h < 0 ? 0 : h, g.by_divide_h), v_in = divided(v < 0 ? 0 : v, g.by_divide_w);
    const bool inside = h >= 0 && v >= 0 && h_in * g.divide_h == h && v_in * g.divide_w == v && h_in < g.in_h && v_in < g.in_w;
    return inside ? p.at + q.at + (h_in * g.in_w + v_in) * g.in_step : -1;
}

/* --- copies to shared memory, to be committed: `rows` rows of a stage by `threads` threads, all constants --- */

/* Packed rows, from word `at` on, as they lie. */
PTX void copy_rows(unsigned to, GLOBAL const unsigned *packed, int at, int rows, int threads) {
    UNROLL for (int e = 0; e < rows * (ROW_BYTES / 16); e += threads)
        ptx_copy16(to + (unsigned)(e + ITEM) * 16, packed + at + (e + ITEM) * 4, 16);
}
/* Rows that lie at places of an image, `at_once` words (4 or 1) of each, those at `word`, by thread `item` of them. Some are looked up
 * before they are copied: the compiler takes no load across a copy, and one load at a time is what a stage would wait for. */
#define LOOKED_UP 4
PTX void gather_rows(unsigned to, GLOBAL const unsigned *image, struct echi_gather g, const struct place *row_places, struct place word,
                     int rows, int at_once, int item, int threads) {
    const int across = ECHI_PACKED_WORDS / at_once, in_row = item % across * at_once;
    const bool divides = g.divide_h > 1 || g.divide_w > 1;
    UNROLL for (int first = 0; first < rows * across; first += LOOKED_UP * threads) {
        int at[LOOKED_UP];
        UNROLL for (int e = 0; e < LOOKED_UP; e++) {
            const struct place row_place = row_places[(first + e * threads + item) / across];
            at[e] = divides ? gathered_divided(g, row_place, word) : gathered(g, row_place, word);
        }
        UNROLL for (int e = 0; e < LOOKED_UP; e++) {
            const int row = (first + e * threads + item) / across;
            const unsigned to_word = to + packed_byte(row, in_row / 4) + (unsigned)(in_row % 4 * 4);
            if (at_once == 4) ptx_copy16(to_word, image + (at[e] < 0 ? 0 : at[e]), at[e] < 0 ? 0 : 16);
            else ptx_copy4(to_word, image + (at[e] < 0 ? 0 : at[e]), at[e] < 0 ? 0 : 4);
        }
    }
}

/* --- what becomes of sums --- */

/* Where a tile's sums go, whose columns are looked up once: of column col0 + c, number at[c] of each row, or none where that is -1. Of
 * parts, those of block z lie together behind those of the blocks before, and the first has the bias. */
struct sums {
    GLOBAL float *to;
    GLOBAL const float *bias;
    const int *at;
    int rows, row_step, col0;
    bool of_row, of_col;
};
PTX void look_up_columns(int *at, struct echi_put how, int cols, int col0, int tile_cols, int threads) {
    for (int c = ITEM; c < tile_cols; c += threads)
        at[c] = col0 + c < cols ? (col0 + c) / how.inner * how.outer + (col0 + c) % how.inner : -1;
}
PTX struct sums sums_of(GLOBAL float *to, GLOBAL const float *bias, struct echi_put how, const int *at, int rows, int cols, int col0) {
    struct sums s;
    s.to = to + GROUP(2) * rows * cols, s.bias = bias, s.at = at, s.rows = rows, s.row_step = how.row_step, s.col0 = col0;
    s.of_row = GROUP(2) == 0 && how.bias == ECHI_PUT_BIAS_OF_ROW, s.of_col = GROUP(2) == 0 && how.bias == ECHI_PUT_BIAS_OF_COL;
    return s;
}
/* Of one row, sums of `count` columns from c on that are `step` apart. */
PTX void put_row(struct sums s, int row, int c, int step, int count, const float *sum) {
    if (row >= s.rows) return;
    GLOBAL float *to = s.to + row * s.row_step;
    const float of_row = s.of_row ? s.bias[row] : 0;
    UNROLL for (int j = 0; j < count; j++) {
        const int at = s.at[c + j * step];
        if (at >= 0) ptx_store(to + at, sum[j] + (s.of_col ? s.bias[s.col0 + c + j * step] : of_row));
    }
}
/* Sums of 16 rows and of 8 columns, `quads` times, those of the tile from c on, as mma leaves them: thread 4 r + i of the warp has numbers
 * 2 i and 2 i + 1 of rows r and r + 8 (PTX ISA, 9.7.14.5.8, the figure of C), which mostly are two numbers side by side in memory, too. */
PTX void put_quads(struct sums s, int row, int c, int quads, const float *sum) {
    UNROLL for (int half = 0; half < 2; half++) {
        const int r = row + ITEM % 32 / 4 + half * 8;
        if (r < s.rows) {
            GLOBAL float *to = s.to + r * s.row_step;
            const float of_row = s.of_row ? s.bias[r] : 0;
            const int odd = (int)((unsigned long)to / 4 & 1);
            UNROLL for (int j = 0; j < quads; j++) {
                const int left = c + j * 8 + ITEM % 4 * 2, at = s.at[left], right_at = s.at[left + 1];
                float a = sum[j * 4 + half * 2] + of_row, b = sum[j * 4 + half * 2 + 1] + of_row;
                if (s.of_col && at >= 0) a += s.bias[s.col0 + left];
                if (s.of_col && right_at >= 0) b += s.bias[s.col0 + left + 1];
                if (at >= 0 && right_at == at + 1 && (at & 1) == odd) ptx_store2(to + at, a, b);
                else {
                    if (at >= 0) ptx_store(to + at, a);
                    if (right_at >= 0) ptx_store(to + right_at, b);
                }
            }
        }
    }
}
#endif
