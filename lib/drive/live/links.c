/* SPDX-License-Identifier: Apache-2.0
 * Links at the start: as the plan says; or measured: who meets whom, what is sent, and what it tells. */
#include "echi_links.h"
#include "echi_bytes.h"

#include <string.h>

#define ENOUGH INT64_C(300000000)     /* ns of DATA */
#define PATIENCE INT64_C(5000000000)  /* ns in which nothing comes from the partner: then without it */
#define ROUND_TRIP_MOST 1e6           /* seconds */
#define QUEUED_MOST 64                /* messages in our own queue */
#define A_GOT 8u                      /* DATA for each GOT */
#define AHEAD 16u
#define DATA_ON_WIRE (ECHI_LINKS_BYTES + ECHI_LINKS_OVERHEAD)   /* bytes */

enum step { READY, DATA, GOT, STOP, LAST, RATE, GIVEN, PING, PONG, STEPS };
/* Bytes of each. */
static const size_t bytes_of[STEPS] = {[READY] = 1, [DATA] = ECHI_LINKS_BYTES, [GOT] = 1, [STOP] = 1, [LAST] = 1,
                                       [RATE] = 1 + 3 * sizeof(double), [GIVEN] = 1 + ECHI_LINK_BYTES, [PING] = 1, [PONG] = 1 + 8};

/* A round-robin tournament by the circle method: one stands still, and the others move on by one place each round. -1: nobody. */
static int partner_of(int rank, int world, int round) {
    const int last = world - 1 + world % 2;   /* the one that stands still; with an odd number of nodes nobody */
    int other;
    if (rank == last) for (other = 0; (2 * other - round) % last != 0;) other++;
    else other = ((round - rank) % last + last) % last;
    if (rank != last && other == rank) other = last;
    return other < world ? other : -1;
}

static int rounds_of(const struct echi_links *l) {
    const int all = l->world - 1 + l->world % 2;
    return l->pairs || all < ECHI_LINKS_ROUNDS ? all : ECHI_LINKS_ROUNDS;
}

static uint32_t pings_of(const struct echi_links *l) { return l->pairs ? ECHI_LINKS_PINGS : ECHI_LINKS_RUN_PINGS; }

static void enter(struct echi_links *l, int round, int64_t now) {
    l->round = round;
    l->over = !l->measures || l->told || round == rounds_of(l);
    l->partner = l->over ? -1 : partner_of(l->rank, l->world, round);
    l->heard = now;
    l->said_ready = l->said_last = l->said_stop = l->said_rate = false;
    l->stop = l->came_last = l->knows_out = false;
    l->pings = l->pongs = l->pinged = l->answered = 0;
    l->sent = l->gots = l->said_gots = l->came = 0;
}

/* Rank 0 has spoken: this node's link is as given, or to be measured. */
static void begin_rounds(struct echi_links *l, const struct echi_link *given, int64_t now) {
    l->heard_given = true;
    l->told = echi_link_known(given);
    if (l->told) l->link = *given;
    if (l->began) enter(l, 0, now);
}

void echi_links_begin(struct echi_links *l, int rank, int world, bool measures, int64_t now) {
    l->began = true;
    l->rank = rank;
    l->world = world;
    l->measures = measures;
    l->partner = -1;
    l->tells = rank == 0 ? 1 : world;
    if (rank == 0) begin_rounds(l, &l->given[0], now);
    else if (l->heard_given) enter(l, 0, now);
}

void echi_links_lost(struct echi_links *l, int peer) {
    if (l->began && !l->over && peer >= 0 && peer == l->partner) enter(l, l->round + 1, l->heard);
}

/* From message `first` on, behind it, to the last; 0: faster than can be told. */
static double rate_from(const struct echi_links *l, uint32_t first) {
    const uint32_t last = l->came - 1;
    const int64_t ns = l->at[last] - l->at[first];
    return ns > 0 ? (double)(last - first) * DATA_ON_WIRE * 1e9 / (double)ns : 0;
}

