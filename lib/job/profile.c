/* SPDX-License-Identifier: Apache-2.0
 * Profiles: the built-in one, the text file, and what a model costs that was not measured. The file, all of it required but for `block`:
 *     machine Intel Xeon ..., AVX-512          (for people)
 *     model lenet5                             (for people)
 *     trunk_operations 357600                  (multiply-adds of a sample forward, in front of the cut)
 *     head_operations 58920                    (behind it; 0: the model has no cut)
 *     parameters 61706
 *     apply 0.41 ns                            (a parameter; add and refresh alike)
 *     copy 0.14 ns                             (a byte)
 *     message 10 us
 *     look 7.5 us                              (a test sample: read, forward)
 *     trunk_units 2                            (units in front of the cut; a unit: echi_times.h)
 *     block 16                                 (samples that are computed together, as in echi_times.h; may be missing: 1)
 *     step 64 trunk 950 us head 110 us         (a line for each number of samples, ascending, up to 12)
 *     unit 1 at 64 forward 130 us backward 210 us   (a line for each unit at the same one to three of these sizes)
 * Of a trunk, and of a head, the times of units say which part each takes; how much all take is said by `step`. */
#include "echi_profile.h"
#include "echi_error.h"
#include "echi_lines.h"
#include "echi_number.h"
#include "echi_os.h"
#include "echi_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the planner takes follows from the rest: a push of all layers comes out of a socket and is added, and a step has so many
 * messages. */
static void finish(struct echi_profile *p) {
    p->times.exchange = p->parameters * (sizeof(echi_real) * p->copy + p->add);
    p->times.add = p->parameters * p->add;
    p->times.update = p->parameters * p->apply;
    p->times.messages = ECHI_STEP_MESSAGES * p->message;
}

/* Multiply-adds of a sample forward. In front of a cut there are no fully connected layers. */
struct work { double conv, fc; bool cut; };
static struct work work_of(const struct ech_model *model) {
    struct work w = {.cut = echi_model_cut(model) < model->n_layers};
    for (int i = 0; i < model->n_layers; i++)
        *(model->layers[i].op == ECHI_OP_FC ? &w.fc : &w.conv) += (double)echi_layer_operations(&model->layers[i]);
    return w;
}

/* ---------------------------------------------------------------- units */

/* Parts of a trunk's time and of a head's that are forward. */
struct forward { double part[2]; };
#define UNKNOWN (struct forward){{1.0 / 3, 1.0 / 3}}

static struct forward forward_of(const struct echi_times *t) {
    double pass[2][ECHI_PASSES] = {{0}};
    if (t->units == 0) return UNKNOWN;
    for (int u = 0; u < t->units; u++)
        for (int p = 0; p < ECHI_PASSES; p++) pass[u >= t->cut][p] += t->share[t->sizes - 1][u].of[p];
    struct forward f = UNKNOWN;
    for (int side = 0; side < 2; side++) {
        const double all = pass[side][ECHI_FORWARD] + pass[side][ECHI_BACKWARD];
        if (all > 0) f.part[side] = pass[side][ECHI_FORWARD] / all;
    }
    return f;
}

/* Where units were not measured: by multiply-adds, of which a backward pass has twice as many; the model's first layer needs no gradient
 * of its input. One more each, because some layers have none. */
static void units_by_operations(struct echi_times *t, const struct ech_model *model, struct forward forward) {
    struct echi_param_layer layer[ECHI_LAYERS_MAX];
    double work[ECHI_LAYERS_MAX][ECHI_PASSES], all[2][ECHI_PASSES] = {{0}};
    const int cut = echi_model_cut(model);
    t->units = (uint16_t)echi_model_param_layers(model, layer, ECHI_LAYERS_MAX);
    t->cut = 0;
    for (int u = 0; u < t->units; u++) {
        const bool head = layer[u].layer >= cut;
        t->cut = (uint16_t)(t->cut + !head);
        work[u][ECHI_FORWARD] = 1 + (double)echi_layer_operations(&model->layers[layer[u].layer]);
        work[u][ECHI_BACKWARD] = work[u][ECHI_FORWARD] * (u > 0 ? 2 : 1);
        for (int p = 0; p < ECHI_PASSES; p++) all[head][p] += work[u][p];
    }
    for (int u = 0; u < t->units; u++) {
        const int side = u >= t->cut;
        work[u][ECHI_FORWARD] *= forward.part[side] / all[side][ECHI_FORWARD];
        work[u][ECHI_BACKWARD] *= (1 - forward.part[side]) / all[side][ECHI_BACKWARD];
    }
    t->sizes = 1;
    t->size[0] = 0;
    echi_times_share(t, 0, (const double (*)[ECHI_PASSES])work);
}

