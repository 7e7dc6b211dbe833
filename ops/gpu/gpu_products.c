/* SPDX-License-Identifier: Apache-2.0
 * A product of a layer to the kernel that is fastest for it. One function of numbers: what a card can do is asked elsewhere. */
#include "echi_gpu_products.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TILE_ROWS = 128, TILE_COLS = 128, STAGES_A_PART = 8, ROW_BYTES = ECHI_PACKED_WORDS * 4 };
enum { SM90_STAGES = 4, SM90_MULTIPLY = 256, SM90_COPY_TILES = 32, SM90_COPY_IMAGE = 256 };   /* product_sm90.cuh; of its threads */
enum { STATIC_MOST = 2048 };   /* bytes of shared memory that kernels have themselves: places of an image */
enum { STAGES = 2 };           /* product_packed.cuh, and its threads: */
static const struct { const char *name; int per_word, items; } precisions[] = {
    [ECHI_PRODUCT_FLOAT] = {"float", 1, 256}, [ECHI_PRODUCT_TF32] = {"tf32", 1, 128}, [ECHI_PRODUCT_BF16] = {"bf16", 2, 128}};

static int64_t blocks(int64_t count, int64_t of) { return (count + of - 1) / of; }
static int map_of_in(const struct echi_window *w) { return w->in_h * w->in_w; }
static int map_of_out(const struct echi_window *w) { return w->out_h * w->out_w; }
static int taps(const struct echi_window *w) { return w->kernel_h * w->kernel_w; }

/* Words of `channels` at one place of an image, whose pieces of 16 bytes are copied at once. */
static int words_of(int channels, int per) { return (int)blocks(channels, 4 * per) * 4; }

struct echi_divisor echi_divisor_of(int d) {
    unsigned shift = 31;
    while (((uint64_t)1 << (shift - 31)) < (uint64_t)d) shift++;
    return (struct echi_divisor){(unsigned)((((uint64_t)1 << shift) + (uint64_t)d - 1) / (uint64_t)d), shift};
}

/* --- what is packed how. Each of these is a matrix of words, rows by k, as echi_gpu_packed.h writes it --- */

/* Row r, number k of a matrix: r * row + k * step. In tiles. */
static struct echi_pack pack_matrix(int rows, int depth, int row, int step, int per) {
    return (struct echi_pack){.rows = rows, .words = (int)blocks(depth, per), .row_inner = rows, .row_step = row, .word_inner = 1,
                              .word_outer = per * step, .along = ECHI_PACK_WORD_OUTER, .part_step = step, .bound = depth};
}

/* An image, [n][channels][map], place by place, its channels side by side. */
static struct echi_pack pack_image(int n, int channels, int map, int per) {
    return (struct echi_pack){.rows = n * map, .words = (int)blocks(channels, per), .row_inner = map, .row_outer = channels * map,
                              .row_step = 1, .word_inner = 1, .word_outer = per * map, .along = ECHI_PACK_WORD_OUTER, .part_step = map,
                              .bound = channels, .stride = words_of(channels, per)};
}

/* Kernels, tap by tap, their channels side by side: row r, tap t, channel c lies at r * row + t + c * channel. In tiles. */
static struct echi_pack pack_kernels(int rows, int channels, int area, int row, int channel, int per) {
    const int words = words_of(channels, per);
    return (struct echi_pack){.rows = rows, .words = area * words, .row_inner = rows, .row_step = row, .word_inner = words, .word_outer = 1,
                              .word_step = per * channel, .along = ECHI_PACK_WORD_INNER, .part_step = channel, .bound = channels};
}

/* A sum over places of all samples has its numbers in any order: those of a word are the same place of several samples, so that a word
 * of dy meets one of x wherever the kernel lies. dy: a row a channel, in tiles; x: as it is, but for that. */
static struct echi_pack pack_dy(const struct echi_window *w, int per) {
    const int map = map_of_out(w);
    return (struct echi_pack){.rows = w->out_c, .words = (int)blocks(w->n, per) * map, .row_inner = w->out_c, .row_step = map,
                              .word_inner = map, .word_outer = per * w->out_c * map, .word_step = 1, .along = ECHI_PACK_WORD_OUTER,
                              .part_step = w->out_c * map, .bound = w->n};
}
static struct echi_pack pack_x(const struct echi_window *w, int per) {
    const int map = map_of_in(w);
    return (struct echi_pack){.rows = (int)blocks(w->n, per) * w->in_c, .words = map, .row_inner = w->in_c,
                              .row_outer = per * w->in_c * map, .row_step = map, .word_inner = map, .word_step = 1,
                              .along = ECHI_PACK_ROW_OUTER,
                              .part_step = w->in_c * map, .bound = w->n, .stride = map};
}

