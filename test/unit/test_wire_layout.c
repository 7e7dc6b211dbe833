/* SPDX-License-Identifier: Apache-2.0
 * An activation's payload is what net/WIRE.md says: rows of floats, then labels of two bytes. The bytes that a worker sends are read here
 * as somebody would who has only that page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "echi_run.h"

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

static void rows_and_two_bytes_a_label(void **state) {
    static const struct ech_data_callback source = {.channels = 1, .height = 2, .width = 2, .classes = CLASSES, .train_samples = SAMPLES,
                                                    .read = read_samples, .name = "counted"};
    static const char text[] = "input 1 2 2\nconv2d out 3 kernel 2\nfc out 700\n";
    struct ech_config config;
    struct ech_model *model;
    struct ech_data *data;
    struct echi_job job;
    struct echi_exec *exec;
    (void)state;
    ech_config_init(&config);
    config.no_shuffle = 1;
    assert_int_equal(ech_model_parse(text, sizeof text - 1, "cut", &model, NULL), ECH_OK);
    assert_int_equal(ech_data_from_callback(&source, &data, NULL), ECH_OK);
    assert_int_equal(echi_job_make(model, data, &config, &job, NULL), ECH_OK);
    struct echi_plan plan;
    echi_plan_clear(&plan);
    plan.sync = ECHI_SYNC_BSP;
    plan.world = 2;
    plan.n_groups = plan.flights = 1;
    plan.cut = (uint8_t)job.cut_params;
    plan.head = 1;
    plan.owner_of[0] = 1;
    plan.group_of[0] = plan.group_of[1] = 0;
    plan.n[0] = plan.n[1] = N;
    plan.round = 2 * N;
    assert_true(echi_plan_valid(&plan));
    struct echi_setup setup;
    echi_job_setup(&job, &plan, 0, &setup);
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    assert_int_equal(echi_exec_setup(exec, &setup, NULL), ECH_OK);
    const struct echi_lease lease = {.id = 1, .start = 8, .n = N, .round_size = 2 * N, .worker = 0, .owner = 1};
    const struct echi_task task = {.kind = ECHI_TASK_FORWARD, .role = ECHI_ROLE_WORKER, .lease = lease, .divisor = 2 * N,
                                   .weights = {ECHI_SLOT_WORKER_WEIGHTS, 0}, .act = {ECHI_SLOT_WORKER_ACT, 0}};
    float *weights = echi_exec_slot(exec, task.weights, NULL);
    for (size_t i = 0; i < job.n_params; i++) weights[i] = 0;
    for (int c = 0; c < WIDTH; c++) weights[4 * c] = (float)(c + 1);   /* channel c is c + 1 times the first pixel, the sample's number */
    struct echi_result result;
    assert_int_equal(echi_exec_run(exec, &task, &result, NULL), ECH_OK);

    const struct echi_msg m = {.kind = ECHI_KIND_ACT, .lease = lease};
    size_t at, len;
    echi_job_extent(&job, &plan, ECHI_KIND_ACT, &m, true, &at, &len);
    assert_int_equal(at, 0);
    assert_int_equal(len, N * (4 * WIDTH + LABEL));
    const uint8_t *bytes = echi_exec_slot(exec, task.act, NULL);
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t c = 0; c < WIDTH; c++) {
            float x;
            memcpy(&x, bytes + 4 * (i * WIDTH + c), sizeof x);
            assert_true(x == (float)((lease.start + i) * (c + 1)));
        }
        const uint8_t *label = bytes + N * 4 * WIDTH + i * LABEL;
        assert_int_equal(label[0] | label[1] << 8, label_of(lease.start + i));
    }
    /* And what net accepts at most is what the page says. */
    struct echi_net_kind kinds[ECHI_KINDS];
    echi_wire_kinds(&job, 2, kinds);
    assert_int_equal(kinds[ECHI_KIND_ACT].payload_cap, SAMPLES * (4 * WIDTH + LABEL));
    char path[256], line[1024];
    bool says = false;
    snprintf(path, sizeof path, "%.*snet/WIRE.md", (int)(strlen(__FILE__) - strlen("test/unit/test_wire_layout.c")), __FILE__);
    FILE *page = fopen(path, "r");
    if (!page) skip();   /* a build elsewhere than where it was compiled */
    while (fgets(line, sizeof line, page)) says = says || strstr(line, "| activation | | samples x (4 x width at the cut + 2)");
    fclose(page);
    assert_true(says);
    echi_exec_destroy(exec);
    ech_data_destroy(data);
    ech_model_destroy(model);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_and_two_bytes_a_label), cmocka_unit_test(payloads_are_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
