/* SPDX-License-Identifier: Apache-2.0
 * CUDA's codes in words. The driver has a name and a text for each of its own. */
#include "echi_cuda.h"
#include "echi_error.h"

#include <stdio.h>
#include <string.h>

void echi_cuda_text(const struct echi_cuda_calls *cu, CUresult code, char *out, size_t cap) {
    const char *name = NULL, *text = NULL;
    if (cu->cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) name = "an error without a name";
    if (cu->cuGetErrorString(code, &text) != CUDA_SUCCESS || text == NULL) text = "the driver has no text for it";
    snprintf(out, cap, "%.60s (%.100s)", name, text);
}

ech_status echi_cuda_fail(const struct echi_cuda_calls *cu, CUresult code, const char *operation, const char *doing,
                          struct ech_error *err) {
    char text[ECHI_CUDA_LOG];
    echi_cuda_text(cu, code, text, sizeof text);
    switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return echi_fail(err, ECH_E_MEMORY, operation, "CUDA has no memory for %s: %s; use a smaller batch or model", doing, text);
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
        return echi_fail(err, ECH_E_UNSUPPORTED, operation, "CUDA's device is too small for %s: %s; choose another device", doing, text);
    /* After any of these the context takes no more work. */
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN:
        return echi_fail(err, ECH_E_DEVICE_LOST, operation, "CUDA's device failed in %s: %s; start again, or choose another device", doing,
                         text);
    default:
        return echi_fail(err, ECH_E_INTERNAL, operation, "CUDA refused %s: %s", doing, text);
    }
}

void echi_cuda_first_error(const char *log, char *out, size_t cap) {
    const char *error = strstr(log, "error");
    const char *from = error != NULL ? error : log;
    snprintf(out, cap, "%.*s", (int)strcspn(from, "\n"), from);
}
