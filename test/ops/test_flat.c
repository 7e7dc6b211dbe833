/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic on flat ranges: against the same rule in double, bit for bit against floats computed one at a time, and what
 * lies around a range stays as it is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/echi_cpu_kernels.h"
#include "problem.h"
#include "ref/echi_ref.h"
#include "../part.h"

#include <math.h>

#define FLOATS 5000

struct array { struct guarded memory; struct echi_buffer *buffer; float *f; };

static struct array array_new(struct echi_random *r, size_t floats) {
    struct array a = {.memory = guarded_new(floats * sizeof(float))};
    a.f = guarded_floats(a.memory);
    for (size_t i = 0; i < floats; i++) a.f[i] = (float)echi_random_normal(r);
    assert_int_equal(echi_buffer_wrap(problem_device, a.f, floats * sizeof(float), &a.buffer, NULL), ECH_OK);
    return a;
}

static void array_free(struct array *a) {
    assert_true(guards_intact(a->memory));
    echi_buffer_destroy(a->buffer);
    free(a->memory.block);
}

static float *copy_of(const struct array *a) {
    float *copy = malloc(a->memory.bytes);
    memcpy(copy, a->f, a->memory.bytes);
    return copy;
}

static bool same_bits(const float *a, const float *b, size_t count) { return count == 0 || memcmp(a, b, count * sizeof *a) == 0; }

/* Ranges that begin and end anywhere, shorter and longer than a block, also empty. */
static void random_range(struct echi_random *r, size_t *at, size_t *count) {
    *at = echi_random_below(r, FLOATS + 1);
    *count = echi_random_below(r, (uint32_t)(FLOATS - *at + 1));
    if (echi_random_below(r, 3) == 0 && *count > 40) *count = echi_random_below(r, 40);
}

/* One float by the rule of the header; `volatile` keeps each operation rounded by itself. */
static float rule(float w, float a, float *v, float g, const struct echi_step *how) {
    volatile float decayed = how->l2 * w, with_decay = g + decayed, old = how->momentum != 0 ? how->momentum * *v : 0;
    volatile float speed = old + with_decay;
    volatile float ahead = how->momentum * speed, both = with_decay + ahead;
    volatile float step = how->lr * (how->rule == ECHI_RULE_NESTEROV ? both : speed);
    if (how->momentum != 0) *v = speed;
    return a - step;
}

/* Adam's; where an operation could be fused with the next it is told apart. */
static float rule_of_adam(float w, float a, float *m, float *s, float g, const struct echi_step *how) {
    volatile float whole = how->per_f * g, decayed = how->l2 * w, d = whole + decayed;
    volatile float old1 = how->keep1 * *m, new1 = how->gain1 * d, mean = old1 + new1;
    volatile float square = d * d, old2 = how->keep2 * *s, new2 = how->gain2 * square, squares = old2 + new2;
    *m = echi_velocity(mean);
    *s = echi_velocity(squares);
    volatile float of_whole = how->whole2 * *s, root = sqrtf(of_whole), under = root + how->epsilon;
    volatile float over = how->lr * *m, step = over / under;
    volatile float shrunk = how->shrink * w, both = step + shrunk;
    return a - both;
}

/* v and, for Adam, s, behind one another in one buffer. */
static struct echi_moments moments_at(const struct array *v, size_t at) { return (struct echi_moments){v->buffer, at, FLOATS + at}; }

static void check_apply(uint32_t seed, bool of_state, bool in_place, bool nesterov, bool remembers) {
    struct echi_random r;
    echi_random_init(&r, seed, ECHI_STREAM_TEST, 70);
    struct array w = array_new(&r, FLOATS), a = array_new(&r, FLOATS), out = array_new(&r, FLOATS), v = array_new(&r, FLOATS);
    struct array g = array_new(&r, FLOATS), *from = of_state ? &a : &w, *to = in_place ? from : &out;
    for (int i = 0; i < FLOATS && !remembers; i++) v.f[i] = NAN;   /* it must not be read */
    float *w0 = copy_of(&w), *from0 = copy_of(from), *to0 = copy_of(to), *v0 = copy_of(&v), *g0 = copy_of(&g);
    const struct echi_step how = {.lr = 0.05f, .momentum = remembers ? 0.9f : 0, .l2 = 0.01f,
                                  .rule = nesterov ? ECHI_RULE_NESTEROV : ECHI_RULE_SGD};
    const double lr = (double)how.lr, momentum = (double)how.momentum, decay = (double)how.l2;
    size_t at, count;
    random_range(&r, &at, &count);
    const struct echi_moments moments = moments_at(&v, at);
    const ech_status status =
        of_state ? echi_apply_state(problem_device, w.buffer, a.buffer, to->buffer, &moments, g.buffer, at, count, &how, NULL)
                 : echi_apply(problem_device, w.buffer, to->buffer, &moments, g.buffer, at, count, &how, NULL);
    assert_int_equal(status, ECH_OK);
    for (size_t i = 0; i < FLOATS; i++) {
        float speed = v0[i], next = to0[i];
        if (i >= at && i < at + count) {
            next = rule(w0[i], from0[i], &speed, g0[i], &how);
            /* torch.optim.SGD: grad += wd * param; buf = m * buf + grad; if nesterov: grad += m * buf, else grad = buf;
             * param -= lr * grad */
            double grad = (double)g0[i] + decay * (double)w0[i], exact_v = (remembers ? momentum * (double)v0[i] : 0) + grad;
            grad = nesterov ? grad + momentum * exact_v : exact_v;
            double exact = (double)from0[i] - lr * grad;
            if ((remembers && fabs((double)v.f[i] - exact_v) > 1e-6) || fabs((double)to->f[i] - exact) > 1e-6)
                fail_msg("seed %u: [%zu] is %.9g, in double %.9g", seed, i, (double)to->f[i], exact);
        }
        if (!same_bits(&v.f[i], &speed, 1) || !same_bits(&to->f[i], &next, 1))
            fail_msg("seed %u, range %zu+%zu: [%zu] is %.9g, one at a time it is %.9g", seed, at, count, i, (double)to->f[i], (double)next);
    }
    assert_true(same_bits(g.f, g0, FLOATS));
    if (to != &w) assert_true(same_bits(w.f, w0, FLOATS));
    if (to != from) assert_true(same_bits(from->f, from0, FLOATS));
    free(w0), free(from0), free(to0), free(v0), free(g0);
    array_free(&w), array_free(&a), array_free(&out), array_free(&v), array_free(&g);
}

