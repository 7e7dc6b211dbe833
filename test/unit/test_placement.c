/* SPDX-License-Identifier: Apache-2.0
 * Where the head and owners go, on clusters whose fastest host has a thin link: simulated, without arithmetic, beside the same cluster
 * without that host, and beside all placements, each of which is simulated. */
#include "echelon_dev.h"
#include "echi_job.h"
#include "echi_options.h"
#include "echi_plan_file.h"
#include "echi_planner.h"
#include "echi_profile.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "part.h"
#include "text_files.h"

enum { WORLD = 4 };
static ech_model *lenet, *large;   /* `large`: 1.1 million parameters, nearly all behind the convolutions */
static ech_data *data;

static int blank(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test, (void)index;
    memset(rows, 0, (size_t)n * 28 * 28 * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

static int open_all(void **state) {
    (void)state;
    static const char text[] = "input 1 28 28\nconv2d out 16 kernel 5\nrelu\nmax_pool kernel 2\n"
                               "conv2d out 32 kernel 5\nrelu\nmax_pool kernel 2\n"
                               "fc out 1024\nrelu\nfc out 512\nrelu\nfc out 10\n";
    static const struct ech_data_callback read = {1, 28, 28, 10, 60000, 0, blank, NULL, "none"};
    struct ech_error err = {0};
    if (ech_model_open("lenet5", &lenet, &err) == ECH_OK && ech_model_parse(text, sizeof text - 1, "large", &large, &err) == ECH_OK &&
        ech_data_from_callback(&read, &data, &err) == ECH_OK)
        return 0;
    print_message("%s\n", err.text);
    return -1;
}
static int close_all(void **state) {
    (void)state;
    ech_data_destroy(data);
    ech_model_destroy(large);
    ech_model_destroy(lenet);
    return 0;
}

/* Steps vary, as little as anywhere: without that the workers around a head fall into step with themselves, well or badly, by chance. */
#define JITTER 0.02

/* Host `thin` computes `faster` times as fast as the others, which make so many images/s. */
struct cluster { bool large; const char *sync; int images, thin; double faster; int thin_mbits, mbits; };

static void set(struct ech_config *c, const char *name, const char *value) {
    struct ech_error err;
    if (ech_config_set(c, name, value, &err) != ECH_OK) fail_msg("%s", err.text);
}

static void configure(const struct cluster *k, struct ech_config *c) {
    ech_config_init(c);
    set(c, "sync", k->sync);
    set(c, "batch", "64");
    set(c, "epochs", k->images > 10000 ? "1" : "0.5");
    set(c, "regroup", "off");
    c->world = WORLD;
}

/* Images a second of a run, by a plan or the planner's (NULL), with the host whose link is thin or without. */
static double simulate(const struct cluster *k, bool with, const char *plan, struct ech_report *report) {
    char path[] = "/tmp/echelon-hosts-XXXXXX", text[400];
    const struct ech_sim_options options = {.hosts = path, .costs_only = 1};
    struct ech_config c;
    struct ech_error err = {0};
    int len = snprintf(text, sizeof text, "default link %d Mb/s delay 5 us jitter %g\n", k->mbits, JITTER);
    for (int r = 0; r < WORLD; r++) {
        if (r != k->thin) len += snprintf(text + len, sizeof text - (size_t)len, "hosts 1 speed %d images/s\n", k->images);
        else if (with)
            len += snprintf(text + len, sizeof text - (size_t)len, "hosts 1 speed %.0f images/s link %d Mb/s\n", k->faster * k->images,
                            k->thin_mbits);
    }
    close(mkstemp(path));
    write_bytes(path, text, (size_t)len);
    configure(k, &c);
    if (plan) set(&c, "plan", plan);
    const ech_status status = ech_simulate(k->large ? large : lenet, data, &c, &options, report, &err);
    remove(path);
    if (status != ECH_OK) fail_msg("%s", err.text);
    return report->images_per_second;
}

/* What the hosts of the cluster would measure. */
static void measure(const struct cluster *k, struct echi_times *times) {
    struct echi_profile profile;
    echi_profile_builtin(&profile);
    echi_profile_fit(&profile, k->large ? large : lenet);
    for (int r = 0; r < WORLD; r++) {
        const double speed = (r == k->thin ? k->faster : 1) * k->images / echi_profile_images(&profile);
        times[r] = profile.times;
        for (uint32_t i = 0; i < times[r].count; i++) times[r].trunk[i] /= speed, times[r].head[i] /= speed;
        times[r].update /= speed;
        times[r].link = echi_link_of((r == k->thin ? k->thin_mbits : k->mbits) * 1e6 / 8);
        times[r].delay = 5e-6;
        times[r].jitter = JITTER;
    }
}

/* Images a second of the best of all: the head and the only owner on each node, owners of groups by processors and by links, one group to
 * four, with the host that has the thin link and without its worker. */
static double best_placement(const struct cluster *k) {
    static struct echi_times times[ECHI_WORLD_MAX];
    static struct echi_plan_request request;
    static struct echi_plan plan;
    static struct echi_job job;
    static struct ech_report report;
    struct ech_config c;
    struct ech_error err = {0};
    double best = 0;
    configure(k, &c);
    assert_int_equal(echi_job_make(k->large ? large : lenet, data, &c, &job, &err), ECH_OK);
    assert_int_equal(echi_plan_request_from(&c, &job, &request, &err), ECH_OK);
    measure(k, times);
    const int groups = strcmp(k->sync, "gssp") == 0 ? WORLD : 1;
    for (int g = 1; g <= groups; g++)
        for (int home = 0; home < WORLD; home++)
            for (int how = 0; how < (groups > 1 ? 4 : 2); how++) {
                char path[] = "/tmp/echelon-plan-XXXXXX", text[240];
                request.groups = g;
                request.home = (uint16_t)(1 + home);
                request.absent[k->thin] = how % 2;
                request.owners = how / 2 ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
                if (echi_plan_make(&request, times, &plan, text, sizeof text) != ECH_OK || plan.n_groups != g) continue;
                echi_plan_parts(&request, times, &plan);
                close(mkstemp(path));
                assert_int_equal(echi_plan_save(path, &plan, times, &err), ECH_OK);
                const double rate = simulate(k, true, path, &report);
                if (rate > best) best = rate;
                remove(path);
            }
    return best;
}

static const struct cluster clusters[] = {
    {false, "bsp", 2000, 0, 1.3, 10, 1000},    {false, "bsp", 2000, 2, 1.05, 20, 100},  {false, "bsp", 60000, 2, 1.3, 20, 1000},
    {false, "gssp", 2000, 0, 1.3, 10, 100},    {false, "gssp", 2000, 2, 1.05, 20, 1000}, {false, "gssp", 2000, 0, 1.3, 10, 1000},
    {false, "gssp", 60000, 2, 1.05, 20, 1000}, {false, "gssp", 60000, 0, 1.05, 10, 1000}, {false, "gssp", 60000, 2, 1.3, 20, 100},
    {true, "bsp", 2000, 0, 1.3, 10, 100},      {true, "bsp", 2000, 2, 1.05, 20, 1000},
    {true, "gssp", 2000, 0, 1.3, 10, 100},     {true, "gssp", 2000, 2, 1.05, 20, 1000},  {true, "gssp", 2000, 2, 1.3, 20, 100},
};

static void a_thin_link_holds_nobody_up(void **state) {
    (void)state;
    static struct ech_report with, without;
    for (size_t i = test_turn(); i < sizeof clusters / sizeof clusters[0]; i += test_part()) {
        const struct cluster *k = &clusters[i];
        const double rate = simulate(k, true, NULL, &with), alone = simulate(k, false, NULL, &without), best = best_placement(k);
        if (getenv("ECHI_SHOW"))
            print_message("%-6s %-4s %5d images/s, rank %d %.2f x on %d of %4d Mb/s: %6.0f images/s (predicted %6.0f), "
                          "without it %6.0f: %.2f, best placement %6.0f: %.2f; head %d, owner %d\n", k->large ? "large" : "lenet5",
                          k->sync, k->images, k->thin, k->faster, k->thin_mbits, k->mbits, rate,
                          with.predicted_images_per_second, alone, rate / alone, best, rate / best, with.head, with.owner_of[0]);
        if (!(rate >= 0.9 * alone)) fail_msg("cluster %zu: %.0f images/s, without rank %d %.0f", i, rate, k->thin, alone);
        if (!(rate >= 0.95 * best)) fail_msg("cluster %zu: %.0f images/s, with the best placement %.0f", i, rate, best);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thin_link_holds_nobody_up)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
