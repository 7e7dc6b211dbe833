/* SPDX-License-Identifier: Apache-2.0
 * The tasks of a node by itself, for tests of what an owner does: a small model, data that nobody learns from, a plan of two workers. */
#ifndef SMALL_EXEC_H
#define SMALL_EXEC_H
#include "echi_run.h"

#include <string.h>

static struct echi_job job;
static struct echi_setup setup;
static struct ech_model *model;
static struct ech_data *data;
static struct echi_exec *exec;

static int blank(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test, (void)index;
    memset(rows, 0, (size_t)n * 6 * 6 * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

/* A model of 1 x 6 x 6 numbers and three classes; `base`, with one owner or one of two, becomes the plan. */
static void begin_exec(const char *text, const struct echi_plan *base, bool several) {
    static const struct ech_data_callback read = {1, 6, 6, 3, 64, 0, blank, NULL, "none"};
    struct ech_config config;
    ech_config_init(&config);
    assert_int_equal(ech_model_parse(text, strlen(text), "small", &model, NULL), ECH_OK);
    assert_int_equal(ech_data_from_callback(&read, &data, NULL), ECH_OK);
    assert_int_equal(echi_job_make(model, data, &config, &job, NULL), ECH_OK);
    memset(&setup, 0, sizeof setup);
    struct echi_plan *p = &setup.plan;
    *p = *base;
    p->world = 2;
    p->n_groups = several ? 2 : 1;
    p->head = ECHI_NO_RANK;
    p->flights = 1;
    p->staleness = 3;
    p->rounds_apart = 4;
    p->round = 16;
    memset(p->owner_of, 0xff, sizeof p->owner_of);
    memset(p->group_of, ECHI_NONE, sizeof p->group_of);
    for (int r = 0; r < 2; r++) {
        p->group_of[r] = several ? (uint8_t)r : 0;
        p->n[r] = 8;
        p->owner_of[r] = r < p->n_groups ? (uint16_t)r : ECHI_NO_RANK;
    }
    setup.n_layers = setup.cut = job.n_layers;
}

/* Once the plan is as the test wants it. */
static inline void open_exec_on(const char *device) {
    assert_true(echi_plan_valid(&setup.plan));
    assert_int_equal(echi_exec_create(&job, device, 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    assert_int_equal(echi_exec_setup(exec, &setup, NULL), ECH_OK);
}
static inline void open_exec(void) { open_exec_on("cpu"); }
static void close_exec(void) {
    echi_exec_destroy(exec);
    ech_data_destroy(data);
    ech_model_destroy(model);
}

static inline echi_real *floats(enum echi_slot_kind kind, uint8_t index) {
    echi_real *at = echi_exec_slot(exec, (struct echi_slot){(uint8_t)kind, index}, NULL);
    assert_non_null(at);
    return at;
}
#endif
