/* SPDX-License-Identifier: Apache-2.0
 * The OpenCL loader, opened at run time: libOpenCL.so.1 and what it offers. A machine without it has no such devices, and that is all. */
#include "echi_opencl.h"
#include "echi_os.h"

#include <signal.h>

static struct echi_opencl_runtime runtime;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* POSIX lets the address of a function come as that of an object. */
static bool find_calls(void *library, struct echi_opencl_calls *cl) {
    bool all = true;
#define FIND(type, name, parameters) *(void **)(void *)&cl->name = echi_library_symbol(library, #name), all = all && cl->name != NULL;
    ECHI_OPENCL_CALLS(FIND)
#undef FIND
    return all;
}

static bool device_says(const struct echi_opencl_calls *cl, cl_device_id device, cl_uint what) {
    cl_bool value = 0;
    return cl->clGetDeviceInfo(device, what, sizeof value, &value, NULL) == CL_SUCCESS && value;
}

#define PLATFORMS_MOST 16

/* A platform may be installed and have no device (no card, no driver): it is passed over. */
static void find_devices(struct echi_opencl_runtime *r) {
    const struct echi_opencl_calls *cl = &r->cl;
    cl_platform_id platform[PLATFORMS_MOST];
    cl_uint platforms = 0;
    if (cl->clGetPlatformIDs(PLATFORMS_MOST, platform, &platforms) != CL_SUCCESS) return;
    for (cl_uint p = 0; p < platforms && p < PLATFORMS_MOST; p++) {
        cl_device_id device[ECHI_OPENCL_DEVICES_MOST];
        cl_uint devices = 0;
        if (cl->clGetDeviceIDs(platform[p], CL_DEVICE_TYPE_ALL, ECHI_OPENCL_DEVICES_MOST, device, &devices) != CL_SUCCESS) continue;
        for (cl_uint d = 0; d < devices && d < ECHI_OPENCL_DEVICES_MOST && r->count < ECHI_OPENCL_DEVICES_MOST; d++) {
            if (!device_says(cl, device[d], CL_DEVICE_AVAILABLE) || !device_says(cl, device[d], CL_DEVICE_COMPILER_AVAILABLE)) continue;
            r->at[r->count].platform = platform[p];
            r->at[r->count++].device = device[d];
        }
    }
}

/* The library stays open: some runtimes do not survive being closed. Its threads leave the program's signals alone. */
static void load(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    void *library = echi_library_open("libOpenCL.so.1");
    if (library != NULL && find_calls(library, &runtime.cl)) find_devices(&runtime);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

const struct echi_opencl_runtime *echi_opencl_runtime(void) {
    pthread_once(&once, load);
    return &runtime;
}
