/* SPDX-License-Identifier: Apache-2.0
 * The recordings of a run read as one: every node's records in a causal order, each message with its send. As in recompute.c a message
 * is known by its sender, its kind and its bytes, which stand in both recordings; of several that are the same the one sent first is the
 * one that comes first, as net keeps the order within a priority. */
#include "echi_recording.h"
#include "echi_error.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_FIRST 256u

struct node { struct echi_recording *recording; struct echi_record record; bool loaded, over; };
struct bucket { struct echi_passage *first, *last; };

struct walk {
    const struct echi_walker *to;
    int world;
    struct node *node;
    struct bucket *bucket;
    size_t buckets, flights;               /* buckets: a power of two; flights: sent, and not there yet */
    struct ech_error *err;
};

/* ------------------------------------------------------- messages on their way */

/* A driver adds the bodies of some messages behind the action that sends them: of those the roles must do. */
static size_t known_by(int kind, size_t len) { return echi_kind_has_body(kind) && len > 2 ? 2 : len; }

static uint64_t hash_of(int from, int to, int kind, const uint8_t *meta, size_t len) {
    const uint64_t ends = (uint64_t)from << 32 | (uint64_t)to << 8 | (uint64_t)kind;
    return echi_check(ECHI_CHECK_BEGIN ^ ends, meta, len);
}

static struct bucket *bucket_of(const struct walk *x, uint64_t hash) { return &x->bucket[hash & (x->buckets - 1)]; }

static void append(struct bucket *b, struct echi_passage *f) {
    f->next = NULL;
    if (b->first) b->last->next = f;
    else b->first = f;
    b->last = f;
}

/* Twice as many buckets; what is in one keeps its order. */
static bool grow(struct walk *x) {
    struct bucket *old = x->bucket;
    const size_t count = x->buckets;
    struct bucket *more = calloc(2 * count, sizeof *more);
    if (!more) return false;
    x->bucket = more;
    x->buckets = 2 * count;
    for (size_t i = 0; i < count; i++)
        for (struct echi_passage *f = old[i].first, *next; f; f = next) {
            next = f->next;
            append(bucket_of(x, f->hash), f);
        }
    free(old);
    return true;
}

static ech_status take_off(struct walk *x, const struct node *n, const struct echi_traced_action *a, int to) {
    static const uint8_t between_nodes[2] = {ECHI_ROLE_NODE, ECHI_ROLE_NODE};   /* PLAN, whose action holds the body alone */
    const bool plan = a->action.type == ECHI_ACTION_PLAN;
    struct echi_passage *f = calloc(1, sizeof *f);
    if (!f || (x->flights >= x->buckets && !grow(x))) {
        free(f);
        return echi_fail_memory(x->err, "replay.walk", "a message");
    }
    f->from = n->recording->about.rank;
    f->to = (uint16_t)to;
    f->kind = plan ? ECHI_KIND_PLAN : a->action.kind;
    f->meta = plan ? between_nodes : a->meta;
    f->meta_len = known_by(f->kind, plan ? sizeof between_nodes : a->meta_len);
    f->sent = n->record.event.event.now;
    f->hash = hash_of(f->from, f->to, f->kind, f->meta, f->meta_len);
    append(bucket_of(x, f->hash), f);
    x->flights++;
    return x->to->send ? x->to->send(x->to->user, f, plan ? NULL : &a->action, x->err) : ECH_OK;
}

static ech_status send_all(struct walk *x, const struct node *n, const struct echi_traced_action *a) {
    const int self = n->recording->about.rank, only = a->action.type == ECHI_ACTION_PLAN ? -1 : a->action.to;
    for (int to = 0; to < x->world; to++)
        if (to != self && (only < 0 || to == only)) ECHI_TRY(take_off(x, n, a, to));
    return ECH_OK;
}

/* The send of the message that a node has before it, taken out; NULL: it is not there. */
static struct echi_passage *land(struct walk *x, const struct node *n) {
    const struct echi_traced *t = &n->record.event;
    const int from = t->event.from, to = n->recording->about.rank, kind = t->msg.kind;
    const size_t len = known_by(kind, t->meta_len);
    const uint64_t hash = hash_of(from, to, kind, t->meta, len);
    struct bucket *b = bucket_of(x, hash);
    struct echi_passage *before = NULL, *f = b->first;
    for (; f; before = f, f = f->next)
        if (f->from == from && f->to == to && f->kind == kind && f->meta_len == len && memcmp(f->meta, t->meta, len) == 0) break;
    if (!f) return NULL;
    if (before) before->next = f->next;
    else b->first = f->next;
    if (b->last == f) b->last = before;
    x->flights--;
    return f;
}

