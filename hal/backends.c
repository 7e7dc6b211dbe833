/* SPDX-License-Identifier: Apache-2.0
 * The list of backends: a new one is its folder and one line here. */
#include "echi_backends.h"

/* Fastest kind first, so that the first device found is the best; the skeleton last. */
static const struct echi_backend *const backends[] = {
#ifndef ECHI_WITHOUT_cuda
    &echi_backend_cuda,
#endif
#ifndef ECHI_WITHOUT_opencl
    &echi_backend_opencl,
#endif
    &echi_backend_cpu,
    &echi_backend_null,
};

int echi_backend_count(void) { return (int)(sizeof backends / sizeof backends[0]); }

const struct echi_backend *echi_backend_at(int i) {
    return i >= 0 && i < echi_backend_count() ? backends[i] : NULL;
}
