/* SPDX-License-Identifier: Apache-2.0
 * The team of threads: every part is done once, nobody's place is taken twice, what was written is seen; many small pieces of work, long
 * ones, callers that meet, idle ones that go home, and none that burns a processor while there is nothing to do. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_os.h"
#include "echi_team.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST_PARTS = 64, MOST_THREADS = 9 };

/* Work that counts: what each part has written, plainly, and who was at each place. */
struct counts {
    int done[MOST_PARTS];
    atomic_int here[MOST_THREADS];
    atomic_bool clash;
    int threads, spin;
};

static void count(void *args, int part, int place) {
    struct counts *c = args;
    if (place < 0 || place >= c->threads || atomic_fetch_add(&c->here[place], 1) != 0) atomic_store(&c->clash, true);
    for (volatile int i = 0; i < c->spin; i++) {}
    c->done[part]++;
    atomic_fetch_sub(&c->here[place], 1);
}

static void check_counts(const struct counts *c, int parts, int wanted) {
    for (int i = 0; i < MOST_PARTS; i++)
        if (c->done[i] != (i < parts ? wanted : 0))
            fail_msg("%d threads, %d parts: part %d was done %d times, not %d", c->threads, parts, i, c->done[i], wanted);
    if (atomic_load(&c->clash)) fail_msg("%d threads, %d parts: a place was used twice at a time", c->threads, parts);
}

static struct echi_team *team_of(int threads) {
    struct ech_error err;
    struct echi_team *team = NULL;
    assert_int_equal(echi_team_create(threads, &team, &err), ECH_OK);
    assert_int_equal(echi_team_threads(team), threads);
    assert_true((team == NULL) == (threads == 1));
    return team;
}

static void test_each_part_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        struct echi_team *team = team_of(threads);
        for (int parts = 0; parts <= MOST_PARTS; parts++) {
            struct counts c = {.threads = threads, .spin = parts * 10};
            echi_team_run(team, parts, count, &c);
            check_counts(&c, parts, 1);
        }
        echi_team_destroy(team);
    }
}

/* Tiny pieces, one at the heels of the other: the gate opens for the next while some are still on their way to the last. */
static void test_many_tiny(void **state) {
    (void)state;
    static const int threads[] = {2, 3, 7};
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        enum { TURNS = 5000 };
        struct echi_team *team = team_of(threads[t]);
        struct counts c = {.threads = threads[t]};
        for (int i = 0; i < TURNS; i++) echi_team_run(team, 2 + i % 2, count, &c);
        assert_int_equal(c.done[2], TURNS / 2);
        c.done[2] = TURNS;
        check_counts(&c, 3, TURNS);
        echi_team_destroy(team);
    }
}

/* With a pause before each, so that all workers look, offer their processor, are just falling asleep or asleep when work comes. Few threads
 * for the processors, and more, which do not look. */
static void test_wakes(void **state) {
    (void)state;
    for (int threads = 2; threads <= 3; threads++) {
        struct echi_team *team = team_of(threads);
        for (int i = 0; i < 200; i++) {
            struct counts c = {.threads = threads, .spin = 20000};
            echi_sleep_until(echi_now() + i * 5000);
            echi_team_run(team, 6, count, &c);
            check_counts(&c, 6, 1);
        }
        echi_team_destroy(team);
    }
}

/* The others do take part: with a part that waits until each place has been seen, nobody could finish alone. */
struct meeting { atomic_int seen; int threads; };
static void meet(void *args, int part, int place) {
    (void)part;
    (void)place;
    struct meeting *m = args;
    atomic_fetch_add(&m->seen, 1);
    while (atomic_load(&m->seen) < m->threads) sched_yield();
}
static void test_all_take_part(void **state) {
    (void)state;
    for (int threads = 2; threads <= 5; threads++) {
        struct echi_team *team = team_of(threads);
        for (int i = 0; i < 20; i++) {
            struct meeting m = {.threads = threads};
            if (i % 2) echi_sleep_until(echi_now() + 1000000);
            echi_team_run(team, threads, meet, &m);
        }
        echi_team_destroy(team);
    }
}

