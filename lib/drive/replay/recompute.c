/* SPDX-License-Identifier: Apache-2.0
 * The arithmetic of a recorded run again, in one process: every node's slots and stacks (exec.c), filled and read as the
 * recorded events and actions say. The roles' part was checked before (replay.c), so here nothing decides.
 *
 * The nodes' records are merged in a causal order: each node's own order, and a message after its send. That is enough:
 * a payload is copied when it is sent, into the slot that its receiver's event names, or lent (echi_loan.h); a task runs when its
 * first event comes. Between the action that asks for either and the event that ends it nobody else may write what it reads, nor read
 * what it writes (test/unit/sched_sim.h watches that), so the moment in between does not matter; nor does it that the live
 * lane runs urgent tasks in the middle of others, for those have slots and stacks of their own. */
#include "echi_recording.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASKS_OUT 64       /* of one node at a time; roles have far fewer */

struct flight { struct flight *next; const uint8_t *meta; size_t meta_len, at, len; struct echi_slot slot; uint8_t payload[]; };
struct queue { struct flight *first, *last; };
struct task { bool used, ran; struct echi_task task; struct echi_result result; };

struct node {
    struct echi_recording *recording;
    struct echi_setup setup;
    struct echi_node_role role;           /* for its plan; it hosts nothing */
    struct echi_exec *exec;
    struct task task[TASKS_OUT];
    struct echi_record record;
    bool loaded, over;                    /* `record` is the next one; there is none */
};

struct run {
    const struct echi_job *job;
    int world;
    struct node *node;
    struct queue *queue;                  /* [from][to][kind] */
    echi_real *params;
    struct echi_plan next;                /* for whose slots a node is asked */
    uint64_t tasks, payloads;
    struct ech_error *err;
};

static ech_status fail_at(const struct run *x, const struct node *n, ech_status status, const char *what) {
    char event[160];
    echi_event_text(&n->record.event, event, sizeof event);
    const int rank = n->recording->about.rank;
    return echi_fail_at(x->err, status, "replay.compute", rank, NULL, "rank %d, event %llu, %s (%s): %s", rank,
                        (unsigned long long)n->recording->events, echi_role_name(n->record.event.role), event, what);
}

/* --------------------------------------------------------------- messages */

static struct queue *queue_of(struct run *x, int from, int to, int kind) {
    return &x->queue[((size_t)from * (size_t)x->world + (size_t)to) * ECHI_KINDS + (size_t)kind];
}

/* What a message carries, as the sender's slot says. */
static bool extent(const struct run *x, const struct node *n, const struct echi_msg *m, struct echi_slot slot, size_t *at, size_t *len,
                   uint8_t **out_base) {
    size_t room = 0;
    if (!echi_job_knows(x->job, &n->setup.plan, m)) return false;
    echi_job_extent(x->job, &n->setup.plan, m->kind, m, m->to_role == ECHI_ROLE_HEAD || m->from_role == ECHI_ROLE_HEAD, at, len);
    *out_base = echi_exec_slot(n->exec, slot, &room);
    return *out_base && *at <= room && *len <= room - *at;
}

static ech_status send(struct run *x, struct node *n, const struct echi_traced_action *a) {
    const struct echi_msg *m = &a->action.msg;
    size_t at = 0, len = 0;
    uint8_t *base = NULL;
    if (a->action.to >= x->world) return fail_at(x, n, ECH_E_MISMATCH, "it sends to a rank that is not there");
    if (m->to_role == ECHI_ROLE_NODE) return ECH_OK;   /* it carries nothing that is computed on */
    if (echi_kind_has_payload(m->kind) && !extent(x, n, m, a->action.slot, &at, &len, &base))
        return fail_at(x, n, ECH_E_MISMATCH, "it sends from a slot that this node does not have");
    if (len) len = echi_job_length(&n->setup.plan, m->kind, base + at, len);
    const size_t copied = echi_lends(&n->setup.plan, n->recording->about.rank, a->action.to, (enum echi_kind)m->kind) ? 0 : len;
    struct flight *f = malloc(sizeof *f + copied);
    if (!f) return echi_fail_memory(x->err, "replay.compute", "a message");
    *f = (struct flight){.meta = a->meta, .meta_len = a->meta_len, .at = at, .len = len, .slot = a->action.slot};
    if (copied) memcpy(f->payload, base + at, copied);
    struct queue *q = queue_of(x, n->recording->about.rank, a->action.to, m->kind);
    if (q->first) q->last->next = f;
    else q->first = f;
    q->last = f;
    return ECH_OK;
}

