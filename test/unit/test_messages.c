/* SPDX-License-Identifier: Apache-2.0
 * The byte form of messages, plans and step times: round trips, and the bytes themselves. Bytes
 * from a stranger are in test/fuzz. */
#include "echi_event.h"
#include "echi_times.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct echi_lease lease = {
    .id = 0x01020304, .epoch = 5, .start = 0x00010000, .n = 32, .round = 7, .round_size = 64, .worker = 0x0203, .owner = 0x0103, .again = 1,
    .part = 2, .together = 48};

/* Ranks 0, 2 and the last there can be. */
static const uint8_t three_marks[] = {0, 0, 7, 0, 0, 0, 2, 0, 9, 0, 0, 0, 0xff, 3, 11, 0, 0, 0x80};

/* Every field set, each to something of its own; a kind drops those that it does not carry. */
static struct echi_msg full_message(int kind) {
    struct echi_msg m = {.kind = (uint8_t)kind,
                         .to_role = ECHI_ROLE_OWNER,
                         .from_role = ECHI_ROLE_WORKER,
                         .group = 2,
                         .peer = 0x0209,
                         .flag = 1,
                         .layer = 0x0a0b,
                         .part = 0x1a1b,
                         .correct = 31,
                         .lease = lease,
                         .version = UINT64_C(0x1122334455667788),
                         .samples = 77,
                         .head = 78,
                         .loss = 1.5,
                         .staleness = 0.25,
                         .acked = UINT64_C(0x0102030405060708),
                         .members = 0x0c0d0e0f,
                          .compute = 0x0102030405,
                          .exchange = 0x0607,
                          .marks = {three_marks, 3},
                          .number = 0x21222324,
                          .rate = 1.25e8};
    strcpy(m.text, "because");
    return m;
}

static void every_kind_comes_back(void **state) {
    (void)state;
    static uint8_t all_marks[ECHI_MARKS_MAX];
    static uint32_t mark[ECHI_WORLD_MAX];
    for (uint32_t r = 0; r < ECHI_WORLD_MAX; r++) mark[r] = r + 1;
    assert_int_equal(echi_marks_of(mark, ECHI_WORLD_MAX, all_marks).count, ECHI_WORLD_MAX);
    for (int kind = 0; kind < ECHI_KINDS; kind++) {
        const struct echi_msg m = full_message(kind);
        struct echi_msg back, again;
        uint8_t bytes[ECHI_MSG_MAX], twice[ECHI_MSG_MAX];
        const size_t len = echi_msg_encode(&m, bytes, sizeof bytes);
        assert_in_range(len, 2, ECHI_MSG_MAX);
        /* The cap is what the longest message needs, and not a byte more; a body comes on top. */
        struct echi_msg longest = m;
        longest.lease.shards = UINT64_MAX;
        longest.lease.base = longest.lease.head_rows = 1;
        memset(longest.text, 'x', sizeof longest.text - 1);
        longest.text[sizeof longest.text - 1] = 0;
        longest.marks = (struct echi_marks){all_marks, ECHI_WORLD_MAX};
        const size_t most = echi_msg_encode(&longest, twice, sizeof twice);
        const size_t bodies = kind == ECHI_KIND_MEASURED ? ECHI_TIMES_BYTES_MAX : kind == ECHI_KIND_PLAN ? ECHI_PLAN_BYTES_MAX
                              : kind == ECHI_KIND_STATS  ? ECHI_STATS_BYTES : kind == ECHI_KIND_PROBE ? ECHI_PROBE_BODY : 0;
        assert_in_range(most, 2, ECHI_MSG_MAX);
        assert_int_equal(echi_kind_meta_cap(kind, ECHI_WORLD_MAX), most + bodies);
        longest.marks.count = 64;
        const size_t of_64 = echi_msg_encode(&longest, twice, sizeof twice);
        assert_int_equal(echi_kind_meta_cap(kind, 64), of_64 + (kind == ECHI_KIND_PLAN ? ECHI_PLAN_BYTES(64) : bodies));
        assert_true(echi_msg_decode(kind, bytes, len, &back));
        assert_int_equal(back.kind, kind);
        assert_int_equal(back.to_role, m.to_role);
        assert_int_equal(back.from_role, m.from_role);
        /* What comes back is what was said, or nothing. */
        assert_true(back.group == m.group || back.group == 0);
        assert_true(back.layer == m.layer || back.layer == 0);
        assert_true(back.loss == m.loss || back.loss == 0);
        assert_true(back.version == m.version || back.version == 0);
        assert_true(back.samples == m.samples || back.samples == 0);
        assert_true(back.head == m.head || back.head == 0);
        assert_true(back.lease.id == 0 || memcmp(&back.lease, &m.lease, sizeof lease) == 0);
        assert_true(back.acked == m.acked || back.acked == 0);
        assert_true(back.members == m.members || back.members == 0);
        assert_true(back.peer == m.peer || back.peer == 0);
        assert_true((back.compute == m.compute && back.exchange == m.exchange) || (back.compute == 0 && back.exchange == 0));
        assert_true(back.marks.count == 0 || (back.marks.count == 3 && memcmp(back.marks.at, three_marks, sizeof three_marks) == 0));
        assert_true(back.number == m.number || back.number == 0);
        assert_true(back.rate == m.rate || back.rate == 0);
        assert_true(back.text[0] == 0 || strcmp(back.text, m.text) == 0);
        assert_int_equal(echi_msg_encode(&back, twice, sizeof twice), len);
        assert_memory_equal(bytes, twice, len);
        for (size_t cut = 0; cut < len; cut++) {
            assert_false(echi_msg_decode(kind, bytes, cut, &again));
            assert_int_equal(echi_msg_encode(&m, twice, cut), 0);
        }
        /* One byte more is not a message, but where a body follows. */
        bytes[len] = 0;
        const bool body = kind == ECHI_KIND_MEASURED || kind == ECHI_KIND_PLAN || kind == ECHI_KIND_STATS || kind == ECHI_KIND_PROBE;
        assert_int_equal(echi_kind_has_body(kind), body);
        assert_int_equal(echi_msg_decode(kind, bytes, len + 1, &again), body);
        assert_non_null(echi_kind_name(kind));
    }
    struct echi_msg m;
    uint8_t bytes[2] = {0};
    assert_int_equal(echi_kind_meta_cap(ECHI_KINDS, 2), 0);
    assert_int_equal(echi_kind_meta_cap(-1, 2), 0);
    assert_false(echi_msg_decode(ECHI_KINDS, bytes, 2, &m));
    assert_false(echi_msg_decode(-1, bytes, 2, &m));
    m.kind = ECHI_KINDS;
    assert_int_equal(echi_msg_encode(&m, bytes, 2), 0);
    assert_null(echi_kind_name(ECHI_KINDS));
    assert_false(echi_kind_has_payload(-1));
}

