/* SPDX-License-Identifier: Apache-2.0
 * Rounds by part, played on the cost engine: workers, owners of shards and a head as their roles act (lib/core/roles/owner_rounds.c),
 * without messages' contents, leases, losses and arithmetic.
 *
 * Parts of one shard that follow one another travel as one *piece* where a round would else have too many messages. */
#include "echi_predict_rounds.h"
#include "echi_cost.h"
#include "echi_priority.h"
#include "echi_task.h"

#include <string.h>

/* Messages of a play, and pushes of a round that are told apart: what a coordinator may be busy for, some ms a candidate. */
#define MESSAGES_MAX 24000
#define PUSHES_MAX 6144
/* Rounds that are played before any counts, and counted ones: with nothing random, and else, at least and at most. */
#define WARM 4
#define COUNTED_LEAST 3
#define COUNTED_EXACT 16
#define RANDOM_LEAST 24
#define RANDOM_MOST 1024
/* As in owner_rounds.c: messages of weights that are queued for a link beside the one that it carries. */
#define AHEAD 1
/* Bytes of a message without a payload, about. */
#define CONTROL 128
#define SHAPES_MAX 64

enum what { STEP, FORWARD, BACKWARD, ADD, APPLY, HEAD, HEAD_APPLY, PUSH, WEIGHTS, ROWS, ANSWER, APPLIED, LEASE };
/* What a work or a message is about: of a shard and a worker, and the number of a piece. */
struct about { enum what what; int shard, worker, piece; };

/* It can leave when the gradients of this layer and of all behind it are there. */
struct piece { uint32_t params; uint16_t shard, layer; };
struct shape {
    struct echi_work_shape step, forward, backward;
    double *until; bool *mark;            /* [units of all three] */
};
struct worker {
    int rank, weights_in, pushed;         /* pieces of the next weights that are in; of this step's gradients those that have left */
    uint32_t steps;
    double factor;                        /* of this step's time */
    const struct shape *shape;
};
/* A worker, as the owner of a shard sees it: pieces of its push that are here, and of these, given to the sum; of its weights those that
 * were sent, and of these, still in the queue. */
struct view { uint16_t here, taken, sent, leaving; bool queued, getting, in_turn, owed; };
struct shard {
    int owner, own;                       /* rank; its own node's worker, -1: none */
    int pieces;
    uint16_t *piece, *in, *order;         /* its pieces as they are pushed; workers in the sum of each; which was applied first, ... */
    bool *given;                          /* to the task that applies it */
    struct view *view;                    /* [workers] */
    uint16_t *queue; int queue_at, queued;   /* workers with pieces that wait for the sum, in a ring */
    uint16_t turns[ECHI_ANSWERS + 1]; int n_turns;
    bool busy;
    int covered, applied, queued_weights, sends, turn;
};
struct play {
    const struct echi_plan *plan;
    const struct echi_times *times;
    const struct echi_load *load;
    struct echi_cost *cost;
    unsigned char *memory; size_t used, size;
    struct echi_hosts hosts;
    int workers, shards, pieces, layers, shapes;
    double all, head_params;              /* parameters; those of a head apart */
    struct worker *worker;
    struct shard *shard;
    struct piece *piece;
    struct shape shape[SHAPES_MAX];
    uint16_t *rows; int rows_waiting, rows_visiting, rows_in; bool head_busy;   /* steps at the head */
    int ended, words;                     /* shards that have ended this round; words of applied leases at the coordinator */
    uint32_t rounds;
    int64_t first, last;                  /* when the counted rounds began and ended */
};

/* ---- memory: one block of it, the last piece of which can grow ---- */

#define ALIGNED(n) (((n) + 15) / 16 * 16)
struct block { size_t size; };            /* in front of each, as large as an alignment */

