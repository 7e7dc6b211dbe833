/* SPDX-License-Identifier: Apache-2.0
 * The simulator's queue and cost engine, against sorting, against closed formulas, and against brute force: a lane stepped unit by
 * unit and shared cores stepped nanosecond by nanosecond. */
#include "echi_cost.h"
#include "echi_events.h"
#include "echi_hosts.h"
#include "echi_random.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define NS 1e9

/* ------------------------------------------------------------- the queue */

static int by_time_then_order(const void *a, const void *b) {
    const struct echi_due *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* All memory is the caller's. This supply counts the blocks that are out, and ends after so many. */
static int blocks_out, blocks_left = INT_MAX;
static void *counted(void *self, void *block, size_t size) {
    (void)self;
    if (size == 0) {
        blocks_out--;
        free(block);
        return NULL;
    }
    if (blocks_left == 0) return NULL;
    blocks_left--;
    void *const made = realloc(block, size);
    blocks_out += made && !block;
    return made;
}
static const struct echi_supply supply = {counted, NULL};

/* Adds and takes in random turns: what comes out is what a sorted list would give. */
static void heap_is_a_sorted_list(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 7, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 60; run++) {
        struct echi_events events = {.supply = supply};
        static struct echi_due list[600];
        size_t n = 0;
        uint64_t added = 0;
        const uint32_t times = 1 + echi_random_below(&random, 40);   /* few: many ties */
        for (int i = 0; i < 1500; i++) {
            if (n < 600 && echi_random_below(&random, 100) < (i % 400 < 250 ? 70u : 30u)) {
                const struct echi_due due = {echi_random_below(&random, times), added++, (uint32_t)i, 3, 9};
                assert_true(echi_events_add(&events, due.at, due.kind, due.who, due.what));
                list[n++] = due;
                continue;
            }
            struct echi_due got;
            assert_int_equal(echi_events_take(&events, &got), n > 0);
            if (n == 0) continue;
            qsort(list, n, sizeof list[0], by_time_then_order);
            assert_memory_equal(&got, &list[0], sizeof got);
            memmove(&list[0], &list[1], --n * sizeof list[0]);
        }
        echi_events_free(&events);
    }
}

/* ------------------------------------------------------------- small worlds */

static struct echi_host host[64];
static struct echi_hosts hosts;
static struct echi_cost *cost;

static void open_hosts(int count) {
    hosts = (struct echi_hosts){.count = count, .host = host};
    for (int h = 0; h < count; h++) host[h] = (struct echi_host){.speed = 1, .cores = -1, .dies = -1, .joins = -1};
}
static void open_engine(struct echi_cost_io io) {
    cost = echi_cost_create(&hosts, io, NULL, 11, supply);
    assert_non_null(cost);
}
static void close_engine(void) {
    assert_false(echi_cost_failed(cost));
    echi_cost_destroy(cost);
    cost = NULL;
    assert_int_equal(blocks_out, 0);
}

struct seen { struct echi_happening what; int64_t at; };
static struct seen seen[4096];
static int n_seen;
/* Runs until nothing is due; times count from the beginning, which is 1. */
static void run_all(void) {
    n_seen = 0;
    while (echi_cost_next(cost, &seen[n_seen].what)) {
        seen[n_seen++].at = echi_cost_now(cost) - 1;
        assert_true(n_seen < 4096);
    }
}
static int64_t when(enum echi_happening_type type, uint64_t cookie) {
    for (int i = 0; i < n_seen; i++)
        if (seen[i].what.type == type && seen[i].what.cookie == cookie) return seen[i].at;
    return -1;
}
static void assert_near(int64_t got, double expected_ns, double slack) {
    if (fabs((double)got - expected_ns) > slack) fail_msg("%lld ns, expected %.1f", (long long)got, expected_ns);
}
static void compute(int h, double seconds, int urgency, const struct echi_work_shape *shape, uint64_t cookie) {
    const struct echi_work w = {.seconds = seconds, .urgency = urgency, .shape = shape, .cookie = cookie};
    echi_cost_compute(cost, h, &w);
}

/* ------------------------------------------------------------------- links */

/* n messages over one way out: the sum of bytes / rate; the last comes in right behind it. */
static void one_way_out_is_a_queue(void **state) {
    (void)state;
    open_hosts(2);
    host[0].rate = host[1].rate = 1e8;
    host[0].delay = 0.003;
    host[1].delay = 0.002;
    open_engine((struct echi_cost_io){0});
    double sum = 0;
    for (uint64_t i = 0; i < 20; i++) {
        const uint64_t bytes = 1000 + 777 * i;
        echi_cost_send(cost, 0, 1, 4, bytes, 0, i);
        sum += (double)bytes;
    }
    run_all();
    assert_near(when(ECHI_HAPPENS_SENT, 19), sum / 1e8 * NS, 20);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 19), (sum / 1e8 + 0.005) * NS, 20);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 0), (1000 / 1e8 + 0.005) * NS, 2);
    for (uint64_t i = 1; i < 20; i++) assert_true(when(ECHI_HAPPENS_ARRIVED, i) > when(ECHI_HAPPENS_ARRIVED, i - 1));
    close_engine();
}

/* Many to one: the receiver's way in is the bottleneck, whether senders are as fast as it, faster, or much slower. */
static void one_way_in_is_a_queue(void **state) {
    (void)state;
    static const double rates[] = {1e8, 1e9, 2e7, 0};
    for (size_t k = 0; k < sizeof rates / sizeof rates[0]; k++) {
        open_hosts(17);
        for (int h = 1; h < 17; h++) host[h].rate = rates[k];
        host[0].rate = 1e8;
        open_engine((struct echi_cost_io){0});
        for (uint64_t h = 1; h < 17; h++) echi_cost_send(cost, (int)h, 0, 4, 250000, 0, h);
        run_all();
        int64_t last = 0, first = INT64_MAX;
        for (uint64_t h = 1; h < 17; h++) {
            const int64_t at = when(ECHI_HAPPENS_ARRIVED, h);
            if (at > last) last = at;
            if (at < first) first = at;
        }
        const double alone = 250000 / 1e8, out = rates[k] > 0 ? 250000 / rates[k] : 0;
        const double begins = out > alone ? out - alone : 0;
        assert_near(last, (begins + 16 * alone) * NS, 40);
        assert_near(first, (begins + alone) * NS, 40);
        close_engine();
    }
}

