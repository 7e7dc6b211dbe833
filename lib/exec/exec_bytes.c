/* SPDX-License-Identifier: Apache-2.0
 * What a node's slots and stacks take of its device's memory. */
#include "echi_exec_impl.h"
#include "echi_error.h"

static size_t *home(struct echi_exec_bytes *b, int kind) {
    switch (kind) {
    case ECHI_SLOT_WORKER_GRADS: case ECHI_SLOT_OWNER_GRADS: case ECHI_SLOT_OWNER_SUM: case ECHI_SLOT_HEAD_GRADS: case ECHI_SLOT_HEAD_SUM:
    case ECHI_SLOT_WORKER_RESIDUAL: case ECHI_SLOT_WORKER_CODED: case ECHI_SLOT_LOCAL_DELTA: case ECHI_SLOT_RING: return &b->gradients;
    case ECHI_SLOT_OWNER_MOMENTUM: case ECHI_SLOT_HEAD_MOMENTUM: case ECHI_SLOT_LOCAL_MOMENTUM: return &b->moments;
    case ECHI_SLOT_WORKER_ACT: case ECHI_SLOT_WORKER_ACT_GRAD: case ECHI_SLOT_HEAD_ROWS: case ECHI_SLOT_HEAD_ROWS_GRAD: return &b->rows;
    default: return &b->weights;
    }
}

/* Is this slot's memory another's: the caller's, the owner's weights, or the coordinator's first? */
static bool is_others(const struct echi_exec *x, int kind, int index) {
    const struct echi_buffer *of = x->slot[kind][index], *owner = x->slot[ECHI_SLOT_OWNER_WEIGHTS][0];
    const struct echi_buffer *coordinators = x->slot[ECHI_SLOT_COORD_PARAMS][0];
    if (!of) return true;
    const void *at = echi_buffer_host(of);
    if (at == x->params) return true;
    return kind == ECHI_SLOT_COORD_PARAMS && ((owner && at == echi_buffer_host(owner)) || (index && at == echi_buffer_host(coordinators)));
}

static size_t stack_bytes(const struct echi_stack *stack) { return stack ? echi_stack_bytes(stack) : 0; }
static size_t buffer_bytes(const struct echi_buffer *buffer) { return buffer ? echi_buffer_held(buffer) : 0; }

void echi_exec_bytes(const struct echi_exec *x, struct echi_exec_bytes *out) {
    *out = (struct echi_exec_bytes){0};
    for (int k = 0; k < ECHI_SLOT_KINDS; k++)
        for (int i = 0; i < ECHI_WORLD_MAX; i++)
            if (!is_others(x, k, i)) *home(out, k) += buffer_bytes(x->slot[k][i]);
    out->gradients += buffer_bytes(x->of_block) + buffer_bytes(x->rounded) + buffer_bytes(x->pushed);
    for (int i = 0; i < ECHI_STACKS; i++) out->activations += stack_bytes(x->trunk[i]);
    for (uint32_t i = 0; i < x->blocks; i++) out->activations += stack_bytes(x->block[i]);
    out->activations += stack_bytes(x->head) + stack_bytes(x->eval);
}

/* ---- what of a slot holds anything ---- */

static int one_span(size_t at, size_t len, struct echi_span *out) {
    *out = (struct echi_span){at, len};
    return 1;
}

/* An optimiser's memory: of Adam what its gradients weigh, and the moments of the same ranges twice. */
static int memory_spans(const struct echi_exec *x, bool of_head, struct echi_span *out) {
    const struct echi_plan *p = &x->setup->plan;
    const int optimizer = of_head ? p->optimizer : echi_plan_owner_optimizer(p);
    struct echi_range range[ECHI_PARTS_MAX];
    struct echi_memory m;
    size_t first, count;
    int spans = 0;
    echi_job_memory(x->job, p, optimizer, of_head, &m);
    echi_job_range(x->job, p, of_head, &first, &count);
    const int ranges = echi_job_ranges(x->job, p, x->setup->rank, of_head, range);
    if (m.first * sizeof(echi_real) > m.at) spans += one_span(m.at, m.first * sizeof(echi_real) - m.at, &out[spans]);
    for (int second = 0; second <= (m.second != m.first); second++)
        for (int i = 0; i < ranges; i++)
            spans += one_span(((second ? m.second : m.first) + range[i].at - first) * sizeof(echi_real), range[i].count * sizeof(echi_real),
                              &out[spans]);
    return spans;
}

