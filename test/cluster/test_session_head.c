/* SPDX-License-Identifier: Apache-2.0
 * Sessions with a head: the program computes the trunk, here by stacks of Echelon's own, so that a run of ech_train is what one must come
 * to, step by step. Nodes are threads over loopback; where one is killed or stopped, processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "echelon_dev.h"
#include "echi_error.h"
#include "echi_model.h"

enum { WORLD_MAX = 3, SIDE = 12, CLASSES = 4, TRAIN = 192, TEST = 64, BATCH = 32, STEPS = 6, ARRAYS = 2, TRUNK_LAYERS = 5, NOBODY = -1 };

static const char whole_text[] = "input 1 12 12\nconv2d out 4 kernel 3\nrelu\nconv2d out 6 kernel 3\nrelu\nmax_pool kernel 2\n"
                                 "fc out 16\nrelu\nfc out 4\n";
static const char head_text[] = "input 6 4 4\nfc out 16\nrelu\nfc out 4\n";
static const char drops_text[] = "input 6 4 4\ndropout p 0.1\nfc out 16\nbatch_norm\nrelu\nfc out 4\n";
static const char other_text[] = "input 6 4 4\nfc out 16\ntanh\nfc out 4\n";
static ech_model *whole, *head;
static ech_data *data;

/* A stripe whose direction and distance are the class's, with noise that is the sample's own. */
static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    for (int i = 0; i < n; i++) {
        uint32_t noise = index[i] * 2654435761u + (test ? 77777u : 0) + 1;
        labels[i] = (uint16_t)(index[i] % CLASSES);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                noise = noise * 1664525u + 1013904223u;
                const int at = labels[i] & 1 ? x : y, period = labels[i] & 2 ? 3 : 4;
                *rows++ = (at % period == 0 ? 1.0f : -0.5f) + (float)(noise >> 8 & 1023) / 1024 - 0.5f;
            }
    }
    return 0;
}

struct node {
    struct ech_config config;
    struct ech_head head;
    bool by_seed;                         /* the head's first weights are Echelon's */
    bool lends;                           /* its first array is read where Echelon has it */
    bool misuses;
    int naps_in;                          /* in this step it waits, between its forward pass and the exchange, until it `may_wake` */
    bool (*may_wake)(struct node *n);
    int steps, over;
    uint32_t seen[TRAIN];
    float *begun[STEPS];                  /* the trunk that each step began with */
    uint64_t samples; double loss;        /* of all its steps, a sum */
    uint64_t correct;
    volatile int tell;
    _Atomic int group_told;               /* of its worker, as it is told; -1: not yet */
    /* its trunk */
    struct echi_device *device;
    struct echi_buffer *params, *grads;
    struct echi_stack *stack;
    float *rows, *border, first_array[40];
    const float *lent;
    float *weights;                       /* of the head, trained */
    ech_status opened, status, closed;
    struct ech_report report;
    struct ech_error error;
    pthread_t thread;
};
static struct node nodes[WORLD_MAX + 1];

static size_t trunk_params(void) { return whole->n_params - head->n_params; }
static size_t width(void) { return echi_shape_size(head->input); }

static void check(ech_status status, const struct ech_error *err) {
    if (status != ECH_OK) fail_msg("%s", err->text);
}

/* ----------------------------------------------------------- the trunk */

static ech_status make_trunk(struct node *n) {
    struct ech_error *err = &n->error;
    const size_t bytes = trunk_params() * sizeof(float);
    ECHI_TRY(echi_ops_open("cpu", 1, echi_cpu_level(), ECHI_KERNELS_FAST, NULL, &n->device, err));
    ECHI_TRY(echi_buffer_create_host(n->device, bytes, &n->params, err));
    ECHI_TRY(echi_buffer_create_host(n->device, bytes, &n->grads, err));
    ECHI_TRY(echi_stack_create(n->device, ECHI_KERNELS_FAST, whole->layers, TRUNK_LAYERS, 4 * BATCH, &n->stack, err));
    n->rows = malloc(4 * BATCH * SIDE * SIDE * sizeof *n->rows);
    n->border = malloc(4 * BATCH * width() * sizeof *n->border);
    n->weights = malloc(n->head.model->n_params * sizeof *n->weights);
    return n->rows && n->border && n->weights ? ECH_OK : ECH_E_MEMORY;
}

static void end_trunk(struct node *n) {
    echi_stack_destroy(n->stack);
    echi_buffer_destroy(n->params);
    echi_buffer_destroy(n->grads);
    echi_device_close(n->device);
    free(n->rows);
    free(n->border);
}

