/* SPDX-License-Identifier: Apache-2.0
 * The calls of echi_net.h: open, poll, post, send, close. */
#include "echi_error.h"
#include "echi_net_impl.h"
#include "echi_os.h"
#include "echi_secret.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE_MAX 1024       /* messages that wait for one peer */
#define POLLS_WITHOUT_WAIT 8 /* events may be handed out so often before the links are looked at again */

/* --- open --- */

static ech_status check_kinds(const struct echi_net_config *config, struct ech_error *err) {
    if (config->n_kinds < 1 || config->n_kinds > ECHI_NET_KINDS_MAX || !config->kinds)
        return echi_fail(err, ECH_E_ARGUMENT, "net.open", "a table of %d kinds of message: 1 to %d are possible", config->n_kinds,
                         ECHI_NET_KINDS_MAX);
    for (int i = 0; i < config->n_kinds; i++) {
        const struct echi_net_kind *kind = &config->kinds[i];
        if (!kind->name || kind->meta_cap > ECHI_NET_META_MAX || kind->payload_cap > SIZE_MAX ||
            kind->payload_least > kind->payload_cap || !(kind->tolerance == 0.0f) || kind->names > ECHI_NET_NAMES_MAX)
            return echi_fail(err, ECH_E_ARGUMENT, "net.open",
                             "kind %d of message: it needs a name, a meta_cap of at most %u, a payload_least up to its "
                             "payload_cap, tolerance 0 until a transport may lose bytes, and at most %d names for its messages",
                             i, ECHI_NET_META_MAX, ECHI_NET_NAMES_MAX);
    }
    return ECH_OK;
}

static ech_status check_config(const struct echi_net_config *config, struct ech_error *err) {
    if (config->world < 1 || config->world > ECHI_NET_WORLD_MAX)
        return echi_fail(err, ECH_E_ARGUMENT, "net.open",
                         "--world %d: give 1 to %d nodes: each is connected with all others (echelon sim takes more)",
                         config->world, ECHI_NET_WORLD_MAX);
    if (config->rank < 0 || config->rank >= config->world)
        return echi_fail(err, ECH_E_ARGUMENT, "net.open", "--rank %d in a world of %d: give 0 to %d", config->rank, config->world,
                         config->world - 1);
    if (config->n_fingerprints < 0 || config->n_fingerprints >= ECHI_HELLO_PRINTS ||
        (config->n_fingerprints && !config->fingerprints))
        return echi_fail(err, ECH_E_ARGUMENT, "net.open", "%d fingerprints: at most %d are compared", config->n_fingerprints,
                         ECHI_HELLO_PRINTS - 1);
    if (config->key && (config->key_len < ECHI_NET_KEY_LEAST || config->key_len > ECHI_NET_KEY_MOST))
        return echi_fail(err, ECH_E_ARGUMENT, "net.open", "--key has %zu bytes: give a file of %d to %d random bytes", config->key_len,
                         ECHI_NET_KEY_LEAST, ECHI_NET_KEY_MOST);
    if (config->key && echi_keys_trivial(config->key, config->key_len))
        return echi_fail(err, ECH_E_ARGUMENT, "net.open",
                         "--key holds %zu bytes that are easy to guess (few different ones, or a pattern that repeats): make a key with "
                         "head -c 32 /dev/urandom > run.key", config->key_len);
    if (!config->hub && config->world > 1 && !config->coordinator)
        return echi_fail(err, ECH_E_ARGUMENT, "net.open", "%d nodes need --coordinator host:port to meet", config->world);
    return check_kinds(config, err);
}

