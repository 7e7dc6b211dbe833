/* SPDX-License-Identifier: Apache-2.0
 * `echelon replay`: runs a recording again, or shows it. */
#include "tool.h"
#include "echelon_dev.h"

#include <stdlib.h>
#include <string.h>

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

struct request {
    const char *dir, *value[N_OWN];   /* by row of `own`; "" for a switch that was given */
};

static const char *given(const struct request *r, const char *name) {
    for (int i = 0; i < N_OWN; i++)
        if (strcmp(own[i].name, name) == 0) return r->value[i];
    return NULL;
}

static void print_help(void) {
    puts("usage: echelon replay DIR [options]\n\n"
         "Replays a run that `echelon train --record DIR` has recorded, in one process: every node's events go into fresh roles,\n"
         "which must ask for the same, byte for byte; then the arithmetic is repeated, and every loss and the trained weights\n"
         "must be the same, bit for bit. DIR holds the files of all ranks (rank0.events, rank1.events, ...).\n");
    for (int i = 0; i < N_OWN; i++) {
        char left[40];
        snprintf(left, sizeof left, "--%s%s%s", own[i].name, own[i].value ? " " : "", own[i].value ? own[i].value : "");
        printf("  %-20s  %s\n", left, own[i].help);
    }
    printf("\nExit status: 0 when all came out the same, %d usage, %d when something differs; others as `echelon train --help` lists.\n",
           EXIT_USAGE, exit_status(ECH_E_MISMATCH));
}

static bool parse_word(struct request *r, int argc, char **argv, int *at) {
    const char *word = argv[(*at)++];
    if (strcmp(word, "-h") == 0) word = "--help";
    if (strncmp(word, "--", 2) != 0) {
        if (r->dir) fprintf(stderr, "echelon: '%.80s': one folder of recordings is enough, '%.80s' was given\n", word, r->dir);
        bool first = !r->dir;
        r->dir = word;
        return first;
    }
    const char *known[N_OWN];
    const size_t len = strcspn(word + 2, "=");
    for (int i = 0; i < N_OWN; i++) {
        known[i] = own[i].name;
        if (strncmp(own[i].name, word + 2, len) != 0 || own[i].name[len]) continue;
        const bool equals = word[2 + len] == '=';
        r->value[i] = equals ? word + 3 + len : "";
        if (!own[i].value && equals) fprintf(stderr, "echelon: --%s takes no value\n", own[i].name);
        if (!own[i].value) return !equals;
        if (!equals && *at < argc) r->value[i] = argv[(*at)++];
        if (!r->value[i][0]) fprintf(stderr, "echelon: --%s needs a value: --%s %s\n", own[i].name, own[i].name, own[i].value);
        return r->value[i][0] != 0;
    }
    char near[80], name[64];
    snprintf(name, sizeof name, "%.*s", (int)len, word + 2);
    fprintf(stderr, "echelon: there is no option --%s%s (`echelon replay --help` lists all)\n", name,
            hint("--", name, known, N_OWN, near, sizeof near));
    return false;
}

/* A whole number from `least` on; false with a sentence when it is none. */
static bool whole(const struct request *r, const char *name, int least, int most, int *out) {
    const char *text = given(r, name);
    if (!text) return true;
    char *end;
    const long value = strtol(text, &end, 10);
    if (!*text || *end || value < least || value > most) {
        fprintf(stderr, "echelon: --%s '%.40s': give a whole number from %d to %d\n", name, text, least, most);
        return false;
    }
    *out = (int)value;
    return true;
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

static ech_status replay(const struct request *r, int threads, struct ech_error *err) {
    ech_model *model = NULL;
    ech_data *data = NULL;
    struct ech_recording about;
    struct ech_replay_report report;
    const bool roles = given(r, "roles") != NULL;
    ech_status status = check_writable("save", given(r, "save") ? given(r, "save") : "", err);
    if (status == ECH_OK) status = ech_recording_about(r->dir, &about, err);
    if (status != ECH_OK) return status;
    const bool arithmetic = !roles && !about.session;
    if (!roles && about.session) {
        *err = (struct ech_error){.code = ECH_E_UNSUPPORTED, .peer = -1};
        snprintf(err->text, sizeof err->text,
                 "'%.200s' is the recording of a session, whose arithmetic is the program's own: "
                 "only its roles can be replayed, with --roles", r->dir);
        return ECH_E_UNSUPPORTED;
    }
    if (arithmetic) status = ech_model_open(given(r, "model") ? given(r, "model") : about.model, &model, err);
    if (status == ECH_OK && arithmetic) status = ech_data_open(given(r, "data") ? given(r, "data") : about.data, about.seed, &data, err);
    const struct ech_replay_options options = {.dir = r->dir, .model = model, .data = data, .threads = threads, .init = given(r, "init"),
                                               .save = given(r, "save")};
    if (status == ECH_OK) status = ech_replay(&options, &report, err);
    if (status == ECH_OK) summary(&about, &report);
    ech_data_destroy(data);
    ech_model_destroy(model);
    return status;
}

int replay_main(int argc, char **argv) {
    struct request r = {0};
    struct ech_error err = {0};
    int rank = -1, threads = 0;
    for (int at = 0; at < argc;)
        if (!parse_word(&r, argc, argv, &at)) return EXIT_USAGE;
    if (given(&r, "help")) {
        print_help();
        return 0;
    }
    if (!r.dir) {
        fputs("echelon: give the folder of a recorded run: echelon replay DIR (`echelon train --record DIR` makes one)\n", stderr);
        return EXIT_USAGE;
    }
    if (given(&r, "save") && given(&r, "roles")) {
        fputs("echelon: --save needs the arithmetic: leave --roles out\n", stderr);
        return EXIT_USAGE;
    }
    if (!whole(&r, "rank", 0, ECH_WORLD_MAX - 1, &rank) || !whole(&r, "threads", 1, 1024, &threads)) return EXIT_USAGE;
    ech_status status = given(&r, "show") ? ech_replay_show(r.dir, rank, print_line, NULL, &err) : replay(&r, threads, &err);
    fflush(stdout);
    if (status != ECH_OK) fprintf(stderr, "echelon: %s\n", err.text);
    return exit_status(status);
}
