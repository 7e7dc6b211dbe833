/* SPDX-License-Identifier: Apache-2.0
 * The team: a gate that opens for one piece of work at a time.
 *
 * Handing work in takes no lock while the workers are awake: the caller writes down the work, opens the gate, and starts on it. Each worker
 * that is there in time goes in and takes parts until none is left. So nobody waits for one that is asleep or has lost its processor
 * before it went in: its parts are done by the others. When no part is left the caller closes the gate and waits for those who are still
 * inside. */
#include "echi_error.h"
#include "echi_os.h"
#include "echi_team.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Whoever waits looks so often without a break: 20 to 60 microseconds, by the processor's pause. Then for so many nanoseconds it offers its
 * processor to others between its looks, and has it back at once where nobody wants it. Then it sleeps. The gaps within a step, when one
 * thread has done its parts and another has not, are mostly shorter, those between steps that wait for something longer; and to be woken
 * takes 50 to 150 microseconds where processors are virtual ones. With more threads than processors nobody looks twice: what is waited for
 * would need the processor. */
enum { LOOKS = 1000, OFFERS_NS = 500000 };

/* The gate in one word: how many workers are inside, whether more may come in, whether all shall go home, and which work it is. A worker
 * that sleeps while the number goes round may miss one: it is only a helper. */
#define INSIDE 0x3ffu      /* all but the caller */
#define OPEN   0x400u
#define STOP   0x800u
#define WORK   0xfffff000u
#define NEXT   0x1000u

enum { LINE = 64 };
_Static_assert(ECHI_TEAM_MOST - 1 <= INSIDE, "the gate counts them");

/* Parts [next, end): those of one place, which others help with once they are through with their own. So a place has about the same parts
 * in every call, and finds in its caches what it wrote in the last one. */
struct share { _Alignas(LINE) atomic_int next; int end; };

struct worker { struct echi_team *team; int place; struct echi_thread thread; };

struct echi_team {
    _Alignas(LINE) atomic_uint gate;
    _Alignas(LINE) atomic_flag busy;      /* somebody's work is being done */
    atomic_int sleeping;                  /* workers */
    atomic_bool waiting;                  /* the caller sleeps until all are out */
    echi_team_part run;
    void *args;
    int threads, looks;
    struct share *shares;                 /* [threads] */
    struct worker *workers;               /* [threads - 1], of places 1.. */
    struct echi_mutex lock;               /* of going to sleep */
    struct echi_cond work, done;
};

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* How long somebody has waited; {0} to begin with. */
struct wait { int looks; int64_t until; };

/* Whether to look once more, after a short break; if not, sleep. */
static bool look_again(const struct echi_team *p, struct wait *w) {
    if (++w->looks < p->looks) {
        pause_briefly();
        return true;
    }
    if (p->looks == 1) return false;
    const int64_t now = echi_now();
    if (w->looks == p->looks) w->until = now + OFFERS_NS;
    if (now >= w->until) return false;
    sched_yield();
    return true;
}

static void take_parts(struct echi_team *p, int place) {
    for (int i = 0; i < p->threads; i++) {
        struct share *share = &p->shares[(place + i) % p->threads];
        if (atomic_load_explicit(&share->next, memory_order_relaxed) >= share->end) continue;
        for (int part; (part = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end;)
            p->run(p->args, part, place);
    }
}

/* ---------------------------------------------------------------- workers */

static bool concerns(unsigned gate, unsigned seen) { return (gate & STOP) || ((gate & OPEN) && (gate & WORK) != seen); }

/* The gate, as soon as it is open for work other than `seen`. */
static unsigned await_work(struct echi_team *p, unsigned seen) {
    unsigned gate;
    struct wait w = {0};
    do {
        gate = atomic_load_explicit(&p->gate, memory_order_relaxed);
        if (concerns(gate, seen)) return gate;
    } while (look_again(p, &w));
    /* Whoever opens the gate looks at `sleeping` afterwards, so one of the two sees the other. */
    echi_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleeping, 1);
    while (!concerns(gate = atomic_load(&p->gate), seen)) echi_cond_wait(&p->work, &p->lock, INT64_MAX);
    atomic_fetch_sub(&p->sleeping, 1);
    echi_mutex_unlock(&p->lock);
    return gate;
}

static bool enter(struct echi_team *p, unsigned gate) {
    const unsigned work = gate & WORK;
    while ((gate & OPEN) && (gate & WORK) == work)
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) return true;
    return false;
}

static void leave(struct echi_team *p) {
    const unsigned gate = atomic_fetch_sub(&p->gate, 1);
    if ((gate & OPEN) || (gate & INSIDE) > 1 || !atomic_load(&p->waiting)) return;
    echi_mutex_lock(&p->lock);
    echi_cond_signal(&p->done);
    echi_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg) {
    const struct worker *w = arg;
    struct echi_team *p = w->team;
    for (unsigned seen = 0;;) {
        const unsigned gate = await_work(p, seen);
        if (gate & STOP) return NULL;
        seen = gate & WORK;
        if (!enter(p, gate)) continue;
        take_parts(p, w->place);
        leave(p);
    }
}

/* ----------------------------------------------------------------- callers
 *
 * What a caller writes before it looks whether somebody sleeps is written by an exchange: AArch64 keeps a store in front of the load
 * behind it (both sequentially consistent), but QEMU 7.2 on x86 does not, and there a thread was left asleep. */

