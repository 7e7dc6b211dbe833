/* SPDX-License-Identifier: Apache-2.0
 * Send queues: order, priority, credits. */
#include "echi_queue.h"
#include "echi_checked.h"
#include "echi_error.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(ECHI_NET_KINDS_MAX <= 64, "waiting and owing have a bit for each kind");

static uint64_t bit_of(int kind) { return UINT64_C(1) << kind; }

ech_status echi_pool_create(struct echi_pool *pool, size_t slot, size_t count, const char *what, struct ech_error *err) {
    const size_t align = sizeof(max_align_t);
    slot = (slot + align - 1) / align * align;
    size_t bytes;
    *pool = (struct echi_pool){.slot = slot, .count = count};
    if (count == 0) return ECH_OK;
    if (!echi_mul_size(slot, count, &bytes) || !(pool->memory = malloc(bytes))) return echi_fail_memory(err, "net.open", what);
    return ECH_OK;
}

void echi_pool_destroy(struct echi_pool *pool) { free(pool->memory); }

void *echi_pool_take(struct echi_pool *pool) {
    void *slot = pool->free;
    if (slot)
        memcpy(&pool->free, slot, sizeof pool->free);
    else if (pool->touched < pool->count)
        slot = pool->memory + pool->slot * pool->touched++;
    return slot;
}

void echi_pool_give(struct echi_pool *pool, void *slot) {
    memcpy(slot, &pool->free, sizeof pool->free);
    pool->free = slot;
}

void echi_queue_begin(struct echi_queue *q, const struct echi_net_kind *kinds, int n_kinds) {
    memset(q, 0, sizeof *q);
    q->kinds = kinds;
    q->n_kinds = n_kinds;
}

void echi_queue_push(struct echi_queue *q, struct echi_message *m) {
    struct echi_lane *lane = &q->lanes[m->kind];
    m->next = NULL;
    m->at = 0;
    m->order = q->order++;
    m->number = q->number++;
    if (lane->first)
        lane->last->next = m;
    else
        lane->first = m;
    lane->last = m;
    q->waiting |= bit_of(m->kind);
    q->count++;
}

bool echi_queue_granted(struct echi_queue *q, int kind, uint32_t credits) {
    struct echi_lane *lane = &q->lanes[kind];
    if (credits > ECHI_NET_CREDITS_MAX - lane->credits) return false;
    lane->credits += credits;
    return true;
}

void echi_queue_grant(struct echi_queue *q, int kind) {
    q->lanes[kind].owed++;
    q->owing |= bit_of(kind);
}

void echi_queue_used(struct echi_queue *q, int kind) { q->lanes[kind].told--; }

/* May the lane's first message not even begin? */
static bool lacks_credit(const struct echi_lane *lane) { return lane->first->len > 0 && lane->first->at == 0 && lane->credits == 0; }

int echi_queue_waiting(const struct echi_queue *q, int kind, bool *out_for_credit) {
    const struct echi_lane *lane = &q->lanes[kind];
    int count = 0;
    for (const struct echi_message *m = lane->first; m; m = m->next) count++;
    *out_for_credit = count > 0 && lacks_credit(lane);
    return count;
}

struct echi_message *echi_queue_clear(struct echi_queue *q) {
    struct echi_message *list = NULL;
    for (int k = 0; k < q->n_kinds; k++) {
        if (!q->lanes[k].first) continue;
        q->lanes[k].last->next = list;
        list = q->lanes[k].first;
        q->lanes[k].first = NULL;
    }
    q->waiting = q->owing = 0;
    q->count = 0;
    return list;
}

/* The kind whose first message may go now, or -1. */
static int most_urgent(const struct echi_queue *q) {
    int best = -1;
    for (uint64_t left = q->waiting; left; left &= left - 1) {
        int k = __builtin_ctzll(left);
        const struct echi_message *m = q->lanes[k].first;
        if (lacks_credit(&q->lanes[k])) continue;
        if (best < 0 || q->kinds[k].priority < q->kinds[best].priority ||
            (q->kinds[k].priority == q->kinds[best].priority && m->order < q->lanes[best].first->order))
            best = k;
    }
    return best;
}

void echi_batch_begin(struct echi_batch *b) {
    b->count = b->at = b->frames = 0;
    b->bytes = 0;
    b->done = NULL;
    b->done_end = &b->done;
}

