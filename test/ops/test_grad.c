/* SPDX-License-Identifier: Apache-2.0
 * Every gradient of the reference operations against central differences. The very text of ops/ref is compiled here for
 * double, where (f(x + h) - f(x - h)) / 2h has enough digits to tell a wrong formula from a rounded one.
 *
 * The objective is the sum of output times a fixed random weight, so its gradient by the output is that weight. Conv2d, fc
 * and average-pool are linear in each number: there the difference is exact but for rounding. Max-pool and ReLU are linear
 * between kinks: inputs are spread so that no two values of a window, and no value and 0, are closer than the step. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define ECHI_DOUBLE
/* The reference stack in double beside the library's in float. */
#define echi_stack_reference stack_in_double
#define echi_dropout_factors dropout_factors_in_double
#define echi_norm_deviation norm_deviation_in_double
#define echi_norm_running_grad norm_running_grad_in_double
#define echi_norm_join norm_join_in_double
#include "batch_norm.c"
#include "dropout.c"
#include "ref/adam.c"
#include "ref/batch_norm.c"
#include "ref/conv2d.c"
#include "ref/each.c"
#include "ref/fc.c"
#include "ref/pool.c"
#include "ref/relu.c"
#include "ref/sgd.c"
#include "ref/softmax.c"
#include "ref/stack.c"
#include "ref/tanh.c"

#include "problem.h"

#define STEP 1e-4
#define TOLERANCE 1e-8

struct check {
    struct problem p;
    const struct echi_layer *l;
    int n;
    size_t in, out;
    double *x, *weight, *bias, *y, *dy, *dx, *dweight, *dbias;
};

static double *some(size_t count) {
    double *p = calloc(count + 1, sizeof *p);
    if (p == NULL) abort();
    return p;
}

static void check_open(struct check *c, int n) {
    c->l = &c->p.layers[0];
    c->n = n;
    c->in = (size_t)n * echi_shape_size(c->l->in);
    c->out = (size_t)n * echi_shape_size(c->l->out);
    c->x = some(c->in), c->dx = some(c->in), c->y = some(c->out), c->dy = some(c->out);
    c->weight = some(c->l->weights), c->dweight = some(c->l->weights);
    c->bias = some(c->l->biases), c->dbias = some(c->l->biases);
}

