/* SPDX-License-Identifier: Apache-2.0
 * Convolution in seven loops. For every sample, output channel and output place:
 *     y = bias + sum over input channel and kernel place of x * weight,
 * where kernel place (kh, kw) lies over input place (oh * stride - pad + kh, ow * stride - pad + kw), and places outside the
 * input count as zero. Both backward functions are the same seven loops: each product y += x * w of the forward gives
 * dx += dy * w and dw += dy * x. */
#include "echi_ref.h"

#include <string.h>

static bool inside(int place, int size) { return place >= 0 && place < size; }

/* Place in weight [out.c][in.c][kh][kw]. */
static size_t weight_at(const struct echi_layer *l, int oc, int ic, int kh, int kw) {
    return echi_ref_at((struct echi_shape){l->in.c, l->kernel_h, l->kernel_w}, oc, ic, kh, kw);
}

void ECHI_REF(conv2d_forward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *weight, const echi_real *bias,
                              echi_real *y) {
    for (int s = 0; s < n; s++)
        for (int oc = 0; oc < l->out.c; oc++)
            for (int oh = 0; oh < l->out.h; oh++)
                for (int ow = 0; ow < l->out.w; ow++) {
                    echi_real sum = bias != NULL ? bias[oc] : 0;
                    for (int ic = 0; ic < l->in.c; ic++)
                        for (int kh = 0; kh < l->kernel_h; kh++)
                            for (int kw = 0; kw < l->kernel_w; kw++) {
                                int ih = oh * l->stride_h - l->pad_h + kh;
                                int iw = ow * l->stride_w - l->pad_w + kw;
                                if (!inside(ih, l->in.h) || !inside(iw, l->in.w)) continue;
                                sum += x[echi_ref_at(l->in, s, ic, ih, iw)] * weight[weight_at(l, oc, ic, kh, kw)];
                            }
                    y[echi_ref_at(l->out, s, oc, oh, ow)] = sum;
                }
}

void ECHI_REF(conv2d_backward_input)(const struct echi_layer *l, int n, const echi_real *dy, const echi_real *weight, echi_real *dx) {
    memset(dx, 0, (size_t)n * echi_shape_size(l->in) * sizeof *dx);
    for (int s = 0; s < n; s++)
        for (int oc = 0; oc < l->out.c; oc++)
            for (int oh = 0; oh < l->out.h; oh++)
                for (int ow = 0; ow < l->out.w; ow++) {
                    echi_real d = dy[echi_ref_at(l->out, s, oc, oh, ow)];
                    for (int ic = 0; ic < l->in.c; ic++)
                        for (int kh = 0; kh < l->kernel_h; kh++)
                            for (int kw = 0; kw < l->kernel_w; kw++) {
                                int ih = oh * l->stride_h - l->pad_h + kh;
                                int iw = ow * l->stride_w - l->pad_w + kw;
                                if (!inside(ih, l->in.h) || !inside(iw, l->in.w)) continue;
                                dx[echi_ref_at(l->in, s, ic, ih, iw)] += d * weight[weight_at(l, oc, ic, kh, kw)];
                            }
                }
}

void ECHI_REF(conv2d_backward_params)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dweight,
                                      echi_real *dbias) {
    memset(dweight, 0, l->weights * sizeof *dweight);
    if (dbias != NULL) memset(dbias, 0, l->biases * sizeof *dbias);
    for (int s = 0; s < n; s++)
        for (int oc = 0; oc < l->out.c; oc++)
            for (int oh = 0; oh < l->out.h; oh++)
                for (int ow = 0; ow < l->out.w; ow++) {
                    echi_real d = dy[echi_ref_at(l->out, s, oc, oh, ow)];
                    if (dbias != NULL) dbias[oc] += d;
                    for (int ic = 0; ic < l->in.c; ic++)
                        for (int kh = 0; kh < l->kernel_h; kh++)
                            for (int kw = 0; kw < l->kernel_w; kw++) {
                                int ih = oh * l->stride_h - l->pad_h + kh;
                                int iw = ow * l->stride_w - l->pad_w + kw;
                                if (!inside(ih, l->in.h) || !inside(iw, l->in.w)) continue;
                                dweight[weight_at(l, oc, ic, kh, kw)] += d * x[echi_ref_at(l->in, s, ic, ih, iw)];
                            }
                }
}
