/* SPDX-License-Identifier: Apache-2.0
 * Gradients of a session: the caller's arrays have the mean over a step's samples, and a push is their sum divided by B.
 *
 * On a ring they stay where they are, as the caller leaves them alone until the next step begins: most parts are added to a sum that comes
 * by, which needs no copy of them. Those of a part that is sent are laid into their slot just before. */
#include "echi_exec_impl.h"
#include "echi_error.h"

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

void echi_exec_lay(struct echi_exec *x, struct echi_slot grads, int part) {
    const struct echi_part *p = &x->setup->plan.parts.part[part];
    size_t at, count;
    for (int i = p->first; i <= p->last && x->gives; i++) {
        const struct echi_param_layer *l = &x->job->layer[i];
        if (!common(p, l, &at, &count)) continue;
        echi_scaled((echi_real *)echi_buffer_host(slot(x, grads)) + at, x->given[i].grad + (at - l->at), count, x->given[i].factor);
    }
}

ech_status echi_exec_add_given(struct echi_exec *x, const struct echi_task *task, struct ech_error *err) {
    const struct echi_part *p = &x->setup->plan.parts.part[task->only - 1];
    size_t at, count;
    for (int i = p->first; i <= p->last; i++) {
        const struct echi_param_layer *l = &x->job->layer[i];
        if (!common(p, l, &at, &count)) continue;
        ECHI_TRY(echi_add_scaled(x->device, slot(x, task->state), at, x->given[i].grad + (at - l->at), count, x->given[i].factor, err));
    }
    return ECH_OK;
}
