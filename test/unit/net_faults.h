/* SPDX-License-Identifier: Apache-2.0
 * A transport that fails on purpose, between a net and its real one: it gives a byte at a time, says "not yet", breaks the
 * link, or changes what is read, at a place that the test names. Places count bytes over all links of the node. */
#ifndef NET_FAULTS_H
#define NET_FAULTS_H
#include "echi_transport.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT64_MAX
struct faults {
    bool one_byte;                     /* at a time, in both directions */
    uint64_t again_at;                 /* the n-th read or write does nothing */
    uint64_t break_read, break_write;  /* the link breaks when so many bytes were read (written); ... */
    bool only_writes;                  /* ... reading goes on, and nothing comes */
    uint64_t flip_at;                  /* a bit of this byte of what is read is turned; which one: its place modulo 8 */
    /* what has happened */
    uint64_t calls, read, written;
    bool struck;
    struct echi_link *broken;          /* nothing goes through it any more */
};
#define NO_FAULTS {.again_at = NOWHERE, .break_read = NOWHERE, .break_write = NOWHERE, .flip_at = NOWHERE}

struct faulty { struct echi_transport base; struct echi_transport *inner; struct faults *f; };

static inline struct faulty *faulty_of(struct echi_transport *t) { return (struct faulty *)t; }
#define INNER(t) (faulty_of(t)->inner)

static inline ech_status faulty_break(struct faults *f, struct echi_link *l, struct ech_error *err) {
    f->struck = true;
    f->broken = l;
    if (err) *err = (struct ech_error){.code = ECH_E_PEER_LOST, .peer = -1, .text = "is gone: broken by the test"};
    return ECH_E_PEER_LOST;
}

/* May only a part of iov be used at once? Then *one is that part. */
static inline bool faulty_part(const struct faults *f, uint64_t done, uint64_t breaks, const struct iovec *iov, struct iovec *one) {
    uint64_t most = f->one_byte ? 1 : NOWHERE;
    if (!f->struck && breaks != NOWHERE && breaks >= done && breaks - done < most) most = breaks - done;
    *one = iov[0];
    if (one->iov_len > most) one->iov_len = (size_t)most;
    return most != NOWHERE;
}

static inline ech_status faulty_read(struct echi_transport *t, struct echi_link *l, struct iovec *iov, int n, size_t *got,
                                     struct ech_error *err) {
    struct faults *f = faulty_of(t)->f;
    struct iovec one;
    *got = 0;
    if (f->calls++ == f->again_at) {
        f->struck = true;
        return ECH_OK;
    }
    if ((l == f->broken && !f->only_writes) || (f->read == f->break_read && !f->struck)) return faulty_break(f, l, err);
    bool part = faulty_part(f, f->read, f->break_read, iov, &one);
    struct iovec *to = part ? &one : iov;
    ech_status status = INNER(t)->ops->read(INNER(t), l, to, part ? 1 : n, got, err);
    if (status == ECH_OK && f->flip_at >= f->read && f->flip_at < f->read + *got) {
        size_t at = (size_t)(f->flip_at - f->read);
        int i = 0;
        while (at >= to[i].iov_len) at -= to[i++].iov_len;
        ((uint8_t *)to[i].iov_base)[at] ^= (uint8_t)(1u << (f->flip_at % 8));
        f->struck = true;
    }
    f->read += *got;
    return status;
}

static inline ech_status faulty_write(struct echi_transport *t, struct echi_link *l, struct iovec *iov, int n, size_t *put,
                                      struct ech_error *err) {
    struct faults *f = faulty_of(t)->f;
    struct iovec one;
    *put = 0;
    if (f->calls++ == f->again_at) {
        f->struck = true;
        return ECH_OK;
    }
    if (l == f->broken || (f->written == f->break_write && !f->struck)) return faulty_break(f, l, err);
    bool part = faulty_part(f, f->written, f->break_write, iov, &one);
    ech_status status = INNER(t)->ops->write(INNER(t), l, part ? &one : iov, part ? 1 : n, put, err);
    f->written += *put;
    return status;
}

