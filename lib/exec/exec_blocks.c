/* SPDX-License-Identifier: Apache-2.0
 * The tasks under --deterministic (PROTOCOL.md, "Deterministic runs"). Samples are computed in reduction blocks of ECHI_REDUCTION_BLOCK,
 * by their place in the round, with kernels that do the same operations in the same order everywhere; each reduction block's gradient
 * becomes whole numbers. What is added up is whole, so neither who computed a reduction block nor when it came in can change a bit. */
#include "echi_exec_impl.h"
#include "echi_error.h"

#include <stdlib.h>

#define LOSS_UNITS 0x1p24   /* losses are counted in 2^-24: as doubles their sums are exact up to 2^29 */

static double whole_loss(double loss) {
    return loss < 0x1p28 ? (double)(int64_t)(loss * LOSS_UNITS + 0.5) / LOSS_UNITS : loss;   /* a NaN stays */
}

static uint32_t blocks_of(uint32_t n) { return (n + ECHI_REDUCTION_BLOCK - 1) / ECHI_REDUCTION_BLOCK; }
static int samples_in(uint32_t n, uint32_t block) {
    const uint32_t left = n - block * ECHI_REDUCTION_BLOCK;
    return (int)(left < ECHI_REDUCTION_BLOCK ? left : ECHI_REDUCTION_BLOCK);
}

/* With a head elsewhere the activations of all reduction blocks wait for it; else one reduction block is done with before the next. */
ech_status echi_blocks_setup_worker(struct echi_exec *x, uint32_t n, struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    const uint32_t of_micro = p->cut ? blocks_of(echi_micro_most(p, n)) : 1, blocks = of_micro * (uint32_t)echi_plan_stacks(p);
    if (!x->counting) {
        x->of_micro = of_micro;
        x->blocks = blocks;
        x->block = calloc(blocks, sizeof *x->block);
        if (!x->block) return echi_fail_memory(err, "run.setup", "reduction blocks");
    }
    for (uint32_t g = 0; g < blocks; g++)
        ECHI_TRY(echi_exec_stack(x, 0, echi_job_head(x->job, p), ECHI_REDUCTION_BLOCK,
                                 x->counting ? NULL : &x->block[g], err));
    if (x->counting) *x->counting += x->job->n_params * sizeof(echi_real);
    if (x->counting) return ECH_OK;
    return echi_buffer_create_pinned(x->device, x->job->n_params * sizeof(echi_real), &x->of_block, err);
}

void echi_blocks_destroy(struct echi_exec *x) {
    for (uint32_t g = 0; x->block && g < x->blocks; g++) echi_stack_destroy(x->block[g]);
    free(x->block);
    echi_buffer_destroy(x->of_block);
}

static ech_status forward(struct echi_exec *x, const struct echi_task *task, struct echi_stack *stack, uint32_t block,
                          struct ech_error *err) {
    const size_t at = block * ECHI_REDUCTION_BLOCK * echi_shape_size(x->job->data->shape);
    const int units = echi_stack_units(stack);
    ECHI_TRY(echi_stack_input(stack, samples_in(task->lease.n, block), x->samples.rows + at, err));
    ECHI_TRY(echi_exec_train(x, stack, x->who + block * ECHI_REDUCTION_BLOCK, (uint32_t)samples_in(task->lease.n, block), task->divisor,
                             err));
    for (int u = 0; u < units; u++) {
        ECHI_TRY(echi_stack_forward(stack, u, slot(x, task->weights), err));
        echi_lane_breathe(x->lane, (enum echi_task_kind)task->kind);
    }
    return ECH_OK;
}