/* A sender that is slow does not occupy a fast way in while it sends. */
static void slow_senders_share_a_fast_way_in(void **state) {
    (void)state;
    open_hosts(3);
    host[0].rate = 1e9;
    host[1].rate = 1e6;
    host[2].rate = 1e9;
    open_engine((struct echi_cost_io){0});
    echi_cost_send(cost, 1, 0, 4, 1000000, 0, 1);   /* takes a second */
    echi_cost_send(cost, 2, 0, 4, 1000000, 0, 2);   /* takes a millisecond */
    run_all();
    assert_near(when(ECHI_HAPPENS_ARRIVED, 2), 1e6, 10);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 1), 1e9, 10);
    close_engine();
}

/* The more urgent goes first at the end of the chunk in hand; what gave way takes no longer in all. */
static void urgent_messages_go_first(void **state) {
    (void)state;
    open_hosts(2);
    host[0].rate = 65536e3;   /* a chunk a millisecond */
    open_engine((struct echi_cost_io){0});
    echi_cost_send(cost, 0, 1, 4, 10 * 65536, 0, 1);
    echi_cost_send(cost, 0, 1, 4, 65536, 0, 2);
    echi_cost_send(cost, 0, 1, 0, 65536 / 4, 1 + 2500000, 3);   /* in the third chunk */
    run_all();
    assert_near(when(ECHI_HAPPENS_SENT, 3), 3.25e6, 10);
    assert_near(when(ECHI_HAPPENS_SENT, 1), 10.25e6, 10);
    assert_near(when(ECHI_HAPPENS_SENT, 2), 11.25e6, 10);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 1), 10.25e6, 10);
    close_engine();
}

/* On a crowded way in what is most urgent waits for what a switch holds, and no longer; in its order, and nobody gains by it. */
static void urgent_messages_pass_a_crowd(void **state) {
    (void)state;
    open_hosts(12);
    for (int h = 0; h < 12; h++) host[h].rate = 1e8;
    open_engine((struct echi_cost_io){0});
    for (uint64_t h = 1; h < 11; h++) echi_cost_send(cost, (int)h, 0, 4, 1000000, 0, h);   /* 100 ms */
    for (uint64_t i = 0; i < 3; i++) echi_cost_send(cost, 11, 0, 0, 1000, 1 + 15000000, 100 + i);
    echi_cost_send(cost, 11, 0, 4, 1000, 1 + 15000000, 200);
    run_all();
    for (uint64_t i = 0; i < 3; i++) assert_near(when(ECHI_HAPPENS_ARRIVED, 100 + i), 15e6 + 262144 / 1e8 * NS + (double)(i + 1) * 1e4, 10);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 10), 100e6, 10);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 200), 100.04e6, 10);
    close_engine();
    /* The processor takes them when they are there, and not behind what is still coming in. */
    open_engine((struct echi_cost_io){.message = 1e-4});
    for (uint64_t h = 1; h < 11; h++) echi_cost_send(cost, (int)h, 0, 4, 1000000, 0, h);
    echi_cost_send(cost, 11, 0, 0, 1000, 1 + 15000000, 100);
    run_all();
    assert_near(when(ECHI_HAPPENS_ARRIVED, 100), 15e6 + 262144 / 1e8 * NS + 1e4 + 1e5, 10);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 10), 100e6 + 1e5, 10);
    close_engine();
}

/* What gave way on its way out is received while it is sent all the same. */
static void interruptions_cost_their_own_time(void **state) {
    (void)state;
    open_hosts(2);
    host[0].rate = host[1].rate = 65536e3;
    open_engine((struct echi_cost_io){0});
    echi_cost_send(cost, 0, 1, 4, 10 * 65536, 0, 1);
    for (uint64_t i = 0; i < 5; i++) echi_cost_send(cost, 0, 1, 0, 6554, 1 + (int64_t)i * 2000000, 10 + i);
    run_all();
    assert_near(when(ECHI_HAPPENS_SENT, 1), 10.5e6, 100);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 1), 10.5e6, 100);
    close_engine();
    /* Each of its parts takes its time on a way in that others use, near or far. */
    for (int far = 0; far < 2; far++) {
        open_hosts(4);
        for (int h = 0; h < 4; h++) host[h].rate = 65536e3;
        host[3].delay = far ? 0.5 : 0;
        open_engine((struct echi_cost_io){0});
        echi_cost_send(cost, 0, 3, 4, 10 * 65536, 0, 1);
        echi_cost_send(cost, 1, 3, 4, 10 * 65536, 0, 2);
        echi_cost_send(cost, 0, 2, 0, 1, 1 + 500000, 3);
        run_all();
        const int64_t one = when(ECHI_HAPPENS_ARRIVED, 1), two = when(ECHI_HAPPENS_ARRIVED, 2);
        assert_near(one > two ? one : two, 20e6 + 5e8 * far, 100);
        close_engine();
    }
}

static void to_oneself_it_takes_no_time(void **state) {
    (void)state;
    open_hosts(1);
    host[0].rate = 10;
    host[0].delay = 5;
    host[0].loss = 0.9;
    open_engine((struct echi_cost_io){1, 1});
    echi_cost_send(cost, 0, 0, 4, 1000, 0, 5);
    run_all();
    assert_int_equal(n_seen, 2);
    assert_int_equal(seen[0].what.type, ECHI_HAPPENS_ARRIVED);
    assert_int_equal(seen[1].what.type, ECHI_HAPPENS_SENT);
    assert_int_equal(seen[1].at, 0);
    close_engine();
}

