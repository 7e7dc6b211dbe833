/* SPDX-License-Identifier: Apache-2.0
 * Seconds that a step of BSP takes when gradients are summed in a ring: the baseline that no role of lib/core plays. Only time is
 * played, by the simulator's cost engine on the hosts of a file; BSP's gradients are exact, so what a step learns is the same by
 * any road, and reproduce_gssp.sh takes it from the run through one owner.
 *   bench_ring HOSTS BATCH SEED [MODEL]      a line: seconds and bytes a step, and what they are of
 *
 * Ring all-reduce (Patarasu and Yuan 2009; as in Horovod): N nodes, gradients in N chunks, N - 1 turns in which each node adds what comes
 * to its own and hands it on, then one chunk is summed at each node, which makes its weights new, and N - 1 turns in which these go
 * round. It is given all that would help it: shares by speed (the planner's), only as many of the fastest as are worth it, and one
 * ring for all layers or a first one for the fully connected layers, while the others' gradients are still computed; the fastest of
 * these that a short play finds is the one that is measured.
 *
 * Each play is preceded by one that can be said in closed form, 2 (N - 1) (delay + bytes / N / rate) + compute, and must meet it. */
#include "echi_cost.h"
#include "echi_frame.h"
#include "echi_hosts.h"
#include "echi_planner.h"
#include "echi_profile.h"
#include "echi_sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 2, LOOK = 200, STEPS = 4000 };   /* steps of the plays that look for the fastest, and of the one that is measured */
#define PRIORITY 2

/* A ring of the first `nodes` of `order`. */
struct ring {
    const struct echi_hosts *hosts;
    const struct echi_profile *profile;
    const double *io_speed;
    struct echi_cost_io io;
    const int *order;
    const uint32_t *n;          /* samples of each of them */
    int nodes, buckets;
    double part[BUCKETS];       /* of the parameters */
};

struct node {
    uint64_t step;
    bool ready[BUCKETS];        /* its own gradients are there */
    int taken[BUCKETS];         /* chunks that it took in this step: all are 2 (N - 1) */
    int waiting[BUCKETS];       /* that have come, and were not taken */
};

struct play {
    const struct ring *ring;
    struct echi_cost *cost;
    uint64_t seed;
    struct node *node;          /* [nodes] */
    int *place;                 /* [hosts]: in the ring */
    double until[3]; bool mark[3];
    struct echi_work_shape shape;
    uint64_t steps;
    int ended;                  /* nodes that have done all of them */
};

static void fail(const char *text) {
    fprintf(stderr, "bench_ring: %s\n", text);
    exit(1);
}

/* A node's share of a step forward and back, the head's gradients first. Its chunk's new weights are in the price; sums are made
 * as bytes come, and are in the price of a byte. */
static void compute(struct play *p, int i) {
    const struct ring *r = p->ring;
    const struct echi_profile *f = r->profile;
    const int host = r->order[i];
    const double once = r->n[i] ? echi_times_whole(&f->times, r->n[i]) : 0;
    const struct echi_work w = {
        .seconds = once * echi_hosts_step_factor(r->hosts, p->seed, host, p->node[i].step) + f->apply * f->parameters / r->nodes,
        .shape = &p->shape};
    echi_cost_compute(p->cost, host, &w);
}

/* Of one message, frames included. */
static double message_bytes(const struct ring *r, int bucket) {
    const double bytes = ceil(r->part[bucket] * r->profile->parameters / r->nodes) * sizeof(float);
    return bytes + ceil(bytes / ECHI_NET_CHUNK) * ECHI_FRAME_HEADER;
}

/* That all nodes send in a step. */
static double step_bytes(const struct ring *r) {
    double bytes = 0;
    for (int b = 0; b < r->buckets; b++) bytes += 2 * (r->nodes - 1) * r->nodes * message_bytes(r, b);
    return bytes;
}

static void send(struct play *p, int i, int bucket) {
    const struct ring *r = p->ring;
    echi_cost_send(p->cost, r->order[i], r->order[(i + 1) % r->nodes], PRIORITY, (uint64_t)message_bytes(r, bucket), 0, (uint64_t)bucket);
}

