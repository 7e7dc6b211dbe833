/* SPDX-License-Identifier: Apache-2.0
 * What the options of a run must be to each other; what each may be by itself: config.c. */
#include "echi_config_impl.h"
#include "echi_error.h"
#include "echi_options.h"

#include <stdlib.h>
#include <string.h>

/* Shards are bsp's, and their owners nodes of the run. */
static ech_status shard_list_fits(const struct ech_config *config, struct ech_error *err) {
    long number[ECHI_SHARDS_MAX];
    const int n = echi_shard_list(config->shards, number);
    if (n == 0 || (n == 1 && number[0] == 1)) return ECH_OK;
    if (strcmp(config->sync, "bsp") != 0)
        return echi_refuse(err, "option shards is '%.80s', but sync is %s: several nodes own the parameters of one group under bsp only",
                           config->shards, config->sync);
    if (strcmp(config->codec, "dense") != 0)
        return echi_refuse(err, "option shards is '%.80s', but codec is %s: give codec dense, or leave shards out", config->shards,
                           config->codec);
    if (n == 1 && number[0] > config->world)
        return echi_refuse(err, "option shards is %ld for %d nodes: give at most one a node, or auto", number[0], config->world);
    for (int i = 0; i < n && n > 1; i++)
        if (number[i] >= config->world)
            return echi_refuse(err, "option shards names rank %ld, but the run has %d nodes, ranks 0 to %d", number[i], config->world,
                               config->world - 1);
    return ECH_OK;
}

/* A ring is one of workers that compute each a part of a round, in any order. */
static ech_status exchange_fits(const struct ech_config *config, struct ech_error *err) {
    if (strcmp(config->exchange, "ring") != 0) return ECH_OK;
    if (strcmp(config->sync, "bsp") != 0)
        return echi_refuse(err, "option exchange is ring, but sync is %s, where workers do not wait for each other: give sync bsp",
                           config->sync);
    long number[ECHI_SHARDS_MAX];
    if (echi_shard_list(config->shards, number) == 1 && number[0] == 1)
        return echi_refuse(err,
                           "option exchange is ring, whose sums end at several owners, but shards is 1: give shards auto, or exchange "
                           "server");
    const char *with = strcmp(config->codec, "dense") != 0 ? "codec"
                       : config->sync_norm ? "sync-norm" : config->separate > 0 ? "separate" : NULL;
    if (with)
        return echi_refuse(err,
                           "option exchange is ring, in which gradients of all layers go round as they are: leave %s out, or give exchange "
                           "server", with);
    return ECH_OK;
}

/* A list of shares is bsp's, has a number for each rank, one of them not 0, and sums to B. */
static ech_status share_list_fits(const struct ech_config *config, struct ech_error *err) {
    long sum;
    int entries = echi_share_list(config->shares, &sum);
    if (entries == 0) return ECH_OK;
    if (strcmp(config->sync, "bsp") != 0)
        return echi_refuse(err, "option shares is a list, but sync is %s: only bsp divides a round; leave shares out", config->sync);
    if (entries != config->world)
        return echi_refuse(err, "option shares has %d numbers for %d nodes: give one for each rank (0 is allowed)", entries, config->world);
    if (sum == 0) return echi_refuse(err, "option shares is 0 for every rank: somebody must work");
    if (config->batch > 0 && sum != config->batch)   /* auto: B is the sum */
        return echi_refuse(err, "option shares sums to %ld, but batch is %d: make them equal", sum, config->batch);
    return ECH_OK;
}

/* Samples are dealt in reduction blocks of four, and only a round has a sum. */
static ech_status deterministic_fits(const struct ech_config *config, struct ech_error *err) {
    if (!config->deterministic) return ECH_OK;
    if (strcmp(config->sync, "bsp") != 0)
        return echi_refuse(err, "option deterministic is on, but sync is %s, where weights depend on who comes first: give sync bsp",
                           config->sync);
    if (config->batch % 4 != 0)
        return echi_refuse(err, "option batch is %d, but deterministic deals samples in fours: give a multiple of 4", config->batch);
    if (strcmp(config->codec, "dense") != 0)
        return echi_refuse(err,
                           "option deterministic is on, but codec is %s, where what is sent depends on who computes which samples: leave "
                           "codec out", config->codec);
    for (const char *at = config->shares; echi_share_list(config->shares, &(long){0}) > 0 && at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (atoi(at) % 4 != 0)
            return echi_refuse(err,
                               "option shares is '%.80s', but deterministic deals samples in fours: give multiples of 4", config->shares);
    }
    return ECH_OK;
}

/* Statistics of a round are exchanged in the middle of it, so all must be in it at once. */
static ech_status sync_norm_fits(const struct ech_config *config, struct ech_error *err) {
    if (!config->sync_norm) return ECH_OK;
    if (strcmp(config->sync, "bsp") != 0)
        return echi_refuse(err, "option sync-norm is on, but sync is %s, where nodes do not compute the same round together: give sync bsp",
                           config->sync);
    if (config->deterministic)
        return echi_refuse(err,
                           "option sync-norm is on, but deterministic takes batch-norm's statistics over four samples, whoever has them: "
                           "leave one of them out");
    return ECH_OK;
}