/* Of the last half. A receiver with a share of a processor may have stood still before that, and found the rest waiting: then it is less
 * of all but the beginning, with the burst, that counts. The other of the two is the highest that was seen. */
static struct echi_rate rate_in(const struct echi_links *l) {
    if (l->came < 8) return (struct echi_rate){0};
    const double half = rate_from(l, l->came / 2), most = rate_from(l, l->came / 8), rate = most < half ? most : half;
    return rate > 0 ? (struct echi_rate){rate, rate, most < half ? half : most} : (struct echi_rate){0};
}

/* With one partner more. */
static void widen(struct echi_rate *r, struct echi_rate seen) {
    if (seen.rate == 0) return;
    if (r->rate == 0) r->lowest = seen.lowest;
    if (seen.lowest < r->lowest) r->lowest = seen.lowest;
    if (seen.rate > r->rate) r->rate = seen.rate;
    if (seen.highest > r->highest) r->highest = seen.highest;
}

static bool hear_pong(struct echi_links *l, uint64_t clock, int64_t now) {
    struct echi_links_pair *pair = l->pairs ? &l->pairs[l->partner] : NULL;
    const int64_t way = now - l->ping_at;
    const double seconds = (double)(way > 0 ? way : 1) * 1e-9;
    if (l->pongs == l->pings || clock > INT64_MAX) return false;
    if (l->round_trip == 0 || seconds < l->round_trip) l->round_trip = seconds;
    if (pair && (l->pongs == 0 || seconds < pair->round_trip)) {
        pair->round_trip = seconds;
        pair->offset = ((double)clock - (double)(l->ping_at + l->wall)) * 1e-9 - seconds / 2;
    }
    l->pongs++;
    return true;
}

static bool hear_rate(struct echi_links *l, struct echi_reader *r) {
    const double rate = echi_get_f64(r), highest = echi_get_f64(r), theirs = echi_get_f64(r);
    const struct echi_rate seen = {rate, rate, highest};
    if (!r->ok || !echi_rate_valid(&seen) || !(theirs >= 0 && theirs <= ROUND_TRIP_MOST)) return false;
    if (theirs > 0 && (l->theirs == 0 || theirs < l->theirs)) l->theirs = theirs;
    l->knows_out = true;
    widen(&l->link.out, seen);
    if (l->pairs) l->pairs[l->partner].out = seen;
    return true;
}

/* Of the partner, in the round under way. */
static bool hear_partner(struct echi_links *l, enum step step, struct echi_reader *r, int64_t now) {
    switch (step) {
    case DATA:
        if (l->came == ECHI_LINKS_FRAMES || l->came_last) return false;
        l->at[l->came++] = now;
        l->moved += DATA_ON_WIRE;
        return true;
    case GOT:
        if (A_GOT * (l->gots + 1) > l->sent) return false;
        l->gots++;
        return true;
    case STOP: return l->stop = true;
    case LAST:
        if (l->came_last) return false;
        l->came_last = true;
        widen(&l->link.in, rate_in(l));
        if (l->pairs) l->pairs[l->partner].in = rate_in(l);
        return true;
    case RATE: return hear_rate(l, r);
    case PING:
        if (l->pinged == pings_of(l)) return false;
        l->pinged++;
        return true;
    case PONG: return hear_pong(l, echi_get64(r), now);
    case READY: return true;
    case GIVEN:
    case STEPS: break;
    }
    return false;
}

static bool hear_given(struct echi_links *l, struct echi_reader *r, int64_t now) {
    struct echi_link given;
    if (l->heard_given || !echi_link_get(r, &given)) return false;
    begin_rounds(l, &given, now);
    return true;
}

bool echi_links_hear(struct echi_links *l, int peer, const uint8_t *body, size_t len, int64_t now) {
    if (len < 1 || body[0] >= STEPS || len != bytes_of[body[0]] || peer < 0 || peer >= ECHI_WORLD_MAX) return false;
    struct echi_reader r = echi_reader_over(body + 1, len - 1);
    const enum step step = (enum step)body[0];
    if (step == GIVEN) return peer == 0 && hear_given(l, &r, now);
    if (step == READY) l->is_ready[peer] = true;
    if (!l->began || l->over || peer != l->partner) return true;
    if (!hear_partner(l, step, &r, now)) return false;
    l->heard = now;
    return true;
}

