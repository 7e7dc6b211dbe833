/* SPDX-License-Identifier: Apache-2.0
 * A damped push: its gradient counts less, its decay and the momentum of the pushes before it do not. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "small_exec.h"

/* One group, or as one of two, whose owner keeps the sum of its changes. */
static void damped(bool several, double damping) {
    begin_exec("input 1 6 6\nfc out 3\n", &(struct echi_plan){.sync = ECHI_SYNC_GSSP, .lr = 0.5, .momentum = 0.75, .decay = 0.125,
                                                              .damping = 1}, several);
    open_exec();
    echi_real *w = floats(ECHI_SLOT_OWNER_WEIGHTS, 0), *out = floats(ECHI_SLOT_OWNER_WEIGHTS, 1), *v = floats(ECHI_SLOT_OWNER_MOMENTUM, 0),
              *g = floats(ECHI_SLOT_OWNER_GRADS, 0);
    for (size_t i = 0; i < job.n_params; i++) {   /* in quarters, so that every float below is exact */
        w[i] = (echi_real)(i % 7) - 3;
        v[i] = (echi_real)(i % 5) / 4;
        g[i] = (echi_real)(i % 3) - 1;
        if (several) {
            floats(ECHI_SLOT_OWNER_W0, 0)[i] = w[i];
            floats(ECHI_SLOT_OWNER_STATE, 0)[i] = 0;
        }
    }
    struct echi_task t = {.kind = ECHI_TASK_APPLY, .role = ECHI_ROLE_OWNER, .grads = {ECHI_SLOT_OWNER_GRADS, 0}, .samples = 8,
                          .divisor = 16, .weights = {ECHI_SLOT_OWNER_WEIGHTS, 0}, .weights_out = {ECHI_SLOT_OWNER_WEIGHTS, 1},
                          .damping = damping};
    memset(t.peer, ECHI_NONE, sizeof t.peer);
    if (several) {
        t.state = (struct echi_slot){ECHI_SLOT_OWNER_STATE, 0};
        t.state_out = (struct echi_slot){ECHI_SLOT_OWNER_STATE, 1};
    }
    static struct echi_result result;
    assert_int_equal(echi_exec_run(exec, &t, &result, NULL), ECH_OK);
    for (size_t i = 0; i < job.n_params; i++) {
        const double was = (double)(i % 7) - 3, weight = damping > 0 ? damping : 1;
        const double speed = 0.75 * (double)(i % 5) / 4 + (weight * ((double)(i % 3) - 1) + 0.125 * 0.5 * was);
        if (fabs((double)v[i] - speed) > 1e-12 || fabs((double)out[i] - (was - 0.5 * speed)) > 1e-12)
            fail_msg("[%zu] is %g, not %g", i, (double)out[i], was - 0.5 * speed);
    }
    close_exec();
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
