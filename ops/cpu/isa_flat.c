/* SPDX-License-Identifier: Apache-2.0
 * Flat ranges of parameters. Unlike the other kernels these owe the same bits on every instruction set: each operation
 * is rounded by itself (the Makefile compiles this file without contraction), and no sum goes across floats. */
#include "echi_vec.h"

#include <string.h>

/* echi_velocity: numbers whose exponent has no bit set are 0. */
INLINE vec velocity(vec v) { return (vec)((ivec)v & (((ivec)v & 0x7f800000) != 0)); }

/* Floats ahead of which a long range is fetched, half a page: the processor itself looks no further than a page's end. */
enum { AHEAD = 512 };

/* Weights are fetched to be written: all threads have read them, and a store would wait until the others have given up theirs. */
INLINE void fetch(const struct echi_cpu_descent *d, size_t at) {
    __builtin_prefetch(d->g + at, 0, 2);
    __builtin_prefetch(d->out + at, 1);
}

void ISA(descend)(const struct echi_cpu_descent *d, size_t count) {
    const vec lr = splat(d->how->lr), momentum = splat(d->how->momentum), l2 = splat(d->how->l2);
    const bool nesterov = d->how->rule == ECHI_RULE_NESTEROV, remembers = d->how->momentum != 0;
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) {
        fetch(d, i + AHEAD);
        if (remembers) __builtin_prefetch(d->v + i + AHEAD, 0, 2);
        const vec g = load(d->g + i) + l2 * load(d->w + i);
        const vec v = velocity((remembers ? momentum * load(d->v + i) : (vec){0}) + g);
        const vec out = load(d->a + i) - lr * (nesterov ? g + momentum * v : v);
        if (remembers) store(d->v + i, v);
        store(d->out + i, out);
    }
    for (; i < count; i++) echi_cpu_descend_one(d, i);
}

/* The compiler makes one instruction of it. */
INLINE vec root(vec x) {
    vec y;
    UNROLL for (int lane = 0; lane < VEC_FLOATS; lane++) y[lane] = echi_cpu_root(x[lane]);
    return y;
}

void ISA(adam)(const struct echi_cpu_descent *d, size_t count) {
    const struct echi_step *how = d->how;
    const vec lr = splat(how->lr), l2 = splat(how->l2), per_f = splat(how->per_f), keep1 = splat(how->keep1), gain1 = splat(how->gain1);
    const vec keep2 = splat(how->keep2), gain2 = splat(how->gain2), whole2 = splat(how->whole2), epsilon = splat(how->epsilon);
    const vec shrink = splat(how->shrink);
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) {
        fetch(d, i + AHEAD);
        __builtin_prefetch(d->v + i + AHEAD, 0, 2);
        __builtin_prefetch(d->s + i + AHEAD, 0, 2);
        const vec w = load(d->w + i), g = per_f * load(d->g + i) + l2 * w;
        const vec m = velocity(keep1 * load(d->v + i) + gain1 * g);
        const vec s = velocity(keep2 * load(d->s + i) + gain2 * (g * g));
        const vec out = load(d->a + i) - (lr * m / (root(whole2 * s) + epsilon) + shrink * w);
        store(d->v + i, m);
        store(d->s + i, s);
        store(d->out + i, out);
    }
    for (; i < count; i++) echi_cpu_adam_one(d, i);
}

void ISA(add)(float *sum, const float *a, const float *b, size_t count) {
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) store(sum + i, load(a + i) + load(b + i));
    for (; i < count; i++) sum[i] = a[i] + b[i];
}

void ISA(add_scaled)(float *sum, const float *from, float from_factor, const float *x, float factor, size_t count) {
    const vec by = splat(from_factor), x_by = splat(factor);
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) {
        __builtin_prefetch(from + i + AHEAD, 1);   /* which is often the sum itself */
        __builtin_prefetch(x + i + AHEAD, 0, 2);
        store(sum + i, by * load(from + i) + x_by * load(x + i));
    }
    for (; i < count; i++) sum[i] = from_factor * from[i] + factor * x[i];
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

/* What is above half of the last bit that is kept, or half and odd, is carried into it, and at the largest number on into the exponent:
 * infinity. VCVTNEPS2BF16 of AVX512-BF16 does the same in one instruction, but takes subnormal numbers for 0. */
void ISA(to_bf16)(uint16_t *to, const float *x, size_t count) {
    const uint32_t magnitude = 0x7fffffff, infinity = 0x7f800000, quiet = 0x40;
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS) {
        const uvec bits = (uvec)load(x + i), kept = bits >> 16;
        const uvec is_nan = (uvec)((bits & magnitude) > infinity), rounded = (bits + 0x7fffu + (kept & 1u)) >> 16;
        *(hvec_anywhere *)(to + i) = __builtin_convertvector((is_nan & (kept | quiet)) | (~is_nan & rounded), hvec);
    }
    for (; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        const uint32_t kept = bits >> 16;
        to[i] = (uint16_t)((bits & magnitude) > infinity ? kept | quiet : (bits + 0x7fffu + (kept & 1u)) >> 16);
    }
}

void ISA(from_bf16)(float *to, const uint16_t *x, size_t count) {
    size_t i = 0;
    for (; i + VEC_FLOATS <= count; i += VEC_FLOATS)
        store(to + i, (vec)(__builtin_convertvector(*(const hvec_anywhere *)(x + i), uvec) << 16));
    for (; i < count; i++) {
        const uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}
