/* SPDX-License-Identifier: Apache-2.0
 * Works on threads: the most urgent first, between units.
 *
 * A thread runs a *stretch*: the units of one work up to the next that the caller wants to know of, or the last. Only when something
 * more urgent comes, or a hold, it is made to end at the nearest end of a unit: so units cost nothing while nobody is in a hurry.
 *
 * A thread has a time of its own, which passes while it computes. On cores of its own that is virtual time. Of m threads that compute
 * on the c cores of a pool it passes min(1, c / m) times as fast (egalitarian processor sharing); all these times are one clock of
 * the pool, so what ends next can be kept in a heap, and a change of m moves nothing in it. A host with a quota (quota.c) is in a pool,
 * be it alone; it leaves its pool while its quota is used up, and its time is that of the pool while it is there. */
#include "echi_cost_impl.h"

void echi_cost_thread_create(struct echi_cost *c, int host, int pool) {
    c->thread[host].first = c->thread[host].running = ECHI_NOTHING;
    c->thread[host].pool = pool;
}

/* ------------------------------------------------------------ one work */

/* One past its last unit. */
static int units_of(const struct echi_work *w) {
    if (!w->shape) return 1 + (w->part > 0);
    return w->end > 0 ? w->end : w->shape->units;
}
static double until(const struct echi_work *w, int unit) {
    if (unit < 0) return 0;
    if (w->shape) return w->shape->until[unit];
    return unit == 0 && w->part > 0 ? w->part : 1;
}
static bool marked(const struct echi_work *w, int unit) { return !w->shape || w->shape->mark[unit]; }

static struct echi_work_out *work_at(const struct echi_cost *c, uint32_t id) { return echi_records_at(&c->works, id); }

static void forget(struct echi_cost *c, int host, uint32_t id) {
    uint32_t *link = &c->thread[host].first;
    while (*link != id) link = &work_at(c, *link)->next;
    *link = work_at(c, id)->next;
    echi_records_give(&c->works, id);
}

/* ------------------------------------------------------- pools of cores */

static struct echi_cost_pool *pool_of(const struct echi_cost *c, int host) {
    const int pool = c->thread[host].pool;
    return pool < 0 ? NULL : &c->pool[pool];
}

static int64_t takes(const struct echi_cost *c, int host) {
    return c->hosts->host[host].takes > 0 ? c->hosts->host[host].takes : ECHI_PROCESSOR;
}

/* How many times as long as alone each of the pool's works takes now. */
static double crowd(const struct echi_cost *c, const struct echi_cost_pool *p) {
    const int pool = (int)(p - c->pool), cores = pool < c->hosts->pools ? c->hosts->pool_cores[pool] : 1;
    return echi_most((double)p->active / ECHI_PROCESSOR / cores, 1);
}

static void advance(const struct echi_cost *c, struct echi_cost_pool *p) {
    if (p->active > 0) p->clock += (double)(c->now - p->at) / crowd(c, p);
    p->at = c->now;
}

/* What ends first, beside stretches that have become others since; NULL: nothing. */
static const struct echi_due *first_end(const struct echi_cost *c, struct echi_cost_pool *p) {
    struct echi_due stale;
    const struct echi_due *first;
    while ((first = echi_events_first(&p->ends)) && c->thread[first->who].turn != (uint32_t)first->what) echi_events_take(&p->ends, &stale);
    return first;
}

/* After each change of what ends first or of how many compute. */
static void expect_end(struct echi_cost *c, struct echi_cost_pool *p) {
    const struct echi_due *first = first_end(c, p);
    p->turn++;
    if (!first) return;
    const double left = ((double)first->at - p->clock) * crowd(c, p);
    echi_cost_due(c, c->now + (left > 0 ? echi_round_up(left) : 0), ECHI_DUE_POOL, (uint32_t)(p - c->pool), p->turn);
}

double echi_cost_pool_clock(struct echi_cost *c, int host) {
    struct echi_cost_pool *p = pool_of(c, host);
    advance(c, p);
    return p->clock;
}

/* ------------------------------------------------------------- stretches */

static double own_time(struct echi_cost *c, int host) {
    const struct echi_cost_used *q = echi_cost_quota(c, host);
    if (q) return q->clock;
    return pool_of(c, host) ? echi_cost_pool_clock(c, host) : (double)c->now;
}

/* The end of its stretch, or of its quota, unless that is used up. */
static void expect(struct echi_cost *c, int host) {
    struct echi_cost_thread *l = &c->thread[host];
    struct echi_cost_pool *p = pool_of(c, host);
    const double end = l->began + l->length;
    const struct echi_cost_used *q = echi_cost_quota(c, host);
    l->turn++;
    if (!p) return echi_cost_due(c, echi_round(end), ECHI_DUE_THREAD, (uint32_t)host, l->turn);
    const int64_t at = echi_round(q ? q->from + echi_least(end - q->clock, echi_cost_quota_left(c, host)) : end);
    if ((!q || l->state == ECHI_USES) && !echi_events_add(&p->ends, at, 0, (uint32_t)host, l->turn)) c->failed = true;
    expect_end(c, p);
}