static void *resize(void *self, void *old, size_t size) {
    struct play *p = self;
    if (size == 0) return NULL;
    struct block *b = old ? (struct block *)(void *)((unsigned char *)old - 16) : NULL;
    if (b && b->size >= size) return old;
    if (b && (unsigned char *)old + ALIGNED(b->size) == p->memory + p->used) p->used -= ALIGNED(b->size);
    else if (p->used + 16 > p->size) return NULL;
    else p->used += 16;
    unsigned char *at = p->memory + p->used;
    if (ALIGNED(size) > p->size - p->used) return NULL;
    p->used += ALIGNED(size);
    struct block *now = (struct block *)(void *)(at - 16);
    if (b && old != (void *)at) memcpy(at, old, b->size);
    now->size = size;
    return at;
}

static void *zeroed(struct play *p, size_t count, size_t size) {
    void *block = resize(p, NULL, count * size + 1);
    if (block) memset(block, 0, count * size);
    return block;
}

/* ---- messages and works ---- */

static uint64_t cookie(struct about a) {
    return (uint64_t)a.what << 48 | (uint64_t)a.shard << 32 | (uint64_t)a.worker << 16 | (uint64_t)a.piece;
}
static struct about about(uint64_t c) {
    return (struct about){(enum what)(c >> 48), (int)(c >> 32 & 0xffff), (int)(c >> 16 & 0xffff), (int)(c & 0xffff)};
}

static void arrived(struct play *p, struct about a);

static void send(struct play *p, int from, int to, int priority, double bytes, struct about a) {
    if (from == to) return arrived(p, a);
    echi_cost_send(p->cost, from, to, priority, (uint64_t)bytes, 0, cookie(a));
}

static void compute(struct play *p, int rank, enum echi_task_kind kind, double seconds, const struct echi_work_shape *shape,
                    struct about a) {
    echi_cost_compute(p->cost, rank, &(struct echi_work){.seconds = seconds, .urgency = (int)kind, .shape = shape, .cookie = cookie(a)});
}

/* Seconds for so many parameters. */
static double adding(const struct play *p, int rank, double params) {
    return (1 - ECHI_PREDICT_COPY) * p->times[rank].exchange * params / p->all;
}
static double applying(const struct play *p, int rank, double params) {
    const struct echi_times *t = &p->times[rank];
    return (t->update > 0 ? t->update : ECHI_PREDICT_APPLY * t->exchange) * params / p->all;
}

/* ---- worker ---- */

static void begin(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    const struct echi_times *t = &p->times[k->rank];
    const uint32_t n = p->plan->n[k->rank];
    k->weights_in = k->pushed = 0;
    k->factor = echi_predict_factor(t, k->rank, k->steps++);
    if (p->plan->separated)
        compute(p, k->rank, ECHI_TASK_FORWARD, k->factor * echi_times_forward(t, n), &k->shape->forward, (struct about){FORWARD, 0, w, 0});
    else compute(p, k->rank, ECHI_TASK_STEP, k->factor * echi_times_whole(t, n), &k->shape->step, (struct about){STEP, 0, w, 0});
}

/* When a worker's next round begins: all weights are in. */
static bool may_begin(const struct play *p, int w) { return p->worker[w].weights_in == p->pieces; }

static void weights_in(struct play *p, int w) {
    p->worker[w].weights_in++;
    if (may_begin(p, w)) begin(p, w);
}

/* The gradients of this layer and of those behind it are there: what is complete leaves. */
static void gradients(struct play *p, int w, int layer) {
    struct worker *k = &p->worker[w];
    for (; k->pushed < p->pieces && p->piece[k->pushed].layer >= layer; k->pushed++) {
        const struct piece *piece = &p->piece[k->pushed];
        send(p, k->rank, p->shard[piece->shard].owner, ECHI_PRIORITY_GRADIENTS, 4.0 * piece->params,
             (struct about){PUSH, piece->shard, w, 0});
    }
}

static void answered(struct play *p, int w) {
    const struct worker *k = &p->worker[w];
    const struct echi_times *t = &p->times[k->rank];
    const uint32_t n = p->plan->n[k->rank];
    const double backward = echi_times_trunk(t, n) - echi_times_forward(t, n);
    compute(p, k->rank, ECHI_TASK_BACKWARD, k->factor * backward, &k->shape->backward, (struct about){BACKWARD, 0, w, 0});
}

