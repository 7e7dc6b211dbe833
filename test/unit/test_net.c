/* SPDX-License-Identifier: Apache-2.0
 * What every transport must do: each test runs over the in-process transport and over TCP, without a key and with one. */
#include "net_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* What is under test, as cmocka's state: where rank 0 listens (NULL: in-process), and the key. */
struct way { const char *address, *key; };

static void over(void **state, int world, void (*body)(struct node *), void *shared) {
    const struct way *way = *state;
    atomic_store(&failures, 0);
    test_key = way->key;
    run_world(world, way->address, body, shared);
    assert_int_equal(atomic_load(&failures), 0);
}

/* --- every node sends to every other, in order --- */

#define ROUNDS 300

static void everybody_talks(struct node *node) {
    expect(node, ECHI_NET_READY);
    uint32_t seen[8] = {0};
    for (uint32_t n = 0; n < ROUNDS; n++)
        for (int to = 0; to < node->world; to++)
            if (to != node->rank) send_to(node, to, NOTE, &n, sizeof n, NULL, 0, 0);
    for (int left = ROUNDS * (node->world - 1); left > 0; left--) {
        struct echi_net_event e = expect(node, ECHI_NET_MESSAGE);
        if (e.type != ECHI_NET_MESSAGE) return;
        uint32_t n;
        CHECK(e.kind == NOTE && e.meta_len == sizeof n && e.payload == NULL && e.payload_len == 0);
        memcpy(&n, e.meta, sizeof n);
        CHECK(n == seen[e.peer]);
        seen[e.peer] = n + 1;
    }
}

static void test_worlds(void **state) {
    for (int world = 1; world <= 5; world++) over(state, world, everybody_talks, NULL);
}

/* --- payloads --- */

static uint8_t pattern(size_t i, unsigned seed) { return (uint8_t)((i * 2654435761u + seed) >> 11); }

/* ThreadSanitizer need not watch each byte here: only the node's own thread has them. */
#define UNWATCHED __attribute__((no_sanitize("thread")))
UNWATCHED static uint8_t *filled(size_t len, unsigned seed) {
    uint8_t *bytes = malloc(len + 1);
    for (size_t i = 0; i < len; i++) bytes[i] = pattern(i, seed);
    return bytes;
}

UNWATCHED static bool is_filled(const uint8_t *bytes, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != pattern(i, seed)) return false;
    return true;
}

static const size_t lengths[] = {1, 55, 4096, 65535, 65536, 65537, 131072, 200001, 10u << 20};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

static void payloads(struct node *node) {
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        uint8_t *bytes[N_LENGTHS];
        for (unsigned i = 0; i < N_LENGTHS; i++) {
            bytes[i] = filled(lengths[i], i);
            send_to(node, 1, PUSH, &i, sizeof i, bytes[i], lengths[i], 100 + i);
        }
        for (unsigned i = 0; i < N_LENGTHS; i++) {
            struct echi_net_event e = expect(node, ECHI_NET_SENT);
            CHECK(e.kind == PUSH && e.peer == 1 && e.cookie == 100 + i && e.payload_len == lengths[i]);
            free(bytes[i]);
        }
        struct echi_net_event e = expect(node, ECHI_NET_LOST);
        CHECK(e.peer == 1 && e.orderly);
        return;
    }
    uint8_t *places[N_LENGTHS];
    for (unsigned i = 0; i < N_LENGTHS; i++) {
        places[i] = malloc(lengths[i] + 8);
        memset(places[i] + lengths[i], 0xA5, 8);
        post_for(node, 0, PUSH, places[i], lengths[i], 200 + i);
    }
    for (unsigned i = 0; i < N_LENGTHS; i++) {
        struct echi_net_event e = expect(node, ECHI_NET_MESSAGE);
        unsigned meta = 99;
        if (e.meta_len == sizeof meta) memcpy(&meta, e.meta, sizeof meta);
        CHECK(meta == i && e.cookie == 200 + i && e.payload == places[i] && e.payload_len == lengths[i]);
        CHECK(is_filled(places[i], lengths[i], i));
        for (int g = 0; g < 8; g++) CHECK(places[i][lengths[i] + (size_t)g] == 0xA5);
        free(places[i]);
    }
}

static void test_payloads(void **state) { over(state, 2, payloads, NULL); }

