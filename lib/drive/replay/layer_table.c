/* SPDX-License-Identifier: Apache-2.0
 * What a step of one rank takes by layer: the rows that Shi, Wang, Chu, Li, "A DAG Model of Synchronous Stochastic Gradient Descent in
 * Distributed Deep Learning" (ICPADS 2018) publish of their clusters.
 *
 * A recording has the time of a task whole. It is divided among layers as they were measured before the run (echi_times_unit). Where
 * nothing was measured there are the times at which gradients were reported: of layers with enough bytes (ECHI_WORTH_A_WAKE), and by the
 * I/O thread's clock, which may hear of them late. */
#include "echi_recording.h"
#include "echi_print.h"

#include <string.h>

enum { KINDS = ECHI_TASK_FORWARD + 1 };

/* Units [first, end) of one pass. */
struct units { int first, end; };
struct span { struct units pass[ECHI_PASSES]; };

/* A kind of task of which some time is not divided yet. */
struct due { double seconds; bool backward; int above; };   /* backward: a gradient was reported, and all from `above` on have theirs */

struct maker {
    const struct echi_times *times;        /* NULL: not known */
    struct echi_layer_table *out;
    int units, cut;
    bool alone, coded, mark[ECHI_UNITS_MAX];   /* mark: nothing was measured, and its gradient is reported when it is there */
    struct due due[KINDS];
    uint64_t heads;
    struct echi_parts parts;
    /* Parts whose gradients were sent, and whose weights have not come back; the same of layers, with the time of the first. */
    bool away[ECHI_PARTS_MAX];
    uint16_t to[ECHI_PARTS_MAX];
    int parts_away[ECHI_UNITS_MAX];
    int64_t since[ECHI_UNITS_MAX];
    uint64_t exchanges[ECHI_UNITS_MAX];
};

/* ------------------------------------------------------------ what layers compute */

static double weight(const struct maker *m, int unit, int pass, uint32_t n) {
    return m->times ? echi_times_unit(m->times, unit, (enum echi_pass)pass, n) : 0;
}

static void divide(struct maker *m, double seconds, const struct span *s, uint32_t n) {
    double all = 0;
    int count = 0;
    for (int pass = 0; pass < ECHI_PASSES; pass++)
        for (int u = s->pass[pass].first; u < s->pass[pass].end; u++) {
            all += weight(m, u, pass, n);
            count++;
        }
    if (!(all > 0) && count != 1) m->out->undivided += seconds;
    for (int pass = 0; pass < ECHI_PASSES && (all > 0 || count == 1); pass++)
        for (int u = s->pass[pass].first; u < s->pass[pass].end; u++)
            m->out->row[u].seconds[pass] += seconds * (all > 0 ? weight(m, u, pass, n) / all : 1);
}

/* Up to here a task has computed the forward pass of layers that were not yet, and the backward pass of those from `unit` on. */
static void reach(struct maker *m, const struct echi_task *t, int unit) {
    struct due *d = &m->due[t->kind];
    const int end = t->kind == ECHI_TASK_STEP ? m->units : m->cut;
    const bool forward = t->kind == ECHI_TASK_STEP && !d->backward && t->from < m->units;
    const int above = d->backward ? d->above : end;
    const struct span s = {{{forward ? t->from : 0, forward ? m->units : 0}, {unit, above}}};
    divide(m, d->seconds, &s, t->lease.n);
    *d = (struct due){0, true, unit};
}

static void on_gradient(struct maker *m, const struct echi_event *e) {
    const struct due *d = &m->due[e->task->kind < KINDS ? e->task->kind : 0];
    const bool of_trunk = e->task->kind == ECHI_TASK_STEP || e->task->kind == ECHI_TASK_BACKWARD;
    if (of_trunk && e->layer < m->units && m->mark[e->layer] && (!d->backward || e->layer < d->above)) reach(m, e->task, e->layer);
}

