/* SPDX-License-Identifier: Apache-2.0
 * What waits to be sent to one peer, and which chunk of it goes next: the most urgent message first, among equals that of the
 * least order, within a kind and name in order; a payload only once the peer has granted a credit for its name. Pure: it makes
 * no system call, and it allocates only when a pool or a queue is made. */
#ifndef ECHI_QUEUE_H
#define ECHI_QUEUE_H
#include "echi_keys.h"

#include <sys/uio.h>

/* Slots of one size, taken and given back without touching the allocator. Slots never used are never touched. */
struct echi_pool {
    uint8_t *memory;
    void *free;
    size_t slot, count, touched;
};
ech_status echi_pool_create(struct echi_pool *pool, size_t slot, size_t count, const char *what, struct ech_error *err);
void echi_pool_destroy(struct echi_pool *pool);
void *echi_pool_take(struct echi_pool *pool); /* NULL when all are out */
void echi_pool_give(struct echi_pool *pool, void *slot);

struct echi_message {
    struct echi_message *next;
    uint64_t order, cookie;
    const uint8_t *payload;
    uint64_t len, at; /* of the payload; how much of it is in a batch */
    uint32_t number;
    int peer;
    uint16_t meta_len, name, priority;
    uint8_t kind;
    uint8_t meta[]; /* room for the largest meta_cap of the table */
};

#define ECHI_BATCH_FRAMES 48
/* Frames that go out with one system call, in order. A batch once begun is finished before the next is made. */
struct echi_batch {
    struct iovec iov[2 + 3 * ECHI_BATCH_FRAMES];
    int count, at; /* entries; the first one not yet written */
    int frames;
    size_t bytes;
    struct echi_message *done; /* messages whose last byte is in this batch, in order */
    struct echi_message **done_end;
    uint8_t headers[ECHI_BATCH_FRAMES][ECHI_FRAME_HEADER];
};

/* Messages of one kind and name: in order, and each with a credit of this name. */
struct echi_lane {
    struct echi_message *first, *last;
    uint32_t credits;    /* that we have */
    uint32_t owed, told; /* that we grant: not yet told of; told of and, for all we know, not used */
};
struct echi_queue {
    const struct echi_net_kind *kinds;
    int n_kinds, n_lanes, count;
    uint32_t number, chunk;              /* chunk: bytes of one, at most */
    int first_lane[ECHI_NET_KINDS_MAX]; /* of each kind's lanes, one for each of its names */
    struct echi_lane *lanes;
    uint64_t *waiting, *owing; /* sets of lanes: have messages; have credits to tell of */
};

/* `kinds` is kept by reference. */
ech_status echi_queue_begin(struct echi_queue *q, const struct echi_net_kind *kinds, int n_kinds, struct ech_error *err);
void echi_queue_end(struct echi_queue *q); /* of one that is all zero, too. Messages in it are their owner's again */
/* Lanes are numbered from 0, kind by kind, name by name. */
static inline int echi_queue_lane(const struct echi_queue *q, int kind, int name) { return q->first_lane[kind] + name; }
void echi_queue_push(struct echi_queue *q, struct echi_message *m); /* its order is set; the queue's until it is in batch->done */
static inline bool echi_message_before(const struct echi_message *a, const struct echi_message *b) {
    return a->priority < b->priority || (a->priority == b->priority && a->order < b->order);
}
const struct echi_message *echi_queue_first(const struct echi_queue *q);   /* of those that may go now; NULL: there is none */
/* The peer granted so many credits for each of `names` names from `name` on. False when that is more than it may. */
bool echi_queue_granted(struct echi_queue *q, int kind, int name, int names, uint32_t credits);
/* We grant one: told in the next batch, or at once if it is the peer's only one of this name. */
void echi_queue_grant(struct echi_queue *q, int kind, int name);
void echi_queue_used(struct echi_queue *q, int kind, int name); /* a message of the peer has taken a credit */
/* Messages of a kind that wait; whether all of them wait for credits. */
int echi_queue_waiting(const struct echi_queue *q, int kind, bool *out_for_credit);
/* Takes all waiting messages out: a list by `next`, the caller's from now on. */
struct echi_message *echi_queue_clear(struct echi_queue *q);

void echi_batch_begin(struct echi_batch *b);
void echi_batch_bytes(struct echi_batch *b, const void *bytes, size_t len);
/* Adds credits, then chunks until the batch holds `enough` bytes, about, or nothing may go, or the first message has more than `most` bytes
 * left; bytes are counted by kind in sent[], net's own frames in sent[n_kinds]. Frames are of this epoch and under this seal. */
void echi_batch_fill(struct echi_batch *b, struct echi_queue *q, size_t enough, size_t most, uint32_t epoch, struct echi_sealer *sealer,
                     uint64_t *sent);
/* So many bytes were written. True when the batch is through. */
bool echi_batch_wrote(struct echi_batch *b, size_t n);
#endif
