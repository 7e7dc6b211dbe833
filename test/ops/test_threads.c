/* SPDX-License-Identifier: Apache-2.0
 * The same bits for any number of threads: random nets of all kinds of layers, in every instruction set, and long flat ranges, on one
 * thread, on several, and with their parts done one after the other in a random order at random places, which shows what depends on either.
 * Linked so that the library's calls of echi_cpu_share_out and echi_team_run come through here: the nets are small, and are shared out all
 * the same. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/echi_cpu_stack.h"
#include "echi_stack_impl.h"
#include "problem.h"
#include "sanitized.h"

/* Those that are not tried at every level are tried at the best. */
static struct problem_candidate candidates[] = {
    {&echi_stack_cpu_close, ECHI_CPU_BASE}, {&echi_stack_cpu_plain, ECHI_CPU_BASE}, {&echi_stack_cpu_fixed, ECHI_CPU_BASE},
    {&echi_stack_cpu, ECHI_CPU_BASE}, {&echi_stack_cpu, ECHI_CPU_AVX2}, {&echi_stack_cpu, ECHI_CPU_AVX512},
    {&echi_stack_cpu_bf16_dot, ECHI_CPU_AVX512}, {&echi_stack_cpu_bf16_amx, ECHI_CPU_AVX512}};
#define CANDIDATES (sizeof candidates / sizeof candidates[0])
static const int thread_counts[] = {2, 3, 7};
#define COUNTS (sizeof thread_counts / sizeof thread_counts[0])

static struct problem_devices alone, several[COUNTS];
static struct echi_random order;
static bool shuffled;
static long handed_over;       /* pieces of work with more than one part */

void __real_echi_cpu_share_out(struct echi_cpu_stack *s, int items, double cost, echi_cpu_work work, const void *args);
void __wrap_echi_cpu_share_out(struct echi_cpu_stack *s, int items, double cost, echi_cpu_work work, const void *args);
void __wrap_echi_cpu_share_out(struct echi_cpu_stack *s, int items, double cost, echi_cpu_work work, const void *args) {
    if (!(cost > 0)) fail_msg("a piece of work costs %g", cost);
    __real_echi_cpu_share_out(s, items, 1e9, work, args);
}

void __real_echi_team_run(struct echi_team *team, int parts, echi_team_part run, void *args);
void __wrap_echi_team_run(struct echi_team *team, int parts, echi_team_part run, void *args);
void __wrap_echi_team_run(struct echi_team *team, int parts, echi_team_part run, void *args) {
    int part[64];
    handed_over += parts > 1;
    if (!shuffled) {
        __real_echi_team_run(team, parts, run, args);
        return;
    }
    assert_in_range(parts, 1, 64);
    for (int i = 0; i < parts; i++) part[i] = i;
    for (int i = parts - 1; i >= 0; i--) {
        const int k = random_from(&order, 0, i), next = part[k];
        part[k] = part[i];
        run(args, next, random_from(&order, 0, echi_team_threads(team) - 1));
    }
}

static int open_devices(void **state) {
    echi_random_init(&order, 1, ECHI_STREAM_TEST, 9);
    for (int i = 0; i < 3; i++) candidates[i].level = echi_cpu_level();
    for (size_t i = 0; i < COUNTS; i++)
        if (!problem_open_devices(&several[i], thread_counts[i])) return -1;
    return problem_open_devices(&alone, 1) ? problem_open_device(state) : -1;
}
static int close_devices(void **state) {
    for (size_t i = 0; i < COUNTS; i++) problem_close_devices(&several[i]);
    problem_close_devices(&alone);
    return problem_close_device(state);
}

/* ------------------------------------------------------------------- nets */

/* What goes in, and all that comes out, of one step. */
struct case_ { const struct problem *p; int max_n, n; const float *params, *in, *dout; const uint16_t *labels; bool loss, input_grad; };
struct result { float *out, *grads, *din; double loss; int correct; };

static size_t in_size(const struct problem *p) { return echi_shape_size(p->layers[0].in); }
static size_t out_size(const struct problem *p) { return echi_shape_size(p->layers[p->count - 1].out); }

static float *floats(size_t count) {
    float *x = malloc((count + !count) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) x[i] = 12345.678f;   /* what is never set must not be set elsewhere */
    return x;
}
static struct result new_result(const struct case_ *c) {
    return (struct result){.out = floats((size_t)c->max_n * out_size(c->p)), .grads = floats(c->p->params),
                           .din = floats((size_t)c->max_n * in_size(c->p))};
}
static void free_result(struct result *r) {
    free(r->out);
    free(r->grads);
    free(r->din);
}

