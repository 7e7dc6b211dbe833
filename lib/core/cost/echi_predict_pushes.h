/* SPDX-License-Identifier: Apache-2.0
 * What the files of a play of whole pushes share: predict_pushes.c (workers, the coordinator, the play), predict_owner.c (owners of groups)
 * and predict_local.c (workers under `local`). */
#ifndef ECHI_PREDICT_PUSHES_H
#define ECHI_PREDICT_PUSHES_H
#include "echi_play.h"
#include "echi_ranks.h"

/* As the worker's role has them; from FORWARD on a step is under way. AWAY: pushed, and waits for weights. */
enum echi_push_phase { ECHI_PUSH_AWAY, ECHI_PUSH_IDLE, ECHI_PUSH_FORWARD, ECHI_PUSH_AT_HEAD, ECHI_PUSH_ANSWERED, ECHI_PUSH_BACKWARD,
                       ECHI_PUSH_AT_SHADOW };
struct echi_push_flight {
    enum echi_push_phase phase;
    uint32_t since;                       /* the phase; in turns of its worker */
    int unpushed, leaving;                /* pieces of its gradients that have not been sent, the first ones; messages that have not left */
    int come;                             /* at the owner: pieces of its push */
    bool more;                            /* as it pushed, its worker held another lease */
    double factor, seen;                  /* of its time; samples in the weights that it is computed on */
};
struct echi_push_worker {
    int group;
    struct echi_push_flight flight[ECHI_FLIGHTS];
    uint32_t turns, begun, applied, counted;   /* the last three: steps, under `local` rounds */
    int64_t first, last;                  /* when the counted ones were applied: the first of them begins the count */
    int leases;                           /* that it has not begun; where rounds are dealt ahead they are always there */
    uint32_t dealt, in, longer;           /* leases so far; that are in; from this one on it may be dealt further ahead */
    int ahead;
    int weights_in, undecoded; bool decoding;   /* pieces of an answer; answers that wait to be read, and whether one is */
    double coming[ECHI_FLIGHTS]; int n_coming;  /* samples in the weights that are on their way */
    int owed, leaving;                    /* at its owner: answers, and pieces of such that have not left */
    bool encoding;                        /* weights for it are being written */
    struct {
        bool busy, fresh, has;            /* with a task; weights have come and are not taken in; a lease is in hand */
        uint32_t version, round, done;    /* of the weights, 0: none; of the next lease; steps of the one in hand */
        double samples, behind, seen;     /* in the weights; its own since; behind the lease in hand */
    } local;
};
/* A push: whose, and of which flight. */
struct echi_push_step { uint16_t worker; uint8_t flight; };

struct echi_push_group {
    int owner, workers;
    uint16_t *member;                     /* workers, by rank */
    uint32_t least; int at_least;         /* steps of the slowest, and how many have no more */
    bool busy;
    struct echi_push_step *queue; int queued;   /* whole pushes */
    int round_in;                         /* of a round, those that are added */
    struct echi_ranks owed, held_back;    /* workers that an answer is due to; and such as may not have it before the slowest move on */
    int sends, turn;                      /* answers on their way to other nodes; the worker that is looked at first */
    int own_worker;                       /* its node's, whose answers take no place; -1: none, or a codec writes them */
    double own, weights, next;            /* samples in its state, in its weights, and in those that are being made, the push left out */
    uint32_t version, acked_version[ECHI_GROUPS_MAX], carried_version[ECHI_GROUPS_MAX];
    double peer[ECHI_GROUPS_MAX];         /* of the others, here */
    double acked[ECHI_GROUPS_MAX];        /* of its own, that others are known to have */
    double sent; uint32_t sent_version;   /* in the state sent last */
    double carried[ECHI_GROUPS_MAX], there[ECHI_GROUPS_MAX];   /* in the one on its way to each other, 0: none is; in the last that came */
    bool due[ECHI_GROUPS_MAX];            /* to whom the state that is being sent has still to go */
    bool undecoded[ECHI_GROUPS_MAX];      /* whose state has come, and is not read */
    int since_send, state_out;            /* pushes since a state was sent; messages of it that have not left */
    double behind; uint64_t behind_count; /* its pushes, samples */
};

/* Under a codec: bytes over those that a message has dense; in updates, to write and to read it. */
struct echi_coding { double part, write, read; };

struct echi_pushes {
    struct echi_play b;
    const struct echi_policy *policy;
    bool coded;
    struct echi_push_worker *worker;
    struct echi_push_group group[ECHI_GROUPS_MAX];
    int groups, answer_pieces;            /* groups that have workers; messages of one answer */
    double pushed;                        /* parameters of a push */
    struct echi_coding gradients[ECHI_GROUPS_MAX], states, own;
    uint64_t pushes, warm;
    double all;                           /* samples applied, by whomever */
    double stale, behind; uint64_t stale_count;
};

/* predict_pushes.c */
double echi_pushes_updates(const struct echi_pushes *p, int rank, double updates);   /* seconds of so many updates of what is pushed */
/* Pieces whose first layer is this one or behind it leave. */
void echi_pushes_push(struct echi_pushes *p, int worker, int flight, int layer);
const struct echi_coding *echi_pushes_gradients(const struct echi_pushes *p, int worker);
const struct echi_coding *echi_pushes_weights(const struct echi_pushes *p, int worker);
uint32_t echi_pushes_samples(const struct echi_pushes *p, int worker);   /* of one push */
void echi_pushes_count(struct echi_pushes *p, int worker);   /* a push of it is applied */

/* predict_owner.c: what has happened at an owner */
bool echi_owners_set_up(struct echi_pushes *p);
void echi_owner_piece_in(struct echi_pushes *p, int worker, int flight);
void echi_owner_weights_left(struct echi_pushes *p, int worker);
void echi_owner_computed(struct echi_pushes *p, struct echi_about about);
void echi_owner_state_left(struct echi_pushes *p, int group);
void echi_owner_state_in(struct echi_pushes *p, int from, int to);
void echi_owner_acknowledged(struct echi_pushes *p, int group, int by);
void echi_owner_goes_on(struct echi_pushes *p, int group);

/* predict_local.c */
void echi_local_weights(struct echi_pushes *p, int worker, double samples);
void echi_local_done(struct echi_pushes *p, int worker, enum echi_play_what what);
#endif
