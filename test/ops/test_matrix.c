/* SPDX-License-Identifier: Apache-2.0
 * Products of matrices of any size and layout, floats and bf16, on every instruction set of this machine, against sums in double: exact on
 * small whole numbers, within a bound on others, and nothing written that is not a place of the result. */
#include "cpu/echi_cpu_matrix.h"
#include "problem.h"

#include <math.h>
#include <setjmp.h>
#include <cmocka.h>

struct way { const char *name; const struct echi_cpu_kernels *k; enum echi_cpu_bf16 bf16; };
enum { WAYS = 11 };

/* Those that are here; returns how many. */
static int ways(struct way out[WAYS]) {
    const struct echi_cpu_kernels *avx2 = echi_cpu_kernels_for(ECHI_CPU_AVX2), *avx512 = echi_cpu_kernels_for(ECHI_CPU_AVX512);
    int n = 0;
    out[n++] = (struct way){"base", echi_cpu_kernels_for(ECHI_CPU_BASE), ECHI_CPU_BF16_NONE};
    out[n++] = (struct way){"fixed", &echi_cpu_kernels_fixed, ECHI_CPU_BF16_NONE};
    if (avx2) out[n++] = (struct way){"avx2", avx2, ECHI_CPU_BF16_NONE};
    if (avx2) out[n++] = (struct way){"avx2x4", avx2->narrow, ECHI_CPU_BF16_NONE};
    if (avx2) out[n++] = (struct way){"avx2x2", avx2->narrow->narrow, ECHI_CPU_BF16_NONE};
    if (avx512) out[n++] = (struct way){"avx512", avx512, ECHI_CPU_BF16_NONE};
    if (avx512) out[n++] = (struct way){"avx512x8", avx512->half, ECHI_CPU_BF16_NONE};
    if (avx512) out[n++] = (struct way){"avx512x4", avx512->narrow, ECHI_CPU_BF16_NONE};
    if (avx512) out[n++] = (struct way){"avx512x2", avx512->narrow->narrow, ECHI_CPU_BF16_NONE};
    if (echi_cpu_bf16() >= ECHI_CPU_BF16_DOT) out[n++] = (struct way){"bf16", avx512, ECHI_CPU_BF16_DOT};
    if (echi_cpu_bf16() == ECHI_CPU_BF16_AMX) out[n++] = (struct way){"bf16 amx", avx512, ECHI_CPU_BF16_AMX};
    return n;
}

/* One operand in guarded memory: each line in one piece, or lines side by side, with a gap behind each row of memory. */
struct operand { struct guarded memory; struct echi_cpu_lines lines; };

static struct operand operand_new(struct echi_random *r, int lines, int depth, bool turned, bool whole) {
    const int across = turned ? lines : depth, down = turned ? depth : lines, row = across + random_from(r, 0, 3);
    const size_t count = (size_t)(down - 1) * (size_t)row + (size_t)across;
    struct operand o = {guarded_new(count * sizeof(float)),
                        {.line = turned ? 1 : row, .step = turned ? row : 1, .lines = lines, .depth = depth}};
    float *at = guarded_floats(o.memory);
    o.lines.at = at;
    for (size_t i = 0; i < count; i++) at[i] = whole ? (float)random_from(r, -3, 3) : (float)echi_random_normal(r);
    return o;
}

static double number(const struct echi_cpu_lines *l, int line, int step) { return (double)l->at[line * l->line + step * l->step]; }

static int random_size(struct echi_random *r, int most) {
    static const int edges[] = {1, 2, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 128, 129};
    return echi_random_below(r, 2) ? edges[echi_random_below(r, sizeof edges / sizeof edges[0])] : random_from(r, 1, most);
}

/* Places of the result that are none keep this. */
static const float UNTOUCHED = 12345.0f;

