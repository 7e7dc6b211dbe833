/* SPDX-License-Identifier: Apache-2.0
 * What is planned of a trace: its step times as a profile has them, its layers as a job has them, options, and what is assumed. */
#include "echi_import.h"
#include "echi_config_log.h"
#include "echi_error.h"
#include "echi_number.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is not a whole float counts as one. */
static size_t floats_of(double bytes) {
    const size_t whole = (size_t)(bytes / sizeof(float));
    return whole + ((double)(whole * sizeof(float)) < bytes);
}

static size_t all_floats(const struct echi_import *import) {
    size_t all = 0;
    for (int i = 0; i < import->count; i++) all += floats_of(import->layer[i].bytes);
    return all;
}

/* Floats a sample in front of the cut; 0: nobody knows, or there are none. */
static size_t width_of(const struct echi_import *import) {
    return import->cut < import->count ? (size_t)(import->row / sizeof(float) / import->batch) : 0;
}
/* Only where it is known what crosses it. */
static int cut_of(const struct echi_import *import) { return width_of(import) > 0 ? import->cut : import->count; }

/* A step of one sample and one of the batch: between them, and beyond, steps take in proportion, and so do their layers. */
static void times_of(const struct echi_import *import, struct echi_times *t) {
    double seconds[ECHI_UNITS_MAX][ECHI_PASSES], side[2] = {0};
    *t = (struct echi_times){.count = import->batch > 1 ? 2 : 1, .n = {1, import->batch}, .sizes = 1, .units = (uint16_t)import->count,
                             .cut = (uint16_t)cut_of(import)};
    for (int i = 0; i < import->count; i++) {
        seconds[i][ECHI_FORWARD] = import->layer[i].forward;
        seconds[i][ECHI_BACKWARD] = import->layer[i].backward;
        side[i >= t->cut] += import->layer[i].forward + import->layer[i].backward;
    }
    for (uint32_t i = 0; i < t->count; i++) {
        t->trunk[i] = side[0] * t->n[i] / import->batch;
        t->head[i] = side[1] * t->n[i] / import->batch;
    }
    echi_times_share(t, 0, (const double (*)[ECHI_PASSES])seconds);
}

void echi_import_profile(const struct echi_import *import, const char *name, struct echi_profile *profile) {
    struct echi_times times;
    times_of(import, &times);
    snprintf(profile->machine, sizeof profile->machine, "the machine of the trace %s", name);
    snprintf(profile->model, sizeof profile->model, "%s", name);
    echi_profile_steps(profile, &times, (double)all_floats(import));
}

void echi_import_job(const struct echi_import *import, struct echi_job *job) {
    *job = (struct echi_job){.n_layers = import->count, .cut_params = cut_of(import), .first_fc = cut_of(import),
                             .train_samples = 1 << 20};
    job->border[job->cut_params] = (struct echi_border){job->cut_params, width_of(import)};
    job->border[job->n_layers].layer = job->n_layers;
    for (int i = 0; i < import->count; i++) {
        struct echi_param_layer *layer = &job->layer[i];
        *layer = (struct echi_param_layer){.layer = i, .at = job->n_params, .count = floats_of(import->layer[i].bytes)};
        memcpy(layer->name, import->layer[i].name, sizeof layer->name);
        job->n_params += layer->count;
    }
}

/* ------------------------------------------------------------------- options */

#define BATCH 64   /* samples of a step, where neither file nor option specifies them */

