/* SPDX-License-Identifier: Apache-2.0
 * Progress while a run goes, the report when it ends. */
#include "echi_node.h"
#include "echi_ratio.h"
#include "echi_time_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(ECH_STALENESS_BINS == ECHI_STALENESS_BINS, "the report has a place for each bin");

#define RATE_OVER (ECHI_SECOND / 4)   /* ns at least: of less, whether a round's end falls in is a matter of luck */

void echi_progress_begin(const struct echi_standing *at, struct echi_shown *shown) {
    *shown = (struct echi_shown){.progress = {.samples = at->samples, .loss = at->loss}, .clock = at->clock, .evals = at->evals,
                                 .rate_samples = at->samples, .rate_clock = at->clock};
}

static double rate_now(const struct echi_coordinator *c, int64_t clock, struct echi_shown *shown) {
    const int64_t passed = clock - shown->rate_clock;
    const bool fewer = c->applied < shown->rate_samples;   /* a lost owner's last pushes are taken back */
    if (passed <= 0 || fewer || (shown->rated && passed < RATE_OVER)) return shown->progress.images_per_second;
    const double rate = (double)(c->applied - shown->rate_samples) / ((double)passed * 1e-9);
    if (passed < RATE_OVER) return rate;
    shown->rate_samples = c->applied;
    shown->rate_clock = clock;
    shown->rated = true;
    return rate;
}

void echi_progress_make(struct echi_coordinator *c, const struct echi_job *job, uint32_t round, int64_t clock, bool new_accuracy,
                        uint64_t bytes, struct echi_shown *shown) {
    const struct ech_progress *last = &shown->progress;
    struct ech_progress p = {.seconds = (double)clock * 1e-9, .samples = c->applied, .steps = c->applied / round,
        .epochs = (double)c->applied / job->train_samples, .accuracy = c->accuracy, .new_accuracy = new_accuracy, .bytes_sent = bytes,
        .loss = c->loss_samples ? c->loss_sum / (double)c->loss_samples : last->loss,
        .staleness = c->stale_count ? c->stale_sum / (double)c->stale_count : last->staleness,
        .images_per_second = rate_now(c, clock, shown)};
    c->loss_sum = c->stale_sum = 0;
    c->loss_samples = c->stale_count = 0;
    shown->progress = p;
    shown->clock = clock;
    shown->evals = c->evals;
}

/* How far an evaluation is; false: none runs. All else is as it was before. */
static bool show_eval(struct echi_node *n, int64_t now) {
    struct echi_lane_view v;
    echi_lane_look(n->lane, &v);
    if (!v.runs || v.task.kind != ECHI_TASK_EVAL) return false;
    struct ech_progress p = n->shown.progress;
    p.new_accuracy = 0;
    p.evaluated = echi_exec_evaluated(n->exec);
    p.to_evaluate = n->job->test_samples;
    n->progress_at = now + ECHI_SECOND;
    n->c->config->on_progress(n->c->config->user, &p);
    return true;
}

void echi_node_progress(struct echi_node *n, int64_t now) {
    struct echi_coordinator *c = n->role.coordinator;
    if (!c || !n->c->config->on_progress || c->phase < ECHI_RUN_TRAINS || c->phase == ECHI_RUN_ENDED) return;
    const bool new_accuracy = c->evals != n->shown.evals && c->accuracy >= 0;   /* else a stop has ended the evaluation */
    if (now < n->progress_at && !new_accuracy) return;
    if (!new_accuracy && show_eval(n, now)) return;
    const int64_t clock = echi_coordinator_clock(c, now);
    if (!new_accuracy && clock - n->shown.clock < ECHI_SECOND / 5) return;   /* held: nothing new to tell */
    uint64_t bytes[ECHI_NET_KINDS_MAX + 1] = {0}, all = 0;
    echi_wire_bytes_sent(n->wire, bytes);
    for (int k = 0; k <= ECHI_NET_KINDS_MAX; k++) all += bytes[k];
    echi_progress_make(c, n->job, n->setup.plan.round, clock, new_accuracy, all, &n->shown);
    n->progress_at = now + ECHI_SECOND;
    n->c->config->on_progress(n->c->config->user, &n->shown.progress);
}

static void fill_plan(struct ech_report *r, const struct echi_plan *p, const struct echi_job *job) {
    snprintf(r->sync, sizeof r->sync, "%s", echi_policy_of((enum echi_sync)p->sync)->name);   /* a plan from a file decides */
    r->separate = p->cut > 0;
    /* A reserve shows when it was made use of. */
    r->n_groups = p->n_groups - (p->reserve && echi_plan_workers(p, echi_plan_reserve(p)) == 0);
    r->head = p->cut ? p->head : -1;
    snprintf(r->head_from, sizeof r->head_from, "%s", p->cut ? job->layer[p->cut].name : "");
    snprintf(r->activations, sizeof r->activations, "%s", p->cut ? echi_activations_name(p->activations) : "");
    r->round = (int)p->round;
    r->micro_batches = p->micro_batches ? p->micro_batches : 1;
    if (p->codec == ECHI_CODEC_DENSE) snprintf(r->codec, sizeof r->codec, "dense");
    else snprintf(r->codec, sizeof r->codec, "topk:%s", echi_ratios_name((enum echi_ratios)p->ratios));
    for (int i = 0; i < p->world; i++) {
        r->group_of[i] = p->group_of[i] == ECHI_NONE ? -1 : p->group_of[i];
        r->batch[i] = (int)p->n[i];
    }
    for (int g = 0; g < p->n_groups; g++) r->owner_of[g] = p->owner_of[g];
    r->n_heads = p->heads;
    for (int i = 0; i < p->heads; i++) r->head_rank[i] = p->head_rank[i];
    r->n_shards = p->shards;
    for (int k = 0; k < p->shards; k++) r->shard_owner[k] = p->shard_owner[k];
}

