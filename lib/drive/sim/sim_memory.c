/* SPDX-License-Identifier: Apache-2.0
 * What a plan takes of each node's memory, by the code that makes a node's slots and stacks: they are counted, and none is made. Of a
 * trace's layers (lib/import) there is no model, so nothing is told. Stacks are those of this machine's processor with one thread: others
 * have other kernels, and scratch for each thread. */
#include "echi_sim.h"
#include "echi_error.h"

#include <stdlib.h>

/* One rank's. First weights are nobody's memory here: where slots would be made of them, nothing is taken, and nothing is written. */
static ech_status count(const struct echi_sim *s, const struct echi_plan *plan, int rank, struct echi_setup *setup, size_t *out,
                        size_t *out_stacks, struct ech_error *err) {
    static echi_real params;
    struct echi_loans loans;
    struct echi_exec *exec = NULL;
    echi_job_setup(s->job, plan, rank, setup);
    echi_loans_init(&loans, rank);
    ECHI_TRY(echi_exec_create(s->job, "cpu", 1, echi_config_level(s->config), NULL, &exec, err));
    echi_exec_use_loans(exec, &loans);
    if (rank == 0) echi_node_params(s->config, exec, &params);
    ech_status status = echi_exec_count(exec, setup, out, err);
    if (status == ECH_OK) status = echi_exec_count_stacks(exec, setup, out_stacks, err);
    if (status == ECH_E_UNSUPPORTED) {   /* this processor could not compute them, and need not */
        *out_stacks = 0;
        status = ECH_OK;
    }
    echi_exec_destroy(exec);
    if (rank == 0) *out += s->job->n_params * sizeof(echi_real);
    return status;
}

ech_status echi_sim_memory(const struct echi_sim *s, struct ech_report *r, struct ech_error *err) {
    const struct echi_sim_node *first = &s->node[0];
    if (!first->role.planned || !s->job->model || s->world > ECH_LIVE_MAX) return ECH_OK;
    struct echi_setup *setup = malloc(sizeof *setup);
    ech_status status = setup ? ECH_OK : echi_fail_memory(err, "sim.memory", "the set-up of a node");
    for (int rank = 0; rank < s->world && status == ECH_OK; rank++) {
        size_t bytes = 0, stacks = 0;
        status = count(s, &first->setup.plan, rank, setup, &bytes, &stacks, err);
        r->slot_bytes[rank] = bytes;
        r->activation_bytes[rank] = stacks;
    }
    free(setup);
    return status;
}
