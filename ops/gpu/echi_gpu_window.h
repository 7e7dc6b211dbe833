/* SPDX-License-Identifier: Apache-2.0
 * A layer as its kernels see it. Host and kernels include this text: ints only, so both lay it out alike. */
struct echi_window {
    int n;                       /* samples of the step */
    int in_c, in_h, in_w;
    int out_c, out_h, out_w;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};
