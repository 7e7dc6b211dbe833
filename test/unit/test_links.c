/* SPDX-License-Identifier: Apache-2.0
 * Links measured at the start, over shapers in virtual time: each host's way out and way in is a token bucket. */
#include "echi_links.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 17, QUEUE = 4096, TICK = 100000 };   /* ns */
static struct echi_links links[MOST];
static struct flight { int from, to; uint8_t body[16]; size_t len, bytes; } queue[2][MOST][QUEUE];   /* on the way out, on the way in */
static int first[2][MOST], last[2][MOST];
static double rate[2][MOST], tokens[2][MOST], burst[2][MOST];
static bool gone[MOST], silent[MOST];
static int pairs[MOST][MOST];

static void put(int way, int host, const struct flight *f) {
    queue[way][host][last[way][host]] = *f;
    last[way][host] = (last[way][host] + 1) % QUEUE;
    assert_int_not_equal(last[way][host], first[way][host]);
}

/* A node looks at what came, and fills its queue; nodes look at different times. */
static void turn(int r, int64_t now) {
    struct flight f = {.from = r};
    uint8_t body[ECHI_LINKS_BYTES];
    if (gone[r] || silent[r]) return;
    for (;;) {
        const int waits = (last[0][r] - first[0][r] + QUEUE) % QUEUE;
        if (!echi_links_next(&links[r], now, waits, &f.to, body, &f.len)) return;
        f.bytes = f.len + ECHI_LINKS_OVERHEAD;
        memcpy(f.body, body, f.len < sizeof f.body ? f.len : sizeof f.body);
        pairs[r][f.to]++;
        put(0, r, &f);
    }
}

static void pass(int way, int r, int64_t now) {
    tokens[way][r] = fmin(tokens[way][r] + rate[way][r] * TICK * 1e-9, burst[way][r]);
    while (first[way][r] != last[way][r]) {
        const struct flight *f = &queue[way][r][first[way][r]];
        if (tokens[way][r] < (double)f->bytes) return;
        tokens[way][r] -= (double)f->bytes;
        if (way == 0) put(1, f->to, f);
        else if (!gone[r]) echi_links_hear(&links[r], f->from, f->body, f->len, now);
        first[way][r] = (first[way][r] + 1) % QUEUE;
    }
}

/* Seconds until all have measured. */
static double measure(int world) {
    memset(links, 0, sizeof links);
    memset(first, 0, sizeof first);
    memset(last, 0, sizeof last);
    memset(pairs, 0, sizeof pairs);
    for (int way = 0; way < 2; way++)
        for (int r = 0; r < world; r++) {
            burst[way][r] = fmax(16384, rate[way][r] * 1e-3) + ECHI_LINKS_BYTES;
            tokens[way][r] = burst[way][r];
        }
    for (int64_t now = 1;; now += TICK) {
        bool over = true;
        for (int r = 0; r < world; r++) {
            if (now == 1 + (int64_t)r * 3 * TICK) echi_links_begin(&links[r], r, world, now);   /* not at the same moment */
            turn(r, now);
            over = over && (gone[r] || silent[r] || links[r].over);
        }
        if (over) return (double)now * 1e-9;
        assert_true(now < INT64_C(300000000000));
        for (int r = 0; r < world; r++) pass(0, r, now);
        for (int r = 0; r < world; r++) pass(1, r, now);
    }
}

static void all_have(int world, double mbits) {
    for (int r = 0; r < world; r++) {
        rate[0][r] = rate[1][r] = mbits * 1e6 / 8;
        gone[r] = silent[r] = false;
    }
}

static void is_about(int r, double mbits) {
    const double found = echi_links_rate(&links[r]) * 8e-6;
    if (!(fabs(found / mbits - 1) < 0.03)) fail_msg("rank %d: %g Mb/s measured, it has %g", r, found, mbits);
}

static void rates_are_those_of_the_shapers(void **state) {
    (void)state;
    static const double mbits[] = {10, 100, 1000};
    for (int i = 0; i < 3; i++)
        for (int world = 2; world <= 5; world++) {
            all_have(world, mbits[i]);
            const double seconds = measure(world);
            for (int r = 0; r < world; r++) is_about(r, mbits[i]);
            const int rounds = world - 1 + world % 2;
            if (!(seconds < rounds * 0.75)) fail_msg("%d nodes at %g Mb/s took %g s", world, mbits[i], seconds);
        }
}

/* Everybody meets everybody, never two at once; and beyond 16 nodes some. */
static void all_meet(void **state) {
    (void)state;
    for (int world = 2; world <= MOST; world += world < 6 ? 1 : 11) {
        all_have(world, 1000);
        measure(world);
        for (int r = 0; r < world; r++) {
            int met = 0;
            for (int p = 0; p < world; p++) met += pairs[r][p] > 0;
            if (world <= 16) assert_int_equal(met, world - 1);
            else assert_in_range(met, 14, 15);
            assert_int_equal(pairs[r][r], 0);
        }
    }
}

