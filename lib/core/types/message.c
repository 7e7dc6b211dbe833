/* SPDX-License-Identifier: Apache-2.0
 * Messages and plans to bytes and back. Pure and bounded: every length is checked before it is used. */
#include "echi_bytes.h"
#include "echi_message.h"
#include "echi_times.h"

#include <string.h>

static const struct { const char *name; bool payload; } kinds[ECHI_KINDS] = {
#define ROW(name, text, payload) [ECHI_KIND_##name] = {text, payload},
    ECHI_KIND_LIST(ROW)
#undef ROW
};

const char *echi_kind_name(int kind) { return kind >= 0 && kind < ECHI_KINDS ? kinds[kind].name : NULL; }
bool echi_kind_has_payload(int kind) { return kind >= 0 && kind < ECHI_KINDS && kinds[kind].payload; }

/* Which fields a kind carries, so that encoding and decoding cannot drift apart. */
enum {
    F_LEASE = 1,
    F_LAYER = 2,
    F_FLAG = 4,
    F_LOSS = 8,
    F_VERSION = 16,
    F_SAMPLES = 32,
    F_STALE = 64,
    F_GROUP = 128,
    F_TEXT = 256,
    F_HEAD = 512,
    F_ACKED = 1024,
    F_MEMBERS = 2048,
    F_MARKS = 4096,
    F_NUMBER = 8192,
    F_TIMES = 16384,
    F_PART = 32768,
    F_RATE = 65536
};
static const uint32_t fields[ECHI_KINDS] = {
    [ECHI_KIND_HEARTBEAT] = F_NUMBER,
    [ECHI_KIND_LEASE] = F_LEASE | F_MEMBERS,
    [ECHI_KIND_READY] = F_FLAG | F_MEMBERS,
    [ECHI_KIND_STARTED] = F_MEMBERS,
    [ECHI_KIND_DRAIN] = F_MEMBERS,
    [ECHI_KIND_DRAINED] = F_MEMBERS,
    [ECHI_KIND_LOST] = F_GROUP | F_TEXT | F_MEMBERS,
    [ECHI_KIND_REVOKE] = F_LEASE | F_GROUP,
    [ECHI_KIND_REVOKED] = F_LEASE | F_FLAG | F_GROUP | F_VERSION | F_MEMBERS | F_MARKS,
    [ECHI_KIND_FROZEN] = F_GROUP | F_VERSION | F_SAMPLES | F_MARKS,
    [ECHI_KIND_APPLIED] = F_LEASE | F_FLAG | F_LOSS | F_VERSION | F_STALE | F_HEAD | F_ACKED | F_TIMES,
    [ECHI_KIND_ASK] = F_PART | F_FLAG | F_SAMPLES | F_MEMBERS,
    [ECHI_KIND_STATE_ACK] = F_FLAG | F_GROUP | F_VERSION | F_SAMPLES,
    [ECHI_KIND_FAULT] = F_LAYER | F_GROUP | F_TEXT,
    [ECHI_KIND_END] = F_LAYER | F_FLAG | F_GROUP | F_TEXT,
    [ECHI_KIND_ACT_GRAD] = F_LEASE | F_LOSS | F_VERSION | F_HEAD,
    [ECHI_KIND_ACT] = F_LEASE | F_FLAG,
    [ECHI_KIND_WEIGHTS] = F_PART | F_FLAG | F_VERSION | F_SAMPLES | F_MEMBERS | F_NUMBER,
    [ECHI_KIND_PUSH] = F_LEASE | F_PART | F_FLAG | F_LOSS | F_VERSION | F_SAMPLES | F_HEAD | F_MEMBERS | F_TIMES,
    [ECHI_KIND_STATE] = F_FLAG | F_GROUP | F_VERSION | F_SAMPLES | F_MEMBERS | F_MARKS | F_NUMBER,
    [ECHI_KIND_PARAMS] = F_PART | F_FLAG | F_SAMPLES,
    [ECHI_KIND_STOP] = F_FLAG,
    [ECHI_KIND_ENTER] = F_LEASE | F_MEMBERS,
    [ECHI_KIND_REGROUP] = F_GROUP | F_MEMBERS,
    [ECHI_KIND_NORM] = F_LEASE | F_LAYER | F_FLAG,
    [ECHI_KIND_NORM_ALL] = F_LEASE | F_LAYER | F_FLAG | F_SAMPLES,
    [ECHI_KIND_STANDS] = F_LEASE | F_FLAG | F_VERSION | F_MEMBERS,
    [ECHI_KIND_TAKEOVER] = F_VERSION | F_MEMBERS | F_MARKS,
    [ECHI_KIND_RESUME] = F_PART | F_FLAG | F_VERSION | F_MEMBERS,
    [ECHI_KIND_RING_SUM] = F_LEASE | F_PART | F_SAMPLES | F_MEMBERS,
    [ECHI_KIND_RING_WEIGHTS] = F_PART | F_VERSION | F_SAMPLES | F_MEMBERS,
    [ECHI_KIND_RATE] = F_GROUP | F_FLAG | F_RATE,
    [ECHI_KIND_RING_LEASE] = F_LEASE | F_FLAG | F_LOSS | F_VERSION | F_SAMPLES | F_HEAD | F_MEMBERS | F_TIMES,
    [ECHI_KIND_SHADOWED] = F_LEASE,
    [ECHI_KIND_HEAD_SUM] = F_LEASE | F_VERSION | F_SAMPLES,
    [ECHI_KIND_HEADS] = F_PART | F_FLAG | F_GROUP | F_MEMBERS,
    [ECHI_KIND_HEAD_COPY] = F_FLAG | F_VERSION | F_SAMPLES,
    [ECHI_KIND_PACE] = F_VERSION | F_SAMPLES | F_TIMES,
};

