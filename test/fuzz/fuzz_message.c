/* SPDX-License-Identifier: Apache-2.0
 * Messages of the scheduler, the plan and the step times: what is decoded encodes to the same bytes. */
#include "fuzz.h"

#include "echi_bytes.h"
#include "echi_run.h"

#include <math.h>
#include <string.h>

/* --- messages: the first byte is the kind, the rest what came with it --- */

static bool one_message(const uint8_t *bytes, size_t len) {
    struct echi_msg m;
    uint8_t again[ECHI_MSG_MAX];
    if (len == 0) return false;
    const int kind = bytes[0];
    if (!echi_msg_decode(kind, bytes + 1, len - 1, &m)) return false;
    FUZZ_CHECK(kind < ECHI_KINDS && m.kind == kind && m.to_role < ECHI_ROLES && m.from_role < ECHI_ROLES);
    FUZZ_CHECK(memchr(m.text, 0, sizeof m.text) != NULL);
    const size_t n = echi_msg_encode(&m, again, sizeof again);
    /* Four kinds have a body of their own behind what every message has. */
    const bool body = kind == ECHI_KIND_MEASURED || kind == ECHI_KIND_PLAN || kind == ECHI_KIND_STATS || kind == ECHI_KIND_PROBE;
    FUZZ_CHECK(n > 0 && (body ? n <= len - 1 : n == len - 1) && memcmp(again, bytes + 1, n) == 0);
    return true;
}

static size_t seed_message(int i, uint8_t *out, size_t cap, bool *good) {
    static const uint8_t marks[] = {1, 0, 5, 0, 0, 0, 3, 0, 6, 0, 0, 0};
    struct echi_msg m = {.kind = (uint8_t)i, .to_role = ECHI_ROLE_OWNER, .from_role = ECHI_ROLE_WORKER, .group = 2, .peer = 9,
                         .flag = 1, .layer = 3, .correct = 31, .version = 88, .samples = 77, .loss = 1.5, .staleness = 0.25,
                         .lease = {.id = 1, .epoch = 5, .n = 32, .round = 7, .round_size = 64, .worker = 3, .owner = 1},
                         .marks = {marks, 2}, .text = "because"};
    /* Numbers beyond the tables, a text without room for its end, one with a NUL in it, and a byte too many. */
    enum { BAD = 8 };
    if (i >= ECHI_KINDS + BAD) return 0;
    const int bad = i - ECHI_KINDS;
    *good = bad < 0;
    if (bad >= 0) m.kind = ECHI_KIND_END;
    if (bad == 2) m.to_role = ECHI_ROLES;
    if (bad == 3) m.from_role = 255;
    if (bad == 4) memset(m.text, 'x', sizeof m.text - 1);
    out[0] = m.kind;
    size_t len = 1 + echi_msg_encode(&m, out + 1, cap - 1);
    if (bad == 0) out[0] = ECHI_KINDS;
    if (bad == 1) out[0] = 255;
    if (bad == 4) out[len - sizeof m.text] = sizeof m.text, out[len++] = 'x';
    if (bad == 5) out[len - 3] = 0;
    if (bad == 6) out[len++] = 0;
    if (bad == 7) out[len - 8]++;
    return len;
}

const struct fuzz_driver fuzz_message = {.name = "message", .one = one_message, .seed = seed_message, .most = 1024};

/* --- plans --- */

static bool one_plan(const uint8_t *bytes, size_t len) {
    struct echi_plan plan, back;
    uint8_t again[ECHI_PLAN_BYTES_MAX];
    if (!echi_plan_decode(bytes, len, &plan)) return false;
    FUZZ_CHECK(echi_plan_valid(&plan));
    FUZZ_CHECK(echi_plan_encode(&plan, again, sizeof again) == len && memcmp(again, bytes, len) == 0);
    /* As a file it is the same plan, where a file may say it: its bounds are narrower, and whether a run goes on, or shares follow speeds,
     * it does not say. */
    if (plan.rounds_apart < 1 || plan.rounds_apart > 1000000 || plan.staleness > 1000000) return true;
    if (plan.resumed || plan.shares_follow) return true;
    struct ech_error err = {0};
    FUZZ_CHECK(echi_plan_save(fuzz_out_path(), &plan, NULL, &err) == ECH_OK);
    FUZZ_CHECK(echi_plan_load(fuzz_out_path(), 0, &back, NULL, &err) == ECH_OK);
    FUZZ_CHECK(echi_plan_encode(&back, again, sizeof again) == len && memcmp(again, bytes, len) == 0);
    return true;
}

