/* SPDX-License-Identifier: Apache-2.0
 * Blocks of products of matrices, after Goto and van de Geijn (ACM TOMS 34, 2008): a panel of a stays in the first-level cache while panels
 * of b go by from the second-level cache, where they stay for the next panel of a. */
#include "echi_cpu_bf16.h"
#include "echi_cpu_matrix.h"

/* How numbers are packed and multiplied. */
struct kind {
    int panel_columns;
    int call_rows;             /* that `panel` takes at once */
    int depth;                 /* of a block: a constant, since it is the order of the sums */
    int unit;                  /* the packed depth is a multiple of it */
    size_t bytes;              /* of a packed number */
    void (*pack_rows)(const struct echi_cpu_lines *lines, void *to);
    void (*pack_columns)(const struct echi_cpu_lines *lines, void *to);
    void (*panel)(const struct echi_cpu_panel *p);
    void (*begin)(void), (*end)(void);   /* around all panels of a product; or NULL */
};

/* Floats: two vectors of each step of b are most of a first-level cache of 48 or 64 KiB; with less, sums go out to memory and come back
 * more often. bf16: they leave the tiles seldom. */
enum { DEPTH = 384, ROWS = 240, DEPTH_BF16 = 1024, ROWS_BF16 = ECHI_CPU_BF16_ROWS };
/* Bytes of columns that go by for each panel of rows, in the second-level cache beside the block of rows; of all columns of a block of b,
 * there or beyond it; of a block of a, at most. */
enum { NEAR_BYTES = 384 << 10, COLUMNS_BYTES = 700 << 10, FAR_COLUMNS_BYTES = 3 << 20, SPARE_BYTES = 128 << 10 };
enum { ROWS_BYTES = ROWS_BF16 * DEPTH_BF16 * 2 };
enum { SHORT_SUMS = 512 };     /* terms: as weights' gradients have, of so many samples */
/* With as few vectors of columns each weight is used too seldom to be packed first, if a tile's rows are read as streams, or from a
 * cache. */
enum { FEW_VECTORS = 8, CACHED_BYTES = 256 << 10 };
/* Where rows of a lie side by side fewer columns are few. Steps of the depth at a time, each a stream of its own; bytes of sums that stay
 * in the second-level cache meanwhile; rows that go by together. */
enum { FEW_COLUMNS = 48, STREAMS = 24, STAYING_BYTES = 384 << 10, ROWS_AT_ONCE = 64 };

static struct kind kind_of(const struct echi_cpu_kernels *k, enum echi_cpu_bf16 bf16) {
#if defined(__x86_64__)
    if (bf16 != ECHI_CPU_BF16_NONE) {
        const bool amx = bf16 == ECHI_CPU_BF16_AMX;
        return (struct kind){ECHI_CPU_BF16_PANEL, ROWS_BF16, DEPTH_BF16, ECHI_CPU_BF16_STEPS, 2, echi_cpu_bf16_pack_rows,
                             echi_cpu_bf16_pack_columns, amx ? echi_cpu_bf16_panel_amx : echi_cpu_bf16_panel_dot,
                             amx ? echi_cpu_amx_begin : NULL, amx ? echi_cpu_amx_end : NULL};
    }
#endif
    (void)bf16;
    return (struct kind){k->matrix_columns, k->matrix_rows, DEPTH, 1, sizeof(float), k->matrix_pack_rows, k->matrix_pack_columns,
                         k->matrix_panel, NULL, NULL};
}

/* Both blocks may be larger than asked for by a panel, and a vector. */
size_t echi_cpu_matrix_room(void) { return ((size_t)FAR_COLUMNS_BYTES + ROWS_BYTES + 2 * SPARE_BYTES) / sizeof(float); }

/* Lines that are not there have no place. */
static struct echi_cpu_lines part_of(const struct echi_cpu_lines *l, int first, int lines, int from, int depth) {
    const float *const at = l->at ? l->at + first * l->line + from * l->step : NULL;
    return (struct echi_cpu_lines){.at = at, .line = l->line, .step = l->step, .lines = lines, .depth = depth};
}

