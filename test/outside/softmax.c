/* SPDX-License-Identifier: Apache-2.0
 * Keeps its own model and arithmetic (softmax regression on MNIST) and lets Echelon do what lies between nodes: who takes
 * which samples, and how gradients become new weights on all of them. Start it once for each node:
 *     for r in 0 1 2 3; do ECH_RANK=$r ECH_WORLD=4 ECH_COORDINATOR=127.0.0.1:7000 ./softmax data/mnist & done; wait
 * With a second argument rank 0 writes the trained weights there, a number a line. */
#include <echelon.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 28 * 28, CLASSES = 10, WEIGHTS = CLASSES * PIXELS };

struct model {
    const ech_data *data;
    float W[WEIGHTS], b[CLASSES];     /* [class][pixel]; Echelon writes new values here in ech_step_begin */
    float dW[WEIGHTS], db[CLASSES];   /* and reads the gradients after ech_gradient_ready */
    double loss;
    int hits;
};

/* One sample: its loss and whether it is recognised are added up; its gradient, times `scale`, too when scale > 0. */
static int sample(struct model *m, int test, uint32_t index, float scale) {
    float x[PIXELS], p[CLASSES], sum = 0;
    uint16_t label;
    if (ech_data_get(m->data, test, &index, 1, x, &label, NULL) != ECH_OK) return 1;
    int best = 0;
    for (int c = 0; c < CLASSES; c++) {
        p[c] = m->b[c];
        for (int i = 0; i < PIXELS; i++) p[c] += m->W[c * PIXELS + i] * x[i];
        if (p[c] > p[best]) best = c;
    }
    m->hits += best == label;
    float top = p[best], score = p[label];
    for (int c = 0; c < CLASSES; c++) sum += p[c] = expf(p[c] - top);
    m->loss += logf(sum) + top - score;
    for (int c = 0; scale > 0 && c < CLASSES; c++) {
        float d = (p[c] / sum - (c == label ? 1.0f : 0.0f)) * scale;   /* d loss / d score */
        m->db[c] += d;
        for (int i = 0; i < PIXELS; i++) m->dW[c * PIXELS + i] += d * x[i];
    }
    return 0;
}

/* Gradients as the mean over n samples, into dW and db. Also what Echelon calls at the start to see how fast we are. */
static int gradients(void *model, const uint32_t *index, int n) {
    struct model *m = model;
    m->loss = 0;
    for (int i = 0; i < WEIGHTS; i++) m->dW[i] = 0;
    for (int c = 0; c < CLASSES; c++) m->db[c] = 0;
    for (int i = 0; i < n; i++)
        if (sample(m, 0, index[i], 1.0f / (float)n)) return 1;
    return 0;
}

static ech_status train(struct model *m, const struct ech_config *config, struct ech_error *err) {
    const struct ech_param params[] = {{"W", m->W, m->dW, WEIGHTS, NULL}, {"b", m->b, m->db, CLASSES, NULL}};
    ech_session *session = NULL;
    struct ech_step step;
    ech_status status = ech_session_open(params, 2, ech_data_samples(m->data, 0), config, gradients, m, &session, err);
    while (status == ECH_OK && (status = ech_step_begin(session, &step, err)) == ECH_OK) {
        if (gradients(m, step.index, step.n)) m->loss = NAN;   /* ends the run on all nodes */
        if ((status = ech_gradient_ready(session, 0, err)) == ECH_OK && (status = ech_gradient_ready(session, 1, err)) == ECH_OK)
            status = ech_step_end(session, m->loss / step.n, err);
    }
    if (status == ECH_E_END) return ech_session_close(session, NULL, err);   /* the weights are final, the same on all nodes */
    ech_session_close(session, NULL, NULL);
    return status;
}

/* 0 when every number was written. */
static int write_weights(const struct model *m, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) return 1;
    for (int i = 0; i < WEIGHTS; i++) fprintf(f, "%.9g\n", m->W[i]);
    for (int c = 0; c < CLASSES; c++) fprintf(f, "%.9g\n", m->b[c]);
    int failed = ferror(f) != 0;
    return fclose(f) != 0 || failed;
}

int main(int argc, char **argv) {
    struct ech_error err = {0};
    struct ech_config config;
    ech_data *data = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: softmax DIR|glyphs [FILE]\n");
        return 2;
    }
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        perror("softmax");
        return 1;
    }
    ech_config_init(&config);
    config.lr = 0.01, config.momentum = 0.9, config.batch = 64, config.steps = 300;
    int channels, height, width, classes, failed = 0;
    ech_status status = ech_config_from_env(&config, &err);   /* rank, world, coordinator, sync, ... */
    if (status == ECH_OK) status = ech_data_open(argv[1], config.seed, &data, &err);
    if (status == ECH_OK) {
        ech_data_shape(data, &channels, &height, &width, &classes);
        failed = channels * height * width != PIXELS || classes != CLASSES;
        if (failed) fprintf(stderr, "softmax: %s has no 28 x 28 images in ten classes\n", argv[1]);
    }
    m->data = data;
    if (status == ECH_OK && !failed) status = train(m, &config, &err);
    if (status != ECH_OK) fprintf(stderr, "softmax: rank %d: %s\n", config.rank, err.text);
    failed |= status != ECH_OK;
    if (!failed && config.rank == 0) {
        uint32_t tests = ech_data_samples(data, 1);
        m->hits = 0;
        for (uint32_t i = 0; i < tests && !failed; i++) failed = sample(m, 1, i, 0);
        printf("accuracy %.4f\n", tests ? m->hits / (double)tests : 0);
        if (argc > 2 && (failed |= write_weights(m, argv[2]))) perror(argv[2]);
    }
    ech_data_destroy(data);
    free(m);
    return failed;
}
