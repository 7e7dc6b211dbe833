/* SPDX-License-Identifier: Apache-2.0
 * Loss curves of earlier runs as what is known of policies, and this run's as one more of them. */
#include "echi_curves.h"
#include "echi_blank.h"
#include "echi_bytes.h"
#include "echi_config_log.h"
#include "echi_error.h"
#include "echi_options.h"
#include "echi_print.h"
#include "echi_sha256.h"
#include "echi_trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------ what a run is of */

static void put_text(struct echi_writer *w, const char *text) { echi_put_bytes(w, text, strlen(text) + 1); }

static void end_hash(const struct echi_writer *w, const uint8_t *from, char out[ECHI_CURVES_HASH]) {
    struct echi_sha256 sha;
    uint8_t digest[32];
    char hex[65];
    echi_sha256_begin(&sha);
    echi_sha256_add(&sha, from, (size_t)(w->at - from));
    echi_sha256_end(&sha, digest);
    echi_sha256_hex(digest, hex);
    memcpy(out, hex, ECHI_CURVES_HASH - 1);
    out[ECHI_CURVES_HASH - 1] = 0;
}

/* Losses are only comparable of runs that differ in nothing but their policy, the number of nodes, and chance. */
static void name_task(const struct ech_config *c, const struct echi_job *job, const struct echi_plan_request *w,
                      char task[ECHI_CURVES_HASH], char data[ECHI_CURVES_HASH]) {
    uint8_t bytes[1024];
    char of_model[ECHI_JOB_WORD], of_data[ECHI_JOB_WORD];
    struct echi_schedule schedule = w->schedule;
    struct echi_writer out = echi_writer_over(bytes, sizeof bytes);
    echi_job_words(job, of_model, of_data);
    put_text(&out, of_data);
    echi_put8(&out, job->shuffle);
    echi_put8(&out, job->augment);
    echi_put_f64(&out, schedule.epochs);
    end_hash(&out, bytes, data);
    schedule.epochs = 0;
    out = echi_writer_over(bytes, sizeof bytes);
    put_text(&out, of_model);
    echi_put32(&out, echi_plan_request_round(w));
    echi_put_f64(&out, w->lr);
    echi_put_f64(&out, w->momentum);
    echi_put_f64(&out, w->decay);
    echi_put8(&out, w->lr_given);          /* where it is not, a policy may have another */
    echi_put8(&out, w->momentum_given);
    echi_optimizer_put(&out, (int)w->optimizer, &w->adam);
    echi_schedule_put(&out, &schedule);
    echi_put8(&out, (uint8_t)w->codec);
    echi_put8(&out, (uint8_t)w->ratios);
    echi_put8(&out, w->sync_norm);
    put_text(&out, c->precision);
    if (w->activations != ECHI_ACTIVATIONS_FP32) put_text(&out, c->activations);   /* else as before there was a choice */
    end_hash(&out, bytes, task);
}

static struct echi_curve_policy policy_of(const struct echi_plan_request *w, int sync, bool separated) {
    struct echi_curve_policy p = {.sync = (uint8_t)sync, .separated = separated};
    if (sync != ECHI_SYNC_BSP) p.damping = w->damping;
    if (sync == ECHI_SYNC_ASP) p.drop_older = w->drop_older;
    if (sync == ECHI_SYNC_ASP) p.weigh_by_time = w->weigh_by_time;
    if (sync == ECHI_SYNC_SSP || sync == ECHI_SYNC_GSSP) p.staleness = w->staleness;
    if (sync == ECHI_SYNC_GSSP) p.rounds_apart = w->rounds_apart;
    return p;
}

/* --------------------------------------------------- what they tell */

/* Stalenesses that differ by no more are one. */
#define ALIKE 1.5
static bool as_stale(double a, double b) { return a <= ALIKE * b && b <= ALIKE * a; }

struct pairs { double log, squares, deviations; int count, others; };

static void compare_with_rounds(const struct echi_curves *c, const struct echi_curve_run *other, struct pairs *sum,
                                enum echi_ratio_known *unknown) {
    struct echi_curve_ratio ratio;
    bool any = false;
    for (int i = 0; i < c->count; i++) {
        const struct echi_curve_run *r = &c->run[i];
        if (r->policy.sync != ECHI_SYNC_BSP || strcmp(r->task, other->task) != 0 || strcmp(r->data, other->data) != 0) continue;
        const enum echi_ratio_known known = echi_curve_ratio(r, other, &ratio);
        if (known != ECHI_RATIO_KNOWN) {
            *unknown = known;
            continue;
        }
        any = true;
        sum->count++;
        sum->log += ratio.log;
        sum->squares += ratio.log * ratio.log;
        sum->deviations += ratio.deviation * ratio.deviation;
    }
    sum->others += any;
}

