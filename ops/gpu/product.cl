/* SPDX-License-Identifier: Apache-2.0
 * A product of matrices, C = A B, as a kernel. Who includes this text says which (products.cl does, for each):
 *   PRODUCT, PARAMETERS      the kernel's name, and its own parameters, each with a comma behind
 *   A_ROW(row), A_K(k)       what a row of A, and a k, have to say about where a number of A lies: a struct place each
 *   A(row, k)                the number, from these two. B_K(k), B_COL(col), B(k, col) likewise
 *   A_ALONG_K, B_ALONG_K     neighbours in memory are neighbours along k, not along row (col): decides which work-item loads which number
 *   C_COL(col)               what a column has to say about where a sum goes
 *   PUT(row, col, at, sum)   what becomes of a sum; at: what C_COL said
 *
 * A group computes TILE x TILE sums, DOWN x ACROSS items; each has ROWS x COLS of them in registers, of LANES columns at once, and reads
 * the ROWS + COLS that a k needs from local memory, where STEP columns of A and STEP rows of B lie at a time (Volkov and Demmel,
 * "Benchmarking GPUs to tune dense linear algebra", SC 2008, sections 4 and 5). Where a number lies is asked once a row, column and k and
 * kept in local memory: divisions would take longer than the product. The sums over k may be dealt to several groups along z, `slice` of
 * them each. */
KERNEL(DOWN * ACROSS) PRODUCT(PARAMETERS int rows, int cols, int depth, int slice) {
    LOCAL float a[STEP][TILE + 1], b[STEP][TILE];
    LOCAL struct place a_row[TILE], b_col[TILE], a_k[STEP], b_k[STEP];
    const int row0 = GROUP(1) * TILE, col0 = GROUP(0) * TILE, from = GROUP(2) * slice;
    const int end = from + slice < depth ? from + slice : depth;
    const int y = ITEM / ACROSS, x = ITEM % ACROSS;
    const bool works = row0 + y < rows;     /* else none of its sums is needed */
    wide sum[ROWS][COLS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) sum[i][j] = 0;
    for (int e = ITEM; e < TILE; e += DOWN * ACROSS) {
        a_row[e] = row0 + e < rows ? A_ROW(row0 + e) : outside();
        b_col[e] = col0 + e < cols ? B_COL(col0 + e) : outside();
    }
    for (int k0 = from; k0 < end; k0 += STEP) {
        for (int e = ITEM; e < STEP; e += DOWN * ACROSS) {
            a_k[e] = k0 + e < end ? A_K(k0 + e) : outside();
            b_k[e] = k0 + e < end ? B_K(k0 + e) : outside();
        }
        WAIT;   /* also for the last product, which reads what is loaded now */
        for (int e = ITEM; e < TILE * STEP; e += DOWN * ACROSS) {
            const int k = A_ALONG_K ? e % STEP : e / TILE, row = A_ALONG_K ? e / STEP : e % TILE;
            a[k][row] = A(a_row[row], a_k[k]);
        }
        for (int e = ITEM; e < TILE * STEP; e += DOWN * ACROSS) {
            const int k = B_ALONG_K ? e % STEP : e / TILE, col = B_ALONG_K ? e / STEP : e % TILE;
            b[k][col] = B(b_k[k], b_col[col]);
        }
        WAIT;
        if (works) {
            wide more[ROWS][COLS];
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLS; j++) more[i][j] = sum[i][j];
            for (int k = 0; k < STEP; k++) {
                wide right[COLS];
                for (int j = 0; j < COLS; j++) right[j] = LOAD(&b[k][(x + j * ACROSS) * LANES]);
                for (int i = 0; i < ROWS; i++)
                    for (int j = 0; j < COLS; j++) more[i][j] += a[k][y + i * DOWN] * right[j];
            }
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLS; j++) sum[i][j] = more[i][j];
        }
    }
    for (int j = 0; j < COLS && works; j++)
        for (int lane = 0; lane < LANES; lane++) {
            const int col = col0 + (x + j * ACROSS) * LANES + lane;
            if (col >= cols) continue;
            const int at = C_COL(col);
            for (int i = 0; i < ROWS; i++) {
                const int row = row0 + y + i * DOWN;
                if (row < rows) PUT(row, col, at, LANE(sum[i][j], lane));
            }
        }
}
#undef PRODUCT
#undef PARAMETERS
#undef A_ROW
#undef A_K
#undef A
#undef B_K
#undef B_COL
#undef B
#undef A_ALONG_K
#undef B_ALONG_K
#undef C_COL
#undef PUT
