/* SPDX-License-Identifier: Apache-2.0
 * Recordings as a trace for chrome://tracing and ui.perfetto.dev: "Trace Event Format" (Google, 2016), the object form. A process is a
 * rank, a thread one of its tracks; times are microseconds of rank 0's clock from the first event of all. Events are written as they are
 * walked through, in no order of time: both programs sort them. */
#include "echi_recording.h"
#include "echi_error.h"
#include "echi_json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER 65536u
#define EVENT_MAX 4096u        /* bytes of one event at most */

enum track { TRACK_COMPUTE = 1, TRACK_WAITS, TRACK_CHECKPOINT, TRACK_IN, TRACK_OUT };   /* from TRACK_OUT on: one for each at a time */

/* A task that was asked for. */
struct asked { struct asked *next; uint64_t number; int64_t at; struct echi_task task; };

/* A message that was sent and is not drawn yet. */
struct message {
    struct message *next, *before;         /* of its sender's */
    uint16_t from, to, track;
    uint8_t kind;
    struct echi_slot slot;
    bool payload, left, arrived;
    int64_t sent, left_at, came;
    uint64_t bytes, version;               /* 0: not known; none */
    uint32_t lease;
    int part;                              /* -1: none */
};

struct host {
    struct echi_busy busy;
    struct asked *first[ECHI_TASKS], *last[ECHI_TASKS];
    struct asked piece;                    /* of a task, to be drawn; number 0: none */
    int64_t piece_begin, piece_end, now;
    struct message *sent_first, *sent_last;
    uint8_t *taken; int tracks;            /* of the way out */
    bool coded, rounded;                   /* pushes and weights; activations */
    uint32_t part[ECHI_PARTS_MAX], cut_width;   /* parameters of a part */
    uint64_t head_params;
};

struct trace {
    const struct echi_clock *clock;
    const struct echi_sink *to;
    struct echi_recording *recording;
    int world;
    int64_t begin;                         /* ns of rank 0's clock */
    uint64_t tasks, arrows;
    struct host *host;
    struct echi_json_put json;
    char buffer[BUFFER];
};

/* ---------------------------------------------------------------- one event */

static int64_t time_of(const struct trace *x, int rank, int64_t t) { return echi_clock_on_zero(&x->clock[rank], t) - x->begin; }

static void begin_event(struct trace *x, const char *phase, const char *name, int rank, int track) {
    struct echi_json_put *j = &x->json;
    echi_json_put_object(j, NULL);
    echi_json_put_text(j, "ph", phase);
    echi_json_put_text(j, "name", name);
    echi_json_put_integer(j, "pid", rank);
    echi_json_put_integer(j, "tid", track);
}

static void put_time(struct trace *x, int rank, int64_t t) { echi_json_put_thousandths(&x->json, "ts", time_of(x, rank, t)); }

static void put_span(struct trace *x, int rank, int64_t begin, int64_t end) {
    put_time(x, rank, begin);
    echi_json_put_thousandths(&x->json, "dur", time_of(x, rank, end) - time_of(x, rank, begin));
}

static ech_status flush(struct trace *x, struct ech_error *err) {
    const size_t len = x->json.text.len;
    if (len >= x->json.text.cap) return echi_fail(err, ECH_E_INTERNAL, "replay.trace", "an event does not fit into its buffer");
    x->json.text.len = 0;
    return len ? x->to->write(x->to->user, x->buffer, len, err) : ECH_OK;
}

/* An event a line, as each object in a list. */
static ech_status end_event(struct trace *x, struct ech_error *err) {
    echi_json_put_close(&x->json);
    echi_print(&x->json.text, "\n");
    return x->json.text.len + EVENT_MAX < BUFFER ? ECH_OK : flush(x, err);
}

/* The name of a process or a thread, and its place among its like. */
static ech_status name_it(struct trace *x, const char *what, int rank, int track, const char *name, struct ech_error *err) {
    char order[40];
    snprintf(order, sizeof order, "%s_sort_index", what);
    for (int i = 0; i < 2; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_name", what);
        begin_event(x, "M", i ? order : key, rank, track);
        echi_json_put_object(&x->json, "args");
        if (i) echi_json_put_integer(&x->json, "sort_index", track ? track : rank);
        else echi_json_put_text(&x->json, "name", name);
        echi_json_put_close(&x->json);
        ECHI_TRY(end_event(x, err));
    }
    return ECH_OK;
}

/* -------------------------------------------------------------------- tasks */

