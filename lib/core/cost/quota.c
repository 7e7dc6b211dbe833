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

/* Periods have passed: each pays back so much of what was used. */
static void pass(struct echi_cost_used *q, const struct echi_host *h, int64_t index) {
    if (index <= q->index) return;
    q->used = echi_most(q->used - (double)(index - q->index) * quota_of(h), 0);
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

struct echi_cost_used *echi_cost_quota_now(struct echi_cost *c, int host) {
    const struct echi_host *h = &c->hosts->host[host];
    struct echi_cost_used *q = &c->quota[host];
    const double clock = echi_cost_pool_clock(c, host);
    const enum echi_cost_uses state = c->thread[host].state;
    if (state == ECHI_USES) {
        q->clock += clock - q->from;
        q->used += clock - q->from;
    } else if (state == ECHI_STANDS) {
        stand(q, (double)(c->now - q->at));
    }
    pass(q, h, (int64_t)((double)c->now / period_of(h)));
    q->from = clock;
    q->at = c->now;
    return q;
}

static double left(const struct echi_cost *c, int host) { return quota_of(&c->hosts->host[host]) - c->quota[host].used; }

bool echi_cost_quota_empty(const struct echi_cost *c, int host) { return left(c, host) < 1; }
double echi_cost_quota_left(const struct echi_cost *c, int host) { return echi_most(left(c, host), 0); }

int64_t echi_cost_quota_wait(const struct echi_cost *c, int host) {
    const struct echi_host *h = &c->hosts->host[host];
    const struct echi_cost_used *q = &c->quota[host];
    if (!echi_cost_quota_empty(c, host)) return c->now;
    return echi_round_up((double)(q->index + (int64_t)((q->used + 1) / quota_of(h))) * period_of(h));
}

void echi_cost_quota_expect(struct echi_cost *c, int host) {
    struct echi_cost_used *q = &c->quota[host];
    if (q->due) return;
    q->due = true;
    echi_cost_due(c, echi_round_up((double)(q->index + 1) * period_of(&c->hosts->host[host])), ECHI_DUE_PERIOD, (uint32_t)host, 0);
}
