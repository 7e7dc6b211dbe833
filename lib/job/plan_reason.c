/* SPDX-License-Identifier: Apache-2.0
 * Why a plan file is no whole plan: the first rule of echi_plan_valid that it breaks, with the ranks, groups and parts that break it. */
#include "echi_plan_file.h"
#include "echi_sync.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct reason { char *text; size_t cap; };

/* True: a reason is found. */
__attribute__((format(printf, 2, 3))) static bool found(const struct reason *to, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(to->text, to->cap, format, args);
    va_end(args);
    return true;
}

static bool wrong_groups(const struct echi_plan *p, const struct reason *to) {
    if (p->world == 0) return found(to, "there is no world: give the number of nodes, as in world 4");
    for (int r = p->world; r < ECHI_WORLD_MAX; r++)
        if (p->group_of[r] != ECHI_NONE)
            return found(to, "rank %d is a worker, but the ranks are 0 to %d: raise 'world', or remove it", r, p->world - 1);
    for (int g = 0; g < p->n_groups; g++) {
        if (p->owner_of[g] == ECHI_NO_RANK) return found(to, "there is no group %d: groups are numbered from 0 on", g);
        if (p->owner_of[g] >= p->world)
            return found(to, "group %d has owner %d, but the ranks are 0 to %d: name one of them", g, p->owner_of[g], p->world - 1);
        if (g != echi_plan_reserve(p) && echi_plan_workers(p, g) == 0)
            return found(to, "group %d has no worker: give it one, as in workers %d:16, or remove the group", g, p->owner_of[g]);
        for (int h = 0; h < g; h++)
            if (p->owner_of[g] == p->owner_of[h])
                return found(to, "rank %d is the owner of groups %d and %d: each group, and the reserve, has an owner of its own",
                             p->owner_of[g], h, g);
    }
    return p->n_groups == 0 && found(to, "there is no group: give one, as in group 0 owner 0 workers 0:32 1:32");
}

static bool wrong_heads(const struct echi_plan *p, const struct reason *to) {
    int rows[ECHI_HEADS_MAX] = {0};
    if (!p->cut || p->head_rank[0] != p->head)
        return found(to, "the first of 'heads' is rank %d, which is not that of the line 'head': make them the same", p->head_rank[0]);
    if (p->sync != ECHI_SYNC_BSP) return found(to, "it has several heads, which only bsp has: remove the line 'heads'");
    if (p->shadow > 0 || p->deterministic)
        return found(to, "it has several heads and is %s: remove the line 'heads'", p->shadow > 0 ? "with a shadow" : "deterministic");
    for (int r = 0; r < p->world; r++) {
        if (p->n[r] == 0 && p->head_of[r] > 0)
            return found(to, "heads names rank %d among workers, but it has no samples: remove it there", r);
        if (p->n[r] > 0) rows[p->head_of[r]]++;
    }
    for (int i = 0; i < p->heads; i++) {
        if (p->head_rank[i] >= p->world)
            return found(to, "heads names rank %d, but the ranks are 0 to %d: name a rank of this world", p->head_rank[i], p->world - 1);
        if (echi_plan_head_index(p, p->head_rank[i]) != i)
            return found(to, "heads names rank %d twice: each head is another node", p->head_rank[i]);
        if (rows[i] == 0)
            return found(to, "the head on rank %d has no worker: give it one, or remove it", p->head_rank[i]);
    }
    return false;
}

static bool wrong_sums(const struct echi_plan *p, const struct reason *to) {
    uint64_t sum = 0;
    for (int r = 0; r < p->world; r++) sum += p->n[r];
    if (!p->cut && p->head != ECHI_NO_RANK)
        return found(to, "head %d, but the model has no usual place to cut: give the head's first layer, as in head %d from 2", p->head,
                     p->head);
    if (p->cut && p->head >= p->world)
        return found(to, "head %d, but the ranks are 0 to %d: name one of them, or none", p->head, p->world - 1);
    const int shadow = echi_plan_shadow(p);
    if (shadow >= 0 && !p->cut)
        return found(to, "it has a shadow, but no head: remove the line 'shadow', or name a head");
    if (shadow >= p->world)
        return found(to, "shadow %d, but the ranks are 0 to %d: name one of them", shadow, p->world - 1);
    if (shadow >= 0 && shadow == p->head)
        return found(to, "rank %d is the head and its shadow: the shadow is what is left when the head's node is lost; name another rank",
                     p->head);
    if (p->heads && wrong_heads(p, to)) return true;
    if (p->round == 0) return found(to, "there is no round: give the samples of one, as in round 64");
    const struct echi_policy *policy = echi_policy_of((enum echi_sync)p->sync);
    if (p->n_groups > 1 && !policy->grouped)
        return found(to, "there are %d groups: under this sync there is one; gssp has several", p->n_groups);
    return policy->rounds && !policy->local && sum != p->round &&
           found(to, "the samples of all workers are %" PRIu64 ", but under bsp they must sum to the round, %u", sum, p->round);
}

