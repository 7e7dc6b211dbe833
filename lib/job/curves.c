/* SPDX-License-Identifier: Apache-2.0
 * The file of loss curves, of first epochs. The first line is its version; of each run follow, in this order:
 *     run lenet5 on data/mnist                 (for people)
 *     task 0123456789abcdef data 0123456789abcdef round 64
 *     policy gssp separated 1 staleness 3 rounds_apart 4 damping 0 drop_older 0 weigh_by_time 0
 *     behind 1.25                              (rounds)
 *     at 32 loss 2.303                         (a line a point, ascending, up to 128) */
#include "echi_curves.h"
#include "echi_error.h"
#include "echi_lines.h"
#include "echi_number.h"
#include "echi_os.h"
#include "echi_print.h"
#include "echi_sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define RUN_BYTES (512 + ECH_CURVE_MAX * 48)   /* of one run as text, at most */

bool echi_curve_policy_same(const struct echi_curve_policy *a, const struct echi_curve_policy *b) {
    return a->sync == b->sync && a->separated == b->separated && a->weigh_by_time == b->weigh_by_time && a->staleness == b->staleness &&
           a->rounds_apart == b->rounds_apart && a->damping == b->damping && a->drop_older == b->drop_older;
}

/* ------------------------------------------------------------- written */

static void print(struct echi_print *out, const struct echi_curve_run *r) {
    const struct echi_curve_policy *p = &r->policy;
    char about[sizeof r->about];
    memcpy(about, r->about, sizeof about);
    echi_lines_plain(about);
    echi_print(out, "run %s\ntask %s data %s round %u\n", about, r->task, r->data, r->round);
    echi_print(out, "policy %s separated %d staleness %u rounds_apart %u damping %.9g drop_older %.9g weigh_by_time %d\n",
               echi_policy_of((enum echi_sync)p->sync)->name, p->separated, p->staleness, p->rounds_apart, p->damping, p->drop_older,
               p->weigh_by_time);
    echi_print(out, "behind %.6g\n", r->behind);
    for (int i = 0; i < r->points; i++) echi_print(out, "at %.15g loss %.6g\n", r->at[i], r->loss[i]);
}

ech_status echi_curves_save(const char *path, const struct echi_curves *curves, struct ech_error *err) {
    const size_t cap = 256 + (size_t)curves->count * RUN_BYTES;
    struct echi_print out = {malloc(cap), cap, 0};
    struct echi_point point;
    if (!out.buf) return echi_fail_memory(err, "curves.save", "loss curves");
    echi_point_begin(&point);
    echi_print(&out, "# Training loss by samples of runs with --efficiency, from which plans take the efficiency of policies.\ncurves %d\n",
               VERSION);
    for (int i = 0; i < curves->count; i++) print(&out, &curves->run[i]);
    echi_point_end(&point);
    const ech_status status = echi_file_write(path, out.buf, out.len, err);
    free(out.buf);
    return status;
}

/* ---------------------------------------------------------------- read */

static const struct echi_unit no_unit[] = {{"", 1}, {0}};
#define AT_MAX 1e15
#define ABOVE_0 1e-30
#define BEHIND_MAX 1e6

/* Goes to the next line, which begins with that word. */
static ech_status go_on(struct echi_lines *lines, const char *word, const char *needs) {
    const char *first = echi_lines_next(lines);
    return first && strcmp(first, word) == 0 ? ECH_OK : echi_lines_refuse(lines, needs, first);
}

static ech_status take(struct echi_lines *lines, const char *word, const char *needs) {
    return echi_lines_take(lines, word) ? ECH_OK : echi_lines_refuse(lines, needs, echi_lines_word(lines));
}

static ech_status read_hash(struct echi_lines *lines, const char *needs, char out[ECHI_CURVES_HASH]) {
    const char *hash = echi_lines_word(lines);
    if (!hash || strlen(hash) != ECHI_CURVES_HASH - 1 || hash[strspn(hash, "0123456789abcdef")])
        return echi_lines_refuse(lines, needs, hash);
    memcpy(out, hash, ECHI_CURVES_HASH);
    return ECH_OK;
}

static ech_status read_task(struct echi_lines *lines, struct echi_curve_run *r) {
    static const char needs[] = "behind 'run' comes a line like 'task 0123456789abcdef data 0123456789abcdef round 64' (at most 16777216)";
    long round;
    ECHI_TRY(go_on(lines, "task", needs));
    ECHI_TRY(read_hash(lines, needs, r->task));
    ECHI_TRY(take(lines, "data", needs));
    ECHI_TRY(read_hash(lines, needs, r->data));
    ECHI_TRY(take(lines, "round", needs));
    ECHI_TRY(echi_lines_whole(lines, needs, 1, 1l << 24, &round));
    r->round = (uint32_t)round;
    return echi_lines_end(lines);
}

/* Whole numbers are written as such, and are read as such. */
static const struct bound { const char *name; double most; bool whole; } bounds[] = {
    {"separated", 1, true}, {"staleness", 1e6, true}, {"rounds_apart", 1e6, true},
    {"damping", 1e6, false}, {"drop_older", 1e6, false}, {"weigh_by_time", 1, true}};
enum { BOUNDS = (int)(sizeof bounds / sizeof bounds[0]) };

