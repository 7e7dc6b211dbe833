/* SPDX-License-Identifier: Apache-2.0
 * Coded changes: two bytes say how many numbers the range has, one how it is decoded, the rest is the message as a peer sends it.
 * What is taken is what a second reader, written from the words in ops/codec.c, reads; of what is refused not one number changes. */
#include "fuzz.h"

#include "echi_bytes.h"
#include "echi_ops.h"

#include <string.h>

enum { NUMBERS = 1000, HEAD = 3 };

/* The second reader: place by place. */
static bool read_again(const uint8_t *bytes, size_t len, uint32_t count, int how, float *x) {
    uint32_t taken = 0, last = 0;
    if (len < 8) return false;
    const uint32_t form = echi_load32(bytes), values = echi_load32(bytes + 4);
    if (form > 2 || values > count) return false;
    const uint64_t places = form == 0 ? 0 : form == 1 ? UINT64_C(4) * values : (count + 7) / 8;
    if (8 + UINT64_C(4) * values + places != len || (form == 0 && values != count)) return false;
    for (uint32_t i = 0; i < count; i++) {
        bool there = form == 0;
        if (form == 1) there = taken < values && echi_load32(bytes + 8 + 4 * values + 4 * taken) == i;
        if (form == 2) there = bytes[8 + 4 * values + i / 8] >> i % 8 & 1;
        float value = 0;
        if (there && taken == values) return false;
        if (there) memcpy(&value, bytes + 8 + 4 * taken++, 4);
        if (there) x[i] = how == ECHI_DECODE_ADD ? x[i] + value : value;
        else if (how == ECHI_DECODE_ZERO) x[i] = 0;
    }
    last = count % 8 && form == 2 ? (uint32_t)bytes[len - 1] >> count % 8 : 0;
    return taken == values && last == 0;
}

static bool one(const uint8_t *bytes, size_t len) {
    static float x[NUMBERS + 1], expected[NUMBERS + 1], message[NUMBERS + 2];
    if (len < HEAD) return false;
    const uint32_t count = echi_load16(bytes) % (NUMBERS + 1);
    const int how = bytes[2] % 3;
    const size_t most = echi_coded_most(count), given = len - HEAD;
    for (uint32_t i = 0; i <= NUMBERS; i++) x[i] = expected[i] = (float)i;
    memset(message, 0xff, sizeof message);   /* what was there before: nothing may depend on it */
    if (given > most) return false;   /* net refuses it: it is longer than its place */
    memcpy(message, bytes + HEAD, given);
    const bool fits = echi_coded_length(message, most, count) == given;
    const bool good = read_again(bytes + HEAD, given, count, how, expected);
    FUZZ_CHECK(fits || !good);
    if (!fits) return false;
    struct echi_device *device = NULL;
    struct echi_buffer *to = NULL, *from = NULL;
    struct ech_error err = {0};
    FUZZ_CHECK(echi_device_open("cpu", 1, &device, NULL) == ECH_OK);
    FUZZ_CHECK(echi_buffer_wrap(device, x, sizeof x, &to, NULL) == ECH_OK &&
               echi_buffer_wrap(device, message, sizeof message, &from, NULL) == ECH_OK);
    const ech_status status = echi_decode(device, to, 0, count, (enum echi_decode)how, from, 0, &err);
    echi_buffer_destroy(to);
    echi_buffer_destroy(from);
    echi_device_close(device);
    FUZZ_CHECK((status == ECH_OK) == good);
    if (!good) {
        fuzz_sentence(&err, status);
        for (uint32_t i = 0; i <= NUMBERS; i++) FUZZ_CHECK(x[i] == (float)i);
        return false;
    }
    FUZZ_CHECK(memcmp(x, expected, sizeof x) == 0);
    return true;
}

