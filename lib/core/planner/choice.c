/* SPDX-License-Identifier: Apache-2.0
 * Who is left out of a plan, or held up by whom: nodes that are net-negative, that are on thin links, the slower half, all but one. */
#include "echi_choice_impl.h"
#include "echi_predict_rounds.h"

#include <string.h>

/* A node is named as net-negative when the others are so many times faster without it. */
#define NET_NEGATIVE 1.05
/* A link is thin when those of others carry so many times as much. */
#define THIN 3
/* So many are looked at, the slowest in as many ways; and so many may be left out, one after the other. */
#define SUSPECTS 5
#define LEFT_OUT_MOST 4

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
            if (plan->group_of[r] == ECHI_NONE && echi_plan_group_owned(plan, r) < 0 && echi_plan_head_index(plan, r) < 0) continue;
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
    return echi_choice_make(&own, times, work, out, &work->without, text, sizeof text) == ECH_OK;
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
        own.separate = i < 2 ? with->cut > 0 : i == 3;
        own.groups = i < 2 && with->groups > i ? with->groups - i : 0;
        own.samples_per_step = own.sync == ECHI_SYNC_BSP ? 0 : with->samples_per_step;
        own.under_way = with->under_way;
        if ((i == 1 && with->groups < 2) || (i == 3 && (!w->has_cut || w->separate == 0)) || (i == 2 && w->separate == 1)) continue;
        if (echi_plan_make(&own, times, &work->tried, text, sizeof text) != ECH_OK) continue;
        const struct echi_candidate c = echi_candidate_of(w, times, &work->tried, work);
        if (echi_candidate_worth(w, &c) > best) best = echi_candidate_worth(w, &c);
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
    const double with = echi_candidate_worth(w, &now->candidate[now->taken]);
    if (w->shares == ECHI_SHARES_LIST || echi_plan_workers(plan, -1) < 2) return -1;
    const int count = suspects(w, plan, times, suspect);
    const bool many = w->choose || (echi_policy_of(w->sync)->grouped && w->groups == 0);
    for (int i = 0; i < count; i++) {
        if (many) value[i] = worth_about(w, times, work, &now->candidate[now->taken], suspect[i]);
        else if (needed_in_rounds(w, times, work, suspect[i], with)) value[i] = 0;
        else if (!choose_without(w, times, work, suspect[i], stays, without)) value[i] = 0;
        else value[i] = echi_candidate_worth(w, &without->candidate[without->taken]);
    }
    for (;;) {
        int best = 0;
        for (int i = 1; i < count; i++)
            if (value[i] > value[best]) best = i;
        if (count == 0 || !(value[best] > with * NET_NEGATIVE)) return -1;
        value[best] = 0;
        if (!choose_without(w, times, work, suspect[best], stays, without)) continue;
        *out_gain = echi_candidate_worth(w, &without->candidate[without->taken]) / with - 1;
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
        if (echi_candidate_worth(w, &next.candidate[next.taken]) < echi_candidate_worth(w, &out->candidate[out->taken])) break;
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
    static const struct { int fastest; double thinner, gains; } tries[] = {{3, THIN, ECHI_CLEARLY}, {2, 1.5, 1.1}, {1, 1.5, 1.1}};
    const struct echi_plan_request all = *w;
    const double of_all = echi_candidate_worth(w, &out->candidate[out->taken]);
    double best = 1;
    int before = 0;
    for (int i = 0; i < (w->sync == ECHI_SYNC_BSP ? 3 : 1) && !w->keep_all; i++) {
        struct echi_plan_request *own = &work->thin;
        struct echi_choice without;
        char text[2];
        *own = all;
        own->batch = echi_plan_request_round(w);
        const int thin = leave_thin_out(own, times, tries[i].fastest, tries[i].thinner, work->rate);
        if (thin == before || echi_choice_make(own, times, work, &without, &work->without, text, sizeof text) != ECH_OK) continue;
        const double gain = echi_candidate_worth(w, &without.candidate[without.taken]) / of_all;
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
    out->one_owner = echi_candidate_predicted(w, times, &work->tried, work).rate;
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
        if (echi_choice_make(half, times, work, &fewer, &work->without, text, sizeof text) != ECH_OK) return;
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
    return echi_choice_make(w, times, work, out, &work->without, text, sizeof text) == ECH_OK ? best : -1;
}

/* Under a policy that was given nobody is left out for this, but it is worth a word. */
static void compare_with_one_node(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX],
                                  struct echi_choice_work *work, const struct echi_plan *plan, struct echi_choice *out) {
    struct echi_choice alone;
    const int rank = echi_plan_workers(plan, -1) > 1 ? choose_alone(w, times, work, &alone) : -1;
    const double gain = rank < 0 ? 0 : echi_candidate_worth(w, &alone.candidate[0]) / echi_candidate_worth(w, &out->candidate[out->taken]);
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
    if (echi_choice_make(w, times, work, &in_step, &work->in_step, text, cap) != ECH_OK) return;
    leave_halves_out(w, times, work, &in_step);
    leave_out(w, times, work, true, &work->in_step, &in_step);
    if (choose_alone(request, times, work, &alone) >= 0 && alone.candidate[0].goodput > in_step.candidate[0].goodput * ECHI_CLEARLY) {
        in_step = alone;
        in_step.left_out = true;
        work->in_step = work->without;
    }
    if (echi_candidate_worth(request, &in_step.candidate[0]) < echi_candidate_worth(request, &out->candidate[out->taken]) * ECHI_CLEARLY)
        return;
    out->candidate[0] = in_step.candidate[0];   /* bsp is the first of those that are compared */
    out->taken = 0;
    out->net_negative = in_step.net_negative;
    out->gain = in_step.gain;
    out->left_out = in_step.left_out;
    *plan = work->in_step;
}

ech_status echi_plan_choose(const struct echi_plan_request *wished, const struct echi_times measured[ECHI_WORLD_MAX],
                            struct echi_choice_work *work, struct echi_plan *plan, struct echi_choice *out, char *text, size_t cap) {
    struct echi_plan_request *w = &work->left, *request = &work->asked;
    *request = *wished;
    const struct echi_times *times = echi_choice_cut(request, measured, work);
    *w = *request;
    const ech_status status = echi_choice_make(w, times, work, out, plan, text, cap);
    if (status != ECH_OK) return status;
    if (!w->choose) try_without_thin(w, times, work, plan, out);
    leave_out(w, times, work, w->choose, plan, out);
    const bool any = w->choose && w->world > 1;
    if (any) try_in_step(request, times, work, plan, out, text, cap);
    echi_choice_tables(w, times, work, plan, out);
    if (!any) compare_with_one_node(request, times, work, plan, out);
    compare_with_one_owner(request, times, work, plan, out);
    return ECH_OK;
}

void echi_plan_judge(const struct echi_plan_request *w, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan,
                     struct echi_choice_work *work, struct echi_choice *out) {
    *out = (struct echi_choice){.net_negative = -1, .alone = -1};
    for (int r = 0; r < plan->world; r++)
        if (w->absent[r]) return;   /* lost, and its times not known */
    out->candidate[out->count++] = echi_candidate_predicted(w, times, plan, work);
    compare_with_one_owner(w, times, work, plan, out);
}
