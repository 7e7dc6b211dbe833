/* SPDX-License-Identifier: Apache-2.0
 * The roles. Each is a struct that its driver holds and one function that takes an event and appends actions. Their
 * fields are for the role itself and for tests; a driver reads only what the comments name, and one file of it, which tells
 * a person who waits for whom, may read all (lib/drive/live/node_tell.c). */
#ifndef ECHI_ROLES_H
#define ECHI_ROLES_H
#include "echi_what_if.h"
#include "echi_curve.h"
#include "echi_event.h"
#include "echi_follow.h"
#include "echi_loan.h"
#include "echi_ranks.h"
#include "echi_reach.h"
#include "echi_regroup.h"
#include "echi_replan.h"
#include "echi_staleness.h"
#include "echi_sync.h"
#include "echi_usage.h"

/* ---- worker: computes forward and backward ---- */
enum echi_flight_phase { ECHI_FLIGHT_WAITS_WEIGHTS, ECHI_FLIGHT_IDLE, ECHI_FLIGHT_FORWARD, ECHI_FLIGHT_WAITS_HEAD,
                         ECHI_FLIGHT_ANSWERED, ECHI_FLIGHT_BACKWARD, ECHI_FLIGHT_WAITS_NORM, ECHI_FLIGHT_WAITS_PART,
                         ECHI_FLIGHT_WAITS_SHADOW };
/* What the head has answered of a micro-batch: where, samples in its weights, and of the rows the loss and hits. */
struct echi_answer { struct echi_slot slot; uint64_t head; double loss; uint32_t correct; };
/* One step in flight. Each flight computes on the weights that answer its own last push. */
struct echi_flight {
    enum echi_flight_phase phase;
    uint32_t since;                               /* which of several flights has been in this phase the longest */
    uint8_t weights;                              /* WORKER_WEIGHTS slot that it has whole */
    uint64_t version, samples;                    /* of those weights */
    /* The slot that the step in hand computes on; early: its weights are not whole yet, and of each micro-batch the layers in front of
     * `gone` went forward. */
    uint8_t place; bool early; uint16_t gone[ECHI_MICRO_MAX];
    /* Micro-batches of the step; so many have gone forward, and their rows have left, and backward; which the head has answered, a bit
     * each, and what; and so many have copies of rows that are not known to be at the head's shadow. */
    uint8_t micros, forwards, backwards, answered, copies;
    struct echi_answer answer[ECHI_MICRO_MAX];
    struct echi_lease lease;                      /* being computed */
    struct echi_slot grads;                       /* where its gradients are */
    uint64_t head;                                /* samples in the head's weights that it came from */
    uint16_t head_rank;                           /* who trains its rows, and answers */
    double loss; uint32_t correct;
    int next_part;                                /* the part whose gradient travels next, from the last down */
    int sending;                                  /* gradients and rows on their way out: their slots are not free yet */
    uint32_t joined;                              /* as in the worker, when the step began */
    bool abandoned;                               /* its owner is lost: the step goes no further than what is under way */
    uint16_t part;                                /* sync_norm: of the step, see struct echi_task; that which is computed or was last */
    uint32_t norm_samples;                        /* WAITS_NORM: what the owner has answered is of so many; 0: it has not yet */
    bool norm_sending;                            /* those of the lease have not left their slot */
    bool ready[ECHI_UNITS_MAX];                   /* by layer: gradients that are there */
};
/* Policy `local` (worker_local.c): the change that a lease's steps made, on its way to the owner. */
struct echi_delta {
    struct echi_lease lease;
    bool held;                                    /* of a round whose weights have not come: it waits for them */
    int sending;                                  /* parts on their way out */
    uint64_t seen;                                /* as echi_push.seen */
    double loss; uint32_t correct;
};
/* What most events touch lies in front of the long arrays: a thousand workers of a simulation do not fit into a cache. */
struct echi_worker {
    const struct echi_setup *setup;
    const struct echi_policy *policy;
    const struct echi_sync_rules *rules;
    int parts, weight_parts;                      /* messages of a push, and of weights, of all owners of the group */
    bool by_part;                                 /* a forward may begin while weights come: each layer waits for its own parts only */
    bool in_weights;                              /* gradients lie where the next weights come to: nobody is lost yet */
    int n_leases;                                 /* in lease[] */
    uint8_t answers;                              /* WORKER_ACT_GRAD slots (bits) that have an answer of the head */
    uint16_t answers_from[ECHI_STACKS];           /* by slot: the rank whose answer comes there; ECHI_NO_RANK */
    uint32_t turns;                               /* changes of phase so far */
    bool entered;                                 /* the owner knows that this worker holds a lease */
    int head, shadow;                             /* ranks, as the plan has them; before a loss is told */
    struct echi_ranks heads;                      /* those, and who was one of both before */
    uint16_t owner;                               /* rank: who answers with weights; another when that one is lost, or this worker moved */
    uint32_t joined;                              /* membership epoch at which it became the owner */
    bool arriving;                                /* steps for the owner before are not over yet */
    bool given;                                   /* its weights were asked for, since the run cannot go on: it does nothing more */
    uint64_t awaited;                             /* the coordinator waits until weights of so many samples are whole here; 0: no */
    uint16_t posted[ECHI_WORKER_PLACES];          /* by WORKER_WEIGHTS slot, coded WORKER_COMING slot: the rank whose weights come there
                                                     next, or still have to be decoded; ECHI_NO_RANK */
    /* What its steps take, for the planner: a task is out since, summed up since the last push, which left at. ns */
    int tasks; uint64_t busy_since, busy, pushed_at;
    /* codec top-k (PROTOCOL.md, "Two kinds of link") */
    bool fresh;                                   /* the residual begins anew with the next step */
    uint64_t residuals_cleared;                   /* given up since their owner was lost; the driver reads it */
    uint8_t spare;                                /* WORKER_WEIGHTS slots (bits) that no flight and no task has */
    uint8_t queue[ECHI_FLIGHTS]; int queued;      /* these slots in order of arrival, decoded one at a time */
    bool decoding; uint8_t source, target;        /* slots of the DECODE task that is out */
    uint32_t number;                              /* of the last message of this link */
    struct echi_flight flight[ECHI_FLIGHTS];
    struct {                                      /* worker_takeover.c; flight[0] is the only one */
        bool still, told;                         /* an owner is lost: nothing begins any more; the coordinator knows where it stopped */
        bool has;                                 /* weights, which are those of its version */
        bool gradients; struct echi_lease of;     /* those of this lease, whole, are still in their place */
        uint32_t members;                         /* membership epoch of the last loss */
        uint16_t owner[ECHI_SHARDS_MAX];          /* whose weights the places are posted for */
    } takeover;
    struct {                                      /* worker_ring.c; flight[0] is the only one */
        bool on;                                  /* until a takeover has ended it */
        int tasks, sending;                       /* ADD that are out; sums on their way out */
        struct echi_ranks sharing; uint32_t dealt;   /* who has a share of a round of so many samples; 0: of none yet */
        struct echi_lease of;                     /* whose gradients go round: the next step may have begun to go forward meanwhile */
        struct echi_part_set here, ready;         /* parts whose sum waits for the gradients of this node, and the other way round */
        struct echi_lease first[ECHI_PARTS_MAX]; uint32_t samples[ECHI_PARTS_MAX];   /* of the sums, as in RING_SUM */
        struct echi_part_set spent;               /* their places are free when nothing is on its way out any more */
        /* By WORKER_WEIGHTS slot: weights that are on their way out, and parts that are posted again when none are. */
        int handed[ECHI_WORKER_PLACES]; struct echi_part_set vacant[ECHI_WORKER_PLACES];
    } ring;
    struct echi_lease lease[ECHI_LEASES_HELD];    /* that no flight has begun */
    /* By slot, as in posted[]: of the weights that come there, so many parts are in, and which, and what all of them are to say. */
    struct echi_coming { uint16_t in; struct echi_part_set here; uint32_t members; uint64_t version, samples; } coming[ECHI_WORKER_PLACES];
    struct {                                      /* `local`; flight[0] has the lease in hand and what is known of the weights */
        bool busy;                                /* a task is out */
        bool fresh;                               /* weights have come that the own ones do not rest on yet */
        uint32_t done;                            /* samples of the lease in hand that steps were begun of */
        uint64_t behind;                          /* own samples that are in the own weights, and not in those that came last */
        uint64_t seen;                            /* of the lease in hand */
        struct echi_delta delta[ECHI_DELTAS];
    } local;
};
void echi_worker_init(struct echi_worker *w, const struct echi_setup *setup);
void echi_worker_step(struct echi_worker *w, const struct echi_event *event, struct echi_actions *out);
/* The samples that it is likely to compute after what it is at, for who reads them ahead; false: none are known. */
bool echi_worker_next(const struct echi_worker *w, struct echi_lease *out);
static inline bool echi_flight_begun(const struct echi_flight *s) { return s->phase >= ECHI_FLIGHT_FORWARD; }   /* its step */
/* worker_push.c: sends what gradients of this step are there; done: all are. */
void echi_worker_push(struct echi_worker *w, struct echi_flight *s, bool done, int64_t now, struct echi_actions *out);
/* A part of weights has come (worker_weights.c): are all there? A fault where it is not the next of those that are coming. */
bool echi_worker_has_weights(struct echi_worker *w, int place, const struct echi_event *event, struct echi_actions *out);
/* worker_norms.c (PROTOCOL.md, "Batch-norm"). Does this step exchange sums? Names in its next task what the part in hand begins and
 * ends with. The part has ended in front of a batch-norm: its sums go to the owner. The sums of all have come. */
