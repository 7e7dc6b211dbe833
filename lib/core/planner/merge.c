/* SPDX-License-Identifier: Apache-2.0
 * Optimal merging, by dynamic programming from the last piece to the first: what comes after a message is the better the sooner it has left
 * each stage, whatever it was before, so of the ways to cut the pieces behind it only those count that no other beats at both stages. */
#include "echi_merge.h"

#define NEVER 1e300
/* Sums of the same terms in another order differ by less, and are not two ways. */
#define ALIKE (1 + 1e-12)

static double later(double a, double b) { return a > b ? a : b; }

/* Keeps a way unless another is as good; those that it beats are forgotten, and of too many the one that is through the last. */
static void add(struct echi_merge_way *ways, uint16_t *count, struct echi_merge_way way) {
    uint16_t kept = 0, latest = 0;
    for (int i = 0; i < *count; i++)
        if (ways[i].free[0] <= way.free[0] * ALIKE && ways[i].free[1] <= way.free[1] * ALIKE) return;
    for (int i = 0; i < *count; i++)
        if (ways[i].free[0] < way.free[0] || ways[i].free[1] < way.free[1]) ways[kept++] = ways[i];
    *count = kept;
    if (kept < ECHI_MERGE_WAYS) {
        ways[(*count)++] = way;
        return;
    }
    for (uint16_t i = 1; i < kept; i++)
        if (ways[i].free[1] > ways[latest].free[1]) latest = i;
    if (way.free[1] < ways[latest].free[1]) ways[latest] = way;
}

/* No message that begins with this piece or before it needs a stage sooner than this: a way by which it is free earlier is as good as one
 * by which it is free then. Before piece 0 nothing comes, and of stages but the last it does not matter when they are free. */
static void soonest_of(const struct echi_merge_piece *piece, int i, const struct echi_merge_stage *stage, double out[ECHI_MERGE_STAGES]) {
    out[0] = i < 0 ? NEVER : piece[i].ready;
    out[1] = i < 0 ? 0 : piece[i].ready + stage[0].message + stage[0].param * piece[i].params;
}

/* All messages that may begin with piece i, each before all that is worth going on from. */
static void cut_at(const struct echi_merge_piece *piece, int i, int count, const struct echi_merge_stage *stage,
                   struct echi_merge_work *work) {
    double params = 0, soonest[ECHI_MERGE_STAGES];
    work->ways[i] = 0;
    soonest_of(piece, i - 1, stage, soonest);
    for (int next = i + 1; next <= count; next++) {
        params += piece[next - 1].params;
        for (uint16_t rest = 0; rest < work->ways[next]; rest++) {
            const double *before = work->way[next][rest].free;
            const double first = later(before[0], piece[i].ready) + stage[0].message + stage[0].param * params;
            const double second = later(before[1], first) + stage[1].message + stage[1].param * params;
            const struct echi_merge_way way = {{later(first, soonest[0]), later(second, soonest[1])}, (uint16_t)next, rest};
            add(work->way[i], &work->ways[i], way);
        }
    }
}

double echi_merge(const struct echi_merge_piece *piece, int count, const struct echi_merge_stage stage[ECHI_MERGE_STAGES],
                  struct echi_merge_work *work, bool *out_begins) {
    uint16_t best = 0;
    work->ways[count] = 1;
    work->way[count][0] = (struct echi_merge_way){{0, 0}, 0, 0};
    for (int i = count - 1; i >= 0; i--) cut_at(piece, i, count, stage, work);
    for (uint16_t k = 1; k < work->ways[0]; k++)
        if (work->way[0][k].free[1] < work->way[0][best].free[1]) best = k;
    const double through = work->way[0][best].free[1];
    for (int i = 0; i < count; i++) out_begins[i] = false;
    for (int i = 0; i < count;) {
        const struct echi_merge_way *way = &work->way[i][best];
        out_begins[i] = true;
        best = way->rest;
        i = way->next;
    }
    return through;
}
