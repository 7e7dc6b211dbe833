/* SPDX-License-Identifier: Apache-2.0
 * How the nodes of a run meet. Every node dials rank 0 and says hello, with the address at which it listens itself. When
 * all have, rank 0 tells all where the others are; each dials the ranks below its own. Who has a link to everybody
 * reports so to rank 0, and when all have, rank 0 calls READY. */
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_net_impl.h"
#include "echi_os.h"

#include <stdio.h>

static const int64_t ms = 1000000, second = 1000000000;
/* How much longer the others wait than rank 0, whose sentence names who is missing. */
#define GRACE (2 * second)
#define NEWS_EVERY (2 * second)

static void fail_join(struct echi_net *net, ech_status status, int rank, const char *text) {
    if (net->failed != ECH_OK || net->phase >= ECHI_NET_RUNNING) return;
    net->failed = echi_fail_at(&net->failure, status, "net.join", rank, NULL, "%s", text);
    if (net->rank != 0) return;
    /* Those who have not said hello yet may be nodes, too: without this they would call again until their time is up. */
    for (int i = 0; i < net->n_conns; i++)
        if (net->conns[i].state == ECHI_CONN_UP || net->conns[i].state == ECHI_CONN_GREETING)
            echi_conn_refuse(net, &net->conns[i], status, text);
}

static bool complete(const struct echi_net *net) {
    for (int i = 0; i < net->world; i++)
        if (i != net->rank && net->peers[i].state != ECHI_PEER_UP) return false;
    return true;
}

/* "rank 2", "ranks 1, 3", of those that have no link to this node. */
static void list_missing(const struct echi_net *net, char *out, size_t cap) {
    int missing = 0;
    size_t len = 0;
    for (int i = 0; i < net->world; i++) missing += i != net->rank && net->peers[i].state != ECHI_PEER_UP;
    len += (size_t)snprintf(out, cap, missing == 1 ? "rank " : "ranks ");
    const char *comma = "";
    for (int i = 0; i < net->world && len < cap; i++) {
        if (i == net->rank || net->peers[i].state == ECHI_PEER_UP) continue;
        len += (size_t)snprintf(out + len, cap - len, "%s%d", comma, i);
        comma = ", ";
    }
}

static int count_joined(const struct echi_net *net) {
    int joined = 1;
    for (int i = 0; i < net->world; i++) joined += i != net->rank && net->peers[i].state == ECHI_PEER_UP;
    return joined;
}

/* --- progress --- */

static void broadcast(struct echi_net *net, enum echi_frame_type type, const void *body, size_t len) {
    for (int i = 0; i < net->world; i++)
        if (net->peers[i].state == ECHI_PEER_UP) echi_conn_put(net, net->peers[i].conn, type, body, len);
}

static void send_peers(struct echi_net *net) {
    uint8_t body[ECHI_FRAME_BODY_CAP];
    struct echi_writer w = echi_writer_over(body, sizeof body);
    for (int i = 1; i < net->world; i++) {
        size_t len = strlen(net->peers[i].address);
        echi_put8(&w, (uint8_t)len);
        echi_put_bytes(&w, net->peers[i].address, len);
    }
    broadcast(net, ECHI_FRAME_PEERS, body, (size_t)(w.at - body));
}

static void begin_run(struct echi_net *net) {
    net->phase = ECHI_NET_RUNNING;
    net->has_news = false;
    /* There is room: only news were told until now. READY is in the ring before any message can be. */
    echi_event_add(net, ECHI_NET_READY, -1);
    /* Rank 0 keeps listening, to tell one who comes too late that he is. */
    if (net->rank != 0) net->transport->ops->unlisten(net->transport);
}

static void progress(struct echi_net *net) {
    if (net->phase == ECHI_NET_MEETING && net->rank == 0 && complete(net)) {
        send_peers(net);
        net->phase = ECHI_NET_LINKING;
    }
    if (net->phase == ECHI_NET_LINKING && complete(net)) {
        net->phase = ECHI_NET_LINKED;
        if (net->rank != 0) echi_conn_put(net, net->peers[0].conn, ECHI_FRAME_CONNECTED, NULL, 0);
    }
    if (net->phase == ECHI_NET_LINKED && net->rank == 0) {
        for (int i = 1; i < net->world; i++)
            if (!net->peers[i].linked) return;
        broadcast(net, ECHI_FRAME_READY, NULL, 0);
        begin_run(net);
    }
}

