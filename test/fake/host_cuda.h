/* SPDX-License-Identifier: Apache-2.0
 * CUDA's words for a C++ compiler of the host: a kernel is a function that cuda.cpp calls once for each work-item, each on a stack of its
 * own. Local memory is one piece for all groups, as they come one after the other. */
#ifndef HOST_CUDA_H
#define HOST_CUDA_H
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __launch_bounds__(items)
#define __shared__ __attribute__((section("fake_local"))) static
struct fake_three { unsigned x, y, z; };
extern fake_three threadIdx, blockIdx, gridDim;
void fake_wait();
#define __syncthreads() fake_wait()

/* kernels.cpp: how each kernel is called with the values of its parameters, whose sizes these are; `text`: of one that
 * test/ops/simt.h runs. */
struct launcher { std::vector<size_t> sizes; void (*call)(void *const *values); void (*text)(void *values); };
void fake_kernels(std::map<std::string, launcher> &out);
#endif
