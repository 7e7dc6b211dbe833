/* SPDX-License-Identifier: Apache-2.0
 * Records of one size that are named by numbers, come and go by the million, and never move. */
#ifndef ECHI_RECORDS_H
#define ECHI_RECORDS_H
#include "echi_supply.h"

#include <stdbool.h>
#include <stdint.h>

#define ECHI_NOTHING UINT32_MAX       /* the number of no record */
#define ECHI_RECORDS_BLOCK 256        /* records that are allocated at once */

struct echi_records { size_t size; unsigned char **block; uint32_t count, blocks, room, free_one; struct echi_supply supply; };
void echi_records_init(struct echi_records *records, size_t size, struct echi_supply supply);   /* size of a record, at least 4 bytes */
void echi_records_free(struct echi_records *records);                /* with all records; harmless on a zeroed one */
uint32_t echi_records_take(struct echi_records *records);            /* its bytes are not set; ECHI_NOTHING: no memory */
void echi_records_give(struct echi_records *records, uint32_t id);
static inline void *echi_records_at(const struct echi_records *records, uint32_t id) {
    return records->block[id / ECHI_RECORDS_BLOCK] + (id % ECHI_RECORDS_BLOCK) * records->size;
}
#endif
