/* SPDX-License-Identifier: Apache-2.0
 * Programs for devices that are not the host: compiled once a device, kept in a folder from one run to the next, and their kernels. As in
 * hal.c, every argument is checked here and a backend's table is not called from elsewhere. */
#include "echi_hal_impl.h"
#include "echi_os.h"
#include "echi_sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct echi_kernel {
    struct echi_program *program;
    void *impl;
    struct echi_kernel *next;
    char name[48];
};
struct echi_program {
    struct echi_device *device;
    const struct echi_source *source;
    void *impl;
    struct echi_kernel *kernels;
    struct echi_program *next;
};

void echi_programs_destroy(struct echi_device *device) {
    const struct echi_backend *backend = device->backend;
    while (device->programs != NULL) {
        struct echi_program *p = device->programs;
        device->programs = p->next;
        while (p->kernels != NULL) {
            struct echi_kernel *k = p->kernels;
            p->kernels = k->next;
            backend->kernel_destroy(device->impl, k->impl);
            free(k);
        }
        backend->program_destroy(device->impl, p->impl);
        free(p);
    }
}

/* --- kept programs: a file is the hash of what it was made of and for, the hash of the rest, and the rest: the runtime's own bytes --- */

#define KEPT_MOST ((size_t)64 << 20)
#define HASH 32

void echi_device_keep_programs(struct echi_device *device, const char *folder) {
    free(device->keep);
    device->keep = folder != NULL ? strdup(folder) : NULL;   /* without memory nothing is kept, which harms nobody */
}

static void add_text(struct echi_sha256 *hash, const char *text) { echi_sha256_add(hash, text, strlen(text) + 1); }

/* Of everything that the compiled bytes depend on. */
static void hash_of(const struct echi_device *device, const char *text, uint8_t out[HASH]) {
    struct echi_sha256 hash;
    echi_sha256_begin(&hash);
    add_text(&hash, device->backend->name);
    add_text(&hash, device->info.name);
    add_text(&hash, device->info.driver);
    add_text(&hash, device->backend->program_options != NULL ? device->backend->program_options : "");
    add_text(&hash, text);
    echi_sha256_end(&hash, out);
}

static void hash_bytes(const void *bytes, size_t len, uint8_t out[HASH]) {
    struct echi_sha256 hash;
    echi_sha256_begin(&hash);
    echi_sha256_add(&hash, bytes, len);
    echi_sha256_end(&hash, out);
}

static void path_of(const struct echi_device *device, const uint8_t made_of[HASH], char *path, size_t cap) {
    char hex[2 * HASH + 1];
    echi_sha256_hex(made_of, hex);
    snprintf(path, cap, "%s/%s.program", device->keep, hex);
}

/* False when there is none, or none that is whole and that the runtime takes: then it is compiled. */
static bool load_kept(struct echi_device *device, const uint8_t made_of[HASH], void **out_program) {
    char path[4096];
    uint8_t *bytes = NULL, rest[HASH];
    size_t len = 0;
    path_of(device, made_of, path, sizeof path);
    if (!echi_file_exists(path) || echi_file_read(path, KEPT_MOST, &bytes, &len, NULL) != ECH_OK) return false;
    bool taken = false;
    if (len > 2 * HASH && memcmp(bytes, made_of, HASH) == 0) {
        hash_bytes(bytes + 2 * HASH, len - 2 * HASH, rest);
        taken = memcmp(bytes + HASH, rest, HASH) == 0 &&
                device->backend->program_load(device->impl, bytes + 2 * HASH, len - 2 * HASH, out_program, NULL) == ECH_OK;
    }
    free(bytes);
    return taken;
}

/* What cannot be kept is compiled again next time. */
static void keep(struct echi_device *device, const uint8_t made_of[HASH], void *program) {
    void *bytes = NULL;
    size_t len = 0;
    device->backend->program_binary(device->impl, program, &bytes, &len);
    uint8_t *file = bytes != NULL && len > 0 && len < KEPT_MOST - 2 * HASH ? malloc(2 * HASH + len) : NULL;
    if (file != NULL) {
        char path[4096];
        memcpy(file, made_of, HASH);
        hash_bytes(bytes, len, file + HASH);
        memcpy(file + 2 * HASH, bytes, len);
        path_of(device, made_of, path, sizeof path);
        (void)echi_file_write(path, file, 2 * HASH + len, NULL);
    }
    free(file);
    free(bytes);
}

/* --- programs and kernels --- */

static ech_status compile(struct echi_device *device, const struct echi_source *source, void **out, struct ech_error *err) {
    const struct echi_backend *backend = device->backend;
    const bool kept = device->keep != NULL && backend->program_load != NULL && backend->program_binary != NULL && source->text != NULL;
    uint8_t made_of[HASH];
    if (kept) hash_of(device, source->text, made_of);
    if (kept && load_kept(device, made_of, out)) return ECH_OK;
    ECHI_TRY(backend->program_create(device->impl, source, out, err));
    if (kept) keep(device, made_of, *out);
    return ECH_OK;
}

void echi_device_distrust(struct echi_device *device, const struct echi_source *source) {
    for (int i = 0; i < ECHI_DISTRUSTED_MOST; i++)
        if (device->distrusted[i] == NULL || device->distrusted[i] == source) {
            device->distrusted[i] = source;
            return;
        }
}

