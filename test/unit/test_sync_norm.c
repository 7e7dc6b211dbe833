/* SPDX-License-Identifier: Apache-2.0
 * Synchronous batch-norm before any arithmetic: plans, leases and options; rounds dealt so that what is computed together is in one
 * exchange; an owner that puts sums together, of more workers than one task names, and refuses what does not fit; a worker that takes
 * only its owner's answer. Whole runs, with losses, are in sched_sim.h (toy_norm.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bsp_plan.h"
#include "echi_coordinator_impl.h"
#include "echi_roles.h"
#include "echi_random.h"

static struct echi_plan plan_of_shares(int world, const uint32_t *n) {
    struct echi_plan p = bsp_plan(world, n);
    p.sync_norm = 1;
    return p;
}

static void test_plans(void **state) {
    (void)state;
    const struct echi_plan good = plan_of_shares(3, (const uint32_t[]){7, 0, 4});
    struct echi_plan p = good;
    p.sync_norm = 2;
    assert_false(echi_plan_valid(&p));
    p = plan_of_shares(3, (const uint32_t[]){8, 0, 4});
    p.deterministic = 1;
    assert_false(echi_plan_valid(&p));
    p = good;
    p.sync = ECHI_SYNC_ASP;
    assert_false(echi_plan_valid(&p));
    p.sync_norm = 0;
    assert_true(echi_plan_valid(&p));
    plan_comes_back(&good);
}

static void test_leases(void **state) {
    (void)state;
    struct echi_plan p = plan_of_shares(2, (const uint32_t[]){8, 16});
    const struct echi_lease good = {.id = 1, .start = 24, .n = 8, .round_size = 24, .together = 24, .worker = 0, .owner = 0};
    struct echi_lease l = good;
    assert_true(echi_lease_valid(&good, &p) && echi_lease_exchanges(&good));
    l.together = l.n;   /* nobody else is with it */
    assert_true(echi_lease_valid(&l, &p) && !echi_lease_exchanges(&l));
    l.together = 0;
    assert_true(echi_lease_valid(&l, &p) && !echi_lease_exchanges(&l));
    l.again = 1;
    assert_true(echi_lease_valid(&l, &p));
    l.together = 24;
    assert_false(echi_lease_valid(&l, &p));
    l = good;
    l.together = 7;
    assert_false(echi_lease_valid(&l, &p));
    l.together = 25;
    assert_false(echi_lease_valid(&l, &p));
    l = good;
    l.part = ECHI_ROUND_PARTS;
    assert_false(echi_lease_valid(&l, &p));
    p.sync_norm = 0;
    assert_false(echi_lease_valid(&good, &p));
}

/* Any plan, any size of the data, workers that are lost: every sample once; of each worker at most one lease in an exchange, whose leases
 * sum to what each says; a worker that is in one is in those before it. */
static void test_rounds_are_dealt_to_be_computed_together(void **state) {
    (void)state;
    static struct echi_action list[ECHI_ACTIONS_MAX];
    static struct echi_coordinator c;   /* too large for a stack */
    struct echi_random random;
    uint64_t later = 0;
    echi_random_init(&random, 13, ECHI_STREAM_TEST, 0);
    for (int trial = 0; trial < 3000; trial++) {
        uint32_t n[8] = {0}, samples = 1 + echi_random_below(&random, 300), seen = 0;
        const int world = 1 + (int)echi_random_below(&random, 8), kept = (int)echi_random_below(&random, (uint32_t)world);
        for (int r = 0; r < world; r++) n[r] = echi_random_below(&random, 20);
        n[kept]++;
        struct echi_setup setup = {.plan = plan_of_shares(world, n)};
        memset(&c, 0, offsetof(struct echi_coordinator, times));   /* the rest is for a world of a thousand */
        c.setup = &setup;
        c.plan = setup.plan;
        c.next_keep = UINT64_MAX;
        c.next_lease = 1;
        c.policy = echi_policy_of(ECHI_SYNC_BSP);
        c.goal = (struct echi_goal){.train_samples = samples, .samples = samples};
        for (int r = 0; r < world; r++) c.plan.lost[r] = r != kept && echi_random_below(&random, 3) == 0;
        while (c.issued < samples) {
            struct echi_actions out = {list, 0, ECHI_ACTIONS_MAX, false};
            uint32_t together[ECHI_ROUND_PARTS] = {0}, says[ECHI_ROUND_PARTS] = {0};
            bool in[ECHI_ROUND_PARTS][8] = {{false}};
            c.n_out = 0;
            c.applied_rounds = (uint64_t)c.next_round - 1;   /* one round at a time */
            echi_ledger_deal(&c, &out);
            for (int i = 0; i < out.count; i++) {
                const struct echi_lease *l = &list[i].msg.lease;
                assert_true(echi_lease_valid(l, &setup.plan) && !c.plan.lost[l->worker]);
                assert_int_equal(l->start, seen);
                seen += l->n;
                assert_false(in[l->part][l->worker]);
                assert_true(l->part == 0 || in[l->part - 1][l->worker]);
                in[l->part][l->worker] = true;
                assert_true(says[l->part] == 0 || says[l->part] == l->together);
                says[l->part] = l->together;
                together[l->part] += l->n;
                later += l->part > 0;
            }
            assert_true(out.count > 0 && !out.overflow);
            assert_memory_equal(together, says, sizeof together);
        }
        assert_int_equal(seen, samples);
    }
    assert_true(later > 100);
}

