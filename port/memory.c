/* SPDX-License-Identifier: Apache-2.0
 * Memory aligned for the widest vector and for a cache line. */
#include "echi_checked.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)64)
/* Blocks of some pages of the larger kind begin with one and ask for them: rows of large matrices would use up the processor's list of
 * pages otherwise. Where there are none nothing is lost. */
#define HUGE_PAGE ((size_t)2 << 20)

void *echi_alloc_aligned(size_t bytes) {
    size_t padded;
    if (!echi_add_size(bytes ? bytes : 1, ALIGNMENT - 1, &padded)) return NULL;
    padded &= ~(ALIGNMENT - 1);
    void *p = NULL;
    const bool huge = padded >= 2 * HUGE_PAGE;
    if (posix_memalign(&p, huge ? HUGE_PAGE : ALIGNMENT, padded)) return NULL;
    if (huge) (void)madvise(p, padded, MADV_HUGEPAGE);
    return memset(p, 0, padded);
}

void echi_free_aligned(void *p) { free(p); }
