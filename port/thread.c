/* SPDX-License-Identifier: Apache-2.0
 * Threads, mutexes and condition variables. */
#include "echi_error.h"
#include "echi_os.h"
#include "echi_timespec.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

ech_status echi_thread_start(struct echi_thread *t, const char *name, void *(*run)(void *), void *arg, struct ech_error *err) {
    /* Signals belong to the program, not to the library's threads: the new thread inherits a full mask. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&t->handle, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code)
        return echi_fail(err, ECH_E_MEMORY, "thread.start",
                         "cannot start thread '%s' (%s): raise the limits of processes and memory (ulimit -u, -v) or use fewer threads",
                         name, strerror(code));
    char shown[16]; /* the kernel's limit, with the NUL */
    snprintf(shown, sizeof shown, "%s", name);
    pthread_setname_np(t->handle, shown);
    return ECH_OK;
}

void echi_thread_join(struct echi_thread *t) { pthread_join(t->handle, NULL); }
void echi_thread_leave(struct echi_thread *t) { pthread_detach(t->handle); }

int64_t echi_thread_cpu_of(const struct echi_thread *t) {
    struct timespec used = {0};
    clockid_t clock;
    if (pthread_getcpuclockid(t->handle, &clock) == 0) clock_gettime(clock, &used);
    return echi_from_timespec(used);
}

ech_status echi_mutex_init(struct echi_mutex *m, struct ech_error *err) {
    const int code = pthread_mutex_init(&m->handle, NULL);
    return code ? echi_fail_memory(err, "mutex.init", "a mutex") : ECH_OK;
}

void echi_mutex_destroy(struct echi_mutex *m) { pthread_mutex_destroy(&m->handle); }
void echi_mutex_lock(struct echi_mutex *m) { pthread_mutex_lock(&m->handle); }
void echi_mutex_unlock(struct echi_mutex *m) { pthread_mutex_unlock(&m->handle); }

ech_status echi_cond_init(struct echi_cond *c, struct ech_error *err) {
    pthread_condattr_t attr;
    int code = pthread_condattr_init(&attr);
    if (!code) {
        code = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        if (!code) code = pthread_cond_init(&c->handle, &attr);
        pthread_condattr_destroy(&attr);
    }
    return code ? echi_fail_memory(err, "cond.init", "a condition variable") : ECH_OK;
}

void echi_cond_destroy(struct echi_cond *c) { pthread_cond_destroy(&c->handle); }
void echi_cond_signal(struct echi_cond *c) { pthread_cond_signal(&c->handle); }
void echi_cond_broadcast(struct echi_cond *c) { pthread_cond_broadcast(&c->handle); }

bool echi_cond_wait(struct echi_cond *c, struct echi_mutex *m, int64_t deadline) {
    if (deadline == INT64_MAX) return pthread_cond_wait(&c->handle, &m->handle) == 0;
    const struct timespec t = echi_to_timespec(deadline);
    return pthread_cond_timedwait(&c->handle, &m->handle, &t) == 0;
}
