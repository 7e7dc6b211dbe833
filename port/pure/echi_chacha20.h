/* SPDX-License-Identifier: Apache-2.0
 * ChaCha20 (RFC 8439): 64 bytes that nobody can tell from random ones without the key, for each (counter, nonce). */
#ifndef ECHI_CHACHA20_H
#define ECHI_CHACHA20_H
#include <stddef.h>
#include <stdint.h>

#define ECHI_CHACHA20_KEY ((size_t)32)
#define ECHI_CHACHA20_NONCE ((size_t)12)
#define ECHI_CHACHA20_BLOCK ((size_t)64)

void echi_chacha20_block(const uint8_t key[ECHI_CHACHA20_KEY], uint32_t counter, const uint8_t nonce[ECHI_CHACHA20_NONCE],
                         uint8_t out[ECHI_CHACHA20_BLOCK]);
#endif
