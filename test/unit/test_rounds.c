/* SPDX-License-Identifier: Apache-2.0
 * Rounds part by part (roles/owner_rounds.c): an owner of three parts and three workers, event by event. What whole runs come to:
 * test_sched_roles.c and the seeds. */
#include "echi_roles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { WORLD = 4, PARTS = 3, SHARE = 8, ROUND = 24 };   /* rank 0 owns, the others work */

static struct echi_owner owner;
static struct echi_setup setup;
static struct echi_action list[ECHI_ACTIONS_MAX];

static struct {
    uint32_t in[PARTS];                   /* samples added to each part of the sum, or applied with it */
    int applied[PARTS], firsts;           /* of the APPLY tasks, and how many began a round */
    int told[64];                         /* APPLIED, by lease */
    int sent[WORLD][PARTS];               /* WEIGHTS of version `version` */
    uint64_t version;
    int revoked;                          /* the last answer to a REVOKE */
    int order[64], part[64], sends;       /* to whom WEIGHTS went, and which part */
} seen;
static bool links_stand;                  /* what is sent does not leave */
/* 0: the owner's node has one, which keeps what it is lent until the next is there. */
static int first_worker = 1;

static void give(const struct echi_event *e);

static void note(const struct echi_action *a) {
    if (a->type != ECHI_ACTION_SEND) return;
    switch (a->kind) {
    case ECHI_KIND_APPLIED: seen.told[a->msg.lease.id]++; break;
    case ECHI_KIND_REVOKED: seen.revoked = a->msg.flag; break;
    case ECHI_KIND_WEIGHTS:
        if (a->msg.version == seen.version) seen.sent[a->to][a->msg.part]++;
        assert_true(seen.sends < 64);
        seen.part[seen.sends] = a->msg.part;
        seen.order[seen.sends++] = a->to;
        break;
    default: break;
    }
}

/* What the owner asks for is done at once: tasks, and, unless links stand, sends. */
static void give(const struct echi_event *e) {
    struct echi_actions out = {list, 0, ECHI_ACTIONS_MAX, false};
    static struct echi_action todo[256];
    static int n;
    static bool inside;
    echi_owner_step(&owner, e, &out);
    for (int i = 0; i < out.count; i++) {
        assert_true(list[i].type != ECHI_ACTION_FAULT && n < 256);
        note(&list[i]);
        const bool leaves = list[i].type == ECHI_ACTION_SEND && list[i].kind == ECHI_KIND_WEIGHTS && !links_stand && list[i].to > 0;
        if (list[i].type == ECHI_ACTION_COMPUTE || leaves) todo[n++] = list[i];
    }
    if (inside) return;
    inside = true;
    for (int i = 0; i < n; i++) {
        const struct echi_action a = todo[i];
        const struct echi_task t = a.task;
        const struct echi_result result = {.loss = {0}};
        if (a.type == ECHI_ACTION_SEND) {
            give(&(struct echi_event){.type = ECHI_EVENT_SENT, .from = a.to, .kind = a.kind, .slot = a.slot});
            continue;
        }
        assert_in_range(t.only, 1, PARTS);
        const bool begins = seen.in[t.only - 1] == 0;
        for (int r = 0; r < t.n_rows; r++) seen.in[t.only - 1] += owner.push[t.rows[r]].lease.n;
        if (t.kind == ECHI_TASK_ADD) {
            assert_true(t.first == begins && t.n_rows > 0);
        } else {
            assert_int_equal(t.summed, !begins);
            assert_true(t.kind == ECHI_TASK_APPLY && t.samples == ROUND && t.divisor == ROUND && t.lease.start == 0);
            assert_int_equal(seen.in[t.only - 1], ROUND);
            seen.applied[t.only - 1]++;
            seen.firsts += t.first;
        }
        give(&(struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &t, .result = &result});
    }
    n = 0;
    inside = false;
}