static void check_way(const struct way *way, uint32_t seed, bool whole) {
    struct echi_random r;
    echi_random_init(&r, seed, ECHI_STREAM_TEST, whole);
    const bool to_data = seed % 8 == 7;   /* a large matrix, rows side by side, and few columns */
    const bool to_weights = seed % 60 == 6;   /* more sums than a cache holds, all short; more columns than go by at once */
    const bool vectors = to_data || echi_random_below(&r, 2) != 0;   /* the result in groups of vectors, far apart, as activations lie */
    const int width = way->k->width, rows = to_data || to_weights ? random_from(&r, 100, 130) : random_size(&r, 70);
    const int depth = to_weights ? random_from(&r, 33, 100) : to_data ? random_from(&r, 1100, 2300)
                      : echi_random_below(&r, 6) ? random_size(&r, 90) : random_from(&r, 200, 2300);
    const bool goes_on = !to_data && way->bf16 == ECHI_CPU_BF16_NONE && echi_random_below(&r, 4) == 0;
    const int more = goes_on ? random_from(&r, 1, 20) : 0;   /* further steps of the depth, in memory of their own */
    int columns = to_weights ? random_from(&r, 8000, 8200) : to_data ? random_from(&r, 1, 48) : random_size(&r, 150);
    const int wanted = columns;   /* the other columns are zeros */
    if (vectors) columns = (columns + width - 1) / width * width;
    struct operand a = operand_new(&r, rows, depth, to_data || echi_random_below(&r, 2), whole);
    struct operand b = operand_new(&r, columns, depth, vectors || echi_random_below(&r, 2), whole);
    for (int k = 0; k < depth; k++)
        for (int i = wanted; i < columns; i++) guarded_floats(b.memory)[i * b.lines.line + k * b.lines.step] = 0;
    struct operand a_more = operand_new(&r, rows, more + !goes_on, echi_random_below(&r, 2), whole);
    struct operand b_more = operand_new(&r, columns, more + !goes_on, echi_random_below(&r, 2), whole);
    for (int k = 0; k < more; k++)
        for (int i = wanted; i < columns; i++) guarded_floats(b_more.memory)[i * b_more.lines.line + k * b_more.lines.step] = 0;
    a_more.lines.depth = b_more.lines.depth = more;
    float *start = malloc((size_t)rows * sizeof *start);
    for (int i = 0; i < rows; i++) start[i] = (float)random_from(&r, -9, 9);
    const ptrdiff_t row = vectors ? width + 1 : columns + random_from(&r, 0, 3);
    const size_t room = vectors ? (size_t)row * (size_t)rows * (size_t)(columns / width) : (size_t)row * (size_t)rows;
    struct guarded out = guarded_new(room * sizeof(float)), scratch = guarded_new(echi_cpu_matrix_room() * sizeof(float));
    for (size_t i = 0; i < room; i++) guarded_floats(out)[i] = UNTOUCHED;
    const struct echi_cpu_matrix m = {.a = a.lines, .b = b.lines, .a_more = a_more.lines, .b_more = b_more.lines,
                                      .columns = wanted, .start = echi_random_below(&r, 2) && !to_data ? start : NULL,
                                      .out = guarded_floats(out), .out_row = row, .out_vector = vectors ? row * rows : width,
                                      .relu = echi_random_below(&r, 3) == 0 && !to_data, .bf16 = way->bf16};
    echi_cpu_matrix(way->k, &m, guarded_floats(scratch));
    /* bf16 has eight significant bits, the first of them not written: a number is rounded by 2^-8 of itself at most, a product of two by
     * (1 + 2^-8)^2 - 1. A sum of n terms in float by n
     * 2^-24 of the sum of their sizes; and what comes out as float once more. */
    const double factor = way->bf16 ? 2.0 / 256 + 1.0 / (256.0 * 256) : 0, unit = (depth + more + 4) / 16777216.0;
    size_t touched = 0;
    for (int o = 0; o < rows; o++)
        for (int i = 0; i < columns; i++) {
            double sum = m.start ? (double)start[o] : 0, sizes = fabs(sum);
            for (int k = 0; k < depth; k++) {
                sum += number(&a.lines, o, k) * number(&b.lines, i, k);
                sizes += fabs(number(&a.lines, o, k) * number(&b.lines, i, k));
            }
            for (int k = 0; k < more; k++) {
                sum += number(&a_more.lines, o, k) * number(&b_more.lines, i, k);
                sizes += fabs(number(&a_more.lines, o, k) * number(&b_more.lines, i, k));
            }
            if (m.relu && sum < 0) sum = 0;
            float *at = m.out + o * m.out_row + i / width * m.out_vector + i % width;
            const bool left_out = i >= wanted && *at == 0.0f;
            if (!left_out && !(fabs((double)*at - sum) <= (whole ? 0 : sizes * (factor + unit))))
                fail_msg("%s, seed %u: %d x %d, depth %d, %s%s: row %d, column %d is %.9g, should be %.9g", way->name, seed, rows, columns,
                         depth, a.lines.line == 1 ? "a turned " : "", b.lines.line == 1 ? "b turned" : "", o, i, (double)*at, sum);
            touched++;
            *at = UNTOUCHED;
        }
    assert_int_equal(touched, (size_t)rows * (size_t)columns);
    for (size_t i = 0; i < room; i++) assert_true(guarded_floats(out)[i] == UNTOUCHED);
    assert_true(guards_intact(out) && guards_intact(a.memory) && guards_intact(b.memory) && guards_intact(scratch));
    assert_true(guards_intact(a_more.memory) && guards_intact(b_more.memory));
    free(out.block);
    free(scratch.block);
    free(a.memory.block);
    free(b.memory.block);
    free(a_more.memory.block);
    free(b_more.memory.block);
    free(start);
}

