/* SPDX-License-Identifier: Apache-2.0
 * Rounds by part, played on the cost engine: workers, owners of shards and a head as their roles act (lib/core/roles/owner_rounds.c,
 * worker.c, worker_ring.c), without messages' contents, leases, losses and arithmetic. */
#include "echi_predict_rounds.h"
#include "echi_play.h"

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
/* The longest of many steps varies less than that of a few: of more workers fewer rounds are enough, so many steps of all together. */
#define STEPS_LEAST (32 * RANDOM_LEAST)
#define ROUNDS_LEAST 6
#define NEVER 1e300
/* As in owner_rounds.c: messages of weights on their way beside the one that a link carries. */
#define AHEAD 1

/* As its owner sees a piece: how many pushes of it are here, and how many workers lack its weights. */
struct piece {
    uint16_t come, lacking;
    bool applied;
    bool *lacks;                          /* [workers] */
};
struct worker {
    int rank;
    bool busy;                            /* with a task, or it waits for the head or its shadow */
    bool at_shadow;                       /* all but that its shadow has the rows is done of this step */
    bool *here; int in, front;            /* pieces of the next weights; how many, and how many without a gap from the first on */
    int gone[ECHI_MICRO_MAX];             /* layers of this step's forward that are computed, by micro-batch (one, if it is not cut) */
    int micro, until;                     /* what the task in hand is of, and when it is done; 0: to the end */
    int micros, forwards, backwards;      /* of this step's micro-batches so many have gone forward, and backward */
    unsigned answered; bool waits;        /* which the head has answered, a bit each; and for the next of these all wait */
    bool *sum, *ready;                    /* in a ring: pieces whose sum is here, and those whose gradients are */
    int unpushed;                         /* of this step's gradients so many pieces have not left, the first ones */
    uint32_t steps;
    double factor;                        /* of this step's time */
    const struct echi_play_shape *shape;
};
struct shard {
    int owner, own;                       /* rank; its own node's worker, -1: none */
    int pieces; uint16_t *piece;
    bool busy;
    int covered, applied;                 /* pieces that all pushes are here of, and no task has; that are applied in this round */
    int told;                             /* in a ring: of this round the other workers' steps that it knows of */
    int lacking, trickles, turn, next;    /* weights to be sent of this round; those that have not left; to this worker; none before this */
};
struct play {
    struct echi_play b;
    bool rings;
    struct worker *worker;
    struct echi_varying *step;            /* of each worker */
    struct shard *shard;
    struct piece *piece;
    int ended, words;                     /* shards that have ended this round; their words at the coordinator */
    uint32_t rounds;
    int64_t first, before, last;          /* when the counted rounds began, and the last two rounds ended */
    struct { double round, longest, both, square; } sum;   /* over the counted rounds, where steps vary: see `luck` */
};

/* ---- worker ---- */

static void forward(struct play *p, int w, int micro, int until) {
    struct worker *k = &p->worker[w];
    const struct echi_times *t = &p->b.times[k->rank];
    const uint32_t n = echi_play_samples(&p->b, w, micro);
    const bool separated = p->b.plan->cut;
    if (micro == 0 && k->gone[0] == 0) k->factor = echi_predict_factor(t, k->rank, k->steps++);
    k->busy = true;
    k->micro = micro;
    k->until = until;
    echi_cost_compute(p->b.cost, k->rank,
                      &(struct echi_work){.seconds = k->factor * (separated ? echi_times_forward(t, n) : echi_times_whole(t, n)),
                                          .urgency = separated ? ECHI_TASK_FORWARD : ECHI_TASK_STEP,
                                          .shape = separated ? &k->shape->forward : &k->shape->step, .first = k->gone[micro], .end = until,
                                          .cookie = echi_play_cookie((struct echi_about){separated ? ECHI_PLAY_FORWARD : ECHI_PLAY_STEP,
                                                                                         micro, w, 0})});
}

/* Forward as far as there are weights for it, the first micro-batch that has not gone so far, and with --deterministic not before all are
 * there; with all of them to the end. */
