/* SPDX-License-Identifier: Apache-2.0
 * Nodes that cannot reach each other: whom the run does without. Pure.
 *
 * Every node of a run talks to every other, so those that stay must all reach each other: among them no pair is broken. The ranks to
 * lose are therefore a vertex cover of the broken pairs, and the best is the one of least cost. */
#ifndef ECHI_REACH_H
#define ECHI_REACH_H
#include <stdint.h>

struct echi_pair { uint16_t a, b; };
/* All pairs of as many nodes as a live run has, at most: one more is refused by whoever keeps a list. */
#define ECHI_PAIRS_MAX 2016
/* Distinct ranks in one choice; pairs of further ones are left for the next. */
#define ECHI_REACH_RANKS 64

/* Writes the ranks to lose to out_lost, ascending, and returns how many: after that no pair is left (of the first ECHI_REACH_RANKS
 * distinct ranks), and the sum of cost[rank], each above 0, is the least. It is the least for certain with few pairs, and whenever the
 * search ends within its bound; else the best that was found, which is at most what greed finds: the node with the most pairs for its
 * cost, again and again. Equal costs: the higher rank is lost. */
int echi_reach_choose(const struct echi_pair *pair, int count, const uint32_t *cost, uint16_t out_lost[ECHI_REACH_RANKS]);
#endif
