/* SPDX-License-Identifier: Apache-2.0
 * The key schedule: HKDF for keys, HMAC-SHA-256 for proofs, Poly1305 for frames. */
#include "echi_keys.h"
#include "echi_hkdf.h"
#include "echi_hmac.h"
#include "echi_secret.h"

/* Eight bytes that equal those before them by chance: once in 2^64 of random bytes, 2^32 of hex digits. */
#define REPEATED 8u
#define DIFFERENT 8

static bool repeats(const uint8_t *bytes, size_t len) {
    for (size_t period = 1; period + REPEATED <= len; period++) {
        size_t i = period;
        while (i < len && bytes[i] == bytes[i - period]) i++;
        if (i == len) return true;
    }
    return false;
}

bool echi_keys_trivial(const void *key, size_t len) {
    const uint8_t *bytes = key;
    uint8_t step[ECHI_NET_KEY_MOST];
    bool seen[256] = {false};
    int different = 0;
    if (len > 0 && bytes[len - 1] == '\n') len--;
    if (len == 0 || len > sizeof step) return len == 0;
    for (size_t i = 0; i < len; i++) {
        different += !seen[bytes[i]];
        seen[bytes[i]] = true;
        step[i] = (uint8_t)(i > 0 ? bytes[i] - bytes[i - 1] : 0);
    }
    const bool trivial = different < DIFFERENT || repeats(bytes, len) || repeats(step + 1, len - 1);
    echi_secret_wipe(step, sizeof step);
    echi_secret_wipe(seen, sizeof seen);
    return trivial;
}

/* Every use has a word of its own, with the protocol's number in it, so that nothing derived for one serves for another. */
static const char root_salt[] = "echelon 5 root", proof_use[] = "echelon 5 proof";
static const char *const proof_of[] = {"echelon 5 caller's proof", "echelon 5 listener's proof"};
/* "Plain": a cipher to come gets keys under another word. */
static const char *const frames_of[] = {"echelon 5 caller's frames, plain", "echelon 5 listener's frames, plain"};

void echi_keys_root(const void *key, size_t len, uint8_t out[ECHI_KEYS_BYTES]) {
    echi_hkdf_extract(root_salt, strlen(root_salt), key, len, out);
}

void echi_keys_proof(const uint8_t root[ECHI_KEYS_BYTES], enum echi_side side, const uint8_t transcript[ECHI_KEYS_BYTES],
                     uint8_t out[ECHI_KEYS_BYTES]) {
    uint8_t key[ECHI_KEYS_BYTES];
    struct echi_hmac h;
    (void)echi_hkdf_expand(root, proof_use, strlen(proof_use), key, sizeof key); /* fails only for long outputs */
    echi_hmac_begin(&h, key, sizeof key);
    echi_hmac_add(&h, proof_of[side], strlen(proof_of[side]));
    echi_hmac_add(&h, transcript, ECHI_KEYS_BYTES); /* last and of one length: the two cannot run together */
    echi_hmac_end(&h, out);
    echi_secret_wipe(key, sizeof key);
}

void echi_sealer_begin(struct echi_sealer *s, const uint8_t root[ECHI_KEYS_BYTES], enum echi_side side,
                       const uint8_t transcript[ECHI_KEYS_BYTES]) {
    uint8_t connection[ECHI_KEYS_BYTES];
    echi_hkdf_extract(transcript, ECHI_KEYS_BYTES, root, ECHI_KEYS_BYTES, connection);
    *s = (struct echi_sealer){.on = true};
    (void)echi_hkdf_expand(connection, frames_of[side], strlen(frames_of[side]), s->key, sizeof s->key);
    echi_secret_wipe(connection, sizeof connection);
}

void echi_sealer_stamp(struct echi_sealer *s, uint8_t header[ECHI_FRAME_HEADER], const void *meta, size_t meta_len, const void *chunk,
                       size_t chunk_len) {
    if (!s->on) return;
    struct echi_seal seal;
    echi_seal_begin(&seal, s->key, 0, s->sequence++);
    echi_seal_head(&seal, header, ECHI_FRAME_SEALED);
    echi_seal_body(&seal, meta, meta_len);
    echi_seal_body(&seal, chunk, chunk_len);
    echi_seal_end(&seal, header + ECHI_FRAME_SEALED);
}