bool echi_kind_of_layer(int kind) { return echi_kind_has_payload(kind) && fields[kind] & F_LAYER; }
bool echi_kind_of_part(int kind) { return echi_kind_has_payload(kind) && fields[kind] & F_PART; }
int echi_kind_names(int kind) { return echi_kind_of_part(kind) ? ECHI_PARTS_MAX : 1; }
bool echi_msg_of_shard(const struct echi_msg *m, const struct echi_plan *p) {
    return p->shards > 0 && m->kind == ECHI_KIND_PARAMS && m->from_role == ECHI_ROLE_OWNER && m->flag != ECHI_PARAMS_MOMENTUM;
}
uint16_t echi_msg_name(const struct echi_msg *m) { return echi_kind_of_part(m->kind) ? m->part : 0; }

/* Kinds that are not encoded here, but carry a body of their own behind the two role bytes; a plan's grows with the world. */
static const uint16_t bodies[ECHI_KINDS] = {
    [ECHI_KIND_MEASURED] = ECHI_TIMES_BYTES_MAX,
    [ECHI_KIND_STATS] = ECHI_STATS_BYTES,
    [ECHI_KIND_PROBE] = ECHI_PROBE_BODY,
};
bool echi_kind_has_body(int kind) { return kind >= 0 && kind < ECHI_KINDS && (kind == ECHI_KIND_PLAN || bodies[kind] > 0); }

enum { LEASE_SHARDS = 2, LEASE_BASE = 4, LEASE_HEAD = 8 };   /* beside `again`: the shards, the base of its ratio, its head follow */
enum { LEASE_BYTES = 34 };                   /* of what each lease has */

void echi_lease_put(struct echi_writer *w, const struct echi_lease *l) {
    uint8_t *at = echi_writer_take(w, LEASE_BYTES);
    if (!at) return;
    echi_store32(at, l->id);
    echi_store32(at + 4, l->epoch);
    echi_store32(at + 8, l->start);
    echi_store32(at + 12, l->n);
    echi_store32(at + 16, l->round);
    echi_store32(at + 20, l->round_size);
    echi_store16(at + 24, l->worker);
    echi_store16(at + 26, l->owner);
    at[28] = (uint8_t)(l->again | (l->shards ? LEASE_SHARDS : 0) | (l->base ? LEASE_BASE : 0) | (l->head_rows ? LEASE_HEAD : 0));
    at[29] = l->part;
    echi_store32(at + 30, l->together);
    if (l->shards) echi_put64(w, l->shards);
    if (l->base) echi_put32(w, l->base);
    if (l->head_rows) {
        echi_put8(w, l->head);
        echi_put32(w, l->head_rows);
    }
}

