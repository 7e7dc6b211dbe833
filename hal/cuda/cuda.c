/* SPDX-License-Identifier: Apache-2.0
 * The backend 'cuda': devices, memory and streams of NVIDIA's driver. Nothing waits but event_wait, queue_destroy, the creation and freeing
 * of memory, and copies to and from memory of the host that is not pinned, which the driver makes of its own staging. */
#include "echi_backends.h"
#include "echi_cuda.h"
#include "echi_error.h"
#include "echi_os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUresult echi_cuda_enter(const struct echi_cuda_device *d) { return d->cu->cuCtxPushCurrent_v2(d->context); }

void echi_cuda_leave(const struct echi_cuda_device *d) {
    CUcontext left;
    (void)d->cu->cuCtxPopCurrent_v2(&left);
}

/* --- devices --- */

static int cuda_device_count(void) { return echi_cuda_runtime()->count; }
static const char *cuda_none_why(void) { return echi_cuda_runtime()->why; }

static ech_status cuda_device_info(int index, struct echi_device_info *out, struct ech_error *err) {
    (void)err;
    const struct echi_cuda_runtime *r = echi_cuda_runtime();
    const struct echi_cuda_calls *cu = &r->cu;
    const CUdevice device = r->at[index];
    memset(out, 0, sizeof *out);
    snprintf(out->backend, sizeof out->backend, "cuda");
    if (cu->cuDeviceGetName(out->name, (int)sizeof out->name, device) != CUDA_SUCCESS || out->name[0] == '\0')
        snprintf(out->name, sizeof out->name, "a device without a name");
    out->name[sizeof out->name - 1] = '\0';
    snprintf(out->driver, sizeof out->driver, "CUDA %d.%d", r->version / 1000, r->version % 1000 / 10);
    if (cu->cuDeviceTotalMem_v2(&out->memory, device) != CUDA_SUCCESS) out->memory = 0;
    out->gpu = true;
    const int units = echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    out->compute_units = units > 0 ? units : 1;
    out->capability = echi_cuda_capability(cu, device);
    const int shared = echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    out->shared_most = shared > 0 ? (size_t)shared : 0;
    const int domain = echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    const int bus = echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    const int slot = echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    if (domain || bus || slot) snprintf(out->pci, sizeof out->pci, "%04x:%02x:%02x.0", domain & 0xffff, bus & 0xff, slot & 0xff);
    return ECH_OK;
}

static void cuda_device_close(void *impl) {
    struct echi_cuda_device *d = impl;
    CUresult code = CUDA_SUCCESS;
    if (d->own) ECHI_CUDA_IN(d, code, d->cu->cuStreamDestroy_v2(d->own));
    (void)code;   /* of a device that is gone nothing is left */
    if (d->context) d->cu->cuDevicePrimaryCtxRelease(d->device);
    echi_team_destroy(d->team);
    free(d);
}

/* The driver starts threads of its own, which leave the program's signals alone. */
static ech_status open_context(struct echi_cuda_device *d, struct ech_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    CUresult code = d->cu->cuDevicePrimaryCtxRetain(&d->context, d->device);
    if (code != CUDA_SUCCESS) d->context = NULL;
    else ECHI_CUDA_IN(d, code, d->cu->cuStreamCreate(&d->own, CU_STREAM_NON_BLOCKING));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == CUDA_SUCCESS ? ECH_OK : echi_cuda_fail(d->cu, code, "device.open", "opening the device", err);
}

