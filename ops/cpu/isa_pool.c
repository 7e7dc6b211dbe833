/* SPDX-License-Identifier: Apache-2.0
 * ReLU, pooling, and what goes number by number. Of equal values in a window the first in row order is the largest; ReLU's derivative at 0
 * is 0. A NaN counts as larger than anything, so that it is seen at the end. */
#include "echi_vec.h"

void ISA(relu)(const float *x, ptrdiff_t x_column, float *y, ptrdiff_t y_column, int count) {
    for (int i = 0; i < count; i++) {
        const vec v = load(x + i * x_column);
        store(y + i * y_column, pick(v <= 0.0f, (vec){0}, v));
    }
}

void ISA(relu_back)(const float *dy, ptrdiff_t dy_column, const float *y, ptrdiff_t y_column, float *dx, ptrdiff_t dx_column,
                    int count, float *sum) {
    vec total = {0};
    for (int i = 0; i < count; i++) {
        vec d = load(dy + i * dy_column);
        if (y) d = pick(load(y + i * y_column) <= 0.0f, (vec){0}, d);
        store(dx + i * dx_column, d);
        total += d;
    }
    if (sum) store(sum, load(sum) + total);
}

void ISA(plus)(const float *a, ptrdiff_t a_column, const float *b, ptrdiff_t b_column, float *y, ptrdiff_t y_column, int count) {
    for (int i = 0; i < count; i++) store(y + i * y_column, load(a + i * a_column) + load(b + i * b_column));
}

void ISA(times)(const float *x, ptrdiff_t x_column, const float *factor, float *y, ptrdiff_t y_column, int count) {
    for (int i = 0; i < count; i++) store(y + i * y_column, load(x + i * x_column) * load(factor + i * VEC_FLOATS));
}

/* Lanes where v does not replace the largest so far. */
INLINE ivec no_larger(vec v, vec most) { return (v <= most) | (most != most); }

/* Places in windows that ReLU and max-pool share: a byte each, those of four windows in one integer of each lane. */
#define NOWHERE 255   /* ReLU has cut the maximum off */

INLINE void relu_pool(int kernel_h, int kernel_w, const float *x, ptrdiff_t x_row, const struct echi_cpu_window *w, float *y,
                      ptrdiff_t y_column, int32_t *place) {
    ivec packed = {0};
    for (int i = 0; i < w->count; i++, x += w->stride_w * VEC_FLOATS) {
        vec most = {0};
        ivec at = NOWHERE - (ivec){0};
        for (int r = 0; r < kernel_h; r++)
            for (int c = 0; c < kernel_w; c++) {
                const vec v = load(x + r * x_row + c * VEC_FLOATS);
                const ivec stay = no_larger(v, most);
                most = pick(stay, most, v);
                at = (stay & at) | (~stay & (r * kernel_w + c));
            }
        store(y + i * y_column, most);
        packed |= at << (i % 4 * 8);
        if (i % 4 == 3 || i + 1 == w->count) {
            store_int(place + i / 4 * VEC_FLOATS, packed);
            packed = (ivec){0};
        }
    }
}

void ISA(relu_pool)(const float *x, ptrdiff_t x_row, const struct echi_cpu_window *w, float *y, ptrdiff_t y_column,
                    int32_t *place) {
    if (w->kernel_h == 2 && w->kernel_w == 2)
        relu_pool(2, 2, x, x_row, w, y, y_column, place);
    else
        relu_pool(w->kernel_h, w->kernel_w, x, x_row, w, y, y_column, place);
}

