/* SPDX-License-Identifier: Apache-2.0
 * OpenCL's codes in words. */
#include "echi_error.h"
#include "echi_opencl.h"

#include <stdio.h>

/* X(code, name and meaning): the specification's, of the calls that are used here. */
#define CODES(X)                                                                                                   \
    X(CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND") X(CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE")            \
    X(-3, "CL_COMPILER_NOT_AVAILABLE") X(CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE")     \
    X(CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES") X(CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY")                \
    X(-8, "CL_MEM_COPY_OVERLAP") X(CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE") X(-12, "CL_MAP_FAILURE")  \
    X(-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST") X(-30, "CL_INVALID_VALUE")                              \
    X(CL_INVALID_DEVICE, "CL_INVALID_DEVICE") X(-34, "CL_INVALID_CONTEXT") X(-36, "CL_INVALID_COMMAND_QUEUE")      \
    X(-38, "CL_INVALID_MEM_OBJECT") X(CL_INVALID_BINARY, "CL_INVALID_BINARY") X(-44, "CL_INVALID_PROGRAM")         \
    X(-45, "CL_INVALID_PROGRAM_EXECUTABLE") X(CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME")                    \
    X(-48, "CL_INVALID_KERNEL") X(-49, "CL_INVALID_ARG_INDEX") X(-50, "CL_INVALID_ARG_VALUE")                      \
    X(-51, "CL_INVALID_ARG_SIZE") X(-52, "CL_INVALID_KERNEL_ARGS") X(-54, "CL_INVALID_WORK_GROUP_SIZE")            \
    X(-55, "CL_INVALID_WORK_ITEM_SIZE") X(-58, "CL_INVALID_EVENT") X(-59, "CL_INVALID_OPERATION")                  \
    X(CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE") X(-63, "CL_INVALID_GLOBAL_WORK_SIZE")                      \
    X(CL_PLATFORM_NOT_FOUND_KHR, "CL_PLATFORM_NOT_FOUND_KHR")

const char *echi_opencl_text(cl_int code) {
    switch (code) {
#define CASE(number, text) case number: return text;
        CODES(CASE)
#undef CASE
    default: return "a code that the specification does not have";
    }
}

ech_status echi_opencl_fail(cl_int code, const char *operation, const char *doing, struct ech_error *err) {
    const char *text = echi_opencl_text(code);
    switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
        return echi_fail(err, ECH_E_MEMORY, operation, "OpenCL has no memory for %s (%s); use a smaller batch or model", doing, text);
    case CL_OUT_OF_RESOURCES:   /* what runtimes say of a device that is gone, or was reset, and of a queue that broke with it */
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_DEVICE:
        return echi_fail(err, ECH_E_DEVICE_LOST, operation, "OpenCL's device failed in %s (%d, %s); start again, or choose another device",
                         doing, code, text);
    default:
        return echi_fail(err, ECH_E_INTERNAL, operation, "OpenCL refused %s (%d, %s)", doing, code, text);
    }
}
