/* SPDX-License-Identifier: Apache-2.0
 * The products that layers are made of by tensor cores, for compute capability 8.0 and later: TF32 and bfloat16, sums in float. Twins of
 * those of products.cl; gpu_products.c says what is packed how, and where sums go. */
#include "ptx.cuh"
#include "packed.cuh"
#include "tensor.cuh"

#define PACK pack_tf32
#define PARTS 1
#define WORD(x) ptx_tf32((x)[0])
#include "pack.cuh"
#define PACK pack_bf16
#define PARTS 2
#define WORD(x) ptx_bf16((x)[0], (x)[1])
#include "pack.cuh"

#define THE_PRODUCT "product_packed.cuh"
#define THREADS 128
#define TILE_COLS 128
#define STAGES 2   /* a stage takes a thousand cycles: one ahead hides any memory, and two blocks of 128 rows fit an 8.0's 164 KiB */

#define PRECISION tf32
#define MMA ptx_mma_tf32
#define TILE_ROWS 128
#include "three.cuh"
#undef TILE_ROWS
#define TILE_ROWS 64
#include "three.cuh"
#undef TILE_ROWS
#undef MMA
#undef PRECISION

#define PRECISION bf16
#define MMA ptx_mma_bf16
#define TILE_ROWS 128
#include "three.cuh"
#undef TILE_ROWS
#define TILE_ROWS 64
#include "three.cuh"
#undef TILE_ROWS
#undef MMA
#undef PRECISION
#undef THE_PRODUCT
#undef THREADS
#undef TILE_COLS
#undef STAGES