static void check_close(struct check *c) {
    double *const all[] = {c->x, c->dx, c->y, c->dy, c->weight, c->dweight, c->bias, c->dbias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

static void fill_normal(struct echi_random *r, double *p, size_t count) {
    for (size_t i = 0; i < count; i++) p[i] = echi_random_normal(r);
}

/* Every value a different odd multiple of 0.01, of either sign, in random order. */
static void fill_spread(struct echi_random *r, double *p, size_t count) {
    for (size_t i = 0; i < count; i++) p[i] = 0.01 * (2 * ((double)i - (double)(count / 2)) + 1);
    for (size_t i = count; i > 1; i--) {
        size_t j = echi_random_below(r, (uint32_t)i);
        double keep = p[i - 1];
        p[i - 1] = p[j], p[j] = keep;
    }
}

static void forward(const struct check *c) {
    const double *bias = c->l->bias ? c->bias : NULL;
    switch (c->l->op) {
    case ECHI_OP_CONV2D: echi_ref_conv2d_forward_double(c->l, c->n, c->x, c->weight, bias, c->y); break;
    case ECHI_OP_FC: echi_ref_fc_forward_double(c->l, c->n, c->x, c->weight, bias, c->y); break;
    case ECHI_OP_MAX_POOL: echi_ref_max_pool_forward_double(c->l, c->n, c->x, c->y); break;
    case ECHI_OP_AVG_POOL: echi_ref_avg_pool_forward_double(c->l, c->n, c->x, c->y); break;
    case ECHI_OP_RELU: echi_ref_relu_forward_double(c->l, c->n, c->x, c->y); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_ADD:
    case ECHI_OP_TANH:
    case ECHI_OP_BATCH_NORM:
    case ECHI_OPS:
    case ECHI_OP_DROPOUT: fail_msg("%s: tried through a stack, below", c->p.text);
    }
}

static void backward(const struct check *c) {
    double *dbias = c->l->bias ? c->dbias : NULL;
    switch (c->l->op) {
    case ECHI_OP_CONV2D:
        echi_ref_conv2d_backward_params_double(c->l, c->n, c->x, c->dy, c->dweight, dbias);
        echi_ref_conv2d_backward_input_double(c->l, c->n, c->dy, c->weight, c->dx);
        break;
    case ECHI_OP_FC:
        echi_ref_fc_backward_params_double(c->l, c->n, c->x, c->dy, c->dweight, dbias);
        echi_ref_fc_backward_input_double(c->l, c->n, c->dy, c->weight, c->dx);
        break;
    case ECHI_OP_MAX_POOL: echi_ref_max_pool_backward_double(c->l, c->n, c->x, c->dy, c->dx); break;
    case ECHI_OP_AVG_POOL: echi_ref_avg_pool_backward_double(c->l, c->n, c->dy, c->dx); break;
    case ECHI_OP_RELU: echi_ref_relu_backward_double(c->l, c->n, c->x, c->dy, c->dx); break;
    case ECHI_OP_GLOBAL_AVG_POOL:
    case ECHI_OP_ADD:
    case ECHI_OP_TANH:
    case ECHI_OP_BATCH_NORM:
    case ECHI_OPS:
    case ECHI_OP_DROPOUT: fail_msg("%s: tried through a stack, below", c->p.text);
    }
}

static double objective(const struct check *c) {
    double sum = 0;
    forward(c);
    for (size_t i = 0; i < c->out; i++) sum += c->y[i] * c->dy[i];
    return sum;
}

/* Up to 40 numbers of one array, evenly spread over it from a random start. */
static void compare(const struct check *c, struct echi_random *r, const char *what, double *x, const double *dx, size_t count) {
    size_t by = count / 40 + 1;
    for (size_t i = count > 0 ? echi_random_below(r, (uint32_t)by) : 0; i < count; i += by) {
        double keep = x[i];
        x[i] = keep + STEP;
        double above = objective(c);
        x[i] = keep - STEP;
        double below = objective(c);
        x[i] = keep;
        double numeric = (above - below) / (2 * STEP);
        if (fabs(numeric - dx[i]) > TOLERANCE * (1 + fabs(numeric)))
            fail_msg("%s, n %d: gradient of %s[%zu] is %.12g, the difference says %.12g", c->p.text, c->n, what, i, dx[i], numeric);
    }
}

/* Backward first, into memory that holds something else: it must set. */
static void check_gradients(struct check *c, struct echi_random *r, bool kinks) {
    if (kinks) fill_spread(r, c->x, c->in);
    else fill_normal(r, c->x, c->in);
    fill_normal(r, c->weight, c->l->weights);
    fill_normal(r, c->bias, c->l->biases);
    fill_normal(r, c->dy, c->out);
    fill_normal(r, c->dx, c->in);
    fill_normal(r, c->dweight, c->l->weights);
    fill_normal(r, c->dbias, c->l->biases);
    backward(c);
    compare(c, r, "the input", c->x, c->dx, c->in);
    compare(c, r, "the weight", c->weight, c->dweight, c->l->weights);
    compare(c, r, "the bias", c->bias, c->dbias, c->l->biases);
}

static void check_op(enum echi_op op, uint32_t cases) {
    for (uint32_t seed = 0; seed < cases; seed++) {
        struct echi_random r;
        struct check c;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, (uint32_t)op);
        problem_begin(&c.p, random_from(&r, 1, 4), random_from(&r, 1, 9), random_from(&r, 1, 9));
        problem_say(&c.p, " (seed %u)", seed);
        if (op == ECHI_OP_FC) problem_fc(&c.p, random_from(&r, 1, 12), seed % 3 != 0);
        else if (op == ECHI_OP_RELU) problem_relu(&c.p);
        else random_window(&c.p, &r, op);
        check_open(&c, random_from(&r, 1, 3));
        check_gradients(&c, &r, op == ECHI_OP_MAX_POOL || op == ECHI_OP_RELU);
        check_close(&c);
    }
}

static void test_conv2d(void **state) { (void)state, check_op(ECHI_OP_CONV2D, 120); }
static void test_fc(void **state) { (void)state, check_op(ECHI_OP_FC, 60); }
static void test_max_pool(void **state) { (void)state, check_op(ECHI_OP_MAX_POOL, 120); }
static void test_avg_pool(void **state) { (void)state, check_op(ECHI_OP_AVG_POOL, 120); }
static void test_relu(void **state) { (void)state, check_op(ECHI_OP_RELU, 30); }

/* Shapes that random ones may miss: a 1x1 kernel, a kernel as large as the input, one that hangs over on all sides. */
static void test_conv2d_corners(void **state) {
    (void)state;
    static const struct { int c, h, w, out, kh, kw, sh, sw, ph, pw; } shapes[] = {
        {3, 5, 4, 2, 1, 1, 1, 1, 0, 0}, {2, 6, 7, 3, 6, 7, 1, 1, 0, 0}, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {1, 3, 3, 2, 7, 7, 1, 1, 2, 2},
        {2, 1, 9, 2, 1, 3, 1, 2, 0, 1}, {1, 4, 4, 1, 2, 2, 3, 3, 3, 3}, {2, 9, 5, 1, 3, 5, 3, 2, 1, 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct echi_random r;
        struct check c;
        echi_random_init(&r, i, ECHI_STREAM_TEST, 50);
        problem_begin(&c.p, shapes[i].c, shapes[i].h, shapes[i].w);
        problem_window(&c.p, ECHI_OP_CONV2D, shapes[i].out, shapes[i].kh, shapes[i].kw, shapes[i].sh, shapes[i].sw, shapes[i].ph,
                       shapes[i].pw, true);
        check_open(&c, 2);
        check_gradients(&c, &r, false);
        check_close(&c);
    }
}

/* What the header promises at the kinks themselves. */
static void test_at_the_kinks(void **state) {
    (void)state;
    struct problem p;
    problem_begin(&p, 1, 2, 2);
    problem_relu(&p);
    const double x[4] = {0, -0.0, 1, -1}, dy[4] = {5, 6, 7, 8};
    double y[4], dx[4];
    echi_ref_relu_forward_double(&p.layers[0], 1, x, y);
    echi_ref_relu_backward_double(&p.layers[0], 1, x, dy, dx);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 1 && y[3] == 0);
    assert_true(dx[0] == 0 && dx[1] == 0 && dx[2] == 7 && dx[3] == 0);

    problem_begin(&p, 1, 2, 2);
    problem_window(&p, ECHI_OP_MAX_POOL, 0, 2, 2, 1, 1, 0, 0, false);
    const double equal[4] = {1, 3, 3, 3};
    echi_ref_max_pool_backward_double(&p.layers[0], 1, equal, dy, dx);
    assert_true(dx[0] == 0 && dx[1] == 5 && dx[2] == 0 && dx[3] == 0);

    /* Padding does not exist for max-pool, and is a zero that counts for average-pool. */
    const double negative[4] = {-1, -2, -3, -4};
    problem_begin(&p, 1, 2, 2);
    problem_window(&p, ECHI_OP_MAX_POOL, 0, 2, 2, 3, 3, 1, 1, false);
    echi_ref_max_pool_forward_double(&p.layers[0], 1, negative, y);
    assert_true(y[0] == -1);
    p.layers[0].op = ECHI_OP_AVG_POOL;
    echi_ref_avg_pool_forward_double(&p.layers[0], 1, negative, y);
    assert_true(y[0] == -0.25);
}

static void test_softmax(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 60);
        int n = random_from(&r, 1, 4), classes = random_from(&r, 1, 12), correct = 0;
        double y[48], dy[48], unused[48], scale = 0.1 + echi_random_unit(&r), loss = 0;
        uint16_t labels[4];
        size_t count = (size_t)(n * classes);
        fill_normal(&r, y, count);
        for (int s = 0; s < n; s++) labels[s] = (uint16_t)echi_random_below(&r, (uint32_t)classes);
        echi_ref_softmax_cross_entropy_double(n, classes, y, labels, scale, dy, &loss, &correct);
        for (size_t i = 0; i < count; i++) {
            double keep = y[i], above, below;
            y[i] = keep + STEP;
            echi_ref_softmax_cross_entropy_double(n, classes, y, labels, scale, unused, &above, &correct);
            y[i] = keep - STEP;
            echi_ref_softmax_cross_entropy_double(n, classes, y, labels, scale, unused, &below, &correct);
            y[i] = keep;
            double numeric = scale * (above - below) / (2 * STEP);
            if (fabs(numeric - dy[i]) > TOLERANCE) fail_msg("seed %u: dy[%zu] is %.12g, should be %.12g", seed, i, dy[i], numeric);
        }
    }
}

