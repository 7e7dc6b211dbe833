/* SPDX-License-Identifier: Apache-2.0
 * The exponential function of a vector, which softmax and tanh share: products and sums only, so its bits are those of the instruction
 * set it is compiled for. */
#ifndef ECHI_VEC_EXP_H
#define ECHI_VEC_EXP_H
#include "echi_vec.h"

/* e^x for x <= 0: x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its Taylor series to r^7 (the rest is below 2^-27); 2^n by the bits
 * of a float. Below -87, where the result would not be a normal number, it is 0. A NaN stays. */
INLINE vec exp_negative(vec x) {
    const float magic = 12582912.0f;   /* 1.5 * 2^23: adding it rounds to an integer in the lowest bits */
    const ivec tiny = x < -87.0f;
    const vec clamped = pick(tiny, splat(-87.0f), x);
    const vec shifted = clamped * 1.44269504f + magic;
    const vec n = shifted - magic;
    const vec r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;   /* ln 2 in two parts: the first product is exact */
    vec p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    const ivec power = (((ivec)shifted - 0x4b400000) + 127) << 23;
    return pick(tiny, (vec){0}, p * (vec)power);
}
#endif
