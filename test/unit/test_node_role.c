/* SPDX-License-Identifier: Apache-2.0
 * The node role by itself: what it answers to rank 0 and to its driver, where whole clusters (sched_sim.h) never bring it. */
#include "echi_roles.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD = 4, ACTIONS = 64 };

static struct echi_setup setup;
static struct echi_node_role node;
static struct echi_worker worker;
static struct echi_action action[ACTIONS];
static struct echi_actions acted;
static uint8_t plan_bytes[ECHI_PLAN_BYTES_MAX];
static size_t plan_len;

static bool step(enum echi_role role, const struct echi_event *e) {
    acted = (struct echi_actions){action, 0, ACTIONS, false};
    const bool taken = echi_node_role_step(&node, role, e, &acted);
    assert_false(acted.overflow);
    return taken;
}
static void tell(enum echi_event_type type, int from, const char *text) {
    step(ECHI_ROLE_NODE, &(struct echi_event){.type = (uint8_t)type, .from = (uint16_t)from, .text = text});
}
static bool say(int from, const struct echi_msg *m) {
    return step((enum echi_role)m->to_role, &(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = m});
}
static void command(struct echi_msg m) {
    m.from_role = ECHI_ROLE_COORDINATOR;
    assert_true(say(0, &m));
}
/* The n-th thing that it asked for: of this type, and, if it is sent, of this kind. */
static const struct echi_msg *asked(int n, enum echi_action_type type, int kind) {
    assert_in_range(n, 0, acted.count - 1);
    assert_int_equal(action[n].type, type);
    if (type == ECHI_ACTION_SEND) assert_int_equal(action[n].kind, kind);
    return &action[n].msg;
}

/* Rank 1 of four, a worker whose owner is rank 0; rank 2 owns the other group. */
static void begin(bool session) {
    struct echi_plan plan;
    echi_plan_clear(&plan);
    plan.sync = ECHI_SYNC_GSSP;
    plan.world = WORLD;
    plan.n_groups = 2;
    plan.flights = 1;
    plan.round = 8;
    plan.staleness = plan.rounds_apart = 1;
    plan.lr = 0.1;
    plan.owner_of[0] = 0;
    plan.owner_of[1] = 2;
    for (int r = 0; r < WORLD; r++) plan.group_of[r] = (uint8_t)(r / 2), plan.n[r] = 2;
    plan_len = echi_plan_encode(&plan, plan_bytes, sizeof plan_bytes);
    assert_true(plan_len > 0);
    memset(&setup, 0, sizeof setup);
    memset(&node, 0xa5, sizeof node);
    echi_node_role_init(&node, &setup, 1, WORLD, session);
    tell(ECHI_EVENT_START, 0, NULL);
    asked(0, ECHI_ACTION_MEASURE, 0);
    tell(ECHI_EVENT_MEASURED, 0, NULL);
    asked(0, ECHI_ACTION_SEND, ECHI_KIND_MEASURED);
}

static void give_plan(void) {
    const struct echi_msg m = {.kind = ECHI_KIND_PLAN, .from_role = ECHI_ROLE_COORDINATOR};
    step(ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &m, .bytes = plan_bytes, .len = plan_len});
}

static void stand(void) {
    setup.rank = 1;
    setup.n_layers = setup.cut = 1;
    node.worker = &worker;
    tell(ECHI_EVENT_SLOTS, 0, NULL);
}

static void begin_trained(bool session) {
    begin(session);
    give_plan();
    asked(0, ECHI_ACTION_SLOTS, 0);
    stand();
    assert_true(node.planned);
    assert_int_equal(asked(acted.count - 1, ECHI_ACTION_SEND, ECHI_KIND_READY)->members, 0);
}

