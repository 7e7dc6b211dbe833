/* SPDX-License-Identifier: Apache-2.0
 * Which gradients travel as one message (echi_merge.h), beside the rules of others: a message a layer, one of all, DDP's buckets, MG-WFBP's
 * greedy merging.
 *     bench_merge                     communication that each leaves exposed, of built-in nets and of the traces in ECHELON_DATA, on links
 *                                     of known rates, on those of OSU's logs there, and on those that a trace itself has measured
 *     bench_merge RULE MODEL PLAN PROFILE SECONDS OUT
 *                                     for merge.sh: a plan with the table of parts by this rule, for the same net and nodes. A step takes
 *                                     SECONDS on each, divided as the profile has it; links are those of the plan. It prints what a round
 *                                     takes by the model
 *
 * Exposed is what a round takes beyond forward and backward: no forward that begins before all weights have come. Messages of built-in nets
 * cost the processor that computes what the built-in profile has; those of traces, which GPUs computed, nothing. It ends with 1 where the
 * dynamic program leaves more exposed than another rule. */
#include "echi_import.h"
#include "echi_job.h"
#include "echi_plan_file.h"
#include "echi_profile.h"
#include "merge_rules.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 4
#define LATENCY 50e-6            /* s a message on links of known rates */
#define ROUNDING (1 + 1e-9)
#define MIB (1048576 / sizeof(float))
#define BUCKET (25.0 * MIB)      /* DDP's bucket_cap_mb, and its first bucket */
#define FIRST_BUCKET (1.0 * MIB)
enum { STEP = 8 };               /* samples of a node's step, of built-in nets */

enum rule { LAYERS, ONE, BUCKETS, GREEDY, BEST, RULES };
static const char *const rules[RULES] = {"layers", "one", "buckets", "greedy", "best"};

/* A net: its layers' gradients, forward and backward, and what messages and parameters take the processor that computes them. */
struct net { char name[40]; int count; double seconds; struct echi_merge_node node; struct echi_merge_piece piece[ECHI_PARTS_MAX]; };
/* Gradients go to all nodes, each of which owns a slice of each message, by a ring or at once; or to as many other nodes. Or an all-reduce
 * was measured. `fixed`: beside all that. */
enum link_kind { OWNERS, SERVERS, MEASURED };
struct link { char name[40]; enum link_kind kind; double byte; struct echi_merge_stage fixed; };

static struct echi_merge_work work;
static int worse;

static void fail(const char *sentence) {
    fprintf(stderr, "bench_merge: %s\n", sentence);
    exit(2);
}
static void check(ech_status status, const struct ech_error *err) {
    if (status != ECH_OK) fail(err->text);
}

/* ------------------------------------------------------------------ the rules */

/* MG-WFBP's rule knows one stage: it is given the first, or both as one, whichever is better. */
static void greedy(const struct net *net, const struct echi_merge_costs *costs, bool *cut) {
    const struct echi_merge_stage *stage = costs->stage;
    const struct echi_merge_stage both[ECHI_MERGE_STAGES] = {{stage[0].message + stage[1].message, stage[0].param + stage[1].param}};
    bool other[ECHI_PARTS_MAX];
    merge_greedy(net->piece, net->count, stage, cut);
    merge_greedy(net->piece, net->count, both, other);
    if (merge_through(net->piece, net->count, costs, other) < merge_through(net->piece, net->count, costs, cut))
        memcpy(cut, other, sizeof other);
}

/* When the last message is through. */
static double merged(const struct net *net, const struct echi_merge_costs *costs, enum rule rule, bool *cut) {
    for (int i = 0; i < net->count; i++) cut[i] = i == 0 || rule == LAYERS;
    if (rule == BUCKETS) merge_buckets(net->piece, net->count, FIRST_BUCKET, BUCKET, cut);
    if (rule == GREEDY) greedy(net, costs, cut);
    if (rule == BEST) echi_merge(net->piece, net->count, costs, &work, cut);
    return merge_through(net->piece, net->count, costs, cut);
}

