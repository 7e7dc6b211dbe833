/* SPDX-License-Identifier: Apache-2.0
 * What the simulator costs where nothing is computed: LeNet-5 on 64 and on 1,024 workers of 16 samples a step, processor time for each
 * thing that is due, and whether 1,024 workers do a thousand steps each within 15 s and 512 MiB.
 *
 * One owner: with 64 shards, which BSP has by default there, a round of 1,024 workers is 130,000 messages and more.
 *
 * An event's cost is the difference of a long run and a short one: both begin with plans being made and compared, which is told by
 * itself. All take turns, and the least time of each counts: what else runs only makes runs longer. */
#include "echelon_dev.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 1000, SAMPLES_A_STEP = 16, TURNS = 5, SAMPLES = 60000 };

static int no_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    (void)test;
    (void)index;
    memset(rows, 0, (size_t)n * 784 * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

struct outcome { double seconds; struct ech_sim_counts counts; };

static struct outcome once(const ech_model *model, const ech_data *data, int workers, const char *sync, const char *separate,
                           int64_t steps) {
    static struct ech_config config;
    static struct ech_report report;
    struct ech_error err = {0};
    struct outcome o;
    const struct ech_sim_options options = {.workers = workers, .spread = "strong", .costs_only = 1, .counts = &o.counts};
    const int64_t began = echi_thread_cpu();
    ech_config_init(&config);
    snprintf(config.sync, sizeof config.sync, "%s", sync);
    ech_status status = ech_config_set(&config, "separate", separate, &err);
    config.batch = SAMPLES_A_STEP * workers;
    config.samples_per_step = strcmp(sync, "bsp") == 0 ? 0 : SAMPLES_A_STEP;
    config.steps = steps;
    snprintf(config.shards, sizeof config.shards, "1");
    if (strcmp(sync, "bsp") == 0) snprintf(config.shares, sizeof config.shares, "equal");
    if (status == ECH_OK) status = ech_simulate(model, data, &config, &options, &report, &err);
    o.seconds = (double)(echi_thread_cpu() - began) * 1e-9;
    if (status != ECH_OK || report.samples != (uint64_t)(steps * SAMPLES_A_STEP * workers)) {
        fprintf(stderr, "%s among %d: %s\n", sync, workers, err.text);
        exit(1);
    }
    return o;
}

int main(void) {
    static const char *const rows[][2] = {{"bsp", "off"}, {"asp", "off"}, {"ssp", "off"}, {"gssp", "off"}, {"gssp", "1"}};
    const struct ech_data_callback callback = {.channels = 1, .height = 28, .width = 28, .classes = 10, .train_samples = SAMPLES,
                                               .test_samples = 0, .read = no_samples, .name = "nothing"};
    struct ech_error err;
    ech_model *model;
    ech_data *data;
    bool good = true;
    if (ech_model_open("lenet5", &model, &err) != ECH_OK || ech_data_from_callback(&callback, &data, &err) != ECH_OK) return 1;
    printf("  simulated, LeNet-5, no arithmetic      64 workers    1,024 workers    ratio    %d steps each of 1,024\n", STEPS);
    static const int64_t lengths[2][2] = {{800, 2400}, {50, 150}};   /* steps of 64 workers, of 1,024 */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double least[2][2] = {{0}}, events[2][2], each[2];
        for (int turn = 0; turn < TURNS; turn++)
            for (int run = 0; run < 4; run++) {
                const int size = run / 2, length = run % 2;
                const struct outcome o = once(model, data, size ? 1024 : 64, rows[i][0], rows[i][1], lengths[size][length]);
                events[size][length] = (double)o.counts.events;
                if (turn == 0 || o.seconds < least[size][length]) least[size][length] = o.seconds;
            }
        for (int size = 0; size < 2; size++) each[size] = (least[size][1] - least[size][0]) * 1e9 / (events[size][1] - events[size][0]);
        const double start = least[1][0] - each[1] * 1e-9 * events[1][0];
        const struct outcome all = once(model, data, 1024, rows[i][0], rows[i][1], STEPS);
        const double mib = (double)echi_resident_peak() / 1048576;
        const bool met = each[1] <= 2 * each[0] && all.seconds <= 15 && mib <= 512;
        good = good && met;
        printf("  %-4s %-12s                    %5.0f ns an event %5.0f ns an event    %.2f    %5.1f s, %.1f of them before it begins, "
               "%.0f million events, %.0f MiB   %s\n",
               rows[i][0], strcmp(rows[i][1], "1") == 0 ? "separated" : "", each[0], each[1], each[1] / each[0], all.seconds,
               start > 0 ? start : 0, (double)all.counts.events * 1e-6, mib, met ? "met" : "NOT MET");
        fflush(stdout);
    }
    ech_data_destroy(data);
    ech_model_destroy(model);
    return good ? 0 : 1;
}
