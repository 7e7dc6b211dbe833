/* SPDX-License-Identifier: Apache-2.0
 * The backend 'opencl': devices, memory and queues of whatever OpenCL runtimes the machine has, processors among them. Queues are in order;
 * nothing waits but event_wait, queue_destroy, and the creation of memory, which is zeroed. */
#include "echi_backends.h"
#include "echi_error.h"
#include "echi_opencl.h"
#include "echi_os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- devices --- */

static int opencl_device_count(void) { return echi_opencl_runtime()->count; }

static cl_ulong ask_ulong(const struct echi_opencl_runtime *r, cl_device_id id, cl_uint what) {
    cl_ulong value = 0;
    return r->cl.clGetDeviceInfo(id, what, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

static void ask_text(const struct echi_opencl_runtime *r, cl_device_id id, cl_uint what, char *out, size_t cap) {
    char text[512] = "";
    out[0] = '\0';
    if (r->cl.clGetDeviceInfo(id, what, sizeof text, text, NULL) == CL_SUCCESS) snprintf(out, cap, "%.*s", (int)cap - 1, text);
}

/* By the extension that all have now, or by that of NVIDIA's older drivers, where the lowest three bits of a slot are the function. */
static void ask_pci(const struct echi_opencl_runtime *r, cl_device_id id, char *out, size_t cap) {
    struct { cl_uint domain, bus, device, function; } pci = {0};
    cl_uint slot = 0;
    out[0] = '\0';
    if (r->cl.clGetDeviceInfo(id, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof pci, &pci, NULL) != CL_SUCCESS) {
        if (r->cl.clGetDeviceInfo(id, CL_DEVICE_PCI_BUS_ID_NV, sizeof pci.bus, &pci.bus, NULL) != CL_SUCCESS) return;
        if (r->cl.clGetDeviceInfo(id, CL_DEVICE_PCI_SLOT_ID_NV, sizeof slot, &slot, NULL) != CL_SUCCESS) return;
        pci.domain = 0, pci.device = slot >> 3, pci.function = slot & 7;
        r->cl.clGetDeviceInfo(id, CL_DEVICE_PCI_DOMAIN_ID_NV, sizeof pci.domain, &pci.domain, NULL);
    }
    snprintf(out, cap, "%04x:%02x:%02x.%x", pci.domain & 0xffff, pci.bus & 0xff, pci.device & 0xff, pci.function & 0xf);
}

static ech_status opencl_device_info(int index, struct echi_device_info *out, struct ech_error *err) {
    (void)err;
    const struct echi_opencl_runtime *r = echi_opencl_runtime();
    const cl_device_id id = r->at[index].device;
    cl_uint units = 0;
    memset(out, 0, sizeof *out);
    snprintf(out->backend, sizeof out->backend, "opencl");
    ask_text(r, id, CL_DEVICE_NAME, out->name, sizeof out->name);
    if (out->name[0] == '\0') snprintf(out->name, sizeof out->name, "a device without a name");
    ask_text(r, id, CL_DRIVER_VERSION, out->driver, sizeof out->driver);
    out->memory = (size_t)ask_ulong(r, id, CL_DEVICE_GLOBAL_MEM_SIZE);
    out->buffer_most = (size_t)ask_ulong(r, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    out->shared_most = (size_t)ask_ulong(r, id, CL_DEVICE_LOCAL_MEM_SIZE);
    out->gpu = (ask_ulong(r, id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU) != 0;
    r->cl.clGetDeviceInfo(id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    out->compute_units = units > 0 ? (int)units : 1;
    ask_pci(r, id, out->pci, sizeof out->pci);
    return ECH_OK;
}

static void opencl_device_close(void *impl) {
    struct echi_opencl_device *d = impl;
    if (d->own) d->cl->clReleaseCommandQueue(d->own);
    if (d->context) d->cl->clReleaseContext(d->context);
    echi_team_destroy(d->team);
    free(d);
}

/* Runtimes start threads of their own, which leave the program's signals alone. */
static ech_status open_context(struct echi_opencl_device *d, cl_platform_id platform, struct ech_error *err) {
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_int code = CL_SUCCESS;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    d->context = d->cl->clCreateContext(properties, 1, &d->id, NULL, NULL, &code);
    if (code == CL_SUCCESS) d->own = d->cl->clCreateCommandQueue(d->context, d->id, 0, &code);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == CL_SUCCESS ? ECH_OK : echi_opencl_fail(code, "device.open", "opening the device", err);
}

static ech_status opencl_device_open(int index, int threads, void **out_impl, struct ech_error *err) {
    const struct echi_opencl_runtime *r = echi_opencl_runtime();
    struct echi_opencl_device *d = calloc(1, sizeof *d);
    if (d == NULL) return echi_fail_memory(err, "device.open", "a device");
    d->cl = &r->cl;
    d->id = r->at[index].device;
    ech_status status = open_context(d, r->at[index].platform, err);
    if (status == ECH_OK) status = echi_team_create(threads, &d->team, err);
    if (status != ECH_OK) {
        opencl_device_close(d);
        return status;
    }
    size_t items = 0;
    d->cl->clGetDeviceInfo(d->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof items, &items, NULL);
    d->items_most = items;
    *out_impl = d;
    return ECH_OK;
}

static struct echi_team *opencl_device_team(void *impl) { return ((struct echi_opencl_device *)impl)->team; }

/* --- memory --- */

static ech_status create_memory(struct echi_opencl_device *d, cl_bitfield flags, size_t bytes, cl_mem *out, struct ech_error *err) {
    cl_int code = CL_SUCCESS;
    const cl_ulong most = ask_ulong(echi_opencl_runtime(), d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if (most > 0 && bytes > most)
        return echi_fail(err, ECH_E_MEMORY, "buffer.create",
                         "a buffer of %zu bytes is larger than the %llu that this OpenCL device allows; use a smaller batch or model",
                         bytes, (unsigned long long)most);
    cl_mem memory = d->cl->clCreateBuffer(d->context, CL_MEM_READ_WRITE | flags, bytes, NULL, &code);
    if (code != CL_SUCCESS) return echi_opencl_fail(code, "buffer.create", "a buffer", err);
    const uint8_t zero = 0;
    code = d->cl->clEnqueueFillBuffer(d->own, memory, &zero, sizeof zero, 0, bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS) code = d->cl->clFinish(d->own);
    if (code != CL_SUCCESS) {
        d->cl->clReleaseMemObject(memory);
        return echi_opencl_fail(code, "buffer.create", "zeroing a buffer", err);
    }
    *out = memory;
    return ECH_OK;
}

/* The standard has no such query. Of the vendors' extensions one has; a runtime without it answers CL_INVALID_VALUE. */
static size_t opencl_memory_free(void *impl) {
    const struct echi_opencl_device *d = impl;
    size_t kib[2] = {0};
    return d->cl->clGetDeviceInfo(d->id, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof kib, kib, NULL) == CL_SUCCESS ? kib[0] << 10 : 0;
}

static ech_status opencl_buffer_create(void *impl, size_t bytes, void **out_memory, struct ech_error *err) {
    cl_mem memory = NULL;
    ech_status status = create_memory(impl, 0, bytes, &memory, err);
    *out_memory = memory;
    return status;
}

static void opencl_buffer_destroy(void *impl, void *memory) { ((struct echi_opencl_device *)impl)->cl->clReleaseMemObject(memory); }

/* A buffer in memory that the runtime has chosen for copies, mapped as long as it lives. */
struct pinned { cl_mem memory; void *host; };

static ech_status opencl_pinned_create(void *impl, size_t bytes, void **out_memory, struct ech_error *err) {
    struct echi_opencl_device *d = impl;
    struct pinned *p = calloc(1, sizeof *p);
    cl_int code = CL_SUCCESS;
    if (p == NULL) return echi_fail_memory(err, "buffer.pinned", "a buffer");
    ech_status status = create_memory(d, CL_MEM_ALLOC_HOST_PTR, bytes, &p->memory, err);
    if (status == ECH_OK) {
        p->host = d->cl->clEnqueueMapBuffer(d->own, p->memory, 1, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &code);
        if (code != CL_SUCCESS) status = echi_opencl_fail(code, "buffer.pinned", "pinned memory", err);
    }
    if (status != ECH_OK) {
        if (p->memory) d->cl->clReleaseMemObject(p->memory);
        free(p);
        return status;
    }
    *out_memory = p;
    return ECH_OK;
}

static void opencl_pinned_destroy(void *impl, void *memory) {
    struct echi_opencl_device *d = impl;
    struct pinned *p = memory;
    d->cl->clEnqueueUnmapMemObject(d->own, p->memory, p->host, 0, NULL, NULL);
    d->cl->clFinish(d->own);
    d->cl->clReleaseMemObject(p->memory);
    free(p);
}

static void *opencl_pinned_host(void *impl, void *memory) {
    (void)impl;
    return ((struct pinned *)memory)->host;
}

/* --- queues --- */

/* Marks in a queue's work. They are reached in order, so of many only the last MARKS are kept: an older number counts as reached when the
 * oldest of these is. */
#define MARKS 64
struct opencl_queue {
    struct echi_opencl_device *device;
    cl_command_queue queue;
    echi_event taken;               /* the last number given out */
    cl_event mark[MARKS];           /* number e lies at e % MARKS; NULL: known to be reached */
};

static ech_status opencl_queue_create(void *impl, void **out_queue, struct ech_error *err) {
    struct echi_opencl_device *d = impl;
    cl_int code = CL_SUCCESS;
    struct opencl_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return echi_fail_memory(err, "queue.create", "a queue");
    q->device = d;
    q->queue = d->cl->clCreateCommandQueue(d->context, d->id, 0, &code);
    if (code != CL_SUCCESS) {
        free(q);
        return echi_opencl_fail(code, "queue.create", "a queue", err);
    }
    *out_queue = q;
    return ECH_OK;
}

static void opencl_queue_destroy(void *impl, void *queue) {
    const struct echi_opencl_calls *cl = ((struct echi_opencl_device *)impl)->cl;
    struct opencl_queue *q = queue;
    cl->clFinish(q->queue);
    for (int i = 0; i < MARKS; i++)
        if (q->mark[i]) cl->clReleaseEvent(q->mark[i]);
    cl->clReleaseCommandQueue(q->queue);
    free(q);
}

static ech_status enqueued(cl_int code, const char *operation, const char *doing, struct ech_error *err) {
    return code == CL_SUCCESS ? ECH_OK : echi_opencl_fail(code, operation, doing, err);
}

static ech_status opencl_queue_write(void *impl, void *queue, void *memory, size_t at, const void *host, size_t bytes,
                                     struct ech_error *err) {
    const struct echi_opencl_calls *cl = ((struct echi_opencl_device *)impl)->cl;
    return enqueued(cl->clEnqueueWriteBuffer(((struct opencl_queue *)queue)->queue, memory, 0, at, bytes, host, 0, NULL, NULL),
                    "queue.write", "a copy to the device", err);
}

static ech_status opencl_queue_read(void *impl, void *queue, const void *memory, size_t at, void *host, size_t bytes,
                                    struct ech_error *err) {
    const struct echi_opencl_calls *cl = ((struct echi_opencl_device *)impl)->cl;
    return enqueued(cl->clEnqueueReadBuffer(((struct opencl_queue *)queue)->queue, (cl_mem)memory, 0, at, bytes, host, 0, NULL, NULL),
                    "queue.read", "a copy from the device", err);
}

static ech_status opencl_queue_copy(void *impl, void *queue, void *to, size_t to_at, const void *from, size_t from_at, size_t bytes,
                                    struct ech_error *err) {
    const struct echi_opencl_calls *cl = ((struct echi_opencl_device *)impl)->cl;
    return enqueued(cl->clEnqueueCopyBuffer(((struct opencl_queue *)queue)->queue, (cl_mem)from, to, from_at, to_at, bytes, 0, NULL, NULL),
                    "queue.copy", "a copy on the device", err);
}

static ech_status opencl_queue_launch(void *impl, void *queue, void *kernel, const struct echi_argument *args, void *const *memory,
                                      int count, const struct echi_launch *how, struct ech_error *err) {
    const struct echi_opencl_device *d = impl;
    if (how->items > d->items_most)
        return echi_fail(err, ECH_E_UNSUPPORTED, "queue.launch",
                         "a kernel has groups of %zu work-items, this OpenCL device takes %zu; choose another device",
                         how->items, d->items_most);
    if (how->shared > 0)
        return echi_fail(err, ECH_E_UNSUPPORTED, "queue.launch",
                         "OpenCL's kernels declare their local memory themselves, and one wants %zu bytes more; choose another device",
                         how->shared);
    for (int i = 0; i < count; i++) {
        const bool buffer = args[i].buffer != NULL;
        const cl_int code = d->cl->clSetKernelArg(kernel, (cl_uint)i, buffer ? sizeof memory[i] : args[i].bytes,
                                                  buffer ? (const void *)&memory[i] : args[i].value);
        if (code != CL_SUCCESS) return echi_opencl_fail(code, "queue.launch", "an argument of a kernel", err);
    }
    const size_t all[3] = {how->groups[0] * how->items, how->groups[1], how->groups[2]}, group[3] = {how->items, 1, 1};
    return enqueued(d->cl->clEnqueueNDRangeKernel(((struct opencl_queue *)queue)->queue, kernel, 3, NULL, all, group, 0, NULL, NULL),
                    "queue.launch", "a kernel", err);
}

/* --- events --- */

static ech_status opencl_queue_event(void *impl, void *queue, echi_event *out, struct ech_error *err) {
    const struct echi_opencl_calls *cl = ((struct echi_opencl_device *)impl)->cl;
    struct opencl_queue *q = queue;
    cl_event mark = NULL;
    ECHI_TRY(enqueued(cl->clEnqueueMarkerWithWaitList(q->queue, 0, NULL, &mark), "queue.event", "a mark in a queue", err));
    cl->clFlush(q->queue);
    cl_event *place = &q->mark[++q->taken % MARKS];
    if (*place) cl->clReleaseEvent(*place);
    *place = mark;
    *out = q->taken;
    return ECH_OK;
}

/* Where the mark of an event is that was taken; of one older than those kept, the oldest. */
static int place_of(const struct opencl_queue *q, echi_event event) {
    return (int)((event + MARKS <= q->taken ? q->taken - MARKS + 1 : event) % MARKS);
}

/* CL_COMPLETE when it is reached, negative when something went wrong on the way, positive while it is to come. */
static cl_int state_of(const struct echi_opencl_calls *cl, struct opencl_queue *q, echi_event event) {
    if (event > q->taken) return 1;
    cl_event *mark = &q->mark[place_of(q, event)];
    if (!*mark) return CL_COMPLETE;
    cl_int state = CL_COMPLETE;
    const cl_int code = cl->clGetEventInfo(*mark, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    if (code != CL_SUCCESS) return code;
    if (state == CL_COMPLETE) {
        cl->clReleaseEvent(*mark);
        *mark = NULL;
    }
    return state;
}

static ech_status opencl_queue_after(void *impl, void *queue, void *other, echi_event event, struct ech_error *err) {
    const struct echi_opencl_calls *cl = ((struct echi_opencl_device *)impl)->cl;
    const struct opencl_queue *first = other;
    if (event > first->taken) return echi_hal_event_unknown("queue.after", event, first->taken, err);
    const cl_event mark = first->mark[place_of(first, event)];
    if (!mark) return ECH_OK;
    return enqueued(cl->clEnqueueBarrierWithWaitList(((struct opencl_queue *)queue)->queue, 1, &mark, NULL), "queue.after",
                    "a queue that waits for another", err);
}

static bool opencl_event_done(void *impl, void *queue, echi_event event) {
    return state_of(((struct echi_opencl_device *)impl)->cl, queue, event) == CL_COMPLETE;
}

/* OpenCL waits without a deadline only, so this looks again and again: often at first, as most waits are short. */
#define LOOK_FIRST 2000        /* nanoseconds */
#define LOOK_LAST 200000
static ech_status opencl_event_wait(void *impl, void *queue, echi_event event, int64_t deadline, struct ech_error *err) {
    struct opencl_queue *q = queue;
    if (event > q->taken) return echi_hal_event_unknown("event.wait", event, q->taken, err);
    for (int64_t pause = LOOK_FIRST;; pause = pause * 2 < LOOK_LAST ? pause * 2 : LOOK_LAST) {
        const cl_int state = state_of(((struct echi_opencl_device *)impl)->cl, q, event);
        if (state == CL_COMPLETE) return ECH_OK;
        if (state < 0) return echi_opencl_fail(state, "event.wait", "work that was under way", err);
        const int64_t now = echi_now();
        if (now >= deadline) return echi_fail(err, ECH_E_TIMEOUT, "event.wait",
                                              "the OpenCL device has not done its work in time; it hangs, or the deadline is too short");
        echi_sleep_until(now + pause < deadline ? now + pause : deadline);
    }
}

const struct echi_backend echi_backend_opencl = {
    .name = "opencl",
    .device_count = opencl_device_count,
    .device_info = opencl_device_info,
    .device_open = opencl_device_open,
    .device_close = opencl_device_close,
    .device_team = opencl_device_team,
    .pinned_create = opencl_pinned_create,
    .pinned_destroy = opencl_pinned_destroy,
    .pinned_host = opencl_pinned_host,
    .memory_free = opencl_memory_free,
    .buffer_create = opencl_buffer_create,
    .buffer_destroy = opencl_buffer_destroy,
    .queue_create = opencl_queue_create,
    .queue_destroy = opencl_queue_destroy,
    .queue_write = opencl_queue_write,
    .queue_read = opencl_queue_read,
    .queue_copy = opencl_queue_copy,
    .program_options = ECHI_OPENCL_OPTIONS,
    .program_create = echi_opencl_program_create,
    .program_load = echi_opencl_program_load,
    .program_binary = echi_opencl_program_binary,
    .program_destroy = echi_opencl_program_destroy,
    .kernel_create = echi_opencl_kernel_create,
    .kernel_destroy = echi_opencl_kernel_destroy,
    .queue_launch = opencl_queue_launch,
    .queue_event = opencl_queue_event,
    .queue_after = opencl_queue_after,
    .event_done = opencl_event_done,
    .event_wait = opencl_event_wait,
};
