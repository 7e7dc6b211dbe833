/* SPDX-License-Identifier: Apache-2.0
 * Programs and kernels of a CUDA device: which image of the build is taken, or NVRTC asked instead. */
#include "echi_cuda.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program {
    CUmodule module;
    void *kept;                     /* what NVRTC has made; NULL: from the archive, or from a kept file */
    size_t kept_len;
    char origin[ECHI_CUDA_LOG];
};

/* An image, which is machine code, PTX that ends in a zero, or several of these. `log`: what the driver's compiler has against it. */
static CUresult load_module(const struct echi_cuda_device *d, const void *image, CUmodule *out, char log[ECHI_CUDA_LOG]) {
    char text[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {text, (void *)(uintptr_t)(sizeof text - 1)};
    CUresult code;
    ECHI_CUDA_IN(d, code, d->cu->cuModuleLoadDataEx(out, image, 2, options, values));
    echi_cuda_first_error(text, log, ECHI_CUDA_LOG);
    return code;
}

/* Notes that `what` was not taken, and why. Anything but an image that does not fit ends the search. */
static ech_status refused(const struct echi_cuda_device *d, CUresult code, const char *what, const char *log, char *why, size_t cap,
                          struct ech_error *err) {
    const char *name = NULL;
    const ech_status status = echi_cuda_fail(d->cu, code, "program", "loading kernels", err);
    if (status == ECH_E_MEMORY || status == ECH_E_DEVICE_LOST) return status;
    if (d->cu->cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) name = "refused";
    const size_t used = strlen(why);
    snprintf(why + used, cap - used, "%s: %.50s%s%.80s; ", what, name, *log ? ", " : "", log);
    return ECH_OK;
}

/* The text, by NVRTC. */
static ech_status compile(const struct echi_cuda_device *d, int driver, const char *text, struct program *p, char *why, size_t cap,
                          struct ech_error *err) {
    char what[ECHI_CUDA_LOG], log[ECHI_CUDA_LOG];
    size_t used = strlen(why);
    if (!echi_nvrtc_compile(text, d->capability, driver, &p->kept, &p->kept_len, what, log)) {
        if (*log != '\0')
            return echi_fail(err, ECH_E_UNSUPPORTED, "program",
                             "the compiler of 'cuda' refused Echelon's kernels: %s; choose another device", log);
        snprintf(why + used, cap - used, "%s", what);
        return ECH_OK;
    }
    const CUresult code = load_module(d, p->kept, &p->module, log);
    if (code != CUDA_SUCCESS) return refused(d, code, what, log, why, cap, err);
    snprintf(p->origin, sizeof p->origin, "%s", what);
    return ECH_OK;
}

/* The one place that says which image a device gets: the first in the source's order that its driver takes, as nobody knows better what it
 * takes than the driver; when there is none, what NVRTC makes of the text. p->origin says which it was; without any, the error says what
 * was tried, and why it did not do. */
static ech_status choose(const struct echi_cuda_device *d, const struct echi_source *source, struct program *p, struct ech_error *err) {
    char why[700] = "", log[ECHI_CUDA_LOG];
    const int driver = echi_cuda_runtime()->version;
    for (const struct echi_image *i = source->images; i != NULL && i->backend != NULL; i++) {
        if (strcmp(i->backend, "cuda") != 0 || i->bytes == i->end) continue;
        const CUresult code = load_module(d, i->bytes, &p->module, log);
        if (code == CUDA_SUCCESS) {
            snprintf(p->origin, sizeof p->origin, "%s", i->what);
            return ECH_OK;
        }
        ECHI_TRY(refused(d, code, i->what, log, why, sizeof why, err));
    }
    if (source->text != NULL) ECHI_TRY(compile(d, driver, source->text, p, why, sizeof why, err));
    else if (*why == '\0') snprintf(why, sizeof why, "this build has no image of them");
    if (p->module != NULL) return ECH_OK;
    return echi_fail(err, ECH_E_UNSUPPORTED, "program",
                     "no kernels for this CUDA device (sm_%d, driver of CUDA %d.%d): %.250s; build with a CUDA toolkit for it, renew the "
                     "driver, or choose another device", d->capability, driver / 1000, driver % 1000 / 10, why);
}

/* "clang's PTX, of compute_53 for sm_90": what the driver knows of a kernel that it has taken. */
static void tell_target(const struct echi_cuda_device *d, CUfunction function, struct program *p) {
    int ptx = 0, binary = 0;
    CUresult code;
    if (strstr(p->origin, ", ") != NULL) return;
    ECHI_CUDA_IN(d, code, d->cu->cuFuncGetAttribute(&ptx, CU_FUNC_ATTRIBUTE_PTX_VERSION, function));
    if (code == CUDA_SUCCESS) ECHI_CUDA_IN(d, code, d->cu->cuFuncGetAttribute(&binary, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function));
    const size_t used = strlen(p->origin);
    if (code == CUDA_SUCCESS) snprintf(p->origin + used, sizeof p->origin - used, ", of compute_%d for sm_%d", ptx, binary);
}

static ech_status program_new(struct program **out, struct ech_error *err) {
    *out = calloc(1, sizeof **out);
    return *out != NULL ? ECH_OK : echi_fail_memory(err, "program", "a program");
}

ech_status echi_cuda_program_create(void *impl, const struct echi_source *source, void **out_program, struct ech_error *err) {
    struct program *p;
    ECHI_TRY(program_new(&p, err));
    const ech_status status = choose(impl, source, p, err);
    if (status != ECH_OK) echi_cuda_program_destroy(impl, p);
    else *out_program = p;
    return status;
}

ech_status echi_cuda_program_load(void *impl, const void *bytes, size_t len, void **out_program, struct ech_error *err) {
    struct program *p;
    char log[ECHI_CUDA_LOG];
    ECHI_TRY(program_new(&p, err));
    void *image = calloc(len + 1, 1);   /* PTX ends in a zero */
    ech_status status = image != NULL ? ECH_OK : echi_fail_memory(err, "program", "a compiled program");
    if (image != NULL) {
        memcpy(image, bytes, len);
        const CUresult code = load_module(impl, image, &p->module, log);
        if (code != CUDA_SUCCESS)
            status = echi_cuda_fail(((struct echi_cuda_device *)impl)->cu, code, "program", "a compiled program", err);
    }
    free(image);
    snprintf(p->origin, sizeof p->origin, "kept from an earlier run");
    if (status != ECH_OK) echi_cuda_program_destroy(impl, p);
    else *out_program = p;
    return status;
}

/* NVRTC's work is worth keeping. Images are in the archive, and what the driver compiles of them it keeps itself. */
void echi_cuda_program_binary(void *impl, void *program, void **out_bytes, size_t *out_len) {
    (void)impl;
    const struct program *p = program;
    *out_len = p->kept_len;
    *out_bytes = p->kept != NULL ? malloc(p->kept_len) : NULL;
    if (*out_bytes != NULL) memcpy(*out_bytes, p->kept, p->kept_len);
}

void echi_cuda_program_origin(void *impl, void *program, char *out, size_t cap) {
    (void)impl;
    snprintf(out, cap, "%s", ((struct program *)program)->origin);
}

void echi_cuda_program_destroy(void *impl, void *program) {
    const struct echi_cuda_device *d = impl;
    struct program *p = program;
    CUresult code = CUDA_SUCCESS;
    if (p->module != NULL) ECHI_CUDA_IN(d, code, d->cu->cuModuleUnload(p->module));
    (void)code;   /* of a device that is gone nothing is left */
    free(p->kept);
    free(p);
}

ech_status echi_cuda_kernel_create(void *impl, void *program, const char *name, void **out_kernel, struct ech_error *err) {
    const struct echi_cuda_device *d = impl;
    struct program *p = program;
    struct echi_cuda_kernel *k = calloc(1, sizeof *k);
    CUresult code;
    if (k == NULL) return echi_fail_memory(err, "kernel", "a kernel");
    ECHI_CUDA_IN(d, code, d->cu->cuModuleGetFunction(&k->function, p->module, name));
    const bool unknown = code == CUDA_ERROR_NOT_FOUND;
    if (code == CUDA_SUCCESS)
        ECHI_CUDA_IN(d, code, d->cu->cuFuncGetAttribute(&k->items_most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k->function));
    int declared = 0;
    if (code == CUDA_SUCCESS)
        ECHI_CUDA_IN(d, code, d->cu->cuFuncGetAttribute(&declared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, k->function));
    k->shared = declared >= 0 && (size_t)declared < ECHI_CUDA_SHARED ? ECHI_CUDA_SHARED - (size_t)declared : 0;
    if (code == CUDA_SUCCESS) {
        tell_target(d, k->function, p);
        *out_kernel = k;
        return ECH_OK;
    }
    free(k);
    if (unknown) return echi_fail(err, ECH_E_ARGUMENT, "kernel", "the program has no kernel '%.48s'", name);
    return echi_cuda_fail(d->cu, code, "kernel", name, err);
}

/* The function is its module's. */
void echi_cuda_kernel_destroy(void *impl, void *kernel) {
    (void)impl;
    free(kernel);
}