bool echi_worker_norms_exchanged(const struct echi_worker *w, const struct echi_flight *s);
void echi_worker_norms_name(const struct echi_worker *w, const struct echi_flight *s, struct echi_task *t);
void echi_worker_norms_stop(struct echi_worker *w, struct echi_flight *s, const struct echi_task *t, struct echi_actions *out);
void echi_worker_norms_sums(struct echi_worker *w, const struct echi_event *event, struct echi_actions *out);
/* worker_ring.c (PROTOCOL.md, "Ring"). The places that sums have from the start; a place for weights, or of a part of them: it may have to
 * wait until what was handed on from there has left. */
void echi_worker_ring_start(struct echi_worker *w, struct echi_actions *out);
void echi_worker_ring_post(struct echi_worker *w, uint8_t place, uint16_t owner);
void echi_worker_ring_vacate(struct echi_worker *w, int place, int part);
/* The gradients of a part that another node owns are there. */
void echi_worker_ring_push(struct echi_worker *w, int part, struct echi_actions *out);
/* A sum has come; a part of weights has, into this place; an ADD has ended; a payload of a ring has left (false: it is none of a ring). */
void echi_worker_ring_sum(struct echi_worker *w, const struct echi_event *event, struct echi_actions *out);
void echi_worker_ring_weights(struct echi_worker *w, int place, const struct echi_msg *msg, struct echi_actions *out);
void echi_worker_ring_added(struct echi_worker *w, const struct echi_task *task, struct echi_actions *out);
bool echi_worker_ring_sent(struct echi_worker *w, const struct echi_event *event);
/* After each event: what is free is posted again. */
void echi_worker_ring_posts(struct echi_worker *w, struct echi_actions *out);
/* Has all left that was sent? And the end of the ring. */
bool echi_worker_ring_quiet(const struct echi_worker *w);
void echi_worker_ring_end(struct echi_worker *w, struct echi_actions *out);
/* worker_takeover.c (PROTOCOL.md, "Takeover"). A node is lost; shards of lost owners have new ones; after each event the word that it has
 * stopped. Are these weights of before a takeover, or of another version than those it gets? Then their places are posted again. Is all
 * that this lease asks for still here? */
