/* SPDX-License-Identifier: Apache-2.0
 * The tag of AEAD_CHACHA20_POLY1305, after RFC 8439 sections 2.6 and 2.8. */
#include "echi_seal.h"
#include "echi_bytes.h"
#include "echi_chacha20.h"
#include "echi_secret.h"

#include <string.h>

void echi_seal_frame_key(const uint8_t key[ECHI_SEAL_KEY], uint32_t sender, uint64_t sequence, uint8_t out[ECHI_POLY1305_KEY]) {
    uint8_t nonce[ECHI_CHACHA20_NONCE], block[ECHI_CHACHA20_BLOCK];
    echi_store32(nonce, sender);
    echi_store64(nonce + 4, sequence);
    echi_chacha20_block(key, 0, nonce, block);
    memcpy(out, block, ECHI_POLY1305_KEY);
    echi_secret_wipe(block, sizeof block);
}

static void pad(struct echi_poly1305 *mac, uint64_t len) {
    static const uint8_t zeros[16];
    echi_poly1305_add(mac, zeros, (16 - len % 16) % 16);
}

void echi_seal_begin(struct echi_seal *s, const uint8_t key[ECHI_SEAL_KEY], uint32_t sender, uint64_t sequence) {
    uint8_t frame_key[ECHI_POLY1305_KEY];
    echi_seal_frame_key(key, sender, sequence, frame_key);
    *s = (struct echi_seal){0};
    echi_poly1305_begin(&s->mac, frame_key);
    echi_secret_wipe(frame_key, sizeof frame_key);
}

void echi_seal_head(struct echi_seal *s, const void *data, size_t len) {
    s->head += len;
    echi_poly1305_add(&s->mac, data, len);
}

void echi_seal_body(struct echi_seal *s, const void *data, size_t len) {
    if (!len) return;
    if (!s->body) pad(&s->mac, s->head);
    s->body += len;
    echi_poly1305_add(&s->mac, data, len);
}

void echi_seal_end(struct echi_seal *s, uint8_t out_tag[ECHI_SEAL_TAG]) {
    uint8_t lengths[16];
    pad(&s->mac, s->body ? s->body : s->head);
    echi_store64(lengths, s->head);
    echi_store64(lengths + 8, s->body);
    echi_poly1305_add(&s->mac, lengths, sizeof lengths);
    echi_poly1305_end(&s->mac, out_tag);
}

bool echi_seal_check(struct echi_seal *s, const uint8_t tag[ECHI_SEAL_TAG]) {
    uint8_t wanted[ECHI_SEAL_TAG];
    echi_seal_end(s, wanted);
    const bool same = echi_secret_equal(wanted, tag, sizeof wanted);
    echi_secret_wipe(wanted, sizeof wanted);
    return same;
}
