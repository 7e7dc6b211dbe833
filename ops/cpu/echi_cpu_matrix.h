/* SPDX-License-Identifier: Apache-2.0
 * Products of matrices of any size, at the speed of the machine: blocks for the caches, packed operands, tiles in registers. */
#ifndef ECHI_CPU_MATRIX_H
#define ECHI_CPU_MATRIX_H
#include "echi_cpu_kernels.h"

/* out[row][column] = start[row] + sum over the depth of a[row] * b[column]. The sum of a place has the same terms in the same order
 * whatever stands in other rows and columns, and however many there are: what a sample gives does not depend on its batch. */
struct echi_cpu_matrix {
    struct echi_cpu_lines a, b;    /* rows, columns; both of the same depth */
    struct echi_cpu_lines a_more, b_more;   /* further steps of the depth, of floats: rows and columns as a's and b's; depth 0: none */
    int columns;                   /* of b's, that are wanted: the others are zeros, and out gets there either what they give or 0 */
    const float *start;            /* a number for each row; NULL: 0 */
    float *out;                    /* as in struct echi_cpu_panel; only what is there is written */
    ptrdiff_t out_row, out_vector;
    bool relu;                     /* store max(., 0) */
    enum echi_cpu_bf16 bf16;       /* numbers of a and b are rounded to bf16 first, by what this machine has for that; sums are floats */
};
/* `room` has echi_cpu_matrix_room floats, one for each thread; rows may be cut anywhere for several. */
void echi_cpu_matrix(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m, float *room);
size_t echi_cpu_matrix_room(void);
#endif
