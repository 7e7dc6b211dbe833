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
struct echi_program;  /* kernels compiled for a device, whose it is */
struct echi_kernel;   /* one of them; its program's */

struct echi_device_info {
    char name[64];       /* "Intel(R) Xeon(R) ..., AVX-512" */
    char backend[16];    /* "cpu" */
    size_t memory;       /* bytes a plan may count on; 0 when unknown */
    int compute_units;   /* cores */
    bool host_memory;    /* buffers are plain host memory: echi_buffer_host never returns NULL */
    bool gpu;            /* a processor made for this: `auto` tries them */
    char pci[16];        /* "0000:3b:00.0", by which a card that two runtimes list is known; "" when unknown */
    size_t buffer_most;  /* bytes that one buffer may have; 0 when unknown */
    char driver[64];     /* its version, in its own words; "" when there is none */
    int capability;      /* of NVIDIA's cards, compute capability: 90 for 9.0; 0 for all others, and when unknown */
    size_t shared_most;  /* bytes of local memory ("shared" in CUDA's words) that a group may have in all; 0 when unknown */
};

/* A number that is reached when the queue has done everything submitted before it was taken. */
typedef uint64_t echi_event;

/* A kernel on the CPU is a function over its arguments; a backend of another kind names kernels in its own way and
 * answers ECH_E_UNSUPPORTED here. */
typedef void (*echi_host_kernel)(void *args);

/* Kernels: a text, and what the build has made of it ahead for one kind of device. Static. */
struct echi_image {
    const char *backend;                /* "cuda": whose */
    const char *what;                   /* "nvcc's image": for people */
    const unsigned char *bytes, *end;   /* alike: the build had no compiler for it */
};
struct echi_source {
    const char *name;                   /* for people: "products_f32.cu" */
    const char *text;                   /* NULL: for devices that take one of the images, and no others */
    const struct echi_image *images;    /* the best first; the last has no backend. NULL: none */
};

/* What a kernel of a program is given, in the order of its parameters: a buffer, or `bytes` bytes of a value, read during the call. */
struct echi_argument {
    const struct echi_buffer *buffer;   /* NULL: a value */
    const void *value;
    size_t bytes;
};
/* Groups of work-items that share local memory and wait for each other: so many groups along x, y and z, each of so many work-items along
 * x; `shared` bytes of local memory for each, beside what the kernel declares, for kernels that are told of it by their runtime (CUDA). */
struct echi_launch { size_t groups[3], items, shared; };
#define ECHI_ARGUMENTS_MOST 24

/* What a backend supplies. Arguments are already checked when an entry is called. `impl` is the backend's own state.
 * Entries may be called from any thread, one thread at a time per device. None may block but `event_wait`.
 * A NULL entry means ECH_E_UNSUPPORTED, with a sentence that names backend and entry. */
struct echi_backend {
    const char *name;
    /* Number of devices now; 0 when the runtime is missing or empty (never an error: a node simply has fewer devices). */
    int (*device_count)(void);
    const char *(*none_why)(void);   /* why it is 0, in words: "libcuda.so.1 is not here"; may be left out */
    ech_status (*device_info)(int index, struct echi_device_info *out, struct ech_error *err);
    ech_status (*device_open)(int index, int threads, void **out_impl, struct ech_error *err);
    void (*device_close)(void *impl);
    struct echi_team *(*device_team)(void *impl);       /* of what computes on the host; NULL, or no entry: no threads but the caller's */
    /* Bytes of the device's memory that no program has taken; 0: not known. Without an entry: the same. */
    size_t (*memory_free)(void *impl);
    /* Host memory, zeroed, from which and to which the device copies at full speed ("pinned"). */
    ech_status (*pinned_create)(void *impl, size_t bytes, void **out_memory, struct ech_error *err);
    void (*pinned_destroy)(void *impl, void *memory);
    void *(*pinned_host)(void *impl, void *memory);
    /* Zeroed, at least 64-byte aligned. */
    ech_status (*buffer_create)(void *impl, size_t bytes, void **out_memory, struct ech_error *err);
    void (*buffer_destroy)(void *impl, void *memory);
    void *(*buffer_host)(void *impl, void *memory);     /* host address, or NULL when the memory is elsewhere */
    ech_status (*buffer_wrap)(void *impl, void *host, size_t bytes, void **out_memory, struct ech_error *err);
    ech_status (*queue_create)(void *impl, void **out_queue, struct ech_error *err);
    void (*queue_destroy)(void *impl, void *queue);     /* waits for what was submitted */
    ech_status (*queue_write)(void *impl, void *queue, void *memory, size_t at, const void *host, size_t bytes, struct ech_error *err);
    ech_status (*queue_read)(void *impl, void *queue, const void *memory, size_t at, void *host, size_t bytes, struct ech_error *err);
    ech_status (*queue_copy)(void *impl, void *queue, void *to, size_t to_at, const void *from, size_t from_at, size_t bytes,
                             struct ech_error *err);
    ech_status (*queue_run)(void *impl, void *queue, echi_host_kernel kernel, void *args, struct ech_error *err);
    const char *program_options;   /* what its compiler is told beside a text: kept programs are of both; or NULL */
    /* Kernels from a source, or from what `binary` gave for it on the same device and driver. A text that the compiler refuses:
     * ECH_E_UNSUPPORTED with its message. out_bytes is malloc'd, the caller's; NULL when there is nothing worth keeping. */
    ech_status (*program_create)(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err);
    ech_status (*program_load)(void *impl, const void *bytes, size_t len, void **out_program, struct ech_error *err);
    void (*program_binary)(void *impl, void *program, void **out_bytes, size_t *out_len);
    void (*program_origin)(void *impl, void *program, char *out, size_t cap);   /* what it was made of, in words; may be left out */
    void (*program_destroy)(void *impl, void *program);
    ech_status (*kernel_create)(void *impl, void *program, const char *name, void **out_kernel, struct ech_error *err);
    void (*kernel_destroy)(void *impl, void *kernel);
    /* memory[i] is that of args[i].buffer, if it has one. */
    ech_status (*queue_launch)(void *impl, void *queue, void *kernel, const struct echi_argument *args, void *const *memory, int count,
                               const struct echi_launch *how, struct ech_error *err);
    ech_status (*queue_event)(void *impl, void *queue, echi_event *out, struct ech_error *err);
    ech_status (*queue_after)(void *impl, void *queue, void *other, echi_event event, struct ech_error *err);
    bool (*event_done)(void *impl, void *queue, echi_event event);
    ech_status (*event_wait)(void *impl, void *queue, echi_event event, int64_t deadline, struct ech_error *err);
};

