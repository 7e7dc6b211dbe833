/* SPDX-License-Identifier: Apache-2.0
 * A round of a run's plan, as predicted, for those that draw it. */
#include "echi_sim.h"
#include "echi_time_line.h"

#include <math.h>
#include <stdlib.h>

/* Numbers of nodes that are planned, up to all of them. A plan of more takes too long for several. */
static int numbers_of(int world, int out[ECH_NODES_SWEEP]) {
    static const int some[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    int count = 0;
    for (size_t i = 0; i < sizeof some / sizeof some[0] && some[i] < world; i++) out[count++] = some[i];
    if (world <= some[sizeof some / sizeof some[0] - 1]) out[count++] = world;
    return count;
}

static void sweep_nodes(struct echi_coordinator *c, struct ech_timeline *out) {
    int nodes[ECH_NODES_SWEEP];
    double rate[ECH_NODES_SWEEP];
    const int world = c->setup->plan.world, count = numbers_of(world, nodes);
    if (world < 2 || !echi_coordinator_node_sweep(c, nodes, count, rate)) return;
    for (int i = 0; i < count; i++) {
        if (!(rate[i] > 0)) continue;
        out->nodes[out->n_nodes] = nodes[i];
        out->images_per_second_of[out->n_nodes++] = rate[i];
    }
}

void echi_sim_timeline(struct echi_coordinator *c, struct ech_timeline *out) {
    struct echi_timeline *line = echi_report_line(c);
    out->count = out->left_out = out->n_sweep = out->n_nodes = 0;
    out->seconds = 0;
    out->rank = -1;
    if (!line) return;
    echi_time_line_show(line, out);
    free(line);
    for (int i = 0; i < ECH_SWEEP; i++) out->faster[i] = pow(10, (double)(2 * i) / (ECH_SWEEP - 1) - 1);
    if (echi_coordinator_sweep(c, out->faster, ECH_SWEEP, out->images_per_second)) out->n_sweep = ECH_SWEEP;
    sweep_nodes(c, out);
}