static void put_task(struct echi_json_put *j, const struct echi_task *t) {
    const uint32_t samples = t->lease.n ? t->lease.n : t->samples;
    echi_json_put_object(j, "args");
    if (t->lease.id) echi_json_put_whole(j, "lease", t->lease.id);
    if (t->lease.id) echi_json_put_whole(j, "epoch", t->lease.epoch);
    if (t->lease.id) echi_json_put_whole(j, "start", t->lease.start);
    if (samples) echi_json_put_whole(j, "samples", samples);
    if (t->only) echi_json_put_integer(j, "part", t->only - 1);
    if (t->from) echi_json_put_integer(j, "from layer", t->from);
    if (t->until) echi_json_put_integer(j, "until layer", t->until);
    if (t->norm.kind || t->sums.kind) echi_json_put_integer(j, "part of step", t->part);
    if (t->n_rows) echi_json_put_integer(j, "ranks", t->n_rows);
    echi_json_put_close(j);
}

static ech_status draw_task(struct trace *x, int rank, int track, const struct echi_task *t, int64_t begin, int64_t end,
                            struct ech_error *err) {
    begin_event(x, "X", echi_task_name(t->kind), rank, track);
    echi_json_put_text(&x->json, "cat", "task");
    put_span(x, rank, begin, end);
    put_task(&x->json, t);
    return end_event(x, err);
}

static ech_status draw_piece(struct trace *x, int rank, struct ech_error *err) {
    struct host *h = &x->host[rank];
    if (h->piece.number == 0) return ECH_OK;
    h->piece.number = 0;
    return draw_task(x, rank, TRACK_COMPUTE, &h->piece.task, h->piece_begin, h->piece_end, err);
}

static ech_status ask(struct trace *x, struct host *h, const struct echi_task *t, struct ech_error *err) {
    struct asked *a = malloc(sizeof *a);
    if (!a) return echi_fail_memory(err, "replay.trace", "a task");
    *a = (struct asked){NULL, ++x->tasks, h->now, *t};
    if (h->first[t->kind]) h->last[t->kind]->next = a;
    else h->first[t->kind] = a;
    h->last[t->kind] = a;
    return ECH_OK;
}

static bool same(const struct echi_task *a, const struct echi_task *b) {
    return a->lease.id == b->lease.id && a->only == b->only && a->part == b->part && a->until == b->until && a->flight == b->flight &&
           a->micro == b->micro;
}

/* Takes the task that is done out of what was asked for. NULL: nobody has asked for one of its kind. */
static struct asked *answered(struct host *h, const struct echi_task *t) {
    struct asked *a = h->first[t->kind], *before = NULL;
    for (; a && !same(&a->task, t); a = a->next) before = a;
    if (!a) a = h->first[t->kind], before = NULL;
    if (!a) return NULL;
    if (before) before->next = a->next;
    else h->first[t->kind] = a->next;
    if (h->last[t->kind] == a) h->last[t->kind] = before;
    return a;
}

/* A task goes on, or another one does. */
static ech_status go_on(struct trace *x, int rank, const struct asked *a, const struct echi_stretch *s, struct ech_error *err) {
    struct host *h = &x->host[rank];
    if (h->piece.number != a->number) {
        ECHI_TRY(draw_piece(x, rank, err));
        h->piece = *a;
        h->piece_begin = s->begin;
    }
    h->piece_end = s->end;
    return ECH_OK;
}

static ech_status draw_wait(struct trace *x, int rank, const struct echi_event *e, const struct echi_stretch *s, struct ech_error *err) {
    const bool came = e->type == ECHI_EVENT_MESSAGE;
    begin_event(x, "X", came ? echi_kind_name(e->msg->kind) : "itself", rank, TRACK_WAITS);
    echi_json_put_text(&x->json, "cat", "wait");
    put_span(x, rank, s->begin, s->end);
    echi_json_put_object(&x->json, "args");
    if (came) echi_json_put_integer(&x->json, "from rank", e->from);
    echi_json_put_close(&x->json);
    return end_event(x, err);
}

static ech_status compute(struct trace *x, int rank, const struct echi_traced *t, struct ech_error *err) {
    struct host *h = &x->host[rank];
    const struct echi_event *e = &t->event;
    const struct echi_stretch s = echi_busy_take(&h->busy, t);
    struct asked *done = e->type == ECHI_EVENT_COMPUTED ? answered(h, e->task) : NULL;
    ech_status status = ECH_OK;
    if (s.of == ECHI_STRETCH_TASK) status = go_on(x, rank, s.done ? done : h->first[s.task], &s, err);
    if (s.of == ECHI_STRETCH_WAIT) status = draw_wait(x, rank, e, &s, err);
    if (status == ECH_OK && done && e->task->kind == ECHI_TASK_KEEP)
        status = draw_task(x, rank, TRACK_CHECKPOINT, &done->task, done->at, e->now, err);
    free(done);
    ECHI_TRY(status);
    struct echi_reader at = echi_reader_over(t->actions, t->actions_len);
    struct echi_traced_action a;
    while (echi_trace_next_action(&at, &a))
        if (a.action.type == ECHI_ACTION_COMPUTE) ECHI_TRY(ask(x, h, &a.action.task, err));
    return ECH_OK;
}