/* The unit of a shape is the last of a layer whose gradients are told of. */
static void marked(struct play *p, struct about a, int unit) {
    if (a.what == STEP) gradients(p, a.worker, 2 * p->layers - 1 - unit);
    else if (a.what == BACKWARD) gradients(p, a.worker, p->layers - 1 - unit);
}

/* ---- head: adds up the gradients of a round's rows, and applies them once ---- */

static void visit(struct play *p) {
    const int head = p->plan->head;
    uint32_t rows = 0;
    if (p->head_busy) return;
    if (p->rows_in == p->workers) {
        p->rows_in = 0;
        p->head_busy = true;
        return compute(p, head, ECHI_TASK_HEAD_APPLY, applying(p, head, p->head_params), NULL, (struct about){HEAD_APPLY, 0, 0, 0});
    }
    for (p->rows_visiting = 0; p->rows_visiting < p->rows_waiting && p->rows_visiting < ECHI_MERGE_STEPS; p->rows_visiting++) {
        const uint32_t n = p->plan->n[p->worker[p->rows[p->rows_visiting]].rank];
        if (rows > 0 && rows + n > ECHI_MERGE_ROWS) break;
        rows += n;
    }
    if (rows == 0) return;
    p->head_busy = true;
    compute(p, head, ECHI_TASK_HEAD, echi_times_head(&p->times[head], rows) + adding(p, head, p->head_params), NULL,
            (struct about){HEAD, 0, 0, 0});
}

static void answer_rows(struct play *p) {
    const int count = p->rows_visiting;
    p->head_busy = false;
    p->rows_visiting = 0;
    p->rows_in += count;
    for (int i = 0; i < count; i++) {
        const int w = p->rows[i], rank = p->worker[w].rank;
        send(p, p->plan->head, rank, ECHI_PRIORITY_ANSWER, (double)p->plan->n[rank] * p->load->row_grad, (struct about){ANSWER, 0, w, 0});
    }
    p->rows_waiting -= count;
    memmove(&p->rows[0], &p->rows[count], (size_t)p->rows_waiting * sizeof p->rows[0]);
    visit(p);
}

/* ---- owner of a shard: see owner_rounds.c, whose rules these are ---- */

static void send_piece(struct play *p, int k, int w, int piece) {
    struct shard *s = &p->shard[k];
    struct view *v = &s->view[w];
    v->sent++;
    v->leaving = (uint16_t)(v->leaving + (w != s->own));
    s->queued_weights += w != s->own && v->in_turn;
    send(p, s->owner, p->worker[w].rank, ECHI_PRIORITY_WEIGHTS, 4.0 * p->piece[s->piece[piece]].params,
         (struct about){WEIGHTS, k, w, 0});
}

static void end_answer(struct shard *s, int w) {
    struct view *v = &s->view[w];
    if (v->leaving > 0 || v->sent < s->pieces) return;
    v->in_turn = false;
    s->sends -= w != s->own;
}

static void send_whole(struct play *p, int k, int w) {
    struct shard *s = &p->shard[k];
    s->view[w].owed = s->view[w].in_turn = false;
    s->view[w].sent = 0;
    s->sends += w != s->own;
    s->turn = w + 1;
    for (int i = s->pieces - 1; i >= 0; i--) send_piece(p, k, w, i);
}

static void answer(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    for (int i = 0, first = s->turn; i < p->workers && s->sends < ECHI_ANSWERS; i++) {
        const int w = (first + i) % p->workers;
        if (s->view[w].owed) send_whole(p, k, w);
    }
}

/* What is lent to the own node comes back with the next weights, so it gets none in turns. */
static bool may_get(const struct shard *s, int w) {
    const struct view *v = &s->view[w];
    return w != s->own && !v->owed && v->leaving == 0 && !v->getting;
}

