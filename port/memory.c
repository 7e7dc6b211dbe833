/* SPDX-License-Identifier: Apache-2.0
 * Memory aligned for the widest vector and for a cache line. */
#include "echi_checked.h"
#include "echi_os.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <string.h>

#define ALIGNMENT ((size_t)64)

void *echi_alloc_aligned(size_t bytes) {
    size_t padded;
    if (!echi_add_size(bytes ? bytes : 1, ALIGNMENT - 1, &padded)) return NULL;
    padded &= ~(ALIGNMENT - 1);
    void *p = NULL;
    if (posix_memalign(&p, padded >= (2u << 20) ? (2u << 20) : ALIGNMENT, padded)) return NULL;
    if (padded >= (2u << 20)) madvise(p, padded, MADV_HUGEPAGE);
    return memset(p, 0, padded);
}

void echi_free_aligned(void *p) { free(p); }