/* ---- one owner ---- */

enum { WORKERS = 150, SHARE = 2, LAYERS = 3, NORM = 1 };

static struct echi_owner owner;
static struct echi_setup setup;
static struct echi_action list[ECHI_ACTIONS_MAX];
static struct echi_actions out;

static void owner_event(struct echi_event e) {
    out = (struct echi_actions){list, 0, ECHI_ACTIONS_MAX, false};
    echi_owner_step(&owner, &e, &out);
    assert_false(out.overflow);
}

static const struct echi_action *acted(enum echi_action_type type, int kind) {
    for (int i = 0; i < out.count; i++)
        if (list[i].type == type && (type == ECHI_ACTION_COMPUTE ? list[i].task.kind : list[i].kind) == kind) return &list[i];
    return NULL;
}

static void open_owner(int workers) {
    uint32_t n[ECHI_WORLD_MAX];
    for (int r = 0; r < workers; r++) n[r] = SHARE;
    setup = (struct echi_setup){.plan = plan_of_shares(workers, n), .n_layers = LAYERS, .cut = LAYERS, .norms = 1, .norm = {NORM}};
    echi_owner_init(&owner, &setup, 0);
    owner_event((struct echi_event){.type = ECHI_EVENT_START});
    assert_non_null(acted(ECHI_ACTION_POST, ECHI_KIND_NORM));
    const struct echi_msg first = {.kind = ECHI_KIND_PARAMS};
    owner_event((struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &first});
}

static struct echi_msg sums_of(int worker) {
    const uint32_t all = SHARE * (uint32_t)setup.plan.world;
    return (struct echi_msg){.kind = ECHI_KIND_NORM, .layer = NORM,
                             .lease = {.id = 1 + (uint32_t)worker, .start = SHARE * (uint32_t)worker, .n = SHARE, .round_size = all,
                                       .together = all, .worker = (uint16_t)worker}};
}

static void give(const struct echi_msg *m, int from) {
    const struct echi_slot slot = {ECHI_SLOT_OWNER_NORM, (uint16_t)from};
    owner_event((struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m, .slot = slot});
}

static void revoke_lease(int worker) {
    struct echi_msg m = sums_of(worker);
    m.kind = ECHI_KIND_REVOKE;
    owner_event((struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &m});
}

static void computed(struct echi_task t) {
    const struct echi_result result = {{0}, {0}, 0, false};
    owner_event((struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &t, .result = &result});
}

/* In whatever order they come: all of them in the order of ranks, 64 at a time, and one answer each. */
static void test_sums_of_many_workers(void **state) {
    (void)state;
    open_owner(WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        const int worker = i * 77 % WORKERS;
        const struct echi_msg m = sums_of(worker);
        assert_null(acted(ECHI_ACTION_COMPUTE, ECHI_TASK_NORM));
        give(&m, worker);
    }
    for (int next = 0; next < WORKERS;) {
        const struct echi_action *a = acted(ECHI_ACTION_COMPUTE, ECHI_TASK_NORM);
        assert_non_null(a);
        const struct echi_task t = a->task;
        assert_int_equal(t.n_rows, WORKERS - next < ECHI_MERGE_STEPS ? WORKERS - next : ECHI_MERGE_STEPS);
        assert_int_equal(t.samples, SHARE * next);
        assert_true(t.layer == NORM && t.part == 0 && t.sums.kind == ECHI_SLOT_OWNER_NORM_ALL);
        for (int i = 0; i < t.n_rows; i++) assert_true(t.rows[i] == next++ && t.row_count[i] == SHARE);
        assert_null(acted(ECHI_ACTION_SEND, ECHI_KIND_NORM_ALL));
        computed(t);
    }
    bool told[WORKERS] = {false}, posted[WORKERS] = {false};
    for (int i = 0; i < out.count; i++) {
        if (list[i].type == ECHI_ACTION_POST) posted[list[i].to] = true;
        if (list[i].type != ECHI_ACTION_SEND) continue;
        assert_true(list[i].msg.samples == SHARE * WORKERS && list[i].msg.layer == NORM && posted[list[i].to] && !told[list[i].to]);
        told[list[i].to] = true;
    }
    for (int r = 0; r < WORKERS; r++) assert_true(told[r]);
}

