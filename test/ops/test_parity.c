/* SPDX-License-Identifier: Apache-2.0
 * Every implementation of a stack that this processor can run against the reference, over random single layers and stacks.
 *
 * *Exact* cases use small integers, so that every sum is exact in any order, and compare with ==. (Average-pool divides:
 * there the windows' areas are powers of two.) Cases with real numbers compare with |a - b| <= REAL_TOLERANCE * (largest
 * magnitude in the array); what goes into a ReLU or max-pool stays integer there too, because a last bit that differs may
 * turn a whole gradient elsewhere. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/echi_cpu_stack.h"
#include "echi_backends.h"
#include "echi_stack_impl.h"
#include "fake/use.h"
#include "problem.h"

#include <math.h>

/* Sums of a few thousand products of float, in another order and with fused products. */
#define REAL_TOLERANCE 1e-5
#define COARSE_TOLERANCE 5e-5   /* F(4x4, 3x3), F(2x2, 5x5) */

/* A level that the processor does not have is skipped. echi_stack_cpu_close, which is without these two, is tried at its best. */
static struct problem_candidate candidates[] = {
    {&echi_stack_cpu_close, ECHI_CPU_BASE}, {&echi_stack_cpu_fixed, ECHI_CPU_BASE},
#if !defined ECHI_WITHOUT_opencl || !defined ECHI_WITHOUT_cuda
    {&echi_stack_gpu, ECHI_CPU_BASE},
#endif
    {&echi_stack_cpu, ECHI_CPU_BASE}, {&echi_stack_cpu, ECHI_CPU_AVX2}, {&echi_stack_cpu, ECHI_CPU_AVX512}};
#define CANDIDATES (sizeof candidates / sizeof candidates[0])
static const struct problem_candidate reference = {&echi_stack_reference, ECHI_CPU_BASE};
static struct problem_devices devices;

/* OpenCL's first device, as it is and as a GPU would be, whose products are other kernels, and CUDA's. They have one problem of FAR_EVERY
 * in turns: their launches take longer than all else. */
#define FAR_EVERY 5
static struct echi_device *far_device[3];
static int far_devices;

#ifndef ECHI_WITHOUT_opencl
static ech_status gpu_info(int index, struct echi_device_info *out, struct ech_error *err) {
    ech_status status = echi_backend_opencl.device_info(index, out, err);
    out->gpu = true;
    return status;
}

static bool open_opencl(void) {
    static struct echi_backend as_gpu;   /* as long as its device */
    as_gpu = echi_backend_opencl;
    as_gpu.device_info = gpu_info;
    if (echi_backend_opencl.device_count() == 0) {
        print_message("OpenCL has no device here (apt-get install ocl-icd-libopencl1 pocl-opencl-icd): "
                      "the kernels of ops/gpu are not tried\n");
        return true;
    }
    far_devices = 2;
    return echi_device_open("opencl:0", 1, &far_device[0], NULL) == ECH_OK &&
           echi_device_open_on(&as_gpu, 0, 1, &far_device[1], NULL) == ECH_OK;
}
#else
static bool open_opencl(void) { return true; }
#endif

static bool open_far_devices(void) {
    (void)fake_cuda_open();
    if (!open_opencl()) return false;
    struct ech_error err;
    const ech_status status = echi_device_open("cuda:0", 1, &far_device[far_devices], &err);
    if (status == ECH_OK) far_devices++;
    else print_message("%s: its kernels are not tried\n", err.text);
    return status == ECH_OK || status == ECH_E_UNSUPPORTED || status == ECH_E_ARGUMENT;
}

static int open_devices(void **state) {
    candidates[0].level = echi_cpu_level();
    return problem_open_devices(&devices, 1) && open_far_devices() ? problem_open_device(state) : -1;
}

static int close_devices(void **state) {
    for (int i = 0; i < far_devices; i++) echi_device_close(far_device[i]);
    problem_close_devices(&devices);
    return problem_close_device(state);
}

/* One implementation at work on a problem, all its memory between guards. */
struct bench {
    struct echi_device *device;
    struct echi_stack *stack;
    const struct problem *p;
    int max_n;
    struct guarded params, grads, in, out, dout, din, labels;
    struct echi_buffer *params_buffer, *grads_buffer;
    double loss;
    int correct;
};

static size_t in_size(const struct problem *p) { return echi_shape_size(p->layers[0].in); }
static size_t out_size(const struct problem *p) { return echi_shape_size(p->layers[p->count - 1].out); }

/* False when this processor lacks the level. */
static bool bench_open(struct bench *b, const struct problem *p, const struct problem_candidate *c, int max_n) {
    struct ech_error err;
    memset(b, 0, sizeof *b);
    static int turn;
    b->device = devices.at[c->level];
    if (c->impl->far) {
        if (far_devices == 0 || turn++ % FAR_EVERY != 0) return false;
        b->device = far_device[turn / FAR_EVERY % far_devices];
    }
    if (!b->device) return false;
    const ech_status status = echi_stack_create_with(b->device, c->impl, p->layers, p->count, max_n, &b->stack, &err);
    if (status != ECH_OK) fail_msg("%s: %s: %s", p->text, c->impl->name, err.text);
    b->p = p;
    b->max_n = max_n;
    size_t n = (size_t)max_n;
    b->params = guarded_new(p->params * sizeof(float));
    b->grads = guarded_new(p->params * sizeof(float));
    b->in = guarded_new(n * in_size(p) * sizeof(float));
    b->din = guarded_new(n * in_size(p) * sizeof(float));
    b->out = guarded_new(n * out_size(p) * sizeof(float));
    b->dout = guarded_new(n * out_size(p) * sizeof(float));
    b->labels = guarded_new(n * sizeof(uint16_t));
    assert_int_equal(echi_buffer_wrap(problem_device, guarded_floats(b->params), b->params.bytes, &b->params_buffer, &err), ECH_OK);
    assert_int_equal(echi_buffer_wrap(problem_device, guarded_floats(b->grads), b->grads.bytes, &b->grads_buffer, &err), ECH_OK);
    return true;
}

static void bench_close(struct bench *b) {
    struct guarded *all[] = {&b->params, &b->grads, &b->in, &b->din, &b->out, &b->dout, &b->labels};
    echi_stack_destroy(b->stack);
    echi_buffer_destroy(b->params_buffer);
    echi_buffer_destroy(b->grads_buffer);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!guards_intact(*all[i])) fail_msg("%s: wrote past array %zu", b->p->text, i);
        free(all[i]->block);
    }
}

/* A float that no arithmetic gives: what is still this was never set. */
#define UNTOUCHED 12345.678f

enum ending { WITH_LOSS, WITH_OUTPUT_GRAD };

struct step {
    int n;
    enum ending ending;
    bool input_grad;
    const float *params, *in, *dout;
    const uint16_t *labels;
    bool trains, by_halves;   /* by_halves: with the input's gradient, and then that of parameters */
};

