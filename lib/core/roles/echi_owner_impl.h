/* SPDX-License-Identifier: Apache-2.0
 * What the files of the owner share: owner.c (pushes, weights, workers), owner_rounds.c (rounds part by part),
 * owner_ring.c (sums that come round a ring), owner_takeover.c (shards of a lost owner), owner_states.c (states between owners),
 * owner_norms.c (synchronous batch-norm) and owner_report.c (what the coordinator asks for). */
#ifndef ECHI_OWNER_IMPL_H
#define ECHI_OWNER_IMPL_H
#include "echi_exchange.h"
#include "echi_roles.h"

static inline const struct echi_plan *plan_of(const struct echi_owner *o) { return &o->setup->plan; }
static inline bool lives(const struct echi_owner *o, int group) { return echi_plan_group_lives(plan_of(o), group); }
static inline int reserve_of(const struct echi_owner *o) { return echi_plan_reserve(plan_of(o)); }
static inline bool several(const struct echi_owner *o) { return plan_of(o)->n_groups > 1; }
static inline bool keeps_state(const struct echi_owner *o) { return several(o) && !o->alone; }
static inline bool coded(const struct echi_owner *o) { return plan_of(o)->codec != ECHI_CODEC_DENSE; }

/* A task; there is one at a time. */
static inline struct echi_task *compute(struct echi_owner *o, enum echi_task_kind kind, struct echi_actions *out) {
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = (uint8_t)kind;
    t->role = ECHI_ROLE_OWNER;
    o->busy = 1;
    return t;
}

/* Does this owner send weights to that worker itself? */
static inline bool answers(const struct echi_owner *o, int rank) {
    return echi_exchange_of(plan_of(o))->answers(plan_of(o), o->setup->rank, rank);
}

/* ---- owner.c ---- */

/* Asks for the step by a sum or a push, of `samples` samples, into snapshot `to`. */
struct echi_task *echi_owner_apply(struct echi_owner *o, struct echi_slot grads, const struct echi_lease *lease, uint32_t samples,
                                   uint32_t divisor, uint8_t to, struct echi_actions *out);
uint8_t echi_owner_free_snapshot(const struct echi_owner *o);   /* ECHI_NONE: wait for a SENT */
/* Is it for this owner? */
bool echi_owner_wants(const struct echi_owner *o, const struct echi_lease *lease);
/* Is this lease applied, or certain to be? */
bool echi_owner_has(const struct echi_owner *o, const struct echi_lease *lease);
/* A push of this stay has come from a worker that had run out. */
void echi_owner_enters(struct echi_owner *o, int rank, uint32_t joined);
/* Of a push what is behind its lease: what it says of that. */
void echi_owner_note_push(struct echi_push *push, const struct echi_msg *msg);
void echi_owner_owe(struct echi_owner *o, int rank, int times);
/* One part of the weights in snapshot `from`, to a worker. */
void echi_owner_send_part(struct echi_owner *o, int rank, uint8_t from, int part, uint64_t version, uint64_t samples,
                          struct echi_actions *out);
/* The pushes of a round are in the weights: tells the coordinator, and who was not sent the weights part by part is owed them. */
void echi_owner_end_round(struct echi_owner *o, const struct echi_ranks *have, struct echi_actions *out);

/* ---- owner_report.c ---- */

void echi_owner_report(struct echi_owner *o, struct echi_actions *out);   /* after each event: what the coordinator has asked for */

/* ---- owner_rounds.c ---- */

void echi_rounds_init(struct echi_owner *o);
/* A part of a push has come, and is noted in o->push[]. */
void echi_rounds_part(struct echi_owner *o, int rank, int part, struct echi_actions *out);
/* Weights of the round under way, to whom there is a place for; a part of them has left for `rank`; `rank` is lost. */
void echi_rounds_answer(struct echi_owner *o, struct echi_actions *out);
int echi_rounds_open(const struct echi_owner *o);   /* answers to other nodes, among the sends, that wait for more parts of the round */
void echi_rounds_left(struct echi_owner *o, int rank);
void echi_rounds_lost(struct echi_owner *o, int rank);
/* So many samples of a part have come, of this lease or of several of which it stands first in the data. */
void echi_rounds_come(struct echi_owner *o, const struct echi_lease *lease, int part, uint32_t samples);
/* All of a push is in the weights, in the sum, or was before? Then it is a part of the round. */
void echi_rounds_end_push(struct echi_owner *o, int rank, struct echi_actions *out);
/* The next task; and what is to be done when it has ended. */
void echi_rounds_pump(struct echi_owner *o, struct echi_actions *out);
void echi_rounds_computed(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out);