/* Steps of whole rounds against the textbook's; of parts of one, one float at a time; the bits of what lies around stay. */
static void check_adam(uint32_t seed, bool of_state, bool in_place, bool decoupled) {
    struct echi_random r;
    echi_random_init(&r, seed, ECHI_STREAM_TEST, 79);
    struct array w = array_new(&r, FLOATS), a = array_new(&r, FLOATS), out = array_new(&r, FLOATS), v = array_new(&r, 2 * FLOATS);
    struct array g = array_new(&r, FLOATS), *from = of_state ? &a : &w, *to = in_place ? from : &out;
    const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-8f, decay = 0.03f;
    const int t = 1 + (int)(seed % 3);
    const float f = seed % 2 ? 1 : 0.375f;
    for (size_t i = FLOATS; i < 2 * FLOATS; i++) v.f[i] = fabsf(v.f[i]);
    float *w0 = copy_of(&w), *from0 = copy_of(from), *to0 = copy_of(to), *v0 = copy_of(&v), *g0 = copy_of(&g);
    float *book_w = copy_of(&w), *book_v = copy_of(&v);
    const double left1 = pow((double)beta1, t), left2 = pow((double)beta2, t);
    const struct echi_step how = {.rule = ECHI_RULE_ADAM, .lr = (float)((double)(lr * f) / (1 - left1)), .l2 = decoupled ? 0 : decay,
                                  .per_f = 1 / f, .keep1 = beta1, .gain1 = 1 - beta1, .keep2 = beta2, .gain2 = 1 - beta2,
                                  .whole2 = (float)(1 / (1 - left2)), .epsilon = epsilon, .shrink = decoupled ? f * lr * decay : 0};
    size_t at, count;
    random_range(&r, &at, &count);
    const struct echi_moments moments = moments_at(&v, at);
    const ech_status status =
        of_state ? echi_apply_state(problem_device, w.buffer, a.buffer, to->buffer, &moments, g.buffer, at, count, &how, NULL)
                 : echi_apply(problem_device, w.buffer, to->buffer, &moments, g.buffer, at, count, &how, NULL);
    assert_int_equal(status, ECH_OK);
    echi_ref_adam(count, book_w + at, book_v + at, book_v + FLOATS + at, g0 + at, t, lr, beta1, beta2, epsilon, decay, decoupled);
    for (size_t i = 0; i < FLOATS; i++) {
        float m = v0[i], s = v0[FLOATS + i], next = to0[i];
        if (i >= at && i < at + count) {
            next = rule_of_adam(w0[i], from0[i], &m, &s, g0[i], &how);
            const float book = from0[i] + (book_w[i] - w0[i]);
            if (f == 1 && (fabsf(v.f[i] - book_v[i]) > 1e-6f || fabsf(v.f[FLOATS + i] - book_v[FLOATS + i]) > 1e-5f ||
                           fabsf(to->f[i] - book) > 2e-6f))
                fail_msg("seed %u: [%zu] is %.9g, by the book %.9g", seed, i, (double)to->f[i], (double)book);
        }
        if (!same_bits(&v.f[i], &m, 1) || !same_bits(&v.f[FLOATS + i], &s, 1) || !same_bits(&to->f[i], &next, 1))
            fail_msg("seed %u, range %zu+%zu: [%zu] is %.9g, one at a time it is %.9g", seed, at, count, i, (double)to->f[i], (double)next);
    }
    assert_true(same_bits(g.f, g0, FLOATS));
    if (to != &w) assert_true(same_bits(w.f, w0, FLOATS));
    if (to != from) assert_true(same_bits(from->f, from0, FLOATS));
    free(w0), free(from0), free(to0), free(v0), free(g0), free(book_w), free(book_v);
    array_free(&w), array_free(&a), array_free(&out), array_free(&v), array_free(&g);
}

