/* SPDX-License-Identifier: Apache-2.0
 * The hosts of a plan on the cost engine, for predictions. */
#include "echi_play.h"

#include <string.h>

/* ---- memory: one block of it, the last piece of which can grow ---- */

#define ALIGNED(n) (((n) + 15) / 16 * 16)
struct block { size_t size; };            /* in front of each, as large as an alignment */

static void *resize(void *self, void *old, size_t size) {
    struct echi_play *p = self;
    if (size == 0) return NULL;
    struct block *b = old ? (struct block *)(void *)((unsigned char *)old - 16) : NULL;
    if (b && b->size >= size) return old;
    const bool last = b && (unsigned char *)old + ALIGNED(b->size) == p->memory + p->used;
    const size_t begins = last ? p->used - ALIGNED(b->size) : p->used + 16;
    if (begins > p->size || ALIGNED(size) > p->size - begins) return NULL;   /* what there was stays as it is */
    unsigned char *at = p->memory + begins;
    p->used = begins + ALIGNED(size);
    struct block *now = (struct block *)(void *)(at - 16);
    if (b && old != (void *)at) memcpy(at, old, b->size);
    now->size = size;
    return at;
}

void *echi_play_zeroed(struct echi_play *p, size_t count, size_t size) {
    void *block = resize(p, NULL, count * size + 1);
    if (block) memset(block, 0, count * size);
    return block;
}

/* ---- messages and works ---- */

uint64_t echi_play_cookie(struct echi_about a) {
    return (uint64_t)a.what << 48 | (uint64_t)a.owner << 32 | (uint64_t)a.worker << 16 | (uint64_t)a.piece;
}
struct echi_about echi_play_about(uint64_t c) {
    return (struct echi_about){(enum echi_play_what)(c >> 48), (int)(c >> 32 & 0xffff), (int)(c >> 16 & 0xffff), (int)(c & 0xffff)};
}

void echi_play_send(struct echi_play *p, int from, int to, int priority, double bytes, struct echi_about a) {
    echi_cost_send(p->cost, from, to, priority, (uint64_t)bytes, 0, echi_play_cookie(a));
}

double echi_play_bytes(const struct echi_play *p, enum echi_kind kind, double payload) {
    const uint64_t more = payload > ECHI_COST_CHUNK ? ((uint64_t)payload - 1) / ECHI_COST_CHUNK : 0;
    return payload + p->meta[kind] + ECHI_COST_FRAME * (double)(1 + more);
}

void echi_play_words(struct echi_play *p, int from, int to, enum echi_kind kind, int count, struct echi_about a) {
    echi_play_send(p, from, to, ECHI_PRIORITY_CONTROL, count * echi_play_bytes(p, kind, 0), a);
}

void echi_play_compute(struct echi_play *p, int rank, enum echi_task_kind kind, double seconds, struct echi_about a) {
    echi_cost_compute(p->cost, rank, &(struct echi_work){.seconds = seconds, .urgency = (int)kind, .cookie = echi_play_cookie(a)});
}

/* All parameters of a push. */
static double adding_all(const struct echi_times *t) { return t->add > 0 ? t->add : (1 - ECHI_EXCHANGE_COPY) * t->exchange; }

double echi_play_adding(const struct echi_play *p, int rank, double params) {
    return adding_all(&p->times[rank]) * params / p->all;
}
double echi_play_applying(const struct echi_play *p, int rank, double params) {
    const struct echi_times *t = &p->times[rank];
    return (t->update > 0 ? t->update : ECHI_PREDICT_APPLY * t->exchange) * params / p->all;
}

double echi_play_pushed(const struct echi_play *p) {
    double params = 0;
    for (int i = 0; i < p->pieces; i++) params += p->piece[i].params;
    return params;
}

/* ---- steps ---- */