/* Callers that meet: one has the team, the others do theirs alone, at place 0 of their own. */
struct caller { struct echi_team *team; struct counts counts; struct echi_thread thread; };
enum { CALLERS = 3, CALLS = 2000 };
static void *call_often(void *arg) {
    struct caller *c = arg;
    for (int i = 0; i < CALLS; i++) echi_team_run(c->team, 5, count, &c->counts);
    return NULL;
}
static void test_callers_meet(void **state) {
    (void)state;
    struct echi_team *team = team_of(3);
    struct caller callers[CALLERS];
    memset(callers, 0, sizeof callers);
    for (int i = 0; i < CALLERS; i++) {
        callers[i].team = team;
        callers[i].counts.threads = 3;
        callers[i].counts.spin = 100 * i;
        assert_int_equal(echi_thread_start(&callers[i].thread, "caller", call_often, &callers[i], NULL), ECH_OK);
    }
    for (int i = 0; i < CALLERS; i++) echi_thread_join(&callers[i].thread);
    for (int i = 0; i < CALLERS; i++) check_counts(&callers[i].counts, 5, CALLS);
    echi_team_destroy(team);
}

/* Work inside of work is done alone. */
struct nest { struct echi_team *team; struct counts inner[4]; };
static void inner_work(void *args, int part, int place) {
    (void)place;
    struct nest *n = args;
    echi_team_run(n->team, 5, count, &n->inner[part]);
}
static void test_nested(void **state) {
    (void)state;
    struct nest n = {.team = team_of(4)};
    for (int i = 0; i < 4; i++) n.inner[i].threads = 1;
    echi_team_run(n.team, 4, inner_work, &n);
    for (int i = 0; i < 4; i++) check_counts(&n.inner[i], 5, 1);
    echi_team_destroy(n.team);
}

/* Teams that come and go, used or not, at once or after a while. */
static void test_comes_and_goes(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct echi_team *team = team_of(2 + i % 4);
        struct counts c = {.threads = 2 + i % 4};
        if (i % 3 == 1) echi_sleep_until(echi_now() + 200000);
        if (i % 3) echi_team_run(team, 7, count, &c);
        echi_team_destroy(team);
    }
    echi_team_destroy(NULL);
}

static int64_t processor_time(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64_C(1000000000) +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * INT64_C(1000);
}

/* Idle when idle: waiting costs no processor time, counted by the OS. One that looked round all the time would take a second. */
static void test_idle(void **state) {
    (void)state;
    static const int threads[] = {2, 5};
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        struct echi_team *team = team_of(threads[t]);
        struct counts c = {.threads = threads[t]};
        echi_team_run(team, 10, count, &c);
        echi_sleep_until(echi_now() + 50000000);
        const int64_t before = processor_time();
        echi_sleep_until(echi_now() + 1000000000);
        const int64_t used = processor_time() - before;
        if (used > 100000000)
            fail_msg("an idle team of %d took %lld us of processor time in a second", threads[t], (long long)used / 1000);
        echi_team_destroy(team);
    }
}

static void test_bounds(void **state) {
    (void)state;
    struct ech_error err;
    struct echi_team *team = NULL;
    assert_int_equal(echi_team_create(0, &team, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "0 threads"));
    assert_int_equal(echi_team_create(1025, &team, &err), ECH_E_ARGUMENT);
    assert_null(team);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_part_once), cmocka_unit_test(test_many_tiny),  cmocka_unit_test(test_wakes),
        cmocka_unit_test(test_all_take_part),  cmocka_unit_test(test_callers_meet), cmocka_unit_test(test_nested),
        cmocka_unit_test(test_comes_and_goes), cmocka_unit_test(test_idle),       cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
