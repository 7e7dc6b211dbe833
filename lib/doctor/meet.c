/* SPDX-License-Identifier: Apache-2.0
 * Nodes that meet to measure the links between them. */
#include "echi_meet.h"
#include "echi_bytes.h"
#include "echi_config_log.h"
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_run.h"
#include "echi_timespec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A membership that no run has: who measures is turned away by a run that waits for its nodes, which goes on waiting, and a node of a run
 * by who measures. */
#define EPOCH 0x50524f42u
#define AGAIN (ECHI_SECOND / 5)        /* while another node is served */
#define MISMATCHES 5
#define STOP_CHECK (ECHI_SECOND / 5)   /* how often it is checked whether to stop */
#define EVENTS 32
#define ROUND_TRIP_MOST 1e6           /* seconds */

static const struct echi_net_kind kinds[ECHI_MEET_KINDS] = {
    [ECHI_MEET_PROBE] = {.name = "probe", .meta_cap = ECHI_LINKS_BYTES},
    [ECHI_MEET_ROW] = {.name = "row", .meta_cap = ECHI_NET_WORLD_MAX * ECHI_MEET_ROW_BYTES},
    [ECHI_MEET_ASK] = {.name = "ask", .payload_cap = ECHI_MEET_ASK_MOST, .payload_least = 1},
    [ECHI_MEET_ANSWER] = {.name = "answer", .meta_cap = ECHI_MEET_ANSWER_MOST},
    [ECHI_MEET_GO] = {.name = "go", .meta_cap = ECHI_MEET_GO_BYTES},
};

void echi_meet_store(const struct ech_doctor_links *t, int rank, uint8_t *out) {
    struct echi_writer w = echi_writer_over(out, (size_t)t->world * ECHI_MEET_ROW_BYTES);
    for (int from = 0; from < t->world; from++) {
        echi_put_f64(&w, t->rate[from][rank]);
        echi_put_f64(&w, t->highest[from][rank]);
        echi_put_f64(&w, t->round_trip[from][rank]);
    }
}

bool echi_meet_load(struct ech_doctor_links *t, int rank, const uint8_t *bytes, size_t len) {
    double row[ECHI_NET_WORLD_MAX][3];
    struct echi_reader r = echi_reader_over(bytes, len);
    if (len != (size_t)t->world * ECHI_MEET_ROW_BYTES) return false;
    for (int from = 0; from < t->world; from++) {
        for (int i = 0; i < 3; i++) row[from][i] = echi_get_f64(&r);
        const struct echi_rate rate = {row[from][0], row[from][0], row[from][1]};
        if (!echi_rate_valid(&rate) || !(row[from][2] >= 0 && row[from][2] < ROUND_TRIP_MOST)) return false;
        if (from == rank && (rate.rate != 0 || row[from][2] != 0)) return false;
    }
    for (int from = 0; from < t->world; from++) {
        t->rate[from][rank] = row[from][0];
        t->highest[from][rank] = row[from][1];
        t->round_trip[from][rank] = row[from][2];
    }
    return true;
}

ech_status echi_meet_open(const struct ech_config *c, int rank, int world, const char *purpose, int64_t join_timeout,
                          struct echi_meet **out, struct ech_error *err) {
    struct echi_net_config config;
    struct echi_net_fingerprint print = {.name = "measures"};
    struct echi_meet *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return echi_fail_memory(err, "doctor.meet", "a meeting");
    ech_status status = echi_wire_options(c, &config, err);
    if (status == ECH_OK) {
        strncpy(print.value, purpose, sizeof print.value - 1);
        config.rank = rank;
        config.world = world;
        if (world == 2) config.bind = NULL;   /* nobody calls who calls */
        config.in_turn = strcmp(purpose, ECHI_DOCTOR_MEET_LISTENER) == 0;
        config.kinds = kinds;
        config.n_kinds = ECHI_MEET_KINDS;
        config.fingerprints = &print;
        config.n_fingerprints = 1;
        config.epoch = EPOCH;
        config.join_timeout = join_timeout;
        status = echi_net_open(&config, &m->net, err);
        echi_wire_options_end(&config);
    }
    m->config = c;
    m->is_awaited = join_timeout < INT64_MAX;
    m->rank = rank;
    m->world = world;
    if (status == ECH_OK) *out = m;
    else free(m);
    return status;
}

/* What was said last has so long to leave. */
void echi_meet_close(struct echi_meet *m) {
    if (!m) return;
    echi_net_close(m->net, ECHI_SECOND);
    free(m);
}

static bool stopped(const struct echi_meet *m) { return m->config->stop && __atomic_load_n(m->config->stop, __ATOMIC_RELAXED); }

