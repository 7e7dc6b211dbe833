/* SPDX-License-Identifier: Apache-2.0
 * The checked functions over a backend's table. They are its only callers: a backend never sees a NULL, an offset past
 * the end or a buffer of another device, and a caller never sees a table. */
#include "echi_hal_impl.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ech_status echi_hal_no_entry(const struct echi_backend *backend, const char *entry, struct ech_error *err) {
    return echi_fail(err, ECH_E_UNSUPPORTED, "device",
                     "the backend '%s' does not supply %s; choose another device, 'cpu' is always there", backend->name, entry);
}

ech_status echi_hal_event_unknown(const char *operation, echi_event event, echi_event taken, struct ech_error *err) {
    return echi_fail(err, ECH_E_ARGUMENT, operation, "event %llu was not taken from this queue, which is at %llu",
                     (unsigned long long)event, (unsigned long long)taken);
}

ech_status echi_hal_missing(const char *operation, const char *what, struct ech_error *err) {
    return echi_fail(err, ECH_E_ARGUMENT, operation, "%s is NULL", what);
}

/* --- devices --- */

static int devices_of(const struct echi_backend *backend) { return backend->device_count == NULL ? 0 : backend->device_count(); }

int echi_device_count(const char *name) {
    for (int i = 0; i < echi_backend_count(); i++)
        if (strcmp(echi_backend_at(i)->name, name) == 0) return devices_of(echi_backend_at(i));
    return 0;
}

/* Has a backend before number b listed the card with this address? */
static bool listed(const char *pci, int b) {
    for (int i = 0; i < b && pci[0] != '\0'; i++) {
        const struct echi_backend *backend = echi_backend_at(i);
        for (int d = 0; d < devices_of(backend); d++) {
            struct echi_device_info info;
            if (backend->device_info(d, &info, NULL) == ECH_OK && strcmp(info.pci, pci) == 0) return true;
        }
    }
    return false;
}

bool echi_device_at(int i, char *spec, size_t cap, struct echi_device_info *out) {
    for (int b = 0; b < echi_backend_count(); b++) {
        const struct echi_backend *backend = echi_backend_at(b);
        const int n = devices_of(backend);
        for (int d = 0; d < n; d++) {
            if (backend->device_info(d, out, NULL) != ECH_OK || listed(out->pci, b) || i-- > 0) continue;
            snprintf(spec, cap, "%s:%d", backend->name, d);
            return true;
        }
    }
    return false;
}

/* "cuda:0, cuda:1, cpu:0": the devices that can be opened now. */
static void list_devices(char *text, size_t cap) {
    struct echi_device_info info;
    char spec[32];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; used < cap && echi_device_at(i, spec, sizeof spec, &info); i++) {
        int wrote = snprintf(text + used, cap - used, "%s%s", used > 0 ? ", " : "", spec);
        if (wrote < 0) return;
        used += (size_t)wrote;
    }
}

static void list_backends(char *text, size_t cap) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < echi_backend_count() && used < cap; i++) {
        int wrote = snprintf(text + used, cap - used, "%s%s", used > 0 ? ", " : "", echi_backend_at(i)->name);
        if (wrote < 0) return;
        used += (size_t)wrote;
    }
}

/* The index after the colon of a spec: digits only. -1 when it is not a number below a million. */
static int parse_index(const char *digits) {
    int index = 0;
    if (*digits == '\0') return -1;
    for (; *digits != '\0'; digits++) {
        if (*digits < '0' || *digits > '9' || index >= 100000) return -1;
        index = index * 10 + (*digits - '0');
    }
    return index;
}

ech_status echi_device_open(const char *spec, int threads, struct echi_device **out, struct ech_error *err) {
    if (spec == NULL) return echi_hal_missing("device.open", "spec", err);
    if (out == NULL) return echi_hal_missing("device.open", "out", err);
    *out = NULL;

    const char *colon = strchr(spec, ':');
    size_t name_len = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    int index = colon != NULL ? parse_index(colon + 1) : 0;
    if (index < 0)
        return echi_fail(err, ECH_E_ARGUMENT, "device.open", "device '%.60s': after the colon comes a number, as in 'cpu:0'", spec);

    for (int i = 0; i < echi_backend_count(); i++) {
        const struct echi_backend *backend = echi_backend_at(i);
        if (strlen(backend->name) != name_len || memcmp(backend->name, spec, name_len) != 0) continue;
        if (index < devices_of(backend)) return echi_device_open_on(backend, index, threads, out, err);
        char there[160];
        list_devices(there, sizeof there);
        const char *why = devices_of(backend) == 0 && backend->none_why != NULL ? backend->none_why() : "";
        return echi_fail(err, ECH_E_UNSUPPORTED, "device.open",
                         "device '%.60s': '%s' has %d device(s) on this machine%s%s; there are: %s", spec, backend->name,
                         devices_of(backend), *why ? ": " : "", why, there);
    }
    char known[160];
    list_backends(known, sizeof known);
    return echi_fail(err, ECH_E_ARGUMENT, "device.open", "device '%.60s' is not known; choose one of: %s", spec, known);
}