static ech_status make_tables(struct echi_net *net, struct ech_error *err) {
    size_t peers = (size_t)net->world, inlet_bytes = 0, inlets = 0;
    for (int k = 0; k < net->n_kinds; k++) {
        const size_t names = (size_t)echi_net_names(&net->kinds[k]);
        inlets += names;
        inlet_bytes += names * net->kinds[k].meta_cap;
        if (net->kinds[k].meta_cap > net->meta_max) net->meta_max = net->kinds[k].meta_cap;
    }
    /* One connection for each peer, one more while an old one dies, and the strangers. */
    echi_random_init(&net->draws, (uint64_t)echi_now(), ECHI_STREAM_STRANGERS, (uint32_t)net->rank);
    net->n_conns = net->world == 1 ? 0 : 2 * (net->world - 1) + ECHI_NET_STRANGERS;
    net->peers = calloc(peers, sizeof *net->peers);
    net->conns = calloc((size_t)net->n_conns + 1, sizeof *net->conns);
    net->inlets = calloc(peers * inlets, sizeof *net->inlets);
    net->inlet_metas = calloc(peers, inlet_bytes + 1);
    net->event_metas = calloc(ECHI_NET_EVENTS, net->meta_max + 1);
    if (!net->peers || !net->conns || !net->inlets || !net->inlet_metas || !net->event_metas)
        return echi_fail_memory(err, "net.open", "the tables of peers");
    uint8_t *meta = net->inlet_metas;
    for (int i = 0; i < net->world; i++) {
        struct echi_peer *peer = &net->peers[i];
        ECHI_TRY(echi_queue_begin(&peer->queue, net->kinds, net->n_kinds, err));
        peer->inlets = net->inlets + (size_t)i * inlets;
        for (int k = 0; k < net->n_kinds; k++)
            for (int name = 0; name < echi_net_names(&net->kinds[k]); name++, meta += net->kinds[k].meta_cap)
                peer->inlets[echi_queue_lane(&peer->queue, k, name)].meta = meta;
    }
    ECHI_TRY(echi_pool_create(&net->posts, sizeof(struct echi_post), ECHI_NET_CREDITS_MAX * (peers - 1), "posted buffers", err));
    return echi_pool_create(&net->messages, sizeof(struct echi_message) + net->meta_max,
                            (QUEUE_MAX + ECHI_BATCH_FRAMES) * (peers - 1), "queued messages", err);
}

static ech_status make_transport(struct echi_net *net, const struct echi_net_config *config, struct ech_error *err) {
    struct echi_net_config alone = *config;
    if (!config->hub && net->world == 1) {
        ECHI_TRY(echi_net_hub_create(1, &net->own_hub, err));
        alone.hub = net->own_hub;
    }
    ECHI_TRY(alone.hub ? echi_inproc_create(&alone, &net->transport, err) : echi_tcp_create(&alone, &net->transport, err));
    if (config->wrap) net->transport = config->wrap(config->wrap_self, net->transport);
    if (net->rank == 0) ECHI_TRY(net->transport->ops->listen(net->transport, NULL, net->address, err));
    return ECH_OK;
}

static void destroy(struct echi_net *net) {
    for (int i = 0; i < net->n_conns && net->conns; i++) echi_conn_close(net, &net->conns[i]);
    if (net->transport) net->transport->ops->destroy(net->transport);
    echi_net_hub_destroy(net->own_hub);
    echi_pool_destroy(&net->messages);
    echi_pool_destroy(&net->posts);
    for (int i = 0; i < net->world && net->peers; i++) echi_queue_end(&net->peers[i].queue);
    free(net->event_metas);
    free(net->inlet_metas);
    free(net->inlets);
    free(net->conns);
    free(net->peers);
    echi_secret_wipe(net->root, sizeof net->root);
    free(net);
}

ech_status echi_net_open(const struct echi_net_config *config, struct echi_net **out, struct ech_error *err) {
    *out = NULL;
    ECHI_TRY(check_config(config, err));
    struct echi_net *net = calloc(1, sizeof *net);
    if (!net) return echi_fail_memory(err, "net.open", "the node");
    net->rank = config->rank;
    net->world = config->world;
    net->kinds = config->kinds;
    net->n_kinds = config->n_kinds;
    net->join_timeout = config->join_timeout;
    net->in_turn = config->in_turn;
    net->opened = echi_now();
    net->chunk = ECHI_NET_CHUNK;
    net->epoch = config->epoch ? config->epoch : ECHI_FRAME_EPOCH;
    net->keyed = config->key != NULL;
    if (net->keyed) echi_keys_root(config->key, config->key_len, net->root);
    net->sent_end = &net->sent_first;
    echi_text_print(net->coordinator, sizeof net->coordinator, "%s",
                    config->hub || !config->coordinator ? "the hub" : config->coordinator);
    echi_hello_make(&net->hello, config);
    ech_status status;
    ECHI_TRY_GOTO(make_tables(net, err), fail);
    ECHI_TRY_GOTO(make_transport(net, config, err), fail);
    echi_join_start(net);
    *out = net;
    return ECH_OK;
fail:
    destroy(net);
    return status;
}

