/* SPDX-License-Identifier: Apache-2.0
 * Pools: forward, an item for each output place; backward, one for each input place, which collects from the windows that it lies in, in
 * their order, so that no two items write one number. */
FUNCTION int most(int a, int b) { return a > b ? a : b; }
FUNCTION int least(int a, int b) { return a < b ? a : b; }

/* The part of a window that lies inside the input: rows [h, h_end), columns [v, v_end). */
struct inside { int h, h_end, v, v_end; };
FUNCTION struct inside inside_of(struct echi_window w, int oh, int ow) {
    const int h = oh * w.stride_h - w.pad_h, v = ow * w.stride_w - w.pad_w;
    struct inside in;
    in.h = most(h, 0), in.h_end = least(h + w.kernel_h, w.in_h);
    in.v = most(v, 0), in.v_end = least(v + w.kernel_w, w.in_w);
    return in;
}

/* Windows [first, end) along one side that place `at` lies in. */
FUNCTION int first_window(int at, int pad, int side, struct echi_divisor by_stride) {
    return at + pad >= side ? divided(at + pad - side, by_stride) + 1 : 0;
}
FUNCTION int end_window(int at, int pad, int windows, struct echi_divisor by_stride) {
    return least(divided(at + pad, by_stride) + 1, windows);
}

/* Also writes where each number came from: its place in the map. The first of equal ones in row order; a NaN counts as larger than
 * anything. */
KERNEL(ITEMS) max_pool_forward(GLOBAL const float *x, GLOBAL float *y, GLOBAL int *chosen, struct echi_window w, int count) {
    if (AT >= count) return;
    const int map = divided(AT, w.by_out_map), rest = AT - map * w.out_h * w.out_w;
    const int oh = divided(rest, w.by_out_w), ow = rest - oh * w.out_w;
    const struct inside in = inside_of(w, oh, ow);
    GLOBAL const float *from = x + map * w.in_h * w.in_w;
    int best = in.h * w.in_w + in.v;
    float largest = from[best];
    for (int h = in.h; h < in.h_end; h++)
        for (int v = in.v; v < in.v_end; v++) {
            const float value = from[h * w.in_w + v];
            if (largest == largest && !(value <= largest)) largest = value, best = h * w.in_w + v;
        }
    y[AT] = largest;
    chosen[AT] = best;
}

KERNEL(ITEMS) max_pool_backward(GLOBAL const int *chosen, GLOBAL const float *dy, GLOBAL const float *x, int of_relu, GLOBAL float *dx,
                                struct echi_window w, int count) {
    if (AT >= count) return;
    const int map = divided(AT, w.by_in_map), place = AT - map * w.in_h * w.in_w, h = divided(place, w.by_in_w), v = place - h * w.in_w;
    float sum = 0;
    for (int oh = first_window(h, w.pad_h, w.kernel_h, w.by_stride_h); oh < end_window(h, w.pad_h, w.out_h, w.by_stride_h); oh++)
        for (int ow = first_window(v, w.pad_w, w.kernel_w, w.by_stride_w); ow < end_window(v, w.pad_w, w.out_w, w.by_stride_w); ow++) {
            const int at = (map * w.out_h + oh) * w.out_w + ow;
            if (chosen[at] == place) sum += dy[at];
        }
    dx[AT] = rectified_back(sum, x[AT], of_relu);
}

KERNEL(ITEMS) avg_pool_forward(GLOBAL const float *x, GLOBAL float *y, struct echi_window w, int count) {
    if (AT >= count) return;
    const int map = divided(AT, w.by_out_map), rest = AT - map * w.out_h * w.out_w;
    const int oh = divided(rest, w.by_out_w), ow = rest - oh * w.out_w;
    const struct inside in = inside_of(w, oh, ow);
    float sum = 0;
    for (int h = in.h; h < in.h_end; h++)
        for (int v = in.v; v < in.v_end; v++) sum += x[(map * w.in_h + h) * w.in_w + v];
    y[AT] = sum / (w.kernel_h * w.kernel_w);
}

KERNEL(ITEMS) avg_pool_backward(GLOBAL const float *dy, GLOBAL float *dx, struct echi_window w, int count) {
    if (AT >= count) return;
    const int map = divided(AT, w.by_in_map), rest = AT - map * w.in_h * w.in_w, h = divided(rest, w.by_in_w), v = rest - h * w.in_w;
    float sum = 0;
    for (int oh = first_window(h, w.pad_h, w.kernel_h, w.by_stride_h); oh < end_window(h, w.pad_h, w.out_h, w.by_stride_h); oh++)
        for (int ow = first_window(v, w.pad_w, w.kernel_w, w.by_stride_w); ow < end_window(v, w.pad_w, w.out_w, w.by_stride_w); ow++)
            sum += dy[(map * w.out_h + oh) * w.out_w + ow] / (w.kernel_h * w.kernel_w);
    dx[AT] = sum;
}
