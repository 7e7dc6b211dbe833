/* SPDX-License-Identifier: Apache-2.0
 * One owner or one worker with the codec top-k: which messages of a state link are complete, what is refused, and what a loss leaves.
 * Whole clusters with the codec: test_sched_roles.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "echi_ratio.h"
#include "echi_roles.h"

enum { ACTIONS = 256 };
static struct echi_setup setup;
static struct echi_action action[ACTIONS];
static struct echi_actions acted;
static struct echi_owner owner;
static struct echi_worker worker;
static struct echi_task out;   /* the owner's task that has not ended; kind ECHI_TASKS: none */

/* Rank r is the only worker of group r, and its owner; with one group rank 0 owns all. */
static void plan(int world, int groups) {
    memset(&setup, 0, sizeof setup);
    setup.n_layers = setup.cut = 1;
    setup.plan = (struct echi_plan){.sync = groups > 1 ? ECHI_SYNC_GSSP : ECHI_SYNC_ASP, .world = (uint16_t)world,
                                    .n_groups = (uint8_t)groups, .head = ECHI_NO_RANK, .round = 1u << 20, .staleness = 1000,
                                    .rounds_apart = 1, .flights = 1, .codec = ECHI_CODEC_TOPK, .state_ratio = 150000,
                                    .parts = {.count = 1, .part = {{.count = 1, .codec = ECHI_CODEC_TOPK}}}};
    memset(setup.plan.owner_of, 0xff, sizeof setup.plan.owner_of);
    memset(setup.plan.group_of, ECHI_NONE, sizeof setup.plan.group_of);
    for (int r = 0; r < world; r++) {
        setup.plan.group_of[r] = (uint8_t)(r % groups);
        setup.plan.n[r] = 1;
    }
    for (int g = 0; g < groups; g++) {
        setup.plan.owner_of[g] = (uint16_t)g;
        setup.plan.base[g] = 300000;
    }
    assert_true(echi_plan_valid(&setup.plan));
}

static const struct echi_action *find(enum echi_action_type type, int kind) {
    for (int i = 0; i < acted.count; i++)
        if (action[i].type == type && (type == ECHI_ACTION_COMPUTE ? action[i].task.kind == kind : action[i].kind == kind))
            return &action[i];
    return NULL;
}
static bool faulted(void) {
    for (int i = 0; i < acted.count; i++)
        if (action[i].type == ECHI_ACTION_FAULT) return true;
    return false;
}
static struct echi_event *begin(struct echi_event *e) {
    acted = (struct echi_actions){action, 0, ACTIONS, false};
    return e;
}
static void step(struct echi_event *e) {
    echi_owner_step(&owner, begin(e), &acted);
    for (int i = 0; i < acted.count; i++) {
        if (action[i].type != ECHI_ACTION_COMPUTE) continue;
        assert_int_equal(out.kind, ECHI_TASKS);   /* one at a time */
        out = action[i].task;
    }
}
static void tell(int from, const struct echi_msg *m, struct echi_slot slot) {
    step(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m, .slot = slot});
}
static void sent(struct echi_slot slot) { step(&(struct echi_event){.type = ECHI_EVENT_SENT, .slot = slot}); }
/* Ends the task that is out; returns it. */
static struct echi_task computed(void) {
    const struct echi_task t = out;
    assert_int_not_equal(t.kind, ECHI_TASKS);
    out.kind = ECHI_TASKS;
    step(&(struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &t});
    return t;
}
static void start(int group) {
    const struct echi_msg params = {.kind = ECHI_KIND_PARAMS};
    setup.rank = group;
    out.kind = ECHI_TASKS;
    echi_owner_init(&owner, &setup, group);
    step(&(struct echi_event){.type = ECHI_EVENT_START});
    tell(0, &params, (struct echi_slot){0});
    if (setup.plan.n_groups > 1) assert_int_equal(computed().kind, ECHI_TASK_REFRESH);
}
static struct echi_lease lease(uint32_t id, int rank) {
    return (struct echi_lease){.id = id, .n = 1, .round_size = setup.plan.round, .worker = (uint16_t)rank,
                               .owner = setup.plan.owner_of[setup.plan.group_of[rank]]};
}

