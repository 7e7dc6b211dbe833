/* SPDX-License-Identifier: Apache-2.0
 * What a node's slots take: what it holds under its plan, and nothing else; and the sentence where that does not fit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "small_exec.h"

/* Layers with parameters: 37 * 2,000 and 2,001 * 3. */
#define TEXT "input 1 6 6\nfc out 2000\nfc out 3\n"
static const struct echi_plan bsp = {.sync = ECHI_SYNC_BSP, .lr = 0.5, .momentum = 0.75};

static struct echi_exec_bytes bytes(void) {
    struct echi_exec_bytes b;
    echi_exec_bytes(exec, &b);
    return b;
}

/* What is counted for a plan, before anything is made, is what the slots and stacks take then. */
static void counts_what_it_takes(void) {
    size_t counted, stacks;
    assert_int_equal(echi_exec_count(exec, &setup, &counted, NULL), ECH_OK);
    assert_int_equal(echi_exec_count_stacks(exec, &setup, &stacks, NULL), ECH_OK);
    struct echi_exec_bytes b = bytes();
    assert_int_equal(b.weights + b.gradients + b.moments + b.rows + b.activations, 0);
    assert_int_equal(echi_exec_setup(exec, &setup, NULL), ECH_OK);
    b = bytes();
    assert_int_equal(b.weights + b.gradients + b.moments + b.rows + b.activations, counted + stacks);
    assert_true(b.activations > 0);
}

static void divide(void) {
    struct echi_plan *p = &setup.plan;
    p->shards = 2;
    p->shard_owner[1] = 1;
    p->parts.count = 2;
    p->parts.part[0] = (struct echi_part){.at = 0, .count = 74000, .shard = 0};
    p->parts.part[1] = (struct echi_part){.at = 74000, .count = 6003, .first = 1, .last = 1, .shard = 1};
    setup.rank = 1;
}

static void the_owner_of_a_shard_holds_its_parts(void **state) {
    (void)state;
    static struct echi_loans loans;
    const size_t all = 80003 * sizeof(echi_real), own = 6003 * sizeof(echi_real);
    begin_exec(TEXT, &bsp, false);
    divide();
    echi_loans_init(&loans, 1);
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    echi_exec_use_loans(exec, &loans);
    counts_what_it_takes();
    const struct echi_exec_bytes b = bytes();
    assert_int_equal(b.weights, 2 * all + own);   /* its worker's of two rounds, and its own */
    assert_int_equal(b.gradients, own);               /* the other worker's push; its own worker's lies where its next weights come to */
    assert_int_equal(b.moments, own);
    /* What lies outside is addressed as before, and works. */
    echi_real *snapshot = floats(ECHI_SLOT_OWNER_WEIGHTS, 0);
    assert_true(snapshot[0] == 0);
    snapshot[0] = 1;
    snapshot[80002] = 2;
    assert_true(snapshot[0] == 1 && snapshot[80002] == 2);
    close_exec();
}

/* Of ech_train they are one of its worker's two places. A copy of another worker, which a rescue may bring, has none until it comes. */
static void rank_0_trains_in_the_run_s_weights(void **state) {
    (void)state;
    static echi_real params[80003];
    static struct echi_loans loans;
    const size_t all = 80003 * sizeof(echi_real), own = 74000 * sizeof(echi_real);
    for (int moves = 0; moves < 2; moves++) {
        begin_exec(TEXT, &bsp, false);
        divide();
        setup.rank = 0;
        echi_loans_init(&loans, 0);
        assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
        echi_exec_use_loans(exec, &loans);
        echi_exec_use_params(exec, params, moves);
        counts_what_it_takes();
        assert_int_equal(bytes().weights, (moves ? 1 : 2) * all + own);
        assert_ptr_equal(floats(ECHI_SLOT_COORD_PARAMS, 0), params);
        assert_int_equal(floats(ECHI_SLOT_WORKER_WEIGHTS, 0) == params, moves);
        assert_ptr_not_equal(floats(ECHI_SLOT_WORKER_WEIGHTS, 1), params);
        assert_int_equal(echi_exec_slot(exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 1}, NULL) == NULL, moves);
        assert_int_equal(echi_exec_copy_place(exec, NULL), ECH_OK);
        assert_int_equal(bytes().weights, 2 * all + own);
        close_exec();
    }
}

