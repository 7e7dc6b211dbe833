/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions with stride 1 and padding 1 on one thread, as units of a stack: forward, backward to data and backward to weights.
 *
 *     bench_conv                        a table over the layers of VGG and ResNet at batch 32
 *     bench_conv IN OUT SIDE N PART     one number, milliseconds: the median; PART forward, data or weights
 * Rates are of the operations that the plain sum of products takes, however few were made. */
#include "echi_ops.h"
#include "echi_os.h"
#include "echi_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum part { FORWARD, DATA, WEIGHTS, PARTS };
static const char *const part_names[PARTS] = {"forward", "data", "weights"};

struct bench {
    struct echi_device *device;
    struct echi_stack *stack;
    struct echi_buffer *params, *grads;
    float *in, *out;
    int n;
};

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static float *random_floats(struct echi_random *r, size_t count) {
    float *p = malloc(count * sizeof *p);
    if (!p) exit(1);
    for (size_t i = 0; i < count; i++) p[i] = (float)echi_random_normal(r);
    return p;
}

static void begin(struct bench *b, int in, int out, int side, int n) {
    struct ech_error err;
    struct echi_random r;
    struct echi_layer l = {.name = "conv", .op = ECHI_OP_CONV2D, .in = {in, side, side}, .out = {out, side, side}, .kernel_h = 3, .kernel_w = 3,
                           .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1, .weights = (size_t)in * (size_t)out * 9};
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    b->n = n;
    check(echi_device_open("cpu", 1, &b->device, &err), &err);
    check(echi_stack_create(b->device, ECHI_KERNELS_FAST, &l, 1, n, &b->stack, &err), &err);
    check(echi_buffer_create(b->device, l.weights * sizeof(float), &b->params, &err), &err);
    check(echi_buffer_create(b->device, l.weights * sizeof(float), &b->grads, &err), &err);
    float *w = echi_buffer_host(b->params);
    for (size_t i = 0; i < l.weights; i++) w[i] = (float)echi_random_normal(&r);
    b->in = random_floats(&r, (size_t)n * echi_shape_size(l.in));
    b->out = random_floats(&r, (size_t)n * echi_shape_size(l.out));
}

static void end(struct bench *b) {
    echi_stack_destroy(b->stack);
    echi_buffer_destroy(b->params);
    echi_buffer_destroy(b->grads);
    echi_device_close(b->device);
    free(b->in);
    free(b->out);
}

/* Seconds of one forward; of one backward, with the gradient of the input or without. */
static double seconds(struct bench *b, bool back, bool data) {
    struct ech_error err;
    check(echi_stack_input(b->stack, b->n, b->in, &err), &err);
    const int64_t start = echi_now();
    check(echi_stack_forward(b->stack, 0, b->params, &err), &err);
    const int64_t forward = echi_now() - start;
    if (!back) return (double)forward * 1e-9;
    check(echi_stack_output_grad(b->stack, b->out, &err), &err);
    const int64_t began = echi_now();
    check(echi_stack_backward(b->stack, 0, b->params, b->grads, data, &err), &err);
    return (double)(echi_now() - began) * 1e-9;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of some runs, of about a third of a second in all. */
static double median_of(struct bench *b, enum part part) {
    enum { MOST = 400 };
    double value[MOST];
    int runs = 0;
    for (int64_t until = echi_now() + 350000000; runs < MOST && (runs < 5 || echi_now() < until); runs++)
        value[runs] = part == DATA ? seconds(b, true, true) - seconds(b, true, false) : seconds(b, part == WEIGHTS, false);
    qsort(value, (size_t)runs, sizeof *value, by_value);
    return value[runs / 2];
}

static void table(void) {
    static const int layers[][3] = {{3, 64, 32},   {64, 64, 32},   {64, 128, 16},  {128, 128, 16}, {128, 256, 8},
                                    {256, 256, 8}, {256, 512, 4},  {512, 512, 4},  {512, 512, 2}};
    printf("batch 32          kernel                     forward            to data         to weights\n");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        const int in = layers[i][0], out = layers[i][1], side = layers[i][2];
        const double flops = 2.0 * 9 * in * out * side * side * 32;
        struct bench b;
        begin(&b, in, out, side, 32);
        printf("%3d to %3d @ %-2d    %-22s", in, out, side, echi_stack_kernel(b.stack, 0));
        for (int part = 0; part < PARTS; part++) {
            const double s = median_of(&b, (enum part)part);
            printf("  %7.2f ms %4.0f GF", 1e3 * s, flops / s * 1e-9);
        }
        printf("\n");
        fflush(stdout);
        end(&b);
    }
}

int main(int argc, char **argv) {
    if (argc == 1) {
        table();
        return 0;
    }
    struct bench b;
    for (int part = 0; part < PARTS && argc == 6; part++)
        if (strcmp(argv[5], part_names[part]) == 0) {
            begin(&b, atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
            printf("%.4f\n", 1e3 * median_of(&b, (enum part)part));
            end(&b);
            return 0;
        }
    fprintf(stderr, "usage: bench_conv [IN OUT SIDE N forward|data|weights]\n");
    return 2;
}
