/* SPDX-License-Identifier: Apache-2.0
 * Connections: frames in both directions over one link. */
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_net_impl.h"
#include "echi_os.h"
#include "echi_secret.h"

#include <stdio.h>

#define BATCHES_A_TURN 8 /* after so many, or one of the largest, the other connections have their turn */
#define READS_A_TURN 8
/* Bytes of a batch. What is in one can no longer be overtaken, so it begins with one chunk, and again once the transport takes less than a
 * whole one. Where it takes all, a batch costs a system call, and with TCP's pacing a timer, whatever its size; but where a link is known
 * to carry little, all may only mean that the system waits for it. */
#define BATCH_MOST (8 * ECHI_NET_CHUNK)

void echi_conn_set_state(struct echi_net *net, struct echi_conn *conn, enum echi_conn_state state) {
    bool was = conn->state != ECHI_CONN_FREE && conn->state != ECHI_CONN_UP;
    bool is = state != ECHI_CONN_FREE && state != ECHI_CONN_UP;
    net->strangers += (int)is - (int)was;
    conn->state = state;
}

/* How soon a connection gives its place to another: the larger the sooner, 0 never. A flood sends nothing. Who was refused reads why. A
 * distant node has sent its hello, and proves its key a round trip later. */
static int gives_way(const struct echi_conn *conn) {
    if (conn->state == ECHI_CONN_LEAVING) return 2;
    if (conn->dialled || (conn->state != ECHI_CONN_GREETING && conn->state != ECHI_CONN_PROVING)) return 0;
    return conn->heard ? 1 : 3;
}

/* A free place, or that of a stranger who gives way. Among equals it is drawn: if it were the oldest, a flood would end every connection
 * at the same age, and keep out each node whose first bytes take longer. */
struct echi_conn *echi_conn_take(struct echi_net *net) {
    struct echi_conn *chosen = NULL;
    uint32_t equals = 0;
    for (int i = 0; i < net->n_conns; i++) {
        struct echi_conn *conn = &net->conns[i];
        if (conn->state == ECHI_CONN_FREE) return conn;
        const int way = gives_way(conn), most = chosen ? gives_way(chosen) : 0;
        if (way == 0 || way < most) continue;
        equals = way > most ? 1 : equals + 1;
        if (echi_random_below(&net->draws, equals) == 0) chosen = conn;
    }
    if (chosen) echi_conn_close(net, chosen);
    return chosen;
}

void echi_conn_give_way(struct echi_net *net, struct echi_conn *conn) {
    conn->batch_bytes = net->chunk;
    if (net->unsent && conn->link) net->transport->ops->hold_unsent(net->transport, conn->link, net->unsent);
}

void echi_conn_start(struct echi_net *net, struct echi_conn *conn, struct echi_link *link, int rank, bool dialled) {
    const int64_t patience = 3000000000;
    conn->link = link;
    conn->rank = rank;
    conn->dialled = dialled;
    conn->heard = conn->blocked = conn->mute = conn->parting = conn->finished = conn->farewell = conn->in_batch = conn->proven = false;
    conn->epoch = 0;
    conn->deadline = echi_now() + patience;
    conn->out_len = conn->out_taken = 0;
    echi_conn_give_way(net, conn);
    echi_batch_begin(&conn->batch);
    echi_receive_begin(&conn->receive, net->kinds, net->n_kinds);
    echi_conn_set_state(net, conn, dialled ? ECHI_CONN_DIALLING : ECHI_CONN_GREETING);
}

void echi_conn_close(struct echi_net *net, struct echi_conn *conn) {
    if (conn->state == ECHI_CONN_FREE) return;
    echi_event_sent(net, conn->batch.done);
    echi_batch_begin(&conn->batch);
    net->transport->ops->hang_up(net->transport, conn->link);
    conn->link = NULL;
    echi_secret_wipe(&conn->sealer, sizeof conn->sealer);
    echi_secret_wipe(&conn->receive.sealer, sizeof conn->receive.sealer);
    echi_secret_wipe(&conn->receive.seal, sizeof conn->receive.seal);
    echi_conn_set_state(net, conn, ECHI_CONN_FREE);
}

void echi_conn_put(struct echi_net *net, struct echi_conn *conn, enum echi_frame_type type, const void *body, size_t len) {
    if (len + ECHI_FRAME_HEADER > ECHI_CONN_OUTBOX - conn->out_len) {
        echi_conn_broken(net, conn, &(struct ech_error){.code = ECH_E_PEER_LOST, .text = "does not read what it is sent"});
        return;
    }
    struct echi_frame frame = {.type = (uint8_t)type, .epoch = net->epoch, .meta_len = (uint16_t)len};
    uint8_t *header = conn->outbox + conn->out_len;
    echi_frame_store(&frame, header);
    if (len) memcpy(header + ECHI_FRAME_HEADER, body, len);
    /* Frames leave in the order in which they are sealed: a batch takes the whole outbox before it seals anything else. */
    echi_sealer_stamp(&conn->sealer, header, body, len, NULL, 0);
    conn->out_len += ECHI_FRAME_HEADER + len;
    net->sent[net->n_kinds] += ECHI_FRAME_HEADER + len;
}