static bool begin_turn(const struct play *p, struct shard *s) {
    if (s->sends >= ECHI_ANSWERS || s->n_turns > ECHI_ANSWERS) return false;
    for (int i = 0; i < p->workers; i++) {
        const int w = (s->turn + i) % p->workers;
        if (!may_get(s, w)) continue;
        s->view[w].getting = s->view[w].in_turn = true;
        s->view[w].sent = 0;
        s->turns[s->n_turns++] = (uint16_t)w;
        s->turn = w + 1;
        s->sends++;
        return true;
    }
    return false;
}

static void send_applied(struct play *p, int k, bool all) {
    struct shard *s = &p->shard[k];
    for (int i = 0; i < s->n_turns; i++)
        for (int w = s->turns[i]; s->view[w].sent < s->applied && (all || s->queued_weights <= AHEAD);)
            send_piece(p, k, w, s->order[s->view[w].sent]);
}

static void answer_parts(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    if (s->applied == 0) return;
    do send_applied(p, k, false);
    while (s->queued_weights <= AHEAD && begin_turn(p, s));
}

/* A round is over here, and with the last shard everywhere. */
static void count_round(struct play *p) {
    if (++p->ended < p->shards) return;
    p->ended = 0;
    p->rounds++;
    p->last = echi_cost_now(p->cost);
    if (p->rounds == WARM) p->first = p->last;
}

static void end_round(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    send_applied(p, k, true);
    for (int w = 0; w < p->workers; w++) {
        struct view *v = &s->view[w];
        v->owed = !v->getting;
        v->getting = false;
        v->here = v->taken = 0;
    }
    if (s->own >= 0) s->turn = s->own;
    s->n_turns = s->applied = 0;
    memset(s->in, 0, (size_t)s->pieces * sizeof s->in[0]);
    memset(s->given, 0, (size_t)s->pieces * sizeof s->given[0]);
    for (int w = 0; w < p->workers; w++) send(p, s->owner, 0, ECHI_PRIORITY_CONTROL, CONTROL, (struct about){APPLIED, k, w, 0});
    count_round(p);
}

/* The first that forward needs of those that all workers' gradients are in of. */
static void apply_piece(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    int i = s->pieces - 1;
    while (s->in[i] < p->workers || s->given[i]) i--;
    s->given[i] = s->busy = true;
    s->covered--;
    compute(p, s->owner, ECHI_TASK_APPLY, applying(p, s->owner, p->piece[s->piece[i]].params), NULL, (struct about){APPLY, k, 0, i});
}

static void enqueue(const struct play *p, struct shard *s, int w) {
    if (s->view[w].queued || s->view[w].taken == s->view[w].here) return;
    s->view[w].queued = true;
    s->queue[(s->queue_at + s->queued++) % p->workers] = (uint16_t)w;
}

static void add_piece(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    const int w = s->queue[s->queue_at], i = s->view[w].taken++;
    s->queue_at = (s->queue_at + 1) % p->workers;
    s->queued--;
    s->view[w].queued = false;
    enqueue(p, s, w);
    s->busy = true;
    compute(p, s->owner, ECHI_TASK_ADD, adding(p, s->owner, p->piece[s->piece[i]].params), NULL, (struct about){ADD, k, w, i});
}

/* After each event. */
static void pump(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    answer_parts(p, k);
    answer(p, k);
    if (s->busy) return;
    if (s->covered > 0) apply_piece(p, k);
    else if (s->queued > 0) add_piece(p, k);
}

static void push_in(struct play *p, int k, int w) {
    p->shard[k].view[w].here++;
    enqueue(p, &p->shard[k], w);
    pump(p, k);
}

static void added(struct play *p, struct about a) {
    struct shard *s = &p->shard[a.shard];
    s->busy = false;
    s->covered += ++s->in[a.piece] == p->workers;
    pump(p, a.shard);
}

static void applied(struct play *p, struct about a) {
    struct shard *s = &p->shard[a.shard];
    s->busy = false;
    s->order[s->applied++] = (uint16_t)a.piece;
    if (s->applied == s->pieces) end_round(p, a.shard);
    pump(p, a.shard);
}

