/* SPDX-License-Identifier: Apache-2.0
 * Products of packed matrices: a tile of rows x vectors is held in registers while the sum runs over the depth. Both operands are packed
 * so that the tile reads two streams, whatever they were; after van Zee and van de Geijn, BLIS (ACM TOMS 41, 2015). */
#include "echi_vec.h"

#include <string.h>

#define ROWS VEC_MATRIX_ROWS
#define VECTORS VEC_MATRIX_VECTORS

/* ---- packing: [panel][depth][line], a panel of `width` lines; lines that are not there are zeros ---- */

/* `lines` of which each lies in one piece: blocks are transposed, the last first, since what each writes too much the one before it has. */
INLINE void pack_turned(const float *from, ptrdiff_t line, int lines, int depth, int width, float *to) {
    for (int i = (width - 1) / VEC_FLOATS * VEC_FLOATS; i >= 0; i -= VEC_FLOATS) {
        const int most = width - i < VEC_FLOATS ? width - i : VEC_FLOATS, left = lines - i < most ? lines - i : most;
        ISA(to_vectors)(from + i * line, line, left, depth, to + i, width);
    }
}

/* Lines side by side are copied, a few steps of all panels at a time: what is read together then lies together. */
INLINE void pack_copies(const struct echi_cpu_lines *l, int width, float *to) {
    enum { STEPS = 8 };
    const int panels = l->lines / width, rest = l->lines % width;
    for (int from = 0; from < l->depth; from += STEPS) {
        const int steps = l->depth - from < STEPS ? l->depth - from : STEPS;
        for (int panel = 0; panel < panels; panel++)
            for (int k = from; k < from + steps; k++)
                memcpy(to + ((ptrdiff_t)panel * l->depth + k) * width, l->at + panel * width + k * l->step, (size_t)width * sizeof(float));
    }
    to += (ptrdiff_t)panels * l->depth * width;
    for (int k = 0; k < l->depth && rest; k++, to += width)
        for (int i = 0; i < width; i++) to[i] = i < rest ? l->at[panels * width + i + k * l->step] : 0.0f;
}

INLINE void pack(const struct echi_cpu_lines *l, int width, float *to) {
    if (l->line == 1) return pack_copies(l, width, to);
    for (int first = 0; first < l->lines; first += width, to += (ptrdiff_t)width * l->depth)
        pack_turned(l->at + first * l->line, l->line, l->lines - first, l->depth, width, to);
}

void ISA(matrix_pack_rows)(const struct echi_cpu_lines *l, void *to) { pack(l, ROWS, to); }
void ISA(matrix_pack_columns)(const struct echi_cpu_lines *l, void *to) { pack(l, VECTORS * VEC_FLOATS, to); }

/* ---- the product ---- */

INLINE vec load_some(const float *p, int floats) {
    if (floats == VEC_FLOATS) return load(p);
    vec v = {0};
    memcpy(&v, p, (size_t)floats * sizeof(float));
    return v;
}
INLINE void store_some(float *p, vec v, int floats) {
    if (floats == VEC_FLOATS) store(p, v);
    else memcpy(p, &v, (size_t)floats * sizeof(float));
}

/* `rows` rows, `vectors` vectors, of which the last has `rest` columns. Rows and columns that are not there are computed all the same.
 * What is in out is read before anything is written: rows that lie a multiple of 4 KiB apart look alike to a processor that lets reads
 * overtake writes. */
INLINE void tile(int rows, int vectors, const struct echi_cpu_panel *p, const float *b, float *out, int rest) {
    vec sum[ROWS][VECTORS];
    const ptrdiff_t row = p->out_row, apart = p->out_vector;
    const bool whole = p->rows == rows && rest == VEC_FLOATS;
    if (whole) {
        UNROLL for (int o = 0; o < rows; o++) {
            UNROLL for (int v = 0; v < vectors; v++) { __builtin_prefetch(out + o * row + v * apart, 1); }
        }
    }
    UNROLL for (int o = 0; o < rows; o++) {
        const vec begin = p->start && o < p->rows ? splat(p->start[o]) : (vec){0};
        UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] = begin; }
    }
    const float *a = p->a;
    UNROLL_ONCE for (int k = p->depth; k > 0; k--, a += ROWS, b += VECTORS * VEC_FLOATS) {
        vec in[VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) { in[v] = load(b + v * VEC_FLOATS); }
        UNROLL for (int o = 0; o < rows; o++) {
            const vec weight = splat(a[o]);
            UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] += weight * in[v]; }
        }
    }
    if (p->add) {
        UNROLL for (int o = 0; o < rows; o++) {
            UNROLL for (int v = 0; v < vectors; v++) {
                if (o < p->rows) sum[o][v] += load_some(out + o * row + v * apart, whole || v < vectors - 1 ? VEC_FLOATS : rest);
            }
        }
    }
    if (p->relu) {
        UNROLL for (int o = 0; o < rows; o++) {
            UNROLL for (int v = 0; v < vectors; v++) { sum[o][v] = pick(sum[o][v] <= 0.0f, (vec){0}, sum[o][v]); }
        }
    }
    UNROLL for (int o = 0; o < rows; o++) {
        UNROLL for (int v = 0; v < vectors; v++) {
            if (o < p->rows) store_some(out + o * row + v * apart, sum[o][v], whole || v < vectors - 1 ? VEC_FLOATS : rest);
        }
    }
}

/* A tile's time is enough for a vector of steps. */
INLINE void fetch(const struct echi_cpu_lines *l, int tile) {
    const int from = tile * VEC_FLOATS;
    if (from >= l->depth) return;
    for (int i = 0; i < l->lines; i++) __builtin_prefetch(l->at + i * l->line + from, 0, 2);
}

/* Fewer rows than ROWS are filled up to a third of it. */
INLINE void tiles(int rows, const struct echi_cpu_panel *p) {
    const int width = VECTORS * VEC_FLOATS;
    const float *b = p->b;
    float *out = p->out;
    for (int at = 0; at < p->columns; at += width, b += (ptrdiff_t)width * p->depth, out += VECTORS * p->out_vector) {
        const int left = p->columns - at, vectors = left >= width ? VECTORS : (left + VEC_FLOATS - 1) / VEC_FLOATS;
        const int rest = left >= width ? VEC_FLOATS : left - (vectors - 1) * VEC_FLOATS;
        fetch(&p->next, at / width);
        if (vectors == 1) tile(rows, 1, p, b, out, rest);
        else tile(rows, 2, p, b, out, rest);
    }
}

void ISA(matrix_panel)(const struct echi_cpu_panel *p) {
    if (p->rows <= ROWS / 3) tiles(ROWS / 3, p);
    else if (p->rows <= ROWS / 3 * 2) tiles(ROWS / 3 * 2, p);
    else tiles(ROWS, p);
}