/* Losses only delay, by 0.2, 0.6, 1.4 s ..., in the expected parts; and nothing overtakes within a pair. */
static void losses_delay_and_keep_order(void **state) {
    (void)state;
    enum { COUNT = 4000 };
    open_hosts(2);
    host[0].loss = 0.1;
    host[1].loss = 0.2;
    open_engine((struct echi_cost_io){0});
    for (uint64_t i = 0; i < COUNT; i++) echi_cost_send(cost, 0, 1, 4, 100, 1 + (int64_t)(100e9 * (double)i), i);
    int late[3] = {0};
    struct echi_happening what;
    for (uint64_t next = 0; echi_cost_next(cost, &what);) {
        if (what.type != ECHI_HAPPENS_ARRIVED) continue;
        assert_int_equal(what.cookie, next);
        const double waited = (double)(echi_cost_now(cost) - 1) / NS - 100.0 * (double)next++;
        late[0] += waited > 0.1;
        late[1] += waited > 0.5;
        late[2] += waited > 0.1 && fabs(waited - 0.2) > 1e-6 && fabs(waited - 0.6) > 1e-6 && waited < 1.3;
    }
    const double p = 1 - 0.9 * 0.8;   /* 4 standard deviations */
    assert_true(fabs(late[0] - COUNT * p) < 4 * sqrt(COUNT * p * (1 - p)));
    assert_true(fabs(late[1] - COUNT * p * p) < 4 * sqrt(COUNT * p * p));
    assert_int_equal(late[2], 0);
    close_engine();

    open_engine((struct echi_cost_io){0});
    for (uint64_t i = 0; i < 200; i++) echi_cost_send(cost, 0, 1, 4, 100, 1 + (int64_t)(1e7 * (double)i), i);
    uint64_t next = 0;
    while (echi_cost_next(cost, &what))
        if (what.type == ECHI_HAPPENS_ARRIVED) assert_int_equal(what.cookie, next++);
    assert_int_equal(next, 200);
    close_engine();
}

/* Messages of one priority between two hosts arrive in their order, whatever the sizes, rates and interruptions. */
static void pairs_keep_order(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 3, ECHI_STREAM_TEST, 2);
    for (int run = 0; run < 200; run++) {
        uint64_t sent[4][4][3] = {{{0}}}, got[4][4][3] = {{{0}}};
        open_hosts(4);
        for (int h = 0; h < 4; h++) {
            host[h].rate = echi_random_below(&random, 4) ? pow(10, 5 + 4 * echi_random_unit(&random)) : 0;
            host[h].delay = echi_random_unit(&random) * 0.01;
            host[h].loss = run % 3 ? 0 : 0.2;
        }
        open_engine((struct echi_cost_io){1e-5 * (run % 2), run % 4 == 1 ? 1e-9 : 0});
        for (int i = 0; i < 150; i++) {
            const uint32_t from = echi_random_below(&random, 4), to = echi_random_below(&random, 4);
            const uint32_t priority = echi_random_below(&random, 3), most = echi_random_below(&random, 3) ? 300000 : 100;
            struct echi_happening what;
            echi_cost_send(cost, (int)from, (int)to, (int)priority, 1 + echi_random_below(&random, most), 0,
                           from << 24 | to << 16 | priority << 12 | sent[from][to][priority]++);
            for (uint32_t k = echi_random_below(&random, 3); k > 0 && echi_cost_next(cost, &what); k--)
                if (what.type == ECHI_HAPPENS_ARRIVED)
                    assert_int_equal(what.cookie & 0xfff, got[what.cookie >> 24][what.cookie >> 16 & 0xff][what.cookie >> 12 & 0xf]++);
        }
        struct echi_happening what;
        while (echi_cost_next(cost, &what))
            if (what.type == ECHI_HAPPENS_ARRIVED)
                assert_int_equal(what.cookie & 0xfff, got[what.cookie >> 24][what.cookie >> 16 & 0xff][what.cookie >> 12 & 0xf]++);
        assert_memory_equal(sent, got, sizeof sent);
        close_engine();
    }
}

/* An idle thread is waked for a work, which takes twice what a message does; what waits behind it finds the thread awake. */
static void threads_are_waked(void **state) {
    (void)state;
    open_hosts(1);
    host[0].speed = 0.5;
    open_engine((struct echi_cost_io){.message = 0.001, .byte = 1e-6});
    compute(0, 1, 3, NULL, 1);
    compute(0, 1, 3, NULL, 2);
    run_all();
    assert_near(when(ECHI_HAPPENS_DONE, 1), (2 + ECHI_COST_WAKE * 0.002) * NS, 30);
    assert_near(when(ECHI_HAPPENS_DONE, 2), (4 + ECHI_COST_WAKE * 0.002) * NS, 30);
    compute(0, 1, 3, NULL, 3);
    run_all();
    assert_near(when(ECHI_HAPPENS_DONE, 3), (6 + 2 * ECHI_COST_WAKE * 0.002) * NS, 30);
    close_engine();
}

/* What messages cost a processor comes out of the work that it has, at both ends, and one after the other. All works wake their thread. */
static void messages_cost_their_processor(void **state) {
    (void)state;
    open_hosts(2);
    host[1].speed = 0.5;
    open_engine((struct echi_cost_io){.message = 0.001, .byte = 1e-6});
    compute(0, 1, 3, NULL, 1);
    compute(1, 1, 3, NULL, 2);
    for (uint64_t i = 0; i < 10; i++) echi_cost_send(cost, 0, 1, 4, 4000, 2 + (int64_t)i, 100 + i);
    run_all();
    const double messages = 1 + 9 * ECHI_COST_AWAKE, taken = 10 * 0.008 + messages * 0.002;   /* the first wakes either I/O thread */
    assert_near(when(ECHI_HAPPENS_DONE, 1), (1 + ECHI_COST_WAKE * 0.001 + messages * 0.001 + 10 * 0.004) * NS, 30);
    assert_near(when(ECHI_HAPPENS_DONE, 2), (2 + ECHI_COST_WAKE * 0.002 + taken) * NS, 30);
    assert_near(when(ECHI_HAPPENS_ARRIVED, 109), taken * NS, 30);
    close_engine();
    /* Those of one moment to one host go as one; for those to others the I/O thread is awake. */
    open_hosts(3);
    host[1].speed = 0.5;
    open_engine((struct echi_cost_io){.message = 0.001, .byte = 1e-6});
    compute(0, 1, 3, NULL, 1);
    compute(1, 1, 3, NULL, 2);
    compute(2, 1, 3, NULL, 3);
    for (uint64_t i = 0; i < 10; i++) echi_cost_send(cost, 0, i < 6 ? 1 : 2, 4, 4000, 0, 100 + i);
    run_all();
    assert_near(when(ECHI_HAPPENS_DONE, 1), (1 + (ECHI_COST_WAKE + 1 + ECHI_COST_AWAKE) * 0.001 + 10 * 0.004) * NS, 30);
    assert_near(when(ECHI_HAPPENS_DONE, 2), (2 + (ECHI_COST_WAKE + 1) * 0.002 + 6 * 0.008) * NS, 30);
    assert_near(when(ECHI_HAPPENS_DONE, 3), (1 + (ECHI_COST_WAKE + 1) * 0.001 + 4 * 0.004) * NS, 30);
    close_engine();
}

