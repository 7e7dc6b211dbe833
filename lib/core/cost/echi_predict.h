/* SPDX-License-Identifier: Apache-2.0
 * What a plan is worth before it runs: images a second, staleness, and what that staleness costs.
 *
 * A prediction plays a plan on resources with queues, but without messages' contents and arithmetic. All that is random comes from
 * counters, so the same plan gets the same number on every machine. There are two plays.
 *
 * Rounds whose parts are applied one by one, of one owner or of the owners of shards, are played on the cost engine, as the simulator plays
 * them (predict_rounds.c). Neglected: frames and credits; leases, which are dealt ahead; what takes place beside the steps (first weights,
 * evaluations, checkpoints); that TCP serves several connections side by side; exchanges of batch-norms. Where a round has more than some
 * thousand pushes of parts, neighbours of a shard travel together. Where steps vary, what is luck in the longest step of each round played
 * is taken off (a control variate): then a few dozen rounds are enough.
 *
 * All other plans have an event loop of their own (predict.c), with links that send in turns as TCP does (predict_links.c; the simulator
 * still sends one message after the other). Neglected: frames, credits and the order by priority of what leaves a node (only words without
 * a payload go before what has one); that leases are dealt far ahead only to who has run out of them; layers before the cut that travel
 * while others are still computed; that messages come in side by side; rounds of several owners, whose parts are not applied one by one
 * (`--deterministic`): they are taken for one owner's. Of a codec's ratios it takes those that a run comes to.
 *
 * Both neglect what it takes to wake a thread for a task; that a host with a quota of its processor computes at full speed when it has
 * waited; cores that hosts share; losses, of bytes and of nodes.
 */
#ifndef ECHI_PREDICT_H
#define ECHI_PREDICT_H
#include "echi_plan.h"
#include "echi_times.h"

/* Bytes of what a run moves. */
struct echi_load {
    uint32_t trunk, head;                 /* parameters before the cut and from it on; nothing separated: both together count */
    uint32_t row, row_grad;               /* a sample's activations and label at the cut, and their gradient */
    uint32_t layers, head_layers;         /* with parameters, before the cut and from it on: urgent work waits for the end of one */
};

struct echi_prediction {
    double rate;                          /* samples a second; > 0 */
    double staleness;                     /* of a push, in rounds, mean; counted as owners count it (PROTOCOL.md, "Staleness") */
    double behind;                        /* the same, with what other groups have done and its own does not know yet */
    double oldest;                        /* that of the group whose pushes are the furthest behind */
};

/* The workspace of a prediction, with room for every rank: too large for the stack of a thread. A caller keeps one and leaves its
 * contents alone; nothing in it outlives a prediction. */
struct echi_predict_work { _Alignas(16) unsigned char bytes[4 * 1024 * 1024]; };

/* Plays `steps` steps a worker on average (0: enough to compare plans by), at most some 16,000 in all unless asked for. The
 * plan is valid, and times[r].count > 0 for each rank that has a part in it. */
void echi_predict(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                  uint32_t steps, struct echi_predict_work *work, struct echi_prediction *out);

#endif
