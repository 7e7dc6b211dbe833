/* SPDX-License-Identifier: Apache-2.0
 * Whom a run does without when nodes cannot reach each other, against brute force over all sets. */
#include "echi_random.h"
#include "echi_reach.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>
#include <cmocka.h>

enum { WORKER = 1024, OWNER = 1025, NEEDED = 1 << 20, RANK0 = 1 << 28 };

static struct echi_pair pair[ECHI_PAIRS_MAX];
static int pairs;
static uint32_t cost[1024];
static uint16_t lost[ECHI_REACH_RANKS];

static void begin(int needed) {
    pairs = 0;
    for (int r = 0; r < 1024; r++) cost[r] = r ? WORKER : RANK0;
    if (needed >= 0) cost[needed] = NEEDED;
}
static void cut(int a, int b) { pair[pairs++] = (struct echi_pair){(uint16_t)a, (uint16_t)b}; }
static int choose(void) { return echi_reach_choose(pair, pairs, cost, lost); }

static void nothing_is_lost_without_a_pair(void **state) {
    (void)state;
    begin(-1);
    assert_int_equal(choose(), 0);
}

/* Whoever complains: the worker goes, and not the owner without whom the run ends; nor rank 0, ever. */
static void of_two_the_one_that_can_be_lost(void **state) {
    (void)state;
    for (int way = 0; way < 2; way++) {
        begin(1);
        way ? cut(1, 2) : cut(2, 1);
        assert_int_equal(choose(), 1);
        assert_int_equal(lost[0], 2);
        begin(2);
        way ? cut(0, 2) : cut(2, 0);
        assert_int_equal(choose(), 1);
        assert_int_equal(lost[0], 2);
        begin(-1);   /* an owner whom the others outlive is a little more than a worker */
        cost[2] = OWNER;
        way ? cut(1, 2) : cut(2, 1);
        assert_int_equal(choose(), 1);
        assert_int_equal(lost[0], 1);
    }
}

/* One host without its links to the others, however many complain of it, and in whatever order: it goes, and nobody else. */
static void of_a_star_its_middle(void **state) {
    (void)state;
    for (int world = 4; world <= 64; world += 20)
        for (int twice = 0; twice < 2; twice++) {
            begin(1);
            for (int r = 1; r < world; r++) {
                if (r == 3) continue;
                if (r % 2) cut(r, 3);
                else cut(3, r);
                if (twice) cut(r, 3);
            }
            assert_int_equal(choose(), 1);
            assert_int_equal(lost[0], 3);
        }
    /* But not where its loss ends the run, and the others' does not. */
    begin(3);
    for (int r = 1; r < 8; r++)
        if (r != 3) cut(r, 3);
    assert_int_equal(choose(), 6);
    for (int i = 0; i < 6; i++) assert_int_not_equal(lost[i], 3);
}

/* A wall with rank 0 on one side: the other side goes, though it is the larger. */
static void of_a_wall_the_side_without_rank0(void **state) {
    (void)state;
    begin(-1);
    for (int a = 0; a < 3; a++)
        for (int b = 3; b < 9; b++) cut(a, b);
    assert_int_equal(choose(), 6);
    for (int i = 0; i < 6; i++) assert_int_equal(lost[i], 3 + i);
}

static uint64_t cost_of(const uint16_t *set, int count) {
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum += cost[set[i]];
    return sum;
}
static bool covers(unsigned set) {
    for (int i = 0; i < pairs; i++)
        if (!(set >> pair[i].a & 1) && !(set >> pair[i].b & 1)) return false;
    return true;
}

static void it_is_the_best_of_all_sets(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 3);
        const int world = 2 + (int)echi_random_below(&r, 9), wanted = 1 + (int)echi_random_below(&r, 20);
        begin(-1);
        for (int i = 1; i < world; i++) {
            const uint32_t kind = echi_random_below(&r, 4);
            cost[i] = kind == 0 ? OWNER : kind == 1 ? NEEDED : WORKER;
        }
        for (int i = 0; i < wanted; i++) {
            const int a = (int)echi_random_below(&r, (uint32_t)world), b = (int)echi_random_below(&r, (uint32_t)world);
            if (a != b) cut(a, b);
        }
        uint64_t least = UINT64_MAX;
        for (unsigned set = 0; set < 1u << world; set++) {
            uint64_t sum = 0;
            for (int i = 0; i < world; i++) sum += set >> i & 1 ? cost[i] : 0;
            if (sum < least && covers(set)) least = sum;
        }
        const int count = choose();
        unsigned set = 0;
        for (int i = 0; i < count; i++) {
            assert_true(i == 0 || lost[i] > lost[i - 1]);
            set |= 1u << lost[i];
        }
        assert_true(covers(set));
        assert_true(cost_of(lost, count) == least);
    }
}

/* As large as it can be: it ends, and no pair is left. */
static void however_many_pairs_it_ends(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct echi_random r;
        bool gone[64] = {false};
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 4);
        begin(-1);
        for (int a = 0; a < 64; a++)
            for (int b = 0; b < a; b++)
                if (echi_random_below(&r, 20) < seed) cut(a, b);
        const int count = choose();
        for (int i = 0; i < count; i++) gone[lost[i]] = true;
        for (int i = 0; i < pairs; i++) assert_true(gone[pair[i].a] || gone[pair[i].b]);
        assert_false(gone[0]);
    }
    /* More ranks than fit: those that do not are left for the next choice, and the choices come to an end. */
    begin(-1);
    for (int i = 0; i < 200; i++) cut(2 * i, 2 * i + 1);
    for (int rounds = 0; pairs > 0; rounds++) {
        const int count = choose();
        assert_true(count > 0 && rounds < 200);
        int left = 0;
        for (int i = 0; i < pairs; i++) {
            bool is_gone = false;
            for (int k = 0; k < count; k++) is_gone = is_gone || pair[i].a == lost[k] || pair[i].b == lost[k];
            if (!is_gone) pair[left++] = pair[i];
        }
        pairs = left;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_without_a_pair),   cmocka_unit_test(of_two_the_one_that_can_be_lost),
        cmocka_unit_test(of_a_star_its_middle),             cmocka_unit_test(of_a_wall_the_side_without_rank0),
        cmocka_unit_test(it_is_the_best_of_all_sets),       cmocka_unit_test(however_many_pairs_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
