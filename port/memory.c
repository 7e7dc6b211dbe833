/* SPDX-License-Identifier: Apache-2.0
 * Memory aligned for the widest vector and for a cache line; large blocks in large pages where the system gives them. */
#include "echi_checked.h"
#include "echi_os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)64)
/* Weights and activations are gone through in strides, so a page of 4 KiB is often needed for a few lines of it: pages of 2 MiB make
 * convolutions 2 to 5 % faster. Linux gives them to whoever asks, and to aligned blocks only. */
#define LARGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4096)   /* the least there is */
#define LARGE ((size_t)1 << 20)    /* blocks from here on are compared with what there is, and leave SPARE of it */
/* Smaller blocks, threads' stacks and the kernel's own (sockets, page tables) are not compared: of them four nodes on one machine take this
 * much at most before the next large block is asked for. */
#define SPARE ((size_t)16 << 20)

/* The nodes of a machine compare and take in turn. Memory counts as taken once it is touched: without turns several nodes would find the
 * same memory, and the kernel would kill one of them. The lock is on the file that reports what there is, since all of them can open it.
 * Any process may hold that lock, one that was stopped too, so a node waits two seconds at most, less than after which its compute thread
 * would be taken for dead; and where it did in vain, half a second for each block from then on, until it gets its turn again. */
#define TURN_TRIES 2000
#define TURN_TRIES_THEN 500
#define TURN_PAUSE 1000000   /* nanoseconds from now, not until a time: a clock that jumps back would hold a node up */
static atomic_int tries_most = TURN_TRIES;

static int take_turn(void) {
    const int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fd;
    const int most = atomic_load(&tries_most);
    for (int tries = 1; flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; tries++) {
        if (tries >= most) {
            atomic_store(&tries_most, TURN_TRIES_THEN);
            return fd;
        }
        echi_sleep(TURN_PAUSE);
    }
    atomic_store(&tries_most, TURN_TRIES);
    return fd;
}

/* A block of a large page and more is a mapping of its own, which goes back to the system when it is freed. malloc keeps such a block or
 * not by what was freed before it, so that two runs of one plan would differ by megabytes. It begins at a large page, behind what is to be
 * unmapped. */
struct mapping { void *at; size_t bytes; };

/* Under AddressSanitizer all blocks are malloc's, which sees who writes beyond them. */
#if defined(__SANITIZE_ADDRESS__)
#define MAPS false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MAPS false
#endif
#endif
#ifndef MAPS
#define MAPS true
#endif

static bool at_large_page(const void *p) { return ((uintptr_t)p & (LARGE_PAGE - 1)) == 0; }

/* Zeros, and memory, not only addresses: each page has been written to. */
static void *map(size_t padded) {
    struct mapping m;
    if (!echi_add_size(padded, LARGE_PAGE, &m.bytes)) return NULL;
    m.at = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m.at == MAP_FAILED) return NULL;
    uint8_t *block = (uint8_t *)m.at + (LARGE_PAGE - ((uintptr_t)m.at & (LARGE_PAGE - 1)));   /* a page before it at least is mapped */
    ((struct mapping *)(void *)block)[-1] = m;
#ifdef MADV_HUGEPAGE
    (void)madvise(block, padded, MADV_HUGEPAGE);   /* a wish: without it all works */
#endif
    for (size_t at = 0; at < padded; at += SMALL_PAGE) ((volatile uint8_t *)block)[at] = 0;
    return block;
}

/* Where blocks are mapped, none of malloc's begins at a large page: echi_free_aligned tells them apart by that. */
static void *from_malloc(size_t padded) {
    void *p = NULL;
    if (posix_memalign(&p, MAPS || padded < LARGE_PAGE ? ALIGNMENT : LARGE_PAGE, padded)) return NULL;
    if (!MAPS || !at_large_page(p)) return p;
    void *other = from_malloc(padded);
    free(p);
    return other;
}

static void *take(size_t padded) {
    if (MAPS && padded >= LARGE_PAGE) return map(padded);
    void *p = from_malloc(padded);
    return p ? memset(p, 0, padded) : NULL;
}

static void end_turn(int turn) {
    if (turn < 0) return;
    flock(turn, LOCK_UN);   /* a process that was forked meanwhile has it open as well */
    close(turn);
}

size_t echi_memory_for_blocks(void) {
    const size_t available = echi_memory_available("");
    return available == SIZE_MAX ? SIZE_MAX : available > SPARE ? available - SPARE : 0;
}

void *echi_alloc_aligned(size_t bytes) {
    size_t padded;
    if (!echi_add_size(bytes ? bytes : 1, ALIGNMENT - 1, &padded)) return NULL;
    padded &= ~(ALIGNMENT - 1);
    if (padded < LARGE) return take(padded);
    const int turn = take_turn();
    void *p = padded > echi_memory_for_blocks() ? NULL : take(padded);
    end_turn(turn);
    return p;
}

void echi_free_aligned(void *p) {
    if (!MAPS || !p || !at_large_page(p)) {
        free(p);
        return;
    }
    const struct mapping m = ((struct mapping *)p)[-1];
    munmap(m.at, m.bytes);
}

void *echi_reserve(size_t bytes) {
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
#ifdef MADV_NOHUGEPAGE
    (void)madvise(p, bytes ? bytes : 1, MADV_NOHUGEPAGE);   /* else a byte would take 2 MiB around it */
#endif
    return p;
}

void echi_release(void *reserved, size_t bytes) {
    if (reserved) munmap(reserved, bytes ? bytes : 1);
}

bool echi_reserve_take(void *reserved, size_t at, size_t len) {
    uint8_t *first = (uint8_t *)reserved + at;
    const int turn = len < LARGE ? -1 : take_turn();
    const bool there = len < LARGE || len <= echi_memory_for_blocks();
#ifdef MADV_HUGEPAGE
    const uintptr_t large = ((uintptr_t)first + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1), end = ((uintptr_t)first + len) & ~(LARGE_PAGE - 1);
    if (there && end > large) (void)madvise(first + (large - (uintptr_t)first), end - large, MADV_HUGEPAGE);
#endif
    if (there) memset(first, 0, len);
    end_turn(turn);
    return there;
}
