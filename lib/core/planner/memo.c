/* SPDX-License-Identifier: Apache-2.0
 * Predictions that were made before. A choice comes to the same plan in many ways: two preferences of owners that agree, a policy with as
 * few nodes as another was left, a rank without which nothing changes. Two thirds of its predictions are such.
 *
 * A prediction is a function of a plan's bytes, of the nodes' times and of the load. What is kept is a digest of 128 bits of these and the
 * result, so that a thousand nodes take no more room than two, and two of a few hundred are taken for one another once in 2^110 choices. */
#include "echi_choice_impl.h"

#include <stddef.h>
#include <string.h>

/* Two digests side by side: each word is mixed in by the finaliser of MurmurHash3 (Appleby, 2011), with other multipliers. */
static void mix(uint64_t digest[2], uint64_t word) {
    static const uint64_t by[2] = {UINT64_C(0xff51afd7ed558ccd), UINT64_C(0xc4ceb9fe1a85ec53)};
    for (int i = 0; i < 2; i++) {
        digest[i] = (digest[i] ^ word) * by[i];
        digest[i] ^= digest[i] >> 32;
    }
}

static void mix_bytes(uint64_t digest[2], const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    uint64_t word = 0;
    mix(digest, count);
    for (; count >= sizeof word; at += sizeof word, count -= sizeof word) {
        memcpy(&word, at, sizeof word);
        mix(digest, word);
    }
    if (count == 0) return;
    word = 0;
    memcpy(&word, at, count);
    mix(digest, word);
}

/* Of a node's times all but the shares of units that it has not. */
static void mix_times(uint64_t digest[2], const struct echi_times *t) {
    mix_bytes(digest, t, offsetof(struct echi_times, share));
    for (int i = 0; i < t->sizes; i++) mix_bytes(digest, t->share[i], t->units * sizeof t->share[i][0]);
}

/* False where a plan has no bytes. Between two predictions their memory is free. */
static bool digest_of(const struct echi_plan *plan, const struct echi_times *times, const struct echi_load *load,
                      struct echi_predict_work *work, uint64_t out[2]) {
    _Static_assert(ECHI_PLAN_BYTES_MAX <= sizeof work->bytes, "any plan's bytes");
    const size_t len = echi_plan_encode(plan, work->bytes, sizeof work->bytes);
    out[0] = out[1] = 0;
    mix_bytes(out, work->bytes, len);
    mix_bytes(out, load, sizeof *load);
    for (int r = 0; r < plan->world; r++) mix_times(out, &times[r]);
    return len > 0;
}

/* The place of what is known of it; else the next one, whose digest is another. */
static struct echi_known *find(struct echi_memo *m, const uint64_t digest[2]) {
    const uint32_t count = m->count < ECHI_MEMO_MAX ? m->count : ECHI_MEMO_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (m->known[i].digest[0] == digest[0] && m->known[i].digest[1] == digest[1]) return &m->known[i];
    return &m->known[m->count++ % ECHI_MEMO_MAX];
}

void echi_memo_predict(const struct echi_plan *plan, const struct echi_times *times, const struct echi_load *load, double floor,
                       struct echi_choice_work *work, struct echi_prediction *out) {
    uint64_t digest[2];
    if (!digest_of(plan, times, load, &work->predict, digest))
        return echi_predict_above(plan, times, load, floor, &work->predict, out);
    const uint32_t before = work->memo.count;
    struct echi_known *known = find(&work->memo, digest);
    if (work->memo.count > before || known->below > floor) {
        echi_predict_above(plan, times, load, floor, &work->predict, &known->prediction);
        memcpy(known->digest, digest, sizeof digest);
        known->below = known->prediction.rate > 0 ? 0 : floor;
    }
    *out = known->prediction;
}