static void fill_choice(const struct echi_coordinator *coordinator, struct ech_report *r) {
    const struct echi_choice *c = &coordinator->choice;
    const bool nobody = !c->left_out && echi_times_crowded(coordinator->times, coordinator->request.world) > 0;
    r->predicted_images_per_second = c->count ? c->candidate[c->taken].rate : -1;
    r->predicted_staleness = c->count ? c->candidate[c->taken].staleness : -1;
    r->net_negative = nobody ? -1 : c->net_negative;
    r->net_negative_gain = nobody ? 0 : c->gain;
    _Static_assert(ECHI_CANDIDATES_MAX <= ECH_CANDIDATES_MAX, "a report has a place for each");
    r->n_candidates = c->count;
    for (int i = 0; i < c->count; i++) {
        const struct echi_candidate *k = &c->candidate[i];
        r->candidate[i] = (struct ech_candidate){echi_policy_of((enum echi_sync)k->sync)->name, k->groups, k->cut > 0, i == c->taken,
                                                 k->rate, k->staleness, k->efficiency, k->goodput, k->error,
                                                 k->measured ? "measured" : k->error > 0 ? "table" : ""};
    }
}

struct echi_timeline *echi_report_line(struct echi_coordinator *c) {
    struct echi_timeline *line = echi_time_line_make(0);
    if (line && echi_coordinator_line(c, line)) return line;
    free(line);
    return NULL;
}

/* All of one prediction. */
static void fill_predicted(struct echi_coordinator *c, struct ech_report *r) {
    struct echi_what_if found[ECHI_WHATS];
    struct echi_traffic traffic[ECHI_WHAT_IF_WORLD] = {{0, 0}};
    struct echi_timeline *line = echi_time_line_make(0);
    _Static_assert(ECHI_WHATS == ECH_WHAT_IF_MAX, "a report has a place for each");
    r->n_what_if = echi_coordinator_what_if(c, line, traffic, found);
    for (int i = 0; i < r->world && i < ECHI_WHAT_IF_WORLD; i++)
        r->predicted_link[i] = (struct ech_link_use){(float)(traffic[i].out * 8e-6), (float)(traffic[i].in * 8e-6)};
    for (int i = 0; i < r->n_what_if; i++)
        r->what_if[i] = (struct ech_what_if){.what = echi_what_name(found[i].what), .rank = found[i].rank, .gain = found[i].gain};
    echi_time_line_path(line, r);
    free(line);
}

/* Ranks that are lost and had a worker. */
static uint64_t lost_workers(const struct echi_coordinator *c, const struct echi_plan *plan) {
    uint64_t count = 0;
    for (int i = 0; i < c->n_lost; i++) count += plan->group_of[c->lost_rank[i]] != ECHI_NONE;
    return count;
}

static void fill_ratios(const struct echi_coordinator *c, const struct echi_plan *planned, struct ech_report *r) {
    for (int g = 0; g < planned->n_groups && planned->codec != ECHI_CODEC_DENSE; g++) {
        r->ratio_planned[g] = echi_push_ratio(planned, g, 5) * 1e-6;
        r->ratio[g] = echi_push_ratio(&c->plan, g, 5) * 1e-6;
    }
    r->ratio_changes = c->follow.changes;
    r->ratio_seconds = c->follow.changes ? (double)c->follow.last.at * 1e-9 : -1;
    echi_ratios_reason(c, r->ratio_reason, sizeof r->ratio_reason);
}

/* With one group its owner knows all. */
static double behind(const struct echi_choice *c, const struct echi_plan *plan, double stale) {
    if (!plan || (plan->n_groups > 1 && c->count == 0)) return -1;
    if (plan->n_groups == 1) return stale;
    const double more = c->candidate[c->taken].behind - c->candidate[c->taken].staleness;
    return stale + (more > 0 ? more : 0);
}

/* A bin that is less than half full, the last as a rule, tells little. */
static void fill_curve(const struct echi_curve *c, struct ech_report *r) {
    _Static_assert(ECHI_CURVE_BINS == ECH_CURVE_MAX, "a report has a place for each");
    for (int i = 0; i < ECHI_CURVE_BINS; i++) {
        const double loss = c->bin[i].loss / (double)c->bin[i].samples;
        if (c->bin[i].samples == 0 || c->bin[i].samples < c->width / 2 || !(loss > 0 && isfinite(loss))) continue;
        r->loss_curve[r->n_loss_curve++] = (struct ech_loss_point){(double)c->width * (i + 0.5), loss};
    }
}

