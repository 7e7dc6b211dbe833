/* SPDX-License-Identifier: Apache-2.0
 * The options of a run: one table that defaults, text, environment, command line and --help all come from. A new option
 * is a field at the end of struct ech_config and one line here. */
#include "echelon.h"
#include "echi_config_impl.h"
#include "echi_error.h"
#include "echi_exchange.h"
#include "echi_number.h"
#include "echi_options.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { INT, INT64, UINT32, UINT64, REAL, SWITCH, TEXT, LAYER };   /* LAYER: `separate`, a number, with `separate_from`, a name */

/* A word that stands for a number which cannot be written otherwise. */
struct word {
    const char *text;
    double value;
};
#define WORDS_MAX 2
static const struct word no_word[WORDS_MAX] = {{0}};
static const struct word auto_zero[WORDS_MAX] = {{"auto", 0}};
static const struct word auto_negative[WORDS_MAX] = {{"auto", -1}};
static const struct word off_zero[WORDS_MAX] = {{"off", 0}};
static const struct word off_negative[WORDS_MAX] = {{"off", -1}};
static const struct word separate_words[WORDS_MAX] = {{"auto", -1}, {"off", 0}};
#define SEPARATE_MAX 256   /* layers that a model may have */

struct rule {
    enum kind kind;
    size_t at, size;              /* of the field */
    double least, most;           /* of a number given as text */
    const struct word *words;
    ech_status (*fits)(const struct ech_config *config, struct ech_error *err);   /* what a range cannot say; may be NULL */
};

static ech_status sync_fits(const struct ech_config *config, struct ech_error *err);
static ech_status separate_fits(const struct ech_config *config, struct ech_error *err);
static ech_status codec_fits(const struct ech_config *config, struct ech_error *err);
static ech_status augment_fits(const struct ech_config *config, struct ech_error *err);
static ech_status shares_fit(const struct ech_config *config, struct ech_error *err);
static ech_status shards_fit(const struct ech_config *config, struct ech_error *err);
static ech_status heads_fit(const struct ech_config *config, struct ech_error *err);
static ech_status exchange_fits(const struct ech_config *config, struct ech_error *err);
static ech_status regroup_fits(const struct ech_config *config, struct ech_error *err);
static ech_status winograd_fits(const struct ech_config *config, struct ech_error *err);
static ech_status precision_fits(const struct ech_config *config, struct ech_error *err);
static ech_status activations_fit(const struct ech_config *config, struct ech_error *err);
static ech_status isa_fits(const struct ech_config *config, struct ech_error *err);
static ech_status coordinator_fits(const struct ech_config *config, struct ech_error *err);
static ech_status optimizer_fits(const struct ech_config *config, struct ech_error *err);
static ech_status schedule_word_fits(const struct ech_config *config, struct ech_error *err);
static ech_status lr_steps_fit(const struct ech_config *config, struct ech_error *err);
static ech_status launcher_fits(const struct ech_config *config, struct ech_error *err);

