/* SPDX-License-Identifier: Apache-2.0
 * One node of repeated all-reduces of MIB MiB of floats, for allreduce.sh. Echelon has no such call, but a round of BSP is one: gradients
 * are summed, plain SGD at lr 1 takes their mean off the weights, and all nodes get these, where Echelon has them. Gradients are small
 * integers, so that sums are exact, and every rank compares its weights with them.
 *
 *     bench_allreduce MIB STEPS [--OPTION VALUE]...
 *
 * Rank, world and coordinator come from the environment, as tools/testbed sets them. Rank 0 prints a name and a value a line:
 *     seconds               an all-reduce: STEPS of them by the clock, after some that warm up
 *     processor_seconds     of this process an all-reduce, all its threads
 * Exits with 3 where the library refuses the options. */
#include "echelon.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 3, ARRAYS = 16, SAMPLES = 1 << 20, EXIT_REFUSED = 3 };

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(status == ECH_E_ARGUMENT || status == ECH_E_UNSUPPORTED ? EXIT_REFUSED : 1);
}

static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    if (level <= ECH_LOG_WARN) fprintf(stderr, "%s\n", line);
}

/* Differs between ranks and between elements. */
static int addend(int rank, size_t i) { return (int)((i * 7 + (size_t)rank * 3) % 13) - 6; }

/* Do the weights, which began at 0, have the sum of all ranks' addends `times` times? */
static void check_sums(const float *const weights[ARRAYS], size_t each, int world, int times) {
    for (size_t i = 0; i < ARRAYS * each; i++) {
        const float weight = weights[i / each][i % each];
        int sum = 0;
        for (int rank = 0; rank < world; rank++) sum += addend(rank, i);
        if (weight == (float)(-sum * times)) continue;
        fprintf(stderr, "after %d all-reduces element %zu is %g, not %d\n", times, i, (double)weight, -sum * times);
        exit(1);
    }
}

static void set_options(struct ech_config *config, const char *steps, int argc, char **argv) {
    struct ech_error err;
    char all_steps[16], batch[16];
    ech_config_init(config);
    config->on_log = on_log;
    check(ech_config_from_env(config, &err), &err);
    snprintf(all_steps, sizeof all_steps, "%d", WARM_UP + atoi(steps) + 1);   /* the last round's end is not waited for alone */
    snprintf(batch, sizeof batch, "%d", config->world);   /* a sample each */
    const char *const fixed[][2] = {{"steps", all_steps}, {"batch", batch}, {"sync", "bsp"}, {"shares", "equal"}, {"threads", "1"},
                                    {"lr", "1"}, {"momentum", "0"}, {"weight-decay", "0"}};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) check(ech_config_set(config, fixed[i][0], fixed[i][1], &err), &err);
    for (int i = 0; i < argc; i += 2) check(ech_config_set(config, argv[i] + strspn(argv[i], "-"), argv[i + 1], &err), &err);
}

/* The last arrays first, as backward would have them. */
static void all_reduce(ech_session *session) {
    struct ech_error err;
    for (int p = ARRAYS - 1; p >= 0; p--) check(ech_gradient_ready(session, p, &err), &err);
    check(ech_step_end(session, 0, &err), &err);
    struct ech_step step;
    const ech_status status = ech_step_begin(session, &step, &err);   /* the weights are there */
    if (status != ECH_E_END) check(status, &err);
}

int main(int argc, char **argv) {
    struct ech_error err;
    struct ech_config config;
    struct ech_param param[ARRAYS];
    struct ech_step step;
    char name[ARRAYS][16];
    ech_session *session;
    if (argc < 3 || argc % 2 == 0) {
        fprintf(stderr, "usage: bench_allreduce MIB STEPS [--OPTION VALUE]...\n");
        return 2;
    }
    const size_t each = (size_t)atoi(argv[1]) * (1u << 20) / sizeof(float) / ARRAYS, count = ARRAYS * each;
    const int steps = atoi(argv[2]);
    const float *weights[ARRAYS];
    float *first = calloc(count, sizeof *first), *gradients = malloc(count * sizeof *gradients);
    if (!first || !gradients || count == 0 || steps < 1) return 1;
    set_options(&config, argv[2], argc - 3, argv + 3);
    for (size_t i = 0; i < count; i++) gradients[i] = (float)(addend(config.rank, i) * config.world);   /* of the mean, an integer */
    for (int p = 0; p < ARRAYS; p++) {
        snprintf(name[p], sizeof name[p], "array %d", p);
        param[p] = (struct ech_param){name[p], first + (size_t)p * each, gradients + (size_t)p * each, each, &weights[p]};
    }
    check(ech_session_open(param, ARRAYS, SAMPLES, &config, NULL, NULL, &session, &err), &err);
    check(ech_step_begin(session, &step, &err), &err);
    for (int i = 0; i < WARM_UP; i++) all_reduce(session);
    const clock_t used = clock();
    const int64_t began = echi_now();
    for (int i = 0; i < steps; i++) all_reduce(session);
    const double took = (double)(echi_now() - began) * 1e-9, processor = (double)(clock() - used) / CLOCKS_PER_SEC;
    check_sums(weights, each, config.world, WARM_UP + steps);
    all_reduce(session);
    check_sums(weights, each, config.world, WARM_UP + steps + 1);
    check(ech_session_close(session, NULL, &err), &err);
    if (config.rank == 0) printf("seconds %.5f\nprocessor_seconds %.5f\n", took / steps, processor / steps);
    free(first);
    free(gradients);
    return 0;
}