/* A thin link, and one that is thin in one direction, are their own: others are told their own rates. */
static void a_thin_link_is_its_own(void **state) {
    (void)state;
    all_have(4, 1000);
    rate[0][2] = rate[1][2] = 20e6 / 8;
    rate[1][3] = 100e6 / 8;
    measure(4);
    is_about(0, 1000);
    is_about(1, 1000);
    is_about(2, 20);
    is_about(3, 100);
    assert_true(links[3].out > 2 * links[3].in);   /* GOT waits behind DATA on the thin way, so it is not all that there is */
}

/* A receiver that is held up in the middle, as by a quota, finds what came meanwhile in its buffers, and takes it at once. */
static void a_pause_makes_no_link_faster(void **state) {
    (void)state;
    static struct echi_links l;
    uint8_t data[ECHI_LINKS_BYTES] = {0}, out[ECHI_LINKS_BYTES];
    size_t len;
    int peer;
    const int64_t each = 1000000, from = 60 * each, until = 100 * each;   /* 3.6 MB/s; of 120 messages */
    memset(&l, 0, sizeof l);
    echi_links_begin(&l, 0, 2, 1);
    data[0] = 0;
    echi_links_hear(&l, 1, data, 1, 1);
    data[0] = 1;
    for (int64_t i = 0; i < 120; i++) {
        const int64_t comes = i * each;
        echi_links_hear(&l, 1, data, sizeof data, 1 + (comes >= from - 10 * each && comes < until ? until : comes));
    }
    data[0] = 4;
    echi_links_hear(&l, 1, data, 1, 1 + 120 * each);
    while (echi_links_next(&l, 1 + 121 * each, 0, &peer, out, &len)) {}
    const double sent = (ECHI_LINKS_BYTES + ECHI_LINKS_OVERHEAD) * 1e9 / (double)each;
    if (!(l.in < 1.05 * sent && l.in > 0.9 * sent)) fail_msg("%g bytes/s came, %g were found", sent, l.in);
}

/* What is on its way grows with what has come: a slow link's buffers do not fill. */
static void little_is_on_its_way(void **state) {
    (void)state;
    static struct echi_links l;
    uint8_t out[ECHI_LINKS_BYTES];
    static const uint8_t ready = 0, got = 2;
    static const int expected[] = {16, 16, 16, 16};   /* 16 first, then two for each that has come */
    size_t len;
    int peer;
    memset(&l, 0, sizeof l);
    echi_links_begin(&l, 0, 2, 1);
    echi_links_hear(&l, 1, &ready, 1, 1);
    for (int gots = 0; gots < 4; gots++) {
        int data = 0;
        while (echi_links_next(&l, 2, 0, &peer, out, &len)) data += len == ECHI_LINKS_BYTES;
        assert_int_equal(data, expected[gots]);
        echi_links_hear(&l, 1, &got, 1, 2);
    }
    for (int i = 0; i < 1000; i++) echi_links_hear(&l, 1, &got, 1, 2);   /* more than was sent: none of that counts */
    int data = 0;
    while (echi_links_next(&l, 2, 0, &peer, out, &len)) data += len == ECHI_LINKS_BYTES;
    assert_int_equal(data, 16 + 2 * 64 - 64);
}

/* A node that is lost, or says nothing, costs some seconds at most; what is no message costs nothing. */
static void others_go_on(void **state) {
    (void)state;
    all_have(4, 100);
    silent[3] = true;
    assert_true(measure(4) < 17);
    for (int r = 0; r < 3; r++) is_about(r, 100);
    all_have(4, 100);
    gone[3] = true;
    memset(links, 0, sizeof links);
    echi_links_begin(&links[0], 0, 4, 1);
    for (int round = 0; round < 3; round++) {
        const int partner = links[0].partner;
        echi_links_lost(&links[0], 0);
        assert_int_equal(links[0].partner, partner);
        echi_links_lost(&links[0], partner);
    }
    assert_true(links[0].over && echi_links_rate(&links[0]) == 0);
    static const uint8_t nonsense[][10] = {{9}, {255}, {5, 1}, {5, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, {1}, {4}};
    memset(links, 0, sizeof links);
    for (int begun = 0; begun < 2; begun++) {
        for (int i = 0; i < 6; i++)
            for (size_t len = 0; len < sizeof nonsense[0]; len++)
                for (int peer = -1; peer <= ECHI_WORLD_MAX; peer++) echi_links_hear(&links[0], peer, nonsense[i], len, 5);
        if (!begun) echi_links_begin(&links[0], 0, 4, 1);
    }
    assert_true(echi_links_rate(&links[0]) < 1e-3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_are_those_of_the_shapers), cmocka_unit_test(all_meet),
                                       cmocka_unit_test(a_thin_link_is_its_own),
                                       cmocka_unit_test(a_pause_makes_no_link_faster), cmocka_unit_test(little_is_on_its_way),
                                       cmocka_unit_test(others_go_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
