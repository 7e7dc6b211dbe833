/* SPDX-License-Identifier: Apache-2.0
 * Owners of whole pushes, as their role acts (lib/core/roles/owner.c, owner_states.c): one task at a time, answers within the bound and so
 * many at once, states between groups. */
#include "echi_predict_pushes.h"

#include <string.h>

/* In updates: weights, for each state that they are a sum of. */
#define SUMMAND 0.36
#define STATE_EVERY (ECHI_UNACKED_MAX / 4)   /* as in owner_states.c */

static void compute(struct echi_pushes *p, int g, enum echi_task_kind kind, double seconds, struct echi_about about) {
    p->group[g].busy = true;
    echi_play_compute(&p->b, p->group[g].owner, kind, seconds, about);
}

/* Seconds of so many updates at this owner. */
static double updates(const struct echi_pushes *p, int g, double count) { return echi_pushes_updates(p, p->group[g].owner, count); }

/* ---- weights out ---- */

static bool held_back(const struct echi_pushes *p, const struct echi_push_worker *k) {
    return p->policy->bounded && k->applied > (uint64_t)p->group[k->group].least + p->b.plan->staleness;
}

static bool is_own(const struct echi_pushes *p, int w) { return p->group[p->worker[w].group].owner == p->b.rank[w]; }

/* What stays on its node takes no place from the others, but of what a codec writes. */
static bool takes_place(const struct echi_pushes *p, int w) { return p->group[p->worker[w].group].own_worker != w; }

/* All pieces of an answer, or what a codec has written. */
static void send_weights(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    struct echi_push_group *a = &p->group[k->group];
    k->coming[k->n_coming++] = a->weights;
    k->leaving += p->answer_pieces;
    for (int i = 0; i < p->answer_pieces; i++)
        echi_play_send(&p->b, a->owner, p->b.rank[w], echi_part_priority(ECHI_KIND_WEIGHTS, 0),
                       p->coded ? echi_play_bytes(&p->b, ECHI_KIND_WEIGHTS, 4 * p->pushed * echi_pushes_weights(p, w)->part)
                                : p->b.piece[i].weights,
                       (struct echi_about){ECHI_PLAY_WEIGHTS, 0, w, i});
}

static void owe(struct echi_pushes *p, int w) {
    struct echi_push_group *a = &p->group[p->worker[w].group];
    p->worker[w].owed++;
    echi_ranks_drop(&a->held_back, w);
    echi_ranks_add(&a->owed, w);
}

static void take_answer(struct echi_pushes *p, int w) {
    struct echi_push_group *a = &p->group[p->worker[w].group];
    if (--p->worker[w].owed == 0) echi_ranks_drop(&a->owed, w);
    a->sends += takes_place(p, w);
}

/* What has changed since the message before: a task, and then the message. In rounds all others are owed the same. */
static void encode_weights(struct echi_pushes *p, int g, int w) {
    const struct echi_push_group *a = &p->group[g];
    for (int i = 0; i < a->workers; i++) {
        const int other = a->member[i];
        const bool same = other == w || (p->policy->rounds && !is_own(p, w) && !is_own(p, other) && p->worker[other].owed > 0);
        p->worker[other].encoding = same;
        if (same) take_answer(p, other);
    }
    compute(p, g, ECHI_TASK_ENCODE, updates(p, g, echi_pushes_weights(p, w)->write), (struct echi_about){ECHI_PLAY_ENCODE, g, 0, 0});
}

/* The own worker, which takes no place; else, while there is one, under a bound the straggler, else one after the other; -1: nobody is owed
 * an answer that may go. */
static int next_owed(const struct echi_pushes *p, const struct echi_push_group *a) {
    if (a->own_worker >= 0 && echi_ranks_has(&a->owed, a->own_worker)) return a->own_worker;
    if (a->sends >= ECHI_ANSWERS) return -1;
    int next = echi_ranks_next(&a->owed, a->turn);
    if (next < 0) next = echi_ranks_next(&a->owed, 0);
    if (next < 0 || !p->policy->bounded) return next;
    for (int w = echi_ranks_next(&a->owed, 0); w >= 0; w = echi_ranks_next(&a->owed, w + 1))
        if (p->worker[w].applied < p->worker[next].applied) next = w;
    return next;
}