/* Nobody else waits for a head. */
static ech_status micro_batches_fit(const struct ech_config *config, struct ech_error *err) {
    if (config->micro_batches < 2) return ECH_OK;
    if (strcmp(config->sync, "bsp") != 0)
        return echi_refuse(err, "option micro-batches is %d, but sync is %s: only bsp cuts steps; leave micro-batches out",
                           (int)config->micro_batches, config->sync);
    if (config->separate <= 0)
        return echi_refuse(err, "option micro-batches is %d, but no layers are separated, so no step waits in its middle: give separate "
                           "on, or leave micro-batches out", (int)config->micro_batches);
    if (config->sync_norm)
        return echi_refuse(err, "option micro-batches is %d, but sync-norm takes statistics over whole rounds: leave one of them out",
                           (int)config->micro_batches);
    return ECH_OK;
}

/* One node alone separates nothing and sends nothing, so nothing is rounded: its weights would be others than those of two. */
static ech_status activations_travel(const struct ech_config *config, struct ech_error *err) {
    const bool may_separate = strcmp(config->sync, "gssp") == 0 || strcmp(config->sync, "auto") == 0;
    if (strcmp(config->activations, "fp32") == 0) return ECH_OK;
    if (config->deterministic)
        return echi_refuse(err, "option activations is %s, but deterministic gives the same weights from any number of nodes, and one "
                           "alone sends no activations, so it rounds none: leave one of them out", config->activations);
    if (config->separate > 0 || (config->separate < 0 && may_separate)) return ECH_OK;
    return echi_refuse(err, "option activations is %s, but no layers are separated, so none are sent: give separate on, or leave "
                       "activations out", config->activations);
}

/* Rank 0 writes each file once, at the end: two under one name would leave one of them. */
static ech_status outputs_differ(const struct ech_config *config, struct ech_error *err) {
    const struct { const char *name, *path; } output[] = {
        {"save", config->save}, {"report", config->report}, {"save-plan", config->save_plan}, {"profile-out", config->profile_out},
        {"efficiency", config->efficiency}};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            if (*output[i].path && strcmp(output[i].path, output[j].path) == 0)
                return echi_refuse(err, "options %s and %s both name %.200s: give each its own file", output[j].name, output[i].name,
                                   output[i].path);
    return ECH_OK;
}

static ech_status asp_fits(const struct ech_config *config, struct ech_error *err) {
    const char *name = config->drop_older > 0 ? "drop-older" : config->weigh_by_time ? "weigh-by-time" : NULL;
    if (!name) return ECH_OK;
    if (strcmp(config->sync, "asp") != 0)
        return echi_refuse(err, "option %s is given, but sync is %s: only asp has it; leave it out, or give sync asp", name, config->sync);
    if (config->separate > 0)
        return echi_refuse(err, "option %s is given, and separate is %d: it is of nodes that train all layers; leave one of them out", name,
                           config->separate);
    return ECH_OK;
}

/* What only local has is given only there; what it has not, not there. */
static ech_status local_fits(const struct ech_config *config, struct ech_error *err) {
    struct ech_config usual;
    ech_config_init(&usual);
    const bool local = strcmp(config->sync, "local") == 0;
    if ((local || config->drop_older > 0) && strcmp(config->codec, "dense") != 0)
        return echi_refuse(err, "option codec is %s, but %s: what it holds back would not be made up for; give codec dense", config->codec,
                           local ? "sync is local, whose changes are averaged" : "drop-older drops what was sent");
    if (local) {
        if (config->separate <= 0) return ECH_OK;
        return echi_refuse(err, "option separate is %d, but sync is local, where each node trains all layers by itself: leave separate out",
                           config->separate);
    }
    if (config->inner_steps == usual.inner_steps && config->outer_lr == usual.outer_lr && config->outer_momentum == usual.outer_momentum)
        return ECH_OK;
    return echi_refuse(err, "option %s is given, but sync is %s: only local has such steps; leave it out, or give sync local",
                       config->inner_steps != usual.inner_steps ? "inner-steps"
                       : config->outer_lr != usual.outer_lr     ? "outer-lr"
                                                                : "outer-momentum", config->sync);
}

/* What only schedule step has is given with it, and there it is; Nesterov's momentum is one. */
static ech_status schedule_fits(const struct ech_config *config, struct ech_error *err) {
    struct ech_config usual;
    ech_config_init(&usual);
    const bool steps = strcmp(config->schedule, "step") == 0;
    if (steps && !*config->lr_steps)
        return echi_refuse(err, "option schedule is step, but lr-steps is missing: "
                           "give the epochs at which the learning rate falls, as in 30,60,80");
    if (!steps && (*config->lr_steps || config->lr_factor != usual.lr_factor))
        return echi_refuse(err, "option %s is given, but schedule is %s: leave it out, or give schedule step",
                           *config->lr_steps ? "lr-steps" : "lr-factor", config->schedule);
    if (strcmp(config->optimizer, "nesterov") == 0 && config->momentum == 0)
        return echi_refuse(err,
                           "option optimizer is nesterov, but momentum is 0: there is nothing to look ahead with; give a momentum, or sgd");
    return ECH_OK;
}

