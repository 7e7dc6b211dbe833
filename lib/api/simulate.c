/* SPDX-License-Identifier: Apache-2.0
 * ech_simulate: files and options around a simulated run. */
#include "echelon_dev.h"
#include "echi_sim.h"
#include "echi_blank.h"
#include "echi_config_log.h"
#include "echi_curves.h"
#include "echi_error.h"
#include "echi_import.h"
#include "echi_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct simulation {
    struct ech_config config;
    struct echi_job job;
    struct echi_hosts hosts;
    struct echi_profile profile;
    struct ech_report report;
    double io_speed[ECHI_WORLD_MAX];
    float *weights;
    ech_data *blank;      /* where nobody named any */
    size_t pixels;
};

static ech_status refuse(struct ech_error *err, const char *sentence) {
    return echi_fail(err, ECH_E_UNSUPPORTED, "simulate", "%s", sentence);
}

static ech_status check(const struct ech_config *c, const struct ech_sim_options *o, struct ech_error *err) {
    if (o->trace && (!o->costs_only || c->steps != 0))
        return refuse(err, "a trace has times and no arithmetic: it is planned, with costs_only and 0 steps, and not run");
    if (c->checkpoint[0] || c->record[0])
        return refuse(err, "a simulated run writes no checkpoints and no recordings: leave out checkpoint and record");
    if (!o->costs_only) return ECH_OK;
    if (c->save[0] || c->init[0]) return refuse(err, "without arithmetic there are no weights: leave out save and init, or let it compute");
    if (c->target_accuracy > 0) return refuse(err, "without arithmetic there is no accuracy: leave out target-accuracy, or let it compute");
    return ECH_OK;
}

/* The report's model is the name of the trace already. */
static ech_status load_trace(struct simulation *s, const struct ech_sim_options *o, struct ech_error *err) {
    struct echi_alpha_beta_link link;
    if (o->profile) ECHI_TRY(echi_profile_load(o->profile, &s->profile, err));
    if (o->hosts) ECHI_TRY(echi_hosts_load(o->hosts, &s->hosts, err));
    ECHI_TRY(echi_import_open(o, s->report.model, o->hosts ? s->hosts.count : o->workers, &s->config, &s->profile, &s->job, &link, err));
    return o->hosts ? ECH_OK : echi_hosts_alike(o->workers, link.rate, link.delay, &s->hosts, err);
}

static ech_status load_model(struct simulation *s, const ech_model *model, const struct ech_sim_options *o, bool *fitted,
                             struct ech_error *err) {
    echi_profile_builtin(&s->profile);
    if (o->profile) ECHI_TRY(echi_profile_load(o->profile, &s->profile, err));
    *fitted = echi_profile_fit(&s->profile, model);
    if (o->hosts) return echi_hosts_load(o->hosts, &s->hosts, err);
    return echi_hosts_named(o->workers, o->spread ? o->spread : "even", &s->hosts, err);
}

static ech_status load(struct simulation *s, const ech_model *model, const ech_data *data, const struct ech_sim_options *o,
                       struct ech_error *err) {
    bool fitted = false;
    ECHI_TRY(o->trace ? load_trace(s, o, err) : load_model(s, model, o, &fitted, err));
    /* A speed in "x" is a share of the profile's machine, messages included. Of one in images/s only the arithmetic is known. */
    for (int h = 0; h < s->hosts.count; h++) s->io_speed[h] = s->hosts.host[h].in_images ? 1 : s->hosts.host[h].speed;
    echi_hosts_relate(&s->hosts, echi_profile_images(&s->profile));
    s->config.rank = 0;
    s->config.world = s->hosts.count;
    snprintf(s->config.coordinator, sizeof s->config.coordinator, "simulated:1");
    ECHI_TRY(ech_config_check(&s->config, err));
    if (!o->trace) ECHI_TRY(echi_job_make(model, data, &s->config, &s->job, err));
    if (!o->costs_only) ECHI_TRY(echi_first_weights(model, &s->config, &s->weights, err));
    echi_config_log(&s->config, ECH_LOG_INFO, "arithmetic costs what it does on %s%s", s->profile.machine,
                    fitted ? ", by multiply-adds: the profile is of another model" : "");
    return ECH_OK;
}

ech_status ech_simulate(const ech_model *model, const ech_data *data, const struct ech_config *config,
                        const struct ech_sim_options *options, struct ech_report *out_report, struct ech_error *err) {
    const bool of_trace = options && options->trace;
    char name[32];
    if (!config || !options || (!of_trace && (!model || (!data && !options->costs_only))))
        return echi_fail(err, ECH_E_ARGUMENT, "simulate", "ech_simulate needs a config and options; a model and, unless costs_only, "
                         "data; or a trace");
    struct simulation *s = calloc(1, sizeof *s);
    if (!s) return echi_fail_memory(err, "simulate", "the simulation");
    ech_status status = echi_config_whole(config, &s->config, err);
    if (status == ECH_OK) status = check(&s->config, options, err);
    if (status == ECH_OK && !data && !of_trace) status = echi_blank_data(model, &s->pixels, &s->blank, err);
    if (!data) data = s->blank;
    if (of_trace) echi_printable_path(name, sizeof name, strrchr(options->trace, '/') ? strrchr(options->trace, '/') + 1 : options->trace);
    if (status == ECH_OK) echi_report_begin(&s->report, of_trace ? name : model->name, data ? data->name : "none", &s->config);
    if (status == ECH_OK) status = load(s, model, data, options, err);
    s->report.world = s->config.world;
    if (status == ECH_OK) {
        const struct echi_sim_run run = {.config = &s->config, .job = &s->job, .hosts = &s->hosts, .io_speed = s->io_speed,
            .profile = &s->profile, .real = !options->costs_only, .params = s->weights, .timeline = options->timeline};
        status = echi_sim_run(&run, &s->report, options->counts, err);
        const bool stopped = status == ECH_E_ABORTED && s->report.samples > 0;
        if (status == ECH_OK || status == ECH_E_NOT_REACHED || stopped) {
            ech_status written = echi_curves_outcome(&s->config, &s->job, &s->report, err);
            if (written == ECH_OK) written = echi_outcome_write(model, &s->config, s->weights, &s->report, err);
            if (written != ECH_OK) status = written;
        }
        if (out_report) *out_report = s->report;
    }
    echi_hosts_free(&s->hosts);
    echi_free_aligned(s->weights);
    ech_data_destroy(s->blank);
    free(s);
    return status;
}
