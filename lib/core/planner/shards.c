/* SPDX-License-Identifier: Apache-2.0
 * Shards: which nodes own a group's parts together, how much each of them owns, and which parts.
 *
 * What a link carries a step, in models, each way: of one of N workers that owns a share s, all others' gradients of s (N - 1) and its
 * own gradients of the rest (1 - s), so 1 + (N - 2) s; of an owner that does not work, N s. The step lasts as long as the link that needs
 * the longest, so shares are chosen that make the longest as short as it can be: a host with half the rate of others gets far less than
 * half of their share, often nothing. */
#include "echi_planner.h"

#include <string.h>

/* A shard has so many parts at least, where the model is large enough: then shards come out about equal. */
#define PARTS_A_SHARD 4
/* And more, so that less is waited at both ends of a step: a part passes every node of a ring, one behind the other, before the next can;
 * an owner applies one when all workers' gradients of it are in, and only then has weights to send. Images/s through owners on four hosts
 * of half a core, 1 Gb/s, with 4, 16 and 30 parts a shard: ResNet-18 43.9 43.7, 46.8 47.2, 46.8 47.4; AlexNet 7.9 8.3, 8.7, 9.1. */
#define MANY_PARTS_A_SHARD 32
/* Of less a message costs more than its bytes; in parameters. A ring's a chunk of the wire. An owner's: a net of 3 FC layers in parts of
 * 0.8, 0.4, 0.2 and 0.1 MB has 302, 353, 359 and 337 images/s there. */
#define LEAST_OF_RING (UINT64_C(1) << 14)
#define LEAST_OF_SERVER (3 * LEAST_OF_RING)

static bool owns(const struct echi_plan *plan, int rank) {
    for (int k = 0; k < plan->shards; k++)
        if (plan->shard_owner[k] == rank) return true;
    return false;
}

static double greater(double a, double b) { return a > b ? a : b; }
static uint64_t greater_of(uint64_t a, uint64_t b) { return a > b ? a : b; }
static double lesser(double a, double b) { return a < b ? a : b; }
/* Of the slower direction; 0 when not known. */
static double lowest_rate(const struct echi_link *l) { return echi_link_known(l) ? lesser(l->out.lowest, l->in.lowest) : 0; }
static double highest_rate(const struct echi_link *l) { return echi_link_known(l) ? lesser(l->out.highest, l->in.highest) : 0; }

static void add_owner(struct echi_plan *plan, int rank) { plan->shard_owner[plan->shards++] = (uint16_t)rank; }

int echi_plan_best_link(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], const bool but[ECHI_WORLD_MAX]) {
    double rate = 0;
    int best = -1;
    for (int r = 0; r < w->world; r++)
        if (!w->absent[r] && !(but && but[r])) rate = greater(rate, lowest_rate(&times[r].link));
    for (int r = 0; r < w->world; r++) {
        if (w->absent[r] || (but && but[r]) || highest_rate(&times[r].link) < rate) continue;
        if (best < 0 || echi_times_whole(&times[r], 64) < echi_times_whole(&times[best], 64)) best = r;
    }
    return best;
}

/* In a ring owners train. */
static bool may_own(const struct echi_plan_request *w, const struct echi_plan *plan, int rank) {
    return w->exchange != ECHI_EXCHANGE_RING || plan->n[rank] > 0;
}

/* Of those that own nothing yet; -1: none is left. */
static int next_owner(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan) {
    bool has[ECHI_WORLD_MAX] = {false};
    int best = -1;
    for (int r = 0; r < plan->world; r++) has[r] = owns(plan, r) || !may_own(w, plan, r);
    if (w->owners == ECHI_OWNERS_USUAL) return echi_plan_best_link(w, times, has);
    for (int r = 0; r < plan->world; r++)
        if (!w->absent[r] && !has[r] && (best < 0 || echi_times_whole(&times[r], 64) < echi_times_whole(&times[best], 64))) best = r;
    return best;
}

/* ---- how much: shares ---- */

/* What host r's link carries a step is base + slope * share. */
struct load { double base, slope; };
static struct load load_of(const struct echi_plan *plan, int r, int workers) {
    return plan->n[r] > 0 ? (struct load){1, workers - 2} : (struct load){0, workers};
}

/* Links that may be as fast as the fastest, as far as their measuring can tell, count as alike: else one of such would own half as much as
 * another, and all would wait for its neighbours' links. */
