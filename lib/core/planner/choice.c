/* SPDX-License-Identifier: Apache-2.0
 * The best of several plans, by what is predicted of them. */
#include "echi_choice.h"
#include "echi_predict_rounds.h"
#include "echi_efficiency.h"

#include <string.h>

/* Predictions are good to some percent. What is better by less is not better: then the simpler one is taken, and groups of like
 * speed, whose bound does not bite when speeds turn out otherwise, stay as they are. */
#define CLEARLY 1.02
/* A node is named as net-negative when the others are so many times faster without it. */
#define NET_NEGATIVE 1.05
/* Several owners, the loss of any of which would end the run, are worth that when they make a run so many times faster. */
#define WORTH_A_RISK 1.1
/* A link is thin when those of others carry so many times as much. */
#define THIN 3
/* So many are looked at, the slowest in as many ways; and so many may be left out, one after the other. */
#define SUSPECTS 5
#define LEFT_OUT_MOST 4

static struct echi_candidate predicted(const struct echi_plan_request *w, const struct echi_times *times, const struct echi_plan *plan,
                                       struct echi_choice_work *work) {
    struct echi_prediction p;
    if (work->between) work->between(work->self);
    echi_predict(plan, times, &w->load, 0, &work->predict, &p);
    struct echi_candidate c = {.sync = plan->sync, .groups = plan->n_groups, .separated = plan->separated, .rate = p.rate,
                               .staleness = p.staleness, .oldest = p.oldest};
    c.mostly_separated = echi_mostly_separated(&w->load, plan->separated);
    c.efficiency = echi_statistical_efficiency(c.mostly_separated, p.behind);
    c.goodput = c.rate * c.efficiency;
    return c;
}

/* Messages are predicted part by part, so plans get their parts first, and those of rounds the owners of these. */
static struct echi_candidate candidate_of(const struct echi_plan_request *w, const struct echi_times *times, struct echi_plan *plan,
                                          struct echi_choice_work *work) {
    if (plan->parts.count == 0 && w->layers.count > 0) {
        if (plan->sync == ECHI_SYNC_BSP) echi_plan_divide(w, times, plan);
        echi_plan_parts(w, times, plan);
    }
    return predicted(w, times, plan, work);
}

static double worth(const struct echi_plan_request *w, const struct echi_candidate *c) { return w->choose ? c->goodput : c->rate; }

/* Nothing holds a fast group back for the sake of a slow one, whose pushes come from ever older weights. Where all layers are stale, so
 * many rounds behind are too many: sixteen workers of test/hosts/links, LeNet-5 on MNIST, ten epochs, three seeds: four groups, the
 * slowest one's pushes 12 rounds behind, ended at 98.2 to 98.9 %, eight groups, 32 rounds, at 96.9 to 98.5 %; BSP at 98.7 to 99.0, and
 * eight groups with the codec, 5 rounds, at 98.6 to 98.9 % (paper). */
#define OLDEST_ROUNDS 8.0
static double worth_of_groups(const struct echi_plan_request *w, const struct echi_candidate *c) {
    return !c->mostly_separated && c->oldest > OLDEST_ROUNDS ? 0 : worth(w, c);
}

static bool links_alike(const struct echi_plan_request *w, const struct echi_times *times) {
    double least = 0, most = 0;
    bool first = true;
    for (int r = 0; r < w->world; r++) {
        const double rate = echi_link_slower(&times[r].link);
        if (w->absent[r]) continue;
        least = first || rate < least ? rate : least;
        most = first || rate > most ? rate : most;
        first = false;
    }
    return !(most > least);
}

/* The better of the owners that a plan of several groups may have: where links differ they may matter more than processors. Its candidate,
 * and which owners. */
static struct echi_candidate best_owners(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                                         enum echi_owners *out_owners) {
    struct echi_candidate best = {0};
    struct echi_plan_request *own = &work->trial;
    *own = *w;
    for (int i = 0; i <= !links_alike(w, times); i++) {
        char text[2];
        own->owners = i ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
        if (echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK) return (struct echi_candidate){0};
        const struct echi_candidate c = candidate_of(own, times, &work->tried, work);
        if (i && worth_of_groups(w, &c) < worth_of_groups(w, &best) * CLEARLY) continue;
        best = c;
        *out_owners = own->owners;
    }
    return best;
}

/* One group to as many as there are workers, and of those that are clearly better than the groups of like speed the fewest. Each
 * becomes a candidate of `all`; returns which is taken, its plan in *out. */