void echi_worker_begin_shards(struct echi_worker *w);
void echi_worker_stop(struct echi_worker *w, const struct echi_event *event, struct echi_actions *out);
void echi_worker_takeover(struct echi_worker *w, const struct echi_event *event, struct echi_actions *out);
void echi_worker_drops_forward(struct echi_worker *w, struct echi_actions *out);   /* one that waits for weights, if it has stopped */
void echi_worker_stands(struct echi_worker *w, struct echi_actions *out);
bool echi_worker_passes_over(struct echi_worker *w, int place, const struct echi_event *event, struct echi_actions *out);
bool echi_worker_has_gradients(const struct echi_worker *w, const struct echi_lease *lease);
/* worker_local.c: the same under `local`; worker.c hands it all events but leases. */
void echi_worker_local(struct echi_worker *w, const struct echi_event *event, struct echi_actions *out);
bool echi_worker_local_next(const struct echi_worker *w, struct echi_lease *out);

/* ---- owner of the trunk, or of all layers, for one group ---- */
struct echi_push {
    struct echi_lease lease;
    int parts_in; struct echi_part_set here;      /* so many have come, and which */
    /* Rounds by part: which were given to the round's sum, or need not be, since they are in it; so many are in it. */
    struct echi_part_set taken; int added;
    bool whole, more;
    double loss, staleness; uint32_t correct;
    uint64_t seen, head;                          /* samples in the weights it was computed on; in the head's behind it */
    uint32_t joined;                              /* as its worker was told when it began */
    uint64_t compute, exchange;                   /* ns, see struct echi_msg */
    int64_t held;                                 /* of that, what the owner took to answer the push before, ns */
};
/* What another owner knows of the reserve's: it sleeps; it woke and has to get a complete state before any other; that is on its way;
 * it has what the others have, and is one of them. */
