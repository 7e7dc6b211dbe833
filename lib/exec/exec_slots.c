/* SPDX-License-Identifier: Apache-2.0
 * Set-up: which slots and stacks a node has under a plan, and when its group changes. What all slots take is counted before any is made. */
#include "echi_exec_impl.h"
#include "echi_checked.h"
#include "echi_error.h"

#include <stdlib.h>
#include <string.h>

#define EVAL_ROWS 128        /* test samples in one forward pass, at most */
#define SPARE_BYTES ((size_t)512 << 20)   /* of activations beside those of training */

static ech_status allocate(void *out_pointer, size_t count, size_t size, const char *what, struct ech_error *err) {
    void *p = calloc(count ? count : 1, size);
    if (!p) return echi_fail_memory(err, "run.setup", what);
    memcpy(out_pointer, &p, sizeof p);
    return ECH_OK;
}

/* Does the worker of this node compute on its own node's weights, where they are? */
static bool borrows_weights(const struct echi_exec *x, const struct echi_plan *p) {
    const int rank = x->setup->rank, group = p->group_of[rank];
    return x->loans && group != ECHI_NONE && echi_lends(p, rank, p->owner_of[group], ECHI_KIND_WEIGHTS);
}

/* Does a stack copy from here or to here? It takes the parameters that it computes with from the caller's memory, and leaves gradients
 * there; rows go through its own staging. All other slots only the host reads and writes: those are not page-locked. Of the snapshots that
 * the own worker borrows these are the ones that an owner without other workers uses; from others a device only copies more slowly. */
static bool crosses(const struct echi_exec *x, enum echi_slot_kind kind, int index) {
    switch (kind) {
    case ECHI_SLOT_OWNER_WEIGHTS: return borrows_weights(x, &x->setup->plan) && index < 2 + x->setup->plan.flights && !echi_exec_coded(x);
    case ECHI_SLOT_OWNER_SUM: return borrows_weights(x, &x->setup->plan) && !echi_exec_coded(x);   /* it becomes the worker's gradients */
    case ECHI_SLOT_WORKER_WEIGHTS: case ECHI_SLOT_WORKER_GRADS: return true;
    case ECHI_SLOT_HEAD_WEIGHTS: case ECHI_SLOT_HEAD_GRADS: case ECHI_SLOT_HEAD_SUM: return true;
    case ECHI_SLOT_LOCAL_WEIGHTS: case ECHI_SLOT_COORD_PARAMS: return index == 0;   /* the worker's own; those that an evaluation takes */
    default: return false;
    }
}

ech_status echi_exec_slots(struct echi_exec *x, enum echi_slot_kind kind, int first, int count, size_t bytes, struct ech_error *err) {
    struct echi_span span[ECHI_EXEC_SPANS];
    for (int i = first; i < first + count; i++) {
        struct echi_buffer **out = &x->slot[kind][i];
        const bool pinned = crosses(x, kind, i) && !echi_device_describe(x->device)->host_memory;
        size_t held = bytes;
        if (*out) continue;
        const int spans = pinned ? 0 : echi_exec_spans(x, kind, i, bytes, span, &held);
        if (x->counting) *x->counting += held;
        else if (pinned) ECHI_TRY(echi_buffer_create_pinned(x->device, bytes, out, err));
        else if (held < bytes) ECHI_TRY(echi_buffer_create_spans(x->device, bytes, span, spans, out, err));
        else ECHI_TRY(echi_buffer_create_host(x->device, bytes, out, err));
    }
    return ECH_OK;
}

ech_status echi_exec_scratch(struct echi_exec *x, size_t bytes, struct echi_buffer **out, struct ech_error *err) {
    if (!x->counting) return echi_buffer_create_host(x->device, bytes, out, err);
    *x->counting += bytes;
    return ECH_OK;
}

/* A slot that is memory of another. */
static ech_status wrap(struct echi_exec *x, enum echi_slot_kind kind, int index, void *memory, size_t bytes, struct ech_error *err) {
    return x->counting || x->slot[kind][index] ? ECH_OK : echi_buffer_wrap(x->device, memory, bytes, &x->slot[kind][index], err);
}