static void weights_left(struct play *p, struct about a) {
    struct shard *s = &p->shard[a.shard];
    struct view *v = &s->view[a.worker];
    v->leaving--;
    s->queued_weights -= v->in_turn;
    end_answer(s, a.worker);
    pump(p, a.shard);
}

/* ---- coordinator: its words cost time, and nobody waits for them, since rounds are dealt ahead ---- */

static void word_in(struct play *p) {
    if (++p->words < p->workers * p->shards) return;
    p->words = 0;
    for (int w = 0; w < p->workers; w++) send(p, 0, p->worker[w].rank, ECHI_PRIORITY_CONTROL, CONTROL, (struct about){LEASE, 0, w, 0});
}

/* ---- the play ---- */

static void arrived(struct play *p, struct about a) {
    switch (a.what) {
    case PUSH: return push_in(p, a.shard, a.worker);
    case WEIGHTS: return weights_in(p, a.worker);
    case ROWS: p->rows[p->rows_waiting++] = (uint16_t)a.worker; return visit(p);
    case ANSWER: return answered(p, a.worker);
    case APPLIED: return word_in(p);
    default: return;
    }
}

static void done(struct play *p, struct about a) {
    const int rank = p->worker[a.worker].rank;
    switch (a.what) {
    case STEP:
    case BACKWARD: return gradients(p, a.worker, 0);
    case FORWARD:
        return send(p, rank, p->plan->head, ECHI_PRIORITY_ROWS, (double)p->plan->n[rank] * p->load->row,
                    (struct about){ROWS, 0, a.worker, 0});
    case ADD: return added(p, a);
    case APPLY: return applied(p, a);
    case HEAD: return answer_rows(p);
    case HEAD_APPLY: p->head_busy = false; return visit(p);
    default: return;
    }
}

static void happens(struct play *p, const struct echi_happening *h) {
    const struct about a = about(h->cookie);
    switch (h->type) {
    case ECHI_HAPPENS_MARK: return marked(p, a, h->unit);
    case ECHI_HAPPENS_DONE: return done(p, a);
    case ECHI_HAPPENS_ARRIVED: return arrived(p, a);
    case ECHI_HAPPENS_SENT:
        if (a.what == WEIGHTS) weights_left(p, a);
        return;
    default: return;
    }
}

/* ---- what is played ---- */

/* Bytes of each layer, about: small neighbours share a part. */
static void layer_bytes(const struct play *p, double out[ECHI_UNITS_MAX]) {
    for (int i = 0; i < p->plan->parts.count; i++) {
        const struct echi_part *part = &p->plan->parts.part[i];
        for (int l = part->first; l <= part->last; l++) out[l] += 4.0 * part->count / (part->last - part->first + 1);
    }
}

/* Seconds of one unit, of steps of about the size of this worker's. */
static double unit_takes(const struct play *p, const struct echi_times *t, uint32_t n, int unit, enum echi_pass pass) {
    if ((uint32_t)t->units != p->load->layers + p->load->head_layers) return pass == ECHI_FORWARD ? 1 : 2;
    const int i = echi_times_nearest(t, n);
    const uint32_t size = t->n[t->size[i]];
    return t->share[i][unit].of[pass] * (unit < (int)p->load->layers ? echi_times_trunk(t, size) : echi_times_head(t, size));
}

static struct echi_work_shape cut_out(const double *until, const bool *mark, int units) {
    return (struct echi_work_shape){units, until, mark};
}