static void go_on(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    int micro = 0;
    if (k->busy) return;
    if (k->in < p->b.pieces) {
        const int here = p->b.piece[k->front].first;
        while (micro < k->micros && k->gone[micro] == here) micro++;
        if (micro < k->micros && !p->b.plan->deterministic) forward(p, w, micro, here);
        return;
    }
    k->in = k->front = k->forwards = k->backwards = 0;
    k->answered = 0;
    k->unpushed = p->b.pieces;
    memset(k->here, 0, (size_t)p->b.pieces * sizeof k->here[0]);
    forward(p, w, 0, 0);
}

static void weights_in(struct play *p, int w, int piece) {
    struct worker *k = &p->worker[w];
    k->here[piece] = true;
    k->in++;
    while (k->front < p->b.pieces && k->here[k->front]) k->front++;
    go_on(p, w);
}

/* ---- ring: see worker_ring.c ---- */

static void send_sum(struct play *p, int w, int piece) {
    const int next = echi_play_next(&p->b, w);
    echi_play_send(&p->b, p->worker[w].rank, p->worker[next].rank, echi_part_priority(ECHI_KIND_RING_SUM, p->b.piece[piece].part),
                   p->b.piece[piece].gradients, (struct echi_about){ECHI_PLAY_SUM, p->b.piece[piece].shard, next, piece});
}

static void add_to_sum(struct play *p, int w, int piece) {
    struct worker *k = &p->worker[w];
    if (!k->sum[piece] || !k->ready[piece]) return;
    k->sum[piece] = k->ready[piece] = false;
    echi_play_compute(&p->b, k->rank, ECHI_TASK_ADD, echi_play_adding(&p->b, k->rank, p->b.piece[piece].params),
                      (struct echi_about){ECHI_PLAY_ADD, p->b.piece[piece].shard, w, piece});
}

static void ring_gradient(struct play *p, int w, int piece) {
    if (w == echi_play_next(&p->b, p->shard[p->b.piece[piece].shard].own)) return send_sum(p, w, piece);
    p->worker[w].ready[piece] = true;
    add_to_sum(p, w, piece);
}

static void hand_on(struct play *p, struct echi_about a) {
    const int next = echi_play_next(&p->b, a.worker);
    if (!p->rings || a.worker == p->shard[a.owner].own || next == p->shard[a.owner].own) return;
    echi_play_send(&p->b, p->worker[a.worker].rank, p->worker[next].rank,
                   echi_part_priority(ECHI_KIND_RING_WEIGHTS, p->b.piece[a.piece].part), p->b.piece[a.piece].weights,
                   (struct echi_about){ECHI_PLAY_HANDED, a.owner, next, a.piece});
}

/* The gradients of this layer and of those behind it are there: what is complete leaves. */
static void gradients(struct play *p, int w, int layer) {
    struct worker *k = &p->worker[w];
    for (; k->unpushed > 0 && p->b.piece[k->unpushed - 1].first >= layer; k->unpushed--) {
        const struct echi_play_piece *piece = &p->b.piece[k->unpushed - 1];
        if (p->rings && w != p->shard[piece->shard].own) ring_gradient(p, w, k->unpushed - 1);
        else echi_play_send(&p->b, k->rank, p->shard[piece->shard].owner, echi_part_priority(ECHI_KIND_PUSH, piece->part),
                            piece->gradients, (struct echi_about){ECHI_PLAY_PUSH, piece->shard, w, k->unpushed - 1});
    }
}

/* The next micro-batch, when the head's answer is here. Its gradients are added to those before them. */
static void backward(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    const struct echi_times *t = &p->b.times[k->rank];
    const uint32_t n = echi_play_samples(&p->b, w, k->backwards);
    const bool adds = k->backwards > 0 && !p->b.plan->deterministic;
    const double seconds = k->factor * (echi_times_trunk(t, n) - echi_times_forward(t, n));
    k->waits = !(k->answered >> k->backwards & 1);
    if (k->waits) return;
    echi_cost_compute(p->b.cost, k->rank,
                      &(struct echi_work){.seconds = seconds + (adds ? echi_play_adding(&p->b, k->rank, echi_play_pushed(&p->b)) : 0),
                                          .urgency = ECHI_TASK_BACKWARD, .shape = &k->shape->backward,
                                          .cookie = echi_play_cookie((struct echi_about){ECHI_PLAY_BACKWARD, k->backwards, w, 0})});
}