ech_status echi_device_open_at(const char *spec, int threads, enum echi_cpu_level level, struct echi_device **out, struct ech_error *err) {
    if (out != NULL) *out = NULL;
    if (level > echi_cpu_level())
        return echi_fail(err, ECH_E_UNSUPPORTED, "device.open",
                         "the instruction set %s was asked for, and this processor has no more than %s",
                         echi_cpu_level_name(level), echi_cpu_level_name(echi_cpu_level()));
    ECHI_TRY(echi_device_open(spec, threads, out, err));
    (*out)->level = level;
    return ECH_OK;
}

ech_status echi_device_open_on(const struct echi_backend *backend, int index, int threads, struct echi_device **out,
                               struct ech_error *err) {
    *out = NULL;
    if (threads < 1) return echi_fail(err, ECH_E_ARGUMENT, "device.open", "%d threads: at least 1 is needed", threads);
    NEED(backend, device_info, err);
    NEED(backend, device_open, err);
    struct echi_device *device = calloc(1, sizeof *device);
    if (device == NULL) return echi_fail_memory(err, "device.open", "a device");
    device->backend = backend;
    device->threads = threads;
    device->level = echi_cpu_level();
    ech_status status = backend->device_info(index, &device->info, err);
    if (status == ECH_OK) status = backend->device_open(index, threads, &device->impl, err);
    if (status != ECH_OK) {
        free(device);
        return status;
    }
    *out = device;
    return ECH_OK;
}

void echi_device_close(struct echi_device *device) {
    if (device == NULL) return;
    echi_programs_destroy(device);
    free(device->keep);
    if (device->backend->device_close != NULL) device->backend->device_close(device->impl);
    free(device);
}

const struct echi_device_info *echi_device_describe(const struct echi_device *device) { return &device->info; }
size_t echi_device_memory_free(const struct echi_device *device) {
    return device->backend->memory_free ? device->backend->memory_free(device->impl) : 0;
}
int echi_device_threads(const struct echi_device *device) { return device->threads; }
enum echi_cpu_level echi_device_level(const struct echi_device *device) { return device->level; }
struct echi_team *echi_device_team(const struct echi_device *device) {
    return device->backend->device_team ? device->backend->device_team(device->impl) : NULL;
}

/* --- memory --- */

/* Takes over `memory`, which is given back to the backend when there is no room for the handle. */
static ech_status hold_buffer(struct echi_device *device, void *memory, size_t bytes, struct echi_buffer **out, struct ech_error *err) {
    const struct echi_backend *backend = device->backend;
    struct echi_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        if (backend->buffer_destroy != NULL) backend->buffer_destroy(device->impl, memory);
        return echi_fail_memory(err, "buffer.create", "a buffer");
    }
    buffer->device = device;
    buffer->memory = memory;
    buffer->bytes = bytes;
    buffer->host = backend->buffer_host != NULL ? backend->buffer_host(device->impl, memory) : NULL;
    *out = buffer;
    return ECH_OK;
}

ech_status echi_buffer_create(struct echi_device *device, size_t bytes, struct echi_buffer **out, struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("buffer.create", "out", err);
    *out = NULL;
    if (device == NULL) return echi_hal_missing("buffer.create", "device", err);
    NEED(device->backend, buffer_create, err);
    void *memory = NULL;
    /* A model without parameters has a buffer of no bytes; no backend needs to know about that. */
    ECHI_TRY(device->backend->buffer_create(device->impl, bytes > 0 ? bytes : 1, &memory, err));
    return hold_buffer(device, memory, bytes, out, err);
}

ech_status echi_buffer_create_pinned(struct echi_device *device, size_t bytes, struct echi_buffer **out, struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("buffer.pinned", "out", err);
    *out = NULL;
    if (device == NULL) return echi_hal_missing("buffer.pinned", "device", err);
    if (device->info.host_memory) return echi_buffer_create(device, bytes, out, err);
    const struct echi_backend *backend = device->backend;
    NEED(backend, pinned_create, err);
    void *memory = NULL;
    struct echi_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) return echi_fail_memory(err, "buffer.pinned", "a buffer");
    ech_status status = backend->pinned_create(device->impl, bytes > 0 ? bytes : 1, &memory, err);
    if (status != ECH_OK) {
        free(buffer);
        return status;
    }
    *buffer = (struct echi_buffer){.device = device, .memory = memory, .host = backend->pinned_host(device->impl, memory), .bytes = bytes,
                                   .of_host = true, .pinned = true};
    *out = buffer;
    return ECH_OK;
}

