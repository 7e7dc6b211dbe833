/* SPDX-License-Identifier: Apache-2.0
 * A set of ranks. The next one is found in a few steps however large the world, so that a role which looks for those few that wait
 * for something need not ask all. */
#ifndef ECHI_RANKS_H
#define ECHI_RANKS_H
#include "echi_limits.h"

#define ECHI_RANKS_WORDS (ECHI_WORLD_MAX / 64)
struct echi_ranks { uint64_t word[ECHI_RANKS_WORDS]; };

static inline void echi_ranks_add(struct echi_ranks *s, int rank) { s->word[rank / 64] |= UINT64_C(1) << rank % 64; }
static inline void echi_ranks_drop(struct echi_ranks *s, int rank) { s->word[rank / 64] &= ~(UINT64_C(1) << rank % 64); }
static inline bool echi_ranks_has(const struct echi_ranks *s, int rank) { return s->word[rank / 64] >> rank % 64 & 1; }

/* The first of the set that is not below `from`; -1: none. */
static inline int echi_ranks_next(const struct echi_ranks *s, int from) {
    if (from >= ECHI_WORLD_MAX) return -1;
    uint64_t word = s->word[from / 64] & UINT64_MAX << from % 64;
    for (int i = from / 64;; word = s->word[i]) {
        if (word) return 64 * i + __builtin_ctzll(word);
        if (++i == ECHI_RANKS_WORDS) return -1;
    }
}

/* The same, of those that are not in `but`. */
static inline int echi_ranks_next_but(const struct echi_ranks *s, const struct echi_ranks *but, int from) {
    if (from >= ECHI_WORLD_MAX) return -1;
    uint64_t most = UINT64_MAX << from % 64;
    for (int i = from / 64; i < ECHI_RANKS_WORDS; i++, most = UINT64_MAX) {
        const uint64_t word = s->word[i] & ~but->word[i] & most;
        if (word) return 64 * i + __builtin_ctzll(word);
    }
    return -1;
}

/* All of `from` are in `to` as well. */
static inline void echi_ranks_join(struct echi_ranks *to, const struct echi_ranks *from) {
    for (int i = 0; i < ECHI_RANKS_WORDS; i++) to->word[i] |= from->word[i];
}
#endif
