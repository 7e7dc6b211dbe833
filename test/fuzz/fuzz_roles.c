/* SPDX-License-Identifier: Apache-2.0
 * What the nodes of a run do with messages of a member that has the key and says anything. Three nodes, each the library's own driver
 * (lib/drive/live/node_*.c) with its roles and its arithmetic, train a small model in one thread: the linker puts a wire and a lane of this
 * file in the place of the real ones (FUZZ_WRAP in the Makefile), which keep the promises of theirs and no others. An input says which
 * plan they have, who the liar is, and then in turns how far the run goes on and what the liar sends: raw bytes as a message of any
 * kind, or one of its honest messages again with a byte changed, cut, or without its payload.
 *
 * Judged, besides sanitizers: no role asks for a slot that is not there, or for more than a list holds; and a liar that the run can do
 * without does not end it. The liar may complain, and ask for the end: that is its right, and such runs are not judged so. */
#include "fuzz.h"

#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 3, META = 1024, PAYLOAD = 2048, FLIGHTS = 1024, POSTS = 8, TASKS = 64, DONE = 256, CLASSES = 3, SAMPLES = 16 };

/* ---- the cluster ---- */

enum what { MESSAGE, SENT, LOST };
struct flight {
    uint8_t what, from, to, kind;
    uint16_t name, meta_len, len;
    uint64_t cookie;
    const void *lent;                 /* the payload is there, and no copy of it */
    uint8_t meta[META], payload[PAYLOAD];
};
struct post { int name; uint8_t *buffer; size_t cap; uint64_t cookie; };
struct side {   /* one node, with its wire and its lane */
    struct echi_node *n;
    struct ech_config config;
    struct echi_node_config run;
    struct ech_error error;
    struct { struct post at[POSTS]; int count; } posts[NODES][ECHI_KINDS];   /* by sender */
    bool cut[NODES];                                                        /* no link to that node any more */
    struct echi_task task[TASKS];
    int tasks;
    struct echi_done done[DONE];
    int first, end;
    uint64_t lender;                  /* who lends the payload of the message that arrives */
    bool held, told;
};
static struct cluster {
    struct ech_model *model;
    struct ech_data *data;
    struct echi_job job;
    struct echi_net_kind kinds[ECHI_KINDS];
    struct side side[NODES];
    struct flight pool[FLIGHTS];
    uint16_t order[FLIGHTS];          /* what is under way, the oldest first; behind that what is free */
    int flights;
    echi_real params[64];
    int computes;                     /* whose task runs; -1 */
    int liar;
    bool lied, complained;            /* it has sent what it should not; and what may end any run */
    uint32_t random;
} c;

static struct flight *fly(enum what what, int from, int to) {
    FUZZ_CHECK(c.flights < FLIGHTS);
    struct flight *f = &c.pool[c.order[c.flights++]];
    f->what = (uint8_t)what;
    f->from = (uint8_t)from;
    f->to = (uint8_t)to;
    f->kind = 0;
    f->lent = NULL;
    f->name = f->meta_len = f->len = 0;
    return f;
}

static void land(int at) {
    const uint16_t free = c.order[at];
    memmove(&c.order[at], &c.order[at + 1], (size_t)(--c.flights - at) * sizeof c.order[0]);
    c.order[c.flights] = free;
}

static struct side *side_of(const void *wire_or_lane) { return (struct side *)(uintptr_t)wire_or_lane; }
static int rank_of(const struct side *s) { return (int)(s - c.side); }

/* ---- the wire: what lib/drive/live/wire.c promises ---- */

static const struct echi_plan *plan_of(const struct side *s) { return &s->n->setup.plan; }

ech_status __wrap_echi_wire_post(struct echi_wire *w, int peer, int kind, int name, void *buffer, size_t cap, uint64_t cookie,
                                 struct ech_error *err);
