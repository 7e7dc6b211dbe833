/* SPDX-License-Identifier: Apache-2.0
 * What is due, and when: the queue that virtual time comes from. Of things due at the same moment the one that was added first
 * comes first, so that nothing but what was added decides. */
#ifndef ECHI_EVENTS_H
#define ECHI_EVENTS_H
#include "echi_supply.h"

#include <stdbool.h>
#include <stdint.h>

struct echi_due {
    int64_t at;               /* virtual nanoseconds */
    uint64_t order;           /* how many were added before it */
    uint32_t kind, who;       /* these and the next are the caller's */
    uint64_t what;
};
/* A heap of arity 4 in one array: half as deep as one of 2, and two of the four lie in one line of the cache. Zeroed but for its supply it
 * is empty. */
struct echi_events { struct echi_due *heap; size_t count, room; uint64_t added; struct echi_supply supply; };
/* False when there is no memory; then nothing has changed. */
bool echi_events_add(struct echi_events *events, int64_t at, uint32_t kind, uint32_t who, uint64_t what);
/* Takes out what is due first. False when there is nothing. */
bool echi_events_take(struct echi_events *events, struct echi_due *out);
static inline const struct echi_due *echi_events_first(const struct echi_events *events) { return events->count ? events->heap : NULL; }
void echi_events_free(struct echi_events *events);
#endif