/* The fields that a role reads of each kind arrive. */
static void fields_arrive(void **state) {
    (void)state;
    static const struct {
        int kind;
        bool has_lease, layer, part, flag, loss, version, samples, head, stale, group, text, acked, members, marks, times, number, rate;
    } table[] = {
        {.kind = ECHI_KIND_HEARTBEAT, .number = true},
        {.kind = ECHI_KIND_LEASE, .has_lease = true, .members = true},
        {.kind = ECHI_KIND_APPLIED, .has_lease = true, .flag = true, .loss = true, .version = true, .head = true, .stale = true,
         .acked = true, .times = true},
        {.kind = ECHI_KIND_READY, .flag = true, .members = true},
        {.kind = ECHI_KIND_STARTED, .members = true},
        {.kind = ECHI_KIND_DRAIN, .members = true},
        {.kind = ECHI_KIND_DRAINED, .members = true},
        {.kind = ECHI_KIND_LOST, .group = true, .text = true, .members = true},
        {.kind = ECHI_KIND_REVOKE, .has_lease = true, .group = true},
        {.kind = ECHI_KIND_REVOKED, .has_lease = true, .flag = true, .group = true, .version = true, .members = true, .marks = true},
        {.kind = ECHI_KIND_FROZEN, .group = true, .version = true, .samples = true, .marks = true},
        {.kind = ECHI_KIND_ASK, .part = true, .flag = true, .samples = true, .members = true},
        {.kind = ECHI_KIND_STATE_ACK, .flag = true, .group = true, .version = true, .samples = true},
        {.kind = ECHI_KIND_FAULT, .layer = true, .group = true, .text = true},
        {.kind = ECHI_KIND_END, .layer = true, .flag = true, .group = true, .text = true},
        {.kind = ECHI_KIND_ACT_GRAD, .has_lease = true, .loss = true, .version = true, .head = true},
        {.kind = ECHI_KIND_ACT, .has_lease = true, .flag = true},
        {.kind = ECHI_KIND_WEIGHTS, .part = true, .flag = true, .version = true, .samples = true, .members = true, .number = true},
        {.kind = ECHI_KIND_PUSH, .has_lease = true, .part = true, .flag = true, .loss = true, .version = true, .samples = true,
         .head = true, .members = true, .times = true},
        {.kind = ECHI_KIND_STATE, .flag = true, .group = true, .version = true, .samples = true, .members = true, .marks = true,
         .number = true},
        {.kind = ECHI_KIND_PARAMS, .part = true, .flag = true, .samples = true},
        {.kind = ECHI_KIND_STOP, .flag = true},
        {.kind = ECHI_KIND_ENTER, .has_lease = true, .members = true},
        {.kind = ECHI_KIND_REGROUP, .group = true, .members = true},
        {.kind = ECHI_KIND_NORM, .has_lease = true, .layer = true, .flag = true},
        {.kind = ECHI_KIND_NORM_ALL, .has_lease = true, .layer = true, .flag = true, .samples = true},
        {.kind = ECHI_KIND_STANDS, .has_lease = true, .flag = true, .version = true, .members = true},
        {.kind = ECHI_KIND_TAKEOVER, .version = true, .members = true, .marks = true},
        {.kind = ECHI_KIND_RESUME, .part = true, .flag = true, .version = true, .members = true},
        {.kind = ECHI_KIND_RING_SUM, .has_lease = true, .part = true, .samples = true, .members = true},
        {.kind = ECHI_KIND_RING_WEIGHTS, .part = true, .version = true, .samples = true, .members = true},
        {.kind = ECHI_KIND_RING_LEASE, .has_lease = true, .flag = true, .loss = true, .version = true, .samples = true, .head = true,
         .members = true, .times = true},
        {.kind = ECHI_KIND_RATE, .flag = true, .group = true, .rate = true},
        {.kind = ECHI_KIND_SHADOWED, .has_lease = true},
        {.kind = ECHI_KIND_HEAD_SUM, .has_lease = true, .version = true, .samples = true},
        {.kind = ECHI_KIND_HEADS, .part = true, .flag = true, .group = true, .members = true},
        {.kind = ECHI_KIND_HEAD_COPY, .flag = true, .version = true, .samples = true},
        {.kind = ECHI_KIND_PACE, .version = true, .samples = true, .times = true},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct echi_msg m = full_message(table[i].kind);
        struct echi_msg back;
        uint8_t bytes[ECHI_MSG_MAX];
        assert_true(echi_msg_decode(table[i].kind, bytes, echi_msg_encode(&m, bytes, sizeof bytes), &back));
        assert_int_equal(back.lease.id != 0, table[i].has_lease);
        assert_int_equal(back.layer != 0, table[i].layer);
        assert_int_equal(back.part != 0, table[i].part);
        assert_int_equal(back.flag != 0, table[i].flag);
        assert_int_equal(back.loss != 0 && back.correct == 31, table[i].loss);
        assert_int_equal(back.version != 0, table[i].version);
        assert_int_equal(back.head != 0, table[i].head);
        assert_int_equal(back.samples != 0, table[i].samples);
        assert_int_equal(back.staleness != 0, table[i].stale);
        assert_int_equal(back.group != 0 && back.peer != 0, table[i].group);
        assert_int_equal(back.text[0] != 0, table[i].text);
        assert_int_equal(back.acked != 0, table[i].acked);
        assert_int_equal(back.members != 0, table[i].members);
        assert_int_equal(back.marks.count, table[i].marks ? 3 : 0);
        assert_true(back.compute == (table[i].times ? m.compute : 0) && back.exchange == (table[i].times ? m.exchange : 0));
        assert_true(m.compute > 0 && m.exchange > 0);
        assert_int_equal(back.number != 0, table[i].number);
        assert_int_equal(back.rate != 0, table[i].rate);
    }
}

