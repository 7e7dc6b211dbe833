/* SPDX-License-Identifier: Apache-2.0
 * A model as a table for people. */
#include "echi_model.h"

#include "echi_print.h"

#include <inttypes.h>
#include <stdio.h>

static void print_shape(struct echi_print *p, int number, const char *name, const char *kind, struct echi_shape s) {
    char shape[40];
    snprintf(shape, sizeof shape, "%d x %d x %d", s.c, s.h, s.w);
    echi_print(p, "%3d %-16s %-15s %-20s", number, name, kind, shape);
}

size_t ech_model_describe(const ech_model *model, char *buf, size_t cap) {
    struct echi_print p = {buf, cap, 0};
    struct ech_error why;
    if (ech_model_finish(model, &why)) {
        echi_print(&p, "not a whole model: %s\n", why.text);
        return p.len;
    }
    echi_print(&p, "%3s %-16s %-15s %-20s %12s %15s\n", "", "layer", "kind", "output", "parameters", "multiply-adds");
    print_shape(&p, 0, "input", "", model->input);
    echi_print(&p, "\n");
    double total = 0; /* of up to 256 layers, each below 2^62 */
    for (int i = 0; i < model->n_layers; i++) {
        const struct echi_layer *layer = &model->layers[i];
        uint64_t work = echi_layer_operations(layer);
        print_shape(&p, i + 1, layer->name, echi_op_name(layer->op), layer->out);
        echi_print(&p, " %12zu %15" PRIu64, echi_layer_params(layer), work);
        if (layer->skip) echi_print(&p, "   from %d", echi_layer_takes(model->layers, i));
        if (layer->op == ECHI_OP_ADD) echi_print(&p, "   with %d", echi_layer_adds(model->layers, i));
        echi_print(&p, "\n");
        total += (double)work;
    }
    echi_print(&p, "%-57s %12zu %15.0f\n", "total", model->n_params, total);
    return p.len;
}