static int best_groups(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                       struct echi_choice *all, struct echi_plan *out) {
    enum echi_owners owners[ECHI_GROUPS_MAX + 1];
    struct echi_plan_request own = *w;
    char text[2];
    const int first = all->count, like = out->n_groups;
    double best = 0, of_like = 0;
    for (own.groups = 1; own.groups <= ECHI_GROUPS_MAX; own.groups++) {
        const struct echi_candidate c = best_owners(&own, times, work, &owners[own.groups]);
        if (c.groups != own.groups) break;
        all->candidate[all->count++] = c;
        if (worth_of_groups(w, &c) > best) best = worth_of_groups(w, &c);
        if (own.groups == like) of_like = worth_of_groups(w, &c);
    }
    int taken = first + like - 1;
    if (best > of_like * CLEARLY)
        for (taken = first; worth_of_groups(w, &all->candidate[taken]) * CLEARLY < best;) taken++;
    own.groups = all->candidate[taken].groups;
    own.owners = owners[own.groups];
    echi_plan_make(&own, times, out, text, sizeof text);
    return taken;
}

/* ---- where: the head, owners, shards ---- */

static bool grouped(const struct echi_plan_request *w) { return echi_policy_of(w->sync)->grouped && w->groups != 1; }

/* Each group has an owner of its own, and nobody has a head. */
static bool owners_alone(const struct echi_plan_request *w) {
    const bool separated = w->has_cut && (w->separate == 1 || (w->separate == -1 && w->sync == ECHI_SYNC_GSSP));
    return !separated && grouped(w);
}

/* There is one way to place owners, so nothing to predict: a prediction among 1,024 nodes takes a tenth of a second. */
static bool one_way(const struct echi_plan_request *w, const struct echi_times *times) { return owners_alone(w) && links_alike(w, times); }

/* Nodes that the head, and the owner of its group, may go to: rank 0, with which a run ends anyway; the fastest processor; the fastest
 * link, and without that another; and who takes in and applies pushes the soonest, which is a matter of memory. */
#define PLACES 5
#define ANYWHERE (-1)   /* no such node */
static int places(const struct echi_plan_request *w, const struct echi_times *times, int out[PLACES]) {
    out[0] = ANYWHERE;
    if (owners_alone(w)) return 1;
    bool but[ECHI_WORLD_MAX] = {false};
    int found[PLACES] = {0, -1, echi_plan_best_link(w, times, NULL), -1, -1}, count = 0;
    for (int r = 0; r < w->world; r++) {
        if (w->absent[r]) continue;
        if (found[1] < 0 || echi_times_whole(&times[r], 64) < echi_times_whole(&times[found[1]], 64)) found[1] = r;
        if (found[4] < 0 || times[r].exchange + times[r].update < times[found[4]].exchange + times[found[4]].update) found[4] = r;
    }
    if (found[2] >= 0) but[found[2]] = true;
    if (!links_alike(w, times)) found[3] = echi_plan_best_link(w, times, but);
    for (int i = 0; i < PLACES; i++) {
        bool known = found[i] < 0 || w->absent[found[i]];
        for (int k = 0; k < count; k++) known = known || out[k] == found[i];
        if (!known) out[count++] = found[i];
    }
    return count;
}

/* Sets where the head and owners go: of all places that are not clearly worse than the best the first. */
static void best_place(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    int place[PLACES], taken = -1;
    double value[2 * PLACES], best = 0;
    struct echi_plan_request *own = &work->trial;
    *own = *w;
    const int count = w->world > 1 && w->home == 0 && !one_way(w, times) ? places(w, times, place) : 0;
    const bool groups = grouped(w) && !links_alike(w, times);
    own->shards = 1;
    for (int i = 0; i < 2 * count; i++) {
        char text[2];
        value[i] = 0;
        own->home = (uint16_t)(1 + place[i / 2]);   /* 0: anywhere */
        own->owners = i % 2 ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
        if ((i % 2 && !groups) || echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK) continue;
        const struct echi_candidate c = candidate_of(own, times, &work->tried, work);
        value[i] = worth(w, &c);
        if (value[i] > best) best = value[i];
    }
    for (int i = 0; i < 2 * count && taken < 0; i++)
        if (value[i] > 0 && value[i] * CLEARLY >= best) taken = i;
    if (taken < 0) return;
    w->home = (uint16_t)(1 + place[taken / 2]);
    w->owners = taken % 2 ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
}

/* Images a second of rounds with so many owners, less where the loss of any of several owners ends the run. */
static double worth_of_shards(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    char text[2];
    if (echi_plan_make(w, times, &work->tried, text, sizeof text) != ECH_OK) return 0;
    const double rate = candidate_of(w, times, &work->tried, work).rate;
    return work->tried.shards > 0 && !echi_plan_outlives_owners(&work->tried) ? rate / WORTH_A_RISK : rate;
}

