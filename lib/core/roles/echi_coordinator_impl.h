/* SPDX-License-Identifier: Apache-2.0
 * What the files of the coordinator share: coordinator.c (plan, first weights, what is next, messages), coordinator_eval.c
 * (evaluations), coordinator_moves.c (moves of workers), coordinator_rates.c (links and ratios while a run goes), coordinator_shares.c
 * (shares of rounds), coordinator_homes.c (where the separated layers are), coordinator_outlook.c (is another plan better by now),
 * coordinator_losses.c (lost nodes), coordinator_peers.c (complaints and silence), coordinator_end.c (drain and end), ledger.c (leases),
 * keep.c (checkpoints), rescue.c (the newest weights of a run that cannot go on) and takeover.c (shards of lost owners). */
#ifndef ECHI_COORDINATOR_IMPL_H
#define ECHI_COORDINATOR_IMPL_H
#include "echi_roles.h"

#include <string.h>

static inline const struct echi_plan *plan_of(const struct echi_coordinator *c) { return &c->plan; }
static inline bool is_lost(const struct echi_coordinator *c, int rank) { return c->plan.lost[rank]; }
static inline bool is_here(const struct echi_coordinator *c, int rank) { return !is_lost(c, rank) && !c->request.absent[rank]; }
static inline int living(const struct echi_coordinator *c) { return c->request.world - c->n_lost; }

static inline void tell_all(struct echi_coordinator *c, enum echi_kind kind, struct echi_actions *out) {
    for (int r = 0; r < c->request.world; r++)
        if (!is_lost(c, r)) echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, kind);
}

/* Begins to wait for so many answers. */
static inline void wait_for(struct echi_coordinator *c, int answers) {
    memset(c->mark, 0, sizeof c->mark);
    memset(c->quiet, 0, sizeof c->quiet);
    c->waits_for = answers;
}

/* True when this was the last answer; each node counts once. */
static inline bool last_answer(struct echi_coordinator *c, int from) {
    if (c->mark[from]) return false;
    c->mark[from] = true;
    return --c->waits_for == 0;
}

static inline void send_params(struct echi_action *a, enum echi_params what, struct echi_slot slot) {
    a->slot = slot;
    a->msg.flag = (uint8_t)what;
}

/* ---- coordinator.c ---- */

/* All step times are here: the plan, which all are told; then, when all are ready, first weights to all owners. */
void echi_make_plan(struct echi_coordinator *c, int64_t now, struct echi_actions *out);
void echi_feed(struct echi_coordinator *c, struct echi_actions *out);
/* A node is lost meanwhile; `head`: it was the head, or its shadow. */
void echi_feed_lost(struct echi_coordinator *c, int rank, bool head, int64_t now);

/* ---- coordinator_eval.c ---- */

/* The next evaluation is due at the first multiple of eval_every behind so many samples. */
void echi_eval_next_after(struct echi_coordinator *c, uint64_t samples);
void echi_eval_hold(struct echi_coordinator *c, int64_t now, struct echi_actions *out);
void echi_eval_held(struct echi_coordinator *c, int64_t now, struct echi_actions *out);   /* all do */
/* In rounds: so many samples the head's weights will have once its last update is done; else 0. */
uint64_t echi_samples_at_head(const struct echi_coordinator *c);
/* Asks for the weights, for an evaluation in this phase; for those of one shard. */
void echi_eval_ask(struct echi_coordinator *c, enum echi_run_phase phase, struct echi_actions *out);
void echi_eval_ask_trunk(struct echi_coordinator *c, int shard, struct echi_actions *out);
void echi_eval_ask_new_head(struct echi_coordinator *c, struct echi_actions *out);   /* where the head that was asked is lost */
/* For a checkpoint and a rescue, too. Asks this role of `rank` for a copy of its weights or its momentum, which comes to this place of
 * COORD_PARAMS, part by part where it owns shards. A message of one has come: has the last? */
void echi_ask_copy(struct echi_coordinator *c, int rank, enum echi_role role, enum echi_ask what, uint8_t place, struct echi_actions *out);
bool echi_copy_is_whole(struct echi_coordinator *c, const struct echi_event *e);
/* A copy of them has come; the accuracy is here; a node is lost. */
void echi_eval_whole(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);   /* rank 0's worker has them */
void echi_eval_copy(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);
void echi_eval_done(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);
void echi_eval_lost(struct echi_coordinator *c, int rank, int64_t now, struct echi_actions *out);