/* Nodes of one version must agree on these for ever; a change here is a change of the protocol. */
static void the_bytes_themselves(void **state) {
    (void)state;
    static const uint8_t lease_bytes[] = {2, 1, 4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 1, 0, 32, 0, 0, 0, 7, 0, 0, 0, 64, 0, 0, 0, 3, 2, 3, 1, 1,
                                          2, 48, 0, 0, 0,             /* part, together */
                                          0x0f, 0x0e, 0x0d, 0x0c};   /* membership epoch */
    static const uint8_t push_bytes[] = {
        3, 2,                                           /* to the owner, from a worker */
        4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 1, 0, 32, 0, 0, 0, 7, 0, 0, 0, 64, 0, 0, 0, 3, 2, 3, 1, 1, 2, 48, 0, 0, 0,
        0x1b, 0x1a, 1,                                  /* part, holds another lease */
        0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 31, 0, 0, 0,      /* loss 1.5, correct */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* version */
        77, 0, 0, 0, 0, 0, 0, 0,                        /* samples */
        78, 0, 0, 0, 0, 0, 0, 0,                        /* samples in the head's weights */
        0x0f, 0x0e, 0x0d, 0x0c,                         /* membership epoch */
        5, 4, 3, 2, 1, 0, 0, 0, 7, 6, 0, 0, 0, 0, 0, 0, /* ns of computing, and of the rest */
    };
    uint8_t bytes[ECHI_MSG_MAX];
    struct echi_msg m = full_message(ECHI_KIND_PUSH);
    assert_int_equal(echi_msg_encode(&m, bytes, sizeof bytes), sizeof push_bytes);
    assert_memory_equal(bytes, push_bytes, sizeof push_bytes);
    m = full_message(ECHI_KIND_LEASE);
    m.to_role = ECHI_ROLE_WORKER;
    m.from_role = ECHI_ROLE_COORDINATOR;
    assert_int_equal(echi_msg_encode(&m, bytes, sizeof bytes), sizeof lease_bytes);
    assert_memory_equal(bytes, lease_bytes, sizeof lease_bytes);
    /* A base of its own follows, and there is one way of saying that there is none. */
    m.lease.base = 0x41424344;
    assert_int_equal(echi_msg_encode(&m, bytes, sizeof bytes), sizeof lease_bytes + 4);
    assert_true(bytes[30] == (lease_bytes[30] | 4) && bytes[36] == 0x44 && bytes[39] == 0x41);
    struct echi_msg back;
    assert_true(echi_msg_decode(ECHI_KIND_LEASE, bytes, sizeof lease_bytes + 4, &back) && back.lease.base == 0x41424344);
    memset(bytes + 36, 0, 4);
    assert_false(echi_msg_decode(ECHI_KIND_LEASE, bytes, sizeof lease_bytes + 4, &back));
    /* So does its head, of several. */
    m.lease.base = 0;
    m.lease.head = 3;
    m.lease.head_rows = 0x51525354;
    assert_int_equal(echi_msg_encode(&m, bytes, sizeof bytes), sizeof lease_bytes + 5);
    assert_true(bytes[30] == (lease_bytes[30] | 8) && bytes[36] == 3 && bytes[37] == 0x54 && bytes[40] == 0x51);
    assert_true(echi_msg_decode(ECHI_KIND_LEASE, bytes, sizeof lease_bytes + 5, &back) && back.lease.head == 3 &&
                back.lease.head_rows == 0x51525354);
    memset(bytes + 37, 0, 4);
    assert_false(echi_msg_decode(ECHI_KIND_LEASE, bytes, sizeof lease_bytes + 5, &back));
    /* Kinds are numbered by their place in the list. */
    assert_int_equal(ECHI_KIND_HEARTBEAT, 0);
    assert_int_equal(ECHI_KIND_LEASE, 5);
    assert_int_equal(ECHI_KIND_PUSH, 20);
    assert_int_equal(ECHI_KIND_PARAMS, 22);
    assert_int_equal(ECHI_KIND_ENTER, 23);
    assert_int_equal(ECHI_KIND_STOP, 24);
    assert_int_equal(ECHI_KIND_FROZEN, 28);
    assert_int_equal(ECHI_KIND_REGROUP, 29);
    assert_int_equal(ECHI_KIND_NORM_ALL, 31);
}

/* ---- plans and times ---- */

static struct echi_plan good_plan(void) {
    struct echi_plan p = {.sync = ECHI_SYNC_GSSP,
                          .world = 4,
                          .n_groups = 2,
                          .cut = 2,
                          .head = 2,
                          .n = {8, 0, 8, 300},
                          .round = 64,
                          .staleness = 3,
                          .rounds_apart = 4,
                          .flights = 2,
                          .lr = 0.02,
                          .momentum = 0.9,
                          .decay = 1e-4,
                          .codec = ECHI_CODEC_TOPK,
                          .ratios = ECHI_RATIOS_VOLUME,
                          .state_ratio = 150000,
                          .base = {250000, 1000000},
                          .damping = 0.5,
                          .optimizer = ECHI_OPTIMIZER_NESTEROV,
                          .schedule = {.kind = ECHI_SCHEDULE_STEP, .steps = 2, .factor = 0.1, .step = {1.5, 3}, .warmup = 0.25}};
    memset(p.owner_of, 0xff, sizeof p.owner_of);
    memset(p.group_of, ECHI_NONE, sizeof p.group_of);
    p.owner_of[0] = 2;
    p.owner_of[1] = 1;
    p.group_of[0] = p.group_of[2] = 0;
    p.group_of[3] = 1;
    return p;
}

