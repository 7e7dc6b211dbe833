/* SPDX-License-Identifier: Apache-2.0
 * Where the time of a compute thread goes, by events whose answer is counted by hand. Times are in ns, from 1,000 on. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_usage.h"

#include <string.h>

static struct echi_usage u;

/* An event at `now`, of `type`, that asks for `tasks` of the kinds that follow, or for HOLD or RELEASE. */
static void event(int64_t now, enum echi_event_type type, int kind, enum echi_action_type action, int count, const int *tasks) {
    struct echi_action list[4];
    const struct echi_msg message = {.kind = (uint8_t)kind};
    const struct echi_task done = {.kind = (uint8_t)kind};
    const struct echi_event e = {.type = (uint8_t)type, .now = now, .msg = &message, .task = &done};
    memset(list, 0, sizeof list);
    for (int i = 0; i < count; i++) {
        list[i].type = (uint8_t)action;
        if (action == ECHI_ACTION_COMPUTE) list[i].task.kind = (uint8_t)tasks[i];
    }
    echi_usage_step(&u, &e, list, count);
}
static void comes(int64_t now, enum echi_kind kind, int task) { event(now, ECHI_EVENT_MESSAGE, (int)kind, ECHI_ACTION_COMPUTE, 1, &task); }
static void arrives(int64_t now, enum echi_kind kind) { event(now, ECHI_EVENT_MESSAGE, (int)kind, ECHI_ACTION_SEND, 1, NULL); }
static void ends(int64_t now, enum echi_task_kind kind) { event(now, ECHI_EVENT_COMPUTED, (int)kind, ECHI_ACTION_SEND, 1, NULL); }
static void holds(int64_t now, bool on) {
    event(now, ECHI_EVENT_MESSAGE, on ? ECHI_KIND_HOLD : ECHI_KIND_RELEASE, on ? ECHI_ACTION_HOLD : ECHI_ACTION_RELEASE, 1, NULL);
}

static void is(const int64_t expected[ECHI_USES]) {
    for (int use = 0; use < ECHI_USES; use++)
        if (u.ns[use] != expected[use]) fail_msg("use %d: %lld ns, not %lld", use, (long long)u.ns[use], (long long)expected[use]);
    memset(&u, 0, sizeof u);
}

static void a_worker_waits_for_weights_and_leases(void **state) {
    (void)state;
    arrives(10, ECHI_KIND_LEASE);                           /* the start does not count */
    comes(1000, ECHI_KIND_WEIGHTS, ECHI_TASK_STEP);
    ends(1100, ECHI_TASK_STEP);
    arrives(1120, ECHI_KIND_LEASE);                         /* no task comes of it */
    comes(1150, ECHI_KIND_WEIGHTS, ECHI_TASK_STEP);
    ends(1250, ECHI_TASK_STEP);
    comes(1257, ECHI_KIND_LEASE, ECHI_TASK_FORWARD);
    ends(1300, ECHI_TASK_FORWARD);
    comes(1333, ECHI_KIND_ACT_GRAD, ECHI_TASK_BACKWARD);
    ends(1400, ECHI_TASK_BACKWARD);
    arrives(5000, ECHI_KIND_END);                           /* nor does the end */
    is((int64_t[ECHI_USES]){[ECHI_USE_STEPS] = 100 + 100 + 43 + 67, [ECHI_USE_WEIGHTS] = 50, [ECHI_USE_LEASE] = 7,
                            [ECHI_USE_ACTIVATIONS] = 33});
}

/* Two tasks at once count once, as the more urgent one, whichever began first. */
static void the_most_urgent_task_counts(void **state) {
    (void)state;
    comes(1000, ECHI_KIND_WEIGHTS, ECHI_TASK_STEP);
    comes(1010, ECHI_KIND_PUSH, ECHI_TASK_APPLY);
    comes(1015, ECHI_KIND_PUSH, ECHI_TASK_ADD);
    comes(1020, ECHI_KIND_ACT, ECHI_TASK_HEAD);
    ends(1050, ECHI_TASK_HEAD);
    ends(1060, ECHI_TASK_APPLY);
    ends(1062, ECHI_TASK_ADD);
    ends(1100, ECHI_TASK_STEP);
    comes(1111, ECHI_KIND_PUSH, ECHI_TASK_ADD);
    ends(1112, ECHI_TASK_ADD);
    event(1120, ECHI_EVENT_SENT, 0, ECHI_ACTION_COMPUTE, 2, (int[]){ECHI_TASK_ENCODE, ECHI_TASK_ENCODE});
    ends(1130, ECHI_TASK_ENCODE);
    ends(1140, ECHI_TASK_ENCODE);
    is((int64_t[ECHI_USES]){[ECHI_USE_STEPS] = 10 + 38, [ECHI_USE_OWNER] = 10 + 12 + 1, [ECHI_USE_HEAD] = 30, [ECHI_USE_CODEC] = 20,
                            [ECHI_USE_GRADIENTS] = 11, [ECHI_USE_OTHER] = 8});
}

static void held_time_counts_for_nothing(void **state) {
    (void)state;
    comes(1000, ECHI_KIND_WEIGHTS, ECHI_TASK_STEP);
    holds(1010, true);
    comes(1020, ECHI_KIND_PARAMS, ECHI_TASK_EVAL);
    comes(1030, ECHI_KIND_PUSH, ECHI_TASK_ADD);             /* begins when it is released */
    ends(1500, ECHI_TASK_EVAL);
    event(1600, ECHI_EVENT_COMPUTED, ECHI_TASK_KEEP, ECHI_ACTION_SEND, 0, NULL);
    holds(2000, false);
    ends(2005, ECHI_TASK_ADD);
    ends(2025, ECHI_TASK_STEP);
    is((int64_t[ECHI_USES]){[ECHI_USE_STEPS] = 10 + 20, [ECHI_USE_OWNER] = 5});
}

/* A clock that stands still, an end without a beginning (of a task that a lost role had asked for): nothing becomes less. */
static void nothing_goes_back(void **state) {
    (void)state;
    ends(1000, ECHI_TASK_STEP);
    comes(1000, ECHI_KIND_WEIGHTS, ECHI_TASK_STEP);
    comes(990, ECHI_KIND_LEASE, ECHI_TASK_STEP);
    ends(990, ECHI_TASK_STEP);
    ends(995, ECHI_TASK_STEP);
    ends(999, ECHI_TASK_STEP);
    is((int64_t[ECHI_USES]){[ECHI_USE_STEPS] = 5});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_waits_for_weights_and_leases), cmocka_unit_test(the_most_urgent_task_counts),
        cmocka_unit_test(held_time_counts_for_nothing), cmocka_unit_test(nothing_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
