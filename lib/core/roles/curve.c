/* SPDX-License-Identifier: Apache-2.0
 * Training loss by samples, in a fixed number of bins. */
#include "echi_curve.h"

#include <stdbool.h>

static void halve(struct echi_curve *c) {
    for (int i = 0; i < ECHI_CURVE_BINS; i++) {
        const int from = 2 * i;
        const bool there = from < ECHI_CURVE_BINS;
        c->bin[i].loss = there ? c->bin[from].loss + c->bin[from + 1].loss : 0;
        c->bin[i].samples = there ? c->bin[from].samples + c->bin[from + 1].samples : 0;
    }
    c->width *= 2;
}

void echi_curve_add(struct echi_curve *c, uint32_t round, uint64_t at, double loss, uint32_t n) {
    const uint64_t before = at > n ? at - n : 0;
    if (c->width == 0) c->width = round;
    while (before / c->width >= ECHI_CURVE_BINS) halve(c);
    c->bin[before / c->width].loss += loss;
    c->bin[before / c->width].samples += n;
}