static void start(void) {
    struct echi_plan *p = &setup.plan;
    memset(&setup, 0, sizeof setup);
    echi_plan_clear(p);
    *p = (struct echi_plan){.sync = ECHI_SYNC_BSP, .world = WORLD, .n_groups = 1, .head = ECHI_NO_RANK, .flights = 1, .rounds_apart = 4,
                            .round = ROUND, .lr = 1, .parts = {.count = PARTS}};
    for (int i = 0; i < PARTS; i++)
        p->parts.part[i] = (struct echi_part){.at = (uint64_t)i, .count = 1, .first = (uint8_t)i, .last = (uint8_t)i};
    memset(p->owner_of, 0xff, sizeof p->owner_of);
    memset(p->group_of, ECHI_NONE, sizeof p->group_of);
    p->owner_of[0] = 0;
    for (int r = first_worker; r < WORLD; r++) p->group_of[r] = 0, p->n[r] = (uint32_t)(ROUND / (WORLD - first_worker));
    setup.n_layers = setup.cut = PARTS;
    assert_true(echi_plan_valid(p));
    echi_owner_init(&owner, &setup, 0);
    links_stand = false;
    give(&(struct echi_event){.type = ECHI_EVENT_START});
    give(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &(struct echi_msg){.kind = ECHI_KIND_PARAMS}});
    memset(&seen, 0, sizeof seen);
    seen.version = 1;
}

/* Of worker r the lease r; the first of them begins with sample 0. */
static struct echi_lease lease_of(int worker) {
    const uint32_t share = (uint32_t)(ROUND / (WORLD - first_worker));
    return (struct echi_lease){.id = (uint32_t)worker, .worker = (uint16_t)worker, .start = share * (uint32_t)(worker - first_worker),
                               .n = share, .round_size = ROUND};
}
static void push(struct echi_lease l, int part) {
    const struct echi_msg m = {.kind = ECHI_KIND_PUSH, .lease = l, .part = (uint16_t)part};
    give(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = l.worker, .msg = &m, .slot = {ECHI_SLOT_OWNER_GRADS, l.worker}});
}

static void no_part_waits_for_another(void **state) {
    (void)state;
    start();
    for (int part = PARTS - 1; part >= 0; part--)
        for (int r = 1; r < WORLD; r++) {
            for (int i = 0; i < PARTS; i++) assert_int_equal(seen.applied[i], i > part);
            for (int i = 0; i < PARTS; i++) assert_int_equal(seen.sent[1][i] + seen.sent[2][i] + seen.sent[3][i], i > part ? 3 : 0);
            assert_int_equal(seen.told[1] + seen.told[2] + seen.told[3], 0);
            assert_int_equal(owner.version, 0);
            push(lease_of(r), part);
        }
    assert_true(owner.version == 1 && owner.samples == ROUND && seen.firsts == 1);
    for (int r = 1; r < WORLD; r++) {
        assert_int_equal(seen.told[r], 1);
        for (int i = 0; i < PARTS; i++) assert_int_equal(seen.sent[r][i], 1);
    }
    assert_true(owner.sends == 0 && owner.queued == 0 && owner.round_count == 0);
}

static void one_has_left(void) {
    const struct echi_slot from = {ECHI_SLOT_OWNER_WEIGHTS, owner.answers.from};
    for (int r = 1; r < WORLD; r++) {
        if (owner.trickling[r] == 0) continue;
        return give(&(struct echi_event){.type = ECHI_EVENT_SENT, .from = (uint16_t)r, .kind = ECHI_KIND_WEIGHTS, .slot = from});
    }
}

/* One message is on its way and one ahead; of what is applied then the first part goes to all, one rank after the other, before the
 * next. No part of the next round is applied before the last has left. */
static void first_parts_go_first(void **state) {
    static const int order[] = {1, 2, 3, 1, 2, 3, 1, 2, 3}, part[] = {2, 2, 0, 0, 0, 1, 1, 1, 2};
    (void)state;
    start();
    links_stand = true;
    for (int part_in = PARTS - 1; part_in >= 0; part_in--)
        for (int r = 1; r < WORLD; r++) push(lease_of(r), part_in);
    assert_true(seen.sends == 2 && owner.version == 1);
    memset(seen.in, 0, sizeof seen.in);
    for (int r = 1; r < WORLD; r++) {
        struct echi_lease next = lease_of(r);
        next.id += 3;
        next.round = 1;
        push(next, 2);
    }
    assert_int_equal(seen.applied[2], 1);
    while (seen.sends < 9) one_has_left();
    for (int i = 0; i < 9; i++) assert_true(seen.order[i] == order[i] && seen.part[i] == part[i]);
    for (int r = 1; r < WORLD; r++)
        for (int i = 0; i < PARTS; i++) assert_int_equal(seen.sent[r][i], 1);
    assert_int_equal(seen.applied[2], 2);
}

/* Of all workers, the part of this round. */
static void push_all(uint32_t round, int part) {
    for (int r = first_worker; r < WORLD; r++) {
        struct echi_lease l = lease_of(r);
        l.id += 1 + WORLD * round;   /* 0 is none */
        l.round = round;
        push(l, part);
    }
}

