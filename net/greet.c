/* SPDX-License-Identifier: Apache-2.0
 * Who is at the other end of a connection. Without a key: a hello each way. With one the caller's hello is answered by a
 * challenge; both prove that they have the key, the caller first, and from then on every frame is sealed, the listener's
 * hello or refusal being the first. So a stranger gets nothing to guess at the key with, and no word about the run. */
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_net_impl.h"
#include "echi_os.h"
#include "echi_secret.h"

#define ONE_KEY "give all nodes the same --key file"

/* Everything before the proofs goes into the transcript that they are made over: both sides must have seen the same. */
static void note(struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    uint8_t header[ECHI_FRAME_HEADER];
    echi_frame_store(frame, header);
    echi_sha256_add(&conn->opening, header, sizeof header);
    echi_sha256_add(&conn->opening, body, frame->meta_len);
}

static void note_own(struct echi_net *net, struct echi_conn *conn, enum echi_frame_type type, const uint8_t *body, size_t len) {
    note(conn, &(struct echi_frame){.type = (uint8_t)type, .epoch = net->epoch, .meta_len = (uint16_t)len}, body);
}

static void say_hello(struct echi_net *net, struct echi_conn *conn) {
    uint8_t body[ECHI_FRAME_BODY_CAP];
    echi_text_print(net->hello.address, sizeof net->hello.address, "%s", net->address);
    memcpy(net->hello.nonce, conn->nonce, sizeof net->hello.nonce);
    size_t len = echi_hello_store(&net->hello, body);
    echi_conn_put(net, conn, ECHI_FRAME_HELLO, body, len);
    if (conn->dialled) note_own(net, conn, ECHI_FRAME_HELLO, body, len);
}

/* A nonce of our own; zeros without a key. False when the OS gives none: then the join has failed. */
static bool make_nonce(struct echi_net *net, struct echi_conn *conn) {
    struct ech_error err;
    memset(conn->nonce, 0, sizeof conn->nonce);
    if (!net->keyed || echi_entropy(conn->nonce, sizeof conn->nonce, &err) == ECH_OK) return true;
    echi_join_fail(net, err.code, -1, err.text);
    return false;
}

static void say_proof(struct echi_net *net, struct echi_conn *conn) {
    enum echi_side side = conn->dialled ? ECHI_SIDE_CALLER : ECHI_SIDE_LISTENER;
    uint8_t proof[ECHI_KEYS_BYTES];
    echi_keys_proof(net->root, side, conn->transcript, proof);
    echi_conn_put(net, conn, ECHI_FRAME_PROOF, proof, sizeof proof);
    echi_sealer_begin(&conn->sealer, net->root, side, conn->transcript);
}

static void broken(struct echi_net *net, struct echi_conn *conn, const char *text) {
    struct ech_error why = {.code = ECH_E_FORMAT};
    echi_text_print(why.text, sizeof why.text, "%s", text);
    echi_conn_broken(net, conn, &why);
}

void echi_greet_begin(struct echi_net *net, struct echi_conn *conn) {
    echi_sha256_begin(&conn->opening);
    if (make_nonce(net, conn)) say_hello(net, conn);
}

/* --- those who call us --- */

/* Only this caller is turned away; the sentence is kept for whoever waits for the join. */
static void turn_away(struct echi_net *net, struct echi_conn *conn, ech_status status, const char *text) {
    echi_conn_refuse(net, conn, status, text);
    if (net->phase < ECHI_NET_RUNNING) echi_text_print(net->refused, sizeof net->refused, "%s", text);
}