static ech_status cuda_device_open(int index, int threads, void **out_impl, struct ech_error *err) {
    const struct echi_cuda_runtime *r = echi_cuda_runtime();
    struct echi_cuda_device *d = calloc(1, sizeof *d);
    if (d == NULL) return echi_fail_memory(err, "device.open", "a device");
    d->cu = &r->cu;
    d->device = r->at[index];
    ech_status status = open_context(d, err);
    if (status == ECH_OK) status = echi_team_create(threads, &d->team, err);
    if (status != ECH_OK) {
        cuda_device_close(d);
        return status;
    }
    d->capability = echi_cuda_capability(d->cu, d->device);
    static const CUdevice_attribute most[3] = {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                               CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
    for (int i = 0; i < 3; i++) d->groups_most[i] = (unsigned)echi_cuda_ask(d->cu, d->device, most[i]);
    *out_impl = d;
    return ECH_OK;
}

static struct echi_team *cuda_device_team(void *impl) { return ((struct echi_cuda_device *)impl)->team; }

/* --- memory. A buffer's handle is its address on the device. --- */

static CUdeviceptr address_of(const void *memory) { return (CUdeviceptr)(uintptr_t)memory; }

static size_t cuda_memory_free(void *impl) {
    const struct echi_cuda_device *d = impl;
    size_t left = 0, all = 0;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemGetInfo_v2(&left, &all));
    return code == CUDA_SUCCESS ? left : 0;
}

static ech_status cuda_buffer_create(void *impl, size_t bytes, void **out_memory, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    CUdeviceptr at = 0;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemAlloc_v2(&at, bytes));
    if (code != CUDA_SUCCESS) return echi_cuda_fail(d->cu, code, "buffer.create", "a buffer", err);
    ECHI_CUDA_IN(d, code, d->cu->cuMemsetD8Async(at, 0, bytes, d->own));
    if (code == CUDA_SUCCESS) ECHI_CUDA_IN(d, code, d->cu->cuStreamSynchronize(d->own));
    if (code != CUDA_SUCCESS) {
        CUresult freed;
        ECHI_CUDA_IN(d, freed, d->cu->cuMemFree_v2(at));
        (void)freed;
        return echi_cuda_fail(d->cu, code, "buffer.create", "zeroing a buffer", err);
    }
    *out_memory = (void *)(uintptr_t)at;
    return ECH_OK;
}

static void cuda_buffer_destroy(void *impl, void *memory) {
    const struct echi_cuda_device *d = impl;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemFree_v2(address_of(memory)));
    (void)code;
}

static ech_status cuda_pinned_create(void *impl, size_t bytes, void **out_memory, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    void *host = NULL;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemHostAlloc(&host, bytes, 0));
    if (code != CUDA_SUCCESS) return echi_cuda_fail(d->cu, code, "buffer.pinned", "pinned memory of the host", err);
    memset(host, 0, bytes);
    *out_memory = host;
    return ECH_OK;
}

static void cuda_pinned_destroy(void *impl, void *memory) {
    const struct echi_cuda_device *d = impl;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemFreeHost(memory));
    (void)code;
}

static void *cuda_pinned_host(void *impl, void *memory) {
    (void)impl;
    return memory;
}

/* --- queues --- */

/* Marks in a queue's work. They are reached in order, so of many only the last MARKS are kept: an older number counts as reached when the
 * oldest of these is. */
#define MARKS 64
struct cuda_queue {
    CUstream stream;
    echi_event taken;       /* the last number given out */
    CUevent mark[MARKS];    /* number e lies at e % MARKS */
};

static void cuda_queue_destroy(void *impl, void *queue) {
    const struct echi_cuda_device *d = impl;
    struct cuda_queue *q = queue;
    if (echi_cuda_enter(d) == CUDA_SUCCESS) {
        if (q->stream) d->cu->cuStreamSynchronize(q->stream);
        for (int i = 0; i < MARKS; i++)
            if (q->mark[i]) d->cu->cuEventDestroy_v2(q->mark[i]);
        if (q->stream) d->cu->cuStreamDestroy_v2(q->stream);
        echi_cuda_leave(d);
    }
    free(q);
}

static CUresult make_queue(const struct echi_cuda_device *d, struct cuda_queue *q) {
    CUresult code = d->cu->cuStreamCreate(&q->stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < MARKS && code == CUDA_SUCCESS; i++) code = d->cu->cuEventCreate(&q->mark[i], CU_EVENT_DISABLE_TIMING);
    return code;
}

static ech_status cuda_queue_create(void *impl, void **out_queue, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    struct cuda_queue *q = calloc(1, sizeof *q);
    CUresult code;
    if (q == NULL) return echi_fail_memory(err, "queue.create", "a queue");
    ECHI_CUDA_IN(d, code, make_queue(d, q));
    if (code != CUDA_SUCCESS) {
        cuda_queue_destroy(impl, q);
        return echi_cuda_fail(d->cu, code, "queue.create", "a queue", err);
    }
    *out_queue = q;
    return ECH_OK;
}

