/* SPDX-License-Identifier: Apache-2.0
 * The products of matrices that layers are made of. A convolution is one whose matrices are never written down: each number is found in the
 * image when it is needed ("implicit GEMM": Chetlur et al., "cuDNN", arXiv 1410.0759, section 3.1). */
#define TILE 64                  /* rows and columns of C that a group computes */
#define STEP 16                  /* numbers along k between two loads */
#define ACROSS 16                /* work-items along a side of the tile */
#define EACH (TILE / ACROSS)     /* rows, and columns, of C that an item computes */

/* --- fully connected layers: matrices as they lie, numbers row_a apart along A's rows, and so on; C is dense --- */
#define PRODUCT product
#define PARAMETERS GLOBAL const float *a_, int row_a, int k_a, GLOBAL const float *b_, int k_b, int col_b, GLOBAL float *c_, GLOBAL const float *bias, int has_bias,
#define A(row, k) a_[(row) * row_a + (k) * k_a]
#define B(k, col) b_[(k) * k_b + (col) * col_b]
#define A_ALONG_K (k_a == 1)
#define B_ALONG_K (k_b == 1)
#define PUT(row, col, sum) c_[(row) * cols + (col)] = (sum) + (has_bias ? bias[col] : 0)
#include "product.cl"

/* --- convolutions --- */

/* What lies under number k = (channel, kernel row, kernel column) of the kernel at output place col = (sample, row, column); 0 in the margin. */
FUNCTION float under(GLOBAL const float *x, struct echi_window w, int k, int col) {
    const int places = w.out_h * w.out_w, sample = col / places, place = col % places;
    const int area = w.kernel_h * w.kernel_w, c = k / area, kh = k % area / w.kernel_w, kw = k % w.kernel_w;
    const int h = place / w.out_w * w.stride_h - w.pad_h + kh, v = place % w.out_w * w.stride_w - w.pad_w + kw;
    if (h < 0 || h >= w.in_h || v < 0 || v >= w.in_w) return 0;
    return x[((sample * w.in_c + c) * w.in_h + h) * w.in_w + v];
}

/* Place of number `place` of channel c in [n][c][places]. */
FUNCTION int at_channel(int channels, int places, int c, int place) { return (place / places * channels + c) * places + place % places; }

/* y = bias + weight x under the kernel. Rows: output channels. Columns: output places of all samples. */
#define PRODUCT conv_forward
#define PARAMETERS GLOBAL const float *x_, GLOBAL const float *weight, GLOBAL const float *bias, int has_bias, GLOBAL float *y_, struct echi_window w,
#define A(row, k) weight[(row) * depth + (k)]
#define B(k, col) under(x_, w, k, col)
#define A_ALONG_K 1
#define B_ALONG_K 0
#define PUT(row, col, sum) y_[at_channel(w.out_c, w.out_h * w.out_w, row, col)] = (sum) + (has_bias ? bias[row] : 0)
#include "product.cl"

/* dweight = dy x under the kernel. Rows: output channels. Columns: numbers of a kernel. Summed over output places of all samples, of which each
 * group along z has a part, and sums of its own to put it in. */
#define PRODUCT conv_backward_weight
#define PARAMETERS GLOBAL const float *x_, GLOBAL const float *dy, GLOBAL float *parts, struct echi_window w,
#define A(row, k) dy[at_channel(w.out_c, w.out_h * w.out_w, row, k)]
#define B(k, col) under(x_, w, col, k)
#define A_ALONG_K 1
#define B_ALONG_K 1
#define PUT(row, col, sum) parts[(GROUP(2) * rows + (row)) * cols + (col)] = (sum)
#include "product.cl"

/* What number k = (output channel, kernel row, kernel column) of the kernels gives to input place col = (sample, row, column). */
FUNCTION float over(GLOBAL const float *dy, struct echi_window w, int k, int col) {
    const int places = w.in_h * w.in_w, sample = col / places, place = col % places;
    const int area = w.kernel_h * w.kernel_w, c = k / area, kh = k % area / w.kernel_w, kw = k % w.kernel_w;
    const int h = place / w.in_w + w.pad_h - kh, v = place % w.in_w + w.pad_w - kw;
    const int oh = h / w.stride_h, ow = v / w.stride_w;
    if (h < 0 || v < 0 || oh * w.stride_h != h || ow * w.stride_w != v || oh >= w.out_h || ow >= w.out_w) return 0;
    return dy[((sample * w.out_c + c) * w.out_h + oh) * w.out_w + ow];
}

/* dx = weight, turned, dy over the kernel. Rows: input channels. Columns: input places of all samples. */
#define PRODUCT conv_backward_input
#define PARAMETERS GLOBAL const float *dy, GLOBAL const float *weight, GLOBAL float *dx, struct echi_window w,
#define A(row, k) weight[((k) / (w.kernel_h * w.kernel_w) * w.in_c + (row)) * (w.kernel_h * w.kernel_w) + (k) % (w.kernel_h * w.kernel_w)]
#define B(k, col) over(dy, w, k, col)
#define A_ALONG_K 1
#define B_ALONG_K 0
#define PUT(row, col, sum) dx[at_channel(w.in_c, w.in_h * w.in_w, row, col)] = (sum)
#include "product.cl"

/* to[i] = the sum of number i of all parts, in their order. */
KERNEL(ITEMS) sum_parts(GLOBAL const float *parts, GLOBAL float *to, int count, int n_parts) {
    if (AT >= count) return;
    float sum = parts[AT];
    for (int p = 1; p < n_parts; p++) sum += parts[p * count + AT];
    to[AT] = sum;
}
