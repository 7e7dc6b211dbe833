/* SPDX-License-Identifier: Apache-2.0
 * Recordings for other programs: a trace of all nodes on one clock, the times of layers, a step as a time line. */
#include "echelon_dev.h"
#include "echi_recordings.h"
#include "echi_error.h"
#include "echi_number.h"
#include "echi_sync.h"
#include "echi_time_line.h"

#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------- a trace */

static ech_status put(void *user, const void *bytes, size_t len, struct ech_error *err) {
    struct echi_file *file = user;
    const ech_status status = echi_file_put(file, bytes, len, err);
    if (status != ECH_OK) file->fd = -1;   /* nothing is left of it */
    return status;
}

static ech_status write_trace(struct echi_recordings *f, const struct echi_clock *clock, const char *path, struct ech_error *err) {
    struct echi_file file;
    ECHI_TRY(echi_file_begin(&file, path, err));
    const ech_status status = echi_recordings_trace(f->recording, f->world, clock, &(struct echi_sink){put, &file}, err);
    if (status == ECH_OK) return echi_file_commit(&file, err);
    if (file.fd >= 0) echi_file_abandon(&file);
    return status;
}

/* All recordings, and their clocks, which are the caller's to free, also after a failure. */
static ech_status load_clocks(struct echi_recordings *f, const char *dir, struct echi_clock **out, struct ech_error *err) {
    ECHI_TRY(echi_recordings_load_all(f, dir, err));
    *out = calloc((size_t)f->world, sizeof **out);
    return *out ? echi_recordings_clocks(f->recording, f->world, *out, err) : echi_fail_memory(err, "replay.trace", "the clocks");
}

static struct ech_clock public_clock(const struct echi_clock *c) {
    const double error = echi_clock_error(c);
    return (struct ech_clock){.rank = c->rank, .through = c->through, .offset = (double)(c->first - c->zero) * 1e-9,
                              .drift = echi_clock_drift(c), .error = error < 0 ? -1 : error * 1e-9, .misses = c->misses * 1e-9};
}

ech_status ech_recording_trace(const char *dir, const char *path, void (*told)(void *user, const struct ech_clock *clock), void *user,
                               struct ech_error *err) {
    struct echi_recordings *f = NULL;
    struct echi_clock *clock = NULL;
    if (!path) return echi_fail(err, ECH_E_ARGUMENT, "replay.trace", "no file was given");
    ECHI_TRY(echi_recordings_make(dir, &f, err));
    ech_status status = load_clocks(f, dir, &clock, err);
    if (status == ECH_OK) status = write_trace(f, clock, path, err);
    for (int r = 0; status == ECH_OK && told && r < f->world; r++) {
        const struct ech_clock one = public_clock(&clock[r]);
        told(user, &one);
    }
    free(clock);
    echi_recordings_discard(f);
    return status;
}

/* ---------------------------------------------------------------- the layers */

/* Too large for the stack of a thread. */
struct layers {
    struct echi_record record;
    struct echi_plan plan;
    struct echi_times times[ECHI_WORLD_MAX];
    struct echi_layer_table table;
    char text[65536];
};

static ech_status layers_of(const struct echi_recording *zero, struct echi_recording *r, struct layers *l, const char *path,
                            struct ech_error *err) {
    const int rank = r->about.rank;
    echi_recording_rewind(r);
    ECHI_TRY(echi_recording_layers(r, &l->record, &zero->about.request.layers, &l->times[rank], &l->table, err));
    if (l->table.count == 0 || l->table.steps == 0)
        return echi_fail_at(err, ECH_E_UNSUPPORTED, "replay.layers", rank, NULL,
                            "rank %d has recorded no step: give a rank that trains, in a run that has begun (--rank)", rank);
    struct echi_point point;
    echi_point_begin(&point);
    const size_t len = echi_layer_table_text(&l->table, &r->about, l->text, sizeof l->text);
    echi_point_end(&point);
    if (len >= sizeof l->text) return echi_fail(err, ECH_E_INTERNAL, "replay.layers", "the layers do not fit into their buffer");
    return echi_file_write(path, l->text, len, err);
}