/* X(field, name, value, fallback, kind, least, most, words, fits, help) */
#define OPTIONS(X)                                                                                                            \
    X(rank, "rank", "R", "0", INT, 0, ECH_WORLD_MAX - 1, no_word, NULL, "number of this node; rank 0 coordinates")            \
    X(world, "world", "N", "1", INT, 1, ECH_WORLD_MAX, no_word, NULL, "number of nodes; 64 at most on machines")               \
    X(coordinator, "coordinator", "HOST:PORT", "", TEXT, 0, 0, no_word, coordinator_fits,                                     \
      "where the nodes meet; rank 0 listens there (port 0: any free one)")                                                    \
    X(bind, "bind", "ADDRESS", "", TEXT, 0, 0, no_word, NULL,                                                                 \
      "address that the other nodes listen on (when not given: that of the route to the coordinator)")                        \
    X(join_timeout, "join-timeout", "SECONDS", "60", REAL, 0.01, 86400, no_word, NULL, "how long all nodes may take to join") \
    X(sync, "sync", "POLICY", "bsp", TEXT, 0, 0, no_word, sync_fits,                                                          \
      "bsp (in step), asp (nobody waits), ssp (bounded staleness), gssp (groups of like speed), local (steps by oneself), "    \
      "auto (predicted to learn fastest)")                                                                                    \
    X(staleness, "staleness", "S", "3", INT, 0, 1000000, no_word, NULL,                                                       \
      "steps that a worker may be ahead of its group's slowest (ssp, gssp)")                                                  \
    X(groups, "groups", "G", "auto", INT, 0, ECH_GROUPS_MAX, auto_zero, NULL,                                                 \
      "number of groups (gssp); auto: by speed, as many as are predicted to be the fastest")                                  \
    X(regroup, "regroup", "WHEN", "auto", TEXT, 0, 0, no_word, regroup_fits,                                                  \
      "auto: a worker whose speed has changed for good joins another group, or gets other steps (gssp) or another share of "  \
      "rounds (bsp, --shares speed), separated layers move to another node, parts of gradients follow links and steps "       \
      "(topk), and a plan that has become clearly better is named in the log; off: never")                                    \
    X(separate, "separate", "LAYER", "auto", LAYER, 0, SEPARATE_MAX, separate_words, separate_fits,                           \
      "layers that one node trains for all: off; on: from the first fully connected one on; or from this one on, by name or number, as " \
      "`echelon model` prints them; auto (gssp, auto): from where it is predicted to be fastest, else off")                   \
    X(shadow, "shadow", NULL, "off", SWITCH, 0, 1, no_word, NULL,                                                             \
      "a second node trains the separated layers as well, and takes over when the one that does is lost")                     \
    X(heads, "heads", "N|auto", "auto", TEXT, 0, 0, no_word, heads_fit,                                                        \
      "nodes that train the separated layers together, each the rows of some workers (bsp): so many; auto: as many as pay, mostly one")  \
    X(shares, "shares", "SHARES", "speed", TEXT, 0, 0, no_word, shares_fit,                                                   \
      "how bsp divides a round: speed, equal, or samples of each rank as in 24,24,12,4")                                      \
    X(batch, "batch", "B", "auto", INT, 0, 65536, auto_zero, NULL,                                                            \
      "samples of a round, divisor of every gradient; auto: 64, or 16 a node when that is more and not deterministic")        \
    X(samples_per_step, "samples-per-step", "SAMPLES", "auto", INT, 0, 65536, auto_zero, NULL,                                \
      "samples of one worker's step (asp, ssp, gssp, local)")                                                                 \
    X(lr, "lr", "RATE", "auto", REAL, 0, 1000, auto_negative, NULL, "learning rate; auto: the model's, of adam 0.001")        \
    X(momentum, "momentum", "M", "auto", REAL, 0, 0.999, auto_negative, NULL, "momentum of SGD; auto: the model's")           \
    X(weight_decay, "weight-decay", "W", "auto", REAL, 0, 1, auto_negative, NULL, "weight decay; auto: the model's")          \
    X(epochs, "epochs", "E", "10", REAL, 0, 1000000, no_word, NULL, "ends the run after so many passes over the data")        \
    X(steps, "steps", "ROUNDS", "off", INT64, 0, 1e15, off_negative, NULL,                                                    \
      "ends the run after so many rounds of B samples; 0: nodes join, measure, plan and predict, and train nothing")          \
    X(target_accuracy, "target-accuracy", "A", "off", REAL, 0, 1, off_zero, NULL,                                             \
      "ends the run at an evaluation that finds this accuracy (0.985); ending without it is a failure")                              \
    X(eval_every, "eval-every", "SAMPLES", "3000", UINT32, 0, UINT32_MAX, no_word, NULL,                                      \
      "training samples between evaluations; 0: one evaluation at the end")                                               \
    X(seed, "seed", "S", "1", UINT64, 0, DBL_MAX, no_word, NULL,                                                              \
      "of initial weights, order of samples, augmentation and glyphs")                                                        \
    X(no_shuffle, "no-shuffle", NULL, "off", SWITCH, 0, 1, no_word, NULL, "take samples in the order of the file")            \
    X(augment, "augment", "HOW", "auto", TEXT, 0, 0, no_word, augment_fits,                                                   \
      "off, or crop-flip: training samples shifted by up to 4 pixels and mirrored at random; auto: crop-flip for CIFAR-10")  \
    X(threads, "threads", "T", "auto", INT, 0, 1024, auto_zero, NULL,                                                         \
      "threads of computation on this node; auto: its processors, or what is granted of them, "                               \
      "divided among the nodes of a run on one machine")                                                                      \
    X(device, "device", "DEVICE", "cpu", TEXT, 0, 0, no_word, NULL,                                                              \
      "where this node computes: cpu; cuda or cuda:1, a card of NVIDIA's; opencl or opencl:1, a device of OpenCL; auto, the fastest " \
      "of the GPUs that compute rightly and cpu")                                                                               \
    X(slow, "slow", "FACTOR", "1", REAL, 1, 1000, no_word, NULL,                                                              \
      "this node computes so many times slower, by sleeping (to try unlike nodes on one machine)")                            \
    X(deadline, "deadline", "SECONDS", "10", REAL, 0.01, 86400, no_word, NULL,                                                \
      "a node without a word for so long is lost; a prompt one sooner, after two fifths of it at least")                        \
    X(init, "init", "FILE", "", TEXT, 0, 0, no_word, NULL, "initial weights (safetensors, PyTorch's too); rank 0 reads it")              \
    X(save, "save", "FILE", "", TEXT, 0, 0, no_word, NULL, "where rank 0 writes the trained weights (safetensors)")           \
    X(report, "report", "FILE", "", TEXT, 0, 0, no_word, NULL, "where rank 0 writes what the run did (JSON)")                 \
    X(checkpoint, "checkpoint", "DIR", "", TEXT, 0, 0, no_word, NULL,                                                         \
      "folder where rank 0 keeps checkpoints: weights, momentum, and where the run stands")                                   \
    X(every, "every", "ROUNDS", "1000", INT64, 0, 1e15, no_word, NULL,                                                        \
      "rounds between checkpoints; 0: only when the run ends or is stopped")                                                  \
    X(keep, "keep", "K", "3", INT, 1, 1000000, no_word, NULL, "how many checkpoints are kept, the last ones")                 \
    X(resume, "resume", NULL, "off", SWITCH, 0, 1, no_word, NULL,                                                             \
      "go on from the last whole checkpoint; begin at the beginning when there is none yet")                                  \
    X(plan, "plan", "FILE", "", TEXT, 0, 0, no_word, NULL, "plan to follow instead of making one")                            \
    X(save_plan, "save-plan", "FILE", "", TEXT, 0, 0, no_word, NULL, "where rank 0 writes the plan")                       \
    X(deterministic, "deterministic", NULL, "off", SWITCH, 0, 1, no_word, NULL,                                               \
      "bsp only: the same trained weights, bit for bit, whatever the number of nodes, their shares and their processors")    \
    X(sync_norm, "sync-norm", NULL, "off", SWITCH, 0, 1, no_word, NULL,                                                       \
      "bsp only: batch-norm takes its statistics over the whole round, whoever has the samples, as one node would")           \
    X(winograd, "winograd", "M", "4", INT, 0, 4, off_zero, winograd_fits,                                                       \
      "3 x 3 convolutions by F(M x M, 3 x 3): 4 fastest, rounds some four times coarser than plain sums; 2 as they do; off: plain sums") \
    X(precision, "precision", "FORMAT", "fp32", TEXT, 0, 0, no_word, precision_fits,                                           \
      "of what convolutions and fc layers multiply: fp32; or, summed in fp32, bf16, eight bits, where the processor has AVX512-BF16 or " \
      "AMX-BF16, or on an NVIDIA card since 8.0, or tf32, eleven bits, on such a card, and fp32 elsewhere") \
    X(key, "key", "FILE", "", TEXT, 0, 0, no_word, NULL,                                                                     \
      "the run's key, 16 random bytes or more, the same on all nodes: others cannot join, nor change what is sent")          \
    X(insecure, "insecure", NULL, "off", SWITCH, 0, 1, no_word, NULL,                                                        \
      "without a key, meet beyond this machine and with other users of it: whoever reaches the network may join and change the run") \
    X(record, "record", "DIR", "", TEXT, 0, 0, no_word, NULL,                                                                 \
      "where each node writes what its roles are told (rank0.events, ...), for `echelon replay`")                             \
    X(profile_out, "profile-out", "FILE", "", TEXT, 0, 0, no_word, NULL,                                                      \
      "where rank 0 writes what arithmetic costs it, for `echelon sim --profile`")                                           \
    X(efficiency, "efficiency", "FILE", "", TEXT, 0, 0, no_word, NULL,                                                        \
      "loss curves of runs, by which plans know what staleness costs this model; rank 0 reads them, and adds this run's")     \
    X(codec, "codec", "CODEC", "dense", TEXT, 0, 0, no_word, codec_fits,                                                      \
      "how changes travel: dense, or topk:paper, topk:volume, topk:balanced: the largest now, the rest later (topk: balanced)") \
    X(link, "link", "MBITS", "auto", REAL, 0, 1e6, auto_zero, NULL,                                                           \
      "megabits a second of this node's link, which predictions and topk go by; auto: measured when all have joined") \
    X(inner_steps, "inner-steps", "H", "16", INT, 1, 10000, no_word, NULL,                                                    \
      "steps of a worker by itself in a round, in the mean over all; each has them by its speed (local)")                     \
    X(outer_lr, "outer-lr", "RATE", "0.7", REAL, 0, 1000, no_word, NULL, "learning rate of the step by a round's change (local)") \
    X(outer_momentum, "outer-momentum", "M", "0.9", REAL, 0, 0.999, no_word, NULL, "Nesterov momentum of that step (local)") \
    X(cache, "cache", "DIR", "", TEXT, 0, 0, no_word, NULL, "where kernels compiled here for a GPU are kept from run to run")       \
    X(drop_older, "drop-older", "ROUNDS", "off", REAL, 0, 100000, off_zero, NULL,                                             \
      "gradients that are staler are dropped, and their samples issued again (asp)")                                          \
    X(weigh_by_time, "weigh-by-time", NULL, "off", SWITCH, 0, 1, no_word, NULL,                                               \
      "gradients count in proportion to the time that a step takes on their node (asp)")     \
    X(rounds_apart, "rounds-apart", "R", "4", INT, 1, 1000000, no_word, NULL,                                                  \
      "rounds that a group may run ahead of what the others have (gssp)")                                                     \
    X(damping, "damping", "C", "off", REAL, 0, 1000, off_zero, NULL,                                                           \
      "a push that is T rounds stale weighs 1 / (1 + C T) (asp, ssp, gssp); off: always 1")                                   \
    X(optimizer, "optimizer", "RULE", "sgd", TEXT, 0, 0, no_word, optimizer_fits,                                              \
      "sgd, nesterov (with Nesterov's momentum), adam, or adamw")                                                             \
    X(schedule, "schedule", "SHAPE", "constant", TEXT, 0, 0, no_word, schedule_word_fits,                                      \
      "of the learning rate: constant, step (see lr-steps), or cosine, down to 0 at the end of the run")                      \
    X(warmup, "warmup", "EPOCHS", "0", REAL, 0, 999999, no_word, NULL, "first the learning rate rises in a straight line from 0") \
    X(lr_steps, "lr-steps", "EPOCHS", "", TEXT, 0, 0, no_word, lr_steps_fit,                                                   \
      "places at which schedule step multiplies the learning rate by lr-factor, as in 30,60,80")                              \
    X(lr_factor, "lr-factor", "F", "0.1", REAL, 1e-9, 1, no_word, NULL, "what schedule step multiplies the learning rate by")  \
    X(beta1, "beta1", "B", "0.9", REAL, 0, ECHI_BETA_MAX, no_word, NULL, "decay of the gradients' mean in a round (adam, adamw)") \
    X(beta2, "beta2", "B", "0.999", REAL, 0, ECHI_BETA_MAX, no_word, NULL, "decay of their squares' mean in a round (adam, adamw)") \
    X(epsilon, "epsilon", "E", "1e-8", REAL, ECHI_EPSILON_MIN, 1, no_word, NULL,                                               \
      "added to the root of that mean, by which the step is divided (adam, adamw)")                                            \
    X(isa, "isa", "SET", "auto", TEXT, 0, 0, no_word, isa_fits,                                                                \
      "instructions that this node computes with: base (SSE2, NEON, or none but C's), avx2, avx512; auto: the most that it has") \
    X(local_rank, "local-rank", "R", "0", INT, 0, ECH_WORLD_MAX - 1, no_word, NULL,                                            \
      "number of this node among those on its machine: it gets that GPU where --device cuda or opencl has no number")          \
    X(local_world, "local-world", "N", "auto", INT, 0, ECH_WORLD_MAX, auto_zero, NULL,                                         \
      "nodes of the run on this machine, which share its processors; auto: all if they meet at a loopback address, else 1")    \
    X(launcher, "launcher", "WHEN", "auto", TEXT, 0, 0, no_word, launcher_fits,                                                \
      "auto: rank, world and coordinator come from torchrun, Open MPI, PMI or Slurm if nobody gives them; off: never")       \
    X(measure, "measure", "SECONDS", "0.4", REAL, 0.001, 60, no_word, NULL,                                                    \
      "how long, about, this node measures its steps before the run; shorter: the plan goes by noisier times")               \
    X(shards, "shards", "N|RANKS|auto", "auto", TEXT, 0, 0, no_word, shards_fit,                                               \
      "nodes that own the parameters together, each some of them: so many, or these, as in 0,2,3 (bsp); auto: as many as pay, one under " \
      "other policies. Where rank 0 is one of them and trains, the others may be lost")                                        \
    X(exchange, "exchange", "WAY", "auto", TEXT, 0, 0, no_word, exchange_fits,                                                 \
      "how gradients are summed, weights given out (bsp): server: by their owners; ring: from worker to worker; auto: ring, if as fast") \
    X(activations, "activations", "FORMAT", "fp32", TEXT, 0, 0, no_word, activations_fit,                                      \
      "of what nodes send to who trains the separated layers, and of what comes back: fp32; bf16: rounded, half of the bytes")  \
    X(micro_batches, "micro-batches", "N|auto", "auto", INT64, 0, ECHI_MICRO_MAX, auto_zero, NULL,                              \
      "micro-batches into which a node cuts its step, so that the separated layers are trained while it computes (bsp); auto: as many as " \
      "are predicted to be the fastest")