/* ----------------------------------------------------------------- messages */

static uint64_t bytes_of(const struct trace *x, const struct host *h, int rank, const struct echi_msg *m) {
    const uint64_t real = x->recording[rank].about.real_bytes, row = h->cut_width * (h->rounded ? 2 : real);
    switch (m->kind) {
    case ECHI_KIND_PUSH: case ECHI_KIND_WEIGHTS: case ECHI_KIND_RING_SUM: case ECHI_KIND_RING_WEIGHTS:
        return h->coded || m->part >= ECHI_PARTS_MAX ? 0 : h->part[m->part] * real;
    case ECHI_KIND_ACT: return (uint64_t)m->lease.n * (row + ECHI_LABEL_BYTES);
    case ECHI_KIND_ACT_GRAD: return (uint64_t)m->lease.n * row;
    case ECHI_KIND_HEAD_COPY: return m->flag == ECHI_PARAMS_PART ? h->head_params * real : 0;   /* an optimiser's memory is of any size */
    case ECHI_KIND_HEAD_SUM: return h->head_params * real;
    default: return 0;
    }
}

/* The first track of the way out on which nothing is; -1: no memory. */
static int take_track(struct host *h) {
    int i = 0;
    while (i < h->tracks && h->taken[i]) i++;
    if (i == h->tracks) {
        uint8_t *more = i < UINT16_MAX - TRACK_OUT ? realloc(h->taken, (size_t)i + 1) : NULL;
        if (!more) return -1;
        h->taken = more;
        h->tracks++;
    }
    h->taken[i] = 1;
    return TRACK_OUT + i;
}

static ech_status on_send(void *user, struct echi_passage *f, const struct echi_action *a, struct ech_error *err) {
    struct trace *x = user;
    struct host *h = &x->host[f->from];
    struct message *m = calloc(1, sizeof *m);
    if (!m) return echi_fail_memory(err, "replay.trace", "a message");
    m->from = f->from;
    m->to = f->to;
    m->kind = f->kind;
    m->sent = f->sent;
    m->part = -1;
    m->payload = a && echi_kind_has_payload(a->kind);
    if (a) {
        m->slot = a->slot;
        m->lease = a->msg.lease.id;
        m->version = a->msg.version;
        m->bytes = bytes_of(x, h, f->from, &a->msg);
        if (echi_kind_of_part(a->kind)) m->part = a->msg.part;
    }
    const int track = m->payload ? take_track(h) : TRACK_OUT;
    if (track < 0) {
        free(m);
        return echi_fail_memory(err, "replay.trace", "a track");
    }
    m->track = (uint16_t)track;
    m->before = h->sent_last;
    if (h->sent_first) h->sent_last->next = m;
    else h->sent_first = m;
    h->sent_last = m;
    f->user = m;
    return ECH_OK;
}

static void put_message(struct echi_json_put *j, const struct message *m, const char *other, int rank) {
    echi_json_put_object(j, "args");
    echi_json_put_integer(j, other, rank);
    if (m->lease) echi_json_put_whole(j, "lease", m->lease);
    if (m->part >= 0) echi_json_put_integer(j, "part", m->part);
    if (m->bytes) echi_json_put_whole(j, "bytes", m->bytes);
    if (m->version) echi_json_put_whole(j, "version", m->version);
    if (m->payload && !m->left) echi_json_put_bool(j, "left", false);
    echi_json_put_close(j);
}

static ech_status draw_end(struct trace *x, const struct message *m, bool at_sender, struct ech_error *err) {
    const int rank = at_sender ? m->from : m->to;
    const int64_t begin = at_sender ? m->sent : m->came, end = at_sender && m->payload ? m->left_at : begin;
    begin_event(x, "X", echi_kind_name(m->kind), rank, at_sender ? m->track : TRACK_IN);
    echi_json_put_text(&x->json, "cat", "message");
    put_span(x, rank, begin, end);
    put_message(&x->json, m, at_sender ? "to rank" : "from rank", at_sender ? m->to : m->from);
    ECHI_TRY(end_event(x, err));
    if (!m->arrived) return ECH_OK;
    /* Right behind the slice that it is bound to, which begins at the same time. */
    begin_event(x, at_sender ? "s" : "f", echi_kind_name(m->kind), rank, at_sender ? m->track : TRACK_IN);
    echi_json_put_text(&x->json, "cat", "message");
    echi_json_put_whole(&x->json, "id", x->arrows);
    if (!at_sender) echi_json_put_text(&x->json, "bp", "e");
    put_time(x, rank, begin);
    return end_event(x, err);
}

