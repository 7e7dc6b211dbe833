/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic on flat ranges of parameters: the checks, and the kernels of the best instruction set. Every float is computed
 * by the operations that the header writes down, in that order, each rounded by itself, so the result is the same on every
 * machine. */
#include "cpu/echi_cpu_kernels.h"
#include "echi_error.h"
#include "echi_ops.h"
#include "echi_ranges.h"

#include <stdatomic.h>
#include <string.h>

/* --- checked ranges --- */

/* The floats [at, at + count) of a buffer. */
static ech_status range_of(const struct echi_device *device, const struct echi_buffer *buffer, const char *name, size_t at, size_t count,
                           const char *operation, echi_real **out, struct ech_error *err) {
    if (device == NULL || buffer == NULL)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%s is NULL", device == NULL ? "device" : name);
    echi_real *host = echi_buffer_host(buffer);
    if (host == NULL) return echi_fail(err, ECH_E_UNSUPPORTED, operation, "%s is not in host memory; choose the device 'cpu'", name);
    if ((uintptr_t)host % sizeof(echi_real) != 0)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%s does not start at a multiple of %zu bytes", name, sizeof(echi_real));
    size_t floats = echi_buffer_bytes(buffer) / sizeof(echi_real);
    if (at > floats || count > floats - at)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%zu floats at %zu do not fit in %s, which has %zu", count, at, name, floats);
    *out = host + at;
    return ECH_OK;
}

/* `written` is changed while `other` is read or changed, so they must be different memory. */
static ech_status apart(const echi_real *written, const char *written_name, const echi_real *other, const char *other_name, size_t count,
                        const char *operation, struct ech_error *err) {
    uintptr_t a = (uintptr_t)written, b = (uintptr_t)other, bytes = count * sizeof(echi_real);
    if (bytes == 0 || a + bytes <= b || b + bytes <= a) return ECH_OK;
    return echi_fail(err, ECH_E_ARGUMENT, operation, "%s and %s are the same memory; they must be two buffers", written_name, other_name);
}

/* As `apart`, but the very same place is fine: each float is read before it is written. */
static ech_status apart_or_same(const echi_real *written, const char *written_name, const echi_real *other, const char *other_name,
                                size_t count, const char *operation, struct ech_error *err) {
    return written == other ? ECH_OK : apart(written, written_name, other, other_name, count, operation, err);
}

/* --- the calls --- */

/* Part of a step's range, which threads share. */
struct step_work { const struct echi_cpu_kernels *k; struct echi_cpu_descent all; };
static void step_range(void *args, size_t begin, size_t end) {
    const struct step_work *work = args;
    struct echi_cpu_descent d = work->all;
    d.w += begin, d.a += begin, d.g += begin, d.out += begin, d.v += begin;
    const bool adam = d.how->rule == ECHI_RULE_ADAM;
    if (adam) d.s += begin;
    (adam ? work->k->adam : work->k->descend)(&d, end - begin);
}

/* out = a - the step, where a is w or the state. */
static ech_status step(struct echi_device *device, const char *op, const struct echi_buffer *w, const struct echi_buffer *a,
                       const char *a_name, struct echi_buffer *out, const char *out_name, const struct echi_moments *v,
                       const struct echi_buffer *g, size_t at, size_t count, const struct echi_step *how, struct ech_error *err) {
    echi_real *weights, *from, *to, *gradient, *moment[2] = {NULL, NULL};
    static const char *const names[2] = {"v", "s"};
    if (how == NULL || v == NULL) return echi_fail(err, ECH_E_ARGUMENT, op, "%s is NULL", how == NULL ? "how" : "v");
    const bool adam = how->rule == ECHI_RULE_ADAM;
    ECHI_TRY(range_of(device, w, "w", at, count, op, &weights, err));
    ECHI_TRY(range_of(device, a, a_name, at, count, op, &from, err));
    ECHI_TRY(range_of(device, out, out_name, at, count, op, &to, err));
    ECHI_TRY(range_of(device, g, "g", at, count, op, &gradient, err));
    ECHI_TRY(apart_or_same(to, out_name, from, a_name, count, op, err));
    if (from != weights) ECHI_TRY(apart(to, out_name, weights, "w", count, op, err));
    for (int i = 0; i < (adam ? 2 : 1); i++) {
        ECHI_TRY(range_of(device, v->buffer, names[i], i ? v->second_at : v->first_at, count, op, &moment[i], err));
        ECHI_TRY(apart(to, out_name, moment[i], names[i], count, op, err));
        ECHI_TRY(apart(moment[i], names[i], weights, "w", count, op, err));
        ECHI_TRY(apart(moment[i], names[i], from, a_name, count, op, err));
        ECHI_TRY(apart(moment[i], names[i], gradient, "g", count, op, err));
    }
    if (adam) ECHI_TRY(apart(moment[0], "v", moment[1], "s", count, op, err));
    ECHI_TRY(apart(to, out_name, gradient, "g", count, op, err));
    struct step_work work = {echi_kernels(device), {weights, from, gradient, to, moment[0], moment[1], how}};
    echi_ranges_run(device, count, step_range, &work);
    return ECH_OK;
}

