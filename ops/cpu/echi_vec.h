/* SPDX-License-Identifier: Apache-2.0
 * The vector type of the instruction set that a file isa_*.c is compiled for, and the names of its functions.
 * The Makefile compiles each isa_*.c once for each set, with -DECHI_ISA=base, avx2 or avx512, and
 * once as `fixed`: vectors of four floats whatever the machine has, so that every sum has the same terms in the same order. With
 * -DECHI_WIDE=avx512 (or avx2) vectors have four floats, too, or with -DECHI_FOURS=avx512x4 two, or with -DECHI_EIGHTS eight, and
 * isa_packed.c lends several columns at a time to those sets' kernels. */
#ifndef ECHI_VEC_H
#define ECHI_VEC_H
#include "echi_cpu_kernels.h"

#if defined(ECHI_FOURS)
#define VEC_FLOATS 2
#elif defined(ECHI_EIGHTS)
#define VEC_FLOATS 8
#elif defined(ECHI_FIXED) || defined(ECHI_WIDE)
#define VEC_FLOATS 4
#elif defined(__AVX512F__)
#define VEC_FLOATS 16
#elif defined(__AVX2__)
#define VEC_FLOATS 8
#else
#define VEC_FLOATS 4
#endif
#if !defined(ECHI_FIXED) && (defined(__AVX512F__) || defined(__aarch64__))
#define VEC_REGISTERS 32
#else
#define VEC_REGISTERS 16
#endif

/* The tile of isa_matrix.c: its accumulators, one row of vectors and one weight must fit the registers. */
#define VEC_MATRIX_ROWS (VEC_REGISTERS == 32 ? 12 : 6)
#define VEC_MATRIX_VECTORS 2

typedef float vec __attribute__((vector_size(VEC_FLOATS * 4)));
typedef int32_t ivec __attribute__((vector_size(VEC_FLOATS * 4)));   /* of a comparison: -1 where true */
typedef uint32_t uvec __attribute__((vector_size(VEC_FLOATS * 4)));
typedef uint16_t hvec __attribute__((vector_size(VEC_FLOATS * 2)));
typedef uint16_t hvec_anywhere __attribute__((vector_size(VEC_FLOATS * 2), aligned(2), may_alias));
typedef float vec_anywhere __attribute__((vector_size(VEC_FLOATS * 4), aligned(4), may_alias));
typedef int32_t ivec_anywhere __attribute__((vector_size(VEC_FLOATS * 4), aligned(4), may_alias));

#define ISA_JOIN2(name, isa) name##_##isa
#define ISA_JOIN(name, isa) ISA_JOIN2(name, isa)
#define ISA(name) ISA_JOIN(echi_cpu_##name, ECHI_ISA)   /* ISA(relu): echi_cpu_relu_avx512 */

/* UNROLL: all rounds of a loop over registers. UNROLL_ONCE: two rounds at a time of a long loop around such ones. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#define UNROLL_ONCE _Pragma("unroll 2")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_ONCE _Pragma("GCC unroll 2")
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) { return *(const vec_anywhere *)p; }
INLINE void store(float *p, vec v) { *(vec_anywhere *)p = v; }
INLINE ivec load_int(const int32_t *p) { return *(const ivec_anywhere *)p; }
INLINE void store_int(int32_t *p, ivec v) { *(ivec_anywhere *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }
INLINE vec pick(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }

/* Keeps a loaded vector in a register: without it gcc may read memory again for every use. clang has no such operand of two floats. */
#if defined(__x86_64__) && VEC_FLOATS > 2
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#elif defined(__aarch64__)
#define IN_REGISTER(v) __asm__("" : "+w"(v))
#else
#define IN_REGISTER(v) ((void)(v))
#endif

#if VEC_FLOATS == 16
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VEC_FLOATS == 8
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif VEC_FLOATS == 4
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#else
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 2)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

#if VEC_FLOATS > 4
/* A vector of two halves that lie apart. */
typedef float half_anywhere __attribute__((vector_size(VEC_FLOATS * 2), aligned(4), may_alias));
INLINE vec load_halves(const float *low, const float *high) {
    const half_anywhere a = *(const half_anywhere *)low, b = *(const half_anywhere *)high;
#if VEC_FLOATS == 16
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}
#endif

/* A riffle of the upper and the lower half moves every bit of the place (row, column) by one; as many riffles as a row number
 * has bits exchange rows and columns. */
INLINE void transpose(vec m[VEC_FLOATS]) {
    UNROLL for (int bits = VEC_FLOATS; bits > 1; bits /= 2) {
        vec t[VEC_FLOATS];
        UNROLL for (int i = 0; i < VEC_FLOATS / 2; i++) {
            t[2 * i] = ZIP_LOW(m[i], m[i + VEC_FLOATS / 2]);
            t[2 * i + 1] = ZIP_HIGH(m[i], m[i + VEC_FLOATS / 2]);
        }
        UNROLL for (int i = 0; i < VEC_FLOATS; i++) { m[i] = t[i]; }
    }
}

