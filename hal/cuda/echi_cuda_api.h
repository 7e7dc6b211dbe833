/* SPDX-License-Identifier: Apache-2.0
 * The part of CUDA's driver API and of NVRTC that is used here, declared from NVIDIA's "CUDA Driver API" and "NVRTC" reference manuals, so
 * that a build needs no CUDA headers. Names and values are theirs; test/check/cuda.sh holds them against cuda.h and nvrtc.h where there are
 * some. Names with _v2 are what those headers turn the plain ones into: under the plain name older, other functions are still there. */
#ifndef ECHI_CUDA_API_H
#define ECHI_CUDA_API_H
#include <stddef.h>

#ifndef CUDA_VERSION   /* cuda.h's own */
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUjit_option;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef unsigned long long CUdeviceptr;   /* where pointers have 64 bits: elsewhere there is no CUDA (load.c) */

enum {
    CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4, CUDA_ERROR_DEVICE_UNAVAILABLE = 46, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200, CUDA_ERROR_INVALID_CONTEXT = 201, CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214, CUDA_ERROR_INVALID_PTX = 218, CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221, CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222, CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
    CUDA_ERROR_INVALID_SOURCE = 300, CUDA_ERROR_NOT_FOUND = 500, CUDA_ERROR_NOT_READY = 600, CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701, CUDA_ERROR_LAUNCH_TIMEOUT = 702, CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714, CUDA_ERROR_ILLEGAL_INSTRUCTION = 715, CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717, CUDA_ERROR_INVALID_PC = 718, CUDA_ERROR_LAUNCH_FAILED = 719, CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803, CUDA_ERROR_UNKNOWN = 999
};
enum {
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_COMPUTEMODE_PROHIBITED = 2,
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1, CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2,
    CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
};
#endif
#ifndef __NVRTC_H__   /* nvrtc.h's own */
typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;
enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_OUT_OF_MEMORY = 1, NVRTC_ERROR_INVALID_OPTION = 5, NVRTC_ERROR_COMPILATION = 6 };
#endif

/* X(return type, name, parameters): what is looked up in libcuda.so.1. All of them, or the library is not used. The texts of errors come
 * first: what goes wrong with the others is told in them. */
#define ECHI_CUDA_CALLS(X)                                                                                                        \
    X(CUresult, cuGetErrorName, (CUresult, const char **))                                                                        \
    X(CUresult, cuGetErrorString, (CUresult, const char **))                                                                      \
    X(CUresult, cuInit, (unsigned))                                                                                               \
    X(CUresult, cuDriverGetVersion, (int *))                                                                                      \
    X(CUresult, cuDeviceGetCount, (int *))                                                                                        \
    X(CUresult, cuDeviceGet, (CUdevice *, int))                                                                                   \
    X(CUresult, cuDeviceGetName, (char *, int, CUdevice))                                                                         \
    X(CUresult, cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                                      \
    X(CUresult, cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                                        \
    X(CUresult, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                                \
    X(CUresult, cuDevicePrimaryCtxRelease, (CUdevice)) /* its _v2 is not in drivers of before CUDA 11 */                          \
    X(CUresult, cuCtxPushCurrent_v2, (CUcontext))                                                                                 \
    X(CUresult, cuCtxPopCurrent_v2, (CUcontext *))                                                                                \
    X(CUresult, cuMemGetInfo_v2, (size_t *, size_t *))                                                                            \
    X(CUresult, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                           \
    X(CUresult, cuMemFree_v2, (CUdeviceptr))                                                                                      \
    X(CUresult, cuMemHostAlloc, (void **, size_t, unsigned))                                                                      \
    X(CUresult, cuMemFreeHost, (void *))                                                                                          \
    X(CUresult, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                                  \
    X(CUresult, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                              \
    X(CUresult, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                                    \
    X(CUresult, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                               \
    X(CUresult, cuStreamCreate, (CUstream *, unsigned))                                                                           \
    X(CUresult, cuStreamDestroy_v2, (CUstream))                                                                                   \
    X(CUresult, cuStreamSynchronize, (CUstream))                                                                                  \
    X(CUresult, cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                                                 \
    X(CUresult, cuEventCreate, (CUevent *, unsigned))                                                                             \
    X(CUresult, cuEventDestroy_v2, (CUevent))                                                                                     \
    X(CUresult, cuEventRecord, (CUevent, CUstream))                                                                               \
    X(CUresult, cuEventQuery, (CUevent))                                                                                          \
    X(CUresult, cuModuleLoadDataEx, (CUmodule *, const void *, unsigned, CUjit_option *, void **))                                \
    X(CUresult, cuModuleUnload, (CUmodule))                                                                                       \
    X(CUresult, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                      \
    X(CUresult, cuFuncGetAttribute, (int *, CUfunction_attribute, CUfunction))                                                    \
    X(CUresult, cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int)) /* since CUDA 9 */                                   \
    X(CUresult, cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,      \
                                 void **, void **))

/* Of libnvrtc.so, all; and those below that which older ones do not have. */
#define ECHI_NVRTC_CALLS(X)                                                                                                       \
    X(const char *, nvrtcGetErrorString, (nvrtcResult))                                                                           \
    X(nvrtcResult, nvrtcVersion, (int *, int *))                                                                                  \
    X(nvrtcResult, nvrtcCreateProgram, (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *)) \
    X(nvrtcResult, nvrtcDestroyProgram, (nvrtcProgram *))                                                                         \
    X(nvrtcResult, nvrtcCompileProgram, (nvrtcProgram, int, const char *const *))                                                 \
    X(nvrtcResult, nvrtcGetPTXSize, (nvrtcProgram, size_t *))                                                                     \
    X(nvrtcResult, nvrtcGetPTX, (nvrtcProgram, char *))                                                                           \
    X(nvrtcResult, nvrtcGetProgramLogSize, (nvrtcProgram, size_t *))                                                              \
    X(nvrtcResult, nvrtcGetProgramLog, (nvrtcProgram, char *))
#define ECHI_NVRTC_CALLS_SINCE_11(X)                                                                                              \
    X(nvrtcResult, nvrtcGetNumSupportedArchs, (int *))                                                                            \
    X(nvrtcResult, nvrtcGetSupportedArchs, (int *))                                                                               \
    X(nvrtcResult, nvrtcGetCUBINSize, (nvrtcProgram, size_t *))                                                                   \
    X(nvrtcResult, nvrtcGetCUBIN, (nvrtcProgram, char *))
#endif
