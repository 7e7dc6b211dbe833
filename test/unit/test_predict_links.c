/* SPDX-License-Identifier: Apache-2.0
 * Messages of a prediction that share links, against closed formulas: out in turns, in one by one. */
#include "echi_predict.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define TURN 131072.0   /* bytes, on a slow link */

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan plan;
static struct echi_load load;

/* In step, owned by rank 0; a step of every worker takes `seconds`, whatever it has of samples. */
static void in_step(int world, const uint32_t *n, double seconds, double link) {
    memset(&plan, 0, sizeof plan);
    memset(plan.group_of, ECHI_NONE, sizeof plan.group_of);
    memset(plan.owner_of, 0xff, sizeof plan.owner_of);
    memset(times, 0, sizeof times);
    memset(&load, 0, sizeof load);
    plan.sync = ECHI_SYNC_BSP;
    plan.world = (uint16_t)world;
    plan.n_groups = plan.flights = 1;
    plan.head = ECHI_NO_RANK;
    plan.owner_of[0] = 0;
    for (int r = 0; r < world; r++) {
        times[r].count = 2;
        for (int i = 0; i < 2; i++) {
            times[r].n[i] = i ? 64 : 1;
            times[r].trunk[i] = seconds;
        }
        times[r].link = echi_link_of(link);
        plan.n[r] = n[r];
        plan.round += n[r];
        if (n[r] > 0) plan.group_of[r] = 0;
    }
}

static void round_takes(double seconds) {
    static struct echi_predict_work work;
    struct echi_prediction p;
    assert_true(echi_plan_valid(&plan));
    echi_predict(&plan, times, &load, 0, &work, &p);
    const double got = plan.round / p.rate;
    if (!(fabs(got - seconds) <= 1e-9 * seconds)) fail_msg("a round takes %.9g s where %.9g s were expected", got, seconds);
}

/* Weights of four turns to each of three: they leave A B C A B C ... and have left after 10, 11 and 12 turns. Each pushes a step later, and
 * what comes in never waits, so all is in after 10 + 12 turns. */
static void on_a_slow_link_messages_leave_in_turns(void **state) {
    (void)state;
    static const uint32_t four[] = {16, 16, 16, 16}, three[] = {16, 16, 16};
    in_step(4, four, 2, 1e6);
    load.trunk = (uint32_t)(4 * TURN);
    round_takes(2 + 22 * TURN / 1e6);
    /* To two: after 7 and 8 turns, in after 7 + 8. */
    in_step(3, three, 2, 1e6);
    load.trunk = (uint32_t)(4 * TURN);
    round_takes(2 + 15 * TURN / 1e6);
    /* To one there are no turns. */
    in_step(2, four, 2, 1e6);
    load.trunk = (uint32_t)(4 * TURN);
    round_takes(2 + 8 * TURN / 1e6);
    /* Of sixteen turns one takes two: an eighth. To two, after 15 and 16 of these, in after 15 + 16. */
    in_step(3, three, 2, 1e6);
    load.trunk = (uint32_t)(16 * TURN);
    round_takes(2 + 31 * 2 * TURN / 1e6);
}

/* On a fast link a turn is 2.89 ms of it, more than these messages: they leave one after the other, after 4, 8 and 12 parts. */
static void on_a_fast_link_messages_leave_one_by_one(void **state) {
    (void)state;
    static const uint32_t four[] = {16, 16, 16, 16};
    in_step(4, four, 2, 1e9);
    load.trunk = (uint32_t)(4 * TURN);
    round_takes(2 + 16 * TURN / 1e9);
    /* Nor do short messages share a way out, however slow it is. */
    in_step(4, four, 2, 1e3);
    load.trunk = 1000;
    round_takes(2 + 4);
}

/* Rank 0 has the head, and no worker. Rows of 100 and 300 bytes begin to come in together, and answers of 1,000 and 3,000 bytes leave one
 * after the other, behind the first rows. */
static void what_comes_in_fills_the_link(void **state) {
    (void)state;
    static const uint32_t n[] = {0, 1, 3};
    in_step(3, n, 2, 1000);
    plan.separated = 1;
    plan.head = 0;
    load = (struct echi_load){.row = 100, .row_grad = 1000};
    round_takes(2 + 0.1 + 1 + 3);
    /* A sender with a tenth of the rate: its rows have left, and are in, after 3 s; the answer, at the rate of that way in, 30 s later. */
    times[2].link = echi_link_of(100);
    round_takes(2 + 3 + 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_slow_link_messages_leave_in_turns),
        cmocka_unit_test(on_a_fast_link_messages_leave_one_by_one),
        cmocka_unit_test(what_comes_in_fills_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