/* This one has gone forward; then those behind it go. */
static void rows_leave(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    k->gone[k->micro] = 0;
    echi_play_rows_leave(&p->b, w, k->forwards++);
    if (k->forwards < k->micros) forward(p, w, k->forwards, 0);
    else backward(p, w);
}

static void answered(struct play *p, struct echi_about a) {
    p->worker[a.worker].answered |= 1u << a.owner;
    if (p->worker[a.worker].waits) backward(p, a.worker);
}

/* The unit of a shape is the last of a layer whose gradients are told of. */
static void marked(struct play *p, struct echi_about a, int unit) {
    if (a.what == ECHI_PLAY_HEAD) return echi_play_head_marked(&p->b, a);
    if (a.what == ECHI_PLAY_STEP) gradients(p, a.worker, 2 * p->b.layers - 1 - unit);
    else if (a.what == ECHI_PLAY_BACKWARD && a.owner + 1 == p->worker[a.worker].micros) gradients(p, a.worker, p->b.layers - 1 - unit);
}

/* A task of a step is done; true: it was none in the middle of the forward. */
static bool to_the_end(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    if (k->until == 0) return true;
    k->gone[k->micro] = k->until;
    k->busy = false;
    go_on(p, w);
    return false;
}

/* In a ring each other owner is told of the step. Each is a message of its own here as well: of 16 hosts they take 1.5 % of a round. */
static void tell_step(struct play *p, int w) {
    for (int k = 0; p->rings && k < p->b.shards; k++)
        if (p->shard[k].own != w)
            echi_play_words(&p->b, p->worker[w].rank, p->shard[k].owner, ECHI_KIND_RING_LEASE, 1,
                            (struct echi_about){ECHI_PLAY_TOLD, k, w, 0});
}

static void step_done(struct play *p, int w) {
    gradients(p, w, 0);
    tell_step(p, w);
    p->worker[w].gone[0] = 0;
    p->worker[w].busy = false;
    go_on(p, w);
}

/* ---- owner of a shard: see owner_rounds.c, whose rules these are ---- */

static void send_piece(struct play *p, struct shard *s, int w, int i) {
    const struct echi_play_piece *piece = &p->b.piece[i];
    p->piece[i].lacks[w] = false;
    p->piece[i].lacking--;
    s->lacking--;
    s->trickles += w != s->own;
    echi_play_send(&p->b, s->owner, p->worker[w].rank, echi_part_priority(ECHI_KIND_WEIGHTS, piece->part), piece->weights,
                   (struct echi_about){ECHI_PLAY_WEIGHTS, piece->shard, w, i});
}

/* Does an owner send this worker weights itself? */
static bool answers(const struct play *p, const struct shard *s, int w) {
    return !p->rings || w == s->own || w == echi_play_next(&p->b, s->own);
}
/* And so many. Gradients come from as many. */
static int answered_by(const struct play *p) { return p->rings ? 2 : p->b.workers; }

static void begin_answers(struct play *p, struct shard *s) {
    s->lacking = s->pieces * answered_by(p);
    s->applied = 0;
    s->next = s->pieces;
    s->turn = 0;
    while (s->turn < p->b.workers && p->worker[s->turn].rank <= s->owner) s->turn++;
    for (int i = 0; i < s->pieces; i++) {
        struct piece *piece = &p->piece[s->piece[i]];
        piece->applied = false;
        piece->lacking = (uint16_t)answered_by(p);
        for (int w = 0; w < p->b.workers; w++) piece->lacks[w] = answers(p, s, w);
    }
}

/* The first piece that anybody lacks, and who, from the worker on whose turn it is. */
static bool next_send(const struct play *p, struct shard *s, int *out_worker) {
    while (s->next < s->pieces && (!p->piece[s->piece[s->next]].applied || p->piece[s->piece[s->next]].lacking == 0)) s->next++;
    if (s->next == s->pieces) return false;
    const struct piece *piece = &p->piece[s->piece[s->next]];
    int w = s->turn < p->b.workers ? s->turn : 0;
    while (!piece->lacks[w]) w = w + 1 < p->b.workers ? w + 1 : 0;
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
    if (s->applied == s->pieces) begin_answers(p, s);
    p->piece[s->piece[i]].come = 0;
    s->busy = true;
    s->covered--;
    const double params = p->b.piece[s->piece[i]].params;
    echi_play_compute(&p->b, s->owner, ECHI_TASK_APPLY,
                      echi_play_applying(&p->b, s->owner, params) + answered_by(p) * echi_play_adding(&p->b, s->owner, params),
                      (struct echi_about){ECHI_PLAY_APPLY, k, 0, i});
}