/* Its launch and its size; false when it is more than kernels can count. */
static bool finish_pack(struct echi_product_pack *pack, const char *precision) {
    struct echi_pack *p = &pack->how;
    const int64_t across = blocks(p->stride > 0 ? p->stride : p->words, ECHI_PACKED_WORDS);
    const int64_t down = p->stride > 0 ? blocks(p->rows, 32) : blocks(p->rows, ECHI_PACKED_ROWS) * (ECHI_PACKED_ROWS / 32);
    const int64_t words = p->stride > 0 ? (int64_t)p->rows * p->stride : across * down * 32 * ECHI_PACKED_WORDS;
    snprintf(pack->kernel, sizeof pack->kernel, "pack_%s", precision);
    p->by_row_inner = echi_divisor_of(p->row_inner), p->by_word_inner = echi_divisor_of(p->word_inner);
    p->by_across = echi_divisor_of((int)across);
    pack->groups = (int)(across * down);
    pack->words = (size_t)words;
    return words <= INT32_MAX;
}

/* --- the products --- */

static const char *plan_matrix(const struct echi_product *p, struct echi_product_plan *out, int per) {
    out->rows = p->rows, out->cols = p->cols;
    out->a.how = pack_matrix(p->rows, p->depth, p->row_a, p->k_a, per);
    out->b.how = pack_matrix(p->cols, p->depth, p->col_b, p->k_b, per);
    out->put = (struct echi_put){p->cols, 0, p->cols, p->bias ? ECHI_PUT_BIAS_OF_COL : ECHI_PUT_PLAIN};
    return "product";
}

/* Where a kernel lies on x, forward and to its gradient. */
static struct echi_gather gather_forward(const struct echi_window *w, int sample_step, int in_step) {
    return (struct echi_gather){.places_h = w->out_h, .places_w = w->out_w, .sample_step = sample_step, .mul_h = w->stride_h,
                                .mul_w = w->stride_w, .add_h = -w->pad_h, .add_w = -w->pad_w, .sign = 1, .divide_h = 1, .divide_w = 1,
                                .in_h = w->in_h, .in_w = w->in_w, .in_step = in_step};
}

static const char *plan_forward(const struct echi_product *p, struct echi_product_plan *out, int per) {
    const struct echi_window *w = &p->window;
    const int step = words_of(w->in_c, per);
    out->rows = w->out_c, out->cols = w->n * map_of_out(w);
    out->a.how = pack_kernels(w->out_c, w->in_c, taps(w), w->in_c * taps(w), taps(w), per);
    out->b.how = pack_image(w->n, w->in_c, map_of_in(w), per);
    out->gather = gather_forward(w, map_of_in(w) * step, step);
    out->put = (struct echi_put){map_of_out(w), w->out_c * map_of_out(w), map_of_out(w), p->bias ? ECHI_PUT_BIAS_OF_ROW : ECHI_PUT_PLAIN};
    return "conv";
}

static const char *plan_backward_input(const struct echi_product *p, struct echi_product_plan *out, int per) {
    const struct echi_window *w = &p->window;
    const int step = words_of(w->out_c, per);
    out->rows = w->in_c, out->cols = w->n * map_of_in(w);
    out->a.how = pack_kernels(w->in_c, w->out_c, taps(w), taps(w), w->in_c * taps(w), per);
    out->b.how = pack_image(w->n, w->out_c, map_of_out(w), per);
    out->gather = (struct echi_gather){.places_h = w->in_h, .places_w = w->in_w, .sample_step = map_of_out(w) * step, .mul_h = 1,
                                       .mul_w = 1, .add_h = w->pad_h, .add_w = w->pad_w, .sign = -1, .divide_h = w->stride_h,
                                       .divide_w = w->stride_w, .in_h = w->out_h, .in_w = w->out_w, .in_step = step};
    out->put = (struct echi_put){map_of_in(w), w->in_c * map_of_in(w), map_of_in(w), ECHI_PUT_PLAIN};
    return "conv";
}

/* The layer's kernel, and what numbers are divided by. */
static void finish_gather(const struct echi_window *w, struct echi_gather *g) {
    g->kernel_h = w->kernel_h, g->kernel_w = w->kernel_w;
    g->by_places = echi_divisor_of(g->places_h * g->places_w), g->by_places_w = echi_divisor_of(g->places_w);
    g->by_kernel = echi_divisor_of(g->kernel_h * g->kernel_w), g->by_kernel_w = echi_divisor_of(g->kernel_w);
    g->by_divide_h = echi_divisor_of(g->divide_h), g->by_divide_w = echi_divisor_of(g->divide_w);
    g->by_in_step = echi_divisor_of(g->in_step);
}

