/* SPDX-License-Identifier: Apache-2.0
 * The sentence with which a run ends that did not do what it was asked: it advises what its reader can do. */
#include "echi_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct echi_coordinator *c;
static struct ech_config config;
static struct ech_error err;

static int begin(void **state) {
    (void)state;
    c = calloc(1, sizeof *c);
    ech_config_init(&config);
    return c == NULL;
}
static int end(void **state) {
    (void)state;
    free(c);
    return 0;
}
static bool says(const char *text) {
    memset(&err, 0, sizeof err);
    echi_end_sentence(c, &config, &err);
    return strstr(err.text, text) != NULL;
}

static void test_a_loss_says_from_where_to_go_on(void **state) {
    (void)state;
    c->status = ECH_E_PEER_LOST;
    c->lost_peer = 2;
    strcpy(c->text, "its process ended");
    assert_true(says("rank 2 was lost (its process ended)") && says("--init"));
    assert_int_equal(err.peer, 2);
    strcpy(config.checkpoint, "folder");
    assert_true(says("--resume") && !says("--init"));
    config.checkpoint[0] = 0;
    strcpy(config.save, "file");
    c->plan.round = 64;
    c->saved_samples = 6400;
    assert_false(says("of round"));
    c->final = true;
    assert_true(says("weights that are left, of round 100 (6400 samples); start it again, with --init from the file of --save"));
}

/* A session has no command line. */
static void test_no_options_are_advised_to_a_session(void **state) {
    (void)state;
    c->status = ECH_E_PEER_LOST;
    c->goal.give_final = true;
    assert_true(says("start it again") && says("arrays") && !says("--"));
}

static void test_a_target_that_only_the_run_before_reached(void **state) {
    (void)state;
    c->status = ECH_E_NOT_REACHED;
    c->target_at = -1;
    c->accuracy = 0.75;
    config.target_accuracy = 0.875;
    c->best_accuracy = 0.8;
    assert_true(says("best evaluation found 80.00 %, not the 87.50 %"));
    c->target_at = 5;
    c->best_accuracy = 0.9;
    assert_true(says("before this one reached the 87.50 %") && says("not in its checkpoint") && says("75.00 %"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_loss_says_from_where_to_go_on, begin, end),
        cmocka_unit_test_setup_teardown(test_no_options_are_advised_to_a_session, begin, end),
        cmocka_unit_test_setup_teardown(test_a_target_that_only_the_run_before_reached, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
