/* SPDX-License-Identifier: Apache-2.0
 * What every run of a model begins and ends with, whatever its driver: first weights, the report, files, the last sentence. */
#include "echi_outcome.h"
#include "echi_data.h"
#include "echi_error.h"
#include "echi_model.h"
#include "echi_os.h"
#include "echi_report_keys.h"

#include <stdio.h>
#include <stdlib.h>

void echi_report_begin(struct ech_report *r, const char *model, const char *data, const struct ech_config *config) {
    echi_report_clear(r);
    snprintf(r->model, sizeof r->model, "%s", model);
    snprintf(r->data, sizeof r->data, "%s", data);
    snprintf(r->sync, sizeof r->sync, "%s", config->sync);
    snprintf(r->version, sizeof r->version, "%s", ECH_VERSION);
    r->world = config->world;
    r->seed = config->seed;
    r->target_accuracy = config->target_accuracy;
}

ech_status echi_first_weights(const struct ech_model *model, const struct ech_config *config, float **out, struct ech_error *err) {
    const size_t bytes = model->n_params * sizeof(float);   /* a size: the model has been checked */
    float *weights = echi_alloc_aligned(bytes);
    if (!weights) return echi_fail(err, ECH_E_MEMORY, "run", "no memory for %zu bytes of weights; use a smaller model", bytes);
    ech_status status = ECH_OK;
    if (config->init[0]) status = echi_safetensors_load(config->init, model, weights, config->on_log, config->user, err);
    else echi_model_init(model, config->seed, weights);
    if (status == ECH_OK) *out = weights;
    else echi_free_aligned(weights);
    return status;
}

static ech_status write_report(const char *path, const struct ech_report *report, struct ech_error *err) {
    size_t len = ech_report_json(report, NULL, 0);
    char *text = malloc(len + 1);
    if (!text) return echi_fail_memory(err, "run.report", "the report");
    ech_report_json(report, text, len + 1);
    ech_status status = echi_file_write(path, text, len, err);
    free(text);
    return status;
}

ech_status echi_outcome_write(const struct ech_model *model, const struct ech_config *config, const float *weights,
                              const struct ech_report *report, struct ech_error *err) {
    if (config->save[0]) ECHI_TRY(echi_safetensors_save(config->save, model, weights, err));
    return config->report[0] ? write_report(config->report, report, err) : ECH_OK;
}

/* In a session files are the caller's, who has no command line either. */
static const char *how_to_go_on(const struct echi_coordinator *c, const struct ech_config *config) {
    if (c->goal.give_final) return " from the values that the arrays of a node have";
    if (config->checkpoint[0]) return ", with --resume";
    return c->final && config->save[0] ? ", with --init from the file of --save" : ", with --init from a saved file if there is one";
}

/* " with the weights of round 118 (7552 samples)", of those that were left; "" when there were none. */
static const char *what_is_left(const struct echi_coordinator *c, char *buf, size_t cap) {
    const unsigned long long samples = c->saved_samples;
    buf[0] = 0;
    if (c->final)
        snprintf(buf, cap, " with the newest weights that are left, of round %llu (%llu samples)", samples / c->plan.round, samples);
    return buf;
}

void echi_end_sentence(const struct echi_coordinator *c, const struct ech_config *config, struct ech_error *err) {
    char left[120];
    switch (c->status) {
    case ECH_OK: break;
    case ECH_E_PEER_LOST:
        echi_fail_at(err, c->status, "run", c->lost_peer, NULL, "rank %d was lost (%s): the run ends%s; start it again%s", c->lost_peer,
                     c->text[0] ? c->text : "nothing was heard of it", what_is_left(c, left, sizeof left), how_to_go_on(c, config));
        break;
    case ECH_E_NOT_REACHED:
        if (c->target_at >= 0)
            echi_fail(err, c->status, "run",
                      "the run before this one reached the %.2f %% of --target-accuracy, with weights that are not in its checkpoint; this "
                      "one has not reached them again (%.2f %%): allow more --epochs", 100 * config->target_accuracy, 100 * c->accuracy);
        else if (c->best_accuracy < 0)
            echi_fail(err, c->status, "run", "a stop ended the evaluation before it could find the %.2f %% of --target-accuracy",
                      100 * config->target_accuracy);
        else
            echi_fail(err, c->status, "run",
                      "the best evaluation found %.2f %%, not the %.2f %% of --target-accuracy: allow more --epochs or change --lr",
                      100 * c->best_accuracy, 100 * config->target_accuracy);
        break;
    case ECH_E_ABORTED:
        if (c->at_fault < 0) {
            echi_fail(err, c->status, "run", "the run was stopped after %llu samples", (unsigned long long)c->applied);
            break;
        }
        /* fall through */
    default:
        if (c->at_fault > 0) echi_fail_at(err, c->status, "run", c->at_fault, NULL, "rank %d: %s", c->at_fault, c->text);
        else echi_fail_at(err, c->status, "run", c->at_fault, NULL, "%s", c->text);
    }
}

static struct ech_link_rate rate_in_mbits(const struct echi_rate *r) {
    return (struct ech_link_rate){(float)(r->rate * 8e-6), (float)(r->lowest * 8e-6), (float)(r->highest * 8e-6)};
}

void echi_report_times(struct ech_report *report, int rank, const struct echi_times *times) {
    report->step_seconds[rank] = echi_times_whole(times, 64);
    report->link[rank] = echi_link_slower(&times->link) * 8e-6;
    report->link_out[rank] = rate_in_mbits(&times->link.out);
    report->link_in[rank] = rate_in_mbits(&times->link.in);
    report->delay[rank] = times->delay;
}

void echi_report_usage(struct ech_report *report, int rank, const double s[ECHI_USES]) {
    report->spent[rank] = (struct ech_spent){
        .steps = (float)s[ECHI_USE_STEPS], .owner = (float)s[ECHI_USE_OWNER], .head = (float)s[ECHI_USE_HEAD],
        .codec = (float)s[ECHI_USE_CODEC], .weights = (float)s[ECHI_USE_WEIGHTS], .lease = (float)s[ECHI_USE_LEASE],
        .activations = (float)s[ECHI_USE_ACTIVATIONS], .gradients = (float)s[ECHI_USE_GRADIENTS], .other = (float)s[ECHI_USE_OTHER]};
}

void echi_report_rates(struct ech_report *report, const struct echi_follow *follow, int world) {
    for (int r = 0; r < world; r++) {
        const struct echi_rate out = echi_seen_rate(&follow->host[r].out), in = echi_seen_rate(&follow->host[r].in);
        report->link_run_out[r] = rate_in_mbits(&out);
        report->link_run_in[r] = rate_in_mbits(&in);
    }
}
