/* SPDX-License-Identifier: Apache-2.0
 * 3 x 3 convolutions with stride 1 and padding 1 on one thread, as units of a stack: forward, backward to data and backward to weights.
 *
 *     bench_conv [bf16]                       a table over the layers of VGG and ResNet at batch 32
 *     bench_conv [bf16] IN OUT SIDE N PART    one number, milliseconds: the median; PART forward, data or weights
 * Rates are of the operations that the plain sum of products takes, however few were made. */
#include "bench_unit.h"

#include <string.h>

static const char *const part_names[PARTS] = {"forward", "data", "weights"};

static enum echi_kernels kernels = ECHI_KERNELS_FAST;

static void begin(struct bench_unit *b, int in, int out, int side, int n) {
    bench_begin(b, &(struct echi_layer){.name = "conv", .op = ECHI_OP_CONV2D, .in = {in, side, side}, .out = {out, side, side},
                                        .kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1,
                                        .weights = (size_t)in * (size_t)out * 9},
                n, kernels);
}

static void table(void) {
    static const int layers[][3] = {{3, 64, 32},   {64, 64, 32},   {64, 128, 16},  {128, 128, 16}, {128, 256, 8},
                                    {256, 256, 8}, {256, 512, 4},  {512, 512, 4},  {512, 512, 2}};
    printf("batch 32          kernel                     forward            to data         to weights\n");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        const int in = layers[i][0], out = layers[i][1], side = layers[i][2];
        const double flops = 2.0 * 9 * in * out * side * side * 32;
        struct bench_unit b;
        begin(&b, in, out, side, 32);
        printf("%3d to %3d @ %-2d    %-22s", in, out, side, echi_stack_kernel(b.stack, 0));
        for (int part = 0; part < PARTS; part++) {
            const double s = bench_median(bench_unit_seconds, &b, part);
            printf("  %7.2f ms %4.0f GF", 1e3 * s, flops / s * 1e-9);
        }
        printf("\n");
        fflush(stdout);
        bench_end(&b);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "bf16") == 0) kernels = ECHI_KERNELS_BF16_FAST, argc--, argv++;
    if (argc == 1) {
        table();
        return 0;
    }
    struct bench_unit b;
    for (int part = 0; part < PARTS && argc == 6; part++)
        if (strcmp(argv[5], part_names[part]) == 0) {
            begin(&b, atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
            printf("%.4f\n", 1e3 * bench_median(bench_unit_seconds, &b, part));
            bench_end(&b);
            return 0;
        }
    fprintf(stderr, "usage: bench_conv [bf16] [IN OUT SIDE N forward|data|weights]\n");
    return 2;
}
