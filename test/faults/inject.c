/* SPDX-License-Identifier: Apache-2.0 */
#include "inject.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sched.h>
#include <time.h>

enum { CALLERS_MAX = 8192 };

static atomic_long calls[INJECT_CALLS], hits, live;
static void *callers[CALLERS_MAX];
static struct {
    enum inject_call call;
    long first, last;    /* none when last < first */
    unsigned one_in;     /* 0: not by chance */
    uint64_t seed;
    int error;
} plan = {.last = -1};

const char *inject_name(enum inject_call call) {
    static const char *const names[] = {
#define NAME(name) #name,
        INJECT_LIST(NAME)
#undef NAME
    };
    return names[call];
}

void inject_nothing(void) {
    for (int c = 0; c < INJECT_CALLS; c++) atomic_store(&calls[c], 0);
    atomic_store(&hits, 0);
    plan.last = -1;
    plan.one_in = 0;
}

void inject(enum inject_call call, long first, long times, int error) {
    inject_nothing();
    plan.call = call;
    plan.first = first;
    plan.last = first + times - 1;
    plan.error = error;
}

void inject_random(enum inject_call call, uint64_t seed, unsigned one_in, int error) {
    inject_nothing();
    plan.call = call;
    plan.seed = seed;
    plan.one_in = one_in;
    plan.error = error;
}

long inject_calls(enum inject_call call) { return atomic_load(&calls[call]); }
long inject_hits(void) { return atomic_load(&hits); }
long inject_live(void) { return atomic_load(&live); }
void *inject_caller(long n) { return n >= 1 && n <= CALLERS_MAX ? callers[n - 1] : NULL; }

