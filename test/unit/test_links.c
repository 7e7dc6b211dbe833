/* SPDX-License-Identifier: Apache-2.0
 * Links measured at the start, over shapers in virtual time: each host's way out and way in is a token bucket. */
#include "echi_links.h"
#include "echi_bytes.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 17, QUEUE = 4096, TICK = 100000 };   /* ns */
static struct echi_links links[MOST];
static struct flight { int from, to; uint8_t body[64]; size_t len, bytes; int64_t due; }
    queue[2][MOST][QUEUE];   /* on the way out, on the way in */
static int first[2][MOST], last[2][MOST];
static double rate[2][MOST], tokens[2][MOST], burst[2][MOST], delay[MOST];   /* seconds from a host to the middle */
static bool gone[MOST], silent[MOST], unmeasured[MOST];
static int pairs[MOST][MOST];
static bool by_pair;                                     /* as `echelon doctor` measures */
static struct echi_links_pair pair[MOST][MOST];

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
        pairs[r][f.to] += body[0] != 6;   /* rank 0 tells all what is given */
        put(0, r, &f);
    }
}

static void pass(int way, int r, int64_t now) {
    tokens[way][r] = fmin(tokens[way][r] + rate[way][r] * TICK * 1e-9, burst[way][r]);
    while (first[way][r] != last[way][r]) {
        struct flight *f = &queue[way][r][first[way][r]];
        if (tokens[way][r] < (double)f->bytes || now < f->due) return;
        tokens[way][r] -= (double)f->bytes;
        if (way == 0) f->due = now + (int64_t)((delay[r] + delay[f->to]) * 1e9);
        if (way == 0) put(1, f->to, f);
        else if (!gone[r]) assert_true(echi_links_hear(&links[r], f->from, f->body, f->len, now));
        first[way][r] = (first[way][r] + 1) % QUEUE;
    }
}

/* Seconds until all have measured; of links[0].given rank 0 tells them. */
static double measure_given(int world, const struct echi_link *given) {
    memset(links, 0, sizeof links);
    if (given) memcpy(links[0].given, given, (size_t)world * sizeof *given);
    memset(first, 0, sizeof first);
    memset(last, 0, sizeof last);
    memset(pairs, 0, sizeof pairs);
    memset(pair, 0, sizeof pair);
    for (int r = 0; r < world && by_pair; r++) {
        links[r].pairs = pair[r];
        links[r].wall = r * INT64_C(7000000000);
    }
    for (int way = 0; way < 2; way++)
        for (int r = 0; r < world; r++) {
            burst[way][r] = fmax(16384, rate[way][r] * 1e-3) + ECHI_LINKS_BYTES;
            tokens[way][r] = burst[way][r];
        }
    for (int64_t now = 1;; now += TICK) {
        bool over = true;
        for (int r = 0; r < world; r++) {
            if (now == 1 + (int64_t)r * 3 * TICK) echi_links_begin(&links[r], r, world, !unmeasured[r], now);   /* not at the same moment */
            turn(r, now);
            over = over && (gone[r] || silent[r] || links[r].over);
        }
        if (over) return (double)now * 1e-9;
        assert_true(now < INT64_C(300000000000));
        for (int r = 0; r < world; r++) pass(0, r, now);
        for (int r = 0; r < world; r++) pass(1, r, now);
    }
}

static double measure(int world) { return measure_given(world, NULL); }

static void all_have(int world, double mbits) {
    for (int r = 0; r < world; r++) {
        rate[0][r] = rate[1][r] = mbits * 1e6 / 8;
        gone[r] = silent[r] = unmeasured[r] = false;
    }
}

static void is_about(int r, double mbits) {
    const double found = echi_link_slower(&links[r].link) * 8e-6;
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
            if (world == 2) assert_true(links[0].moved == links[1].moved && links[0].moved >= 100000);   /* what one sends the other gets */
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
    /* GOT waits behind DATA on the thin way, so it is not all that there is. */
    assert_true(links[3].link.out.rate > 2 * links[3].link.in.rate);
}

/* Nodes as far from the middle as their nearest partner, or farther; of two nodes only the sum can be known. Nothing is slower here than
 * messages that wait for a host's turn. */
