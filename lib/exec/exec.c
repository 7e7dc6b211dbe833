/* SPDX-License-Identifier: Apache-2.0
 * Tasks made true: the arithmetic on a node's slots, which exec_slots.c makes. */
#include "echi_exec_impl.h"
#include "echi_error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ech_status echi_exec_create(const struct echi_job *job, const char *device, int threads, enum echi_cpu_level level, const char *cache,
                            struct echi_exec **out, struct ech_error *err) {
    struct echi_exec *x = calloc(1, sizeof *x);
    if (!x) return echi_fail_memory(err, "run.exec", "the tasks of this node");
    x->job = job;
    ech_status status = echi_ops_open(device, threads, level, job->kernels, cache, &x->device, err);
    if (status != ECH_OK) {
        echi_exec_destroy(x);
        return status;
    }
    *out = x;
    return ECH_OK;
}

void echi_exec_destroy(struct echi_exec *x) {
    if (!x) return;
    for (int i = 0; i < ECHI_STACKS; i++) echi_stack_destroy(x->trunk[i]);
    echi_stack_destroy(x->head);
    echi_stack_destroy(x->eval);
    for (int k = 0; k < ECHI_SLOT_KINDS; k++)   /* behind the stacks, whose devices may still be writing there */
        for (int i = 0; i < ECHI_WORLD_MAX; i++) echi_buffer_destroy(x->slot[k][i]);
    echi_ahead_destroy(x->ahead);
    echi_samples_destroy(&x->samples);
    echi_samples_destroy(&x->eval_samples);
    free(x->trunk_labels);
    free(x->rows);
    free(x->head_rows);
    free(x->head_rows_grad);
    free(x->head_labels);
    free(x->who);
    free(x->head_who);
    echi_blocks_destroy(x);
    echi_codec_destroy(x);
    echi_buffer_destroy(x->rounded);
    echi_device_close(x->device);
    free(x);
}

struct echi_device *echi_exec_device(struct echi_exec *x) { return x->device; }
void echi_exec_use_lane(struct echi_exec *x, struct echi_lane *lane) { x->lane = lane; }
void echi_exec_use_loans(struct echi_exec *x, const struct echi_loans *loans) { x->loans = loans; }
void echi_exec_use_params(struct echi_exec *x, echi_real *params, bool moves) {
    x->params = echi_device_describe(x->device)->host_memory ? params : NULL;
    x->params_move = moves;
}

void *echi_exec_slot(struct echi_exec *x, struct echi_slot slot, size_t *out_bytes) {
    const struct echi_buffer *buffer = slot.kind < ECHI_SLOT_KINDS && slot.index < ECHI_WORLD_MAX ? *buffer_of(x, slot) : NULL;
    if (!buffer) return NULL;
    if (out_bytes) *out_bytes = echi_buffer_bytes(buffer);
    return echi_buffer_host(buffer);
}