enum echi_reserve { ECHI_RESERVE_SLEEPS, ECHI_RESERVE_LACKS, ECHI_RESERVE_TOLD, ECHI_RESERVE_SHARES };
struct echi_owner {
    const struct echi_setup *setup;
    const struct echi_policy *policy;
    const struct echi_sync_rules *rules;
    int group, shard;                             /* shard: the first of those that it owns */
    int parts, weight_parts;                      /* messages of a push, and of weights, for and from this owner */
    int end;                                      /* all parts in front of the cut are below this */
    bool started;
    int workers;                                  /* of the group, alive; they are in worker[] */
    struct echi_ranks works;                      /* the same as a set */
    struct echi_ranks away;                       /* those that have not said yet that they know of the last takeover */
    uint32_t least; int at_least;                 /* the fewest steps of those that hold a lease (UINT32_MAX: none does),
                                                     and how many have so few */
    struct echi_ranks owed, held_back;            /* to whom weights are owed: who may get them, as far as is known,
                                                     and who waits for slower ones */
    int turn;                                     /* the rank to try first when there is a place for a send */
    int busy;                                     /* tasks out: 0 or 1 */
    uint32_t round_in;                            /* BSP: samples of the current round that are in */
    int round_count;                              /* BSP: the pushes that make up the round so far, in round_push[] */
    int queued;                                   /* whole pushes that wait, in queue[]; by part: those with parts that wait */
    struct {                                      /* BSP, dense, several workers: each part is summed, applied and sent by itself */
        bool by_part;
        bool again;                               /* a lease of this round was issued again */
        uint32_t size;                            /* samples of this round; 0: nothing of it has come */
        struct echi_lease first;                  /* of its leases the one that stands first in the data */
        int covered;                              /* parts that have come of all samples, and whose APPLY was not asked for */
        struct echi_part_set given;               /* parts whose APPLY was asked for */
        uint8_t next;                             /* the snapshot that they are written to; ECHI_NONE: none yet */
        struct echi_part_set summed;              /* parts that OWNER_SUM has something of */
        uint32_t come[ECHI_PARTS_MAX];            /* samples that each part has come of */
        struct echi_ranks queued;                 /* the ranks in queue[] */
    } round;
    struct {                                      /* the same: weights of the round under way, or of the last */
        uint8_t from; uint64_t version, samples;  /* the snapshot, and what is in it when it is whole */
        int parts; struct echi_part_set done;     /* so many parts of it are there, and which */
        struct echi_ranks to; int count;          /* who gets them part by part, so many */
        int left;                                 /* messages of parts that are there, to all of them, that were not sent yet */
        uint16_t lacked[ECHI_PARTS_MAX];          /* the same by part */
        int trickles;                             /* messages to other nodes that have not left */
    } answers;
    struct {                                      /* owner_ring.c */
        bool on;                                  /* until a takeover has ended it */
        struct echi_part_set here, taken;         /* parts whose sum has come, and those that a task was given */
        uint32_t alone[ECHI_PARTS_MAX];           /* of a sum that has come: as in a task */
    } ring;
    struct {                                      /* owner_takeover.c */
        struct echi_part_set own;                 /* parts that this owner has had so far */
        bool still, told;                         /* an owner is lost: nothing begins any more; the coordinator knows where it stopped */
        uint32_t stay;                            /* membership epoch of the last takeover */
        bool reopened;                            /* the round before is open again for the parts taken: `current` has these alone */
        bool takes, anew, again;                  /* TAKEN is still to be sent; Adam's memory is to begin anew; it has, within a round */
        struct echi_part_set lacks;               /* parts whose weights are to be taken from the own node's worker */
        uint8_t from;                             /* its slot */
        uint32_t size;                            /* samples of the round before */
    } takeover;
    /* snapshots of the weights */
    uint8_t current; uint16_t in_flight[ECHI_SNAPSHOTS];   /* in_flight: messages */
    int sends;                                    /* answers to other nodes, coded ones, and copies for the coordinator: not left yet */
    uint64_t version, samples;                    /* pushes (BSP: rounds) and samples in the current weights, all groups' */
    uint64_t next_samples;                        /* in those being computed, without the push itself */
    /* several groups */
    bool alone;                                   /* all others sleep, and always have: pushes go into the weights, and no state is kept */
    uint64_t state_version, state_samples;        /* of A_g */
    uint8_t state_current; int8_t state_sending; int state_out;   /* slot being sent (-1 none) and sends not finished */
    uint32_t since_send;                          /* pushes applied since the last state went out */
    uint64_t sent_version, sent_samples;          /* what the last state sent contained */
    uint64_t sent_whole;                          /* the version of the last that was sent complete */
    uint8_t reserve; uint64_t reserve_told;       /* enum echi_reserve; the version that is on its way there */
    bool for_reserve;                             /* what is being sent has nothing new for the others */
    uint32_t woke;                                /* the reserve's owner: membership epoch at which it got workers, until its weights are
                                                     made of states that the others sent since; 0: nothing to wait for */
    uint32_t woke_next;                           /* what those being computed make up for */
    struct {
        uint32_t told;                            /* membership epoch in which its owner sent its last complete state */
        uint64_t version, samples;                /* of the copy that weights are made of */
        uint8_t current;
        bool there, refresh;
        uint64_t acked, acked_samples;
        uint64_t acked_whole;                     /* of what it has complete */
        /* The last complete copy, which a loss of its owner leaves: its place, what is in it and, by worker, the last lease in it.
         * Without a codec it is the one that weights are made of. */
        uint8_t whole; bool whole_there;
        uint64_t whole_version, whole_samples; int marks;   /* marks: so many in peer_marks[] */
        uint16_t from;                            /* its owner is lost, and this rank sends the last state; else ECHI_NO_RANK */
        uint32_t word;                            /* which of the coordinator's words, counted from 1, said so */
        int handed_on;                            /* sends of a lost group's state that are not finished */
        /* codec top-k */
        uint32_t number;                          /* of its last message */
        bool arrived, decoding, tell;             /* a message is here, a task takes it in; then the coordinator is told what is here */
        struct { bool whole; uint32_t members; uint64_t version, samples; int marks; } coming;   /* marks: so many in coming_marks[] */
    } peer[ECHI_GROUPS_MAX];
    uint32_t words;                               /* that said who sends a lost group's last state */
    /* codec top-k */
    uint32_t state_number;                        /* of the last message to the other owners */
    uint8_t coded_out;                            /* OWNER_CODED slots (bits) that are written or sent */
    struct echi_ranks encoding_for;               /* who is sent what the task writes that is out */
    uint32_t encoding_stay;                       /* their stay (`joined`) when it began */
    uint16_t coded_sends[ECHI_ANSWERS];           /* messages from these slots that have not left */
    uint32_t members;                             /* membership epoch: losses and moves so far that this owner knows of */
    bool draining, drained, asked;
    uint8_t asked_as;                             /* enum echi_ask, while asked */
    bool asked_momentum; int momentum_sending;    /* no apply writes it meanwhile */
    int fed;                                      /* first weights and, in a resumed run, momentum that have come */
    bool stale;                                   /* a peer's state has come in that the weights do not contain yet */
    struct {                                      /* sync_norm (owner_norms.c) */
        bool open, joins;                         /* sums of one batch-norm have come; a task puts them together */
        struct echi_lease of;                     /* that of the first: its round, part and `together` are the exchange's */
        uint16_t layer; uint8_t backward;         /* what they are sums of */
        struct echi_ranks here; uint32_t in;      /* whose are here, and samples in them */
        int next; uint32_t joined;                /* the first rank that is not in the answer yet, and samples that are in it */
        int sending;                              /* answers that have not left their slot */
        /* Leases that never will be in, one a worker: of the current and the next round, by its last bit, and part. */
        struct { struct echi_ranks of; uint32_t samples; } revoked[2][ECHI_ROUND_PARTS];
    } norm;
    /* By rank, as many as the plan has; init leaves the rest of these as it was. */
    struct echi_worker_view view[ECHI_WORLD_MAX];
    struct echi_push push[ECHI_WORLD_MAX];        /* the push that is arriving, or waits to be taken, from each worker */
    uint32_t entered[ECHI_WORLD_MAX], last[ECHI_WORLD_MAX];   /* leases (ids rise): a worker's last ENTER, and the last applied */
    uint8_t answer[ECHI_WORLD_MAX];               /* weights owed to this worker, so many times */
    uint16_t leaving[ECHI_WORLD_MAX];             /* messages of weights to this worker that have not left */
    /* The same, of a round whose parts go as they are applied; how many of them were sent, and which. */
    uint16_t trickling[ECHI_WORLD_MAX], trickled[ECHI_WORLD_MAX]; struct echi_part_set sent[ECHI_WORLD_MAX];
    bool known[ECHI_WORLD_MAX];                   /* is or was a worker of this group: a place for its pushes is posted */
    bool joins[ECHI_WORLD_MAX];                   /* joined, and gets weights when it says that it holds a lease */
    uint32_t joined[ECHI_WORLD_MAX];              /* membership epoch at which it joined: what it said before is of no account */
    uint32_t late[ECHI_WORLD_MAX];                /* steps of an earlier stay that were applied since it left */
    int64_t pushed_at[ECHI_WORLD_MAX], answered_in[ECHI_WORLD_MAX];   /* when its last push was here; how long it took to answer, ns */
    uint32_t norm_in[ECHI_WORLD_MAX];             /* sync_norm: samples in the sums that have come */
    /* Its last word on that: the takeover's membership epoch, the version of its weights, and that it has none. */
    struct { uint32_t stay; uint64_t version; bool without; } resumed[ECHI_WORLD_MAX];
    uint16_t in_round[ECHI_WORLD_MAX];            /* BSP: pushes of this worker among those of the round */
    uint32_t number[ECHI_WORLD_MAX];              /* codec top-k: of the last message to this worker */
    /* As many as are counted above. */
    uint16_t worker[ECHI_WORLD_MAX];              /* ranks, ascending */
    uint16_t queue[ECHI_WORLD_MAX];               /* ranks whose whole pushes, or parts of them, wait: in order of arrival */
    struct echi_push round_push[ECHI_ROUND_LEASES];
    uint8_t peer_marks[ECHI_GROUPS_MAX][ECHI_MARKS_MAX], own_marks[ECHI_MARKS_MAX];   /* as they travel; own: for the message being sent */
    uint8_t coming_marks[ECHI_GROUPS_MAX][ECHI_MARKS_MAX];   /* codec top-k: of complete states that are still coded */
};
void echi_owner_init(struct echi_owner *o, const struct echi_setup *setup, int group);
void echi_owner_step(struct echi_owner *o, const struct echi_event *event, struct echi_actions *out);

