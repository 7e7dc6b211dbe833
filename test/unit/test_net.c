/* SPDX-License-Identifier: Apache-2.0
 * What every transport must do: each test runs over the in-process transport and over TCP. */
#include "net_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* The transport under test, as cmocka's state: NULL or the address for rank 0. */
static const char *address_of(void **state) { return *state; }

static void over(void **state, int world, void (*body)(struct node *), void *shared) {
    atomic_store(&failures, 0);
    run_world(world, address_of(state), body, shared);
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

static uint8_t *filled(size_t len, unsigned seed) {
    uint8_t *bytes = malloc(len + 1);
    for (size_t i = 0; i < len; i++) bytes[i] = pattern(i, seed);
    return bytes;
}

static bool is_filled(const uint8_t *bytes, size_t len, unsigned seed) {
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

/* --- setup --- */

int main(void) {
    static const char *const tcp = "127.0.0.1:0";
#define ON(test, name, at) {name, test, NULL, NULL, (void *)(uintptr_t)(at)}
#define BOTH(test) ON(test, #test " in-process", NULL), ON(test, #test " TCP", tcp)
    const struct CMUnitTest tests[] = {BOTH(test_worlds), BOTH(test_payloads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