static void delays_are_those_of_the_ways(void **state) {
    (void)state;
    static const struct { int world; double has[5], found[5]; } cases[] = {
        {3, {5e-3, 5e-3, 5e-3}, {5e-3, 5e-3, 5e-3}}, {4, {20e-3, 5e-3, 5e-3, 5e-3}, {20e-3, 5e-3, 5e-3, 5e-3}},
        {5, {1e-3, 1e-3, 50e-3, 1e-3, 30e-3}, {1e-3, 1e-3, 50e-3, 1e-3, 30e-3}}, {2, {1e-3, 9e-3}, {5e-3, 5e-3}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        all_have(cases[i].world, 100);
        memcpy(delay, cases[i].has, sizeof cases[i].has);
        measure(cases[i].world);
        memset(delay, 0, sizeof delay);
        for (int r = 0; r < cases[i].world; r++) {
            const double found = echi_links_delay(&links[r], 0), less = echi_links_delay(&links[r], 1e-3);
            if (!(fabs(found - cases[i].found[r]) < 0.4e-3)) fail_msg("case %zu, rank %d: %g s", i, r, found);
            if (!(fabs(found - less - 1e-3) < 1e-9 || less == 0)) fail_msg("case %zu, rank %d: %g s with messages", i, r, less);
        }
    }
    assert_true(echi_links_delay(&(struct echi_links){.round_trip = 0}, 0) == 0);
}

/* Each two meet, however many there are, and neither DATA nor other pairs are in the way of a round trip. */
static void pairs_are_measured(void **state) {
    (void)state;
    by_pair = true;
    for (int world = 2; world <= MOST; world += world < 5 ? 1 : 12) {
        all_have(world, 100);
        rate[0][1] = rate[1][1] = 20e6 / 8;
        const double seconds = measure(world);
        if (!(seconds < world * 0.8)) fail_msg("%d nodes took %g s", world, seconds);
        for (int a = 0; a < world; a++)
            for (int b = 0; b < world; b++) {
                if (a == b) continue;
                const double mbits = a == 1 || b == 1 ? 20 : 100;
                const struct echi_links_pair *at = &pair[a][b];
                if (!(fabs(at->in.rate * 8e-6 / mbits - 1) < 0.03)) fail_msg("%d to %d of %d: %g Mb/s", b, a, world, at->in.rate * 8e-6);
                assert_true(at->out.rate == pair[b][a].in.rate && at->out.highest == pair[b][a].in.highest);
                assert_true(at->round_trip > 0 && at->round_trip < 1e-3);
                assert_true(fabs(at->offset - (b - a) * 7.0) <= at->round_trip / 2 + 1e-9);
            }
    }
    by_pair = false;
}

/* All that was seen lies in the interval: what the link carries, and what it carried with a thin partner. */
static void the_interval_has_all_that_was_seen(void **state) {
    (void)state;
    all_have(4, 1000);
    rate[0][2] = rate[1][2] = 20e6 / 8;
    measure(4);
    for (int r = 0; r < 4; r++)
        for (int way = 0; way < 2; way++) {
            const struct echi_rate *found = way ? &links[r].link.in : &links[r].link.out;
            assert_true(echi_rate_valid(found) && found->rate > 0);
            assert_true(fabs(found->lowest * 8e-6 / 20 - 1) < 0.03);   /* with rank 2, or its own */
            assert_true(found->highest * 8e-6 < (r == 2 ? 20 : 1000) * 1.05);
        }
    all_have(4, 1000);
    measure(4);
    for (int r = 0; r < 4; r++) assert_true(links[r].link.out.lowest * 8e-6 > 950 && links[r].link.in.lowest * 8e-6 > 950);
}

/* What the plan says is taken, and nothing is sent to measure it, whatever the shapers would let through. */
static void what_the_plan_says_is_not_measured(void **state) {
    (void)state;
    struct echi_link given[5];
    for (int r = 0; r < 5; r++) given[r] = (struct echi_link){{1e6 * (r + 1), 9e5 * (r + 1), 2e6 * (r + 1)}, echi_rate_of(5e6 + r)};
    for (int world = 2; world <= 5; world++) {
        all_have(world, 1);
        assert_true(measure_given(world, given) < 0.1);
        for (int r = 0; r < world; r++) {
            assert_memory_equal(&links[r].link, &given[r], sizeof given[r]);
            for (int to = 0; to < world; to++) assert_int_equal(pairs[r][to], 0);
        }
    }
}

/* Nodes of one machine have no link, and neither wait for one nor for each other; what is given counts there, too. */
static void nobody_measures_what_is_not_there(void **state) {
    (void)state;
    const struct echi_link given[3] = {echi_link_of(1e6), echi_link_of(2e6), echi_link_of(3e6)};
    all_have(3, 100);
    for (int r = 0; r < 3; r++) unmeasured[r] = true;
    assert_true(measure(3) < 0.1);
    for (int r = 0; r < 3; r++) assert_true(echi_link_slower(&links[r].link) == 0 && links[r].moved == 0);
    assert_true(measure_given(3, given) < 0.1);
    for (int r = 0; r < 3; r++) assert_memory_equal(&links[r].link, &given[r], sizeof given[r]);
}

/* Only rank 0 says what is given, once, and only what makes sense; until it does a node says nothing. */
static void only_rank_0_gives(void **state) {
    (void)state;
    static struct echi_links from, l;
    uint8_t word[ECHI_LINKS_BYTES], out[ECHI_LINKS_BYTES];
    size_t len, own;
    int peer;
    memset(&from, 0, sizeof from);
    memset(&l, 0, sizeof l);
    for (int r = 0; r < 3; r++) from.given[r] = echi_link_of(1e6);
    echi_links_begin(&from, 0, 3, true, 1);
    assert_true(echi_links_next(&from, 1, 0, &peer, word, &len));
    assert_int_equal(peer, 1);
    echi_links_begin(&l, 1, 3, true, 1);
    echi_links_hear(&l, 2, word, len, 1);
    for (size_t cut = 0; cut < len; cut++) echi_links_hear(&l, 0, word, cut, 1);
    assert_false(echi_links_next(&l, 1, 0, &peer, out, &own) || l.over);
    echi_links_hear(&l, 0, word, len, 1);
    assert_true(l.over && l.told && l.link.in.rate == 1e6);
    memset(word + 1, 0, len - 1);
    echi_links_hear(&l, 0, word, len, 1);
    assert_true(l.over && l.told && l.link.in.rate == 1e6);
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
    echi_links_begin(&l, 0, 2, true, 1);
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
    if (!(l.link.in.rate < 1.05 * sent && l.link.in.rate > 0.9 * sent)) fail_msg("%g bytes/s came, %g were found", sent, l.link.in.rate);
}

enum { READY, DATA, GOT, STOP, LAST, RATE, GIVEN, PING, PONG };   /* as in links.c */

/* Rank 1's part in the round trips with this one. */
static void take_round_trips(struct echi_links *l) {
    static const uint8_t ping = PING, pong[9] = {PONG};
    uint8_t out[ECHI_LINKS_BYTES];
    size_t len;
    int peer, left = 2 * ECHI_LINKS_RUN_PINGS;
    for (int i = 0; i < ECHI_LINKS_RUN_PINGS; i++) assert_true(echi_links_hear(l, 1, &ping, 1, 1));
    while (left > 0 && echi_links_next(l, 1, 0, &peer, out, &len)) {
        left -= out[0] == PING || out[0] == PONG;
        if (out[0] == PING) assert_true(echi_links_hear(l, 1, pong, sizeof pong, 2));
    }
    assert_int_equal(left, 0);
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
    echi_links_begin(&l, 0, 2, true, 1);
    echi_links_hear(&l, 1, &ready, 1, 1);
    take_round_trips(&l);
    for (int gots = 0; gots < 4; gots++) {
        int data = 0;
        while (echi_links_next(&l, 2, 0, &peer, out, &len)) data += len == ECHI_LINKS_BYTES;
        assert_int_equal(data, expected[gots]);
        echi_links_hear(&l, 1, &got, 1, 2);
    }
    int counted = 0;
    for (int i = 0; i < 1000; i++) counted += echi_links_hear(&l, 1, &got, 1, 2);   /* more than was sent: none of that counts */
    assert_int_equal(counted, 4);
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
    echi_links_begin(&links[0], 0, 4, true, 1);
    for (int round = 0; round < 3; round++) {
        const int partner = links[0].partner;
        echi_links_lost(&links[0], 0);
        assert_int_equal(links[0].partner, partner);
        echi_links_lost(&links[0], partner);
    }
    assert_true(links[0].over && echi_link_slower(&links[0].link) == 0);
    static const uint8_t nonsense[][10] = {{9}, {255}, {5, 1}, {5, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, {1}, {4}};
    memset(links, 0, sizeof links);
    for (int begun = 0; begun < 2; begun++) {
        for (int i = 0; i < 6; i++)
            for (size_t len = 0; len < sizeof nonsense[0]; len++)
                for (int peer = -1; peer <= ECHI_WORLD_MAX; peer++) echi_links_hear(&links[0], peer, nonsense[i], len, 5);
        if (!begun) echi_links_begin(&links[0], 0, 4, true, 1);
    }
    assert_true(echi_link_slower(&links[0].link) == 0);
}

/* What no node sends that measures is known for it: a run and a doctor drop who does. */
static void nonsense_is_known(void **state) {
    (void)state;
    static struct echi_links l;
    static struct echi_links_pair of[2];
    static uint8_t body[ECHI_LINKS_BYTES + 1], out[ECHI_LINKS_BYTES];
    static const size_t whole[] = {1, ECHI_LINKS_BYTES, 1, 1, 1, 25, 49, 1, 9};
    size_t len;
    int peer;
    for (int pairs_too = 0; pairs_too < 2; pairs_too++) {
        memset(&l, 0, sizeof l);
        memset(body, 0, sizeof body);
        if (pairs_too) l.pairs = of;
        echi_links_begin(&l, 0, 2, true, 1);
        for (int step = 0; step < 256; step++)
            for (size_t n = 0; n <= sizeof body; n++) {
                body[0] = (uint8_t)step;
                if (n == 0 || step > PONG || n != whole[step]) assert_false(echi_links_hear(&l, 1, body, n, 2));
            }
        body[0] = GIVEN;
        assert_false(echi_links_hear(&l, 1, body, whole[GIVEN], 2));   /* rank 0 itself gives */
        body[0] = PONG;
        assert_false(echi_links_hear(&l, 1, body, whole[PONG], 2));    /* nothing was asked */
        body[0] = GOT;
        assert_false(echi_links_hear(&l, 1, body, 1, 2));              /* nothing was sent */
        body[0] = READY;
        assert_true(echi_links_hear(&l, 1, body, 1, 2));
        while (echi_links_next(&l, 2, 0, &peer, out, &len)) {}
        const int pings = pairs_too ? ECHI_LINKS_PINGS : ECHI_LINKS_RUN_PINGS;
        for (int i = 0; i < pings + 1; i++) {
            body[0] = PING;
            assert_int_equal(echi_links_hear(&l, 1, body, 1, 2), i < pings);
        }
        memset(body + 1, 0xff, 8);
        body[0] = PONG;
        assert_false(echi_links_hear(&l, 1, body, whole[PONG], 3));    /* a clock that none can show */
        memset(body, 0, sizeof body);
        body[0] = DATA;
        for (int i = 0; i <= ECHI_LINKS_FRAMES; i++)
            assert_int_equal(echi_links_hear(&l, 1, body, whole[DATA], 4 + i), i < ECHI_LINKS_FRAMES);
        body[0] = LAST;
        assert_true(echi_links_hear(&l, 1, body, 1, 1000));
        assert_false(echi_links_hear(&l, 1, body, 1, 1000));
        const double rates[][3] = {{-1, 1, 0}, {2, 1, 0}, {1e15, 1e15, 0}, {(double)NAN, 1, 0}, {1, (double)INFINITY, 0}, {1, 1, -1},
                                   {1, 1, 1e7}, {1, 1, (double)NAN}};
        body[0] = RATE;
        for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
            struct echi_writer w = echi_writer_over(body + 1, 24);
            for (int k = 0; k < 3; k++) echi_put_f64(&w, rates[i][k]);
            assert_false(echi_links_hear(&l, 1, body, whole[RATE], 1001));
        }
        assert_true(l.link.out.rate == 0 && of[1].out.rate == 0 && l.theirs == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_are_those_of_the_shapers), cmocka_unit_test(all_meet),
                                       cmocka_unit_test(a_thin_link_is_its_own),
                                       cmocka_unit_test(a_pause_makes_no_link_faster), cmocka_unit_test(little_is_on_its_way),
                                       cmocka_unit_test(others_go_on), cmocka_unit_test(the_interval_has_all_that_was_seen),
                                       cmocka_unit_test(what_the_plan_says_is_not_measured),
                                       cmocka_unit_test(nobody_measures_what_is_not_there), cmocka_unit_test(only_rank_0_gives),
                                       cmocka_unit_test(pairs_are_measured), cmocka_unit_test(delays_are_those_of_the_ways),
                                       cmocka_unit_test(nonsense_is_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
