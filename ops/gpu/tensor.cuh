/* SPDX-License-Identifier: Apache-2.0
 * What products of packed matrices share: which tile a block computes, images found on the way, where sums go. */
#ifndef TENSOR_CUH
#define TENSOR_CUH

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

/* Part of where a word of an image lies: words from its beginning, a row and a column of the image (as for numbers in products.cl). */
struct place { int at, h, v; };
PTX struct place place(int at, int h, int v) {
    struct place p;
    p.at = at, p.h = h, p.v = v;
    return p;
}
PTX struct place outside(void) { return place(0, -(1 << 28), 0); }   /* with whatever is added, its h stays below 0 */

PTX struct place place_of(struct echi_gather g, int i) {
    const int places = g.places_h * g.places_w;
    return place(i / places * g.sample_step, i % places / g.places_w * g.mul_h + g.add_h, i % g.places_w * g.mul_w + g.add_w);
}
/* Of word k of a kernel that has `in_step` words a tap; and of number i of a kernel that has its taps one after the other, channel by
 * channel. */
PTX struct place tap_of_word(struct echi_gather g, int k) {
    const int tap = k / g.in_step;
    return place(k % g.in_step, tap / g.kernel_w * g.sign, tap % g.kernel_w * g.sign);
}
PTX struct place tap_of_number(struct echi_gather g, int i) {
    const int area = g.kernel_h * g.kernel_w;
    return place(i / area * g.in_h * g.in_w, i % area / g.kernel_w * g.sign, i % g.kernel_w * g.sign);
}
/* The word's number in the image; -1: it is outside, and 0. */
PTX int gathered(struct echi_gather g, struct place p, struct place q) {
    int h = p.h + q.h, v = p.v + q.v;
    if (h < 0 || v < 0) return -1;
    if (g.divide_h > 1) {
        if (h % g.divide_h != 0) return -1;
        h /= g.divide_h;
    }
    if (g.divide_w > 1) {
        if (v % g.divide_w != 0) return -1;
        v /= g.divide_w;
    }
    return h < g.in_h && v < g.in_w ? p.at + q.at + (h * g.in_w + v) * g.in_step : -1;
}

/* --- copies to shared memory, to be committed: `rows` rows of a stage by `threads` threads, all constants --- */

/* Packed rows, from word `at` on, as they lie. */
PTX void copy_rows(unsigned to, GLOBAL const unsigned *packed, int at, int rows, int threads) {
    UNROLL for (int e = 0; e < rows * (ROW_BYTES / 16); e += threads)
        ptx_copy16(to + (unsigned)(e + ITEM) * 16, packed + at + (e + ITEM) * 4, 16);
}
/* Rows that lie at places of an image, `at_once` words (4 or 1) of each, those at `word`, by thread `item` of them. */
PTX void gather_rows(unsigned to, GLOBAL const unsigned *image, struct echi_gather g, const struct place *row_places, struct place word,
                     int rows, int at_once, int item, int threads) {
    const int across = ECHI_PACKED_WORDS / at_once, in_row = item % across * at_once;
    UNROLL for (int e = 0; e < rows * across; e += threads) {
        const int row = (e + item) / across, at = gathered(g, row_places[row], word);
        const unsigned to_word = to + packed_byte(row, in_row / 4) + (unsigned)(in_row % 4 * 4);
        if (at_once == 4) ptx_copy16(to_word, image + (at < 0 ? 0 : at), at < 0 ? 0 : 16);
        else ptx_copy4(to_word, image + (at < 0 ? 0 : at), at < 0 ? 0 : 4);
    }
}

/* --- what becomes of sums --- */

/* Sum (row, col), if there is one; or a part of it: parts of block z lie together behind those of the blocks before. */
PTX void put(GLOBAL float *to, GLOBAL const float *bias, struct echi_put how, int rows, int cols, int row, int col, float sum) {
    if (row >= rows || col >= cols) return;
    if (GROUP(2) == 0 && how.bias == ECHI_PUT_BIAS_OF_ROW) sum += bias[row];   /* once, of all parts of a sum */
    if (GROUP(2) == 0 && how.bias == ECHI_PUT_BIAS_OF_COL) sum += bias[col];
    to[GROUP(2) * rows * cols + col / how.inner * how.outer + col % how.inner + row * how.row_step] = sum;
}
/* Sums of 16 rows and 8 columns as mma leaves them: thread 4 r + c of the warp has numbers 2 c and 2 c + 1 of rows r and r + 8 (PTX ISA,
 * 9.7.14.5.8, the figure of C). */
PTX void put_quad(GLOBAL float *to, GLOBAL const float *bias, struct echi_put how, int rows, int cols, int row, int col,
                  const float sum[4]) {
    const int lane = ITEM % 32;
    UNROLL for (int e = 0; e < 4; e++)
        put(to, bias, how, rows, cols, row + lane / 4 + e / 2 * 8, col + lane % 4 * 2 + e % 2, sum[e]);
}
#endif
