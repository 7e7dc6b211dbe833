/* SPDX-License-Identifier: Apache-2.0
 * Handling of secrets: a comparison that takes the same time wherever two values differ, and a wipe that stays in the
 * program. What the compiler keeps in registers or spills to the stack, C has no way to wipe. */
#ifndef ECHI_SECRET_H
#define ECHI_SECRET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool echi_secret_equal(const void *a, const void *b, size_t n) {
    const uint8_t *x = a, *y = b;
    uint8_t unlike = 0;
    for (size_t i = 0; i < n; i++) {
        unlike |= (uint8_t)(x[i] ^ y[i]);
        __asm__("" : "+r"(unlike)); /* for all the compiler knows any bit of it may still change: leaving early would be wrong */
    }
    return unlike == 0;
}

static inline void echi_secret_wipe(void *p, size_t n) {
    memset(p, 0, n);
    __asm__ volatile("" : : "r"(p) : "memory"); /* which may read *p, so that the zeros must be there */
}
#endif