/* ---- weights ---- */

/* Answers that wait: each is written by a task of its own, one at a time, and named in the order of its link. The first and every
 * 32nd after it are complete; those to the owner's own node always. */
static void every_32nd_answer_is_complete(void **state) {
    (void)state;
    plan(2, 1);
    start(0);
    uint32_t number[2] = {0};
    for (uint32_t id = 1; number[1] < 70; id++) {
        while (out.kind == ECHI_TASK_ENCODE) {   /* at the start both are owed weights; later one */
            const struct echi_task t = computed();
            const struct echi_action *send = find(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS);
            const int to = t.state.index;
            assert_true(t.state.kind == ECHI_SLOT_OWNER_KNOWN && t.coded.kind == ECHI_SLOT_OWNER_CODED && send &&
                        send->slot.kind == ECHI_SLOT_OWNER_CODED);
            assert_true(send->to == to && send->slot.index == t.coded.index && send->msg.number == t.number && t.number == ++number[to]);
            const bool whole = to == 0 || t.number % 32 == 1;
            assert_int_equal(send->msg.flag, whole);
            assert_int_equal(t.ratio, whole ? ECHI_RATIO_ONE : 150000);
            const struct echi_slot slot = send->slot;
            sent(slot);
        }
        assert_true(owner.coded_out == 0 && owner.sends == 0);
        const struct echi_msg push = {.kind = ECHI_KIND_PUSH, .lease = lease(id, 1), .flag = 1};
        tell(1, &push, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, 1});
        assert_int_equal(computed().kind, ECHI_TASK_APPLY);
    }
}

/* Of a round all workers on other nodes get one message, written once; it has left when it has left for all. */
static void a_round_is_written_once(void **state) {
    (void)state;
    plan(4, 1);
    setup.plan.sync = ECHI_SYNC_BSP;
    setup.plan.round = 4;
    assert_true(echi_plan_valid(&setup.plan));
    start(0);
    for (uint32_t round = 1; round < 40; round++) {
        int messages = 0, tasks = 0;
        while (out.kind == ECHI_TASK_ENCODE) {
            const struct echi_task t = computed();
            const bool own = t.state.index == 0;
            struct echi_slot slot[4];
            int to = 0;
            tasks++;
            for (int i = 0; i < acted.count; i++) {
                if (action[i].type != ECHI_ACTION_SEND || action[i].kind != ECHI_KIND_WEIGHTS) continue;
                assert_true(action[i].slot.index == t.coded.index && action[i].msg.number == round && action[i].msg.number == t.number);
                assert_int_equal(action[i].msg.flag, own || round % 32 == 1);
                assert_true(own == (action[i].to == 0));
                slot[to++] = action[i].slot;
            }
            assert_int_equal(to, own ? 1 : 3);
            messages += to;
            for (int i = 0; i < to; i++) {
                assert_true(owner.coded_out >> t.coded.index & 1);
                sent(slot[i]);
            }
        }
        assert_true(tasks == 2 && messages == 4 && owner.coded_out == 0 && owner.sends == 0);
        for (int r = 0; r < 4; r++) {
            struct echi_lease l = lease(4 * round + (uint32_t)r, r);
            l.round = round - 1;
            const struct echi_msg push = {.kind = ECHI_KIND_PUSH, .lease = l};
            tell(r, &push, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, (uint16_t)r});
            assert_int_equal(computed().kind, ECHI_TASK_ADD);
        }
        assert_int_equal(computed().kind, ECHI_TASK_APPLY);
    }
}

/* ---- states ---- */

static void acknowledge(uint64_t version, bool whole) {
    const struct echi_msg ack = {.kind = ECHI_KIND_STATE_ACK, .group = 0, .version = version, .samples = version, .flag = whole};
    tell(1, &ack, (struct echi_slot){0});
}