ech_status __wrap_echi_wire_send(struct echi_wire *w, int peer, const struct echi_net_message *message, struct ech_error *err);
ech_status __wrap_echi_wire_sent(struct echi_wire *w, enum echi_kind kind, uint64_t cookie, int count, struct ech_error *err);
uint64_t __wrap_echi_wire_lender(const struct echi_wire *w, const struct echi_net_event *message);
void __wrap_echi_wire_drop(struct echi_wire *w, int peer);
const char *__wrap_echi_wire_address(const struct echi_wire *w);
void __wrap_echi_wire_give_way(struct echi_wire *w, uint32_t bytes, double rate);
void __wrap_echi_wire_bytes_sent(const struct echi_wire *w, uint64_t out[ECHI_NET_KINDS_MAX + 1]);

ech_status __wrap_echi_wire_post(struct echi_wire *w, int peer, int kind, int name, void *buffer, size_t cap, uint64_t cookie,
                                 struct ech_error *err) {
    struct side *s = side_of(w);
    FUZZ_CHECK(peer >= 0 && peer < NODES && kind >= 0 && kind < ECHI_KINDS && cap > 0 && cap <= c.kinds[kind].payload_cap);
    FUZZ_CHECK(buffer || echi_lends(plan_of(s), peer, rank_of(s), (enum echi_kind)kind));
    FUZZ_CHECK(name >= 0 && name < echi_net_names(&c.kinds[kind]));
    if (s->cut[peer]) return echi_fail(err, ECH_E_PEER_LOST, "fuzz", "rank %d is gone", peer);
    FUZZ_CHECK(s->posts[peer][kind].count < POSTS);
    s->posts[peer][kind].at[s->posts[peer][kind].count++] = (struct post){name, buffer, cap, cookie};
    return ECH_OK;
}

ech_status __wrap_echi_wire_send(struct echi_wire *w, int peer, const struct echi_net_message *message, struct ech_error *err) {
    struct side *s = side_of(w);
    const int kind = message->kind;
    const size_t meta_len = message->meta_len, len = message->payload_len;
    (void)err;
    FUZZ_CHECK(peer >= 0 && peer < NODES && kind >= 0 && kind < ECHI_KINDS && meta_len <= META && len <= PAYLOAD);
    FUZZ_CHECK(message->name < echi_net_names(&c.kinds[kind]));
    FUZZ_CHECK(meta_len <= c.kinds[kind].meta_cap && len <= c.kinds[kind].payload_cap && len >= c.kinds[kind].payload_least);
    if (s->cut[peer] && len == 0) return ECH_OK;
    struct flight *f = s->cut[peer] ? fly(SENT, peer, rank_of(s)) : fly(MESSAGE, rank_of(s), peer);
    f->kind = (uint8_t)kind;
    f->name = message->name;
    f->cookie = message->cookie;
    if (kind == ECHI_KIND_FAULT && rank_of(s) == c.liar) c.complained = true;   /* of the answers to what it said */
    if (s->cut[peer]) return ECH_OK;
    f->meta_len = (uint16_t)meta_len;
    f->len = (uint16_t)len;
    memcpy(f->meta, message->meta, meta_len);
    f->lent = echi_lends(plan_of(s), rank_of(s), peer, (enum echi_kind)kind) ? message->payload : NULL;
    if (len && !f->lent) memcpy(f->payload, message->payload, len);
    return ECH_OK;
}

ech_status __wrap_echi_wire_sent(struct echi_wire *w, enum echi_kind kind, uint64_t cookie, int count, struct ech_error *err) {
    (void)err;
    for (int i = 0; i < count; i++) {
        struct flight *f = fly(SENT, rank_of(side_of(w)), rank_of(side_of(w)));
        f->kind = (uint8_t)kind;
        f->cookie = cookie;
    }
    return ECH_OK;
}

uint64_t __wrap_echi_wire_lender(const struct echi_wire *w, const struct echi_net_event *message) {
    (void)message;
    return side_of(w)->lender;
}

/* One end of a link is no more: what is under way on it does not arrive, and payloads come back to their sender as SENT. */
static void cut(int at, int peer) {
    struct side *s = &c.side[at];
    s->cut[peer] = true;
    memset(s->posts[peer], 0, sizeof s->posts[peer]);
    for (int i = c.flights - 1; i >= 0; i--) {
        struct flight *f = &c.pool[c.order[i]];
        if (f->what == MESSAGE && f->from == peer && f->to == at) land(i);
        else if (f->what == MESSAGE && f->from == at && f->to == peer && f->len == 0) land(i);
        else if (f->what == MESSAGE && f->from == at && f->to == peer) f->what = SENT, f->to = (uint8_t)at, f->from = (uint8_t)peer;
    }
}

