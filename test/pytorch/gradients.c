/* SPDX-License-Identifier: Apache-2.0
 * Losses and gradients of a model for batches that come on standard input, for compare_nets.py.
 *
 *     gradients MODEL fast|close|plain|reference N
 *
 * In, for each batch, in this machine's byte order: the model's parameters, as they lie in its flat array, and N samples as float; N labels
 * as int32. Out: the loss of the batch (a mean), and as many gradients as parameters, as double. Ends where the input does. Built with
 * DOUBLE=1 all arithmetic in between is double. */
#include "echi_model.h"
#include "echi_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "gradients: %s\n", err->text);
    exit(1);
}

/* False where the input ends. */
static bool read_floats(echi_real *to, size_t count) {
    float piece[4096];
    for (size_t at = 0; at < count;) {
        const size_t some = count - at < 4096 ? count - at : 4096;
        if (fread(piece, sizeof *piece, some, stdin) != some) return false;
        for (size_t i = 0; i < some; i++) to[at + i] = piece[i];
        at += some;
    }
    return true;
}

static enum echi_kernels kernels_of(const char *word) {
    static const char *const names[] = {[ECHI_KERNELS_FAST] = "fast", [ECHI_KERNELS_CLOSE] = "close", [ECHI_KERNELS_PLAIN] = "plain",
                                        [ECHI_KERNELS_REFERENCE] = "reference"};
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (names[i] && strcmp(word, names[i]) == 0) return (enum echi_kernels)i;
    fprintf(stderr, "gradients: there are no kernels '%s'\n", word);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 4 || atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: gradients MODEL fast|close|plain|reference N\n");
        return 1;
    }
    const int n = atoi(argv[3]);
    struct ech_error err;
    struct ech_model *model = NULL;
    struct echi_device *device = NULL;
    struct echi_buffer *params = NULL, *grads = NULL;
    struct echi_stack *stack = NULL;
    check(ech_model_open(argv[1], &model, &err), &err);
    check(echi_device_open("cpu", 1, &device, &err), &err);
    const size_t all = model->n_params, sample = echi_shape_size(model->input);
    check(echi_buffer_create(device, all * sizeof(echi_real), &params, &err), &err);
    check(echi_buffer_create(device, all * sizeof(echi_real), &grads, &err), &err);
    check(echi_stack_create(device, kernels_of(argv[2]), model->layers, model->n_layers, n, &stack, &err), &err);
    echi_real *rows = malloc((size_t)n * sample * sizeof *rows), *made = echi_buffer_host(grads);
    struct echi_row *who = calloc((size_t)n, sizeof *who);   /* no dropout in these nets */
    int32_t *read = malloc((size_t)n * sizeof *read);
    uint16_t *labels = malloc((size_t)n * sizeof *labels);
    if (!rows || !who || !read || !labels) return 1;
    const int units = echi_stack_units(stack);
    while (read_floats(echi_buffer_host(params), all) && read_floats(rows, (size_t)n * sample) &&
           fread(read, sizeof *read, (size_t)n, stdin) == (size_t)n) {
        double loss;
        int correct;
        for (int i = 0; i < n; i++) labels[i] = (uint16_t)read[i];
        check(echi_stack_input(stack, n, rows, &err), &err);
        check(echi_stack_train(stack, &(struct echi_training){1, who, 1}, &err), &err);
        for (int u = 0; u < units; u++) check(echi_stack_forward(stack, u, params, &err), &err);
        check(echi_stack_loss(stack, labels, (echi_real)1 / (echi_real)n, &loss, &correct, &err), &err);
        for (int u = units - 1; u >= 0; u--) check(echi_stack_backward(stack, u, params, grads, u > 0, &err), &err);
        loss /= n;
        fwrite(&loss, sizeof loss, 1, stdout);
        for (size_t i = 0; i < all; i++) {
            const double g = made[i];
            fwrite(&g, sizeof g, 1, stdout);
        }
        fflush(stdout);
    }
    free(labels);
    free(read);
    free(who);
    free(rows);
    echi_stack_destroy(stack);
    echi_buffer_destroy(params);
    echi_buffer_destroy(grads);
    echi_device_close(device);
    ech_model_destroy(model);
    return 0;
}
