/* SPDX-License-Identifier: Apache-2.0
 * How much a node's link carries: as the plan says, or measured when all have joined. First rank 0 tells each other node what the plan's
 * file has of its link (GIVEN). Where that is nothing, pairs of nodes that have no node in common send to each other at once,
 * in as many rounds as it takes for each to meet each other (15 at most): in a round a node meets one other.
 *
 *   READY     -->  <--  READY     both have come to this round
 *   PING      -->  <--  PONG      round trips, one after the other, of both; the answer has the answering node's clock. Both have all of
 *                                 theirs before either sends DATA, so none waits behind it
 *   DATA ...  -->  <--  DATA ...  at once in both directions, as a step's weights and gradients go
 *   GOT       <--  -->  GOT       8 of them have come: no more than as many as that and 16 are on their way, or what is in buffers when
 *                                 STOP comes would take seconds on a slow link
 *   STOP      <--  -->  STOP      they have come for 0.3 s: more is not needed. On a fast link all have come before that
 *   LAST      -->  <--  LAST
 *   RATE r h t <-- --> RATE r h t what the receiver found, of the last half: by then a shaper's burst is used up; the most that it saw; and
 *                                 its shortest round trip so far, with any partner
 *
 * `echelon doctor` measures pairs by the same code: each node meets every other, takes more round trips, and keeps what each pair showed.
 *
 * A node's link carries what it carries with the best of its partners, each direction by itself. `lowest` is what it carried with the
 * worst of them, whose own link may be thin; `highest` is the most that any half of a measurement showed. Links with long delays are
 * underrated: as with any transfer of 2 MB, TCP has hardly begun. Pure: it says what to send, and is told what comes. */
#ifndef ECHI_LINKS_H
#define ECHI_LINKS_H
#include "echi_link.h"
#include "echi_message.h"

#define ECHI_LINKS_ROUNDS 15
#define ECHI_LINKS_FRAMES 576     /* of DATA, 2 MB: more than twice the burst of a shaper for 1 Gb/s */
#define ECHI_LINKS_BYTES ECHI_PROBE_BODY   /* of a body, at most; of DATA */
#define ECHI_LINKS_OVERHEAD 58    /* bytes of a message beside its body */
#define ECHI_LINKS_PINGS 8        /* of a pair, by a doctor */
#define ECHI_LINKS_RUN_PINGS 3    /* in a run: their shortest with any partner counts */

/* The link between this node and one other. */
struct echi_links_pair {
    struct echi_rate out, in;         /* 0: not known */
    double round_trip;                /* seconds, the shortest; 0: not known */
    double offset;                    /* seconds by which the other's clock is ahead, give or take half of the round trip */
};

struct echi_links {
    struct echi_links_pair *pairs;        /* [world], of the caller; NULL, as in a run: fewer rounds and round trips, only `link` */
    int64_t wall;                         /* what makes `now` ns since 1970, if pairs is not NULL */
    struct echi_link given[ECHI_WORLD_MAX];   /* rank 0, before it begins: each rank's, by the plan's file; of all ranks or none */
    bool began, over, measures;
    bool heard_given, told;               /* GIVEN has come; and it had rates */
    int tells;                            /* rank 0: the next that it sends GIVEN */
    int rank, world, round, partner;      /* partner -1: nobody, in this round */
    bool is_ready[ECHI_WORLD_MAX];        /* its READY has come, and not been used yet */
    int64_t heard;                        /* from the partner, or the beginning of the round */
    bool said_ready, said_last, said_stop, said_rate;
    bool stop, came_last, knows_out;
    uint32_t pings, pongs, pinged, answered; int64_t ping_at;   /* PING sent and answered; those that came, and our answers */
    uint32_t sent, gots;                  /* DATA; GOT that came */
    uint32_t said_gots, came; int64_t at[ECHI_LINKS_FRAMES];   /* DATA; when */
    struct echi_link link;                /* of this node, so far */
    uint64_t moved;                       /* bytes of DATA that have come, and that were sent */
    double round_trip, theirs;            /* seconds, the shortest with any partner, and the shortest that a partner had; 0: not known */
};

/* Of ones that are zeroed but for `pairs` and `wall`, and may have heard before. measures false: there is no link, or another word on it:
 * only what is given counts. */
void echi_links_begin(struct echi_links *links, int rank, int world, bool measures, int64_t now);
/* False: no node that measures sends this, and nothing has changed. What comes too late for its round is passed over. */
bool echi_links_hear(struct echi_links *links, int peer, const uint8_t *body, size_t len, int64_t now);
void echi_links_lost(struct echi_links *links, int peer);
/* Seconds from this node's link to the middle of the network, when a message takes a processor so many. A round trip is twice the ways of
 * both and four messages; of the partner's way no more is known than that its shortest round trip has it twice. 0: not known. */
double echi_links_delay(const struct echi_links *links, double message);
/* The next message, of *out_len bytes in body, to *out_peer, when `queued` of those for the partner have not left yet. False: not now. */
bool echi_links_next(struct echi_links *links, int64_t now, int queued, int *out_peer, uint8_t body[ECHI_LINKS_BYTES], size_t *out_len);
#endif
