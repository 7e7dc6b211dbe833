/* SPDX-License-Identifier: Apache-2.0
 * A product of matrices, C = A B, as a kernel. Who includes this text says which (products.cl does, for each):
 *   PRODUCT, PARAMETERS      the kernel's name, and its own parameters, each with a comma behind
 *   A(row, k), B(k, col)     a number. row, k and col count within the tile; the matrix's own are row0 + row, k0 + k and col0 + col
 *   A_ALONG_K, B_ALONG_K     neighbours in memory are neighbours along k, not along row (col): decides which work-item loads which number
 *   PLAIN_K(k)               if A or B needs it: what a k of the matrix has to say about where a number lies. It finds that in plain_k[k]
 *   IMAGE_A or IMAGE_B       if one of them is found in an image; then also
 *   IMAGE_K(k), IMAGE_LINE   what a k, and a row of A (column of B), has to say about where: a struct place each. IMAGE() finds them
 *   FROM, HIGH, ACROSS       the image, its rows and columns
 *   C_COL(col)               what a column of the matrix has to say about where a sum goes
 *   PUT(row, col, at, sum)   what becomes of a sum, of that row and column of the matrix; at: what C_COL said
 *
 * A group computes TILE_ROWS x TILE_COLS sums. Of A and B it has STEP columns (rows) at a time in local memory, and of the sums blocks of
 * ROWS x COLS in registers, each of LANES columns (Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008, sections 4
 * and 5). On a GPU each work-item has one block, for all of k. On a processor the group is one item, which has all blocks, one after the
 * other, and keeps their sums between two loads: that is Goto's scheme ("Anatomy of high-performance matrix multiplication", ACM TOMS 34,
 * 2008), where the tiles are the packed parts of A and B, in the second cache. The sums over k may be dealt to several groups along z,
 * `slice` of them each. */
