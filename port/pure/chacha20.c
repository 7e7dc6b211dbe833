/* SPDX-License-Identifier: Apache-2.0
 * ChaCha20's block function, after RFC 8439 section 2.3. */
#include "echi_chacha20.h"
#include "echi_bytes.h"
#include "echi_secret.h"

static inline uint32_t rotl(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void quarter_round(uint32_t x[16], int a, int b, int c, int d) {
    x[a] += x[b], x[d] = rotl(x[d] ^ x[a], 16);
    x[c] += x[d], x[b] = rotl(x[b] ^ x[c], 12);
    x[a] += x[b], x[d] = rotl(x[d] ^ x[a], 8);
    x[c] += x[d], x[b] = rotl(x[b] ^ x[c], 7);
}

void echi_chacha20_block(const uint8_t key[ECHI_CHACHA20_KEY], uint32_t counter, const uint8_t nonce[ECHI_CHACHA20_NONCE],
                         uint8_t out[ECHI_CHACHA20_BLOCK]) {
    uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, [12] = counter}, x[16];
    for (int i = 0; i < 8; i++) start[4 + i] = echi_load32(key + 4 * i);
    for (int i = 0; i < 3; i++) start[13 + i] = echi_load32(nonce + 4 * i);
    for (int i = 0; i < 16; i++) x[i] = start[i];
    for (int i = 0; i < 10; i++) {
        for (int column = 0; column < 4; column++) quarter_round(x, column, 4 + column, 8 + column, 12 + column);
        for (int column = 0; column < 4; column++) /* of the diagonal that begins in this column */
            quarter_round(x, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4);
    }
    for (int i = 0; i < 16; i++) echi_store32(out + 4 * i, x[i] + start[i]);
    echi_secret_wipe(start, sizeof start);
    echi_secret_wipe(x, sizeof x);
}
