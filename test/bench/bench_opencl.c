/* SPDX-License-Identifier: Apache-2.0
 * Products of matrices on the first OpenCL device, all in its memory: those of a fully connected layer, n x n x n, ours and CLBlast's in
 * turn.
 *
 *     bench_opencl LIBRARY    a table: milliseconds and GFLOP/s of ours and of CLBlast's, medians, and the median of their ratios
 *     bench_opencl            ours alone */
#include "echi_backends.h"
#include "echi_hal_impl.h"
#include "echi_random.h"
#include "gpu/echi_gpu.h"
#include "opencl/echi_opencl.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int sizes[] = {256, 384, 512, 768, 1024, 1536, 2048};
enum { SIZES = sizeof sizes / sizeof sizes[0], PARTS = 3, RUNS_MOST = 101 };
static const char *const kernel_names[PARTS] = {"fc_forward", "fc_backward_input", "fc_backward_weight"};
static const char *const part_names[PARTS] = {"A B^T", "A B", "A^T B"};

/* CLBlast's clblast_c.h */
typedef int sgemm_function(int layout, int a_turned, int b_turned, size_t m, size_t n, size_t k, float alpha, cl_mem a, size_t a_at,
                           size_t a_row, cl_mem b, size_t b_at, size_t b_row, float beta, cl_mem c, size_t c_at, size_t c_row,
                           cl_command_queue *queue, cl_event *event);
enum { ROWS = 101, AS_IT_IS = 111, TURNED = 112 };

struct bench {
    struct echi_device *device;
    struct echi_queue *queue;
    struct echi_kernel *kernel[PARTS];
    struct echi_gpu_tile tile;
    sgemm_function *sgemm;
    cl_command_queue theirs;
    int n;
    struct echi_buffer *a, *b, *c;
};

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static double ours(struct bench *b, int part) {
    const int32_t no = 0, n = b->n;
    const size_t down = ((size_t)n + b->tile.high - 1) / b->tile.high, across = ((size_t)n + b->tile.wide - 1) / b->tile.wide;
    const struct echi_launch how = {{across, down, 1}, b->tile.items, 0};
    struct echi_argument args[12];
    struct ech_error err;
    echi_event event;
    int count = 0;
    args[count++] = (struct echi_argument){.buffer = b->a};
    args[count++] = (struct echi_argument){.buffer = b->b};
    if (part < 2) args[count++] = (struct echi_argument){.buffer = b->b};                       /* a bias, what a ReLU gave: but there is */
    for (int i = part; i < 2; i++) args[count++] = (struct echi_argument){.value = &no, .bytes = sizeof no};   /* neither */
    args[count++] = (struct echi_argument){.buffer = b->c};
    for (int i = 0; i < 4; i++) args[count++] = (struct echi_argument){.value = &n, .bytes = sizeof n};
    const int64_t start = echi_now();
    check(echi_queue_launch(b->queue, b->kernel[part], args, count, &how, &err), &err);
    check(echi_queue_event(b->queue, &event, &err), &err);
    check(echi_event_wait(b->queue, event, echi_now() + (int64_t)60 * 1000000000, &err), &err);
    return (double)(echi_now() - start) * 1e-9;
}

static double theirs(struct bench *b, int part) {
    const struct echi_opencl_calls *cl = &echi_opencl_runtime()->cl;
    const size_t n = (size_t)b->n;
    const int64_t start = echi_now();
    const int code = b->sgemm(ROWS, part == 2 ? TURNED : AS_IT_IS, part == 0 ? TURNED : AS_IT_IS, n, n, n, 1, b->a->memory, 0, n,
                              b->b->memory, 0, n, 0, b->c->memory, 0, n, &b->theirs, NULL);
    cl->clFinish(b->theirs);
    if (code != 0) {
        fprintf(stderr, "CLBlast answers %d\n", code);
        exit(1);
    }
    return (double)(echi_now() - start) * 1e-9;
}

/* --- */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, by_value);
    return value[count / 2];
}

static void read_c(struct bench *b, float *out) {
    struct ech_error err;
    echi_event event;
    check(echi_queue_read(b->queue, b->c, 0, out, echi_buffer_bytes(b->c), &err), &err);
    check(echi_queue_event(b->queue, &event, &err), &err);
    check(echi_event_wait(b->queue, event, echi_now() + (int64_t)60 * 1000000000, &err), &err);
}