static void attach(struct echi_net *net, struct echi_conn *conn, int rank) {
    conn->rank = rank;
    echi_conn_set_state(net, conn, ECHI_CONN_UP);
    net->peers[rank].state = ECHI_PEER_UP;
    net->peers[rank].conn = conn;
    net->peers[rank].dialling = false;
}

/* --- dialling --- */

static void dial_later(struct echi_net *net, int rank, const char *why) {
    struct echi_peer *peer = &net->peers[rank];
    echi_text_print(peer->text, sizeof peer->text, "%s", why);
    peer->dialling = true;
    peer->dial_at = echi_now() + peer->pause;
    peer->pause = peer->pause < 250 * ms ? 2 * peer->pause : 500 * ms;
}

static void dial_soon(struct echi_net *net, int rank) {
    net->peers[rank].pause = 20 * ms;
    net->peers[rank].dialling = true;
    net->peers[rank].dial_at = 0;
}

static void dial(struct echi_net *net, int rank) {
    struct echi_peer *peer = &net->peers[rank];
    struct echi_conn *conn = echi_conn_take(net);
    struct echi_link *link;
    struct ech_error err = {.text = "cannot be dialled: too many strangers hold connections"};
    if (!conn || net->transport->ops->dial(net->transport, rank, peer->address, peer->tries++, conn, &link, &err) != ECH_OK) {
        dial_later(net, rank, err.text);
        return;
    }
    peer->dialling = false;
    echi_conn_start(net, conn, link, rank, true);
}

static void say_hello(struct echi_net *net, struct echi_conn *conn) {
    uint8_t body[ECHI_FRAME_BODY_CAP];
    echi_text_print(net->hello.address, sizeof net->hello.address, "%s", net->address);
    echi_conn_put(net, conn, ECHI_FRAME_HELLO, body, echi_hello_store(&net->hello, body));
}

void echi_join_linked(struct echi_net *net, struct echi_conn *conn) {
    struct echi_transport *t = net->transport;
    struct ech_error err;
    ech_status status = t->ops->dialled(t, conn->link, &err);
    if (status == ECH_E_AGAIN) return;
    if (status != ECH_OK) {
        echi_conn_broken(net, conn, &err);
        return;
    }
    if (conn->rank == 0 && t->ops->listen(t, conn->link, net->address, &err) != ECH_OK) {
        fail_join(net, err.code, -1, err.text);
        return;
    }
    t->ops->watch_write(t, conn->link, false);
    echi_conn_set_state(net, conn, ECHI_CONN_GREETING);
    say_hello(net, conn);
}

/* --- greeting --- */

/* Somebody who called us has said who he is. */
static void greet_caller(struct echi_net *net, struct echi_conn *conn, const struct echi_hello *theirs) {
    struct ech_error err = {.code = ECH_OK};
    int rank = theirs->rank;
    bool in_world = theirs->world == net->world && rank < net->world;
    if (theirs->world != net->world) {
        echi_hello_compare(&net->hello, theirs, &err);
    } else if (rank >= net->world || rank <= net->rank) {
        echi_fail_at(&err, ECH_E_MISMATCH, "net.join", rank, NULL,
                     "a node with --rank %d called rank %d of %d: ranks are 1 to %d for "
                     "those that call rank 0, and every node needs its own",
                     rank, net->rank, net->world, net->world - 1);
    } else if (net->phase >= ECHI_NET_RUNNING) {
        echi_fail_at(&err, ECH_E_BUSY, "net.join", rank, NULL,
                     "rank %d came when the run had begun with all %d nodes: choose another "
                     "--coordinator for another run",
                     rank, net->world);
    } else if (net->peers[rank].state == ECHI_PEER_UP) {
        echi_fail_at(&err, ECH_E_MISMATCH, "net.join", rank, NULL,
                     "rank %d has joined already from %s, and another node with --rank %d "
                     "came: give every node its own --rank",
                     rank, net->peers[rank].address, rank);
    } else if (echi_hello_compare(&net->hello, theirs, &err) == ECH_OK) {
        echi_text_print(net->peers[rank].address, sizeof net->peers[rank].address, "%s", theirs->address);
        attach(net, conn, rank);
        say_hello(net, conn);
        progress(net);
        return;
    } else {
        /* A node of this very run that believes in another model or data: waiting for it would be in vain. */
        echi_conn_refuse(net, conn, err.code, err.text);
        if (in_world) fail_join(net, err.code, rank, err.text);
        return;
    }
    echi_conn_refuse(net, conn, err.code, err.text);
    if (net->phase >= ECHI_NET_RUNNING) return;
    echi_text_print(net->refused, sizeof net->refused, "%s", err.text);
}

