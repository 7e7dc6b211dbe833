/* SPDX-License-Identifier: Apache-2.0
 * What the tests of this folder share: layers made and chained by hand (independently of lib/model), one line of text
 * that names them when a check fails, and memory between guard bytes. */
#ifndef TEST_OPS_PROBLEM_H
#define TEST_OPS_PROBLEM_H
#include "echi_ops.h"
#include "echi_random.h"
#include "echi_stack_impl.h"
#include "part.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBLEM_LAYERS 24

struct problem {
    struct echi_layer layers[PROBLEM_LAYERS];
    int count;
    int skip;           /* of the next layer: see problem_from */
    size_t params;      /* floats, with a gap after each array: what lies there must stay as it is */
    char text[600];     /* "1x7x5 conv2d:3,k3x2,s2x1,p1x0,b maxpool:..." */
};

#define PROBLEM_GAP 3

static inline void problem_say(struct problem *p, const char *fmt, ...) {
    size_t used = strlen(p->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->text + used, sizeof p->text - used, fmt, args);
    va_end(args);
}

static inline void problem_begin(struct problem *p, int c, int h, int w) {
    memset(p, 0, sizeof *p);
    p->layers[0].in = (struct echi_shape){c, h, w};
    p->params = PROBLEM_GAP;
    problem_say(p, "%dx%dx%d", c, h, w);
}

static inline struct echi_shape problem_shape(const struct problem *p) {
    return echi_output_shape(p->layers, p->count - p->skip);
}

/* The next layer takes output `number`: 0 the input, 1 what the first layer gives. */
static inline void problem_from(struct problem *p, int number) {
    p->skip = p->count - number;
    if (p->skip) problem_say(p, " from:%d", number);
}

/* A layer that takes `in`, as the functions below begin it. */
static inline struct echi_layer *problem_next(struct problem *p, enum echi_op op) {
    const struct echi_shape in = problem_shape(p);
    struct echi_layer *l = &p->layers[p->count];
    memset(l, 0, sizeof *l);
    l->op = op;
    l->in = l->out = in;
    l->skip = p->skip;
    l->number = (uint32_t)p->count;
    p->skip = 0;
    snprintf(l->name, sizeof l->name, "%s%d", echi_op_name(op), ++p->count);
    return l;
}

static inline size_t problem_place(struct problem *p, size_t count) {
    size_t at = p->params;
    p->params += count + PROBLEM_GAP;
    return at;
}

/* Adds a convolution or pool. `out_c` is ignored for a pool. */
static inline struct echi_layer *problem_window(struct problem *p, enum echi_op op, int out_c, int kh, int kw, int sh, int sw, int ph,
                                                int pw, bool bias) {
    struct echi_layer *l = problem_next(p, op);
    const struct echi_shape in = l->in;
    l->kernel_h = kh, l->kernel_w = kw, l->stride_h = sh, l->stride_w = sw, l->pad_h = ph, l->pad_w = pw;
    l->out = (struct echi_shape){op == ECHI_OP_CONV2D ? out_c : in.c, (in.h + 2 * ph - kh) / sh + 1, (in.w + 2 * pw - kw) / sw + 1};
    problem_say(p, " %s:%d,k%dx%d,s%dx%d,p%dx%d%s", echi_op_name(op), l->out.c, kh, kw, sh, sw, ph, pw,
                op == ECHI_OP_CONV2D && bias ? ",b" : "");
    if (op != ECHI_OP_CONV2D) return l;
    l->bias = bias;
    l->weights = (size_t)out_c * (size_t)in.c * (size_t)kh * (size_t)kw;
    l->biases = bias ? (size_t)out_c : 0;
    l->weight_at = problem_place(p, l->weights);
    l->bias_at = problem_place(p, l->biases);
    return l;
}