static ech_status read_policy(struct echi_lines *lines, struct echi_curve_policy *p) {
    static const char needs[] = "behind 'task' comes a line 'policy' with bsp, asp, ssp or gssp";
    double value[BOUNDS];
    int sync = 0;
    ECHI_TRY(go_on(lines, "policy", needs));
    const char *name = echi_lines_word(lines);
    while (name && sync < ECHI_SYNCS && strcmp(name, echi_policy_of((enum echi_sync)sync)->name) != 0) sync++;
    if (!name || sync == ECHI_SYNCS || sync == ECHI_SYNC_LOCAL) return echi_lines_refuse(lines, needs, name);
    for (int i = 0; i < BOUNDS; i++) {
        char of_bound[100];
        long whole = 0;
        snprintf(of_bound, sizeof of_bound, "a policy has '%s' with a %snumber from 0 to %.0f", bounds[i].name,
                 bounds[i].whole ? "whole " : "", bounds[i].most);
        ECHI_TRY(take(lines, bounds[i].name, of_bound));
        if (bounds[i].whole) ECHI_TRY(echi_lines_whole(lines, of_bound, 0, (long)bounds[i].most, &whole));
        else ECHI_TRY(echi_lines_amount(lines, of_bound, no_unit, 0, bounds[i].most, &value[i], NULL));
        if (bounds[i].whole) value[i] = (double)whole;
    }
    *p = (struct echi_curve_policy){.sync = (uint8_t)sync, .separated = (uint8_t)value[0], .staleness = (uint32_t)value[1],
        .rounds_apart = (uint32_t)value[2], .damping = value[3], .drop_older = value[4], .weigh_by_time = (uint8_t)value[5]};
    return echi_lines_end(lines);
}

static ech_status read_behind(struct echi_lines *lines, struct echi_curve_run *r) {
    const bool stale = r->policy.sync != ECHI_SYNC_BSP;
    const char *needs = stale ? "behind 'policy' comes a line 'behind' with rounds from 0.000001 to 1000000"
                              : "behind 'policy' comes a line 'behind', of 0 rounds under bsp";
    ECHI_TRY(go_on(lines, "behind", needs));
    ECHI_TRY(echi_lines_amount(lines, needs, no_unit, stale ? 1e-6 : 0, stale ? BEHIND_MAX : 0, &r->behind, NULL));
    return echi_lines_end(lines);
}

static ech_status read_point(struct echi_lines *lines, struct echi_curve_run *r) {
    static const char needs[] = "a point is written like 'at 32 loss 2.3', with samples above those of the line before and a loss above 0";
    const int i = r->points;
    if (i == ECH_CURVE_MAX) return echi_lines_refuse(lines, "a run has at most 128 points", "at");
    ECHI_TRY(echi_lines_amount(lines, needs, no_unit, 0.5, AT_MAX, &r->at[i], NULL));
    if (i > 0 && !(r->at[i] > r->at[i - 1])) return echi_lines_refuse(lines, needs, "at");
    ECHI_TRY(take(lines, "loss", needs));
    ECHI_TRY(echi_lines_amount(lines, needs, no_unit, ABOVE_0, 1 / ABOVE_0, &r->loss[i], NULL));
    r->points++;
    return echi_lines_end(lines);
}

static ech_status read_lines(struct echi_lines *lines, struct echi_curves *c) {
    static const char *const known[] = {"run", "at"};
    static const char version[] = "a file of loss curves begins with 'curves 1'";
    long number;
    ECHI_TRY(go_on(lines, "curves", version));
    ECHI_TRY(echi_lines_whole(lines, version, VERSION, VERSION, &number));
    ECHI_TRY(echi_lines_end(lines));
    for (const char *word; (word = echi_lines_next(lines));) {
        if (strcmp(word, "at") == 0 && c->count > 0) {
            ECHI_TRY(read_point(lines, &c->run[c->count - 1]));
            continue;
        }
        if (strcmp(word, "run") != 0) return echi_lines_unknown(lines, "line of loss curves", word, known, 2);
        if (c->count == ECHI_CURVES_MAX) return echi_lines_refuse(lines, "loss curves are those of at most 32 runs", word);
        struct echi_curve_run *r = &c->run[c->count++];
        *r = (struct echi_curve_run){.points = 0};
        echi_lines_rest(lines, r->about, sizeof r->about);
        ECHI_TRY(read_task(lines, r));
        ECHI_TRY(read_policy(lines, &r->policy));
        ECHI_TRY(read_behind(lines, r));
    }
    return ECH_OK;
}

ech_status echi_curves_load(const char *path, struct echi_curves *out, struct ech_error *err) {
    struct echi_lines lines;
    if (!echi_file_exists(path)) {
        out->count = 0;
        return ECH_OK;
    }
    struct echi_curves *c = malloc(sizeof *c);
    if (!c) return echi_fail_memory(err, "curves.load", "loss curves");
    c->count = 0;
    ech_status status = echi_lines_open(&lines, path, "curves.load", err);
    if (status == ECH_OK) status = read_lines(&lines, c);
    if (status == ECH_OK) *out = *c;
    echi_lines_close(&lines);
    free(c);
    return status;
}

/* ------------------------------------------------------------- a run more */

static bool alike(const struct echi_curve_run *a, const struct echi_curve_run *b) {
    return strcmp(a->task, b->task) == 0 && strcmp(a->data, b->data) == 0 && echi_curve_policy_same(&a->policy, &b->policy);
}

/* The one that makes room: the oldest of too many that are alike, else the oldest of all. */
static int oldest(const struct echi_curves *c, const struct echi_curve_run *run) {
    int count = 0, first = 0;
    for (int i = c->count - 1; i >= 0; i--) {
        if (!alike(&c->run[i], run)) continue;
        first = i;
        count++;
    }
    return count >= ECHI_CURVES_ALIKE ? first : c->count == ECHI_CURVES_MAX ? 0 : -1;
}

void echi_curves_add(struct echi_curves *c, const struct echi_curve_run *run) {
    const int gone = oldest(c, run);
    if (gone >= 0) memmove(&c->run[gone], &c->run[gone + 1], (size_t)(--c->count - gone) * sizeof c->run[0]);
    c->run[c->count++] = *run;
}