/* Takes what was sent out of its queue; parts overtake one another. NULL: it was not sent yet. */
static struct flight *arrive(struct queue *q, const struct echi_traced *t) {
    struct flight *f = q->first, *before = NULL;
    for (; f && (f->meta_len != t->meta_len || memcmp(f->meta, t->meta, f->meta_len) != 0); f = f->next) before = f;
    if (!f) return NULL;
    if (before) before->next = f->next;
    else q->first = f->next;
    if (q->last == f) q->last = before;
    return f;
}

static ech_status place(struct run *x, struct node *n, const struct flight *f) {
    const struct echi_traced *t = &n->record.event;
    size_t at, len;
    uint8_t *base;
    /* The coordinator takes parts into places of their own, and its driver puts them together (node_events.c). Those of a
     * checkpoint go into a file. */
    const bool part = t->role == ECHI_ROLE_COORDINATOR;
    if (part && t->msg.flag != ECHI_PARAMS_PART) return ECH_OK;
    const bool lent = echi_lends(&n->setup.plan, t->event.from, n->recording->about.rank, (enum echi_kind)t->event.msg->kind);
    const struct echi_slot to = part ? echi_job_params_slot(&n->setup.plan, t->event.msg) : t->event.slot;
    if (lent) echi_loans_begin(&n->role.loans, (enum echi_kind)t->event.msg->kind, to, f->slot);
    if (!extent(x, n, t->event.msg, to, &at, &len, &base) || f->len > len ||
        (f->len < len && !echi_job_coded(&n->setup.plan, t->event.msg->kind)))
        return fail_at(x, n, ECH_E_MISMATCH, "it does not fit into that slot");
    if (part) echi_job_take_params(x->job, &n->setup.plan, t->event.from, t->event.msg, f->payload, base);
    else if (!lent) memcpy(base + at, f->payload, f->len);   /* a coded one is as long as it says */
    x->payloads++;
    return ECH_OK;
}

/* ------------------------------------------------------------------ tasks */

static bool same_task(const struct echi_task *a, const struct echi_task *b) {
    uint8_t x[1024], y[1024];
    struct echi_writer wx = echi_writer_over(x, sizeof x), wy = echi_writer_over(y, sizeof y);
    echi_task_put(&wx, a);
    echi_task_put(&wy, b);
    return wx.at - x == wy.at - y && memcmp(x, y, (size_t)(wx.at - x)) == 0;
}

static bool same_result(const struct echi_task *t, const struct echi_result *a, const struct echi_result *b) {
    uint8_t x[1024], y[1024];
    struct echi_writer wx = echi_writer_over(x, sizeof x), wy = echi_writer_over(y, sizeof y);
    echi_result_put(&wx, t, a);
    echi_result_put(&wy, t, b);
    return memcmp(x, y, (size_t)(wx.at - x)) == 0;
}

static ech_status begin_task(struct run *x, struct node *n, const struct echi_task *t) {
    for (int i = 0; i < TASKS_OUT; i++) {
        if (n->task[i].used) continue;
        n->task[i] = (struct task){.used = true, .task = *t};
        return ECH_OK;
    }
    return fail_at(x, n, ECH_E_MISMATCH, "more tasks are out than a node can have");
}

static ech_status on_task(struct run *x, struct node *n, const struct echi_event *e) {
    struct task *t = NULL;
    for (int i = 0; i < TASKS_OUT && !t; i++)
        if (n->task[i].used && same_task(&n->task[i].task, e->task)) t = &n->task[i];
    if (!t) return fail_at(x, n, ECH_E_MISMATCH, "nobody has asked for that task");
    /* A checkpoint is a file, and no arithmetic; of an evaluation that a stop ended nothing was kept. */
    if (e->task->kind == ECHI_TASK_KEEP || (e->task->kind == ECHI_TASK_EVAL && e->result->accuracy == ECHI_NO_ACCURACY)) {
        t->used = false;
        return ECH_OK;
    }
    if (!t->ran) {
        ECHI_TRY(echi_exec_run(n->exec, &t->task, &t->result, x->err));
        t->ran = true;
        x->tasks++;
    }
    char what[160];
    snprintf(what, sizeof what, "the arithmetic differs: the recorded loss is %.17g, this one %.17g (accuracy %.6g, %.6g)",
             e->result->loss[0], t->result.loss[0], e->result->accuracy, t->result.accuracy);
    if (!same_result(&t->task, &t->result, e->result)) return fail_at(x, n, ECH_E_MISMATCH, what);
    if (e->type == ECHI_EVENT_COMPUTED) t->used = false;
    return ECH_OK;
}

