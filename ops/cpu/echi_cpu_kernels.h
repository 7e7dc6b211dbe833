/* SPDX-License-Identifier: Apache-2.0
 * The vector kernels behind ops/cpu, one table for each instruction set.
 *
 * Everything is *batch-minor*: the samples of a batch are cut into groups of `width` (floats in one vector register), and
 * wherever this page says "vector" it means one number of each sample of a group. A kernel therefore never looks across
 * lanes, works for any spatial shape, and reads a weight once for `width` samples.
 *
 * Strides are in floats. No kernel allocates; none needs alignment. */
#ifndef ECHI_CPU_KERNELS_H
#define ECHI_CPU_KERNELS_H
#include "echi_os.h"
#include "echi_stack_impl.h"

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }
static inline int parts_of(int whole, int most) { return (whole + most - 1) / most; }   /* into so many, of `most` or fewer */
static inline int round_up(int n, int unit) { return parts_of(n, unit) * unit; }

/* One loop of a sum of products: n terms, `x` floats apart in the vectors and `w` floats apart in the weights. */
struct echi_cpu_loop { int n; ptrdiff_t x, w; };

/* out[o][p] = start[o] + sum over the three loops of weight[o] * x[p], for `outputs` o and `vectors` p. Forward and backward of
 * convolution and fully connected layers are all this sum; only the strides differ. */
struct echi_cpu_product {
    const float *x;            /* vector p is at x + p * x_p */
    const float *w;            /* weight of output o is at w + o * w_o */
    const float *start;        /* a number for each output (bias); NULL: 0 */
    float *out;                /* vector p of output o goes to out + o * out_o + p * out_p */
    ptrdiff_t x_p, w_o, out_o, out_p;
    struct echi_cpu_loop loop[3];   /* outermost first */
    int outputs, vectors;
    bool add;                  /* add to what is in out (start must be NULL) */
    bool goes_on;              /* the sum goes on from what is in out: as one with more terms, to the bit (start must be NULL) */
    bool relu;                 /* store max(., 0) */
};

/* One operand of a product of matrices: the rows of the first, or the columns of the second; either lies in one piece or has its lines
 * side by side, as line or step being 1 says. */
struct echi_cpu_lines { const float *at; ptrdiff_t line, step; int lines, depth; };   /* number k of line i is at + i * line + k * step */

/* At most matrix_rows packed rows times all packed columns: out[row][column] = start[row] + sum over the depth. */
struct echi_cpu_panel {
    const void *a, *b;         /* a: [depth][matrix_rows]; b: [panel][depth][matrix_columns] */
    const float *start;        /* a number for each row; NULL: 0 */
    float *out;                /* column c of row r: out + r * out_row + c / width * out_vector + c % width */
    ptrdiff_t out_row, out_vector;
    int rows, columns, depth;
    bool add;                  /* add to what is in out (start must be NULL) */
    bool relu;                 /* store max(., 0) */
    struct echi_cpu_lines next;   /* wanted next, each in one piece: may be fetched meanwhile. No lines: nothing */
};

/* How output columns meet input columns along a row: output q = 0..count-1 reads input column q * step + base + j with tap
 * j = 0..taps-1, where that column lies in [0, size). */
struct echi_cpu_axis { int count, step, base, taps, size; };

/* acc[o][t] += sum over rows and columns of dy[o] * x[t], vectors all: the gradient of outputs x taps weights, still one
 * number a lane. */
struct echi_cpu_outer {
    const float *dy;           /* [o: dy_o][row: dy_row][column: width] */
    const float *x;            /* [t: x_t][row: x_row][column: x_column] */
    float *acc;                /* [o: acc_o][t: acc_t] */
    ptrdiff_t dy_o, dy_row, x_t, x_row, x_column, acc_o, acc_t;
    int rows, columns, outputs, taps;   /* outputs <= most_outputs, taps <= most_taps */
    bool half;                 /* half a column follows the last one of each row; width > 4 only */
};

/* One tile of Winograd's F(m x m, 3 x 3), m 2 or 4, of `channels` channels: (m + 2) x (m + 2) inputs, or m x m outputs, and
 * (m + 2) x (m + 2) *points*, numbers between the transforms. Vectors all. Further kinds, in the place of m: */
