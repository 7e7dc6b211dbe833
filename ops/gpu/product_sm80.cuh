/* SPDX-License-Identifier: Apache-2.0
 * A product of packed matrices, C = A B^T, by the tensor cores of compute capability 8.0 and later. Who includes this text says which
 * (products_sm80.cu does, for each):
 *   PRODUCT        the kernel's name
 *   TILE_ROWS      rows of C that a block computes, 128 or 64; columns are 128
 *   MMA            what multiplies: ptx_mma_tf32, ptx_mma_bf16
 *   B_WORDS        words of B that are copied at once: 32, B is packed in tiles; 4 or 1, it is an image, whose words are found on the way
 *   B_ROW(i)       of B from an image: the place of row i of B, a column of C
 *   B_WORD(k)      and that of word k of a row
 *
 * Four warps compute a quarter of the tile each, in registers. Copies to shared memory run STAGES - 1 stages ahead, a stage being 32 words
 * of each row (NVIDIA, "CUTLASS: efficient GEMM in CUDA", sections "Hierarchical structure" and "Pipelining"). Every 8 words a warp reads
 * with ldmatrix what mma takes: the pieces of a row are exchanged (packed_piece), so eight rows are read from all banks at once.
 * The sums over `stages` stages may be dealt to several blocks along z, `slice` stages each: the sums of block z go to to[z * rows * cols]. */
KERNEL(THREADS) PRODUCT(GLOBAL const unsigned *a, GLOBAL const unsigned *b, GLOBAL const float *bias, GLOBAL float *to, int rows, int cols,
                        int words, int slice, struct echi_put how, struct echi_gather gather) {
#if B_WORDS < ECHI_PACKED_WORDS
    LOCAL struct place b_row[TILE_COLS];
#else
    (void)gather;
#endif
    const int stages = (words + ECHI_PACKED_WORDS - 1) / ECHI_PACKED_WORDS, from = GROUP(2) * slice;
    const int end = from + slice < stages ? from + slice : stages;
    const struct tile tile = tile_of(GROUP(0), (rows + TILE_ROWS - 1) / TILE_ROWS, (cols + TILE_COLS - 1) / TILE_COLS);
    const int row0 = tile.row * TILE_ROWS, col0 = tile.col * TILE_COLS;
    const int warp = ITEM / 32, lane = ITEM % 32, warp_row = warp / 2 * (TILE_ROWS / 2), warp_col = warp % 2 * (TILE_COLS / 2);
    const unsigned shared = ptx_shared();
    float sum[TILE_ROWS / 32][TILE_COLS / 16][4];
    UNROLL for (int i = 0; i < TILE_ROWS / 32; i++)
        UNROLL for (int j = 0; j < TILE_COLS / 16; j++)
            UNROLL for (int e = 0; e < 4; e++) sum[i][j][e] = 0;
#if B_WORDS < ECHI_PACKED_WORDS
    for (int e = ITEM; e < TILE_COLS; e += THREADS) b_row[e] = col0 + e < cols ? B_ROW(col0 + e) : outside();
    WAIT;
#endif
    /* Thread's addresses in the matrices that ldmatrix reads: its row, and which of two pieces. */
    const unsigned a_row = (unsigned)(warp_row + lane % 16) * ROW_BYTES, b_at = (unsigned)(warp_col + lane % 8 + lane / 16 * 8) * ROW_BYTES;
    const int a_piece = lane / 16, b_piece = lane / 8 % 2;

    PLAIN_LOOP for (int stage = from - (STAGES - 1); stage < end; stage++) {
        const int next = stage + STAGES - 1;
        if (stage >= from) {
            ptx_copy_wait(STAGES - 2);   /* the stage is there, for this thread; then for all, and all have read the one before */
            WAIT;
        }
        if (next < end) {
            const unsigned slot = shared + (unsigned)((next - from) % STAGES) * STAGE_BYTES;
            GLOBAL const unsigned *tile_a = a + packed_at(row0, 0, stages) + next * (ECHI_PACKED_ROWS * ECHI_PACKED_WORDS);
            UNROLL for (int e = 0; e < TILE_ROWS * 8; e += THREADS)
                ptx_copy16(slot + (unsigned)(e + ITEM) * 16, tile_a + (e + ITEM) * 4, 16);
            const unsigned slot_b = slot + TILE_ROWS * ROW_BYTES;
#if B_WORDS == ECHI_PACKED_WORDS
            GLOBAL const unsigned *tile_b = b + packed_at(col0, 0, stages) + next * (ECHI_PACKED_ROWS * ECHI_PACKED_WORDS);
            UNROLL for (int e = 0; e < TILE_COLS * 8; e += THREADS)
                ptx_copy16(slot_b + (unsigned)(e + ITEM) * 16, tile_b + (e + ITEM) * 4, 16);
#else
            const int in_row = ECHI_PACKED_WORDS / B_WORDS, word = ITEM % in_row * B_WORDS;
            const int k = next * ECHI_PACKED_WORDS + word;
            const struct place b_word = k < words ? B_WORD(k) : outside();
            UNROLL for (int e = 0; e < TILE_COLS * in_row; e += THREADS) {
                const int row = (e + ITEM) / in_row, at = gathered(gather, b_row[row], b_word);
                const unsigned to_b = slot_b + (unsigned)(row * ROW_BYTES + packed_piece(row, word / 4) * 16 + word % 4 * 4);
                if (B_WORDS == 4) ptx_copy16(to_b, b + (at < 0 ? 0 : at), at < 0 ? 0 : 16);
                else ptx_copy4(to_b, b + (at < 0 ? 0 : at), at < 0 ? 0 : 4);
            }
#endif
        }
        ptx_copy_commit();   /* an empty group too, so that the wait above counts stages */
        if (stage < from) continue;

        const unsigned slot = shared + (unsigned)((stage - from) % STAGES) * STAGE_BYTES, slot_b = slot + TILE_ROWS * ROW_BYTES;
        UNROLL for (int step = 0; step < ECHI_PACKED_WORDS / 8; step++) {
            unsigned left[TILE_ROWS / 32][4], right[TILE_COLS / 32][4];
            UNROLL for (int i = 0; i < TILE_ROWS / 32; i++)
                ptx_ldmatrix(left[i], slot + a_row + (unsigned)(i * 16 * ROW_BYTES + packed_piece(lane, step * 2 + a_piece) * 16));
            UNROLL for (int j = 0; j < TILE_COLS / 32; j++)
                ptx_ldmatrix(right[j], slot_b + b_at + (unsigned)(j * 16 * ROW_BYTES + packed_piece(lane, step * 2 + b_piece) * 16));
            UNROLL for (int i = 0; i < TILE_ROWS / 32; i++)
                UNROLL for (int j = 0; j < TILE_COLS / 16; j++) MMA(sum[i][j], left[i], right[j / 2] + j % 2 * 2);
        }
    }
    /* Of 16 rows and 8 columns thread 4 r + c has numbers 2 c and 2 c + 1 of rows r and r + 8 (PTX ISA, 9.7.14.5.8, the figure of C). */
    UNROLL for (int i = 0; i < TILE_ROWS / 32; i++)
        UNROLL for (int j = 0; j < TILE_COLS / 16; j++)
            UNROLL for (int e = 0; e < 4; e++)
                put(to, bias, how, rows, cols, row0 + warp_row + i * 16 + lane / 4 + e / 2 * 8, col0 + warp_col + j * 8 + lane % 4 * 2 + e % 2,
                    sum[i][j][e]);
}
#undef PRODUCT
#undef MMA
