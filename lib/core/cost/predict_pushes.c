/* SPDX-License-Identifier: Apache-2.0
 * Whole pushes, played on the cost engine: workers and the coordinator as their roles act (lib/core/roles/worker.c, ledger.c), without
 * messages' contents, losses and arithmetic; owners and the head are in predict_owner.c and predict_head.c. A push is applied by itself,
 * or, where rounds are waited for, added to its round (rounds whose parts are applied one by one are played by predict_rounds.c). */
#include "echi_predict_pushes.h"
#include "echi_predict_rounds.h"
#include "echi_ratio.h"

/* Pieces of one push, and of all that are played. */
#define PIECES_MAX 8
#define PIECES_IN_ALL 8192
/* Steps a worker when nobody says how many: what repeats exactly needs few; what is random is played until the noise of a
 * candidate is about a percent, but no longer than a coordinator may be busy for (some ms a candidate). */
#define STEPS_EXACT 32
#define STEPS_RANDOM 256
#define STEPS_LEAST 8
#define STEPS_IN_ALL 4096
/* A worker counts from when it has done so many steps, and all together a quarter of theirs; it does so many more at least. */
#define FIRST_STEPS 3
#define COUNTED_LEAST 3
/* ... unless it is so slow that the others would do so many times what was asked for. */
#define PATIENCE 4
/* Under a codec what is sent is what is sent from this epoch on, when ratios have come to where they stay. */
#define LATE 5

static int owner_of(const struct echi_pushes *p, int w) { return p->group[p->worker[w].group].owner; }

const struct echi_coding *echi_pushes_gradients(const struct echi_pushes *p, int w) {
    return owner_of(p, w) == p->b.rank[w] ? &p->own : &p->gradients[p->worker[w].group];
}
const struct echi_coding *echi_pushes_weights(const struct echi_pushes *p, int w) {
    return owner_of(p, w) == p->b.rank[w] ? &p->own : &p->states;
}
double echi_pushes_updates(const struct echi_pushes *p, int rank, double updates) {
    return updates * echi_play_applying(&p->b, rank, p->pushed);
}
uint32_t echi_pushes_samples(const struct echi_pushes *p, int w) {
    const struct echi_plan *plan = p->b.plan;
    return p->policy->local ? plan->n[p->b.rank[w]] * plan->inner[p->b.rank[w]] : plan->n[p->b.rank[w]];
}

/* ---- worker ---- */

static struct echi_push_flight *oldest(struct echi_push_worker *k, int flights, enum echi_push_phase phase) {
    struct echi_push_flight *found = NULL;
    for (int i = 0; i < flights; i++)
        if (k->flight[i].phase == phase && (!found || k->flight[i].since < found->since)) found = &k->flight[i];
    return found;
}

static void enter(struct echi_push_worker *k, struct echi_push_flight *s, enum echi_push_phase phase) {
    s->phase = phase;
    s->since = k->turns++;
}

/* Gradients are coded by the task that makes them. */
static void compute(struct echi_pushes *p, int w, const struct echi_push_flight *s, enum echi_play_what what, double seconds) {
    const struct echi_play_shape *shape = p->b.of[w];
    const bool forward = what == ECHI_PLAY_FORWARD, backward = what == ECHI_PLAY_BACKWARD;
    const double coding = forward ? 0 : echi_pushes_updates(p, p->b.rank[w], echi_pushes_gradients(p, w)->write);
    echi_cost_compute(p->b.cost, p->b.rank[w], &(struct echi_work){
        .seconds = s->factor * seconds + coding, .urgency = forward ? ECHI_TASK_FORWARD : backward ? ECHI_TASK_BACKWARD : ECHI_TASK_STEP,
        .shape = forward ? &shape->forward : backward ? &shape->backward : &shape->step,
        .cookie = echi_play_cookie((struct echi_about){what, (int)(s - p->worker[w].flight), w, 0})});
}

