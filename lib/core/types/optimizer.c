/* SPDX-License-Identifier: Apache-2.0
 * What Adam's step by a push depends on besides its gradient (PROTOCOL.md, "Optimisers under asynchrony"). A push of weight
 * f = n/B feeds g/f, the mean gradient of its samples, with decays beta^f, and its step is f*lr. So the decays of pushes whose f sum to 1
 * multiply to beta, and their steps add up to lr, however a round is cut up. After pushes of f1, f2, ... their gradients weigh
 * 1 - beta^(f1 + f2 + ...) together in a moment: Adam's bias correction (Kingma and Ba, section 3) divides by that. */
#include "echi_exp.h"
#include "echi_plan.h"

double echi_power(double base, double exponent) {
    if (exponent == 1) return base;   /* a whole round has PyTorch's decays to the last bit */
    return base > 0 ? echi_exp(exponent * echi_log(base)) : 0;
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

bool echi_plan_remembers(const struct echi_plan *plan) { return plan->momentum > 0 || echi_optimizer_adam(plan->optimizer); }

bool echi_plan_owner_remembers(const struct echi_plan *plan) {
    return plan->sync == ECHI_SYNC_LOCAL ? plan->outer_momentum > 0 : echi_plan_remembers(plan);
}

static const char *const names[ECHI_OPTIMIZERS] = {"sgd", "nesterov", "adam", "adamw"};
const char *echi_optimizer_name(int optimizer) { return optimizer >= 0 && optimizer < ECHI_OPTIMIZERS ? names[optimizer] : NULL; }
