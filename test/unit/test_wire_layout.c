/* SPDX-License-Identifier: Apache-2.0
 * An activation's payload is what net/WIRE.md says: rows of floats or of bf16, then labels of two bytes. The bytes that a worker sends are
 * read here as somebody would who has only that page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "echi_run.h"

#include <math.h>

enum { CLASSES = 700, WIDTH = 3, N = 4, SAMPLES = 16, LABEL = 2 };

static uint16_t label_of(uint32_t sample) { return (uint16_t)(sample * 40 + 5); }   /* most do not fit into one byte */

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test;
    for (int i = 0; i < n; i++) {
        labels[i] = label_of(index[i]);
        for (int k = 0; k < 4; k++) rows[4 * i + k] = (float)index[i] + (float)k;
    }
    return 0;
}

/* A node of a run of two, whose head is rank 1. */
static struct {
    ech_model *model;
    ech_data *data;
    struct echi_job job;
    struct echi_plan plan;
    struct echi_setup setup;
    struct echi_exec *exec;
} run;

static void open_run(int rank, enum echi_activations activations) {
    static const struct ech_data_callback source = {.channels = 1, .height = 2, .width = 2, .classes = CLASSES, .train_samples = SAMPLES,
                                                    .read = read_samples, .name = "counted"};
    static const char text[] = "input 1 2 2\nconv2d out 3 kernel 2\nfc out 700\n";
    struct echi_plan *plan = &run.plan;
    struct ech_config config;
    ech_config_init(&config);
    config.no_shuffle = 1;
    assert_int_equal(ech_model_parse(text, sizeof text - 1, "cut", &run.model, NULL), ECH_OK);
    assert_int_equal(ech_data_from_callback(&source, &run.data, NULL), ECH_OK);
    assert_int_equal(echi_job_make(run.model, run.data, &config, &run.job, NULL), ECH_OK);
    echi_plan_clear(plan);
    plan->sync = ECHI_SYNC_BSP;
    plan->world = 2;
    plan->n_groups = plan->flights = 1;
    plan->cut = (uint8_t)run.job.cut_params;
    plan->head = 1;
    plan->activations = (uint8_t)activations;
    plan->owner_of[0] = 1;
    plan->group_of[0] = plan->group_of[1] = 0;
    plan->n[0] = plan->n[1] = N;
    plan->round = 2 * N;
    assert_true(echi_plan_valid(plan));
    echi_job_setup(&run.job, plan, rank, &run.setup);
    assert_int_equal(echi_exec_create(&run.job, "cpu", 1, echi_cpu_level(), NULL, &run.exec, NULL), ECH_OK);
    assert_int_equal(echi_exec_setup(run.exec, &run.setup, NULL), ECH_OK);
}

static void close_run(void) {
    echi_exec_destroy(run.exec);
    ech_data_destroy(run.data);
    ech_model_destroy(run.model);
}

#define LEASE {.id = 1, .start = 8, .n = N, .round_size = 2 * N, .worker = 0, .owner = 1}
static const struct echi_lease lease = LEASE;
static const struct echi_task forward = {.kind = ECHI_TASK_FORWARD, .role = ECHI_ROLE_WORKER, .lease = LEASE, .divisor = 2 * N,
                                         .weights = {ECHI_SLOT_WORKER_WEIGHTS, 0}, .act = {ECHI_SLOT_WORKER_ACT, 0}};

/* Channel c is so many times c + 1 times the first pixel, which is the sample's number. */
static void forward_times(float factor) {
    struct echi_result result;
    float *weights = echi_exec_slot(run.exec, forward.weights, NULL);
    for (size_t i = 0; i < run.job.n_params; i++) weights[i] = 0;
    for (int c = 0; c < WIDTH; c++) weights[4 * c] = (float)(c + 1) * factor;
    assert_int_equal(echi_exec_run(run.exec, &forward, &result, NULL), ECH_OK);
}

