/* SPDX-License-Identifier: Apache-2.0
 * What a session's caller gives: gradients, and rows for a head. The caller's arrays have the mean over a step's samples, and a push is
 * their sum divided by B.
 *
 * On a ring they stay where they are, as the caller leaves them alone until the next step begins. A sum that comes by takes them in from
 * there, and so does the own owner. Where a sum begins they are sent from there, as they are: whoever adds to it knows of how many samples
 * it is. Only after a loss, when they go to their owners, are they laid into a slot. */
#include "echi_exec_impl.h"
#include "echi_error.h"

#include <string.h>

void echi_exec_give(struct echi_exec *x, const struct echi_task *task, int layer, const echi_real *grad, echi_real factor) {
    const struct echi_param_layer *l = &x->job->layer[layer];
    x->given[layer].grad = grad;
    x->given[layer].factor = factor;
    if (!x->gives) echi_scaled((echi_real *)echi_buffer_host(slot(x, task->grads)) + l->at, grad, l->count, factor);
}

/* What a part has of a layer. False: nothing. */
static bool common(const struct echi_part *p, const struct echi_param_layer *l, size_t *at, size_t *count) {
    const size_t behind = p->at + p->count, layer_end = l->at + l->count, end = behind < layer_end ? behind : layer_end;
    *at = p->at > l->at ? p->at : l->at;
    *count = *at < end ? end - *at : 0;
    return *count > 0;
}

bool echi_exec_gives(const struct echi_exec *x) { return x->gives; }

const void *echi_exec_payload(struct echi_exec *x, enum echi_kind kind, struct echi_slot grads, int part, bool lent) {
    const struct echi_part *p = &x->setup->plan.parts.part[part];
    const struct echi_param_layer *first = &x->job->layer[p->first];
    echi_real *to = (echi_real *)echi_buffer_host(slot(x, grads)) + p->at;
    const bool as_it_is = kind == ECHI_KIND_RING_SUM;
    size_t at, count;
    if (lent) return to;   /* who borrows it takes what was given */
    if (as_it_is && p->first == p->last) return x->given[p->first].grad + (p->at - first->at);
    for (int i = p->first; i <= p->last; i++) {
        const struct echi_param_layer *l = &x->job->layer[i];
        if (!common(p, l, &at, &count)) continue;
        const echi_real *from = x->given[i].grad + (at - l->at);
        if (as_it_is) memcpy(to + (at - p->at), from, count * sizeof *to);
        else echi_scaled(to + (at - p->at), from, count, x->given[i].factor);
    }
    return to;
}

/* What was given of the task's part is added to `from` (NULL: to nothing), taken so many times; the sum is in `to`. */
static ech_status add_given(struct echi_exec *x, const struct echi_task *task, struct echi_slot to, const struct echi_buffer *from,
                            echi_real from_factor, struct ech_error *err) {
    const struct echi_part *p = &x->setup->plan.parts.part[task->only - 1];
    size_t at, count;
    for (int i = p->first; i <= p->last; i++) {
        const struct echi_param_layer *l = &x->job->layer[i];
        if (!common(p, l, &at, &count)) continue;
        ECHI_TRY(echi_add_scaled(x->device, slot(x, to), from, from_factor, at, x->given[i].grad + (at - l->at), count, x->given[i].factor,
                                 err));
    }
    return ECH_OK;
}

/* By what a sum that came round the ring is multiplied: it begins as its worker was given it. */
static echi_real ring_factor(const struct echi_task *task) {
    return task->alone ? (echi_real)((double)task->alone / task->lease.round_size) : 1;
}

ech_status echi_exec_add_to_ring(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    return add_given(x, task, task->state, slot(x, task->state), ring_factor(task), err);
}

/* A sum from a ring has no other beside it, and own gradients come last. */
ech_status echi_exec_add_rows_given(struct echi_exec *x, const struct echi_task *task, struct echi_slot to, bool sets,
                                    struct ech_error *err) {
    const struct echi_part *p = &x->setup->plan.parts.part[task->only - 1];
    const struct echi_buffer *from = sets ? NULL : slot(x, to), *ring = task->ring.kind ? slot(x, task->ring) : NULL;
    bool own = false;
    for (int i = 0; i < task->n_rows; i++) {
        own = own || task->rows[i] == x->setup->rank;
        if (task->rows[i] == x->setup->rank) continue;
        const echi_real *push = echi_exec_slot(x, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, task->rows[i]}, NULL);
        ECHI_TRY(echi_add_scaled(x->device, slot(x, to), from, 1, p->at, push + p->at, p->count, 1, err));
        from = slot(x, to);
    }
    if (own) return add_given(x, task, to, ring ? ring : from, ring_factor(task), err);
    if (!ring) return ECH_OK;
    return echi_add_scaled(x->device, slot(x, to), from, 1, p->at, (const echi_real *)echi_buffer_host(ring) + p->at, p->count,
                           ring_factor(task), err);
}

/* ---- a head: Echelon's layers behind what the caller computes ---- */

static size_t floats_of(const struct echi_exec *x, const struct echi_task *task) {
    return task->lease.n * echi_shape_size(x->job->model->input);
}

void echi_exec_give_rows(struct echi_exec *x, const struct echi_task *task, const echi_real *rows, const uint16_t *labels) {
    const size_t count = floats_of(x, task);
    if (task->kind == ECHI_TASK_STEP) {
        memcpy(x->samples.rows, rows, count * sizeof *rows);
        memcpy(x->samples.labels, labels, task->lease.n * sizeof *labels);
        return;
    }
    uint8_t *act = echi_exec_slot(x, task->act, NULL);
    echi_exec_put_rows(x, act, rows, count);
    echi_labels_put(act + task->lease.n * echi_job_row_bytes(x->job, &x->setup->plan), labels, task->lease.n);
}

void echi_exec_take_rows(struct echi_exec *x, const struct echi_task *task, echi_real *out_rows) {
    const void *from = task->kind == ECHI_TASK_STEP ? x->samples.rows : echi_exec_slot(x, task->act, NULL);
    const echi_real factor = (echi_real)((double)task->divisor / task->lease.n);
    const size_t count = floats_of(x, task);
    if (task->kind == ECHI_TASK_STEP || !echi_exec_rounds_rows(x)) return echi_scaled(out_rows, from, count, factor);
    echi_exec_get_rows(x, out_rows, from, count);
    for (size_t i = 0; i < count; i++) out_rows[i] *= factor;
}

ech_status echi_exec_given_step(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    const struct echi_lease *l = &task->lease;
    const struct echi_pass_of of = {l->n, x->samples.rows, x->samples.labels, x->who, x->samples.rows};
    int correct = 0;
    echi_job_rows(x->job, l->epoch, l->start, l->n, x->who);
    struct echi_buffer *grads = slot(x, task->grads);
    ECHI_TRY(echi_exec_head_pass(x, x->trunk[task->flight], task, &of, grads, &result->loss[0], &correct, err));
    ECHI_TRY(echi_exec_head_params(x->trunk[task->flight], grads, err));
    result->loss[0] = echi_exec_sane_loss(result->loss[0], l->n);
    result->correct[0] = (uint32_t)correct;
    for (int i = x->job->n_layers - 1; i >= x->job->cut_params; i--) {
        size_t bytes = x->job->layer[i].count * sizeof(echi_real);
        if (task->coded.kind) ECHI_TRY(echi_exec_push(x, task, i, &bytes, err));
        echi_lane_gradient(x->lane, task, i, bytes, result);
    }
    return ECH_OK;
}