static const char *plan_backward_weight(const struct echi_product *p, struct echi_product_plan *out, int per) {
    const struct echi_window *w = &p->window;
    out->rows = w->out_c, out->cols = w->in_c * taps(w);
    out->a.how = pack_dy(w, per);
    out->b.how = pack_x(w, per);
    out->gather = gather_forward(w, w->in_c * map_of_in(w), 1);
    out->put = (struct echi_put){out->cols, 0, out->cols, ECHI_PUT_PLAIN};
    return "conv_weight";
}

static bool lacks(const struct echi_product_card *card, enum echi_product_text text) { return (card->lacks >> text & 1) != 0; }

/* Of the texts for cards that have what all need: product_sm90.cuh only runs on 9.0 itself, whose code no later card takes. */
static void choose_text(const struct echi_product *p, const struct echi_product_card *card, struct echi_product_plan *out) {
    const int least = SM90_STAGES * ((TILE_ROWS + 2 * TILE_COLS) * ROW_BYTES + 2 * 8) + 1024;
    out->text = p->precision == ECHI_PRODUCT_FLOAT ? ECHI_PRODUCT_F32 : ECHI_PRODUCT_SM80;
    if (p->precision == ECHI_PRODUCT_FLOAT) snprintf(out->why, sizeof out->why, "tensor cores round to TF32 or bf16, and float is wanted");
    else if (card->major != 9 || card->minor != 0)
        snprintf(out->why, sizeof out->why, "wgmma needs compute capability 9.0, and this is %d.%d", card->major, card->minor);
    else if (card->shared_most < least)
        snprintf(out->why, sizeof out->why, "with wgmma a block needs %d bytes of shared memory, and may have %d", least,
                 card->shared_most);
    else if (lacks(card, ECHI_PRODUCT_SM90))
        snprintf(out->why, sizeof out->why, "there is no machine code of products_sm90.cu (nvcc makes it), or it computed wrongly");
    else if (out->rows <= TILE_ROWS / 2)
        snprintf(out->why, sizeof out->why, "wgmma's tiles have %d rows, and this has %d: half would be for nothing", TILE_ROWS, out->rows);
    else out->text = ECHI_PRODUCT_SM90;
}

struct tile {
    int rows, cols;       /* of sums */
    int items, shared;    /* of a block: threads, and bytes of shared memory that the launch gives it */
    double takes;         /* a stage of a block, in what one of 128 rows takes */
    bool shares;          /* a multiprocessor hides a block's waits behind other blocks, which it has room for */
};
/* The tiles that a text has; small ones fit small layers, large ones ask less of shared memory for each sum. */
static int tiles_of(const struct echi_product_plan *p, enum echi_product_op op, enum echi_product_precision precision, int units,
                    struct tile out[2]) {
    if (p->text == ECHI_PRODUCT_SM90) {
        const bool wide = op == ECHI_PRODUCT_MATRIX && blocks(p->rows, TILE_ROWS) * blocks(p->cols, 2 * TILE_COLS) >= units;
        out[0] = (struct tile){TILE_ROWS, wide ? 2 * TILE_COLS : TILE_COLS,
                               SM90_MULTIPLY + (op == ECHI_PRODUCT_MATRIX ? SM90_COPY_TILES : SM90_COPY_IMAGE), 0, wide ? 2 : 1, false};
        out[0].shared = SM90_STAGES * ((out->rows + out->cols) * ROW_BYTES + 2 * 8) + 1024;   /* barriers, up to where tiles may begin */
        return 1;
    }
    const int items = precisions[precision].items;
    out[0] = (struct tile){TILE_ROWS / 2, TILE_COLS, items, STAGES * (TILE_ROWS / 2 + TILE_COLS) * ROW_BYTES, 0.6, true};
    out[1] = (struct tile){TILE_ROWS, TILE_COLS, items, STAGES * (TILE_ROWS + TILE_COLS) * ROW_BYTES, 1, true};
    return 2;
}

/* What a product takes by a tile whose sums are dealt to so many blocks, in stages of a block of 128 rows: blocks come in rounds, one for
 * each multiprocessor; each also begins, ends and puts its sums; parts of sums are written, read and added up. By profiles of an H100: a
 * stage takes about 1 us on tensor cores and 3 us in floats; of memory, a multiprocessor's part moves 6,000 numbers a microsecond. */
static double stages_taken(const struct echi_product_plan *p, const struct tile *tile, enum echi_product_precision precision, int units,
                           int64_t parts) {
    enum { BESIDE_STAGES = 4 };
    const int64_t tiles = blocks(p->rows, tile->rows) * blocks(p->cols, tile->cols), rounds = blocks(tiles * parts, units);
    const int64_t slice = blocks(blocks(p->words, ECHI_PACKED_WORDS), parts);
    const double alone = tile->shares && rounds == 1 ? 1.3 : 1, numbers_a_stage = precision == ECHI_PRODUCT_FLOAT ? 18000 : 6000;
    const double moved = parts > 1 ? (double)(parts + 1) * p->rows * p->cols : 0;
    return (double)(rounds * (slice + BESIDE_STAGES)) * tile->takes * alone + moved / (numbers_a_stage * units);
}