static void plans_come_back(void **state) {
    (void)state;
    const struct echi_plan p = good_plan();
    struct echi_plan back;
    uint8_t bytes[ECHI_PLAN_BYTES_MAX], twice[ECHI_PLAN_BYTES_MAX];
    const size_t len = echi_plan_encode(&p, bytes, sizeof bytes);
    assert_true(len > 0 && echi_plan_decode(bytes, len, &back));
    assert_memory_equal(back.owner_of, p.owner_of, sizeof p.owner_of);
    assert_memory_equal(back.group_of, p.group_of, sizeof p.group_of);
    assert_memory_equal(back.n, p.n, sizeof p.n);
    assert_true(back.lr == p.lr && back.momentum == p.momentum && back.decay == p.decay && back.damping == p.damping &&
                back.round == p.round);
    assert_true(back.codec == p.codec && back.ratios == p.ratios && back.state_ratio == p.state_ratio);
    assert_memory_equal(back.base, p.base, sizeof p.base);
    assert_true(back.optimizer == p.optimizer && back.schedule.kind == p.schedule.kind && back.schedule.steps == 2);
    assert_true(back.schedule.factor == 0.1 && back.schedule.step[0] == 1.5 && back.schedule.step[1] == 3 && back.schedule.warmup == 0.25);
    assert_int_equal(echi_plan_encode(&back, twice, sizeof twice), len);
    assert_memory_equal(bytes, twice, len);
    for (size_t cut = 0; cut < len; cut++) {
        assert_false(echi_plan_decode(bytes, cut, &back));
        assert_int_equal(echi_plan_encode(&p, twice, cut), 0);
    }
    struct echi_plan adam = p;
    adam.optimizer = ECHI_OPTIMIZER_ADAMW;
    adam.momentum = 0;
    adam.adam = (struct echi_adam){0.5, 0.25, 1e-6};
    const size_t of_adam = echi_plan_encode(&adam, twice, sizeof twice);
    assert_int_equal(of_adam, len + 24);
    assert_true(echi_plan_decode(twice, of_adam, &back) && back.optimizer == ECHI_OPTIMIZER_ADAMW);
    assert_true(back.adam.beta1 == 0.5 && back.adam.beta2 == 0.25 && back.adam.epsilon == 1e-6 && back.schedule.warmup == 0.25);
    for (size_t cut = 0; cut < of_adam; cut++) assert_false(echi_plan_decode(twice, cut, &back));
    assert_false(echi_plan_decode(bytes, len + 1, &back));
    /* The largest plan has room. */
    struct echi_plan large = {
        .sync = ECHI_SYNC_GSSP, .world = ECHI_WORLD_MAX, .n_groups = ECHI_GROUPS_MAX, .head = ECHI_NO_RANK, .round = 1, .flights = 1};
    for (int r = 0; r < ECHI_WORLD_MAX; r++) {
        large.group_of[r] = (uint8_t)(r % ECHI_GROUPS_MAX);
        large.n[r] = 1u << 20;
    }
    for (int g = 0; g < ECHI_GROUPS_MAX; g++) large.owner_of[g] = (uint16_t)(ECHI_WORLD_MAX - 1 - g);
    large.cut = 2;
    large.head = ECHI_WORLD_MAX - 9;
    assert_true(echi_plan_valid(&large));
    const size_t most = echi_plan_encode(&large, bytes, sizeof bytes);
    assert_in_range(most, 1, ECHI_PLAN_BYTES(ECHI_WORLD_MAX));
    assert_true(echi_plan_decode(bytes, most, &back) && back.world == ECHI_WORLD_MAX && back.head == ECHI_WORLD_MAX - 9);
    assert_memory_equal(back.owner_of, large.owner_of, sizeof large.owner_of);
    assert_memory_equal(back.group_of, large.group_of, sizeof large.group_of);
    assert_memory_equal(back.n, large.n, sizeof large.n);
    for (size_t cut = 0; cut < most; cut += 7) assert_false(echi_plan_decode(bytes, cut, &back));
    /* So have those with a divisor for each worker, and with steps in a round. */
    large.sync = ECHI_SYNC_ASP;
    large.cut = 0;
    large.head = ECHI_NO_RANK;
    memset(large.owner_of + 1, 0xff, sizeof large.owner_of - sizeof large.owner_of[0]);
    large.n_groups = 1;
    large.drop_older = 1.5;
    for (int r = 0; r < ECHI_WORLD_MAX; r++) {
        large.group_of[r] = 0;
        large.divisor[r] = 1u << 24;
    }
    const size_t of_asp = echi_plan_encode(&large, bytes, sizeof bytes);
    assert_true(of_asp > 0 && echi_plan_decode(bytes, of_asp, &back) && back.drop_older == 1.5);
    assert_memory_equal(back.divisor, large.divisor, sizeof large.divisor);
    for (size_t cut = 0; cut < of_asp; cut += 7) assert_false(echi_plan_decode(bytes, cut, &back));
    large.drop_older = 0;
    memset(large.divisor, 0, sizeof large.divisor);
    large.sync = ECHI_SYNC_LOCAL;
    large.outer_lr = 0.7;
    large.outer_momentum = 0.9;
    for (int r = 0; r < ECHI_WORLD_MAX; r++) {
        large.group_of[r] = 0;
        large.n[r] = 1;
        large.inner[r] = (uint32_t)(1 + r * 100 % ECHI_INNER_MAX);
    }
    const size_t of_local = echi_plan_encode(&large, bytes, sizeof bytes);
    assert_true(of_local > 0 && echi_plan_decode(bytes, of_local, &back));
    assert_memory_equal(back.inner, large.inner, sizeof large.inner);
    assert_true(back.outer_lr == 0.7 && back.outer_momentum == 0.9);
    for (size_t cut = 0; cut < of_local; cut += 7) assert_false(echi_plan_decode(bytes, cut, &back));
}

/* Of a world's marks those that are there travel; what is received is what was there, and nothing that is none is taken. */
static void marks_come_back(void **state) {
    (void)state;
    static uint8_t room[ECHI_MARKS_MAX], bytes[ECHI_MSG_MAX];
    static uint32_t mark[ECHI_WORLD_MAX], back[ECHI_WORLD_MAX];
    for (int every = 1; every <= 1024; every *= 4) {
        struct echi_msg m = {.kind = ECHI_KIND_STATE}, got;
        memset(mark, 0, sizeof mark);
        for (int r = every - 1; r < ECHI_WORLD_MAX; r += every) mark[r] = 0x01000000u * (uint32_t)every + (uint32_t)r + 1;
        m.marks = echi_marks_of(mark, ECHI_WORLD_MAX, room);
        assert_int_equal(m.marks.count, ECHI_WORLD_MAX / every);
        const size_t len = echi_msg_encode(&m, bytes, sizeof bytes);
        assert_int_equal(len, 2 + 1 + 8 + 8 + 3 + 4 + 2 + 6 * ECHI_WORLD_MAX / every + 4);
        assert_true(len <= echi_kind_meta_cap(ECHI_KIND_STATE, ECHI_WORLD_MAX));
        assert_true(echi_msg_decode(ECHI_KIND_STATE, bytes, len, &got));
        memset(back, 0xa5, sizeof back);
        echi_marks_get(got.marks, back, ECHI_WORLD_MAX);
        assert_memory_equal(back, mark, sizeof mark);
        /* One who has fewer nodes takes no notice of those beyond. */
        memset(back, 0xa5, sizeof back);
        echi_marks_get(got.marks, back, 100);
        assert_memory_equal(back, mark, 100 * sizeof mark[0]);
        assert_int_equal(back[100], 0xa5a5a5a5u);
    }
    /* Marks that do not ascend, are 0, of a rank beyond the world, or more than there are. */
    static const uint8_t good[] = {3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 5, 0, 0, 0, 2,
                                   0, 6, 0, 0, 0, 1, 0, 0, 0};
    struct echi_msg got;
    uint8_t bad[sizeof good];
    assert_true(echi_msg_decode(ECHI_KIND_STATE, good, sizeof good, &got));
    static const struct { size_t at; uint8_t value; } wrong[] = {{34, 1}, {34, 0}, {30, 0}, {35, 4}, {26, 1}, {26, 3}, {27, 4}, {27, 0xff}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memcpy(bad, good, sizeof good);
        bad[wrong[i].at] = wrong[i].value;
        if (echi_msg_decode(ECHI_KIND_STATE, bad, sizeof bad, &got)) fail_msg("case %zu is taken", i);
    }
}

