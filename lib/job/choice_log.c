/* SPDX-License-Identifier: Apache-2.0
 * Why this plan: what rank 0 compared, what it took, and who holds the others up; and why it was changed while the run went. */
#include "echi_choice_log.h"
#include "echi_config_log.h"
#include "echi_planner.h"
#include "echi_print.h"
#include "echi_ratio.h"

#include <stdio.h>

/* "gssp, 3 groups, layer separation" */
static void name_of(const struct echi_candidate *c, char *buf, size_t cap) {
    struct echi_print l = {buf, cap, 0};
    echi_print(&l, "%s", echi_policy_of((enum echi_sync)c->sync)->name);
    if (c->groups > 1) echi_print(&l, ", %d groups", c->groups);
    if (c->cut) echi_print(&l, ", layer separation");
}

/* The best of those that were not taken; NULL: there was no other. */
static const struct echi_candidate *next_best(const struct echi_choice *c) {
    const struct echi_candidate *best = NULL;
    for (int i = 0; i < c->count; i++)
        if (i != c->taken && (!best || c->candidate[i].goodput > best->goodput)) best = &c->candidate[i];
    return best;
}

/* What is known of the efficiency that each candidate is predicted with. */
static void tell_efficiency(const struct ech_config *config, const struct echi_choice *c) {
    char name[64];
    double table = 0;
    for (int i = 0; i < c->count; i++) {
        const struct echi_candidate *k = &c->candidate[i];
        name_of(k, name, sizeof name);
        if (k->measured)
            echi_config_log(config, ECH_LOG_INFO, "plan: efficiency of %s is measured by earlier runs, give or take %.0f %%", name,
                            100 * k->error);
        else if (k->error > table) table = k->error;
    }
    if (table > 0)
        echi_config_log(config, ECH_LOG_INFO,
                        "plan: efficiency of the others is of a table made with LeNet-5, give or take %.0f %%: nothing is measured of "
                        "them with this model, data and learning rate%s", 100 * table,
                        config->efficiency[0] ? "" : "; --efficiency FILE keeps what runs measure");
}

static void tell_policies(const struct ech_config *config, const struct echi_choice *c) {
    char name[64], other[64];
    echi_config_log(config, ECH_LOG_INFO, "plan: %-28s %10s %10s %10s %10s", "predicted of", "images/s", "staleness", "efficiency",
                    "goodput");
    for (int i = 0; i < c->count; i++) {
        const struct echi_candidate *k = &c->candidate[i];
        name_of(k, name, sizeof name);
        echi_config_log(config, ECH_LOG_INFO, "plan: %-28s %10.0f %10.2f %10.2f %10.0f%s", name, k->rate, k->staleness, k->efficiency,
                        k->goodput, i == c->taken ? " *" : "");
    }
    tell_efficiency(config, c);
    const struct echi_candidate *k = &c->candidate[c->taken], *next = next_best(c);
    name_of(k, name, sizeof name);
    if (!next) return echi_config_log(config, ECH_LOG_INFO, "plan: %s, the only one that is possible here", name);
    name_of(next, other, sizeof other);
    if (k->goodput >= next->goodput)
        echi_config_log(config, ECH_LOG_INFO,
                        "plan: %s is taken: %.0f images/s, of which staleness leaves the worth of %.0f, are %.0f %% more than the next "
                        "best, %s, is worth", name, k->rate, k->goodput, 100 * (k->goodput / next->goodput - 1), other);
    else
        echi_config_log(config, ECH_LOG_INFO,
                        "plan: %s is taken: %s is predicted to be better by %.1f %%, too little to give up what is %s", name, other,
                        100 * (next->goodput / k->goodput - 1), next->error > k->error ? "better known" : "simpler");
}

static void tell_groups(const struct ech_config *config, const struct echi_choice *c) {
    char list[200];
    struct echi_print l = {list, sizeof list, 0};
    for (int i = 0; i < c->count; i++) echi_print(&l, "%s%.0f", i ? ", " : "", c->candidate[i].rate);
    echi_config_log(config, ECH_LOG_INFO, "plan: %d of 1 to %d groups: images/s are predicted to be %s", c->candidate[c->taken].groups,
                    c->count, list);
}

