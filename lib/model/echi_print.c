/* SPDX-License-Identifier: Apache-2.0
 * Text into a buffer of known size. */
#include "echi_print.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void echi_print(struct echi_print *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    size_t room = p->len < p->cap ? p->cap - p->len : 0;
    int n = vsnprintf(room ? p->buf + p->len : NULL, room, fmt, args);
    va_end(args);
    if (n > 0) p->len += (size_t)n;
}

const char *echi_printable(char *out, size_t cap, const char *bytes, size_t len) {
    size_t shown = len < cap ? len : cap - 1;
    for (size_t i = 0; i < shown; i++) out[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    out[shown] = 0;
    if (shown < len) memcpy(out + shown - 3, "...", 3);
    return out;
}

const char *echi_printable_path(char *out, size_t cap, const char *path) {
    size_t len = strlen(path), skip = len < cap ? 0 : len - (cap - 1);
    echi_printable(out, cap, path + skip, len - skip);
    if (skip) memcpy(out, "...", 3);
    return out;
}

/* Number of single-letter insertions, deletions and replacements between `word` and `known` (Levenshtein). Both short. */
static int edit_distance(const char *word, size_t len, const char *known) {
    enum { LONGEST = 16 };
    int row[LONGEST + 1];
    size_t n = strlen(known);
    if (len > LONGEST || n > LONGEST) return LONGEST;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 0; i < len; i++) {
        int diagonal = row[0];
        row[0] = (int)i + 1;
        for (size_t j = 0; j < n; j++) {
            int replace = diagonal + (word[i] != known[j]);
            int other = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = replace < other ? replace : other;
        }
    }
    return row[n];
}

const char *echi_nearest(const char *word, size_t len, const char *const *known, size_t count) {
    const char *nearest = NULL;
    int least = 4; /* further than three letters away is another word, not a slip */
    for (size_t i = 0; i < count; i++) {
        int distance = edit_distance(word, len, known[i]);
        if (distance >= least || distance >= (int)strlen(known[i])) continue;
        least = distance;
        nearest = known[i];
    }
    return nearest;
}