/* Bytes of each layer, about: small neighbours share a part. */
static void layer_bytes(const struct echi_play *p, double out[ECHI_UNITS_MAX]) {
    const struct echi_parts *parts = &p->plan->parts;
    for (int i = 0; i < parts->count; i++) {
        const struct echi_part *part = &parts->part[i];
        for (int l = part->first; l <= part->last; l++) out[l] += p->number * part->count / (part->last - part->first + 1);
    }
    for (int i = 0; i < p->pieces && parts->count == 0; i++) {
        const int end = i + 1 < p->pieces ? p->piece[i + 1].first : p->layers;
        for (int l = p->piece[i].first; l < end; l++) out[l] += p->number * p->piece[i].params / (end - p->piece[i].first);
    }
}

/* One at least, and behind the cut if there are parameters. */
static int trunk_layers(const struct echi_play *p) { return p->load->layers > 0 ? (int)p->load->layers : 1; }
static int head_layers(const struct echi_play *p) { return p->load->head_layers > 0 ? (int)p->load->head_layers : p->load->head > 0; }

/* Seconds of one unit, of steps of about the size of this worker's: where nobody knows, units of the trunk, and of the head, are alike. */
static double unit_takes(const struct echi_play *p, const struct echi_times *t, uint32_t n, int unit, enum echi_pass pass) {
    const int trunk = trunk_layers(p);
    const bool of_head = unit >= trunk;
    if ((uint32_t)t->units != p->load->layers + p->load->head_layers)
        return (of_head ? echi_times_head(t, n) / (p->layers - trunk) : echi_times_trunk(t, n) / trunk) *
               (pass == ECHI_FORWARD ? 1 : 2) / 3;
    const int i = echi_times_nearest(t, n);
    const uint32_t size = t->n[t->size[i]];
    return t->share[i][unit].of[pass] * (of_head ? echi_times_head(t, size) : echi_times_trunk(t, size));
}

static struct echi_work_shape cut_out(const double *until, const bool *mark, int units) {
    return (struct echi_work_shape){units, until, mark};
}

/* Whether a piece can leave when gradients are told of down to this layer. *unpushed: those that could not before, the first ones. */
static bool leaves(const struct echi_play *p, int layer, int *unpushed) {
    const int before = *unpushed;
    while (*unpushed > 0 && p->piece[*unpushed - 1].first >= layer) (*unpushed)--;
    return *unpushed < before;
}

/* A step's units, forward and backward, and each pass by itself; its gradients are told of as the compute thread tells of them. Where no
 * piece leaves, or under `local`, a step has no mark: most of what is due of a play would be such. */
static bool make_shape(struct echi_play *p, const struct echi_times *t, uint32_t n, struct echi_play_shape *out) {
    const int units = p->layers;
    double bytes[ECHI_UNITS_MAX] = {0}, untold = 0, sum = 0;
    int unpushed = echi_policy_of((enum echi_sync)p->plan->sync)->local ? 0 : p->pieces;
    layer_bytes(p, bytes);
    out->until = echi_play_zeroed(p, (size_t)(4 * units), sizeof *out->until);
    out->mark = echi_play_zeroed(p, (size_t)(4 * units), sizeof *out->mark);
    if (!out->until || !out->mark) return false;
    for (int u = 0; u < 2 * units; u++) {
        const int layer = u < units ? u : 2 * units - 1 - u;
        out->until[u] = sum += unit_takes(p, t, n, layer, u < units ? ECHI_FORWARD : ECHI_BACKWARD);
        untold += u < units ? 0 : bytes[layer];
        const bool told = untold >= ECHI_WORTH_A_WAKE;
        out->mark[u] = told && leaves(p, layer, &unpushed);
        if (told) untold = 0;
    }
    const double forward = out->until[units - 1], backward = sum - forward;
    for (int u = 0; u < units; u++) {
        out->until[2 * units + u] = forward > 0 ? out->until[u] / forward : (u + 1.0) / units;
        out->until[3 * units + u] = backward > 0 ? (out->until[units + u] - forward) / backward : (u + 1.0) / units;
        out->mark[3 * units + u] = out->mark[units + u];
    }
    for (int u = 0; u < 2 * units; u++) out->until[u] = sum > 0 ? out->until[u] / sum : (u + 1.0) / (2 * units);
    out->step = cut_out(out->until, out->mark, 2 * units);
    out->forward = cut_out(out->until + 2 * units, out->mark + 2 * units, units);
    out->backward = cut_out(out->until + 3 * units, out->mark + 3 * units, units);
    return true;
}

