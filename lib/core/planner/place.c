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

/* Sets how much the head's work counts against its own node's share of a round. By all of it that node is done when the others are, but
 * they wait for the head in the middle of a round, in which it has time for a share of its own: AlexNet, four live hosts of half a core,
 * 1 Gb/s, B 32: 25.9 images/s with shares of 0, 8, 8 and 16, the head's first, and 27.1 with 8 each. */
void echi_choice_beside_head(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    struct echi_plan_request *own = &work->trial;
    double best = 0;
    if (w->sync != ECHI_SYNC_BSP || !w->has_cut || w->separate != 1 || w->shares != ECHI_SHARES_SPEED) return;
    *own = *w;
    for (int i = 0; i <= 2; i++) {
        char text[2];
        own->beside_head = 0.5 * i;
        if (echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK) continue;
        const double rate = echi_candidate_rate(own, times, &work->tried, best, work);
        if (!(rate > best * ECHI_CLEARLY)) continue;
        best = rate;
        w->beside_head = own->beside_head;
    }
}

/* A plan of rounds that is worth less than the best over this is not taken, whatever it is worth; so it need not be known. */
#define BELOW_ALL (ECHI_CLEARLY * (1 + 1e-9))

double echi_choice_risk(const struct echi_plan *plan) {
    return plan->shards > 0 && !echi_plan_outlives_owners(plan) ? WORTH_A_RISK : 1;
}

/* Images a second of rounds with so many owners, less where the loss of any of several owners ends the run. 0 where they are certain to be
 * fewer than `floor`. */
static double worth_of_shards(const struct echi_plan_request *w, const struct echi_times *times, double floor,
                              struct echi_choice_work *work) {
    char text[2];
    if (echi_plan_make(w, times, &work->tried, text, sizeof text) != ECH_OK) return 0;
    const double rate = echi_candidate_rate(w, times, &work->tried, floor, work);
    return rate / echi_choice_risk(&work->tried);
}

/* Plans that differ by their owners: 1, 2, 4, ... and all, of each number the usual ones and others. */
#define OWNERS_TRIED (2 * 8)
_Static_assert(ECHI_SHARDS_MAX <= 128, "1, 2, ... 64 and all are eight numbers");
/* Worth at most what links allow; without owners and links what steps alone do. */
struct owners_tried { int shards; enum echi_owners owners; double by_links, by_steps, value; bool played; };

static void look_at(struct echi_plan_request *own, const struct echi_times *times, struct echi_choice_work *work, struct owners_tried *t) {
    char text[2];
    own->shards = t->shards;
    own->owners = t->owners;
    t->played = echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK;   /* there is no such plan */
    if (t->played) return;
    t->by_links = echi_candidate_by_links(own, times, &work->tried, work) / echi_choice_risk(&work->tried);
    t->by_steps = echi_predict_rounds_most(&work->tried, times, &work->predict);
}

static void play(struct echi_plan_request *own, const struct echi_times *times, struct echi_choice_work *work, double floor,
                 struct owners_tried *t) {
    own->shards = t->shards;
    own->owners = t->owners;
    t->played = true;
    t->value = worth_of_shards(own, times, floor, work);
}

/* No owners can make clearly more. */
static bool enough(const struct owners_tried *t, double value) { return value > 0 && value * ECHI_CLEARLY >= t->by_steps; }

/* Fills in `tried` in the order in which owners are preferred; returns how many count: those behind such as are enough do not. What links
 * allow the most of is played first, and what they do not allow as much of as was predicted is not played at all. */
static int try_owners(struct echi_plan_request *own, const struct echi_times *times, struct echi_choice_work *work, int most, double floor,
                      struct owners_tried tried[OWNERS_TRIED]) {
    int count = 0;
    double best = floor * BELOW_ALL;
    bool over = false;
    for (int k = 1; k <= most && !over; k = k < most && 2 * k > most ? most : 2 * k)
        for (int i = 0; i < (k == 1 ? 1 : 2) && !over; i++) {
            struct owners_tried *t = &tried[count++];
            *t = (struct owners_tried){.shards = k, .owners = i ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL};
            look_at(own, times, work, t);
            if (!enough(t, t->by_links)) continue;
            play(own, times, work, best / BELOW_ALL, t);   /* it may be, which has to be found out first */
            over = enough(t, t->value);
            best = echi_greater(best, t->value);
        }
    for (;;) {
        struct owners_tried *next = NULL;
        for (int i = 0; i < count; i++)
            if (!tried[i].played && (!next || tried[i].by_links > next->by_links)) next = &tried[i];
        if (!next || next->by_links * BELOW_ALL < best) return count;
        play(own, times, work, best / BELOW_ALL, next);
        best = echi_greater(best, next->value);
    }
}

struct owners_worth { double taken, best; };

/* Sets how many owners share the parts, and who they are: of those that are not clearly worse than the best the fewest. What is predicted
 * is a round part by part. Rank 0 is one of them where it trains: then the run outlives the others. Returns what they are worth, and what
 * the best would be; 0 where owners were wished for, or nothing is predicted, or they are certain to be worth less than `floor`: then what
 * is set is nothing to go by. */
