/* SPDX-License-Identifier: Apache-2.0
 * HKDF-SHA-256 (RFC 5869): keys out of a secret. Extract makes one key out of what is secret but not even (a file's
 * content, an agreed number); expand makes any number of keys out of that, each for one purpose, its `info`. */
#ifndef ECHI_HKDF_H
#define ECHI_HKDF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_HKDF_KEY ((size_t)32)
#define ECHI_HKDF_MOST (255 * ECHI_HKDF_KEY) /* what one expand can give */

/* `salt` need not be secret; a salt_len of 0 stands for 32 zeros. */
void echi_hkdf_extract(const void *salt, size_t salt_len, const void *secret, size_t secret_len, uint8_t out_key[ECHI_HKDF_KEY]);
/* False, and nothing written, when len is above ECHI_HKDF_MOST. `key` must be a key already: from extract, or 32 random bytes. */
bool echi_hkdf_expand(const uint8_t key[ECHI_HKDF_KEY], const void *info, size_t info_len, void *out, size_t len);
#endif
