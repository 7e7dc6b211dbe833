/* SPDX-License-Identifier: Apache-2.0
 * The frame: what crosses a link, a fixed header followed by `meta_len` bytes of meta (or body) and `chunk_len` bytes of
 * payload. Pure: bytes to fields and back, every cap checked before anything is stored or allocated. */
#ifndef ECHI_FRAME_H
#define ECHI_FRAME_H
#include "echi_net.h"

/* Offsets of the header, all little-endian. Magic and version keep their places in every protocol to come.
 *    0 magic "ECHN"    4 version u8    5 type u8      6 kind u8      7 flags u8, 0
 *    8 epoch u32      12 message u32  16 meta_len u16 18 name u16   20 chunk_len u32
 *   24 offset u64     32 total u64    40 authenticator, 16 bytes: 0, or the tag over all the rest of the frame
 * WIRE.md tells it byte by byte. */
#define ECHI_FRAME_HEADER 56u
#define ECHI_FRAME_SEALED 40u      /* of the header, these are under the seal; the authenticator is the seal */
#define ECHI_FRAME_BODY_CAP 4096u  /* body of net's own frames; each type has its own, at most this */
#define ECHI_FRAME_EPOCH 1u        /* the first membership */
#define ECHI_NET_CREDITS_MAX 1024u /* per (peer, kind, name) */
#define ECHI_NET_META_MAX 4096u

enum echi_frame_type {
    ECHI_FRAME_HELLO = 1, /* body: echi_hello.h; a caller's first frame, and what a listener answers to one who fits */
    ECHI_FRAME_REFUSE,    /* body: status u32, a sentence; the sender hangs up */
    ECHI_FRAME_PEERS,     /* rank 0 to all: where every rank listens */
    ECHI_FRAME_CONNECTED, /* to rank 0: I have a link to every node */
    ECHI_FRAME_READY,     /* rank 0 to all: every node has */
    ECHI_FRAME_DATA,      /* one chunk of a message; meta comes with the first */
    ECHI_FRAME_CREDIT,    /* `total` more payloads of `kind` may come, of each name from `name` to `name` + `offset` */
    ECHI_FRAME_GOODBYE,   /* nothing follows */
    ECHI_FRAME_CHALLENGE, /* body: a nonce; a keyed listener's answer to a hello */
    ECHI_FRAME_PROOF,     /* body: what only those can make who know the key */
    ECHI_FRAME_TYPES
};

struct echi_frame {
    uint8_t type, kind;
    uint32_t epoch;   /* the membership into which the sender was admitted; from 1 */
    uint32_t message; /* number of the message between these two nodes */
    uint16_t meta_len, name;
    uint32_t chunk_len;
    uint64_t offset, total; /* of the chunk in the payload; of the payload */
};

void echi_frame_store(const struct echi_frame *frame, uint8_t out[ECHI_FRAME_HEADER]);
/* ECH_E_FORMAT for bytes that are no frame or break a cap, ECH_E_MISMATCH for another protocol version. `sealed`: an
 * authenticator is expected, and for the caller to check; else it must be 0. */
ech_status echi_frame_load(const uint8_t in[ECHI_FRAME_HEADER], const struct echi_net_kind *kinds, int n_kinds, bool sealed,
                           struct echi_frame *out, struct ech_error *err);
#endif
