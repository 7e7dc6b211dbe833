/* SPDX-License-Identifier: Apache-2.0
 * Where layer separation (Stanza: Wu et al., arXiv 1812.10624) begins to pay, simulated: BSP with and without a separate head on eight
 * hosts alike, by the rate of their links and the batch; and up to 256 workers, where one head is full and what the planner does then. For
 * sweep.sh, which draws it. Virtual time: the machine does not matter.
 *
 *     bench_sweep rates [NET]...     a line for each net, batch and rate
 *     bench_sweep workers            a line for each number of workers
 *
 * NET: alexnet, vgg19fc, resnet18; all three by default. A host computes half as fast as a core of a 2023 Xeon server. */
#include "echelon_dev.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS = 8, ROUNDS = 16, SAMPLES = 1 << 24 };

static const struct net { const char *name, *file; int edge, classes; double speed; } nets[] = {
    {"alexnet", NULL, 224, 1000, 18},             /* images/s of a host, in steps of 64 samples */
    {"vgg19fc", "vgg19fc.txt", 64, 1000, 5},
    {"resnet18", NULL, 32, 10, 20},
};
enum { NETS = sizeof nets / sizeof nets[0] };

static int no_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)test;
    (void)index;
    memset(rows, 0, (size_t)n * *(const size_t *)user * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

static void fail(const char *what, const struct ech_error *err) {
    fprintf(stderr, "bench_sweep: %s: %s\n", what, err->text);
    exit(1);
}

static void set(struct ech_config *config, const char *name, const char *value) {
    struct ech_error err;
    if (ech_config_set(config, name, value, &err) != ECH_OK) fail(name, &err);
}

/* A run of so many hosts alike, `batch` samples a step of each, without arithmetic. */
static void simulate(const char *folder, const struct net *net, int hosts, double mbit, int batch, const char *separate, const char *heads,
                     struct ech_report *report) {
    static struct ech_config config;
    struct ech_error err = {0};
    ech_model *model;
    ech_data *data;
    char path[] = "/tmp/echelon-sweep-XXXXXX", file[512];
    size_t size = 3u * (size_t)net->edge * (size_t)net->edge;
    const struct ech_data_callback callback = {.channels = 3, .height = net->edge, .width = net->edge, .classes = net->classes,
                                               .train_samples = SAMPLES, .read = no_samples, .user = &size, .name = "nothing"};
    const struct ech_sim_options options = {.hosts = path, .costs_only = 1};
    snprintf(file, sizeof file, "%s/%s", folder, net->file ? net->file : "");
    if (ech_model_open(net->file ? file : net->name, &model, &err) != ECH_OK) fail(net->name, &err);
    if (ech_data_from_callback(&callback, &data, &err) != ECH_OK) fail("data", &err);
    FILE *to = fdopen(mkstemp(path), "w");
    if (!to) exit(1);
    fprintf(to, "hosts %d speed %g images/s link %g Mb/s delay 50 us\n", hosts, net->speed, mbit);
    fclose(to);
    ech_config_init(&config);
    set(&config, "separate", separate);
    set(&config, "heads", heads);
    set(&config, "shares", "speed");
    set(&config, "regroup", "off");
    config.batch = batch * hosts;
    config.steps = ROUNDS;
    const ech_status status = ech_simulate(model, data, &config, &options, report, &err);
    remove(path);
    if (status != ECH_OK) fail(net->name, &err);
    ech_data_destroy(data);
    ech_model_destroy(model);
}

static void rates(const char *folder, const struct net *net) {
    static const double mbit[] = {40, 100, 250, 640, 1600, 4000, 10000};
    static const int batches[] = {8, 32, 128};
    static struct ech_report off, on;
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
        for (size_t i = 0; i < sizeof mbit / sizeof mbit[0]; i++) {
            simulate(folder, net, HOSTS, mbit[i], batches[b], "off", "1", &off);
            simulate(folder, net, HOSTS, mbit[i], batches[b], "on", "auto", &on);
            printf("%-9s %6d %8.0f %10.2f %10.2f %10.2f %10.2f %8.2f %8.2f\n", net->name, batches[b], mbit[i], off.images_per_second,
                   off.predicted_images_per_second, on.images_per_second, on.predicted_images_per_second,
                   on.images_per_second / off.images_per_second, on.predicted_images_per_second / off.predicted_images_per_second);
            fflush(stdout);
        }
}

static void workers(const char *folder) {
    static struct ech_report r;
    for (double mbit = 1000; mbit <= 10000; mbit *= 10)
        for (int hosts = 4; hosts <= 256; hosts *= 2)
            for (int several = 0; several < 2; several++) {
                simulate(folder, &nets[0], hosts, mbit, 8, "on", several ? "auto" : "1", &r);
                printf("%-9s %6.0f %6d %6s %6d %10.2f %10.2f %8.2f  %s\n", nets[0].name, mbit, hosts, several ? "auto" : "1",
                       r.n_heads > 0 ? r.n_heads : 1, r.images_per_second, r.predicted_images_per_second, r.images_per_second / hosts,
                       r.n_what_if > 0 ? r.what_if[0].what : "");
                fflush(stdout);
            }
}

int main(int argc, char **argv) {
    const char *const folder = getenv("NETS_IN") ? getenv("NETS_IN") : "test/bench";
    if (argc < 2 || (strcmp(argv[1], "rates") != 0 && strcmp(argv[1], "workers") != 0)) {
        fprintf(stderr, "usage: bench_sweep rates [alexnet|vgg19fc|resnet18]... | bench_sweep workers\n");
        return 2;
    }
    if (strcmp(argv[1], "workers") == 0) workers(folder);
    for (int n = 0; n < NETS && strcmp(argv[1], "rates") == 0; n++) {
        bool wanted = argc == 2;
        for (int i = 2; i < argc; i++) wanted = wanted || strcmp(argv[i], nets[n].name) == 0;
        if (wanted) rates(folder, &nets[n]);
    }
    return 0;
}
