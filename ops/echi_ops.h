/* SPDX-License-Identifier: Apache-2.0
 * The arithmetic of a network: what a layer is, and a *stack*, a run of layers made ready for one device.
 *
 * A stack holds the activations of one mini-batch in flight. The calls for one step are, in this order:
 *     echi_stack_input, echi_stack_train when training, echi_stack_forward for each unit, then either
 *       (with the loss here)  echi_stack_loss,                    or
 *       (loss elsewhere)      echi_stack_output ... echi_stack_output_grad
 *     echi_stack_backward for each unit from the last to the first, echi_stack_grads, and, if wanted, echi_stack_input_grad.
 * A unit that begins with a batch-norm may be stopped at, forward and backward: echi_stack_norm_sums, then echi_stack_norm_take.
 * A *unit* is one or more layers that run as one (a convolution with its ReLU and pooling): the finest place at which a
 * step can be interrupted for more urgent work.
 *
 * Rows are float, one sample after the other, each [C][H][W] (lib/model/README.md): the border layout. What a stack uses
 * inside is its own business. Gradients are *sums* over the batch of whatever the loss was scaled with (design, 6).
 * One thread at a time per stack. No call allocates after echi_stack_create. */
#ifndef ECHI_OPS_H
#define ECHI_OPS_H
#include "ech_status.h"
#include "echi_hal.h"
#include "echi_real.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_WHOLE 1000000u   /* ratios are counted in millionths, so that every machine sends, or drops, the same values */

enum echi_op {
    ECHI_OP_CONV2D, ECHI_OP_FC, ECHI_OP_MAX_POOL, ECHI_OP_AVG_POOL, ECHI_OP_RELU,
    ECHI_OP_GLOBAL_AVG_POOL,     /* an average pool whose one window is the whole map */
    ECHI_OP_ADD,                 /* the sum of two outputs of one shape (He et al., "Deep residual learning", CVPR 2016) */
    ECHI_OP_DROPOUT,             /* Srivastava et al., JMLR 2014, scaled while training, as PyTorch does */
    ECHI_OP_TANH,
    ECHI_OP_BATCH_NORM,          /* Ioffe and Szegedy, ICML 2015: below */
    ECHI_OPS
};
const char *echi_op_name(enum echi_op op);                     /* "conv2d" */

struct echi_shape { int c, h, w; };                            /* of one sample; a vector is c x 1 x 1 */
static inline size_t echi_shape_size(struct echi_shape s) { return (size_t)s.c * (size_t)s.h * (size_t)s.w; }

/* One layer, with its shapes already inferred and checked (lib/model does both). */
struct echi_layer {
    char name[32];               /* "conv1"; parameters are "conv1.weight", "conv1.bias" */
    enum echi_op op;
    struct echi_shape in, out;
    int skip, with;              /* it takes the output of the layer that stands 1 + skip before it (0: the one before), an add also that
                                    of the one 1 + with before it; counted backwards, so that a run of layers says the same by itself */
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;   /* conv2d and pools */
    uint32_t drop;               /* dropout: so many millionths of the numbers become 0, below ECHI_WHOLE */
    uint32_t number;             /* dropout: its place in the model, which keys what is drawn for it */
    bool bias;                   /* conv2d and fc */
    size_t weight_at, weights;   /* place and number of floats in the flat parameter array; [out,in,kh,kw] or [out,in]; batch_norm [out] */
    size_t bias_at, biases;      /* [out] */
    size_t running_at, running;  /* batch_norm: running means [out], then running variances [out] */
};
/* Pools: padding counts as absent (max) and as zeros in the divisor (average, as PyTorch's default count_include_pad).
 * Output size floor((in + 2 pad - kernel) / stride) + 1. Of equal values in a window max-pool takes the first in row
 * order; ReLU's derivative at 0 is 0. While training, dropout multiplies each number by 0 or by 1 / (1 - p), p = drop in
 * millionths; else it changes nothing.
 *
 * Batch-norm: y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, each channel by its own: while training by mean and variance of the
 * n * h * w numbers that the batch has of it, else by the running ones. These are parameters too. Their gradient is how far they are from
 * the batch's (the variance with n * h * w - 1 in its divisor), times the step's share of a round, at most 1: so an update w - 0.1 g
 * makes the running averages that PyTorch makes of whole batches, and gradients of shares, delayed or summed, mean what they mean
 * elsewhere (design, 6). A sample's output and its input's gradient then depend on those beside it in the batch. */
