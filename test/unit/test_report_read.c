/* SPDX-License-Identifier: Apache-2.0
 * Reports that are read again: what was written comes back, from any order of keys and beside keys of other versions; what no report has
 * is refused with its line, byte and key. */
#include "echelon_dev.h"
#include "echi_random.h"
#include "part.h"
#include "text_files.h"

#include <math.h>
#include <unistd.h>

static char path[] = "/tmp/echelon-report-XXXXXX";
static int make_file(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}
static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

/* ---- reports made up ---- */

static struct echi_random dice;
static int below(size_t n) { return (int)echi_random_below(&dice, (uint32_t)n); }
static uint64_t whole(void) {
    const uint64_t high = echi_random_u32(&dice), low = echi_random_u32(&dice);
    return (high << 32 | low) >> below(64);
}

/* Of any size, 0 at times; and now and then what is no number. */
static double amount(void) {
    if (below(20) == 0) return below(2) ? (double)NAN : (double)INFINITY;
    return below(8) ? ldexp((double)whole(), -below(200)) : 0;
}
static double real(void) { return below(2) ? amount() : -amount(); }
static double optional(void) { return below(3) ? fabs(amount()) : -1; }
static float small(void) { return (float)fmin(amount(), 1e30); }
static struct ech_link_rate rate(void) { return (struct ech_link_rate){small(), small(), small()}; }

static void text(char *out, size_t cap) {
    static const char *const piece[] = {"a", "/", " ", "\"", "\\", "\u00e9", "\u20ac", "\U0001F600", "%s", "topk:"};
    size_t len = 0;
    out[0] = 0;
    for (int n = below(40); n > 0; n--) {
        const char *add = piece[below(sizeof piece / sizeof piece[0])];
        if (len + strlen(add) >= cap) return;
        memcpy(out + len, add, strlen(add) + 1);
        len += strlen(add);
    }
}

