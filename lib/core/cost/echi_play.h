/* SPDX-License-Identifier: Apache-2.0
 * What predictions share: a plan's hosts on the cost engine, their steps, messages and works, in one block of memory. The roles that act on
 * it are played by predict_rounds.c (rounds part by part), predict_pushes.c (whole pushes) and predict_head.c. */
#ifndef ECHI_PLAY_H
#define ECHI_PLAY_H
#include "echi_cost.h"
#include "echi_message.h"
#include "echi_predict.h"
#include "echi_priority.h"
#include "echi_task.h"
#include "echi_timeline.h"

#define ECHI_PREDICT_APPLY 0.7           /* of echi_times.exchange, an update where nobody measured one */
#define ECHI_PLAY_SHAPES 64

/* What a work or a message is about: in rounds by part of which shard (`owner`), worker and piece. Among whole pushes `owner` is a group, a
 * flight, or of a state its sender, whose receiver is `worker`; the piece of an APPLY is the push's flight. */
struct echi_about { enum echi_play_what what; int owner, worker, piece; };

struct echi_play_shape {
    struct echi_work_shape step, forward, backward;
    double *until; bool *mark;        /* [units of all three] */
};
/* One or several parts of a shard that travel together: bytes of messages of its gradients and of its weights, the first layer that it has
 * parameters of, and its first part. Pieces are numbered as forward needs them. */
struct echi_play_piece { double params, gradients, weights; uint16_t first, part, shard; };

/* Rows at the head: of which worker, and of which of its steps in flight, or micro-batches. */
struct echi_play_rows { uint16_t worker; uint8_t flight; };

/* predict_head.c */
struct echi_play_head {
    int rank;                             /* -1: there is none */
    bool busy;
    struct echi_play_rows *waiting, *visiting; int n_waiting, n_visiting;   /* [stacks * workers] */
    int rows;                             /* steps or micro-batches of a round that it gets */
    int in;                               /* of these so many were visited */
    /* Of several heads: sums that are here, by head, its own as soon as it is whole; and so many of its own are leaving. */
    uint8_t sums[ECHI_HEADS_MAX]; int leaving;
    uint8_t *answering;                   /* [workers] so many of its answers are leaving */
    uint32_t *visits;                     /* [workers] in which it had rows */
    /* [workers] Micro-batches of its step: so many have gone forward, and so many rows were sent; places that these have. */
    struct echi_play_micro { uint8_t ready, sent, placed; } *micro;
};
/* Of a step's rows at the shadow: they are on their way, have come and wait until it has trained those before them, are in its place, and
 * their worker knows. */
enum echi_play_copy { ECHI_COPY_LEAVES, ECHI_COPY_WAITS, ECHI_COPY_IN, ECHI_COPY_TOLD };

struct echi_play {
    const struct echi_plan *plan;
    const struct echi_times *times;
    const struct echi_load *load;
    struct echi_cost *cost;
    struct echi_timeline *line;           /* NULL: nobody watches */
    int64_t from;                         /* virtual ns: what links carry is counted from then on; 0: not yet */
    unsigned char *memory; size_t used, size;
    struct echi_hosts hosts;
    int workers, layers, shards, pieces;
    uint16_t *rank;                       /* [workers] */
    bool cuts;                            /* steps into micro-batches; else whole ones are played, whatever the plan has */
    double all, head_params;              /* parameters (1 where nobody knows); those of a separated head */
    double number;                        /* bytes of one parameter's gradient on a link: --deterministic sums integers */
    uint16_t meta[ECHI_KINDS];            /* bytes of what a message of each kind says beside its payload */
    struct echi_play_piece *piece;        /* [pieces] of what a worker pushes */
    const struct echi_play_shape **of;    /* [workers] */
    struct echi_play_shape shape[ECHI_PLAY_SHAPES]; int shapes;
    struct echi_play_head head[ECHI_HEADS_MAX]; int heads;   /* all of them; or the head, and its shadow where there is one */
    struct {
        uint8_t *copy;                    /* [stacks * workers] enum echi_play_copy */
        uint8_t *taken;                   /* [workers] of its places so many */
    } shadow;
};

