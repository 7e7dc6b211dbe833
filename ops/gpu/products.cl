/* SPDX-License-Identifier: Apache-2.0
 * The products of matrices that layers are made of. A convolution is one whose matrices are never written down: each number is found in the
 * image when it is needed ("implicit GEMM": Chetlur et al., "cuDNN", arXiv 1410.0759, section 3.1). */
#ifdef CPU                       /* a group is one item: nothing that items do is done at once, and each would have sums to keep */
#define PRODUCT_ITEMS 1
#define TILE_ROWS 128            /* rows and columns of C that a group computes */
#define TILE_COLS 256
#define STEP 128                 /* numbers along k between two loads */
#define ROWS 8                   /* of a block of sums in registers */
#define COLS 2
#define LANES 16
typedef float16 wide;
#define LOAD(p) vload16(0, p)
#define LANE(v, lane) ((const float *)&(v))[lane]
#define DOWN (TILE_ROWS / ROWS)  /* blocks of a tile, from top to bottom */
#define BLOCKS (DOWN * TILE_COLS / (COLS * LANES))   /* of an item */
#define ROW(block, i) ((block) % DOWN * ROWS + (i))  /* of the tile: the block's row i; the first column of its column j */
#define COL(block, j) (((block) / DOWN * COLS + (j)) * LANES)
#define PANEL (COLS * LANES)     /* columns of B that lie together, so that what a block reads lies in a row */
#define A_ROOM (STEP * TILE_ROWS)
#define A_PLACE(k, row) (A_ALONG_K ? (row) * STEP + (k) : (k) * TILE_ROWS + (row))   /* as in memory: it is read number by number */
#define B_PLACE(k, col) ((col) / PANEL * PANEL * STEP + (k) * PANEL + (col) % PANEL)
#define ROWS_HERE (rows - row0 < TILE_ROWS ? (rows - row0 + ROWS - 1) / ROWS * ROWS : TILE_ROWS)
#define LOAD_RUNS                /* numbers of an image that lie side by side are loaded as vectors */
#define STEPS_HERE (end - k0 < STEP ? end - k0 : STEP)
#else
#define PRODUCT_ITEMS 256
#define TILE_ROWS 64
#define TILE_COLS 64
#define STEP 16
#define ROWS 4
#define COLS 4
#define LANES 1
typedef float wide;
#define LOAD(p) (*(p))
#define LANE(v, lane) (v)
#define BLOCKS 1
#define ROW(block, i) (ITEM / 16 + (i) * 16)         /* neighbours read neighbours, or all the same: no bank is asked twice */
#define COL(block, j) (ITEM % 16 + (j) * 16)
#define PANEL TILE_COLS
#define A_ROOM (STEP * (TILE_ROWS + 1))
#define A_PLACE(k, row) ((k) * (TILE_ROWS + 1) + (row))   /* + 1: the columns that neighbours write begin in banks of their own */
#define B_PLACE(k, col) ((k) * PANEL + (col))
#define ROWS_HERE TILE_ROWS      /* known beforehand, so that loops can be unrolled */
#define STEPS_HERE STEP
#endif
#define SPREAD(most) (PRODUCT_ITEMS < (most) ? PRODUCT_ITEMS : (most))   /* items along a row of numbers that are loaded */

/* --- fully connected layers: x [n][in], weight [out][in], y [n][out] --- */

/* y = bias + x weight^T, n x out, summed over in. */
#define PRODUCT fc_forward
#define PARAMETERS GLOBAL const float *RESTRICT x, GLOBAL const float *RESTRICT weight, GLOBAL const float *RESTRICT bias, int has_bias, \
    int relu, GLOBAL float *RESTRICT y,
#define A(row, k) x[(row0 + (row)) * depth + k0 + (k)]
#define A_ALONG_K 1
#define B(k, col) weight[(col0 + (col)) * depth + k0 + (k)]
#define B_ALONG_K 1
#define C_COL(col) (col)
#define PUT(row, col, at, sum) y[(row) * cols + (at)] = rectified((sum) + (has_bias ? bias[col] : 0), relu)
#include "product.cl"

/* dx = dy weight, n x in, summed over out. */
#define PRODUCT fc_backward_input
#define PARAMETERS GLOBAL const float *RESTRICT dy, GLOBAL const float *RESTRICT weight, GLOBAL const float *RESTRICT x, int of_relu, \
    GLOBAL float *RESTRICT dx,
#define A(row, k) dy[(row0 + (row)) * depth + k0 + (k)]
#define A_ALONG_K 1
#define B(k, col) weight[(k0 + (k)) * cols + col0 + (col)]
#define B_ALONG_K 0
#define C_COL(col) (col)
#define PUT(row, col, at, sum) dx[(row) * cols + (at)] = rectified_back((sum), x[(row) * cols + (at)], of_relu)
#include "product.cl"

