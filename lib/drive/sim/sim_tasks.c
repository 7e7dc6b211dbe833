/* SPDX-License-Identifier: Apache-2.0
 * Tasks: what they cost, by the profile, and their arithmetic, which is done at the first moment at which anybody could see it. That
 * is early enough, and not too early: between the action that asks for a task and the event that ends it nobody else writes what it
 * reads, nor reads what it writes (test/unit/sched_sim.h watches that).
 *
 * Not in the price: what --deterministic costs more. */
#include "echi_sim.h"
#include "echi_error.h"
#include "echi_ratio.h"

/* ----------------------------------------------------------------- shapes */

static void add_unit(struct echi_sim_shape *to, double time, int layer) {
    const int i = to->shape.units++;
    to->until[i] = (i > 0 ? to->until[i - 1] : 0) + time;
    to->layer[i] = layer;
}

/* Layers [first, end), in steps of n samples. */
static void add_forward(const struct echi_sim *s, struct echi_sim_shape *to, int first, int end, uint32_t n) {
    for (int l = first; l < end; l++) add_unit(to, echi_times_unit(&s->times, l, ECHI_FORWARD, n), -1);
}

static void add_backward(const struct echi_sim *s, struct echi_sim_shape *to, int first, int end, uint32_t n) {
    for (int l = end - 1; l >= first; l--) add_unit(to, echi_times_unit(&s->times, l, ECHI_BACKWARD, n), l);
}

/* Gradients are told of as the live lane tells of them: once so many bytes are there, the rest with the end. */
static void finish(const struct echi_sim *s, struct echi_sim_shape *to) {
    const int last = to->shape.units - 1;
    const size_t number = s->node[0].setup.plan.deterministic ? sizeof(int64_t) : sizeof(echi_real);
    size_t untold = 0;
    for (int i = 0; i <= last; i++) {
        untold += to->layer[i] >= 0 ? s->job->layer[to->layer[i]].count * number : 0;
        to->mark[i] = untold >= ECHI_WORTH_A_WAKE;
        if (to->mark[i]) untold = 0;
        to->until[i] /= to->until[last];
    }
    to->shape.until = to->until;
    to->shape.mark = to->mark;
}

void echi_sim_make_shapes(struct echi_sim *s) {
    const int cut = s->node[0].setup.cut, all = s->job->n_layers;
    const struct echi_times *t = &s->times;
    s->times = s->profile->times;
    if (cut < all) echi_times_recut(&s->times, cut);   /* hosts have measured with the usual cut, or the one asked for */
    for (int i = 0; i < t->sizes; i++) {
        struct echi_sim_shapes *of = &s->shapes[i];
        const uint32_t n = t->n[t->size[i]];
        add_forward(s, &of->forward, 0, cut, n);
        add_backward(s, &of->backward, 0, cut, n);
        add_forward(s, &of->step, 0, all, n);   /* without a cut all is trunk */
        add_backward(s, &of->step, 0, all, n);
        finish(s, &of->forward);
        finish(s, &of->backward);
        finish(s, &of->step);
    }
}

static const struct echi_sim_shape *shape_of(const struct echi_sim *s, const struct echi_task *t) {
    switch (t->kind) {
    case ECHI_TASK_STEP: return &s->shapes[echi_times_nearest(&s->times, t->lease.n)].step;
    case ECHI_TASK_FORWARD: return &s->shapes[echi_times_nearest(&s->times, t->lease.n)].forward;
    case ECHI_TASK_BACKWARD: return &s->shapes[echi_times_nearest(&s->times, t->lease.n)].backward;
    default: return NULL;
    }
}

/* The unit of its shape with which a part of a step begins (struct echi_task): that of a batch-norm, or one past the end. */
static int part_begins(const struct echi_sim *s, int rank, const struct echi_task *t, int part) {
    const struct echi_setup *u = &s->node[rank].setup;
    const bool forward = part <= u->norms;
    if (t->kind == ECHI_TASK_BACKWARD ? forward : part == 0) return 0;
    if (t->kind == ECHI_TASK_FORWARD ? !forward : part > 2 * u->norms) return shape_of(s, t)->shape.units;
    const int layer = u->norm[forward ? part - 1 : 2 * u->norms - part];
    return forward ? layer : shape_of(s, t)->shape.units - 1 - layer;   /* a shape ends with the backward unit of layer 0 */
}