/* Sets how many owners share the parts, and who they are: of those that are not clearly worse than the best the fewest. What is predicted
 * is a round part by part. Rank 0 is one of them where it trains: then the run outlives the others. Returns what they are worth, 0 where
 * owners were wished for, or nothing is predicted. */
static double best_shards(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    struct echi_plan_request *own = &work->trial;
    double value[2][ECHI_SHARDS_MAX + 1] = {{0}}, best = 0;
    bool enough = false;   /* no owners can make clearly more */
    if (w->shards != ECHI_SHARDS_AUTO) return 0;
    w->shards = 1;
    w->shard_of_rank0 = true;
    *own = *w;
    const int most = w->world < ECHI_SHARDS_MAX ? w->world : ECHI_SHARDS_MAX;
    const bool may = w->sync == ECHI_SYNC_BSP && w->codec == ECHI_CODEC_DENSE && w->layers.count > 0;
    for (int k = 1; may && k <= most && !enough; k = k < most && 2 * k > most ? most : 2 * k)
        for (int i = 0; i < (k == 1 ? 1 : 2) && !enough; i++) {
            own->shards = k;
            own->owners = i ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
            value[i][k] = worth_of_shards(own, times, work);
            if (value[i][k] > best) best = value[i][k];
            enough = value[i][k] > 0 && value[i][k] * CLEARLY >= echi_predict_rounds_most(&work->tried, times, &work->predict);
        }
    for (int k = 1; k <= most && best > 0; k++)
        for (int i = 0; i < 2; i++) {
            if (!(value[i][k] > 0 && value[i][k] * CLEARLY >= best)) continue;
            w->shards = k;
            w->owners = i ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
            return value[i][k];
        }
    return 0;
}

/* What a ring of all workers makes, as a candidate that is in work->tried; 0: there can be none. */
static double worth_of_ring(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    struct echi_plan_request *own = &work->trial;
    *own = *w;
    own->exchange = ECHI_EXCHANGE_RING;
    own->shards = w->world < ECHI_SHARDS_MAX ? w->world : ECHI_SHARDS_MAX;
    const double rate = w->sync == ECHI_SYNC_BSP && w->layers.count > 0 ? worth_of_shards(own, times, work) : 0;
    return rate > 0 && echi_plan_rings(&work->tried) ? rate : 0;
}

/* Sets how gradients are summed, and with that how many own the parts. A ring of all workers is taken where it gains so much more than one
 * owner would, since it breaks with the first node that is lost. Where owners are several and it is predicted to be as fast, or nearly, it
 * is taken: on live links of large models it makes more of what it promises. 4 hosts of half a core, 1 Gb/s, batch 8 a host, images/s and
 * their part of what was predicted, ring and server: AlexNet 9.3 (0.97) and 9.1 (0.93), VGG-19 28.0 28.7 (0.97 0.98) and 28.0 26.9 (0.97
 * 0.93), ResNet-18 45.9 46.4 (0.99 1.00) and 46.8 47.4 (1.02 1.03). One that was wished for is taken where it can be. Owners that were
 * wished for stay. */
#define RING_GAINS 1.05
#define RING_LACKS 0.97   /* of several owners' */
static void best_exchange(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    const bool open = w->exchange == ECHI_EXCHANGES, any = w->shards == ECHI_SHARDS_AUTO;
    const bool tries = any && (open ? w->world > 2 : w->exchange == ECHI_EXCHANGE_RING);
    const double ring = tries ? worth_of_ring(w, times, work) : 0;
    if (open || (any && ring <= 0)) w->exchange = ECHI_EXCHANGE_SERVER;
    if (!(any && w->exchange == ECHI_EXCHANGE_RING)) {
        const double server = best_shards(w, times, work);
        if (open && ring > 0 && ring >= (w->shards > 1 ? RING_LACKS : RING_GAINS) * server) w->exchange = ECHI_EXCHANGE_RING;
    }
    if (any && w->exchange == ECHI_EXCHANGE_RING) w->shards = w->world < ECHI_SHARDS_MAX ? w->world : ECHI_SHARDS_MAX;
}

/* Rounds of which the gradients take longer than the steps may be faster where fewer nodes train and the others own parameters only: a
 * link carries 2 (N - 1) / N models each way where all N train and own, one where half of them do. As BytePS has it (Jiang et al., OSDI
 * 2020, section 4), with the nodes that are there. Sets how many train, where much is gained: of a net of 3.2 million parameters on four
 * live hosts of 1 Gb/s 1.44 times as many images/s were predicted for two, and 1.22 times as many were made (at 100 Mb/s 0.72 to 0.8 of
 * what was predicted: for a quarter of a round owners send little, since they have each part from one worker only). */