/* dweight = dy^T x, out x in, summed over n. */
#define PRODUCT fc_backward_weight
#define PARAMETERS GLOBAL const float *RESTRICT dy, GLOBAL const float *RESTRICT x, GLOBAL float *RESTRICT dweight,
#define A(row, k) dy[(k0 + (k)) * rows + row0 + (row)]
#define A_ALONG_K 0
#define B(k, col) x[(k0 + (k)) * cols + col0 + (col)]
#define B_ALONG_K 0
#define C_COL(col) (col)
#define PUT(row, col, at, sum) dweight[(row) * cols + (at)] = (sum)
#include "product.cl"

/* --- convolutions --- */

/* Part of where a number lies: a place in memory, a row and a column of an image. Those of its matrix's row and column are added. */
struct place { int at, h, v; };
FUNCTION struct place place(int at, int h, int v) {
    struct place p;
    p.at = at, p.h = h, p.v = v;
    return p;
}
/* What lies there; 0 in the margin. */
FUNCTION float image(GLOBAL const float *from, int high, int across, int at, int h, int v) {
    return (((unsigned)h < (unsigned)high) & ((unsigned)v < (unsigned)across)) ? from[at] : 0;   /* no branches: vectors have none */
}
#define IMAGE(k, line) image(FROM, HIGH, ACROSS, k_at[k] + line_at[line], k_h[k] + line_h[line], k_v[k] + line_v[line])

#ifdef LOAD_RUNS
/* Cuts `count` places, at columns v, into runs: side by side, in one panel, LANES at most. With a new row the column falls back, so that a
 * run lies in one. run[i] is the first of run i, and run[runs] is `count`. 0 when they are too short to be worth it, as with strides. */
FUNCTION int find_runs(OF_LOCAL const int *v, int count, OF_LOCAL int *run) {
    int runs = 0;
    for (int i = 0; i < count; i++) {
        const int goes_on = i % PANEL != 0 && v[i] == v[i - 1] + 1 && i - run[runs - 1] < LANES;
        if (!goes_on) run[runs++] = i;
    }
    run[runs] = count;
    return runs * 2 <= count ? runs : 0;
}
/* A run that begins at (at, h, v), as each of `count` others shifts it: number i of shift o goes to to[o * apart + i]. */
FUNCTION void load_run(GLOBAL const float *RESTRICT from, int high, int across, int at, int h, int v, int length,
                       OF_LOCAL const int *RESTRICT o_at, OF_LOCAL const int *RESTRICT o_h, OF_LOCAL const int *RESTRICT o_v, int count,
                       OF_LOCAL float *RESTRICT to, int apart) {
    for (int o = 0; o < count; o++) {
        const int inside = (unsigned)(h + o_h[o]) < (unsigned)high, col = v + o_v[o];
        GLOBAL const float *line = from + (at + o_at[o]);
        OF_LOCAL float *out = to + o * apart;
        for (int i = 0; i < LANES; i++)
            if (i < length) out[i] = (inside & ((unsigned)(col + i) < (unsigned)across)) ? line[i] : 0;
    }
}
#endif

/* Number i = (channel, kernel row, kernel column) of a kernel over an image; and the place of the image where that of output place i =
 * (sample, row, column) begins. */
FUNCTION struct place in_kernel(struct echi_window w, int i) {
    const int c = divided(i, w.by_area), rest = i - c * w.kernel_h * w.kernel_w;
    const int h = divided(rest, w.by_kernel_w), v = rest - h * w.kernel_w;
    return place((c * w.in_h + h) * w.in_w + v, h, v);
}
FUNCTION struct place corner(struct echi_window w, int i) {
    const int sample = divided(i, w.by_out_map), rest = i - sample * w.out_h * w.out_w, row = divided(rest, w.by_out_w);
    const int h = row * w.stride_h - w.pad_h, v = (rest - row * w.out_w) * w.stride_w - w.pad_w;
    return place((sample * w.in_c * w.in_h + h) * w.in_w + v, h, v);
}
/* Place i of [n][places], in channel 0 of [n][channels][places]. */
FUNCTION int first_channel(int channels, int places, struct echi_divisor by_places, int i) {
    return i + divided(i, by_places) * (channels - 1) * places;
}

/* y = bias + weight x under the kernel. Rows: output channels. Columns: output places of all samples. */
#define PRODUCT conv_forward
#define PARAMETERS GLOBAL const float *RESTRICT x, GLOBAL const float *RESTRICT weight, GLOBAL const float *RESTRICT bias, int has_bias, \
    int relu, GLOBAL float *RESTRICT y, \
    struct echi_window w,
