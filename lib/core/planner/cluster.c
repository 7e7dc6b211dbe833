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

/* best[i]: least cost of cutting the first i values into so many runs; cut[g - 2][i]: where the last of g runs begins. */
struct cuts { double best[ECHI_WORLD_MAX + 1]; uint16_t cut[ECHI_GROUPS_MAX - 1][ECHI_WORLD_MAX + 1]; };

static void one_run(struct cuts *c, const double *value, int count) {
    struct run all = {0};
    c->best[0] = 0;
    for (int i = 1; i <= count; i++) {
        take(&all, value[i - 1]);
        c->best[i] = spread(&all);
    }
}

/* Into `runs` of them, from what is known of one run less. */
static void one_run_more(struct cuts *c, const double *value, int count, int runs) {
    for (int i = count; i >= runs; i--) {   /* downwards: those below i still count one run less */
        struct run last = {0};
        double best = -1;
        for (int from = i - 1; from >= runs - 1; from--) {   /* of cuts that cost the same, the first */
            take(&last, value[from]);
            const double own = spread(&last), cost = c->best[from] + own;
            if (best >= 0 && own > best * (1 + ROUNDING)) break;   /* and longer runs spread more, but for rounding */
            if (best >= 0 && cost > best) continue;
            best = cost;
            c->cut[runs - 2][i] = (uint16_t)from;
        }
        c->best[i] = best;
    }
}

static void groups_of(const struct cuts *c, int count, int groups, int *out_group) {
    for (int g = groups, end = count; g >= 1; g--) {
        const int from = g > 1 ? c->cut[g - 2][end] : 0;
        for (int i = from; i < end; i++) out_group[i] = g - 1;
        end = from;
    }
}

static bool all_tight(const double *value, int count, double ratio, const int *group) {
    for (int i = 0, first = 0; i < count; i++) {
        if (group[i] != group[first]) first = i;
        if (value[i] > ratio * value[first]) return false;
    }
    return true;
}

static int least_of(int a, int b, int c) { return a < b ? (a < c ? a : c) : b < c ? b : c; }

void echi_cluster(const double *value, int count, int groups, int *out_group) {
    struct cuts c;
    const int most = least_of(groups, count, ECHI_GROUPS_MAX);
    one_run(&c, value, count);
    for (int g = 2; g <= most; g++) one_run_more(&c, value, count, g);
    groups_of(&c, count, most, out_group);
}

int echi_cluster_auto(const double *value, int count, double ratio, int most, int *out_group) {
    struct cuts c;
    most = least_of(most, count, ECHI_GROUPS_MAX);
    one_run(&c, value, count);
    for (int groups = 1;; groups++) {
        groups_of(&c, count, groups, out_group);
        if (groups >= most || all_tight(value, count, ratio, out_group)) return groups;
        one_run_more(&c, value, count, groups + 1);
    }
}