void echi_conn_refuse(struct echi_net *net, struct echi_conn *conn, ech_status status, const char *text) {
    const int64_t grace = 1000000000;
    uint8_t body[4 + sizeof((struct ech_error *)0)->text];
    struct echi_writer w = echi_writer_over(body, sizeof body);
    echi_put32(&w, (uint32_t)status);
    echi_put_bytes(&w, text, strnlen(text, sizeof body - 4));
    conn->deadline = echi_now() + grace;
    echi_conn_set_state(net, conn, ECHI_CONN_LEAVING);
    echi_conn_put(net, conn, ECHI_FRAME_REFUSE, body, (size_t)(w.at - body));
    echi_conn_flush(net, conn);
}

/* --- writing --- */

static void through(struct echi_net *net, struct echi_conn *conn) {
    echi_event_sent(net, conn->batch.done);
    echi_batch_begin(&conn->batch);
    conn->in_batch = false;
    if (conn->out_taken == conn->out_len) conn->out_taken = conn->out_len = 0;
}

static bool next_batch(struct echi_net *net, struct echi_conn *conn) {
    struct echi_batch *batch = &conn->batch;
    echi_batch_bytes(batch, conn->outbox + conn->out_taken, conn->out_len - conn->out_taken);
    conn->out_taken = conn->out_len;
    bool talks = conn->state == ECHI_CONN_UP && net->phase >= ECHI_NET_RUNNING;
    if (talks)
        echi_batch_fill(batch, &net->peers[conn->rank].queue, conn->batch_bytes, echi_way_out_most(net, conn->rank), net->epoch,
                        &conn->sealer, net->sent);
    conn->in_batch = batch->count > 0;
    return conn->in_batch;
}

void echi_conn_flush(struct echi_net *net, struct echi_conn *conn) {
    struct echi_transport *t = net->transport;
    if (conn->state == ECHI_CONN_FREE || conn->state == ECHI_CONN_DIALLING || conn->blocked || conn->mute || conn->finished)
        return;
    for (int turn = 0; turn < BATCHES_A_TURN; turn++) {
        if (!conn->in_batch && !next_batch(net, conn)) break;
        size_t put;
        struct echi_batch *batch = &conn->batch;
        ech_status status = t->ops->write(t, conn->link, batch->iov + batch->at, batch->count - batch->at, &put, NULL);
        if (status != ECH_OK) {
            conn->mute = true; /* echi_conn_bury does the rest: here one of its frames may be in hand */
            net->more_to_send = true;
            break;
        }
        echi_way_out_put(net, conn->rank, put);
        if (!echi_batch_wrote(batch, put)) {
            conn->blocked = true;
            conn->batch_bytes = net->chunk;
            break;
        }
        const bool large = batch->bytes >= BATCH_MOST;
        if (batch->bytes >= conn->batch_bytes && !large && net->chunk == ECHI_NET_CHUNK) conn->batch_bytes *= 2;
        through(net, conn);
        if (large || turn == BATCHES_A_TURN - 1) {
            net->more_to_send = true;
            break;
        }
    }
    t->ops->watch_write(t, conn->link, conn->blocked);
    if (conn->state == ECHI_CONN_LEAVING && !conn->in_batch) {
        conn->finished = true;
        t->ops->finish(t, conn->link);
    }
}

/* --- reading --- */

/* Whether what arrives on the connection is still of interest. */
static bool listens(const struct echi_conn *conn) {
    return conn->state == ECHI_CONN_GREETING || conn->state == ECHI_CONN_PROVING || conn->state == ECHI_CONN_UP;
}

static void handle_frame(struct echi_net *net, struct echi_conn *conn) {
    struct echi_receive *r = &conn->receive;
    struct ech_error err = {.code = ECH_OK};
    if (conn->epoch && r->frame.epoch != conn->epoch) {
        echi_fail(&err, ECH_E_FORMAT, "net.read", "sent a frame of membership %u, but was admitted to %u", r->frame.epoch, conn->epoch);
        echi_conn_broken(net, conn, &err);
        return;
    }
    bool message = r->frame.type == ECHI_FRAME_DATA || r->frame.type == ECHI_FRAME_CREDIT || r->frame.type == ECHI_FRAME_GOODBYE;
    if (!message) {
        echi_join_frame(net, conn, &r->frame, r->meta);
        return;
    }
    /* Nobody sends a message before rank 0 has called READY, so one that comes first brings the same news. */
    if (conn->state == ECHI_CONN_UP && net->phase == ECHI_NET_LINKED && net->rank != 0) echi_join_ready(net);
    if (conn->state != ECHI_CONN_UP || net->phase < ECHI_NET_RUNNING) {
        echi_fail(&err, ECH_E_FORMAT, "net.read", "sent a message before the run began");
    } else if (r->frame.type == ECHI_FRAME_GOODBYE) {
        conn->farewell = true;
        echi_fail(&err, ECH_E_END, "net.read", "left in order");
    } else {
        echi_deliver_frame(net, conn->rank, r, &err);
    }
    if (err.code != ECH_OK) echi_conn_broken(net, conn, &err);
}

