/* SPDX-License-Identifier: Apache-2.0
 * What the files of the coordinator share. The ledger (ledger.c): which samples are out, with whom, and which are in.
 * Checkpoints (keep.c). */
#ifndef ECHI_LEDGER_H
#define ECHI_LEDGER_H
#include "echi_roles.h"

/* Gives every worker the leases it may hold; under a policy with rounds, whole rounds to all. */
void echi_ledger_deal(struct echi_coordinator *c, struct echi_actions *out);
/* A lease is in: takes it from those that are out. False when it is not out, or not with this owner. */
bool echi_ledger_in(struct echi_coordinator *c, const struct echi_lease *lease, int owner);
/* True while samples are left that the user asked for. */
bool echi_ledger_unfinished(const struct echi_coordinator *c);

/* ---- keep.c ---- */

/* Sets the first checkpoint's place, once B is known. */
void echi_keep_begin(struct echi_coordinator *c);
/* Nothing is out: begins a checkpoint if that is why, else false: the run is at its end. */
bool echi_keep_quiet(struct echi_coordinator *c, int64_t now, struct echi_actions *out);
/* All owners have drained; at the end of a run too. False when there is nothing to keep. */
bool echi_keep_gather(struct echi_coordinator *c, int64_t now, struct echi_actions *out);
/* A part has come to this place. */
void echi_keep_part(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);
/* The KEEP task is done. True when the end of the run has waited for it. */
bool echi_keep_done(struct echi_coordinator *c, const struct echi_event *e);
#endif
