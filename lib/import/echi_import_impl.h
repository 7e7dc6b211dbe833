/* SPDX-License-Identifier: Apache-2.0
 * What the formats share: rows as a file has them, and how numbers are read. import.c */
#ifndef ECHI_IMPORT_IMPL_H
#define ECHI_IMPORT_IMPL_H
#include "echi_import.h"
#include "echi_error.h"
#include "echi_lines.h"

#define ECHI_IMPORT_IDS_MAX 1e6

/* Layers with and without parameters, the input's first; no `merged` and no units yet. */
struct echi_import_rows {
    int count;
    int cut;                              /* the first row behind the cut; `count`: not known */
    double row, reading;
    uint32_t batch;
    bool halved;
    struct echi_import_layer layer[ECHI_IMPORT_ROWS_MAX];
};

/* Each reads all lines, of which `word` is the first one's first word. */
ech_status echi_import_table(struct echi_lines *lines, const char *word, struct echi_import_rows *out);
ech_status echi_import_log(struct echi_lines *lines, const char *word, struct echi_import_rows *out);
ech_status echi_import_graph(struct echi_lines *lines, const char *word, struct echi_import_rows *out);

/* The next row, zeroed; NULL when there are too many, which the error states. */
struct echi_import_layer *echi_import_add(struct echi_lines *lines, struct echi_import_rows *rows);
/* A number of `text`, the whole of it; refused with `needs` unless it is in [least, most]. */
ech_status echi_import_number(const struct echi_lines *lines, const char *text, const char *needs, double least, double most, double *out);
/* The same of a whole number from 0. */
ech_status echi_import_whole(const struct echi_lines *lines, const char *text, const char *needs, double most, double *out);
/* A refusal of the file as a whole. */
ech_status echi_import_refuse(const struct echi_lines *lines, const char *sentence);
#endif