/* Servers that do not train take in all gradients of their slices; a worker's link carries as much each way. */
static struct echi_merge_costs costs_of(const struct net *net, const struct link *link) {
    struct echi_merge_node node = net->node;
    struct echi_merge_costs costs;
    node.byte = link->byte;
    costs = echi_merge_costs_of(&node, NODES, NODES, NODES);
    if (link->kind == SERVERS) {
        costs.compute = (struct echi_merge_stage){NODES * node.message, sizeof(float) * node.copy};
        for (int i = 0; i < ECHI_MERGE_STAGES; i++)
            costs.stage[i] = (struct echi_merge_stage){NODES * node.message + link->fixed.message, sizeof(float) * link->byte};
    } else if (link->kind == MEASURED) {
        costs.stage[0] = link->fixed;
    } else {
        costs.stage[0].message += link->fixed.message;
    }
    return costs;
}

static void print_row(const struct net *net, const struct link *link) {
    const struct echi_merge_costs costs = costs_of(net, link);
    bool cut[ECHI_PARTS_MAX];
    double end[RULES];
    int messages = 0;
    for (int r = 0; r < RULES; r++) end[r] = merged(net, &costs, (enum rule)r, cut);
    for (int i = 0; i < net->count; i++) messages += cut[i];
    printf("  %-26s", link->name);
    for (int r = 0; r < RULES; r++) printf(" %9.3f", 1e3 * (end[r] - net->seconds));
    printf(" %5d ", messages);
    for (int r = 0; r < BEST; r++) {
        const bool is_worse = end[BEST] > end[r] * ROUNDING;
        printf(" %+7.1f%%%s", 100 * (end[r] / end[BEST] - 1), is_worse ? "!" : "");
        worse += is_worse;
    }
    putchar('\n');
}

/* ------------------------------------------------------------------- the nets */

static struct echi_merge_node node_of(const struct echi_profile *profile) {
    return (struct echi_merge_node){.message = profile->message, .copy = profile->copy, .add = profile->add, .update = profile->apply};
}

static struct net builtin(const char *name) {
    struct net net = {0};
    struct echi_profile profile;
    struct echi_param_layer layer[ECHI_UNITS_MAX];
    struct ech_error err;
    ech_model *model;
    check(ech_model_open(name, &model, &err), &err);
    echi_profile_builtin(&profile);
    echi_profile_fit(&profile, model);
    net.count = echi_model_param_layers(model, layer, ECHI_UNITS_MAX);
    net.node = node_of(&profile);
    snprintf(net.name, sizeof net.name, "%s, a CPU core", name);
    for (int u = 0; u < net.count; u++) net.seconds += echi_times_unit(&profile.times, u, ECHI_FORWARD, STEP);
    for (int u = net.count - 1; u >= 0; u--) {
        net.seconds += echi_times_unit(&profile.times, u, ECHI_BACKWARD, STEP);
        net.piece[u] = (struct echi_merge_piece){net.seconds, (double)layer[u].count};
    }
    ech_model_destroy(model);
    return net;
}

static struct net traced(const struct echi_import *import, const char *name) {
    struct net net = {.count = import->count};
    snprintf(net.name, sizeof net.name, "%s", name);
    for (int l = 0; l < net.count; l++) net.seconds += import->layer[l].forward;
    for (int l = net.count - 1; l >= 0; l--) {
        net.seconds += import->layer[l].backward;
        net.piece[l] = (struct echi_merge_piece){net.seconds, import->layer[l].bytes / sizeof(float)};
    }
    return net;
}

/* ------------------------------------------------------------------ the links */

/* On a ring a message is handed on 2 (N - 1) times, one after the other; else gradients take one way, and weights another. */
static struct link link_of(const char *name, enum link_kind kind, int ways, double bits) {
    struct link link = {.kind = kind, .byte = 8 / bits, .fixed = {ways * LATENCY, 0}};
    snprintf(link.name, sizeof link.name, "%s, %g Gb/s", name, bits / 1e9);
    return link;
}
static struct link fitted(const struct echi_alpha_betas *fit, const char *name) {
    const struct echi_alpha_beta large = fit->piece[fit->pieces - 1];
    struct link link = {.kind = MEASURED, .fixed = {large.alpha, large.beta * sizeof(float)}};
    snprintf(link.name, sizeof link.name, "%s", name);
    return link;
}

enum { LINKS_MAX = 16 };
static struct link links[LINKS_MAX];
static int n_links;

