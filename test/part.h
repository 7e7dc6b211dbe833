/* SPDX-License-Identifier: Apache-2.0
 * Of the random cases every TEST_PART-th is tried: by `make check` all, by CI a fifth, by `make test` and under an emulator or a sanitizer
 * fewer. Which fifth is CI's turn: another with each commit, so that five have tried all. */
#ifndef TEST_PART_H
#define TEST_PART_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint32_t test_part(void) {
    const char *text = getenv("TEST_PART");
    const int by = text ? atoi(text) : 1;
    return by > 0 ? (uint32_t)by : 1;
}

/* The first case to try: TEST_TURN, counted round. Less than test_part(). */
static inline uint32_t test_turn(void) {
    const char *text = getenv("TEST_TURN");
    return text ? (uint32_t)strtoul(text, NULL, 10) % test_part() : 0;
}

/* Of cases that are not random, but are many or long, some are left out only where few are to be tried at all. */
static inline bool test_few(void) { return test_part() > 5; }

/* The step through random cases of which some must be of a kind: a fifth of them may have none. Those are counted; what takes long can
 * still be for those whose turn it is. */
static inline uint32_t test_part_by_kinds(void) { return test_few() ? test_part() : 1; }
#endif