INLINE void relu_pool_back(int kernel_h, int kernel_w, const float *dy, ptrdiff_t dy_column, const int32_t *place,
                           const struct echi_cpu_window *w, float *dx, ptrdiff_t dx_row, float *sum) {
    vec total = load(sum);
    ivec packed = {0};
    for (int i = 0; i < w->count; i++, dx += w->stride_w * VEC_FLOATS) {
        const vec d = load(dy + i * dy_column);
        packed = i % 4 == 0 ? load_int(place + i / 4 * VEC_FLOATS) : packed >> 8;
        const ivec at = packed & 255;
        total += pick(at == NOWHERE, (vec){0}, d);
        for (int r = 0; r < kernel_h; r++)
            for (int c = 0; c < kernel_w; c++) store(dx + r * dx_row + c * VEC_FLOATS, pick(at == r * kernel_w + c, d, (vec){0}));
    }
    store(sum, total);
}

void ISA(relu_pool_back)(const float *dy, ptrdiff_t dy_column, const int32_t *place, const struct echi_cpu_window *w, float *dx,
                         ptrdiff_t dx_row, float *sum) {
    if (w->kernel_h == 2 && w->kernel_w == 2)
        relu_pool_back(2, 2, dy, dy_column, place, w, dx, dx_row, sum);
    else
        relu_pool_back(w->kernel_h, w->kernel_w, dy, dy_column, place, w, dx, dx_row, sum);
}

/* Columns of window i that lie in the input: [*begin, *end), at least one unless padding exceeds the kernel. */
INLINE void window_columns(const struct echi_cpu_window *w, int i, int *begin, int *end) {
    const int first = i * w->stride_w - w->pad_w, last = first + w->kernel_w;
    *begin = first < 0 ? 0 : first;
    *end = last > w->in_w ? w->in_w : last;
}

/* The largest of a window and, as row * in_w + column, its place (-1: the window is empty). */
INLINE vec largest(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, int begin, int end,
                   ivec *at) {
    vec most = splat(-__builtin_inff());
    *at = (ivec){0} - 1;
    for (int r = 0; r < w->kernel_h; r++)
        for (int c = begin; c < end; c++) {
            const vec v = load(x + r * x_row + c * x_column);
            const ivec stay = no_larger(v, most) & (*at >= 0);
            most = pick(stay, most, v);
            *at = (stay & *at) | (~stay & (r * w->in_w + c));
        }
    return most;
}

void ISA(max_pool)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, float *y,
                   ptrdiff_t y_column) {
    for (int i = 0; i < w->count; i++) {
        int begin, end;
        ivec at;
        window_columns(w, i, &begin, &end);
        store(y + i * y_column, largest(x, x_row, x_column, w, begin, end, &at));
    }
}

void ISA(max_pool_back)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, const float *dy,
                        ptrdiff_t dy_column, float *dx) {
    for (int i = 0; i < w->count; i++) {
        int begin, end;
        ivec at;
        window_columns(w, i, &begin, &end);
        (void)largest(x, x_row, x_column, w, begin, end, &at);
        const vec d = load(dy + i * dy_column);
        for (int r = 0; r < w->kernel_h; r++)
            for (int c = begin; c < end; c++) {
                float *to = dx + r * x_row + c * x_column;
                store(to, load(to) + pick(at == r * w->in_w + c, d, (vec){0}));
            }
    }
}

void ISA(avg_pool)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, float scale, float *y,
                   ptrdiff_t y_column) {
    for (int i = 0; i < w->count; i++) {
        int begin, end;
        window_columns(w, i, &begin, &end);
        vec sum = {0};
        for (int r = 0; r < w->kernel_h; r++)
            for (int c = begin; c < end; c++) sum += load(x + r * x_row + c * x_column);
        store(y + i * y_column, sum * scale);
    }
}

void ISA(avg_pool_back)(const float *dy, ptrdiff_t dy_column, const struct echi_cpu_window *w, float scale, float *dx,
                        ptrdiff_t dx_row, ptrdiff_t dx_column) {
    for (int i = 0; i < w->count; i++) {
        int begin, end;
        window_columns(w, i, &begin, &end);
        const vec d = load(dy + i * dy_column) * scale;
        for (int r = 0; r < w->kernel_h; r++)
            for (int c = begin; c < end; c++) {
                float *to = dx + r * dx_row + c * dx_column;
                store(to, load(to) + d);
            }
    }
}
