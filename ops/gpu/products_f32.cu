/* SPDX-License-Identifier: Apache-2.0
 * The products that layers are made of in float, nothing rounded but sums and products, for compute capability 8.0 and later: the copies
 * to shared memory and the layouts of products_sm80.cu, and 64 sums a thread in registers, or 32, in place of tensor cores. */
#include "ptx.cuh"
#include "packed.cuh"
#include "tensor.cuh"

#define PACK pack_float
#define PARTS 1
#define WORD(x) ptx_float((x)[0])
#include "pack.cuh"

#define THE_PRODUCT "product_packed.cuh"
#define THREADS 256
#define TILE_COLS 128
#define STAGES 2   /* a stage takes thousands of cycles: one ahead hides any memory, and two blocks fit an 8.0's 164 KiB */

#define PRECISION float
#define TILE_ROWS 128
#include "three.cuh"
#undef TILE_ROWS
#define TILE_ROWS 64
#include "three.cuh"
#undef TILE_ROWS
#undef PRECISION
#undef THE_PRODUCT
#undef THREADS
#undef TILE_COLS
#undef STAGES
