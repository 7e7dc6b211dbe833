/* SPDX-License-Identifier: Apache-2.0
 * Loans: what stays on its node, which slot stands for which memory, and what becomes of it. That roles do not write what they have lent,
 * nor wait for each other, the seeded runs show (sched_sim.h). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_exec.h"

#include <pthread.h>

static struct echi_loans loans;

static struct echi_slot at(int kind, int index) { return (struct echi_slot){(uint8_t)kind, (uint16_t)index}; }
static void assert_slot(struct echi_slot slot, int kind, int index) {
    assert_int_equal(slot.kind, kind);
    assert_int_equal(slot.index, index);
}
static echi_real *memory(int kind, int index) { return echi_exec_slot(exec, at(kind, index), NULL); }

static void only_pushes_and_weights_are_lent(void **state) {
    (void)state;
    struct echi_plan plan = {.shards = 0}, shards = {.shards = 2};
    for (int kind = 0; kind < ECHI_KINDS; kind++) {
        assert_false(echi_lends(&shards, 2, 2, (enum echi_kind)kind));
        assert_int_equal(echi_lends(&plan, 2, 2, (enum echi_kind)kind), kind == ECHI_KIND_PUSH || kind == ECHI_KIND_WEIGHTS);
        assert_false(echi_lends(&plan, 2, 1, (enum echi_kind)kind));
    }
    assert_int_equal(echi_lender_role(ECHI_KIND_PUSH), ECHI_ROLE_WORKER);
    assert_int_equal(echi_lender_role(ECHI_KIND_WEIGHTS), ECHI_ROLE_OWNER);
}

/* Every message of a loan comes back, with the post of its slot and with no other. */
static void a_loan_ends_with_its_post(void **state) {
    (void)state;
    echi_loans_init(&loans, 1);
    for (int part = 0; part < 3; part++)
        echi_loans_begin(&loans, ECHI_KIND_PUSH, at(ECHI_SLOT_OWNER_GRADS, 1), at(ECHI_SLOT_WORKER_GRADS, 1));
    echi_loans_begin(&loans, ECHI_KIND_WEIGHTS, at(ECHI_SLOT_WORKER_WEIGHTS, 3), at(ECHI_SLOT_OWNER_WEIGHTS, 5));
    assert_slot(echi_loans_slot(&loans, at(ECHI_SLOT_OWNER_GRADS, 1)), ECHI_SLOT_WORKER_GRADS, 1);
    assert_slot(echi_loans_slot(&loans, at(ECHI_SLOT_WORKER_WEIGHTS, 3)), ECHI_SLOT_OWNER_WEIGHTS, 5);
    /* pushes of others; what is decoded and has the number of what came; slots that never borrow */
    assert_slot(echi_loans_slot(&loans, at(ECHI_SLOT_OWNER_GRADS, 0)), ECHI_SLOT_OWNER_GRADS, 0);
    assert_slot(echi_loans_slot(&loans, at(ECHI_SLOT_WORKER_COMING, 3)), ECHI_SLOT_WORKER_COMING, 3);
    assert_slot(echi_loans_slot(&loans, at(ECHI_SLOT_OWNER_SUM, 0)), ECHI_SLOT_OWNER_SUM, 0);
    assert_int_equal(echi_loans_end(&loans, at(ECHI_SLOT_OWNER_GRADS, 0)).messages, 0);
    assert_int_equal(echi_loans_end(&loans, at(ECHI_SLOT_WORKER_WEIGHTS, 2)).messages, 0);
    const struct echi_loan push = echi_loans_end(&loans, at(ECHI_SLOT_OWNER_GRADS, 1));
    assert_int_equal(push.messages, 3);
    assert_int_equal(push.kind, ECHI_KIND_PUSH);
    assert_slot(push.lender, ECHI_SLOT_WORKER_GRADS, 1);
    assert_slot(echi_loans_slot(&loans, at(ECHI_SLOT_OWNER_GRADS, 1)), ECHI_SLOT_OWNER_GRADS, 1);
    assert_int_equal(echi_loans_end(&loans, at(ECHI_SLOT_OWNER_GRADS, 1)).messages, 0);
    assert_slot(echi_loans_slot(&loans, at(ECHI_SLOT_WORKER_WEIGHTS, 3)), ECHI_SLOT_OWNER_WEIGHTS, 5);
}

static void *resolve(void *slot) {
    *(struct echi_slot *)slot = echi_loans_slot(&loans, *(struct echi_slot *)slot);
    return NULL;
}

/* A task that was given the first part of a push resolves its slot while the messages of other parts come. ThreadSanitizer judges. */
static void more_of_a_loan_comes_while_a_task_has_it(void **state) {
    (void)state;
    echi_loans_init(&loans, 0);
    const struct echi_slot borrower = at(ECHI_SLOT_OWNER_GRADS, 0), lender = at(ECHI_SLOT_WORKER_GRADS, 0);
    struct echi_slot of_task = borrower;
    pthread_t task;
    echi_loans_begin(&loans, ECHI_KIND_PUSH, borrower, lender);
    assert_int_equal(pthread_create(&task, NULL, resolve, &of_task), 0);
    echi_loans_begin(&loans, ECHI_KIND_PUSH, borrower, lender);
    assert_int_equal(pthread_join(task, NULL), 0);
    assert_slot(of_task, ECHI_SLOT_WORKER_GRADS, 0);
    assert_int_equal(echi_loans_end(&loans, borrower).messages, 2);
}

