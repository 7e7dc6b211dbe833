/* SPDX-License-Identifier: Apache-2.0
 * Clocks by message times: known offsets and drifts are found within the error that is stated, and that error is what a brute force over
 * all lines finds. */
#include "echi_random.h"
#include "echi_recording.h"
#include "part.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define SEEDS (400 / test_part())
enum { WORLD = 5, MESSAGES_MAX = 4000 };
#define SECOND INT64_C(1000000000)

/* ---- clocks that are known: time t, in ns, of the first one's */

static struct known { int64_t ahead; double ppm; } truth[WORLD];
static int64_t shows(int rank, double t) {
    return truth[rank].ahead + (int64_t)floor(t * (1 + truth[rank].ppm * 1e-6));
}

/* ---- messages between them, kept for the brute force */

static struct sent { int from, to; int64_t sent, came; } message[MESSAGES_MAX];
static int messages;
static struct echi_clocks *clocks;
static struct echi_clock found[WORLD];

static void say(int from, int to, double at, double delay) {
    assert_true(messages < MESSAGES_MAX);
    struct sent *m = &message[messages++];
    *m = (struct sent){from, to, shows(from, at), shows(to, at + delay)};
    assert_true(echi_clocks_message(clocks, from, to, m->sent, m->came));
}

static struct echi_random rnd;
static double uniform(void) { return echi_random_unit(&rnd); }
static int64_t whole(double most) { return (int64_t)(uniform() * most); }

static void begin(uint64_t seed, int world) {
    echi_random_init(&rnd, seed, ECHI_STREAM_TEST, 77);
    echi_clocks_destroy(clocks);
    assert_non_null(clocks = echi_clocks_create(world));
    messages = 0;
    truth[0] = (struct known){SECOND * 100, 0};
    for (int r = 1; r < world; r++) truth[r] = (struct known){whole(1e15), uniform() * 200 - 100};
}

static void find(int world, double length) {
    for (int r = 0; r < world; r++) {
        found[r].first = shows(r, 0);
        found[r].last = shows(r, length);
    }
    echi_clocks_estimate(clocks, found);
}

/* What is said of a moment is off by no more than the error that is stated. */
static void right(int rank, double length) {
    const struct echi_clock *c = &found[rank];
    const double error = echi_clock_error(c);
    assert_true(c->bounded && c->messages && error >= 0 && c->misses == 0);
    for (int i = 0; i <= 10; i++) {
        const double t = length * i / 10, off = fabs((double)(echi_clock_on_zero(c, shows(rank, t)) - shows(0, t)));
        if (off > error + 2) fail_msg("rank %d at %g of %g s: %g ns off, %g are stated", rank, t * 1e-9, length * 1e-9, off, error);
    }
    const double drift = 1e6 * echi_clock_drift(c), off = fabs(drift - truth[rank].ppm);
    if (off > 1e6 * (c->error_first + c->error_last + 4) / length)
        fail_msg("drift of rank %d: %g ppm for %g", rank, drift, truth[rank].ppm);
}

/* Of some of a run's messages each pair of nodes has both ways; delays have a least and a long tail, and each way its own. */
static void talk(int a, int b, int count, double length) {
    const double least[2] = {2e4 + uniform() * 5e5, 2e4 + uniform() * 5e5};
    for (int i = 0; i < count; i++) {
        const int way = i % 2;
        const double jitter = -log(1 - uniform()) * 3e5;
        const double at = uniform() * (length - 2e7);
        say(way ? b : a, way ? a : b, at, fmin(least[way] + jitter, 1.9e7));
    }
}

/* ---- the tests ---- */

/* Rank 1 is a second ahead and 40 ppm fast; one way takes 3 times as long as the other. */
static void an_offset_and_a_drift_are_found(void **state) {
    (void)state;
    begin(1, 2);
    truth[1] = (struct known){truth[0].ahead + SECOND, 40};
    const double length = 60e9;
    for (int i = 0; i < 1200; i++) {
        const double at = 1e6 + i * (length - 2e6) / 1200, jitter = -log(1 - uniform()) * 1e5;
        say(i % 2, !(i % 2), at, (i % 2 ? 3e5 : 1e5) + fmin(jitter, 5e5));
    }
    find(2, length);
    right(1, length);
    /* Half a round trip is 200 us; what is not known is how that is divided. */
    assert_true(echi_clock_error(&found[1]) < 2.3e5 && echi_clock_error(&found[1]) > 1.5e5);
    assert_true(fabs(1e6 * echi_clock_drift(&found[1]) - 40) < 2);
    assert_true(fabs((double)(found[1].first - found[1].zero - SECOND)) < 2.3e5);
    assert_true(found[0].zero == found[0].first && echi_clock_error(&found[0]) == 0 && echi_clock_drift(&found[0]) == 0);
}

