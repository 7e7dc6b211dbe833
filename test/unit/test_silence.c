/* SPDX-License-Identifier: Apache-2.0
 * Who is lost that only says nothing, in simulated time: peers steady, slow and dying; a judge that is late, stopped, or
 * whose clock jumps. */
#include "echi_random.h"
#include "echi_silence.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define ROUND (200 * MS)      /* how long a round of the judge's loop is planned to take */

/* A judge and one peer. The peer says a word every `every`, and what it says while the judge is away waits for it. */
static struct echi_fair fair;
static struct echi_patience patience;
static struct echi_silence silence;
static int64_t real, next_word;

static void begin(int64_t deadline) {
    real = 12345 * SECOND;
    patience = echi_patience_of(deadline);
    echi_fair_begin(&fair, real);
    echi_silence_begin(&silence, &patience, fair.now);
    next_word = real;
}

static int64_t quiet(void) { return fair.now - silence.since; }
static bool lost(void) { return quiet() > echi_silence_bound(&silence, &patience); }

/* One round that took `took`; what was said by its end is heard, then the peer is judged. */
static bool round_of(int64_t took, int64_t every) {
    real += took;
    echi_fair_check(&fair, real, ROUND);
    if (every > 0 && next_word <= real) {
        echi_silence_word(&silence, &patience, fair.now);
        while (next_word <= real) next_word += every;
    }
    return lost();
}

/* So many seconds of rounds of `took`; true when the peer was taken for lost in one of them. */
static bool rounds(int64_t length, int64_t took, int64_t every) {
    const int64_t end = real + length;
    bool ever = false;
    while (real < end) ever = round_of(took, every) || ever;
    return ever;
}

/* Fair time until a peer that says nothing any more is lost. */
static int64_t until_lost(int64_t took) {
    const int64_t began = silence.since;
    for (int i = 0; i < 100000; i++)
        if (round_of(took, 0)) return fair.now - began;
    return INT64_MAX;
}

static void a_new_peer_has_the_whole_deadline(void **state) {
    (void)state;
    for (int64_t deadline = 10 * MS; deadline < 1000 * SECOND; deadline *= 3) {
        begin(deadline);
        assert_int_equal(patience.beat, deadline / 10);
        assert_true(patience.least > 2 * patience.beat && patience.least < patience.most);
        assert_int_equal(echi_silence_bound(&silence, &patience), deadline);
        const int64_t step = deadline / 100, lost_at = until_lost(step);
        assert_true(lost_at > deadline && lost_at <= deadline + step);
    }
}

/* Two heartbeats and the floor; found sooner than a peer of whom nothing is known. */
static void a_steady_peer_that_dies_is_found_sooner(void **state) {
    (void)state;
    static const int64_t every[] = {MS, 100 * MS, SECOND};
    for (int i = 0; i < 3; i++) {
        begin(10 * SECOND);
        assert_false(rounds(120 * SECOND, every[i] < 50 * MS ? MS : 50 * MS, every[i]));
        assert_int_equal(echi_silence_bound(&silence, &patience), patience.least);
        const int64_t lost_at = until_lost(50 * MS);
        assert_true(lost_at > patience.least && lost_at <= patience.least + 50 * MS);
    }
}

/* Who has always taken its time is given it; but never more than the deadline. */
static void a_slow_steady_peer_lives(void **state) {
    (void)state;
    begin(10 * SECOND);
    assert_false(rounds(600 * SECOND, 100 * MS, 5 * SECOND));   /* longer than `least` */
    const int64_t bound = echi_silence_bound(&silence, &patience);
    assert_true(bound > 5 * SECOND && bound < patience.most);
    assert_true(until_lost(100 * MS) <= bound + 100 * MS);
    begin(10 * SECOND);
    assert_false(rounds(600 * SECOND, 100 * MS, 10 * SECOND));  /* it is on the edge, and the edge stays where it is */
    assert_int_equal(echi_silence_bound(&silence, &patience), patience.most);
    begin(10 * SECOND);
    assert_true(rounds(60 * SECOND, 100 * MS, 11 * SECOND));
}

/* Words in bursts: the pauses count, not the many short gaps. And how far they are spread, both ways. */
static void what_is_learned_are_the_pauses(void **state) {
    (void)state;
    begin(10 * SECOND);
    echi_fair_check(&fair, real, SECOND);
    for (int burst = 0; burst < 200; burst++)
        for (int word = 0; word < 11; word++) {
            real += word == 0 ? 700 * MS : 30 * MS;
            echi_fair_check(&fair, real, SECOND);
            echi_silence_word(&silence, &patience, fair.now);
        }
    assert_in_range(silence.mean, 690 * MS, 701 * MS);
    begin(30 * SECOND);
    for (int word = 0; word < 2000; word++) {
        real += word % 2 ? 4 * SECOND : 10 * SECOND;
        echi_fair_check(&fair, real, 20 * SECOND);
        echi_silence_word(&silence, &patience, fair.now);
    }
    assert_in_range(silence.mean, 6500 * MS, 7500 * MS);
    assert_in_range(silence.deviation, 2700 * MS, 3300 * MS);
}

