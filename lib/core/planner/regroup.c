/* SPDX-License-Identifier: Apache-2.0
 * When to regroup: a worker's step time against those of its group, with a delay, a gain and a pause so that nothing short-lived and
 * no jitter moves anybody. */
#include "echi_regroup.h"

#include <string.h>

#define WINDOWS (ECHI_REGROUP_LASTING / ECHI_SPEED_STEPS)
#define CLEARLY 0.02   /* another worker's move must be better by so much than that of the one which is looked at */

void echi_regroup_init(struct echi_regroup *g, int world, int64_t after) {
    g->after = (double)after;
    memset(g->sum, 0, sizeof g->sum);
    memset(g->count, 0, sizeof g->count);
    memset(g->pace, 0, (size_t)world * sizeof g->pace[0]);
}

double echi_regroup_time(const struct echi_regroup *g, int rank) { return g->pace[rank].compute.average + g->pace[rank].exchange.average; }

double echi_regroup_computes(const struct echi_regroup *g, int rank) { return g->pace[rank].compute.average * 1e-9; }

static bool counts(const struct echi_regroup *g, const struct echi_plan *p, int rank) {
    return !p->lost[rank] && p->group_of[rank] != ECHI_NONE && echi_speed_known(&g->pace[rank].compute);
}

/* Nothing is known of it that is unlike its group. */
static void be_alike(struct echi_regroup *g, int rank) {
    g->pace[rank].apart = 0;
    g->pace[rank].apart_time = 0;
}

void echi_regroup_anew(struct echi_regroup *g, const struct echi_plan *p) {
    memset(g->sum, 0, sizeof g->sum);
    memset(g->count, 0, sizeof g->count);
    for (int r = 0; r < p->world; r++) {
        be_alike(g, r);
        if (!counts(g, p, r)) continue;
        g->sum[p->group_of[r]] += echi_regroup_time(g, r);
        g->count[p->group_of[r]]++;
    }
}

/* Of each group: samples that its workers' steps have, and the longest two step times. In a group nobody goes faster for long than its
 * slowest (SSP's bound), so it comes to samples / longest. */
struct totals { double samples[ECHI_GROUPS_MAX], longest[ECHI_GROUPS_MAX], second[ECHI_GROUPS_MAX]; };

static struct totals add_up(const struct echi_regroup *g, const struct echi_plan *p, const uint32_t *size) {
    struct totals t = {{0}, {0}, {0}};
    for (int r = 0; r < p->world; r++) {
        if (!counts(g, p, r)) continue;
        const int group = p->group_of[r];
        const double time = echi_regroup_time(g, r);
        t.samples[group] += size[r];
        if (time > t.longest[group]) {
            t.second[group] = t.longest[group];
            t.longest[group] = time;
        } else if (time > t.second[group]) {
            t.second[group] = time;
        }
    }
    return t;
}

static double rate_of(double samples, double time) { return samples > 0 && time > 0 ? samples / time : 0; }

/* Samples a nanosecond that all groups come to with worker `rank`, of this step time and size, in group `to` instead of `from`. */
static double rate_with(const struct echi_plan *p, const struct totals *t, double time, uint32_t size, int from, int to) {
    double rate = 0;
    for (int g = 0; g < p->n_groups; g++) {
        const bool leaves = g == from && from != to, joins = g == to && from != to;
        const double rest = leaves && time >= t->longest[g] ? t->second[g] : t->longest[g];
        rate += rate_of(t->samples[g] + (joins ? size : 0) - (leaves ? size : 0), joins && time > rest ? time : rest);
    }
    return rate;
}

static bool keeps_up(double own, double others) { return own <= ECHI_REGROUP_RATIO * others; }
static bool unlike(double own, double others) { return own > ECHI_REGROUP_RATIO * others || others > ECHI_REGROUP_RATIO * own; }

/* The middle one of the step times of the others of its group, of two the nearer to its own: a single slow one there makes nobody else
 * fast, nor a single fast one anybody slow. */
static double usual_time(const struct echi_regroup *g, const struct echi_plan *p, int rank) {
    double sorted[ECHI_WORLD_MAX];
    int count = 0;
    for (int r = 0; r < p->world; r++) {
        if (r == rank || p->group_of[r] != p->group_of[rank] || !counts(g, p, r)) continue;
        const double value = echi_regroup_time(g, r);
        int at = count++;
        for (; at > 0 && sorted[at - 1] > value; at--) sorted[at] = sorted[at - 1];
        sorted[at] = value;
    }
    const double low = sorted[(count - 1) / 2], high = sorted[count / 2], own = echi_regroup_time(g, rank);
    return own * own < low * high ? low : high;
}