/* One flight at a time goes forward, and one backward. */
static void begin(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    const int rank = p->b.rank[w], flights = p->b.plan->flights;
    const struct echi_times *t = &p->b.times[rank];
    const uint32_t n = p->b.plan->n[rank];
    const bool separated = p->b.plan->cut;
    struct echi_push_flight *s = oldest(k, flights, ECHI_PUSH_ANSWERED);
    if (s && !oldest(k, flights, ECHI_PUSH_BACKWARD) && !oldest(k, flights, ECHI_PUSH_AT_SHADOW)) {
        enter(k, s, ECHI_PUSH_BACKWARD);
        compute(p, w, s, ECHI_PLAY_BACKWARD, echi_times_trunk(t, n) - echi_times_forward(t, n));
    }
    s = oldest(k, flights, ECHI_PUSH_IDLE);
    if (!s || s->leaving > 0 || (!p->policy->rounds && k->leases == 0) || oldest(k, flights, ECHI_PUSH_FORWARD)) return;
    k->leases--;
    s->factor = echi_predict_factor(t, rank, k->begun++);
    s->unpushed = p->b.pieces;
    enter(k, s, separated ? ECHI_PUSH_FORWARD : ECHI_PUSH_BACKWARD);
    compute(p, w, s, separated ? ECHI_PLAY_FORWARD : ECHI_PLAY_STEP, separated ? echi_times_forward(t, n) : echi_times_whole(t, n));
}

static double gradients_travel(const struct echi_pushes *p, int w, const struct echi_play_piece *piece) {
    if (!p->coded) return piece->gradients;
    return echi_play_bytes(&p->b, ECHI_KIND_PUSH, 4 * piece->params * echi_pushes_gradients(p, w)->part);
}

void echi_pushes_push(struct echi_pushes *p, int w, int flight, int layer) {
    struct echi_push_flight *s = &p->worker[w].flight[flight];
    for (; s->unpushed > 0 && p->b.piece[s->unpushed - 1].first >= layer; s->unpushed--, s->leaving++)
        echi_play_send(&p->b, p->b.rank[w], owner_of(p, w), echi_part_priority(ECHI_KIND_PUSH, 0),
                       gradients_travel(p, w, &p->b.piece[s->unpushed - 1]),
                       (struct echi_about){ECHI_PLAY_PUSH, flight, w, s->unpushed - 1});
}

/* The unit of a shape is the last of a layer whose gradients are told of. */
static void marked(struct echi_pushes *p, struct echi_about a, int unit) {
    const int layer = (a.what == ECHI_PLAY_STEP ? 2 : 1) * p->b.layers - 1 - unit;
    if (!p->policy->local) echi_pushes_push(p, a.worker, a.owner, layer);
}

static void rows_leave(struct echi_pushes *p, int w, int flight) {
    struct echi_push_worker *k = &p->worker[w];
    enter(k, &k->flight[flight], ECHI_PUSH_AT_HEAD);
    k->flight[flight].leaving += echi_play_rows_leave(&p->b, w, flight);
    begin(p, w);
}

static void step_done(struct echi_pushes *p, int w, int flight) {
    struct echi_push_worker *k = &p->worker[w];
    k->flight[flight].more = k->leases > 0;
    for (int i = 0; i < p->b.plan->flights; i++)
        if (i != flight && k->flight[i].phase >= ECHI_PUSH_FORWARD) k->flight[flight].more = true;
    echi_pushes_push(p, w, flight, 0);
    enter(k, &k->flight[flight], ECHI_PUSH_AWAY);
    begin(p, w);
}

/* The push ends when the shadow has its rows. */
static void backward_done(struct echi_pushes *p, int w, int flight) {
    struct echi_push_worker *k = &p->worker[w];
    if (echi_play_shadowed(&p->b, w, flight)) step_done(p, w, flight);
    else enter(k, &k->flight[flight], ECHI_PUSH_AT_SHADOW);
}

static void told_shadowed(struct echi_pushes *p, struct echi_about a) {
    echi_play_told_shadowed(&p->b, a);
    if (p->worker[a.worker].flight[a.owner].phase == ECHI_PUSH_AT_SHADOW) step_done(p, a.worker, a.owner);
}

static void left(struct echi_pushes *p, int w, int flight) {
    p->worker[w].flight[flight].leaving--;
    if (!p->policy->local) begin(p, w);
}