/* What rounds of several owners take is predicted unless `one_owner` is 0. */
static void tell_shards(const struct ech_config *config, const struct echi_choice *c, const struct echi_plan *plan) {
    char list[240];
    struct echi_print l = {list, sizeof list, 0};
    for (int k = 0; k < plan->shards; k++) echi_print(&l, "%s%d", k ? ", " : "", plan->shard_owner[k]);
    if (c->one_owner > 0) echi_print(&l, ": %.0f images/s are predicted, with one owner %.0f", c->candidate[c->taken].rate, c->one_owner);
    echi_config_log(config, ECH_LOG_INFO, "plan: %d shards, %sowned by ranks %s%s", plan->shards,
                    echi_plan_rings(plan) ? "gradients summed on a ring, " : "", list,
                    echi_plan_outlives_owners(plan) ? "" : "; the run ends if one of them is lost");
}

/* Where links take longer than steps some own parameters, and leave the training to others. */
static void tell_who_trains(const struct ech_config *config, const struct echi_plan *plan) {
    int serve = 0;
    for (int k = 0; k < plan->shards; k++) serve += plan->n[plan->shard_owner[k]] == 0;
    if (serve > 0)
        echi_config_log(config, ECH_LOG_INFO, "plan: %d of %d ranks train, and %d own parameters only, since links take longer than steps; "
                        "--shares equal gives all a share", echi_plan_workers(plan, -1), plan->world, serve);
}

/* Nodes that share processors and are alike: with any one fewer the others would be faster. */
static void tell_crowd(const struct ech_config *config, const struct echi_coordinator *coordinator, int processors) {
    const struct echi_choice *c = &coordinator->choice;
    char crowd[80];
    snprintf(crowd, sizeof crowd, "all %d nodes share %d processor%s of one machine", coordinator->request.world, processors,
             processors == 1 ? "" : "s");
    if (c->alone >= 0)
        echi_config_log(config, ECH_LOG_WARN, "%s: one node alone is predicted to make %.0f %% more images/s; start fewer nodes there",
                        crowd, 100 * c->alone_gain);
    else if (c->net_negative >= 0 && c->left_out)
        echi_config_log(config, ECH_LOG_WARN, "%s: without rank %d %.0f %% more images/s are predicted; it is left out", crowd,
                        c->net_negative, 100 * c->gain);
    else if (c->net_negative >= 0)
        echi_config_log(config, ECH_LOG_WARN, "%s: with one node fewer %.0f %% more images/s are predicted; start fewer nodes there", crowd,
                        100 * c->gain);
}

static void tell_single_ranks(const struct ech_config *config, const struct echi_coordinator *coordinator) {
    const struct echi_choice *c = &coordinator->choice;
    if (c->alone >= 0)
        echi_config_log(config, ECH_LOG_WARN,
                        "plan: rank %d alone is predicted to make %.0f %% more images/s than all together: links or messages are too slow "
                        "for this model; train on that node, or give --sync auto", c->alone, 100 * c->alone_gain);
    if (c->net_negative < 0) return;
    echi_config_log(config, ECH_LOG_WARN, "rank %d holds the others up: without it %.0f %% more images/s%s", c->net_negative, 100 * c->gain,
                    c->left_out ? "; it is left out"
                    : coordinator->request.choose ? "; run without it"
                                                 : "; run without it, or give --sync auto");
}

static void tell_cut(const struct ech_config *config, const struct echi_choice *c, const struct echi_job *job) {
    const struct echi_candidate *k = &c->candidate[c->taken];
    const char *from = c->cut < job->n_layers ? job->layer[c->cut].name : "?";
    if (k->cut)
        echi_config_log(config, ECH_LOG_INFO, "plan: layers from %s on are separated: %.0f images/s, of which staleness leaves the worth "
                        "of %.0f; with nothing separated %.0f, and %.0f", from, k->rate, k->goodput, c->other.rate, c->other.goodput);
    else
        echi_config_log(config, ECH_LOG_INFO, "plan: nothing is separated: %.0f images/s, of which staleness leaves the worth of %.0f; "
                        "with a head from %s on, which would be the best, %.0f, and %.0f", k->rate, k->goodput, from,
                        c->other.rate, c->other.goodput);
}