/* What the shorter calls below work on. */
struct arrays {
    const struct echi_cpu_kernels *k;
    echi_real *to, *before;
    const echi_real *from;
    echi_real factor, before_factor;
    atomic_bool bad;
};

ech_status echi_apply(struct echi_device *device, const struct echi_buffer *w, struct echi_buffer *w_out, const struct echi_moments *v,
                      const struct echi_buffer *g, size_t at, size_t count, const struct echi_step *how, struct ech_error *err) {
    return step(device, "apply", w, w, "w", w_out, "w_out", v, g, at, count, how, err);
}

ech_status echi_apply_state(struct echi_device *device, const struct echi_buffer *w, const struct echi_buffer *a, struct echi_buffer *a_out,
                            const struct echi_moments *v, const struct echi_buffer *g, size_t at, size_t count, const struct echi_step *how,
                            struct ech_error *err) {
    return step(device, "apply.state", w, a, "a", a_out, "a_out", v, g, at, count, how, err);
}

/* These two of `local` are run once a round, and are bound by memory: plain loops. */
static void take_delta(void *args, size_t begin, size_t end) {
    const struct arrays *x = args;
    for (size_t i = begin; i < end; i++) {
        x->to[i] = (x->before[i] - x->from[i]) * x->factor;
        x->before[i] = x->from[i];
    }
}
ech_status echi_take_delta(struct echi_device *device, struct echi_buffer *delta, const struct echi_buffer *w, struct echi_buffer *origin,
                           size_t at, size_t count, echi_real weight, struct ech_error *err) {
    static const char op[] = "take.delta";
    echi_real *to, *from, *before;
    ECHI_TRY(range_of(device, delta, "delta", at, count, op, &to, err));
    ECHI_TRY(range_of(device, w, "w", at, count, op, &from, err));
    ECHI_TRY(range_of(device, origin, "origin", at, count, op, &before, err));
    ECHI_TRY(apart(to, "delta", from, "w", count, op, err));
    ECHI_TRY(apart(to, "delta", before, "origin", count, op, err));
    ECHI_TRY(apart(before, "origin", from, "w", count, op, err));
    echi_ranges_run(device, count, take_delta, &(struct arrays){.to = to, .before = before, .from = from, .factor = weight});
    return ECH_OK;
}

static void rebase(void *args, size_t begin, size_t end) {
    const struct arrays *x = args;
    for (size_t i = begin; i < end; i++) {
        x->to[i] = x->from[i] + (x->to[i] - x->before[i]);
        x->before[i] = x->from[i];
    }
}

ech_status echi_rebase(struct echi_device *device, struct echi_buffer *w, struct echi_buffer *origin, const struct echi_buffer *from,
                       size_t at, size_t count, struct ech_error *err) {
    static const char op[] = "rebase";
    echi_real *to, *before, *base;
    ECHI_TRY(range_of(device, w, "w", at, count, op, &to, err));
    ECHI_TRY(range_of(device, origin, "origin", at, count, op, &before, err));
    ECHI_TRY(range_of(device, from, "from", at, count, op, &base, err));
    ECHI_TRY(apart(to, "w", before, "origin", count, op, err));
    ECHI_TRY(apart(to, "w", base, "from", count, op, err));
    ECHI_TRY(apart(before, "origin", base, "from", count, op, err));
    echi_ranges_run(device, count, rebase, &(struct arrays){.to = to, .before = before, .from = base});
    return ECH_OK;
}

static void add(void *args, size_t begin, size_t end) {
    const struct arrays *x = args;
    x->k->add(x->to + begin, x->before + begin, x->from + begin, end - begin);
}

ech_status echi_add(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *g, size_t at, size_t count,
                    struct ech_error *err) {
    echi_real *to, *from;
    ECHI_TRY(range_of(device, sum, "sum", at, count, "add", &to, err));
    ECHI_TRY(range_of(device, g, "g", at, count, "add", &from, err));
    ECHI_TRY(apart(to, "sum", from, "g", count, "add", err));
    echi_ranges_run(device, count, add, &(struct arrays){.k = echi_kernels(device), .to = to, .before = to, .from = from});
    return ECH_OK;
}

static void scale(void *args, size_t begin, size_t end) {
    const struct arrays *x = args;
    for (size_t i = begin; i < end; i++) x->to[i] *= x->factor;
}

ech_status echi_scale(struct echi_device *device, struct echi_buffer *x, size_t at, size_t count, echi_real factor, struct ech_error *err) {
    echi_real *to;
    ECHI_TRY(range_of(device, x, "x", at, count, "scale", &to, err));
    echi_ranges_run(device, count, scale, &(struct arrays){.to = to, .factor = factor});
    return ECH_OK;
}

