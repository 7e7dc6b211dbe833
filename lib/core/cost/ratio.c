/* SPDX-License-Identifier: Apache-2.0
 * The ratio policies of GDTopK (table and derivation: PROTOCOL.md, "Sources"). c counts completed epochs; base_g is in the plan.
 *   paper     what the authors' code sends: 0.35 while c < 2, then base_g^(min(c, 5) - 1), base 0.25 for the fastest group, 0.30,
 *             0.35 for the slowest: the slow send more, since they send more seldom.
 *   volume    the other reading: slow links send less, 0.25 on the fastest, 0.20, 0.15 on the slowest, and the steps down as the
 *             paper's. Where no link's rate is known, slow groups send less.
 *   balanced  iterations that take equally long: r_g = clip((T* - t_comp - t_pull) B_g / (8 D), r_min, r_max), 0.20 while c < 2.
 * Powers are taken in whole millionths, rounded to the nearest. */
#include "echi_ratio.h"

#define WARM_EPOCHS 2u
#define WARM_PAPER 350000u
#define WARM_BALANCED 200000u
#define LAST_STEP 5u          /* no lower from here on */

const struct echi_paper_ratio echi_paper_ratio[3] = {{250000, 8000}, {300000, 9000}, {350000, 10000}};

const char *echi_ratios_name(enum echi_ratios ratios) {
    static const char *const name[ECHI_RATIOS] = {"paper", "volume", "balanced"};
    return name[ratios];
}

static uint32_t power(uint32_t base, uint32_t exponent) {
    uint64_t value = ECHI_RATIO_ONE;
    for (uint32_t i = 0; i < exponent; i++) value = (value * base + ECHI_RATIO_ONE / 2) / ECHI_RATIO_ONE;
    return value > 0 ? (uint32_t)value : 1;
}

static uint32_t ratio_of(const struct echi_plan *plan, uint32_t base, uint32_t epoch) {
    if (plan->codec == ECHI_CODEC_DENSE) return ECHI_RATIO_ONE;
    if (plan->ratios == ECHI_RATIOS_BALANCED) return epoch < WARM_EPOCHS ? WARM_BALANCED : base;
    if (epoch < WARM_EPOCHS) return plan->ratios == ECHI_RATIOS_PAPER ? WARM_PAPER : base;
    return power(base, (epoch < LAST_STEP ? epoch : LAST_STEP) - 1);
}

static uint32_t sample_of(const struct echi_plan *plan, uint32_t base) {
    for (int i = 0; i < 3; i++)
        if (plan->ratios == ECHI_RATIOS_PAPER && base == echi_paper_ratio[i].base) return echi_paper_ratio[i].sample;
    return echi_paper_ratio[2].sample;
}

static uint32_t base_of(const struct echi_plan *plan, int group, const struct echi_lease *lease) {
    return lease->base ? lease->base : plan->base[group];
}

uint32_t echi_push_ratio(const struct echi_plan *plan, int group, uint32_t epoch) { return ratio_of(plan, plan->base[group], epoch); }
uint32_t echi_push_sample(const struct echi_plan *plan, int group) { return sample_of(plan, plan->base[group]); }
uint32_t echi_lease_ratio(const struct echi_plan *plan, int group, const struct echi_lease *lease) {
    return ratio_of(plan, base_of(plan, group, lease), lease->epoch);
}
uint32_t echi_lease_sample(const struct echi_plan *plan, int group, const struct echi_lease *lease) {
    return sample_of(plan, base_of(plan, group, lease));
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