static size_t add_kernels(char *buf, size_t cap, size_t at, const char *name, const struct echi_stack *stack) {
    const int units = stack ? echi_stack_units(stack) : 0;
    for (int u = 0; u < units && at < cap; u++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", u ? ", " : name, echi_stack_kernel(stack, u));
    return at;
}

void echi_exec_kernels(const struct echi_exec *x, char *buf, size_t cap) {
    buf[0] = 0;
    size_t at = add_kernels(buf, cap, 0, "trunk: ", x->trunk[0]);
    at = add_kernels(buf, cap, at, at ? "; head: " : "head: ", x->head);
    add_kernels(buf, cap, at, at ? "; evaluation: " : "evaluation: ", x->eval);
}

static double kib(size_t numbers) { return (double)(numbers * sizeof(echi_real)) / 1024; }

/* `base`: the model's layer that is the stack's first. Where the model goes on, on either side, gradients pass the border as well. */
static void tell_stack(const struct echi_exec *x, const char *name, int base, const struct echi_stack *stack, bool trains,
                       void (*tell)(void *self, const char *line), void *self) {
    char line[240], part[40];
    const int units = stack ? echi_stack_units(stack) : 0;
    size_t inside = 0;
    int first, end = 0;
    for (int u = 0; u < units; u++) {
        echi_stack_unit(stack, u, &first, &end);
        const char *why = echi_stack_why(stack, u);
        const size_t turned = trains ? echi_stack_turned(stack, u) : 0;
        snprintf(part, sizeof part, "; turns %.1f KiB a sample", kib(turned));
        snprintf(line, sizeof line, "kernels: %s, %s: %s%s%s%s%s", name, x->job->model->layers[base + first].name,
                 echi_stack_kernel(stack, u), *why ? " (" : "", why + (*why == ' '), *why ? ")" : "", turned ? part : "");
        tell(self, line);
        inside += turned;
    }
    if (units == 0) return;
    const size_t in = echi_stack_border_in(stack), out = echi_stack_border_out(stack);
    const size_t border = (base > 0 ? 2 : 1) * in + (base + end < x->job->model->n_layers ? 2 : 0) * out;
    snprintf(line, sizeof line,
             "kernels: %s: %.1f MiB of activations and scratch; of a sample %.1f KiB change their layout at the border, %.1f KiB inside",
             name, (double)echi_stack_bytes(stack) / 1048576, kib(border), kib(inside));
    tell(self, line);
}

void echi_exec_tell_kernels(const struct echi_exec *x, void (*tell)(void *self, const char *line), void *self) {
    tell_stack(x, x->job->session ? "head" : "trunk", 0, x->block ? x->block[0] : x->trunk[0], true, tell, self);
    tell_stack(x, "head", echi_job_head(x->job, &x->setup->plan), x->head, true, tell, self);
    tell_stack(x, "evaluation", 0, x->eval, false, tell, self);
}

/* False: the stack is not there. */
static bool tell_fallbacks(const struct echi_exec *x, int base, const struct echi_stack *stack,
                           void (*tell)(void *self, const char *line), void *self) {
    char line[240];
    int first, end;
    for (int u = 0; stack && u < echi_stack_units(stack); u++) {
        if (!echi_stack_fallback(stack, u)) continue;
        echi_stack_unit(stack, u, &first, &end);
        snprintf(line, sizeof line, "layer '%s' runs by %s, many times more slowly than a fast kernel: %s",
                 x->job->model->layers[base + first].name, echi_stack_kernel(stack, u), echi_stack_why(stack, u));
        tell(self, line);
    }
    return stack != NULL;
}

void echi_exec_tell_fallbacks(const struct echi_exec *x, void (*tell)(void *self, const char *line), void *self) {
    const bool trunk = tell_fallbacks(x, 0, x->block ? x->block[0] : x->trunk[0], tell, self);
    const bool head = tell_fallbacks(x, echi_job_head(x->job, &x->setup->plan), x->head, tell, self);
    if (!trunk && !head) tell_fallbacks(x, 0, x->eval, tell, self);   /* else the same layers again */
}

/* -------------------------------------------------------------- tasks */

ech_status echi_exec_train(const struct echi_exec *x, struct echi_stack *stack, const struct echi_row *who, uint32_t n, uint32_t divisor,
                           struct ech_error *err) {
    const struct echi_training training = {x->job->seed, who, (echi_real)n / (echi_real)divisor};
    return echi_stack_train(stack, &training, err);
}

/* Cross-entropy a sample beyond which no run comes back: chance is log(classes), a sure mistake of sane weights some tens. */
#define LOST_LOSS 1e6

double echi_exec_sane_loss(double loss, uint32_t n) { return loss < LOST_LOSS * n ? loss : (double)NAN; }

/* The step's gradients of a layer take in those of this micro-batch. */
static ech_status add_own(struct echi_exec *x, const struct echi_task *task, const struct echi_param_layer *l, struct ech_error *err) {
    if (task->own.kind == ECHI_SLOT_NONE) return ECH_OK;
    return echi_add(x->device, slot(x, task->grads), slot(x, task->own), l->at, l->count, err);
}

static ech_status report_gradients(struct echi_exec *x, const struct echi_task *task, struct echi_stack *stack, int unit,
                                   const struct echi_result *result, struct ech_error *err) {
    int first, end;
    ECHI_TRY(echi_stack_grads(stack, unit, err));
    echi_stack_unit(stack, unit, &first, &end);
    for (int i = x->job->n_layers - 1; i >= 0; i--) {
        if (x->job->layer[i].layer < first || x->job->layer[i].layer >= end) continue;
        size_t bytes = x->job->layer[i].count * sizeof(echi_real);
        ECHI_TRY(add_own(x, task, &x->job->layer[i], err));
        if (task->micro + 1 < task->micros) continue;   /* more is to be added */
        if (task->coded.kind) ECHI_TRY(echi_exec_push(x, task, i, &bytes, err));
        echi_lane_gradient(x->lane, task, i, bytes, result);
    }
    return ECH_OK;
}

/* Training samples as their epoch has them. Data sets give floats. They come to the end of the room for `rows`, which is the same place
 * where echi_real is float. */
ech_status echi_exec_read(const struct echi_job *job, bool test, uint32_t epoch, const uint32_t *index, int n, echi_real *rows,
                          uint16_t *labels, struct ech_error *err) {
    const size_t count = (size_t)n * echi_shape_size(job->data->shape);
    float *given = (float *)(void *)(rows + count) - count;
    const struct echi_augment augment = {job->seed, epoch};
    ECHI_TRY(echi_data_read(job->data, test, job->augment && !test ? &augment : NULL, index, n, given, labels, err));
    for (size_t i = 0; sizeof(echi_real) != sizeof(float) && i < count; i++) {
        float value;
        memcpy(&value, given + i, sizeof value);
        rows[i] = value;
    }
    return ECH_OK;
}

ech_status echi_samples_read(struct echi_samples *s, const struct echi_job *job, const struct echi_lease *l, struct ech_error *err) {
    echi_job_samples(job, l, s->index);
    return echi_exec_read(job, false, l->epoch, s->index, (int)l->n, s->rows, s->labels, err);
}

ech_status echi_exec_samples(struct echi_exec *x, const struct echi_lease *l, struct ech_error *err) {
    struct echi_samples *s = &x->samples;
    echi_job_rows(x->job, l->epoch, l->start, l->n, x->who);
    if (x->ahead) return echi_ahead_take(x->ahead, l, s, err);
    return echi_samples_read(s, x->job, l, err);
}

ech_status echi_exec_read_ahead(struct echi_exec *x, bool spare, struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    if (!x->job->data || p->group_of[x->setup->rank] == ECHI_NONE) return ECH_OK;
    return echi_ahead_create(x->job, echi_plan_step(p, x->setup->rank), spare, &x->ahead, err);
}

bool echi_exec_rests(struct echi_exec *x, int64_t patience) { return !x || echi_ahead_rests(x->ahead, patience); }

void echi_exec_expect(struct echi_exec *x, const struct echi_lease *lease) { echi_ahead_expect(x->ahead, lease); }

static struct echi_stack *trunk_of(const struct echi_exec *x, const struct echi_task *task) { return x->trunk[task->flight + task->micro]; }

/* ---- sync_norm: a step stops at batch-norms, of which the stack's unit norm_unit(i) begins with number i of the setup ---- */

static int norm_unit(const struct echi_stack *stack, int i) {
    int unit = 0;
    while (echi_stack_norm(stack, unit) == 0 || i-- > 0) unit++;
    return unit;
}

static ech_status stop_at(struct echi_exec *x, const struct echi_task *task, int unit, struct ech_error *err) {
    return echi_stack_norm_sums(trunk_of(x, task), unit, slot(x, task->weights), echi_exec_slot(x, task->sums, NULL), err);
}

static ech_status go_on_at(struct echi_exec *x, const struct echi_task *task, int unit, struct ech_error *err) {
    return echi_stack_norm_take(trunk_of(x, task), unit, (int)task->samples, echi_exec_slot(x, task->norm, NULL), err);
}

static ech_status join_norms(struct echi_exec *x, const struct echi_task *task) {
    const int channels = (int)(x->job->layer[task->layer].running / 2);
    uint32_t n = task->samples;
    for (int i = 0; i < task->n_rows; i++) {
        const echi_real *part = echi_exec_slot(x, (struct echi_slot){ECHI_SLOT_OWNER_NORM, task->rows[i]}, NULL);
        echi_norm_join(echi_exec_slot(x, task->sums, NULL), n, part, task->row_count[i], channels, task->part > 0);
        n += task->row_count[i];
    }
    return ECH_OK;
}

/* The stack's unit with the first parameters of this layer (of those with parameters); behind the last: one past the end. */
static int unit_of(const struct echi_exec *x, const struct echi_stack *stack, int layer) {
    int unit = 0, first, end;
    if (layer >= x->setup->cut) return echi_stack_units(stack);
    for (;; unit++) {
        echi_stack_unit(stack, unit, &first, &end);
        if (x->job->layer[layer].layer < end) return unit;
    }
}

/* Those of the samples in a stack: before its forward is at its end another micro-batch may be read. */
static uint16_t *labels_of(const struct echi_exec *x, const struct echi_task *task) {
    return x->trunk_labels + (size_t)(task->flight + task->micro) * x->trunk_rows;
}

static ech_status begin_step(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    const struct echi_lease *l = &task->lease;
    struct echi_stack *trunk = trunk_of(x, task);
    ECHI_TRY(echi_exec_samples(x, l, err));
    if (task->kind == ECHI_TASK_FORWARD) memcpy(labels_of(x, task), x->samples.labels, l->n * sizeof *x->samples.labels);
    ECHI_TRY(echi_stack_input(trunk, (int)l->n, x->samples.rows, err));
    return echi_exec_train(x, trunk, x->who, l->n, task->divisor, err);
}

static ech_status forward(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    const struct echi_lease *l = &task->lease;
    struct echi_buffer *weights = slot(x, task->weights);
    struct echi_stack *trunk = trunk_of(x, task);
    const int units = echi_stack_units(trunk), first = task->part > 0 ? norm_unit(trunk, task->part - 1) : unit_of(x, trunk, task->from);
    const int end = task->sums.kind && task->part < x->setup->norms ? norm_unit(trunk, task->part)
                    : task->until > 0                               ? unit_of(x, trunk, task->until) : units;
    if (task->part > 0) ECHI_TRY(go_on_at(x, task, first, err));
    else if (task->from == 0) ECHI_TRY(begin_step(x, task, err));
    for (int u = first; u < end; u++) {
        ECHI_TRY(echi_stack_forward(trunk, u, weights, err));
        echi_lane_breathe(x->lane, (enum echi_task_kind)task->kind);
    }
    if (task->until > 0) return ECH_OK;
    if (end < units) return stop_at(x, task, end, err);
    if (task->kind == ECHI_TASK_FORWARD) {
        uint8_t *act = echi_exec_slot(x, task->act, NULL);
        ECHI_TRY(echi_exec_rows_out(x, trunk, task, err));
        echi_labels_put(act + l->n * echi_job_row_bytes(x->job, &x->setup->plan), labels_of(x, task), l->n);
        return ECH_OK;
    }
    int correct = 0;
    ECHI_TRY(echi_stack_loss(trunk, x->samples.labels, (echi_real)1 / (echi_real)task->divisor, &result->loss[0], &correct, err));
    result->loss[0] = echi_exec_sane_loss(result->loss[0], l->n);
    result->correct[0] = (uint32_t)correct;
    return ECH_OK;
}

static ech_status backward(struct echi_exec *x, const struct echi_task *task, const struct echi_result *result, struct ech_error *err) {
    struct echi_stack *trunk = trunk_of(x, task);
    const int norms = x->setup->norms, end = task->sums.kind ? norm_unit(trunk, 2 * norms - 1 - task->part) : -1;
    const bool goes_on = task->part > norms;
    const struct echi_slot to = task->own.kind ? task->own : task->grads;
    const int first = goes_on ? norm_unit(trunk, 2 * norms - task->part) : echi_stack_units(trunk) - 1;
    if (goes_on) ECHI_TRY(go_on_at(x, task, first, err));
    int told = first;   /* the unit whose gradients are reported next: a device may send them while it computes those of units before */
    for (int u = first; u > end; u--) {
        ECHI_TRY(echi_stack_backward(trunk, u, slot(x, task->weights), slot(x, to), u > 0, err));
        for (; told >= u && echi_stack_grads_there(trunk, told); told--) ECHI_TRY(report_gradients(x, task, trunk, told, result, err));
        if (u > 0) echi_lane_breathe(x->lane, (enum echi_task_kind)task->kind);
    }
    for (; told > end; told--) ECHI_TRY(report_gradients(x, task, trunk, told, result, err));
    return end >= 0 ? stop_at(x, task, end, err) : ECH_OK;
}

/* As far as its part goes. */
static ech_status step(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    const bool stops_forward = task->until > 0 || (task->sums.kind && task->part < x->setup->norms);
    if (task->part <= x->setup->norms) ECHI_TRY(forward(x, task, result, err));
    return stops_forward ? ECH_OK : backward(x, task, result, err);
}

void echi_exec_set_sum(struct echi_exec *x, const struct echi_task *add) {
    struct echi_buffer **sum = buffer_of(x, add->state), **push = buffer_of(x, add->grads);
    struct echi_buffer *old = *sum;
    *sum = *push;
    *push = old;
}

int echi_exec_ranges(const struct echi_exec *x, const struct echi_task *task, bool of_head, struct echi_range out[ECHI_PARTS_MAX]) {
    if (task->only == 0) return echi_job_ranges(x->job, &x->setup->plan, x->setup->rank, of_head, out);
    const struct echi_part *p = &x->setup->plan.parts.part[task->only - 1];
    out[0] = (struct echi_range){p->at, p->count};
    return 1;
}

/* Pushes of a part are summed so many parameters at a time: the sum stays in a cache while it is read and written for each of them. */
#define SUM_BLOCK ((size_t)1 << 16)

ech_status echi_exec_add_rows(struct echi_exec *x, const struct echi_task *task, struct echi_slot to, bool sets, struct ech_error *err) {
    const struct echi_part *p = &x->setup->plan.parts.part[task->only - 1];
    const struct echi_buffer *push[ECHI_MERGE_STEPS + 1];
    struct echi_buffer *sum = slot(x, to);
    int n = 0;
    if (x->gives) return echi_exec_add_rows_given(x, task, to, sets, err);
    for (; n < task->n_rows; n++) push[n] = slot(x, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, task->rows[n]});
    if (task->ring.kind) push[n++] = slot(x, task->ring);
    for (size_t at = 0; at < p->count && n > 0; at += SUM_BLOCK) {
        const size_t count = p->count - at < SUM_BLOCK ? p->count - at : SUM_BLOCK;
        const struct echi_buffer *first = sets ? push[0] : sum;
        if (x->setup->plan.deterministic)
            ECHI_TRY(echi_exact_add(x->device, sum, first, push + sets, n - sets, p->at + at, count, err));
        else ECHI_TRY(echi_sum_states(x->device, sum, first, push + sets, n - sets, p->at + at, count, err));
    }
    return ECH_OK;
}

