/* SPDX-License-Identifier: Apache-2.0
 * Reports: what is read has its ranks, groups and lists within the arrays of the struct, and written and read again it is the same. */
#include "fuzz.h"

#include "echelon_dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written by the library: of a report that was taken, from then on always the same bytes. */
static char *written(const struct ech_report *r, size_t *len) {
    *len = ech_report_json(r, NULL, 0);
    char *text = malloc(*len + 1);
    FUZZ_CHECK(text != NULL);
    FUZZ_CHECK(ech_report_json(r, text, *len + 1) == *len);
    return text;
}

static bool shown(const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < ' ' || *c == 0x7f || (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)) return false;
    return true;
}

static bool rank_or_none(const struct ech_report *r, int rank) { return rank >= -1 && rank < r->world; }

/* What those who print a report rely on. */
static void check(const struct ech_report *r) {
    FUZZ_CHECK(r->world >= 1 && r->world <= ECH_WORLD_MAX && r->n_groups >= 0 && r->n_groups <= ECH_GROUPS_MAX);
    FUZZ_CHECK(shown(r->model) && shown(r->data) && shown(r->sync) && shown(r->version) && shown(r->codec) && shown(r->ratio_reason));
    FUZZ_CHECK(shown(r->better_plan) && shown(r->head_from) && shown(r->activations));
    for (int i = 0; i < ECH_WORLD_MAX; i++)
        FUZZ_CHECK(i < r->world ? r->group_of[i] >= -1 && r->group_of[i] < r->n_groups && r->batch[i] >= 0 : r->group_of[i] == -1);
    for (int g = 0; g < r->n_groups; g++) FUZZ_CHECK(rank_or_none(r, r->owner_of[g]) && r->owner_of[g] >= 0);
    FUZZ_CHECK(rank_or_none(r, r->head) && rank_or_none(r, r->lost_peer) && rank_or_none(r, r->net_negative));
    FUZZ_CHECK(r->n_shards >= 0 && r->n_shards <= ECH_SHARDS_MAX && r->n_lost >= 0 && r->n_lost <= ECH_WORLD_MAX);
    FUZZ_CHECK(r->n_heads >= 0 && r->n_heads <= ECH_HEADS_MAX);
    for (int i = 0; i < r->n_heads; i++) FUZZ_CHECK(rank_or_none(r, r->head_rank[i]) && r->head_rank[i] >= 0);
    for (int k = 0; k < r->n_shards; k++) FUZZ_CHECK(rank_or_none(r, r->shard_owner[k]) && r->shard_owner[k] >= 0);
    for (int i = 0; i < r->n_lost; i++) FUZZ_CHECK(rank_or_none(r, r->lost[i]) && r->lost[i] >= 0);
    FUZZ_CHECK(!r->kind_name[ECH_KINDS_MAX - 1]);
    for (int k = 0; r->kind_name[k]; k++) FUZZ_CHECK(shown(r->kind_name[k]));
    FUZZ_CHECK(r->n_candidates >= 0 && r->n_candidates <= ECH_CANDIDATES_MAX && r->n_what_if >= 0 && r->n_what_if <= ECH_WHAT_IF_MAX);
    for (int i = 0; i < r->n_candidates; i++) FUZZ_CHECK(shown(r->candidate[i].sync) && r->candidate[i].groups <= ECH_GROUPS_MAX);
    for (int i = 0; i < r->n_candidates; i++) FUZZ_CHECK(shown(r->candidate[i].efficiency_from));
    FUZZ_CHECK(r->n_loss_curve >= 0 && r->n_loss_curve <= ECH_CURVE_MAX);
    for (int i = 0; i < r->n_what_if; i++) FUZZ_CHECK(shown(r->what_if[i].what) && rank_or_none(r, r->what_if[i].rank));
    FUZZ_CHECK(!(r->seconds < 0) && !(r->link_out[0].rate < 0) && r->target_seconds >= -1);
}