/* A quota of 1 ms of each 2 ms: work goes at full speed until it is used up, and on when the next period begins. */
static void a_quota_is_a_bucket(void **state) {
    (void)state;
    static const double until[] = {0.2, 0.6, 1};
    static const bool mark[] = {true, true, true};
    static const struct echi_work_shape shape = {3, until, mark};
    open_hosts(2);
    for (int h = 0; h < 2; h++) host[h].quota = 0.001, host[h].period = 0.002;
    host[1].speed = 2;
    open_engine((struct echi_cost_io){0});
    compute(0, 0.0025, 3, &shape, 1);       /* 0 to 1 ms, 2 to 3, 4 to 4.5 */
    compute(1, 0.001, 3, NULL, 2);          /* its quota is enough: 0.5 ms */
    run_all();
    assert_near(seen[0].at, 0.5e6, 2);
    assert_int_equal(seen[0].what.type, ECHI_HAPPENS_MARK);
    assert_near(when(ECHI_HAPPENS_DONE, 2), 0.5e6, 2);
    assert_near(when(ECHI_HAPPENS_MARK, 1), 0.5e6, 2);
    assert_near(seen[2].at, 2.5e6, 2);
    assert_near(when(ECHI_HAPPENS_DONE, 1), 4.5e6, 2);
    assert_true(fabs(echi_cost_busy(cost, 0) - 4.5e-3) < 1e-8 && fabs(echi_cost_busy(cost, 1) - 0.5e-3) < 1e-8);
    close_engine();
    /* While it has nothing to do it fills up, but never with more than a period's. */
    open_hosts(1);
    host[0].quota = 0.001, host[0].period = 0.002;
    open_engine((struct echi_cost_io){0});
    compute(0, 0.0008, 3, NULL, 1);
    echi_cost_timer(cost, 1 + 10500000, 0, 7);
    n_seen = 0;
    while (echi_cost_next(cost, &seen[n_seen].what)) {
        if (seen[n_seen].what.type == ECHI_HAPPENS_TIMER) compute(0, 0.0019, 3, NULL, 2);   /* 10.5 to 11.5, 12 to 12.9 */
        seen[n_seen++].at = echi_cost_now(cost) - 1;
    }
    assert_near(when(ECHI_HAPPENS_DONE, 2), 12.9e6, 3);
    close_engine();
    /* More urgent work comes in between as elsewhere, and a host that is gone uses nothing. */
    open_hosts(2);
    for (int h = 0; h < 2; h++) host[h].quota = 0.001, host[h].period = 0.002;
    open_engine((struct echi_cost_io){0});
    compute(0, 0.0025, 3, &shape, 1);
    compute(1, 0.0025, 3, &shape, 9);
    echi_cost_timer(cost, 1 + 600000, 0, 7);
    n_seen = 0;
    while (echi_cost_next(cost, &seen[n_seen].what)) {
        if (seen[n_seen].what.type == ECHI_HAPPENS_TIMER) compute(0, 0.0002, 1, NULL, 2), echi_cost_kill(cost, 1);
        seen[n_seen++].at = echi_cost_now(cost) - 1;
    }
    assert_near(when(ECHI_HAPPENS_DONE, 2), 2.7e6, 3);   /* behind the unit that ends at 2.5 ms */
    assert_near(when(ECHI_HAPPENS_DONE, 1), 4.7e6, 3);
    assert_int_equal(when(ECHI_HAPPENS_DONE, 9), -1);
    close_engine();
}

/* While a host has used up its quota nothing leaves it but what its sockets hold, which is 2 ms of its link. */
static void a_host_that_stands_still_sends_nothing(void **state) {
    (void)state;
    for (int computing = 0; computing <= 1; computing++) {
        open_hosts(2);
        host[0].quota = 0.05, host[0].period = 0.1;
        host[0].rate = host[1].rate = 1e8;
        open_engine((struct echi_cost_io){0});
        if (computing) compute(0, 0.5, 3, NULL, 1);     /* 0 to 50 ms, 100 to 150, ... */
        echi_cost_send(cost, 0, 1, 4, 10000000, 0, 2);  /* 100 ms of the link: 0 to 52, 100 to 148 */
        run_all();
        assert_near(when(ECHI_HAPPENS_SENT, 2), computing ? 148e6 : 100e6, 2e4);
        close_engine();
    }
    /* What is more urgent comes behind the chunk in hand, of which the host's rest is no part. */
    open_hosts(2);
    host[0].quota = 0.05, host[0].period = 0.1;
    host[0].rate = host[1].rate = 1e8;
    open_engine((struct echi_cost_io){0});
    compute(0, 0.5, 3, NULL, 1);
    echi_cost_send(cost, 0, 1, 4, 10000000, 0, 2);
    echi_cost_send(cost, 0, 1, 1, 1000000, 1 + 120000000, 3);   /* 10 ms; behind 72 ms of the other */
    run_all();
    assert_near(when(ECHI_HAPPENS_SENT, 3), 130e6, 1e6);
    assert_near(when(ECHI_HAPPENS_SENT, 2), 206e6, 5e4);   /* 28 ms of it were left: to 152, 200 to 206 */
    close_engine();
}

/* What messages cost is of the quota, too: it is taken from what computes; where nothing does it is owed, and a message that comes when
 * all is used up waits. Of what it takes to wake a thread a part is. In the long run it is a slower processor, whatever its period. */
static void messages_are_of_the_quota(void **state) {
    (void)state;
    open_hosts(2);
    host[1].quota = 0.001, host[1].period = 0.002;
    open_engine((struct echi_cost_io){.message = 0.0004});
    for (uint64_t i = 0; i < 4; i++) echi_cost_send(cost, 0, 1, 4, 100, 1 + (int64_t)i, 100 + i);
    run_all();
    assert_near(when(ECHI_HAPPENS_ARRIVED, 101), (1 + ECHI_COST_AWAKE) * 0.4e6, 30);
    close_engine();
    open_engine((struct echi_cost_io){.message = 0.0004});
    compute(1, 0.0022 - ECHI_COST_WAKE_COMPUTES * ECHI_COST_WAKE * 0.0004, 3, NULL, 1);
    echi_cost_send(cost, 0, 1, 4, 100, 0, 100);      /* 2.2 ms behind a wake of 0.8, of which 0.4 count: to 1.4, 2 to 3, 4 to 4.6 */
    echi_cost_send(cost, 0, 1, 4, 100, 1 + 1900000, 101);
    run_all();
    assert_near(when(ECHI_HAPPENS_ARRIVED, 101), 2.4e6, 30);
    assert_near(when(ECHI_HAPPENS_DONE, 1), 5.0e6, 30);
    close_engine();
    for (int k = 0; k < 4; k++) {
        open_hosts(1);
        host[0].period = (const double[]){0.00002, 0.001, 0.1, 0.7}[k];
        host[0].quota = host[0].period / 4;
        open_engine((struct echi_cost_io){0});
        for (uint64_t i = 0; i < 100; i++) compute(0, 0.07, 3, NULL, i);
        run_all();
        const double last = 7 / host[0].quota * host[0].period - (host[0].period - host[0].quota);
        assert_near(when(ECHI_HAPPENS_DONE, 99), last * NS, 1e3);
        close_engine();
    }
}

