/* SPDX-License-Identifier: Apache-2.0
 * Page-locked memory is for what a GPU copies from and to. An owner's snapshots, moments and sums are not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake/use.h"
#include "small_exec.h"

static struct fake_cuda *fake;

/* Rank 0 works, owns the weights and coordinates: nearly all kinds of slots are its own. */
static void only_what_crosses_is_pinned(void **state) {
    (void)state;
    if (!fake) skip();
    for (int several = 0; several < 2; several++) {
        struct echi_exec_bytes bytes;
        begin_exec("input 1 6 6\nfc out 2000\nfc out 3\n", &(struct echi_plan){.sync = ECHI_SYNC_GSSP, .lr = 0.5, .momentum = 0.75},
                   several);
        open_exec_on("cuda");
        echi_exec_bytes(exec, &bytes);
        const size_t all = job.n_params * sizeof(echi_real), slots = bytes.weights + bytes.gradients + bytes.moments;
        /* A worker's weights and gradients, and the weights that an evaluation takes; rows and losses are far less than one `all`. */
        const size_t crossing = (size_t)(setup.plan.flights + echi_plan_places(&setup.plan, 0) + setup.plan.flights + 1) * all;
        if ((size_t)fake->pinned < crossing || (size_t)fake->pinned >= crossing + all)
            fail_msg("%lld bytes are pinned, and %zu cross, of %zu in slots", fake->pinned, crossing, slots);
        assert_true(slots > 2 * crossing);
        close_exec();
        assert_int_equal(fake->pinned, 0);
        assert_string_equal(fake->complaint, "");
    }
}

int main(void) {
    fake = fake_cuda_open();
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_crosses_is_pinned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