static bool wrong_shard_owners(const struct echi_plan *p, const struct reason *to) {
    if (p->shards && (p->sync != ECHI_SYNC_BSP || p->codec != ECHI_CODEC_DENSE))
        return found(to, "it has shards, which only bsp with codec dense has: remove the line 'shards', and 'shard' from its parts");
    for (int k = 0; k < p->shards; k++) {
        if (p->shard_owner[k] >= p->world)
            return found(to, "shards names rank %d, but the ranks are 0 to %d: name a rank of this world", p->shard_owner[k], p->world - 1);
        for (int other = 0; other < k; other++)
            if (p->shard_owner[k] == p->shard_owner[other])
                return found(to, "shards names rank %d twice: each owner has one shard", p->shard_owner[k]);
    }
    return p->shards && p->shard_owner[0] != p->owner_of[0] &&
           found(to, "group 0 has owner %d, but the first rank of 'shards' is %d: make them the same", p->owner_of[0], p->shard_owner[0]);
}

static bool wrong_shard_parts(const struct echi_plan *p, const struct reason *to) {
    const struct echi_part *part = p->parts.part;
    uint64_t with_parts = 0;
    for (int i = 0; i < p->parts.count; i++) {
        if (part[i].shard > 0 && p->shards == 0)
            return found(to, "part %d is in shard %d, but there is no line 'shards' that names its owner, as in shards 0,1,2,3", i,
                         part[i].shard);
        if (p->shards && part[i].shard >= p->shards)
            return found(to, "part %d is in shard %d, which has no owner: 'shards' names those of shards 0 to %d", i, part[i].shard,
                         p->shards - 1);
        with_parts |= 1ull << part[i].shard;
    }
    if (p->parts.count == 0 || p->shards == 0) return false;
    if (part[0].shard != 0)
        return found(to, "part 0 is in shard %d, but it belongs to shard 0, whose owner gets the loss: exchange the two shards",
                     part[0].shard);
    for (int k = 0; k < p->shards; k++)
        if (!(with_parts >> k & 1))
            return found(to, "shard %d, of rank %d, has no part: give it one, or remove the rank from 'shards'", k, p->shard_owner[k]);
    return false;
}

static bool wrong_ring(const struct echi_plan *p, const struct reason *to) {
    if (p->exchange != ECHI_EXCHANGE_RING || echi_plan_may_ring(p)) return false;
    if (p->shards == 0) return found(to, "exchange ring needs shards, whose owners its sums end at, as in shards 0,1,2");
    for (int k = 0; k < p->shards; k++)
        if (p->group_of[p->shard_owner[k]] == ECHI_NONE)
            return found(to, "rank %d owns a shard and trains nothing, for which a ring has no place: write exchange server",
                         p->shard_owner[k]);
    return found(to, "exchange ring goes with two workers or more, and not with sync_norm or a head: write exchange server");
}

static bool wrong_optimizer(const struct echi_plan *p, const struct reason *to) {
    const bool adam = echi_optimizer_adam(p->optimizer), has = p->adam.beta1 != 0 || p->adam.beta2 != 0 || p->adam.epsilon != 0;
    if (adam && p->momentum != 0) return found(to, "adam and adamw have no momentum: remove that line, and give beta1, beta2 and epsilon");
    if (adam && !echi_adam_valid(&p->adam))
        return found(to, "adam and adamw need beta1 and beta2 from 0 to below 1, and epsilon above 0, as in beta1 0.9");
    return !adam && has && found(to, "beta1, beta2 and epsilon belong to optimizer adam or adamw: name it, or remove them");
}