ech_status echi_samples_create(struct echi_samples *out, const struct echi_job *job, uint32_t n, struct ech_error *err) {
    const struct echi_shape s = job->model->input;
    size_t floats;
    if (!echi_mul_size(n, echi_shape_size(s), &floats)) return echi_fail_memory(err, "run.setup", "a batch of samples");
    ECHI_TRY(allocate(&out->rows, floats, sizeof *out->rows, "a batch of samples", err));
    ECHI_TRY(allocate(&out->labels, n, sizeof *out->labels, "a batch of labels", err));
    return allocate(&out->index, n, sizeof *out->index, "a batch of sample numbers", err);
}

void echi_samples_destroy(struct echi_samples *samples) {
    free(samples->rows);
    free(samples->labels);
    free(samples->index);
}

/* What one would take, of processors. */
static ech_status count_stack(const struct echi_exec *x, int first, int end, uint32_t n, size_t *out_bytes, struct ech_error *err) {
    return echi_stack_count(x->device, x->job->kernels, x->job->model->layers + first, end - first, (int)n, out_bytes, err);
}

ech_status echi_exec_stack(struct echi_exec *x, int first, int end, uint32_t n, struct echi_stack **out, struct ech_error *err) {
    size_t bytes = 0;
    if (x->counting) {
        ECHI_TRY(count_stack(x, first, end, n, &bytes, err));
        *x->counting += bytes;
        return ECH_OK;
    }
    return echi_stack_create(x->device, x->job->kernels, x->job->model->layers + first, end - first, (int)n, out, err);
}

/* Bytes of gradients on their way to a sum, and of sums, where `all` parameters have so many bytes. */
static size_t sums_size(const struct echi_exec *x, size_t all) {
    return x->setup->plan.deterministic ? all / sizeof(echi_real) * sizeof(int64_t) : all;
}

/* One of the two places in which rank 0's worker computes is the caller's memory: the first weights, which are there, have left it before
 * the worker has all of them in the other, and it writes no earlier. */
bool echi_exec_trains_in_params(const struct echi_exec *x, const struct echi_plan *p) {
    return x->params && x->params_move && echi_plan_evaluates_own(p);
}

/* Where weights come to a worker from another node: more once it has been moved. */
static ech_status setup_places(struct echi_exec *x, const struct echi_plan *p, size_t all, struct ech_error *err) {
    const int places = echi_plan_places(p, x->setup->rank);
    if (borrows_weights(x, p)) return ECH_OK;
    if (echi_exec_coded(x)) return echi_codec_setup_places(x, places, err);
    const int in_params = echi_exec_trains_in_params(x, p);
    if (in_params) ECHI_TRY(wrap(x, ECHI_SLOT_WORKER_WEIGHTS, 0, x->params, all, err));
    return echi_exec_slots(x, ECHI_SLOT_WORKER_WEIGHTS, in_params, p->flights + places - in_params, all, err);
}

/* What the worker computes in. */
static ech_status setup_trunk(struct echi_exec *x, const struct echi_plan *p, uint32_t n, struct ech_error *err) {
    for (int i = 0; i < echi_plan_stacks(p) && !p->deterministic; i++)
        ECHI_TRY(echi_exec_stack(x, 0, echi_job_head(x->job, p), echi_micro_most(p, n), &x->trunk[i], err));
    if (p->deterministic) ECHI_TRY(echi_blocks_setup_worker(x, n, err));
    if (x->counting) return ECH_OK;
    ECHI_TRY(echi_samples_create(&x->samples, x->job, n, err));
    x->trunk_rows = echi_micro_most(p, n);
    const size_t labels = p->cut ? (size_t)echi_plan_stacks(p) * x->trunk_rows : 0;
    const size_t floats = echi_exec_rounds_rows(x) ? x->trunk_rows * echi_job_width(x->job, p) : 0;
    ECHI_TRY(allocate(&x->rows, floats, sizeof *x->rows, "rows before they are rounded", err));
    ECHI_TRY(allocate(&x->trunk_labels, labels, sizeof *x->trunk_labels, "labels of a step", err));
    return allocate(&x->who, n, sizeof *x->who, "a batch of sample numbers", err);
}

