/* SPDX-License-Identifier: Apache-2.0
 * Send queues: order, priority, credits. */
#include "echi_queue.h"
#include "echi_bits.h"
#include "echi_checked.h"
#include "echi_error.h"

#include <stdlib.h>
#include <string.h>

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

ech_status echi_queue_begin(struct echi_queue *q, const struct echi_net_kind *kinds, int n_kinds, struct ech_error *err) {
    *q = (struct echi_queue){.kinds = kinds, .n_kinds = n_kinds, .chunk = ECHI_NET_CHUNK};
    for (int k = 0; k < n_kinds; k++) {
        q->first_lane[k] = q->n_lanes;
        q->n_lanes += echi_net_names(&kinds[k]);
    }
    q->lanes = calloc((size_t)q->n_lanes, sizeof *q->lanes);
    q->waiting = calloc(ECHI_BITS_WORDS(q->n_lanes), sizeof *q->waiting);
    q->owing = calloc(ECHI_BITS_WORDS(q->n_lanes), sizeof *q->owing);
    return q->lanes && q->waiting && q->owing ? ECH_OK : echi_fail_memory(err, "net.open", "queues of messages");
}

void echi_queue_end(struct echi_queue *q) {
    free(q->lanes);
    free(q->waiting);
    free(q->owing);
    *q = (struct echi_queue){.kinds = NULL};
}

void echi_queue_push(struct echi_queue *q, struct echi_message *m) {
    const int at = echi_queue_lane(q, m->kind, m->name);
    struct echi_lane *lane = &q->lanes[at];
    m->next = NULL;
    m->at = 0;
    m->number = q->number++;
    if (lane->first)
        lane->last->next = m;
    else
        lane->first = m;
    lane->last = m;
    echi_bits_add(q->waiting, at);
    q->count++;
}

bool echi_queue_granted(struct echi_queue *q, int kind, int name, int names, uint32_t credits) {
    struct echi_lane *lane = &q->lanes[echi_queue_lane(q, kind, name)];
    for (int i = 0; i < names; i++) {
        if (credits > ECHI_NET_CREDITS_MAX - lane[i].credits) return false;
        lane[i].credits += credits;
    }
    return true;
}

void echi_queue_grant(struct echi_queue *q, int kind, int name) {
    const int at = echi_queue_lane(q, kind, name);
    q->lanes[at].owed++;
    echi_bits_add(q->owing, at);
}

void echi_queue_used(struct echi_queue *q, int kind, int name) { q->lanes[echi_queue_lane(q, kind, name)].told--; }

/* May the lane's first message not even begin? */
static bool lacks_credit(const struct echi_lane *lane) { return lane->first->len > 0 && lane->first->at == 0 && lane->credits == 0; }

int echi_queue_waiting(const struct echi_queue *q, int kind, bool *out_for_credit) {
    const int begin = q->first_lane[kind], end = begin + echi_net_names(&q->kinds[kind]);
    int count = 0;
    *out_for_credit = true;
    for (int i = echi_bits_next(q->waiting, end, begin); i >= 0 && i < end; i = echi_bits_next(q->waiting, end, i + 1)) {
        for (const struct echi_message *m = q->lanes[i].first; m; m = m->next) count++;
        *out_for_credit = *out_for_credit && lacks_credit(&q->lanes[i]);
    }
    *out_for_credit = *out_for_credit && count > 0;
    return count;
}

struct echi_message *echi_queue_clear(struct echi_queue *q) {
    struct echi_message *list = NULL;
    for (int i; (i = echi_bits_next(q->waiting, q->n_lanes, 0)) >= 0; echi_bits_drop(q->waiting, i)) {
        q->lanes[i].last->next = list;
        list = q->lanes[i].first;
        q->lanes[i].first = NULL;
    }
    for (int i; (i = echi_bits_next(q->owing, q->n_lanes, 0)) >= 0;) echi_bits_drop(q->owing, i);
    q->count = 0;
    return list;
}

/* The lane whose first message may go now, or -1. */
static int most_urgent(const struct echi_queue *q) {
    const struct echi_message *first = NULL;
    int best = -1;
    for (int i = echi_bits_next(q->waiting, q->n_lanes, 0); i >= 0; i = echi_bits_next(q->waiting, q->n_lanes, i + 1)) {
        const struct echi_message *m = q->lanes[i].first;
        if (lacks_credit(&q->lanes[i])) continue;
        if (first && !echi_message_before(m, first)) continue;
        first = m;
        best = i;
    }
    return best;
}

