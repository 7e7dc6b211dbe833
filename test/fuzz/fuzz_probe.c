/* SPDX-License-Identifier: Apache-2.0
 * What a node that measures links sends: to a node that is in the middle of a round with it, and as its row of a table. What is taken
 * leaves rates that make sense, and what is refused nothing. The first byte says which: 0 a row, else so many bytes a message. */
#include "fuzz.h"

#include "echi_meet.h"

#include <string.h>

enum { WORLD = 3 };

static bool a_row(const uint8_t *bytes, size_t len) {
    static struct ech_doctor_links table, before;
    uint8_t again[WORLD * ECHI_MEET_ROW_BYTES];
    memset(&table, 0, sizeof table);
    table.world = WORLD;
    before = table;
    if (!echi_meet_load(&table, 1, bytes, len)) {
        FUZZ_CHECK(memcmp(&table, &before, sizeof table) == 0);
        return false;
    }
    for (int from = 0; from < WORLD; from++) {
        FUZZ_CHECK(table.rate[from][1] >= 0 && table.rate[from][1] <= table.highest[from][1] && table.highest[from][1] < 1e15);
        FUZZ_CHECK(table.round_trip[from][1] >= 0 && table.round_trip[from][1] < 1e7);
    }
    echi_meet_store(&table, 1, again);
    FUZZ_CHECK(len == sizeof again);
    FUZZ_CHECK(memcmp(again, bytes, len) == 0 || table.rate[1][1] == 0);   /* a zero may have had a sign */
    return true;
}

/* A node that answers whatever makes sense, and sends no more than it may. */
static bool messages(size_t each, const uint8_t *bytes, size_t len) {
    static struct echi_links links;
    static struct echi_links_pair pair[2];
    uint8_t body[ECHI_LINKS_BYTES];
    size_t out, sent = 0;
    bool taken = true;
    int64_t now = 1;
    memset(&links, 0, sizeof links);
    memset(pair, 0, sizeof pair);
    links.pairs = pair;
    links.wall = 1;
    echi_links_begin(&links, 0, 2, true, now);
    for (size_t at = 0;; at += each) {
        int peer;
        while (echi_links_next(&links, now, 0, &peer, body, &out)) {
            FUZZ_CHECK(peer == 1 && out >= 1 && out <= sizeof body);
            sent += out;
        }
        if (at + each > len || !taken) break;
        memset(body, 0, sizeof body);   /* DATA is as long as it must be, of which only a part is here */
        memcpy(body, bytes + at, each);
        taken = echi_links_hear(&links, 1, body, body[0] == 1 ? sizeof body : each, now += 1000);
    }
    FUZZ_CHECK(sent <= (ECHI_LINKS_FRAMES + 2) * ECHI_LINKS_BYTES);
    FUZZ_CHECK(echi_rate_valid(&links.link.out) && echi_rate_valid(&links.link.in) && echi_rate_valid(&pair[1].out));
    FUZZ_CHECK(links.theirs >= 0 && links.theirs <= 1e6 && echi_links_delay(&links, 0) >= 0);
    FUZZ_CHECK(pair[1].round_trip >= 0 && links.came <= ECHI_LINKS_FRAMES);
    return taken && len >= each;
}

static bool one(const uint8_t *bytes, size_t len) {
    if (len < 1) return false;
    return bytes[0] == 0 ? a_row(bytes + 1, len - 1) : messages(bytes[0], bytes + 1, len - 1);
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const struct { bool good; size_t len; uint8_t bytes[26]; } seeds[] = {
        {true, 5, {1, 0, 7, 7, 7}}, {true, 5, {1, 0, 1, 1, 4}},   /* READY, PING; DATA, LAST */
        {false, 2, {1, 9}}, {false, 4, {1, 0, 2, 2}}, {false, 3, {1, 4, 4}}, {false, 10, {9, 8}}, {false, 26, {25, 5, 1}}};
    const int count = (int)(sizeof seeds / sizeof seeds[0]);
    static struct ech_doctor_links table;
    if (i > count || cap < 1 + WORLD * ECHI_MEET_ROW_BYTES) return 0;
    if (i < count) {
        *good = seeds[i].good;
        memcpy(out, seeds[i].bytes, seeds[i].len);
        return seeds[i].len;
    }
    table.world = WORLD;
    for (int from = 0; from < WORLD; from++) {
        table.rate[from][1] = from == 1 ? 0 : 1e6;
        table.highest[from][1] = 2 * table.rate[from][1];
        table.round_trip[from][1] = from == 1 ? 0 : 1e-3;
    }
    *good = true;
    out[0] = 0;
    echi_meet_store(&table, 1, out + 1);
    return 1 + WORLD * ECHI_MEET_ROW_BYTES;
}

const struct fuzz_driver fuzz_probe = {.name = "probe", .one = one, .seed = seed, .most = 256};
