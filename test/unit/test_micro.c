/* SPDX-License-Identifier: Apache-2.0
 * Micro-batches: the ranges of a step; a worker that computes them as the head answers; what a lost worker's lease becomes. Whole clusters
 * with them are test_sched_roles and test/seeds, their arithmetic test_exact. */
#include "echi_roles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { ACTIONS = 256, OWNER = 0, SELF = 1, HEAD = 2, SHADOW = 0 };
static struct echi_action action[ACTIONS];
static struct echi_actions acted;
static struct echi_setup setup;
static struct echi_worker worker;

static const struct echi_action *acted_on(enum echi_action_type type, int kind, int n) {
    for (int i = 0; i < acted.count; i++)
        if (action[i].type == type && (type == ECHI_ACTION_COMPUTE || action[i].kind == kind) && n-- == 0) return &action[i];
    return NULL;
}

/* They follow one another, cover the lease, and differ by a unit at most; none is larger than is said. */
static void ranges_cover_the_lease(void **state) {
    (void)state;
    for (int deterministic = 0; deterministic < 2; deterministic++)
        for (int micros = 0; micros <= ECHI_MICRO_MAX; micros += micros ? 1 : 2) {
            const struct echi_plan plan = {.deterministic = (uint8_t)deterministic, .micro_batches = (uint8_t)micros};
            const uint32_t unit = deterministic ? ECHI_REDUCTION_BLOCK : 1;
            for (uint32_t n = 1; n < 130; n++) {
                const struct echi_lease lease = {.id = 3, .start = 40, .n = n}, again = {.start = 40, .n = n, .again = 1};
                const int count = echi_lease_micros(&plan, &lease);
                uint32_t at = lease.start, least = n, most = 0;
                assert_true(count >= 1 && count <= (micros ? micros : 1));
                assert_true(count == micros || micros == 0 || (uint32_t)count * unit >= n);
                for (int i = 0; i < count; i++) {
                    const struct echi_lease micro = echi_lease_micro(&plan, &lease, i);
                    assert_true(micro.id == lease.id && micro.start == at && micro.n > 0);
                    assert_true((micro.start - lease.start) % unit == 0);
                    at += micro.n;
                    if (micro.n > most) most = micro.n;
                    if (micro.n < least && i + 1 < count) least = micro.n;
                }
                assert_true(at == lease.start + n && most <= least + unit && most <= echi_micro_most(&plan, n));
                assert_true(echi_micro_most(&plan, n) <= echi_micro_most(&plan, n + 1));
                assert_true(echi_lease_micros(&plan, &again) == 1 && echi_lease_micro(&plan, &again, 0).n == n);
            }
        }
}

static void tell(const struct echi_event *e) {
    acted = (struct echi_actions){action, 0, ACTIONS, false};
    echi_worker_step(&worker, e, &acted);
    assert_null(acted_on(ECHI_ACTION_FAULT, 0, 0));
}
static void message(int from, const struct echi_msg *m, struct echi_slot slot) {
    tell(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m, .slot = slot});
}
/* The task that is out. */
static struct echi_task did(struct echi_task task) {
    const struct echi_result result = {.loss = {0}};
    if (task.kind == ECHI_TASK_BACKWARD && task.micro + 1 == task.micros)
        tell(&(struct echi_event){.type = ECHI_EVENT_GRADIENT, .layer = 0, .task = &task, .result = &result});
    tell(&(struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &task, .result = &result});
    const struct echi_action *next = acted_on(ECHI_ACTION_COMPUTE, 0, 0);
    return next ? next->task : (struct echi_task){0};
}
/* What comes for a micro-batch, to the place that was posted `place`-th. */
static struct echi_task answered(int from, const struct echi_lease *lease, int place, double loss) {
    const struct echi_msg m = {.kind = ECHI_KIND_ACT_GRAD, .lease = *lease, .loss = loss, .correct = 1};
    message(from, &m, (struct echi_slot){ECHI_SLOT_WORKER_ACT_GRAD, (uint16_t)place});
    const struct echi_action *next = acted_on(ECHI_ACTION_COMPUTE, 0, 0);
    return next ? next->task : (struct echi_task){0};
}