static void on_hello(struct echi_net *net, struct echi_conn *conn, const uint8_t *body, size_t len) {
    struct echi_hello theirs;
    struct ech_error err;
    if (conn->state != ECHI_CONN_GREETING || echi_hello_load(body, len, &theirs, &err) != ECH_OK) {
        echi_conn_broken(net, conn, &(struct ech_error){.code = ECH_E_FORMAT, .text = "sent no proper hello"});
        return;
    }
    if (!conn->dialled) {
        greet_caller(net, conn, &theirs);
        return;
    }
    if (theirs.rank != conn->rank) {
        struct ech_error why = {.code = ECH_E_FORMAT};
        echi_text_print(why.text, sizeof why.text, "answered as rank %d", theirs.rank);
        echi_conn_broken(net, conn, &why);
        return;
    }
    if (echi_hello_compare(&net->hello, &theirs, &err) != ECH_OK) {
        fail_join(net, err.code, theirs.rank, err.text);
        return;
    }
    attach(net, conn, theirs.rank);
    progress(net);
}

static void on_refuse(struct echi_net *net, struct echi_conn *conn, const uint8_t *body, size_t len) {
    struct echi_reader r = echi_reader_over(body, len);
    uint32_t code = echi_get32(&r);
    char text[300], sentence[400];
    echi_text_clean(text, sizeof text, r.at, (size_t)(r.end - r.at));
    /* Between others than rank 0 it means that one of the two has not seen yet that an older link of theirs is gone. */
    if (!conn->dialled || conn->rank != 0 || !r.ok) {
        echi_conn_broken(net, conn, &(struct ech_error){.code = ECH_E_PEER_LOST, .text = "refused the connection"});
        return;
    }
    bool known = code == ECH_E_BUSY || code == ECH_E_TIMEOUT || code == ECH_E_PEER_LOST;
    echi_text_print(sentence, sizeof sentence, "rank 0 at %s ended the join: %s", net->coordinator, text);
    fail_join(net, known ? (ech_status)code : ECH_E_MISMATCH, 0, sentence);
}

static void on_peers(struct echi_net *net, struct echi_conn *conn, const uint8_t *body, size_t len) {
    struct echi_reader r = echi_reader_over(body, len);
    for (int i = 1; i < net->world; i++) {
        size_t n = echi_get8(&r);
        if (n >= ECHI_NET_ADDRESS) r.ok = false;
        const uint8_t *text = echi_reader_take(&r, n);
        echi_text_clean(net->peers[i].address, ECHI_NET_ADDRESS, text, text ? n : 0);
    }
    if (!r.ok || r.at != r.end) {
        echi_conn_broken(net, conn, &(struct ech_error){.code = ECH_E_FORMAT, .text = "sent a malformed table of nodes"});
        return;
    }
    net->phase = ECHI_NET_LINKING;
    for (int i = 1; i < net->rank; i++) dial_soon(net, i);
    progress(net);
}

void echi_join_ready(struct echi_net *net) {
    if (complete(net)) {
        begin_run(net);
        return;
    }
    char missing[160], text[300];
    list_missing(net, missing, sizeof missing);
    echi_text_print(text, sizeof text, "the link between rank %d and %s broke just before the run began: start it again",
                    net->rank, missing);
    fail_join(net, ECH_E_PEER_LOST, -1, text);
}