/* Runs what is out to its end and sends what comes of it; a state is acknowledged. Counts states, and notes the last. */
static int states, whole_states;
static uint64_t whole_version;
static void settle(void) {
    while (out.kind != ECHI_TASKS) {
        computed();
        const struct echi_action *state = find(ECHI_ACTION_SEND, ECHI_KIND_STATE), *weights = find(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS);
        if (weights) {
            const struct echi_slot slot = weights->slot;
            sent(slot);
        }
        if (!state) continue;
        const struct echi_action a = *state;
        states++;
        assert_true(a.msg.number == (uint32_t)states && a.slot.kind == ECHI_SLOT_OWNER_STATE_CODED);
        whole_states += a.msg.flag;
        if (a.msg.flag) whole_version = a.msg.version;
        sent(a.slot);
        acknowledge(a.msg.version, a.msg.flag);
    }
}

/* One push an exchange: complete is the first, every 32nd, and what a drain sends, even if nothing is new. Only complete ones free the
 * ledger (`acked`). */
static void states_are_complete_in_time(void **state) {
    (void)state;
    plan(2, 2);
    start(0);
    settle();
    states = whole_states = 0;
    for (uint32_t id = 1; id <= 40; id++) {
        const struct echi_msg push = {.kind = ECHI_KIND_PUSH, .lease = lease(id, 0), .flag = 1};
        tell(0, &push, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, 0});
        settle();
        assert_int_equal(states, id);
        assert_int_equal(whole_states, id < 33 ? 1 : 2);
        assert_int_equal(owner.peer[1].acked, id);
        assert_int_equal(owner.peer[1].acked_whole, id < 33 ? 1 : 33);
    }
    const struct echi_msg drain = {.kind = ECHI_KIND_DRAIN};
    tell(0, &drain, (struct echi_slot){0});
    assert_false(owner.drained);
    settle();
    assert_true(states == 41 && whole_states == 3 && whole_version == 40 && owner.drained);
}

/* A group of many workers exchanges seldom: half of what the ledger may hold brings a complete state with the next exchange; and where
 * nobody acknowledges, the last push that is allowed brings none that is not. */
static void a_complete_state_comes_before_the_ledger_is_full(void **state) {
    (void)state;
    plan(40, 2);   /* 20 workers a group */
    start(0);
    settle();
    states = whole_states = 0;
    uint32_t id = 0;
    for (int round = 0; round < 20; round++)
        for (int r = 0; r < 40; r += 2) {
            const struct echi_msg push = {.kind = ECHI_KIND_PUSH, .lease = lease(++id, r), .flag = 1};
            tell(r, &push, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, (uint16_t)r});
            settle();
            assert_true(owner.state_version - owner.peer[1].acked_whole < ECHI_UNACKED_MAX / 2 + 20);
        }
    assert_true(states == 20 && whole_states == 3);
}

static void a_state_that_skips_one_is_refused(void **state) {
    (void)state;
    static const struct { uint32_t number; uint64_t version; bool whole, good; } table[] = {
        {1, 1, true, true},  {2, 2, false, true}, {4, 3, false, false}, {4, 3, true, true}, {5, 3, false, false},
        {5, 3, true, false}, {5, 4, false, true}, {6, 4, true, true},   /* the same version, complete now */
        {7, 5, false, true}, {7, 6, false, false},
    };
    plan(2, 2);
    start(1);
    settle();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct echi_owner before = owner;
        const struct echi_msg m = {.kind = ECHI_KIND_STATE, .group = 0, .version = table[i].version, .samples = table[i].version,
            .number = table[i].number, .flag = table[i].whole};
        tell(0, &m, (struct echi_slot){ECHI_SLOT_OWNER_PEER_CODED, 0});
        if (faulted() == table[i].good) fail_msg("row %zu", i);
        if (!table[i].good) {
            owner = before;
            out.kind = ECHI_TASKS;
            continue;
        }
        const struct echi_task t = computed();
        assert_true(t.kind == ECHI_TASK_DECODE && t.state.index == 0 && t.weights_out.kind == (table[i].whole ? ECHI_SLOT_OWNER_PEER : 0));
        const struct echi_action *ack = find(ECHI_ACTION_SEND, ECHI_KIND_STATE_ACK);
        assert_true(ack && ack->msg.version == table[i].version && ack->msg.flag == table[i].whole);
        assert_non_null(find(ECHI_ACTION_POST, ECHI_KIND_STATE));
    }
    assert_true(owner.peer[0].version == 5 && owner.peer[0].whole_version == 4);
}