void __wrap_echi_wire_drop(struct echi_wire *w, int peer) {
    const int rank = rank_of(side_of(w));
    if (c.side[rank].cut[peer]) return;
    cut(rank, peer);
    if (!c.side[peer].cut[rank]) fly(LOST, rank, peer);
}

void __wrap_echi_wire_bytes_sent(const struct echi_wire *w, uint64_t out[ECHI_NET_KINDS_MAX + 1]) { (void)w, (void)out; }
/* No link to measure: what that sends has a test of its own. */
void __wrap_echi_wire_give_way(struct echi_wire *w, uint32_t bytes, double rate) {
    (void)w;
    FUZZ_CHECK(bytes >= 1 && bytes <= ECHI_NET_CHUNK && rate >= 0);
}

const char *__wrap_echi_wire_address(const struct echi_wire *w) { return (void)w, "127.0.0.1:1"; }

/* ---- the lane: tasks one after the other, each in one go ---- */

ech_status __wrap_echi_lane_submit(struct echi_lane *l, const struct echi_task *task, struct ech_error *err);
bool __wrap_echi_lane_take(struct echi_lane *l, struct echi_done *out);
void __wrap_echi_lane_hold(struct echi_lane *l, bool hold);
bool __wrap_echi_lane_is_held(struct echi_lane *l);
void __wrap_echi_lane_call(struct echi_lane *l, void (*call)(void *), void *self);
bool __wrap_echi_lane_stay(struct echi_lane *l);
void __wrap_echi_lane_gradient(struct echi_lane *l, const struct echi_task *task, int layer, size_t bytes,
                               const struct echi_result *result);
void __wrap_echi_lane_rows(struct echi_lane *l, const struct echi_task *task, const struct echi_result *result);

ech_status __wrap_echi_lane_submit(struct echi_lane *l, const struct echi_task *task, struct ech_error *err) {
    struct side *s = side_of(l);
    (void)err;
    FUZZ_CHECK(s->tasks < TASKS);
    s->task[s->tasks++] = *task;
    return ECH_OK;
}

static struct echi_done *add_done(struct side *s) {
    FUZZ_CHECK(s->end - s->first < DONE);
    struct echi_done *d = &s->done[s->end++ % DONE];
    memset(d, 0, sizeof *d);
    return d;
}

bool __wrap_echi_lane_take(struct echi_lane *l, struct echi_done *out) {
    struct side *s = side_of(l);
    if (s->first == s->end) return false;
    *out = s->done[s->first++ % DONE];
    return true;
}

void __wrap_echi_lane_hold(struct echi_lane *l, bool hold) { side_of(l)->held = hold; }
bool __wrap_echi_lane_is_held(struct echi_lane *l) { return side_of(l)->held; }

/* Measuring takes as long as a clock says, and says something else each time: here it is the same. */
void __wrap_echi_lane_call(struct echi_lane *l, void (*call)(void *), void *self) {
    struct echi_node *n = self;
    (void)l;
    if (!n->measuring) return call(self);
    n->times = (struct echi_times){.count = 1, .n = {4}, .trunk = {0.5}, .head = {0.25}};
    atomic_store(&n->measured, true);
}

bool __wrap_echi_lane_stay(struct echi_lane *l) { return (void)l, true; }

void __wrap_echi_lane_gradient(struct echi_lane *l, const struct echi_task *task, int layer, size_t bytes,
                               const struct echi_result *result) {
    (void)l, (void)bytes;
    if (c.computes < 0) return;
    struct echi_done *d = add_done(&c.side[c.computes]);
    d->gradient = true;
    d->layer = layer;
    d->task = *task;
    d->result = *result;
}

void __wrap_echi_lane_rows(struct echi_lane *l, const struct echi_task *task, const struct echi_result *result) {
    __wrap_echi_lane_gradient(l, task, 0, 0, result);
}

/* ---- events ---- */

