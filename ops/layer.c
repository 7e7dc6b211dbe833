/* SPDX-License-Identifier: Apache-2.0
 * What one layer must be like before any arithmetic touches it. */
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_stack_impl.h"

const char *echi_op_name(enum echi_op op) {
    static const char *const names[] = {[ECHI_OP_CONV2D] = "conv2d", [ECHI_OP_FC] = "fc", [ECHI_OP_MAX_POOL] = "max_pool",
                                        [ECHI_OP_AVG_POOL] = "avg_pool", [ECHI_OP_RELU] = "relu",
                                        [ECHI_OP_GLOBAL_AVG_POOL] = "global_avg_pool", [ECHI_OP_ADD] = "add",
                                        [ECHI_OP_DROPOUT] = "dropout", [ECHI_OP_BATCH_NORM] = "batch_norm",
                                        [ECHI_OP_TANH] = "tanh"};
    return (unsigned)op < sizeof names / sizeof names[0] ? names[op] : "unknown";
}

static ech_status wrong(const struct echi_layer *l, const char *what, struct ech_error *err) {
    return echi_fail_at(err, ECH_E_SHAPE, "stack.create", -1, l->name, "layer '%s' (%s, %dx%dx%d to %dx%dx%d): %s", l->name,
                        echi_op_name(l->op), l->in.c, l->in.h, l->in.w, l->out.c, l->out.h, l->out.w, what);
}

/* c*h*w, when all are positive and the product is a size. */
static bool shape_size(struct echi_shape s, size_t *out) {
    return s.c > 0 && s.h > 0 && s.w > 0 && echi_mul_size((size_t)s.c, (size_t)s.h, out) && echi_mul_size(*out, (size_t)s.w, out);
}

/* Whether `out` is what the window gives along one side. */
static bool side_fits(int in, int out, int kernel, int stride, int pad) {
    if (kernel < 1 || stride < 1 || pad < 0) return false;
    int64_t room = (int64_t)in + 2 * (int64_t)pad - kernel;
    return room >= 0 && room / stride + 1 == out;
}

/* Floats in the weights of a layer: what one output is a sum over, times the outputs. */
static bool count_weights(const struct echi_layer *l, size_t in_size, size_t *out) {
    if (l->op == ECHI_OP_FC) return echi_mul_size((size_t)l->out.c, in_size, out);
    if (l->op == ECHI_OP_BATCH_NORM) return echi_mul_size((size_t)l->out.c, 1, out);
    return echi_mul_size((size_t)l->out.c, (size_t)l->in.c, out) && echi_mul_size(*out, (size_t)l->kernel_h, out) &&
           echi_mul_size(*out, (size_t)l->kernel_w, out);
}

ech_status echi_layer_check(const struct echi_layer *l, struct ech_error *err) {
    size_t in_size = 0, out_size = 0, weights = 0;
    if ((unsigned)l->op >= ECHI_OPS)
        return echi_fail_at(err, ECH_E_UNSUPPORTED, "stack.create", -1, l->name, "layer '%s': operation %d is not known", l->name,
                            (int)l->op);
    if (!shape_size(l->in, &in_size) || !shape_size(l->out, &out_size)) return wrong(l, "every side must be at least 1", err);

    bool pool = l->op == ECHI_OP_MAX_POOL || l->op == ECHI_OP_AVG_POOL || l->op == ECHI_OP_GLOBAL_AVG_POOL;
    if (pool || l->op == ECHI_OP_CONV2D) {
        if (!side_fits(l->in.h, l->out.h, l->kernel_h, l->stride_h, l->pad_h) ||
            !side_fits(l->in.w, l->out.w, l->kernel_w, l->stride_w, l->pad_w))
            return wrong(l, "kernel, stride and padding do not lead from the input's to the output's height and width", err);
    }
    if (pool && (l->pad_h >= l->kernel_h || l->pad_w >= l->kernel_w))
        return wrong(l, "the padding must be smaller than the window, or some windows hold nothing", err);
    if (pool && l->in.c != l->out.c) return wrong(l, "a pool keeps the number of channels", err);
    if (l->op == ECHI_OP_GLOBAL_AVG_POOL && (l->kernel_h != l->in.h || l->kernel_w != l->in.w || l->pad_h != 0 || l->pad_w != 0))
        return wrong(l, "the window must be the whole map", err);
    if (l->op == ECHI_OP_FC && (l->out.h != 1 || l->out.w != 1)) return wrong(l, "the output must be a vector", err);
    bool keeps_shape = l->op == ECHI_OP_RELU || l->op == ECHI_OP_TANH || l->op == ECHI_OP_ADD || l->op == ECHI_OP_DROPOUT ||
                       l->op == ECHI_OP_BATCH_NORM;
    if (keeps_shape && (l->in.c != l->out.c || l->in.h != l->out.h || l->in.w != l->out.w))
        return wrong(l, "the output must have the input's shape", err);
    if (l->op == ECHI_OP_DROPOUT && l->drop >= ECHI_WHOLE) return wrong(l, "it drops everything", err);

    const bool norm = l->op == ECHI_OP_BATCH_NORM, has_params = norm || l->op == ECHI_OP_CONV2D || l->op == ECHI_OP_FC;
    if (has_params && !count_weights(l, in_size, &weights)) return wrong(l, "too many weights", err);
    const size_t biases = has_params && (norm || l->bias) ? (size_t)l->out.c : 0, running = norm ? 2 * (size_t)l->out.c : 0;
    if (l->weights != weights || l->biases != biases || l->running != running)
        return echi_fail_at(err, ECH_E_SHAPE, "stack.create", -1, l->name,
                            "layer '%s': %zu weights, %zu biases and %zu running averages are given, its shapes ask for %zu, %zu and %zu",
                            l->name, l->weights, l->biases, l->running, weights, biases, running);
    return ECH_OK;
}
