/* SPDX-License-Identifier: Apache-2.0
 * A stream of frames through the receiving state machine. An input is headers, one behind the other; the meta and payload
 * that each announces are put in behind it, so that a few bytes of input make a long stream. Each is read twice, whole
 * and in cuts: both must see the same. Then once more with a key, every frame sealed: nothing else may be taken or refused,
 * and with any bit changed not all of it may come out. */
#include "fuzz.h"

#include "echi_bytes.h"
#include "echi_keys.h"
#include "echi_receive.h"

#include <string.h>

enum { HEARTBEAT, NOTE, PUSH, ROWS, N_KINDS };
static const struct echi_net_kind kinds[N_KINDS] = {
    [HEARTBEAT] = {"heartbeat", 16, 0, 0, 0, 0},
    [NOTE] = {"note", ECHI_NET_META_MAX, 0, 0, 0, 0},
    [PUSH] = {"push", 64, 16u << 20, 0, 0, 200},
    [ROWS] = {"rows", 64, 300000, 0, 1, 0},
};

static uint8_t stream[1u << 20];

/* The same key on both sides; the second use of one takes up where the first has ended, as on a connection. */
static struct echi_sealer sealer(bool on) {
    static const uint8_t root[ECHI_KEYS_BYTES] = {1, 2, 3}, transcript[ECHI_KEYS_BYTES] = {4, 5, 6};
    struct echi_sealer s = {.on = false};
    if (on) echi_sealer_begin(&s, root, ECHI_SIDE_CALLER, transcript);
    return s;
}

static size_t expand(const uint8_t *bytes, size_t len, bool sealed) {
    struct echi_sealer s = sealer(sealed);
    size_t n = 0;
    while (len >= ECHI_FRAME_HEADER && n + ECHI_FRAME_HEADER + ECHI_FRAME_BODY_CAP + ECHI_NET_CHUNK <= sizeof stream) {
        memcpy(stream + n, bytes, ECHI_FRAME_HEADER);
        n += ECHI_FRAME_HEADER;
        uint32_t meta = echi_load16(bytes + 16), chunk = echi_load32(bytes + 20);
        bytes += ECHI_FRAME_HEADER;
        len -= ECHI_FRAME_HEADER;
        if (meta > ECHI_FRAME_BODY_CAP || chunk > ECHI_NET_CHUNK) break; /* refused at this header: the rest as it is */
        for (uint32_t i = 0; i < meta + chunk; i++) stream[n + i] = (uint8_t)(i * 31 + i / 256);
        echi_sealer_stamp(&s, stream + n - ECHI_FRAME_HEADER, stream + n, meta, stream + n + meta, chunk);
        n += meta + chunk;
    }
    if (len > sizeof stream - n) len = sizeof stream - n;
    memcpy(stream + n, bytes, len);
    return n + len;
}

/* What a reader of the stream has seen. */
struct seen {
    uint64_t hash;
    int frames, wholes; /* begun; with their payload, if any */
    size_t sure;        /* bytes of those that are whole */
    ech_status status;
};
static void note(struct seen *s, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) s->hash = (s->hash ^ bytes[i]) * 1099511628211u;
}

/* What the header promises, said once more and not as the parser says it. */
static void check_frame(const struct echi_receive *r, bool sealed) {
    const struct echi_frame *f = &r->frame;
    uint8_t again[ECHI_FRAME_HEADER];
    echi_frame_store(f, again);
    /* Nothing in a header goes unread. */
    FUZZ_CHECK(memcmp(again, r->meta - ECHI_FRAME_HEADER, sealed ? ECHI_FRAME_SEALED : sizeof again) == 0);
    if (f->type == ECHI_FRAME_DATA) {
        FUZZ_CHECK(f->kind < N_KINDS && f->total <= kinds[f->kind].payload_cap && f->meta_len <= kinds[f->kind].meta_cap);
        FUZZ_CHECK(f->name < (f->kind == PUSH ? 200 : 1));
        FUZZ_CHECK(f->total >= kinds[f->kind].payload_least);
        FUZZ_CHECK(f->chunk_len <= ECHI_NET_CHUNK && f->offset <= f->total && f->chunk_len <= f->total - f->offset);
        FUZZ_CHECK(f->offset == 0 || f->meta_len == 0);
    } else {
        FUZZ_CHECK(f->meta_len <= ECHI_FRAME_BODY_CAP && f->chunk_len == 0);
        FUZZ_CHECK(f->type == ECHI_FRAME_CREDIT || (f->offset == 0 && f->name == 0));
        FUZZ_CHECK(f->type != ECHI_FRAME_CREDIT || (f->total >= 1 && f->total <= ECHI_NET_CREDITS_MAX && f->kind < N_KINDS));
        FUZZ_CHECK(f->type != ECHI_FRAME_CREDIT || (f->offset < 200 && f->name + f->offset < (f->kind == PUSH ? 200 : 1)));
    }
}