#define ECHI_NORM_EPSILON 1e-5
#define ECHI_NORM_RATE 0.1       /* of running averages, a round */

/* Outputs of a run of layers have numbers: 0 is its input, i + 1 what its layer i gives. Those that layer i takes: */
static inline int echi_layer_takes(const struct echi_layer *layers, int i) { return i - layers[i].skip; }
static inline int echi_layer_adds(const struct echi_layer *layers, int i) { return i - layers[i].with; }   /* an add: the second */
/* Floats of the flat array that are the layer's. */
static inline size_t echi_layer_params(const struct echi_layer *l) { return l->weights + l->biases + l->running; }
static inline struct echi_shape echi_output_shape(const struct echi_layer *layers, int number) {
    return number > 0 ? layers[number - 1].out : layers[0].in;
}
/* How often the layers take output `number`. */
static inline int echi_output_readers(const struct echi_layer *layers, int count, int number) {
    int readers = 0;
    for (int i = number; i < count; i++)
        readers += (echi_layer_takes(layers, i) == number) + (layers[i].op == ECHI_OP_ADD && echi_layer_adds(layers, i) == number);
    return readers;
}

/* FAST may sum convolutions by Winograd's F(4x4, 3x3) and F(2x2, 5x5), which round some four times coarser than plain sums; CLOSE only by
 * F(2x2, 3x3), which rounds as they do; PLAIN: directly. FIXED: the same bits on every machine. But for batch-norm what one sample gives
 * does not depend on those beside it in the batch; the gradient of a parameter is a sum over the batch, in an order of its own. */
enum echi_kernels {
    ECHI_KERNELS_FAST, ECHI_KERNELS_CLOSE, ECHI_KERNELS_PLAIN, ECHI_KERNELS_FIXED, ECHI_KERNELS_REFERENCE,
    /* The first three with the products of fully connected layers in bf16, and of convolutions where that is faster than the others are:
     * what is multiplied is rounded to the nearest bf16, by 2^-8 of itself at most; sums, parameters and all else are floats.
     * ECH_E_UNSUPPORTED where the processor cannot. */
    ECHI_KERNELS_BF16_FAST, ECHI_KERNELS_BF16_CLOSE, ECHI_KERNELS_BF16_PLAIN,
    /* And with those products in TF32 on devices that have tensor cores for it: rounded by 2^-11 at most. On others they are floats. */
    ECHI_KERNELS_TF32_FAST, ECHI_KERNELS_TF32_CLOSE, ECHI_KERNELS_TF32_PLAIN
};

/* Opens a device for stacks with these kernels, as echi_device_open does. One that is not the host computes each op once first, beside the
 * reference. Where that differs, or breaks the device, and there are slower kernels for the same, it does without the faster ones
 * (echi_device_kernels_from tells); where there are none, or its compiler refuses them, ECH_E_UNSUPPORTED says so. Compiled kernels are
 * kept in the folder `keep`, NULL: nowhere. "auto" is the fastest of the GPUs that pass and "cpu", by
 * echi_device_rate where there is a GPU: some are slower than a processor. */
ech_status echi_ops_open(const char *spec, int threads, enum echi_cpu_level level, enum echi_kernels kernels, const char *keep,
                         struct echi_device **out, struct ech_error *err);
/* Multiply-adds a second of a large product of matrices, forward, by these kernels; its weights' way to the device counts. Takes about a
 * tenth of a second. On failure *out_rate is that of the largest product that was computed: 0 if none was. */
ech_status echi_device_rate(struct echi_device *device, enum echi_kernels kernels, double *out_rate, struct ech_error *err);

struct echi_stack;