#define FEWER_GAIN 1.6
#define FEWER_FURTHER 1.1   /* than half of the nodes: other numbers */
#define FEWER_WORLD 64   /* of more nodes a prediction takes too long for so many */
static void best_workers(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    struct echi_plan_request *own = &work->fewer;
    int here = 0;
    bool known = true;   /* else links hold nobody up, as far as is known */
    for (int r = 0; r < w->world; r++) {
        here += !w->absent[r];
        known = known && (w->absent[r] || echi_link_known(&times[r].link));
    }
    if (!known || here < 3 || here > FEWER_WORLD) return;
    double best = FEWER_GAIN * worth_of_shards(w, times, work);
    for (int i = 0; best > 0 && (i < 2 || here >> i >= 2); i++) {   /* half of them, then three quarters, a quarter, an eighth ... */
        const int k = i == 0 ? here / 2 : i == 1 ? here - (here + 3) / 4 : here >> i;
        if (k < 2) continue;
        *own = *w;
        own->workers = k;
        own->exchange = ECHI_EXCHANGE_SERVER;
        own->shards = ECHI_SHARDS_AUTO;
        const double value = best_shards(own, times, work);
        if (!(value > best)) continue;
        best = FEWER_FURTHER * value;
        *w = *own;
    }
}

/* Head and owners were placed before the number of groups was known: with that they may go elsewhere, where it is clearly better. */
static void place_again(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                        struct echi_candidate *taken, struct echi_plan *out) {
    char text[2];
    w->home = 0;
    w->groups = taken->groups;
    if (one_way(w, times)) return;
    best_place(w, times, work);
    if (echi_plan_make(w, times, &work->tried, text, sizeof text) != ECH_OK) return;
    const struct echi_candidate c = candidate_of(w, times, &work->tried, work);
    if (!(worth_of_groups(w, &c) > worth_of_groups(w, taken) * CLEARLY)) return;
    *taken = c;
    *out = work->tried;
}

/* -1: several train. */
static int only_worker(const struct echi_plan *plan) {
    int found = -1;
    for (int r = 0; r < plan->world; r++) {
        if (plan->n[r] == 0) continue;
        if (found >= 0) return -1;
        found = r;
    }
    return found;
}

/* The plan of one policy, and what is predicted of it, as candidates of `all`. `fixed`: where head and owners go was wished for. */
static ech_status one_policy(const struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work,
                             bool fixed, struct echi_choice *all, struct echi_plan *out, char *text, size_t cap) {
    struct echi_plan_request *w = &work->placed;
    *w = *request;
    best_place(w, times, work);
    best_exchange(w, times, work);
    const bool open = request->shards == ECHI_SHARDS_AUTO && request->exchange != ECHI_EXCHANGE_RING && !request->keep_all;
    if (w->sync == ECHI_SYNC_BSP && open && !(w->separate == 1 && w->has_cut)) best_workers(w, times, work);
    const ech_status status = echi_plan_make(w, times, out, text, cap);
    if (status != ECH_OK) return status;
    const int alone = w->sync == ECHI_SYNC_BSP && request->shards == ECHI_SHARDS_AUTO ? only_worker(out) : -1;
    if (alone >= 0) {   /* it owns all, and waits for nobody */
        out->owner_of[0] = (uint16_t)alone;
        w->shards = 1;
    }
    if (echi_policy_of(w->sync)->grouped && w->groups == 0) {
        all->taken = best_groups(w, times, work, all, out);
        if (!fixed) place_again(w, times, work, &all->candidate[all->taken], out);
    } else {
        all->taken = all->count;
        all->candidate[all->count++] = candidate_of(w, times, out, work);
    }
    all->candidate[all->taken].samples_per_step = w->samples_per_step;
    return ECH_OK;
}

/* How long steps are, where nobody says and nobody waits for a round: long ones cost fewer messages, short ones less staleness.
 * Sets what is the best of a few lengths for the plan request as it is, by goodput. */
static void best_length(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    static const double rounds[] = {3, 2, 1.5, 1};
    static const uint32_t samples[] = {0, 16, 32, 64};   /* 0: the planner's */
    struct echi_plan_request own = *w;
    double best = 0;
    if (w->sync == ECHI_SYNC_BSP || w->samples_per_step > 0) return;
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        char text[2];
        if (w->separate) own.under_way = rounds[i];
        else own.samples_per_step = samples[i];
        if (echi_plan_make(&own, times, &work->tried, text, sizeof text) != ECH_OK) continue;
        const double goodput = candidate_of(w, times, &work->tried, work).goodput;
        if (goodput <= best * CLEARLY) continue;
        best = goodput;
        w->under_way = own.under_way;
        w->samples_per_step = own.samples_per_step;
    }
}