#define A(row, k) weight[(row0 + (row)) * depth + k0 + (k)]
#define A_ALONG_K 1
#define IMAGE_B
#define FROM x
#define HIGH w.in_h
#define ACROSS w.in_w
#define IMAGE_K(k) in_kernel(w, k)
#define IMAGE_LINE(col) corner(w, col)
#define B(k, col) IMAGE(k, col)
#define B_ALONG_K 0
#define C_COL(col) first_channel(w.out_c, w.out_h * w.out_w, w.by_out_map, col)
#define PUT(row, col, at, sum) y[(at) + (row) * (w.out_h * w.out_w)] = rectified((sum) + (has_bias ? bias[row] : 0), relu)
#include "product.cl"

/* dweight = x under the kernel, times dy: turned, so that what lies side by side in the image does so in the tile. Rows: numbers of a
 * kernel. Columns: output channels. Summed over output places of all samples, of which each group along z has a part, and sums of its own
 * to put it in. */
#define PRODUCT conv_backward_weight
#define PARAMETERS GLOBAL const float *RESTRICT x, GLOBAL const float *RESTRICT dy, GLOBAL float *RESTRICT parts, struct echi_window w,
#define IMAGE_A
#define FROM x
#define HIGH w.in_h
#define ACROSS w.in_w
#define IMAGE_K(k) corner(w, k)
#define IMAGE_LINE(row) in_kernel(w, row)
#define A(row, k) IMAGE(k, row)
#define A_ALONG_K 1
#define PLAIN_K(k) first_channel(w.out_c, w.out_h * w.out_w, w.by_out_map, k)
#define B(k, col) dy[plain_k[k] + (col0 + (col)) * (w.out_h * w.out_w)]
#define B_ALONG_K 1
#define C_COL(col) ((GROUP(2) * cols + (col)) * rows)
#define PUT(row, col, at, sum) parts[(at) + (row)] = (sum)
#include "product.cl"

/* Backward, an input place i (counted from the margin's edge) and a kernel place j lead to output place (i - j) / stride, if that has no
 * remainder. So each is put down as quotient and remainder, of which the latter counts `far` times: what differs in it lies outside. */
FUNCTION int step_back(int i, int stride, struct echi_divisor by, int far) {
    const int quotient = divided(i, by);
    return quotient + (i - quotient * stride) * far;
}
/* Number i = (output channel, kernel row, kernel column) of the kernels, which leads from input place j = (sample, row, column) back to an
 * output. */
FUNCTION struct place back(struct echi_window w, int i) {
    const int c = divided(i, w.by_area), rest = i - c * w.kernel_h * w.kernel_w;
    const int h = divided(rest, w.by_kernel_w), v = rest - h * w.kernel_w;
    return place((c * w.out_h - divided(h, w.by_stride_h)) * w.out_w - divided(v, w.by_stride_w),
                 -step_back(h, w.stride_h, w.by_stride_h, w.far_h), -step_back(v, w.stride_w, w.by_stride_w, w.far_w));
}
FUNCTION struct place input(struct echi_window w, int j) {
    const int sample = divided(j, w.by_in_map), rest = j - sample * w.in_h * w.in_w, row = divided(rest, w.by_in_w);
    const int h = row + w.pad_h, v = rest - row * w.in_w + w.pad_w;
    return place((sample * w.out_c * w.out_h + divided(h, w.by_stride_h)) * w.out_w + divided(v, w.by_stride_w),
                 step_back(h, w.stride_h, w.by_stride_h, w.far_h), step_back(v, w.stride_w, w.by_stride_w, w.far_w));
}

/* dx = weight, turned, dy over the kernel. Rows: input channels. Columns: input places of all samples. */
#define PRODUCT conv_backward_input
#define PARAMETERS GLOBAL const float *RESTRICT dy, GLOBAL const float *RESTRICT weight, GLOBAL const float *RESTRICT x, int of_relu, \
    GLOBAL float *RESTRICT dx, struct echi_window w,
#define PLAIN_K(k) ((k) + divided(k, w.by_area) * (w.in_c - 1) * (w.kernel_h * w.kernel_w))
#define A(row, k) weight[plain_k[k] + (row0 + (row)) * (w.kernel_h * w.kernel_w)]
#define A_ALONG_K 1
#define IMAGE_B
#define FROM dy
#define HIGH w.out_h
#define ACROSS w.out_w
#define IMAGE_K(k) back(w, k)
#define IMAGE_LINE(col) input(w, col)
#define B(k, col) IMAGE(k, col)
#define B_ALONG_K 0
#define C_COL(col) first_channel(w.in_c, w.in_h * w.in_w, w.by_in_map, col)
#define PUT(row, col, at, sum) \
    dx[(at) + (row) * (w.in_h * w.in_w)] = rectified_back((sum), x[(at) + (row) * (w.in_h * w.in_w)], of_relu)
#include "product.cl"

/* to[i] = the sum of number i of all parts, in their order. */
KERNEL(ITEMS) sum_parts(GLOBAL const float *parts, GLOBAL float *to, int count, int n_parts) {
    if (AT >= count) return;
    float sum = parts[AT];
    for (int p = 1; p < n_parts; p++) sum += parts[p * count + AT];
    to[AT] = sum;
}
