/* SPDX-License-Identifier: Apache-2.0
 * Rows of samples into boundaries and out of them. */
#include "echi_cpu_stack.h"

/* Rows of samples into a boundary and out of it, a group at a time, in runs of evenly spaced vectors. */
struct runs { int count, columns; ptrdiff_t step; };

static struct runs runs_of(const struct echi_cpu_boundary *b, const struct echi_cpu_view *v) {
    if (b->left == 0 && b->right == 0) return (struct runs){1, (int)echi_shape_size(b->shape), 0};
    return (struct runs){b->shape.c * b->shape.h, b->shape.w, v->row};
}

struct border { int boundary; struct echi_cpu_view at; const float *from; float *to; };

/* Item: a run of one group. */
static void rows_between(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct border *b = args;
    const struct runs r = runs_of(&s->boundaries[b->boundary], &b->at);
    const ptrdiff_t size = (ptrdiff_t)echi_shape_size(s->boundaries[b->boundary].shape);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int g = item / r.count, i = item % r.count;
        const ptrdiff_t row = g * s->k->width * size + (ptrdiff_t)i * r.columns;
        float *vectors = b->at.at + g * b->at.group + i * r.step;
        if (b->from) s->k->to_vectors(b->from + row, size, echi_cpu_lanes(s, g), r.columns, vectors, b->at.column);
        else s->k->to_rows(vectors, b->at.column, echi_cpu_lanes(s, g), r.columns, b->to + row, size);
    }
}
static void pass_border(struct echi_cpu_stack *s, const struct border *b) {
    const struct runs r = runs_of(&s->boundaries[b->boundary], &b->at);
    echi_cpu_share_out(s, s->groups * r.count, 12.0 * r.columns, rows_between, b);
}
void echi_cpu_rows_in(struct echi_cpu_stack *s, int boundary, struct echi_cpu_view v, const float *rows) {
    pass_border(s, &(struct border){.boundary = boundary, .at = v, .from = rows});
}
void echi_cpu_rows_out(struct echi_cpu_stack *s, int boundary, struct echi_cpu_view v, float *rows) {
    pass_border(s, &(struct border){.boundary = boundary, .at = v, .to = rows});
}