static bool has_few_vectors(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m) {
    return m->bf16 == ECHI_CPU_BF16_NONE && m->a_more.depth == 0 && m->b.line == 1 && m->b.lines % k->width == 0 &&
           m->b.lines / k->width <= FEW_VECTORS;
}
static bool reads_in_place(const struct echi_cpu_matrix *m) {
    return m->a.step == 1 || (size_t)m->a.lines * (size_t)m->a.depth * sizeof(float) <= CACHED_BYTES;
}
static bool reads_by_steps(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m) {
    return m->a.line == 1 && m->a.lines >= k->wide->width && m->b.lines <= FEW_COLUMNS && !m->start && !m->relu;
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
                .outputs = min_int(k->matrix_rows, m->a.lines - row), .vectors = vectors, .add = i > 0,
                .relu = m->relu && i == blocks - 1});
        }
}

/* Few columns, and rows side by side, as to data: a tile's few numbers of each step would be read from as many pages as there are steps. So
 * here vectors are over the rows: a few steps of all rows are gone through as they lie, and the sums, [column][row], go on from there. A
 * block's are kept apart: as one chain, to the bit. The last vector may begin before the end of the one before it: it has a place
 * of its own. */
static void by_steps(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m, int blocks, float *room) {
    const struct echi_cpu_kernels *over_rows = k->wide;
    const int columns = m->columns, width = over_rows->width, row_bytes = columns * (int)sizeof(float);
    const int most = round_up(parts_of(m->a.lines, parts_of(m->a.lines, STAYING_BYTES / row_bytes)), width);
    for (int first = 0; first < m->a.lines; first += most) {
        const int rows = min_int(most, m->a.lines - first), whole = rows / width * width, row = round_up(rows, width) + width;
        float *const all = room, *const later = room + (ptrdiff_t)columns * row;
        for (int i = 0, from = 0, depth; i < blocks; i++, from += depth) {
            depth = parts_of(m->a.depth - from, blocks - i);
            for (int step = 0; step < depth; step += STREAMS)
                for (int r = 0, n; r < rows; r += n) {
                    n = r < whole ? min_int(ROWS_AT_ONCE, whole - r) : width;
                    over_rows->product(&(struct echi_cpu_product){
                        .x = m->a.at + first + (r < whole ? r : rows - width) + (from + step) * m->a.step, .x_p = width,
                        .w = m->b.at + (from + step) * m->b.step, .w_o = 1, .out = (i > 0 ? later : all) + r, .out_o = row, .out_p = width,
                        .loop = {{1, 0, 0}, {1, 0, 0}, {min_int(STREAMS, depth - step), m->a.step, m->b.step}},
                        .outputs = columns, .vectors = n / width, .goes_on = step > 0});
                }
            for (int c = 0; i > 0 && c < columns; c++)
                over_rows->add(all + c * row, all + c * row, later + c * row, (size_t)round_up(rows, width));
        }
        for (int c = 0; c < m->b.lines; c += k->width) {
            float *const sums = all + (ptrdiff_t)c * row, *const to = m->out + first * m->out_row + c / k->width * m->out_vector;
            const int lanes = min_int(columns - c, k->width);
            if (whole > 0) k->to_vectors(sums, row, lanes, whole, to, m->out_row);
            if (whole < rows) k->to_vectors(sums + whole, row, lanes, width, to + (rows - width) * m->out_row, m->out_row);
        }
    }
}

/* Packs the steps of `lines` and behind them those of `more`, panel by panel. */
static void pack_both(void (*pack)(const struct echi_cpu_lines *, void *), int panel, const struct echi_cpu_lines *lines,
                      const struct echi_cpu_lines *more, void *to) {
    if (more->depth == 0) return pack(lines, to);
    float *at = to;
    for (int first = 0; first < lines->lines; first += panel) {
        const int n = min_int(panel, lines->lines - first);
        const struct echi_cpu_lines one = part_of(lines, first, n, 0, lines->depth), other = part_of(more, first, n, 0, more->depth);
        pack(&one, at);
        pack(&other, at += panel * one.depth);
        at += panel * other.depth;
    }
}

/* How a product is cut, and what goes by inside. Where a row of a lies in one piece, a panel of rows is packed when it is needed, and
 * stays in the first-level cache while all columns of a block go by: outputs are written along their rows. Where rows lie side by side a
 * panel uses only a part of each line of a cache that is read for it: there a block of rows is packed at once, and gone through for some
 * columns after the other.
 * bf16: sums of a high block go by in the first-level cache for each panel of columns. Where they are short and all of them more than a
 * second-level cache holds, writing them is most of the work, and is along rows there as well. */