/* Workers that are alike share one. */
static const struct echi_play_shape *shape_of(struct echi_play *p, int rank) {
    struct echi_play_shape *s = &p->shape[p->shapes < ECHI_PLAY_SHAPES ? p->shapes : ECHI_PLAY_SHAPES - 1];
    const size_t before = p->used;
    if (p->shapes == ECHI_PLAY_SHAPES) return s;
    const uint32_t n = p->plan->n[rank];
    if (!make_shape(p, &p->times[rank], p->cuts ? echi_micro_most(p->plan, n) : n, s)) return NULL;
    for (int i = 0; i < p->shapes; i++) {
        if (memcmp(p->shape[i].until, s->until, (size_t)(4 * p->layers) * sizeof *s->until) != 0) continue;
        p->used = before;
        return &p->shape[i];
    }
    p->shapes++;
    return s;
}

/* ---- pieces ----
 *
 * Parts of one shard that follow one another travel as one *piece* where a round would else have too many messages. */

/* A piece takes parts of its shard up to so many parameters, or one part: where they are few, each part is one. */
static void limit_pieces(const struct echi_play *p, int end, int limit, double out_most[ECHI_SHARDS_MAX]) {
    const int each = limit / (p->workers * p->shards) > 1 ? limit / (p->workers * p->shards) : 1;
    int count[ECHI_SHARDS_MAX] = {0};
    for (int k = 0; k < p->shards; k++) out_most[k] = 0;
    for (int i = 0; i < end; i++) {
        count[p->plan->parts.part[i].shard]++;
        out_most[p->plan->parts.part[i].shard] += p->plan->parts.part[i].count;
    }
    for (int k = 0; k < p->shards; k++) out_most[k] = count[k] > each ? out_most[k] / each : 0;
}

/* With this piece a part of so many parameters. */
static void travels(const struct echi_play *p, struct echi_play_piece *piece, double params) {
    const bool rings = echi_plan_rings(p->plan);
    piece->params += params;
    piece->gradients += echi_play_bytes(p, rings ? ECHI_KIND_RING_SUM : ECHI_KIND_PUSH, p->number * params);
    piece->weights += echi_play_bytes(p, rings ? ECHI_KIND_RING_WEIGHTS : ECHI_KIND_WEIGHTS, 4 * params);
}

/* Without a table of parts the trunk is one, and the head. */
static bool make_pieces_of_load(struct echi_play *p) {
    const bool two = !p->plan->cut && p->load->head > 0 && p->load->trunk > 0;
    const double trunk = p->load->trunk / 4.0, head = p->load->head / 4.0;
    p->piece = echi_play_zeroed(p, 2, sizeof *p->piece);
    if (!p->piece) return false;
    p->piece[1] = (struct echi_play_piece){.first = (uint16_t)trunk_layers(p), .part = 1};
    travels(p, &p->piece[0], trunk + head > 0 ? trunk + (two || p->plan->cut ? 0 : head) : p->all);
    travels(p, &p->piece[1], head);
    p->pieces = 1 + two;
    return true;
}

