/* SPDX-License-Identifier: Apache-2.0
 * What links alone make a round by part last, without playing it: a bound that tells which plans need not be played, or not to the end.
 *
 * Nobody has a gradient of a round before all shards have ended the one before it, and a round ends when all gradients of it are here. So
 * between the ends of two rounds each link carries the gradients of all rounds between them. Weights leave when the first piece of their
 * round is applied, and are everywhere before the next round ends, so it also carries those of all these rounds but the last. */
#include "echi_play.h"

/* Bytes of a round, one direction of a host's link. */
struct way { double gradients, weights; };

/* From each worker to the owner, and back to it. */
static void count_server(const struct echi_play *p, struct way *out, struct way *in, int owner, const struct echi_play_piece *piece) {
    for (int w = 0; w < p->workers; w++) {
        const int rank = p->rank[w];
        if (rank == owner) continue;
        out[rank].gradients += piece->gradients;
        in[owner].gradients += piece->gradients;
        out[owner].weights += piece->weights;
        in[rank].weights += piece->weights;
    }
}

/* Sums go from worker to worker and end at the owner, where weights begin. */
static void count_ring(const struct echi_play *p, struct way *out, struct way *in, int owner, const struct echi_play_piece *piece) {
    for (int w = 0; w < p->workers; w++) {
        const int rank = p->rank[w], next = p->rank[echi_play_next(p, w)];
        if (rank != owner) {
            out[rank].gradients += piece->gradients;
            in[next].gradients += piece->gradients;
        }
        if (next != owner) {
            out[rank].weights += piece->weights;
            in[next].weights += piece->weights;
        }
    }
}

struct echi_round_links echi_play_round_links(struct echi_play *p) {
    const int world = p->plan->world;
    const bool rings = echi_plan_rings(p->plan);
    struct echi_round_links most = {0, 0};
    struct way *out = echi_play_zeroed(p, 2 * (size_t)world, sizeof *out), *in = out + world;
    if (!out) return most;
    for (int i = 0; i < p->pieces; i++) {
        const int owner = echi_plan_shard_owner(p->plan, 0, p->piece[i].shard);
        (rings ? count_ring : count_server)(p, out, in, owner, &p->piece[i]);
    }
    for (int i = 0; i < 2 * world; i++) {
        const double rate = echi_play_link(p, i % world, i >= world), ns = rate > 0 ? 1e9 / rate : 0;
        if ((out[i].gradients + out[i].weights) * ns <= most.gradients + most.weights) continue;
        most = (struct echi_round_links){out[i].gradients * ns, out[i].weights * ns};
    }
    return most;
}

/* Each of a round's messages takes whole ns. */
#define ROUNDED (1 - 1e-4)
double echi_play_rounds_least(struct echi_round_links links, uint32_t rounds) {
    return rounds ? ROUNDED * (rounds * links.gradients + (rounds - 1) * links.weights) : 0;
}
