/* SPDX-License-Identifier: Apache-2.0
 * What planning costs: processor time of a choice (lib/core/planner/echi_choice.h) among 4 to 1,024 nodes of four speeds, 1 Gb/s, a net of
 * 60 parts and 12 million parameters, and of the tables of what-ifs, which a report has beside it.
 *   bench_plan [NODES ...]
 *
 * The least of several turns counts, each with a fresh workspace. "asked" are predictions that a choice asks for, "made" those that it had
 * not come to before. The images/s predicted of the plan tell whether another version of the planner comes to the same one. */
#include "echi_os.h"
#include "echi_what_if.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 60, PARAMETERS = 200000, SLOW_WORLD = 64, TURNS = 3, WHAT_IF_WORLD = 256 };

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan_request request;
static struct echi_choice_work work;
static struct echi_plan plan;
static struct echi_choice choice;
static uint32_t asked;

static void count(void *self) {
    (void)self;
    asked++;
}

/* Images a second of four classes, as those of test/hosts/strong, and their chance. */
static void make_times(int world) {
    static const uint32_t n[] = {8, 16, 32, 64, 128};
    static const double speed[] = {500, 1000, 2000, 4000};
    memset(times, 0, sizeof times);
    for (int r = 0; r < world; r++) {
        struct echi_times *t = &times[r];
        t->count = sizeof n / sizeof n[0];
        for (uint32_t i = 0; i < t->count; i++) {
            t->n[i] = n[i];
            t->trunk[i] = n[i] / speed[4 * r / world] * 0.9;
            t->head[i] = n[i] / speed[4 * r / world] * 0.1;
        }
        t->link = echi_link_of(1.25e8);
        t->delay = 5e-5;
        t->messages = 1e-4;
        t->exchange = 0.02;
        t->update = 0.01;
        t->jitter = 0.15;
        t->stutter = 0.02;
        t->stutter_factor = 5;
    }
}

static void ask(int world, int sync) {
    request = (struct echi_plan_request){.choose = sync < 0, .sync = sync < 0 ? ECHI_SYNC_BSP : (enum echi_sync)sync, .world = world,
        .separate = -1, .has_cut = true, .staleness = 3, .lr = 0.02, .momentum = 0.9, .shards = ECHI_SHARDS_AUTO,
        .exchange = ECHI_EXCHANGES, .params = (uint64_t)LAYERS * PARAMETERS, .trunk_params = (uint64_t)(LAYERS - 2) * PARAMETERS,
        .load = {.trunk = 4 * (LAYERS - 2) * PARAMETERS, .head = 4 * 2 * PARAMETERS, .row = 8192, .row_grad = 8192,
                 .layers = LAYERS - 2, .head_layers = 2}};
    request.layers.count = LAYERS;
    request.layers.cut = LAYERS - 2;
    for (int i = 0; i < LAYERS; i++) request.layers.params[i] = PARAMETERS;
}

static double choose_once(void) {
    char text[240];
    memset(&work, 0, sizeof work);
    work.between = count;
    asked = 0;
    const int64_t began = echi_thread_cpu();
    if (echi_plan_choose(&request, times, &work, &plan, &choice, text, sizeof text) != ECH_OK) {
        fprintf(stderr, "no plan of %d nodes: %s\n", request.world, text);
        exit(1);
    }
    return (double)(echi_thread_cpu() - began) * 1e-9;
}

static void bench(int world, int sync) {
    struct echi_what_if found[ECHI_WHATS];
    double least = 0, tables = 0;
    make_times(world);
    ask(world, sync);
    for (int turn = 0; turn < (world > SLOW_WORLD ? 1 : TURNS); turn++) {
        const double seconds = choose_once();
        if (turn == 0 || seconds < least) least = seconds;
    }
    const uint32_t asked_for = asked, made = work.memo.count;
    const double rate = choice.candidate[choice.taken].rate;
    if (world <= WHAT_IF_WORLD) {
        const int64_t began = echi_thread_cpu();
        echi_what_if(&plan, times, &request.load, rate, &work, found);
        tables = (double)(echi_thread_cpu() - began) * 1e-9;
    }
    printf("  %5d   %-5s %8.3f s %7u asked %6u made   what-ifs %6.3f s   %.6g images/s, %d groups, %d owners\n", world,
           sync < 0 ? "auto" : echi_policy_of((enum echi_sync)sync)->name, least, asked_for, made, tables, rate, plan.n_groups,
           plan.shards ? plan.shards : 1);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int usual[] = {4, 16, 64, 256, 1024}, policy[] = {ECHI_SYNC_BSP, ECHI_SYNC_GSSP, -1};
    const int rows = argc > 1 ? argc - 1 : (int)(sizeof usual / sizeof usual[0]);
    printf("  nodes   policy  choice\n");
    for (int i = 0; i < rows; i++) {
        const int world = argc > 1 ? atoi(argv[1 + i]) : usual[i];
        if (world < 1 || world > ECHI_WORLD_MAX) {
            fprintf(stderr, "usage: bench_plan [NODES ...]   1 to %d\n", ECHI_WORLD_MAX);
            return 2;
        }
        for (size_t k = 0; k < sizeof policy / sizeof policy[0]; k++) bench(world, policy[k]);
    }
    return 0;
}
