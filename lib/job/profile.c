/* SPDX-License-Identifier: Apache-2.0
 * Profiles: the built-in one, the text file, and what a model costs that was not measured. The file, all of it required:
 *     machine Intel Xeon ..., AVX-512          (for people)
 *     model lenet5                             (for people)
 *     trunk_operations 357600                  (multiply-adds of a sample forward, in front of the cut)
 *     head_operations 58920                    (behind it; 0: the model has no cut)
 *     parameters 61706
 *     forward 0.36                             (part of the trunk's time)
 *     apply 0.41 ns                            (a parameter; add and refresh alike)
 *     copy 0.14 ns                             (a byte)
 *     message 10 us
 *     look 7.5 us                              (a test sample: read, forward)
 *     step 64 trunk 950 us head 110 us         (a line for each number of samples, ascending, up to 12) */
#include "echi_profile.h"
#include "echi_error.h"
#include "echi_lines.h"
#include "echi_number.h"
#include "echi_os.h"
#include "echi_print.h"

#include <stdio.h>
#include <string.h>

/* What the planner takes follows from the rest: a push of all layers comes out of a socket and is added, and a step has so many
 * messages. */
static void finish(struct echi_profile *p) {
    p->times.exchange = p->parameters * (sizeof(echi_real) * p->copy + p->add);
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

/* ------------------------------------------------------------- built in */

/* Medians of twelve `train --profile-out`, 2026-11-22, gcc 12: processor time, so that what else ran then does not count. */
void echi_profile_builtin(struct echi_profile *out) {
    *out = (struct echi_profile){
        .machine = "one thread of a Sapphire Rapids Xeon, AVX-512", .model = "lenet5",
        .trunk_ops = 357600, .head_ops = 58920, .parameters = 61706,
        .times = {.count = 7, .n = {8, 16, 32, 48, 64, 96, 128},
                  .trunk = {244e-6, 255e-6, 485e-6, 714e-6, 954e-6, 1425e-6, 1888e-6},
                  .head = {44e-6, 49e-6, 77e-6, 111e-6, 144e-6, 222e-6, 296e-6}},
        .forward = 0.41, .apply = 0.47e-9, .add = 0.1e-9, .refresh = 0.14e-9, .copy = 0.14e-9,
        .message = 10e-6, .look = 5.7e-6};
    finish(out);
}

void echi_profile_of(struct echi_profile *p, const char *machine, const struct ech_model *model, const struct echi_times *times) {
    *p = (struct echi_profile){.times = *times, .parameters = (double)model->n_params};
    snprintf(p->machine, sizeof p->machine, "%s", machine);
    snprintf(p->model, sizeof p->model, "%s", model->name);
    const struct work work = work_of(model);
    p->trunk_ops = work.cut ? work.conv : work.conv + work.fc;
    p->head_ops = work.cut ? work.fc : 0;
}

double echi_profile_images(const struct echi_profile *p) { return 64 / echi_times_whole(&p->times, 64); }

/* ---------------------------------------------------------- other models */

bool echi_profile_fit(struct echi_profile *p, const struct ech_model *model) {
    const struct echi_times was = p->times;
    struct echi_profile fit = *p;
    const struct work work = work_of(model);
    echi_profile_of(&fit, p->machine, model, &was);
    const bool same = fit.trunk_ops == p->trunk_ops && fit.head_ops == p->head_ops;
    for (uint32_t i = 0; i < was.count && !same; i++) {
        const double conv = was.trunk[i] / p->trunk_ops, fc = p->head_ops > 0 ? was.head[i] / p->head_ops : conv;
        fit.times.trunk[i] = work.conv * conv + (work.cut ? 0 : work.fc * fc);
        fit.times.head[i] = work.cut ? work.fc * fc : 0;
    }
    if (!same) p->look *= (work.conv + work.fc) / (p->trunk_ops + p->head_ops);
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
    {"forward", offsetof(struct echi_profile, forward), NONE, 0, 1,
     "part of the trunk's time in a step that is reading samples and its forward pass"},
    {"apply", offsetof(struct echi_profile, apply), NANO, 0, 1e-3, "a parameter: gradient to momentum to new weights"},
    {"add", offsetof(struct echi_profile, add), NANO, 0, 1e-3, "a parameter: a gradient into a sum"},
    {"refresh", offsetof(struct echi_profile, refresh), NANO, 0, 1e-3, "a parameter and summand: weights from the states of all groups"},
    {"copy", offsetof(struct echi_profile, copy), NANO, 0, 1e-3, "a byte into a socket, or out of one"},
    {"message", offsetof(struct echi_profile, message), MICRO, 0, 1, "a message besides its bytes, at one end"},
    {"look", offsetof(struct echi_profile, look), MICRO, 0, 1e3, "a sample of the test set, read and forward"},
};
enum { FIELDS = (int)(sizeof fields / sizeof fields[0]), MACHINE = FIELDS, MODEL, STEP, KEYS };

static double *field_of(struct echi_profile *p, const struct field *f) { return (double *)(void *)((char *)p + f->at); }

/* Names of strangers: what would begin a comment or a line is not written. */
static void plain(char *text) {
    for (; *text; text++)
        if (*text == '#' || *text < ' ' || *text > '~') *text = '?';
}

ech_status echi_profile_save(const char *path, const struct echi_profile *profile, struct ech_error *err) {
    char text[4096];
    struct echi_print out = {text, sizeof text, 0};
    struct echi_profile p = *profile;
    struct echi_point point;
    plain(p.machine);
    plain(p.model);
    echi_point_begin(&point);
    echi_print(&out, "# What arithmetic and messages cost on one machine; give it to `echelon sim --profile`.\n");
    echi_print(&out, "machine %s\nmodel %s\n", p.machine, p.model);
    for (const struct field *f = fields; f < fields + FIELDS; f++)
        echi_print(&out, "%s %.6g%s   # %s\n", f->key, *field_of(&p, f) / written[f->unit].factor, written[f->unit].text, f->says);
    for (uint32_t i = 0; i < p.times.count; i++)
        echi_print(&out, "step %u trunk %.6g us head %.6g us\n", p.times.n[i], p.times.trunk[i] * 1e6, p.times.head[i] * 1e6);
    echi_point_end(&point);
    return echi_file_write(path, text, out.len, err);
}

static ech_status read_field(struct echi_lines *lines, const struct field *f, double *out) {
    char needs[160];
    if (f->unit == NONE) snprintf(needs, sizeof needs, "%s needs a number from %g to %g", f->key, f->least, f->most);
    else snprintf(needs, sizeof needs, "%s needs a time up to %g s with its unit, s, ms, us or ns", f->key, f->most);
    return echi_lines_amount(lines, needs, f->unit == NONE ? no_units : time_units, f->least, f->most, out, NULL);
}

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
        ECHI_TRY(echi_lines_amount(lines, needs, time_units, part == 0 ? 1e-12 : 0, 3600, seconds[part], NULL));
    }
    t->n[i] = (uint32_t)n;
    t->count++;
    return ECH_OK;
}