static void open_lending(bool several) {
    begin_exec("input 1 6 6\nfc out 3\n", &(struct echi_plan){.sync = several ? ECHI_SYNC_GSSP : ECHI_SYNC_BSP, .lr = 0.5}, several);
    assert_true(echi_plan_valid(&setup.plan));
    assert_int_equal(echi_exec_create(&job, "cpu", 1, echi_cpu_level(), NULL, &exec, NULL), ECH_OK);
    echi_loans_init(&loans, 0);
    echi_exec_use_loans(exec, &loans);
    assert_int_equal(echi_exec_setup(exec, &setup, NULL), ECH_OK);
}

/* What borrows has no memory. The first push of a round changes its buffer with the sum, and so does the slot that it was lent from. */
static void a_sum_takes_the_buffer_of_the_worker(void **state) {
    (void)state;
    open_lending(false);
    echi_real *grads = memory(ECHI_SLOT_WORKER_GRADS, 0), *sum = memory(ECHI_SLOT_OWNER_SUM, 0);
    struct echi_task add = {.kind = ECHI_TASK_ADD, .role = ECHI_ROLE_OWNER, .first = 1, .grads = at(ECHI_SLOT_OWNER_GRADS, 0),
                            .state = at(ECHI_SLOT_OWNER_SUM, 0), .samples = 8, .divisor = 16};
    struct echi_result result;
    assert_null(memory(ECHI_SLOT_OWNER_GRADS, 0));
    assert_null(memory(ECHI_SLOT_WORKER_WEIGHTS, 0));
    assert_non_null(memory(ECHI_SLOT_OWNER_GRADS, 1));   /* of another node */
    for (size_t i = 0; i < job.n_params; i++) grads[i] = (echi_real)i;
    echi_loans_begin(&loans, ECHI_KIND_PUSH, at(ECHI_SLOT_OWNER_GRADS, 0), at(ECHI_SLOT_WORKER_GRADS, 0));
    assert_ptr_equal(memory(ECHI_SLOT_OWNER_GRADS, 0), grads);
    assert_int_equal(echi_exec_run(exec, &add, &result, NULL), ECH_OK);
    assert_ptr_equal(memory(ECHI_SLOT_OWNER_SUM, 0), grads);
    assert_ptr_equal(memory(ECHI_SLOT_WORKER_GRADS, 0), sum);
    for (size_t i = 0; i < job.n_params; i++) assert_true(memory(ECHI_SLOT_OWNER_SUM, 0)[i] == (echi_real)i);
    echi_loans_end(&loans, at(ECHI_SLOT_OWNER_GRADS, 0));
    assert_null(memory(ECHI_SLOT_OWNER_GRADS, 0));
    close_exec();
}

/* A worker that is moved gets weights over the net, into memory that is made for that; what it has borrowed it keeps until then. */
static void a_worker_that_moves_gets_memory(void **state) {
    (void)state;
    open_lending(true);
    struct echi_plan moved = setup.plan;
    const echi_real *lent = memory(ECHI_SLOT_OWNER_WEIGHTS, 2);
    echi_loans_begin(&loans, ECHI_KIND_WEIGHTS, at(ECHI_SLOT_WORKER_WEIGHTS, 1), at(ECHI_SLOT_OWNER_WEIGHTS, 2));
    assert_ptr_equal(memory(ECHI_SLOT_WORKER_WEIGHTS, 1), lent);
    assert_null(memory(ECHI_SLOT_WORKER_WEIGHTS, 0));
    echi_plan_move(&moved, 0, 1);
    assert_int_equal(echi_exec_regroup(exec, &moved, NULL), ECH_OK);
    assert_non_null(memory(ECHI_SLOT_WORKER_WEIGHTS, 0));
    assert_ptr_equal(memory(ECHI_SLOT_WORKER_WEIGHTS, 1), lent);
    echi_loans_end(&loans, at(ECHI_SLOT_WORKER_WEIGHTS, 1));
    assert_non_null(memory(ECHI_SLOT_WORKER_WEIGHTS, 1));
    assert_ptr_not_equal(memory(ECHI_SLOT_WORKER_WEIGHTS, 1), lent);
    close_exec();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_pushes_and_weights_are_lent),
        cmocka_unit_test(a_loan_ends_with_its_post),
        cmocka_unit_test(more_of_a_loan_comes_while_a_task_has_it),
        cmocka_unit_test(a_sum_takes_the_buffer_of_the_worker),
        cmocka_unit_test(a_worker_that_moves_gets_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
