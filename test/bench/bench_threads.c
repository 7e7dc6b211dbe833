/* SPDX-License-Identifier: Apache-2.0
 * Training steps on several threads over the same on one: two stacks of one process train in turn, some 20 ms each, so that what else the
 * machine does meets both, and are held against each other step by step. Both go on from the same weights and must come out with
 * the same bits.
 *
 *     bench_threads [THREADS [NET [SECONDS]]]      2 threads, all nets, 10 seconds each; NET lenet5, vgg19, resnet18 or reduction block
 * With a NET its units are told one by one. */
#include "echi_model.h"
#include "echi_ops.h"
#include "echi_os.h"
#include "echi_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_N = 1024, MOST_PARTS = 160, MOST_STEPS = 20000, SIDES = 2 };

/* A reduction block is what --deterministic takes at a time. */
struct net { const char *name, *model; int n; enum echi_kernels kernels; };
static const struct net nets[] = {{"lenet5", "lenet5", 64, ECHI_KERNELS_FAST}, {"vgg19", "vgg19", 32, ECHI_KERNELS_FAST},
                                  {"resnet18", "resnet18", 32, ECHI_KERNELS_FAST}, {"reduction block", "lenet5", 4, ECHI_KERNELS_FIXED}};
enum { NETS = sizeof nets / sizeof nets[0] };

struct side {
    struct echi_device *device;
    struct echi_buffer *params, *grads, *velocity;
    struct echi_stack *stack;
    float at[MOST_PARTS][MOST_STEPS];   /* microseconds of each part of each step, the whole step last */
};
static struct side sides[SIDES];

