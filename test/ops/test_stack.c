/* SPDX-License-Identifier: Apache-2.0
 * A stack as its callers may misuse it: each call out of order, each wrong argument and each layer that does not fit is
 * refused with a sentence, and the stack goes on working. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/echi_cpu_kernels.h"
#include "problem.h"

static void assert_fails(ech_status status, ech_status wanted, const struct ech_error *err, const char *word) {
    if (status != wanted) fail_msg("status %s instead of %s ('%s')", ech_status_name(status), ech_status_name(wanted), err->text);
    assert_int_equal(err->code, wanted);
    if (strstr(err->text, word) == NULL) fail_msg("'%s' does not say '%s'", err->text, word);
}

/* Three layers that every implementation runs as at least two units: a pool that overlaps, and two fully connected. */
struct fixture {
    struct problem p;
    struct echi_stack *stack;
    struct echi_buffer *params, *grads, *small;
    float in[4 * 25], out[4 * 3];
    uint16_t labels[4];
    double loss;
    int correct, units;
};

static void fixture_open(struct fixture *f, enum echi_kernels kernels) {
    memset(f, 0, sizeof *f);
    problem_begin(&f->p, 1, 5, 5);
    problem_window(&f->p, ECHI_OP_MAX_POOL, 0, 3, 3, 1, 1, 0, 0, false);
    problem_fc(&f->p, 4, true);
    problem_fc(&f->p, 3, true);
    assert_int_equal(echi_stack_create(problem_device, kernels, f->p.layers, f->p.count, 4, &f->stack, NULL), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, f->p.params * sizeof(float), &f->params, NULL), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, f->p.params * sizeof(float), &f->grads, NULL), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, 8, &f->small, NULL), ECH_OK);
    f->units = echi_stack_units(f->stack);
    assert_true(f->units >= 2);
}

static void fixture_close(struct fixture *f) {
    echi_stack_destroy(f->stack);
    echi_buffer_destroy(f->params);
    echi_buffer_destroy(f->grads);
    echi_buffer_destroy(f->small);
}

static void go_forward(struct fixture *f) {
    assert_int_equal(echi_stack_input(f->stack, 4, f->in, NULL), ECH_OK);
    for (int u = 0; u < f->units; u++) assert_int_equal(echi_stack_forward(f->stack, u, f->params, NULL), ECH_OK);
}

