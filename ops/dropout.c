/* SPDX-License-Identifier: Apache-2.0
 * What dropout draws: a pure function of (seed, epoch, sample, layer, place), so that a sample loses the same numbers whoever
 * gets it, in whatever batch and order, also when it is computed again (lib/PROTOCOL.md, "Randomness"). */
#include "echi_random.h"
#include "echi_stack_impl.h"

/* The counter has too few bits for all that keys a number, so epoch and layer make a seed of their own; the sample and the place
 * count in it. A number is dropped when its word is below p * 2^32. */
void echi_dropout_factors(const struct echi_layer *layer, uint64_t seed, struct echi_row row, echi_real *out) {
    const size_t size = echi_shape_size(layer->out);
    const uint32_t below = (uint32_t)(((uint64_t)layer->drop << 32) / ECHI_WHOLE);
    const echi_real kept = (echi_real)ECHI_WHOLE / (echi_real)(ECHI_WHOLE - layer->drop);
    uint32_t word[4];
    echi_random4(seed, ECHI_STREAM_DROPOUT, row.epoch, layer->number, word);
    const uint64_t own = (uint64_t)word[1] << 32 | word[0];
    for (size_t i = 0; i < size; i++) {
        if (i % 4 == 0) echi_random4(own, ECHI_STREAM_DROPOUT, row.sample, i / 4, word);
        out[i] = word[i % 4] < below ? 0 : kept;
    }
}