static void print_net(const struct net *net, const struct link *own) {
    double params = 0;
    for (int i = 0; i < net->count; i++) params += net->piece[i].params;
    printf("%s: %d layers, %.1f MB, forward and backward %.3g ms\n", net->name, net->count, params * sizeof(float) / 1e6,
           1e3 * net->seconds);
    for (int i = 0; i < n_links; i++) print_row(net, &links[i]);
    if (own) print_row(net, own);
}

/* ------------------------------------------------------------------ the files */

/* Files of ECHELON_DATA/traces in their order, each given to `visit` with its path and a short name. */
static int visit_traces(const char *folder, void (*visit)(const char *path, const char *name)) {
    const char *data = getenv("ECHELON_DATA");
    char path[2][1024], name[300];
    struct dirent **entry = NULL;
    snprintf(path[0], sizeof path[0], "%s/traces/%s", data ? data : "", folder);
    const int count = data ? scandir(path[0], &entry, NULL, alphasort) : 0;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%.20s/%s", folder, entry[i]->d_name);
        if (snprintf(path[1], sizeof path[1], "%.700s/%s", path[0], entry[i]->d_name) < (int)sizeof path[1] && entry[i]->d_name[0] != '.')
            visit(path[1], entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return count > 0 ? count : 0;
}

/* OSU's logs are links, the other files nets. */
static bool is_osu(const char *name) { return strncmp(name, "allreduce", 9) == 0; }

static void add_link(const char *path, const char *name) {
    struct echi_alpha_betas fit;
    struct ech_error err;
    char title[64];
    if (!is_osu(name) || n_links == LINKS_MAX) return;
    check(echi_alpha_beta_load(path, &fit, &err), &err);
    snprintf(title, sizeof title, "OSU's %.20s", name);
    links[n_links++] = fitted(&fit, title);
}

static void print_trace(const char *path, const char *name) {
    static struct echi_import import;
    struct echi_alpha_betas fit;
    struct ech_error err;
    if (is_osu(name)) return;
    check(echi_import_load(path, &import, &err), &err);
    const struct net net = traced(&import, name);
    const bool has_own = echi_import_alpha_beta(&import, &fit);
    const struct link own = has_own ? fitted(&fit, "as the trace measured") : (struct link){0};
    print_net(&net, has_own ? &own : NULL);
}

static int print_all(void) {
    static const char *const nets[] = {"lenet5", "resnet18", "vgg19", "alexnet"};
    for (double bits = 1e9; bits <= 10e9; bits *= 10) {
        links[n_links++] = link_of("ring", OWNERS, 2 * (NODES - 1), bits);
        links[n_links++] = link_of("owners", OWNERS, 2, bits);
        links[n_links++] = link_of("servers", SERVERS, 1, bits);
    }
    visit_traces("bcaffe-googlenet", add_link);
    printf("exposed communication, ms, of %d nodes, by rule; the messages of the best; how much faster its round is than by each rule\n"
           "  %-26s", NODES, "");
    for (int r = 0; r < RULES; r++) printf(" %9s", rules[r]);
    printf(" %5s ", "cuts");
    for (int r = 0; r < BEST; r++) printf(" %8s", rules[r]);
    putchar('\n');
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        const struct net net = builtin(nets[i]);
        print_net(&net, NULL);
    }
    const int files = visit_traces("bcaffe-googlenet", print_trace) + visit_traces("pipedream-profiles", print_trace);
    if (files == 0) puts("no traces: ECHELON_DATA names no folder that has them");
    if (worse) printf("the best is worse than another rule in %d cases\n", worse);
    return worse > 0;
}

/* ------------------------------------------------------------ a plan's table */

/* Of each message every owner has an equal slice. */
static struct echi_merge_costs costs_of_plan(const struct echi_plan *plan, const struct echi_link *way,
                                             const struct echi_profile *profile) {
    struct echi_merge_node node = node_of(profile);
    const int owners = plan->shards > 0 ? plan->shards : 1;
    node.byte = node.copy;
    for (int r = 0; r < plan->world; r++)
        if (echi_link_slower(&way[r]) > 0) node.byte = fmax(node.byte, 1 / echi_link_slower(&way[r]));
    return echi_merge_costs_of(&node, echi_plan_workers(plan, -1), owners, owners);
}

