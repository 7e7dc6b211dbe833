/* SPDX-License-Identifier: Apache-2.0
 * From the environment and the command line to a struct command, and --help. The library's option table is the only list
 * of a run's options; here are those that only the tool has. */
#include "tool.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct ech_option own[] = {
    {"model", "NAME|FILE", "lenet5", "built-in model, or a text file with one layer a line"},
    {"data", "DIR|glyphs", "", "folder with MNIST's four idx files, or the built-in generated digits"},
    {"local", "N", "", "start N nodes on this machine (instead of --rank, --world, --coordinator)"},
    {"slow", "RANK=FACTOR[,...]", "", "that node computes so many times slower, by sleeping; a mere FACTOR: this node (with --local: all)"},
    {"curve", "FILE", "", "a line for each look at the test set: samples, epochs, seconds, loss, accuracy (CSV); rank 0 writes it"},
    {"progress", "WHEN", "auto", "on, off, or auto: one line on a terminal, else a line each 10 s and each look"},
    {"help", NULL, "", "this text"},
};
enum { N_OWN = (int)(sizeof own / sizeof own[0]) };

/* How --help arranges them. An option in no group comes last, under "Others". */
static const struct {
    const char *title, *names;
} sections[] = {
    {"What to train", " model data init "},
    {"Nodes", " local rank world coordinator key insecure bind join-timeout deadline device threads slow "},
    {"How the nodes work together", " sync staleness groups regroup separate shares samples-per-step plan "},
    {"Learning", " batch lr momentum weight-decay seed no-shuffle deterministic "},
    {"When it ends", " epochs steps target-accuracy eval-every "},
    {"Stopping and going on", " checkpoint every keep resume "},
    {"What it tells", " progress report curve save save-plan record help "},
};
enum { N_SECTIONS = (int)(sizeof sections / sizeof sections[0]) };

static ech_status wrong(struct ech_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static ech_status wrong(struct ech_error *err, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    *err = (struct ech_error){.code = ECH_E_ARGUMENT, .peer = -1};
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return ECH_E_ARGUMENT;
}

/* ---------------------------------------------------------------- hints */

/* Levenshtein's distance; words longer than a row count as far away. */
static size_t distance(const char *a, const char *b) {
    size_t row[64], n = strlen(b);
    if (n >= sizeof row / sizeof row[0]) return n;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j + 1] + 1 < best) best = row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[n];
}

const char *hint(const char *dashes, const char *word, const char *const *known, int n, char *buf, size_t cap) {
    size_t near = strlen(word) / 3 + 1;   /* a third of the letters may be wrong */
    const char *best = NULL;
    for (int i = 0; i < n; i++) {
        size_t d = distance(word, known[i]);
        if (d > near || (d == near && best)) continue;
        near = d;
        best = known[i];
    }
    if (best) snprintf(buf, cap, "; did you mean %s%s?", dashes, best);
    else buf[0] = 0;
    return buf;
}

/* -------------------------------------------------------------- parsing */

static const struct ech_option *find(const struct ech_option *table, int n, const char *name, size_t len) {
    for (int i = 0; i < n; i++)
        if (strncmp(table[i].name, name, len) == 0 && !table[i].name[len]) return &table[i];
    return NULL;
}

/* A list RANK=FACTOR,... into command->slow; a mere FACTOR is the library's option of the same name. */
static ech_status set_slow(struct command *command, const char *value, struct ech_error *err) {
    if (!strchr(value, '=')) return ech_config_set(&command->config, "slow", value, err);
    for (const char *at = value;;) {
        char factor[32], *end;
        long rank = strtol(at, &end, 10);
        size_t len = strcspn(end, ",");
        if (end == at || *end != '=' || rank < 0 || rank >= ECH_WORLD_MAX || len < 2 || len > sizeof factor)
            return wrong(err, "--slow '%.80s': give RANK=FACTOR[,RANK=FACTOR...], as in 3=4,2=1.5", value);
        memcpy(factor, end + 1, len - 1);
        factor[len - 1] = 0;
        struct ech_config one = command->config;
        ech_status status = ech_config_set(&one, "slow", factor, err);
        if (status != ECH_OK) return status;
        command->slow[rank] = one.slow;
        if (!end[len]) return ECH_OK;
        at = end + len + 1;
    }
}

static ech_status set_own(struct command *command, const char *name, const char *value, struct ech_error *err) {
    if (strcmp(name, "model") == 0) command->model = value;
    else if (strcmp(name, "data") == 0) command->data = value;
    else if (strcmp(name, "curve") == 0) command->curve = value;
    else if (strcmp(name, "help") == 0) command->help = true;
    else if (strcmp(name, "slow") == 0) return set_slow(command, value, err);
    else if (strcmp(name, "local") == 0) {
        char *end;
        long n = strtol(value, &end, 10);
        if (!*value || *end || n < 1 || n > ECH_LIVE_MAX)
            return wrong(err, "--local '%.40s': give a whole number of nodes from 1 to %d", value, ECH_LIVE_MAX);
        command->local = (int)n;
    } else if (strcmp(value, "auto") == 0) command->progress = PROGRESS_AUTO;
    else if (strcmp(value, "on") == 0) command->progress = PROGRESS_ON;
    else if (strcmp(value, "off") == 0) command->progress = PROGRESS_OFF;
    else return wrong(err, "--progress '%.40s': give auto, on or off", value);
    return ECH_OK;
}

