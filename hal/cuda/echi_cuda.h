/* SPDX-License-Identifier: Apache-2.0
 * What the files of this folder share. */
#ifndef ECHI_CUDA_H
#define ECHI_CUDA_H
#include "echi_cuda_api.h"
#include "echi_hal.h"

#define ECHI_CUDA_DEVICES_MOST 32
#define ECHI_CUDA_LOG 200   /* of what a compiler says: the first message is what matters */

/* --- load.c: the driver, and the devices that it had when it was first asked --- */
struct echi_cuda_calls {
#define ECHI_CUDA_FIELD(type, name, parameters) type (*name) parameters;
    ECHI_CUDA_CALLS(ECHI_CUDA_FIELD)
};
struct echi_cuda_runtime {
    struct echi_cuda_calls cu;
    int version;                                /* 12040: the driver takes what CUDA 12.4 makes */
    int count;
    CUdevice at[ECHI_CUDA_DEVICES_MOST];
    char why[200];                              /* why count is 0 */
};
/* Any thread. Never freed. */
const struct echi_cuda_runtime *echi_cuda_runtime(void);
/* An attribute of a device; 0 when the driver does not say. */
int echi_cuda_ask(const struct echi_cuda_calls *cu, CUdevice device, CUdevice_attribute what);

int echi_cuda_capability(const struct echi_cuda_calls *cu, CUdevice device);   /* 90: 9.0; 0 when the driver does not say */

/* --- error.c --- */
/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)" */
void echi_cuda_text(const struct echi_cuda_calls *cu, CUresult code, char *out, size_t cap);
/* Fills err with what the code means: ECH_E_MEMORY, ECH_E_DEVICE_LOST, ECH_E_UNSUPPORTED or ECH_E_INTERNAL. */
ech_status echi_cuda_fail(const struct echi_cuda_calls *cu, CUresult code, const char *operation, const char *doing, struct ech_error *err);
/* What a compiler says, from its first error on, on one line. */
void echi_cuda_first_error(const char *log, char *out, size_t cap);

/* --- cuda.c --- */
struct echi_cuda_device {
    const struct echi_cuda_calls *cu;
    CUdevice device;
    CUcontext context;              /* the card's primary one, which all in this process share that use the card */
    CUstream own;                   /* for zeroing; NULL until it is made */
    struct echi_team *team;
    int capability;                 /* 90: compute capability 9.0 */
    unsigned groups_most[3];
};
/* The context is made the calling thread's as long as one call takes, as threads come and go and may have another of the user's. */
CUresult echi_cuda_enter(const struct echi_cuda_device *d);
void echi_cuda_leave(const struct echi_cuda_device *d);
#define ECHI_CUDA_IN(d, code, call)                         \
    do {                                                    \
        if (((code) = echi_cuda_enter(d)) == CUDA_SUCCESS) { \
            (code) = (call);                                \
            echi_cuda_leave(d);                             \
        }                                                   \
    } while (0)

/* --- program.c --- */
/* shared: bytes that the driver gives its groups in a launch, beside what it declares; ECHI_CUDA_SHARED without being asked, less that. */
struct echi_cuda_kernel { CUfunction function; int items_most; size_t shared; };
#define ECHI_CUDA_SHARED ((size_t)48 << 10)
ech_status echi_cuda_program_create(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err);
ech_status echi_cuda_program_load(void *impl, const void *bytes, size_t len, void **out_program, struct ech_error *err);
void echi_cuda_program_binary(void *impl, void *program, void **out_bytes, size_t *out_len);
void echi_cuda_program_origin(void *impl, void *program, char *out, size_t cap);
void echi_cuda_program_destroy(void *impl, void *program);
ech_status echi_cuda_kernel_create(void *impl, void *program, const char *name, void **out_kernel, struct ech_error *err);
void echi_cuda_kernel_destroy(void *impl, void *kernel);

/* --- nvrtc.c --- */
/* Compiles a text for compute capability `capability`: *out, malloc'd, is machine code or PTX that ends in a zero; `what` says which, and
 * who made it. False: there is no NVRTC, or it does not know the device, and `what` says so; or it refused the text, and `log` has its
 * words, else "". */
bool echi_nvrtc_compile(const char *text, int capability, int driver, void **out, size_t *out_len, char what[ECHI_CUDA_LOG],
                        char log[ECHI_CUDA_LOG]);
#endif