static void any_clocks_are_within_their_error(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed, WORLD);
        const double length = 1e8 * pow(10, 4 * uniform());   /* 0.1 s to 1,000 s */
        for (int r = 1; r < WORLD; r++) talk(0, r, 4 + (int)whole(900), length);
        find(WORLD, length);
        for (int r = 1; r < WORLD; r++) {
            right(r, length);
            assert_int_equal(found[r].through, 0);
        }
    }
}

/* Every line through two bounds, or through one with the steepest slope that clocks may have, that no bound forbids: where they end. */
static void brute(int rank, double length, double *first, double *last) {
    static struct { double x, y; bool lower; } b[MESSAGES_MAX];
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    const int64_t base = shows(0, 0) - shows(rank, 0);
    int n = 0;
    for (int i = 0; i < messages; i++) {
        const struct sent *m = &message[i];
        const bool lower = m->to == rank;
        const int64_t own = lower ? m->came : m->sent, zero = lower ? m->sent : m->came;
        b[n].x = (double)(own - found[rank].first);
        b[n].lower = lower;
        b[n++].y = (double)(zero - own - base) + (lower ? -1 : 1);
    }
    for (int i = 0; i < n; i++)
        for (int k = i - 2; k < n; k++) {
            if (k == i) continue;
            const int from = k < i ? k - i : k;   /* -2, -1: with either slope */
            if (from >= 0 && b[i].x == b[k].x) continue;
            const double slope = k < i ? (k == i - 1 ? 1e-3 : -1e-3) : (b[k].y - b[i].y) / (b[k].x - b[i].x);
            bool fits = fabs(slope) <= 1e-3;
            for (int j = 0; j < n && fits; j++) {
                const double at = b[i].y + slope * (b[j].x - b[i].x);
                fits = b[j].lower ? at >= b[j].y - 1e-3 : at <= b[j].y + 1e-3;
            }
            if (!fits) continue;
            const double end[2] = {b[i].y - slope * b[i].x, b[i].y + slope * (length - b[i].x)};
            for (int e = 0; e < 2; e++) {
                low[e] = fmin(low[e], end[e]);
                high[e] = fmax(high[e], end[e]);
            }
        }
    *first = (high[0] - low[0]) / 2;
    *last = (high[1] - low[1]) / 2;
}

static void the_error_is_that_of_brute_force(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS / 4 + 1; seed++) {
        double first, last;
        begin(seed, 2);
        const double length = 5e7 * pow(10, 3 * uniform());
        talk(0, 1, 2 + (int)whole(60), length);
        find(2, length);
        right(1, length);
        brute(1, (double)(found[1].last - found[1].first), &first, &last);
        if (fabs(found[1].error_first - first) > 1e-3 * first + 0.1 || fabs(found[1].error_last - last) > 1e-3 * last + 0.1)
            fail_msg("seed %d: %g and %g ns for %g and %g", (int)seed, found[1].error_first, found[1].error_last, first, last);
    }
}

/* No message is there before it was sent, on the one clock: with rank 0 never, between others by their errors at most. */
static void no_message_goes_back_in_time(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed, WORLD);
        const double length = 1e9 + uniform() * 1e11;
        for (int r = 1; r < WORLD; r++) talk(0, r, 30 + (int)whole(400), length);
        talk(1, 2, 200, length);
        find(WORLD, length);
        for (int i = 0; i < messages; i++) {
            const struct sent *m = &message[i];
            const struct echi_clock *a = &found[m->from], *b = &found[m->to];
            const double back = (double)(echi_clock_on_zero(a, m->sent) - echi_clock_on_zero(b, m->came));
            const double may = m->from == 0 || m->to == 0 ? 2 : echi_clock_error(a) + echi_clock_error(b) + 2;
            if (back > may) fail_msg("seed %d: %d to %d: %g ns back, %g", (int)seed, m->from, m->to, back, may);
        }
    }
}