static uint32_t draw(uint32_t below) {
    c.random = c.random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(c.random >> 8) * below >> 24);
}

/* After each event: what is done is taken, and a node whose run is over leaves. */
static void settle(int rank) {
    struct side *s = &c.side[rank];
    if (!s->n->over) echi_node_take_done(s->n);
    if (!s->n->over || s->told) return;
    s->told = true;
    const char *at = s->error.operation;
    const bool own = strcmp(at, "run.send") == 0 || strcmp(at, "run.post") == 0 || strcmp(at, "run.perform") == 0;
    FUZZ_CHECK(s->n->status != ECH_E_INTERNAL || !own);
    for (int r = 0; r < NODES; r++)
        if (r != rank && !c.side[r].cut[rank]) fly(LOST, rank, r);
}

static void tell(int rank, const struct echi_net_event *e) {
    if (c.side[rank].n->over) return;
    echi_node_on_net(c.side[rank].n, e);
    if (!c.side[rank].n->over) echi_node_measure_links(c.side[rank].n);   /* as the loop does */
    settle(rank);
}

/* The first place for messages of a kind and name from a node; NULL: none. */
static struct post *place_of(struct side *s, int from, int kind, int name) {
    for (int i = 0; i < s->posts[from][kind].count; i++)
        if (s->posts[from][kind].at[i].name == name) return &s->posts[from][kind].at[i];
    return NULL;
}

static void arrive(int at) {
    const struct flight f = c.pool[c.order[at]];
    struct side *s = &c.side[f.to];
    struct echi_net_event e = {.peer = f.from, .kind = f.kind, .name = f.name, .cookie = f.cookie};
    land(at);
    if (f.what == LOST) {
        if (s->cut[f.from]) return;
        cut(f.to, f.from);
        e.type = ECHI_NET_LOST;
        e.text = "left";
        e.orderly = true;
        return tell(f.to, &e);
    }
    if (f.what == SENT) {
        e.type = ECHI_NET_SENT;
        return tell(f.to, &e);
    }
    uint8_t meta[META];
    memcpy(meta, f.meta, f.meta_len);
    e.type = ECHI_NET_MESSAGE;
    e.meta = meta;
    e.meta_len = f.meta_len;
    e.payload_len = f.len;
    e.cookie = 0;
    if (f.len) {
        struct post *p = place_of(s, f.from, f.kind, f.name);
        const struct post to = *p;
        const struct post *end = s->posts[f.from][f.kind].at + s->posts[f.from][f.kind].count--;
        memmove(p, p + 1, (size_t)(end - p - 1) * sizeof *p);
        if (!f.lent) memcpy(to.buffer, f.payload, f.len);
        e.payload = f.lent ? (void *)(uintptr_t)f.lent : to.buffer;
        e.cookie = to.cookie;
        s->lender = f.cookie;
        if (!f.lent) {
            struct flight *sent = fly(SENT, f.to, f.from);
            sent->kind = f.kind;
            sent->cookie = f.cookie;
        }
    }
    tell(f.to, &e);
}

/* The first of its kind on its link, and a place for its payload. */
static bool may_arrive(int at) {
    const struct flight *f = &c.pool[c.order[at]];
    for (int i = 0; i < at; i++) {
        const struct flight *g = &c.pool[c.order[i]];
        if (g->from == f->from && g->to == f->to && g->what == f->what && g->kind == f->kind) return false;   /* parts of a push, too */
    }
    if (f->what != MESSAGE || f->len == 0) return true;
    const struct post *to = place_of(&c.side[f->to], f->from, f->kind, f->name);
    return to && f->len <= to->cap;
}

static bool compute(int rank) {
    struct side *s = &c.side[rank];
    int at = 0;
    while (at < s->tasks && s->held && s->task[at].kind != ECHI_TASK_EVAL) at++;
    if (at == s->tasks || s->n->over) return false;
    const struct echi_task task = s->task[at];
    memmove(&s->task[at], &s->task[at + 1], (size_t)(--s->tasks - at) * sizeof task);
    struct echi_result result = {0};
    struct ech_error err = {0};
    c.computes = rank;
    const ech_status status = echi_exec_run(s->n->exec, &task, &result, &err);
    c.computes = -1;
    struct echi_done *d = add_done(s);
    d->task = task;
    d->result = result;
    d->status = status;
    d->error = err;
    settle(rank);
    return true;
}

