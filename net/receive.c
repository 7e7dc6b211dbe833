/* SPDX-License-Identifier: Apache-2.0
 * The receiving state machine. */
#include "echi_receive.h"

#include <string.h>

/* Behind a direct read of a payload only so much may land in the buffer, for the next header: what lands there of
 * the next chunk has to be copied. */
#define LOOK_AHEAD 4096u

void echi_receive_begin(struct echi_receive *r, const struct echi_net_kind *kinds, int n_kinds) {
    r->kinds = kinds;
    r->n_kinds = n_kinds;
    r->meta = NULL;
    r->place = NULL;
    r->left = 0;
    r->in_chunk = false;
    r->begin = r->end = 0;
}

int echi_receive_space(struct echi_receive *r, struct iovec iov[2]) {
    /* What is left is at most an unfinished header and meta, so that moving it is cheap. */
    if (r->begin > 0) {
        memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
        r->end -= r->begin;
        r->begin = 0;
    }
    int n = 0;
    size_t room = ECHI_RECEIVE_BUFFER - r->end;
    if (r->left > 0) {
        iov[n++] = (struct iovec){r->place, r->left};
        if (room > LOOK_AHEAD) room = LOOK_AHEAD;
    }
    iov[n++] = (struct iovec){r->buffer + r->end, room};
    return n;
}

void echi_receive_got(struct echi_receive *r, size_t n) {
    size_t direct = n < r->left ? n : r->left;
    if (direct) {
        r->place += direct;
        r->left -= direct;
    }
    r->end += n - direct;
}

void echi_receive_place(struct echi_receive *r, void *place) {
    size_t have = r->end - r->begin;
    if (have > r->frame.chunk_len) have = r->frame.chunk_len;
    if (have) memcpy(place, r->buffer + r->begin, have);
    r->begin += have;
    r->place = (uint8_t *)place + have;
    r->left = r->frame.chunk_len - have;
    r->in_chunk = true;
}

ech_status echi_receive_next(struct echi_receive *r, enum echi_receive_step *out, struct ech_error *err) {
    *out = ECHI_RECEIVE_MORE;
    if (r->in_chunk) {
        if (r->left > 0) return ECH_OK;
        r->in_chunk = false;
        *out = ECHI_RECEIVE_CHUNK;
        return ECH_OK;
    }
    size_t have = r->end - r->begin;
    if (have < ECHI_FRAME_HEADER) return ECH_OK;
    /* A header that waits for its meta is checked again when more has come; that is rare and keeps one state less. */
    ech_status status = echi_frame_load(r->buffer + r->begin, r->kinds, r->n_kinds, &r->frame, err);
    if (status != ECH_OK) return status;
    if (have - ECHI_FRAME_HEADER < r->frame.meta_len) return ECH_OK;
    r->meta = r->buffer + r->begin + ECHI_FRAME_HEADER;
    r->begin += ECHI_FRAME_HEADER + r->frame.meta_len;
    *out = ECHI_RECEIVE_FRAME;
    return ECH_OK;
}