static ech_status forward(struct node *n, bool test, const uint32_t *index, int count, uint16_t *labels, struct ech_error *err) {
    ECHI_TRY(ech_data_get(data, test, index, count, n->rows, labels, err));
    ECHI_TRY(echi_stack_input(n->stack, count, n->rows, err));
    ECHI_TRY(echi_stack_train(n->stack, &(struct echi_training){1, NULL, 1}, err));
    for (int u = 0; u < echi_stack_units(n->stack); u++) ECHI_TRY(echi_stack_forward(n->stack, u, n->params, err));
    return echi_stack_output(n->stack, n->border, err);
}

/* From the gradient of the border. */
static ech_status backward(struct node *n, struct ech_error *err) {
    ECHI_TRY(echi_stack_output_grad(n->stack, n->border, err));
    for (int u = echi_stack_units(n->stack) - 1; u >= 0; u--)
        ECHI_TRY(echi_stack_backward(n->stack, u, n->params, n->grads, u > 0, err));
    return echi_stack_grads(n->stack, 0, err);
}

static int measure(void *user, const uint32_t *index, int count) {
    uint16_t labels[4 * BATCH];
    struct node *n = user;
    return forward(n, false, index, count, labels, &n->error) != ECH_OK || backward(n, &n->error) != ECH_OK;
}

/* ------------------------------------------------------------- a node */

static void refused(ech_status status, ech_status want, struct node *n, const char *word) {
    if (status != want || !strstr(n->error.text, word)) fail_msg("%s, '%s', without '%s'", ech_status_name(status), n->error.text, word);
}

static void misuse(struct node *n, ech_session *session, const struct ech_step *step, uint16_t *labels) {
    struct ech_head_answer answer;
    const size_t count = (size_t)step->n * width();
    const uint16_t label = labels[step->n - 1];
    refused(ech_gradient_ready(session, 0, &n->error), ECH_E_ARGUMENT, n, "ech_head_exchange");
    refused(ech_step_end(session, 0, &n->error), ECH_E_ARGUMENT, n, "ech_head_exchange");
    refused(ech_head_exchange(session, n->border, count - 1, labels, n->border, &answer, &n->error), ECH_E_SHAPE, n, "6 x 4 x 4");
    refused(ech_head_exchange(session, n->border, count + width(), labels, n->border, &answer, &n->error), ECH_E_SHAPE, n, "6 x 4 x 4");
    refused(ech_head_exchange(session, NULL, count, labels, n->border, &answer, &n->error), ECH_E_ARGUMENT, n, "rows");
    refused(ech_head_exchange(session, n->border, count, labels, n->border, NULL, &n->error), ECH_E_ARGUMENT, n, "answer");
    labels[step->n - 1] = CLASSES;
    refused(ech_head_exchange(session, n->border, count, labels, n->border, &answer, &n->error), ECH_E_ARGUMENT, n, "4 classes");
    labels[step->n - 1] = label;
}

static ech_status one_step(struct node *n, ech_session *session, const struct ech_step *step, struct ech_error *err) {
    uint16_t labels[4 * BATCH];
    struct ech_head_answer answer;
    const size_t count = (size_t)step->n * width();
    float *params = echi_buffer_host(n->params);
    if (n->lends) memcpy(params, n->lent, sizeof n->first_array);
    if (n->steps < STEPS && n->begun[n->steps]) memcpy(n->begun[n->steps], params, trunk_params() * sizeof *params);
    ECHI_TRY(forward(n, false, step->index, step->n, labels, err));
    if (n->misuses) misuse(n, session, step, labels);
    while (n->steps + 1 == n->naps_in && !n->may_wake(n)) usleep(1000);
    ECHI_TRY(ech_head_exchange(session, n->border, count, labels, n->border, &answer, err));
    if (n->misuses) {
        refused(ech_head_exchange(session, n->border, count, labels, n->border, &answer, &n->error), ECH_E_ARGUMENT, n, "already");
        refused(ech_step_end(session, 0, &n->error), ECH_E_ARGUMENT, n, "was not given");
    }
    if (answer.divisor != step->n) return echi_fail(err, ECH_E_INTERNAL, "test", "the divisor is %d", answer.divisor);
    n->over += answer.over;
    for (int i = 0; i < step->n && !answer.over; i++) n->seen[step->index[i]]++;
    n->loss += answer.loss * step->n;
    n->correct += (uint64_t)answer.correct;
    n->samples += answer.over ? 0 : (uint64_t)step->n;
    if (!answer.over || !n->lends) ECHI_TRY(backward(n, err));
    for (int p = ARRAYS - 1; p >= 0; p--) ECHI_TRY(ech_gradient_ready(session, p, err));
    n->steps++;
    return ech_step_end(session, (double)NAN, err);   /* the head's is known */
}

