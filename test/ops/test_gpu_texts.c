/* SPDX-License-Identifier: Apache-2.0
 * The CUDA texts of ops/gpu, run on the host as simt.h says, as echi_product_choose launches them: products and convolutions of random odd
 * sizes against sums in double, exact on small whole numbers, within the bound of the precision on others; a NaN comes out where it
 * belongs. With TEST_ON_CARD the same on a card (test/bench/gpu_texts.sh): what is right here is either way. */
#include "gpu/echi_gpu_products.h"

#ifdef TEST_ON_CARD
#include "card.h"
#else
#include "texts.h"
#endif

#include "echi_random.h"
#include "part.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* --- calls of kernels by name, with arrays that they can reach: on a card, or here --- */

/* Of a problem: when what may be late is late, and in which order threads run. A card has ways of its own. */
struct order { bool copies_late, products_late; uint32_t seed; };
struct launch { int groups[3], items, shared; };
#ifdef TEST_ON_CARD
static struct echi_product_card the_card;
#define array_new card_array
#define arrays_free card_free

static const char *run_kernel(enum echi_product_text text, const char *name, void **values, const struct launch *how, struct order order) {
    (void)order;
    card_launch(text, name, values, &(struct card_launch){{how->groups[0], how->groups[1], how->groups[2]}, how->items, how->shared});
    card_finish();
    return NULL;
}
#else
#define array_new simt_array
#define arrays_free simt_free
static int calls[64];   /* by number of the kernel */

static const char *run_kernel(enum echi_product_text text, const char *name, void **values, const struct launch *how, struct order order) {
    const struct text_kernel *kernel = text_kernel(name);
    const struct simt_launch launch = {{how->groups[0], how->groups[1], how->groups[2]}, how->items, (size_t)how->shared,
                                       1024 + order.seed % 8 * 16, order.copies_late, order.products_late, order.seed};
    (void)text;
    if (kernel == NULL) fail_msg("no kernel %s", name);
    calls[kernel - text_kernel_at(0)]++;
    return simt_run(kernel->call, values, &launch);
}
#endif

/* --- one product: what goes in, and what comes out by its definition --- */

struct problem {
    struct echi_product product;
    size_t a_count, b_count, bias_count, count;   /* numbers of A, dy or the weights; of B, x or dy; of the result */
    float *a, *b, *bias;
    double *want, *size;                          /* [count]: the sum, and that of its products' magnitudes */
    struct order order;
    char text[200];
};

static int random_from(struct echi_random *r, int least, int most) {
    return least + (int)echi_random_below(r, (uint32_t)(most - least + 1));
}
static int random_size(struct echi_random *r, int most) {
    static const int edges[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130};
    return echi_random_below(r, 2) ? edges[echi_random_below(r, sizeof edges / sizeof edges[0])] : random_from(r, 1, most);
}

static float *numbers(struct echi_random *r, size_t count, bool whole) {
    float *x = array_new(count);
    for (size_t i = 0; i < count; i++) x[i] = whole ? (float)random_from(r, -3, 3) : (float)echi_random_normal(r);
    return x;
}

static void add_product(const struct problem *p, size_t to, size_t a, size_t b) {
    const double product = (double)p->a[a] * (double)p->b[b];
    p->want[to] += product;
    p->size[to] += fabs(product);
}

static void random_matrix(struct problem *p, struct echi_random *r, bool is_long) {
    struct echi_product *q = &p->product;
    q->rows = is_long ? 100 : random_size(r, 200), q->cols = is_long ? random_from(r, 129, 200) : random_size(r, 200);
    q->depth = is_long ? 700 : random_size(r, 200);
    const bool turned_a = echi_random_below(r, 2), turned_b = echi_random_below(r, 2);
    q->row_a = turned_a ? 1 : q->depth, q->k_a = turned_a ? q->rows : 1;
    q->k_b = turned_b ? 1 : q->cols, q->col_b = turned_b ? q->depth : 1;
    q->bias = echi_random_below(r, 2);
    p->a_count = (size_t)q->rows * (size_t)q->depth, p->b_count = (size_t)q->cols * (size_t)q->depth;
    p->bias_count = (size_t)q->cols, p->count = (size_t)q->rows * (size_t)q->cols;
    snprintf(p->text, sizeof p->text, "%d x %d x %d%s%s%s", q->rows, q->cols, q->depth, turned_a ? ", A turned" : "",
             turned_b ? ", B turned" : "", q->bias ? ", bias" : "");
}