static void test_softmax_counts(void **state) {
    (void)state;
    const double y[12] = {1, 2, 3, 3, 2, 1, 2, 2, 1, NAN, 1, 0};
    double dy[12], loss = 0;
    int correct = -1;
    echi_ref_softmax_cross_entropy_double(3, 3, y, (const uint16_t[]){2, 1, 0}, 1, dy, &loss, &correct);
    assert_int_equal(correct, 2);   /* of two equal outputs the first is the answer */
    double closed = 2 * log(1 + exp(-1) + exp(-2)) + 1 + log(2 + exp(-1));
    assert_true(fabs(loss - closed) < 1e-12);
    echi_ref_softmax_cross_entropy_double(4, 3, y, (const uint16_t[]){2, 1, 0, 0}, 1, dy, &loss, &correct);
    assert_int_equal(correct, 2);   /* a NaN is no answer, and shows */
    assert_true(isnan(loss));
}

/* Three steps of PyTorch's rule, by hand: w 1, g 0.5, lr 0.1, momentum 0.9, decay 0.2. */
static void test_sgd(void **state) {
    (void)state;
    double w = 1, v = 0, g = 0.5;
    static const double wanted[][2] = {{0.7, 0.93}, {1.316, 0.7984}, {1.84408, 0.613992}};
    for (int i = 0; i < 3; i++) {
        echi_ref_sgd_double(1, &w, &v, &g, 0.1, 0.9, 0.2);
        assert_true(fabs(v - wanted[i][0]) < 1e-12 && fabs(w - wanted[i][1]) < 1e-12);
    }
}

