/* SPDX-License-Identifier: Apache-2.0
 * Products of packed matrices: a tile of rows x vectors is held in registers while the sum runs over the depth. Both operands are packed
 * so that the tile reads two streams, whatever they were; after van Zee and van de Geijn, BLIS (ACM TOMS 41, 2015). */
#include "echi_vec.h"

#include <string.h>

#define ROWS VEC_MATRIX_ROWS
#define VECTORS VEC_MATRIX_VECTORS

/* ---- packing: [panel][depth][line], a panel of `width` lines; lines that are not there are zeros ---- */

INLINE void pack_ends(const struct echi_cpu_lines *l, int first, int lines, int width, float *to) {
    for (int k = 0; k < l->depth; k++)
        for (int i = 0; i < width; i++) to[(ptrdiff_t)k * width + i] = i < lines ? l->at[(first + i) * l->line + k * l->step] : 0.0f;
}

/* Lines side by side: a copy. Whole vectors are written, the last of a step over the next one's beginning, which comes after it. */
INLINE void pack_copy(const float *from, ptrdiff_t step, int depth, int width, float *to) {
    for (int k = 0; k < depth; k++, from += step, to += width) {
        UNROLL for (int i = 0; i < width; i += VEC_FLOATS) { store(to + i, load(from + i)); }
    }
}

/* Lines of which each lies in one piece: blocks are transposed, the last first, since what each writes too much the one before it has. */
INLINE void pack_turn(const float *from, ptrdiff_t line, int depth, int width, float *to) {
    for (int i = (width - 1) / VEC_FLOATS * VEC_FLOATS; i >= 0; i -= VEC_FLOATS)
        ISA(to_vectors)(from + i * line, line, width - i < VEC_FLOATS ? width - i : VEC_FLOATS, depth, to + i, width);
}

INLINE void pack(const struct echi_cpu_lines *l, int width, float *to) {
    const int reach = (width + VEC_FLOATS - 1) / VEC_FLOATS * VEC_FLOATS;
    for (int first = 0; first < l->lines; first += width, to += (ptrdiff_t)width * l->depth) {
        const int left = l->lines - first;
        if (l->line == 1 && left >= reach) pack_copy(l->at + first, l->step, l->depth, width, to);
        else if (l->step == 1 && left >= width) pack_turn(l->at + first * l->line, l->line, l->depth, width, to);
        else pack_ends(l, first, left < width ? left : width, width, to);
    }
}

void ISA(matrix_pack_rows)(const struct echi_cpu_lines *l, float *to) { pack(l, ROWS, to); }
void ISA(matrix_pack_columns)(const struct echi_cpu_lines *l, float *to) { pack(l, VECTORS * VEC_FLOATS, to); }

/* ---- the product ---- */

INLINE vec load_some(const float *p, int floats) {
    vec v = {0};
    memcpy(&v, p, (size_t)floats * sizeof(float));
    return v;
}
INLINE void store_some(float *p, vec v, int floats) { memcpy(p, &v, (size_t)floats * sizeof(float)); }

/* ROWS rows, `vectors` vectors, of which the last has `rest` columns. */
INLINE void tile(int vectors, const struct echi_cpu_panel *p, const float *b, float *out, int rest) {
    vec sum[ROWS][VECTORS];
    const bool whole = p->rows == ROWS && rest == VEC_FLOATS;
    if (p->add && whole) {
        UNROLL for (int o = 0; o < ROWS; o++) {
            UNROLL for (int v = 0; v < vectors; v++) { __builtin_prefetch(out + o * p->out_row + v * p->out_vector, 1); }
        }
    }
    UNROLL for (int o = 0; o < ROWS; o++) {
        const vec begin = p->start && o < p->rows ? splat(p->start[o]) : (vec){0};
        UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] = begin; }
    }
    const float *a = p->a;
    for (int k = 0; k < p->depth; k++, a += ROWS, b += VECTORS * VEC_FLOATS) {
        vec in[VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) { in[v] = load(b + v * VEC_FLOATS); }
        UNROLL for (int o = 0; o < ROWS; o++) {
            const vec weight = splat(a[o]);
            UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] += weight * in[v]; }
        }
    }
    UNROLL for (int o = 0; o < ROWS; o++) {
        if (o < p->rows) {
            UNROLL for (int v = 0; v < vectors; v++) {
                float *to = out + o * p->out_row + v * p->out_vector;
                const int floats = v == vectors - 1 ? rest : VEC_FLOATS;
                vec y = sum[o][v];
                if (p->add) y += floats == VEC_FLOATS ? load(to) : load_some(to, floats);
                if (p->relu) y = pick(y <= 0.0f, (vec){0}, y);
                if (floats == VEC_FLOATS) store(to, y);
                else store_some(to, y, floats);
            }
        }
    }
}

void ISA(matrix_panel)(const struct echi_cpu_panel *p) {
    const int width = VECTORS * VEC_FLOATS;
    const float *b = p->b;
    float *out = p->out;
    for (int at = 0; at < p->columns; at += width, b += (ptrdiff_t)width * p->depth, out += VECTORS * p->out_vector) {
        const int left = p->columns - at, vectors = left >= width ? VECTORS : (left + VEC_FLOATS - 1) / VEC_FLOATS;
        const int rest = left >= width ? VEC_FLOATS : left - (vectors - 1) * VEC_FLOATS;
        if (vectors == 1) tile(1, p, b, out, rest);
        else tile(2, p, b, out, rest);
    }
}