/* Whoever closes first waits until what he sent is out. */
static void close_sends_all(struct node *node) {
    const size_t len = 20u << 20;
    static uint8_t *bytes; /* rank 0's, which may be freed only when its net is closed */
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        bytes = filled(len, 5);
        send_to(node, 1, BULK, NULL, 0, bytes, len, 1);
        send_to(node, 1, NOTE, "end", 3, NULL, 0, 0);
        return;
    }
    uint8_t *place = calloc(1, len);
    echi_sleep_until(echi_now() + 20 * MS);
    post_for(node, 0, BULK, place, len, 2);
    CHECK(expect(node, ECHI_NET_MESSAGE).kind == NOTE);
    CHECK(expect(node, ECHI_NET_MESSAGE).cookie == 2 && is_filled(place, len, 5));
    struct echi_net_event e = expect(node, ECHI_NET_LOST);
    CHECK(e.orderly && strstr(e.text, "rank 0 left in order"));
    free(bytes);
    free(place);
}

static void test_close_sends_all(void **state) { over(state, 2, close_sends_all, NULL); }

/* --- what may be asked of a peer --- */

/* A payload without a place waits for a credit, and is counted; its first bytes are a sign of life long before its last. */
static void who_sends_is_there(struct node *node) {
    const size_t len = 32u << 20;
    uint8_t *bytes = filled(len, 9);
    bool for_credit = true;
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        CHECK(echi_net_waiting(node->net, 1, BULK, &for_credit) == 0 && !for_credit);
        send_to(node, 1, BULK, NULL, 0, bytes, len, 1);
        send_to(node, 1, BULK, NULL, 0, bytes, 100, 2);
        send_to(node, 1, NOTE, "now", 3, NULL, 0, 0);
        CHECK(echi_net_waiting(node->net, 1, NOTE, &for_credit) == 1 && !for_credit);
        CHECK(expect(node, ECHI_NET_MESSAGE).kind == NOTE);   /* both have had their time to leave */
        CHECK(echi_net_waiting(node->net, 1, NOTE, &for_credit) == 0 && !for_credit);
        CHECK(echi_net_waiting(node->net, 1, BULK, &for_credit) == 2 && for_credit);
        send_to(node, 1, NOTE, "go", 2, NULL, 0, 0);
        CHECK(expect(node, ECHI_NET_SENT).cookie == 1 && expect(node, ECHI_NET_SENT).cookie == 2);
        CHECK(echi_net_waiting(node->net, 1, BULK, &for_credit) == 0 && !for_credit);
        CHECK(expect(node, ECHI_NET_LOST).orderly);
    } else {
        uint8_t *place = calloc(1, len);
        CHECK(expect(node, ECHI_NET_MESSAGE).meta_len == 3);
        send_to(node, 0, NOTE, "got", 3, NULL, 0, 0);
        CHECK(expect(node, ECHI_NET_MESSAGE).meta_len == 2);
        const uint64_t before = echi_net_bytes_from(node->net, 0);
        uint64_t last = before;
        int signs = 0;
        post_for(node, 0, BULK, place, len, 3);
        post_for(node, 0, BULK, place, len, 4);
        struct echi_net_event e = {.type = ECHI_NET_READY};
        while (e.type != ECHI_NET_MESSAGE) {
            e = next_event(node, 0);
            signs += e.type != ECHI_NET_MESSAGE && echi_net_bytes_from(node->net, 0) > last;
            last = echi_net_bytes_from(node->net, 0);
        }
        CHECK(e.type == ECHI_NET_MESSAGE && e.payload_len == len && signs > 3 && last - before >= len);
        CHECK(expect(node, ECHI_NET_MESSAGE).payload_len == 100);
        free(place);
    }
    free(bytes);
}

static void test_who_sends_is_there(void **state) { over(state, 2, who_sends_is_there, NULL); }