/* In a ring, whose owners all train, the last piece of a round waits until its owner knows of all steps: see echi_ring_holds_back. */
static bool holds_back(const struct play *p, const struct shard *s) {
    const int left = s->pieces - (s->applied < s->pieces ? s->applied : 0);
    return p->rings && left == 1 && s->told < p->b.workers - 1;
}

/* After each event. No piece of a round is applied before all weights of the one before were sent. */
static void pump(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    answer(p, s);
    if (!s->busy && s->covered > 0 && (s->applied < s->pieces || s->lacking == 0) && !holds_back(p, s)) apply_piece(p, k);
}

static void told(struct play *p, int k) {
    p->shard[k].told++;
    pump(p, k);
}

static void push_in(struct play *p, struct echi_about a) {
    p->shard[a.owner].covered += ++p->piece[a.piece].come == answered_by(p);
    pump(p, a.owner);
}

static void sum_in(struct play *p, struct echi_about a) {
    if (a.worker == p->shard[a.owner].own) return push_in(p, a);
    p->worker[a.worker].sum[a.piece] = true;
    add_to_sum(p, a.worker, a.piece);
}

/* A round is over here, and with the last shard everywhere. Its pushes' words to the coordinator leave together. */
static void end_round(struct play *p, int k) {
    p->shard[k].told = 0;
    echi_play_words(&p->b, p->shard[k].owner, 0, ECHI_KIND_APPLIED, p->b.workers, (struct echi_about){ECHI_PLAY_APPLIED, k, 0, 0});
    if (++p->ended < p->b.shards) return;
    p->ended = 0;
    p->rounds++;
    p->before = p->last;
    p->last = echi_cost_now(p->b.cost);
    if (p->rounds == WARM) p->first = p->last;
    if (p->b.line) echi_timeline_mark(p->b.line, p->last, 0);
}

static void applied(struct play *p, struct echi_about a) {
    struct shard *s = &p->shard[a.owner];
    struct piece *piece = &p->piece[s->piece[a.piece]];
    s->busy = false;
    piece->applied = true;
    if (a.piece < s->next) s->next = a.piece;
    if (s->own >= 0) send_piece(p, s, s->own, s->piece[a.piece]);
    if (++s->applied == s->pieces) end_round(p, a.owner);
    pump(p, a.owner);
}

static void weights_left(struct play *p, struct echi_about a) {
    struct shard *s = &p->shard[a.owner];
    s->trickles -= a.worker != s->own;
    pump(p, a.owner);
}

/* ---- coordinator: its words cost time, and nobody waits for them, since rounds are dealt ahead ---- */

static void word_in(struct play *p) {
    if (++p->words < p->b.shards) return;
    p->words = 0;
    for (int w = 0; w < p->b.workers; w++)
        echi_play_words(&p->b, 0, p->worker[w].rank, ECHI_KIND_LEASE, 1, (struct echi_about){ECHI_PLAY_LEASE, 0, w, 0});
}

/* ---- the play ---- */

static void told_shadowed(struct play *p, struct echi_about a) {
    echi_play_told_shadowed(&p->b, a);
    if (!p->worker[a.worker].at_shadow || !echi_play_shadowed(&p->b, a.worker, 0)) return;
    p->worker[a.worker].at_shadow = false;
    step_done(p, a.worker);
}