/* splitmix64: the n-th number of a stream. */
static uint64_t noise(uint64_t seed, uint64_t n) {
    uint64_t z = seed + n * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 when this call is to be what it always is, else its error. */
static int verdict(enum inject_call call, void *caller) {
    const long n = atomic_fetch_add(&calls[call], 1) + 1;
    if (call == INJECT_ALLOC && n <= CALLERS_MAX) callers[n - 1] = caller;
    if (call != plan.call) return 0;
    const bool chosen = plan.one_in ? noise(plan.seed, (uint64_t)n) % plan.one_in == 0 : n >= plan.first && n <= plan.last;
    if (!chosen) return 0;
    atomic_fetch_add(&hits, 1);
    return plan.error;
}

#define CALLER __builtin_return_address(0)
/* Declares the real function and what is called in its place; the body follows. The Makefile finds the names by the word at
 * the beginning of a line. */
#define WRAPPED(type, name, ...)                                                                                              \
    type __real_##name(__VA_ARGS__);                                                                                          \
    type __wrap_##name(__VA_ARGS__);                                                                                          \
    type __wrap_##name(__VA_ARGS__)

/* Returns `value` with errno set when the verdict says so. */
#define MAY_FAIL(call, value)                                                                                                 \
    do {                                                                                                                      \
        const int error_ = verdict(INJECT_##call, CALLER);                                                                    \
        if (error_) {                                                                                                         \
            errno = error_;                                                                                                   \
            return value;                                                                                                     \
        }                                                                                                                     \
    } while (0)

/* ------------------------------------------------------------------ memory */

static void *counted(void *p) {
    if (p) atomic_fetch_add(&live, 1);
    return p;
}

WRAPPED(void *, malloc, size_t size) {
    MAY_FAIL(ALLOC, NULL);
    return counted(__real_malloc(size));
}
WRAPPED(void *, calloc, size_t n, size_t size) {
    MAY_FAIL(ALLOC, NULL);
    return counted(__real_calloc(n, size));
}
WRAPPED(void *, realloc, void *old, size_t size) {
    MAY_FAIL(ALLOC, NULL);
    return old ? __real_realloc(old, size) : counted(__real_realloc(old, size));
}
WRAPPED(int, posix_memalign, void **out, size_t alignment, size_t size) {
    const int error = verdict(INJECT_ALLOC, CALLER);
    if (error) return error;
    const int code = __real_posix_memalign(out, alignment, size);
    if (code == 0) counted(*out);
    return code;
}
WRAPPED(void, free, void *p) {
    if (p) atomic_fetch_sub(&live, 1);
    __real_free(p);
}

/* ------------------------------------------------------------------- files */

/* Where the C library has a second name for 64-bit offsets, one of the two is what Echelon calls. */
WRAPPED(int, close, int fd) {
    /* As the kernel does it: also where it fails the descriptor is gone. */
    const int error = verdict(INJECT_CLOSE, CALLER), code = __real_close(fd);
    if (!error) return code;
    errno = error;
    return -1;
}

/* The mode is read also where none was given, and then not used. */
#define OPEN(real)                                                                                                            \
    do {                                                                                                                      \
        va_list args;                                                                                                         \
        va_start(args, flags);                                                                                                \
        const unsigned mode = flags & O_CREAT ? va_arg(args, unsigned) : 0;                                                   \
        va_end(args);                                                                                                         \
        MAY_FAIL(OPEN, -1);                                                                                                   \
        return real(path, flags, mode);                                                                                       \
    } while (0)
WRAPPED(int, open, const char *path, int flags, ...) { OPEN(__real_open); }
WRAPPED(int, open64, const char *path, int flags, ...) { OPEN(__real_open64); }

WRAPPED(int, fstat, int fd, struct stat *out) { MAY_FAIL(STAT, -1); return __real_fstat(fd, out); }
WRAPPED(int, fstat64, int fd, struct stat *out) { MAY_FAIL(STAT, -1); return __real_fstat64(fd, out); }
WRAPPED(int, stat, const char *path, struct stat *out) { MAY_FAIL(STAT, -1); return __real_stat(path, out); }
WRAPPED(int, stat64, const char *path, struct stat *out) { MAY_FAIL(STAT, -1); return __real_stat64(path, out); }
WRAPPED(int, lstat, const char *path, struct stat *out) { MAY_FAIL(STAT, -1); return __real_lstat(path, out); }
WRAPPED(int, lstat64, const char *path, struct stat *out) { MAY_FAIL(STAT, -1); return __real_lstat64(path, out); }
WRAPPED(int, fchmod, int fd, mode_t mode) { MAY_FAIL(CHMOD, -1); return __real_fchmod(fd, mode); }
WRAPPED(int, fsync, int fd) { MAY_FAIL(FSYNC, -1); return __real_fsync(fd); }
WRAPPED(int, rename, const char *from, const char *to) { MAY_FAIL(RENAME, -1); return __real_rename(from, to); }
WRAPPED(int, flock, int fd, int how) { MAY_FAIL(LOCK, -1); return __real_flock(fd, how); }
WRAPPED(FILE *, fopen, const char *path, const char *mode) { MAY_FAIL(STREAM, NULL); return __real_fopen(path, mode); }
WRAPPED(FILE *, fopen64, const char *path, const char *mode) { MAY_FAIL(STREAM, NULL); return __real_fopen64(path, mode); }

/* False when the call is to fail; else how much it is to move. */
static bool cut(int error, size_t *len) {
    if (error == INJECT_SHORT && *len > 1) *len = 1;
    if (error == INJECT_ZERO) *len = 0;
    if (error > 0) errno = error;
    return error <= 0;
}

WRAPPED(ssize_t, read, int fd, void *to, size_t len) {
    const int error = verdict(INJECT_READ, CALLER);
    return cut(error, &len) ? __real_read(fd, to, len) : -1;
}
WRAPPED(ssize_t, write, int fd, const void *from, size_t len) {
    /* A thread is woken by a write, too, to what is no file of any kind. */
    struct stat info;
    const bool wakes = __real_fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == 0;
    const int error = verdict(wakes ? INJECT_WAKE : INJECT_WRITE, CALLER);
    return cut(error, &len) ? __real_write(fd, from, len) : -1;
}

/* ------------------------------------------------------------------ the OS */

WRAPPED(int, pthread_create, pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
    const int error = verdict(INJECT_THREAD, CALLER);
    return error ? error : __real_pthread_create(out, attr, run, arg);
}
WRAPPED(int, getaddrinfo, const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out) {
    const int error = verdict(INJECT_RESOLVE, CALLER);
    return error ? error : __real_getaddrinfo(host, port, hints, out);
}
WRAPPED(int, socket, int family, int type, int protocol) { MAY_FAIL(SOCKET, -1); return __real_socket(family, type, protocol); }
WRAPPED(int, epoll_create1, int flags) { MAY_FAIL(EPOLL, -1); return __real_epoll_create1(flags); }
WRAPPED(int, eventfd, unsigned value, int flags) { MAY_FAIL(EVENTFD, -1); return __real_eventfd(value, flags); }
WRAPPED(int, listen, int fd, int backlog) { MAY_FAIL(LISTEN, -1); return __real_listen(fd, backlog); }
WRAPPED(int, accept4, int fd, struct sockaddr *from, socklen_t *len, int flags) {
    MAY_FAIL(ACCEPT, -1);
    return __real_accept4(fd, from, len, flags);
}
WRAPPED(ssize_t, getrandom, void *out, size_t len, unsigned flags) { MAY_FAIL(ENTROPY, -1); return __real_getrandom(out, len, flags); }
WRAPPED(int, sched_getaffinity, pid_t pid, size_t len, cpu_set_t *out) {
    MAY_FAIL(AFFINITY, -1);
    return __real_sched_getaffinity(pid, len, out);
}
WRAPPED(void *, dlopen, const char *name, int flags) { return verdict(INJECT_LIBRARY, CALLER) ? NULL : __real_dlopen(name, flags); }

/* ---------------------------------------------------------------- the clock */

/* What echi_now reads is the real clock plus `ahead`, or `stopped_at` while it stands still. */
static atomic_llong ahead;
static atomic_bool stopped;
static atomic_llong stopped_at;
int __real_clock_gettime(clockid_t id, struct timespec *out);

static long long nanoseconds(const struct timespec *t) { return t->tv_sec * 1000000000LL + t->tv_nsec; }
static struct timespec timespec_of(long long t) { return (struct timespec){.tv_sec = t / 1000000000, .tv_nsec = t % 1000000000}; }
static long long real_now(void) {
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    return nanoseconds(&t);
}

void inject_clock_jump(int64_t by) { atomic_fetch_add(&ahead, by); }
void inject_clock_stop(bool stop) {
    if (stop == atomic_load(&stopped)) return;
    if (stop) atomic_store(&stopped_at, real_now() + atomic_load(&ahead));
    else atomic_store(&ahead, atomic_load(&stopped_at) - real_now());
    atomic_store(&stopped, stop);
}
void inject_clock_real(void) {
    atomic_store(&stopped, false);
    atomic_store(&ahead, 0);
}

static _Thread_local struct inject_machine *mine;
void inject_clock_follow(struct inject_machine *machine) { mine = machine; }

/* What this thread's machine shows at the real time `now`. */
static long long seen_at(long long now) {
    return (atomic_load(&stopped) ? atomic_load(&stopped_at) : now + atomic_load(&ahead)) + (mine ? atomic_load(&mine->ahead) : 0);
}
WRAPPED(int, clock_gettime, clockid_t id, struct timespec *out) {
    const int code = __real_clock_gettime(id, out);
    if (mine) atomic_fetch_add(&mine->looks, 1);
    if (id == CLOCK_MONOTONIC) *out = timespec_of(seen_at(nanoseconds(out)));
    else if (id == CLOCK_THREAD_CPUTIME_ID && atomic_load(&stopped)) *out = timespec_of(0);
    return code;
}
/* A sleep lasts as long as it seemed when it began: nobody wakes a sleeper because his clock was changed. */
WRAPPED(int, clock_nanosleep, clockid_t id, int flags, const struct timespec *until, struct timespec *left) {
    if (id != CLOCK_MONOTONIC || !(flags & TIMER_ABSTIME)) return __real_clock_nanosleep(id, flags, until, left);
    const long long now = real_now();
    const struct timespec real = timespec_of(now + nanoseconds(until) - seen_at(now));
    return __real_clock_nanosleep(id, flags, &real, left);
}
WRAPPED(int, pthread_cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    const long long now = real_now();
    const struct timespec real = timespec_of(now + nanoseconds(until) - seen_at(now));
    return __real_pthread_cond_timedwait(cond, mutex, &real);
}
