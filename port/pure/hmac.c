/* SPDX-License-Identifier: Apache-2.0
 * HMAC, after RFC 2104 section 2: H(K ^ opad, H(K ^ ipad, text)). */
#include "echi_hmac.h"
#include "echi_secret.h"

#include <string.h>

enum { IPAD = 0x36, OPAD = 0x5c };

static void begin_padded(struct echi_sha256 *s, const uint8_t key[64], uint8_t pad) {
    uint8_t block[64];
    for (int i = 0; i < 64; i++) block[i] = key[i] ^ pad;
    echi_sha256_begin(s);
    echi_sha256_add(s, block, sizeof block);
    echi_secret_wipe(block, sizeof block);
}

void echi_hmac_begin(struct echi_hmac *h, const void *key, size_t key_len) {
    memset(h->key, 0, sizeof h->key);
    if (key_len > sizeof h->key) { /* a key longer than a block counts as its hash */
        echi_sha256_begin(&h->inner);
        echi_sha256_add(&h->inner, key, key_len);
        echi_sha256_end(&h->inner, h->key);
    } else if (key_len) memcpy(h->key, key, key_len);
    begin_padded(&h->inner, h->key, IPAD);
}

void echi_hmac_add(struct echi_hmac *h, const void *data, size_t len) { echi_sha256_add(&h->inner, data, len); }

void echi_hmac_end(struct echi_hmac *h, uint8_t out[ECHI_HMAC_TAG]) {
    echi_sha256_end(&h->inner, out);
    begin_padded(&h->inner, h->key, OPAD);
    echi_sha256_add(&h->inner, out, ECHI_HMAC_TAG);
    echi_sha256_end(&h->inner, out);
    echi_secret_wipe(h, sizeof *h);
}
