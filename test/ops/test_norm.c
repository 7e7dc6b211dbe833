/* SPDX-License-Identifier: Apache-2.0
 * Batch-norm over more samples than one stack has: a batch that is cut over several stacks, which stop at each batch-norm and exchange
 * what it sums, comes to what one stack makes of the whole batch: outputs, gradients of inputs, parameters and running averages. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "echi_stack_impl.h"
#include "problem.h"

enum { PARTS = 3, MOST = 60, CHANNELS = 64 };

static const struct echi_stack_impl *const candidates[] = {&echi_stack_reference, &echi_stack_cpu, &echi_stack_cpu_fixed};

struct part {
    struct echi_stack *stack;
    struct echi_buffer *grads;
    int n, at;                  /* samples, the first of them */
};

static size_t in_size(const struct problem *p) { return echi_shape_size(p->layers[0].in); }
static size_t out_size(const struct problem *p) { return echi_shape_size(problem_shape(p)); }

static void open_part(struct part *part, const struct problem *p, const struct echi_stack_impl *impl, int at, int n) {
    *part = (struct part){.n = n, .at = at};
    assert_int_equal(echi_stack_create_with(problem_device, impl, p->layers, p->count, n, &part->stack, NULL), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, p->params * sizeof(float), &part->grads, NULL), ECH_OK);
}

static void close_part(struct part *part) {
    echi_stack_destroy(part->stack);
    echi_buffer_destroy(part->grads);
}

/* What all parts stop at unit u for, in either direction; with `alone` each keeps to its own. */
static void exchange(struct part *part, int parts, int u, bool backward, const struct echi_buffer *params, bool alone) {
    const int channels = echi_stack_norm(part[0].stack, u);
    float all[2 * CHANNELS], own[2 * CHANNELS];
    uint32_t n = 0;
    if (channels == 0) return;
    assert_true(channels <= CHANNELS);
    for (int i = 0; i < parts; i++) {
        assert_int_equal(echi_stack_norm_sums(part[i].stack, u, params, own, NULL), ECH_OK);
        echi_norm_join(all, n, own, (uint32_t)part[i].n, channels, backward);
        n += (uint32_t)part[i].n;
    }
    for (int i = 0; i < parts && !alone; i++) assert_int_equal(echi_stack_norm_take(part[i].stack, u, (int)n, all, NULL), ECH_OK);
}

/* A step of all parts together. out, dx [n of all]; grads: the sums over the parts. */
static void step(struct part *part, int parts, const struct problem *p, const struct echi_buffer *params, const float *in,
                 const float *dout, float *out, float *dx, double *grads, bool alone) {
    int n = 0;
    const int units = echi_stack_units(part[0].stack);
    for (int i = 0; i < parts; i++) n += part[i].n;
    for (int i = 0; i < parts; i++) {
        const struct echi_training training = {1, NULL, (float)part[i].n / (float)n};
        assert_int_equal(echi_stack_input(part[i].stack, part[i].n, in + (size_t)part[i].at * in_size(p), NULL), ECH_OK);
        assert_int_equal(echi_stack_train(part[i].stack, &training, NULL), ECH_OK);
    }
    for (int u = 0; u < units; u++) {
        exchange(part, parts, u, false, params, alone);
        for (int i = 0; i < parts; i++) assert_int_equal(echi_stack_forward(part[i].stack, u, params, NULL), ECH_OK);
    }
    for (int i = 0; i < parts; i++) {
        assert_int_equal(echi_stack_output(part[i].stack, out + (size_t)part[i].at * out_size(p), NULL), ECH_OK);
        assert_int_equal(echi_stack_output_grad(part[i].stack, dout + (size_t)part[i].at * out_size(p), NULL), ECH_OK);
    }
    for (int u = units - 1; u >= 0; u--) {
        exchange(part, parts, u, true, params, alone);
        for (int i = 0; i < parts; i++) assert_int_equal(echi_stack_backward(part[i].stack, u, params, part[i].grads, true, NULL), ECH_OK);
    }
    memset(grads, 0, p->params * sizeof *grads);
    for (int i = 0; i < parts; i++) {
        const float *of_part = echi_buffer_host(part[i].grads);
        assert_int_equal(echi_stack_input_grad(part[i].stack, dx + (size_t)part[i].at * in_size(p), NULL), ECH_OK);
        for (size_t k = 0; k < p->params; k++) grads[k] += (double)of_part[k];
    }
}

/* Of what is compared the numbers are about as large as `scale`. */
static double apart(const float *a, const float *b, size_t count) {
    double most = 0, scale = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)a[i]));
    }
    return scale > 0 ? most / scale : most;
}

