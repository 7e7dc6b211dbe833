/* SPDX-License-Identifier: Apache-2.0
 * Where a model may be cut into trunk and head, and why it may not be where somebody asks for it. */
#include "echi_error.h"
#include "echi_job.h"
#include "echi_print.h"

#include <stdio.h>
#include <string.h>

bool echi_job_may_cut(const struct echi_job *job, int cut) { return cut > 0 && cut < job->n_layers && job->border[cut].width > 0; }

int echi_job_head(const struct echi_job *job, const struct echi_plan *plan) {
    return job->border[plan->cut ? plan->cut : job->n_layers].layer;
}

size_t echi_job_width(const struct echi_job *job, const struct echi_plan *plan) { return plan->cut ? job->border[plan->cut].width : 0; }
size_t echi_job_row_bytes(const struct echi_job *job, const struct echi_plan *plan) {
    return echi_job_width(job, plan) * (plan->activations == ECHI_ACTIVATIONS_BF16 ? sizeof(uint16_t) : sizeof(echi_real));
}

size_t echi_job_widest(const struct echi_job *job) {
    size_t most = 0;
    for (int k = 0; k < job->n_layers; k++)
        if (job->border[k].width > most) most = job->border[k].width;
    return most;
}

void echi_job_list_cuts(const struct echi_job *job, bool numbers, char *text, size_t cap) {
    struct echi_print p = {text, cap, 0};
    for (int k = 1; k < job->n_layers; k++)
        if (echi_job_may_cut(job, k)) {
            echi_print(&p, "%s%s", p.len ? ", " : "", job->layer[k].name);
            if (numbers) echi_print(&p, " (%d)", k);
        }
    if (p.len == 0) echi_print(&p, "none of this model");
}

/* The layer with parameters that an option names; else why there is none such. */
static ech_status named_cut(const struct ech_config *config, struct echi_job *job, struct ech_error *err) {
    const struct ech_model *model = job->model;
    const bool named = config->separate_from[0];
    int layer = 0, nearest[2] = {-1, -1}, other = -1;
    char usable[300], near[100] = "";
    while (layer < model->n_layers &&
           (named ? strcmp(model->layers[layer].name, config->separate_from) != 0 : layer + 1 < config->separate))
        layer++;
    echi_job_list_cuts(job, false, usable, sizeof usable);
    if (layer == model->n_layers && named)
        return echi_fail(err, ECH_E_ARGUMENT, "run.setup", "option separate is %.40s, which is no layer of model %s: give one that the "
                         "head may begin with (%s), on, auto or off", config->separate_from, model->name, usable);
    if (layer == model->n_layers)
        return echi_fail(err, ECH_E_ARGUMENT, "run.setup", "option separate is %d, but model %s has %d layers: give one that the head may "
                         "begin with (%s), on, auto or off", config->separate, model->name, model->n_layers, usable);
    for (int k = 1; k < job->n_layers; k++) {
        if (!echi_job_may_cut(job, k)) continue;
        if (job->layer[k].layer == layer) {
            job->cut_params = k;
            return ECH_OK;
        }
        if (job->layer[k].layer < layer) nearest[0] = k;
        else if (nearest[1] < 0) nearest[1] = k;
    }
    if (nearest[0] >= 0 || nearest[1] >= 0)
        snprintf(near, sizeof near, "; the nearest that it may begin with: %s%s%s", nearest[0] >= 0 ? job->layer[nearest[0]].name : "",
                 nearest[0] >= 0 && nearest[1] >= 0 ? ", " : "", nearest[1] >= 0 ? job->layer[nearest[1]].name : "");
    char why[160];
    switch (echi_model_boundary(model, layer, &other)) {
    case ECHI_BOUNDARY_NO_TRUNK: snprintf(why, sizeof why, "in front of it there is nothing to train"); break;
    case ECHI_BOUNDARY_NO_HEAD: snprintf(why, sizeof why, "from it on there is nothing to train"); break;
    case ECHI_BOUNDARY_CROSSED:
        snprintf(why, sizeof why, "the cut would go through a branch: %s, behind it, takes what a layer farther in front of it gives",
                 model->layers[other].name);
        break;
    default: snprintf(why, sizeof why, "it has no parameters: name one that has"); break;
    }
    return echi_fail_at(err, ECH_E_ARGUMENT, "run.setup", -1, model->layers[layer].name,
                        "option separate: the head cannot begin with layer %s of model %s: %s%s (all: %s)", model->layers[layer].name,
                        model->name, why, near, usable);
}

ech_status echi_job_find_cuts(const struct ech_config *config, struct echi_job *job, struct ech_error *err) {
    const struct ech_model *model = job->model;
    const int usual = echi_model_cut(model);
    for (int k = 0; k < job->n_layers; k++) {
        const int layer = echi_model_cut_before(model, job->layer[k].layer);
        if (layer >= 0) job->border[k] = (struct echi_border){layer, echi_shape_size(model->layers[layer].in)};
    }
    job->border[job->n_layers].layer = model->n_layers;
    job->first_fc = job->n_layers;
    while (usual < model->n_layers && job->first_fc > 0 && job->layer[job->first_fc - 1].layer >= usual) job->first_fc--;
    job->cut_params = job->first_fc;
    if (config->separate > 1 || (config->separate > 0 && config->separate_from[0])) return named_cut(config, job, err);
    if (config->separate <= 0 || job->first_fc < job->n_layers) return ECH_OK;
    char usable[300];
    echi_job_list_cuts(job, false, usable, sizeof usable);
    return echi_fail(err, ECH_E_ARGUMENT, "run.setup", "option separate is on, but model %s has no fully connected layers behind "
                     "convolutions: give the layer that the head begins with (%s), or off", model->name, usable);
}