/* Makes `count` layers ready for batches of 1..max_n samples. `layers` is copied. Every output but the last must be taken. */
ech_status echi_stack_create(struct echi_device *device, enum echi_kernels kernels, const struct echi_layer *layers, int count,
                             int max_n, struct echi_stack **out, struct ech_error *err);
void echi_stack_destroy(struct echi_stack *stack);             /* NULL is harmless */
size_t echi_stack_bytes(const struct echi_stack *stack);       /* of activations and scratch */
/* The same of a stack that echi_stack_create would make with these arguments, without its memory; errors as there, but for that of memory.
 * ECH_E_UNSUPPORTED where the device's memory is not the host's. */
ech_status echi_stack_count(struct echi_device *device, enum echi_kernels kernels, const struct echi_layer *layers, int count, int max_n,
                            size_t *out_bytes, struct ech_error *err);
int echi_stack_block(const struct echi_stack *stack);         /* samples that its kernels compute together: a step of one more than a
                                                                 multiple of it takes about as long as one of the next; 1: none */
int echi_stack_units(const struct echi_stack *stack);
void echi_stack_unit(const struct echi_stack *stack, int unit, int *out_first, int *out_end);   /* layers [first, end) */
const char *echi_stack_kernel(const struct echi_stack *stack, int unit);   /* what was chosen: "conv+relu+maxpool avx512" */
const char *echi_stack_why(const struct echi_stack *stack, int unit);      /* and why others were not:
                                                                              "direct sums take 2.9 times as long"; or "" */
/* The kernels chosen have none for the unit's layer, and the reference computes it, many times more slowly. */
bool echi_stack_fallback(const struct echi_stack *stack, int unit);

/* Numbers of one sample that change their layout, 0 in the reference: at the border, where they are [N][C][H][W] and inside they are not,
 * as the input or its gradient passes it, or the output or its gradient; and inside, in a unit, in a step that trains. */
size_t echi_stack_border_in(const struct echi_stack *stack);
size_t echi_stack_border_out(const struct echi_stack *stack);
size_t echi_stack_turned(const struct echi_stack *stack, int unit);

/* Begins a step: n samples. rows [n][in.c*in.h*in.w]; not needed any more after the call. */
ech_status echi_stack_input(struct echi_stack *stack, int n, const echi_real *rows, struct ech_error *err);
/* Between input and the first forward: this step trains; without this call it evaluates. What dropout draws depends on (seed, epoch,
 * sample, layer, place) and on nothing else (design, 6, "Randomness"): its rows are these samples of the training set, in these epochs.
 * rows [n], not needed any more after the call; NULL where no layer is a dropout. share > 0: what part of a round the n samples are, for
 * batch-norm's running averages. */
struct echi_row { uint32_t epoch, sample; };
struct echi_training { uint64_t seed; const struct echi_row *rows; echi_real share; };
ech_status echi_stack_train(struct echi_stack *stack, const struct echi_training *training, struct ech_error *err);
/* Between input and the first forward: the parameters of this step are, number by number, those of the step before. A device that has these
 * then copies nothing; without this call it takes them anew. */
ech_status echi_stack_same_params(struct echi_stack *stack, struct ech_error *err);
/* `params` is the whole flat array of the model, of which the layers' places are read. It, and `grads` below, are memory of the host, on
 * any device; where that is pinned memory of the stack's device, it is read without a copy in between. A device may still be reading when
 * this returns: what lies there stays as it is until output, loss, input_grad or the next input has returned, or, of a unit that goes
 * backward, echi_stack_grads. */
ech_status echi_stack_forward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct ech_error *err);
/* Output of the last unit: rows [n][out]. */
ech_status echi_stack_output(struct echi_stack *stack, echi_real *rows, struct ech_error *err);
/* Softmax and cross-entropy over the last unit's output. labels [n], each below out.c. Sets the gradient of the output
 * to scale * (softmax - onehot). *out_loss: sum over samples of -log p (unscaled); *out_correct: samples whose largest
 * output is at their label. Non-finite losses are reported as such, not as a failure. */
ech_status echi_stack_loss(struct echi_stack *stack, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct,
                           struct ech_error *err);