void echi_lease_get(struct echi_reader *r, struct echi_lease *l) {
    const uint8_t *at = echi_reader_take(r, LEASE_BYTES);
    *l = (struct echi_lease){0};
    if (!at) return;
    l->id = echi_load32(at);
    l->epoch = echi_load32(at + 4);
    l->start = echi_load32(at + 8);
    l->n = echi_load32(at + 12);
    l->round = echi_load32(at + 16);
    l->round_size = echi_load32(at + 20);
    l->worker = echi_load16(at + 24);
    l->owner = echi_load16(at + 26);
    const uint8_t flags = at[28];
    l->again = (uint8_t)(flags & ~(LEASE_SHARDS | LEASE_BASE | LEASE_HEAD));
    l->part = at[29];
    l->together = echi_load32(at + 30);
    l->shards = flags & LEASE_SHARDS ? echi_get64(r) : 0;
    l->base = flags & LEASE_BASE ? echi_get32(r) : 0;
    if (flags & LEASE_HEAD) {
        l->head = echi_get8(r);
        l->head_rows = echi_get32(r);
    }
    const bool empty = ((flags & LEASE_SHARDS) && l->shards == 0) || ((flags & LEASE_BASE) && l->base == 0);
    if (empty || ((flags & LEASE_HEAD) && l->head_rows == 0)) r->ok = false;   /* one way of writing it */
}

struct echi_marks echi_marks_of(const uint32_t *mark, int world, uint8_t *room) {
    struct echi_marks marks = {room, 0};
    for (int r = 0; r < world; r++) {
        if (mark[r] == 0) continue;
        uint8_t *at = room + ECHI_MARK_BYTES * marks.count++;
        echi_store16(at, (uint16_t)r);
        echi_store32(at + 2, mark[r]);
    }
    return marks;
}

void echi_marks_get(struct echi_marks marks, uint32_t *mark, int world) {
    memset(mark, 0, (size_t)world * sizeof *mark);
    for (int i = 0; i < marks.count; i++) {
        const uint8_t *at = marks.at + ECHI_MARK_BYTES * i;
        if (echi_load16(at) < world) mark[echi_load16(at)] = echi_load32(at + 2);
    }
}

static void put_marks(struct echi_writer *w, struct echi_marks marks) {
    echi_put16(w, (uint16_t)marks.count);
    echi_put_bytes(w, marks.at, (size_t)marks.count * ECHI_MARK_BYTES);
}

static bool get_marks(struct echi_reader *r, struct echi_marks *out) {
    out->count = echi_get16(r);
    if (out->count > ECHI_WORLD_MAX) return false;
    out->at = echi_reader_take(r, (size_t)out->count * ECHI_MARK_BYTES);
    for (int i = 0, next = 0; r->ok && i < out->count; i++) {
        const int rank = echi_load16(out->at + ECHI_MARK_BYTES * i);
        if (rank < next || rank >= ECHI_WORLD_MAX || echi_load32(out->at + ECHI_MARK_BYTES * i + 2) == 0) return false;
        next = rank + 1;
    }
    return r->ok;
}

size_t echi_msg_encode(const struct echi_msg *m, uint8_t *out, size_t cap) {
    if (m->kind >= ECHI_KINDS) return 0;
    const uint32_t f = fields[m->kind];
    struct echi_writer w = echi_writer_over(out, cap);
    echi_put8(&w, m->to_role);
    echi_put8(&w, m->from_role);
    if (f & F_LEASE) echi_lease_put(&w, &m->lease);
    if (f & F_LAYER) echi_put16(&w, m->layer);
    if (f & F_PART) echi_put16(&w, m->part);
    if (f & F_FLAG) echi_put8(&w, m->flag);
    if (f & F_LOSS) { echi_put_f64(&w, m->loss); echi_put32(&w, m->correct); }
    if (f & F_VERSION) echi_put64(&w, m->version);
    if (f & F_SAMPLES) echi_put64(&w, m->samples);
    if (f & F_HEAD) echi_put64(&w, m->head);
    if (f & F_STALE) echi_put_f64(&w, m->staleness);
    if (f & F_GROUP) { echi_put8(&w, m->group); echi_put16(&w, m->peer); }
    if (f & F_TEXT) {
        size_t len = strlen(m->text);
        echi_put8(&w, (uint8_t)len);
        echi_put_bytes(&w, m->text, len);
    }
    if (f & F_ACKED) echi_put64(&w, m->acked);
    if (f & F_MEMBERS) echi_put32(&w, m->members);
    if (f & F_MARKS) put_marks(&w, m->marks);
    if (f & F_NUMBER) echi_put32(&w, m->number);
    if (f & F_TIMES) { echi_put64(&w, m->compute); echi_put64(&w, m->exchange); }
    if (f & F_RATE) echi_put_f64(&w, m->rate);
    return w.ok ? (size_t)(w.at - out) : 0;
}