/* Of all policies, those with a bound: one without is never clearly faster than groups, whose staleness nobody has to fear. */
static ech_status all_policies(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                               struct echi_choice *all, struct echi_plan *out, char *text, size_t cap) {
    static const enum echi_sync policy[] = {ECHI_SYNC_BSP, ECHI_SYNC_SSP, ECHI_SYNC_GSSP};
    _Static_assert(2 * (sizeof policy / sizeof policy[0]) == ECHI_CHOICES_MAX, "each has its plan");
    double best = 0;
    if (w->separate == 1 && !w->has_cut) return echi_plan_make(w, times, out, text, cap);   /* refused there, with a sentence */
    for (size_t i = 0; i < sizeof policy / sizeof policy[0]; i++)
        for (int separated = w->separate == 1; separated <= (w->has_cut && w->separate != 0); separated++) {
            struct echi_plan_request own = *w;
            struct echi_choice groups = {.count = 0};
            own.sync = policy[i];
            own.separate = separated;
            if (policy[i] == ECHI_SYNC_BSP) own.samples_per_step = 0;
            if (policy[i] != ECHI_SYNC_GSSP) own.groups = 0;
            best_place(&own, times, work);
            best_length(&own, times, work);
            if (one_policy(&own, times, work, w->home > 0, &groups, &work->policy[all->count], text, cap) != ECH_OK) continue;
            struct echi_candidate c = groups.candidate[groups.taken];
            c.samples_per_step = own.samples_per_step;
            c.under_way = own.under_way;
            if (policy[i] == ECHI_SYNC_GSSP && c.groups == 1) continue;   /* that is ssp */
            all->candidate[all->count++] = c;
            if (c.goodput > best) best = c.goodput;
        }
    if (all->count == 0) return ECH_E_ARGUMENT;   /* the sentence of the last one stands */
    while (all->candidate[all->taken].goodput * CLEARLY < best) all->taken++;
    *out = work->policy[all->taken];
    return ECH_OK;
}

static ech_status choose(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                         struct echi_choice *out, struct echi_plan *plan, char *text, size_t cap) {
    *out = (struct echi_choice){.net_negative = -1, .alone = -1};
    if (w->choose && w->world > 1) return all_policies(w, times, work, out, plan, text, cap);
    return one_policy(w, times, work, w->home > 0, out, plan, text, cap);
}

/* ---- net-negative ---- */

/* How slow a rank is, in one of several ways: a step and its messages there alone, its arithmetic, its link, its owner's work. */
static double slowness(const struct echi_times *t, uint32_t n, const struct echi_load *load, int way) {
    const double rate = echi_link_slower(&t->link), link = rate > 0 ? ((double)load->trunk + load->head) / rate : 0;
    switch (way) {
    case 0: return echi_times_whole(t, n) + 2 * (t->exchange + t->delay + link) + t->messages;
    case 1: return echi_times_whole(t, 64);
    case 2: return link;
    case 3: return t->delay;
    default: return t->exchange;
    }
}

/* The slowest in each way, of those who have a part in the plan: an owner need not be a worker. */
static int suspects(const struct echi_plan_request *w, const struct echi_plan *plan, const struct echi_times *times, int out[SUSPECTS]) {
    int count = 0;
    for (int way = 0; way < SUSPECTS; way++) {
        double most = 0;
        int worst = -1;
        for (int r = 0; r < plan->world; r++) {
            if (plan->group_of[r] == ECHI_NONE && echi_plan_group_owned(plan, r) < 0 && !(plan->separated && plan->head == r)) continue;
            const double here = slowness(&times[r], plan->n[r], &w->load, way);
            if (!(here > most)) continue;
            most = here;
            worst = r;
        }
        bool known = worst < 0;
        for (int i = 0; i < count; i++) known = known || out[i] == worst;
        if (!known) out[count++] = worst;
    }
    return count;
}

/* Named owners of shards, by the numbers that ranks have without those who are absent. */
static void close_up_owners(struct echi_plan_request *w) {
    int owners = 0;
    for (int k = 0; k < w->shards && w->shard_rank_given; k++) {
        int before = 0;
        for (int r = 0; r < w->shard_rank[k]; r++) before += !w->absent[r];
        if (!w->absent[w->shard_rank[k]]) w->shard_rank[owners++] = (uint16_t)before;
    }
    if (w->shard_rank_given) w->shards = owners;
    w->shard_rank_given = w->shard_rank_given && owners > 1;
}

/* The choice that the same plan request comes to without one rank, made anew as a whole: policy, head, owners, groups and shares. Its plan
 * is work->without. A rank that `stays` has no part, but rank 0 still coordinates; else it is the choice of a run without that node, whose
 * ranks close up. */
