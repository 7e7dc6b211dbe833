/* SPDX-License-Identifier: Apache-2.0
 * See card.h. Names and numbers are those of NVIDIA's cuda.h, version 12. */
#include "card.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTACH_GLOBAL = 1, UNITS = 16, MAJOR = 75, MINOR = 76, SHARED_MOST = 97, FUNCTION_SHARED = 8 };
#define FUNCTIONS(X)                                                                                                              \
    X(cuInit, (unsigned)) X(cuDeviceGet, (int *, int)) X(cuDeviceGetAttribute, (int *, int, int))                                 \
    X(cuDevicePrimaryCtxRetain, (void **, int)) X(cuCtxSetCurrent, (void *)) X(cuCtxSynchronize, (void))                          \
    X(cuModuleLoad, (void **, const char *)) X(cuModuleGetFunction, (void **, void *, const char *))                              \
    X(cuFuncSetAttribute, (void *, int, int)) X(cuMemAllocManaged, (uintptr_t *, size_t, unsigned)) X(cuMemFree_v2, (uintptr_t))  \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))   \
    X(cuEventCreate, (void **, unsigned)) X(cuEventRecord, (void *, void *)) X(cuEventSynchronize, (void *))                      \
    X(cuEventElapsedTime, (float *, void *, void *)) X(cuGetErrorString, (int, const char **))
#define POINTER(name, parameters) static int (*name) parameters;
FUNCTIONS(POINTER)

#define ARRAYS_MOST 64
static void *modules[ECHI_PRODUCT_SM90 + 1];
static uintptr_t arrays[ARRAYS_MOST];
static int array_count;

static void must(int code, const char *what) {
    const char *words = NULL;
    if (code == 0) return;
    cuGetErrorString(code, &words);
    fprintf(stderr, "%s: %s (%d)\n", what, words != NULL ? words : "?", code);
    exit(1);
}

static bool load(const char **why) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *why = "no libcuda.so.1 here";
    if (library == NULL) return false;
#define LOAD(name, parameters)                                              \
    *why = "libcuda.so.1 has no " #name;                                    \
    *(void **)&name = dlsym(library, #name);                                \
    if (name == NULL) return false;
    FUNCTIONS(LOAD)
    return true;
}

bool card_open(const char *folder, struct echi_product_card *out, const char **why) {
    static const char *const files[] = {[ECHI_PRODUCT_PORTABLE] = "kernels", [ECHI_PRODUCT_F32] = "products_f32",
                                        [ECHI_PRODUCT_SM80] = "products_sm80", [ECHI_PRODUCT_SM90] = "products_sm90"};
    int device;
    void *context;
    if (!load(why)) return false;
    *why = "no card that CUDA can use";
    if (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0) return false;
    must(cuDeviceGetAttribute(&out->major, MAJOR, device) + cuDeviceGetAttribute(&out->minor, MINOR, device) +
             cuDeviceGetAttribute(&out->units, UNITS, device) + cuDeviceGetAttribute(&out->shared_most, SHARED_MOST, device), "attributes");
    must(cuDevicePrimaryCtxRetain(&context, device), "context");
    must(cuCtxSetCurrent(context), "context");
    for (int text = ECHI_PRODUCT_PORTABLE; text <= ECHI_PRODUCT_SM90; text++) {
        char path[400];
        if (text == ECHI_PRODUCT_SM90 && (out->major != 9 || out->minor != 0)) continue;
        snprintf(path, sizeof path, "%s/%s.fatbin", folder, files[text]);
        must(cuModuleLoad(&modules[text], path), path);
    }
    return true;
}

void *card_array(size_t count) {
    if (array_count == ARRAYS_MOST) must(1, "too many arrays");
    uintptr_t at;
    must(cuMemAllocManaged(&at, count * sizeof(float), ATTACH_GLOBAL), "memory");
    memset((void *)at, 0, count * sizeof(float));
    arrays[array_count++] = at;
    return (void *)at;
}
void card_free(void) {
    while (array_count > 0) must(cuMemFree_v2(arrays[--array_count]), "free");
}

void card_launch(enum echi_product_text text, const char *kernel, void **parameters, const struct card_launch *how) {
    void *function;
    must(cuModuleGetFunction(&function, modules[text], kernel), kernel);
    if (how->shared > 0) must(cuFuncSetAttribute(function, FUNCTION_SHARED, how->shared), kernel);
    must(cuLaunchKernel(function, (unsigned)how->groups[0], (unsigned)how->groups[1], (unsigned)how->groups[2], (unsigned)how->items, 1, 1,
                        (unsigned)how->shared, NULL, parameters, NULL), kernel);
}
void card_finish(void) { must(cuCtxSynchronize(), "the card"); }

double card_time(void (*work)(void *context), void *context, int rounds) {
    static void *begin, *end;
    double least = 1e9;
    if (begin == NULL) must(cuEventCreate(&begin, 0) + cuEventCreate(&end, 0), "events");
    work(context);
    card_finish();
    for (int i = 0; i < rounds; i++) {
        float ms;
        must(cuEventRecord(begin, NULL), "event");
        work(context);
        must(cuEventRecord(end, NULL), "event");
        must(cuEventSynchronize(end), "the card");
        must(cuEventElapsedTime(&ms, begin, end), "event");
        if (ms * 1e-3 < least) least = ms * 1e-3;
    }
    return least;
}
