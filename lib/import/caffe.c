/* SPDX-License-Identifier: Apache-2.0
 * Logs of B-Caffe: a row a parameter array, the input's first. Its layer's weights and biases share one backward time, in microseconds.
 *     I0214 23:25:29.141575 37187 distributed.cpp:112] [0, 9408, 14690.2, 298]
 *     I0214 23:25:29.141594 37187 distributed.cpp:112] [1, 64, 14690.2, 106]
 * A log may hold several dumps, the first one from before anything was measured: the last counts. All else in it is not read. */
#include "echi_import_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define US 1e-6
#define US_MAX (ECHI_IMPORT_SECONDS_MAX / US)
enum { COLUMNS = 5 };   /* the last, the time of merged layers, may be missing */

struct dump {
    int rows, before;   /* arrays of this dump, and of the one before it; 0: none */
    double last;        /* backward time of the array read last, us */
    bool pair;          /* the layer has two arrays */
};

static const char needs[] = "a row is [id, elements, backward us, all-reduce us] or has a fifth column, of merged layers; times from 0 to "
                            "3600000000, elements from 1 to 1000000000";

/* What is in the brackets at the end of a line, cut at its commas; 0: the line has none that begin with a digit or a sign. */
static int columns_of(char *text, char *out_column[COLUMNS + 1]) {
    char *at = strrchr(text, '['), *end = at ? strchr(at, ']') : NULL;
    if (!end || end[1 + strspn(end + 1, " \t\r")] || !strchr("-+0123456789", at[1]) || !at[1]) return 0;
    *end = 0;
    int count = 0;
    for (at++; at && count <= COLUMNS; count++) {
        char *comma = strchr(at, ',');
        at += strspn(at, " \t");
        out_column[count] = at;
        if (comma) *comma++ = 0;
        for (size_t len = strlen(at); len > 0 && isspace((unsigned char)at[len - 1]);) at[--len] = 0;
        at = comma;
    }
    return count;
}

static ech_status check_id(const struct echi_lines *lines, const char *text, double id, struct dump *dump) {
    char sentence[112];
    if (id == 0) {
        dump->before = dump->rows;
        dump->rows = 0;
    }
    if (id == dump->rows) return ECH_OK;
    snprintf(sentence, sizeof sentence, "the ids of a dump begin with 0 and rise by one: %d %s", id < dump->rows ? (int)id : dump->rows,
             id < dump->rows ? "was there before" : "is missing");
    return echi_lines_refuse(lines, sentence, text);
}

static ech_status read_row(struct echi_lines *lines, char *const column[], int count, struct dump *dump, struct echi_import_rows *out) {
    double id, elements, us, comm, merged;
    if (count != COLUMNS - 1 && count != COLUMNS) return echi_lines_refuse(lines, needs, count > COLUMNS ? column[COLUMNS] : NULL);
    ECHI_TRY(echi_import_whole(lines, column[0], needs, ECHI_IMPORT_IDS_MAX, &id));
    ECHI_TRY(echi_import_number(lines, column[1], needs, 1, ECHI_IMPORT_BYTES_MAX / 4, &elements));
    ECHI_TRY(echi_import_number(lines, column[2], needs, 0, US_MAX, &us));
    ECHI_TRY(echi_import_number(lines, column[3], needs, 0, US_MAX, &comm));
    if (count == COLUMNS) ECHI_TRY(echi_import_number(lines, column[4], needs, 0, US_MAX, &merged));
    ECHI_TRY(check_id(lines, column[0], id, dump));
    if (id == 0) out->count = 0;
    const bool same = dump->rows > 0 && us == dump->last && !dump->pair;
    struct echi_import_layer *layer = same ? &out->layer[out->count - 1] : echi_import_add(lines, out);
    if (!layer) return ECH_E_FORMAT;
    if (!same) {
        snprintf(layer->name, sizeof layer->name, "array %.0f", id);
        layer->backward = us * US;
        layer->forward = layer->backward / 2;
    }
    layer->comm += comm * US;
    layer->bytes += 4 * elements;
    dump->pair = same;
    dump->last = us;
    dump->rows++;
    return ECH_OK;
}

ech_status echi_import_log(struct echi_lines *lines, const char *word, struct echi_import_rows *out) {
    struct dump dump = {0};
    char text[512], *column[COLUMNS + 1];
    for (; word; word = echi_lines_next(lines)) {
        size_t len = (size_t)snprintf(text, sizeof text, "%s ", word);
        if (len < sizeof text) echi_lines_rest(lines, text + len, sizeof text - len);
        const int count = columns_of(text, column);
        if (count > 0) ECHI_TRY(read_row(lines, column, count, &dump, out));
    }
    out->halved = true;   /* it has no forward times */
    if (dump.rows == 0) return echi_import_refuse(lines, "it is a log without rows of [id, elements, backward us, all-reduce us]");
    if (dump.rows < dump.before) return echi_import_refuse(lines, "its last dump has fewer rows than the one before: the log breaks off");
    return ECH_OK;
}
