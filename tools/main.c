/* SPDX-License-Identifier: Apache-2.0
 * The `echelon` command: finds the subcommand, and what all of them share. */
#include "tool.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "usage: echelon train --data DIR|glyphs [options]   train a model, alone or with other nodes\n"
                            "       echelon sim --data DIR|glyphs [options]     the same run on a simulated cluster, in virtual time\n"
                            "       echelon plan [options]                      that run by prediction, on machines of a file\n"
                            "       echelon train --help, echelon sim --help    every option, with its default\n"
                            "       echelon doctor [options]                    would that run begin here? devices, network, memory\n"
                            "       echelon replay DIR [options]                run again what `train --record DIR` has recorded\n"
                            "       echelon explain REPORT|DIR [options]        why it was as fast as it was: what was waited for\n"
                            "       echelon model NAME|FILE [--text]            what layers a model has\n"
                            "       echelon --version\n";

int exit_status(ech_status status) {
    if (status == ECH_OK) return 0;
    return status == ECH_E_ARGUMENT ? EXIT_USAGE : EXIT_STATUS + (int)status;
}

int flushed(int status) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    perror("echelon: writing to standard output failed");
    return status ? status : exit_status(ECH_E_IO);
}

/* Where a standard stream was closed, the next file or socket would take its number, and get what is said there. A stream for
 * output becomes one that cannot be written: that is told at the end. */
static void keep_standard_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd);
}

int main(int argc, char **argv) {
    keep_standard_streams();
    static const char *const words[] = {"train", "sim", "plan", "doctor", "replay", "explain", "model", "help", "--help", "--version"};
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "train") == 0) return flushed(train_main(argc - 2, argv + 2));
    if (strcmp(word, "sim") == 0) return flushed(sim_main(argc - 2, argv + 2));
    if (strcmp(word, "plan") == 0) return flushed(plan_main(argc - 2, argv + 2));
    if (strcmp(word, "doctor") == 0) return flushed(doctor_main(argc - 2, argv + 2));
    if (strcmp(word, "replay") == 0) return flushed(replay_main(argc - 2, argv + 2));
    if (strcmp(word, "explain") == 0) return flushed(explain_main(argc - 2, argv + 2));
    if (strcmp(word, "model") == 0) return flushed(model_main(argc - 2, argv + 2));
    if (strcmp(word, "--version") == 0) {
        printf("echelon %s\n", ech_version());
        return flushed(0);
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        fputs(usage, stdout);
        return flushed(0);
    }
    char near[80];
    if (*word)
        fprintf(stderr, "echelon: there is no command '%s'%s\n", word,
                hint("", word, words, sizeof words / sizeof words[0], near, sizeof near));
    fputs(usage, stderr);
    return EXIT_USAGE;
}
