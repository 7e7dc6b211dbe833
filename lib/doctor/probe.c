/* SPDX-License-Identifier: Apache-2.0
 * What both ends of a measured link do alike. */
#include "echi_probe.h"
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_run.h"

#include <stdlib.h>
#include <string.h>

/* A membership that no run has: who measures is turned away by a run that waits for its nodes, which goes on waiting, and a node of a run
 * by who measures. */
#define EPOCH 0x50524f42u
static const struct echi_net_kind kinds[ECHI_PROBE_KINDS] = {
    [ECHI_PROBE_WORD] = {.name = "probe", .meta_cap = ECHI_PROBE_BYTES},
    [ECHI_PROBE_BULK] = {.name = "bulk", .payload_cap = ECHI_PROBE_BULK_BYTES},
};
static const struct echi_net_fingerprint print[] = {{"probe", "1"}};

void echi_probe_store(const struct echi_probe *probe, uint8_t out[ECHI_PROBE_BYTES]) {
    memset(out, 0, ECHI_PROBE_BYTES);
    out[0] = probe->type;
    echi_store32(out + 4, probe->number);
    echi_store64(out + 8, (uint64_t)probe->clock);
}

ech_status echi_probe_load(const uint8_t *bytes, size_t len, struct echi_probe *out, struct ech_error *err) {
    if (len != ECHI_PROBE_BYTES)
        return echi_fail(err, ECH_E_FORMAT, "doctor.link", "a word of %zu bytes: it has %d", len, ECHI_PROBE_BYTES);
    const uint32_t number = echi_load32(bytes + 4);
    const uint64_t clock = echi_load64(bytes + 8);
    if (bytes[0] < ECHI_PROBE_PING || bytes[0] > ECHI_PROBE_GIVE || bytes[1] || bytes[2] || bytes[3])
        return echi_fail(err, ECH_E_FORMAT, "doctor.link", "a word of kind %d: there are 1 to %d", bytes[0], ECHI_PROBE_GIVE);
    if (number < 1 || number > ECHI_PROBE_MOST)
        return echi_fail(err, ECH_E_FORMAT, "doctor.link", "a word with number %u: they are 1 to %u", number, ECHI_PROBE_MOST);
    if (bytes[0] == ECHI_PROBE_PONG ? clock > INT64_MAX : clock != 0)
        return echi_fail(err, ECH_E_FORMAT, "doctor.link", "a word with a clock that none can show");
    *out = (struct echi_probe){bytes[0], number, (int64_t)clock};
    return ECH_OK;
}

ech_status echi_probe_open(struct echi_probe_end *end, const struct ech_config *c, int rank, struct ech_error *err) {
    struct echi_net_config config;
    *end = (struct echi_probe_end){.peer = 1 - rank};
    ECHI_TRY(echi_wire_options(c, &config, err));
    config.rank = rank;
    config.world = 2;
    config.bind = NULL;   /* nobody calls who calls */
    config.kinds = kinds;
    config.n_kinds = ECHI_PROBE_KINDS;
    config.fingerprints = print;
    config.n_fingerprints = 1;
    config.epoch = EPOCH;
    if (rank == 0) config.join_timeout = INT64_MAX;
    end->bulk = calloc(1, ECHI_PROBE_BULK_BYTES);
    end->places = calloc(ECHI_PROBE_PLACES, ECHI_PROBE_BULK_BYTES);
    ech_status status = end->bulk && end->places ? echi_net_open(&config, &end->net, err)
                                                 : echi_fail_memory(err, "doctor.link", "what is sent");
    echi_wire_options_end(&config);
    if (status != ECH_OK) echi_probe_close(end);
    return status;
}

void echi_probe_close(struct echi_probe_end *end) {
    echi_net_close(end->net, ECHI_SECOND / 5);
    free(end->bulk);
    free(end->places);
    *end = (struct echi_probe_end){0};
}

ech_status echi_probe_post(struct echi_probe_end *end, uint64_t place, struct ech_error *err) {
    uint8_t *at = end->places + place * ECHI_PROBE_BULK_BYTES;
    return echi_net_post(end->net, end->peer, ECHI_PROBE_BULK, 0, at, ECHI_PROBE_BULK_BYTES, place, err);
}

ech_status echi_probe_post_all(struct echi_probe_end *end, struct ech_error *err) {
    for (uint64_t place = 0; place < ECHI_PROBE_PLACES; place++) ECHI_TRY(echi_probe_post(end, place, err));
    return ECH_OK;
}

ech_status echi_probe_say(struct echi_probe_end *end, enum echi_probe_type type, uint32_t number, struct ech_error *err) {
    const struct echi_probe probe = {.type = (uint8_t)type, .number = number, .clock = type == ECHI_PROBE_PONG ? echi_wall_clock() : 0};
    uint8_t bytes[ECHI_PROBE_BYTES];
    echi_probe_store(&probe, bytes);
    const struct echi_net_message word = {.kind = ECHI_PROBE_WORD, .meta = bytes, .meta_len = sizeof bytes};
    return echi_net_send(end->net, end->peer, &word, err);
}

ech_status echi_probe_send(struct echi_probe_end *end, uint32_t bulks, struct ech_error *err) {
    struct echi_net_message bulk = {.kind = ECHI_PROBE_BULK, .priority = 1, .payload = end->bulk, .payload_len = ECHI_PROBE_BULK_BYTES};
    for (; bulk.cookie < bulks; bulk.cookie++) ECHI_TRY(echi_net_send(end->net, end->peer, &bulk, err));
    return ECH_OK;
}

ech_status echi_probe_next(struct echi_probe_end *end, int64_t until, struct echi_net_event *event, struct echi_probe *word,
                           struct ech_error *err) {
    for (;;) {
        int count = 0;
        ECHI_TRY(echi_net_poll(end->net, until, event, 1, &count, err));
        if (count == 0 && echi_now() < until) continue;
        if (count == 0) *event = (struct echi_net_event){.type = ECHI_NET_WAITING};
        else if (event->type == ECHI_NET_WAITING || event->type == ECHI_NET_SENT) continue;
        const bool is_word = event->type == ECHI_NET_MESSAGE && event->kind == ECHI_PROBE_WORD;
        return is_word ? echi_probe_load(event->meta, event->meta_len, word, err) : ECH_OK;
    }
}
