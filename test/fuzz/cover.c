/* SPDX-License-Identifier: Apache-2.0
 * Which edges of the library an input goes through. Compiled with -fsanitize-coverage=trace-pc each basic block calls the
 * function below; a pair of blocks is an edge, and an edge taken once, twice, a few or many times are features of their own.
 * This file is compiled without that flag. */
#include "fuzz.h"

#define EDGES 65536u
static uint8_t times[EDGES], seen[EDGES]; /* of this input; which counts any input had, one bit each */
static uint32_t touched[EDGES], n_touched;
static uintptr_t last;
static int features;

void __sanitizer_cov_trace_pc(void); /* its name is the compilers' */
void __sanitizer_cov_trace_pc(void) {
    /* Seen from an address of our own, so that the loader's choice of places changes nothing. */
    const uintptr_t here = (uintptr_t)__builtin_return_address(0) - (uintptr_t)&__sanitizer_cov_trace_pc;
    const uint32_t edge = (uint32_t)((here ^ last) * 2654435761u >> 7) & (EDGES - 1);
    last = here << 1;
    if (!times[edge]) touched[n_touched++] = edge;
    if (times[edge] < 255) times[edge]++;
}

static int bucket(uint8_t n) { return n < 4 ? n - 1 : n < 8 ? 3 : n < 16 ? 4 : n < 32 ? 5 : n < 128 ? 6 : 7; }

void fuzz_cover_begin(void) {
    for (uint32_t i = 0; i < n_touched; i++) times[touched[i]] = 0;
    n_touched = 0;
    last = 0;
}

int fuzz_cover_end(bool counts) {
    int fresh = 0;
    for (uint32_t i = 0; i < n_touched; i++) {
        const uint8_t bit = (uint8_t)(1u << (counts ? bucket(times[touched[i]]) : 0));
        fresh += !(seen[touched[i]] & bit);
        seen[touched[i]] |= bit;
    }
    features += fresh;
    return fresh;
}

void fuzz_cover_forget(void) {
    for (uint32_t i = 0; i < EDGES; i++) seen[i] = 0;
    features = 0;
}

int fuzz_cover_features(void) { return features; }