/* Reads in cuts of 1..most bytes. */
static struct seen read_stream(size_t len, uint32_t most, bool sealed) {
    static struct echi_receive r;
    static uint8_t place[ECHI_NET_CHUNK + 16];
    struct seen seen = {.hash = 1};
    struct echi_random random;
    size_t at = 0;
    echi_random_init(&random, len, ECHI_STREAM_TEST, most);
    echi_receive_begin(&r, kinds, N_KINDS);
    r.sealer = sealer(sealed);
    memset(place + ECHI_NET_CHUNK, 0xA5, 16);
    while (at < len) {
        struct iovec iov[2];
        const int n = echi_receive_space(&r, iov);
        size_t want = 1 + echi_random_below(&random, most), got = 0;
        for (int i = 0; i < n; i++) {
            size_t part = iov[i].iov_len < want - got ? iov[i].iov_len : want - got;
            if (part > len - at) part = len - at;
            if (part) memcpy(iov[i].iov_base, stream + at, part);
            at += part;
            got += part;
        }
        FUZZ_CHECK(got > 0); /* or a live node would spin */
        echi_receive_got(&r, got);
        for (;;) {
            enum echi_receive_step step;
            struct ech_error err = {0};
            seen.status = echi_receive_next(&r, &step, &err);
            if (seen.status != ECH_OK) {
                fuzz_sentence(&err, seen.status);
                return seen;
            }
            if (step == ECHI_RECEIVE_MORE) break;
            if (step == ECHI_RECEIVE_FRAME) {
                check_frame(&r, sealed);
                seen.frames++;
                note(&seen, r.meta - ECHI_FRAME_HEADER, ECHI_FRAME_SEALED);
                note(&seen, r.meta, r.frame.meta_len);
                if (r.frame.chunk_len) echi_receive_place(&r, place);
            } else {
                note(&seen, place, r.frame.chunk_len);
                for (size_t i = 0; i < 16; i++) FUZZ_CHECK(place[ECHI_NET_CHUNK + i] == 0xA5);
            }
            if (step == ECHI_RECEIVE_CHUNK || !r.frame.chunk_len) {
                seen.wholes++;
                seen.sure = at - (r.end - r.begin);
            }
        }
    }
    return seen;
}

static bool same(struct seen a, struct seen b) {
    return a.hash == b.hash && a.frames == b.frames && a.wholes == b.wholes && a.status == b.status;
}