/* What only Adam has is given only with it; what it has not, not there. */
static ech_status adam_fits(const struct ech_config *config, struct ech_error *err) {
    struct ech_config usual;
    ech_config_init(&usual);
    if (strcmp(config->optimizer, "adam") == 0 || strcmp(config->optimizer, "adamw") == 0) {
        if (config->momentum < 0) return ECH_OK;
        return echi_refuse(err, "option momentum is %g, but optimizer is %s, which has beta1 and beta2 instead: leave momentum out",
                           config->momentum, config->optimizer);
    }
    if (config->beta1 == usual.beta1 && config->beta2 == usual.beta2 && config->epsilon == usual.epsilon) return ECH_OK;
    return echi_refuse(err, "option %s is given, but optimizer is %s: leave it out, or give optimizer adam or adamw",
                       config->beta1 != usual.beta1 ? "beta1" : config->beta2 != usual.beta2 ? "beta2" : "epsilon", config->optimizer);
}

static ech_status check_whole(const struct ech_config *config, struct ech_error *err) {
    int count;
    (void)ech_options(&count);
    for (int i = 0; i < count; i++) ECHI_TRY(echi_config_field_fits(config, i, err));
    bool bsp = strcmp(config->sync, "bsp") == 0;
    if (config->rank >= config->world)
        return echi_refuse(err, "option rank is %d, but world is %d: ranks go from 0 to %d", config->rank, config->world,
                           config->world - 1);
    if (config->world > 1 && !*config->coordinator)
        return echi_refuse(err, "option coordinator is missing: %d nodes need one HOST:PORT to meet, the same for all: rank 0's machine "
                           "(127.0.0.1 if all are on one) and a port that is free there", config->world);
    if (config->local_world > config->world)
        return echi_refuse(err,
                           "option local-world is %d, but world is %d: no more nodes than that are on one machine", config->local_world,
                           config->world);
    if (config->local_rank >= (config->local_world > 0 ? config->local_world : config->world))
        return echi_refuse(err, "option local-rank is %d, but %s is %d: local ranks go from 0", config->local_rank,
                           config->local_world > 0 ? "local-world" : "world",
                           config->local_world > 0 ? config->local_world : config->world);
    if (config->groups > 1 && strcmp(config->sync, "gssp") != 0 && strcmp(config->sync, "auto") != 0)
        return echi_refuse(err, "option groups is %d, but sync is %s, which has one group: leave groups out, or give sync gssp",
                           config->groups, config->sync);
    if (config->groups > config->world)
        return echi_refuse(err, "option groups is %d for %d nodes: give at most one group a node, or auto", config->groups, config->world);
    if (bsp && config->samples_per_step > 0)
        return echi_refuse(err, "option samples-per-step is %d, but under bsp steps follow from batch and shares: leave it out",
                           config->samples_per_step);
    ECHI_TRY(local_fits(config, err));
    ECHI_TRY(asp_fits(config, err));
    ECHI_TRY(schedule_fits(config, err));
    ECHI_TRY(adam_fits(config, err));
    if ((bsp || strcmp(config->sync, "local") == 0) && config->damping > 0)
        return echi_refuse(err, "option damping is %g, but under %s nothing is stale: leave it out", config->damping, config->sync);
    if (*config->key && config->insecure) return echi_refuse(err, "options key and insecure contradict each other: leave one of them out");
    if (config->resume && !*config->checkpoint)
        return echi_refuse(err, "option resume is on, but checkpoint is missing: give the folder with the checkpoints");
    struct ech_config usual;
    ech_config_init(&usual);
    if (!*config->checkpoint && (config->every != usual.every || config->keep != usual.keep))   /* an hour later there would be none */
        return echi_refuse(err, "option %s is given, but checkpoint is missing: give the folder for the checkpoints",
                           config->every != usual.every ? "every" : "keep");
    ECHI_TRY(share_list_fits(config, err));
    ECHI_TRY(shard_list_fits(config, err));
    ECHI_TRY(exchange_fits(config, err));
    ECHI_TRY(deterministic_fits(config, err));
    ECHI_TRY(sync_norm_fits(config, err));
    ECHI_TRY(micro_batches_fit(config, err));
    ECHI_TRY(activations_travel(config, err));
    return outputs_differ(config, err);
}

ech_status ech_config_check(const struct ech_config *config, struct ech_error *err) {
    if (!config) return echi_refuse(err, "no config was given");
    struct ech_config whole;
    ECHI_TRY(echi_config_whole(config, &whole, err));
    return check_whole(&whole, err);
}
