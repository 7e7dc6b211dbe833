/* SPDX-License-Identifier: Apache-2.0
 * What hal.c and kernels.c, the only callers of a backend's table, know of a device. */
#ifndef ECHI_HAL_IMPL_H
#define ECHI_HAL_IMPL_H
#include "echi_backends.h"
#include "echi_error.h"

struct echi_device {
    const struct echi_backend *backend;
    void *impl;
    int threads;
    enum echi_cpu_level level;
    struct echi_device_info info;
    struct echi_program *programs;  /* the last one made; they are a list */
    char *keep;                     /* folder for compiled programs, or NULL */
    const struct echi_source *distrusted[ECHI_DISTRUSTED_MOST];   /* NULL: no more */
};
struct echi_buffer {
    struct echi_device *device;
    void *memory;
    void *host;     /* NULL when the memory is not addressable by the host */
    size_t bytes, held;   /* held: of a reserved one; else all */
    bool reserved;  /* `host` is a range of addresses: echi_reserve */
    bool of_host;   /* the host's end of copies, not the device's; never where the device computes in the host's memory */
    bool pinned;    /* page-locked; of_host too */
};
struct echi_queue {
    struct echi_device *device;
    void *impl;
};

/* Frees all programs of a device, with their kernels (kernels.c). */
void echi_programs_destroy(struct echi_device *device);

/* "the backend 'null' does not supply queue_run; ..." */
ech_status echi_hal_no_entry(const struct echi_backend *backend, const char *entry, struct ech_error *err);
/* Leaves the calling function when the backend does not have `entry`. */
#define NEED(backend, entry, err)                                                                                       \
    do {                                                                                                                \
        if ((backend)->entry == NULL) return echi_hal_no_entry((backend), #entry, (err));                               \
    } while (0)
ech_status echi_hal_missing(const char *operation, const char *what, struct ech_error *err);   /* "queue is NULL" */
#endif