#define PUBLIC_ROW(field, name, value, fallback, kind, least, most, words, fits, help) {name, value, fallback, help},
#define RULE_ROW(field, name, value, fallback, kind, least, most, words, fits, help)                                          \
    {kind, offsetof(struct ech_config, field), sizeof ((struct ech_config *)0)->field, least, most, words, fits},
static const struct ech_option options[] = {OPTIONS(PUBLIC_ROW)};
static const struct rule rules[] = {OPTIONS(RULE_ROW)};
enum { N_OPTIONS = (int)(sizeof options / sizeof options[0]) };

const struct ech_option *ech_options(int *out_count) {
    if (out_count) *out_count = N_OPTIONS;
    return options;
}

/* ---------------------------------------------------------- the struct */

/* Of the first header whose size an archive other than its own takes. A field may only begin where no older struct had bytes, so none may
 * end with padding. */
enum { FIRST_SIZE = (int)offsetof(struct ech_config, local_rank), SIZE_MAX_SANE = 1 << 20 };
_Static_assert(offsetof(struct ech_config, activations) + sizeof ((struct ech_config *)0)->activations == sizeof(struct ech_config),
               "struct ech_config ends with padding: fill it with a field");
_Static_assert(FIRST_SIZE % _Alignof(struct ech_config) == 0, "the first struct ended with padding");
_Static_assert(sizeof(void *) != 8 || FIRST_SIZE == 11648, "a field stands among those of the first struct: it belongs at the end");