/* A step's units, forward and backward, and each pass by itself; its gradients are told of as the compute thread tells of them. */
static bool make_shape(struct play *p, const struct echi_times *t, uint32_t n, struct shape *out) {
    const int units = p->layers;
    double bytes[ECHI_UNITS_MAX] = {0}, untold = 0, sum = 0;
    layer_bytes(p, bytes);
    out->until = zeroed(p, (size_t)(4 * units), sizeof *out->until);
    out->mark = zeroed(p, (size_t)(4 * units), sizeof *out->mark);
    if (!out->until || !out->mark) return false;
    for (int u = 0; u < 2 * units; u++) {
        const int layer = u < units ? u : 2 * units - 1 - u;
        out->until[u] = sum += unit_takes(p, t, n, layer, u < units ? ECHI_FORWARD : ECHI_BACKWARD);
        untold += u < units ? 0 : bytes[layer];
        out->mark[u] = untold >= ECHI_WORTH_A_WAKE;
        if (out->mark[u]) untold = 0;
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
static const struct shape *shape_of(struct play *p, int rank) {
    struct shape *s = &p->shape[p->shapes < SHAPES_MAX ? p->shapes : SHAPES_MAX - 1];
    const size_t before = p->used;
    if (p->shapes == SHAPES_MAX) return s;
    if (!make_shape(p, &p->times[rank], p->plan->n[rank], s)) return NULL;
    for (int i = 0; i < p->shapes; i++) {
        if (memcmp(p->shape[i].until, s->until, (size_t)(4 * p->layers) * sizeof *s->until) != 0) continue;
        p->used = before;
        return &p->shape[i];
    }
    p->shapes++;
    return s;
}

/* Parts, from the last to the first, each shard's run of `most` as one piece. */
static bool make_pieces(struct play *p, int limit) {
    const struct echi_parts *parts = &p->plan->parts;
    const int end = p->plan->separated ? echi_parts_before(parts, (int)p->load->layers) : parts->count;
    int count[ECHI_SHARDS_MAX] = {0}, most[ECHI_SHARDS_MAX], has[ECHI_SHARDS_MAX] = {0};
    struct piece open[ECHI_SHARDS_MAX];
    const int each = limit / (p->workers * p->shards) > 1 ? limit / (p->workers * p->shards) : 1;
    p->piece = zeroed(p, (size_t)end, sizeof *p->piece);
    if (!p->piece) return false;
    for (int i = 0; i < end; i++) count[parts->part[i].shard]++;
    for (int k = 0; k < p->shards; k++) most[k] = (count[k] + each - 1) / each;
    for (int i = end - 1; i >= 0; i--) {
        const int k = parts->part[i].shard;
        if (has[k] == 0) open[k] = (struct piece){.shard = (uint16_t)k};
        open[k].params += parts->part[i].count;
        open[k].layer = parts->part[i].first;
        count[k]--;
        if (++has[k] < most[k] && count[k] > 0) continue;
        has[k] = 0;
        p->piece[p->pieces++] = open[k];
        p->shard[k].pieces++;
    }
    return true;
}

static bool make_shard(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    int n = 0;
    s->owner = echi_plan_shard_owner(p->plan, 0, k);
    s->own = -1;
    for (int w = 0; w < p->workers; w++)
        if (p->worker[w].rank == s->owner) s->own = w;
    s->piece = zeroed(p, (size_t)s->pieces, sizeof *s->piece);
    s->in = zeroed(p, (size_t)s->pieces, sizeof *s->in);
    s->order = zeroed(p, (size_t)s->pieces, sizeof *s->order);
    s->given = zeroed(p, (size_t)s->pieces, sizeof *s->given);
    s->view = zeroed(p, (size_t)p->workers, sizeof *s->view);
    s->queue = zeroed(p, (size_t)p->workers, sizeof *s->queue);
    if (!s->piece || !s->in || !s->order || !s->given || !s->view || !s->queue) return false;
    for (int i = 0; i < p->pieces; i++)
        if (p->piece[i].shard == k) s->piece[n++] = (uint16_t)i;
    for (int w = 0; w < p->workers; w++) s->view[w].owed = true;
    return true;
}

static bool make_hosts(struct play *p) {
    const int world = p->plan->world;
    p->hosts.count = world;
    p->hosts.host = zeroed(p, (size_t)world, sizeof *p->hosts.host);
    if (!p->hosts.host) return false;
    for (int r = 0; r < world; r++)
        p->hosts.host[r] = (struct echi_host){.speed = 1, .cores = -1, .rate = p->times[r].link.out.rate, .delay = p->times[r].delay,
                                              .dies = -1, .joins = -1};
    p->cost = echi_cost_create(&p->hosts, (struct echi_cost_io){0, 0}, NULL, 0, (struct echi_supply){resize, p});
    for (int r = 0; p->cost && r < world; r++) {
        const struct echi_times *t = &p->times[r];
        echi_cost_set_link(p->cost, r, t->link.in.rate,
                           (struct echi_cost_io){t->messages / ECHI_PREDICT_MESSAGES, ECHI_PREDICT_COPY * t->exchange / (4 * p->all)});
    }
    return p->cost;
}

static bool set_up(struct play *p, int limit) {
    const struct echi_plan *plan = p->plan;
    for (int r = 0; r < plan->world; r++) p->workers += plan->group_of[r] != ECHI_NONE;
    p->shards = echi_plan_shards(plan);
    p->layers = (int)(p->load->layers + (plan->separated ? 0 : p->load->head_layers));
    for (int i = 0; i < plan->parts.count; i++) p->all += plan->parts.part[i].count;
    p->head_params = plan->separated ? p->load->head / 4.0 : 0;
    p->worker = zeroed(p, (size_t)p->workers, sizeof *p->worker);
    p->shard = zeroed(p, (size_t)p->shards, sizeof *p->shard);
    p->rows = zeroed(p, (size_t)p->workers, sizeof *p->rows);
    if (!p->worker || !p->shard || !p->rows || !make_pieces(p, limit)) return false;
    for (int r = 0, w = 0; r < plan->world; r++) {
        if (plan->group_of[r] == ECHI_NONE) continue;
        p->worker[w].rank = r;
        p->worker[w].shape = shape_of(p, r);
        if (!p->worker[w++].shape) return false;
    }
    for (int k = 0; k < p->shards; k++)
        if (!make_shard(p, k)) return false;
    return make_hosts(p);
}

/* Rounds that are counted. */
static uint32_t rounds_of(const struct play *p, uint32_t steps) {
    const uint32_t messages = (uint32_t)(p->workers * (2 * p->pieces + p->shards + 1)), affordable = MESSAGES_MAX / messages;
    bool random = false;
    for (int w = 0; w < p->workers; w++) random = random || echi_predict_random(&p->times[p->worker[w].rank]);
    const uint32_t least = random ? RANDOM_LEAST : COUNTED_LEAST, most = random ? RANDOM_MOST : COUNTED_EXACT;
    return steps ? steps : affordable < least ? least : affordable > most ? most : affordable;
}

static bool play(struct play *p, uint32_t steps, struct echi_prediction *out) {
    struct echi_happening h;
    const uint32_t counted = rounds_of(p, steps);
    for (int k = 0; k < p->shards; k++) pump(p, k);
    while (p->rounds < WARM + counted && echi_cost_next(p->cost, &h)) happens(p, &h);
    if (p->rounds < WARM + counted || echi_cost_failed(p->cost)) return false;
    const double seconds = (double)(p->last - p->first) * 1e-9;
    *out = (struct echi_prediction){.rate = (double)p->plan->round * counted / (seconds > 1e-9 ? seconds : 1e-9)};
    return true;
}

bool echi_predict_by_part(const struct echi_plan *plan) {
    const struct echi_policy *policy = echi_policy_of((enum echi_sync)plan->sync);
    return policy->rounds && !policy->local && plan->codec == ECHI_CODEC_DENSE && !plan->deterministic && plan->parts.count > 0 &&
           echi_plan_workers(plan, -1) > 1;
}

bool echi_predict_rounds(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                         uint32_t steps, struct echi_predict_work *work, struct echi_prediction *out) {
    struct play *p = (struct play *)(void *)work;
    for (int limit = PUSHES_MAX; limit > 0; limit /= 8) {
        *p = (struct play){.plan = plan, .times = times, .load = load, .memory = (unsigned char *)work + ALIGNED(sizeof *p),
                           .size = sizeof *work - ALIGNED(sizeof *p)};
        if (set_up(p, limit) && play(p, steps, out)) return true;
    }
    return false;
}
