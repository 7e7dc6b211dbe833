/* SPDX-License-Identifier: Apache-2.0
 * The ring: which plans may have one, in which order it goes, how rounds are dealt to its workers, when it ends; and what a worker and an
 * owner refuse. What whole runs come to: the seeds. */
#include "echi_exchange.h"
#include "echi_random.h"
#include "echi_roles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "bsp_plan.h"
#include "echi_coordinator_impl.h"
#include "part.h"

enum { WORLD = 6, PARTS = 5 };
static const uint32_t equal[WORLD] = {4, 4, 4, 4, 4, 4}, without_2[WORLD] = {4, 4, 0, 4, 4, 4}, without_0[WORLD] = {0, 4, 4, 4, 4, 4};
static const uint32_t uneven[WORLD] = {1, 9, 0, 2, 30, 6};

/* Part i belongs to shard i % shards, and shard k to rank owner[k]. */
static struct echi_plan ring(const uint32_t *n, int shards, const int *owner) {
    struct echi_plan p = bsp_plan(WORLD, n);
    p.shards = (uint8_t)shards;
    for (int k = 0; k < shards; k++) p.shard_owner[k] = (uint16_t)owner[k];
    p.owner_of[0] = (uint16_t)owner[0];
    p.parts.count = PARTS;
    for (int i = 0; i < PARTS; i++) {   /* one by one: plans are compared byte by byte, and a literal's padding is anything */
        struct echi_part *part = &p.parts.part[i];
        part->at = (uint64_t)i;
        part->count = 1;
        part->first = part->last = (uint8_t)i;
        part->shard = (uint8_t)(i % shards);
    }
    p.exchange = ECHI_EXCHANGE_RING;
    return p;
}

/* ---- plans ---- */

static void who_may_ring(void **state) {
    (void)state;
    static const int all[] = {0, 1, 2, 3, 4}, two[] = {4, 0}, idle[] = {0, 2};
    struct echi_plan p = ring(equal, 5, all);
    assert_true(echi_plan_valid(&p) && echi_plan_rings(&p));
    plan_comes_back(&p);
    p = ring(without_2, 2, two);
    assert_true(echi_plan_valid(&p));
    p = ring(without_2, 2, idle);   /* an owner that does not train */
    assert_false(echi_plan_valid(&p));
    p = ring(equal, 2, all + 1);    /* rank 0 owns nothing: of two owners each is the other's heir */
    assert_true(echi_plan_valid(&p) && echi_plan_outlives_owners(&p) && !echi_plan_can_lose(&p, 0));
    for (int r = 1; r < WORLD; r++) assert_true(echi_plan_can_lose(&p, r));
    echi_plan_lose(&p, 1);
    assert_true(!echi_plan_can_lose(&p, 2) && echi_plan_can_lose(&p, 3));
    p = ring(without_0, 2, all + 1);   /* nor trains */
    assert_true(echi_plan_valid(&p) && echi_plan_can_lose(&p, 1));
    plan_comes_back(&p);
    p = ring(equal, 5, all);
    p.sync_norm = 1;
    assert_false(echi_plan_valid(&p));
    p = ring(equal, 5, all);
    p.deterministic = 1;            /* whose owner of memory cannot be lost; a worker can */
    assert_true(echi_plan_valid(&p) && !echi_plan_outlives_owners(&p) && !echi_plan_can_lose(&p, 1));
    p.momentum = 0;
    assert_true(echi_plan_outlives_owners(&p) && echi_plan_can_lose(&p, 1));
    p = ring(equal, 2, two);
    p.deterministic = 1;
    assert_true(echi_plan_can_lose(&p, 1) && !echi_plan_can_lose(&p, 4));
    p = bsp_plan(WORLD, equal);     /* one owner */
    p.exchange = ECHI_EXCHANGE_RING;
    assert_false(echi_plan_valid(&p));
}