/* ---------------------------------------------------------------- records */

static ech_status stand(struct run *x, struct node *n) {
    const struct echi_recorded_setup *s = &n->record.setup;
    const int rank = n->recording->about.rank;
    char kernels[sizeof s->kernels];
    struct echi_setup *own = &n->setup;
    echi_job_setup(x->job, &s->setup.plan, rank, own);
    if (own->norms != s->setup.norms || memcmp(own->norm, s->setup.norm, (size_t)own->norms) != 0)
        return echi_fail(x->err, ECH_E_MISMATCH, "replay.compute",
                         "the recorded run exchanged the sums of %d batch-norms, this model has %d in their places", s->setup.norms,
                         own->norms);
    n->setup = s->setup;
    if (s->setup.n_layers != x->job->n_layers)
        return echi_fail(x->err, ECH_E_MISMATCH, "replay.compute",
                         "the recorded plan is for a model of %d layers with parameters, this one has %d", s->setup.n_layers,
                         x->job->n_layers);
    ECHI_TRY(echi_job_takes(x->job, &s->setup.plan, x->err));
    ECHI_TRY(echi_exec_setup(n->exec, &n->setup, x->err));
    echi_exec_kernels(n->exec, kernels, sizeof kernels);
    if (strcmp(kernels, s->kernels) != 0)
        return echi_fail_at(x->err, ECH_E_MISMATCH, "replay.compute", rank, NULL,
                            "rank %d computed with other kernels: recorded '%.150s', here '%.150s'; replay it on a machine like that one",
                            rank, s->kernels, kernels);
    if (rank == 0)
        memcpy(echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL), x->params,
               x->job->n_params * sizeof *x->params);
    return ECH_OK;
}

static ech_status regroup(struct run *x, struct node *n) {
    echi_node_role_next(&n->role, &x->next);
    ECHI_TRY(echi_exec_regroup(n->exec, &x->next, x->err));
    return x->next.coming == 1 + n->setup.rank ? echi_exec_later_head(n->exec, &x->next, x->err) : ECH_OK;
}

/* One event with its actions; *out_waits when its message has not been sent yet. */
static ech_status perform(struct run *x, struct node *n, bool *out_waits) {
    const struct echi_traced *t = &n->record.event;
    const struct echi_event *e = &t->event;
    if (e->type == ECHI_EVENT_MESSAGE && t->role != ECHI_ROLE_NODE && e->msg->from_role != ECHI_ROLE_NODE) {
        struct flight *f = arrive(queue_of(x, e->from, n->recording->about.rank, e->msg->kind), t);
        *out_waits = !f;
        if (!f) return ECH_OK;
        ech_status status = f->len ? place(x, n, f) : ECH_OK;
        free(f);
        ECHI_TRY(status);
    }
    if (t->role == ECHI_ROLE_NODE) {
        struct echi_action asked[8];   /* what is recorded counts */
        echi_node_role_step(&n->role, ECHI_ROLE_NODE, e, &(struct echi_actions){asked, 0, 8, false});
    }
    if (e->type == ECHI_EVENT_GRADIENT || e->type == ECHI_EVENT_COMPUTED) ECHI_TRY(on_task(x, n, e));
    struct echi_reader r = echi_reader_over(t->actions, t->actions_len);
    struct echi_traced_action a;
    while (echi_trace_next_action(&r, &a)) {
        if (a.action.type == ECHI_ACTION_SEND) ECHI_TRY(send(x, n, &a));
        if (a.action.type == ECHI_ACTION_POST) echi_loans_end(&n->role.loans, a.action.slot);
        if (a.action.type == ECHI_ACTION_COMPUTE) ECHI_TRY(begin_task(x, n, &a.action.task));
        if (a.action.type == ECHI_ACTION_SLOTS && n->role.planned) ECHI_TRY(regroup(x, n));
    }
    return ECH_OK;
}

