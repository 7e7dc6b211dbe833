/* SPDX-License-Identifier: Apache-2.0
 * The cost engine against the DAG model of synchronous SGD (Shi, Wang, Chu, Li: A DAG Model of Synchronous Stochastic Gradient Descent in
 * Distributed Deep Learning, ICPADS 2018): its closed formulas for a step without overlap, with reading ahead, with wait-free
 * back-propagation, with merged layers (MG-WFBP, INFOCOM 2019) and with urgent layers first (P3, SysML 2019), for workers that are not
 * alike, and for a parameter server. Layers are numbered from the input on; a message of M bytes takes alpha + beta M. The engine has
 * no alpha that occupies a link, so alpha are bytes. */
#include "echi_cost.h"
#include "echi_random.h"
#include "echi_sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 9, WORKERS = 4, STEPS = 6 };
#define RATE 1e9           /* bytes a second of a link with beta = 1 s/GB: a byte is a nanosecond */
#define NEAR 1e-6          /* s: a rounded ns for each of some dozen works and messages */

/* Of one worker, in seconds; sizes in GB. Beyond `count` nothing counts. */
struct net { int count; double forward[LAYERS], backward[LAYERS], size[LAYERS]; };
struct line { double alpha, beta; };

static double sum_of(const double *v, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    return sum;
}
static double greater(double a, double b) { return a > b ? a : b; }
static void assert_near(double got, double expected, double slack) {
    if (!(fabs(got - expected) <= slack)) fail_msg("%.9f s, expected %.9f", got, expected);
}

/* ---------------------------------------------------------- the formulas */

/* ready[l]: when backward of layer l ends, counted from the step's beginning. */
static void ready_of(const struct net *net, double *ready) {
    double at = sum_of(net->forward, net->count);
    for (int l = net->count - 1; l >= 0; l--) ready[l] = at += net->backward[l];
}

/* Wait-free back-propagation: formulas (4) and (5). with[l]: layer l travels with the layer in front of it, once that one is ready, too.
 * The end of the last message. */
static double wait_free(const struct net *net, struct line line, const double *ready, const bool *with) {
    double end = 0, size = 0;
    for (int l = net->count - 1; l >= 0; l--) {
        size += net->size[l];
        if (with && with[l]) continue;
        end = greater(end, ready[l]) + line.alpha + line.beta * size;
        size = 0;
    }
    return end;
}

/* The best of all ways to merge neighbours: 2^(L-1) of them. */
static double best_merged(const struct net *net, struct line line, const double *ready, bool *out) {
    double best = INFINITY;
    for (unsigned way = 0; way < 1u << (net->count - 1); way++) {
        bool with[LAYERS] = {false};
        for (int l = 1; l < net->count; l++) with[l] = way >> (l - 1) & 1;
        const double end = wait_free(net, line, ready, with);
        if (end < best) {
            best = end;
            memcpy(out, with, sizeof with);
        }
    }
    return best;
}

/* ------------------------------------------------ the same on the engine */

static struct echi_host host[WORKERS + 2];
static struct echi_hosts hosts;
static struct echi_cost *cost;

/* `count` hosts that compute, whose links have no bound, and behind them one way between two more that all communication takes. */
static void open_cluster(int count, double beta) {
    hosts = (struct echi_hosts){.count = count + 2, .host = host};
    for (int h = 0; h < hosts.count; h++) host[h] = (struct echi_host){.speed = 1, .cores = -1, .dies = -1, .joins = -1};
    host[count].rate = RATE / beta;
    cost = echi_cost_create(&hosts, (struct echi_cost_io){0}, NULL, 1, echi_sim_heap);
    assert_non_null(cost);
}
static double close_cluster(void) {
    const double end = 1e-9 * (double)(echi_cost_now(cost) - 1);
    assert_false(echi_cost_failed(cost));
    echi_cost_destroy(cost);
    return end;
}
static void send(int count, struct line line, double size, int priority, uint64_t cookie) {
    const uint64_t bytes = (uint64_t)llround((size + line.alpha / line.beta) * RATE);
    echi_cost_send(cost, count, count + 1, priority, bytes, 0, cookie);
}