static void check_ways(bool whole) {
    struct way way[WAYS];
    const int n = ways(way);
    for (int i = 0; i < n; i++)
        for (uint32_t seed = test_turn(); seed < 120; seed += test_part()) check_way(&way[i], seed, whole);
}
static void test_whole_numbers(void **state) {
    (void)state;
    check_ways(true);
}
static void test_real_numbers(void **state) {
    (void)state;
    check_ways(false);
}

/* What a column gives has the same bits beside others as alone: however few they are, and however they are then read. */
static void test_columns_alone(void **state) {
    (void)state;
    struct way way[WAYS];
    const int n = ways(way);
    for (int w = 0; w < n; w++)
        for (uint32_t seed = test_turn(); seed < 24; seed += test_part()) {
            const int width = way[w].k->width, depth = seed % 2 ? 300 : 1500, rows = seed % 3 ? 25 : 90, columns = 11 * width;
            struct echi_random r;
            echi_random_init(&r, seed, ECHI_STREAM_TEST, 9);
            struct operand a = operand_new(&r, rows, depth, seed % 4 > 1, false), b = operand_new(&r, columns, depth, true, false);
            float *room = malloc(echi_cpu_matrix_room() * sizeof *room), *all = malloc((size_t)(rows * columns) * sizeof *all);
            float *alone = malloc((size_t)(rows * width) * sizeof *alone);
            struct echi_cpu_matrix m = {.a = a.lines, .b = b.lines, .columns = columns, .out = all, .out_row = columns, .out_vector = width,
                                        .bf16 = way[w].bf16};
            echi_cpu_matrix(way[w].k, &m, room);
            const int from = random_from(&r, 0, 10) * width;
            m.b.at += from;
            m.b.lines = m.columns = width;
            m.out = alone;
            m.out_row = width;
            echi_cpu_matrix(way[w].k, &m, room);
            for (int o = 0; o < rows; o++)
                if (memcmp(alone + o * width, all + o * columns + from, (size_t)width * sizeof(float)) != 0)
                    fail_msg("%s, seed %u: row %d of columns %d on differs", way[w].name, seed, o, from);
            free(room);
            free(all);
            free(alone);
            free(a.memory.block);
            free(b.memory.block);
        }
}