/* What the largest message of this kind comes to: the encoding itself says it. */
uint32_t echi_kind_meta_cap(int kind, int world) {
    if (kind < 0 || kind >= ECHI_KINDS) return 0;
    /* What follows only where there is some of it. */
    struct echi_msg most = {.kind = (uint8_t)kind, .lease = {.shards = 1, .base = 1, .head_rows = 1}};
    uint8_t bytes[ECHI_MSG_MAX];
    memset(most.text, 'x', sizeof most.text - 1);
    const uint32_t marks = fields[kind] & F_MARKS ? ECHI_MARK_BYTES * (uint32_t)world : 0;
    const uint32_t body = kind == ECHI_KIND_PLAN ? ECHI_PLAN_BYTES((uint32_t)world) : bodies[kind];
    return (uint32_t)echi_msg_encode(&most, bytes, sizeof bytes) + marks + body;
}

uint32_t echi_kind_meta_usual(int kind) {
    uint8_t bytes[ECHI_MSG_MAX];
    return (uint32_t)echi_msg_encode(&(struct echi_msg){.kind = (uint8_t)kind}, bytes, sizeof bytes);
}

bool echi_msg_decode(int kind, const uint8_t *bytes, size_t len, struct echi_msg *m) {
    memset(m, 0, sizeof *m);
    if (kind < 0 || kind >= ECHI_KINDS) return false;
    const uint32_t f = fields[kind];
    struct echi_reader r = echi_reader_over(bytes, len);
    m->kind = (uint8_t)kind;
    m->to_role = echi_get8(&r);
    m->from_role = echi_get8(&r);
    if (f & F_LEASE) echi_lease_get(&r, &m->lease);
    if (f & F_LAYER) m->layer = echi_get16(&r);
    if (f & F_PART) m->part = echi_get16(&r);
    if (f & F_FLAG) m->flag = echi_get8(&r);
    if (f & F_LOSS) { m->loss = echi_get_f64(&r); m->correct = echi_get32(&r); }
    if (f & F_VERSION) m->version = echi_get64(&r);
    if (f & F_SAMPLES) m->samples = echi_get64(&r);
    if (f & F_HEAD) m->head = echi_get64(&r);
    if (f & F_STALE) m->staleness = echi_get_f64(&r);
    if (f & F_GROUP) { m->group = echi_get8(&r); m->peer = echi_get16(&r); }
    if (f & F_TEXT) {
        size_t text_len = echi_get8(&r);
        if (text_len >= sizeof m->text) return false;
        echi_get_bytes(&r, m->text, text_len);
        if (memchr(m->text, 0, text_len)) return false;
    }
    if (f & F_ACKED) m->acked = echi_get64(&r);
    if (f & F_MEMBERS) m->members = echi_get32(&r);
    if ((f & F_MARKS) && !get_marks(&r, &m->marks)) return false;
    if (f & F_NUMBER) m->number = echi_get32(&r);
    if (f & F_TIMES) { m->compute = echi_get64(&r); m->exchange = echi_get64(&r); }
    if (f & F_RATE) m->rate = echi_get_f64(&r);
    if (!echi_kind_has_body(kind) && r.at != r.end) return false;
    return r.ok && m->to_role < ECHI_ROLES && m->from_role < ECHI_ROLES;
}