static struct owners_worth best_shards(struct echi_plan_request *w, const struct echi_times *times, double floor,
                                       struct echi_choice_work *work) {
    struct owners_tried tried[OWNERS_TRIED];
    struct echi_plan_request *own = &work->trial;
    double best = 0;
    if (w->shards != ECHI_SHARDS_AUTO) return (struct owners_worth){0, 0};
    w->shards = 1;
    w->shard_of_rank0 = true;
    *own = *w;
    const int most = w->world < ECHI_SHARDS_MAX ? w->world : ECHI_SHARDS_MAX;
    const bool may = w->sync == ECHI_SYNC_BSP && w->codec == ECHI_CODEC_DENSE && w->layers.count > 0;
    const int count = may ? try_owners(own, times, work, most, floor, tried) : 0;
    for (int i = 0; i < count; i++) best = echi_greater(best, tried[i].value);
    for (int i = 0; i < count; i++) {
        if (!(tried[i].value > 0 && tried[i].value * ECHI_CLEARLY >= best)) continue;
        w->shards = tried[i].shards;
        w->owners = tried[i].owners;
        return (struct owners_worth){tried[i].value, best};
    }
    return (struct owners_worth){0, 0};
}

/* What a ring of all workers makes; 0: there can be none, or it is certain to make less than `floor`. */
static double worth_of_ring(const struct echi_plan_request *w, const struct echi_times *times, double floor,
                            struct echi_choice_work *work) {
    struct echi_plan_request *own = &work->trial;
    *own = *w;
    own->exchange = ECHI_EXCHANGE_RING;
    own->shards = w->world < ECHI_SHARDS_MAX ? w->world : ECHI_SHARDS_MAX;
    const double rate = w->sync == ECHI_SYNC_BSP && w->layers.count > 0 ? worth_of_shards(own, times, floor, work) : 0;
    return rate > 0 && echi_plan_rings(&work->tried) ? rate : 0;
}

/* Sets how gradients are summed, and with that how many own the parts. A ring of all workers is taken where it gains so much more than one
 * owner would, since it breaks with the first node that is lost. Where owners are several and it is predicted to be as fast, or nearly, it
 * is taken: on live links of large models it makes more of what it promises. 4 hosts of half a core, 1 Gb/s, batch 8 a host, images/s and
 * their part of what was predicted, ring and server: AlexNet 9.3 (0.97) and 9.1 (0.93), VGG-19 28.0 28.7 (0.97 0.98) and 28.0 26.9 (0.97
 * 0.93), ResNet-18 45.9 46.4 (0.99 1.00) and 46.8 47.4 (1.02 1.03). One that was wished for is taken where it can be. Owners that were
 * wished for stay. */
#define RING_GAINS 1.05
#define RING_LACKS 0.97   /* of the best owners', not of the fewest that are nearly as good: what is given up for ties would add up */
void echi_choice_exchange(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    const bool open = w->exchange == ECHI_EXCHANGES, any = w->shards == ECHI_SHARDS_AUTO;
    const bool tries = any && (open ? w->world > 2 : w->exchange == ECHI_EXCHANGE_RING);
    const struct echi_plan_request before = *w;
    if (open || (any && !(tries && worth_of_ring(w, times, 0, work) > 0))) w->exchange = ECHI_EXCHANGE_SERVER;
    if (!(any && w->exchange == ECHI_EXCHANGE_RING)) {
        const struct owners_worth server = best_shards(w, times, 0, work);
        const double enough = w->shards > 1 ? RING_LACKS * server.best : RING_GAINS * server.taken;
        const double ring = open && tries ? worth_of_ring(&before, times, enough, work) : 0;
        if (ring > 0 && ring >= enough) w->exchange = ECHI_EXCHANGE_RING;
    }
    if (any && w->exchange == ECHI_EXCHANGE_RING) w->shards = w->world < ECHI_SHARDS_MAX ? w->world : ECHI_SHARDS_MAX;
}

/* Sets how many heads there are, where that is left open: of those that are not clearly worse than the best the fewest, and several where
 * they are worth that the loss of any ends the run. */
void echi_choice_heads(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    struct echi_plan_request *own = &work->trial;
    double value[ECHI_HEADS_MAX + 1] = {0}, best = 0;
    if (w->heads != 0 || w->sync != ECHI_SYNC_BSP || !w->has_cut || w->separate != 1 || w->shadow || w->deterministic) return;
    *own = *w;
    for (own->heads = 1; own->heads <= ECHI_HEADS_MAX; own->heads++) {
        char text[2];
        if (echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK) break;
        value[own->heads] = echi_candidate_rate(own, times, &work->tried, 0, work) / (own->heads > 1 ? WORTH_A_RISK : 1);
        best = echi_greater(best, value[own->heads]);
    }
    w->heads = 1;
    while (w->heads < ECHI_HEADS_MAX && value[w->heads] * ECHI_CLEARLY < best) w->heads++;
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
        const double value = best_shards(own, times, best / ECHI_CLEARLY, work).taken;   /* one clearly below may beat none that is taken */
        if (!(value > best)) continue;
        best = FEWER_FURTHER * value;
        *w = *own;
    }
}