/* The layers' gradients of one reduction block go into the lease's sums; with the last of the last micro-batch they are there. */
static ech_status backward(struct echi_exec *x, const struct echi_task *task, struct echi_stack *stack, uint32_t block,
                           const struct echi_result *result, struct ech_error *err) {
    const bool first_block = block + task->micro == 0;
    const bool last = block + 1 == blocks_of(task->lease.n) && task->micro + 1 >= task->micros;
    for (int u = echi_stack_units(stack) - 1; u >= 0; u--) {
        int first, end;
        echi_stack_unit(stack, u, &first, &end);
        ECHI_TRY(echi_stack_backward(stack, u, slot(x, task->weights), x->of_block, u > 0, err));
        ECHI_TRY(echi_stack_grads(stack, u, err));
        for (int i = x->job->n_layers - 1; i >= 0; i--) {
            const struct echi_param_layer *l = &x->job->layer[i];
            if (l->layer < first || l->layer >= end) continue;
            ECHI_TRY(echi_exact_take(x->device, slot(x, task->grads), x->of_block, l->at, l->count, !first_block, err));
            if (last) echi_lane_gradient(x->lane, task, i, l->count * sizeof(int64_t), result);
        }
        if (u > 0) echi_lane_breathe(x->lane, (enum echi_task_kind)task->kind);
    }
    return ECH_OK;
}

static ech_status step(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    struct echi_stack *stack = x->block[0];
    ECHI_TRY(echi_exec_samples(x, &task->lease, err));
    for (uint32_t g = 0; g < blocks_of(task->lease.n); g++) {
        double loss = 0;
        int correct = 0;
        ECHI_TRY(forward(x, task, stack, g, err));
        ECHI_TRY(echi_stack_loss(stack, x->samples.labels + g * ECHI_REDUCTION_BLOCK, (echi_real)1 / (echi_real)task->divisor, &loss,
                                 &correct, err));
        result->loss[0] += whole_loss(loss);
        result->correct[0] += (uint32_t)correct;
        ECHI_TRY(backward(x, task, stack, g, result, err));
    }
    result->loss[0] = echi_exec_sane_loss(result->loss[0], task->lease.n);
    return ECH_OK;
}

static struct echi_stack *kept_block(const struct echi_exec *x, const struct echi_task *task, uint32_t block) {
    return x->block[task->micro * x->of_micro + block];
}

static ech_status trunk_forward(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    echi_real *rows = echi_exec_slot(x, task->act, NULL);
    ECHI_TRY(echi_exec_samples(x, &task->lease, err));
    for (uint32_t g = 0; g < blocks_of(task->lease.n); g++) {
        ECHI_TRY(forward(x, task, kept_block(x, task, g), g, err));
        ECHI_TRY(echi_stack_output(kept_block(x, task, g), rows + g * ECHI_REDUCTION_BLOCK * echi_job_width(x->job, &x->setup->plan), err));
    }
    echi_labels_put(rows + task->lease.n * echi_job_width(x->job, &x->setup->plan), x->samples.labels, task->lease.n);
    return ECH_OK;
}

static ech_status trunk_backward(struct echi_exec *x, const struct echi_task *task, const struct echi_result *result,
                                 struct ech_error *err) {
    const echi_real *rows = echi_exec_slot(x, task->act, NULL);
    for (uint32_t g = 0; g < blocks_of(task->lease.n); g++) {
        struct echi_stack *block = kept_block(x, task, g);
        ECHI_TRY(echi_stack_output_grad(block, rows + g * ECHI_REDUCTION_BLOCK * echi_job_width(x->job, &x->setup->plan), err));
        ECHI_TRY(backward(x, task, block, g, result, err));
    }
    return ECH_OK;
}

/* One reduction block of a worker's rows; its gradient is added to the head's sums, or sets them. */
static ech_status head_block(struct echi_exec *x, const struct echi_task *task, const echi_real *rows, echi_real *rows_grad,
                               const uint16_t *labels, const struct echi_row *who, int n, bool add, double *loss, int *correct,
                               struct ech_error *err) {
    const struct echi_pass_of of = {(uint32_t)n, rows, labels, who, rows_grad};
    struct echi_buffer *grads = slot(x, task->grads);
    size_t at, count;
    ECHI_TRY(echi_exec_head_pass(x, x->head, task, &of, grads, loss, correct, err));
    if (task->state.kind == ECHI_SLOT_NONE) return ECH_OK;   /* rows that came again: answered, not trained */
    ECHI_TRY(echi_exec_head_params(x->head, grads, err));
    echi_job_range(x->job, &x->setup->plan, true, &at, &count);
    return echi_exact_take(x->device, slot(x, task->state), grads, at, count, add, err);
}