static ech_status send(struct echi_meet *m, int peer, int kind, const uint8_t *body, size_t len, struct ech_error *err) {
    if (m->lost[peer]) return ECH_OK;
    const struct echi_net_message message = {.kind = kind, .meta = body, .meta_len = len};
    const ech_status status = echi_net_send(m->net, peer, &message, err);
    return status == ECH_E_PEER_LOST ? ECH_OK : status;   /* the next poll says so */
}

static ech_status send_probes(struct echi_meet *m, struct ech_error *err) {
    uint8_t body[ECHI_LINKS_BYTES];
    size_t len;
    for (;;) {
        const int partner = m->links.partner;
        int peer;
        bool for_credit;
        if (partner >= 0 && m->lost[partner]) {
            echi_links_lost(&m->links, partner);
            continue;
        }
        const int queued = partner >= 0 ? echi_net_waiting(m->net, partner, ECHI_MEET_PROBE, &for_credit) : 0;
        if (!echi_links_next(&m->links, echi_now(), queued, &peer, body, &len)) return ECH_OK;
        ECHI_TRY(send(m, peer, ECHI_MEET_PROBE, body, len, err));
    }
}

static ech_status send_row(struct echi_meet *m, struct ech_error *err) {
    uint8_t row[ECHI_NET_WORLD_MAX * ECHI_MEET_ROW_BYTES];
    for (int from = 0; from < m->world; from++) {
        m->table->rate[from][m->rank] = m->pair[from].in.rate;
        m->table->highest[from][m->rank] = m->pair[from].in.highest;
        m->table->round_trip[from][m->rank] = m->pair[from].round_trip;
    }
    echi_meet_store(m->table, m->rank, row);
    m->has_row[m->rank] = true;
    for (int to = 0; to < m->world; to++)
        if (to != m->rank) ECHI_TRY(send(m, to, ECHI_MEET_ROW, row, (size_t)m->world * ECHI_MEET_ROW_BYTES, err));
    return ECH_OK;
}

/* The first one is told of: what comes later often follows from it. The others are measured all the same. */
static void without(struct echi_meet *m, int peer, ech_status status, const char *text) {
    m->lost[peer] = true;
    if (m->status != ECH_OK) return;
    m->status = echi_fail_at(&m->why, status, "doctor.meet", peer, NULL, "%s", text);
}

/* What measures: false for what no node would send that does. */
static bool hear_probe(struct echi_meet *m, const struct echi_net_event *e) {
    if (e->kind == ECHI_MEET_PROBE) return echi_links_hear(&m->links, e->peer, e->meta, e->meta_len, echi_now());
    if (e->kind != ECHI_MEET_ROW || m->has_row[e->peer] || !echi_meet_load(m->table, e->peer, e->meta, e->meta_len)) return false;
    m->has_row[e->peer] = true;
    return true;
}

static void hear_message(struct echi_meet *m, const struct echi_net_event *e) {
    if (m->lost[e->peer]) return;
    if (e->kind == ECHI_MEET_ASK) m->ask_len = e->payload_len;   /* it has a place only here and only once (see READY) */
    if (e->kind == ECHI_MEET_ASK || hear_probe(m, e)) return;
    char text[160];
    snprintf(text, sizeof text, "rank %d sent a %s that nobody who measures sends: `echelon doctor` of this version must run there",
             e->peer, e->kind == ECHI_MEET_ROW ? "row" : "message");
    without(m, e->peer, ECH_E_FORMAT, text);
    echi_net_drop(m->net, e->peer, "sent what nobody who measures sends");
}

static ech_status hear(struct echi_meet *m, const struct echi_net_event *e, struct ech_error *err) {
    char text[300];
    if (e->type == ECHI_NET_READY) {
        if (m->ask) ECHI_TRY(echi_net_post(m->net, 1, ECHI_MEET_ASK, 0, m->ask, ECHI_MEET_ASK_MOST, 0, err));
        m->links.pairs = m->pair;
        m->links.wall = echi_wall_clock() - echi_now();
        echi_links_begin(&m->links, m->rank, m->world, true, echi_now());
    } else if (e->type == ECHI_NET_WAITING && m->is_awaited) {
        echi_config_log(m->config, ECH_LOG_INFO, "%s", e->text);
    } else if (e->type == ECHI_NET_LOST) {
        snprintf(text, sizeof text, "rank %d was reached and lost again before its links were measured: %.200s", e->peer, e->text);
        if (m->has_row[e->peer]) m->lost[e->peer] = true;   /* it has all that it came for */
        else without(m, e->peer, ECH_E_PEER_LOST, text);
    } else if (e->type == ECHI_NET_MESSAGE) {
        hear_message(m, e);
    }
    return ECH_OK;
}

