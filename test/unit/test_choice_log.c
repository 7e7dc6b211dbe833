/* SPDX-License-Identifier: Apache-2.0
 * What the log reports of nodes without which the others would be faster: a rank, unless all are alike and share too few processors of one
 * machine. Then which of them it is follows from the noise of their measuring. */
#include "echi_choice_log.h"
#include "echi_planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { WORLD = 4 };

static struct echi_coordinator coordinator;
static struct echi_setup setup;
static char log_text[2000];

static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    if (level == ECH_LOG_WARN) snprintf(log_text + strlen(log_text), sizeof log_text - strlen(log_text), "%s\n", line);
}

/* Each by one thread on the same two processors; steps as so many times as long. */
static void alike(const double *longer) {
    for (int r = 0; r < WORLD; r++)
        coordinator.times[r] = (struct echi_times){.count = 1, .n = {16}, .trunk = {1e-3 * longer[r]},
                                                   .machine = {7, ECHI_PROCESSOR, 2, 2}};
}

static void reports(const char *expected, const char *never) {
    struct ech_config config;
    ech_config_init(&config);
    config.on_log = on_log;
    static const struct echi_job job;   /* no layer of it is named */
    coordinator.setup = &setup;
    coordinator.plan_given = true;
    coordinator.request.world = WORLD;
    coordinator.choice.count = 1;
    setup.plan.world = WORLD;
    log_text[0] = 0;
    echi_choice_log(&config, &coordinator, &job);
    if (!strstr(log_text, expected) || strstr(log_text, never)) fail_msg("'%s' for '%s'", log_text, expected);
}

static void nobody_is_named_of_nodes_that_share_processors(void **state) {
    (void)state;
    struct echi_choice *c = &coordinator.choice;
    *c = (struct echi_choice){.net_negative = 2, .gain = 0.12, .alone = -1};
    alike((const double[]){1, 1.9, 1.2, 1});
    assert_int_equal(echi_times_crowded(coordinator.times, WORLD), 2);
    reports("all 4 nodes share 2 processors of one machine: with one node fewer 12 % more images/s are predicted; start fewer nodes "
            "there\n", "rank");
    c->left_out = true;
    reports("all 4 nodes share 2 processors of one machine: without rank 2 12 % more images/s are predicted; it is left out\n", "holds");
    *c = (struct echi_choice){.net_negative = -1, .alone = 1, .alone_gain = 0.5};
    reports("all 4 nodes share 2 processors of one machine: one node alone is predicted to make 50 % more images/s; start fewer", "rank");
    *c = (struct echi_choice){.net_negative = -1, .alone = -1};
    reports("", "share");
}

static void of_others_it_is(void **state) {
    (void)state;
    static const double same[WORLD] = {1, 1, 1, 1};
    struct echi_times *t = coordinator.times;
    for (int i = 0; i < 6; i++) {
        coordinator.choice = (struct echi_choice){.net_negative = 2, .gain = 0.12, .alone = -1};
        alike(same);
        if (i == 0) t[2].trunk[0] *= 2.1;                 /* more than four threads on two processors explain */
        if (i == 1) t[2].machine.takes = ECHI_PROCESSOR / 2;
        if (i == 2) t[2].machine.id = 8;
        if (i == 3) t[2].count = 0;
        for (int r = 0; r < WORLD; r++) {
            if (i == 4) t[r].machine.processors = 4;      /* one for each */
            if (i == 5) t[r].machine = (struct echi_machine){0};
        }
        assert_int_equal(echi_times_crowded(t, WORLD), 0);
        reports("rank 2 holds the others up: without it 12 % more images/s; run without it, or give --sync auto\n", "share");
    }
    coordinator.choice = (struct echi_choice){.net_negative = -1, .alone = 1, .alone_gain = 0.5};
    reports("plan: rank 1 alone is predicted to make 50 % more images/s than all together", "share");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_is_named_of_nodes_that_share_processors), cmocka_unit_test(of_others_it_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