static void test_bf16_here(void **state) {
    (void)state;
    const char *lacks = echi_cpu_bf16_lacks();
    assert_true((echi_cpu_bf16() == ECHI_CPU_BF16_NONE) == (lacks[0] != '\0'));
    if (lacks[0]) print_message("this processor lacks %s: bf16 is not tested\n", lacks);
    else if (echi_cpu_bf16() == ECHI_CPU_BF16_DOT)
        print_message("this processor lacks AMX-BF16, or the OS forbids it: only AVX512-BF16 is tested\n");
}

/* Layers as a stack has them, whole numbers: forward, the gradients of weights and of the input are those of the reference. */
static void run_fc(const struct echi_stack_impl *impl, const struct echi_layer *l, int n, const float *w, const float *in,
                   const float *dout, float *got) {
    struct ech_error err;
    struct echi_stack *s;
    struct echi_buffer *params, *grads;
    const size_t count = l->weights + l->biases;
    if (echi_stack_create_with(problem_device, impl, l, 1, n, &s, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_int_equal(echi_buffer_create(problem_device, count * sizeof(float), &params, NULL), ECH_OK);
    assert_int_equal(echi_buffer_create(problem_device, count * sizeof(float), &grads, NULL), ECH_OK);
    memcpy(echi_buffer_host(params), w, count * sizeof(float));
    assert_int_equal(echi_stack_input(s, n, in, &err), ECH_OK);
    assert_int_equal(echi_stack_forward(s, 0, params, &err), ECH_OK);
    assert_int_equal(echi_stack_output(s, got, &err), ECH_OK);
    assert_int_equal(echi_stack_output_grad(s, dout, &err), ECH_OK);
    assert_int_equal(echi_stack_backward(s, 0, params, grads, true, &err), ECH_OK);
    got += n * l->out.c;
    assert_int_equal(echi_stack_input_grad(s, got, &err), ECH_OK);
    memcpy(got + n * l->in.c, echi_buffer_host(grads), count * sizeof(float));
    echi_buffer_destroy(params);
    echi_buffer_destroy(grads);
    echi_stack_destroy(s);
}
static void test_bf16_layers(void **state) {
    (void)state;
    const struct echi_stack_impl *const impl[] = {&echi_stack_cpu_bf16_dot, &echi_stack_cpu_bf16_amx};
    for (int i = 0; i < (int)echi_cpu_bf16(); i++)
        for (uint32_t seed = test_turn(); seed < 40; seed += test_part()) {
            struct echi_random r;
            echi_random_init(&r, seed, ECHI_STREAM_TEST, 3);
            const int in = random_size(&r, 200), out = random_size(&r, 60), n = random_size(&r, 70);
            struct echi_layer l = {.name = "fc", .op = ECHI_OP_FC, .in = {in, 1, 1}, .out = {out, 1, 1}, .bias = true,
                                   .weights = (size_t)in * (size_t)out, .biases = (size_t)out, .bias_at = (size_t)in * (size_t)out};
            const size_t count = (size_t)n * (size_t)(in + out), all = count + l.weights + l.biases;
            float *numbers = malloc(all * sizeof *numbers), *wanted = malloc(all * sizeof *wanted), *got = malloc(all * sizeof *got);
            for (size_t k = 0; k < all; k++) numbers[k] = (float)random_from(&r, -3, 3);
            run_fc(&echi_stack_reference, &l, n, numbers + count, numbers, numbers + n * in, wanted);
            run_fc(impl[i], &l, n, numbers + count, numbers, numbers + n * in, got);
            for (size_t k = 0; k < all; k++)
                if (got[k] != wanted[k])
                    fail_msg("%s, seed %u: %d to %d, batch %d: number %zu is %g, should be %g", impl[i]->name, seed, in, out, n, k,
                             (double)got[k], (double)wanted[k]);
            free(numbers);
            free(wanted);
            free(got);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_real_numbers), cmocka_unit_test(test_columns_alone),
        cmocka_unit_test(test_bf16_here),     cmocka_unit_test(test_bf16_layers),
    };
    return cmocka_run_group_tests_name("matrix", tests, problem_open_device, problem_close_device);
}