static ech_status read_lines(struct echi_lines *lines, struct echi_profile *p) {
    const char *known[KEYS];
    bool said[KEYS] = {false};
    for (int i = 0; i < FIELDS; i++) known[i] = fields[i].key;
    known[MACHINE] = "machine", known[MODEL] = "model", known[STEP] = "step";
    for (const char *word; (word = echi_lines_next(lines));) {
        int k = 0;
        while (k < KEYS && strcmp(word, known[k]) != 0) k++;
        if (k == KEYS) return echi_lines_unknown(lines, "line of a profile", word, known, KEYS);
        if (said[k] && k != STEP) return echi_lines_refuse(lines, "this was said before", word);
        said[k] = true;
        if (k == STEP) ECHI_TRY(read_step(lines, &p->times));
        else if (k == MACHINE) echi_lines_rest(lines, p->machine, sizeof p->machine);
        else if (k == MODEL) echi_lines_rest(lines, p->model, sizeof p->model);
        else ECHI_TRY(read_field(lines, &fields[k], field_of(p, &fields[k])));
        ECHI_TRY(echi_lines_end(lines));
    }
    for (int k = 0; k < KEYS; k++)
        if (!said[k])
            return echi_fail(lines->err, ECH_E_FORMAT, lines->operation, "%s is not a whole profile: the line '%s' is missing", lines->path,
                             known[k]);
    finish(p);
    return ECH_OK;
}

ech_status echi_profile_load(const char *path, struct echi_profile *out, struct ech_error *err) {
    struct echi_lines lines;
    struct echi_profile p = {0};
    ech_status status = echi_lines_open(&lines, path, "profile.load", err);
    if (status == ECH_OK) status = read_lines(&lines, &p);
    if (status == ECH_OK) *out = p;
    echi_lines_close(&lines);
    return status;
}