/* Gradient of the last unit's output, given from elsewhere: rows [n][out]. */
ech_status echi_stack_output_grad(struct echi_stack *stack, const echi_real *rows, struct ech_error *err);
/* Backward of one unit. *Sets* (does not add to) the unit's places in `grads`, a flat array like `params`. need_input_grad: what
 * it takes gets its share of the gradient; the shares of an output that several units take are added up, the last unit's first. */
ech_status echi_stack_backward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct echi_buffer *grads,
                               bool need_input_grad, struct ech_error *err);
/* As with need_input_grad, but gradients of parameters may be left for later: whoever waits for that of the stack's input has it the
 * sooner. They are there after echi_stack_backward_params for each unit, in any order, in the same step: the same bits. */
ech_status echi_stack_backward_inputs(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct echi_buffer *grads,
                                      struct ech_error *err);
ech_status echi_stack_backward_params(struct echi_stack *stack, int unit, struct echi_buffer *grads, struct ech_error *err);
/* The gradients of units that have gone backward may still be on their way from the device, while it computes the next unit's. Waits until
 * those of `unit`, and of all units behind it, lie in the `grads` that they were given; before the next input. On the host they do at
 * once. */
ech_status echi_stack_grads(struct echi_stack *stack, int unit, struct ech_error *err);
/* Do those of `unit` already? True where something went wrong: echi_stack_grads says what. */
bool echi_stack_grads_there(const struct echi_stack *stack, int unit);
/* Batch-norm over more samples than this stack has (synchronous batch-norm: Peng et al., "MegDet", CVPR 2018, section 3.2). Right before
 * a unit's forward, or its backward, in a step that trains, what its batch-norm sums over the stack's own samples is given out, and what
 * that comes to over all samples is taken in, which the unit's next call goes by. Gradients of weight and bias stay sums over the own. */
int echi_stack_norm(const struct echi_stack *stack, int unit);   /* channels of the batch-norm that the unit begins with; 0: with none */
/* out [2][channels]: forward the means, then the variances (divided by n * h * w); backward the sums of the gradient of what the
 * batch-norm gives, and of that times the normalised number. */
ech_status echi_stack_norm_sums(struct echi_stack *stack, int unit, const struct echi_buffer *params, echi_real *out,
                                struct ech_error *err);
/* Behind that, maybe: the same of n samples, the stack's own among them. all [2][channels], not needed any more after the call. Backward
 * those who have left since are missed in the sums, but the statistics are still of as many as forward: n is not looked at. */
ech_status echi_stack_norm_take(struct echi_stack *stack, int unit, int n, const echi_real *all, struct ech_error *err);
/* Makes those of more samples of those of parts: `to`, of n samples (0: of none yet), takes in `part`, of m > 0. Means and variances by
 * Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979; backward sums are added. */
void echi_norm_join(echi_real *to, uint32_t n, const echi_real *part, uint32_t m, int channels, bool backward);
/* After backward of unit 0, and of all that take the input, with need_input_grad: rows [n][in]. */
ech_status echi_stack_input_grad(struct echi_stack *stack, echi_real *rows, struct ech_error *err);

/* --- arithmetic on flat ranges of parameters; at and count in floats --- */

/* How an optimiser steps on a push of weight f = n/B (design, 6, "Optimisers under asynchrony").
 *   SGD, as PyTorch's with dampening 0:  d = g + l2*w;  v = momentum*v + d;
 *     the step is lr*v, with Nesterov's momentum lr*(d + momentum*v).
 *   Adam (Kingma and Ba, ICLR 2015, algorithm 1), as PyTorch's:  d = per_f*g + l2*w;  m = keep1*m + gain1*d;  s = keep2*s + gain2*d*d;
 *     the step is lr*m / (sqrt(whole2*s) + epsilon) + shrink*w.
 * What depends on f, or on what m and s weigh so far, is in the numbers: echi_adam_take (lib/core) makes them. */
