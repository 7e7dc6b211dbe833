/* SPDX-License-Identifier: Apache-2.0
 * One layer at work on one thread, as a unit of a stack, and medians of what it takes: the frame of bench_conv and bench_product. */
#ifndef BENCH_UNIT_H
#define BENCH_UNIT_H
#include "echi_ops.h"
#include "echi_os.h"
#include "echi_random.h"

#include <stdio.h>
#include <stdlib.h>

/* DATA and WEIGHTS: backward to the one and to the other. DATA is what a backward takes longer for it: as in training its operands have
 * made way in the caches for those of WEIGHTS, ours and a peer's. */
enum bench_part { FORWARD, DATA, WEIGHTS, PARTS };
/* Seconds of one forward; of one backward, with the gradient of the input or without. */
typedef double bench_seconds(void *of, bool back, bool data);

struct bench_unit {
    struct echi_device *device;
    struct echi_stack *stack;
    struct echi_buffer *params, *grads;
    float *in, *out;
    int n;
};

static void bench_check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static float *bench_floats(struct echi_random *r, size_t count) {
    float *p = malloc(count * sizeof *p);
    if (!p) exit(1);
    for (size_t i = 0; i < count; i++) p[i] = (float)echi_random_normal(r);
    return p;
}

/* Batch n of a layer that has weights alone, at place 0. */
static void bench_begin(struct bench_unit *b, const struct echi_layer *l, int n, enum echi_kernels kernels) {
    struct ech_error err;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    b->n = n;
    bench_check(echi_device_open("cpu", 1, &b->device, &err), &err);
    bench_check(echi_stack_create(b->device, kernels, l, 1, n, &b->stack, &err), &err);
    bench_check(echi_buffer_create(b->device, l->weights * sizeof(float), &b->params, &err), &err);
    bench_check(echi_buffer_create(b->device, l->weights * sizeof(float), &b->grads, &err), &err);
    float *w = echi_buffer_host(b->params);
    for (size_t i = 0; i < l->weights; i++) w[i] = (float)echi_random_normal(&r);
    b->in = bench_floats(&r, (size_t)n * echi_shape_size(l->in));
    b->out = bench_floats(&r, (size_t)n * echi_shape_size(l->out));
}

static void bench_end(struct bench_unit *b) {
    echi_stack_destroy(b->stack);
    echi_buffer_destroy(b->params);
    echi_buffer_destroy(b->grads);
    echi_device_close(b->device);
    free(b->in);
    free(b->out);
}

static double bench_unit_seconds(void *unit, bool back, bool data) {
    const struct bench_unit *b = unit;
    struct ech_error err;
    bench_check(echi_stack_input(b->stack, b->n, b->in, &err), &err);
    const int64_t start = echi_now();
    bench_check(echi_stack_forward(b->stack, 0, b->params, &err), &err);
    const int64_t forward = echi_now() - start;
    if (!back) return (double)forward * 1e-9;
    bench_check(echi_stack_output_grad(b->stack, b->out, &err), &err);
    const int64_t began = echi_now();
    bench_check(echi_stack_backward(b->stack, 0, b->params, b->grads, data, &err), &err);
    return (double)(echi_now() - began) * 1e-9;
}

static int bench_by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of a part, the median of some runs, of about a third of a second in all. */
static double bench_median(bench_seconds *seconds, void *of, int part) {
    enum { MOST = 400 };
    double value[MOST];
    int runs = 0;
    for (int64_t until = echi_now() + 350000000; runs < MOST && (runs < 5 || echi_now() < until); runs++)
        value[runs] = seconds(of, part != FORWARD, part == DATA) - (part == DATA ? seconds(of, true, false) : 0);
    qsort(value, (size_t)runs, sizeof *value, bench_by_value);
    return value[runs / 2];
}
#endif