/* Weights are here, and, under a codec, read. They answer the push that has waited the longest. */
static void take_weights(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    const double samples = k->coming[0];
    k->coming[0] = k->coming[1];
    k->n_coming--;
    if (p->policy->local) return echi_local_weights(p, w, samples);
    struct echi_push_flight *s = oldest(k, p->b.plan->flights, ECHI_PUSH_AWAY);
    s->seen = samples;
    enter(k, s, ECHI_PUSH_IDLE);
    begin(p, w);
}

static void decode(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    if (k->decoding || k->undecoded == 0) return;
    k->undecoded--;
    k->decoding = true;
    echi_play_compute(&p->b, p->b.rank[w], ECHI_TASK_DECODE, echi_pushes_updates(p, p->b.rank[w], echi_pushes_weights(p, w)->read),
                      (struct echi_about){ECHI_PLAY_DECODE, 0, w, 0});
}

static void decoded(struct echi_pushes *p, int w) {
    p->worker[w].decoding = false;
    take_weights(p, w);
    decode(p, w);
}

static void weights_in(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    if (++k->weights_in < p->answer_pieces) return;
    k->weights_in = 0;
    if (!p->coded) return take_weights(p, w);
    k->undecoded++;
    decode(p, w);
}

/* ---- coordinator ---- */

static void deal(struct echi_pushes *p, int w) {
    p->worker[w].dealt++;
    echi_play_words(&p->b, 0, p->b.rank[w], ECHI_KIND_LEASE, 1, (struct echi_about){ECHI_PLAY_LEASE, 0, w, 0});
}

/* A push is in: its worker is dealt another lease, and one more ahead if it had none left (ledger.c, deal_further_ahead). Rounds are dealt
 * ahead: nobody waits for these words. */
static void word_in(struct echi_pushes *p, struct echi_about a) {
    struct echi_push_worker *k = &p->worker[a.worker];
    if (p->policy->rounds) {
        for (int w = 0; w < p->b.workers; w++) deal(p, w);
        return;
    }
    k->in++;
    if (!a.owner && k->in >= k->longer && k->ahead < ECHI_LEASES_AHEAD) {
        k->ahead++;
        k->longer = k->dealt + 1;
        deal(p, a.worker);
    }
    deal(p, a.worker);
}

static void lease_in(struct echi_pushes *p, int w) {
    p->worker[w].leases++;
    if (!p->policy->rounds) begin(p, w);
}

/* ---- the play ---- */

static void done(struct echi_pushes *p, struct echi_about a) {
    switch (a.what) {
    case ECHI_PLAY_STEP:
        if (p->policy->local) return echi_local_done(p, a.worker, a.what);
        return step_done(p, a.worker, a.owner);
    case ECHI_PLAY_BACKWARD: return backward_done(p, a.worker, a.owner);
    case ECHI_PLAY_FORWARD: return rows_leave(p, a.worker, a.owner);
    case ECHI_PLAY_LOCAL_APPLY:
    case ECHI_PLAY_DELTA:
    case ECHI_PLAY_JOIN: return echi_local_done(p, a.worker, a.what);
    case ECHI_PLAY_DECODE: return decoded(p, a.worker);
    case ECHI_PLAY_HEAD:
    case ECHI_PLAY_HEAD_APPLY: return echi_play_head_done(&p->b, a);
    default: return echi_owner_computed(p, a);
    }
}

static void arrived(struct echi_pushes *p, struct echi_about a) {
    struct echi_push_worker *k = &p->worker[a.worker];
    switch (a.what) {
    case ECHI_PLAY_PUSH: return echi_owner_piece_in(p, a.worker, a.owner);
    case ECHI_PLAY_WEIGHTS: return weights_in(p, a.worker);
    case ECHI_PLAY_ROWS: return echi_play_rows_in(&p->b, a);
    case ECHI_PLAY_ANSWER:
        enter(k, &k->flight[a.owner], ECHI_PUSH_ANSWERED);
        return begin(p, a.worker);
    case ECHI_PLAY_APPLIED: return word_in(p, a);
    case ECHI_PLAY_SHADOWED: return told_shadowed(p, a);
    case ECHI_PLAY_HEAD_SUM: return echi_play_head_sum_in(&p->b, a);
    case ECHI_PLAY_LEASE: return lease_in(p, a.worker);
    case ECHI_PLAY_STATE: return echi_owner_state_in(p, a.owner, a.worker);
    case ECHI_PLAY_ACK: return echi_owner_acknowledged(p, a.owner, a.worker);
    default: return;
    }
}

