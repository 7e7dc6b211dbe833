/* SPDX-License-Identifier: Apache-2.0
 * What bench_product measures, and the peak that it is held against. */
#ifndef BENCH_PRODUCT_H
#define BENCH_PRODUCT_H
#include "echi_os.h"

struct bench_size { int in, out, batch; };
static const struct bench_size bench_sizes[] = {
    {256, 256, 256},  {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {400, 120, 16},    {400, 120, 64},     {400, 120, 128},
    {120, 84, 64},    {84, 10, 64},    {512, 10, 32},
    {9216, 4096, 16}, {9216, 4096, 64}, {4096, 4096, 16},   {4096, 4096, 64},   {4096, 1000, 16}, {4096, 1000, 64},
};
enum { BENCH_SIZES = sizeof bench_sizes / sizeof bench_sizes[0] };

/* GFLOP/s of multiply-adds on registers alone, with the widest vectors of the machine: the best of one short run. */
#if defined(__x86_64__)
#include <immintrin.h>
#define PEAK(name, isa, type, floats, zero, fma)                                                                                   \
    __attribute__((target(isa))) static double name(void) {                                                                       \
        enum { SUMS = 12, ROUNDS = 200000 };                                                                                       \
        type sum[SUMS], x = zero;                                                                                                  \
        for (int i = 0; i < SUMS; i++) sum[i] = zero;                                                                              \
        const int64_t start = echi_now();                                                                                          \
        for (int n = 0; n < ROUNDS; n++) {                                                                                         \
            _Pragma("GCC unroll 16") for (int i = 0; i < SUMS; i++) sum[i] = fma(x, x, sum[i]);                                    \
            __asm__ volatile("" : "+v"(x));                                                                                        \
        }                                                                                                                          \
        const double seconds = (double)(echi_now() - start) * 1e-9;                                                                \
        for (int i = 1; i < SUMS; i++) sum[0] = fma(sum[i], x, sum[0]);                                                            \
        __asm__ volatile("" : : "v"(sum[0]));                                                                                      \
        return 2.0 * floats * SUMS * ROUNDS / seconds * 1e-9;                                                                      \
    }
PEAK(bench_peak_avx512, "avx512f", __m512, 16, _mm512_setzero_ps(), _mm512_fmadd_ps)
PEAK(bench_peak_avx2, "avx2,fma", __m256, 8, _mm256_setzero_ps(), _mm256_fmadd_ps)
static double bench_peak(void) {
    return echi_cpu_level() == ECHI_CPU_AVX512 ? bench_peak_avx512() : echi_cpu_level() == ECHI_CPU_AVX2 ? bench_peak_avx2() : 0;
}
#else
static double bench_peak(void) { return 0; }   /* not known */
#endif
#endif
