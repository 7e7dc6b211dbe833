/* SPDX-License-Identifier: Apache-2.0
 * Numbers as bf16: the sign, the exponent and the first seven bits of a float's fraction (Wang and Kanwar, "BFloat16: the secret to high
 * performance on Cloud TPUs", 2019). To the nearest, of two as near the even one, as IEEE 754 rounds: so beyond the largest it is
 * infinity. A NaN stays one, with its sign and the first bits of what it carries. */
#include "echi_ref.h"

#include <string.h>

void ECHI_REF(to_bf16)(size_t count, const echi_real *x, uint16_t *y) {
    for (size_t i = 0; i < count; i++) {
        const float v = (float)x[i];
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        const uint32_t kept = bits >> 16, rest = bits & 0xffff, half = 0x8000;
        const bool up = rest > half || (rest == half && kept % 2 == 1);
        y[i] = (uint16_t)(v != v ? kept | 0x40 : kept + up);   /* a NaN of which nothing is kept would be infinity */
    }
}

void ECHI_REF(from_bf16)(size_t count, const uint16_t *x, echi_real *y) {
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)x[i] << 16;
        float v;
        memcpy(&v, &bits, sizeof v);
        y[i] = (echi_real)v;
    }
}
