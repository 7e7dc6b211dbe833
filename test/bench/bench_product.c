/* SPDX-License-Identifier: Apache-2.0
 * Matrix products as the library uses them, on one thread: a fully connected layer of `in` numbers to `out`, forward, backward to data and
 * backward to weights, each out x in x batch.
 *
 *     bench_product                     a table over the sizes of bench_product.h
 *     bench_product bf16                the same in bf16, from floats and to floats
 *     bench_product openblas LIBRARY    the same products by that library's cblas_sgemm: row after row, nothing packed beforehand
 *     bench_product sizes               those sizes, IN,OUT,BATCH
 *     bench_product peak                multiply-adds in registers alone: the most that a core can do, in GFLOP/s */
#include "bench_product.h"
#include "bench_unit.h"

#include <dlfcn.h>
#include <string.h>

/* ---- a library with cblas_sgemm ---- */

typedef void sgemm_function(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                            int ldb, float beta, float *c, int ldc);
enum { ROWS = 101, AS_IT_IS = 111, TURNED = 112 };

struct peer { sgemm_function *sgemm; float *w, *x, *y, *dw, *dx, *dy; struct bench_size size; };

static double theirs(void *peer, bool back, bool data) {
    const struct peer *p = peer;
    const int in = p->size.in, out = p->size.out, n = p->size.batch;
    const int64_t start = echi_now();
    if (!back) p->sgemm(ROWS, AS_IT_IS, AS_IT_IS, out, n, in, 1, p->w, in, p->x, n, 0, p->y, n);
    else p->sgemm(ROWS, AS_IT_IS, TURNED, out, in, n, 1, p->dy, n, p->x, n, 0, p->dw, in);
    if (data) p->sgemm(ROWS, TURNED, AS_IT_IS, in, n, out, 1, p->w, in, p->dy, n, 0, p->dx, n);
    return (double)(echi_now() - start) * 1e-9;
}

/* ---- both ---- */

static void row(struct bench_size size, bench_seconds *seconds, void *of) {
    const double flops = 2.0 * size.in * size.out * size.batch;
    printf("%5d to %4d, batch %4d", size.in, size.out, size.batch);
    for (int part = 0; part < PARTS; part++) {
        const double s = bench_median(seconds, of, part);
        printf("  %8.3f ms %4.0f GF", 1e3 * s, flops / s * 1e-9);
    }
    printf("\n");
    fflush(stdout);
}

static int table(enum echi_kernels kernels) {
    for (size_t i = 0; i < BENCH_SIZES; i++) {
        const struct bench_size size = bench_sizes[i];
        struct bench_unit b;
        bench_begin(&b, &(struct echi_layer){.name = "fc", .op = ECHI_OP_FC, .in = {size.in, 1, 1}, .out = {size.out, 1, 1},
                                             .weights = (size_t)size.in * (size_t)size.out}, size.batch, kernels);
        row(size, bench_unit_seconds, &b);
        bench_end(&b);
    }
    return 0;
}

static int peer_table(const char *path, bool peek) {
    void *library = dlopen(path, RTLD_NOW);
    struct peer p = {0};
    if (library) *(void **)&p.sgemm = dlsym(library, "cblas_sgemm");
    if (!p.sgemm) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    for (size_t i = 0; i < BENCH_SIZES && !peek; i++) {
        struct echi_random r;
        echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
        p.size = bench_sizes[i];
        const struct { float **of; int rows, columns; } all[] = {
            {&p.w, p.size.in, p.size.out}, {&p.dw, p.size.in, p.size.out}, {&p.x, p.size.in, p.size.batch},
            {&p.dx, p.size.in, p.size.batch}, {&p.y, p.size.out, p.size.batch}, {&p.dy, p.size.out, p.size.batch}};
        const int count = sizeof all / sizeof all[0];
        for (int k = 0; k < count; k++) *all[k].of = bench_floats(&r, (size_t)all[k].rows * (size_t)all[k].columns);
        row(p.size, theirs, &p);
        for (int k = 0; k < count; k++) free(*all[k].of);
    }
    dlclose(library);
    return 0;
}

int main(int argc, char **argv) {
    const bool peek = argc > 1 && strcmp(argv[argc - 1], "peek") == 0;   /* only whether it would work: exit status */
    if (peek) argc--;
    if (argc == 1) return table(ECHI_KERNELS_FAST);
    if (argc == 2 && strcmp(argv[1], "bf16") == 0) {
        if (echi_cpu_bf16_lacks()[0]) return 1;
        return peek ? 0 : table(ECHI_KERNELS_BF16_FAST);
    }
    if (argc == 3 && strcmp(argv[1], "openblas") == 0) return peer_table(argv[2], peek);
    if (argc == 2 && strcmp(argv[1], "sizes") == 0) {
        for (size_t i = 0; i < BENCH_SIZES; i++) printf("%d,%d,%d\n", bench_sizes[i].in, bench_sizes[i].out, bench_sizes[i].batch);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "peak") == 0) {
        double peak = 0;
        for (int i = 0; i < 20; i++) {
            const double once = bench_peak();
            if (once > peak) peak = once;
        }
        printf("%.0f\n", peak);
        return 0;
    }
    fprintf(stderr, "usage: bench_product [bf16 | openblas LIBRARY | sizes | peak] [peek]\n");
    return 2;
}
