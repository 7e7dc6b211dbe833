/* SPDX-License-Identifier: Apache-2.0
 * What an implementation of a stack supplies. ops/stack.c checks every argument and the order of calls, then calls the
 * table; it is the table's only caller, so implementations may assume clean input: unit in range, n in 1..max_n, buffers
 * on the stack's device and large enough, input before forward, forward before backward. */
#ifndef ECHI_STACK_IMPL_H
#define ECHI_STACK_IMPL_H
#include "echi_ops.h"

/* Layers [first, end), what was chosen for them, and why: or "". turned: numbers of a sample that a training step brings into another
 * layout. fallback: the reference computes it, since the implementation lacks kernels for it. */
struct echi_stack_unit { int first, end; char kernel[48], why[96]; size_t turned; bool fallback; };

struct echi_stack_impl {
    const char *name;
    bool far;            /* for devices whose memory the host does not see; the others are for the host */
    double rounding;     /* what a product's numbers are rounded by first, of themselves at most; 0: not at all */
    bool own_layout;   /* samples do not lie in [N][C][H][W] inside: they are converted at the border */
    /* *out_state is the implementation's own; fills units[0..*out_units) (room for `count`) and *out_bytes. A layer that it has no
     * kernels for is computed by the reference, in a unit of its own that says so, or refused by name with ECH_E_UNSUPPORTED.
     * out_state NULL, unless `far`: nothing is made, and no memory is taken but for such units, for as long as the call. */
    ech_status (*create)(struct echi_device *device, const struct echi_layer *layers, int count, int max_n, void **out_state,
                         struct echi_stack_unit *units, int *out_units, size_t *out_bytes, struct ech_error *err);
    void (*destroy)(void *state);
    int (*block)(const void *state);    /* echi_stack_block; no entry: 1 */
    void (*input)(void *state, int n, const echi_real *rows);
    void (*same_params)(void *state);   /* of the step that `input` began; no entry: parameters are read where they lie */
    void (*train)(void *state, const struct echi_training *training);   /* the step that `input` began trains */
    void (*forward)(void *state, int unit, const echi_real *params);
    void (*output)(void *state, echi_real *rows);
    void (*loss)(void *state, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct);
    void (*output_grad)(void *state, const echi_real *rows);
    void (*backward)(void *state, int unit, const echi_real *params, echi_real *grads, bool need_input_grad);
    /* The same in two halves, the second of all units behind the first of all: what others take, and what is left. No entries: the first is
     * all, with need_input_grad. */
    void (*backward_inputs)(void *state, int unit, const echi_real *params, echi_real *grads);
    void (*backward_params)(void *state, int unit, echi_real *grads);
    /* Are the gradients of a unit that has gone backward there? With `waits` they are, on return. No entry: at once. */
    bool (*grads)(void *state, int unit, bool waits);
    void (*input_grad)(void *state, echi_real *rows);
    /* The kernels, of those that this device would be given, which it can do without: others compute the same, more slowly. NULL, or no
     * entry: none. */
    const struct echi_source *(*spare)(const struct echi_device *device);
    /* What has gone wrong since the stack was made; asked after each of the calls above. No entry: nothing can. */
    ech_status (*trouble)(void *state, struct ech_error *err);
    /* Of a unit that begins with a batch-norm; the second only behind the first. No entries: it does not stop there. */
    void (*norm_sums)(void *state, int unit, bool backward, const echi_real *params, echi_real *out);
    void (*norm_take)(void *state, int unit, bool backward, int n, const echi_real *all);
};
/* Places that layers share are as large as one of them wants. */
static inline void raise_to(size_t *room, size_t wanted) {
    if (*room < wanted) *room = wanted;
}
/* Between units lie *boundaries*: number 0 is the stack's input, u + 1 the output of unit u. A unit takes what its first layer takes, so
 * an output that another unit takes must be the end of one. That of output `number` of the layers, of those of units [0, count): */
int echi_stack_boundary(const struct echi_stack_unit *units, int count, int number);
/* dropout.c. What a dropout multiplies the numbers of one sample by, in their order: `out` has room for those of its shape. */
void echi_dropout_factors(const struct echi_layer *layer, uint64_t seed, struct echi_row row, echi_real *out);
/* batch_norm.c. sqrt(variance + epsilon); and the gradients of the running averages, into their places, after a step that trained on n
 * samples with these statistics [in.c] (variance: divided by n * h * w). */
double echi_norm_deviation(double variance);
void echi_norm_running_grad(const struct echi_layer *layer, int n, const echi_real *params, const echi_real *mean,
                            const echi_real *variance, echi_real share, echi_real *grads);

/* The fastest that a device has. */
const struct echi_stack_impl *echi_stack_usual(const struct echi_device *device);
/* What these kernels are on a device; NULL: the usual. */
const struct echi_stack_impl *echi_stack_chosen(const struct echi_device *device, enum echi_kernels kernels);
/* As echi_stack_create, with an implementation by name: tests hold each against the reference. */
ech_status echi_stack_create_with(struct echi_device *device, const struct echi_stack_impl *impl, const struct echi_layer *layers,
                                  int count, int max_n, struct echi_stack **out, struct ech_error *err);
/* ECH_OK when the layer's shapes, window and parameter counts fit together. */
ech_status echi_layer_check(const struct echi_layer *layer, struct ech_error *err);

extern const struct echi_stack_impl echi_stack_reference;   /* ops/ref: seven loops, [N][C][H][W] */
extern const struct echi_stack_impl echi_stack_gpu;         /* ops/gpu: kernels of OpenCL and CUDA */
extern const struct echi_stack_impl echi_stack_gpu_tf32, echi_stack_gpu_bf16;   /* the same with tensor cores, where a card has them */
extern const struct echi_stack_impl echi_stack_cpu;         /* ops/cpu: blocks of samples, batch-minor, vector kernels */
extern const struct echi_stack_impl echi_stack_cpu_close;   /* the same with F(2x2, 3x3) at most, whose rounding is not coarser */
extern const struct echi_stack_impl echi_stack_cpu_plain;   /* the same without either */
extern const struct echi_stack_impl echi_stack_cpu_bf16, echi_stack_cpu_bf16_close, echi_stack_cpu_bf16_plain;   /* the three in bf16 */
extern const struct echi_stack_impl echi_stack_cpu_fixed;   /* the same with kernels that give the same bits on every machine */
#endif
