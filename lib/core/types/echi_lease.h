/* SPDX-License-Identifier: Apache-2.0
 * A lease: samples handed to a worker. Bytes, and whether it makes sense: message.c. */
#ifndef ECHI_LEASE_H
#define ECHI_LEASE_H
#include "echi_plan.h"

/* A range of an epoch's permutation, handed to a worker, for one owner and, under BSP, one round. */
struct echi_lease {
    uint32_t id;                          /* from 1, never reused in a run; 0: no lease */
    uint32_t epoch, start, n;             /* samples start .. start+n-1 of the epoch's permutation */
    uint32_t round, round_size;           /* round_size: B, or what is left in an epoch's last round under BSP; under `local`, whose
                                             rounds are many steps long, the samples of the round */
    uint16_t worker, owner;               /* ranks */
    uint8_t again;                        /* 1: these samples were in a lease before, whose worker or owner is lost */
    uint8_t part;                         /* which of its worker's leases of this round it is, from 0; below ECHI_ROUND_PARTS */
    uint64_t shards;                      /* only these shards, a bit each, want its gradients: the others have them; 0: all do */
    uint32_t together;                    /* sync_norm: samples of the round's leases with the same `part`, which have batch-norm's
                                             statistics in common; 0: it has its own, as a lease that is issued again */
    uint8_t head; uint32_t head_rows;     /* several heads: which of them trains its rows, and samples of the round's leases that it trains;
                                             both stay when the lease is issued again, whoever computes it then */
    uint32_t base;                        /* TOPK: what its push's ratio follows from (echi_ratio.h), in millionths, since the plan's base
                                             of its group does not hold any more; 0: that does */
};
/* Are its batch-norm statistics exchanged with other workers? */
static inline bool echi_lease_exchanges(const struct echi_lease *l) { return l->together > l->n; }
/* A sum of gradients of so many samples, of whose leases this one is the first: how many there are of it where it is the only one; 0: it
 * is not. */
static inline uint32_t echi_lease_alone(const struct echi_lease *l, uint64_t samples) { return samples == l->n ? l->n : 0; }

/* Does this shard want its gradients? */
static inline bool echi_lease_wanted(const struct echi_lease *l, int shard) { return l->shards == 0 || (l->shards >> shard & 1); }

/* Does lease a stand before b in the data? */
static inline bool echi_lease_before(const struct echi_lease *a, const struct echi_lease *b) {
    return a->epoch != b->epoch ? a->epoch < b->epoch : a->start < b->start;
}

/* ---- micro.c: a step in micro-batches ----
 * Its rows go to the head as they are computed, and gradients come back meanwhile. Each is a range of the step's lease, and is named as a
 * lease with the same number. A lease that is issued again is one of those that a lost worker's had, or a part of one, and is not cut: so
 * the head has trained all of it, or nothing. */
/* How many a step of n samples has; samples of the largest of them, of all steps of up to n. */
int echi_micro_count(const struct echi_plan *plan, uint32_t n);
uint32_t echi_micro_most(const struct echi_plan *plan, uint32_t n);
int echi_lease_micros(const struct echi_plan *plan, const struct echi_lease *lease);
struct echi_lease echi_lease_micro(const struct echi_plan *plan, const struct echi_lease *lease, int micro);
/* Places that a head has for rows of each worker: with micro-batches one is filled while the other is computed. The i-th of rank r is
 * slot r + i * world. */
int echi_plan_row_places(const struct echi_plan *plan);

/* May a push or rows of this lease come from its worker? By the plan alone, so that whoever sent it can be believed. */
bool echi_lease_valid(const struct echi_lease *lease, const struct echi_plan *plan);

struct echi_reader;
struct echi_writer;
void echi_lease_put(struct echi_writer *w, const struct echi_lease *lease);
void echi_lease_get(struct echi_reader *r, struct echi_lease *out);
#endif