void echi_join_frame(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    bool up = conn->state == ECHI_CONN_UP, from_0 = up && conn->rank == 0;
    if (frame->type == ECHI_FRAME_HELLO) {
        on_hello(net, conn, body, frame->meta_len);
    } else if (frame->type == ECHI_FRAME_REFUSE && net->phase < ECHI_NET_RUNNING) {
        on_refuse(net, conn, body, frame->meta_len);
    } else if (frame->type == ECHI_FRAME_PEERS && from_0 && net->phase == ECHI_NET_MEETING) {
        on_peers(net, conn, body, frame->meta_len);
    } else if (frame->type == ECHI_FRAME_CONNECTED && up && net->rank == 0 && net->phase < ECHI_NET_RUNNING) {
        net->peers[conn->rank].linked = true;
        progress(net);
    } else if (frame->type == ECHI_FRAME_READY && from_0 && net->phase == ECHI_NET_LINKED) {
        echi_join_ready(net);
    } else if (frame->type != ECHI_FRAME_READY || !from_0 || net->phase != ECHI_NET_RUNNING) {
        /* (A READY that another node's message has overtaken is fine.) */
        echi_conn_broken(net, conn, &(struct ech_error){.code = ECH_E_FORMAT, .text = "sent a frame that was not its turn"});
    }
}

/* --- what goes wrong --- */

static void member_lost(struct echi_net *net, int rank, const char *why) {
    char text[400];
    struct echi_peer *peer = &net->peers[rank];
    peer->state = ECHI_PEER_ABSENT;
    peer->conn = NULL;
    peer->linked = false;
    if (rank == 0) {
        echi_text_print(text, sizeof text, "rank 0 at %s %.200s before all nodes had joined: see what it says there",
                        net->coordinator, why);
        fail_join(net, ECH_E_PEER_LOST, 0, text);
    } else if (net->rank == 0 && net->phase > ECHI_NET_MEETING) {
        echi_text_print(text, sizeof text, "rank %d %.200s while the nodes were joining: see what it says there", rank, why);
        fail_join(net, ECH_E_PEER_LOST, rank, text);
    } else if (net->phase > ECHI_NET_MEETING && rank < net->rank) {
        dial_soon(net, rank); /* rank 0 has a link to both and will judge who is gone */
    }
}

void echi_join_broken(struct echi_net *net, struct echi_conn *conn, const struct ech_error *why) {
    enum echi_conn_state state = conn->state;
    int rank = conn->rank;
    bool dialled = conn->dialled, other_protocol = why->code == ECH_E_MISMATCH;
    if (state == ECHI_CONN_GREETING && !dialled && other_protocol) {
        char text[300];
        echi_text_print(text, sizeof text, "a node that called cannot join: %.200s", why->text);
        echi_conn_refuse(net, conn, ECH_E_MISMATCH, text);
        echi_text_print(net->refused, sizeof net->refused, "%s", text);
        return;
    }
    echi_conn_close(net, conn);
    if (state == ECHI_CONN_UP) {
        member_lost(net, rank, why->text);
    } else if (dialled && state != ECHI_CONN_LEAVING) {
        dial_later(net, rank, why->text);
        if (rank != 0 || !other_protocol) return;
        char text[400];
        echi_text_print(text, sizeof text, "rank 0 at %s cannot be joined: %.200s", net->coordinator, why->text);
        fail_join(net, ECH_E_MISMATCH, 0, text);
    }
}