/* Three heads, one of them on a node that trains nothing else. */
static struct echi_plan plan_of_heads(void) {
    struct echi_plan p = good_plan();
    p.sync = ECHI_SYNC_BSP;
    p.n_groups = p.flights = 1;
    p.damping = 0;
    p.codec = ECHI_CODEC_DENSE;
    p.ratios = 0;
    p.state_ratio = p.base[0] = p.base[1] = 0;
    p.owner_of[1] = ECHI_NO_RANK;
    p.group_of[3] = 0;
    p.round = 316;
    p.gathers = 1;
    p.heads = 3;
    p.head_rank[0] = 2, p.head_rank[1] = 0, p.head_rank[2] = 1;
    p.head_of[2] = 1, p.head_of[3] = 2;
    return p;
}

static void plans_of_several_heads(void **state) {
    (void)state;
    const struct echi_plan good = plan_of_heads();
    struct echi_plan back;
    uint8_t bytes[ECHI_PLAN_BYTES_MAX];
    assert_true(echi_plan_valid(&good));
    const size_t len = echi_plan_encode(&good, bytes, sizeof bytes);
    assert_true(echi_plan_decode(bytes, len, &back) && back.heads == 3);
    assert_memory_equal(back.head_rank, good.head_rank, sizeof good.head_rank);
    assert_memory_equal(back.head_of, good.head_of, sizeof good.head_of);
    for (size_t cut = 0; cut < len; cut++) assert_false(echi_plan_decode(bytes, cut, &back));
    for (int i = 0; i < 16; i++) {
        struct echi_plan p = good;
        switch (i) {
        case 0: p.heads = 1; break;
        case 1: p.heads = ECHI_HEADS_MAX + 1; break;
        case 2: p.heads = 2; break;                             /* and still a third */
        case 3: p.head_rank[0] = 1; break;                      /* which is not `head` */
        case 4: p.head_rank[1] = 1; break;                      /* twice */
        case 5: p.head_rank[2] = 4; break;
        case 6: p.head_of[3] = 3; break;
        case 7: p.head_of[3] = 1; break;                        /* and the third without a worker */
        case 8: p.head_of[1] = 1; break;                        /* which is no worker */
        case 9: p.shadow = 1 + 3; break;
        case 10: p.cut = 0, p.head = ECHI_NO_RANK; break;
        case 11: p.sync = ECHI_SYNC_SSP; break;
        case 12: p.deterministic = 1, p.round = 320, p.n[3] = 304; break;
        case 13: p.heads = 0; break;                            /* and still ranks of heads */
        case 14: p.gathers = 2; break;
        case 15: p.micro_batches = 2; break;                    /* some wait for the answers of others */
        }
        if (echi_plan_valid(&p)) fail_msg("case %d is taken", i);
    }
    /* A lease has a head, and that not more rows than the round has. */
    const struct echi_lease lease_of = {.id = 1, .n = 8, .round_size = 316, .worker = 0, .owner = 2, .head = 1, .head_rows = 8};
    assert_true(echi_lease_valid(&lease_of, &good));
    for (int i = 0; i < 4; i++) {
        struct echi_lease l = lease_of;
        switch (i) {
        case 0: l.head = 3; break;
        case 1: l.head = 0, l.head_rows = 0; break;
        case 2: l.head_rows = 7; break;
        case 3: l.head_rows = 317; break;
        }
        if (echi_lease_valid(&l, &good)) fail_msg("lease %d is taken", i);
    }
    struct echi_plan one = good;
    one.heads = 0;
    memset(one.head_rank, 0, sizeof one.head_rank);
    memset(one.head_of, 0, sizeof one.head_of);
    assert_true(echi_plan_valid(&one) && !echi_lease_valid(&lease_of, &one));
}