static void run_node(struct node *n) {
    ech_session *session = NULL;
    struct ech_step step;
    n->opened = make_trunk(n);
    if (n->opened != ECH_OK) return;
    float *params = echi_buffer_host(n->params), *grads = echi_buffer_host(n->grads);
    const struct echi_layer *second = &whole->layers[2];
    const struct ech_param param[ARRAYS] = {
        {"conv1", n->lends ? n->first_array : params, grads, second->weight_at, n->lends ? &n->lent : NULL},
        {"conv2", params + second->weight_at, grads + second->weight_at, second->weights + second->biases, NULL}};
    float *all = malloc(whole->n_params * sizeof *all);
    if (!all || second->weight_at != sizeof n->first_array / sizeof *n->first_array) abort();
    echi_model_init(whole, n->config.rank == 0 ? n->config.seed : 99, all);   /* rank 0's values start all */
    memcpy(params, all, trunk_params() * sizeof *params);
    memcpy(n->first_array, all, sizeof n->first_array);
    struct ech_head given = n->head;
    if (!n->by_seed) given.first = all + trunk_params();
    given.weights = n->weights;
    n->opened = ech_session_open_with_head(param, ARRAYS, &given, TRAIN, &n->config, measure, n, &session, &n->error);
    free(all);
    if (n->opened != ECH_OK) return;
    while ((n->status = ech_step_begin(session, &step, &n->error)) == ECH_OK)
        if ((n->status = one_step(n, session, &step, &n->error)) != ECH_OK) break;
    if (n->lends) memcpy(params, n->first_array, sizeof n->first_array);
    struct ech_error why;
    n->closed = ech_session_close(session, &n->report, n->status == ECH_E_END ? &n->error : &why);
}

static void *node_main(void *self) {
    run_node(self);
    return NULL;
}

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char address[64];
} meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, ""};

static void on_bound(void *user, const char *address) {
    (void)user;
    pthread_mutex_lock(&meeting.mutex);
    snprintf(meeting.address, sizeof meeting.address, "%s", address);
    pthread_cond_broadcast(&meeting.changed);
    pthread_mutex_unlock(&meeting.mutex);
}

static void discard(void) {
    for (int r = 0; r <= WORLD_MAX; r++) {
        end_trunk(&nodes[r]);
        free(nodes[r].weights);
        for (int k = 0; k < STEPS; k++) free(nodes[r].begun[k]);
    }
    memset(nodes, 0, sizeof nodes);
}

/* separate: 1, or 0. */
static void prepare(int world, const char *sync, int separate) {
    discard();
    for (int r = 0; r < world; r++) {
        struct ech_config *c = &nodes[r].config;
        ech_config_init(c);
        c->measure = 0.02;
        c->rank = r;
        c->world = world;
        snprintf(c->sync, sizeof c->sync, "%s", sync);
        c->separate = separate;
        c->batch = BATCH;
        c->samples_per_step = strcmp(sync, "bsp") == 0 ? 0 : 8;
        c->lr = 0.05;
        c->momentum = 0.5;
        if (strcmp(sync, "local") == 0) c->inner_steps = 2, c->outer_lr = 1, c->outer_momentum = 0;
        c->epochs = 2;
        c->deadline = 60;
        c->threads = 1;
        nodes[r].lends = r == world - 1;
        nodes[r].head.model = head;
    }
    nodes[0].config.on_bound = on_bound;
    snprintf(nodes[0].config.coordinator, sizeof nodes[0].config.coordinator, "127.0.0.1:0");
}

static void run(int world, void *(*main_of_node)(void *)) {
    meeting.address[0] = 0;
    pthread_create(&nodes[0].thread, NULL, main_of_node, &nodes[0]);
    pthread_mutex_lock(&meeting.mutex);
    while (!meeting.address[0] && world > 1) pthread_cond_wait(&meeting.changed, &meeting.mutex);
    pthread_mutex_unlock(&meeting.mutex);
    for (int r = 1; r < world; r++) {
        snprintf(nodes[r].config.coordinator, sizeof nodes[r].config.coordinator, "%s", meeting.address);
        pthread_create(&nodes[r].thread, NULL, main_of_node, &nodes[r]);
    }
    for (int r = 0; r < world; r++) pthread_join(nodes[r].thread, NULL);
}

/* Each sample was trained so many times, and all nodes have the same trunk and the same head. */
static void assert_trained(int world, uint32_t epochs) {
    uint32_t seen[TRAIN] = {0};
    for (int r = 0; r < world; r++) {
        const struct node *n = &nodes[r];
        if (n->status != ECH_E_END || n->closed != ECH_OK) fail_msg("rank %d: %s", r, n->error.text);
        for (int i = 0; i < TRAIN; i++) seen[i] += n->seen[i];
        assert_memory_equal(echi_buffer_host(n->params), echi_buffer_host(nodes[0].params), trunk_params() * sizeof(float));
        assert_memory_equal(n->weights, nodes[0].weights, head->n_params * sizeof(float));
    }
    for (int i = 0; i < TRAIN; i++) assert_int_equal(seen[i], epochs);
}

