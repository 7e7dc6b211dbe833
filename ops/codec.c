/* SPDX-License-Identifier: Apache-2.0
 * Changes written short (lib/PROTOCOL.md, "Two kinds of link"): which numbers go, their bytes, and what both ends keep.
 *
 * The bytes, numbers and words in the order that this processor has in memory for numbers, little-endian for words:
 *     u32 form    0: all values, in order; 1: places as words; 2: places as bits
 *     u32 count   of the values
 *     count values, as echi_real
 *     form 1: count x u32, ascending; form 2: a bit for each number of the range, the lowest bit of a byte first, rest 0
 * The shortest form is taken. Places that are written are never trusted when they are read.
 *
 * Selecting is linear in the length of the range: a threshold from a sample, at most eleven passes that count, and where an
 * exact choice is due a search by digits of the numbers' bits (four passes over the candidates), which knows no bad case. */
#include "cpu/echi_cpu_kernels.h"
#include "echi_bytes.h"
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_ops.h"
#include "echi_random.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Of Deep Gradient Compression's code and GDTopK's (lib/PROTOCOL.md, "Sources"): so many times as many as wanted are too many, so few
 * too few, so often the threshold is lowered, to so much of itself. */
#define UPPER_TENTHS 13
#define LOWER_TENTHS 8
#define TURNS 10
#define LOWERED ((echi_real)0.8)

enum form { FORM_ALL, FORM_WORDS, FORM_BITS, FORMS };
#define HEAD 8u   /* bytes of form and count */

#ifdef ECHI_DOUBLE
typedef uint64_t bits_t;
#define LEAST_ABOVE_ZERO DBL_TRUE_MIN
#else
typedef uint32_t bits_t;
#define LEAST_ABOVE_ZERO FLT_TRUE_MIN
#endif

/* --------------------------------------------------------------- selecting */

struct echi_codec_room { size_t most; echi_real *change; uint32_t *index; };

ech_status echi_codec_room_create(size_t most, struct echi_codec_room **out, struct ech_error *err) {
    size_t numbers, words;
    if (most > UINT32_MAX)
        return echi_fail(err, ECH_E_UNSUPPORTED, "codec", "places are counted in 32 bits, but a range has %zu numbers", most);
    struct echi_codec_room *room = calloc(1, sizeof *room);
    if (!room) return echi_fail_memory(err, "codec", "room to select in");
    room->most = most;
    if (echi_mul_size(most ? most : 1, sizeof *room->change, &numbers)) room->change = echi_alloc_aligned(numbers);
    if (echi_mul_size(most ? most : 1, sizeof *room->index, &words)) room->index = echi_alloc_aligned(words);
    if (!room->change || !room->index) {
        echi_codec_room_destroy(room);
        return echi_fail_memory(err, "codec", "room to select in");
    }
    *out = room;
    return ECH_OK;
}

void echi_codec_room_destroy(struct echi_codec_room *room) {
    if (!room) return;
    echi_free_aligned(room->change);
    echi_free_aligned(room->index);
    free(room);
}

static size_t part_of(size_t count, uint32_t ratio) { return (size_t)(((uint64_t)count * ratio + ECHI_WHOLE - 1) / ECHI_WHOLE); }

/* The magnitude of a finite number as an integer that orders as it does. */
static bits_t magnitude(echi_real v) {
    bits_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits & ((bits_t)-1 >> 1);
}

/* The magnitude of which `rank` (from 1) of x[index[0..count)], or of x[0..count), are as large or larger; found digit by digit.
 * *out_equal: how many of exactly this magnitude are among the `rank` largest. */
static bits_t ranked(const echi_real *x, const uint32_t *index, size_t count, size_t rank, size_t *out_equal) {
    bits_t found = 0, known = 0;
    for (int shift = 8 * (int)sizeof(bits_t) - 8; shift >= 0; shift -= 8) {
        size_t with[256] = {0};
        for (size_t i = 0; i < count; i++) {
            const bits_t m = magnitude(x[index ? index[i] : i]);
            if ((m & known) == found) with[m >> shift & 255]++;
        }
        unsigned digit = 255;
        while (with[digit] < rank) rank -= with[digit--];
        found |= (bits_t)digit << shift;
        known |= (bits_t)255 << shift;
    }
    *out_equal = rank;
    return found;
}

