/* SPDX-License-Identifier: Apache-2.0
 * Messages on links: out by urgency, across, in by arrival.
 *
 * A message is sent in one stretch. When something more urgent is queued behind it the stretch is made to end with the chunk in
 * hand; so chunks cost nothing while nobody is in a hurry.
 *
 * The way in takes bytes / rate for each message. It may begin when the first byte is there, but a sender that is slower than the
 * way in does not occupy it while it sends: its message counts as coming in at the full rate at the very end, so that many slow
 * senders fill a fast way in. */
#include "echi_cost_impl.h"
#include "echi_random.h"

#define TIMEOUT INT64_C(200000000)   /* of TCP, in ns: the least that Linux waits before it sends again */
#define LOSSES_MOST 10               /* of one message in a row: then 3.4 minutes have passed */

void echi_cost_link_create(struct echi_cost *c, int host, struct echi_cost_io io, double io_speed) {
    struct echi_cost_link *l = &c->link[host];
    const struct echi_host *h = &c->hosts->host[host];
    l->first = l->sending = ECHI_NOTHING;
    l->queued_at = l->cpu_free = -(int64_t)(ECHI_NEVER / 2);
    l->ns_per_byte = l->in_ns_per_byte = h->rate > 0 ? 1e9 / h->rate : 0;
    l->ns_per_message = io.message * 1e9 / io_speed;
    l->ns_per_copy = io.byte * 1e9 / io_speed;
}

void echi_cost_set_link(struct echi_cost *c, int host, double rate_in, struct echi_cost_io io) {
    struct echi_cost_link *l = &c->link[host];
    l->in_ns_per_byte = rate_in > 0 ? 1e9 / rate_in : 0;
    l->ns_per_message = io.message * 1e9;
    l->ns_per_copy = io.byte * 1e9;
}

bool echi_cost_has_carried(const struct echi_cost *c, int host, double least) {
    const struct echi_carried *carried = c->link[host].carried;
    return carried[0].ns >= least * 1e9 || carried[1].ns >= least * 1e9;
}

bool echi_cost_carried(struct echi_cost *c, int host, bool in, double least, double *out_bytes, double *out_seconds) {
    struct echi_carried *carried = &c->link[host].carried[in];
    if (carried->ns < least * 1e9) return false;
    *out_bytes = carried->bytes;
    *out_seconds = carried->ns * 1e-9;
    *carried = (struct echi_carried){0};
    return true;
}

double echi_cost_moved(const struct echi_cost *c, int host, bool in) { return c->link[host].moved[in]; }

/* How many times as long its bytes take now. */
static double thin(const struct echi_cost *c, int host) {
    return !c->spells ? 1 : echi_spells(c->hosts->host[host].thin, c->hosts->host[host].n_thin, c->now);
}

/* ns on the way in. */
static int64_t taking(const struct echi_cost *c, int host, double bytes) {
    return echi_round(bytes * c->link[host].in_ns_per_byte * thin(c, host));
}

static void carry(struct echi_carried *carried, uint64_t bytes, int64_t ns) {
    carried->bytes += (double)bytes;
    carried->ns += (double)ns;
}

int64_t echi_cost_delay(const struct echi_cost *c, int from, int to) {
    return from == to ? 0 : echi_round((c->hosts->host[from].delay + c->hosts->host[to].delay) * 1e9);
}

static struct echi_parcel *parcel_at(const struct echi_cost *c, uint32_t id) { return echi_records_at(&c->parcels, id); }

/* The part of a message's cost that it has at a host whose I/O thread has taken one in, or queued one, so long ago: all of it after as long
 * as one takes. */
static double waking(const struct echi_cost *c, const struct echi_cost_link *l) {
    const double idle = (double)(c->now - (l->cpu_free > l->queued_at ? l->cpu_free : l->queued_at));
    if (idle >= l->ns_per_message) return 1;
    return idle <= 0 ? ECHI_COST_AWAKE : ECHI_COST_AWAKE + (1 - ECHI_COST_AWAKE) * idle / l->ns_per_message;
}

static int64_t processor(const struct echi_cost_link *l, const struct echi_parcel *p, double part) {
    return echi_round((p->follows ? 0 : part * l->ns_per_message) + l->ns_per_copy * (double)p->bytes);
}