#define ECHI_CPU_FIVE 6           /* F(2 x 2, 5 x 5): 6 x 6 inputs, 2 x 2 outputs, the points of F(4 x 4, 3 x 3) */
#define ECHI_CPU_WHOLE 1          /* a whole map of 2 x 2 without the zeros around it: 2 x 2 inputs, 2 x 2 outputs, 3 x 3 points */
#define ECHI_CPU_STRIDED 3        /* with stride 2: 5 x 5 inputs, 2 x 2 outputs, 5 x 5 points */
#define ECHI_CPU_STRIDED_BACK 5   /* from the outputs' gradient to that of the inputs, padded by 1: 3 x 3 and 4 x 4 with the same points */
#define ECHI_CPU_WINOGRAD_MOST 4
static inline int echi_cpu_winograd_kernel(int m) { return m == ECHI_CPU_FIVE ? 5 : 3; }   /* rows and columns of its kernels */
struct echi_cpu_tile {
    int channels;
    /* inputs: each row, from channel to channel */
    const float *row[ECHI_CPU_WINOGRAD_MOST + 2]; ptrdiff_t channel[ECHI_CPU_WINOGRAD_MOST + 2];
    float *points; ptrdiff_t point, points_channel;   /* point i, j of channel c: points + (i * side + j) * point + c * points_channel,
                                                         side the points along one */
    float *out; ptrdiff_t out_channel, out_row;   /* outputs; `rows` and `columns` of them are there */
    int rows, columns;
    ptrdiff_t column;                             /* of inputs or outputs */
    const float *start;                           /* a number for each channel of the outputs (bias); NULL: 0 */
    bool relu;
};

/* Batch-norm of `count` vectors of one channel. ReLU, if any, is behind it. */
#define ECHI_CPU_WIDTH_MOST 16   /* floats in a vector, on any machine */
struct echi_cpu_norm {
    const float *x, *dy;
    float *out;                /* y or dx */
    ptrdiff_t x_column, dy_column, out_column;
    int count;
    float mean, scale, shift;  /* y = (x - mean) * scale + shift */
    bool relu;
    float *sums;               /* a vector for each sum, which is added to */
    const float *minus;        /* backward: what is taken from all of dy, and along x - mean: two vectors */
};

/* Pooling of one row of windows; window i begins at column i * stride - pad, its rows are all there. */
struct echi_cpu_window { int kernel_h, kernel_w, stride_w, pad_w, in_w, count; };

/* One step of a range, as struct echi_step says: out = a - the step. `out` may be `a`, which may be `w`. s: Adam's. */
struct echi_cpu_descent {
    const echi_real *w, *a, *g;
    echi_real *out, *v, *s;
    const struct echi_step *how;
};
static inline void echi_cpu_descend_one(const struct echi_cpu_descent *d, size_t i) {
    const struct echi_step *how = d->how;
    const echi_real g = d->g[i] + how->l2 * d->w[i];
    const bool remembers = how->momentum != 0;
    const echi_real v = echi_velocity((remembers ? how->momentum * d->v[i] : 0) + g);
    if (remembers) d->v[i] = v;
    d->out[i] = d->a[i] - how->lr * (how->rule == ECHI_RULE_NESTEROV ? g + how->momentum * v : v);
}
/* The root is rounded correctly everywhere, as products, sums and quotients are. */
static inline echi_real echi_cpu_root(echi_real x) {
#ifdef ECHI_DOUBLE
    return __builtin_sqrt(x);
#else
    return __builtin_sqrtf(x);
#endif
}
static inline void echi_cpu_adam_one(const struct echi_cpu_descent *d, size_t i) {
    const struct echi_step *how = d->how;
    const echi_real w = d->w[i], g = how->per_f * d->g[i] + how->l2 * w;
    const echi_real m = echi_velocity(how->keep1 * d->v[i] + how->gain1 * g);
    const echi_real s = echi_velocity(how->keep2 * d->s[i] + how->gain2 * (g * g));
    d->v[i] = m;
    d->s[i] = s;
    d->out[i] = d->a[i] - (how->lr * m / (echi_cpu_root(how->whole2 * s) + how->epsilon) + how->shrink * w);
}