/* It begins to compute, or ends: of a pool's cores and of a quota only who computes takes. */
static void set_state(struct echi_cost *c, int host, enum echi_cost_uses state) {
    struct echi_cost_used *q = echi_cost_quota(c, host);
    struct echi_cost_pool *p = pool_of(c, host);
    if (q && state == ECHI_USES) {
        echi_cost_quota_expect(c, host);
        if (echi_cost_quota_empty(c, host)) state = ECHI_STANDS;
    }
    if (!p) return;
    advance(c, p);
    p->active += ((state == ECHI_USES) - (c->thread[host].state == ECHI_USES)) * takes(c, host);
    c->thread[host].state = state;
}

double echi_cost_slow(const struct echi_cost *c, int host) {
    return !c->spells ? 1 : echi_spells(c->hosts->host[host].slow, c->hosts->host[host].n_slow, c->now);
}

static void begin(struct echi_cost *c, int host, uint32_t id) {
    struct echi_cost_thread *l = &c->thread[host];
    const struct echi_work_out *w = work_at(c, id);
    const double from = until(&w->work, w->unit - 1);
    const int last = units_of(&w->work) - 1;
    int end = w->unit;
    while (end < last && !marked(&w->work, end)) end++;
    l->running = id;
    l->until_unit = end;
    l->stretch_ns = w->ns * echi_cost_slow(c, host);
    l->length = l->stretch_ns * (until(&w->work, end) - from);
    l->began = own_time(c, host);
    l->stolen = l->debt = 0;
    l->since = c->now;
    set_state(c, host, ECHI_USES);
    expect(c, host);
    if (c->line) echi_watch_begins(c, host, id, &w->work, from);
}

/* The most urgent that may run now; of equals the one that came first. */
static void choose(struct echi_cost *c, int host) {
    struct echi_cost_thread *l = &c->thread[host];
    uint32_t best = ECHI_NOTHING;
    for (uint32_t id = l->first; id != ECHI_NOTHING; id = work_at(c, id)->next) {
        const struct echi_work *w = &work_at(c, id)->work;
        if (l->held && !w->while_held) continue;
        if (best == ECHI_NOTHING || w->urgency < work_at(c, best)->work.urgency) best = id;
    }
    if (best != ECHI_NOTHING) return begin(c, host, best);
    if (!l->held || l->told) return;
    l->told = true;
    echi_cost_due(c, c->now, ECHI_DUE_HELD, (uint32_t)host, 0);
}

/* The stretch under way ends with the unit in hand. */
static void shorten(struct echi_cost *c, int host) {
    struct echi_cost_thread *l = &c->thread[host];
    const struct echi_work_out *w = work_at(c, l->running);
    if (!w->work.shape) return;
    const double passed = own_time(c, host) - l->began - l->stolen, from = until(&w->work, w->unit - 1);
    int end = w->unit;
    while (end < l->until_unit && l->stretch_ns * (until(&w->work, end) - from) < passed) end++;
    if (end == l->until_unit) return;
    l->until_unit = end;
    l->length = l->stretch_ns * (until(&w->work, end) - from) + l->stolen;
    expect(c, host);
}

static void tell_end(struct echi_cost *c, int host, const struct echi_work_out *w) {
    const struct echi_cost_thread *l = &c->thread[host];
    const double asked = w->work.seconds * 1e9 / c->hosts->host[host].speed, wake = w->ns > 0 ? echi_most(1 - asked / w->ns, 0) : 0;
    const double stolen = l->length > 0 ? l->stolen / l->length : 0;
    echi_watch_ends(c, host, until(&w->work, l->until_unit), (1 - stolen) * wake, stolen);
}

static bool end_stretch(struct echi_cost *c, int host, struct echi_happening *out) {
    struct echi_cost_thread *l = &c->thread[host];
    if (l->debt > 0) {   /* messages took some of the time */
        l->length += l->debt;
        l->stolen += l->debt;
        l->debt = 0;
        expect(c, host);
        return false;
    }
    const uint32_t id = l->running;
    const int unit = l->until_unit;
    const struct echi_work w = work_at(c, id)->work;
    const bool done = unit == units_of(&w) - 1;
    *out = (struct echi_happening){.type = done ? ECHI_HAPPENS_DONE : ECHI_HAPPENS_MARK, .host = host, .unit = unit, .cookie = w.cookie};
    if (c->line) tell_end(c, host, work_at(c, id));
    work_at(c, id)->unit = unit + 1;
    l->busy += (double)(c->now - l->since);
    l->running = ECHI_NOTHING;
    l->turn++;
    set_state(c, host, ECHI_RESTS);
    if (done) forget(c, host, id);
    if (!done && !w.shape) begin(c, host, id);   /* nothing comes in between */
    else choose(c, host);
    return done || marked(&w, unit);
}