/* ---------------------------------------------------------------- way out */

static void expect_out(struct echi_cost *c, int host) {
    struct echi_cost_link *l = &c->link[host];
    l->turn++;
    echi_cost_due(c, l->began + echi_round((double)l->stretch * l->pace), ECHI_DUE_OUT, (uint32_t)host, l->turn);
}

/* For as long as the host has stood still what is being sent takes longer, as if it had begun later. True if it has; what is less than
 * a few packets take waits for the next time. */
#define STOOD_LEAST 1e4   /* ns */
static bool stood_still(struct echi_cost *c, int host) {
    struct echi_cost_link *l = &c->link[host];
    const struct echi_cost_used *q = echi_cost_quota(c, host);
    const double stood = q ? q->stood - l->stood : 0;
    if (stood < STOOD_LEAST) return false;
    l->began += echi_round(stood);
    l->stood = q->stood;
    return true;
}

static void start(struct echi_cost *c, int host) {
    struct echi_cost_link *l = &c->link[host];
    if (l->first == ECHI_NOTHING) return;
    const struct echi_parcel *p = parcel_at(c, l->first);
    l->sending = l->first;
    if (p->run_last != l->sending) parcel_at(c, p->next)->run_last = p->run_last;
    l->first = p->next;
    stood_still(c, host);   /* before it began */
    l->began = c->now;
    l->pace = l->ns_per_byte * thin(c, host);
    l->stretch = p->left;
    expect_out(c, host);
    if (c->line) echi_watch_leaves(c, p);
}

/* What is being sent gives way at the end of the chunk in hand. */
static void give_way(struct echi_cost *c, int host) {
    struct echi_cost_link *l = &c->link[host];
    if (l->pace <= 0) return;
    stood_still(c, host);
    const int64_t chunks = echi_round_up((double)(c->now - l->began) / l->pace / ECHI_COST_CHUNK);
    const uint64_t end = (chunks < 1 ? 1 : (uint64_t)chunks) * ECHI_COST_CHUNK;
    if (end >= l->stretch) return;
    l->stretch = end;
    expect_out(c, host);
}

/* Behind all that are more urgent; of equals the first, or the last. A queue may be of a thousand messages, but has few priorities: it
 * steps from the last of one to the first of the next. */
static void insert(struct echi_cost *c, uint32_t id, bool before_equals) {
    struct echi_parcel *p = parcel_at(c, id);
    uint32_t *link = &c->link[p->from].first;
    struct echi_parcel *first = NULL;   /* of a priority */
    p->run_last = id;
    while (*link != ECHI_NOTHING && (first = parcel_at(c, *link))->priority < p->priority) link = &parcel_at(c, first->run_last)->next;
    if (*link != ECHI_NOTHING && first->priority == p->priority) {
        if (before_equals) {
            p->run_last = first->run_last;
        } else {
            link = &parcel_at(c, first->run_last)->next;
            first->run_last = id;
        }
    }
    p->next = *link;
    *link = id;
}

static void enqueue(struct echi_cost *c, uint32_t id) {
    struct echi_parcel *p = parcel_at(c, id);
    struct echi_cost_link *l = &c->link[p->from];
    p->follows = l->queued_to == 1 + p->to && l->queued_at == c->now;
    p->waking = waking(c, l);
    l->queued_to = 1 + p->to;
    l->queued_at = c->now;
    insert(c, id, false);
    if (l->sending == ECHI_NOTHING) start(c, p->from);
    else if (p->priority < parcel_at(c, l->sending)->priority) give_way(c, p->from);
}

void echi_cost_send(struct echi_cost *c, int from, int to, int priority, uint64_t bytes, int64_t not_before, uint64_t cookie) {
    if (c->dead[from]) return;
    const uint32_t id = echi_cost_new(c, &c->parcels);
    if (id == ECHI_NOTHING) return;
    *parcel_at(c, id) = (struct echi_parcel){.cookie = cookie, .bytes = bytes, .left = bytes, .from = (uint16_t)from, .to = (uint16_t)to,
        .priority = (uint16_t)(priority < UINT16_MAX ? priority : UINT16_MAX)};
    if (c->line) parcel_at(c, id)->line = c->line->now;
    if (from != to && not_before <= c->now) return enqueue(c, id);
    echi_cost_due(c, not_before, ECHI_DUE_QUEUE, id, 0);
}

