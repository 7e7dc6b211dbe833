/* SPDX-License-Identifier: Apache-2.0
 * One suite over every device that every backend has, and what a caller may do wrong. A backend without a device, like
 * the skeleton, must answer ECH_E_UNSUPPORTED everywhere. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_backends.h"
#include "echi_os.h"
#include "fake/use.h"
#include "opencl/echi_opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_fails(ech_status status, ech_status wanted, const struct ech_error *err, const char *word) {
    assert_int_equal(status, wanted);
    assert_int_equal(err->code, wanted);
    if (strstr(err->text, word) == NULL) fail_msg("'%s' does not say '%s'", err->text, word);
}

/* --- the suite --- */

static void wait_for_all(struct echi_queue *queue) {
    struct ech_error err;
    echi_event event = 0;
    assert_int_equal(echi_queue_event(queue, &event, &err), ECH_OK);
    if (echi_event_wait(queue, event, echi_now() + 60000000000, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_true(echi_event_done(queue, event));
}

static void check_memory(struct echi_device *device) {
    struct ech_error err;
    struct echi_buffer *buffer = NULL;
    struct echi_queue *queue = NULL;
    uint8_t bytes[1000], back[1000];
    assert_int_equal(echi_buffer_create(device, sizeof bytes, &buffer, &err), ECH_OK);
    assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
    assert_int_equal(echi_buffer_bytes(buffer), sizeof bytes);
    if (echi_device_describe(device)->host_memory) {
        assert_non_null(echi_buffer_host(buffer));
        assert_int_equal((uintptr_t)echi_buffer_host(buffer) % 64, 0);
    }

    memset(back, 1, sizeof back);
    echi_event event = 0;
    assert_int_equal(echi_queue_read(queue, buffer, 0, back, sizeof back, &err), ECH_OK);
    assert_int_equal(echi_queue_event(queue, &event, &err), ECH_OK);
    assert_int_equal(echi_event_wait(queue, event, echi_now() + 60000000000, &err), ECH_OK);
    assert_true(echi_event_done(queue, event));
    for (size_t i = 0; i < sizeof back; i++) assert_int_equal(back[i], 0);

    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + 3);
    assert_int_equal(echi_queue_write(queue, buffer, 0, bytes, sizeof bytes, &err), ECH_OK);
    assert_int_equal(echi_queue_copy(queue, buffer, 600, buffer, 100, 333, &err), ECH_OK);
    assert_int_equal(echi_queue_write(queue, buffer, 999, "x", 1, &err), ECH_OK);
    assert_int_equal(echi_queue_read(queue, buffer, 0, back, sizeof back, &err), ECH_OK);
    echi_event later = 0;
    assert_int_equal(echi_queue_event(queue, &later, &err), ECH_OK);
    assert_true(later > event);
    assert_int_equal(echi_event_wait(queue, later, echi_now() + 60000000000, &err), ECH_OK);
    memmove(bytes + 600, bytes + 100, 333);
    bytes[999] = 'x';
    assert_memory_equal(bytes, back, sizeof bytes);

    echi_queue_destroy(queue);
    echi_buffer_destroy(buffer);
}

static void check_ranges(struct echi_device *device) {
    struct ech_error err;
    struct echi_buffer *buffer = NULL, *none = NULL;
    struct echi_queue *queue = NULL;
    char bytes[100] = {0};
    assert_int_equal(echi_buffer_create(device, sizeof bytes, &buffer, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(device, 0, &none, &err), ECH_OK);
    assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
    assert_int_equal(echi_buffer_bytes(none), 0);

    assert_fails(echi_queue_write(queue, buffer, 1, bytes, 100, &err), ECH_E_ARGUMENT, &err, "fit");
    assert_fails(echi_queue_write(queue, buffer, 101, bytes, 0, &err), ECH_E_ARGUMENT, &err, "fit");
    assert_fails(echi_queue_write(queue, buffer, SIZE_MAX, bytes, 2, &err), ECH_E_ARGUMENT, &err, "fit");
    assert_fails(echi_queue_read(queue, buffer, 2, bytes, SIZE_MAX, &err), ECH_E_ARGUMENT, &err, "fit");
    assert_fails(echi_queue_copy(queue, buffer, 0, buffer, 99, 2, &err), ECH_E_ARGUMENT, &err, "fit");
    assert_fails(echi_queue_copy(queue, buffer, 99, buffer, 0, 2, &err), ECH_E_ARGUMENT, &err, "fit");
    assert_fails(echi_queue_copy(queue, buffer, 0, buffer, 9, 10, &err), ECH_E_ARGUMENT, &err, "overlap");
    assert_fails(echi_queue_copy(queue, none, 0, buffer, 0, 1, &err), ECH_E_ARGUMENT, &err, "fit");
    assert_fails(echi_queue_write(queue, buffer, 0, NULL, 1, &err), ECH_E_ARGUMENT, &err, "NULL");
    assert_fails(echi_queue_read(queue, NULL, 0, bytes, 1, &err), ECH_E_ARGUMENT, &err, "NULL");
    assert_fails(echi_queue_run(queue, NULL, NULL, &err), ECH_E_ARGUMENT, &err, "NULL");
    assert_int_equal(echi_queue_write(queue, buffer, 100, NULL, 0, &err), ECH_OK);
    assert_int_equal(echi_queue_copy(queue, buffer, 0, buffer, 50, 50, &err), ECH_OK);

    /* An event that nobody took is never done, and waiting for it does not hang. */
    echi_event event = 0;
    assert_int_equal(echi_queue_event(queue, &event, &err), ECH_OK);
    assert_false(echi_event_done(queue, event + 1000));
    ech_status status = echi_event_wait(queue, event + 1000, echi_now(), &err);
    assert_true(status == ECH_E_ARGUMENT || status == ECH_E_TIMEOUT);

    echi_queue_destroy(queue);
    echi_buffer_destroy(none);
    echi_buffer_destroy(buffer);
}

static void add_one(void *args) { (*(int *)args)++; }

static void check_host(struct echi_device *device) {
    struct ech_error err;
    struct echi_queue *queue = NULL;
    struct echi_buffer *wrapped = NULL;
    assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
    int calls = 0;
    ech_status status = echi_queue_run(queue, add_one, &calls, &err);
    echi_queue_destroy(queue);
    if (status == ECH_OK) assert_int_equal(calls, 1);
    else assert_int_equal(status, ECH_E_UNSUPPORTED);

    float mine[4] = {1, 2, 3, 4};
    status = echi_buffer_wrap(device, mine, sizeof mine, &wrapped, &err);
    if (status == ECH_OK) assert_ptr_equal(echi_buffer_host(wrapped), mine);
    else assert_int_equal(status, ECH_E_UNSUPPORTED);
    echi_buffer_destroy(wrapped);
    assert_true(mine[0] == 1 && mine[3] == 4);
}

/* Memory of the host, pinned or not, is the host's end of copies, and of nothing else. */
static void check_host_end(struct echi_device *device,
                           ech_status (*create)(struct echi_device *, size_t, struct echi_buffer **, struct ech_error *)) {
    struct ech_error err;
    struct echi_buffer *near = NULL, *far = NULL;
    struct echi_queue *queue = NULL;
    assert_int_equal(create(device, 5000, &near, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(device, 5000, &far, &err), ECH_OK);
    assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
    uint8_t *host = echi_buffer_host(near);
    assert_non_null(host);
    assert_int_equal((uintptr_t)host % 64, 0);
    for (int i = 0; i < 5000; i++) assert_int_equal(host[i], 0);
    for (int i = 0; i < 2500; i++) host[i] = (uint8_t)(i % 251);
    assert_int_equal(echi_queue_write(queue, far, 2500, host, 2500, &err), ECH_OK);
    assert_int_equal(echi_queue_read(queue, far, 2500, host + 2500, 2500, &err), ECH_OK);
    wait_for_all(queue);
    assert_memory_equal(host, host + 2500, 2500);
    if (!echi_device_describe(device)->host_memory) {
        assert_fails(echi_queue_write(queue, near, 0, host, 1, &err), ECH_E_ARGUMENT, &err, "memory of the host");
        assert_fails(echi_queue_copy(queue, far, 0, near, 0, 1, &err), ECH_E_ARGUMENT, &err, "memory of the host");
    }
    echi_queue_destroy(queue);
    echi_buffer_destroy(near);
    echi_buffer_destroy(far);
}

/* OpenCL C and CUDA C alike. Each group turns its numbers around, by way of local memory. */
static const char turn_text[] =
    "#ifdef __OPENCL_C_VERSION__\n"
    "#define GROUP get_group_id(0)\n#define ROW get_group_id(1)\n#define ITEM get_local_id(0)\n#define WAIT barrier(CLK_LOCAL_MEM_FENCE)\n"
    "__kernel void turn(__global const int *from, __global int *to, int add, float times) { __local int near[32];\n"
    "#else\n"
    "#define GROUP blockIdx.x\n#define ROW blockIdx.y\n#define ITEM threadIdx.x\n#define WAIT __syncthreads()\n"
    "extern \"C\" __global__ void turn(const int *from, int *to, int add, float times) { __shared__ int near[32];\n"
    "#endif\n"
    "    int at = (ROW * 3 + GROUP) * 32;\n"
    "    near[ITEM] = from[at + ITEM]; WAIT; to[at + ITEM] = (int)(near[31 - ITEM] * times) + add; }\n";
static const struct echi_source turn = {.text = turn_text}, broken = {.text = "this is no kernel"};

/* A card whose machine has no compiler for these texts: only kernels that the build has compiled run there. */
static bool no_compiler(ech_status status, const struct ech_error *err) {
    if (status != ECH_E_UNSUPPORTED || strstr(err->text, "there is no libnvrtc") == NULL) return false;
    print_message("%s: not tried\n", err->text);
    return true;
}

static bool check_kernels(struct echi_device *device, const char *folder) {
    struct ech_error err;
    struct echi_program *program = NULL, *again = NULL;
    struct echi_kernel *kernel = NULL;
    struct echi_buffer *from = NULL, *to = NULL, *pinned = NULL;
    struct echi_queue *queue = NULL;
    echi_device_keep_programs(device, folder);
    ech_status status = echi_device_program(device, &turn, &program, &err);
    if (no_compiler(status, &err)) return true;
    if (status == ECH_E_UNSUPPORTED) {
        assert_non_null(strstr(err.text, "program_create"));
        return false;
    }
    assert_int_equal(status, ECH_OK);
    assert_int_equal(echi_device_program(device, &turn, &again, &err), ECH_OK);
    assert_ptr_equal(again, program);
    assert_fails(echi_device_program(device, &broken, &again, &err), ECH_E_UNSUPPORTED, &err, echi_device_describe(device)->backend);
    assert_non_null(strstr(err.text, "error"));
    assert_fails(echi_program_kernel(program, "tern", &kernel, &err), ECH_E_ARGUMENT, &err, "'tern'");
    assert_int_equal(echi_program_kernel(program, "turn", &kernel, &err), ECH_OK);

    int numbers[6 * 32], back[6 * 32];
    for (int i = 0; i < 6 * 32; i++) numbers[i] = i * i;
    assert_int_equal(echi_buffer_create(device, sizeof numbers, &from, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(device, sizeof numbers, &to, &err), ECH_OK);
    assert_int_equal(echi_buffer_create_pinned(device, sizeof numbers, &pinned, &err), ECH_OK);
    assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
    assert_int_equal(echi_queue_write(queue, from, 0, numbers, sizeof numbers, &err), ECH_OK);
    const int add = 7;
    const float times = 2;
    struct echi_argument args[] = {{.buffer = from}, {.buffer = to}, {.value = &add, .bytes = sizeof add},
                                   {.value = &times, .bytes = sizeof times}};
    struct echi_launch how = {{3, 2, 1}, 32, 0};
    assert_int_equal(echi_queue_launch(queue, kernel, args, 4, &how, &err), ECH_OK);
    assert_int_equal(echi_queue_read(queue, to, 0, back, sizeof back, &err), ECH_OK);
    wait_for_all(queue);
    for (int i = 0; i < 6 * 32; i++) assert_int_equal(back[i], 2 * numbers[i / 32 * 32 + 31 - i % 32] + 7);

    args[1].buffer = pinned;
    assert_fails(echi_queue_launch(queue, kernel, args, 4, &how, &err), ECH_E_ARGUMENT, &err, "argument 1 of kernel turn");
    args[1] = (struct echi_argument){0};
    assert_fails(echi_queue_launch(queue, kernel, args, 4, &how, &err), ECH_E_ARGUMENT, &err, "neither");
    how.groups[1] = 0;
    assert_fails(echi_queue_launch(queue, kernel, args, 4, &how, &err), ECH_E_ARGUMENT, &err, "groups");
    how = (struct echi_launch){{1, 1, 1}, 1 << 20, 0};
    assert_fails(echi_queue_launch(queue, kernel, args, 4, &how, &err), ECH_E_ARGUMENT, &err, "work-items");
    how = (struct echi_launch){{1, 1, 1}, 32, echi_device_describe(device)->shared_most + 1};
    args[1].buffer = to;
    assert_fails(echi_queue_launch(queue, kernel, args, 4, &how, &err), ECH_E_UNSUPPORTED, &err, "bytes of local memory a group");
    assert_fails(echi_queue_launch(queue, kernel, args, ECHI_ARGUMENTS_MOST + 1, &how, &err), ECH_E_ARGUMENT, &err, "arguments");
    assert_fails(echi_queue_launch(queue, NULL, args, 4, &how, &err), ECH_E_ARGUMENT, &err, "NULL");
    echi_queue_destroy(queue);
    echi_buffer_destroy(from);
    echi_buffer_destroy(to);
    echi_buffer_destroy(pinned);
    return true;
}

static void test_each_device(void **state) {
    (void)state;
    int devices = 0;
    for (int b = 0; b < echi_backend_count(); b++) {
        const struct echi_backend *backend = echi_backend_at(b);
        for (int d = 0; d < backend->device_count(); d++, devices++) {
            struct ech_error err;
            struct echi_device *device = NULL;
            char spec[32];
            snprintf(spec, sizeof spec, "%s:%d", backend->name, d);
            assert_int_equal(echi_device_open(spec, 2, &device, &err), ECH_OK);
            const struct echi_device_info *info = echi_device_describe(device);
            assert_string_equal(info->backend, backend->name);
            assert_true(info->name[0] != '\0' && info->compute_units >= 1);
            assert_int_equal(echi_device_threads(device), 2);
            check_memory(device);
            check_ranges(device);
            check_host(device);
            check_host_end(device, echi_buffer_create_pinned);
            check_host_end(device, echi_buffer_create_host);
            if (!check_kernels(device, NULL)) assert_true(info->host_memory);
            echi_device_close(device);
        }
    }
    assert_true(devices >= 1);
}

/* OpenCL's standard has no query for free memory, a vendor's extension has: it is tried on a runtime that is told to have it. */
static cl_int (*plain_info)(cl_device_id, cl_uint, size_t, void *, size_t *);
static bool has_extension;
static cl_int extended_info(cl_device_id device, cl_uint what, size_t cap, void *value, size_t *size) {
    const size_t kib[2] = {3000, 2000};
    if (what != CL_DEVICE_GLOBAL_FREE_MEMORY_AMD) return plain_info(device, what, cap, value, size);
    if (!has_extension || cap < sizeof kib) return -30;   /* CL_INVALID_VALUE */
    memcpy(value, kib, sizeof kib);
    return CL_SUCCESS;
}

static void test_free_memory_of_opencl(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *device = NULL;
    if (echi_backend_opencl.device_count() == 0) skip();
    struct echi_opencl_calls *cl = (struct echi_opencl_calls *)&echi_opencl_runtime()->cl;
    plain_info = cl->clGetDeviceInfo;
    cl->clGetDeviceInfo = extended_info;
    assert_int_equal(echi_device_open("opencl:0", 1, &device, &err), ECH_OK);
    assert_int_equal(echi_device_memory_free(device), 0);
    has_extension = true;
    assert_int_equal(echi_device_memory_free(device), 3000 << 10);
    echi_device_close(device);
    cl->clGetDeviceInfo = plain_info;
}

/* More marks than a backend may keep, in whatever order one asks about them. */
static void test_many_events(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device_info info;
    char spec[32];
    for (int i = 0; echi_device_at(i, spec, sizeof spec, &info); i++) {
        struct echi_device *device = NULL;
        struct echi_queue *queue = NULL;
        struct echi_buffer *buffer = NULL;
        echi_event event[200];
        uint8_t byte[200], back[200];
        assert_int_equal(echi_device_open(spec, 1, &device, &err), ECH_OK);
        assert_int_equal(echi_buffer_create(device, 1, &buffer, &err), ECH_OK);
        assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
        for (int k = 0; k < 200; k++) {
            byte[k] = (uint8_t)k;
            assert_int_equal(echi_queue_write(queue, buffer, 0, &byte[k], 1, &err), ECH_OK);
            assert_int_equal(echi_queue_read(queue, buffer, 0, &back[k], 1, &err), ECH_OK);
            assert_int_equal(echi_queue_event(queue, &event[k], &err), ECH_OK);
            if (k > 0) assert_true(event[k] > event[k - 1]);
        }
        static const int order[] = {3, 199, 140, 0, 199};
        for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
            assert_int_equal(echi_event_wait(queue, event[order[k]], echi_now() + 60000000000, &err), ECH_OK);
            assert_true(echi_event_done(queue, event[order[k]]));
            assert_int_equal(back[order[k]], byte[order[k]]);
        }
        echi_queue_destroy(queue);
        echi_buffer_destroy(buffer);
        echi_device_close(device);
    }
}

/* A queue that waits for another sees what that has written, though it was given its work at once; the host waits for nothing. */
static void test_a_queue_behind_another(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device_info info;
    char spec[32];
    enum { BYTES = 1 << 24, TIMES = 8 };
    uint8_t *bytes = malloc(BYTES);
    memset(bytes, 7, BYTES);
    for (int i = 0; echi_device_at(i, spec, sizeof spec, &info); i++) {
        struct echi_device *device = NULL, *other = NULL;
        struct echi_queue *first = NULL, *later = NULL, *strange = NULL;
        struct echi_buffer *a = NULL, *b = NULL;
        echi_event event = 0;
        uint8_t last = 0;
        assert_int_equal(echi_device_open(spec, 1, &device, &err), ECH_OK);
        assert_int_equal(echi_queue_create(device, &first, &err), ECH_OK);
        assert_int_equal(echi_queue_create(device, &later, &err), ECH_OK);
        assert_int_equal(echi_queue_event(first, &event, &err), ECH_OK);
        const ech_status status = echi_queue_after(later, first, event, &err);
        if (status == ECH_E_UNSUPPORTED) {   /* a device need not */
            echi_queue_destroy(first);
            echi_queue_destroy(later);
            echi_device_close(device);
            continue;
        }
        assert_int_equal(status, ECH_OK);
        assert_int_equal(echi_buffer_create(device, BYTES, &a, &err), ECH_OK);
        assert_int_equal(echi_buffer_create(device, BYTES, &b, &err), ECH_OK);
        assert_int_equal(echi_queue_write(first, a, 0, bytes, BYTES, &err), ECH_OK);
        for (int k = 0; k < TIMES; k++) assert_int_equal(echi_queue_copy(first, b, 0, a, 0, BYTES, &err), ECH_OK);
        assert_int_equal(echi_queue_event(first, &event, &err), ECH_OK);
        assert_int_equal(echi_queue_after(later, first, event, &err), ECH_OK);
        assert_int_equal(echi_queue_read(later, b, BYTES - 1, &last, 1, &err), ECH_OK);
        wait_for_all(later);
        assert_int_equal(last, 7);
        assert_true(echi_event_done(first, event));
        assert_fails(echi_queue_after(later, first, event + 1, &err), ECH_E_ARGUMENT, &err, "was not taken");
        assert_fails(echi_queue_after(later, NULL, event, &err), ECH_E_ARGUMENT, &err, "NULL");
        assert_int_equal(echi_device_open(spec, 1, &other, &err), ECH_OK);
        assert_int_equal(echi_queue_create(other, &strange, &err), ECH_OK);
        assert_fails(echi_queue_after(strange, first, event, &err), ECH_E_ARGUMENT, &err, "two devices");
        echi_queue_destroy(strange);
        echi_device_close(other);
        echi_queue_destroy(first);
        echi_queue_destroy(later);
        echi_buffer_destroy(a);
        echi_buffer_destroy(b);
        echi_device_close(device);
    }
    free(bytes);
}

/* --- programs kept from run to run --- */

static const struct echi_backend *keeper;   /* whose programs are kept */
static int compiled;
static const char *other_options;           /* what its compiler would be told instead, or NULL */
static ech_status count_compiled(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err) {
    compiled++;
    return keeper->program_create(impl, source, out_program, err);
}

/* A run that needs the program `turn`; how often it has compiled something. */
static int run_with(const char *folder) {
    struct ech_error err;
    struct echi_backend counting = *keeper;
    struct echi_device *device = NULL;
    struct echi_program *program = NULL;
    struct echi_kernel *kernel = NULL;
    counting.program_create = count_compiled;
    if (other_options != NULL) counting.program_options = other_options;
    compiled = 0;
    assert_int_equal(echi_device_open_on(&counting, 0, 1, &device, &err), ECH_OK);
    echi_device_keep_programs(device, folder);
    if (echi_device_program(device, &turn, &program, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_int_equal(echi_program_kernel(program, "turn", &kernel, &err), ECH_OK);
    echi_device_close(device);
    return compiled;
}

static ech_status remember_path(void *self, const char *name) {
    const char *folder = ((char **)self)[0];
    char *path = ((char **)self)[1];
    if (strstr(name, ".program") != NULL) snprintf(path, 200, "%s/%s", folder, name);
    return ECH_OK;
}

/* It is taken when it is whole, and compiled anew when it is not, or when the folder is not there. */
static void check_kept_programs(const struct echi_backend *backend) {
    char folder[] = "/tmp/ech-kept-XXXXXX", path[200] = "";
    char *const about[] = {folder, path};
    uint8_t *bytes = NULL;
    size_t len = 0;
    keeper = backend;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(run_with(NULL), 1);
    assert_int_equal(run_with("/nowhere"), 1);
    assert_int_equal(run_with(folder), 1);
    assert_int_equal(run_with(folder), 0);
    assert_int_equal(echi_folder_list(folder, remember_path, (void *)(uintptr_t)about, NULL), ECH_OK);
    assert_int_equal(echi_file_read(path, (size_t)1 << 26, &bytes, &len, NULL), ECH_OK);
    const size_t places[] = {0, 31, 32, 63, 64, len / 2, len - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        bytes[places[i]] ^= 1;
        assert_int_equal(echi_file_write(path, bytes, len, NULL), ECH_OK);
        bytes[places[i]] ^= 1;
        assert_int_equal(run_with(folder), 1);
        assert_int_equal(echi_file_write(path, bytes, places[i], NULL), ECH_OK);
        assert_int_equal(run_with(folder), 1);
    }
    assert_int_equal(run_with(folder), 0);
    free(bytes);
    assert_int_equal(echi_file_remove(path, NULL), ECH_OK);
    other_options = "-cl-std=CL3.0";   /* another library's program of the same text is not taken for ours */
    assert_int_equal(run_with(folder), 1);
    other_options = NULL;
    assert_int_equal(run_with(folder), 1);
    assert_int_equal(run_with(folder), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(echi_folder_list(folder, remember_path, (void *)(uintptr_t)about, NULL), ECH_OK);
        assert_int_equal(echi_file_remove(path, NULL), ECH_OK);
    }
    assert_int_equal(rmdir(folder), 0);
}

static bool compiles(const struct echi_backend *backend) {
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_program *program = NULL;
    assert_int_equal(echi_device_open(backend->name, 1, &device, &err), ECH_OK);
    const bool none = no_compiler(echi_device_program(device, &turn, &program, &err), &err);
    echi_device_close(device);
    return !none;
}

static void test_kept_programs(void **state) {
    (void)state;
    for (int b = 0; b < echi_backend_count(); b++) {
        const struct echi_backend *backend = echi_backend_at(b);
        if (backend->program_load == NULL || backend == &echi_backend_null) continue;
        if (backend->device_count() == 0) print_message("%s has no device here: its kept programs are not tried\n", backend->name);
        else if (compiles(backend)) check_kept_programs(backend);
    }
}

/* --- a card that two runtimes have --- */

static const struct echi_device_info *same_card;   /* whose address the processor claims to have, too */

static ech_status cpu_on_pci(int index, struct echi_device_info *out, struct ech_error *err) {
    const ech_status status = echi_backend_cpu.device_info(index, out, err);
    memcpy(out->pci, same_card->pci, sizeof out->pci);
    return status;
}

const struct echi_backend *__real_echi_backend_at(int i);
const struct echi_backend *__wrap_echi_backend_at(int i);   /* the Makefile leads the library's calls here */
const struct echi_backend *__wrap_echi_backend_at(int i) {
    static struct echi_backend cpu;
    const struct echi_backend *backend = __real_echi_backend_at(i);
    if (backend != &echi_backend_cpu || same_card == NULL) return backend;
    cpu = echi_backend_cpu;
    cpu.device_info = cpu_on_pci;
    return &cpu;
}

static bool listed(const char *wanted) {
    struct echi_device_info info;
    char spec[32];
    for (int i = 0; echi_device_at(i, spec, sizeof spec, &info); i++)
        if (strcmp(spec, wanted) == 0) return true;
    return false;
}

/* It is listed once, by the faster kind, and opened by either name. Without an address, as most, every device is listed. */
static void test_a_card_that_two_have(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_device_info card;
    if (echi_backend_cuda.device_count() == 0) skip();
    assert_int_equal(echi_backend_cuda.device_info(0, &card, &err), ECH_OK);
    assert_true(card.pci[0] != '\0');
    same_card = &card;
    assert_true(listed("cuda:0"));
    assert_false(listed("cpu:0"));
    assert_int_equal(echi_device_open("cpu:0", 1, &device, &err), ECH_OK);
    echi_device_close(device);
    card.pci[0] = '\0';
    assert_true(listed("cpu:0"));
    same_card = NULL;
    assert_true(listed("cpu:0"));
}

/* --- names --- */

static void test_cpu_is_always_there(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *device = NULL;
    assert_int_equal(echi_device_open("cpu", 1, &device, &err), ECH_OK);
    const struct echi_device_info *info = echi_device_describe(device);
    assert_true(info->host_memory);
    const char *level = strrchr(info->name, ',');
    assert_non_null(level);
    static const char *const known[] = {", base", ", AVX2", ", AVX-512"};
    assert_string_equal(level, known[echi_cpu_level()]);
    echi_device_close(device);
    echi_device_close(NULL);
    echi_buffer_destroy(NULL);
    echi_queue_destroy(NULL);
}

static void test_specs_that_are_wrong(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *device = NULL;
    assert_fails(echi_device_open("gpu", 1, &device, &err), ECH_E_ARGUMENT, &err, "cpu");
    assert_fails(echi_device_open("", 1, &device, &err), ECH_E_ARGUMENT, &err, "cpu");
    assert_fails(echi_device_open("cp", 1, &device, &err), ECH_E_ARGUMENT, &err, "cpu");
    assert_fails(echi_device_open("cpu:", 1, &device, &err), ECH_E_ARGUMENT, &err, "number");
    assert_fails(echi_device_open("cpu:-1", 1, &device, &err), ECH_E_ARGUMENT, &err, "number");
    assert_fails(echi_device_open("cpu:0x", 1, &device, &err), ECH_E_ARGUMENT, &err, "number");
    assert_fails(echi_device_open("cpu:99999999999999999999", 1, &device, &err), ECH_E_ARGUMENT, &err, "number");
    assert_fails(echi_device_open("cpu:1", 1, &device, &err), ECH_E_UNSUPPORTED, &err, "cpu:0");
    assert_fails(echi_device_open("null", 1, &device, &err), ECH_E_UNSUPPORTED, &err, "cpu:0");
    assert_fails(echi_device_open("cpu", 0, &device, &err), ECH_E_ARGUMENT, &err, "threads");
    assert_fails(echi_device_open(NULL, 1, &device, &err), ECH_E_ARGUMENT, &err, "NULL");
    assert_fails(echi_device_open("cpu", 1, NULL, &err), ECH_E_ARGUMENT, &err, "NULL");
    assert_null(device);
    assert_int_equal(echi_device_open("gpu", 1, &device, NULL), ECH_E_ARGUMENT);
    assert_null(echi_backend_at(-1));
    assert_null(echi_backend_at(echi_backend_count()));
}

static void test_a_buffer_of_another_device(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *a = NULL, *b = NULL;
    struct echi_buffer *buffer = NULL;
    struct echi_queue *queue = NULL;
    char byte = 0;
    assert_int_equal(echi_device_open("cpu", 1, &a, &err), ECH_OK);
    assert_int_equal(echi_device_open("cpu", 1, &b, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(a, 10, &buffer, &err), ECH_OK);
    assert_int_equal(echi_queue_create(b, &queue, &err), ECH_OK);
    assert_fails(echi_queue_read(queue, buffer, 0, &byte, 1, &err), ECH_E_ARGUMENT, &err, "another device");
    echi_queue_destroy(queue);
    echi_buffer_destroy(buffer);
    echi_device_close(b);
    echi_device_close(a);
}

static void test_more_memory_than_there_is(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_buffer *buffer = NULL;
    assert_int_equal(echi_device_open("cpu", 1, &device, &err), ECH_OK);
    assert_fails(echi_buffer_create(device, SIZE_MAX, &buffer, &err), ECH_E_MEMORY, &err, "memory");
    assert_null(buffer);
    echi_device_close(device);
}

/* --- a backend that is not finished --- */

/* The CPU as a card would be. */
static ech_status far_device_info(int index, struct echi_device_info *out, struct ech_error *err) {
    ech_status status = echi_backend_cpu.device_info(index, out, err);
    out->host_memory = false;
    return status;
}

/* Opens like the CPU, so that every call reaches the entry under test. */
static void assert_unsupported_everywhere(const struct echi_backend *backend) {
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_buffer *buffer = NULL;
    struct echi_queue *queue = NULL;
    int value = 0;
    assert_int_equal(echi_device_open_on(backend, 0, 1, &device, &err), ECH_OK);
    assert_fails(echi_buffer_create(device, 8, &buffer, &err), ECH_E_UNSUPPORTED, &err, "buffer_create");
    struct echi_program *program = NULL;
    assert_fails(echi_buffer_create_pinned(device, 8, &buffer, &err), ECH_E_UNSUPPORTED, &err, "pinned_create");
    assert_fails(echi_device_program(device, &turn, &program, &err), ECH_E_UNSUPPORTED, &err, "program_create");
    assert_null(program);
    assert_fails(echi_buffer_wrap(device, &value, sizeof value, &buffer, &err), ECH_E_UNSUPPORTED, &err, "buffer_wrap");
    assert_fails(echi_queue_create(device, &queue, &err), ECH_E_UNSUPPORTED, &err, "queue_create");
    assert_true(buffer == NULL && queue == NULL);
    echi_device_close(device);

    /* The rest of the entries, on memory and a queue that are there. */
    struct echi_backend half = *backend;
    half.buffer_create = echi_backend_cpu.buffer_create;
    half.buffer_destroy = echi_backend_cpu.buffer_destroy;
    half.queue_create = echi_backend_cpu.queue_create;
    half.queue_destroy = echi_backend_cpu.queue_destroy;
    assert_int_equal(echi_device_open_on(&half, 0, 1, &device, &err), ECH_OK);
    assert_int_equal(echi_buffer_create(device, 8, &buffer, &err), ECH_OK);
    assert_int_equal(echi_queue_create(device, &queue, &err), ECH_OK);
    assert_null(echi_buffer_host(buffer));
    echi_event event = 1;
    assert_fails(echi_queue_write(queue, buffer, 0, &value, 4, &err), ECH_E_UNSUPPORTED, &err, "queue_write");
    assert_fails(echi_queue_read(queue, buffer, 0, &value, 4, &err), ECH_E_UNSUPPORTED, &err, "queue_read");
    assert_fails(echi_queue_copy(queue, buffer, 0, buffer, 4, 4, &err), ECH_E_UNSUPPORTED, &err, "queue_copy");
    assert_fails(echi_queue_run(queue, add_one, &value, &err), ECH_E_UNSUPPORTED, &err, "queue_run");
    assert_fails(echi_queue_event(queue, &event, &err), ECH_E_UNSUPPORTED, &err, "queue_event");
    assert_fails(echi_queue_after(queue, queue, 0, &err), ECH_E_UNSUPPORTED, &err, "queue_after");
    assert_fails(echi_event_wait(queue, 0, 0, &err), ECH_E_UNSUPPORTED, &err, "event_wait");
    assert_false(echi_event_done(queue, 0));
    assert_int_equal(value, 0);
    echi_queue_destroy(queue);
    echi_buffer_destroy(buffer);
    echi_device_close(device);
}

static void test_the_skeleton(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_backend opens = echi_backend_null;
    assert_int_equal(echi_backend_null.device_count(), 0);
    assert_fails(echi_device_open_on(&opens, 0, 1, &device, &err), ECH_E_UNSUPPORTED, &err, "device_info");
    opens.device_info = far_device_info;
    assert_fails(echi_device_open_on(&opens, 0, 1, &device, &err), ECH_E_UNSUPPORTED, &err, "device_open");
    assert_null(device);
    opens.device_open = echi_backend_cpu.device_open;
    assert_unsupported_everywhere(&opens);
}

static void test_entries_left_out(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_device *device = NULL;
    struct echi_backend empty = {.name = "half"};
    assert_fails(echi_device_open_on(&empty, 0, 1, &device, &err), ECH_E_UNSUPPORTED, &err, "'half'");
    empty.device_info = far_device_info;
    empty.device_open = echi_backend_cpu.device_open;
    assert_unsupported_everywhere(&empty);
}

int main(void) {
    (void)fake_cuda_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_device),
        cmocka_unit_test(test_free_memory_of_opencl),
        cmocka_unit_test(test_many_events),
        cmocka_unit_test(test_a_queue_behind_another),
        cmocka_unit_test(test_kept_programs),
        cmocka_unit_test(test_a_card_that_two_have),
        cmocka_unit_test(test_cpu_is_always_there),
        cmocka_unit_test(test_specs_that_are_wrong),
        cmocka_unit_test(test_a_buffer_of_another_device),
        cmocka_unit_test(test_more_memory_than_there_is),
        cmocka_unit_test(test_the_skeleton),
        cmocka_unit_test(test_entries_left_out),
    };
    return cmocka_run_group_tests_name("hal", tests, NULL, NULL);
}