/* A run of either kind is in several pairs, so these are no more independent than there are runs of the fewer kind. */
static void add_measured(const struct echi_curve_policy *p, double behind, const struct pairs *sum, struct echi_evidence *out) {
    const double mean = sum->log / sum->count, apart = sum->squares / sum->count - mean * mean;
    const int rounds = sum->count / sum->others, few = rounds < sum->others ? rounds : sum->others;
    const double error = sqrt((sum->deviations / sum->count + fmax(apart, 0)) / (few > 0 ? few : 1));
    out->of[out->count++] = (struct echi_measured){p->sync, p->separated, behind, exp(mean), fmin(error, 0.9)};
}

static bool of_task(const struct echi_curve_run *r, const char *task, const char *data) {
    return strcmp(r->task, task) == 0 && strcmp(r->data, data) == 0;
}

static const char *newest_data(const struct echi_curves *c, const char *task) {
    for (int i = c->count - 1; i >= 0; i--)
        if (strcmp(c->run[i].task, task) == 0) return c->run[i].data;
    return "";
}

void echi_curves_find(const struct echi_curves *c, const char *task, const char *data, const struct echi_plan_request *w,
                      struct echi_curves_found *out) {
    bool seen[ECHI_CURVES_MAX] = {false};
    *out = (struct echi_curves_found){.runs = 0};
    if (!*data) data = newest_data(c, task);
    for (int i = c->count - 1; i >= 0; i--) {   /* the newest first, if there are too many */
        const struct echi_curve_run *r = &c->run[i];
        const struct echi_curve_policy same = policy_of(w, r->policy.sync, r->policy.separated);
        struct pairs sum = {.count = 0};
        double behind = 0;
        if (!of_task(r, task, data)) continue;
        out->runs++;
        out->rounds += r->policy.sync == ECHI_SYNC_BSP;
        if (seen[i] || r->policy.sync == ECHI_SYNC_BSP || !echi_curve_policy_same(&r->policy, &same)) continue;
        for (int k = i; k >= 0; k--) {
            const struct echi_curve_run *other = &c->run[k];
            if (seen[k] || !of_task(other, task, data) || !echi_curve_policy_same(&other->policy, &r->policy) ||
                !as_stale(other->behind, r->behind))
                continue;
            const int before = sum.others;
            seen[k] = true;
            compare_with_rounds(c, other, &sum, &out->unknown);
            if (sum.others > before) behind += other->behind;
        }
        if (sum.count > 0 && out->evidence.count < ECHI_MEASURED_MAX) add_measured(&r->policy, behind / sum.others, &sum, &out->evidence);
    }
}

/* ------------------------------------------------------- this run */

static const char *file_of(const struct ech_config *c, char *buf, size_t cap) { return echi_printable_path(buf, cap, c->efficiency); }

static void tell_found(const struct ech_config *c, const struct echi_curves_found *found) {
    char file[80];
    file_of(c, file, sizeof file);
    if (found->runs == 0)
        return echi_config_log(c, ECH_LOG_INFO, "efficiency: %s has no run yet of this model, data, batch and learning rate", file);
    echi_config_log(c, ECH_LOG_INFO, "efficiency: %s has %d run%s of this model, data, batch and learning rate, %d of them of bsp%s%s",
                    file, found->runs, found->runs == 1 ? "" : "s", found->rounds,
                    found->rounds == 0                        ? ", with which the others are compared"
                    : found->unknown == ECHI_RATIO_KNOWN ? "" : "; of one it does not tell: ",
                    found->rounds == 0 ? "" : echi_ratio_reason(found->unknown));
}

/* A plan without data, or without a length, is for any. */
static bool names_data(const struct ech_config *c, const struct echi_job *job) {
    return job->data && strcmp(job->data->name, ECHI_BLANK_DATA) != 0 && c->steps != 0;
}

ech_status echi_curves_read(const struct ech_config *c, const struct echi_job *job, struct echi_plan_request *w, struct ech_error *err) {
    char task[ECHI_CURVES_HASH], data[ECHI_CURVES_HASH];
    struct echi_curves_found found;
    if (!c->efficiency[0]) return ECH_OK;
    struct echi_curves *curves = malloc(sizeof *curves);
    if (!curves) return echi_fail_memory(err, "curves.load", "loss curves");
    const ech_status status = echi_curves_load(c->efficiency, curves, err);
    if (status == ECH_OK) {
        name_task(c, job, w, task, data);
        echi_curves_find(curves, task, names_data(c, job) ? data : "", w, &found);
        tell_found(c, &found);
        w->evidence = found.evidence;
    }
    free(curves);
    return status;
}

