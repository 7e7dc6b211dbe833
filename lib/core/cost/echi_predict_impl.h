/* SPDX-License-Identifier: Apache-2.0
 * What the files of a prediction share: predict.c (the play), predict_links.c (messages). */
#ifndef ECHI_PREDICT_IMPL_H
#define ECHI_PREDICT_IMPL_H
#include "echi_predict.h"
#include "echi_task.h"

enum echi_play_what {
    ECHI_PLAY_NOTHING, FORWARD_DONE, ROWS_IN, HEAD_ANSWERS, HEAD_FREE, ANSWER_IN, HEAD_LEAVES, STEP_DONE, HEAD_IN, PUSH_IN, APPLIED,
    WEIGHTS_READY, SENT, WEIGHTS_IN, STATE_READY, STATE_OUT, STATE_IN, WORD_IN, LEASE_IN
};
struct event { double at; uint32_t turn; uint16_t who; uint8_t what, flight; };   /* turn: of two at once the one said first comes first */

struct node {
    double urgent_until;                  /* the head's and the owner's work, before all other of this lane */
    double stolen, stolen_before;         /* seconds of it so far; when the worker's task began, or was last put off */
    double head_before;                   /* the same of the moment at which its layers behind the cut are ready */
    double beside_until;                  /* the coordinator's messages */
    bool busy;                            /* with the worker's task ... */
    double begun, stolen_begun;           /* ... since then, what was stolen by then not counted; urgent work waits for the end of a unit */
    enum { FORWARD, BACKWARD, STEP } task;
    double longer;                        /* so many times what its units take by themselves */
    const struct echi_unit_share *share;  /* of its units; NULL: not known, then all take 1 */
    double a_share[2];                    /* seconds, of the trunk and of the head */
    double units_take[3];                 /* those of each task by themselves */
    double forward, backward;             /* seconds of the worker's tasks; where nothing is apart, all of a step,
                                             and the last part of it */
    double exchange;                      /* seconds to take in a push or to send one, of the layers that travel */
    double apply;                         /* to apply one */
    double update;                        /* of the head's layers */
    double message, row;                  /* one besides its bytes; the bytes of a sample to the head and back */
};
struct flight {
    enum { AWAY, WANTS_LEASE, WANTS_FORWARD, WANTS_BACKWARD } wants;
    double factor, seen;
    bool head_out, trunk_in;              /* of its push: the layers behind the cut are on their way; those before it are in */
};
struct worker {
    struct flight flight[ECHI_FLIGHTS];
    bool owed[ECHI_FLIGHTS];              /* weights: it waits for a place, or for the slowest of its group */
    uint32_t begun, applied, counted;     /* steps */
    int leases;                           /* that it has not begun; where rounds are dealt ahead they are always there */
    double first, last;                   /* when the counted ones were applied: the first of them begins the count */
};
struct group {
    int workers;
    uint32_t least; int at_least;         /* steps of the slowest, and how many have no more */
    double own, weights, sent;            /* samples in its state, in its weights, in the state that is being sent */
    double peer[ECHI_GROUPS_MAX], acked[ECHI_GROUPS_MAX];   /* of the others in its weights; of its own that the others have */
    double carried[ECHI_GROUPS_MAX];      /* in the state that is on its way to each other; 0: none is */
    bool due[ECHI_GROUPS_MAX], state_out; /* to whom the state that is being sent has still to go; it leaves, or waits for the link */
    bool waits;                           /* ... for the link to be idle */
    double behind; uint64_t behind_count; /* its pushes, samples */
    int since_send, sends;                /* pushes since it was sent, and others that it has not left for */
    int first;                            /* its workers are member[first] on, `workers` of them, by rank */
    int owed, sending, turn;              /* weights; the worker of them that is looked at first */
};

/* Events under way: one a flight, and one for each lease that it may have, two of the head, states from each owner to each other,
 * sends of each, a round's apply. */
