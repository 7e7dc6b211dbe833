/* SPDX-License-Identifier: Apache-2.0
 * Trains whole: a model from builder calls, samples from a callback, everything else by Echelon. Start it once for each
 * node, with the node's place in the environment (every option of `echelon train --help` works in the same way):
 *     for r in 0 1 2 3; do ECH_RANK=$r ECH_WORLD=4 ECH_COORDINATOR=127.0.0.1:7000 ./whole & done; wait */
#include <echelon.h>
#include <stdio.h>

enum { SIDE = 16, CLASSES = 4 };

/* A bar on noise: flat, upright, or along one of the diagonals. A sample is a function of its index alone, so every node
 * has the same ones; the test set are indices that training never sees. */
static int bars(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    for (int s = 0; s < n; s++) {
        uint32_t h = (index[s] + (test ? 1000000u : 0u)) * 2654435761u + 12345u;
        int label = (int)(h >> 28) % CLASSES, shift = (int)(h >> 20 & 7) - 4;
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                int across[CLASSES] = {y - SIDE / 2, x - SIDE / 2, x - y, x + y - SIDE};
                int distance = across[label] - shift;
                h = h * 1664525u + 1013904223u;
                *rows++ = (distance >= -1 && distance <= 1 ? 1.0f : 0.0f) + (float)(h >> 8) / (1 << 24) - 0.5f;
            }
        labels[s] = (uint16_t)label;
    }
    return 0;
}

static void log_line(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    if (level <= ECH_LOG_WARN) fprintf(stderr, "whole: %s\n", line);
}

int main(void) {
    struct ech_error err;
    struct ech_config config;
    struct ech_report report;
    ech_model *model = NULL;
    ech_data *data = NULL;
    const struct ech_data_callback samples = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .train_samples = 4000,
                                              .test_samples = 1000, .read = bars, .name = "bars"};
    ech_config_init(&config);
    config.lr = 0.02, config.momentum = 0.9, config.epochs = 5, config.on_log = log_line;
    ech_status status = ech_config_from_env(&config, &err);   /* rank, world, coordinator, and what else is there */
    if (status == ECH_OK) status = ech_model_create(1, SIDE, SIDE, &model, &err);
    if (status == ECH_OK) {   /* a call that does not fit is remembered and reported by ech_train */
        ech_model_conv2d(model, 8, 5, 1, 2);
        ech_model_relu(model);
        ech_model_max_pool(model, 2, 2, 0);
        ech_model_fc(model, 32);
        ech_model_relu(model);
        ech_model_fc(model, CLASSES);
        status = ech_data_from_callback(&samples, &data, &err);
    }
    if (status == ECH_OK) status = ech_train(model, data, &config, NULL, &report, &err);
    if (status != ECH_OK) fprintf(stderr, "whole: rank %d: %s\n", config.rank, err.text);
    else if (config.rank == 0)
        printf("accuracy %.4f after %.1f epochs on %d nodes\n", report.test_accuracy, report.epochs, report.world);
    ech_data_destroy(data);
    ech_model_destroy(model);
    return status != ECH_OK;
}
