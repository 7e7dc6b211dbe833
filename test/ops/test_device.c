/* SPDX-License-Identifier: Apache-2.0
 * A device that computes wrongly, or does not take the kernels, or breaks down in mid-step, is found out and named; memory that is not
 * there is refused before the first step. The device is OpenCL's, and then CUDA's, with one of its entries changed.
 * make check only: 34 s of processor time; test_parity has the kernels of each device. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda/echi_cuda_api.h"
#include "echi_backends.h"
#include "echi_error.h"
#include "echi_known_answer.h"
#include "fake/use.h"
#include "part.h"
#include "gpu/echi_gpu.h"
#include "gpu/echi_gpu_products.h"
#include "problem.h"

static const struct echi_backend *base;  /* OpenCL, or CUDA */
static struct echi_backend changed;      /* the same, but for what a test changes */
static const char *swapped[2];           /* kernels that stand in for each other */
static struct fake_cuda *fake;           /* NULL: CUDA is the machine's */

/* The clock of this program, by which a GPU can be slow without a wait: how busy the machine is does not decide which device is faster. */
int64_t __real_echi_now(void), __wrap_echi_now(void);
void __real_echi_sleep_until(int64_t), __wrap_echi_sleep_until(int64_t);
static int64_t late(void) { return fake != NULL ? fake->late : 0; }
int64_t __wrap_echi_now(void) { return __real_echi_now() + late(); }
void __wrap_echi_sleep_until(int64_t deadline) { __real_echi_sleep_until(deadline - late()); }

static ech_status other_kernel(void *impl, void *program, const char *name, void **out_kernel, struct ech_error *err) {
    for (int i = 0; i < 2; i++)
        if (strcmp(name, swapped[i]) == 0) return base->kernel_create(impl, program, swapped[1 - i], out_kernel, err);
    return base->kernel_create(impl, program, name, out_kernel, err);
}

static ech_status broken_text(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err) {
    static const struct echi_source broken = {.text = "kernel void add(global float *x) { x[0] = nothing; }"};
    (void)source;
    return base->program_create(impl, &broken, out_program, err);
}

static ech_status lost(void *impl, void *queue, void *kernel, const struct echi_argument *args, void *const *memory, int count,
                       const struct echi_launch *how, struct ech_error *err) {
    (void)impl, (void)queue, (void)kernel, (void)args, (void)memory, (void)count, (void)how;
    return echi_fail(err, ECH_E_DEVICE_LOST, "queue.launch", "the device is gone");
}

static ech_status small_info(int index, struct echi_device_info *out, struct ech_error *err) {
    ech_status status = base->device_info(index, out, err);
    out->memory = (size_t)1 << 20;
    return status;
}

static ech_status check(struct ech_error *err) {
    struct echi_device *device = NULL;
    assert_int_equal(echi_device_open_on(&changed, 0, 1, &device, err), ECH_OK);
    const ech_status status = echi_known_answers(device, NULL, NULL, err);
    echi_device_close(device);
    return status;
}

static int begin(void **state) {
    (void)state;
    changed = *base;
    return 0;
}

#define NEEDS_DEVICE \
    (void)state;     \
    if (base->device_count() == 0) skip()

static void test_right_answers(void **state) {
    NEEDS_DEVICE;
    struct ech_error err = {.text = ""};
    if (check(&err) != ECH_OK) fail_msg("%s", err.text);
}

/* One image of the kernels at a time, and then none: what a compiler at hand makes of the text. Whatever the device takes is right. */
static int image_alone;
static ech_status one_image(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err) {
    struct echi_image one[2] = {{0}};
    struct echi_source alone = {.text = source->text, .images = one};
    if (image_alone >= 0) one[0] = source->images[image_alone], alone.text = "no kernel";
    return base->program_create(impl, &alone, out_program, err);
}

