/* SPDX-License-Identifier: Apache-2.0
 * A product of packed matrices, C = A B^T, for compute capability 8.0 and later. Who includes this text says which (three.cuh does):
 *   PRODUCT        the kernel's name
 *   THREADS        of a block; STAGES, how many stages of copies there is room for
 *   TILE_ROWS      rows of C that a block computes, 128 or 64; TILE_COLS, columns: 128
 *   MMA            the instruction that multiplies, with four warps; without it 256 threads multiply floats one by one
 *   B_WORDS        words of B that are copied at once: 32, B is packed in tiles; 4 or 1, it is an image, whose words are found on the way
 *   B_ROW(i)       of B from an image: the place of row i of B, a column of C
 *   B_WORD(k)      and that of word k of a row
 *
 * Copies to shared memory run STAGES - 1 stages ahead, a stage being 32 words of each row (NVIDIA, "CUTLASS: efficient GEMM in CUDA",
 * sections "Hierarchical structure" and "Pipelining"). With MMA a warp computes a quarter of the tile in registers; every 8 words it reads
 * with ldmatrix what the instruction takes. Without, a thread computes every 16th row and column (Volkov and Demmel, SC 2008), four words
 * of a row at a time. Either way eight rows are read from all banks at once, as the pieces of a row are exchanged (packed_piece).
 * The sums over all stages may be dealt to several blocks along z, `slice` stages each: put() says where theirs go. */
