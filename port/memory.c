/* SPDX-License-Identifier: Apache-2.0
 * Memory aligned for the widest vector and for a cache line. */
#include "echi_checked.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT ((size_t)64)
#define LARGE ((size_t)16 << 20)   /* blocks from here on are compared with what there is */

void *echi_alloc_aligned(size_t bytes) {
    size_t padded;
    if (!echi_add_size(bytes ? bytes : 1, ALIGNMENT - 1, &padded)) return NULL;
    padded &= ~(ALIGNMENT - 1);
    if (padded >= LARGE && padded > echi_memory_available("")) return NULL;
    void *p = NULL;
    if (posix_memalign(&p, ALIGNMENT, padded)) return NULL;
    return memset(p, 0, padded);
}

void echi_free_aligned(void *p) { free(p); }
