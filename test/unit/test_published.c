/* SPDX-License-Identifier: Apache-2.0
 * What others have measured and published, predicted on the cost engine: images/s of synchronous SGD with one message of all gradients,
 * with wait-free back-propagation, with MG-WFBP's merged messages. Nothing here was fitted to the rows that it predicts.
 *
 * ddl-benchmarks (Hong Kong Baptist University, results of 2020-05-29): V100s, four a host, all-reduce by NCCL. Of each network and number
 * of GPUs alpha and beta follow from two rows, one message (BSP-A2A) and one a tensor (WFBP-A2A); the third, MG-WFBP, is predicted.
 * Tensors are known by arithmetic; how layers divide a step's time is taken to be by multiply-adds, a backward pass twice a forward one.
 *
 * B-Caffe (the same group): GoogLeNet on K80s over 10GbE, by the all-reduce times of its own logs; with ECHELON_DATA alone. */
#include "dag_model.h"
#include "echi_import.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---------------------------------------------------------------- tensors */

/* Multiply-adds in the place of seconds, until all are there. */
struct table { struct net net; double parameters; };
static void tensor(struct table *t, double parameters, double operations) {
    struct net *n = &t->net;
    assert_true(n->count < LAYERS);
    n->size[n->count] = parameters * sizeof(float) / 1e9;
    n->forward[n->count++] = operations;
    t->parameters += parameters;
}
static void share_out(struct net *n, double seconds) {
    const double all = sum_of(n->forward, n->count);
    for (int l = 0; l < n->count; l++) {
        n->forward[l] *= seconds / 3 / all;
        n->backward[l] = 2 * n->forward[l];
    }
}

/* A convolution without a bias and its batch-norm, on `side` x `side` outputs. */
static void convolution(struct table *t, int in, int out, int kernel, int side) {
    const double parameters = (double)in * out * kernel * kernel;
    tensor(t, parameters, parameters * side * side);
    tensor(t, out, 0);
    tensor(t, out, 0);
}

/* As torchvision has it: a block's second convolution takes its stride. */
static void resnet50(struct table *t) {
    static const int blocks[] = {3, 4, 6, 3};
    convolution(t, 3, 64, 7, 112);
    for (int s = 0, in = 64; s < 4; s++)
        for (int b = 0; b < blocks[s]; b++, in = 256 << s) {
            const int width = 64 << s, side = 56 >> s, before = b == 0 && s > 0 ? 2 * side : side;
            convolution(t, in, width, 1, before);
            convolution(t, width, width, 3, side);
            convolution(t, width, 4 * width, 1, side);
            if (b == 0) convolution(t, in, 4 * width, 1, side);
        }
    tensor(t, 2048 * 1000, 2048 * 1000);
    tensor(t, 1000, 0);
    assert_int_equal(t->net.count, 161);
    assert_true(t->parameters == 25557032);
}

/* Of one word. */
static void dense(struct table *t, double in, double out) {
    tensor(t, in * out, in * out);
    tensor(t, out, 0);
}
static void norm(struct table *t, double width) {
    tensor(t, width, 0);
    tensor(t, width, 0);
}
/* BertForPreTraining: its decoder has the embedding's weights, whose gradient is whole when backward is through. Attention's multiply-adds
 * between words, a few per cent, are left out. */
static void bert(struct table *t, int layers, int width) {
    const double words = 30528;   /* padded to a multiple of 8 */
    tensor(t, words * width, 0);
    tensor(t, 512.0 * width, 0);
    tensor(t, 2.0 * width, 0);
    norm(t, width);
    for (int l = 0; l < layers; l++) {
        for (int i = 0; i < 4; i++) dense(t, width, width);
        norm(t, width);
        dense(t, width, 4.0 * width);
        dense(t, 4.0 * width, width);
        norm(t, width);
    }
    tensor(t, (double)width * width, 0);   /* the pooler, of one word of a sentence */
    tensor(t, width, 0);
    tensor(t, words, words * width);       /* the decoder's bias */
    dense(t, width, width);
    norm(t, width);
    tensor(t, 2.0 * width, 0);
    tensor(t, 2, 0);
}
static void bert_base(struct table *t) {
    bert(t, 12, 768);
    assert_true(t->parameters == 110106428 + 768 * 6 + 6);   /* 30,522 words are padded by six */
}
static void bert_large(struct table *t) { bert(t, 24, 1024); }