ech_status echi_buffer_create_host(struct echi_device *device, size_t bytes, struct echi_buffer **out, struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("buffer.host", "out", err);
    *out = NULL;
    if (device == NULL) return echi_hal_missing("buffer.host", "device", err);
    if (device->info.host_memory) return echi_buffer_create(device, bytes, out, err);
    struct echi_buffer *buffer = calloc(1, sizeof *buffer);
    void *memory = echi_alloc_aligned(bytes > 0 ? bytes : 1);
    if (buffer == NULL || memory == NULL) {
        free(buffer);
        echi_free_aligned(memory);
        return echi_fail(err, ECH_E_MEMORY, "buffer.host", "no memory for a buffer of %zu bytes; use a smaller batch or model", bytes);
    }
    *buffer = (struct echi_buffer){.device = device, .memory = memory, .host = memory, .bytes = bytes, .of_host = true};
    *out = buffer;
    return ECH_OK;
}

ech_status echi_buffer_create_spans(struct echi_device *device, size_t bytes, const struct echi_span *spans, int count,
                                    struct echi_buffer **out, struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("buffer.spans", "out", err);
    *out = NULL;
    if (device == NULL) return echi_hal_missing("buffer.spans", "device", err);
    uint8_t *host = echi_reserve(bytes);
    size_t held = 0;
    bool there = host != NULL;
    for (int i = 0; i < count; i++) held += spans[i].len;
    for (int i = 0; i < count && there; i++) there = echi_reserve_take(host, spans[i].at, spans[i].len);
    ech_status status = there ? ECH_OK : echi_fail(err, ECH_E_MEMORY, "buffer.spans",
                                                   "no memory for a buffer of %zu bytes; use a smaller batch or model", held);
    if (status == ECH_OK && device->info.host_memory) {
        status = echi_buffer_wrap(device, host, bytes, out, err);
    } else if (status == ECH_OK) {
        *out = calloc(1, sizeof **out);
        if (*out == NULL) status = echi_fail_memory(err, "buffer.spans", "a buffer");
        else **out = (struct echi_buffer){.device = device, .memory = host, .host = host, .bytes = bytes, .of_host = true};
    }
    if (status != ECH_OK) {
        echi_release(host, bytes);
        return status;
    }
    (*out)->reserved = true;
    (*out)->held = held;
    return ECH_OK;
}

size_t echi_buffer_held(const struct echi_buffer *buffer) { return buffer->reserved ? buffer->held : buffer->bytes; }

ech_status echi_buffer_wrap(struct echi_device *device, void *host, size_t bytes, struct echi_buffer **out, struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("buffer.wrap", "out", err);
    *out = NULL;
    if (device == NULL) return echi_hal_missing("buffer.wrap", "device", err);
    if (host == NULL) return echi_hal_missing("buffer.wrap", "the memory to wrap", err);
    NEED(device->backend, buffer_wrap, err);
    void *memory = NULL;
    ECHI_TRY(device->backend->buffer_wrap(device->impl, host, bytes, &memory, err));
    return hold_buffer(device, memory, bytes, out, err);
}

void echi_buffer_destroy(struct echi_buffer *buffer) {
    if (buffer == NULL) return;
    const struct echi_device *device = buffer->device;
    if (buffer->pinned) device->backend->pinned_destroy(device->impl, buffer->memory);
    else if (buffer->of_host && !buffer->reserved) echi_free_aligned(buffer->memory);
    else if (!buffer->of_host && device->backend->buffer_destroy != NULL) device->backend->buffer_destroy(device->impl, buffer->memory);
    if (buffer->reserved) echi_release(buffer->host, buffer->bytes);
    free(buffer);
}

size_t echi_buffer_bytes(const struct echi_buffer *buffer) { return buffer->bytes; }
void *echi_buffer_host(const struct echi_buffer *buffer) { return buffer->host; }

/* --- queues and events --- */

ech_status echi_queue_create(struct echi_device *device, struct echi_queue **out, struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("queue.create", "out", err);
    *out = NULL;
    if (device == NULL) return echi_hal_missing("queue.create", "device", err);
    NEED(device->backend, queue_create, err);
    struct echi_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) return echi_fail_memory(err, "queue.create", "a queue");
    queue->device = device;
    ech_status status = device->backend->queue_create(device->impl, &queue->impl, err);
    if (status != ECH_OK) {
        free(queue);
        return status;
    }
    *out = queue;
    return ECH_OK;
}

void echi_queue_destroy(struct echi_queue *queue) {
    if (queue == NULL) return;
    const struct echi_device *device = queue->device;
    if (device->backend->queue_destroy != NULL) device->backend->queue_destroy(device->impl, queue->impl);
    free(queue);
}