/* Where the bytes of a plan keep a field of one byte: the first that differs when the field does. */
static size_t place_in_plan(const uint8_t *bytes, size_t len, size_t field) {
    struct echi_plan p;
    uint8_t other[ECHI_PLAN_BYTES_MAX];
    size_t at = 0;
    FUZZ_CHECK(echi_plan_decode(bytes, len, &p));
    ((uint8_t *)&p)[field] ^= 1;
    const size_t n = echi_plan_encode(&p, other, sizeof other);
    while (at < len && at < n && bytes[at] == other[at]) at++;
    FUZZ_CHECK(at < len);
    return at;
}

static size_t seed_plan(int i, uint8_t *out, size_t cap, bool *good) {
    struct echi_plan p = {.sync = ECHI_SYNC_GSSP, .world = 4, .n_groups = 2, .cut = 2, .head = 2, .n = {8, 0, 8, 300},
                          .round = 64, .staleness = 3, .rounds_apart = 4, .flights = 2, .lr = 0.02, .momentum = 0.9, .decay = 1e-4};
    memset(p.owner_of, 0xff, sizeof p.owner_of);
    memset(p.group_of, ECHI_NONE, sizeof p.group_of);
    switch (i) {
    case 0:
        p.owner_of[0] = 2, p.owner_of[1] = 1;
        p.group_of[0] = p.group_of[2] = 0, p.group_of[3] = 1;
        break;
    case 1: /* one node under bsp */
        p.sync = ECHI_SYNC_BSP, p.world = 1, p.n_groups = 1, p.cut = 0, p.head = ECHI_NO_RANK, p.flights = 1;
        p.n[0] = 64, p.n[2] = p.n[3] = 0;
        p.owner_of[0] = p.group_of[0] = 0;
        break;
    case 2: /* as large as one may be */
        p.codec = ECHI_CODEC_TOPK, p.ratios = ECHI_RATIOS_PAPER, p.state_ratio = 150000;
        for (int g = 0; g < ECHI_GROUPS_MAX; g++) p.base[g] = 250000;
        p.world = ECHI_WORLD_MAX, p.n_groups = ECHI_GROUPS_MAX;
        for (int r = 0; r < ECHI_WORLD_MAX; r++) p.group_of[r] = (uint8_t)(r % ECHI_GROUPS_MAX), p.n[r] = 1u << 20;
        for (int g = 0; g < ECHI_GROUPS_MAX; g++) p.owner_of[g] = (uint16_t)g;
        break;
    case 3: /* steps in a round */
        p.sync = ECHI_SYNC_LOCAL, p.n_groups = 1, p.cut = 0, p.head = ECHI_NO_RANK, p.flights = 1;
        p.outer_lr = 0.7, p.outer_momentum = 0.9;
        p.owner_of[0] = 2, p.group_of[0] = p.group_of[2] = p.group_of[3] = 0;
        p.inner[0] = 16, p.inner[2] = 1, p.inner[3] = 10000;
        break;
    case 4: /* a reserve */
        p.n_groups = 3, p.reserve = 1;
        p.owner_of[0] = 2, p.owner_of[1] = 1, p.owner_of[2] = 3;
        p.group_of[0] = p.group_of[2] = 0, p.group_of[3] = 1;
        break;
    case 5: /* a schedule */
        p.owner_of[0] = 2, p.owner_of[1] = 1;
        p.group_of[0] = p.group_of[2] = 0, p.group_of[3] = 1;
        p.optimizer = ECHI_OPTIMIZER_NESTEROV;
        p.schedule = (struct echi_schedule){.kind = ECHI_SCHEDULE_STEP, .steps = 2, .factor = 0.1, .step = {1.5, 3}, .warmup = 0.25};
        break;
    case 6: /* Adam */
        p.owner_of[0] = 2, p.owner_of[1] = 1;
        p.group_of[0] = p.group_of[2] = 0, p.group_of[3] = 1;
        p.optimizer = ECHI_OPTIMIZER_ADAM, p.momentum = 0;
        p.adam = (struct echi_adam){0.9, 0.999, 1e-8};
        break;
    case 7: /* with a table of parts: slices, and small neighbours in one */
    case 8: /* one a layer */
        p.owner_of[0] = 2, p.owner_of[1] = 1;
        p.group_of[0] = p.group_of[2] = 0, p.group_of[3] = 1;
        if (i == 8) p.codec = ECHI_CODEC_TOPK, p.state_ratio = 150000, p.base[0] = p.base[1] = 250000;
        echi_parts_make(&(struct echi_layers){.count = 4, .cut = 2, .params = {156, 2416, 3000000, 850}}, 2, p.codec, ECHI_PART_SLICE,
                        ECHI_PART_MERGED, &p.parts);
        break;
    case 9: /* shards */
        p.sync = ECHI_SYNC_BSP, p.n_groups = 1, p.cut = 0, p.head = ECHI_NO_RANK, p.flights = 1, p.round = 316;
        p.owner_of[0] = 2, p.group_of[0] = p.group_of[2] = p.group_of[3] = 0;
        p.shards = 3, p.shard_owner[0] = 2, p.shard_owner[1] = 0, p.shard_owner[2] = 1;
        echi_parts_make(&(struct echi_layers){.count = 4, .cut = 4, .params = {156, 2416, 30000, 850}}, 0, p.codec, 8000, 100,
                        &p.parts);
        for (int k = 0; k < p.parts.count; k++) p.parts.part[k].shard = (uint8_t)(k % 3);
        break;
    case 10: /* a ring */
        p.sync = ECHI_SYNC_BSP, p.n_groups = 1, p.cut = 0, p.head = ECHI_NO_RANK, p.flights = 1, p.round = 316;
        p.owner_of[0] = 2, p.group_of[0] = p.group_of[2] = p.group_of[3] = 0;
        p.shards = 2, p.shard_owner[0] = 2, p.shard_owner[1] = 0, p.exchange = ECHI_EXCHANGE_RING;
        echi_parts_make(&(struct echi_layers){.count = 4, .cut = 4, .params = {156, 2416, 30000, 850}}, 0, p.codec, 8000, 100,
                        &p.parts);
        for (int k = 0; k < p.parts.count; k++) p.parts.part[k].shard = (uint8_t)(k % 2);
        break;
    case 11: /* a head that takes micro-batches */
        p.sync = ECHI_SYNC_BSP, p.n_groups = 1, p.flights = 1, p.micro_batches = 4, p.round = 316;
        p.owner_of[0] = 2, p.group_of[0] = p.group_of[2] = p.group_of[3] = 0;
        break;
    case 12: /* heads that gather */
        p.sync = ECHI_SYNC_BSP, p.n_groups = p.flights = p.gathers = 1, p.round = 316;
        p.owner_of[0] = 2, p.group_of[0] = p.group_of[2] = p.group_of[3] = 0;
        p.heads = 3, p.head_rank[0] = 2, p.head_rank[2] = 1;
        p.head_of[2] = 1, p.head_of[3] = 2;
        break;
    case 13: /* activations in bf16 */
        p.owner_of[0] = 2, p.owner_of[1] = 1;
        p.group_of[0] = p.group_of[2] = 0, p.group_of[3] = 1;
        p.activations = ECHI_ACTIVATIONS_BF16;
        break;
    default: { /* the first one with a field changed; then a byte too many and one too few */
        static const struct { size_t field; uint8_t value; } bad[] = {
            {offsetof(struct echi_plan, sync), ECHI_SYNCS}, {offsetof(struct echi_plan, sync), 255},
            {offsetof(struct echi_plan, world), 0},         {offsetof(struct echi_plan, world), 65},
            {offsetof(struct echi_plan, world) + 1, 4},     {offsetof(struct echi_plan, n_groups), 0},
            {offsetof(struct echi_plan, n_groups), 9},      {offsetof(struct echi_plan, n_groups), 255},
            {offsetof(struct echi_plan, shadow), 3},        {offsetof(struct echi_plan, shadow), 5},
            {offsetof(struct echi_plan, cut), 0},           {offsetof(struct echi_plan, reserve), 1},
            {offsetof(struct echi_plan, reserve), 2},       {offsetof(struct echi_plan, head), 4},
            {offsetof(struct echi_plan, head), ECHI_NONE},  {offsetof(struct echi_plan, flights), 0},
            {offsetof(struct echi_plan, flights), 3},       {offsetof(struct echi_plan, micro_batches), 1},
            {offsetof(struct echi_plan, micro_batches), 2}, {offsetof(struct echi_plan, micro_batches), 9},
            {offsetof(struct echi_plan, gathers), 1},
            {offsetof(struct echi_plan, activations), ECHI_ACTIVATIONS}, {offsetof(struct echi_plan, owner_of), 4},
            {offsetof(struct echi_plan, owner_of), 1},      {offsetof(struct echi_plan, group_of), 2},
            {offsetof(struct echi_plan, group_of), ECHI_NONE},
            {offsetof(struct echi_plan, optimizer), ECHI_OPTIMIZERS}, {offsetof(struct echi_plan, schedule.kind), ECHI_SCHEDULE_STEP},
            {offsetof(struct echi_plan, schedule.kind), ECHI_SCHEDULES}, {offsetof(struct echi_plan, schedule.steps), 1},
            {offsetof(struct echi_plan, codec), 1},         {offsetof(struct echi_plan, codec), ECHI_CODECS},
            {offsetof(struct echi_plan, exchange), ECHI_EXCHANGE_RING}, {offsetof(struct echi_plan, exchange), ECHI_EXCHANGES},
        };
        const int b = i - 14, count = sizeof bad / sizeof *bad;
        if (b > count + 6) return 0;
        size_t len = seed_plan(b > count + 5 ? 9 : b > count + 1 ? 7 : 0, out, cap, good);
        uint8_t *last = out + len - ECHI_PART_BYTES;   /* of the seventh the last part */
        *good = false;
        if (b < count) out[place_in_plan(out, len, bad[b].field)] = bad[b].value;
        if (b == count) out[len++] = 0;
        if (b == count + 1) len--;
        if (b == count + 2) memset(last, 0, 4);        /* without parameters */
        if (b == count + 3) last[5]--;                 /* that ends in front of its first layer */
        if (b == count + 4) last[6]++;                 /* of another codec */
        if (b == count + 5) last[8]++;                 /* that may lose some */
        if (b == count + 6) last[7] = 3;               /* of a shard that nobody owns */
        return len;
    }
    }
    return echi_plan_encode(&p, out, cap);
}

