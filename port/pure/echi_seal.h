/* SPDX-License-Identifier: Apache-2.0
 * The seal of a frame: the tag of AEAD_CHACHA20_POLY1305 (RFC 8439 section 2.8) over a head, which stays readable, and a
 * body. Today the body is sealed as it is. With a cipher it would be the ciphertext, which is as long, made before it is
 * sealed and undone after the check: no field of a frame would move, and nothing here would change.
 *
 * What is sealed is: head, zeros up to 16 bytes, body, zeros up to 16 bytes, both lengths as u64; so bytes cannot move
 * between head and body unseen. Each frame's Poly1305 key is the first half of ChaCha20's block 0 for its nonce (section
 * 2.6); blocks from 1 on are the cipher's. The nonce is the sender's number and then the frame's.
 *
 * The caller's part:
 * - A (sender, sequence) is used once under a key. Twice, and the seals of both frames together give the frame's key away.
 *   Count sequence up from 0; a new connection gets new keys.
 * - The receiver does not read the sequence out of the frame: it counts too, so that a frame that is repeated, left out
 *   or overtaken does not check.
 * - A key is for plain bodies or for ciphered ones, never for both: let HKDF's info say which. */
#ifndef ECHI_SEAL_H
#define ECHI_SEAL_H
#include "echi_poly1305.h"

#include <stdbool.h>

#define ECHI_SEAL_KEY ((size_t)32)
#define ECHI_SEAL_TAG ECHI_POLY1305_TAG

struct echi_seal { struct echi_poly1305 mac; uint64_t head, body; /* bytes so far */ };
void echi_seal_begin(struct echi_seal *s, const uint8_t key[ECHI_SEAL_KEY], uint32_t sender, uint64_t sequence);
/* Both in any number of pieces, cut anywhere; none of the head after one of the body. */
void echi_seal_head(struct echi_seal *s, const void *data, size_t len);
void echi_seal_body(struct echi_seal *s, const void *data, size_t len);
/* One of these ends it, and wipes the key: the sender's makes the tag, the receiver's says whether `tag` is the one. */
void echi_seal_end(struct echi_seal *s, uint8_t out_tag[ECHI_SEAL_TAG]);
bool echi_seal_check(struct echi_seal *s, const uint8_t tag[ECHI_SEAL_TAG]);

/* The Poly1305 key of a frame, as begin makes it (section 2.6). */
void echi_seal_frame_key(const uint8_t key[ECHI_SEAL_KEY], uint32_t sender, uint64_t sequence, uint8_t out[ECHI_POLY1305_KEY]);
#endif