static ech_status draw_message(struct trace *x, struct message *m, struct ech_error *err) {
    struct host *h = &x->host[m->from];
    ech_status status;
    if (m->arrived) x->arrows++;
    status = draw_end(x, m, true, err);
    if (status == ECH_OK && m->arrived) status = draw_end(x, m, false, err);
    if (m->before) m->before->next = m->next;
    else h->sent_first = m->next;
    if (m->next) m->next->before = m->before;
    else h->sent_last = m->before;
    free(m);
    return status;
}

static ech_status on_arrive(void *user, struct echi_passage *f, struct ech_error *err) {
    struct message *m = f->user;
    m->came = f->came;
    m->arrived = true;
    return m->left || !m->payload ? draw_message(user, m, err) : ECH_OK;
}

/* The first that it can be: several from one slot leave in the order in which they were asked for, within a priority. */
static ech_status on_sent(struct trace *x, int rank, const struct echi_event *e, struct ech_error *err) {
    struct host *h = &x->host[rank];
    struct message *m = h->sent_first;
    while (m && (m->left || !m->payload || m->to != e->from || m->kind != e->kind || m->slot.kind != e->slot.kind ||
                 m->slot.index != e->slot.index))
        m = m->next;
    if (!m) return ECH_OK;   /* to itself */
    m->left = true;
    m->left_at = e->now;
    h->taken[m->track - TRACK_OUT] = 0;
    return m->arrived ? draw_message(x, m, err) : ECH_OK;
}

/* ------------------------------------------------------------------- records */

static void take_setup(struct host *h, const struct echi_setup *s) {
    const struct echi_parts *parts = &s->plan.parts;
    h->coded = s->plan.codec != ECHI_CODEC_DENSE;
    h->rounded = s->plan.activations == ECHI_ACTIVATIONS_BF16;
    h->cut_width = s->cut_width;
    h->head_params = 0;
    for (int i = 0; i < parts->count; i++) {
        h->part[i] = parts->part[i].count;
        if (s->plan.cut && parts->part[i].first >= s->cut) h->head_params += parts->part[i].count;
    }
}

/* What happens at one time: a gradient, on the track of its task; what befalls the node, across all of them. */
static ech_status draw_moment(struct trace *x, int rank, const struct echi_traced *t, struct ech_error *err) {
    const struct echi_event *e = &t->event;
    char text[ECHI_TRACED_TEXT + 80];
    if (e->type == ECHI_EVENT_GRADIENT) snprintf(text, sizeof text, "gradient of layer %d", e->layer);
    else echi_event_text(t, text, sizeof text);
    begin_event(x, "i", text, rank, TRACK_COMPUTE);
    echi_json_put_text(&x->json, "s", e->type == ECHI_EVENT_GRADIENT ? "t" : "p");
    put_time(x, rank, e->now);
    return end_event(x, err);
}

static bool is_moment(int type) {
    return type == ECHI_EVENT_GRADIENT || type == ECHI_EVENT_LOST || type == ECHI_EVENT_BROKE || type == ECHI_EVENT_FAILED ||
        type == ECHI_EVENT_STOP;
}

static ech_status on_record(void *user, int rank, const struct echi_record *record, struct ech_error *err) {
    struct trace *x = user;
    struct host *h = &x->host[rank];
    const struct echi_traced *t = &record->event;
    if (record->kind == ECHI_RECORD_SETUP) take_setup(h, &record->setup.setup);
    if (record->kind != ECHI_RECORD_EVENT) return ECH_OK;
    h->now = t->event.now;
    ECHI_TRY(compute(x, rank, t, err));
    if (is_moment(t->event.type)) ECHI_TRY(draw_moment(x, rank, t, err));
    return t->event.type == ECHI_EVENT_SENT ? on_sent(x, rank, &t->event, err) : ECH_OK;
}

/* --------------------------------------------------------------- the whole */

