/* SPDX-License-Identifier: Apache-2.0
 * A backend that can do nothing yet: the skeleton to copy for a new one (steps in README.md). It has no device, so it
 * is never chosen; every entry stands here with what it has to do, and answers ECH_E_UNSUPPORTED. */
#include "echi_backends.h"
#include "echi_error.h"

static ech_status unsupported(const char *entry, struct ech_error *err) {
    return echi_fail(err, ECH_E_UNSUPPORTED, "device.null", "the backend 'null' is a skeleton and has no %s; choose 'cpu'", entry);
}

/* Load the runtime here, once; 0 when it is missing. Called often: remember the answer. */
static int null_device_count(void) { return 0; }

/* Fill name, memory and compute_units from the runtime. */
static ech_status null_device_info(int index, struct echi_device_info *out, struct ech_error *err) {
    (void)index, (void)out;
    return unsupported("device_info", err);
}

/* Everything that is made once per device: context, compiled kernels. On failure nothing stays behind. */
static ech_status null_device_open(int index, int threads, void **out_impl, struct ech_error *err) {
    (void)index, (void)threads, (void)out_impl;
    return unsupported("device_open", err);
}

/* The reverse of device_open; buffers and queues are gone by then. */
static void null_device_close(void *impl) { (void)impl; }

/* bytes is at least 1; the memory must be zeroed. */
static ech_status null_buffer_create(void *impl, size_t bytes, void **out_memory, struct ech_error *err) {
    (void)impl, (void)bytes, (void)out_memory;
    return unsupported("buffer_create", err);
}

/* Also for wrapped memory, whose bytes stay the caller's. */
static void null_buffer_destroy(void *impl, void *memory) { (void)impl, (void)memory; }

/* NULL, unless host and device see the same bytes without a copy. */
static void *null_buffer_host(void *impl, void *memory) {
    (void)impl, (void)memory;
    return NULL;
}

/* Leave this entry out of the table when the device cannot use the host's memory. */
static ech_status null_buffer_wrap(void *impl, void *host, size_t bytes, void **out_memory, struct ech_error *err) {
    (void)impl, (void)host, (void)bytes, (void)out_memory;
    return unsupported("buffer_wrap", err);
}

/* Leave these three out when device_info says host_memory. */
static ech_status null_pinned_create(void *impl, size_t bytes, void **out_memory, struct ech_error *err) {
    (void)impl, (void)bytes, (void)out_memory;
    return unsupported("pinned_create", err);
}

static void null_pinned_destroy(void *impl, void *memory) { (void)impl, (void)memory; }

static void *null_pinned_host(void *impl, void *memory) {
    (void)impl, (void)memory;
    return NULL;
}

/* Work of one queue is done in the order of submission; two queues may overlap. */
static ech_status null_queue_create(void *impl, void **out_queue, struct ech_error *err) {
    (void)impl, (void)out_queue;
    return unsupported("queue_create", err);
}

/* Waits for what was submitted. */
static void null_queue_destroy(void *impl, void *queue) { (void)impl, (void)queue; }

/* The host memory may be reused only once an event taken after this call is done. */
static ech_status null_queue_write(void *impl, void *queue, void *memory, size_t at, const void *host, size_t bytes,
                                   struct ech_error *err) {
    (void)impl, (void)queue, (void)memory, (void)at, (void)host, (void)bytes;
    return unsupported("queue_write", err);
}

static ech_status null_queue_read(void *impl, void *queue, const void *memory, size_t at, void *host, size_t bytes,
                                  struct ech_error *err) {
    (void)impl, (void)queue, (void)memory, (void)at, (void)host, (void)bytes;
    return unsupported("queue_read", err);
}

/* Within the device; ranges of one buffer never overlap. */
static ech_status null_queue_copy(void *impl, void *queue, void *to, size_t to_at, const void *from, size_t from_at, size_t bytes,
                                  struct ech_error *err) {
    (void)impl, (void)queue, (void)to, (void)to_at, (void)from, (void)from_at, (void)bytes;
    return unsupported("queue_copy", err);
}