void echi_config_give_back(struct ech_config *config, const struct ech_config *whole) {
    const size_t size = config->size;
    memcpy(config, whole, size < sizeof *whole ? size : sizeof *whole);
    config->size = size;
}

ech_status echi_config_whole(const struct ech_config *config, struct ech_config *out, struct ech_error *err) {
    const size_t size = config->size;
    if (size < FIRST_SIZE || size > SIZE_MAX_SANE)
        return echi_refuse(err, "config.size is %zu, which is no version's (this one's is %zu, of %s): call ech_config_init first", size,
                           sizeof *config, ECH_VERSION);
    for (size_t i = sizeof *out; i < size; i++)
        if (((const unsigned char *)config)[i])
            return echi_refuse(err,
                               "config.size is %zu, and a field behind the %zu bytes that %s knows is set: link with the archive of that "
                               "header, or leave the field as ech_config_init sets it", size, sizeof *out, ECH_VERSION);
    if (size < sizeof *out) ech_config_init(out);
    memcpy(out, config, size < sizeof *out ? size : sizeof *out);
    out->size = sizeof *out;
    return ECH_OK;
}

static int find(const char *name) {
    for (int i = 0; i < N_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0) return i;
    return -1;
}

/* ------------------------------------------------------------- fields */

static double number_of(const struct ech_config *config, const struct rule *rule) {
    const void *field = (const char *)config + rule->at;
    switch (rule->kind) {
    case INT:
    case LAYER:
    case SWITCH: return *(const int *)field;
    case INT64: return (double)*(const int64_t *)field;
    case UINT32: return *(const uint32_t *)field;
    case UINT64: return (double)*(const uint64_t *)field;
    case REAL: return *(const double *)field;
    case TEXT: break;
    }
    return 0;
}

