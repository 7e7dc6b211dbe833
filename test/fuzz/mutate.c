/* SPDX-License-Identifier: Apache-2.0
 * Changes an input in ways that parsers trip over. Everything follows from the random numbers it is given. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

static uint32_t below(struct echi_random *r, size_t n) { return n ? echi_random_below(r, (uint32_t)n) : 0; }

/* Opens a gap of n bytes at `at`; false when there is no room. */
static bool open_gap(uint8_t *bytes, size_t *len, size_t cap, size_t at, size_t n) {
    if (n > cap - *len) return false;
    memmove(bytes + at + n, bytes + at, *len - at);
    *len += n;
    return true;
}

static void close_gap(uint8_t *bytes, size_t *len, size_t at, size_t n) {
    memmove(bytes + at, bytes + at + n, *len - at - n);
    *len -= n;
}

/* Writes `n` low bytes of a number, either end first. */
static void put_number(uint8_t *to, uint64_t value, size_t n, bool big) {
    for (size_t i = 0; i < n; i++) to[big ? n - 1 - i : i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_number(const uint8_t *from, size_t n, bool big) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)from[big ? n - 1 - i : i] << 8 * i;
    return value;
}

/* Near a power of two, where sizes wrap and caps lie. */
static uint64_t odd_number(struct echi_random *r) {
    const uint64_t power = (uint64_t)1 << below(r, 64);
    switch (below(r, 5)) {
    case 0: return power;
    case 1: return power - 1;
    case 2: return power + 1;
    case 3: return 0 - power;
    default: return below(r, 20);
    }
}

/* A field of 1, 2, 4 or 8 bytes: an odd number, what it was and a little, or a length that is true or nearly. */
static void change_field(struct echi_random *r, uint8_t *bytes, size_t len) {
    const size_t n = (size_t)1 << below(r, 4);
    if (n > len) return;
    const size_t at = below(r, len - n + 1);
    const bool big = below(r, 4) == 0;
    uint64_t value = odd_number(r);
    switch (below(r, 3)) {
    case 0: value = get_number(bytes + at, n, big) + below(r, 33) - 16; break;
    case 1: value = (below(r, 2) ? len : len - at - n) + below(r, 5) - 2; break;
    }
    put_number(bytes + at, value, n, big);
}

/* A number written in digits becomes another. */
static void change_digits(struct echi_random *r, uint8_t *bytes, size_t *len, size_t cap) {
    size_t at = below(r, *len), end;
    while (at < *len && (bytes[at] < '0' || bytes[at] > '9')) at++;
    for (end = at; end < *len && bytes[end] >= '0' && bytes[end] <= '9';) end++;
    if (end == at) return;
    char text[24];
    const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)odd_number(r));
    close_gap(bytes, len, at, end - at);
    if (open_gap(bytes, len, cap, at, (size_t)n)) memcpy(bytes + at, text, (size_t)n);
}

/* A word of the format, over what is there or between. The empty word stands for a NUL. */
static void put_word(struct echi_random *r, const char *const *words, uint8_t *bytes, size_t *len, size_t cap) {
    size_t count = 0;
    while (words && words[count]) count++;
    if (!count) return;
    const char *word = words[below(r, count)];
    const size_t n = *word ? strlen(word) : 1, at = below(r, *len + 1);
    if (below(r, 2) ? n <= *len - at : open_gap(bytes, len, cap, at, n)) memcpy(bytes + at, word, n);
}

static void change(struct echi_random *r, const struct fuzz_driver *d, uint8_t *bytes, size_t *len, const uint8_t *other,
                   size_t other_len) {
    const size_t cap = d->most, at = below(r, *len + 1), left = *len - at;
    size_t part = 1 + below(r, below(r, 4) ? 16 : 256);
    if (part > left) part = left;
    switch (below(r, 13)) {
    case 0:
        if (left) bytes[at] ^= (uint8_t)(1u << below(r, 8));
        break;
    case 1:
        if (left) bytes[at] = (uint8_t)below(r, 256);
        break;
    case 2:
        if (left) bytes[at] = below(r, 2) ? 0xff : 0;
        break;
    case 3:
    case 4: change_field(r, bytes, *len); break;
    case 5: change_digits(r, bytes, len, cap); break;
    case 6:
    case 7: put_word(r, d->words, bytes, len, cap); break;
    case 8:
        if (below(r, 4) == 0) *len = at;
        break;
    case 9: close_gap(bytes, len, at, part); break;
    case 10: /* a part once more */
        if (open_gap(bytes, len, cap, at, part)) memmove(bytes + at, bytes + at + part, part);
        break;
    case 11: /* a part over another */
        memmove(bytes + below(r, *len - part + 1), bytes + at, part);
        break;
    default: { /* a part of the other input, between or to the end */
        const size_t from = below(r, other_len + 1);
        size_t n = other_len - from;
        if (below(r, 2)) {
            *len = at;
            if (n > cap - at) n = cap - at;
        } else if (n > part) {
            n = part;
        }
        if (n && open_gap(bytes, len, cap, at, n)) memcpy(bytes + at, other + from, n);
    }
    }
}

void fuzz_mutate(struct echi_random *r, const struct fuzz_driver *driver, uint8_t *bytes, size_t *len, const uint8_t *other,
                 size_t other_len) {
    for (uint32_t times = 1 + below(r, below(r, 3) ? 3 : 12); times > 0; times--)
        change(r, driver, bytes, len, other, other_len);
    if (driver->repair && below(r, 2)) driver->repair(bytes, len, driver->most);
}