static void test_each_image(void **state) {
    NEEDS_DEVICE;
    if (base != &echi_backend_cuda) skip();
    int images = 0, taken = 0;
    while (echi_gpu_source.images != NULL && echi_gpu_source.images[images].backend != NULL) images++;
    for (image_alone = -1; image_alone < images; image_alone++) {
        struct ech_error err = {.text = ""};
        const char *name = image_alone < 0 ? "NVRTC" : echi_gpu_source.images[image_alone].what;
        changed.program_create = one_image;
        const ech_status status = check(&err);
        if (status != ECH_OK && (status != ECH_E_UNSUPPORTED || err.layer[0] != '\0')) fail_msg("%s: %s", name, err.text);
        print_message("%s: %s\n", name, status == ECH_OK ? "right" : err.text);
        taken += status == ECH_OK;
    }
    assert_true(taken > 0);
}

/* Kernels with the same parameters, one in the other's place: each is found, and named. */
static void test_wrong_answers(void **state) {
    NEEDS_DEVICE;
    static const char *const pairs[][3] = {{"avg_pool_forward", "avg_pool_backward", "avg_pool"},
                                           {"relu_backward", "tanh_backward", "relu"},
                                           {"add", "multiply", "dropout"}};   /* tried before add, and as wrong */
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct ech_error err;
        swapped[0] = pairs[i][0], swapped[1] = pairs[i][1];
        changed.kernel_create = other_kernel;
        assert_int_equal(check(&err), ECH_E_UNSUPPORTED);
        assert_string_equal(err.layer, pairs[i][2]);
    }
}

static void test_kernels_that_do_not_compile(void **state) {
    NEEDS_DEVICE;
    struct ech_error err;
    changed.program_create = broken_text;
    assert_int_equal(check(&err), ECH_E_UNSUPPORTED);
    if (strstr(err.text, "there is no libnvrtc")) skip();   /* a card whose machine has no compiler */
    if (!strstr(err.text, base->name) || !strstr(err.text, "refused") || !strstr(err.text, "error"))
        fail_msg("'%s' does not have the compiler's words", err.text);
}

/* In mid-step: the call that finds out says so, and so do all that come after it. */
static void test_a_device_that_is_lost(void **state) {
    NEEDS_DEVICE;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_stack *stack = NULL;
    struct echi_buffer *params = NULL;
    struct problem p;
    float in[12] = {0}, out[2 * 12];
    problem_begin(&p, 3, 2, 2);
    problem_relu(&p);
    problem_relu(&p);
    assert_int_equal(echi_device_open_on(&changed, 0, 1, &device, &err), ECH_OK);
    assert_int_equal(echi_stack_create_with(device, &echi_stack_gpu, p.layers, p.count, 1, &stack, &err), ECH_OK);
    assert_int_equal(echi_buffer_create_pinned(device, p.params * sizeof(float), &params, &err), ECH_OK);
    assert_int_equal(echi_stack_input(stack, 1, in, &err), ECH_OK);
    assert_int_equal(echi_stack_forward(stack, 0, params, &err), ECH_OK);
    changed.queue_launch = lost;
    assert_int_equal(echi_stack_forward(stack, 1, params, &err), ECH_E_DEVICE_LOST);
    assert_non_null(strstr(err.text, "gone"));
    err.text[0] = '\0';
    assert_int_equal(echi_stack_input(stack, 1, in, &err), ECH_E_DEVICE_LOST);
    assert_non_null(strstr(err.text, "gone"));
    assert_int_equal(echi_stack_output(stack, out, &err), ECH_E_ARGUMENT);   /* nothing has gone forward to the end */
    echi_stack_destroy(stack);
    echi_buffer_destroy(params);
    echi_device_close(device);
}

static void test_memory_that_is_not_there(void **state) {
    NEEDS_DEVICE;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_stack *stack = NULL;
    struct problem p;
    problem_begin(&p, 3, 64, 64);
    problem_relu(&p);
    changed.device_info = small_info;
    changed.memory_free = NULL;   /* only the total is known */
    assert_int_equal(echi_device_open_on(&changed, 0, 1, &device, &err), ECH_OK);
    assert_int_equal(echi_stack_create_with(device, &echi_stack_gpu, p.layers, p.count, 64, &stack, &err), ECH_E_MEMORY);
    assert_non_null(strstr(err.text, "has 1 MiB"));
    assert_non_null(strstr(err.text, " take 15729412 bytes"));   /* five of 64 x 3 x 64 x 64 numbers, three of 64, and one */
    assert_int_equal(echi_stack_create_with(device, &echi_stack_gpu, p.layers, p.count, 1, &stack, &err), ECH_OK);
    echi_stack_destroy(stack);
    echi_device_close(device);
}