bool echi_lease_valid(const struct echi_lease *l, const struct echi_plan *p) {
    if (l->id == 0 || l->worker >= p->world || p->group_of[l->worker] == ECHI_NONE) return false;
    const uint8_t from = p->moved_from[l->worker];   /* steps that had begun */
    if (l->owner != p->owner_of[p->group_of[l->worker]] && (from == 0 || l->owner != p->owner_of[from - 1])) return false;
    if (l->n < 1 || l->n > echi_plan_room(p, l->worker) || l->part >= ECHI_ROUND_PARTS) return false;
    if (l->shards & ~echi_plan_all_shards(p) || l->base > (p->codec == ECHI_CODEC_TOPK ? ECHI_RATIO_ONE : 0)) return false;
    if (l->together && (!p->sync_norm || l->again || l->together < l->n || l->together > l->round_size)) return false;
    if (l->head_rows ? l->head >= p->heads || l->head_rows < l->n || l->head_rows > l->round_size : l->head || p->heads) return false;
    /* Only what is left at the end of an epoch may be less than a reduction block. */
    const uint32_t block = ECHI_REDUCTION_BLOCK;
    if (p->deterministic && (l->start % block || (l->n % block && l->round_size % block == 0))) return false;
    /* A step of an asynchronous worker may be larger than a round; a share of a round may not. */
    if (!echi_policy_of((enum echi_sync)p->sync)->rounds) return l->round_size == p->round;
    return l->round_size <= echi_plan_round_most(p) && l->n <= l->round_size;
}

/* A dense plan has no ratios, so that no two ways of writing it exist. */
static bool codec_valid(const struct echi_plan *p) {
    if (p->codec >= ECHI_CODECS || p->ratios >= ECHI_RATIOS) return false;
    const bool topk = p->codec == ECHI_CODEC_TOPK;
    if (topk ? p->deterministic || p->state_ratio < 1 || p->state_ratio > ECHI_RATIO_ONE : p->ratios || p->state_ratio) return false;
    for (int g = 0; g < p->n_groups; g++)
        if (topk ? p->base[g] < 1 || p->base[g] > ECHI_RATIO_ONE : p->base[g] != 0) return false;
    return true;
}

/* Owners of shards are different nodes, and each has parts. */
static bool shards_valid(const struct echi_plan *p) {
    uint64_t with_parts = 0;
    for (int i = 0; i < p->parts.count; i++) {
        if (p->parts.part[i].shard >= echi_plan_shards(p)) return false;
        with_parts |= 1ull << p->parts.part[i].shard;
    }
    for (int k = p->shards; k < ECHI_SHARDS_MAX; k++)
        if (p->shard_owner[k] != 0) return false;
    if (p->exchange >= ECHI_EXCHANGES) return false;
    if (p->shards == 0) return p->exchange != ECHI_EXCHANGE_RING;
    if (p->shards < 2 || p->shards > ECHI_SHARDS_MAX || p->sync != ECHI_SYNC_BSP || p->codec != ECHI_CODEC_DENSE) return false;
    if (p->shard_owner[0] != p->owner_of[0] || (p->parts.count && p->parts.part[0].shard != 0)) return false;
    for (int k = 0; k < p->shards; k++) {
        if (p->shard_owner[k] >= p->world) return false;
        for (int other = 0; other < k; other++)
            if (p->shard_owner[k] == p->shard_owner[other]) return false;
    }
    if (p->exchange == ECHI_EXCHANGE_RING && !echi_plan_may_ring(p)) return false;
    return p->parts.count == 0 || with_parts == echi_plan_all_shards(p);
}

/* Heads are different nodes, each of which trains rows of some worker, in rounds. */
static bool heads_valid(const struct echi_plan *p) {
    unsigned busy = 0;
    if (p->cut ? p->head >= p->world : p->head != ECHI_NO_RANK) return false;
    if (p->shadow > 0 && (!p->cut || p->heads || p->shadow > p->world || echi_plan_shadow(p) == p->head)) return false;
    for (int i = p->heads; i < ECHI_HEADS_MAX; i++)
        if (p->head_rank[i] != 0) return false;
    for (int r = 0; r < p->world; r++) {
        if (p->head_of[r] != 0 && (p->head_of[r] >= p->heads || p->n[r] == 0)) return false;
        if (p->n[r] > 0) busy |= 1u << p->head_of[r];
    }
    if (p->heads == 0) return true;
    if (p->heads < 2 || !p->cut || p->sync != ECHI_SYNC_BSP || p->deterministic || p->head_rank[0] != p->head) return false;
    for (int i = 0; i < p->heads; i++)
        if (p->head_rank[i] >= p->world || echi_plan_head_index(p, p->head_rank[i]) != i || !(busy >> i & 1)) return false;
    return true;
}