static void bench_step(struct bench *b, const struct step *step) {
    const struct problem *p = b->p;
    struct ech_error err = {.text = "no error"};
    size_t rows = (size_t)step->n, in = rows * in_size(p), out = rows * out_size(p);
    memcpy(guarded_floats(b->params), step->params, p->params * sizeof(float));
    memcpy(guarded_floats(b->in), step->in, in * sizeof(float));
    memcpy(guarded_floats(b->dout), step->dout, out * sizeof(float));
    memcpy(guarded_floats(b->labels), step->labels, rows * sizeof *step->labels);
    for (size_t i = 0; i < p->params; i++) guarded_floats(b->grads)[i] = UNTOUCHED;
    for (size_t i = 0; i < (size_t)b->max_n * in_size(p); i++) guarded_floats(b->din)[i] = UNTOUCHED;
    for (size_t i = 0; i < (size_t)b->max_n * out_size(p); i++) guarded_floats(b->out)[i] = UNTOUCHED;

    assert_int_equal(echi_stack_input(b->stack, step->n, guarded_floats(b->in), &err), ECH_OK);
    memset(guarded_floats(b->in), 0x7f, in * sizeof(float));    /* the caller may reuse it at once */
    if (step->trains) {
        struct echi_row who[128];
        for (int s = 0; s < step->n; s++) who[s] = (struct echi_row){(uint32_t)s % 3, 1000 - 7 * (uint32_t)s};
        const struct echi_training training = {5, who, step->n % 2 ? 0.25f : 3};
        assert_int_equal(echi_stack_train(b->stack, &training, &err), ECH_OK);
        memset(who, 0x7f, sizeof who);
    }
    for (int u = 0; u < echi_stack_units(b->stack); u++)
        assert_int_equal(echi_stack_forward(b->stack, u, b->params_buffer, &err), ECH_OK);
    assert_int_equal(echi_stack_output(b->stack, guarded_floats(b->out), &err), ECH_OK);
    if (step->ending == WITH_LOSS) {
        const uint16_t *labels = (const uint16_t *)(void *)guarded_floats(b->labels);
        assert_int_equal(echi_stack_loss(b->stack, labels, 0.125f, &b->loss, &b->correct, &err), ECH_OK);
    } else {
        assert_int_equal(echi_stack_output_grad(b->stack, guarded_floats(b->dout), &err), ECH_OK);
        memset(guarded_floats(b->dout), 0x7f, out * sizeof(float));
    }
    for (int u = echi_stack_units(b->stack) - 1; u >= 0; u--) {
        if (step->by_halves) assert_int_equal(echi_stack_backward_inputs(b->stack, u, b->params_buffer, b->grads_buffer, &err), ECH_OK);
        else
            assert_int_equal(echi_stack_backward(b->stack, u, b->params_buffer, b->grads_buffer, u > 0 || step->input_grad, &err), ECH_OK);
    }
    for (int u = echi_stack_units(b->stack) - 1; u >= 0 && step->by_halves; u--)
        assert_int_equal(echi_stack_backward_params(b->stack, u, b->grads_buffer, &err), ECH_OK);
    assert_int_equal(echi_stack_grads(b->stack, 0, &err), ECH_OK);
    if (step->input_grad) assert_int_equal(echi_stack_input_grad(b->stack, guarded_floats(b->din), &err), ECH_OK);
    if (memcmp(guarded_floats(b->params), step->params, p->params * sizeof(float)) != 0) fail_msg("%s: changed the parameters", p->text);
}

/* tolerance 0: equal, where -0 is 0 and NaN is NaN. */
static void compare(const struct problem *p, const struct bench *b, const char *what, int n, const float *got, const float *wanted,
                    size_t count, double tolerance) {
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(wanted[i]) && fabs((double)wanted[i]) > largest) largest = fabs((double)wanted[i]);
    if (tolerance == 0 && largest >= 1 << 24) fail_msg("%s: %s has %g, too large for an exact sum", p->text, what, largest);
    for (size_t i = 0; i < count; i++) {
        if (isnan(got[i]) && isnan(wanted[i])) continue;
        if (fabs((double)got[i] - (double)wanted[i]) <= tolerance * largest) continue;
        fail_msg("%s, n %d, %s: %s[%zu] is %.9g, the reference has %.9g", p->text, n, echi_stack_kernel(b->stack, 0), what, i,
                 (double)got[i], (double)wanted[i]);
    }
}

static void compare_step(const struct bench *got, const struct bench *wanted, const struct step *step, double tolerance) {
    const struct problem *p = got->p;
    size_t rows = (size_t)got->max_n;
    compare(p, got, "output", step->n, guarded_floats(got->out), guarded_floats(wanted->out), rows * out_size(p), tolerance);
    /* Gaps between the layers' places are part of the comparison: both must have left them untouched. */
    compare(p, got, "grads", step->n, guarded_floats(got->grads), guarded_floats(wanted->grads), p->params, tolerance);
    compare(p, got, "input grad", step->n, guarded_floats(got->din), guarded_floats(wanted->din), rows * in_size(p), tolerance);
    if (step->ending != WITH_LOSS) return;
    if (fabs(got->loss - wanted->loss) > REAL_TOLERANCE * (1 + fabs(wanted->loss)))
        fail_msg("%s, n %d: loss %.9g, the reference has %.9g", p->text, step->n, got->loss, wanted->loss);
    if (got->correct != wanted->correct)
        fail_msg("%s, n %d: %d correct, the reference has %d", p->text, step->n, got->correct, wanted->correct);
}

/* In the reference's gradients: every place of a layer is set, every gap is not. */
static void check_all_set(const struct bench *b) {
    const struct problem *p = b->p;
    bool *owned = calloc(p->params, sizeof *owned);
    for (int i = 0; i < p->count; i++) {
        for (size_t k = 0; k < p->layers[i].weights; k++) owned[p->layers[i].weight_at + k] = true;
        for (size_t k = 0; k < p->layers[i].biases; k++) owned[p->layers[i].bias_at + k] = true;
        for (size_t k = 0; k < p->layers[i].running; k++) owned[p->layers[i].running_at + k] = true;
    }
    for (size_t i = 0; i < p->params; i++)
        if ((guarded_floats(b->grads)[i] == UNTOUCHED) == owned[i])
            fail_msg("%s: grads[%zu] was %s", p->text, i, owned[i] ? "not set" : "written");
    free(owned);
}

/* --- data --- */

/* An integer, 0 with probability 1 - density. */
static float small_integer(struct echi_random *r, int most, double density) {
    return echi_random_unit(r) < density ? (float)random_from(r, -most, most) : 0;
}

enum numbers { INTEGERS, REALS, INTEGERS_BACK_REALS };

/* Makes the last layer's weights small enough for outputs within +-1. Where a probability is close to 1, p - 1 has few good
 * digits left in float, and then no bound relative to the gradient could hold; test_large_outputs looks at those. */
static void tame_outputs(const struct problem *p, int n, float *params, const float *in) {
    struct bench b;
    size_t out = (size_t)n * out_size(p);
    float largest = 1, *zeros = calloc(out, sizeof *zeros);
    uint16_t *labels = calloc((size_t)n, sizeof *labels);
    const struct echi_layer *last = &p->layers[p->count - 1];
    struct step step = {n, WITH_OUTPUT_GRAD, false, params, in, zeros, labels, false, false};
    assert_true(bench_open(&b, p, &reference, n));
    bench_step(&b, &step);
    for (size_t i = 0; i < out; i++) largest = fmaxf(largest, fabsf(guarded_floats(b.out)[i]));
    for (size_t i = 0; i < last->weights; i++) params[last->weight_at + i] /= largest;
    for (size_t i = 0; i < last->biases; i++) params[last->bias_at + i] /= largest;
    bench_close(&b);
    free(zeros);
    free(labels);
}

