/* SPDX-License-Identifier: Apache-2.0
 * A worker under `local`, as its role acts (lib/core/roles/worker_local.c): steps on weights of its own, one task at a time. What they have
 * changed is pushed at the end of a lease whose round's weights are here; it goes on meanwhile, one round ahead at most. */
#include "echi_predict_pushes.h"
#include "echi_predict_rounds.h"

static void compute(struct echi_pushes *p, int w, enum echi_task_kind kind, double seconds, enum echi_play_what what) {
    p->worker[w].local.busy = true;
    echi_play_compute(&p->b, p->b.rank[w], kind, seconds, (struct echi_about){what, 0, w, 0});
}

static void step(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    const int rank = p->b.rank[w];
    const struct echi_times *t = &p->b.times[rank];
    k->local.busy = true;
    k->local.done++;
    echi_cost_compute(p->b.cost, rank, &(struct echi_work){
        .seconds = echi_predict_factor(t, rank, k->begun++) * echi_times_whole(t, p->b.plan->n[rank]), .urgency = ECHI_TASK_STEP,
        .shape = &p->b.of[w]->step, .cookie = echi_play_cookie((struct echi_about){ECHI_PLAY_STEP, 0, w, 0})});
}

static void begin(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    const double array = echi_pushes_updates(p, p->b.rank[w], 1);   /* four or five arrays are read and written, as by an update */
    const bool ends = k->local.has && k->local.done == p->b.plan->inner[p->b.rank[w]];
    if (k->local.busy || k->local.version == 0) return;
    if (k->local.fresh) return compute(p, w, ECHI_TASK_LOCAL_JOIN, array, ECHI_PLAY_JOIN);
    if (ends && k->local.round <= k->local.version) return compute(p, w, ECHI_TASK_LOCAL_DELTA, array, ECHI_PLAY_DELTA);
    if (ends || (!k->local.has && k->local.round > k->local.version)) return;
    if (!k->local.has) {
        k->local.has = true;
        k->local.done = 0;
        k->local.round++;
        k->local.seen = k->local.samples + k->local.behind;
    }
    step(p, w);
}

void echi_local_weights(struct echi_pushes *p, int w, double samples) {
    struct echi_push_worker *k = &p->worker[w];
    k->local.version++;
    k->local.samples = samples;
    k->local.behind = 0;
    k->local.fresh = true;
    begin(p, w);
}

static void push(struct echi_pushes *p, int w) {
    struct echi_push_worker *k = &p->worker[w];
    k->flight[0].seen = k->local.seen;
    k->flight[0].unpushed = p->b.pieces;
    k->local.has = false;
    k->local.behind += echi_pushes_samples(p, w);
    echi_pushes_push(p, w, 0, 0);
}

void echi_local_done(struct echi_pushes *p, int w, enum echi_play_what what) {
    struct echi_push_worker *k = &p->worker[w];
    k->local.busy = false;
    if (what == ECHI_PLAY_STEP)
        return compute(p, w, ECHI_TASK_LOCAL_APPLY, echi_pushes_updates(p, p->b.rank[w], 1), ECHI_PLAY_LOCAL_APPLY);
    if (what == ECHI_PLAY_JOIN) k->local.fresh = false;
    else if (what == ECHI_PLAY_DELTA) push(p, w);
    begin(p, w);
}