/* Rank 0 has the coordinator's weights beside that. The owners' parts come to their places among them; a head's come elsewhere. */
static void parts_come_to_the_coordinators_own_weights(void **state) {
    (void)state;
    const size_t all = 80003 * sizeof(echi_real), own = 74000 * sizeof(echi_real);
    begin_exec(TEXT, &bsp, false);
    divide();
    setup.rank = 0;
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    assert_int_equal(echi_exec_setup(exec, &setup, NULL), ECH_OK);
    assert_int_equal(bytes().weights, 3 * all + own);
    assert_ptr_equal(floats(ECHI_SLOT_COORD_PARAMS, 1), floats(ECHI_SLOT_COORD_PARAMS, 0));
    assert_int_equal(echi_exec_setup_kept(exec, NULL), ECH_OK);   /* a checkpoint's are written meanwhile: it has places of its own */
    assert_ptr_not_equal(floats(ECHI_SLOT_COORD_PARAMS, 1), floats(ECHI_SLOT_COORD_PARAMS, 0));
    close_exec();
}

/* Without momentum an owner has no memory for velocities, unless a checkpoint's come in; nor has a worker of `local` for its own steps. */
static size_t moments_of(const struct echi_plan *plan, bool resumed) {
    begin_exec(TEXT, plan, false);
    setup.plan.resumed = resumed;
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    counts_what_it_takes();
    const size_t held = bytes().moments;
    close_exec();
    return held;
}
static void plain_sgd_has_no_moments(void **state) {
    (void)state;
    const size_t all = 80003 * sizeof(echi_real);
    const struct echi_plan plain = {.sync = ECHI_SYNC_BSP, .lr = 0.5};
    const struct echi_plan adam = {.sync = ECHI_SYNC_BSP, .lr = 0.5, .optimizer = ECHI_OPTIMIZER_ADAM, .adam = {0.9, 0.999, 1e-8}};
    const struct echi_plan local = {.sync = ECHI_SYNC_LOCAL, .lr = 0.5, .outer_lr = 0.7};
    const struct echi_plan outer = {.sync = ECHI_SYNC_LOCAL, .lr = 0.5, .outer_lr = 0.7, .outer_momentum = 0.9};
    const struct echi_plan inner = {.sync = ECHI_SYNC_LOCAL, .lr = 0.5, .momentum = 0.9, .outer_lr = 0.7};
    assert_int_equal(moments_of(&plain, false), 0);
    assert_int_equal(moments_of(&plain, true), all);
    assert_int_equal(moments_of(&bsp, false), all);
    assert_true(moments_of(&adam, false) >= 2 * all);
    assert_int_equal(moments_of(&local, false), 0);
    assert_int_equal(moments_of(&outer, false), all);
    assert_int_equal(moments_of(&inner, false), all);
}

/* Of a worker, of a head's owner, with two steps in flight, in reduction blocks, in micro-batches, with activations in
 * bf16, and of a node that evaluates, too. */