static ech_status refuse(struct ech_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static ech_status refuse(struct ech_error *err, const char *fmt, ...) {
    char text[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return echi_fail(err, ECH_E_ARGUMENT, "import.plan", "%s", text);
}

/* What was assumed beside the file. */
struct assumed { bool batch; int nodes; };   /* nodes of an all-reduce; 0: they were known, or do not count */

static void warn(const struct echi_import *import, const struct assumed *assumed, const char *name, const struct ech_config *config) {
    double seconds = 0;
    for (int i = 0; i < import->count; i++) seconds += import->layer[i].forward + import->layer[i].backward;
    if (assumed->batch)
        echi_config_log(config, ECH_LOG_WARN, "%s does not specify how many samples a step has: %d are assumed (option trace-batch sets "
                        "it)", name, BATCH);
    if (import->halved)
        echi_config_log(config, ECH_LOG_WARN, "%s has no forward times: half of the backward times are assumed in their place", name);
    if (import->merged > 0)
        echi_config_log(config, ECH_LOG_WARN, "%s has %d layers with parameters: neighbours are planned together, as %d layers", name,
                        import->merged, import->count);
    if (assumed->nodes > 0)
        echi_config_log(config, ECH_LOG_WARN, "links follow from all-reduce times of an unknown number of nodes: as many as are planned "
                        "are assumed, %d", assumed->nodes);
    if (import->reading > seconds)
        echi_config_log(config, ECH_LOG_WARN, "%s: a step's samples were read in %.3g s and computed in %.3g s; the plan is one of "
                        "machines that do not wait for samples", name, import->reading, seconds);
}

/* Of nodes like the trace's machine: as the options state, or as the trace's own all-reduce. */
static ech_status link_of(const struct echi_import *import, const struct ech_sim_options *o, const char *name, int nodes,
                          struct assumed *assumed, struct echi_alpha_beta_link *out, struct ech_error *err) {
    struct echi_alpha_betas fit;
    double number[2];
    *out = (struct echi_alpha_beta_link){0};
    if (nodes < 2 || o->hosts) return ECH_OK;
    if (o->alpha_beta && echi_parse_reals(o->alpha_beta, number, 2) == 2) {
        if (!(number[0] >= 0 && number[0] <= 60 && number[1] >= 1e-13 && number[1] <= 1e-2))
            return refuse(err, "option alpha-beta is %.60s: give seconds of a message from 0 to 60 and of a byte from 1e-13 to 0.01, as in "
                               "50e-6,0.8e-9", o->alpha_beta);
        *out = echi_alpha_beta_message((struct echi_alpha_beta){0, number[0], number[1]});
        return ECH_OK;
    }
    if (o->alpha_beta) ECHI_TRY(echi_alpha_beta_load(o->alpha_beta, &fit, err));
    else if (!echi_import_alpha_beta(import, &fit))
        return refuse(err, "%s has no times of communication from which links would follow: give alpha-beta, or hosts with links", name);
    assumed->nodes = fit.nodes == 0 ? nodes : 0;
    /* The parts of a plan are large messages, of up to 4 MB. */
    *out = echi_alpha_beta_ring(fit.piece[fit.pieces - 1], fit.nodes ? fit.nodes : nodes);
    return ECH_OK;
}

/* Each step is one of the trace's, and a round one of each node. Under bsp steps follow from the round, and a plan states both. */
static ech_status size_steps(const struct echi_import *import, int nodes, struct ech_config *config, struct ech_error *err) {
    const long round = (long)import->batch * nodes;
    const bool of_plan = config->plan[0], of_round = strcmp(config->sync, "bsp") == 0;
    if (config->samples_per_step == 0 && !of_plan && !of_round) config->samples_per_step = (int)import->batch;
    if (config->batch > 0 || of_plan) return ECH_OK;
    if (round > ECHI_IMPORT_BATCH_MAX)
        return refuse(err, "a round of %d steps of %u samples has %ld, and one has at most 65536: give a smaller batch, that of all nodes",
                      nodes, import->batch, round);
    config->batch = (int)round;
    return ECH_OK;
}

static ech_status make(struct echi_import *import, const struct ech_sim_options *o, const char *name, int nodes, struct ech_config *config,
                       struct echi_profile *profile, struct echi_job *job, struct echi_alpha_beta_link *link, struct ech_error *err) {
    ECHI_TRY(echi_import_load(o->trace, import, err));
    struct assumed assumed = {.batch = o->trace_batch == 0 && import->batch == 0};
    if (o->trace_batch > 0) import->batch = (uint32_t)o->trace_batch;
    else if (assumed.batch) import->batch = BATCH;
    echi_import_profile(import, name, profile);
    echi_import_job(import, job);
    if (config->separate > 1 || config->separate_from[0])
        return refuse(err, "option separate names a layer, but %s specifies one place to cut at most: give on, auto or off", name);
    if (config->separate > 0 && job->cut_params == job->n_layers)
        return refuse(err, "option separate is on, but %s does not specify which layers are fully connected and what their input is", name);
    if (config->sync_norm)
        return refuse(err, "option sync-norm is on, but %s does not specify which layers are batch-norms: leave it out", name);
    ECHI_TRY(link_of(import, o, name, nodes, &assumed, link, err));
    ECHI_TRY(size_steps(import, nodes, config, err));
    warn(import, &assumed, name, config);
    return ECH_OK;
}

ech_status echi_import_open(const struct ech_sim_options *options, const char *name, int nodes, struct ech_config *config,
                            struct echi_profile *profile, struct echi_job *job, struct echi_alpha_beta_link *link, struct ech_error *err) {
    struct echi_import *import = malloc(sizeof *import);
    if (!import) return echi_fail_memory(err, "import.plan", "a trace");
    const ech_status status = make(import, options, name, nodes, config, profile, job, link, err);
    free(import);
    return status;
}
