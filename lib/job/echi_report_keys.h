/* SPDX-License-Identifier: Apache-2.0
 * The keys of a report: one table that its writer (report.c) and its reader (report_read.c) go by. A new field of struct ech_report is a
 * row of it, and both have the field. */
#ifndef ECHI_REPORT_KEYS_H
#define ECHI_REPORT_KEYS_H
#include "echelon.h"

#include <stdbool.h>
#include <stddef.h>

/* What a value is in the struct, and in JSON. */
enum echi_report_kind {
    ECHI_REPORT_TEXT,      /* char[size]: a string */
    ECHI_REPORT_NAME,      /* const char *: a string */
    ECHI_REPORT_COUNT,     /* int: a whole number from `least` to `most` */
    ECHI_REPORT_RANK,      /* int: a whole number below world */
    ECHI_REPORT_NO_RANK,   /* int: the same; or null, which is -1 */
    ECHI_REPORT_WHOLE,     /* uint64_t: a whole number */
    ECHI_REPORT_SIZE,      /* size_t: a whole number */
    ECHI_REPORT_REAL,      /* double: a number; or null, which is what has no number */
    ECHI_REPORT_AMOUNT,    /* double: the same, and not below 0 */
    ECHI_REPORT_OPTIONAL,  /* double: a number not below 0; or null, which is -1 */
    ECHI_REPORT_FLOAT,     /* float: as AMOUNT */
    ECHI_REPORT_OBJECT,    /* a struct: an object with the keys of `inner` */
    ECHI_REPORT_GROUPS,    /* n_groups and group_of: of each group the ranks in it */
    ECHI_REPORT_KINDS,     /* kind_name and bytes_sent: an object with a key a kind */
};

/* Of a list: how many values it has. */
enum echi_report_length {
    ECHI_REPORT_ALONE,     /* it is no list */
    ECHI_REPORT_WORLD,     /* one for each rank */
    ECHI_REPORT_PER_GROUP, /* one for each group */
    ECHI_REPORT_HEAD,      /* one where there is a head, else none */
    ECHI_REPORT_EDGES, ECHI_REPORT_BINS,
    ECHI_REPORT_HEAD_BINS, /* as many as bins where there is a head, else none */
    /* as many as the list itself has */
    ECHI_REPORT_SHARDS, ECHI_REPORT_HEADS, ECHI_REPORT_LOST, ECHI_REPORT_CANDIDATES, ECHI_REPORT_WHAT_IFS, ECHI_REPORT_PATH,
    ECHI_REPORT_LOSS_CURVE,
};

/* When a key is read: what others are checked by comes before them, wherever it stands in the file. */
enum echi_report_turn { ECHI_REPORT_LATER, ECHI_REPORT_FIRST, ECHI_REPORT_SECOND };

struct echi_report_key {
    const char *name;                       /* NULL ends a table */
    enum echi_report_kind kind;
    enum echi_report_length length;
    enum echi_report_turn turn;
    size_t at, size;                        /* of the field in its struct; of one value */
    int least, most;                        /* of a COUNT */
    const struct echi_report_key *inner;    /* of an OBJECT */
    bool needed;                            /* what lacks it is no report */
};
#define ECHI_REPORT_KEYS_MAX 96             /* of one table */
extern const struct echi_report_key echi_report_keys[];

/* How many values a list of this report has; how many it may have. */
int echi_report_length(const struct ech_report *r, enum echi_report_length length);
int echi_report_longest(enum echi_report_length length);
/* The field that says how many it has, where no other key does; else NULL. */
int *echi_report_count(struct ech_report *r, enum echi_report_length length);

/* All that a report may be silent of is as one has it that knows nothing; all else is 0. */
void echi_report_clear(struct ech_report *r);
/* The same of one struct: of the report, or of an OBJECT in it, which is all 0. */
void echi_report_clear_fields(void *fields, const struct echi_report_key *keys);
#endif
