/* SPDX-License-Identifier: Apache-2.0
 * How the nodes of a run meet. Every node dials rank 0 and says hello, with the address at which it listens itself. When
 * all have, rank 0 tells all where the others are; each dials the ranks below its own. Who has a link to everybody
 * reports so to rank 0, and when all have, rank 0 calls READY. */
#include "echi_address.h"
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_net_impl.h"
#include "echi_os.h"

#include <stdio.h>

static const int64_t ms = 1000000, second = 1000000000;
/* How much longer the others wait than rank 0, whose sentence names who is missing. */
#define GRACE (2 * second)
#define NEWS_EVERY (2 * second)
#define LATE (2 * NEWS_EVERY)

void echi_join_fail(struct echi_net *net, ech_status status, int rank, const char *text) {
    if (net->failed != ECH_OK || net->phase >= ECHI_NET_RUNNING) return;
    net->failed = echi_fail_at(&net->failure, status, "net.join", rank, NULL, "%s", text);
    if (net->rank != 0) return;
    /* Those who have not said hello yet may be nodes, too: without this they would call again until their time is up. */
    for (int i = 0; i < net->n_conns; i++)
        if (net->conns[i].state == ECHI_CONN_UP || net->conns[i].state == ECHI_CONN_GREETING || net->conns[i].state == ECHI_CONN_PROVING)
            echi_conn_refuse(net, &net->conns[i], status, net->keyed && !net->conns[i].proven ? "the join has ended" : text);
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

/* Rank 0 knows where all listen: a rank on another machine cannot call one that listens on loopback. */
static bool all_reachable(struct echi_net *net) {
    for (int i = 2; i < net->world; i++)
        for (int j = 1; j < i; j++) {
            const char *from = net->peers[i].address, *to = net->peers[j].address;
            if (!echi_address_text_is_loopback(to) || echi_address_text_is_loopback(from)) continue;
            char text[400];
            echi_text_print(text, sizeof text,
                            "rank %d listens at %s, where rank %d, which is at %s, cannot reach it: start rank %d with the --coordinator "
                            "that rank %d has, or with --bind",
                            j, to, i, from, j, i);
            echi_join_fail(net, ECH_E_ARGUMENT, j, text);
            return false;
        }
    return true;
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

void echi_join_progress(struct echi_net *net) {
    if (net->phase == ECHI_NET_MEETING && net->rank == 0 && complete(net)) {
        if (net->failed != ECH_OK || !all_reachable(net)) return;
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

void echi_join_attach(struct echi_net *net, struct echi_conn *conn, int rank) {
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
    ech_status status = ECH_E_BUSY;
    if (conn) status = net->transport->ops->dial(net->transport, rank, peer->address, peer->tries++, conn, &link, &err);
    if (status == ECH_E_ARGUMENT) { /* no address, or one that must not be called: it stays so */
        echi_join_fail(net, status, rank, err.text);
        return;
    }
    if (status != ECH_OK) {
        dial_later(net, rank, err.text);
        return;
    }
    peer->dialling = false;
    echi_conn_start(net, conn, link, rank, true);
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
        echi_join_fail(net, err.code, -1, err.text);
        return;
    }
    t->ops->watch_write(t, conn->link, false);
    echi_conn_set_state(net, conn, ECHI_CONN_GREETING);
    echi_greet_begin(net, conn);
}

/* --- frames of the join --- */

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
    echi_join_progress(net);
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
    echi_join_fail(net, ECH_E_PEER_LOST, -1, text);
}

void echi_join_frame(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    bool up = conn->state == ECHI_CONN_UP, from_0 = up && conn->rank == 0;
    if (frame->type == ECHI_FRAME_HELLO || frame->type == ECHI_FRAME_CHALLENGE || frame->type == ECHI_FRAME_PROOF ||
        (frame->type == ECHI_FRAME_REFUSE && net->phase < ECHI_NET_RUNNING)) {
        echi_greet_frame(net, conn, frame, body);
    } else if (frame->type == ECHI_FRAME_PEERS && from_0 && net->phase == ECHI_NET_MEETING) {
        on_peers(net, conn, body, frame->meta_len);
    } else if (frame->type == ECHI_FRAME_CONNECTED && up && net->rank == 0 && net->phase < ECHI_NET_RUNNING) {
        net->peers[conn->rank].linked = true;
        echi_join_progress(net);
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
        echi_join_fail(net, ECH_E_PEER_LOST, 0, text);
    } else if (net->rank == 0 && net->phase > ECHI_NET_MEETING) {
        echi_text_print(text, sizeof text, "rank %d %.200s while the nodes were joining: see what it says there", rank, why);
        echi_join_fail(net, ECH_E_PEER_LOST, rank, text);
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
        echi_text_print(text, sizeof text, "a node that called cannot join: it %.200s", why->text);
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
        echi_text_print(text, sizeof text, "rank 0 at %s cannot be joined: it %.200s", net->coordinator, why->text);
        echi_join_fail(net, ECH_E_MISMATCH, 0, text);
    }
}

static const char *who_listens(const struct echi_net *net) { return net->in_turn ? "listener" : "coordinator"; }

static void time_out(struct echi_net *net) {
    char text[400], missing[160];
    double waited = (double)net->join_timeout / (double)second;
    list_missing(net, missing, sizeof missing);
    if (net->rank != 0 && net->peers[0].state != ECHI_PEER_UP) {
        echi_text_print(text, sizeof text,
                        "no %s at %s after %.1f s and %u tries, at the last it %.120s%s", who_listens(net), net->coordinator, waited,
                        net->peers[0].tries, net->peers[0].text[0] ? net->peers[0].text : "was silent",
                        net->in_turn ? "" : ": start rank 0 there or correct --coordinator");
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
    echi_join_fail(net, ECH_E_TIMEOUT, -1, text);
}

static void tell_news(struct echi_net *net) {
    char missing[160];
    list_missing(net, missing, sizeof missing);
    if (net->rank != 0 && net->peers[0].state != ECHI_PEER_UP)
        echi_text_print(net->news, sizeof net->news, "waiting for the %s at %s (%u tries)%s%.200s", who_listens(net),
                        net->coordinator, net->peers[0].tries, net->peers[0].text[0] ? ": it " : "", net->peers[0].text);
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
    net->ticked = echi_now();
    net->next_news = net->ticked + NEWS_EVERY;
    if (net->rank != 0) dial_soon(net, 0);
    echi_join_progress(net);
}

static int64_t give_up_at(const struct echi_net *net) {
    int64_t extra = net->rank != 0 && net->peers[0].state == ECHI_PEER_UP ? GRACE : 0;
    return net->join_timeout < INT64_MAX - net->opened - extra ? net->opened + net->join_timeout + extra : INT64_MAX;
}

/* While nodes meet nobody waits longer than for the next news: a look that comes much later, or before the last, comes from a clock that
 * jumped or a node that was stopped. Nobody else is to blame for that time, so all that is timed is moved by it. */
static void move_times(struct echi_net *net, int64_t by) {
    net->opened += by;
    net->next_news += by;
    for (int i = 0; i < net->world; i++) net->peers[i].dial_at += by;
    for (int i = 0; i < net->n_conns; i++) net->conns[i].deadline += by;
}

void echi_join_tick(struct echi_net *net, int64_t now) {
    const int64_t passed = now - net->ticked;
    if (passed < 0 || passed > LATE) move_times(net, passed);
    net->ticked = now;
    for (int i = 0; i < net->n_conns && net->strangers > 0; i++) {
        struct echi_conn *conn = &net->conns[i];
        if (conn->state == ECHI_CONN_FREE || conn->state == ECHI_CONN_UP || now < conn->deadline) continue;
        struct ech_error why = {.code = ECH_E_TIMEOUT};
        echi_text_print(why.text, sizeof why.text, "%s",
                        conn->state == ECHI_CONN_DIALLING  ? "does not answer"
                        : conn->state == ECHI_CONN_PROVING ? "does not prove that it has the key"
                                                           : "does not say hello");
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