static void open_gate(struct echi_team *p, int parts) {
    const unsigned before = atomic_load_explicit(&p->gate, memory_order_relaxed);
    atomic_exchange(&p->gate, ((before & WORK) + NEXT) | OPEN);
    int asleep = atomic_load(&p->sleeping);
    if (asleep == 0) return;
    echi_mutex_lock(&p->lock);
    for (; asleep > 0 && parts > 1; asleep--, parts--) echi_cond_signal(&p->work);
    echi_mutex_unlock(&p->lock);
}

static bool inside(struct echi_team *p) { return (atomic_load(&p->gate) & INSIDE) > 0; }

static void close_gate(struct echi_team *p) {
    atomic_fetch_and(&p->gate, ~OPEN);
    struct wait w = {0};
    do {
        if (!inside(p)) return;
    } while (look_again(p, &w));
    echi_mutex_lock(&p->lock);
    atomic_exchange(&p->waiting, true);
    while (inside(p)) echi_cond_wait(&p->done, &p->lock, INT64_MAX);
    atomic_store(&p->waiting, false);
    echi_mutex_unlock(&p->lock);
}

void echi_team_run(struct echi_team *p, int parts, echi_team_part run, void *args) {
    if (!p || parts < 2 || atomic_flag_test_and_set_explicit(&p->busy, memory_order_acquire)) {
        for (int part = 0; part < parts; part++) run(args, part, 0);
        return;
    }
    p->run = run;
    p->args = args;
    for (int i = 0; i < p->threads; i++) {
        atomic_store_explicit(&p->shares[i].next, (int)((int64_t)parts * i / p->threads), memory_order_relaxed);
        p->shares[i].end = (int)((int64_t)parts * (i + 1) / p->threads);
    }
    open_gate(p, parts);
    take_parts(p, 0);
    close_gate(p);
    atomic_flag_clear_explicit(&p->busy, memory_order_release);
}

int echi_team_threads(const struct echi_team *p) { return p ? p->threads : 1; }

int64_t echi_team_cpu(const struct echi_team *p) {
    int64_t sum = 0;
    for (int i = 0; p && i < p->threads - 1; i++) sum += echi_thread_cpu_of(&p->workers[i].thread);
    return sum;
}

/* ----------------------------------------------------- create and destroy */

/* Sends home the first `count` workers. */
static void stop_workers(struct echi_team *p, int count) {
    echi_mutex_lock(&p->lock);
    atomic_fetch_or(&p->gate, STOP);
    echi_cond_broadcast(&p->work);
    echi_mutex_unlock(&p->lock);
    for (int i = 0; i < count; i++) echi_thread_join(&p->workers[i].thread);
}

static void release(struct echi_team *p) {
    free(p->workers);
    echi_free_aligned(p->shares);
    echi_free_aligned(p);
}

static ech_status make_locks(struct echi_team *p, struct ech_error *err) {
    ECHI_TRY(echi_mutex_init(&p->lock, err));
    ech_status status = echi_cond_init(&p->work, err);
    if (status == ECH_OK && (status = echi_cond_init(&p->done, err)) != ECH_OK) echi_cond_destroy(&p->work);
    if (status != ECH_OK) echi_mutex_destroy(&p->lock);
    return status;
}

static void destroy_locks(struct echi_team *p) {
    echi_cond_destroy(&p->done);
    echi_cond_destroy(&p->work);
    echi_mutex_destroy(&p->lock);
}

static ech_status start_workers(struct echi_team *p, struct ech_error *err) {
    for (int i = 0; i < p->threads - 1; i++) {
        struct worker *w = &p->workers[i];
        char name[24];
        *w = (struct worker){.team = p, .place = i + 1};
        snprintf(name, sizeof name, "ech-team-%d", w->place);
        const ech_status status = echi_thread_start(&w->thread, name, worker_main, w, err);
        if (status == ECH_OK) continue;
        stop_workers(p, i);
        return status;
    }
    return ECH_OK;
}

ech_status echi_team_create(int threads, struct echi_team **out, struct ech_error *err) {
    *out = NULL;
    if (threads < 1 || threads > ECHI_TEAM_MOST)
        return echi_fail(err, ECH_E_ARGUMENT, "team.create", "%d threads: 1 to %d are possible", threads, ECHI_TEAM_MOST);
    if (threads == 1) return ECH_OK;
    struct echi_team *p = echi_alloc_aligned(sizeof *p);
    if (!p) return echi_fail_memory(err, "team.create", "threads");
    p->threads = threads;
    p->looks = threads <= echi_cpu_count() ? LOOKS : 1;
    atomic_flag_clear(&p->busy);
    p->shares = echi_alloc_aligned((size_t)threads * sizeof *p->shares);
    p->workers = calloc((size_t)threads, sizeof *p->workers);
    ech_status status = p->shares && p->workers ? make_locks(p, err) : echi_fail_memory(err, "team.create", "threads");
    if (status != ECH_OK) {
        release(p);
        return status;
    }
    if ((status = start_workers(p, err)) != ECH_OK) {
        destroy_locks(p);
        release(p);
        return status;
    }
    *out = p;
    return ECH_OK;
}

void echi_team_destroy(struct echi_team *p) {
    if (!p) return;
    stop_workers(p, p->threads - 1);
    destroy_locks(p);
    release(p);
}