static echi_real as_number(bits_t bits) {
    echi_real v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The threshold that a sample suggests: all of a short range, else places drawn from it (some may be drawn twice). */
static echi_real suggest(const echi_real *x, size_t count, bool sampled, const struct echi_topk *how, uint32_t *scratch) {
    const size_t samples = sampled ? part_of(count, how->sample) : count;
    size_t equal;
    uint32_t word[4];
    for (size_t j = 0; j < samples && sampled; j++) {
        if (j % 4 == 0) echi_random4(how->seed, ECHI_STREAM_SAMPLE, how->turn, (uint64_t)how->part << 32 | j / 4, word);
        scratch[j] = (uint32_t)((uint64_t)word[j % 4] * count >> 32);
    }
    return as_number(ranked(x, sampled ? scratch : NULL, samples, part_of(samples, how->ratio), &equal));
}

/* The first `most` places (at most count) of numbers that are not below the threshold. Which numbers those are nobody can guess, so
 * there is no branch on it: every place is written, and overwritten unless it counts. */
static size_t gather(const echi_real *x, size_t count, echi_real least, size_t most, uint32_t *out_index) {
    const bits_t from = magnitude(least);
    size_t n = 0;
    for (size_t i = 0; i < count && n < most; i++) {
        out_index[n] = (uint32_t)i;
        n += magnitude(x[i]) >= from;
    }
    return n;
}

/* Of the places index[0..n) those of the k largest numbers; of equal ones the first. */
static size_t exact(const echi_real *x, uint32_t *index, size_t n, size_t k) {
    size_t equal, kept = 0;
    const bits_t last = ranked(x, index, n, k, &equal);
    for (size_t i = 0; i < n; i++) {
        const bits_t m = magnitude(x[index[i]]);
        if (m < last || (m == last && equal == 0)) continue;
        equal -= m == last;
        index[kept++] = index[i];
    }
    return kept;
}

size_t echi_topk_select(const struct echi_device *device, const echi_real *x, size_t count, const struct echi_topk *how,
                        uint32_t *out_index) {
    if (count == 0) return 0;
    const bool sampled = count > (2 * (uint64_t)ECHI_WHOLE + how->ratio - 1) / how->ratio;
    const size_t k = part_of(count, how->ratio);
    echi_real least = suggest(x, count, sampled, how, out_index);
    for (int turn = 0; sampled && turn < TURNS; turn++) {
        /* A zero is no change: at a threshold of zero the least number above it does. */
        const size_t n = echi_kernels(device)->count_from(x, count, least > 0 ? least : LEAST_ABOVE_ZERO);
        if (10 * n > UPPER_TENTHS * k) {
            gather(x, count, least > 0 ? least : LEAST_ABOVE_ZERO, n, out_index);
            return exact(x, out_index, n, k);
        }
        if (10 * n >= LOWER_TENTHS * k || least == 0) break;
        least *= LOWERED;
    }
    return gather(x, count, least > 0 ? least : LEAST_ABOVE_ZERO, k, out_index);
}

/* ------------------------------------------------------------------- bytes */

static size_t bytes_of(enum form form, size_t values, size_t count) {
    const size_t places = form == FORM_ALL ? 0 : form == FORM_WORDS ? 4 * values : (count + 7) / 8;
    return HEAD + values * sizeof(echi_real) + places;
}

size_t echi_coded_most(size_t count) { return bytes_of(FORM_ALL, count, count); }

size_t echi_coded_length(const void *bytes, size_t len, size_t count) {
    if (len < HEAD) return 0;
    const uint32_t form = echi_load32(bytes), values = echi_load32((const uint8_t *)bytes + 4);
    if (form >= FORMS || values > count || (form == FORM_ALL && values != count)) return 0;
    const size_t whole = bytes_of((enum form)form, values, count);
    return whole <= len ? whole : 0;
}

static void put_head(uint8_t *out, enum form form, size_t values) {
    echi_store32(out, form);
    echi_store32(out + 4, (uint32_t)values);
}

static void put_all(const echi_real *x, size_t count, uint8_t *out) {
    put_head(out, FORM_ALL, count);
    memcpy(out + HEAD, x, count * sizeof *x);
}

/* The values of x at these places, in the shorter of the two forms that name places. */
static void put_some(const echi_real *x, size_t count, const uint32_t *index, size_t n, uint8_t *out) {
    const enum form form = bytes_of(FORM_WORDS, n, count) <= bytes_of(FORM_BITS, n, count) ? FORM_WORDS : FORM_BITS;
    uint8_t *places = out + HEAD + n * sizeof *x;
    put_head(out, form, n);
    if (form == FORM_BITS) memset(places, 0, (count + 7) / 8);
    for (size_t i = 0; i < n; i++) {
        memcpy(out + HEAD + i * sizeof *x, &x[index[i]], sizeof *x);
        if (form == FORM_WORDS) echi_store32(places + 4 * i, index[i]);
        else places[index[i] / 8] |= (uint8_t)(1u << index[i] % 8);
    }
}

/* Would naming n places make a message longer than all values are? */
static bool all_is_shorter(size_t n, size_t count) {
    const size_t all = bytes_of(FORM_ALL, count, count);
    return all <= bytes_of(FORM_WORDS, n, count) && all <= bytes_of(FORM_BITS, n, count);
}

/* ------------------------------------------------------------------ checks */

/* Numbers [at, at + count) of a buffer. */
static ech_status numbers(const struct echi_buffer *buffer, size_t at, size_t count, const char *operation, echi_real **out,
                          struct ech_error *err) {
    echi_real *host = buffer ? echi_buffer_host(buffer) : NULL;
    if (!host) return echi_fail(err, ECH_E_ARGUMENT, operation, "a buffer is NULL or not in host memory; choose the device 'cpu'");
    const size_t room = echi_buffer_bytes(buffer) / sizeof *host;
    if ((uintptr_t)host % sizeof *host != 0 || at > room || count > room - at)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "%zu numbers at %zu do not fit in a buffer of %zu", count, at, room);
    *out = host + at;
    return ECH_OK;
}

