/* SPDX-License-Identifier: Apache-2.0
 * Which elements of a gradient are sent: the sampled-threshold selection of Deep Gradient Compression (Lin et al., ICLR 2018) and
 * GDTopK (lib/PROTOCOL.md, "Sources"), in the plainest loops. Two things are added: a zero is never sent, and a threshold of zero is
 * not lowered any further. */
#include "echi_ref.h"
#include "echi_random.h"

#include <stdlib.h>

static echi_real magnitude(echi_real v) { return v < 0 ? -v : v; }

static int larger_first(const void *a, const void *b) {
    const echi_real x = *(const echi_real *)a, y = *(const echi_real *)b;
    return (x < y) - (x > y);
}

static size_t part_of(size_t count, uint32_t ratio) { return (size_t)(((uint64_t)count * ratio + ECHI_WHOLE - 1) / ECHI_WHOLE); }

/* Place number j of the sample. */
static size_t place(const struct echi_topk *how, size_t count, size_t j) {
    uint32_t word[4];
    echi_random4(how->seed, ECHI_STREAM_SAMPLE, how->turn, (uint64_t)how->part << 32 | j / 4, word);
    return (size_t)((uint64_t)word[j % 4] * count >> 32);
}

static size_t from(size_t count, const echi_real *x, echi_real least, uint32_t *out_index) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (x[i] != 0 && magnitude(x[i]) >= least) out_index[n++] = (uint32_t)i;
    return n;
}

size_t ECHI_REF(topk)(size_t count, const echi_real *x, const struct echi_topk *how, echi_real *scratch, uint32_t *out_index) {
    if (count == 0) return 0;
    const bool sampled = count > (2 * (uint64_t)ECHI_WHOLE + how->ratio - 1) / how->ratio;
    const size_t k = part_of(count, how->ratio);
    const size_t samples = sampled ? part_of(count, how->sample) : count, of_sample = part_of(samples, how->ratio);
    for (size_t j = 0; j < samples; j++) scratch[j] = magnitude(x[sampled ? place(how, count, j) : j]);
    qsort(scratch, samples, sizeof *scratch, larger_first);
    echi_real least = scratch[of_sample - 1];
    size_t n = from(count, x, least, out_index);
    for (int turn = 0; turn < 10 && sampled; turn++) {
        if (10 * n > 13 * k) {
            for (size_t i = 0; i < n; i++) scratch[i] = magnitude(x[out_index[i]]);
            qsort(scratch, n, sizeof *scratch, larger_first);
            least = scratch[k - 1];
            size_t equal = k, kept = 0;   /* those that are as large as the last: as many as are left for them */
            for (size_t i = 0; i < k; i++) equal -= scratch[i] > least;
            for (size_t i = 0; i < n; i++) {
                const echi_real m = magnitude(x[out_index[i]]);
                if (m > least || (m == least && equal > 0)) {
                    equal -= m == least;
                    out_index[kept++] = out_index[i];
                }
            }
            n = kept;
            break;
        }
        if (10 * n >= 8 * k || least == 0) break;
        least *= (echi_real)0.8;
        n = from(count, x, least, out_index);
    }
    return n < k ? n : k;
}