static void test_revoked_leases_are_not_waited_for(void **state) {
    (void)state;
    open_owner(4);
    for (int turn = 0; turn < 2; turn++) {   /* said twice, it counts once */
        revoke_lease(3);
        const struct echi_action *a = acted(ECHI_ACTION_SEND, ECHI_KIND_REVOKED);
        assert_true(a && a->msg.flag == ECHI_REVOKED_OUT);
    }
    for (int worker = 0; worker < 2; worker++) {
        const struct echi_msg m = sums_of(worker);
        give(&m, worker);
    }
    assert_null(acted(ECHI_ACTION_COMPUTE, ECHI_TASK_NORM));
    revoke_lease(1);   /* whose sums are here */
    assert_null(acted(ECHI_ACTION_COMPUTE, ECHI_TASK_NORM));
    const struct echi_msg m = sums_of(2);
    give(&m, 2);
    const struct echi_action *a = acted(ECHI_ACTION_COMPUTE, ECHI_TASK_NORM);
    assert_true(a && a->task.n_rows == 2 && a->task.rows[0] == 0 && a->task.rows[1] == 2);
}

static void test_sums_that_do_not_fit(void **state) {
    (void)state;
    for (int wrong = 0; wrong <= 12; wrong++) {
        open_owner(4);
        struct echi_msg m = sums_of(0);
        int from = 1;
        give(&m, 0);
        assert_null(acted(ECHI_ACTION_FAULT, 0));
        m = sums_of(1);
        switch (wrong) {
        case 0: m.layer = 0; break;                  /* no batch-norm */
        case 1: m.layer = 65535; break;
        case 2: m.flag = 1; break;                   /* the other direction */
        case 3: m.flag = 2; break;
        case 4: m = sums_of(0), from = 0; break;     /* said twice */
        case 5: from = 2; break;                     /* another's */
        case 6: m.lease.round = 1; break;            /* not begun */
        case 7: m.lease.together = SHARE; break;     /* nothing to exchange */
        case 8: m.lease.together = 6; break;         /* not what the first said */
        case 9: m.lease.part = 1; break;
        case 10: m.lease.part = ECHI_ROUND_PARTS; break;
        case 11: m.lease.again = 1; break;
        case 12: m.lease.owner = 1; break;
        }
        give(&m, from);
        if (!acted(ECHI_ACTION_FAULT, 0)) fail_msg("case %d is taken", wrong);
    }
}

/* ---- one worker ---- */

static struct echi_worker worker;

static void worker_event(struct echi_event e) {
    out = (struct echi_actions){list, 0, ECHI_ACTIONS_MAX, false};
    echi_worker_step(&worker, &e, &out);
    assert_false(out.overflow);
}

/* Up to the first batch-norm: its sums are on their way. */
static void open_worker(void) {
    const struct echi_lease l = {.id = 1, .n = SHARE, .round_size = 4, .together = 4, .worker = 1};
    const struct echi_msg lease = {.kind = ECHI_KIND_LEASE, .lease = l}, weights = {.kind = ECHI_KIND_WEIGHTS};
    const struct echi_result result = {{0}, {0}, 0, false};
    setup = (struct echi_setup){.plan = plan_of_shares(2, (const uint32_t[]){SHARE, SHARE}), .rank = 1, .n_layers = LAYERS, .cut = LAYERS,
                                .norms = 1, .norm = {NORM}};
    setup.plan.parts = (struct echi_parts){.count = 1, .part = {{.count = 1, .last = LAYERS - 1}}};
    echi_worker_init(&worker, &setup);
    worker_event((struct echi_event){.type = ECHI_EVENT_START});
    worker_event((struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &lease});
    worker_event((struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &weights, .slot = {ECHI_SLOT_WORKER_WEIGHTS, 1}});
    const struct echi_action *a = acted(ECHI_ACTION_COMPUTE, ECHI_TASK_STEP);
    assert_true(a && a->task.part == 0 && !a->task.norm.kind && a->task.sums.kind == ECHI_SLOT_WORKER_NORM);
    const struct echi_task t = a->task;
    worker_event((struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &t, .result = &result});
    a = acted(ECHI_ACTION_SEND, ECHI_KIND_NORM);
    assert_true(a && a->msg.layer == NORM && !a->msg.flag && a->msg.lease.id == 1);
}