/* Are there sums in it that lose more than plain ones do, or divisions that make what is lost before them larger? */
static bool is_coarse(const struct echi_stack *stack) {
    bool coarse = false;
    for (int u = 0; u < echi_stack_units(stack); u++) {
        const char *kernel = echi_stack_kernel(stack, u);
        coarse = coarse || strstr(kernel, "F(4x4)") || strstr(kernel, "5x5") || strstr(kernel, "batchnorm");
    }
    return coarse;
}

/* The step once more, its backward in two halves: the same bits. */
static void check_halves(struct bench *b, struct step step) {
    const size_t grads = b->p->params * sizeof(float), din = (size_t)step.n * in_size(b->p) * sizeof(float);
    float *const at_once = malloc(grads + din), *const at_once_din = at_once + b->p->params;
    memcpy(at_once, guarded_floats(b->grads), grads);
    memcpy(at_once_din, guarded_floats(b->din), din);
    step.by_halves = true;
    bench_step(b, &step);
    if (memcmp(at_once, guarded_floats(b->grads), grads) != 0 || memcmp(at_once_din, guarded_floats(b->din), din) != 0)
        fail_msg("%s, n %d, %s: other bits by halves", b->p->text, step.n, echi_stack_kernel(b->stack, 0));
    free(at_once);
}

/* Two steps on each implementation's one stack, the larger first, so that what the first leaves behind must not show. */
static void check_problem(const struct problem *p, int max_n, enum numbers numbers, enum ending ending, bool input_grad,
                          struct echi_random *r) {
    size_t rows = (size_t)max_n;
    float *params = malloc(p->params * sizeof(float)), *in = malloc(rows * in_size(p) * sizeof(float));
    float *dout = malloc(rows * out_size(p) * sizeof(float));
    uint16_t *labels = malloc(rows * sizeof *labels);
    double spread = 1 / sqrt(1 + (double)in_size(p) / 16);
    for (size_t i = 0; i < p->params; i++)
        params[i] = numbers == REALS ? (float)(echi_random_normal(r) * spread) : small_integer(r, 2, 0.3);
    struct bench wanted, got[CANDIDATES];
    bool here[CANDIDATES];
    assert_true(bench_open(&wanted, p, &reference, max_n));
    for (size_t k = 0; k < CANDIDATES; k++) here[k] = bench_open(&got[k], p, &candidates[k], max_n);
    for (int round = 0; round < 2; round++) {
        int n = round == 0 ? max_n : random_from(r, 1, max_n);
        for (size_t i = 0; i < rows * in_size(p); i++) in[i] = numbers == REALS ? (float)echi_random_normal(r) : small_integer(r, 2, 0.5);
        for (size_t i = 0; i < rows * out_size(p); i++)
            dout[i] = numbers == INTEGERS ? small_integer(r, 2, 0.3) : (float)echi_random_normal(r);
        for (size_t i = 0; i < rows; i++) labels[i] = (uint16_t)echi_random_below(r, (uint32_t)out_size(p));
        if (ending == WITH_LOSS) tame_outputs(p, n, params, in);
        struct step step = {n, ending, input_grad, params, in, dout, labels, echi_random_below(r, 3) != 0, false};
        bench_step(&wanted, &step);
        check_all_set(&wanted);
        for (size_t k = 0; k < CANDIDATES; k++) {
            if (!here[k]) continue;
            bench_step(&got[k], &step);
            const bool coarse = is_coarse(got[k].stack);
            if (coarse && numbers != REALS) continue;   /* a sum that is exactly 0 would not be, and a ReLU turn */
            compare_step(&got[k], &wanted, &step, coarse ? COARSE_TOLERANCE : numbers == INTEGERS ? 0 : REAL_TOLERANCE);
            if (input_grad && round > 0) check_halves(&got[k], step);
        }
    }
    bench_close(&wanted);
    for (size_t k = 0; k < CANDIDATES; k++)
        if (here[k]) bench_close(&got[k]);
    free(params);
    free(in);
    free(dout);
    free(labels);
}

static void begin_case(struct problem *p, struct echi_random *r, const char *test, uint32_t seed, int most_side) {
    echi_random_init(r, seed, ECHI_STREAM_TEST, 0);
    problem_begin(p, random_from(r, 1, 9), random_from(r, 1, most_side), random_from(r, 1, most_side));
    problem_say(p, " (%s seed %u)", test, seed);
}

static int random_batch(struct echi_random *r) { return echi_random_below(r, 3) == 0 ? random_from(r, 1, 70) : random_from(r, 1, 20); }

/* A window whose area is a power of two, so that an average of integers is exact. */
static void exact_avg_pool(struct problem *p, struct echi_random *r) {
    static const int sides[] = {1, 2, 4};
    struct echi_shape in = problem_shape(p);
    int kh = sides[echi_random_below(r, 3)], kw = sides[echi_random_below(r, 3)];
    if (kh > in.h) kh = 1;
    if (kw > in.w) kw = 1;
    problem_window(p, ECHI_OP_AVG_POOL, 0, kh, kw, random_from(r, 1, 3), random_from(r, 1, 3), random_from(r, 0, kh / 2),
                   random_from(r, 0, kw / 2), false);
}

static void random_layer(struct problem *p, struct echi_random *r, bool exact) {
    switch (echi_random_below(r, 8)) {
    case 0: random_window(p, r, ECHI_OP_CONV2D); break;
    case 1: problem_fc(p, random_from(r, 1, 40), echi_random_below(r, 3) != 0); break;
    case 2: random_window(p, r, ECHI_OP_MAX_POOL); break;
    case 3:
        if (exact) exact_avg_pool(p, r);
        else random_window(p, r, ECHI_OP_AVG_POOL);
        break;
    case 4: {
        const struct echi_shape in = problem_shape(p);
        if (exact && ((in.h & (in.h - 1)) != 0 || (in.w & (in.w - 1)) != 0)) problem_dropout(p, 500000);
        else problem_global_avg_pool(p);
        break;
    }
    case 5: problem_add(p, p->count); break;   /* with itself */
    case 6: problem_dropout(p, exact ? 750000 : echi_random_below(r, 1000000)); break;
    default: problem_relu(p); break;
    }
}

static void test_single_layers_exact(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 300; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "single", seed, 14);
        random_layer(&p, &r, true);
        check_problem(&p, random_batch(&r), INTEGERS, WITH_OUTPUT_GRAD, echi_random_below(&r, 4) != 0, &r);
    }
}

static void test_stacks_exact(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 200; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "stack", seed, 16);
        int layers = random_from(&r, 2, 6);
        for (int i = 0; i < layers; i++) random_layer(&p, &r, true);
        check_problem(&p, random_batch(&r), INTEGERS, WITH_OUTPUT_GRAD, echi_random_below(&r, 4) != 0, &r);
    }
}

/* Branches: outputs that several layers take, in front of and behind what a fast implementation fuses. */
static void test_branches_exact(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 240; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "branches", seed, 9);
        problem_branches(&p, &r, true);
        check_problem(&p, random_batch(&r), INTEGERS, WITH_OUTPUT_GRAD, echi_random_below(&r, 4) != 0, &r);
    }
}