/* Lengths and counts that agree, and places that ascend: what a mutation breaks first. */
static void repair(uint8_t *bytes, size_t *len, size_t cap) {
    if (*len < HEAD + 8 || cap < HEAD + 8 + 8 * NUMBERS) return;
    const uint32_t count = echi_load16(bytes) % (NUMBERS + 1), form = echi_load32(bytes + HEAD) % 3;
    uint8_t *m = bytes + HEAD;
    uint32_t values = form == 0 ? count : count ? echi_load32(m + 4) % (count / 2 + 1) : 0;
    echi_store32(m, form);
    size_t now = *len;
    *len = HEAD + 8 + 4 * values + (form == 0 ? 0 : form == 1 ? 4 * values : (count + 7) / 8);
    if (*len > now) memset(bytes + now, 0, *len - now);
    if (form == 2) {
        uint32_t set = 0;
        uint8_t *places = m + 8 + 4 * values;
        for (uint32_t i = 0; i < (count + 7) / 8 * 8; i++) {
            if (set == values || i >= count) places[i / 8] &= (uint8_t)~(1u << i % 8);
            else if (count - i == values - set) places[i / 8] |= (uint8_t)(1u << i % 8);
            set += places[i / 8] >> i % 8 & 1;
        }
    }
    for (uint32_t i = 0, least = 0; i < values && form == 1; i++, least++) {
        const uint32_t room = count - least - (values - i) + 1, place = least + echi_load32(m + 8 + 4 * values + 4 * i) % room;
        echi_store32(m + 8 + 4 * values + 4 * i, place);
        least = place;
    }
    echi_store32(m + 4, values);
}

/* What the encoder writes: all, few, many, none. */
static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static float rest[NUMBERS], g[NUMBERS], message[NUMBERS + 2];
    static const struct { uint16_t count; uint32_t ratio; } row[] = {{1000, 1000000}, {1000, 10000}, {1000, 300000}, {37, 400000}, {8, 1},
                                                                     {0, 5}};
    const int rows = sizeof row / sizeof *row;
    if (i >= 2 * rows) return 0;
    const uint16_t count = row[i % rows].count;
    struct echi_device *device = NULL;
    struct echi_buffer *a = NULL, *b = NULL, *c = NULL;
    struct echi_codec_room *room = NULL;
    const struct echi_topk how = {.ratio = row[i % rows].ratio, .sample = 20000};
    struct echi_random r;
    echi_random_init(&r, (uint64_t)i, ECHI_STREAM_TEST, 9);
    for (int k = 0; k < NUMBERS; k++) g[k] = (float)echi_random_normal(&r);
    FUZZ_CHECK(echi_device_open("cpu", 1, &device, NULL) == ECH_OK && echi_codec_room_create(NUMBERS, &room, NULL) == ECH_OK);
    FUZZ_CHECK(echi_buffer_wrap(device, rest, sizeof rest, &a, NULL) == ECH_OK &&
               echi_buffer_wrap(device, g, sizeof g, &b, NULL) == ECH_OK &&
               echi_buffer_wrap(device, message, sizeof message, &c, NULL) == ECH_OK);
    FUZZ_CHECK(echi_code_push(device, a, b, 0, count, true, &how, room, c, 0, NULL) == ECH_OK);
    echi_buffer_destroy(a);
    echi_buffer_destroy(b);
    echi_buffer_destroy(c);
    echi_codec_room_destroy(room);
    echi_device_close(device);
    const size_t len = echi_coded_length(message, echi_coded_most(count), count);
    FUZZ_CHECK(HEAD + len <= cap);
    echi_store16(out, count);
    out[2] = (uint8_t)i;
    memcpy(out + HEAD, message, len);
    *good = i < rows;
    if (!*good) out[HEAD + 4]++;   /* one value more than there are, or than the range has */
    return HEAD + len;
}

const struct fuzz_driver fuzz_coded = {.name = "coded", .one = one, .seed = seed, .repair = repair, .most = HEAD + 8 + 8 * NUMBERS,
                                       .heap = 32768};