/* What a link delivers is counted from the first bytes of a message to its last, and not while nothing is under way. */
static void links_are_measured(struct node *node) {
    const size_t len = 8u << 20, unseen = 2u << 17;   /* of each message what comes with its first bytes */
    uint8_t *bytes = filled(len, 9);
    expect(node, ECHI_NET_READY);
    for (int i = 0; i < 2; i++) {
        if (node->rank == 0) {
            send_to(node, 1, BULK, NULL, 0, bytes, len, 1);
            expect(node, ECHI_NET_SENT);
            expect(node, ECHI_NET_MESSAGE);
            continue;
        }
        static int64_t began, paused;
        uint64_t all = 0, of_one = 0;
        int64_t ns_of_all = 0, ns_of_one = 0;
        uint8_t *place = calloc(1, len);
        if (i == 0) began = echi_now();
        post_for(node, 0, BULK, place, len, 3);
        CHECK(expect(node, ECHI_NET_MESSAGE).payload_len == len);
        if (i == 0) {   /* a pause, in which everything has come */
            const int64_t from = echi_now();
            while (echi_now() < from + SECOND / 20) (void)next_event(node, SECOND / 100);
            paused = echi_now() - from;
        } else {
            const int64_t passed = echi_now() - began - paused;
            CHECK(!echi_net_delivered(node->net, 0, passed + 1, &of_one, &ns_of_one));
            CHECK(echi_net_delivered(node->net, 0, 1, &of_one, &ns_of_one) && echi_net_delivered(node->net, 1, 1, &all, &ns_of_all));
            CHECK(ns_of_one > 0 && ns_of_one <= passed && of_one >= 2 * (len - unseen) && of_one <= 2 * (len + unseen));
            CHECK(all == of_one && ns_of_all == ns_of_one);   /* nobody else sends */
            CHECK(!echi_net_delivered(node->net, 0, 1, &of_one, &ns_of_one) && !echi_net_delivered(node->net, 1, 1, &all, &ns_of_all));
        }
        send_to(node, 0, NOTE, "go", 2, NULL, 0, 0);
        free(place);
    }
    if (node->rank == 0) CHECK(expect(node, ECHI_NET_LOST).orderly);
    free(bytes);
}
static void test_links_are_measured(void **state) { over(state, 2, links_are_measured, NULL); }

/* --- priorities --- */

static void urgent_overtakes_within(struct node *node, uint32_t unsent, uint32_t chunk) {
    const size_t len = 32u << 20;
    uint8_t *bytes = filled(len, 7), beat = 1;
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        if (unsent) echi_net_give_way(node->net, unsent, 0);
        uint64_t sent[ECHI_NET_KINDS_MAX + 1] = {0};
        int count;
        struct echi_net_event e;
        send_to(node, 1, BULK, NULL, 0, bytes, len, 1);
        for (int i = 0; i < 10000 && sent[BULK] == 0; i++) {
            CHECK(echi_net_poll(node->net, echi_now() + MS, &e, 1, &count, NULL) == ECH_OK && count == 0);
            echi_net_bytes_sent(node->net, sent);
        }
        CHECK(sent[BULK] > 0 && sent[BULK] < len / 2);
        send_to(node, 1, ROWS, NULL, 0, bytes, 100000, 2);
        send_to(node, 1, HEARTBEAT, &beat, 1, NULL, 0, 0);
        CHECK(expect(node, ECHI_NET_SENT).cookie == 2);
        CHECK(expect(node, ECHI_NET_SENT).cookie == 1);
        echi_net_bytes_sent(node->net, sent);
        CHECK(sent[BULK] == len + (len / chunk) * 56 && sent[HEARTBEAT] == 57 && sent[ROWS] == 100000 + (100000 / chunk + 1) * 56);
        expect(node, ECHI_NET_LOST);
    } else {
        uint8_t *rows = malloc(100000);
        memset(bytes, 0, len);
        post_for(node, 0, BULK, bytes, len, 11);
        post_for(node, 0, ROWS, rows, 100000, 12);
        CHECK(expect(node, ECHI_NET_MESSAGE).kind == HEARTBEAT);
        CHECK(expect(node, ECHI_NET_MESSAGE).cookie == 12 && is_filled(rows, 100000, 7));
        CHECK(expect(node, ECHI_NET_MESSAGE).cookie == 11 && is_filled(bytes, len, 7));
        free(rows);
    }
    free(bytes);
}
static void urgent_overtakes(struct node *node) { urgent_overtakes_within(node, 0, ECHI_NET_CHUNK); }
static void urgent_overtakes_sooner(struct node *node) { urgent_overtakes_within(node, 16384, 16384); }
static void urgent_overtakes_by_quarters(struct node *node) { urgent_overtakes_within(node, 131072, 32768); }
static void urgent_overtakes_later(struct node *node) { urgent_overtakes_within(node, 1 << 20, ECHI_NET_CHUNK); }

