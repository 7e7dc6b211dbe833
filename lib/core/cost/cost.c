/* SPDX-License-Identifier: Apache-2.0
 * The cost engine: virtual time, and what is due. */
#include "echi_cost_impl.h"

#include <string.h>

/* What is due at once need not be sorted: of this moment all that was added before it came is in the heap and goes first, and what is added
 * now follows in that order. On links without a delay that is half of all. */
static void add_at_once(struct echi_cost *c, struct echi_due due) {
    const uint32_t id = echi_cost_new(c, &c->at_once);
    if (id == ECHI_NOTHING) return;
    *(struct echi_at_once *)echi_records_at(&c->at_once, id) = (struct echi_at_once){due, ECHI_NOTHING};
    if (c->first_at_once == ECHI_NOTHING) c->first_at_once = id;
    else ((struct echi_at_once *)echi_records_at(&c->at_once, c->last_at_once))->next = id;
    c->last_at_once = id;
}

static bool take_due(struct echi_cost *c, struct echi_due *out) {
    const struct echi_due *first = echi_events_first(&c->events);
    const uint32_t id = c->first_at_once;
    if (id == ECHI_NOTHING || (first && first->at <= c->now)) return echi_events_take(&c->events, out);
    const struct echi_at_once *soon = echi_records_at(&c->at_once, id);
    *out = soon->due;
    c->first_at_once = soon->next;
    echi_records_give(&c->at_once, id);
    return true;
}

void echi_cost_due(struct echi_cost *c, int64_t at, enum echi_cost_due kind, uint32_t who, uint64_t what) {
    if (at <= c->now) add_at_once(c, (struct echi_due){.at = c->now, .kind = kind, .who = who, .what = what});
    else if (!echi_events_add(&c->events, at, kind, who, what)) c->failed = true;
}

uint32_t echi_cost_new(struct echi_cost *c, struct echi_records *pool) {
    const uint32_t id = echi_records_take(pool);
    if (id == ECHI_NOTHING) c->failed = true;
    return id;
}

double echi_spells(const struct echi_spell *spell, int count, int64_t now) {
    const double at = (double)now * 1e-9;
    double factor = 1;
    for (int i = 0; i < count; i++)
        if (at >= spell[i].from && at < spell[i].until) factor *= spell[i].factor;
    return factor;
}

static void *zeroed(struct echi_cost *c, size_t count, size_t size) {
    void *block = c->supply.resize(c->supply.self, NULL, count * size);
    if (block) memset(block, 0, count * size);
    return block;
}

/* Of one core: a host with a quota that shares no others. */
static bool has_own_pool(const struct echi_host *h) { return h->quota > 0 && h->cores < 0; }

struct echi_cost *echi_cost_create(const struct echi_hosts *hosts, struct echi_cost_io io, const double *io_speed, uint64_t seed,
                                   struct echi_supply supply) {
    const size_t n = (size_t)hosts->count;
    struct echi_cost *c = supply.resize(supply.self, NULL, sizeof *c);
    if (!c) return NULL;
    *c = (struct echi_cost){.hosts = hosts, .supply = supply, .seed = seed, .now = 1, .events = {.supply = supply},
                            .first_at_once = ECHI_NOTHING};
    echi_records_init(&c->works, sizeof(struct echi_work_out), supply);
    echi_records_init(&c->parcels, sizeof(struct echi_parcel), supply);
    echi_records_init(&c->at_once, sizeof(struct echi_at_once), supply);
    c->dead = zeroed(c, n, sizeof *c->dead);
    c->thread = zeroed(c, n, sizeof *c->thread);
    c->link = zeroed(c, n, sizeof *c->link);
    bool losses = false, quotas = false;
    c->pools = hosts->pools;
    for (size_t h = 0; h < n; h++) {
        losses = losses || hosts->host[h].loss > 0;
        quotas = quotas || hosts->host[h].quota > 0;
        c->spells = c->spells || hosts->host[h].n_slow > 0 || hosts->host[h].n_thin > 0;
        c->pools += has_own_pool(&hosts->host[h]);
    }
    c->pool = zeroed(c, (size_t)c->pools + 1, sizeof *c->pool);
    if (quotas) c->quota = zeroed(c, n, sizeof *c->quota);
    if (losses) c->in_order = zeroed(c, n * n, sizeof *c->in_order);
    if (!c->dead || !c->thread || !c->link || !c->pool || (losses && !c->in_order) || (quotas && !c->quota)) {
        echi_cost_destroy(c);
        return NULL;
    }
    for (int p = 0; p < c->pools; p++) c->pool[p].ends.supply = supply;
    for (int h = 0, pool = hosts->pools; h < hosts->count; h++) {
        echi_cost_thread_create(c, h, has_own_pool(&hosts->host[h]) ? pool++ : hosts->host[h].cores);
        echi_cost_link_create(c, h, io, io_speed ? io_speed[h] : hosts->host[h].speed);
    }
    return c;
}