static void want_matrix(const struct problem *p) {
    const struct echi_product *q = &p->product;
    for (int i = 0; i < q->rows; i++)
        for (int j = 0; j < q->cols; j++) {
            const size_t to = (size_t)i * (size_t)q->cols + (size_t)j;
            if (q->bias) p->want[to] = (double)p->bias[j];
            for (int k = 0; k < q->depth; k++) add_product(p, to, (size_t)(i * q->row_a + k * q->k_a), (size_t)(k * q->k_b + j * q->col_b));
        }
}

static void random_window(struct echi_window *w, struct echi_random *r) {
    w->n = random_from(r, 1, 5);
    w->in_c = random_from(r, 1, echi_random_below(r, 3) ? 9 : 40), w->out_c = random_from(r, 1, echi_random_below(r, 3) ? 20 : 140);
    w->in_h = random_from(r, 1, 9), w->in_w = random_from(r, 1, 9);
    w->pad_h = random_from(r, 0, 2), w->pad_w = random_from(r, 0, 2);
    w->kernel_h = random_from(r, 1, w->in_h + w->pad_h < 5 ? w->in_h + w->pad_h : 5);
    w->kernel_w = random_from(r, 1, w->in_w + w->pad_w < 5 ? w->in_w + w->pad_w : 5);
    w->stride_h = random_from(r, 1, 3), w->stride_w = random_from(r, 1, 3);
}

static void random_convolution(struct problem *p, struct echi_random *r, bool is_long) {
    struct echi_product *q = &p->product;
    struct echi_window *w = &q->window;
    if (!is_long) random_window(w, r);
    else *w = (struct echi_window){.n = 4, .in_c = 16, .in_h = 8, .in_w = 8, .out_c = 100, .kernel_h = 3, .kernel_w = 3, .stride_h = 1,
                                   .stride_w = 1, .pad_h = 1, .pad_w = 1};
    w->out_h = (w->in_h + 2 * w->pad_h - w->kernel_h) / w->stride_h + 1;
    w->out_w = (w->in_w + 2 * w->pad_w - w->kernel_w) / w->stride_w + 1;
    q->bias = q->op == ECHI_PRODUCT_CONV_FORWARD && echi_random_below(r, 2);
    const size_t x = (size_t)(w->n * w->in_c * w->in_h * w->in_w), y = (size_t)(w->n * w->out_c * w->out_h * w->out_w),
        weights = (size_t)(w->out_c * w->in_c * w->kernel_h * w->kernel_w);
    p->a_count = q->op == ECHI_PRODUCT_CONV_BACKWARD_WEIGHT ? y : weights;
    p->b_count = q->op == ECHI_PRODUCT_CONV_BACKWARD_INPUT ? y : x;
    p->count = q->op == ECHI_PRODUCT_CONV_FORWARD ? y : q->op == ECHI_PRODUCT_CONV_BACKWARD_WEIGHT ? weights : x;
    p->bias_count = (size_t)w->out_c;
    snprintf(p->text, sizeof p->text, "convolution %d: n %d, %dx%dx%d -> %dx%dx%d, kernel %dx%d stride %dx%d pad %dx%d%s", (int)q->op,
             w->n, w->in_c, w->in_h, w->in_w, w->out_c, w->out_h, w->out_w, w->kernel_h, w->kernel_w, w->stride_h, w->stride_w, w->pad_h,
             w->pad_w,
             q->bias ? ", bias" : "");
}