static void check_order(enum echi_kernels kernels) {
    struct ech_error err;
    struct fixture f;
    fixture_open(&f, kernels);
    struct echi_stack *s = f.stack;
    int last = f.units - 1;

    /* Nothing before the input. */
    assert_fails(echi_stack_forward(s, 0, f.params, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
    assert_fails(echi_stack_output(s, f.out, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
    assert_fails(echi_stack_loss(s, f.labels, 1, &f.loss, &f.correct, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
    assert_fails(echi_stack_output_grad(s, f.out, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
    assert_fails(echi_stack_backward(s, last, f.params, f.grads, true, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
    assert_fails(echi_stack_input_grad(s, f.in, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
    assert_fails(echi_stack_same_params(s, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
    assert_fails(echi_stack_grads(s, last, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");

    /* Units in order, each once. */
    assert_int_equal(echi_stack_input(s, 4, f.in, &err), ECH_OK);
    assert_fails(echi_stack_forward(s, 1, f.params, &err), ECH_E_ARGUMENT, &err, "in order");
    assert_int_equal(echi_stack_forward(s, 0, f.params, &err), ECH_OK);
    assert_fails(echi_stack_forward(s, 0, f.params, &err), ECH_E_ARGUMENT, &err, "in order");
    assert_fails(echi_stack_same_params(s, &err), ECH_E_ARGUMENT, &err, "right after");
    assert_fails(echi_stack_output(s, f.out, &err), ECH_E_ARGUMENT, &err, "echi_stack_forward");
    assert_fails(echi_stack_loss(s, f.labels, 1, &f.loss, &f.correct, &err), ECH_E_ARGUMENT, &err, "echi_stack_forward");

    /* No way back before a gradient, no second gradient. */
    go_forward(&f);
    assert_fails(echi_stack_backward(s, last, f.params, f.grads, true, &err), ECH_E_ARGUMENT, &err, "echi_stack_loss");
    assert_fails(echi_stack_input_grad(s, f.in, &err), ECH_E_ARGUMENT, &err, "unit 0");
    assert_int_equal(echi_stack_output(s, f.out, &err), ECH_OK);
    assert_int_equal(echi_stack_loss(s, f.labels, 1, &f.loss, &f.correct, &err), ECH_OK);
    assert_fails(echi_stack_output_grad(s, f.out, &err), ECH_E_ARGUMENT, &err, "already");
    assert_fails(echi_stack_loss(s, f.labels, 1, &f.loss, &f.correct, &err), ECH_E_ARGUMENT, &err, "already");
    assert_fails(echi_stack_output(s, f.out, &err), ECH_E_ARGUMENT, &err, "already");
    assert_fails(echi_stack_backward(s, 0, f.params, f.grads, true, &err), ECH_E_ARGUMENT, &err, "last to the first");

    assert_fails(echi_stack_grads(s, last, &err), ECH_E_ARGUMENT, &err, "echi_stack_backward");

    /* Backward without the gradient of the input ends there. */
    assert_int_equal(echi_stack_backward(s, last, f.params, f.grads, false, &err), ECH_OK);
    assert_fails(echi_stack_backward(s, last - 1, f.params, f.grads, true, &err), ECH_E_ARGUMENT, &err, "need_input_grad");
    assert_true(echi_stack_grads_there(s, last));   /* on the host */
    assert_int_equal(echi_stack_grads(s, last, &err), ECH_OK);
    assert_fails(echi_stack_grads(s, last - 1, &err), ECH_E_ARGUMENT, &err, "echi_stack_backward");

    /* A whole step still works, and its end is an end. */
    go_forward(&f);
    assert_int_equal(echi_stack_output_grad(s, f.out, &err), ECH_OK);
    for (int u = last; u >= 0; u--) assert_int_equal(echi_stack_backward(s, u, f.params, f.grads, true, &err), ECH_OK);
    assert_int_equal(echi_stack_input_grad(s, f.in, &err), ECH_OK);
    assert_fails(echi_stack_backward(s, 0, f.params, f.grads, true, &err), ECH_E_ARGUMENT, &err, "0 are left");

    go_forward(&f);
    assert_int_equal(echi_stack_output_grad(s, f.out, &err), ECH_OK);
    for (int u = last; u >= 0; u--) assert_int_equal(echi_stack_backward(s, u, f.params, f.grads, u > 0, &err), ECH_OK);
    assert_fails(echi_stack_input_grad(s, f.in, &err), ECH_E_ARGUMENT, &err, "need_input_grad");
    fixture_close(&f);
}

static void test_order_of_calls(void **state) {
    (void)state;
    check_order(ECHI_KERNELS_FAST);
    check_order(ECHI_KERNELS_REFERENCE);
}

static void test_arguments(void **state) {
    (void)state;
    struct ech_error err;
    struct fixture f;
    fixture_open(&f, ECHI_KERNELS_FAST);
    struct echi_stack *s = f.stack;
    assert_fails(echi_stack_input(s, 0, f.in, &err), ECH_E_ARGUMENT, &err, "1 to 4");
    assert_fails(echi_stack_input(s, 5, f.in, &err), ECH_E_ARGUMENT, &err, "1 to 4");
    assert_fails(echi_stack_input(s, -1, f.in, &err), ECH_E_ARGUMENT, &err, "1 to 4");
    assert_fails(echi_stack_input(s, 1, NULL, &err), ECH_E_ARGUMENT, &err, "rows");
    assert_fails(echi_stack_input(NULL, 1, f.in, &err), ECH_E_ARGUMENT, &err, "stack");
    assert_int_equal(echi_stack_input(s, 4, f.in, &err), ECH_OK);
    assert_fails(echi_stack_forward(s, -1, f.params, &err), ECH_E_ARGUMENT, &err, "unit -1");
    assert_fails(echi_stack_forward(s, f.units, f.params, &err), ECH_E_ARGUMENT, &err, "units 0 to");
    assert_fails(echi_stack_forward(s, 0, NULL, &err), ECH_E_ARGUMENT, &err, "params");
    assert_fails(echi_stack_forward(s, 0, f.small, &err), ECH_E_ARGUMENT, &err, "8 bytes");
    go_forward(&f);
    assert_fails(echi_stack_output(s, NULL, &err), ECH_E_ARGUMENT, &err, "rows");
    f.labels[2] = 3;
    assert_fails(echi_stack_loss(s, f.labels, 1, &f.loss, &f.correct, &err), ECH_E_ARGUMENT, &err, "label 3 of sample 2");
    f.labels[2] = 2;
    assert_fails(echi_stack_loss(s, NULL, 1, &f.loss, &f.correct, &err), ECH_E_ARGUMENT, &err, "labels");
    assert_fails(echi_stack_loss(s, f.labels, 1, NULL, &f.correct, &err), ECH_E_ARGUMENT, &err, "out_loss");
    assert_int_equal(echi_stack_loss(s, f.labels, 1, &f.loss, &f.correct, &err), ECH_OK);
    assert_fails(echi_stack_backward(s, f.units - 1, f.params, f.small, true, &err), ECH_E_ARGUMENT, &err, "grads");
    assert_int_equal(echi_stack_backward(s, f.units - 1, f.params, f.grads, true, &err), ECH_OK);
    echi_stack_destroy(NULL);
    fixture_close(&f);
}

/* Where branches meet: a share that is kept back is missed wherever it would have gone; and what is drawn is drawn in time. */
static void test_order_of_branches(void **state) {
    (void)state;
    static const enum echi_kernels kernels[] = {ECHI_KERNELS_FAST, ECHI_KERNELS_REFERENCE};
    for (size_t k = 0; k < 2; k++) {
        struct problem p;
        struct ech_error err;
        struct echi_stack *s = NULL;
        struct echi_buffer *params = NULL;
        float rows[32] = {0};
        const struct echi_row who[2] = {{0, 1}, {0, 2}};
        problem_begin(&p, 1, 4, 4);
        problem_dropout(&p, 500000);
        problem_window(&p, ECHI_OP_AVG_POOL, 0, 3, 3, 1, 1, 1, 1, false);
        problem_from(&p, 1);
        problem_window(&p, ECHI_OP_AVG_POOL, 0, 3, 3, 1, 1, 1, 1, false);
        problem_add(&p, 2);
        assert_int_equal(echi_stack_create(problem_device, kernels[k], p.layers, p.count, 2, &s, &err), ECH_OK);
        assert_int_equal(echi_buffer_create(problem_device, 0, &params, &err), ECH_OK);
        const struct echi_training training = {1, who, 0.5f}, no_rows = {1, NULL, 0.5f}, no_share = {1, who, 0};
        assert_fails(echi_stack_train(s, &training, &err), ECH_E_ARGUMENT, &err, "echi_stack_input");
        for (int missing = 0; missing < 5; missing++) {   /* 4: none */
            assert_int_equal(echi_stack_input(s, 2, rows, &err), ECH_OK);
            assert_fails(echi_stack_train(s, &no_rows, &err), ECH_E_ARGUMENT, &err, "rows");
            assert_fails(echi_stack_train(s, &no_share, &err), ECH_E_ARGUMENT, &err, "share is 0");
            assert_fails(echi_stack_train(s, NULL, &err), ECH_E_ARGUMENT, &err, "training is NULL");
            assert_int_equal(echi_stack_train(s, &training, &err), ECH_OK);
            for (int u = 0; u < 4; u++) assert_int_equal(echi_stack_forward(s, u, params, &err), ECH_OK);
            assert_fails(echi_stack_train(s, &training, &err), ECH_E_ARGUMENT, &err, "right after");
            assert_int_equal(echi_stack_output_grad(s, rows, &err), ECH_OK);
            /* 3 gives to 2 and 1, those give to 0. */
            const int ends = missing == 3 ? 2 : missing == 2 || missing == 1 ? 0 : -1;
            for (int u = 3; u > ends; u--) assert_int_equal(echi_stack_backward(s, u, params, params, u != missing, &err), ECH_OK);
            char word[80];
            snprintf(word, sizeof word, "echi_stack_backward of unit %d", missing);
            if (ends >= 0) assert_fails(echi_stack_backward(s, ends, params, params, true, &err), ECH_E_ARGUMENT, &err, word);
            else if (missing == 0) assert_fails(echi_stack_input_grad(s, rows, &err), ECH_E_ARGUMENT, &err, "need_input_grad");
            else assert_int_equal(echi_stack_input_grad(s, rows, &err), ECH_OK);
        }
        echi_stack_destroy(s);
        echi_buffer_destroy(params);
    }
}

/* With a batch-norm a rest of samples takes as long as a full vector; without, narrower vectors take it. The reference computes samples
 * one by one. */
static void test_blocks(void **state) {
    (void)state;
    const struct echi_cpu_kernels *k = echi_kernels(problem_device);
    for (int norm = 0; norm <= 1; norm++) {
        struct problem p;
        struct echi_stack *s = NULL;
        problem_begin(&p, 3, 12, 12);
        problem_window(&p, ECHI_OP_CONV2D, 20, 3, 3, 1, 1, 1, 1, true);
        if (norm) problem_batch_norm(&p);
        problem_fc(&p, 7, true);
        assert_int_equal(echi_stack_create(problem_device, ECHI_KERNELS_PLAIN, p.layers, p.count, 2 * k->width, &s, NULL), ECH_OK);
        assert_int_equal(echi_stack_block(s), norm || !k->narrow ? k->width : k->narrow->narrow->width);
        echi_stack_destroy(s);
        assert_int_equal(echi_stack_create(problem_device, ECHI_KERNELS_REFERENCE, p.layers, p.count, 16, &s, NULL), ECH_OK);
        assert_int_equal(echi_stack_block(s), 1);
        echi_stack_destroy(s);
    }
}

/* Units cover the layers, in order, each once, and say what was chosen. */
static void test_units(void **state) {
    (void)state;
    struct problem p;
    problem_lenet5(&p);
    for (int kernels = ECHI_KERNELS_FAST; kernels <= ECHI_KERNELS_REFERENCE; kernels++) {
        struct echi_stack *s = NULL;
        assert_int_equal(echi_stack_create(problem_device, (enum echi_kernels)kernels, p.layers, p.count, 8, &s, NULL), ECH_OK);
        int next = 0, first, end;
        for (int u = 0; u < echi_stack_units(s); u++, next = end) {
            echi_stack_unit(s, u, &first, &end);
            assert_true(first == next && end > first);
            assert_true(echi_stack_kernel(s, u)[0] != '\0');
        }
        assert_int_equal(next, p.count);
        assert_true(echi_stack_bytes(s) > 0);
        assert_string_equal(echi_stack_kernel(s, -1), "");
        echi_stack_unit(s, 99, &first, &end);
        assert_true(first == 0 && end == 0);
        bool reference = strstr(echi_stack_kernel(s, 0), "reference") != NULL;
        assert_true(reference == (kernels == ECHI_KERNELS_REFERENCE));
        echi_stack_destroy(s);
    }
}

/* What is counted is what is taken, where a step has a rest of few samples and where it has none, of one thread and of several. */
static void counts_alike(struct echi_device *device, const struct problem *p) {
    for (int kernels = ECHI_KERNELS_FAST; kernels <= ECHI_KERNELS_REFERENCE; kernels++)
        for (int n = 1; n <= 65; n += n < 18 ? 1 : 47) {
            struct echi_stack *s = NULL;
            size_t bytes;
            assert_int_equal(echi_stack_create(device, (enum echi_kernels)kernels, p->layers, p->count, n, &s, NULL), ECH_OK);
            assert_int_equal(echi_stack_count(device, (enum echi_kernels)kernels, p->layers, p->count, n, &bytes, NULL), ECH_OK);
            if (bytes != echi_stack_bytes(s))
                fail_msg("%d samples, kernels %d: %zu bytes are counted, %zu taken", n, kernels, bytes, echi_stack_bytes(s));
            echi_stack_destroy(s);
        }
}

static void test_counts(void **state) {
    (void)state;
    struct problem lenet5, p;
    struct echi_device *two;
    struct ech_error err;
    size_t bytes = 1;
    assert_int_equal(echi_device_open("cpu", 2, &two, NULL), ECH_OK);
    problem_lenet5(&lenet5);
    problem_begin(&p, 3, 12, 12);
    problem_window(&p, ECHI_OP_CONV2D, 70, 3, 3, 1, 1, 1, 1, true);
    problem_batch_norm(&p);
    problem_window(&p, ECHI_OP_CONV2D, 70, 3, 3, 1, 1, 1, 1, true);
    problem_add(&p, 1);
    problem_relu(&p);
    problem_dropout(&p, 500000);
    problem_fc(&p, 7, true);
    counts_alike(problem_device, &lenet5);
    counts_alike(problem_device, &p);
    counts_alike(two, &lenet5);
    echi_device_close(two);
    assert_fails(echi_stack_count(problem_device, ECHI_KERNELS_FAST, p.layers, p.count, 0, &bytes, &err), ECH_E_ARGUMENT, &err, "sample");
    assert_int_equal(bytes, 0);
    p.layers[0].out.h++;
    assert_fails(echi_stack_count(problem_device, ECHI_KERNELS_FAST, p.layers, p.count, 4, &bytes, &err), ECH_E_SHAPE, &err, "conv2d1");
}

/* --- layers that do not fit --- */

static void assert_refused(const struct problem *p, ech_status wanted, const char *word) {
    struct ech_error err;
    struct echi_stack *s = NULL;
    assert_fails(echi_stack_create(problem_device, ECHI_KERNELS_FAST, p->layers, p->count, 4, &s, &err), wanted, &err, word);
    assert_null(s);
}

static void good_conv(struct problem *p) {
    problem_begin(p, 2, 8, 8);
    problem_window(p, ECHI_OP_CONV2D, 3, 3, 3, 1, 1, 1, 1, true);
}

static void test_layers_that_do_not_fit(void **state) {
    (void)state;
    struct problem p;
    struct echi_layer *l = &p.layers[0];
    good_conv(&p), l->out.h++;
    assert_refused(&p, ECH_E_SHAPE, "conv2d1");
    good_conv(&p), l->stride_h = 0;
    assert_refused(&p, ECH_E_SHAPE, "stride");
    good_conv(&p), l->pad_w = -1;
    assert_refused(&p, ECH_E_SHAPE, "padding");
    good_conv(&p), l->kernel_h = INT32_MAX;
    assert_refused(&p, ECH_E_SHAPE, "kernel");
    good_conv(&p), l->pad_h = INT32_MAX;
    assert_refused(&p, ECH_E_SHAPE, "padding");
    good_conv(&p), l->in.c = 0;
    assert_refused(&p, ECH_E_SHAPE, "at least 1");
    good_conv(&p), l->weights--;
    assert_refused(&p, ECH_E_SHAPE, "weights");
    good_conv(&p), l->biases = 0;
    assert_refused(&p, ECH_E_SHAPE, "biases");
    good_conv(&p), l->weight_at = SIZE_MAX - 3;
    assert_refused(&p, ECH_E_SHAPE, "parameters");
    good_conv(&p), l->op = (enum echi_op)99;
    assert_refused(&p, ECH_E_UNSUPPORTED, "99");
    problem_begin(&p, 1, 4, 4), problem_window(&p, ECHI_OP_MAX_POOL, 0, 2, 2, 2, 2, 2, 0, false);
    assert_refused(&p, ECH_E_SHAPE, "smaller than the window");
    problem_begin(&p, 1, 4, 4), problem_window(&p, ECHI_OP_AVG_POOL, 0, 2, 2, 2, 2, 0, 0, false), l->out.c = 2;
    assert_refused(&p, ECH_E_SHAPE, "channels");
    problem_begin(&p, 1, 4, 4), problem_relu(&p), l->out.w = 5;
    assert_refused(&p, ECH_E_SHAPE, "relu1");
    problem_begin(&p, 1, 4, 4), problem_fc(&p, 3, true), l->out.h = 2;
    assert_refused(&p, ECH_E_SHAPE, "vector");
    problem_begin(&p, INT32_MAX, INT32_MAX, INT32_MAX), problem_relu(&p);
    assert_refused(&p, ECH_E_SHAPE, "relu1");
    problem_begin(&p, INT32_MAX, INT32_MAX, 1), problem_relu(&p);
    assert_refused(&p, ECH_E_SHAPE, "samples");
    good_conv(&p), problem_relu(&p), p.layers[1].in = p.layers[1].out = (struct echi_shape){3, 8, 9};
    assert_refused(&p, ECH_E_SHAPE, "before it gives");
    good_conv(&p), problem_relu(&p), p.layers[1].skip = 2;
    assert_refused(&p, ECH_E_SHAPE, "none of those before it");
    good_conv(&p), problem_relu(&p), p.layers[1].skip = -1;
    assert_refused(&p, ECH_E_SHAPE, "none of those before it");
    good_conv(&p), problem_add(&p, 1), p.layers[1].with = -1;
    assert_refused(&p, ECH_E_SHAPE, "none of those before it");
    good_conv(&p), problem_add(&p, 0);   /* of another shape */
    assert_refused(&p, ECH_E_SHAPE, "'input' before it gives 2x8x8");
    problem_begin(&p, 1, 4, 4), problem_relu(&p), problem_from(&p, 0), problem_relu(&p);
    assert_refused(&p, ECH_E_SHAPE, "'relu1': no layer takes its output");
    problem_begin(&p, 1, 4, 4), problem_dropout(&p, 1000000);
    assert_refused(&p, ECH_E_SHAPE, "drops everything");
    problem_begin(&p, 1, 4, 6), problem_global_avg_pool(&p), l->kernel_w = 5, l->out.w = 2;
    assert_refused(&p, ECH_E_SHAPE, "the whole map");
    good_conv(&p);
    struct ech_error err;
    struct echi_stack *s = NULL;
    assert_fails(echi_stack_create(problem_device, ECHI_KERNELS_FAST, p.layers, 0, 4, &s, &err), ECH_E_ARGUMENT, &err, "layer");
    assert_fails(echi_stack_create(problem_device, ECHI_KERNELS_FAST, p.layers, 1, 0, &s, &err), ECH_E_ARGUMENT, &err, "sample");
    assert_fails(echi_stack_create(NULL, ECHI_KERNELS_FAST, p.layers, 1, 4, &s, &err), ECH_E_ARGUMENT, &err, "device");
}

/* A loss needs a vector. */
static void test_loss_of_an_image(void **state) {
    (void)state;
    struct problem p;
    struct ech_error err;
    struct echi_stack *s = NULL;
    struct echi_buffer *params = NULL;
    float in[16] = {0};
    double loss;
    int correct;
    problem_begin(&p, 1, 4, 4), problem_relu(&p);
    assert_int_equal(echi_stack_create(problem_device, ECHI_KERNELS_FAST, p.layers, 1, 1, &s, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, 0, &params, &err), ECH_OK);     /* no parameters, none needed */
    assert_int_equal(echi_stack_input(s, 1, in, &err), ECH_OK);
    assert_int_equal(echi_stack_forward(s, 0, params, &err), ECH_OK);
    assert_fails(echi_stack_loss(s, (const uint16_t[]){0}, 1, &loss, &correct, &err), ECH_E_SHAPE, &err, "vector");
    echi_stack_destroy(s);
    echi_buffer_destroy(params);
}

/* --- conversions of layouts: those that a stack announces are those that it makes, as its kernels see them --- */

static const struct echi_cpu_kernels *kernels;   /* as they are */
static struct echi_cpu_kernels counting;         /* the same, with these two in front */
static size_t converted;
static void count_to_vectors(const float *rows, ptrdiff_t row, int lanes, int columns, float *vectors, ptrdiff_t vector) {
    converted += (size_t)lanes * (size_t)columns;
    kernels->to_vectors(rows, row, lanes, columns, vectors, vector);
}
static void count_to_rows(const float *vectors, ptrdiff_t vector, int lanes, int columns, float *rows, ptrdiff_t row) {
    converted += (size_t)lanes * (size_t)columns;
    kernels->to_rows(vectors, vector, lanes, columns, rows, row);
}
const struct echi_cpu_kernels *__real_echi_kernels(const struct echi_device *device);
const struct echi_cpu_kernels *__wrap_echi_kernels(const struct echi_device *device);
const struct echi_cpu_kernels *__wrap_echi_kernels(const struct echi_device *device) {
    counting = *(kernels = __real_echi_kernels(device));
    counting.to_vectors = count_to_vectors;
    counting.to_rows = count_to_rows;
    return &counting;
}

/* Full groups of samples, on one thread, so that nothing is turned for lanes or threads that have no use for it. */
enum { FULL = 2 * ECHI_CPU_WIDTH_MOST };

static void count_step(const struct problem *p, enum echi_kernels with) {
    struct echi_stack *s = NULL;
    struct echi_buffer *params = NULL, *grads = NULL;
    const size_t in = echi_shape_size(p->layers[0].in), out = echi_shape_size(p->layers[p->count - 1].out);
    float *rows = calloc(FULL * (in > out ? in : out), sizeof *rows);
    struct echi_row who[FULL] = {{0, 0}};
    assert_non_null(rows);
    assert_int_equal(echi_stack_create(problem_device, with, p->layers, p->count, FULL, &s, NULL), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, p->params * sizeof(float), &params, NULL), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, p->params * sizeof(float), &grads, NULL), ECH_OK);
    size_t inside = 0;
    converted = 0;
    assert_int_equal(echi_stack_input(s, FULL, rows, NULL), ECH_OK);
    assert_int_equal(echi_stack_output(s, rows, NULL), ECH_E_ARGUMENT);
    assert_int_equal(converted, FULL * echi_stack_border_in(s));
    assert_int_equal(echi_stack_train(s, &(struct echi_training){1, who, 1}, NULL), ECH_OK);
    for (int u = 0; u < echi_stack_units(s); u++) {
        assert_int_equal(echi_stack_forward(s, u, params, NULL), ECH_OK);
        inside += echi_stack_turned(s, u);
    }
    assert_int_equal(echi_stack_turned(s, -1) + echi_stack_turned(s, echi_stack_units(s)), 0);
    assert_int_equal(echi_stack_output(s, rows, NULL), ECH_OK);
    assert_int_equal(echi_stack_output_grad(s, rows, NULL), ECH_OK);
    for (int u = echi_stack_units(s) - 1; u >= 0; u--) assert_int_equal(echi_stack_backward(s, u, params, grads, true, NULL), ECH_OK);
    assert_int_equal(echi_stack_input_grad(s, rows, NULL), ECH_OK);
    if (converted != FULL * (2 * echi_stack_border_in(s) + 2 * echi_stack_border_out(s) + inside))
        fail_msg("%s: %zu numbers a sample were converted; announced are %zu at the border, %zu inside", p->text, converted / FULL,
                 2 * echi_stack_border_in(s) + 2 * echi_stack_border_out(s), inside);
    if (with == ECHI_KERNELS_REFERENCE) assert_int_equal(converted, 0);
    else assert_true(echi_stack_border_in(s) == in && echi_stack_border_out(s) == out);
    echi_stack_destroy(s);
    echi_buffer_destroy(params);
    echi_buffer_destroy(grads);
    free(rows);
}

static void test_conversions(void **state) {
    (void)state;
    static const enum echi_kernels with[] = {ECHI_KERNELS_FAST, ECHI_KERNELS_CLOSE, ECHI_KERNELS_PLAIN, ECHI_KERNELS_REFERENCE};
    for (size_t k = 0; k < sizeof with / sizeof with[0]; k++) {
        struct problem p;
        problem_begin(&p, 3, 12, 12);   /* with few channels and with many, in the middle and late, fully connected, dropout */
        problem_window(&p, ECHI_OP_CONV2D, 20, 3, 3, 1, 1, 1, 1, true);
        problem_window(&p, ECHI_OP_CONV2D, 32, 3, 3, 1, 1, 1, 1, true);
        problem_window(&p, ECHI_OP_CONV2D, 18, 5, 5, 1, 1, 0, 0, true);
        problem_relu(&p);
        problem_window(&p, ECHI_OP_MAX_POOL, 0, 2, 2, 2, 2, 0, 0, false);
        problem_window(&p, ECHI_OP_CONV2D, 80, 3, 3, 2, 2, 1, 1, true);
        problem_window(&p, ECHI_OP_CONV2D, 70, 3, 3, 1, 1, 1, 1, true);
        problem_dropout(&p, 500000);
        problem_fc(&p, 13, true);
        problem_fc(&p, 7, true);
        count_step(&p, with[k]);
        problem_lenet5(&p);
        count_step(&p, with[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_calls), cmocka_unit_test(test_arguments),        cmocka_unit_test(test_units),
        cmocka_unit_test(test_blocks),              cmocka_unit_test(test_counts),
        cmocka_unit_test(test_layers_that_do_not_fit), cmocka_unit_test(test_loss_of_an_image), cmocka_unit_test(test_order_of_branches),
        cmocka_unit_test(test_conversions),
    };
    return cmocka_run_group_tests_name("stack", tests, problem_open_device, problem_close_device);
}
