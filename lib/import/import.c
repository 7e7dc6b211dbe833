/* SPDX-License-Identifier: Apache-2.0
 * Which format a file has; rows to units: layers with parameters, each with those behind it up to the next, as the planner counts them. */
#include "echi_import_impl.h"
#include "echi_number.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------- what the formats share */

struct echi_import_layer *echi_import_add(struct echi_lines *lines, struct echi_import_rows *rows) {
    if (rows->count == ECHI_IMPORT_ROWS_MAX) {
        (void)echi_lines_refuse(lines, "a trace has at most 4096 layers", "one more");
        return NULL;
    }
    struct echi_import_layer *row = &rows->layer[rows->count++];
    *row = (struct echi_import_layer){0};
    return row;
}

ech_status echi_import_number(const struct echi_lines *lines, const char *text, const char *needs, double least, double most, double *out) {
    double value;
    if (!text || !echi_parse_real(text, &value) || !(value >= least && value <= most)) return echi_lines_refuse(lines, needs, text);
    *out = value;
    return ECH_OK;
}

ech_status echi_import_whole(const struct echi_lines *lines, const char *text, const char *needs, double most, double *out) {
    if (text && text[strspn(text, "0123456789")]) return echi_lines_refuse(lines, needs, text);
    return echi_import_number(lines, text, needs, 0, most, out);
}

ech_status echi_import_refuse(const struct echi_lines *lines, const char *sentence) {
    return echi_fail(lines->err, ECH_E_FORMAT, lines->operation, "%s is no trace that can be planned: %s", lines->path, sentence);
}

/* ------------------------------------------------------------------ units */

/* What is in front of the first layer with parameters belongs to it, because there is no other. */
static int first_with_parameters(const struct echi_import_rows *rows) {
    int i = 0;
    while (i < rows->count && rows->layer[i].bytes == 0) i++;
    return i;
}

static void add(struct echi_import_layer *to, const struct echi_import_layer *from) {
    to->forward += from->forward;
    to->backward += from->backward;
    to->comm += from->comm;
    to->bytes += from->bytes;
}

/* Units in the place of rows; returns how many there are. The cut follows. */
static int fold(struct echi_import_rows *rows) {
    const int first = first_with_parameters(rows);
    int units = 0, cut = -1;
    struct echi_import_layer front = {0};
    for (int i = 0; i < rows->count; i++) {
        const struct echi_import_layer row = rows->layer[i];
        if (i < first) {
            add(&front, &row);
        } else if (row.bytes > 0) {
            if (i >= rows->cut && cut < 0) cut = units;
            rows->layer[units++] = row;
            if (i == first) add(&rows->layer[0], &front);
        } else add(&rows->layer[units - 1], &row);
    }
    rows->cut = cut > 0 ? cut : units;
    return units;
}

/* Puts two neighbours on the same side of the cut together: those with the fewest bytes. */
static int merge(struct echi_import_rows *rows, int units) {
    int best = -1;
    double least = 0;
    for (int i = 0; i + 1 < units; i++) {
        const double bytes = rows->layer[i].bytes + rows->layer[i + 1].bytes;
        if (i + 1 == rows->cut || (best >= 0 && bytes >= least)) continue;
        best = i;
        least = bytes;
    }
    add(&rows->layer[best], &rows->layer[best + 1]);
    memmove(&rows->layer[best + 1], &rows->layer[best + 2], (size_t)(units - best - 2) * sizeof rows->layer[0]);
    rows->cut -= best < rows->cut;
    return units - 1;
}

static double seconds_of(const struct echi_import_rows *rows, int first, int end) {
    double seconds = 0;
    for (int i = first; i < end; i++) seconds += rows->layer[i].forward + rows->layer[i].backward;
    return seconds;
}

#define SECONDS_LEAST 1e-6

