/* SPDX-License-Identifier: Apache-2.0
 * hal/cuda on the fake driver: which image of the kernels a device gets, and what becomes of every call that fails, of memory that is not
 * there, of a device that is lost in the middle of its work; and the functions that clang's PTX has in place of CUDA's own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda/echi_cuda_api.h"
#include "echi_hal.h"
#include "fake/use.h"
#include "gpu/echi_gpu.h"

#include <math.h>

static struct fake_cuda *fake;
static struct fake_cuda as_it_was;

static int begin(void **state) {
    (void)state;
    if (fake == NULL) return 0;
    *fake = as_it_was;
    return 0;
}

/* Nothing is left, and nothing was done that must not be done. */
static int end(void **state) {
    (void)state;
    if (fake == NULL) return 0;
    if (fake->complaint[0] != '\0') print_error("the driver complains: %s\n", fake->complaint);
    if (fake->alive != 0) print_error("%d things were not given back to the driver\n", fake->alive);
    return fake->complaint[0] == '\0' && fake->alive == 0 ? 0 : -1;
}

#define NEEDS_FAKE        \
    (void)state;          \
    if (fake == NULL) skip()

/* --- which image --- */

/* What the kernels of a device are made of now, or the sentence when there are none. */
static ech_status origin(char *out, size_t cap) {
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_program *program = NULL;
    struct echi_kernel *kernel = NULL;
    assert_int_equal(echi_device_open("cuda:0", 1, &device, &err), ECH_OK);
    ech_status status = echi_device_program(device, &echi_gpu_source, &program, &err);
    if (status == ECH_OK) status = echi_program_kernel(program, "fc_forward", &kernel, &err);
    if (status == ECH_OK) echi_device_kernels_from(device, out, cap);
    else snprintf(out, cap, "%s", err.text);
    echi_device_close(device);
    return status;
}

static bool has_image(int i) { return echi_gpu_source.images[i].bytes != echi_gpu_source.images[i].end; }