static bool choose_without(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work, int rank,
                           bool stays, struct echi_choice *out) {
    struct echi_plan_request own = *w;
    char text[2];
    own.batch = echi_plan_request_round(w);   /* a default would be another with fewer nodes */
    own.absent[rank] = true;
    if (!stays) {
        close_up_owners(&own);
        own.world = 0;
        for (int r = 0; r < w->world; r++)
            if (!own.absent[r]) work->times[own.world++] = times[r];
        memset(own.absent, 0, sizeof own.absent);
        times = work->times;
    }
    return choose(&own, times, work, out, &work->without, text, sizeof text) == ECH_OK;
}

/* Rounds without a node whose steps alone would take too long to be worth a word, with some slack, since shares depend on who owns what. */
#define SLACK 1.1
static bool needed_in_rounds(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work, int rank,
                             double with) {
    struct echi_plan_request own = *w;
    char text[2];
    own.batch = echi_plan_request_round(w);
    own.absent[rank] = true;
    if (w->sync != ECHI_SYNC_BSP || echi_plan_make(&own, times, &work->tried, text, sizeof text) != ECH_OK) return false;
    return echi_predict_rounds_most(&work->tried, times, &work->predict) * SLACK < with * NET_NEGATIVE;
}

/* About what the same plan request is worth without one node: under the policy that was taken, with as many groups or with one fewer, which
 * may have been this node's own; or, where policies are compared, in step. A choice made anew for every suspect would take too long where
 * it compares policies, or numbers of groups. */
static double worth_about(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                          const struct echi_candidate *with, int rank) {
    double best = 0;
    for (int i = 0; i < (w->choose ? 4 : 2); i++) {
        struct echi_plan_request own = *w;
        char text[2];
        own.absent[rank] = true;
        own.sync = i < 2 ? (enum echi_sync)with->sync : ECHI_SYNC_BSP;
        own.separate = i < 2 ? with->separated : i == 3;
        own.groups = i < 2 && with->groups > i ? with->groups - i : 0;
        own.samples_per_step = own.sync == ECHI_SYNC_BSP ? 0 : with->samples_per_step;
        own.under_way = with->under_way;
        if ((i == 1 && with->groups < 2) || (i == 3 && (!w->has_cut || w->separate == 0)) || (i == 2 && w->separate == 1)) continue;
        if (echi_plan_make(&own, times, &work->tried, text, sizeof text) != ECH_OK) continue;
        const struct echi_candidate c = candidate_of(w, times, &work->tried, work);
        if (worth(w, &c) > best) best = worth(w, &c);
    }
    return best;
}

/* The rank whose absence gains the most, if that is worth a word: images a second, less what staleness costs where that is weighed.
 * The gain is that of the choice made without it: *without, whose plan is work->without. So nobody is named for a gain that the plan
 * without it would not have. */
static int find_net_negative(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                        const struct echi_plan *plan, const struct echi_choice *now, bool stays, struct echi_choice *without,
                        double *out_gain) {
    int suspect[SUSPECTS];
    double value[SUSPECTS];
    const double with = worth(w, &now->candidate[now->taken]);
    if (w->shares == ECHI_SHARES_LIST || echi_plan_workers(plan, -1) < 2) return -1;
    const int count = suspects(w, plan, times, suspect);
    const bool many = w->choose || (echi_policy_of(w->sync)->grouped && w->groups == 0);
    for (int i = 0; i < count; i++) {
        if (many) value[i] = worth_about(w, times, work, &now->candidate[now->taken], suspect[i]);
        else if (needed_in_rounds(w, times, work, suspect[i], with)) value[i] = 0;
        else value[i] = choose_without(w, times, work, suspect[i], stays, without) ? worth(w, &without->candidate[without->taken]) : 0;
    }
    for (;;) {
        int best = 0;
        for (int i = 1; i < count; i++)
            if (value[i] > value[best]) best = i;
        if (count == 0 || !(value[best] > with * NET_NEGATIVE)) return -1;
        value[best] = 0;
        if (!choose_without(w, times, work, suspect[best], stays, without)) continue;
        *out_gain = worth(w, &without->candidate[without->taken]) / with - 1;
        if (*out_gain > NET_NEGATIVE - 1) return suspect[best];
    }
}

/* Says who holds the others up, and where that may be leaves them out, one after the other, as long as it gains. */
static void leave_out(struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work, bool may,
                      struct echi_plan *plan, struct echi_choice *out) {
    struct echi_choice next;
    double gain;
    int rank = find_net_negative(w, times, work, plan, out, may, &next, &gain);
    if (rank < 0) return;
    out->net_negative = rank;
    out->gain = gain;
    for (int i = 0; may && rank >= 0 && i < LEFT_OUT_MOST; i++) {
        if (next.candidate[next.taken].goodput < out->candidate[out->taken].goodput) break;
        w->absent[rank] = true;
        next.net_negative = out->net_negative;
        next.gain = out->gain;
        next.left_out = true;
        *out = next;
        *plan = work->without;
        rank = find_net_negative(w, times, work, plan, out, may, &next, &gain);
    }
}