static size_t length(int kind) {
    const struct echi_msg m = {.kind = (uint8_t)kind, .lease = lease};
    size_t at, len;
    echi_job_extent(&run.job, &run.plan, kind, &m, true, &at, &len);
    assert_int_equal(at, 0);
    return len;
}

static void assert_labels(const uint8_t *at) {
    for (uint32_t i = 0; i < N; i++) assert_int_equal(at[i * LABEL] | at[i * LABEL + 1] << 8, label_of(lease.start + i));
}

static void rows_and_two_bytes_a_label(void **state) {
    (void)state;
    open_run(0, ECHI_ACTIVATIONS_FP32);
    forward_times(1);
    assert_int_equal(length(ECHI_KIND_ACT), N * (4 * WIDTH + LABEL));
    const uint8_t *bytes = echi_exec_slot(run.exec, forward.act, NULL);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t c = 0; c < WIDTH; c++) {
            float x;
            memcpy(&x, bytes + 4 * (i * WIDTH + c), sizeof x);
            assert_true(x == (float)((lease.start + i) * (c + 1)));
        }
    assert_labels(bytes + N * 4 * WIDTH);
    /* And what net accepts at most is what the page says. */
    struct echi_net_kind kinds[ECHI_KINDS];
    echi_wire_kinds(&run.job, 2, kinds);
    assert_int_equal(kinds[ECHI_KIND_ACT].payload_cap, SAMPLES * (4 * WIDTH + LABEL));
    char path[256], line[1024];
    bool says = false;
    snprintf(path, sizeof path, "%.*snet/WIRE.md", (int)(strlen(__FILE__) - strlen("test/unit/test_wire_layout.c")), __FILE__);
    FILE *page = fopen(path, "r");
    if (!page) skip();   /* a build elsewhere than where it was compiled */
    while (fgets(line, sizeof line, page)) says = says || strstr(line, "| activation | | samples x (4 x width at the cut + 2)");
    fclose(page);
    assert_true(says);
    close_run();
}

/* What two bytes of bf16 are, and the two that a number becomes: eight bits of it, of two as near the even ones. */
static double number_of(uint16_t word) {
    const double v = ldexp(128 + (word & 127), (word >> 7 & 255) - 134);
    return word == 0 || word == 0x8000 ? 0 : word >> 15 ? -v : v;
}
static double rounded(double v) {
    int exponent;
    const double fraction = frexp(v, &exponent);
    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

static void rows_in_two_bytes_each(void **state) {
    (void)state;
    open_run(0, ECHI_ACTIVATIONS_BF16);
    forward_times(1.01f);
    assert_int_equal(length(ECHI_KIND_ACT), N * (2 * WIDTH + LABEL));
    assert_int_equal(length(ECHI_KIND_ACT_GRAD), N * 2 * WIDTH);
    const uint16_t *words = echi_exec_slot(run.exec, forward.act, NULL);
    int up = 0, down = 0;
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t c = 0; c < WIDTH; c++) {
            const double x = (double)((float)(lease.start + i) * ((float)(c + 1) * 1.01f)), sent = number_of(words[i * WIDTH + c]);
            assert_true(sent == rounded(x));
            up += sent > x;
            down += sent < x;
        }
    assert_true(up > 2 && down > 2);
    assert_labels((const uint8_t *)(words + N * WIDTH));
    /* Its answer, of whole numbers: what they are times pixels are sums without rounding. */
    const struct echi_task backward = {.kind = ECHI_TASK_BACKWARD, .role = ECHI_ROLE_WORKER, .lease = lease, .divisor = 2 * N, .micros = 1,
                                       .weights = forward.weights, .grads = {ECHI_SLOT_WORKER_GRADS, 0},
                                       .act = {ECHI_SLOT_WORKER_ACT_GRAD, 0}};
    struct echi_result result;
    uint16_t *answer = echi_exec_slot(run.exec, backward.act, NULL);
    const float *grads = echi_exec_slot(run.exec, backward.grads, NULL);
    double want[WIDTH][5] = {{0}};   /* of the four pixels, and of the bias */
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t c = 0; c < WIDTH; c++) {
            answer[i * WIDTH + c] = (uint16_t)((i * 5 + c * 3) % 4 * 64 + 0x4000 + (i + c) % 2 * 0x8000);
            for (int k = 0; k < 5; k++) want[c][k] += number_of(answer[i * WIDTH + c]) * (k < 4 ? (double)(lease.start + i) + k : 1);
        }
    assert_int_equal(echi_exec_run(run.exec, &backward, &result, NULL), ECH_OK);
    for (int c = 0; c < WIDTH; c++)
        for (int k = 0; k < 5; k++) assert_true((double)grads[k < 4 ? 4 * c + k : 4 * WIDTH + c] == want[c][k]);
    close_run();
}

