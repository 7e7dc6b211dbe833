/* SPDX-License-Identifier: Apache-2.0
 * Rounds by part, played on the cost engine: workers, owners of shards and a head as their roles act (lib/core/roles/owner_rounds.c,
 * worker.c, worker_ring.c), without messages' contents, leases, losses and arithmetic.
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
/* Rounds that are played before any counts, and counted ones: with nothing random until one takes as long as the one before it, within
 * ALIKE of it, and no more than that; else at least and at most. */
#define WARM 2
#define COUNTED_EXACT 16
#define ALIKE 1e-3
#define RANDOM_LEAST 24
#define RANDOM_MOST 48
/* As in owner_rounds.c: messages of weights on their way beside the one that a link carries. */
#define AHEAD 1
/* Bytes of a message without a payload, about. */
#define CONTROL 128
#define SHAPES_MAX 64

enum what { STEP, FORWARD, BACKWARD, APPLY, HEAD, HEAD_APPLY, PUSH, WEIGHTS, ROWS, ANSWER, APPLIED, LEASE, SUM, ADD, HANDED };
/* What a work or a message is about: of a shard, a worker and a piece. */
struct about { enum what what; int shard, worker, piece; };

/* In the order in which forward needs them. As its owner sees it: how many pushes of it are here, and how many workers lack its weights. */
struct piece {
    uint32_t params;
    uint16_t shard, layer, part;          /* the first of its layers, and of its parts */
    uint16_t come, lacking;
    bool given, applied;                  /* to the task that applies it; by that */
    bool *lacks;                          /* [workers] */
};
struct shape {
    struct echi_work_shape step, forward, backward;
    double *until; bool *mark;            /* [units of all three] */
};
struct worker {
    int rank;
    bool busy;                            /* with a task, or it waits for the head */
    bool *here; int in, front;            /* pieces of the next weights; how many, and how many without a gap from the first on */
    int gone, until;                      /* layers of this step's forward that are computed; and when the task in hand is; 0: to the end */
    bool *sum, *ready;                    /* in a ring: pieces whose sum is here, and those whose gradients are */
    int unpushed;                         /* of this step's gradients so many pieces have not left, the first ones */
    uint32_t steps;
    double factor;                        /* of this step's time */
    const struct shape *shape;
};
struct shard {
    int owner, own;                       /* rank; its own node's worker, -1: none */
    int pieces; uint16_t *piece;
    bool busy;
    int covered, applied;                 /* pieces that all pushes are here of, and no task has; that are applied in this round */
    int lacking, trickles, turn, next;    /* weights to be sent of this round; those that have not left; to this worker; none before this */
};
struct play {
    const struct echi_plan *plan;
    const struct echi_times *times;
    const struct echi_load *load;
    struct echi_cost *cost;
    unsigned char *memory; size_t used, size;
    struct echi_hosts hosts;
    int workers, shards, pieces, layers, shapes;
    bool rings;
    double all, head_params;              /* parameters; those of a head apart */
    struct worker *worker;
    struct echi_varying *step;            /* of each worker */
    struct shard *shard;
    struct piece *piece;
    struct shape shape[SHAPES_MAX];
    uint16_t *rows; int rows_waiting, rows_visiting, rows_in; bool head_busy;   /* steps at the head */
    int ended, words;                     /* shards that have ended this round; their words at the coordinator */
    uint32_t rounds;
    int64_t first, before, last;          /* when the counted rounds began, and the last two rounds ended */
    struct { double round, longest, both, square; } sum;   /* over the counted rounds, where steps vary: see `luck` */
};

/* ---- memory: one block of it, the last piece of which can grow ---- */

#define ALIGNED(n) (((n) + 15) / 16 * 16)
struct block { size_t size; };            /* in front of each, as large as an alignment */