static ech_status setup_worker(struct echi_exec *x, const struct echi_plan *p, uint32_t n, size_t all, struct ech_error *err) {
    const bool local = echi_policy_of((enum echi_sync)p->sync)->local;
    if (!local) ECHI_TRY(setup_places(x, p, all, err));
    if (p->exchange == ECHI_EXCHANGE_RING) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_RING, 0, 1, sums_size(x, all), err));
    if (local) {
        if (!borrows_weights(x, p)) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_WEIGHTS, 0, 1, all, err));
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_LOCAL_WEIGHTS, 0, 2, all, err));
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_LOCAL_MOMENTUM, 0, 1, echi_job_memory_bytes(x->job, p->optimizer), err));
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_LOCAL_DELTA, 0, ECHI_DELTAS, all, err));
    }
    const int sums = p->flights + (p->micro_batches && !p->deterministic);   /* and the gradients of a micro-batch, that are added */
    if (!echi_plan_grads_in_weights(p)) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_GRADS, 0, sums, sums_size(x, all), err));
    if (echi_exec_coded(x)) ECHI_TRY(echi_codec_setup_worker(x, err));
    if (x->setup->norms > 0) {
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_NORM, 0, 1, echi_job_norm_bytes(x->job), err));
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_NORM_ALL, 0, 1, echi_job_norm_bytes(x->job), err));
    }
    if (!p->cut) return ECH_OK;
    const size_t rows = echi_micro_most(p, n), row = echi_job_row_bytes(x->job, p);
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_ACT, 0, echi_plan_stacks(p), rows * (row + ECHI_LABEL_BYTES), err));
    return echi_exec_slots(x, ECHI_SLOT_WORKER_ACT_GRAD, 0, echi_plan_stacks(p), rows * row, err);
}

ech_status echi_exec_pushes_of(struct echi_exec *x, int rank, size_t bytes, struct ech_error *err) {
    const bool lent = x->loans && echi_lends(&x->setup->plan, rank, x->setup->rank, ECHI_KIND_PUSH);
    return lent ? ECH_OK : echi_exec_slots(x, ECHI_SLOT_OWNER_GRADS, rank, 1, bytes, err);
}

/* More once workers of other nodes have joined this node's group. */
static ech_status setup_snapshots(struct echi_exec *x, const struct echi_plan *p, int group, size_t all, struct ech_error *err) {
    const int rank = x->setup->rank;
    const bool own = p->group_of[rank] == group || (p->was_in[rank] >> group & 1);
    bool others = false;
    for (int r = 0; r < p->world; r++) others = others || (r != rank && !p->lost[r] && p->group_of[r] == group);
    if (x->params && x->params_move && echi_plan_alone(p)) return wrap(x, ECHI_SLOT_OWNER_WEIGHTS, 0, x->params, all, err);
    return echi_exec_slots(x, ECHI_SLOT_OWNER_WEIGHTS, 0, echi_plan_snapshots(p, others, own), all, err);
}

static ech_status setup_grads(struct echi_exec *x, const struct echi_plan *p, int group, size_t all, struct ech_error *err) {
    for (int r = 0; r < p->world; r++)
        if (!p->lost[r] && p->group_of[r] == group)
            ECHI_TRY(echi_exec_coded(x) ? echi_codec_setup_member(x, r, err)
                                        : echi_exec_pushes_of(x, r, sums_size(x, all), err));
    return ECH_OK;
}