/* Each family of kernels, implemented in the file of that name. */
void ISA(product)(const struct echi_cpu_product *p);
void ISA(conv_row)(const struct echi_cpu_product *p, const struct echi_cpu_axis *axis);
void ISA(packed_product)(const struct echi_cpu_product *p);
void ISA(packed_conv_row)(const struct echi_cpu_product *p, const struct echi_cpu_axis *axis);
void ISA(packed_outer)(const struct echi_cpu_outer *o);
void ISA(matrix_pack_rows)(const struct echi_cpu_lines *lines, void *to);
void ISA(matrix_pack_columns)(const struct echi_cpu_lines *lines, void *to);
void ISA(matrix_panel)(const struct echi_cpu_panel *p);
void ISA(outer)(const struct echi_cpu_outer *o);
void ISA(winograd_input)(int m, const struct echi_cpu_tile *tile);
void ISA(winograd_output)(int m, const struct echi_cpu_tile *tile);
void ISA(winograd_weights)(int m, const float *kernels, ptrdiff_t kernel, int lanes, bool turned, float *points, ptrdiff_t point);
void ISA(winograd_grad)(int m, const struct echi_cpu_tile *tile);
void ISA(winograd_weights_grad)(int m, const float *points, ptrdiff_t point, int lanes, float *kernels, ptrdiff_t kernel);
void ISA(reduce)(const float *vectors, size_t count, float *out);
void ISA(to_vectors)(const float *rows, ptrdiff_t row, int lanes, int columns, float *vectors, ptrdiff_t vector);
void ISA(to_rows)(const float *vectors, ptrdiff_t vector, int lanes, int columns, float *rows, ptrdiff_t row);
void ISA(relu)(const float *x, ptrdiff_t x_column, float *y, ptrdiff_t y_column, int count);
void ISA(relu_back)(const float *dy, ptrdiff_t dy_column, const float *y, ptrdiff_t y_column, float *dx, ptrdiff_t dx_column,
                    int count, float *sum);
void ISA(tanh)(const float *x, ptrdiff_t x_column, float *y, ptrdiff_t y_column, int count);
void ISA(tanh_back)(const float *dy, ptrdiff_t dy_column, const float *y, ptrdiff_t y_column, float *dx, ptrdiff_t dx_column,
                    int count, float *sum);
void ISA(plus)(const float *a, ptrdiff_t a_column, const float *b, ptrdiff_t b_column, float *y, ptrdiff_t y_column, int count);
void ISA(times)(const float *x, ptrdiff_t x_column, const float *factor, float *y, ptrdiff_t y_column, int count);
void ISA(norm_sum)(const struct echi_cpu_norm *n);
void ISA(norm_squares)(const struct echi_cpu_norm *n);
void ISA(norm)(const struct echi_cpu_norm *n);
void ISA(norm_back_sums)(const struct echi_cpu_norm *n);
void ISA(norm_back)(const struct echi_cpu_norm *n);
void ISA(relu_pool)(const float *x, ptrdiff_t x_row, const struct echi_cpu_window *w, float *y, ptrdiff_t y_column,
                    int32_t *place);
void ISA(relu_pool_back)(const float *dy, ptrdiff_t dy_column, const int32_t *place, const struct echi_cpu_window *w, float *dx,
                         ptrdiff_t dx_row, float *sum);
void ISA(max_pool)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, float *y,
                   ptrdiff_t y_column);
void ISA(max_pool_back)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, const float *dy,
                        ptrdiff_t dy_column, float *dx);
void ISA(avg_pool)(const float *x, ptrdiff_t x_row, ptrdiff_t x_column, const struct echi_cpu_window *w, float scale, float *y,
                   ptrdiff_t y_column);
void ISA(avg_pool_back)(const float *dy, ptrdiff_t dy_column, const struct echi_cpu_window *w, float scale, float *dx,
                        ptrdiff_t dx_row, ptrdiff_t dx_column);
void ISA(softmax_loss)(const float *x, ptrdiff_t x_class, int classes, const uint16_t *labels, int lanes, float scale, float *dx,
                       ptrdiff_t dx_class, double *loss, int *correct);
void ISA(descend)(const struct echi_cpu_descent *d, size_t count);
void ISA(adam)(const struct echi_cpu_descent *d, size_t count);
void ISA(add)(float *sum, const float *a, const float *b, size_t count);
void ISA(add_scaled)(float *sum, const float *from, float from_factor, const float *x, float factor, size_t count);
bool ISA(finite)(const float *x, size_t count);
size_t ISA(count_from)(const float *x, size_t count, float least);
void ISA(to_bf16)(uint16_t *to, const float *x, size_t count);
void ISA(from_bf16)(float *to, const uint16_t *x, size_t count);
#endif