static bool say_step(enum step step, uint8_t *body, size_t *out_len) {
    body[0] = (uint8_t)step;
    *out_len = bytes_of[step];
    return true;
}

static bool say(bool *said, enum step step, uint8_t *body, size_t *out_len) {
    *said = true;
    return say_step(step, body, out_len);
}

/* Round trips, one after the other. False: there is nothing to say just now. */
static bool next_ping(struct echi_links *l, int64_t now, uint8_t *body, size_t *out_len) {
    if (l->answered < l->pinged) {
        struct echi_writer w = echi_writer_over(body + 1, sizeof(uint64_t));
        l->answered++;
        echi_put64(&w, (uint64_t)(now + l->wall));
        return say_step(PONG, body, out_len);
    }
    if (l->pings == pings_of(l) || l->pings > l->pongs) return false;
    l->pings++;
    l->ping_at = now;
    return say_step(PING, body, out_len);
}

static bool has_pinged(const struct echi_links *l) {
    return l->pongs == pings_of(l) && l->answered == pings_of(l);
}

/* Of the round under way. */
static bool next_here(struct echi_links *l, int64_t now, int queued, uint8_t *body, size_t *out_len) {
    if (!l->said_ready) return say(&l->said_ready, READY, body, out_len);
    if (!l->is_ready[l->partner]) return false;
    if (!has_pinged(l)) return next_ping(l, now, body, out_len);
    if (!l->said_stop && l->came > 0 && now - l->at[0] >= ENOUGH) return say(&l->said_stop, STOP, body, out_len);
    if (l->said_gots < l->came / A_GOT && !l->came_last) {
        l->said_gots++;
        return say_step(GOT, body, out_len);
    }
    if (l->came_last && !l->said_rate) {
        struct echi_writer w = echi_writer_over(body + 1, 3 * sizeof(double));
        const struct echi_rate found = rate_in(l);
        echi_put_f64(&w, found.rate);
        echi_put_f64(&w, found.highest);
        echi_put_f64(&w, l->round_trip);
        return say(&l->said_rate, RATE, body, out_len);
    }
    if (l->said_last) return false;
    if (l->stop || l->sent == ECHI_LINKS_FRAMES) return say(&l->said_last, LAST, body, out_len);
    if (queued >= QUEUED_MOST || l->sent >= AHEAD + 2 * A_GOT * l->gots) return false;
    l->sent++;
    l->moved += DATA_ON_WIRE;
    memset(body, 0, ECHI_LINKS_BYTES);
    return say_step(DATA, body, out_len);
}

double echi_links_delay(const struct echi_links *l, double message) {
    const double theirs = l->theirs > 0 ? l->theirs : l->round_trip, own = l->round_trip / 2 - theirs / 4 - message;
    return l->round_trip > 0 && own > 0 ? own : 0;
}

static void put_given(const struct echi_link *link, uint8_t *body, size_t *out_len) {
    struct echi_writer w = echi_writer_over(body + 1, ECHI_LINK_BYTES);
    echi_link_put(&w, link);
    say_step(GIVEN, body, out_len);
}

bool echi_links_next(struct echi_links *l, int64_t now, int queued, int *out_peer, uint8_t body[ECHI_LINKS_BYTES], size_t *out_len) {
    if (l->began && l->tells < l->world) {
        *out_peer = l->tells++;
        put_given(&l->given[*out_peer], body, out_len);
        return true;
    }
    if (!l->heard_given) return false;
    while (l->began && !l->over) {
        *out_peer = l->partner;
        if (l->partner >= 0 && next_here(l, now, queued, body, out_len)) return true;
        const bool done = l->partner < 0 || (l->said_rate && l->knows_out);
        if (!done && now - l->heard < PATIENCE) return false;
        if (l->partner >= 0) l->is_ready[l->partner] = false;
        enter(l, l->round + 1, now);
    }
    return false;
}