/* Forward, then backward with a mark at the end of each layer. */
struct pass { double until[1 + LAYERS]; bool mark[1 + LAYERS]; struct echi_work_shape shape; };
static void compute(struct pass *p, const struct net *net, int at) {
    double ready[LAYERS] = {0};
    ready_of(net, ready);
    const double seconds = ready[0];
    p->shape = (struct echi_work_shape){.units = 1 + net->count, .until = p->until, .mark = p->mark};
    p->until[0] = sum_of(net->forward, net->count) / seconds;
    p->mark[0] = false;
    for (int i = 1; i <= net->count; i++) {
        p->until[i] = i == net->count ? 1 : ready[net->count - i] / seconds;
        p->mark[i] = true;
    }
    echi_cost_compute(cost, at, &(struct echi_work){.seconds = seconds, .shape = &p->shape});
}

/* Whether a layer's backward pass has come to its end, and which one's. */
static bool layer_ends(const struct echi_happening *what, int count, int *out) {
    *out = what->type == ECHI_HAPPENS_DONE ? 0 : count - what->unit;
    return what->type == ECHI_HAPPENS_DONE || what->type == ECHI_HAPPENS_MARK;
}

/* One step of `workers`; a message leaves when all of them have all of its layers. Without `overlap` when they have all layers. */
static double step(const struct net *net, int workers, struct line line, const bool *with, bool overlap) {
    struct pass pass[WORKERS];
    struct echi_happening what;
    int has[LAYERS] = {0}, ended;
    double size = 0;
    const int count = net[0].count;
    open_cluster(workers, line.beta);
    for (int w = 0; w < workers; w++) compute(&pass[w], &net[w], w);
    for (int l = count - 1; echi_cost_next(cost, &what);) {
        if (!layer_ends(&what, count, &ended)) continue;
        has[ended]++;
        while (l >= 0 && has[l] == workers && (overlap || has[0] == workers)) {
            size += net[0].size[l];
            if (!with || !with[l]) {
                send(workers, line, size, 0, (uint64_t)l);
                size = 0;
            }
            l--;
        }
    }
    return close_cluster();
}

/* --------------------------------------------------------------- one step */

/* The vectors can be checked by hand: without overlap layer by layer and as one message, wait-free, and merged in the best way. */
static void vectors_of_one_step(void **state) {
    (void)state;
    const struct net net = {4, {5}, {4, 3, 2, 1}, {0.1, 0.4, 2, 4}};
    static const struct { struct line line; double by_layer, at_once, wait_free, merged; } v[] = {
        {{0.5, 1}, 23.5, 22, 15.6, 15.6}, {{2, 1}, 29.5, 23.5, 20.5, 18.5}, {{0.1, 0.2}, 16.7, 16.4, 15.12, 15.12}};
    double ready[LAYERS] = {0};
    ready_of(&net, ready);
    for (int i = 0; i < 3; i++) {
        const bool all[LAYERS] = {false, true, true, true};
        bool with[LAYERS];
        assert_near(step(&net, 1, v[i].line, NULL, false), v[i].by_layer, NEAR);
        assert_near(step(&net, 1, v[i].line, all, true), v[i].at_once, NEAR);
        assert_near(step(&net, 1, v[i].line, NULL, true), v[i].wait_free, NEAR);
        assert_near(best_merged(&net, v[i].line, ready, with), v[i].merged, NEAR);
        assert_near(step(&net, 1, v[i].line, with, true), v[i].merged, NEAR);
    }
    /* MG-WFBP's rule merges layer 3 into 2 here, and ends at 26. */
    const struct net other = {3, {0}, {6, 5, 2}, {1, 1, 5}};
    const struct line line = {6, 1};
    const bool greedy[LAYERS] = {false, false, true};
    bool with[LAYERS];
    ready_of(&other, ready);
    assert_near(step(&other, 1, line, greedy, true), 26, NEAR);
    assert_near(best_merged(&other, line, ready, with), 21, NEAR);
    assert_near(step(&other, 1, line, with, true), 21, NEAR);
    assert_true(with[1] && !with[2]);
}

