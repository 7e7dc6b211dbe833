/* SPDX-License-Identifier: Apache-2.0
 * ech_train: a whole run on this node. */
#include "echi_checkpoint.h"
#include "echi_config_log.h"
#include "echi_curves.h"
#include "echi_error.h"
#include "echi_run.h"

#include <stdlib.h>
#include <string.h>

ech_status ech_train(const ech_model *model, const ech_data *data, const struct ech_config *given, float *params,
                     struct ech_report *out_report, struct ech_error *err) {
    if (!model || !data || !given) return echi_fail(err, ECH_E_ARGUMENT, "train", "ech_train needs a model, data and a config");
    ECHI_TRY(ech_config_check(given, err));
    struct ech_config *config = calloc(1, sizeof *config);
    struct echi_job *job = calloc(1, sizeof *job);
    struct ech_report *report = calloc(1, sizeof *report);
    float *weights = NULL;
    struct echi_checkpoints *checkpoints = NULL;
    struct echi_profile profile = {0};
    struct ech_error own = {.peer = -1}, unrecorded = {.code = ECH_OK};
    bool stays = false;
    ech_status status = ECH_OK;
    bool trained = false;
    if (!err) err = &own;
    if (!config || !job || !report) {
        status = echi_fail_memory(err, "train", "the run");
        goto out;
    }
    ECHI_TRY_GOTO(echi_config_whole(given, config, err), out);
    ECHI_TRY_GOTO(echi_job_make(model, data, config, job, err), out);
    echi_report_begin(report, model->name, data->name, config);
    if (job->augment && config->rank == 0)
        echi_config_log(config, ECH_LOG_INFO, "training samples are cropped and mirrored at random (augment off takes them as they are)");
    if (config->rank == 0) {
        ECHI_TRY_GOTO(echi_first_weights(model, config, &weights, err), out);
        job->first_weights = weights;
        if (config->checkpoint[0]) ECHI_TRY_GOTO(echi_checkpoints_open(config, job, &checkpoints, err), out);
        const struct echi_checkpoint *from = checkpoints ? echi_checkpoints_from(checkpoints) : NULL;
        if (from) memcpy(weights, from->weights, model->n_params * sizeof *weights);
    }
    const struct echi_node_config node = {.config = config, .job = job, .params = weights, .trained = &trained, .unrecorded = &unrecorded,
                                          .checkpoints = checkpoints, .stays = &stays,
                                          .profile = config->rank == 0 && config->profile_out[0] ? &profile : NULL};
    status = echi_node_run(&node, report, err);
    if (trained) {
        /* What was trained is kept, also when it was not enough; a failure to write is the one to tell of. */
        ech_status written = echi_curves_outcome(config, job, report, err);
        if (written == ECH_OK) written = echi_outcome_write(model, config, weights, report, err);
        if (written == ECH_OK && profile.times.count > 0) written = echi_profile_save(config->profile_out, &profile, err);
        if (written == ECH_OK && checkpoints) written = echi_checkpoints_outcome(checkpoints, err);
        if (written != ECH_OK) status = written;
        if (params) memcpy(params, weights, model->n_params * sizeof *weights);
    }
    if (status == ECH_OK && unrecorded.code != ECH_OK) {
        *err = unrecorded;
        status = unrecorded.code;
    }
    if (out_report) *out_report = *report;
out:
    echi_checkpoints_close(checkpoints);
    free(report);
    if (!stays) {
        echi_free_aligned(weights);
        free(job);
        free(config);
    }
    return status;
}