#define EVENTS_MAX ((2 * ECHI_FLIGHTS + ECHI_LEASES_AHEAD) * ECHI_WORLD_MAX + 2 + ECHI_GROUPS_MAX * (ECHI_GROUPS_MAX + ECHI_SNAPSHOTS) + 1)

/* A message that leaves, in the list of its sender. */
struct echi_play_flow {
    double bytes, leaves;                 /* of them, those that have not left */
    double in_at;                         /* then all are in, if they have left by then */
    uint16_t from, to, next;
    uint16_t who, sent_who;
    uint8_t arrives, flight, sent, flight_sent;
    bool begun;
};
struct echi_play_link {
    uint16_t first, last;                 /* that leave, the one whose turn it is first */
    double began, stretch;                /* of the first, since then: so many bytes */
    double in_until;                      /* what has begun to leave for here comes in until then */
};
struct echi_play_due { double at; uint16_t host; };
/* What is told of a message: when it has arrived, and, if not NOTHING, when it has left. */
struct echi_play_note { enum echi_play_what arrives; int who, flight; enum echi_play_what sent; int sent_who, sent_flight; };
/* Of each flight the two parts of a push at most; states from each owner to each other. */
#define ECHI_PLAY_FLOWS (2 * ECHI_FLIGHTS * ECHI_WORLD_MAX + ECHI_GROUPS_MAX * ECHI_GROUPS_MAX)

struct step { uint16_t who; uint8_t flight; };

struct echi_play {
    const struct echi_plan *plan;
    const struct echi_times *times;
    const struct echi_load *load;
    const struct echi_policy *policy;
    double now;
    struct event heap[EVENTS_MAX];
    int n_events;
    uint32_t turns;
    struct node node[ECHI_WORLD_MAX];
    struct worker worker[ECHI_WORLD_MAX];
    struct echi_play_link link[ECHI_WORLD_MAX];
    struct echi_play_flow flow[ECHI_PLAY_FLOWS];
    uint16_t n_flows, spare;              /* used so far; of those that are free again the first */
    struct echi_play_due due[ECHI_WORLD_MAX]; int n_due;
    uint16_t due_place[ECHI_WORLD_MAX];
    struct group group[ECHI_GROUPS_MAX];
    int groups;                           /* that have workers */
    uint16_t member[ECHI_WORLD_MAX];      /* workers, group by group */
    int units;                            /* of a worker's tasks */
    /* Under a codec, of a group's pushes, of weights and states, and of what stays on its node: bytes over those that they have dense; in
     * updates, to write and to read them. */
    struct coding { double part, write, read; } gradients[ECHI_GROUPS_MAX], states, own;
    struct step queue[ECHI_FLIGHTS * ECHI_WORLD_MAX];   /* rows at the head; the first `visiting` are in work */
    int queued, visiting;
    struct step stuck[ECHI_FLIGHTS * ECHI_WORLD_MAX];   /* pushes that wait because their group is too far ahead, in order */
    int n_stuck;
    bool head_busy, bound;
    int round_in;                         /* pushes of this round that are in */
    uint64_t pushes, warm;
    double all;                           /* samples applied, by whomever */
    double stale, behind;
    uint64_t stale_count;
};

/* predict.c */
void echi_predict_tell(struct echi_play *p, double at, enum echi_play_what what, int who, int flight);
/* A host's way out has nothing more to send. */
void echi_predict_idle(struct echi_play *p, int host);

/* predict_links.c */
void echi_predict_links(struct echi_play *p);
/* A message leaves now, behind those that wait. At most ECHI_PLAY_FLOWS are under way. */
void echi_predict_carry(struct echi_play *p, int from, int to, double bytes, const struct echi_play_note *note);
/* One without a payload, which goes before all others, at some time from now on. */
void echi_predict_word(struct echi_play *p, int from, int to, double at, enum echi_play_what arrives, int who);
bool echi_predict_link_busy(const struct echi_play *p, int host);   /* something leaves */
void echi_predict_link(struct echi_play *p);   /* the first turn that ends does; there is one */
#endif