/* The units of its shape that a task computes: a step may be several tasks, which end in front of batch-norms, or of layers whose weights
 * were not there. */
static void units_of(const struct echi_sim *s, int rank, const struct echi_task *t, int *first, int *end) {
    const bool exchanges = t->norm.kind || t->sums.kind;
    *first = exchanges ? part_begins(s, rank, t, t->part) : t->from;
    *end = exchanges ? part_begins(s, rank, t, t->part + 1) : t->until > 0 ? t->until : shape_of(s, t)->shape.units;
}

/* ----------------------------------------------------------------- prices */

void echi_sim_times(const struct echi_sim *s, int rank, struct echi_times *out) {
    const struct echi_host *h = &s->hosts->host[rank];
    int crowd = 0;
    for (int r = 0; r < s->world && h->cores >= 0; r++) crowd += s->hosts->host[r].cores == h->cores;
    const double slow = echi_cost_slow(s->cost, rank), shared = h->cores >= 0 ? (double)crowd / s->hosts->pool_cores[h->cores] : 0;
    const double owned = h->quota > 0 ? h->quota / h->period : 1;
    const double alone = 1 / owned, crowded = shared > alone ? shared : alone, longer = slow * crowded;   /* all measure at once */
    const double io_speed = s->io_speed ? s->io_speed[rank] : h->speed;
    *out = s->profile->times;
    for (uint32_t i = 0; i < out->count; i++) {
        out->trunk[i] *= longer / h->speed;
        out->head[i] *= longer / h->speed;
    }
    out->exchange = (out->exchange - out->add) * longer / io_speed + out->add * longer / h->speed;   /* tasks add */
    out->add *= longer / h->speed;
    out->update *= longer / h->speed;
    out->messages *= longer / io_speed;
    out->link = echi_link_known(&s->link[rank]) ? s->link[rank] : echi_link_of(h->rate);
    out->jitter = h->jitter;
    out->stutter = h->stutter;
    out->stutter_factor = h->stutter_factor;
    out->quota = h->quota;
    out->period = h->period;
    if (h->cores >= 0) out->machine = (struct echi_machine){(uint64_t)h->cores + 1, ECHI_PROCESSOR,
                                                            (uint16_t)s->hosts->pool_cores[h->cores], crowded / alone};
    out->delay = h->delay;
}

static double parameters(const struct echi_sim *s, int rank, bool of_head) {
    return (double)echi_job_kept(s->job, &s->node[rank].setup.plan, rank, of_head);
}

/* Of a worker: all that it has gradients of. */
static double pushed(const struct echi_sim *s, int rank) {
    size_t at, count;
    echi_job_range(s->job, &s->node[rank].setup.plan, false, &at, &count);
    return (double)count;
}

/* Those that an owner's task is about. */
static double of_task(const struct echi_sim *s, int rank, const struct echi_task *t) {
    return t->only ? s->node[rank].setup.plan.parts.part[t->only - 1].count : parameters(s, rank, false);
}

/* Of one that is about a part: pushes, and the ring's sum. */
static int summands(const struct echi_task *t) { return t->n_rows + (t->ring.kind != ECHI_SLOT_NONE); }

/* Weights from w0 and the states that are there. */
static double summing(const struct echi_sim *s, int rank, const struct echi_task *t) {
    const struct echi_plan *p = &s->node[rank].setup.plan;
    int summands = 2;
    for (int g = 0; g < p->n_groups; g++) summands += p->owner_of[g] != rank && t->peer[g] != ECHI_NONE;
    return s->profile->refresh * summands * parameters(s, rank, false);
}

static bool coded(const struct echi_sim *s, int rank) { return s->node[rank].setup.plan.codec != ECHI_CODEC_DENSE; }

