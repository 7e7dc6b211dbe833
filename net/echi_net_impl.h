/* SPDX-License-Identifier: Apache-2.0
 * What the files of net share: the node, its peers, its connections and its events. */
#ifndef ECHI_NET_IMPL_H
#define ECHI_NET_IMPL_H
#include "echi_keys.h"
#include "echi_queue.h"
#include "echi_random.h"
#include "echi_receive.h"
#include "echi_sha256.h"
#include "echi_transport.h"

#include <stdatomic.h>

#define ECHI_NET_EVENTS 512     /* that wait for the caller; a full ring stops reading */
#define ECHI_NET_STRANGERS 16   /* connections of nobody we know yet, beside one for each rank */
#define ECHI_EVENT_VOID ((enum echi_net_event_type)-1) /* in the ring, and not to be handed out */
#define ECHI_CONN_OUTBOX 20480u /* all of net's own frames that one connection ever needs */

enum echi_conn_state {
    ECHI_CONN_FREE,
    ECHI_CONN_DIALLING, /* we have called and wait for the link */
    ECHI_CONN_GREETING, /* linked; no hello from the other side yet */
    ECHI_CONN_PROVING,  /* keyed: challenged, no proof from the other side yet */
    ECHI_CONN_UP,       /* it is `rank`, and its peer's connection */
    ECHI_CONN_LEAVING   /* refused: only what is in the outbox still goes out */
};

struct echi_conn {
    enum echi_conn_state state;
    struct echi_link *link;
    int rank;               /* -1: not known yet */
    bool dialled;           /* by us */
    bool heard;             /* bytes have come */
    bool blocked;           /* the transport takes no more for now */
    bool mute;              /* writing failed; what it sent may still be read */
    bool parting, finished; /* we have said good-bye; we write no more */
    bool farewell;          /* it has said good-bye */
    bool in_batch;
    bool proven;            /* keyed: the other side has the key; from here on both sides seal */
    uint32_t epoch;         /* of the other side's admission; 0: not known yet */
    int64_t deadline;          /* of every state but UP: one for all of them together */
    uint8_t nonce[ECHI_HELLO_NONCE];
    struct echi_sha256 opening;                   /* over the frames before the proofs; ... */
    uint8_t transcript[ECHI_KEYS_BYTES];          /* ... its end */
    struct echi_hello hello;                      /* a caller's, kept until it has proven itself */
    struct echi_sealer sealer;                    /* of what we send; receive.sealer is the other one */
    size_t out_len, out_taken; /* of the outbox; how much of it is in the batch or was sent */
    size_t batch_bytes;        /* of the next batch: more while the transport takes whole ones */
    struct echi_batch batch;
    uint8_t outbox[ECHI_CONN_OUTBOX];
    struct echi_receive receive;
};

struct echi_post {
    struct echi_post *next;
    uint8_t *buffer;
    size_t cap;
    uint64_t cookie;
};

/* Messages of one kind and name from one peer. */
struct echi_inlet {
    struct echi_post *first, *last;
    uint32_t posts;
    bool open; /* a message is under way into *first */
    uint16_t meta_len;
    uint32_t number;
    uint64_t got, total;
    uint8_t *meta; /* meta_cap bytes */
};

/* What has come while a message was under way that had begun to come, so that its sender had more to send all the time. */
struct echi_flow {
    uint64_t bytes;
    int64_t ns, at; /* at: when something came last */
    bool open;      /* and a message was under way behind that */
};

enum echi_peer_state { ECHI_PEER_ABSENT, ECHI_PEER_UP, ECHI_PEER_LOST };
struct echi_peer {
    enum echi_peer_state state;
    struct echi_conn *conn; /* NULL unless UP */
    bool linked;            /* rank 0: it has reported links to all */
    bool orderly, untold;   /* LOST: by good-bye; its event is not out yet */
    bool dialling;
    unsigned tries;
    int64_t dial_at, pause;
    char address[ECHI_NET_ADDRESS];
    char text[300]; /* why it was lost; before that, why dialling it failed */
    struct echi_queue queue;
    struct echi_inlet *inlets; /* as many as the queue has lanes, and numbered as those */
    uint64_t got; /* bytes, since it is UP */
    int64_t slow_until, slow_for; /* see way_out.c */
    int under_way; /* of its messages: their first chunk is here, and not their last */
    struct echi_flow flow;
};

/* A link that is so slow that it, and not the hosts, is what messages wait for. */
struct echi_way_out {
    double rate;     /* bytes/s; 0: not known, or no bound: all send as they like */
    size_t small;    /* so many bytes of a message are not worth waiting for others */
    int peer;        /* whose message is the most urgent; -1: there is none */
    bool doubted;    /* that one did not fill the link when it was last looked at, ... */
    bool shared;     /* ... and not before: others send as well */
    int64_t since;   /* when it was last looked at, or had its turn; ... */
    uint64_t put;    /* ... what it has taken since */
};

enum echi_net_phase {
    ECHI_NET_MEETING, /* every node with rank 0 */
    ECHI_NET_LINKING, /* every node with every other */
    ECHI_NET_LINKED,  /* this one is; waiting to hear that all are */
    ECHI_NET_RUNNING,
    ECHI_NET_CLOSING
};

struct echi_net {
    int rank, world, n_kinds;
    const struct echi_net_kind *kinds;
    struct echi_net_hub *own_hub; /* a world of one needs no sockets */
    struct echi_transport *transport;
    struct echi_hello hello;
    bool keyed, in_turn;
    uint8_t root[ECHI_KEYS_BYTES];  /* of the key */
    uint32_t epoch;                 /* of this node's admission */
    uint32_t chunk, unsent;         /* see echi_net_give_way; unsent: 0, the transport's own choice */
    char address[ECHI_NET_ADDRESS]; /* where this node listens */
    char coordinator[160];          /* as the caller wrote it */

