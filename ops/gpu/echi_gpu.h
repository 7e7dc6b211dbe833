/* SPDX-License-Identifier: Apache-2.0
 * What the files of this folder share. */
#ifndef ECHI_GPU_H
#define ECHI_GPU_H
#include "echi_stack_impl.h"

extern const struct echi_source echi_gpu_source;       /* kernels.cl */
extern const struct echi_source echi_gpu_source_cpu;   /* the same for devices that are processors, whose products go by vectors */
#define ECHI_GPU_ITEMS 256           /* ITEMS of prelude.cl */
#define ECHI_GPU_TILE 64             /* TILE of products.cl */
#define ECHI_GPU_PRODUCT_ITEMS 256   /* DOWN * ACROSS of products.cl; and with CPU: */
#define ECHI_GPU_PRODUCT_ITEMS_CPU 16
#endif
