/* SPDX-License-Identifier: Apache-2.0
 * The reference operations: what each layer means, in the plainest loops. Everything faster is compared with these.
 *
 * All arrays are dense, [n][c][h][w], one sample after the other. Backward functions *set* what they compute. A NULL bias
 * (or dbias) means that the layer has none.
 *
 * The text is compiled for float into the library. A test that wants it in double defines ECHI_DOUBLE and includes the .c
 * files: then all names end in _double. */
#ifndef ECHI_REF_H
#define ECHI_REF_H
#include "echi_stack_impl.h"

#ifdef ECHI_DOUBLE
#define ECHI_REF(name) echi_ref_##name##_double
#else
#define ECHI_REF(name) echi_ref_##name
#endif

/* One layer that another implementation leaves to the reference: the state of a reference stack of that layer alone, for the entries of
 * echi_stack_reference. Its rows are filled and read where they lie, [n][shape]. */
struct echi_ref_rows { echi_real *in, *out, *out_grad, *in_grad; };
ech_status echi_ref_unit_create(const struct echi_layer *layer, int max_n, void **out_state, size_t *out_bytes, struct ech_error *err);
struct echi_ref_rows echi_ref_unit_rows(const void *state);
void echi_ref_unit_begin(void *state, int n);   /* a step */
void echi_ref_unit_backward(void *state, const echi_real *params, echi_real *grads, bool need_input_grad);

/* Place of (sample, c, h, w) in an array of samples of shape `s`. */
static inline size_t echi_ref_at(struct echi_shape s, int sample, int c, int h, int w) {
    return (((size_t)sample * (size_t)s.c + (size_t)c) * (size_t)s.h + (size_t)h) * (size_t)s.w + (size_t)w;
}

/* x [n][in], weight [out.c][in.c][kh][kw], bias [out.c], y [n][out] */
void ECHI_REF(conv2d_forward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *weight, const echi_real *bias,
                              echi_real *y);
void ECHI_REF(conv2d_backward_input)(const struct echi_layer *l, int n, const echi_real *dy, const echi_real *weight, echi_real *dx);
void ECHI_REF(conv2d_backward_params)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dweight,
                                      echi_real *dbias);

/* x [n][in], weight [out.c][in], bias [out.c], y [n][out.c] */
void ECHI_REF(fc_forward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *weight, const echi_real *bias,
                          echi_real *y);
void ECHI_REF(fc_backward_input)(const struct echi_layer *l, int n, const echi_real *dy, const echi_real *weight, echi_real *dx);
void ECHI_REF(fc_backward_params)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dweight,
                                  echi_real *dbias);

void ECHI_REF(max_pool_forward)(const struct echi_layer *l, int n, const echi_real *x, echi_real *y);
void ECHI_REF(max_pool_backward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dx);
void ECHI_REF(avg_pool_forward)(const struct echi_layer *l, int n, const echi_real *x, echi_real *y);
void ECHI_REF(avg_pool_backward)(const struct echi_layer *l, int n, const echi_real *dy, echi_real *dx);

void ECHI_REF(relu_forward)(const struct echi_layer *l, int n, const echi_real *x, echi_real *y);
void ECHI_REF(relu_backward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, echi_real *dx);

void ECHI_REF(tanh_forward)(size_t count, const echi_real *x, echi_real *y);
void ECHI_REF(tanh_backward)(size_t count, const echi_real *y, const echi_real *dy, echi_real *dx);

/* y = a + b; the gradient of y is that of both. Also how the shares of a gradient are added up. y may be a. */
void ECHI_REF(add)(size_t count, const echi_real *a, const echi_real *b, echi_real *y);
/* y = x * factor, and dx = dy * factor, number by number: 0, or 1 / (1 - p). A NaN stays one. */
void ECHI_REF(dropout)(size_t count, const echi_real *x, const echi_real *factor, echi_real *y);

/* Mean and variance of each channel over a batch, [c] both; then, with these or with others, y [n][c][h][w]. Backward the sums of dy and
 * of dy times the normalised number, [2][c], which are the gradients of bias and weight; then dx, by the sums over all `of` samples whose
 * mean and variance these are, and which move with x; sums NULL: they stand still. */
void ECHI_REF(batch_norm_statistics)(const struct echi_layer *l, int n, const echi_real *x, echi_real *mean, echi_real *variance);
void ECHI_REF(batch_norm_forward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *weight, const echi_real *bias,
                                  const echi_real *mean, const echi_real *variance, echi_real *y);
void ECHI_REF(batch_norm_sums)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, const echi_real *mean,
                               const echi_real *variance, echi_real *sums);
void ECHI_REF(batch_norm_backward)(const struct echi_layer *l, int n, const echi_real *x, const echi_real *dy, const echi_real *weight,
                                   const echi_real *mean, const echi_real *variance, const echi_real *sums, int of, echi_real *dx);

/* y [n][classes], labels [n]. dy = scale * (softmax(y) - onehot); *out_loss = sum of -log softmax(y)[label]; *out_correct =
 * samples whose first largest output is at their label. */
void ECHI_REF(softmax_cross_entropy)(int n, int classes, const echi_real *y, const uint16_t *labels, echi_real scale, echi_real *dy,
                                     double *out_loss, int *out_correct);

/* Which of x go, as lib/PROTOCOL.md, "Sources", writes it down; `scratch` has room for count numbers. Like echi_topk_select. */
size_t ECHI_REF(topk)(size_t count, const echi_real *x, const struct echi_topk *how, echi_real *scratch, uint32_t *out_index);

/* y = x, rounded to bf16; and back, which is exact. */
void ECHI_REF(to_bf16)(size_t count, const echi_real *x, uint16_t *y);
void ECHI_REF(from_bf16)(size_t count, const uint16_t *x, echi_real *y);

/* g += decay * w; v = momentum * v + g, kept as echi_velocity says; w -= lr * v (g itself is left as it is) */
void ECHI_REF(sgd)(size_t count, echi_real *w, echi_real *v, const echi_real *g, echi_real lr, echi_real momentum, echi_real decay);
/* The t-th step, from 1, of moments that were 0 before the first: d = g + decay * w; m = beta1 * m + (1 - beta1) * d; s = beta2 * s +
 * (1 - beta2) * d * d; w -= lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon). Decoupled: d = g,
 * and first w -= lr * decay * w. */
void ECHI_REF(adam)(size_t count, echi_real *w, echi_real *m, echi_real *s, const echi_real *g, int t, echi_real lr, echi_real beta1,
                    echi_real beta2, echi_real epsilon, echi_real decay, bool decoupled);
#endif
