/* SPDX-License-Identifier: Apache-2.0
 * The products of matrices that layers are made of. A convolution is one whose matrices are never written down: each number is found in the
 * image when it is needed ("implicit GEMM": Chetlur et al., "cuDNN", arXiv 1410.0759, section 3.1). */
#define TILE 64                  /* rows and columns of C that a group computes */
#ifdef CPU                       /* many sums an item, in vectors, and few items: nothing of theirs is done at once */
typedef float16 wide;
#define LANES 16
#define LOAD(p) vload16(0, p)
#define LANE(v, lane) ((const float *)&(v))[lane]
#define STEP 32                  /* numbers along k between two loads */
#define DOWN 8                   /* work-items along the sides of the tile */
#define ACROSS 2
#else
typedef float wide;
#define LANES 1
#define LOAD(p) (*(p))
#define LANE(v, lane) (v)
#define STEP 16
#define DOWN 16
#define ACROSS 16
#endif
#define ROWS (TILE / DOWN)
#define COLS (TILE / ACROSS / LANES)

/* Part of where a number lies: a place in memory, a row and a column of an image. Those of its matrix's row and column are added. */
struct place { int at, h, v; };
FUNCTION struct place place(int at, int h, int v) {
    struct place p;
    p.at = at, p.h = h, p.v = v;
    return p;
}
FUNCTION struct place outside(void) { return place(0, -(1 << 28), 0); }   /* with whatever is added, its h stays below 0 */
FUNCTION float number(GLOBAL const float *from, struct place p, struct place q) { return p.h + q.h < 0 ? 0 : from[p.at + q.at]; }

/* --- fully connected layers: matrices as they lie, numbers row_a apart along A's rows, and so on; C is dense --- */
#define PRODUCT product
#define PARAMETERS GLOBAL const float *a_, int row_a, int k_a, GLOBAL const float *b_, int k_b, int col_b, GLOBAL float *c_, \
    GLOBAL const float *bias, int has_bias,
#define A_ROW(row) place((row) * row_a, 0, 0)
#define A_K(k) place((k) * k_a, 0, 0)
#define A(row, k) number(a_, row, k)
#define B_K(k) place((k) * k_b, 0, 0)
#define B_COL(col) place((col) * col_b, 0, 0)
#define B(k, col) number(b_, k, col)
#define A_ALONG_K (k_a == 1)
#define B_ALONG_K (k_b == 1)
#define C_COL(col) (col)
#define PUT(row, col, at, sum) c_[(row) * cols + (at)] = (sum) + (has_bias ? bias[col] : 0)
#include "product.cl"

/* --- convolutions --- */

/* Number i = (channel, kernel row, kernel column) of a kernel over an image; and the place of the image where that of output place i =
 * (sample, row, column) begins. */
FUNCTION struct place in_kernel(struct echi_window w, int i) {
    const int area = w.kernel_h * w.kernel_w, c = i / area, h = i % area / w.kernel_w, v = i % w.kernel_w;
    return place((c * w.in_h + h) * w.in_w + v, h, v);
}
FUNCTION struct place corner(struct echi_window w, int i) {
    const int places = w.out_h * w.out_w, sample = i / places, h = i % places / w.out_w * w.stride_h - w.pad_h,
        v = i % w.out_w * w.stride_w - w.pad_w;
    return place((sample * w.in_c * w.in_h + h) * w.in_w + v, h, v);
}
/* What lies there; 0 in the margin. A place in the margin is no less than -pad, and one that is outside is below that. */
FUNCTION float under(GLOBAL const float *x, struct echi_window w, struct place p, struct place q) {
    const int h = p.h + q.h, v = p.v + q.v;
    return h < 0 || h >= w.in_h || v < 0 || v >= w.in_w ? 0 : x[p.at + q.at];
}

/* Of place i of [n][places] in [n][channels][places], channel 0. */
FUNCTION int first_channel(int channels, int places, int i) { return i / places * channels * places + i % places; }

/* y = bias + weight x under the kernel. Rows: output channels. Columns: output places of all samples. */
#define PRODUCT conv_forward
#define PARAMETERS GLOBAL const float *x_, GLOBAL const float *weight, GLOBAL const float *bias, int has_bias, GLOBAL float *y_, \
    struct echi_window w,
