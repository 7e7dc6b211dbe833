/* SPDX-License-Identifier: Apache-2.0
 * Links at the start: as the plan says; or measured: who meets whom, what is sent, and what it tells. */
#include "echi_links.h"
#include "echi_bytes.h"

#include <string.h>

#define ENOUGH INT64_C(300000000)     /* ns of DATA */
#define PATIENCE INT64_C(5000000000)  /* ns in which nothing comes from the partner: then without it */
#define QUEUED_MOST 64                /* messages in our own queue */
#define A_GOT 8u                      /* DATA for each GOT */
#define AHEAD 16u

enum step { READY, DATA, GOT, STOP, LAST, RATE, GIVEN, STEPS };

/* A round-robin tournament by the circle method: one stands still, and the others move on by one place each round. -1: nobody. */
static int partner_of(int rank, int world, int round) {
    const int last = world - 1 + world % 2;   /* the one that stands still; with an odd number of nodes nobody */
    int other;
    if (rank == last) for (other = 0; (2 * other - round) % last != 0;) other++;
    else other = ((round - rank) % last + last) % last;
    if (rank != last && other == rank) other = last;
    return other < world ? other : -1;
}

static int rounds_of(int world) {
    const int all = world - 1 + world % 2;
    return all < ECHI_LINKS_ROUNDS ? all : ECHI_LINKS_ROUNDS;
}

static void enter(struct echi_links *l, int round, int64_t now) {
    l->round = round;
    l->over = !l->measures || l->told || round == rounds_of(l->world);
    l->partner = l->over ? -1 : partner_of(l->rank, l->world, round);
    l->heard = now;
    l->said_ready = l->said_last = l->said_stop = l->said_rate = false;
    l->stop = l->came_last = l->knows_out = false;
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
    return ns > 0 ? (double)(last - first) * (ECHI_LINKS_BYTES + ECHI_LINKS_OVERHEAD) * 1e9 / (double)ns : 0;
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

void echi_links_hear(struct echi_links *l, int peer, const uint8_t *body, size_t len, int64_t now) {
    if (len < 1 || body[0] >= STEPS || peer < 0 || peer >= ECHI_WORLD_MAX) return;
    if (body[0] == READY) l->is_ready[peer] = true;
    if (body[0] == GIVEN && peer == 0 && !l->heard_given) {
        struct echi_reader r = echi_reader_over(body + 1, len - 1);
        struct echi_link given;
        if (echi_link_get(&r, &given)) begin_rounds(l, &given, now);
    }
    if (!l->began || l->over || peer != l->partner) return;
    l->heard = now;
    switch ((enum step)body[0]) {
    case DATA:
        if (l->came < ECHI_LINKS_FRAMES && !l->came_last) l->at[l->came++] = now;
        break;
    case GOT:
        if (A_GOT * (l->gots + 1) <= l->sent) l->gots++;
        break;
    case STOP: l->stop = true; break;
    case LAST:
        l->came_last = true;
        widen(&l->link.in, rate_in(l));
        break;
    case RATE: {
        struct echi_reader r = echi_reader_over(body + 1, len - 1);
        const double rate = echi_get_f64(&r), highest = echi_get_f64(&r);
        const struct echi_rate seen = {rate, rate, highest};
        if (!r.ok || !echi_rate_valid(&seen)) break;
        l->knows_out = true;
        widen(&l->link.out, seen);
        break;
    }
    case READY:
    case GIVEN:
    case STEPS: break;
    }
}

static bool say(bool *said, enum step step, uint8_t *body, size_t *out_len) {
    *said = true;
    body[0] = (uint8_t)step;
    *out_len = 1;
    return true;
}

/* Of the round under way. */
static bool next_here(struct echi_links *l, int64_t now, int queued, uint8_t *body, size_t *out_len) {
    if (!l->said_ready) return say(&l->said_ready, READY, body, out_len);
    if (!l->is_ready[l->partner]) return false;
    if (!l->said_stop && l->came > 0 && now - l->at[0] >= ENOUGH) return say(&l->said_stop, STOP, body, out_len);
    if (l->said_gots < l->came / A_GOT && !l->came_last) {
        bool said;
        l->said_gots++;
        return say(&said, GOT, body, out_len);
    }
    if (l->came_last && !l->said_rate) {
        struct echi_writer w = echi_writer_over(body + 1, 2 * sizeof(double));
        const struct echi_rate found = rate_in(l);
        say(&l->said_rate, RATE, body, out_len);
        echi_put_f64(&w, found.rate);
        echi_put_f64(&w, found.highest);
        *out_len += 2 * sizeof(double);
        return true;
    }
    if (l->said_last) return false;
    if (l->stop || l->sent == ECHI_LINKS_FRAMES) return say(&l->said_last, LAST, body, out_len);
    if (queued >= QUEUED_MOST || l->sent >= AHEAD + 2 * A_GOT * l->gots) return false;
    l->sent++;
    memset(body, 0, ECHI_LINKS_BYTES);
    body[0] = DATA;
    *out_len = ECHI_LINKS_BYTES;
    return true;
}

static void put_given(const struct echi_link *link, uint8_t *body, size_t *out_len) {
    struct echi_writer w = echi_writer_over(body + 1, ECHI_LINK_BYTES);
    body[0] = GIVEN;
    echi_link_put(&w, link);
    *out_len = 1 + ECHI_LINK_BYTES;
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
