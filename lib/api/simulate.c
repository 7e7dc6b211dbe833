/* SPDX-License-Identifier: Apache-2.0
 * ech_simulate: files and options around a simulated run. */
#include "echelon_dev.h"
#include "echi_sim.h"
#include "echi_blank.h"
#include "echi_config_log.h"
#include "echi_error.h"

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
    if (c->checkpoint[0] || c->record[0])
        return refuse(err, "a simulated run writes no checkpoints and no recordings: leave out checkpoint and record");
    if (!o->costs_only) return ECH_OK;
    if (c->save[0] || c->init[0]) return refuse(err, "without arithmetic there are no weights: leave out save and init, or let it compute");
    if (c->target_accuracy > 0) return refuse(err, "without arithmetic there is no accuracy: leave out target-accuracy, or let it compute");
    return ECH_OK;
}

static ech_status load(struct simulation *s, const ech_model *model, const ech_data *data, const struct ech_sim_options *o,
                       struct ech_error *err) {
    echi_profile_builtin(&s->profile);
    if (o->profile) ECHI_TRY(echi_profile_load(o->profile, &s->profile, err));
    const bool fitted = echi_profile_fit(&s->profile, model);
    if (o->hosts) ECHI_TRY(echi_hosts_load(o->hosts, &s->hosts, err));
    else ECHI_TRY(echi_hosts_named(o->workers, o->spread ? o->spread : "even", &s->hosts, err));
    /* A speed in "x" is a share of the profile's machine, messages included. Of one in images/s only the arithmetic is known. */
    for (int h = 0; h < s->hosts.count; h++) s->io_speed[h] = s->hosts.host[h].in_images ? 1 : s->hosts.host[h].speed;
    echi_hosts_relate(&s->hosts, echi_profile_images(&s->profile));
    s->config.rank = 0;
    s->config.world = s->hosts.count;
    snprintf(s->config.coordinator, sizeof s->config.coordinator, "simulated:1");
    ECHI_TRY(ech_config_check(&s->config, err));
    ECHI_TRY(echi_job_make(model, data, &s->config, &s->job, err));
    if (!o->costs_only) ECHI_TRY(echi_first_weights(model, &s->config, &s->weights, err));
    echi_config_log(&s->config, ECH_LOG_INFO, "arithmetic costs what it does on %s%s", s->profile.machine,
                    fitted ? ", by multiply-adds: the profile is of another model" : "");
    return ECH_OK;
}

ech_status ech_simulate(const ech_model *model, const ech_data *data, const struct ech_config *config,
                        const struct ech_sim_options *options, struct ech_report *out_report, struct ech_error *err) {
    if (!model || !config || !options || (!data && !options->costs_only))
        return echi_fail(err, ECH_E_ARGUMENT, "simulate", "ech_simulate needs a model, a config and options, and data unless costs_only");
    struct simulation *s = calloc(1, sizeof *s);
    if (!s) return echi_fail_memory(err, "simulate", "the simulation");
    ech_status status = echi_config_whole(config, &s->config, err);
    if (status == ECH_OK) status = check(&s->config, options, err);
    if (status == ECH_OK && !data) status = echi_blank_data(model, &s->pixels, &s->blank, err);
    if (!data) data = s->blank;
    if (status == ECH_OK) status = load(s, model, data, options, err);
    if (status == ECH_OK) {
        const struct echi_sim_run run = {.config = &s->config, .job = &s->job, .hosts = &s->hosts, .io_speed = s->io_speed,
            .profile = &s->profile, .real = !options->costs_only, .params = s->weights};
        echi_report_begin(&s->report, model, data, &s->config);
        status = echi_sim_run(&run, &s->report, options->counts, err);
        const bool stopped = status == ECH_E_ABORTED && s->report.samples > 0;
        if (status == ECH_OK || status == ECH_E_NOT_REACHED || stopped) {
            const ech_status written = echi_outcome_write(model, &s->config, s->weights, &s->report, err);
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
