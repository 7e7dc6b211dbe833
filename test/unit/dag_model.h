/* SPDX-License-Identifier: Apache-2.0
 * The DAG model of synchronous SGD, as the tests that share it have it: its formulas for one step by hand, and the same step on the cost
 * engine. Layers are numbered from the input on; a message of M GB takes alpha + beta M seconds. The engine has no alpha that occupies a
 * link, so alpha are bytes. */
#ifndef DAG_MODEL_H
#define DAG_MODEL_H
#include "echi_cost.h"
#include "echi_sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 416, WORKERS = 4 };
#define RATE 1e9           /* bytes a second of a link with beta = 1 s/GB: a byte is a nanosecond */
#define NEAR 1e-6          /* s: a rounded ns for each of some dozen works and messages */

/* Of one worker, in seconds; sizes in GB. Beyond `count` nothing counts. */
struct net { int count; double forward[LAYERS], backward[LAYERS], size[LAYERS]; };
struct line { double alpha, beta; };

static inline double sum_of(const double *v, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    return sum;
}
static inline double greater(double a, double b) { return a > b ? a : b; }
static inline void assert_near(double got, double expected, double slack) {
    if (!(fabs(got - expected) <= slack)) fail_msg("%.9f s, expected %.9f", got, expected);
}

/* ---------------------------------------------------------- the formulas */

/* ready[l]: when backward of layer l ends, counted from the step's beginning. */
static inline void ready_of(const struct net *net, double *ready) {
    double at = sum_of(net->forward, net->count);
    for (int l = net->count - 1; l >= 0; l--) ready[l] = at += net->backward[l];
}

/* Wait-free back-propagation: formulas (4) and (5). with[l]: layer l travels with the layer in front of it, once that one is ready, too.
 * The end of the last message. */
static inline double wait_free(const struct net *net, struct line line, const double *ready, const bool *with) {
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
static inline double best_merged(const struct net *net, struct line line, const double *ready, bool *out) {
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

/* The best again, by dynamic programming: E(k) = min over j > k of max(E(j), ready(k)) + alpha + beta (bytes of layers k .. j - 1). A layer
 * of no bytes must not be in it: each group costs an alpha. out [LAYERS], as in the next. */
static inline double best_by_table(const struct net *net, struct line line, const double *ready, bool *out) {
    double end[LAYERS + 1] = {0};
    int next[LAYERS];
    for (int k = net->count - 1; k >= 0; k--) {
        double size = 0;
        end[k] = INFINITY;
        for (int j = k + 1; j <= net->count; j++) {
            size += net->size[j - 1];
            const double here = greater(end[j], ready[k]) + line.alpha + line.beta * size;
            if (here < end[k]) {
                end[k] = here;
                next[k] = j;
            }
        }
    }
    for (int k = 0; k < net->count; k = next[k])
        for (int l = k; l < next[k]; l++) out[l] = l > k;
    return end[0];
}

/* The published rule of MG-WFBP (Shi, Chu, Li, INFOCOM 2019), from the last layer on: l joins the one in front of it where that is ready
 * before l would be sent, or waits for it less than an alpha; and, as its later code has it, where it has less than `least` GB. */
static inline void merged_by_rule(const struct net *net, struct line line, const double *ready, double least, bool *out) {
    double free_at = 0, size = 0;   /* when the link is, behind all groups that are closed; of the open one */
    memset(out, 0, LAYERS * sizeof *out);
    for (int l = net->count - 1; l > 0; l--) {
        size += net->size[l];
        const double begins = greater(free_at, ready[l]), ends = begins + line.alpha + line.beta * size;
        out[l] = (ready[l - 1] < ends && ready[l - 1] < begins + line.alpha) || size < least;
        if (out[l]) continue;
        free_at = ends;
        size = 0;
    }
}

/* ------------------------------------------------ the same on the engine */

static struct echi_host host[WORKERS + 2];
static struct echi_hosts hosts;
static struct echi_cost *cost;

/* `count` hosts that compute, whose links have no bound, and behind them one way between two more that all communication takes. */
static inline void open_cluster(int count, double beta) {
    hosts = (struct echi_hosts){.count = count + 2, .host = host};
    for (int h = 0; h < hosts.count; h++) host[h] = (struct echi_host){.speed = 1, .cores = -1, .dies = -1, .joins = -1};
    host[count].rate = RATE / beta;
    cost = echi_cost_create(&hosts, (struct echi_cost_io){0}, NULL, 1, echi_sim_heap);
    assert_non_null(cost);
}
static inline double close_cluster(void) {
    const double end = 1e-9 * (double)(echi_cost_now(cost) - 1);
    assert_false(echi_cost_failed(cost));
    echi_cost_destroy(cost);
    return end;
}
static inline void send(int count, struct line line, double size, int priority, uint64_t cookie) {
    const uint64_t bytes = (uint64_t)llround((size + line.alpha / line.beta) * RATE);
    echi_cost_send(cost, count, count + 1, priority, bytes, 0, cookie);
}

/* Forward, then backward with a mark at the end of each layer. */
struct pass { double until[1 + LAYERS]; bool mark[1 + LAYERS]; struct echi_work_shape shape; };
static inline void compute(struct pass *p, const struct net *net, int at) {
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
static inline bool layer_ends(const struct echi_happening *what, int count, int *out) {
    *out = what->type == ECHI_HAPPENS_DONE ? 0 : count - what->unit;
    return what->type == ECHI_HAPPENS_DONE || what->type == ECHI_HAPPENS_MARK;
}

/* One step of `workers`; a message leaves when all of them have all of its layers. Without `overlap` when they have all layers. */
static inline double step(const struct net *net, int workers, struct line line, const bool *with, bool overlap) {
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
#endif