void echi_report_run(struct ech_report *r, struct echi_coordinator *c, const struct echi_plan *plan, const struct echi_job *job,
                     int64_t began, int64_t now) {
    if (plan) fill_plan(r, plan, job);
    if (plan) fill_ratios(c, plan, r);
    echi_report_rates(r, &c->follow, c->request.world);
    if (plan && plan->reserve && c->iterations[echi_plan_reserve(plan)]) r->n_groups = plan->n_groups;
    if (c->lost_peer >= 0) r->lost_peer = c->lost_peer;
    r->n_lost = c->n_lost;
    for (int i = 0; i < c->n_lost; i++) r->lost[i] = c->lost_rank[i];
    r->regroups = c->moves;
    r->resizes = c->sizes + c->shares.changes;
    for (int i = 0; plan && i < plan->world; i++) r->batch[i] = (int)c->size[i];
    r->better_plans = c->outlook.count;
    echi_outlook_reason(c, r->better_plan, sizeof r->better_plan);
    r->leases_again = c->again_leases;
    r->samples_again = c->again_samples;
    r->residuals_lost = plan && plan->codec != ECHI_CODEC_DENSE ? lost_workers(c, plan) : 0;
    r->momentum_lost = c->takeover.params;
    r->shadows_made = c->homes.shadows;
    r->head_moves = c->homes.moves;
    r->head_seconds = (double)c->homes.held * 1e-9;
    r->leases_dropped = c->dropped_leases;
    r->samples_dropped = c->dropped_samples;
    fill_choice(c, r);
    r->samples = c->applied;
    r->steps = plan ? c->applied / plan->round : 0;
    r->epochs = (double)c->applied / job->train_samples;
    r->seconds = (double)echi_coordinator_clock(c, now) * 1e-9;
    r->images_per_second = r->seconds > 0 ? (double)c->applied / r->seconds : 0;
    r->predicted_over_measured = c->choice.count && r->images_per_second > 0 ? r->predicted_images_per_second / r->images_per_second : -1;
    fill_predicted(c, r);
    r->measuring_seconds = (double)c->measuring * 1e-9;
    r->checkpoint_seconds = (double)(c->keeping + c->last_keeping) * 1e-9;
    r->resumed_samples = c->goal.from.samples;
    r->startup_seconds = c->train_began ? (double)(c->train_began - began) * 1e-9 : 0;
    for (int g = 0; g < ECHI_GROUPS_MAX; g++)
        r->iteration_seconds[g] = c->iterations[g] ? c->iterated[g] / (double)c->iterations[g] * 1e-9 : 0;
    r->train_loss = c->loss_of_run;
    fill_curve(&c->curve, r);
    r->test_accuracy = c->accuracy;
    r->best_accuracy = c->best_accuracy;
    r->target_seconds = c->target_at < 0 ? -1 : (double)c->target_at * 1e-9;
    r->target_epochs = c->target_at < 0 ? -1 : (double)c->target_samples / job->train_samples;
    r->staleness_max = c->stale_max;
    r->staleness_mean = c->stale_of_run_count ? c->stale_of_run / (double)c->stale_of_run_count : 0;
    r->behind = behind(&c->choice, plan, r->staleness_mean);
    memcpy(r->staleness_edge, echi_staleness_edge, sizeof r->staleness_edge);
    memcpy(r->staleness_trunk, c->trunk_bins, sizeof r->staleness_trunk);
    memcpy(r->staleness_head, c->head_bins, sizeof r->staleness_head);
}

void echi_node_report(const struct echi_node *n, struct ech_report *r) {
    const struct echi_plan *plan = n->role.planned ? &n->setup.plan : NULL;
    r->resident_peak = echi_resident_peak();
    r->threads = n->exec ? echi_device_threads(echi_exec_device(n->exec)) : 0;
    r->lost_peer = n->status == ECH_E_PEER_LOST ? n->err->peer : -1;
    r->head_repeats = n->head_repeats;
    r->push_ratio = n->coded_of_all[1] ? (double)n->coded_of_all[0] / (double)n->coded_of_all[1] : 1;
    r->state_ratio = n->coded_of_all[3] ? (double)n->coded_of_all[2] / (double)n->coded_of_all[3] : 1;
    for (int k = 0; k < ECHI_KINDS; k++) {
        r->kind_name[k] = echi_kind_name(k);
        r->bytes_sent[k] = n->sent_by_kind[k];
    }
    _Static_assert(ECHI_KINDS_MAX + 2 <= ECH_KINDS_MAX, "every kind has its place in a report");
    r->kind_name[ECHI_KINDS] = "other";      /* hello, credits */
    r->bytes_sent[ECHI_KINDS] = n->sent_by_kind[ECHI_KINDS];
    if (n->role.coordinator) echi_report_run(r, n->role.coordinator, plan, n->job, n->began, n->clock + n->clock_back);
    else if (plan) fill_plan(r, plan, n->job);
    r->residuals_lost += n->residuals_cleared;
}