static void sent(struct echi_pushes *p, struct echi_about a) {
    switch (a.what) {
    case ECHI_PLAY_PUSH:
    case ECHI_PLAY_ROWS: return left(p, a.worker, a.owner);
    case ECHI_PLAY_ANSWER: return echi_play_answer_left(&p->b, a.worker);
    case ECHI_PLAY_HEAD_SUM: return echi_play_head_sum_left(&p->b, a);
    case ECHI_PLAY_WEIGHTS: return echi_owner_weights_left(p, a.worker);
    case ECHI_PLAY_STATE: return echi_owner_state_left(p, a.owner);
    default: return;
    }
}

static void happens(struct echi_pushes *p, const struct echi_happening *h) {
    const struct echi_about a = echi_play_about(h->cookie);
    switch (h->type) {
    case ECHI_HAPPENS_MARK:
        if (a.what == ECHI_PLAY_HEAD) return echi_play_head_marked(&p->b, a);
        return marked(p, a, h->unit);
    case ECHI_HAPPENS_DONE: return done(p, a);
    case ECHI_HAPPENS_ARRIVED: return arrived(p, a);
    case ECHI_HAPPENS_SENT: return sent(p, a);
    default: return;
    }
}

void echi_pushes_count(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    k->applied++;
    p->pushes++;
    if (p->b.line) echi_timeline_mark(p->b.line, echi_cost_now(p->b.cost), p->b.rank[w]);
    if (p->pushes <= p->warm || k->applied <= FIRST_STEPS) return;
    if (k->first == 0) k->first = echi_cost_now(p->b.cost);
    else k->counted++;
    k->last = echi_cost_now(p->b.cost);
}

/* ---- what is played ---- */

static struct echi_coding coding_of(uint64_t count, uint32_t ratio) {
    return (struct echi_coding){(double)echi_coded_bytes(count, ratio) / (4.0 * (double)count), echi_write_cost(ratio),
                                echi_read_cost(ratio)};
}

/* What a codec makes of what travels, a complete state in 32 counted in. */
static void set_up_codec(struct echi_pushes *p) {
    const struct echi_plan *plan = p->b.plan;
    const uint64_t count = (uint64_t)p->pushed;
    p->coded = plan->codec != ECHI_CODEC_DENSE && count > 0;
    const struct echi_coding all = p->coded ? coding_of(count, ECHI_RATIO_ONE) : (struct echi_coding){1, 0, 0};
    p->own = p->states = all;
    for (int g = 0; g < plan->n_groups; g++) p->gradients[g] = p->coded ? coding_of(count, echi_push_ratio(plan, g, LATE)) : all;
    if (!p->coded) return;
    const struct echi_coding some = coding_of(count, plan->state_ratio);
    p->states = some;
    p->states.part += (all.part - some.part) / ECHI_WHOLE_EVERY;
}

static uint32_t workers_of(const struct echi_plan *plan) {
    uint32_t workers = 0;
    for (int r = 0; r < plan->world; r++) workers += plan->group_of[r] != ECHI_NONE;
    return workers;
}

/* Under `local` rounds of several steps. */
static uint32_t steps_of(const struct echi_plan *plan, const struct echi_times *times) {
    bool random = false;
    uint32_t each = 1;
    for (int r = 0; r < plan->world; r++) {
        if (plan->group_of[r] == ECHI_NONE) continue;
        random = random || echi_predict_random(&times[r]);
        if (plan->inner[r] > each) each = plan->inner[r];
    }
    const uint32_t most = STEPS_IN_ALL / workers_of(plan), wanted = (most < STEPS_RANDOM ? most : STEPS_RANDOM) / each;
    return !random ? STEPS_EXACT : wanted > STEPS_LEAST ? wanted : STEPS_LEAST;
}