static void the_dead_neither_send_nor_hear(void **state) {
    (void)state;
    open_hosts(3);
    host[0].rate = 1e6;
    open_engine((struct echi_cost_io){0});
    echi_cost_send(cost, 0, 1, 4, 100000, 0, 1);
    echi_cost_send(cost, 0, 1, 4, 100000, 0, 2);     /* on the way out when its sender dies */
    echi_cost_send(cost, 1, 0, 4, 100000, 0, 3);     /* to it, in time */
    echi_cost_send(cost, 2, 0, 4, 500000, 0, 4);     /* to it, too late: it is sent all the same */
    compute(0, 1, 3, NULL, 5);
    echi_cost_timer(cost, 150000000, 0, 77);
    struct echi_happening what;
    n_seen = 0;
    while (echi_cost_next(cost, &what)) {
        seen[n_seen++] = (struct seen){what, echi_cost_now(cost)};
        if (what.type == ECHI_HAPPENS_TIMER) echi_cost_kill(cost, 0);
    }
    assert_true(when(ECHI_HAPPENS_ARRIVED, 1) > 0 && when(ECHI_HAPPENS_ARRIVED, 3) > 0 && when(ECHI_HAPPENS_SENT, 4) > 0);
    assert_int_equal(when(ECHI_HAPPENS_SENT, 2), -1);
    assert_int_equal(when(ECHI_HAPPENS_ARRIVED, 2), -1);
    assert_int_equal(when(ECHI_HAPPENS_ARRIVED, 4), -1);
    assert_int_equal(when(ECHI_HAPPENS_DONE, 5), -1);
    close_engine();
}

/* ------------------------------------------------------------------- lanes */

static const double fifths[] = {0.2, 0.4, 0.6, 0.8, 1};
static const bool third[] = {false, false, true, false, true};
static const struct echi_work_shape shape5 = {5, fifths, third};

static void marks_and_parts(void **state) {
    (void)state;
    open_hosts(1);
    host[0].speed = 0.5;
    open_engine((struct echi_cost_io){0});
    compute(0, 0.010, 3, &shape5, 1);
    const struct echi_work parted = {.seconds = 0.010, .urgency = 4, .part = 0.25, .cookie = 2};
    echi_cost_compute(cost, 0, &parted);
    echi_cost_timer(cost, 1 + 22000000, 0, 0);   /* nothing comes between its parts, however urgent */
    struct echi_happening what;
    n_seen = 0;
    while (echi_cost_next(cost, &what)) {
        seen[n_seen++] = (struct seen){what, echi_cost_now(cost) - 1};
        if (what.type == ECHI_HAPPENS_TIMER) compute(0, 0.001, 0, NULL, 3);
    }
    assert_int_equal(n_seen, 6);
    assert_near(when(ECHI_HAPPENS_DONE, 3), 42e6, 2);
    assert_near(when(ECHI_HAPPENS_MARK, 1), 12e6, 1);
    assert_int_equal(seen[0].what.unit, 2);
    assert_near(when(ECHI_HAPPENS_DONE, 1), 20e6, 1);
    assert_near(when(ECHI_HAPPENS_MARK, 2), 25e6, 2);
    assert_near(when(ECHI_HAPPENS_DONE, 2), 40e6, 2);
    close_engine();
}

/* The more urgent goes between the units of the less urgent, and what has no units is not interrupted. */
static void urgent_works_go_between_units(void **state) {
    (void)state;
    open_hosts(1);
    open_engine((struct echi_cost_io){0});
    compute(0, 0.010, 7, &shape5, 1);          /* ends of units at 2, 4, 6, 8, 10 ms */
    echi_cost_timer(cost, 1 + 3000000, 0, 0);  /* in its second unit */
    struct echi_happening what;
    n_seen = 0;
    while (echi_cost_next(cost, &what)) {
        seen[n_seen++] = (struct seen){what, echi_cost_now(cost) - 1};
        if (what.type != ECHI_HAPPENS_TIMER) continue;
        compute(0, 0.005, 3, NULL, 2);
        compute(0, 0.001, 0, NULL, 3);
        compute(0, 0.001, 7, NULL, 4);         /* as urgent as that which has begun */
    }
    assert_near(when(ECHI_HAPPENS_DONE, 3), 5e6, 1);
    assert_near(when(ECHI_HAPPENS_DONE, 2), 10e6, 1);
    assert_near(when(ECHI_HAPPENS_MARK, 1), 12e6, 1);
    assert_near(when(ECHI_HAPPENS_DONE, 1), 16e6, 1);
    assert_near(when(ECHI_HAPPENS_DONE, 4), 17e6, 1);
    close_engine();
}

/* A hold waits for the end of the unit in hand, lets pass what may pass, and is told once. */
static void hold(void **state) {
    (void)state;
    open_hosts(2);
    open_engine((struct echi_cost_io){0});
    compute(0, 0.010, 7, &shape5, 1);
    echi_cost_timer(cost, 1 + 3000000, 0, 0);
    echi_cost_timer(cost, 1 + 9000000, 0, 1);
    struct echi_happening what;
    int held[2] = {0};
    int64_t at = 0;
    n_seen = 0;
    while (echi_cost_next(cost, &what)) {
        seen[n_seen++] = (struct seen){what, echi_cost_now(cost) - 1};
        if (what.type == ECHI_HAPPENS_HELD) {
            held[what.host]++;
            if (what.host == 0) at = echi_cost_now(cost) - 1;
            const struct echi_work look = {.seconds = 0.001, .urgency = 8, .while_held = true, .cookie = 9};
            if (what.host == 0) compute(0, 0.001, 0, NULL, 2);
            if (what.host == 0) echi_cost_compute(cost, 0, &look);
        }
        if (what.type == ECHI_HAPPENS_TIMER && what.cookie == 0) {
            echi_cost_hold(cost, 0, true);
            echi_cost_hold(cost, 1, true);   /* nothing runs there */
        }
        if (what.type == ECHI_HAPPENS_TIMER && what.cookie == 1) echi_cost_hold(cost, 0, false);
    }
    assert_int_equal(held[0], 1);
    assert_int_equal(held[1], 1);
    assert_near(at, 4e6, 1);
    assert_near(when(ECHI_HAPPENS_DONE, 9), 5e6, 1);
    assert_near(when(ECHI_HAPPENS_DONE, 2), 10e6, 1);
    assert_near(when(ECHI_HAPPENS_DONE, 1), 16e6, 1);
    close_engine();
}