static ech_status gpu_info(int index, struct echi_device_info *out, struct ech_error *err) {
    ech_status status = base->device_info(index, out, err);
    out->gpu = true;
    return status;
}

/* The text as GPUs have it, on whatever is here; and all by one queue, where queues do not wait for each other. */
static void test_right_answers_otherwise(void **state) {
    NEEDS_DEVICE;
    struct ech_error err = {.text = ""};
    changed.device_info = gpu_info;
    if (check(&err) != ECH_OK) fail_msg("%s", err.text);
    changed = *base;
    changed.queue_after = NULL;
    if (check(&err) != ECH_OK) fail_msg("%s", err.text);
}

static int waits, writes;

static ech_status count_waits(void *impl, void *queue, echi_event event, int64_t deadline, struct ech_error *err) {
    waits++;
    return base->event_wait(impl, queue, event, deadline, err);
}

static ech_status count_writes(void *impl, void *queue, void *memory, size_t at, const void *host, size_t bytes, struct ech_error *err) {
    writes++;
    return base->queue_write(impl, queue, memory, at, host, bytes, err);
}

/* Parameters go to the device once a version, gradients come back without a wait on the way, and a ReLU is part of what it follows. */
static void test_what_a_step_waits_for(void **state) {
    NEEDS_DEVICE;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_stack *stack = NULL;
    struct echi_buffer *params = NULL, *grads = NULL;
    struct problem p;
    float in[12], out[2] = {1, 1};
    for (int i = 0; i < 12; i++) in[i] = 1;
    problem_begin(&p, 3, 2, 2);
    problem_fc(&p, 5, true);
    problem_relu(&p);
    problem_fc(&p, 2, true);
    changed.event_wait = count_waits;
    changed.queue_write = count_writes;
    assert_int_equal(echi_device_open_on(&changed, 0, 1, &device, &err), ECH_OK);
    assert_int_equal(echi_stack_create_with(device, &echi_stack_gpu, p.layers, p.count, 1, &stack, &err), ECH_OK);
    assert_int_equal(echi_stack_units(stack), 2);
    assert_non_null(strstr(echi_stack_kernel(stack, 0), "fc+relu "));
    assert_int_equal(echi_buffer_create_pinned(device, p.params * sizeof(float), &params, &err), ECH_OK);
    assert_int_equal(echi_buffer_create_pinned(device, p.params * sizeof(float), &grads, &err), ECH_OK);
    float *w = echi_buffer_host(params), *g = echi_buffer_host(grads);
    for (int version = 0; version < 3; version++) {   /* all weights 1, then 2: the second step, told that they are as before,
                                                         has not seen it */
        const float stands = version < 2 ? 1 : 2;
        for (size_t i = 0; i < p.params; i++) w[i] = version == 0 ? 1 : 2;
        writes = 0;
        assert_int_equal(echi_stack_input(stack, 1, in, &err), ECH_OK);
        if (version == 1) assert_int_equal(echi_stack_same_params(stack, &err), ECH_OK);
        for (int u = 0; u < 2; u++) assert_int_equal(echi_stack_forward(stack, u, params, &err), ECH_OK);
        assert_int_equal(writes, version == 1 ? 1 : 5);
        assert_int_equal(echi_stack_output(stack, out, &err), ECH_OK);
        assert_true(out[0] == 5 * (13 * stands) * stands + stands);
        out[0] = 1;
        assert_int_equal(echi_stack_output_grad(stack, out, &err), ECH_OK);
        for (size_t i = 0; i < p.params; i++) g[i] = -1;
        waits = 0;
        for (int u = 1; u >= 0; u--) assert_int_equal(echi_stack_backward(stack, u, params, grads, true, &err), ECH_OK);
        assert_int_equal(waits, 0);
        assert_int_equal(echi_stack_grads(stack, 1, &err), ECH_OK);
        assert_true(echi_stack_grads_there(stack, 1));
        assert_true(g[p.layers[2].weight_at] == 13 * stands && g[p.layers[2].bias_at] == 1);
        assert_int_equal(echi_stack_grads(stack, 0, &err), ECH_OK);
        assert_int_equal(waits, 2);
        out[1] = out[0];
    }
    echi_stack_destroy(stack);
    echi_buffer_destroy(params);
    echi_buffer_destroy(grads);
    echi_device_close(device);
}