/* A gradient that is 0 but for rounding, as of a bias in front of a batch-norm, is held against 1. */
static double layer_apart(const double *a, const double *b, size_t at, size_t count) {
    double most = 0, scale = 1;
    for (size_t i = at; i < at + count; i++) {
        most = fmax(most, fabs(a[i] - b[i]));
        scale = fmax(scale, fabs(a[i]));
    }
    return most / scale;
}

/* How far the parts' step is from that of the whole, at most: outputs, inputs' gradients, and those of any layer. */
static double compare(const struct problem *p, const struct echi_stack_impl *impl, const int *cut, int parts, struct echi_random *r,
                      bool alone) {
    struct part whole, part[PARTS];
    struct echi_buffer *params;
    const int n = cut[parts];
    float *in = malloc((size_t)n * in_size(p) * sizeof *in), *dout = malloc((size_t)n * out_size(p) * sizeof *dout);
    float *out = malloc(2 * (size_t)n * out_size(p) * sizeof *out), *dx = malloc(2 * (size_t)n * in_size(p) * sizeof *dx);
    double *grads = malloc(2 * p->params * sizeof *grads);
    assert_int_equal(echi_buffer_create(problem_device, p->params * sizeof(float), &params, NULL), ECH_OK);
    float *w = echi_buffer_host(params);
    for (size_t i = 0; i < p->params; i++) w[i] = (float)echi_random_normal(r);
    for (size_t i = 0; i < (size_t)n * in_size(p); i++) in[i] = (float)echi_random_normal(r) + 1;
    for (size_t i = 0; i < (size_t)n * out_size(p); i++) dout[i] = (float)echi_random_normal(r);
    open_part(&whole, p, impl, 0, n);
    for (int i = 0; i < parts; i++) open_part(&part[i], p, impl, cut[i], cut[i + 1] - cut[i]);
    step(&whole, 1, p, params, in, dout, out, dx, grads, true);
    step(part, parts, p, params, in, dout, out + (size_t)n * out_size(p), dx + (size_t)n * in_size(p), grads + p->params, alone);
    const size_t outs = (size_t)n * out_size(p), ins = (size_t)n * in_size(p);
    double most = fmax(apart(out, out + outs, outs), apart(dx, dx + ins, ins));
    for (int i = 0; i < p->count; i++) {
        const struct echi_layer *l = &p->layers[i];
        most = fmax(most, layer_apart(grads, grads + p->params, l->weight_at, l->weights));
        most = fmax(most, layer_apart(grads, grads + p->params, l->bias_at, l->biases));
        most = fmax(most, layer_apart(grads, grads + p->params, l->running_at, l->running));
    }
    close_part(&whole);
    for (int i = 0; i < parts; i++) close_part(&part[i]);
    echi_buffer_destroy(params);
    free(in), free(dout), free(out), free(dx), free(grads);
    return most;
}

/* With and without ReLU behind it, of maps and of vectors, in a branch; parts of 1 sample, of less and of more than a vector's lanes.
 * Smooth ends, so that no ReLU turns by a rounding. */
static void test_parts_are_the_whole(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof candidates / sizeof candidates[0]; k++)
        for (uint32_t seed = 0; seed < 30; seed += test_part()) {
            struct problem p;
            struct echi_random r;
            echi_random_init(&r, seed, ECHI_STREAM_TEST, 80);
            problem_begin(&p, random_from(&r, 1, 5), random_from(&r, 2, 6), random_from(&r, 2, 6));
            problem_batch_norm(&p);
            problem_same_conv(&p, &r);
            problem_batch_norm(&p);
            problem_next(&p, ECHI_OP_TANH);
            problem_add(&p, 1);
            if (echi_random_below(&r, 2)) problem_fc(&p, 3, true), problem_batch_norm(&p);
            const int parts = random_from(&r, 2, PARTS);
            int cut[PARTS + 1] = {0};
            for (int i = 0; i < parts; i++) cut[i + 1] = cut[i] + (echi_random_below(&r, 4) ? random_from(&r, 2, MOST / PARTS) : 1);
            const double with = compare(&p, candidates[k], cut, parts, &r, false);
            if (!(with < 2e-5)) fail_msg("%s, %s, %d parts of %d: apart by %.3g", candidates[k]->name, p.text, parts, cut[parts], with);
            if (seed % 10 == 0 && !(compare(&p, candidates[k], cut, parts, &r, true) > 1e-3))
                fail_msg("%s: what was not exchanged is not missed", p.text);
        }
}

