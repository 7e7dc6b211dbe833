/* SPDX-License-Identifier: Apache-2.0
 * --deterministic before any arithmetic: options, plans and leases are whole reduction blocks, or refused with a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bsp_plan.h"
#include "echi_coordinator_impl.h"
#include "echi_random.h"

#define G ECHI_REDUCTION_BLOCK

static struct echi_plan plan_of_shares(int world, const uint32_t *n) {
    struct echi_plan p = bsp_plan(world, n);
    p.deterministic = 1;
    return p;
}

static void test_plans_of_whole_blocks(void **state) {
    (void)state;
    const struct echi_plan good = plan_of_shares(3, (const uint32_t[]){8, 0, 4});
    struct echi_plan p = good;
    assert_true(echi_plan_valid(&good));

    p = plan_of_shares(3, (const uint32_t[]){7, 1, 4});
    assert_false(echi_plan_valid(&p));
    p.deterministic = 0;
    assert_true(echi_plan_valid(&p));
    p = plan_of_shares(2, (const uint32_t[]){8, 6});
    assert_false(echi_plan_valid(&p));
    p = good;
    p.deterministic = 2;
    assert_false(echi_plan_valid(&p));
    p = good;
    p.sync = ECHI_SYNC_ASP;
    assert_false(echi_plan_valid(&p));
    p.deterministic = 0;
    assert_true(echi_plan_valid(&p));
    plan_comes_back(&good);
}

static void test_leases_of_whole_blocks(void **state) {
    (void)state;
    const struct echi_plan p = plan_of_shares(2, (const uint32_t[]){8, 16});
    const struct echi_lease good = {.id = 1, .start = 24, .n = 8, .round_size = 24, .worker = 0, .owner = 0};
    assert_true(echi_lease_valid(&good, &p));
    struct echi_lease l = good;
    l.n = 7;
    assert_false(echi_lease_valid(&l, &p));
    l.round_size = 23;                       /* an epoch's last round may end in the middle of a reduction block */
    assert_true(echi_lease_valid(&l, &p));
    l = good;
    l.start = 22;
    assert_false(echi_lease_valid(&l, &p));
}

/* Any plan, any size of the data: every sample once, no reduction block in two leases, none above its share. */
static void test_rounds_are_dealt_in_blocks(void **state) {
    (void)state;
    static struct echi_action list[ECHI_ACTIONS_MAX];
    static struct echi_coordinator c;
    struct echi_random random;
    echi_random_init(&random, 11, ECHI_STREAM_TEST, 0);
    for (int trial = 0; trial < 3000; trial++) {
        uint32_t n[8], samples = 1 + echi_random_below(&random, 200), seen = 0;
        const int world = 1 + (int)echi_random_below(&random, 8);
        for (int r = 0; r < world; r++) n[r] = G * echi_random_below(&random, 5);
        n[echi_random_below(&random, (uint32_t)world)] += G;
        struct echi_setup setup = {.plan = plan_of_shares(world, n)};
        assert_true(echi_plan_valid(&setup.plan));
        memset(&c, 0, offsetof(struct echi_coordinator, times));
        c.setup = &setup;
        c.plan = setup.plan;
        c.next_keep = UINT64_MAX;
        c.policy = echi_policy_of(ECHI_SYNC_BSP);
        c.next_lease = 1;
        c.goal = (struct echi_goal){.train_samples = samples, .samples = samples};
        while (c.issued < samples) {
            struct echi_actions out = {list, 0, ECHI_ACTIONS_MAX, false};
            c.n_out = 0;
            c.applied_rounds = c.next_round;
            echi_ledger_deal(&c, &out);
            for (int i = 0; i < out.count; i++) {
                const struct echi_lease *l = &list[i].msg.lease;
                assert_true(echi_lease_valid(l, &setup.plan));
                assert_int_equal(l->start, seen);
                assert_true(l->n <= n[l->worker]);
                seen += l->n;
                assert_true(l->n % G == 0 || seen == samples);
            }
            assert_true(out.count > 0 && !out.overflow);
        }
        assert_int_equal(seen, samples);
    }
}

