/* SPDX-License-Identifier: Apache-2.0
 * Exact one-dimensional clustering of step times. */
#include "echi_planner.h"

/* Values that make up a run: how many, their mean, and the sum of their squared deviations from it (Welford, Technometrics 1962). */
struct run { int n; double mean, squares; };
static void take(struct run *r, double value) {
    const double off = value - r->mean;
    r->mean += off / ++r->n;
    r->squares += off * (value - r->mean);
}
/* Relative to the mean: groups of 10 ms and of 100 ms count alike. */
static double spread(const struct run *r) { return r->squares / (r->mean * r->mean); }

#define ROUNDING 1e-9

void echi_cluster(const double *value, int count, int groups, int *out_group) {
    /* best[i]: least cost of cutting the first i values into so many runs; cut[g - 2][i]: where the last of g runs begins. */
    double best[ECHI_WORLD_MAX + 1];
    uint16_t cut[ECHI_GROUPS_MAX - 1][ECHI_WORLD_MAX + 1];
    if (groups > count) groups = count;
    if (groups > ECHI_GROUPS_MAX) groups = ECHI_GROUPS_MAX;
    struct run all = {0};
    best[0] = 0;
    for (int i = 1; i <= count; i++) {
        take(&all, value[i - 1]);
        best[i] = spread(&all);
    }
    for (int g = 2; g <= groups; g++) {
        for (int i = count; i >= g; i--) {   /* downwards: those below i still count one run less */
            struct run last = {0};
            best[i] = -1;
            for (int from = i - 1; from >= g - 1; from--) {   /* of cuts that cost the same, the first */
                take(&last, value[from]);
                const double own = spread(&last), cost = best[from] + own;
                if (best[i] >= 0 && own > best[i] * (1 + ROUNDING)) break;   /* and longer runs spread more, but for rounding */
                if (best[i] >= 0 && cost > best[i]) continue;
                best[i] = cost;
                cut[g - 2][i] = (uint16_t)from;
            }
        }
    }
    for (int g = groups, end = count; g >= 1; g--) {
        int from = g > 1 ? cut[g - 2][end] : 0;
        for (int i = from; i < end; i++) out_group[i] = g - 1;
        end = from;
    }
}

int echi_cluster_auto(const double *value, int count, double ratio, int most, int *out_group) {
    if (most > count) most = count;
    for (int groups = 1;; groups++) {
        echi_cluster(value, count, groups, out_group);
        if (groups >= most) return groups;
        bool tight = true;
        for (int i = 0, first = 0; i < count; i++) {
            if (out_group[i] != out_group[first]) first = i;
            if (value[i] > ratio * value[first]) tight = false;
        }
        if (tight) return groups;
    }
}