/* --- the texts that only NVIDIA's cards have, as a stack launches them: on the fake driver, which runs them as test_gpu_texts does --- */

/* Where there was no nvcc the archive has no machine code of them: the fake driver needs nothing of it but its first word. */
static ech_status with_images(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err) {
    static const _Alignas(8) unsigned char fatbin[8] = {0x50, 0xed, 0x55, 0xba};
    static const struct echi_image images[] = {{"cuda", "an image", fatbin, fatbin + sizeof fatbin}, {0}};
    const struct echi_source instead = {.images = images};
    return base->program_create(impl, source->text == NULL ? &instead : source, out_program, err);
}

/* Kernels, each with what it was given: the launches of one product. */
static struct echi_launch spoilt;   /* what a test adds to each launch that is given memory */
static int launches_with_memory;
static ech_status spoilt_launch(void *impl, void *queue, void *kernel, const struct echi_argument *args, void *const *memory, int count,
                                const struct echi_launch *how, struct ech_error *err) {
    struct echi_launch other = *how;
    launches_with_memory += how->shared > 0;
    if (how->shared > 0) other.shared += spoilt.shared, other.groups[0] += spoilt.groups[0], other.items += spoilt.items;
    return base->queue_launch(impl, queue, kernel, args, memory, count, &other, err);
}

static struct echi_device *device_with_images(void) {
    struct echi_device *device = NULL;
    struct ech_error err;
    changed.program_create = with_images;
    changed.queue_launch = spoilt_launch;
    assert_int_equal(echi_device_open_on(&changed, 0, 1, &device, &err), ECH_OK);
    return device;
}
static ech_status answers_of(enum echi_kernels kernels, struct ech_error *err) {
    struct echi_device *device = device_with_images();
    launches_with_memory = 0;
    const ech_status status = echi_known_answers(device, echi_stack_chosen(device, kernels), NULL, err);
    echi_device_close(device);
    return status;
}
/* Which kernel a layer gets that is large enough for any of them. */
static void assert_computes_by(struct echi_device *device, enum echi_kernels kernels, const char *wanted) {
    struct echi_stack *stack = NULL;
    struct ech_error err;
    struct problem p;
    problem_begin(&p, 200, 1, 1);
    problem_fc(&p, 300, true);
    assert_int_equal(echi_stack_create(device, kernels, p.layers, p.count, 100, &stack, &err), ECH_OK);
    assert_string_equal(echi_stack_kernel(stack, 0), wanted);
    echi_stack_destroy(stack);
}

static void test_texts_of_cards(void **state) {
    NEEDS_DEVICE;
    if (base != &echi_backend_cuda || fake == NULL) skip();
    static const struct { int capability; enum echi_kernels kernels; const char *name; } cases[] = {
        {80, ECHI_KERNELS_FAST, "fc cuda fp32 tiles"}, {80, ECHI_KERNELS_TF32_FAST, "fc cuda mma tf32"},
        {89, ECHI_KERNELS_BF16_FAST, "fc cuda mma bf16"},
        {90, ECHI_KERNELS_TF32_FAST, "fc cuda wgmma tf32"}, {90, ECHI_KERNELS_BF16_FAST, "fc cuda wgmma bf16"},
        {75, ECHI_KERNELS_TF32_FAST, "fc cuda"}, {75, ECHI_KERNELS_FAST, "fc cuda"}};
    const struct fake_cuda as_it_was = *fake;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += test_few() ? 3 : 1) {
        struct ech_error err = {.text = ""};
        fake->capability = cases[i].capability;
        fake->shared = 227;
        if (answers_of(cases[i].kernels, &err) != ECH_OK)
            fail_msg("%s on %d: %s; %s", cases[i].name, fake->capability, err.text, fake->complaint);
        assert_true((launches_with_memory > 0) == (cases[i].capability >= 80));
        struct echi_device *device = device_with_images();
        assert_computes_by(device, cases[i].kernels, cases[i].name);
        echi_device_close(device);
    }
    struct ech_error err;
    fake->capability = 75;   /* no bf16: not as floats, but not at all */
    struct echi_device *device = NULL;
    assert_int_equal(echi_ops_open("cuda", 1, echi_cpu_level(), ECHI_KERNELS_BF16_FAST, NULL, &device, &err), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "8.0 or later"));
    assert_string_equal(fake->complaint, "");
    *fake = as_it_was;
}

