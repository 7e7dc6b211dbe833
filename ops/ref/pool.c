/* SPDX-License-Identifier: Apache-2.0
 * Pools: each output place looks at a window of one channel. Places of the window outside the input do not exist for
 * max-pool; for average-pool they are zeros that count in the divisor. */
#include "echi_ref.h"

#include <string.h>

/* The part of a window that lies inside the input: rows [h, h_end), columns [w, w_end). */
struct window { int h, h_end, w, w_end; };

static struct window window_of(const struct echi_layer *l, int oh, int ow) {
    int h = oh * l->stride_h - l->pad_h, w = ow * l->stride_w - l->pad_w;
    int h_end = h + l->kernel_h, w_end = w + l->kernel_w;
    return (struct window){h > 0 ? h : 0, h_end < l->in.h ? h_end : l->in.h, w > 0 ? w : 0, w_end < l->in.w ? w_end : l->in.w};
}

/* Place in x of the window's largest value, the first in row order; a NaN counts as larger than anything. */
static size_t largest(const struct echi_layer *l, int s, int c, struct window win, const echi_real *x) {
    size_t best = echi_ref_at(l->in, s, c, win.h, win.w);
    for (int h = win.h; h < win.h_end; h++)
        for (int w = win.w; w < win.w_end; w++) {
            size_t at = echi_ref_at(l->in, s, c, h, w);
            bool best_is_nan = x[best] != x[best];
            if (!best_is_nan && !(x[at] <= x[best])) best = at;
        }
    return best;
}

void ECHI_REF(max_pool_forward)(const struct echi_layer *l, int n, const echi_real *x, echi_real *y) {
    for (int s = 0; s < n; s++)
        for (int c = 0; c < l->out.c; c++)
            for (int oh = 0; oh < l->out.h; oh++)
                for (int ow = 0; ow < l->out.w; ow++)
                    y[echi_ref_at(l->out, s, c, oh, ow)] = x[largest(l, s, c, window_of(l, oh, ow), x)];
}

/* Each output's gradient goes to the place its value came from. */
void ECHI_REF(max_pool_backward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dx) {
    memset(dx, 0, (size_t)n * echi_shape_size(l->in) * sizeof *dx);
    for (int s = 0; s < n; s++)
        for (int c = 0; c < l->out.c; c++)
            for (int oh = 0; oh < l->out.h; oh++)
                for (int ow = 0; ow < l->out.w; ow++)
                    dx[largest(l, s, c, window_of(l, oh, ow), x)] += dy[echi_ref_at(l->out, s, c, oh, ow)];
}

void ECHI_REF(avg_pool_forward)(const struct echi_layer *l, int n, const echi_real *x, echi_real *y) {
    echi_real area = (echi_real)(l->kernel_h * l->kernel_w);
    for (int s = 0; s < n; s++)
        for (int c = 0; c < l->out.c; c++)
            for (int oh = 0; oh < l->out.h; oh++)
                for (int ow = 0; ow < l->out.w; ow++) {
                    struct window win = window_of(l, oh, ow);
                    echi_real sum = 0;
                    for (int h = win.h; h < win.h_end; h++)
                        for (int w = win.w; w < win.w_end; w++) sum += x[echi_ref_at(l->in, s, c, h, w)];
                    y[echi_ref_at(l->out, s, c, oh, ow)] = sum / area;
                }
}

void ECHI_REF(avg_pool_backward)(const struct echi_layer *l, int n, const echi_real *dy, echi_real *dx) {
    echi_real area = (echi_real)(l->kernel_h * l->kernel_w);
    memset(dx, 0, (size_t)n * echi_shape_size(l->in) * sizeof *dx);
    for (int s = 0; s < n; s++)
        for (int c = 0; c < l->out.c; c++)
            for (int oh = 0; oh < l->out.h; oh++)
                for (int ow = 0; ow < l->out.w; ow++) {
                    struct window win = window_of(l, oh, ow);
                    echi_real share = dy[echi_ref_at(l->out, s, c, oh, ow)] / area;
                    for (int h = win.h; h < win.h_end; h++)
                        for (int w = win.w; w < win.w_end; w++) dx[echi_ref_at(l->in, s, c, h, w)] += share;
                }
}
