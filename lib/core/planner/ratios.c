/* SPDX-License-Identifier: Apache-2.0
 * The base of each group for the codec's ratios (../cost/ratio.c has the rules), once groups and samples are settled. */
#include "echi_planner.h"
#include "echi_ratio.h"

/* balanced: between them a push has 3 to 24 % of a dense one's bytes; T* is what an iteration takes at the middle one. */
#define LEAST 4000u
#define MIDDLE 10000u
#define MOST 30000u
#define VALUE_BYTES 8.0       /* a value and its place */
#define USUAL_LINK 125e6      /* bytes a second (1 Gb/s), where nobody says */

/* volume: of the fastest, the middle and the slowest group. */
static const uint32_t volume[3] = {250000, 200000, 150000};

/* What a group is like: its members' mean time of a step, and the slowest of their links, bytes a second (0: not known). */
struct group { double seconds, link; };

static struct group look(const struct echi_times *times, const struct echi_plan *plan, int group) {
    struct group g = {0};
    int members = 0;
    for (int r = 0; r < plan->world; r++) {
        if (plan->group_of[r] != group) continue;
        const struct echi_times *t = &times[r];
        g.seconds += plan->separated ? echi_times_trunk(t, plan->n[r]) : echi_times_whole(t, plan->n[r]);
        const double link = echi_link_slower(&t->link);
        if (members++ == 0 || link < g.link) g.link = link;
    }
    if (members) g.seconds /= members;
    return g;
}

/* 0: the fastest, 2: the slowest, 1: between them; by links where all are known, else by the order of groups. */
static int place_of(const struct group *group, int count, int which, bool by_link) {
    if (count == 1) return 1;
    bool fastest = which == 0, slowest = which == count - 1;
    if (by_link) {
        fastest = slowest = true;
        for (int g = 0; g < count; g++) {
            fastest = fastest && group[g].link <= group[which].link;
            slowest = slowest && group[g].link >= group[which].link;
        }
    }
    return fastest && slowest ? 1 : fastest ? 0 : slowest ? 2 : 1;
}

/* Seconds of an iteration beside the push: the step, and the weights that answer it. */
static double beside_push(const struct group *g, uint64_t params) {
    return g->seconds + (double)echi_coded_bytes(params, ECHI_RATIO_STATES) / g->link;
}

static uint32_t balance(double target, const struct group *g, uint64_t params) {
    const double ratio = (target - beside_push(g, params)) * g->link / (VALUE_BYTES * (double)params) * ECHI_RATIO_ONE;
    return ratio < LEAST ? LEAST : ratio > MOST ? MOST : (uint32_t)ratio;
}

void echi_ratios_plan(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
    struct group group[ECHI_GROUPS_MAX];
    double whole[ECHI_GROUPS_MAX];   /* an iteration at the middle ratio, ascending */
    bool by_link = true;
    if (w->codec == ECHI_CODEC_DENSE) return;
    plan->codec = (uint8_t)w->codec;
    plan->ratios = (uint8_t)w->ratios;
    plan->state_ratio = ECHI_RATIO_STATES;
    const uint64_t sent = plan->separated ? w->trunk_params : w->params, params = sent ? sent : 1;
    for (int g = 0; g < plan->n_groups; g++) {
        group[g] = look(times, plan, g);
        by_link = by_link && group[g].link > 0;
    }
    for (int g = 0; g < plan->n_groups; g++) {
        if (!by_link) group[g].link = USUAL_LINK;
        const double own = beside_push(&group[g], params) + VALUE_BYTES * (double)params * MIDDLE / ECHI_RATIO_ONE / group[g].link;
        int at = g;
        for (; at > 0 && whole[at - 1] > own; at--) whole[at] = whole[at - 1];
        whole[at] = own;
    }
    for (int g = 0; g < plan->n_groups; g++) {
        const int place = place_of(group, plan->n_groups, g, by_link && w->ratios == ECHI_RATIOS_VOLUME);
        plan->base[g] = w->ratios == ECHI_RATIOS_PAPER    ? echi_paper_ratio[place].base
                        : w->ratios == ECHI_RATIOS_VOLUME ? volume[place]
                                                          : balance(whole[plan->n_groups / 2], &group[g], params);
    }
}