ech_status echi_exec_regroup(struct echi_exec *x, const struct echi_plan *p, struct ech_error *err) {
    const int rank = x->setup->rank, group = echi_plan_group_owned(p, rank);
    const size_t all = x->job->n_params * sizeof(echi_real);
    if (p->group_of[rank] != ECHI_NONE) {
        ECHI_TRY(setup_places(x, p, all, err));
        if (echi_plan_grads_in_weights(p)) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_GRADS, 0, p->flights, all, err));
    }
    if (group < 0) return ECH_OK;
    ECHI_TRY(setup_snapshots(x, p, group, all, err));
    if (echi_plan_sums_in_push(p)) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_SUM, 0, 1, all, err));
    return setup_grads(x, p, group, all, err);
}

static ech_status setup_owner(struct echi_exec *x, const struct echi_plan *p, int group, size_t all, struct ech_error *err) {
    ECHI_TRY(setup_snapshots(x, p, group, all, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_MOMENTUM, 0, 1, echi_job_memory_bytes(x->job, echi_plan_owner_optimizer(p)), err));
    x->sum_is_push = x->loans && echi_plan_alone(p);
    if (echi_policy_of((enum echi_sync)p->sync)->rounds && !x->sum_is_push && !echi_plan_sums_in_push(p))
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_SUM, 0, 1, sums_size(x, all), err));
    ECHI_TRY(setup_grads(x, p, group, all, err));
    if (p->deterministic) ECHI_TRY(echi_exec_scratch(x, all, &x->rounded, err));
    for (int r = 0; r < p->world && x->setup->norms > 0; r++)
        if (p->group_of[r] == group) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_NORM, r, 1, echi_job_norm_bytes(x->job), err));
    if (x->setup->norms > 0) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_NORM_ALL, 0, 1, echi_job_norm_bytes(x->job), err));
    if (echi_exec_coded(x)) ECHI_TRY(echi_codec_setup_owner(x, group, err));
    if (p->n_groups == 1) return ECH_OK;
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_W0, 0, 1, all, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_STATE, 0, ECHI_STATE_COPIES, all, err));
    for (int g = 0; g < p->n_groups; g++)
        if (g != group) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_PEER, 2 * g, 2, all, err));
    return ECH_OK;
}

/* Rows of a worker that come at once, at most. */
static uint32_t rows_of(const struct echi_plan *p, int rank) { return echi_micro_most(p, echi_plan_room(p, rank)); }

/* What the head computes in. */
static ech_status setup_head_stack(struct echi_exec *x, const struct echi_plan *p, struct ech_error *err) {
    const size_t width = echi_job_width(x->job, p);
    uint32_t most = ECHI_MERGE_ROWS;
    for (int r = 0; r < p->world; r++)
        if (p->group_of[r] != ECHI_NONE && rows_of(p, r) > most) most = rows_of(p, r);
    ECHI_TRY(echi_exec_stack(x, echi_job_head(x->job, p), x->job->model->n_layers, most, &x->head, err));
    if (x->counting) return ECH_OK;
    ECHI_TRY(allocate(&x->head_rows, most * width, sizeof(echi_real), "rows at the head", err));
    ECHI_TRY(allocate(&x->head_rows_grad, most * width, sizeof(echi_real), "gradients of rows at the head", err));
    ECHI_TRY(allocate(&x->head_who, most, sizeof *x->head_who, "sample numbers at the head", err));
    return allocate(&x->head_labels, most, sizeof *x->head_labels, "labels at the head", err);
}

static ech_status setup_head(struct echi_exec *x, const struct echi_plan *p, size_t all, struct ech_error *err) {
    const size_t row = echi_job_row_bytes(x->job, p);
    for (int place = 0; place < echi_plan_row_places(p) * p->world; place++) {
        const int r = place % p->world;
        if (p->group_of[r] == ECHI_NONE) continue;
        const uint32_t n = rows_of(p, r);
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_HEAD_ROWS, place, 1, n * (row + ECHI_LABEL_BYTES), err));
        ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_HEAD_ROWS_GRAD, place, 1, n * row, err));
    }
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_HEAD_WEIGHTS, 0, 3, all, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_HEAD_GRADS, 0, 1, all, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_HEAD_MOMENTUM, 0, 1, echi_job_memory_bytes(x->job, p->optimizer), err));
    const bool rounds = echi_policy_of((enum echi_sync)p->sync)->rounds;
    return rounds ? echi_exec_slots(x, ECHI_SLOT_HEAD_SUM, 0, echi_plan_heads(p), sums_size(x, all), err) : ECH_OK;
}

