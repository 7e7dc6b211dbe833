/* SPDX-License-Identifier: Apache-2.0
 * A recorded step as a time line (echi_timeline.h), so that its critical path is found as that of a prediction is: every interval with
 * what let it begin. A recording has when a role asked for a message to be sent, when its payload had left, and when it was there. What
 * lies between is taken for one queue a way: each message is on its sender's way out from the end of the one that left before, and on its
 * receiver's way in from then, or from the end of the one that came before, until it was there. */
#include "echi_recording.h"
#include "echi_error.h"
#include "echi_records.h"

#include <stdlib.h>
#include <string.h>

/* A message whose end on a way out is not known yet, or on the way in. */
struct message {
    struct message *next;
    uint32_t out, in;                     /* intervals; out ECHI_NOTHING: it has no payload, and has left */
    uint16_t to;
    uint8_t kind;
    struct echi_slot slot;
    bool left, arrived;
    int64_t before; uint32_t behind;      /* when the one that left before had left, and its interval */
};

struct host {
    struct echi_busy busy;
    int64_t out_free, in_free;            /* ends of what left, and came, last */
    uint32_t last_out, last_in;
    uint32_t piece, step;                 /* what the thread computes, or did; the first of its step */
    uint32_t began_by, arrived, to_itself, cause;   /* cause: of what this event makes begin */
    bool ends;                            /* the next stretch is another piece */
    uint8_t task;                         /* of the piece */
    int layer[ECHI_PARTS_MAX];
    struct message *first, *last;         /* sent */
};

struct view {
    const struct echi_clock *clock;
    const struct echi_times *times;
    struct echi_timeline *line;
    struct host *host;
    int world;
    int64_t begin;                        /* ns of rank 0's clock, from which all else counts */
    int64_t until;                        /* nothing later is looked at: two steps after the end of the one that is shown, so that what is
                                             under way there has an end */
    struct echi_recorded_step chosen;
    uint64_t ended;                       /* steps of its rank so far */
};

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t time_of(const struct view *x, int rank, int64_t t) { return echi_clock_on_zero(&x->clock[rank], t) - x->begin; }

/* ------------------------------------------------------------------ which step */

/* Moments at which steps of a rank ended, on its own clock. */
struct ends { int64_t *at; size_t count, capacity; };

static ech_status note(struct ends *e, int64_t at, struct ech_error *err) {
    if (e->count == e->capacity) {
        const size_t more = e->capacity ? 2 * e->capacity : 1024;
        int64_t *grown = realloc(e->at, more * sizeof *grown);
        if (!grown) return echi_fail_memory(err, "replay.line", "the steps of a run");
        e->at = grown;
        e->capacity = more;
    }
    e->at[e->count++] = at;
    return ECH_OK;
}

static ech_status ends_of(struct echi_recording *r, struct echi_record *record, struct ends *out, struct ech_error *err) {
    ech_status status;
    out->count = 0;
    echi_recording_rewind(r);
    while ((status = echi_recording_read(r, record, err)) == ECH_OK && record->kind != 0) {
        const struct echi_event *e = &record->event.event;
        if (record->kind == ECHI_RECORD_EVENT && e->type == ECHI_EVENT_COMPUTED && echi_task_trained(e->task))
            ECHI_TRY(note(out, e->now, err));
    }
    return status;
}