/* Rank 0 dies behind its END, and the final weights never come: the session is told, and does not wait for ever. */
static void rank_0_dies_before_the_final_weights(void **state) {
    (void)state;
    begin_trained(true);
    command((struct echi_msg){.kind = ECHI_KIND_END, .flag = 1, .peer = ECHI_NO_RANK});
    assert_int_equal(acted.count, 0);
    tell(ECHI_EVENT_LOST, 2, "silent");   /* what rank 2 does is of no account any more */
    assert_int_equal(acted.count, 0);
    tell(ECHI_EVENT_LOST, 0, "its link has ended");
    const struct echi_msg *why = asked(0, ECHI_ACTION_LEAVE, 0);
    assert_int_equal(why->kind, ECHI_KIND_LOST);
    assert_int_equal(why->layer, ECH_E_PEER_LOST);
    assert_string_equal(why->text, "its link has ended");
    assert_true(node.over);
}

static void the_end_waits_for_the_final_weights(void **state) {
    (void)state;
    for (int weights_first = 0; weights_first < 2; weights_first++) {
        begin_trained(true);
        if (!weights_first) command((struct echi_msg){.kind = ECHI_KIND_END, .flag = 1, .peer = ECHI_NO_RANK});
        if (!weights_first) assert_int_equal(acted.count, 0);
        command((struct echi_msg){.kind = ECHI_KIND_PARAMS, .flag = ECHI_PARAMS_FINAL});
        asked(0, ECHI_ACTION_FINAL, 0);
        if (weights_first) command((struct echi_msg){.kind = ECHI_KIND_END, .flag = 1, .peer = ECHI_NO_RANK});
        asked(acted.count - 2, ECHI_ACTION_SEND, ECHI_KIND_STATS);
        assert_int_equal(asked(acted.count - 1, ECHI_ACTION_LEAVE, 0)->layer, ECH_OK);
    }
    begin_trained(false);
    command((struct echi_msg){.kind = ECHI_KIND_END, .flag = 1, .layer = ECH_E_NOT_REACHED, .peer = ECHI_NO_RANK});
    asked(0, ECHI_ACTION_SEND, ECHI_KIND_STATS);
    assert_int_equal(asked(1, ECHI_ACTION_LEAVE, 0)->layer, ECH_OK);   /* that is rank 0's to say */
    begin_trained(true);
    command((struct echi_msg){.kind = ECHI_KIND_END, .layer = ECH_E_PEER_LOST, .peer = 3});
    assert_int_equal(asked(0, ECHI_ACTION_LEAVE, 0)->peer, 3);
}

/* A loss that is told while slots are made is told to the roles behind them, by one READY each, in order. */
static void losses_wait_for_slots(void **state) {
    (void)state;
    struct echi_plan next;
    begin(false);
    give_plan();
    command((struct echi_msg){.kind = ECHI_KIND_LOST, .peer = 3, .members = 1});
    assert_int_equal(action[0].to, 3);
    asked(0, ECHI_ACTION_DROP, 0);
    assert_int_equal(acted.count, 1);
    stand();
    assert_int_equal(asked(acted.count - 2, ECHI_ACTION_SEND, ECHI_KIND_READY)->members, 0);
    assert_int_equal(asked(acted.count - 1, ECHI_ACTION_SEND, ECHI_KIND_READY)->members, 1);
    assert_true(setup.plan.lost[3]);
    /* Its own move needs places for another owner's weights. */
    command((struct echi_msg){.kind = ECHI_KIND_REGROUP, .peer = 1, .group = 1, .members = 2});
    asked(0, ECHI_ACTION_SLOTS, 0);
    assert_int_equal(acted.count, 1);
    assert_int_equal(setup.plan.group_of[1], 0);
    echi_node_role_next(&node, &next);
    assert_int_equal(next.group_of[1], 1);
    tell(ECHI_EVENT_SLOTS, 0, NULL);
    assert_int_equal(setup.plan.group_of[1], 1);
    assert_int_equal(asked(acted.count - 1, ECHI_ACTION_SEND, ECHI_KIND_READY)->members, 2);
}

