/* SPDX-License-Identifier: Apache-2.0
 * The transforms of Winograd's minimal filtering F(m x m, 3 x 3) (Lavin and Gray, CVPR 2016, arXiv 1509.09308, section 4.1, with the
 * points 0, +-1, +-2): y = A^T [ (G g G^T) . (B^T d B) ] A, where a tile d of m + 2 rows and columns gives m x m outputs. Each number is a
 * vector over a group of samples, of the weights a vector over channels, so a transform is sums of vectors and nothing moves across lanes.
 *
 * A map of 2 x 2 with a margin of zeros is cheaper still taken whole. Along one side y0 = g1 x0 + g2 x1 and y1 = g0 x0 + g1 x1 are
 *     y0 = g1 (x0 + x1) + (g2 - g1) x1,   y1 = g1 (x0 + x1) + (g0 - g1) x0
 * three multiplications where the plain sum takes four and F(2, 3) four: F(2, 2) with the weights in the place of the data. So a map
 * takes 9 instead of 16, and has as many points as a kernel has weights. All factors are 1: on whole numbers it is exact.
 *
 * With stride 2 the outer taps meet inputs that the middle one does not. Along one side two outputs y0 = g0 d0 + g1 d1 + g2 d2 and
 * y1 = g0 d2 + g1 d3 + g2 d4 are
 *     y0 = g0 (d0 - d2) + (g0 + g2) d2 + g1 d1,   y1 = (g0 + g2) d2 + g2 (d4 - d2) + g1 d3
 * five multiplications instead of six, again with factors of 1: F(2, 2) for the outer taps, and the plain product for the middle one. A
 * tile takes 25 instead of 36. The gradient of the input has four outputs from three inputs, at the same points of the weights.
 *
 * F(2 x 2, 5 x 5) has as many inputs as F(4 x 4, 3 x 3), so it takes the same points and B: 36 multiplications instead of 100. G has five
 * columns, powers 0 to 4 of each point, and A two. It rounds as F(4 x 4, 3 x 3) does. */
#include "echi_vec.h"

#include <string.h>

#define MOST (ECHI_CPU_WINOGRAD_MOST + 2)   /* rows and columns of a tile */
#define MOST_TAPS 5                         /* of a kernel */

/* Along one side of a tile: points, inputs, outputs. */
INLINE bool strided(int m) { return m == ECHI_CPU_STRIDED || m == ECHI_CPU_STRIDED_BACK; }
INLINE int points_along(int m) { return m == ECHI_CPU_WHOLE ? 3 : strided(m) ? 5 : m == 2 ? 4 : 6; }
INLINE int inputs_along(int m) { return m == ECHI_CPU_WHOLE ? 2 : m == ECHI_CPU_STRIDED_BACK ? 3 : points_along(m); }
INLINE int outputs_along(int m) { return m == 4 || m == ECHI_CPU_STRIDED_BACK ? 4 : 2; }

/* Calls f with m known. */
#define WITH(m, f, ...)                                                                                                 \
    switch (m) {                                                                                                        \
    case 2: f(2, __VA_ARGS__); break;                                                                                   \
    case 4: f(4, __VA_ARGS__); break;                                                                                   \
    case ECHI_CPU_FIVE: f(ECHI_CPU_FIVE, __VA_ARGS__); break;                                                           \
    case ECHI_CPU_WHOLE: f(ECHI_CPU_WHOLE, __VA_ARGS__); break;                                                         \
    case ECHI_CPU_STRIDED: f(ECHI_CPU_STRIDED, __VA_ARGS__); break;                                                     \
    default: f(ECHI_CPU_STRIDED_BACK, __VA_ARGS__); break;                                                              \
    }

INLINE void input_whole(const vec d[MOST], vec v[MOST]) {
    v[0] = d[0];
    v[1] = d[0] + d[1];
    v[2] = d[1];
}
INLINE void weights_whole(const vec g[3], vec u[MOST]) {
    u[0] = g[0] - g[1];
    u[1] = g[1];
    u[2] = g[2] - g[1];
}
INLINE void output_whole(const vec p[MOST], vec y[MOST]) {
    y[0] = p[1] + p[2];
    y[1] = p[1] + p[0];
}
INLINE void grad_whole(const vec y[MOST], vec p[MOST]) {
    p[0] = y[1];
    p[1] = y[0] + y[1];
    p[2] = y[0];
}
INLINE void weights_back_whole(const vec u[MOST], vec g[3]) {
    g[0] = u[0];
    g[1] = u[1] - u[0] - u[2];
    g[2] = u[2];
}