static void test_apply(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed += test_part()) {
        for (int i = 0; i < 16; i++) check_apply(seed, i & 1, i & 2, i & 4, i & 8);
        for (int i = 0; i < 8; i++) check_adam(seed, i & 1, i & 2, i & 4);
    }
}

/* A weight that never had a gradient stays where it is; moments that none feeds come to 0. */
static void test_adam_at_rest(void **state) {
    (void)state;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 80);
    struct array w = array_new(&r, FLOATS), v = array_new(&r, 2 * FLOATS), g = array_new(&r, FLOATS);
    float *w0 = copy_of(&w);
    memset(g.f, 0, g.memory.bytes);
    for (int i = 0; i < 2 * FLOATS; i++) v.f[i] = i % 2 ? FLT_MIN : 0;
    const struct echi_step how = {.rule = ECHI_RULE_ADAM, .lr = 0.1f, .per_f = 1, .keep1 = 0.9f, .gain1 = 0.1f, .keep2 = 0.999f,
                                  .gain2 = 0.001f, .whole2 = 1, .epsilon = 1e-12f};
    const struct echi_moments moments = moments_at(&v, 0);
    assert_int_equal(echi_apply(problem_device, w.buffer, w.buffer, &moments, g.buffer, 0, FLOATS, &how, NULL), ECH_OK);
    for (int i = 0; i < 2 * FLOATS; i++) assert_true(v.f[i] == 0);
    assert_true(same_bits(w.f, w0, FLOATS));
    free(w0);
    array_free(&w), array_free(&v), array_free(&g);
}

/* What no gradient feeds comes to 0 and does not stay at the smallest numbers there are, with either sign, in vectors and behind them. */
static void test_velocities_settle(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct echi_random r;
        echi_random_init(&r, 1, ECHI_STREAM_TEST, 78);
        struct array w = array_new(&r, FLOATS), a = array_new(&r, FLOATS), v = array_new(&r, FLOATS), g = array_new(&r, FLOATS);
        memset(g.f, 0, g.memory.bytes);
        for (int i = 0; i < FLOATS; i++)
            v.f[i] = (i % 2 ? -1.0f : 1.0f) * FLT_MIN * (i % 3 ? 1.0f : 1 - FLT_EPSILON * (float)(1 << i % 23));
        float *v0 = copy_of(&v);
        for (int step = 0; step < 2; step++) {
            const struct echi_moments moments = moments_at(&v, 0);
            const struct echi_step how = {.lr = 0.1f, .momentum = step == 0 ? 1 : 0.9f,
                                          .rule = kind == 2 ? ECHI_RULE_NESTEROV : ECHI_RULE_SGD};
            if (kind == 1)
                assert_int_equal(echi_apply_state(problem_device, w.buffer, a.buffer, a.buffer, &moments, g.buffer, 0, FLOATS, &how, NULL),
                                 ECH_OK);
            else assert_int_equal(echi_apply(problem_device, w.buffer, w.buffer, &moments, g.buffer, 0, FLOATS, &how, NULL), ECH_OK);
            for (int i = 0; i < FLOATS; i++) {
                const float wanted = step == 0 && i % 3 ? v0[i] : 0;   /* the least normal number is one that counts */
                if (!same_bits(&v.f[i], &wanted, 1))
                    fail_msg("kind %d, step %d: [%d] is %.9g, not %.9g", kind, step, i, (double)v.f[i], (double)wanted);
            }
        }
        free(v0);
        array_free(&w), array_free(&a), array_free(&v), array_free(&g);
    }
}

static void test_add(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 71);
        struct array sum = array_new(&r, FLOATS), g = array_new(&r, FLOATS);
        float *before = copy_of(&sum);
        size_t at, count;
        random_range(&r, &at, &count);
        assert_int_equal(echi_add(problem_device, sum.buffer, g.buffer, at, count, NULL), ECH_OK);
        for (size_t i = 0; i < FLOATS; i++) {
            float wanted = i >= at && i < at + count ? before[i] + g.f[i] : before[i];
            if (!same_bits(&sum.f[i], &wanted, 1)) fail_msg("seed %u: [%zu]", seed, i);
        }
        free(before);
        array_free(&sum), array_free(&g);
    }
}

/* Both products are rounded before they are added. */
static void test_scaled(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 79);
        struct array sum = array_new(&r, FLOATS), g = array_new(&r, FLOATS), to = array_new(&r, FLOATS);
        float *before = copy_of(&sum);
        size_t at, count;
        random_range(&r, &at, &count);
        const float of_sum = seed % 2 ? 0.7f : 1;
        assert_int_equal(echi_add_scaled(problem_device, to.buffer, NULL, 1, at, g.f + at, count, 0.3f, NULL), ECH_OK);
        assert_int_equal(echi_add_scaled(problem_device, sum.buffer, sum.buffer, of_sum, at, g.f + at, count, 0.3f, NULL), ECH_OK);
        for (size_t i = 0; i < FLOATS; i++) {
            volatile float product = g.f[i] * 0.3f, weighted = before[i] * of_sum;
            const bool inside = i >= at && i < at + count;
            const float scaled = product, wanted = inside ? weighted + scaled : before[i];
            if (!same_bits(&sum.f[i], &wanted, 1) || (inside && !same_bits(&to.f[i], &scaled, 1))) fail_msg("seed %u: [%zu]", seed, i);
        }
        free(before);
        array_free(&sum), array_free(&g), array_free(&to);
    }
}

