/* SPDX-License-Identifier: Apache-2.0
 * Messages of a play on links, as TCP carries them: out in turns.
 *
 * A way out serves the hosts for which something waits in turns. A turn is what the kernel queues for one connection before another
 * gets its chance (Linux, tcp_small_queue_check): two segments of 64 KiB, or what it sends in about a millisecond, at a pace that is up
 * to 2.89 times the link's while it looks for the rate (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5),
 * 2016). So on a fast link messages leave one after the other, and on a slow one those to several hosts leave side by side. Weights
 * that do so come late to all, and the pushes after them do not overlap with the rest: LeNet-5, BSP, four hosts, images/s predicted
 * without turns and measured: 742 and 560 at 100 Mb/s, 6,760 and 6,726 at 1 Gb/s. Of a large message a turn is an eighth: that comes to
 * the same at less cost.
 *
 * The way in takes one message after the other, in the order in which they begin to leave; TCP would share it, which fills it as well.
 * A message is there when it has left, has come in, and the delays of both ends have passed. */
#include "echi_predict_impl.h"
#include "echi_cost.h"

#include <string.h>

#define TURN (2 * 65536)
#define TURN_SECONDS 2.89e-3
#define TURNS_MOST 8
/* Bytes of a message without a payload, about. They queue for nothing but what the switch holds. */
#define CONTROL 128
#define NONE UINT16_MAX

void echi_predict_links(struct echi_play *p) {
    for (int r = 0; r < p->plan->world; r++) p->link[r] = (struct echi_play_link){.first = NONE, .last = NONE};
    memset(p->due_place, 0xff, sizeof p->due_place);
    p->spare = NONE;
}

/* ---- turns that end: a heap with one place for each host, the earliest first ---- */

static void put(struct echi_play *p, int i, struct echi_play_due d) {
    p->due[i] = d;
    p->due_place[d.host] = (uint16_t)i;
}

/* To its place, from a hole at i. */
static void settle(struct echi_play *p, int i, struct echi_play_due d) {
    for (; i > 0 && d.at < p->due[(i - 1) / 2].at; i = (i - 1) / 2) put(p, i, p->due[(i - 1) / 2]);
    for (int child; (child = 2 * i + 1) < p->n_due; i = child) {
        if (child + 1 < p->n_due && p->due[child + 1].at < p->due[child].at) child++;
        if (p->due[child].at >= d.at) break;
        put(p, i, p->due[child]);
    }
    put(p, i, d);
}

static void due(struct echi_play *p, int host, double at) {
    const int i = p->due_place[host] == NONE ? p->n_due++ : p->due_place[host];
    settle(p, i, (struct echi_play_due){at, (uint16_t)host});
}

static void due_never(struct echi_play *p, int host) {
    const uint16_t i = p->due_place[host];
    if (i == NONE) return;
    p->due_place[host] = NONE;
    const struct echi_play_due moved = p->due[--p->n_due];
    if (i < p->n_due) settle(p, i, moved);
}

/* ---- messages under way ---- */

static double rate_out(const struct echi_play *p, int host) { return p->times[host].link.out.rate; }
static double rate_in(const struct echi_play *p, int host) { return p->times[host].link.in.rate; }
static double delay_of(const struct echi_play *p, int from, int to) { return p->times[from].delay + p->times[to].delay; }

bool echi_predict_link_busy(const struct echi_play *p, int host) { return p->link[host].first != NONE; }

static uint16_t new_flow(struct echi_play *p) {
    const uint16_t id = p->spare;
    if (id == NONE) return p->n_flows++;
    p->spare = p->flow[id].next;
    return id;
}

/* Its first byte leaves: it comes in behind those of others that began before. */
static void begin_in(struct echi_play *p, uint16_t id) {
    struct echi_play_flow *f = &p->flow[id];
    struct echi_play_link *l = &p->link[f->to];
    f->begun = true;
    if (rate_in(p, f->to) <= 0) return;
    l->in_until = (l->in_until > p->now ? l->in_until : p->now) + f->bytes / rate_in(p, f->to);
    f->in_at = l->in_until;
}

/* ---- the way out ---- */

static double turn_of(const struct echi_play *p, const struct echi_play_flow *f) {
    const double part = f->bytes / TURNS_MOST, paced = TURN_SECONDS * rate_out(p, f->from), least = paced > TURN ? paced : TURN;
    return part > least ? part : least;
}

static void expect_out(struct echi_play *p, int host) {
    const struct echi_play_link *l = &p->link[host];
    due(p, host, l->began + l->stretch / rate_out(p, host));
}