/* A worker of three nodes with the first weights and a lease of 10 samples; its first forward is out. */
static struct echi_task begin(int micros) {
    memset(&setup, 0, sizeof setup);
    struct echi_plan *p = &setup.plan;
    echi_plan_clear(p);
    *p = (struct echi_plan){.sync = ECHI_SYNC_BSP, .world = 3, .n_groups = 1, .flights = 1, .cut = 1, .head = HEAD, .shadow = 1 + SHADOW,
                            .round = 30, .n = {10, 10, 10}, .micro_batches = (uint8_t)micros};
    p->parts = (struct echi_parts){.count = 2, .part = {{.count = 4}, {.at = 4, .count = 4, .first = 1, .last = 1}}};
    setup.rank = SELF;
    setup.n_layers = 2;
    setup.cut = 1;
    setup.cut_width = 3;
    assert_true(echi_plan_valid(p));
    const struct echi_msg weights = {.kind = ECHI_KIND_WEIGHTS, .version = 0};
    const struct echi_msg lease = {.kind = ECHI_KIND_LEASE, .lease = {.id = 1, .start = 7, .n = 10, .round_size = 30, .worker = SELF}};
    echi_worker_init(&worker, &setup);
    tell(&(struct echi_event){.type = ECHI_EVENT_START});
    message(OWNER, &weights, (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, 1});
    message(0, &lease, (struct echi_slot){0});
    return acted_on(ECHI_ACTION_COMPUTE, 0, 0)->task;
}

/* All go forward at once, and their rows leave, a copy for the shadow behind each. */
static struct echi_lease go_forward(struct echi_task task, struct echi_lease micro[3]) {
    struct echi_lease next = {0};
    for (int i = 0; i < 3; i++) {
        assert_true(task.kind == ECHI_TASK_FORWARD && task.micro == i && task.micros == 3);
        micro[i] = task.lease;
        assert_int_equal(echi_worker_next(&worker, &next), i < 2);
        assert_true(i == 2 || next.start == micro[i].start + micro[i].n);   /* is read ahead */
        const struct echi_slot act = task.act;
        task = did(task);
        const struct echi_action *place = acted_on(ECHI_ACTION_POST, ECHI_KIND_ACT_GRAD, 0);
        assert_true(place->to == HEAD && place->slot.kind == ECHI_SLOT_WORKER_ACT_GRAD && place->slot.index == i);
        for (int copy = 0; copy < 2; copy++) {
            const struct echi_action *a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_ACT, copy);
            assert_true(a->to == (copy ? SHADOW : HEAD) && a->msg.flag == (copy ? ECHI_ROWS_COPY : ECHI_ROWS_NEW));
            assert_true(a->slot.kind == act.kind && a->slot.index == act.index && act.index == i);
            assert_true(a->msg.lease.start == micro[i].start && a->msg.lease.n == micro[i].n);
        }
    }
    assert_int_equal(task.kind, ECHI_TASK_HEAD);   /* none */
    return next;
}

static void have_copies(const struct echi_lease *micro, int count) {
    for (int i = 0; i < count; i++) {
        const struct echi_msg m = {.kind = ECHI_KIND_SHADOWED, .lease = micro[i]};
        message(SHADOW, &m, (struct echi_slot){0});
    }
}

/* Whatever the order of the answers, backward goes from the first to the last, so that sums and losses are the same bits each time; and
 * nothing is pushed before the last. */
