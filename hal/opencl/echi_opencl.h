/* SPDX-License-Identifier: Apache-2.0
 * What the files of this folder share. */
#ifndef ECHI_OPENCL_H
#define ECHI_OPENCL_H
#include "echi_hal.h"
#include "echi_opencl_api.h"

#define ECHI_OPENCL_DEVICES_MOST 32

/* --- load.c: the library, and the devices that it had when it was first asked --- */
struct echi_opencl_calls {
#define ECHI_OPENCL_FIELD(type, name, parameters) type (*name) parameters;
    ECHI_OPENCL_CALLS(ECHI_OPENCL_FIELD)
#undef ECHI_OPENCL_FIELD
};
struct echi_opencl_runtime {
    struct echi_opencl_calls cl;
    int count;
    struct { cl_platform_id platform; cl_device_id device; } at[ECHI_OPENCL_DEVICES_MOST];
};
/* Any thread. count is 0 when there is no library, no platform, or none with a device that has a compiler. Never freed. */
const struct echi_opencl_runtime *echi_opencl_runtime(void);

/* --- error.c --- */
const char *echi_opencl_text(cl_int code);   /* "CL_OUT_OF_RESOURCES (...)"; never NULL */
/* Fills err with what the code means: ECH_E_MEMORY, ECH_E_DEVICE_LOST, ECH_E_UNSUPPORTED or ECH_E_INTERNAL. */
ech_status echi_opencl_fail(cl_int code, const char *operation, const char *doing, struct ech_error *err);

/* --- of opencl.c and program.c --- */
struct echi_opencl_device {
    const struct echi_opencl_calls *cl;
    cl_device_id id;
    cl_context context;
    cl_command_queue own;           /* for zeroing, and mapping pinned memory */
    struct echi_team *team;
    size_t items_most;              /* work-items of a group */
};
#define ECHI_OPENCL_OPTIONS "-cl-std=CL1.2 -w"   /* for its compiler: without its warnings, which some print themselves (PoCL does) */
ech_status echi_opencl_program_create(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err);
ech_status echi_opencl_program_load(void *impl, const void *bytes, size_t len, void **out_program, struct ech_error *err);
void echi_opencl_program_binary(void *impl, void *program, void **out_bytes, size_t *out_len);
void echi_opencl_program_destroy(void *impl, void *program);
ech_status echi_opencl_kernel_create(void *impl, void *program, const char *name, void **out_kernel, struct ech_error *err);
void echi_opencl_kernel_destroy(void *impl, void *kernel);
#endif