const char *echi_net_address(const struct echi_net *net) { return net->address; }

void echi_net_peer_end(const struct echi_net *net, int peer, char out[64]) {
    _Static_assert(ECHI_NET_ADDRESS == 64, "what the header promises");
    struct echi_conn *conn = net->peers[peer].conn;
    out[0] = 0;
    if (conn) net->transport->ops->name(net->transport, conn->link, out);
}

/* --- poll --- */

static void accept_all(struct echi_net *net) {
    struct echi_link *link;
    /* No more at once than there are places: a flood of callers must not keep those away who are here. */
    for (int i = 0; i < ECHI_NET_STRANGERS && (link = net->transport->ops->accept(net->transport, NULL)) != NULL; i++) {
        struct echi_conn *conn = echi_conn_take(net);
        if (!conn) {
            net->transport->ops->hang_up(net->transport, link);
            continue;
        }
        link->user = conn;
        echi_conn_start(net, conn, link, -1, false);
    }
}

/* Waits once and handles what has come. */
static ech_status look(struct echi_net *net, int64_t deadline, struct ech_error *err) {
    struct echi_ready ready[ECHI_NET_WORLD_MAX];
    int n;
    ECHI_TRY(net->transport->ops->wait(net->transport, deadline, ready, ECHI_NET_WORLD_MAX, &n, err));
    bool callers = false;
    for (int i = 0; i < n; i++) {
        struct echi_conn *conn = ready[i].user;
        if (!conn) {
            callers = true;
            continue;
        }
        /* What was handled before in this round may have ended this connection: then it is free and all three do nothing. */
        if (ready[i].write && conn->state == ECHI_CONN_DIALLING) echi_join_linked(net, conn);
        if (ready[i].write) conn->blocked = false;
        if (ready[i].read) echi_conn_read(net, conn);
    }
    /* Last, because it may give a connection that has become free to somebody else. */
    if (callers) accept_all(net);
    return ECH_OK;
}

/* Everything that can be done without waiting. */
static void work(struct echi_net *net) {
    echi_join_tick(net, echi_now());
    net->more_to_send = false;
    echi_way_out_look(net);
    for (int i = 0; i < net->n_conns; i++) {
        echi_conn_process(net, &net->conns[i]); /* what a full ring of events had held up */
        echi_conn_flush(net, &net->conns[i]);
        echi_conn_bury(net, &net->conns[i]);
    }
    if (echi_way_out_look(net)) net->more_to_send = true;   /* who had no turn has it now */
    echi_event_collect(net);
}

static int hand_out(struct echi_net *net, struct echi_net_event *out, int cap) {
    int count = 0;
    for (net->handed = 0; net->handed < net->n_events && count < cap; net->handed++) {
        const struct echi_net_event *event = &net->events[(net->first_event + net->handed) % ECHI_NET_EVENTS];
        if (event->type != ECHI_EVENT_VOID) out[count++] = *event;
    }
    return count;
}

/* A deadline is over, too, when the clock has gone back behind the moment at which the wait for it began: who set it did not
 * mean to wait for as long as that. */
static bool passed(int64_t began, int64_t deadline) {
    const int64_t now = echi_now();
    return now >= deadline || now < began;
}

ech_status echi_net_poll(struct echi_net *net, int64_t deadline, struct echi_net_event *out, int cap, int *out_count,
                         struct ech_error *err) {
    *out_count = 0;
    if (cap < 1) return echi_fail(err, ECH_E_ARGUMENT, "net.poll", "no room for events: give at least 1");
    net->first_event = (net->first_event + net->handed) % ECHI_NET_EVENTS;
    net->n_events -= net->handed;
    net->handed = 0;
    bool done = false, waited = false;
    const int64_t entered = echi_now();
    for (;;) {
        work(net);
        if (net->failed != ECH_OK) {
            if (err) *err = net->failure;
            return net->failed;
        }
        if (atomic_exchange(&net->woken, false) || net->n_events > 0 || (waited && passed(entered, deadline))) done = true;
        if (done && (waited || net->polls_without_wait < POLLS_WITHOUT_WAIT)) break;
        int64_t until = echi_join_next(net);
        if (echi_way_out_next(net) < until) until = echi_way_out_next(net);
        if (deadline < until) until = deadline;
        ECHI_TRY(look(net, done || net->more_to_send ? 0 : until, err));
        waited = true;
    }
    net->polls_without_wait = waited ? 0 : net->polls_without_wait + 1;
    *out_count = hand_out(net, out, cap);
    return ECH_OK;
}