/* The coordinator's weights, and where those of trunk and head come in: of a node that is alone in the owner's own place, since nothing
 * has to come from there; those of shards, which come by part, right in their place among the coordinator's. */
static ech_status setup_params(struct echi_exec *x, const struct echi_plan *p, size_t all, struct ech_error *err) {
    const struct echi_slot owners = {ECHI_SLOT_OWNER_WEIGHTS, 0}, params = {ECHI_SLOT_COORD_PARAMS, 0};
    if (x->params) ECHI_TRY(wrap(x, ECHI_SLOT_COORD_PARAMS, 0, x->params, all, err));
    else ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_COORD_PARAMS, 0, 1, all, err));
    if (x->params && echi_plan_alone(p)) return wrap(x, ECHI_SLOT_COORD_PARAMS, 1, echi_exec_slot(x, owners, NULL), all, err);
    if (echi_exec_trains_in_params(x, p)) return ECH_OK;   /* the other is made where it is needed: echi_exec_copy_place */
    const int in_place = p->shards && echi_device_describe(x->device)->host_memory;   /* else they are copied there */
    if (in_place) ECHI_TRY(wrap(x, ECHI_SLOT_COORD_PARAMS, 1, echi_exec_slot(x, params, NULL), all, err));
    return echi_exec_slots(x, ECHI_SLOT_COORD_PARAMS, 1 + in_place, (p->cut ? 2 : 1) - in_place, all, err);
}

ech_status echi_exec_copy_place(struct echi_exec *x, struct ech_error *err) {
    return echi_exec_slots(x, ECHI_SLOT_COORD_PARAMS, 1, 1, x->job->n_params * sizeof(echi_real), err);
}

uint32_t echi_exec_spare_rows(size_t block_bytes, uint32_t most) {
    const size_t fit = ECHI_SPARE_BLOCK * (SPARE_BYTES / block_bytes);
    return fit < ECHI_SPARE_BLOCK ? ECHI_SPARE_BLOCK : fit < most ? (uint32_t)fit : most;
}

static ech_status count_eval(struct echi_exec *x, struct ech_error *err) {
    const int layers = x->job->model->n_layers;
    size_t block = 0;
    ECHI_TRY(count_stack(x, 0, layers, ECHI_SPARE_BLOCK, &block, err));
    return echi_exec_stack(x, 0, layers, echi_exec_spare_rows(block, EVAL_ROWS), NULL, err);
}

static ech_status setup_eval(struct echi_exec *x, struct ech_error *err) {
    const int layers = x->job->model->n_layers;
    if (x->counting) return count_eval(x, err);
    ECHI_TRY(echi_exec_stack(x, 0, layers, ECHI_SPARE_BLOCK, &x->eval, err));
    x->eval_rows = echi_exec_spare_rows(echi_stack_bytes(x->eval), EVAL_ROWS);
    if (x->eval_rows > ECHI_SPARE_BLOCK) {
        echi_stack_destroy(x->eval);
        x->eval = NULL;
        ECHI_TRY(echi_exec_stack(x, 0, layers, x->eval_rows, &x->eval, err));
    }
    return echi_samples_create(&x->eval_samples, x->job, x->eval_rows, err);
}

static ech_status setup_stacks(struct echi_exec *x, const struct echi_plan *p, int rank, struct ech_error *err) {
    const bool callers = x->job->session && p->cut;   /* the trunk is all that its worker computes */
    if (!x->job->model) return ECH_OK;
    if (p->group_of[rank] != ECHI_NONE && !callers) ECHI_TRY(setup_trunk(x, p, echi_plan_step(p, rank), err));
    if (echi_plan_hosts(p, rank, ECHI_ROLE_HEAD)) ECHI_TRY(setup_head_stack(x, p, err));
    return rank == 0 && x->job->test_samples != 0 ? setup_eval(x, err) : ECH_OK;
}