/* The first that the plan gives samples to. */
static int first_trainer(const struct echi_plan *p) {
    int rank = 0;
    while (rank < p->world && p->n[rank] == 0) rank++;
    return rank < p->world ? rank : 0;
}

ech_status ech_recording_layers(const char *dir, int rank, const char *path, int *out_rank, struct ech_error *err) {
    struct echi_recordings *f = NULL;
    if (!path || rank < -1 || rank >= ECHI_WORLD_MAX)
        return echi_fail(err, ECH_E_ARGUMENT, "replay.layers", path ? "there is no rank %d" : "no file was given for rank %d", rank);
    struct layers *l = calloc(1, sizeof *l);
    if (!l) return echi_fail_memory(err, "replay.layers", "the layers");
    ech_status status;
    ECHI_TRY_GOTO(echi_recordings_make(dir, &f, err), out);
    ECHI_TRY_GOTO(echi_recordings_load(f, dir, 0, err), out);
    struct echi_recording *zero = &f->recording[0];
    if (rank >= zero->about.world) {
        status = echi_fail(err, ECH_E_ARGUMENT, "replay.layers", "there is no rank %d in a run of %d", rank, zero->about.world);
        goto out;
    }
    const bool planned = echi_recording_planned(zero, &l->record, &l->plan, l->times);
    if (rank < 0) rank = planned ? first_trainer(&l->plan) : 0;
    if (rank > 0) ECHI_TRY_GOTO(echi_recordings_load(f, dir, rank, err), out);
    status = layers_of(zero, &f->recording[rank], l, path, err);
    if (status == ECH_OK && out_rank) *out_rank = rank;
out:
    echi_recordings_discard(f);
    free(l);
    return status;
}

/* ------------------------------------------------------------------- a step */

static ech_status line_of(struct echi_recordings *f, const struct echi_clock *clock, struct layers *l, struct echi_timeline *line,
                          struct ech_timeline *out, struct ech_report *report, struct ech_error *err) {
    const struct echi_about *about = &f->recording[0].about;
    struct echi_recorded_step step;
    echi_recording_rewind(&f->recording[0]);
    if (!echi_recording_planned(&f->recording[0], &l->record, &l->plan, l->times))
        return echi_fail(err, ECH_E_UNSUPPORTED, "replay.line", "rank 0 has recorded no plan: the run ended before it had one");
    ECHI_TRY(echi_recordings_line(f->recording, f->world, clock, &l->plan, l->times, line, &step, err));
    echi_time_line_show(line, out);
    out->step = step.step;
    out->steps = step.steps;
    *report = (struct ech_report){.world = f->world};
    snprintf(report->model, sizeof report->model, "%s", about->model);
    snprintf(report->data, sizeof report->data, "%s", about->data);
    snprintf(report->version, sizeof report->version, "%s", about->version);
    snprintf(report->sync, sizeof report->sync, "%s", echi_policy_of((enum echi_sync)l->plan.sync)->name);
    echi_time_line_path(line, report);
    return ECH_OK;
}

ech_status ech_recording_timeline(const char *dir, struct ech_timeline *out, struct ech_report *out_report, struct ech_error *err) {
    struct echi_recordings *f = NULL;
    struct echi_clock *clock = NULL;
    struct echi_timeline *line = NULL;
    struct layers *l = NULL;
    ECHI_TRY(echi_recordings_make(dir, &f, err));
    ech_status status = load_clocks(f, dir, &clock, err);
    if (status == ECH_OK) {
        l = calloc(1, sizeof *l);
        line = echi_time_line_make(f->world);
        status = l && line ? line_of(f, clock, l, line, out, out_report, err) : echi_fail_memory(err, "replay.line", "the time line");
    }
    free(line);
    free(l);
    free(clock);
    echi_recordings_discard(f);
    return status;
}