/* So that the pieces of all pushes are affordable: as the pieces of one push of all workers. */
static int limit_of(const struct echi_plan *plan, uint32_t steps) {
    const uint32_t workers = workers_of(plan), each = PIECES_IN_ALL / (steps * workers);
    return (int)(workers * (each < 1 ? 1 : each > PIECES_MAX ? PIECES_MAX : each));
}

static bool set_up(struct echi_pushes *p, int limit) {
    p->policy = echi_policy_of((enum echi_sync)p->b.plan->sync);
    if (!echi_play_set_up(&p->b, limit) || !echi_play_head_set_up(&p->b)) return false;
    p->pushed = echi_play_pushed(&p->b);
    p->worker = echi_play_zeroed(&p->b, (size_t)p->b.workers, sizeof *p->worker);
    if (!p->worker) return false;
    set_up_codec(p);
    p->answer_pieces = p->coded ? 1 : p->b.pieces;
    for (int w = 0; w < p->b.workers; w++) {
        struct echi_push_worker *k = &p->worker[w];
        k->group = p->b.plan->group_of[p->b.rank[w]];
        k->ahead = 1;
        k->leases = p->b.plan->flights + k->ahead;
        k->dealt = (uint32_t)k->leases;
    }
    return echi_owners_set_up(p);
}

static bool enough(const struct echi_pushes *p, uint64_t wanted) {
    if (p->pushes < wanted) return false;
    if (p->pushes >= PATIENCE * wanted) return true;
    for (int w = 0; w < p->b.workers; w++)
        if (p->worker[w].counted < COUNTED_LEAST) return false;
    return true;
}

/* Worker by worker, each from one of its pushes to another: what repeats exactly is then counted exactly. */
static void result(const struct echi_pushes *p, struct echi_prediction *out) {
    const double round = p->b.plan->round;
    for (int w = 0; w < p->b.workers; w++) {
        const struct echi_push_worker *k = &p->worker[w];
        const double samples = echi_pushes_samples(p, w), since = (double)(k->last - k->first), all = (double)echi_cost_now(p->b.cost);
        if (k->counted > 0) out->rate += samples * k->counted / (since > 1 ? since : 1) * 1e9;
        else if (k->applied > 0) out->rate += samples * k->applied / all * 1e9;
    }
    for (int g = 0; g < p->b.plan->n_groups; g++) {
        const struct echi_push_group *a = &p->group[g];
        const double behind = a->behind_count ? a->behind / (double)a->behind_count / round : 0;
        if (behind > out->oldest) out->oldest = behind;
    }
    out->staleness = p->stale_count ? p->stale / (double)p->stale_count / round : 0;
    out->behind = p->stale_count ? p->behind / (double)p->stale_count / round : 0;
}

void echi_predict_pushes(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                         uint32_t steps, struct echi_predict_work *work, struct echi_timeline *line, struct echi_prediction *out) {
    struct echi_pushes *p = (struct echi_pushes *)(void *)work;
    struct echi_happening h;
    if (steps == 0) steps = steps_of(plan, times);
    const uint64_t wanted = (uint64_t)steps * workers_of(plan);
    *p = (struct echi_pushes){.b = echi_play_of(plan, times, load, work, sizeof *p), .warm = wanted / 4};
    *out = (struct echi_prediction){0};
    echi_play_watch(&p->b, line);
    if (set_up(p, limit_of(plan, steps))) {
        for (int g = 0; g < plan->n_groups; g++) echi_owner_goes_on(p, g);
        while (!enough(p, wanted) && echi_cost_next(p->b.cost, &h)) {
            happens(p, &h);
            if (p->pushes >= p->warm && p->b.from == 0) echi_play_traffic_from(&p->b, work);
        }
        result(p, out);
        echi_play_traffic(&p->b, 1e-9 * (double)(echi_cost_now(p->b.cost) - p->b.from), work);
        echi_play_end(&p->b, p->b.from, p->policy->rounds ? p->b.rank[0] : -1);
    }
    if (!(out->rate > 0)) out->rate = echi_predict_rounds_most(plan, times, work);   /* the memory was too small: steps alone */
}