static bool one(const uint8_t *bytes, size_t len) {
    static const uint32_t most[] = {3, 100, 5000, 70000};
    size_t n = expand(bytes, len, false);
    const uint32_t cuts = most[n > 4000 ? 1 + len % 3 : len % 4];
    const struct seen whole = read_stream(n, 1u << 30, false);
    FUZZ_CHECK(same(whole, read_stream(n, cuts, false)));

    n = expand(bytes, len, true);
    const struct seen sealed = read_stream(n, cuts, true);
    FUZZ_CHECK(whole.status != ECH_OK || same(whole, sealed));
    if (sealed.sure > 0) {
        stream[sealed.hash % sealed.sure] ^= (uint8_t)(1u << sealed.hash % 8);
        FUZZ_CHECK(read_stream(n, 1u << 30, true).wholes < sealed.wholes);
    }
    return whole.status == ECH_OK && whole.frames > 0;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const struct echi_frame plain[] = {
        {.type = ECHI_FRAME_HELLO, .meta_len = 900},
        {.type = ECHI_FRAME_DATA, .kind = HEARTBEAT, .message = 1, .meta_len = 16},
        {.type = ECHI_FRAME_CREDIT, .kind = PUSH, .total = 3},
        {.type = ECHI_FRAME_DATA, .kind = PUSH, .message = 2, .meta_len = 64, .total = 70000, .chunk_len = 65536},
        {.type = ECHI_FRAME_DATA, .kind = PUSH, .message = 2, .offset = 65536, .total = 70000, .chunk_len = 4464},
        {.type = ECHI_FRAME_DATA, .kind = ROWS, .message = 3, .total = 1, .chunk_len = 1},
        {.type = ECHI_FRAME_DATA, .kind = NOTE, .message = 4, .meta_len = 4096},
        {.type = ECHI_FRAME_PEERS, .meta_len = 4096},
        {.type = ECHI_FRAME_CONNECTED},
        {.type = ECHI_FRAME_READY},
        {.type = ECHI_FRAME_REFUSE, .meta_len = 44},
        {.type = ECHI_FRAME_GOODBYE},
        {.type = ECHI_FRAME_CHALLENGE, .meta_len = 32},
        {.type = ECHI_FRAME_PROOF, .meta_len = 32},
        {.type = ECHI_FRAME_CREDIT, .kind = PUSH, .name = 7, .offset = 192, .total = 1},
        {.type = ECHI_FRAME_DATA, .kind = PUSH, .name = 199, .message = 5, .total = 3, .chunk_len = 3},
    };
    /* One number of a good header changed. Sums that wrap, caps passed by one, tables read beyond their end. */
    static const struct { int of, at, width; uint64_t value; } bad[] = {
        {3, 0, 4, 0x4e484345 ^ 1}, {3, 4, 1, 99}, {3, 5, 1, 0}, {3, 5, 1, 255}, {3, 6, 1, N_KINDS}, {3, 6, 1, 255}, {3, 7, 1, 1},
        {3, 8, 4, 0},
        {3, 16, 2, 65}, {3, 16, 2, UINT16_MAX}, {3, 18, 2, 200}, {3, 18, 2, UINT16_MAX}, {5, 18, 2, 1}, {0, 18, 2, 1}, {11, 18, 2, 1},
        {14, 18, 2, 8}, {14, 24, 8, 193}, {14, 24, 8, UINT64_MAX}, {14, 24, 8, UINT64_MAX - 6}, {2, 18, 2, 200},
        {3, 20, 4, 65537}, {3, 20, 4, UINT32_MAX}, {3, 20, 4, 0}, {3, 24, 8, UINT64_MAX},
        {3, 24, 8, UINT64_MAX - 65535}, {4, 24, 8, UINT64_MAX - 4463}, {4, 24, 8, 65537}, {4, 16, 2, 1}, {3, 32, 8, (16u << 20) + 1},
        {3, 32, 8, 65535}, {3, 32, 8, UINT64_MAX}, {3, 32, 8, 0}, {3, 40, 8, 1}, {3, 48, 8, 1}, {2, 32, 8, 0}, {2, 32, 8, 1025},
        {2, 6, 1, NOTE}, {2, 12, 4, 1}, {2, 20, 4, 1}, {0, 16, 2, 1025}, {12, 16, 2, 31}, {13, 16, 2, 33}, {0, 20, 4, 1}, {0, 12, 4, 1},
        {6, 16, 2, 4097}, {1, 32, 8, 1}, {16, 0, 1, 'E'}, /* rows without any, as they are */
    };
    static const struct echi_frame empty = {.type = ECHI_FRAME_DATA, .kind = ROWS, .message = 3};
    enum { N = sizeof plain / sizeof *plain, BAD = sizeof bad / sizeof *bad };
    if (i > N + BAD) return 0;
    *good = i <= N;
    const int first = i < N ? i : i == N ? 0 : bad[i - N - 1].of, end = i == N ? N : first + 1;
    size_t len = 0;
    for (int k = first; k < end && len + ECHI_FRAME_HEADER <= cap; k++) {
        echi_frame_store(k < N ? &plain[k] : &empty, out + len);
        echi_store32(out + len + 8, ECHI_FRAME_EPOCH);
        len += ECHI_FRAME_HEADER;
    }
    for (int b = 0; !*good && b < bad[i - N - 1].width; b++) out[bad[i - N - 1].at + b] = (uint8_t)(bad[i - N - 1].value >> 8 * b);
    return len;
}

/* What never differs is put right, so that the fields behind it are looked at. */
static void repair(uint8_t *bytes, size_t *len, size_t cap) {
    (void)cap;
    uint8_t good[ECHI_FRAME_HEADER];
    echi_frame_store(&(struct echi_frame){.type = ECHI_FRAME_READY}, good);
    echi_store32(good + 8, ECHI_FRAME_EPOCH);
    for (size_t at = 0; at + ECHI_FRAME_HEADER <= *len; at += ECHI_FRAME_HEADER) {
        memcpy(bytes + at, good, 5);
        bytes[at + 7] = good[7];
        memcpy(bytes + at + 8, good + 8, 4);
        memcpy(bytes + at + 40, good + 40, 16);
    }
}

const struct fuzz_driver fuzz_frame = {.name = "frame", .one = one, .seed = seed, .repair = repair, .most = 56 * 16};
