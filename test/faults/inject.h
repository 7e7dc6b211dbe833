/* SPDX-License-Identifier: Apache-2.0
 * Calls of the C library that are made to fail. The programs of this folder are linked with --wrap=NAME for each
 * function WRAPPED in inject.c: what Echelon's objects and the test itself call comes through here, also under sanitizers; what
 * the C library calls inside itself does not. */
#ifndef INJECT_H
#define INJECT_H
#include <stdbool.h>
#include <stdint.h>

/* What can be made to fail. Each is counted by itself. */
#define INJECT_LIST(X)                                                                                                        \
    X(ALLOC)     /* malloc calloc realloc posix_memalign */                                                                   \
    X(OPEN) X(STAT) X(READ) X(WRITE) X(CHMOD) X(FSYNC) X(CLOSE) X(RENAME)                                                     \
    X(WAKE)      /* a write to an eventfd */                                                                                  \
    X(THREAD) X(SOCKET) X(EPOLL) X(EVENTFD) X(LISTEN) X(ACCEPT) X(RESOLVE) X(ENTROPY) X(AFFINITY) X(LIBRARY) X(STREAM)        \
    X(LOCK)      /* flock */
enum inject_call {
#define INJECT_ENUM(name) INJECT_##name,
    INJECT_LIST(INJECT_ENUM)
#undef INJECT_ENUM
    INJECT_CALLS
};
const char *inject_name(enum inject_call call);

/* An `error` that is no errno: the read or write moves one byte, or none. */
#define INJECT_SHORT (-1)
#define INJECT_ZERO (-2)

/* From now on the first-th such call (1: the next), and the times-1 after it, fail with `error` (an errno; for RESOLVE an
 * EAI_ number). Counting starts anew; what was asked before is forgotten. These three only while no thread of the library
 * runs; the calls themselves may come from any thread. */
void inject(enum inject_call call, long first, long times, int error);
/* Each such call fails with a chance of 1 in `one_in`; the seed chooses which. */
void inject_random(enum inject_call call, uint64_t seed, unsigned one_in, int error);
void inject_nothing(void);

long inject_calls(enum inject_call call);   /* since the last of the three above */
long inject_hits(void);                     /* how many of them were made to fail */
long inject_live(void);                     /* allocations not yet freed */
/* Who asked for the n-th allocation (1 is the first since the last of the three above); NULL beyond the 8192th. */
void *inject_caller(long n);

/* --- the clock that echi_now reads. Any thread, any time. --- */
/* A machine's own clock: how far it is ahead of the others' (nanoseconds), and how often it was looked at. */
struct inject_machine { _Atomic int64_t ahead; _Atomic long looks; };
void inject_clock_follow(struct inject_machine *machine);   /* the calling thread lives there from now on */
void inject_clock_jump(int64_t nanoseconds);   /* forward or, negative, backward */
void inject_clock_stop(bool stop);             /* it stands still, processor time too; then goes on from there */
void inject_clock_real(void);
#endif