/* On a card what it has of them, in each precision. */
static void test_precisions(void **state) {
    NEEDS_DEVICE;
    static const struct echi_stack_impl *const impls[] = {&echi_stack_gpu, &echi_stack_gpu_tf32, &echi_stack_gpu_bf16};
    if (base != &echi_backend_cuda || fake != NULL) skip();
    for (size_t i = 0; i < sizeof impls / sizeof impls[0]; i++) {
        struct ech_error err = {.text = ""};
        struct echi_device *device = NULL;
        assert_int_equal(echi_device_open_on(&changed, 0, 1, &device, &err), ECH_OK);
        if (echi_known_answers(device, impls[i], NULL, &err) != ECH_OK) fail_msg("%s: %s", impls[i]->name, err.text);
        echi_device_close(device);
    }
}

/* A launch with too little memory, too few blocks or threads is no right answer. */
static void test_texts_of_cards_launched_wrongly(void **state) {
    NEEDS_DEVICE;
    if (base != &echi_backend_cuda || fake == NULL) skip();
    static const struct echi_launch wrong[] = {{{0}, 0, (size_t)-4096}, {{(size_t)-1}, 0, 0}, {{0}, (size_t)-32, 0}};
    const struct fake_cuda as_it_was = *fake;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct ech_error err;
        spoilt = wrong[i];
        fake->capability = 80;
        fake->shared = 227;
        assert_true(answers_of(ECHI_KERNELS_TF32_FAST, &err) != ECH_OK);
        fake->complaint[0] = '\0';
    }
    spoilt = (struct echi_launch){.items = 0};
    *fake = as_it_was;
}

/* A card's own kernels that compute wrongly, or break it, are done without where others compute the same: those of floats and wgmma's. */
static void test_what_is_done_without(void **state) {
    NEEDS_DEVICE;
    const struct echi_image *image = echi_gpu_product_sources[ECHI_PRODUCT_F32]->images;
    if (base != &echi_backend_cuda || fake == NULL || image->backend == NULL || image->bytes == image->end) skip();
    static const struct {
        int capability, code;
        const char *spoil;
        enum echi_kernels kernels;
        ech_status status;
        const char *kernel, *from;
    } cases[] = {
        {80, 0, "_float_", ECHI_KERNELS_FAST, ECH_OK, "fc cuda", "without products_f32.cu"},
        {80, CUDA_ERROR_LAUNCH_FAILED, "_float_", ECHI_KERNELS_FAST, ECH_OK, "fc cuda", "without products_f32.cu"},
        {90, 0, "_wgmma_", ECHI_KERNELS_BF16_FAST, ECH_OK, "fc cuda mma bf16", "without products_sm90.cu"},
        {80, 0, "_tf32_", ECHI_KERNELS_TF32_FAST, ECH_E_UNSUPPORTED, "", ""},
        {80, 0, "relu_forward", ECHI_KERNELS_FAST, ECH_E_UNSUPPORTED, "", ""},
        {75, CUDA_ERROR_LAUNCH_FAILED, "fc_forward", ECHI_KERNELS_FAST, ECH_E_DEVICE_LOST, "", ""}};
    const struct fake_cuda as_it_was = *fake;
    for (size_t i = test_few(); i < sizeof cases / sizeof cases[0]; i += test_few() ? 2 : 1) {
        struct ech_error err = {.text = ""};
        struct echi_device *device = NULL;
        char from[300];
        fake->capability = cases[i].capability;
        fake->shared = 227;
        fake->spoil_with = cases[i].code;
        snprintf(fake->spoil, sizeof fake->spoil, "%s", cases[i].spoil);
        const ech_status status = echi_ops_open("cuda", 1, echi_cpu_level(), cases[i].kernels, NULL, &device, &err);
        if (status != cases[i].status) fail_msg("%s: status %d; %s", cases[i].spoil, status, err.text);
        if (status != ECH_OK) continue;
        assert_computes_by(device, cases[i].kernels, cases[i].kernel);
        echi_device_kernels_from(device, from, sizeof from);
        assert_non_null(strstr(from, cases[i].from));
        echi_device_close(device);
    }
    assert_string_equal(fake->complaint, "");
    assert_int_equal(fake->alive, as_it_was.alive);
    *fake = as_it_was;
}