static void test_scale(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 73);
        struct array x = array_new(&r, FLOATS);
        float *before = copy_of(&x);
        size_t at, count;
        random_range(&r, &at, &count);
        assert_int_equal(echi_scale(problem_device, x.buffer, at, count, 0.3f, NULL), ECH_OK);
        for (size_t i = 0; i < FLOATS; i++) {
            float wanted = i >= at && i < at + count ? before[i] * 0.3f : before[i];
            if (!same_bits(&x.f[i], &wanted, 1)) fail_msg("seed %u: [%zu]", seed, i);
        }
        free(before);
        array_free(&x);
    }
}

/* ((w0 + s0) + s1) + ..., the same bits for the whole range at once, in pieces, and in place. */
static void test_sum_states(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 30; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 72);
        struct array w0 = array_new(&r, FLOATS), w = array_new(&r, FLOATS), pieces = array_new(&r, FLOATS), states[5];
        const struct echi_buffer *buffers[5];
        int n = random_from(&r, 0, 5);
        for (int s = 0; s < n; s++) states[s] = array_new(&r, FLOATS), buffers[s] = states[s].buffer;
        assert_int_equal(echi_sum_states(problem_device, w.buffer, w0.buffer, buffers, n, 0, FLOATS, NULL), ECH_OK);
        for (size_t at = 0; at < FLOATS;) {
            size_t count = echi_random_below(&r, 700) + 1;
            if (count > FLOATS - at) count = FLOATS - at;
            assert_int_equal(echi_sum_states(problem_device, pieces.buffer, w0.buffer, buffers, n, at, count, NULL), ECH_OK);
            at += count;
        }
        for (size_t i = 0; i < FLOATS; i++) {
            volatile float wanted = w0.f[i];
            double exact = (double)w0.f[i];
            for (int s = 0; s < n; s++) wanted = wanted + states[s].f[i], exact += (double)states[s].f[i];
            float one = wanted;
            if (!same_bits(&w.f[i], &one, 1) || fabs(exact - (double)one) > 1e-5) fail_msg("seed %u, %d states: [%zu]", seed, n, i);
        }
        assert_true(same_bits(w.f, pieces.f, FLOATS));
        assert_int_equal(echi_sum_states(problem_device, w0.buffer, w0.buffer, buffers, n, 0, FLOATS, NULL), ECH_OK);
        assert_true(same_bits(w.f, w0.f, FLOATS));
        for (int s = 0; s < n; s++) array_free(&states[s]);
        array_free(&w0), array_free(&w), array_free(&pieces);
    }
}

static void test_all_finite(void **state) {
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const float good[] = {3.4028235e38f, -3.4028235e38f, 1e-45f, -0.0f};
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 73);
    struct array x = array_new(&r, FLOATS);
    for (int i = 0; i < 400; i++) {
        size_t at, count, place = echi_random_below(&r, FLOATS);
        bool finite = false, is_bad = i % 3 != 0;
        float keep = x.f[place];
        random_range(&r, &at, &count);
        x.f[place] = is_bad ? bad[i % 4] : good[i % 4];
        assert_int_equal(echi_all_finite(problem_device, x.buffer, at, count, &finite, NULL), ECH_OK);
        if (finite != !(is_bad && place >= at && place < at + count))
            fail_msg("case %d: %g at %zu, range %zu+%zu", i, (double)x.f[place], place, at, count);
        x.f[place] = keep;
    }
    array_free(&x);
}

/* --- bf16 --- */

/* The numbers of this format from 0 on: bits of the exponent from 2^-126, seven of the fraction. The one behind the largest stands for
 * infinity, which begins where it would be nearer. */
enum { BF16_INFINITY = 0x7f80, BF16_SIGN = 0x8000 };
static double bf16_number[BF16_INFINITY + 1];
static void make_bf16_numbers(void) {
    for (int i = 0; i <= BF16_INFINITY; i++)
        bf16_number[i] = i < 128 ? ldexp(i, -133) : ldexp(128 + i % 128, i / 128 - 134);
}