/* Three steps of torch.optim.Adam and AdamW (2.15, in double, from w 1 with lr 0.1, weight_decay 0.2 and what else is its default). */
static void test_adam(void **state) {
    (void)state;
    static const double g[] = {0.5, -0.25, 2}, wanted[2][3][3] = {
        {{0.06999999999999998, 0.0004900000000000003, 0.9000000014285714}, {0.05600000002857142, 0.0004944099999600003, 0.8407351511622136},
         {0.2672147030489585, 0.005194777134665805, 0.7658404589357781}},
        {{0.04999999999999999, 0.0002500000000000002, 0.880000002}, {0.019999999999999997, 0.0003122500000000003, 0.8357662986678462},
         {0.21799999999999994, 0.004311937750000004, 0.7519862085157961}}};
    for (int decoupled = 0; decoupled < 2; decoupled++) {
        double w = 1, m = 0, s = 0;
        for (int t = 1; t <= 3; t++) {
            const double *is = wanted[decoupled][t - 1];
            echi_ref_adam_double(1, &w, &m, &s, &g[t - 1], t, 0.1, 0.9, 0.999, 1e-8, 0.2, decoupled);
            assert_true(fabs(m - is[0]) < 1e-15 && fabs(s - is[1]) < 1e-17 && fabs(w - is[2]) < 1e-14);
        }
    }
}