struct echi_cpu_kernels {
    const char *name;          /* "avx512" */
    int width;                 /* floats in a vector */
    const struct echi_cpu_kernels *narrow;   /* for the last samples of a batch, fewer than a vector holds; NULL: none */
    const struct echi_cpu_kernels *half;     /* for batches that fill no more than half of a vector; NULL: none */
    const struct echi_cpu_kernels *wide;     /* where vectors are of other things than samples: itself, or whose narrow or half this is */
    int most_outputs, most_taps;   /* of `outer` */
    int most_vectors;          /* that `conv_row` computes at once: it may read most_vectors - 1 steps beyond a row's ends */
    int matrix_rows, matrix_columns;   /* in a panel of packed rows and of packed columns */
    void (*product)(const struct echi_cpu_product *p);
    /* The same along one row: p->x is the row's column 0, p->vectors the axis' count, loop[2] the taps along the row. */
    void (*conv_row)(const struct echi_cpu_product *p, const struct echi_cpu_axis *axis);
    /* All panels of an operand, one behind the other; `to` has room for whole panels and one vector more. See cpu_matrix.c. */
    void (*matrix_pack_rows)(const struct echi_cpu_lines *lines, void *to);
    void (*matrix_pack_columns)(const struct echi_cpu_lines *lines, void *to);
    void (*matrix_panel)(const struct echi_cpu_panel *p);
    void (*outer)(const struct echi_cpu_outer *o);
    /* Inputs to points; points to outputs; a kernel's weights to points, a lane a kernel (`kernel` floats apart,
     * turned round by half a turn). */
    void (*winograd_input)(int m, const struct echi_cpu_tile *tile);
    void (*winograd_output)(int m, const struct echi_cpu_tile *tile);
    void (*winograd_weights)(int m, const float *kernels, ptrdiff_t kernel, int lanes, bool turned, float *points, ptrdiff_t point);
    /* For the weights' gradient: that of m x m outputs (in `row`) to points; sums at the points to a kernel's weights, a lane a kernel. */
    void (*winograd_grad)(int m, const struct echi_cpu_tile *tile);
    void (*winograd_weights_grad)(int m, const float *points, ptrdiff_t point, int lanes, float *kernels, ptrdiff_t kernel);
    /* out[i] = sum of the lanes of vector i. */
    void (*reduce)(const float *vectors, size_t count, float *out);
    /* vectors[c][lane] = rows[lane][c] for lane < lanes, 0 for the other lanes; c < columns. */
    void (*to_vectors)(const float *rows, ptrdiff_t row, int lanes, int columns, float *vectors, ptrdiff_t vector);
    void (*to_rows)(const float *vectors, ptrdiff_t vector, int lanes, int columns, float *rows, ptrdiff_t row);
    /* y = max(x, 0), `count` vectors. */
    void (*relu)(const float *x, ptrdiff_t x_column, float *y, ptrdiff_t y_column, int count);
    /* dx = dy where y > 0 (everywhere when y is NULL), else 0; *sum += all of dx when sum (one vector) is not NULL. */
    void (*relu_back)(const float *dy, ptrdiff_t dy_column, const float *y, ptrdiff_t y_column, float *dx, ptrdiff_t dx_column,
                      int count, float *sum);
    /* y = tanh(x); dx = dy * (1 - y^2), without a sum. As relu's, so that one driver serves both. */
    void (*tanh)(const float *x, ptrdiff_t x_column, float *y, ptrdiff_t y_column, int count);
    void (*tanh_back)(const float *dy, ptrdiff_t dy_column, const float *y, ptrdiff_t y_column, float *dx, ptrdiff_t dx_column,
                      int count, float *sum);
    /* y = a + b; y = x * factor, the factors one vector behind the other. y may be a or x. */
    void (*plus)(const float *a, ptrdiff_t a_column, const float *b, ptrdiff_t b_column, float *y, ptrdiff_t y_column, int count);
    void (*times)(const float *x, ptrdiff_t x_column, const float *factor, float *y, ptrdiff_t y_column, int count);
    /* Sums of x; of (x - mean)^2; y. Sums of dy before ReLU and of dy (x - mean); dx = scale (dy - minus[0] - (x - mean) minus[1]). */
    void (*norm_sum)(const struct echi_cpu_norm *n);
    void (*norm_squares)(const struct echi_cpu_norm *n);
    void (*norm)(const struct echi_cpu_norm *n);
    void (*norm_back_sums)(const struct echi_cpu_norm *n);
    void (*norm_back)(const struct echi_cpu_norm *n);
    /* max(0, largest of the window) and its place in the window (a byte a lane, 255 where nothing is above 0; four windows to a
     * vector of integers). */
    void (*relu_pool)(const float *x, ptrdiff_t x_row, const struct echi_cpu_window *w, float *y, ptrdiff_t y_column,
                      int32_t *place);
    /* Its backward: sets every element of the windows; *sum += all of dx. */
    void (*relu_pool_back)(const float *dy, ptrdiff_t dy_column, const int32_t *place, const struct echi_cpu_window *w, float *dx,
                           ptrdiff_t dx_row, float *sum);
    void (*max_pool)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, float *y,
                     ptrdiff_t y_column);
    /* dx (same strides as x) += dy at the first largest element of each window. */
    void (*max_pool_back)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, const float *dy,
                          ptrdiff_t dy_column, float *dx);
    /* y = scale * sum of the window; dx += scale * dy all over the window. */
    void (*avg_pool)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, float scale, float *y,
                     ptrdiff_t y_column);
    void (*avg_pool_back)(const float *dy, ptrdiff_t dy_column, const struct echi_cpu_window *w, float scale, float *dx,
                          ptrdiff_t dx_row, ptrdiff_t dx_column);
    /* One group of echi_stack_loss: x[c][lane], labels of the first `lanes` lanes; dx is 0 in the others. */
    void (*softmax_loss)(const float *x, ptrdiff_t x_class, int classes, const uint16_t *labels, int lanes, float scale, float *dx,
                         ptrdiff_t dx_class, double *loss, int *correct);
    /* Flat ranges; the same bits in every table. */
    void (*descend)(const struct echi_cpu_descent *d, size_t count);   /* SGD */
    void (*adam)(const struct echi_cpu_descent *d, size_t count);
    void (*add)(echi_real *sum, const echi_real *a, const echi_real *b, size_t count);   /* a + b; sum may be either */
    /* from * from_factor + x * factor, each product rounded by itself; sum may be `from` */
    void (*add_scaled)(echi_real *sum, const echi_real *from, echi_real from_factor, const echi_real *x, echi_real factor, size_t count);
    bool (*finite)(const echi_real *x, size_t count);   /* no infinity, no NaN */
    size_t (*count_from)(const echi_real *x, size_t count, echi_real least);   /* of |x| >= least; least > 0, all finite */
    void (*to_bf16)(uint16_t *to, const echi_real *x, size_t count);           /* as ref/bf16.c */
    void (*from_bf16)(echi_real *to, const uint16_t *x, size_t count);
};

extern const struct echi_cpu_kernels echi_cpu_kernels_base, echi_cpu_kernels_fixed;
#if defined(__x86_64__)
extern const struct echi_cpu_kernels echi_cpu_kernels_avx2, echi_cpu_kernels_avx2x4, echi_cpu_kernels_avx2x2;
extern const struct echi_cpu_kernels echi_cpu_kernels_avx512, echi_cpu_kernels_avx512x8, echi_cpu_kernels_avx512x4,
    echi_cpu_kernels_avx512x2;
#endif
/* The table for a level; NULL when this machine or this build does not have it. */
const struct echi_cpu_kernels *echi_cpu_kernels_for(enum echi_cpu_level level);
/* ops/kernels.c: those for flat ranges, at the device's level; in the archive in double plain loops. */
const struct echi_cpu_kernels *echi_kernels(const struct echi_device *device);

/* echi_stack_cpu_bf16 by pairs in vectors, and by tiles, for tests: create answers ECH_E_UNSUPPORTED where they are missing. */
extern const struct echi_stack_impl echi_stack_cpu_bf16_dot, echi_stack_cpu_bf16_amx;
#endif