static double any(struct echi_random *random, double most) { return most * (1 + echi_random_below(random, 1000)) / 1000; }
static struct net any_net(struct echi_random *random, int count) {
    struct net net = {.count = count};
    for (int l = 0; l < count; l++) {
        net.forward[l] = any(random, 2);
        net.backward[l] = any(random, 4);
        net.size[l] = any(random, 3);
    }
    return net;
}

/* Workers that are not alike: a message leaves when the last of them has its layers, and all of them have the same sizes. */
static void any_step_of_unlike_workers(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 19, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 400; run++) {
        const int workers = 1 + (int)echi_random_below(&random, WORKERS), count = 1 + (int)echi_random_below(&random, LAYERS);
        const struct line line = {any(&random, 2), any(&random, 2)};
        struct net net[WORKERS];
        double ready[LAYERS] = {0}, one[LAYERS];
        bool with[LAYERS] = {false};
        for (int w = 0; w < workers; w++) {
            net[w] = any_net(&random, count);
            memcpy(net[w].size, net[0].size, sizeof net[w].size);
            ready_of(&net[w], one);
            for (int l = 0; l < count; l++) ready[l] = greater(ready[l], one[l]);
        }
        int messages = 1;
        for (int l = 1; l < count; l++) messages += !(with[l] = echi_random_below(&random, 2));
        assert_near(step(net, workers, line, with, true), wait_free(&net[0], line, ready, with), NEAR);
        assert_near(step(net, workers, line, with, false),
                    ready[0] + messages * line.alpha + line.beta * sum_of(net[0].size, count), NEAR);
    }
}

/* A parameter server: what all workers push comes in over one way, whose queue is first come, first served. */
static void pushes_of_all_are_one_queue(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 20, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 200; run++) {
        const int workers = 2 + (int)echi_random_below(&random, WORKERS - 1), count = 1 + (int)echi_random_below(&random, LAYERS);
        const double beta = any(&random, 1);
        struct net net[WORKERS];
        double ready[WORKERS][LAYERS], end = 0;
        struct pass pass[WORKERS];
        struct echi_happening what;
        open_cluster(workers, beta);
        echi_cost_set_link(cost, workers + 1, RATE / beta, (struct echi_cost_io){0});
        for (int w = 0; w < workers; w++) {
            net[w] = any_net(&random, count);
            ready_of(&net[w], ready[w]);
            compute(&pass[w], &net[w], w);
        }
        for (int l; echi_cost_next(cost, &what);)
            if (layer_ends(&what, count, &l))
                echi_cost_send(cost, what.host, workers + 1, 0, (uint64_t)llround(net[what.host].size[l] * RATE), 0, 0);
        /* The queue by hand: always the one that was ready first of those that are left. */
        for (int left = workers * count; left > 0; left--) {
            int w = 0, l = 0;
            for (int i = 0; i < workers * count; i++)
                if (ready[i / count][i % count] < ready[w][l]) {
                    w = i / count;
                    l = i % count;
                }
            end = greater(end, ready[w][l]) + beta * net[w].size[l];
            ready[w][l] = INFINITY;
        }
        assert_near(close_cluster(), end, NEAR);
    }
}

/* --------------------------------------------------------- step upon step */

/* Formula (3): a reader that is one batch ahead; a step takes as long as the slower of both. */
static void reading_ahead(void **state) {
    (void)state;
    static const double read[] = {3, 7}, step_of[] = {5, 5};
    for (int i = 0; i < 2; i++) {
        struct echi_happening what;
        int reads = 0, begun = 0;
        bool busy = false;
        double last = 0, period = 0;
        open_cluster(2, 1);
        echi_cost_compute(cost, 0, &(struct echi_work){.seconds = read[i]});
        while (begun < STEPS && echi_cost_next(cost, &what)) {
            if (what.host == 0) reads++;
            else busy = false;
            if (busy || begun == reads) continue;
            busy = true;
            begun++;
            period = 1e-9 * (double)echi_cost_now(cost) - last;
            last += period;
            echi_cost_compute(cost, 1, &(struct echi_work){.seconds = step_of[i]});
            echi_cost_compute(cost, 0, &(struct echi_work){.seconds = read[i]});   /* into the place that is free now */
        }
        (void)close_cluster();
        assert_near(period, greater(read[i], step_of[i]), NEAR);
    }
}

