/* SPDX-License-Identifier: Apache-2.0
 * Between rows of samples and vectors over samples: square blocks are transposed in registers. */
#include "echi_vec.h"

#include <string.h>

/* Blocks of VEC_FLOATS columns; the last one overlaps its neighbour when they do not come out even. */
INLINE int next_block(int at, int columns) {
    const int next = at + VEC_FLOATS;
    return next < columns && columns - next < VEC_FLOATS ? columns - VEC_FLOATS : next;
}

void ISA(to_vectors)(const float *rows, ptrdiff_t row, int lanes, int columns, float *vectors, ptrdiff_t vector) {
    if (columns < VEC_FLOATS) {
        for (int c = 0; c < columns; c++)
            for (int lane = 0; lane < VEC_FLOATS; lane++) vectors[c * vector + lane] = lane < lanes ? rows[lane * row + c] : 0.0f;
        return;
    }
    for (int c = 0; c < columns; c = next_block(c, columns)) {
        vec m[VEC_FLOATS];
        UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) { m[lane] = lane < lanes ? load(rows + lane * row + c) : (vec){0}; }
        transpose(m);
        UNROLL for (int i = 0; i < VEC_FLOATS; i++) { store(vectors + (c + i) * vector, m[i]); }
    }
}

/* Rows of less than a vector. Where they lie one behind the other each is stored with what follows it, which the next ones then set. */
static void to_short_rows(const float *vectors, ptrdiff_t vector, int lanes, int columns, float *rows, ptrdiff_t row) {
    float *const end = rows + (lanes - 1) * row + columns;
    vec m[VEC_FLOATS];
    UNROLL for (int i = 0; i < VEC_FLOATS; i++) { m[i] = i < columns ? load(vectors + i * vector) : (vec){0}; }
    transpose(m);
    UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) {
        float *to = rows + lane * row;
        if (lane >= lanes) continue;
        if (row == columns && end - to >= VEC_FLOATS) store(to, m[lane]);
        else memcpy(to, &m[lane], (size_t)columns * sizeof(float));
    }
}

void ISA(to_rows)(const float *vectors, ptrdiff_t vector, int lanes, int columns, float *rows, ptrdiff_t row) {
    if (columns < VEC_FLOATS) return to_short_rows(vectors, vector, lanes, columns, rows, row);
    for (int c = 0; c < columns; c = next_block(c, columns)) {
        vec m[VEC_FLOATS];
        UNROLL for (int i = 0; i < VEC_FLOATS; i++) { m[i] = load(vectors + (c + i) * vector); }
        transpose(m);
        UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) {
            if (lane < lanes) store(rows + lane * row + c, m[lane]);
        }
    }
}

void ISA(reduce)(const float *vectors, size_t count, float *out) {
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) {
        vec m[VEC_FLOATS];
        UNROLL for (int j = 0; j < VEC_FLOATS; j++) { m[j] = load(vectors + (i + (size_t)j) * VEC_FLOATS); }
        transpose(m);
        vec sum = m[0];
        UNROLL for (int j = 1; j < VEC_FLOATS; j++) { sum += m[j]; }
        store(out + i, sum);
    }
    for (; i < count; i++) {
        float sum = vectors[i * VEC_FLOATS];   /* as above, so that where a range begins does not show */
        for (int lane = 1; lane < VEC_FLOATS; lane++) sum += vectors[i * VEC_FLOATS + (size_t)lane];
        out[i] = sum;
    }
}