/* A takeover: all pushes are forgotten, and sums that have not been applied begin anew. What is applied stays. */
void echi_rounds_anew(struct echi_owner *o);
/* The round before is open again, all parts of `own` applied: of those that this owner has taken since nothing is in. */
void echi_rounds_reopen(struct echi_owner *o, const struct echi_part_set *own);

/* ---- owner_ring.c (PROTOCOL.md, "Ring") ---- */

void echi_ring_start(struct echi_owner *o, struct echi_actions *out);   /* the places of sums */
/* RING_SUM, RING_LEASE have come. */
void echi_ring_message(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out);
/* A part's sum, if one waits, goes to a task; that task has ended. */
void echi_ring_take(struct echi_owner *o, int part, struct echi_task *t);
void echi_ring_taken(struct echi_owner *o, const struct echi_task *t, struct echi_actions *out);
/* The last part of a round waits until all its leases are known here. */
bool echi_ring_holds_back(const struct echi_owner *o);
void echi_ring_end_round(struct echi_owner *o);

/* ---- owner_takeover.c (PROTOCOL.md, "Takeover") ---- */

void echi_owner_list_parts(struct echi_owner *o);
/* A node is lost; shards of lost owners have new ones. */
void echi_owner_stop(struct echi_owner *o);
void echi_owner_takeover(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out);
/* Is this push of before the takeover, or of one that is to come? Then its part's place is posted again. */
bool echi_owner_passes_over(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out);
/* A worker's word that it knows of the takeover. */
void echi_owner_resume(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out);
/* The next task of a takeover, or its end; and after each event the word that this owner has stopped. */
void echi_owner_takes(struct echi_owner *o, struct echi_actions *out);
void echi_owner_stands(struct echi_owner *o, struct echi_actions *out);

/* ---- owner_states.c; without several groups there is nothing to do in any of these ---- */

/* After each event: places for the others' next states; this group's state to the others, when it is time. */
void echi_states_post(struct echi_owner *o, struct echi_actions *out);
void echi_states_exchange(struct echi_owner *o, struct echi_actions *out);
/* The group's state, in `slot`, to all others: without a codec at once, else when ENCODE has written it. */
void echi_states_send(struct echi_owner *o, struct echi_slot slot, bool whole, struct echi_actions *out);

/* R: no group runs further ahead than this of what the others are known to have; the ledger keeps what they may lack. */
bool echi_states_too_far_ahead(const struct echi_owner *o);
/* The version that no loss of an owner can take back: all others have it. The reserve does not count: when it alone is left, nobody can
 * be lost (echi_plan_can_lose). */
uint64_t echi_states_safe(const struct echi_owner *o);
/* Has everyone who takes part this group's state as it is, complete? */
bool echi_states_all_have(const struct echi_owner *o);
/* Workers have come or gone: the reserve wakes with its first and sleeps without any. */
void echi_states_reserve(struct echi_owner *o);
/* Of the reserve's owner, awake: have all others sent what they did while it slept? */
bool echi_states_caught_up(const struct echi_owner *o);
/* Samples in all groups' states as they are here. */
uint64_t echi_states_samples(const struct echi_owner *o);
/* Names them in a task that makes weights. */
void echi_states_name(const struct echi_owner *o, struct echi_task *t);

/* Asks for a task that takes in a coded state, if one has come; and what is to be done when it has ended. */
bool echi_states_decode(struct echi_owner *o, struct echi_actions *out);
void echi_states_decoded(struct echi_owner *o, int group, struct echi_actions *out);

/* STATE, STATE_ACK, FROZEN have come; a state has left. */
void echi_states_message(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out);
void echi_states_sent(struct echi_owner *o, struct echi_slot slot);
/* A node is lost: what is here of its group's state is told to the coordinator, which then says who has the last: rank `from`, this
 * node or one that hands it on. */
void echi_states_lost(struct echi_owner *o, int rank, struct echi_actions *out);
void echi_states_last(struct echi_owner *o, int group, uint16_t from, struct echi_actions *out);

/* ---- owner_norms.c ---- */

/* NORM has come; a lease is revoked that was not in; this round is applied. */
void echi_norms_message(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out);
void echi_norms_revoke(struct echi_owner *o, const struct echi_lease *l);
void echi_norms_applied(struct echi_owner *o, uint32_t round);
/* Asks for a task that puts sums together, if all that are expected are here; and what is to be done when it has ended. */
bool echi_norms_join(struct echi_owner *o, struct echi_actions *out);
void echi_norms_joined(struct echi_owner *o, struct echi_actions *out);
#endif