/* Something that can happen, happens; false: nothing can. */
static bool happen(void) {
    const int of = NODES + c.flights, first = (int)draw((uint32_t)of);
    for (int i = 0; i < of; i++) {
        const int k = (first + i) % of;
        if (k < NODES) {
            if (compute(k)) return true;
        } else if (may_arrive(k - NODES)) {
            arrive(k - NODES);
            return true;
        }
    }
    return false;
}

/* ---- the run ---- */

static const struct plan_of {
    uint8_t sync, groups, separated, flights, codec, sync_norm, shards, exchange, micro_batches, heads, gathers;
} plans[] = {
    {.sync = ECHI_SYNC_BSP, 1, 0, 1}, {.sync = ECHI_SYNC_BSP, 1, 1, 1}, {.sync = ECHI_SYNC_ASP, 1, 0, 1},
    {.sync = ECHI_SYNC_GSSP, 2, 1, 2}, {.sync = ECHI_SYNC_SSP, 1, 1, 1}, {.sync = ECHI_SYNC_BSP, 1, 0, 1, .codec = 1},
    {.sync = ECHI_SYNC_GSSP, 2, 1, 2, .codec = 1}, {.sync = ECHI_SYNC_LOCAL, 1, 0, 1}, {.sync = ECHI_SYNC_BSP, 1, 0, 1, .sync_norm = 1},
    {.sync = ECHI_SYNC_GSSP, 2, 0, 1, .codec = 1}, {.sync = ECHI_SYNC_BSP, 1, 0, 1, .shards = 2},
    {.sync = ECHI_SYNC_BSP, 1, 0, 1, .shards = 2, .exchange = ECHI_EXCHANGE_RING},
    {.sync = ECHI_SYNC_BSP, 1, 1, 1, .micro_batches = 2}, {.sync = ECHI_SYNC_BSP, 1, 1, 1, .heads = 2},
    {.sync = ECHI_SYNC_BSP, 1, 1, 1, .gathers = 1},
};
enum { PLANS = sizeof plans / sizeof plans[0] };

static void make_plan(int which, struct echi_plan *p) {
    echi_plan_clear(p);
    p->sync = plans[which].sync;
    p->world = NODES;
    p->n_groups = plans[which].groups;
    p->cut = plans[which].separated;
    p->head = p->cut ? 0 : ECHI_NO_RANK;
    p->flights = plans[which].flights;
    p->micro_batches = plans[which].micro_batches;
    p->gathers = plans[which].gathers;
    p->activations = p->cut && which % 2 ? ECHI_ACTIVATIONS_BF16 : ECHI_ACTIVATIONS_FP32;   /* which no role has to know of */
    p->sync_norm = plans[which].sync_norm;
    p->staleness = 1;
    p->rounds_apart = 2;
    p->lr = 0.1;
    p->momentum = 0.5;
    p->owner_of[0] = p->n_groups > 1 ? 0 : 1;
    if (p->n_groups > 1) p->owner_of[1] = 1;
    for (int r = 0; r < NODES; r++) {
        p->group_of[r] = r == 1 && p->n_groups > 1;
        p->n[r] = p->sync == ECHI_SYNC_LOCAL ? 1 : 2;
        p->inner[r] = p->sync == ECHI_SYNC_LOCAL ? 2 : 0;
    }
    p->round = p->sync == ECHI_SYNC_LOCAL ? 3 : 6;
    if (p->sync == ECHI_SYNC_LOCAL) p->outer_lr = 0.7;
    if (plans[which].codec) {
        p->codec = ECHI_CODEC_TOPK;
        p->state_ratio = 300000;
        for (int g = 0; g < p->n_groups; g++) p->base[g] = 300000;
    }
    struct echi_layers layers;
    echi_job_layers(&c.job, &layers);
    echi_parts_make(&layers, p->cut, p->codec, 7, 7, &p->parts);
    if (plans[which].shards) {
        p->shards = plans[which].shards;
        p->shard_owner[0] = p->owner_of[0];
        for (int i = 0; i < p->parts.count; i++) p->parts.part[i].shard = (uint8_t)(i % p->shards);
    }
    p->exchange = plans[which].exchange;
    p->heads = plans[which].heads;
    for (int i = 0; i < p->heads; i++) p->head_rank[i] = (uint16_t)i;
    for (int r = 0; r < NODES && p->heads; r++) p->head_of[r] = (uint8_t)(r % p->heads);
    FUZZ_CHECK(echi_plan_valid(p));
}

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test;
    for (int i = 0; i < n; i++) {
        FUZZ_CHECK(index[i] < SAMPLES);
        labels[i] = (uint16_t)(index[i] % CLASSES);
        for (int k = 0; k < 4; k++) rows[4 * i + k] = (float)((index[i] + (uint32_t)k) % 5) * 0.25f;
    }
    return 0;
}

