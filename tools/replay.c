/* SPDX-License-Identifier: Apache-2.0
 * `echelon replay`: runs a recording again, or shows it. */
#include "tool.h"
#include "echelon_dev.h"


static const struct ech_option own[] = {
    {"model", "NAME|FILE", "", "the recorded run's model [the name in the recording]"},
    {"data", "DIR|glyphs", "", "the recorded run's data [the name in the recording]"},
    {"init", "FILE", "", "its initial weights, when they are not where it had them from (safetensors)"},
    {"threads", "T", "", "refuse unless it was computed with so many threads [as recorded]"},
    {"save", "FILE", "", "where the trained weights go (safetensors)"},
    {"roles", NULL, "", "replay only what the roles decided, and no arithmetic: needs no model, data or like machine"},
    {"show", NULL, "", "print each event and what was asked for, and replay nothing"},
    {"rank", "R", "", "with --show: only that rank's"},
    {"help", NULL, "", "this text"},
};
enum { N_OWN = (int)(sizeof own / sizeof own[0]) };

static void print_help(const struct words *w) {
    puts("usage: echelon replay DIR [options]\n\n"
         "Replays a run that `echelon train --record DIR` has recorded, in one process: every node's events go into fresh roles,\n"
         "which must ask for the same, byte for byte; then the arithmetic is repeated, and every loss and the trained weights\n"
         "must be the same, bit for bit. DIR holds the files of all ranks (rank0.events, rank1.events, ...).\n");
    words_print_options(w);
    printf("\nExit status: 0 when all came out the same, %d usage, %d when something differs; others as `echelon train --help` lists.\n",
           EXIT_USAGE, exit_status(ECH_E_MISMATCH));
}

static void print_line(void *user, const char *text) {
    (void)user;
    puts(text);
}

static void summary(const struct ech_recording *about, const struct ech_replay_report *r) {
    printf("%s on %s, %d node%s, recorded by echelon %s\n", about->model, about->data, r->world, r->world == 1 ? "" : "s", about->version);
    printf("  roles            %llu events, %llu actions, all as recorded%s\n", (unsigned long long)r->events,
           (unsigned long long)r->actions, r->unended ? " (up to where a recording breaks off)" : "");
    if (r->weights[0])
        printf("  arithmetic       %llu tasks, %llu payloads, bit for bit\n  weights          sha256 %s\n", (unsigned long long)r->tasks,
               (unsigned long long)r->payloads, r->weights);
    printf("  time             %.1f s\n", r->seconds);
}

static ech_status replay(const struct words *w, int threads, struct ech_error *err) {
    ech_model *model = NULL;
    ech_data *data = NULL;
    struct ech_recording about;
    struct ech_replay_report report;
    const bool roles = words_given(w, "roles") != NULL;
    ech_status status = check_writable("save", words_given(w, "save") ? words_given(w, "save") : "", err);
    if (status == ECH_OK) status = ech_recording_about(w->dir, &about, err);
    if (status != ECH_OK) return status;
    const bool arithmetic = !roles && !about.session;
    if (!roles && about.session) {
        *err = (struct ech_error){.code = ECH_E_UNSUPPORTED, .peer = -1};
        snprintf(err->text, sizeof err->text,
                 "'%.200s' is the recording of a session, whose arithmetic is the program's own: "
                 "only its roles can be replayed, with --roles", w->dir);
        return ECH_E_UNSUPPORTED;
    }
    const char *net = words_given(w, "model"), *set = words_given(w, "data");
    if (arithmetic) status = ech_model_open(net ? net : about.model, &model, err);
    if (status == ECH_OK && arithmetic) status = ech_data_open(set ? set : about.data, about.seed, &data, err);
    const struct ech_replay_options options = {.dir = w->dir, .model = model, .data = data, .threads = threads,
                                               .init = words_given(w, "init"), .save = words_given(w, "save")};
    if (status == ECH_OK) status = ech_replay(&options, &report, err);
    if (status == ECH_OK) summary(&about, &report);
    ech_data_destroy(data);
    ech_model_destroy(model);
    return status;
}

int replay_main(int argc, char **argv) {
    struct words w = {.command = "replay", .option = own, .count = N_OWN,
                      .takes = "the folder of a recorded run: echelon replay DIR (`echelon train --record DIR` makes one)"};
    struct ech_error err = {0};
    int rank = -1, threads = 0;
    if (!words_parse(&w, argc, argv)) return EXIT_USAGE;
    if (words_given(&w, "help")) {
        print_help(&w);
        return 0;
    }
    if (words_given(&w, "save") && words_given(&w, "roles")) {
        fputs("echelon: --save needs the arithmetic: leave --roles out\n", stderr);
        return EXIT_USAGE;
    }
    if (!words_whole(&w, "rank", 0, ECH_WORLD_MAX - 1, &rank) || !words_whole(&w, "threads", 1, 1024, &threads)) return EXIT_USAGE;
    ech_status status = words_given(&w, "show") ? ech_replay_show(w.dir, rank, print_line, NULL, &err) : replay(&w, threads, &err);
    fflush(stdout);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    return exit_status(status);
}