/* Goes on with one node until it is over or waits for another. */
static ech_status advance(struct run *x, struct node *n, bool *out_moved) {
    while (!n->over) {
        bool waits = false;
        if (!n->loaded) {
            ECHI_TRY(echi_recording_read(n->recording, &n->record, x->err));
            n->loaded = true;
        }
        if (n->record.kind == 0 || n->record.kind == ECHI_RECORD_END) n->over = true;
        if (n->record.kind == ECHI_RECORD_SETUP) ECHI_TRY(stand(x, n));
        if (n->record.kind == ECHI_RECORD_EVENT) ECHI_TRY(perform(x, n, &waits));
        if (waits) break;
        n->loaded = false;
        *out_moved = true;
    }
    return ECH_OK;
}

/* Of the message that a node waits for. */
static const struct node *sender(const struct run *x, const struct node *n) { return &x->node[n->record.event.event.from]; }

static bool breaks_off(const struct node *n) { return n->over && !n->recording->ended; }

/* Where a recording breaks off, others wait for those that wait for it: its own receiver is the one to name. */
static ech_status merge(struct run *x) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < x->world; r++) ECHI_TRY(advance(x, &x->node[r], &moved));
    }
    const struct node *waiting = NULL;
    for (int r = 0; r < x->world; r++) {
        const struct node *n = &x->node[r];
        if (n->over) continue;
        if (breaks_off(sender(x, n)))
            return fail_at(x, n, ECH_E_MISMATCH,
                           "the sender's recording breaks off before that: its disk was full, or its machine stopped; only roles can be "
                           "replayed (--roles)");
        if (!waiting) waiting = n;
    }
    return waiting ? fail_at(x, waiting, ECH_E_MISMATCH, "nobody has sent that: are these the recordings of one run?") : ECH_OK;
}

ech_status echi_recompute(struct echi_recording *recording, int world, const struct echi_job *job, echi_real *params, uint64_t *out_tasks,
                          uint64_t *out_payloads, struct ech_error *err) {
    struct run x = {.job = job, .world = world, .params = params, .err = err};
    ech_status status = ECH_OK;
    x.node = calloc((size_t)world, sizeof *x.node);
    x.queue = calloc((size_t)world * (size_t)world * ECHI_KINDS, sizeof *x.queue);
    if (!x.node || !x.queue) {
        status = echi_fail_memory(err, "replay.compute", "the nodes of a run");
        goto out;
    }
    for (int r = 0; r < world; r++) {
        struct node *n = &x.node[r];
        const struct echi_about *about = &recording[r].about;
        enum echi_cpu_level level = echi_cpu_level();
        echi_cpu_level_named(about->isa, &level);   /* the caller has seen that there is such a one here */
        n->recording = &recording[r];
        echi_node_role_init(&n->role, &n->setup, r, world, about->session);
        echi_recording_rewind(n->recording);
        ECHI_TRY_GOTO(echi_exec_create(job, about->device, (int)about->threads, level, NULL, &n->exec, err), out);
        echi_exec_use_loans(n->exec, &n->role.loans);
    }
    status = merge(&x);
    if (status == ECH_OK && x.node[0].setup.n_layers > 0) {
        const bool ended = recording[0].ended && recording[0].end.has_weights;
        size_t bytes = 0;
        const void *whole = echi_exec_slot(x.node[0].exec, ended ? recording[0].end.whole : (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0},
                                           &bytes);
        if (!whole || bytes < job->n_params * sizeof *params)
            status = echi_fail(err, ECH_E_FORMAT, "replay.compute", "the recording says that the trained weights are where none can be");
        else
            memcpy(params, whole, job->n_params * sizeof *params);
    }
    *out_tasks = x.tasks;
    *out_payloads = x.payloads;
out:
    for (int r = 0; x.node && r < world; r++) echi_exec_destroy(x.node[r].exec);
    for (size_t q = 0; x.queue && q < (size_t)world * (size_t)world * ECHI_KINDS; q++)
        while (x.queue[q].first) {
            struct flight *f = x.queue[q].first;
            x.queue[q].first = f->next;
            free(f);
        }
    free(x.queue);
    free(x.node);
    return status;
}
