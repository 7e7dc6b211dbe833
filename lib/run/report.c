/* SPDX-License-Identifier: Apache-2.0
 * struct ech_report as one JSON object (RFC 8259). */
#include "echelon.h"
#include "echi_number.h"
#include "echi_print.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The bytes of one UTF-8 character at `at` (its sequence whole, shortest and no surrogate), or 0. */
static int utf8(const unsigned char *at) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (at[0] < 0x80) return 1;
    int n = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4) return 0;
    uint32_t code = at[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {   /* a NUL is no continuation, so this stays inside the string */
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    return code >= least[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

/* A path may hold any bytes; JSON may not: what is not UTF-8 becomes the replacement character. */
static void add_string(struct echi_print *t, const char *string) {
    echi_print(t, "\"");
    for (const unsigned char *at = (const unsigned char *)string; *at;) {
        int n = utf8(at);
        if (n == 0) echi_print(t, "\\ufffd");
        else if (*at == '"' || *at == '\\') echi_print(t, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f) echi_print(t, "\\u%04x", *at);
        else echi_print(t, "%.*s", n, (const char *)at);
        at += n ? n : 1;
    }
    echi_print(t, "\"");
}

static void add_key(struct echi_print *t, const char *name) { echi_print(t, ",\n  \"%s\": ", name); }

/* JSON has no word for infinities and NaN: they become null. */
static void add_number(struct echi_print *t, double value) {
    if (isfinite(value)) echi_print(t, "%.10g", value);
    else echi_print(t, "null");
}

static void add_real(struct echi_print *t, const char *name, double value) {
    add_key(t, name);
    add_number(t, value);
}

/* A negative number says "there is none". */
static void add_optional(struct echi_print *t, const char *name, double value) { add_real(t, name, value < 0 ? NAN : value); }

static void add_whole(struct echi_print *t, const char *name, uint64_t value) {
    add_key(t, name);
    echi_print(t, "%llu", (unsigned long long)value);
}

static void add_text(struct echi_print *t, const char *name, const char *value) {
    add_key(t, name);
    add_string(t, value);
}

/* [[0, 1], [2, 3]]: for each group the ranks whose workers are in it. */
static void add_groups(struct echi_print *t, const struct ech_report *r, int world, int groups) {
    add_key(t, "groups");
    echi_print(t, "[");
    for (int g = 0; g < groups; g++) {
        bool first = true;
        echi_print(t, "%s[", g ? ", " : "");
        for (int rank = 0; rank < world; rank++) {
            if (r->group_of[rank] != g) continue;
            echi_print(t, "%s%d", first ? "" : ", ", rank);
            first = false;
        }
        echi_print(t, "]");
    }
    echi_print(t, "]");
}

static void add_ints(struct echi_print *t, const char *name, const int *values, int n) {
    add_key(t, name);
    echi_print(t, "[");
    for (int i = 0; i < n; i++) echi_print(t, "%s%d", i ? ", " : "", values[i]);
    echi_print(t, "]");
}

static void add_reals(struct echi_print *t, const char *name, const double *values, int n) {
    add_key(t, name);
    echi_print(t, "[");
    for (int i = 0; i < n; i++) {
        if (i) echi_print(t, ", ");
        add_number(t, values[i]);
    }
    echi_print(t, "]");
}

static void add_counts(struct echi_print *t, const char *name, const uint64_t *values, int n) {
    add_key(t, name);
    echi_print(t, "[");
    for (int i = 0; i < n; i++) echi_print(t, "%s%llu", i ? ", " : "", (unsigned long long)values[i]);
    echi_print(t, "]");
}

static void add_bytes(struct echi_print *t, const struct ech_report *r) {
    add_key(t, "bytes_sent");
    echi_print(t, "{");
    for (int k = 0; k < ECH_KINDS_MAX && r->kind_name[k]; k++) {
        if (k) echi_print(t, ", ");
        add_string(t, r->kind_name[k]);
        echi_print(t, ": %llu", (unsigned long long)r->bytes_sent[k]);
    }
    echi_print(t, "}");
}

static int within(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

static void add_all(struct echi_print *t, const struct ech_report *r) {
    const int world = within(r->world, ECH_WORLD_MAX), groups = within(r->n_groups, ECH_GROUPS_MAX);
    echi_print(t, "{\n  \"version\": ");
    add_string(t, r->version);
    add_text(t, "model", r->model);
    add_text(t, "data", r->data);
    add_text(t, "sync", r->sync);
    add_whole(t, "seed", r->seed);
    add_key(t, "separate");
    echi_print(t, "%d", r->separate);
    add_key(t, "world");
    echi_print(t, "%d", world);
    add_groups(t, r, world, groups);
    add_ints(t, "owners", r->owner_of, groups);
    add_ints(t, "head", &r->head, r->head >= 0);
    add_ints(t, "batch", r->batch, world);
    add_key(t, "round");
    echi_print(t, "%d", r->round);
    add_reals(t, "step_seconds", r->step_seconds, world);
    add_reals(t, "iteration_seconds", r->iteration_seconds, groups);
    add_whole(t, "steps", r->steps);
    add_whole(t, "samples", r->samples);
    add_real(t, "epochs", r->epochs);
    add_real(t, "seconds", r->seconds);
    add_real(t, "images_per_second", r->images_per_second);
    add_real(t, "measuring_seconds", r->measuring_seconds);
    add_real(t, "startup_seconds", r->startup_seconds);
    add_real(t, "train_loss", r->train_loss);
    add_optional(t, "test_accuracy", r->test_accuracy);
    add_optional(t, "best_accuracy", r->best_accuracy);
    add_optional(t, "target_seconds", r->target_seconds);
    add_optional(t, "target_epochs", r->target_epochs);
    add_bytes(t, r);
    add_real(t, "staleness_max", r->staleness_max);
    add_real(t, "staleness_mean", r->staleness_mean);
    add_reals(t, "staleness_edges", r->staleness_edge, ECH_STALENESS_BINS - 1);
    add_counts(t, "staleness_trunk", r->staleness_trunk, ECH_STALENESS_BINS);
    add_counts(t, "staleness_head", r->staleness_head, r->head >= 0 ? ECH_STALENESS_BINS : 0);
    add_whole(t, "resident_peak", r->resident_peak);
    add_whole(t, "threads", (uint64_t)r->threads);
    add_optional(t, "lost_peer", r->lost_peer);
    add_real(t, "checkpoint_seconds", r->checkpoint_seconds);
    add_whole(t, "resumed_samples", r->resumed_samples);
    add_ints(t, "lost", r->lost, within(r->n_lost, ECH_WORLD_MAX));
    add_whole(t, "leases_again", r->leases_again);
    add_whole(t, "samples_again", r->samples_again);
    add_whole(t, "head_repeats", r->head_repeats);
    add_text(t, "codec", r->codec);
    add_real(t, "push_ratio", r->push_ratio);
    add_real(t, "state_ratio", r->state_ratio);
    add_whole(t, "residuals_lost", r->residuals_lost);
    add_whole(t, "leases_dropped", r->leases_dropped);
    add_whole(t, "samples_dropped", r->samples_dropped);
    add_optional(t, "predicted_images_per_second", r->predicted_images_per_second);
    add_optional(t, "predicted_staleness", r->predicted_staleness);
    add_optional(t, "useless", r->useless);
    add_real(t, "useless_gain", r->useless_gain);
    add_whole(t, "regroups", r->regroups);
    add_whole(t, "resizes", r->resizes);
    echi_print(t, "\n}\n");
}

size_t ech_report_json(const struct ech_report *report, char *buf, size_t cap) {
    if (buf && cap) buf[0] = 0;
    if (!report) return 0;
    struct echi_print t = {.buf = buf, .cap = buf ? cap : 0};
    struct echi_point point;
    echi_point_begin(&point);
    add_all(&t, report);
    echi_point_end(&point);
    return t.len;
}