void echi_choice_log(const struct ech_config *config, const struct echi_coordinator *coordinator, const struct echi_job *job) {
    const struct echi_choice *c = &coordinator->choice;
    if (c->count == 0 || !config->on_log) return;
    if (coordinator->request.choose && !coordinator->plan_given) tell_policies(config, c);
    else if (c->count > 1) tell_groups(config, c);
    if (c->weighed) tell_cut(config, c, job);
    echi_config_log(config, ECH_LOG_INFO, "plan: predicted are %.0f images/s, %.2f rounds stale", c->candidate[c->taken].rate,
                    c->candidate[c->taken].staleness);
    if (coordinator->setup->plan.shards > 0) tell_shards(config, c, &coordinator->setup->plan);
    else if (coordinator->request.shards == ECHI_SHARDS_AUTO && !coordinator->plan_given)
        echi_config_log(config, ECH_LOG_INFO,
                        "plan: one owner, rank %d: more are predicted to gain less than 2 %% (10 %% where the loss of any would "
                        "end the run), or are not possible here",
                        coordinator->setup->plan.owner_of[0]);
    if (!coordinator->plan_given && coordinator->request.shares == ECHI_SHARES_SPEED)
        tell_who_trains(config, &coordinator->setup->plan);
    if (c->table_gain > 0)
        echi_config_log(config, ECH_LOG_INFO, "plan: parameters travel in %d parts: %.2g %% more images/s are predicted than with "
                        "the usual ones", coordinator->setup->plan.parts.count, 100 * c->table_gain);
    if (coordinator->request.exchange == ECHI_EXCHANGE_RING && !coordinator->plan_given && !echi_plan_rings(&coordinator->setup->plan))
        echi_config_log(config, ECH_LOG_WARN,
                        "plan: no ring is possible here, so owners take in gradients: it needs two nodes or more that train and own "
                        "parameters, no owner that trains nothing, and nothing else exchanged between layers");
    if (c->thin > 0)
        echi_config_log(config, ECH_LOG_WARN,
                        "plan: %d of %d ranks left out for a thin link: without, %.0f %% more images/s are predicted; --shares equal gives "
                        "all a share", c->thin, coordinator->request.world,
                        100 * c->thin_gain);
    const int processors = echi_times_crowded(coordinator->times, coordinator->request.world);
    if (processors > 0) tell_crowd(config, coordinator, processors);
    else tell_single_ranks(config, coordinator);
}

void echi_move_log(const struct ech_config *config, const struct echi_coordinator *coordinator, const struct echi_msg *m) {
    const struct echi_change *why = &coordinator->told;
    const struct echi_plan *plan = &coordinator->plan;
    if (!config->on_log) return;
    if (why->from == echi_plan_reserve(plan))
        return echi_config_log(config, ECH_LOG_INFO,
                               "rank %d returns to group %d: its steps of late (%d and more) took %.2f times as long as is usual there",
                               m->peer, m->group, ECHI_REGROUP_LASTING, why->ratio);
    echi_config_log(config, ECH_LOG_INFO,
                    "rank %d joins group %d%s: its steps of late (%d and more) took %.2f times as long as is usual in group %d, where it "
                    "was; %.0f %% more samples a second are expected of the move", m->peer, m->group,
                    m->group == echi_plan_reserve(plan) ? ", the reserve" : "", ECHI_REGROUP_LASTING, why->ratio, why->from,
                    100 * why->gain);
}

void echi_homes_log(const struct ech_config *config, const struct echi_coordinator *c, const struct echi_plan *plan,
                    const struct echi_msg *m) {
    const int shadow = m->part - 1;
    if (m->flag == ECHI_HEADS_COPY)
        return echi_config_log(config, ECH_LOG_INFO, "rank %d gets a copy of the separated layers from rank %d", m->peer, plan->head);
    if (m->peer != plan->head)
        echi_config_log(config, ECH_LOG_INFO,
                        "the separated layers move from rank %d, which takes %.2f times as long for them as at first, to rank %d: %.0f %% "
                        "more samples a second are predicted", plan->head, c->homes.slower, m->peer, 100 * c->homes.gain);
    if (shadow >= 0 && shadow != echi_plan_shadow(plan))
        echi_config_log(config, ECH_LOG_INFO, "rank %d is the shadow of the head, rank %d, from now on", shadow, m->peer);
}

static void tell_size(const struct ech_config *config, const struct echi_coordinator *coordinator) {
    const struct echi_change *why = &coordinator->told;
    echi_config_log(config, ECH_LOG_INFO,
                    "rank %d gets steps of %u samples: those of late (%d and more) took %.2f times as long as is usual in its group",
                    why->rank, why->n, ECHI_REGROUP_LASTING, why->ratio);
}