/* Bytes from `at` on, as many as the largest message of `count` numbers has. */
static ech_status message(const struct echi_buffer *buffer, size_t at, size_t count, const char *operation, uint8_t **out,
                          struct ech_error *err) {
    uint8_t *host = buffer ? echi_buffer_host(buffer) : NULL;
    if (!host) return echi_fail(err, ECH_E_ARGUMENT, operation, "a buffer is NULL or not in host memory; choose the device 'cpu'");
    const size_t room = echi_buffer_bytes(buffer), most = echi_coded_most(count);
    if (at > room || most > room - at)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "a message of up to %zu bytes at %zu does not fit in a buffer of %zu", most, at,
                         room);
    *out = host + at;
    return ECH_OK;
}

static ech_status how_fits(const struct echi_topk *how, const struct echi_codec_room *room, size_t count, const char *operation,
                           struct ech_error *err) {
    if (how->ratio < 1 || how->ratio > ECHI_WHOLE || how->sample < 1 || how->sample > ECHI_WHOLE)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "a ratio of %u and a sample of %u millionths: both go from 1 to %u", how->ratio,
                         how->sample, ECHI_WHOLE);
    if (!room || count > room->most)
        return echi_fail(err, ECH_E_ARGUMENT, operation, "there is room to select among %zu numbers, not %zu", room ? room->most : 0,
                         count);
    return ECH_OK;
}

static ech_status diverged(const char *operation, struct ech_error *err) {
    return echi_fail(err, ECH_E_DIVERGED, operation,
                     "a gradient or a weight has grown beyond all numbers: lower --lr, or look for bad samples in the data");
}

/* ------------------------------------------------------------- both kinds */

ech_status echi_code_push(struct echi_device *device, struct echi_buffer *residual, const struct echi_buffer *g, size_t at, size_t count,
                          bool fresh, const struct echi_topk *how, struct echi_codec_room *room, struct echi_buffer *out, size_t out_at,
                          struct ech_error *err) {
    echi_real *rest, *from;
    uint8_t *to;
    ECHI_TRY(how_fits(how, room, count, "code.push", err));
    ECHI_TRY(numbers(residual, at, count, "code.push", &rest, err));
    ECHI_TRY(numbers(g, at, count, "code.push", &from, err));
    ECHI_TRY(message(out, out_at, count, "code.push", &to, err));
    if (fresh) memcpy(rest, from, count * sizeof *rest);
    else echi_kernels(device)->add(rest, rest, from, count);
    if (!echi_kernels(device)->finite(rest, count)) return diverged("code.push", err);
    const size_t n = how->ratio == ECHI_WHOLE ? count : echi_topk_select(device, rest, count, how, room->index);
    if (n == count || all_is_shorter(n, count)) {
        put_all(rest, count, to);
        memset(rest, 0, count * sizeof *rest);
        return ECH_OK;
    }
    put_some(rest, count, room->index, n, to);
    for (size_t i = 0; i < n; i++) rest[room->index[i]] = 0;
    return ECH_OK;
}

