/* SPDX-License-Identifier: Apache-2.0
 * Optimal merging, by dynamic programming from the last piece to the first: what comes after a message is the better the sooner it has left
 * each stage and the fewer messages have delayed backward, whatever the cut was. So of the ways to cut the pieces behind a message only
 * those count that no other beats in all of this. */
#include "echi_merge.h"
#include "echi_cost.h"

/* Sums of the same terms in another order differ by less, and are not two ways. */
#define ALIKE (1 + 1e-12)

static double later(double a, double b) { return a > b ? a : b; }

/* Keeps a way unless another is as good; those that it beats are forgotten, and of too many the one that is through the last. */
static void add(struct echi_merge_way *ways, uint16_t *count, struct echi_merge_way way) {
    uint16_t kept = 0, latest = 0;
    for (int i = 0; i < *count; i++)
        if (ways[i].delays <= way.delays && ways[i].free[0] <= way.free[0] * ALIKE && ways[i].free[1] <= way.free[1] * ALIKE) return;
    for (int i = 0; i < *count; i++)
        if (ways[i].delays < way.delays || ways[i].free[0] < way.free[0] || ways[i].free[1] < way.free[1]) ways[kept++] = ways[i];
    *count = kept;
    if (kept < ECHI_MERGE_WAYS) {
        ways[(*count)++] = way;
        return;
    }
    for (uint16_t i = 1; i < kept; i++)
        if (ways[i].free[1] > ways[latest].free[1]) latest = i;
    if (way.free[1] < ways[latest].free[1]) ways[latest] = way;
}

/* When the gradients of piece i are there, where so many messages and parameters have gone before. */
static double ready_at(const struct echi_merge_costs *costs, const struct echi_merge_piece *piece, int i, int messages, double params) {
    return piece[i].ready + messages * costs->compute.message + params * costs->compute.param;
}

/* No message that begins before piece i needs a stage sooner than this: a way by which the stage is free earlier is as good as one by which
 * it is free then. Before piece 0 nothing comes: all that matters is when the last stage is free. `from_here`: parameters from i on. */
static void wait_for_next(const struct echi_merge_costs *costs, const struct echi_merge_piece *piece, int i, double from_here,
                          struct echi_merge_way *way) {
    if (i == 0) {
        way->free[0] = 0;
        way->delays = 0;
        return;
    }
    const double ready = ready_at(costs, piece, i - 1, way->delays, from_here);
    way->free[0] = later(way->free[0], ready);
    way->free[1] = later(way->free[1], ready + costs->stage[0].message + costs->stage[0].param * piece[i - 1].params);
}

/* All messages that may begin with piece i, each before all that is worth going on from. */
static void cut_at(const struct echi_merge_costs *costs, const struct echi_merge_piece *piece, int i, int count, double from_here,
                   struct echi_merge_work *work) {
    const struct echi_merge_stage *stage = costs->stage;
    double params = 0;
    work->ways[i] = 0;
    for (int next = i + 1; next <= count; next++) {
        params += piece[next - 1].params;
        for (uint16_t rest = 0; rest < work->ways[next]; rest++) {
            const struct echi_merge_way *before = &work->way[next][rest];
            const double ready = ready_at(costs, piece, i, before->delays, from_here - params);
            const double first = later(before->free[0], ready) + stage[0].message + stage[0].param * params;
            const double second = later(before->free[1], first) + stage[1].message + stage[1].param * params;
            struct echi_merge_way way = {{first, second}, (uint16_t)next, rest, before->delays};
            way.delays = (uint16_t)(way.delays + (costs->compute.message > 0));
            wait_for_next(costs, piece, i, from_here, &way);
            add(work->way[i], &work->ways[i], way);
        }
    }
}

double echi_merge(const struct echi_merge_piece *piece, int count, const struct echi_merge_costs *costs, struct echi_merge_work *work,
                  bool *out_begins) {
    uint16_t best = 0;
    double from_here = 0;
    work->ways[count] = 1;
    work->way[count][0] = (struct echi_merge_way){{0, 0}, 0, 0, 0};
    for (int i = count - 1; i >= 0; i--) cut_at(costs, piece, i, count, from_here += piece[i].params, work);
    for (uint16_t k = 1; k < work->ways[0]; k++)
        if (work->way[0][k].free[1] < work->way[0][best].free[1]) best = k;
    const double through = work->way[0][best].free[1];
    for (int i = 0; i < count; i++) out_begins[i] = false;
    for (int i = 0; i < count;) {
        const struct echi_merge_way *way = &work->way[i][best];
        out_begins[i] = true;
        best = way->rest;
        i = way->next;
    }
    return through;
}

/* Of each parameter that it owns an owner takes in `in` gradients, and sends as many weights; `out` of its own gradients leave. An owner
 * that trains has others' weights on its way in beside gradients: where these are not much fewer, a message passes the link once, with
 * both; else the way in and then the way out. A message costs its full time at either end, as live ones do: on four hosts of half a core a
 * cut more, of 12 ends a host, makes a round of LeNet-5 0.2 ms longer. With each slice its owner's thread is woken. */
struct echi_merge_costs echi_merge_costs_of(const struct echi_merge_node *node, int workers, int owners, int slices) {
    const double in = (workers - 1.0) / owners, out = (owners - 1.0) / owners, most = in > out ? in : out;
    const double ends = slices * (in + out) * node->message, wake = ECHI_COST_WAKE * node->message * slices / owners;
    const double sums = in * node->add + node->update / owners, way = most * 4 * node->byte;
    struct echi_merge_costs costs = {.compute = {ends, (in + out) * 4 * node->copy + sums},
                                     .stage = {{ends + wake, way + sums}, {ends, way}}};
    if (2 * out >= in) {
        costs.stage[0] = (struct echi_merge_stage){2 * ends + wake, (in + out) * 4 * node->byte + sums};
        costs.stage[1] = (struct echi_merge_stage){0, 0};
    }
    return costs;
}
