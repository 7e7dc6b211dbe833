/* SPDX-License-Identifier: Apache-2.0
 * bf16_x86.c: what cpu_matrix.c and cpu_conv_bf16.c are made of when numbers are rounded to bf16. Only where echi_cpu_bf16() says so. */
#ifndef ECHI_CPU_BF16_H
#define ECHI_CPU_BF16_H
#include "echi_cpu_kernels.h"

/* Sums of products of blocks of 1 KiB, as bf16_x86.c packs them: `rows` x 16 places of one column of blocks, or of two. */
struct echi_cpu_bf16_loop { int n; ptrdiff_t a, b; };   /* n terms, so many blocks apart in a and in b */
struct echi_cpu_bf16_sums {
    const uint16_t *a, *b;             /* a: rows, 16 in each of two blocks one behind the other; b: columns,
                                          the second block behind the first */
    struct echi_cpu_bf16_loop loop[3]; /* outermost first */
    int rows, columns;                 /* of places: 1 to 32; of blocks: 1 or 2 */
    const float *start;                /* [32]: what the sums of a row begin with; NULL: 0 */
    float *out;                        /* place 0..15 of column c, row r: out + r * out_row + c * out_next */
    ptrdiff_t out_row, out_next;
    bool add;                          /* to what is in out; start must be NULL, and rows whole blocks */
    bool relu;                         /* store max(., 0) */
};

enum { ECHI_CPU_BF16_ROWS = 256 };     /* that a panel's call takes, at most */

#if defined(__x86_64__)
enum { ECHI_CPU_BF16_BLOCK = 512 };    /* numbers of a block */
/* Kernels, one for each pair of channels, `taps` numbers each, one behind the other for `in` channels: of each tap 32 channels, as a line
 * of a block of rows; and a whole block, 16 lines for channels and 32 steps for outputs. Blocks of the taps are tap_apart;
 * zeros for what is not there. */
void echi_cpu_bf16_pack_weights(const float *w, int in, int taps, uint16_t *to, ptrdiff_t tap_apart);
void echi_cpu_bf16_pack_weights_turned(const float *w, ptrdiff_t out_apart, int out, int in, int taps, uint16_t *to, ptrdiff_t tap_apart);
/* [row][lane][2]: vectors of 16 lanes, `row` floats apart, of `first` (`firsts` of 16 are there) beside those of `second`;
 * zeros for others. */
struct echi_cpu_bf16_pairs { const float *first, *second; ptrdiff_t row; int firsts, seconds; };
void echi_cpu_bf16_pack_pairs(const struct echi_cpu_bf16_pairs *pairs, uint16_t *to);
void echi_cpu_bf16_pack_turned(const struct echi_cpu_bf16_pairs *pairs, uint16_t *to);   /* [lane][row][2] */
void echi_cpu_bf16_sums_amx(const struct echi_cpu_bf16_sums *p);   /* between begin and end, on their thread */
void echi_cpu_bf16_sums_dot(const struct echi_cpu_bf16_sums *p);
enum { ECHI_CPU_BF16_PANEL = 32, ECHI_CPU_BF16_STEPS = 32 };   /* lines of a panel, either side; the depth is filled up to whole steps */
void echi_cpu_bf16_pack_rows(const struct echi_cpu_lines *lines, void *to);
void echi_cpu_bf16_pack_columns(const struct echi_cpu_lines *lines, void *to);
void echi_cpu_bf16_panel_amx(const struct echi_cpu_panel *p);   /* between begin and end, on their thread */
void echi_cpu_bf16_panel_dot(const struct echi_cpu_panel *p);
void echi_cpu_amx_begin(void);
void echi_cpu_amx_end(void);
void echi_cpu_to_rows_avx512(const float *vectors, ptrdiff_t vector, int lanes, int columns, float *rows, ptrdiff_t row);
#endif
#endif
