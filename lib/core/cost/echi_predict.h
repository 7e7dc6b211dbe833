/* SPDX-License-Identifier: Apache-2.0
 * What a plan is worth before it runs: images a second, staleness, and what that staleness costs.
 *
 * A prediction plays a plan on the cost engine (echi_cost.h), as the simulator does, but without messages' contents, leases' samples and
 * arithmetic. All that is random comes from counters, so the same plan gets the same number on every machine. Rounds whose parts are
 * applied one by one, of one owner or of the owners of shards, are played part by part (predict_rounds.c). Of all other plans whole pushes
 * are played: groups with a bound and with states between them, rounds of the codec, `local` (predict_pushes.c, predict_owner.c,
 * predict_local.c). Both have the head (predict_head.c).
 *
 * Nodes that measured themselves on the same processors share these (struct echi_machine), and are as fast as they are without each other
 * while fewer compute. A link that carried about what its processor copies is no bound beside it.
 *
 * What the engine leaves out is neglected. So are frames and credits; what takes place beside the steps (first weights, evaluations,
 * checkpoints, losses); exchanges of batch-norms; under `--deterministic` that gradients are there with a step's last reduction
 * block only, and what integers cost to add (their bytes count); that the answers of a head on a GPU leave when all its
 * gradients are there.
 * Of a codec's ratios a prediction takes those that a run comes to. Where a push has more parts than are affordable, neighbours of a shard
 * travel together. Where nothing is random whole plays may fall into step with themselves, well or badly, and stay so: the least jitter of
 * real nodes breaks that.
 *
 * Where the steps of a round vary, what is luck in the longest of them is taken off (a control variate): then a few dozen rounds are
 * enough. Of other plans some thousand steps are played. What is left of chance is one or two percent; it is the same chance for all plans.
 */
#ifndef ECHI_PREDICT_H
#define ECHI_PREDICT_H
#include "echi_plan.h"
#include "echi_timeline.h"
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

/* Bytes a second that a node's link carries in each direction, all messages of a run's training together. */
struct echi_traffic { double out, in; };

/* The workspace of a prediction, with room for every rank: too large for the stack of a thread. A caller keeps one and leaves `bytes`
 * alone; of all that is in it `traffic` and `busy` outlive a prediction: those of each rank, until the next. busy: the part of the time in
 * which its thread has something to compute, 0..1. */
struct echi_predict_work {
    _Alignas(16) unsigned char bytes[4 * 1024 * 1024];
    struct echi_traffic traffic[ECHI_WORLD_MAX];
    double busy[ECHI_WORLD_MAX];
};

/* Plays `steps` steps a worker on average, under `local` rounds (0: enough to compare plans by), at most some 4,000 in all unless asked
 * for. The plan is valid, and times[r].count > 0 for each rank that has a part in it. */
void echi_predict(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                  uint32_t steps, struct echi_predict_work *work, struct echi_prediction *out);
/* The same, recorded: `line` has its memory, and the last rounds of the play afterwards. NULL: nothing is recorded. */
void echi_predict_line(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                       uint32_t steps, struct echi_predict_work *work, struct echi_timeline *line, struct echi_prediction *out);
/* As echi_predict with 0 steps; but a play of rounds by part whose steps vary ends as soon as it is certain that they make fewer than
 * `floor` samples a second, by what links have to carry before it is begun: then out->rate is 0. floor 0: none does. */
void echi_predict_above(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                        double floor, struct echi_predict_work *work, struct echi_prediction *out);

#endif