/* The round's sum takes in the task's gradients: the first sets it, the others are added. A head's first are computed there. */
static ech_status add(struct echi_exec *x, const struct echi_task *task, bool of_head, struct ech_error *err) {
    struct echi_range range[ECHI_PARTS_MAX];
    if (task->only && task->grads.kind == ECHI_SLOT_NONE) return echi_exec_add_rows(x, task, task->state, task->first, err);
    if (task->only && x->gives) return echi_exec_add_to_ring(x, task, err);
    const int ranges = echi_exec_ranges(x, task, of_head, range);
    if (!of_head && echi_exec_coded(x))
        return echi_codec_read_push(x, task->grads, slot(x, task->state), task->first ? ECHI_DECODE_ZERO : ECHI_DECODE_ADD, err);
    for (int i = 0; i < ranges && !task->first; i++)
        ECHI_TRY(echi_add(x->device, slot(x, task->state), slot(x, task->grads), range[i].at, range[i].count, err));
    if (task->first) echi_exec_set_sum(x, task);
    return ECH_OK;
}

/* Own state and those of the others, in the order of the groups; own_slot is that to use for one's own. */
static ech_status sum_states(struct echi_exec *x, const struct echi_task *task, struct echi_slot own, struct ech_error *err) {
    const struct echi_buffer *states[ECHI_GROUPS_MAX];
    const struct echi_plan *p = &x->setup->plan;
    size_t at, count;
    int n = 0;
    for (int g = 0; g < p->n_groups; g++) {
        if (p->owner_of[g] == x->setup->rank) states[n++] = slot(x, own);
        else if (task->peer[g] != ECHI_NONE) states[n++] = x->slot[ECHI_SLOT_OWNER_PEER][task->peer[g]];
    }
    echi_job_range(x->job, p, false, &at, &count);
    return echi_sum_states(x->device, slot(x, task->weights_out), x->slot[ECHI_SLOT_OWNER_W0][0], states, n, at, count, err);
}