/* Of the slower direction. */
static double highest(const struct echi_link *l) { return l->out.highest < l->in.highest ? l->out.highest : l->in.highest; }

/* Marks as absent those whose links were never seen to carry more than a so many times smaller rate than those of this part of all, the
 * fastest, did carry: with one partner at least, since with a thin one each carries little. Returns how many they are. */
static int leave_thin_out(struct echi_plan_request *w, const struct echi_times *times, int fastest, double thinner,
                          double rate[ECHI_WORLD_MAX]) {
    int here = 0, thin = 0;
    for (int r = 0; r < w->world; r++) {
        if (w->absent[r]) continue;
        if (!echi_link_known(&times[r].link)) return 0;
        const double carried = echi_link_slower(&times[r].link);
        int at = here++;
        for (; at > 0 && rate[at - 1] > carried; at--) rate[at] = rate[at - 1];
        rate[at] = carried;
    }
    const int slowest = here - fastest * here / 4;   /* of the fastest ones */
    for (int r = 0; r < w->world && slowest < here; r++) {
        if (w->absent[r] || highest(&times[r].link) * thinner > rate[slowest]) continue;
        w->absent[r] = true;
        thin++;
    }
    return thin;
}

/* Under a policy that was given whoever holds the others up is only named, but for who is on a thin link: where each computes what it is
 * fast enough for, a link may leave nothing to compute. Rounds wait for each link, so under BSP half or a quarter of the nodes may make
 * more than all: that has to gain more, since it leaves more out. */
static void try_without_thin(struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                             struct echi_plan *plan, struct echi_choice *out) {
    static const struct { int fastest; double thinner, gains; } tries[] = {{3, THIN, CLEARLY}, {2, 1.5, 1.1}, {1, 1.5, 1.1}};
    const struct echi_plan_request all = *w;
    const double of_all = worth(w, &out->candidate[out->taken]);
    double best = 1;
    int before = 0;
    for (int i = 0; i < (w->sync == ECHI_SYNC_BSP ? 3 : 1) && !w->keep_all; i++) {
        struct echi_plan_request *own = &work->thin;
        struct echi_choice without;
        char text[2];
        *own = all;
        own->batch = echi_plan_request_round(w);
        const int thin = leave_thin_out(own, times, tries[i].fastest, tries[i].thinner, work->rate);
        if (thin == before || choose(own, times, work, &without, &work->without, text, sizeof text) != ECH_OK) continue;
        const double gain = worth(w, &without.candidate[without.taken]) / of_all;
        before = thin;
        if (gain < tries[i].gains * best) continue;
        best = gain;
        *w = *own;
        *out = without;
        out->thin = thin;
        out->thin_gain = gain - 1;
        *plan = work->without;
    }
}

/* What the plan gains by its shards, where several owners' rounds are predicted. */
static void compare_with_one_owner(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX],
                                   struct echi_choice_work *work, const struct echi_plan *plan, struct echi_choice *out) {
    if (!plan->shards || !echi_predict_by_part(plan)) return;
    work->tried = *plan;
    echi_plan_undivide(&work->tried);
    work->tried.parts.count = 0;
    echi_plan_parts(w, times, &work->tried);
    out->one_owner = predicted(w, times, &work->tried, work).rate;
}

/* Marks the slower half of the nodes that are there as absent, by a step and its messages. Returns how many are left. */
static int leave_half_out(struct echi_plan_request *w, const struct echi_times *times) {
    int here = 0;
    for (int r = 0; r < w->world; r++) here += !w->absent[r];
    const int left = here - here / 2;
    for (; here > left; here--) {
        int slowest = -1;
        double most = 0;
        for (int r = 0; r < w->world; r++) {
            const double seconds = w->absent[r] ? -1 : slowness(&times[r], echi_plan_request_round(w) / (uint32_t)left, &w->load, 0);
            if (!(seconds > most)) continue;
            most = seconds;
            slowest = r;
        }
        if (slowest < 0) break;
        w->absent[slowest] = true;
    }
    return here;
}

/* Of rounds in which many send the whole model, no single node is worth leaving out, and half of them are: sixteen nodes of speeds 1 to 8,
 * 2.8 MB, 1 Gb/s: 739 images/s predicted with all, 997 with eight, 1,661 with four, 2,953 with two. */