void echi_net_flush(struct echi_net *net) {
    for (int i = 0; i < net->n_conns; i++) echi_conn_flush(net, &net->conns[i]);
}

#define WORTH_A_CALL 16384u   /* bytes that are worth a wake and a system call: 1.3 ms of 100 Mb/s */

void echi_net_give_way(struct echi_net *net, uint32_t bytes, double rate) {
    const uint32_t quarter = bytes / 4 > WORTH_A_CALL ? bytes / 4 : WORTH_A_CALL;
    net->unsent = bytes > WORTH_A_CALL ? bytes : WORTH_A_CALL;
    net->chunk = quarter < ECHI_NET_CHUNK ? quarter : ECHI_NET_CHUNK;
    net->way_out = (struct echi_way_out){.rate = net->chunk < ECHI_NET_CHUNK ? rate : 0, .small = 2 * (size_t)net->unsent, .peer = -1};
    for (int i = 0; i < net->world; i++) {
        net->peers[i].queue.chunk = net->chunk;
        net->peers[i].slow_until = net->peers[i].slow_for = 0;
    }
    for (int i = 0; i < net->n_conns; i++) echi_conn_give_way(net, &net->conns[i]);
}

void echi_net_wake(struct echi_net *net) {
    if (!atomic_exchange(&net->woken, true)) net->transport->ops->wake(net->transport);
}

/* --- post and send --- */

static ech_status check_target(const struct echi_net *net, int peer, int kind, int name, const char *operation, struct ech_error *err) {
    if (peer < 0 || peer >= net->world || peer == net->rank)
        return echi_fail_at(err, ECH_E_ARGUMENT, operation, peer, NULL, "rank %d is no peer of rank %d in a world of %d", peer,
                            net->rank, net->world);
    if (kind < 0 || kind >= net->n_kinds)
        return echi_fail_at(err, ECH_E_ARGUMENT, operation, peer, NULL, "kind %d of message: there are %d", kind, net->n_kinds);
    if (name < 0 || name >= echi_net_names(&net->kinds[kind]))
        return echi_fail_at(err, ECH_E_ARGUMENT, operation, peer, NULL, "a '%s' named %d: it has the names 0 to %d", net->kinds[kind].name,
                            name, echi_net_names(&net->kinds[kind]) - 1);
    if (net->peers[peer].state == ECHI_PEER_LOST)
        return echi_fail_at(err, ECH_E_PEER_LOST, operation, peer, NULL, "%s", net->peers[peer].text);
    return ECH_OK;
}

ech_status echi_net_post(struct echi_net *net, int peer, int kind, int name, void *buffer, size_t cap, uint64_t cookie,
                         struct ech_error *err) {
    ECHI_TRY(check_target(net, peer, kind, name, "net.post", err));
    if (net->kinds[kind].payload_cap == 0 || !buffer || cap == 0)
        return echi_fail_at(err, ECH_E_ARGUMENT, "net.post", peer, NULL,
                            "a buffer of %zu bytes for '%s', which has payloads of at most "
                            "%llu",
                            cap, net->kinds[kind].name, (unsigned long long)net->kinds[kind].payload_cap);
    struct echi_inlet *inlet = &net->peers[peer].inlets[echi_queue_lane(&net->peers[peer].queue, kind, name)];
    struct echi_post *post = inlet->posts < ECHI_NET_CREDITS_MAX ? echi_pool_take(&net->posts) : NULL;
    if (!post)
        return echi_fail_at(err, ECH_E_MEMORY, "net.post", peer, NULL,
                            "%u buffers are posted for '%s' from rank %d: wait for messages first", inlet->posts,
                            net->kinds[kind].name, peer);
    *post = (struct echi_post){NULL, buffer, cap, cookie};
    if (inlet->first)
        inlet->last->next = post;
    else
        inlet->first = post;
    inlet->last = post;
    inlet->posts++;
    echi_queue_grant(&net->peers[peer].queue, kind, name);
    return ECH_OK;
}

