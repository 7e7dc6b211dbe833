/* SPDX-License-Identifier: Apache-2.0
 * What the files of this folder share. */
#ifndef ECHI_GPU_H
#define ECHI_GPU_H
#include "echi_stack_impl.h"

extern const struct echi_source echi_gpu_source;       /* kernels.cl */
extern const struct echi_source echi_gpu_source_cpu;   /* the same for devices that are processors, whose products go by vectors */
extern const struct echi_source *const echi_gpu_product_sources[];   /* by enum echi_product_text; NULL: the portable one */
#define ECHI_GPU_ITEMS 256           /* ITEMS of prelude.cl */
/* Rows and columns of a product that a group computes, and its work-items: TILE_ROWS, TILE_COLS and PRODUCT_ITEMS of products.cl. */
struct echi_gpu_tile { size_t high, wide, items; };
#define ECHI_GPU_TILE {64, 64, 256}
#define ECHI_GPU_TILE_CPU {128, 256, 1}   /* with CPU */
#endif