static struct ech_report *random_report(void) {
    static const char *const names[] = {"push", "weights", "", "a name that is \u00fcber", "other", "gssp"};
    enum { NAMES = sizeof names / sizeof names[0] };
    struct ech_report *r = calloc(1, sizeof *r);
    assert_non_null(r);
    text(r->model, sizeof r->model);
    text(r->data, sizeof r->data);
    text(r->sync, sizeof r->sync);
    text(r->version, sizeof r->version);
    text(r->codec, sizeof r->codec);
    text(r->ratio_reason, sizeof r->ratio_reason);
    text(r->better_plan, sizeof r->better_plan);
    text(r->head_from, sizeof r->head_from);
    text(r->activations, sizeof r->activations);
    r->world = below(8) ? 1 + below(20) : ECH_WORLD_MAX;
    r->separate = below(2);
    r->n_groups = below(ECH_GROUPS_MAX + 1);
    r->head = below(2) ? below((size_t)r->world) : -1;
    for (int i = 0; i < r->world; i++) {
        r->group_of[i] = below((size_t)r->n_groups + 1) - 1;
        r->batch[i] = below(1000);
        r->step_seconds[i] = amount();
        r->link[i] = amount();
        r->delay[i] = amount();
        r->link_out[i] = rate();
        r->link_in[i] = rate();
        r->link_run_out[i] = rate();
        r->link_run_in[i] = rate();
        r->predicted_link[i] = (struct ech_link_use){small(), small()};
    }
    for (int g = 0; g < r->n_groups; g++) {
        r->owner_of[g] = below((size_t)r->world);
        r->iteration_seconds[g] = amount();
        r->ratio_planned[g] = amount();
        r->ratio[g] = amount();
    }
    r->n_shards = below(ECH_SHARDS_MAX + 1);
    for (int k = 0; k < r->n_shards; k++) r->shard_owner[k] = below((size_t)r->world);
    r->n_heads = below(ECH_HEADS_MAX + 1);
    for (int i = 0; i < r->n_heads; i++) r->head_rank[i] = below((size_t)r->world);
    r->n_lost = below((size_t)r->world + 1);
    for (int i = 0; i < r->n_lost; i++) r->lost[i] = below((size_t)r->world);
    r->round = below(1 << 20);
    r->threads = below(100);
    r->resident_peak = (size_t)whole();
    for (int k = below(ECH_KINDS_MAX); k > 0; k--) {
        r->kind_name[k - 1] = names[below(NAMES)];
        r->bytes_sent[k - 1] = whole();
    }
    for (int i = 0; i < ECH_STALENESS_BINS; i++) {
        if (i < ECH_STALENESS_BINS - 1) r->staleness_edge[i] = amount();
        r->staleness_trunk[i] = whole();
        r->staleness_head[i] = whole();
    }
    uint64_t *wholes[] = {&r->steps, &r->samples, &r->seed, &r->resumed_samples, &r->leases_again, &r->samples_again, &r->head_repeats,
                          &r->residuals_lost, &r->momentum_lost, &r->leases_dropped, &r->samples_dropped, &r->regroups, &r->resizes,
                          &r->ratio_changes, &r->better_plans, &r->shadows_made, &r->head_moves};
    double *amounts[] = {&r->epochs, &r->seconds, &r->images_per_second, &r->measuring_seconds, &r->startup_seconds, &r->staleness_max,
                         &r->staleness_mean, &r->checkpoint_seconds, &r->push_ratio, &r->state_ratio, &r->target_accuracy,
                         &r->head_seconds};
    double *optionals[] = {&r->test_accuracy, &r->best_accuracy, &r->target_seconds, &r->target_epochs, &r->predicted_images_per_second,
                           &r->predicted_staleness, &r->ratio_seconds, &r->predicted_over_measured, &r->behind, &r->measured_efficiency,
                           &r->measured_efficiency_error};
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) *wholes[i] = whole();
    for (size_t i = 0; i < sizeof amounts / sizeof amounts[0]; i++) *amounts[i] = amount();
    for (size_t i = 0; i < sizeof optionals / sizeof optionals[0]; i++) *optionals[i] = optional();
    r->train_loss = real();
    r->net_negative_gain = real();
    r->lost_peer = below((size_t)r->world + 1) - 1;
    r->net_negative = below((size_t)r->world + 1) - 1;
    r->n_candidates = below(ECH_CANDIDATES_MAX + 1);
    for (int i = 0; i < r->n_candidates; i++)
        r->candidate[i] = (struct ech_candidate){names[below(NAMES)], below(ECH_GROUPS_MAX + 1), below(2), below(2), amount(), amount(),
                                                 amount(), amount(), amount(), names[below(NAMES)]};
    r->n_loss_curve = below(ECH_CURVE_MAX + 1);
    for (int i = 0; i < r->n_loss_curve; i++) r->loss_curve[i] = (struct ech_loss_point){amount(), amount()};
    r->n_what_if = below(ECH_WHAT_IF_MAX + 1);
    for (int i = 0; i < r->n_what_if; i++)
        r->what_if[i] = (struct ech_what_if){names[below(NAMES)], below((size_t)r->world + 1) - 1, real()};
    return r;
}

/* ---- reading ---- */

static char *json(const struct ech_report *r) {
    const size_t len = ech_report_json(r, NULL, 0);
    char *out = malloc(len + 1);
    assert_non_null(out);
    assert_int_equal(ech_report_json(r, out, len + 1), len);
    return out;
}

static struct ech_report *read_text(const char *bytes) {
    struct ech_report *r = NULL;
    struct ech_error err = {0};
    write_bytes(path, bytes, strlen(bytes));
    if (ech_report_read(path, &r, &err) != ECH_OK) fail_msg("%s, in %s", err.text, bytes);
    return r;
}