/* All gradients of a step, weights or a state, on their way out. */
static double coding(const struct echi_sim *s, int rank, uint32_t ratio) {
    return coded(s, rank) ? echi_write_cost(ratio) * s->profile->apply * parameters(s, rank, false) : 0;
}

/* What has come, from this node or another. */
static double reading(const struct echi_sim *s, int rank, int from, uint32_t ratio) {
    return coded(s, rank) ? echi_read_cost(from == rank ? ECHI_RATIO_ONE : ratio) * s->profile->apply * parameters(s, rank, false) : 0;
}

static double reading_push(const struct echi_sim *s, int rank, const struct echi_lease *lease) {
    const struct echi_plan *p = &s->node[rank].setup.plan;
    return reading(s, rank, lease->worker, echi_lease_ratio(p, p->group_of[lease->worker], lease));
}

/* Weights, or a state; that some are complete is left out. */
static double reading_state(const struct echi_sim *s, int rank, const struct echi_task *t) {
    const struct echi_plan *p = &s->node[rank].setup.plan;
    const bool state = t->coded.kind == ECHI_SLOT_OWNER_PEER_CODED;
    return reading(s, rank, p->owner_of[state ? t->coded.index : p->group_of[rank]], p->state_ratio);
}

/* Seconds on the profile's machine. *part: of them, up to the gradients of a head's rows: before its update, and, which is later than in
 * a run, behind its sum. */
static double price(struct echi_sim *s, int rank, const struct echi_task *t, double *part) {
    struct echi_sim_node *n = &s->node[rank];
    const struct echi_profile *p = s->profile;
    switch ((enum echi_task_kind)t->kind) {
    case ECHI_TASK_HEAD: {
        const double rows = echi_times_head(&s->times, t->samples);
        if (t->weights_out.kind == ECHI_SLOT_NONE && t->state.kind == ECHI_SLOT_NONE) return rows;
        const double each = t->weights_out.kind != ECHI_SLOT_NONE ? p->apply : t->first ? 0 : p->add;
        const double all = rows + each * parameters(s, rank, true);
        *part = ECHI_HEAD_ANSWERS * rows / all;
        return all;
    }
    case ECHI_TASK_HEAD_APPLY: return (p->apply + p->add * t->n_rows) * parameters(s, rank, true);
    case ECHI_TASK_NORM: return p->add * t->n_rows * (double)s->job->layer[t->layer].running;
    case ECHI_TASK_ADD: return p->add * of_task(s, rank, t) * (t->grads.kind ? 1 : summands(t)) + reading_push(s, rank, &t->lease);
    case ECHI_TASK_APPLY:
        return (p->apply + p->add * summands(t)) * of_task(s, rank, t) +
               (t->grads.kind == ECHI_SLOT_OWNER_GRADS ? reading_push(s, rank, &t->lease) : 0) +
               (t->state_out.kind != ECHI_SLOT_NONE ? summing(s, rank, t) : 0);
    case ECHI_TASK_ENCODE: return coding(s, rank, t->ratio);
    case ECHI_TASK_DECODE: return reading_state(s, rank, t);
    case ECHI_TASK_REFRESH: return summing(s, rank, t);
    case ECHI_TASK_TAKE: return p->add * of_task(s, rank, t);
    case ECHI_TASK_STATE: return p->refresh * 2 * parameters(s, rank, false);
    case ECHI_TASK_BACKWARD:
        return (echi_times_trunk(&s->times, t->lease.n) - echi_times_forward(&s->times, t->lease.n)) * n->factor[t->flight] +
               (t->coded.kind ? coding(s, rank, t->ratio) : 0) + (t->own.kind ? p->add * pushed(s, rank) : 0);
    case ECHI_TASK_STEP: return echi_times_whole(&s->times, t->lease.n) * n->factor[t->flight] + coding(s, rank, t->ratio);
    case ECHI_TASK_FORWARD: return echi_times_forward(&s->times, t->lease.n) * n->factor[t->flight];
    case ECHI_TASK_EVAL: return p->eval * s->job->test_samples;
    case ECHI_TASK_LOCAL_APPLY:
    case ECHI_TASK_LOCAL_DELTA:   /* as an apply they read and write four or five arrays, and memory is what takes the time */
    case ECHI_TASK_LOCAL_JOIN: return p->apply * parameters(s, rank, false);
    case ECHI_TASK_KEEP: /* there are no checkpoints */
    case ECHI_TASKS: break;
    }
    return 0;
}