/* --- small nets with branches: gradients of all parameters and of the input, through the reference stack --- */

#define SHARE 0.25

/* `parts` stacks with some samples each, n in all, which exchange what batch-norms sum. */
enum { PARTS_MOST = 2 };
struct net {
    const struct problem *p;
    int parts, of[PARTS_MOST], n;
    void *state[PARTS_MOST];
    double *x, *params, *y, *dy, step, tolerance;
};

/* Where part i's samples begin in an array of so many numbers a sample. */
static double *part_at(const struct net *net, double *of_all, int i, struct echi_shape shape) {
    return of_all + (i > 0 ? (size_t)net->of[0] * echi_shape_size(shape) : 0);
}

static void net_exchange(const struct net *net, int u, bool backward) {
    double all[64], own[64];
    uint32_t n = 0;
    if (net->parts == 1 || net->p->layers[u].op != ECHI_OP_BATCH_NORM) return;
    for (int i = 0; i < net->parts; i++) {
        stack_in_double.norm_sums(net->state[i], u, backward, net->params, own);
        norm_join_in_double(all, n, own, (uint32_t)net->of[i], net->p->layers[u].in.c, backward);
        n += (uint32_t)net->of[i];
    }
    for (int i = 0; i < net->parts; i++) stack_in_double.norm_take(net->state[i], u, backward, net->n, all);
}

/* Dropout draws the same each time; nets of one sample evaluate. */
static void net_forward(const struct net *net) {
    struct echi_row who[4];
    for (int s = 0; s < 4; s++) who[s] = (struct echi_row){7, 100 + (uint32_t)s};
    for (int i = 0; i < net->parts; i++) {
        stack_in_double.input(net->state[i], net->of[i], part_at(net, net->x, i, net->p->layers[0].in));
        if (net->n > 1) stack_in_double.train(net->state[i], &(struct echi_training){3, who, SHARE});
    }
    for (int u = 0; u < net->p->count; u++) {
        net_exchange(net, u, false);
        for (int i = 0; i < net->parts; i++) stack_in_double.forward(net->state[i], u, net->params);
    }
    for (int i = 0; i < net->parts; i++) stack_in_double.output(net->state[i], part_at(net, net->y, i, problem_shape(net->p)));
}

/* Gradients of the input, and of the parameters summed over the parts. */
static void net_backward(const struct net *net, double *dx, double *grads) {
    double *of_part[PARTS_MOST];
    for (int i = 0; i < net->parts; i++) {
        of_part[i] = some(net->p->params);
        stack_in_double.output_grad(net->state[i], part_at(net, net->dy, i, problem_shape(net->p)));
    }
    for (int u = net->p->count - 1; u >= 0; u--) {
        net_exchange(net, u, true);
        for (int i = 0; i < net->parts; i++) stack_in_double.backward(net->state[i], u, net->params, of_part[i], true);
    }
    memset(grads, 0, net->p->params * sizeof *grads);
    for (int i = 0; i < net->parts; i++) {
        stack_in_double.input_grad(net->state[i], part_at(net, dx, i, net->p->layers[0].in));
        for (size_t k = 0; k < net->p->params; k++) grads[k] += of_part[i][k];
        free(of_part[i]);
    }
}

static double net_objective(const struct net *net) {
    double sum = 0;
    net_forward(net);
    for (size_t i = 0; i < (size_t)net->n * echi_shape_size(problem_shape(net->p)); i++) sum += net->y[i] * net->dy[i];
    return sum;
}