static void test_branches_real(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 100; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "real branches", seed, 9);
        problem_branches(&p, &r, false);
        check_problem(&p, random_batch(&r), REALS, WITH_OUTPUT_GRAD, true, &r);
    }
}

/* What runs as one unit elsewhere, where its inner outputs are taken by others, too. */
static void test_fused_output_is_taken(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 60; seed += test_part())
        for (int taken = 1; taken <= 3; taken++) {
            struct problem p;
            struct echi_random r;
            echi_random_init(&r, seed, ECHI_STREAM_TEST, 0);
            problem_begin(&p, random_from(&r, 1, 9), random_from(&r, 1, 8), random_from(&r, 1, 8));
            problem_same_conv(&p, &r);
            problem_relu(&p);
            problem_window(&p, ECHI_OP_MAX_POOL, 0, 1, 1, 1, 1, 0, 0, false);
            problem_add(&p, taken);
            check_problem(&p, random_batch(&r), INTEGERS, WITH_OUTPUT_GRAD, true, &r);
        }
}

/* A convolution and fully connected layers that take one output, a map with margins or the input itself: no layout serves both. */
static void test_conv_and_fc_of_one_output(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 36; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "conv and fc", seed, 9);
        if (seed % 3 != 0) random_window(&p, &r, ECHI_OP_CONV2D);
        if (seed % 3 == 1) problem_relu(&p);
        const int taken = p.count, outputs = random_from(&r, 1, 20);
        problem_fc(&p, outputs, true);
        problem_from(&p, taken);
        random_window(&p, &r, ECHI_OP_CONV2D);
        problem_fc(&p, outputs, false);
        problem_add(&p, taken + 1);
        if (seed % 2) {
            const int added = p.count;
            problem_from(&p, taken);
            problem_fc(&p, outputs, true);
            problem_add(&p, added);
        }
        check_problem(&p, random_batch(&r), INTEGERS, WITH_OUTPUT_GRAD, seed % 4 != 0, &r);
    }
}

/* ----- layers that no fast kernels have (the Makefile wraps echi_cpu_op) */

static bool lacking[ECHI_OPS];
const struct echi_cpu_op *__real_echi_cpu_op(enum echi_op op);
const struct echi_cpu_op *__wrap_echi_cpu_op(enum echi_op op);
const struct echi_cpu_op *__wrap_echi_cpu_op(enum echi_op op) {
    return op < ECHI_OPS && lacking[op] ? NULL : __real_echi_cpu_op(op);
}

/* Units of the stack by the reference; each lacks a kernel, and all others have one. */
static int fallbacks(const struct echi_stack *s, const struct problem *p) {
    int count = 0, first, end;
    for (int u = 0; u < echi_stack_units(s); u++) {
        echi_stack_unit(s, u, &first, &end);
        assert_int_equal(echi_stack_fallback(s, u), lacking[p->layers[first].op]);
        assert_int_equal(strstr(echi_stack_kernel(s, u), "reference") != NULL, lacking[p->layers[first].op]);
        assert_true(!echi_stack_fallback(s, u) || strstr(echi_stack_why(s, u), "no "));
        count += echi_stack_fallback(s, u);
    }
    assert_false(echi_stack_fallback(s, -1) || echi_stack_fallback(s, echi_stack_units(s)));
    return count;
}

/* One layer without fast kernels costs itself alone: whichever it is, anywhere, with branches, dropout drawn alike, any batch. */
static void test_one_layer_by_the_reference(void **state) {
    (void)state;
    static const enum echi_op left[] = {ECHI_OP_AVG_POOL, ECHI_OP_RELU, ECHI_OP_MAX_POOL, ECHI_OP_CONV2D, ECHI_OP_FC, ECHI_OP_DROPOUT};
    enum { LEFT = sizeof left / sizeof left[0] };
    int by_reference = 0;
    candidates[1].impl = &echi_stack_cpu_plain;   /* in the place of the fixed kernels, which refuse such layers */
    for (uint32_t seed = 0; seed < 60; seed += test_part_by_kinds()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "by the reference", seed, 9);
        const enum echi_op op = left[seed % LEFT];
        lacking[op] = true;
        if (seed % 4 == 3) {
            problem_branches(&p, &r, true);
        } else {
            const int layers = random_from(&r, 1, 5);
            for (int i = 0; i < layers; i++) random_layer(&p, &r, true);
        }
        struct bench b;
        assert_true(bench_open(&b, &p, &(struct problem_candidate){&echi_stack_cpu, echi_cpu_level()}, 4));
        by_reference += fallbacks(b.stack, &p);
        bench_close(&b);
        check_problem(&p, random_batch(&r), INTEGERS, WITH_OUTPUT_GRAD, seed % 3 != 0, &r);
        lacking[op] = false;
    }
    candidates[1].impl = &echi_stack_cpu_fixed;
    if (by_reference < 16 / (int)test_part_by_kinds()) fail_msg("%d layers fell back: not the cases that this test is for", by_reference);
}

static void assert_refused(const struct echi_stack_impl *impl, const struct problem *p, const char *word) {
    struct ech_error err;
    struct echi_stack *s = NULL;
    assert_int_equal(echi_stack_create_with(problem_device, impl, p->layers, p->count, 4, &s, &err), ECH_E_UNSUPPORTED);
    if (strstr(err.text, word) == NULL || strstr(err.text, p->layers[0].name) == NULL) fail_msg("'%s' does not say '%s'", err.text, word);
    assert_string_equal(err.layer, p->layers[0].name);
    assert_null(s);
}

/* What can be computed by nobody is refused by name: never accepted and left out. */
static void test_layers_that_nobody_computes(void **state) {
    (void)state;
    struct problem p;
    struct ech_error err;
    void *inner;
    struct echi_stack_unit unit;
    int units;
    size_t bytes;
    problem_begin(&p, 1, 3, 3);
    problem_next(&p, ECHI_OP_TANH);
    lacking[ECHI_OP_TANH] = true;
    assert_refused(&echi_stack_cpu_fixed, &p, "--deterministic");
    lacking[ECHI_OP_TANH] = false;
    problem_begin(&p, 1, 3, 3);
    problem_add(&p, 0);
    lacking[ECHI_OP_ADD] = true;
    assert_refused(&echi_stack_cpu, &p, "cannot be left to the reference");
    lacking[ECHI_OP_ADD] = false;
    /* A kind that is new to the header and has come no further. */
    problem_begin(&p, 1, 3, 3);
    problem_relu(&p);
    p.layers[0].op = ECHI_OPS;
    for (size_t k = 0; k <= CANDIDATES; k++) {
        const struct problem_candidate *c = k < CANDIDATES ? &candidates[k] : &reference;
        struct echi_device *device = c->impl->far ? far_device[0] : problem_device;
        if (device == NULL) continue;
        assert_int_equal(c->impl->create(device, p.layers, 1, 4, &inner, &unit, &units, &bytes, &err), ECH_E_UNSUPPORTED);
        assert_string_equal(err.layer, "relu1");
    }
}