/* A host of a pool: the end of its stretch, or of its quota. */
static bool end_turn(struct echi_cost *c, int host, struct echi_happening *out) {
    const struct echi_cost_thread *l = &c->thread[host];
    const struct echi_cost_used *q = echi_cost_quota(c, host);
    if (!q || l->began + l->length - q->clock <= 1) return end_stretch(c, host, out);
    set_state(c, host, ECHI_USES);   /* STANDS where there is none left */
    expect(c, host);
    return false;
}

bool echi_cost_thread_due(struct echi_cost *c, int host, uint32_t turn, struct echi_happening *out) {
    return c->thread[host].turn == turn && end_stretch(c, host, out);
}

bool echi_cost_pool_due(struct echi_cost *c, int pool, uint32_t turn, struct echi_happening *out) {
    struct echi_cost_pool *p = &c->pool[pool];
    bool told = false;
    if (p->turn != turn) return false;
    advance(c, p);
    const struct echi_due *first = first_end(c, p);
    if (first && (double)first->at <= p->clock + 0.5) told = end_turn(c, (int)first->who, out);
    expect_end(c, p);
    return told;
}

void echi_cost_period_due(struct echi_cost *c, int host) {
    struct echi_cost_used *q = echi_cost_quota(c, host);
    q->due = false;
    if (c->thread[host].state == ECHI_RESTS) return;
    set_state(c, host, ECHI_USES);
    expect(c, host);
}

/* ------------------------------------------------------ what others call */

void echi_cost_compute(struct echi_cost *c, int host, const struct echi_work *work) {
    struct echi_cost_thread *l = &c->thread[host];
    if (c->dead[host]) return;
    const uint32_t id = echi_cost_new(c, &c->works);
    if (id == ECHI_NOTHING) return;
    const double wake = l->running == ECHI_NOTHING ? ECHI_COST_WAKE * c->link[host].ns_per_message : 0;
    struct echi_cost_used *q = echi_cost_quota(c, host);
    if (q) q->used -= (1 - ECHI_COST_WAKE_COMPUTES) * wake;
    *work_at(c, id) = (struct echi_work_out){.work = *work, .unit = work->first, .next = ECHI_NOTHING,
                                             .ns = work->seconds * 1e9 / c->hosts->host[host].speed + wake};
    if (c->line) echi_watch_asked(c, id);
    uint32_t *link = &l->first;
    while (*link != ECHI_NOTHING) link = &work_at(c, *link)->next;
    *link = id;
    if (l->running == ECHI_NOTHING) choose(c, host);
    else if (work->urgency < work_at(c, l->running)->work.urgency) shorten(c, host);
}

void echi_cost_hold(struct echi_cost *c, int host, bool hold) {
    struct echi_cost_thread *l = &c->thread[host];
    if (c->dead[host]) return;
    l->held = hold;
    l->told = false;
    if (l->running == ECHI_NOTHING) choose(c, host);
    else if (hold && !work_at(c, l->running)->work.while_held) shorten(c, host);
}

double echi_cost_busy(const struct echi_cost *c, int host) {
    const struct echi_cost_thread *l = &c->thread[host];
    return (l->busy + (l->running != ECHI_NOTHING ? (double)(c->now - l->since) : 0)) * 1e-9;
}

bool echi_cost_held(const struct echi_cost *c, int host) { return !c->dead[host] && c->thread[host].held && c->thread[host].told; }

void echi_cost_steal(struct echi_cost *c, int host, int64_t ns) {
    struct echi_cost_used *q = echi_cost_quota(c, host);
    struct echi_cost_pool *p = pool_of(c, host);
    if (c->thread[host].running != ECHI_NOTHING) {   /* one that sleeps in between is in its way for a part of the time only */
        c->thread[host].debt += (double)ns * echi_least((double)takes(c, host) / ECHI_PROCESSOR, 1);
        return;
    }
    if (q) q->used += (double)ns;
    if (!p || crowd(c, p) <= 1) return;
    advance(c, p);
    p->clock -= (double)ns * ECHI_PROCESSOR / (double)p->active;
    expect_end(c, p);
}

void echi_cost_thread_kill(struct echi_cost *c, int host) {
    struct echi_cost_thread *l = &c->thread[host];
    struct echi_cost_pool *p = pool_of(c, host);
    set_state(c, host, ECHI_RESTS);
    l->running = ECHI_NOTHING;
    l->turn++;
    while (l->first != ECHI_NOTHING) forget(c, host, l->first);
    if (p) expect_end(c, p);
}
