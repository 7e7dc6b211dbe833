/* SPDX-License-Identifier: Apache-2.0
 * CUDA's words for a clang that has no CUDA toolkit beside it: it knows the language, and its headers would come from the toolkit. Included
 * in front of a text (Makefile), so that PTX can be made on any machine. */
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(items) __attribute__((launch_bounds(items)))
struct echi_three { int x, y, z; };
#define threadIdx (echi_three{__nvvm_read_ptx_sreg_tid_x(), __nvvm_read_ptx_sreg_tid_y(), __nvvm_read_ptx_sreg_tid_z()})
#define blockIdx (echi_three{__nvvm_read_ptx_sreg_ctaid_x(), __nvvm_read_ptx_sreg_ctaid_y(), __nvvm_read_ptx_sreg_ctaid_z()})
#define gridDim (echi_three{__nvvm_read_ptx_sreg_nctaid_x(), __nvvm_read_ptx_sreg_nctaid_y(), __nvvm_read_ptx_sreg_nctaid_z()})
#define BARE_FUNCTION static __device__ inline
#include "bare_math.h"
