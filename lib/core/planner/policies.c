/* SPDX-License-Identifier: Apache-2.0
 * The best plan of one policy, by the number of its groups and the length of its steps; and the best of all policies. */
#include "echi_choice_impl.h"

/* The better of the owners that a plan of several groups may have: where links differ they may matter more than processors. Its candidate,
 * and which owners. */
static struct echi_candidate best_owners(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                                         enum echi_owners *out_owners) {
    struct echi_candidate best = {0};
    struct echi_plan_request *own = &work->trial;
    *own = *w;
    for (int i = 0; i <= !echi_choice_links_alike(w, times); i++) {
        char text[2];
        own->owners = i ? ECHI_OWNERS_OTHER : ECHI_OWNERS_USUAL;
        if (echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK) return (struct echi_candidate){0};
        const struct echi_candidate c = echi_candidate_of(own, times, &work->tried, work);
        if (i && echi_candidate_worth_of_groups(w, &c) < echi_candidate_worth_of_groups(w, &best) * ECHI_CLEARLY) continue;
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
        if (echi_candidate_worth_of_groups(w, &c) > best) best = echi_candidate_worth_of_groups(w, &c);
        if (own.groups == like) of_like = echi_candidate_worth_of_groups(w, &c);
    }
    int taken = first + like - 1;
    if (best > of_like * ECHI_CLEARLY)
        for (taken = first; echi_candidate_worth_of_groups(w, &all->candidate[taken]) * ECHI_CLEARLY < best;) taken++;
    own.groups = all->candidate[taken].groups;
    own.owners = owners[own.groups];
    echi_plan_make(&own, times, out, text, sizeof text);
    return taken;
}

/* Head and owners were placed before the number of groups was known: with that they may go elsewhere, where it is clearly better. */
static void place_again(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                        struct echi_candidate *taken, struct echi_plan *out) {
    char text[2];
    w->home = 0;
    w->groups = taken->groups;
    if (echi_choice_one_way(w, times)) return;
    echi_choice_place(w, times, work);
    if (echi_plan_make(w, times, &work->tried, text, sizeof text) != ECH_OK) return;
    const struct echi_candidate c = echi_candidate_of(w, times, &work->tried, work);
    if (!(echi_candidate_worth_of_groups(w, &c) > echi_candidate_worth_of_groups(w, taken) * ECHI_CLEARLY)) return;
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
    echi_choice_place(w, times, work);
    echi_choice_beside_head(w, times, work);
    echi_choice_exchange(w, times, work);
    echi_choice_heads(w, times, work);
    const bool open = request->shards == ECHI_SHARDS_AUTO && request->exchange != ECHI_EXCHANGE_RING && !request->keep_all;
    if (w->sync == ECHI_SYNC_BSP && open) echi_choice_workers(w, times, work);
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
        all->candidate[all->count++] = echi_candidate_of(w, times, out, work);
        echi_choice_ways(request, times, work, &all->candidate[all->taken], out);
    }
    all->candidate[all->taken].samples_per_step = w->samples_per_step;
    return ECH_OK;
}

/* How long steps are, where nobody says and nobody waits for a round: long ones cost fewer messages, short ones less staleness.
 * Sets what is the best of a few lengths for the plan request as it is. */
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
        const struct echi_candidate c = echi_candidate_of(w, times, &work->tried, work);
        if (echi_candidate_worth(w, &c) <= best * ECHI_CLEARLY) continue;
        best = echi_candidate_worth(w, &c);
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
            echi_choice_place(&own, times, work);
            best_length(&own, times, work);
            if (one_policy(&own, times, work, w->home > 0, &groups, &work->policy[all->count], text, cap) != ECH_OK) continue;
            struct echi_candidate c = groups.candidate[groups.taken];
            c.samples_per_step = own.samples_per_step;
            c.under_way = own.under_way;
            if (policy[i] == ECHI_SYNC_GSSP && c.groups == 1) continue;   /* that is ssp */
            all->candidate[all->count++] = c;
            if (echi_candidate_worth(w, &c) > best) best = echi_candidate_worth(w, &c);
        }
    if (all->count == 0) return ECH_E_ARGUMENT;   /* the sentence of the last one stands */
    while (echi_candidate_worth(w, &all->candidate[all->taken]) * ECHI_CLEARLY < best) all->taken++;
    *out = work->policy[all->taken];
    return ECH_OK;
}

/* Less what staleness costs, whether policies are compared or not: of a head's own layers nothing is stale. */
static double worth_apart(const struct echi_choice *c) {
    return c->candidate[c->taken].goodput * (1 - c->candidate[c->taken].error);
}

/* gssp, where it is left open whether layers are separated: they are if that is clearly better. */
static ech_status apart_or_not(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                               struct echi_choice *out, struct echi_plan *plan, char *text, size_t cap) {
    struct echi_plan_request *own = &work->apart;
    struct echi_choice whole = {.net_negative = -1, .alone = -1};
    *own = *w;
    own->separate = 1;
    const ech_status status = one_policy(own, times, work, w->home > 0, out, plan, text, cap);
    own->separate = 0;
    if (one_policy(own, times, work, w->home > 0, &whole, &work->policy[0], text, cap) != ECH_OK) return status;
    const bool apart = status == ECH_OK && worth_apart(out) > worth_apart(&whole) * ECHI_CLEARLY;
    const struct echi_choice not_taken = apart ? whole : *out;
    if (!apart) {
        *out = whole;
        *plan = work->policy[0];
    }
    out->weighed = status == ECH_OK;
    out->cut = (uint8_t)w->layers.cut;
    out->other = not_taken.candidate[not_taken.taken];
    return ECH_OK;
}

ech_status echi_choice_make(const struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work,
                         struct echi_choice *out, struct echi_plan *plan, char *text, size_t cap) {
    *out = (struct echi_choice){.net_negative = -1, .alone = -1};
    if (w->choose && w->world > 1) return all_policies(w, times, work, out, plan, text, cap);
    if (w->separate == -1 && w->has_cut && w->sync == ECHI_SYNC_GSSP && w->world > 1)
        return apart_or_not(w, times, work, out, plan, text, cap);
    return one_policy(w, times, work, w->home > 0, out, plan, text, cap);
}