static void net_compare(const struct net *net, const char *what, double *x, const double *dx, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const double keep = x[i];
        x[i] = keep + net->step;
        const double above = net_objective(net);
        x[i] = keep - net->step;
        const double numeric = (above - net_objective(net)) / (2 * net->step);
        x[i] = keep;
        if (fabs(numeric - dx[i]) > net->tolerance * (1 + fabs(numeric)))
            fail_msg("%s, n %d: gradient of %s[%zu] is %.12g, the difference says %.12g", net->p->text, net->n, what, i, dx[i], numeric);
    }
}

static void check_net(const struct problem *p, struct echi_random *r, int parts) {
    struct net net = {.p = p, .parts = parts};
    for (int i = 0; i < parts; i++) net.n += net.of[i] = random_from(r, 1, parts > 1 ? 2 : 3);
    bool curved = false;
    for (int i = 0; i < p->count; i++)
        curved = curved || p->layers[i].op == ECHI_OP_TANH || (net.n > 1 && p->layers[i].op == ECHI_OP_BATCH_NORM);
    /* Linear in each number any step will do, and a large one loses the fewest digits. */
    net.step = curved ? 1e-6 : 0.5;
    net.tolerance = curved ? 1e-6 : TOLERANCE;
    struct echi_stack_unit units[PROBLEM_LAYERS];
    int n_units = 0;
    size_t bytes = 0, in = (size_t)net.n * echi_shape_size(p->layers[0].in), out = (size_t)net.n * echi_shape_size(problem_shape(p));
    for (int i = 0; i < parts; i++)
        assert_int_equal(stack_in_double.create(NULL, p->layers, p->count, net.of[i], &net.state[i], units, &n_units, &bytes, NULL),
                         ECH_OK);
    double *dx = some(in), *grads = some(p->params);
    net.x = some(in), net.params = some(p->params), net.y = some(out), net.dy = some(out);
    fill_normal(r, net.x, in);
    fill_normal(r, net.params, p->params);
    fill_normal(r, net.dy, out);
    for (int turn = 0; turn < 2; turn++) {   /* the second finds gradients of the first */
        net_forward(&net);
        net_backward(&net, dx, grads);
    }
    net_compare(&net, "the input", net.x, dx, in);
    for (int i = 0; i < p->count; i++) {
        const struct echi_layer *l = &p->layers[i];
        if (l->weights) net_compare(&net, l->name, net.params + l->weight_at, grads + l->weight_at, l->weights);
        if (l->biases) net_compare(&net, l->name, net.params + l->bias_at, grads + l->bias_at, l->biases);
    }
    double *const all[] = {dx, grads, net.x, net.params, net.y, net.dy};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    for (int i = 0; i < parts; i++) stack_in_double.destroy(net.state[i]);
}

static void test_random_branches(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 60; seed++) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 70);
        problem_begin(&p, random_from(&r, 1, 2), random_from(&r, 1, 3), random_from(&r, 1, 3));
        problem_branches(&p, &r, false);
        check_net(&p, &r, 1);
    }
}

/* A block of a residual net (He et al., figure 2) whose both branches are convolutions with strides; an add of an add; an output that
 * three layers take; the input taken twice; dropout in one branch. */
static void test_residual_nets(void **state) {
    (void)state;
    struct problem p;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 71);
    problem_begin(&p, 2, 5, 4);
    problem_window(&p, ECHI_OP_CONV2D, 3, 3, 3, 2, 2, 1, 1, true);
    problem_window(&p, ECHI_OP_CONV2D, 3, 3, 3, 1, 1, 1, 1, true);
    problem_from(&p, 0);
    problem_window(&p, ECHI_OP_CONV2D, 3, 1, 1, 2, 2, 0, 0, true);
    problem_add(&p, 2);
    problem_dropout(&p, 500000);
    problem_window(&p, ECHI_OP_CONV2D, 3, 3, 3, 1, 1, 1, 1, false);
    problem_add(&p, 4);
    problem_add(&p, 1);     /* of an add; layer 4 is taken by 5 and 7, layer 1 by 2 and 8 */
    problem_from(&p, 4);    /* and now by three */
    problem_window(&p, ECHI_OP_AVG_POOL, 0, 2, 2, 1, 1, 0, 0, false);
    problem_from(&p, 8);
    problem_window(&p, ECHI_OP_CONV2D, 3, 2, 2, 1, 1, 0, 0, true);
    problem_add(&p, 9);
    problem_global_avg_pool(&p);
    problem_fc(&p, 4, true);
    for (int i = 0; i < 6; i++) check_net(&p, &r, 1);
}