static void test_urgent_overtakes(void **state) {
    over(state, 2, urgent_overtakes, NULL);
    over(state, 2, urgent_overtakes_sooner, NULL);
    over(state, 2, urgent_overtakes_by_quarters, NULL);
    over(state, 2, urgent_overtakes_later, NULL);
}

/* --- one way out for several peers --- */

static uint64_t bulk_sent(struct node *node) {
    uint64_t sent[ECHI_NET_KINDS_MAX + 1];
    echi_net_bytes_sent(node->net, sent);
    return sent[BULK];
}

/* Two messages, the second when the first has begun to leave; true if the one expected is sent before much of the other has gone. */
static bool alone(struct node *node, const uint8_t *bytes, size_t len, int priority, uint64_t first_sent) {
    struct echi_net_message m = {.kind = BULK, .priority = 3, .payload = bytes, .payload_len = len, .cookie = 1};
    const uint64_t before = bulk_sent(node);
    CHECK(echi_net_send(node->net, 2, &m, NULL) == ECH_OK);
    while (bulk_sent(node) == before) CHECK((int)next_event(node, MS / 10).type == -1);
    const uint64_t begun = bulk_sent(node) - before;
    m.priority = (uint16_t)priority, m.cookie = 2;
    CHECK(echi_net_send(node->net, 1, &m, NULL) == ECH_OK);
    const uint64_t first = expect(node, ECHI_NET_SENT).cookie, sent = bulk_sent(node) - before;
    CHECK(expect(node, ECHI_NET_SENT).cookie == 3 - first);
    return first == first_sent && sent < begun + len + len / 4;
}

/* On a slow link large messages leave one after the other, whoever they go to: of like urgency the oldest, and a more urgent one before the
 * rest of it. Where a receiver does not run for a while others have their turn, so it is tried until none is held up. And then one that
 * does not read, which holds nobody else up. */
static void one_after_the_other(struct node *node) {
    static atomic_bool third_has;
    const size_t len = 8u << 20;
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        uint8_t *bytes = filled(4 * len, 3);
        bool oldest = false, urgent = false;
        atomic_store(&third_has, false);
        for (int i = 0; i < 50 && !(oldest && urgent); i++) {
            echi_net_give_way(node->net, 16384, 1);
            oldest = alone(node, bytes, len, 3, 1) || oldest;
            urgent = alone(node, bytes, len, 2, 2) || urgent;
        }
        CHECK(oldest && urgent);
        for (int peer = 1; peer < 3; peer++) send_to(node, peer, NOTE, NULL, 0, NULL, 0, 0);
        for (int peer = 1; peer < 3; peer++) CHECK(expect(node, ECHI_NET_MESSAGE).kind == NOTE);
        send_to(node, 1, BULK, NULL, 0, bytes, 4 * len, 5);
        send_to(node, 2, BULK, NULL, 0, bytes, len, 6);
        CHECK(expect(node, ECHI_NET_SENT).cookie == 6);
        CHECK(expect(node, ECHI_NET_SENT).cookie == 5);
        for (int peer = 1; peer < 3; peer++) send_to(node, peer, NOTE, NULL, 0, NULL, 0, 0);
        for (int peer = 1; peer < 3; peer++) CHECK(expect(node, ECHI_NET_LOST).orderly);
        free(bytes);
        return;
    }
    uint8_t *place = malloc(4 * len);
    do post_for(node, 0, BULK, place, 4 * len, 1);
    while (expect(node, ECHI_NET_MESSAGE).kind == BULK);
    send_to(node, 0, NOTE, NULL, 0, NULL, 0, 0);
    echi_net_flush(node->net);
    if (node->rank == 1)
        while (!atomic_load(&third_has)) echi_sleep_until(echi_now() + MS);
    CHECK(expect(node, ECHI_NET_MESSAGE).payload_len == (node->rank == 1 ? 4 * len : len));
    if (node->rank == 2) atomic_store(&third_has, true);
    CHECK(expect(node, ECHI_NET_MESSAGE).kind == NOTE);
    free(place);
}
static void test_one_after_the_other(void **state) { over(state, 3, one_after_the_other, NULL); }