/* From its owner on the weights of each part reach each worker once, and by the one of whom it expects them. */
static void reach_everyone(const uint32_t *n, const int *owners) {
    const struct echi_plan p = ring(n, 2, owners);
    const struct echi_exchange_rules *x = echi_exchange_of(&p);
    assert_string_equal(x->name, "ring");
    for (int part = 0; part < PARTS; part++) {
        const int owner = echi_plan_part_owner(&p, 0, part);
        int got[WORLD] = {0}, from = owner;
        for (int r = 0; r < WORLD; r++)
            if (n[r]) assert_int_equal(x->answers(&p, owner, r), r == owner || r == echi_ring_next(&p, owner));
        assert_int_equal(echi_ring_weights_from(&p, owner, part), owner);
        got[owner]++;
        for (int r = echi_ring_next(&p, owner); r >= 0; from = r, r = echi_ring_weights_next(&p, r, part)) {
            assert_int_equal(echi_ring_weights_from(&p, r, part), from);
            got[r]++;
        }
        for (int r = 0; r < WORLD; r++) assert_int_equal(got[r], n[r] > 0);
        assert_int_equal(echi_ring_before(&p, owner), from);   /* the last of them hands the sum to the owner */
    }
}

static void weights_reach_everyone_once(void **state) {
    (void)state;
    reach_everyone(without_2, (const int[]){4, 0});
    reach_everyone(without_0, (const int[]){5, 2});
}

/* Of each round each heir, who trains and owns, computes a part, the first in any case: whoever of them is left has its weights. */
static void each_heir_has_a_part(void **state) {
    (void)state;
    static const uint32_t shares[WORLD] = {0, 4, 0, 8, 120, 24};
    static const int owners[] = {3, 1, 4};
    for (int deterministic = 0; deterministic < 2; deterministic++)
        for (uint32_t size = 1, unit = deterministic ? ECHI_REDUCTION_BLOCK : 1; size <= 156; size++) {
            struct echi_plan p = ring(shares, 3, owners);
            uint32_t n[ECHI_WORLD_MAX], sum = 0, with = 0;
            p.deterministic = (uint8_t)deterministic;
            echi_plan_deal(&p, size, n);
            for (int r = 0; r < WORLD; r++) {
                sum += n[r];
                with += n[r] > 0 && echi_plan_is_heir(&p, r);
                assert_true(shares[r] > 0 || n[r] == 0);
            }
            const uint32_t units = (size + unit - 1) / unit;
            assert_true(sum == size && n[1] > 0 && with == (units < 3 ? units : 3));
            echi_plan_lose(&p, 1);
            echi_plan_deal(&p, size, n);
            assert_true(n[1] == 0 && n[3] > 0 && (units < 2 || n[4] > 0));
        }
}

/* Whoever deals a round, and whoever asks how one was dealt, comes to the same; every sample has a worker, and rank 0 always some. */
static void rounds_are_dealt_in_proportion(void **state) {
    (void)state;
    static const int owners[] = {0, 4};
    struct echi_random random;
    echi_random_init(&random, 7, ECHI_STREAM_TEST, 0);
    struct echi_plan p = ring(uneven, 2, owners);
    uint32_t n[ECHI_WORLD_MAX];
    echi_plan_deal(&p, p.round, n);
    assert_memory_equal(n, uneven, sizeof uneven);
    for (int i = 0; i < 1000; i++) {
        const uint32_t size = 1 + echi_random_below(&random, p.round);
        uint32_t sum = 0;
        echi_plan_deal(&p, size, n);
        for (int r = 0; r < WORLD; r++) {
            sum += n[r];
            assert_true(n[r] <= echi_plan_room(&p, r) || r == 0);
            /* within one of the exact share, and one that rank 0 may have got */
            const double exact = (double)uneven[r] * size / p.round;
            assert_true(n[r] < exact + 1 + (r == 0) && n[r] > exact - 2);
        }
        assert_true(sum == size && n[0] >= 1 && n[2] == 0);
        struct echi_ranks sharing = {{0}};
        for (int r = 0; r < WORLD; r++)
            if (n[r] > 0) echi_ranks_add(&sharing, r);
        const int first = echi_ring_first(&p, &sharing, 4);   /* 5, 0: who has some */
        assert_int_equal(first, n[5] ? 5 : 0);
    }
    assert_int_equal(echi_ring_first(&p, &(struct echi_ranks){{1}}, 0), 0);   /* nobody but the owner */
}

