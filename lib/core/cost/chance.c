/* SPDX-License-Identifier: Apache-2.0
 * How steps vary: step by step, and in the mean over all that can happen. */
#include "echi_exp.h"
#include "echi_predict_rounds.h"
#include "echi_random.h"

/* e^x for |x| up to some tens, without libm: (1 + y + y^2/2 + ...)^1024 with y = x / 1024. */
static double exponential(double x) {
    const double y = x / 1024;
    double e = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4)));
    for (int i = 0; i < 10; i++) e *= e;
    return e;
}

static bool steps_vary(const struct echi_times *t) { return t->jitter > 0 || (t->stutter > 0 && t->stutter_factor > 1); }

bool echi_predict_random(const struct echi_times *t) { return steps_vary(t) || t->quota > 0; }

/* By how much the k-th step of a rank takes longer: lognormal with median 1, and a stutter now and then. Counted by rank and
 * step, so that two plans meet the same luck. The normal number is a sum of twelve uniform ones. */
double echi_predict_factor(const struct echi_times *t, int rank, uint32_t k) {
    if (!steps_vary(t)) return 1;
    uint32_t word[8], sum = 0;
    echi_random4(1, ECHI_STREAM_PREDICT, (uint32_t)rank, 2 * (uint64_t)k, word);
    echi_random4(1, ECHI_STREAM_PREDICT, (uint32_t)rank, 2 * (uint64_t)k + 1, word + 4);
    for (int i = 0; i < 6; i++) sum += (word[i] & 0xffff) + (word[i] >> 16);
    const double normal = (sum + 6.0) / 65536 - 6;
    const bool stutters = word[6] < t->stutter * 4294967296.0;
    return exponential(t->jitter * normal) * (stutters ? t->stutter_factor : 1);
}

/* ---- the longest of several ---- */

/* P(X <= x) of a standard normal X at 0, 1/8, ..., 4. */
#define CDF_STEPS 8
static const double cdf[] = {0.5,     0.54974, 0.59871, 0.64617, 0.69146, 0.73401, 0.77337, 0.80921, 0.84134, 0.86970, 0.89435,
                             0.91543, 0.93319, 0.94792, 0.95994, 0.96960, 0.97725, 0.98321, 0.98778, 0.99124, 0.99379, 0.99566,
                             0.99702, 0.99798, 0.99865, 0.99911, 0.99942, 0.99963, 0.99977, 0.99986, 0.99991, 0.99995, 1};
enum { CDF_LAST = (int)(sizeof cdf / sizeof cdf[0]) - 1 };

static double normal_within(double x) {
    const double at = (x < 0 ? -x : x) * CDF_STEPS;
    const int i = at < CDF_LAST ? (int)at : CDF_LAST - 1;
    const double part = at < CDF_LAST ? at - i : 1, p = cdf[i] + part * (cdf[i + 1] - cdf[i]);
    return x < 0 ? 1 - p : p;
}

/* Points of the integral. A step that does not vary is taken for one that does by so little, one far shorter than the longest for one
 * that is so much shorter. */
#define POINTS 512
#define JITTER_MIN 0.01
#define RATIO_MIN 1e-6
#define SIGMAS 4

struct echi_varying echi_predict_varying(const struct echi_times *t, double seconds) {
    const bool stutters = t->stutter > 0 && t->stutter_factor > 1;
    return (struct echi_varying){.seconds = seconds, .jitter = t->jitter > JITTER_MIN ? t->jitter : JITTER_MIN,
                                 .stutter = stutters ? t->stutter : 0, .log_factor = stutters ? -echi_log(1 / t->stutter_factor) : 0};
}

/* That a step takes at most e^x times as long as the longest of them without its variation. */
static double within(const struct echi_varying *s, double x) {
    const double plain = normal_within((x - s->log) / s->jitter);
    return s->stutter > 0 ? (1 - s->stutter) * plain + s->stutter * normal_within((x - s->log - s->log_factor) / s->jitter) : plain;
}

/* The integral over x of the probability that any step takes longer than x, in logarithmic steps from the end; before they begin one always
 * does. */
double echi_predict_longest(struct echi_varying *step, int count) {
    double longest = 0, low = 0, high = 0, sum = 0;   /* low and high: logarithms of what is integrated over, by `longest` */
    for (int i = 0; i < count; i++) longest = step[i].seconds > longest ? step[i].seconds : longest;
    if (!(longest > 0)) return 0;
    for (int i = 0; i < count; i++) {
        const double ratio = step[i].seconds / longest, spread = SIGMAS * step[i].jitter;
        step[i].log = echi_log(ratio > RATIO_MIN ? ratio : RATIO_MIN);
        if (spread + step[i].log_factor > high) high = spread + step[i].log_factor;
        if (ratio >= 1) low = -spread;
    }
    const double width = (high - low) / POINTS, shorter = echi_exp(-width);
    double at = longest / echi_exp(-high);
    for (int k = 0; k < POINTS; k++) {
        double all_within = 1;
        for (int i = 0; i < count && all_within > 0; i++) all_within *= within(&step[i], high - (k + 0.5) * width);
        sum += (1 - all_within) * at * (1 - shorter);
        at *= shorter;
    }
    return sum + at;
}
