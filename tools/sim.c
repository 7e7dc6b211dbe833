/* SPDX-License-Identifier: Apache-2.0
 * `echelon sim`: the run that `echelon train` would be, on simulated machines, in virtual time. */
#include "tool.h"
#include "echelon_dev.h"

#include <time.h>

static void print_help(void) {
    puts("usage: echelon sim --data DIR|glyphs (--hosts FILE | --workers N [--spread NAME]) [options]\n\n"
         "Runs what `echelon train` would run, with the same options, on a cluster that is simulated in this process:\n"
         "  echelon sim --data data/mnist --workers 16 --spread strong --sync gssp --target-accuracy 0.985\n"
         "  echelon sim --data data/mnist --hosts test/hosts/strong --sync bsp --compute model --epochs 1\n\n"
         "The scheduler is the very code of live runs; links, network cards and processors are simulated, and all seconds but\n"
         "those of the last line on stderr are virtual. What arithmetic costs comes from --profile, never from measuring here:\n"
         "the same seed gives the same bytes in --save and --report, on every machine that computes alike.");
    command_print_options(stdout, SIM);
    command_print_statuses(stdout);
    puts("\nSignals: SIGINT and SIGTERM end the run in order, and what was trained is saved; a second one ends it at once.");
}

struct shown {
    struct progress progress;
    struct curve curve;
};

static void on_log(void *user, enum ech_log_level level, const char *line) { progress_log(&((struct shown *)user)->progress, level, line); }

static void on_progress(void *user, const struct ech_progress *now) {
    struct shown *shown = user;
    progress_show(&shown->progress, now);
    curve_add(&shown->curve, now);
}

static double wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int simulate(const struct command *command, const ech_model *model, const ech_data *data) {
    struct shown shown = {0};
    struct ech_error err = {0};
    struct ech_config config = command->config;
    struct ech_report report = {0};
    struct ech_timeline timeline;
    ech_status status = svg_open(&timeline, command->svg, &err);
    const struct ech_sim_options options = {.hosts = command->hosts, .workers = command->workers, .spread = command->spread,
        .costs_only = command->costs_only, .profile = command->profile, .timeline = timeline.interval ? &timeline : NULL};
    progress_init(&shown.progress, command);
    config.on_log = on_log;
    config.on_progress = on_progress;
    config.user = &shown;
    config.stop = &stops;
    watch_stops(1);
    const double began = wall();
    if (status == ECH_OK) status = curve_open(&shown.curve, command->curve, &err);
    const bool tried = status == ECH_OK;
    if (tried) status = ech_simulate(model, data, &config, &options, &report, &err);
    progress_end(&shown.progress);
    if (tried) summary_print(stdout, command, &report, status);
    fflush(stdout);   /* before what follows, when both go to one terminal */
    char line[96];
    snprintf(line, sizeof line, "%.1f s of the cluster's time were simulated in %.1f s", report.seconds, wall() - began);
    if (report.samples > 0) progress_log(&shown.progress, ECH_LOG_INFO, line);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    return svg_close(&timeline, command->svg, &report, curve_close(&shown.curve, exit_status(status)));
}

int sim_main(int argc, char **argv) { return command_run(SIM, argc, argv, print_help, simulate); }