/* ------------------------------------------------------------- built in */

/* Of steps of 8, 48 and 128 samples, forward and backward: only how they divide a step counts. */
static const double lenet5_units[ECHI_UNIT_SIZES][5][ECHI_PASSES] = {
    {{52.1, 27.6}, {45.9, 119.4}, {12.8, 20.9}, {4.14, 8.87}, {1.98, 3.93}},
    {{211.9, 129.4}, {181.5, 431.7}, {48.7, 73.3}, {10.4, 24.1}, {2.58, 7.01}},
    {{611.5, 271.6}, {551.2, 1137}, {116.8, 201.5}, {25.2, 60.4}, {5.14, 16.2}},
};

/* Medians of twelve `train --profile-out`, 2026-11-22, gcc 12: processor time, so that what else ran then does not count. Units: of seven,
 * 2026-11-23, on an EPYC with AVX-512. */
void echi_profile_builtin(struct echi_profile *out) {
    *out = (struct echi_profile){
        .machine = "one thread of a Sapphire Rapids Xeon, AVX-512", .model = "lenet5",
        .trunk_ops = 357600, .head_ops = 58920, .parameters = 61706,
        .times = {.count = 7, .n = {8, 16, 32, 48, 64, 96, 128}, .block = 16,
                  .trunk = {244e-6, 255e-6, 485e-6, 714e-6, 954e-6, 1425e-6, 1888e-6},
                  .head = {44e-6, 49e-6, 77e-6, 111e-6, 144e-6, 222e-6, 296e-6},
                  .units = 5, .cut = 2, .sizes = ECHI_UNIT_SIZES, .size = {0, 3, 6}},
        .apply = 0.47e-9, .add = 0.1e-9, .refresh = 0.14e-9, .copy = 0.14e-9,
        .message = 10e-6, .eval = 5.7e-6};
    for (int i = 0; i < ECHI_UNIT_SIZES; i++) echi_times_share(&out->times, i, lenet5_units[i]);
    finish(out);
}

void echi_profile_of(struct echi_profile *p, const char *machine, const struct ech_model *model, const struct echi_times *times) {
    *p = (struct echi_profile){.times = *times, .parameters = (double)model->n_params};
    snprintf(p->machine, sizeof p->machine, "%s", machine);
    snprintf(p->model, sizeof p->model, "%s", model->name);
    const struct work work = work_of(model);
    p->trunk_ops = work.cut ? work.conv : work.conv + work.fc;
    p->head_ops = work.cut ? work.fc : 0;
    if (p->times.units == 0) units_by_operations(&p->times, model, UNKNOWN);
    struct echi_times usual = {.units = 0};
    units_by_operations(&usual, model, UNKNOWN);
    echi_times_recut(&p->times, usual.cut);   /* a run may have measured at another cut */
}

void echi_profile_steps(struct echi_profile *p, const struct echi_times *times, double parameters) {
    p->times = *times;
    p->parameters = parameters;
    finish(p);
}

double echi_profile_images(const struct echi_profile *p) { return 64 / echi_times_whole(&p->times, 64); }

/* ---------------------------------------------------------- other models */

bool echi_profile_fit(struct echi_profile *p, const struct ech_model *model) {
    const struct echi_times was = p->times;
    struct echi_profile fit = *p;
    const struct work work = work_of(model);
    echi_profile_of(&fit, p->machine, model, &was);
    struct echi_times of_model = was;
    units_by_operations(&of_model, model, forward_of(&was));
    const bool same = fit.trunk_ops == p->trunk_ops && fit.head_ops == p->head_ops && of_model.units == was.units &&
                      of_model.cut == was.cut;
    if (!same) fit.times = of_model;
    for (uint32_t i = 0; i < was.count && !same; i++) {
        const double conv = was.trunk[i] / p->trunk_ops, fc = p->head_ops > 0 ? was.head[i] / p->head_ops : conv;
        fit.times.trunk[i] = work.conv * conv + (work.cut ? 0 : work.fc * fc);
        fit.times.head[i] = work.cut ? work.fc * fc : 0;
    }
    if (!same) p->eval *= (work.conv + work.fc) / (p->trunk_ops + p->head_ops);
    p->times = fit.times;
    p->trunk_ops = fit.trunk_ops;
    p->head_ops = fit.head_ops;
    p->parameters = fit.parameters;
    memcpy(p->model, fit.model, sizeof p->model);
    finish(p);
    return !same;
}