static void check(ech_status status, const struct ech_error *err) {
    if (status == ECH_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void open_side(struct side *s, const ech_model *m, const struct net *net, int threads) {
    struct ech_error err;
    const size_t bytes = m->n_params * sizeof(float);
    check(echi_device_open("cpu", threads, &s->device, &err), &err);
    check(echi_buffer_create(s->device, bytes, &s->params, &err), &err);
    check(echi_buffer_create(s->device, bytes, &s->grads, &err), &err);
    check(echi_buffer_create(s->device, bytes, &s->velocity, &err), &err);
    echi_model_init(m, 1, echi_buffer_host(s->params));
    check(echi_stack_create(s->device, net->kernels, m->layers, m->n_layers, net->n, &s->stack, &err), &err);
}

static void close_side(struct side *s) {
    echi_stack_destroy(s->stack);
    echi_buffer_destroy(s->params);
    echi_buffer_destroy(s->grads);
    echi_buffer_destroy(s->velocity);
    echi_device_close(s->device);
}

/* One step: input, units forward, loss, units backward, SGD. Returns the number of its parts. */
static int take_step(struct side *s, const ech_model *m, const struct net *net, const float *rows, const uint16_t *labels, int number) {
    struct ech_error err;
    double loss;
    int correct, part = 0;
    static const struct echi_row who[MOST_N];
    const int units = echi_stack_units(s->stack);
    const int64_t start = echi_now();
    int64_t before = start;
#define DONE() do { const int64_t now = echi_now(); s->at[part++][number] = (float)(now - before) / 1000; before = now; } while (0)
    check(echi_stack_input(s->stack, net->n, rows, &err), &err);
    DONE();
    check(echi_stack_train(s->stack, &(struct echi_training){1, who, 1}, &err), &err);
    for (int u = 0; u < units; u++) {
        check(echi_stack_forward(s->stack, u, s->params, &err), &err);
        DONE();
    }
    check(echi_stack_loss(s->stack, labels, 1.0f / (float)net->n, &loss, &correct, &err), &err);
    DONE();
    for (int u = units - 1; u >= 0; u--) {
        check(echi_stack_backward(s->stack, u, s->params, s->grads, u > 0, &err), &err);
        DONE();
    }
    const struct echi_step sgd = {.lr = 0.001f, .momentum = 0.9f};
    check(echi_apply(s->device, s->params, s->params, &(struct echi_moments){.buffer = s->velocity}, s->grads, 0, m->n_params, &sgd, &err),
          &err);
    DONE();
    s->at[part++][number] = (float)(before - start) / 1000;
    return part;
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}
static float median(const float *values, int count) {
    static float sorted[MOST_STEPS];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    return sorted[count / 2];
}
static float least(const float *values, int count) {
    float best = values[0];
    for (int i = 1; i < count; i++)
        if (values[i] < best) best = values[i];
    return best;
}

static void tell(const char *what, const char *kernel, int part, int steps) {
    static float ratio[MOST_STEPS];
    for (int i = 0; i < steps; i++) ratio[i] = sides[0].at[part][i] / sides[1].at[part][i];
    const float *one = sides[0].at[part], *more = sides[1].at[part];
    printf("  %-9s %-30s %10.1f %10.1f us   ratio %5.2f   of the best %5.2f\n", what, kernel, (double)median(one, steps),
           (double)median(more, steps), (double)median(ratio, steps), (double)(least(one, steps) / least(more, steps)));
}

static void measure(const struct net *net, int threads, double seconds, bool units_too) {
    struct ech_error err;
    ech_model *m = NULL;
    check(ech_model_open(net->model, &m, &err), &err);
    struct echi_random r;
    const size_t floats = (size_t)net->n * echi_shape_size(m->input);
    float *rows = malloc(floats * sizeof *rows);
    uint16_t labels[MOST_N];
    if (!rows) exit(1);
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    for (size_t i = 0; i < floats; i++) rows[i] = (float)echi_random_normal(&r);
    for (int i = 0; i < net->n; i++) labels[i] = (uint16_t)echi_random_below(&r, 10);
    open_side(&sides[0], m, net, 1);
    open_side(&sides[1], m, net, threads);
    int steps = 0, parts = 0;
    for (int i = 0; i < 4; i++) parts = take_step(&sides[i % 2], m, net, rows, labels, 0);   /* warms up */
    const float step = sides[0].at[parts - 1][0];
    const int turn = step > 20000 ? 1 : (int)(20000 / step);
    const int64_t end = echi_now() + (int64_t)(seconds * 1e9);
    for (bool swap = false; steps + turn <= MOST_STEPS && echi_now() < end; steps += turn, swap = !swap)
        for (int k = 0; k < SIDES; k++)
            for (int i = 0; i < turn; i++) take_step(&sides[(k + swap) % SIDES], m, net, rows, labels, steps + i);
    const bool same = memcmp(echi_buffer_host(sides[0].params), echi_buffer_host(sides[1].params), m->n_params * sizeof(float)) == 0;
    printf("%s, batch %d, %d threads over 1: medians of %d pairs of steps; %s\n", net->name, net->n, threads, steps,
           same ? "the same bits" : "OTHER BITS");
    const int units = echi_stack_units(sides[0].stack);
    if (units_too) {
        tell("input", "", 0, steps);
        for (int u = 0; u < units; u++) tell("forward", echi_stack_kernel(sides[0].stack, u), 1 + u, steps);
        tell("loss", "", 1 + units, steps);
        for (int u = units - 1; u >= 0; u--) tell("backward", echi_stack_kernel(sides[0].stack, u), 1 + 2 * units - u, steps);
        tell("sgd", "", parts - 2, steps);
    }
    tell("step", "", parts - 1, steps);
    for (int k = 0; k < SIDES; k++) close_side(&sides[k]);
    ech_model_destroy(m);
    free(rows);
    if (!same) exit(1);
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    const double seconds = argc > 3 ? atof(argv[3]) : 10;
    bool found = false;
    if (threads < 1 || threads > 1024 || !(seconds > 0)) {
        fprintf(stderr, "usage: bench_threads [THREADS [NET [SECONDS]]]\n");
        return 1;
    }
    for (int i = 0; i < NETS; i++)
        if (argc < 3 || strcmp(argv[2], nets[i].name) == 0) {
            measure(&nets[i], threads, seconds, argc > 2);
            found = true;
        }
    if (!found) fprintf(stderr, "bench_threads: there is no net '%s'\n", argv[2]);
    return found ? 0 : 1;
}
