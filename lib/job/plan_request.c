/* SPDX-License-Identifier: Apache-2.0
 * Options made numbers for the planner and the coordinator. */
#include "echi_options.h"
#include "echi_plan_file.h"
#include "echi_ratio.h"
#include "echi_error.h"
#include "echi_exchange.h"
#include "echi_number.h"

#include <stdlib.h>
#include <string.h>

/* Learning rates that were tried: LeNet-5 on MNIST, batch 64, momentum 0.9, reaches 98.5 % in 2 to 3 epochs with 0.01 to 0.02. At 0.05
 * it needs 2 to 5, and one of two seeds stays under 98.7 %. */
#define LENET5_LR 0.02
#define OTHER_LR 0.01
#define MOMENTUM 0.9
#define ADAM_LR 0.001   /* PyTorch's, and the paper's */

static ech_status parse_shares(const char *text, int world, uint32_t *out, struct ech_error *err) {
    const char *at = text;
    for (int r = 0; r < world; r++) {
        char *end;
        unsigned long value = strtoul(at, &end, 10);
        if (end == at || value > 1u << 20 || *end != (r + 1 < world ? ',' : 0))
            return echi_fail(err, ECH_E_ARGUMENT, "run.shares", "--shares '%s' is not a list of %d numbers of samples, as in 24,24,12,4",
                             text, world);
        out[r] = (uint32_t)value;
        at = end + 1;
    }
    return ECH_OK;
}

/* "dense", "topk", "topk:paper": what config.c has let through. */
static void parse_codec(const char *text, struct echi_plan_request *w) {
    w->codec = strcmp(text, "dense") == 0 ? ECHI_CODEC_DENSE : ECHI_CODEC_TOPK;
    w->ratios = ECHI_RATIOS_BALANCED;
    for (int i = 0; i < ECHI_RATIOS; i++)
        if (strncmp(text, "topk:", 5) == 0 && strcmp(text + 5, echi_ratios_name((enum echi_ratios)i)) == 0) w->ratios = (enum echi_ratios)i;
}

/* Samples after which a run ends. */
static uint64_t samples_of(const struct ech_config *c, const struct echi_job *job, uint32_t batch) {
    return c->steps >= 0 ? (uint64_t)c->steps * batch : (uint64_t)(c->epochs * job->train_samples + 0.5);
}

/* What config.c has let through. */
static ech_status parse_schedule(const struct ech_config *c, const struct echi_job *job, struct echi_plan_request *w,
                                 struct ech_error *err) {
    struct echi_schedule *s = &w->schedule;
    for (int i = 0; i < ECHI_SCHEDULES; i++)
        if (strcmp(c->schedule, echi_schedule_name(i)) == 0) s->kind = (uint8_t)i;
    s->warmup = c->warmup;
    if (s->kind == ECHI_SCHEDULE_STEP) {
        s->factor = c->lr_factor;
        s->steps = (uint8_t)echi_parse_reals(c->lr_steps, s->step, ECHI_LR_STEPS_MAX);
    }
    if (s->kind != ECHI_SCHEDULE_COSINE) return ECH_OK;
    s->epochs = (double)samples_of(c, job, echi_plan_request_round(w)) / job->train_samples;
    if (s->epochs >= ECHI_EPOCHS_MAX) s->epochs = ECHI_EPOCHS_MAX - 1;   /* nobody will see its end */
    if (s->epochs > 0 && s->warmup >= s->epochs)
        return echi_fail(err, ECH_E_ARGUMENT, "run.schedule",
                         "--warmup %g is as long as the run, which ends after %g epochs: nothing is left for --schedule cosine; "
                         "give a shorter one", s->warmup, s->epochs);
    return ECH_OK;
}

enum echi_cpu_level echi_config_level(const struct ech_config *config) {
    enum echi_cpu_level level = echi_cpu_level();
    echi_cpu_level_named(config->isa, &level);   /* of auto it makes nothing */
    return level;
}

