/* SPDX-License-Identifier: Apache-2.0
 * A layer as its kernels see it. Host and kernels include this text: ints only, so both lay it out alike. */
#ifndef ECHI_GPU_WINDOW_H
#define ECHI_GPU_WINDOW_H
/* Division of 0 .. 2^31 - 1 by a number that is known beforehand: i / d = (i * multiply) >> shift in 64 bits (Granlund and Montgomery,
 * "Division by invariant integers using multiplication", PLDI 1994, section 4). Processors have no vectors that divide, and GPUs take
 * dozens of instructions. */
struct echi_divisor { unsigned multiply, shift; };
struct echi_window {
    int n;                       /* samples of the step */
    int in_c, in_h, in_w;
    int out_c, out_h, out_w;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    int far_h, far_w;            /* farther than any row (column) of the output is from another: products.cl, step_back */
    struct echi_divisor by_in_c, by_in_map, by_in_w, by_out_map, by_out_w;   /* map: h times w */
    struct echi_divisor by_area, by_kernel_w, by_stride_h, by_stride_w;      /* area: kernel_h times kernel_w */
};
#endif