/* Formula (6) by hand: of the layers that are ready the first of the net has the way, also before one that is half through; forward of a
 * layer begins when it is there and the one before it is through. From one step's beginning to the next one's, in the long run. */
static double period_by_hand(const struct net *net, double beta) {
    double ready[LAYERS] = {0}, there[LAYERS] = {0}, left[LAYERS], now = 0, end = 0;
    ready_of(net, ready);
    for (int l = 0; l < net->count; l++) left[l] = beta * net->size[l];
    for (int sent = 0; sent < net->count;) {
        int first = -1;
        double next = INFINITY;   /* when another layer is ready */
        for (int l = net->count - 1; l >= 0; l--) {
            if (left[l] == 0) continue;
            if (ready[l] <= now) first = l;
            else if (ready[l] < next) next = ready[l];
        }
        if (first < 0) now = next;
        else if (now + left[first] <= next) {
            there[first] = now += left[first];
            left[first] = 0;
            sent++;
        } else {
            left[first] -= next - now;
            now = next;
        }
    }
    /* The next step's forward passes; its backward passes follow the last of them at once, so what they wait for is the period. */
    for (int l = 0; l < net->count; l++) end = greater(end, there[l]) + net->forward[l];
    return end - sum_of(net->forward, net->count);
}

static double period_on_the_engine(const struct net *net, double beta) {
    struct pass pass;
    struct echi_happening what;
    struct net backward = *net;
    int forward = 0, steps = 0, ended;
    bool there[LAYERS], under_way = true;
    double last = 0, period = 0;
    memset(backward.forward, 0, sizeof backward.forward);
    memset(there, 1, sizeof there);
    open_cluster(1, beta);
    echi_cost_compute(cost, 0, &(struct echi_work){.seconds = net->forward[0], .cookie = 1});
    while (steps < STEPS && echi_cost_next(cost, &what)) {
        const double now = 1e-9 * (double)echi_cost_now(cost);
        if (what.type == ECHI_HAPPENS_ARRIVED) there[what.cookie] = true;
        else if (what.type == ECHI_HAPPENS_DONE && what.cookie == 1) {
            under_way = false;
            forward++;
        } else {
            if (layer_ends(&what, net->count, &ended)) send(1, (struct line){0, beta}, net->size[ended], ended, (uint64_t)ended);
            continue;
        }
        if (forward == net->count) {
            period = now - last;
            last = now;
            steps++;
            forward = 0;
            under_way = false;
            memset(there, 0, sizeof there);
            compute(&pass, &backward, 0);
        } else if (!under_way && there[forward]) {
            under_way = true;
            echi_cost_compute(cost, 0, &(struct echi_work){.seconds = net->forward[forward], .cookie = 1});
        }
    }
    (void)close_cluster();
    return period;
}

/* On the engine what is less urgent gives way with its chunk, so each layer may wait for one. */
static void urgent_layers_first(void **state) {
    (void)state;
    struct echi_random random;
    echi_random_init(&random, 21, ECHI_STREAM_TEST, 1);
    for (int run = 0; run < 300; run++) {
        const struct net net = any_net(&random, 1 + (int)echi_random_below(&random, LAYERS));
        const double beta = any(&random, 4), by_hand = period_by_hand(&net, beta);
        const double chunks = beta * net.count * ECHI_COST_CHUNK / RATE;
        assert_near(period_on_the_engine(&net, beta), by_hand, chunks + NEAR);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_one_step),         cmocka_unit_test(any_step_of_unlike_workers),
        cmocka_unit_test(pushes_of_all_are_one_queue), cmocka_unit_test(reading_ahead),
        cmocka_unit_test(urgent_layers_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