static void plans_that_make_no_sense(void **state) {
    (void)state;
    for (int i = 0; i < 44; i++) {
        struct echi_plan p = good_plan();
        assert_true(echi_plan_valid(&p));
        switch (i) {
        case 0: p.sync = ECHI_SYNCS; break;
        case 1: p.world = 0; break;
        case 2: p.world = ECHI_WORLD_MAX + 1; break;
        case 3: p.n_groups = 0; break;
        case 4: p.n_groups = 3; break;                          /* nobody in it */
        case 5: p.cut = 0; break;                         /* and still a head */
        case 6: p.head = 4; break;
        case 7: p.head = ECHI_NO_RANK; break;              /* and still a cut */
        case 8: p.round = 0; break;
        case 9: p.round = (1u << 24) + 1; break;
        case 10: p.owner_of[1] = 4; break;
        case 11: p.owner_of[1] = 2; break;                      /* two groups on one node */
        case 12: p.n[0] = 0; break;
        case 13: p.n[1] = 1; break;
        case 14: p.n[0] = (1u << 20) + 1; break;
        case 15: p.group_of[0] = 2; break;
        case 16: p.lr = -1; break;
        case 17: p.momentum = strtod("nan", NULL); break;
        case 18: p.decay = strtod("inf", NULL); break;
        case 19: p.sync = ECHI_SYNC_SSP; break;                 /* has one group */
        case 20: p.flights = 0; break;
        case 21: p.flights = ECHI_FLIGHTS + 1; break;
        case 22: p.codec = ECHI_CODECS; break;
        case 23: p.ratios = ECHI_RATIOS; break;
        case 24: p.state_ratio = 0; break;
        case 25: p.state_ratio = 1000001; break;
        case 26: p.base[1] = 0; break;
        case 27: p.base[0] = 1000001; break;
        case 28: p.codec = ECHI_CODEC_DENSE; break;             /* and still ratios */
        case 29: p.deterministic = 1; break;
        case 30: p.damping = -1; break;
        case 31: p.damping = strtod("nan", NULL); break;
        case 32: p.reserve = 2; break;
        case 36: p.optimizer = ECHI_OPTIMIZERS; break;
        case 38: p.optimizer = ECHI_OPTIMIZER_ADAM; break;      /* and no betas, but momentum */
        case 39: p.adam.epsilon = 1e-8; break;                  /* of Nesterov's momentum */
        case 40: p.optimizer = ECHI_OPTIMIZER_ADAMW, p.adam = (struct echi_adam){0.9, 0.999, 1e-8}; break;   /* and momentum */
        case 37: p.schedule.kind = ECHI_SCHEDULE_COSINE; break; /* and still steps */
        case 33: p.reserve = 1; break;                          /* and workers in it */
        case 34: p.n_groups = 1, p.reserve = 1; break;          /* and no other group */
        case 42: p.activations = ECHI_ACTIVATIONS; break;
        case 43: p.activations = 1, p.cut = 0, p.head = ECHI_NO_RANK, p.flights = 1; break;   /* to no head */
        case 41: p.shares_follow = 1; break;                    /* of an asynchronous run */
        case 35: p.n_groups = 3, p.reserve = 1, p.base[2] = 1, p.owner_of[2] = 2; break;   /* its owner has a group */
        }
        if (echi_plan_valid(&p)) fail_msg("case %d is valid", i);
    }
    struct echi_plan p = good_plan(), back;
    uint8_t bytes[ECHI_PLAN_BYTES_MAX];
    p.activations = ECHI_ACTIVATIONS_BF16;
    assert_true(echi_plan_valid(&p) && echi_plan_decode(bytes, echi_plan_encode(&p, bytes, sizeof bytes), &back));
    assert_int_equal(back.activations, ECHI_ACTIVATIONS_BF16);
    p = plan_of_heads();
    p.heads = 0;
    memset(p.head_rank, 0, sizeof p.head_rank);
    memset(p.head_of, 0, sizeof p.head_of);
    p.deterministic = 1, p.round = 320, p.n[3] = 304;
    assert_true(echi_plan_valid(&p));
    p.activations = ECHI_ACTIVATIONS_BF16;   /* one node would round nothing */
    assert_false(echi_plan_valid(&p));
    p = good_plan();
    p.n_groups = 3, p.reserve = 1, p.base[2] = 1, p.owner_of[2] = 0;
    assert_true(echi_plan_valid(&p));
    /* Under bsp the shares of a round add up to it. */
    p = good_plan();
    p.sync = ECHI_SYNC_BSP;
    p.n_groups = 1;
    p.owner_of[1] = ECHI_NO_RANK;
    p.group_of[3] = 0;
    assert_false(echi_plan_valid(&p));
    p.round = 8 + 8 + 300;
    assert_false(echi_plan_valid(&p));   /* in a round each worker has one step */
    p.flights = 1;
    assert_false(echi_plan_valid(&p));   /* and nothing is stale */
    p.damping = 0;
    assert_true(echi_plan_valid(&p));
    p.round++;
    assert_false(echi_plan_valid(&p));
}

static void leases_fit_the_plan(void **state) {
    (void)state;
    struct echi_plan p = good_plan();
    const struct echi_lease good = {.id = 1, .n = 300, .round_size = 64, .worker = 3, .owner = 1}; /* a step may exceed a round */
    assert_true(echi_lease_valid(&good, &p));
    for (int i = 0; i < 7; i++) {
        struct echi_lease l = good;
        switch (i) {
        case 0: l.id = 0; break;
        case 1: l.worker = 1; break;                            /* has no worker */
        case 2: l.worker = 200; break;
        case 3: l.owner = 2; break;
        case 4: l.n = 301; break;
        case 5: l.n = 0; break;
        case 6: l.round_size = 63; break;
        }
        if (echi_lease_valid(&l, &p)) fail_msg("case %d is valid", i);
    }
    /* Of a worker that was moved: the new owner's, and those of the one before, for what it had begun. */
    echi_plan_move(&p, 3, p.group_of[3] == 0);
    struct echi_lease of_new = good;
    of_new.owner = p.owner_of[p.group_of[3]];
    assert_true(of_new.owner != good.owner && echi_lease_valid(&of_new, &p) && echi_lease_valid(&good, &p));
    p = good_plan();
    p.sync = ECHI_SYNC_BSP;
    struct echi_lease l = {.id = 1, .n = 8, .round_size = 20, .worker = 0, .owner = 2};   /* an epoch's last round is short */
    assert_true(echi_lease_valid(&l, &p));
    l.round_size = 7;
    assert_false(echi_lease_valid(&l, &p));
    l.round_size = 65;
    assert_false(echi_lease_valid(&l, &p));
    /* Under local a lease is a worker's steps of a round, and the round that of all, lost ones too. */
    p.sync = ECHI_SYNC_LOCAL;
    p.inner[0] = p.inner[2] = 4;
    p.inner[3] = 1;
    p.lost[3] = 1;
    l = (struct echi_lease){.id = 1, .n = 32, .round_size = 364, .worker = 0, .owner = 2};
    assert_true(echi_plan_round(&p) == 64 && echi_plan_round_most(&p) == 364 && echi_lease_valid(&l, &p));
    l.n = 33;
    assert_false(echi_lease_valid(&l, &p));
    l.n = 32, l.round_size = 365;
    assert_false(echi_lease_valid(&l, &p));
}

