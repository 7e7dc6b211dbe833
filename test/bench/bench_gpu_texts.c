/* SPDX-License-Identifier: Apache-2.0
 * Square products by the CUDA texts of ops/gpu on a card, as echi_product_choose launches them, beside cuBLAS where its library can be
 * opened: seconds with both operands packed anew each time, as for activations, and without, as for weights that stay. Where a product's
 * sums are dealt to several blocks, adding up their parts is in both.
 * usage: bench_gpu_texts FOLDER-OF-IMAGES (test/bench/gpu_texts.sh makes them) */
#include "gpu/echi_gpu.h"
#include "ops/card.h"

#include <dlfcn.h>
#include <stdio.h>

struct work {
    struct echi_product_plan plan;
    float *a, *b, *to, *sum;
    unsigned *packed_a, *packed_b;
    int size, precision;
};

static void pack(struct work *w, const struct echi_product_pack *how, float *from, unsigned *to) {
    struct echi_pack p = how->how;
    card_launch(echi_product_packs(w->plan.text), how->kernel,
                (void *[]){&from, &to, &p}, &(struct card_launch){{how->groups, 1, 1}, ECHI_PACK_ITEMS, 0});
}
static void pack_both(void *context) {
    struct work *w = context;
    pack(w, &w->plan.a, w->a, w->packed_a);
    pack(w, &w->plan.b, w->b, w->packed_b);
}
static void multiply(void *context) {
    struct work *w = context;
    struct echi_product_plan *l = &w->plan;
    card_launch(l->text, l->kernel,
                (void *[]){&w->packed_a, &w->packed_b, &w->a, &w->to, &l->rows, &l->cols, &l->words, &l->slice, &l->put, &l->gather},
                &(struct card_launch){{l->groups[0], l->groups[1], l->groups[2]}, l->items, l->shared});
    int count = l->rows * l->cols;
    if (l->parts > 1)
        card_launch(ECHI_PRODUCT_PORTABLE, "sum_parts", (void *[]){&w->to, &w->sum, &count, &l->parts},
                    &(struct card_launch){{(count + ECHI_GPU_ITEMS - 1) / ECHI_GPU_ITEMS, 1, 1}, ECHI_GPU_ITEMS, 0});
}
static void all(void *context) {
    pack_both(context);
    multiply(context);
}

/* cuBLAS, by the names and numbers of its header: floats in memory, or for bf16 the packed words, which are its matrices. */
static void *handle;
static int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int,
                   int, int, int);
static void cublas_open(void) {
    void *library = dlopen("libcublas.so.13", RTLD_NOW);
    int (*create)(void **);
    if (library == NULL) library = dlopen("libcublas.so.12", RTLD_NOW);
    if (library == NULL) return;
    *(void **)&create = dlsym(library, "cublasCreate_v2");
    *(void **)&gemm = dlsym(library, "cublasGemmEx");
    if (create == NULL || gemm == NULL || create(&handle) != 0) handle = NULL;
}
static void cublas(void *context) {
    enum { N = 0, T = 1, FLOAT = 0, BF16 = 14, COMPUTE_FLOAT = 68, COMPUTE_TF32 = 77, ANY = -1 };
    static const float one = 1, zero = 0;
    struct work *w = context;
    const bool bf16 = w->precision == ECHI_PRODUCT_BF16;
    const void *a = bf16 ? (void *)w->packed_a : w->a, *b = bf16 ? (void *)w->packed_b : w->b;
    const int n = w->size, type = bf16 ? BF16 : FLOAT;
    const int code = gemm(handle, T, N, n, n, n, &one, b, type, n, a, type, n, &zero, w->sum, FLOAT, n,
                          w->precision == ECHI_PRODUCT_TF32 ? COMPUTE_TF32 : COMPUTE_FLOAT, ANY);
    if (code != 0) fprintf(stderr, "cublasGemmEx: %d\n", code);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"float", "tf32", "bf16"};
    struct echi_product_card card;
    const char *why = "one argument: the folder of images";
    if (argc != 2 || !card_open(argv[1], &card, &why)) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    cublas_open();
    printf("compute capability %d.%d, %d multiprocessors\n", card.major, card.minor, card.units);
    printf("%-6s %-5s %-28s %10s %10s %10s %12s\n", "", "n", "kernel", "TFLOP/s", "packed", "cuBLAS", "of cuBLAS");
    for (int precision = ECHI_PRODUCT_FLOAT; precision <= ECHI_PRODUCT_BF16; precision++)
        for (int n = 1024; n <= 8192; n *= 2)
            for (int major = card.major; major >= 8; major--) {   /* of a 9.0 also what an 8.0 takes */
                const struct echi_product product = {.op = ECHI_PRODUCT_MATRIX, .precision = (enum echi_product_precision)precision,
                                                     .rows = n, .cols = n, .depth = n, .row_a = n, .k_a = 1, .k_b = 1, .col_b = n};
                const struct echi_product_card as = {major, major == card.major ? card.minor : 0, card.units, card.shared_most, 0};
                struct work w = {.size = n, .precision = precision};
                echi_product_choose(&product, &as, &w.plan);
                if (w.plan.text == ECHI_PRODUCT_PORTABLE || (major < card.major && precision == ECHI_PRODUCT_FLOAT)) continue;
                const size_t count = (size_t)n * (size_t)n;
                w.a = card_array(count), w.b = card_array(count), w.sum = card_array(count);
                w.to = card_array(count * (size_t)w.plan.parts);
                w.packed_a = card_array(w.plan.a.words), w.packed_b = card_array(w.plan.b.words);
                for (size_t i = 0; i < count; i++) {
                    w.a[i] = (float)(i * 7919 % 31) / 31 - 0.5f;
                    w.b[i] = (float)(i * 104729 % 37) / 37 - 0.5f;
                }
                const double operations = 2e-12 * n * n * n, whole = card_time(all, &w, 10), product_only = card_time(multiply, &w, 10),
                    theirs = handle != NULL ? card_time(cublas, &w, 10) : 0;
                printf("%-6s %-5d %-28s %10.1f %10.1f %10.1f %12.2f\n", names[precision], n, w.plan.kernel, operations / whole,
                       operations / product_only, theirs > 0 ? operations / theirs : 0, theirs / whole);
                card_free();
            }
    return 0;
}
