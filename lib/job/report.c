/* SPDX-License-Identifier: Apache-2.0
 * struct ech_report as one JSON object (RFC 8259). */
#include "echi_json_write.h"
#include "echi_report_keys.h"

/* [[0, 1], [2, 3]]: for each group the ranks whose workers are in it. */
static void put_groups(struct echi_json_put *j, const char *name, const struct ech_report *r) {
    const int world = echi_report_length(r, ECHI_REPORT_WORLD), groups = echi_report_length(r, ECHI_REPORT_PER_GROUP);
    echi_json_put_list(j, name);
    for (int g = 0; g < groups; g++) {
        echi_json_put_list(j, NULL);
        for (int rank = 0; rank < world; rank++)
            if (r->group_of[rank] == g) echi_json_put_integer(j, NULL, rank);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
}

static void put_kinds(struct echi_json_put *j, const char *name, const struct ech_report *r) {
    echi_json_put_object(j, name);
    for (int k = 0; k < ECH_KINDS_MAX && r->kind_name[k]; k++) echi_json_put_whole(j, r->kind_name[k], r->bytes_sent[k]);
    echi_json_put_close(j);
}

static int within(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

/* The value of `key` in the struct that begins at `fields`; of a list the one that lies `offset` bytes further on. */
static void put_value(struct echi_json_put *j, const char *name, const struct echi_report_key *key, const void *fields, size_t offset) {
    const void *at = (const char *)fields + key->at + offset;
    switch (key->kind) {
    case ECHI_REPORT_TEXT: echi_json_put_text(j, name, at); break;
    case ECHI_REPORT_NAME: echi_json_put_text(j, name, *(const char *const *)at); break;
    case ECHI_REPORT_COUNT: echi_json_put_integer(j, name, within(*(const int *)at, key->most)); break;
    case ECHI_REPORT_RANK: echi_json_put_integer(j, name, *(const int *)at); break;
    case ECHI_REPORT_NO_RANK: echi_json_put_optional(j, name, *(const int *)at); break;
    case ECHI_REPORT_WHOLE: echi_json_put_whole(j, name, *(const uint64_t *)at); break;
    case ECHI_REPORT_SIZE: echi_json_put_whole(j, name, *(const size_t *)at); break;
    case ECHI_REPORT_REAL: case ECHI_REPORT_AMOUNT: echi_json_put_real(j, name, *(const double *)at); break;
    case ECHI_REPORT_OPTIONAL: echi_json_put_optional(j, name, *(const double *)at); break;
    case ECHI_REPORT_FLOAT: echi_json_put_real(j, name, *(const float *)at); break;
    case ECHI_REPORT_GROUPS: put_groups(j, name, fields); break;
    case ECHI_REPORT_KINDS: put_kinds(j, name, fields); break;
    case ECHI_REPORT_OBJECT:
        echi_json_put_object(j, name);
        for (const struct echi_report_key *inner = key->inner; inner->name; inner++) put_value(j, inner->name, inner, at, 0);
        echi_json_put_close(j);
    }
}

static void put_all(struct echi_json_put *j, const struct ech_report *r) {
    for (const struct echi_report_key *key = echi_report_keys; key->name; key++) {
        if (key->length == ECHI_REPORT_ALONE) {
            put_value(j, key->name, key, r, 0);
            continue;
        }
        const int n = echi_report_length(r, key->length);
        echi_json_put_list(j, key->name);
        for (int i = 0; i < n; i++) put_value(j, NULL, key, r, (size_t)i * key->size);
        echi_json_put_close(j);
    }
}

size_t ech_report_json(const struct ech_report *report, char *buf, size_t cap) {
    if (buf && cap) buf[0] = 0;
    if (!report) return 0;
    struct echi_json_put json;
    echi_json_put_begin(&json, buf, cap);
    put_all(&json, report);
    return echi_json_put_end(&json);
}
