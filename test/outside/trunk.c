/* SPDX-License-Identifier: Apache-2.0
 * Keeps its own convolution and its arithmetic, and gives what lies behind to Echelon: the fully connected layers, which have most of the
 * weights and little of the work. One node may train them for all (layer separation, arXiv 1812.10624). Start it once for each node:
 *     for r in 0 1 2 3; do ECH_SEPARATE=on ECH_RANK=$r ECH_WORLD=4 ECH_COORDINATOR=127.0.0.1:7000 ./trunk data/mnist & done; wait */
#include <echelon.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, KERNEL = 5, STRIDE = 2, MAPS = 8, OUT = (SIDE - KERNEL) / STRIDE + 1 };
enum { WEIGHTS = MAPS * KERNEL * KERNEL, WIDTH = MAPS * OUT * OUT, BATCH = 64, STEPS = 300 };

struct trunk {
    const ech_data *data;
    float W[WEIGHTS], b[MAPS];                  /* [map][y][x]; Echelon writes new values here in ech_step_begin */
    float dW[WEIGHTS], db[MAPS];                /* and reads the gradients after ech_gradient_ready */
    float *images, *rows;                       /* [n][PIXELS]; [n][MAPS][OUT][OUT], then their gradient */
    uint16_t *labels;
    int capacity;
};

static int reserve(struct trunk *t, int n) {
    if (n <= t->capacity) return 0;
    free(t->images), free(t->rows), free(t->labels);
    t->capacity = n;
    t->images = malloc((size_t)n * PIXELS * sizeof *t->images);
    t->rows = malloc((size_t)n * WIDTH * sizeof *t->rows);
    t->labels = malloc((size_t)n * sizeof *t->labels);
    return !t->images || !t->rows || !t->labels;
}

/* Rows are what a convolution and ReLU make of the images. */
static int forward(struct trunk *t, int test, const uint32_t *index, int n) {
    if (reserve(t, n) || ech_data_get(t->data, test, index, n, t->images, t->labels, NULL) != ECH_OK) return 1;
    for (int i = 0; i < n; i++)
        for (int m = 0; m < MAPS; m++)
            for (int at = 0; at < OUT * OUT; at++) {
                const float *x = t->images + i * PIXELS + at / OUT * STRIDE * SIDE + at % OUT * STRIDE, *w = t->W + m * KERNEL * KERNEL;
                float sum = t->b[m];
                for (int ky = 0; ky < KERNEL; ky++)
                    for (int kx = 0; kx < KERNEL; kx++) sum += w[ky * KERNEL + kx] * x[ky * SIDE + kx];
                t->rows[(i * MAPS + m) * OUT * OUT + at] = sum > 0 ? sum : 0;
            }
    return 0;
}

/* From the gradient of the rows, which is that of a mean: so are dW and db. `active`: the rows as they were. */
static void backward(struct trunk *t, const float *active, int n) {
    for (int k = 0; k < WEIGHTS; k++) t->dW[k] = 0;
    for (int m = 0; m < MAPS; m++) t->db[m] = 0;
    for (int i = 0; i < n; i++)
        for (int m = 0; m < MAPS; m++)
            for (int at = 0; at < OUT * OUT; at++) {
                const int row = (i * MAPS + m) * OUT * OUT + at;
                const float *x = t->images + i * PIXELS + at / OUT * STRIDE * SIDE + at % OUT * STRIDE;
                const float d = active[row] > 0 ? t->rows[row] : 0;
                if (d == 0) continue;
                t->db[m] += d;
                for (int ky = 0; ky < KERNEL; ky++)
                    for (int kx = 0; kx < KERNEL; kx++) t->dW[m * KERNEL * KERNEL + ky * KERNEL + kx] += d * x[ky * SIDE + kx];
            }
}

/* What Echelon calls at the start, to see how fast we are: a step without the head, which it measures itself. */
static int measure(void *trunk, const uint32_t *index, int n) {
    struct trunk *t = trunk;
    if (forward(t, 0, index, n)) return 1;
    backward(t, t->rows, n);
    return 0;
}