/* `value` is in the field's range, or what one of its words stands for. */
static void put_number(struct ech_config *config, const struct rule *rule, double value) {
    void *field = (char *)config + rule->at;
    switch (rule->kind) {
    case INT:
    case LAYER:
    case SWITCH: *(int *)field = (int)value; break;
    case INT64: *(int64_t *)field = (int64_t)value; break;
    case UINT32: *(uint32_t *)field = (uint32_t)value; break;
    case REAL: *(double *)field = value; break;
    case UINT64:   /* has no range and no words: see put_text */
    case TEXT: break;
    }
}

/* What option i takes, for the end of a sentence: "a whole number from 0 to 8, or 'auto'". */
static const char *allowed(int i, char *buf, size_t cap) {
    const struct rule *rule = &rules[i];
    const struct word *w = rule->words;
    if (rule->kind == SWITCH) snprintf(buf, cap, "'on' or 'off'");
    else if (rule->kind == LAYER)
        snprintf(buf, cap, "'auto', 'off', 'on', or the layer that the head begins with, by name or by number from 2 to %d, as in fc2",
                 SEPARATE_MAX);
    else if (rule->kind == UINT64) snprintf(buf, cap, "a whole number from 0 to %llu", (unsigned long long)UINT64_MAX);
    else
        snprintf(buf, cap, "a %snumber from %.15g to %.15g%s%s%s%s%s%s", rule->kind == REAL ? "" : "whole ", rule->least,
                 rule->most, w[0].text ? ", or '" : "", w[0].text ? w[0].text : "", w[0].text ? "'" : "",
                 w[1].text ? ", or '" : "", w[1].text ? w[1].text : "", w[1].text ? "'" : "");
    return buf;
}

static bool is_digits(const char *text) { return *text && !text[strspn(text, "0123456789")]; }

