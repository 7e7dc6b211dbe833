/* SPDX-License-Identifier: Apache-2.0
 * A recorded run replayed whole: refuses what cannot come out the same here, replays the roles of every node,
 * then the arithmetic of all. */
#include "echelon_dev.h"
#include "echi_recordings.h"
#include "echi_what_if.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ech_status ech_recording_about(const char *dir, struct ech_recording *out, struct ech_error *err) {
    struct echi_recordings *f = NULL;
    ECHI_TRY(echi_recordings_make(dir, &f, err));
    ech_status status = echi_recordings_load(f, dir, 0, err);
    const struct echi_about *a = &f->recording[0].about;
    if (status == ECH_OK) {
        *out = (struct ech_recording){.world = a->world, .seed = a->seed, .session = a->session};
        memcpy(out->version, a->version, sizeof out->version);
        memcpy(out->model, a->model, sizeof out->model);
        memcpy(out->data, a->data, sizeof out->data);
    }
    echi_recordings_discard(f);
    return status;
}

/* ------------------------------------------- can it come out the same here? */

static const char *bf16_name(uint8_t kind) {
    return kind == ECHI_CPU_BF16_AMX ? "AMX-BF16" : kind == ECHI_CPU_BF16_DOT ? "AVX512-BF16" : "nothing";
}

static ech_status comparable(const struct echi_recordings *f, const struct ech_replay_options *o, const struct echi_job *job,
                             struct ech_error *err) {
    char model[ECHI_JOB_WORD], data[ECHI_JOB_WORD], was[16], is[16];
    const struct echi_about *first = &f->recording[0].about;
    if (first->session)
        return echi_fail(err, ECH_E_UNSUPPORTED, "replay",
                         "this is the recording of a session, whose arithmetic is the program's own: "
                         "only its roles can be replayed (--roles)");
    if (first->goal.resumed)
        return echi_fail(err, ECH_E_UNSUPPORTED, "replay",
                         "this run went on from a checkpoint, which the recording does not hold: only its roles can be replayed (--roles)");
    echi_job_words(job, model, data);
    if (strcmp(first->model_hash, model) != 0)
        return echi_recordings_differ(err, -1, "the model", first->model_hash, model, "give the recorded one with --model");
    if (strcmp(first->data_hash, data) != 0)
        return echi_recordings_differ(err, -1, "the data", first->data_hash, data, "give the recorded set with --data");
    snprintf(was, sizeof was, "%d bits", 8 * first->real_bytes);
    snprintf(is, sizeof is, "%d bits", 8 * (int)sizeof(echi_real));
    if (strcmp(was, is) != 0)
        return echi_recordings_differ(err, -1, "the size of a number", was, is, "replay it with the archive that recorded it");
    for (int r = 0; r < f->world; r++) {
        const struct echi_about *a = &f->recording[r].about;
        snprintf(was, sizeof was, "%u", a->threads);
        snprintf(is, sizeof is, "%d", o->threads);
        if (o->threads > 0 && strcmp(was, is) != 0)
            return echi_recordings_differ(err, r, "the number of threads", was, is, "leave --threads out");
        enum echi_cpu_level level;
        if (!echi_cpu_level_named(a->isa, &level) || level > echi_cpu_level())
            return echi_recordings_differ(err, r, "the instruction set", a->isa, echi_cpu_level_name(echi_cpu_level()),
                                          "replay it on a machine like that one, or only its roles (--roles)");
        if (a->rounded > 0 && a->rounded < ECHI_RECORDED_BF16_CARD && a->rounded != (uint8_t)echi_cpu_bf16())
            return echi_recordings_differ(err, r, "what bf16 products are made by", bf16_name(a->rounded),
                                          bf16_name((uint8_t)echi_cpu_bf16()),
                                          "replay it on a machine like that one, or only its roles (--roles)");
    }
    return ECH_OK;
}

static ech_status complete(struct echi_recordings *f, struct ech_error *err) {
    if (f->recording[0].ended) return ECH_OK;
    return echi_fail_at(err, ECH_E_FORMAT, "replay", 0, NULL,
                        "'%.200s' has no end: rank 0 was killed, or its disk was full; only roles can be replayed (--roles)", f->name[0]);
}

