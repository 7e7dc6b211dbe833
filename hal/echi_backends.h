/* SPDX-License-Identifier: Apache-2.0
 * The backends this library was built with, and the door through which a test opens one that is not in the list. */
#ifndef ECHI_BACKENDS_H
#define ECHI_BACKENDS_H
#include "echi_hal.h"

extern const struct echi_backend echi_backend_cuda;
extern const struct echi_backend echi_backend_opencl;
extern const struct echi_backend echi_backend_cpu;
extern const struct echi_backend echi_backend_null;

/* What echi_device_open does once it has found backend and index in the spec. */
ech_status echi_device_open_on(const struct echi_backend *backend, int index, int threads, struct echi_device **out,
                               struct ech_error *err);
/* What a backend says of an event beyond the last that was taken from a queue. */
ech_status echi_hal_event_unknown(const char *operation, echi_event event, echi_event taken, struct ech_error *err);
#endif