static void backward_keeps_its_order(void **state) {
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const double loss[3] = {1e16, -1e16, 1};   /* of other orders the sum is another */
    for (int o = 0; o < 6; o++) {
        struct echi_lease micro[3];
        struct echi_task task = {0}, out[3];
        int begun = 0, here = 0;
        go_forward(begin(3), micro);
        have_copies(micro, 3);
        for (int i = 0; i < 3; i++) {
            const int m = orders[o][i];
            task = answered(HEAD, &micro[m], i, loss[m]);
            here |= 1 << m;
            for (; task.kind == ECHI_TASK_BACKWARD; task = did(task)) {
                assert_true(task.micro == begun && (here >> begun & 1) && task.lease.start == micro[begun].start);
                assert_int_equal(task.act.index, begun == m ? i : task.act.index);
                assert_int_equal(task.own.kind, begun ? ECHI_SLOT_WORKER_GRADS : ECHI_SLOT_NONE);
                assert_true(task.own.index == (begun ? 1 : 0) && task.grads.index == 0);
                assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_PUSH, 0));
                out[begun++] = task;
            }
        }
        assert_int_equal(begun, 3);
        const struct echi_action *push = acted_on(ECHI_ACTION_SEND, ECHI_KIND_PUSH, 0);
        assert_non_null(push);
        assert_true(push->msg.loss == 1 && push->msg.correct == 3 && push->msg.lease.n == 10 && push->slot.index == out[2].grads.index);
    }
}

/* A push waits for the copies of all; the shadow that has become the head is asked for what is not answered. */
static void each_is_copied_and_asked_for_again(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct echi_lease micro[3];
        go_forward(begin(3), micro);
        struct echi_task task = answered(HEAD, &micro[1], 0, 0);
        assert_int_equal(task.kind, ECHI_TASK_HEAD);
        have_copies(micro, 2);
        if (lost) {
            const struct echi_msg m = {.kind = ECHI_KIND_LOST, .peer = HEAD, .members = 1};
            echi_plan_lose(&setup.plan, HEAD);
            tell(&(struct echi_event){.type = ECHI_EVENT_LOST, .from = HEAD, .msg = &m});
            for (int i = 0; i < 2; i++) {
                const struct echi_action *a = acted_on(ECHI_ACTION_SEND, ECHI_KIND_ACT, i);
                assert_true(a->to == SHADOW && a->msg.flag == ECHI_ROWS_AGAIN && a->msg.lease.start == micro[2 * i].start);
                assert_int_equal(acted_on(ECHI_ACTION_POST, ECHI_KIND_ACT_GRAD, i)->slot.index, 1 + i);   /* 0 has an answer */
            }
            assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_ACT, 2));
        }
        task = answered(lost ? SHADOW : HEAD, &micro[0], 1, 0);
        task = did(did(task));
        assert_int_equal(task.kind, ECHI_TASK_HEAD);
        task = did(answered(lost ? SHADOW : HEAD, &micro[2], 2, 0));
        assert_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_PUSH, 0));
        have_copies(micro + 2, 1);
        assert_non_null(acted_on(ECHI_ACTION_SEND, ECHI_KIND_PUSH, 0));
    }
}

/* An answer to what was not asked for, or was answered. */
static void strange_answers_are_refused(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct echi_lease micro[3];
        go_forward(begin(3), micro);
        answered(HEAD, &micro[1], 0, 0);
        struct echi_msg m = {.kind = ECHI_KIND_ACT_GRAD, .lease = micro[i == 0 ? 1 : 0]};
        if (i == 1) m.lease.start++;
        if (i == 2) m.lease.id = 2;
        if (i == 4) m.lease.n++;
        const struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .from = i == 3 ? SHADOW : HEAD, .msg = &m,
                                     .slot = {ECHI_SLOT_WORKER_ACT_GRAD, 1}};
        acted = (struct echi_actions){action, 0, ACTIONS, false};
        echi_worker_step(&worker, &e, &acted);
        assert_non_null(acted_on(ECHI_ACTION_FAULT, 0, 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_cover_the_lease),
        cmocka_unit_test(backward_keeps_its_order),
        cmocka_unit_test(each_is_copied_and_asked_for_again),
        cmocka_unit_test(strange_answers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
