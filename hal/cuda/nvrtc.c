/* SPDX-License-Identifier: Apache-2.0
 * NVRTC, the compiler that comes with a CUDA toolkit as a library: opened when no image of a build fits. */
#include "echi_cuda.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct calls {
#define FIELD(type, name, parameters) type (*name) parameters;
    ECHI_NVRTC_CALLS(FIELD)
    ECHI_NVRTC_CALLS_SINCE_11(FIELD)
#undef FIELD
};

static bool find_calls(void *library, struct calls *rtc) {
    bool all = true;
#define FIND(type, name, parameters) *(void **)(void *)&rtc->name = echi_library_symbol(library, #name);
#define NEEDED(type, name, parameters) FIND(type, name, parameters) all = all && rtc->name != NULL;
    ECHI_NVRTC_CALLS(NEEDED)
    ECHI_NVRTC_CALLS_SINCE_11(FIND)
#undef NEEDED
#undef FIND
    return all;
}

/* libnvrtc.so.12, .11.2 (for all from 11.2 on), .10.2: the newest that makes what the driver takes. */
#define OLDEST 7
static bool open_nvrtc(int driver, struct calls *rtc) {
    for (int major = driver / 1000; major >= OLDEST; major--)
        for (int minor = -1; minor <= 5; minor++) {
            char name[40];
            if (minor < 0) snprintf(name, sizeof name, "libnvrtc.so.%d", major);
            else snprintf(name, sizeof name, "libnvrtc.so.%d.%d", major, minor);
            void *library = echi_library_open(name);
            if (library != NULL && find_calls(library, rtc)) return true;   /* and stays open */
        }
    return false;
}

/* The largest capability that it compiles for and that the device has; 0: it does not say; -1: none. */
static int target_for(const struct calls *rtc, int capability) {
    int known[64], count = 0, best = -1;
    if (rtc->nvrtcGetNumSupportedArchs == NULL || rtc->nvrtcGetSupportedArchs == NULL) return 0;
    if (rtc->nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count < 0 || count > 64) return 0;
    if (rtc->nvrtcGetSupportedArchs(known) != NVRTC_SUCCESS) return 0;
    for (int i = 0; i < count; i++)
        if (known[i] <= capability && known[i] > best) best = known[i];
    return best;
}

static void read_log(const struct calls *rtc, nvrtcProgram program, char out[ECHI_CUDA_LOG]) {
    size_t len = 0;
    if (rtc->nvrtcGetProgramLogSize(program, &len) != NVRTC_SUCCESS) return;
    char *log = calloc(len + 1, 1);
    if (log != NULL && rtc->nvrtcGetProgramLog(program, log) == NVRTC_SUCCESS) echi_cuda_first_error(log, out, ECHI_CUDA_LOG);
    free(log);
}

/* NULL when there is none, or no memory. */
static void *result_of(nvrtcProgram program, nvrtcResult (*size)(nvrtcProgram, size_t *), nvrtcResult (*get)(nvrtcProgram, char *),
                       size_t *out_len) {
    char *bytes = NULL;
    if (size(program, out_len) != NVRTC_SUCCESS || *out_len == 0 || (bytes = calloc(*out_len + 1, 1)) == NULL) return NULL;
    if (get(program, bytes) == NVRTC_SUCCESS) return bytes;
    free(bytes);
    return NULL;
}

bool echi_nvrtc_compile(const char *text, int capability, int driver, void **out, size_t *out_len, char what[ECHI_CUDA_LOG],
                        char log[ECHI_CUDA_LOG]) {
    struct calls rtc;
    int major = 0, minor = 0;
    nvrtcProgram program = NULL;
    log[0] = '\0';
    *out = NULL;
    if (!open_nvrtc(driver, &rtc)) {
        snprintf(what, ECHI_CUDA_LOG, "there is no libnvrtc.so of CUDA %d or before", driver / 1000);
        return false;
    }
    rtc.nvrtcVersion(&major, &minor);
    const int target = target_for(&rtc, capability);
    /* Machine code needs no compiler in the driver, and no agreement on PTX's version. */
    const bool exact = target == capability && rtc.nvrtcGetCUBINSize != NULL && rtc.nvrtcGetCUBIN != NULL;
    char arch[40];
    snprintf(arch, sizeof arch, "--gpu-architecture=%s_%d", exact ? "sm" : "compute", target > 0 ? target : capability);
    const char *const options[] = {arch};
    if (target < 0) {
        snprintf(what, ECHI_CUDA_LOG, "NVRTC %d.%d has left sm_%d behind", major, minor, capability);
        return false;
    }
    snprintf(what, ECHI_CUDA_LOG, "NVRTC %d.%d", major, minor);
    nvrtcResult code = rtc.nvrtcCreateProgram(&program, text, "kernels.cu", 0, NULL, NULL);
    if (code == NVRTC_SUCCESS) {
        code = rtc.nvrtcCompileProgram(program, 1, options);
        /* An old one that is older than the device, too: it knows what every later device takes. */
        if (code == NVRTC_ERROR_INVALID_OPTION && target == 0) code = rtc.nvrtcCompileProgram(program, 0, NULL);
        if (code == NVRTC_ERROR_COMPILATION) read_log(&rtc, program, log);
    }
    if (code == NVRTC_SUCCESS)
        *out = exact ? result_of(program, rtc.nvrtcGetCUBINSize, rtc.nvrtcGetCUBIN, out_len)
                     : result_of(program, rtc.nvrtcGetPTXSize, rtc.nvrtcGetPTX, out_len);
    else snprintf(what, ECHI_CUDA_LOG, "NVRTC %d.%d: %.100s", major, minor, rtc.nvrtcGetErrorString(code));
    if (program != NULL) rtc.nvrtcDestroyProgram(&program);
    return *out != NULL;
}
