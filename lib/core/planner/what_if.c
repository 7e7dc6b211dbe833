/* SPDX-License-Identifier: Apache-2.0
 * What would make a plan faster, by predictions of the same plan with other times. */
#include "echi_choice_impl.h"
#include "echi_what_if.h"

#include <string.h>

const char *echi_what_name(int what) {
    static const char *const name[ECHI_WHATS] = {"steps", "links", "latency", "owners", "head", "variation"};
    return what >= 0 && what < ECHI_WHATS ? name[what] : "";
}

#define WORTH_A_WORD 0.02
#define NAMES_A_NODE 0.5   /* of what all nodes would gain */
#define SINGLES 4          /* nodes that are tried by themselves, those that such a thing takes longest at */

struct question {
    const struct echi_plan *plan;
    const struct echi_times *times;
    const struct echi_load *load;
    struct echi_choice_work *work;
    double rate;           /* as things are */
};

static void halve(double *seconds, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) seconds[i] /= 2;
}

static void widen(struct echi_rate *rate) {
    rate->rate *= 2;
    rate->lowest *= 2;
    rate->highest *= 2;
}

/* `rank` with half of that. */
static void quicken(const struct echi_plan *plan, enum echi_what what, int rank, struct echi_times *t) {
    switch (what) {
    case ECHI_WHAT_STEPS:
        halve(t->trunk, t->count);
        if (!plan->cut) halve(t->head, t->count);
        return;
    case ECHI_WHAT_LINKS:
        widen(&t->link.out);
        widen(&t->link.in);
        return;
    case ECHI_WHAT_LATENCY:
        t->messages /= 2;
        t->delay /= 2;
        return;
    case ECHI_WHAT_OWNERS:
        t->exchange /= 2;
        t->add /= 2;
        t->update /= 2;
        return;
    case ECHI_WHAT_HEAD:
        if (echi_plan_head_index(plan, rank) >= 0) halve(t->head, t->count);
        return;
    default:
        t->jitter /= 2;
        t->stutter /= 2;
        return;
    }
}

static bool owns(const struct echi_plan *plan, int rank) { return echi_plan_group_owned(plan, rank) >= 0; }

/* The gain with half of that at `only`, or at every node that it may be asked of. */
static double gain_of(const struct question *q, enum echi_what what, int only) {
    struct echi_prediction p;
    if (q->work->between) q->work->between(q->work->self);
    memcpy(q->work->times, q->times, (size_t)q->plan->world * sizeof *q->times);
    for (int r = 0; r < q->plan->world; r++)
        if ((only < 0 || r == only) && (what != ECHI_WHAT_OWNERS || owns(q->plan, r)))
            quicken(q->plan, what, r, &q->work->times[r]);
    echi_memo_predict(q->plan, q->work->times, q->load, 0, q->work, &p);
    return p.rate / q->rate - 1;
}

/* About how long that takes at a node: whoever serves others has the traffic of all of them. */
static double takes(const struct question *q, enum echi_what what, int rank) {
    const struct echi_times *t = &q->times[rank];
    const struct echi_plan *plan = q->plan;
    const bool serves = owns(plan, rank) || echi_plan_head_index(plan, rank) >= 0;
    const double rate = echi_link_slower(&t->link);
    if (what == ECHI_WHAT_STEPS)
        return plan->n[rank] == 0 ? 0 : echi_times_step(t, plan->cut, plan->n[rank]);
    if (what == ECHI_WHAT_LINKS) return rate > 0 ? (serves ? plan->world : 1) / rate : 0;
    return what == ECHI_WHAT_OWNERS && owns(plan, rank) ? t->exchange + t->update : 0;
}

/* The node that would gain the most by itself, and how much; -1 where none can be named. */
static int best_alone(const struct question *q, enum echi_what what, double *out_gain) {
    double seconds[SINGLES];
    int rank[SINGLES], count = 0, best = -1;
    for (int r = 0; r < q->plan->world; r++) {
        const double here = takes(q, what, r);
        int at = count;
        if (!(here > 0)) continue;
        for (; at > 0 && here > seconds[at - 1]; at--) {
            if (at == SINGLES) continue;   /* the last is not among them any more */
            seconds[at] = seconds[at - 1];
            rank[at] = rank[at - 1];
        }
        if (at == SINGLES) continue;
        seconds[at] = here;
        rank[at] = r;
        count += count < SINGLES;
    }
    for (int i = 0; i < count; i++) {
        const double gain = gain_of(q, what, rank[i]);
        if (best >= 0 && gain <= *out_gain) continue;
        *out_gain = gain;
        best = rank[i];
    }
    return best;
}

int echi_what_if(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load, double rate,
                 struct echi_choice_work *work, struct echi_what_if out[ECHI_WHATS]) {
    const struct question q = {.plan = plan, .times = times, .load = load, .work = work, .rate = rate};
    int count = 0;
    for (int what = 0; what < ECHI_WHATS; what++) {
        struct echi_what_if found = {.what = (uint8_t)what, .rank = -1, .gain = gain_of(&q, (enum echi_what)what, -1)};
        double alone = 0;
        if (found.gain < WORTH_A_WORD) continue;
        const int rank = best_alone(&q, (enum echi_what)what, &alone);
        if (rank >= 0 && alone >= NAMES_A_NODE * found.gain) {
            found.rank = (int16_t)rank;
            found.gain = alone;
        }
        if (what == ECHI_WHAT_HEAD && !plan->heads) found.rank = (int16_t)plan->head;
        int at = count++;
        for (; at > 0 && out[at - 1].gain < found.gain; at--) out[at] = out[at - 1];
        out[at] = found;
    }
    return count;
}