/* One word of the command line, and the next one when it is this one's value: *at moves on. */
static ech_status take(struct command *command, int argc, char **argv, int *at, struct ech_error *err) {
    const char *word = argv[(*at)++];
    if (strcmp(word, "-h") == 0) word = "--help";
    if (strncmp(word, "--", 2) != 0)
        return wrong(err, "'%.80s' is no option; options begin with --, see `echelon train --help`", word);
    const char *name = word + 2, *value = NULL;
    size_t len = strcspn(name, "=");
    int n;
    const struct ech_option *table = ech_options(&n), *mine = find(own, N_OWN, name, len);
    const struct ech_option *option = mine ? mine : find(table, n, name, len);
    if (!option) {
        const char *known[128];
        int k = 0;
        for (int i = 0; i < N_OWN; i++) known[k++] = own[i].name;
        for (int i = 0; i < n && k < 128; i++) known[k++] = table[i].name;
        char given[64], near[80];
        snprintf(given, sizeof given, "%.*s", (int)len, name);
        return wrong(err, "there is no option --%s%s (`echelon train --help` lists all)", given,
                     hint("--", given, known, k, near, sizeof near));
    }
    if (name[len] == '=') value = name + len + 1;
    else if (option->value) {
        if (*at == argc) return wrong(err, "--%s needs a value: --%s %s", option->name, option->name, option->value);
        value = argv[(*at)++];
    }
    if (!option->value && value && mine) return wrong(err, "--%s takes no value", option->name);
    return mine ? set_own(command, option->name, value, err) : ech_config_set(&command->config, option->name, value, err);
}

/* --local decides rank, world and coordinator; --slow names ranks that must exist. */
static ech_status settle(struct command *command, struct ech_error *err) {
    struct ech_config *c = &command->config;
    if (command->local) {
        if (c->rank != 0 || c->world != 1 || *c->coordinator)
            return wrong(err, "--local starts all nodes itself: leave out --rank, --world and --coordinator (and ECH_RANK, ECH_WORLD, "
                              "ECH_COORDINATOR in the environment)");
        c->world = command->local;
        snprintf(c->coordinator, sizeof c->coordinator, "%s", c->world > 1 ? "127.0.0.1:0" : "");
    }
    for (int r = c->world; r < ECH_WORLD_MAX; r++)
        if (command->slow[r] > 0) return wrong(err, "--slow names rank %d, but ranks go from 0 to %d", r, c->world - 1);
    if (command->slow[c->rank] > 0 && !command->local) c->slow = command->slow[c->rank];
    return ech_config_check(c, err);
}

ech_status command_parse(struct command *command, int argc, char **argv, struct ech_error *err) {
    *command = (struct command){.model = "lenet5", .curve = ""};
    ech_config_init(&command->config);
    for (int i = 0; i < argc; i++)   /* help is given whatever else is wrong */
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            command->help = true;
            return ECH_OK;
        }
    ech_status status = ech_config_from_env(&command->config, err);
    for (int at = 0; status == ECH_OK && at < argc;) status = take(command, argc, argv, &at, err);
    return status == ECH_OK ? settle(command, err) : status;
}

/* ----------------------------------------------------------------- help */

static bool listed(const char *names, const char *name) {
    char spaced[40];
    snprintf(spaced, sizeof spaced, " %s ", name);
    return strstr(names, spaced) != NULL;
}

/* Text from column 34 to at most column 110, broken at spaces. */
static void print_wrapped(FILE *to, const char *text) {
    enum { INDENT = 34, WIDTH = 76 };
    for (;;) {
        size_t len = strlen(text);
        if (len > WIDTH)
            for (len = WIDTH; len > 0 && text[len] != ' ';) len--;
        if (len == 0) len = strlen(text);   /* a word wider than a line */
        fprintf(to, "%.*s\n", (int)len, text);
        text += len;
        while (*text == ' ') text++;
        if (!*text) return;
        fprintf(to, "%*s", INDENT, "");
    }
}

static void print_option(FILE *to, const struct ech_option *o) {
    char left[64], text[320];
    snprintf(left, sizeof left, "  --%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    snprintf(text, sizeof text, "%s%s%s%s", o->help, *o->fallback ? " [" : "", o->fallback, *o->fallback ? "]" : "");
    fprintf(to, "%-32s  ", left);
    if (strlen(left) > 32) fprintf(to, "\n%34s", "");
    print_wrapped(to, text);
}

void command_print_options(FILE *to) {
    int n;
    const struct ech_option *table = ech_options(&n);
    for (int s = 0; s <= N_SECTIONS; s++) {
        bool titled = false;
        for (int i = 0; i < N_OWN + n; i++) {
            const struct ech_option *o = i < N_OWN ? &own[i] : &table[i - N_OWN];
            if (i >= N_OWN && find(own, N_OWN, o->name, strlen(o->name))) continue;   /* the tool's own takes its place */
            int home = 0;
            while (home < N_SECTIONS && !listed(sections[home].names, o->name)) home++;
            if (home != s) continue;
            if (!titled) fprintf(to, "\n%s:\n", s < N_SECTIONS ? sections[s].title : "Others");
            titled = true;
            print_option(to, o);
        }
    }
}