static ech_status train(struct trunk *t, const struct ech_head *head, const struct ech_config *config, struct ech_error *err) {
    const struct ech_param params[] = {{"W", t->W, t->dW, WEIGHTS, NULL}, {"b", t->b, t->db, MAPS, NULL}};
    ech_session *session = NULL;
    struct ech_step step;
    struct ech_head_answer answer;
    float *active = NULL;
    ech_status status =
        ech_session_open_with_head(params, 2, head, ech_data_samples(t->data, 0), config, measure, t, &session, err);
    while (status == ECH_OK && (status = ech_step_begin(session, &step, err)) == ECH_OK) {
        const size_t count = (size_t)step.n * WIDTH;
        float *larger = realloc(active, count * sizeof *active);
        if (larger) active = larger;
        if (!larger || forward(t, 0, step.index, step.n)) status = ECH_E_MEMORY;
        for (size_t i = 0; status == ECH_OK && i < count; i++) active[i] = t->rows[i];
        if (status == ECH_OK) status = ech_head_exchange(session, t->rows, count, t->labels, t->rows, &answer, err);
        if (status != ECH_OK) break;
        backward(t, active, step.n);
        if ((status = ech_gradient_ready(session, 0, err)) == ECH_OK && (status = ech_gradient_ready(session, 1, err)) == ECH_OK)
            status = ech_step_end(session, answer.loss, err);
    }
    free(active);
    if (status == ECH_E_END) return ech_session_close(session, NULL, err);   /* all weights are final, the same on all nodes */
    ech_session_close(session, NULL, NULL);
    return status;
}

/* Of the test set, by the trunk's weights and the head's; negative: it could not be found. */
static double accuracy(struct trunk *t, const ech_model *head, const float *weights) {
    const uint32_t tests = ech_data_samples(t->data, 1);
    uint32_t hits = 0, index[BATCH];
    float out[BATCH * CLASSES];
    for (uint32_t at = 0; at < tests; at += BATCH) {
        const int n = tests - at < BATCH ? (int)(tests - at) : BATCH;
        for (int i = 0; i < n; i++) index[i] = at + (uint32_t)i;
        if (forward(t, 1, index, n) || ech_model_forward(head, weights, n, t->rows, out, NULL) != ECH_OK) return -1;
        for (int i = 0; i < n; i++) {
            int best = 0;
            for (int c = 1; c < CLASSES; c++)
                if (out[i * CLASSES + c] > out[i * CLASSES + best]) best = c;
            hits += best == t->labels[i];
        }
    }
    return tests ? hits / (double)tests : 0;
}

int main(int argc, char **argv) {
    struct ech_error err = {0};
    struct ech_config config;
    struct trunk t = {0};
    ech_data *data = NULL;
    ech_model *model = NULL;
    float *weights = NULL;
    int channels = 0, height = 0, width = 0, classes = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: trunk DIR|glyphs\n");
        return 2;
    }
    for (int k = 0; k < WEIGHTS; k++) t.W[k] = 0.2f * sinf(12.9898f * (float)(k + 1));   /* rank 0's are those of all */
    ech_config_init(&config);
    config.lr = 0.02, config.momentum = 0.9, config.batch = BATCH, config.steps = STEPS;
    ech_status status = ech_config_from_env(&config, &err);   /* rank, world, coordinator, sync, separate, ... */
    if (status == ECH_OK) status = ech_data_open(argv[1], config.seed, &data, &err);
    if (status == ECH_OK) {
        ech_data_shape(data, &channels, &height, &width, &classes);
        t.data = data;
        status = ech_model_create(MAPS, OUT, OUT, &model, &err);   /* what the trunk makes of a sample */
    }
    if (status == ECH_OK && (channels != 1 || height != SIDE || width != SIDE || classes != CLASSES)) {
        fprintf(stderr, "trunk: %s has no 28 x 28 images in ten classes\n", argv[1]);
        status = ECH_E_SHAPE;
    }
    if (status == ECH_OK) {
        ech_model_fc(model, 64);
        ech_model_relu(model);
        ech_model_fc(model, CLASSES);
        weights = calloc(ech_model_params(model), sizeof *weights);
        const struct ech_head head = {.model = model, .weights = weights};
        status = train(&t, &head, &config, &err);
    }
    if (status != ECH_OK) fprintf(stderr, "trunk: rank %d: %s\n", config.rank, err.text);
    else if (config.rank == 0) printf("accuracy %.4f\n", accuracy(&t, model, weights));
    ech_data_destroy(data);
    ech_model_destroy(model);
    free(t.images), free(t.rows), free(t.labels), free(weights);
    return status != ECH_OK;
}
