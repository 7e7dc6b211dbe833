/* SPDX-License-Identifier: Apache-2.0
 * A vertex cover of least cost: branch and bound on the node with the most broken pairs. */
#include "echi_reach.h"

/* Branches that are looked at, at most: a second of searching would hold up the run for longer than a node more is worth. */
#define BRANCHES_MAX 20000

struct search {
    int ranks, branches;
    uint16_t rank[ECHI_REACH_RANKS];        /* ascending */
    uint32_t cost[ECHI_REACH_RANKS];
    uint64_t pairs[ECHI_REACH_RANKS];       /* bit per node at the other end */
    uint64_t best_set, best_cost;
};

static int count_bits(uint64_t bits) {
    int count = 0;
    for (; bits; bits &= bits - 1) count++;
    return count;
}

/* Of the nodes `in`, the one with the most pairs among them for its cost; -1: no pair is left. */
static int densest(const struct search *s, uint64_t in) {
    int best = -1, best_pairs = 0;
    for (int i = s->ranks - 1; i >= 0; i--) {
        const int pairs = in >> i & 1 ? count_bits(s->pairs[i] & in) : 0;
        if (pairs == 0) continue;
        if (best < 0 || (uint64_t)pairs * s->cost[best] > (uint64_t)best_pairs * s->cost[i]) best = i, best_pairs = pairs;
    }
    return best;
}

/* Nodes `lost` are lost already, at that cost, and `in` are left. The first descent is greed's choice. */
static void descend(struct search *s, uint64_t in, uint64_t lost, uint64_t cost) {
    if (cost >= s->best_cost) return;
    const int at = densest(s, in);
    if (at < 0) {
        s->best_set = lost;
        s->best_cost = cost;
        return;
    }
    const uint64_t one = UINT64_C(1) << at, others = s->pairs[at] & in;
    descend(s, in & ~one, lost | one, cost + s->cost[at]);
    if (++s->branches > BRANCHES_MAX) return;
    /* It stays: then all go that it cannot reach. */
    for (int i = 0; i < s->ranks; i++) cost += others >> i & 1 ? s->cost[i] : 0;
    descend(s, in & ~one & ~others, lost | others, cost);
}

static int find(const struct search *s, uint16_t rank) {
    for (int i = 0; i < s->ranks; i++)
        if (s->rank[i] == rank) return i;
    return -1;
}

static void add(struct search *s, uint16_t rank) {
    if (find(s, rank) >= 0) return;
    int at = s->ranks++;
    for (; at > 0 && s->rank[at - 1] > rank; at--) s->rank[at] = s->rank[at - 1];
    s->rank[at] = rank;
}

int echi_reach_choose(const struct echi_pair *pair, int count, const uint32_t *cost, uint16_t out_lost[ECHI_REACH_RANKS]) {
    struct search s = {.best_cost = UINT64_MAX};
    int lost = 0;
    for (int i = 0; i < count; i++) {
        if (s.ranks + (find(&s, pair[i].a) < 0) + (find(&s, pair[i].b) < 0) > ECHI_REACH_RANKS) continue;
        add(&s, pair[i].a);
        add(&s, pair[i].b);
    }
    for (int i = 0; i < s.ranks; i++) s.cost[i] = cost[s.rank[i]];
    for (int i = 0; i < count; i++) {
        const int a = find(&s, pair[i].a), b = find(&s, pair[i].b);
        if (a < 0 || b < 0 || a == b) continue;
        s.pairs[a] |= UINT64_C(1) << b;
        s.pairs[b] |= UINT64_C(1) << a;
    }
    descend(&s, s.ranks == 64 ? UINT64_MAX : (UINT64_C(1) << s.ranks) - 1, 0, 0);
    for (int i = 0; i < s.ranks; i++)
        if (s.best_set >> i & 1) out_lost[lost++] = s.rank[i];
    return lost;
}