/* A round that is dealt anew, of whose gradients some workers have theirs: each sample is in one lease, and each heir that has the round's
 * weights gets one, as long as there are as many units; in any case the first does. */
static void all_heirs_are_in_a_round_again(void **state) {
    (void)state;
    static struct echi_coordinator c;
    static const uint32_t shares[WORLD] = {0, 4, 4, 8, 120, 24};
    static const int owners[] = {3, 1, 4};
    struct echi_random random;
    echi_random_init(&random, 11, ECHI_STREAM_TEST, 0);
    for (int i = 0; i < 20000 / (int)test_part(); i++) {
        memset(&c, 0, offsetof(struct echi_coordinator, times));   /* the rest is for a world of a thousand */
        c.plan = ring(shares, 3, owners);
        c.plan.deterministic = (uint8_t)(i % 2);
        const uint32_t unit = i % 2 ? ECHI_REDUCTION_BLOCK : 1, start = 4 * echi_random_below(&random, 9);
        const uint32_t size = 1 + echi_random_below(&random, i % 3 ? 12 * unit : 160);
        const uint32_t round = echi_random_below(&random, 5), at = round % ECHI_ROUNDS_KEPT;
        uint32_t n[ECHI_WORLD_MAX], from = start;
        c.next_round = round + 1;
        c.dealt[at].start = start;
        c.dealt[at].size = size;
        echi_plan_deal(&c.plan, size, n);
        for (int r = 0; r < WORLD; from += n[r++]) {
            const bool has = n[r] > 0 && echi_random_below(&random, 3);
            c.stopped[r] = (struct echi_stop){.has = true, .version = round};
            if (has) c.stopped[r].lease = (struct echi_lease){.id = 1, .n = n[r], .start = from, .round = round, .round_size = size};
            else if (r > 1 && echi_random_below(&random, 6) == 0) echi_ranks_add(&c.takeover.behind, r);
        }
        echi_plan_lose(&c.plan, echi_random_below(&random, 2) ? 1 : 4);
        echi_ledger_restart(&c, round, echi_plan_all_shards(&c.plan));
        uint32_t times[160 + 40] = {0}, heirs = 0, with = 0, of[WORLD] = {0};
        int first = -1;
        for (int k = 0; k < c.n_again; k++) {
            const struct echi_lease *l = &c.again[k];
            assert_true(l->start >= start && l->n > 0 && l->start + l->n <= start + size && (l->start - start) % unit == 0);
            for (uint32_t s = l->start; s < l->start + l->n; s++) times[s]++;
            if (!l->again) of[l->worker] += l->n;
        }
        for (uint32_t s = start; s < start + size; s++) assert_int_equal(times[s], 1);
        for (int r = 0; r < WORLD; r++) {
            if (!echi_plan_is_heir(&c.plan, r) || echi_ranks_next(&c.takeover.behind, r) == r) continue;
            if (first < 0) first = r;
            heirs++;
            with += of[r] > 0;
        }
        const uint32_t units = (size + unit - 1) / unit;
        if (heirs > 0 && !(of[first] > 0 && with == (units < heirs ? units : heirs)))
            fail_msg("run %d: %u of %u heirs have a part of %u units", i, with, heirs, units);
    }
}

