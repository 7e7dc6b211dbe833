/* SPDX-License-Identifier: Apache-2.0
 * Flat ranges of parameters. Unlike the other kernels these owe the same bits on every instruction set: each operation
 * is rounded by itself (the Makefile compiles this file without contraction), and no sum goes across floats. */
#include "echi_vec.h"

#include <string.h>

/* echi_velocity: numbers whose exponent has no bit set are 0. */
INLINE vec velocity(vec v) { return (vec)((ivec)v & (((ivec)v & 0x7f800000) != 0)); }

void ISA(descend)(const struct echi_cpu_descent *d, size_t count) {
    const vec lr = splat(d->lr), momentum = splat(d->momentum), decay = splat(d->decay);
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) {
        const vec g = load(d->g + i) + decay * load(d->w + i);
        const vec v = velocity(momentum * load(d->v + i) + g);
        const vec out = load(d->a + i) - lr * (d->nesterov ? g + momentum * v : v);
        store(d->v + i, v);
        store(d->out + i, out);
    }
    for (; i < count; i++) echi_cpu_descend_one(d, i);
}

void ISA(add)(float *sum, const float *x, size_t count) {
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) store(sum + i, load(sum + i) + load(x + i));
    for (; i < count; i++) sum[i] += x[i];
}

/* A float is infinite or NaN exactly when all bits of its exponent are set. */
bool ISA(finite)(const float *x, size_t count) {
    const int32_t exponent = 0x7f800000;
    const ivec all = exponent - (ivec){0};
    ivec bad = {0};
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) bad |= ((ivec)load(x + i) & all) == all;
    bool good = true;
    for (int lane = 0; lane < VEC_FLOATS; lane++) good = good && bad[lane] == 0;
    for (; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        good = good && (bits & exponent) != exponent;
    }
    return good;
}

/* Without their sign, floats that are not NaN compare as their bits do. The lanes' counts are added up before they could overflow. */
size_t ISA(count_from)(const float *x, size_t count, float least) {
    const int32_t magnitude = 0x7fffffff;
    int32_t from;
    memcpy(&from, &least, sizeof from);
    const ivec bits = magnitude - (ivec){0}, below = from - 1 - (ivec){0};
    size_t found = 0, i = 0;
    while (i + VEC_FLOATS <= count) {
        const size_t left = (count - i) / VEC_FLOATS, turns = left < 1u << 20 ? left : 1u << 20;
        ivec sum = {0};
        for (size_t t = 0; t < turns; t++, i += VEC_FLOATS) sum -= ((ivec)load(x + i) & bits) > below;
        for (int lane = 0; lane < VEC_FLOATS; lane++) found += (size_t)sum[lane];
    }
    for (; i < count; i++) {
        int32_t own;
        memcpy(&own, &x[i], sizeof own);
        found += (own & magnitude) >= from;
    }
    return found;
}
