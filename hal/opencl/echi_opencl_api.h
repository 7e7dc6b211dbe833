/* SPDX-License-Identifier: Apache-2.0
 * The part of OpenCL 1.2 that is used here, declared from the specification (Khronos, "The OpenCL Specification", version 1.2, and the
 * extensions named below), so that a build needs no OpenCL headers. Names and values are the specification's. */
#ifndef ECHI_OPENCL_API_H
#define ECHI_OPENCL_API_H
#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint, cl_bool;
typedef uint64_t cl_ulong, cl_bitfield;
typedef intptr_t cl_context_properties;

enum {
    CL_SUCCESS = 0,
    CL_COMPLETE = 0,                        /* of an event: done; negative: what went wrong */
    CL_DEVICE_NOT_FOUND = -1, CL_DEVICE_NOT_AVAILABLE = -2, CL_MEM_OBJECT_ALLOCATION_FAILURE = -4, CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6, CL_BUILD_PROGRAM_FAILURE = -11, CL_INVALID_DEVICE = -33, CL_INVALID_BINARY = -42,
    CL_INVALID_KERNEL_NAME = -46, CL_INVALID_BUFFER_SIZE = -61,
    CL_PLATFORM_NOT_FOUND_KHR = -1001       /* cl_khr_icd: the loader has found no platform */
};
enum {
    CL_DEVICE_TYPE = 0x1000, CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F, CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028, CL_DEVICE_NAME = 0x102B, CL_DRIVER_VERSION = 0x102D, CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_PCI_BUS_INFO_KHR = 0x410F,    /* cl_khr_pci_bus_info */
    /* cl_nv_device_attribute_query */
    CL_DEVICE_PCI_BUS_ID_NV = 0x4008, CL_DEVICE_PCI_SLOT_ID_NV = 0x4009, CL_DEVICE_PCI_DOMAIN_ID_NV = 0x400A,
    CL_DEVICE_GLOBAL_FREE_MEMORY_AMD = 0x4039,   /* cl_amd_device_attribute_query: size_t[2], KiB: free; the largest free block */
    CL_CONTEXT_PLATFORM = 0x1084,
    CL_PROGRAM_BINARY_SIZES = 0x1165, CL_PROGRAM_BINARIES = 0x1166, CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3
};
#define CL_DEVICE_TYPE_GPU ((cl_bitfield)1 << 2)
#define CL_DEVICE_TYPE_ALL ((cl_bitfield)0xFFFFFFFF)
#define CL_MEM_READ_WRITE ((cl_bitfield)1 << 0)
#define CL_MEM_ALLOC_HOST_PTR ((cl_bitfield)1 << 4)
#define CL_MAP_READ ((cl_bitfield)1 << 0)
#define CL_MAP_WRITE ((cl_bitfield)1 << 1)

/* X(return type, name, parameters): what is looked up in the library. All of them, or the library is not used. */
#define ECHI_OPENCL_CALLS(X)                                                                                                      \
    X(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                                                           \
    X(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))                                  \
    X(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                                                 \
    X(cl_context, clCreateContext, (const cl_context_properties *, cl_uint, const cl_device_id *,                                 \
                                    void (*)(const char *, const void *, size_t, void *), void *, cl_int *))                      \
    X(cl_int, clReleaseContext, (cl_context))                                                                                     \
    X(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int *))                                  \
    X(cl_int, clReleaseCommandQueue, (cl_command_queue))                                                                          \
    X(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                                                \
    X(cl_int, clReleaseMemObject, (cl_mem))                                                                                       \
    X(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *, cl_int *))                      \
    X(cl_program, clCreateProgramWithBinary, (cl_context, cl_uint, const cl_device_id *, const size_t *, const unsigned char **,  \
                                              cl_int *, cl_int *))                                                                \
    X(cl_int, clBuildProgram, (cl_program, cl_uint, const cl_device_id *, const char *, void (*)(cl_program, void *), void *))    \
    X(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                                                  \
    X(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))                               \
    X(cl_int, clReleaseProgram, (cl_program))                                                                                     \
    X(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *))                                                            \
    X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                                                         \
    X(cl_int, clReleaseKernel, (cl_kernel))                                                                                       \
    X(cl_int, clEnqueueNDRangeKernel, (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,      \
                                       cl_uint, const cl_event *, cl_event *))                                                    \
    X(cl_int, clEnqueueWriteBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *,  \
                                     cl_event *))                                                                                 \
    X(cl_int, clEnqueueReadBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,         \
                                    cl_event *))                                                                                  \
    X(cl_int, clEnqueueCopyBuffer, (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event *,          \
                                    cl_event *))                                                                                  \
    X(cl_int, clEnqueueFillBuffer, (cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, const cl_event *,    \
                                    cl_event *))                                                                                  \
    X(void *, clEnqueueMapBuffer, (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint, const cl_event *,     \
                                   cl_event *, cl_int *))                                                                         \
    X(cl_int, clEnqueueUnmapMemObject, (cl_command_queue, cl_mem, void *, cl_uint, const cl_event *, cl_event *))                 \
    X(cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event *, cl_event *))                             \
    X(cl_int, clEnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event *, cl_event *))                            \
    X(cl_int, clGetEventInfo, (cl_event, cl_uint, size_t, void *, size_t *))                                                      \
    X(cl_int, clReleaseEvent, (cl_event))                                                                                         \
    X(cl_int, clFlush, (cl_command_queue))                                                                                        \
    X(cl_int, clFinish, (cl_command_queue))
#endif