static bool wrong_rules(const struct echi_plan *p, const struct reason *to) {
    const struct echi_policy *policy = echi_policy_of((enum echi_sync)p->sync);
    const bool plain_asp = p->sync == ECHI_SYNC_ASP && !p->cut;
    if (policy->rounds && p->damping > 0) return found(to, "damping is for asp, ssp and gssp: remove it, or choose one of these");
    if (p->deterministic && (!policy->rounds || policy->local)) return found(to, "deterministic is for bsp: set it to 0, or choose bsp");
    if (p->sync_norm && (p->sync != ECHI_SYNC_BSP || p->deterministic))
        return found(to, "sync_norm is for bsp without deterministic: set one of them to 0");
    if (p->flights > 1 && (policy->rounds || !p->cut)) return found(to, "flights above 1 need a head under asp, ssp or gssp");
    if (p->micro_batches && (p->sync != ECHI_SYNC_BSP || !p->cut || p->sync_norm))
        return found(to, "micro_batches are of bsp with a head, without sync_norm: remove that line");
    if (p->micro_batches && 2 * p->world > ECHI_WORLD_MAX)
        return found(to, "micro_batches are for %d nodes at most: remove that line", ECHI_WORLD_MAX / 2);
    if (p->gathers && (p->sync != ECHI_SYNC_BSP || !p->cut || p->micro_batches))
        return found(to, "gathers is for bsp with a head, without micro_batches: set it to 0");
    if (p->activations && (!p->cut || p->deterministic))
        return found(to, "activations bf16 are sent to a head, without deterministic: remove that line");
    if (p->drop_older > 0 && !plain_asp) return found(to, "drop_older is for asp without a head: remove it");
    if (!policy->local && (p->outer_lr != 0 || p->outer_momentum != 0))
        return found(to, "outer_lr and outer_momentum are for local: remove them, or choose local");
    if (policy->local && p->cut) return found(to, "local has no head: write head none");
    for (int r = 0; r < p->world; r++) {
        if (p->deterministic && p->n[r] % ECHI_REDUCTION_BLOCK)
            return found(to, "deterministic, but rank %d has %u samples: 4 must divide each worker's, and the round", r, p->n[r]);
        if (p->divisor[r] > 0 && !plain_asp) return found(to, "rank %d has a divisor, which is for asp without a head", r);
        if ((p->inner[r] != 0) != (policy->local && p->n[r] != 0))
            return found(to, "rank %d: under local, and there alone, a worker has samples x steps, as in 1:32x16", r);
    }
    return false;
}

static bool wrong_codec(const struct echi_plan *p, const struct reason *to) {
    const bool topk = p->codec == ECHI_CODEC_TOPK;
    if (!topk && p->state_ratio) return found(to, "state_ratio belongs to codec topk: remove it, or name the codec");
    if (topk && (p->state_ratio < 1 || p->state_ratio > ECHI_RATIO_ONE)) return found(to, "with topk it needs a state_ratio, 1 to 1000000");
    if (topk && (p->deterministic || p->sync == ECHI_SYNC_LOCAL || p->drop_older > 0))
        return found(to, "topk goes with neither deterministic, local nor drop_older: use codec dense");
    for (int g = 0; g < ECHI_GROUPS_MAX; g++) {
        if (topk && g < p->n_groups && (p->base[g] < 1 || p->base[g] > ECHI_RATIO_ONE))
            return found(to, "with topk group %d needs a base, as in base %d 10000", g, g);
        if (p->base[g] != 0 && (!topk || g >= p->n_groups))
            return found(to, "group %d has a base, which a group of this plan has with topk only: remove it", g);
    }
    return false;
}

void echi_plan_reason(const struct echi_plan *p, char *text, size_t cap) {
    const struct reason to = {text, cap};
    if (wrong_groups(p, &to) || wrong_sums(p, &to) || wrong_shard_owners(p, &to) || wrong_shard_parts(p, &to)) return;
    if (wrong_ring(p, &to) || wrong_optimizer(p, &to) || wrong_rules(p, &to) || wrong_codec(p, &to)) return;
    found(&to, "its lines do not go together: save one with --save-plan, and change that");
}
