/* SPDX-License-Identifier: Apache-2.0
 * Batch-norm along a run of one channel's vectors. Sums go by four, so that an addition need not wait for the one before it. */
#include "echi_vec.h"

enum { CHAINS = 4 };

void ISA(norm_sum)(const struct echi_cpu_norm *n) {
    vec sum[CHAINS] = {load(n->sums)};
    for (int i = 0; i < n->count; i++) sum[i % CHAINS] += load(n->x + i * n->x_column);
    store(n->sums, (sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void ISA(norm_squares)(const struct echi_cpu_norm *n) {
    const vec mean = splat(n->mean);
    vec sum[CHAINS] = {load(n->sums)};
    for (int i = 0; i < n->count; i++) {
        const vec from_mean = load(n->x + i * n->x_column) - mean;
        sum[i % CHAINS] += from_mean * from_mean;
    }
    store(n->sums, (sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void ISA(norm)(const struct echi_cpu_norm *n) {
    const vec mean = splat(n->mean), scale = splat(n->scale), shift = splat(n->shift), zero = {0};
    for (int i = 0; i < n->count; i++) {
        vec y = (load(n->x + i * n->x_column) - mean) * scale + shift;
        if (n->relu) y = pick(y <= zero, zero, y);
        store(n->out + i * n->out_column, y);
    }
}

/* The gradient before ReLU, which is where the normalised number was above 0. */
INLINE vec before_relu(const struct echi_cpu_norm *n, vec from_mean, vec dy, vec scale, vec shift) {
    const vec zero = {0};
    return n->relu ? pick(from_mean * scale + shift <= zero, zero, dy) : dy;
}

void ISA(norm_back_sums)(const struct echi_cpu_norm *n) {
    const vec mean = splat(n->mean), scale = splat(n->scale), shift = splat(n->shift);
    vec sum[CHAINS] = {load(n->sums)}, along[CHAINS] = {load(n->sums + VEC_FLOATS)};
    for (int i = 0; i < n->count; i++) {
        const vec from_mean = load(n->x + i * n->x_column) - mean;
        const vec dy = before_relu(n, from_mean, load(n->dy + i * n->dy_column), scale, shift);
        sum[i % CHAINS] += dy;
        along[i % CHAINS] += dy * from_mean;
    }
    store(n->sums, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    store(n->sums + VEC_FLOATS, (along[0] + along[1]) + (along[2] + along[3]));
}

void ISA(norm_back)(const struct echi_cpu_norm *n) {
    const vec mean = splat(n->mean), scale = splat(n->scale), shift = splat(n->shift);
    const vec minus = load(n->minus), slope = load(n->minus + VEC_FLOATS);
    for (int i = 0; i < n->count; i++) {
        const vec from_mean = load(n->x + i * n->x_column) - mean;
        const vec dy = before_relu(n, from_mean, load(n->dy + i * n->dy_column), scale, shift);
        store(n->out + i * n->out_column, scale * (dy - minus - from_mean * slope));
    }
}