/* ------------------------------------------------------------------ tasks */

void echi_sim_compute(struct echi_sim *s, int rank, const struct echi_task *task) {
    struct echi_sim_node *n = &s->node[rank];
    const uint32_t id = echi_records_take(&s->tasks);
    if (id == ECHI_NOTHING) return echi_sim_no_memory(s);
    struct echi_sim_task *t = echi_records_at(&s->tasks, id);
    t->node = (uint16_t)rank;
    t->ran = false;
    t->told = n->setup.cut;
    t->task = *task;
    if ((task->kind == ECHI_TASK_STEP || task->kind == ECHI_TASK_FORWARD) && task->part == 0 && task->from == 0 && task->micro == 0)
        n->factor[task->flight] = echi_hosts_step_factor(s->hosts, s->config->seed, rank, n->steps++);
    struct echi_work w = {.urgency = task->kind, .while_held = task->kind == ECHI_TASK_EVAL, .cookie = id};
    const struct echi_sim_shape *shape = shape_of(s, task);
    if (shape) units_of(s, rank, task, &w.first, &w.end);
    if (w.first < w.end) {
        w.shape = &shape->shape;
        if (shape->layer[w.first] >= 0) t->told = shape->layer[w.first] + 1;
    }
    if (!shape || w.shape) w.seconds = price(s, rank, task, &w.part);   /* nothing is in front of a batch-norm that a model begins with */
    echi_cost_compute(s->cost, rank, &w);
}

static const struct echi_result nothing;   /* of a task that is not computed */

/* False when it failed, and the run with it. */
static bool run(struct echi_sim *s, struct echi_sim_task *t) {
    if (t->ran || !s->real) return true;
    t->result = nothing;
    ech_status status = echi_exec_run(s->node[t->node].exec, &t->task, &t->result, s->err);
    t->ran = true;
    if (status != ECH_OK) echi_sim_end(s, status);
    return status == ECH_OK;
}

static void tell(struct echi_sim *s, const struct echi_sim_task *t, enum echi_event_type type, int layer) {
    struct echi_event e = {.type = (uint8_t)type, .layer = layer, .task = &t->task, .result = s->real ? &t->result : &nothing};
    if (!s->over) echi_sim_event(s, t->node, (enum echi_role)t->task.role, &e);
}

/* The gradients of the layers down to this one are there. */
static void tell_gradients(struct echi_sim *s, struct echi_sim_task *t, int layer) {
    while (t->told > layer && t->task.micro + 1 >= t->task.micros) tell(s, t, ECHI_EVENT_GRADIENT, --t->told);
}

void echi_sim_on_mark(struct echi_sim *s, uint32_t id, int unit) {
    struct echi_sim_task *t = echi_records_at(&s->tasks, id);
    if (!run(s, t)) return;
    const struct echi_sim_shape *shape = shape_of(s, &t->task);
    if (shape) tell_gradients(s, t, shape->layer[unit]);
    else tell(s, t, ECHI_EVENT_GRADIENT, 0);
}

void echi_sim_on_done(struct echi_sim *s, uint32_t id) {
    struct echi_sim_task *t = echi_records_at(&s->tasks, id);
    if (!run(s, t)) return;
    const struct echi_sim_shape *shape = shape_of(s, &t->task);
    if (shape) {
        int first, end;
        units_of(s, t->node, &t->task, &first, &end);
        if (end > 0 && shape->layer[end - 1] >= 0) tell_gradients(s, t, shape->layer[end - 1]);
    }
    tell(s, t, ECHI_EVENT_COMPUTED, 0);
    echi_records_give(&s->tasks, id);
}