#define A_ROW(row) place((row) * depth, 0, 0)
#define A_K(k) place(k, 0, 0)
#define A(row, k) number(weight, row, k)
#define B_K(k) in_kernel(w, k)
#define B_COL(col) corner(w, col)
#define B(k, col) under(x_, w, k, col)
#define A_ALONG_K 1
#define B_ALONG_K 0
#define C_COL(col) first_channel(w.out_c, w.out_h * w.out_w, col)
#define PUT(row, col, at, sum) y_[(at) + (row) * (w.out_h * w.out_w)] = (sum) + (has_bias ? bias[row] : 0)
#include "product.cl"

/* dweight = dy x under the kernel. Rows: output channels. Columns: numbers of a kernel. Summed over output places of all samples, of which
 * each group along z has a part, and sums of its own to put it in. */
#define PRODUCT conv_backward_weight
#define PARAMETERS GLOBAL const float *x_, GLOBAL const float *dy, GLOBAL float *parts, struct echi_window w,
#define A_ROW(row) place((row) * (w.out_h * w.out_w), 0, 0)
#define A_K(k) place(first_channel(w.out_c, w.out_h * w.out_w, k), 0, 0)
#define A(row, k) number(dy, row, k)
#define B_K(k) corner(w, k)
#define B_COL(col) in_kernel(w, col)
#define B(k, col) under(x_, w, k, col)
#define A_ALONG_K 1
#define B_ALONG_K 1
#define C_COL(col) (col)
#define PUT(row, col, at, sum) parts[(GROUP(2) * rows + (row)) * cols + (at)] = (sum)
#include "product.cl"

/* Number i = (output channel, kernel row, kernel column) of the kernels, which leads from input place j = (sample, row, column) back to an
 * output. */
FUNCTION struct place back(struct echi_window w, int i) {
    const int area = w.kernel_h * w.kernel_w;
    return place(i / area * w.out_h * w.out_w, -(i % area / w.kernel_w), -(i % w.kernel_w));
}
FUNCTION struct place input(struct echi_window w, int j) {
    const int places = w.in_h * w.in_w;
    return place(j / places * w.out_c * w.out_h * w.out_w, j % places / w.in_w + w.pad_h, j % w.in_w + w.pad_w);
}
FUNCTION float over(GLOBAL const float *dy, struct echi_window w, struct place p, struct place q) {
    const int h = p.h + q.h, v = p.v + q.v;
    const int oh = w.stride_h == 1 ? h : h / w.stride_h, ow = w.stride_w == 1 ? v : v / w.stride_w;
    if (h < 0 || v < 0 || oh * w.stride_h != h || ow * w.stride_w != v || oh >= w.out_h || ow >= w.out_w) return 0;
    return dy[p.at + q.at + oh * w.out_w + ow];
}

/* dx = weight, turned, dy over the kernel. Rows: input channels. Columns: input places of all samples. */
#define PRODUCT conv_backward_input
#define PARAMETERS GLOBAL const float *dy, GLOBAL const float *weight, GLOBAL float *dx, struct echi_window w,
#define A_ROW(row) place((row) * (w.kernel_h * w.kernel_w), 0, 0)
#define A_K(k) place((k) + (k) / (w.kernel_h * w.kernel_w) * (w.in_c - 1) * (w.kernel_h * w.kernel_w), 0, 0)
#define A(row, k) number(weight, row, k)
#define B_K(k) back(w, k)
#define B_COL(col) input(w, col)
#define B(k, col) over(dy, w, k, col)
#define A_ALONG_K 1
#define B_ALONG_K 0
#define C_COL(col) first_channel(w.in_c, w.in_h * w.in_w, col)
#define PUT(row, col, at, sum) dx[(at) + (row) * (w.in_h * w.in_w)] = (sum)
#include "product.cl"

/* to[i] = the sum of number i of all parts, in their order. */
KERNEL(ITEMS) sum_parts(GLOBAL const float *parts, GLOBAL float *to, int count, int n_parts) {
    if (AT >= count) return;
    float sum = parts[AT];
    for (int p = 1; p < n_parts; p++) sum += parts[p * count + AT];
    to[AT] = sum;
}
