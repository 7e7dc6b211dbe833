/* SPDX-License-Identifier: Apache-2.0
 * Bytes between nodes. Given the table of message kinds when it is opened, net joins the nodes of a run, moves
 * messages in chunks (the most urgent first) under credits, and reports peer up, peer lost, message, sent. It adds no
 * floats and decides nothing.
 *
 * Threads: all calls come from one thread (the I/O thread), but echi_net_wake, which may come from any. Nothing
 * blocks but echi_net_poll, which waits at most until its deadline.
 *
 * A message is a kind, a name, a priority, a small `meta` (at most the kind's meta_cap bytes, copied) and a payload (at
 * most payload_cap). Kinds with payload_cap 0 are control: they need no credit. A payload travels only into a buffer that
 * its receiver has posted for (peer, kind, name): posting grants one credit for this name. A sender's message without a
 * credit waits in its queue, and holds up none of another kind or name. Messages of one kind and name arrive in order;
 * all others may overtake each other, the most urgent first. */
#ifndef ECHI_NET_H
#define ECHI_NET_H
#include "ech_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_NET_WORLD_MAX 64
#define ECHI_NET_KINDS_MAX 64
#define ECHI_NET_CHUNK 65536u       /* bytes of payload in one frame at most */
#define ECHI_NET_NAMES_MAX 256      /* names of one kind */
#define ECHI_NET_PROTOCOL 5u        /* raised when a frame changes, or how messages are written */
#define ECHI_NET_KEY_LEAST 16       /* bytes of a key */
#define ECHI_NET_KEY_MOST 4096

struct echi_net_kind {
    const char *name;
    uint32_t meta_cap;              /* bytes, at most 4096 */
    uint64_t payload_cap;           /* bytes, at most; 0: control */
    float tolerance;                /* part of the payload that may be lost; 0 on every transport that exists yet */
    uint64_t payload_least;         /* bytes, at least; 0: a message of this kind may come without a payload */
    uint16_t names;                 /* its messages have the names 0 .. names - 1, at most ECHI_NET_NAMES_MAX; 0: as 1 */
};
static inline int echi_net_names(const struct echi_net_kind *kind) { return kind->names ? kind->names : 1; }

/* What is sent. */
struct echi_net_message {
    int kind;
    uint16_t name;                  /* whose buffer it is for */
    uint16_t priority;              /* 0 most urgent; decides chunk by chunk, among equals the older message. Overtakes none of its
                                       own kind and name */
    const void *meta; size_t meta_len;         /* copied */
    const void *payload; size_t payload_len;   /* net's until SENT, which comes only where payload_len is not 0 */
    uint64_t cookie;
};

/* A value that all nodes must share, compared at hello; a difference is refused with both sides' values. */
struct echi_net_fingerprint { char name[24]; char value[72]; };   /* "model", 64 hex digits */

struct echi_net_hub;                /* the in-process transport's meeting place, shared by all its nodes */
ech_status echi_net_hub_create(int world, struct echi_net_hub **out, struct ech_error *err);
void echi_net_hub_destroy(struct echi_net_hub *hub);             /* after all nets on it are closed */

struct echi_transport;             /* echi_transport.h */

struct echi_net_config {
    int rank, world;                              /* world 1..ECHI_NET_WORLD_MAX */
    const struct echi_net_kind *kinds; int n_kinds;   /* kept by reference; the same table on all nodes (its hash is a fingerprint) */
    const struct echi_net_fingerprint *fingerprints; int n_fingerprints;   /* copied; at most 8 */
    struct echi_net_hub *hub;                     /* not NULL: in-process; the fields below are then not used */
    const char *coordinator;                      /* "host:port", "[addr]:port"; rank 0 binds it (port 0: any) */
    const char *bind;                             /* address that ranks other than 0 listen on; NULL: the address of the
                                                     route to the coordinator (never loopback to remote peers) */
    int64_t join_timeout;                         /* ns for all nodes to meet */
    bool in_turn;                                 /* rank 0 is no run: it listens, and serves one caller after the other. So report the
                                                     sentences of a join, and whoever opened this adds what helps */
    int64_t unheard;                              /* ns that bytes may stay unacknowledged before the OS gives a connection up; 0: as
                                                     long as it pleases (minutes). TCP */
    /* Security, on either transport. With a key every node proves to every other that it has the same, and every frame
     * carries an authenticator. Without one (NULL), TCP goes to loopback addresses only, and to nodes of the same user
     * where the system tells, unless `insecure`. */
    const void *key; size_t key_len;              /* ECHI_NET_KEY_LEAST..ECHI_NET_KEY_MOST bytes; read during open,
                                                     then the caller's again */
    bool insecure;
    uint32_t epoch;                               /* the membership into which this node is admitted, the same for all that meet; 0: 1 */
    /* Tests: stands between net and its transport, which belongs to what is returned. NULL: nothing does. */
    struct echi_transport *(*wrap)(void *self, struct echi_transport *inner); void *wrap_self;
};