static void answer(const struct echi_msg *m, int from) {
    worker_event((struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m, .slot = {ECHI_SLOT_WORKER_NORM_ALL, 0}});
}

/* The next part begins when both are there, in either order. */
static void test_a_worker_goes_on(void **state) {
    (void)state;
    const struct echi_msg all = {.kind = ECHI_KIND_NORM_ALL, .layer = NORM, .samples = 4, .lease = {.round = 0}};
    const struct echi_event sent = {.type = ECHI_EVENT_SENT, .slot = {ECHI_SLOT_WORKER_NORM, 0}};
    for (int first = 0; first < 2; first++) {
        open_worker();
        if (first == 0) answer(&all, 0);
        else worker_event(sent);
        assert_null(acted(ECHI_ACTION_COMPUTE, ECHI_TASK_STEP));
        if (first == 0) worker_event(sent);
        else answer(&all, 0);
        const struct echi_action *a = acted(ECHI_ACTION_COMPUTE, ECHI_TASK_STEP);
        assert_true(a && a->task.part == 1 && a->task.norm.kind == ECHI_SLOT_WORKER_NORM_ALL && a->task.samples == 4 && a->task.sums.kind);
    }
}

static void test_answers_that_do_not_fit(void **state) {
    (void)state;
    for (int wrong = 0; wrong <= 7; wrong++) {
        struct echi_msg m = {.kind = ECHI_KIND_NORM_ALL, .layer = NORM, .samples = 4};
        int from = 0;
        open_worker();
        switch (wrong) {
        case 0: m.layer = 2; break;
        case 1: m.flag = 1; break;
        case 2: m.lease.round = 1; break;
        case 3: m.lease.part = 1; break;
        case 4: m.samples = SHARE - 1; break;        /* its own alone are more */
        case 5: m.samples = UINT64_C(1) << 32; break;
        case 6: from = 1; break;                     /* not the owner */
        case 7: answer(&m, 0); break;                /* said twice */
        }
        answer(&m, from);
        if (!acted(ECHI_ACTION_FAULT, 0)) fail_msg("case %d is taken", wrong);
    }
}

/* ---- options ---- */

static void test_options_that_do_not_fit(void **state) {
    (void)state;
    static const struct { const char *name, *value, *says; } cases[] = {
        {"sync", "asp", "sync is asp"}, {"sync", "auto", "sync is auto"}, {"sync", "local", "sync is local"},
        {"deterministic", NULL, "four samples"}};
    struct ech_error err;
    struct ech_config c;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ech_config_init(&c);
        assert_int_equal(ech_config_set(&c, "sync-norm", NULL, &err), ECH_OK);
        assert_int_equal(ech_config_check(&c, &err), ECH_OK);
        assert_int_equal(ech_config_set(&c, cases[i].name, cases[i].value, &err), ECH_OK);
        assert_int_equal(ech_config_check(&c, &err), ECH_E_ARGUMENT);
        if (!strstr(err.text, cases[i].says) || !strstr(err.text, "sync-norm")) fail_msg("'%s'", err.text);
    }
    float value = 0, grad = 0;
    const struct ech_param param = {"w", &value, &grad, 1, NULL};
    ech_session *session = NULL;
    ech_config_init(&c);
    c.sync_norm = 1;
    assert_int_equal(ech_session_open(&param, 1, 10, &c, NULL, NULL, &session, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "sync-norm"));
    assert_null(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_leases),
        cmocka_unit_test(test_rounds_are_dealt_to_be_computed_together),
        cmocka_unit_test(test_sums_of_many_workers),
        cmocka_unit_test(test_revoked_leases_are_not_waited_for),
        cmocka_unit_test(test_sums_that_do_not_fit),
        cmocka_unit_test(test_a_worker_goes_on),
        cmocka_unit_test(test_answers_that_do_not_fit),
        cmocka_unit_test(test_options_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("sync-norm", tests, NULL, NULL);
}
