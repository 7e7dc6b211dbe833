/* SPDX-License-Identifier: Apache-2.0
 * What is run: ranges of parameters under a plan, and the samples of a lease. */
#include "echi_run.h"
#include "echi_random.h"

#include <stdio.h>

void echi_job_range(const struct echi_job *job, const struct echi_plan *plan, bool head, size_t *at, size_t *count) {
    const size_t cut = plan->separated ? job->layer[job->cut_params].at : job->n_params;
    *at = head ? cut : 0;
    *count = head ? job->n_params - cut : cut;
}

void echi_job_samples(const struct echi_job *job, const struct echi_lease *lease, uint32_t *out_index) {
    for (uint32_t i = 0; i < lease->n; i++)
        out_index[i] = job->shuffle ? echi_permute(job->seed, lease->epoch, job->train_samples, lease->start + i) : lease->start + i;
}

void echi_job_words(const struct echi_job *job, char model[ECHI_JOB_WORD], char data[ECHI_JOB_WORD]) {
    if (job->model) echi_model_hash(job->model, model);
    else snprintf(model, ECHI_JOB_WORD, "%zu floats in %d arrays", job->n_params, job->n_layers);
    if (job->data) snprintf(data, ECHI_JOB_WORD, "%s", job->data->hash);
    else snprintf(data, ECHI_JOB_WORD, "%u samples", job->train_samples);
}

void echi_job_extent(const struct echi_job *job, const struct echi_plan *plan, int kind, const struct echi_msg *m, bool head, size_t *at, size_t *len) {
    const size_t width = job->cut_width;
    size_t first = 0, count = 0;
    switch (kind) {
    case ECHI_KIND_PUSH:
        *at = job->layer[m->layer].at * sizeof(float);
        *len = job->layer[m->layer].count * sizeof(float);
        return;
    case ECHI_KIND_ACT:
        *at = 0;
        *len = m->lease.n * (width * sizeof(float) + 1);
        return;
    case ECHI_KIND_ACT_GRAD:
        *at = 0;
        *len = m->lease.n * width * sizeof(float);
        return;
    case ECHI_KIND_PARAMS:
        if (m->flag) count = job->n_params;
        else echi_job_range(job, plan, head, &first, &count);
        break;
    default: echi_job_range(job, plan, false, &first, &count); break;
    }
    *at = first * sizeof(float);
    *len = count * sizeof(float);
}