/* A worker's leases that the head has trained and that can still be issued again, at most: those in its group's state that
 * nobody else has, as many in those of groups that it was in before (the coordinator sees to that), and those in flight. */
#define ECHI_TRAINED_KEPT (2 * ECHI_UNACKED_MAX + ECHI_FLIGHTS + ECHI_LEASES_AHEAD)

/* ---- head: owner of the head's layers, which it also computes on the rows that workers send ---- */
struct echi_head {
    const struct echi_setup *setup;
    const struct echi_policy *policy;
    bool shadow;                                  /* it is or was one */
    bool started;
    bool places;                                  /* those for rows are posted */
    /* Its layers go to another node, or come here from the head: by the coordinator's word of this membership epoch. hands_on: they are
     * to be sent, once all is trained that is here; fetches: a place for them is still to be posted. */
    uint32_t copy; bool hands_on, fetches;
    int queued, busy;
    uint8_t current, previous; uint16_t in_flight[3];   /* previous: the weights of the round before */
    uint64_t version, samples;                    /* of the current weights: updates, and samples in them */
    uint32_t round_in;                            /* rows of this round so far */
    bool asked; uint8_t asked_as;                 /* for weights, once nothing is left to apply; enum echi_ask */
    bool asked_momentum; int momentum_sending;    /* no update writes it meanwhile */
    uint64_t asked_samples;                       /* and so many samples are in them */
    int fed;                                      /* first weights and, in a resumed run, momentum that have come; or the head's */
    bool apply_due; uint32_t apply_divisor;       /* of a round */
    struct echi_lease round_place;                /* of the leases that it has trained rows of, the one that stands first in the data */
    int index;                                    /* which of several heads it is; 0: it is the only one */
    bool lost_some;                               /* nodes were lost: what is issued again comes in pieces */
    int sums_leaving;                             /* its sum is on its way to so many others: nothing is added to it */
    /* By head: the sum of another that is here: of which round, of so many samples (0: none is), and the first of its leases. */
    struct { uint64_t version; uint32_t samples; struct echi_lease first; } sum[ECHI_HEADS_MAX];
    /* How long it is at rows that it trains, for the coordinator: of this event, and of the visit under way, when it began; visits since
     * the last word (told: when that was), their rows, and ns. */
    int64_t now, since, told; uint32_t visits; uint64_t visited, took;
    uint64_t repeats;                             /* rows that came again; the driver reads it */
    /* By rank, as many as the plan has; init leaves the rest of these as it was. */
    bool member[ECHI_WORLD_MAX];
    /* By place for rows (echi_plan_row_places). */
    bool answering[ECHI_WORLD_MAX];               /* the gradient of the last rows has not left its slot */
    uint8_t rows[ECHI_WORLD_MAX];                 /* enum echi_rows: what these are */
    struct echi_lease lease[ECHI_WORLD_MAX];      /* of the rows that wait */
    uint16_t queue[ECHI_WORLD_MAX];               /* places whose rows wait, the first to be served first */
    /* What was trained of each worker's rows, in a ring: samples that come again, because a node was lost, are not trained again. */
    uint32_t trained_count[ECHI_WORLD_MAX];
    struct { uint32_t epoch, start, n; } trained[ECHI_WORLD_MAX][ECHI_TRAINED_KEPT];
};
void echi_head_init(struct echi_head *h, const struct echi_setup *setup);
void echi_head_step(struct echi_head *h, const struct echi_event *event, struct echi_actions *out);

/* ---- coordinator: membership, plan, ledger, the clock of evaluations, the end ---- */
enum echi_run_phase { ECHI_RUN_MEASURES, ECHI_RUN_PLANNED, ECHI_RUN_FEEDS, ECHI_RUN_TRAINS, ECHI_RUN_HOLDS, ECHI_RUN_EVALUATES,
                      ECHI_RUN_QUIETS, ECHI_RUN_GATHERS, ECHI_RUN_SETTLES, ECHI_RUN_HANDS_ON, ECHI_RUN_DRAINS,
                      ECHI_RUN_LAST_KEEP, ECHI_RUN_LAST_EVAL, ECHI_RUN_ENDS, ECHI_RUN_RESCUES, ECHI_RUN_ENDED };