/* --- credits --- */

static void credits(struct node *node) {
    static uint8_t out[1000];
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        /* No credit: the push waits, what is behind it of other kinds does not. */
        send_to(node, 1, PUSH, "a", 1, out, sizeof out, 1);
        send_to(node, 1, PUSH, "b", 1, NULL, 0, 2);
        send_to(node, 1, NOTE, "c", 1, NULL, 0, 3);
        CHECK(expect(node, ECHI_NET_MESSAGE).kind == NOTE); /* the other side's word that it has waited */
        uint64_t sent[ECHI_NET_KINDS_MAX + 1];
        echi_net_bytes_sent(node->net, sent);
        CHECK(sent[PUSH] == 0);
        send_to(node, 1, NOTE, "d", 1, NULL, 0, 4);
        CHECK(expect(node, ECHI_NET_SENT).cookie == 1);
        expect(node, ECHI_NET_LOST);
        return;
    }
    uint8_t in[1000];
    CHECK(expect(node, ECHI_NET_MESSAGE).meta[0] == 'c');
    CHECK((int)next_event(node, 50 * MS).type == -1);
    send_to(node, 0, NOTE, NULL, 0, NULL, 0, 0);
    CHECK(expect(node, ECHI_NET_MESSAGE).meta[0] == 'd');
    post_for(node, 0, PUSH, in, sizeof in, 5);
    struct echi_net_event e = expect(node, ECHI_NET_MESSAGE);
    CHECK(e.meta[0] == 'a' && e.cookie == 5);
    e = expect(node, ECHI_NET_MESSAGE);
    CHECK(e.meta[0] == 'b' && e.payload == NULL && e.payload_len == 0); /* nothing to put anywhere: needs no credit */
}

static void test_credits(void **state) { over(state, 2, credits, NULL); }

static void many_posts(struct node *node) {
    enum { MANY = 1024 };
    static uint32_t values[MANY];
    struct ech_error err;
    expect(node, ECHI_NET_READY);
    if (node->rank == 1) {
        static uint32_t places[MANY];
        for (unsigned i = 0; i < MANY; i++) post_for(node, 0, PUSH, &places[i], 4, i);
        CHECK(echi_net_post(node->net, 0, PUSH, 0, places, 4, 0, &err) == ECH_E_MEMORY && strstr(err.text, "'push' from rank 0"));
        for (unsigned i = 0; i < MANY; i++) {
            struct echi_net_event e = expect(node, ECHI_NET_MESSAGE);
            CHECK(e.cookie == i && e.payload == &places[i] && places[i] == 3 * i);
            if (e.type != ECHI_NET_MESSAGE) return;
        }
        return;
    }
    for (unsigned i = 0; i < MANY; i++) {
        values[i] = 3 * i;
        send_to(node, 1, PUSH, NULL, 0, &values[i], 4, i);
    }
    CHECK(send_kind(node->net, 1, NOTE, NULL, 0, NULL, 0, 0, &err) == ECH_E_MEMORY && strstr(err.text, "rank 1"));
    for (unsigned i = 0; i < MANY; i++) CHECK(expect(node, ECHI_NET_SENT).cookie == i);
    expect(node, ECHI_NET_LOST);
}

static void test_many_posts(void **state) { over(state, 2, many_posts, NULL); }

/* More small messages than the ring of events holds, handed out a few at a time: none is lost, each meta is right. */
static void flood(struct node *node) {
    enum { FLOOD = 20000 };
    expect(node, ECHI_NET_READY);
    struct echi_net_event events[7];
    int count;
    if (node->rank == 0) {
        for (uint32_t n = 0; n < FLOOD;) {
            uint8_t meta[100] = {0};
            memcpy(meta, &n, sizeof n);
            if (send_kind(node->net, 1, NOTE, meta, sizeof meta, NULL, 0, 0, NULL) == ECH_OK)
                n++;
            else
                CHECK(echi_net_poll(node->net, echi_now() + MS, events, 7, &count, NULL) == ECH_OK);
        }
        expect(node, ECHI_NET_LOST);
        return;
    }
    for (uint32_t n = 0; n < FLOOD;) {
        CHECK(echi_net_poll(node->net, echi_now() + LONG, events, 7, &count, NULL) == ECH_OK && count > 0);
        if (count == 0) return;
        for (int i = 0; i < count; i++, n++) {
            uint32_t got = 0;
            if (events[i].meta_len == 100) memcpy(&got, events[i].meta, sizeof got);
            CHECK(events[i].type == ECHI_NET_MESSAGE && got == n);
            if (got != n) return;
        }
    }
}