/* The runs that a fast implementation fuses, in every shape. */
static void test_conv_relu_pool_exact(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 200; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "fused", seed, 18);
        random_window(&p, &r, ECHI_OP_CONV2D);
        if (echi_random_below(&r, 4) != 0) problem_relu(&p);
        if (echi_random_below(&r, 4) != 0) random_window(&p, &r, ECHI_OP_MAX_POOL);
        if (echi_random_below(&r, 2) != 0) problem_fc(&p, random_from(&r, 1, 33), true);
        if (echi_random_below(&r, 2) != 0) problem_relu(&p);
        check_problem(&p, random_batch(&r), INTEGERS, WITH_OUTPUT_GRAD, echi_random_below(&r, 2) != 0, &r);
    }
}

static void test_real_numbers(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 150; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "real", seed, 12);
        int layers = random_from(&r, 1, 3);
        for (int i = 0; i < layers; i++) {
            uint32_t kind = echi_random_below(&r, 3);
            if (kind == 0) problem_fc(&p, random_from(&r, 1, 40), true);
            else random_window(&p, &r, kind == 1 ? ECHI_OP_CONV2D : ECHI_OP_AVG_POOL);
        }
        bool loss = echi_random_below(&r, 2) != 0;
        if (loss) problem_fc(&p, random_from(&r, 1, 20), true);
        check_problem(&p, random_batch(&r), REALS, loss ? WITH_LOSS : WITH_OUTPUT_GRAD, true, &r);
    }
}

static void test_real_gradients_through_kinks(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 150; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "kinks", seed, 12);
        int layers = random_from(&r, 2, 5);
        for (int i = 0; i < layers; i++) random_layer(&p, &r, true);
        check_problem(&p, random_batch(&r), INTEGERS_BACK_REALS, WITH_OUTPUT_GRAD, true, &r);
    }
}

/* With maps and batches of any size, in front of and behind what leaves margins around rows; what one channel has of few samples is divided
 * by little, so rounding in front of it grows. */
static void test_batch_norm(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 150; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "norm", seed, 9);
        if (echi_random_below(&r, 2)) random_window(&p, &r, ECHI_OP_CONV2D);
        const int from = p.count;
        problem_batch_norm(&p);
        if (echi_random_below(&r, 2)) problem_relu(&p);
        if (echi_random_below(&r, 2)) problem_same_conv(&p, &r);
        if (echi_random_below(&r, 2)) problem_batch_norm(&p);
        if (echi_random_below(&r, 2)) problem_add(&p, from);
        if (echi_random_below(&r, 2)) problem_relu(&p);
        if (echi_random_below(&r, 2)) problem_fc(&p, random_from(&r, 1, 20), true);
        check_problem(&p, random_from(&r, 3, 70), REALS, WITH_OUTPUT_GRAD, echi_random_below(&r, 2), &r);
    }
}

/* From the smallest numbers to those whose tanh is 1, on both sides of where the formula changes. */
static void test_tanh(void **state) {
    (void)state;
    struct problem p;
    problem_begin(&p, 1, 1, 997);
    problem_next(&p, ECHI_OP_TANH);
    float in[997], params[64] = {0}, dout[997];
    for (int i = 0; i < 997; i++) in[i] = (float)(((i & 1) ? -1 : 1) * exp(-20 + i * 0.025)), dout[i] = 1;
    for (size_t k = 0; k < CANDIDATES; k++) {
        struct bench b;
        if (!bench_open(&b, &p, &candidates[k], 1)) continue;
        struct step step = {1, WITH_OUTPUT_GRAD, true, params, in, dout, (const uint16_t[]){0}, false, false};
        bench_step(&b, &step);
        for (int i = 0; i < 997; i++) {
            const double wanted = tanh((double)in[i]), got = (double)guarded_floats(b.out)[i];
            if (!(fabs(got - wanted) <= 2e-7 * fabs(wanted)))
                fail_msg("%s: tanh(%.9g) is %.9g, should be %.9g", echi_stack_kernel(b.stack, 0), (double)in[i], got, wanted);
            if (!(fabs((double)guarded_floats(b.din)[i] - (1 - wanted * wanted)) <= 4e-7))
                fail_msg("the derivative at %.9g", (double)in[i]);
        }
        bench_close(&b);
    }
}

static void test_lenet5(void **state) {
    (void)state;
    static const int batches[] = {1, 16, 33, 70};
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, i, ECHI_STREAM_TEST, 1);
        problem_lenet5(&p);
        check_problem(&p, batches[i], INTEGERS, WITH_OUTPUT_GRAD, i % 2 == 0, &r);
    }
}

/* What a sample gives, forward and backward, has the same bits wherever it stands and however many stand beside it: in full vectors, in
 * vectors with empty lanes, and among the last few, which other kernels compute. */
static void test_places_in_a_batch(void **state) {
    (void)state;
    enum { MOST = 50, ROUNDS = 12 };
    for (uint32_t seed = test_turn(); seed < 24; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "places", seed, 14);
        if (seed % 4 == 1) problem_begin(&p, 16, 7, 7), problem_window(&p, ECHI_OP_CONV2D, 17, 3, 3, 1, 1, 1, 1, true);   /* by points */
        if (seed % 4 == 0) problem_lenet5(&p);
        else for (int layers = random_from(&r, 1, 4); layers > 0; layers--) random_layer(&p, &r, false);
        const size_t in = in_size(&p), out = out_size(&p);
        float *params = malloc(p.params * sizeof *params);
        float *rows = malloc(MOST * in * sizeof *rows), *dout = malloc(MOST * out * sizeof *dout);
        float *x = malloc(MOST * in * sizeof *x), *dy = malloc(MOST * out * sizeof *dy);
        const uint16_t labels[MOST] = {0};
        for (size_t i = 0; i < p.params; i++) params[i] = (float)echi_random_normal(&r) * 0.2f;
        for (size_t i = 0; i < MOST * in; i++) rows[i] = (float)echi_random_normal(&r);
        for (size_t i = 0; i < MOST * out; i++) dout[i] = (float)echi_random_normal(&r);
        for (size_t k = 0; k < CANDIDATES; k++) {
            struct bench all, some;
            if (candidates[k].impl->far || !bench_open(&all, &p, &candidates[k], MOST)) continue;
            bench_step(&all, &(struct step){MOST - 2, WITH_OUTPUT_GRAD, true, params, rows, dout, labels, false, false});
            assert_true(bench_open(&some, &p, &candidates[k], MOST));
            for (int round = 0; round < ROUNDS; round++) {
                const int n = random_from(&r, 1, MOST - 2), from = random_from(&r, 0, MOST - 2 - n);
                memcpy(x, rows + (size_t)from * in, (size_t)n * in * sizeof *x);
                memcpy(dy, dout + (size_t)from * out, (size_t)n * out * sizeof *dy);
                bench_step(&some, &(struct step){n, WITH_OUTPUT_GRAD, true, params, x, dy, labels, false, false});
                if (memcmp(guarded_floats(some.out), guarded_floats(all.out) + (size_t)from * out, (size_t)n * out * sizeof(float)) != 0)
                    fail_msg("%s, %s: outputs of samples %d to %d are others alone", p.text, candidates[k].impl->name, from, from + n - 1);
                if (memcmp(guarded_floats(some.din), guarded_floats(all.din) + (size_t)from * in, (size_t)n * in * sizeof(float)) != 0)
                    fail_msg("%s, %s: gradients of samples %d to %d are others alone", p.text, candidates[k].impl->name, from,
                             from + n - 1);
            }
            bench_close(&all);
            bench_close(&some);
        }
        free(params), free(rows), free(dout), free(x), free(dy);
    }
}