/* False when the candidate is not for this processor or these layers. Two steps, so that what the first leaves behind would show. */
static bool run_case(const struct problem_devices *devices, const struct problem_candidate *with, const struct case_ *c,
                     struct result *out) {
    struct ech_error err = {.text = "no error"};
    struct echi_stack *s = NULL;
    struct echi_device *device = devices->at[with->level];
    if (!device) return false;
    const ech_status status = echi_stack_create_with(device, with->impl, c->p->layers, c->p->count, c->max_n, &s, &err);
    if (status == ECH_E_UNSUPPORTED) return false;
    if (status != ECH_OK) fail_msg("%s: %s", c->p->text, err.text);
    struct echi_buffer *params = NULL, *grads = NULL;
    assert_int_equal(echi_buffer_wrap(device, (void *)(uintptr_t)c->params, c->p->params * sizeof(float), &params, &err), ECH_OK);
    assert_int_equal(echi_buffer_wrap(device, out->grads, c->p->params * sizeof(float), &grads, &err), ECH_OK);
    for (int round = 0; round < 2; round++) {
        const int n = round == 0 ? c->max_n : c->n;
        struct echi_row who[128];
        for (int i = 0; i < n; i++) who[i] = (struct echi_row){(uint32_t)i % 3, 1000 - 7 * (uint32_t)i};
        assert_int_equal(echi_stack_input(s, n, c->in, &err), ECH_OK);
        if (round == 0 || c->loss) assert_int_equal(echi_stack_train(s, &(struct echi_training){5, who, 0.25f}, &err), ECH_OK);
        for (int u = 0; u < echi_stack_units(s); u++) assert_int_equal(echi_stack_forward(s, u, params, &err), ECH_OK);
        assert_int_equal(echi_stack_output(s, out->out, &err), ECH_OK);
        if (c->loss) assert_int_equal(echi_stack_loss(s, c->labels, 0.125f, &out->loss, &out->correct, &err), ECH_OK);
        else assert_int_equal(echi_stack_output_grad(s, c->dout, &err), ECH_OK);
        for (int u = echi_stack_units(s) - 1; u >= 0; u--)
            assert_int_equal(echi_stack_backward(s, u, params, grads, u > 0 || c->input_grad, &err), ECH_OK);
        if (c->input_grad) assert_int_equal(echi_stack_input_grad(s, out->din, &err), ECH_OK);
    }
    echi_buffer_destroy(params);
    echi_buffer_destroy(grads);
    echi_stack_destroy(s);
    return true;
}

static void same(const struct case_ *c, const struct problem_candidate *with, int threads, const char *what, const float *got,
                 const float *wanted, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0)
            fail_msg("%s, %s %s, n %d and %d, %d threads%s: %s[%zu] is %.9g, with one thread %.9g", c->p->text, with->impl->name,
                     echi_cpu_level_name(with->level), c->max_n, c->n, threads,
                     shuffled ? " (shuffled)" : "", what, i, (double)got[i], (double)wanted[i]);
}

static void check_case(const struct case_ *c) {
    for (size_t k = 0; k < CANDIDATES; k++) {
        struct result wanted = new_result(c);
        const bool runs = run_case(&alone, &candidates[k], c, &wanted);
        for (size_t t = 0; runs && t < 2 * COUNTS; t++) {
            const int threads = thread_counts[t / 2];
            struct result got = new_result(c);
            shuffled = t % 2;
            assert_true(run_case(&several[t / 2], &candidates[k], c, &got));
            same(c, &candidates[k], threads, "output", got.out, wanted.out, (size_t)c->max_n * out_size(c->p));
            same(c, &candidates[k], threads, "grads", got.grads, wanted.grads, c->p->params);
            same(c, &candidates[k], threads, "input grad", got.din, wanted.din, (size_t)c->max_n * in_size(c->p));
            assert_true(got.correct == wanted.correct && memcmp(&got.loss, &wanted.loss, sizeof got.loss) == 0);
            free_result(&got);
        }
        free_result(&wanted);
    }
    shuffled = false;
}

