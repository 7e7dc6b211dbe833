/* SPDX-License-Identifier: Apache-2.0
 * What Adam's step by a push depends on besides its gradient (PROTOCOL.md, "Optimisers under asynchrony"). A push of weight
 * f = n/B feeds g/f, the mean gradient of its samples, with decays beta^f, and its step is f*lr. So the decays of pushes whose f sum to 1
 * multiply to beta, and their steps add up to lr, however a round is cut up. After pushes of f1, f2, ... their gradients weigh
 * 1 - beta^(f1 + f2 + ...) together in a moment: Adam's bias correction (Kingma and Ba, section 3) divides by that. */
#include "echi_plan.h"

#define LN2 0.693147180559945309417
#define SQRT_HALF 0.70710678118654752440

/* ln x for x in (0, 1), by 2 atanh((x - 1) / (x + 1)) about a power of two; what is left out of the series is below 1e-19. With
 * products, sums and quotients alone the bits are the same on every machine, as in schedule.c. */
static double logarithm(double x) {
    int halves = 0;
    for (; x < SQRT_HALF; x *= 2) halves++;
    const double z = (x - 1) / (x + 1), zz = z * z;
    double power = z, sum = z;
    for (int k = 3; k < 25; k += 2) {
        power *= zz;
        sum += power / k;
    }
    return 2 * sum - halves * LN2;
}

/* e^x for x <= 0, by the series of what is left of x behind a power of two. */
static double exponential(double x) {
    if (x < -700) return 0;
    const int halves = (int)(-x / LN2 + 0.5);
    const double rest = x + halves * LN2;
    double term = 1, sum = 1;
    for (int k = 1; k < 18; k++) {
        term *= rest / k;
        sum += term;
    }
    for (int i = 0; i < halves; i++) sum /= 2;
    return sum;
}

double echi_power(double base, double exponent) {
    if (exponent == 1) return base;   /* a whole round has PyTorch's decays to the last bit */
    return base > 0 ? exponential(exponent * logarithm(base)) : 0;
}

void echi_adam_take(const struct echi_adam *a, double f, struct echi_adam_weights *weights, struct echi_adam_push *out) {
    const double keep1 = echi_power(a->beta1, f), keep2 = echi_power(a->beta2, f);
    *out = (struct echi_adam_push){.keep1 = keep1, .gain1 = 1 - keep1, .keep2 = keep2, .gain2 = 1 - keep2};
    weights->first = keep1 * weights->first + out->gain1;
    weights->second = keep2 * weights->second + out->gain2;
}

bool echi_adam_valid(const struct echi_adam *a) {   /* false for a NaN */
    return a->beta1 >= 0 && a->beta1 <= ECHI_BETA_MAX && a->beta2 >= 0 && a->beta2 <= ECHI_BETA_MAX && a->epsilon >= ECHI_EPSILON_MIN &&
           a->epsilon <= 1;
}

bool echi_optimizer_adam(int optimizer) { return optimizer == ECHI_OPTIMIZER_ADAM || optimizer == ECHI_OPTIMIZER_ADAMW; }

int echi_plan_owner_optimizer(const struct echi_plan *plan) {
    return plan->sync == ECHI_SYNC_LOCAL ? ECHI_OPTIMIZER_NESTEROV : plan->optimizer;
}

static const char *const names[ECHI_OPTIMIZERS] = {"sgd", "nesterov", "adam", "adamw"};
const char *echi_optimizer_name(int optimizer) { return optimizer >= 0 && optimizer < ECHI_OPTIMIZERS ? names[optimizer] : NULL; }
