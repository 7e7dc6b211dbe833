/* SPDX-License-Identifier: Apache-2.0
 * The keys of a report, in the order in which they are written. */
#include "echi_report_keys.h"
#include "echi_limits.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

/* A row that has another type than its field does not compile. */
#define AT(s, type, field) .at = offsetof(struct s, field) + 0 * sizeof _Generic(((struct s *)0)->field, type: 0), \
                           .size = sizeof ((struct s *)0)->field
#define ROW(s, key, kind_, type, field) .name = key, .kind = ECHI_REPORT_##kind_, AT(s, type, field)
#define TEXT(field)          {ROW(ech_report, #field, TEXT, char *, field)}
#define WHOLE(field)         {ROW(ech_report, #field, WHOLE, uint64_t, field)}
#define REAL(field)          {ROW(ech_report, #field, REAL, double, field)}
#define AMOUNT(field)        {ROW(ech_report, #field, AMOUNT, double, field)}
#define OPTIONAL(field)      {ROW(ech_report, #field, OPTIONAL, double, field)}
#define NO_RANK(field)       {ROW(ech_report, #field, NO_RANK, int, field)}
#define COUNT(field, MOST)   {ROW(ech_report, #field, COUNT, int, field), .most = MOST}
#define LIST(key, length_, kind_, type, field) {ROW(ech_report, key, kind_, type, field[0]), .length = ECHI_REPORT_##length_}
#define OBJECTS(key, length_, type, field, keys) \
    {ROW(ech_report, key, OBJECT, struct type, field[0]), .length = ECHI_REPORT_##length_, .inner = keys}

static const struct echi_report_key rate[] = {
    {ROW(ech_link_rate, "rate", FLOAT, float, rate)},
    {ROW(ech_link_rate, "lowest", FLOAT, float, lowest)},
    {ROW(ech_link_rate, "highest", FLOAT, float, highest)},
    {0}};

static const struct echi_report_key use[] = {
    {ROW(ech_link_use, "out", FLOAT, float, out)},
    {ROW(ech_link_use, "in", FLOAT, float, in)},
    {0}};

static const struct echi_report_key candidate[] = {
    {ROW(ech_candidate, "sync", NAME, const char *, sync)},
    {ROW(ech_candidate, "groups", COUNT, int, groups), .most = ECH_GROUPS_MAX},
    {ROW(ech_candidate, "separated", COUNT, int, separated), .most = 1},
    {ROW(ech_candidate, "taken", COUNT, int, taken), .most = 1},
    {ROW(ech_candidate, "images_per_second", AMOUNT, double, images_per_second)},
    {ROW(ech_candidate, "staleness", AMOUNT, double, staleness)},
    {ROW(ech_candidate, "efficiency", AMOUNT, double, efficiency)},
    {ROW(ech_candidate, "goodput", AMOUNT, double, goodput)},
    {ROW(ech_candidate, "efficiency_error", AMOUNT, double, efficiency_error)},
    {ROW(ech_candidate, "efficiency_from", NAME, const char *, efficiency_from)},
    {0}};

static const struct echi_report_key what_if[] = {
    {ROW(ech_what_if, "what", NAME, const char *, what)},
    {ROW(ech_what_if, "rank", NO_RANK, int, rank)},   /* null: of all nodes */
    {ROW(ech_what_if, "gain", REAL, double, gain)},
    {0}};

static const struct echi_report_key path[] = {
    {ROW(ech_path_part, "what", NAME, const char *, what)},
    {ROW(ech_path_part, "rank", NO_RANK, int, rank)},   /* null: of several, or of none */
    {ROW(ech_path_part, "seconds", AMOUNT, double, seconds)},
    {0}};

static const struct echi_report_key loss_point[] = {
    {ROW(ech_loss_point, "samples", AMOUNT, double, samples)},
    {ROW(ech_loss_point, "loss", AMOUNT, double, loss)},
    {0}};

static const struct echi_report_key spent[] = {
    {ROW(ech_spent, "steps", FLOAT, float, steps)},
    {ROW(ech_spent, "owner", FLOAT, float, owner)},
    {ROW(ech_spent, "head", FLOAT, float, head)},
    {ROW(ech_spent, "codec", FLOAT, float, codec)},
    {ROW(ech_spent, "weights", FLOAT, float, weights)},
    {ROW(ech_spent, "lease", FLOAT, float, lease)},
    {ROW(ech_spent, "activations", FLOAT, float, activations)},
    {ROW(ech_spent, "gradients", FLOAT, float, gradients)},
    {ROW(ech_spent, "other", FLOAT, float, other)},
    {0}};

const struct echi_report_key echi_report_keys[] = {
    TEXT(version),
    {ROW(ech_report, "model", TEXT, char *, model), .needed = true},
    TEXT(data),
    {ROW(ech_report, "sync", TEXT, char *, sync), .needed = true},
    WHOLE(seed),
    COUNT(separate, 1),
    {ROW(ech_report, "world", COUNT, int, world), .least = 1, .most = ECH_WORLD_MAX, .turn = ECHI_REPORT_FIRST, .needed = true},
    {.name = "groups", .kind = ECHI_REPORT_GROUPS, .turn = ECHI_REPORT_SECOND, .needed = true},
    LIST("owners", PER_GROUP, RANK, int, owner_of),
    LIST("shard_owners", SHARDS, RANK, int, shard_owner),
    {ROW(ech_report, "head", RANK, int, head), .length = ECHI_REPORT_HEAD, .turn = ECHI_REPORT_SECOND},
    TEXT(head_from),
    TEXT(activations),
    COUNT(micro_batches, ECHI_MICRO_MAX),
    LIST("heads", HEADS, RANK, int, head_rank),
    {ROW(ech_report, "batch", COUNT, int, batch[0]), .most = INT_MAX, .length = ECHI_REPORT_WORLD},
    COUNT(round, INT_MAX),
    LIST("step_seconds", WORLD, AMOUNT, double, step_seconds),
    LIST("link", WORLD, AMOUNT, double, link),
    OBJECTS("link_out", WORLD, ech_link_rate, link_out, rate),
    OBJECTS("link_in", WORLD, ech_link_rate, link_in, rate),
    LIST("delay", WORLD, AMOUNT, double, delay),
    LIST("iteration_seconds", PER_GROUP, AMOUNT, double, iteration_seconds),
    WHOLE(steps),
    WHOLE(samples),
    AMOUNT(epochs),
    AMOUNT(seconds),
    AMOUNT(images_per_second),
    AMOUNT(measuring_seconds),
    AMOUNT(startup_seconds),
    REAL(train_loss),
    OPTIONAL(test_accuracy),
    OPTIONAL(best_accuracy),
    OPTIONAL(target_seconds),
    OPTIONAL(target_epochs),
    {.name = "bytes_sent", .kind = ECHI_REPORT_KINDS},
    AMOUNT(staleness_max),
    AMOUNT(staleness_mean),
    LIST("staleness_edges", EDGES, AMOUNT, double, staleness_edge),
    LIST("staleness_trunk", BINS, WHOLE, uint64_t, staleness_trunk),
    LIST("staleness_head", HEAD_BINS, WHOLE, uint64_t, staleness_head),
    {ROW(ech_report, "resident_peak", SIZE, size_t, resident_peak)},
    COUNT(threads, INT_MAX),
    NO_RANK(lost_peer),
    AMOUNT(checkpoint_seconds),
    WHOLE(resumed_samples),
    LIST("lost", LOST, RANK, int, lost),
    WHOLE(leases_again),
    WHOLE(samples_again),
    WHOLE(head_repeats),
    TEXT(codec),
    AMOUNT(push_ratio),
    AMOUNT(state_ratio),
    WHOLE(residuals_lost),
    WHOLE(momentum_lost),
    WHOLE(shadows_made),
    WHOLE(head_moves),
    AMOUNT(head_seconds),
    WHOLE(leases_dropped),
    WHOLE(samples_dropped),
    OPTIONAL(predicted_images_per_second),
    OPTIONAL(predicted_staleness),
    NO_RANK(net_negative),
    REAL(net_negative_gain),
    WHOLE(regroups),
    WHOLE(resizes),
    OBJECTS("link_run_out", WORLD, ech_link_rate, link_run_out, rate),
    OBJECTS("link_run_in", WORLD, ech_link_rate, link_run_in, rate),
    LIST("ratio_planned", PER_GROUP, AMOUNT, double, ratio_planned),
    LIST("ratio", PER_GROUP, AMOUNT, double, ratio),
    WHOLE(ratio_changes),
    OPTIONAL(ratio_seconds),
    TEXT(ratio_reason),
    WHOLE(better_plans),
    TEXT(better_plan),
    OPTIONAL(predicted_over_measured),
    OBJECTS("predicted_link", WORLD, ech_link_use, predicted_link, use),
    OBJECTS("candidates", CANDIDATES, ech_candidate, candidate, candidate),
    OBJECTS("what_if", WHAT_IFS, ech_what_if, what_if, what_if),
    AMOUNT(target_accuracy),
    AMOUNT(path_seconds),
    NO_RANK(path_rank),
    OBJECTS("path", PATH, ech_path_part, path, path),
    LIST("slot_bytes", WORLD, WHOLE, uint64_t, slot_bytes),
    LIST("activation_bytes", WORLD, WHOLE, uint64_t, activation_bytes),
    OPTIONAL(behind),
    OBJECTS("loss_curve", LOSS_CURVE, ech_loss_point, loss_curve, loss_point),
    OPTIONAL(measured_efficiency),
    OPTIONAL(measured_efficiency_error),
    COUNT(simulated, 1),
    OBJECTS("spent", WORLD, ech_spent, spent, spent),
    {0}};
_Static_assert(sizeof echi_report_keys / sizeof echi_report_keys[0] <= ECHI_REPORT_KEYS_MAX, "a reader marks each that it has read");

/* Of each kind of list: the field that counts its values, and how many there may be. */
#define NOWHERE SIZE_MAX
static const struct { size_t count; int most; } lists[] = {
    [ECHI_REPORT_ALONE] = {NOWHERE, 1},
    [ECHI_REPORT_WORLD] = {offsetof(struct ech_report, world), ECH_WORLD_MAX},
    [ECHI_REPORT_PER_GROUP] = {offsetof(struct ech_report, n_groups), ECH_GROUPS_MAX},
    [ECHI_REPORT_HEAD] = {NOWHERE, 1},
    [ECHI_REPORT_EDGES] = {NOWHERE, ECH_STALENESS_BINS - 1},
    [ECHI_REPORT_BINS] = {NOWHERE, ECH_STALENESS_BINS},
    [ECHI_REPORT_HEAD_BINS] = {NOWHERE, ECH_STALENESS_BINS},
    [ECHI_REPORT_SHARDS] = {offsetof(struct ech_report, n_shards), ECH_SHARDS_MAX},
    [ECHI_REPORT_HEADS] = {offsetof(struct ech_report, n_heads), ECH_HEADS_MAX},
    [ECHI_REPORT_LOST] = {offsetof(struct ech_report, n_lost), ECH_WORLD_MAX},
    [ECHI_REPORT_CANDIDATES] = {offsetof(struct ech_report, n_candidates), ECH_CANDIDATES_MAX},
    [ECHI_REPORT_WHAT_IFS] = {offsetof(struct ech_report, n_what_if), ECH_WHAT_IF_MAX},
    [ECHI_REPORT_PATH] = {offsetof(struct ech_report, n_path), ECH_PATH_MAX},
    [ECHI_REPORT_LOSS_CURVE] = {offsetof(struct ech_report, n_loss_curve), ECH_CURVE_MAX}};

int echi_report_longest(enum echi_report_length length) { return lists[length].most; }

int *echi_report_count(struct ech_report *r, enum echi_report_length length) {
    return length >= ECHI_REPORT_SHARDS ? (int *)(void *)((char *)r + lists[length].count) : NULL;
}

int echi_report_length(const struct ech_report *r, enum echi_report_length length) {
    const bool of_head = length == ECHI_REPORT_HEAD || length == ECHI_REPORT_HEAD_BINS;
    const int most = lists[length].most;
    if (lists[length].count == NOWHERE) return of_head && r->head < 0 ? 0 : most;
    const int count = *(const int *)(const void *)((const char *)r + lists[length].count);
    return count < 0 ? 0 : count > most ? most : count;
}

void echi_report_clear_fields(void *fields, const struct echi_report_key *keys) {
    for (const struct echi_report_key *key = keys; key->name; key++) {
        void *at = (char *)fields + key->at;
        if (key->kind == ECHI_REPORT_NAME) *(const char **)at = "";
        if (key->kind == ECHI_REPORT_NO_RANK || key->length == ECHI_REPORT_HEAD) *(int *)at = -1;
        if (key->kind == ECHI_REPORT_OPTIONAL) *(double *)at = -1;
    }
}

void echi_report_clear(struct ech_report *r) {
    memset(r, 0, sizeof *r);
    echi_report_clear_fields(r, echi_report_keys);
    for (int rank = 0; rank < ECH_WORLD_MAX; rank++) r->group_of[rank] = -1;
}
