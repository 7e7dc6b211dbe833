/* SPDX-License-Identifier: Apache-2.0
 * The caller's end of a measured link: round trip and clock, as NTP takes them (Mills, RFC 5905, section 8: the sample with the shortest
 * way counts, and is wrong by half of it at most); then bytes out, and bytes in. */
#include "echi_doctor.h"
#include "echi_link.h"
#include "echi_probe.h"
#include "echi_error.h"
#include "echi_os.h"

#define PINGS 20u
#define WORTH 0.3                    /* seconds that all measured transfers should take; the first, of one bulk, says how many that are */
#define PIECES 3u                    /* transfers, whose rates differ by as much as the link's rate does */
#define AGAIN (ECHI_SECOND / 5)      /* while another node is served */

struct caller {
    struct echi_probe_end end;
    const char *address;
    int64_t until;                   /* by then the part that goes on must have ended */
};

static ech_status nonsense(const struct caller *c, const char *what, struct ech_error *err) {
    return echi_fail(err, ECH_E_FORMAT, "doctor.link",
                     "what answers at %s sent %s: `echelon doctor --listen` of this version must run there", c->address, what);
}

/* The next message. Whatever else comes ends the measurement. */
static ech_status hear(struct caller *c, struct echi_net_event *event, struct echi_probe *word, struct ech_error *err) {
    ECHI_TRY(echi_probe_next(&c->end, c->until, event, word, err));
    if (event->type == ECHI_NET_WAITING)
        return echi_fail(err, ECH_E_TIMEOUT, "doctor.link",
                         "%s was reached, and then was silent or slow for longer than --deadline: is the network in order?", c->address);
    if (event->type == ECHI_NET_LOST)
        return echi_fail(err, ECH_E_PEER_LOST, "doctor.link", "%s was reached and lost again: %.200s", c->address, event->text);
    return ECH_OK;
}

/* Waits for this word; `skips` passes over smaller numbers. */
static ech_status hear_word(struct caller *c, enum echi_probe_type type, uint32_t number, bool skips, struct echi_probe *out,
                            struct ech_error *err) {
    for (;;) {
        struct echi_net_event event;
        ECHI_TRY(hear(c, &event, out, err));
        if (event.type != ECHI_NET_MESSAGE || event.kind != ECHI_PROBE_WORD || out->type != type)
            return nonsense(c, "what was not its turn", err);
        if (out->number == number) return ECH_OK;
        if (!skips || out->number > number) return nonsense(c, "numbers out of order", err);
    }
}

static ech_status ping(struct caller *c, struct ech_doctor *d, struct ech_error *err) {
    for (uint32_t i = 1; i <= PINGS; i++) {
        struct echi_probe pong;
        const int64_t began = echi_now(), clock = echi_wall_clock();
        ECHI_TRY(echi_probe_say(&c->end, ECHI_PROBE_PING, i, err));
        ECHI_TRY(hear_word(c, ECHI_PROBE_PONG, i, false, &pong, err));
        const double way = (double)(echi_now() - began) * 1e-9;
        if (i > 1 && way >= d->link.round_trip) continue;
        d->link.round_trip = way;
        d->link.offset = (double)(pong.clock - clock) * 1e-9 - way / 2;
        d->link.within = way / 2;
    }
    return ECH_OK;
}

/* Seconds in which so many bulks leave, or come, the way of the last word taken off. */
static ech_status transfer(struct caller *c, bool out, uint32_t bulks, double round_trip, double *out_seconds, struct ech_error *err) {
    struct echi_probe word;
    const int64_t began = echi_now();
    if (out) {
        ECHI_TRY(echi_probe_send(&c->end, bulks, err));
        ECHI_TRY(hear_word(c, ECHI_PROBE_GOT, bulks, true, &word, err));
    } else {
        ECHI_TRY(echi_probe_say(&c->end, ECHI_PROBE_GIVE, bulks, err));
        for (uint32_t i = 0; i < bulks; i++) {
            struct echi_net_event event;
            ECHI_TRY(hear(c, &event, &word, err));
            if (event.type != ECHI_NET_MESSAGE || event.kind != ECHI_PROBE_BULK || event.payload_len != ECHI_PROBE_BULK_BYTES)
                return nonsense(c, "something else than was asked for", err);
            ECHI_TRY(echi_probe_post(&c->end, event.cookie, err));
        }
    }
    const double whole = (double)(echi_now() - began) * 1e-9, own = whole - round_trip;
    *out_seconds = own > whole / 10 ? own : whole / 10;
    return ECH_OK;
}