ech_status echi_plan_request_from(const struct ech_config *c, const struct echi_job *job, struct echi_plan_request *w,
                                  struct ech_error *err) {
    memset(w, 0, sizeof *w);
    w->world = c->world;
    w->choose = strcmp(c->sync, "auto") == 0;
    w->sync = w->choose ? ECHI_SYNC_BSP : ECHI_SYNCS;   /* the first to be tried */
    for (int s = 0; s < ECHI_SYNCS; s++)
        if (strcmp(c->sync, echi_policy_of((enum echi_sync)s)->name) == 0) w->sync = (enum echi_sync)s;
    if (w->sync == ECHI_SYNCS)
        return echi_fail(err, ECH_E_ARGUMENT, "run.sync", "--sync '%s' is none of bsp, asp, ssp, gssp, local, auto", c->sync);
    w->separate = job->model || echi_job_widest(job) > 0 ? (c->separate > 0 ? 1 : c->separate) : 0;
    w->shadow = c->shadow;
    w->micro_batches = (int)c->micro_batches;
    w->heads = strcmp(c->heads, "auto") == 0 ? 0 : c->heads[0] - '0';
    w->activations = strcmp(c->activations, "bf16") == 0 ? ECHI_ACTIVATIONS_BF16 : ECHI_ACTIVATIONS_FP32;
    w->one_flight = job->session;
    w->groups = c->groups;
    w->regroup_after = strcmp(c->regroup, "auto") == 0 ? ECHI_REGROUP_AFTER : 0;
    w->ratios_after = w->regroup_after > 0 ? ECHI_RATIOS_AFTER : 0;
    w->batch = (uint32_t)c->batch;
    w->samples_per_step = (uint32_t)c->samples_per_step;
    w->staleness = (uint32_t)c->staleness;
    w->rounds_apart = (uint32_t)c->rounds_apart;
    w->damping = c->damping;
    w->lr_given = c->lr >= 0;
    w->momentum_given = c->momentum >= 0;
    for (int i = 0; i < ECHI_OPTIMIZERS; i++)
        if (strcmp(c->optimizer, echi_optimizer_name(i)) == 0) w->optimizer = (enum echi_optimizer)i;
    const bool adam = echi_optimizer_adam((int)w->optimizer);
    if (adam) w->adam = (struct echi_adam){c->beta1, c->beta2, c->epsilon};
    const bool lenet5 = job->model && !job->session && strcmp(job->model->name, "lenet5") == 0;
    w->lr = w->lr_given ? c->lr : adam ? ADAM_LR : lenet5 ? LENET5_LR : OTHER_LR;
    w->momentum = adam ? 0 : w->momentum_given ? c->momentum : MOMENTUM;
    w->deterministic = c->deterministic;
    w->sync_norm = c->sync_norm;
    parse_codec(c->codec, w);
    w->params = job->n_params;
    echi_job_layers(job, &w->layers);
    echi_plan_request_cut(w, job->cut_params);
    long number[ECHI_SHARDS_MAX];
    const int numbers = echi_shard_list(c->shards, number);
    w->shards = numbers == 0 ? ECHI_SHARDS_AUTO : numbers == 1 ? (int)number[0] : numbers;
    w->shard_rank_given = numbers > 1;
    for (int i = 0; i < numbers; i++) w->shard_rank[i] = (uint16_t)number[i];
    w->exchange = ECHI_EXCHANGES;
    for (int i = 0; i < ECHI_EXCHANGES; i++)
        if (strcmp(c->exchange, echi_exchange_name((enum echi_exchange)i)) == 0) w->exchange = (enum echi_exchange)i;
    w->inner_steps = (uint32_t)c->inner_steps;
    w->outer_lr = c->outer_lr;
    w->outer_momentum = c->outer_momentum;
    w->drop_older = c->drop_older;
    w->weigh_by_time = c->weigh_by_time;
    w->decay = c->weight_decay >= 0 ? c->weight_decay : 0;
    w->keep_all = strcmp(c->shares, "speed") != 0;
    if (strcmp(c->shares, "speed") == 0) w->shares = ECHI_SHARES_SPEED;
    else if (strcmp(c->shares, "equal") == 0) w->shares = ECHI_SHARES_EQUAL;
    else {
        w->shares = ECHI_SHARES_LIST;
        ECHI_TRY(parse_shares(c->shares, c->world, w->share, err));
        uint64_t sum = 0;
        for (int r = 0; r < c->world; r++) sum += w->share[r];
        if (w->sync == ECHI_SYNC_BSP && w->batch == 0) w->batch = (uint32_t)sum;
        if (w->sync == ECHI_SYNC_BSP && sum != w->batch)
            return echi_fail(err, ECH_E_ARGUMENT, "run.shares", "--shares '%s' adds up to %llu, but under bsp it must be --batch %u",
                             c->shares, (unsigned long long)sum, w->batch);
    }
    return parse_schedule(c, job, w, err);
}