static ech_status first_weights(const struct echi_about *a, const struct ech_replay_options *o, float *params, struct ech_error *err) {
    const char *init = o->init ? o->init : a->init;
    uint8_t hash[32];
    if (init[0]) ECHI_TRY(echi_safetensors_load(init, o->model, params, NULL, NULL, err));
    else echi_model_init(o->model, a->seed, params);
    echi_weights_hash(params, o->model->n_params, hash);
    if (memcmp(hash, a->initial, sizeof hash) == 0) return ECH_OK;
    return echi_fail(err, ECH_E_MISMATCH, "replay",
                     "the initial weights %s%.200s are not those that the run began with: give their file with --init",
                     init[0] ? "in " : "of the seed", init);
}

/* ------------------------------------------------------------------- replay */

static ech_status replay_roles(struct echi_recordings *f, struct ech_replay_report *report, struct ech_error *err) {
    for (int r = 0; r < f->world; r++) {
        uint64_t events = 0, actions = 0;
        ech_status status = echi_replay_roles(&f->recording[r], &events, &actions, err);
        report->events += events;
        report->actions += actions;
        if (status != ECH_OK) return status;
        report->unended += !f->recording[r].ended;
    }
    return ECH_OK;
}

static ech_status replay_arithmetic(struct echi_recordings *f, const struct ech_replay_options *o, const struct echi_job *job,
                                    float *params, struct ech_replay_report *report, struct ech_error *err) {
    ECHI_TRY(complete(f, err));
    ECHI_TRY(first_weights(&f->recording[0].about, o, params, err));
    ECHI_TRY(echi_recompute(f->recording, f->world, job, params, &report->tasks, &report->payloads, err));
    const struct echi_recorded_end *end = &f->recording[0].end;
    uint8_t hash[32];
    echi_weights_hash(params, job->n_params, hash);
    echi_sha256_hex(hash, report->weights);
    if (end->has_weights && memcmp(hash, end->weights, sizeof hash) != 0)
        return echi_fail(err, ECH_E_MISMATCH, "replay",
                         "the trained weights are not those of the run (%.16s...), though every loss is: "
                         "the recording misses something that counts", report->weights);
    return ECH_OK;
}

ech_status ech_replay(const struct ech_replay_options *o, struct ech_replay_report *out_report, struct ech_error *err) {
    struct echi_recordings *f = NULL;
    struct ech_replay_report report = {0};
    struct echi_job *job = NULL;
    float *weights = NULL;
    const int64_t began = echi_now();
    if (!o || !o->model != !o->data)
        return echi_fail(err, ECH_E_ARGUMENT, "replay", "ech_replay needs options, and both a model and data or neither");
    ECHI_TRY(echi_recordings_make(o->dir, &f, err));
    ech_status status;
    ECHI_TRY_GOTO(echi_recordings_load_all(f, o->dir, err), out);
    report.world = f->world;
    if (o->model) {
        struct ech_config config;
        ech_config_init(&config);
        config.seed = f->recording[0].about.seed;
        config.no_shuffle = !f->recording[0].about.shuffle;
        strcpy(config.augment, f->recording[0].about.augment ? "crop-flip" : "off");
        config.deterministic = f->recording[0].about.deterministic;
        config.winograd = f->recording[0].about.winograd;
        const uint8_t rounded = f->recording[0].about.rounded;
        strcpy(config.precision, rounded == ECHI_RECORDED_TF32 ? "tf32" : rounded > 0 ? "bf16" : "fp32");
        job = calloc(1, sizeof *job);
        weights = calloc(o->model->n_params ? o->model->n_params : 1, sizeof *weights);
        if (!job || !weights) {
            status = echi_fail_memory(err, "replay", "the weights");
            goto out;
        }
        ECHI_TRY_GOTO(echi_job_make(o->model, o->data, &config, job, err), out);
        ECHI_TRY_GOTO(comparable(f, o, job, err), out);
    }
    ECHI_TRY_GOTO(replay_roles(f, &report, err), out);
    if (o->model) ECHI_TRY_GOTO(replay_arithmetic(f, o, job, weights, &report, err), out);
    if (o->model && o->save) status = echi_safetensors_save(o->save, o->model, weights, err);
out:
    report.seconds = (double)(echi_now() - began) * 1e-9;
    if (out_report) *out_report = report;
    free(weights);
    free(job);
    echi_recordings_discard(f);
    return status;
}

/* --------------------------------------------------------------------- show */

struct shown { void (*line)(void *user, const char *text); void *user; };

