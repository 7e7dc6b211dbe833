/* SPDX-License-Identifier: Apache-2.0
 * The words in which kernels are written, for OpenCL C 1.2 and for CUDA C. Work-items of a group lie along x; groups along x, y and z. */
#ifdef __OPENCL_C_VERSION__
#define KERNEL(items) __kernel __attribute__((reqd_work_group_size(items, 1, 1))) void
#define FUNCTION static inline
#define GLOBAL __global
#define LOCAL __local     /* memory of a group: of what is declared in a kernel */
#define OF_LOCAL __local  /* the same, of what a parameter points to */
#define RESTRICT restrict
#define GROUP(axis) ((int)get_group_id(axis))
#define GROUPS(axis) ((int)get_num_groups(axis))
#define ITEM ((int)get_local_id(0))
#define WAIT barrier(CLK_LOCAL_MEM_FENCE) /* for all of the group, and for what they wrote to local memory */
#else
#define KERNEL(items) extern "C" __global__ __launch_bounds__(items) void
#define FUNCTION static __device__ inline
#define GLOBAL
#define LOCAL __shared__
#define OF_LOCAL
#define RESTRICT __restrict__
#define GROUP_0 blockIdx.x
#define GROUP_1 blockIdx.y
#define GROUP_2 blockIdx.z
#define GROUPS_0 gridDim.x
#define GROUP(axis) ((int)GROUP_##axis)
#define GROUPS(axis) ((int)GROUPS_##axis)
#define ITEM ((int)threadIdx.x)
#define WAIT __syncthreads()
#define exp expf /* OpenCL's names take floats */
#define log logf
#define sqrt sqrtf
#define tanh tanhf
#endif

#define ITEMS 256 /* of a group, everywhere */
#define AT (GROUP(0) * ITEMS + ITEM) /* the number that an item of a kernel over a flat array computes */