/* Takes what it can, hands it on; begins the next step when all is there. */
static void go_on(struct play *p, int i) {
    struct node *n = &p->node[i];
    const int all = 2 * (p->ring->nodes - 1);
    bool whole = true;
    for (int b = 0; b < p->ring->buckets; b++) {
        while (n->ready[b] && n->waiting[b] > 0 && n->taken[b] < all) {
            n->waiting[b]--;
            if (++n->taken[b] < all) send(p, i, b);
        }
        whole = whole && n->ready[b] && n->taken[b] == all;
    }
    if (!whole) return;
    memset(n->ready, 0, sizeof n->ready);
    memset(n->taken, 0, sizeof n->taken);
    if (++n->step < p->steps) compute(p, i);
    else p->ended++;
}

static void is_ready(struct play *p, int i, int bucket) {
    p->node[i].ready[bucket] = true;
    if (p->ring->nodes > 1) send(p, i, bucket);
    go_on(p, i);
}

/* Seconds a step. */
static double play(const struct ring *r, uint64_t seed, uint64_t steps) {
    const struct echi_times *t = &r->profile->times;
    const double trunk = echi_times_trunk(t, 64), head = echi_times_head(t, 64), forward = echi_times_forward(t, 64);
    struct play p = {.ring = r, .steps = steps, .until = {forward / (trunk + head), (forward + head) / (trunk + head), 1},
                     .mark = {false, r->buckets > 1, false}};
    struct echi_happening what;
    p.shape = (struct echi_work_shape){3, p.until, p.mark};
    p.node = calloc((size_t)r->nodes, sizeof *p.node);
    p.place = calloc((size_t)r->hosts->count, sizeof *p.place);
    if (!p.node || !p.place) fail("no memory");
    p.seed = seed;
    p.cost = echi_cost_create(r->hosts, r->io, r->io_speed, seed, echi_sim_heap);
    if (!p.cost) fail("no memory for the hosts");
    for (int i = 0; i < r->nodes; i++) {
        p.place[r->order[i]] = i;
        compute(&p, i);
    }
    while (p.ended < r->nodes && echi_cost_next(p.cost, &what)) {
        const int i = p.place[what.host];
        if (what.type == ECHI_HAPPENS_MARK) is_ready(&p, i, 0);
        if (what.type == ECHI_HAPPENS_DONE) is_ready(&p, i, r->buckets - 1);
        if (what.type == ECHI_HAPPENS_ARRIVED) {
            p.node[i].waiting[what.cookie]++;
            go_on(&p, i);
        }
    }
    if (p.ended < r->nodes || echi_cost_failed(p.cost)) fail("the ring got stuck");
    const double seconds = (double)(echi_cost_now(p.cost) - 1) * 1e-9;
    echi_cost_destroy(p.cost);
    free(p.node);
    free(p.place);
    return seconds / (double)steps;
}

/* As many nodes as `r` has, all as its first without what is random, and processors that spend nothing on messages. */
static void check_formula(const struct ring *r) {
    struct echi_host host[ECHI_WORLD_MAX];
    struct echi_hosts alike = {.count = r->nodes, .host = host};
    int order[ECHI_WORLD_MAX];
    uint32_t n[ECHI_WORLD_MAX];
    for (int i = 0; i < r->nodes; i++) {
        host[i] = r->hosts->host[r->order[0]];
        host[i].jitter = host[i].stutter = host[i].loss = host[i].n_slow = 0;
        host[i].cores = -1;
        host[i].delay += 1e-3;
        order[i] = i;
        n[i] = 16;
    }
    struct ring one = {.hosts = &alike, .profile = r->profile, .order = order, .n = n, .nodes = r->nodes, .buckets = 1, .part = {1}};
    const struct echi_profile *f = r->profile;
    const double bytes = ceil(f->parameters / r->nodes) * sizeof(float), frames = ceil(bytes / ECHI_NET_CHUNK) * ECHI_FRAME_HEADER;
    const double turn = 2 * host[0].delay + (host[0].rate > 0 ? (bytes + frames) / host[0].rate : 0);
    const double work = (echi_times_whole(&f->times, n[0]) + f->apply * f->parameters / r->nodes) / host[0].speed;
    const double formula = work + 2 * (r->nodes - 1) * turn, played = play(&one, 1, 10);
    if (fabs(played - formula) > 1e-6 * formula) {
        fprintf(stderr, "bench_ring: %d alike take %.9f s a step, by the formula it is %.9f\n", r->nodes, played, formula);
        exit(1);
    }
}

