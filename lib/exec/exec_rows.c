/* SPDX-License-Identifier: Apache-2.0
 * Rows at the cut as they travel: as they are, or rounded to bf16 (PROTOCOL.md, "Head"). That is done in the tasks that make or take them,
 * by the compute thread. The head puts rows of several workers together and takes them apart, so there it takes the place of a copy. */
#include "echi_exec_impl.h"
#include "echi_error.h"

#include <string.h>

bool echi_exec_rounds_rows(const struct echi_exec *x) { return x->setup->plan.activations == ECHI_ACTIVATIONS_BF16; }

void echi_exec_put_rows(struct echi_exec *x, void *to, const echi_real *rows, size_t count) {
    if (echi_exec_rounds_rows(x)) echi_to_bf16(x->device, to, rows, count);
    else memcpy(to, rows, count * sizeof *rows);
}

void echi_exec_get_rows(struct echi_exec *x, echi_real *rows, const void *from, size_t count) {
    if (echi_exec_rounds_rows(x)) echi_from_bf16(x->device, rows, from, count);
    else memcpy(rows, from, count * sizeof *rows);
}

static size_t count_of(const struct echi_exec *x, const struct echi_task *task) {
    return task->lease.n * echi_job_width(x->job, &x->setup->plan);
}

ech_status echi_exec_rows_out(struct echi_exec *x, struct echi_stack *trunk, const struct echi_task *task, struct ech_error *err) {
    void *act = echi_exec_slot(x, task->act, NULL);
    if (!echi_exec_rounds_rows(x)) return echi_stack_output(trunk, act, err);
    ECHI_TRY(echi_stack_output(trunk, x->rows, err));
    echi_exec_put_rows(x, act, x->rows, count_of(x, task));
    return ECH_OK;
}

ech_status echi_exec_rows_back(struct echi_exec *x, struct echi_stack *trunk, const struct echi_task *task, struct ech_error *err) {
    const void *act = echi_exec_slot(x, task->act, NULL);
    if (!echi_exec_rounds_rows(x)) return echi_stack_output_grad(trunk, act, err);
    echi_exec_get_rows(x, x->rows, act, count_of(x, task));
    return echi_stack_output_grad(trunk, x->rows, err);
}