static void test_flood(void **state) { over(state, 2, flood, NULL); }

/* --- waking and deadlines --- */

static void *wake_later(void *arg) {
    echi_sleep_until(echi_now() + 30 * MS);
    echi_net_wake(arg);
    return NULL;
}

static void waking(struct node *node) {
    expect(node, ECHI_NET_READY);
    struct echi_thread waker;
    struct echi_net_event e;
    int count;
    CHECK(echi_thread_start(&waker, "waker", wake_later, node->net, NULL) == ECH_OK);
    CHECK(echi_net_poll(node->net, INT64_MAX, &e, 1, &count, NULL) == ECH_OK && count == 0);
    echi_thread_join(&waker);
    echi_net_wake(node->net); /* before the poll: kept for it */
    echi_net_wake(node->net);
    CHECK(echi_net_poll(node->net, INT64_MAX, &e, 1, &count, NULL) == ECH_OK && count == 0);
    const int64_t start = echi_now();
    CHECK(echi_net_poll(node->net, start + 30 * MS, &e, 1, &count, NULL) == ECH_OK && count == 0);
    CHECK(echi_now() - start >= 30 * MS);
}

static void test_waking(void **state) { over(state, 1, waking, NULL); }

/* --- what is queued leaves without a poll --- */

static void flushes(struct node *node) {
    atomic_bool *in = node->shared;
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        send_to(node, 1, NOTE, "x", 1, NULL, 0, 0);
        echi_net_flush(node->net);
        for (int i = 0; i < 500 && !atomic_load(in); i++) echi_sleep_until(echi_now() + 10 * MS);
        CHECK(atomic_load(in));
    } else {
        expect(node, ECHI_NET_MESSAGE);
        atomic_store(in, true);
    }
}

static void test_flush(void **state) {
    atomic_bool in = false;
    over(state, 2, flushes, &in);
}

/* --- names --- */

static ech_status send_named(struct node *node, int name, int priority, const void *payload, size_t len, uint64_t cookie) {
    const struct echi_net_message m = {.kind = PUSH, .name = (uint16_t)name, .priority = (uint16_t)priority, .payload = payload,
                                       .payload_len = len, .cookie = cookie};
    return echi_net_send(node->net, 1, &m, NULL);
}

/* Each payload comes into the place of its name, whatever the order of places, sends and priorities; large ones one within the other.
 * A second of one name waits until its receiver posts again, and those of other names do not wait for it. */