/* What the weights have gone since w0. */
static ech_status take_state(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    struct echi_buffer *state = slot(x, task->state_out);
    size_t at, count;
    echi_job_range(x->job, &x->setup->plan, false, &at, &count);
    ECHI_TRY(echi_sum_states(x->device, state, x->slot[ECHI_SLOT_OWNER_W0][0], NULL, 0, at, count, err));
    ECHI_TRY(echi_scale(x->device, state, at, count, -1, err));
    return echi_add(x->device, state, slot(x, task->weights), at, count, err);
}

/* A part of a lost owner, from a worker's weights; its momentum begins at zero. Adam's two moments, and what they weigh, which is one for
 * all parts, begin anew together: a task without weights. */
static ech_status take_over(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    struct echi_buffer *memory = x->slot[ECHI_SLOT_OWNER_MOMENTUM][0];
    if (!task->only) {
        memset(echi_buffer_host(memory), 0, echi_buffer_bytes(memory));
        return ECH_OK;
    }
    const struct echi_part *part = &p->parts.part[task->only - 1];
    if (echi_plan_remembers(p) && !echi_optimizer_adam(p->optimizer))
        memset((echi_real *)echi_buffer_host(memory) + part->at, 0, part->count * sizeof(echi_real));
    return echi_sum_states(x->device, slot(x, task->weights_out), slot(x, task->weights), NULL, 0, part->at, part->count, err);
}

