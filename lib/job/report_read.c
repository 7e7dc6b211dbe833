/* SPDX-License-Identifier: Apache-2.0
 * A report from its JSON, which may come from anywhere: taken whole or refused with file, line, byte and key. Keys that this version does
 * not know are skipped, those that are not there keep what echi_report_clear gives them. */
#include "echelon_dev.h"
#include "echi_error.h"
#include "echi_json_read.h"
#include "echi_number.h"
#include "echi_os.h"
#include "echi_print.h"
#include "echi_report_keys.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_FILE_MAX (1 << 20)   /* 1,024 ranks take 620 bytes each */

/* A report and the texts that it points to, each shorter than it is in the file. */
struct kept {
    struct ech_report report;   /* first: who has it, has the block */
    char texts[];
};

struct reader {
    char path[120];                 /* fit for a message */
    struct ech_error *err;
    struct echi_json json;
    enum echi_report_turn turn;     /* whose keys are read; others are skipped */
    struct ech_report *report;
    char *text;                     /* where the next one goes */
};

static int line_of(const struct echi_json *j, const uint8_t *at) {
    int line = 1;
    for (const uint8_t *c = j->begin; c < at; c++) line += *c == '\n';
    return line;
}

/* ECH_E_FORMAT: "report.json:12: ..., found '-1' (byte 812: a number is missing)". */
static ech_status refuse(const struct reader *r, const uint8_t *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static ech_status refuse(const struct reader *r, const uint8_t *at, const char *fmt, ...) {
    const struct echi_json *j = &r->json;
    char what[200], word[28];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    while (at < j->end && strchr(" \t\r\n", *at) && *at) at++;
    while (at + len < j->end && at[len] > ' ' && (len == 0 || at[len] != ',')) len++;
    echi_printable(word, sizeof word, (const char *)at, len);
    return echi_fail(r->err, ECH_E_FORMAT, "report.read", "%s:%d: %s, found %s%s%s (byte %zu%s%s)", r->path, line_of(j, at), what,
                     len ? "'" : "", len ? word : "the end of the file", len ? "'" : "", (size_t)(at - j->begin), j->wrong ? ": " : "",
                     j->wrong ? j->wrong : "");
}

/* What a value may be, as a refusal ends. */
static const char *allowed(const struct reader *r, const struct echi_report_key *key, char *buf, size_t cap) {
    const int world = r->report->world;
    switch (key->kind) {
    case ECHI_REPORT_TEXT: case ECHI_REPORT_NAME: return "a text in quotation marks";
    case ECHI_REPORT_COUNT: snprintf(buf, cap, "a whole number from %d to %d", key->least, key->most); return buf;
    case ECHI_REPORT_RANK: snprintf(buf, cap, "a rank, from 0 to %d", world - 1); return buf;
    case ECHI_REPORT_NO_RANK: snprintf(buf, cap, "a rank, from 0 to %d, or null", world - 1); return buf;
    case ECHI_REPORT_WHOLE: case ECHI_REPORT_SIZE: case ECHI_REPORT_KINDS: return "a whole number, 0 or more";
    case ECHI_REPORT_REAL: return "a number or null";
    case ECHI_REPORT_AMOUNT: case ECHI_REPORT_OPTIONAL: case ECHI_REPORT_FLOAT: return "a number, 0 or more, or null";
    case ECHI_REPORT_GROUPS: snprintf(buf, cap, "a rank, from 0 to %d, that is in no other group", world - 1); return buf;
    case ECHI_REPORT_OBJECT: break;
    }
    return "an object";
}

static ech_status refuse_value(const struct reader *r, const struct echi_report_key *key, const uint8_t *at) {
    char buf[80];
    return refuse(r, at, "\"%s\" takes %s", key->name, allowed(r, key, buf, sizeof buf));
}

/* Cut at `cap` - 1 bytes, and then before a character that is no longer whole. */
static void take_text(char *out, size_t cap, const struct echi_json_string *s) {
    size_t len = s->len < sizeof s->text ? s->len : sizeof s->text;
    const bool cut = s->len > len || len > cap - 1;
    if (len > cap - 1) len = cap - 1;
    memcpy(out, s->text, len);
    if (cut) {
        size_t last = len;
        while (last > 0 && (s->text[last - 1] & 0xc0) == 0x80) last--;
        const unsigned char lead = last > 0 ? (unsigned char)s->text[last - 1] : 0;
        const size_t needs = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        if (last > 0 && len - (last - 1) < needs) len = last - 1;
    }
    for (size_t i = 0; i < len; i++)
        if (!out[i]) out[i] = '?';   /* JSON's \u0000, which would end it */
    out[len] = 0;
    echi_clean(out);
}

static const char *keep_text(struct reader *r, const struct echi_json_string *s) {
    char *text = r->text;
    take_text(text, sizeof s->text + 1, s);
    r->text += strlen(text) + 1;
    return text;
}

static bool read_whole(struct echi_json *j, uint64_t least, uint64_t most, uint64_t *out) {
    return echi_json_whole(j, out) && *out >= least && *out <= most;
}

static bool read_int(struct echi_json *j, int least, int most, int *out) {
    uint64_t value;
    if (most < least || !read_whole(j, (uint64_t)least, (uint64_t)most, &value)) return false;
    *out = (int)value;
    return true;
}

/* `none` is what null stands for. */
static bool read_real(struct echi_json *j, double least, double none, double *out) {
    struct echi_json_string s;
    *out = none;
    if (echi_json_null(j)) return true;
    return echi_json_number(j, &s) && echi_parse_real(s.text, out) && *out >= least;
}

static bool read_float(struct echi_json *j, float *out) {
    double value;
    if (!read_real(j, 0, (double)NAN, &value)) return false;
    *out = (float)value;
    return !isinf(*out);
}

static ech_status read_fields(struct reader *r, const struct echi_report_key *keys, void *fields);

/* [[0, 1], [3]] */
static ech_status read_groups(struct reader *r, const struct echi_report_key *key) {
    struct echi_json *j = &r->json;
    struct ech_report *report = r->report;
    for (echi_json_array(j); echi_json_element(j); report->n_groups++) {
        if (report->n_groups == ECH_GROUPS_MAX) return refuse(r, j->at, "\"%s\" has more than %d groups", key->name, ECH_GROUPS_MAX);
        for (echi_json_array(j); echi_json_element(j);) {
            const uint8_t *at = j->at;
            int rank;
            if (!read_int(j, 0, report->world - 1, &rank) || report->group_of[rank] >= 0) return refuse_value(r, key, at);
            report->group_of[rank] = report->n_groups;
        }
    }
    return ECH_OK;
}

/* {"push": 1000, "weights": 2000} */
static ech_status read_kinds(struct reader *r, const struct echi_report_key *key) {
    struct echi_json *j = &r->json;
    struct ech_report *report = r->report;
    struct echi_json_string name;
    int k = 0;
    for (echi_json_object(j); echi_json_member(j, &name); k++) {
        const uint8_t *at = j->at;
        if (k == ECH_KINDS_MAX - 1) return refuse(r, at, "\"%s\" has more than %d kinds of message", key->name, k);
        report->kind_name[k] = keep_text(r, &name);
        if (!echi_json_whole(j, &report->bytes_sent[k])) return refuse_value(r, key, at);
    }
    return ECH_OK;
}

static ech_status read_value(struct reader *r, const struct echi_report_key *key, void *at) {
    struct echi_json *j = &r->json;
    const uint8_t *begin = j->at;
    struct echi_json_string s;
    uint64_t whole = 0;
    bool taken = false;
    switch (key->kind) {
    case ECHI_REPORT_TEXT:
        taken = echi_json_string(j, &s);
        if (taken) take_text(at, key->size, &s);
        break;
    case ECHI_REPORT_NAME:
        taken = echi_json_string(j, &s);
        if (taken) *(const char **)at = keep_text(r, &s);
        break;
    case ECHI_REPORT_COUNT: taken = read_int(j, key->least, key->most, at); break;
    case ECHI_REPORT_RANK: taken = read_int(j, 0, r->report->world - 1, at); break;
    case ECHI_REPORT_NO_RANK: taken = echi_json_null(j) || read_int(j, 0, r->report->world - 1, at); break;
    case ECHI_REPORT_WHOLE: taken = echi_json_whole(j, at); break;
    case ECHI_REPORT_SIZE:
        taken = read_whole(j, 0, SIZE_MAX, &whole);
        *(size_t *)at = (size_t)whole;
        break;
    case ECHI_REPORT_REAL: taken = read_real(j, -HUGE_VAL, (double)NAN, at); break;
    case ECHI_REPORT_AMOUNT: taken = read_real(j, 0, (double)NAN, at); break;
    case ECHI_REPORT_OPTIONAL: taken = read_real(j, 0, -1, at); break;
    case ECHI_REPORT_FLOAT: taken = read_float(j, at); break;
    case ECHI_REPORT_GROUPS: return read_groups(r, key);
    case ECHI_REPORT_KINDS: return read_kinds(r, key);
    case ECHI_REPORT_OBJECT:
        echi_report_clear_fields(at, key->inner);
        return read_fields(r, key->inner, at);
    }
    return taken ? ECH_OK : refuse_value(r, key, begin);
}

static ech_status read_list(struct reader *r, const struct echi_report_key *key, char *at) {
    struct echi_json *j = &r->json;
    const uint8_t *begin = j->at;
    const int most = echi_report_longest(key->length);
    int n = 0, *count = echi_report_count(r->report, key->length);
    if (!echi_json_array(j)) return refuse(r, begin, "\"%s\" takes a list", key->name);
    for (; echi_json_element(j); n++) {
        if (n == most) return refuse(r, j->at, "\"%s\" has more than %d value%s", key->name, most, most == 1 ? "" : "s");
        ECHI_TRY(read_value(r, key, at + (size_t)n * key->size));
    }
    if (count) *count = n;
    const int needs = echi_report_length(r->report, key->length);
    if (n != needs && !j->wrong)   /* else the caller refuses what is damaged */
        return refuse(r, begin, "\"%s\" has %d value%s and needs %d (ranks: %d, groups: %d)", key->name, n, n == 1 ? "" : "s", needs,
                      r->report->world, r->report->n_groups);
    return ECH_OK;
}

/* The members of an object that have their turn. A key that comes twice would leave it open which one counts. */
static ech_status read_members(struct reader *r, const struct echi_report_key *keys, void *fields, bool seen[ECHI_REPORT_KEYS_MAX]) {
    struct echi_json *j = &r->json;
    struct echi_json_string name;
    for (echi_json_object(j); echi_json_member(j, &name);) {
        const struct echi_report_key *key = keys;
        while (key->name && !echi_json_equal(&name, key->name)) key++;
        if (key->name && seen[key - keys]) return refuse(r, j->at, "\"%s\" is there twice", key->name);
        if (key->name) seen[key - keys] = true;
        if (!key->name || key->turn != r->turn) echi_json_skip(j);
        else if (key->length) ECHI_TRY(read_list(r, key, (char *)fields + key->at));
        else ECHI_TRY(read_value(r, key, (char *)fields + key->at));
        if (j->wrong) return refuse(r, j->at, "\"%s\" is damaged here", key->name ? key->name : "a key");
    }
    return j->wrong ? refuse(r, j->at, "an object of keys and values is damaged here") : ECH_OK;
}

static ech_status read_fields(struct reader *r, const struct echi_report_key *keys, void *fields) {
    bool seen[ECHI_REPORT_KEYS_MAX] = {false};
    return read_members(r, keys, fields, seen);
}

static ech_status no_report(const struct reader *r, const char *why) {
    return echi_fail(r->err, ECH_E_FORMAT, "report.read",
                     "%s is no report of a run: %s; `echelon train --report FILE` writes one (a plan is for --plan, a profile for "
                     "--profile)", r->path, why);
}

static ech_status read_turn(struct reader *r, enum echi_report_turn turn, const void *bytes, size_t len) {
    bool seen[ECHI_REPORT_KEYS_MAX] = {false};
    r->turn = turn;
    echi_json_begin(&r->json, bytes, len);
    ECHI_TRY(read_members(r, echi_report_keys, r->report, seen));
    if (!echi_json_end(&r->json)) return refuse(r, r->json.at, "nothing may follow the report");
    for (const struct echi_report_key *key = echi_report_keys; key->name; key++) {
        char why[60];
        snprintf(why, sizeof why, "it has no \"%s\"", key->name);
        if (key->needed && !seen[key - echi_report_keys]) return no_report(r, why);
    }
    return ECH_OK;
}

static ech_status read_all(struct reader *r, const void *bytes, size_t len) {
    static const enum echi_report_turn turns[] = {ECHI_REPORT_FIRST, ECHI_REPORT_SECOND, ECHI_REPORT_LATER};
    struct echi_json first;
    echi_json_begin(&first, bytes, len);
    if (len == 0) return no_report(r, "it is empty");
    if (!echi_json_object(&first)) return no_report(r, "it is no JSON object");
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) ECHI_TRY(read_turn(r, turns[i], bytes, len));
    return ECH_OK;
}

ech_status ech_report_read(const char *path, struct ech_report **out, struct ech_error *err) {
    if (!path || !out)
        return echi_fail(err, ECH_E_ARGUMENT, "report.read", "ech_report_read needs a path and an out");
    uint8_t *bytes;
    size_t len;
    ECHI_TRY(echi_file_read(path, REPORT_FILE_MAX, &bytes, &len, err));
    struct kept *kept = malloc(sizeof *kept + len);
    struct reader r = {.err = err};
    ech_status status = kept ? ECH_OK : echi_fail_memory(err, "report.read", "the report");
    if (status == ECH_OK) {
        echi_report_clear(&kept->report);
        r.report = &kept->report;
        r.text = kept->texts;
        echi_printable_path(r.path, sizeof r.path, path);
        status = read_all(&r, bytes, len);
    }
    free(bytes);
    if (status == ECH_OK) *out = &kept->report;
    else free(kept);
    return status;
}

void ech_report_destroy(struct ech_report *report) { free(report); }
