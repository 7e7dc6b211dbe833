/* SPDX-License-Identifier: Apache-2.0
 * Poly1305 (RFC 8439 section 2.5): a tag under a key that may serve for one message only: two tags of one key give the
 * key away. Where such keys come from: echi_seal.h. Over several pieces in a row, cut anywhere. */
#ifndef ECHI_POLY1305_H
#define ECHI_POLY1305_H
#include <stddef.h>
#include <stdint.h>

#define ECHI_POLY1305_KEY ((size_t)32)
#define ECHI_POLY1305_TAG ((size_t)16)

/* All little-endian bytes, so that it does not depend on how wide the words are that poly1305.c computes with. */
struct echi_poly1305 { uint8_t r[16], s[16], sum[17], block[16]; size_t held; };
void echi_poly1305_begin(struct echi_poly1305 *p, const uint8_t key[ECHI_POLY1305_KEY]);
void echi_poly1305_add(struct echi_poly1305 *p, const void *data, size_t len);
void echi_poly1305_end(struct echi_poly1305 *p, uint8_t out[ECHI_POLY1305_TAG]);   /* wipes *p */
#endif