static void by_name(struct node *node) {
    enum { LEN = 70000, AGAIN = 40 };
    static uint8_t out[PUSH_NAMES + 1][LEN], in[PUSH_NAMES][LEN];
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        CHECK(expect(node, ECHI_NET_MESSAGE).kind == NOTE);   /* all places are posted */
        for (int i = 0; i <= PUSH_NAMES; i++)
            for (size_t k = 0; k < LEN; k++) out[i][k] = pattern(k, (unsigned)i);
        CHECK(send_named(node, AGAIN, 0, out[AGAIN], LEN, AGAIN) == ECH_OK);
        CHECK(send_named(node, AGAIN, 0, out[PUSH_NAMES], LEN, PUSH_NAMES) == ECH_OK);
        for (int i = 0; i < PUSH_NAMES; i++)
            if (i != AGAIN) CHECK(send_named(node, i, i * 37 % 11, out[i], (size_t)(LEN - i), (uint64_t)i) == ECH_OK);
        bool seen[PUSH_NAMES] = {false};
        for (int i = 0; i < PUSH_NAMES; i++) {
            struct echi_net_event e = expect(node, ECHI_NET_SENT);
            CHECK(e.cookie < PUSH_NAMES && e.name == (int)e.cookie && !seen[e.cookie]);
            if (e.cookie < PUSH_NAMES) seen[e.cookie] = true;
        }
        bool for_credit;
        CHECK(echi_net_waiting(node->net, 1, PUSH, &for_credit) == 1 && for_credit);
        send_to(node, 1, NOTE, NULL, 0, NULL, 0, 0);
        struct echi_net_event e = expect(node, ECHI_NET_SENT);
        CHECK(e.cookie == PUSH_NAMES && e.name == AGAIN);
        expect(node, ECHI_NET_LOST);
        return;
    }
    for (int i = 0; i < PUSH_NAMES; i++) {   /* in an order of their own */
        const int name = i * 61 % PUSH_NAMES;
        const size_t room = (size_t)(name == AGAIN ? LEN : LEN - name);
        CHECK(echi_net_post(node->net, 0, PUSH, name, in[name], room, (uint64_t)name, NULL) == ECH_OK);
    }
    send_to(node, 0, NOTE, NULL, 0, NULL, 0, 0);
    for (int i = 0; i < PUSH_NAMES; i++) {
        struct echi_net_event e = expect(node, ECHI_NET_MESSAGE);
        if (e.kind != PUSH || e.cookie >= PUSH_NAMES) {
            CHECK(false);
            return;
        }
        const int name = (int)e.cookie;
        CHECK(e.name == name && e.payload == in[name] && e.payload_len == (size_t)(name == AGAIN ? LEN : LEN - name));
        CHECK(is_filled(in[name], e.payload_len, (unsigned)name));
    }
    CHECK(expect(node, ECHI_NET_MESSAGE).kind == NOTE);
    CHECK(echi_net_post(node->net, 0, PUSH, AGAIN, in[0], LEN, 7, NULL) == ECH_OK);
    struct echi_net_event e = expect(node, ECHI_NET_MESSAGE);
    CHECK(e.cookie == 7 && e.name == AGAIN && is_filled(in[0], LEN, PUSH_NAMES));
}

static void test_by_name(void **state) { over(state, 2, by_name, NULL); }

/* --- what the caller may not do --- */

static void misuse(struct node *node) {
    struct ech_error err;
    char big[300] = {0};
    expect(node, ECHI_NET_READY);
    if (node->rank == 1) {
        expect(node, ECHI_NET_LOST);
        CHECK(send_kind(node->net, 0, NOTE, NULL, 0, NULL, 0, 0, &err) == ECH_E_PEER_LOST && strstr(err.text, "rank 0"));
        CHECK(echi_net_post(node->net, 0, PUSH, 0, big, 1, 0, &err) == ECH_E_PEER_LOST);
        return;
    }
    CHECK(send_kind(node->net, 0, NOTE, NULL, 0, NULL, 0, 0, &err) == ECH_E_ARGUMENT);
    CHECK(send_kind(node->net, 2, NOTE, NULL, 0, NULL, 0, 0, &err) == ECH_E_ARGUMENT);
    CHECK(send_kind(node->net, 1, N_KINDS, NULL, 0, NULL, 0, 0, &err) == ECH_E_ARGUMENT);
    CHECK(send_kind(node->net, 1, NOTE, big, 201, NULL, 0, 0, &err) == ECH_E_ARGUMENT &&
          strstr(err.text, "'note' of 201 + 0"));
    CHECK(send_kind(node->net, 1, NOTE, NULL, 0, big, 1, 0, &err) == ECH_E_ARGUMENT);
    CHECK(echi_net_post(node->net, 1, PUSH, PUSH_NAMES, big, 1, 0, &err) == ECH_E_ARGUMENT &&
          strstr(err.text, "a 'push' named 100: it has the names 0 to 99"));
    CHECK(send_named(node, PUSH_NAMES, 0, big, 1, 0) == ECH_E_ARGUMENT);
    CHECK(echi_net_send(node->net, 1, &(struct echi_net_message){.kind = NOTE, .name = 1}, &err) == ECH_E_ARGUMENT);
    CHECK(echi_net_post(node->net, 1, NOTE, 0, big, 1, 0, &err) == ECH_E_ARGUMENT);
}

static void test_misuse(void **state) { over(state, 2, misuse, NULL); }