/* The tile, and how many blocks share a sum, that take the least time; parts have to fit the room there is, one needs none: it is the
 * result. */
static void plan_launch(const struct echi_product *product, int units, struct echi_product_plan *out, struct tile *best) {
    const int64_t stages = blocks(out->words, ECHI_PACKED_WORDS), sums = (int64_t)out->rows * out->cols;
    struct tile tiles[2];
    int64_t parts = 0;
    double least = 0;
    for (int t = 0, count = tiles_of(out, product->op, product->precision, units, tiles); t < count; t++) {
        const int64_t filling = blocks(4 * units, blocks(out->rows, tiles[t].rows) * blocks(out->cols, tiles[t].cols));
        int64_t most = blocks(stages, STAGES_A_PART);
        if (most > filling) most = filling;
        if (product->room != NULL && most > (int64_t)product->room->parts / sums) most = (int64_t)product->room->parts / sums;
        for (int64_t p = 1; p == 1 || p <= most; p++) {
            const double takes = stages_taken(out, &tiles[t], product->precision, units, p);
            if (parts == 0 || takes < least) parts = p, least = takes, *best = tiles[t];
        }
    }
    out->slice = (int)blocks(stages, parts);
    out->parts = (int)blocks(stages, out->slice);
    out->groups[0] = (int)(blocks(out->rows, best->rows) * blocks(out->cols, best->cols)), out->groups[1] = 1, out->groups[2] = out->parts;
    out->items = best->items;
    out->shared = best->shared;
}

static void plan_packed(const struct echi_product *p, const struct echi_product_card *card, struct echi_product_plan *out) {
    static const char *(*const plan[])(const struct echi_product *, struct echi_product_plan *, int) = {
        [ECHI_PRODUCT_MATRIX] = plan_matrix, [ECHI_PRODUCT_CONV_FORWARD] = plan_forward,
        [ECHI_PRODUCT_CONV_BACKWARD_WEIGHT] = plan_backward_weight, [ECHI_PRODUCT_CONV_BACKWARD_INPUT] = plan_backward_input};
    const char *precision = precisions[p->precision].name, *name = plan[p->op](p, out, precisions[p->precision].per_word);
    struct tile tile;
    out->words = out->a.how.words;
    if (p->op != ECHI_PRODUCT_MATRIX) finish_gather(&p->window, &out->gather);
    choose_text(p, card, out);
    plan_launch(p, card->units, out, &tile);
    snprintf(out->kernel, sizeof out->kernel, "%s_%s%s_%dx%d", name, out->text == ECHI_PRODUCT_SM90 ? "wgmma_" : "", precision, tile.rows,
             tile.cols);
    const bool counted_a = finish_pack(&out->a, precision), counted_b = finish_pack(&out->b, precision);
    if (!counted_a || !counted_b || (int64_t)out->parts * out->rows * out->cols > INT32_MAX) {
        out->text = ECHI_PRODUCT_PORTABLE;
        snprintf(out->why, sizeof out->why, "packed operands, or parts of sums, of more than %d words are more than kernels can count",
                 INT32_MAX);
    } else if (p->room != NULL && (out->a.words > p->room->a || out->b.words > p->room->b)) {
        out->text = ECHI_PRODUCT_PORTABLE;
        snprintf(out->why, sizeof out->why, "there is no room for packed operands of %zu and %zu words", out->a.words, out->b.words);
    }
}

void echi_product_choose(const struct echi_product *p, const struct echi_product_card *card, struct echi_product_plan *out) {
    const int least = STAGES * (TILE_ROWS + TILE_COLS) * ROW_BYTES + STATIC_MOST;
    memset(out, 0, sizeof *out);
    out->text = ECHI_PRODUCT_PORTABLE;
    if (card->major == 0) snprintf(out->why, sizeof out->why, "no compute capability is known of this device");
    else if (card->major < 8)
        snprintf(out->why, sizeof out->why, "asynchronous copies need compute capability 8.0, and this is %d.%d", card->major, card->minor);
    else if (card->shared_most < least)
        snprintf(out->why, sizeof out->why, "a block needs %d bytes of shared memory, and may have %d", least, card->shared_most);
    else if (lacks(card, p->precision == ECHI_PRODUCT_FLOAT ? ECHI_PRODUCT_F32 : ECHI_PRODUCT_SM80))
        snprintf(out->why, sizeof out->why, "there is no machine code of %s (nvcc makes it), or it computed wrongly",
                 p->precision == ECHI_PRODUCT_FLOAT ? "products_f32.cu" : "products_sm80.cu");
    else plan_packed(p, card, out);
}
