/* SPDX-License-Identifier: Apache-2.0
 * Kernels for groups of eight samples, four or two, where columns of a row lie side by side: a wide vector holds two, four or eight of
 * them, so that the wide kernels compute them, as one number of one sample each, to the bit. Columns that are left over, and those that do
 * not lie side by side, are computed a group at a time.
 * Taps that fall outside a row read zeros from its margins. */
#include "echi_vec.h"

#define WIDE ISA_JOIN(echi_cpu_kernels, ECHI_WIDE)

/* The widest first; what one leaves over is for the next. */
static const struct echi_cpu_kernels *const wider[] = {
    &WIDE,
#if defined(__AVX512F__) && VEC_FLOATS < 8
    &echi_cpu_kernels_avx2,
#endif
#ifdef ECHI_FOURS
    &ISA_JOIN(echi_cpu_kernels, ECHI_FOURS),
#endif
};
enum { WIDER = sizeof wider / sizeof wider[0] };

void ISA(packed_product)(const struct echi_cpu_product *p) {
    struct echi_cpu_product left = *p;
    for (int i = 0; i < WIDER && p->x_p == VEC_FLOATS && p->out_p == VEC_FLOATS; i++) {
        const int columns = wider[i]->width / VEC_FLOATS, vectors = left.vectors / columns;
        struct echi_cpu_product wide = left;
        if (vectors == 0) continue;
        wide.x_p = wide.out_p = wider[i]->width;
        wide.vectors = vectors;
        wider[i]->product(&wide);
        left.x += vectors * wider[i]->width;
        left.out += vectors * wider[i]->width;
        left.vectors -= vectors * columns;
    }
    if (left.vectors > 0) ISA(product)(&left);
}

/* The taps of the columns [q, q + columns) of which one at least is inside. */
struct taps { int begin, end; };
INLINE struct taps taps_of(const struct echi_cpu_axis *axis, int q, int columns) {
    const int first = q + axis->base, begin = first + columns > 0 ? 0 : 1 - first - columns, left = axis->size - first;
    const int end = left < axis->taps ? left : axis->taps;
    return (struct taps){begin, end > begin ? end : begin};
}

void ISA(packed_conv_row)(const struct echi_cpu_product *p, const struct echi_cpu_axis *axis) {
    const bool side_by_side = axis->step == 1 && p->loop[2].x == VEC_FLOATS && p->out_p == VEC_FLOATS;
    int q = 0;
    for (int i = 0; i < WIDER && side_by_side; i++) {
        const int columns = wider[i]->width / VEC_FLOATS;
        for (int vectors = (axis->count - q) / columns, run; vectors > 0; vectors -= run, q += run * columns) {
            const struct taps taps = taps_of(axis, q, columns);
            for (run = 1; run < vectors; run++) {
                const struct taps next = taps_of(axis, q + run * columns, columns);
                if (next.begin != taps.begin || next.end != taps.end) break;
            }
            struct echi_cpu_product wide = *p;
            wide.x += (q + axis->base + taps.begin) * VEC_FLOATS;
            wide.w += taps.begin * p->loop[2].w;
            wide.loop[2].n = taps.end - taps.begin;
            wide.out += q * VEC_FLOATS;
            wide.x_p = wide.out_p = wider[i]->width;
            wide.vectors = run;
            wider[i]->conv_row(&wide, &(struct echi_cpu_axis){.count = run, .step = columns, .taps = wide.loop[2].n,
                                                              .size = run * columns + wide.loop[2].n});
        }
    }
    if (q == axis->count) return;
    struct echi_cpu_product narrow = *p;
    struct echi_cpu_axis left = *axis;
    narrow.out += q * p->out_p;
    left.base += q * axis->step;
    narrow.vectors = left.count = axis->count - q;
    ISA(conv_row)(&narrow, &left);
}

/* Sums are wide vectors; narrower ones go to their first lanes. Left-over columns that fill half of a wide vector are summed with those of
 * the next row. */
void ISA(packed_outer)(const struct echi_cpu_outer *o) {
    struct echi_cpu_outer left = *o;
    for (int i = 0; i < WIDER && o->x_column == VEC_FLOATS; i++) {
        const int columns = wider[i]->width / VEC_FLOATS, whole = left.columns / columns;
        const bool half = i == 0 && left.columns % columns >= columns / 2;
        const int done = whole * columns + (half ? columns / 2 : 0);
        struct echi_cpu_outer wide = left;
        if (done == 0 || o->outputs > wider[i]->most_outputs || o->taps > wider[i]->most_taps) continue;
        wide.x_column = wider[i]->width;
        wide.columns = whole;
        wide.half = half;
        wider[i]->outer(&wide);
        left.x += done * VEC_FLOATS;
        left.dy += done * VEC_FLOATS;
        left.columns -= done;
    }
    if (left.columns > 0) ISA(outer)(&left);
}