/* How this push is stepped by. Adam's numbers depend on what is in the moments already, and so does what it leaves there. */
static struct echi_step step_of(struct echi_exec *x, const struct echi_task *task, struct echi_buffer *memory, size_t memory_at) {
    const struct echi_plan *p = &x->setup->plan;
    const double f = (double)task->samples / task->divisor, lr = echi_plan_lr(p, &task->lease, x->job->train_samples);
    if (task->kind == ECHI_TASK_APPLY && echi_policy_of((enum echi_sync)p->sync)->local)   /* decay was in the workers' own steps */
        return (struct echi_step){.rule = ECHI_RULE_NESTEROV, .lr = (echi_real)p->outer_lr, .momentum = (echi_real)p->outer_momentum};
    if (!echi_optimizer_adam(p->optimizer))
        return (struct echi_step){.rule = p->optimizer == ECHI_OPTIMIZER_NESTEROV ? ECHI_RULE_NESTEROV : ECHI_RULE_SGD, .lr = (echi_real)lr,
                                  .momentum = (echi_real)p->momentum, .l2 = (echi_real)(p->decay * task->samples / task->divisor)};
    uint8_t *at = (uint8_t *)echi_buffer_host(memory) + memory_at;
    const bool decoupled = p->optimizer == ECHI_OPTIMIZER_ADAMW;
    struct echi_adam_weights weights = x->adam.weights;
    struct echi_adam_push push = x->adam.push;
    if (!task->only || task->first) {   /* once a round: its other parts are stepped alike */
        memcpy(&weights, at, sizeof weights);
        echi_adam_take(&p->adam, f, &weights, &push);
        memcpy(at, &weights, sizeof weights);
        if (task->only) {
            x->adam.weights = weights;
            x->adam.push = push;
        }
    }
    return (struct echi_step){.rule = ECHI_RULE_ADAM, .lr = (echi_real)(f * lr / weights.first), .per_f = (echi_real)(1 / f),
                              .l2 = decoupled ? 0 : (echi_real)p->decay, .shrink = decoupled ? (echi_real)(f * lr * p->decay) : 0,
                              .keep1 = (echi_real)push.keep1, .gain1 = (echi_real)push.gain1, .keep2 = (echi_real)push.keep2,
                              .gain2 = (echi_real)push.gain2, .whole2 = (echi_real)(1 / weights.second),
                              .epsilon = (echi_real)p->adam.epsilon};
}

