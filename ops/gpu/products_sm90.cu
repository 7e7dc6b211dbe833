/* SPDX-License-Identifier: Apache-2.0
 * The products of products_sm80.cu for compute capability 9.0, whose tensor cores read shared memory themselves: compiled for sm_90a. */
#include "ptx.cuh"
#include "packed.cuh"
#include "tensor.cuh"

#define THE_PRODUCT "product_sm90.cuh"
#define TILE_ROWS 128
#define STAGES 4   /* 192 KiB with 256 columns, of the 227 that a block may have */

#define PRECISION wgmma_tf32
#define TILE_COLS 128
#define WGMMA_OF ptx_wgmma_128_tf32
#include "three.cuh"
#undef WGMMA_OF
#undef TILE_COLS
#define TILE_COLS 256
#define WGMMA_OF ptx_wgmma_256_tf32
#define B_WORDS ECHI_PACKED_WORDS
#define PRODUCT NAME(product)
#include "product_sm90.cuh"
#undef B_WORDS
#undef WGMMA_OF
#undef TILE_COLS
#undef PRECISION

#define PRECISION wgmma_bf16
#define TILE_COLS 128
#define WGMMA_OF ptx_wgmma_128_bf16
#include "three.cuh"
#undef WGMMA_OF
#undef TILE_COLS
#define TILE_COLS 256
#define WGMMA_OF ptx_wgmma_256_bf16
#define B_WORDS ECHI_PACKED_WORDS
#define PRODUCT NAME(product)
#include "product_sm90.cuh"
#undef B_WORDS
#undef WGMMA_OF
#undef TILE_COLS
#undef PRECISION
#undef THE_PRODUCT
#undef TILE_ROWS
#undef STAGES
