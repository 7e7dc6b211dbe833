/* SPDX-License-Identifier: Apache-2.0
 * The compute lane: one thread, tasks by urgency, interrupted between units. */
#include "echi_lane.h"
#include "echi_error.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>

#define WAITING_MAX 256
#define DONE_MAX 1024     /* gradients and finished tasks not yet taken; a node has fewer layers and tasks out */

struct echi_lane {
    struct echi_thread thread;
    struct echi_mutex mutex;
    struct echi_cond changed;
    echi_lane_run run;
    void *self;
    void (*notify)(void *);
    void *notify_self;
    struct echi_slowness slowness;     /* lane's thread only */
    double slow;
    size_t untold;                     /* bytes of gradients that nobody was told of; lane's thread only */
    /* under the mutex */
    bool quit, hold, parked;
    bool waits;                        /* for `changed`, and nobody has signalled it yet */
    struct echi_task waiting[WAITING_MAX];
    int n_waiting;
    struct echi_done done[DONE_MAX];
    int done_first, done_count;
    struct { struct echi_task task; int64_t since; } begun[ECHI_TASKS];   /* each more urgent than the one before it */
    int n_begun;
    bool told;                         /* the taker was notified and has not found the ring empty since */
    void (*call)(void *);              /* to be run once, before any other task */
    void *call_self;
    bool calls;                        /* such a function runs */
    uint64_t ticks;                    /* signs of progress */
    bool finished, left;               /* the thread is at its end; it is left behind, and goes no further */
};

/* Under the mutex; a sign of progress. A thread that comes back after it was left behind stays here: what it would touch may be gone. */
static void tick(struct echi_lane *l) {
    l->ticks++;
    while (l->left) echi_cond_wait(&l->changed, &l->mutex, INT64_MAX);
}

void echi_slowness_begin(struct echi_slowness *s, double factor) {
    *s = (struct echi_slowness){.factor = factor, .cpu_mark = echi_thread_cpu()};
}

void echi_slowness_pay(struct echi_slowness *s) {
    if (s->factor <= 1) return;
    int64_t cpu = echi_thread_cpu();
    s->debt += (int64_t)((s->factor - 1) * (double)(cpu - s->cpu_mark));
    s->cpu_mark = cpu;
    if (s->debt < 1000000) return;
    int64_t until = echi_now() + s->debt;
    echi_sleep_until(until);
    s->debt = until - echi_now();      /* oversleeping is credit */
    s->cpu_mark = echi_thread_cpu();
}

/* Gives the mutex back first: who is woken wants it. */
static void unlock_and_wake(struct echi_lane *l) {
    const bool waits = l->waits;
    l->waits = false;
    echi_mutex_unlock(&l->mutex);
    if (waits) echi_cond_broadcast(&l->changed);
}

static void put_done(struct echi_lane *l, const struct echi_done *d, bool tell) {
    echi_mutex_lock(&l->mutex);
    tick(l);
    if (l->done_count < DONE_MAX) l->done[(l->done_first + l->done_count++) % DONE_MAX] = *d;
    const bool notify = tell && !l->told;   /* else its taker is on the way already, or will be told with the next */
    l->told = l->told || tell;
    echi_mutex_unlock(&l->mutex);
    if (notify) l->notify(l->notify_self);
}

/* The most urgent task that may run now and is more urgent than `than`; under the mutex. */
static bool pick(struct echi_lane *l, int than, struct echi_task *out) {
    int best = -1;
    for (int i = 0; i < l->n_waiting; i++) {
        const int kind = l->waiting[i].kind;
        if (l->hold ? kind != ECHI_TASK_EVAL : kind >= than) continue;
        if (best < 0 || kind < l->waiting[best].kind) best = i;
    }
    if (best < 0) return false;
    *out = l->waiting[best];
    memmove(&l->waiting[best], &l->waiting[best + 1], (size_t)(--l->n_waiting - best) * sizeof l->waiting[0]);
    return true;
}