enum echi_rule { ECHI_RULE_SGD, ECHI_RULE_NESTEROV, ECHI_RULE_ADAM };
struct echi_step {
    enum echi_rule rule;
    echi_real lr;                /* Adam's is divided by what m weighs */
    echi_real l2;                /* SGD: f * weight decay; Adam: weight decay */
    echi_real momentum;          /* SGD; 0: v counts as 0, and is neither read nor written */
    echi_real per_f;             /* Adam, as all below: 1/f */
    echi_real keep1, gain1, keep2, gain2;
    echi_real whole2;            /* 1 / what s weighs */
    echi_real epsilon;           /* above 0 */
    echi_real shrink;            /* AdamW (Loshchilov and Hutter, ICLR 2019): f * lr * weight decay, and no l2 */
};
/* What an optimiser remembers of a range: v or m, and Adam's s, each [count], from these floats of `buffer` on. */
struct echi_moments { struct echi_buffer *buffer; size_t first_at, second_at; };
/* On a whole push: w_out = w - the step. Here and below a moment under the normal numbers is kept as 0 (echi_real.h says why), and g is
 * only read. w_out may be w (in place) or another buffer (a fresh snapshot). */
ech_status echi_apply(struct echi_device *device, const struct echi_buffer *w, struct echi_buffer *w_out, const struct echi_moments *v,
                      const struct echi_buffer *g, size_t at, size_t count, const struct echi_step *how, struct ech_error *err);
/* What w has gone since `origin`, downwards and weighted: delta = (origin - w) * weight; origin = w. */
ech_status echi_take_delta(struct echi_device *device, struct echi_buffer *delta, const struct echi_buffer *w, struct echi_buffer *origin,
                           size_t at, size_t count, echi_real weight, struct ech_error *err);
/* The same way, from another place: w = from + (w - origin); origin = from. Where w is origin, both become `from` exactly. */
ech_status echi_rebase(struct echi_device *device, struct echi_buffer *w, struct echi_buffer *origin, const struct echi_buffer *from,
                       size_t at, size_t count, struct ech_error *err);
/* sum += g */
ech_status echi_add(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *g, size_t at, size_t count,
                    struct ech_error *err);
/* x *= factor */
ech_status echi_scale(struct echi_device *device, struct echi_buffer *x, size_t at, size_t count, echi_real factor, struct ech_error *err);
/* sum[at + i] = from[at + i] * from_factor + x[i] * factor, each product rounded by itself; `from` may be the sum, NULL: x alone. `x` is
 * memory of the host, apart from the sum. */
ech_status echi_add_scaled(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *from, echi_real from_factor,
                           size_t at, const echi_real *x, size_t count, echi_real factor, struct ech_error *err);
/* to = x * factor, by the thread that calls; the two are apart. */
void echi_scaled(echi_real *to, const echi_real *x, size_t count, echi_real factor);
/* The change instead of the weights (design, 6, "Owner's state"): a_out = a - the step. */
ech_status echi_apply_state(struct echi_device *device, const struct echi_buffer *w, const struct echi_buffer *a, struct echi_buffer *a_out,
                            const struct echi_moments *v, const struct echi_buffer *g, size_t at, size_t count, const struct echi_step *how,
                            struct ech_error *err);
/* w = w0 + states[0] + states[1] + ... in that order, bit for bit the same on every node. */
ech_status echi_sum_states(struct echi_device *device, struct echi_buffer *w, const struct echi_buffer *w0,
                           const struct echi_buffer *const *states, int n_states, size_t at, size_t count, struct ech_error *err);
/* Sums that do not depend on the order of their terms: 64-bit integers that count 2^-44. Buffers named `sum` and `terms` hold
 * one int64_t for each parameter. ECH_E_DIVERGED when a gradient or a sum lies beyond what they can hold (about 2^18). */
ech_status echi_exact_take(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *g, size_t at, size_t count,
                           bool add, struct ech_error *err);            /* sum = g, or with `add` sum += g */
/* sum = from + terms[0] + terms[1] + ...; `from` may be `sum` itself. */
ech_status echi_exact_add(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *from,
                          const struct echi_buffer *const *terms, int n_terms, size_t at, size_t count, struct ech_error *err);
