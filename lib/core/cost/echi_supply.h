/* SPDX-License-Identifier: Apache-2.0
 * Where memory comes from: the caller's, since lib/core has none. A simulator gives the heap, a planner a block of its own. */
#ifndef ECHI_SUPPLY_H
#define ECHI_SUPPLY_H
#include <stddef.h>

/* As realloc: a block of that size, aligned for anything, with the contents of `block` (NULL: a new one); NULL when there is none, and
 * `block` stays. Size 0 gives `block` back. */
struct echi_supply { void *(*resize)(void *self, void *block, size_t size); void *self; };
#endif
