/* SPDX-License-Identifier: Apache-2.0
 * A unit whose layer has no kernels here: the reference computes it, from rows of samples to rows, so it costs what it costs there and
 * twice the way between the layouts. The units around it do not notice. */
#include "echi_cpu_stack.h"
#include "echi_error.h"
#include "ref/echi_ref.h"

#include <stdio.h>

static void forward(struct echi_cpu_stack *s, int unit, const float *params) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_ref_rows rows = echi_ref_unit_rows(u->reference);
    echi_cpu_rows_out(s, u->from, echi_cpu_value(s, u->from), rows.in);
    echi_stack_reference.forward(u->reference, 0, params);
    echi_cpu_rows_in(s, unit + 1, echi_cpu_value(s, unit + 1), rows.out);
}

static void backward(struct echi_cpu_stack *s, int unit, const float *params, float *grads, bool need_input_grad) {
    const struct echi_cpu_unit *u = &s->units[unit];
    const struct echi_ref_rows rows = echi_ref_unit_rows(u->reference);
    echi_cpu_rows_out(s, unit + 1, echi_cpu_grad(s, unit + 1), rows.out_grad);
    echi_ref_unit_backward(u->reference, params, grads, need_input_grad);
    if (need_input_grad) echi_cpu_rows_in(s, u->from, echi_cpu_share(s, u->from), rows.in_grad);
}

static const struct echi_cpu_op by_reference = {"reference", forward, backward, NULL};

ech_status echi_cpu_reference_create(struct echi_cpu_stack *s, struct echi_cpu_unit *u, int max_n, struct echi_stack_unit *told,
                                     struct ech_error *err) {
    const struct echi_layer *l = u->layer;
    size_t bytes = 0;
    if (s->k == &echi_cpu_kernels_fixed)
        return echi_fail_at(err, ECH_E_UNSUPPORTED, "stack.create", -1, l->name,
                            "layer '%s' (%s) has no kernels that give the same bits on every machine, which --deterministic needs: leave "
                            "out the layer, or --deterministic", l->name, echi_op_name(l->op));
    ECHI_TRY(echi_ref_unit_create(l, max_n, &u->reference, &bytes, err));
    u->op = &by_reference;
    s->reference_bytes += bytes;
    told->fallback = true;
    snprintf(told->kernel, sizeof told->kernel, "%s reference", echi_op_name(l->op));
    snprintf(told->why, sizeof told->why, "there are no %s kernels for it", s->k->name);
    return ECH_OK;
}

void echi_cpu_reference_destroy(struct echi_cpu_unit *u) {
    if (u->reference) echi_stack_reference.destroy(u->reference);
}

void echi_cpu_reference_begin(const struct echi_cpu_stack *s, struct echi_cpu_unit *u) {
    if (u->reference) echi_ref_unit_begin(u->reference, s->n);
}
