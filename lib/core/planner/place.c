/* SPDX-License-Identifier: Apache-2.0
 * Where a plan has its head, owners and shards, how gradients are summed, and how many nodes train: what is predicted to be the best. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

/* Several owners, the loss of any of which would end the run, are worth that when they make a run so many times faster. */
#define WORTH_A_RISK 1.1

bool echi_choice_links_alike(const struct echi_plan_request *w, const struct echi_times *times) {
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

static bool grouped(const struct echi_plan_request *w) { return echi_policy_of(w->sync)->grouped && w->groups != 1; }

/* Each group has an owner of its own, and nobody has a head. */
static bool owners_alone(const struct echi_plan_request *w) {
    const bool separated = w->has_cut && (w->separate == 1 || (w->separate == -1 && w->sync == ECHI_SYNC_GSSP));
    return !separated && grouped(w);
}

/* There is one way to place owners, so nothing to predict: a prediction among 1,024 nodes takes a tenth of a second. */
bool echi_choice_one_way(const struct echi_plan_request *w, const struct echi_times *times) {
    return owners_alone(w) && echi_choice_links_alike(w, times);
}

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
    if (!echi_choice_links_alike(w, times)) found[3] = echi_plan_best_link(w, times, but);
    for (int i = 0; i < PLACES; i++) {
        bool known = found[i] < 0 || w->absent[found[i]];
        for (int k = 0; k < count; k++) known = known || out[k] == found[i];
        if (!known) out[count++] = found[i];
    }
    return count;
}

/* Sets where the head and owners go: of all places that are not clearly worse than the best the first. */
void echi_choice_place(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    int place[PLACES], taken = -1;
    double value[2 * PLACES], best = 0;
    struct echi_plan_request *own = &work->trial;
    *own = *w;
    const int count = w->world > 1 && w->home == 0 && !echi_choice_one_way(w, times) ? places(w, times, place) : 0;
    const bool groups = grouped(w) && !echi_choice_links_alike(w, times);
    own->shards = 1;
    for (int i = 0; i < 2 * count; i++) {
        char text[2];
        value[i] = 0;
        own->home = (uint16_t)(1 + place[i / 2]);   /* 0: anywhere */
        own->owners = i % 2 ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
        if ((i % 2 && !groups) || echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK) continue;
        const struct echi_candidate c = echi_candidate_of(own, times, &work->tried, work);
        value[i] = echi_candidate_worth(w, &c);
        if (value[i] > best) best = value[i];
    }
    for (int i = 0; i < 2 * count && taken < 0; i++)
        if (value[i] > 0 && value[i] * ECHI_CLEARLY >= best) taken = i;
    if (taken < 0) return;
    w->home = (uint16_t)(1 + place[taken / 2]);
    w->owners = taken % 2 ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
}

/* Images a second of rounds with so many owners, less where the loss of any of several owners ends the run. 0 where they are certain to be
 * fewer than `floor`. */
static double worth_of_shards(const struct echi_plan_request *w, const struct echi_times *times, double floor,
                              struct echi_choice_work *work) {
    char text[2];
    if (echi_plan_make(w, times, &work->tried, text, sizeof text) != ECH_OK) return 0;
    const double rate = echi_candidate_rate(w, times, &work->tried, floor, work);
    return work->tried.shards > 0 && !echi_plan_outlives_owners(&work->tried) ? rate / WORTH_A_RISK : rate;
}

/* Sets how many owners share the parts, and who they are: of those that are not clearly worse than the best the fewest. What is predicted
 * is a round part by part. Rank 0 is one of them where it trains: then the run outlives the others. Returns what they are worth, 0 where
 * owners were wished for, or nothing is predicted, or they are certain to be worth less than `floor`: then what is set is nothing to go
 * by. */
static double best_shards(struct echi_plan_request *w, const struct echi_times *times, double floor, struct echi_choice_work *work) {
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
            value[i][k] = worth_of_shards(own, times, floor, work);
            if (value[i][k] > best) best = value[i][k];
            enough = value[i][k] > 0 && value[i][k] * ECHI_CLEARLY >= echi_predict_rounds_most(&work->tried, times, &work->predict);
        }
    for (int k = 1; k <= most && best > 0; k++)
        for (int i = 0; i < 2; i++) {
            if (!(value[i][k] > 0 && value[i][k] * ECHI_CLEARLY >= best)) continue;
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
    const double rate = w->sync == ECHI_SYNC_BSP && w->layers.count > 0 ? worth_of_shards(own, times, 0, work) : 0;
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
void echi_choice_exchange(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    const bool open = w->exchange == ECHI_EXCHANGES, any = w->shards == ECHI_SHARDS_AUTO;
    const bool tries = any && (open ? w->world > 2 : w->exchange == ECHI_EXCHANGE_RING);
    const double ring = tries ? worth_of_ring(w, times, work) : 0;
    if (open || (any && ring <= 0)) w->exchange = ECHI_EXCHANGE_SERVER;
    if (!(any && w->exchange == ECHI_EXCHANGE_RING)) {
        const double server = best_shards(w, times, 0, work);
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
void echi_choice_workers(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    struct echi_plan_request *own = &work->fewer;
    int here = 0;
    bool known = true;   /* else links hold nobody up, as far as is known */
    for (int r = 0; r < w->world; r++) {
        here += !w->absent[r];
        known = known && (w->absent[r] || echi_link_known(&times[r].link));
    }
    if (!known || here < 3 || here > FEWER_WORLD) return;
    double best = FEWER_GAIN * worth_of_shards(w, times, 0, work);
    for (int i = 0; best > 0 && (i < 2 || here >> i >= 2); i++) {   /* half of them, then three quarters, a quarter, an eighth ... */
        const int k = i == 0 ? here / 2 : i == 1 ? here - (here + 3) / 4 : here >> i;
        if (k < 2) continue;
        *own = *w;
        own->workers = k;
        own->exchange = ECHI_EXCHANGE_SERVER;
        own->shards = ECHI_SHARDS_AUTO;
        const double value = best_shards(own, times, best / ECHI_CLEARLY, work);   /* one clearly below may beat none that is taken */
        if (!(value > best)) continue;
        best = FEWER_FURTHER * value;
        *w = *own;
    }
}