/* A function of the host: leave this entry out when the device is another processor. */
static ech_status null_queue_run(void *impl, void *queue, echi_host_kernel kernel, void *args, struct ech_error *err) {
    (void)impl, (void)queue, (void)kernel, (void)args;
    return unsupported("queue_run", err);
}

/* Leave these out when the device is the host. `source` has its text in the language of ops/gpu/prelude.cl, for which the new backend may
 * need lines of its own. */
static ech_status null_program_create(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err) {
    (void)impl, (void)source, (void)out_program;
    return unsupported("program_create", err);
}

/* What program_binary gave, in an earlier run, on this device and driver: no more than a shorter way to the same program. */
static ech_status null_program_load(void *impl, const void *bytes, size_t len, void **out_program, struct ech_error *err) {
    (void)impl, (void)bytes, (void)len, (void)out_program;
    return unsupported("program_load", err);
}

static void null_program_binary(void *impl, void *program, void **out_bytes, size_t *out_len) {
    (void)impl, (void)program;
    *out_bytes = NULL;
    *out_len = 0;
}

static void null_program_destroy(void *impl, void *program) { (void)impl, (void)program; }

static ech_status null_kernel_create(void *impl, void *program, const char *name, void **out_kernel, struct ech_error *err) {
    (void)impl, (void)program, (void)name, (void)out_kernel;
    return unsupported("kernel_create", err);
}

static void null_kernel_destroy(void *impl, void *kernel) { (void)impl, (void)kernel; }

/* Values are read before this returns. */
static ech_status null_queue_launch(void *impl, void *queue, void *kernel, const struct echi_argument *args, void *const *memory, int count,
                                    const struct echi_launch *how, struct ech_error *err) {
    (void)impl, (void)queue, (void)kernel, (void)args, (void)memory, (void)count, (void)how;
    return unsupported("queue_launch", err);
}

/* The number that the queue reaches when everything submitted so far is done; never decreases. */
static ech_status null_queue_event(void *impl, void *queue, echi_event *out, struct ech_error *err) {
    (void)impl, (void)queue, (void)out;
    return unsupported("queue_event", err);
}

/* Never blocks. */
static bool null_event_done(void *impl, void *queue, echi_event event) {
    (void)impl, (void)queue, (void)event;
    return false;
}

/* The one entry that may block, until `deadline` on the clock of echi_now: then ECH_E_TIMEOUT. */
static ech_status null_event_wait(void *impl, void *queue, echi_event event, int64_t deadline, struct ech_error *err) {
    (void)impl, (void)queue, (void)event, (void)deadline;
    return unsupported("event_wait", err);
}

const struct echi_backend echi_backend_null = {
    .name = "null",
    .device_count = null_device_count,
    .device_info = null_device_info,
    .device_open = null_device_open,
    .device_close = null_device_close,
    .buffer_create = null_buffer_create,
    .buffer_destroy = null_buffer_destroy,
    .buffer_host = null_buffer_host,
    .buffer_wrap = null_buffer_wrap,
    .pinned_create = null_pinned_create,
    .pinned_destroy = null_pinned_destroy,
    .pinned_host = null_pinned_host,
    .queue_create = null_queue_create,
    .queue_destroy = null_queue_destroy,
    .queue_write = null_queue_write,
    .queue_read = null_queue_read,
    .queue_copy = null_queue_copy,
    .queue_run = null_queue_run,
    .program_create = null_program_create,
    .program_load = null_program_load,
    .program_binary = null_program_binary,
    .program_destroy = null_program_destroy,
    .kernel_create = null_kernel_create,
    .kernel_destroy = null_kernel_destroy,
    .queue_launch = null_queue_launch,
    .queue_event = null_queue_event,
    .event_done = null_event_done,
    .event_wait = null_event_wait,
};