#ifdef MMA
#define BOUNDS KERNEL(THREADS)
#elif TILE_ROWS == 128 && B_WORDS < ECHI_PACKED_WORDS
#define BOUNDS KERNEL_OF(THREADS, 1)   /* two blocks at a time would have too few registers to find words on the way */
#define PIECES UNROLL
#else
#define BOUNDS KERNEL_OF(THREADS, 2)
#define PIECES PLAIN_LOOP              /* unrolled, loads would fill the registers of both */
#endif
BOUNDS PRODUCT(GLOBAL const unsigned *a, GLOBAL const unsigned *b, GLOBAL const float *bias, GLOBAL float *to, int rows, int cols,
                        int words, int slice, struct echi_put how, struct echi_gather gather) {
    const unsigned stage_bytes = (TILE_ROWS + TILE_COLS) * ROW_BYTES, shared = ptx_shared();
    const int stages = (words + ECHI_PACKED_WORDS - 1) / ECHI_PACKED_WORDS, from = GROUP(2) * slice;
    const int end = from + slice < stages ? from + slice : stages;
    const struct tile tile = tile_of(GROUP(0), (rows + TILE_ROWS - 1) / TILE_ROWS, (cols + TILE_COLS - 1) / TILE_COLS);
    const int row0 = tile.row * TILE_ROWS, col0 = tile.col * TILE_COLS;
#ifdef MMA
    const int warp = ITEM / 32, lane = ITEM % 32, warp_row = warp / 2 * (TILE_ROWS / 2), warp_col = warp % 2 * (TILE_COLS / 2);
    float sum[TILE_ROWS / 32][TILE_COLS / 16][4];
    UNROLL for (int i = 0; i < TILE_ROWS / 32; i++)
        UNROLL for (int j = 0; j < TILE_COLS / 16; j++)
            UNROLL for (int e = 0; e < 4; e++) sum[i][j][e] = 0;
#else
    /* A warp has 4 rows and 8 columns, whose words lie in all banks. Of 16 bytes a thread, a quarter of a warp is served at a time, or half
     * where threads whose numbers differ in bit 0 or bit 1 read the same: so one of these is of the row, one of the column. */
    const int y = ITEM / 64 * 4 + ITEM / 16 % 2 * 2 + ITEM % 2, x = ITEM / 32 % 2 * 8 + ITEM / 2 % 8;
    float sum[TILE_ROWS / 16][TILE_COLS / 16];
    UNROLL for (int i = 0; i < TILE_ROWS / 16; i++)
        UNROLL for (int j = 0; j < TILE_COLS / 16; j++) sum[i][j] = 0;
#endif
    LOCAL int put_at[TILE_COLS];
    look_up_columns(put_at, how, cols, col0, TILE_COLS, THREADS);
#if B_WORDS < ECHI_PACKED_WORDS
    LOCAL struct place b_row[TILE_COLS];
    for (int e = ITEM; e < TILE_COLS; e += THREADS) b_row[e] = col0 + e < cols ? B_ROW(col0 + e) : outside();
    WAIT;
#else
    (void)gather;
#endif

    PLAIN_LOOP for (int stage = from - (STAGES - 1); stage < end; stage++) {
        const int next = stage + STAGES - 1;
        if (stage >= from) {
            ptx_copy_wait(STAGES - 2);   /* the stage is there, for this thread; then for all, and all have read the one before */
            WAIT;
        }
        if (next < end) {
            const unsigned slot = shared + (unsigned)((next - from) % STAGES) * stage_bytes, slot_b = slot + TILE_ROWS * ROW_BYTES;
            copy_rows(slot, a, packed_stage(row0, next, stages), TILE_ROWS, THREADS);
#if B_WORDS == ECHI_PACKED_WORDS
            copy_rows(slot_b, b, packed_stage(col0, next, stages), TILE_COLS, THREADS);
#else
            const int k = next * ECHI_PACKED_WORDS + ITEM % (ECHI_PACKED_WORDS / B_WORDS) * B_WORDS;
            gather_rows(slot_b, b, gather, b_row, k < words ? B_WORD(k) : outside(), TILE_COLS, B_WORDS, ITEM, THREADS);
#endif
        }
        ptx_copy_commit();   /* an empty group too, so that the wait above counts stages */
        if (stage < from) continue;

        const unsigned slot = shared + (unsigned)((stage - from) % STAGES) * stage_bytes, slot_b = slot + TILE_ROWS * ROW_BYTES;
#ifdef MMA
        UNROLL for (int piece = 0; piece < ECHI_PACKED_WORDS / 4; piece += 2) {
            unsigned left[TILE_ROWS / 32][4], right[TILE_COLS / 32][4];
            UNROLL for (int i = 0; i < TILE_ROWS / 32; i++)   /* 16 rows, the left and then the right piece of them */
                ptx_ldmatrix(left[i], slot + packed_byte(warp_row + i * 16 + lane % 16, piece + lane / 16));
            UNROLL for (int j = 0; j < TILE_COLS / 32; j++)   /* 8 columns, both pieces, and then the next 8 */
                ptx_ldmatrix(right[j], slot_b + packed_byte(warp_col + j * 16 + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2));
            UNROLL for (int i = 0; i < TILE_ROWS / 32; i++)
                UNROLL for (int j = 0; j < TILE_COLS / 16; j++) MMA(sum[i][j], left[i], right[j / 2] + j % 2 * 2);
        }
#else
        PIECES for (int piece = 0; piece < ECHI_PACKED_WORDS / 4; piece++) {
            float left[TILE_ROWS / 16][4], right[4];
            UNROLL for (int i = 0; i < TILE_ROWS / 16; i++) ptx_load(left[i], slot + packed_byte(y + i * 16, piece));
            UNROLL for (int j = 0; j < TILE_COLS / 16; j++) {
                ptx_load(right, slot_b + packed_byte(x + j * 16, piece));
                UNROLL for (int k = 0; k < 4; k++)
                    UNROLL for (int i = 0; i < TILE_ROWS / 16; i++) sum[i][j] += left[i][k] * right[k];
            }
        }
#endif
    }
    const struct sums sums = sums_of(to, bias, how, put_at, rows, cols, col0);
#ifdef MMA
    UNROLL for (int i = 0; i < TILE_ROWS / 32; i++) put_quads(sums, row0 + warp_row + i * 16, warp_col, TILE_COLS / 16, sum[i][0]);
#else
    UNROLL for (int i = 0; i < TILE_ROWS / 16; i++) put_row(sums, row0 + y + i * 16, x, 16, TILE_COLS / 16, sum[i]);
#endif
}
#undef PRODUCT
#undef BOUNDS
#undef PIECES