static void log_line(void *user, enum ech_log_level level, const char *line) {
    (void)user, (void)level;
    for (const char *at = line; *at; at++) FUZZ_CHECK((unsigned char)*at >= ' ' && *at != 0x7f);   /* a terminal obeys those */
}

static void begin(int which) {
    static const struct ech_data_callback source = {.channels = 1, .height = 2, .width = 2, .classes = CLASSES, .train_samples = SAMPLES,
                                                    .test_samples = 4, .read = read_samples, .name = "tiny"};
    static const char text[] = "input 1 2 2\nconv2d out 2 kernel 2\nbatch_norm\nrelu\nfc out 3\n";
    struct ech_config any;
    memset(&c, 0, offsetof(struct cluster, pool));
    for (int i = 0; i < FLIGHTS; i++) c.order[i] = (uint16_t)i;
    c.flights = 0;
    c.lied = c.complained = false;
    c.computes = -1;
    ech_config_init(&any);
    FUZZ_CHECK(ech_model_parse(text, sizeof text - 1, "tiny", &c.model, NULL) == ECH_OK);
    FUZZ_CHECK(ech_data_from_callback(&source, &c.data, NULL) == ECH_OK);
    FUZZ_CHECK(echi_job_make(c.model, c.data, &any, &c.job, NULL) == ECH_OK && c.job.n_params <= sizeof c.params / sizeof c.params[0]);
    echi_wire_kinds(&c.job, NODES, c.kinds);
    for (size_t i = 0; i < c.job.n_params; i++) c.params[i] = (echi_real)(i * 7 % 11) * 0.125f - 0.5f;
    for (int r = 0; r < NODES; r++) {
        struct side *s = &c.side[r];
        struct echi_node *n = s->n = calloc(1, sizeof *n);
        FUZZ_CHECK(n != NULL);
        s->config = any;
        s->config.rank = r;
        s->config.world = NODES;
        s->config.slow = 2;   /* its samples are read where they are needed, by no other thread */
        s->config.on_log = log_line;
        s->run = (struct echi_node_config){.config = &s->config, .job = &c.job, .params = r == 0 ? c.params : NULL};
        n->c = &s->run;
        n->job = &c.job;
        n->err = &s->error;
        n->rank = r;
        n->world = NODES;
        n->wire = (struct echi_wire *)s;
        n->lane = (struct echi_lane *)s;
        FUZZ_CHECK(echi_exec_create(&c.job, "cpu", 1, echi_cpu_level(), NULL, &n->exec, NULL) == ECH_OK);
        echi_node_role_init(&n->role, &n->setup, r, NODES, false);
        echi_exec_use_loans(n->exec, &n->role.loans);
        if (r > 0) continue;
        const struct echi_plan_request request = {.sync = (enum echi_sync)plans[which].sync, .world = NODES, .batch = 6};
        const struct echi_goal goal = {.train_samples = SAMPLES, .samples = 24, .eval_every = 12, .has_test = true};
        make_plan(which, &n->setup.plan);
        n->role.coordinator = calloc(1, sizeof *n->role.coordinator);
        FUZZ_CHECK(n->role.coordinator != NULL);
        echi_coordinator_init(n->role.coordinator, &n->setup, &request, &goal, true);
    }
    for (int r = 0; r < NODES; r++) tell(r, &(struct echi_net_event){.type = ECHI_NET_READY});
}

