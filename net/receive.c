/* SPDX-License-Identifier: Apache-2.0
 * The receiving state machine. */
#include "echi_receive.h"
#include "echi_error.h"
#include "echi_secret.h"

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
    r->in_chunk = r->bulk = false;
    r->begin = r->end = 0;
    echi_secret_wipe(&r->sealer, sizeof r->sealer);
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
    if (r->left > 0) iov[n++] = (struct iovec){r->place, r->left};
    /* Behind a large chunk another is likely: of it, too, only the beginning. */
    if ((r->left > 0 || r->bulk) && room > LOOK_AHEAD) room = LOOK_AHEAD;
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
    r->bulk = r->frame.chunk_len > 4 * LOOK_AHEAD;
    r->in_chunk = true;
}

/* The receiver counts frames as the sender does, so one that is repeated, left out or overtaken does not check either. */
static void open_seal(struct echi_receive *r, const uint8_t *header) {
    memcpy(r->tag, header + ECHI_FRAME_SEALED, sizeof r->tag);
    echi_seal_begin(&r->seal, r->sealer.key, 0, r->sealer.sequence++);
    echi_seal_head(&r->seal, header, ECHI_FRAME_SEALED);
    echi_seal_body(&r->seal, r->meta, r->frame.meta_len);
}

static ech_status check_seal(struct echi_receive *r, struct ech_error *err) {
    if (echi_seal_check(&r->seal, r->tag)) return ECH_OK;
    return echi_fail(err, ECH_E_FORMAT, "net.read",
                     "sent a frame whose authenticator is wrong: on the way its bytes were changed, repeated or left out");
}

ech_status echi_receive_next(struct echi_receive *r, enum echi_receive_step *out, struct ech_error *err) {
    *out = ECHI_RECEIVE_MORE;
    if (r->in_chunk) {
        if (r->left > 0) return ECH_OK;
        r->in_chunk = false;
        if (r->sealer.on) {
            echi_seal_body(&r->seal, r->place - r->frame.chunk_len, r->frame.chunk_len);
            ECHI_TRY(check_seal(r, err));
        }
        *out = ECHI_RECEIVE_CHUNK;
        return ECH_OK;
    }
    size_t have = r->end - r->begin;
    if (have < ECHI_FRAME_HEADER) return ECH_OK;
    /* A header that waits for its meta is checked again when more has come; that is rare and keeps one state less. */
    const uint8_t *header = r->buffer + r->begin;
    ECHI_TRY(echi_frame_load(header, r->kinds, r->n_kinds, r->sealer.on, &r->frame, err));
    if (have - ECHI_FRAME_HEADER < r->frame.meta_len) return ECH_OK;
    r->meta = header + ECHI_FRAME_HEADER;
    r->begin += ECHI_FRAME_HEADER + r->frame.meta_len;
    if (r->sealer.on) {
        open_seal(r, header);
        if (r->frame.chunk_len == 0) ECHI_TRY(check_seal(r, err));
    }
    *out = ECHI_RECEIVE_FRAME;
    return ECH_OK;
}
