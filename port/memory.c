/* SPDX-License-Identifier: Apache-2.0
 * Memory aligned for the widest vector and for a cache line; large blocks in large pages where the system gives them. */
#include "echi_checked.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)64)
/* Weights and activations are gone through in strides, so a page of 4 KiB is often needed for a few lines of it: pages of 2 MiB make
 * convolutions 2 to 5 % faster. Linux gives them to whoever asks, and to aligned blocks only. */
#define LARGE_PAGE ((size_t)2 << 20)
#define LARGE ((size_t)16 << 20)   /* blocks from here on are compared with what there is */

void *echi_alloc_aligned(size_t bytes) {
    size_t padded;
    if (!echi_add_size(bytes ? bytes : 1, ALIGNMENT - 1, &padded)) return NULL;
    padded &= ~(ALIGNMENT - 1);
    if (padded >= LARGE && padded > echi_memory_available("")) return NULL;
    const bool paged = padded >= LARGE_PAGE;
    void *p = NULL;
    if (posix_memalign(&p, paged ? LARGE_PAGE : ALIGNMENT, padded)) return NULL;
#ifdef MADV_HUGEPAGE
    if (paged) (void)madvise(p, padded, MADV_HUGEPAGE);   /* a wish: without it all works */
#endif
    return memset(p, 0, padded);
}

void echi_free_aligned(void *p) { free(p); }