static void end(void) {
    for (int r = 0; r < NODES; r++) echi_node_free(c.side[r].n);
    ech_data_destroy(c.data);
    ech_model_destroy(c.model);
}

/* ---- the liar ---- */

/* Net ends the connection of who breaks a rule of its own. */
static void break_off(int at) {
    cut(at, c.liar);
    if (!c.side[c.liar].cut[at]) fly(LOST, at, c.liar);
    tell(at, &(struct echi_net_event){.type = ECHI_NET_LOST, .peer = c.liar, .text = "broke a rule of net"});
}

static void lie(const struct flight *f) {
    const struct echi_net_kind *k = &c.kinds[f->kind];
    struct side *s = &c.side[f->to];
    if (s->cut[c.liar] || s->n->over) return;
    c.lied = true;
    const struct post *to = place_of(s, c.liar, f->kind, f->name);
    const bool credit = f->len == 0 || (to && f->len <= to->cap);
    if (!credit || f->meta_len > k->meta_cap || f->len < k->payload_least || f->len > k->payload_cap) return break_off(f->to);
    if (f->kind == ECHI_KIND_FAULT || f->kind == ECHI_KIND_STOP) c.complained = true;
    struct flight *copy = fly(MESSAGE, c.liar, f->to);
    copy->kind = f->kind;
    copy->name = f->name;
    copy->meta_len = f->meta_len;
    copy->len = f->len;
    copy->cookie = (uint64_t)ECHI_ROLES << 24;   /* nobody hears that it was sent */
    memcpy(copy->meta, f->meta, f->meta_len);
    memcpy(copy->payload, f->payload, f->len);
    arrive(c.flights - 1);
}

static uint8_t next(struct echi_reader *r) { return r->at < r->end ? echi_get8(r) : 0; }

/* To, kind, how many bytes of meta and these, how much of a payload and what fills it. */
static void lie_raw(struct echi_reader *r) {
    static struct flight f;
    f.to = next(r) % NODES;
    f.kind = next(r) % ECHI_KINDS;
    f.meta_len = 0;
    for (size_t n = next(r); n > 0 && r->at < r->end; n--) f.meta[f.meta_len++] = next(r);
    const uint32_t len = next(r) * 4u;
    const uint8_t fill = next(r);
    const struct side *s = &c.side[f.to];
    const bool fits = len == 1020 && s->posts[c.liar][f.kind].count > 0;
    f.name = (uint16_t)(fits ? s->posts[c.liar][f.kind].at[0].name : 0);
    f.len = (uint16_t)(fits ? s->posts[c.liar][f.kind].at[0].cap : len);
    memset(f.payload, fill, f.len);
    if (f.to != c.liar) lie(&f);
}

/* One of those that it has under way, changed. */
static void lie_again(struct echi_reader *r) {
    static struct flight f;
    const int want = next(r), place = next(r), flip = next(r), how = next(r);
    int seen = 0, found = -1;
    for (int i = 0; i < c.flights; i++) {
        const struct flight *g = &c.pool[c.order[i]];
        if (g->what != MESSAGE || g->from != c.liar || g->to == c.liar) continue;
        if (seen++ <= want % 8) found = i;
    }
    if (found < 0) return;
    f = c.pool[c.order[found]];
    if (!(how & 8)) {   /* in its place; else as well */
        struct flight *sent = fly(SENT, f.to, f.from);
        sent->cookie = f.cookie;
        land(found);
        c.lied = true;
    }
    if (how & 16) f.to = (uint8_t)((f.to + 1) % NODES);
    if (f.to == c.liar) return;
    if (how & 1 && f.meta_len) f.meta[place % f.meta_len] ^= (uint8_t)flip;
    if (how & 2 && f.len) f.payload[place % f.len] ^= (uint8_t)flip;
    if (how & 4) f.len = how & 32 ? (uint16_t)(f.len / 2) : 0;
    lie(&f);
}

