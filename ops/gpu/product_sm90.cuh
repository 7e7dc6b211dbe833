/* SPDX-License-Identifier: Apache-2.0
 * A product of packed matrices, C = A B^T, for compute capability 9.0. Who includes this text says which, as of product_packed.cuh:
 *   PRODUCT, B_WORDS, B_ROW, B_WORD    as there
 *   TILE_COLS                          256 or 128; TILE_ROWS are 128
 *   STAGES                             how many stages there is room for
 *   WGMMA_OF                           the instruction: ptx_wgmma_256_tf32, ... of as many columns
 *
 * Two groups of four warps multiply 64 rows each, by instructions that read shared memory themselves; further warps copy to it. Of each
 * stage one barrier says that it is there, another that it has been read (NVIDIA, "CUTLASS 3.x", "warp specialized" kernels). What is
 * packed in tiles is copied by one thread, a tile at a time; what lies in an image, by 128 threads with copies of their own, which must
 * have come, and be made visible to wgmma (ptx_proxy_fence), before the thread arrives at the barrier: that happens LAG stages later. */
#if B_WORDS < ECHI_PACKED_WORDS
#define COPIERS 256
#else
#define COPIERS 32
#endif
#define TILE_BYTES (ECHI_PACKED_ROWS * ROW_BYTES)
#define LAG 2
KERNEL(256 + COPIERS) PRODUCT(GLOBAL const unsigned *a, GLOBAL const unsigned *b, GLOBAL const float *bias, GLOBAL float *to, int rows,
                              int cols, int words, int slice, struct echi_put how, struct echi_gather gather) {
    const unsigned stage_bytes = (TILE_ROWS + TILE_COLS) * ROW_BYTES, shared = (ptx_shared() + 1023) / 1024 * 1024;
    const unsigned come = shared + STAGES * stage_bytes, gone = come + STAGES * 8;   /* a barrier a stage each */
    const int stages = (words + ECHI_PACKED_WORDS - 1) / ECHI_PACKED_WORDS, from = GROUP(2) * slice;
    const int count = (from + slice < stages ? from + slice : stages) - from;
    const struct tile tile = tile_of(GROUP(0), (rows + TILE_ROWS - 1) / TILE_ROWS, (cols + TILE_COLS - 1) / TILE_COLS);
    const int row0 = tile.row * TILE_ROWS, col0 = tile.col * TILE_COLS;
    LOCAL int put_at[TILE_COLS];
    look_up_columns(put_at, how, cols, col0, TILE_COLS, 256 + COPIERS);
#if B_WORDS < ECHI_PACKED_WORDS
    LOCAL struct place b_row[TILE_COLS];
    for (int e = ITEM; e < TILE_COLS; e += 256 + COPIERS) b_row[e] = col0 + e < cols ? B_ROW(col0 + e) : outside();
#else
    (void)gather;
#endif
    if (ITEM == 0) {
        for (int slot = 0; slot < STAGES; slot++) {
            ptx_barrier_init(come + (unsigned)slot * 8, B_WORDS < ECHI_PACKED_WORDS ? COPIERS + 1 : 1);
            ptx_barrier_init(gone + (unsigned)slot * 8, 8);   /* a thread of each warp that multiplies */
        }
        ptx_barrier_ready();
    }
    WAIT;
    if (ITEM >= 256) {
        const int copier = ITEM - 256;
        for (int s = 0; s < count + LAG; s++) {
            const unsigned slot = (unsigned)(s % STAGES), at = shared + slot * stage_bytes;
            if (s < count && (B_WORDS < ECHI_PACKED_WORDS || copier == 0)) ptx_barrier_wait(gone + slot * 8, s / STAGES % 2 ^ 1);
            if (s < count && copier == 0) {
#if B_WORDS < ECHI_PACKED_WORDS
                ptx_barrier_expect(come + slot * 8, TILE_BYTES);
#else
                const int tiles = col0 + ECHI_PACKED_ROWS < cols ? TILE_COLS / ECHI_PACKED_ROWS : 1;   /* the last may be half */
                ptx_barrier_expect(come + slot * 8, (1 + tiles) * TILE_BYTES);
                for (int t = 0; t < tiles; t++)
                    ptx_bulk(at + (unsigned)(1 + t) * TILE_BYTES, b + packed_stage(col0 + t * ECHI_PACKED_ROWS, from + s, stages),
                             TILE_BYTES, come + slot * 8);
#endif
                ptx_bulk(at, a + packed_stage(row0, from + s, stages), TILE_BYTES, come + slot * 8);
            }
#if B_WORDS < ECHI_PACKED_WORDS
            if (s < count) {
                const int k = (from + s) * ECHI_PACKED_WORDS + copier % (ECHI_PACKED_WORDS / B_WORDS) * B_WORDS;
                gather_rows(at + TILE_BYTES, b, gather, b_row, k < words ? B_WORD(k) : outside(), TILE_COLS, B_WORDS, copier, COPIERS);
            }
            ptx_copy_commit();   /* an empty group too, so that the wait below counts stages */
            if (s >= LAG) {
                ptx_copy_wait(LAG);
                ptx_proxy_fence();
                ptx_barrier_arrive(come + (unsigned)((s - LAG) % STAGES) * 8);
            }
#endif
        }
        return;
    }
    const int half = ITEM / 128;
    float sum[TILE_COLS / 2];
    UNROLL for (int e = 0; e < TILE_COLS / 2; e++) {
        sum[e] = 0;
        ptx_settle(&sum[e]);
    }
    PLAIN_LOOP for (int s = 0; s < count; s++) {
        const unsigned slot = (unsigned)(s % STAGES), at = shared + slot * stage_bytes;
        ptx_barrier_wait(come + slot * 8, s / STAGES % 2);
        ptx_wgmma_fence();
        UNROLL for (int step = 0; step < ROW_BYTES / 32; step++)
            WGMMA_OF(sum, packed_matrix(at + (unsigned)(half * 64 * ROW_BYTES + step * 32)),
                     packed_matrix(at + TILE_BYTES + (unsigned)(step * 32)));
        ptx_wgmma_commit();
        ptx_wgmma_wait(1);   /* the stage before has been read */
        if (s > 0 && ITEM % 32 == 0) ptx_barrier_arrive(gone + (unsigned)((s - 1) % STAGES) * 8);
    }
    ptx_wgmma_wait(0);
    UNROLL for (int e = 0; e < TILE_COLS / 2; e++) ptx_settle(&sum[e]);
    put_quads(sums_of(to, bias, how, put_at, rows, cols, col0), row0 + half * 64 + ITEM % 128 / 32 * 16, 0, TILE_COLS / 8, sum);
}
#undef PRODUCT
#undef COPIERS
#undef TILE_BYTES
#undef LAG
