/* SPDX-License-Identifier: Apache-2.0
 * Philox4x32-10, and what is drawn from it. */
#include "echi_random.h"

#include <math.h>

/* Ten rounds of two 32 x 32 -> 64 bit products, a word exchange, and a key that grows by two odd constants (the golden
 * ratio and sqrt(3) - 1): Salmon et al., section 3.3. */
static void philox(uint32_t c[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
        const uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

void echi_random4(uint64_t seed, enum echi_stream stream, uint32_t a, uint64_t b, uint32_t out[4]) {
    out[0] = (uint32_t)b;
    out[1] = (uint32_t)(b >> 32);
    out[2] = a;
    out[3] = (uint32_t)stream;
    philox(out, (uint32_t)seed, (uint32_t)(seed >> 32));
}

void echi_random_init(struct echi_random *r, uint64_t seed, enum echi_stream stream, uint32_t a) {
    *r = (struct echi_random){.seed = seed, .stream = stream, .a = a};
}

static void draw_four(struct echi_random *r) {
    echi_random4(r->seed, r->stream, r->a, r->at++, r->word);
    r->have = 4;
}

static inline uint32_t next(struct echi_random *r) {
    if (!r->have) draw_four(r);
    return r->word[4 - r->have--];
}

uint32_t echi_random_u32(struct echi_random *r) { return next(r); }

double echi_random_unit(struct echi_random *r) {
    const uint64_t high = echi_random_u32(r) >> 5, low = echi_random_u32(r) >> 6; /* 27 + 26 bits */
    return (double)(high << 26 | low) * 0x1p-53;
}

double echi_random_normal(struct echi_random *r) {
    const double radius = sqrt(-2.0 * log(1.0 - echi_random_unit(r))); /* 1 - u is never 0 */
    return radius * cos(6.283185307179586476925 * echi_random_unit(r));
}

uint32_t echi_random_below(struct echi_random *r, uint32_t bound) {
    /* The high word of word * bound. Of the 2^32 words, the first 2^32 mod bound are one too many for some results:
     * those whose low word is below that number are drawn again. It is below `bound`, so few words need the division. */
    uint64_t product = (uint64_t)next(r) * bound;
    if ((uint32_t)product < bound) {
        const uint32_t surplus = (uint32_t)(-bound) % bound;
        while ((uint32_t)product < surplus) product = (uint64_t)next(r) * bound;
    }
    return (uint32_t)(product >> 32);
}

/* One pass of a balanced Feistel network over 2 * half bits: a bijection whatever the round function is. */
static uint64_t feistel(uint64_t seed, uint32_t epoch, int half, uint64_t x) {
    const uint32_t mask = (uint32_t)((UINT64_C(1) << half) - 1);
    uint32_t left = (uint32_t)(x >> half), right = (uint32_t)x & mask;
    for (uint64_t round = 0; round < 6; round++) {
        uint32_t word[4];
        echi_random4(seed, ECHI_STREAM_SHUFFLE, epoch, round << 32 | right, word);
        const uint32_t mixed = left ^ (word[0] & mask);
        left = right;
        right = mixed;
    }
    return (uint64_t)left << half | right;
}

uint32_t echi_permute(uint64_t seed, uint32_t epoch, uint32_t count, uint32_t i) {
    int half = 1;
    while (UINT64_C(1) << 2 * half < count) half++;
    /* Places beyond `count` are walked through: on the cycle of i the first place below `count` is again a bijection.
     * The domain is less than 4 * count, so that is below four steps on average. */
    uint64_t x = i;
    do x = feistel(seed, epoch, half, x);
    while (x >= count);
    return (uint32_t)x;
}