const struct fuzz_driver fuzz_plan = {.name = "plan", .one = one_plan, .seed = seed_plan, .most = ECHI_PLAN_BYTES_MAX, .heap = 358000};

/* --- step times --- */

static bool one_times(const uint8_t *bytes, size_t len) {
    struct echi_times t;
    uint8_t again[ECHI_TIMES_BYTES_MAX];
    if (!echi_times_decode(bytes, len, &t)) return false;
    FUZZ_CHECK(t.count >= 1 && t.count <= ECHI_TIMES_MAX);
    FUZZ_CHECK(echi_times_encode(&t, again, sizeof again) == len && memcmp(again, bytes, len) == 0);
    /* A planner may ask for any number of samples that a plan may hold. */
    static const uint32_t ask[] = {1, 2, 7, 64, 65, 1000, 65536, 1u << 20, 1u << 24};
    for (size_t i = 0; i < sizeof ask / sizeof *ask; i++) {
        const double whole = echi_times_whole(&t, ask[i]);
        FUZZ_CHECK(isfinite(whole) && whole > 0);
        double units = 0;
        for (int u = 0; u < t.units; u++)
            for (int pass = 0; pass < ECHI_PASSES; pass++) {
                const double unit = echi_times_unit(&t, u, (enum echi_pass)pass, ask[i]);
                FUZZ_CHECK(isfinite(unit) && unit >= 0);
                units += unit;
            }
        /* Less where there is a head, but no units behind the cut. The least there is has few digits. */
        FUZZ_CHECK(t.units == 0 || units <= whole * (1 + 1e-9) + 1e-300);
        const double forward = echi_times_forward(&t, ask[i]);
        FUZZ_CHECK(forward >= 0 && forward <= echi_times_trunk(&t, ask[i]) * (1 + 1e-9) + 1e-300);
    }
    return true;
}