/* An answer waits for a place among the sends and then gets the newest weights. */
static void answer(struct echi_pushes *p, int g) {
    struct echi_push_group *a = &p->group[g];
    while (!(p->coded && a->busy)) {
        const int w = next_owed(p, a);
        if (w < 0) return;
        if (held_back(p, &p->worker[w])) {
            echi_ranks_drop(&a->owed, w);
            echi_ranks_add(&a->held_back, w);
            continue;
        }
        if (takes_place(p, w)) a->turn = w + 1;
        if (p->coded) {
            encode_weights(p, g, w);
        } else {
            take_answer(p, w);
            send_weights(p, w);
        }
    }
}

void echi_owner_weights_left(struct echi_pushes *p, int w) {
    struct echi_push_group *a = &p->group[p->worker[w].group];
    if (--p->worker[w].leaving % p->answer_pieces == 0 && takes_place(p, w)) a->sends--;
    echi_owner_goes_on(p, p->worker[w].group);
}

/* ---- states ---- */

/* The reserve may sleep. */
static bool takes_part(const struct echi_pushes *p, int g, int h) { return h != g && p->group[h].workers > 0; }

/* R: it applies nothing until the others have more of what it did. */
static bool too_far_ahead(const struct echi_pushes *p, int g) {
    const struct echi_push_group *a = &p->group[g];
    for (int h = 0; h < p->b.plan->n_groups; h++)
        if (takes_part(p, g, h) && (a->own - a->acked[h] > (double)p->b.plan->rounds_apart * p->b.plan->round ||
                                    a->version - a->acked_version[h] >= ECHI_UNACKED_MAX))
            return true;
    return false;
}

/* A place for a state is there again when the one before it has come. */
static void send_states(struct echi_pushes *p, int g) {
    struct echi_push_group *a = &p->group[g];
    for (int h = 0; h < p->b.plan->n_groups; h++) {
        if (!a->due[h] || a->carried[h] > 0) continue;
        a->due[h] = false;
        a->carried[h] = a->sent;
        a->carried_version[h] = a->version;
        echi_play_send(&p->b, a->owner, p->group[h].owner, ECHI_PRIORITY_STATES,
                       echi_play_bytes(&p->b, ECHI_KIND_STATE, 4.0 * p->pushed * p->states.part),
                       (struct echi_about){ECHI_PLAY_STATE, g, h, 0});
    }
}

static bool awaits_acknowledgement(const struct echi_pushes *p, int g) {
    for (int h = 0; h < p->b.plan->n_groups; h++)
        if (takes_part(p, g, h) && p->group[g].acked_version[h] < p->group[g].sent_version) return true;
    return false;
}

/* Once as many pushes as it has workers are in, or R stops it, and all have the last. */
static void exchange(struct echi_pushes *p, int g) {
    struct echi_push_group *a = &p->group[g];
    const int enough = a->workers < STATE_EVERY ? a->workers : STATE_EVERY;
    if (p->groups < 2 || a->state_out > 0 || a->since_send == 0 || (a->since_send < enough && !too_far_ahead(p, g))) return;
    if ((p->coded && a->busy) || awaits_acknowledgement(p, g)) return;
    a->since_send = 0;
    a->sent = a->own;
    a->sent_version = a->version;
    for (int h = 0; h < p->b.plan->n_groups; h++) {
        a->due[h] = takes_part(p, g, h);
        a->state_out += a->due[h];
    }
    if (p->coded) compute(p, g, ECHI_TASK_ENCODE, updates(p, g, p->states.write), (struct echi_about){ECHI_PLAY_ENCODE_STATE, g, 0, 0});
    else send_states(p, g);
}

void echi_owner_state_left(struct echi_pushes *p, int g) {
    p->group[g].state_out--;
    echi_owner_goes_on(p, g);
}

