/* SPDX-License-Identifier: Apache-2.0
 * Optimal merging: which neighbouring pieces of a step's gradients travel as one message. merge.c
 *
 * A message takes a time of its own beside that of its bytes, so few messages are better; but one leaves when the last of its gradients
 * is there, and passes what comes next as a whole, so many are. MG-WFBP (Shi, Chu, Li, INFOCOM 2019, section IV) merges greedily from the
 * last layer on, which is not the best (a third longer in the worst of random cases). A dynamic program over where each message begins is
 * exact. Pure; no memory but the caller's. */
#ifndef ECHI_MERGE_H
#define ECHI_MERGE_H
#include "echi_part.h"

/* Pieces are numbered as forward needs them; backward makes the last one first. */
struct echi_merge_piece { double ready, params; };   /* seconds after which its gradients are there, none before those behind it; > 0 */
/* So many seconds a message beside those of its parameters. */
struct echi_merge_stage { double message, param; };
enum { ECHI_MERGE_STAGES = 2 };
/* What a message costs. `compute`: by so much the gradients that are not there yet are later, since the processor that computes them also
 * has a part in the message; 0, 0: it has none. The stages, each of which passes one message after the other, the last pieces first. Two in
 * a row: a parameter server's way in and way out; the selection of top-k and a link. The second may be all 0: there is one. */
struct echi_merge_costs { struct echi_merge_stage compute, stage[ECHI_MERGE_STAGES]; };

/* Seconds of a node: a message at one end; a byte on its link, and one that its processor copies there; a parameter whose gradient is
 * added, and one that is updated. */
struct echi_merge_node { double message, byte, copy, add, update; };
/* What a message costs such nodes, so many of which train and so many of which own, each of them an equal share: its gradients go to their
 * owners and its weights come back. It has so many slices, each of which goes to one owner. */
struct echi_merge_costs echi_merge_costs_of(const struct echi_merge_node *node, int workers, int owners, int slices);

/* Of the pieces from one on, one way to cut them: when each stage is free again, the first piece behind the first message, which way to cut
 * the pieces from there on, and how many messages delay what is in front of them. */
struct echi_merge_way { double free[ECHI_MERGE_STAGES]; uint16_t next, rest, delays; };
/* Ways that are worth going on from: no other is as soon at both stages, with as few messages that delay. With one stage and no delays that
 * is one; else there were up to 486 of 256 pieces in thousands of random cases. Of more the one that is through the last is forgotten. */
#define ECHI_MERGE_WAYS 640
struct echi_merge_work { uint16_t ways[ECHI_PARTS_MAX + 1]; struct echi_merge_way way[ECHI_PARTS_MAX + 1][ECHI_MERGE_WAYS]; };

/* Cuts 1 to ECHI_PARTS_MAX pieces into messages so that the last is through all stages the soonest; sets out_begins[i] where a message
 * begins with piece i. Returns the seconds at which it is. */
double echi_merge(const struct echi_merge_piece *piece, int count, const struct echi_merge_costs *costs, struct echi_merge_work *work,
                  bool *out_begins);
#endif