/* The planner's shares: step times of each by its speed. False when one of them got nothing: then fewer are as good. */
static bool shares(const struct ring *r, uint32_t batch, uint32_t *n) {
    struct echi_times *times = calloc((size_t)r->nodes, sizeof *times);
    bool all = true;
    if (!times) fail("no memory");
    for (int i = 0; i < r->nodes; i++) {
        const double speed = r->hosts->host[r->order[i]].speed;
        times[i] = r->profile->times;
        for (uint32_t k = 0; k < times[i].count; k++) {
            times[i].trunk[k] /= speed;
            times[i].head[k] /= speed;
        }
    }
    echi_shares_by_speed(times, r->nodes, batch, n);
    for (int i = 0; i < r->nodes; i++) all = all && n[i] > 0;
    free(times);
    return all;
}

int main(int argc, char **argv) {
    static struct echi_profile profile;
    static double io_speed[ECHI_WORLD_MAX];
    static uint32_t n[ECHI_WORLD_MAX], best_n[ECHI_WORLD_MAX];
    static int order[ECHI_WORLD_MAX];
    struct echi_hosts hosts = {0};
    struct ech_error err = {0};
    ech_model *model = NULL;
    if (argc < 4 || argc > 5 || atoi(argv[2]) < 1) fail("give a host file, B, a seed, and a model if it is not lenet5");
    const uint32_t batch = (uint32_t)atoi(argv[2]);
    const uint64_t seed = strtoull(argv[3], NULL, 10);
    if (echi_hosts_load(argv[1], &hosts, &err) != ECH_OK || ech_model_open(argc > 4 ? argv[4] : "lenet5", &model, &err) != ECH_OK)
        fail(err.text);
    echi_profile_builtin(&profile);
    echi_profile_fit(&profile, model);
    for (int h = 0; h < hosts.count; h++) io_speed[h] = hosts.host[h].in_images ? 1 : hosts.host[h].speed;   /* as in simulate.c */
    echi_hosts_relate(&hosts, echi_profile_images(&profile));
    for (int i = 0; i < hosts.count; i++) {   /* the fastest first */
        int at = i;
        for (; at > 0 && hosts.host[order[at - 1]].speed < hosts.host[i].speed; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    double behind = 0;   /* parameters from the cut on */
    for (int l = echi_model_cut(model); l < model->n_layers; l++) behind += (double)(model->layers[l].weights + model->layers[l].biases);
    behind /= (double)model->n_params;

    struct ring r = {.hosts = &hosts, .profile = &profile, .io_speed = io_speed, .order = order, .n = n,
                     .io = {profile.message, profile.copy + profile.add / sizeof(float)}}, best = {0};
    double least = INFINITY;
    for (r.nodes = hosts.count; r.nodes > 1; r.nodes--) {
        check_formula(&r);
        if (!shares(&r, batch, n)) continue;
        for (r.buckets = 1; r.buckets <= (behind > 0 && behind < 1 ? 2 : 1); r.buckets++) {
            r.part[0] = r.buckets == 1 ? 1 : behind;
            r.part[1] = 1 - behind;
            const double seconds = play(&r, seed, LOOK);
            if (seconds >= least) continue;
            least = seconds;
            best = r;
            memcpy(best_n, n, sizeof n);
        }
    }
    if (best.nodes == 0) fail("a ring needs two nodes that have something to do");
    best.n = best_n;
    printf("%.9f s and %.0f bytes a step of %u, a ring of %d of %d nodes%s\n", play(&best, seed, STEPS), step_bytes(&best), batch,
           best.nodes, hosts.count, best.buckets > 1 ? ", the fully connected layers ahead" : "");
    echi_hosts_free(&hosts);
    ech_model_destroy(model);
    return 0;
}