/* Stalls that come now and then are learned from the first, which is short enough, and remembered for the next. */
static void stalls_are_remembered(void **state) {
    (void)state;
    begin(10 * SECOND);
    assert_false(rounds(120 * SECOND, 50 * MS, 100 * MS));
    const int64_t calm = echi_silence_bound(&silence, &patience);
    for (int stall = 0; stall < 3; stall++) {
        next_word = real + 3900 * MS;
        assert_false(rounds(4 * SECOND, 50 * MS, 100 * MS));
        assert_false(rounds(10 * SECOND, 50 * MS, 100 * MS));
    }
    const int64_t after = echi_silence_bound(&silence, &patience);
    assert_true(after > calm);
    next_word = real + after - 100 * MS;
    assert_false(rounds(after, 50 * MS, 100 * MS));
    assert_false(rounds(600 * SECOND, 50 * MS, 100 * MS));
    assert_int_equal(echi_silence_bound(&silence, &patience), calm);   /* and forgotten at last */
}

/* The judge is away, for whatever reason: that is nobody's silence. */
static void a_late_judge_accuses_nobody(void **state) {
    (void)state;
    begin(10 * SECOND);
    assert_false(rounds(120 * SECOND, 50 * MS, 100 * MS));
    assert_false(round_of(3600 * SECOND, 100 * MS));            /* stopped for an hour; the peer went on */
    assert_true(quiet() == 0);
    const int64_t before = quiet();
    assert_false(round_of(3600 * SECOND, 0));                   /* and the peer was stopped with it: the whole machine slept */
    assert_true(quiet() - before <= ROUND);
    assert_true(fair.late_most == 3600 * SECOND - ROUND);
    /* A judge that is always late is slow to judge, but judges: of each round only what was planned counts. */
    begin(10 * SECOND);
    const int64_t lost_at = until_lost(SECOND);
    assert_true(lost_at > patience.most && lost_at <= patience.most + ROUND);
}

/* Load on the judge's host: rounds of any length, most short, some of seconds. A living peer is never lost, a dead one always. */
static void a_loaded_judge(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 90);
        begin(10 * SECOND);
        for (int i = 0; i < 3000; i++) {
            const int64_t took = (int64_t)echi_random_below(&r, 10) == 0 ? echi_random_below(&r, 20000) * MS
                                                                         : echi_random_below(&r, 300) * MS;
            if (round_of(took, patience.beat))
                fail_msg("seed %u: a living peer was lost in round %d, of %lld ms", seed, i, (long long)(took / MS));
        }
        const int64_t bound = echi_silence_bound(&silence, &patience);
        int64_t lost_at = 0;
        for (int i = 0; i < 10000 && lost_at == 0; i++)
            if (round_of(echi_random_below(&r, 2000) * MS, 0)) lost_at = quiet();
        if (lost_at <= bound - 1 || lost_at > bound + ROUND)
            fail_msg("seed %u: lost after %lld of %lld ns", seed, (long long)lost_at, (long long)bound);
    }
}

/* A clock that jumps forth is a late judge; one that jumps back makes nobody older and nobody immortal. */
static void a_jumping_clock(void **state) {
    (void)state;
    static const int64_t jump[] = {-SECOND, SECOND, -86400 * SECOND, 86400 * SECOND, -400 * 86400 * SECOND, 400 * 86400 * SECOND};
    for (int j = 0; j < 6; j++) {
        begin(10 * SECOND);
        assert_false(rounds(60 * SECOND, 50 * MS, 100 * MS));
        const int64_t before = fair.now;
        next_word += jump[j];
        assert_false(round_of(jump[j], 100 * MS));
        assert_true(fair.now >= before && fair.now - before <= ROUND);
        assert_false(rounds(60 * SECOND, 50 * MS, 100 * MS));
        const int64_t bound = echi_silence_bound(&silence, &patience);
        round_of(jump[j], 0);
        const int64_t lost_at = until_lost(50 * MS);
        assert_true(lost_at > bound && lost_at <= bound + ROUND + 50 * MS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_peer_has_the_whole_deadline), cmocka_unit_test(a_steady_peer_that_dies_is_found_sooner),
        cmocka_unit_test(a_slow_steady_peer_lives),          cmocka_unit_test(stalls_are_remembered),
        cmocka_unit_test(a_late_judge_accuses_nobody),       cmocka_unit_test(a_loaded_judge),
        cmocka_unit_test(a_jumping_clock),            cmocka_unit_test(what_is_learned_are_the_pauses),
    };
    return cmocka_run_group_tests_name("silence", tests, NULL, NULL);
}