static inline void problem_fc(struct problem *p, int out, bool bias) {
    struct echi_layer *l = problem_next(p, ECHI_OP_FC);
    l->out = (struct echi_shape){out, 1, 1};
    l->bias = bias;
    l->weights = (size_t)out * echi_shape_size(l->in);
    l->biases = bias ? (size_t)out : 0;
    l->weight_at = problem_place(p, l->weights);
    l->bias_at = problem_place(p, l->biases);
    problem_say(p, " fc:%d%s", out, bias ? ",b" : "");
}

static inline void problem_relu(struct problem *p) {
    problem_next(p, ECHI_OP_RELU);
    problem_say(p, " relu");
}

static inline void problem_global_avg_pool(struct problem *p) {
    const struct echi_shape in = problem_shape(p);
    problem_window(p, ECHI_OP_GLOBAL_AVG_POOL, 0, in.h, in.w, 1, 1, 0, 0, false);
}

static inline void problem_add(struct problem *p, int with) {
    struct echi_layer *l = problem_next(p, ECHI_OP_ADD);
    l->with = p->count - 1 - with;
    problem_say(p, " add:%d", with);
}

static inline void problem_dropout(struct problem *p, uint32_t drop) {
    problem_next(p, ECHI_OP_DROPOUT)->drop = drop;
    problem_say(p, " dropout:%u", drop);
}

static inline void problem_batch_norm(struct problem *p) {
    struct echi_layer *l = problem_next(p, ECHI_OP_BATCH_NORM);
    l->weights = l->biases = (size_t)l->in.c;
    l->running = 2 * l->weights;
    l->weight_at = problem_place(p, l->weights);
    l->bias_at = problem_place(p, l->biases);
    l->running_at = problem_place(p, l->running);
    problem_say(p, " batch_norm");
}

static inline void problem_lenet5(struct problem *p) {
    problem_begin(p, 1, 28, 28);
    problem_window(p, ECHI_OP_CONV2D, 6, 5, 5, 1, 1, 2, 2, true);
    problem_relu(p);
    problem_window(p, ECHI_OP_MAX_POOL, 0, 2, 2, 2, 2, 0, 0, false);
    problem_window(p, ECHI_OP_CONV2D, 16, 5, 5, 1, 1, 0, 0, true);
    problem_relu(p);
    problem_window(p, ECHI_OP_MAX_POOL, 0, 2, 2, 2, 2, 0, 0, false);
    problem_fc(p, 120, true);
    problem_relu(p);
    problem_fc(p, 84, true);
    problem_relu(p);
    problem_fc(p, 10, true);
}

/* --- the device of a group of tests: its set-up and tear-down --- */

static struct echi_device *problem_device __attribute__((unused));
static inline int problem_open_device(void **state) {
    (void)state;
    return echi_device_open("cpu", 1, &problem_device, NULL) == ECH_OK ? 0 : -1;
}
static inline int problem_close_device(void **state) {
    (void)state;
    echi_device_close(problem_device);
    return 0;
}

/* --- or one for each instruction set that this processor has: NULL where it lacks it --- */

struct problem_devices { struct echi_device *at[ECHI_CPU_LEVELS]; };
/* An implementation, and what it is to compute with. */
struct problem_candidate { const struct echi_stack_impl *impl; enum echi_cpu_level level; };

static inline bool problem_open_devices(struct problem_devices *devices, int threads) {
    bool good = true;
    for (enum echi_cpu_level level = ECHI_CPU_BASE; level <= echi_cpu_level(); level++)
        good = echi_device_open_at("cpu", threads, level, &devices->at[level], NULL) == ECH_OK && good;
    return good;
}
static inline void problem_close_devices(struct problem_devices *devices) {
    for (int level = 0; level < ECHI_CPU_LEVELS; level++) echi_device_close(devices->at[level]);
}

static inline int random_from(struct echi_random *r, int least, int most) {
    return least + (int)echi_random_below(r, (uint32_t)(most - least + 1));
}