ech_status echi_code_state(struct echi_device *device, struct echi_buffer *known, const struct echi_buffer *w, size_t at, size_t count,
                           const struct echi_topk *how, struct echi_codec_room *room, struct echi_buffer *out, size_t out_at,
                           struct ech_error *err) {
    echi_real *there, *from;
    uint8_t *to;
    size_t n = count;
    ECHI_TRY(how_fits(how, room, count, "code.state", err));
    ECHI_TRY(numbers(known, at, count, "code.state", &there, err));
    ECHI_TRY(numbers(w, at, count, "code.state", &from, err));
    ECHI_TRY(message(out, out_at, count, "code.state", &to, err));
    if (how->ratio < ECHI_WHOLE) {
        for (size_t i = 0; i < count; i++) room->change[i] = from[i] - there[i];
        if (!echi_kernels(device)->finite(room->change, count)) return diverged("code.state", err);
        n = echi_topk_select(device, room->change, count, how, room->index);
    }
    if (n == count || all_is_shorter(n, count)) {
        put_all(from, count, to);
        memcpy(there, from, count * sizeof *there);
        return ECH_OK;
    }
    put_some(from, count, room->index, n, to);
    for (size_t i = 0; i < n; i++) there[room->index[i]] = from[room->index[i]];
    return ECH_OK;
}

/* Are there `n` places in these bytes, ascending and below count? */
static bool words_fit(const uint8_t *places, size_t n, size_t count) {
    uint64_t least = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t place = echi_load32(places + 4 * i);
        if (place < least || place >= count) return false;
        least = (uint64_t)place + 1;
    }
    return true;
}

static bool bits_fit(const uint8_t *places, size_t n, size_t count) {
    size_t set = 0;
    for (size_t i = 0; i < (count + 7) / 8; i++) set += (size_t)__builtin_popcount(places[i]);
    return set == n && (count % 8 == 0 || places[count / 8] >> count % 8 == 0);
}

/* Of a message whose length is right: are there as many places as values, ascending and below count? */
static bool places_fit(const uint8_t *bytes, size_t count) {
    const uint32_t form = echi_load32(bytes);
    const size_t n = echi_load32(bytes + 4);
    const uint8_t *places = bytes + HEAD + n * sizeof(echi_real);
    return form == FORM_ALL || (form == FORM_WORDS ? words_fit(places, n, count) : bits_fit(places, n, count));
}

bool echi_coded_fits(const void *bytes, size_t len, size_t count) {
    return len > 0 && echi_coded_length(bytes, len, count) == len && places_fit(bytes, count);
}

static void take(echi_real *x, enum echi_decode how, const uint8_t *value) {
    echi_real v;
    memcpy(&v, value, sizeof v);
    *x = how == ECHI_DECODE_ADD ? *x + v : v;
}

ech_status echi_decode(struct echi_device *device, struct echi_buffer *x, size_t at, size_t count, enum echi_decode how,
                       const struct echi_buffer *in, size_t in_at, struct ech_error *err) {
    (void)device;
    echi_real *to;
    uint8_t *bytes;
    ECHI_TRY(numbers(x, at, count, "decode", &to, err));
    ECHI_TRY(message(in, in_at, count, "decode", &bytes, err));
    const uint32_t form = echi_load32(bytes);
    const size_t n = echi_load32(bytes + 4);
    const bool whole = echi_coded_length(bytes, echi_coded_most(count), count) > 0;
    const uint8_t *values = bytes + HEAD, *places = values + (whole ? n * sizeof *to : 0);
    if (!whole || !places_fit(bytes, count))
        return echi_fail(err, ECH_E_FORMAT, "decode",
                         "a coded message has places that are out of order, out of range or not as many as it says");
    if (how == ECHI_DECODE_ZERO && form != FORM_ALL) memset(to, 0, count * sizeof *to);
    size_t i = 0;
    if (form == FORM_BITS) {
        for (size_t byte = 0; byte < (count + 7) / 8; byte++)
            for (unsigned left = places[byte]; left; left &= left - 1, i++)
                take(&to[8 * byte + (size_t)__builtin_ctz(left)], how, values + i * sizeof *to);
    } else {
        for (; i < n; i++) take(&to[form == FORM_ALL ? i : echi_load32(places + 4 * i)], how, values + i * sizeof *to);
    }
    return ECH_OK;
}