/* ---- coordinator_moves.c ---- */

/* What a step took, by its worker's word. */
void echi_moves_watch(struct echi_coordinator *c, const struct echi_msg *m, int64_t now);
/* Does the change that is due, if it can be now. True when all nodes are being told. */
bool echi_moves_change(struct echi_coordinator *c, struct echi_actions *out);

/* ---- coordinator_shares.c ---- */

/* Gives rounds other shares when that is due: those that are dealt from now on have them. */
void echi_shares_follow(struct echi_coordinator *c, int64_t now);
bool echi_shares_may_follow(const struct echi_coordinator *c);

/* ---- coordinator_homes.c ---- */

void echi_homes_planned(struct echi_coordinator *c);
/* PACE has come. A lease is in: is the head better elsewhere by now? */
void echi_homes_pace(struct echi_coordinator *c, const struct echi_event *e);
void echi_homes_follow(struct echi_coordinator *c, int64_t now);
/* Are the separated layers to have other nodes now? Then nothing new is dealt. */
void echi_homes_wait(struct echi_coordinator *c, int64_t now);
/* Nothing is out: begins with it if that is why, else false. */
bool echi_homes_begin(struct echi_coordinator *c, struct echi_actions *out);
/* All owners have drained; a node has no memory for a copy, or has it whole; a node is lost; what is next. */
void echi_homes_settled(struct echi_coordinator *c, int64_t now, struct echi_actions *out);
void echi_homes_full(struct echi_coordinator *c, int rank);
void echi_homes_started(struct echi_coordinator *c, const struct echi_event *e);
void echi_homes_go_on(struct echi_coordinator *c, struct echi_actions *out);
void echi_homes_lost(struct echi_coordinator *c);

/* ---- coordinator_losses.c ---- */

/* Goes on without a node, or ends the run with this status. */
void echi_lose(struct echi_coordinator *c, int rank, ech_status status, const char *text, int64_t now, struct echi_actions *out);
/* A node's user wants it to leave; `run`: and the run to end. */
void echi_leave(struct echi_coordinator *c, int rank, bool run, int64_t now, struct echi_actions *out);
/* Is it agreed what is left of the state of every lost group? */
bool echi_losses_settled(const struct echi_coordinator *c);
/* REVOKED has come; READY of a membership epoch. */
void echi_losses_revoked(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);
void echi_losses_ready(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);

/* ---- coordinator_peers.c ---- */

void echi_peers_complain(struct echi_coordinator *c, int from, int about, const char *reason, int64_t now, struct echi_actions *out);
/* Judges complaints and silence, and says when the next TIME is wanted. */
void echi_peers_set_alarm(struct echi_coordinator *c, int64_t now, struct echi_actions *out);

/* ---- coordinator_end.c ---- */

/* Asks all living owners to drain, and begins to wait for them. */
int echi_living_owners(const struct echi_coordinator *c);
void echi_drain(struct echi_coordinator *c, struct echi_actions *out);
/* All have drained, and the checkpoint is written. */
void echi_end_drained(struct echi_coordinator *c, int64_t now, struct echi_actions *out);
/* Ends the run in order, with the final weights; a node has said its last word. */
void echi_end_run(struct echi_coordinator *c, struct echi_actions *out);
void echi_end_said(struct echi_coordinator *c, int from, struct echi_actions *out);
/* An orderly end before the run has done all that it was to do; or one with a status, behind the rescue of what is left. */
void echi_stop(struct echi_coordinator *c, struct echi_actions *out);
void echi_end_with(struct echi_coordinator *c, ech_status status, int peer, const char *text, struct echi_actions *out);
void echi_end_failed(struct echi_coordinator *c, struct echi_actions *out);
/* The run is over for `rank`, and not as it was asked for. */
void echi_end_send(struct echi_actions *out, int rank, ech_status status, int peer, const char *text);

/* ---- ledger.c: which samples are out, with whom, which are in, and which must be issued again ---- */

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

/* ---- coordinator_rates.c ---- */

/* RATE has come. */
void echi_rates_heard(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out);
/* Sets other ratios when that is due: leases that are dealt from now on name them. */
void echi_rates_follow(struct echi_coordinator *c, int64_t now);
/* What a lease of this group says of it; 0: what the plan has. */
uint32_t echi_rates_base(const struct echi_coordinator *c, int group);

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
#endif