static void stacks_are_counted(void **state) {
    (void)state;
    static const char net[] = "input 1 6 6\nconv2d out 8 kernel 3\nrelu\nfc out 20\nfc out 3\n";
    static const struct { bool separated, deterministic; int flights, rank, tests, micro_batches; bool bf16; } of[] = {
        {false, false, 1, 1, 0, 0, false}, {false, false, 1, 0, 7, 0, false}, {true, false, 2, 0, 7, 0, false},
        {true, false, 1, 1, 0, 0, false}, {false, true, 1, 1, 0, 0, false}, {true, true, 1, 1, 0, 0, false},
        {true, false, 1, 0, 7, 3, false}, {true, false, 1, 1, 0, 2, false}, {true, true, 1, 1, 0, 3, false},
        {true, false, 2, 0, 7, 0, true}, {true, false, 1, 1, 0, 2, true}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct echi_plan like = bsp;
        like.sync = of[i].flights > 1 ? ECHI_SYNC_SSP : ECHI_SYNC_BSP;
        begin_exec(net, &like, false);
        setup.plan.deterministic = of[i].deterministic;
        setup.plan.flights = (uint8_t)of[i].flights;
        setup.plan.micro_batches = (uint8_t)of[i].micro_batches;
        setup.plan.cut = of[i].separated ? (uint8_t)job.cut_params : 0;
        setup.plan.head = of[i].separated ? 0 : ECHI_NO_RANK;
        setup.plan.activations = of[i].bf16 ? ECHI_ACTIVATIONS_BF16 : ECHI_ACTIVATIONS_FP32;
        setup.cut = of[i].separated ? job.cut_params : job.n_layers;
        setup.cut_width = (uint32_t)echi_job_width(&job, &setup.plan);
        setup.rank = of[i].rank;
        job.test_samples = (uint32_t)of[i].tests;
        if (of[i].deterministic) job.kernels = ECHI_KERNELS_FIXED;
        assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
        counts_what_it_takes();
        close_exec();
    }
}

static void alone_a_node_has_three_copies(void **state) {
    (void)state;
    static struct echi_loans loans;
    static _Alignas(64) echi_real params[80003];
    const size_t all = sizeof params;
    begin_exec(TEXT, &bsp, false);
    struct echi_plan *p = &setup.plan;
    p->world = 1;
    p->group_of[1] = ECHI_NONE;
    p->n[1] = 0;
    p->n[0] = 16;
    echi_loans_init(&loans, 0);
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    echi_exec_use_loans(exec, &loans);
    echi_exec_use_params(exec, params, true);
    counts_what_it_takes();
    const struct echi_exec_bytes b = bytes();
    assert_int_equal(b.weights, 0);   /* the caller's */
    assert_int_equal(b.gradients, all);
    assert_int_equal(b.moments, all);
    assert_ptr_equal(floats(ECHI_SLOT_OWNER_WEIGHTS, 0), params);
    assert_ptr_equal(floats(ECHI_SLOT_COORD_PARAMS, 0), params);
    assert_ptr_equal(floats(ECHI_SLOT_OWNER_SUM, 0), floats(ECHI_SLOT_WORKER_GRADS, 0));
    close_exec();
}

/* The slots of rank 1 are a thousand billion parameters: nothing is made of them. */
static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    struct ech_error err = {.text = ""};
    begin_exec(TEXT, &bsp, false);
    divide();
    const size_t params = job.n_params;
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    job.n_params = (size_t)1 << 40;
    setup.plan.parts.part[1].count = UINT32_MAX;
    const ech_status status = echi_exec_setup(exec, &setup, &err);
    job.n_params = params;
    assert_int_equal(status, ECH_E_MEMORY);
    /* The worker's weights of two rounds; four times the owner's parts: its weights, pushes (lent only by a driver), moments. */
    char need[40];
    snprintf(need, sizeof need, " %zu bytes", (2 * ((size_t)1 << 40) + 4 * (size_t)UINT32_MAX) * sizeof(echi_real));
    if (!strstr(err.text, "rank 1 has no memory") || !strstr(err.text, need) || !strstr(err.text, "--shards")) fail_msg("%s", err.text);
    close_exec();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_owner_of_a_shard_holds_its_parts),
                                       cmocka_unit_test(rank_0_trains_in_the_run_s_weights),
                                       cmocka_unit_test(parts_come_to_the_coordinators_own_weights),
                                       cmocka_unit_test(plain_sgd_has_no_moments),
                                       cmocka_unit_test(stacks_are_counted), cmocka_unit_test(alone_a_node_has_three_copies),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