static ech_status put_clocks(struct trace *x, struct ech_error *err) {
    struct echi_json_put *j = &x->json;
    echi_json_put_list(j, "clocks");
    for (int r = 0; r < x->world; r++) {
        const struct echi_clock *c = &x->clock[r];
        echi_json_put_object(j, NULL);
        echi_json_put_integer(j, "rank", r);
        echi_json_put_integer(j, "through", c->through);
        echi_json_put_integer(j, "offset_ns", c->first - c->zero);
        echi_json_put_real(j, "drift_ppm", 1e6 * echi_clock_drift(c));
        echi_json_put_optional(j, "error_ns", echi_clock_error(c));
        echi_json_put_real(j, "misses_ns", c->misses);
        ECHI_TRY(end_event(x, err));
    }
    echi_json_put_close(j);
    return ECH_OK;
}

static ech_status begin_trace(struct trace *x, struct ech_error *err) {
    const struct echi_about *about = &x->recording[0].about;
    struct echi_json_put *j = &x->json;
    echi_json_put_text(j, "displayTimeUnit", "ms");
    echi_json_put_object(j, "otherData");
    echi_json_put_text(j, "echelon", about->version);
    echi_json_put_text(j, "model", about->model);
    echi_json_put_text(j, "data", about->data);
    ECHI_TRY(put_clocks(x, err));
    echi_json_put_close(j);
    echi_json_put_list(j, "traceEvents");
    for (int r = 0; r < x->world; r++) {
        static const char *const name[] = {[TRACK_COMPUTE] = "compute", [TRACK_WAITS] = "waits for", [TRACK_CHECKPOINT] = "checkpoint",
                                           [TRACK_IN] = "messages in"};
        char text[160];
        snprintf(text, sizeof text, "rank %d (%s, %s)", r, x->recording[r].about.device, x->recording[r].about.device_name);
        ECHI_TRY(name_it(x, "process", r, 0, text, err));
        for (int track = TRACK_COMPUTE; track < TRACK_OUT; track++) ECHI_TRY(name_it(x, "thread", r, track, name[track], err));
    }
    return ECH_OK;
}

/* What was still going on when a recording ended, or broke off. */
static ech_status end_host(struct trace *x, int rank, struct ech_error *err) {
    struct host *h = &x->host[rank];
    ECHI_TRY(draw_piece(x, rank, err));
    while (h->sent_first) {
        if (!h->sent_first->left) h->sent_first->left_at = h->now;
        ECHI_TRY(draw_message(x, h->sent_first, err));
    }
    for (int i = 0; i < h->tracks || i == 0; i++) {
        char text[40];
        snprintf(text, sizeof text, i ? "way out %d" : "way out", i + 1);
        ECHI_TRY(name_it(x, "thread", rank, TRACK_OUT + i, text, err));
    }
    return ECH_OK;
}

static ech_status write_all(struct trace *x, struct ech_error *err) {
    const struct echi_walker walker = {.user = x, .record = on_record, .send = on_send, .arrive = on_arrive};
    ECHI_TRY(begin_trace(x, err));
    ECHI_TRY(echi_recordings_walk(x->recording, x->world, &walker, err));
    for (int r = 0; r < x->world; r++) ECHI_TRY(end_host(x, r, err));
    echi_json_put_close(&x->json);
    return ECH_OK;
}

static void discard(struct trace *x) {
    for (int r = 0; x->host && r < x->world; r++) {
        struct host *h = &x->host[r];
        for (struct message *m = h->sent_first, *next; m; m = next) next = m->next, free(m);
        for (int kind = 0; kind < ECHI_TASKS; kind++)
            for (struct asked *a = h->first[kind], *next; a; a = next) next = a->next, free(a);
        free(h->taken);
    }
    free(x->host);
    free(x);
}

ech_status echi_recordings_trace(struct echi_recording *recording, int world, const struct echi_clock *clock, const struct echi_sink *to,
                                 struct ech_error *err) {
    struct trace *x = calloc(1, sizeof *x);
    if (x) *x = (struct trace){.clock = clock, .to = to, .recording = recording, .world = world, .begin = clock[0].zero};
    if (x) x->host = calloc((size_t)world, sizeof *x->host);
    if (!x || !x->host) {
        free(x);
        return echi_fail_memory(err, "replay.trace", "the nodes of a run");
    }
    for (int r = 1; r < world; r++)
        if (clock[r].zero < x->begin) x->begin = clock[r].zero;
    echi_json_put_begin(&x->json, x->buffer, sizeof x->buffer);
    ech_status status = write_all(x, err);
    echi_json_put_end(&x->json);
    if (status == ECH_OK) status = flush(x, err);
    discard(x);
    return status;
}
