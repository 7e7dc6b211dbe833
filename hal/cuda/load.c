/* SPDX-License-Identifier: Apache-2.0
 * The CUDA driver, opened at run time: libcuda.so.1 and what it offers. A machine without it, or without a card, has no such devices, and
 * that is all; `why` says what is missing. */
#include "echi_cuda.h"
#include "echi_os.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct echi_cuda_runtime runtime;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The name of the first call that the driver lacks, or NULL. POSIX lets the address of a function come as that of an object. */
static const char *find_calls(void *library, struct echi_cuda_calls *cu) {
    const char *lacks = NULL;
#define FIND(type, name, parameters)                                                             \
    *(void **)(void *)&cu->name = echi_library_symbol(library, #name);                           \
    if (cu->name == NULL && lacks == NULL) lacks = #name;
    ECHI_CUDA_CALLS(FIND)
#undef FIND
    return lacks;
}

int echi_cuda_ask(const struct echi_cuda_calls *cu, CUdevice device, CUdevice_attribute what) {
    int value = 0;
    return cu->cuDeviceGetAttribute(&value, what, device) == CUDA_SUCCESS ? value : 0;
}

int echi_cuda_capability(const struct echi_cuda_calls *cu, CUdevice device) {
    return 10 * echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
           echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

static void find_devices(struct echi_cuda_runtime *r) {
    const struct echi_cuda_calls *cu = &r->cu;
    int devices = 0;
    CUresult code = cu->cuInit(0);
    if (code == CUDA_SUCCESS) code = cu->cuDriverGetVersion(&r->version);
    if (code == CUDA_SUCCESS) code = cu->cuDeviceGetCount(&devices);
    if (code != CUDA_SUCCESS) {
        char text[ECHI_CUDA_LOG - 30];
        echi_cuda_text(cu, code, text, sizeof text);
        snprintf(r->why, sizeof r->why, "libcuda.so.1 says %s", text);
        return;
    }
    for (int d = 0; d < devices && r->count < ECHI_CUDA_DEVICES_MOST; d++) {
        CUdevice device;
        if (cu->cuDeviceGet(&device, d) != CUDA_SUCCESS) continue;
        if (echi_cuda_ask(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_PROHIBITED) continue;
        r->at[r->count++] = device;
    }
    snprintf(r->why, sizeof r->why, devices > 0 ? "its administrator has forbidden to compute" : "the driver has no card");
}

/* The library stays open: the driver does not survive being closed. Its threads leave the program's signals alone. */
static void load(void) {
    sigset_t all, before;
    if (sizeof(void *) < 8) {
        snprintf(runtime.why, sizeof runtime.why, "CUDA is for programs of 64 bits");
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    void *library = echi_library_open("libcuda.so.1");
    const char *lacks = library != NULL ? find_calls(library, &runtime.cu) : NULL;
    if (library == NULL) snprintf(runtime.why, sizeof runtime.why, "libcuda.so.1 is not here");
    else if (lacks != NULL) snprintf(runtime.why, sizeof runtime.why, "libcuda.so.1 is too old: it has no %s", lacks);
    else find_devices(&runtime);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

const struct echi_cuda_runtime *echi_cuda_runtime(void) {
    pthread_once(&once, load);
    return &runtime;
}
