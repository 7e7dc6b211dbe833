/* SPDX-License-Identifier: Apache-2.0
 * What goes number by number: residual add, dropout, and the sum of a gradient's shares. Both sides of each may lie differently,
 * so everything goes by rows of one channel of one group. */
#include "echi_cpu_stack.h"

#include <string.h>

/* y = a + b; without b a copy. */
static void sum(const struct echi_cpu_stack *s, struct echi_shape shape, struct echi_cpu_view a, const struct echi_cpu_view *b,
                struct echi_cpu_view y) {
    const size_t vector = (size_t)s->k->width * sizeof(float);
    for (int g = 0; g < s->groups; g++)
        for (int c = 0; c < shape.c; c++)
            for (int r = 0; r < shape.h; r++) {
                const float *from = a.at + g * a.group + c * a.channel + r * a.row;
                float *to = y.at + g * y.group + c * y.channel + r * y.row;
                if (b) s->k->plus(from, a.column, b->at + g * b->group + c * b->channel + r * b->row, b->column, to, y.column, shape.w);
                for (int i = 0; !b && i < shape.w; i++) memcpy(to + i * y.column, from + i * a.column, vector);
            }
}

void echi_cpu_give(struct echi_cpu_stack *s, int boundary) {
    struct echi_cpu_boundary *b = &s->boundaries[boundary];
    const struct echi_cpu_view grad = echi_cpu_grad(s, boundary), share = echi_cpu_share(s, boundary);
    if (b->given) sum(s, b->shape, grad, &share, grad);
    b->given = true;
}

void echi_cpu_add_forward(struct echi_cpu_stack *s, int unit) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_cpu_view also = echi_cpu_value(s, u->also);
    sum(s, u->layer->out, echi_cpu_value(s, u->from), &also, echi_cpu_value(s, unit + 1));
}

/* Its gradient is a share of both, as it is. */
void echi_cpu_add_backward(struct echi_cpu_stack *s, int unit) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const int boundaries[] = {u->from, u->also};
    for (int i = 0; i < 2; i++) {
        struct echi_cpu_boundary *b = &s->boundaries[boundaries[i]];
        const struct echi_cpu_view grad = echi_cpu_grad(s, boundaries[i]);
        sum(s, b->shape, echi_cpu_grad(s, unit + 1), b->given ? &grad : NULL, grad);
        b->given = true;
    }
}

void echi_cpu_dropout_draw(struct echi_cpu_stack *s, int unit, uint64_t seed, const struct echi_row *rows) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const ptrdiff_t width = s->k->width, size = (ptrdiff_t)echi_shape_size(u->layer->out);
    for (int g = 0; g < s->groups; g++) {
        const int lanes = echi_cpu_lanes(s, g);
        for (int lane = 0; lane < lanes; lane++) echi_dropout_factors(u->layer, seed, rows[g * width + lane], s->drawn + lane * size);
        s->k->to_vectors(s->drawn, size, lanes, (int)size, u->factor + g * size * width, width);
    }
}

/* y = x * factor, both ways. */
static void drop(const struct echi_cpu_stack *s, int unit, struct echi_cpu_view x, struct echi_cpu_view y) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_shape shape = u->layer->out;
    if (!s->trains) return sum(s, shape, x, NULL, y);
    const float *factor = u->factor;
    for (int g = 0; g < s->groups; g++)
        for (int c = 0; c < shape.c; c++)
            for (int r = 0; r < shape.h; r++, factor += shape.w * s->k->width)
                s->k->times(x.at + g * x.group + c * x.channel + r * x.row, x.column, factor,
                            y.at + g * y.group + c * y.channel + r * y.row, y.column, shape.w);
}
void echi_cpu_dropout_forward(struct echi_cpu_stack *s, int unit) {
    drop(s, unit, echi_cpu_value(s, s->units[unit].from), echi_cpu_value(s, unit + 1));
}
void echi_cpu_dropout_backward(struct echi_cpu_stack *s, int unit) {
    drop(s, unit, echi_cpu_grad(s, unit + 1), echi_cpu_share(s, s->units[unit].from));
}