static void times_come_back(void **state) {
    (void)state;
    const struct echi_times t = {.count = 3, .n = {1, 8, 64}, .trunk = {0.5, 1, 4}, .head = {0, 0.25, 1}, .exchange = 0.125,
                                 .messages = 0.0625, .jitter = 0.15, .stutter = 0.02, .stutter_factor = 5, .delay = 1e-3, .update = 0.25,
                                 .add = 0.03125, .quota = 0.05, .period = 0.1, .block = 4, .machine = {7, ECHI_PROCESSOR / 4, 2, 1.5},
                                 .link = {{1.25e8, 1e8, 1.3e8}, {1e7, 9e6, 1e7}}};
    struct echi_times back, bad;
    uint8_t bytes[ECHI_TIMES_BYTES_MAX + 1] = {0};
    const size_t len = echi_times_encode(&t, bytes, ECHI_TIMES_BYTES_MAX);
    assert_int_equal(len, 1 + 3 * 20 + 2 + 10 * 8 + 22 + ECHI_LINK_BYTES + 2);
    assert_true(echi_times_decode(bytes, len, &back));
    assert_memory_equal(&back, &t, sizeof t);
    for (size_t cut = 0; cut < len; cut++) assert_false(echi_times_decode(bytes, cut, &back));
    assert_false(echi_times_decode(bytes, len + 1, &back));
    for (int i = 0; i < 34; i++) {
        bad = t;
        switch (i) {
        case 0: bad.count = 0; break;
        case 1: bad.n[1] = 1; break;                            /* not ascending */
        case 2: bad.n[0] = 0; break;
        case 3: bad.trunk[1] = 0; break;
        case 4: bad.trunk[1] = strtod("nan", NULL); break;
        case 5: bad.head[2] = -1; break;
        case 6: bad.trunk[2] = strtod("inf", NULL); break;
        case 7: bad.exchange = -1; break;
        case 8: bad.messages = strtod("nan", NULL); break;
        case 9: bad.jitter = 3; break;
        case 10: bad.stutter = 1.5; break;
        case 11: bad.stutter_factor = strtod("inf", NULL); break;
        case 12: bad.link.out.rate = -1; break;
        case 13: bad.delay = strtod("nan", NULL); break;
        case 14: bad.link.in.highest = strtod("inf", NULL); break;
        case 15: bad.update = -1; break;
        case 16: bad.update = strtod("nan", NULL); break;
        case 17: bad.link.out.rate = strtod("nan", NULL); break;
        case 18: bad.link.in.lowest = 2e7; break;               /* above the rate */
        case 19: bad.link.out.highest = 1e8; break;             /* below it */
        case 20: bad.link.out.rate = 0; break;                  /* not known, but between others */
        case 21: bad.link.in = echi_rate_of(1e15); break;
        case 22: bad.add = 0.126; break;                        /* more than that of which it is a part */
        case 23: bad.add = strtod("nan", NULL); break;
        case 24: bad.quota = 0.2; break;                        /* longer than its period */
        case 25: bad.quota = 0; break;                          /* none, but of a period */
        case 26: bad.period = strtod("inf", NULL); break;
        case 27: bad.quota = bad.period = 1e-6; break;
        case 28: bad.machine.id = 0; break;                     /* none, but with processors */
        case 29: bad.machine.processors = 0; break;
        case 30: bad.machine.takes = 0; break;
        case 31: bad.machine.crowd = 0.99; break;
        case 32: bad.machine.crowd = strtod("nan", NULL); break;
        case 33: bad.machine.takes = UINT32_MAX; break;
        }
        if (echi_times_decode(bytes, echi_times_encode(&bad, bytes, sizeof bytes), &back)) fail_msg("case %d was taken", i);
    }
    bytes[0] = ECHI_TIMES_MAX + 1;
    assert_false(echi_times_decode(bytes, sizeof bytes, &back));
    /* Straight lines between the sizes, along the last one beyond, nothing for nothing. */
    assert_true(echi_times_trunk(&t, 0) == 0);
    assert_true(echi_times_trunk(&t, 1) == 0.5);
    assert_true(echi_times_trunk(&t, 36) == 2.5);
    assert_true(echi_times_trunk(&t, 120) == 7);
    assert_true(echi_times_whole(&t, 8) == 1.25);
    /* Blocks: a step of one sample more takes as long as one of the next whole block, along the last slope; and where only one size was
     * measured, in proportion. */
    const struct echi_times block = {.count = 3, .n = {8, 16, 32}, .block = 16, .trunk = {2, 3, 5}, .head = {0.25, 0.5, 1}};
    assert_true(echi_times_trunk(&block, 5) == 2 && echi_times_trunk(&block, 8) == 2);
    assert_true(echi_times_trunk(&block, 9) == 3 && echi_times_trunk(&block, 16) == 3);
    assert_true(echi_times_trunk(&block, 17) == 5 && echi_times_trunk(&block, 33) == 7 && echi_times_trunk(&block, 48) == 7);
    assert_true(echi_times_whole(&block, 33) == 8.5 && echi_times_whole(&block, UINT32_MAX) == echi_times_whole(&block, UINT32_MAX - 14));
    /* The first size is less than a block, so there is no slope yet. */
    const struct echi_times no_slope = {.count = 2, .n = {8, 16}, .block = 16, .trunk = {2, 3}};
    assert_true(echi_times_trunk(&no_slope, 9) == 3 && echi_times_trunk(&no_slope, 17) == 6 && echi_times_trunk(&no_slope, 48) == 9);
    const struct echi_times one = {.count = 1, .n = {8}, .block = 8, .trunk = {2}};
    assert_true(echi_times_trunk(&one, 3) == 2 && echi_times_trunk(&one, 9) == 4 && echi_times_trunk(&one, 16) == 4);
    const struct echi_times no_block = {.count = 2, .n = {8, 16}, .trunk = {2, 3}};
    assert_true(echi_times_trunk(&no_block, 12) == 2.5 && echi_times_trunk(&no_block, 64) == 9);
    /* Units are not known: a third of the trunk is its forward pass. */
    assert_true(echi_times_unit(&t, 0, ECHI_FORWARD, 8) == 0);
    assert_true(echi_times_forward(&t, 64) == 4.0 / 3);
}

/* Two units in front of the cut, one behind it, at two of three sizes. */
static const double unit_seconds[2][3][ECHI_PASSES] = {{{1, 3}, {2, 2}, {1, 1}}, {{4, 4}, {0, 0}, {1, 3}}};
static struct echi_times with_units(void) {
    struct echi_times t = {.count = 3, .n = {1, 8, 64}, .trunk = {0.5, 1, 4}, .head = {0.25, 0.25, 1}, .units = 3, .cut = 2, .sizes = 2,
                           .size = {1, 2}};
    for (int i = 0; i < 2; i++) assert_true(echi_times_share(&t, i, unit_seconds[i]));
    return t;
}

static void near(double value, double expected) {   /* shares are rounded to 1 / 65,535 of a trunk, or of a head */
    if (!(value >= expected - 1e-4 && value <= expected + 1e-4)) fail_msg("%.9g, expected %.9g", value, expected);
}