static void test_the_planner_gives_whole_blocks(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 12, ECHI_STREAM_TEST, 0);
    for (int trial = 0; trial < 500; trial++) {
        static struct echi_times times[ECHI_WORLD_MAX];
        struct echi_plan_request w = {.sync = ECHI_SYNC_BSP, .world = 1 + (int)echi_random_below(&random, 9), .lr = 0.02, .momentum = 0.9,
                                .deterministic = true, .shares = echi_random_below(&random, 2) ? ECHI_SHARES_SPEED : ECHI_SHARES_EQUAL};
        w.batch = G * ((uint32_t)w.world + echi_random_below(&random, 30));
        for (int r = 0; r < w.world; r++) {
            const double speed = 1 + echi_random_unit(&random) * 7;
            times[r] = (struct echi_times){.count = 2, .n = {8, 64}, .trunk = {8e-5 * speed, 64e-5 * speed}};
        }
        struct echi_plan p;
        char text[240];
        assert_int_equal(echi_plan_make(&w, times, &p, text, sizeof text), ECH_OK);
        assert_true(p.deterministic && echi_plan_valid(&p));
        w.batch += 2;
        assert_int_equal(echi_plan_make(&w, times, &p, text, sizeof text), ECH_E_ARGUMENT);
        assert_non_null(strstr(text, "reduction blocks of 4"));
    }
}

/* What nobody gave does not depend on the nodes either: one batch for any number of them, whatever their speeds and shares. */
static void test_the_default_batch_is_that_of_one_node(void **state) {
    (void)state;
    static struct echi_times times[ECHI_WORLD_MAX];
    for (int world = 1; world <= 40; world++)
        for (int equal = 0; equal < 2; equal++) {
            struct echi_plan_request w = {.sync = ECHI_SYNC_BSP, .world = world, .lr = 0.02, .momentum = 0.9, .deterministic = true,
                                    .shares = equal ? ECHI_SHARES_EQUAL : ECHI_SHARES_SPEED};
            for (int r = 0; r < world; r++)
                times[r] = (struct echi_times){.count = 2, .n = {8, 64}, .trunk = {8e-5 * (1 + r % 3), 64e-5 * (1 + r % 3)}};
            struct echi_plan p;
            char text[240];
            if (echi_plan_make(&w, times, &p, text, sizeof text)) fail_msg("%d nodes: %s", world, text);
            assert_int_equal(p.round, 64);
            assert_true(echi_plan_valid(&p));
        }
}

static void test_options_that_do_not_fit(void **state) {
    (void)state;
    static const struct { const char *name, *value, *says; } cases[] = {
        {"sync", "gssp", "give sync bsp"}, {"sync", "asp", "give sync bsp"}, {"batch", "30", "multiple of 4"},
        {"shares", "8,6", "multiples of 4"}, {"shares", "8,4,2", "multiples of 4"},
    };
    struct ech_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ech_config c;
        ech_config_init(&c);
        c.world = (int)i == 4 ? 3 : 2;
        snprintf(c.coordinator, sizeof c.coordinator, "127.0.0.1:0");
        assert_int_equal(ech_config_set(&c, cases[i].name, cases[i].value, &err), ECH_OK);
        assert_int_equal(ech_config_check(&c, &err), ECH_OK);
        assert_int_equal(ech_config_set(&c, "deterministic", NULL, &err), ECH_OK);
        assert_int_equal(ech_config_check(&c, &err), ECH_E_ARGUMENT);
        assert_non_null(strstr(err.text, cases[i].says));
    }
    /* And in a session, whose arithmetic is the caller's. */
    struct ech_config c;
    float value = 0, grad = 0;
    const struct ech_param param = {"w", &value, &grad, 1, NULL};
    ech_session *session = NULL;
    ech_config_init(&c);
    c.deterministic = 1;
    assert_int_equal(ech_session_open(&param, 1, 10, &c, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "deterministic"));
    assert_null(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_of_whole_blocks),     cmocka_unit_test(test_leases_of_whole_blocks),
        cmocka_unit_test(test_rounds_are_dealt_in_blocks), cmocka_unit_test(test_the_planner_gives_whole_blocks),
        cmocka_unit_test(test_the_default_batch_is_that_of_one_node), cmocka_unit_test(test_options_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("reduction blocks", tests, NULL, NULL);
}
