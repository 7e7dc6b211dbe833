/* SPDX-License-Identifier: Apache-2.0
 * Nodes as threads of a test: opens a world over either transport, runs a body for each rank, and collects what failed. */
#ifndef NET_NODES_H
#define NET_NODES_H
#include "echi_net.h"
#include "echi_os.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000LL
#define SECOND 1000000000LL
#define LONG (3600 * SECOND) /* for what comes: a hang ends by test/run.sh, whatever the machine has to do besides */

/* cmocka's assertions belong to the main thread; these count. */
static atomic_int failures;
#define CHECK(ok)                                                                                                                \
    do {                                                                                                                         \
        if (!(ok)) {                                                                                                             \
            atomic_fetch_add(&failures, 1);                                                                                      \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #ok);                                                   \
        }                                                                                                                        \
    } while (0)

enum { HEARTBEAT, NOTE, PUSH, ROWS, BULK, N_KINDS, PUSH_NAMES = 100 };
static const struct echi_net_kind test_kinds[N_KINDS] = {
    [HEARTBEAT] = {"heartbeat", 16, 0, 0, 0, 0}, [NOTE] = {"note", 200, 0, 0, 0, 0}, [PUSH] = {"push", 64, 16u << 20, 0, 0, PUSH_NAMES},
    [ROWS] = {"rows", 64, 300000, 0, 1, 0},      [BULK] = {"bulk", 8, 64u << 20, 0, 0, 0},
};

static const uint16_t test_priority[N_KINDS] = {[NOTE] = 1, [PUSH] = 3, [ROWS] = 2, [BULK] = 3};

/* The key of all nodes from here on; NULL: none. */
static const char *test_key;

struct node {
    int rank, world;
    struct echi_net *net;
    void (*body)(struct node *node);
    void *shared; /* the test's own */
    struct echi_thread thread;
};

/* The next event, or one of type -1 when `wait` has passed. */
static inline struct echi_net_event next_event(struct node *node, int64_t wait) {
    struct echi_net_event event = {.type = (enum echi_net_event_type) - 1};
    struct ech_error err = {.code = ECH_OK};
    int64_t deadline = echi_now() + wait;
    int count = 0;
    while (count == 0) {
        ech_status status = echi_net_poll(node->net, deadline, &event, 1, &count, &err);
        if (status != ECH_OK) {
            fprintf(stderr, "rank %d: %s\n", node->rank, err.text);
            CHECK(status == ECH_OK);
            return event;
        }
        if (echi_now() >= deadline) break;
    }
    return event;
}

/* The next event that is no WAITING and, where a message is expected, no orderly farewell of a node that is done. */
static inline struct echi_net_event expect(struct node *node, int type) {
    struct echi_net_event event;
    do event = next_event(node, LONG);
    while (event.type == ECHI_NET_WAITING || (event.type == ECHI_NET_LOST && event.orderly && type == ECHI_NET_MESSAGE));
    CHECK((int)event.type == type);
    if ((int)event.type != type)
        fprintf(stderr, "rank %d of %d: event %d, not %d: %s\n", node->rank, node->world, (int)event.type, type,
                event.type == ECHI_NET_LOST ? event.text : "");
    return event;
}

/* With the name 0, and the priority that its kind has here. */
static inline ech_status send_kind(struct echi_net *net, int peer, int kind, const void *meta, size_t meta_len, const void *payload,
                                   size_t len, uint64_t cookie, struct ech_error *err) {
    const struct echi_net_message m = {.kind = kind, .priority = kind < N_KINDS ? test_priority[kind] : 0, .meta = meta,
                                       .meta_len = meta_len, .payload = payload, .payload_len = len, .cookie = cookie};
    return echi_net_send(net, peer, &m, err);
}

static inline void send_to(struct node *node, int peer, int kind, const void *meta, size_t meta_len, const void *payload,
                           size_t len, uint64_t cookie) {
    struct ech_error err = {.code = ECH_OK};
    ech_status status = send_kind(node->net, peer, kind, meta, meta_len, payload, len, cookie, &err);
    if (status != ECH_OK) fprintf(stderr, "rank %d: %s\n", node->rank, err.text);
    CHECK(status == ECH_OK);
}

static inline void post_for(struct node *node, int peer, int kind, void *buffer, size_t cap, uint64_t cookie) {
    CHECK(echi_net_post(node->net, peer, kind, 0, buffer, cap, cookie, NULL) == ECH_OK);
}

static inline void *run_node(void *arg) {
    struct node *node = arg;
    node->body(node);
    echi_net_close(node->net, LONG);
    return NULL;
}

static inline struct echi_net_config node_config(int rank, int world, struct echi_net_hub *hub, const char *coordinator) {
    return (struct echi_net_config){.rank = rank,
                                    .world = world,
                                    .kinds = test_kinds,
                                    .n_kinds = N_KINDS,
                                    .hub = hub,
                                    .coordinator = coordinator,
                                    .key = test_key,
                                    .key_len = test_key ? strlen(test_key) : 0,
                                    .join_timeout = LONG};
}

/* Opens and runs a world; `at` is where rank 0 listens, NULL for in-process. */
static inline void run_world(int world, const char *at, void (*body)(struct node *node), void *shared) {
    struct node nodes[8];
    struct echi_net_hub *hub = NULL;
    struct ech_error err = {.code = ECH_OK};
    char coordinator[64] = "";
    int opened = 0;
    if (!at)
        CHECK(echi_net_hub_create(world, &hub, &err) == ECH_OK);
    else
        snprintf(coordinator, sizeof coordinator, "%s", at);
    for (; opened < world; opened++) {
        struct node *node = &nodes[opened];
        struct echi_net_config config = node_config(opened, world, hub, coordinator);
        *node = (struct node){.rank = opened, .world = world, .body = body, .shared = shared};
        ech_status status = echi_net_open(&config, &node->net, &err);
        if (status != ECH_OK) fprintf(stderr, "%s\n", err.text);
        CHECK(status == ECH_OK);
        if (status != ECH_OK) break;
        if (at && opened == 0) snprintf(coordinator, sizeof coordinator, "%s", echi_net_address(node->net));
    }
    if (opened == world)
        for (int i = 0; i < world; i++) CHECK(echi_thread_start(&nodes[i].thread, "node", run_node, &nodes[i], NULL) == ECH_OK);
    for (int i = 0; i < opened; i++) {
        if (opened == world)
            echi_thread_join(&nodes[i].thread);
        else
            echi_net_close(nodes[i].net, 0);
    }
    echi_net_hub_destroy(hub);
}
#endif