static uint32_t mark_of(const struct echi_msg *m, int rank) {
    uint32_t mark[3];
    echi_marks_get(m->marks, mark, 3);
    return mark[rank];
}

/* What survives the owner of a group is its last complete state: that is told, and weights are made of it again. When it dies while a
 * complete one is being taken in, its word waits for it. */
static void a_loss_falls_back_to_what_is_complete(void **state) {
    (void)state;
    for (int midway = 0; midway < 2; midway++) {
        plan(3, 3);
        start(1);
        settle();
        for (uint32_t i = 1; i <= 3; i++) {
            struct echi_msg m = {.kind = ECHI_KIND_STATE, .group = 2, .version = i, .samples = i, .number = i,
                                 .flag = i == 1 || (midway && i == 3)};
            uint32_t mark[3] = {0, 0, i};
            uint8_t room[3 * ECHI_MARK_BYTES];
            m.marks = echi_marks_of(mark, 3, room);
            tell(2, &m, (struct echi_slot){ECHI_SLOT_OWNER_PEER_CODED, 2});
            if (i == 3 && midway) break;
            computed();
        }
        assert_int_equal(out.kind, midway ? ECHI_TASK_DECODE : ECHI_TASKS);
        const struct echi_msg word = {.kind = ECHI_KIND_LOST, .peer = 2, .members = 1};
        echi_plan_lose(&setup.plan, 2);
        step(&(struct echi_event){.type = ECHI_EVENT_LOST, .from = 2, .msg = &word});
        if (midway) {
            assert_null(find(ECHI_ACTION_SEND, ECHI_KIND_REVOKED));
            computed();
        }
        const struct echi_action *copy = find(ECHI_ACTION_SEND, ECHI_KIND_REVOKED);
        const uint64_t last = midway ? 3 : 1;
        assert_true(copy && copy->msg.group == 2 && copy->msg.version == last && mark_of(&copy->msg, 2) == last && copy->msg.members == 1);
        assert_null(find(ECHI_ACTION_SEND, ECHI_KIND_STATE_ACK));
        assert_true(owner.peer[2].there && owner.peer[2].current == 1 && owner.peer[2].samples == last && owner.stale);
        /* The holder hands on the complete copy, and not the running one. */
        const struct echi_msg hand = {.kind = ECHI_KIND_REVOKE, .group = 2, .peer = 1};
        tell(0, &hand, (struct echi_slot){0});
        const struct echi_action *frozen = find(ECHI_ACTION_SEND, ECHI_KIND_FROZEN);
        assert_true(frozen && frozen->slot.index == 2 * 2 + 1 && frozen->msg.version == last && mark_of(&frozen->msg, 2) == last);
    }
}

/* ---- the worker ---- */

static void tell_worker(const struct echi_msg *m, int from, uint8_t slot) {
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m,
        .slot = {ECHI_SLOT_WORKER_COMING, slot}}), &acted);
}
static void worker_computed(struct echi_task t) {
    const struct echi_result result = {0};
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &t, .result = &result}), &acted);
}