static ech_status submitted(const struct echi_cuda_device *d, CUresult code, const char *operation, const char *doing,
                            struct ech_error *err) {
    return code == CUDA_SUCCESS ? ECH_OK : echi_cuda_fail(d->cu, code, operation, doing, err);
}

static ech_status cuda_queue_write(void *impl, void *queue, void *memory, size_t at, const void *host, size_t bytes,
                                   struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemcpyHtoDAsync_v2(address_of(memory) + at, host, bytes, ((struct cuda_queue *)queue)->stream));
    return submitted(d, code, "queue.write", "a copy to the device", err);
}

static ech_status cuda_queue_read(void *impl, void *queue, const void *memory, size_t at, void *host, size_t bytes, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemcpyDtoHAsync_v2(host, address_of(memory) + at, bytes, ((struct cuda_queue *)queue)->stream));
    return submitted(d, code, "queue.read", "a copy from the device", err);
}

static ech_status cuda_queue_copy(void *impl, void *queue, void *to, size_t to_at, const void *from, size_t from_at, size_t bytes,
                                  struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuMemcpyDtoDAsync_v2(address_of(to) + to_at, address_of(from) + from_at, bytes,
                                                      ((struct cuda_queue *)queue)->stream));
    return submitted(d, code, "queue.copy", "a copy on the device", err);
}

/* More than 48 KiB of a group's memory must be asked for once, and then stand for all launches of the kernel (CUDA C++ programming guide,
 * "Shared memory" of compute capability 8.x). What a driver has given is not given back. */
static CUresult give_shared(const struct echi_cuda_device *d, struct echi_cuda_kernel *k, size_t bytes) {
    if (bytes <= k->shared) return CUDA_SUCCESS;
    const CUresult code = d->cu->cuFuncSetAttribute(k->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
    if (code == CUDA_SUCCESS) k->shared = bytes;
    return code;
}

static ech_status cuda_queue_launch(void *impl, void *queue, void *kernel, const struct echi_argument *args, void *const *memory,
                                    int count, const struct echi_launch *how, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    struct echi_cuda_kernel *k = kernel;
    if (how->items > (size_t)k->items_most)
        return echi_fail(err, ECH_E_UNSUPPORTED, "queue.launch",
                         "a kernel has groups of %zu work-items, this CUDA device takes %d of it; choose another device", how->items,
                         k->items_most);
    for (int i = 0; i < 3; i++)
        if (how->groups[i] > d->groups_most[i])
            return echi_fail(err, ECH_E_UNSUPPORTED, "queue.launch",
                             "a kernel has %zu groups along axis %d, this CUDA device takes %u; use fewer samples a step",
                             how->groups[i], i, d->groups_most[i]);
    CUdeviceptr address[ECHI_ARGUMENTS_MOST];
    void *values[ECHI_ARGUMENTS_MOST];   /* the driver copies them during the call */
    for (int i = 0; i < count; i++) {
        address[i] = address_of(memory[i]);
        values[i] = args[i].buffer != NULL ? (void *)&address[i] : (void *)(uintptr_t)args[i].value;
    }
    const unsigned groups[3] = {(unsigned)how->groups[0], (unsigned)how->groups[1], (unsigned)how->groups[2]};
    CUresult code;
    ECHI_CUDA_IN(d, code, give_shared(d, k, how->shared));
    if (code == CUDA_SUCCESS)
        ECHI_CUDA_IN(d, code, d->cu->cuLaunchKernel(k->function, groups[0], groups[1], groups[2], (unsigned)how->items, 1, 1,
                                                    (unsigned)how->shared, ((struct cuda_queue *)queue)->stream, values, NULL));
    return submitted(d, code, "queue.launch", "a kernel", err);
}

/* --- events --- */

static ech_status cuda_queue_event(void *impl, void *queue, echi_event *out, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    struct cuda_queue *q = queue;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuEventRecord(q->mark[(q->taken + 1) % MARKS], q->stream));
    if (code == CUDA_SUCCESS) *out = ++q->taken;
    return submitted(d, code, "queue.event", "a mark in a queue", err);
}