void echi_conn_process(struct echi_net *net, struct echi_conn *conn) {
    while (listens(conn) && echi_event_room(net)) {
        enum echi_receive_step step;
        struct ech_error err;
        ech_status status = echi_receive_next(&conn->receive, &step, &err);
        if (status != ECH_OK) {
            echi_conn_broken(net, conn, &err);
            return;
        }
        if (step == ECHI_RECEIVE_MORE) return;
        if (step == ECHI_RECEIVE_CHUNK)
            echi_deliver_chunk(net, conn->rank, &conn->receive.frame);
        else
            handle_frame(net, conn);
    }
}

/* One who was refused is read only to learn that he has hung up. */
static void read_nothing(struct echi_net *net, struct echi_conn *conn) {
    uint8_t junk[4096];
    size_t got;
    struct iovec iov = {junk, sizeof junk};
    if (net->transport->ops->read(net->transport, conn->link, &iov, 1, &got, NULL) != ECH_OK) echi_conn_close(net, conn);
}

static void flow_on(struct echi_flow *flow, size_t got, int64_t now) {
    if (flow->open) {
        flow->bytes += got;
        flow->ns += now > flow->at ? now - flow->at : 0;
    }
    flow->at = now;
}

/* So much has come of a peer, and is dealt with. */
static void note_flow(struct echi_net *net, const struct echi_conn *conn, size_t got) {
    struct echi_peer *peer = &net->peers[conn->rank];
    const struct echi_receive *r = &conn->receive;
    const int64_t now = echi_now();
    const bool was = peer->flow.open;
    flow_on(&net->flow, got, now);
    flow_on(&peer->flow, got, now);
    peer->flow.open = peer->under_way > 0 || r->in_chunk || r->end > r->begin;
    net->open_flows += peer->flow.open - was;
    net->flow.open = net->open_flows > 0;
}

/* The rest of a chunk is waited for in one: of less than all of it nobody could use anything, and each packet would wake this thread by
 * itself. */
static void await_rest(struct echi_net *net, struct echi_conn *conn) {
    const size_t left = conn->receive.left;
    if (listens(conn)) net->transport->ops->await_bytes(net->transport, conn->link, left > 1 ? (int)left : 1);
}

bool echi_conn_read(struct echi_net *net, struct echi_conn *conn) {
    if (conn->state == ECHI_CONN_LEAVING) read_nothing(net, conn);
    size_t got = 1, space = 1;
    for (int turn = 0; turn < READS_A_TURN && got == space && listens(conn) && echi_event_room(net); turn++) {
        struct iovec iov[2];
        space = 0;
        int n = echi_receive_space(&conn->receive, iov);
        for (int i = 0; i < n; i++) space += iov[i].iov_len;
        struct ech_error err;
        ech_status status = net->transport->ops->read(net->transport, conn->link, iov, n, &got, &err);
        if (status != ECH_OK) {
            echi_conn_broken(net, conn, &err);
            return true;
        }
        echi_receive_got(&conn->receive, got);
        conn->heard = conn->heard || got > 0;
        if (conn->state == ECHI_CONN_UP) net->peers[conn->rank].got += got;
        echi_conn_process(net, conn);
        if (conn->state == ECHI_CONN_UP && got > 0) note_flow(net, conn, got);
    }
    await_rest(net, conn);
    return got < space;
}

void echi_conn_bury(struct echi_net *net, struct echi_conn *conn) {
    if (!conn->mute || !listens(conn) || !echi_conn_read(net, conn) || !listens(conn)) return;
    echi_conn_broken(net, conn, &(struct ech_error){.code = ECH_E_PEER_LOST, .text = "is gone: it takes nothing any more"});
}

void echi_conn_broken(struct echi_net *net, struct echi_conn *conn, const struct ech_error *why) {
    if (net->phase >= ECHI_NET_RUNNING && conn->state == ECHI_CONN_UP)
        echi_peer_lose(net, conn->rank, conn->farewell, why->text);
    else
        echi_join_broken(net, conn, why);
}
