/* SPDX-License-Identifier: Apache-2.0
 * A heap of things that are due, by time and then by the order in which they were added. */
#include "echi_events.h"

#define ARITY 4
#define ROOM_AT_FIRST 256

/* Without a branch: which of two is first nobody can guess. */
static bool before(const struct echi_due *a, const struct echi_due *b) {
    return (a->at < b->at) | ((a->at == b->at) & (a->order < b->order));
}

static bool grow(struct echi_events *e) {
    const size_t room = e->room ? 2 * e->room : ROOM_AT_FIRST;
    struct echi_due *heap = e->supply.resize(e->supply.self, e->heap, room * sizeof *heap);
    if (!heap) return false;
    e->heap = heap;
    e->room = room;
    return true;
}

/* What is later than `due` moves down from above the gap at i, until its place is found. */
static inline void put(struct echi_events *e, size_t i, const struct echi_due *due) {
    while (i > 0 && before(due, &e->heap[(i - 1) / ARITY])) {
        e->heap[i] = e->heap[(i - 1) / ARITY];
        i = (i - 1) / ARITY;
    }
    e->heap[i] = *due;
}

bool echi_events_add(struct echi_events *e, int64_t at, uint32_t kind, uint32_t who, uint64_t what) {
    if (e->count == e->room && !grow(e)) return false;
    const struct echi_due due = {at, e->added++, kind, who, what};
    put(e, e->count++, &due);
    return true;
}

/* Of up to ARITY children from `first` on the one that is due first. */
static size_t least_child(const struct echi_due *heap, size_t first, size_t count) {
    if (first + ARITY <= count) {
        const size_t left = first + before(&heap[first + 1], &heap[first]), right = first + 2 + before(&heap[first + 3], &heap[first + 2]);
        return before(&heap[right], &heap[left]) ? right : left;
    }
    size_t least = first;
    for (size_t child = first + 1; child < count; child++)
        if (before(&heap[child], &heap[least])) least = child;
    return least;
}

bool echi_events_take(struct echi_events *e, struct echi_due *out) {
    if (e->count == 0) return false;
    *out = e->heap[0];
    const struct echi_due last = e->heap[--e->count];
    size_t i = 0;
    /* The gap goes down to a leaf, and the last of all from there up to its place, which is seldom far: it was a leaf itself. */
    for (size_t first; (first = ARITY * i + 1) < e->count;) {
        const size_t least = least_child(e->heap, first, e->count);
        e->heap[i] = e->heap[least];
        i = least;
    }
    put(e, i, &last);
    return true;
}

void echi_events_free(struct echi_events *e) {
    if (e->heap) e->supply.resize(e->supply.self, e->heap, 0);
    *e = (struct echi_events){.supply = e->supply};
}
