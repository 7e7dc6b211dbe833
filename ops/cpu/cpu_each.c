/* SPDX-License-Identifier: Apache-2.0
 * What goes number by number: residual add, dropout, and the sum of a gradient's shares. Both sides of each may lie differently,
 * so everything goes by rows of one channel of one group. */
#include "echi_cpu_stack.h"

#include <string.h>

/* y = a + b; without b a copy. Item: a channel of one group. */
struct sum { struct echi_shape shape; struct echi_cpu_view a, y; const struct echi_cpu_view *b; };

static void sum_channels(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct sum *w = args;
    const struct echi_cpu_view a = w->a, y = w->y, *b = w->b;
    const size_t vector = (size_t)s->k->width * sizeof(float);
    (void)place;
    for (int item = begin; item < end; item++) {
        const int g = item / w->shape.c, c = item % w->shape.c;
        for (int r = 0; r < w->shape.h; r++) {
            const float *from = a.at + g * a.group + c * a.channel + r * a.row;
            float *to = y.at + g * y.group + c * y.channel + r * y.row;
            if (b) s->k->plus(from, a.column, b->at + g * b->group + c * b->channel + r * b->row, b->column, to, y.column, w->shape.w);
            for (int i = 0; !b && i < w->shape.w; i++) memcpy(to + i * y.column, from + i * a.column, vector);
        }
    }
}

static void sum(struct echi_cpu_stack *s, struct echi_shape shape, struct echi_cpu_view a, const struct echi_cpu_view *b,
                struct echi_cpu_view y) {
    echi_cpu_share_out(s, s->groups * shape.c, 3.0 * shape.h * shape.w, sum_channels, &(struct sum){shape, a, y, b});
}

void echi_cpu_copy(struct echi_cpu_stack *s, struct echi_shape shape, struct echi_cpu_view from, struct echi_cpu_view to) {
    sum(s, shape, from, NULL, to);
}

void echi_cpu_give(struct echi_cpu_stack *s, int boundary) {
    struct echi_cpu_boundary *b = &s->boundaries[boundary];
    const struct echi_cpu_view grad = echi_cpu_grad(s, boundary), share = echi_cpu_share(s, boundary);
    if (b->given) sum(s, b->shape, grad, &share, grad);
    b->given = true;
}

void echi_cpu_add_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    (void)params;
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_cpu_view also = echi_cpu_value(s, u->also);
    sum(s, u->layer->out, echi_cpu_value(s, u->from), &also, echi_cpu_value(s, unit + 1));
}

/* Its gradient is a share of both, as it is. */
void echi_cpu_add_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    (void)params, (void)grads, (void)need_input_grad;
    const struct echi_cpu_unit *u = &s->units[unit];
    const int boundaries[] = {u->from, u->also};
    for (int i = 0; i < 2; i++) {
        struct echi_cpu_boundary *b = &s->boundaries[boundaries[i]];
        const struct echi_cpu_view grad = echi_cpu_grad(s, boundaries[i]);
        sum(s, b->shape, echi_cpu_grad(s, unit + 1), b->given ? &grad : NULL, grad);
        b->given = true;
    }
}

struct draw { const struct echi_cpu_unit *unit; uint64_t seed; const struct echi_row *rows; };

/* Item: a group. */
static void draw_groups(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct draw *d = args;
    const ptrdiff_t width = s->k->width, size = (ptrdiff_t)echi_shape_size(d->unit->layer->out);
    float *drawn = s->own[place].drawn;
    for (int g = begin; g < end; g++) {
        const int lanes = echi_cpu_lanes(s, g);
        for (int lane = 0; lane < lanes; lane++)
            echi_dropout_factors(d->unit->layer, d->seed, d->rows[g * width + lane], drawn + lane * size);
        s->k->to_vectors(drawn, size, lanes, (int)size, d->unit->factor + g * size * width, width);
    }
}
void echi_cpu_dropout_draw(struct echi_cpu_stack *s, int unit, uint64_t seed, const struct echi_row *rows) {
    const struct echi_cpu_unit *u = &s->units[unit];
    echi_cpu_share_out(s, s->groups, 100.0 * (double)echi_shape_size(u->layer->out), draw_groups, &(struct draw){u, seed, rows});
}

/* y = x * factor. Item: a channel of one group. */
struct drop { const struct echi_cpu_unit *unit; struct echi_cpu_view x, y; };

static void drop_channels(struct echi_cpu_stack *s, const void *args, int begin, int end, int place) {
    const struct drop *d = args;
    const struct echi_cpu_view x = d->x, y = d->y;
    const struct echi_shape shape = d->unit->layer->out;
    const ptrdiff_t row = (ptrdiff_t)shape.w * s->k->width;
    (void)place;
    for (int item = begin; item < end; item++) {
        const int g = item / shape.c, c = item % shape.c;
        const float *factor = d->unit->factor + (ptrdiff_t)item * shape.h * row;
        for (int r = 0; r < shape.h; r++)
            s->k->times(x.at + g * x.group + c * x.channel + r * x.row, x.column, factor + r * row,
                        y.at + g * y.group + c * y.channel + r * y.row, y.column, shape.w);
    }
}

/* Both ways. */
static void drop(struct echi_cpu_stack *s, int unit, struct echi_cpu_view x, struct echi_cpu_view y) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_shape shape = u->layer->out;
    if (!s->trains) return sum(s, shape, x, NULL, y);
    echi_cpu_share_out(s, s->groups * shape.c, 3.0 * shape.h * shape.w, drop_channels, &(struct drop){u, x, y});
}
void echi_cpu_dropout_forward(struct echi_cpu_stack *s, int unit, const float *params) {
    (void)params;
    drop(s, unit, echi_cpu_value(s, s->units[unit].from), echi_cpu_value(s, unit + 1));
}
void echi_cpu_dropout_backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    (void)params, (void)grads, (void)need_input_grad;
    drop(s, unit, echi_cpu_grad(s, unit + 1), echi_cpu_share(s, s->units[unit].from));
}