static void a_loss_ends_it(void **state) {
    (void)state;
    static const int two[] = {4, 0};
    uint32_t mark[ECHI_WORLD_MAX] = {1, 1, 0, 1, 1, 1};
    struct echi_plan p = ring(without_2, 2, two);
    assert_true(echi_plan_can_lose(&p, 1) && !echi_plan_orphaned(&p));
    echi_plan_lose(&p, 1);   /* who owns nothing */
    assert_true(echi_plan_orphaned(&p) && !echi_plan_rings(&p));
    assert_string_equal(echi_exchange_of(&p)->name, "server");
    assert_int_equal(echi_plan_take_over(&p, mark), 0);
    assert_false(echi_plan_orphaned(&p));
    echi_plan_lose(&p, 3);   /* of what is no ring any more: nothing is taken over */
    assert_false(echi_plan_orphaned(&p));
    echi_plan_lose(&p, 4);
    assert_true(echi_plan_orphaned(&p));
    assert_int_equal(echi_plan_take_over(&p, mark), 1);
    p = ring(without_2, 2, two);
    echi_plan_lose(&p, 2);   /* it was not in the ring */
    assert_true(echi_plan_rings(&p));
}

/* ---- what is refused ---- */

static struct echi_setup setup;
static struct echi_worker worker;
static struct echi_owner owner;
static struct echi_action list[ECHI_ACTIONS_MAX];
static struct echi_actions out;

static const struct echi_action *find(enum echi_action_type type, int kind) {
    for (int i = 0; i < out.count; i++)
        if (list[i].type == type && (type != ECHI_ACTION_SEND || list[i].kind == kind)) return &list[i];
    return NULL;
}

/* Rank 1 of six, of which 0 and 1 own: shard 0 is rank 0's. */
static void begin(void) {
    static const int owners[] = {0, 1};
    memset(&setup, 0, sizeof setup);
    setup.plan = ring(equal, 2, owners);
    setup.rank = 1;
    setup.n_layers = setup.cut = PARTS;
    assert_true(echi_plan_valid(&setup.plan));
    echi_worker_init(&worker, &setup);
    echi_owner_init(&owner, &setup, 0);
    out = (struct echi_actions){list, 0, ECHI_ACTIONS_MAX, false};
}
static const struct echi_action *to_worker(struct echi_msg m, int from) {
    out.count = 0;
    echi_worker_step(&worker, &(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = &m,
                                                   .slot = {ECHI_SLOT_RING, 0}}, &out);
    return find(ECHI_ACTION_FAULT, 0);
}
static const struct echi_action *to_owner(struct echi_msg m, int from) {
    out.count = 0;
    echi_owner_step(&owner, &(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = (uint16_t)from, .msg = &m,
                                                 .slot = {ECHI_SLOT_RING, 0}}, &out);
    return find(ECHI_ACTION_FAULT, 0);
}

static struct echi_msg sum_of(int part, uint32_t samples) {
    return (struct echi_msg){.kind = ECHI_KIND_RING_SUM, .part = (uint16_t)part, .samples = samples,
                             .lease = {.id = 2, .n = 4, .start = 4, .round_size = 24, .worker = 2, .owner = 0}};
}

static void what_a_worker_refuses(void **state) {
    (void)state;
    struct echi_msg m;
    begin();
    out.count = 0;
    echi_worker_step(&worker, &(struct echi_event){.type = ECHI_EVENT_START}, &out);
    for (int i = 0; i < out.count; i++)   /* no sum of a part of rank 0 comes here: it begins here */
        if (list[i].kind == ECHI_KIND_RING_SUM) fail_msg("a place for the sum of part %d", list[i].only - 1);
    setup.rank = 3;
    echi_worker_init(&worker, &setup);
    assert_null(to_worker(sum_of(0, 8), 2));
    assert_non_null(to_worker(sum_of(0, 8), 2));            /* a second time */
    assert_non_null(to_worker(sum_of(2, 8), 1));            /* not of the one in front of it */
    assert_non_null(to_worker(sum_of(PARTS, 8), 2));
    assert_non_null(to_worker(sum_of(2, 0), 2));
    assert_non_null(to_worker(sum_of(2, 25), 2));           /* more than a round */
    m = sum_of(2, 8);
    m.lease.n = 30;
    assert_non_null(to_worker(m, 2));
    m = (struct echi_msg){.kind = ECHI_KIND_WEIGHTS};              /* that an owner of a server would send */
    assert_non_null(to_worker(m, 0));
    m = (struct echi_msg){.kind = ECHI_KIND_RING_WEIGHTS, .part = 0};
    assert_non_null(to_worker(m, 0));                             /* not of the one in front of it */
    setup.plan.exchange = ECHI_EXCHANGE_SERVER;
    echi_worker_init(&worker, &setup);
    assert_non_null(to_worker(sum_of(0, 8), 2));            /* there is no ring */
}

