/* SPDX-License-Identifier: Apache-2.0
 * From the command line to a run, for the subcommands that share the options of one: what is wrong is said before model and
 * data are opened. */
#include "tool.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ech_status check_writable(const char *option, const char *path, struct ech_error *err) {
    if (!*path) return ECH_OK;
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) strcpy(folder, ".");
    else slash[slash == folder] = 0;
    struct stat st;
    const char *why = NULL;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        why = S_ISDIR(st.st_mode) ? "it is a folder; give the name of a file" : "it is a device or pipe; give the name of a file";
    else if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) why = "its folder is not there; make it first";
    else if (access(folder, W_OK | X_OK) != 0 || (access(path, F_OK) == 0 && access(path, W_OK) != 0)) why = strerror(errno);
    if (!why) return ECH_OK;
    *err = (struct ech_error){.code = ECH_E_IO, .peer = -1};
    snprintf(err->text, sizeof err->text, "--%s %.200s cannot be written: %s", option, path, why);
    return ECH_E_IO;
}

/* What a run needs before it begins: --data is given (a doctor and a plan do without), and the files that rank 0 writes can be written. */
static ech_status check_files(const struct command *command, struct ech_error *err) {
    const struct ech_config *config = &command->config;
    if (!command->data && command->sub != DOCTOR && command->sub != PLAN && command->sub != PLAN_HERE) {
        *err = (struct ech_error){.code = ECH_E_ARGUMENT, .peer = -1};
        snprintf(err->text, sizeof err->text,
                 "--data is missing: give a folder with MNIST's four idx files (`tools/get-data mnist` fetches them to "
                 "data/mnist) or CIFAR-10's six, or --data glyphs for generated digits");
        return ECH_E_ARGUMENT;
    }
    if (config->rank != 0) return ECH_OK;   /* rank 0 writes them */
    ech_status status = check_writable("report", config->report, err);
    if (status == ECH_OK) status = check_writable("save", config->save, err);
    if (status == ECH_OK) status = check_writable("save-plan", config->save_plan, err);
    if (status == ECH_OK) status = check_writable("profile-out", config->profile_out, err);
    if (status == ECH_OK) status = check_writable("curve", command->curve, err);
    if (status == ECH_OK) status = check_writable("svg", command->svg, err);
    return status;
}

int command_run(enum subcommand sub, int argc, char **argv, void (*print_help)(void),
                int (*run)(const struct command *command, const ech_model *model, const ech_data *data)) {
    struct command command;
    struct ech_error err = {0};
    ech_model *model = NULL;
    ech_data *data = NULL;
    ech_status status = command_parse(&command, sub, argc, argv, &err);
    if (status == ECH_OK && command.help) {
        print_help();
        return 0;
    }
    if (status == ECH_OK) status = check_files(&command, &err);
    if (status == ECH_OK && !command.trace) status = ech_model_open(command.model, &model, &err);
    if (status == ECH_OK && command.data) status = ech_data_open(command.data, command.config.seed, &data, &err);
    int code = exit_status(status);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    else code = run(&command, model, data);
    ech_data_destroy(data);
    ech_model_destroy(model);
    return code;
}