/* Weights in order, taken in before a step begins; a new owner's begin anew, and the residual with them. */
static void a_worker_follows_its_link(void **state) {
    (void)state;
    plan(3, 2);   /* rank 2 is of group 0, whose owner is rank 0 */
    setup.plan.lost[1] = 0;
    setup.rank = 2;
    echi_worker_init(&worker, &setup);
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_START}), &acted);
    const struct echi_action *post = find(ECHI_ACTION_POST, ECHI_KIND_WEIGHTS);
    assert_true(post && post->slot.kind == ECHI_SLOT_WORKER_COMING && post->to == 0);
    struct echi_msg weights = {.kind = ECHI_KIND_WEIGHTS, .number = 2};
    tell_worker(&weights, 0, 0);
    assert_true(faulted());   /* the first is to be complete, or number 1 */
    weights = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .number = 5, .flag = 1, .version = 9};
    tell_worker(&weights, 0, 0);
    const struct echi_action *decode = find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE);
    assert_true(decode && decode->task.state.index == 2 && decode->task.weights_out.index == 1);
    worker_computed(decode->task);
    assert_true(worker.flight[0].phase == ECHI_FLIGHT_IDLE && worker.flight[0].weights == 1 && worker.flight[0].version == 9);
    assert_non_null(find(ECHI_ACTION_POST, ECHI_KIND_WEIGHTS));
    weights = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .number = 7};
    const struct echi_worker before = worker;
    tell_worker(&weights, 0, 0);
    assert_true(faulted());
    worker = before;
    /* The first step sets the residual, the next adds to it; its ratio is that of the lease's epoch. */
    struct echi_msg m = {.kind = ECHI_KIND_LEASE, .lease = lease(1, 2)};
    m.lease.epoch = 3;
    tell_worker(&m, 0, 0);
    const struct echi_action *step = find(ECHI_ACTION_COMPUTE, ECHI_TASK_STEP);
    assert_true(step && step->task.first && step->task.state.kind == ECHI_SLOT_WORKER_RESIDUAL &&
                step->task.coded.kind == ECHI_SLOT_WORKER_CODED);
    assert_int_equal(step->task.ratio, echi_push_ratio(&setup.plan, 0, 3));
    const struct echi_task first = step->task;
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_GRADIENT, .task = &first, .layer = 0}), &acted);
    worker_computed(first);
    const struct echi_action *push = find(ECHI_ACTION_SEND, ECHI_KIND_PUSH);
    assert_true(push && push->slot.kind == ECHI_SLOT_WORKER_CODED);
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_SENT, .slot = push->slot}), &acted);
    assert_false(worker.fresh);
    /* Its owner dies while the answer is being taken in: that is dropped, and the other owner's first is taken. */
    weights = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .number = 6, .version = 10};
    tell_worker(&weights, 0, 0);
    decode = find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE);
    assert_non_null(decode);
    const struct echi_task stale = decode->task;
    echi_plan_lose(&setup.plan, 0);
    const struct echi_msg word = {.kind = ECHI_KIND_LOST, .peer = 0, .members = 1};
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_LOST, .from = 0, .msg = &word}), &acted);
    assert_true(worker.owner == 1 && worker.fresh && worker.residuals_cleared == 1);
    assert_null(find(ECHI_ACTION_POST, ECHI_KIND_WEIGHTS));   /* its only place is being read */
    worker_computed(stale);
    assert_int_equal(worker.flight[0].phase, ECHI_FLIGHT_WAITS_WEIGHTS);
    post = find(ECHI_ACTION_POST, ECHI_KIND_WEIGHTS);
    assert_true(post && post->to == 1);
    weights = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .number = 1, .flag = 1, .version = 20, .members = 1};
    tell_worker(&weights, 1, 0);
    decode = find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE);
    assert_non_null(decode);
    worker_computed(decode->task);
    assert_true(worker.flight[0].phase == ECHI_FLIGHT_IDLE && worker.flight[0].version == 20);
}

static const struct echi_action *post_to(int rank) {
    for (int i = 0; i < acted.count; i++)
        if (action[i].type == ECHI_ACTION_POST && action[i].kind == ECHI_KIND_WEIGHTS && action[i].to == rank) return &action[i];
    return NULL;
}

