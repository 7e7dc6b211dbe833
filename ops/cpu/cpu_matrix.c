/* SPDX-License-Identifier: Apache-2.0
 * Blocks of products of matrices, after Goto and van de Geijn (ACM TOMS 34, 2008): a block of b stays in the second-level cache while rows
 * of a go by, a panel of it in the first-level cache while the tiles of a block of a do. */
#include "echi_cpu_matrix.h"
#include "echi_os.h"

/* How deep a block is: two vectors of each step of b are half of a first-level cache of 64 KiB, or all of one of 32. A constant, since it
 * is the order of the sums. */
enum { DEPTH = 256 };
/* Rows of a block of a, about. */
enum { ROWS = 240 };
/* Bytes of columns that go by for each panel of rows, in the first-level cache; of all columns of a block of b. */
enum { NEAR_BYTES = 32 << 10 };
enum { COLUMNS_BYTES = 2 << 20 };
/* With as few vectors of columns each weight is used too seldom to be packed first, if a tile's rows are read as streams, or from a cache. */
enum { FEW_VECTORS = 8, CACHED_BYTES = 256 << 10 };

static int min_int(int a, int b) { return a < b ? a : b; }
static int parts_of(int whole, int most) { return (whole + most - 1) / most; }
static int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

static int rows_at_a_time(const struct echi_cpu_kernels *k) { return round_up(ROWS, k->matrix_rows); }
static size_t columns_room(const struct echi_cpu_kernels *k) {
    return COLUMNS_BYTES / sizeof(float) + (size_t)DEPTH * (size_t)k->matrix_columns + (size_t)k->width;
}
size_t echi_cpu_matrix_room(const struct echi_cpu_kernels *k) {
    return columns_room(k) + (size_t)DEPTH * (size_t)rows_at_a_time(k) + (size_t)k->width;
}

static struct echi_cpu_lines part_of(const struct echi_cpu_lines *l, int first, int lines, int from, int depth) {
    return (struct echi_cpu_lines){.at = l->at + first * l->line + from * l->step, .line = l->line, .step = l->step, .lines = lines, .depth = depth};
}

static bool reads_in_place(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m) {
    const bool cached = (size_t)m->a.lines * (size_t)m->a.depth * sizeof(float) <= CACHED_BYTES;
    return m->b.line == 1 && m->b.lines % k->width == 0 && m->b.lines / k->width <= FEW_VECTORS && (m->a.step == 1 || cached);
}

/* Few vectors: weights are read where they lie, a tile's rows in as many streams. */
static void unpacked(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m, int blocks) {
    const int vectors = m->b.lines / k->width;
    for (int row = 0; row < m->a.lines; row += k->matrix_rows)
        for (int i = 0, from = 0, depth; i < blocks; i++, from += depth) {
            depth = parts_of(m->a.depth - from, blocks - i);
            k->product(&(struct echi_cpu_product){
                .x = m->b.at + from * m->b.step, .x_p = k->width, .w = m->a.at + row * m->a.line + from * m->a.step, .w_o = m->a.line,
                .start = m->start && i == 0 ? m->start + row : NULL, .out = m->out + row * m->out_row, .out_o = m->out_row,
                .out_p = m->out_vector, .loop = {{1, 0, 0}, {1, 0, 0}, {depth, m->b.step, m->a.step}},
                .outputs = min_int(k->matrix_rows, m->a.lines - row), .vectors = vectors, .add = i > 0, .relu = m->relu && i == blocks - 1});
        }
}

void echi_cpu_matrix(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m, float *room) {
    const int blocks = parts_of(m->a.depth, DEPTH), deepest = parts_of(m->a.depth, blocks);
    const int most_columns = round_up((int)(COLUMNS_BYTES / sizeof(float)) / deepest, k->matrix_columns);
    const int near = round_up((int)(NEAR_BYTES / sizeof(float)) / deepest, k->matrix_columns);
    float *columns = room, *rows = room + columns_room(k);
    if (reads_in_place(k, m)) return unpacked(k, m, blocks);
    for (int column = 0; column < m->b.lines; column += most_columns)
        for (int i = 0, from = 0, depth; i < blocks; i++, from += depth) {
            depth = parts_of(m->a.depth - from, blocks - i);
            const struct echi_cpu_lines b = part_of(&m->b, column, min_int(most_columns, m->b.lines - column), from, depth);
            k->matrix_pack_columns(&b, columns);
            for (int first = 0, n; first < m->a.lines; first += n) {
                n = min_int(rows_at_a_time(k), m->a.lines - first);
                const struct echi_cpu_lines a = part_of(&m->a, first, n, from, depth);
                k->matrix_pack_rows(&a, rows);
                for (int c = 0; c < b.lines; c += near)
                    for (int row = 0; row < n; row += k->matrix_rows)
                        k->matrix_panel(&(struct echi_cpu_panel){
                        .a = rows + (ptrdiff_t)row * depth, .b = columns + (ptrdiff_t)c * depth, .start = m->start && i == 0 ? m->start + first + row : NULL,
                        .out = m->out + (first + row) * m->out_row + (column + c) / k->width * m->out_vector, .out_row = m->out_row,
                        .out_vector = m->out_vector, .rows = min_int(k->matrix_rows, n - row), .columns = min_int(near, b.lines - c), .depth = depth,
                        .add = i > 0, .relu = m->relu && i == blocks - 1});
            }
        }
}