ech_status echi_exact_round(struct echi_device *device, struct echi_buffer *g, const struct echi_buffer *sum, size_t at, size_t count,
                            struct ech_error *err);                    /* g = sum, rounded once */
/* --- changes written short (design, 6, "Two kinds of link"); codec.c says how the bytes lie --- */

/* Which of a range go: the ceil(count * ratio) largest by magnitude, found by a threshold taken from a sample (Lin et al., Deep
 * Gradient Compression, ICLR 2018; lib/PROTOCOL.md). Never a zero. Of the sample each place is a pure function of (seed, turn,
 * part). */
struct echi_topk {
    uint32_t ratio, sample;      /* millionths, 1..ECHI_WHOLE: of the range that go; of it that the threshold is taken from */
    uint64_t seed;
    uint32_t turn, part;         /* which message of its link, and what of it: no two selections of a run have the same */
};
/* Room for one selection at a time in ranges of up to `most` numbers. */
struct echi_codec_room;
ech_status echi_codec_room_create(size_t most, struct echi_codec_room **out, struct ech_error *err);
void echi_codec_room_destroy(struct echi_codec_room *room);    /* NULL is harmless */
/* Places of what goes, ascending, in out_index, which has room for `count`; returns how many. x holds finite numbers only. */
size_t echi_topk_select(const struct echi_device *device, const echi_real *x, size_t count, const struct echi_topk *how,
                        uint32_t *out_index);

/* Bytes of what is written for `count` numbers: at most; and for what lies at `bytes`, as its first words say, 0 when they make no
 * sense or promise other than `len` bytes. The second reads eight bytes only; places are
 * checked when they are decoded. */
size_t echi_coded_most(size_t count);
size_t echi_coded_length(const void *bytes, size_t len, size_t count);
/* Are these `len` bytes just what echi_decode takes? Reads all of them, as one does with what a stranger wrote. */
bool echi_coded_fits(const void *bytes, size_t len, size_t count);
/* A push: residual += g (with `fresh` residual = g), the largest of it are written to `out` at byte out_at, and are 0 in it from then on;
 * so residual + written is what residual + g was, bit for bit. ECH_E_DIVERGED when a number is not finite; residual is lost then. */
ech_status echi_code_push(struct echi_device *device, struct echi_buffer *residual, const struct echi_buffer *g, size_t at, size_t count,
                          bool fresh, const struct echi_topk *how, struct echi_codec_room *room, struct echi_buffer *out, size_t out_at,
                          struct ech_error *err);
/* A state: of the numbers of w that differ the most from `known`, which the receiver has, the values themselves; they are in known from
 * then on. Ratio ECHI_WHOLE writes all, whatever they are. ECH_E_DIVERGED as above. */
ech_status echi_code_state(struct echi_device *device, struct echi_buffer *known, const struct echi_buffer *w, size_t at, size_t count,
                           const struct echi_topk *how, struct echi_codec_room *room, struct echi_buffer *out, size_t out_at,
                           struct ech_error *err);
/* What a stranger may have written, read back. ZERO: what was not sent becomes 0; SET: it stays; ADD: what was sent is added.
 * ECH_E_FORMAT, with x as it was, unless there are as many places as values, ascending and below count. */
enum echi_decode { ECHI_DECODE_ZERO, ECHI_DECODE_SET, ECHI_DECODE_ADD };
ech_status echi_decode(struct echi_device *device, struct echi_buffer *x, size_t at, size_t count, enum echi_decode how,
                       const struct echi_buffer *in, size_t in_at, struct ech_error *err);

/* --- numbers as bf16, of two bytes in the order that this processor has in memory: ref/bf16.c says how they are rounded. The same bits on
 * every machine; memory of the host, each place apart from the other --- */
void echi_to_bf16(struct echi_device *device, uint16_t *to, const echi_real *x, size_t count);
void echi_from_bf16(struct echi_device *device, echi_real *to, const uint16_t *x, size_t count);

/* True when every float of the range is finite. */
ech_status echi_all_finite(struct echi_device *device, const struct echi_buffer *x, size_t at, size_t count, bool *out_finite,
                           struct ech_error *err);
#endif
