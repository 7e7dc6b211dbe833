/* SPDX-License-Identifier: Apache-2.0
 * Where a node's time went, by its recording. */
#include "echi_recording.h"

/* A checkpoint is written beside the compute thread. */
static bool on_thread(const struct echi_task *task) { return task->kind < ECHI_TASKS && task->kind != ECHI_TASK_KEEP; }

uint32_t echi_task_trained(const struct echi_task *t) {
    const bool ends = t->until == 0 && t->norm.kind == ECHI_SLOT_NONE && t->sums.kind == ECHI_SLOT_NONE;
    return ends && (t->kind == ECHI_TASK_STEP || t->kind == ECHI_TASK_BACKWARD) ? t->lease.n : 0;
}

/* The most urgent, which the thread computes; kinds are in that order. */
static uint8_t computed_now(const struct echi_busy *b) {
    uint8_t kind = 0;
    while (b->of[kind] == 0) kind++;
    return kind;
}

static uint32_t tasks_asked_for(const struct echi_traced *t, struct echi_busy *b) {
    struct echi_reader at = echi_reader_over(t->actions, t->actions_len);
    struct echi_traced_action a;
    uint32_t count = 0;
    while (echi_trace_next_action(&at, &a)) {
        if (a.action.type != ECHI_ACTION_COMPUTE || !on_thread(&a.action.task)) continue;
        b->of[a.action.task.kind]++;
        count++;
    }
    b->all += count;
    return count;
}

struct echi_stretch echi_busy_take(struct echi_busy *b, const struct echi_traced *t) {
    const struct echi_event *e = &t->event;
    struct echi_stretch s = {.begin = b->last, .end = e->now};
    const bool idle = b->all == 0;
    s.done = e->type == ECHI_EVENT_COMPUTED && on_thread(e->task) && b->of[e->task->kind] > 0;
    if (!idle) {
        s.of = ECHI_STRETCH_TASK;
        s.task = s.done ? e->task->kind : computed_now(b);
        b->last = e->now;
    }
    if (s.done) {
        b->of[e->task->kind]--;
        b->all--;
    }
    if (tasks_asked_for(t, b) == 0 || !idle) return s;
    if (b->last > 0) s.of = ECHI_STRETCH_WAIT;
    b->last = e->now;
    return s;
}

/* Whose message gave the thread something to do again; nobody's, where it was a slot or a time. */
static struct echi_took *waited_for(const struct echi_event *e, struct echi_spent *out) {
    const bool came = e->type == ECHI_EVENT_MESSAGE && e->msg->kind < ECHI_KINDS && e->from < out->world;
    return came ? &out->waited[e->from * ECHI_KINDS + e->msg->kind] : &out->other;
}

static void take(const struct echi_traced *t, struct echi_busy *b, struct echi_spent *out) {
    const struct echi_stretch s = echi_busy_take(b, t);
    const double seconds = (double)(s.end - s.begin) * 1e-9;
    if (s.of == ECHI_STRETCH_TASK) out->task[s.task].seconds += seconds;
    if (s.done) {
        out->task[s.task].count++;
        out->samples += echi_task_trained(t->event.task);
    }
    if (s.of != ECHI_STRETCH_WAIT) return;
    struct echi_took *wait = waited_for(&t->event, out);
    wait->seconds += seconds;
    wait->count++;
}

ech_status echi_recording_spent(struct echi_recording *r, struct echi_record *record, struct echi_spent *out, struct ech_error *err) {
    struct echi_busy b = {{0}, 0, 0};
    ech_status status;
    while ((status = echi_recording_read(r, record, err)) == ECH_OK && record->kind != 0)
        if (record->kind == ECHI_RECORD_EVENT) take(&record->event, &b, out);
    return status;
}

bool echi_recording_planned(struct echi_recording *r, struct echi_record *record, struct echi_plan *out_plan,
                            struct echi_times times[ECHI_WORLD_MAX]) {
    for (int i = 0; i < r->about.world; i++) times[i].count = 0;
    while (echi_recording_read(r, record, NULL) == ECH_OK && record->kind != 0) {
        const struct echi_event *e = &record->event.event;
        if (record->kind == ECHI_RECORD_SETUP) {
            *out_plan = record->setup.setup.plan;
            return true;
        }
        if (record->kind != ECHI_RECORD_EVENT || e->type != ECHI_EVENT_MESSAGE || e->msg->kind != ECHI_KIND_MEASURED) continue;
        if (e->from < r->about.world && !echi_times_decode(e->bytes, e->len, &times[e->from])) times[e->from].count = 0;
    }
    return false;
}
