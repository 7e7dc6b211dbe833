/* SPDX-License-Identifier: Apache-2.0
 * A product of matrices, C = A B, as a kernel. Who includes this text says which (products.cl does, for each):
 *   PRODUCT             the kernel's name
 *   PARAMETERS          its own parameters, each with a comma behind
 *   A(row, k), B(k, col)   numbers of the matrices, wherever they lie: asked for inside the matrices only
 *   A_ALONG_K, B_ALONG_K   neighbours in memory are neighbours along k, not along row (col): decides which work-item loads which number
 *   PUT(row, col, sum)  what becomes of a sum
 *
 * A group computes TILE x TILE sums, its 256 items 4 x 4 each, in registers: 16 sums for 8 numbers read from local memory, where STEP columns
 * of A and STEP rows of B lie at a time (Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008, sections 4 and 5).
 * Items are dealt so that what one computes lies 16 apart, and what neighbours read lies side by side. The sums over k may be dealt to several
 * groups along z, `slice` of them each. */
KERNEL(ITEMS) PRODUCT(PARAMETERS int rows, int cols, int depth, int slice) {
    LOCAL float a[STEP][TILE + 1], b[STEP][TILE + 1];
    const int row0 = GROUP(1) * TILE, col0 = GROUP(0) * TILE, from = GROUP(2) * slice;
    const int end = from + slice < depth ? from + slice : depth;
    const int y = ITEM / ACROSS, x = ITEM % ACROSS;
    float sum[EACH][EACH];
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) sum[i][j] = 0;
    for (int k0 = from; k0 < end; k0 += STEP) {
        for (int e = ITEM; e < TILE * STEP; e += ITEMS) {
            const int k = A_ALONG_K ? e % STEP : e / TILE, row = A_ALONG_K ? e / STEP : e % TILE;
            a[k][row] = row0 + row < rows && k0 + k < end ? A(row0 + row, k0 + k) : 0;
        }
        for (int e = ITEM; e < TILE * STEP; e += ITEMS) {
            const int k = B_ALONG_K ? e % STEP : e / TILE, col = B_ALONG_K ? e / STEP : e % TILE;
            b[k][col] = col0 + col < cols && k0 + k < end ? B(k0 + k, col0 + col) : 0;
        }
        WAIT;
        for (int k = 0; k < STEP; k++) {
            float left[EACH], right[EACH];
            for (int i = 0; i < EACH; i++) left[i] = a[k][y + i * ACROSS], right[i] = b[k][x + i * ACROSS];
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++) sum[i][j] += left[i] * right[j];
        }
        WAIT;
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const int row = row0 + y + i * ACROSS, col = col0 + x + j * ACROSS;
            if (row < rows && col < cols) PUT(row, col, sum[i][j]);
        }
}
#undef PRODUCT
#undef PARAMETERS
#undef A
#undef B
#undef A_ALONG_K
#undef B_ALONG_K
#undef PUT