/* Where a run stands while no lease is out: what a checkpoint keeps of the coordinator, and what a run may begin with. */
struct echi_standing {
    uint32_t epoch, start;                        /* of the next lease */
    uint64_t samples, evals;                      /* applied; evaluations made */
    int64_t clock, measuring, keeping;            /* ns of training, and of what is not counted as such */
    double accuracy, best_accuracy, loss;         /* accuracies: negative before the first evaluation */
    int64_t target_at; uint64_t target_samples;   /* of the target accuracy; -1: not reached */
};
struct echi_goal {
    uint32_t train_samples;
    uint64_t samples;                             /* stop after so many */
    double target_accuracy;                       /* 0: none */
    uint32_t eval_every;                          /* samples; 0: only at the end */
    bool has_test;                                /* there is a test set to evaluate */
    bool give_final;                              /* all nodes get the final weights (sessions) */
    bool keep; uint64_t keep_every;               /* checkpoints, each so many rounds; 0: only at the end */
    int64_t rescue;                               /* ns to gather the newest weights of a run that cannot go on; 0: no end is set */
    int64_t tick;                                 /* ns between two checks of who owes an answer; 0: who is heard has all the time */
    int64_t collect;                              /* ns from the first complaint about a broken link to the choice of whom to lose */
    bool resumed; struct echi_standing from;      /* begin there */
};
#define ECHI_ROUNDS_KEPT 8                         /* four may matter to a takeover */
#define ECHI_LEASES_OUT_MAX (4 * ECHI_WORLD_MAX)
#define ECHI_NO_LEASE 65535                       /* the end of a list of leases */
#define ECHI_LEASES_KEPT_MAX (ECHI_GROUPS_MAX * 2 * ECHI_UNACKED_MAX + ECHI_LEASES_OUT_MAX)
/* A group whose owner is lost: its last state is agreed on, then handed to all. */
struct echi_frozen {
    bool lost, decided, settled;                  /* settled: all owners have it */
    uint16_t holder;                              /* has the highest version; ECHI_NO_RANK: nobody has told yet */
    uint64_t version; uint32_t mark[ECHI_WORLD_MAX];   /* of the holder's copy */
    bool known[ECHI_GROUPS_MAX]; uint64_t have[ECHI_GROUPS_MAX];   /* by the group of the owner who says so */
};
struct echi_coordinator {
    struct echi_plan_request request;
    struct echi_goal goal;
    struct echi_setup *setup;                     /* its plan is filled in by the coordinator */
    const struct echi_policy *policy;
    bool plan_given;                              /* setup->plan came from a file */
    struct echi_plan plan;                        /* the same, but a loss shows here first */
    enum echi_run_phase phase;
    struct echi_choice choice;                    /* how the plan was come to; the driver reads it */
    bool mark[ECHI_WORLD_MAX]; int waits_for;     /* nodes (or owners) whose answer is still out */
    struct echi_ranks heads_started;              /* the head and its shadow, when they have their first weights */
    struct {                                      /* coordinator_homes.c */
        bool shadowed;                            /* the plan gave the head a shadow: it is to have one */
        bool due;                                 /* the separated layers are to have other nodes: no new lease is dealt until they have */
        uint16_t to;                              /* 1 + the rank to which the head is to move; 0: it stays */
        uint16_t head, shadow;                    /* the nodes that they get: the head, and 1 + its shadow, 0: none */
        uint32_t copy; bool asked, copied;        /* the membership epoch of the word of a copy; the head was asked for it; it is whole */
        struct echi_ranks full;                   /* nodes that have said that they have no memory for it */
        int64_t since;                            /* since it is due */
        /* Is another place better? How many times as long as measured the head is at its rows: of late, and when this node became it. */
        struct echi_speed pace; double first;
        int64_t checked; uint64_t at; uint8_t idle; struct echi_lasting lasting;
        /* The driver reads these: shadows made since the run began, moves of the head, ns in which nothing new was dealt for either. */
        uint64_t shadows, moves; int64_t held;
        double gain, slower;                      /* predicted of the last move; how many times as long the head was at its rows by then */
    } homes;
    /* ledger */
    uint32_t epoch, start, next_lease, next_round;
    uint64_t issued, applied, applied_rounds;     /* applied: by all shards */
    uint64_t applied_by[ECHI_SHARDS_MAX], rounds_by[ECHI_SHARDS_MAX];   /* the same of each; with one shard the first is not kept */
    int n_out, n_again;                           /* in out[] and again[] */
    struct echi_ranks hungry;                     /* workers that hold fewer leases than they may; not where rounds are dealt */
    uint16_t kept_first[ECHI_GROUPS_MAX], kept_last[ECHI_GROUPS_MAX], kept_free; int n_kept;   /* lists in kept[], of each group;
                                                                                                  n_kept: used yet */
    bool stopping;                                /* no further lease */
    bool met;                                     /* `whole` has the weights that met the target; it is not written any more */
    /* clock */
    int64_t train_began, hold_began, measuring, train_ended;
    uint64_t next_eval, evaluated_at;                /* evaluated_at: samples when what is evaluated last was asked for */
    struct echi_slot whole;                       /* COORD_PARAMS [0]; where those of rank 0's worker are evaluated
                                                     (echi_plan_evaluates_own), its place that has them, and of a rescue COORD_PARAMS [1] */
    bool evaluated;                               /* `whole` has what was evaluated last, still */
    bool last;                                    /* the evaluation in progress is the last */
    int parts_out;                                /* owners whose layers are still to come */
    /* checkpoints */
    uint64_t next_keep;                           /* samples: no lease is issued beyond, until the checkpoint is gathered */
    uint64_t kept_samples;                        /* of the last that is complete (UINT64_MAX: none) */
    int next_part;                                /* the next to ask for */
    uint16_t part_from[3]; bool part_void;        /* whose part comes to which place, also of an evaluation;
                                                     a node was lost: what comes is not used */
    uint16_t messages_out[3];                     /* of it, still to come */
    bool writing;                                 /* a KEEP task is out */
    struct echi_standing standing;                /* what it writes; the driver reads it */
    int64_t keep_began, keeping, last_keeping;    /* the last, at the end of the run, is beside the clock */
    uint16_t source;                              /* rank whose trunk is still to come, ECHI_NO_RANK: none */
    /* losses */
    uint32_t members;                             /* membership epoch */
    bool calm;                                    /* all living nodes know of all losses and moves: leases may be dealt */
    struct echi_frozen frozen[ECHI_GROUPS_MAX];
    struct {                                      /* takeover.c */
        uint32_t stay;                            /* membership epoch of the last one */
        int takers;                               /* owners that have not said since that they have what they own */
        uint32_t first_lease;                     /* the first lease that was dealt since: of earlier ones nothing counts any more */
        uint32_t round; struct echi_ranks behind; /* who cannot compute this round, since its weights are not everywhere any more */
        uint64_t count, params;                   /* so many, and parameters whose momentum began anew; the driver reads them */
        uint8_t marks[ECHI_MARKS_MAX];            /* for the message being sent */
    } takeover;
    /* Rounds that were dealt last, by number: where they begin in the data, and samples before them. */
    struct { uint32_t epoch, start, size; uint64_t before; } dealt[ECHI_ROUNDS_KEPT];
    /* Complaints (PROTOCOL.md, "Broken links"): pairs that cannot reach each other, and the reason that the first of them gave. */
    struct echi_pair apart[ECHI_PAIRS_MAX]; int n_apart; char apart_reason[120];
    int64_t judge_at, tick_at;
    int64_t wake_at;                              /* the driver gives TIME then, or later; 0: it need not. The driver reads it */
    uint16_t lost_rank[ECHI_WORLD_MAX]; int n_lost;   /* in order; the driver reads these and the next two */
    uint64_t again_leases, again_samples;         /* issued again because of losses, or dropped */
    uint64_t dropped_leases, dropped_samples;     /* `asp`: too old when they came; they are among those issued again */
    /* regrouping */
    struct echi_change change, told;              /* that is due; the last that was made. The driver reads `told` and the next two */
    uint64_t moves, sizes;                        /* workers moved; sizes of leases changed */
    struct {                                      /* coordinator_shares.c */
        int64_t checked; uint64_t round; struct echi_lasting lasting;
        uint64_t changes; double gain;            /* of shares; predicted of the last. The driver reads these and the next */
        int slowest; double slower;               /* whose speed had changed the most, and how many times as long its steps take */
    } shares;
    /* what happened; the driver reads these */
    ech_status status; int lost_peer; char text[240];
    bool final;                                   /* `whole` has the weights that the run ends with; the driver reads both */
    uint64_t saved_samples;                       /* of a run that ended with a loss, with `final`: samples in them */
    struct { uint16_t from; uint64_t samples; uint16_t place; bool asked, trunk, head; } rescue;   /* of those that have answered who has
                                                     the newest, and samples
                                                     in them; then who was asked for them; what is here */
    int at_fault;                                 /* rank that could not go on, -1: none, or it was lost */
    double loss_sum; uint64_t loss_samples; double stale_sum, stale_max; uint64_t stale_count;   /* the driver may reset sums */
    struct echi_curve curve;                      /* of the first epoch; the driver reads it */
    double round_loss; uint32_t round_in;         /* of the round whose leases are coming in */
    bool loss_noted; uint32_t loss_round; double loss_before;   /* the last round in loss_of_run, and what that was before it */
    uint64_t trunk_bins[ECHI_STALENESS_BINS], head_bins[ECHI_STALENESS_BINS];   /* pushes by staleness, see echi_staleness_bin */
    uint64_t head_newest;                         /* samples in the newest head's weights that an applied push came from */
    double accuracy, best_accuracy, loss_of_run, stale_of_run; uint64_t stale_of_run_count;
    int64_t target_at; uint64_t target_samples;   /* -1: not reached */
    uint64_t evals;
    double iterated[ECHI_GROUPS_MAX]; uint64_t iterations[ECHI_GROUPS_MAX];   /* ns of the training clock from one push of a worker
                                                     that was in to its next, summed over the workers of a group, and how many */
    /* By rank, as many as the plan request has; init leaves the rest of these as it was. */
    int64_t in_at[ECHI_WORLD_MAX];                /* the training clock when this worker's last push was in; -1: none was */
    struct echi_times times[ECHI_WORLD_MAX];
    uint32_t ready[ECHI_WORLD_MAX];               /* what each node has said of the membership epoch */
    uint32_t size[ECHI_WORLD_MAX];                /* samples of a worker's leases, at most the plan's; under BSP its share of a round, once
                                                     shares have changed */
    uint32_t moved[ECHI_WORLD_MAX];               /* how often each worker has joined another group by a move */
    bool arriving[ECHI_WORLD_MAX];                /* moved, and no step of it is in at its new owner */
    uint8_t quiet[ECHI_WORLD_MAX];                /* ticks for which it has owed an answer and shown no progress */
    uint32_t asked[ECHI_WORLD_MAX];               /* the question whether it is there that it has not answered; 0: none */
    uint32_t questions;                           /* so many were put to all of them */
    int64_t paused[ECHI_WORLD_MAX];               /* ns of evaluations and checkpoints when the last step of a worker came in */
    struct echi_regroup regroup;
    struct echi_follow follow;                    /* links and ratios while the run goes; the driver reads it */
    int held[ECHI_WORLD_MAX];                     /* leases out by worker */
    uint8_t ahead[ECHI_WORLD_MAX];                /* of them, those beside the ones that it computes, at most; not where rounds are dealt */
    uint32_t longer[ECHI_WORLD_MAX];              /* the lease with which that grew for the last time */
    uint16_t out_of[ECHI_WORLD_MAX];              /* the first of them in out[]; ECHI_NO_LEASE */
    /* As many as are counted above. */
    struct {
        struct echi_lease lease;
        bool earlier;                             /* of its worker's stay in another group */
        bool told;                                /* its owners were asked whether it is in */
        uint64_t in, asked, gone;                 /* shards, a bit each, among those that want it: that have applied it; that have not
                                                     answered yet; where it never will be */
        uint16_t next;                            /* of the same worker */
    } out[ECHI_LEASES_OUT_MAX];
    /* takeover.c, by rank: what it has stopped at. members: those of its word, 0: it has said none. has: all weights of that version;
     * begun: of an owner, parts of the next round are applied. */
    struct echi_stop { uint32_t members; bool has, begun; uint64_t version; struct echi_lease lease; } stopped[ECHI_WORLD_MAX],
        stopped_owner[ECHI_WORLD_MAX];
    struct echi_lease again[ECHI_LEASES_OUT_MAX + ECHI_LEASES_KEPT_MAX];   /* revoked, handed back: to be issued again */
    /* Several groups: in, at this version of the owner's state, but another owner may lack it yet. */
    struct { struct echi_lease lease; uint64_t version; uint16_t next; } kept[ECHI_LEASES_KEPT_MAX];
    struct echi_choice_work work;                 /* of the plan's choice, of each regrouping, and of an outlook */
    /* coordinator_outlook.c. Nothing that the role does follows from it; the driver asks for it and reads it. */
    struct echi_outlook {
        int64_t next_at; struct echi_lasting lasting;
        bool better, told;                        /* as the last choice found; and that was named, and still lasts */
        uint8_t idle;                             /* choices in a row that found nothing better */
        uint64_t changes;                         /* that roles had made when it was made */
        struct echi_candidate here, there;        /* what is predicted of the plan that goes, and of `plan` */
        struct echi_choice choice;
        uint64_t count;                           /* so many were named; the last of them: */
        struct {
            struct echi_candidate here, there;
            int workers, shards, owner;           /* of that plan: who train; owners of shards, or 0 and the first owner */
            int cause; double slower, was, is;    /* the rank that has changed the most: its steps, so many times as long as at the start,
                                                     or (was > 0) its link, bytes a second */
        } named;
        struct echi_machine_seen { double slower, out, in; } seen[ECHI_WORLD_MAX];   /* when the last choice was made */
        struct echi_plan plan;
    } outlook;
};
void echi_coordinator_init(struct echi_coordinator *c, struct echi_setup *setup, const struct echi_plan_request *request,
                           const struct echi_goal *goal, bool plan_given);
