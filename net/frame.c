/* SPDX-License-Identifier: Apache-2.0
 * Frame headers to bytes and back. */
#include "echi_frame.h"
#include "echi_bytes.h"
#include "echi_error.h"

static const uint8_t magic[4] = {'E', 'C', 'H', 'N'};

void echi_frame_store(const struct echi_frame *f, uint8_t out[ECHI_FRAME_HEADER]) {
    memset(out, 0, ECHI_FRAME_HEADER);
    memcpy(out, magic, sizeof magic);
    out[4] = ECHI_NET_PROTOCOL;
    out[5] = f->type;
    out[6] = f->kind;
    echi_store32(out + 8, f->epoch);
    echi_store32(out + 12, f->message);
    echi_store16(out + 16, f->meta_len);
    echi_store16(out + 18, f->name);
    echi_store32(out + 20, f->chunk_len);
    echi_store64(out + 24, f->offset);
    echi_store64(out + 32, f->total);
}

static const char *check_data(const struct echi_frame *f, const struct echi_net_kind *kinds, int n_kinds) {
    if (f->kind >= n_kinds) return "a message of an unknown kind";
    const struct echi_net_kind *kind = &kinds[f->kind];
    if (f->name >= echi_net_names(kind)) return "a message with a name that its kind does not have";
    if (f->total > kind->payload_cap) return "a payload above the cap of its kind";
    if (f->total < kind->payload_least) return "a message without the payload that its kind has";
    if (f->meta_len > (f->offset == 0 ? kind->meta_cap : 0)) return "a meta above the cap of its kind";
    if (f->chunk_len > ECHI_NET_CHUNK) return "a chunk above 64 KiB";
    if (f->offset > f->total || f->chunk_len > f->total - f->offset) return "a chunk beyond the end of its payload";
    if (f->chunk_len == 0 && f->total > 0) return "an empty chunk";
    return NULL;
}

static const char *check_credit(const struct echi_frame *f, const struct echi_net_kind *kinds, int n_kinds) {
    if (f->kind >= n_kinds || kinds[f->kind].payload_cap == 0) return "a credit for a kind that takes none";
    if (f->total == 0 || f->total > ECHI_NET_CREDITS_MAX) return "a credit out of range";
    const uint64_t names = (uint64_t)echi_net_names(&kinds[f->kind]);
    if (f->name >= names || f->offset >= names - f->name) return "a credit for names that its kind does not have";
    if (f->meta_len || f->chunk_len || f->message) return "a credit with more than names and a count";
    return NULL;
}

/* What follows a header of net's own frames: at most so many bytes, ... */
static const uint16_t body_caps[ECHI_FRAME_TYPES] = {[ECHI_FRAME_HELLO] = 1024, [ECHI_FRAME_REFUSE] = 4 + 400, [ECHI_FRAME_PEERS] = 64 * 64,
                                                     [ECHI_FRAME_CHALLENGE] = 32, [ECHI_FRAME_PROOF] = 32};
/* ... exactly so many in these. */
static bool body_is_fixed(uint8_t type) { return type != ECHI_FRAME_HELLO && type != ECHI_FRAME_REFUSE && type != ECHI_FRAME_PEERS; }

static const char *check_own(const struct echi_frame *f) {
    if (f->type < ECHI_FRAME_HELLO || f->type >= ECHI_FRAME_TYPES) return "a frame of an unknown type";
    const uint32_t exact = body_is_fixed(f->type) ? body_caps[f->type] : f->meta_len;
    if (f->meta_len > body_caps[f->type] || f->meta_len != exact) return "a frame body of a wrong length";
    if (f->kind || f->name || f->chunk_len || f->offset || f->total || f->message) return "a frame with fields that it must not have";
    return NULL;
}

ech_status echi_frame_load(const uint8_t in[ECHI_FRAME_HEADER], const struct echi_net_kind *kinds, int n_kinds, bool sealed,
                           struct echi_frame *out, struct ech_error *err) {
    if (memcmp(in, magic, sizeof magic) != 0) return echi_fail(err, ECH_E_FORMAT, "net.frame", "does not speak Echelon's protocol");
    if (in[4] != ECHI_NET_PROTOCOL)
        return echi_fail(err, ECH_E_MISMATCH, "net.frame",
                         "speaks protocol %u and this node %u: use the same release of Echelon "
                         "on all nodes",
                         in[4], ECHI_NET_PROTOCOL);
    *out = (struct echi_frame){.type = in[5],
                               .kind = in[6],
                               .epoch = echi_load32(in + 8),
                               .message = echi_load32(in + 12),
                               .meta_len = echi_load16(in + 16),
                               .name = echi_load16(in + 18),
                               .chunk_len = echi_load32(in + 20),
                               .offset = echi_load64(in + 24),
                               .total = echi_load64(in + 32)};
    uint8_t flags = in[7];
    uint64_t authenticator = echi_load64(in + ECHI_FRAME_SEALED) | echi_load64(in + ECHI_FRAME_SEALED + 8);

    const char *wrong = flags                            ? "flags that this release does not know"
                        : authenticator && !sealed       ? "an authenticator where none was agreed on"
                        : out->epoch == 0                ? "a frame of no membership"
                        : out->type == ECHI_FRAME_DATA   ? check_data(out, kinds, n_kinds)
                        : out->type == ECHI_FRAME_CREDIT ? check_credit(out, kinds, n_kinds)
                                                         : check_own(out);
    if (wrong) return echi_fail(err, ECH_E_FORMAT, "net.frame", "sent %s", wrong);
    return ECH_OK;
}