static void run_one(struct echi_lane *l, const struct echi_task *task) {
    struct echi_done d;
    memset(&d, 0, sizeof d);
    d.task = *task;
    d.status = l->run(l->self, task, &d.result, &d.error);
    /* An evaluation is measuring, not the work of the node that is played: it is not charged. */
    if (task->kind == ECHI_TASK_EVAL) l->slowness.cpu_mark = echi_thread_cpu();
    else echi_slowness_pay(&l->slowness);
    l->untold = 0;
    put_done(l, &d, true);
}

/* Waits while held; runs tasks more urgent than `than`. With `idle` it goes on waiting for tasks until told to quit. */
static void serve(struct echi_lane *l, int than, bool idle) {
    struct echi_task task;
    echi_mutex_lock(&l->mutex);
    tick(l);
    for (;;) {
        if (l->quit) break;
        if (l->call) {
            void (*call)(void *) = l->call;
            l->call = NULL;
            l->calls = true;
            echi_mutex_unlock(&l->mutex);
            call(l->call_self);
            echi_mutex_lock(&l->mutex);
            l->calls = false;
            tick(l);
            echi_mutex_unlock(&l->mutex);
            l->slowness.cpu_mark = echi_thread_cpu();
            l->notify(l->notify_self);
            echi_mutex_lock(&l->mutex);
            continue;
        }
        if (pick(l, than, &task)) {
            l->parked = false;
            l->begun[l->n_begun].task = task;
            l->begun[l->n_begun++].since = echi_now();
            echi_mutex_unlock(&l->mutex);
            run_one(l, &task);
            echi_mutex_lock(&l->mutex);
            l->n_begun--;
            continue;
        }
        if (!l->hold && !idle) break;
        if (!l->parked) {
            l->parked = true;
            if (l->hold) {
                echi_mutex_unlock(&l->mutex);
                l->notify(l->notify_self);
                echi_mutex_lock(&l->mutex);
                continue;
            }
        }
        l->waits = true;
        echi_cond_wait(&l->changed, &l->mutex, INT64_MAX);
    }
    l->parked = false;
    echi_mutex_unlock(&l->mutex);
}

static void *lane_main(void *self) {
    struct echi_lane *l = self;
    echi_slowness_begin(&l->slowness, l->slow);
    serve(l, ECHI_TASKS, true);
    echi_mutex_lock(&l->mutex);
    l->finished = true;
    echi_cond_broadcast(&l->changed);
    echi_mutex_unlock(&l->mutex);
    return NULL;
}

ech_status echi_lane_create(echi_lane_run run, void *self, void (*notify)(void *), void *notify_self, double slow, struct echi_lane **out,
                            struct ech_error *err) {
    struct echi_lane *l = calloc(1, sizeof *l);
    if (!l) return echi_fail_memory(err, "run.lane", "the compute lane");
    l->run = run;
    l->self = self;
    l->notify = notify;
    l->notify_self = notify_self;
    l->slow = slow;
    ech_status status = echi_mutex_init(&l->mutex, err);
    if (status != ECH_OK) goto no_mutex;
    status = echi_cond_init(&l->changed, err);
    if (status != ECH_OK) goto no_cond;
    status = echi_thread_start(&l->thread, "ech-lane", lane_main, l, err);
    if (status != ECH_OK) goto no_thread;
    *out = l;
    return ECH_OK;
no_thread:
    echi_cond_destroy(&l->changed);
no_cond:
    echi_mutex_destroy(&l->mutex);
no_mutex:
    free(l);
    return status;
}

bool echi_lane_destroy(struct echi_lane *l, int64_t patience) {
    if (!l) return true;
    echi_mutex_lock(&l->mutex);
    l->quit = true;
    unlock_and_wake(l);
    echi_mutex_lock(&l->mutex);
    /* In slices: while this process is stopped one of them passes at most. */
    uint64_t seen = l->ticks;
    for (int slices = 0; !l->finished && slices < ECHI_PATIENCE_SLICES; slices++) {
        echi_cond_wait(&l->changed, &l->mutex, echi_now() + patience / ECHI_PATIENCE_SLICES);
        if (l->ticks != seen) slices = 0;
        seen = l->ticks;
    }
    const bool finished = l->finished;
    l->left = !finished;
    echi_mutex_unlock(&l->mutex);
    if (!finished) return false;
    echi_thread_join(&l->thread);
    echi_cond_destroy(&l->changed);
    echi_mutex_destroy(&l->mutex);
    free(l);
    return true;
}

