/* SPDX-License-Identifier: Apache-2.0
 * One node of a BSP run on generated images, for sync.sh and others: any built-in model, or one in a file, also one that no data set has
 * images for.
 *
 *     bench_sync MODEL STEPS [--OPTION VALUE]...
 *
 * Rank, world and coordinator come from the environment, as tools/testbed sets them. Rank 0 prints a name and a value a line:
 *     images_per_second, step_seconds   of all STEPS steps, by the report's clock
 *     processor_seconds                 of this process a step, all its threads; 0 when the run was shorter than two progress calls
 *     link_bytes                        a step, in the busiest direction of the busiest link, by the plan; 0 where layers are separated
 *     predicted                         images a second, by the plan
 *     head                              its rank, -1: none
 *     batches                           samples a step of each rank, by the plan */
#include "echi_model.h"
#include "echi_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IMAGES = 16, SAMPLES = 1 << 20 };   /* few distinct images, so that reading them costs a copy, as it costs PyTorch nothing */

struct images {
    size_t size;     /* floats of one */
    int classes;
    float *rows;
};

static int read_images(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    const struct images *images = user;
    (void)test;
    for (int i = 0; i < n; i++) {
        memcpy(rows + (size_t)i * images->size, images->rows + index[i] % IMAGES * images->size, images->size * sizeof *rows);
        labels[i] = (uint16_t)(index[i] % IMAGES * 37 % (uint32_t)images->classes);
    }
    return 0;
}

/* Processor time and steps at the first and the last progress call: what lies between them is training alone. */
struct use {
    int calls;
    double first, last;
    uint64_t first_step, last_step;
};

static void on_progress(void *user, const struct ech_progress *now) {
    struct use *use = user;
    use->last = (double)clock() / CLOCKS_PER_SEC;
    use->last_step = now->steps;
    if (use->calls++) return;
    use->first = use->last;
    use->first_step = use->last_step;
}

static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    if (level <= ECH_LOG_WARN) fprintf(stderr, "%s\n", line);
}

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* An owner receives a gradient of its shard from every other worker, and sends each the new weights; with a worker of its own it exchanges
 * all other parameters with their owners too. One owner has a shard of all. Shards here are alike. */
static double link_bytes(const struct ech_report *report, const ech_model *model) {
    const int shards = report->n_shards > 0 ? report->n_shards : 1;
    const double all = (double)ech_model_params(model) * sizeof(float), own = all / shards;
    double most = 0;
    for (int k = 0; k < shards; k++) {
        const int owner = report->n_shards > 0 ? report->shard_owner[k] : report->owner_of[0];
        int senders = 0;
        for (int rank = 0; rank < report->world; rank++) senders += report->batch[rank] > 0 && rank != owner;
        const double bytes = senders * own + (report->batch[owner] > 0 ? all - own : 0);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void print_run(const struct ech_report *report, const ech_model *model, const struct use *use) {
    const uint64_t steps = use->last_step - use->first_step;
    printf("images_per_second %.4f\n", report->images_per_second);
    printf("step_seconds %.5f\n", report->seconds / (double)report->steps);
    printf("processor_seconds %.5f\n", steps ? (use->last - use->first) / (double)steps : 0);
    printf("link_bytes %.0f\n", report->head < 0 ? link_bytes(report, model) : 0);
    printf("predicted %.4f\nhead %d\nbatches ", report->predicted_images_per_second, report->head);
    for (int rank = 0; rank < report->world; rank++) printf("%s%d", rank ? "," : "", report->batch[rank]);
    printf("\n");
}

int main(int argc, char **argv) {
    struct ech_error err;
    struct ech_config config;
    struct ech_model *model;
    struct use use = {0};
    ech_data *data;
    static struct ech_report report;
    if (argc < 3 || argc % 2 == 0) {
        fprintf(stderr, "usage: bench_sync MODEL STEPS [--OPTION VALUE]...\n");
        return 2;
    }
    check(ech_model_open(argv[1], &model, &err), &err);
    ech_config_init(&config);
    config.on_log = on_log;
    check(ech_config_from_env(&config, &err), &err);
    check(ech_config_set(&config, "steps", argv[2], &err), &err);
    check(ech_config_set(&config, "eval-every", "0", &err), &err);
    for (int i = 3; i < argc; i += 2) check(ech_config_set(&config, argv[i] + strspn(argv[i], "-"), argv[i + 1], &err), &err);
    config.on_progress = on_progress;
    config.user = &use;

    struct images images = {.size = echi_shape_size(model->input)};
    images.classes = (int)echi_shape_size(model->layers[model->n_layers - 1].out);
    images.rows = malloc(IMAGES * images.size * sizeof *images.rows);
    if (!images.rows) return 1;
    struct echi_random random;
    echi_random_init(&random, 1, ECHI_STREAM_TEST, 0);
    for (size_t i = 0; i < IMAGES * images.size; i++) images.rows[i] = (float)echi_random_normal(&random);
    const struct ech_data_callback callback = {
        .channels = model->input.c, .height = model->input.h, .width = model->input.w, .classes = images.classes,
        .train_samples = SAMPLES, .read = read_images, .user = &images, .name = "generated"};
    check(ech_data_from_callback(&callback, &data, &err), &err);
    check(ech_train(model, data, &config, NULL, &report, &err), &err);
    if (config.rank == 0) print_run(&report, model, &use);
    ech_data_destroy(data);
    ech_model_destroy(model);
    free(images.rows);
    return 0;
}
