/* SPDX-License-Identifier: Apache-2.0
 * Intervals in a ring, and what the cost engine tells of them: only where somebody watches. */
#include "echi_cost_impl.h"
#include "echi_timeline.h"

void echi_timeline_clear(struct echi_timeline *l, int hosts) {
    l->count = l->marks = 0;
    l->now = ECHI_NOTHING;
    l->parts = 0;
    l->from = l->to = 0;
    l->hosts = hosts;
    l->path = (struct echi_path){.rank = -1};
    for (int h = 0; h < hosts; h++)
        l->host[h].running = l->host[h].sending = l->host[h].in = l->host[h].io = l->host[h].self = ECHI_NOTHING;
}

uint32_t echi_timeline_first(const struct echi_timeline *l) { return l->count > l->capacity ? l->count - l->capacity : 0; }

struct echi_interval *echi_timeline_at(const struct echi_timeline *l, uint32_t number) {
    return number < l->count && number >= echi_timeline_first(l) ? &l->interval[number % l->capacity] : NULL;
}

uint32_t echi_timeline_add(struct echi_timeline *l, struct echi_interval interval) {
    l->interval[l->count % l->capacity] = interval;
    return l->count++;
}

void echi_timeline_mark(struct echi_timeline *l, int64_t now, int rank) {
    l->mark[l->marks++ % ECHI_LINE_MARKS] = (struct echi_line_mark){now, l->now, (uint16_t)rank};
}

void echi_cost_watch(struct echi_cost *c, struct echi_timeline *line) { c->line = line; }

/* ---- threads ---- */

void echi_watch_asked(struct echi_cost *c, uint32_t work) {
    if (work < ECHI_LINE_WORKS) c->line->asked[work] = c->line->now;
}

/* It begins because `before` has ended on the same resource. If that was less urgent `asked` let it begin, and that one delayed it. */
static uint32_t begin(struct echi_timeline *l, struct echi_interval i, uint32_t before, uint32_t asked) {
    const struct echi_interval *b = echi_timeline_at(l, before);
    const bool delayed = b && i.cause == before && asked != ECHI_NOTHING && b->urgency > i.urgency;
    i.blocker = delayed ? before : ECHI_NOTHING;
    if (delayed) i.cause = asked;
    return echi_timeline_add(l, i);
}

void echi_watch_begins(struct echi_cost *c, int host, uint32_t work, const struct echi_work *w, double part) {
    struct echi_timeline *l = c->line;
    const struct echi_interval i = {.from = c->now, .to = ECHI_UNDER_WAY, .cookie = w->cookie, .cause = l->now, .urgency = w->urgency,
                                    .begins = (float)part, .ends = (float)part, .host = (uint16_t)host, .other = (uint16_t)host,
                                    .on = ECHI_LINE_THREAD};
    l->host[host].running = begin(l, i, l->host[host].running, work < ECHI_LINE_WORKS ? l->asked[work] : ECHI_NOTHING);
}

void echi_watch_ends(struct echi_cost *c, int host, double part, double wake, double stolen) {
    struct echi_timeline *l = c->line;
    struct echi_interval *i = echi_timeline_at(l, l->host[host].running);
    l->now = l->host[host].running;
    if (!i) return;
    i->to = c->now;
    i->ends = (float)part;
    i->wake = (float)wake;
    i->stolen = (float)stolen;
}

/* ---- links ---- */

void echi_watch_leaves(struct echi_cost *c, const struct echi_parcel *p) {
    struct echi_timeline *l = c->line;
    const struct echi_interval i = {.from = c->now, .to = ECHI_UNDER_WAY, .cookie = p->cookie, .cause = l->now, .urgency = p->priority,
                                    .host = p->from, .other = p->to, .on = ECHI_LINE_OUT};
    l->host[p->from].sending = begin(l, i, l->host[p->from].sending, p->line);
}

void echi_watch_left(struct echi_cost *c, struct echi_parcel *p) {
    struct echi_timeline *l = c->line;
    struct echi_interval *i = echi_timeline_at(l, l->host[p->from].sending);
    if (i) i->to = c->now;
    p->line = l->now = l->host[p->from].sending;
}

/* Behind another it begins at that one's end; else when its first byte is there, or so late that it ends with its last. What is urgent and
 * passes others is not what the next one waits for. */
static uint32_t comes_in(struct echi_timeline *l, int host, uint32_t out, int64_t from, int64_t to, int64_t entry, int64_t across) {
    const struct echi_interval *left = echi_timeline_at(l, out), *before = echi_timeline_at(l, l->host[host].in);
    struct echi_interval i = {.from = from, .to = to, .cause = out, .lag = across, .blocker = ECHI_NOTHING, .host = (uint16_t)host,
                              .other = (uint16_t)host, .on = ECHI_LINE_IN};
    if (left) {
        i.cookie = left->cookie;
        i.other = left->host;
    }
    if (from > entry) {
        i.cause = l->host[host].in;
        i.lag = 0;
    }
    const uint32_t number = echi_timeline_add(l, i);
    if (!before || before->to <= from) l->host[host].in = number;
    return number;
}

void echi_watch_part(struct echi_cost *c, const struct echi_parcel *p, int64_t entry) {
    struct echi_timeline *l = c->line;
    if (l->parts == ECHI_LINE_PARTS) l->parts = 0;   /* of so many nobody knows any more where they came from */
    l->part[l->parts].entry = entry;
    l->part[l->parts].across = echi_cost_delay(c, p->from, p->to);
    l->part[l->parts].out = p->line;
    l->part[l->parts++].host = p->to;
}

void echi_watch_part_in(struct echi_cost *c, int host, int64_t from, int64_t to, int64_t entry) {
    struct echi_timeline *l = c->line;
    uint32_t out = ECHI_NOTHING;
    int64_t across = 0;
    for (int i = 0; i < l->parts && out == ECHI_NOTHING; i++) {
        if (l->part[i].host != host || l->part[i].entry != entry) continue;
        out = l->part[i].out;
        across = l->part[i].across;
        l->part[i] = l->part[--l->parts];
    }
    comes_in(l, host, out, from, to, entry, across);
}

/* The way in is what a message waits for if it has it later than its last byte is there. */
void echi_watch_in(struct echi_cost *c, struct echi_parcel *p, int64_t from, int64_t to) {
    const struct echi_interval *left = echi_timeline_at(c->line, p->line);
    const uint32_t in = comes_in(c->line, p->to, p->line, from, to, p->entry, left ? p->least - left->to : 0);
    if (to > p->least) p->line = in;
}

/* The processor takes it in, behind what it is with until `before`. */
void echi_watch_taken(struct echi_cost *c, struct echi_parcel *p, int64_t before, int64_t to) {
    struct echi_timeline *l = c->line;
    struct echi_interval i = {.from = c->now, .to = to, .cookie = p->cookie, .cause = p->line, .blocker = ECHI_NOTHING, .host = p->to,
                              .other = p->from, .on = ECHI_LINE_IO};
    if (before > c->now) {
        i.from = before;
        i.cause = l->host[p->to].io;
    }
    p->line = l->host[p->to].io = echi_timeline_add(l, i);
}
