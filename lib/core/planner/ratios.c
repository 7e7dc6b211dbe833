/* SPDX-License-Identifier: Apache-2.0
 * The base of each group for the codec's ratios (../cost/ratio.c has the rules), once groups and samples are settled. */
#include "echi_follow.h"
#include "echi_ratio.h"

/* balanced: between them a push has 3 to 24 % of a dense one's bytes; T* is what an iteration takes at the middle one. */
#define LEAST 4000u
#define MIDDLE 10000u
#define MOST 30000u
#define VALUE_BYTES 8.0       /* a value and its place */
#define USUAL_LINK 125e6      /* bytes a second (1 Gb/s), where nobody says */

/* volume: of the fastest, the middle and the slowest group. */
static const uint32_t volume[3] = {250000, 200000, 150000};

static struct echi_pace pace_of(const struct echi_times *times, const struct echi_plan *plan, int group) {
    struct echi_pace g = {0};
    int members = 0;
    for (int r = 0; r < plan->world; r++) {
        if (plan->group_of[r] != group) continue;
        const struct echi_times *t = &times[r];
        g.seconds += plan->cut ? echi_times_trunk(t, plan->n[r]) : echi_times_whole(t, plan->n[r]);
        const double link = echi_link_slower(&t->link);
        if (members++ == 0 || link < g.link) g.link = link;
    }
    if (members) g.seconds /= members;
    return g;
}

/* By what groups are faster than others: links, where these count, and all are known; else how often they push, as far as that is known;
 * else the order of their numbers. */
enum by { BY_LINK, BY_ITERATION, BY_NUMBER };
static double speed_of(const struct echi_pace *pace, int which, enum by by) {
    return by == BY_LINK ? pace[which].link : by == BY_ITERATION ? 1 / pace[which].iteration : -which;
}

/* 0: the fastest, 2: the slowest, 1: between them. */
static int place_of(const struct echi_pace *pace, int count, int which, enum by by) {
    const double own = speed_of(pace, which, by);
    bool fastest = true, slowest = true;
    for (int g = 0; g < count; g++) {
        fastest = fastest && speed_of(pace, g, by) <= own;
        slowest = slowest && speed_of(pace, g, by) >= own;
    }
    return fastest && slowest ? 1 : fastest ? 0 : slowest ? 2 : 1;
}

/* Seconds of an iteration beside the push: the step, and the weights that answer it. */
static double beside_push(const struct echi_pace *g, double link, uint64_t params) {
    return g->seconds + (double)echi_coded_bytes(params, ECHI_RATIO_STATES) / link;
}

static uint32_t balance(double target, const struct echi_pace *g, double link, uint64_t params) {
    const double ratio = (target - beside_push(g, link, params)) * link / (VALUE_BYTES * (double)params) * ECHI_RATIO_ONE;
    return ratio > MOST ? MOST : ratio >= LEAST ? (uint32_t)ratio : LEAST;   /* the least as well where a link carries next to nothing,
                                                                                and it is no number */
}

void echi_ratios_bases(enum echi_ratios ratios, uint64_t params, const struct echi_pace *pace, int count, uint32_t *out_base) {
    double whole[ECHI_GROUPS_MAX] = {0};   /* an iteration at the middle ratio, ascending */
    bool links = true, iterations = true;
    for (int g = 0; g < count; g++) {
        links = links && pace[g].link > 0;
        iterations = iterations && pace[g].iteration > 0;
    }
    const enum by by = links && ratios == ECHI_RATIOS_VOLUME ? BY_LINK : iterations ? BY_ITERATION : BY_NUMBER;
    for (int g = 0; g < count; g++) {
        const double link = links ? pace[g].link : USUAL_LINK;
        const double own = beside_push(&pace[g], link, params) + VALUE_BYTES * (double)params * MIDDLE / ECHI_RATIO_ONE / link;
        int at = g;
        for (; at > 0 && whole[at - 1] > own; at--) whole[at] = whole[at - 1];
        whole[at] = own;
    }
    for (int g = 0; g < count; g++) {
        const int place = place_of(pace, count, g, by);
        out_base[g] = ratios == ECHI_RATIOS_PAPER    ? echi_paper_ratio[place].base
                      : ratios == ECHI_RATIOS_VOLUME ? volume[place]
                                                     : balance(whole[count / 2], &pace[g], links ? pace[g].link : USUAL_LINK, params);
    }
}

void echi_ratios_plan(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
    struct echi_pace pace[ECHI_GROUPS_MAX];
    if (w->codec == ECHI_CODEC_DENSE) return;
    plan->codec = (uint8_t)w->codec;
    plan->ratios = (uint8_t)w->ratios;
    plan->state_ratio = ECHI_RATIO_STATES;
    for (int g = 0; g < plan->n_groups; g++) pace[g] = pace_of(times, plan, g);
    const uint64_t sent = plan->cut ? w->trunk_params : w->params;
    echi_ratios_bases(w->ratios, sent ? sent : 1, pace, plan->n_groups, plan->base);
}
