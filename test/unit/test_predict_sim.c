/* SPDX-License-Identifier: Apache-2.0
 * What is predicted of a plan against what the simulator makes of it, without arithmetic: LeNet-5 and ResNet-18 on four to sixteen hosts.
 * Predictions are played on the simulator's cost engine, but without its roles. */
#include "echelon_dev.h"

#include <math.h>
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

static ech_model *model;
static ech_data *data;

static int blank(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test, (void)index;
    memset(rows, 0, (size_t)n * 28 * 28 * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

static int open_all(void **state) {
    (void)state;
    static const struct ech_data_callback read = {1, 28, 28, 10, 60000, 0, blank, NULL, "none"};
    struct ech_error err = {0};
    if (ech_model_open("lenet5", &model, &err) == ECH_OK && ech_data_from_callback(&read, &data, &err) == ECH_OK) return 0;
    print_message("%s\n", err.text);
    return -1;
}
static int close_all(void **state) {
    (void)state;
    ech_data_destroy(data);
    ech_model_destroy(model);
    return 0;
}

/* `within`: how far the prediction may be off, in staleness never less than a tenth and 0.05 rounds. Where the links are full of weights
 * and states of all layers, waits depend on who comes first, and it is rough. */
static const struct { const char *spread, *sync, *groups, *separate, *codec; double within; } cases[] = {
    {"strong", "bsp", "auto", "off", "dense", 0.05},  {"strong", "bsp", "auto", "1", "dense", 0.05},
    {"strong", "ssp", "auto", "1", "dense", 0.10},    {"strong", "gssp", "4", "1", "dense", 0.05},
    {"strong", "gssp", "auto", "1", "dense", 0.05},   {"strong", "ssp", "auto", "off", "dense", 0.10},
    {"strong", "gssp", "4", "off", "dense", 0.15},    {"strong", "gssp", "8", "off", "dense", 0.10},
    {"mild", "bsp", "auto", "off", "dense", 0.06},    {"mild", "gssp", "auto", "1", "dense", 0.05},
    {"mild", "gssp", "8", "off", "dense", 0.10},      {"even", "bsp", "auto", "1", "dense", 0.03},
    {"even", "gssp", "4", "1", "dense", 0.10},        {"even", "gssp", "8", "off", "dense", 0.10},
    {"incast", "bsp", "auto", "off", "dense", 0.05},
    {"incast", "gssp", "4", "off", "dense", 0.10},    {"links", "gssp", "auto", "1", "dense", 0.05},
    {"links", "gssp", "2", "off", "dense", 0.10},     {"links", "gssp", "4", "off", "dense", 0.10},
    {"links", "gssp", "8", "off", "dense", 0.10},     {"links", "gssp", "2", "off", "topk:balanced", 0.25},
    {"links", "gssp", "8", "off", "topk:volume", 0.25},   /* early ratios are higher */
};

/* A stutter makes a whole round long: of 350 rounds with some 50 stutters the mean would be off by 5 %. That of links that are full of
 * weights hides it, and has six times the events. On slow links the first weights and the last pushes, which are not predicted, take a part
 * of a short run: 3,020 images/s in 1.5 epochs, 3,171 in 6, 3,214 in 20. */
#define ROUNDS_EPOCHS "10"
#define INCAST_EPOCHS "2"
#define LINKS_EPOCHS "6"
static const char *epochs_of(size_t i) {
    if (strcmp(cases[i].sync, "bsp") == 0) return strcmp(cases[i].spread, "incast") == 0 ? INCAST_EPOCHS : ROUNDS_EPOCHS;
    return strcmp(cases[i].spread, "links") == 0 && strcmp(cases[i].codec, "dense") == 0 ? LINKS_EPOCHS : "1.5";
}

static void predictions_come_true(void **state) {
    (void)state;
    for (size_t i = test_turn(); i < sizeof cases / sizeof cases[0]; i += test_part()) {
        struct ech_config c;
        struct ech_report r;
        struct ech_error err = {0};
        ech_config_init(&c);
        if (ech_config_set(&c, "sync", cases[i].sync, &err) != ECH_OK || ech_config_set(&c, "groups", cases[i].groups, &err) != ECH_OK ||
            ech_config_set(&c, "separate", cases[i].separate, &err) != ECH_OK ||
            ech_config_set(&c, "codec", cases[i].codec, &err) != ECH_OK || ech_config_set(&c, "regroup", "off", &err) != ECH_OK ||
            ech_config_set(&c, "epochs", epochs_of(i), &err) != ECH_OK)
            fail_msg("%s", err.text);
        const struct ech_sim_options options = {.workers = 16, .spread = cases[i].spread, .costs_only = 1};
        if (ech_simulate(model, data, &c, &options, &r, &err) != ECH_OK) fail_msg("case %zu: %s", i, err.text);
        const double off = r.predicted_images_per_second / r.images_per_second - 1;
        if (getenv("ECHI_SHOW"))
            print_message("%-7s %-5s groups %d apart %d: %6.0f images/s, predicted %+5.1f %%; %.2f stale, predicted %.2f\n",
                          cases[i].spread, r.sync, r.n_groups, r.separate, r.images_per_second, 100 * off, r.staleness_mean,
                          r.predicted_staleness);
        if (!(fabs(off) <= cases[i].within))
            fail_msg("case %zu (%s, %s): %.0f images/s were predicted, %.0f it made", i, cases[i].spread, r.sync,
                     r.predicted_images_per_second, r.images_per_second);
        if (!(fabs(r.predicted_staleness - r.staleness_mean) <= 0.05 + fmax(0.1, cases[i].within) * r.staleness_mean))
            fail_msg("case %zu: %.2f rounds stale were predicted, %.2f it was", i, r.predicted_staleness, r.staleness_mean);
    }
}

static void set(struct ech_config *c, const char *name, const char *value) {
    struct ech_error err;
    if (ech_config_set(c, name, value, &err) != ECH_OK) fail_msg("%s", err.text);
}

/* Simulates the run of `c` on hosts as a hosts file has them, without arithmetic. */
static void simulate_on(const char *hosts, const ech_model *m, ech_data *samples, const struct ech_config *c, struct ech_report *r) {
    char path[] = "/tmp/echelon-hosts-XXXXXX";
    const struct ech_sim_options options = {.hosts = path, .costs_only = 1};
    struct ech_error err = {0};
    close(mkstemp(path));
    write_bytes(path, hosts, strlen(hosts));
    const ech_status status = ech_simulate(m, samples, c, &options, r, &err);
    remove(path);
    if (status != ECH_OK) fail_msg("%s: %s", hosts, err.text);
}

/* Rounds whose parts have several owners: ResNet-18, 44.7 MB, 100 rounds: the first weights take as long as a round, which is
 * not predicted. */
struct rounds { const char *hosts, *batch, *shards; double within; const char *exchange; bool deterministic; const char *shares; };
static const struct rounds rounds[] = {
    {"hosts 8 speed 45 images/s", "512", "1", 0.02, "server", false, "equal"},
    {"hosts 8 speed 45 images/s", "512", "2", 0.025, "server", false, "equal"},
    {"hosts 8 speed 45 images/s", "512", "4", 0.02, "server", false, "equal"},
    {"hosts 8 speed 45 images/s", "512", "8", 0.02, "server", false, "equal"},
    {"hosts 4 speed 45 images/s", "256", "1", 0.02, "server", false, "equal"},
    {"hosts 4 speed 45 images/s", "256", "2", 0.02, "server", false, "equal"},
    {"hosts 4 speed 45 images/s", "256", "4", 0.02, "server", false, "equal"},
    {"hosts 4 speed 45 images/s", "256", "3,1", 0.02, "server", false, "equal"},
    {"hosts 7 speed 4500 images/s\nhosts 1 speed 4500 images/s link 500 Mb/s", "64", "1", 0.02, "server", false, "equal"},
    {"hosts 7 speed 4500 images/s\nhosts 1 speed 4500 images/s link 500 Mb/s", "64", "8", 0.02, "server", false, "equal"},
    {"hosts 2 speed 45 images/s\nhosts 6 speed 45 images/s link 200 Mb/s", "512", "1", 0.025, "server", false, "equal"},
    {"hosts 2 speed 45 images/s\nhosts 6 speed 45 images/s link 200 Mb/s", "512", "8", 0.03, "server", false, "equal"},
    {"hosts 2 speed 45 images/s\nhosts 6 speed 45 images/s link 200 Mb/s", "512", "2,3,4", 0.03, "server", false, "equal"},
    {"hosts 8 speed 45 images/s", "512", "auto", 0.02, "ring", false, "equal"},
    {"hosts 8 speed 45 images/s", "512", "auto", 0.02, "ring", true, "equal"},
    {"hosts 8 speed 45 images/s", "512", "8", 0.02, "server", true, "equal"},
    {"hosts 2 speed 45 images/s\nhosts 6 speed 45 images/s link 200 Mb/s", "512", "1", 0.02, "server", true, "equal"},
    {"hosts 1 speed 200 images/s link 20 Mb/s\nhosts 7 speed 200 images/s", "512", "auto", 0.02, "ring", false, "speed"},   /* of 7 */
};

static int blank_images(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test, (void)index;
    memset(rows, 0, (size_t)n * 3 * 32 * 32 * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

static ech_model *resnet;
static ech_data *images, *few_digits, *few_images;   /* few: 2,048, with which ratios soon come to where they stay */

static int open_resnet(void **state) {
    (void)state;
    static const struct ech_data_callback read = {3, 32, 32, 10, 60000, 0, blank_images, NULL, "none"};
    static const struct ech_data_callback few = {3, 32, 32, 10, 2048, 0, blank_images, NULL, "none"};
    static const struct ech_data_callback digits = {1, 28, 28, 10, 2048, 0, blank, NULL, "none"};
    struct ech_error err = {0};
    return ech_model_open("resnet18", &resnet, &err) == ECH_OK && ech_data_from_callback(&read, &images, &err) == ECH_OK &&
                   ech_data_from_callback(&few, &few_images, &err) == ECH_OK && ech_data_from_callback(&digits, &few_digits, &err) == ECH_OK
               ? 0 : -1;
}
static int close_resnet(void **state) {
    (void)state;
    ech_data_destroy(few_digits);
    ech_data_destroy(few_images);
    ech_data_destroy(images);
    ech_model_destroy(resnet);
    return 0;
}

static double run_rounds(const struct rounds *k, struct ech_report *r) {
    char hosts[200];
    struct ech_config c;
    snprintf(hosts, sizeof hosts, "default link 1 Gb/s delay 5 us\n%s\n", k->hosts);
    ech_config_init(&c);
    set(&c, "sync", "bsp");
    set(&c, "shares", k->shares);
    set(&c, "separate", "off");
    set(&c, "batch", k->batch);
    set(&c, "shards", k->shards);
    set(&c, "exchange", k->exchange);
    set(&c, "deterministic", k->deterministic ? "on" : "off");
    set(&c, "steps", "100");
    simulate_on(hosts, resnet, images, &c, r);
    if (getenv("ECHI_SHOW"))
        print_message("%s, shards %s (%d), %s%s: %.1f images/s, predicted %+.1f %%\n", k->hosts, k->shards, r->n_shards, k->exchange,
                      k->deterministic ? ", deterministic" : "", r->images_per_second,
                      100 * (r->predicted_images_per_second / r->images_per_second - 1));
    return r->images_per_second;
}

static void shards_are_predicted(void **state) {
    (void)state;
    for (size_t i = test_turn(); i < sizeof rounds / sizeof rounds[0]; i += test_part()) {
        struct ech_report r;
        run_rounds(&rounds[i], &r);
        const double off = r.predicted_images_per_second / r.images_per_second - 1;
        if (!(fabs(off) <= rounds[i].within))
            fail_msg("case %zu: %.1f images/s were predicted, %.1f it made", i, r.predicted_images_per_second, r.images_per_second);
    }
}

/* An owner that trains among many, itself as slow as they are: its own worker waits for no link, and what it adds takes it as long as its
 * processor says. */
static void an_owner_that_trains_is_predicted(void **state) {
    (void)state;
    static const struct { const char *hosts, *batch; } slow[] = {{"hosts 12 speed 500 images/s", "192"},
                                                                  {"hosts 4 speed 500 images/s\nhosts 12 speed 2000 images/s", "256"}};
    for (int i = 0; i < 2; i++) {
        struct ech_config c;
        struct ech_report r;
        char hosts[200];
        snprintf(hosts, sizeof hosts, "default link 1 Gb/s\n%s\n", slow[i].hosts);
        ech_config_init(&c);
        set(&c, "sync", "bsp");
        set(&c, "shares", "equal");
        set(&c, "shards", "1");
        set(&c, "batch", slow[i].batch);
        set(&c, "steps", "100");
        simulate_on(hosts, model, data, &c, &r);
        const double off = r.predicted_images_per_second / r.images_per_second - 1;
        if (!(fabs(off) <= 0.04))
            fail_msg("%s: %.0f images/s were predicted, %.0f it made", hosts, r.predicted_images_per_second, r.images_per_second);
    }
}

/* Parts of some KB: what messages say of themselves is 4 % of their bytes; and a ring's owners are told of each step by a message of its
 * own, and wait for the last. Without the first predictions are 3 to 4 % off, without the second that of the ring 2 %. */
static void small_messages_are_predicted(void **state) {
    (void)state;
    static const struct { const char *hosts, *exchange; } small[] = {
        {"hosts 16 speed 2000 images/s link 500 Mb/s", "ring"},
        {"hosts 8 speed 1000 images/s link 25 Mb/s\nhosts 8 speed 2000 images/s link 200 Mb/s", "server"},
        {"hosts 16 speed 1500 images/s link 50 Mb/s", "server"},
    };
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i += test_part()) {
        struct ech_config c;
        struct ech_report r;
        ech_config_init(&c);
        set(&c, "sync", "bsp");
        set(&c, "shares", "equal");
        set(&c, "shards", strcmp(small[i].exchange, "ring") == 0 ? "auto" : "16");
        set(&c, "exchange", small[i].exchange);
        set(&c, "batch", "256");
        set(&c, "steps", "200");
        simulate_on(small[i].hosts, model, data, &c, &r);
        const double off = r.predicted_images_per_second / r.images_per_second - 1;
        if (!(fabs(off) <= 0.015))
            fail_msg("%s: %.0f images/s were predicted, %.0f it made", small[i].hosts, r.predicted_images_per_second, r.images_per_second);
    }
}

/* Whole pushes: groups, states, the codec, a head, `local`; one owner of many hosts, one slow link, one slow host. So many rounds of
 * `batch` that the first weights, which are not predicted, hardly count; under the codec many epochs, since early ratios are higher.
 * Bounds are what is off, rounded up. Without jitter asp, and groups around a head, fall into step with themselves, there and here in other
 * ways. */
#define SLOW "default link 100 Mb/s delay 50 us"
#define FAST "default link 1 Gb/s delay 20 us"
#define FREE "default delay 20 us"
static const struct { bool resnet; const char *hosts, *sync, *groups, *separate, *codec, *batch, *steps; double within; bool shadow; }
pushes[] = {
    {0, SLOW "\nhosts 4 speed 4000 images/s", "ssp", "auto", "off", "dense", "64", "400", 0.02, 0},
    {0, SLOW "\nhosts 4 speed 4000 images/s", "gssp", "2", "1", "dense", "64", "1600", 0.04, 0},
    {0, SLOW "\nhosts 4 speed 4000 images/s", "gssp", "2", "off", "topk", "64", "3000", 0.03, 0},
    {0, SLOW "\nhosts 4 speed 4000 images/s", "local", "auto", "off", "dense", "1024", "200", 0.03, 0},
    {0, FAST "\nhosts 8 speed 8000 images/s", "ssp", "auto", "off", "dense", "128", "600", 0.02, 0},
    {0, FAST "\nhosts 8 speed 8000 images/s", "bsp", "auto", "off", "topk", "128", "3000", 0.05, 0},
    {0, FAST "\nhosts 4 speed 8000 images/s\nhosts 4 speed 3000 images/s", "gssp", "2", "off", "dense", "128", "600", 0.04, 0},
    {0, FAST " jitter 0.05\nhosts 4 speed 8000 images/s\nhosts 4 speed 3000 images/s", "gssp", "2", "1", "dense", "128", "2000", 0.06, 0},
    {0, FAST "\nhosts 7 speed 8000 images/s\nhosts 1 speed 8000 images/s link 50 Mb/s", "ssp", "auto", "off", "dense", "128", "300",
     0.02, 0},
    {0, FAST " jitter 0.05\nhosts 7 speed 8000 images/s\nhosts 1 speed 1000 images/s", "asp", "auto", "off", "dense", "128", "1500",
     0.08, 0},
    {0, FAST "\nhosts 16 speed 20000 images/s", "ssp", "auto", "off", "dense", "256", "600", 0.02, 0},
    {0, FREE "\nhosts 16 speed 4000 images/s", "ssp", "auto", "1", "dense", "256", "600", 0.02, 0},
    {0, FREE "\nhosts 8 speed 4000 images/s\nhosts 8 speed 1500 images/s", "gssp", "4", "1", "dense", "256", "600", 0.03, 0},
    {0, FREE "\nhosts 16 speed 4000 images/s", "local", "auto", "off", "dense", "2048", "200", 0.03, 0},
    {0, FREE "\nhosts 4 speed 8000 images/s quota 50 ms of 100 ms", "bsp", "auto", "off", "topk", "64", "3000", 0.05, 0},
    {0, FAST "\nhosts 4 speed 8000 images/s quota 50 ms of 100 ms", "ssp", "auto", "off", "dense", "64", "3000", 0.05, 0},
    {0, SLOW "\nhosts 4 speed 8000 images/s quota 1 ms of 4 ms", "gssp", "2", "1", "dense", "64", "1500", 0.05, 0},
    {0, FREE "\nhosts 4 speed 8000 images/s cores 2", "bsp", "auto", "off", "topk", "64", "3000", 0.05, 0},
    {0, FAST "\nhosts 2 speed 8000 images/s cores 1\nhosts 2 speed 4000 images/s", "ssp", "auto", "off", "dense", "64", "3000", 0.05, 0},
    {0, FREE "\nhosts 4 speed 8000 images/s cores 2 quota 4 ms of 8 ms", "gssp", "1", "1", "dense", "64", "3000", 0.05, 0},
    {1, FAST "\nhosts 4 speed 45 images/s quota 30 ms of 100 ms", "ssp", "auto", "off", "dense", "128", "100", 0.05, 0},
    {1, FAST "\nhosts 4 speed 45 images/s", "ssp", "auto", "off", "dense", "128", "100", 0.02, 0},
    {1, FAST "\nhosts 4 speed 45 images/s\nhosts 4 speed 20 images/s", "gssp", "2", "off", "dense", "256", "100", 0.04, 0},
    {1, FAST "\nhosts 16 speed 45 images/s", "ssp", "auto", "off", "dense", "512", "60", 0.02, 0},
    {1, SLOW "\nhosts 8 speed 45 images/s", "gssp", "2", "off", "topk", "256", "1000", 0.06, 0},
    {1, FAST "\nhosts 8 speed 45 images/s", "local", "auto", "off", "dense", "2048", "60", 0.03, 0},
    {1, FREE "\nhosts 7 speed 45 images/s\nhosts 1 speed 10 images/s", "ssp", "auto", "1", "dense", "256", "100", 0.02, 0},
    {0, SLOW "\nhosts 4 speed 4000 images/s", "gssp", "2", "1", "dense", "64", "1600", 0.04, 1},   /* 1.19 if nobody waited for it */
    /* Without jitter the shadow makes two rhythms of it, of 600 steps one and of 2,400 another. */
    {0, FAST " jitter 0.05\nhosts 8 speed 8000 images/s", "ssp", "auto", "1", "dense", "128", "600", 0.04, 1},
};

static void whole_pushes_are_predicted(void **state) {
    (void)state;
    for (size_t i = test_turn(); i < sizeof pushes / sizeof pushes[0]; i += test_part()) {
        struct ech_config c;
        struct ech_report r;
        ech_config_init(&c);
        set(&c, "sync", pushes[i].sync);
        set(&c, "groups", pushes[i].groups);
        set(&c, "separate", pushes[i].separate);
        set(&c, "shadow", pushes[i].shadow ? "on" : "off");
        set(&c, "codec", pushes[i].codec);
        set(&c, "batch", pushes[i].batch);
        set(&c, "steps", pushes[i].steps);
        set(&c, "regroup", "off");
        const bool few = strcmp(pushes[i].codec, "dense") != 0;
        ech_data *const of = pushes[i].resnet ? few ? few_images : images : few ? few_digits : data;
        simulate_on(pushes[i].hosts, pushes[i].resnet ? resnet : model, of, &c, &r);
        const double off = r.predicted_images_per_second / r.images_per_second - 1;
        if (getenv("ECHI_SHOW"))
            print_message("%2zu %-8s %2d hosts %-5s groups %d apart %d %-5s: %9.1f images/s, predicted %9.1f: %+5.1f %%; %.2f stale, "
                          "predicted %.2f\n", i, pushes[i].resnet ? "ResNet" : "LeNet", r.world, r.sync, r.n_groups, r.separate,
                          pushes[i].codec, r.images_per_second, r.predicted_images_per_second, 100 * off, r.staleness_mean,
                          r.predicted_staleness);
        if (!(fabs(off) <= pushes[i].within))
            fail_msg("case %zu: %.1f images/s were predicted, %.1f it made", i, r.predicted_images_per_second, r.images_per_second);
        if (!(fabs(r.predicted_staleness - r.staleness_mean) <= 0.05 + 0.1 * r.staleness_mean))
            fail_msg("case %zu: %.2f rounds stale were predicted, %.2f it was", i, r.predicted_staleness, r.staleness_mean);
    }
}

/* Micro-batches beside a head: whatever number is asked for is predicted, and the one that is taken makes nearly as much as the best. */
static void micro_batches_are_predicted(void **state) {
    (void)state;
    static const struct { const char *hosts, *batch, *shadow, *shards; double within; } found[] = {
        {SLOW "\nhosts 4 speed 4000 images/s", "256", "off", "1", 0.01},  /* links hide it: by a third faster */
        {SLOW "\nhosts 4 speed 4000 images/s", "256", "on", "1", 0.01},
        {"default link 40 Mb/s delay 1 ms\nhosts 4 speed 4000 images/s", "128", "off", "1", 0.01},
        {FAST "\nhosts 8 speed 8000 images/s", "128", "off", "2", 0.01},  /* the head is full: two hide some of it */
        {FREE "\nhosts 2 speed 4000 images/s\nhosts 2 speed 1000 images/s", "256", "off", "1", 0.01},
        {FAST " jitter 0.1\nhosts 4 speed 4000 images/s", "256", "off", "1", 0.01},
    };
    static const char *const counts[] = {"1", "2", "3", "4", "8", "auto"};
    for (size_t i = test_turn(); i < sizeof found / sizeof found[0]; i += test_part()) {
        double best = 0, rate = 0;
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            struct ech_config c;
            struct ech_report r;
            ech_config_init(&c);
            set(&c, "separate", "1");
            set(&c, "batch", found[i].batch);
            set(&c, "shadow", found[i].shadow);
            set(&c, "shards", found[i].shards);
            set(&c, "steps", "300");
            set(&c, "regroup", "off");
            set(&c, "micro-batches", counts[k]);
            set(&c, "heads", "1");
            simulate_on(found[i].hosts, model, data, &c, &r);
            const double off = r.predicted_images_per_second / r.images_per_second - 1;
            if (getenv("ECHI_SHOW"))
                print_message("case %zu, %-4s (%d): %8.0f images/s, predicted %+.1f %%\n", i, counts[k], r.micro_batches,
                              r.images_per_second, 100 * off);
            if (!(fabs(off) <= found[i].within))
                fail_msg("case %zu, %s: %.0f images/s were predicted, %.0f it made", i, counts[k], r.predicted_images_per_second,
                         r.images_per_second);
            rate = r.images_per_second;
            best = fmax(best, rate);
        }
        if (!(rate >= 0.96 * best)) fail_msg("case %zu: %.0f images/s, the best %.0f", i, rate, best);
    }
}

/* Of several heads rows, sums and updates; on thin links next rounds wait for sums. */
static void several_heads_are_predicted(void **state) {
    (void)state;
    static const char *const hosts[] = {FREE "\nhosts 6 speed 2000 images/s", FAST "\nhosts 6 speed 2000 images/s",
                                        SLOW "\nhosts 6 speed 2000 images/s"}, *const heads[] = {"1", "2", "3"};
    for (size_t i = test_turn(); i < 9; i += test_part()) {
        struct ech_config c;
        struct ech_report r;
        ech_config_init(&c);
        set(&c, "sync", "bsp");
        set(&c, "separate", "1");
        set(&c, "heads", heads[i % 3]);
        set(&c, "shares", "equal");
        set(&c, "batch", "192");
        set(&c, "steps", "300");
        simulate_on(hosts[i / 3], model, data, &c, &r);
        const double off = r.predicted_images_per_second / r.images_per_second - 1;
        if (getenv("ECHI_SHOW")) print_message("%zu heads: %.1f images/s, predicted %+.1f %%\n", 1 + i % 3, r.images_per_second, 100 * off);
        assert_int_equal(r.n_heads, i % 3 ? 1 + i % 3 : 0);
        if (!(fabs(off) <= 0.01))
            fail_msg("case %zu: %.1f were predicted, %.1f it made", i, r.predicted_images_per_second, r.images_per_second);
    }
}

/* In bf16 rows take half of the time on links: predicted as they are simulated, and where they are what all wait for, much faster. Whoever
 * follows such a plan has its predictions, whatever the options ask for. */
static void activations_are_predicted(void **state) {
    (void)state;
    static const struct { const char *hosts, *sync, *batch; double within, gain; } found[] = {
        {SLOW "\nhosts 4 speed 4000 images/s", "bsp", "256", 0.02, 1.3}, {FAST "\nhosts 4 speed 4000 images/s", "bsp", "256", 0.02, 1},
        {SLOW "\nhosts 4 speed 4000 images/s", "gssp", "64", 0.05, 1.1}, {FAST "\nhosts 4 speed 4000 images/s", "gssp", "64", 0.05, 1},
    };
    char plan[] = "/tmp/echelon-rows-plan.XXXXXX";
    const int fd = mkstemp(plan);
    assert_true(fd >= 0 && close(fd) == 0);
    for (size_t i = test_turn(); i < sizeof found / sizeof found[0]; i += test_part()) {
        double rate[3], predicted[3];
        for (int way = 0; way < 3; way++) {   /* fp32; bf16; its plan */
            struct ech_config c;
            struct ech_report r;
            ech_config_init(&c);
            set(&c, "sync", found[i].sync);
            set(&c, "separate", "1");
            set(&c, "batch", found[i].batch);
            set(&c, "steps", found[i].sync[0] == 'g' ? "1600" : "300");
            set(&c, "regroup", "off");
            set(&c, "micro-batches", "1");
            set(&c, "shares", found[i].sync[0] == 'g' ? "speed" : "equal");
            set(&c, "activations", way == 1 ? "bf16" : "fp32");
            set(&c, way == 2 ? "plan" : "save-plan", plan);
            simulate_on(found[i].hosts, model, data, &c, &r);
            const double off = r.predicted_images_per_second / r.images_per_second - 1;
            if (getenv("ECHI_SHOW"))
                print_message("case %zu, %s: %8.0f images/s, predicted %+.1f %%\n", i, r.activations, r.images_per_second, 100 * off);
            assert_string_equal(r.activations, way > 0 ? "bf16" : "fp32");
            if (!(fabs(off) <= found[i].within))
                fail_msg("case %zu, %s: %.0f images/s were predicted, %.0f it made", i, r.activations, r.predicted_images_per_second,
                         r.images_per_second);
            rate[way] = r.images_per_second;
            predicted[way] = r.predicted_images_per_second;
        }
        if (!(fabs(predicted[2] / predicted[1] - 1) < 0.01))
            fail_msg("case %zu: %.0f images/s were predicted, and by its plan %.0f", i, predicted[1], predicted[2]);
        if (!(rate[1] >= found[i].gain * rate[0])) fail_msg("case %zu: %.0f images/s in bf16, %.0f in fp32", i, rate[1], rate[0]);
    }
    unlink(plan);
}

/* As many owners as pay, and who: nearly the throughput of the best of 1, 2, 4 and 8, and clearly more than with half as many. */
static void as_many_shards_as_pay(void **state) {
    (void)state;
    static const struct { const char *hosts, *batch; int shards; } found[] = {
        {"hosts 8 speed 45 images/s", "512", 8},                                             /* 4 % more than 4 */
        {"hosts 4 speed 45 images/s", "256", 2},                                             /* 4 make half a percent more */
        {"hosts 8 speed 0.25 images/s", "512", 1},                                           /* links hardly matter */
        {"hosts 2 speed 45 images/s\nhosts 6 speed 45 images/s link 200 Mb/s", "512", 2},    /* the others' links are full of their own */
        {"hosts 6 speed 45 images/s link 200 Mb/s\nhosts 2 speed 45 images/s", "512", 3},      /* and rank 0 the smallest part */
    };
    for (size_t i = test_turn(); i < sizeof found / sizeof found[0]; i += test_part()) {
        static const char *const counts[] = {"1", "2", "4", "8"};
        struct ech_report taken, other;
        double best = 0;
        const double rate = run_rounds(&(struct rounds){found[i].hosts, found[i].batch, "auto", 0, "server", false, "equal"}, &taken);
        assert_int_equal(taken.n_shards > 0 ? taken.n_shards : 1, found[i].shards);
        for (int k = 0; k < 4 && atoi(counts[k]) <= taken.world; k++) {
            const double of = run_rounds(&(struct rounds){found[i].hosts, found[i].batch, counts[k], 0, "server", false, "equal"}, &other);
            if (of > best) best = of;
            if (2 * atoi(counts[k]) == found[i].shards && !(rate > of * 1.02))
                fail_msg("case %zu: half as many make %.1f, all %.1f", i, of, rate);
        }
        if (!(rate >= 0.98 * best)) fail_msg("case %zu: %.1f images/s, the best %.1f", i, rate, best);
    }
}

/* Rank 0 has a thin link: the others go round without it, and it coordinates. Seven owners are as fast within a percent, so by itself the
 * ring is chosen. */
static void a_ring_leaves_rank_0_out(void **state) {
    (void)state;
    struct rounds k = rounds[sizeof rounds / sizeof rounds[0] - 1];
    struct ech_report r;
    const double ring = run_rounds(&k, &r);
    assert_int_equal(r.n_shards, 7);
    for (int i = 0; i < r.n_shards; i++) assert_true(r.shard_owner[i] != 0);
    k.exchange = "server";
    const double server = run_rounds(&k, &r);
    k.exchange = "auto";
    const double chosen = run_rounds(&k, &r);
    if (!(fabs(ring / server - 1) < 0.01 && fabs(chosen / ring - 1) < 1e-9))
        fail_msg("%.1f images/s, by owners %.1f, chosen %.1f", ring, server, chosen);
}

/* A ring that is predicted to gain less than 5 %: it is taken in the place of several owners, not of one. */
static void a_ring_as_fast_as_owners_is_taken(void **state) {
    (void)state;
    static const struct { const char *hosts, *batch; bool taken; } found[] = {{"hosts 8 speed 20 images/s", "512", true},
                                                                              {"hosts 4 speed 20 images/s link 2 Gb/s", "256", false}};
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        struct rounds k = {found[i].hosts, found[i].batch, "auto", 0, "ring", false, "equal"};
        struct ech_report r;
        const double ring = run_rounds(&k, &r);
        k.exchange = "server";
        const double server = run_rounds(&k, &r);
        const int owners = r.n_shards;
        k.exchange = "auto";
        const double chosen = run_rounds(&k, &r);
        if (!((owners > 1) == found[i].taken && ring > server && ring < 1.05 * server &&
              fabs(chosen / (found[i].taken ? ring : server) - 1) < 1e-9))
            fail_msg("case %zu: %.2f images/s, by %d owners %.2f, chosen %.2f", i, ring, owners, server, chosen);
    }
}

/* With the head apart the loss of any owner ends the run: two that gain less than 10 % are not worth that. */
static void owners_at_risk_must_gain_more(void **state) {
    (void)state;
    static const char hosts[] = "default link 500 Mb/s delay 10 us\nhosts 2 speed 0.2 x\nhosts 6 speed 2 x\n";
    double predicted[2];
    for (int i = 0; i < 2; i++) {
        struct ech_config c;
        struct ech_report r;
        ech_config_init(&c);
        set(&c, "separate", "1");
        set(&c, "batch", "64");
        set(&c, "steps", "20");
        set(&c, "micro-batches", "1");   /* in two they gain 14 %, and four owners 19 % */
        if (i) set(&c, "shards", "2");
        simulate_on(hosts, model, data, &c, &r);
        assert_int_equal(r.n_shards, 2 * i);
        predicted[i] = r.predicted_images_per_second;
    }
    if (!(predicted[1] > 1.02 * predicted[0])) fail_msg("%.0f images/s, with two owners %.0f", predicted[0], predicted[1]);
}

/* On full links steps are long because of what a group's link carries: nobody would be faster elsewhere, and nobody is moved, however
 * unlike the steps of a group are. */
static void full_links_move_nobody(void **state) {
    (void)state;
    static const char *const groups[] = {"2", "4"};
    for (int i = 0; i < 2; i++) {
        const struct ech_sim_options options = {.workers = 16, .spread = "links", .costs_only = 1};
        struct ech_config c;
        struct ech_report r;
        struct ech_error err = {0};
        ech_config_init(&c);
        set(&c, "sync", "gssp");
        set(&c, "groups", groups[i]);
        set(&c, "separate", "off");
        set(&c, "epochs", "2");
        set(&c, "regroup", "auto");
        if (ech_simulate(model, data, &c, &options, &r, &err) != ECH_OK) fail_msg("%s", err.text);
        assert_int_equal(r.regroups, 0);
        assert_true(r.iteration_seconds[r.n_groups - 1] > 2 * r.iteration_seconds[0]);
    }
}

/* Where all layers are stale no more groups are made than keep the slowest one's pushes within eight rounds: on full links with dense
 * messages few, though more would be faster; with the codec, or where links are not full, as many as are faster. */
static void no_group_is_left_far_behind(void **state) {
    (void)state;
    static const struct { const char *spread, *codec; int groups; } found[] = {{"links", "dense", 2}, {"links", "topk", 8},
                                                                               {"strong", "dense", 8}};
    for (int i = 0; i < 3; i++) {
        const struct ech_sim_options options = {.workers = 16, .spread = found[i].spread, .costs_only = 1};
        struct ech_config c;
        struct ech_report r;
        struct ech_error err = {0};
        ech_config_init(&c);
        set(&c, "sync", "gssp");
        set(&c, "separate", "off");
        set(&c, "codec", found[i].codec);
        set(&c, "epochs", "0.1");
        if (ech_simulate(model, data, &c, &options, &r, &err) != ECH_OK) fail_msg("%s", err.text);
        assert_int_equal(r.n_groups, found[i].groups);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(predictions_come_true),
                                        cmocka_unit_test_setup_teardown(shards_are_predicted, open_resnet, close_resnet),
                                        cmocka_unit_test(an_owner_that_trains_is_predicted),
                                        cmocka_unit_test(small_messages_are_predicted),
                                        cmocka_unit_test_setup_teardown(whole_pushes_are_predicted, open_resnet, close_resnet),
                                        cmocka_unit_test(several_heads_are_predicted), cmocka_unit_test(activations_are_predicted),
                                        cmocka_unit_test_setup_teardown(as_many_shards_as_pay, open_resnet, close_resnet),
                                        cmocka_unit_test_setup_teardown(a_ring_leaves_rank_0_out, open_resnet, close_resnet),
                                        cmocka_unit_test_setup_teardown(a_ring_as_fast_as_owners_is_taken, open_resnet, close_resnet),
                                        cmocka_unit_test(owners_at_risk_must_gain_more),
                                        cmocka_unit_test(micro_batches_are_predicted),
                                        cmocka_unit_test(full_links_move_nobody), cmocka_unit_test(no_group_is_left_far_behind)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