static void units_divide_steps(void **state) {
    (void)state;
    const struct echi_times t = with_units();
    near(echi_times_unit(&t, 0, ECHI_FORWARD, 8), 1.0 / 8);
    near(echi_times_unit(&t, 0, ECHI_BACKWARD, 8), 3.0 / 8);
    near(echi_times_unit(&t, 2, ECHI_BACKWARD, 8), 0.25 / 2);
    near(echi_times_unit(&t, 1, ECHI_FORWARD, 64), 0);
    near(echi_times_unit(&t, 2, ECHI_BACKWARD, 64), 3.0 / 4);
    /* Half way between the sizes, half way between the shares; beyond them the shares stay. */
    near(echi_times_unit(&t, 0, ECHI_FORWARD, 36), 2.5 * (1.0 / 8 + 4.0 / 8) / 2);
    near(echi_times_unit(&t, 0, ECHI_FORWARD, 1), 0.5 / 8);
    near(echi_times_unit(&t, 0, ECHI_FORWARD, 120), 7 * 4.0 / 8);
    near(echi_times_forward(&t, 8), 3.0 / 8);
    near(echi_times_forward(&t, 36), 2.5 * (3.0 / 8 + 4.0 / 8) / 2);
    assert_true(echi_times_unit(&t, 3, ECHI_FORWARD, 8) == 0 && echi_times_unit(&t, -1, ECHI_FORWARD, 8) == 0);
    /* With the cut elsewhere units take what they took, and a whole step too; there and back again nearly the same. */
    for (int cut = 1; cut <= 3; cut++) {
        struct echi_times other = t;
        assert_true(echi_times_recut(&other, cut) && other.cut == cut && other.units == 3);
        for (uint32_t n = 1; n <= 100; n += 9) {
            near(echi_times_whole(&other, n), echi_times_whole(&t, n));
            if (cut == 3) assert_true(echi_times_head(&other, n) == 0);
        }
        for (int u = 0; u < 3; u++)
            for (int size = 8; size <= 64; size += 56)
                for (int pass = 0; pass < ECHI_PASSES; pass++)
                    near(echi_times_unit(&other, u, (enum echi_pass)pass, (uint32_t)size),
                         echi_times_unit(&t, u, (enum echi_pass)pass, (uint32_t)size));
        if (cut == 1) near(other.trunk[1], 4.0 / 8), near(other.trunk[2], 4), near(other.trunk[0], 0.5 * 4 / 8);
        assert_true(echi_times_recut(&other, 2));
        for (int i = 1; i < 3; i++) near(other.trunk[i], t.trunk[i]), near(other.head[i], t.head[i]);
    }
    struct echi_times unknown = t;
    assert_false(echi_times_recut(&unknown, 0) || echi_times_recut(&unknown, 4));
    assert_memory_equal(&unknown, &t, sizeof t);
    unknown.units = 0;
    assert_false(echi_times_recut(&unknown, 1));
    /* Units that took no time divide nothing, and leave what was there. */
    static const double none[3][ECHI_PASSES] = {{1, 1}, {1, 1}, {0, 0}};
    struct echi_times same = t;
    assert_false(echi_times_share(&same, 0, none));
    assert_memory_equal(&same, &t, sizeof t);
    /* 512 equal parts do not round to 65,535. */
    static double equal[ECHI_UNITS_MAX][ECHI_PASSES];
    for (int u = 0; u < ECHI_UNITS_MAX; u++) equal[u][0] = equal[u][1] = 1;
    same.units = same.cut = ECHI_UNITS_MAX;
    same.sizes = 1;
    assert_true(echi_times_share(&same, 0, (const double (*)[ECHI_PASSES])equal));
    static uint8_t bytes[ECHI_TIMES_BYTES_MAX];
    struct echi_times back;
    assert_true(echi_times_decode(bytes, echi_times_encode(&same, bytes, sizeof bytes), &back));
}

static void units_come_back(void **state) {
    (void)state;
    struct echi_times t = with_units(), back, bad;
    uint8_t bytes[ECHI_TIMES_BYTES_MAX + 1] = {0};
    const size_t len = echi_times_encode(&t, bytes, ECHI_TIMES_BYTES_MAX);
    assert_int_equal(len, 1 + 3 * 20 + 2 + 10 * 8 + 22 + ECHI_LINK_BYTES + 2 + 2 + 1 + 2 * (1 + 3 * 4));
    assert_true(echi_times_decode(bytes, len, &back));
    assert_memory_equal(&back, &t, sizeof t);
    for (size_t cut = 0; cut < len; cut++) assert_false(echi_times_decode(bytes, cut, &back));
    assert_false(echi_times_decode(bytes, len + 1, &back));
    for (int i = 0; i < 7; i++) {
        bad = t;
        switch (i) {
        case 0: bad.cut = 0; break;
        case 1: bad.cut = 4; break;
        case 2: bad.sizes = 0; break;
        case 3: bad.size[1] = bad.size[0]; break;
        case 4: bad.size[1] = 3; break;                /* of three sizes */
        case 5: bad.share[0][1].of[0]++; break;        /* shares of the trunk are more than all */
        case 6: bad.share[1][2].of[1]--; break;        /* of the head, less */
        }
        if (echi_times_decode(bytes, echi_times_encode(&bad, bytes, sizeof bytes), &back)) fail_msg("case %d was taken", i);
    }
    /* The largest there is fits. */
    static struct echi_times large;
    large = t;
    large.count = ECHI_TIMES_MAX;
    for (int i = 0; i < ECHI_TIMES_MAX; i++) large.n[i] = (uint32_t)i + 1, large.trunk[i] = large.head[i] = 1;
    large.units = ECHI_UNITS_MAX;
    large.sizes = ECHI_UNIT_SIZES;
    for (int i = 0; i < ECHI_UNIT_SIZES; i++) {
        large.size[i] = (uint8_t)i;
        large.share[i][0].of[0] = large.share[i][2].of[0] = ECHI_SHARE_ALL;
        large.share[i][0].of[1] = large.share[i][1].of[0] = large.share[i][1].of[1] = large.share[i][2].of[1] = 0;
    }
    assert_true(echi_times_decode(bytes, echi_times_encode(&large, bytes, ECHI_TIMES_BYTES_MAX), &back));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back),    cmocka_unit_test(fields_arrive),
        cmocka_unit_test(the_bytes_themselves),     cmocka_unit_test(plans_come_back), cmocka_unit_test(marks_come_back),
        cmocka_unit_test(plans_of_several_heads),
        cmocka_unit_test(plans_that_make_no_sense), cmocka_unit_test(leases_fit_the_plan),
        cmocka_unit_test(times_come_back),          cmocka_unit_test(units_divide_steps), cmocka_unit_test(units_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
