/* SPDX-License-Identifier: Apache-2.0
 * Training loss by samples while the first epoch goes: what statistical efficiency is measured by (lib/job/echi_curves.h). A sample that
 * nothing was learnt from yet is as good as one of a test set; later losses fall with epochs, whatever the policy. curve.c */
#ifndef ECHI_CURVE_H
#define ECHI_CURVE_H
#include <stdint.h>

/* Bins of equal width from the first sample on. Where a run outgrows them, two become one: half of them are in use at least. */
#define ECHI_CURVE_BINS 128
struct echi_curve {
    uint64_t width;                               /* samples of a bin; 0: nothing has been added */
    struct { double loss; uint64_t samples; } bin[ECHI_CURVE_BINS];   /* sums over the samples in it */
};

/* `loss` is the sum over n > 0 samples, with which `at` samples are applied. `round` > 0: width of the first bins. */
void echi_curve_add(struct echi_curve *curve, uint32_t round, uint64_t at, double loss, uint32_t n);
#endif
