/* SPDX-License-Identifier: Apache-2.0
 * The seam between net and what carries its bytes. A transport gives links: ordered two-way streams of bytes to other
 * nodes. It knows nothing of frames, ranks' roles or kinds.
 *
 * All entries are called by the thread that owns the net, except `wake`. None but `wait` blocks (`make` may, for the coordinator's
 * name: of rank 0 until join_timeout, of others a second). "Not yet" is success with nothing: zero bytes, no link, ECH_E_AGAIN
 * where said. An entry that returns another status has filled the error with a sentence that begins with a verb phrase about
 * the peer ("refused the connection"), so that the caller can put a name before it. */
#ifndef ECHI_TRANSPORT_H
#define ECHI_TRANSPORT_H
#include "echi_hello.h"

#include <sys/uio.h>

struct echi_transport; /* state of one node; made by the functions at the end */
struct echi_link {
    void *user;
}; /* first member of a transport's own link; `user` is the caller's */
struct echi_ready {
    void *user;
    bool read, write;
}; /* of a link; NULL: somebody waits to be accepted */

struct echi_transport_ops {
    /* Listens: at the coordinator's address when `beside` is NULL, else where `beside` leaves this node (or at the
     * address given to `make`). `address`, ECHI_NET_ADDRESS bytes, gets what peers are to dial. ECH_E_BUSY, ECH_E_ARGUMENT,
     * ECH_E_IO. */
    ech_status (*listen)(struct echi_transport *t, struct echi_link *beside, char *address, struct ech_error *err);
    /* Nobody is accepted any more. Harmless when not listening. */
    void (*unlisten)(struct echi_transport *t);
    /* Begins a link to `rank` at `address` (rank 0: the coordinator's; then `attempt` chooses among the addresses of its
     * name). The link is the caller's and must be given to hang_up. ECH_E_AGAIN: the name has no address yet. ECH_E_ARGUMENT: there is
     * nothing to be dialled, and never will be. */
    ech_status (*dial)(struct echi_transport *t, int rank, const char *address, unsigned attempt, void *user,
                       struct echi_link **out, struct ech_error *err);
    /* Has the dialled link come about? ECH_E_AGAIN: not yet; it becomes ready to write when that changes. */
    ech_status (*dialled)(struct echi_transport *t, struct echi_link *link, struct ech_error *err);
    /* The next link that somebody else has begun, the caller's as with dial; NULL when there is none. */
    struct echi_link *(*accept)(struct echi_transport *t, void *user);
    /* The other end, for sentences: "10.0.0.7:41012". */
    void (*name)(struct echi_transport *t, struct echi_link *link, char out[ECHI_NET_ADDRESS]);
    /* Without a key: is the other end, which has sent something, one to be believed? ECH_E_MISMATCH: it belongs to another user.
     * ECH_E_PEER_LOST: to nobody, as far as can be seen now. ECH_E_IO: the system cannot be asked now; the sentence is about this node. */
    ech_status (*check_peer)(struct echi_transport *t, struct echi_link *link, struct ech_error *err);
    /* ECH_E_END: the peer sends no more. ECH_E_PEER_LOST: the link broke. */
    ech_status (*read)(struct echi_transport *t, struct echi_link *link, struct iovec *iov, int n, size_t *got,
                       struct ech_error *err);
    /* The bytes are the caller's again at return. ECH_E_PEER_LOST: the link broke (what the peer sent may still be read). */
    ech_status (*write)(struct echi_transport *t, struct echi_link *link, struct iovec *iov, int n, size_t *put,
                        struct ech_error *err);
    /* Whether `wait` reports the link ready to write; off at first, on for a dialled link. Reading is always reported. */
    void (*watch_write)(struct echi_transport *t, struct echi_link *link, bool on);
    /* `wait` may hold back that the link is ready to read until so many bytes have come, or it ended; 1 at first. A wish. */
    void (*await_bytes)(struct echi_transport *t, struct echi_link *link, int bytes);
    /* Of what is written no more than about so many bytes should lie here before they can leave. A wish. */
    void (*hold_unsent)(struct echi_transport *t, struct echi_link *link, uint32_t bytes);
    /* Nothing more will be written; what was written still arrives. */
    void (*finish)(struct echi_transport *t, struct echi_link *link);
    void (*hang_up)(struct echi_transport *t, struct echi_link *link);
    /* Waits until a link is ready, `wake` was called or `deadline` has passed. Reports levels, not edges. ECH_E_IO only when
     * the OS fails. */
    ech_status (*wait)(struct echi_transport *t, int64_t deadline, struct echi_ready *out, int cap, int *count,
                       struct ech_error *err);
    /* Any thread, and signal handlers. */
    void (*wake)(struct echi_transport *t);
    /* After all links were given to hang_up. */
    void (*destroy)(struct echi_transport *t);
};
struct echi_transport {
    const struct echi_transport_ops *ops;
};

ech_status echi_tcp_create(const struct echi_net_config *config, struct echi_transport **out, struct ech_error *err);
ech_status echi_inproc_create(const struct echi_net_config *config, struct echi_transport **out, struct ech_error *err);
#endif
