/* SPDX-License-Identifier: Apache-2.0
 * Poly1305, after RFC 8439 section 2.5: the message's blocks, each with a 1 above its bytes, are the coefficients of a
 * polynomial that is evaluated at r modulo p = 2^130 - 5, and s is added to that.
 *
 * A number is WORDS words, lowest first; the sum has one more for the few bits above 2^128. One text serves both sizes
 * of word. No branch and no address depends on a secret. */
#include "echi_poly1305.h"
#include "echi_bytes.h"
#include "echi_secret.h"

#include <string.h>

/* The widest words whose products the compiler has a type for. A test defines ECHI_POLY1305_WORD32 to have the narrow
 * ones on every machine. */
#if defined __SIZEOF_INT128__ && !defined ECHI_POLY1305_WORD32
typedef uint64_t word;
__extension__ typedef unsigned __int128 wide;
#define WORD_BITS 64
#define load_word echi_load64
#define store_word echi_store64
#else
typedef uint32_t word;
typedef uint64_t wide;
#define WORD_BITS 32
#define load_word echi_load32
#define store_word echi_store32
#endif
enum { WORD_BYTES = WORD_BITS / 8, WORDS = 128 / WORD_BITS };

/* sum = (sum + block) * r for each 16 bytes at `m`; `above` is the 1 above a block, or 0 where the block holds it itself.
 *
 * 2^130 = 5 modulo p, so what a product has at 2^128 and above comes back to the bottom times 5/4. With r that is whole:
 * clamping left words of r that are multiples of 4, but for r[0], whose products never reach that far, except with the
 * word above the sum; that one stays where it is (hence back[0] = 0). The top four bits that clamping clears in each word
 * of r keep every column of products below its width: with W bits in a word, a column is less than
 * WORDS * 2^W * 5/4 * 2^(W-4) and a little, so 2^(2W - 1), and what leaves the top is less than 2^W even times 5/4. */
static void add_blocks(struct echi_poly1305 *p, const uint8_t *m, size_t blocks, word above) {
    word r[WORDS], back[WORDS], sum[WORDS + 1];
    for (int i = 0; i < WORDS; i++) {
        r[i] = load_word(p->r + i * WORD_BYTES);
        back[i] = i ? r[i] + r[i] / 4 : 0;
        sum[i] = load_word(p->sum + i * WORD_BYTES);
    }
    sum[WORDS] = p->sum[16];
    for (; blocks; blocks--, m += 16) {
        wide carry = 0;
        for (int i = 0; i < WORDS; i++) {
            carry += (wide)sum[i] + load_word(m + i * WORD_BYTES);
            sum[i] = (word)carry;
            carry >>= WORD_BITS;
        }
        sum[WORDS] += (word)carry + above;

        word product[WORDS];
        wide column = 0;
        for (int k = 0; k < WORDS; k++) {
            for (int i = 0; i <= k; i++) column += (wide)sum[i] * r[k - i];
            for (int i = k + 1; i <= WORDS; i++) column += (wide)sum[i] * back[WORDS + k - i];
            product[k] = (word)column;
            column >>= WORD_BITS;
        }
        const word top = sum[WORDS] * r[0] + (word)column;

        /* Of the top word two bits belong below 2^130; the rest comes back times 5. At most 4 is left there. */
        carry = top / 4 * 5;
        for (int i = 0; i < WORDS; i++) {
            carry += product[i];
            sum[i] = (word)carry;
            carry >>= WORD_BITS;
        }
        sum[WORDS] = top % 4 + (word)carry;
    }
    for (int i = 0; i < WORDS; i++) store_word(p->sum + i * WORD_BYTES, sum[i]);
    p->sum[16] = (uint8_t)sum[WORDS];
}

void echi_poly1305_begin(struct echi_poly1305 *p, const uint8_t key[ECHI_POLY1305_KEY]) {
    *p = (struct echi_poly1305){0};
    memcpy(p->r, key, 16);
    memcpy(p->s, key + 16, 16);
    for (int i = 3; i < 16; i += 4) p->r[i] &= 0x0f;
    for (int i = 4; i < 16; i += 4) p->r[i] &= 0xfc;
}

void echi_poly1305_add(struct echi_poly1305 *p, const void *data, size_t len) {
    if (!len) return;
    const uint8_t *at = data;
    if (p->held) {
        const size_t n = len < 16 - p->held ? len : 16 - p->held;
        memcpy(p->block + p->held, at, n);
        p->held += n;
        at += n;
        len -= n;
        if (p->held < 16) return;
        add_blocks(p, p->block, 1, 1);
    }
    add_blocks(p, at, len / 16, 1);
    p->held = len % 16;
    memcpy(p->block, at + len - p->held, p->held);
}

void echi_poly1305_end(struct echi_poly1305 *p, uint8_t out[ECHI_POLY1305_TAG]) {
    if (p->held) {
        memset(p->block + p->held, 0, 16 - p->held);
        p->block[p->held] = 1;
        add_blocks(p, p->block, 1, 0);
    }
    /* The sum is below 2p: it is p or more exactly when adding 5 carries past 2^130, and then sum + 5 is, below 2^128, what
     * sum - p is. */
    wide carry = 5;
    for (int i = 0; i < WORDS; i++) carry = (carry + load_word(p->sum + i * WORD_BYTES)) >> WORD_BITS;
    carry = ((carry + p->sum[16]) >> 2) * 5;
    for (int i = 0; i < WORDS; i++) {
        carry += (wide)load_word(p->sum + i * WORD_BYTES) + load_word(p->s + i * WORD_BYTES);
        store_word(out + i * WORD_BYTES, (word)carry);
        carry >>= WORD_BITS;
    }
    echi_secret_wipe(p, sizeof *p);
}
