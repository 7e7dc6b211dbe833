/* SPDX-License-Identifier: Apache-2.0
 * What the files of this folder share. */
#ifndef ECHI_GPU_H
#define ECHI_GPU_H
#include "echi_stack_impl.h"

extern const char echi_gpu_text[];   /* kernels.cl */
#define ECHI_GPU_ITEMS 256           /* ITEMS of prelude.cl */
#define ECHI_GPU_TILE 64             /* TILE of products.cl */
#endif
