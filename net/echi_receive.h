/* SPDX-License-Identifier: Apache-2.0
 * The receiving half of a link: bytes in, in cuts of any size; frames out. Pure: it makes no system call. Headers and
 * metas pass through one buffer, the bulk of a payload goes straight to the place that the caller names.
 *
 * Once `sealer` is on, every frame must carry its seal. A frame without payload is handed out when its seal has been
 * checked. One with a payload is announced before, since its place has to be known, and the payload is checked where it
 * lies: nothing of it may be used, nor anybody told of it, before ECHI_RECEIVE_CHUNK. */
#ifndef ECHI_RECEIVE_H
#define ECHI_RECEIVE_H
#include "echi_keys.h"

#include <sys/uio.h>

#define ECHI_RECEIVE_BUFFER 65536u

enum echi_receive_step {
    ECHI_RECEIVE_MORE,  /* nothing whole is left: read on */
    ECHI_RECEIVE_FRAME, /* `frame` and its `meta` are here; when chunk_len > 0 echi_receive_place must follow, and nothing
                           that is not undone when the seal turns out wrong */
    ECHI_RECEIVE_CHUNK  /* the payload of `frame` is in its place, and its seal was right */
};

struct echi_receive {
    const struct echi_net_kind *kinds;
    int n_kinds;
    struct echi_frame frame;
    const uint8_t *meta; /* in `buffer`: valid until the next call */
    uint8_t *place;      /* where the rest of the chunk goes */
    size_t left;         /* how much of it is to come */
    bool in_chunk, bulk;       /* bulk: the last payload was a large one */
    struct echi_sealer sealer; /* off until its owner begins it */
    struct echi_seal seal;     /* of the frame in hand */
    uint8_t tag[ECHI_SEAL_TAG];
    size_t begin, end; /* bytes of `buffer` not looked at yet */
    uint8_t buffer[ECHI_RECEIVE_BUFFER];
};

/* `kinds` is kept by reference. */
void echi_receive_begin(struct echi_receive *r, const struct echi_net_kind *kinds, int n_kinds);
/* Where to read to: fills iov[0..return), at most 2. Only after echi_receive_next has said MORE. */
int echi_receive_space(struct echi_receive *r, struct iovec iov[2]);
/* So many bytes were read there. */
void echi_receive_got(struct echi_receive *r, size_t n);
/* ECH_E_FORMAT, ECH_E_MISMATCH (another protocol): the link is of no use any more. */
ech_status echi_receive_next(struct echi_receive *r, enum echi_receive_step *out, struct ech_error *err);
/* The chunk just announced goes to place[0..frame.chunk_len). */
void echi_receive_place(struct echi_receive *r, void *place);
#endif
