/* SPDX-License-Identifier: Apache-2.0
 * The exchanges: what differs between them. */
#include "echi_exchange.h"

/* ---- server ---- */

static int from_owner(const struct echi_plan *plan, int rank, int part) { return echi_plan_part_owner(plan, plan->group_of[rank], part); }
static int to_nobody(const struct echi_plan *plan, int rank, int part) { return (void)plan, (void)rank, (void)part, -1; }
static bool answers_all(const struct echi_plan *plan, int owner, int rank) { return (void)plan, (void)owner, (void)rank, true; }

/* ---- ring ---- */

/* An owner gives them to the worker of its own node itself. */
static int from_before(const struct echi_plan *plan, int rank, int part) {
    return echi_plan_part_owner(plan, 0, part) == rank ? rank : echi_ring_before(plan, rank);
}

static int to_next(const struct echi_plan *plan, int rank, int part) {
    const int owner = echi_plan_part_owner(plan, 0, part), next = echi_ring_next(plan, rank);
    return owner == rank || next == owner ? -1 : next;
}

static bool answers_next(const struct echi_plan *plan, int owner, int rank) { return rank == owner || rank == echi_ring_next(plan, owner); }

static const struct echi_exchange_rules table[ECHI_EXCHANGES] = {
    [ECHI_EXCHANGE_SERVER] = {"server", ECHI_KIND_WEIGHTS, from_owner, to_nobody, answers_all},
    [ECHI_EXCHANGE_RING] = {"ring", ECHI_KIND_RING_WEIGHTS, from_before, to_next, answers_next},
};

const struct echi_exchange_rules *echi_exchange_of(const struct echi_plan *plan) {
    return &table[echi_plan_rings(plan) ? ECHI_EXCHANGE_RING : ECHI_EXCHANGE_SERVER];
}

const char *echi_exchange_name(enum echi_exchange exchange) { return table[exchange].name; }