/* --------------------------------------------------------- ddl-benchmarks */

enum { SIZES = 4, NETWORKS = 3 };
static const int gpus[SIZES] = {4, 8, 16, 32};
static const char *const network[NETWORKS] = {"10GbE", "100GbE, TCP", "100Gb IB"};
/* Samples a second, by number of GPUs; of 32 ByteScheduler-A2A, and BSP-, WFBP- and ByteScheduler-PS. */
struct measured { double bsp[SIZES], wfbp[SIZES], mgwfbp[SIZES], scheduled, ps[3]; };
static const struct job {
    const char *name;
    void (*make)(struct table *t);
    int batch;
    double alone;
    struct measured of[NETWORKS];
} jobs[] = {
    {"ResNet-50", resnet50, 64, 253.1,
     {{{925.02, 1282.28, 2485.12, 4920.82}, {1015.4, 1795.74, 3146.78, 5113.18}, {1003.18, 1980.58, 3784.98, 6883.6}, 4754.26,
       {4376.578, 6945.39, 6888.995}},
      {{926, 1601.36, 3087.16, 5744.76}, {1015.1, 1985.74, 3650.74, 6141.38}, {1002.68, 1990.68, 3945.96, 7540.94}, 5104.06,
       {4355.977, 6933.738, 7982.248}},
      {{920.28, 1821.2, 3602.9, 7126.52}, {1014.28, 2017.12, 3946.06, 7326.56}, {1003.9, 2001.72, 3987.4, 7876.46}, 4766.38,
       {6587.627, 7977.785, 7999.83}}}},
    {"BERT-Base", bert_base, 64, 212.8,
     {{{555.52, 518.94, 984.88, 1926.64}, {634.1, 582.26, 1069.48, 2013.38}, {659.06, 611.44, 1153.18, 1925.78}, 2259.84,
       {2028.02, 2546.695, 2523.845}},
      {{555.36, 804.62, 1504.62, 2815.72}, {632.58, 933.2, 1671.62, 2987.48}, {658.42, 1021.4, 1880.28, 3540.8}, 3303.75,
       {3583.77, 4575.775, 4516.998}},
      {{555.7, 1082.42, 2112.96, 4184.38}, {631.8, 1195.68, 2217.22, 4098.68}, {660.42, 1235.04, 2515.3, 4940.08}, 4521.26,
       {4162.205, 4899.632, 4783.965}}}},
    {"BERT-Large", bert_large, 8, 49,
     {{{53.04, 28.96, 54.3, 105.1}, {56.04, 29.06, 53.42, 101.96}, {57.34, 30.04, 54.26, 105.02}, 108.8, {117.957, 118.36, 116.79}},
      {{52.9, 55.8, 103.34, 187}, {56, 54.82, 98.98, 174.78}, {57.54, 62.02, 107.48, 191.46}, 187.56, {117.853, 116.725, 338.123}},
      {{53.08, 99.18, 191.64, 375.22}, {56.3, 101.68, 185.42, 339.82}, {57.5, 106.78, 205.78, 400.16}, 326.4,
       {355.69, 344.022, 349.933}}}},
};
enum { JOBS = (int)(sizeof jobs / sizeof jobs[0]) };
#define LEAST_GB (8192 * sizeof(float) / 1e9)   /* what MG-WFBP always merges */

/* One message of everything takes alpha + beta M beyond a step: that is the one row. The more of it is alpha, the longer take as many
 * messages as there are tensors: that is the other. No alpha where even without it that row is not reached, *out_reached. */
static struct line fit(const struct net *net, const double *ready, double bsp, double wfbp, bool *out_reached) {
    const double beyond = greater(bsp - ready[0], 1e-6), all = sum_of(net->size, net->count);
    double low = 0, high = beyond;
    *out_reached = wait_free(net, (struct line){0, beyond / all}, ready, NULL) <= wfbp;
    for (int i = 0; i < 100 && *out_reached; i++) {
        const double alpha = (low + high) / 2;
        if (wait_free(net, (struct line){alpha, (beyond - alpha) / all}, ready, NULL) < wfbp) low = alpha;
        else high = alpha;
    }
    return (struct line){low, (beyond - low) / all};
}