static void arrived(struct play *p, struct echi_about a) {
    switch (a.what) {
    case ECHI_PLAY_PUSH: return push_in(p, a);
    case ECHI_PLAY_SUM: return sum_in(p, a);
    case ECHI_PLAY_TOLD: return told(p, a.owner);
    case ECHI_PLAY_HANDED:
    case ECHI_PLAY_WEIGHTS:
        hand_on(p, a);
        return weights_in(p, a.worker, a.piece);
    case ECHI_PLAY_ROWS: return echi_play_rows_in(&p->b, a);
    case ECHI_PLAY_ANSWER: return answered(p, a);
    case ECHI_PLAY_APPLIED: return word_in(p);
    case ECHI_PLAY_SHADOWED: return told_shadowed(p, a);
    case ECHI_PLAY_HEAD_SUM: return echi_play_head_sum_in(&p->b, a);
    default: return;
    }
}

static void done(struct play *p, struct echi_about a) {
    switch (a.what) {
    case ECHI_PLAY_STEP:
        if (to_the_end(p, a.worker)) step_done(p, a.worker);
        return;
    case ECHI_PLAY_BACKWARD:
        if (++p->worker[a.worker].backwards < p->worker[a.worker].micros) return backward(p, a.worker);
        p->worker[a.worker].at_shadow = !echi_play_shadowed(&p->b, a.worker, 0);
        if (!p->worker[a.worker].at_shadow) step_done(p, a.worker);
        return;
    case ECHI_PLAY_FORWARD:
        if (to_the_end(p, a.worker)) rows_leave(p, a.worker);
        return;
    case ECHI_PLAY_APPLY: return applied(p, a);
    case ECHI_PLAY_ADD: return send_sum(p, a.worker, a.piece);
    case ECHI_PLAY_HEAD:
    case ECHI_PLAY_HEAD_APPLY: return echi_play_head_done(&p->b, a);
    default: return;
    }
}

static void happens(struct play *p, const struct echi_happening *h) {
    const struct echi_about a = echi_play_about(h->cookie);
    switch (h->type) {
    case ECHI_HAPPENS_MARK: return marked(p, a, h->unit);
    case ECHI_HAPPENS_DONE: return done(p, a);
    case ECHI_HAPPENS_ARRIVED: return arrived(p, a);
    case ECHI_HAPPENS_SENT:
        if (a.what == ECHI_PLAY_WEIGHTS) weights_left(p, a);
        else if (a.what == ECHI_PLAY_ANSWER) echi_play_answer_left(&p->b, a.worker);
        else if (a.what == ECHI_PLAY_HEAD_SUM) echi_play_head_sum_left(&p->b, a);
        return;
    default: return;
    }
}

/* ---- what is played ---- */

/* It begins with first weights, which everybody lacks. */
static bool make_shard(struct play *p, int k) {
    struct shard *s = &p->shard[k];
    int n = 0;
    s->owner = echi_plan_shard_owner(p->b.plan, 0, k);
    s->own = -1;
    for (int w = 0; w < p->b.workers; w++)
        if (p->worker[w].rank == s->owner) s->own = w;
    s->piece = echi_play_zeroed(&p->b, (size_t)s->pieces, sizeof *s->piece);
    if (!s->piece) return false;
    for (int i = 0; i < p->b.pieces; i++)
        if (p->b.piece[i].shard == k) s->piece[n++] = (uint16_t)i;
    begin_answers(p, s);
    for (int i = 0; i < s->pieces; i++) p->piece[s->piece[i]].applied = true;
    s->applied = s->pieces;
    s->next = 0;
    return true;
}

static struct echi_varying step_of(const struct echi_plan *plan, const struct echi_times *times, int rank) {
    const struct echi_times *t = &times[rank];
    const uint32_t n = plan->n[rank];
    return echi_predict_varying(t, plan->cut ? echi_times_trunk(t, n) : echi_times_whole(t, n));
}

static bool make_worker(struct play *p, int w) {
    struct worker *k = &p->worker[w];
    const size_t pieces = (size_t)p->b.pieces;
    k->rank = p->b.rank[w];
    k->shape = p->b.of[w];
    k->micros = echi_play_micros(&p->b, w);
    k->here = echi_play_zeroed(&p->b, pieces, sizeof *k->here);
    k->sum = echi_play_zeroed(&p->b, pieces, sizeof *k->sum);
    k->ready = echi_play_zeroed(&p->b, pieces, sizeof *k->ready);
    p->step[w] = step_of(p->b.plan, p->b.times, k->rank);
    return k->here && k->sum && k->ready;
}