static double rate_of(const struct echi_times times[ECHI_WORLD_MAX], int r, int fastest) {
    const bool alike = highest_rate(&times[r].link) >= lowest_rate(&times[fastest].link);
    return echi_link_slower(&times[alike ? fastest : r].link);
}

/* The share that a host can own when a step lasts `t`. */
static double share_within(struct load load, double rate, double t) {
    const double room = t * rate - load.base;
    return room <= 0 ? 0 : room >= load.slope ? 1 : room / load.slope;
}

void echi_plan_shard_shares(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX],
                            double out_share[ECHI_SHARDS_MAX]) {
    double shortest = 0, longest, all = 0;   /* steps, in models over bytes a second */
    int workers = 0, fastest = plan->shard_owner[0];
    bool known = true;
    for (int r = 0; r < plan->world; r++) workers += plan->n[r] > 0;
    for (int r = 0; r < plan->world; r++)
        if (plan->n[r] > 0 || echi_plan_shard_owned(plan, r) >= 0) known = known && echi_link_known(&times[r].link);
    for (int k = 0; k < plan->shards; k++) out_share[k] = 1.0 / plan->shards;
    if (plan->exchange == ECHI_EXCHANGE_RING) return;   /* a link carries all but one's own */
    if (!known || workers < 3) return;   /* of two, each sends and gets one model whatever it owns */
    for (int r = 0; r < plan->world; r++)
        if ((plan->n[r] > 0 || echi_plan_shard_owned(plan, r) >= 0) &&
            echi_link_slower(&times[r].link) > echi_link_slower(&times[fastest].link)) fastest = r;
    for (int r = 0; r < plan->world; r++)
        if (plan->n[r] > 0) shortest = greater(shortest, 1 / rate_of(times, r, fastest));
    longest = shortest;
    for (int k = 0; k < plan->shards; k++)
        longest = greater(longest, workers / rate_of(times, plan->shard_owner[k], fastest));   /* then each may own all */
    for (int turn = 0; turn < 64; turn++) {
        const double t = turn ? (shortest + longest) / 2 : shortest;
        all = 0;
        for (int k = 0; k < plan->shards; k++) {
            const int r = plan->shard_owner[k];
            all += out_share[k] = share_within(load_of(plan, r, workers), rate_of(times, r, fastest), t);
        }
        if (all >= 1) longest = t;
        else shortest = t;
    }
    for (int k = 0; k < plan->shards; k++) out_share[k] /= all;
}

void echi_plan_undivide(struct echi_plan *plan) {
    plan->shards = 0;
    plan->exchange = ECHI_EXCHANGE_SERVER;
    memset(plan->shard_owner, 0, sizeof plan->shard_owner);
    for (int i = 0; i < plan->parts.count; i++) plan->parts.part[i].shard = 0;
}

/* Whether rank 0 owns a part in any case. */
static bool rank0_owns(const struct echi_plan_request *w, const struct echi_plan *plan) { return w->shard_of_rank0 && plan->n[0] > 0; }

/* Owners whose link has no room for as much as a part. */
static void leave_out(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
    double share[ECHI_SHARDS_MAX];
    const int shards = plan->shards;
    echi_plan_shard_shares(plan, times, share);
    plan->shards = 0;
    for (int k = 0; k < shards; k++)
        if (share[k] * shards * PARTS_A_SHARD >= 0.5 || (plan->shard_owner[k] == 0 && rank0_owns(w, plan)))
            add_owner(plan, plan->shard_owner[k]);
    plan->owner_of[0] = plan->shard_owner[0];
}

void echi_plan_divide(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
    if (plan->sync != ECHI_SYNC_BSP || plan->codec != ECHI_CODEC_DENSE || w->shards < 2) return;
    if (w->shard_rank_given) {
        for (int k = 0; k < w->shards; k++)
            if (!w->absent[w->shard_rank[k]]) add_owner(plan, w->shard_rank[k]);
        plan->owner_of[0] = plan->shard_owner[0];
    } else {
        if (may_own(w, plan, plan->owner_of[0])) add_owner(plan, plan->owner_of[0]);
        if (rank0_owns(w, plan) && !owns(plan, 0)) add_owner(plan, 0);
        for (int r = next_owner(w, times, plan); r >= 0 && plan->shards < w->shards; r = next_owner(w, times, plan)) add_owner(plan, r);
        if (plan->shards > 0) plan->owner_of[0] = plan->shard_owner[0];
    }
    const bool rings = w->exchange == ECHI_EXCHANGE_RING && echi_plan_may_ring(plan);
    if (!w->shard_rank_given && !rings) leave_out(w, times, plan);
    if (plan->shards < 2) return echi_plan_undivide(plan);
    plan->exchange = rings ? ECHI_EXCHANGE_RING : ECHI_EXCHANGE_SERVER;
}