void echi_coordinator_step(struct echi_coordinator *c, const struct echi_event *event, struct echi_actions *out);
/* For a driver that reports what is predicted, when the action PLAN has come: of a plan that was given nobody has predicted it yet. Nothing
 * but `choice` follows from it. */
void echi_coordinator_judge(struct echi_coordinator *c);
/* When the run is over: what its links were to carry, and what would have made it faster (echi_what_if.h). Nothing of either of a run of
 * one node, after a loss, and of more nodes than these: a prediction of a thousand takes a tenth of a second. */
#define ECHI_WHAT_IF_WORLD 256
int echi_coordinator_what_if(struct echi_coordinator *c, struct echi_timeline *line, struct echi_traffic traffic[ECHI_WHAT_IF_WORLD],
                             struct echi_what_if out[ECHI_WHATS]);
/* Its plan is predicted, and recorded: `line` has its memory. False, and nothing is, after a loss, and of more nodes than those; of one
 * node it is. echi_coordinator_what_if does so with its line, which may be NULL. */
bool echi_coordinator_line(struct echi_coordinator *c, struct echi_timeline *line);
/* echi_link_sweep of it, likewise; of two nodes or more. */
bool echi_coordinator_sweep(struct echi_coordinator *c, const double *factor, int count, double *out_rate);
/* echi_node_sweep of it, likewise. */
bool echi_coordinator_node_sweep(struct echi_coordinator *c, const int *nodes, int count, double *out_rate);
/* For a driver, behind any event of a run that trains: compares the plan, now and then, with one for the machines as they are seen. True
 * when it has, which may take as long as a choice: the driver tells how many ns it took, and the next is 200 times as far off. Nothing of a
 * run by a plan that was given, without --regroup, after a loss, and of more nodes than those. */