/* Of a layer: letters, digits and underscores, the first no digit. */
static bool is_name(const char *text) {
    return *text && !strchr("0123456789", *text) && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

/* Writes `text` into the field of option i, or returns false when it is none of what `allowed` says. */
static bool put_text(struct ech_config *config, int i, const char *text) {
    const struct rule *rule = &rules[i];
    if (rule->kind == LAYER) memset(config->separate_from, 0, sizeof config->separate_from);
    for (int w = 0; w < WORDS_MAX && rule->words[w].text; w++) {
        if (strcmp(rule->words[w].text, text) != 0) continue;
        put_number(config, rule, rule->words[w].value);
        return true;
    }
    double value;
    if (rule->kind == SWITCH) {
        bool on = strcmp(text, "on") == 0 || strcmp(text, "1") == 0;
        if (!on && strcmp(text, "off") != 0 && strcmp(text, "0") != 0) return false;
        value = on;
    } else if (rule->kind == LAYER && !is_digits(text)) {
        const bool on = strcmp(text, "on") == 0;
        if (!on && (!is_name(text) || strlen(text) >= sizeof config->separate_from)) return false;
        strcpy(config->separate_from, on ? "" : text);
        value = 1;
    } else if (rule->kind == UINT64) {
        if (!is_digits(text)) return false;
        errno = 0;
        unsigned long long whole = strtoull(text, NULL, 10);
        if (errno) return false;
        *(uint64_t *)(void *)((char *)config + rule->at) = whole;
        return true;
    } else if ((rule->kind != REAL && !is_digits(text)) || !echi_parse_real(text, &value)) return false;
    if (value < rule->least || value > rule->most) return false;
    put_number(config, rule, value);
    return true;
}

ech_status echi_config_field_fits(const struct ech_config *config, int i, struct ech_error *err) {
    const struct rule *rule = &rules[i];
    char what[160];
    if (rule->kind == TEXT) {
        if (!memchr((const char *)config + rule->at, 0, rule->size))
            return echi_refuse(err, "option %s has no end: give at most %zu bytes and a final NUL", options[i].name, rule->size - 1);
    } else if (rule->kind != UINT64) {
        double value = number_of(config, rule);
        bool fits = isfinite(value) && value >= rule->least && value <= rule->most;
        for (int w = 0; w < WORDS_MAX && rule->words[w].text; w++)
            fits = fits || (rule->words[w].value < 0 && value < 0);   /* any negative number says "not given" */
        if (!fits) return echi_refuse(err, "option %s is %g: give %s", options[i].name, value, allowed(i, what, sizeof what));
    }
    return rule->fits ? rule->fits(config, err) : ECH_OK;
}

/* ---------------------------------------------- what a range cannot say */

static ech_status sync_fits(const struct ech_config *config, struct ech_error *err) {
    static const char *const known[] = {"bsp", "asp", "ssp", "gssp", "local", "auto"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(config->sync, known[i]) == 0) return ECH_OK;
    return echi_refuse(err, "option sync is '%s': give bsp, asp, ssp, gssp, local or auto", config->sync);
}

/* A program may set one field and not the other. Which layers there are only the model tells (lib/exec/job_cut.c). */
static ech_status separate_fits(const struct ech_config *config, struct ech_error *err) {
    if (!memchr(config->separate_from, 0, sizeof config->separate_from))
        return echi_refuse(err, "separate_from has no end: give at most %zu bytes and a final NUL", sizeof config->separate_from - 1);
    if (config->separate == 1 || !config->separate_from[0]) return ECH_OK;
    return echi_refuse(err, "separate_from is %s, and separate is %d: give 1 with it", config->separate_from, config->separate);
}

static ech_status regroup_fits(const struct ech_config *config, struct ech_error *err) {
    if (strcmp(config->regroup, "auto") == 0 || strcmp(config->regroup, "off") == 0) return ECH_OK;
    return echi_refuse(err, "option regroup is '%s': give auto or off", config->regroup);
}

static ech_status heads_fit(const struct ech_config *config, struct ech_error *err) {
    const char *text = config->heads;
    if (strcmp(text, "auto") == 0 || (text[0] >= '1' && text[0] <= '0' + ECHI_HEADS_MAX && text[1] == 0)) return ECH_OK;
    return echi_refuse(err, "option heads is '%s': give a number of nodes, from 1 to %d, or auto", text, ECHI_HEADS_MAX);
}

static ech_status launcher_fits(const struct ech_config *config, struct ech_error *err) {
    if (strcmp(config->launcher, "auto") == 0 || strcmp(config->launcher, "off") == 0) return ECH_OK;
    return echi_refuse(err, "option launcher is '%s': give auto or off", config->launcher);
}

static ech_status winograd_fits(const struct ech_config *config, struct ech_error *err) {
    if (config->winograd == 0 || config->winograd == 2 || config->winograd == 4) return ECH_OK;
    return echi_refuse(err, "option winograd is %d: give 4, 2 or off", config->winograd);
}

static bool on_processor(const struct ech_config *config) { return strncmp(config->device, "cpu", 3) == 0; }

static ech_status precision_fits(const struct ech_config *config, struct ech_error *err) {
    if (strcmp(config->precision, "fp32") == 0) return ECH_OK;
    const bool bf16 = strcmp(config->precision, "bf16") == 0;
    if (!bf16 && strcmp(config->precision, "tf32") != 0)
        return echi_refuse(err, "option precision is '%s': give fp32, tf32 or bf16", config->precision);
    if (config->deterministic)
        return echi_refuse(err, "option precision is %s, but deterministic computes the same on every processor: leave one of them out",
                           config->precision);
    if (!bf16 || !on_processor(config) || *echi_cpu_bf16_lacks() == '\0') return ECH_OK;   /* others are asked when they are opened */
    return echi_fail(err, ECH_E_UNSUPPORTED, "config",
                     "option precision is bf16, but this processor lacks %s: leave it out on all nodes, or leave this node out",
                     echi_cpu_bf16_lacks());
}

static ech_status activations_fit(const struct ech_config *config, struct ech_error *err) {
    if (strcmp(config->activations, "fp32") == 0 || strcmp(config->activations, "bf16") == 0) return ECH_OK;
    return echi_refuse(err, "option activations is '%s': give fp32 or bf16", config->activations);
}

static ech_status isa_fits(const struct ech_config *config, struct ech_error *err) {
    enum echi_cpu_level level;
    if (strcmp(config->isa, "auto") == 0) return ECH_OK;
    if (!echi_cpu_level_named(config->isa, &level))
        return echi_refuse(err, "option isa is '%s': give auto, base, avx2 or avx512", config->isa);
    if (level > echi_cpu_level())
        return echi_fail(err, ECH_E_UNSUPPORTED, "config", "option isa is %s, but this processor has no more than %s: give that, or auto",
                         config->isa, echi_cpu_level_name(echi_cpu_level()));
    if (level < ECHI_CPU_AVX512 && strcmp(config->precision, "bf16") == 0 && on_processor(config))
        return echi_refuse(err, "option isa is %s, but precision bf16 needs avx512: leave one of them out", config->isa);
    return ECH_OK;
}

static ech_status codec_fits(const struct ech_config *config, struct ech_error *err) {
    static const char *const known[] = {"dense", "topk", "topk:paper", "topk:volume", "topk:balanced"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(config->codec, known[i]) == 0) return ECH_OK;
    return echi_refuse(err, "option codec is '%s': give dense, topk, topk:paper, topk:volume or topk:balanced", config->codec);
}

static ech_status optimizer_fits(const struct ech_config *config, struct ech_error *err) {
    for (int i = 0; i < ECHI_OPTIMIZERS; i++)
        if (strcmp(config->optimizer, echi_optimizer_name(i)) == 0) return ECH_OK;
    return echi_refuse(err, "option optimizer is '%s': give sgd, nesterov, adam or adamw", config->optimizer);
}

static ech_status schedule_word_fits(const struct ech_config *config, struct ech_error *err) {
    for (int i = 0; i < ECHI_SCHEDULES; i++)
        if (strcmp(config->schedule, echi_schedule_name(i)) == 0) return ECH_OK;
    return echi_refuse(err, "option schedule is '%s': give constant, step or cosine", config->schedule);
}

static ech_status lr_steps_fit(const struct ech_config *config, struct ech_error *err) {
    struct echi_schedule s = {.kind = ECHI_SCHEDULE_STEP, .factor = 1};
    if (!*config->lr_steps) return ECH_OK;
    s.steps = (uint8_t)echi_parse_reals(config->lr_steps, s.step, ECHI_LR_STEPS_MAX);
    if (echi_schedule_valid(&s)) return ECH_OK;
    return echi_refuse(err,
                       "option lr-steps is '%.80s': give up to %d ascending numbers of epochs above 0, as in 30,60,80", config->lr_steps,
                       ECHI_LR_STEPS_MAX);
}

static ech_status augment_fits(const struct ech_config *config, struct ech_error *err) {
    static const char *const known[] = {"auto", "off", "crop-flip"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(config->augment, known[i]) == 0) return ECH_OK;
    return echi_refuse(err, "option augment is '%s': give off, crop-flip or auto", config->augment);
}

static ech_status coordinator_fits(const struct ech_config *config, struct ech_error *err) {
    const char *text = config->coordinator, *colon = strrchr(text, ':');
    if (!*text) return ECH_OK;
    bool port = colon && is_digits(colon + 1) && strlen(colon + 1) <= 5 && atoi(colon + 1) <= 65535;
    bool host = colon && colon > text && (text[0] == '[' ? colon[-1] == ']' : strchr(text, ':') == colon);
    if (port && host) return ECH_OK;
    return echi_refuse(err, "option coordinator is '%.80s': give HOST:PORT with a port from 0 to 65535, as in 10.0.0.1:7000 or [::1]:7000",
                       text);
}

int echi_share_list(const char *text, long *out_sum) {
    int n = 0;
    *out_sum = 0;
    for (const char *at = text;; at++) {
        size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 6) return 0;
        *out_sum += strtol(at, NULL, 10);
        n++;
        at += digits;
        if (!*at) return n;
        if (*at != ',') return 0;
    }
}