static ech_status setup_slots(struct echi_exec *x, const struct echi_plan *p, int rank, struct ech_error *err) {
    const size_t all = x->job->n_params * sizeof(echi_real);
    const int owned = echi_plan_group_owned(p, rank);
    if (p->group_of[rank] != ECHI_NONE) ECHI_TRY(setup_worker(x, p, echi_plan_step(p, rank), all, err));
    if (owned >= 0) ECHI_TRY(setup_owner(x, p, owned, all, err));
    if (echi_plan_hosts(p, rank, ECHI_ROLE_HEAD)) ECHI_TRY(setup_head(x, p, all, err));
    if (x->job->session) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_NODE_FINAL, 0, 1, all, err));
    return rank == 0 ? setup_params(x, p, all, err) : ECH_OK;
}

static void begin_setup(struct echi_exec *x, const struct echi_setup *setup) {
    x->setup = setup;
    x->gives = x->job->session && !x->job->model && setup->plan.exchange == ECHI_EXCHANGE_RING;
}

typedef ech_status setup_some(struct echi_exec *x, const struct echi_plan *p, int rank, struct ech_error *err);

static ech_status count(struct echi_exec *x, const struct echi_setup *setup, setup_some *of, size_t *out_bytes, struct ech_error *err) {
    begin_setup(x, setup);
    *out_bytes = 0;
    x->counting = out_bytes;
    const ech_status status = of(x, &setup->plan, setup->rank, err);
    x->counting = NULL;
    return status;
}

ech_status echi_exec_count(struct echi_exec *x, const struct echi_setup *setup, size_t *out_bytes, struct ech_error *err) {
    return count(x, setup, setup_slots, out_bytes, err);
}

ech_status echi_exec_count_stacks(struct echi_exec *x, const struct echi_setup *setup, size_t *out_bytes, struct ech_error *err) {
    return count(x, setup, setup_stacks, out_bytes, err);
}

/* Stacks first, of which each asks whether there is memory for it. What all slots take is counted before any is made. */
ech_status echi_exec_setup(struct echi_exec *x, const struct echi_setup *setup, struct ech_error *err) {
    const struct echi_plan *p = &setup->plan;
    size_t bytes;
    begin_setup(x, setup);
    ECHI_TRY(setup_stacks(x, p, setup->rank, err));
    ECHI_TRY(echi_exec_count(x, setup, &bytes, err));
    ECHI_TRY(echi_exec_fits(x, bytes, err));
    return setup_slots(x, p, setup->rank, err);
}

ech_status echi_exec_later_head(struct echi_exec *x, const struct echi_plan *p, struct ech_error *err) {
    const size_t all = x->job->n_params * sizeof(echi_real);
    size_t slots = 0;
    if (x->head) return ECH_OK;
    x->counting = &slots;
    const ech_status status = setup_head(x, p, all, err);
    x->counting = NULL;
    if (status != ECH_OK) return status;
    ECHI_TRY(echi_exec_fits(x, slots, err));
    ECHI_TRY(setup_head_stack(x, p, err));
    return setup_head(x, p, all, err);
}

ech_status echi_exec_setup_kept(struct echi_exec *x, struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    const size_t memory = echi_job_memory_bytes(x->job, echi_plan_owner_optimizer(p));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_COORD_KEPT, 0, 1, x->job->n_params * sizeof(echi_real), err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_COORD_KEPT, 1, p->n_groups, memory, err));
    for (int part = 1; part < 3; part++) {   /* where the owners' come in: a memory is as large as weights, or larger */
        echi_buffer_destroy(x->slot[ECHI_SLOT_COORD_PARAMS][part]);
        x->slot[ECHI_SLOT_COORD_PARAMS][part] = NULL;
    }
    return echi_exec_slots(x, ECHI_SLOT_COORD_PARAMS, 1, 2, memory, err);
}