/* [at, at + bytes) must lie in a buffer of the queue's device. */
static ech_status check_range(const struct echi_queue *q, const struct echi_buffer *buffer, size_t at, size_t bytes,
                              const char *operation, struct ech_error *err) {
    if (q == NULL) return echi_hal_missing(operation, "queue", err);
    if (buffer == NULL) return echi_hal_missing(operation, "buffer", err);
    if (buffer->device != q->device)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "the buffer is on another device (%s) than the queue (%s)",
                         buffer->device->info.name, q->device->info.name);
    if (buffer->of_host)
        return echi_fail(err, ECH_E_ARGUMENT, operation,
                         "the buffer is memory of the host; give what echi_buffer_host says as the host's end");
    if (at > buffer->bytes || bytes > buffer->bytes - at)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%zu bytes at %zu do not fit in a buffer of %zu bytes", bytes, at,
                         buffer->bytes);
    return ECH_OK;
}

ech_status echi_queue_write(struct echi_queue *q, struct echi_buffer *to, size_t at, const void *host, size_t bytes,
                            struct ech_error *err) {
    ECHI_TRY(check_range(q, to, at, bytes, "queue.write", err));
    if (bytes == 0) return ECH_OK;
    if (host == NULL) return echi_hal_missing("queue.write", "the memory to read", err);
    NEED(q->device->backend, queue_write, err);
    return q->device->backend->queue_write(q->device->impl, q->impl, to->memory, at, host, bytes, err);
}

ech_status echi_queue_read(struct echi_queue *q, const struct echi_buffer *from, size_t at, void *host, size_t bytes,
                           struct ech_error *err) {
    ECHI_TRY(check_range(q, from, at, bytes, "queue.read", err));
    if (bytes == 0) return ECH_OK;
    if (host == NULL) return echi_hal_missing("queue.read", "the memory to fill", err);
    NEED(q->device->backend, queue_read, err);
    return q->device->backend->queue_read(q->device->impl, q->impl, from->memory, at, host, bytes, err);
}

ech_status echi_queue_copy(struct echi_queue *q, struct echi_buffer *to, size_t to_at, const struct echi_buffer *from,
                           size_t from_at, size_t bytes, struct ech_error *err) {
    ECHI_TRY(check_range(q, to, to_at, bytes, "queue.copy", err));
    ECHI_TRY(check_range(q, from, from_at, bytes, "queue.copy", err));
    if (bytes == 0) return ECH_OK;
    /* Devices differ in what an overlapping copy leaves behind, so none is allowed to show it. */
    if (to == from && to_at < from_at + bytes && from_at < to_at + bytes)
        return echi_fail(err, ECH_E_ARGUMENT, "queue.copy", "%zu bytes from %zu to %zu of one buffer overlap", bytes, from_at, to_at);
    NEED(q->device->backend, queue_copy, err);
    return q->device->backend->queue_copy(q->device->impl, q->impl, to->memory, to_at, from->memory, from_at, bytes, err);
}

ech_status echi_queue_run(struct echi_queue *q, echi_host_kernel kernel, void *args, struct ech_error *err) {
    if (q == NULL) return echi_hal_missing("queue.run", "queue", err);
    if (kernel == NULL) return echi_hal_missing("queue.run", "kernel", err);
    NEED(q->device->backend, queue_run, err);
    return q->device->backend->queue_run(q->device->impl, q->impl, kernel, args, err);
}

ech_status echi_queue_event(struct echi_queue *q, echi_event *out, struct ech_error *err) {
    if (q == NULL) return echi_hal_missing("queue.event", "queue", err);
    if (out == NULL) return echi_hal_missing("queue.event", "out", err);
    *out = 0;
    NEED(q->device->backend, queue_event, err);
    return q->device->backend->queue_event(q->device->impl, q->impl, out, err);
}

ech_status echi_queue_after(struct echi_queue *q, struct echi_queue *other, echi_event event, struct ech_error *err) {
    if (q == NULL || other == NULL) return echi_hal_missing("queue.after", "queue", err);
    if (q->device != other->device) return echi_fail(err, ECH_E_ARGUMENT, "queue.after", "the queues are of two devices");
    NEED(q->device->backend, queue_after, err);
    return q->device->backend->queue_after(q->device->impl, q->impl, other->impl, event, err);
}

bool echi_event_done(struct echi_queue *q, echi_event event) {
    if (q == NULL || q->device->backend->event_done == NULL) return false;
    return q->device->backend->event_done(q->device->impl, q->impl, event);
}

ech_status echi_event_wait(struct echi_queue *q, echi_event event, int64_t deadline, struct ech_error *err) {
    if (q == NULL) return echi_hal_missing("event.wait", "queue", err);
    NEED(q->device->backend, event_wait, err);
    return q->device->backend->event_wait(q->device->impl, q->impl, event, deadline, err);
}
