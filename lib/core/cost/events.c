/* SPDX-License-Identifier: Apache-2.0
 * A heap of things that are due, by time and then by the order in which they were added. */
#include "echi_events.h"

#define ARITY 4
#define ROOM_AT_FIRST 256

static bool before(const struct echi_due *a, const struct echi_due *b) { return a->at != b->at ? a->at < b->at : a->order < b->order; }

static bool grow(struct echi_events *e) {
    const size_t room = e->room ? 2 * e->room : ROOM_AT_FIRST;
    struct echi_due *heap = e->supply.resize(e->supply.self, e->heap, room * sizeof *heap);
    if (!heap) return false;
    e->heap = heap;
    e->room = room;
    return true;
}

bool echi_events_add(struct echi_events *e, int64_t at, uint32_t kind, uint32_t who, uint64_t what) {
    if (e->count == e->room && !grow(e)) return false;
    const struct echi_due due = {at, e->added++, kind, who, what};
    size_t i = e->count++;
    /* What is later than the new one moves down, until its place is found. */
    while (i > 0 && before(&due, &e->heap[(i - 1) / ARITY])) {
        e->heap[i] = e->heap[(i - 1) / ARITY];
        i = (i - 1) / ARITY;
    }
    e->heap[i] = due;
    return true;
}

bool echi_events_take(struct echi_events *e, struct echi_due *out) {
    if (e->count == 0) return false;
    *out = e->heap[0];
    const struct echi_due last = e->heap[--e->count];
    size_t i = 0;
    /* The first of the children moves up into the gap, until the last of all fits into it. */
    for (;;) {
        const size_t first = ARITY * i + 1, end = first + ARITY < e->count ? first + ARITY : e->count;
        if (first >= e->count) break;
        size_t least = first;
        for (size_t child = first + 1; child < end; child++)
            if (before(&e->heap[child], &e->heap[least])) least = child;
        if (!before(&e->heap[least], &last)) break;
        e->heap[i] = e->heap[least];
        i = least;
    }
    if (e->count > 0) e->heap[i] = last;
    return true;
}

void echi_events_free(struct echi_events *e) {
    if (e->heap) e->supply.resize(e->supply.self, e->heap, 0);
    *e = (struct echi_events){.supply = e->supply};
}