/* Moved to a living owner it ends its step where it was begun, and keeps its residual; what still comes from the owner before says
 * nothing, and the place for it stays that owner's. */
static void a_worker_is_moved(void **state) {
    (void)state;
    plan(3, 2);
    setup.plan.base[1] = 200000;
    setup.rank = 2;
    echi_worker_init(&worker, &setup);
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_START}), &acted);
    struct echi_msg weights = {.kind = ECHI_KIND_WEIGHTS, .number = 1, .flag = 1, .version = 9};
    tell_worker(&weights, 0, 0);
    worker_computed(find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE)->task);
    struct echi_msg held = {.kind = ECHI_KIND_LEASE, .lease = lease(1, 2)};
    held.lease.epoch = 3;
    tell_worker(&held, 0, 0);
    const struct echi_task first = find(ECHI_ACTION_COMPUTE, ECHI_TASK_STEP)->task;
    assert_int_equal(first.ratio, echi_push_ratio(&setup.plan, 0, 3));
    echi_plan_move(&setup.plan, 2, 1);
    const struct echi_msg word = {.kind = ECHI_KIND_REGROUP, .peer = 2, .group = 1, .members = 1};
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_MOVED, .from = 2, .msg = &word}), &acted);
    assert_true(worker.owner == 1 && !post_to(1));
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_GRADIENT, .task = &first, .layer = 0}), &acted);
    worker_computed(first);
    const struct echi_action *push = find(ECHI_ACTION_SEND, ECHI_KIND_PUSH), *post = post_to(1);
    assert_true(push && push->to == 0 && push->msg.members == 0 && post && post->slot.index == 1);
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_SENT, .slot = push->slot}), &acted);
    assert_true(!worker.fresh && worker.residuals_cleared == 0);
    /* The owner before answers all the same: its place is posted again, and its numbers do not count. */
    weights = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .number = 2, .version = 10};
    tell_worker(&weights, 0, 0);
    assert_true(post_to(0) && post_to(0)->slot.index == 0 && !find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE) && worker.number == 1);
    weights = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .number = 1, .flag = 1, .version = 30, .members = 1};
    tell_worker(&weights, 1, 1);
    worker_computed(find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE)->task);
    assert_true(worker.flight[0].version == 30 && post_to(1) && post_to(1)->slot.index == 1);
    struct echi_msg next = {.kind = ECHI_KIND_LEASE, .members = 1, .lease = lease(2, 2)};
    next.lease.epoch = 3;
    tell_worker(&next, 0, 0);
    const struct echi_action *step = find(ECHI_ACTION_COMPUTE, ECHI_TASK_STEP);
    assert_true(step && !step->task.first && step->task.ratio == echi_push_ratio(&setup.plan, 1, 3) && step->task.ratio != first.ratio);
    /* Moved again while weights are taken in: they are dropped, and so are those that wait. */
    const struct echi_task second = step->task;
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_GRADIENT, .task = &second, .layer = 0}), &acted);
    worker_computed(second);
    weights = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .number = 2, .version = 31, .members = 1};
    tell_worker(&weights, 1, 1);
    const struct echi_task stale = find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE)->task;
    echi_plan_move(&setup.plan, 2, 0);
    const struct echi_msg back = {.kind = ECHI_KIND_REGROUP, .peer = 2, .group = 0, .members = 2};
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_MOVED, .from = 2, .msg = &back}), &acted);
    assert_true(worker.arriving);
    worker_computed(stale);
    assert_true(!worker.arriving && worker.flight[0].phase == ECHI_FLIGHT_WAITS_WEIGHTS && worker.flight[0].version == 30);
    assert_true(post_to(1) && post_to(1)->slot.index == 1 && !post_to(0));   /* the first owner's place is still out */
    assert_int_equal(worker.spare, worker.flight[0].weights == 0 ? 2 : 1);
}

