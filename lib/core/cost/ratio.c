/* SPDX-License-Identifier: Apache-2.0
 * The ratio policies of GDTopK (table and derivation: design, section 12). c counts completed epochs; base_g is in the plan.
 *   paper     what the authors' code sends: 0.35 while c < 2, then base_g^(min(c, 5) - 1), base 0.25 for the fastest group, 0.30,
 *             0.35 for the slowest: the slow send more, since they send more seldom.
 *   volume    the other reading: slow links send less, 0.25 on the fastest, 0.20, 0.15 on the slowest, and the steps down as the
 *             paper's. Where no link's rate is known, slow groups send less.
 *   balanced  iterations that take equally long: r_g = clip((T* - t_comp - t_pull) B_g / (8 D), r_min, r_max), 0.20 while c < 2.
 * Powers are taken in whole millionths, rounded to the nearest. */
#include "echi_ratio.h"

#include <string.h>

#define WARM_EPOCHS 2u
#define WARM_PAPER 350000u
#define WARM_BALANCED 200000u
#define LAST_STEP 5u          /* no lower from here on */
/* balanced: between them a push has 3 to 24 % of a dense one's bytes; T* is what an iteration takes at the middle one. */
#define LEAST 4000u
#define MIDDLE 10000u
#define MOST 30000u
#define VALUE_BYTES 8.0       /* a value and its place */
#define USUAL_LINK 125e6      /* bytes a second (1 Gb/s), where nobody says */

/* Of the fastest, the middle and the slowest group. */
static const struct { uint32_t base, sample; } paper[3] = {{250000, 8000}, {300000, 9000}, {350000, 10000}};
static const uint32_t volume[3] = {250000, 200000, 150000};

const char *echi_ratios_name(enum echi_ratios ratios) {
    static const char *const name[ECHI_RATIOS] = {"paper", "volume", "balanced"};
    return name[ratios];
}

static uint32_t power(uint32_t base, uint32_t exponent) {
    uint64_t value = ECHI_RATIO_ONE;
    for (uint32_t i = 0; i < exponent; i++) value = (value * base + ECHI_RATIO_ONE / 2) / ECHI_RATIO_ONE;
    return value > 0 ? (uint32_t)value : 1;
}

uint32_t echi_push_ratio(const struct echi_plan *plan, int group, uint32_t epoch) {
    if (plan->codec == ECHI_CODEC_DENSE) return ECHI_RATIO_ONE;
    const uint32_t base = plan->base[group];
    if (plan->ratios == ECHI_RATIOS_BALANCED) return epoch < WARM_EPOCHS ? WARM_BALANCED : base;
    if (epoch < WARM_EPOCHS) return plan->ratios == ECHI_RATIOS_PAPER ? WARM_PAPER : base;
    return power(base, (epoch < LAST_STEP ? epoch : LAST_STEP) - 1);
}

uint32_t echi_push_sample(const struct echi_plan *plan, int group) {
    for (int i = 0; i < 3; i++)
        if (plan->ratios == ECHI_RATIOS_PAPER && plan->base[group] == paper[i].base) return paper[i].sample;
    return paper[2].sample;
}

bool echi_whole_due(uint32_t number) { return number % ECHI_WHOLE_EVERY == 1; }

uint64_t echi_coded_bytes(uint64_t count, uint32_t ratio) {
    const uint64_t values = (count * ratio + ECHI_RATIO_ONE - 1) / ECHI_RATIO_ONE, all = 4 * count;
    uint64_t some = 4 * values < (count + 7) / 8 ? 8 * values : 4 * values + (count + 7) / 8;
    return 8 + (some < all ? some : all);
}

/* Measured (48,120 numbers, AVX-512, the fast tenth of 201 by the clock): to select and write, 3.4 to 6.5 at ratios from 0.01 to 0.35, and
 * where all go 1.4 (pushes) or 0.8; to read, 2.4 to 4.7 where places are bits, 0.1 to 0.5 where they are words, which is below a 32nd,
 * and 1.9 where all values come. */
double echi_write_cost(uint32_t ratio) { return ratio == ECHI_RATIO_ONE ? 1.4 : 5.0; }
double echi_read_cost(uint32_t ratio) { return ratio == ECHI_RATIO_ONE ? 2.0 : ratio < ECHI_RATIO_ONE / 32 ? 0.5 : 3.0; }

/* ------------------------------------------------------------- the planner */

/* What a group is like: its members' mean time of a step, and the slowest of their links, bytes a second (0: not known). */
struct group { double seconds, link; };

static struct group look(const struct echi_times *times, const struct echi_plan *plan, int group) {
    struct group g = {0};
    int members = 0;
    for (int r = 0; r < plan->world; r++) {
        if (plan->group_of[r] != group) continue;
        const struct echi_times *t = &times[r];
        g.seconds += plan->separated ? echi_times_trunk(t, plan->n[r]) : echi_times_whole(t, plan->n[r]);
        if (members++ == 0 || t->link < g.link) g.link = t->link;
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

void echi_ratios_plan(const struct echi_wishes *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
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
        plan->base[g] = w->ratios == ECHI_RATIOS_PAPER    ? paper[place].base
                        : w->ratios == ECHI_RATIOS_VOLUME ? volume[place]
                                                          : balance(whole[plan->n_groups / 2], &group[g], params);
    }
}