/* Of small whole numbers, so both are exact and the same. */
static void same_answer(struct bench *b, int part) {
    const size_t count = echi_buffer_bytes(b->c) / sizeof(float);
    float *one = malloc(count * sizeof *one), *other = malloc(count * sizeof *other);
    if (!one || !other) exit(1);
    ours(b, part);
    read_c(b, one);
    theirs(b, part);
    read_c(b, other);
    for (size_t i = 0; i < count; i++)
        if (one[i] != other[i]) {
            fprintf(stderr, "%d, %s: number %zu is %g, CLBlast has %g\n", b->n, part_names[part], i, (double)one[i], (double)other[i]);
            exit(1);
        }
    free(one);
    free(other);
}

static void row(struct bench *b, int part) {
    double mine[RUNS_MOST], peer[RUNS_MOST], over[RUNS_MOST];
    const double flops = 2.0 * b->n * b->n * b->n;
    int runs = 0;
    if (b->sgemm) same_answer(b, part);   /* which also compiles what is to be compiled */
    else ours(b, part);
    for (int64_t until = echi_now() + 1000000000; runs < RUNS_MOST && (runs < 3 || echi_now() < until); runs++) {
        mine[runs] = ours(b, part);
        peer[runs] = b->sgemm ? theirs(b, part) : (double)NAN;
        over[runs] = peer[runs] / mine[runs];
    }
    const double m = median(mine, runs);
    printf("%5d  %-6s %9.3f ms %6.1f GF", b->n, part_names[part], 1e3 * m, flops / m * 1e-9);
    if (b->sgemm) {
        const double p = median(peer, runs);
        printf("   CLBlast %9.3f ms %6.1f GF   over it %6.2f", 1e3 * p, flops / p * 1e-9, median(over, runs));
    }
    printf("   (%d runs)\n", runs);
    fflush(stdout);
}

static struct echi_buffer *matrix(struct bench *b, float *numbers) {
    struct ech_error err;
    struct echi_buffer *buffer;
    const size_t bytes = (size_t)b->n * (size_t)b->n * sizeof(float);
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    for (size_t i = 0; i < bytes / sizeof(float); i++) numbers[i] = (float)echi_random_below(&r, 7) - 3;
    check(echi_buffer_create(b->device, bytes, &buffer, &err), &err);
    check(echi_queue_write(b->queue, buffer, 0, numbers, bytes, &err), &err);
    return buffer;
}

int main(int argc, char **argv) {
    const struct echi_opencl_runtime *r = echi_opencl_runtime();
    struct bench b = {0};
    struct ech_error err;
    struct echi_program *program;
    if (argc > 2) {
        fprintf(stderr, "usage: bench_opencl [LIBRARY]\n");
        return 2;
    }
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (library) *(void **)&b.sgemm = dlsym(library, "CLBlastSgemm");
    if (r->count == 0 || (argc == 2 && !b.sgemm)) {
        fprintf(stderr, "%s\n", r->count == 0 ? "OpenCL has no device here" : dlerror());
        return 77;
    }
    check(echi_device_open("opencl", 1, &b.device, &err), &err);
    const struct echi_device_info *info = echi_device_describe(b.device);
    const struct echi_opencl_device *device = b.device->impl;
    b.tile = info->gpu ? (struct echi_gpu_tile)ECHI_GPU_TILE : (struct echi_gpu_tile)ECHI_GPU_TILE_CPU;
    check(echi_device_program(b.device, info->gpu ? &echi_gpu_source : &echi_gpu_source_cpu, &program, &err), &err);
    check(echi_queue_create(b.device, &b.queue, &err), &err);
    for (int part = 0; part < PARTS; part++) check(echi_program_kernel(program, kernel_names[part], &b.kernel[part], &err), &err);
    cl_int code = 0;
    b.theirs = r->cl.clCreateCommandQueue(device->context, device->id, 0, &code);
    if (code != 0) return 1;
    printf("%s, driver %s, %d units\n", info->name, info->driver, info->compute_units);
    for (int i = 0; i < SIZES; i++) {
        b.n = sizes[i];
        float *numbers = malloc((size_t)b.n * (size_t)b.n * sizeof *numbers);
        if (!numbers) return 1;
        b.a = matrix(&b, numbers), b.b = matrix(&b, numbers), b.c = matrix(&b, numbers);
        for (int part = 0; part < PARTS; part++) row(&b, part);
        echi_buffer_destroy(b.a);
        echi_buffer_destroy(b.b);
        echi_buffer_destroy(b.c);
        free(numbers);
    }
    r->cl.clReleaseCommandQueue(b.theirs);
    echi_queue_destroy(b.queue);
    echi_device_close(b.device);
    return 0;
}
