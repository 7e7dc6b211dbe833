/* SPDX-License-Identifier: Apache-2.0
 * What is run: ranges of parameters under a plan, and the samples of a lease. */
#include "echi_run.h"
#include "echi_random.h"

void echi_job_range(const struct echi_job *job, const struct echi_plan *plan, bool head, size_t *at, size_t *count) {
    const size_t cut = plan->separated ? job->layer[job->cut_params].at : job->n_params;
    *at = head ? cut : 0;
    *count = head ? job->n_params - cut : cut;
}

void echi_job_samples(const struct echi_job *job, const struct echi_lease *lease, uint32_t *out_index) {
    for (uint32_t i = 0; i < lease->n; i++)
        out_index[i] = job->shuffle ? echi_permute(job->seed, lease->epoch, job->train_samples, lease->start + i) : lease->start + i;
}
