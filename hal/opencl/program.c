/* SPDX-License-Identifier: Apache-2.0
 * Programs and kernels of an OpenCL device. */
#include "echi_error.h"
#include "echi_opencl.h"

#include <stdlib.h>
#include <string.h>

#define LOG_SHOWN 200   /* of what a compiler says: the first message is what matters */

/* The compiler's message, on one line. */
static void build_log(const struct echi_opencl_device *d, cl_program program, char *out, size_t cap) {
    size_t len = 0;
    out[0] = '\0';
    if (d->cl->clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &len) != CL_SUCCESS || len == 0) return;
    char *log = calloc(len + 1, 1);
    if (log != NULL && d->cl->clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, len, log, NULL) == CL_SUCCESS) {
        const char *error = strstr(log, "error");
        const char *from = error != NULL ? error : log;
        const size_t shown = strcspn(from, "\n") < cap - 1 ? strcspn(from, "\n") : cap - 1;
        memcpy(out, from, shown);
        out[shown] = '\0';
    }
    free(log);
}

/* Takes over `program`. */
static ech_status build(const struct echi_opencl_device *d, cl_program program, void **out_program, struct ech_error *err) {
    const cl_int code = d->cl->clBuildProgram(program, 1, &d->id, ECHI_OPENCL_OPTIONS, NULL, NULL);
    if (code == CL_SUCCESS) {
        *out_program = program;
        return ECH_OK;
    }
    char log[LOG_SHOWN];
    build_log(d, program, log, sizeof log);
    d->cl->clReleaseProgram(program);
    if (code != CL_BUILD_PROGRAM_FAILURE) return echi_opencl_fail(code, "program", "building a program", err);
    return echi_fail(err, ECH_E_UNSUPPORTED, "program", "the compiler of 'opencl' refused Echelon's kernels: %s; choose another device",
                     log);
}

ech_status echi_opencl_program_create(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err) {
    const struct echi_opencl_device *d = impl;
    const char *text = source->text;
    if (text == NULL) return echi_fail(err, ECH_E_UNSUPPORTED, "program", "these kernels are not for OpenCL; choose another device");
    const size_t len = strlen(text);
    cl_int code = CL_SUCCESS;
    cl_program program = d->cl->clCreateProgramWithSource(d->context, 1, &text, &len, &code);
    if (code != CL_SUCCESS) return echi_opencl_fail(code, "program", "a program", err);
    return build(d, program, out_program, err);
}

ech_status echi_opencl_program_load(void *impl, const void *bytes, size_t len, void **out_program, struct ech_error *err) {
    const struct echi_opencl_device *d = impl;
    const unsigned char *binary = bytes;
    cl_int code = CL_SUCCESS, status = CL_SUCCESS;
    cl_program program = d->cl->clCreateProgramWithBinary(d->context, 1, &d->id, &len, &binary, &status, &code);
    if (code != CL_SUCCESS) return echi_opencl_fail(code, "program", "a compiled program", err);
    return build(d, program, out_program, err);
}

void echi_opencl_program_binary(void *impl, void *program, void **out_bytes, size_t *out_len) {
    const struct echi_opencl_device *d = impl;
    size_t len = 0;
    *out_bytes = NULL;
    *out_len = 0;
    if (d->cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof len, &len, NULL) != CL_SUCCESS || len == 0) return;
    unsigned char *bytes = malloc(len);
    if (bytes == NULL) return;
    if (d->cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) != CL_SUCCESS) {
        free(bytes);
        return;
    }
    *out_bytes = bytes;
    *out_len = len;
}

void echi_opencl_program_destroy(void *impl, void *program) { ((struct echi_opencl_device *)impl)->cl->clReleaseProgram(program); }

ech_status echi_opencl_kernel_create(void *impl, void *program, const char *name, void **out_kernel, struct ech_error *err) {
    const struct echi_opencl_device *d = impl;
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = d->cl->clCreateKernel(program, name, &code);
    if (code == CL_INVALID_KERNEL_NAME) return echi_fail(err, ECH_E_ARGUMENT, "kernel", "the program has no kernel '%.48s'", name);
    if (code != CL_SUCCESS) return echi_opencl_fail(code, "kernel", name, err);
    *out_kernel = kernel;
    return ECH_OK;
}

void echi_opencl_kernel_destroy(void *impl, void *kernel) { ((struct echi_opencl_device *)impl)->cl->clReleaseKernel(kernel); }