/* The longest of the other groups' mean step times; 0: none is known. */
static double slowest_mean(const struct echi_regroup *g, const struct echi_plan *p) {
    double longest = 0;
    for (int i = 0; i < p->n_groups - p->reserve; i++)
        if (g->count[i] > 0 && g->sum[i] / g->count[i] > longest) longest = g->sum[i] / g->count[i];
    return longest;
}

/* The best move of one worker out of this one's group, by predicted throughput: of itself, or of another that has been unlike its group
 * for as long and is clearly better moved, as one that slows two fast ones down. The reserve, one group more that exchanges states, is
 * for who falls behind, and must be worth so much more than any other. */
static struct echi_change best_move(const struct echi_regroup *g, const struct echi_plan *p, const uint32_t size[ECHI_WORLD_MAX],
                                    int rank) {
    const int from = p->group_of[rank], reserve = echi_plan_reserve(p);
    const struct totals t = add_up(g, p, size);
    const double now = rate_with(p, &t, 0, 0, from, from);
    struct echi_change best = {.rank = rank, .from = from, .gain = ECHI_REGROUP_GAIN};
    for (int i = 0; i < p->world; i++) {
        const int r = (rank + i) % p->world;   /* itself first */
        if (p->group_of[r] != from || !counts(g, p, r) || g->pace[r].cool > 0) continue;
        if (r != rank && g->pace[r].apart + 1 < WINDOWS) continue;   /* of many that are alike one is the slowest at any moment */
        for (int to = 0; to < p->n_groups; to++) {
            if (to == from || !echi_plan_group_lives(p, to) || (to != reserve && t.samples[to] == 0)) continue;
            if (to == reserve && echi_regroup_time(g, r) < usual_time(g, p, r)) continue;
            const double gain = rate_with(p, &t, echi_regroup_time(g, r), size[r], from, to) / now - 1;
            if (gain < best.gain + (r == rank ? 0 : CLEARLY) + (to == reserve ? ECHI_REGROUP_GAIN : 0)) continue;
            best = (struct echi_change){ECHI_CHANGE_GROUP, r, from, to, 0, echi_regroup_time(g, r) / usual_time(g, p, r), gain};
        }
    }
    return best;
}

/* From the reserve to the group where most samples a second are expected, unless the others lose more by it than a little. That this
 * one goes no faster than its group is no loss: it did not before it fell behind. */
static struct echi_change best_return(const struct echi_regroup *g, const struct echi_plan *p, const uint32_t size[ECHI_WORLD_MAX],
                                      int rank) {
    const int from = p->group_of[rank];
    const struct totals t = add_up(g, p, size);
    const bool alone = g->count[from] == 1;
    const double now = rate_with(p, &t, 0, 0, from, from), own = echi_regroup_time(g, rank);
    struct echi_change best = {.rank = rank, .from = from};
    double most = 0;
    for (int to = 0; to < p->n_groups; to++) {
        if (to == from || !echi_plan_group_lives(p, to) || t.samples[to] == 0) continue;
        const double ahead = alone && own < t.longest[to] ? rate_of(size[rank], own) - rate_of(size[rank], t.longest[to]) : 0;
        const double rate = rate_with(p, &t, own, size[rank], from, to), gain = rate / (now - ahead) - 1;
        if (gain < -ECHI_REGROUP_BACK || rate <= most) continue;
        most = rate;
        best = (struct echi_change){ECHI_CHANGE_GROUP, rank, from, to, 0, own * g->count[to] / g->sum[to], gain};
    }
    return best;
}

/* Where n is dealt by speed: the best size of this worker's steps, never more than there is room for, by how long steps of so many
 * samples took it when it was measured, against those that it has. */