bool echi_cost_link_queue(struct echi_cost *c, uint32_t id, struct echi_happening *out) {
    const struct echi_parcel *p = parcel_at(c, id);
    const bool self = p->from == p->to;
    if (c->line) c->line->now = p->line;
    if (!self && !c->dead[p->from]) {
        enqueue(c, id);
        return false;
    }
    *out = (struct echi_happening){.type = ECHI_HAPPENS_ARRIVED, .host = p->to, .cookie = p->cookie};
    const bool there = !c->dead[p->from];
    if (there) echi_cost_due(c, c->now, ECHI_DUE_SELF_SENT, p->from, p->cookie);
    if (c->line) c->line->host[p->to].self = p->line;
    echi_records_give(&c->parcels, id);
    return there;
}

/* ----------------------------------------------------------------- across */

/* What losses cost this message, in ns. */
static int64_t losses(struct echi_cost *c, const struct echi_parcel *p) {
    if (!c->in_order) return 0;
    const double lost = 1 - (1 - c->hosts->host[p->from].loss) * (1 - c->hosts->host[p->to].loss);
    const uint64_t number = c->link[p->from].sent++;
    int64_t wait = 0;
    if (lost <= 0) return 0;
    for (int i = 0; i < LOSSES_MOST; i++) {
        uint32_t word[4];
        echi_random4(c->seed, ECHI_STREAM_LOSS, p->from, number * LOSSES_MOST + (uint64_t)i, word);
        if (word[0] * 0x1p-32 >= lost) break;
        wait += TIMEOUT << i;
    }
    return wait;
}

/* When a stretch that has just left is to come in, `across` ns later, if nothing is before it. */
static int64_t entry_of(const struct echi_cost *c, const struct echi_parcel *p, uint64_t bytes, int64_t across) {
    const int64_t first_byte = c->link[p->from].began + across;
    const int64_t burst = c->now + across - taking(c, p->to, (double)bytes);
    return burst > first_byte ? burst : first_byte;
}

/* A stretch has left that is not the last of its message: it takes its time on the way in for itself, and arrives with the rest. */
static void leave_in_part(struct echi_cost *c, const struct echi_parcel *p, uint64_t bytes) {
    struct echi_cost_link *in = &c->link[p->to];
    const int64_t entry = entry_of(c, p, bytes, echi_cost_delay(c, p->from, p->to));
    if (in->in_ns_per_byte <= 0) return;
    if (c->line) echi_watch_part(c, p, entry);
    if (entry > c->now) echi_cost_due(c, entry, ECHI_DUE_IN_PART, p->to, bytes);
    else echi_cost_link_in_part(c, p->to, bytes, entry);
}

void echi_cost_link_in_part(struct echi_cost *c, int host, uint64_t bytes, int64_t entry) {
    struct echi_cost_link *l = &c->link[host];
    const int64_t own = taking(c, host, (double)bytes);
    carry(&l->carried[1], bytes, own);
    l->in_free = (l->in_free > entry ? l->in_free : entry) + own;
    if (c->line) echi_watch_part_in(c, host, l->in_free - own, l->in_free, entry);
}

/* The last byte has left. */
static void leave(struct echi_cost *c, uint32_t id) {
    struct echi_parcel *p = parcel_at(c, id);
    const struct echi_cost_link *in = &c->link[p->to];
    const int64_t across = echi_cost_delay(c, p->from, p->to) + losses(c, p);
    c->link[p->from].moved[0] += (double)p->bytes;
    p->least = c->now + across;
    p->entry = entry_of(c, p, p->part, across);
    if (c->in_order) {
        int64_t *before = &c->in_order[(size_t)p->from * (size_t)c->hosts->count + p->to];
        if (p->entry < *before) p->entry = *before;
        if (p->least < *before) p->least = *before;
        *before = p->least;
    }
    if (in->in_ns_per_byte <= 0) echi_cost_due(c, p->least, ECHI_DUE_ARRIVED, id, 0);
    else echi_cost_due(c, p->entry, ECHI_DUE_IN, id, 0);
}

