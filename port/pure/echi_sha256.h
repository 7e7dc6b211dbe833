/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 (FIPS 180-4): the fingerprint under which nodes agree on model and data. */
#ifndef ECHI_SHA256_H
#define ECHI_SHA256_H
#include <stddef.h>
#include <stdint.h>

struct echi_sha256 { uint32_t state[8]; uint64_t bytes; uint8_t block[64]; };
void echi_sha256_begin(struct echi_sha256 *s);
void echi_sha256_add(struct echi_sha256 *s, const void *data, size_t len);
void echi_sha256_end(struct echi_sha256 *s, uint8_t out[32]);
void echi_sha256_hex(const uint8_t digest[32], char out[65]);   /* lower case, NUL-terminated */
#endif
