/* SPDX-License-Identifier: Apache-2.0
 * Other rules to merge a step's gradients into messages than echi_merge.h's: what test_merge and bench_merge compare it with. A rule sets
 * cut[i] where a message begins with piece i; cut[0] is always set. */
#ifndef MERGE_RULES_H
#define MERGE_RULES_H
#include "echi_merge.h"

#include <math.h>

/* When the last message of this cut is through. */
static inline double merge_through(const struct echi_merge_piece *piece, int count, const struct echi_merge_costs *costs, const bool *cut) {
    const struct echi_merge_stage *stage = costs->stage;
    double first = 0, second = 0, params = 0, delay = 0;
    for (int i = count - 1; i >= 0; i--) {
        params += piece[i].params;
        if (!cut[i]) continue;
        first = fmax(first, piece[i].ready + delay) + stage[0].message + stage[0].param * params;
        second = fmax(second, first) + stage[1].message + stage[1].param * params;
        delay += costs->compute.message + costs->compute.param * params;
        params = 0;
    }
    return second;
}

/* The rule of MG-WFBP's published program: from the last layer on, each is merged into the one before it where that is ready while the
 * message is sent, and sooner than a message alone would take. It knows one stage. */
static inline void merge_greedy(const struct echi_merge_piece *piece, int count, const struct echi_merge_stage *stage, bool *cut) {
    double params[ECHI_PARTS_MAX], takes[ECHI_PARTS_MAX], leaves[ECHI_PARTS_MAX];
    for (int i = 0; i < count; i++) {
        params[i] = piece[i].params;
        takes[i] = stage->message + stage->param * params[i];
        cut[i] = true;
    }
    for (int i = count - 1; i > 0; i--) {
        for (int k = count - 1; k >= 0; k--) leaves[k] = fmax(piece[k].ready, k == count - 1 ? 0 : leaves[k + 1] + takes[k + 1]);
        const double next = piece[i - 1].ready;
        if (!(next < leaves[i] + takes[i] && (leaves[i] > next || next - leaves[i] < stage->message))) continue;
        params[i - 1] += params[i];
        takes[i - 1] = stage->message + stage->param * params[i - 1];
        params[i] = takes[i] = 0;
        cut[i] = false;
    }
}

/* As DDP has it: the layer that fills a bucket is its last. `first`: parameters of the bucket that leaves first, which is smaller there. */
static inline void merge_buckets(const struct echi_merge_piece *piece, int count, double first, double size, bool *cut) {
    double params = 0, limit = first;
    for (int i = count - 1; i >= 0; i--) {
        params += piece[i].params;
        cut[i] = i == 0 || params >= limit;
        if (!cut[i]) continue;
        params = 0;
        limit = size;
    }
}
#endif
