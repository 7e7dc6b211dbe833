/* SPDX-License-Identifier: Apache-2.0
 * A set of small numbers, a bit each. */
#ifndef ECHI_BITS_H
#define ECHI_BITS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_BITS_WORDS(count) (((size_t)(count) + 63) / 64)   /* u64 for the numbers 0 .. count - 1 */

static inline void echi_bits_add(uint64_t *set, int i) { set[i / 64] |= UINT64_C(1) << i % 64; }
static inline void echi_bits_drop(uint64_t *set, int i) { set[i / 64] &= ~(UINT64_C(1) << i % 64); }
static inline bool echi_bits_has(const uint64_t *set, int i) { return set[i / 64] >> i % 64 & 1; }

/* The first of the set that is not below `from`; -1: none. The set is of the numbers 0 .. count - 1. */
static inline int echi_bits_next(const uint64_t *set, int count, int from) {
    if (from >= count) return -1;
    uint64_t word = set[from / 64] & UINT64_MAX << from % 64;
    for (int i = from / 64;; word = set[i]) {
        if (word) return 64 * i + __builtin_ctzll(word);
        if (64 * ++i >= count) return -1;
    }
}
#endif
