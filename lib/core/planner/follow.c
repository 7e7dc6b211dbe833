/* SPDX-License-Identifier: Apache-2.0
 * GDTopK's ratios, set anew while a run goes. */
#include "echi_follow.h"

#include <stddef.h>
#include <string.h>

#define CHECKS 30   /* while a change lasts */

void echi_follow_init(struct echi_follow *f, int world) {
    memset(f, 0, offsetof(struct echi_follow, host));
    memset(f->host, 0, (size_t)world * sizeof f->host[0]);
}

void echi_follow_step(struct echi_follow *f, int rank, double compute, double rest) {
    echi_speed_add(&f->host[rank].computes, compute);
    echi_speed_add(&f->host[rank].iterates, compute + rest);
}

void echi_follow_stretch(struct echi_follow *f, int rank, double stretch) {
    f->host[rank].stretches += stretch / ECHI_STRETCH_STEPS;
    if (++f->host[rank].steps < ECHI_STRETCH_STEPS) return;
    echi_speed_add(&f->host[rank].stretch, f->host[rank].stretches);
    f->host[rank].stretches = 0;
    f->host[rank].steps = 0;
    if (f->host[rank].first == 0 && echi_speed_known(&f->host[rank].stretch)) f->host[rank].first = f->host[rank].stretch.average;
}

double echi_follow_slower(const struct echi_follow *f, int rank) {
    const double was = f->host[rank].was > 0 ? f->host[rank].was : 1;
    return f->host[rank].first > 0 ? was * f->host[rank].stretch.average / f->host[rank].first : was;
}

static void begin_anew(struct echi_follow *f, int rank, double was) {
    f->host[rank].stretch = (struct echi_speed){0};
    f->host[rank].stretches = f->host[rank].first = 0;
    f->host[rank].steps = 0;
    f->host[rank].was = was;
}

void echi_follow_moved(struct echi_follow *f, int from, int to, double slower) {
    begin_anew(f, from, slower);
    begin_anew(f, to, 0);
}

struct echi_link echi_follow_link(const struct echi_follow *f, const struct echi_times times[ECHI_WORLD_MAX], int rank) {
    const struct echi_rate out = echi_seen_rate(&f->host[rank].out), in = echi_seen_rate(&f->host[rank].in);
    return (struct echi_link){out.rate > 0 ? out : times[rank].link.out, in.rate > 0 ? in : times[rank].link.in};
}

/* The owner's way out goes to all of its workers at once, and each of them says what it got of it: less than the link carries. What a
 * worker lacks of it is in that worker's way in. */
static double link_of(const struct echi_follow *f, const struct echi_plan *plan, const struct echi_times *times, int rank) {
    struct echi_link link = echi_follow_link(f, times, rank);
    if (echi_plan_group_owned(plan, rank) >= 0) link.out = times[rank].link.out;
    return echi_link_slower(&link);
}

/* seen: by what was seen; else by what was measured before the run, as the plan was made. */
static struct echi_pace pace_of(const struct echi_follow *f, bool seen, const struct echi_plan *plan, const struct echi_times *times,
                                const uint32_t *size, int group) {
    struct echi_pace p = {0};
    int members = 0, iterate = 0;
    for (int r = 0; r < plan->world; r++) {
        if (plan->group_of[r] != group || plan->lost[r]) continue;
        const struct echi_speed *computes = &f->host[r].computes, *iterates = &f->host[r].iterates;
        const double link = seen ? link_of(f, plan, times, r) : echi_link_slower(&times[r].link);
        const double planned = echi_times_step(&times[r], plan->cut, size[r]);
        p.seconds += seen && echi_speed_known(computes) ? computes->average * 1e-9 : planned;
        if (seen && echi_speed_known(iterates)) {
            p.iteration += iterates->average * 1e-9;
            iterate++;
        }
        if (members++ == 0 || link < p.link) p.link = link;
    }
    p.seconds /= members ? members : 1;
    p.iteration = iterate && iterate == members ? p.iteration / members : 0;
    return p;
}

static double change(double was, double is) { return was > 0 && is > 0 ? (is > was ? is / was : was / is) : 1; }

static void explain(struct echi_follow *f, const struct echi_pace *now, const int *group, int count, struct echi_ratio_change *out) {
    double most = 0;
    for (int i = 0; i < count; i++) {
        const struct echi_pace *was = &f->set[group[i]], *is = &now[i];
        const double links = change(was->link, is->link), steps = change(was->seconds, is->seconds);
        const bool by_link = links >= steps;
        if ((by_link ? links : steps) <= most) continue;
        most = by_link ? links : steps;
        out->group = group[i];
        out->by_link = by_link;
        out->was = by_link ? was->link : was->seconds;
        out->is = by_link ? is->link : is->seconds;
    }
}

/* Is any of them so far off that others are due? */
static bool far_off(const uint32_t *base, const uint32_t *wanted, const int *group, int count) {
    for (int i = 0; i < count; i++) {
        const double off = (double)wanted[i] - base[group[i]], most = ECHI_RATIOS_CHANGE * base[group[i]];
        if (off >= most || -off >= most) return true;
    }
    return false;
}

/* A reserve without workers has the base of the slowest, as in the plan. */
static void set(struct echi_plan *plan, const uint32_t *wanted, const int *group, int count) {
    const int reserve = echi_plan_reserve(plan);
    for (int i = 0; i < count; i++) plan->base[group[i]] = wanted[i];
    if (reserve >= 0 && echi_plan_workers(plan, reserve) == 0) plan->base[reserve] = wanted[count - 1];
}

bool echi_follow_ratios(struct echi_follow *f, struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                        const uint32_t size[ECHI_WORLD_MAX], uint64_t params, int64_t after, int64_t now) {
    struct echi_pace pace[ECHI_GROUPS_MAX];
    uint32_t wanted[ECHI_GROUPS_MAX];
    int group[ECHI_GROUPS_MAX], count = 0;
    if (f->begun && now - f->checked < after / CHECKS) return false;
    f->checked = now;
    for (int g = 0; g < plan->n_groups; g++) {
        if (!echi_plan_group_lives(plan, g) || echi_plan_workers(plan, g) == 0) continue;
        pace[count] = pace_of(f, true, plan, times, size, g);
        if (!f->begun) f->set[g] = pace_of(f, false, plan, times, size, g);
        group[count++] = g;
    }
    f->begun = true;
    if (count == 0) return false;
    echi_ratios_bases((enum echi_ratios)plan->ratios, params, pace, count, wanted);
    if (!far_off(plan->base, wanted, group, count)) return f->due = false;
    if (!f->due) f->due_since = now;
    f->due = true;
    if (now - f->due_since < after) return false;
    f->due = false;
    f->changes++;
    f->last = (struct echi_ratio_change){.at = now};
    memcpy(f->last.base, plan->base, sizeof f->last.base);
    explain(f, pace, group, count, &f->last);
    set(plan, wanted, group, count);
    for (int i = 0; i < count; i++) f->set[group[i]] = pace[i];
    return true;
}