/* Batch-norm in front of and behind convolutions, of vectors, in a branch, and of what another layer takes too, over the samples of one
 * stack and of two. Nets of one sample evaluate. */
static void test_batch_norm(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++) {
        struct problem p;
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 72);
        problem_begin(&p, random_from(&r, 1, 2), random_from(&r, 2, 4), random_from(&r, 2, 4));
        problem_same_conv(&p, &r);
        problem_batch_norm(&p);
        problem_same_conv(&p, &r);
        if (echi_random_below(&r, 2)) problem_batch_norm(&p);
        if (echi_random_below(&r, 2)) problem_next(&p, ECHI_OP_TANH);
        problem_add(&p, 1);
        if (echi_random_below(&r, 2)) problem_fc(&p, 3, true), problem_batch_norm(&p);
        check_net(&p, &r, 1);
        check_net(&p, &r, 2);
    }
}

/* Two channels, two samples of two numbers: means 3 and 0, variances 5 and 4, by 3 in the divisor 20/3 and 16/3. */
static void test_running_averages(void **state) {
    (void)state;
    struct problem p;
    struct echi_stack_unit units[1];
    int n_units;
    size_t bytes;
    void *s = NULL;
    problem_begin(&p, 2, 1, 2);
    problem_batch_norm(&p);
    const struct echi_layer *l = &p.layers[0];
    const double x[8] = {0, 2, -2, -2, 4, 6, 2, 2}, dy[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    double params[64] = {0}, grads[64], y[8];
    for (int c = 0; c < 2; c++) params[l->weight_at + (size_t)c] = 2, params[l->bias_at + (size_t)c] = 10;
    const double running[4] = {1, -1, 0.5, -3};   /* one that updates have carried below zero */
    memcpy(params + l->running_at, running, sizeof running);
    assert_int_equal(stack_in_double.create(NULL, p.layers, 1, 2, &s, units, &n_units, &bytes, NULL), ECH_OK);
    for (int i = 0; i < 3; i++) {
        static const double share[] = {0.25, 7, 0}, counts[] = {0.25, 1, 0};   /* a share above a whole round counts as one; 0: evaluates */
        stack_in_double.input(s, 2, x);
        if (share[i] > 0) stack_in_double.train(s, &(struct echi_training){1, NULL, share[i]});
        stack_in_double.forward(s, 0, params);
        stack_in_double.output(s, y);
        const double first = share[i] > 0 ? (0 - 3) / sqrt(5 + 1e-5) : (0 - 1) / sqrt(0.5 + 1e-5);
        const double third = share[i] > 0 ? -2 / sqrt(4 + 1e-5) : (-2 + 1) / sqrt(1e-5);
        assert_true(fabs(y[0] - (10 + 2 * first)) < 1e-9 && fabs(y[2] - (10 + 2 * third)) < 1e-9);
        stack_in_double.output_grad(s, dy);
        stack_in_double.backward(s, 0, params, grads, false);
        const double wanted[4] = {1 - 3, -1 - 0, 0.5 - 20. / 3, -3 - 16. / 3};
        for (int k = 0; k < 4; k++) assert_true(fabs(grads[l->running_at + (size_t)k] - counts[i] * wanted[k]) < 1e-12);
        assert_true(fabs(grads[l->bias_at] - 4) < 1e-12);
    }
    stack_in_double.destroy(s);
}

/* What is drawn: 0 or 1 / (1 - p), as often as p says, anew for whatever keys it. */
static void test_dropout_draws(void **state) {
    (void)state;
    const struct echi_layer l = {.op = ECHI_OP_DROPOUT, .in = {5, 20, 20}, .out = {5, 20, 20}, .drop = 300000, .number = 9};
    enum { SIZE = 2000, SAMPLES = 200 };
    static double of[SAMPLES][SIZE], again[SIZE];
    uint32_t kept = 0, kept_twice = 0;
    for (uint32_t s = 0; s < SAMPLES; s++) {
        dropout_factors_in_double(&l, 1, (struct echi_row){4, s}, of[s]);
        for (int i = 0; i < SIZE; i++) {
            assert_true(of[s][i] == 0 || of[s][i] == 1 / 0.7);
            kept += of[s][i] != 0;
            kept_twice += i > 0 && of[s][i] != 0 && of[s][i - 1] != 0;
        }
    }
    /* 400,000 draws: five deviations are 0.36 %; of neighbours, 0.49 kept both, within six. */
    assert_true(fabs(kept / (double)(SIZE * SAMPLES) - 0.7) < 0.0036);
    assert_true(fabs(kept_twice / (double)((SIZE - 1) * SAMPLES) - 0.49) < 0.006);
    /* Another epoch, sample, layer or seed draws anew: 0.58 of the numbers agree by chance, with a deviation of 0.011. */
    struct echi_layer other = l;
    other.number = 10;
    for (int what = 0; what < 5; what++) {
        int alike = 0;
        dropout_factors_in_double(what == 3 ? &other : &l, what == 4 ? 2 : 1, (struct echi_row){what == 1 ? 5 : 4, what == 2 ? 4 : 3},
                                  again);
        for (int i = 0; i < SIZE; i++) alike += again[i] == of[3][i];
        if (what == 0) assert_int_equal(alike, SIZE);
        else assert_true(abs(alike - 1160) < 110);
    }
    /* The rule itself: an eighth is dropped, where the word is below 2^29. */
    const struct echi_layer eighth = {.op = ECHI_OP_DROPOUT, .out = {SIZE, 1, 1}, .drop = 125000, .number = 3};
    uint32_t word[4];
    echi_random4(11, ECHI_STREAM_DROPOUT, 2, 3, word);
    const uint64_t own = (uint64_t)word[1] << 32 | word[0];
    dropout_factors_in_double(&eighth, 11, (struct echi_row){2, 77}, again);
    for (uint32_t i = 0; i < SIZE; i++) {
        echi_random4(own, ECHI_STREAM_DROPOUT, 77, i / 4, word);
        assert_true(again[i] == (word[i % 4] < 0x20000000u ? 0 : 1 / 0.875));
    }
    /* p = 0 drops nothing; the largest p all but everything. */
    const struct echi_layer none = {.op = ECHI_OP_DROPOUT, .out = {SIZE, 1, 1}, .drop = 0};
    dropout_factors_in_double(&none, 1, (struct echi_row){0, 0}, again);
    for (int i = 0; i < SIZE; i++) assert_true(again[i] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d), cmocka_unit_test(test_conv2d_corners), cmocka_unit_test(test_fc), cmocka_unit_test(test_max_pool),
        cmocka_unit_test(test_avg_pool), cmocka_unit_test(test_relu), cmocka_unit_test(test_at_the_kinks), cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_counts), cmocka_unit_test(test_sgd), cmocka_unit_test(test_adam),
        cmocka_unit_test(test_random_branches), cmocka_unit_test(test_residual_nets), cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_running_averages), cmocka_unit_test(test_dropout_draws),
    };
    return cmocka_run_group_tests_name("grad", tests, NULL, NULL);
}