/* The first's turn, or all of it while nothing else waits. */
static void take_turn(struct echi_play *p, int host) {
    struct echi_play_link *l = &p->link[host];
    const uint16_t id = l->first;
    if (id == NONE) return due_never(p, host);
    struct echi_play_flow *f = &p->flow[id];
    const double turn = turn_of(p, f);
    l->began = p->now;
    l->stretch = f->next == NONE || f->leaves < turn ? f->leaves : turn;
    expect_out(p, host);
    if (!f->begun) begin_in(p, id);
}

/* Another waits: what leaves alone gives way at the end of its turn. */
static void give_way(struct echi_play *p, int host) {
    struct echi_play_link *l = &p->link[host];
    const double turn = turn_of(p, &p->flow[l->first]), so_far = (p->now - l->began) * rate_out(p, host);
    const double end = ((double)(uint64_t)(so_far / turn) + 1) * turn;
    if (end >= l->stretch) return;
    l->stretch = end;
    expect_out(p, host);
}

static void last(struct echi_play *p, int host, uint16_t id) {
    struct echi_play_link *l = &p->link[host];
    p->flow[id].next = NONE;
    if (l->first == NONE) l->first = id;
    else p->flow[l->last].next = id;
    l->last = id;
}

static void has_left(struct echi_play *p, uint16_t id) {
    struct echi_play_flow *f = &p->flow[id];
    if (f->sent != ECHI_PLAY_NOTHING) echi_predict_tell(p, p->now, (enum echi_play_what)f->sent, f->sent_who, f->flight_sent);
    echi_predict_tell(p, (f->in_at > p->now ? f->in_at : p->now) + delay_of(p, f->from, f->to), (enum echi_play_what)f->arrives, f->who,
                      f->flight);
    f->next = p->spare;
    p->spare = id;
}

static void leave(struct echi_play *p, int host) {
    struct echi_play_link *l = &p->link[host];
    const uint16_t id = l->first;
    struct echi_play_flow *f = &p->flow[id];
    f->leaves -= l->stretch;
    l->first = f->next;
    if (f->leaves > 0) last(p, host, id);
    else has_left(p, id);
    take_turn(p, host);
    if (l->first == NONE) echi_predict_idle(p, host);
}

/* ---- messages ---- */

void echi_predict_link(struct echi_play *p) {
    p->now = p->due[0].at;
    leave(p, p->due[0].host);
}

/* Its time is the delay, and behind what a switch holds. */
void echi_predict_word(struct echi_play *p, int from, int to, double at, enum echi_play_what arrives, int who) {
    if (from == to) return echi_predict_tell(p, at, arrives, who, 0);
    const double out = rate_out(p, from), in = rate_in(p, to);
    double wait = (out > 0 ? CONTROL / out : 0) + (in > 0 ? CONTROL / in : 0);
    if (in > 0 && p->link[to].in_until > at) {
        const double held = p->link[to].in_until - at, most = ECHI_COST_BUFFER / in;
        wait += held < most ? held : most;
    }
    echi_predict_tell(p, at + wait + delay_of(p, from, to), arrives, who, 0);
}

void echi_predict_carry(struct echi_play *p, int from, int to, double bytes, const struct echi_play_note *note) {
    const bool bound = bytes > 0 && (rate_out(p, from) > 0 || rate_in(p, to) > 0);
    if (from == to || !bound) {
        if (note->sent != ECHI_PLAY_NOTHING) echi_predict_tell(p, p->now, note->sent, note->sent_who, note->sent_flight);
        echi_predict_tell(p, p->now + (from == to ? 0 : delay_of(p, from, to)), note->arrives, note->who, note->flight);
        return;
    }
    const uint16_t id = new_flow(p);
    p->flow[id] = (struct echi_play_flow){.bytes = bytes, .leaves = bytes, .from = (uint16_t)from, .to = (uint16_t)to,
        .arrives = (uint8_t)note->arrives, .who = (uint16_t)note->who, .flight = (uint8_t)note->flight,
        .sent = (uint8_t)note->sent, .sent_who = (uint16_t)note->sent_who, .flight_sent = (uint8_t)note->sent_flight};
    if (rate_out(p, from) <= 0) {   /* it leaves at once */
        begin_in(p, id);
        has_left(p, id);
        return;
    }
    const bool idle = !echi_predict_link_busy(p, from);
    last(p, from, id);
    if (idle) take_turn(p, from);
    else give_way(p, from);
}