/* Why this run's curve is not kept; NULL: it is. */
static const char *unfit(const struct ech_config *c, const struct ech_report *r, uint32_t round) {
    if (strcmp(r->sync, "local") == 0) return "under local losses are those of weights that each worker has for itself";
    if (c->plan[0]) return "the learning rate is that of its plan's file";
    if (c->init[0] || r->resumed_samples > 0) return "it did not begin with random weights";
    if (r->n_loss_curve < ECHI_CURVES_POINTS_MIN) return "it was too short";
    if ((uint32_t)r->round != round) return "its rounds are not those that were asked for";
    return r->behind < 0 || (r->behind == 0 && strcmp(r->sync, "bsp") != 0) ? "how far its pushes were behind is not known" : NULL;
}

static void curve_of(const struct ech_report *r, const struct echi_plan_request *w, int sync, struct echi_curve_run *out) {
    struct echi_print about = {out->about, sizeof out->about, 0};
    echi_print(&about, "%s on %s", r->model, r->data);
    out->policy = policy_of(w, sync, r->separate > 0);
    out->round = (uint32_t)r->round;
    out->behind = r->behind;
    for (int i = 0; i < r->n_loss_curve; i++) {
        out->at[i] = r->loss_curve[i].samples;
        out->loss[i] = r->loss_curve[i].loss;
    }
    out->points = r->n_loss_curve;
}

static void tell_own(const struct ech_config *c, const struct echi_curve_run *own, const struct echi_plan_request *w,
                     const struct echi_curves_found *found, struct ech_report *r) {
    const struct echi_efficiency known = echi_efficiency_of(&found->evidence, own->policy.sync, own->policy.separated,
                                                            echi_mostly_separated(&w->load, own->policy.separated), own->behind);
    if (own->policy.sync == ECHI_SYNC_BSP) return;
    if (!known.measured)
        return echi_config_log(c, ECH_LOG_INFO, "efficiency: of this run's policy it is not known: %s",
                               found->rounds == 0 ? "no run of bsp is there to compare it with" : echi_ratio_reason(found->unknown));
    r->measured_efficiency = known.value;
    r->measured_efficiency_error = known.error;
    echi_config_log(c, ECH_LOG_INFO, "efficiency: that of %s%s at %.2f rounds is measured, %.2f, give or take %.0f %%", r->sync,
                    r->separate ? ", layer separation," : "", own->behind, known.value, 100 * known.error);
}

/* The file is read again: other runs may have added theirs meanwhile. */
static ech_status add_own(const struct ech_config *c, const struct echi_job *job, const struct echi_plan_request *w, int sync,
                          struct echi_curves *curves, struct ech_report *r, struct ech_error *err) {
    struct echi_curve_run own = {.points = 0};
    struct echi_curves_found found;
    ECHI_TRY(echi_curves_load(c->efficiency, curves, err));
    name_task(c, job, w, own.task, own.data);
    curve_of(r, w, sync, &own);
    echi_curves_add(curves, &own);
    ECHI_TRY(echi_curves_save(c->efficiency, curves, err));
    echi_curves_find(curves, own.task, own.data, w, &found);
    tell_own(c, &own, w, &found, r);
    return ECH_OK;
}

ech_status echi_curves_outcome(const struct ech_config *c, const struct echi_job *job, struct ech_report *r, struct ech_error *err) {
    if (!c->efficiency[0] || r->samples == 0) return ECH_OK;
    struct { struct echi_plan_request request; struct echi_curves curves; } *work = malloc(sizeof *work);
    if (!work) return echi_fail_memory(err, "curves.save", "loss curves");
    ech_status status = echi_plan_request_from(c, job, &work->request, err);
    int sync = 0;
    while (sync < ECHI_SYNC_LOCAL && strcmp(r->sync, echi_policy_of((enum echi_sync)sync)->name) != 0) sync++;
    const char *why = status == ECH_OK ? unfit(c, r, echi_plan_request_round(&work->request)) : NULL;
    if (why) echi_config_log(c, ECH_LOG_INFO, "efficiency: this run's curve is not kept: %s", why);
    else if (status == ECH_OK) status = add_own(c, job, &work->request, sync, &work->curves, r, err);
    free(work);
    return status;
}
