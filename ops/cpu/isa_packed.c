/* SPDX-License-Identifier: Apache-2.0
 * Kernels for groups of four samples, where columns of a row lie side by side: a wide vector holds two or four columns of four samples
 * each, so that the wide kernels compute them, as one number of one sample each, to the bit. Columns that are left over, and those that
 * do not lie side by side, are computed four floats at a time.
 * Taps that fall outside a row read zeros from its margins. */
#include "echi_vec.h"

#define WIDE ISA_JOIN(echi_cpu_kernels, ECHI_WIDE)

void ISA(packed_product)(const struct echi_cpu_product *p) {
    const int columns = WIDE.width / VEC_FLOATS;
    struct echi_cpu_product narrow = *p;
    if (p->x_p == VEC_FLOATS && p->out_p == VEC_FLOATS && p->vectors >= columns) {
        struct echi_cpu_product wide = *p;
        wide.x_p = wide.out_p = WIDE.width;
        wide.vectors = p->vectors / columns;
        WIDE.product(&wide);
        narrow.x += wide.vectors * WIDE.width;
        narrow.out += wide.vectors * WIDE.width;
        narrow.vectors -= wide.vectors * columns;
    }
    if (narrow.vectors > 0) ISA(product)(&narrow);
}

void ISA(packed_conv_row)(const struct echi_cpu_product *p, const struct echi_cpu_axis *axis) {
    const int columns = WIDE.width / VEC_FLOATS;
    struct echi_cpu_product narrow = *p;
    struct echi_cpu_axis left = *axis;
    if (axis->step == 1 && p->loop[2].x == VEC_FLOATS && p->out_p == VEC_FLOATS && axis->count >= columns) {
        const int whole = axis->count / columns * columns;
        struct echi_cpu_product wide = *p;
        wide.x += axis->base * VEC_FLOATS;
        wide.x_p = wide.out_p = WIDE.width;
        wide.vectors = whole / columns;
        WIDE.conv_row(&wide, &(struct echi_cpu_axis){.count = wide.vectors, .step = columns, .taps = axis->taps,
                                                     .size = whole + axis->taps});
        narrow.out += whole * VEC_FLOATS;
        left.base += whole;
        left.count -= whole;
    }
    narrow.vectors = left.count;
    if (left.count > 0) ISA(conv_row)(&narrow, &left);
}

/* Sums are wide vectors; columns that are left over go to the first lanes. */
void ISA(packed_outer)(const struct echi_cpu_outer *o) {
    const int columns = WIDE.width / VEC_FLOATS, whole = o->columns / columns;
    struct echi_cpu_outer narrow = *o;
    if (o->x_column == VEC_FLOATS && whole > 0) {
        struct echi_cpu_outer wide = *o;
        wide.x_column = WIDE.width;
        wide.columns = whole;
        WIDE.outer(&wide);
        narrow.x += whole * columns * VEC_FLOATS;
        narrow.dy += whole * columns * VEC_FLOATS;
        narrow.columns -= whole * columns;
    }
    if (narrow.columns > 0) ISA(outer)(&narrow);
}