/* Of a constant number at a time: gcc makes vectors of such loops alone where it is not asked for more. */
void echi_scaled(echi_real *restrict to, const echi_real *restrict x, size_t count, echi_real factor) {
    enum { BLOCK = 64 };
    size_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK)
        for (size_t k = i; k < i + BLOCK; k++) to[k] = x[k] * factor;
    for (; i < count; i++) to[i] = x[i] * factor;
}

static void add_scaled(void *args, size_t begin, size_t end) {
    const struct arrays *x = args;
    if (x->before) x->k->add_scaled(x->to + begin, x->before + begin, x->before_factor, x->from + begin, x->factor, end - begin);
    else echi_scaled(x->to + begin, x->from + begin, end - begin, x->factor);
}

ech_status echi_add_scaled(struct echi_device *device, struct echi_buffer *sum, const struct echi_buffer *from, echi_real from_factor,
                           size_t at, const echi_real *x, size_t count, echi_real factor, struct ech_error *err) {
    static const char op[] = "add.scaled";
    echi_real *to, *before = NULL;
    if (x == NULL) return echi_fail(err, ECH_E_ARGUMENT, op, "x is NULL");
    ECHI_TRY(range_of(device, sum, "sum", at, count, op, &to, err));
    ECHI_TRY(apart(to, "sum", x, "x", count, op, err));
    if (from) ECHI_TRY(range_of(device, from, "from", at, count, op, &before, err));
    if (from) ECHI_TRY(apart_or_same(to, "sum", before, "from", count, op, err));
    echi_ranges_run(device, count, add_scaled, &(struct arrays){.k = echi_kernels(device), .to = to, .before = before,
                                                                .before_factor = from_factor, .from = x, .factor = factor});
    return ECH_OK;
}

ech_status echi_sum_states(struct echi_device *device, struct echi_buffer *w, const struct echi_buffer *w0,
                           const struct echi_buffer *const *states, int n_states, size_t at, size_t count, struct ech_error *err) {
    static const char op[] = "sum.states";
    echi_real *to, *from, *state;
    if (n_states < 0 || (n_states > 0 && states == NULL))
        return echi_fail(err, ECH_E_ARGUMENT, op, "%d states are announced, but %s", n_states,
                         n_states < 0 ? "that is no number" : "states is NULL");
    ECHI_TRY(range_of(device, w, "w", at, count, op, &to, err));
    ECHI_TRY(range_of(device, w0, "w0", at, count, op, &from, err));
    ECHI_TRY(apart_or_same(to, "w", from, "w0", count, op, err));
    for (int s = 0; s < n_states; s++) {
        ECHI_TRY(range_of(device, states[s], "a state", at, count, op, &state, err));
        ECHI_TRY(apart(to, "w", state, "a state", count, op, err));
    }
    if (to != from && n_states == 0) memcpy(to, from, count * sizeof *to);
    struct arrays x = {.k = echi_kernels(device), .to = to, .before = from};
    for (int s = 0; s < n_states; s++, x.before = to) {   /* the first makes the copy */
        ECHI_TRY(range_of(device, states[s], "a state", at, count, op, &state, err));
        x.from = state;
        echi_ranges_run(device, count, add, &x);
    }
    return ECH_OK;
}

static void finite(void *args, size_t begin, size_t end) {
    struct arrays *x = args;
    if (!x->k->finite(x->from + begin, end - begin)) atomic_store(&x->bad, true);
}

ech_status echi_all_finite(struct echi_device *device, const struct echi_buffer *x, size_t at, size_t count, bool *out_finite,
                           struct ech_error *err) {
    echi_real *from;
    if (out_finite == NULL) return echi_fail(err, ECH_E_ARGUMENT, "all.finite", "out_finite is NULL");
    ECHI_TRY(range_of(device, x, "x", at, count, "all.finite", &from, err));
    struct arrays read = {.k = echi_kernels(device), .from = from};
    echi_ranges_run(device, count, finite, &read);
    *out_finite = !atomic_load(&read.bad);
    return ECH_OK;
}

/* --- bf16 --- */

struct bf16_work { const struct echi_cpu_kernels *k; echi_real *numbers; uint16_t *halves; const echi_real *from; const uint16_t *of; };
static void to_bf16(void *args, size_t begin, size_t end) {
    const struct bf16_work *w = args;
    w->k->to_bf16(w->halves + begin, w->from + begin, end - begin);
}
static void from_bf16(void *args, size_t begin, size_t end) {
    const struct bf16_work *w = args;
    w->k->from_bf16(w->numbers + begin, w->of + begin, end - begin);
}

void echi_to_bf16(struct echi_device *device, uint16_t *to, const echi_real *x, size_t count) {
    echi_ranges_run(device, count, to_bf16, &(struct bf16_work){.k = echi_kernels(device), .halves = to, .from = x});
}

void echi_from_bf16(struct echi_device *device, echi_real *to, const uint16_t *x, size_t count) {
    echi_ranges_run(device, count, from_bf16, &(struct bf16_work){.k = echi_kernels(device), .numbers = to, .of = x});
}
