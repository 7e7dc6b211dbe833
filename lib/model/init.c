/* SPDX-License-Identifier: Apache-2.0
 * Initial parameters: PyTorch's default for Conv2d and Linear. */
#include "echi_model.h"

#include "echi_random.h"

#include <math.h>

/* It changes nothing of numbers that are normal already: PyTorch's too. */
static void init_norm(const struct echi_layer *layer, float *params) {
    const size_t channels = (size_t)layer->out.c;
    for (size_t c = 0; c < channels; c++) {
        params[layer->weight_at + c] = params[layer->running_at + channels + c] = 1;
        params[layer->bias_at + c] = params[layer->running_at + c] = 0;
    }
}

/* He et al., "Delving deep into rectifiers" (2015), uniform, with PyTorch's gain for a = sqrt(5): sqrt(6 / ((1 + 5) fan_in))
 * is 1 / sqrt(fan_in), the same as its bound for biases. A layer's numbers are its own stream and a number's place in the
 * layer (weights, then biases) its counter, so that a layer added later changes no other's. Two words make one number. */
void echi_model_init(const struct ech_model *model, uint64_t seed, float *params) {
    for (int i = 0; i < model->n_layers; i++) {
        const struct echi_layer *layer = &model->layers[i];
        if (!layer->weights) continue;
        if (layer->op == ECHI_OP_BATCH_NORM) {
            init_norm(layer, params);
            continue;
        }
        double bound = 1 / sqrt((double)(layer->weights / (size_t)layer->out.c));
        struct echi_random random;
        echi_random_init(&random, seed, ECHI_STREAM_INIT, (uint32_t)i);
        for (size_t k = 0; k < layer->weights + layer->biases; k++)
            params[layer->weight_at + k] = (float)((2 * echi_random_unit(&random) - 1) * bound);
    }
}