/* Moved while weights wait to be taken in: their places are the first owner's again. */
static void places_stay_with_their_owner(void **state) {
    (void)state;
    plan(3, 2);
    setup.plan.flights = 2;
    setup.rank = 2;
    echi_worker_init(&worker, &setup);
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_START}), &acted);
    struct echi_msg weights = {.kind = ECHI_KIND_WEIGHTS, .number = 1, .flag = 1, .version = 9};
    tell_worker(&weights, 0, 0);
    const struct echi_task taken_in = find(ECHI_ACTION_COMPUTE, ECHI_TASK_DECODE)->task;
    weights.number = 2;
    tell_worker(&weights, 0, 1);
    assert_int_equal(worker.queued, 1);
    echi_plan_move(&setup.plan, 2, 1);
    const struct echi_msg word = {.kind = ECHI_KIND_REGROUP, .peer = 2, .group = 1, .members = 1};
    echi_worker_step(&worker, begin(&(struct echi_event){.type = ECHI_EVENT_MOVED, .from = 2, .msg = &word}), &acted);
    assert_true(worker.queued == 0 && post_to(0) && post_to(0)->slot.index == 1 && !post_to(1));
    worker_computed(taken_in);
    assert_true(post_to(0) && post_to(0)->slot.index == 0 && post_to(1) && post_to(1)->slot.index == 2);
}

/* The owner's side: the first weights of each stay are complete, and those that were being written say of which stay they are. */
static void a_stay_begins_a_link(void **state) {
    (void)state;
    plan(4, 2);   /* rank 3 is of group 1, and comes to group 0 */
    start(0);
    for (int i = 0; i < 8 && out.kind != ECHI_TASKS; i++) {
        computed();
        while (find(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS)) sent(find(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS)->slot);
    }
    struct echi_msg word = {.kind = ECHI_KIND_REGROUP, .peer = 3};
    struct echi_msg enter = {.kind = ECHI_KIND_ENTER};
    for (uint32_t stay = 0; stay < 2; stay++) {
        word.members = 1 + 2 * stay;
        echi_plan_move(&setup.plan, 3, word.group = 0);
        step(&(struct echi_event){.type = ECHI_EVENT_MOVED, .from = 3, .msg = &word});
        assert_int_equal(out.kind, ECHI_TASKS);
        enter.lease = lease(10 + stay, 3);
        enter.members = word.members;
        tell(3, &enter, (struct echi_slot){0});
        assert_true(out.kind == ECHI_TASK_ENCODE && out.state.index == 3 && out.number == 1 && out.ratio == ECHI_RATIO_ONE);
        const uint32_t written_in = word.members;
        if (stay == 0) {
            word.members = 2;
            echi_plan_move(&setup.plan, 3, word.group = 1);
            step(&(struct echi_event){.type = ECHI_EVENT_MOVED, .from = 3, .msg = &word});
            word.members = 3;   /* and back, while they are written */
            echi_plan_move(&setup.plan, 3, word.group = 0);
            step(&(struct echi_event){.type = ECHI_EVENT_MOVED, .from = 3, .msg = &word});
        }
        computed();
        const struct echi_action *send = find(ECHI_ACTION_SEND, ECHI_KIND_WEIGHTS);
        assert_true(send && send->to == 3 && send->msg.flag && send->msg.members == written_in);
        const struct echi_slot slot = send->slot;
        sent(slot);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_32nd_answer_is_complete), cmocka_unit_test(a_round_is_written_once),
        cmocka_unit_test(states_are_complete_in_time),
        cmocka_unit_test(a_complete_state_comes_before_the_ledger_is_full),
        cmocka_unit_test(a_state_that_skips_one_is_refused),
        cmocka_unit_test(a_loss_falls_back_to_what_is_complete),
        cmocka_unit_test(a_worker_follows_its_link),
        cmocka_unit_test(a_worker_is_moved),
        cmocka_unit_test(places_stay_with_their_owner),
        cmocka_unit_test(a_stay_begins_a_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
