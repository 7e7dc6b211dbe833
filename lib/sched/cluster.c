/* SPDX-License-Identifier: Apache-2.0
 * Exact one-dimensional clustering of step times. */
#include "echi_planner.h"

/* Squared relative deviation of value[from..to) from its mean: groups of 10 ms and of 100 ms count alike. */
static double spread(const double *value, int from, int to) {
    double sum = 0;
    for (int i = from; i < to; i++) sum += value[i];
    double mean = sum / (to - from), cost = 0;
    for (int i = from; i < to; i++) cost += (value[i] / mean - 1) * (value[i] / mean - 1);
    return cost;
}

void echi_cluster(const double *value, int count, int groups, int *out_group) {
    /* best[g][i]: least cost of cutting the first i values into g runs; cut[g][i]: where the last of them begins. */
    double best[ECHI_GROUPS_MAX + 1][ECHI_WORLD_MAX + 1];
    int cut[ECHI_GROUPS_MAX + 1][ECHI_WORLD_MAX + 1];
    if (groups > count) groups = count;
    if (groups > ECHI_GROUPS_MAX) groups = ECHI_GROUPS_MAX;
    for (int i = 1; i <= count; i++) {
        best[1][i] = spread(value, 0, i);
        cut[1][i] = 0;
    }
    for (int g = 2; g <= groups; g++)
        for (int i = g; i <= count; i++) {
            best[g][i] = -1;
            for (int from = g - 1; from < i; from++) {
                double cost = best[g - 1][from] + spread(value, from, i);
                if (best[g][i] < 0 || cost < best[g][i]) {
                    best[g][i] = cost;
                    cut[g][i] = from;
                }
            }
        }
    for (int g = groups, end = count; g >= 1; g--) {
        int from = cut[g][end];
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
