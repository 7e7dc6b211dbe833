/* SPDX-License-Identifier: Apache-2.0
 * The tasks of the codec top-k (PROTOCOL.md, "Two kinds of link"): pushes through a residual, weights and states by what the
 * receiver knows. What is chosen is keyed by lease or message and by link, so that a replay chooses the same. */
#include "echi_exec_impl.h"
#include "echi_error.h"

#include <string.h>

/* Parts of a sample's key: a push's layer; behind those the receiver of weights; a state, which goes to all. */
#define PART_WEIGHTS 0x1000u
#define PART_STATE 0x100000u

bool echi_exec_coded(const struct echi_exec *x) { return x->setup->plan.codec != ECHI_CODEC_DENSE; }

static size_t bytes_of_pushes(const struct echi_exec *x) {
    return x->job->n_params * sizeof(echi_real) + (size_t)x->job->n_layers * echi_coded_most(0);
}

ech_status echi_codec_setup_worker(struct echi_exec *x, struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    const size_t all = x->job->n_params * sizeof(echi_real);
    size_t most = 0;
    for (int i = 0; i < x->setup->cut; i++)
        if (x->job->layer[i].count > most) most = x->job->layer[i].count;
    if (!x->counting) ECHI_TRY(echi_codec_room_create(most, &x->push_room, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_WEIGHTS, 0, 2 * p->flights + 1, all, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_WORKER_RESIDUAL, 0, 1, all, err));
    return echi_exec_slots(x, ECHI_SLOT_WORKER_CODED, 0, p->flights, bytes_of_pushes(x), err);
}

ech_status echi_codec_setup_places(struct echi_exec *x, int places, struct ech_error *err) {
    size_t at, count;
    echi_job_range(x->job, &x->setup->plan, false, &at, &count);
    return echi_exec_slots(x, ECHI_SLOT_WORKER_COMING, 0, places, echi_coded_most(count), err);
}

ech_status echi_codec_setup_member(struct echi_exec *x, int rank, struct ech_error *err) {
    ECHI_TRY(echi_exec_pushes_of(x, rank, bytes_of_pushes(x), err));
    return echi_exec_slots(x, ECHI_SLOT_OWNER_KNOWN, echi_plan_known(&x->setup->plan, x->setup->rank, rank), 1,
                           x->job->n_params * sizeof(echi_real), err);
}

ech_status echi_codec_setup_owner(struct echi_exec *x, int group, struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    const size_t all = x->job->n_params * sizeof(echi_real);
    size_t at, count;
    echi_job_range(x->job, p, false, &at, &count);
    if (!x->counting) ECHI_TRY(echi_codec_room_create(count, &x->state_room, err));
    ECHI_TRY(echi_exec_scratch(x, all, &x->pushed, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_CODED, 0, ECHI_ANSWERS, echi_coded_most(count), err));
    if (p->n_groups == 1) return ECH_OK;
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_STATE_KNOWN, 0, 1, all, err));
    ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_STATE_CODED, 0, 1, echi_coded_most(count), err));
    for (int g = 0; g < p->n_groups; g++)
        if (g != group) ECHI_TRY(echi_exec_slots(x, ECHI_SLOT_OWNER_PEER_CODED, g, 1, echi_coded_most(count), err));
    return ECH_OK;
}

void echi_codec_destroy(struct echi_exec *x) {
    echi_codec_room_destroy(x->push_room);
    echi_codec_room_destroy(x->state_room);
    echi_buffer_destroy(x->pushed);
}

ech_status echi_exec_push(struct echi_exec *x, const struct echi_task *task, int layer, size_t *out_bytes, struct ech_error *err) {
    const struct echi_param_layer *l = &x->job->layer[layer];
    /* Running averages must not wait for their turn: a delay of many rounds would make them swing. Their layers are short. */
    const struct echi_topk how = {.ratio = l->running ? ECHI_WHOLE : task->ratio, .sample = task->sample, .seed = x->job->seed,
        .turn = task->lease.id, .part = (uint32_t)layer};
    const struct echi_msg m = {.part = (uint16_t)layer};   /* with a codec they are the same */
    size_t at, most;
    echi_job_extent(x->job, &x->setup->plan, ECHI_KIND_PUSH, &m, false, &at, &most);
    ECHI_TRY(echi_code_push(x->device, slot(x, task->state), slot(x, task->grads), l->at, l->count, task->first, &how, x->push_room,
                            slot(x, task->coded), at, err));
    *out_bytes = echi_coded_length((const uint8_t *)echi_buffer_host(slot(x, task->coded)) + at, most, l->count);
    return ECH_OK;
}

ech_status echi_codec_read_push(struct echi_exec *x, struct echi_slot from, struct echi_buffer *to, enum echi_decode how,
                                struct ech_error *err) {
    for (int i = 0; i < x->setup->cut; i++) {
        const struct echi_param_layer *l = &x->job->layer[i];
        const struct echi_msg m = {.part = (uint16_t)i};
        size_t at, most;
        echi_job_extent(x->job, &x->setup->plan, ECHI_KIND_PUSH, &m, false, &at, &most);
        ECHI_TRY(echi_decode(x->device, to, l->at, l->count, how, slot(x, from), at, err));
    }
    return ECH_OK;
}

ech_status echi_codec_encode(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    size_t at, count;
    echi_job_range(x->job, &x->setup->plan, false, &at, &count);
    const struct echi_topk how = {.ratio = task->ratio, .sample = task->sample, .seed = x->job->seed, .turn = task->number,
        .part = task->state.kind == ECHI_SLOT_OWNER_KNOWN ? PART_WEIGHTS + task->state.index : PART_STATE};
    return echi_code_state(x->device, slot(x, task->state), slot(x, task->weights), at, count, &how, x->state_room, slot(x, task->coded), 0,
                           err);
}

ech_status echi_codec_decode(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    size_t at, count;
    echi_job_range(x->job, &x->setup->plan, false, &at, &count);
    ECHI_TRY(echi_decode(x->device, slot(x, task->state), at, count, ECHI_DECODE_SET, slot(x, task->coded), 0, err));
    if (task->weights_out.kind == ECHI_SLOT_NONE) return ECH_OK;
    memcpy((echi_real *)echi_buffer_host(slot(x, task->weights_out)) + at, (const echi_real *)echi_buffer_host(slot(x, task->state)) + at,
           count * sizeof(echi_real));
    return ECH_OK;
}
