/* SPDX-License-Identifier: Apache-2.0
 * `echelon train`: runs one node here, or all of them as children (local.c). */
#include "tool.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile int stops, tells;

static void on_stop(int number) {
    (void)number;
    stops++;
}

static volatile int stops_heard;   /* so many are for the library */

static void on_last_stop(int number) {
    if (stops++ < stops_heard) return;
    signal(number, SIG_DFL);
    raise(number);   /* takes effect when this handler returns */
}

static void on_tell(int number) {
    (void)number;
    tells++;
}

static void watch(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void watch_stops(int most) {
    stops_heard = most;
    watch(SIGINT, most ? on_last_stop : on_stop, 0);
    watch(SIGTERM, most ? on_last_stop : on_stop, 0);
    signal(SIGPIPE, SIG_IGN);
}

int stops_of(int rank) { return rank == 0 ? 1 : 2; }

void watch_tells(void) { watch(SIGUSR1, on_tell, SA_RESTART); }

static void print_help(void) {
    puts("usage: echelon train --data DIR|glyphs [options]\n\n"
         "Trains a model on this node, on N nodes started here (--local N), or as one of several nodes that meet:\n"
         "  echelon train --data data/mnist --local 4 --slow 3=4 --sync gssp\n"
         "  echelon train --data data/mnist --world 2 --rank 0 --coordinator 10.0.0.1:7000 --key run.key   (and rank 1 elsewhere)\n"
         "  srun -N 2 echelon train --data data/mnist --key run.key      (or under mpirun or torchrun: one node a process)\n\n"
         "Every option may be written --name VALUE or --name=VALUE. Those of the run may also come from the environment\n"
         "(ECH_EVAL_EVERY for --eval-every); the command line wins. In brackets: what holds when an option is not given.");
    command_print_options(stdout, TRAIN);
    command_print_statuses(stdout);
    puts("  128+N  with --local: a node was ended by signal N\n\n"
         "Signals: SIGINT and SIGTERM to rank 0, or to --local, end the run in order, and what was trained is saved; a second one ends it\n"
         "at once. Another rank leaves, and the others go on, unless the run cannot do without it: then the run ends in order, as it does\n"
         "at a second signal; a third ends that node at once. SIGUSR1: each node says on stderr who waits for whom.");
}

struct node {
    struct progress progress;
    struct curve curve;
    int address_fd, world;
};

static void on_log(void *user, enum ech_log_level level, const char *line) {
    struct node *node = user;
    progress_log(&node->progress, level, line);
}

static void on_tell_line(void *user, const char *line) {
    struct node *node = user;
    progress_tell(&node->progress, line);
}

static void on_progress(void *user, const struct ech_progress *now) {
    struct node *node = user;
    if (node->address_fd >= 0) {   /* the parent waits to hear that the run goes */
        dprintf(node->address_fd, "+");
        close(node->address_fd);
        node->address_fd = -1;
    }
    progress_show(&node->progress, now);
    curve_add(&node->curve, now);
}

/* Tells the parent, or whoever starts the other ranks, where rank 0 listens: port 0 asks for any that is free. */
static void on_bound(void *user, const char *address) {
    struct node *node = user;
    if (node->address_fd < 0) {
        char line[320];
        snprintf(line, sizeof line, "rank 0 listens at %s: start the others with --coordinator %s", address, address);
        if (node->world > 1) progress_log(&node->progress, ECH_LOG_INFO, line);
        return;
    }
    dprintf(node->address_fd, "%s\n", address);
}

int train_node(const struct command *command, const ech_model *model, const ech_data *data, int address_fd) {
    struct node node = {.address_fd = address_fd, .world = command->config.world};
    struct ech_config config = command->config;
    progress_init(&node.progress, command);
    config.on_log = on_log;
    config.on_progress = on_progress;
    config.on_bound = on_bound;
    config.user = &node;
    config.stop = &stops;
    config.tell = &tells;
    config.on_tell = on_tell_line;
    struct ech_report report = {0};
    struct ech_error err = {0};
    ech_status status = curve_open(&node.curve, config.rank == 0 ? command->curve : "", &err);
    const bool tried = status == ECH_OK;
    if (tried) status = ech_train(model, data, &config, NULL, &report, &err);
    progress_end(&node.progress);
    if (config.rank == 0 && tried) summary_print(stdout, command, &report, status);
    fflush(stdout);   /* before the error, when both go to one terminal */
    bool said = command->local && config.rank != 0 && strcmp(err.operation, "run.end") == 0;   /* by rank 0, on the same terminal */
    if (status != ECH_OK && !said) fprintf(stderr, "%s%s\n", node.progress.prefix, err.text);
    return curve_close(&node.curve, exit_status(status));
}

static int train(const struct command *command, const ech_model *model, const ech_data *data) {
    if (command->local > 1) return local_run(command, model, data);
    watch_stops(stops_of(command->config.rank));
    const int code = train_node(command, model, data, -1);
    /* A thread may be left behind that stands still with model and data: neither is it waited for, nor are they taken from it. */
    if (code == exit_status(ECH_E_TIMEOUT)) _exit(flushed(code));
    return code;
}

int train_main(int argc, char **argv) {
    watch_tells();   /* who asks too early is answered later, and does not end the run */
    return command_run(TRAIN, argc, argv, print_help, train);
}