/* The nearest of them, found by distances; of two as near the even one. */
static uint16_t nearest_bf16(float x) {
    const double v = fabs((double)x);
    int low = 0, high = BF16_INFINITY;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (bf16_number[middle] <= v) low = middle;
        else high = middle;
    }
    const double down = v - bf16_number[low], up = bf16_number[high] - v;
    const int found = up < down || (up == down && low % 2) ? high : low;
    return (uint16_t)(found | (signbit(x) ? BF16_SIGN : 0));
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Of vectors of each length that this machine has. */
static int tables(const struct echi_cpu_kernels *out[16]) {
    int count = 0;
    out[count++] = &echi_cpu_kernels_fixed;
    for (int level = ECHI_CPU_BASE; level <= ECHI_CPU_AVX512; level++) {
        const struct echi_cpu_kernels *k = echi_cpu_kernels_for((enum echi_cpu_level)level);
        if (k && k->half) out[count++] = k->half;
        for (; k; k = k->narrow) out[count++] = k;
    }
    return count;
}

/* In blocks, so that vectors and what is left behind them are both there. */
enum { BF16_BLOCK = 77 };
static void check_bf16_block(const float *x, size_t count) {
    const struct echi_cpu_kernels *table[16];
    uint16_t want[BF16_BLOCK], got[BF16_BLOCK + 1];
    const int all = tables(table);
    for (size_t i = 0; i < count; i++) want[i] = nearest_bf16(x[i]);
    for (int t = -1; t < all; t++) {
        const struct echi_cpu_kernels *k = t < 0 ? NULL : table[t];
        memset(got, 0x5a, sizeof got);
        if (k) k->to_bf16(got, x, count);
        else echi_ref_to_bf16(count, x, got);
        assert_int_equal(got[count], 0x5a5a);
        for (size_t i = 0; i < count; i++) {
            const bool is_nan = (got[i] & ~BF16_SIGN) > BF16_INFINITY;
            if (isnan(x[i]) ? !is_nan || (got[i] >= BF16_SIGN) != (signbit(x[i]) != 0) : got[i] != want[i])
                fail_msg("%s: %a is %04x, and not %04x", k ? k->name : "reference", (double)x[i], got[i], want[i]);
        }
    }
}

/* Each upper half of a float, with lower halves around what decides: subnormal numbers, infinities and NaNs are among them. */
static void test_bf16_is_the_nearest(void **state) {
    (void)state;
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    float x[BF16_BLOCK];
    size_t count = 0;
    make_bf16_numbers();
    for (uint32_t upper = 0; upper < 65536; upper++)
        for (size_t k = 0; k < sizeof lower / sizeof lower[0]; k++) {
            x[count++] = float_of(upper << 16 | lower[k]);
            if (count < BF16_BLOCK) continue;
            check_bf16_block(x, count);
            count = 0;
        }
    check_bf16_block(x, count);
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 78);
    for (int trial = 0; trial < 1000; trial++) {
        count = echi_random_below(&r, BF16_BLOCK + 1);
        for (size_t i = 0; i < count; i++) x[i] = (float)echi_random_normal(&r);
        check_bf16_block(x, count);
    }
}

/* Back it is the number itself, to the bit, but of NaNs what they carry; and what is rounded once is not rounded again. */
static void test_bf16_comes_back(void **state) {
    (void)state;
    enum { ALL = 65536 };
    uint16_t *all = malloc(ALL * sizeof *all), *again = malloc(ALL * sizeof *again);
    float *x = malloc(ALL * sizeof *x), *plain = malloc(ALL * sizeof *plain);
    assert_true(all && again && x && plain);
    make_bf16_numbers();
    for (int i = 0; i < ALL; i++) all[i] = (uint16_t)i;
    echi_ref_from_bf16(ALL, all, plain);
    for (int i = 0; i < ALL; i++) {
        const int magnitude = i & ~BF16_SIGN;
        const double is = magnitude == BF16_INFINITY ? (double)INFINITY : magnitude > BF16_INFINITY ? 0 : bf16_number[magnitude];
        if (magnitude > BF16_INFINITY) assert_true(isnan(plain[i]));
        else assert_true((double)plain[i] == (i & BF16_SIGN ? -is : is) && !signbit(plain[i]) == !(i & BF16_SIGN));
    }
    const struct echi_cpu_kernels *table[16];
    for (int t = tables(table) - 1; t >= 0; t--) {
        const struct echi_cpu_kernels *k = table[t];
        for (size_t at = 0; at < 40; at += 3) {
            memset(x, 0x5a, ALL * sizeof *x);
            k->from_bf16(x + at, all + at, ALL - 2 * at);
            assert_memory_equal(x + at, plain + at, (ALL - 2 * at) * sizeof *x);
            assert_true(at == 0 || (x[at - 1] == float_of(0x5a5a5a5a) && x[ALL - at] == float_of(0x5a5a5a5a)));
        }
    }
    echi_from_bf16(problem_device, x, all, ALL);   /* by all threads */
    assert_memory_equal(x, plain, ALL * sizeof *x);
    echi_to_bf16(problem_device, again, x, ALL);
    for (int i = 0; i < ALL; i++) assert_int_equal(again[i], isnan(x[i]) ? i | 0x40 : i);
    free(all), free(again), free(x), free(plain);
}