/* ------------------------------------------------------------- the file */

enum unit { NONE, MICRO, NANO };
static const struct { const char *text; double factor; } written[] = {[NONE] = {"", 1}, [MICRO] = {" us", 1e-6}, [NANO] = {" ns", 1e-9}};
static const struct echi_unit no_units[] = {{"", 1}, {0}};
static const struct echi_unit time_units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {0}};

static const struct field {
    const char *key;
    size_t at;
    enum unit unit;
    double least, most;
    const char *says;
} fields[] = {
    {"trunk_operations", offsetof(struct echi_profile, trunk_ops), NONE, 1, 1e18, "multiply-adds of a sample forward, in front of the cut"},
    {"head_operations", offsetof(struct echi_profile, head_ops), NONE, 0, 1e18, "and behind it"},
    {"parameters", offsetof(struct echi_profile, parameters), NONE, 1, 1e10, "floats"},
    {"apply", offsetof(struct echi_profile, apply), NANO, 0, 1e-3, "a parameter: gradient to momentum to new weights"},
    {"add", offsetof(struct echi_profile, add), NANO, 0, 1e-3, "a parameter: a gradient into a sum"},
    {"refresh", offsetof(struct echi_profile, refresh), NANO, 0, 1e-3, "a parameter and summand: weights from the states of all groups"},
    {"copy", offsetof(struct echi_profile, copy), NANO, 0, 1e-3, "a byte into a socket, or out of one"},
    {"message", offsetof(struct echi_profile, message), MICRO, 0, 1, "a message besides its bytes, at one end"},
    {"look", offsetof(struct echi_profile, eval), MICRO, 0, 1e3, "a sample of the test set, read and forward"},
};
enum { FIELDS = (int)(sizeof fields / sizeof fields[0]), MACHINE = FIELDS, MODEL, TRUNK_UNITS, STEP, UNIT, BLOCK, KEYS };

static double *field_of(struct echi_profile *p, const struct field *f) { return (double *)(void *)((char *)p + f->at); }

#define HEAD_BYTES 4096   /* of all lines but those of units */
#define UNIT_BYTES 96     /* of one of these, at most */

/* What is read back, so that a second file is like the first. */
static double as_written(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    echi_parse_real(text, &value);
    return value;
}

static void print(struct echi_print *out, struct echi_profile *p) {
    const struct echi_times *t = &p->times;
    echi_print(out, "# What arithmetic and messages cost on one machine; give it to `echelon sim --profile`.\n");
    echi_print(out, "machine %s\nmodel %s\n", p->machine, p->model);
    for (const struct field *f = fields; f < fields + FIELDS; f++)
        echi_print(out, "%s %.6g%s   # %s\n", f->key, *field_of(p, f) / written[f->unit].factor, written[f->unit].text, f->says);
    echi_print(out, "trunk_units %d   # units in front of the cut: layers with parameters, each with those behind it up to the next\n",
               t->cut);
    if (t->block > 1) echi_print(out, "block %d   # samples that are computed together\n", t->block);
    for (uint32_t i = 0; i < t->count; i++)
        echi_print(out, "step %u trunk %.6g us head %.6g us\n", t->n[i], t->trunk[i] * 1e6, t->head[i] * 1e6);
    for (int i = 0; i < t->sizes; i++)
        for (int u = 0; u < t->units; u++) {
            const double a_share = as_written((u < t->cut ? t->trunk : t->head)[t->size[i]] * 1e6) / ECHI_SHARE_ALL;
            echi_print(out, "unit %d at %u forward %.6g us backward %.6g us\n", u + 1, t->n[t->size[i]],
                       t->share[i][u].of[ECHI_FORWARD] * a_share, t->share[i][u].of[ECHI_BACKWARD] * a_share);
        }
}