static bool is_rate(double v) { return v >= 0 && v < 1e6; }   /* false for a NaN */

bool echi_plan_valid(const struct echi_plan *p) {
    if (p->sync >= ECHI_SYNCS || p->world < 1 || p->world > ECHI_WORLD_MAX) return false;
    if (p->n_groups < 1 || p->n_groups > ECHI_GROUPS_MAX || p->reserve > 1 || p->reserve >= p->n_groups) return false;
    if (p->heads > ECHI_HEADS_MAX || !heads_valid(p)) return false;
    if (p->round < 1 || p->round > 1u << 24) return false;
    if (p->flights < 1 || p->flights > ECHI_FLIGHTS || p->resumed > 1 || p->deterministic > 1) return false;
    if (!is_rate(p->lr) || !is_rate(p->momentum) || !is_rate(p->decay) || !is_rate(p->damping)) return false;
    if (p->optimizer >= ECHI_OPTIMIZERS || !echi_schedule_valid(&p->schedule)) return false;
    if (echi_optimizer_adam(p->optimizer) ? p->momentum != 0 || !echi_adam_valid(&p->adam)
                                          : p->adam.beta1 != 0 || p->adam.beta2 != 0 || p->adam.epsilon != 0)
        return false;
    const struct echi_policy *policy = echi_policy_of((enum echi_sync)p->sync);
    if (policy->rounds && p->damping > 0) return false;
    if (p->n_groups > 1 && !policy->grouped) return false;
    if (p->deterministic && (!policy->rounds || policy->local || p->round % ECHI_REDUCTION_BLOCK)) return false;
    if (p->sync_norm > 1 || (p->sync_norm && (p->sync != ECHI_SYNC_BSP || p->deterministic))) return false;
    if (p->shares_follow > 1 || (p->shares_follow && (p->sync != ECHI_SYNC_BSP || p->deterministic))) return false;
    if (p->flights > 1 && (policy->rounds || !p->cut)) return false;
    if (p->micro_batches == 1 || p->micro_batches > ECHI_MICRO_MAX) return false;
    /* Each place for rows has a slot of its own. */
    if (p->micro_batches && (p->sync != ECHI_SYNC_BSP || !p->cut || p->sync_norm || 2 * p->world > ECHI_WORLD_MAX)) return false;
    /* A micro-batch may wait at its worker until one before it is answered. */
    if (p->gathers > 1 || (p->gathers && (p->sync != ECHI_SYNC_BSP || !p->cut || p->micro_batches))) return false;
    if (p->activations >= ECHI_ACTIVATIONS || (p->activations && (!p->cut || p->deterministic))) return false;
    /* What makes an old push worth less is asked of one owner that has all layers. */
    const bool plain_asp = p->sync == ECHI_SYNC_ASP && !p->cut;
    if (!is_rate(p->drop_older) || (p->drop_older > 0 && !plain_asp)) return false;
    if (policy->local ? p->cut || !is_rate(p->outer_lr) || !is_rate(p->outer_momentum) : p->outer_lr != 0 || p->outer_momentum != 0)
        return false;
    struct echi_part_fault fault;
    if (!codec_valid(p) || !echi_parts_valid(&p->parts, p->codec, &fault)) return false;
    if (p->codec != ECHI_CODEC_DENSE && (policy->local || p->drop_older > 0)) return false;   /* what is dropped or averaged
                                                                                                 has no residual */
    for (int g = 0; g < p->n_groups; g++)
        if (p->owner_of[g] >= p->world || (g == echi_plan_reserve(p)) != (echi_plan_workers(p, g) == 0)) return false;
    /* An owner keeps one group: two on one node would share its slots. */
    for (int g = 0; g < p->n_groups; g++)
        for (int h = 0; h < g; h++)
            if (p->owner_of[g] == p->owner_of[h]) return false;
    if (!shards_valid(p)) return false;
    uint64_t sum = 0, steps = 0;
    for (int r = 0; r < p->world; r++) {
        if (p->group_of[r] == ECHI_NONE ? p->n[r] != 0 : (p->n[r] < 1 || p->n[r] > 1u << 20)) return false;
        if (p->group_of[r] != ECHI_NONE && p->group_of[r] >= p->n_groups) return false;
        if (p->deterministic && p->n[r] % ECHI_REDUCTION_BLOCK) return false;
        if (p->divisor[r] > 1u << 24 || (p->divisor[r] > 0 && (!plain_asp || p->n[r] == 0))) return false;
        if (p->inner[r] > ECHI_INNER_MAX || (p->inner[r] != 0) != (policy->local && p->n[r] != 0)) return false;
        sum += p->n[r];
        steps += (uint64_t)p->n[r] * p->inner[r];
    }
    if (policy->local) return steps <= ECHI_LOCAL_ROUND_MAX;
    return !policy->rounds || sum == p->round;
}