void echi_cost_destroy(struct echi_cost *c) {
    if (!c) return;
    const struct echi_supply supply = c->supply;
    void *const blocks[] = {c->dead, c->thread, c->link, c->pool, c->in_order, c->quota, c};
    for (int p = 0; c->pool && p < c->pools; p++) echi_events_free(&c->pool[p].ends);
    echi_events_free(&c->events);
    echi_records_free(&c->works);
    echi_records_free(&c->parcels);
    echi_records_free(&c->at_once);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        if (blocks[i]) supply.resize(supply.self, blocks[i], 0);
}

int64_t echi_cost_now(const struct echi_cost *c) { return c->now; }
uint64_t echi_cost_events(const struct echi_cost *c) { return c->happened; }
bool echi_cost_failed(const struct echi_cost *c) { return c->failed; }

void echi_cost_timer(struct echi_cost *c, int64_t at, int host, uint64_t cookie) {
    echi_cost_due(c, at, ECHI_DUE_TIMER, (uint32_t)host, cookie);
}

static bool tell(struct echi_happening *out, enum echi_happening_type type, int host, uint64_t cookie) {
    *out = (struct echi_happening){.type = type, .host = host, .cookie = cookie};
    return true;
}

/* Does what is due; true when the caller is to know. */
static bool happen(struct echi_cost *c, const struct echi_due *due, struct echi_happening *out) {
    const int who = (int)due->who;
    switch ((enum echi_cost_due)due->kind) {
    case ECHI_DUE_TIMER:
        if (c->line) c->line->now = ECHI_NOTHING;
        return tell(out, ECHI_HAPPENS_TIMER, who, due->what);
    case ECHI_DUE_THREAD: return echi_cost_thread_due(c, who, (uint32_t)due->what, out);
    case ECHI_DUE_POOL: return echi_cost_pool_due(c, who, (uint32_t)due->what, out);
    case ECHI_DUE_PERIOD: echi_cost_period_due(c, who); return false;
    case ECHI_DUE_HELD: return echi_cost_held(c, who) && tell(out, ECHI_HAPPENS_HELD, who, 0);
    case ECHI_DUE_QUEUE: return echi_cost_link_queue(c, due->who, out);
    case ECHI_DUE_OUT: return echi_cost_link_out(c, who, (uint32_t)due->what, out);
    case ECHI_DUE_IN: echi_cost_link_in(c, due->who); return false;
    case ECHI_DUE_IN_PART: echi_cost_link_in_part(c, who, due->what, due->at); return false;
    case ECHI_DUE_ARRIVED: return echi_cost_link_arrived(c, due->who, out);
    case ECHI_DUE_SELF_SENT:
        if (c->line) c->line->now = c->line->host[who].self;
        return !c->dead[who] && tell(out, ECHI_HAPPENS_SENT, who, due->what);
    }
    return false;
}

bool echi_cost_next(struct echi_cost *c, struct echi_happening *out) {
    struct echi_due due;
    while (!c->failed && take_due(c, &due)) {
        c->now = due.at;
        c->happened++;
        if (happen(c, &due, out)) return true;
    }
    return false;
}

void echi_cost_kill(struct echi_cost *c, int host) {
    if (c->dead[host]) return;
    c->dead[host] = true;
    echi_cost_thread_kill(c, host);
    echi_cost_link_kill(c, host);
}