static ech_status measure(struct caller *c, bool out, double round_trip, struct echi_rate *found, struct ech_error *err) {
    double seconds, all = 0;
    struct echi_probe pong;
    ECHI_TRY(transfer(c, out, 1, round_trip, &seconds, err));
    *found = echi_rate_of((double)ECHI_PROBE_BULK_BYTES / seconds);
    const double most = WORTH / seconds / PIECES;
    const uint32_t bulks = most > ECHI_PROBE_MOST ? ECHI_PROBE_MOST : (uint32_t)most;
    if (bulks < 1) return ECH_OK;   /* it took long enough to count */
    for (uint32_t i = 0; i < PIECES; i++) {
        ECHI_TRY(echi_probe_say(&c->end, ECHI_PROBE_PING, 1, err));   /* the listener counts anew */
        ECHI_TRY(hear_word(c, ECHI_PROBE_PONG, 1, false, &pong, err));
        ECHI_TRY(transfer(c, out, bulks, round_trip, &seconds, err));
        const double rate = (double)bulks * (double)ECHI_PROBE_BULK_BYTES / seconds;
        if (i == 0 || rate < found->lowest) found->lowest = rate;
        if (i == 0 || rate > found->highest) found->highest = rate;
        all += seconds;
    }
    found->rate = PIECES * (double)bulks * (double)ECHI_PROBE_BULK_BYTES / all;
    return ECH_OK;
}

static ech_status talk(struct caller *c, int64_t deadline, struct ech_doctor *d, struct ech_error *err) {
    struct echi_net_event event;
    struct echi_probe word;
    c->until = INT64_MAX;   /* the join has a deadline of its own */
    ECHI_TRY(hear(c, &event, &word, err));
    if (event.type != ECHI_NET_READY) return nonsense(c, "a message before its turn", err);
    c->until = echi_now() + deadline;
    ECHI_TRY(ping(c, d, err));
    ECHI_TRY(echi_probe_post_all(&c->end, err));
    c->until = echi_now() + deadline;
    struct echi_rate rate;
    ECHI_TRY(measure(c, true, d->link.round_trip, &rate, err));
    d->link.out = rate.rate;
    d->link.out_lowest = rate.lowest;
    d->link.out_highest = rate.highest;
    c->until = echi_now() + deadline;
    ECHI_TRY(measure(c, false, d->link.round_trip, &rate, err));
    d->link.in = rate.rate;
    d->link.in_lowest = rate.lowest;
    d->link.in_highest = rate.highest;
    return ECH_OK;
}

/* A run that waits for its nodes turns away who only measures, and goes on waiting. */
static void explain(const struct ech_config *config, ech_status status, struct ech_error *err) {
    if (status != ECH_E_MISMATCH && status != ECH_E_PEER_LOST) return;
    const struct ech_error why = *err;
    (void)echi_fail(err, status, "doctor.link", "%.280s; to be measured, `echelon doctor --listen --coordinator %.40s` must run there",
                    why.text, config->coordinator);
}

void echi_doctor_link(const struct ech_config *config, struct ech_doctor *d) {
    struct ech_error err = {.text = ""};
    struct caller c = {.address = config->coordinator};
    const int64_t give_up = echi_now() + (int64_t)(config->join_timeout * 1e9);
    ech_status status;
    d->link.done = 1;
    for (;;) {
        status = echi_probe_open(&c.end, config, 1, &err);
        if (status == ECH_OK) {
            status = talk(&c, (int64_t)(config->deadline * 1e9), d, &err);
            echi_probe_close(&c.end);
        }
        if (status != ECH_E_BUSY || echi_now() + AGAIN >= give_up) break;
        echi_sleep_until(echi_now() + AGAIN);   /* it serves another node */
    }
    explain(config, status, &err);
    echi_doctor_note(&d->link.check, status, &err);
}