static void time_out(struct echi_net *net) {
    char text[400], missing[160];
    double waited = (double)net->join_timeout / (double)second;
    list_missing(net, missing, sizeof missing);
    if (net->rank != 0 && net->peers[0].state != ECHI_PEER_UP) {
        echi_text_print(text, sizeof text,
                        "no coordinator at %s after %.1f s and %u tries, at the last it %.120s: start rank 0 there or correct "
                        "--coordinator",
                        net->coordinator, waited, net->peers[0].tries, net->peers[0].text[0] ? net->peers[0].text : "was silent");
    } else if (net->rank != 0) {
        echi_text_print(text, sizeof text,
                        "rank %d has joined rank 0 at %s, but within %.1f s not all %d nodes met; no link to %s", net->rank,
                        net->coordinator, waited, net->world, missing);
    } else if (net->phase == ECHI_NET_MEETING) {
        echi_text_print(text, sizeof text,
                        "%d of %d nodes joined within %.1f s, %s did not: start what is missing with --coordinator %s%s%.150s",
                        count_joined(net), net->world, waited, missing, net->address, net->refused[0] ? "; refused: " : "",
                        net->refused);
    } else {
        for (int i = net->world - 1; i > 0; i--)
            if (!net->peers[i].linked) echi_text_print(missing, sizeof missing, "rank %d", i);
        echi_text_print(text, sizeof text,
                        "all %d nodes reached rank 0 within %.1f s, but %s could not reach every other node: check the "
                        "firewalls between them or give --bind",
                        net->world, waited, missing);
    }
    fail_join(net, ECH_E_TIMEOUT, -1, text);
}

static void tell_news(struct echi_net *net) {
    char missing[160];
    list_missing(net, missing, sizeof missing);
    if (net->rank != 0 && net->peers[0].state != ECHI_PEER_UP)
        echi_text_print(net->news, sizeof net->news, "waiting for the coordinator at %s (%u tries)%s%.200s", net->coordinator,
                        net->peers[0].tries, net->peers[0].text[0] ? ": it " : "", net->peers[0].text);
    else if (net->rank != 0 && net->phase == ECHI_NET_MEETING)
        echi_text_print(net->news, sizeof net->news, "joined rank 0 at %s; waiting until it has all %d nodes", net->coordinator,
                        net->world);
    else
        echi_text_print(net->news, sizeof net->news, "%d of %d nodes are here; waiting for %s%s%s", count_joined(net), net->world,
                        complete(net) ? "their links to each other" : missing, net->refused[0] ? "; refused: " : "",
                        net->refused);
    net->has_news = true;
    net->next_news = echi_now() + NEWS_EVERY;
}

/* --- timers --- */

void echi_join_start(struct echi_net *net) {
    net->opened = echi_now();
    net->next_news = net->opened + NEWS_EVERY;
    if (net->rank != 0) dial_soon(net, 0);
    progress(net);
}

static int64_t give_up_at(const struct echi_net *net) {
    int64_t extra = net->rank != 0 && net->peers[0].state == ECHI_PEER_UP ? GRACE : 0;
    return net->join_timeout < INT64_MAX - net->opened - extra ? net->opened + net->join_timeout + extra : INT64_MAX;
}

void echi_join_tick(struct echi_net *net, int64_t now) {
    for (int i = 0; i < net->n_conns && net->strangers > 0; i++) {
        struct echi_conn *conn = &net->conns[i];
        if (conn->state == ECHI_CONN_FREE || conn->state == ECHI_CONN_UP || now < conn->deadline) continue;
        struct ech_error why = {.code = ECH_E_TIMEOUT};
        echi_text_print(why.text, sizeof why.text, "%s",
                        conn->state == ECHI_CONN_DIALLING ? "does not answer" : "does not say hello");
        echi_conn_broken(net, conn, &why);
    }
    if (net->phase >= ECHI_NET_RUNNING || net->failed != ECH_OK) return;
    for (int i = 0; i < net->rank; i++)
        if (net->peers[i].dialling && now >= net->peers[i].dial_at) dial(net, i);
    if (now >= net->next_news) tell_news(net);
    if (now >= give_up_at(net)) time_out(net);
}

int64_t echi_join_next(const struct echi_net *net) {
    int64_t next = INT64_MAX;
    if (net->phase < ECHI_NET_RUNNING) {
        next = give_up_at(net);
        if (net->next_news < next) next = net->next_news;
        for (int i = 0; i < net->rank; i++)
            if (net->peers[i].dialling && net->peers[i].dial_at < next) next = net->peers[i].dial_at;
    }
    for (int i = 0; i < net->n_conns && net->strangers > 0; i++) {
        const struct echi_conn *conn = &net->conns[i];
        if (conn->state != ECHI_CONN_FREE && conn->state != ECHI_CONN_UP && conn->deadline < next) next = conn->deadline;
    }
    return next;
}