static bool set_up(struct play *p, int limit) {
    p->b.shards = echi_plan_shards(p->b.plan);
    p->rings = echi_plan_rings(p->b.plan);
    p->b.cuts = p->b.plan->micro_batches > 0;
    if (!echi_play_set_up(&p->b, limit) || !echi_play_head_set_up(&p->b)) return false;
    const size_t workers = (size_t)p->b.workers, pieces = (size_t)p->b.pieces;
    p->worker = echi_play_zeroed(&p->b, workers, sizeof *p->worker);
    p->shard = echi_play_zeroed(&p->b, (size_t)p->b.shards, sizeof *p->shard);
    p->piece = echi_play_zeroed(&p->b, pieces, sizeof *p->piece);
    p->step = echi_play_zeroed(&p->b, workers, sizeof *p->step);
    if (!p->worker || !p->shard || !p->piece || !p->step) return false;
    for (int i = 0; i < p->b.pieces; i++) {
        p->shard[p->b.piece[i].shard].pieces++;
        p->piece[i].lacks = echi_play_zeroed(&p->b, workers, sizeof *p->piece[i].lacks);
        if (!p->piece[i].lacks) return false;
    }
    for (int w = 0; w < p->b.workers; w++)
        if (!make_worker(p, w)) return false;
    for (int k = 0; k < p->b.shards; k++)
        if (!make_shard(p, k)) return false;
    return true;
}

/* Rounds that are counted, at most. */
static uint32_t rounds_of(const struct play *p, uint32_t steps, bool random) {
    const int words = p->b.shards + p->b.workers * (p->rings ? p->b.shards : 1);
    const uint32_t affordable = MESSAGES_MAX / (uint32_t)(p->b.workers * 2 * p->b.pieces + words);
    if (steps) return steps;
    if (!random) return COUNTED_EXACT;
    bool quota = false;   /* short rounds: as many as fill several periods */
    for (int w = 0; w < p->b.workers; w++) quota = quota || p->b.times[p->worker[w].rank].quota > 0;
    const uint32_t most = quota ? affordable : RANDOM_MOST, enough = STEPS_LEAST / (uint32_t)p->b.workers;
    const uint32_t least = enough > RANDOM_LEAST ? RANDOM_LEAST : enough > ROUNDS_LEAST ? enough : ROUNDS_LEAST;
    return affordable < least ? least : affordable > most ? most : affordable;
}

/* ---- chance: the longest step of a round as a control variate ----
 *
 * A stutter of one worker in 50 steps is rare in the rounds that a play can afford, and each makes its round several times as long: the
 * mean of 90 rounds of eight workers is off by a tenth. But how much longer the longest step of a round is than in the mean over all
 * that can happen is known, and a round is longer by about as much (by how much, is what the rounds themselves show). */

/* Seconds of the longest step of a round, from 0 on. */
static double longest_of(const struct play *p, uint32_t round) {
    double longest = 0;
    for (int w = 0; w < p->b.workers; w++) {
        const int rank = p->worker[w].rank;
        const double takes = p->step[w].seconds * echi_predict_factor(&p->b.times[rank], rank, round);
        longest = takes > longest ? takes : longest;
    }
    return longest;
}

/* The round that has just ended. */
static void count_round(struct play *p) {
    const double round = (double)(p->last - p->before) * 1e-9, longest = longest_of(p, p->rounds - 1);
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
    return slope * (mean - echi_predict_longest(p->step, p->b.workers));
}

static bool is_random(const struct play *p) {
    bool random = false;
    for (int w = 0; w < p->b.workers; w++) random = random || echi_predict_random(&p->b.times[p->worker[w].rank]);
    return random;
}

/* Virtual ns that are taken off so many counted rounds for luck, at most: by how much the longest steps of these rounds, which are known
 * before they are played, are longer than in the mean. */
static double luck_most(struct play *p, uint32_t counted) {
    double longest = 0;
    for (uint32_t k = 0; k < counted; k++) longest += longest_of(p, WARM + k);
    const double most = longest - counted * echi_predict_longest(p->step, p->b.workers);
    return most > 0 ? most * 1e9 : 0;
}

