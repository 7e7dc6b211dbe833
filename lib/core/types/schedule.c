/* SPDX-License-Identifier: Apache-2.0
 * The learning rate of an update, a pure function of where its samples stand in the data (PROTOCOL.md, "Optimisers under
 * asynchrony"). So it is the same on every node, whoever comes first, and in a resumed run. */
#include "echi_lease.h"

#define PI 3.14159265358979323846

/* sin for y in [0, pi/4], by Taylor's series: what is left out is below 1e-19. With products and sums alone the bits are the same on
 * every machine, which a libm's are not, and --deterministic promises. */
static double sine(double y) {
    double term = y, sum = y;
    for (int k = 2; k < 18; k += 2) {
        term *= -y * y / (k * (k + 1));
        sum += term;
    }
    return sum;
}

/* (1 + cos(pi x)) / 2 for x in [0, 1]; exactly 1 at 0 and 0 at 1. */
static double half_cosine(double x) {
    const double s = sine(PI / 2 * (x < 0.5 ? x : 1 - x));
    return x < 0.5 ? 1 - s * s : s * s;
}

double echi_schedule_factor(const struct echi_schedule *s, double epochs) {
    double factor = epochs < s->warmup ? epochs / s->warmup : 1;
    for (int i = 0; i < s->steps && epochs >= s->step[i]; i++) factor *= s->factor;
    if (s->kind != ECHI_SCHEDULE_COSINE || epochs < s->warmup) return factor;
    return epochs < s->epochs ? half_cosine((epochs - s->warmup) / (s->epochs - s->warmup)) : 0;
}

double echi_plan_lr(const struct echi_plan *plan, const struct echi_lease *lease, uint32_t train_samples) {
    return plan->lr * echi_schedule_factor(&plan->schedule, lease->epoch + (double)lease->start / train_samples);
}

static bool is_epochs(double v) { return v >= 0 && v < ECHI_EPOCHS_MAX; }   /* false for a NaN */
static bool is_zero(double v) { return v == 0 && !__builtin_signbit(v); }   /* a plan file leaves them out, and -0 would not come back */

bool echi_schedule_valid(const struct echi_schedule *s) {
    const bool steps = s->kind == ECHI_SCHEDULE_STEP, cosine = s->kind == ECHI_SCHEDULE_COSINE;
    if (s->kind >= ECHI_SCHEDULES || !is_epochs(s->warmup) || !is_epochs(s->epochs)) return false;
    if (!cosine && !is_zero(s->epochs)) return false;
    if (steps ? s->steps < 1 || s->steps > ECHI_LR_STEPS_MAX || !(s->factor > 0 && s->factor <= 1) : s->steps != 0 || !is_zero(s->factor))
        return false;
    for (int i = 0; i < ECHI_LR_STEPS_MAX; i++)
        if (i < s->steps ? !is_epochs(s->step[i]) || s->step[i] <= (i ? s->step[i - 1] : 0) : !is_zero(s->step[i])) return false;
    return true;
}

static const char *const names[ECHI_SCHEDULES] = {"constant", "step", "cosine"};

const char *echi_schedule_name(int kind) { return kind >= 0 && kind < ECHI_SCHEDULES ? names[kind] : NULL; }