enum echi_net_event_type {
    ECHI_NET_WAITING,   /* still joining; `text` says how many of how many joined and who is missing (at most each 2 s) */
    ECHI_NET_READY,     /* all nodes are connected with all; comes once, before any message */
    ECHI_NET_MESSAGE,   /* whole; payload (if any) is in the posted buffer named by `cookie`, which is yours again */
    ECHI_NET_SENT,      /* the payload given to echi_net_send with `cookie` is yours again */
    ECHI_NET_LOST       /* the connection to `peer` is gone, with the reason in `text`; the buffers posted for it are yours
                           again, those sent come back as SENT, before or after this. Also what follows a peer's orderly echi_net_close:
                           then `orderly` is set */
};
struct echi_net_event {
    enum echi_net_event_type type;
    int peer, kind, name;
    const uint8_t *meta; size_t meta_len;         /* valid until the next poll */
    void *payload; size_t payload_len; uint64_t cookie;
    bool orderly;
    const char *text;                             /* valid until the next poll */
};

struct echi_net;
/* Starts joining; errors that need no peer (bad address, port in use, an address that needs a key) come at once, in a
 * sentence that names option and address. The rest comes from echi_net_poll. */
ech_status echi_net_open(const struct echi_net_config *config, struct echi_net **out, struct ech_error *err);
/* Says good-bye to all, sends what is queued for at most `linger` ns, closes. NULL is harmless. */
void echi_net_close(struct echi_net *net, int64_t linger);
/* The address bound here, "127.0.0.1:40001"; valid until close. */
const char *echi_net_address(const struct echi_net *net);
/* The other end of the connection to `peer`, whoever called: its host, and the port that its connection has, which is another than the one
 * at which it listens. "": there is none. At most 63 bytes and a NUL. */
void echi_net_peer_end(const struct echi_net *net, int peer, char out[64]);

/* Runs I/O until at least one event is there, echi_net_wake was called, or `deadline` (clock of echi_now) has passed;
 * hands out at most `cap` events. Fails only when the join fails (timeout: names the missing ranks; mismatch: both
 * values) or on a broken OS call. */
ech_status echi_net_poll(struct echi_net *net, int64_t deadline, struct echi_net_event *out, int cap, int *out_count,
                         struct ech_error *err);
/* Writes of what is queued as much as connections take at once. For who is not back at its next poll for a while; events wait for that. */
void echi_net_flush(struct echi_net *net);
/* From now on the system is given no more than about so many bytes, at least 16 KiB, of a peer before they can leave: what is urgent waits
 * for these. A chunk has a quarter of them, and 16 KiB to ECHI_NET_CHUNK. Two chunks of ECHI_NET_CHUNK at first. For who knows how much its
 * link carries: too few, and it is idle while this thread does not run. `rate`: bytes/s that it carries, or 0. Where a chunk is less than
 * ECHI_NET_CHUNK, so that hosts are faster than the link, large messages then leave one after the other, the most urgent first, of equals
 * the oldest, to whichever peers they go, unless the peer takes less than the link carries; else each connection has its part of it. */
void echi_net_give_way(struct echi_net *net, uint32_t bytes, double rate);
/* Makes a waiting or the next poll return. Any thread; async-signal-safe. */
void echi_net_wake(struct echi_net *net);

/* Grants one credit: the next payload of `kind` and `name` from `peer` goes to buffer[0..cap). Belongs to net until its
 * MESSAGE. Of those posted for one name the first is used first. */
ech_status echi_net_post(struct echi_net *net, int peer, int kind, int name, void *buffer, size_t cap, uint64_t cookie,
                         struct ech_error *err);
/* Queues a message. Fails with ECH_E_PEER_LOST when the peer is gone, ECH_E_MEMORY when the peer's queue is full (bound:
 * 1,024 messages). */
ech_status echi_net_send(struct echi_net *net, int peer, const struct echi_net_message *message, struct ech_error *err);

/* The membership has been raised without `peer` (only the coordinator decides so), whatever it says: the connection is closed, and
 * no message of it that has not been handed out is. Posted buffers are yours again at once, sent ones come back as SENT; LOST
 * follows, with `why` ("was declared lost") behind its name. Nothing when it is lost already. */
void echi_net_drop(struct echi_net *net, int peer, const char *why);

/* Bytes put on the wire so far by kind (frames and headers included; [n_kinds] is hello, credits and the like). */
void echi_net_bytes_sent(const struct echi_net *net, uint64_t out[ECHI_NET_KINDS_MAX + 1]);
/* Bytes that have come from `peer` so far, of whole messages or not: who sends is there, however long his message. */
uint64_t echi_net_bytes_from(const struct echi_net *net, int peer);
/* What has come from `peer` (this node's own rank: from all of them together) while there was always more on its way: behind the first
 * bytes of a message, until its last. Counted since this was asked for the last time with success; false while it took less than
 * `least` ns, > 0. */
bool echi_net_delivered(struct echi_net *net, int peer, int64_t least, uint64_t *out_bytes, int64_t *out_ns);
/* How many messages of `kind` wait to be sent to `peer`, and whether it is credits that all of them wait for. */
int echi_net_waiting(const struct echi_net *net, int peer, int kind, bool *out_for_credit);
#endif