/* Every weight that leads from a number of x to one of y, in the three directions. */
static void want_convolution(const struct problem *p) {
    const struct echi_window *w = &p->product.window;
    for (int n = 0; n < w->n; n++)
        for (int o = 0; o < w->out_c; o++)
            for (int oh = 0; oh < w->out_h; oh++)
                for (int ow = 0; ow < w->out_w; ow++) {
                    const size_t y = (size_t)(((n * w->out_c + o) * w->out_h + oh) * w->out_w + ow);
                    if (p->product.bias) p->want[y] = (double)p->bias[o];
                    for (int c = 0; c < w->in_c; c++)
                        for (int kh = 0; kh < w->kernel_h; kh++)
                            for (int kw = 0; kw < w->kernel_w; kw++) {
                                const int h = oh * w->stride_h - w->pad_h + kh, v = ow * w->stride_w - w->pad_w + kw;
                                if (h < 0 || h >= w->in_h || v < 0 || v >= w->in_w) continue;
                                const size_t x = (size_t)(((n * w->in_c + c) * w->in_h + h) * w->in_w + v),
                                    weight = (size_t)(((o * w->in_c + c) * w->kernel_h + kh) * w->kernel_w + kw);
                                if (p->product.op == ECHI_PRODUCT_CONV_FORWARD) add_product(p, y, weight, x);
                                else if (p->product.op == ECHI_PRODUCT_CONV_BACKWARD_INPUT) add_product(p, x, weight, y);
                                else add_product(p, weight, y, x);
                            }
                }
}

static void problem_random(struct problem *p, enum echi_product_op op, enum echi_product_precision precision, uint32_t seed, bool whole,
                           bool is_long) {
    struct echi_random r;
    echi_random_init(&r, seed, ECHI_STREAM_TEST, whole);
    memset(p, 0, sizeof *p);
    p->product.op = op, p->product.precision = precision, p->order = (struct order){seed / 2 % 2, seed / 4 % 2, seed};
    if (op == ECHI_PRODUCT_MATRIX) random_matrix(p, &r, is_long);
    else random_convolution(p, &r, is_long);
    p->a = numbers(&r, p->a_count, whole), p->b = numbers(&r, p->b_count, whole), p->bias = numbers(&r, p->bias_count, whole);
    if (echi_random_below(&r, 4) == 0) p->b[echi_random_below(&r, (uint32_t)p->b_count)] = NAN;
    p->want = calloc(p->count, sizeof *p->want), p->size = calloc(p->count, sizeof *p->size);
    if (op == ECHI_PRODUCT_MATRIX) want_matrix(p);
    else want_convolution(p);
}
static void problem_free(struct problem *p) {
    free(p->want);
    free(p->size);
    arrays_free();
}

/* --- a plan carried out --- */

static const char *run_pack(const struct echi_product_plan *plan, const struct echi_product_pack *pack, const float *from, unsigned **out,
                            struct order order) {
    struct echi_pack how = pack->how;
    unsigned *to = *out = array_new(pack->words);
    for (size_t i = 0; i < pack->words; i++) to[i] = 0x7fc07fc0;
    const struct launch launch = {{pack->groups, 1, 1}, ECHI_PACK_ITEMS, 0};
    return run_kernel(echi_product_packs(plan->text), pack->kernel, (void *[]){&from, &to, &how}, &launch, order);
}