/* Parts of a step that end at a batch-norm's sums are divided with the rest of it. */
static void on_computed(struct maker *m, const struct echi_task *t) {
    struct span s = {{{0, 0}, {0, 0}}};
    const bool goes_on = t->sums.kind != ECHI_SLOT_NONE && t->kind != ECHI_TASK_NORM;
    if (t->kind >= KINDS || goes_on) return;
    if (t->kind == ECHI_TASK_HEAD) {
        s.pass[ECHI_FORWARD] = s.pass[ECHI_BACKWARD] = (struct units){m->cut, m->units};
        m->heads++;
    } else if (t->kind == ECHI_TASK_FORWARD || (t->kind == ECHI_TASK_STEP && t->until > 0)) {
        const int end = t->kind == ECHI_TASK_STEP ? m->units : m->cut;
        s.pass[ECHI_FORWARD] = (struct units){t->from, t->until > 0 && t->until < end ? t->until : end};
    } else if (t->kind == ECHI_TASK_STEP || t->kind == ECHI_TASK_BACKWARD) {
        reach(m, t, 0);
        m->due[t->kind] = (struct due){0, false, 0};
        m->out->steps++;
        return;
    } else return;
    divide(m, m->due[t->kind].seconds, &s, t->kind == ECHI_TASK_HEAD ? t->samples : t->lease.n);
    m->due[t->kind].seconds = 0;
}

/* --------------------------------------------------------- what their parameters wait for */

static void leave(struct maker *m, int part, int to, int64_t now) {
    if (part >= m->parts.count || m->away[part]) return;
    m->away[part] = true;
    m->to[part] = (uint16_t)to;
    for (int u = m->parts.part[part].first; u <= m->parts.part[part].last; u++)
        if (m->parts_away[u]++ == 0) m->since[u] = now;
}

static void come_back(struct maker *m, int part, int64_t now) {
    if (part >= m->parts.count || !m->away[part]) return;
    m->away[part] = false;
    for (int u = m->parts.part[part].first; u <= m->parts.part[part].last; u++) {
        if (--m->parts_away[u] > 0) continue;
        m->out->row[u].exchange += (double)(now - m->since[u]) * 1e-9;
        m->exchanges[u]++;
    }
}

static void on_weights(struct maker *m, const struct echi_event *e) {
    if (!m->coded) return come_back(m, e->msg->part, e->now);
    for (int part = 0; part < m->parts.count; part++)   /* one message has all */
        if (m->to[part] == e->from) come_back(m, part, e->now);
}

static void exchange(struct maker *m, const struct echi_traced *t) {
    const struct echi_event *e = &t->event;
    struct echi_reader at = echi_reader_over(t->actions, t->actions_len);
    struct echi_traced_action a;
    if (e->type == ECHI_EVENT_MESSAGE && (e->msg->kind == ECHI_KIND_WEIGHTS || e->msg->kind == ECHI_KIND_RING_WEIGHTS)) on_weights(m, e);
    while (echi_trace_next_action(&at, &a))
        if (a.action.type == ECHI_ACTION_SEND && (a.action.kind == ECHI_KIND_PUSH || a.action.kind == ECHI_KIND_RING_SUM))
            leave(m, a.action.msg.part, a.action.to, e->now);
}

/* ----------------------------------------------------------------- the table */

/* Which gradients are reported when they are there: the last before enough bytes are ready (lib/exec/lane.c). */
static void begin(struct maker *m, const struct echi_setup *s, const struct echi_layers *layers, int real_bytes) {
    uint64_t untold = 0;
    m->units = m->out->count = s->n_layers;
    m->cut = m->out->cut = s->cut;
    m->parts = s->plan.parts;
    m->coded = s->plan.codec != ECHI_CODEC_DENSE;
    m->alone = s->plan.world == 1;
    if (m->times && m->times->units != m->units) m->times = NULL;
    for (int u = m->cut - 1; u >= 0 && layers->count == m->units && !m->times; u--) {
        untold += layers->params[u] * (uint64_t)real_bytes;
        m->mark[u] = untold >= ECHI_WORTH_A_WAKE;
        if (m->mark[u]) untold = 0;
    }
    for (int u = 0; u < m->units && layers->count == m->units; u++) m->out->row[u].bytes = layers->params[u] * (uint64_t)real_bytes;
}