static void what_an_owner_refuses(void **state) {
    (void)state;
    struct echi_msg m = {.kind = ECHI_KIND_PARAMS};
    begin();
    assert_null(to_owner(m, 0));
    assert_non_null(to_owner(sum_of(1, 20), 2));            /* not of the one in front of it */
    assert_non_null(to_owner(sum_of(0, 20), 0));            /* another's part */
    assert_non_null(to_owner(sum_of(1, 25), 0));
    m = sum_of(1, 20);
    m.lease.round = 1;
    assert_non_null(to_owner(m, 0));
    assert_null(to_owner(sum_of(1, 20), 0));
    assert_non_null(to_owner(sum_of(1, 4), 0));             /* a second time */
    m = (struct echi_msg){.kind = ECHI_KIND_RING_LEASE, .lease = sum_of(1, 4).lease};
    assert_null(to_owner(m, 2));
    assert_non_null(to_owner(m, 2));                              /* a second time */
    m.lease.worker = 3;
    assert_non_null(to_owner(m, 2));                              /* another's */
    m.lease.worker = 1;
    assert_non_null(to_owner(m, 1));                              /* the own worker pushes */
}

/* A round of two parts of rank 1's, whose sums come before and behind what is told of the leases. */
static void the_last_part_waits_for_all_leases(void **state) {
    (void)state;
    struct echi_msg m = {.kind = ECHI_KIND_PARAMS};
    begin();
    assert_null(to_owner(m, 0));
    for (int part = 1; part <= 3; part += 2) {
        m = (struct echi_msg){.kind = ECHI_KIND_PUSH, .part = (uint16_t)part,
                              .lease = {.id = 1, .n = 4, .start = 0, .round_size = 24, .worker = 1, .owner = 0}};
        assert_null(to_owner(m, 1));
        assert_null(to_owner(sum_of(part, 20), 0));
        if (part == 3) break;
        const struct echi_action *apply = find(ECHI_ACTION_COMPUTE, 0);   /* another part is left */
        assert_true(apply && apply->task.kind == ECHI_TASK_APPLY && apply->task.only == 2 && apply->task.ring.kind == ECHI_SLOT_RING);
        assert_int_equal(apply->task.n_rows, 1);
        const struct echi_task t = apply->task;
        const struct echi_result result = {.loss = {0}};
        out.count = 0;
        echi_owner_step(&owner, &(struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &t, .result = &result}, &out);
        const struct echi_action *post = find(ECHI_ACTION_POST, 0);   /* the place of its sum */
        assert_true(post && post->kind == ECHI_KIND_RING_SUM && post->only == 2 && post->to == 0);
    }
    for (int r = 0; r < WORLD; r++) {
        if (r == 1) continue;
        assert_null(find(ECHI_ACTION_COMPUTE, 0));
        m = (struct echi_msg){.kind = ECHI_KIND_RING_LEASE, .lease = {.id = 2 + (uint32_t)r, .n = 4, .start = 4, .round_size = 24,
                                                                      .worker = (uint16_t)r, .owner = 0}};
        assert_null(to_owner(m, r));
    }
    const struct echi_action *last = find(ECHI_ACTION_COMPUTE, 0);
    assert_true(last && last->task.kind == ECHI_TASK_APPLY && last->task.only == 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_may_ring), cmocka_unit_test(weights_reach_everyone_once), cmocka_unit_test(rounds_are_dealt_in_proportion),
        cmocka_unit_test(each_heir_has_a_part), cmocka_unit_test(all_heirs_are_in_a_round_again),
        cmocka_unit_test(a_loss_ends_it), cmocka_unit_test(what_a_worker_refuses), cmocka_unit_test(what_an_owner_refuses),
        cmocka_unit_test(the_last_part_waits_for_all_leases)};
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