static int spans_of(const struct echi_exec *x, enum echi_slot_kind kind, int index, size_t bytes, struct echi_span *out) {
    const struct echi_plan *p = &x->setup->plan;
    const bool untouched = echi_plan_rings(p);   /* some slots, until the ring has ended: then they take memory as they are written */
    const size_t number = bytes / x->job->n_params;   /* bytes of one: sums may be of integers */
    struct echi_range range[ECHI_PARTS_MAX];
    size_t at, count;
    int ranges;
    switch (kind) {
    case ECHI_SLOT_OWNER_GRADS:
        if (echi_exec_coded(x)) return one_span(0, bytes, out);
        if (untouched) return 0;
        /* fall through */
    case ECHI_SLOT_OWNER_WEIGHTS: case ECHI_SLOT_OWNER_SUM: case ECHI_SLOT_OWNER_W0: case ECHI_SLOT_OWNER_STATE: case ECHI_SLOT_OWNER_PEER:
        ranges = echi_job_ranges(x->job, p, x->setup->rank, false, range);
        for (int i = 0; i < ranges; i++) one_span(range[i].at * number, range[i].count * number, &out[i]);
        return ranges;
    case ECHI_SLOT_WORKER_WEIGHTS:
        if (untouched && index == p->flights + echi_plan_places(p, x->setup->rank) - 1) return 0;
        /* fall through */
    case ECHI_SLOT_WORKER_GRADS: case ECHI_SLOT_WORKER_RESIDUAL:
        echi_job_range(x->job, p, false, &at, &count);
        return one_span(at * number, count * number, out);
    case ECHI_SLOT_HEAD_WEIGHTS: case ECHI_SLOT_HEAD_GRADS: case ECHI_SLOT_HEAD_SUM:
        echi_job_range(x->job, p, true, &at, &count);
        return one_span(at * number, count * number, out);
    case ECHI_SLOT_LOCAL_MOMENTUM: return echi_plan_remembers(p) ? one_span(0, bytes, out) : 0;
    case ECHI_SLOT_OWNER_MOMENTUM: case ECHI_SLOT_HEAD_MOMENTUM:
        if (!echi_plan_owner_remembers(p) && !p->resumed) return 0;   /* a resumed run's coordinator sends zeros */
        return memory_spans(x, kind == ECHI_SLOT_HEAD_MOMENTUM, out);
    case ECHI_SLOT_COORD_PARAMS:
        if (index == 0) return one_span(0, bytes, out);
        echi_job_range(x->job, p, index == 2, &at, &count);
        return one_span(0, count * number, out);
    default: return one_span(0, bytes, out);
    }
}

int echi_exec_spans(const struct echi_exec *x, enum echi_slot_kind kind, int index, size_t bytes, struct echi_span out[ECHI_EXEC_SPANS],
                    size_t *held) {
    const int spans = spans_of(x, kind, index, bytes, out);
    *held = 0;
    for (int i = 0; i < spans; i++) *held += out[i].len;
    return spans;
}

/* ---- does it fit? ---- */

ech_status echi_exec_fits(const struct echi_exec *x, size_t slots, struct ech_error *err) {
    const struct echi_plan *p = &x->setup->plan;
    const size_t available = echi_memory_for_blocks();
    struct echi_exec_bytes there;
    if (slots <= available) return ECH_OK;
    echi_exec_bytes(x, &there);
    return echi_fail_at(err, ECH_E_MEMORY, "run.setup", x->setup->rank, NULL,
                        "rank %d has no memory for its part of the plan: weights, gradients and the optimiser's memory take %zu bytes, and "
                        "%zu are left beside %zu of activations; use a smaller batch or model, %s", x->setup->rank, slots, available,
                        there.activations, echi_plan_group_owned(p, x->setup->rank) < 0 ? "or fewer nodes on this machine"
                        : p->world > 1 && p->shards == 0 ? "fewer nodes on this machine, or --shards, by which nodes divide what they own"
                                                         : "or more nodes with --shards, by which they divide what they own");
}