/* ---- play.c ---- */

/* A play of this plan, whose memory is the workspace behind its first `taken` bytes. */
struct echi_play echi_play_of(const struct echi_plan *plan, const struct echi_times *times, const struct echi_load *load,
                              struct echi_predict_work *work, size_t taken);
/* Before it is set up: `line` records it, unless it is NULL. */
void echi_play_watch(struct echi_play *p, struct echi_timeline *line);
/* `limit`: about so many messages a push of all workers makes. False without memory, or without layers. */
bool echi_play_set_up(struct echi_play *p, int limit);
void *echi_play_zeroed(struct echi_play *p, size_t count, size_t size);   /* NULL without memory */

uint64_t echi_play_cookie(struct echi_about about);
struct echi_about echi_play_about(uint64_t cookie);
void echi_play_send(struct echi_play *p, int from, int to, int priority, double bytes, struct echi_about about);
/* Bytes of a message with such a payload, frames included. */
double echi_play_bytes(const struct echi_play *p, enum echi_kind kind, double payload);
/* So many messages without a payload, which leave as one. */
void echi_play_words(struct echi_play *p, int from, int to, enum echi_kind kind, int count, struct echi_about about);
void echi_play_compute(struct echi_play *p, int rank, enum echi_task_kind kind, double seconds, struct echi_about about);
/* Seconds for so many parameters. */
double echi_play_adding(const struct echi_play *p, int rank, double params);
double echi_play_applying(const struct echi_play *p, int rank, double params);
/* Of all that a worker pushes. */
double echi_play_pushed(const struct echi_play *p);
/* Bytes a second of a direction of its link; 0: without bound. */
double echi_play_link(const struct echi_play *p, int rank, bool in);
/* What links carry between a call of the first and one of the second, which is to count as so many seconds, into work->traffic; and what
 * part of it threads are busy, into work->busy. */
void echi_play_traffic_from(struct echi_play *p, struct echi_predict_work *work);
void echi_play_traffic(const struct echi_play *p, double seconds, struct echi_predict_work *work);

/* The worker behind this one on a ring. */
static inline int echi_play_next(const struct echi_play *p, int worker) { return worker + 1 < p->workers ? worker + 1 : 0; }

/* predict_links.c: of rounds by part, of which play it is set up: ns a round that the busiest direction of a link needs for gradients and
 * for weights; 0: none has a bound. */
struct echi_round_links { double gradients, weights; };
struct echi_round_links echi_play_round_links(struct echi_play *p);
/* ns that so many rounds take at least, from the end of the one before the first to that of the last. */
double echi_play_rounds_least(struct echi_round_links links, uint32_t rounds);
/* predict_line.c: the time line, if there is one, is whole. As echi_timeline_path. */
void echi_play_end(struct echi_play *p, int64_t since, int rank);
/* ---- predict_head.c ---- */

bool echi_play_head_set_up(struct echi_play *p);
int echi_play_micros(const struct echi_play *p, int worker);                        /* of a step; 1: it is not cut */
uint32_t echi_play_samples(const struct echi_play *p, int worker, int micro);       /* of a micro-batch, or a step */
int echi_play_rows_leave(struct echi_play *p, int worker, int flight);   /* how many messages they are. flight: or micro-batch */
void echi_play_rows_in(struct echi_play *p, struct echi_about about);
void echi_play_head_marked(struct echi_play *p, struct echi_about about);   /* the rows' gradients are there */
void echi_play_head_done(struct echi_play *p, struct echi_about about);     /* a visit, or a round's update */
void echi_play_answer_left(struct echi_play *p, int worker);
void echi_play_head_sum_in(struct echi_play *p, struct echi_about about);
void echi_play_head_sum_left(struct echi_play *p, struct echi_about about);
/* Does the worker know that the shadow has the rows of this step, or is there none? It has been told of rows. */
bool echi_play_shadowed(const struct echi_play *p, int worker, int flight);
void echi_play_told_shadowed(struct echi_play *p, struct echi_about about);
#endif