static bool make_pieces(struct echi_play *p, int limit) {
    const struct echi_parts *parts = &p->plan->parts;
    const int end = p->plan->cut ? echi_parts_before(parts, (int)p->load->layers) : parts->count;
    struct echi_play_piece *open[ECHI_SHARDS_MAX] = {NULL};
    double most[ECHI_SHARDS_MAX];
    if (parts->count == 0) return make_pieces_of_load(p);
    limit_pieces(p, end, limit, most);
    p->piece = echi_play_zeroed(p, (size_t)end, sizeof *p->piece);
    if (!p->piece) return false;
    for (int i = 0; i < end; i++) {
        const struct echi_part *part = &parts->part[i];
        const int k = part->shard < p->shards ? part->shard : 0;
        const int layer = part->first < p->layers ? part->first : p->layers - 1;   /* `load` may know of fewer */
        if (!open[k] || open[k]->params + part->count > most[k]) {
            open[k] = &p->piece[p->pieces++];
            *open[k] = (struct echi_play_piece){.shard = (uint16_t)k, .first = (uint16_t)layer, .part = (uint16_t)i};
        }
        travels(p, open[k], part->count);
    }
    return true;
}

/* ---- hosts ---- */

/* Seconds on the clock that a byte takes a node's processor at its end of a link. */
static double copying(const struct echi_play *p, const struct echi_times *t) { return (t->exchange - adding_all(t)) / (4 * p->all); }

/* A link is no bound beside its processor where that had so large a part in the rate that was measured: what it carries is what the
 * processor copies, which counts by itself. (Hosts on one machine without a bound between them: 1.8 GB/s, 0.9 of them the processor's;
 * at 1 Gb/s 0.1.) */
#define COPIED_MOST 0.5
static double bound(double rate, double copying) { return rate * copying < COPIED_MOST ? rate : 0; }

double echi_play_link(const struct echi_play *p, int rank, bool in) {
    const struct echi_times *t = &p->times[rank];
    return bound(in ? t->link.in.rate : t->link.out.rate, copying(p, t));
}

/* Nodes of one machine share its processors; who is alone there has what it measured. */
static void share_processors(struct echi_play *p) {
    const int world = p->plan->world;
    for (int r = 0; r < world; r++) {
        const struct echi_machine *m = &p->times[r].machine;
        bool shared = false;
        if (m->id == 0 || p->hosts.host[r].cores >= 0) continue;
        for (int s = r + 1; s < world; s++) {
            if (p->times[s].machine.id != m->id) continue;
            shared = true;
            p->hosts.host[s].cores = p->hosts.pools;
        }
        if (!shared) continue;
        p->hosts.host[r].cores = p->hosts.pools;
        p->hosts.pool_cores[p->hosts.pools++] = m->processors;
    }
    for (int r = 0; r < world; r++) {
        if (p->hosts.host[r].cores < 0) continue;
        p->hosts.host[r].speed *= p->times[r].machine.crowd;
    }
}

static bool make_hosts(struct echi_play *p) {
    const int world = p->plan->world;
    p->hosts.count = world;
    p->hosts.host = echi_play_zeroed(p, (size_t)world, sizeof *p->hosts.host);
    if (!p->hosts.host) return false;
    for (int r = 0; r < world; r++) {
        const struct echi_times *t = &p->times[r];
        p->hosts.host[r] = (struct echi_host){.speed = 1 / echi_times_granted(t), .quota = t->quota, .period = t->period, .cores = -1,
                                              .takes = t->machine.takes, .rate = echi_play_link(p, r, false),
                                              .delay = t->delay, .dies = -1, .joins = -1};
    }
    share_processors(p);
    p->cost = echi_cost_create(&p->hosts, (struct echi_cost_io){0, 0}, NULL, 0, (struct echi_supply){resize, p});
    if (p->cost) echi_cost_watch(p->cost, p->line);
    for (int r = 0; p->cost && r < world; r++) {
        const struct echi_times *t = &p->times[r];
        const double granted = 1 / p->hosts.host[r].speed;   /* seconds of the processor by those of the clock */
        echi_cost_set_link(p->cost, r, echi_play_link(p, r, true),
                           (struct echi_cost_io){granted * t->messages / ECHI_STEP_MESSAGES, granted * copying(p, t)});
    }
    return p->cost;
}