/* One step of the parameters [at, at + count): w, or with a state_out the state and then w from all states. `m`: their owner's memory, of a
 * range that begins at `first`. */
static ech_status descend(struct echi_exec *x, const struct echi_task *task, struct echi_buffer *memory, const struct echi_memory *m,
                          size_t first, const struct echi_buffer *grads, size_t at, size_t count, const struct echi_step *how,
                          struct ech_error *err) {
    const struct echi_moments v = {memory, m->first + (at - first), m->second + (at - first)};
    if (count == 0) return ECH_OK;
    if (task->state_out.kind == ECHI_SLOT_NONE)
        return echi_apply(x->device, slot(x, task->weights), slot(x, task->weights_out), &v, grads, at, count, how, err);
    return echi_apply_state(x->device, slot(x, task->weights), slot(x, task->state), slot(x, task->state_out), &v, grads, at, count, how,
                            err);
}

ech_status echi_exec_apply(struct echi_exec *x, const struct echi_task *task, const struct echi_buffer *grads, bool of_head,
                           struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    const bool own = task->kind == ECHI_TASK_LOCAL_APPLY;
    const bool outer = task->kind == ECHI_TASK_APPLY && echi_policy_of((enum echi_sync)p->sync)->local;
    struct echi_buffer *memory = own ? slot(x, task->state) : x->slot[of_head ? ECHI_SLOT_HEAD_MOMENTUM : ECHI_SLOT_OWNER_MOMENTUM][0];
    struct echi_memory m;
    echi_job_memory(x->job, p, own ? p->optimizer : echi_plan_owner_optimizer(p), of_head, &m);
    const struct echi_step how = step_of(x, task, memory, m.at);
    const struct echi_step average = {.lr = outer ? 1 : (echi_real)ECHI_NORM_RATE};   /* running averages are followed, and not learned */
    struct echi_range range[ECHI_PARTS_MAX];
    size_t first, count;
    echi_job_range(x->job, p, of_head, &first, &count);
    const int ranges = echi_exec_ranges(x, task, of_head, range);
    for (int r = 0; r < ranges; r++) {
        size_t at = range[r].at;
        const size_t end = at + range[r].count;
        for (int i = 0; i < x->job->n_layers; i++) {   /* each time what is learned up to a layer's running averages, then these */
            const struct echi_param_layer *l = &x->job->layer[i];
            const size_t behind = l->at + l->count, averages = behind - l->running;
            if (l->running == 0 || behind <= at || averages >= end) continue;
            const size_t from = averages < at ? at : averages, to = behind < end ? behind : end;   /* a part may end among them */
            ECHI_TRY(descend(x, task, memory, &m, first, grads, at, from - at, &how, err));
            ECHI_TRY(descend(x, task, memory, &m, first, grads, from, to - from, &average, err));
            at = to;
        }
        ECHI_TRY(descend(x, task, memory, &m, first, grads, at, end - at, &how, err));
    }
    return task->state_out.kind == ECHI_SLOT_NONE ? ECH_OK : sum_states(x, task, task->state_out, err);
}

static ech_status take_delta(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    return echi_take_delta(x->device, slot(x, task->grads), slot(x, task->weights), slot(x, task->state), 0, x->job->n_params,
                           (echi_real)task->samples / (echi_real)task->divisor, err);
}

static ech_status join(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    return echi_rebase(x->device, slot(x, task->weights_out), slot(x, task->state_out), slot(x, task->weights), 0, x->job->n_params, err);
}

