/* SPDX-License-Identifier: Apache-2.0
 * The products that layers are made of by tensor cores, for compute capability 8.0 and later: TF32 and bfloat16, sums in float. Twins of
 * those of products.cl; the host says what is packed how, and what is added up where (gpu_products.c). Three kinds of B, two heights of a
 * tile, two precisions. */
#include "ptx.cuh"
#include "packed.cuh"
#include "tensor.cuh"

#define THREADS 128
#define TILE_COLS 128
#define STAGES 3   /* 96 KiB with 128 rows: what every card since 8.0 has, and twice that in one of 9.0 */
#define ROW_BYTES (ECHI_PACKED_WORDS * 4)
#define STAGE_BYTES ((TILE_ROWS + TILE_COLS) * ROW_BYTES)

#define JOIN(name, rows) name##_##rows
#define JOINED(name, rows) JOIN(name, rows)
#define NAME(name) JOINED(name, TILE_ROWS)   /* product_tf32_128 */

#define TILE_ROWS 128
#include "three_sm80.cuh"
#undef TILE_ROWS
#define TILE_ROWS 64
#include "three_sm80.cuh"