/* The own worker gets each part when it is applied, whatever the others wait for, and whether or not it still has the weights before. */
static void the_own_worker_waits_for_nobody(void **state) {
    (void)state;
    first_worker = 0;
    start();
    const struct echi_slot before = {ECHI_SLOT_OWNER_WEIGHTS, owner.current};
    links_stand = true;
    for (int part = PARTS - 1; part >= 0; part--) {
        push_all(0, part);
        assert_int_equal(seen.sent[0][part], 1);
    }
    assert_int_equal(seen.sends, PARTS + 2);   /* one message on its way to the others, and one ahead */
    for (int i = 0; i < PARTS; i++) give(&(struct echi_event){.type = ECHI_EVENT_SENT, .kind = ECHI_KIND_WEIGHTS, .slot = before});
    while (seen.sends < PARTS * WORLD) one_has_left();
    one_has_left();
    one_has_left();
    memset(seen.in, 0, sizeof seen.in);
    seen.version = 2;
    memset(seen.sent, 0, sizeof seen.sent);
    push_all(1, 2);
    assert_int_equal(seen.sent[0][2], 1);
    first_worker = 1;
}

/* Worker 3 is lost when its last part is in. Its lease goes to the others, in halves, whose parts come in any order. */
static void what_a_lost_worker_pushed_counts_once(void **state) {
    (void)state;
    struct echi_lease half[2] = {lease_of(3), lease_of(3)};
    start();
    push(lease_of(3), 2);
    push(lease_of(1), 2);
    echi_plan_lose(&setup.plan, 3);
    give(&(struct echi_event){.type = ECHI_EVENT_LOST, .from = 3, .msg = &(struct echi_msg){.members = 1}});
    const struct echi_msg revoke = {.kind = ECHI_KIND_REVOKE, .lease = lease_of(3)};
    give(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = 0, .msg = &revoke});
    assert_int_equal(seen.revoked, ECHI_REVOKED_OUT);
    push(lease_of(2), 2);
    assert_int_equal(seen.applied[2], 1);
    assert_int_equal(seen.sent[1][2], 1);
    for (int r = 1; r < 3; r++)
        for (int part = 0; part < 2; part++) push(lease_of(r), part);
    for (int i = 0; i < 2; i++) {
        half[i].id = 4 + (uint32_t)i;
        half[i].worker = (uint16_t)(1 + i);
        half[i].again = 1;
        half[i].n = SHARE / 2;
        half[i].start += (uint32_t)i * SHARE / 2;
    }
    /* All parts are covered before the second half is whole: the round goes on until it is. */
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < 2; i++) push(half[i], part);
    assert_true(seen.applied[0] + seen.applied[1] == 0 && owner.version == 0);
    push(half[0], 2);
    assert_int_equal(owner.version, 0);
    push(half[1], 2);
    for (int i = 0; i < PARTS; i++) assert_true(seen.in[i] == ROUND && seen.applied[i] == 1);
    assert_true(owner.version == 1 && owner.samples == ROUND);
    assert_true(seen.told[1] == 1 && seen.told[2] == 1 && seen.told[3] == 0 && seen.told[4] == 1 && seen.told[5] == 1);
}

/* A worker that is lost while it is answered leaves its place to the others. */
static void an_answer_ends_with_its_worker(void **state) {
    (void)state;
    start();
    links_stand = true;
    for (int r = 1; r < WORLD; r++) push(lease_of(r), 2);
    const int first = seen.order[0];
    assert_true(owner.sends >= 1);
    echi_plan_lose(&setup.plan, first);
    give(&(struct echi_event){.type = ECHI_EVENT_LOST, .from = (uint16_t)first, .msg = &(struct echi_msg){.members = 1}});
    const int before = owner.sends;
    give(&(struct echi_event){.type = ECHI_EVENT_SENT, .from = (uint16_t)first, .kind = ECHI_KIND_WEIGHTS,
                              .slot = {ECHI_SLOT_OWNER_WEIGHTS, owner.answers.from}});
    assert_true(owner.sends <= before && owner.trickling[first] == 0);
    int others = 0;
    for (int r = 1; r < WORLD; r++) others += r != first && echi_ranks_next(&owner.answers.to, r) == r;
    assert_int_equal(owner.sends, others);
    assert_int_equal(others, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_part_waits_for_another),
        cmocka_unit_test(first_parts_go_first), cmocka_unit_test(the_own_worker_waits_for_nobody),
        cmocka_unit_test(what_a_lost_worker_pushed_counts_once),
        cmocka_unit_test(an_answer_ends_with_its_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