static void lasting_slow_downs(void **state) {
    (void)state;
    open_hosts(1);
    host[0].n_slow = 2;
    host[0].slow[0].from = 1;
    host[0].slow[0].until = 3;
    host[0].slow[0].factor = 4;
    host[0].slow[1].from = 2;
    host[0].slow[1].until = INFINITY;
    host[0].slow[1].factor = 2;
    open_engine((struct echi_cost_io){0});
    for (uint64_t i = 0; i < 5; i++) compute(0, 0.5, 3, NULL, i);   /* from 0, 0.5, 1 (x 4), 3 (x 2), 4 (x 2) */
    run_all();
    static const double ends[] = {0.5, 1, 3, 4, 5};
    for (uint64_t i = 0; i < 5; i++) assert_near(when(ECHI_HAPPENS_DONE, i), ends[i] * NS, 8);
    close_engine();
}

/* A link that is thin for a while, and for ever: messages of 1e5 bytes at 1e6 bytes a second, 4 times as long from 1 to 3 s, twice from
 * 2 s on, as it is when they begin. What it has carried is what it has delivered over the time that it was in use, and nothing else. */
static void links_become_thin(void **state) {
    (void)state;
    open_hosts(3);
    host[0].rate = host[1].rate = 1e6;
    host[0].n_thin = 2;
    host[0].thin[0] = (struct echi_spell){1, 3, 4};
    host[0].thin[1] = (struct echi_spell){2, INFINITY, 2};
    open_engine((struct echi_cost_io){0});
    static const double begins[] = {0, 0.8, 1.1, 2.1, 3.5, 5}, takes[] = {0.1, 0.1, 0.4, 0.8, 0.2, 0.2};
    for (uint64_t i = 0; i < 6; i++) echi_cost_send(cost, 0, 2, 4, 100000, (int64_t)(begins[i] * NS) + 1, i);   /* out */
    for (uint64_t i = 0; i < 6; i++) echi_cost_send(cost, 1, 0, 4, 100000, (int64_t)(begins[i] * NS) + 1, 10 + i);   /* in */
    run_all();
    for (uint64_t i = 0; i < 6; i++) {
        assert_near(when(ECHI_HAPPENS_SENT, i), (begins[i] + takes[i]) * NS, 8);
        assert_near(when(ECHI_HAPPENS_ARRIVED, 10 + i), (begins[i] + takes[i]) * NS, 8);
    }
    double bytes, seconds;
    for (int in = 0; in < 2; in++) {
        assert_false(echi_cost_carried(cost, 0, in, 2, &bytes, &seconds));
        assert_true(echi_cost_carried(cost, 0, in, 1, &bytes, &seconds));
        assert_true(bytes == 600000 && fabs(seconds - 1.8) < 1e-7);
        assert_false(echi_cost_carried(cost, 0, in, 1e-9, &bytes, &seconds));   /* that was all */
    }
    assert_true(echi_cost_carried(cost, 1, 0, 0.1, &bytes, &seconds) && fabs(bytes / seconds - 1e6) < 1);
    assert_false(echi_cost_carried(cost, 2, 1, 1e-9, &bytes, &seconds));   /* without bound it is in use for no time */
    close_engine();
}

/* m works at once on c cores: the shortest ends when each has got as much, and so on: computed by hand step by step. In half of the runs
 * some hosts have a quota of each period, too. */
static void shared_cores(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 5, ECHI_STREAM_TEST, 3);
    for (int run = 0; run < 200; run++) {
        const int m = 1 + (int)echi_random_below(&random, 12), cores = 1 + (int)echi_random_below(&random, 5);
        double seconds[12], start[12], left[12], end[12], used[12] = {0};
        open_hosts(m);
        hosts.pools = 1;
        hosts.pool_cores[0] = cores;
        for (int h = 0; h < m; h++) {
            host[h].cores = 0;
            host[h].speed = 1 + echi_random_below(&random, 3);
            if (run < 100 || echi_random_below(&random, 3) == 0) continue;
            host[h].period = 0.001 * (4 + echi_random_below(&random, 8));
            host[h].quota = host[h].period * 0.1 * (1 + echi_random_below(&random, 10));
        }
        open_engine((struct echi_cost_io){0});
        for (int h = 0; h < m; h++) {
            seconds[h] = 0.001 * (1 + echi_random_below(&random, 50));
            left[h] = seconds[h] / host[h].speed;
            start[h] = run % 2 ? 0.001 * echi_random_below(&random, 30) : 0;
            end[h] = -1;
            echi_cost_timer(cost, 1 + (int64_t)(start[h] * NS), h, 0);
        }
        /* The same by small steps in time, of which every end is a multiple or nearly so. */
        double now = 0;
        for (;;) {
            int active = 0;
            bool runs[12];
            double next = INFINITY;
            for (int h = 0; h < m; h++) {
                runs[h] = end[h] < 0 && start[h] <= now + 1e-12 && (host[h].quota == 0 || used[h] < host[h].quota - 1e-12);
                active += runs[h];
            }
            const double rate = active > cores ? (double)cores / active : 1;
            for (int h = 0; h < m; h++) {
                if (end[h] >= 0) continue;
                if (start[h] > now + 1e-12) next = fmin(next, start[h] - now);
                if (runs[h]) next = fmin(next, left[h] / rate);
                if (host[h].quota == 0) continue;
                if (runs[h]) next = fmin(next, (host[h].quota - used[h]) / rate);
                next = fmin(next, (floor(now / host[h].period + 1e-9) + 1) * host[h].period - now);
            }
            if (isinf(next)) break;
            for (int h = 0; h < m; h++) {
                if (runs[h]) {
                    left[h] -= next * rate;
                    used[h] += next * rate;
                    if (left[h] < 1e-12) end[h] = now + next;
                }
                if (host[h].quota > 0 && floor((now + next) / host[h].period + 1e-9) > floor(now / host[h].period + 1e-9)) used[h] = 0;
            }
            now += next;
        }
        struct echi_happening what;
        while (echi_cost_next(cost, &what)) {
            if (what.type == ECHI_HAPPENS_TIMER) compute(what.host, seconds[what.host], 3, run % 3 ? NULL : &shape5, 0);
            if (what.type == ECHI_HAPPENS_DONE) assert_near(echi_cost_now(cost) - 1, end[what.host] * NS, 200);
        }
        close_engine();
    }
}