/* A NaN in one sample shows in that sample's output as in the reference, and nowhere else. */
/* 3 x 3 convolutions with channels enough for Winograd's transforms, in tiles that come out even or not. F(2x2) has halves and quarters of
 * the weights, so integers stay exact; F(4x4) has sixths, and loses some four times as much as a plain sum
 * (Lavin and Gray, section 5.2). */
static void test_many_channels(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 80; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 5);
        problem_begin(&p, random_from(&r, 16, 40), random_from(&r, 4, 11), random_from(&r, 4, 11));
        const int pad_h = random_from(&r, 0, 2), pad_w = random_from(&r, 0, 2);
        if (seed % 6 == 2) problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 50), 3, 3, 2, 2, 1, 1, echi_random_below(&r, 2));
        else if (seed % 3 == 2) random_window(&p, &r, ECHI_OP_CONV2D);   /* any: its weights' gradient is of many channels too */
        else problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 50), 3, 3, 1, 1, pad_h, pad_w, echi_random_below(&r, 2));
        if (echi_random_below(&r, 2)) problem_relu(&p);
        if (seed % 3 != 2 && echi_random_below(&r, 2)) problem_window(&p, ECHI_OP_MAX_POOL, 0, 2, 2, 2, 2, 0, 0, false);
        if (echi_random_below(&r, 2)) problem_window(&p, ECHI_OP_CONV2D, 20, 3, 3, 1, 1, 1, 1, true);
        check_problem(&p, random_from(&r, 1, 40), seed % 2 ? REALS : INTEGERS, WITH_OUTPUT_GRAD, true, &r);
    }
}

/* 5 x 5 convolutions by F(2x2, 5x5): any padding, maps in tiles that come out even or not, a batch's tiles at once or a few at a time. A
 * second layer sees that margins are as they should be. echi_stack_cpu_close sums them directly, and stays exact. */
static void test_five_by_five(void **state) {
    (void)state;
    int few = 0, late = 0;
    for (uint32_t seed = 0; seed < 30; seed += test_part_by_kinds()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 9);
        const bool small = seed % 3 == 0;
        const int pad_h = random_from(&r, small, 4 - 2 * small), pad_w = random_from(&r, small, 4 - 2 * small), most = small ? 5 : 13;
        problem_begin(&p, random_from(&r, 16, 40), random_from(&r, 5 - 2 * small, most), random_from(&r, 5 - 2 * small, most));
        problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 60), 5, 5, 1, 1, pad_h, pad_w, echi_random_below(&r, 2));
        if (echi_random_below(&r, 2)) problem_relu(&p);
        if (echi_random_below(&r, 2)) problem_window(&p, ECHI_OP_CONV2D, 20, 5, 5, 1, 1, 2, 2, true);
        const int n = random_from(&r, 1, small ? 16 : 30);
        struct bench b;
        assert_true(bench_open(&b, &p, &(struct problem_candidate){&echi_stack_cpu, echi_cpu_level()}, n));
        const char *name = echi_stack_kernel(b.stack, 0);
        late += strstr(name, "5x5) late") != NULL;
        few += strstr(name, "5x5)") != NULL && strstr(name, "late") == NULL;
        bench_close(&b);
        if (seed % test_part() == test_turn()) check_problem(&p, n, seed % 4 ? REALS : INTEGERS, WITH_OUTPUT_GRAD, true, &r);
    }
    const int by = (int)test_part_by_kinds();
    if (few < 10 / by || late < 2 / by) fail_msg("%d and %d: not the cases that this test is for", few, late);
}

/* Channels whose weights' points no second-level cache holds, on maps with tiles for one turn of cpu_stages.c, or for two; of each kind. */
static void test_stages(void **state) {
    (void)state;
    for (uint32_t seed = test_few() ? 2 : test_turn(); seed < 4; seed += test_part()) {   /* of a part one with few samples */
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 10);
        const bool long_map = seed % 4 == 1 || test_few();   /* then of one sample, and still more than cpu_late.c takes */
        const int kernel = seed % 4 == 2 ? 5 : 3, stride = seed % 4 == 3 ? 2 : 1, pad = kernel / 2;
        const int least = 7 + 2 * stride;
        problem_begin(&p, random_from(&r, 144, 150), random_from(&r, least, 11),
                      long_map ? random_from(&r, 21, 25) : random_from(&r, least, 11));
        problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 150, 160), kernel, kernel, stride, stride, pad, pad, echi_random_below(&r, 2));
        if (echi_random_below(&r, 2)) problem_relu(&p);
        const bool tiles = long_map || kernel == 5;   /* more than cpu_late.c takes, even of one group */
        const int n = !tiles ? random_from(&r, 29, 32) : test_few() ? 1 : random_from(&r, 1, 6);   /* two vectors of 16, or four of 8 */
        struct bench b;
        assert_true(bench_open(&b, &p, &(struct problem_candidate){&echi_stack_cpu, echi_cpu_level()}, n));
        if (!strstr(echi_stack_kernel(b.stack, 0), "by stages")) fail_msg("%s, n %d: %s", p.text, n, echi_stack_kernel(b.stack, 0));
        bench_close(&b);
        check_problem(&p, n, seed % 4 == 3 ? INTEGERS : REALS, WITH_OUTPUT_GRAD, true, &r);
    }
}

/* Where vectors of 16 would leave a third of their lanes empty, and no rest takes what is beyond full ones, they are of 8. */
static void test_half_vectors(void **state) {
    (void)state;
    struct problem p;
    problem_begin(&p, 32, 8, 8);
    problem_window(&p, ECHI_OP_CONV2D, 32, 3, 3, 1, 1, 1, 1, true);
    for (int n = 1; n <= 104 && echi_cpu_level() == ECHI_CPU_AVX512; n++) {
        struct bench b;
        const bool half = n <= 8 || (n > 16 && n <= 24) || (n > 32 && n <= 40) || (n > 48 && n <= 56) || (n > 64 && n <= 72) ||
                          (n > 80 && n <= 88);
        assert_true(bench_open(&b, &p, &(struct problem_candidate){&echi_stack_cpu, echi_cpu_level()}, n));
        if (half != (strstr(echi_stack_kernel(b.stack, 0), "avx512x8") != NULL)) fail_msg("n %d: %s", n, echi_stack_kernel(b.stack, 0));
        bench_close(&b);
    }
}

/* A device keeps to its level: in stacks of every kind but the one that is the same everywhere, and over flat ranges. A few samples, of
 * which vectors of 16 would stay half empty, are computed in vectors of 8. */
