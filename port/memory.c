/* SPDX-License-Identifier: Apache-2.0
 * Memory aligned for the widest vector and for a cache line; large blocks in large pages where the system gives them. */
#include "echi_checked.h"
#include "echi_os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)64)
/* Weights and activations are gone through in strides, so a page of 4 KiB is often needed for a few lines of it: pages of 2 MiB make
 * convolutions 2 to 5 % faster. Linux gives them to whoever asks, and to aligned blocks only. */
#define LARGE_PAGE ((size_t)2 << 20)
#define LARGE ((size_t)16 << 20)   /* blocks from here on are compared with what there is */

/* The nodes of a machine compare and take in turn. Memory counts as taken once it is touched: without turns several nodes would find the
 * same memory, and the kernel would kill one of them. The lock is on the file that reports what there is, since all of them can open it.
 * Any process may hold that lock, so a node waits ten seconds at most. */
#define TURN_TRIES 2000
#define TURN_PAUSE INT64_C(5000000)

static int take_turn(void) {
    const int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    for (int tries = 0; fd >= 0 && tries < TURN_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; tries++)
        echi_sleep_until(echi_now() + TURN_PAUSE);
    return fd;
}

static void *take(size_t padded) {
    const bool paged = padded >= LARGE_PAGE;
    void *p = NULL;
    if (posix_memalign(&p, paged ? LARGE_PAGE : ALIGNMENT, padded)) return NULL;
#ifdef MADV_HUGEPAGE
    if (paged) (void)madvise(p, padded, MADV_HUGEPAGE);   /* a wish: without it all works */
#endif
    return memset(p, 0, padded);
}

void *echi_alloc_aligned(size_t bytes) {
    size_t padded;
    if (!echi_add_size(bytes ? bytes : 1, ALIGNMENT - 1, &padded)) return NULL;
    padded &= ~(ALIGNMENT - 1);
    if (padded < LARGE) return take(padded);
    const int turn = take_turn();
    void *p = padded > echi_memory_available("") ? NULL : take(padded);
    if (turn >= 0) {
        flock(turn, LOCK_UN);   /* a process that was forked meanwhile has it open as well */
        close(turn);
    }
    return p;
}

void echi_free_aligned(void *p) { free(p); }