    enum echi_net_phase phase;
    int64_t opened, join_timeout, next_news;
    int64_t ticked; /* when all that is timed was last looked at */
    bool has_news;
    char news[400], refused[300]; /* text of WAITING; the last refusal, for the sentence at the end */
    ech_status failed;            /* the join has: every poll says so again */
    struct ech_error failure;

    struct echi_peer *peers; /* world of them; one's own stays ABSENT */
    struct echi_conn *conns;
    struct echi_random draws; /* which of several strangers gives way */
    int n_conns, strangers; /* strangers: connections neither FREE nor UP */
    struct echi_flow flow; /* of all peers together: open while any of theirs is */
    int open_flows;
    struct echi_way_out way_out;
    uint64_t order;        /* of the next message, to whomever */
    bool more_to_send;
    int lost_untold;
    int polls_without_wait;
    atomic_bool woken;

    struct echi_pool messages, posts;
    struct echi_message *sent_first, **sent_end; /* payloads written whole, to be told */
    struct echi_net_event events[ECHI_NET_EVENTS];
    int first_event, n_events, handed;
    size_t meta_max;
    uint8_t *event_metas, *inlet_metas;
    struct echi_inlet *inlets; /* of all peers */
    uint64_t sent[ECHI_NET_KINDS_MAX + 1];
};

/* --- conn.c: links of bytes to connections of frames --- */
/* A free connection over `link` (which may be NULL until it is dialled); when all are in use the stranger that has waited
 * longest gives way. NULL when there is none. */
struct echi_conn *echi_conn_take(struct echi_net *net);
void echi_conn_start(struct echi_net *net, struct echi_conn *conn, struct echi_link *link, int rank, bool dialled);
void echi_conn_give_way(struct echi_net *net, struct echi_conn *conn);   /* as net->chunk says */
void echi_conn_put(struct echi_net *net, struct echi_conn *conn, enum echi_frame_type type, const void *body, size_t len);
void echi_conn_refuse(struct echi_net *net, struct echi_conn *conn, ech_status status, const char *text);
void echi_conn_flush(struct echi_net *net, struct echi_conn *conn);
/* True when nothing more is there for now. */
bool echi_conn_read(struct echi_net *net, struct echi_conn *conn);
/* A connection that could not be written to: what the other side still said is read (it may be its good-bye), then it is lost. */
void echi_conn_bury(struct echi_net *net, struct echi_conn *conn);
/* Handles the frames that are in the buffer, as far as there is room for events. */
void echi_conn_process(struct echi_net *net, struct echi_conn *conn);
/* The connection is of no use any more, for the reason in `why` ("closed the connection"): tells the peer or the join. */
void echi_conn_broken(struct echi_net *net, struct echi_conn *conn, const struct ech_error *why);
void echi_conn_close(struct echi_net *net, struct echi_conn *conn);
void echi_conn_set_state(struct echi_net *net, struct echi_conn *conn, enum echi_conn_state state);

/* --- way_out.c: which of them a slow link carries first --- */
/* Sees who is the next, and whether it fills the link. True when it is another than before. */
bool echi_way_out_look(struct echi_net *net);
size_t echi_way_out_most(const struct echi_net *net, int rank);   /* messages of which more bytes are left may not go on to it now */
void echi_way_out_put(struct echi_net *net, int rank, size_t bytes);   /* it has taken so many */
int64_t echi_way_out_next(const struct echi_net *net);   /* when it is to be looked at again; INT64_MAX: nobody waits */

/* --- deliver.c: frames of messages to events --- */
bool echi_event_room(const struct echi_net *net);
/* What waits in the ring and is about the peer is not handed out. */
void echi_event_void(struct echi_net *net, int peer);
struct echi_net_event *echi_event_add(struct echi_net *net, enum echi_net_event_type type, int peer); /* needs room */
/* These messages are through, or never will be: payloads are to be told as SENT, the rest goes back to the pool. */
void echi_event_sent(struct echi_net *net, struct echi_message *list);
void echi_event_collect(struct echi_net *net); /* what waited for room: WAITING, SENT, LOST */
ech_status echi_deliver_frame(struct echi_net *net, int rank, struct echi_receive *r, struct ech_error *err);
void echi_deliver_chunk(struct echi_net *net, int rank, const struct echi_frame *frame);
void echi_peer_lose(struct echi_net *net, int rank, bool orderly, const char *why);

/* --- join.c --- */
void echi_join_start(struct echi_net *net);
void echi_join_tick(struct echi_net *net, int64_t now); /* timers: dials, strangers' time, news, the timeout */
int64_t echi_join_next(const struct echi_net *net);     /* when the next timer is due */
void echi_join_linked(struct echi_net *net, struct echi_conn *conn);
void echi_join_attach(struct echi_net *net, struct echi_conn *conn, int rank); /* it is that rank, and fits */
void echi_join_progress(struct echi_net *net);                                 /* after an attach */
/* The join is over, for this reason; rank 0 tells the others. Nothing when it had failed already, or succeeded. */
void echi_join_fail(struct echi_net *net, ech_status status, int rank, const char *text);
void echi_join_frame(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body);
void echi_join_broken(struct echi_net *net, struct echi_conn *conn, const struct ech_error *why);
void echi_join_ready(struct echi_net *net); /* rank 0 has called READY */

/* --- greet.c --- */
void echi_greet_begin(struct echi_net *net, struct echi_conn *conn); /* we have called, and are linked */
/* HELLO, CHALLENGE, PROOF, REFUSE. */
void echi_greet_frame(struct echi_net *net, struct echi_conn *conn, const struct echi_frame *frame, const uint8_t *body);
#endif