void echi_batch_bytes(struct echi_batch *b, const void *bytes, size_t len) {
    if (len == 0) return;
    b->iov[b->count++] = (struct iovec){(void *)(uintptr_t)bytes, len};
    b->bytes += len;
}

static void add_frame(struct echi_batch *b, const struct echi_frame *frame, struct echi_sealer *sealer, const uint8_t *meta,
                      const uint8_t *chunk) {
    uint8_t *header = b->headers[b->frames++];
    echi_frame_store(frame, header);
    echi_sealer_stamp(sealer, header, meta, frame->meta_len, chunk, frame->chunk_len);
    echi_batch_bytes(b, header, ECHI_FRAME_HEADER);
    echi_batch_bytes(b, meta, frame->meta_len);
    echi_batch_bytes(b, chunk, frame->chunk_len);
}

static void add_credits(struct echi_batch *b, struct echi_queue *q, uint32_t epoch, struct echi_sealer *sealer, uint64_t *sent) {
    for (; q->owing && b->frames < ECHI_BATCH_FRAMES; q->owing &= q->owing - 1) {
        int k = __builtin_ctzll(q->owing);
        const struct echi_frame frame = {.type = ECHI_FRAME_CREDIT, .kind = (uint8_t)k, .epoch = epoch, .total = q->lanes[k].owed};
        add_frame(b, &frame, sealer, NULL, NULL);
        q->lanes[k].told += q->lanes[k].owed;
        q->lanes[k].owed = 0;
        sent[q->n_kinds] += ECHI_FRAME_HEADER;
    }
}

static void add_chunk(struct echi_batch *b, struct echi_queue *q, int kind, uint32_t epoch, struct echi_sealer *sealer, uint64_t *sent) {
    struct echi_lane *lane = &q->lanes[kind];
    struct echi_message *m = lane->first;
    uint64_t left = m->len - m->at;
    struct echi_frame frame = {.type = ECHI_FRAME_DATA,
                               .kind = m->kind,
                               .epoch = epoch,
                               .message = m->number,
                               .meta_len = m->at == 0 ? m->meta_len : 0,
                               .offset = m->at,
                               .total = m->len,
                               .chunk_len = left < ECHI_NET_CHUNK ? (uint32_t)left : ECHI_NET_CHUNK};
    if (m->at == 0 && m->len > 0) lane->credits--;
    add_frame(b, &frame, sealer, m->meta, frame.chunk_len ? m->payload + m->at : NULL);
    sent[kind] += ECHI_FRAME_HEADER + frame.meta_len + frame.chunk_len;
    m->at += frame.chunk_len;
    if (m->at < m->len) return;

    lane->first = m->next;
    if (!lane->first) q->waiting &= ~bit_of(kind);
    q->count--;
    m->next = NULL;
    *b->done_end = m;
    b->done_end = &m->next;
}

/* Does the peer need to be told now? A credit that is not its only one of a kind can ride with the next message: a frame of its
 * own would cost both sides a system call and a wake-up. */
static bool credits_are_urgent(const struct echi_queue *q) {
    for (uint64_t left = q->owing; left; left &= left - 1)
        if (q->lanes[__builtin_ctzll(left)].told == 0) return true;
    return false;
}

void echi_batch_fill(struct echi_batch *b, struct echi_queue *q, uint32_t epoch, struct echi_sealer *sealer, uint64_t *sent) {
    if (most_urgent(q) >= 0 || credits_are_urgent(q)) add_credits(b, q, epoch, sealer, sent);
    while (b->frames < ECHI_BATCH_FRAMES && b->bytes < ECHI_NET_CHUNK) {
        int kind = most_urgent(q);
        if (kind < 0) break;
        add_chunk(b, q, kind, epoch, sealer, sent);
    }
}

bool echi_batch_wrote(struct echi_batch *b, size_t n) {
    while (n > 0) {
        struct iovec *v = &b->iov[b->at];
        size_t part = n < v->iov_len ? n : v->iov_len;
        v->iov_base = (uint8_t *)v->iov_base + part;
        v->iov_len -= part;
        n -= part;
        if (v->iov_len == 0) b->at++;
    }
    return b->at == b->count;
}