static void *resize(void *self, void *old, size_t size) {
    struct play *p = self;
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

static void send(struct play *p, int from, int to, int priority, double bytes, struct about a) {
    echi_cost_send(p->cost, from, to, priority, (uint64_t)bytes, 0, cookie(a));
}

static void compute(struct play *p, int rank, enum echi_task_kind kind, double seconds, struct about a) {
    echi_cost_compute(p->cost, rank, &(struct echi_work){.seconds = seconds, .urgency = (int)kind, .cookie = cookie(a)});
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

/* Forward as far as there are weights for it; with all of them to the end. */
static void go_on(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    const struct echi_times *t = &p->times[k->rank];
    const uint32_t n = p->plan->n[k->rank];
    const bool whole = k->in == p->pieces, apart = p->plan->separated;
    const int here = whole ? p->layers : p->piece[k->front].layer;
    if (k->busy || (!whole && here == k->gone)) return;
    if (k->gone == 0) k->factor = echi_predict_factor(t, k->rank, k->steps++);
    k->busy = true;
    k->until = whole ? 0 : here;
    echi_cost_compute(p->cost, k->rank,
                      &(struct echi_work){.seconds = k->factor * (apart ? echi_times_forward(t, n) : echi_times_whole(t, n)),
                                          .urgency = apart ? ECHI_TASK_FORWARD : ECHI_TASK_STEP,
                                          .shape = apart ? &k->shape->forward : &k->shape->step, .first = k->gone, .end = k->until,
                                          .cookie = cookie((struct about){apart ? FORWARD : STEP, 0, w, 0})});
    if (!whole) return;
    k->in = k->front = k->gone = 0;
    k->unpushed = p->pieces;
    memset(k->here, 0, (size_t)p->pieces * sizeof k->here[0]);
}

static void weights_in(struct play *p, int w, int piece) {
    struct worker *k = &p->worker[w];
    k->here[piece] = true;
    k->in++;
    while (k->front < p->pieces && k->here[k->front]) k->front++;
    go_on(p, w);
}

/* ---- ring: see worker_ring.c ---- */

static int next_of(const struct play *p, int w) { return w + 1 < p->workers ? w + 1 : 0; }

static void send_sum(struct play *p, int w, int piece) {
    send(p, p->worker[w].rank, p->worker[next_of(p, w)].rank, echi_part_priority(ECHI_KIND_RING_SUM, p->piece[piece].part),
         4.0 * p->piece[piece].params, (struct about){SUM, p->piece[piece].shard, next_of(p, w), piece});
}

static void add_to_sum(struct play *p, int w, int piece) {
    struct worker *k = &p->worker[w];
    if (!k->sum[piece] || !k->ready[piece]) return;
    k->sum[piece] = k->ready[piece] = false;
    compute(p, k->rank, ECHI_TASK_ADD, adding(p, k->rank, p->piece[piece].params), (struct about){ADD, p->piece[piece].shard, w, piece});
}

static void ring_gradient(struct play *p, int w, int piece) {
    if (w == next_of(p, p->shard[p->piece[piece].shard].own)) return send_sum(p, w, piece);
    p->worker[w].ready[piece] = true;
    add_to_sum(p, w, piece);
}

static void hand_on(struct play *p, struct about a) {
    const int next = next_of(p, a.worker);
    if (!p->rings || a.worker == p->shard[a.shard].own || next == p->shard[a.shard].own) return;
    send(p, p->worker[a.worker].rank, p->worker[next].rank, echi_part_priority(ECHI_KIND_RING_WEIGHTS, p->piece[a.piece].part),
         4.0 * p->piece[a.piece].params, (struct about){HANDED, a.shard, next, a.piece});
}

/* The gradients of this layer and of those behind it are there: what is complete leaves. */
static void gradients(struct play *p, int w, int layer) {
    struct worker *k = &p->worker[w];
    for (; k->unpushed > 0 && p->piece[k->unpushed - 1].layer >= layer; k->unpushed--) {
        const struct piece *piece = &p->piece[k->unpushed - 1];
        if (p->rings && w != p->shard[piece->shard].own) ring_gradient(p, w, k->unpushed - 1);
        else send(p, k->rank, p->shard[piece->shard].owner, echi_part_priority(ECHI_KIND_PUSH, piece->part), 4.0 * piece->params,
             (struct about){PUSH, piece->shard, w, k->unpushed - 1});
    }
}

static void answered(struct play *p, int w) {
    const struct worker *k = &p->worker[w];
    const struct echi_times *t = &p->times[k->rank];
    const uint32_t n = p->plan->n[k->rank];
    const double backward = echi_times_trunk(t, n) - echi_times_forward(t, n);
    echi_cost_compute(p->cost, k->rank, &(struct echi_work){.seconds = k->factor * backward, .urgency = ECHI_TASK_BACKWARD,
                                                            .shape = &k->shape->backward,
                                                            .cookie = cookie((struct about){BACKWARD, 0, w, 0})});
}

/* The unit of a shape is the last of a layer whose gradients are told of. */
static void marked(struct play *p, struct about a, int unit) {
    if (a.what == STEP) gradients(p, a.worker, 2 * p->layers - 1 - unit);
    else if (a.what == BACKWARD) gradients(p, a.worker, p->layers - 1 - unit);
}

/* A task of a step is done; true: it was none in the middle of the forward. */
static bool to_the_end(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    if (k->until == 0) return true;
    k->gone = k->until;
    k->busy = false;
    go_on(p, w);
    return false;
}

static void step_done(struct play *p, int w) {
    gradients(p, w, 0);
    p->worker[w].busy = false;
    go_on(p, w);
}

/* ---- head: adds up the gradients of a round's rows, and applies them once ---- */

static void visit(struct play *p) {
    const int head = p->plan->head;
    uint32_t rows = 0;
    if (p->head_busy) return;
    if (p->rows_in == p->workers) {
        p->rows_in = 0;
        p->head_busy = true;
        return compute(p, head, ECHI_TASK_HEAD_APPLY, applying(p, head, p->head_params), (struct about){HEAD_APPLY, 0, 0, 0});
    }
    for (p->rows_visiting = 0; p->rows_visiting < p->rows_waiting && p->rows_visiting < ECHI_MERGE_STEPS; p->rows_visiting++) {
        const uint32_t n = p->plan->n[p->worker[p->rows[p->rows_visiting]].rank];
        if (rows > 0 && rows + n > ECHI_MERGE_ROWS) break;
        rows += n;
    }
    if (rows == 0) return;
    p->head_busy = true;
    compute(p, head, ECHI_TASK_HEAD, echi_times_head(&p->times[head], rows) + adding(p, head, p->head_params),
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

static void send_piece(struct play *p, struct shard *s, int w, int i) {
    struct piece *piece = &p->piece[i];
    piece->lacks[w] = false;
    piece->lacking--;
    s->lacking--;
    s->trickles += w != s->own;
    send(p, s->owner, p->worker[w].rank, echi_part_priority(ECHI_KIND_WEIGHTS, piece->part), 4.0 * piece->params,
         (struct about){WEIGHTS, piece->shard, w, i});
}

/* Does an owner send this worker weights itself? */
static bool answers(const struct play *p, const struct shard *s, int w) { return !p->rings || w == s->own || w == next_of(p, s->own); }
/* And so many. Gradients come from as many. */
static int answered_by(const struct play *p) { return p->rings ? 2 : p->workers; }

static void begin_answers(struct play *p, struct shard *s) {
    s->lacking = s->pieces * answered_by(p);
    s->applied = 0;
    s->next = s->pieces;
    s->turn = 0;
    while (s->turn < p->workers && p->worker[s->turn].rank <= s->owner) s->turn++;
    for (int i = 0; i < s->pieces; i++) {
        struct piece *piece = &p->piece[s->piece[i]];
        piece->applied = false;
        piece->lacking = (uint16_t)answered_by(p);
        for (int w = 0; w < p->workers; w++) piece->lacks[w] = answers(p, s, w);
    }
}

/* The first piece that anybody lacks, and who, from the worker on whose turn it is. */
static bool next_send(const struct play *p, struct shard *s, int *out_worker) {
    while (s->next < s->pieces && (!p->piece[s->piece[s->next]].applied || p->piece[s->piece[s->next]].lacking == 0)) s->next++;
    if (s->next == s->pieces) return false;
    const struct piece *piece = &p->piece[s->piece[s->next]];
    int w = s->turn < p->workers ? s->turn : 0;
    while (!piece->lacks[w]) w = w + 1 < p->workers ? w + 1 : 0;
    *out_worker = w;
    return true;
}

static void answer(struct play *p, struct shard *s) {
    for (int w; s->trickles <= AHEAD && next_send(p, s, &w); s->turn = w + 1) send_piece(p, s, w, s->piece[s->next]);
}

/* The first that forward needs of those that all pushes are here of. Of so many that they are added in several tasks, that takes no
 * longer. */
static void apply_piece(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    int i = 0;
    while (p->piece[s->piece[i]].come < answered_by(p)) i++;
    struct piece *piece = &p->piece[s->piece[i]];
    if (s->applied == s->pieces) begin_answers(p, s);
    piece->come = 0;
    s->busy = true;
    s->covered--;
    compute(p, s->owner, ECHI_TASK_APPLY, applying(p, s->owner, piece->params) + answered_by(p) * adding(p, s->owner, piece->params),
            (struct about){APPLY, k, 0, i});
}

/* After each event. No piece of a round is applied before all weights of the one before were sent. */
static void pump(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    answer(p, s);
    if (!s->busy && s->covered > 0 && (s->applied < s->pieces || s->lacking == 0)) apply_piece(p, k);
}

static void push_in(struct play *p, struct about a) {
    p->shard[a.shard].covered += ++p->piece[a.piece].come == answered_by(p);
    pump(p, a.shard);
}

static void sum_in(struct play *p, struct about a) {
    if (a.worker == p->shard[a.shard].own) return push_in(p, a);
    p->worker[a.worker].sum[a.piece] = true;
    add_to_sum(p, a.worker, a.piece);
}

/* A round is over here, and with the last shard everywhere. Its pushes' words to the coordinator leave together. */
static void end_round(struct play *p, int k) {
    send(p, p->shard[k].owner, 0, ECHI_PRIORITY_CONTROL, CONTROL * p->workers, (struct about){APPLIED, k, 0, 0});
    if (++p->ended < p->shards) return;
    p->ended = 0;
    p->rounds++;
    p->before = p->last;
    p->last = echi_cost_now(p->cost);
    if (p->rounds == WARM) p->first = p->last;
}

static void applied(struct play *p, struct about a) {
    struct shard *s = &p->shard[a.shard];
    struct piece *piece = &p->piece[s->piece[a.piece]];
    s->busy = false;
    piece->applied = true;
    if (a.piece < s->next) s->next = a.piece;
    if (s->own >= 0) send_piece(p, s, s->own, s->piece[a.piece]);
    if (++s->applied == s->pieces) end_round(p, a.shard);
    pump(p, a.shard);
}

static void weights_left(struct play *p, struct about a) {
    struct shard *s = &p->shard[a.shard];
    s->trickles -= a.worker != s->own;
    pump(p, a.shard);
}

/* ---- coordinator: its words cost time, and nobody waits for them, since rounds are dealt ahead ---- */

static void word_in(struct play *p) {
    if (++p->words < p->shards) return;
    p->words = 0;
    for (int w = 0; w < p->workers; w++) send(p, 0, p->worker[w].rank, ECHI_PRIORITY_CONTROL, CONTROL, (struct about){LEASE, 0, w, 0});
}

/* ---- the play ---- */

static void arrived(struct play *p, struct about a) {
    switch (a.what) {
    case PUSH: return push_in(p, a);
    case SUM: return sum_in(p, a);
    case HANDED:
    case WEIGHTS:
        hand_on(p, a);
        return weights_in(p, a.worker, a.piece);
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
        if (to_the_end(p, a.worker)) step_done(p, a.worker);
        return;
    case BACKWARD: return step_done(p, a.worker);
    case FORWARD:
        if (!to_the_end(p, a.worker)) return;
        return send(p, rank, p->plan->head, ECHI_PRIORITY_ROWS, (double)p->plan->n[rank] * p->load->row,
                    (struct about){ROWS, 0, a.worker, 0});
    case APPLY: return applied(p, a);
    case ADD: return send_sum(p, a.worker, a.piece);
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

/* A piece takes parts of its shard up to so many parameters, or one part: where they are few, each part is one. */
static void limit_pieces(const struct play *p, int end, int limit, double out_most[ECHI_SHARDS_MAX]) {
    const int each = limit / (p->workers * p->shards) > 1 ? limit / (p->workers * p->shards) : 1;
    int count[ECHI_SHARDS_MAX] = {0};
    for (int k = 0; k < p->shards; k++) out_most[k] = 0;
    for (int i = 0; i < end; i++) {
        count[p->plan->parts.part[i].shard]++;
        out_most[p->plan->parts.part[i].shard] += p->plan->parts.part[i].count;
    }
    for (int k = 0; k < p->shards; k++) out_most[k] = count[k] > each ? out_most[k] / each : 0;
}

static bool make_pieces(struct play *p, int limit) {
    const struct echi_parts *parts = &p->plan->parts;
    const int end = p->plan->separated ? echi_parts_before(parts, (int)p->load->layers) : parts->count;
    struct piece *open[ECHI_SHARDS_MAX] = {NULL};
    double most[ECHI_SHARDS_MAX];
    limit_pieces(p, end, limit, most);
    p->piece = zeroed(p, (size_t)end, sizeof *p->piece);
    if (!p->piece) return false;
    for (int i = 0; i < end; i++) {
        const struct echi_part *part = &parts->part[i];
        const int k = part->shard, layer = part->first < p->layers ? part->first : p->layers - 1;   /* `load` may know of fewer */
        if (!open[k] || (double)open[k]->params + part->count > most[k]) {
            open[k] = &p->piece[p->pieces++];
            *open[k] = (struct piece){.shard = (uint16_t)k, .layer = (uint16_t)layer, .part = (uint16_t)i};
            p->shard[k].pieces++;
        }
        open[k]->params += part->count;
    }
    for (int i = 0; i < p->pieces; i++) {
        p->piece[i].lacks = zeroed(p, (size_t)p->workers, sizeof *p->piece[i].lacks);
        if (!p->piece[i].lacks) return false;
    }
    return true;
}

/* It begins with first weights, which everybody lacks. */
static bool make_shard(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    int n = 0;
    s->owner = echi_plan_shard_owner(p->plan, 0, k);
    s->own = -1;
    for (int w = 0; w < p->workers; w++)
        if (p->worker[w].rank == s->owner) s->own = w;
    s->piece = zeroed(p, (size_t)s->pieces, sizeof *s->piece);
    if (!s->piece) return false;
    for (int i = 0; i < p->pieces; i++)
        if (p->piece[i].shard == k) s->piece[n++] = (uint16_t)i;
    begin_answers(p, s);
    for (int i = 0; i < s->pieces; i++) p->piece[s->piece[i]].applied = true;
    s->applied = s->pieces;
    s->next = 0;
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

static struct echi_varying step_of(const struct echi_plan *plan, const struct echi_times *times, int rank) {
    const struct echi_times *t = &times[rank];
    const uint32_t n = plan->n[rank];
    return echi_predict_varying(t, plan->separated ? echi_times_trunk(t, n) : echi_times_whole(t, n));
}

static bool set_up(struct play *p, int limit) {
    const struct echi_plan *plan = p->plan;
    for (int r = 0; r < plan->world; r++) p->workers += plan->group_of[r] != ECHI_NONE;
    p->shards = echi_plan_shards(plan);
    p->rings = echi_plan_rings(plan);
    p->layers = (int)(p->load->layers + (plan->separated ? 0 : p->load->head_layers));
    if (p->layers == 0) return false;
    for (int i = 0; i < plan->parts.count; i++) p->all += plan->parts.part[i].count;
    p->head_params = plan->separated ? p->load->head / 4.0 : 0;
    p->worker = zeroed(p, (size_t)p->workers, sizeof *p->worker);
    p->shard = zeroed(p, (size_t)p->shards, sizeof *p->shard);
    p->rows = zeroed(p, (size_t)p->workers, sizeof *p->rows);
    p->step = zeroed(p, (size_t)p->workers, sizeof *p->step);
    if (!p->worker || !p->shard || !p->rows || !p->step || !make_pieces(p, limit)) return false;
    for (int r = 0, w = 0; r < plan->world; r++) {
        if (plan->group_of[r] == ECHI_NONE) continue;
        p->worker[w].rank = r;
        p->step[w] = step_of(plan, p->times, r);
        p->worker[w].shape = shape_of(p, r);
        p->worker[w].here = zeroed(p, (size_t)p->pieces, sizeof *p->worker[w].here);
        p->worker[w].sum = zeroed(p, (size_t)p->pieces, sizeof *p->worker[w].sum);
        p->worker[w].ready = zeroed(p, (size_t)p->pieces, sizeof *p->worker[w].ready);
        if (!p->worker[w].shape || !p->worker[w].here || !p->worker[w].sum || !p->worker[w++].ready) return false;
    }
    for (int k = 0; k < p->shards; k++)
        if (!make_shard(p, k)) return false;
    return make_hosts(p);
}

/* Rounds that are counted, at most. */
static uint32_t rounds_of(const struct play *p, uint32_t steps, bool random) {
    const uint32_t messages = (uint32_t)(p->workers * (2 * p->pieces + 1) + p->shards), affordable = MESSAGES_MAX / messages;
    if (steps) return steps;
    if (!random) return COUNTED_EXACT;
    return affordable < RANDOM_LEAST ? RANDOM_LEAST : affordable > RANDOM_MOST ? RANDOM_MOST : affordable;
}

/* ---- chance: the longest step of a round as a control variate ----
 *
 * A stutter of one worker in 50 steps is rare in the rounds that a play can afford, and each makes its round several times as long: the
 * mean of 90 rounds of eight workers is off by a tenth. But how much longer the longest step of a round is than in the mean over all
 * that can happen is known, and a round is longer by about as much (by how much, is what the rounds themselves show). */

/* The round that has just ended. */
static void count_round(struct play *p) {
    const double round = (double)(p->last - p->before) * 1e-9;
    double longest = 0;
    for (int w = 0; w < p->workers; w++) {
        const int rank = p->worker[w].rank;
        const double takes = p->step[w].seconds * echi_predict_factor(&p->times[rank], rank, p->rounds - 1);
        longest = takes > longest ? takes : longest;
    }
    p->sum.round += round;
    p->sum.longest += longest;
    p->sum.both += round * longest;
    p->sum.square += longest * longest;
}

/* By how many seconds the mean of so many rounds is longer than that of all that can happen. */
static double luck(struct play *p, double rounds) {
    const double mean = p->sum.longest / rounds, variance = p->sum.square / rounds - mean * mean;
    const double covariance = p->sum.both / rounds - mean * p->sum.round / rounds;
    if (!(covariance > 0)) return 0;
    const double slope = covariance / variance < 1 ? covariance / variance : 1;
    return slope * (mean - echi_predict_longest(p->step, p->workers));
}

/* Was the last round like the one before it? */
static bool repeats(const struct play *p, int64_t one_before) {
    const double now = (double)(p->last - p->before), then = (double)(p->before - one_before);
    return p->rounds > WARM && (now > then ? now - then : then - now) <= ALIKE * now;
}

static bool play(struct play *p, uint32_t steps, struct echi_prediction *out) {
    struct echi_happening h;
    bool random = false, over = false;
    for (int w = 0; w < p->workers; w++) random = random || echi_predict_random(&p->times[p->worker[w].rank]);
    const uint32_t counted = rounds_of(p, steps, random);
    for (int k = 0; k < p->shards; k++) pump(p, k);
    while (!over && echi_cost_next(p->cost, &h)) {
        const int64_t before = p->before;
        const uint32_t rounds = p->rounds;
        happens(p, &h);
        if (p->rounds == rounds) continue;
        if (random && p->rounds > WARM) count_round(p);
        over = p->rounds == WARM + counted || (!steps && !random && repeats(p, before));
    }
    if (!over || echi_cost_failed(p->cost)) return false;
    const double rounds = p->rounds - WARM, mean = (double)(p->last - p->first) * 1e-9 / rounds;
    const double seconds = random ? mean - luck(p, rounds) : mean;
    *out = (struct echi_prediction){.rate = (double)p->plan->round / (seconds > 1e-9 ? seconds : 1e-9)};
    return true;
}

bool echi_predict_by_part(const struct echi_plan *plan) {
    const struct echi_policy *policy = echi_policy_of((enum echi_sync)plan->sync);
    return policy->rounds && !policy->local && plan->codec == ECHI_CODEC_DENSE && !plan->deterministic && plan->parts.count > 0 &&
           echi_plan_workers(plan, -1) > 1;
}

double echi_predict_rounds_most(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                                struct echi_predict_work *work) {
    struct echi_varying *step = (struct echi_varying *)(void *)work;
    int workers = 0;
    for (int r = 0; r < plan->world; r++)
        if (plan->group_of[r] != ECHI_NONE) step[workers++] = step_of(plan, times, r);
    return plan->round / echi_predict_longest(step, workers);
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