/* Of the test set, by the trained trunk and the trained head. */
static double accuracy(const ech_model *model, const float *weights) {
    struct node *n = &nodes[0];
    uint32_t index[TEST];
    uint16_t labels[TEST];
    float out[TEST * CLASSES];
    int hits = 0;
    for (uint32_t i = 0; i < TEST; i++) index[i] = i;
    check(forward(n, true, index, TEST, labels, &n->error), &n->error);
    check(ech_model_forward(model, weights, TEST, n->border, out, &n->error), &n->error);
    for (int i = 0; i < TEST; i++) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (out[i * CLASSES + c] > out[i * CLASSES + best]) best = c;
        hits += best == labels[i];
    }
    return hits / (double)TEST;
}

/* -------------------------------------------------- as ech_train has it */

static float reference[STEPS + 1][4096];
static double reference_loss;

static void *train_main(void *self) {
    struct node *n = self;
    n->status = ech_train(whole, data, &n->config, n->config.rank == 0 ? reference[n->config.steps] : NULL, &n->report, &n->error);
    return NULL;
}

static void shares(int world, const char *list) {
    for (int r = 0; r < world; r++) snprintf(nodes[r].config.shares, sizeof nodes[r].config.shares, "%s", list);
}

static void activations(int world, const char *format) {
    for (int r = 0; r < world; r++) snprintf(nodes[r].config.activations, sizeof nodes[r].config.activations, "%s", format);
}

/* The weights after so many steps, for each. */
static void train_reference(int world, const char *list, int separate, const char *format) {
    assert_true(whole->n_params <= sizeof reference[0] / sizeof reference[0][0]);
    echi_model_init(whole, 1, reference[0]);
    for (int steps = 1; steps <= STEPS; steps++) {
        prepare(world, "bsp", separate);
        shares(world, list);
        activations(world, format);
        for (int r = 0; r < world; r++) nodes[r].config.steps = steps;
        run(world, train_main);
        for (int r = 0; r < world; r++) check(nodes[r].status, &nodes[r].error);
    }
    reference_loss = nodes[0].report.train_loss;
}