const struct echi_message *echi_queue_first(const struct echi_queue *q) {
    const int lane = most_urgent(q);
    return lane < 0 ? NULL : q->lanes[lane].first;
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

/* How many lanes from `at` on, names of one kind, owe as many credits: one frame tells of all of them. */
static int alike(const struct echi_queue *q, int kind, int at) {
    const int end = q->first_lane[kind] + echi_net_names(&q->kinds[kind]);
    int i = at + 1;
    while (i < end && q->lanes[i].owed == q->lanes[at].owed) i++;
    return i - at;
}

static void add_credits(struct echi_batch *b, struct echi_queue *q, uint32_t epoch, struct echi_sealer *sealer, uint64_t *sent) {
    int kind = 0;
    for (int at; b->frames < ECHI_BATCH_FRAMES && (at = echi_bits_next(q->owing, q->n_lanes, 0)) >= 0;) {
        while (kind + 1 < q->n_kinds && q->first_lane[kind + 1] <= at) kind++;
        const int names = alike(q, kind, at);
        const struct echi_frame frame = {.type = ECHI_FRAME_CREDIT,
                                         .kind = (uint8_t)kind,
                                         .name = (uint16_t)(at - q->first_lane[kind]),
                                         .epoch = epoch,
                                         .offset = (uint64_t)names - 1,
                                         .total = q->lanes[at].owed};
        add_frame(b, &frame, sealer, NULL, NULL);
        for (int i = at; i < at + names; i++) {
            q->lanes[i].told += q->lanes[i].owed;
            q->lanes[i].owed = 0;
            echi_bits_drop(q->owing, i);
        }
        sent[q->n_kinds] += ECHI_FRAME_HEADER;
    }
}

static void add_chunk(struct echi_batch *b, struct echi_queue *q, int at, uint32_t epoch, struct echi_sealer *sealer, uint64_t *sent) {
    struct echi_lane *lane = &q->lanes[at];
    struct echi_message *m = lane->first;
    uint64_t left = m->len - m->at;
    struct echi_frame frame = {.type = ECHI_FRAME_DATA,
                               .kind = m->kind,
                               .name = m->name,
                               .epoch = epoch,
                               .message = m->number,
                               .meta_len = m->at == 0 ? m->meta_len : 0,
                               .offset = m->at,
                               .total = m->len,
                               .chunk_len = left < q->chunk ? (uint32_t)left : q->chunk};
    if (m->at == 0 && m->len > 0) lane->credits--;
    add_frame(b, &frame, sealer, m->meta, frame.chunk_len ? m->payload + m->at : NULL);
    sent[m->kind] += ECHI_FRAME_HEADER + frame.meta_len + frame.chunk_len;
    m->at += frame.chunk_len;
    if (m->at < m->len) return;

    lane->first = m->next;
    if (!lane->first) echi_bits_drop(q->waiting, at);
    q->count--;
    m->next = NULL;
    *b->done_end = m;
    b->done_end = &m->next;
}

/* Does the peer need to be told now? A credit that is not its only one of a name can ride with the next message: a frame of its
 * own would cost both sides a system call and a wake-up. */
static bool credits_are_urgent(const struct echi_queue *q) {
    for (int i = echi_bits_next(q->owing, q->n_lanes, 0); i >= 0; i = echi_bits_next(q->owing, q->n_lanes, i + 1))
        if (q->lanes[i].told == 0) return true;
    return false;
}

void echi_batch_fill(struct echi_batch *b, struct echi_queue *q, size_t enough, size_t most, uint32_t epoch,
                     struct echi_sealer *sealer, uint64_t *sent) {
    if (most_urgent(q) >= 0 || credits_are_urgent(q)) add_credits(b, q, epoch, sealer, sent);
    while (b->frames < ECHI_BATCH_FRAMES && b->bytes < enough) {
        const int lane = most_urgent(q);
        if (lane < 0 || q->lanes[lane].first->len - q->lanes[lane].first->at > most) break;
        add_chunk(b, q, lane, epoch, sealer, sent);
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