/* Names and sentences come from the file: none of their bytes commands a terminal. */
static void show_line(const struct shown *to, char *text) {
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    to->line(to->user, text);
}

static ech_status show_one(struct echi_recording *r, const void *shown, struct ech_error *err) {
    const struct shown *to = shown;
    const struct echi_about *a = &r->about;
    struct echi_record *record = malloc(sizeof *record);
    char text[1024], words[512];
    int64_t began = 0;
    ech_status status;
    if (!record) return echi_fail_memory(err, "replay.show", "a record");
    snprintf(text, sizeof text, "rank %d of %d: %s on %s, echelon %s, %s (%s, %s, %u thread%s), seed %llu", a->rank, a->world, a->model,
             a->data, a->version, a->device, a->device_name, a->isa, a->threads, a->threads == 1 ? "" : "s", (unsigned long long)a->seed);
    show_line(to, text);
    while ((status = echi_recording_read(r, record, err)) == ECH_OK && record->kind != 0) {
        if (record->kind == ECHI_RECORD_SETUP) {
            const struct echi_plan *p = &record->setup.setup.plan;
            snprintf(text, sizeof text, "the plan is here: %s, %d groups, B %u; kernels: %.700s",
                     echi_policy_of((enum echi_sync)p->sync)->name, p->n_groups, p->round,
                     record->setup.kernels[0] ? record->setup.kernels : "the program's own");
            show_line(to, text);
        }
        if (record->kind == ECHI_RECORD_END) {
            snprintf(text, sizeof text, "the end: status %u (%s), %llu events", r->end.status, ech_status_text((ech_status)r->end.status),
                     (unsigned long long)r->end.events);
            show_line(to, text);
        }
        if (record->kind != ECHI_RECORD_EVENT) continue;
        const struct echi_traced *t = &record->event;
        if (began == 0) began = t->event.now;
        echi_event_text(t, words, sizeof words);
        snprintf(text, sizeof text, "%11.6f  %llu  %-11s  %s", (double)(t->event.now - began) * 1e-9, (unsigned long long)r->events,
                 echi_role_name(t->role), words);
        show_line(to, text);
        struct echi_reader at = echi_reader_over(t->actions, t->actions_len);
        struct echi_traced_action action;
        while (echi_trace_next_action(&at, &action)) {
            echi_action_text(&action, words, sizeof words);
            snprintf(text, sizeof text, "                  -> %s", words);
            show_line(to, text);
        }
    }
    if (status == ECH_OK && !r->ended) to->line(to->user, "no end: the node was killed here or later, or its disk was full");
    free(record);
    return status;
}

/* Each recording, or that of one rank (-1: of all). */
typedef ech_status (*each_one)(struct echi_recording *r, const void *to, struct ech_error *err);
static ech_status go_through(const char *dir, int rank, each_one each, const void *to, struct ech_error *err) {
    struct echi_recordings *f = NULL;
    if (rank < -1 || rank >= ECHI_WORLD_MAX) return echi_fail(err, ECH_E_ARGUMENT, "replay.show", "there is no rank %d", rank);
    ECHI_TRY(echi_recordings_make(dir, &f, err));
    ech_status status = rank < 0 ? echi_recordings_load_all(f, dir, err) : echi_recordings_load(f, dir, rank, err);
    for (int r = 0; status == ECH_OK && r < (rank < 0 ? f->world : ECHI_WORLD_MAX); r++)
        if (rank < 0 || r == rank) status = each(&f->recording[r], to, err);
    echi_recordings_discard(f);
    return status;
}

ech_status ech_replay_show(const char *dir, int rank, void (*line)(void *user, const char *text), void *user, struct ech_error *err) {
    return go_through(dir, rank, show_one, &(struct shown){line, user}, err);
}

/* ----------------------------------------------------------- where time went */

struct told { void (*node)(void *user, const struct ech_node_times *times); void *user; };

/* One node's, with room for all that it can have waited for. */
struct parts { struct ech_time_part *part; int count; double seconds; };
static void add_part(struct parts *p, const char *what, int rank, struct echi_took took) {
    if (took.count == 0) return;
    p->part[p->count++] = (struct ech_time_part){what, rank, took.seconds, took.count};
    p->seconds += took.seconds;
}

static int longest_first(const void *a, const void *b) {
    const struct ech_time_part *x = a, *y = b;
    return (y->seconds > x->seconds) - (y->seconds < x->seconds);
}

