/* SPDX-License-Identifier: Apache-2.0
 * Two loss curves compared: how many samples each needs to the same loss.
 *
 * Losses of single bins are noisy, and a curve that is to be asked where it has a loss must fall. So each is smoothed by isotonic
 * regression (Barlow, Bartholomew, Bremner, Brunk, "Statistical Inference under Order Restrictions", 1972: pool adjacent violators), which
 * has no parameter. Between the pooled blocks it is a straight line of the logarithms: losses fall about as powers of samples do. */
#include "echi_curves.h"

#include <math.h>

#define LEVELS 16          /* losses at which curves are compared */
#define OF_REACHED 4.0     /* from 1 / so many of the samples to the least loss that both have; at least twice the first of these */
#define BLOCKS 4           /* of each curve there, at least: of fewer hardly anything fell */
#define DEVIATION_MAX 0.3

struct smooth { int count; double at[ECH_CURVE_MAX], loss[ECH_CURVE_MAX]; };   /* logarithms; losses fall */

/* Losses are those of weights, which lack what was behind: they are where these were. */
static void smooth(const struct echi_curve_run *run, struct smooth *out) {
    int pooled[ECH_CURVE_MAX], n = 0;
    double last = 0;
    for (int i = 0; i < run->points; i++) {
        const double at = run->at[i] - run->behind * run->round;
        if (!(at > 0)) continue;
        pooled[n] = 1;
        out->at[n] = last = at;
        out->loss[n++] = run->loss[i];
        for (; n > 1 && out->loss[n - 1] >= out->loss[n - 2]; n--) {
            const int a = pooled[n - 2], b = pooled[n - 1];
            out->at[n - 2] = (a * out->at[n - 2] + b * out->at[n - 1]) / (a + b);
            out->loss[n - 2] = (a * out->loss[n - 2] + b * out->loss[n - 1]) / (a + b);
            pooled[n - 2] = a + b;
        }
    }
    out->count = n;
    if (n > 0) out->at[n - 1] = last;   /* not before, where a run has stopped to learn */
    for (int i = 0; i < n; i++) {
        out->at[i] = log(out->at[i]);
        out->loss[i] = log(out->loss[i]);
    }
}

static double between(double x, double x0, double x1, double y0, double y1) { return y0 + (x - x0) / (x1 - x0) * (y1 - y0); }

static double loss_at(const struct smooth *s, double at) {
    int i = 1;
    while (i + 1 < s->count && s->at[i] < at) i++;
    return between(at, s->at[i - 1], s->at[i], s->loss[i - 1], s->loss[i]);
}

static double at_loss(const struct smooth *s, double loss) {
    int i = 1;
    while (i + 1 < s->count && s->loss[i] > loss) i++;
    return between(loss, s->loss[i - 1], s->loss[i], s->at[i - 1], s->at[i]);
}

static int blocks(const struct smooth *s, double from, double to) {
    int count = 0;
    for (int i = 0; i < s->count; i++) count += s->at[i] >= from && s->at[i] <= to;
    return count;
}

/* Losses are spread over the samples of the slower one, where more of a run's time goes. */
static enum echi_ratio_known compare(const struct smooth *slow, const struct smooth *fast, double least, struct echi_curve_ratio *out) {
    const double to = at_loss(slow, least), from = fmax(slow->at[0], to - log(OF_REACHED));
    double ratio[LEVELS], first = to, sum = 0, squares = 0;
    int count = 0;
    for (int k = LEVELS - 1; k >= 0; k--) {
        const double at = between(k, 0, LEVELS - 1, from, to), loss = loss_at(slow, at);
        if (loss > fast->loss[0]) break;
        ratio[count++] = at - at_loss(fast, loss);
        first = at;
    }
    if (count < LEVELS / 2) return ECHI_RATIO_APART;
    if (to - from < log(2) || blocks(slow, first, to) < BLOCKS || blocks(fast, first - ratio[count - 1], to - ratio[0]) < BLOCKS)
        return ECHI_RATIO_SHORT;
    for (int k = 0; k < count; k++) sum += ratio[k];
    for (int k = 0; k < count; k++) squares += (ratio[k] - sum / count) * (ratio[k] - sum / count);
    *out = (struct echi_curve_ratio){sum / count, sqrt(squares / (count - 1))};
    return out->deviation <= DEVIATION_MAX && fabs(out->log) < log(ECHI_MEASURED_LIMIT) ? ECHI_RATIO_KNOWN : ECHI_RATIO_NOISY;
}

enum echi_ratio_known echi_curve_ratio(const struct echi_curve_run *rounds, const struct echi_curve_run *other,
                                       struct echi_curve_ratio *out) {
    struct smooth a, b;
    smooth(rounds, &a);
    smooth(other, &b);
    if (a.count < BLOCKS || b.count < BLOCKS) return ECHI_RATIO_SHORT;
    const double least = fmax(a.loss[a.count - 1], b.loss[b.count - 1]);
    if (at_loss(&a, least) > at_loss(&b, least)) return compare(&a, &b, least, out);
    const enum echi_ratio_known known = compare(&b, &a, least, out);
    out->log = -out->log;
    return known;
}

const char *echi_ratio_reason(enum echi_ratio_known known) {
    switch (known) {
    case ECHI_RATIO_SHORT: return "too little of its curve falls beside theirs: longer runs tell more";
    case ECHI_RATIO_APART: return "its losses are not those of rounds: train either for longer";
    case ECHI_RATIO_NOISY: return "the ratio of samples differs too much from loss to loss: longer runs tell more";
    default: return "";
    }
}