/* Kernel, stride and padding that fit along one side. A kernel is now and then as large as it can be. */
static inline void random_side(struct echi_random *r, int in, int most_kernel, bool pool, int *kernel, int *stride, int *pad) {
    *pad = random_from(r, 0, 2);
    int most = in + 2 * *pad < most_kernel ? in + 2 * *pad : most_kernel;
    *kernel = echi_random_below(r, 8) == 0 ? (in + 2 * *pad < 9 ? in + 2 * *pad : 9) : random_from(r, 1, most);
    if (pool && *pad >= *kernel) *pad = *kernel - 1;
    if (*kernel > in + 2 * *pad) *kernel = in + 2 * *pad;
    if (pool && *pad >= *kernel) *pad = 0;
    *stride = random_from(r, 1, 3);
}

static inline void random_window(struct problem *p, struct echi_random *r, enum echi_op op) {
    struct echi_shape in = problem_shape(p);
    int kh, kw, sh, sw, ph, pw;
    random_side(r, in.h, 5, op != ECHI_OP_CONV2D, &kh, &sh, &ph);
    random_side(r, in.w, 5, op != ECHI_OP_CONV2D, &kw, &sw, &pw);
    problem_window(p, op, random_from(r, 1, 9), kh, kw, sh, sw, ph, pw, echi_random_below(r, 4) != 0);
}

static inline void problem_same_conv(struct problem *p, struct echi_random *r) {
    static const int sides[] = {1, 3, 5};
    const int k = sides[echi_random_below(r, 3)];
    problem_window(p, ECHI_OP_CONV2D, problem_shape(p).c, k, k, 1, 1, k / 2, k / 2, echi_random_below(r, 4) != 0);
}

/* A net of branches: layers that keep their shape and take any output before them, three convolutions at most, adds that join what
 * is left over (also with itself), and maybe a pool over all and an fc. Without `kinks` every output is linear in each number. */
static inline void problem_branches(struct problem *p, struct echi_random *r, bool kinks) {
    static const uint32_t drops[] = {0, 500000, 750000};   /* factors that are exact */
    int layers = random_from(r, 2, 7), convs = 0;
    for (int i = 0; i < layers; i++) {
        if (i > 0 && echi_random_below(r, 2) == 0) problem_from(p, random_from(r, 0, p->count));
        const uint32_t kind = echi_random_below(r, kinks ? 6 : 4);
        if (kind < 2 && convs++ < 3) problem_same_conv(p, r);
        else if (kind < 3) problem_dropout(p, drops[echi_random_below(r, 3)]);
        else if (kind == 3) problem_add(p, random_from(r, 0, p->count));
        else if (kind == 4) problem_relu(p);
        else problem_window(p, ECHI_OP_MAX_POOL, 0, 3, 3, 1, 1, 1, 1, false);
    }
    for (int number = 1; number < p->count; number++)
        if (echi_output_readers(p->layers, p->count, number) == 0) problem_add(p, number);
    const struct echi_shape end = problem_shape(p);
    const bool exact = (end.h & (end.h - 1)) == 0 && (end.w & (end.w - 1)) == 0;
    if ((exact || !kinks) && echi_random_below(r, 2) == 0) problem_global_avg_pool(p);
    if (echi_random_below(r, 2) == 0) problem_fc(p, random_from(r, 1, 20), true);
}

/* --- memory between guards --- */

#define GUARD_BYTES 256

struct guarded { uint8_t *block; size_t bytes; };

static inline struct guarded guarded_new(size_t bytes) {
    struct guarded g = {aligned_alloc(64, (2 * GUARD_BYTES + bytes + 63) / 64 * 64), bytes};
    if (g.block == NULL) abort();
    memset(g.block, 0xa5, GUARD_BYTES + bytes + GUARD_BYTES);
    return g;
}
static inline float *guarded_floats(struct guarded g) { return (float *)(void *)(g.block + GUARD_BYTES); }

static inline bool guards_intact(struct guarded g) {
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (g.block[i] != 0xa5 || g.block[GUARD_BYTES + g.bytes + i] != 0xa5) return false;
    return true;
}
#endif