static double apart(const float *a, const float *b, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void test_bsp_trains_what_ech_train_does(void **state) {
    (void)state;
    static const struct { int world, separate; const char *shares; } runs[] = {
        {1, 0, "equal"}, {1, 1, "equal"}, {2, 0, "24,8"}, {2, 1, "24,8"}, {3, 1, "16,12,4"}, {3, 1, "16,0,16"}, {3, 0, "20,4,8"}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const int world = runs[i].world;
        uint64_t samples = 0;
        double loss = 0;
        train_reference(world, runs[i].shares, runs[i].separate, "fp32");
        prepare(world, "bsp", runs[i].separate);
        shares(world, runs[i].shares);
        for (int r = 0; r < world; r++) nodes[r].config.steps = STEPS;
        for (int k = 0; k < STEPS; k++) nodes[0].begun[k] = malloc(trunk_params() * sizeof(float));
        run(world, node_main);
        for (int r = 0; r < world; r++) {
            if (nodes[r].status != ECH_E_END || nodes[r].closed != ECH_OK) fail_msg("rank %d: %s", r, nodes[r].error.text);
            samples += nodes[r].samples;
            loss += nodes[r].loss;
        }
        assert_int_equal(samples, STEPS * BATCH);
        assert_int_equal(nodes[0].report.separate, runs[i].separate && world > 1);
        assert_true(world > 1 || nodes[0].steps == STEPS);
        double most = 0;
        for (int k = 0; k < STEPS; k++) most = fmax(most, apart(nodes[0].begun[k], reference[k], trunk_params()));
        const float *end = reference[STEPS];
        const double trunk = apart(echi_buffer_host(nodes[0].params), end, trunk_params());
        const double of_head = apart(nodes[0].weights, end + trunk_params(), head->n_params);
        print_message("world %d, separate %d, shares %s: %.2g in its steps, %.2g and %.2g at the end\n", world, runs[i].separate,
                      runs[i].shares, most, trunk, of_head);
        assert_true(most < 5e-6 && trunk < 5e-6 && of_head < 5e-6);
        assert_true(apart(reference[0], end, trunk_params()) > 1e-3);
        assert_true(apart(reference[0] + trunk_params(), end + trunk_params(), head->n_params) > 1e-3);
        assert_true(fabs(loss / (double)samples - reference_loss) < 0.1 && fabs(nodes[0].report.train_loss - reference_loss) < 1e-4);
        for (int r = 1; r < world; r++) assert_memory_equal(nodes[r].weights, nodes[0].weights, head->n_params * sizeof(float));
    }
}

/* Whose gradients of activations go through other factors: a number that lies between two of bf16 may become the other one. */
static void test_activations_in_bf16_come_and_go(void **state) {
    (void)state;
    static float floats[4096];
    const size_t all = whole->n_params;
    train_reference(2, "24,8", 1, "fp32");
    memcpy(floats, reference[STEPS], all * sizeof *floats);
    train_reference(2, "24,8", 1, "bf16");
    prepare(2, "bsp", 1);
    shares(2, "24,8");
    activations(2, "bf16");
    for (int r = 0; r < 2; r++) nodes[r].config.steps = STEPS;
    run(2, node_main);
    for (int r = 0; r < 2; r++)
        if (nodes[r].status != ECH_E_END || nodes[r].closed != ECH_OK) fail_msg("rank %d: %s", r, nodes[r].error.text);
    assert_string_equal(nodes[0].report.activations, "bf16");
    const float *end = reference[STEPS];
    const double trunk = apart(echi_buffer_host(nodes[0].params), end, trunk_params()), from_floats = apart(floats, end, all);
    const double of_head = apart(nodes[0].weights, end + trunk_params(), head->n_params);
    print_message("bf16: %.2g and %.2g at the end, %.2g from floats\n", trunk, of_head, from_floats);
    assert_true(trunk < from_floats / 4 && of_head < from_floats / 4 && from_floats > 1e-5 && from_floats < 1e-2);
}

/* ------------------------------------------------------------ policies */

static void test_every_policy_trains_each_sample_once_an_epoch(void **state) {
    (void)state;
    static const struct { const char *sync, *exchange, *codec; int separate, shards; } runs[] = {
        {"bsp", "auto", "dense", 1, 0}, {"asp", "auto", "dense", 1, 0}, {"ssp", "auto", "dense", 1, 0}, {"gssp", "auto", "dense", 1, 0},
        {"gssp", "auto", "dense", -1, 0}, {"auto", "auto", "dense", -1, 0}, {"asp", "auto", "topk:paper", 1, 0},
        {"bsp", "auto", "topk:paper", 0, 0}, {"gssp", "auto", "dense", 0, 0}, {"local", "auto", "dense", 0, 0},
        {"bsp", "ring", "dense", 0, 0}, {"bsp", "server", "dense", 0, 2}, {"bsp", "auto", "dense", 1, 2}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        for (int world = 1; world <= WORLD_MAX; world += i % 2 ? 2 : 1) {
            prepare(world, runs[i].sync, runs[i].separate);
            for (int r = 0; r < world; r++) {
                struct ech_config *c = &nodes[r].config;
                snprintf(c->exchange, sizeof c->exchange, "%s", runs[i].exchange);
                snprintf(c->codec, sizeof c->codec, "%s", runs[i].codec);
                if (runs[i].shards && world > 1) snprintf(c->shards, sizeof c->shards, "%d", runs[i].shards);
            }
            run(world, node_main);
            assert_trained(world, 2);
            if (runs[i].separate >= 0) assert_int_equal(nodes[0].report.separate, runs[i].separate && world > 1);
        }
}

/* A node that is three times slower: its steps are staler, and what is learnt is learnt all the same. */
static void test_gssp_learns_beside_a_straggler(void **state) {
    (void)state;
    prepare(3, "gssp", 1);
    nodes[2].config.slow = 3;
    for (int r = 0; r < 3; r++) {
        nodes[r].config.epochs = 24;
        nodes[r].config.samples_per_step = 0;
    }
    run(3, node_main);
    assert_trained(3, 24);
    const double reached = accuracy(head, nodes[0].weights);
    print_message("a straggler: %.3f\n", reached);
    assert_true(reached > 0.9);
}

/* Dropout and batch-norm in the head; its first weights are those of the seed, wherever it is trained. */
static void test_a_head_of_any_layers(void **state) {
    (void)state;
    struct ech_error err;
    ech_model *drops = NULL;
    check(ech_model_parse(drops_text, strlen(drops_text), "drops", &drops, &err), &err);
    for (int separate = 0; separate < 2; separate++) {
        float first[8192], got[2][8192];
        assert_true(drops->n_params <= 8192);
        for (int steps = 0; steps < 2; steps++) {
            prepare(2, "bsp", separate);
            for (int r = 0; r < 2; r++) {
                nodes[r].head.model = drops;
                nodes[r].by_seed = true;
                nodes[r].config.seed = 7;
                nodes[r].config.steps = steps * 40;
            }
            run(2, node_main);
            for (int r = 0; r < 2; r++)
                if (nodes[r].status != ECH_E_END || nodes[r].closed != ECH_OK) fail_msg("rank %d: %s", r, nodes[r].error.text);
            memcpy(got[steps], nodes[1].weights, drops->n_params * sizeof(float));
        }
        echi_model_init(drops, 7, first);
        assert_memory_equal(got[0], first, drops->n_params * sizeof(float));
        assert_true(apart(got[1], first, drops->n_params) > 1e-2);
        const double reached = accuracy(drops, got[1]);
        print_message("dropout and batch-norm, separate %d: %.3f\n", separate, reached);
        assert_true(reached > 0.9);
    }
    ech_model_destroy(drops);
}

/* ------------------------------------------------------------- misuse */

static void test_misuse_is_refused_with_a_sentence(void **state) {
    (void)state;
    for (int separate = 0; separate < 2; separate++) {
        prepare(2, "bsp", separate);
        shares(2, "equal");
        for (int r = 0; r < 2; r++) nodes[r].misuses = true;
        run(2, node_main);
        assert_trained(2, 2);
    }
    struct node *n = &nodes[0];
    float value[2] = {0}, grad[2] = {0}, rows[4] = {0};
    uint16_t label = 0;
    struct ech_param param = {"w", value, grad, 2, NULL};
    struct ech_head_answer answer;
    struct ech_head given = {0};
    struct ech_step step;
    ech_session *session = NULL;
    prepare(1, "bsp", 0);
    n->config.steps = 1;
    n->config.batch = 1;
#define OPENS ech_session_open_with_head(&param, 1, &given, 8, &n->config, NULL, NULL, &session, &n->error)
    refused(OPENS, ECH_E_ARGUMENT, n, "no model");
    ech_model *other = NULL;
    check(ech_model_create(2, 1, 1, &other, &n->error), &n->error);
    given.model = other;
    ech_model_relu(other);
    refused(OPENS, ECH_E_SHAPE, n, "must end in");
    ech_model_global_avg_pool(other);
    refused(OPENS, ECH_E_SHAPE, n, "nothing to learn");
    ech_model_conv2d(other, 2, 9, 1, 0);
    refused(OPENS, ECH_E_SHAPE, n, "kernel 9");
    given.model = head;
    n->config.separate = 2;
    refused(OPENS, ECH_E_ARGUMENT, n, "behind the caller's arrays");
    n->config.separate = 1;
    snprintf(n->config.separate_from, sizeof n->config.separate_from, "fc2");
    refused(OPENS, ECH_E_ARGUMENT, n, "behind the caller's arrays");
    n->config.separate_from[0] = 0;
    refused(ech_session_open(&param, 1, 8, &n->config, NULL, NULL, &session, &n->error), ECH_E_ARGUMENT, n, "no head to separate");
    n->config.separate = 0;
    check(ech_session_open(&param, 1, 8, &n->config, NULL, NULL, &session, &n->error), &n->error);
    check(ech_step_begin(session, &step, &n->error), &n->error);
    refused(ech_head_exchange(session, rows, 4, &label, rows, &answer, &n->error), ECH_E_ARGUMENT, n, "no head");
    assert_int_equal(ech_session_close(session, NULL, &n->error), ECH_E_ABORTED);
    check(OPENS, &n->error);
    refused(ech_head_exchange(session, rows, 96, &label, rows, &answer, &n->error), ECH_E_ARGUMENT, n, "ech_step_begin first");
    assert_int_equal(ech_session_close(session, NULL, &n->error), ECH_E_ABORTED);
#undef OPENS
    refused(ech_model_forward(NULL, value, 1, rows, rows, &n->error), ECH_E_ARGUMENT, n, "needs a model");
    refused(ech_model_forward(head, value, 0, rows, rows, &n->error), ECH_E_ARGUMENT, n, "at least one");
    refused(ech_model_forward(other, value, 1, rows, rows, &n->error), ECH_E_SHAPE, n, "kernel 9");
    ech_model_destroy(other);
}

/* Those of another head, though it has as many parameters. */
static void test_nodes_with_other_heads_do_not_meet(void **state) {
    (void)state;
    struct ech_error err;
    ech_model *other = NULL;
    check(ech_model_parse(other_text, strlen(other_text), "other", &other, &err), &err);
    prepare(2, "bsp", 1);
    nodes[1].head.model = other;
    run(2, node_main);
    for (int r = 0; r < 2; r++) assert_int_equal(nodes[r].opened, ECH_E_MISMATCH);
    ech_model_destroy(other);
}

/* ---------------------------------------------- plans, and what is lost */

static char folder[100];

static void write_plan(const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/plan", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

#define PLAN(sync, world, flights, roles)                                                                                               \
    "sync " sync "\nworld " world "\nround 32\nstaleness 3\nrounds_apart 4\nflights " flights "\nlr 0.05\nmomentum 0\ndecay 0\n" roles
static const char head_apart[] = PLAN("bsp", "3", "1", "head 1\ngroup 0 owner 0 workers 0:16 2:16\n");

static void prepare_plan(const char *sync, const char *text) {
    prepare(3, sync, 1);
    write_plan(text);
    snprintf(nodes[0].config.plan, sizeof nodes[0].config.plan, "%s/plan", folder);
    for (int r = 0; r < 3; r++) nodes[r].config.samples_per_step = 0;
}

static void test_a_plan_is_followed(void **state) {
    (void)state;
    prepare_plan("bsp", head_apart);
    run(3, node_main);
    assert_trained(3, 2);
    assert_int_equal(nodes[0].report.head, 1);
    assert_int_equal(nodes[1].steps, 0);
    prepare_plan("asp", PLAN("asp", "3", "2", "head 1\ngroup 0 owner 0 workers 0:8 1:8 2:8\n"));
    run(3, node_main);
    for (int r = 0; r < 3; r++) assert_true(nodes[r].opened != ECH_OK || nodes[r].closed != ECH_OK);
    if (!strstr(nodes[0].error.text, "flights 1")) fail_msg("%s", nodes[0].error.text);
}

/* The roles of a session with a head are replayed. */
static void test_recorded_roles_come_out_the_same(void **state) {
    (void)state;
    static struct ech_replay_report report;
    struct ech_error err;
    for (int i = 0; i < 2; i++) {
        prepare(3, i ? "gssp" : "bsp", 1);
        for (int r = 0; r < 3; r++) snprintf(nodes[r].config.record, sizeof nodes[r].config.record, "%s/recording%d", folder, i);
        run(3, node_main);
        assert_trained(3, 2);
        check(ech_replay(&(struct ech_replay_options){.dir = nodes[0].config.record}, &report, &err), &err);
        assert_true(report.events > 100 && report.unended == 0);
    }
}

/* ---- each node a process, of which the parent ends one ---- */

static int address_pipe[2], told_pipe[2];
static void write_address(void *user, const char *address) {
    (void)user;
    if (write(address_pipe[1], address, strlen(address) + 1) < 0) _exit(9);
}

static int victim, victim_signal;   /* whose process gets which, as soon as another says so */
static pid_t pid[WORLD_MAX + 1];

static bool tells_parent(struct node *n) {
    (void)n;
    if (write(told_pipe[1], "!", 1) < 0) _exit(9);
    return true;
}

/* What the run of this process comes to; the process ends with it. */
static void node_process(int rank, const char *address, int (*judge)(struct node *n)) {
    struct node *n = &nodes[rank];
    snprintf(n->config.coordinator, sizeof n->config.coordinator, "%s", address);
    n->config.on_bound = rank == 0 ? write_address : NULL;
    run_node(n);
    _exit(judge(n));
}

static void run_processes(int world, int (*judge)(struct node *n)) {
    char address[64] = "127.0.0.1:0", told;
    int failed = 0;
    assert_int_equal(pipe(address_pipe), 0);
    assert_int_equal(pipe(told_pipe), 0);
    for (int r = 0; r < world; r++) {
        pid[r] = fork();
        if (pid[r] == 0) node_process(r, address, judge);
        if (r == 0) assert_true(read(address_pipe[0], address, sizeof address) > 0);
    }
    assert_int_equal(read(told_pipe[0], &told, 1), 1);
    kill(pid[victim], victim_signal);
    for (int i = 0; i < world; i++) {   /* the victim last: one that stands still is ended here */
        int status = 0;
        const int r = i + 1 == world ? victim : i < victim ? i : i + 1;
        if (r == victim) kill(pid[r], SIGKILL);
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (r != victim && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
            print_error("rank %d: exit status %d\n", r, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
            failed++;
        }
    }
    for (int i = 0; i < 2; i++) close(address_pipe[i]), close(told_pipe[i]);
    assert_int_equal(failed, 0);
}

static int complain(const struct node *n, int code) {
    fprintf(stderr, "rank %d: %s, %s, %s: '%s'\n", n->config.rank, ech_status_name(n->opened), ech_status_name(n->status),
            ech_status_name(n->closed), n->error.text);
    return code;
}

static int names_the_lost(struct node *n) {
    const bool right = n->opened == ECH_OK && n->status == ECH_E_PEER_LOST && n->closed == ECH_E_PEER_LOST && n->error.peer == victim;
    return right ? 0 : complain(n, 3);
}

/* Killed, it is found by its connections; stopped, by its silence: no exchange outlasts the deadline by much. */
static void test_a_lost_head_ends_the_run_in_order(void **state) {
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        prepare_plan("bsp", head_apart);
        victim = 1;
        victim_signal = stopped ? SIGSTOP : SIGKILL;
        for (int r = 0; r < 3; r++) {
            nodes[r].config.deadline = stopped ? 2 : 60;
            nodes[r].config.epochs = 1e6;
        }
        nodes[0].naps_in = 4;
        nodes[0].may_wake = tells_parent;
        run_processes(3, names_the_lost);
    }
}

static int goes_on(struct node *n) {
    if (n->opened != ECH_OK || n->status != ECH_E_END || n->closed != ECH_OK) return complain(n, 3);
    if (n->config.rank == 0 && (n->report.n_lost != 1 || (double)n->report.samples != n->config.epochs * TRAIN)) return complain(n, 4);
    return 0;
}

/* The head's shadow answers what it was asked. */
static void test_a_shadow_takes_the_place_of_a_lost_head(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        prepare_plan(i ? "asp" : "bsp", i ? PLAN("asp", "3", "1", "head 1\nshadow 0\ngroup 0 owner 0 workers 0:8 2:8\n")
                                          : PLAN("bsp", "3", "1", "head 1\nshadow 2\ngroup 0 owner 0 workers 0:16 2:16\n"));
        for (int r = 0; r < 3; r++) nodes[r].config.epochs = 100;
        victim = 1;
        victim_signal = SIGKILL;
        nodes[0].naps_in = 4;
        nodes[0].may_wake = tells_parent;
        run_processes(3, goes_on);
    }
}

static void on_tell(void *user, const char *line) {
    struct node *n = user;
    int group;
    if (sscanf(line, "worker of group %d:", &group) == 1) n->group_told = group;
}

/* Its parent ends its owner; then it waits until its worker is another owner's. */
static bool is_moved(struct node *n) {
    if (__atomic_fetch_add(&n->tell, 1, __ATOMIC_RELAXED) == 0) tells_parent(n);
    return n->group_told == 0;
}

static int steps_were_over(struct node *n) {
    if (n->config.rank == 3 && n->over != 1) return complain(n, 5);
    return goes_on(n);
}

/* An owner is lost while a worker of its group is in a step: the head's answer is of no use, and the caller hears so. */
static void test_a_step_whose_owner_is_lost_is_over(void **state) {
    (void)state;
    for (int lends = 0; lends < 2; lends++) {
        prepare(4, "gssp", 1);
        write_plan(PLAN("gssp", "4", "1", "head 0\ngroup 0 owner 0 workers 0:8 1:8\ngroup 1 owner 2 workers 2:8 3:8\n"));
        snprintf(nodes[0].config.plan, sizeof nodes[0].config.plan, "%s/plan", folder);
        for (int r = 0; r < 4; r++) {
            nodes[r].config.samples_per_step = 0;
            nodes[r].config.epochs = 100;
            nodes[r].lends = r == 3 && lends;
        }
        victim = 2;
        victim_signal = SIGKILL;
        nodes[3].config.user = &nodes[3];
        nodes[3].config.tell = &nodes[3].tell;
        nodes[3].config.on_tell = on_tell;
        nodes[3].group_told = -1;
        nodes[3].naps_in = 3;
        nodes[3].may_wake = is_moved;
        run_processes(4, steps_were_over);
    }
}

static int begin(void **state) {
    struct ech_error err;
    const struct ech_data_callback callback = {1, SIDE, SIDE, CLASSES, TRAIN, TEST, read_samples, NULL, "stripes"};
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/echelon-head.XXXXXX");
    return !mkdtemp(folder) || ech_model_parse(whole_text, strlen(whole_text), "whole", &whole, &err) != ECH_OK ||
           ech_model_parse(head_text, strlen(head_text), "head", &head, &err) != ECH_OK ||
           ech_data_from_callback(&callback, &data, &err) != ECH_OK;
}

static int end(void **state) {
    char command[200];
    (void)state;
    discard();
    ech_data_destroy(data);
    ech_model_destroy(whole);
    ech_model_destroy(head);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bsp_trains_what_ech_train_does),
        cmocka_unit_test(test_activations_in_bf16_come_and_go),
        cmocka_unit_test(test_every_policy_trains_each_sample_once_an_epoch),
        cmocka_unit_test(test_gssp_learns_beside_a_straggler),
        cmocka_unit_test(test_a_head_of_any_layers),
        cmocka_unit_test(test_misuse_is_refused_with_a_sentence),
        cmocka_unit_test(test_nodes_with_other_heads_do_not_meet),
        cmocka_unit_test(test_a_plan_is_followed),
        cmocka_unit_test(test_recorded_roles_come_out_the_same),
        cmocka_unit_test(test_a_lost_head_ends_the_run_in_order),
        cmocka_unit_test(test_a_shadow_takes_the_place_of_a_lost_head),
        cmocka_unit_test(test_a_step_whose_owner_is_lost_is_over),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