static void test_levels(void **state) {
    (void)state;
    struct problem p;
    problem_lenet5(&p);
    for (enum echi_cpu_level level = ECHI_CPU_BASE; level <= echi_cpu_level(); level++) {
        struct echi_device *device = devices.at[level];
        const char *name = echi_cpu_level_name(level);
        assert_int_equal(echi_device_level(device), level);
        assert_string_equal(echi_kernels(device)->name, name);
        for (enum echi_kernels kernels = ECHI_KERNELS_FAST; kernels <= ECHI_KERNELS_PLAIN; kernels++) {
            struct echi_stack *s = NULL;
            for (int n = 4; n <= 12; n++) {
                const char *const named = level == ECHI_CPU_AVX512 && n <= 8 ? "avx512x8" : name;
                assert_int_equal(echi_stack_create(device, kernels, p.layers, p.count, n, &s, NULL), ECH_OK);
                for (int u = 0; u < echi_stack_units(s); u++) assert_non_null(strstr(echi_stack_kernel(s, u), named));
                echi_stack_destroy(s);
            }
        }
        struct echi_stack *s = NULL;
        const ech_status status = echi_stack_create(device, ECHI_KERNELS_BF16_FAST, p.layers, p.count, 4, &s, NULL);
        assert_int_equal(status, level == ECHI_CPU_AVX512 && echi_cpu_bf16() != ECHI_CPU_BF16_NONE ? ECH_OK : ECH_E_UNSUPPORTED);
        echi_stack_destroy(s);
    }
    assert_int_equal(echi_device_level(problem_device), echi_cpu_level());
}

/* Small maps with channels for several blocks of cpu_late.c: of 2 x 2, taken whole; with stride 2; and others. Some have more inputs'
 * points than stay in a cache, and their outputs' sums come in blocks of blocks. A second layer sees that margins and zeros are as
 * they should be. */
static void test_late_maps(void **state) {
    (void)state;
    int whole = 0, strided = 0, other = 0;
    for (uint32_t seed = 0; seed < 60; seed += test_part_by_kinds()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 7);
        const int kind = (int)seed % 3, pad = kind < 2 ? 1 : random_from(&r, 0, 2), stride = kind == 1 ? 2 : 1;
        const int height = kind == 0 ? 2 : random_from(&r, 3, 9 - 3 * (kind == 2));
        const int width = kind == 0 ? 2 : random_from(&r, 3, 9 - 3 * (kind == 2));
        const bool many = seed % 15 >= 12;
        problem_begin(&p, many ? random_from(&r, 170, 200) : random_from(&r, 16, 100), height, width);
        problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, many ? 200 : 110), 3, 3, stride, stride, pad, pad, echi_random_below(&r, 2));
        if (echi_random_below(&r, 2)) problem_relu(&p);
        if (!many && echi_random_below(&r, 2)) problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 1, 40), 3, 3, 1, 1, 1, 1, true);
        const int n = many ? random_from(&r, 50, 70) : random_from(&r, 1, 40);
        struct bench b;
        assert_true(bench_open(&b, &p, &(struct problem_candidate){&echi_stack_cpu_close, echi_cpu_level()}, n));
        const char *name = echi_stack_kernel(b.stack, 0);
        whole += strstr(name, "whole 2x2 late") != NULL;
        strided += strstr(name, "by 2 late") != NULL;
        other += strstr(name, "F(2x2) late") != NULL;
        bench_close(&b);
        if (seed % test_part() == test_turn()) check_problem(&p, n, seed % 5 < 2 ? REALS : INTEGERS, WITH_OUTPUT_GRAD, true, &r);
    }
    const int by = (int)test_part_by_kinds();
    if (whole < 10 / by || strided < 5 / by || other < 5 / by)
        fail_msg("%d, %d, %d: not the cases that this test is for", whole, strided, other);
}

/* Residual blocks of such convolutions: outputs that two layers take, the margins of both, and shares of gradients that come by points. */
static void test_many_channels_in_branches(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 24; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 6);
        const int channels = random_from(&r, 16, 33);
        problem_begin(&p, channels, random_from(&r, 3, 9), random_from(&r, 3, 9));
        problem_window(&p, ECHI_OP_CONV2D, channels, 3, 3, 1, 1, 1, 1, true);
        if (echi_random_below(&r, 2)) problem_relu(&p);
        const int begins = p.count;
        problem_window(&p, ECHI_OP_CONV2D, channels, 3, 3, 1, 1, 1, 1, false);
        problem_relu(&p);
        problem_window(&p, ECHI_OP_CONV2D, channels, 3, 3, 1, 1, 1, 1, true);
        problem_add(&p, echi_random_below(&r, 2) ? begins : 0);
        if (echi_random_below(&r, 2)) problem_relu(&p);
        problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 20), 3, 3, 2, 2, 1, 1, true);
        check_problem(&p, random_from(&r, 1, 33), seed % 2 ? REALS : INTEGERS, WITH_OUTPUT_GRAD, true, &r);
    }
}

/* Convolutions of numbers rounded to bf16, by tiles and by pairs. Small integers are bf16 already, so their sums are exact. Real ones are
 * those of the reference from numbers rounded here, to the nearest, ties to even: but the bias, which is added as it is. Some maps are
 * wider than a band of the weights' gradient. */
static void round_to_bf16(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits += 0x7fff + (bits >> 16 & 1);
        bits &= 0xffff0000;
        memcpy(&x[i], &bits, sizeof bits);
    }
}
static void test_bf16_convolutions(void **state) {
    (void)state;
    static const struct problem_candidate by_pairs_tiles_best[] = {{&echi_stack_cpu_bf16_dot, ECHI_CPU_AVX512},
                                                                   {&echi_stack_cpu_bf16_amx, ECHI_CPU_AVX512},
                                                                   {&echi_stack_cpu_bf16_plain, ECHI_CPU_AVX512}};
    const enum echi_cpu_bf16 most = echi_cpu_bf16();
    const bool possible[] = {most >= ECHI_CPU_BF16_DOT, most == ECHI_CPU_BF16_AMX, most >= ECHI_CPU_BF16_DOT};
    int by[3] = {0};
    for (uint32_t seed = 0; seed < 160; seed += test_part_by_kinds()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 8);
        const bool real = seed % 4 == 3, wide = seed % 16 == 5;
        problem_begin(&p, random_from(&r, 16, 70), random_from(&r, 1, 9), wide ? random_from(&r, 100, 120) : random_from(&r, 1, 9));
        const struct echi_shape in = problem_shape(&p);
        int kh, kw, sh, sw, ph, pw;
        random_side(&r, in.h, 5, false, &kh, &sh, &ph);
        random_side(&r, in.w, 5, false, &kw, &sw, &pw);
        problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 70), kh, kw, sh, sw, ph, pw, echi_random_below(&r, 2));
        if (!real && echi_random_below(&r, 2)) problem_relu(&p);
        if (!real && echi_random_below(&r, 3) == 0) problem_fc(&p, 5, false);   /* another layout of outputs */
        const int n = wide ? random_from(&r, 1, 20) : random_from(&r, 1, 70);
        const size_t rows = (size_t)n, ins = rows * in_size(&p), outs = rows * out_size(&p);
        float *params = malloc(p.params * sizeof *params), *x = malloc(ins * sizeof *x), *dout = malloc(outs * sizeof *dout);
        for (size_t i = 0; i < p.params; i++) params[i] = real ? (float)echi_random_normal(&r) : small_integer(&r, 2, 0.2);
        for (size_t i = 0; i < ins; i++) x[i] = real ? (float)echi_random_normal(&r) : small_integer(&r, 2, 0.3);
        for (size_t i = 0; i < outs; i++) dout[i] = real ? (float)echi_random_normal(&r) : small_integer(&r, 2, 0.2);
        uint16_t *labels = calloc(rows, sizeof *labels);
        struct step step = {n, WITH_OUTPUT_GRAD, echi_random_below(&r, 4) != 0, params, x, dout, labels, false, false};
        struct bench got[3] = {{0}}, wanted;
        bool here[3];
        for (size_t k = 0; k < 3; k++) {
            here[k] = possible[k] && bench_open(&got[k], &p, &by_pairs_tiles_best[k], n) &&
                      strstr(echi_stack_kernel(got[k].stack, 0), " bf16");
            by[k] += here[k];
            if (here[k]) bench_step(&got[k], &step);
        }
        if (real) {
            round_to_bf16(params + p.layers[0].weight_at, p.layers[0].weights);
            round_to_bf16(x, ins);
            round_to_bf16(dout, outs);
        }
        assert_true(bench_open(&wanted, &p, &reference, n));
        bench_step(&wanted, &step);
        /* The gradient of the bias is of dy as it is. */
        for (size_t i = 0; i < p.layers[0].biases && real; i++) guarded_floats(wanted.grads)[p.layers[0].bias_at + i] = 0;
        for (size_t k = 0; k < 3; k++) {
            if (!here[k]) continue;
            for (size_t i = 0; i < p.layers[0].biases && real; i++) guarded_floats(got[k].grads)[p.layers[0].bias_at + i] = 0;
            compare_step(&got[k], &wanted, &step, real ? REAL_TOLERANCE : 0);
        }
        bench_close(&wanted);
        for (size_t k = 0; k < 3; k++)
            if (got[k].stack) bench_close(&got[k]);
        free(params);
        free(x);
        free(dout);
        free(labels);
    }
    const int least = 20 / (int)test_part_by_kinds();
    if ((possible[0] && by[0] < least) || (possible[1] && by[1] < least) || (possible[2] && by[2] < least))
        fail_msg("by pairs %d, tiles %d, what is best %d: not the cases that this test is for", by[0], by[1], by[2]);
}