/* Every instruction set that this machine has gives the bits of the plainest one. */
static void test_same_on_every_set(void **state) {
    (void)state;
    enum { MOST = 700 };
    const struct echi_cpu_kernels *plain = echi_cpu_kernels_for(ECHI_CPU_BASE);
    for (enum echi_cpu_level level = ECHI_CPU_AVX2; level <= echi_cpu_level(); level++) {
        const struct echi_cpu_kernels *wide = echi_cpu_kernels_for(level);
        for (uint32_t seed = 0; seed < 60; seed++) {
            struct echi_random r;
            echi_random_init(&r, seed, ECHI_STREAM_TEST, 76);
            const size_t count = echi_random_below(&r, MOST + 1);
            struct array w = array_new(&r, count), g = array_new(&r, count), v[2], out[2], s[2];
            for (int i = 0; i < 2; i++) v[i] = array_new(&r, count), out[i] = array_new(&r, count), s[i] = array_new(&r, count);
            memcpy(v[1].f, v[0].f, count * sizeof(float));
            for (size_t i = 0; i < count; i++) s[0].f[i] = s[1].f[i] = s[0].f[i] * s[0].f[i] * (i % 5 ? 1 : 1e-37f);
            const struct echi_step sgd = {.rule = seed % 2 ? ECHI_RULE_NESTEROV : ECHI_RULE_SGD, .lr = 0.05f, .momentum = 0.9f,
                                          .l2 = 0.01f};
            const struct echi_step adam = {.rule = ECHI_RULE_ADAM, .lr = 0.05f, .l2 = 0.01f, .per_f = 3, .keep1 = 0.9f, .gain1 = 0.1f,
                                           .keep2 = 0.999f, .gain2 = seed % 3 ? 0.001f : 0, .whole2 = 1.5f, .epsilon = 1e-8f,
                                           .shrink = 0.01f};
            for (int i = 0; i < 2; i++) {
                const struct echi_cpu_kernels *k = i ? wide : plain;
                k->descend(&(struct echi_cpu_descent){w.f, w.f, g.f, out[i].f, v[i].f, NULL, &sgd}, count);
                k->adam(&(struct echi_cpu_descent){w.f, out[i].f, g.f, out[i].f, v[i].f, s[i].f, &adam}, count);
                k->add(out[i].f, out[i].f, g.f, count);
                assert_true(k->finite(out[i].f, count));
            }
            if (!same_bits(v[0].f, v[1].f, count) || !same_bits(s[0].f, s[1].f, count) || !same_bits(out[0].f, out[1].f, count))
                fail_msg("%s, seed %u: other bits", wide->name, seed);
            for (int i = 0; i < 2; i++) array_free(&v[i]), array_free(&out[i]), array_free(&s[i]);
            array_free(&w), array_free(&g);
        }
    }
}

/* The outer step of `local` and what goes in and out of it, one float at a time by the rules of the header, each operation rounded by
 * itself; what lies around the range stays. With momentum 0 Nesterov's step is SGD's. */
