/* SPDX-License-Identifier: Apache-2.0
 * ech_train: a whole run on this node. */
#include "echi_checkpoint.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ech_status write_report(const char *path, const struct ech_report *report, struct ech_error *err) {
    size_t len = ech_report_json(report, NULL, 0);
    char *text = malloc(len + 1);
    if (!text) return echi_fail_memory(err, "run.report", "the report");
    ech_report_json(report, text, len + 1);
    ech_status status = echi_file_write(path, text, len, err);
    free(text);
    return status;
}

ech_status ech_train(const ech_model *model, const ech_data *data, const struct ech_config *config, float *params,
                     struct ech_report *out_report, struct ech_error *err) {
    if (!model || !data || !config) return echi_fail(err, ECH_E_ARGUMENT, "train", "ech_train needs a model, data and a config");
    ECHI_TRY(ech_config_check(config, err));
    struct echi_job *job = calloc(1, sizeof *job);
    struct ech_report *report = calloc(1, sizeof *report);
    float *weights = NULL;
    struct echi_checkpoints *checkpoints = NULL;
    struct ech_error own = {.peer = -1};
    ech_status status = ECH_OK;
    if (!err) err = &own;
    if (!job || !report) {
        status = echi_fail_memory(err, "train", "the run");
        goto out;
    }
    ECHI_TRY_GOTO(echi_job_make(model, data, config, job, err), out);
    snprintf(report->model, sizeof report->model, "%s", model->name);
    snprintf(report->data, sizeof report->data, "%s", data->name);
    snprintf(report->sync, sizeof report->sync, "%s", config->sync);
    snprintf(report->version, sizeof report->version, "%s", ECH_VERSION);
    report->world = config->world;
    report->seed = config->seed;
    report->head = -1;
    report->lost_peer = report->useless = -1;
    report->predicted_images_per_second = report->predicted_staleness = -1;
    report->target_seconds = report->target_epochs = -1;
    report->test_accuracy = report->best_accuracy = -1;
    if (config->rank == 0) {
        weights = calloc(model->n_params, sizeof *weights);
        if (!weights) {
            status = echi_fail_memory(err, "train", "the weights");
            goto out;
        }
        if (config->init[0]) ECHI_TRY_GOTO(echi_safetensors_load(config->init, model, weights, err), out);
        else echi_model_init(model, config->seed, weights);
        if (config->checkpoint[0]) ECHI_TRY_GOTO(echi_checkpoints_open(config, job, &checkpoints, err), out);
        const struct echi_checkpoint *from = checkpoints ? echi_checkpoints_from(checkpoints) : NULL;
        if (from) memcpy(weights, from->weights, model->n_params * sizeof *weights);
    }
    const struct echi_node_config node = {.config = config, .job = job, .params = weights, .checkpoints = checkpoints};
    status = echi_node_run(&node, report, err);
    const bool stopped = status == ECH_E_ABORTED && report->samples > 0;   /* before that there is nothing to keep */
    if (config->rank == 0 && (status == ECH_OK || status == ECH_E_NOT_REACHED || stopped)) {
        /* What was trained is kept, also when it was not enough; a failure to write is the one to tell of. */
        ech_status written = config->save[0] ? echi_safetensors_save(config->save, model, weights, err) : ECH_OK;
        if (written == ECH_OK && config->report[0]) written = write_report(config->report, report, err);
        if (written == ECH_OK && checkpoints) written = echi_checkpoints_outcome(checkpoints, err);
        if (written != ECH_OK) status = written;
        if (params) memcpy(params, weights, model->n_params * sizeof *weights);
    }
    if (out_report) *out_report = *report;
out:
    echi_checkpoints_close(checkpoints);
    free(weights);
    free(report);
    free(job);
    return status;
}
