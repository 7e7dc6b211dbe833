/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's ledger: which samples are out, with whom, which are in, and which must be issued again. */
#ifndef ECHI_LEDGER_H
#define ECHI_LEDGER_H
#include "echi_roles.h"

/* Gives every living worker the leases it may hold, those that are to be issued again first; under a policy with rounds,
 * whole rounds to all. */
void echi_ledger_deal(struct echi_coordinator *c, struct echi_actions *out);
/* An APPLIED: takes its lease from those that are out. False when it is not out, or not with this owner. */
bool echi_ledger_in(struct echi_coordinator *c, const struct echi_msg *m, int owner);

/* Asks the owners of lost workers' leases whether they are in. */
void echi_ledger_ask(struct echi_coordinator *c, struct echi_actions *out);
/* The answer: in, then its APPLIED is on the way, or revoked, then it is to be issued again. */
void echi_ledger_answer(struct echi_coordinator *c, const struct echi_lease *lease, bool in);
/* An owner is lost, and its leases up to each worker's mark are in the state that is kept: those beyond, out or in, are to be
 * issued again. May be asked again with lower marks, until it is settled. */
void echi_ledger_decide(struct echi_coordinator *c, int owner, const uint32_t mark[ECHI_WORLD_MAX]);
void echi_ledger_settled(struct echi_coordinator *c, int owner);
#endif