static void take_state(struct echi_pushes *p, int from, int to) {
    struct echi_push_group *a = &p->group[from];
    p->group[to].peer[from] = a->there[to] = a->carried[to];
    a->carried[to] = 0;
    echi_play_words(&p->b, p->group[to].owner, a->owner, ECHI_KIND_STATE_ACK, 1, (struct echi_about){ECHI_PLAY_ACK, from, to, 0});
    send_states(p, from);
    echi_owner_goes_on(p, to);
}

void echi_owner_state_in(struct echi_pushes *p, int from, int to) {
    if (!p->coded) return take_state(p, from, to);
    p->group[to].undecoded[from] = true;
    echi_owner_goes_on(p, to);
}

void echi_owner_acknowledged(struct echi_pushes *p, int g, int by) {
    p->group[g].acked[by] = p->group[g].there[by];
    p->group[g].acked_version[by] = p->group[g].carried_version[by];
    echi_owner_goes_on(p, g);
}

static bool decode_state(struct echi_pushes *p, int g) {
    for (int h = 0; h < p->b.plan->n_groups; h++) {
        if (!p->group[g].undecoded[h]) continue;
        p->group[g].undecoded[h] = false;
        compute(p, g, ECHI_TASK_DECODE, updates(p, g, p->states.read), (struct echi_about){ECHI_PLAY_DECODE_STATE, g, h, 0});
        return true;
    }
    return false;
}

/* ---- pushes in ---- */

static void note_staleness(struct echi_pushes *p, struct echi_push_group *a, double seen) {
    if (p->pushes <= p->warm) return;
    p->stale += a->next - seen;
    p->behind += p->all - seen;
    p->stale_count++;
    a->behind += p->all - seen;
    a->behind_count++;
}

/* A round's push is added, and the last applies it; others are applied one by one, to the sum of w0 and all states. */
static void take_push(struct echi_pushes *p, int g) {
    struct echi_push_group *a = &p->group[g];
    const struct echi_push_step s = a->queue[0];
    const double reading = updates(p, g, echi_pushes_gradients(p, s.worker)->read);
    const double sum = p->groups > 1 ? SUMMAND * (p->groups + 1) : 0;
    if (!p->policy->rounds && too_far_ahead(p, g)) return;
    a->queued--;
    memmove(&a->queue[0], &a->queue[1], (size_t)a->queued * sizeof a->queue[0]);
    a->next = p->groups > 1 ? a->own : a->weights;
    for (int h = 0; h < p->b.plan->n_groups && p->groups > 1; h++) a->next += a->peer[h];
    note_staleness(p, a, p->worker[s.worker].flight[s.flight].seen);
    if (p->policy->rounds)
        compute(p, g, ECHI_TASK_ADD, reading + echi_play_adding(&p->b, a->owner, p->pushed), (struct echi_about){ECHI_PLAY_ADD, g, 0, 0});
    else
        compute(p, g, ECHI_TASK_APPLY, reading + updates(p, g, 1 + sum), (struct echi_about){ECHI_PLAY_APPLY, g, s.worker, s.flight});
}

static void pump(struct echi_pushes *p, int g) {
    struct echi_push_group *a = &p->group[g];
    if (a->busy || (p->coded && decode_state(p, g))) return;
    if (p->policy->rounds && a->round_in == a->workers)
        compute(p, g, ECHI_TASK_APPLY, updates(p, g, 1), (struct echi_about){ECHI_PLAY_APPLY, g, 0, 0});
    else if (a->queued > 0)
        take_push(p, g);
}

void echi_owner_goes_on(struct echi_pushes *p, int g) {
    exchange(p, g);
    answer(p, g);
    pump(p, g);
}

void echi_owner_piece_in(struct echi_pushes *p, int w, int flight) {
    struct echi_push_flight *s = &p->worker[w].flight[flight];
    struct echi_push_group *a = &p->group[p->worker[w].group];
    if (++s->come < p->b.pieces) return;
    s->come = 0;
    a->queue[a->queued++] = (struct echi_push_step){(uint16_t)w, (uint8_t)flight};
    echi_owner_goes_on(p, p->worker[w].group);
}