static void only_rank_0_commands(void **state) {
    (void)state;
    begin_trained(false);
    say(2, &(struct echi_msg){.kind = ECHI_KIND_END, .from_role = ECHI_ROLE_COORDINATOR});
    say(2, &(struct echi_msg){.kind = ECHI_KIND_LOST, .peer = 3, .members = 1});
    assert_int_equal(acted.count, 0);
    command((struct echi_msg){.kind = ECHI_KIND_LOST, .peer = 3, .members = 1});
    assert_false(say(3, &(struct echi_msg){.kind = ECHI_KIND_WEIGHTS, .to_role = ECHI_ROLE_WORKER}));   /* it is gone */
    tell(ECHI_EVENT_BROKE, 3, "nobody believes it any more");
    assert_int_equal(acted.count, 0);
    give_plan();   /* a second one */
    assert_int_equal(asked(0, ECHI_ACTION_SEND, ECHI_KIND_FAULT)->layer, ECH_E_FORMAT);
    command((struct echi_msg){.kind = ECHI_KIND_LOST, .peer = 0, .members = 2});
    assert_int_equal(asked(0, ECHI_ACTION_SEND, ECHI_KIND_FAULT)->peer, 0);
    command((struct echi_msg){.kind = ECHI_KIND_REGROUP, .peer = 1, .group = 5, .members = 2});
    assert_int_equal(asked(0, ECHI_ACTION_SEND, ECHI_KIND_FAULT)->peer, 0);
    command((struct echi_msg){.kind = ECHI_KIND_HEARTBEAT, .number = 7});
    assert_int_equal(asked(0, ECHI_ACTION_SEND, ECHI_KIND_HEARTBEAT)->number, 7);
}

/* What a driver finds out about another node is a complaint; about rank 0 it is the end. */
static void what_its_driver_reports(void **state) {
    (void)state;
    begin_trained(false);
    command((struct echi_msg){.kind = ECHI_KIND_HOLD});
    asked(0, ECHI_ACTION_HOLD, 0);
    assert_int_equal(acted.count, 1);   /* HELD when no task runs */
    tell(ECHI_EVENT_HELD, 0, NULL);
    asked(0, ECHI_ACTION_SEND, ECHI_KIND_HELD);
    tell(ECHI_EVENT_HELD, 0, NULL);
    assert_int_equal(acted.count, 0);
    tell(ECHI_EVENT_LOST, 2, "silent");
    const struct echi_msg *m = asked(0, ECHI_ACTION_SEND, ECHI_KIND_FAULT);
    assert_true(m->layer == ECH_E_PEER_LOST && m->peer == 2);
    step(ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_LOST, .from = 2, .flag = true});   /* it left: it has a reason */
    assert_int_equal(acted.count, 0);
    tell(ECHI_EVENT_BROKE, 2, "nonsense");
    asked(0, ECHI_ACTION_DROP, 0);
    assert_int_equal(asked(1, ECHI_ACTION_SEND, ECHI_KIND_FAULT)->peer, 2);
    tell(ECHI_EVENT_BROKE, 0, "nonsense");
    assert_int_equal(asked(0, ECHI_ACTION_SEND, ECHI_KIND_FAULT)->layer, ECH_E_FORMAT);
    step(ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_FAILED, .status = ECH_E_TIMEOUT, .text = "it stands still"});
    m = asked(0, ECHI_ACTION_SEND, ECHI_KIND_FAULT);
    assert_true(m->layer == ECH_E_TIMEOUT && m->peer == 1);
    step(ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_STOP, .flag = true});
    assert_int_equal(asked(0, ECHI_ACTION_SEND, ECHI_KIND_STOP)->flag, 1);
    tell(ECHI_EVENT_LOST, 0, "");
    asked(0, ECHI_ACTION_LEAVE, 0);
    assert_false(say(0, &(struct echi_msg){.kind = ECHI_KIND_HOLD, .from_role = ECHI_ROLE_COORDINATOR}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_dies_before_the_final_weights), cmocka_unit_test(the_end_waits_for_the_final_weights),
        cmocka_unit_test(losses_wait_for_slots), cmocka_unit_test(only_rank_0_commands), cmocka_unit_test(what_its_driver_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