static void test_which_image(void **state) {
    NEEDS_FAKE;
    char text[400];
    assert_int_equal(origin(text, sizeof text), ECH_OK);
    assert_string_equal(text, has_image(0) ? "nvcc's image, of compute_90 for sm_90"
                              : has_image(1) ? "clang's PTX, of compute_53 for sm_90" : "NVRTC 13.0, of compute_53 for sm_90");
    fake->fatbin = 0;   /* an older driver, or an older card */
    assert_int_equal(origin(text, sizeof text), ECH_OK);
    assert_string_equal(text, has_image(1) ? "clang's PTX, of compute_53 for sm_90" : "NVRTC 13.0, of compute_53 for sm_90");
    fake->capability = 53;
    assert_int_equal(origin(text, sizeof text), ECH_OK);
    assert_non_null(strstr(text, "of compute_53 for sm_53"));
    fake->version = 9000;   /* PTX 6.0, and no more */
    assert_int_equal(origin(text, sizeof text), ECH_OK);
    fake->version = 13000;
    fake->ptx = 0;
    assert_int_equal(origin(text, sizeof text), ECH_E_UNSUPPORTED);
    if (!strstr(text, "sm_53") || !strstr(text, "NVRTC 13.0") || !strstr(text, "choose another device")) fail_msg("%s", text);
    if (has_image(1)) assert_non_null(strstr(text, "clang's PTX: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
}

/* --- what fails --- */

/* All that a run asks of a device. The first failure ends it; what was made is given back. */
static ech_status use(struct ech_error *err) {
    struct echi_device *device = NULL;
    struct echi_buffer *a = NULL, *b = NULL, *pinned = NULL;
    struct echi_queue *queue = NULL;
    struct echi_program *program = NULL;
    struct echi_kernel *kernel = NULL;
    enum { COUNT = 300 };
    const int count = COUNT;
    const struct echi_launch how = {{2, 1, 1}, ECHI_GPU_ITEMS, 64 << 10};   /* more than a driver gives without being asked */
    echi_event event = 0;
    ech_status status = echi_device_open("cuda:0", 1, &device, err);
    if (status == ECH_OK) status = echi_buffer_create(device, COUNT * sizeof(float), &a, err);
    if (status == ECH_OK) status = echi_buffer_create(device, COUNT * sizeof(float), &b, err);
    if (status == ECH_OK) status = echi_buffer_create_pinned(device, COUNT * sizeof(float), &pinned, err);
    if (status == ECH_OK) status = echi_device_program(device, &echi_gpu_source, &program, err);
    if (status == ECH_OK) status = echi_program_kernel(program, "add", &kernel, err);
    if (status == ECH_OK) status = echi_queue_create(device, &queue, err);
    if (status == ECH_OK) {
        float *host = echi_buffer_host(pinned);
        for (int i = 0; i < COUNT; i++) host[i] = (float)i;
        const struct echi_argument args[] = {{.buffer = a}, {.buffer = a}, {.buffer = b}, {.value = &count, .bytes = sizeof count}};
        status = echi_queue_write(queue, a, 0, host, COUNT * sizeof(float), err);
        if (status == ECH_OK) status = echi_queue_launch(queue, kernel, args, 4, &how, err);
        if (status == ECH_OK) status = echi_queue_copy(queue, a, 0, b, 0, COUNT * sizeof(float), err);
        if (status == ECH_OK) status = echi_queue_read(queue, a, 0, host, COUNT * sizeof(float), err);
        if (status == ECH_OK) assert_true(host[COUNT - 1] == COUNT - 1);   /* nothing is done before it is waited for */
        if (status == ECH_OK) status = echi_queue_event(queue, &event, err);
        if (status == ECH_OK) status = echi_event_wait(queue, event, echi_now() + 60000000000, err);
        for (int i = 0; i < COUNT && status == ECH_OK; i++) assert_true(host[i] == (float)(2 * i));
    }
    echi_queue_destroy(queue);
    echi_buffer_destroy(a);
    echi_buffer_destroy(b);
    echi_buffer_destroy(pinned);
    echi_device_close(device);
    return status;
}

static void test_right(void **state) {
    NEEDS_FAKE;
    struct ech_error err;
    if (use(&err) != ECH_OK) fail_msg("%s", err.text);
}

/* Each call in turn answers that there is no memory: that is said, or it is a question whose answer is not vital. */
static void test_every_call_fails(void **state) {
    NEEDS_FAKE;
    static const char *const names[] = {
#define NAME(type, name, parameters) #name,
        ECHI_CUDA_CALLS(NAME)
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int after = 0; after < 3; after++) {
            struct ech_error err = {.text = ""};
            *fake = as_it_was;
            snprintf(fake->fail, sizeof fake->fail, "%s", names[i]);
            fake->fail_after = after;
            fake->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
            const ech_status status = use(&err);
            failures += status != ECH_OK;
            if (status != ECH_OK && (status != ECH_E_MEMORY || !strstr(err.text, "CUDA_ERROR_OUT_OF_MEMORY")))
                if (strcmp(names[i], "cuFuncGetAttribute") != 0) fail_msg("%s: %d, %s", names[i], status, err.text);
            if (fake->alive != 0 || fake->complaint[0] != '\0')
                fail_msg("%s, time %d: %d alive; %s", names[i], after, fake->alive, fake->complaint);
        }
    assert_true(failures > 20);
}

/* After so many calls the card is gone. Every such end is ECH_E_DEVICE_LOST, in time, and nothing is left behind. */
static void test_lost_after_any_call(void **state) {
    NEEDS_FAKE;
    int lost = 0;
    assert_int_equal(use(NULL), ECH_OK);
    const int calls = fake->calls;
    for (int n = 1; n <= calls; n++) {
        struct ech_error err = {.text = ""};
        *fake = as_it_was;
        fake->lost_after = n;
        const ech_status status = use(&err);
        lost += status == ECH_E_DEVICE_LOST;
        if (status != ECH_OK && (status != ECH_E_DEVICE_LOST || !strstr(err.text, "failed in")))
            fail_msg("call %d: %d, %s", n, status, err.text);
        if (fake->alive != 0 || fake->complaint[0] != '\0') fail_msg("call %d: %d alive; %s", n, fake->alive, fake->complaint);
    }
    assert_true(lost > calls / 4);
}

static void test_memory(void **state) {
    NEEDS_FAKE;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_buffer *most = NULL, *more = NULL;
    fake->memory = 16;
    assert_int_equal(echi_device_open("cuda", 1, &device, &err), ECH_OK);
    assert_int_equal(echi_device_describe(device)->memory, 16 << 20);
    assert_int_equal(echi_buffer_create(device, 16 << 20, &most, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(device, 1, &more, &err), ECH_E_MEMORY);
    assert_non_null(strstr(err.text, "use a smaller batch or model"));
    assert_null(more);
    echi_buffer_destroy(most);
    assert_int_equal(echi_buffer_create(device, 1, &more, &err), ECH_OK);
    echi_buffer_destroy(more);
    echi_device_close(device);
}

/* A kernel that writes behind its buffer, and more groups than the card counts: the first is the card's to find, the second ours. */
static void test_what_a_kernel_must_not_do(void **state) {
    NEEDS_FAKE;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_buffer *small = NULL, *large = NULL;
    struct echi_queue *queue = NULL;
    struct echi_program *program = NULL;
    struct echi_kernel *kernel = NULL;
    echi_event event = 0;
    const int count = 100;
    assert_int_equal(echi_device_open("cuda", 1, &device, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(device, 100 * sizeof(float), &large, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(device, 99 * sizeof(float), &small, &err), ECH_OK);
    assert_int_equal(echi_device_program(device, &echi_gpu_source, &program, &err), ECH_OK);
    assert_int_equal(echi_program_kernel(program, "add", &kernel, &err), ECH_OK);
    assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
    const struct echi_argument args[] = {{.buffer = large}, {.buffer = large}, {.buffer = small}, {.value = &count, .bytes = sizeof count}};
    const struct echi_launch many = {{1, 65536, 1}, ECHI_GPU_ITEMS, 0}, one = {{1, 1, 1}, ECHI_GPU_ITEMS, 0};
    assert_int_equal(echi_queue_launch(queue, kernel, args, 4, &many, &err), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "65536 groups along axis 1"));
    assert_int_equal(echi_queue_launch(queue, kernel, args, 4, &one, &err), ECH_OK);
    assert_int_equal(echi_queue_event(queue, &event, &err), ECH_OK);
    assert_int_equal(echi_event_wait(queue, event, echi_now() + 60000000000, &err), ECH_E_DEVICE_LOST);
    assert_non_null(strstr(err.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_string_equal(fake->complaint, "a kernel wrote past the end of a buffer");
    echi_queue_destroy(queue);
    echi_buffer_destroy(small);
    echi_buffer_destroy(large);
    echi_device_close(device);
    fake->complaint[0] = '\0';
}

/* --- the functions of clang's PTX --- */

#define BARE_FUNCTION static
#define expf bare_expf
#define logf bare_logf
#define tanhf bare_tanhf
#define sqrtf bare_sqrtf
#include "gpu/bare_math.h"
#undef expf
#undef logf
#undef tanhf
#undef sqrtf

/* How far apart in units of the last place of a float, which does not get smaller than that of the smallest normal number. */
static double apart(float got, double wanted) {
    const float nearest = (float)wanted, size = fabsf(nearest);
    if (isnan(wanted) || isinf(nearest) || isinf(got)) return isnan(wanted) ? (isnan(got) ? 0 : INFINITY) : (got == nearest ? 0 : INFINITY);
    const double unit = size < 1.17549435e-38f ? 1.17549435e-38 : (double)nextafterf(size, INFINITY) - (double)size;
    return fabs((double)got - wanted) / unit;
}

static void test_bare_math(void **state) {
    (void)state;
    double most = 0;
    for (uint64_t i = 0; i < (uint64_t)1 << 32; i += 9973) {   /* of all floats, NaNs and infinities among them */
        const uint32_t bits = (uint32_t)i;
        float x;
        memcpy(&x, &bits, sizeof x);
        const double d[] = {apart(bare_expf(x), exp((double)x)), apart(bare_logf(x), log((double)x)), apart(bare_tanhf(x), tanh((double)x)),
                            apart(bare_sqrtf(x), sqrt((double)x))};
        for (int k = 0; k < 4; k++) {
            if (d[k] > 1.5) fail_msg("function %d of %a is %g units off", k, (double)x, d[k]);
            if (d[k] > most) most = d[k];
        }
    }
    assert_true(most > 0.5);   /* else they were not compared */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_which_image, begin, end),
        cmocka_unit_test_setup_teardown(test_right, begin, end),
        cmocka_unit_test_setup_teardown(test_every_call_fails, begin, end),
        cmocka_unit_test_setup_teardown(test_lost_after_any_call, begin, end),
        cmocka_unit_test_setup_teardown(test_memory, begin, end),
        cmocka_unit_test_setup_teardown(test_what_a_kernel_must_not_do, begin, end),
        cmocka_unit_test(test_bare_math),
    };
    fake = fake_cuda_open();
    if (fake != NULL) fake->shared = 100, as_it_was = *fake;
    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
