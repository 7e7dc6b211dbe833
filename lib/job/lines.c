/* SPDX-License-Identifier: Apache-2.0
 * Lines, words, numbers and units of text files that people write. */
#include "echi_lines.h"
#include "echi_error.h"
#include "echi_number.h"
#include "echi_os.h"
#include "echi_print.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX ((size_t)256 << 10)
#define SPACE " \t\r"
#define DIGITS "0123456789"

/* Takes over `text`, `len` bytes and a NUL. */
static ech_status begin(struct echi_lines *l, const char *name, char *text, size_t len, const char *operation, struct ech_error *err) {
    *l = (struct echi_lines){.operation = operation, .err = err, .text = text, .next = text};
    echi_printable_path(l->path, sizeof l->path, name);
    if (strlen(text) != len) return echi_fail(err, ECH_E_FORMAT, operation, "%s is not a text file", l->path);
    return ECH_OK;
}

ech_status echi_lines_open(struct echi_lines *l, const char *path, const char *operation, struct ech_error *err) {
    uint8_t *bytes;
    size_t len;
    *l = (struct echi_lines){0};
    ECHI_TRY(echi_file_read(path, TEXT_MAX, &bytes, &len, err));
    char *text = realloc(bytes, len + 1);
    if (!text) {
        free(bytes);
        return echi_fail_memory(err, operation, "a text file");
    }
    text[len] = 0;
    return begin(l, path, text, len, operation, err);
}

ech_status echi_lines_open_text(struct echi_lines *l, const char *name, const char *from, const char *operation, struct ech_error *err) {
    *l = (struct echi_lines){0};
    const size_t len = strlen(from);
    char *text = malloc(len + 1);
    if (!text) return echi_fail_memory(err, operation, "a text");
    memcpy(text, from, len + 1);
    return begin(l, name, text, len, operation, err);
}

void echi_lines_close(struct echi_lines *l) {
    free(l->text);
    *l = (struct echi_lines){0};
}

/* ------------------------------------------------------------- words */

char *echi_lines_word(struct echi_lines *l) {
    char *word = l->rest + strspn(l->rest, SPACE);
    if (!*word) return NULL;
    l->rest = word + strcspn(word, SPACE);
    if (*l->rest) *l->rest++ = 0;
    return word;
}

char *echi_lines_next(struct echi_lines *l) {
    while (l->next) {
        char *line = l->next, *word;
        l->next = strchr(line, '\n');
        if (l->next) *l->next++ = 0;
        l->line++;
        line[strcspn(line, "#")] = 0;
        l->rest = line;
        if ((word = echi_lines_word(l))) return word;
    }
    return NULL;
}

bool echi_lines_take(struct echi_lines *l, const char *word) {
    char *at = l->rest + strspn(l->rest, SPACE);
    const size_t len = strcspn(at, SPACE);
    if (strlen(word) != len || memcmp(at, word, len) != 0) return false;
    l->rest = at + len;
    return true;
}

void echi_lines_rest(struct echi_lines *l, char *out, size_t cap) {
    l->rest += strspn(l->rest, SPACE);
    size_t len = strlen(l->rest);
    while (len > 0 && strchr(SPACE, l->rest[len - 1])) len--;
    echi_printable(out, cap, l->rest, len);
    l->rest += strlen(l->rest);
}

void echi_lines_plain(char *text) {
    for (; *text; text++)
        if (*text == '#' || *text < ' ' || *text > '~') *text = '?';
}

/* ---------------------------------------------------------- refusals */

ech_status echi_lines_refuse(const struct echi_lines *l, const char *needs, const char *word) {
    char shown[44];
    if (!word) return echi_fail(l->err, ECH_E_FORMAT, l->operation, "%s:%d: %s, found the end of the line", l->path, l->line, needs);
    return echi_fail(l->err, ECH_E_FORMAT, l->operation, "%s:%d: %s, found '%s'", l->path, l->line, needs,
                     echi_printable(shown, sizeof shown, word, strlen(word)));
}

ech_status echi_lines_unknown(const struct echi_lines *l, const char *what, const char *word, const char *const *known, size_t count) {
    char list[160] = "", shown[44];
    struct echi_print p = {list, sizeof list, 0};
    const char *nearest = echi_nearest(word, strlen(word), known, count);
    for (size_t i = 0; i < count; i++) echi_print(&p, "%s%s", i ? ", " : "", known[i]);
    echi_printable(shown, sizeof shown, word, strlen(word));
    if (nearest)
        return echi_fail(l->err, ECH_E_FORMAT, l->operation, "%s:%d: '%s' is no %s: did you mean '%s'? (known: %s)", l->path, l->line,
                         shown, what, nearest, list);
    return echi_fail(l->err, ECH_E_FORMAT, l->operation, "%s:%d: '%s' is no %s: use one of %s", l->path, l->line, shown, what, list);
}

ech_status echi_lines_end(struct echi_lines *l) {
    const char *word = echi_lines_word(l);
    return word ? echi_lines_refuse(l, "nothing more is expected on this line", word) : ECH_OK;
}

/* ----------------------------------------------------------- numbers */

ech_status echi_lines_whole(struct echi_lines *l, const char *needs, long least, long most, long *out) {
    const char *word = echi_lines_word(l);
    double value;
    if (!word || word[strspn(word, DIGITS)] || !echi_parse_real(word, &value) || value < (double)least || value > (double)most)
        return echi_lines_refuse(l, needs, word);
    *out = (long)value;
    return ECH_OK;
}

/* How much of a word is a decimal number: "2e3x" begins with four characters of one, "2each" with one. */
static size_t number_length(const char *word) {
    size_t len = strspn(word, "+-") ? 1 : 0;
    len += strspn(word + len, DIGITS);
    if (word[len] == '.') len += 1 + strspn(word + len + 1, DIGITS);
    if (word[len] == 'e' || word[len] == 'E') {
        const size_t sign = word[len + 1] == '+' || word[len + 1] == '-' ? 1 : 0, digits = strspn(word + len + 1 + sign, DIGITS);
        if (digits) len += 1 + sign + digits;
    }
    return len;
}

ech_status echi_lines_amount(struct echi_lines *l, const char *needs, const struct echi_unit *units, double least, double most,
                             double *out, int *out_unit) {
    char *word = echi_lines_word(l), number[40];
    const size_t len = word ? number_length(word) : 0;
    double value;
    if (len == 0 || len >= sizeof number) return echi_lines_refuse(l, needs, word);
    memcpy(number, word, len);
    number[len] = 0;
    if (!echi_parse_real(number, &value)) return echi_lines_refuse(l, needs, word);
    for (int i = 0; units[i].text; i++) {
        const bool here = strcmp(word + len, units[i].text) == 0;
        if (!here && (word[len] || !*units[i].text || !echi_lines_take(l, units[i].text))) continue;
        value *= units[i].factor;
        if (!(value >= least && value <= most)) return echi_lines_refuse(l, needs, word);
        *out = value;
        if (out_unit) *out_unit = i;
        return ECH_OK;
    }
    /* The word behind is shown too: it may be what was meant as the unit. */
    const char *behind = word[len] ? NULL : echi_lines_word(l);
    char both[44];
    struct echi_print p = {both, sizeof both, 0};
    echi_print(&p, "%s%s%s", word, behind ? " " : "", behind ? behind : "");
    return echi_lines_refuse(l, needs, both);
}