/* Somebody who called us has said who he is and, with a key, proven that he may. */
static void greet_caller(struct echi_net *net, struct echi_conn *conn, const struct echi_hello *theirs) {
    struct ech_error err = {.code = ECH_OK};
    int rank = theirs->rank;
    if (theirs->world != net->world) {
        echi_hello_compare(&net->hello, theirs, &err);
    } else if (rank >= net->world || rank <= net->rank) {
        echi_fail_at(&err, ECH_E_MISMATCH, "net.join", rank, NULL,
                     "a node with --rank %d called rank %d of %d: ranks are 1 to %d for "
                     "those that call rank 0, and every node needs its own",
                     rank, net->rank, net->world, net->world - 1);
    } else if (net->phase >= ECHI_NET_RUNNING && net->in_turn) {
        char now[ECHI_NET_ADDRESS];
        echi_net_peer_end(net, rank, now);
        echi_fail_at(&err, ECH_E_BUSY, "net.join", rank, NULL, "it is with %s now, and serves one caller after the other",
                     now[0] ? now : "another caller");
    } else if (net->phase >= ECHI_NET_RUNNING) {
        echi_fail_at(&err, ECH_E_BUSY, "net.join", rank, NULL,
                     "rank %d came when the run had begun with all %d nodes: choose another "
                     "--coordinator for another run",
                     rank, net->world);
    } else if (conn->epoch != net->epoch) {
        echi_fail_at(&err, ECH_E_MISMATCH, "net.join", rank, NULL, "rank %d is of membership %u but rank %d of membership %u", rank,
                     conn->epoch, net->rank, net->epoch);
    } else if (net->peers[rank].state == ECHI_PEER_UP) {
        echi_fail_at(&err, ECH_E_MISMATCH, "net.join", rank, NULL,
                     "rank %d has joined already from %s, and another node with --rank %d "
                     "came: give every node its own --rank",
                     rank, net->peers[rank].address, rank);
    } else if (echi_hello_compare(&net->hello, theirs, &err) == ECH_OK) {
        echi_text_print(net->peers[rank].address, sizeof net->peers[rank].address, "%s", theirs->address);
        echi_join_attach(net, conn, rank);
        say_hello(net, conn);
        echi_join_progress(net);
        return;
    } else {
        /* A node of this very run that believes in another model or data: waiting for it would be in vain. */
        echi_conn_refuse(net, conn, err.code, err.text);
        echi_join_fail(net, err.code, rank, err.text);
        return;
    }
    turn_away(net, conn, err.code, err.text);
}

static void challenge(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    echi_sha256_begin(&conn->opening);
    note(conn, frame, body);
    if (!make_nonce(net, conn)) return;
    echi_conn_put(net, conn, ECHI_FRAME_CHALLENGE, conn->nonce, sizeof conn->nonce);
    note_own(net, conn, ECHI_FRAME_CHALLENGE, conn->nonce, sizeof conn->nonce);
    echi_sha256_end(&conn->opening, conn->transcript);
    echi_conn_set_state(net, conn, ECHI_CONN_PROVING);
}

/* One of the two has a key and the other none. */
static void tell_states(const struct echi_net *net, int rank, char *out, size_t cap) {
    echi_text_print(out, cap, "rank %d was started %s --key but rank %d %s: %s", rank, net->keyed ? "without" : "with", net->rank,
                    net->keyed ? "with one" : "without", ONE_KEY);
}

static void on_caller(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    char text[300];
    conn->epoch = frame->epoch;
    if (conn->hello.authenticator != net->hello.authenticator) {
        tell_states(net, conn->hello.rank, text, sizeof text);
        turn_away(net, conn, ECH_E_MISMATCH, text);
    } else if (net->keyed) {
        challenge(net, conn, frame, body);
    } else {
        greet_caller(net, conn, &conn->hello);
    }
}

/* --- those whom we called --- */

/* What ends the join when it comes from rank 0 only breaks the link to another: rank 0 will judge who does not fit. */
static void no_match(struct echi_net *net, struct echi_conn *conn, const char *text) {
    if (conn->rank == 0)
        echi_join_fail(net, ECH_E_MISMATCH, 0, text);
    else
        broken(net, conn, "does not fit this node");
}

static void on_answer(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame) {
    struct ech_error err;
    char text[300];
    const struct echi_hello *theirs = &conn->hello;
    if (net->keyed && !conn->proven) {
        tell_states(net, conn->rank, text, sizeof text);
        no_match(net, conn, text);
    } else if (theirs->rank != conn->rank) {
        echi_text_print(text, sizeof text, "answered as rank %d", theirs->rank);
        broken(net, conn, text);
    } else if (theirs->authenticator != net->hello.authenticator || frame->epoch != net->epoch) {
        broken(net, conn, "answered a hello that it should have refused");
    } else if (echi_hello_compare(&net->hello, theirs, &err) != ECH_OK) {
        echi_join_fail(net, err.code, theirs->rank, err.text);
    } else {
        conn->epoch = frame->epoch;
        echi_join_attach(net, conn, theirs->rank);
        echi_join_progress(net);
    }
}