ech_status echi_net_send(struct echi_net *net, int peer, const struct echi_net_message *message, struct ech_error *err) {
    ECHI_TRY(check_target(net, peer, message->kind, message->name, "net.send", err));
    const struct echi_net_kind *k = &net->kinds[message->kind];
    const size_t meta_len = message->meta_len, payload_len = message->payload_len;
    if (meta_len > k->meta_cap || payload_len > k->payload_cap || payload_len < k->payload_least || (meta_len && !message->meta) ||
        (payload_len && !message->payload))
        return echi_fail_at(err, ECH_E_ARGUMENT, "net.send", peer, NULL, "'%s' of %zu + %zu bytes: it may have %u + %llu to %llu",
                            k->name, meta_len, payload_len, k->meta_cap, (unsigned long long)k->payload_least,
                            (unsigned long long)k->payload_cap);
    struct echi_queue *queue = &net->peers[peer].queue;
    struct echi_message *m = queue->count < QUEUE_MAX ? echi_pool_take(&net->messages) : NULL;
    if (!m)
        return echi_fail_at(err, ECH_E_MEMORY, "net.send", peer, NULL,
                            "%d messages wait for rank %d already, '%s' cannot: it reads too "
                            "slowly or has granted no credits",
                            queue->count, peer, k->name);
    m->peer = peer;
    m->order = net->order++;
    m->kind = (uint8_t)message->kind;
    m->name = message->name;
    m->priority = message->priority;
    m->cookie = message->cookie;
    m->payload = message->payload;
    m->len = payload_len;
    m->meta_len = (uint16_t)meta_len;
    if (meta_len) memcpy(m->meta, message->meta, meta_len);
    echi_queue_push(queue, m);
    return ECH_OK;
}

void echi_net_drop(struct echi_net *net, int peer, const char *why) {
    if (peer < 0 || peer >= net->world || net->peers[peer].state != ECHI_PEER_UP || net->phase < ECHI_NET_RUNNING) return;
    echi_event_void(net, peer);
    echi_peer_lose(net, peer, false, why);
}

void echi_net_bytes_sent(const struct echi_net *net, uint64_t out[ECHI_NET_KINDS_MAX + 1]) {
    memset(out, 0, (ECHI_NET_KINDS_MAX + 1) * sizeof *out);
    memcpy(out, net->sent, ((size_t)net->n_kinds + 1) * sizeof *out);
}

uint64_t echi_net_bytes_from(const struct echi_net *net, int peer) { return net->peers[peer].got; }

bool echi_net_delivered(struct echi_net *net, int peer, int64_t least, uint64_t *out_bytes, int64_t *out_ns) {
    struct echi_flow *flow = peer == net->rank ? &net->flow : &net->peers[peer].flow;
    if (flow->ns < least) return false;
    *out_bytes = flow->bytes;
    *out_ns = flow->ns;
    flow->bytes = 0;
    flow->ns = 0;
    return true;
}

int echi_net_waiting(const struct echi_net *net, int peer, int kind, bool *out_for_credit) {
    return echi_queue_waiting(&net->peers[peer].queue, kind, out_for_credit);
}

/* --- close --- */

/* Says good-bye where all is sent. Returns how many connections are still to be waited for. */
static int part(struct echi_net *net) {
    int left = 0;
    for (int i = 0; i < net->world; i++) {
        struct echi_conn *conn = net->peers[i].conn;
        if (!conn || conn->mute) continue;
        left++;
        if (conn->finished || conn->in_batch || net->peers[i].queue.count > 0) continue;
        if (!conn->parting) {
            conn->parting = true;
            echi_conn_put(net, conn, ECHI_FRAME_GOODBYE, NULL, 0);
            echi_conn_flush(net, conn);
            if (conn->in_batch) continue;
        }
        conn->finished = true;
        net->transport->ops->finish(net->transport, conn->link);
    }
    return left;
}

void echi_net_close(struct echi_net *net, int64_t linger) {
    if (!net) return;
    if (net->phase == ECHI_NET_RUNNING) {
        const int64_t began = echi_now(), deadline = began + linger;
        net->phase = ECHI_NET_CLOSING;
        net->way_out.rate = 0;   /* nobody waits for another any more */
        net->transport->ops->unlisten(net->transport);
        do work(net);
        while (part(net) > 0 && !passed(began, deadline) && look(net, net->more_to_send ? 0 : deadline, NULL) == ECH_OK);
    }
    destroy(net);
}
