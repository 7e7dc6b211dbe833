/* SPDX-License-Identifier: Apache-2.0
 * Text files that people write: one fact a line, words between blanks, numbers with their units, '#' begins a comment. Reads
 * them word by word; every refusal begins with file and line. Host files and profiles are such. */
#ifndef ECHI_LINES_H
#define ECHI_LINES_H
#include "ech_status.h"

#include <stdbool.h>
#include <stddef.h>

/* Fields are for lines.c; readers use only `line`. */
struct echi_lines {
    char path[120];                 /* fit for a message */
    const char *operation;          /* of the error, "hosts.load" */
    struct ech_error *err;
    int line;                       /* of the words read last, from 1 */
    char *text, *next, *rest;       /* all of it, from malloc; behind this line; what is left of this line */
};

/* A table ends with a NULL. "" is the unit of a number that has none. */
struct echi_unit { const char *text; double factor; };

/* From a file, or from memory; `name` and `operation` are for messages, `operation` and err must stay. ECH_E_FORMAT for more
 * than 256 KiB and for what is no text. Closed also after a failure. */
ech_status echi_lines_open(struct echi_lines *lines, const char *path, const char *operation, struct ech_error *err);
ech_status echi_lines_open_text(struct echi_lines *lines, const char *name, const char *text, const char *operation, struct ech_error *err);
void echi_lines_close(struct echi_lines *lines);

/* The first word of the next line that has any; the next word of this line. NULL: there is none. Valid until closed. */
char *echi_lines_next(struct echi_lines *lines);
char *echi_lines_word(struct echi_lines *lines);
bool echi_lines_take(struct echi_lines *lines, const char *word);   /* goes on when that is the next word */
void echi_lines_rest(struct echi_lines *lines, char *out, size_t cap);   /* what is left of this line, printable, cut at cap */
void echi_lines_plain(char *text);   /* before it is written: what would begin a comment or a line, in names of strangers, becomes '?' */

/* ECH_E_FORMAT with "file:line: NEEDS, found 'WORD'"; a NULL word is the end of the line. */
ech_status echi_lines_refuse(const struct echi_lines *lines, const char *needs, const char *word);
/* The same for a word that is none of some: "did you mean", and which there are. `what`: "key". */
ech_status echi_lines_unknown(const struct echi_lines *lines, const char *what, const char *word, const char *const *known, size_t count);
ech_status echi_lines_end(struct echi_lines *lines);                 /* refuses a further word on this line */
/* The next words as a whole number; as a number with one of the units, in one word or two ("5ms", "5 ms"), times the unit's
 * factor, within [least, most]. out_unit (may be NULL): which. `needs` is the refusal's sentence. */
ech_status echi_lines_whole(struct echi_lines *lines, const char *needs, long least, long most, long *out);
ech_status echi_lines_amount(struct echi_lines *lines, const char *needs, const struct echi_unit *units, double least, double most,
                             double *out, int *out_unit);
#endif