static void check_problem(const struct problem *p, int max_n, struct echi_random *r) {
    const size_t rows = (size_t)max_n;
    float *params = floats(p->params), *in = floats(rows * in_size(p)), *dout = floats(rows * out_size(p));
    uint16_t *labels = malloc(rows * sizeof *labels);
    const struct echi_shape end = p->layers[p->count - 1].out;
    for (size_t i = 0; i < p->params; i++) params[i] = (float)echi_random_normal(r) * 0.3f;
    for (size_t i = 0; i < rows * in_size(p); i++) in[i] = (float)echi_random_normal(r);
    for (size_t i = 0; i < rows * out_size(p); i++) dout[i] = (float)echi_random_normal(r);
    for (size_t i = 0; i < rows; i++) labels[i] = (uint16_t)echi_random_below(r, (uint32_t)(end.c < 256 ? end.c : 256));
    check_case(&(struct case_){p, max_n, random_from(r, 1, max_n), params, in, dout, labels,
                               end.h == 1 && end.w == 1 && echi_random_below(r, 2), echi_random_below(r, 4) != 0});
    free(params);
    free(in);
    free(dout);
    free(labels);
}

enum { SEEDS = THREADS_WATCHED ? 6 : 60, LENET_BATCHES = THREADS_WATCHED ? 2 : 4 };

static void random_layer(struct problem *p, struct echi_random *r) {
    switch (echi_random_below(r, 11)) {
    case 0:
    case 1: random_window(p, r, ECHI_OP_CONV2D); break;
    case 2: problem_fc(p, random_from(r, 1, 60), echi_random_below(r, 3) != 0); break;
    case 3: random_window(p, r, ECHI_OP_MAX_POOL); break;
    case 4: random_window(p, r, ECHI_OP_AVG_POOL); break;
    case 5: problem_global_avg_pool(p); break;
    case 6: problem_add(p, p->count); break;
    case 7: problem_dropout(p, echi_random_below(r, 1000000)); break;
    case 8: problem_batch_norm(p); break;
    case 9: problem_next(p, ECHI_OP_TANH); break;
    default: problem_relu(p); break;
    }
}

static void test_random_nets(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < 2 * SEEDS; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 0);
        problem_begin(&p, random_from(&r, 1, 30), random_from(&r, 1, 12), random_from(&r, 1, 12));
        for (int i = random_from(&r, 1, 6); i > 0; i--) random_layer(&p, &r);
        check_problem(&p, random_from(&r, 1, 70), &r);
    }
}

static void test_branches(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < SEEDS; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 1);
        problem_begin(&p, random_from(&r, 1, 9), random_from(&r, 1, 9), random_from(&r, 1, 9));
        problem_branches(&p, &r, true);
        check_problem(&p, random_from(&r, 1, 40), &r);
    }
}

/* Convolutions by points, and those whose weights' gradients are turned; more channels than one thread's share, now and then not. */
static void test_many_channels(void **state) {
    (void)state;
    for (uint32_t seed = test_turn(); seed < SEEDS / 2; seed += test_part()) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 2);
        const bool by_stages = seed % 24 == 1;
        problem_begin(&p, by_stages ? 130 : random_from(&r, 16, 70), by_stages ? 17 : random_from(&r, 2, 18),
                      by_stages ? 13 : random_from(&r, 2, 9));
        if (by_stages) problem_window(&p, ECHI_OP_CONV2D, 135, 3, 3, 1, 1, 1, 1, true);
        else if (seed % 4 == 3) random_window(&p, &r, ECHI_OP_CONV2D);
        else if (seed % 8 == 6) problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 80), 5, 5, 1, 1, 2, 2, echi_random_below(&r, 2));
        else problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 80), 3, 3, 1, 1, 1, 1, echi_random_below(&r, 2));
        if (echi_random_below(&r, 2)) problem_relu(&p);
        const struct echi_shape now = problem_shape(&p);
        if (now.h > 1 && now.w > 1 && echi_random_below(&r, 2)) problem_window(&p, ECHI_OP_MAX_POOL, 0, 2, 2, 2, 2, 0, 0, false);
        problem_window(&p, ECHI_OP_CONV2D, random_from(&r, 16, 40), 3, 3, 1, 1, 1, 1, true);
        check_problem(&p, random_from(&r, 1, 33), &r);
    }
}

static void test_lenet5(void **state) {
    (void)state;
    static const int batches[] = {4, 33, 1, 70};
    for (size_t i = 0; i < LENET_BATCHES; i++) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, i, ECHI_STREAM_TEST, 3);
        problem_lenet5(&p);
        check_problem(&p, batches[i], &r);
    }
}

/* Was there anything to compare? */
static void test_was_shared_out(void **state) {
    (void)state;
    assert_true(handed_over > 1000);
}

/* ------------------------------------------------------------ flat ranges */

enum { LONG = 100003, BUFFERS = 4 };