/* The result, of array_new, in *out; or what was done wrong. */
static const char *run_plan(const struct problem *p, const struct echi_product_plan *plan, float **out) {
    struct echi_product_plan l = *plan;
    const float *bias = p->bias;
    unsigned *a, *b;
    const char *wrong = run_pack(plan, &plan->a, p->a, &a, p->order);
    if (wrong == NULL) wrong = run_pack(plan, &plan->b, p->b, &b, p->order);
    if (wrong != NULL) return wrong;
    float *to = *out = array_new(p->count * (size_t)plan->parts);
    for (size_t i = 0; i < p->count * (size_t)plan->parts; i++) to[i] = 12345.0f;
    wrong = run_kernel(l.text, l.kernel, (void *[]){&a, &b, &bias, &to, &l.rows, &l.cols, &l.words, &l.slice, &l.put, &l.gather},
                       &(struct launch){{l.groups[0], l.groups[1], l.groups[2]}, l.items, l.shared}, p->order);
    for (int part = 1; part < plan->parts; part++)
        for (size_t i = 0; i < p->count; i++) to[i] += to[(size_t)part * p->count + i];
    return wrong;
}

/* Each number is rounded once, unless floats are wanted, by at most 2^-11 of it in TF32 and 2^-8 in bf16 (half a unit of the last of 11, or
 * 8, digits); sums of floats add their own. */
static bool near(const struct problem *p, size_t i, float got, bool whole) {
    if (isnan(p->want[i])) return isnan(got);
    static const double units[] = {[ECHI_PRODUCT_FLOAT] = 0, [ECHI_PRODUCT_TF32] = 0x1p-11, [ECHI_PRODUCT_BF16] = 0x1p-8};
    const double unit = units[p->product.precision];
    return whole ? (double)got == p->want[i] : fabs((double)got - p->want[i]) <= (2.01 * unit + 1e-5) * p->size[i] + 1e-5;
}

/* NULL, or what is wrong, in words. */
static const char *check_plan(const struct problem *p, const struct echi_product_plan *plan, bool whole) {
    static char text[400];
    float *got;
    const char *wrong = run_plan(p, plan, &got);
    if (wrong != NULL) {
        snprintf(text, sizeof text, "%s: %s: %s", plan->kernel, p->text, wrong);
        return text;
    }
    for (size_t i = 0; i < p->count; i++)
        if (!near(p, i, got[i], whole)) {
            snprintf(text, sizeof text, "%s: %s: number %zu is %.9g, not %.9g (%d parts)", plan->kernel, p->text, i, (double)got[i],
                     p->want[i], plan->parts);
            return text;
        }
    return NULL;
}

static struct echi_product_card card(int major, int minor, int units) {
    return (struct echi_product_card){major, minor, units, major == 9 ? 232448 : 101376, 0};
}

static void try(enum echi_product_op op, enum echi_product_precision precision, int major, uint32_t seed, bool is_long) {
    const bool whole = seed % 3 != 0;
    struct problem p;
    struct echi_product_plan plan;
    problem_random(&p, op, precision, seed, whole, is_long);
#ifdef TEST_ON_CARD
    if (major == 9 && (the_card.major != 9 || the_card.minor != 0)) return;   /* it has no wgmma */
#endif
    const struct echi_product_card on = card(major, 0, seed % 2 ? 1 : 132);
    echi_product_choose(&p.product, &on, &plan);
    assert_true(plan.text != ECHI_PRODUCT_PORTABLE);
    const char *wrong = check_plan(&p, &plan, whole);
    if (wrong != NULL) fail_msg("seed %u: %s", seed, wrong);
    problem_free(&p);
}