/* The sentence of a refusal. */
static const char *refused(const char *bytes, size_t len) {
    static struct ech_error err;
    struct ech_report *r = NULL;
    write_bytes(path, bytes, len);
    if (ech_report_read(path, &r, &err) != ECH_E_FORMAT) fail_msg("not refused: %.*s", (int)len, bytes);
    assert_null(r);
    return err.text;
}

static void test_round_trip(void **state) {
    (void)state;
    echi_random_init(&dice, 11, ECHI_STREAM_TEST, 0);
    for (uint32_t round = 0; round < 400; round += test_part()) {
        struct ech_report *before = random_report();
        char *first = json(before);
        struct ech_report *after = read_text(first);
        char *second = json(after);
        if (strcmp(first, second) != 0) fail_msg("round %u: %s became %s", (unsigned)round, first, second);
        /* Numbers are written with ten digits, and the writer's own tests see that each key has its field. */
        assert_int_equal(after->n_groups, before->n_groups);
        assert_memory_equal(after->group_of, before->group_of, (size_t)before->world * sizeof before->group_of[0]);
        assert_memory_equal(after->batch, before->batch, (size_t)before->world * sizeof before->batch[0]);
        assert_int_equal(after->head, before->head);
        assert_int_equal(after->n_lost, before->n_lost);
        assert_int_equal(after->n_shards, before->n_shards);
        assert_int_equal(after->n_loss_curve, before->n_loss_curve);
        assert_int_equal(after->samples, before->samples);
        assert_int_equal(after->net_negative, before->net_negative);
        assert_string_equal(after->data, before->data);
        ech_report_destroy(after);
        free(second);
        free(first);
        free(before);
    }
}

static const char least[] = "{\"model\": \"m\", \"sync\": \"bsp\", \"world\": 3, \"groups\": [[0, 2]]}";

/* What an older version did not write is as it is where nobody knows. */
static void test_missing_keys(void **state) {
    (void)state;
    struct ech_report *r = read_text(least);
    assert_string_equal(r->model, "m");
    assert_int_equal(r->world, 3);
    assert_int_equal(r->n_groups, 1);
    assert_int_equal(r->group_of[0], 0);
    assert_int_equal(r->group_of[1], -1);
    assert_int_equal(r->group_of[2], 0);
    assert_int_equal(r->group_of[3], -1);
    assert_int_equal(r->head, -1);
    assert_int_equal(r->lost_peer, -1);
    assert_int_equal(r->net_negative, -1);
    const double none[] = {r->predicted_images_per_second, r->predicted_staleness, r->predicted_over_measured, r->test_accuracy,
                           r->best_accuracy, r->target_seconds, r->target_epochs, r->ratio_seconds};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) assert_true(none[i] == -1);
    assert_true(r->seconds == 0 && r->samples == 0 && r->n_what_if == 0 && r->n_candidates == 0 && !r->kind_name[0] && !r->codec[0]);
    ech_report_destroy(r);
    r = read_text("{\"groups\": [], \"world\": 1, \"sync\": \"\", \"model\": \"\", \"candidates\": [{}], \"what_if\": [{\"gain\": 1}]}");
    assert_string_equal(r->candidate[0].sync, "");
    assert_string_equal(r->what_if[0].what, "");
    assert_int_equal(r->what_if[0].rank, -1);
    ech_report_destroy(r);
}

