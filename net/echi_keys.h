/* SPDX-License-Identifier: Apache-2.0
 * What the nodes of a keyed run derive from the one key they share: proofs that they know it, and the keys that seal the
 * frames of one direction of one connection. Pure: no randomness and no clock, so that every value has a test vector
 * (WIRE.md has them). A "transcript" is SHA-256 over the frames that opened the connection, both nonces among them. */
#ifndef ECHI_KEYS_H
#define ECHI_KEYS_H
#include "echi_frame.h"
#include "echi_seal.h"

#define ECHI_KEYS_BYTES 32 /* of everything derived from the key */

enum echi_side { ECHI_SIDE_CALLER, ECHI_SIDE_LISTENER };

/* Would somebody guess this key who tries the simple ones? It has fewer than eight different bytes, or its bytes, or the steps from one to
 * the next, come again and again: zeros, "0123456789012345", a word written twice. A newline at the end does not count. */
bool echi_keys_trivial(const void *key, size_t len);
/* The root of all that follows; the key itself is not needed any more. */
void echi_keys_root(const void *key, size_t len, uint8_t out[ECHI_KEYS_BYTES]);
/* What `side` sends to prove that it knows the key; no two sides or transcripts have the same. */
void echi_keys_proof(const uint8_t root[ECHI_KEYS_BYTES], enum echi_side side, const uint8_t transcript[ECHI_KEYS_BYTES],
                     uint8_t out[ECHI_KEYS_BYTES]);

/* One direction of one connection. Zeroed: frames carry no seal. */
struct echi_sealer {
    bool on;
    uint8_t key[ECHI_SEAL_KEY];
    uint64_t sequence; /* of the next frame */
};
/* For the frames that `side` sends. */
void echi_sealer_begin(struct echi_sealer *s, const uint8_t root[ECHI_KEYS_BYTES], enum echi_side side,
                       const uint8_t transcript[ECHI_KEYS_BYTES]);
/* Writes the authenticator of a stored header and what follows it; nothing when off. */
void echi_sealer_stamp(struct echi_sealer *s, uint8_t header[ECHI_FRAME_HEADER], const void *meta, size_t meta_len, const void *chunk,
                       size_t chunk_len);
#endif