/* Where the mark of an event is that was taken; of one older than those kept, the oldest. */
static int place_of(const struct cuda_queue *q, echi_event event) {
    return (int)((event + MARKS <= q->taken ? q->taken - MARKS + 1 : event) % MARKS);
}

/* CUDA_SUCCESS when it is reached, CUDA_ERROR_NOT_READY while it is to come, else what went wrong on the way. */
static CUresult state_of(const struct echi_cuda_device *d, const struct cuda_queue *q, echi_event event) {
    if (event > q->taken) return CUDA_ERROR_NOT_READY;
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuEventQuery(q->mark[place_of(q, event)]));
    return code;
}

static ech_status cuda_queue_after(void *impl, void *queue, void *other, echi_event event, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    const struct cuda_queue *first = other;
    if (event > first->taken) return echi_hal_event_unknown("queue.after", event, first->taken, err);
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuStreamWaitEvent(((struct cuda_queue *)queue)->stream, first->mark[place_of(first, event)], 0));
    return submitted(d, code, "queue.after", "a queue that waits for another", err);
}

static bool cuda_event_done(void *impl, void *queue, echi_event event) { return state_of(impl, queue, event) == CUDA_SUCCESS; }

/* CUDA waits without a deadline only, so this looks again and again: at once while a wait is short, as most are, for a sleep is longer than
 * many a kernel; then more and more seldom. */
#define LOOK_AT_ONCE 50000     /* nanoseconds */
#define LOOK_FIRST 20000
#define LOOK_LAST 200000
static ech_status cuda_event_wait(void *impl, void *queue, echi_event event, int64_t deadline, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    const struct cuda_queue *q = queue;
    if (event > q->taken) return echi_hal_event_unknown("event.wait", event, q->taken, err);
    const int64_t began = echi_now();
    for (int64_t pause = LOOK_FIRST;;) {
        const CUresult code = state_of(d, q, event);
        if (code == CUDA_SUCCESS) return ECH_OK;
        if (code != CUDA_ERROR_NOT_READY) return echi_cuda_fail(d->cu, code, "event.wait", "work that was under way", err);
        const int64_t now = echi_now();
        if (now >= deadline) return echi_fail(err, ECH_E_TIMEOUT, "event.wait",
                                              "the CUDA device has not done its work in time; it hangs, or the deadline is too short");
        if (now - began < LOOK_AT_ONCE) continue;
        echi_sleep_until(now + pause < deadline ? now + pause : deadline);
        pause = pause * 2 < LOOK_LAST ? pause * 2 : LOOK_LAST;
    }
}

const struct echi_backend echi_backend_cuda = {
    .name = "cuda",
    .device_count = cuda_device_count,
    .none_why = cuda_none_why,
    .device_info = cuda_device_info,
    .device_open = cuda_device_open,
    .device_close = cuda_device_close,
    .device_team = cuda_device_team,
    .pinned_create = cuda_pinned_create,
    .pinned_destroy = cuda_pinned_destroy,
    .pinned_host = cuda_pinned_host,
    .memory_free = cuda_memory_free,
    .buffer_create = cuda_buffer_create,
    .buffer_destroy = cuda_buffer_destroy,
    .queue_create = cuda_queue_create,
    .queue_destroy = cuda_queue_destroy,
    .queue_write = cuda_queue_write,
    .queue_read = cuda_queue_read,
    .queue_copy = cuda_queue_copy,
    .program_create = echi_cuda_program_create,
    .program_load = echi_cuda_program_load,
    .program_binary = echi_cuda_program_binary,
    .program_origin = echi_cuda_program_origin,
    .program_destroy = echi_cuda_program_destroy,
    .kernel_create = echi_cuda_kernel_create,
    .kernel_destroy = echi_cuda_kernel_destroy,
    .queue_launch = cuda_queue_launch,
    .queue_event = cuda_queue_event,
    .queue_after = cuda_queue_after,
    .event_done = cuda_event_done,
    .event_wait = cuda_event_wait,
};
