/* SPDX-License-Identifier: Apache-2.0
 * What a plan takes of each node's memory, by the code that makes a node's slots: they are counted, and none is made. Of a trace's layers
 * (lib/import) there is no model, so nothing is told. */
#include "echi_sim.h"
#include "echi_error.h"

#include <stdlib.h>

/* One rank's. First weights are nobody's memory here: where slots would be made of them, nothing is taken, and nothing is written. */
static ech_status count(const struct echi_sim *s, const struct echi_plan *plan, int rank, struct echi_setup *setup, size_t *out) {
    static echi_real params;
    struct echi_loans loans;
    struct echi_exec *exec = NULL;
    struct ech_error err;
    echi_job_setup(s->job, plan, rank, setup);
    echi_loans_init(&loans, rank);
    ECHI_TRY(echi_exec_create(s->job, "cpu", 1, echi_config_level(s->config), NULL, &exec, &err));
    echi_exec_use_loans(exec, &loans);
    if (rank == 0) echi_node_params(s->config, exec, &params);
    const ech_status status = echi_exec_count(exec, setup, out, &err);
    echi_exec_destroy(exec);
    if (rank == 0) *out += s->job->n_params * sizeof(echi_real);
    return status;
}

void echi_sim_memory(const struct echi_sim *s, struct ech_report *r) {
    const struct echi_sim_node *first = &s->node[0];
    struct echi_setup *setup = malloc(sizeof *setup);
    bool known = setup && first->role.planned && s->job->model && s->world <= ECH_LIVE_MAX;
    for (int rank = 0; rank < s->world && known; rank++) {
        size_t bytes;
        known = count(s, &first->setup.plan, rank, setup, &bytes) == ECH_OK;
        r->slot_bytes[rank] = known ? bytes : 0;
    }
    free(setup);
}
