/* SPDX-License-Identifier: Apache-2.0
 * How much a node's link carries, measured when all have joined. Pairs of nodes that have no node in common send to each other at once,
 * in as many rounds as it takes for each to meet each other (15 at most): in a round a node meets one other.
 *
 *   READY     -->  <--  READY     both have come to this round
 *   DATA ...  -->  <--  DATA ...  at once in both directions, as a step's weights and gradients go
 *   GOT       <--  -->  GOT       8 of them have come: no more than as many as that and 16 are on their way, or what is in buffers when
 *                                 STOP comes would take seconds on a slow link
 *   STOP      <--  -->  STOP      they have come for 0.3 s: more is not needed. On a fast link all have come before that
 *   LAST      -->  <--  LAST
 *   RATE r    <--  -->  RATE r    what the receiver found, of the last half: by then a shaper's burst is used up
 *
 * A node's link carries what it carries with the best of its partners; what counts is its slower direction, since a push and weights
 * take both. Links with long delays are underrated: as with any transfer of 2 MB, TCP has hardly begun. Pure: it says what to send, and is
 * told what comes. */
#ifndef ECHI_LINKS_H
#define ECHI_LINKS_H
#include "echi_message.h"

#define ECHI_LINKS_ROUNDS 15
#define ECHI_LINKS_FRAMES 576     /* of DATA, 2 MB: more than twice the burst of a shaper for 1 Gb/s */
#define ECHI_LINKS_BYTES ECHI_PROBE_BODY   /* of a body, at most; of DATA */
#define ECHI_LINKS_OVERHEAD 58    /* bytes of a message beside its body */

struct echi_links {
    bool began, over;
    int rank, world, round, partner;      /* partner -1: nobody, in this round */
    bool is_ready[ECHI_WORLD_MAX];        /* its READY has come, and not been used yet */
    int64_t heard;                        /* from the partner, or the beginning of the round */
    bool said_ready, said_last, said_stop, said_rate;
    bool stop, came_last, knows_out;
    uint32_t sent, gots;                  /* DATA; GOT that came */
    uint32_t said_gots, came; int64_t at[ECHI_LINKS_FRAMES];   /* DATA; when */
    double out, in;                       /* bytes a second, the best so far; 0: not known */
};

void echi_links_begin(struct echi_links *links, int rank, int world, int64_t now);   /* of zeroed ones, which may have heard before */
void echi_links_hear(struct echi_links *links, int peer, const uint8_t *body, size_t len, int64_t now);
void echi_links_lost(struct echi_links *links, int peer);
/* The next message, of *out_len bytes in body, to *out_peer, when `queued` of those for the partner have not left yet. False: not now. */
bool echi_links_next(struct echi_links *links, int64_t now, int queued, int *out_peer, uint8_t body[ECHI_LINKS_BYTES], size_t *out_len);
/* Bytes a second of this node's link, in the slower direction; 0: not known. */
double echi_links_rate(const struct echi_links *links);
#endif