/* A pool of one core and many units: nobody gets more than the others, and no time is lost. */
static void shared_cores_lose_nothing(void **state) {
    (void)state;
    open_hosts(3);
    hosts.pools = 1;
    hosts.pool_cores[0] = 1;
    for (int h = 0; h < 3; h++) host[h].cores = 0;
    open_engine((struct echi_cost_io){0});
    for (int h = 0; h < 3; h++)
        for (uint64_t i = 0; i < 50; i++) compute(h, 0.01, 3, &shape5, (uint64_t)h * 100 + i);
    run_all();
    for (uint64_t h = 0; h < 3; h++) {
        assert_near(when(ECHI_HAPPENS_DONE, h * 100 + 49), 1.5 * NS, 1000);
        assert_near(when(ECHI_HAPPENS_DONE, h * 100 + 24), 0.75 * NS, 1000);
        assert_true(fabs(echi_cost_busy(cost, (int)h) - 1.5) < 1e-6);
    }
    close_engine();
}

/* Two threads of two cores each, on three; what messages cost who does not compute is taken from all that do, where they are too many. */
static void shared_cores_are_of_threads_and_messages(void **state) {
    (void)state;
    open_hosts(4);
    hosts.pools = 1;
    hosts.pool_cores[0] = 3;
    for (int h = 0; h < 2; h++) host[h].cores = 0, host[h].takes = 2 * ECHI_PROCESSOR;
    open_engine((struct echi_cost_io){0});
    compute(0, 0.3, 3, NULL, 0);                    /* together 4 of 3: 0.4 s; then alone */
    compute(1, 0.6, 3, NULL, 1);
    run_all();
    assert_near(when(ECHI_HAPPENS_DONE, 0), 0.4 * NS, 10);
    assert_near(when(ECHI_HAPPENS_DONE, 1), 0.7 * NS, 10);
    close_engine();
    hosts.pool_cores[0] = 1;
    for (int h = 0; h < 2; h++) host[h].takes = ECHI_PROCESSOR / 4;
    open_engine((struct echi_cost_io){.byte = 1e-6});
    for (int h = 0; h < 2; h++) compute(h, 0.3, 3, NULL, (uint64_t)h);
    echi_cost_send(cost, 1, 0, 4, 100000, 0, 9);    /* 0.1 s of either's processor, which sleeps for three quarters of the time */
    run_all();
    for (uint64_t h = 0; h < 2; h++) assert_near(when(ECHI_HAPPENS_DONE, h), 0.325 * NS, 10);
    close_engine();
    host[0].takes = host[1].takes = 0;
    host[2].cores = 0;
    for (int computing = 0; computing < 3; computing++) {
        open_engine((struct echi_cost_io){.byte = 1e-6});
        for (int h = 0; h < computing; h++) compute(h, 0.3, 3, NULL, (uint64_t)h);
        echi_cost_send(cost, 3, 2, 4, 1000, 0, 9);  /* of no thread that computes: 1 ms */
        run_all();
        assert_near(when(ECHI_HAPPENS_ARRIVED, 9), 0.001 * NS, 10);
        if (computing == 2) assert_near(when(ECHI_HAPPENS_DONE, 1), 0.601 * NS, 10);
        close_engine();
    }
}

/* Whoever dies leaves its cores to the others; and what takes for ever does not come round again. */
static void the_dead_leave_their_cores(void **state) {
    (void)state;
    open_hosts(4);
    hosts.pools = 1;
    hosts.pool_cores[0] = 1;
    for (int h = 0; h < 3; h++) host[h].cores = 0;
    host[3].n_slow = 4;
    for (int i = 0; i < 4; i++) {
        host[3].slow[i].until = INFINITY;
        host[3].slow[i].factor = 1000;
    }
    host[3].speed = 1e-6;
    open_engine((struct echi_cost_io){0});
    for (int h = 0; h < 3; h++) compute(h, 1, 3, &shape5, (uint64_t)h);
    compute(3, 1000, 3, NULL, 9);
    echi_cost_timer(cost, 1 + (int64_t)(0.6 * NS), 1, 0);   /* a fifth of a second of each is done */
    struct echi_happening what;
    n_seen = 0;
    while (echi_cost_next(cost, &what)) {
        seen[n_seen++] = (struct seen){what, echi_cost_now(cost) - 1};
        if (what.type == ECHI_HAPPENS_TIMER) echi_cost_kill(cost, 1);
    }
    assert_near(when(ECHI_HAPPENS_DONE, 0), (0.6 + 2 * 0.8) * NS, 10);
    assert_near(when(ECHI_HAPPENS_DONE, 2), (0.6 + 2 * 0.8) * NS, 10);
    assert_int_equal(when(ECHI_HAPPENS_DONE, 1), -1);
    assert_true(when(ECHI_HAPPENS_DONE, 9) > (int64_t)1e18);
    close_engine();
}

static void step_factors(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    open_hosts(2);
    for (int h = 0; h < 2; h++) {
        host[h].jitter = 0.15;
        host[h].stutter = 0.02;
        host[h].stutter_factor = 5;
    }
    double sum = 0, squares = 0, slow_squares = 0;
    int slow = 0, below = 0, same = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const double f = echi_hosts_step_factor(&hosts, 11, 0, i), l = log(f > 2.4 ? f / 5 : f);
        assert_true(f == echi_hosts_step_factor(&hosts, 11, 0, i));
        same += f == echi_hosts_step_factor(&hosts, 11, 1, i);
        slow += f > 2.4;   /* 5 x e^-0.73, or e^0.88: nearly 5 deviations either way */
        below += l < 0;
        sum += l;
        squares += l * l;
        if (f > 2.4) slow_squares += l * l;
    }
    assert_int_equal(same, 0);
    assert_true(abs(slow - COUNT / 50) < 4 * 20);
    assert_true(abs(below - COUNT / 2) < 4 * 71);
    assert_true(fabs(sum / COUNT) < 4 * 0.15 / sqrt(COUNT));
    assert_true(fabs(sqrt(squares / COUNT) - 0.15) < 4 * 0.15 / sqrt(2.0 * COUNT));
    assert_true(fabs(sqrt(slow_squares / slow) - 0.15) < 4 * 0.15 / sqrt(2.0 * slow));   /* neither knows of the other */
}

