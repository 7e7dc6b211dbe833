/* SPDX-License-Identifier: Apache-2.0
 * Hosts with a quota, as containers have: of each period they may compute so long, at full speed, and then stand still until the next
 * begins. What a period leaves over is lost; what messages take beyond it the next one lacks. Periods begin at multiples of their
 * length. While a host stands still its sockets send what they hold, and no more. */
#include "echi_cost_impl.h"

/* ns of a link. A node gives its sockets 8 ms at once (node_events.c), of which a part has left when its host is stopped; and a kernel that
 * looks at its next tick stops a host later than the quota says, and for longer than the 4 of 8 ms that a test-bed's half core has.
 * Predicted over measured by this figure: test/bench/results/2026-11-26-predictions.txt. */
#define SOCKETS_HOLD 2e6

static double period_of(const struct echi_host *h) { return h->period * 1e9; }
static double quota_of(const struct echi_host *h) { return h->quota * 1e9; }

/* Periods have passed without work, or none: each pays back so much of a debt. */
static void pass(struct echi_cost_used *q, const struct echi_host *h, int64_t index) {
    if (index > q->index) q->used = echi_most(q->used - (double)(index - q->index) * quota_of(h), 0);
    q->index = index;
    q->rest = 0;
}

/* Of so many ns of a period in which a host stands still, those in which its sockets are empty. */
static double silent(double ns) { return echi_most(ns - SOCKETS_HOLD, 0); }

/* It has stood still for so many ns more of a period. */
static void stand(struct echi_cost_used *q, double ns) {
    const double before = silent(q->rest);
    q->rest += ns;
    q->stood += silent(q->rest) - before;
}

struct echi_cost_used *echi_cost_quota(struct echi_cost *c, int host) {
    const struct echi_host *h = &c->hosts->host[host];
    if (h->quota <= 0) return NULL;
    struct echi_cost_used *q = &c->quota[host];
    const double period = period_of(h), quota = quota_of(h);
    const int64_t index = (int64_t)((double)c->now / period);
    if (!q->active) {
        pass(q, h, index);
    } else {
        /* The rest of the period that it was in, whole ones, and the part of this one. */
        double at = (double)q->at;
        while (q->index < index || at < (double)c->now) {
            const double end = echi_least((double)(q->index + 1) * period, (double)c->now);
            const double ran = echi_most(echi_least(end - at, quota - q->used), 0);
            q->clock += ran;
            q->used += ran;
            stand(q, end - at - ran);
            at = end;
            if (q->index == index) break;
            pass(q, h, q->index + 1);
            if (q->used > 0 || q->index == index) continue;
            q->clock += (double)(index - q->index) * quota;   /* whole periods, of which nothing is owed */
            q->stood += (double)(index - q->index) * silent(period - quota);
            q->index = index;
            at = (double)index * period;
        }
    }
    q->at = c->now;
    return q;
}

int64_t echi_cost_quota_end(const struct echi_cost *c, int host, double ns) {
    const struct echi_host *h = &c->hosts->host[host];
    const struct echi_cost_used *q = &c->quota[host];
    const double period = period_of(h), quota = quota_of(h), now = (double)q->at;
    const double first = echi_most(echi_least((double)(q->index + 1) * period - now, quota - q->used), 0);
    if (ns <= first) return echi_round(now + ns);
    /* After what is left of this period, whole quotas, but for a debt of this one. */
    const double rest = ns - first + echi_most(q->used - quota, 0), whole = (double)echi_round_up(rest / quota) - 1;
    return echi_round((double)(q->index + 1) * period + whole * period + (rest - whole * quota));
}

int64_t echi_cost_quota_left(const struct echi_cost *c, int host) { return echi_cost_quota_end(c, host, 1) - 1; }
