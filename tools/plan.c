/* SPDX-License-Identifier: Apache-2.0
 * `echelon plan`: what `echelon train` would do on machines that are described, by prediction; nothing is trained. */
#include "tool.h"
#include "echelon_dev.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void print_help(void) {
    puts("usage: echelon plan [--model NAME|FILE | --trace FILE] (--hosts FILE | --workers N [--spread NAME] | --doctors\n"
         "                    HOST:PORT,...) [options]\n\n"
         "Plans a run on the machines of a file, as rank 0 of `echelon train` would, and prints what it compared, the plan, the images/s\n"
         "that it predicts, where a round's time goes, and what these machines would wait for. Nothing is trained: no --data is needed.\n"
         "  echelon plan --model resnet18 --hosts test/hosts/links\n"
         "  echelon plan --model alexnet --workers 8 --sync bsp --exchange ring --save-plan ring.plan\n"
         "  echelon plan --model resnet18 --workers 4 --sync bsp --svg round.svg\n\n"
         "With --doctors it measures machines that are there: this one, which is rank 0, and each where a node waits, ranks 1, 2, ...\n"
         "They need neither the model nor data, and go back to waiting:\n"
         "  echelon doctor --listen --coordinator 10.0.0.2:7000 --key run.key              on 10.0.0.2; likewise on 10.0.0.3\n"
         "  echelon plan --model resnet18 --doctors 10.0.0.2:7000,10.0.0.3:7000 --key run.key\n\n"
         "With --trace FILE it plans what another system has measured layer by layer, on machines like that system's: speeds of --hosts\n"
         "are relative to them, and nothing but steps and bytes takes time unless --profile states other costs:\n"
         "  echelon plan --trace alexnet.graph.txt --workers 8 --alpha-beta 50e-6,0.8e-9\n\n"
         "With the report of a run that reached its --target-accuracy each plan has the seconds to that accuracy, too:\n"
         "  echelon plan --workers 8 --spread strong --target-from run.json\n\n"
         "Without --sync all policies are compared. What arithmetic costs comes from --profile; without it from a built-in one.\n"
         "`echelon train --steps 0`, started on all nodes of a run, measures, plans and says the same as with --doctors, with their data.");
    command_print_options(stdout, PLAN);
    command_print_statuses(stdout);
}

/* The plan is printed whole at the end: only what is to be heeded comes before; of machines that are there, also what goes on. */
static void on_log(void *user, enum ech_log_level level, const char *line) {
    const struct command *command = user;
    const bool of_plan = strncmp(line, "plan: ", 6) == 0;
    if (level == ECH_LOG_WARN || (command->doctors && level == ECH_LOG_INFO && !of_plan)) fprintf(stderr, "echelon: %s\n", line);
}

static void rate_text(double megabits, char *buf, size_t cap) {
    if (megabits > 0) snprintf(buf, cap, "%.4g", megabits);
    else snprintf(buf, cap, "-");   /* of nodes of one machine there is none */
}

/* What the plan goes by. */
static void print_measured(FILE *to, const struct ech_report *r, const char *doctors) {
    char out[16], in[16];
    fprintf(to, "  %-4s %-24s %14s %14s %10s %10s\n", "rank", "measured", "64 samples", "alone", "Mb/s out", "in");
    for (int rank = 0; rank < r->world; rank++) {
        const int len = rank > 0 ? (int)strcspn(doctors, ",") : 4;
        const double step = r->step_seconds[rank];
        rate_text(r->link_out[rank].rate, out, sizeof out);
        rate_text(r->link_in[rank].rate, in, sizeof in);
        fprintf(to, "  %-4d %-24.*s %11.3g ms %5.0f images/s %10s %10s\n", rank, len, rank > 0 ? doctors : "here", 1e3 * step,
                step > 0 ? 64 / step : 0, out, in);
        if (rank > 0) doctors += len + (doctors[len] == ',');
    }
}

static int plan_here(const struct command *command, const ech_model *model) {
    struct ech_error err = {0};
    struct ech_config config = command->config;
    struct ech_report report = {0};
    struct target target = {0};
    config.on_log = on_log;
    config.user = (void *)(uintptr_t)command;
    config.stop = &stops;
    watch_stops(1);
    ech_status status = target_open(&target, command->target_from, &err);
    if (status == ECH_OK) status = ech_doctor_plan(model, &config, command->doctors, &report, &err);
    if (status == ECH_OK) status = target_check(&target, &report, &err);
    if (status == ECH_OK) {
        print_measured(stdout, &report, command->doctors);
        plan_print(stdout, &report, &target);
    } else fprintf(stderr, "echelon: %s\n", err.text);
    target_close(&target);
    return exit_status(status);
}

/* What the picture has in its last panel. */
static void print_nodes(const struct ech_timeline *line) {
    if (line->n_nodes < 2) return;
    fputs("  images/s with only so many nodes, those with the shortest steps, planned anew\n    nodes     ", stdout);
    for (int i = 0; i < line->n_nodes; i++) printf(" %9d", line->nodes[i]);
    fputs("\n    images/s  ", stdout);
    for (int i = 0; i < line->n_nodes; i++) printf(" %9.0f", line->images_per_second_of[i]);
    putchar('\n');
}

static int plan(const struct command *command, const ech_model *model, const ech_data *data) {
    if (command->doctors) return plan_here(command, model);
    struct ech_error err = {0};
    struct ech_config config = command->config;
    struct ech_report report = {0};
    struct ech_timeline line;
    struct target target = {0};
    ech_status status = svg_open(&line, command->svg, &err);
    const struct ech_sim_options options = {.hosts = command->hosts, .workers = command->workers, .spread = command->spread,
        .costs_only = 1, .profile = command->profile, .trace = command->trace, .alpha_beta = command->alpha_beta,
        .trace_batch = command->trace_batch, .timeline = line.interval ? &line : NULL};
    config.on_log = on_log;
    config.user = (void *)(uintptr_t)command;
    if (status == ECH_OK) status = target_open(&target, command->target_from, &err);
    if (status == ECH_OK) status = ech_config_set(&config, "steps", "0", &err);
    if (status == ECH_OK) status = ech_config_set(&config, "eval-every", "0", &err);
    if (status == ECH_OK) status = ech_simulate(model, data, &config, &options, &report, &err);
    if (status == ECH_OK) status = target_check(&target, &report, &err);
    if (status == ECH_OK) {
        plan_print(stdout, &report, &target);
        if (line.interval) print_nodes(&line);
    } else fprintf(stderr, "echelon: %s\n", err.text);
    target_close(&target);
    return svg_close(&line, command->svg, &report, exit_status(status));
}

int plan_main(int argc, char **argv) { return command_run(PLAN, argc, argv, print_help, plan); }