static void test_nan_is_seen(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 100; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        begin_case(&p, &r, "nan", seed, 10);
        if (seed % 2 == 0) {
            problem_window(&p, ECHI_OP_CONV2D, 5, 2, 2, 1, 1, 1, 1, true);
            problem_relu(&p);
            problem_window(&p, ECHI_OP_MAX_POOL, 0, 2, 2, 2, 2, 0, 0, false);
        }
        int layers = random_from(&r, 0, 4);
        for (int i = 0; i < layers; i++) random_layer(&p, &r, true);
        problem_fc(&p, 10, true);
        int n = random_batch(&r), bad = random_from(&r, 0, n - 1);
        size_t rows = (size_t)n, at = (size_t)bad * in_size(&p) + echi_random_below(&r, (uint32_t)in_size(&p));
        float *params = malloc(p.params * sizeof(float)), *in = malloc(rows * in_size(&p) * sizeof(float));
        float *dout = calloc(rows * out_size(&p), sizeof(float));
        uint16_t *labels = calloc(rows, sizeof *labels);
        for (size_t i = 0; i < p.params; i++) params[i] = small_integer(&r, 2, 0.5);
        for (size_t i = 0; i < rows * in_size(&p); i++) in[i] = small_integer(&r, 2, 0.5);
        in[at] = NAN;
        struct step step = {n, WITH_LOSS, true, params, in, dout, labels, false, false};
        struct bench wanted, got;
        for (size_t k = 0; k < CANDIDATES; k++) {
            if (!bench_open(&got, &p, &candidates[k], n)) continue;
            assert_true(bench_open(&wanted, &p, &reference, n));
            bench_step(&wanted, &step);
            bench_step(&got, &step);
            compare(&p, &got, "output with a NaN", n, guarded_floats(got.out), guarded_floats(wanted.out), rows * out_size(&p), 0);
            if (isnan(wanted.loss) && !isnan(got.loss)) fail_msg("%s: the loss hides a NaN", p.text);
            bench_close(&wanted);
            bench_close(&got);
        }
        free(params);
        free(in);
        free(dout);
        free(labels);
    }
}

/* More classes than a byte has numbers. */
static void test_many_classes(void **state) {
    (void)state;
    struct problem p;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 92);
    problem_begin(&p, 7, 1, 1);
    problem_fc(&p, 700, true);
    check_problem(&p, 37, REALS, WITH_LOSS, true, &r);
}

/* Outputs of any size: the loss stays finite and is the closed form. */
static void test_large_outputs(void **state) {
    (void)state;
    struct problem p;
    problem_begin(&p, 1, 1, 1);
    problem_fc(&p, 10, false);
    static const float scales[] = {1e-3f, 1, 80, 1e4f, -1e4f, 1e30f};
    for (size_t k = 0; k <= CANDIDATES; k++)
        for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
            float params[64] = {0}, in[3] = {scales[i], scales[i], 1}, dout[30] = {0};
            const uint16_t labels[3] = {0, 9, 4};
            for (int o = 0; o < 10; o++) params[p.layers[0].weight_at + (size_t)o] = (float)o - 4.5f;
            struct bench b;
            if (!bench_open(&b, &p, k < CANDIDATES ? &candidates[k] : &reference, 3)) continue;
            struct step step = {3, WITH_LOSS, true, params, in, dout, labels, false, false};
            bench_step(&b, &step);
            double wanted = 0;
            for (int s = 0; s < 3; s++) {
                double sum = 0, x = (double)in[s], m = x > 0 ? 4.5 * x : -4.5 * x;
                for (int o = 0; o < 10; o++) sum += exp((o - 4.5) * x - m);
                wanted += log(sum) - ((labels[s] - 4.5) * x - m);
            }
            if (!(fabs(b.loss - wanted) <= 1e-6 * (1 + fabs(wanted))))
                fail_msg("%s, scale %g: loss %.9g, should be %.9g", echi_stack_kernel(b.stack, 0), (double)scales[i], b.loss, wanted);
            for (size_t g = 0; g < 10; g++) assert_true(isfinite(guarded_floats(b.grads)[p.layers[0].weight_at + g]));
            bench_close(&b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_vectors), cmocka_unit_test(test_levels),
        cmocka_unit_test(test_many_classes),
        cmocka_unit_test(test_single_layers_exact),
        cmocka_unit_test(test_stacks_exact),
        cmocka_unit_test(test_branches_exact),
        cmocka_unit_test(test_branches_real),
        cmocka_unit_test(test_fused_output_is_taken),
        cmocka_unit_test(test_conv_and_fc_of_one_output),
        cmocka_unit_test(test_one_layer_by_the_reference),
        cmocka_unit_test(test_layers_that_nobody_computes),
        cmocka_unit_test(test_conv_relu_pool_exact),
        cmocka_unit_test(test_real_numbers),
        cmocka_unit_test(test_real_gradients_through_kinks),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_lenet5),
        cmocka_unit_test(test_places_in_a_batch),
        cmocka_unit_test(test_many_channels),
        cmocka_unit_test(test_late_maps),
        cmocka_unit_test(test_five_by_five),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_many_channels_in_branches),
        cmocka_unit_test(test_bf16_convolutions),
        cmocka_unit_test(test_nan_is_seen),
        cmocka_unit_test(test_large_outputs),
    };
    return cmocka_run_group_tests_name("parity", tests, open_devices, close_devices);
}