static void tell(const struct echi_recording *r, const struct echi_spent *s, struct ech_time_part *room, const struct told *to) {
    struct parts tasks = {room, 0, 0}, waits = {room + ECHI_TASKS, 0, 0};
    for (int kind = 0; kind < ECHI_TASKS; kind++) add_part(&tasks, echi_task_name(kind), -1, s->task[kind]);
    for (int i = 0; i < s->world * ECHI_KINDS; i++) add_part(&waits, echi_kind_name(i % ECHI_KINDS), i / ECHI_KINDS, s->waited[i]);
    add_part(&waits, "", r->about.rank, s->other);
    qsort(tasks.part, (size_t)tasks.count, sizeof *tasks.part, longest_first);
    qsort(waits.part, (size_t)waits.count, sizeof *waits.part, longest_first);
    const struct ech_node_times times = {.rank = r->about.rank, .world = r->about.world, .ended = r->ended, .computed = tasks.seconds,
                                         .waited = waits.seconds, .samples = s->samples, .n_tasks = tasks.count,
                                         .n_waits = waits.count, .task = tasks.part, .wait = waits.part};
    to->node(to->user, &times);
}

static ech_status times_of(struct echi_recording *r, const void *to, struct ech_error *err) {
    const size_t waits = (size_t)r->about.world * ECHI_KINDS;
    struct echi_record *record = malloc(sizeof *record);
    struct ech_time_part *room = malloc((ECHI_TASKS + waits + 1) * sizeof *room);
    struct echi_spent spent = {.world = r->about.world, .waited = calloc(waits, sizeof *spent.waited)};
    const bool memory = record && room && spent.waited;
    const ech_status status = memory ? echi_recording_spent(r, record, &spent, err)
                                     : echi_fail_memory(err, "replay.times", "a record");
    if (status == ECH_OK) tell(r, &spent, room, to);
    free(record);
    free(room);
    free(spent.waited);
    return status;
}

ech_status ech_recording_times(const char *dir, int rank, void (*node)(void *user, const struct ech_node_times *times), void *user,
                               struct ech_error *err) {
    return go_through(dir, rank, times_of, &(struct told){node, user}, err);
}

/* ------------------------------------------------------- what was predicted */

/* Too large for the stack of a thread. */
struct foretelling {
    struct echi_record record;
    struct echi_plan plan;
    struct echi_times times[ECHI_WORLD_MAX];
    struct echi_choice_work work;
};

static bool all_measured(const struct echi_times *times, int world) {
    for (int r = 0; r < world; r++)
        if (times[r].count == 0) return false;
    return true;
}

/* With the times as the coordinator had them. */
static void foretell(const struct echi_load *load, struct foretelling *f, struct ech_run_prediction *out) {
    struct echi_what_if found[ECHI_WHATS];
    struct echi_prediction p;
    echi_times_pool(f->times, f->plan.world);
    echi_predict(&f->plan, f->times, load, 0, &f->work.predict, &p);
    out->images_per_second = p.rate;
    for (int r = 0; r < f->plan.world; r++) out->computes[r] = (float)f->work.predict.busy[r];
    if (f->plan.world > 1 && f->plan.world <= ECHI_WHAT_IF_WORLD)
        out->n_what_if = echi_what_if(&f->plan, f->times, load, p.rate, &f->work, found);
    for (int i = 0; i < out->n_what_if; i++)
        out->what_if[i] = (struct ech_what_if){echi_what_name(found[i].what), found[i].rank, found[i].gain};
}

ech_status ech_recording_prediction(const char *dir, struct ech_run_prediction *out, struct ech_error *err) {
    struct echi_recordings *f = NULL;
    struct foretelling *all = calloc(1, sizeof *all);
    if (!all) return echi_fail_memory(err, "replay.prediction", "a prediction");
    *out = (struct ech_run_prediction){0};
    ech_status status = echi_recordings_make(dir, &f, err);
    if (status == ECH_OK) status = echi_recordings_load(f, dir, 0, err);
    if (status == ECH_OK) {
        struct echi_recording *r = &f->recording[0];
        out->world = r->about.world;
        const bool known = echi_recording_planned(r, &all->record, &all->plan, all->times) && all->plan.world == r->about.world;
        if (known && all_measured(all->times, r->about.world)) foretell(&r->about.request.load, all, out);
    }
    echi_recordings_discard(f);
    free(all);
    return status;
}
