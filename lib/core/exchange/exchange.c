/* SPDX-License-Identifier: Apache-2.0
 * The exchanges: what differs between them. */
#include "echi_exchange.h"

static bool answers_all(const struct echi_plan *plan, int owner, int rank) { return (void)plan, (void)owner, (void)rank, true; }
static bool answers_next(const struct echi_plan *plan, int owner, int rank) { return rank == owner || rank == echi_ring_next(plan, owner); }

static const struct echi_exchange_rules table[ECHI_EXCHANGES] = {
    [ECHI_EXCHANGE_SERVER] = {"server", ECHI_KIND_WEIGHTS, answers_all},
    [ECHI_EXCHANGE_RING] = {"ring", ECHI_KIND_RING_WEIGHTS, answers_next},
};

const struct echi_exchange_rules *echi_exchange_of(const struct echi_plan *plan) {
    return &table[echi_plan_rings(plan) ? ECHI_EXCHANGE_RING : ECHI_EXCHANGE_SERVER];
}

const char *echi_exchange_name(enum echi_exchange exchange) { return table[exchange].name; }
