/* SPDX-License-Identifier: Apache-2.0
 * The CPU as a device: memory is host memory, a queue does each piece of work when it is submitted, in the caller's
 * thread. So an event is reached when it is taken, and nothing here can ever block. The kernels of ops share their work among its team. */
#include "echi_backends.h"
#include "echi_error.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text is long on machines with many cores, but the name stands in the first few lines of each. */
#define CPUINFO_MOST ((size_t)16 << 20)

struct cpu_memory {
    void *host;
    bool ours;      /* false: wrapped, the caller frees it */
};
struct cpu_queue {
    echi_event submitted;
};

static int cpu_device_count(void) { return 1; }

/* Model name as Linux gives it for the first processor; "CPU" where it gives none (ARM). */
static void model_name(char *out, size_t cap) {
    snprintf(out, cap, "CPU");
    uint8_t *text = NULL;
    size_t len = 0;
    if (echi_file_read("/proc/cpuinfo", CPUINFO_MOST, &text, &len, NULL) != ECH_OK) return;
    static const char key[] = "model name";
    for (size_t at = 0; at + sizeof key < len;) {
        const uint8_t *newline = memchr(text + at, '\n', len - at);
        size_t end = newline != NULL ? (size_t)(newline - text) : len;
        const uint8_t *colon = memchr(text + at, ':', end - at);
        if (colon != NULL && memcmp(text + at, key, sizeof key - 1) == 0) {
            size_t value = (size_t)(colon - text) + 1;
            while (value < end && text[value] == ' ') value++;
            if (value < end) snprintf(out, cap, "%.*s", (int)(end - value < cap ? end - value : cap), (const char *)text + value);
            break;
        }
        at = end + 1;
    }
    free(text);
}

static ech_status cpu_device_info(int index, struct echi_device_info *out, struct ech_error *err) {
    (void)index;
    (void)err;
    static const char *const level[] = {[ECHI_CPU_BASE] = "base", [ECHI_CPU_AVX2] = "AVX2", [ECHI_CPU_AVX512] = "AVX-512"};
    char model[48];
    model_name(model, sizeof model);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s, %s", model, level[echi_cpu_level()]);
    snprintf(out->backend, sizeof out->backend, "cpu");
    out->compute_units = echi_cpu_count();
    out->host_memory = true;
    return ECH_OK;
}

/* All that is held for a device is its team. */
static ech_status cpu_device_open(int index, int threads, void **out_impl, struct ech_error *err) {
    (void)index;
    struct echi_team *team = NULL;
    ech_status status = echi_team_create(threads, &team, err);
    *out_impl = team;
    return status;
}

static void cpu_device_close(void *impl) { echi_team_destroy(impl); }
static struct echi_team *cpu_device_team(void *impl) { return impl; }

static ech_status cpu_buffer_create(void *impl, size_t bytes, void **out_memory, struct ech_error *err) {
    (void)impl;
    struct cpu_memory *memory = malloc(sizeof *memory);
    void *host = memory != NULL ? echi_alloc_aligned(bytes) : NULL;
    if (host == NULL) {
        free(memory);
        return echi_fail(err, ECH_E_MEMORY, "buffer.create", "no memory for a buffer of %zu bytes; use a smaller batch or model", bytes);
    }
    *memory = (struct cpu_memory){.host = host, .ours = true};
    *out_memory = memory;
    return ECH_OK;
}

static ech_status cpu_buffer_wrap(void *impl, void *host, size_t bytes, void **out_memory, struct ech_error *err) {
    (void)impl;
    (void)bytes;
    struct cpu_memory *memory = malloc(sizeof *memory);
    if (memory == NULL) return echi_fail_memory(err, "buffer.wrap", "a buffer");
    *memory = (struct cpu_memory){.host = host, .ours = false};
    *out_memory = memory;
    return ECH_OK;
}

static void cpu_buffer_destroy(void *impl, void *memory) {
    (void)impl;
    struct cpu_memory *m = memory;
    if (m->ours) echi_free_aligned(m->host);
    free(m);
}

static void *cpu_buffer_host(void *impl, void *memory) {
    (void)impl;
    return ((struct cpu_memory *)memory)->host;
}

static ech_status cpu_queue_create(void *impl, void **out_queue, struct ech_error *err) {
    (void)impl;
    struct cpu_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) return echi_fail_memory(err, "queue.create", "a queue");
    *out_queue = queue;
    return ECH_OK;
}

static void cpu_queue_destroy(void *impl, void *queue) {
    (void)impl;
    free(queue);
}

static uint8_t *place(const void *memory, size_t at) { return (uint8_t *)((const struct cpu_memory *)memory)->host + at; }
static void submitted(void *queue) { ((struct cpu_queue *)queue)->submitted++; }

static ech_status cpu_queue_write(void *impl, void *queue, void *memory, size_t at, const void *host, size_t bytes,
                                  struct ech_error *err) {
    (void)impl;
    (void)err;
    memmove(place(memory, at), host, bytes);    /* a caller may write from the buffer's own host memory */
    submitted(queue);
    return ECH_OK;
}

static ech_status cpu_queue_read(void *impl, void *queue, const void *memory, size_t at, void *host, size_t bytes,
                                 struct ech_error *err) {
    (void)impl;
    (void)err;
    memmove(host, place(memory, at), bytes);
    submitted(queue);
    return ECH_OK;
}

static ech_status cpu_queue_copy(void *impl, void *queue, void *to, size_t to_at, const void *from, size_t from_at, size_t bytes,
                                 struct ech_error *err) {
    (void)impl;
    (void)err;
    memmove(place(to, to_at), place(from, from_at), bytes);     /* two wrapped buffers may share memory */
    submitted(queue);
    return ECH_OK;
}

static ech_status cpu_queue_run(void *impl, void *queue, echi_host_kernel kernel, void *args, struct ech_error *err) {
    (void)impl;
    (void)err;
    kernel(args);
    submitted(queue);
    return ECH_OK;
}

static ech_status cpu_queue_event(void *impl, void *queue, echi_event *out, struct ech_error *err) {
    (void)impl;
    (void)err;
    *out = ((struct cpu_queue *)queue)->submitted;
    return ECH_OK;
}

static bool cpu_event_done(void *impl, void *queue, echi_event event) {
    (void)impl;
    return event <= ((struct cpu_queue *)queue)->submitted;
}

static ech_status cpu_event_wait(void *impl, void *queue, echi_event event, int64_t deadline, struct ech_error *err) {
    (void)deadline;
    if (cpu_event_done(impl, queue, event)) return ECH_OK;
    return echi_hal_event_unknown("event.wait", event, ((struct cpu_queue *)queue)->submitted, err);
}

const struct echi_backend echi_backend_cpu = {
    .name = "cpu",
    .device_count = cpu_device_count,
    .device_info = cpu_device_info,
    .device_open = cpu_device_open,
    .device_close = cpu_device_close,
    .device_team = cpu_device_team,
    .buffer_create = cpu_buffer_create,
    .buffer_destroy = cpu_buffer_destroy,
    .buffer_host = cpu_buffer_host,
    .buffer_wrap = cpu_buffer_wrap,
    .queue_create = cpu_queue_create,
    .queue_destroy = cpu_queue_destroy,
    .queue_write = cpu_queue_write,
    .queue_read = cpu_queue_read,
    .queue_copy = cpu_queue_copy,
    .queue_run = cpu_queue_run,
    .queue_event = cpu_queue_event,
    .event_done = cpu_event_done,
    .event_wait = cpu_event_wait,
};