void echi_ratios_reason(const struct echi_coordinator *coordinator, char *buf, size_t cap) {
    const struct echi_ratio_change *why = &coordinator->follow.last;
    struct echi_print l = {buf, cap, 0};
    buf[0] = 0;
    if (coordinator->follow.changes == 0) return;
    if (why->by_link)
        echi_print(&l, "the link of group %d carries %.3g Mb/s, before %.3g", why->group, why->is * 8e-6, why->was * 8e-6);
    else echi_print(&l, "steps of group %d compute for %.3g ms, before %.3g", why->group, why->is * 1e3, why->was * 1e3);
}

#define LATE 5   /* from this epoch on, counted from 0, ratios are what they stay */
static void tell_ratios(const struct ech_config *config, const struct echi_coordinator *coordinator) {
    const struct echi_plan *now = &coordinator->plan;
    char reason[120], list[160];
    struct echi_print l = {list, sizeof list, 0};
    echi_ratios_reason(coordinator, reason, sizeof reason);
    for (int g = 0; g < now->n_groups; g++) {
        const struct echi_lease before = {.epoch = LATE, .base = coordinator->follow.last.base[g]};
        echi_print(&l, "%s%.3g (%.3g)", g ? ", " : "", echi_push_ratio(now, g, LATE) * 1e-6, echi_lease_ratio(now, g, &before) * 1e-6);
    }
    echi_config_log(config, ECH_LOG_INFO,
                    "%s: pushes of each group are now %s of a gradient from the sixth epoch on (before)", reason, list);
}

void echi_outlook_reason(const struct echi_coordinator *coordinator, char *buf, size_t cap) {
    const struct echi_outlook *o = &coordinator->outlook;
    struct echi_print l = {buf, cap, 0};
    char name[64];
    buf[0] = 0;
    if (o->count == 0) return;
    if (o->named.was > 0)
        echi_print(&l, "the link of rank %d carries %.3g Mb/s, before %.3g", o->named.cause, o->named.is * 8e-6, o->named.was * 8e-6);
    else echi_print(&l, "rank %d computes %.2g times as long as at the start", o->named.cause, o->named.slower);
    name_of(&o->named.there, name, sizeof name);
    echi_print(&l, ": %s with %d of %d ranks that train, parameters on ", name, o->named.workers, coordinator->plan.world);
    if (o->named.shards) echi_print(&l, "%d of them", o->named.shards);
    else echi_print(&l, "rank %d%s", o->named.owner, o->named.there.groups > 1 ? " and others" : "");
    echi_print(&l, ", is predicted to make %.0f images/s, and this plan %.0f", o->named.there.goodput, o->named.here.goodput);
}

void echi_outlook_log(const struct ech_config *config, const struct echi_coordinator *coordinator, struct echi_changes_told *told) {
    char reason[240];
    if (coordinator->outlook.count == told->plans) return;
    told->plans = coordinator->outlook.count;
    if (!config->on_log) return;
    echi_outlook_reason(coordinator, reason, sizeof reason);
    echi_config_log(config, ECH_LOG_WARN,
                    "plan: %s; roles cannot change that while a run goes: to have it, go on from a checkpoint with --resume", reason);
}

static void tell_shares_now(const struct ech_config *config, const struct echi_coordinator *coordinator) {
    char list[300];
    struct echi_print l = {list, sizeof list, 0};
    for (int r = 0; r < coordinator->plan.world; r++) echi_print(&l, "%s%u", r ? "," : "", coordinator->size[r]);
    echi_config_log(config, ECH_LOG_INFO,
                    "shares of a round are now %s: rank %d computes %.2g times as long as at the start; %.0f %% more images/s are "
                    "predicted",
                    list, coordinator->shares.slowest, coordinator->shares.slower, 100 * coordinator->shares.gain);
}

void echi_changes_log(const struct ech_config *config, const struct echi_coordinator *coordinator, struct echi_changes_told *told) {
    const bool size = coordinator->sizes != told->sizes, ratios = coordinator->follow.changes != told->ratios;
    told->sizes = coordinator->sizes;
    const bool shares = coordinator->shares.changes != told->shares;
    told->ratios = coordinator->follow.changes;
    told->shares = coordinator->shares.changes;
    if (size && config->on_log) tell_size(config, coordinator);
    if (ratios && config->on_log) tell_ratios(config, coordinator);
    if (shares && config->on_log) tell_shares_now(config, coordinator);
}
