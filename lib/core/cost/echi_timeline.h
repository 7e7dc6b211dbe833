/* SPDX-License-Identifier: Apache-2.0
 * The *time line* of a prediction: what threads and links of its hosts do in the last rounds of a play, and what each of these intervals
 * waited for. These are the nodes and edges of the DAG of a step (Shi, Wang, Chu, Li: "A DAG Model of Synchronous Stochastic Gradient
 * Descent in Distributed Deep Learning", ICPADS 2018), as the cost engine plays it: with queues, priorities and several hosts.
 *
 * Its *critical path* is the chain of intervals, each begun by the end of the one before, that ends with a round: it says where the time of
 * that round goes. Its parts add up to the round. If one of them took no time, at most that part would be gained: then another chain may be
 * the longest. In a queue the path goes on to whoever is served before. What is less urgent and cannot be interrupted only delays.
 *
 * The memory is the caller's. Of more intervals than there is memory for the newest are kept. */
#ifndef ECHI_TIMELINE_H
#define ECHI_TIMELINE_H
#include "echi_limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where an interval is: a host's compute thread; the ways out and in of its link; its I/O thread, which takes in a message. */
enum echi_line_on { ECHI_LINE_THREAD, ECHI_LINE_OUT, ECHI_LINE_IN, ECHI_LINE_IO, ECHI_LINES };

/* What a work or a message of a play is about. */
enum echi_play_what {
    ECHI_PLAY_STEP, ECHI_PLAY_FORWARD, ECHI_PLAY_BACKWARD, ECHI_PLAY_APPLY, ECHI_PLAY_HEAD, ECHI_PLAY_HEAD_APPLY, ECHI_PLAY_PUSH,
    ECHI_PLAY_WEIGHTS, ECHI_PLAY_ROWS, ECHI_PLAY_ANSWER, ECHI_PLAY_APPLIED, ECHI_PLAY_LEASE, ECHI_PLAY_SUM, ECHI_PLAY_ADD,
    ECHI_PLAY_HANDED, ECHI_PLAY_ENCODE, ECHI_PLAY_DECODE, ECHI_PLAY_ENCODE_STATE, ECHI_PLAY_DECODE_STATE, ECHI_PLAY_STATE, ECHI_PLAY_ACK,
    ECHI_PLAY_LOCAL_APPLY, ECHI_PLAY_DELTA, ECHI_PLAY_JOIN, ECHI_PLAY_SHADOWED, ECHI_PLAY_TOLD,
    ECHI_PLAY_HEAD_SUM
};

#define ECHI_UNDER_WAY INT64_MAX
struct echi_interval {
    int64_t from, to;                 /* virtual ns; to: ECHI_UNDER_WAY when the play ended before it did */
    int64_t lag;                      /* IN: ns that a byte is on its way before it comes in */
    int64_t path_from, path_to;       /* the stretch of it on the critical path of the last round; 0, 0: none */
    uint64_t cookie;                  /* the play's */
    uint32_t cause;                   /* number of the interval whose end let this one begin; ECHI_NOTHING: none is known */
    uint32_t blocker;                 /* less urgent, and had to come to the end of a unit first, or of a chunk; ECHI_NOTHING: none */
    int32_t urgency;                  /* THREAD, OUT: the smaller goes first */
    uint16_t host, other;             /* other: at the other end of a message */
    uint8_t on, what;                 /* what: enum echi_play_what */
    int16_t layer;                    /* THREAD: -1; of a message the first layer that it has parameters of; -1: of none, or of all */
    float begins, ends;               /* THREAD: of the whole work, 0..1 */
    float wake, stolen;               /* THREAD: parts of the interval that waking the thread took, and messages, 0..1 */
    float turns;                      /* THREAD: the part of the interval in which a step goes forward, 0..1 */
};