/* The slowest have moved on: who was held back because of them may be answered. */
static void recount(struct echi_pushes *p, int g) {
    struct echi_push_group *a = &p->group[g];
    a->least = UINT32_MAX;
    a->at_least = 0;
    for (int i = 0; i < a->workers; i++) {
        const uint32_t applied = p->worker[a->member[i]].applied;
        if (applied > a->least) continue;
        a->at_least = applied < a->least ? 1 : a->at_least + 1;
        a->least = applied;
    }
    echi_ranks_join(&a->owed, &a->held_back);
    a->held_back = (struct echi_ranks){{0}};
}

static void push_applied(struct echi_pushes *p, int g, int w, int flight) {
    struct echi_push_group *a = &p->group[g];
    const struct echi_push_worker *k = &p->worker[w];
    const uint32_t n = echi_pushes_samples(p, w);
    a->weights = a->next + n;
    a->own += n;
    p->all += n;
    a->version++;
    a->since_send++;
    echi_pushes_count(p, w);
    if (k->applied == a->least + 1 && --a->at_least == 0) recount(p, g);
    echi_play_words(&p->b, a->owner, 0, ECHI_KIND_APPLIED, 1, (struct echi_about){ECHI_PLAY_APPLIED, k->flight[flight].more, w, 0});
    owe(p, w);
}

static void round_applied(struct echi_pushes *p, int g) {
    struct echi_push_group *a = &p->group[g];
    a->round_in = 0;
    for (int i = 0; i < a->workers; i++) {
        a->weights += echi_pushes_samples(p, a->member[i]);
        echi_pushes_count(p, a->member[i]);
        owe(p, a->member[i]);
    }
    p->all = a->weights;
    echi_play_words(&p->b, a->owner, 0, ECHI_KIND_APPLIED, a->workers, (struct echi_about){ECHI_PLAY_APPLIED, 1, 0, 0});
}

void echi_owner_computed(struct echi_pushes *p, struct echi_about about) {
    const int g = about.owner;
    struct echi_push_group *a = &p->group[g];
    a->busy = false;
    switch (about.what) {
    case ECHI_PLAY_ADD: a->round_in++; break;
    case ECHI_PLAY_APPLY:
        if (p->policy->rounds) round_applied(p, g);
        else push_applied(p, g, about.worker, about.piece);
        break;
    case ECHI_PLAY_ENCODE:
        for (int i = 0; i < a->workers; i++)
            if (p->worker[a->member[i]].encoding) {
                p->worker[a->member[i]].encoding = false;
                send_weights(p, a->member[i]);
            }
        break;
    case ECHI_PLAY_ENCODE_STATE: send_states(p, g); break;
    case ECHI_PLAY_DECODE_STATE: return take_state(p, about.worker, g);
    default: break;
    }
    echi_owner_goes_on(p, g);
}

/* It begins with first weights, which everybody lacks. */
bool echi_owners_set_up(struct echi_pushes *p) {
    const struct echi_plan *plan = p->b.plan;
    for (int w = 0; w < p->b.workers; w++) p->group[p->worker[w].group].workers++;
    for (int g = 0; g < plan->n_groups; g++) {
        struct echi_push_group *a = &p->group[g];
        const size_t workers = (size_t)a->workers;
        a->owner = plan->owner_of[g];
        a->at_least = a->workers;
        a->own_worker = -1;
        p->groups += a->workers > 0;
        a->member = echi_play_zeroed(&p->b, workers, sizeof *a->member);
        a->queue = echi_play_zeroed(&p->b, workers * plan->flights, sizeof *a->queue);
        if (!a->member || !a->queue) return false;
        a->workers = 0;
    }
    for (int w = 0; w < p->b.workers; w++) {
        struct echi_push_group *a = &p->group[p->worker[w].group];
        a->member[a->workers++] = (uint16_t)w;
        if (is_own(p, w) && !p->coded) a->own_worker = w;
        for (int s = 0; s < plan->flights; s++) owe(p, w);
    }
    return true;
}