INLINE void input_strided(const vec d[MOST], vec v[MOST]) {
    v[0] = d[0] - d[2];
    v[1] = d[2];
    v[2] = d[4] - d[2];
    v[3] = d[1];
    v[4] = d[3];
}
INLINE void weights_strided(const vec g[3], vec u[MOST]) {
    u[0] = g[0];
    u[1] = g[0] + g[2];
    u[2] = g[2];
    u[3] = u[4] = g[1];
}
INLINE void output_strided(const vec p[MOST], vec y[MOST]) {
    y[0] = p[0] + p[1] + p[3];
    y[1] = p[1] + p[2] + p[4];
}
INLINE void grad_strided(const vec y[MOST], vec p[MOST]) {
    p[0] = p[3] = y[0];
    p[1] = y[0] + y[1];
    p[2] = p[4] = y[1];
}
INLINE void weights_back_strided(const vec u[MOST], vec g[3]) {
    g[0] = u[0] + u[1];
    g[1] = u[3] + u[4];
    g[2] = u[1] + u[2];
}
/* Backward, with the weights turned round: inputs 4 t to 4 t + 3 see the gradients 2 t to 2 t + 2. */
INLINE void input_strided_back(const vec d[MOST], vec v[MOST]) {
    v[0] = d[0] - d[1];
    v[1] = v[4] = d[1];
    v[2] = d[2] - d[1];
    v[3] = d[0];
}
INLINE void output_strided_back(const vec p[MOST], vec y[MOST]) {
    y[0] = p[3];
    y[1] = p[1] + p[0];
    y[2] = p[4];
    y[3] = p[1] + p[2];
}

INLINE void input_2(const vec d[MOST], vec v[MOST]) {
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
}
INLINE void input_4(const vec d[MOST], vec v[MOST]) {
    const vec even = d[4] - 4 * d[2], odd = d[3] - 4 * d[1], even2 = d[4] - d[2], odd2 = 2 * (d[3] - d[1]);
    v[0] = 4 * d[0] - 5 * d[2] + d[4];
    v[1] = even + odd;
    v[2] = even - odd;
    v[3] = even2 + odd2;
    v[4] = even2 - odd2;
    v[5] = 4 * d[1] - 5 * d[3] + d[5];
}
INLINE void weights_2(const vec g[3], vec u[MOST]) {
    const vec even = 0.5f * (g[0] + g[2]), odd = 0.5f * g[1];
    u[0] = g[0];
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = g[2];
}
INLINE void weights_4(const vec g[3], vec u[MOST]) {
    const vec even = -1 / 6.0f * (g[0] + g[2]), odd = 1 / 6.0f * g[1], even2 = 1 / 24.0f * g[0] + 1 / 6.0f * g[2], odd2 = 1 / 12.0f * g[1];
    u[0] = 0.25f * g[0];
    u[1] = even - odd;
    u[2] = even + odd;
    u[3] = even2 + odd2;
    u[4] = even2 - odd2;
    u[5] = g[2];
}
INLINE void output_2(const vec p[MOST], vec y[MOST]) {
    y[0] = p[0] + p[1] + p[2];
    y[1] = p[1] - p[2] - p[3];
}
INLINE void output_4(const vec p[MOST], vec y[MOST]) {
    const vec even = p[1] + p[2], odd = p[1] - p[2], even2 = p[3] + p[4], odd2 = p[3] - p[4];
    y[0] = p[0] + even + even2;
    y[1] = odd + 2 * odd2;
    y[2] = even + 4 * even2;
    y[3] = odd + 8 * odd2 + p[5];
}

/* Of the weights' gradient: outputs' gradients to points (A p), and sums at the points to weights (G^T u). */
INLINE void grad_2(const vec y[MOST], vec p[MOST]) {
    p[0] = y[0];
    p[1] = y[0] + y[1];
    p[2] = y[0] - y[1];
    p[3] = -y[1];
}
INLINE void grad_4(const vec y[MOST], vec p[MOST]) {
    const vec even = y[0] + y[2], odd = y[1] + y[3], even2 = y[0] + 4 * y[2], odd2 = 2 * y[1] + 8 * y[3];
    p[0] = y[0];
    p[1] = even + odd;
    p[2] = even - odd;
    p[3] = even2 + odd2;
    p[4] = even2 - odd2;
    p[5] = y[3];
}
INLINE void weights_back_2(const vec u[MOST], vec g[3]) {
    const vec even = 0.5f * (u[1] + u[2]);
    g[0] = u[0] + even;
    g[1] = 0.5f * (u[1] - u[2]);
    g[2] = even + u[3];
}
INLINE void weights_back_4(const vec u[MOST], vec g[3]) {
    const vec even = 1 / 6.0f * (u[1] + u[2]), odd = 1 / 6.0f * (u[2] - u[1]), even2 = u[3] + u[4], odd2 = u[3] - u[4];
    g[0] = 0.25f * u[0] - even + 1 / 24.0f * even2;
    g[1] = odd + 1 / 12.0f * odd2;
    g[2] = 1 / 6.0f * even2 - even + u[5];
}