/* Parameters of all layers. Where nobody knows of any a push is one all the same, since what it costs may be known. */
static void count_parameters(struct echi_play *p) {
    const struct echi_parts *parts = &p->plan->parts;
    for (int i = 0; i < parts->count; i++) p->all += parts->part[i].count;
    if (parts->count == 0) p->all = (p->load->trunk + (double)p->load->head) / 4;
    if (p->all <= 0) p->all = 1;
    p->head_params = p->plan->cut ? p->load->head / 4.0 : 0;
}

struct echi_play echi_play_of(const struct echi_plan *plan, const struct echi_times *times, const struct echi_load *load,
                              struct echi_predict_work *work, size_t taken) {
    memset(work->traffic, 0, (size_t)plan->world * sizeof *work->traffic);   /* of a play that came to no end as well */
    memset(work->busy, 0, (size_t)plan->world * sizeof *work->busy);
    return (struct echi_play){.plan = plan, .times = times, .load = load, .memory = work->bytes + ALIGNED(taken),
                              .size = sizeof work->bytes - ALIGNED(taken), .shards = 1};
}

void echi_play_watch(struct echi_play *p, struct echi_timeline *line) {
    p->line = line;
    if (line) echi_timeline_clear(line, p->plan->world);
}

static struct echi_traffic moved(const struct echi_play *p, int rank) {
    return (struct echi_traffic){echi_cost_moved(p->cost, rank, false), echi_cost_moved(p->cost, rank, true)};
}

void echi_play_traffic_from(struct echi_play *p, struct echi_predict_work *work) {
    p->from = echi_cost_now(p->cost);
    for (int r = 0; r < p->plan->world; r++) {
        work->traffic[r] = moved(p, r);
        work->busy[r] = echi_cost_busy(p->cost, r);
    }
}

void echi_play_traffic(const struct echi_play *p, double seconds, struct echi_predict_work *work) {
    const double passed = (double)(echi_cost_now(p->cost) - p->from) * 1e-9;
    for (int r = 0; r < p->plan->world; r++) {
        work->busy[r] = passed > 0 ? (echi_cost_busy(p->cost, r) - work->busy[r]) / passed : 0;
        const struct echi_traffic before = work->traffic[r], now = moved(p, r);
        work->traffic[r] = (struct echi_traffic){0, 0};
        if (seconds > 0) work->traffic[r] = (struct echi_traffic){(now.out - before.out) / seconds, (now.in - before.in) / seconds};
    }
}

bool echi_play_set_up(struct echi_play *p, int limit) {
    const struct echi_plan *plan = p->plan;
    for (int r = 0; r < plan->world; r++) p->workers += plan->group_of[r] != ECHI_NONE;
    p->layers = trunk_layers(p) + (plan->cut ? 0 : head_layers(p));
    if (p->layers > ECHI_UNITS_MAX) return false;
    p->number = plan->deterministic ? sizeof(int64_t) : sizeof(float);
    for (int kind = 0; kind < ECHI_KINDS; kind++) p->meta[kind] = (uint16_t)echi_kind_meta_usual(kind);
    count_parameters(p);
    p->rank = echi_play_zeroed(p, (size_t)p->workers, sizeof *p->rank);
    p->of = echi_play_zeroed(p, (size_t)p->workers, sizeof *p->of);
    if (!p->rank || !p->of || !make_pieces(p, limit)) return false;
    for (int r = 0, w = 0; r < plan->world; r++) {
        if (plan->group_of[r] == ECHI_NONE) continue;
        p->rank[w] = (uint16_t)r;
        p->of[w] = shape_of(p, r);
        if (!p->of[w++]) return false;
    }
    return make_hosts(p);
}