static bool one(const uint8_t *bytes, size_t len) {
    struct ech_report *report = NULL, *again = NULL;
    struct ech_error err = {0};
    const ech_status status = ech_report_read(fuzz_file(0, bytes, len), &report, &err);
    if (status != ECH_OK) {
        FUZZ_CHECK(!report);
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        return false;
    }
    check(report);
    size_t first_len, second_len;
    char *first = written(report, &first_len);
    FUZZ_CHECK(ech_report_read(fuzz_file(1, first, first_len), &again, &err) == ECH_OK);
    char *second = written(again, &second_len);
    FUZZ_CHECK(first_len == second_len && memcmp(first, second, first_len) == 0);
    free(second);
    free(first);
    ech_report_destroy(again);
    ech_report_destroy(report);
    return true;
}

/* As the library writes them; then small ones, which mutations go further with. */
static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "{\"model\": \"m\", \"sync\": \"bsp\", \"world\": 3, \"groups\": [[0, 2], []], \"owners\": [1, 0], \"head\": [1],\n"
        "\"batch\": [8, 0, 9]}",
        "{\"lost\": [2, 0], \"shard_owners\": [1], \"groups\": [[1]], \"world\": 3, \"sync\": \"local\",\n"
        "\"model\": \"\\u00e4\", \"seed\": 7}",
        "{\"model\": \"\", \"sync\": \"\", \"world\": 1, \"groups\": [],\n"
        "\"what_if\": [{\"what\": \"links\", \"rank\": 0, \"gain\": -0.5}], "
        "\"link_out\": [{\"rate\": 1e3, \"highest\": 2.5, \"lowest\": null, \"new\": [{}]}], \"predicted_link\": [{\"out\": 1}]}",
        "{\"model\": \"\", \"sync\": \"\", \"world\": 1, \"groups\": [],\n"
        "\"candidates\": [{\"sync\": \"gssp\", \"groups\": 8, \"taken\": 1}, {}],\n"
        "\"bytes_sent\": {\"push\": 1, \"push\": 18446744073709551615}, \"test_accuracy\": null, \"seconds\": null, \"train_loss\": -1}",
        NULL,
    };
    (void)good; /* all are */
    if (i > 0) return fuzz_seed_text(text, i - 1, out, cap);
    struct ech_report r = {.model = "lenet5", .sync = "gssp", .world = 2, .n_groups = 2, .group_of = {0, 1}, .head = 1, .lost_peer = -1,
                           .net_negative = 1, .target_seconds = -1, .kind_name = {"push"}, .codec = "topk:paper",
                           .n_candidates = 1, .candidate = {{"asp", 1, 0, 1, 9, 0.5, 0.75, 6, 0.15, "table"}}, .n_what_if = 1,
                           .what_if = {{"steps", -1, 0.25}}};
    const size_t len = ech_report_json(&r, (char *)out, cap);
    FUZZ_CHECK(len < cap);
    return len;
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "{", "}", "[", "]", ", ", ": ", "null", "-1", "0", "1", "1024", "1025", "1e999", "1e300", "-0.5", "18446744073709551615", "\"\"",
    "[]", "{}", "[[0]]", "\"model\": ", "\"sync\": ", "\"world\": ", "\"groups\": ", "\"owners\": ", "\"shard_owners\": ", "\"head\": ",
    "\"batch\": ", "\"round\": ", "\"step_seconds\": ", "\"link_out\": ", "\"rate\": ", "\"lowest\": ", "\"highest\": ", "\"lost\": ",
    "\"bytes_sent\": ", "\"seconds\": ", "\"net_negative\": ", "\"staleness_head\": ", "\"predicted_link\": ", "\"candidates\": ",
    "\"what_if\": ", "\"what\": ", "\"rank\": ", "\"gain\": ", "\"data\": ", "\"push\": 1", "\\u001b[31m", "\\u0000", "\\u009b",
    "\xc2\x9b", "\xf0\x9f\x98\x80", "true", NULL,
};
/* clang-format on */

/* A report takes 130 KB, twice; so do its two texts, whose lists are as long as the file says. */
const struct fuzz_driver fuzz_report = {
    .name = "report", .one = one, .seed = seed, .words = words, .most = 4096, .heap = 1600000, .heap_a_byte = 16};