/* F(2, 5). */
INLINE void weights_five(const vec g[5], vec u[MOST]) {
    const vec even = -1 / 6.0f * (g[0] + g[2] + g[4]), odd = 1 / 6.0f * (g[1] + g[3]);
    const vec even2 = 1 / 24.0f * g[0] + 1 / 6.0f * g[2] + 2 / 3.0f * g[4], odd2 = 1 / 12.0f * g[1] + 1 / 3.0f * g[3];
    u[0] = 0.25f * g[0];
    u[1] = even - odd;
    u[2] = even + odd;
    u[3] = even2 + odd2;
    u[4] = even2 - odd2;
    u[5] = g[4];
}
INLINE void output_five(const vec p[MOST], vec y[MOST]) {
    y[0] = p[0] + (p[1] + p[2]) + (p[3] + p[4]);
    y[1] = (p[1] - p[2]) + 2 * (p[3] - p[4]) + p[5];
}
INLINE void grad_five(const vec y[MOST], vec p[MOST]) {
    const vec twice = 2 * y[1];
    p[0] = y[0];
    p[1] = y[0] + y[1];
    p[2] = y[0] - y[1];
    p[3] = y[0] + twice;
    p[4] = y[0] - twice;
    p[5] = y[1];
}
INLINE void weights_back_five(const vec u[MOST], vec g[5]) {
    const vec even = 1 / 6.0f * (u[1] + u[2]), odd = 1 / 6.0f * (u[2] - u[1]), even2 = u[3] + u[4], odd2 = u[3] - u[4];
    g[0] = 0.25f * u[0] - even + 1 / 24.0f * even2;
    g[1] = odd + 1 / 12.0f * odd2;
    g[2] = 1 / 6.0f * even2 - even;
    g[3] = odd + 1 / 3.0f * odd2;
    g[4] = 2 / 3.0f * even2 - even + u[5];
}

/* m is known where these are used. */
INLINE void input(int m, const vec d[MOST], vec v[MOST]) {
    if (m == 4 || m == ECHI_CPU_FIVE) input_4(d, v);
    else if (m == ECHI_CPU_STRIDED) input_strided(d, v);
    else if (m == ECHI_CPU_STRIDED_BACK) input_strided_back(d, v);
    else if (m == ECHI_CPU_WHOLE) input_whole(d, v);
    else input_2(d, v);
}
INLINE void weights(int m, const vec g[MOST_TAPS], vec u[MOST]) {
    if (m == 4) weights_4(g, u);
    else if (m == ECHI_CPU_FIVE) weights_five(g, u);
    else if (strided(m)) weights_strided(g, u);
    else if (m == ECHI_CPU_WHOLE) weights_whole(g, u);
    else weights_2(g, u);
}
INLINE void output(int m, const vec p[MOST], vec y[MOST]) {
    if (m == 4) output_4(p, y);
    else if (m == ECHI_CPU_FIVE) output_five(p, y);
    else if (m == ECHI_CPU_STRIDED) output_strided(p, y);
    else if (m == ECHI_CPU_STRIDED_BACK) output_strided_back(p, y);
    else if (m == ECHI_CPU_WHOLE) output_whole(p, y);
    else output_2(p, y);
}
INLINE void grad(int m, const vec y[MOST], vec p[MOST]) {
    if (m == 4) grad_4(y, p);
    else if (m == ECHI_CPU_FIVE) grad_five(y, p);
    else if (strided(m)) grad_strided(y, p);
    else if (m == ECHI_CPU_WHOLE) grad_whole(y, p);
    else grad_2(y, p);
}
INLINE void weights_sum(int m, const vec u[MOST], vec g[MOST_TAPS]) {
    if (m == 4) weights_back_4(u, g);
    else if (m == ECHI_CPU_FIVE) weights_back_five(u, g);
    else if (strided(m)) weights_back_strided(u, g);
    else if (m == ECHI_CPU_WHOLE) weights_back_whole(u, g);
    else weights_back_2(u, g);
}

/* A tile's points lie so far apart, each in a line of its own, that the processor does not foresee the next ones: they are fetched. */
enum { CHANNELS_AHEAD = 2 };