static void on_challenge(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    if (!net->keyed || !conn->dialled || conn->state != ECHI_CONN_GREETING || conn->proven || frame->meta_len != ECHI_HELLO_NONCE) {
        broken(net, conn, "sent a challenge that was not its turn");
        return;
    }
    note(conn, frame, body);
    echi_sha256_end(&conn->opening, conn->transcript);
    echi_conn_set_state(net, conn, ECHI_CONN_PROVING);
    say_proof(net, conn);
}

/* --- either --- */

static void not_trusted(struct echi_net *net, struct echi_conn *conn, const char *reason) {
    char text[400], from[ECHI_NET_ADDRESS];
    if (!conn->dialled) {
        net->transport->ops->name(net->transport, conn->link, from);
        echi_text_print(text, sizeof text, "the node at %s that calls itself rank %d %s", from, conn->hello.rank, reason);
        turn_away(net, conn, ECH_E_MISMATCH, text);
        return;
    }
    echi_text_print(text, sizeof text, "what answers for rank %d at %s %s", conn->rank,
                    conn->rank == 0 ? net->coordinator : net->peers[conn->rank].address, reason);
    no_match(net, conn, text);
}

static void on_proof(struct echi_net *net, struct echi_conn *conn, const uint8_t *body, size_t len) {
    enum echi_side theirs = conn->dialled ? ECHI_SIDE_LISTENER : ECHI_SIDE_CALLER;
    uint8_t wanted[ECHI_KEYS_BYTES];
    if (conn->state != ECHI_CONN_PROVING || len != sizeof wanted) {
        broken(net, conn, "sent a proof that was not its turn");
        return;
    }
    echi_keys_proof(net->root, theirs, conn->transcript, wanted);
    conn->proven = echi_secret_equal(wanted, body, sizeof wanted);
    echi_secret_wipe(wanted, sizeof wanted);
    if (!conn->proven) {
        not_trusted(net, conn, "has another key: " ONE_KEY);
        return;
    }
    echi_sealer_begin(&conn->receive.sealer, net->root, theirs, conn->transcript);
    if (conn->dialled) {
        echi_conn_set_state(net, conn, ECHI_CONN_GREETING); /* its hello or refusal follows, sealed */
    } else {
        say_proof(net, conn);
        greet_caller(net, conn, &conn->hello);
    }
}

/* False: the connection has been dealt with. Asked when the hello comes: then the sender's end has an owner, unless
 * the sender has ended. A REFUSE is believed from anybody: whoever holds the coordinator's port can keep this node
 * from joining anyway. */
static bool check_peer(struct echi_net *net, struct echi_conn *conn) {
    struct ech_error err;
    const ech_status status = net->transport->ops->check_peer(net->transport, conn->link, &err);
    if (status == ECH_E_MISMATCH)
        not_trusted(net, conn, err.text);
    else if (status == ECH_E_IO && conn->dialled) /* the other end counts on this link already; a caller would call again */
        echi_join_fail(net, status, -1, err.text);
    else if (status != ECH_OK)
        echi_conn_broken(net, conn, &err);
    return status == ECH_OK;
}

static void on_hello(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    if (conn->state != ECHI_CONN_GREETING || echi_hello_load(body, frame->meta_len, &conn->hello, NULL) != ECH_OK)
        broken(net, conn, "sent no proper hello");
    else if (!check_peer(net, conn))
        return;
    else if (conn->dialled)
        on_answer(net, conn, frame);
    else
        on_caller(net, conn, frame, body);
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
    echi_text_print(sentence, sizeof sentence, "rank 0 at %s%s ended the join: %s", net->coordinator,
                    net->keyed && !conn->proven ? " (which has not proven that it is)" : "", text);
    echi_join_fail(net, known ? (ech_status)code : ECH_E_MISMATCH, 0, sentence);
}

void echi_greet_frame(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body) {
    if (frame->type == ECHI_FRAME_HELLO)
        on_hello(net, conn, frame, body);
    else if (frame->type == ECHI_FRAME_CHALLENGE)
        on_challenge(net, conn, frame, body);
    else if (frame->type == ECHI_FRAME_PROOF)
        on_proof(net, conn, body, frame->meta_len);
    else
        on_refuse(net, conn, body, frame->meta_len);
}