/* A plan from a file must be one for this run. */
static ech_status load_plan(const struct ech_config *c, const struct echi_job *job, struct echi_plan *out, struct echi_link *out_link,
                            struct ech_error *err) {
    const int usual = job->first_fc < job->n_layers ? job->first_fc : 0;
    ECHI_TRY(echi_plan_load(c->plan, usual, out, out_link, err));
    if (out->world != c->world)
        return echi_fail(err, ECH_E_ARGUMENT, "run.plan", "%s is a plan for %d nodes, but the run has %d", c->plan, out->world, c->world);
    if (out->deterministic != c->deterministic)
        return echi_fail(err, ECH_E_ARGUMENT, "run.plan", "%s is a plan %s --deterministic: start every node %s it", c->plan,
                         c->deterministic ? "without" : "for", c->deterministic ? "without" : "with");
    if (out->sync_norm != c->sync_norm)
        return echi_fail(err, ECH_E_ARGUMENT, "run.plan", "%s is a plan %s --sync-norm: start every node %s it", c->plan,
                         c->sync_norm ? "without" : "for", c->sync_norm ? "without" : "with");
    if (out->sync_norm && out->cut && echi_job_norms_behind(job, out->cut))
        return echi_fail(err, ECH_E_ARGUMENT, "run.plan", "%s separates layers with a batch-norm among them, which --sync-norm does not "
                         "reach: give 'head none'", c->plan);
    if (out->cut && !echi_job_may_cut(job, out->cut)) {
        char usable[300];
        echi_job_list_cuts(job, true, usable, sizeof usable);
        return echi_fail(err, ECH_E_ARGUMENT, "run.plan", "%s has a head from layer %d of those with parameters on, and this model cannot "
                         "be cut there: give 'head none', or one of these: %s", c->plan, out->cut, usable);
    }
    struct echi_layers layers;
    struct echi_part_fault fault;
    char text[200];
    echi_job_layers(job, &layers);
    if (out->micro_batches && echi_layers_norm_before(&layers, out->cut))
        return echi_fail(err, ECH_E_ARGUMENT, "run.plan", "%s cuts steps in micro-batches, and a batch-norm in front of its head takes its "
                         "statistics over whole steps: leave out the line 'micro_batches'", c->plan);
    if (out->parts.count == 0 || echi_parts_fit(&out->parts, &layers, out->cut, &fault)) return ECH_OK;
    echi_parts_sentence(&out->parts, &fault, text, sizeof text);
    return echi_fail(err, ECH_E_ARGUMENT, "run.plan", "%s is a plan for another model: %s; without 'part' lines a plan gets the parts of "
                     "the model at hand", c->plan, text);
}

ech_status echi_goal_from(const struct ech_config *c, const struct echi_job *job, const struct echi_plan_request *request,
                          struct echi_plan *out_plan, struct echi_link *out_link, struct echi_goal *out, struct ech_error *err) {
    if (c->plan[0]) ECHI_TRY(load_plan(c, job, out_plan, out_link, err));
    const uint32_t batch = c->plan[0] ? out_plan->round : echi_plan_request_round(request);
    *out = (struct echi_goal){.train_samples = job->train_samples, .target_accuracy = c->target_accuracy, .eval_every = c->eval_every,
                              .has_test = job->test_samples > 0};
    out->samples = samples_of(c, job, batch);
    return ECH_OK;
}