ech_status echi_profile_save(const char *path, const struct echi_profile *profile, struct ech_error *err) {
    struct echi_profile p = *profile;
    const size_t cap = HEAD_BYTES + (size_t)p.times.sizes * p.times.units * UNIT_BYTES;
    struct echi_print out = {malloc(cap), cap, 0};
    struct echi_point point;
    if (!out.buf) return echi_fail_memory(err, "profile.save", "a profile");
    echi_lines_plain(p.machine);
    echi_lines_plain(p.model);
    echi_point_begin(&point);
    print(&out, &p);
    echi_point_end(&point);
    const ech_status status = echi_file_write(path, out.buf, out.len, err);
    free(out.buf);
    return status;
}

static ech_status read_field(struct echi_lines *lines, const struct field *f, double *out) {
    char needs[160];
    if (f->unit == NONE) snprintf(needs, sizeof needs, "%s needs a number from %g to %g", f->key, f->least, f->most);
    else snprintf(needs, sizeof needs, "%s needs a time up to %g s with its unit, s, ms, us or ns", f->key, f->most);
    return echi_lines_amount(lines, needs, f->unit == NONE ? no_units : time_units, f->least, f->most, out, NULL);
}

#define TIME_LEAST 1e-12

static ech_status read_step(struct echi_lines *lines, struct echi_times *t) {
    long n;
    const uint32_t i = t->count, before = i ? t->n[i - 1] : 0;
    if (i == ECHI_TIMES_MAX) return echi_lines_refuse(lines, "a profile has at most 12 step lines", "step");
    static const char samples[] = "step needs a number of samples, from 1 to 65536 and above that of the line before";
    ECHI_TRY(echi_lines_whole(lines, samples, (long)before + 1, 65536, &n));
    static const char *const word[] = {"trunk", "head"};
    static const char needs[] = "a step is written like 'step 64 trunk 950 us head 110 us', with times up to 3600 s, the trunk's above 0";
    double *seconds[] = {&t->trunk[i], &t->head[i]};
    for (int part = 0; part < 2; part++) {
        if (!echi_lines_take(lines, word[part])) return echi_lines_refuse(lines, needs, echi_lines_word(lines));
        ECHI_TRY(echi_lines_amount(lines, needs, time_units, part == 0 ? TIME_LEAST : 0, 3600, seconds[part], NULL));
    }
    t->n[i] = (uint32_t)n;
    t->count++;
    return ECH_OK;
}

/* What unit lines said: at up to three sizes, in seconds. */
struct units {
    int sizes, count[ECHI_UNIT_SIZES];
    uint32_t n[ECHI_UNIT_SIZES];
    double seconds[ECHI_UNIT_SIZES][ECHI_UNITS_MAX][ECHI_PASSES];
};

/* Units follow each other, and sizes. */
static ech_status read_unit(struct echi_lines *lines, struct units *units) {
    static const char needs[] = "a unit is written like 'unit 1 at 64 forward 130 us backward 210 us', with times up to 3600 s";
    static const char *const word[] = {"forward", "backward"};
    long number, n;
    ECHI_TRY(echi_lines_whole(lines, "unit needs its number, from 1 to 256", 1, ECHI_UNITS_MAX, &number));
    if (!echi_lines_take(lines, "at")) return echi_lines_refuse(lines, needs, echi_lines_word(lines));
    ECHI_TRY(echi_lines_whole(lines, "unit needs behind its 'at' a number of samples, from 1 to 65536", 1, 65536, &n));
    const int last = units->sizes - 1;
    if (last < 0 || (uint32_t)n != units->n[last]) {
        if (units->sizes == ECHI_UNIT_SIZES)
            return echi_lines_refuse(lines, "a profile has units at three numbers of samples at most", "unit");
        if (last >= 0 && (uint32_t)n < units->n[last])
            return echi_lines_refuse(lines, "units of fewer samples come before those of more", "unit");
        units->n[units->sizes++] = (uint32_t)n;
    }
    const int i = units->sizes - 1;
    if (number != units->count[i] + 1)
        return echi_lines_refuse(lines, "the units of one number of samples are numbered from 1, and follow each other", "unit");
    for (int pass = 0; pass < ECHI_PASSES; pass++) {
        if (!echi_lines_take(lines, word[pass])) return echi_lines_refuse(lines, needs, echi_lines_word(lines));
        ECHI_TRY(echi_lines_amount(lines, needs, time_units, 0, 3600, &units->seconds[i][number - 1][pass], NULL));
    }
    units->count[i]++;
    return ECH_OK;
}

