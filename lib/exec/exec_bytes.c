/* SPDX-License-Identifier: Apache-2.0
 * What a node's slots and stacks take of its device's memory. */
#include "echi_exec_impl.h"

static size_t *home(struct echi_exec_bytes *b, int kind) {
    switch (kind) {
    case ECHI_SLOT_WORKER_GRADS: case ECHI_SLOT_OWNER_GRADS: case ECHI_SLOT_OWNER_SUM: case ECHI_SLOT_HEAD_GRADS: case ECHI_SLOT_HEAD_SUM:
    case ECHI_SLOT_WORKER_RESIDUAL: case ECHI_SLOT_WORKER_CODED: case ECHI_SLOT_LOCAL_DELTA: return &b->gradients;
    case ECHI_SLOT_OWNER_MOMENTUM: case ECHI_SLOT_HEAD_MOMENTUM: case ECHI_SLOT_LOCAL_MOMENTUM: return &b->moments;
    case ECHI_SLOT_WORKER_ACT: case ECHI_SLOT_WORKER_ACT_GRAD: case ECHI_SLOT_HEAD_ROWS: case ECHI_SLOT_HEAD_ROWS_GRAD: return &b->rows;
    default: return &b->weights;
    }
}

/* Is this slot's memory another's: the caller's, or the owner's weights? */
static bool is_others(const struct echi_exec *x, int kind, int index) {
    const struct echi_buffer *of = x->slot[kind][index], *owner = x->slot[ECHI_SLOT_OWNER_WEIGHTS][0];
    if (!of) return true;
    const void *at = echi_buffer_host(of);
    return at == x->params || (kind == ECHI_SLOT_COORD_PARAMS && owner && at == echi_buffer_host(owner));
}

static size_t stack_bytes(const struct echi_stack *stack) { return stack ? echi_stack_bytes(stack) : 0; }
static size_t buffer_bytes(const struct echi_buffer *buffer) { return buffer ? echi_buffer_bytes(buffer) : 0; }

void echi_exec_bytes(const struct echi_exec *x, struct echi_exec_bytes *out) {
    *out = (struct echi_exec_bytes){0};
    for (int k = 0; k < ECHI_SLOT_KINDS; k++)
        for (int i = 0; i < ECHI_WORLD_MAX; i++)
            if (!is_others(x, k, i)) *home(out, k) += echi_buffer_bytes(x->slot[k][i]);
    out->gradients += buffer_bytes(x->of_granule) + buffer_bytes(x->rounded) + buffer_bytes(x->pushed);
    for (int i = 0; i < ECHI_STRANDS; i++) out->activations += stack_bytes(x->trunk[i]);
    for (uint32_t i = 0; i < x->granules; i++) out->activations += stack_bytes(x->granule[i]);
    out->activations += stack_bytes(x->head) + stack_bytes(x->eval);
}
