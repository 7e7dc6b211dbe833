/* SPDX-License-Identifier: Apache-2.0
 * Does it fit? What a run does between its start and its first step is done here, by the same code, and taken away again: first weights are
 * made or read, steps measured, a plan is made as for nodes that are all as fast, and this rank's slots and stacks stand. So what does not
 * fit is refused here as there, and in the same words. */
#include "echi_doctor.h"
#include "echi_blank.h"
#include "echi_error.h"
#include "echi_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trial {
    struct echi_job job;
    struct echi_setup setup;
    struct echi_plan_request request;
    struct echi_goal goal;
    struct echi_choice choice;
    struct echi_choice_work work;
    struct echi_times times[ECHI_WORLD_MAX];
    struct echi_exec *exec;
    struct echi_loans loans;
    float *weights;              /* rank 0: the first ones, which the run keeps */
    ech_data *blank;
    size_t pixels;
};

static ech_status make_plan(struct trial *t, const struct ech_config *c, struct ech_error *err) {
    char text[240];
    ECHI_TRY(echi_plan_request_from(c, &t->job, &t->request, err));
    ECHI_TRY(echi_goal_from(c, &t->job, &t->request, &t->setup.plan, NULL, &t->goal, err));
    if (!c->plan[0]) {
        const ech_status status = echi_plan_choose(&t->request, t->times, &t->work, &t->setup.plan, &t->choice, text, sizeof text);
        if (status != ECH_OK) return echi_fail(err, status, "doctor.memory", "%s", text);
        if (t->request.regroup_after > 0) echi_plan_add_reserve(&t->request, t->times, &t->setup.plan);
    }
    echi_plan_parts(&t->request, t->times, &t->setup.plan);
    t->work.tried = t->setup.plan;
    echi_job_setup(&t->job, &t->work.tried, c->rank, &t->setup);
    return ECH_OK;
}

static ech_status set_up(struct trial *t, const struct ech_config *c, struct ech_doctor *d, struct ech_error *err) {
    d->memory.available = echi_memory_available("");
    if (c->rank == 0) ECHI_TRY(echi_first_weights(t->job.model, c, &t->weights, err));
    t->job.first_weights = t->weights;
    ECHI_TRY(echi_node_exec(c, &t->job, &t->exec, err));
    struct echi_cost_io io;
    ECHI_TRY(echi_node_io(c, &t->job, &io, err));
    ECHI_TRY(echi_measure(&t->job, echi_exec_device(t->exec), c->slow, NULL, io, &t->times[c->rank], err));
    d->memory.step_seconds = echi_times_whole(&t->times[c->rank], 64);
    for (int r = 0; r < c->world; r++) t->times[r] = t->times[c->rank];
    ECHI_TRY(make_plan(t, c, err));
    d->memory.batch = (int)t->setup.plan.round;
    if (t->setup.plan.group_of[c->rank] != ECHI_NONE) d->memory.step = (int)echi_plan_step(&t->setup.plan, c->rank);
    echi_loans_init(&t->loans, c->rank);
    echi_exec_use_loans(t->exec, &t->loans);
    echi_node_params(c, t->exec, t->weights);
    ECHI_TRY(echi_exec_setup(t->exec, &t->setup, err));
    return c->rank == 0 && c->checkpoint[0] ? echi_exec_setup_kept(t->exec, err) : ECH_OK;
}

void echi_doctor_memory(const struct ech_config *c, const ech_model *model, const ech_data *data, struct ech_doctor *d) {
    struct ech_error err = {.text = ""};
    struct trial *t = calloc(1, sizeof *t);
    ech_status status = t ? ECH_OK : echi_fail_memory(&err, "doctor.memory", "a run that is tried");
    snprintf(d->memory.model, sizeof d->memory.model, "%s", model->name);
    if (status == ECH_OK && !data) status = echi_blank_data(model, &t->pixels, &t->blank, &err);
    if (status == ECH_OK) status = echi_job_make(model, data ? data : t->blank, c, &t->job, &err);
    if (status == ECH_OK) status = set_up(t, c, d, &err);
    if (status == ECH_OK) {
        struct echi_exec_bytes b;
        echi_exec_bytes(t->exec, &b);
        d->memory.weights = b.weights + (t->weights ? model->n_params * sizeof *t->weights : 0);
        d->memory.gradients = b.gradients;
        d->memory.moments = b.moments;
        d->memory.rows = b.rows;
        d->memory.activations = b.activations;
        d->memory.total = d->memory.weights + b.gradients + b.moments + b.rows + b.activations;
    }
    if (t) {
        echi_exec_destroy(t->exec);
        echi_free_aligned(t->weights);
        ech_data_destroy(t->blank);
    }
    free(t);
    echi_doctor_note(&d->memory.check, status, &err);
}
