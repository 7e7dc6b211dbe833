/* SPDX-License-Identifier: Apache-2.0
 * Packed matrices: how they lie, and the kernels that make them. */
#include "echi_gpu_packed.h"

/* Tiles lie one after the other along a row of tiles, `across` of them. In a tile row r's eight pieces of 16 bytes are exchanged, piece c
 * for c ^ r % 8: the same piece of eight rows then lies in all banks, and a tile is copied to shared memory as it is. It is what the ISA
 * calls the 128-byte swizzle (PTX ISA, 5.5.6), so that wgmma reads such tiles too. */
PTX int packed_piece(int row, int piece) { return piece ^ (row & 7); }
PTX int packed_at(int row, int word, int across) {
    return (row / ECHI_PACKED_ROWS * across + word / ECHI_PACKED_WORDS) * (ECHI_PACKED_ROWS * ECHI_PACKED_WORDS) +
           row % ECHI_PACKED_ROWS * ECHI_PACKED_WORDS + packed_piece(row, word % ECHI_PACKED_WORDS / 4) * 4 + word % 4;
}

#define PACK pack_tf32
#define PARTS 1
#define WORD(x) ptx_tf32((x)[0])
#include "pack.cuh"

#define PACK pack_bf16
#define PARTS 2
#define WORD(x) ptx_bf16((x)[0], (x)[1])
#include "pack.cuh"