static size_t seed_times(int i, uint8_t *out, size_t cap, bool *good) {
    struct echi_times t = {.count = i == 0 ? 1 : i == 1 ? 3 : ECHI_TIMES_MAX, .exchange = 0.125, .messages = 0.0625};
    for (uint32_t k = 0; k < t.count; k++) t.n[k] = 1u << k, t.trunk[k] = 0.5 * (k + 1), t.head[k] = 0.25 * k;
    /* Sizes that do not ascend, times that are none, more sizes than there is room for. */
    *good = i < 3;
    if (i == 3) t.n[2] = t.n[1];
    if (i == 4) t.n[0] = 0;
    if (i == 5) t.trunk[3] = NAN;
    if (i == 6) t.head[3] = -1;
    if (i == 7) t.exchange = INFINITY;
    if (i == 8) t.trunk[0] = 0;
    /* Units, and units that do not fit. */
    static const double seconds[3][ECHI_PASSES] = {{1, 2}, {3, 5}, {1, 3}};
    if (i == 2 || i > 10) {
        t.units = 3, t.cut = 2, t.sizes = 2, t.size[1] = 2;
        for (int k = 0; k < 2; k++) echi_times_share(&t, k, seconds);
    }
    if (i == 11) t.share[1][0].of[0]++;
    if (i == 12) t.size[0] = 2;
    if (i == 13) t.cut = 4;
    size_t len = i < 14 ? echi_times_encode(&t, out, cap) : 0;
    if (i == 9) out[0] = 0;
    if (i == 10) out[0] = ECHI_TIMES_MAX + 1;
    return len;
}

const struct fuzz_driver fuzz_times = {.name = "times", .one = one_times, .seed = seed_times, .most = ECHI_TIMES_BYTES_MAX};
