/* SPDX-License-Identifier: Apache-2.0
 * Step times at start, at several numbers of samples: what the planner goes by. */
#include "echi_run.h"
#include "echi_error.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_SECONDS 0.015    /* of each size: long enough that a host's share of a processor averages out */
#define LEAST_STEPS 3
#define MOST_STEPS 200
static const uint32_t sizes[] = {4, 8, 16, 24, 32, 48, 64, 96, 128};
_Static_assert(sizeof sizes / sizeof sizes[0] <= ECHI_TIMES_MAX, "more sizes than struct echi_times holds");

struct bench {
    struct echi_stack *trunk, *head;
    struct echi_buffer *params, *grads;
    float *rows, *cut_rows;
    uint8_t *labels;
};

static ech_status one_step(const struct bench *b, int n, bool head, struct ech_error *err) {
    struct echi_stack *stack = head ? b->head : b->trunk;
    const bool loss_here = head || !b->head;
    ECHI_TRY(echi_stack_input(stack, n, head ? b->cut_rows : b->rows, err));
    const int units = echi_stack_units(stack);
    for (int u = 0; u < units; u++) ECHI_TRY(echi_stack_forward(stack, u, b->params, err));
    double loss;
    int correct;
    if (loss_here) ECHI_TRY(echi_stack_loss(stack, b->labels, 1, &loss, &correct, err));
    else ECHI_TRY(echi_stack_output_grad(stack, b->cut_rows, err));
    for (int u = units - 1; u >= 0; u--) ECHI_TRY(echi_stack_backward(stack, u, b->params, b->grads, head || u > 0, err));
    return ECH_OK;
}

static ech_status seconds_of(const struct bench *b, int n, bool head, struct echi_slowness *slowness, double *out, struct ech_error *err) {
    ECHI_TRY(one_step(b, n, head, err));   /* warms caches and pages */
    echi_slowness_pay(slowness);
    const int64_t began = echi_now();
    int steps = 0;
    do {
        ECHI_TRY(one_step(b, n, head, err));
        echi_slowness_pay(slowness);
        steps++;
    } while (steps < LEAST_STEPS || ((double)(echi_now() - began) < LEAST_SECONDS * 1e9 && steps < MOST_STEPS));
    *out = ((double)(echi_now() - began) + (double)slowness->debt) * 1e-9 / steps;
    return ECH_OK;
}

ech_status echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_times *out, struct ech_error *err) {
    const int most = (int)sizes[sizeof sizes / sizeof sizes[0] - 1];
    const bool cut = job->cut > 0;
    struct bench b = {0};
    struct echi_slowness slowness;
    ech_status status = ECH_OK;
    memset(out, 0, sizeof *out);
    echi_slowness_begin(&slowness, slow);
    ECHI_TRY_GOTO(echi_stack_create(device, ECHI_KERNELS_FAST, job->model->layers, cut ? job->cut : job->model->n_layers, most, &b.trunk, err), out);
    if (cut) ECHI_TRY_GOTO(echi_stack_create(device, ECHI_KERNELS_FAST, job->model->layers + job->cut, job->model->n_layers - job->cut, most, &b.head, err), out);
    ECHI_TRY_GOTO(echi_buffer_create(device, job->n_params * sizeof(float), &b.params, err), out);
    ECHI_TRY_GOTO(echi_buffer_create(device, job->n_params * sizeof(float), &b.grads, err), out);
    b.rows = calloc((size_t)most * echi_shape_size(job->model->input), sizeof *b.rows);
    b.cut_rows = calloc((size_t)most * (job->cut_width ? job->cut_width : 1), sizeof *b.cut_rows);
    b.labels = calloc((size_t)most, 1);
    if (!b.rows || !b.cut_rows || !b.labels) {
        status = echi_fail_memory(err, "run.measure", "step times at start");
        goto out;
    }
    echi_model_init(job->model, 1, echi_buffer_host(b.params));
    for (size_t i = 0; i < (size_t)most * echi_shape_size(job->model->input); i++) b.rows[i] = (float)(i % 17) * 0.1f - 0.8f;
    for (size_t i = 0; i < (size_t)most * job->cut_width; i++) b.cut_rows[i] = (float)(i % 13) * 0.1f;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        out->n[i] = sizes[i];
        ECHI_TRY_GOTO(seconds_of(&b, (int)sizes[i], false, &slowness, &out->trunk[i], err), out);
        if (cut) ECHI_TRY_GOTO(seconds_of(&b, (int)sizes[i], true, &slowness, &out->head[i], err), out);
        out->count++;
    }
out:
    echi_stack_destroy(b.trunk);
    echi_stack_destroy(b.head);
    echi_buffer_destroy(b.params);
    echi_buffer_destroy(b.grads);
    free(b.rows);
    free(b.cut_rows);
    free(b.labels);
    return status;
}