static void test_local(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 77);
        struct array w = array_new(&r, FLOATS), out = array_new(&r, FLOATS), v = array_new(&r, FLOATS), g = array_new(&r, FLOATS);
        struct array own = array_new(&r, FLOATS), origin = array_new(&r, FLOATS);
        struct array delta = array_new(&r, FLOATS), sgd = array_new(&r, FLOATS);
        struct array *to = seed % 2 ? &w : &out;
        float *w0 = copy_of(&w), *out0 = copy_of(to), *v0 = copy_of(&v);
        float *own0 = copy_of(&own), *origin0 = copy_of(&origin), *delta0 = copy_of(&delta);
        const float lr = 0.7f, momentum = seed % 5 ? 0.9f : 0, weight = seed % 3 ? 0.375f : 1;
        size_t at, count;
        random_range(&r, &at, &count);
        const struct echi_step outer = {.lr = lr, .momentum = momentum, .rule = ECHI_RULE_NESTEROV}, plain = {.lr = lr};
        const struct echi_moments moments = moments_at(&v, at);
        assert_int_equal(echi_apply(problem_device, w.buffer, to->buffer, &moments, g.buffer, at, count, &outer, NULL), ECH_OK);
        for (size_t i = 0; i < FLOATS; i++) {
            float speed = v0[i], next = out0[i];
            if (i >= at && i < at + count) {
                volatile float old = momentum * v0[i], now = old + g.f[i], ahead = momentum * now, both = g.f[i] + ahead, step = lr * both;
                if (momentum != 0) speed = now;
                next = w0[i] - step;
                const double exact_v = (double)momentum * (double)v0[i] + (double)g.f[i];
                const double exact = (double)w0[i] - (double)lr * ((double)g.f[i] + (double)momentum * exact_v);
                if (fabs((double)to->f[i] - exact) > 1e-5)
                    fail_msg("seed %u: [%zu] is %.9g, in double %.9g", seed, i, (double)to->f[i], exact);
            }
            if (!same_bits(&v.f[i], &speed, 1) || !same_bits(&to->f[i], &next, 1)) fail_msg("seed %u: nesterov [%zu]", seed, i);
        }
        if (momentum == 0) {
            memcpy(v.f, v0, v.memory.bytes);
            memcpy(w.f, w0, w.memory.bytes);
            assert_int_equal(echi_apply(problem_device, w.buffer, sgd.buffer, &moments, g.buffer, at, count, &plain, NULL), ECH_OK);
            for (size_t i = at; to != &w && i < at + count; i++) assert_true(sgd.f[i] == to->f[i]);
        }

        assert_int_equal(echi_take_delta(problem_device, delta.buffer, own.buffer, origin.buffer, at, count, weight, NULL), ECH_OK);
        for (size_t i = 0; i < FLOATS; i++) {
            const bool in = i >= at && i < at + count;
            volatile float gone = origin0[i] - own0[i], weighted = gone * weight;
            const float wanted = in ? weighted : delta0[i];
            if (!same_bits(&delta.f[i], &wanted, 1) || !same_bits(&origin.f[i], in ? &own0[i] : &origin0[i], 1))
                fail_msg("seed %u: delta [%zu]", seed, i);
        }
        assert_true(same_bits(own.f, own0, FLOATS));

        /* Nothing was stepped since: both are the new weights, to the bit. With steps, those come on top. */
        assert_int_equal(echi_rebase(problem_device, own.buffer, origin.buffer, g.buffer, at, count, NULL), ECH_OK);
        assert_true(same_bits(own.f + at, g.f + at, count) && same_bits(origin.f + at, g.f + at, count));
        memcpy(own.f, own0, own.memory.bytes);
        memcpy(origin.f, origin0, origin.memory.bytes);
        assert_int_equal(echi_rebase(problem_device, own.buffer, origin.buffer, g.buffer, at, count, NULL), ECH_OK);
        for (size_t i = 0; i < FLOATS; i++) {
            const bool in = i >= at && i < at + count;
            volatile float since = own0[i] - origin0[i], sum = g.f[i] + since;
            const float wanted = in ? sum : own0[i];
            if (!same_bits(&own.f[i], &wanted, 1) || !same_bits(&origin.f[i], in ? &g.f[i] : &origin0[i], 1))
                fail_msg("seed %u: rebase [%zu]", seed, i);
        }
        free(w0), free(out0), free(v0), free(own0), free(origin0), free(delta0);
        array_free(&w), array_free(&out), array_free(&v), array_free(&g);
        array_free(&own), array_free(&origin), array_free(&delta), array_free(&sgd);
    }
}

/* A diverged gradient shows in what is applied. */
static void test_nan_is_applied(void **state) {
    (void)state;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 74);
    struct array w = array_new(&r, 100), v = array_new(&r, 100), g = array_new(&r, 100);
    bool finite = true;
    g.f[37] = NAN;
    assert_int_equal(echi_apply(problem_device, w.buffer, w.buffer, &(struct echi_moments){.buffer = v.buffer}, g.buffer, 0, 100,
                                &(struct echi_step){.lr = 0.1f}, NULL), ECH_OK);
    assert_true(isnan(w.f[37]) && isfinite(w.f[36]));
    assert_int_equal(echi_all_finite(problem_device, w.buffer, 0, 100, &finite, NULL), ECH_OK);
    assert_false(finite);
    array_free(&w), array_free(&v), array_free(&g);
}

static void assert_refused(ech_status status, const struct ech_error *err, const char *word) {
    assert_int_equal(status, ECH_E_ARGUMENT);
    assert_int_equal(err->code, ECH_E_ARGUMENT);
    if (strstr(err->text, word) == NULL) fail_msg("'%s' does not say '%s'", err->text, word);
}