/* Sums of few numbers that floats hold exactly: two samples and one, of one channel. */
static void test_join(void **state) {
    (void)state;
    float all[2], first[2] = {3, 1}, second[2] = {9, 0}, sums[2] = {1.5f, -2};
    echi_norm_join(all, 0, first, 2, 1, false);   /* 2, 4 */
    assert_true(all[0] == 3 && all[1] == 1);
    echi_norm_join(all, 2, second, 1, 1, false);  /* 2, 4, 9 */
    assert_true(fabsf(all[0] - 5) < 1e-6f && fabsf(all[1] - 26.0f / 3) < 2e-6f);
    echi_norm_join(all, 0, sums, 2, 1, true);
    echi_norm_join(all, 2, sums, 7, 1, true);
    assert_true(all[0] == 3 && all[1] == -4);
}

static void assert_refused(ech_status status, const struct ech_error *err, const char *word) {
    assert_int_equal(status, ECH_E_ARGUMENT);
    if (!strstr(err->text, word)) fail_msg("'%s' does not say '%s'", err->text, word);
}

static void test_order_of_calls(void **state) {
    (void)state;
    struct problem p;
    struct part s;
    struct echi_buffer *params;
    struct ech_error err;
    float in[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, sums[2 * CHANNELS];
    const struct echi_training training = {1, NULL, 1};
    problem_begin(&p, 2, 1, 2);
    problem_window(&p, ECHI_OP_AVG_POOL, 0, 1, 1, 1, 1, 0, 0, false);
    problem_batch_norm(&p);
    for (size_t k = 0; k < sizeof candidates / sizeof candidates[0]; k++) {
        open_part(&s, &p, candidates[k], 0, 3);
        assert_int_equal(echi_buffer_create(problem_device, p.params * sizeof(float), &params, NULL), ECH_OK);
        assert_int_equal(echi_stack_norm(s.stack, 0), 0);
        assert_int_equal(echi_stack_norm(s.stack, 1), 2);
        assert_int_equal(echi_stack_norm(s.stack, 2), 0);
        assert_int_equal(echi_stack_input(s.stack, 3, in, NULL), ECH_OK);
        assert_refused(echi_stack_norm_sums(s.stack, 1, params, sums, &err), &err, "echi_stack_train");
        assert_int_equal(echi_stack_train(s.stack, &training, NULL), ECH_OK);
        assert_refused(echi_stack_norm_sums(s.stack, 0, params, sums, &err), &err, "does not begin with a batch-norm");
        assert_refused(echi_stack_norm_sums(s.stack, 1, params, sums, &err), &err, "not unit 1 that goes forward next");
        assert_refused(echi_stack_norm_sums(s.stack, 2, params, sums, &err), &err, "no unit 2");
        assert_int_equal(echi_stack_forward(s.stack, 0, params, NULL), ECH_OK);
        assert_refused(echi_stack_norm_take(s.stack, 1, 3, sums, &err), &err, "echi_stack_norm_sums first");
        assert_refused(echi_stack_norm_sums(s.stack, 1, params, NULL, &err), &err, "out is NULL");
        assert_int_equal(echi_stack_norm_sums(s.stack, 1, params, sums, NULL), ECH_OK);
        assert_refused(echi_stack_norm_take(s.stack, 1, 2, sums, &err), &err, "2 samples");
        assert_refused(echi_stack_norm_take(s.stack, 1, 3, NULL, &err), &err, "all is NULL");
        assert_int_equal(echi_stack_norm_take(s.stack, 1, 3, sums, NULL), ECH_OK);
        assert_int_equal(echi_stack_forward(s.stack, 1, params, NULL), ECH_OK);
        assert_refused(echi_stack_norm_sums(s.stack, 1, params, sums, &err), &err, "not unit 1");
        assert_int_equal(echi_stack_output_grad(s.stack, in, NULL), ECH_OK);
        assert_refused(echi_stack_norm_take(s.stack, 1, 3, sums, &err), &err, "echi_stack_norm_sums first");
        assert_int_equal(echi_stack_norm_sums(s.stack, 1, params, sums, NULL), ECH_OK);
        assert_int_equal(echi_stack_norm_take(s.stack, 1, 3, sums, NULL), ECH_OK);
        assert_int_equal(echi_stack_backward(s.stack, 1, params, s.grads, true, NULL), ECH_OK);
        close_part(&s);
        echi_buffer_destroy(params);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_the_whole),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_order_of_calls),
    };
    return cmocka_run_group_tests(tests, problem_open_device, problem_close_device);
}
