/* SPDX-License-Identifier: Apache-2.0
 * What the files of the coordinator share. The ledger (ledger.c): which samples are out, with whom, which are in, and which must
 * be issued again. Checkpoints (keep.c). What is saved of a run that cannot go on (rescue.c).
 * Shards of lost owners (takeover.c). */
#ifndef ECHI_LEDGER_H
#define ECHI_LEDGER_H
#include "echi_roles.h"

void echi_ledger_begin(struct echi_coordinator *c);     /* empty */
void echi_ledger_planned(struct echi_coordinator *c);   /* there is a plan: its workers want leases */
/* Gives every living worker the leases it may hold, those that are to be issued again first; under a policy with rounds,
 * whole rounds to all. */
void echi_ledger_deal(struct echi_coordinator *c, struct echi_actions *out);
/* An APPLIED: takes its lease from those that are out. False when it is not out, or not with this owner. Its number counts: what else the
 * message has of the lease went through two nodes, and becomes what was dealt. */
bool echi_ledger_in(struct echi_coordinator *c, struct echi_msg *m, int owner);

/* Asks the owners of lost workers' leases whether they are in. */
void echi_ledger_ask(struct echi_coordinator *c, struct echi_actions *out);
/* The answer: in, then its APPLIED is on the way, or revoked, then it is to be issued again. */
void echi_ledger_answer(struct echi_coordinator *c, const struct echi_lease *lease, int owner, bool in);
/* Its push was too old: it is to be issued again. False when it is not out with this owner. */
bool echi_ledger_dropped(struct echi_coordinator *c, const struct echi_lease *lease, int owner);
/* An owner is lost, and its leases up to each worker's mark are in the state that is kept: those beyond, out or in, are to be
 * issued again. May be asked again with lower marks, until it is settled. */
void echi_ledger_decide(struct echi_coordinator *c, int owner, const uint32_t *mark);
void echi_ledger_settled(struct echi_coordinator *c, int owner);
/* A worker is about to join another group: what it has out is of its stay in the one before. */
void echi_ledger_moved(struct echi_coordinator *c, int rank);
/* A lease of that stay that its worker had not begun: it is to be issued again. One that is not out is no news. */
void echi_ledger_back(struct echi_coordinator *c, const struct echi_lease *lease, int worker);
/* Is all of a worker's last move behind it, and what is in for now only little enough for the head to remember one more? */
bool echi_ledger_has_moved(const struct echi_coordinator *c, int rank);
/* True while samples are left that the user asked for. */
bool echi_ledger_unfinished(const struct echi_coordinator *c);

/* A takeover: nothing is out any more. This round is dealt anew, for the shards that lack it: to each worker the samples whose gradients it
 * has, the rest to anybody. What was dealt of the next one is taken back. */
void echi_ledger_restart(struct echi_coordinator *c, uint32_t round, uint64_t lacking);

/* ---- takeover.c ---- */

/* STANDS has come. */
void echi_takeover_stands(struct echi_coordinator *c, const struct echi_event *e);
/* Is a takeover due, or under way? Then nothing is dealt and nothing evaluated. It is said as soon as all living nodes have stopped. */
bool echi_takeover(struct echi_coordinator *c, struct echi_actions *out);

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
/* A node is lost: a checkpoint in progress is given up, and begun anew once all that was lost is back. */
void echi_keep_lost(struct echi_coordinator *c, int rank, int64_t now);

/* ---- rescue.c ---- */

/* `rank` is lost, and with it the run. False when nothing newer than what is here is to be gathered. */
bool echi_rescue_begin(struct echi_coordinator *c, int rank, struct echi_actions *out);
/* An event in ECHI_RUN_RESCUES. True when the run may end: `final` says whether it has weights. */
bool echi_rescue_step(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);

/* ---- coordinator.c ---- */

/* Asks all living owners to drain, and begins to wait for them. */
void echi_drain(struct echi_coordinator *c, struct echi_actions *out);
#endif