/* --- backends and devices --- */
int echi_backend_count(void);
const struct echi_backend *echi_backend_at(int i);            /* fastest kind first, the CPU last but for `null` */
/* The i-th device that there is, by its backend's place in that list: its spec ("opencl:0"), and what it is. A card that two runtimes have
 * is listed once, by the first, and can be opened by either name. False when there are not so many. */
bool echi_device_at(int i, char *spec, size_t cap, struct echi_device_info *out);
int echi_device_count(const char *backend);                   /* of the backend of that name; 0 for a name that none has */
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
/* Bytes of its memory that no program has taken at the moment; 0 where its runtime does not report them. */
size_t echi_device_memory_free(const struct echi_device *device);
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
/* Host memory with which the device exchanges data at full speed, zeroed, at least 64-byte aligned; echi_buffer_host never returns NULL.
 * Where device_info says host_memory it is as any other buffer; elsewhere kernels cannot have it, and queues only as `host`. */
ech_status echi_buffer_create_pinned(struct echi_device *device, size_t bytes, struct echi_buffer **out, struct ech_error *err);
/* The same for what the device does not copy from or to: not page-locked, of which a system has only so much. */
ech_status echi_buffer_create_host(struct echi_device *device, size_t bytes, struct echi_buffer **out, struct ech_error *err);

/* The same, of which only the spans take memory now, and the rest none until it is written: for what is addressed by its position in
 * something larger. echi_buffer_bytes is the whole, echi_buffer_held what the spans take. */
struct echi_span { size_t at, len; };
ech_status echi_buffer_create_spans(struct echi_device *device, size_t bytes, const struct echi_span *spans, int count,
                                    struct echi_buffer **out, struct ech_error *err);
size_t echi_buffer_held(const struct echi_buffer *buffer);

/* --- queues and events. Offsets in bytes; ranges that do not fit are refused with ECH_E_ARGUMENT. --- */
ech_status echi_queue_create(struct echi_device *device, struct echi_queue **out, struct ech_error *err);
void echi_queue_destroy(struct echi_queue *queue);
ech_status echi_queue_write(struct echi_queue *q, struct echi_buffer *to, size_t at, const void *host, size_t bytes, struct ech_error *err);
ech_status echi_queue_read(struct echi_queue *q, const struct echi_buffer *from, size_t at, void *host, size_t bytes,
                           struct ech_error *err);
ech_status echi_queue_copy(struct echi_queue *q, struct echi_buffer *to, size_t to_at, const struct echi_buffer *from, size_t from_at,
                           size_t bytes, struct ech_error *err);
ech_status echi_queue_run(struct echi_queue *q, echi_host_kernel kernel, void *args, struct ech_error *err);
ech_status echi_queue_launch(struct echi_queue *q, const struct echi_kernel *kernel, const struct echi_argument *args, int count,
                             const struct echi_launch *how, struct ech_error *err);
ech_status echi_queue_event(struct echi_queue *q, echi_event *out, struct ech_error *err);
/* What is submitted to q from now on is begun when `other`, a queue of the same device, has reached `event`. The host does not wait.
 * ECH_E_UNSUPPORTED where queues cannot. */
ech_status echi_queue_after(struct echi_queue *q, struct echi_queue *other, echi_event event, struct ech_error *err);
bool echi_event_done(struct echi_queue *q, echi_event event);
ech_status echi_event_wait(struct echi_queue *q, echi_event event, int64_t deadline, struct ech_error *err);

/* --- kernels (kernels.c), for devices that are not the host: elsewhere ECH_E_UNSUPPORTED --- */
/* Where compiled programs are kept from now on, for the next run: a folder that is there, or NULL for nowhere, as at first. Copied. */
void echi_device_keep_programs(struct echi_device *device, const char *folder);
/* Compiles `source`, which must outlive the device, or takes an image of it; asked for again it is the same program. Freed with the device.
 * ECH_E_UNSUPPORTED when the device's compiler refuses it, with its words. */
ech_status echi_device_program(struct echi_device *device, const struct echi_source *source, struct echi_program **out,
                               struct ech_error *err);
/* From now on echi_device_program refuses `source` on this device, which computes wrongly by it (ECH_E_UNSUPPORTED); up to
 * ECHI_DISTRUSTED_MOST of them, before they are asked for. */
void echi_device_distrust(struct echi_device *device, const struct echi_source *source);
#define ECHI_DISTRUSTED_MOST 2
/* What the kernels of the first program were made of, in words: "nvcc's image, for sm_90", and which are distrusted; "" where there is
 * none, or nothing to tell. */
void echi_device_kernels_from(const struct echi_device *device, char *out, size_t cap);
/* Also freed with the device. ECH_E_ARGUMENT when the text has none of that name. */
ech_status echi_program_kernel(struct echi_program *program, const char *name, struct echi_kernel **out, struct ech_error *err);
#endif
