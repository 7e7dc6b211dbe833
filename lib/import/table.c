/* SPDX-License-Identifier: Apache-2.0
 * Tables of the DAG model of S-SGD: a row a layer, microseconds and bytes.
 *     Id Name Forward Backward Comm. Size
 *     0 data 120000.0 0 0 0
 *     1 conv1 73000.5 148000.2 4050.1 139776
 *     2 relu1 9300.2 14000.0 0 0                (without parameters) */
#include "echi_import_impl.h"
#include "echi_print.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define US 1e-6
#define US_MAX (ECHI_IMPORT_SECONDS_MAX / US)

/* The words behind "Id". A point behind one does not count. */
static ech_status check_header(struct echi_lines *lines) {
    static const char *const column[] = {"Name", "Forward", "Backward", "Comm", "Size"};
    for (int i = 0; i < 5; i++) {
        const char *word = echi_lines_word(lines);
        const size_t len = strlen(column[i]);
        if (!word || strncasecmp(word, column[i], len) != 0 || strcmp(word + len + (word[len] == '.'), "") != 0)
            return echi_lines_refuse(lines, "the columns of a trace are 'Id Name Forward Backward Comm. Size'", word);
    }
    return echi_lines_end(lines);
}

static ech_status check_id(const struct echi_lines *lines, const char *word, double id, double expected) {
    char needs[96];
    if (id == expected) return ECH_OK;
    if (id < expected) return echi_lines_refuse(lines, "the Ids of a trace rise by one a row, and this one was there before", word);
    snprintf(needs, sizeof needs, "the Ids of a trace rise by one a row, and layer %.0f is missing", expected);
    return echi_lines_refuse(lines, needs, word);
}

static ech_status read_row(struct echi_lines *lines, struct echi_import_layer *row) {
    static const char needs[] = "a row has 6 columns: Id, Name, then Forward, Backward and Comm. in us from 0 to 3600000000, Size in bytes "
                                "from 0 to 4000000000";
    double *const value[] = {&row->forward, &row->backward, &row->comm, &row->bytes};
    const char *name = echi_lines_word(lines);
    if (!name) return echi_lines_refuse(lines, needs, name);
    echi_printable(row->name, sizeof row->name, name, strlen(name));
    for (int i = 0; i < 4; i++) {
        ECHI_TRY(echi_import_number(lines, echi_lines_word(lines), needs, 0, i < 3 ? US_MAX : ECHI_IMPORT_BYTES_MAX, value[i]));
        if (i < 3) *value[i] *= US;
    }
    const char *more = echi_lines_word(lines);
    return more ? echi_lines_refuse(lines, needs, more) : ECH_OK;
}

/* Row 0 reads data, and is no layer. */
static ech_status read_data(struct echi_lines *lines, struct echi_import_rows *out) {
    struct echi_import_layer data = {0};
    ECHI_TRY(read_row(lines, &data));
    if (data.bytes > 0)
        return echi_lines_refuse(lines, "row 0 is the layer that reads data, and has a Size of 0: layers begin with Id 1", data.name);
    out->reading = data.forward;
    return ECH_OK;
}

ech_status echi_import_table(struct echi_lines *lines, const char *word, struct echi_import_rows *out) {
    double expected = -1;   /* not known before the first row: 0, or 1 where nobody measured how data is read */
    if (strcasecmp(word, "id") == 0) {
        ECHI_TRY(check_header(lines));
        word = echi_lines_next(lines);
    }
    for (; word; word = echi_lines_next(lines)) {
        double id;
        ECHI_TRY(echi_import_whole(lines, word, "a row begins with its Id, a whole number from 0 to 1000000", ECHI_IMPORT_IDS_MAX, &id));
        if (expected < 0) expected = id > 1 ? 1 : id;
        ECHI_TRY(check_id(lines, word, id, expected++));
        if (id == 0) {
            ECHI_TRY(read_data(lines, out));
            continue;
        }
        struct echi_import_layer *row = echi_import_add(lines, out);
        if (!row) return ECH_E_FORMAT;
        ECHI_TRY(read_row(lines, row));
    }
    return out->count > 0 ? ECH_OK : echi_import_refuse(lines, "it has no rows of layers");
}
