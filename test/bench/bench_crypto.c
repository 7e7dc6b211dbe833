/* SPDX-License-Identifier: Apache-2.0
 * What it costs one thread to seal frames: Poly1305 alone and the seal, for the largest frame's bytes and for a frame that is
 * only a header. */
#include "echi_os.h"
#include "echi_seal.h"

#include <stdio.h>
#include <stdlib.h>

enum { HEAD = 40, LARGEST = 65536, RUNS = 9 };
static uint8_t body[LARGEST], tag[ECHI_SEAL_TAG], key[ECHI_SEAL_KEY];

static void poly1305(uint64_t number) {
    struct echi_poly1305 p;
    (void)number;
    echi_poly1305_begin(&p, key);
    echi_poly1305_add(&p, body, LARGEST);
    echi_poly1305_end(&p, tag);
}

static void seal(uint64_t number, size_t body_len) {
    struct echi_seal s;
    echi_seal_begin(&s, key, 0, number);
    echi_seal_head(&s, body, HEAD);
    echi_seal_body(&s, body, body_len);
    echi_seal_end(&s, tag);
}

static void seal_largest(uint64_t number) { seal(number, LARGEST); }
static void seal_header(uint64_t number) { seal(number, 0); }

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds that one call takes: the median of some runs of about 20 ms. */
static double measure(void (*call)(uint64_t number)) {
    double ns[RUNS];
    uint64_t number = 0;
    for (int run = 0; run < RUNS; run++) {
        const uint64_t first = number;
        const int64_t start = echi_now();
        int64_t now = start;
        for (; now - start < 20000000; now = echi_now())
            for (int i = 0; i < 16; i++) call(number++);
        ns[run] = (double)(now - start) / (double)(number - first);
    }
    qsort(ns, RUNS, sizeof ns[0], by_value);
    return ns[RUNS / 2];
}

int main(void) {
    for (size_t i = 0; i < sizeof body; i++) body[i] = (uint8_t)(i * 37);
    for (size_t i = 0; i < sizeof key; i++) key[i] = (uint8_t)i;
    const double tag_ns = measure(poly1305), seal_ns = measure(seal_largest), header_ns = measure(seal_header);
    printf("Poly1305   %6d bytes %9.0f ns  %6.2f GB/s\n", LARGEST, tag_ns, LARGEST / tag_ns);
    printf("seal  %2d + %6d bytes %9.0f ns  %6.2f GB/s\n", HEAD, LARGEST, seal_ns, (HEAD + LARGEST) / seal_ns);
    printf("seal  %2d + %6d bytes %9.0f ns\n", HEAD, 0, header_ns);
    return 0;
}
