/* SPDX-License-Identifier: Apache-2.0
 * Every how manieth case is tried: all, or fewer where a machine is emulated or watched (TEST_PART). */
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