/* Of a newer version, and by whoever sorts keys: what others are checked by comes last. */
static void test_other_orders(void **state) {
    (void)state;
    struct ech_report *r = read_text(
        "{\"what_if\": [{\"rank\": 1, \"new\": {}, \"gain\": 0.5, \"what\": \"links\"}],\n"
        "\"unheard of\": [{\"a\": [1, -2.5e3, null]}, true, false],\n"
        "\"staleness_head\": [1,2,3,4,5,6,7,8,9,10,11,12,13],\n\"ratio\": [0.5], \"owners\": [1], \"batch\": [8, 0, 9],\n"
        "\"lost\": [2], \"head\": [1], \"groups\": [[0, 2]], \"world\": 3, \"sync\": \"asp\", \"model\": \"x\", \"net_negative\": 2,\n"
        "\"train_loss\": -1.5e-3, \"seconds\": null, \"target_seconds\": null, \"test_accuracy\": 0.5, \"seed\": 18446744073709551615}");
    assert_int_equal(r->n_what_if, 1);
    assert_string_equal(r->what_if[0].what, "links");
    assert_int_equal(r->what_if[0].rank, 1);
    assert_true(r->what_if[0].gain == 0.5 && r->ratio[0] == 0.5 && r->train_loss == -1.5e-3 && r->test_accuracy == 0.5);
    assert_int_equal(r->staleness_head[12], 13);
    assert_int_equal(r->owner_of[0], 1);
    assert_int_equal(r->batch[2], 9);
    assert_int_equal(r->n_lost, 1);
    assert_int_equal(r->lost[0], 2);
    assert_int_equal(r->head, 1);
    assert_int_equal(r->net_negative, 2);
    assert_true(isnan(r->seconds) && r->target_seconds == -1);
    assert_true(r->seed == UINT64_MAX);
    ech_report_destroy(r);
}

/* Texts are shown on terminals, and have their places. */
static void test_texts(void **state) {
    (void)state;
    char bytes[800], longest[300];
    memset(longest, 'x', sizeof longest);
    longest[30] = 0;   /* of 31 bytes, the last of which would be half a character */
    snprintf(bytes, sizeof bytes,
             "{\"sync\": \"a\\u001b[31m\\u0000b\\u007f\xc2\x85\", \"world\": 1, \"groups\": [], \"model\": \"%s\u00e9\", "
             "\"bytes_sent\": {\"\\u009bx\": 1}}", longest);
    struct ech_report *r = read_text(bytes);
    assert_string_equal(r->sync, "a?[31m?b???");
    assert_string_equal(r->model, longest);
    assert_string_equal(r->kind_name[0], "??x");
    ech_report_destroy(r);
    longest[30] = 'x';
    longest[sizeof longest - 1] = 0;
    snprintf(bytes, sizeof bytes, "{\"sync\": \"\", \"world\": 1, \"groups\": [], \"model\": \"%s\", \"bytes_sent\": {\"%s\": 7}}", longest,
             longest);
    r = read_text(bytes);
    assert_int_equal(strlen(r->model), sizeof r->model - 1);
    assert_int_equal(strlen(r->kind_name[0]), 128);
    assert_int_equal(r->bytes_sent[0], 7);
    ech_report_destroy(r);
}