INLINE void input_tile(int m, const struct echi_cpu_tile *t, int c) {
    const int a = points_along(m), ins = inputs_along(m);
    vec half[MOST][MOST];   /* B^T d, transposed: [column][row] */
    UNROLL for (int j = 0; j < ins; j++) {
        vec d[MOST], v[MOST];
        UNROLL for (int i = 0; i < ins; i++) { d[i] = load(t->row[i] + c * t->channel[i] + j * t->column); }
        input(m, d, v);
        UNROLL for (int i = 0; i < a; i++) { half[i][j] = v[i]; }
    }
    UNROLL for (int i = 0; i < a; i++) {
        vec v[MOST];
        input(m, half[i], v);
        UNROLL for (int j = 0; j < a; j++) {
            float *to = t->points + (i * a + j) * t->point + c * t->points_channel;
            __builtin_prefetch(to + CHANNELS_AHEAD * t->points_channel, 1);
            store(to, v[j]);
        }
    }
}

INLINE void input_tiles(int m, const struct echi_cpu_tile *t) {
    for (int c = 0; c < t->channels; c++) input_tile(m, t, c);
}
void ISA(winograd_input)(int m, const struct echi_cpu_tile *t) {
    WITH(m, input_tiles, t);
}

INLINE void output_tile(int m, const struct echi_cpu_tile *t, int c) {
    const int a = points_along(m), outs = outputs_along(m);
    vec half[MOST][MOST];   /* A^T p, transposed */
    UNROLL for (int j = 0; j < a; j++) {
        vec p[MOST], y[MOST];
        UNROLL for (int i = 0; i < a; i++) {
            const float *at = t->points + (i * a + j) * t->point + c * t->points_channel;
            __builtin_prefetch(at + CHANNELS_AHEAD * t->points_channel);
            p[i] = load(at);
        }
        output(m, p, y);
        UNROLL for (int i = 0; i < outs; i++) { half[i][j] = y[i]; }
    }
    const vec start = t->start ? splat(t->start[c]) : (vec){0};
    for (int i = 0; i < t->rows; i++) {
        float *to = t->out + c * t->out_channel + i * t->out_row;
        vec y[MOST];
        output(m, half[i], y);
        UNROLL for (int j = 0; j < outs; j++) {
            const vec sum = y[j] + start;
            if (j < t->columns) store(to + j * t->column, t->relu ? pick(sum <= 0.0f, (vec){0}, sum) : sum);
        }
    }
}

INLINE void output_tiles(int m, const struct echi_cpu_tile *t) {
    for (int c = 0; c < t->channels; c++) output_tile(m, t, c);
}
void ISA(winograd_output)(int m, const struct echi_cpu_tile *t) {
    WITH(m, output_tiles, t);
}

/* Kernels of `taps` weights, `row` floats apart (`taps` at least), as so many vectors with a lane a kernel, 0 in the lanes that have none;
 * and back. Vectors that do not come out even overlap; one of 16 is longer than 3 x 3 weights: it is read as far as the kernels behind it
 * go, the last one as far as those before it. */
INLINE void some_columns(int taps, const float *rows, ptrdiff_t row, int lanes, vec *out) {
    if (taps < VEC_FLOATS) {
#if VEC_FLOATS == 16
        vec m[VEC_FLOATS];
        if (lanes == 1) {
            UNROLL for (int i = 0; i < 9; i++) { out[i] = (vec){rows[i]}; }
            return;
        }
        UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) { m[lane] = lane < lanes - 1 ? load(rows + lane * row) : (vec){0}; }
        const vec last = load(rows + (lanes - 1) * row - 7);
        const vec moved = __builtin_shufflevector(last, last, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0);
        UNROLL for (int lane = 1; lane < VEC_FLOATS; lane++) { m[lane] = lane == lanes - 1 ? moved : m[lane]; }
        transpose(m);
        UNROLL for (int i = 0; i < 9; i++) { out[i] = m[i]; }
#endif
        return;
    }
    UNROLL for (int i = 0; i < taps; i += VEC_FLOATS) {
        const int first = i + VEC_FLOATS > taps ? taps - VEC_FLOATS : i;
        vec m[VEC_FLOATS];
        UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) { m[lane] = lane < lanes ? load(rows + lane * row + first) : (vec){0}; }
        transpose(m);
        UNROLL for (int j = 0; j < VEC_FLOATS; j++) { out[first + j] = m[j]; }
    }
}
INLINE void columns_of(int taps, const float *rows, ptrdiff_t row, int lanes, vec *out) {
    if (lanes == VEC_FLOATS) some_columns(taps, rows, row, VEC_FLOATS, out);
    else some_columns(taps, rows, row, lanes, out);
}
INLINE void rows_of(int taps, const vec *in, float *rows, ptrdiff_t row, int lanes) {
    if (taps < VEC_FLOATS) {
#if VEC_FLOATS == 16
        vec m[VEC_FLOATS] = {in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8]};
        transpose(m);
        UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) {
            if (lane < lanes) memcpy(rows + lane * row, &m[lane], 9 * sizeof(float));
        }
