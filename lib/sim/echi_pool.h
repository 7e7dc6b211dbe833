/* SPDX-License-Identifier: Apache-2.0
 * Records of one size that are named by numbers, come and go by the million, and never move. */
#ifndef ECHI_POOL_H
#define ECHI_POOL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_NOTHING UINT32_MAX       /* the number of no record */
#define ECHI_POOL_BLOCK 256           /* records that are allocated at once */

struct echi_pool { size_t size; unsigned char **block; uint32_t count, blocks, room, free_one; };
void echi_pool_init(struct echi_pool *pool, size_t size);   /* of a record, at least 4 bytes */
void echi_pool_free(struct echi_pool *pool);                /* with all records; harmless on a zeroed one */
uint32_t echi_pool_take(struct echi_pool *pool);            /* its bytes are not set; ECHI_NOTHING: no memory */
void echi_pool_give(struct echi_pool *pool, uint32_t id);
static inline void *echi_pool_at(const struct echi_pool *pool, uint32_t id) {
    return pool->block[id / ECHI_POOL_BLOCK] + (id % ECHI_POOL_BLOCK) * pool->size;
}
#endif