/* The lowest rank that is waited for; -1: nobody. */
static int waits_for(const struct echi_meet *m) {
    for (int r = 0; r < m->world; r++)
        if (!m->has_row[r] && !m->lost[r]) return r;
    return -1;
}

static ech_status too_late(const struct echi_meet *m, struct ech_error *err) {
    if (m->status != ECH_OK && err) *err = m->why;
    if (m->status != ECH_OK) return m->status;
    const int rank = m->links.over || m->links.partner < 0 ? waits_for(m) : m->links.partner;
    return echi_fail_at(err, ECH_E_TIMEOUT, "doctor.meet", rank, NULL,
                        "rank %d was reached, and then was silent or slow for longer than --deadline, %g s: is the network in order?", rank,
                        m->config->deadline);
}

ech_status echi_meet_measure(struct echi_meet *m, struct ech_doctor_links *table, struct ech_error *err) {
    const int64_t deadline = (int64_t)(m->config->deadline * 1e9);
    int64_t last = 0;                 /* since when nothing has gone on; 0: joining, which has a deadline of its own */
    int done = 0;                     /* rounds and rows */
    m->table = table;
    while (waits_for(m) >= 0 && m->ask_len == 0) {
        struct echi_net_event events[EVENTS];
        int count = 0;
        if (stopped(m)) return echi_fail(err, ECH_E_END, "doctor.meet", "it was stopped before all links were measured");
        ECHI_TRY(echi_net_poll(m->net, echi_now() + STOP_CHECK, events, EVENTS, &count, err));
        for (int i = 0; i < count; i++) ECHI_TRY(hear(m, &events[i], err));
        if (!m->links.began) continue;
        ECHI_TRY(send_probes(m, err));
        if (m->links.over && !m->has_row[m->rank]) ECHI_TRY(send_row(m, err));
        int is = m->links.round;
        for (int r = 0; r < m->world; r++) is += m->has_row[r] || m->lost[r];
        if (is != done || last == 0) last = echi_now();
        done = is;
        if (echi_now() - last > deadline) return too_late(m, err);
    }
    if (m->status != ECH_OK && err) *err = m->why;
    return m->status;
}

ech_status echi_meet_await(struct echi_meet *m, int kind, int64_t until, uint8_t *meta, size_t *out_len, struct ech_error *err) {
    const int peer = 1 - m->rank;
    for (;;) {
        struct echi_net_event event;   /* the next one stays with net */
        int count = 0;
        const int64_t now = echi_now();
        if (stopped(m)) return echi_fail(err, ECH_E_END, "doctor.meet", "it was stopped");
        if (now >= until) return echi_fail_at(err, ECH_E_TIMEOUT, "doctor.meet", peer, NULL, "it was reached, and then was silent");
        ECHI_TRY(echi_net_poll(m->net, until - now < STOP_CHECK ? until : now + STOP_CHECK, &event, 1, &count, err));
        if (count == 0) continue;
        if (event.type == ECHI_NET_WAITING) echi_config_log(m->config, ECH_LOG_INFO, "%s", event.text);
        if (event.type == ECHI_NET_LOST) return echi_fail_at(err, ECH_E_PEER_LOST, "doctor.meet", peer, NULL, "%s", event.text);
        if (kind < 0 && event.type == ECHI_NET_READY) return ECH_OK;
        if (event.type != ECHI_NET_MESSAGE || event.kind != kind) continue;
        *out_len = event.meta_len;
        memcpy(meta, event.meta, event.meta_len);
        return ECH_OK;
    }
}

ech_status echi_meet_tell(struct echi_meet *m, int kind, const void *meta, size_t len, const void *payload, size_t payload_len,
                          struct ech_error *err) {
    const struct echi_net_message message = {.kind = kind, .meta = meta, .meta_len = len, .payload = payload, .payload_len = payload_len};
    return echi_net_send(m->net, 1 - m->rank, &message, err);
}

bool echi_meet_again(ech_status status, int64_t since, int *mismatches, int64_t give_up) {
    const bool may = status == ECH_E_BUSY || (status == ECH_E_MISMATCH && ++*mismatches < MISMATCHES);
    const int64_t now = echi_now();
    uint32_t draw = 0;
    (void)echi_entropy(&draw, sizeof draw, NULL);
    const int64_t next = now + AGAIN + (int64_t)((double)(now - since) * draw / 4294967296.0);
    if (!may || next >= give_up) return false;
    echi_sleep_until(next);
    return true;
}
