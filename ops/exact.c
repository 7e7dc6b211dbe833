/* SPDX-License-Identifier: Apache-2.0
 * Sums in whole numbers (lib/PROTOCOL.md, "Deterministic runs"). Floats added in another order round otherwise; integers do
 * not. A gradient becomes a count of 2^-44, which is finer than the rounding of the float it came from unless that is below
 * 2^-20, and there the error, 2^-45 a reduction block, is nothing against the sum of a round. */
#include "echi_error.h"
#include "echi_ops.h"
#include "echi_ranges.h"

#include <stdatomic.h>
#include <string.h>

#define UNITS 0x1p44      /* in 1 */
#define MOST 0x1p62       /* units of one gradient: a sum of two still fits */

/* Numbers [at, at + count) of a buffer, of `size` bytes each: *out is a pointer to them. */
static ech_status numbers(const struct echi_buffer *buffer, size_t size, size_t at, size_t count, const char *operation, void *out,
                          struct ech_error *err) {
    uint8_t *host = buffer ? echi_buffer_host(buffer) : NULL;
    if (!host) return echi_fail(err, ECH_E_ARGUMENT, operation, "a buffer is NULL or not in host memory; choose the device 'cpu'");
    const size_t room = echi_buffer_bytes(buffer) / size;
    if ((uintptr_t)host % size != 0 || at > room || count > room - at)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%zu numbers at %zu do not fit in a buffer of %zu", count, at, room);
    host += at * size;
    memcpy(out, &host, sizeof host);
    return ECH_OK;
}

static ech_status too_large(const char *operation, struct ech_error *err) {
    return echi_fail(err, ECH_E_DIVERGED, operation,
                     "a gradient is larger than --deterministic can add up (2^18), or no number: lower --lr, or look for bad "
                     "samples in the data");
}

/* What the three calls work on. */
struct numbers { int64_t *sum; const int64_t *from, *terms; echi_real *to; const echi_real *real; bool add; atomic_bool bad; };

static void take(void *args, size_t begin, size_t end) {
    struct numbers *x = args;
    bool bad = false;
    for (size_t i = begin; i < end; i++) {
        const double units = (double)x->real[i] * UNITS;
        const bool fits = units > -MOST && units < MOST;   /* false for a NaN */
        const int64_t term = fits ? (int64_t)(units + (units < 0 ? -0.5 : 0.5)) : 0;
        bad |= !fits | __builtin_add_overflow(x->add ? x->sum[i] : 0, term, &x->sum[i]);
    }
    if (bad) atomic_store(&x->bad, true);
}

ech_status echi_exact_take(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *g, size_t at, size_t count,
                           bool add, struct ech_error *err) {
    int64_t *to;
    const echi_real *from;
    ECHI_TRY(numbers(sum, sizeof *to, at, count, "exact.take", &to, err));
    ECHI_TRY(numbers(g, sizeof *from, at, count, "exact.take", &from, err));
    struct numbers x = {.sum = to, .real = from, .add = add};
    echi_ranges_run(device, count, take, &x);
    return atomic_load(&x.bad) ? too_large("exact.take", err) : ECH_OK;
}

static void add_terms(void *args, size_t begin, size_t end) {
    struct numbers *x = args;
    bool bad = false;
    for (size_t i = begin; i < end; i++) bad |= __builtin_add_overflow(x->from[i], x->terms ? x->terms[i] : 0, &x->sum[i]);
    if (bad) atomic_store(&x->bad, true);
}

ech_status echi_exact_add(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *from,
                          const struct echi_buffer *const *terms, int n_terms, size_t at, size_t count, struct ech_error *err) {
    int64_t *to;
    struct numbers x = {.terms = NULL};
    ECHI_TRY(numbers(sum, sizeof *to, at, count, "exact.add", &to, err));
    ECHI_TRY(numbers(from, sizeof *to, at, count, "exact.add", &x.from, err));
    x.sum = to;
    for (int i = 0; i < n_terms || i == 0; i++) {   /* without terms what there is is copied */
        if (n_terms > 0) ECHI_TRY(numbers(terms[i], sizeof *to, at, count, "exact.add", &x.terms, err));
        if (n_terms > 0 || sum != from) echi_ranges_run(device, count, add_terms, &x);
        x.from = to;
    }
    return atomic_load(&x.bad) ? too_large("exact.add", err) : ECH_OK;
}

static void round_sums(void *args, size_t begin, size_t end) {
    const struct numbers *x = args;
    for (size_t i = begin; i < end; i++) x->to[i] = (echi_real)x->terms[i] * (echi_real)(1 / UNITS);
}

ech_status echi_exact_round(struct echi_device *device, struct echi_buffer *g, const struct echi_buffer *sum, size_t at, size_t count,
                            struct ech_error *err) {
    echi_real *to;
    const int64_t *from;
    ECHI_TRY(numbers(g, sizeof *to, at, count, "exact.round", &to, err));
    ECHI_TRY(numbers(sum, sizeof *from, at, count, "exact.round", &from, err));
    echi_ranges_run(device, count, round_sums, &(struct numbers){.to = to, .terms = from});
    return ECH_OK;
}