#define TEST(name, op, precision, major)              \
    static void name(void **state) {                  \
        (void)state;                                  \
        for (uint32_t seed = 1; seed <= 16; seed += (test_part_by_kinds() + 3) / 4) \
            try(ECHI_PRODUCT_##op, ECHI_PRODUCT_##precision, major, seed, false); \
    }
#define OPS(X, name, precision, major)                                                                            \
    X(name##_matrix, MATRIX, precision, major) X(name##_forward, CONV_FORWARD, precision, major)                  \
    X(name##_weight, CONV_BACKWARD_WEIGHT, precision, major) X(name##_input, CONV_BACKWARD_INPUT, precision, major)
#define TESTS(X)                                                                  \
    OPS(X, f32, FLOAT, 8) OPS(X, sm80_tf32, TF32, 8) OPS(X, sm80_bf16, BF16, 8)   \
    OPS(X, sm90_tf32, TF32, 9) OPS(X, sm90_bf16, BF16, 9)
TESTS(TEST)

/* More stages than there is room for, by one block, so that each place is used again, with all that may be late or not. */
static void long_sums(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed < 8; seed += 2 * test_part_by_kinds())
        for (int major = 8; major <= 9; major++)
            for (int precision = ECHI_PRODUCT_FLOAT; precision <= ECHI_PRODUCT_BF16; precision++)
                try(ECHI_PRODUCT_MATRIX, (enum echi_product_precision)precision, major, seed, true);
}

/* So many sums that tiles of 128 rows take less than those of 64, on a GPU of one multiprocessor. */
static void large_tiles(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed < 6; seed += 2 * test_part_by_kinds())
        for (int op = ECHI_PRODUCT_CONV_FORWARD; op <= ECHI_PRODUCT_CONV_BACKWARD_WEIGHT; op++)
            for (int precision = ECHI_PRODUCT_FLOAT; precision <= ECHI_PRODUCT_BF16; precision++)
                try((enum echi_product_op)op, (enum echi_product_precision)precision, 8, seed, true);
}

#ifndef TEST_ON_CARD
/* After all others. */
static void every_kernel_ran(void **state) {
    (void)state;
    for (int i = 0; text_kernel_at(i) != NULL; i++)
        if (calls[i] < 2 && !test_few()) fail_msg("%s ran %d times", text_kernel_at(i)->name, calls[i]);
}
#endif

/* --- which text is chosen, and why not a faster one --- */

static struct echi_product_plan chosen(struct echi_product product, struct echi_product_card on) {
    struct echi_product_plan plan;
    echi_product_choose(&product, &on, &plan);
    return plan;
}

static void texts_are_chosen(void **state) {
    (void)state;
    struct echi_product p = {.op = ECHI_PRODUCT_MATRIX, .rows = 4096, .cols = 4096, .depth = 4096, .row_a = 4096, .k_a = 1,
                             .k_b = 4096, .col_b = 1};
    const struct {
        struct echi_product_card card;
        enum echi_product_precision precision;
        int rows;
        enum echi_product_text text;
        const char *kernel, *why;
    } cases[] = {
        {{0, 0, 16, 0, 0}, ECHI_PRODUCT_BF16, 4096, ECHI_PRODUCT_PORTABLE, "", "no compute capability is known of this device"},
        {{7, 5, 40, 65536, 0}, ECHI_PRODUCT_TF32, 4096, ECHI_PRODUCT_PORTABLE, "",
         "asynchronous copies need compute capability 8.0, and this is 7.5"},
        {{8, 7, 8, 65536, 0}, ECHI_PRODUCT_TF32, 4096, ECHI_PRODUCT_PORTABLE, "",
         "a block needs 67584 bytes of shared memory, and may have 65536"},
        {{8, 6, 28, 101376, 0}, ECHI_PRODUCT_TF32, 4096, ECHI_PRODUCT_SM80, "product_tf32_128x128",
         "wgmma needs compute capability 9.0, and this is 8.6"},
        {{8, 0, 108, 166912, 0}, ECHI_PRODUCT_BF16, 64, ECHI_PRODUCT_SM80, "product_bf16_64x128",
         "wgmma needs compute capability 9.0, and this is 8.0"},
        {{9, 0, 132, 232448, 0}, ECHI_PRODUCT_BF16, 4096, ECHI_PRODUCT_SM90, "product_wgmma_bf16_128x256", ""},
        {{9, 0, 132, 232448, 0}, ECHI_PRODUCT_TF32, 256, ECHI_PRODUCT_SM90, "product_wgmma_tf32_128x128", ""},
        {{9, 0, 132, 101376, 0}, ECHI_PRODUCT_TF32, 4096, ECHI_PRODUCT_SM80, "product_tf32_128x128",
         "with wgmma a block needs 197696 bytes of shared memory, and may have 101376"},
        {{9, 0, 132, 232448, 0}, ECHI_PRODUCT_TF32, 64, ECHI_PRODUCT_SM80, "product_tf32_64x128",
         "wgmma's tiles have 128 rows, and this has 64: half would be for nothing"},
        {{9, 0, 132, 232448, 0}, ECHI_PRODUCT_FLOAT, 4096, ECHI_PRODUCT_F32, "product_float_128x128",
         "tensor cores round to TF32 or bf16, and float is wanted"},
        {{10, 0, 148, 232448, 0}, ECHI_PRODUCT_BF16, 4096, ECHI_PRODUCT_SM80, "product_bf16_128x128",
         "wgmma needs compute capability 9.0, and this is 10.0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p.precision = cases[i].precision, p.rows = cases[i].rows;
        const struct echi_product_plan plan = chosen(p, cases[i].card);
        assert_string_equal(plan.why, cases[i].why);
        assert_int_equal(plan.text, cases[i].text);
        if (plan.text != ECHI_PRODUCT_PORTABLE) assert_string_equal(plan.kernel, cases[i].kernel);
    }
}

/* What a launch asks for is what a card has; all stages are some block's, and no block is without. */
static void launches_fit(void **state) {
    (void)state;
    static const struct echi_product_card cards[] = {{8, 0, 108, 166912, 0}, {8, 6, 28, 101376, 0}, {8, 7, 8, 166912, 0},
                                                     {9, 0, 132, 232448, 0}};
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    for (int i = 0; i < 3000; i++) {
        const struct echi_product_card *on = &cards[i % 4];
        struct echi_product p = {.op = ECHI_PRODUCT_MATRIX, .precision = (enum echi_product_precision)echi_random_below(&r, 3),
                                 .rows = random_from(&r, 1, 3000), .cols = random_from(&r, 1, 3000), .depth = random_from(&r, 1, 9000)};
        const struct echi_product_plan plan = chosen(p, *on);
        const int stages = (plan.words + ECHI_PACKED_WORDS - 1) / ECHI_PACKED_WORDS;
        assert_true(plan.text != ECHI_PRODUCT_PORTABLE);
        assert_true(plan.shared <= on->shared_most && plan.items <= 512 && plan.groups[0] > 0);
        assert_int_equal(plan.groups[2], plan.parts);
        assert_true(plan.slice * (plan.parts - 1) < stages && plan.slice * plan.parts >= stages);
    }
    /* 3 channels, padded to 4 words */
    struct echi_product large = {.op = ECHI_PRODUCT_CONV_FORWARD, .precision = ECHI_PRODUCT_TF32,
                                 .window = {.n = 4096, .in_c = 3, .in_h = 512, .in_w = 512, .out_c = 3, .out_h = 512, .out_w = 512,
                                            .kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1}};
    const struct echi_product_plan plan = chosen(large, cards[3]);
    assert_int_equal(plan.text, ECHI_PRODUCT_PORTABLE);
    assert_non_null(strstr(plan.why, "more than kernels can count"));
}

int main(int argc, char **argv) {
#ifdef TEST_ON_CARD
    const char *why;
    if (argc != 2 || !card_open(argv[1], &the_card, &why)) {
        fprintf(stderr, "usage: card_gpu_texts FOLDER-OF-IMAGES: %s\n", argc == 2 ? why : "one argument");
        return 2;
    }
#else
    (void)argc, (void)argv;
#endif
    const struct CMUnitTest tests[] = {
#define LIST(name, op, precision, major) cmocka_unit_test(name),
        TESTS(LIST)
#undef LIST
        cmocka_unit_test(long_sums), cmocka_unit_test(large_tiles), cmocka_unit_test(texts_are_chosen), cmocka_unit_test(launches_fit),
#ifndef TEST_ON_CARD
        cmocka_unit_test(every_kernel_ran),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