/* ------------------------------------------------------------------- records */

/* A heartbeat that a driver sends by itself is in no recording but its receiver's. */
static bool comes_from_another(const struct node *n) {
    const struct echi_traced *t = &n->record.event;
    if (n->record.kind != ECHI_RECORD_EVENT || t->event.type != ECHI_EVENT_MESSAGE) return false;
    if (t->event.from == n->recording->about.rank) return false;
    return t->msg.kind != ECHI_KIND_HEARTBEAT || t->msg.from_role != ECHI_ROLE_NODE || t->msg.number > 0;
}

static ech_status tell(struct walk *x, struct node *n) {
    const int rank = n->recording->about.rank;
    if (x->to->record && n->record.kind != 0) ECHI_TRY(x->to->record(x->to->user, rank, &n->record, x->err));
    if (n->record.kind != ECHI_RECORD_EVENT) return ECH_OK;
    struct echi_reader r = echi_reader_over(n->record.event.actions, n->record.event.actions_len);
    struct echi_traced_action a;
    while (echi_trace_next_action(&r, &a))
        if (a.action.type == ECHI_ACTION_SEND || a.action.type == ECHI_ACTION_PLAN) ECHI_TRY(send_all(x, n, &a));
    return ECH_OK;
}

/* The record that a node has before it; *out_waits: its message has not been sent yet, and may be. */
static ech_status pass(struct walk *x, struct node *n, bool patient, bool *out_waits) {
    *out_waits = false;
    if (comes_from_another(n)) {
        struct echi_passage *f = land(x, n);
        *out_waits = !f && patient && !x->node[n->record.event.event.from].over;
        if (*out_waits) return ECH_OK;
        if (f) {
            f->came = n->record.event.event.now;
            const ech_status status = x->to->arrive ? x->to->arrive(x->to->user, f, x->err) : ECH_OK;
            free(f);
            ECHI_TRY(status);
        }
    }
    n->loaded = false;
    return tell(x, n);
}

/* Goes on with one node until it is over or waits for another. One that is not patient does not wait for its first. */
static ech_status advance(struct walk *x, struct node *n, bool patient, bool *out_moved) {
    while (!n->over) {
        bool waits;
        if (!n->loaded) {
            ECHI_TRY(echi_recording_read(n->recording, &n->record, x->err));
            n->loaded = true;
        }
        n->over = n->record.kind == 0;
        ECHI_TRY(pass(x, n, patient, &waits));
        if (waits) break;
        patient = true;
        *out_moved = true;
    }
    return ECH_OK;
}

/* Where all wait, a send is in no recording: that of a node that was killed, or of another run. They go on without, one after the other. */
static ech_status go(struct walk *x) {
    int next = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < x->world; r++) ECHI_TRY(advance(x, &x->node[r], true, &moved));
        for (int i = 0; i < x->world && !moved; i++) {
            ECHI_TRY(advance(x, &x->node[next], false, &moved));
            next = (next + 1) % x->world;
        }
    }
    return ECH_OK;
}

ech_status echi_recordings_walk(struct echi_recording *recording, int world, const struct echi_walker *to, struct ech_error *err) {
    struct walk x = {.to = to, .world = world, .buckets = BUCKETS_FIRST, .err = err};
    x.node = calloc((size_t)world, sizeof *x.node);
    x.bucket = calloc(x.buckets, sizeof *x.bucket);
    ech_status status = x.node && x.bucket ? ECH_OK : echi_fail_memory(err, "replay.walk", "the nodes of a run");
    for (int r = 0; status == ECH_OK && r < world; r++) {
        x.node[r].recording = &recording[r];
        echi_recording_rewind(&recording[r]);
    }
    if (status == ECH_OK) status = go(&x);
    for (size_t i = 0; x.bucket && i < x.buckets; i++)
        for (struct echi_passage *f = x.bucket[i].first, *next; f; f = next) {
            next = f->next;
            free(f);
        }
    free(x.bucket);
    free(x.node);
    return status;
}