static int by_length(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The step whose length half of them have at most, the first of such; lengths are left in its place. */
static size_t median_step(const struct ends *e, int64_t *length) {
    const size_t n = e->count - 1;
    for (size_t i = 0; i < n; i++) length[i] = e->at[i + 1] - e->at[i];
    qsort(length, n, sizeof *length, by_length);
    const int64_t wanted = length[(n - 1) / 2];
    size_t i = 0;
    while (e->at[i + 1] - e->at[i] != wanted) i++;
    return i + 1;
}

static ech_status choose(struct view *x, struct echi_recording *recording, struct echi_record *record, struct ends *e,
                         struct ech_error *err) {
    double longest = -1;
    for (int r = 0; r < x->world; r++) {
        ECHI_TRY(ends_of(&recording[r], record, e, err));
        if (e->count < 2) continue;
        const double mean = (double)(e->at[e->count - 1] - e->at[0]) / (double)(e->count - 1);
        if (mean <= longest) continue;
        longest = mean;
        x->chosen.rank = r;
    }
    if (longest < 0)
        return echi_fail(err, ECH_E_UNSUPPORTED, "replay.line", "no node has recorded two steps: one is shown from the end of another");
    ECHI_TRY(ends_of(&recording[x->chosen.rank], record, e, err));
    int64_t *length = malloc(e->count * sizeof *length);
    if (!length) return echi_fail_memory(err, "replay.line", "the steps of a run");
    const size_t at = median_step(e, length);
    free(length);
    x->chosen.step = at + 1;
    x->chosen.steps = e->count;
    x->until = time_of(x, x->chosen.rank, e->at[at]) + 2 * (e->at[at] - e->at[at - 1]);
    return ECH_OK;
}

/* --------------------------------------------------------------------- threads */

static uint8_t played_task(int kind) {
    static const uint8_t as[ECHI_TASKS] = {
        [ECHI_TASK_HEAD] = ECHI_PLAY_HEAD, [ECHI_TASK_HEAD_APPLY] = ECHI_PLAY_HEAD_APPLY, [ECHI_TASK_NORM] = ECHI_PLAY_APPLY,
        [ECHI_TASK_ADD] = ECHI_PLAY_ADD, [ECHI_TASK_APPLY] = ECHI_PLAY_APPLY, [ECHI_TASK_ENCODE] = ECHI_PLAY_ENCODE,
        [ECHI_TASK_DECODE] = ECHI_PLAY_DECODE, [ECHI_TASK_REFRESH] = ECHI_PLAY_APPLY, [ECHI_TASK_TAKE] = ECHI_PLAY_APPLY,
        [ECHI_TASK_STATE] = ECHI_PLAY_APPLY, [ECHI_TASK_BACKWARD] = ECHI_PLAY_BACKWARD, [ECHI_TASK_STEP] = ECHI_PLAY_STEP,
        [ECHI_TASK_FORWARD] = ECHI_PLAY_FORWARD, [ECHI_TASK_EVAL] = ECHI_PLAY_FORWARD, [ECHI_TASK_KEEP] = ECHI_PLAY_APPLY,
        [ECHI_TASK_LOCAL_APPLY] = ECHI_PLAY_LOCAL_APPLY, [ECHI_TASK_LOCAL_DELTA] = ECHI_PLAY_DELTA,
        [ECHI_TASK_LOCAL_JOIN] = ECHI_PLAY_JOIN};
    return as[kind];
}

/* The part of a step that goes forward; a third where nobody has measured layers. */
static double forward_part(const struct echi_times *t, uint32_t n) {
    double pass[ECHI_PASSES] = {0};
    for (int u = 0; t->count > 0 && u < t->units; u++)
        for (int p = 0; p < ECHI_PASSES; p++) pass[p] += echi_times_unit(t, u, (enum echi_pass)p, n);
    const double all = pass[ECHI_FORWARD] + pass[ECHI_BACKWARD];
    return all > 0 ? pass[ECHI_FORWARD] / all : 1.0 / 3;
}

/* Of a step's pieces so much (ns) goes forward. Returns how long all of them took. */
static double turn_after(struct view *x, int rank, double forward) {
    const uint32_t begin = x->host[rank].step, kept = echi_timeline_first(x->line);
    double all = 0;
    for (uint32_t number = begin > kept ? begin : kept; number < x->line->count; number++) {
        struct echi_interval *i = echi_timeline_at(x->line, number);
        if (i->host != rank || i->on != ECHI_LINE_THREAD || i->what != ECHI_PLAY_STEP) continue;
        const double takes = (double)(i->to - i->from);
        i->turns = (float)(forward >= takes ? 1 : forward > 0 ? forward / takes : 0);
        forward -= takes;
        all += takes;
    }
    return all;
}

/* It is known now how long the step took. */
static void end_step(struct view *x, int rank, uint32_t samples, int64_t now) {
    struct host *h = &x->host[rank];
    turn_after(x, rank, turn_after(x, rank, 0) * forward_part(&x->times[rank], samples));
    h->step = x->line->count;
    if (rank != x->chosen.rank) return;
    x->line->now = h->piece;
    if (++x->ended == x->chosen.step - 1 || x->ended == x->chosen.step) echi_timeline_mark(x->line, now, rank);
}

static uint32_t begin_interval(struct view *x, struct echi_interval i) {
    i.blocker = ECHI_NOTHING;
    return echi_timeline_add(x->line, i);
}

/* -------------------------------------------------------------------- messages */

static uint8_t played_message(int kind) {
    switch (kind) {
    case ECHI_KIND_PUSH: return ECHI_PLAY_PUSH;
    case ECHI_KIND_RING_SUM: return ECHI_PLAY_SUM;
    case ECHI_KIND_WEIGHTS: case ECHI_KIND_PARAMS: case ECHI_KIND_HEAD_COPY: return ECHI_PLAY_WEIGHTS;
    case ECHI_KIND_RING_WEIGHTS: return ECHI_PLAY_HANDED;
    case ECHI_KIND_ACT: return ECHI_PLAY_ROWS;
    case ECHI_KIND_ACT_GRAD: return ECHI_PLAY_ANSWER;
    case ECHI_KIND_HEAD_SUM: return ECHI_PLAY_HEAD_SUM;
    case ECHI_KIND_STATE: case ECHI_KIND_FROZEN: return ECHI_PLAY_STATE;
    default: return ECHI_PLAY_LEASE;
    }
}

/* Both of its intervals, whose ends come later. A payload to the node itself has none. */
static ech_status on_send(void *user, struct echi_passage *f, const struct echi_action *a, struct ech_error *err) {
    struct view *x = user;
    struct host *h = &x->host[f->from];
    const int64_t sent = time_of(x, f->from, f->sent);
    const bool payload = a && echi_kind_has_payload(a->kind);
    if (sent > x->until) return ECH_OK;
    struct message *m = calloc(1, sizeof *m);
    if (!m) return echi_fail_memory(err, "replay.line", "a message");
    struct echi_interval i = {.from = sent, .to = ECHI_UNDER_WAY, .cause = h->cause, .host = f->from, .other = f->to,
                              .on = ECHI_LINE_OUT, .what = played_message(f->kind), .layer = -1};
    if (a && echi_kind_of_part(a->kind) && a->msg.part < ECHI_PARTS_MAX) i.layer = (int16_t)h->layer[a->msg.part];
    *m = (struct message){.out = ECHI_NOTHING, .to = f->to, .kind = f->kind, .left = !payload};
    if (payload) i.cause = m->out = begin_interval(x, i);
    if (a) m->slot = a->slot;
    i.on = ECHI_LINE_IN;
    i.host = f->to;
    i.other = f->from;
    m->in = begin_interval(x, i);
    if (h->first) h->last->next = m;
    else h->first = m;
    h->last = m;
    f->user = m;
    return ECH_OK;
}

static void forget(struct host *h, struct message *m) {
    struct message *before = NULL;
    for (struct message *at = h->first; at != m; at = at->next) before = at;
    if (before) before->next = m->next;
    else h->first = m->next;
    if (h->last == m) h->last = before;
    free(m);
}

/* An interval begins when what was before it, number `last`, has ended; that it waits for, where it was asked for later. An end behind its
 * own was heard of late, and tells nothing. */
static void begin_behind(struct echi_interval *i, uint32_t number, int64_t ended, uint32_t last) {
    if (ended <= i->from || ended > i->to) return;
    i->from = ended;
    if (last < number) i->cause = last;
}

/* Both ends are known. It has left no later than it was there, though its sender may have heard of it late. */
static void settle(struct view *x, struct host *sender, struct message *m) {
    struct echi_interval *in = echi_timeline_at(x->line, m->in), *out = echi_timeline_at(x->line, m->out);
    if (in && out) {
        if (out->to > in->to) out->to = in->to;
        begin_behind(out, m->out, m->before, m->behind);
        begin_behind(in, m->in, out->to, m->out);
    }
    forget(sender, m);
}

static ech_status on_arrive(void *user, struct echi_passage *f, struct ech_error *err) {
    struct view *x = user;
    struct host *h = &x->host[f->to];
    struct message *m = f->user;
    (void)err;
    h->arrived = m ? m->in : ECHI_NOTHING;
    if (!m) return ECH_OK;
    struct echi_interval *in = echi_timeline_at(x->line, m->in);
    const int64_t came = time_of(x, f->to, f->came);
    if (in) in->to = later(came, in->from);
    if (in) begin_behind(in, m->in, h->in_free, h->last_in);
    h->in_free = came;
    h->last_in = m->in;
    m->arrived = true;
    if (m->left) settle(x, &x->host[f->from], m);
    return ECH_OK;
}

/* A payload has left: of the first message that it can be of, as in chrome.c. */
static uint32_t leave(struct view *x, int rank, const struct echi_event *e, int64_t now) {
    struct host *h = &x->host[rank];
    struct message *m = h->first;
    while (m && (m->left || m->to != e->from || m->kind != e->kind || m->slot.kind != e->slot.kind || m->slot.index != e->slot.index))
        m = m->next;
    if (!m) return ECHI_NOTHING;   /* to itself */
    struct echi_interval *out = echi_timeline_at(x->line, m->out);
    const uint32_t number = m->out;
    if (out) out->to = now;
    m->left = true;
    m->before = h->out_free;
    m->behind = h->last_out;
    h->out_free = now;
    h->last_out = number;
    if (m->arrived) settle(x, h, m);
    return number;
}

/* --------------------------------------------------------------------- records */

/* What let begin what this event brings. A message to the node itself is in no passage: what sent the last of them sent it. */
static uint32_t cause_of(struct view *x, int rank, const struct echi_event *e, int64_t now) {
    struct host *h = &x->host[rank];
    uint32_t cause = h->piece;
    if (e->type == ECHI_EVENT_MESSAGE) cause = e->from == rank ? h->to_itself : h->arrived;
    if (e->type == ECHI_EVENT_SENT) cause = leave(x, rank, e, now);
    h->arrived = ECHI_NOTHING;
    return cause == ECHI_NOTHING ? h->piece : cause;
}

/* The stretch of its thread that the event ends is a new piece, or belongs to one. */
static void draw(struct view *x, int rank, const struct echi_stretch *s, int64_t now) {
    struct host *h = &x->host[rank];
    if (h->ends || h->task != s->task) {
        h->piece = begin_interval(x, (struct echi_interval){.from = time_of(x, rank, s->begin), .cause = h->ends ? h->began_by : h->piece,
                                                            .host = (uint16_t)rank, .other = (uint16_t)rank, .on = ECHI_LINE_THREAD,
                                                            .what = played_task(s->task), .layer = -1});
        h->task = s->task;
        h->ends = false;
    }
    struct echi_interval *piece = echi_timeline_at(x->line, h->piece);
    if (piece) piece->to = now;
}

static void compute(struct view *x, int rank, const struct echi_traced *t, int64_t now) {
    struct host *h = &x->host[rank];
    const struct echi_stretch s = echi_busy_take(&h->busy, t);
    const uint32_t samples = s.done ? echi_task_trained(t->event.task) : 0;
    if (s.of == ECHI_STRETCH_TASK) draw(x, rank, &s, now);
    h->cause = cause_of(x, rank, &t->event, now);
    if (samples) end_step(x, rank, samples, now);
    if (s.done || (s.of != ECHI_STRETCH_TASK && h->busy.all > 0)) {
        h->ends = true;
        h->began_by = h->cause;
    }
}

static ech_status on_record(void *user, int rank, const struct echi_record *record, struct ech_error *err) {
    struct view *x = user;
    struct host *h = &x->host[rank];
    const struct echi_traced *t = &record->event;
    (void)err;
    if (record->kind == ECHI_RECORD_SETUP) {
        const struct echi_parts *parts = &record->setup.setup.plan.parts;
        for (int i = 0; i < parts->count; i++) h->layer[i] = parts->part[i].first;
    }
    if (record->kind != ECHI_RECORD_EVENT) return ECH_OK;
    const int64_t now = time_of(x, rank, t->event.now);
    if (now > x->until) return ECH_OK;
    compute(x, rank, t, now);
    struct echi_reader at = echi_reader_over(t->actions, t->actions_len);
    struct echi_traced_action a;
    while (echi_trace_next_action(&at, &a))
        if (a.action.type == ECHI_ACTION_SEND && a.action.to == rank) h->to_itself = h->cause;
    return ECH_OK;
}

static void begin_hosts(struct view *x) {
    for (int r = 0; r < x->world; r++) {
        struct host *h = &x->host[r];
        *h = (struct host){.last_out = ECHI_NOTHING, .last_in = ECHI_NOTHING, .piece = ECHI_NOTHING, .began_by = ECHI_NOTHING,
                           .arrived = ECHI_NOTHING, .to_itself = ECHI_NOTHING, .cause = ECHI_NOTHING, .ends = true};
    }
}

static ech_status read_all(struct view *x, struct echi_recording *recording, struct echi_record *record, struct ech_error *err) {
    const struct echi_walker walker = {.user = x, .record = on_record, .send = on_send, .arrive = on_arrive};
    struct ends ends = {0};
    ech_status status = choose(x, recording, record, &ends, err);
    free(ends.at);
    return status == ECH_OK ? echi_recordings_walk(recording, x->world, &walker, err) : status;
}

ech_status echi_recordings_line(struct echi_recording *recording, int world, const struct echi_clock *clock, const struct echi_plan *plan,
                                const struct echi_times *times, struct echi_timeline *line, struct echi_recorded_step *out,
                                struct ech_error *err) {
    struct view x = {.clock = clock, .times = times, .line = line, .world = world, .begin = clock[0].zero};
    struct echi_record *record = malloc(sizeof *record);
    x.host = malloc((size_t)world * sizeof *x.host);
    ech_status status = record && x.host ? ECH_OK : echi_fail_memory(err, "replay.line", "the nodes of a run");
    for (int r = 1; r < world; r++)
        if (clock[r].zero < x.begin) x.begin = clock[r].zero;
    if (status == ECH_OK) begin_hosts(&x);
    if (status == ECH_OK) status = read_all(&x, recording, record, err);
    if (status == ECH_OK) echi_timeline_path(line, 0, plan->sync == ECHI_SYNC_BSP ? x.chosen.rank : -1);
    if (status == ECH_OK && line->to == 0)
        status = echi_fail(err, ECH_E_UNSUPPORTED, "replay.line", "a step of this run has more tasks and messages than a time line holds");
    for (int r = 0; x.host && r < world; r++)
        for (struct message *m = x.host[r].first, *next; m; m = next) next = m->next, free(m);
    free(x.host);
    free(record);
    *out = x.chosen;
    return status;
}
