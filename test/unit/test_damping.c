/* SPDX-License-Identifier: Apache-2.0
 * A damped push: its gradient counts less, its decay and the momentum of the pushes before it do not. */
#include "echi_run.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static int blank(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test, (void)index;
    memset(rows, 0, (size_t)n * 4 * 4 * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

static echi_real *floats(struct echi_exec *x, enum echi_slot_kind kind, uint8_t index) {
    echi_real *at = echi_exec_slot(x, (struct echi_slot){(uint8_t)kind, index}, NULL);
    assert_non_null(at);
    return at;
}

/* One group, or as one of two, whose owner keeps the sum of its changes. */
static void damped(bool several, double damping) {
    static const char text[] = "input 1 4 4\nfc out 3\n";
    static const struct ech_data_callback read = {1, 4, 4, 3, 64, 0, blank, NULL, "none"};
    static struct echi_job job;
    static struct echi_setup setup;
    struct ech_model *model;
    struct ech_data *data;
    struct ech_config config;
    struct echi_exec *x;
    ech_config_init(&config);
    assert_int_equal(ech_model_parse(text, strlen(text), "small", &model, NULL), ECH_OK);
    assert_int_equal(ech_data_from_callback(&read, &data, NULL), ECH_OK);
    assert_int_equal(echi_job_make(model, data, &config, &job, NULL), ECH_OK);
    memset(&setup, 0, sizeof setup);
    struct echi_plan *p = &setup.plan;
    *p = (struct echi_plan){.sync = ECHI_SYNC_GSSP, .world = 2, .n_groups = several ? 2 : 1, .head = ECHI_NO_RANK, .strands = 1, .staleness = 3,
                            .rounds_apart = 4, .round = 16, .lr = 0.5, .momentum = 0.75, .decay = 0.125, .damping = 1};
    memset(p->owner_of, 0xff, sizeof p->owner_of);
    memset(p->group_of, ECHI_NONE, sizeof p->group_of);
    for (int r = 0; r < 2; r++) {
        p->group_of[r] = several ? (uint8_t)r : 0;
        p->n[r] = 8;
    }
    p->owner_of[0] = 0;
    if (several) p->owner_of[1] = 1;
    assert_true(echi_plan_valid(p));
    setup.n_layers = setup.cut = job.n_layers;
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), &x, NULL), ECH_OK);
    assert_int_equal(echi_exec_setup(x, &setup, NULL), ECH_OK);
    echi_real *w = floats(x, ECHI_SLOT_OWNER_WEIGHTS, 0), *out = floats(x, ECHI_SLOT_OWNER_WEIGHTS, 1), *v = floats(x, ECHI_SLOT_OWNER_MOMENTUM, 0),
              *g = floats(x, ECHI_SLOT_OWNER_GRADS, 0);
    for (size_t i = 0; i < job.n_params; i++) {   /* in quarters, so that every float below is exact */
        w[i] = (echi_real)(i % 7) - 3;
        v[i] = (echi_real)(i % 5) / 4;
        g[i] = (echi_real)(i % 3) - 1;
        if (several) {
            floats(x, ECHI_SLOT_OWNER_W0, 0)[i] = w[i];
            floats(x, ECHI_SLOT_OWNER_STATE, 0)[i] = 0;
        }
    }
    struct echi_task t = {.kind = ECHI_TASK_APPLY, .role = ECHI_ROLE_OWNER, .grads = {ECHI_SLOT_OWNER_GRADS, 0}, .samples = 8, .divisor = 16,
                          .weights = {ECHI_SLOT_OWNER_WEIGHTS, 0}, .weights_out = {ECHI_SLOT_OWNER_WEIGHTS, 1}, .damping = damping};
    memset(t.peer, ECHI_NONE, sizeof t.peer);
    if (several) {
        t.state = (struct echi_slot){ECHI_SLOT_OWNER_STATE, 0};
        t.state_out = (struct echi_slot){ECHI_SLOT_OWNER_STATE, 1};
    }
    static struct echi_result result;
    assert_int_equal(echi_exec_run(x, &t, &result, NULL), ECH_OK);
    for (size_t i = 0; i < job.n_params; i++) {
        const double was = (double)(i % 7) - 3, weight = damping > 0 ? damping : 1;
        const double speed = 0.75 * (double)(i % 5) / 4 + (weight * ((double)(i % 3) - 1) + 0.125 * 0.5 * was);
        if (fabs((double)v[i] - speed) > 1e-12 || fabs((double)out[i] - (was - 0.5 * speed)) > 1e-12)
            fail_msg("[%zu] is %g, not %g", i, (double)out[i], was - 0.5 * speed);
    }
    echi_exec_destroy(x);
    ech_data_destroy(data);
    ech_model_destroy(model);
}

static void a_damped_push_counts_less(void **state) {
    (void)state;
    for (int several = 0; several < 2; several++) {
        damped(several, 0);
        damped(several, 1);
        damped(several, 0.5);
        damped(several, 0.125);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_damped_push_counts_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
