/* SPDX-License-Identifier: Apache-2.0
 * Samples read ahead: a thread of a worker's reads those of its next step while this one is computed, so that a slow source, a disk or a
 * decoder, is waited for only where it is slower than the arithmetic. Which samples come next the worker's role knows from its leases; when
 * it was wrong the lane reads as it would without. What is read is the same either way, and so is every bit of the training.
 *
 * Handing over costs two wakes, so it is done only where it pays: reading is timed, and only what another thread can hide counts. With a
 * processor to spare that is all of it, without one what reading waits for. */
#include "echi_exec_impl.h"
#include "echi_error.h"

#include <stdlib.h>

#define WORTH 30000   /* ns to hide in a read, at least */

enum state { NOTHING, WANTED, READING, READ };

struct echi_ahead {
    const struct echi_job *job;
    bool spare;                      /* a processor that no thread of computation has */
    struct echi_thread thread;
    struct echi_mutex mutex;
    struct echi_cond changed;
    /* under the mutex, but for the arrays while READING, which are the reader's */
    bool quit, finished;
    enum state state;
    struct echi_lease at, next;      /* what is being read or was; what to read after it, if next.n > 0 */
    int64_t hides;                   /* ns of the read before that another thread would have hidden */
    struct echi_samples samples;
    ech_status status;
    struct ech_error error;
};

static bool same(const struct echi_lease *a, const struct echi_lease *b) {
    return a->epoch == b->epoch && a->start == b->start && a->n == b->n;
}

/* Reads, and says how long that took for whoever had to wait for it. */
static ech_status timed(const struct echi_ahead *a, const struct echi_lease *l, struct echi_samples *s, int64_t *out_hides,
                        struct ech_error *err) {
    const int64_t began = echi_now(), cpu = echi_thread_cpu();
    const ech_status status = echi_samples_read(s, a->job, l, err);
    const int64_t wall = echi_now() - began, waited = wall - (echi_thread_cpu() - cpu);
    *out_hides = a->spare ? wall : waited;
    return status;
}

/* Under the mutex: what comes next is wanted now. */
static void go_on(struct echi_ahead *a) {
    a->state = NOTHING;
    if (a->next.n == 0) return;
    a->at = a->next;
    a->next.n = 0;
    a->state = WANTED;
    echi_cond_broadcast(&a->changed);
}

static void *reader(void *self) {
    struct echi_ahead *a = self;
    struct ech_error error = {.peer = -1};
    int64_t hides = 0;
    echi_mutex_lock(&a->mutex);
    while (!a->quit) {
        if (a->state != WANTED) {
            echi_cond_wait(&a->changed, &a->mutex, INT64_MAX);
            continue;
        }
        a->state = READING;
        const struct echi_lease lease = a->at;
        echi_mutex_unlock(&a->mutex);
        const ech_status status = timed(a, &lease, &a->samples, &hides, &error);
        echi_mutex_lock(&a->mutex);
        a->state = READ;
        a->status = status;
        a->error = error;
        a->hides = hides;
        echi_cond_broadcast(&a->changed);
    }
    a->finished = true;
    echi_cond_broadcast(&a->changed);
    echi_mutex_unlock(&a->mutex);
    return NULL;
}

ech_status echi_ahead_create(const struct echi_job *job, uint32_t most, bool spare, struct echi_ahead **out, struct ech_error *err) {
    struct echi_ahead *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) return echi_fail_memory(err, "run.ahead", "samples read ahead");
    a->job = job;
    a->spare = spare;
    ech_status status = echi_samples_create(&a->samples, job, most, err);
    if (status != ECH_OK) goto no_samples;
    status = echi_mutex_init(&a->mutex, err);
    if (status != ECH_OK) goto no_samples;
    status = echi_cond_init(&a->changed, err);
    if (status != ECH_OK) goto no_cond;
    status = echi_thread_start(&a->thread, "ech-reader", reader, a, err);
    if (status != ECH_OK) goto no_thread;
    *out = a;
    return ECH_OK;
no_thread:
    echi_cond_destroy(&a->changed);
no_cond:
    echi_mutex_destroy(&a->mutex);
no_samples:
    echi_samples_destroy(&a->samples);
    free(a);
    return status;
}

bool echi_ahead_rests(struct echi_ahead *a, int64_t patience) {
    if (!a) return true;
    echi_mutex_lock(&a->mutex);
    a->quit = true;
    echi_cond_broadcast(&a->changed);
    for (int slices = 0; !a->finished && slices < ECHI_PATIENCE_SLICES; slices++)
        echi_cond_wait(&a->changed, &a->mutex, echi_now() + patience / ECHI_PATIENCE_SLICES);
    const bool finished = a->finished;
    echi_mutex_unlock(&a->mutex);
    return finished;
}

void echi_ahead_destroy(struct echi_ahead *a) {
    if (!a) return;
    echi_mutex_lock(&a->mutex);
    a->quit = true;
    echi_cond_broadcast(&a->changed);
    echi_mutex_unlock(&a->mutex);
    echi_thread_join(&a->thread);
    echi_cond_destroy(&a->changed);
    echi_mutex_destroy(&a->mutex);
    echi_samples_destroy(&a->samples);
    free(a);
}

void echi_ahead_expect(struct echi_ahead *a, const struct echi_lease *lease) {
    if (!a) return;
    echi_mutex_lock(&a->mutex);
    if (a->hides >= WORTH && !(a->state != NOTHING && same(&a->at, lease))) {
        a->next = *lease;
        if (a->state == NOTHING) go_on(a);
    }
    echi_mutex_unlock(&a->mutex);
}

/* Under the mutex; true: the samples that are READ are those of this lease. What was read for nothing makes room. */
static bool has(struct echi_ahead *a, const struct echi_lease *lease) {
    if (a->next.n > 0 && same(&a->next, lease)) a->next.n = 0;   /* the lane is here first */
    if (a->state == NOTHING) return false;
    if (!same(&a->at, lease) || a->state == WANTED) {
        if (a->state != READING) go_on(a);
        return false;
    }
    while (a->state == READING) echi_cond_wait(&a->changed, &a->mutex, INT64_MAX);
    return true;
}

ech_status echi_ahead_take(struct echi_ahead *a, const struct echi_lease *lease, struct echi_samples *samples, struct ech_error *err) {
    echi_mutex_lock(&a->mutex);
    const bool is_read = has(a, lease);
    ech_status status = a->status;
    if (is_read) {
        const struct echi_samples own = *samples;
        *samples = a->samples;
        a->samples = own;
        if (status != ECH_OK && err) *err = a->error;
        go_on(a);
    }
    echi_mutex_unlock(&a->mutex);
    if (is_read) return status;
    int64_t hides = 0;
    status = timed(a, lease, samples, &hides, err);
    echi_mutex_lock(&a->mutex);
    a->hides = hides;
    echi_mutex_unlock(&a->mutex);
    return status;
}