/* Layers [first, last] as one message: a slice for each owner. */
static void add_message(struct echi_plan *plan, const struct echi_layers *layers, int first, int last) {
    const uint64_t owners = plan->shards > 0 ? plan->shards : 1;
    uint64_t params = 0, at = 0, end = layers->params[first];
    for (int l = first; l <= last; l++) params += layers->params[l];
    for (uint64_t k = 0; k < owners; k++) {
        const uint64_t size = params / owners + (k < params % owners);
        const struct echi_part *before = plan->parts.count ? &plan->parts.part[plan->parts.count - 1] : NULL;
        int until = first;
        if (size == 0) continue;
        if (plan->parts.count == ECHI_PARTS_MAX) fail("a plan has no room for so many parts");
        while (at >= end) end += layers->params[++first];
        until = first;
        for (uint64_t reached = end; reached < at + size; reached += layers->params[until]) until++;
        plan->parts.part[plan->parts.count++] = (struct echi_part){.at = before ? before->at + before->count : 0, .count = (uint32_t)size,
            .first = (uint8_t)first, .last = (uint8_t)until, .codec = ECHI_CODEC_DENSE, .shard = (uint8_t)k};
        at += size;
    }
}

/* Batch-norms belong to the layer in front of them. */
static struct net net_of_plan(const struct echi_layers *layers, const struct echi_profile *profile, uint32_t n, double slower, int *first) {
    struct net net = {0};
    if (profile->times.units != layers->count) fail("the profile is of another model");
    for (int u = 0; u < layers->count; u++) net.seconds += slower * echi_times_unit(&profile->times, u, ECHI_FORWARD, n);
    for (int u = 0; u < layers->count; u++)
        if (u == 0 || !layers->joined[u]) first[net.count++] = u;
    first[net.count] = layers->count;
    for (int i = net.count - 1; i >= 0; i--) {
        for (int u = first[i + 1] - 1; u >= first[i]; u--) {
            net.seconds += slower * echi_times_unit(&profile->times, u, ECHI_BACKWARD, n);
            net.piece[i].params += (double)layers->params[u];
        }
        net.piece[i].ready = net.seconds;
    }
    return net;
}

static int write_plan(char **argument) {
    static struct echi_plan plan;
    static struct echi_link link[ECHI_WORLD_MAX];
    static struct echi_times times[ECHI_WORLD_MAX];
    static struct echi_job job;
    static struct echi_profile profile;
    int rule = 0, first[ECHI_PARTS_MAX + 1];
    bool cut[ECHI_PARTS_MAX];
    struct echi_layers layers;
    struct ech_error err;
    ech_model *model;
    while (rule < RULES && strcmp(rules[rule], argument[0]) != 0) rule++;
    if (rule == RULES) fail("RULE is layers, one, buckets, greedy or best");
    check(ech_model_open(argument[1], &model, &err), &err);
    check(echi_plan_load(argument[2], 0, &plan, link, &err), &err);
    check(echi_profile_load(argument[3], &profile, &err), &err);
    job.n_layers = echi_model_param_layers(model, job.layer, ECHI_UNITS_MAX);
    job.model = model;
    echi_job_layers(&job, &layers);
    const double slower = atof(argument[4]) / echi_times_whole(&profile.times, plan.n[0]);   /* than in the profile */
    const struct net net = net_of_plan(&layers, &profile, plan.n[0], slower, first);
    const struct echi_merge_costs costs = costs_of_plan(&plan, link, &profile);
    const double end = merged(&net, &costs, (enum rule)rule, cut);
    plan.parts.count = 0;
    for (int i = 0, last; i < net.count; i = last + 1) {
        for (last = i; last + 1 < net.count && !cut[last + 1]; last++) {}
        add_message(&plan, &layers, first[i], first[last + 1] - 1);
    }
    for (int r = 0; r < plan.world; r++) times[r].link = link[r];
    check(echi_plan_save(argument[5], &plan, times, &err), &err);
    printf("%.6f\n", end);
    ech_model_destroy(model);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 1 && argc != 7) fail("give nothing, or RULE MODEL PLAN PROFILE SECONDS OUT");
    return argc == 1 ? print_all() : write_plan(argv + 1);
}