bool echi_coordinator_outlook(struct echi_coordinator *c, int64_t now);
void echi_coordinator_outlook_took(struct echi_coordinator *c, int64_t now, int64_t took);
/* Has worker `rank` join `group`: tells all nodes. False, and nothing is done, while that cannot be: the run does not train, a loss or
 * another move is not told yet or settled, its last move is not behind it, or the group is its own or has lost its owner. */
bool echi_coordinator_move(struct echi_coordinator *c, int rank, int group, struct echi_actions *out);
/* Rounds that are dealt from now on have these shares. False, and nothing is done, where that cannot be: not under BSP, they are no whole
 * round, a worker of the plan (lost or not) has none or more than its leases may have, or another node has one. */
bool echi_coordinator_share(struct echi_coordinator *c, const uint32_t share[ECHI_WORLD_MAX]);
/* Has the head move to `rank`, once nothing is out. False, and nothing is done, where that cannot be. */
bool echi_coordinator_rehome(struct echi_coordinator *c, int rank);
/* Nanoseconds of training so far, those before a resume included, held time and checkpoints taken out. */
int64_t echi_coordinator_clock(const struct echi_coordinator *c, int64_t now);
/* Does an evaluation read the weights of rank 0's worker, which has all of a round once one is in? Else copies of them come. */
bool echi_coordinator_evaluates_own(const struct echi_coordinator *c);

/* ---- node: hosts the other roles of its rank ----
 * Takes every event of the rank, and passes on what is for a hosted role. Its own part is the protocol by which a node joins a run and
 * leaves it: measuring, the plan, the READY barrier, holds, losses and moves, the end. */
/* A loss, a move to `group`, or other nodes for the separated layers, in the words of their message. */
struct echi_change_told { uint32_t members; uint16_t peer, part; uint8_t kind, group, flag; };
struct echi_node_role {
    struct echi_setup *setup;                     /* the driver's: its plan is the one that came, and follows losses and moves; the rest the
                                                     driver fills in before it answers the first SLOTS */
    int rank, world;
    bool session;                                 /* behind an END in order each rank but 0 gets the final weights */
    /* Memory of the driver, where the plan places the role here (echi_plan_hosts): the coordinator's from the beginning, already made; the
     * others' when it answers the first SLOTS. */
    struct echi_coordinator *coordinator;
    struct echi_worker *worker;
    struct echi_owner *owner;
    struct echi_head *head;
    /* The driver may read these. */
    bool planned;                                 /* the roles stand */
    bool heads;                                   /* the head's does */
    bool ended;                                   /* END has come */
    bool over;                                    /* LEAVE was asked for */
    bool making;                                  /* SLOTS is asked for, and not answered */
    bool holding;                                 /* HOLD is asked for, and not answered */
    bool final_in;
    ech_status status;                            /* of END */
    int changes;                                  /* in change[] */
    struct echi_loans loans;                      /* of this node's slots: the driver keeps them */
    struct echi_usage usage;
    /* By rank, as many as the world has. */
    bool gone[ECHI_WORLD_MAX];                    /* declared lost: nothing from there is taken any more */
    struct echi_change_told change[ECHI_WORLD_MAX + 1];   /* of which the roles are not told yet, in order: each rank once, and a move */
};
/* The caller sets `coordinator` at rank 0. */
void echi_node_role_init(struct echi_node_role *n, struct echi_setup *setup, int rank, int world, bool session);
/* The plan that SLOTS is asked for: at first the one that came, later the one behind the next loss or move. */
void echi_node_role_next(const struct echi_node_role *n, struct echi_plan *out);
/* An event for `role` of this rank. False when none takes it: it is not hosted here, its sender is gone, or
 * (of the node role itself) this node has left. */
bool echi_node_role_step(struct echi_node_role *n, enum echi_role role, const struct echi_event *event, struct echi_actions *out);
#endif