struct order {
    int rows;      /* of a that are packed at once */
    int columns;   /* of b, at once */
    int near;      /* of those, that go by for each panel of rows */
};
static struct order order_of(const struct kind *kind, const struct echi_cpu_matrix *m, int deepest) {
    const bool bf16 = m->bf16 != ECHI_CPU_BF16_NONE, large = (size_t)m->a.lines * (size_t)m->b.lines * sizeof(float) > FAR_COLUMNS_BYTES;
    const bool along_rows = bf16 ? large && deepest <= SHORT_SUMS : m->a.step == 1;
    const int step_bytes = (int)kind->bytes * deepest, unit = kind->panel_columns;
    const int columns = round_up(COLUMNS_BYTES / step_bytes, unit), far = round_up(FAR_COLUMNS_BYTES / step_bytes, unit);
    if (along_rows) return (struct order){bf16 ? unit : kind->call_rows, columns, columns};   /* a panel of bf16 is as high as it is wide */
    if (bf16) return (struct order){kind->call_rows, far, far};
    return (struct order){round_up(ROWS, kind->call_rows), far, round_up(NEAR_BYTES / step_bytes, unit)};
}

void echi_cpu_matrix(const struct echi_cpu_kernels *k, const struct echi_cpu_matrix *m, float *room) {
    const struct kind kind = kind_of(k, m->bf16);
    const int blocks = parts_of(m->a.depth, kind.depth);
    const int deepest = round_up(parts_of(m->a.depth, blocks) + m->a_more.depth, kind.unit);
    const struct order order = order_of(&kind, m, deepest);
    char *columns = (char *)room, *rows = columns + FAR_COLUMNS_BYTES + SPARE_BYTES;
    const bool few = has_few_vectors(k, m), fills_more_lanes = k->wide->width > k->width;   /* over rows than over columns */
    if (few && reads_by_steps(k, m) && (fills_more_lanes || !reads_in_place(m))) return by_steps(k, m, blocks, room);
    if (few && reads_in_place(m)) return unpacked(k, m, blocks);
    if (kind.begin) kind.begin();
    for (int column = 0; column < m->b.lines; column += order.columns)
        for (int i = 0, from = 0, depth; i < blocks; i++, from += depth) {
            depth = parts_of(m->a.depth - from, blocks - i);
            const int more = i == blocks - 1 ? m->a_more.depth : 0;
            const size_t line = (size_t)round_up(depth + more, kind.unit) * kind.bytes;
            const struct echi_cpu_lines b = part_of(&m->b, column, min_int(order.columns, m->b.lines - column), from, depth);
            const struct echi_cpu_lines b_more = part_of(&m->b_more, column, b.lines, 0, more);
            pack_both(kind.pack_columns, kind.panel_columns, &b, &b_more, columns);
            for (int first = 0, n; first < m->a.lines; first += n) {
                n = min_int(order.rows, m->a.lines - first);
                const struct echi_cpu_lines a = part_of(&m->a, first, n, from, depth);
                const int after = order.near == order.columns ? min_int(n, m->a.lines - first - n) : 0;
                const struct echi_cpu_lines next = part_of(&m->a, first + n, after, from, depth);
                const struct echi_cpu_lines a_more = part_of(&m->a_more, first, n, 0, more);
                pack_both(kind.pack_rows, kind.call_rows, &a, &a_more, rows);
                for (int c = 0; c < b.lines; c += order.near)
                    for (int row = 0; row < n; row += kind.call_rows)
                        kind.panel(&(struct echi_cpu_panel){
                            .a = rows + (size_t)row * line, .b = columns + (size_t)c * line,
                            .start = m->start && i == 0 ? m->start + first + row : NULL,
                            .out = m->out + (first + row) * m->out_row + (column + c) / k->width * m->out_vector, .out_row = m->out_row,
                            .out_vector = m->out_vector, .rows = min_int(kind.call_rows, n - row),
                            .columns = min_int(order.near, b.lines - c), .depth = depth + more, .add = i > 0,
                            .relu = m->relu && i == blocks - 1, .next = next});
            }
        }
    if (kind.end) kind.end();
}
