/* SPDX-License-Identifier: Apache-2.0
 * What kernels of tensor cores share beside packed matrices: which tile a block computes, images found on the way, where sums go. */

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

/* Part of where a word of an image lies: words from its beginning, a row and a column of the image (product.cl has the same for numbers). */
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

/* Sum (row, col), if there is one; or a part of it: parts of block z lie together behind those of the blocks before. */
PTX void put(GLOBAL float *to, GLOBAL const float *bias, struct echi_put how, int rows, int cols, int row, int col, float sum) {
    if (row >= rows || col >= cols) return;
    if (GROUP(2) == 0 && how.bias == ECHI_PUT_BIAS_OF_ROW) sum += bias[row];   /* once, of all parts of a sum */
    if (GROUP(2) == 0 && how.bias == ECHI_PUT_BIAS_OF_COL) sum += bias[col];
    to[GROUP(2) * rows * cols + col / how.inner * how.outer + col % how.inner + row * how.row_step] = sum;
}