void echi_schedule_put(struct echi_writer *w, const struct echi_schedule *s) {
    echi_put8(w, s->kind);
    echi_put8(w, s->steps);
    echi_put_f64(w, s->warmup);
    echi_put_f64(w, s->factor);
    echi_put_f64(w, s->epochs);
    for (int i = 0; i < s->steps; i++) echi_put_f64(w, s->step[i]);
}

void echi_schedule_get(struct echi_reader *r, struct echi_schedule *s) {
    *s = (struct echi_schedule){0};
    s->kind = echi_get8(r);
    s->steps = echi_get8(r);
    s->warmup = echi_get_f64(r);
    s->factor = echi_get_f64(r);
    s->epochs = echi_get_f64(r);
    if (s->steps > ECHI_LR_STEPS_MAX) r->ok = false;
    for (int i = 0; r->ok && i < s->steps; i++) s->step[i] = echi_get_f64(r);
    if (!echi_schedule_valid(s)) r->ok = false;
}

void echi_optimizer_put(struct echi_writer *w, int optimizer, const struct echi_adam *adam) {
    echi_put8(w, (uint8_t)optimizer);
    if (!echi_optimizer_adam(optimizer)) return;
    echi_put_f64(w, adam->beta1);
    echi_put_f64(w, adam->beta2);
    echi_put_f64(w, adam->epsilon);
}

uint8_t echi_optimizer_get(struct echi_reader *r, struct echi_adam *adam) {
    const uint8_t optimizer = echi_get8(r);
    *adam = (struct echi_adam){0};
    if (optimizer >= ECHI_OPTIMIZERS) r->ok = false;
    if (!r->ok || !echi_optimizer_adam(optimizer)) return optimizer;
    adam->beta1 = echi_get_f64(r);
    adam->beta2 = echi_get_f64(r);
    adam->epsilon = echi_get_f64(r);
    if (!echi_adam_valid(adam)) r->ok = false;
    return optimizer;
}

size_t echi_plan_encode(const struct echi_plan *p, uint8_t *out, size_t cap) {
    struct echi_writer w = echi_writer_over(out, cap);
    echi_put8(&w, p->sync);
    echi_put16(&w, p->world);
    echi_put8(&w, p->n_groups);
    echi_put8(&w, p->reserve);
    echi_put8(&w, p->cut);
    echi_put16(&w, p->head);
    echi_put16(&w, p->shadow);
    echi_put8(&w, p->heads);
    for (int i = 0; i < p->heads; i++) echi_put16(&w, p->head_rank[i]);
    if (p->heads) echi_put_bytes(&w, p->head_of, p->world);
    echi_put8(&w, p->flights);
    echi_put8(&w, p->micro_batches);
    echi_put8(&w, p->gathers);
    echi_put8(&w, p->activations);
    echi_put8(&w, p->resumed);
    echi_put8(&w, p->deterministic);
    echi_put8(&w, p->sync_norm);
    echi_put8(&w, p->shares_follow);
    echi_put32(&w, p->round);
    echi_put32(&w, p->staleness);
    echi_put32(&w, p->rounds_apart);
    echi_put_f64(&w, p->lr);
    echi_put_f64(&w, p->momentum);
    echi_put_f64(&w, p->decay);
    echi_put_f64(&w, p->damping);
    echi_optimizer_put(&w, p->optimizer, &p->adam);
    echi_schedule_put(&w, &p->schedule);
    for (int g = 0; g < p->n_groups; g++) echi_put16(&w, p->owner_of[g]);
    echi_put_bytes(&w, p->group_of, p->world);
    for (int r = 0; r < p->world; r++) echi_put32(&w, p->n[r]);
    echi_put8(&w, p->codec);
    echi_put8(&w, p->ratios);
    echi_put32(&w, p->state_ratio);
    for (int g = 0; g < p->n_groups; g++) echi_put32(&w, p->base[g]);
    if (p->sync == ECHI_SYNC_ASP) {
        echi_put_f64(&w, p->drop_older);
        for (int r = 0; r < p->world; r++) echi_put32(&w, p->divisor[r]);
    }
    if (p->sync == ECHI_SYNC_LOCAL) {
        echi_put_f64(&w, p->outer_lr);
        echi_put_f64(&w, p->outer_momentum);
        for (int r = 0; r < p->world; r++) echi_put16(&w, (uint16_t)p->inner[r]);
    }
    echi_put8(&w, p->shards);
    for (int k = 0; k < p->shards; k++) echi_put16(&w, p->shard_owner[k]);
    echi_put8(&w, p->exchange);
    echi_parts_put(&w, &p->parts);
    return w.ok ? (size_t)(w.at - out) : 0;
}

