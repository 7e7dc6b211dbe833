/* SPDX-License-Identifier: Apache-2.0
 * Blocks of records; those that are free are a list through their first bytes. */
#include "echi_records.h"

#include <string.h>

void echi_records_init(struct echi_records *p, size_t size, struct echi_supply supply) {
    *p = (struct echi_records){.size = (size + 15) / 16 * 16, .free_one = ECHI_NOTHING, .supply = supply};
}

void echi_records_free(struct echi_records *p) {
    for (uint32_t b = 0; b < p->blocks; b++) p->supply.resize(p->supply.self, p->block[b], 0);
    if (p->block) p->supply.resize(p->supply.self, p->block, 0);
    *p = (struct echi_records){.size = p->size, .free_one = ECHI_NOTHING, .supply = p->supply};
}

static bool another_block(struct echi_records *p) {
    if (p->blocks == p->room) {
        const uint32_t room = p->room ? 2 * p->room : 8;
        unsigned char **more = p->supply.resize(p->supply.self, p->block, room * sizeof *more);
        if (!more) return false;
        p->block = more;
        p->room = room;
    }
    p->block[p->blocks] = p->supply.resize(p->supply.self, NULL, ECHI_RECORDS_BLOCK * p->size);
    if (!p->block[p->blocks]) return false;
    p->blocks++;
    return true;
}

uint32_t echi_records_take(struct echi_records *p) {
    const uint32_t id = p->free_one;
    if (id != ECHI_NOTHING) {
        memcpy(&p->free_one, echi_records_at(p, id), sizeof p->free_one);
        return id;
    }
    if (p->count == p->blocks * ECHI_RECORDS_BLOCK && !another_block(p)) return ECHI_NOTHING;
    return p->count++;
}

void echi_records_give(struct echi_records *p, uint32_t id) {
    memcpy(echi_records_at(p, id), &p->free_one, sizeof p->free_one);
    p->free_one = id;
}