/* 0 - 1 - 2 - 3, and 4 by 2 or by 3, whichever says it better. */
static void clocks_are_found_through_others(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed, WORLD);
        const double length = 1e9 + uniform() * 1e11;
        for (int r = 0; r < 3; r++) talk(r, r + 1, 100 + (int)whole(300), length);
        talk(1, 4, 40, length);
        find(WORLD, length);
        for (int r = 1; r < WORLD; r++) right(r, length);
        assert_true(found[1].through == 0 && found[2].through == 1 && found[3].through == 2 && found[4].through == 1);
        for (int r = 2; r < WORLD; r++) {   /* what is not known of one is not known of the other either */
            const struct echi_clock *by = &found[found[r].through];
            assert_true(found[r].error_first > by->error_first && found[r].error_last > by->error_last);
        }
    }
}

/* Of several on the way, the one with the least error. */
static void the_better_way_is_taken(void **state) {
    (void)state;
    for (int better = 1; better <= 2; better++) {
        begin(9, 4);
        const double length = 1e10;
        for (int i = 0; i < 400; i++)
            for (int k = 1; k <= 2; k++) {
                const double at = 1e6 + i * 2e7;
                say(i % 2 ? 0 : k, i % 2 ? k : 0, at, k == better ? 1e5 : 3e6);
                say(i % 2 ? k : 3, i % 2 ? 3 : k, at, 2e5);
            }
        find(4, length);
        right(3, length);
        assert_int_equal(found[3].through, better);
    }
}

static void one_way_is_no_bound(void **state) {
    (void)state;
    for (int back = 0; back < 2; back++) {
        begin(5, 4);
        for (int i = 0; i < 100; i++) say(back, !back, i * 1e7, 1e5 + (i % 7) * 1e4);
        for (int i = 0; i < 100; i++) say(1 + i % 2, 2 - i % 2, i * 1e7, 1e5);
        find(4, 2e9);
        assert_true(found[1].through == 0 && !found[1].bounded && echi_clock_error(&found[1]) == -1);
        /* The fastest took no time: so much it is off, but for what drifts. */
        const double off = fabs((double)(found[1].zero - shows(0, 0)));
        assert_true(off < 1e5 + 2 + 2e9 * 1e-4);
        /* Through it, neither. */
        assert_true(found[2].through == 1 && !found[2].bounded && echi_clock_error(&found[2]) == -1);
        /* Nobody has a message of rank 3. */
        assert_true(found[3].through == -1 && !found[3].messages && found[3].zero == found[0].first && echi_clock_error(&found[3]) == -1);
    }
}

/* What a clock shows is up to a nanosecond old: messages that take no time contradict each other by so much, and are no reason to say so.
 * Of several that were sent at once the fastest counts, whichever was told first. */
static void a_reading_is_of_whole_nanoseconds(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed, 2);
        const double length = 1e9;
        for (int i = 0; i < 300; i++) {
            const double at = i * 3e6 + uniform();
            if (seed % 2) say(i % 2, !(i % 2), at, 1e6);
            say(i % 2, !(i % 2), at, 0);
            if (seed % 2 == 0) say(i % 2, !(i % 2), at, 1e6);
        }
        find(2, length);
        right(1, length);
        assert_true(echi_clock_error(&found[1]) < 2);
    }
}

/* Set by 10 ms in the middle: no line fits, and the best misses by nearly half of that on either side. */
static void a_clock_that_was_set_is_told(void **state) {
    (void)state;
    begin(3, 2);
    const double length = 2e10;
    for (int i = 0; i < 1000; i++) {
        if (i == 500) truth[1].ahead += 10000000;
        say(i % 2, !(i % 2), 1e6 + i * 1.9e7, 5e4);
    }
    truth[1].ahead -= 10000000;
    find(2, length);
    /* The line of the least error through a step of 10 ms, of at most so much slope, misses by a quarter of it; the band is 50 us wide. */
    if (found[1].misses < 1.2e6 || found[1].misses > 5e6) fail_msg("misses by %g ns", found[1].misses);
    assert_true(echi_clock_error(&found[1]) >= found[1].misses);
}

