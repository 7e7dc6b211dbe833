/* SPDX-License-Identifier: Apache-2.0
 * Progress while a run goes, the report when it ends. */
#include "echi_node.h"

#include <stdio.h>
#include <string.h>

_Static_assert(ECH_STALENESS_BINS == ECHI_STALENESS_BINS, "the report has a place for each bin");

void echi_progress_make(struct echi_coordinator *c, const struct echi_job *job, uint32_t round, int64_t passed, int64_t clock, bool looked,
                        uint64_t bytes, struct ech_progress *shown) {
    struct ech_progress p = {.seconds = (double)clock * 1e-9, .samples = c->applied, .steps = c->applied / round,
        .epochs = (double)c->applied / job->train_samples, .accuracy = c->accuracy, .looked = looked, .bytes_sent = bytes,
        .loss = c->loss_samples ? c->loss_sum / (double)c->loss_samples : shown->loss,
        .staleness = c->stale_count ? c->stale_sum / (double)c->stale_count : shown->staleness};
    const double seconds = (double)passed * 1e-9;
    /* A lost owner's last pushes are taken back: then there are fewer than before. */
    p.images_per_second = seconds > 0.05 && c->applied >= shown->samples ? (double)(c->applied - shown->samples) / seconds : shown->images_per_second;
    c->loss_sum = c->stale_sum = 0;
    c->loss_samples = c->stale_count = 0;
    *shown = p;
}

void echi_node_progress(struct echi_node *n, int64_t now) {
    struct echi_coordinator *c = n->coordinator;
    if (!c || !n->c->config->on_progress || c->phase < ECHI_RUN_TRAINS || c->phase == ECHI_RUN_ENDED) return;
    const bool looked = c->looks != n->shown_looks;
    if (now < n->progress_at && !looked) return;
    const int64_t clock = echi_coordinator_clock(c, now);
    if (!looked && clock - n->shown_clock < ECHI_SECOND / 5) return;   /* held: nothing new to tell */
    uint64_t bytes[ECHI_NET_KINDS_MAX + 1] = {0}, all = 0;
    echi_wire_bytes_sent(n->wire, bytes);
    for (int k = 0; k <= ECHI_NET_KINDS_MAX; k++) all += bytes[k];
    echi_progress_make(c, n->job, n->setup.plan.round, clock - n->shown_clock, clock, looked, all, &n->shown);
    n->shown_clock = clock;
    n->shown_looks = c->looks;
    n->progress_at = now + ECHI_SECOND;
    n->c->config->on_progress(n->c->config->user, &n->shown);
}

static void fill_plan(struct ech_report *r, const struct echi_plan *p) {
    snprintf(r->sync, sizeof r->sync, "%s", echi_policy_of((enum echi_sync)p->sync)->name);   /* a plan from a file decides */
    r->separate = p->separated;
    r->n_groups = p->n_groups;
    r->head = p->separated ? p->head : -1;
    r->round = (int)p->round;
    for (int i = 0; i < p->world; i++) {
        r->group_of[i] = p->group_of[i] == ECHI_NONE ? -1 : p->group_of[i];
        r->batch[i] = (int)p->n[i];
    }
    for (int g = 0; g < p->n_groups; g++) r->owner_of[g] = p->owner_of[g];
}

void echi_report_run(struct ech_report *r, const struct echi_coordinator *c, const struct echi_plan *plan, const struct echi_job *job,
                     int64_t began, int64_t now) {
    if (plan) fill_plan(r, plan);
    if (c->lost_peer >= 0) r->lost_peer = c->lost_peer;
    r->n_lost = c->n_lost;
    for (int i = 0; i < c->n_lost; i++) r->lost[i] = c->lost_rank[i];
    r->regroups = c->moves;
    r->resizes = c->sizes;
    for (int i = 0; plan && i < plan->world; i++) r->batch[i] = (int)c->size[i];
    r->leases_again = c->again_leases;
    r->samples_again = c->again_samples;
    r->samples = c->applied;
    r->steps = plan ? c->applied / plan->round : 0;
    r->epochs = (double)c->applied / job->train_samples;
    r->seconds = (double)echi_coordinator_clock(c, now) * 1e-9;
    r->images_per_second = r->seconds > 0 ? (double)c->applied / r->seconds : 0;
    r->measuring_seconds = (double)c->measuring * 1e-9;
    r->checkpoint_seconds = (double)(c->keeping + c->last_keeping) * 1e-9;
    r->resumed_samples = c->goal.from.samples;
    r->startup_seconds = c->train_began ? (double)(c->train_began - began) * 1e-9 : 0;
    r->train_loss = c->loss_of_run;
    r->test_accuracy = c->accuracy;
    r->best_accuracy = c->best_accuracy;
    r->target_seconds = c->target_at < 0 ? -1 : (double)c->target_at * 1e-9;
    r->target_epochs = c->target_at < 0 ? -1 : (double)c->target_samples / job->train_samples;
    r->staleness_max = c->stale_max;
    r->staleness_mean = c->stale_of_run_count ? c->stale_of_run / (double)c->stale_of_run_count : 0;
    memcpy(r->staleness_edge, echi_staleness_edge, sizeof r->staleness_edge);
    memcpy(r->staleness_trunk, c->trunk_bins, sizeof r->staleness_trunk);
    memcpy(r->staleness_head, c->head_bins, sizeof r->staleness_head);
}

void echi_node_report(const struct echi_node *n, struct ech_report *r) {
    const struct echi_plan *plan = n->planned ? &n->setup.plan : NULL;
    r->resident_peak = echi_resident_peak();
    r->lost_peer = n->lost;
    r->head_repeats = n->head_repeats;
    for (int k = 0; k < ECHI_KINDS; k++) {
        r->kind_name[k] = echi_kind_name(k);
        r->bytes_sent[k] = n->sent_by_kind[k];
    }
    r->kind_name[ECHI_KINDS] = "other";      /* hello, credits */
    r->bytes_sent[ECHI_KINDS] = n->sent_by_kind[ECHI_KINDS];
    if (n->coordinator) echi_report_run(r, n->coordinator, plan, n->job, n->began, n->clock + n->clock_back);
    else if (plan) fill_plan(r, plan);
}