static void leave_halves_out(struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], struct echi_choice_work *work,
                             struct echi_choice *out) {
    struct echi_plan_request *half = &work->half;
    *half = *w;
    half->batch = echi_plan_request_round(w);
    while (leave_half_out(half, times) >= 2) {
        struct echi_choice fewer;
        char text[2];
        if (choose(half, times, work, &fewer, &work->without, text, sizeof text) != ECH_OK) return;
        if (fewer.candidate[0].goodput < out->candidate[0].goodput * NET_NEGATIVE) return;
        fewer.left_out = true;
        *out = fewer;
        *w = *half;
        work->in_step = work->without;
    }
}

static void ask_for_rounds(const struct echi_plan_request *request, struct echi_plan_request *out) {
    *out = *request;
    out->choose = false;
    out->sync = ECHI_SYNC_BSP;
    out->groups = 0;
    out->samples_per_step = 0;
}

/* The choice of a run of one node, the fastest at a whole round, which waits for nobody. Its plan is work->without. Returns who it is; -1
 * where there is no such choice. */
static int choose_alone(const struct echi_plan_request *request, const struct echi_times *times, struct echi_choice_work *work,
                        struct echi_choice *out) {
    struct echi_plan_request *w = &work->half;
    char text[2];
    int best = -1;
    if (request->world < 2 || request->separate == 1 || request->keep_all) return -1;
    ask_for_rounds(request, w);
    w->batch = echi_plan_request_round(request);
    for (int r = 0; r < w->world; r++)
        if (!w->absent[r] && (best < 0 || echi_times_whole(&times[r], w->batch) < echi_times_whole(&times[best], w->batch))) best = r;
    for (int r = 0; r < w->world; r++) w->absent[r] = r != best;
    return choose(w, times, work, out, &work->without, text, sizeof text) == ECH_OK ? best : -1;
}

/* Under a policy that was given nobody is left out for this, but it is worth a word. */
static void compare_with_one_node(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX],
                                  struct echi_choice_work *work, const struct echi_plan *plan, struct echi_choice *out) {
    struct echi_choice alone;
    const int rank = echi_plan_workers(plan, -1) > 1 ? choose_alone(w, times, work, &alone) : -1;
    const double gain = rank < 0 ? 0 : worth(w, &alone.candidate[0]) / worth(w, &out->candidate[out->taken]);
    if (gain <= NET_NEGATIVE) return;
    out->alone = rank;
    out->alone_gain = gain - 1;
}

/* A round waits for all nodes and all links, so rounds gain the most where nodes are left out: with fewer they may be better than what was
 * better than they with all. ResNet-18, a quarter of its width, on `strong`: 1,230 images/s predicted in step with all, 2,090 with four. */
static void try_in_step(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX],
                        struct echi_choice_work *work, struct echi_plan *plan, struct echi_choice *out, char *text, size_t cap) {
    struct echi_plan_request *w = &work->rounds;
    struct echi_choice in_step, alone;
    ask_for_rounds(request, w);
    if (choose(w, times, work, &in_step, &work->in_step, text, cap) != ECH_OK) return;
    leave_halves_out(w, times, work, &in_step);
    leave_out(w, times, work, true, &work->in_step, &in_step);
    if (choose_alone(request, times, work, &alone) >= 0 && alone.candidate[0].goodput > in_step.candidate[0].goodput * CLEARLY) {
        in_step = alone;
        in_step.left_out = true;
        work->in_step = work->without;
    }
    if (in_step.candidate[0].goodput < out->candidate[out->taken].goodput * CLEARLY) return;
    out->candidate[0] = in_step.candidate[0];   /* bsp is the first of those that are compared */
    out->taken = 0;
    out->net_negative = in_step.net_negative;
    out->gain = in_step.gain;
    out->left_out = in_step.left_out;
    *plan = work->in_step;
}

ech_status echi_plan_choose(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX],
                            struct echi_choice_work *work, struct echi_plan *plan, struct echi_choice *out, char *text, size_t cap) {
    struct echi_plan_request *w = &work->left;
    *w = *request;
    const ech_status status = choose(w, times, work, out, plan, text, cap);
    if (status != ECH_OK) return status;
    if (!w->choose) try_without_thin(w, times, work, plan, out);
    leave_out(w, times, work, w->choose, plan, out);
    if (w->choose && w->world > 1) try_in_step(request, times, work, plan, out, text, cap);
    else compare_with_one_node(request, times, work, plan, out);
    compare_with_one_owner(request, times, work, plan, out);
    return ECH_OK;
}

void echi_plan_judge(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan,
                     struct echi_choice_work *work, struct echi_choice *out) {
    *out = (struct echi_choice){.net_negative = -1, .alone = -1};
    for (int r = 0; r < plan->world; r++)
        if (w->absent[r]) return;   /* lost, and its times not known */
    out->candidate[out->count++] = predicted(w, times, plan, work);
    compare_with_one_owner(w, times, work, plan, out);
}