/* The reason why the units do not fit the steps; NULL: they do, and are in *t. */
static const char *fit_units(struct echi_times *t, long trunk_units, const struct units *units) {
    t->units = (uint16_t)units->count[0];
    t->cut = (uint16_t)trunk_units;
    t->sizes = (uint8_t)units->sizes;
    if (t->cut > t->units) return "it has fewer units than trunk_units says";
    for (int i = 0; i < units->sizes; i++) {
        uint32_t at = 0;
        while (at < t->count && t->n[at] != units->n[i]) at++;
        if (at == t->count) return "it has units at a number of samples of which no step is written";
        if (units->count[i] != t->units) return "it has not the same units at all numbers of samples";
        t->size[i] = (uint8_t)at;
        if (t->cut < t->units && t->head[at] < TIME_LEAST) return "it has units behind the cut, and a step whose head takes no time";
        if (!echi_times_share(t, i, (const double (*)[ECHI_PASSES])units->seconds[i])) return "its units take no time";
    }
    return NULL;
}

static ech_status read_lines(struct echi_lines *lines, struct echi_profile *p, struct units *units) {
    const char *known[KEYS];
    bool said[KEYS] = {false};
    long trunk_units = 0, block = 1;
    for (int i = 0; i < FIELDS; i++) known[i] = fields[i].key;
    known[MACHINE] = "machine", known[MODEL] = "model", known[TRUNK_UNITS] = "trunk_units", known[STEP] = "step", known[UNIT] = "unit";
    known[BLOCK] = "block";
    for (const char *word; (word = echi_lines_next(lines));) {
        int k = 0;
        while (k < KEYS && strcmp(word, known[k]) != 0) k++;
        if (strcmp(word, "forward") == 0)
            return echi_lines_refuse(lines, "this profile was written before profiles had times per unit: measure again, with "
                                            "`echelon train --profile-out`", word);
        if (k == KEYS) return echi_lines_unknown(lines, "line of a profile", word, known, KEYS);
        if (said[k] && k != STEP && k != UNIT) return echi_lines_refuse(lines, "this was said before", word);
        said[k] = true;
        if (k == STEP) ECHI_TRY(read_step(lines, &p->times));
        else if (k == UNIT) ECHI_TRY(read_unit(lines, units));
        else if (k == TRUNK_UNITS)
            ECHI_TRY(echi_lines_whole(lines, "trunk_units needs a number from 1 to 256", 1, ECHI_UNITS_MAX, &trunk_units));
        else if (k == BLOCK) ECHI_TRY(echi_lines_whole(lines, "block needs a number of samples, from 1 to 65535", 1, 65535, &block));
        else if (k == MACHINE) echi_lines_rest(lines, p->machine, sizeof p->machine);
        else if (k == MODEL) echi_lines_rest(lines, p->model, sizeof p->model);
        else ECHI_TRY(read_field(lines, &fields[k], field_of(p, &fields[k])));
        ECHI_TRY(echi_lines_end(lines));
    }
    for (int k = 0; k < KEYS; k++)
        if (!said[k] && k != BLOCK)
            return echi_fail(lines->err, ECH_E_FORMAT, lines->operation, "%s is not a whole profile: the line '%s' is missing", lines->path,
                             known[k]);
    p->times.block = (uint16_t)block;
    const char *reason = fit_units(&p->times, trunk_units, units);
    if (reason) return echi_fail(lines->err, ECH_E_FORMAT, lines->operation, "%s is not a whole profile: %s", lines->path, reason);
    finish(p);
    return ECH_OK;
}

ech_status echi_profile_load(const char *path, struct echi_profile *out, struct ech_error *err) {
    struct echi_lines lines;
    struct echi_profile p = {0};
    struct units *units = calloc(1, sizeof *units);
    if (!units) return echi_fail_memory(err, "profile.load", "a profile");
    ech_status status = echi_lines_open(&lines, path, "profile.load", err);
    if (status == ECH_OK) status = read_lines(&lines, &p, units);
    if (status == ECH_OK) *out = p;
    echi_lines_close(&lines);
    free(units);
    return status;
}