static void test_misuse(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_random r;
    const struct echi_step how = {.lr = 1}, adam = {.rule = ECHI_RULE_ADAM, .lr = 1, .epsilon = 1};
    bool finite;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 75);
    struct array a = array_new(&r, 100), b = array_new(&r, 100), c = array_new(&r, 100), small = array_new(&r, 50);
    struct echi_buffer *odd = NULL, *later = NULL;
    const struct echi_moments of_b = {b.buffer, 0, 50}, of_c = {c.buffer, 0, 0}, beyond = {b.buffer, 0, 100};
    assert_int_equal(echi_buffer_wrap(problem_device, (char *)a.f + 1, 100, &odd, &err), ECH_OK);
    assert_int_equal(echi_buffer_wrap(problem_device, a.f + 10, 200, &later, &err), ECH_OK);

    assert_refused(echi_add(problem_device, a.buffer, small.buffer, 0, 51, &err), &err, "g");
    assert_refused(echi_add(problem_device, a.buffer, b.buffer, 101, 0, &err), &err, "sum");
    assert_refused(echi_add(problem_device, a.buffer, b.buffer, SIZE_MAX, 2, &err), &err, "sum");
    assert_refused(echi_add(problem_device, a.buffer, b.buffer, 2, SIZE_MAX, &err), &err, "sum");
    assert_refused(echi_add(problem_device, a.buffer, a.buffer, 0, 100, &err), &err, "same memory");
    assert_refused(echi_add(problem_device, a.buffer, later, 0, 50, &err), &err, "same memory");
    assert_int_equal(echi_add(problem_device, a.buffer, later, 0, 10, &err), ECH_OK);
    assert_refused(echi_add(problem_device, odd, b.buffer, 0, 1, &err), &err, "multiple");
    assert_refused(echi_scale(problem_device, small.buffer, 0, 51, 1, &err), &err, "x");
    assert_refused(echi_scale(NULL, a.buffer, 0, 1, 1, &err), &err, "NULL");
    assert_refused(echi_add(NULL, a.buffer, b.buffer, 0, 1, &err), &err, "NULL");
    assert_refused(echi_add(problem_device, a.buffer, NULL, 0, 1, &err), &err, "g is NULL");
    assert_refused(echi_apply(problem_device, a.buffer, a.buffer, &of_b, b.buffer, 0, 1, &how, &err), &err, "v and g");
    assert_refused(echi_apply(problem_device, a.buffer, b.buffer, &of_b, c.buffer, 0, 1, &how, &err), &err, "w_out and v");
    assert_refused(echi_apply(problem_device, a.buffer, a.buffer, &of_b, NULL, 0, 1, &how, &err), &err, "g is NULL");
    assert_refused(echi_apply(problem_device, a.buffer, a.buffer, &of_b, c.buffer, 0, 1, NULL, &err), &err, "how is NULL");
    assert_refused(echi_apply_state(problem_device, a.buffer, a.buffer, a.buffer, &of_b, c.buffer, 0, 1, NULL, &err), &err, "how is NULL");
    assert_refused(echi_apply(problem_device, a.buffer, a.buffer, NULL, c.buffer, 0, 1, &how, &err), &err, "v is NULL");
    assert_refused(echi_apply(problem_device, a.buffer, a.buffer, &beyond, c.buffer, 0, 1, &adam, &err), &err, "do not fit in s");
    assert_refused(echi_apply(problem_device, a.buffer, a.buffer, &of_c, b.buffer, 0, 1, &adam, &err), &err, "v and s");
    assert_refused(echi_apply(problem_device, a.buffer, a.buffer, &of_b, b.buffer, 50, 1, &adam, &err), &err, "s and g");
    assert_refused(echi_take_delta(problem_device, a.buffer, a.buffer, b.buffer, 0, 1, 1, &err), &err, "delta and w");
    assert_refused(echi_take_delta(problem_device, c.buffer, a.buffer, a.buffer, 0, 1, 1, &err), &err, "origin and w");
    assert_refused(echi_rebase(problem_device, a.buffer, b.buffer, a.buffer, 0, 1, &err), &err, "w and from");
    assert_refused(echi_rebase(problem_device, a.buffer, a.buffer, b.buffer, 0, 1, &err), &err, "w and origin");
    assert_refused(echi_rebase(problem_device, a.buffer, b.buffer, small.buffer, 0, 51, &err), &err, "from");
    assert_refused(echi_apply_state(problem_device, a.buffer, b.buffer, a.buffer, &of_c, small.buffer, 0, 1, &how, &err), &err,
                   "a_out and w");
    assert_refused(echi_add_scaled(problem_device, a.buffer, NULL, 1, 0, NULL, 1, 1, &err), &err, "x");
    assert_refused(echi_add_scaled(problem_device, a.buffer, NULL, 1, 0, a.f, 1, 1, &err), &err, "same memory");
    assert_refused(echi_add_scaled(problem_device, a.buffer, small.buffer, 1, 0, b.f, 51, 1, &err), &err, "from");
    assert_refused(echi_sum_states(problem_device, a.buffer, b.buffer, NULL, 1, 0, 1, &err), &err, "states");
    assert_refused(echi_sum_states(problem_device, a.buffer, b.buffer, NULL, -1, 0, 1, &err), &err, "-1");
    const struct echi_buffer *itself[] = {a.buffer}, *none[] = {NULL};
    assert_refused(echi_sum_states(problem_device, a.buffer, b.buffer, itself, 1, 0, 1, &err), &err, "same memory");
    assert_refused(echi_sum_states(problem_device, a.buffer, b.buffer, none, 1, 0, 1, &err), &err, "NULL");
    assert_refused(echi_all_finite(problem_device, a.buffer, 0, 101, &finite, &err), &err, "100");
    assert_refused(echi_all_finite(problem_device, a.buffer, 0, 1, NULL, &err), &err, "NULL");
    echi_buffer_destroy(odd);
    echi_buffer_destroy(later);
    array_free(&a), array_free(&b), array_free(&c), array_free(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apply), cmocka_unit_test(test_adam_at_rest), cmocka_unit_test(test_velocities_settle),
        cmocka_unit_test(test_add), cmocka_unit_test(test_scaled), cmocka_unit_test(test_scale), cmocka_unit_test(test_sum_states),
        cmocka_unit_test(test_all_finite), cmocka_unit_test(test_bf16_is_the_nearest), cmocka_unit_test(test_bf16_comes_back),
        cmocka_unit_test(test_same_on_every_set), cmocka_unit_test(test_local), cmocka_unit_test(test_nan_is_applied),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests_name("flat", tests, problem_open_device, problem_close_device);
}