/* Virtual ns that so many counted rounds take at most that make `floor` samples a second. */
static double latest_of(struct play *p, uint32_t counted, double floor) {
    return counted * (double)p->b.plan->round / floor * 1e9 + luck_most(p, counted);
}

/* Was the last round like the one before it? */
static bool repeats(const struct play *p, int64_t one_before) {
    const double now = (double)(p->last - p->before), then = (double)(p->before - one_before);
    return p->rounds > WARM && (now > then ? now - then : then - now) <= ALIKE * now;
}

static bool play(struct play *p, uint32_t steps, double floor, struct echi_predict_work *work, struct echi_prediction *out) {
    struct echi_happening h;
    bool over = false;
    const bool random = is_random(p);
    const uint32_t counted = rounds_of(p, steps, random);
    const double latest = random && floor > 0 ? latest_of(p, counted, floor) : NEVER;
    const struct echi_round_links links = latest < NEVER ? echi_play_round_links(&p->b) : (struct echi_round_links){0, 0};
    double least = echi_play_rounds_least(links, counted - 1);   /* of the rounds behind the one that is played */
    *out = (struct echi_prediction){0};
    if (echi_play_rounds_least(links, counted) > latest) return true;
    for (int k = 0; k < p->b.shards; k++) pump(p, k);
    while (!over && echi_cost_next(p->b.cost, &h)) {
        const int64_t before = p->before;
        const uint32_t rounds = p->rounds;
        happens(p, &h);
        if (p->first > 0 && (double)(echi_cost_now(p->b.cost) - p->first) + least > latest) return true;
        if (p->rounds == rounds) continue;
        if (p->rounds == WARM) echi_play_traffic_from(&p->b, work);
        if (p->rounds > WARM && p->rounds < WARM + counted) least = echi_play_rounds_least(links, WARM + counted - p->rounds - 1);
        if (random && p->rounds > WARM) count_round(p);
        over = p->rounds == WARM + counted || (!steps && !random && repeats(p, before));
    }
    if (!over || echi_cost_failed(p->b.cost)) return false;
    const double rounds = p->rounds - WARM, mean = (double)(p->last - p->first) * 1e-9 / rounds;
    const double seconds = random ? mean - luck(p, rounds) : mean;
    *out = (struct echi_prediction){.rate = (double)p->b.plan->round / (seconds > 1e-9 ? seconds : 1e-9)};
    echi_play_traffic(&p->b, rounds * seconds, work);   /* as many a second as there are rounds in it */
    echi_play_end(&p->b, p->first, 0);
    if (p->b.line) echi_path_scale(&p->b.line->path, seconds);
    return true;
}

bool echi_predict_by_part(const struct echi_plan *plan) {
    const struct echi_policy *policy = echi_policy_of((enum echi_sync)plan->sync);
    return policy->rounds && !policy->local && plan->codec == ECHI_CODEC_DENSE && plan->parts.count > 0 &&
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

double echi_predict_rounds_by_links(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                                    const struct echi_load *load, struct echi_predict_work *work) {
    struct play *p = (struct play *)(void *)work;
    *p = (struct play){.b = echi_play_of(plan, times, load, work, sizeof *p)};
    if (!echi_predict_by_part(plan) || !set_up(p, PUSHES_MAX)) return NEVER;
    const bool random = is_random(p);
    const uint32_t counted = random ? rounds_of(p, 0, true) : 1;   /* else it may end with the first */
    const double least = echi_play_rounds_least(echi_play_round_links(&p->b), counted) - (random ? luck_most(p, counted) : 0);
    return least > 0 ? counted * (double)plan->round / least * 1e9 : NEVER;
}

bool echi_predict_rounds(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                         uint32_t steps, double floor, struct echi_predict_work *work, struct echi_timeline *line,
                         struct echi_prediction *out) {
    struct play *p = (struct play *)(void *)work;
    for (int limit = PUSHES_MAX; limit > 0; limit /= 8) {
        *p = (struct play){.b = echi_play_of(plan, times, load, work, sizeof *p)};
        echi_play_watch(&p->b, line);
        if (set_up(p, limit) && play(p, steps, floor, work, out)) return true;
    }
    return false;
}