#ifdef IMAGE_A                   /* PLACES: of the image that a tile has at a time, of which neighbours often lie side by side */
#define LINES TILE_ROWS
#define LINE_0 row0
#define LINES_ALL rows
#define PLACES STEP
#else
#define LINES TILE_COLS
#define LINE_0 col0
#define LINES_ALL cols
#define PLACES TILE_COLS
#endif
KERNEL(PRODUCT_ITEMS) PRODUCT(PARAMETERS int rows, int cols, int depth, int slice) {
    LOCAL float a[A_ROOM], b[STEP * TILE_COLS];
#ifdef PLAIN_K
    LOCAL int plain_k[STEP];
#endif
#ifdef IMAGE_K
    LOCAL int k_at[STEP], k_h[STEP], k_v[STEP], line_at[LINES], line_h[LINES], line_v[LINES];
#endif
#ifdef LOAD_RUNS
    LOCAL int run[PLACES + 1];
    int runs = 0;
#endif
    const int row0 = GROUP(1) * TILE_ROWS, col0 = GROUP(0) * TILE_COLS, from = GROUP(2) * slice;
    const int end = from + slice < depth ? from + slice : depth;
    wide sums[BLOCKS][ROWS][COLS];
#ifdef IMAGE_K
    for (int line = ITEM; line < LINES; line += PRODUCT_ITEMS) {
        /* What becomes of one that is not there goes nowhere. */
        const struct place p = IMAGE_LINE(LINE_0 + line < LINES_ALL ? LINE_0 + line : 0);
        line_at[line] = p.at, line_h[line] = p.h, line_v[line] = p.v;
    }
#endif
#if defined(LOAD_RUNS) && defined(IMAGE_B)
    runs = find_runs(line_v, cols - col0 < TILE_COLS ? cols - col0 : TILE_COLS, run);
#endif
    for (int k0 = from; k0 < end; k0 += STEP) {
#if defined(PLAIN_K) || defined(IMAGE_K)
        for (int k = ITEM; k < STEP; k += PRODUCT_ITEMS) {
            const int known = k0 + k < end ? k0 + k : 0;
#ifdef PLAIN_K
            plain_k[k] = PLAIN_K(known);
#endif
#ifdef IMAGE_K
            const struct place p = IMAGE_K(known);
            k_at[k] = p.at, k_h[k] = p.h, k_v[k] = p.v;
#endif
        }
#endif
#if defined(LOAD_RUNS) && defined(IMAGE_A)
        runs = find_runs(k_v, STEPS_HERE, run);
#endif
        WAIT;   /* also for the last product, which reads what is loaded now */
#if defined(LOAD_RUNS) && defined(IMAGE_A)
        if (runs > 0) {
            for (int r = 0; r < runs; r++)
                load_run(FROM, HIGH, ACROSS, k_at[run[r]], k_h[run[r]], k_v[run[r]], run[r + 1] - run[r], line_at, line_h, line_v,
                         rows - row0 < TILE_ROWS ? rows - row0 : TILE_ROWS, &a[A_PLACE(run[r], 0)], STEP);
        } else
#endif
        if (A_ALONG_K) {
            for (int row = ITEM / SPREAD(STEP); row < ROWS_HERE; row += PRODUCT_ITEMS / SPREAD(STEP))
                for (int k = ITEM % SPREAD(STEP); k < STEPS_HERE; k += SPREAD(STEP))
                    a[A_PLACE(k, row)] = ((row0 + row < rows) & (k0 + k < end)) ? A(row, k) : 0;
        } else {
            for (int k = ITEM / SPREAD(TILE_ROWS); k < STEPS_HERE; k += PRODUCT_ITEMS / SPREAD(TILE_ROWS))
                for (int row = ITEM % SPREAD(TILE_ROWS); row < ROWS_HERE; row += SPREAD(TILE_ROWS))
                    a[A_PLACE(k, row)] = ((row0 + row < rows) & (k0 + k < end)) ? A(row, k) : 0;
        }
#if defined(LOAD_RUNS) && defined(IMAGE_B)
        for (int r = 0; r < runs; r++)
            load_run(FROM, HIGH, ACROSS, line_at[run[r]], line_h[run[r]], line_v[run[r]], run[r + 1] - run[r], k_at, k_h, k_v, STEPS_HERE,
                     &b[B_PLACE(0, run[r])], PANEL);
        if (runs == 0)
#endif
        for (int panel = 0; panel < TILE_COLS && col0 + panel < cols; panel += PANEL) {
            OF_LOCAL float *part = b + panel * STEP;
            if (B_ALONG_K) {
                for (int col = ITEM / SPREAD(STEP); col < PANEL; col += PRODUCT_ITEMS / SPREAD(STEP))
                    for (int k = ITEM % SPREAD(STEP); k < STEPS_HERE; k += SPREAD(STEP))
                        part[k * PANEL + col] = ((col0 + panel + col < cols) & (k0 + k < end)) ? B(k, panel + col) : 0;
            } else {
                for (int k = ITEM / SPREAD(PANEL); k < STEPS_HERE; k += PRODUCT_ITEMS / SPREAD(PANEL))
                    for (int col = ITEM % SPREAD(PANEL); col < PANEL; col += SPREAD(PANEL))
                        part[k * PANEL + col] = ((col0 + panel + col < cols) & (k0 + k < end)) ? B(k, panel + col) : 0;
            }
        }
        WAIT;
        for (int block = 0; block < BLOCKS; block++) {
            if (row0 + ROW(block, 0) >= rows || col0 + COL(block, 0) >= cols) continue;   /* none of its sums is needed */
            wide sum[ROWS][COLS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLS; j++) sum[i][j] = k0 == from ? 0 : sums[block][i][j];
            for (int k = 0; k < STEPS_HERE; k++) {
                wide right[COLS];
#pragma unroll
                for (int j = 0; j < COLS; j++) right[j] = LOAD(&b[B_PLACE(k, COL(block, j))]);
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    const float left = a[A_PLACE(k, ROW(block, i))];
#pragma unroll
                    for (int j = 0; j < COLS; j++) sum[i][j] += left * right[j];
                }
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLS; j++) sums[block][i][j] = sum[i][j];
        }
    }
    for (int block = 0; block < BLOCKS; block++) {
        if (row0 + ROW(block, 0) >= rows) continue;
#pragma unroll
        for (int j = 0; j < COLS; j++)
            for (int lane = 0; lane < LANES; lane++) {
                const int col = col0 + COL(block, j) + lane;
                if (col >= cols) continue;
                const int at = C_COL(col);
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    const int row = row0 + ROW(block, i);
                    if (row < rows) PUT(row, col, at, LANE(sums[block][i][j], lane));
                }
            }
    }
}
#undef PRODUCT
#undef PARAMETERS
#undef A
#undef PLAIN_K
#undef A_ALONG_K
#undef B
#undef IMAGE_A
#undef IMAGE_B
#undef IMAGE_K
#undef IMAGE_LINE
#undef FROM
#undef HIGH
#undef ACROSS
#undef LINES
#undef LINE_0
#undef LINES_ALL
#undef PLACES
#undef B_ALONG_K
#undef C_COL
#undef PUT