int echi_shard_list(const char *text, long out_number[ECHI_SHARDS_MAX]) {
    int n = 0;
    if (strcmp(text, "auto") == 0) return 0;
    for (const char *at = text;; at++) {
        const size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 4 || n == ECHI_SHARDS_MAX) return -1;
        out_number[n++] = strtol(at, NULL, 10);
        at += digits;
        if (!*at) return n;
        if (*at != ',') return -1;
    }
}

static ech_status exchange_fits(const struct ech_config *config, struct ech_error *err) {
    if (strcmp(config->exchange, "auto") == 0) return ECH_OK;
    for (int i = 0; i < ECHI_EXCHANGES; i++)
        if (strcmp(config->exchange, echi_exchange_name((enum echi_exchange)i)) == 0) return ECH_OK;
    return echi_refuse(err, "option exchange is '%.80s': give auto, server or ring", config->exchange);
}

static ech_status shards_fit(const struct ech_config *config, struct ech_error *err) {
    long number[ECHI_SHARDS_MAX];
    const int n = echi_shard_list(config->shards, number);
    if (n < 0 || (n == 1 && number[0] < 1))
        return echi_refuse(err,
                           "option shards is '%.80s': give a number of nodes, from 1 to %d, a list of their ranks, as in 0,2,3, or auto",
                           config->shards, ECHI_SHARDS_MAX);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (number[i] == number[k])
                return echi_refuse(err, "option shards is '%.80s', which names rank %ld twice", config->shards, number[i]);
    return ECH_OK;
}