/* Messages and works of all kinds, until nothing is due. The time at which that is; 0: memory ran out. */
static int64_t busy_world(void) {
    struct echi_happening what;
    open_hosts(4);
    hosts.pools = 1;
    hosts.pool_cores[0] = 1;
    for (int h = 0; h < 4; h++) {
        host[h].rate = 1e6;
        host[h].loss = 0.1;
        host[h].cores = h < 2 ? 0 : -1;
    }
    host[3].quota = 0.05, host[3].period = 0.1;
    cost = echi_cost_create(&hosts, (struct echi_cost_io){1e-5, 1e-9}, NULL, 11, supply);
    if (!cost) return 0;
    for (uint64_t i = 0; i < 300; i++) {
        echi_cost_compute(cost, (int)(i % 4), &(struct echi_work){.seconds = 1e-3, .urgency = (int)(i % 3), .cookie = i});
        echi_cost_send(cost, (int)(i % 4), (int)(i / 4 % 4), (int)(i % 2), 1000 * (i % 200), 0, i);
    }
    while (echi_cost_next(cost, &what)) {}
    const int64_t at = echi_cost_failed(cost) ? 0 : echi_cost_now(cost);
    echi_cost_destroy(cost);
    cost = NULL;
    return at;
}

/* With one block less each time: the engine says so, and gives back what it had. */
static void memory_is_the_callers(void **state) {
    (void)state;
    blocks_left = INT_MAX;
    const int64_t whole = busy_world();
    assert_true(whole > 0 && blocks_out == 0);
    const int needed = INT_MAX - blocks_left;
    assert_true(needed > 10);
    for (int blocks = 0; blocks <= needed; blocks++) {
        blocks_left = blocks;
        const int64_t at = busy_world();
        assert_true(at == (blocks < needed ? 0 : whole));
        assert_int_equal(blocks_out, 0);
    }
    blocks_left = INT_MAX;
}

/* Against a lane that is stepped unit by unit, with works of all kinds coming at random times. */
static void lanes_as_unit_by_unit(void **state) {
    (void)state;
    enum { WORKS = 12 };
    struct echi_random random;
    echi_random_init(&random, 9, ECHI_STREAM_TEST, 4);
    for (int run = 0; run < 300; run++) {
        struct { int64_t at; double ns; int urgency, unit; bool shaped; int64_t end; } w[WORKS];
        open_hosts(1);
        open_engine((struct echi_cost_io){0});
        for (int i = 0; i < WORKS; i++) {
            w[i].at = 500 * (int64_t)echi_random_below(&random, 40) + (int64_t)i;   /* never at the end of a unit */
            w[i].ns = 5000.0 * (1 + echi_random_below(&random, 4));
            w[i].urgency = (int)echi_random_below(&random, 4);
            w[i].shaped = echi_random_below(&random, 3) > 0;
            w[i].unit = 0;
            w[i].end = -1;
            echi_cost_timer(cost, 1 + w[i].at, 0, (uint64_t)i);
        }
        for (int64_t now = 0;;) {
            int best = -1;
            int64_t next = INT64_MAX;
            for (int i = 0; i < WORKS; i++) {
                if (w[i].end >= 0) continue;
                if (w[i].at > now) {
                    if (w[i].at < next) next = w[i].at;
                } else if (best < 0 || w[i].urgency < w[best].urgency ||
                           (w[i].urgency == w[best].urgency && w[i].at < w[best].at)) {
                    best = i;
                }
            }
            if (best < 0 && next == INT64_MAX) break;
            if (best < 0) {
                now = next;
                continue;
            }
            now += (int64_t)(w[best].shaped ? w[best].ns / 5 : w[best].ns);
            if (!w[best].shaped || ++w[best].unit == 5) w[best].end = now;
        }
        struct echi_happening what;
        int done = 0;
        while (echi_cost_next(cost, &what)) {
            const uint64_t i = what.cookie;
            if (what.type == ECHI_HAPPENS_TIMER) compute(0, w[i].ns * 1e-9, w[i].urgency, w[i].shaped ? &shape5 : NULL, i);
            if (what.type != ECHI_HAPPENS_DONE) continue;
            assert_near(echi_cost_now(cost) - 1, (double)w[what.cookie].end, 12);
            done++;
        }
        assert_int_equal(done, WORKS);
        close_engine();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_is_a_sorted_list),
        cmocka_unit_test(one_way_out_is_a_queue),
        cmocka_unit_test(one_way_in_is_a_queue),
        cmocka_unit_test(slow_senders_share_a_fast_way_in),
        cmocka_unit_test(urgent_messages_go_first),
        cmocka_unit_test(urgent_messages_pass_a_crowd),
        cmocka_unit_test(interruptions_cost_their_own_time),
        cmocka_unit_test(to_oneself_it_takes_no_time),
        cmocka_unit_test(losses_delay_and_keep_order),
        cmocka_unit_test(pairs_keep_order),
        cmocka_unit_test(threads_are_waked),
        cmocka_unit_test(messages_cost_their_processor),
        cmocka_unit_test(a_quota_is_a_bucket), cmocka_unit_test(a_host_that_stands_still_sends_nothing),
        cmocka_unit_test(messages_are_of_the_quota),
        cmocka_unit_test(the_dead_neither_send_nor_hear),
        cmocka_unit_test(marks_and_parts),
        cmocka_unit_test(urgent_works_go_between_units),
        cmocka_unit_test(hold),
        cmocka_unit_test(lasting_slow_downs),
        cmocka_unit_test(links_become_thin),
        cmocka_unit_test(shared_cores),
        cmocka_unit_test(shared_cores_lose_nothing),
        cmocka_unit_test(shared_cores_are_of_threads_and_messages),
        cmocka_unit_test(the_dead_leave_their_cores),
        cmocka_unit_test(step_factors),
        cmocka_unit_test(memory_is_the_callers),
        cmocka_unit_test(lanes_as_unit_by_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