bool echi_lane_stay(struct echi_lane *l) {
    if (!l) return true;
    echi_mutex_lock(&l->mutex);
    tick(l);
    const bool stays = !l->quit;
    echi_mutex_unlock(&l->mutex);
    return stays;
}

ech_status echi_lane_submit(struct echi_lane *l, const struct echi_task *task, struct ech_error *err) {
    echi_mutex_lock(&l->mutex);
    const bool room = l->n_waiting < WAITING_MAX;
    if (room) l->waiting[l->n_waiting++] = *task;
    unlock_and_wake(l);
    return room ? ECH_OK : echi_fail(err, ECH_E_INTERNAL, "run.lane", "more than %d tasks wait on this node", WAITING_MAX);
}

bool echi_lane_take(struct echi_lane *l, struct echi_done *out) {
    echi_mutex_lock(&l->mutex);
    const bool some = l->done_count > 0;
    if (some) {
        *out = l->done[l->done_first];
        l->done_first = (l->done_first + 1) % DONE_MAX;
        l->done_count--;
    } else {
        l->told = false;
    }
    echi_mutex_unlock(&l->mutex);
    return some;
}

void echi_lane_hold(struct echi_lane *l, bool hold) {
    echi_mutex_lock(&l->mutex);
    l->hold = hold;
    unlock_and_wake(l);
}

bool echi_lane_is_held(struct echi_lane *l) {
    echi_mutex_lock(&l->mutex);
    const bool held = l->hold && l->parked;
    echi_mutex_unlock(&l->mutex);
    return held;
}

void echi_lane_breathe(struct echi_lane *l, enum echi_task_kind kind) {
    if (!l) return;
    echi_slowness_pay(&l->slowness);
    serve(l, (int)kind, false);
}

static void put_part(struct echi_lane *l, const struct echi_task *task, int layer, const struct echi_result *result, bool tell) {
    struct echi_done d;
    memset(&d, 0, sizeof d);
    d.gradient = true;
    d.layer = layer;
    d.task = *task;
    d.result = *result;
    put_done(l, &d, tell);
}

void echi_lane_gradient(struct echi_lane *l, const struct echi_task *task, int layer, size_t bytes, const struct echi_result *result) {
    if (!l) return;
    l->untold += bytes;
    const bool tell = l->untold >= ECHI_WORTH_A_WAKE;
    if (tell) l->untold = 0;
    put_part(l, task, layer, result, tell);
}

void echi_lane_rows(struct echi_lane *l, const struct echi_task *task, const struct echi_result *result) {
    if (!l) return;
    echi_slowness_pay(&l->slowness);
    put_part(l, task, 0, result, true);
}

void echi_lane_look(struct echi_lane *l, struct echi_lane_view *out) {
    memset(out, 0, sizeof *out);
    echi_mutex_lock(&l->mutex);
    out->held = l->hold;
    out->waiting = l->n_waiting;
    out->ticks = l->ticks;
    out->busy = l->call || l->calls || (l->n_begun > 0 && !l->parked) || (l->n_waiting > 0 && !l->hold);
    if (l->n_begun > 0) {
        out->runs = true;
        out->task = l->begun[l->n_begun - 1].task;
        out->since = l->begun[l->n_begun - 1].since;
    }
    echi_mutex_unlock(&l->mutex);
}

void echi_lane_call(struct echi_lane *l, void (*call)(void *), void *self) {
    echi_mutex_lock(&l->mutex);
    l->call_self = self;
    l->call = call;
    unlock_and_wake(l);
}