static bool one(const uint8_t *bytes, size_t len) {
    struct echi_reader r = echi_reader_over(bytes, len);
    const int which = next(&r) % PLANS;
    c.liar = 0;
    begin(which);
    c.liar = next(&r) % NODES;
    c.random = (uint32_t)(which * NODES + c.liar);
    while (r.at < r.end) {
        const uint8_t op = next(&r);
        if (op % 8 < 5) for (int i = 0; i <= op && happen(); i++) {}
        else if (op % 8 == 5) lie_raw(&r);
        else lie_again(&r);
    }
    for (int i = 0; i < 5000 && happen(); i++) {}
    const struct echi_coordinator *k = c.side[0].n->role.coordinator;
    const bool ended = c.side[0].n->over;
    if (!c.lied) FUZZ_CHECK(ended && k->status == ECH_OK && k->n_lost == 0);
    const bool good = ended && k->status == ECH_OK && k->n_lost == 0;
    /* Of these plans rank 2 has no part that the run cannot do without. But an owner takes what a worker pushes under any number that is
     * new, so that rank 0 knows the number for a lie, and not whose; and of a round, or of what a batch-norm sums, the first who speaks
     * says how large it is. */
    const bool invented = strstr(c.side[0].error.text, "a lease that is not out") != NULL;
    if (ended && c.liar == 2 && !c.complained && !invented && !echi_policy_of((enum echi_sync)plans[which].sync)->rounds)
        FUZZ_CHECK(k->status == ECH_OK || k->status == ECH_E_DIVERGED);
    end();
    return good;
}

/* A message as `lie_raw` reads it, with `len` of its payload. */
static void put_lie(struct echi_writer *w, int to, const struct echi_msg *m, uint8_t len) {
    uint8_t meta[ECHI_MSG_MAX];
    const size_t n = echi_msg_encode(m, meta, sizeof meta);
    FUZZ_CHECK(n > 0 && n < 256);
    echi_put8(w, 5);
    echi_put8(w, (uint8_t)to);
    echi_put8(w, m->kind);
    echi_put8(w, (uint8_t)n);
    echi_put_bytes(w, meta, n);
    echi_put8(w, len);
    echi_put8(w, 0);
}

/* Whole runs. In the middle of one, each kind that has a payload without one, which is for the node and comes from a place that no role
 * has: net refuses it. What breaks the rules of a role, and loses the liar. */
static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    enum { LIARS = PLANS, LIES = LIARS + PLANS, ALL = LIES + 4, PROGRESS = 60 };
    struct echi_writer w = echi_writer_over(out, cap);
    struct echi_msg m = {.from_role = ECHI_ROLE_WORKER, .lease = {.id = 1, .n = 2, .round_size = 6, .worker = 2, .owner = 1}};
    if (i >= ALL) return 0;
    echi_put8(&w, (uint8_t)(i < LIES ? i % PLANS : 5));
    echi_put8(&w, 2);
    if (i < LIARS) return (size_t)(w.at - out);
    *good = false;
    echi_put8(&w, PROGRESS);
    if (i < LIES) {
        for (m.kind = 0; m.kind < ECHI_KINDS; m.kind++)
            if (echi_kind_has_payload(m.kind)) put_lie(&w, plans[i % PLANS].groups > 1 ? 0 : 1, &m, 0);
        return (size_t)(w.at - out);
    }
    static const uint8_t kind[] = {ECHI_KIND_ENTER, ECHI_KIND_APPLIED, ECHI_KIND_DRAIN, ECHI_KIND_LEASE};
    m.kind = kind[i - LIES];
    m.to_role = m.kind == ECHI_KIND_APPLIED ? ECHI_ROLE_COORDINATOR : ECHI_ROLE_OWNER;
    m.lease.n = 0;
    put_lie(&w, m.kind == ECHI_KIND_APPLIED ? 0 : 1, &m, 0);
    return (size_t)(w.at - out);
}

/* The nodes of a run, whose roles are made for 1,024 ranks, and their slots: 54 MB, 69 as clang builds it for its sanitizers. */
const struct fuzz_driver fuzz_roles = {.name = "roles", .one = one, .seed = seed, .most = 2048, .heap = 80 << 20, .heap_a_byte = 4096,
                                       .runs = 150};
