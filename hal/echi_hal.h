/* SPDX-License-Identifier: Apache-2.0
 * Devices: memory, queues, events, kernels. The rooms above call the functions at the end of this page; a backend
 * fills in the table `struct echi_backend`, and the functions are the only callers of that table. */
#ifndef ECHI_HAL_H
#define ECHI_HAL_H
#include "ech_status.h"
#include "echi_os.h"
#include "echi_team.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct echi_device;   /* an opened device */
struct echi_buffer;   /* memory on a device */
struct echi_queue;    /* work in order */

struct echi_device_info {
    char name[64];       /* "Intel(R) Xeon(R) ..., AVX-512" */
    char backend[16];    /* "cpu" */
    size_t memory;       /* bytes a plan may count on; 0 when unknown */
    int compute_units;   /* cores */
    bool host_memory;    /* buffers are plain host memory: echi_buffer_host never returns NULL */
};

/* A number that is reached when the queue has done everything submitted before it was taken. */
typedef uint64_t echi_event;

/* A kernel on the CPU is a function over its arguments; a backend of another kind names kernels in its own way and
 * answers ECH_E_UNSUPPORTED here. */
typedef void (*echi_host_kernel)(void *args);

/* What a backend supplies. Arguments are already checked when an entry is called. `impl` is the backend's own state.
 * Entries may be called from any thread, one thread at a time per device. None may block but `event_wait`.
 * A NULL entry means ECH_E_UNSUPPORTED, with a sentence that names backend and entry. */
struct echi_backend {
    const char *name;
    /* Number of devices now; 0 when the runtime is missing or empty (never an error: a node simply has fewer devices). */
    int (*device_count)(void);
    ech_status (*device_info)(int index, struct echi_device_info *out, struct ech_error *err);
    ech_status (*device_open)(int index, int threads, void **out_impl, struct ech_error *err);
    void (*device_close)(void *impl);
    struct echi_team *(*device_team)(void *impl);       /* of what computes on the host; NULL, or no entry: no threads but the caller's */
    /* Zeroed, at least 64-byte aligned. */
    ech_status (*buffer_create)(void *impl, size_t bytes, void **out_memory, struct ech_error *err);
    void (*buffer_destroy)(void *impl, void *memory);
    void *(*buffer_host)(void *impl, void *memory);     /* host address, or NULL when the memory is elsewhere */
    ech_status (*buffer_wrap)(void *impl, void *host, size_t bytes, void **out_memory, struct ech_error *err);
    ech_status (*queue_create)(void *impl, void **out_queue, struct ech_error *err);
    void (*queue_destroy)(void *impl, void *queue);     /* waits for what was submitted */
    ech_status (*queue_write)(void *impl, void *queue, void *memory, size_t at, const void *host, size_t bytes, struct ech_error *err);
    ech_status (*queue_read)(void *impl, void *queue, const void *memory, size_t at, void *host, size_t bytes, struct ech_error *err);
    ech_status (*queue_copy)(void *impl, void *queue, void *to, size_t to_at, const void *from, size_t from_at, size_t bytes, struct ech_error *err);
    ech_status (*queue_run)(void *impl, void *queue, echi_host_kernel kernel, void *args, struct ech_error *err);
    ech_status (*queue_event)(void *impl, void *queue, echi_event *out, struct ech_error *err);
    bool (*event_done)(void *impl, void *queue, echi_event event);
    ech_status (*event_wait)(void *impl, void *queue, echi_event event, int64_t deadline, struct ech_error *err);
};

/* --- backends and devices --- */
int echi_backend_count(void);
const struct echi_backend *echi_backend_at(int i);            /* fastest kind first, the CPU last but for `null` */
/* Opens "cpu", "cpu:0", "null:0", ... `threads` is for backends that compute on the host (at least 1, the
 * caller's with them): those beyond the first are started here, and sleep until there is work. ECH_E_MEMORY when the OS refuses one.
 * ECH_E_ARGUMENT for a name that no backend has (the sentence lists those there are), ECH_E_UNSUPPORTED when the
 * backend has no such device. */
ech_status echi_device_open(const char *spec, int threads, struct echi_device **out, struct ech_error *err);
/* The same, with kernels on the host that use no more than the instructions of `level`; echi_device_open lets them use all there are.
 * ECH_E_UNSUPPORTED when this processor lacks them. */
ech_status echi_device_open_at(const char *spec, int threads, enum echi_cpu_level level, struct echi_device **out, struct ech_error *err);
void echi_device_close(struct echi_device *device);           /* NULL is harmless; buffers and queues must be gone */
const struct echi_device_info *echi_device_describe(const struct echi_device *device);
int echi_device_threads(const struct echi_device *device);
enum echi_cpu_level echi_device_level(const struct echi_device *device);
/* The threads with which kernels on the host share their work, the device's own; NULL: the caller computes alone. */
struct echi_team *echi_device_team(const struct echi_device *device);

/* --- memory. Owned by the caller until destroyed; destroy(NULL) is harmless. --- */
ech_status echi_buffer_create(struct echi_device *device, size_t bytes, struct echi_buffer **out, struct ech_error *err);
/* Makes host memory that the caller keeps alive usable as a buffer (a custom trainer's own arrays, a wire buffer). */
ech_status echi_buffer_wrap(struct echi_device *device, void *host, size_t bytes, struct echi_buffer **out, struct ech_error *err);
void echi_buffer_destroy(struct echi_buffer *buffer);
size_t echi_buffer_bytes(const struct echi_buffer *buffer);
void *echi_buffer_host(const struct echi_buffer *buffer);     /* NULL when the memory is not addressable by the host */

/* --- queues and events. Offsets in bytes; ranges that do not fit are refused with ECH_E_ARGUMENT. --- */
ech_status echi_queue_create(struct echi_device *device, struct echi_queue **out, struct ech_error *err);
void echi_queue_destroy(struct echi_queue *queue);
ech_status echi_queue_write(struct echi_queue *q, struct echi_buffer *to, size_t at, const void *host, size_t bytes, struct ech_error *err);
ech_status echi_queue_read(struct echi_queue *q, const struct echi_buffer *from, size_t at, void *host, size_t bytes, struct ech_error *err);
ech_status echi_queue_copy(struct echi_queue *q, struct echi_buffer *to, size_t to_at, const struct echi_buffer *from, size_t from_at, size_t bytes, struct ech_error *err);
ech_status echi_queue_run(struct echi_queue *q, echi_host_kernel kernel, void *args, struct ech_error *err);
ech_status echi_queue_event(struct echi_queue *q, echi_event *out, struct ech_error *err);
bool echi_event_done(struct echi_queue *q, echi_event event);
ech_status echi_event_wait(struct echi_queue *q, echi_event event, int64_t deadline, struct ech_error *err);
#endif