#define NAMED "{\"model\": \"\", \"sync\": \"\", "
/* Whole files, then values behind what every report has; and what the sentence says. */
static void test_refusals(void **state) {
    (void)state;
    static const struct { const char *bytes, *sentence; } bad[] = {
        {"", "it is empty"},
        {"# Plan of an Echelon run", "it is no JSON object"},
        {"[]", "it is no JSON object"},
        {"{}", "it has no \"model\""},
        {"{\"model\": \"m\", \"world\": 1, \"groups\": []}", "it has no \"sync\""},
        {"{\"model\": \"m\", \"sync\": \"\", \"groups\": []}", "it has no \"world\""},
        {"{\"model\": \"m\", \"sync\": \"\", \"world\": 1}", "it has no \"groups\""},
        {"{\"world\": 0}", ":1: \"world\" takes a whole number from 1 to 1024, found '0}' (byte 10)"},
        {"{\"world\": 1025}", "from 1 to 1024"},
        {"{\"world\": -1}", "from 1 to 1024"},
        {"{\"world\": 3.5}", "a number is not whole"},
        {"{\"world\": null}", "from 1 to 1024, found 'null}' (byte 10: a whole number, 0 or more, is missing)"},
        {"{\"world\": 1, \"world\": 1}", "\"world\" is there twice"},
        {NAMED "\"world\": 3, \"groups\": [[0, 3]]}", "\"groups\" takes a rank, from 0 to 2, that is in no other group"},
        {NAMED "\"world\": 3, \"groups\": [[0], [0]]}", "that is in no other group"},
        {NAMED "\"world\": 3, \"groups\": [0]}", "\"groups\" is damaged here, found '0]}' (byte 49: an array '[' is missing)"},
        {NAMED "\"world\": 3, \"groups\": [[],[],[],[],[],[],[],[],[]]}", "\"groups\" has more than 8 groups"},
        {NAMED "\"world\": 3, \"groups\": [], \"head\": [3]}", "\"head\" takes a rank, from 0 to 2"},
        {NAMED "\"world\": 3, \"groups\": [], \"head\": [0, 1]}", "\"head\" has more than 1 value"},
    };
    static const struct { const char *value, *sentence; } worse[] = {
        {"\"batch\": [1, 2]", "\"batch\" has 2 values and needs 3 (ranks: 3, groups: 1)"},
        {"\"batch\": [1, 2, -3]", "\"batch\" takes a whole number from 0 to 2147483647, found '-3]}'"},
        {"\"batch\": [1, 2, 2147483648]", "\"batch\" takes"},
        {"\"batch\": [1, 2, 3, 4]", "\"batch\" has 4 values and needs 3"},
        {"\"batch\": 3", "\"batch\" takes a list, found '3}' (byte 71: an array '[' is missing)"},
        {"\"owners\": [3]", "\"owners\" takes a rank, from 0 to 2"},
        {"\"owners\": []", "\"owners\" has 0 values and needs 1"},
        {"\"lost\": [0, 1, 2, 99]", "\"lost\" takes a rank"},
        {"\"net_negative\": 3", "\"net_negative\" takes a rank, from 0 to 2, or null"},
        {"\"separate\": 2", "\"separate\" takes a whole number from 0 to 1"},
        {"\"seconds\": -1", "\"seconds\" takes a number, 0 or more, or null, found '-1}'"},
        {"\"seconds\": \"1\"", "\"seconds\" takes a number"},
        {"\"seconds\": 1e999", "\"seconds\" takes a number"},
        {"\"seconds\": 1.", "\"seconds\" is damaged here"},
        {"\"target_seconds\": -1", "\"target_seconds\" takes a number"},
        {"\"samples\": 18446744073709551616", "\"samples\" takes a whole number, 0 or more"},
        {"\"samples\": null", "\"samples\" takes a whole number"},
        {"\"data\": 7", "\"data\" takes a text in quotation marks, found '7}' (byte 70: a string is missing)"},
        {"\"staleness_head\": [1,1,1,1,1,1,1,1,1,1,1,1,1]", "\"staleness_head\" has 13 values and needs 0"},
        {"\"staleness_edges\": [1]", "\"staleness_edges\" has 1 value and needs 12"},
        {"\"link_out\": [{\"rate\": -1}]", "\"rate\" takes a number, 0 or more"},
        {"\"link_out\": [{\"rate\": 1e300}]", "\"rate\" takes a number, 0 or more"},
        {"\"link_out\": [7]", "an object of keys and values is damaged here, found '7]}'"},
        {"\"link_out\": [{\"rate\": 1, \"rate\": 1}]", "\"rate\" is there twice"},
        {"\"bytes_sent\": {\"push\": -1}", "\"bytes_sent\" takes a whole number, 0 or more"},
        {"\"candidates\": [{\"groups\": 9}]", "\"groups\" takes a whole number from 0 to 8"},
        {"\"what_if\": [{},{},{},{},{},{},{}]", "\"what_if\" has more than 6 values"},
        {"\"other\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "too deep"},
        {"\"other\": nul", "a value is missing"},
        {"\"other\": 1} {", "nothing may follow the report"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *sentence = refused(bad[i].bytes, strlen(bad[i].bytes));
        if (!strstr(sentence, bad[i].sentence) || !strstr(sentence, path)) fail_msg("%s: %s", bad[i].bytes, sentence);
    }
    for (size_t i = 0; i < sizeof worse / sizeof worse[0]; i++) {
        char bytes[400];
        snprintf(bytes, sizeof bytes, "%.*s, %s}", (int)(sizeof least - 2), least, worse[i].value);
        const char *sentence = refused(bytes, strlen(bytes));
        if (!strstr(sentence, worse[i].sentence) || !strstr(sentence, path)) fail_msg("%s: %s", bytes, sentence);
    }
    char kinds[1200] = NAMED "\"world\": 1, \"groups\": [], \"bytes_sent\": {";
    for (int k = 0; k < ECH_KINDS_MAX; k++) snprintf(kinds + strlen(kinds), sizeof kinds - strlen(kinds), "%s\"k%d\": 1", k ? ", " : "", k);
    strcat(kinds, "}}");
    assert_non_null(strstr(refused(kinds, strlen(kinds)), "\"bytes_sent\" has more than 71 kinds of message"));
    assert_non_null(strstr(refused("{\n\n\"world\": x}", 14), ":3: "));
}

/* Wherever a file breaks off, and whatever stands in the place of a byte of its structure. */
static void test_damaged(void **state) {
    (void)state;
    echi_random_init(&dice, 12, ECHI_STREAM_TEST, 0);
    struct ech_report *r = random_report();
    r->world = r->world > 3 ? 3 : r->world;
    r->head = -1;
    r->n_groups = r->n_shards = r->n_lost = 0;
    r->lost_peer = r->net_negative = -1;
    for (int i = 0; i < r->n_what_if; i++) r->what_if[i].rank = -1;
    char *bytes = json(r);
    const size_t len = strlen(bytes);
    for (size_t cut = 0; cut < len - 1; cut += test_part()) refused(bytes, cut);   /* the last is a line end */
    for (size_t i = 0; i < len; i += test_part()) {
        if (!strchr("{}[]:,\"", bytes[i])) continue;
        const char was = bytes[i];
        bytes[i] = was == '"' ? 'x' : '"';
        refused(bytes, len);
        bytes[i] = was;
    }
    free(bytes);
    free(r);
}

static void test_files(void **state) {
    (void)state;
    struct ech_report *r = NULL;
    struct ech_error err;
    assert_int_equal(ech_report_read("/nowhere/report", &r, &err), ECH_E_IO);
    assert_int_equal(ech_report_read("/tmp", &r, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_report_read(NULL, &r, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_report_read(path, NULL, &err), ECH_E_ARGUMENT);
    const size_t most = 1 << 20;
    char *bytes = malloc(most + 1);
    assert_non_null(bytes);
    memset(bytes, ' ', most + 1);
    memcpy(bytes, least, sizeof least - 1);
    write_bytes(path, bytes, most);
    assert_int_equal(ech_report_read(path, &r, &err), ECH_OK);
    assert_non_null(strstr(refused(bytes, most + 1), "more than the 1048576 allowed here"));
    ech_report_destroy(r);
    ech_report_destroy(NULL);
    free(bytes);
}

static void test_locale(void **state) {
    (void)state;
    use_comma_locale();
    struct ech_report *r = read_text("{\"model\": \"\", \"sync\": \"\", \"world\": 1, \"groups\": [], \"seconds\": 41.5}");
    setlocale(LC_ALL, "C");
    assert_true(r->seconds == 41.5);
    ech_report_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_missing_keys), cmocka_unit_test(test_other_orders),
        cmocka_unit_test(test_texts), cmocka_unit_test(test_refusals), cmocka_unit_test(test_damaged), cmocka_unit_test(test_files),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
