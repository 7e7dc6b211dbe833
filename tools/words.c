/* SPDX-License-Identifier: Apache-2.0
 * The command line of `replay` and `explain`: one path, and few options. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

const char *words_given(const struct words *w, const char *name) {
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->option[i].name, name) == 0) return w->value[i];
    return NULL;
}

void words_print_options(const struct words *w) {
    for (int i = 0; i < w->count; i++) {
        char left[40];
        const struct ech_option *o = &w->option[i];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-20s  %s\n", left, o->help);
    }
}

static bool parse_word(struct words *w, int argc, char **argv, int *at) {
    const char *word = argv[(*at)++];
    if (strcmp(word, "-h") == 0) word = "--help";
    if (strncmp(word, "--", 2) != 0) {
        if (w->dir) fprintf(stderr, "echelon: '%.80s': one path is enough, '%.80s' was given\n", word, w->dir);
        const bool first = !w->dir;
        w->dir = word;
        return first;
    }
    const char *known[WORDS_MOST];
    const size_t len = strcspn(word + 2, "=");
    for (int i = 0; i < w->count; i++) {
        const struct ech_option *o = &w->option[i];
        known[i] = o->name;
        if (strncmp(o->name, word + 2, len) != 0 || o->name[len]) continue;
        const bool equals = word[2 + len] == '=';
        w->value[i] = equals ? word + 3 + len : "";
        if (!o->value && equals) fprintf(stderr, "echelon: --%s takes no value\n", o->name);
        if (!o->value) return !equals;
        if (!equals && *at < argc) w->value[i] = argv[(*at)++];
        if (!w->value[i][0]) fprintf(stderr, "echelon: --%s needs a value: --%s %s\n", o->name, o->name, o->value);
        return w->value[i][0] != 0;
    }
    char near[80], name[64];
    snprintf(name, sizeof name, "%.*s", (int)len, word + 2);
    fprintf(stderr, "echelon: there is no option --%s%s (`echelon %s --help` lists all)\n", name,
            hint("--", name, known, w->count, near, sizeof near), w->command);
    return false;
}

bool words_parse(struct words *w, int argc, char **argv) {
    for (int at = 0; at < argc;)
        if (!parse_word(w, argc, argv, &at)) return false;
    if (w->dir || words_given(w, "help")) return true;
    fprintf(stderr, "echelon: give %s\n", w->takes);
    return false;
}

bool words_whole(const struct words *w, const char *name, int least, int most, int *out) {
    const char *text = words_given(w, name);
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