/* What a device that is not the host has no kernels for, and the choice by name. */
static void test_what_is_refused(void **state) {
    NEEDS_DEVICE;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_stack *stack = NULL;
    struct problem p;
    problem_begin(&p, 3, 2, 2);
    problem_relu(&p);
    assert_int_equal(echi_ops_open(base->name, 1, echi_cpu_level(), ECHI_KERNELS_FAST, NULL, &device, &err), ECH_OK);
    assert_int_equal(echi_stack_create(device, ECHI_KERNELS_FIXED, p.layers, p.count, 1, &stack, &err), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, base->name));
    assert_int_equal(echi_stack_create(device, ECHI_KERNELS_PLAIN, p.layers, p.count, 1, &stack, &err), ECH_OK);
    assert_non_null(strstr(echi_stack_kernel(stack, 0), base->name));
    echi_stack_destroy(stack);
    echi_device_close(device);
    /* A GPU, or the processor by its own kernels: rather than by OpenCL, and than a GPU that is slow. */
    if (fake != NULL) fake->pause = 5;
    assert_int_equal(echi_ops_open("auto", 1, echi_cpu_level(), ECHI_KERNELS_FAST, NULL, &device, &err), ECH_OK);
    assert_true(echi_device_describe(device)->gpu || strcmp(echi_device_describe(device)->backend, "cpu") == 0);
    assert_true(fake == NULL || !echi_device_describe(device)->gpu || strcmp(echi_device_describe(device)->backend, "opencl") == 0);
    if (fake != NULL) fake->pause = 0;
    echi_device_close(device);
    if (base == &echi_backend_cuda && fake != NULL) {   /* which is the only one with bf16 here */
        const struct fake_cuda as_it_was = *fake;
        fake->capability = 80, fake->shared = 227;
        const ech_status status = echi_ops_open("auto", 1, ECHI_CPU_BASE, ECHI_KERNELS_BF16_FAST, NULL, &device, &err);
        if (status != ECH_OK) fail_msg("%s", err.text);
        assert_string_equal(echi_device_describe(device)->backend, "cuda");
        echi_device_close(device);
        *fake = as_it_was;
    }
    char beyond[32];
    snprintf(beyond, sizeof beyond, "%s:99", base->name);
    assert_int_equal(echi_ops_open(beyond, 1, echi_cpu_level(), ECHI_KERNELS_FAST, NULL, &device, &err), ECH_E_UNSUPPORTED);
    assert_int_equal(echi_ops_open(NULL, 1, echi_cpu_level(), ECHI_KERNELS_FAST, NULL, &device, &err), ECH_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_right_answers, begin),
        cmocka_unit_test_setup(test_each_image, begin),
        cmocka_unit_test_setup(test_wrong_answers, begin),
        cmocka_unit_test_setup(test_kernels_that_do_not_compile, begin),
        cmocka_unit_test_setup(test_a_device_that_is_lost, begin),
        cmocka_unit_test_setup(test_memory_that_is_not_there, begin),
        cmocka_unit_test_setup(test_right_answers_otherwise, begin),
        cmocka_unit_test_setup(test_what_a_step_waits_for, begin),
        cmocka_unit_test_setup(test_what_is_refused, begin),
        cmocka_unit_test_setup(test_texts_of_cards, begin),
        cmocka_unit_test_setup(test_precisions, begin),
        cmocka_unit_test_setup(test_texts_of_cards_launched_wrongly, begin),
        cmocka_unit_test_setup(test_what_is_done_without, begin),
    };
    static const struct echi_backend *const bases[] = {&echi_backend_opencl, &echi_backend_cuda};
    int failed = 0;
    fake = fake_cuda_open();
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        base = bases[i];
        if (base->device_count() == 0) print_message("%s has no device here: its answers are not tried\n", base->name);
        failed += cmocka_run_group_tests_name(base->name, tests, NULL, NULL);
    }
    return failed;
}