uint64_t echi_plan_slice(const struct echi_plan *plan, const struct echi_layers *layers) {
    uint64_t params = 0;
    if (plan->shards == 0) return ECHI_PART_SLICE;
    for (int i = 0; i < (plan->cut ? plan->cut : layers->count); i++) params += layers->params[i];
    const uint64_t shards = plan->shards, even = params / (shards * PARTS_A_SHARD);
    const uint64_t least = plan->exchange == ECHI_EXCHANGE_RING ? LEAST_OF_RING : LEAST_OF_SERVER;
    const uint64_t slice = even > least ? greater_of(params / (shards * MANY_PARTS_A_SHARD), least) : even;
    return slice > ECHI_PART_SLICE ? ECHI_PART_SLICE : slice < 1 ? 1 : slice;
}

/* Of all shards but one that which is the least full with a part of so many parameters more; -1: of all. */
static double fill(const uint64_t *has, const double *share, int k, uint32_t count) { return (double)(has[k] + count) / share[k]; }
static int least_of(const uint64_t *has, const double *share, int shards, uint32_t count, int but) {
    int least = but == 0 ? 1 : 0;
    for (int k = least + 1; k < shards; k++)
        if (k != but && fill(has, share, k, count) < fill(has, share, least, count)) least = k;
    return least;
}

/* A shard that got nothing takes the smallest part of the shard that has the most of them. */
static void give_each_one(struct echi_plan *plan, int parts) {
    struct echi_part *part = plan->parts.part;
    for (int k = 0; k < plan->shards; k++) {
        int count[ECHI_SHARDS_MAX] = {0}, most = 0, given = -1;
        for (int i = 0; i < parts; i++) count[part[i].shard]++;
        if (count[k] > 0) continue;
        for (int j = 1; j < plan->shards; j++)
            if (count[j] > count[most]) most = j;
        for (int i = 0; i < parts; i++)
            if (part[i].shard == most && (given < 0 || part[i].count < part[given].count)) given = i;
        part[given].shard = (uint8_t)k;
    }
}

/* From the last part to the first, as backward makes them, each to the shard that is the least full, and to another than the part before,
 * so that workers do not all send to one host at a time, unless that shard would then be fuller by more than the part. */
void echi_plan_deal_parts(struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], int parts) {
    uint64_t has[ECHI_SHARDS_MAX] = {0};
    double share[ECHI_SHARDS_MAX];
    struct echi_part *part = plan->parts.part;
    if (plan->shards > parts) plan->shards = (uint8_t)(parts > 0 ? parts : 0);
    for (int k = plan->shards; k < ECHI_SHARDS_MAX; k++) plan->shard_owner[k] = 0;
    if (plan->shards < 2) return echi_plan_undivide(plan);
    echi_plan_shard_shares(plan, times, share);
    for (int k = 0; k < plan->shards; k++) share[k] = greater(share[k] * plan->shards, 1e-3);   /* 1: an equal share */
    for (int i = parts - 1; i >= 0; i--) {
        const uint32_t count = part[i].count;
        const int least = least_of(has, share, plan->shards, count, -1);
        const int other = least_of(has, share, plan->shards, count, i + 1 < parts ? part[i + 1].shard : -1);
        part[i].shard = (uint8_t)(fill(has, share, other, count) <= fill(has, share, least, 2 * count) ? other : least);
        has[part[i].shard] += count;
    }
    give_each_one(plan, parts);
    /* Shard 0 is that of part 0: the two change their names; and, where they are not to be as large, their owners. */
    const uint8_t first = part[0].shard;
    for (int i = 0; i < parts; i++) part[i].shard = part[i].shard == first ? 0 : part[i].shard == 0 ? first : part[i].shard;
    if (!(share[first] < share[0] || share[first] > share[0])) return;
    const uint16_t owner = plan->shard_owner[first];
    plan->shard_owner[first] = plan->shard_owner[0];
    plan->owner_of[0] = plan->shard_owner[0] = owner;
}
