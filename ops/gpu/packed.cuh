/* SPDX-License-Identifier: Apache-2.0
 * Packed matrices: how they lie. */
#ifndef PACKED_CUH
#define PACKED_CUH
#define ROW_BYTES (ECHI_PACKED_WORDS * 4)
#include "echi_gpu_packed.h"

/* Tiles lie one after the other along a row of tiles, `across` of them. In a tile row r's eight pieces of 16 bytes are exchanged, piece c
 * for c ^ r % 8: the same piece of eight rows then lies in all banks, and a tile is copied to shared memory as it is. It is what the ISA
 * calls the 128-byte swizzle (PTX ISA, 5.5.6), so that wgmma reads such tiles too. */
PTX int packed_piece(int row, int piece) { return piece ^ (row & 7); }
PTX int packed_at(int row, int word, int across) {
    return (row / ECHI_PACKED_ROWS * across + word / ECHI_PACKED_WORDS) * (ECHI_PACKED_ROWS * ECHI_PACKED_WORDS) +
           row % ECHI_PACKED_ROWS * ECHI_PACKED_WORDS + packed_piece(row, word % ECHI_PACKED_WORDS / 4) * 4 + word % 4;
}
/* Where row `row`, the first of some, of stage `stage` lies in tiles; and in shared memory, byte of a piece of a row. */
PTX int packed_stage(int row, int stage, int stages) { return packed_at(row, 0, stages) + stage * (ECHI_PACKED_ROWS * ECHI_PACKED_WORDS); }
PTX unsigned packed_byte(int row, int piece) { return (unsigned)(row * ROW_BYTES + packed_piece(row, piece) * 16); }
/* The same row of bytes for wgmma, at byte `at` of shared memory: rows of 128 bytes, exchanged as above, eight rows 1024 bytes after the
 * eight before (PTX ISA, 9.7.15.5.1, "Matrix descriptor": bits 0, 16, 32 and 62). Tiles begin at multiples of 1024. */
PTX unsigned long long packed_matrix(unsigned at) {
    return (unsigned long long)1 << 62 | (unsigned long long)(1024 / 16) << 32 | (unsigned long long)1 << 16 | (at & 0x3ffff) / 16;
}
#endif