ech_status echi_device_program(struct echi_device *device, const struct echi_source *source, struct echi_program **out,
                               struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("program", "out", err);
    *out = NULL;
    if (device == NULL) return echi_hal_missing("program", "device", err);
    if (source == NULL || (source->text == NULL && source->images == NULL)) return echi_hal_missing("program", "source", err);
    NEED(device->backend, program_create, err);
    for (int i = 0; i < ECHI_DISTRUSTED_MOST; i++)
        if (device->distrusted[i] == source)
            return echi_fail(err, ECH_E_UNSUPPORTED, "program", "%s computes wrongly by %s, which it is not given again", device->info.name,
                             source->name);
    for (struct echi_program *p = device->programs; p != NULL; p = p->next)
        if (p->source == source) {
            *out = p;
            return ECH_OK;
        }
    struct echi_program *p = calloc(1, sizeof *p);
    if (p == NULL) return echi_fail_memory(err, "program", "a program");
    ech_status status = compile(device, source, &p->impl, err);
    if (status != ECH_OK) {
        free(p);
        return status;
    }
    p->device = device;
    p->source = source;
    p->next = device->programs;
    device->programs = p;
    *out = p;
    return ECH_OK;
}

void echi_device_kernels_from(const struct echi_device *device, char *out, size_t cap) {
    const struct echi_backend *backend = device->backend;
    const struct echi_program *first = device->programs;
    out[0] = '\0';
    while (first != NULL && first->next != NULL) first = first->next;
    if (first != NULL && backend->program_origin != NULL) backend->program_origin(device->impl, first->impl, out, cap);
    for (int i = 0; i < ECHI_DISTRUSTED_MOST && device->distrusted[i] != NULL; i++) {
        const size_t len = strlen(out);
        snprintf(out + len, cap - len, "%swithout %s, by which it computes wrongly", len > 0 ? ", " : "", device->distrusted[i]->name);
    }
}

ech_status echi_program_kernel(struct echi_program *program, const char *name, struct echi_kernel **out, struct ech_error *err) {
    if (out == NULL) return echi_hal_missing("kernel", "out", err);
    *out = NULL;
    if (program == NULL) return echi_hal_missing("kernel", "program", err);
    if (name == NULL) return echi_hal_missing("kernel", "name", err);
    for (struct echi_kernel *k = program->kernels; k != NULL; k = k->next)
        if (strcmp(k->name, name) == 0) {
            *out = k;
            return ECH_OK;
        }
    struct echi_device *device = program->device;
    struct echi_kernel *k = calloc(1, sizeof *k);
    if (k == NULL) return echi_fail_memory(err, "kernel", "a kernel");
    snprintf(k->name, sizeof k->name, "%s", name);
    ech_status status = device->backend->kernel_create(device->impl, program->impl, name, &k->impl, err);
    if (status != ECH_OK) {
        free(k);
        return status;
    }
    k->program = program;
    k->next = program->kernels;
    program->kernels = k;
    *out = k;
    return ECH_OK;
}

/* Argument i, and the memory of its buffer. */
static ech_status check_argument(const struct echi_queue *q, const struct echi_kernel *kernel, const struct echi_argument *arg, int i,
                                 void **out_memory, struct ech_error *err) {
    *out_memory = NULL;
    if (arg->buffer == NULL) {
        if (arg->value != NULL && arg->bytes > 0) return ECH_OK;
        return echi_fail(err, ECH_E_ARGUMENT, "queue.launch", "argument %d of kernel %s is neither a buffer nor a value", i, kernel->name);
    }
    if (arg->buffer->device != q->device || arg->buffer->of_host)
        return echi_fail(err, ECH_E_ARGUMENT, "queue.launch", "argument %d of kernel %s is memory of %s; it must be the device's own", i,
                         kernel->name, arg->buffer->of_host ? "the host" : arg->buffer->device->info.name);
    *out_memory = arg->buffer->memory;
    return ECH_OK;
}

ech_status echi_queue_launch(struct echi_queue *q, const struct echi_kernel *kernel, const struct echi_argument *args, int count,
                             const struct echi_launch *how, struct ech_error *err) {
    void *memory[ECHI_ARGUMENTS_MOST];
    if (q == NULL) return echi_hal_missing("queue.launch", "queue", err);
    if (kernel == NULL) return echi_hal_missing("queue.launch", "kernel", err);
    if (how == NULL || (args == NULL && count > 0)) return echi_hal_missing("queue.launch", how == NULL ? "how" : "args", err);
    NEED(q->device->backend, queue_launch, err);
    if (kernel->program->device != q->device)
        return echi_fail(err, ECH_E_ARGUMENT, "queue.launch", "kernel %s was compiled for another device (%s)", kernel->name,
                         kernel->program->device->info.name);
    if (count < 0 || count > ECHI_ARGUMENTS_MOST)
        return echi_fail(err, ECH_E_ARGUMENT, "queue.launch", "%d arguments for kernel %s; it may have 0 to %d", count, kernel->name,
                         ECHI_ARGUMENTS_MOST);
    for (int i = 0; i < 3; i++)
        if (how->groups[i] < 1 || how->groups[i] > INT32_MAX || how->items < 1 || how->items > 1024)
            return echi_fail(err, ECH_E_ARGUMENT, "queue.launch",
                             "%zu x %zu x %zu groups of %zu work-items for kernel %s; it needs at least 1, of 1 to 1024",
                             how->groups[0], how->groups[1], how->groups[2], how->items, kernel->name);
    if (how->shared > q->device->info.shared_most)
        return echi_fail(err, ECH_E_UNSUPPORTED, "queue.launch",
                         "kernel %s takes %zu bytes of local memory a group, and %s has %zu; choose another device", kernel->name,
                         how->shared, q->device->info.name, q->device->info.shared_most);
    for (int i = 0; i < count; i++) ECHI_TRY(check_argument(q, kernel, &args[i], i, &memory[i], err));
    return q->device->backend->queue_launch(q->device->impl, q->impl, kernel->impl, args, memory, count, how, err);
}