static void mean(struct maker *m) {
    for (int u = 0; u < m->units; u++) {
        struct echi_layer_row *row = &m->out->row[u];
        const uint64_t steps = u < m->cut ? m->out->steps : m->heads;
        for (int pass = 0; pass < ECHI_PASSES && steps > 0; pass++) row->seconds[pass] /= (double)steps;
        if (m->exchanges[u] > 0) row->exchange /= (double)m->exchanges[u];
        else row->exchange = 0;
    }
    if (m->out->steps > 0) m->out->undivided /= (double)m->out->steps;
}

ech_status echi_recording_layers(struct echi_recording *r, struct echi_record *record, const struct echi_layers *layers,
                                 const struct echi_times *times, struct echi_layer_table *out, struct ech_error *err) {
    struct echi_busy busy = {{0}, 0, 0};
    struct maker m = {.times = times && times->count > 0 && times->units > 0 ? times : NULL, .out = out};
    ech_status status;
    memset(out, 0, sizeof *out);
    while ((status = echi_recording_read(r, record, err)) == ECH_OK && record->kind != 0) {
        const struct echi_event *e = &record->event.event;
        if (record->kind == ECHI_RECORD_SETUP && m.units == 0) begin(&m, &record->setup.setup, layers, r->about.real_bytes);
        if (record->kind != ECHI_RECORD_EVENT) continue;
        const struct echi_stretch s = echi_busy_take(&busy, &record->event);
        if (s.of == ECHI_STRETCH_TASK && s.task < KINDS) m.due[s.task].seconds += (double)(s.end - s.begin) * 1e-9;
        if (m.units == 0) continue;
        if (e->type == ECHI_EVENT_GRADIENT) on_gradient(&m, e);
        if (s.done) on_computed(&m, e->task);
        if (!m.alone) exchange(&m, &record->event);
    }
    if (status == ECH_OK) mean(&m);
    return status;
}

size_t echi_layer_table_text(const struct echi_layer_table *t, const struct echi_about *about, char *buf, size_t cap) {
    struct echi_print p = {buf, cap, 0};
    char model[64], data[160];
    echi_print(&p, "# %s on %s, rank %d of %d: mean of %llu steps, in microseconds and bytes\n",
               echi_printable(model, sizeof model, about->model, strlen(about->model)),
               echi_printable(data, sizeof data, about->data, strlen(about->data)), about->rank, about->world,
               (unsigned long long)t->steps);
    echi_print(&p, "# A row is a layer with parameters and those behind it up to the next one; what is in front of the first is in it.\n"
                   "# Forward, Backward: recorded times of tasks, divided by each layer's share as measured before the run.\n"
                   "# Comm.: from a gradient's send until its weights are back, with what they wait for other ranks; 0: never back.\n"
                   "# data: reading a batch is not recorded, so 0.\n");
    if (t->cut < t->count)
        echi_print(&p, "# Layers from layer%d on are the head's: of one visit, which may be of several steps; 0: another rank has it.\n",
                   t->cut);
    if (t->undivided > 0)
        echi_print(&p, "# Nothing was measured before the run: Backward is from times of gradients, and %.3f of a step are in no row.\n",
                   1e6 * t->undivided);
    echi_print(&p, "Id\tName\tForward\tBackward\tComm.\tSize\n0\tdata\t0\t0\t0\t0\n");
    for (int u = 0; u < t->count; u++)
        echi_print(&p, "%d\tlayer%d\t%.3f\t%.3f\t%.3f\t%llu\n", u + 1, u, 1e6 * t->row[u].seconds[ECHI_FORWARD],
                   1e6 * t->row[u].seconds[ECHI_BACKWARD], 1e6 * t->row[u].exchange, (unsigned long long)t->row[u].bytes);
    return p.len;
}