/* A payload larger than the posted buffer ends the connection, in words, and touches nothing. */
static void too_large(struct node *node) {
    static uint8_t out[101];
    expect(node, ECHI_NET_READY);
    if (node->rank == 0) {
        send_to(node, 1, PUSH, NULL, 0, out, sizeof out, 1);
        struct echi_net_event e = next_event(node, LONG);
        if (e.type == ECHI_NET_SENT) e = next_event(node, LONG);
        CHECK(e.type == ECHI_NET_LOST && !e.orderly);
        return;
    }
    uint8_t in[101];
    memset(in, 0xA5, sizeof in);
    post_for(node, 0, PUSH, in, 100, 0);
    struct echi_net_event e = expect(node, ECHI_NET_LOST);
    CHECK(!e.orderly && strstr(e.text, "rank 0") && strstr(e.text, "'push' of 101 bytes into a buffer of 100"));
    for (size_t i = 0; i < sizeof in; i++) CHECK(in[i] == 0xA5);
}

/* Node 0 drops node 1 while a large payload is on its way to it and others wait, some without a credit: each comes back once, and
 * LOST once. Node 1 hears nothing more of it. */
static void drops(struct node *node) {
    enum { SENDS = 5 };
    static uint8_t payload[8 << 20], room[8 << 20];
    if (node->rank == 1) {
        expect(node, ECHI_NET_READY);
        post_for(node, 0, PUSH, room, sizeof room, 0);
        send_to(node, 0, NOTE, NULL, 0, NULL, 0, 0);
        struct echi_net_event e;
        do e = next_event(node, LONG);
        while (e.type == ECHI_NET_MESSAGE || e.type == ECHI_NET_WAITING);
        CHECK(e.type == ECHI_NET_LOST && !e.orderly);
        return;
    }
    expect(node, ECHI_NET_READY);
    expect(node, ECHI_NET_MESSAGE);
    for (uint64_t i = 0; i < SENDS; i++) send_to(node, 1, i < 3 ? PUSH : ROWS, NULL, 0, payload, i ? 1000 : sizeof payload, i);
    send_to(node, 1, NOTE, NULL, 0, NULL, 0, 99);
    echi_net_poll(node->net, 0, &(struct echi_net_event){0}, 0, &(int){0}, NULL);
    echi_net_drop(node->net, 1, "was dropped");
    echi_net_drop(node->net, 1, "was dropped");   /* harmless */
    echi_net_drop(node->net, 0, "was dropped");
    int back = 0, lost = 0;
    while (back < SENDS || lost < 1) {
        const struct echi_net_event e = next_event(node, LONG);
        CHECK(e.type == ECHI_NET_SENT || e.type == ECHI_NET_LOST);
        if (e.type == ECHI_NET_SENT) CHECK(e.cookie < SENDS);
        if ((int)e.type == -1) return;
        back += e.type == ECHI_NET_SENT;
        lost += e.type == ECHI_NET_LOST;
    }
    CHECK(back == SENDS && lost == 1);
    CHECK((int)next_event(node, 50 * MS).type == -1);
    CHECK(send_kind(node->net, 1, NOTE, NULL, 0, NULL, 0, 0, NULL) == ECH_E_PEER_LOST);
}
static void test_drops(void **state) { over(state, 2, drops, NULL); }

static void test_too_large(void **state) { over(state, 2, too_large, NULL); }

/* --- setup --- */

int main(void) {
    static struct way inproc, tcp = {"127.0.0.1:0", NULL}, keyed_inproc = {NULL, "sixteen bytes ok"},
                              keyed_tcp = {"127.0.0.1:0",
                                           "a key that is longer than a block of SHA-256, which HMAC treats in a way of its own"};
#define ON(test, name, way)                                                                                                      \
    { name, test, NULL, NULL, &(way) }
#define EACH(test)                                                                                                               \
    ON(test, #test " in-process", inproc), ON(test, #test " TCP", tcp), ON(test, #test " in-process, keyed", keyed_inproc),      \
        ON(test, #test " TCP, keyed", keyed_tcp)
    const struct CMUnitTest tests[] = {
        EACH(test_worlds),  EACH(test_payloads),   EACH(test_close_sends_all), EACH(test_urgent_overtakes),
        EACH(test_credits), EACH(test_many_posts), EACH(test_flood),           EACH(test_waking),
        EACH(test_misuse),  EACH(test_too_large),  EACH(test_who_sends_is_there), EACH(test_links_are_measured),
        EACH(test_drops),   EACH(test_by_name),    EACH(test_flush),           EACH(test_one_after_the_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
