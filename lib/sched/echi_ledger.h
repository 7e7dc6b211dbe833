/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's ledger: which samples are out, with whom, and which are in. */
#ifndef ECHI_LEDGER_H
#define ECHI_LEDGER_H
#include "echi_roles.h"

/* Gives every worker the leases it may hold; under a policy with rounds, whole rounds to all. */
void echi_ledger_deal(struct echi_coordinator *c, struct echi_actions *out);
/* A lease is in: takes it from those that are out. False when it is not out, or not with this owner. */
bool echi_ledger_in(struct echi_coordinator *c, const struct echi_lease *lease, int owner);
#endif