/* The head answers bf16 with what it would answer the same numbers as floats, rounded. */
static void answers_in_two_bytes_each(void **state) {
    (void)state;
    enum { ALL = N * WIDTH };
    static float answer[ALL], all[ECHI_ACTIVATIONS_BF16 + 1];
    static const struct echi_task head = {.kind = ECHI_TASK_HEAD, .role = ECHI_ROLE_HEAD, .n_rows = 1, .rows = {0}, .row_count = {N},
                                          .row_start = {8}, .samples = N, .divisor = 2 * N, .first = true,
                                          .weights = {ECHI_SLOT_HEAD_WEIGHTS, 0}, .grads = {ECHI_SLOT_HEAD_GRADS, 0},
                                          .state = {ECHI_SLOT_HEAD_SUM, 0}};
    for (int activations = ECHI_ACTIVATIONS_FP32; activations <= ECHI_ACTIVATIONS_BF16; activations++) {
        struct echi_result result;
        open_run(1, (enum echi_activations)activations);
        float *weights = echi_exec_slot(run.exec, head.weights, NULL);
        for (size_t i = 0; i < run.job.n_params; i++) weights[i] = (float)(i % 37) / 64 - 0.25f;
        const bool bf16 = activations == ECHI_ACTIVATIONS_BF16;
        uint8_t *rows = echi_exec_slot(run.exec, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, 0}, NULL);
        for (int i = 0; i < ALL; i++) {
            const uint16_t word = (uint16_t)(0x3f00 + 11 * i);
            const float x = (float)number_of(word);
            if (bf16) memcpy(rows + 2 * i, &word, sizeof word);
            else memcpy(rows + 4 * i, &x, sizeof x);
        }
        for (uint32_t i = 0; i < N; i++) {
            uint8_t *label = rows + ALL * (bf16 ? 2 : 4) + i * LABEL;
            label[0] = (uint8_t)label_of(i), label[1] = (uint8_t)(label_of(i) >> 8);
        }
        assert_int_equal(echi_exec_run(run.exec, &head, &result, NULL), ECH_OK);
        all[activations] = (float)result.loss[0];
        const void *from = echi_exec_slot(run.exec, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, 0}, NULL);
        const uint16_t *words = from;
        if (!bf16) memcpy(answer, from, sizeof answer);
        for (int i = 0; i < ALL && bf16; i++) assert_true(answer[i] != 0 && number_of(words[i]) == rounded((double)answer[i]));
        close_run();
    }
    assert_true(all[0] == all[1] && all[0] > 0);
}

/* No kind of a run comes without the payload that it is about; the others have none. */
static void payloads_are_there(void **state) {
    struct echi_job job = {.train_samples = SAMPLES, .n_params = 10};
    struct echi_net_kind kinds[ECHI_KINDS];
    (void)state;
    echi_wire_kinds(&job, 2, kinds);
    for (int k = 0; k < ECHI_KINDS; k++) {
        assert_int_equal(kinds[k].payload_least, kinds[k].payload_cap > 0);
        assert_true(echi_kind_has_payload(k) || kinds[k].payload_cap == 0);
    }
    assert_int_equal(kinds[ECHI_KIND_PUSH].payload_least, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_and_two_bytes_a_label), cmocka_unit_test(rows_in_two_bytes_each),
                                       cmocka_unit_test(answers_in_two_bytes_each), cmocka_unit_test(payloads_are_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