/* All calls on flat ranges; every array that they write. `bad` is put into one place. */
static void flat_calls(struct echi_device *device, float bad, float *arrays[BUFFERS], int64_t *sums[2], bool *finite, ech_status *exact) {
    struct echi_buffer *b[BUFFERS], *s[2];
    struct echi_random r;
    const struct echi_step how = {.rule = ECHI_RULE_NESTEROV, .lr = 0.1f, .momentum = 0.9f, .l2 = 0.01f};
    const size_t at = 3, count = LONG - 5;
    echi_random_init(&r, 7, ECHI_STREAM_TEST, 4);
    for (int i = 0; i < BUFFERS; i++) {
        arrays[i] = floats(LONG);
        for (int k = 0; k < LONG; k++) arrays[i][k] = (float)echi_random_normal(&r);
        assert_int_equal(echi_buffer_wrap(device, arrays[i], LONG * sizeof(float), &b[i], NULL), ECH_OK);
    }
    for (int i = 0; i < 2; i++) {
        sums[i] = calloc(LONG, sizeof **sums);
        assert_int_equal(echi_buffer_wrap(device, sums[i], LONG * sizeof **sums, &s[i], NULL), ECH_OK);
    }
    arrays[3][LONG - 3] = bad;
    const struct echi_buffer *states[] = {b[1], b[2]};
    assert_int_equal(echi_apply(device, b[0], b[0], &(struct echi_moments){.buffer = b[1], .first_at = at}, b[2], at, count, &how, NULL),
                     ECH_OK);
    assert_int_equal(echi_apply_state(device, b[2], b[0], b[0], &(struct echi_moments){.buffer = b[1], .first_at = at}, b[3], at, count - 3,
                                      &how, NULL), ECH_OK);
    assert_int_equal(echi_take_delta(device, b[2], b[0], b[1], at, count, 0.3f, NULL), ECH_OK);
    assert_int_equal(echi_rebase(device, b[1], b[0], b[2], at, count, NULL), ECH_OK);
    assert_int_equal(echi_scale(device, b[2], at, count, 1.1f, NULL), ECH_OK);
    assert_int_equal(echi_sum_states(device, b[0], b[0], states, 2, at, count, NULL), ECH_OK);
    assert_int_equal(echi_all_finite(device, b[3], at, count, finite, NULL), ECH_OK);
    *exact = echi_exact_take(device, s[0], b[3], at, count, false, NULL);
    if (*exact == ECH_OK) *exact = echi_exact_take(device, s[0], b[0], at, count, true, NULL);
    if (*exact == ECH_OK) *exact = echi_exact_add(device, s[1], s[1], (const struct echi_buffer *[]){s[0]}, 1, at, count, NULL);
    if (*exact == ECH_OK) *exact = echi_exact_round(device, b[3], s[1], at, count, NULL);
    for (int i = 0; i < BUFFERS; i++) echi_buffer_destroy(b[i]);
    for (int i = 0; i < 2; i++) echi_buffer_destroy(s[i]);
}

static void test_flat(void **state) {
    (void)state;
    for (size_t t = 0; t < 4 * COUNTS; t++) {
        const float bad = t % 2 ? 0.5f : 1.0f / 0.0f;
        float *wanted[BUFFERS], *got[BUFFERS];
        int64_t *wanted_sums[2], *got_sums[2];
        bool finite[2];
        ech_status exact[2];
        flat_calls(problem_device, bad, wanted, wanted_sums, &finite[0], &exact[0]);
        const long before = handed_over;
        shuffled = t / 2 % 2;
        flat_calls(several[t / 4].at[echi_cpu_level()], bad, got, got_sums, &finite[1], &exact[1]);
        shuffled = false;
        assert_true(handed_over - before >= 8);
        assert_true(finite[0] == finite[1] && finite[0] == (t % 2 == 1));
        assert_true(exact[0] == exact[1] && exact[0] == (t % 2 ? ECH_OK : ECH_E_DIVERGED));
        for (int i = 0; i < BUFFERS; i++) {
            if (memcmp(wanted[i], got[i], LONG * sizeof(float)) != 0) fail_msg("%d threads: array %d differs", thread_counts[t / 4], i);
            free(wanted[i]);
            free(got[i]);
        }
        for (int i = 0; i < 2; i++) {
            if (memcmp(wanted_sums[i], got_sums[i], LONG * sizeof **got_sums) != 0)
                fail_msg("%d threads: sums %d differ", thread_counts[t / 4], i);
            free(wanted_sums[i]);
            free(got_sums[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_nets), cmocka_unit_test(test_branches),       cmocka_unit_test(test_many_channels),
        cmocka_unit_test(test_lenet5),      cmocka_unit_test(test_was_shared_out), cmocka_unit_test(test_flat),
    };
    return cmocka_run_group_tests_name("threads", tests, open_devices, close_devices);
}