/* As long as time is, and none: numbers stay numbers (sanitizers watch). */
static void any_times_are_taken(void **state) {
    (void)state;
    static const int64_t time[] = {0, 1, SECOND, INT64_C(1) << 53, INT64_C(1) << 59, (INT64_C(1) << 60) - 1, INT64_C(1) << 60};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed, WORLD);
        for (int i = 0; i < 300; i++) {
            const int from = (int)whole(WORLD), to = (from + 1 + (int)whole(WORLD - 1)) % WORLD;
            const int64_t sent = time[whole(7)] , came = time[whole(7)];
            assert_true(echi_clocks_message(clocks, from, to, sent, came));
        }
        for (int r = 0; r < WORLD; r++) {
            found[r].first = time[whole(3)];
            found[r].last = time[3 + whole(4)];
        }
        echi_clocks_estimate(clocks, found);
        for (int r = 0; r < WORLD; r++) {
            const int64_t first = echi_clock_on_zero(&found[r], found[r].first), last = echi_clock_on_zero(&found[r], found[r].last);
            assert_true(first <= last && isfinite(echi_clock_error(&found[r])) && isfinite(echi_clock_drift(&found[r])));
        }
    }
}

/* Each clock 36 years ahead of the one before, or behind: the sum of all is no number of nanoseconds. */
static void clocks_far_apart_stay_numbers(void **state) {
    (void)state;
    enum { CHAIN = 40 };
    static struct echi_clock far[CHAIN];
    const int64_t most = INT64_C(1) << 60;
    for (int behind = 0; behind < 2; behind++) {
        echi_clocks_destroy(clocks);
        assert_non_null(clocks = echi_clocks_create(CHAIN));
        for (int r = 0; r < CHAIN; r++) {
            far[r].first = 0;
            far[r].last = most;
            if (r + 1 == CHAIN) break;
            assert_true(echi_clocks_message(clocks, r, r + 1, behind ? most : 0, behind ? 0 : most));
            assert_true(echi_clocks_message(clocks, r + 1, r, behind ? 0 : most, behind ? most : 0));
        }
        echi_clocks_estimate(clocks, far);
        for (int r = 0; r < CHAIN; r++) {
            const int64_t first = echi_clock_on_zero(&far[r], 0), last = echi_clock_on_zero(&far[r], most);
            assert_true(first >= -most && first <= most && last > first);
        }
        assert_true(far[1].through == 0 && far[CHAIN - 1].through == CHAIN - 2);
    }
}

/* More corners than are kept: still bounds, of a clock that is within them. */
static void of_many_corners_some_are_kept(void **state) {
    (void)state;
    begin(4, 2);
    for (int i = 0; i < MESSAGES_MAX; i++) {
        const double along = (i / 2) / (MESSAGES_MAX / 2.0) - 0.5;
        say(i % 2, !(i % 2), 1e6 + (i / 2) * 1e6, 1e5 + 1e7 * along * along);   /* a parabola: each is one */
    }
    find(2, MESSAGES_MAX / 2 * 1e6 + 1e7);
    right(1, MESSAGES_MAX / 2 * 1e6 + 1e7);
    /* The steepest line between 1e5 + 1e7 a^2 and its mirror image goes through 0 and has the slope 2e6: at a = 1/2 that is 1e6. */
    if (fabs(echi_clock_error(&found[1]) - 1e6) > 3e4) fail_msg("%g ns", echi_clock_error(&found[1]));
}

static int forget(void **state) {
    (void)state;
    echi_clocks_destroy(clocks);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_offset_and_a_drift_are_found), cmocka_unit_test(any_clocks_are_within_their_error),
        cmocka_unit_test(the_error_is_that_of_brute_force), cmocka_unit_test(no_message_goes_back_in_time),
        cmocka_unit_test(clocks_are_found_through_others), cmocka_unit_test(the_better_way_is_taken),
        cmocka_unit_test(one_way_is_no_bound), cmocka_unit_test(a_reading_is_of_whole_nanoseconds),
        cmocka_unit_test(a_clock_that_was_set_is_told),
        cmocka_unit_test(any_times_are_taken), cmocka_unit_test(clocks_far_apart_stay_numbers),
        cmocka_unit_test(of_many_corners_some_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