/* A stale push weighs less; its decay does not. */
static ech_status damp(struct echi_exec *x, const struct echi_task *task, struct echi_buffer *grads, struct ech_error *err) {
    size_t at, count;
    if (task->damping == 0) return ECH_OK;
    echi_job_range(x->job, &x->setup->plan, false, &at, &count);
    return echi_scale(x->device, grads, at, count, (echi_real)task->damping, err);
}

ech_status echi_exec_head_pass(struct echi_exec *x, struct echi_stack *stack, const struct echi_task *task, const struct echi_pass_of *of,
                               struct echi_buffer *grads, double *loss, int *correct, struct ech_error *err) {
    struct echi_buffer *weights = slot(x, task->weights);
    const int units = echi_stack_units(stack);
    ECHI_TRY(echi_stack_input(stack, (int)of->n, of->rows, err));
    ECHI_TRY(echi_exec_train(x, stack, of->who, of->n, task->divisor, err));
    for (int u = 0; u < units; u++) ECHI_TRY(echi_stack_forward(stack, u, weights, err));
    ECHI_TRY(echi_stack_loss(stack, of->labels, (echi_real)1 / (echi_real)task->divisor, loss, correct, err));
    for (int u = units - 1; u >= 0; u--) ECHI_TRY(echi_stack_backward_inputs(stack, u, weights, grads, err));
    return echi_stack_input_grad(stack, of->rows_grad, err);
}

ech_status echi_exec_head_params(struct echi_stack *stack, struct echi_buffer *grads, struct ech_error *err) {
    for (int u = echi_stack_units(stack) - 1; u >= 0; u--) ECHI_TRY(echi_stack_backward_params(stack, u, grads, err));
    return echi_stack_grads(stack, 0, err);
}

static ech_status head(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    const size_t width = echi_job_width(x->job, &x->setup->plan), row = echi_job_row_bytes(x->job, &x->setup->plan);
    uint32_t n = 0;
    for (int i = 0; i < task->n_rows; i++) {
        const uint8_t *rows = echi_exec_slot(x, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, task->rows[i]}, NULL);
        echi_exec_get_rows(x, x->head_rows + n * width, rows, task->row_count[i] * width);
        echi_labels_get(rows + task->row_count[i] * row, x->head_labels + n, task->row_count[i]);
        echi_job_rows(x->job, task->row_epoch[i], task->row_start[i], task->row_count[i], x->head_who + n);
        n += task->row_count[i];
    }
    const bool sets_sum = task->state.kind != ECHI_SLOT_NONE && task->first;
    struct echi_buffer *grads = slot(x, sets_sum ? task->state : task->grads);
    const struct echi_pass_of of = {n, x->head_rows, x->head_labels, x->head_who, x->head_rows_grad};
    double loss = 0;
    int correct = 0;
    ECHI_TRY(echi_exec_head_pass(x, x->head, task, &of, grads, &loss, &correct, err));
    loss = echi_exec_sane_loss(loss, n);
    n = 0;
    uint32_t given = 0;
    for (int i = 0; i < task->n_rows; i++) {
        void *rows = echi_exec_slot(x, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, task->rows[i]}, NULL);
        echi_exec_put_rows(x, rows, x->head_rows_grad + n * width, task->row_count[i] * width);
        n += task->row_count[i];
        /* The visit's loss and hits, divided by rows: their sums, which is what is reported, are exact. */
        result->loss[i] = loss * task->row_count[i] / task->samples;
        result->correct[i] = (uint32_t)((uint64_t)correct * n / task->samples) - given;
        given += result->correct[i];
    }
    if (task->state.kind == ECHI_SLOT_NONE && task->weights_out.kind == ECHI_SLOT_NONE) return ECH_OK;   /* rows that came again */
    echi_lane_rows(x->lane, task, result);
    ECHI_TRY(echi_exec_head_params(x->head, grads, err));
    if (sets_sum) return ECH_OK;
    if (task->state.kind != ECHI_SLOT_NONE) return add(x, task, true, err);
    return echi_exec_apply(x, task, slot(x, task->grads), true, err);
}

/* A round's update. Of several heads all add up the same sums in the same order, so their weights stay the same bit for bit. */
static ech_status head_apply(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    const struct echi_buffer *sum[ECHI_HEADS_MAX];
    size_t at, count;
    int n = 0;
    echi_job_range(x->job, &x->setup->plan, true, &at, &count);
    for (; n < task->n_rows; n++) sum[n] = slot(x, (struct echi_slot){ECHI_SLOT_HEAD_SUM, task->rows[n]});
    for (const size_t end = at + count; at < end && n > 0; at += SUM_BLOCK)
        ECHI_TRY(echi_sum_states(x->device, slot(x, task->grads), sum[0], sum + 1, n - 1, at, end - at < SUM_BLOCK ? end - at : SUM_BLOCK,
                                 err));
    return echi_exec_apply(x, task, slot(x, task->grads), true, err);
}