/* On the engine, which the formula is to agree with. */
static double played(const struct net *net, struct line line, const double *ready, const bool *with) {
    const double end = step(net, 1, line, with, true);
    assert_near(end, wait_free(net, line, ready, with), 1e-5);
    return end;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Predicts the MG-WFBP rows of one job on one network: their errors, and those of a guess that messages take no time. */
static int predict_rows(const struct job *job, int which, double *error, double *guess) {
    struct table t = {0};
    double ready[LAYERS] = {0};
    job->make(&t);
    share_out(&t.net, job->batch / job->alone);
    ready_of(&t.net, ready);
    for (int s = 0; s < SIZES; s++) {
        const struct measured *m = &job->of[which];
        const double samples = (double)job->batch * gpus[s];
        bool reached, with[LAYERS], best[LAYERS];
        const struct line line = fit(&t.net, ready, samples / m->bsp[s], samples / m->wfbp[s], &reached);
        merged_by_rule(&t.net, line, ready, LEAST_GB, with);
        int messages = 1;
        for (int l = 1; l < t.net.count; l++) messages += !with[l];
        const double rate = samples / played(&t.net, line, ready, with);
        const double table = samples / best_by_table(&t.net, line, ready, best), ratio = rate / m->mgwfbp[s];
        error[s] = fabs(ratio - 1);
        guess[s] = fabs(gpus[s] * job->alone / m->mgwfbp[s] - 1);
        print_message("%-11s %-12s %5d %9.3f%c %9.3f %9.1f %9.1f %7.3f %9d %9.1f\n", job->name, network[which], gpus[s], 1e3 * line.alpha,
                      reached ? ' ' : '*', line.beta, m->mgwfbp[s], rate, ratio, messages, table);
    }
    return SIZES;
}

static void merged_rows_follow_from_the_others(void **state) {
    (void)state;
    enum { ROWS = JOBS * NETWORKS * SIZES };
    double error[ROWS], guess[ROWS], of_job[NETWORKS * SIZES];
    int n = 0;
    print_message("MG-WFBP, samples/s. *: no alpha is small enough for the WFBP row. best: of all ways to merge neighbours\n"
                  "%-11s %-12s %5s %10s %9s %9s %9s %7s %9s %9s\n", "", "network", "GPUs", "alpha ms", "beta ns/B", "measured", "predicted",
                  "ratio", "messages", "best");
    for (int j = 0; j < JOBS; j++) {
        const int before = n;
        for (int w = 0; w < NETWORKS; w++) n += predict_rows(&jobs[j], w, error + n, guess + n);
        memcpy(of_job, error + before, sizeof of_job);
        print_message("%s: median error %.1f %%\n", jobs[j].name, 100 * median(of_job, n - before));
        assert_true(median(of_job, n - before) <= 0.2);
    }
    const double half = median(error, n), guessed = median(guess, n);
    print_message("all %d rows: median error %.1f %%, largest %.1f %%; of a guess that messages take no time %.1f %% and %.0f %%\n", n,
                  100 * half, 100 * error[n - 1], 100 * guessed, 100 * guess[n - 1]);
    assert_true(half <= 0.2 && half < guessed);
}

/* What no row above says the costs of is not predicted; the figures stand here beside the bound that computing sets. */
static void rows_that_are_not_predicted(void **state) {
    (void)state;
    print_message("Not predicted, samples/s of 32 GPUs. ByteScheduler-A2A: all ranks agree on each partition first, which the model\n"
                  "lacks. PS: BytePS sums up the gradients of a host's four GPUs first, and servers share hosts and links with workers;\n"
                  "no row has the costs of either.\n");
    for (int j = 0; j < JOBS; j++)
        for (int w = 0; w < NETWORKS; w++) {
            const struct measured *m = &jobs[j].of[w];
            print_message("%-11s %-12s ByteScheduler-A2A %.1f, BSP-PS %.1f, WFBP-PS %.1f, ByteScheduler-PS %.1f; at most %.1f\n",
                          jobs[j].name, network[w], m->scheduled, m->ps[0], m->ps[1], m->ps[2], 32 * jobs[j].alone);
            for (int i = 0; i < 3; i++) assert_true(m->ps[i] < 32 * jobs[j].alone);
        }
}

/* ------------------------------------------------------------------ K80s */

/* GoogLeNet, images/s of one chip, by number of nodes; the first of one node (gmwfbp.py in B-Caffe's scripts). */
static const struct { const char *name; double rate[4]; } k80[] = {
    {"WFBP", {81.68, 74.83, 74.91, 62.9}}, {"MG-WFBP", {81.68, 79.02, 75.03, 75.68}}, {"one message", {81.68, 62.57, 57.67, 55.58}}};

/* A net whose messages take the log's own times. */
static bool net_of_log(const char *name, double seconds, struct net *net, struct echi_import *import) {
    const char *data = getenv("ECHELON_DATA");
    struct ech_error err;
    char file[512];
    snprintf(file, sizeof file, "%s/traces/bcaffe-googlenet/%s", data ? data : "", name);
    if (!data || access(file, R_OK) != 0) return false;
    if (echi_import_load(file, import, &err) != ECH_OK) fail_msg("%s", err.text);
    *net = (struct net){.count = import->count};
    for (int l = 0; l < net->count; l++) {
        net->backward[l] = import->layer[l].backward;
        net->size[l] = import->layer[l].comm;
    }
    net->forward[0] = seconds - sum_of(net->backward, net->count);   /* all that is not backward: forward, reading, update */
    return true;
}

/* Rates of one node's, of a step of `images`, with WFBP, by the rule, and as one message of alpha + beta M, fitted to the log. */
static void rates_of(const char *name, double images, double rate[3]) {
    static struct echi_import import;
    struct echi_alpha_betas fitted;
    struct net net = {0};
    double ready[LAYERS] = {0};
    bool all[LAYERS] = {false}, with[LAYERS];
    if (!net_of_log(name, images / k80[0].rate[0], &net, &import)) skip();
    ready_of(&net, ready);
    rate[0] = images / played(&net, (struct line){0, 1}, ready, NULL);
    assert_true(echi_import_alpha_beta(&import, &fitted));
    for (int l = 0; l < net.count; l++) {
        net.size[l] = import.layer[l].bytes / 1e9;
        all[l] = l > 0;
    }
    const struct echi_alpha_beta large = fitted.piece[fitted.pieces - 1];
    const struct line line = {large.alpha, 1e9 * large.beta};
    merged_by_rule(&net, line, ready, 0, with);
    rate[1] = images / played(&net, line, ready, with);
    rate[2] = images / played(&net, line, ready, all);
}

/* Two things are not said where the figures are: whether a rate is that of a chip (64 images a step) or of a node with two of them (128),
 * and whether the number in a log's name is of nodes or of chips. The one reading that fits all three rows within a tenth is chips, both
 * times; WFBP's rows fit the other readings too. */
static void googlenet_on_k80(void **state) {
    (void)state;
    static const struct { const char *log; int at; bool of_nodes; } reading[] = {
        {"tmp2comm.log", 1, true}, {"tmp4comm.log", 2, true}, {"tmp4comm.log", 1, false}};
    print_message("GoogLeNet, K80s, images/s: predicted, by the log's own all-reduce times, over measured\n");
    for (int chips = 1; chips <= 2; chips++)
        for (int i = 0; i < 3; i++) {
            const int at = reading[i].at;
            double rate[3];
            rates_of(reading[i].log, 64.0 * chips, rate);
            print_message("rate of %s, %s of %d %s:", chips == 1 ? "a chip" : "a node", reading[i].log, reading[i].of_nodes ? 2 * at : 4,
                          reading[i].of_nodes ? "nodes" : "chips");
            for (int k = 0; k < 3; k++)
                print_message("  %s %.2f / %.2f = %.3f", k80[k].name, rate[k], k80[k].rate[at], rate[k] / k80[k].rate[at]);
            print_message("\n");
            if (chips > 1) continue;
            for (int k = 0; k < (reading[i].of_nodes ? 1 : 3); k++) assert_true(fabs(rate[k] / k80[k].rate[at] - 1) <= 0.1);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_rows_follow_from_the_others), cmocka_unit_test(rows_that_are_not_predicted),
        cmocka_unit_test(googlenet_on_k80),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