bool echi_cost_link_out(struct echi_cost *c, int host, uint32_t turn, struct echi_happening *out) {
    struct echi_cost_link *l = &c->link[host];
    if (l->turn != turn) return false;
    if (l->pace > 0 && stood_still(c, host)) {
        expect_out(c, host);
        return false;
    }
    const uint32_t id = l->sending;
    struct echi_parcel *p = parcel_at(c, id);
    carry(&l->carried[0], l->stretch, c->now - l->began);
    p->left -= l->stretch;
    l->sending = ECHI_NOTHING;
    p->part = l->stretch;
    if (c->line) echi_watch_left(c, p);
    if (p->left > 0) {   /* the first again of its priority */
        leave_in_part(c, p, l->stretch);
        insert(c, id, true);
        start(c, host);
        return false;
    }
    *out = (struct echi_happening){.type = ECHI_HAPPENS_SENT, .host = host, .cookie = p->cookie};
    echi_cost_steal(c, host, processor(l, p, p->waking));
    leave(c, id);
    start(c, host);
    return true;
}

/* ----------------------------------------------------------------- way in */

void echi_cost_link_in(struct echi_cost *c, uint32_t id) {
    struct echi_parcel *p = parcel_at(c, id);
    struct echi_cost_link *l = &c->link[p->to];
    if (c->dead[p->to]) return echi_records_give(&c->parcels, id);
    const int64_t own = taking(c, p->to, (double)p->part);
    carry(&l->carried[1], p->part, own);
    int64_t begin = l->in_free > p->entry ? l->in_free : p->entry;
    l->in_free = begin + own;
    if (p->priority == 0) {   /* what it passes waits longer */
        const int64_t full = p->entry + taking(c, p->to, ECHI_COST_BUFFER), behind = l->urgent_free > full ? l->urgent_free : full;
        if (begin > behind) begin = behind;
        l->urgent_free = begin + own;
    }
    if (c->line) echi_watch_in(c, p, begin, begin + own);
    echi_cost_due(c, begin + own > p->least ? begin + own : p->least, ECHI_DUE_ARRIVED, id, 0);
}

/* It is whole; now it is the processor's, which takes one after the other. True while that is not done with it. */
static bool is_taken_in(struct echi_cost *c, uint32_t id) {
    struct echi_parcel *p = parcel_at(c, id);
    struct echi_cost_link *l = &c->link[p->to];
    if (p->taken || c->dead[p->to]) return false;
    const int64_t cpu = processor(l, p, waking(c, l));
    p->taken = true;
    if (cpu == 0 && l->cpu_free <= c->now) return false;
    const int64_t now = echi_cost_quota(c, p->to) ? echi_cost_quota_wait(c, p->to) : c->now;
    if (c->line) echi_watch_taken(c, p, l->cpu_free, (l->cpu_free > now ? l->cpu_free : now) + cpu);
    l->cpu_free = (l->cpu_free > now ? l->cpu_free : now) + cpu;
    echi_cost_steal(c, p->to, cpu);
    echi_cost_due(c, l->cpu_free, ECHI_DUE_ARRIVED, id, 0);
    return true;
}

bool echi_cost_link_arrived(struct echi_cost *c, uint32_t id, struct echi_happening *out) {
    if (is_taken_in(c, id)) return false;
    *out = (struct echi_happening){.type = ECHI_HAPPENS_ARRIVED, .host = parcel_at(c, id)->to, .cookie = parcel_at(c, id)->cookie};
    if (c->line) c->line->now = parcel_at(c, id)->line;
    c->link[out->host].moved[1] += (double)parcel_at(c, id)->bytes;
    echi_records_give(&c->parcels, id);
    return !c->dead[out->host];
}

void echi_cost_link_kill(struct echi_cost *c, int host) {
    struct echi_cost_link *l = &c->link[host];
    l->turn++;
    if (l->sending != ECHI_NOTHING) echi_records_give(&c->parcels, l->sending);
    l->sending = ECHI_NOTHING;
    for (uint32_t id = l->first, next; id != ECHI_NOTHING; id = next) {
        next = parcel_at(c, id)->next;
        echi_records_give(&c->parcels, id);
    }
    l->first = ECHI_NOTHING;
}