static ech_status shares_fit(const struct ech_config *config, struct ech_error *err) {
    long sum;
    if (strcmp(config->shares, "speed") == 0 || strcmp(config->shares, "equal") == 0) return ECH_OK;
    if (echi_share_list(config->shares, &sum) > 0) return ECH_OK;
    return echi_refuse(err, "option shares is '%.80s': give speed, equal, or a list with the samples of each rank, as in 24,24,12,4",
                       config->shares);
}

/* ------------------------------------------------------------- the calls */

ech_status ech_config_set(struct ech_config *config, const char *name, const char *value, struct ech_error *err) {
    if (!config || !name) return echi_refuse(err, "ech_config_set needs a config and the name of an option");
    int i = find(name);
    if (i < 0) return echi_refuse(err, "there is no option '%.60s'; `echelon train --help` lists them", name);
    char what[160];
    if (!value) {
        if (rules[i].kind != SWITCH)
            return echi_refuse(err, "option %s needs a value %s: %s", name, options[i].value, options[i].help);
        value = "on";
    }
    struct ech_config next;   /* so that a refused value leaves nothing behind */
    ECHI_TRY(echi_config_whole(config, &next, err));
    if (rules[i].at >= config->size)
        return echi_fail(err, ECH_E_UNSUPPORTED, "config",
                         "option %s is newer than the header that this program was compiled with: compile it anew, or leave it out", name);
    if (rules[i].kind == TEXT) {
        if (strlen(value) >= rules[i].size)
            return echi_refuse(err, "option %s is longer than the %zu bytes it may have", name, rules[i].size - 1);
        strcpy((char *)&next + rules[i].at, value);
    } else if (!put_text(&next, i, value))
        return echi_refuse(err, "option %s is '%.60s': give %s", name, value, allowed(i, what, sizeof what));
    ECHI_TRY(echi_config_field_fits(&next, i, err));
    if (next.separate_from[0] && config->size < sizeof next)
        return echi_fail(err, ECH_E_UNSUPPORTED, "config", "option separate is %s, but names of layers are newer than the header that this "
                         "program was compiled with: compile it anew, or give the layer's number", value);
    echi_config_give_back(config, &next);
    return ECH_OK;
}

void ech_config_init_sized(struct ech_config *config, size_t size) {
    if (!config || size < sizeof config->size) return;
    struct ech_config whole = {.size = sizeof whole};
    for (int i = 0; i < N_OPTIONS; i++) (void)ech_config_set(&whole, options[i].name, options[i].fallback, NULL);
    memset(config, 0, size);
    config->size = size;
    echi_config_give_back(config, &whole);
}