/* What a part of the critical path is spent with. */
enum echi_path_kind {
    ECHI_PATH_FORWARD, ECHI_PATH_BACKWARD,
    ECHI_PATH_APPLY,                  /* an owner takes in, adds and applies gradients; a worker of `local` its own */
    ECHI_PATH_HEAD,                   /* separated layers: forward, backward, update */
    ECHI_PATH_CODEC,
    ECHI_PATH_OUT, ECHI_PATH_IN,      /* bytes on a link; of a message that two links limit alike, the sender's */
    ECHI_PATH_MESSAGES,               /* what messages take their hosts' processors */
    ECHI_PATH_WAKE,                   /* of the compute thread */
    ECHI_PATH_LATENCY,                /* on the way from one host to another; of no rank */
    ECHI_PATH_KINDS
};
const char *echi_path_name(int kind);   /* "forward", "backward", ... */
/* Of an interval; backward: of a step, its part behind the forward. And what a message carries: "gradients", "weights", "activations" (and
 * their gradients), "states", "control". */
enum echi_path_kind echi_interval_kind(const struct echi_interval *interval, bool backward);
const char *echi_interval_message(const struct echi_interval *interval);
struct echi_path_part { uint8_t kind; int16_t rank; double seconds; };   /* of a round; rank -1: of several, or of none */

#define ECHI_PATH_PARTS 20
struct echi_path {
    uint32_t rounds;                  /* that the path is the mean of; 0: there is none, since the time line has not a whole round */
    double seconds;                   /* of a round: all parts together */
    int parts; struct echi_path_part part[ECHI_PATH_PARTS];   /* the longest first, and what is left over of each kind without a rank */
    int rank;                         /* rounds that nobody waits for: from a push of this rank to its next; -1: rounds of all */
};

#define ECHI_LINE_MARKS 4096
#define ECHI_LINE_PARTS 256
#define ECHI_LINE_WORKS 4096
struct echi_timeline {
    struct echi_interval *interval;   /* [capacity] */
    uint32_t capacity, count;         /* count: so far; the newest are there */
    int64_t from, to;                 /* the last round; to 0: there was none */
    int hosts;
    struct echi_path path;
    /* what follows is for those that record it */
    uint32_t now;                     /* the interval whose end is what happens now */
    struct { uint32_t running, sending, in, io, self; } host[ECHI_WORLD_MAX];
    uint32_t asked[ECHI_LINE_WORKS];  /* by numbers of works: what they were asked for by */
    /* Parts of messages on their way: to whom, and by which interval they left. */
    struct { int64_t entry, across; uint32_t out; uint16_t host; } part[ECHI_LINE_PARTS]; int parts;
    struct echi_line_mark { int64_t at; uint32_t cause; uint16_t rank; } mark[ECHI_LINE_MARKS]; uint32_t marks;   /* ends of rounds */
    struct { int64_t first, last; uint32_t count; } of[ECHI_WORLD_MAX];
    double ns[ECHI_PATH_KINDS][ECHI_WORLD_MAX + 1];   /* [..][0]: of no rank */
};
/* Zeroes a time line whose `interval` and `capacity` (>= 1) stay. */
void echi_timeline_clear(struct echi_timeline *line, int hosts);
/* By its number; NULL: it is not there, or not any more. Numbers go from echi_timeline_first up to line->count. */
struct echi_interval *echi_timeline_at(const struct echi_timeline *line, uint32_t number);
uint32_t echi_timeline_first(const struct echi_timeline *line);
uint32_t echi_timeline_add(struct echi_timeline *line, struct echi_interval interval);   /* its number */
/* What happens now ends a round, or a push of this rank. */
void echi_timeline_mark(struct echi_timeline *line, int64_t now, int rank);

/* path.c: sets from, to and path, when intervals have their `what` and `turns`. Of rounds that ended at `since` or later: those of `rank`,
 * or, with -1, of the rank whose rounds take the longest. */
void echi_timeline_path(struct echi_timeline *line, int64_t since, int rank);
/* The parts of rounds that were played for those of one that takes so long in the mean over all that can happen. */
void echi_path_scale(struct echi_path *path, double seconds);
#endif