#endif
        return;
    }
    UNROLL for (int i = 0; i < taps; i += VEC_FLOATS) {
        const int first = i + VEC_FLOATS > taps ? taps - VEC_FLOATS : i;
        vec m[VEC_FLOATS];
        UNROLL for (int j = 0; j < VEC_FLOATS; j++) { m[j] = in[first + j]; }
        transpose(m);
        UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) {
            if (lane < lanes) store(rows + lane * row + first, m[lane]);
        }
    }
}

INLINE void weights_of(int m, const float *kernels, ptrdiff_t kernel, int lanes, bool turned, float *points, ptrdiff_t point) {
    const int a = points_along(m), taps = echi_cpu_winograd_kernel(m), all = taps * taps;
    vec in[MOST_TAPS * MOST_TAPS], half[MOST][MOST_TAPS];
    columns_of(all, kernels, kernel, lanes, in);
    if (turned) {
        UNROLL for (int i = 0; i < all / 2; i++) {
            const vec other = in[i];
            in[i] = in[all - 1 - i];
            in[all - 1 - i] = other;
        }
    }
    UNROLL for (int j = 0; j < taps; j++) {
        vec g[MOST_TAPS], u[MOST];
        UNROLL for (int i = 0; i < taps; i++) { g[i] = in[i * taps + j]; }
        weights(m, g, u);
        UNROLL for (int i = 0; i < a; i++) { half[i][j] = u[i]; }
    }
    UNROLL for (int i = 0; i < a; i++) {
        vec u[MOST];
        weights(m, half[i], u);
        UNROLL for (int j = 0; j < a; j++) { store(points + (i * a + j) * point, u[j]); }
    }
}

void ISA(winograd_weights)(int m, const float *kernels, ptrdiff_t kernel, int lanes, bool turned, float *points, ptrdiff_t point) {
    WITH(m, weights_of, kernels, kernel, lanes, turned, points, point);
}

INLINE void grad_tile(int m, const struct echi_cpu_tile *t, int c) {
    const int a = points_along(m), outs = outputs_along(m);
    vec half[MOST][MOST];   /* A dy, transposed */
    UNROLL for (int j = 0; j < outs; j++) {
        vec y[MOST], p[MOST];
        UNROLL for (int i = 0; i < outs; i++) { y[i] = load(t->row[i] + c * t->channel[i] + j * t->column); }
        grad(m, y, p);
        UNROLL for (int i = 0; i < a; i++) { half[i][j] = p[i]; }
    }
    UNROLL for (int i = 0; i < a; i++) {
        vec p[MOST];
        grad(m, half[i], p);
        UNROLL for (int j = 0; j < a; j++) {
            float *to = t->points + (i * a + j) * t->point + c * t->points_channel;
            __builtin_prefetch(to + CHANNELS_AHEAD * t->points_channel, 1);
            store(to, p[j]);
        }
    }
}

INLINE void grad_tiles(int m, const struct echi_cpu_tile *t) {
    for (int c = 0; c < t->channels; c++) grad_tile(m, t, c);
}
void ISA(winograd_grad)(int m, const struct echi_cpu_tile *t) {
    WITH(m, grad_tiles, t);
}

INLINE void weights_back(int m, const float *points, ptrdiff_t point, int lanes, float *kernels, ptrdiff_t kernel) {
    const int a = points_along(m), taps = echi_cpu_winograd_kernel(m);
    vec half[MOST_TAPS][MOST], out[MOST_TAPS * MOST_TAPS];   /* half: G^T u */
    UNROLL for (int j = 0; j < a; j++) {
        vec u[MOST], g[MOST_TAPS];
        UNROLL for (int i = 0; i < a; i++) { u[i] = load(points + (i * a + j) * point); }
        weights_sum(m, u, g);
        UNROLL for (int i = 0; i < taps; i++) { half[i][j] = g[i]; }
    }
    UNROLL for (int i = 0; i < taps; i++) { weights_sum(m, half[i], out + taps * i); }
    rows_of(taps * taps, out, kernels, kernel, lanes);
}

void ISA(winograd_weights_grad)(int m, const float *points, ptrdiff_t point, int lanes, float *kernels, ptrdiff_t kernel) {
    WITH(m, weights_back, points, point, lanes, kernels, kernel);
}