bool echi_plan_decode(const uint8_t *bytes, size_t len, struct echi_plan *p) {
    echi_plan_clear(p);
    struct echi_reader r = echi_reader_over(bytes, len);
    p->sync = echi_get8(&r);
    p->world = echi_get16(&r);
    p->n_groups = echi_get8(&r);
    p->reserve = echi_get8(&r);
    p->cut = echi_get8(&r);
    p->head = echi_get16(&r);
    p->shadow = echi_get16(&r);
    p->heads = echi_get8(&r);
    if (p->heads > ECHI_HEADS_MAX || p->world > ECHI_WORLD_MAX) return false;
    for (int i = 0; i < p->heads; i++) p->head_rank[i] = echi_get16(&r);
    if (p->heads) echi_get_bytes(&r, p->head_of, p->world);
    p->flights = echi_get8(&r);
    p->micro_batches = echi_get8(&r);
    p->gathers = echi_get8(&r);
    p->activations = echi_get8(&r);
    p->resumed = echi_get8(&r);
    p->deterministic = echi_get8(&r);
    p->sync_norm = echi_get8(&r);
    p->shares_follow = echi_get8(&r);
    p->round = echi_get32(&r);
    p->staleness = echi_get32(&r);
    p->rounds_apart = echi_get32(&r);
    p->lr = echi_get_f64(&r);
    p->momentum = echi_get_f64(&r);
    p->decay = echi_get_f64(&r);
    p->damping = echi_get_f64(&r);
    p->optimizer = echi_optimizer_get(&r, &p->adam);
    echi_schedule_get(&r, &p->schedule);
    if (!r.ok || p->n_groups > ECHI_GROUPS_MAX || p->world > ECHI_WORLD_MAX) return false;
    for (int g = 0; g < p->n_groups; g++) p->owner_of[g] = echi_get16(&r);
    echi_get_bytes(&r, p->group_of, p->world);
    for (int i = 0; i < p->world; i++) p->n[i] = echi_get32(&r);
    p->codec = echi_get8(&r);
    p->ratios = echi_get8(&r);
    p->state_ratio = echi_get32(&r);
    for (int g = 0; g < p->n_groups; g++) p->base[g] = echi_get32(&r);
    if (p->sync == ECHI_SYNC_ASP) {
        p->drop_older = echi_get_f64(&r);
        for (int i = 0; i < p->world; i++) p->divisor[i] = echi_get32(&r);
    }
    if (p->sync == ECHI_SYNC_LOCAL) {
        p->outer_lr = echi_get_f64(&r);
        p->outer_momentum = echi_get_f64(&r);
        for (int i = 0; i < p->world; i++) p->inner[i] = echi_get16(&r);
    }
    p->shards = echi_get8(&r);
    if (p->shards > ECHI_SHARDS_MAX) return false;
    for (int k = 0; k < p->shards; k++) p->shard_owner[k] = echi_get16(&r);
    p->exchange = echi_get8(&r);
    echi_parts_get(&r, &p->parts);
    return r.ok && r.at == r.end && echi_plan_valid(p);
}