static ech_status head(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    const size_t width = echi_job_width(x->job, &x->setup->plan);
    bool add = !task->first;
    for (int i = 0; i < task->n_rows; i++) {
        const uint32_t n = task->row_count[i];
        const echi_real *rows = echi_exec_slot(x, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, task->rows[i]}, NULL);
        echi_real *rows_grad = echi_exec_slot(x, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, task->rows[i]}, NULL);
        echi_labels_get(rows + n * width, x->head_labels, n);
        echi_job_rows(x->job, task->row_epoch[i], task->row_start[i], n, x->head_who);
        for (uint32_t g = 0; g < blocks_of(n); g++, add = true) {
            double loss = 0;
            int correct = 0;
            const uint32_t first = g * ECHI_REDUCTION_BLOCK;
            ECHI_TRY(head_block(x, task, rows + first * width, rows_grad + first * width, x->head_labels + first, x->head_who + first,
                                samples_in(n, g), add, &loss, &correct, err));
            result->loss[i] += whole_loss(loss);
            result->correct[i] += (uint32_t)correct;
        }
        result->loss[i] = echi_exec_sane_loss(result->loss[i], n);
    }
    if (task->state.kind != ECHI_SLOT_NONE) echi_lane_rows(x->lane, task, result);
    return ECH_OK;
}

static ech_status add(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    struct echi_range range[ECHI_PARTS_MAX];
    if (task->only && task->grads.kind == ECHI_SLOT_NONE) return echi_exec_add_rows(x, task, task->state, task->first, err);
    const struct echi_buffer *const push = slot(x, task->grads);
    const int ranges = echi_exec_ranges(x, task, false, range);
    for (int i = 0; i < ranges && !task->first; i++)
        ECHI_TRY(echi_exact_add(x->device, slot(x, task->state), slot(x, task->state), &push, 1, range[i].at, range[i].count, err));
    if (task->first) echi_exec_set_sum(x, task);
    return ECH_OK;
}

/* The only rounding of a round's sum. */
static ech_status apply(struct echi_exec *x, const struct echi_task *task, struct echi_buffer *rounded, bool of_head,
                        struct ech_error *err) {
    struct echi_range range[ECHI_PARTS_MAX];
    const int ranges = echi_exec_ranges(x, task, of_head, range);
    if (task->only) ECHI_TRY(echi_exec_add_rows(x, task, task->grads, !task->summed, err));
    for (int i = 0; i < ranges; i++)
        ECHI_TRY(echi_exact_round(x->device, rounded, slot(x, task->grads), range[i].at, range[i].count, err));
    return echi_exec_apply(x, task, rounded, of_head, err);
}

ech_status echi_blocks_run(struct echi_exec *x, const struct echi_task *task, struct echi_result *result, struct ech_error *err) {
    switch ((enum echi_task_kind)task->kind) {
    case ECHI_TASK_STEP: return step(x, task, result, err);
    case ECHI_TASK_FORWARD: return trunk_forward(x, task, err);
    case ECHI_TASK_BACKWARD: return trunk_backward(x, task, result, err);
    case ECHI_TASK_HEAD: return head(x, task, result, err);
    case ECHI_TASK_ADD: return add(x, task, err);
    case ECHI_TASK_APPLY: return apply(x, task, x->rounded, false, err);
    case ECHI_TASK_HEAD_APPLY: return apply(x, task, x->slot[ECHI_SLOT_HEAD_GRADS][0], true, err);
    default: return echi_fail(err, ECH_E_INTERNAL, "run.exec", "no task under --deterministic has the number %d", task->kind);
    }
}
