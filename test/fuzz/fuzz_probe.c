/* SPDX-License-Identifier: Apache-2.0
 * A word of those who measure a link: what is taken is stored again as it was, and its number is one that both ends can count to. */
#include "fuzz.h"

#include "echi_probe.h"

#include <string.h>

static bool one(const uint8_t *bytes, size_t len) {
    const struct echi_probe before = {.type = 77, .number = 88, .clock = 99};
    struct echi_probe probe = before;
    uint8_t again[ECHI_PROBE_BYTES];
    struct ech_error err = {0};
    const ech_status status = echi_probe_load(bytes, len, &probe, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(probe.type == before.type && probe.number == before.number && probe.clock == before.clock);
        return false;
    }
    FUZZ_CHECK(len == sizeof again);
    FUZZ_CHECK(probe.type >= ECHI_PROBE_PING && probe.type <= ECHI_PROBE_GIVE && probe.number >= 1 && probe.number <= ECHI_PROBE_MOST);
    FUZZ_CHECK(probe.clock >= 0 && (probe.clock == 0 || probe.type == ECHI_PROBE_PONG));
    echi_probe_store(&probe, again);
    FUZZ_CHECK(memcmp(again, bytes, len) == 0);
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const struct echi_probe probe[] = {
        {ECHI_PROBE_PING, 1, 0}, {ECHI_PROBE_PONG, ECHI_PROBE_MOST, INT64_MAX}, {ECHI_PROBE_GOT, 7, 0},
        {ECHI_PROBE_GIVE, ECHI_PROBE_MOST, 0},
        {ECHI_PROBE_GIVE, ECHI_PROBE_MOST + 1, 0}, {ECHI_PROBE_PING, 0, 0}, {ECHI_PROBE_GIVE + 1, 1, 0}, {ECHI_PROBE_PING, 1, 5},
        {ECHI_PROBE_PONG, 1, -1}};
    if (i >= (int)(sizeof probe / sizeof probe[0]) || cap < ECHI_PROBE_BYTES) return 0;
    *good = i < 4;
    echi_probe_store(&probe[i], out);
    return ECHI_PROBE_BYTES;
}

const struct fuzz_driver fuzz_probe = {.name = "probe", .one = one, .seed = seed, .most = 32};
