/* SPDX-License-Identifier: Apache-2.0
 * struct ech_report as one JSON object (RFC 8259). */
#include "echelon.h"
#include "echi_json_write.h"

/* [[0, 1], [2, 3]]: for each group the ranks whose workers are in it. */
static void add_groups(struct echi_json_put *j, const struct ech_report *r, int world, int groups) {
    echi_json_put_list(j, "groups");
    for (int g = 0; g < groups; g++) {
        echi_json_put_list(j, NULL);
        for (int rank = 0; rank < world; rank++)
            if (r->group_of[rank] == g) echi_json_put_integer(j, NULL, rank);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
}

static void add_ints(struct echi_json_put *j, const char *name, const int *values, int n) {
    echi_json_put_list(j, name);
    for (int i = 0; i < n; i++) echi_json_put_integer(j, NULL, values[i]);
    echi_json_put_close(j);
}

static void add_reals(struct echi_json_put *j, const char *name, const double *values, int n) {
    echi_json_put_list(j, name);
    for (int i = 0; i < n; i++) echi_json_put_real(j, NULL, values[i]);
    echi_json_put_close(j);
}

static void add_counts(struct echi_json_put *j, const char *name, const uint64_t *values, int n) {
    echi_json_put_list(j, name);
    for (int i = 0; i < n; i++) echi_json_put_whole(j, NULL, values[i]);
    echi_json_put_close(j);
}

static void add_bytes(struct echi_json_put *j, const struct ech_report *r) {
    echi_json_put_object(j, "bytes_sent");
    for (int k = 0; k < ECH_KINDS_MAX && r->kind_name[k]; k++) echi_json_put_whole(j, r->kind_name[k], r->bytes_sent[k]);
    echi_json_put_close(j);
}

static void add_rates(struct echi_json_put *j, const char *name, const struct ech_link_rate *rate, int n) {
    echi_json_put_list(j, name);
    for (int i = 0; i < n; i++) {
        echi_json_put_object(j, NULL);
        echi_json_put_real(j, "rate", rate[i].rate);
        echi_json_put_real(j, "lowest", rate[i].lowest);
        echi_json_put_real(j, "highest", rate[i].highest);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
}

static void add_predicted_links(struct echi_json_put *j, const struct ech_report *r, int world) {
    echi_json_put_list(j, "predicted_link");
    for (int i = 0; i < world; i++) {
        echi_json_put_object(j, NULL);
        echi_json_put_real(j, "out", r->predicted_link[i].out);
        echi_json_put_real(j, "in", r->predicted_link[i].in);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
}

static void add_candidates(struct echi_json_put *j, const struct ech_report *r) {
    echi_json_put_list(j, "candidates");
    for (int i = 0; i < r->n_candidates && i < ECH_CANDIDATES_MAX; i++) {
        const struct ech_candidate *c = &r->candidate[i];
        echi_json_put_object(j, NULL);
        echi_json_put_text(j, "sync", c->sync);
        echi_json_put_integer(j, "groups", c->groups);
        echi_json_put_integer(j, "separated", c->separated);
        echi_json_put_integer(j, "taken", c->taken);
        echi_json_put_real(j, "images_per_second", c->images_per_second);
        echi_json_put_real(j, "staleness", c->staleness);
        echi_json_put_real(j, "efficiency", c->efficiency);
        echi_json_put_real(j, "goodput", c->goodput);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
}

/* [{"what": "links", "rank": 3, "gain": 0.41}]; rank null: of all nodes. */
static void add_what_if(struct echi_json_put *j, const struct ech_report *r) {
    echi_json_put_list(j, "what_if");
    for (int i = 0; i < r->n_what_if && i < ECH_WHAT_IF_MAX; i++) {
        echi_json_put_object(j, NULL);
        echi_json_put_text(j, "what", r->what_if[i].what);
        echi_json_put_optional(j, "rank", r->what_if[i].rank);
        echi_json_put_real(j, "gain", r->what_if[i].gain);
        echi_json_put_close(j);
    }
    echi_json_put_close(j);
}

static int within(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

static void add_all(struct echi_json_put *j, const struct ech_report *r) {
    const int world = within(r->world, ECH_WORLD_MAX), groups = within(r->n_groups, ECH_GROUPS_MAX);
    echi_json_put_text(j, "version", r->version);
    echi_json_put_text(j, "model", r->model);
    echi_json_put_text(j, "data", r->data);
    echi_json_put_text(j, "sync", r->sync);
    echi_json_put_whole(j, "seed", r->seed);
    echi_json_put_integer(j, "separate", r->separate);
    echi_json_put_integer(j, "world", world);
    add_groups(j, r, world, groups);
    add_ints(j, "owners", r->owner_of, groups);
    add_ints(j, "shard_owners", r->shard_owner, within(r->n_shards, ECH_SHARDS_MAX));
    add_ints(j, "head", &r->head, r->head >= 0);
    add_ints(j, "batch", r->batch, world);
    echi_json_put_integer(j, "round", r->round);
    add_reals(j, "step_seconds", r->step_seconds, world);
    add_reals(j, "link", r->link, world);
    add_rates(j, "link_out", r->link_out, world);
    add_rates(j, "link_in", r->link_in, world);
    add_reals(j, "delay", r->delay, world);
    add_reals(j, "iteration_seconds", r->iteration_seconds, groups);
    echi_json_put_whole(j, "steps", r->steps);
    echi_json_put_whole(j, "samples", r->samples);
    echi_json_put_real(j, "epochs", r->epochs);
    echi_json_put_real(j, "seconds", r->seconds);
    echi_json_put_real(j, "images_per_second", r->images_per_second);
    echi_json_put_real(j, "measuring_seconds", r->measuring_seconds);
    echi_json_put_real(j, "startup_seconds", r->startup_seconds);
    echi_json_put_real(j, "train_loss", r->train_loss);
    echi_json_put_optional(j, "test_accuracy", r->test_accuracy);
    echi_json_put_optional(j, "best_accuracy", r->best_accuracy);
    echi_json_put_optional(j, "target_seconds", r->target_seconds);
    echi_json_put_optional(j, "target_epochs", r->target_epochs);
    add_bytes(j, r);
    echi_json_put_real(j, "staleness_max", r->staleness_max);
    echi_json_put_real(j, "staleness_mean", r->staleness_mean);
    add_reals(j, "staleness_edges", r->staleness_edge, ECH_STALENESS_BINS - 1);
    add_counts(j, "staleness_trunk", r->staleness_trunk, ECH_STALENESS_BINS);
    add_counts(j, "staleness_head", r->staleness_head, r->head >= 0 ? ECH_STALENESS_BINS : 0);
    echi_json_put_whole(j, "resident_peak", r->resident_peak);
    echi_json_put_whole(j, "threads", (uint64_t)r->threads);
    echi_json_put_optional(j, "lost_peer", r->lost_peer);
    echi_json_put_real(j, "checkpoint_seconds", r->checkpoint_seconds);
    echi_json_put_whole(j, "resumed_samples", r->resumed_samples);
    add_ints(j, "lost", r->lost, within(r->n_lost, ECH_WORLD_MAX));
    echi_json_put_whole(j, "leases_again", r->leases_again);
    echi_json_put_whole(j, "samples_again", r->samples_again);
    echi_json_put_whole(j, "head_repeats", r->head_repeats);
    echi_json_put_text(j, "codec", r->codec);
    echi_json_put_real(j, "push_ratio", r->push_ratio);
    echi_json_put_real(j, "state_ratio", r->state_ratio);
    echi_json_put_whole(j, "residuals_lost", r->residuals_lost);
    echi_json_put_whole(j, "momentum_lost", r->momentum_lost);
    echi_json_put_whole(j, "leases_dropped", r->leases_dropped);
    echi_json_put_whole(j, "samples_dropped", r->samples_dropped);
    echi_json_put_optional(j, "predicted_images_per_second", r->predicted_images_per_second);
    echi_json_put_optional(j, "predicted_staleness", r->predicted_staleness);
    echi_json_put_optional(j, "net_negative", r->net_negative);
    echi_json_put_real(j, "net_negative_gain", r->net_negative_gain);
    echi_json_put_whole(j, "regroups", r->regroups);
    echi_json_put_whole(j, "resizes", r->resizes);
    add_rates(j, "link_run_out", r->link_run_out, world);
    add_rates(j, "link_run_in", r->link_run_in, world);
    add_reals(j, "ratio_planned", r->ratio_planned, groups);
    add_reals(j, "ratio", r->ratio, groups);
    echi_json_put_whole(j, "ratio_changes", r->ratio_changes);
    echi_json_put_optional(j, "ratio_seconds", r->ratio_seconds);
    echi_json_put_text(j, "ratio_reason", r->ratio_reason);
    echi_json_put_optional(j, "predicted_over_measured", r->predicted_over_measured);
    add_predicted_links(j, r, world);
    add_candidates(j, r);
    add_what_if(j, r);
}

size_t ech_report_json(const struct ech_report *report, char *buf, size_t cap) {
    if (buf && cap) buf[0] = 0;
    if (!report) return 0;
    struct echi_json_put json;
    echi_json_put_begin(&json, buf, cap);
    add_all(&json, report);
    return echi_json_put_end(&json);
}