static ech_status check(const struct echi_lines *lines, const struct echi_import_rows *rows) {
    const double seconds = seconds_of(rows, 0, rows->count);
    double bytes = 0;
    for (int i = 0; i < rows->count; i++) bytes += rows->layer[i].bytes;
    if (bytes == 0) return echi_import_refuse(lines, "none of its layers has parameters, so nodes would exchange nothing");
    if (bytes > ECHI_IMPORT_BYTES_MAX) return echi_import_refuse(lines, "its layers have more than 4000000000 bytes of gradients together");
    if (seconds < SECONDS_LEAST)
        return echi_import_refuse(lines, "its layers take less than a microsecond together; a log that was written before anything was "
                                         "measured has zeros");
    if (seconds > ECHI_IMPORT_SECONDS_MAX)
        return echi_import_refuse(lines, "its layers take more than 3600 s together: are the units right?");
    return ECH_OK;
}

static void finish(struct echi_import_rows *rows, struct echi_import *out) {
    int units = fold(rows);
    out->merged = units > ECHI_UNITS_MAX ? units : 0;
    while (units > ECHI_UNITS_MAX) units = merge(rows, units);
    /* Where either side took no time nobody knows how its units divide it. */
    const bool known = rows->cut < units && seconds_of(rows, 0, rows->cut) > 0 && seconds_of(rows, rows->cut, units) > 0;
    out->count = units;
    out->cut = known ? rows->cut : units;
    out->row = known ? rows->row : 0;
    out->batch = rows->batch;
    out->reading = rows->reading;
    out->halved = rows->halved;
    memcpy(out->layer, rows->layer, (size_t)units * sizeof out->layer[0]);
}

/* ------------------------------------------------------------------- file */

static bool begins_as_node(const char *word) { return strncmp(word, "node", 4) == 0 && isdigit((unsigned char)word[4]); }
/* "I0215", or the brackets alone, where somebody has cut glog's words off. */
static bool begins_as_log(const char *word) { return word[0] == '[' || (strchr("IWEF", word[0]) && isdigit((unsigned char)word[1])); }
static bool begins_as_table(const char *word) { return strcasecmp(word, "id") == 0 || isdigit((unsigned char)word[0]); }

static ech_status read_all(struct echi_lines *lines, struct echi_import_rows *rows, struct echi_import *out) {
    static const char known[] = "a trace begins with 'Id Name Forward Backward Comm. Size' (or its row 0), with a line of glog that ends "
                                "in [id, elements, us, us], or with 'node1 -- ...' of PipeDream";
    const char *word = echi_lines_next(lines);
    if (!word) return echi_import_refuse(lines, "it is empty");
    const bool graph = begins_as_node(word), log = !graph && begins_as_log(word);
    if (!graph && !log && !begins_as_table(word)) return echi_lines_refuse(lines, known, word);
    out->format = graph ? ECHI_IMPORT_GRAPH : log ? ECHI_IMPORT_LOG : ECHI_IMPORT_TABLE;
    ECHI_TRY((graph ? echi_import_graph : log ? echi_import_log : echi_import_table)(lines, word, rows));
    ECHI_TRY(check(lines, rows));
    finish(rows, out);
    return ECH_OK;
}

ech_status echi_import_load(const char *path, struct echi_import *out, struct ech_error *err) {
    struct echi_lines lines;
    struct echi_import_rows *rows = calloc(1, sizeof *rows);
    struct echi_import *import = calloc(1, sizeof *import);
    ech_status status = rows && import ? ECH_OK : echi_fail_memory(err, "import.load", "a trace");
    if (status == ECH_OK) {
        rows->cut = ECHI_IMPORT_ROWS_MAX;
        status = echi_lines_open(&lines, path, "import.load", err);
        if (status == ECH_OK) status = read_all(&lines, rows, import);
        echi_lines_close(&lines);
    }
    if (status == ECH_OK) *out = *import;
    free(import);
    free(rows);
    return status;
}
