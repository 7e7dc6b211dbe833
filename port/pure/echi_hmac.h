/* SPDX-License-Identifier: Apache-2.0
 * HMAC-SHA-256 (RFC 2104): a tag that only those can make who know the key. Over several pieces in a row; how they are
 * cut is not part of the tag, so the caller sees to it that no two messages run together to the same bytes. */
#ifndef ECHI_HMAC_H
#define ECHI_HMAC_H
#include "echi_sha256.h"

#define ECHI_HMAC_TAG ((size_t)32)

struct echi_hmac { struct echi_sha256 inner; uint8_t key[64]; };
void echi_hmac_begin(struct echi_hmac *h, const void *key, size_t key_len);
void echi_hmac_add(struct echi_hmac *h, const void *data, size_t len);
void echi_hmac_end(struct echi_hmac *h, uint8_t out[ECHI_HMAC_TAG]);   /* wipes *h */
#endif