static ech_status eval(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    const uint32_t all = x->job->test_samples;
    const int units = echi_stack_units(x->eval);
    uint32_t hits = 0;
    for (uint32_t at = 0; at < all; at += x->eval_rows) {
        atomic_store(&x->evaluated, at);
        const int n = (int)(all - at < x->eval_rows ? all - at : x->eval_rows);
        for (int i = 0; i < n; i++) x->eval_samples.index[i] = at + (uint32_t)i;
        ECHI_TRY(echi_exec_read(x->job, true, 0, x->eval_samples.index, n, x->eval_samples.rows, x->eval_samples.labels, err));
        ECHI_TRY(echi_stack_input(x->eval, n, x->eval_samples.rows, err));
        if (at > 0) ECHI_TRY(echi_stack_same_params(x->eval, err));
        for (int u = 0; u < units; u++) {
            if (atomic_load(&x->ends_eval)) {   /* the share of hits so far would be the accuracy on another test set */
                result->accuracy = ECHI_NO_ACCURACY;
                return ECH_OK;
            }
            ECHI_TRY(echi_stack_forward(x->eval, u, slot(x, task->weights), err));
            (void)echi_lane_stay(x->lane);   /* the whole test set may take many times as long as a step */
        }
        double loss;
        int correct = 0;
        ECHI_TRY(echi_stack_loss(x->eval, x->eval_samples.labels, 0, &loss, &correct, err));
        hits += (uint32_t)correct;
    }
    result->accuracy = (double)hits / all;
    return ECH_OK;
}

uint32_t echi_exec_evaluated(const struct echi_exec *x) { return atomic_load(&x->evaluated); }
void echi_exec_end_eval(struct echi_exec *x) { atomic_store(&x->ends_eval, true); }

ech_status echi_exec_run(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    struct echi_exec *x = self;
    const bool of_gradients = task->kind != ECHI_TASK_EVAL && task->kind != ECHI_TASK_TAKE;
    if (x->setup->plan.deterministic && of_gradients) return echi_blocks_run(x, task, result, err);
    switch ((enum echi_task_kind)task->kind) {
    case ECHI_TASK_HEAD: return head(x, task, result, err);
    case ECHI_TASK_HEAD_APPLY: return head_apply(x, task, err);
    case ECHI_TASK_ADD: return add(x, task, false, err);
    case ECHI_TASK_APPLY:
        if (task->only) ECHI_TRY(echi_exec_add_rows(x, task, task->grads, !task->summed, err));
        if (!echi_exec_coded(x) || task->grads.kind != ECHI_SLOT_OWNER_GRADS) {   /* of a round: its sum is gradients already */
            ECHI_TRY(damp(x, task, slot(x, task->grads), err));
            return echi_exec_apply(x, task, slot(x, task->grads), false, err);
        }
        ECHI_TRY(echi_codec_read_push(x, task->grads, x->pushed, ECHI_DECODE_ZERO, err));
        ECHI_TRY(damp(x, task, x->pushed, err));
        return echi_exec_apply(x, task, x->pushed, false, err);
    case ECHI_TASK_ENCODE: return echi_codec_encode(x, task, err);
    case ECHI_TASK_DECODE: return echi_codec_decode(x, task, err);
    case ECHI_TASK_REFRESH: return sum_states(x, task, task->state, err);
    case ECHI_TASK_TAKE: return take_over(x, task, err);
    case ECHI_TASK_STATE: return take_state(x, task, err);
    case ECHI_TASK_FORWARD: return forward(x, task, result, err);
    case ECHI_TASK_BACKWARD:
        if (task->part <= x->setup->norms)
            ECHI_TRY(echi_exec_rows_back(x, trunk_of(x, task), task, err));
        return backward(x, task, result, err);
    case ECHI_TASK_STEP: return x->job->session ? echi_exec_given_step(x, task, result, err) : step(x, task, result, err);
    case ECHI_TASK_NORM: return join_norms(x, task);
    case ECHI_TASK_EVAL: return eval(x, task, result, err);
    case ECHI_TASK_LOCAL_APPLY: return echi_exec_apply(x, task, slot(x, task->grads), false, err);
    case ECHI_TASK_LOCAL_DELTA: return take_delta(x, task, err);
    case ECHI_TASK_LOCAL_JOIN: return join(x, task, err);
    case ECHI_TASK_KEEP:   /* never on a lane */
    case ECHI_TASKS: break;
    }
    return echi_fail(err, ECH_E_INTERNAL, "run.exec", "no task has the number %d", task->kind);
}
