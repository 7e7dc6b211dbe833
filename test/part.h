/* SPDX-License-Identifier: Apache-2.0
 * Of the random cases every TEST_PART-th is tried: by `make check` all, by `make test` and under an emulator or a sanitizer fewer. */
#ifndef TEST_PART_H
#define TEST_PART_H
#include <stdint.h>
#include <stdlib.h>

static inline uint32_t test_part(void) {
    const char *text = getenv("TEST_PART");
    const int by = text ? atoi(text) : 1;
    return by > 0 ? (uint32_t)by : 1;
}
#endif