static inline ech_status faulty_listen(struct echi_transport *t, struct echi_link *beside, char *address, struct ech_error *err) {
    return INNER(t)->ops->listen(INNER(t), beside, address, err);
}
static inline void faulty_unlisten(struct echi_transport *t) { INNER(t)->ops->unlisten(INNER(t)); }
static inline ech_status faulty_dial(struct echi_transport *t, int rank, const char *address, unsigned attempt, void *user,
                                     struct echi_link **out, struct ech_error *err) {
    return INNER(t)->ops->dial(INNER(t), rank, address, attempt, user, out, err);
}
static inline ech_status faulty_dialled(struct echi_transport *t, struct echi_link *l, struct ech_error *err) {
    return INNER(t)->ops->dialled(INNER(t), l, err);
}
static inline struct echi_link *faulty_accept(struct echi_transport *t, void *user) { return INNER(t)->ops->accept(INNER(t), user); }
static inline void faulty_name(struct echi_transport *t, struct echi_link *l, char out[ECHI_NET_ADDRESS]) {
    INNER(t)->ops->name(INNER(t), l, out);
}
static inline ech_status faulty_check_peer(struct echi_transport *t, struct echi_link *l, struct ech_error *err) {
    return INNER(t)->ops->check_peer(INNER(t), l, err);
}
static inline void faulty_watch(struct echi_transport *t, struct echi_link *l, bool on) { INNER(t)->ops->watch_write(INNER(t), l, on); }
static inline void faulty_await_bytes(struct echi_transport *t, struct echi_link *l, int bytes) {
    INNER(t)->ops->await_bytes(INNER(t), l, bytes);
}
static inline void faulty_hold_unsent(struct echi_transport *t, struct echi_link *l, uint32_t bytes) {
    INNER(t)->ops->hold_unsent(INNER(t), l, bytes);
}
static inline void faulty_finish(struct echi_transport *t, struct echi_link *l) { INNER(t)->ops->finish(INNER(t), l); }
static inline void faulty_hang_up(struct echi_transport *t, struct echi_link *l) {
    if (l == faulty_of(t)->f->broken) faulty_of(t)->f->broken = NULL; /* the next link may lie at the same place */
    INNER(t)->ops->hang_up(INNER(t), l);
}
static inline ech_status faulty_wait(struct echi_transport *t, int64_t deadline, struct echi_ready *out, int cap, int *count,
                                     struct ech_error *err) {
    return INNER(t)->ops->wait(INNER(t), deadline, out, cap, count, err);
}
static inline void faulty_wake(struct echi_transport *t) { INNER(t)->ops->wake(INNER(t)); }
static inline void faulty_destroy(struct echi_transport *t) {
    INNER(t)->ops->destroy(INNER(t));
    free(t);
}

/* For echi_net_config.wrap; wrap_self: a struct faults. */
static inline struct echi_transport *faulty_wrap(void *self, struct echi_transport *inner) {
    static const struct echi_transport_ops ops = {
        .listen = faulty_listen, .unlisten = faulty_unlisten, .dial = faulty_dial, .dialled = faulty_dialled, .accept = faulty_accept,
        .name = faulty_name, .check_peer = faulty_check_peer, .read = faulty_read, .write = faulty_write, .watch_write = faulty_watch,
        .await_bytes = faulty_await_bytes, .hold_unsent = faulty_hold_unsent, .finish = faulty_finish, .hang_up = faulty_hang_up,
        .wait = faulty_wait, .wake = faulty_wake, .destroy = faulty_destroy};
    struct faulty *t = calloc(1, sizeof *t);
    if (!t) abort();
    *t = (struct faulty){{&ops}, inner, self};
    return &t->base;
}
#endif