static struct echi_change best_size(const struct echi_regroup *g, const struct echi_plan *p, const uint32_t size[ECHI_WORLD_MAX], int rank,
                                    const struct echi_times *times) {
    const int group = p->group_of[rank];
    const double compute = g->pace[rank].compute.average, exchange = g->pace[rank].exchange.average;
    const double now = echi_times_trunk(times, size[rank]);
    struct totals t = add_up(g, p, size);
    const double before = rate_with(p, &t, 0, 0, group, group), longest = t.longest[group];
    const double rest = echi_regroup_time(g, rank) >= longest ? t.second[group] : longest;
    struct echi_change best = {.rank = rank, .gain = ECHI_REGROUP_GAIN};
    for (uint32_t n = ECHI_REGROUP_BLOCK; n <= p->n[rank] && now > 0; n += ECHI_REGROUP_BLOCK) {
        const double time = compute * echi_times_trunk(times, n) / now + exchange;
        struct totals with = t;
        with.samples[group] += (double)n - size[rank];
        with.longest[group] = time > rest ? time : rest;
        const double gain = rate_with(p, &with, 0, 0, group, group) / before - 1;
        if (n == size[rank] || gain < best.gain) continue;
        best.kind = ECHI_CHANGE_SIZE;
        best.n = n;
        best.gain = gain;
    }
    return best;
}

struct echi_change echi_regroup_step(struct echi_regroup *g, const struct echi_plan *p, const uint32_t size[ECHI_WORLD_MAX], int rank,
                                     const struct echi_times *times, double compute, double exchange) {
    struct echi_change change = {.rank = rank};
    const int group = p->group_of[rank];
    const bool counted = counts(g, p, rank);
    const double before = echi_regroup_time(g, rank);
    if (g->pace[rank].cool > 0) g->pace[rank].cool--;
    echi_speed_add(&g->pace[rank].compute, compute);
    if (!echi_speed_add(&g->pace[rank].exchange, exchange) || !counts(g, p, rank)) return change;
    const double own = echi_regroup_time(g, rank);
    const double last = echi_speed_last(&g->pace[rank].compute) + echi_speed_last(&g->pace[rank].exchange);
    g->sum[group] += own - (counted ? before : 0);
    g->count[group] += !counted;
    if (g->pace[rank].cool > 0) return change;   /* too early */
    /* The others' mean costs nothing to keep; who is far from it for long is looked at closely, and in the reserve who keeps up with the
     * slowest other group. */
    const bool aside = group == echi_plan_reserve(p);
    const double mean = aside ? slowest_mean(g, p) : g->count[group] > 1 ? (g->sum[group] - own) / (g->count[group] - 1) : 0;
    if (mean <= 0) return change;   /* nobody to be unlike, or to keep up with */
    if (aside ? keeps_up(last, mean) : unlike(last, mean)) {
        g->pace[rank].apart++;
        g->pace[rank].apart_time += ECHI_SPEED_STEPS * (last > mean ? last : mean);   /* a fast one waits for its group */
    } else if (g->pace[rank].apart <= 1) {
        be_alike(g, rank);
    } else {
        g->pace[rank].apart--;
    }
    if (g->pace[rank].apart < WINDOWS || g->pace[rank].apart_time < g->after || !(aside ? keeps_up(own, mean) : unlike(own, mean)))
        return change;
    const double usual = aside ? mean : usual_time(g, p, rank);
    if (aside) {
        change = best_return(g, p, size, rank);
    } else if (unlike(own, usual)) {
        change = best_move(g, p, size, rank);
        const struct echi_change other = p->cut ? best_size(g, p, size, rank, times) : (struct echi_change){0};
        if (other.kind != ECHI_CHANGE_NONE && (change.kind == ECHI_CHANGE_NONE || other.gain + CLEARLY >= change.gain)) change = other;
        if (change.kind == ECHI_CHANGE_SIZE) change.ratio = own / usual;
    }
    if (change.kind == ECHI_CHANGE_NONE) be_alike(g, rank);   /* nothing to gain: to be looked at again after as many steps */
    return change;
}

static void leave_alone(struct echi_regroup *g, int rank, uint8_t changes) {
    g->pace[rank].cool = (uint32_t)ECHI_REGROUP_COOL << changes;
    g->pace[rank].changes = changes < ECHI_REGROUP_DOUBLED ? (uint8_t)(changes + 1) : changes;
}

/* Steps of another size take another time: what was known of the old ones is forgotten. */
void echi_regroup_done(struct echi_regroup *g, const struct echi_plan *p, const struct echi_change *change) {
    const uint8_t changes = g->pace[change->rank].changes;
    if (change->kind == ECHI_CHANGE_SIZE) memset(&g->pace[change->rank], 0, sizeof g->pace[change->rank]);
    leave_alone(g, change->rank, changes);
    echi_regroup_anew(g, p);
}

void echi_regroup_refused(struct echi_regroup *g, int rank) {
    leave_alone(g, rank, g->pace[rank].changes);
    be_alike(g, rank);
}
